"""The table of costs in docs/large.md, against the counters."""

import dask.array as da
import numpy as np
import pytest

from conenmf import cluster_cones, cr1_nmf, factorize, from_rows, make_cones, open_data
from conenmf.cones.rank_one import draw_centres
from conenmf.cones.rank_one import rank_one_factors as rank_one
from conenmf.solve.alternate import alternate
from conenmf.solve.coefficients import coefficients
from conenmf.solve.run import Stopping
from conenmf.solve.solvers import SOLVERS

F, K, N, P = 50, 4, 2000, 4
FK, KK = 8 * F * K, 8 * K * K


@pytest.fixture(scope="module")
def X():
    model = make_cones(F, K, 0.15, n_samples=N, rng=np.random.default_rng(0))
    return np.ascontiguousarray(model.V.T)


@pytest.fixture
def V(X, traffic):
    return from_rows(da.from_array(X, chunks=(N // P, F)))


def cost(V, run):
    """Passes, and what travelled."""
    passes, traffic = V.passes, V.traffic
    run()
    moved = type(traffic)(*np.subtract(V.traffic, traffic).tolist())
    assert moved.tasks <= moved.rounds * P
    return V.passes - passes, moved


def test_opening(V, traffic):
    assert (V.passes, V.traffic) == (1, traffic(1, P, 0, 5 * 8))


def test_algorithm_1(V):
    passes, moved = cost(V, lambda: cluster_cones(V, K))
    assert 2 <= passes < 2.5
    assert moved.rounds <= 4 + 3 * K
    assert moved.bytes_out <= 3 * K * (FK + 200)
    assert moved.bytes_in <= 0.2 * 8 * F * N


def test_algorithm_1_in_one_pass(V):
    passes, moved = cost(V, lambda: cluster_cones(V, K, method="one-pass"))
    assert (passes, moved.rounds) == (2, 4)
    assert moved.bytes_in <= FK + 200


@pytest.mark.parametrize("runs", [1, 6])
def test_centres_drawn_at_random(V, runs):
    passes, moved = cost(V, lambda: draw_centres(V, K, np.random.default_rng(0), runs))
    assert passes == pytest.approx(K - 1 + runs * K / N)
    assert moved.rounds == 2 * K + 1
    columns = 8 * F * runs
    assert moved.bytes_out <= (2 * K + 1) * (columns + 200)
    assert moved.bytes_in <= K * (columns + 16 * runs + 200)


@pytest.mark.parametrize("tol", [1e-4, 1e-10])
def test_algorithm_2(V, traffic, tol):
    cones = cluster_cones(V, K)
    passes, moved = cost(V, lambda: rank_one(V, cones, tol=tol))
    n = round(passes)
    assert moved == traffic(n, n * P, n * FK, (n - 1) * FK + 8)


def test_both_algorithms_share_a_pass(V):
    passes_1, moved_1 = cost(V, lambda: cluster_cones(V, K))
    passes_2, moved_2 = cost(V, lambda: rank_one(V, cluster_cones(V, K)))
    passes, moved = cost(V, lambda: cr1_nmf(V, K))
    assert passes == pytest.approx(passes_2 - 1)
    assert moved.rounds == moved_2.rounds - 1
    assert passes_1 < passes < passes_1 + 6
    assert moved_1.rounds < moved.rounds


@pytest.mark.parametrize("name", SOLVERS)
def test_an_iteration_is_one_pass_and_one_round(V, traffic, name):
    W, H, _ = cr1_nmf(V, K)
    solver = SOLVERS[name]

    def run(iterations):
        stopping = Stopping(tol=0, max_iter=iterations)
        return cost(V, lambda: alternate(V, W, H, solver, stopping=stopping))

    (passes_5, moved_5), (passes_6, moved_6) = run(5), run(6)
    assert passes_6 - passes_5 == pytest.approx(1)
    per_iteration = traffic(*np.subtract(moved_6, moved_5).tolist())
    numbers = 10 * 8  # of the update, the step, the unit and the groups
    assert per_iteration == traffic(1, P, FK + KK + numbers, FK + KK + 8)
    assert passes_5 == pytest.approx(5 + (solver.first == "W"))


def test_the_exact_finish(V, traffic):
    W, _, _ = cr1_nmf(V, K)
    passes, moved = cost(V, lambda: coefficients(V, W))
    assert passes == pytest.approx(1)
    # W, W'W, two vectors and no table; then the order and the norms of its columns, to sort H
    assert moved == traffic(2, 2 * P, FK + KK + 4 * 8 * K + 8, 16)


def test_a_file_is_read_once_per_pass(X, tmp_path, rows_read):
    np.save(tmp_path / "X.npy", X)
    V = open_data(tmp_path / "X.npy", max_memory="1MB")
    factorize(V, K, max_iter=5, tol=0)
    assert sum(rows_read) == pytest.approx(V.passes * len(X), rel=1e-3)

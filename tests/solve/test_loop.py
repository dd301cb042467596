"""The loop: iterates of the original programs, one pass per iteration, stopping rules."""

from pathlib import Path

import numpy as np
import pytest

from conenmf import from_columns
from conenmf.solve.alternate import alternate
from conenmf.solve.run import Stopping, StopReason
from conenmf.solve.solvers import SOLVERS

PUBLISHED = pytest.mark.parametrize(
    ("name", "iterations"), [("mult", 30), ("hals", 30), ("nnlsb", 10)]
)


@PUBLISHED
def test_the_original_programs_agree(oracle, name, iterations, both_twins):
    check_published(from_columns, oracle, name, iterations)


@pytest.mark.thinned(3)
@PUBLISHED
def test_the_original_programs_agree_on_every_storage(name, iterations, main_backend, both_twins):
    many_zeros = Path(__file__).parents[1] / "oracle" / "case4.npz"
    check_published(main_backend, np.load(many_zeros), name, iterations)


def check_published(make, case, name, iterations):
    run = alternate(
        make(case["V"]),
        case["W0"],
        case["H0"],
        f"plain-{name}",
        stopping=Stopping(tol=0, max_iter=iterations),
    )
    np.testing.assert_allclose(run.history.relative_error, case[f"{name}_err"], rtol=1e-6)
    np.testing.assert_allclose(run.W, case[f"{name}_W"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(run.H, case[f"{name}_H"], rtol=1e-6, atol=1e-9)
    assert run.stop_reason == "max_iter"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SOLVERS)
def test_the_error_falls_and_is_the_error(name, main_backend, small_blocks, sample_matrix, init):
    run = alternate(
        main_backend(sample_matrix), *init, SOLVERS[name], stopping=Stopping(0, max_iter=40)
    )
    errors = run.history.relative_error
    assert (np.diff(errors) <= 1e-9).all()
    exact = np.linalg.norm(sample_matrix - run.W @ np.asarray(run.H)) / np.linalg.norm(
        sample_matrix
    )
    assert errors[-1] == pytest.approx(exact, rel=1e-9)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SOLVERS)
def test_one_pass_per_iteration(name, main_backend, sample_matrix, init):
    V = main_backend(sample_matrix)
    before = V.passes
    run = alternate(V, *init, SOLVERS[name], stopping=Stopping(0, max_iter=6))
    first = 1 if SOLVERS[name].first == "W" else 0  # the sums for the first W
    assert V.passes - before == 6 + first
    np.testing.assert_array_equal(run.history.passes, np.arange(1, 7) + first)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", SOLVERS)
def test_every_storage_gives_the_same_factors(name, backend, small_blocks, sample_matrix, init):
    stopping = Stopping(0, max_iter=8)
    run = alternate(backend(sample_matrix), *init, SOLVERS[name], stopping=stopping)
    plain = alternate(
        from_columns(sample_matrix, **small_blocks), *init, SOLVERS[name], stopping=stopping
    )
    np.testing.assert_allclose(run.W, plain.W, atol=1e-10)
    np.testing.assert_allclose(run.H, plain.H, atol=1e-10)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SOLVERS)
def test_float32(name, main_backend, sample_matrix, init):
    single = alternate(
        main_backend(sample_matrix.astype(np.float32)),
        *init,
        SOLVERS[name],
        stopping=Stopping(0, max_iter=20),
    )
    double = alternate(
        main_backend(sample_matrix), *init, SOLVERS[name], stopping=Stopping(0, max_iter=20)
    )
    assert single.W.dtype == single.H.dtype == np.float32
    np.testing.assert_allclose(
        single.history.relative_error, double.history.relative_error, rtol=1e-4
    )


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("scale", [2.0**-220, 2.0**-40, 2.0**220])
def test_the_scale_of_the_data_does_not_matter(name, scale, sample_matrix, init):
    W, H = init
    plain = alternate(from_columns(sample_matrix), W, H, name, stopping=Stopping(0, max_iter=20))
    for share in (1.0, scale, np.sqrt(scale)):  # however it is divided between W and H
        scaled = alternate(
            from_columns(sample_matrix * scale),
            W * share,
            H * (scale / share),
            name,
            stopping=Stopping(0, max_iter=20),
        )
        np.testing.assert_allclose(
            scaled.history.relative_error, plain.history.relative_error, rtol=1e-9
        )
        np.testing.assert_allclose(
            scaled.W @ scaled.H / scale, plain.W @ plain.H, rtol=1e-6, atol=1e-9
        )


def test_float32_error_is_that_of_the_rounded_factors(rng):
    """A small error is a difference of large numbers; both must come from the same W."""
    V = rng.random((40, 3)) @ rng.random((3, 200)) + 1e-2 * rng.random((40, 200))
    single = from_columns(V.astype(np.float32))
    run = alternate(single, rng.random((40, 3)), None, "nnlsb", stopping=Stopping(0, max_iter=30))
    exact = np.linalg.norm(V - run.W.astype(float) @ run.H) / np.linalg.norm(V)
    assert run.history.relative_error[-1] == pytest.approx(exact, rel=0.02)


# --- stopping ---------------------------------------------------------------------------------


def test_converged_does_not_depend_on_scale_or_init(sample_matrix, init):
    W, H = init
    plain = alternate(from_columns(sample_matrix), W, H, SOLVERS["hals"])
    assert plain.stop_reason == "converged"
    errors = plain.history.relative_error
    assert errors[-6] - errors[-1] < 1e-5 * errors[-6]
    reasons = [Stopping().reason(errors[:n].tolist(), 0.0) for n in range(1, errors.size + 1)]
    assert reasons == [None] * (errors.size - 1) + ["converged"]
    scaled = alternate(from_columns(2.0**20 * sample_matrix), W, 2.0**20 * H, SOLVERS["hals"])
    assert scaled.history.relative_error.size == errors.size
    # continuing from any earlier point ends at the same place
    middle = alternate(
        from_columns(sample_matrix), W, H, SOLVERS["hals"], stopping=Stopping(0, max_iter=7)
    )
    rest = alternate(from_columns(sample_matrix), middle.W, middle.H, SOLVERS["hals"])
    assert rest.history.relative_error[-1] == pytest.approx(errors[-1], rel=1e-3)


def test_exact(rng):
    W, H = rng.random((12, 2)), rng.random((2, 40))
    run = alternate(from_columns(W @ H), W, None, SOLVERS["nnlsb"])
    assert run.stop_reason == "exact"
    assert run.history.relative_error[-1] <= 1e-7


@pytest.mark.parametrize(
    ("stopping", "reason", "n_iter"),
    [
        (Stopping(max_iter=3), "max_iter", 3),
        (Stopping(max_iter=0), "max_iter", 0),
        (Stopping(tol=0, max_time=1e-9), "max_time", 1),
    ],
)
def test_max_iter_and_max_time(stopping, reason, n_iter, sample_matrix, init):
    run = alternate(from_columns(sample_matrix), *init, SOLVERS["mult"], stopping=stopping)
    assert (run.stop_reason, run.history.elapsed.size) == (reason, n_iter)
    assert np.array_equal(run.H, init[1]) == (n_iter == 0)


def test_callback(sample_matrix, init):
    seen = []

    def callback(iteration):
        seen.append(iteration)
        return iteration.iteration == 4

    run = alternate(from_columns(sample_matrix), *init, SOLVERS["hals"], callback=callback)
    assert run.stop_reason == "callback"
    assert [p.iteration for p in seen] == [1, 2, 3, 4]
    np.testing.assert_array_equal([p.relative_error for p in seen], run.history.relative_error)
    np.testing.assert_array_equal([p.elapsed for p in seen], run.history.elapsed)
    difference = sample_matrix - run.W @ run.H
    assert seen[-1].objective == pytest.approx((difference**2).sum(), rel=1e-9)
    assert (np.diff(run.history.elapsed) > 0).all()
    run = alternate(from_columns(sample_matrix), *init, SOLVERS["hals"], callback=lambda p: 1)
    assert run.stop_reason != "callback"  # only True itself stops
    run = alternate(from_columns(sample_matrix), *init, "hals", callback=lambda p: np.True_)
    assert run.history.elapsed.size == 1


@pytest.mark.parametrize("solver", ["hals", "mult", "nnlsb", "plain-hals", "plain-mult"])
def test_the_scale_of_one_column_does_not_matter(solver, rng):
    V = from_columns(rng.random((20, 30)))
    W, H = rng.random((20, 3)), rng.random((3, 30))
    size = np.array([1.0, 2.0**50, 2.0**-50])
    stopping = Stopping(tol=0, max_iter=8)
    usual = alternate(V, W, H, solver, stopping=stopping)
    other = alternate(V, W * size, H / size[:, None], solver, stopping=stopping)
    np.testing.assert_allclose(
        other.history.relative_error, usual.history.relative_error, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("errors", "elapsed", "reason"),
    [
        ([], 0.0, None),
        ([0.5] * 5, 0.0, None),
        ([0.5] * 7, 0.0, None),
        ([0.5, 1e-8], 0.0, StopReason.EXACT),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], 0.0, StopReason.MAX_ITER),
        ([0.5], 9.0, StopReason.MAX_TIME),
    ],
)
def test_the_limits(errors, elapsed, reason):
    assert Stopping(max_iter=8, max_time=9.0).reason(errors, elapsed) is reason


def test_errors_of_an_approximation_end_no_run():
    stopping = Stopping(tol=1e-3, window=3)
    assert stopping.reason([0.5, 1e-8], 0.0, since=2) is None
    assert stopping.reason([0.5, 1e-8, 1e-8], 0.0, since=2) is StopReason.EXACT
    assert stopping.reason([0.5] * 9, 0.0, since=5) is None
    assert stopping.reason([0.5] * 9, 0.0, since=2) is StopReason.CONVERGED


def test_undone_iterations_count_only_if_all_are_undone():
    stopping = Stopping(tol=1e-3, window=3)
    falls = [1.0, 0.9, 0.81, 0.81, 0.80999, 0.80999, 0.80998]  # two of the last four were undone
    assert stopping.reason(falls, 0.0) is None
    assert stopping.reason([*falls, 0.80997], 0.0) is StopReason.CONVERGED
    assert stopping.reason([0.5] * 6, 0.0) is None
    assert stopping.reason([0.5] * 7, 0.0) is StopReason.CONVERGED  # as many as two windows


def test_the_fall_is_a_share_of_the_error():
    stopping = Stopping(tol=1e-3, window=1)
    assert stopping.reason([1e-5, 0.998e-5], 0.0) is None
    assert stopping.reason([1e-5, 0.9995e-5], 0.0) is StopReason.CONVERGED
    assert stopping.reason([0.5, 0.4, 0.39999], 0.0, since=2) is None  # those before do not count
    assert Stopping().reason([0.5, 1e-9], 0.0, since=2) is None

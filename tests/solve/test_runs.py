"""Runs: extrapolation, late values, sample weights, penalties, shared passes, approximations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import from_columns
from conenmf.linalg.nnls import nnls
from conenmf.linalg.svd import Spectrum
from conenmf.solve.alternate import alternate
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses.frobenius import FROBENIUS, LeastSquares, SquareSums
from conenmf.solve.run import Run, Stopping, run_together, without_floor
from conenmf.solve.solvers import FLOOR, SOLVERS

# --- extrapolation ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hals", "nnlsb"])
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_extrapolation_never_raises_the_error(name, rng):
    V = rng.random((8, 30)) ** rng.integers(1, 6)
    W, H = rng.random((8, 3)), rng.random((3, 30))
    run = alternate(from_columns(V), W, H, name, stopping=Stopping(0, max_iter=40))
    errors = run.history.relative_error
    assert (np.diff(errors) <= 1e-12).all()
    assert errors[0] <= np.linalg.norm(V - W @ H) / np.linalg.norm(V) + 1e-12
    exact = np.linalg.norm(V - run.W @ run.H) / np.linalg.norm(V)
    assert errors[-1] == pytest.approx(exact, abs=1e-7)
    assert min(run.W.min(), run.H.min()) >= 0


@pytest.mark.parametrize("name", ["hals", "nnlsb"])
def test_extrapolation_gets_further(name, rng):
    parts = rng.random((40, 5)) ** 3 @ rng.random((5, 300)) ** 3
    V = from_columns(parts + 0.2 * rng.random((40, 300)))
    init = rng.random((40, 5)), rng.random((5, 300))
    stopping = Stopping(0, max_iter=25)
    plain = replace(SOLVERS[name], extrapolate=False)
    fast, slow = (alternate(V, *init, solver, stopping=stopping) for solver in (name, plain))
    best = alternate(V, *init, name, stopping=Stopping(0, max_iter=400)).history.relative_error[-1]
    ahead, behind = (run.history.relative_error[-1] - best for run in (fast, slow))
    assert ahead < 0.3 * behind


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_component_that_is_hardly_used_keeps_an_ordinary_size(dtype, rng):
    X = rng.random((30, 40)).astype(dtype)
    X[0] *= 1e-12  # a feature that samples hardly have, and a component made of it alone
    V = from_columns(X)
    W = rng.random((30, 3)).astype(dtype)
    W[:, 2] = np.eye(30, dtype=dtype)[0]
    H, sizes = rng.random((3, 40)).astype(dtype), []
    run = Run(FROBENIUS.on(V), W, H, SOLVERS["hals"], Stopping(tol=0, max_iter=8))
    while run.reason is None:
        run.step()
        sizes.append(run.W.max())
    assert max(sizes) < 1e7
    assert run.errors[-1] < run.errors[0]


# --- a loss that knows its value only where the pass was made ---------------------------------


class Late(LeastSquares):
    """Least squares that does not know its value at the W it has just updated."""

    def update_W(self, sums, shared, W, Ht, update, C=None):
        updated = super().update_W(sums, shared, W, Ht, update, C)
        return updated._replace(value=self.value(sums, W, Ht))


def late(V):
    return Late(FROBENIUS, V)


@pytest.mark.parametrize("name", SOLVERS)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_values_at_the_w_before_never_rise(name, rng):
    V = rng.random((8, 30)) ** rng.integers(1, 6)
    W, H = rng.random((8, 3)), rng.random((3, 30))
    data, stopping = from_columns(V), Stopping(0, max_iter=40)
    run = alternate(data, W, H, name, stopping=stopping, objective=late(data))
    errors = run.history.relative_error
    assert (np.diff(errors) <= 1e-9).all()
    exact = np.linalg.norm(V - run.W @ run.H) / np.linalg.norm(V)
    assert exact <= errors[-1] + 1e-7  # the last update of W can only have lowered it


@pytest.mark.parametrize("name", SOLVERS)
def test_both_kinds_of_loss_come_to_the_same_end(name, sample_matrix, init, same_factors):
    """Plain solvers with the same iterates; those that are extrapolated as far, in as many."""
    V, stopping = from_columns(sample_matrix), Stopping(0, max_iter=60)
    usual = alternate(V, *init, name, stopping=stopping)
    other = alternate(V, *init, name, stopping=stopping, objective=late(V))
    if not SOLVERS[name].extrapolate:
        same_factors(other, usual)
    np.testing.assert_allclose(
        other.history.relative_error[-1], usual.history.relative_error[-1], rtol=1e-3
    )


@pytest.mark.seed(4)
def test_a_step_that_raises_the_late_value_is_taken_back(init, rng):
    """Coordinate descent overshoots on these data: some iterations bring nothing."""
    V = from_columns(rng.random((12, 40)) ** 5)
    taken_back = []
    for objective in (None, late(V)):
        stopping = Stopping(0, max_iter=80)
        run = alternate(V, *init, "hals", stopping=stopping, objective=objective)
        taken_back.append(np.count_nonzero(np.diff(run.history.relative_error) == 0))
    assert all(0 < count < 20 for count in taken_back)


# --- a loss with an array of its own ----------------------------------------------------------


class Weighted(LeastSquares):
    """sum_n g_n ||v_n - W h_n||^2."""

    def __init__(self, V, weights):
        super().__init__(FROBENIUS, V)
        self.aligned = (*self.aligned, weights)
        self.total = float(weights @ np.asarray(V.norms_squared)) / self.unit**2

    @staticmethod
    def step(block, rows, shared, move, C=None):
        squared, weights = rows.own
        stepped = LeastSquares.step(block, rows._replace(own=(squared,)), shared, move, C)
        weighted = weights[:, None] * stepped.H
        VH = block @ weighted
        inner = float(np.vdot(VH, shared.W))
        return stepped._replace(sums=SquareSums(stepped.H.T @ weighted, inner, VH))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["hals", "plain-hals", "plain-nnlsb"])
def test_sample_weights_are_an_aligned_array(name, main_backend, sample_matrix, init):
    """The same as scaling the samples, which is not done."""
    weights = np.random.default_rng(2).uniform(0.2, 3, 40)
    V, stopping = main_backend(sample_matrix), Stopping(0, max_iter=8)
    run = alternate(V, *init, name, stopping=stopping, objective=Weighted(V, weights))
    scale = np.sqrt(weights)
    scaled = from_columns(sample_matrix * scale)
    expected = alternate(scaled, init[0], init[1] * scale, name, stopping=stopping)
    np.testing.assert_allclose(run.W, expected.W, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(np.asarray(run.H) * scale, expected.H, rtol=1e-6, atol=1e-12)
    errors = (one.history.relative_error for one in (run, expected))
    np.testing.assert_allclose(*errors, rtol=1e-9)


# --- penalties --------------------------------------------------------------------------------


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["hals", "nnlsb", "plain-nnlsb"])
def test_a_penalty_for_h_leads_to_the_ridge_solution(name, main_backend, sample_matrix, init):
    W, H = init
    scale = 1e-8  # the penalty must not see a V that was rescaled
    V, seen = main_backend(scale * sample_matrix), []
    how = {"stopping": Stopping(0, max_iter=60), "callback": seen.append}
    objective = FROBENIUS.on(V, Penalties(l2_h=0.7), n_fixed=3)
    run = alternate(V, W, H * scale, name, objective=objective, **how)
    np.testing.assert_array_equal(run.W, W)
    best = nnls(W.T @ W + 0.7 * np.eye(3), sample_matrix.T @ W).T
    np.testing.assert_allclose(np.asarray(run.H) / scale, best, rtol=1e-5, atol=1e-9)
    difference = sample_matrix - W @ best
    objective = (difference**2).sum() + 0.7 * (best**2).sum()
    assert seen[-1].objective / scale**2 == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", [LeastSquares, Late])
def test_the_objective_with_its_penalties_never_rises(name, kind, sample_matrix, init):
    V, seen = from_columns(sample_matrix), []
    objective = kind(FROBENIUS, V, Penalties(l2_h=0.2, l2_w=0.1))
    how = {"stopping": Stopping(0, max_iter=60), "callback": seen.append}
    run = alternate(V, *init, name, objective=objective, **how)
    objectives = np.array([iteration.objective for iteration in seen])
    assert (np.diff(objectives) <= 1e-9).all()
    penalties = 0.1 * (run.W**2).sum() + 0.2 * (run.H**2).sum()
    objective = ((sample_matrix - run.W @ run.H) ** 2).sum() + penalties
    assert objective <= objectives[-1] * (1 + 1e-9)
    assert objective == pytest.approx(objectives[-1], rel=1e-2)


# --- several runs -----------------------------------------------------------------------------


@pytest.mark.seed(5)
def test_runs_share_a_pass_and_keep_their_bits(
    main_backend, small_blocks, sample_matrix, rng, same_factors
):
    """Of different solvers, losses and numbers of components; each leaves when it is done."""
    parts = [
        (rng.random((12, K)), rng.random((K, 40)), solver, Stopping(0, max_iter=limit))
        for K, solver, limit in ((3, "hals", 6), (2, "plain-mult", 9), (4, "nnlsb", 4))
    ]

    def objectives(V):
        return [FROBENIUS.on(V), FROBENIUS.on(V), late(V)]

    own = main_backend(sample_matrix)
    alone = [
        alternate(own, W, H, solver, stopping=stopping, objective=objective)
        for (W, H, solver, stopping), objective in zip(parts, objectives(own), strict=True)
    ]
    V = main_backend(sample_matrix)
    before = V.passes
    runs = [
        Run(objective, W, H, SOLVERS[solver], stopping)
        for (W, H, solver, stopping), objective in zip(parts, objectives(V), strict=True)
    ]
    together = [run.solution() for _, run in sorted(run_together(V, runs))]
    assert V.passes - before == 1 + 9  # one for the sums that plain-mult begins with
    for one, other in zip(together, alone, strict=True):
        same_factors(one, other)
        assert np.array_equal(one.history.relative_error, other.history.relative_error)
        assert one.stop_reason == other.stop_reason


# --- momentum ---------------------------------------------------------------------------------


@pytest.mark.seed(4)
def test_the_momentum_is_that_of_ang_and_gillis(init, rng):
    """beta grows by 1.05 up to a ceiling that grows by 1.01; both fall when a step is undone."""
    V = from_columns(rng.random((12, 40)) ** 5)
    run = Run(FROBENIUS.on(V), *init, SOLVERS["hals"], Stopping(0, max_iter=80))
    undone = 0
    assert run.parts().plain["momentum"] == [0.5, 1.0, True]
    while run.reason is None:
        beta, ceiling, rests = run.parts().plain["momentum"]
        before, updated = run.W, run._Ht_before
        run.step()
        tried = 0.0 if rests else beta
        if run.parts().plain["momentum"][-1]:
            undone += 1
            assert run.parts().plain["momentum"] == [tried / 1.5, tried, True]
            assert run.errors[-1] == run.errors[-2]
            np.testing.assert_array_equal(run.W, before)
            continue
        grown = min(ceiling, 1.05 * tried), min(1.0, 1.01 * ceiling)
        now = [*grown, False] if tried else [beta, ceiling, False]
        assert run.parts().plain["momentum"] == now
        np.testing.assert_array_equal(run._W_before, before)
        moved = np.maximum(run._Ht_before + tried * (run._Ht_before - updated), 0)
        np.testing.assert_allclose(run.Ht, moved, rtol=1e-12, atol=1e-15)
    assert 0 < undone < 20


def test_coefficients_that_sum_to_one_are_not_moved_from_there(sample_matrix, init):
    V, penalties = from_columns(sample_matrix), Penalties(sum_to_one=True)
    run = Run(FROBENIUS.on(V, penalties), *init, SOLVERS["hals"], Stopping(0, max_iter=9))
    while run.reason is None:
        run.step()
        np.testing.assert_allclose(run.Ht.sum(axis=1), 1)


def test_time_before_a_run_was_resumed_does_not_count(sample_matrix, init):
    V = from_columns(sample_matrix)
    run = Run(FROBENIUS.on(V), *init, SOLVERS["hals"], Stopping(0, max_iter=2))
    run.run()
    parts = run.parts()
    parts.plain["history"][1] = [90.0, 100.0]  # seconds
    limits = Stopping(0, max_iter=9, max_time=50)
    again = Run(FROBENIUS.on(V), *init, SOLVERS["hals"], limits, resume=parts)
    assert again.reason is None
    again.run()
    assert again.reason == "max_iter"
    assert 100 < again.elapsed[2] < again.elapsed[-1] < 150
    assert again.passes[2] == parts.plain["history"][2][1] + 1


def test_errors_that_rounding_has_made_too_small_are_raised(sample_matrix, init):
    """A history never rises, also where an approximation has ended."""
    V = from_columns(sample_matrix)
    run = Run(FROBENIUS.on(V), *init, SOLVERS["hals"], Stopping(0, max_iter=9))
    run.step()
    first = run.errors[0]
    run.errors[0] = first / 2  # as if in single precision
    run.since = 1
    run._rests = True
    run.step()
    assert first > run.errors[0] == run.errors[1] > first / 2


# --- approximations ---------------------------------------------------------------------------


def test_when_an_approximation_no_longer_shows_how_the_error_falls(rng):
    plain = FROBENIUS.on(from_columns(rng.random((8, 30))))
    for error, fall, is_blurred in (
        (0.5, 1.3e-7, False),  # rounding moves the error by 3e-8 of its square
        (0.5, 1.1e-7, True),
        (0.1, 3.1e-6, False),
        (0.1, 2.9e-6, True),
        (0.011, 1.0, False),
        (0.009, 1.0, True),
    ):
        assert plain.is_blurred(error, fall, 0.0, 9) == is_blurred
    based = LeastSquares(FROBENIUS, plain.V, basis=np.eye(8))
    assert not based.is_blurred(0.1, 6e-6, 1e-5, 150)
    assert based.is_blurred(0.1, 4e-6, 1e-5, 150)
    assert based.is_blurred(0.1, 1.0, 1e-5, 151)


def test_large_data_begin_on_singular_vectors_if_few_are_enough(rng):
    """2 K vectors must leave much less than K, which leave little; other data begin in single."""
    W, H = rng.random((450, 6)), rng.random((6, 300))
    kinds = {
        "fading": W * 0.1 ** np.arange(6) @ H,
        "coarse": W @ np.kron(np.eye(6), np.ones(50)),
        "noise": W[:, :3] @ H[:3] + 1e-3 * rng.random((450, 300)),
    }
    found = {}
    for kind, X in kinds.items():
        V = from_columns(X)
        spectrum = Spectrum(V)
        found[kind] = FROBENIUS.approximation(V, 3, spectrum)
        assert found[kind].dtype == np.float32
        values = np.linalg.eigvalsh(X.T @ X)[::-1]
        bound = np.sqrt(values[3:].sum() / values.sum())
        assert FROBENIUS.bounds(V, spectrum).estimate(3) == pytest.approx(bound, rel=1e-3)
    assert found["fading"].basis.shape == (450, 6)
    assert found["noise"].basis is found["coarse"].basis is None
    X, V = kinds["noise"], from_columns(kinds["noise"])
    start, stopping = (W[:, :3], 1.1 * H[:3]), Stopping(0, max_iter=9)
    how = {"approximation": FROBENIUS.approximation(V, 3, None)}
    run = Run(FROBENIUS.on(V), *start, SOLVERS["hals"], stopping, **how)
    run.run()
    assert 0 < run.since < run.n_iter  # only errors of V itself count from there on
    assert (run.V, run.W.dtype) == (V, float)
    assert (np.diff(run.errors) <= 0).all()
    exact = np.linalg.norm(X - run.W @ run.factors()[1]) / np.linalg.norm(X)
    assert run.errors[-1] == pytest.approx(exact, rel=1e-6)


def test_entries_at_the_floor_become_zero_unless_they_matter():
    """A column near the floor with a huge row of H keeps them, since they are a part of W H."""
    W = np.array([[1.0, 1e-12], [FLOOR, FLOOR], [2.0, FLOOR]])
    usual, huge = np.ones((2, 4)), np.array([[1.0] * 4, [1e12] * 4])
    for H, second in ((usual, [1e-12, 0, 0]), (huge, W[:, 1] / 2.0**-40)):
        found = without_floor(from_columns(W @ H), W, H)
        np.testing.assert_array_equal(found.T, [[1, 0, 2], second])

"""Exact nonnegative least squares against SciPy's, also on matrices that are hard for it."""

import sys

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import kernels
from conenmf.errors import DataError
from conenmf.linalg.nnls import _is_wrong, by_scipy, nnls


def problem(seed):
    """A random W (F, K), possibly rank deficient, badly scaled or with a zero column, and V."""
    rng = np.random.default_rng(seed)
    F, K, n = int(rng.integers(1, 15)), int(rng.integers(1, 9)), int(rng.integers(1, 30))
    W = rng.random((F, K)) if rng.random() < 0.5 else rng.integers(0, 3, (F, K)).astype(float)
    if rng.random() < 0.3:
        W = W * 10.0 ** rng.integers(-6, 6, K)
    if rng.random() < 0.3:
        W[:, rng.integers(K)] = 0
    if rng.random() < 0.3:
        W[:, rng.integers(K)] = W[:, rng.integers(K)]
    V = rng.random((F, n)) if rng.random() < 0.5 else rng.integers(0, 3, (F, n)).astype(float)
    return W, V


def kkt_residual(G, C, Y):
    """How far y >= 0, gradient >= 0, y * gradient = 0 are from holding, free of scales."""
    size = np.sqrt(np.maximum(np.diagonal(G), 1e-300))
    gradient = (Y @ G - C) / size
    scaled = Y * size
    limit = np.abs(C / size).max(axis=1, keepdims=True) + 1e-300
    worst = np.minimum(scaled, gradient) / limit
    return np.abs(np.where(np.diagonal(G) > 0, worst, 0)).max()


@given(seed=st.integers(0, 10**7))
def test_solutions_satisfy_the_optimality_conditions(both_twins, seed):
    W, V = problem(seed)
    G, C = W.T @ W, V.T @ W
    Y = nnls(G, C)
    assert Y.min() >= 0
    assert kkt_residual(G, C, Y) < 1e-8
    warm = nnls(G, C, np.random.default_rng(seed).integers(0, 2, C.shape).astype(float))
    assert kkt_residual(G, C, warm) < 1e-8


@given(seed=st.integers(0, 10**7))
def test_errors_equal_scipys(both_twins, seed):
    W, V = problem(seed)
    Y = nnls(W.T @ W, V.T @ W)
    for y, v in zip(Y, V.T, strict=True):
        scipys = scipy.optimize.nnls(W, v)[0]
        error, expected = np.linalg.norm(v - W @ y), np.linalg.norm(v - W @ scipys)
        assert error <= expected + 1e-6 * np.linalg.norm(v)


@pytest.mark.parametrize("warm", [False, True])
def test_well_conditioned_solutions_are_exact(both_twins, warm, rng):
    W, V = rng.random((50, 12)), rng.random((50, 200))
    G, C = W.T @ W, V.T @ W
    Y = nnls(G, C, rng.random(C.shape) - 0.5 if warm else None)
    expected = np.array([scipy.optimize.nnls(W, v)[0] for v in V.T])
    np.testing.assert_allclose(Y, expected, atol=1e-12)


@pytest.mark.seed(1)
def test_the_scale_of_a_right_hand_side_does_not_matter(both_twins, rng):
    W, V = rng.random((20, 6)), rng.random((20, 40))
    G, C = W.T @ W, V.T @ W
    for scale in (1e-150, 1e150):
        np.testing.assert_allclose(nnls(G, C * scale) / scale, nnls(G, C), rtol=1e-9, atol=1e-14)


ONES = np.ones((2, 2))
UNDERFLOW = np.array([[1.0, 1e-160], [0.0, 2e-160]])


@pytest.mark.parametrize(
    ("G", "C", "start", "Y"),
    [
        (np.eye(2), 0 * ONES, None, 0 * ONES),
        (np.eye(2), -ONES, ONES, 0 * ONES),
        (np.diag([1.0, 0.0]), np.array([[1.0, 0.0], [2.0, 0.0]]), ONES, [[1, 0], [2, 0]]),
        (UNDERFLOW.T @ UNDERFLOW, np.array([[2.0, 2e-160]]), None, [[2.0, 0.0]]),
    ],
    ids=["no data", "negative data", "a zero component", "squares without digits count as zero"],
)
def test_solutions_that_are_known(both_twins, G, C, start, Y):
    np.testing.assert_array_equal(nnls(G, C, start), Y)


def test_smooth_components_whose_pivoting_cycles(both_twins):
    """Overlapping bumps make a Gram matrix so bad that pivoting gives up on many rows."""
    grid = np.linspace(0, 1, 100)[:, None]
    W = np.exp(-((grid - np.linspace(0, 1, 20)) ** 2) / 0.02)
    G, C = W.T @ W, np.random.default_rng(0).random((100, 60)).T @ W
    assert kkt_residual(G, C, nnls(G, C)) < 1e-8


def test_float32_in_float32_out(both_twins):
    assert nnls(np.eye(2), np.array([[1, -1]], np.float32)).dtype == np.float32


@pytest.mark.seed(2)
def test_the_backup_rule_and_the_last_resort(monkeypatch, rng):
    """With hardly any pivots allowed, the one-at-a-time method solves the remaining rows."""
    W, V = rng.random((30, 10)), rng.random((30, 50))
    expected, pivot = nnls(W.T @ W, V.T @ W), kernels.nnls_rows
    monkeypatch.setattr(
        kernels, "nnls_rows", lambda G, C, Y, tol, most, *memory: pivot(G, C, Y, tol, 1, *memory)
    )
    np.testing.assert_allclose(nnls(W.T @ W, V.T @ W), expected, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_the_last_resort_is_exact(seed):
    W, V = problem(seed)
    size = np.linalg.norm(W, axis=0)
    W = W[:, size > 0] / size[size > 0]
    if W.shape[1]:
        gram = W.T @ W + 1e-13 * np.eye(W.shape[1])
        assert kkt_residual(gram, V.T @ W, by_scipy(gram, V.T @ W)) < 1e-8


# --- rank-deficient and badly conditioned W ---


def _sparse(rng, F, K):
    return rng.random((F, K)) * (rng.random((F, K)) < 0.3)


def _nearly_equal(rng, F, K):
    W = rng.random((F, K))
    for k in range(0, K, 2):
        W[:, k] = W[:, -1] * 10.0 ** rng.integers(-3, 4) + 10.0 ** rng.uniform(-17, -2) * W[:, k]
    return W


DEFICIENT = {
    "sparse": _sparse,
    "nearly equal columns": _nearly_equal,
    "low rank": lambda rng, F, K: rng.random((F, 2)) @ _sparse(rng, 2, K),
    "all scales": lambda rng, F, K: _nearly_equal(rng, F, K) * 10.0 ** rng.uniform(-60, 60, K),
    "powers": lambda rng, F, K: np.linspace(0, 1, F)[:, None] ** np.arange(K),
    "entries of all sizes": lambda rng, F, K: 10.0 ** rng.uniform(-12, 0, (F, K)),
}
HARD = {
    "wide": lambda rng, F, K: _sparse(rng, F, F + 1 + K % 3),
    "duplicates": lambda rng, F, K: rng.random((F, K))[:, rng.integers(max(1, K // 2), size=K)],
    "ordinary": lambda rng, F, K: rng.random((F, K)),
    "each column nearly in the span of its neighbours": lambda rng, F, K: np.cumsum(
        rng.random((F, K)) * 10.0 ** -rng.integers(0, 6, K), axis=1
    ),
    "nearly one direction": lambda rng, F, K: (
        rng.random((F, 1)) + 10.0 ** -rng.uniform(3, 8) * rng.random((F, K))
    ),
    "scales": lambda rng, F, K: rng.random((F, K)) * 10.0 ** rng.uniform(-100, 6, K),
}


def not_optimal(W, v, y):
    """What shows that y is not a solution; empty if nothing does."""
    size = np.linalg.norm(W, axis=0)  # in the scale of each column, so that none hides others
    unit = W / np.where(size > 0, size, 1.0)
    residual = unit @ (y * size) - v
    excess = residual @ residual - squared_by_scipy(unit, v)
    if excess > 1e-10 * (v @ v):
        return f"objective {excess / (v @ v):.2g} of ||v||^2 above SciPy's"
    gradient = unit.T @ residual
    wrong = np.where(y > 0, np.abs(gradient), -gradient).max()
    if wrong > 1e-8 * np.abs(unit.T @ v).max() + 1e-280:
        return f"gradient {wrong:.2g} of the wrong sign or not zero"
    return ""


def squared_by_scipy(W, v):
    """||v - W y||^2 of SciPy's y; infinite if it gives up.

    It is computed from y: for K > F the norm that SciPy returns with it may be that of another
    point, far below the least one.
    """
    try:
        y, _ = scipy.optimize.nnls(W, v)
    except RuntimeError:  # too many iterations
        return np.inf
    return float(np.sum((W @ y - v) ** 2))


def check_exact(W, V, Y):
    """Objective at most that of SciPy's solution + 1e-10 ||v||^2, gradient conditions to 1e-8."""
    assert np.isfinite(Y).all()
    assert Y.min() >= 0
    assert [not_optimal(W, v, y) for y, v in zip(Y, V.T, strict=True)] == [""] * len(Y)


@pytest.mark.parametrize("kind", DEFICIENT)
@given(rng=st.integers(0, 10**7).map(np.random.default_rng))
@settings(max_examples=30)
def test_rank_deficient_problems_are_solved_exactly(both_twins, kind, rng):
    F = int(rng.integers(1, 20))
    W = DEFICIENT[kind](rng, F, F + int(rng.integers(-F + 1, 5)))
    V = rng.random((F, 8)) * (rng.random((F, 8)) < 0.6)
    V[:, 0] = W @ (rng.random(W.shape[1]) / np.maximum(W.max(axis=0), 1e-300))
    check_exact(W, V, nnls(W.T @ W, V.T @ W))


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("seed", range(16))
def test_hard_problems_are_solved_as_well_as_by_scipy(kind, seed):
    rng = np.random.default_rng([5, seed])
    F, K = (int(rng.integers(1, most)) for most in (31, 21))
    W = HARD[kind](rng, F, K)
    V = np.abs(rng.standard_normal((F, 20))) * (rng.random((F, 20)) < 0.6)
    if seed % 3 == 0:  # exact solutions, with zeros
        V = W @ _sparse(rng, W.shape[1], 20)
    check_exact(W, V, nnls(W.T @ W, V.T @ W))


def test_wrong_solutions_and_wrong_norms_are_noticed(monkeypatch, rng):
    """For K > F the norm that SciPy returns may be far below that of its solution."""
    W, v = HARD["wide"](rng, 12, 8), rng.random(12)
    y = nnls(W.T @ W, v[None] @ W)[0]
    assert not_optimal(W, v, np.zeros_like(y))
    true = scipy.optimize.nnls
    monkeypatch.setattr(scipy.optimize, "nnls", lambda W, v: (true(W, v)[0], 0.0))
    assert not_optimal(W, v, y) == ""


def test_what_scipy_solves_wrongly_is_solved_again(monkeypatch, rng):
    """SciPy may end far from the best point, without an error and for well conditioned problems."""
    W, V = rng.random((10, 6)), rng.random((10, 4))
    true, given = scipy.optimize.nnls, []

    def wrong_at_first(A, b, **options):
        given.append(b)
        y, rest = true(A, b, **options)
        return (0.9 * y if len(given) == 3 else y), rest

    monkeypatch.setattr(kernels, "AVAILABLE", False)
    monkeypatch.setattr(scipy.optimize, "nnls", wrong_at_first)
    Y = nnls(W.T @ W, V.T @ W)
    assert len(given) == 5
    monkeypatch.undo()
    check_exact(W, V, Y)


def test_gradients_of_zeros_may_be_positive_only():
    sides = np.array([[1.0, -0.5], [1.0, 0.5], [1.0, 0.0], [0.9, -0.5]])
    Y = np.repeat([[1.0, 0.0]], 4, axis=0)
    assert _is_wrong(np.eye(2), sides, Y).tolist() == [False, True, False, True]


@pytest.mark.parametrize("seed", [159084, 241836, 3545])
def test_problems_on_which_scipy_fails(both_twins, seed):
    """Sparse columns, some zero, some parallel: the gradient conditions decide who is right."""
    rng = np.random.default_rng(seed)
    F = int(rng.integers(2, 30))
    K = F + int(rng.integers(1, 4))
    rng.choice(5)
    W = _sparse(rng, F, K)
    V = abs(rng.standard_normal((F, 30))) * (rng.random((F, 30)) < 0.6)
    check_exact(W, V, nnls(W.T @ W, V.T @ W))


@pytest.mark.seed(5)
def test_rows_that_fail_are_solved_once_more(monkeypatch, rng):
    """A breakdown of the pivoting, as rounding may cause it where G is singular, is noticed."""
    W, V = np.tile(rng.random((6, 3)), 3), rng.random((6, 20))
    G, C = W.T @ W, V.T @ W

    def broken(gram, sides, Y):
        solution = np.full_like(sides, np.nan)
        solution[1::2] = 7.0
        return solution

    monkeypatch.setattr(sys.modules[nnls.__module__], "pivot_rows", broken)
    check_exact(W, V, nnls(G, C))


@pytest.mark.seed(6)
def test_matrices_that_are_not_gram_matrices_end(both_twins, rng):
    """Not positive semidefinite: no promise, but an end, and no NaN."""
    for _ in range(200):
        K = int(rng.integers(2, 8))
        G = rng.standard_normal((K, K)) * 10.0 ** rng.integers(0, 8, (K, K))
        G += G.T
        np.fill_diagonal(G, 1.0)
        try:
            assert np.isfinite(nnls(G, rng.standard_normal((5, K)))).all()
        except DataError:
            continue

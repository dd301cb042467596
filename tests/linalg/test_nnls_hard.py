"""Exact nonnegative least squares against SciPy's, on matrices that are hard for it."""

import numpy as np
import pytest
import scipy.optimize

from conenmf.linalg.nnls import nnls

ROWS = 20  # right-hand sides of a problem
OBJECTIVE_TOL = 1e-10  # of ||v||^2, above SciPy's
KINDS = ("wide", "duplicates", "ordinary", "sparse", "chain", "condition", "scales")
KKT_TOL = 1e-8  # of ||W'v||


def draw_problem(rng):
    """W (F, K), often rank-deficient or badly conditioned, and V (F, n)."""
    F, K = int(rng.integers(1, 31)), int(rng.integers(1, 21))
    kind = rng.choice(KINDS)
    if kind == "wide":
        K = F + int(rng.integers(1, 4))
    W = rng.random((F, K))
    if kind in ("wide", "sparse"):
        W *= rng.random((F, K)) < 0.3
    elif kind == "duplicates":
        W = W[:, rng.integers(max(1, K // 2), size=K)]
        W += (rng.random() < 0.5) * 1e-9 * rng.random((F, K))
    elif kind == "chain":  # each column is nearly in the span of its neighbours
        W = np.cumsum(W * 10.0 ** -rng.integers(0, 6, (1, K)), axis=1)
    elif kind == "condition":
        W = rng.random((F, 1)) + 10.0 ** -rng.uniform(3, 8) * rng.random((F, K))
    elif kind == "scales":
        W *= 10.0 ** rng.uniform(-100 if rng.random() < 0.2 else -6, 6, (1, K))
    V = np.abs(rng.standard_normal((F, ROWS))) * (rng.random((F, ROWS)) < 0.6)
    if rng.random() < 0.3:
        V = W @ (rng.random((K, ROWS)) * (rng.random((K, ROWS)) < 0.5))
    return W, V


@pytest.mark.parametrize("seed", range(100))
def test_hard_problems_are_solved_as_well_as_by_scipy(seed):
    W, V = draw_problem(np.random.default_rng([5, seed]))
    Y = nnls(W.T @ W, V.T @ W)
    assert np.isfinite(Y).all()
    assert Y.min() >= 0
    assert [not_optimal(W, v, y) for y, v in zip(Y, V.T, strict=True)] == [""] * ROWS


def test_wrong_solutions_and_wrong_norms_are_noticed(monkeypatch):
    """For K > F the norm that SciPy returns may be far below that of its solution."""
    W, V = draw_problem(np.random.default_rng(0))
    y = nnls(W.T @ W, V[:, :1].T @ W)[0]
    assert not_optimal(W, V[:, 0], np.zeros_like(y))
    true = scipy.optimize.nnls
    monkeypatch.setattr(scipy.optimize, "nnls", lambda W, v: (true(W, v)[0], 0.0))
    assert not_optimal(W, V[:, 0], y) == ""


def not_optimal(W, v, y):
    """What shows that y is not a solution; empty if nothing does."""
    # In the scale of each column, so that a large one does not hide the others.
    length = np.linalg.norm(W, axis=0)
    length[length == 0] = 1.0
    least = min(squared_by_scipy(W, v), squared_by_scipy(W / length, v))
    residual = W @ y - v
    excess = float(residual @ residual) - least
    if excess > OBJECTIVE_TOL * float(v @ v):
        return f"objective {excess / float(v @ v):.2g} of ||v||^2 above SciPy's"
    gradient = (W / length).T @ residual
    wrong = np.where(y > 0, np.abs(gradient), np.maximum(-gradient, 0))
    size = float(np.linalg.norm((W / length).T @ v))
    if wrong.max() > KKT_TOL * size:
        return f"KKT residual {wrong.max():.2g}, of a vector of length {size:.2g}"
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

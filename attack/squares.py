"""Exact nonnegative least squares against SciPy's, on matrices that are hard for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize

from conenmf.linalg.nnls import nnls

from .cases import Case, Ending

ROWS = 20  # right-hand sides of a case
OBJECTIVE_TOL = 1e-10  # of ||v||^2, above SciPy's
KKT_TOL = 1e-8  # of ||W'v||


def draw_problem(case: Case) -> tuple[Any, Any]:
    """W (F, K), often rank-deficient or badly conditioned, and V (F, n)."""
    rng = case.rng
    F, K = int(rng.integers(1, 31)), int(rng.integers(1, 21))
    kind = case.pick(("wide", "duplicates", "ordinary", "sparse", "chain", "condition", "scales"))
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


def attack(case: Case) -> Ending:
    """Solve the problems, and compare each with SciPy's solution."""
    W, V = draw_problem(case)
    Y = nnls(W.T @ W, V.T @ W)
    if not np.isfinite(Y).all() or Y.min() < 0:
        return Ending("factors", f"{W.shape}: NaN, infinite or negative")
    for row, (y, v) in enumerate(zip(Y, V.T, strict=True)):
        if problem := _not_optimal(W, v, y):
            return Ending("different", f"{W.shape} row {row}: {problem}", compared=True)
    return Ending("accepted", compared=True)


def _not_optimal(W: Any, v: Any, y: Any) -> str:
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


def squared_by_scipy(W: Any, v: Any) -> float:
    """||v - W y||^2 of SciPy's y; infinite if it gives up.

    It is computed from y: for K > F the norm that SciPy returns with it may be that of another
    point, far below the least one.
    """
    try:
        y, _ = scipy.optimize.nnls(W, v)
    except RuntimeError:  # too many iterations
        return np.inf
    return float(np.sum((W @ y - v) ** 2))

"""Exact nonnegative least squares against SciPy's, on matrices that are hard for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize

from conenmf.linalg.nnls import nnls

from .cases import Case, Ending, Kind, judged

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


def _attack(case: Case) -> Ending:
    W, V = draw_problem(case)
    try:
        Y = nnls(W.T @ W, V.T @ W)
    except Exception as problem:
        ending = judged(problem, count=ROWS)
        return Ending("factors", ending.note) if ending.outcome == "refused" else ending
    if not np.isfinite(Y).all() or Y.min() < 0:
        return Ending("factors", f"{W.shape}: NaN, infinite or negative", count=ROWS)
    for row, (y, v) in enumerate(zip(Y, V.T, strict=True)):
        problem = _not_optimal(W, v, y)
        if problem:
            return Ending("different", f"{W.shape} row {row}: {problem}", count=ROWS, compared=True)
    return Ending("accepted", count=ROWS, compared=True)


def _not_optimal(W: Any, v: Any, y: Any) -> str:
    try:
        best, _ = scipy.optimize.nnls(W, v)
        norm = float(np.linalg.norm(W @ best - v))  # the one that it returns can be far too small
    except RuntimeError:  # too many iterations
        norm = np.inf
    residual = W @ y - v
    excess = float(residual @ residual) - norm**2
    if excess > OBJECTIVE_TOL * float(v @ v):
        return f"objective {excess / float(v @ v):.2g} of ||v||^2 above SciPy's"
    # In the scale of each column, so that a large one does not hide the others.
    length = np.linalg.norm(W, axis=0)
    length[length == 0] = 1.0
    gradient = (W / length).T @ residual
    wrong = np.where(y > 0, np.abs(gradient), np.maximum(-gradient, 0))
    limit = KKT_TOL * float(np.linalg.norm((W / length).T @ v))
    if wrong.max() > limit:
        return f"KKT residual {wrong.max():.2g}, allowed {limit:.2g}"
    return ""


KINDS = (Kind("nnls", "numbers", _attack, default=40000, batch=200, counted="problems"),)

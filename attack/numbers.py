"""Random fits: any shape, scale, type, storage, solver, init and number of components.

What must hold afterwards follows from the documentation: factors are finite and nonnegative, the
error is that of the factors, the history does not rise, the lower bound is below the error, labels
are components, the number of threads and the storage change nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import conenmf
from conenmf.errors import ComponentsError, DataError
from conenmf.solve.inits import INITS
from conenmf.solve.solvers import SOLVERS

from .cases import Case, Ending, judged

# What rounding may change, in squared relative errors: of sums in double, of products in single.
ROUNDING = {"float64": 1e-11, "float32": 2e-6}


def draw_matrix(case: Case) -> Any:
    """Samples (N, F), finite and nonnegative."""
    rng = case.rng
    N = int(rng.integers(1, case.pick((3, 8, 30, 60, 400)) + 1))
    F = int(rng.integers(1, case.pick((3, 8, 20, 50)) + 1))
    X = _DRAWS[case.pick(list(_DRAWS))](rng, N, F)
    if case.chance(0.3):
        X[rng.random(N) < 0.2] = 0
    if case.chance(0.1):
        X[:, rng.random(F) < 0.3] = 0
    if case.chance(0.15):
        X[rng.integers(N), rng.integers(F)] = 10.0 ** rng.integers(3, 9)
    scale = 10.0 ** float(rng.uniform(-300, 300) if case.chance(0.25) else rng.uniform(-3, 3))
    with np.errstate(all="ignore"):
        X = X * (1.0 if case.chance(0.6) else scale)
        X = X.astype(case.pick(("f8", "f8", "f8", "f4", "f4", "f2", "i4", "u1", "b1", "i8")))
    X[~np.isfinite(X) | (X < 0)] = 0
    return X


def _cones(rng: np.random.Generator, N: int, F: int) -> Any:
    axes = rng.random((min(4, N), F)) ** 4
    return axes[rng.integers(len(axes), size=N)] * (1 + 0.1 * rng.random((N, F)))


def _low_rank(rng: np.random.Generator, N: int, F: int) -> Any:
    return rng.random((N, 3)) @ rng.random((3, F)) * 10.0 ** rng.uniform(-3, 3, (N, 1))


_DRAWS = {
    "uniform": lambda rng, N, F: rng.random((N, F)),
    "cones": _cones,
    "low rank": _low_rank,
    "sparse": lambda rng, N, F: rng.random((N, F)) * (rng.random((N, F)) < 0.1),
    "counts": lambda rng, N, F: rng.poisson(0.7, (N, F)).astype(float),
    "duplicates": lambda rng, N, F: rng.random((3, F))[rng.integers(3, size=N)],
    "equal": lambda rng, N, F: np.full((N, F), rng.random()),
    "identity": lambda rng, N, F: np.eye(N, F) * (1 + (rng.random() < 0.5) * np.arange(F)),
    "wide range": lambda rng, N, F: 10.0 ** rng.uniform(-8, 8, (N, F)),
}


def hold(X: Any, storage: str, n_threads: int) -> Any:
    """The samples in a storage; `options` has the others."""
    if storage == "columns":
        return conenmf.from_columns(np.ascontiguousarray(X.T), n_threads=n_threads)
    if storage == "sparse" and X.dtype != np.float16:  # SciPy has no such matrices
        X = sp.csr_array(X)
    options = {"block_samples": 7} if storage == "small blocks" else {}
    return conenmf.from_rows(X, n_threads=n_threads, **options)


def attack(case: Case) -> Ending:
    """Fit, and check what must hold of the result or of the error."""
    X = draw_matrix(case)
    K = int(case.rng.integers(1, max(2, min(X.shape) if case.chance(0.8) else min(X.shape) + 3)))
    init = case.pick(("auto", "auto", *INITS))
    K = 2 if init == "rank-two" else K
    options: dict[str, Any] = {
        "init": init,
        "solver": case.pick((*SOLVERS, "hals", None)),
        "max_iter": int(case.pick((0, 1, 5, 30, 200))),
        "tol": float(case.pick((0.0, 1e-8, 1e-5, 1e-2))),
    }
    storage = case.pick(("rows", "columns", "sparse", "small blocks"))
    note = f"; {X.shape} {X.dtype} K={K} {storage} {options}"

    def fit(n_threads: int) -> Any:
        V = hold(X, storage, n_threads)
        return V, conenmf.factorize(V, K, rng=np.random.default_rng(case.number), **options)

    try:
        V, result = fit(1)
        problem = broken_invariant(X, V, result, K)
        if not problem and case.chance(0.2):
            again = fit(2)[1]
            same = np.array_equal(again.W, result.W) and np.array_equal(again.H, result.H)
            problem = "" if same else "two threads give other bits than one"
    except Exception as error:
        if isinstance(error, ComponentsError | DataError):
            unfounded = _unfounded(error, X, K)
            return Ending("factors" if unfounded else "refused", f"{unfounded}{error}"[:200] + note)
        return Ending("factors", judged(error).note + note)
    return Ending("factors" if problem else "accepted", problem + note, compared=True)


def _unfounded(error: Exception, X: Any, K: int) -> str:
    """What speaks against an error that a fit may raise; empty if it is justified."""
    values = X[X > 0].astype(float)
    if isinstance(error, DataError) and "zero" in str(error):
        return "but the data are not zero: " if values.size else ""
    if isinstance(error, DataError):
        limit = 1e15 if X.dtype.itemsize <= 4 and X.dtype.kind == "f" else 1e70
        inside = values.size and values.max() < limit and values.max() > 1 / limit
        return "but the scale is ordinary: " if inside else ""
    rtol = 1e-3 if X.dtype.kind == "f" and X.dtype.itemsize < 8 else 1e-7  # squares are compared
    rank = np.linalg.matrix_rank(X.astype(float) / max(1e-300, float(X.max())), rtol=rtol)
    return "but the data have so many directions: " if min(rank, *X.shape) > K else ""


def broken_invariant(X: Any, V: Any, result: Any, K: int) -> str:
    """What does not hold of a result; empty if all does."""
    W, H = np.asarray(result.W, float), np.asarray(result.H, float)
    rounding = ROUNDING[str(V.dtype)]
    if W.shape != (X.shape[1], K) or H.shape != (K, X.shape[0]):
        return f"shapes {W.shape}, {H.shape}"
    if not (np.isfinite(W).all() and np.isfinite(H).all()):
        return "factors that are not finite"
    if W.min() < 0 or H.min() < 0:
        return "negative factors"
    labels = np.asarray(result.labels)
    if labels.min() < -1 or labels.max() >= K:
        return f"labels from {labels.min()} to {labels.max()}"
    scale = float(X.max())
    samples = X.astype(float).T / scale
    error = float(np.linalg.norm(samples - (W / scale) @ H) / np.linalg.norm(samples))
    if not abs(error**2 - result.relative_error**2) <= rounding:
        return f"error {result.relative_error:.9g}, recomputed {error:.9g}"
    history = np.asarray(result.history.relative_error)
    rises = np.flatnonzero(np.diff(history**2) > 2 * rounding)  # that of both
    if not np.isfinite(history).all() or rises.size:
        where = int(rises[0]) if rises.size else -1
        return f"the history rises: {history[where]:.9g}, then {history[where + 1]:.9g}"
    if history.size and result.relative_error**2 > history[-1] ** 2 + 2 * rounding:
        return f"the finish raises the error: {history[-1]:.9g} to {result.relative_error:.9g}"
    bound = result.certify().lower_bound
    if not 0 <= bound <= result.relative_error + rounding**0.5:
        return f"lower bound {bound:.9g}, error {result.relative_error:.9g}"
    return ""

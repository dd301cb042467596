"""Exact nonnegative least squares for many right-hand sides, from K x K products only.

For every row c of C it finds the y >= 0 that minimises y'Gy / 2 - c'y. With G = W'W and
c = W'v that is the nearest point W y to v; V itself is never seen here.

The method is block principal pivoting (Kim and Park, "Fast nonnegative matrix factorization: an
active-set-like method and comparisons", SIAM J. Sci. Comput. 33, 2011): guess which entries are
positive (the passive set), solve for them, move every entry with the wrong sign to the other
side, repeat. A backup rule, which moves only the last wrong entry when their number has stopped
falling, makes it finite. Rows that share a passive set are solved together; the compiled twin in
`kernels` goes row by row instead.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.linalg import LinAlgError

from .. import kernels
from ..data.blocks import Array
from ..errors import NonFiniteError, ShapeError

__all__ = ["nnls"]

_TOLERANCE = 1e-13  # a gradient this small beside the right-hand side counts as zero
_RETRIES = 3
_GUESS_SWEEPS = 5


def nnls(G: Array, C: Array, Y: Array | None = None) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 for every row c of C.

    Parameters
    ----------
    G : array (K, K)
        Gram matrix, symmetric positive semidefinite. If it is singular, a solution is returned
        whose gradient conditions hold to rounding.
    C : array (n, K)
        One right-hand side per row.
    Y : array (n, K), optional
        Warm start: its positive entries are the first guess of the passive sets. Without it a
        few sweeps of coordinate descent make one.

    Returns
    -------
    array (n, K), of the type of C

    Examples
    --------
    >>> nnls(np.eye(2), np.array([[3.0, -1.0], [2.0, 5.0]]))
    array([[3., 0.],
           [2., 5.]])
    """
    G, C = np.asarray(G), np.asarray(C)
    C = C if C.dtype.kind == "f" else C.astype(np.float64)
    K = G.shape[0] if G.ndim == 2 else -1
    if G.shape != (K, K) or C.ndim != 2 or C.shape[1] != K:
        raise ShapeError(f"G has shape {G.shape} and C {C.shape}, expected (K, K) and (n, K)")
    if Y is not None and np.shape(Y) != C.shape:
        raise ShapeError(f"Y has shape {np.shape(Y)}, expected that of C, {C.shape}")
    if not (np.isfinite(G).all() and np.isfinite(C).all()):
        raise NonFiniteError("G or C holds NaN or infinity")
    if K < 1 or np.diagonal(G).min() < 0:
        raise ShapeError("G is not a Gram matrix: it is empty or has a negative diagonal entry")
    # Unit diagonal: the scale of a component must not decide what counts as singular.
    scale = np.sqrt(np.diagonal(G).astype(np.float64))
    dead = scale <= 0.0
    scale[dead] = 1.0
    gram = G / np.outer(scale, scale)
    gram[dead, dead] = 1.0
    gram = _positive_definite(gram)
    sides = np.ascontiguousarray(C / scale, dtype=np.float64)
    sides[:, dead] = 0.0
    start = _guess(gram, sides) if Y is None else np.array(Y, dtype=np.float64, order="C")
    solve = _solve_compiled if kernels.AVAILABLE else _solve
    solution: Array = solve(gram, sides, start) / scale
    converted: Array = solution.astype(C.dtype, copy=False)
    return converted


def _positive_definite(gram: Array) -> Array:
    """Add the smallest multiple of the identity that rounding can see, if the matrix needs it."""
    K = gram.shape[0]
    try:
        pivots = np.diagonal(np.linalg.cholesky(gram))
        if pivots.min() ** 2 > 100 * K * np.finfo(np.float64).eps:
            return gram
    except LinAlgError:
        pass
    ridge: Array = 100 * K * np.finfo(np.float64).eps * np.eye(K)
    return gram + ridge


def _guess(gram: Array, sides: Array) -> Array:
    """A few sweeps of coordinate descent from zero: nearly the right entries are positive."""
    Y = np.zeros_like(sides)
    if kernels.AVAILABLE:
        kernels.hals_rows(gram, sides, Y, 0.0, _GUESS_SWEEPS, 0.0)
        return Y
    for _ in range(_GUESS_SWEEPS):
        for k in range(gram.shape[0]):
            Y[:, k] = np.maximum(Y[:, k] - (Y @ gram[:, k] - sides[:, k]) / gram[k, k], 0.0)
    return Y


def _solve_compiled(gram: Array, sides: Array, Y: Array) -> Array:
    if kernels.nnls_rows(gram, sides, Y, _TOLERANCE, _max_pivots(gram)):
        unfinished = np.isnan(Y[:, 0])
        rest = np.zeros_like(sides[unfinished])
        kernels.nnls_one_by_one(gram, sides[unfinished], rest, _TOLERANCE, 30 * len(gram))
        Y[unfinished] = rest
    return Y


def _solve(gram: Array, sides: Array, Y: Array) -> Array:
    n, K = sides.shape
    passive = Y > 0
    X = np.zeros_like(sides)
    fewest = np.full(n, K + 1)  # wrong entries at best so far
    retries = np.full(n, _RETRIES)
    limit = _TOLERANCE * np.abs(sides).max(axis=1)
    rows = np.arange(n)  # those still with a wrong entry
    for _ in range(_max_pivots(gram)):
        _solve_passive(gram, sides, passive, X, rows)
        gradient = X[rows] @ gram - sides[rows]
        wrong = np.where(passive[rows], X[rows] < 0, gradient < -limit[rows, None])
        count = wrong.sum(axis=1)
        rows, wrong, count = rows[count > 0], wrong[count > 0], count[count > 0]
        if rows.size == 0:
            return X
        better = count < fewest[rows]
        fewest[rows[better]] = count[better]
        retries[rows[better]] = _RETRIES
        patient = ~better & (retries[rows] > 0)
        retries[rows[patient]] -= 1
        backup = ~better & ~patient
        last = K - 1 - np.argmax(wrong[backup, ::-1], axis=1)
        wrong[backup] = np.arange(K) == last[:, None]
        passive[rows] ^= wrong
    X[rows] = _solve_one_by_one(gram, sides[rows])
    return X


def _solve_passive(gram: Array, sides: Array, passive: Array, X: Array, rows: Array) -> None:
    """Solve for the passive entries of the given rows, all rows with one pattern together."""
    X[rows] = 0.0
    patterns, owner = np.unique(np.packbits(passive[rows], axis=1), axis=0, return_inverse=True)
    order = np.argsort(owner.ravel(), kind="stable")
    borders = np.searchsorted(owner.ravel()[order], np.arange(len(patterns) + 1))
    for start, stop in pairwise(borders):
        same = rows[order[start:stop]]
        members = np.flatnonzero(passive[same[0]])
        if members.size:
            part = np.linalg.solve(gram[np.ix_(members, members)], sides[np.ix_(same, members)].T)
            X[np.ix_(same, members)] = part.T


def _solve_one_by_one(gram: Array, sides: Array) -> Array:
    """Go one entry at a time (Lawson and Hanson's order): slow, and certain to end.

    The entry with the most negative gradient becomes passive; if solving then makes others
    negative, the step is cut where the first of them reaches zero, and that one is dropped.
    """
    K = gram.shape[0]
    X = np.zeros_like(sides)
    for x, c in zip(X, sides, strict=True):
        passive = np.zeros(K, dtype=bool)
        limit = _TOLERANCE * np.abs(c).max()
        for _ in range(30 * K):
            gradient = np.where(passive, 0.0, gram @ x - c)
            enter = int(np.argmin(gradient))
            if gradient[enter] >= -limit:
                break
            passive[enter] = True
            while passive.any():
                target = np.zeros(K)
                members = np.flatnonzero(passive)
                target[members] = np.linalg.solve(gram[np.ix_(members, members)], c[members])
                if target[members].min() > 0:
                    x[:] = target
                    break
                blocking = passive & (target <= 0)
                share = np.min(x[blocking] / (x[blocking] - target[blocking]), initial=1.0)
                x += share * (target - x)
                passive &= x > 1e-15 * np.abs(x).max()
                x[~passive] = 0.0
    return X


def _max_pivots(gram: Array) -> int:
    return 5 * len(gram) + 20

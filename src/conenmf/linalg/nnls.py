"""Exact nonnegative least squares for many right-hand sides, from K x K products only.

For every row c of C it finds the y >= 0 that minimises y'Gy / 2 - c'y. With G = W'W and
c = W'v that is the nearest point W y to v; V itself does not appear here.

The method is block principal pivoting (Kim and Park, "Fast nonnegative matrix factorization: an
active-set-like method and comparisons", SIAM J. Sci. Comput. 33, 2011): guess which entries are
positive (the passive set), solve for them, move every entry with the wrong sign to the other
side, repeat. A backup rule, which moves only the last wrong entry when their number has stopped
falling, makes it finite. Rows that share a passive set are solved together; the compiled twin in
`kernels` takes one row after the other instead.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.linalg import LinAlgError

from .. import kernels
from ..arguments import integer, optional
from ..data.blocks import Array
from ..errors import NonFiniteError, ShapeError
from .problems import checked_problem

__all__ = ["lawson_hanson", "nnls", "pivot", "regularized"]

_GRADIENT_TOL = 1e-13  # relative to the right-hand side: a smaller gradient counts as zero
_MAX_RETRIES = 3  # exchanges without progress before the backup rule
_GUESS_SWEEPS = 5
_STEPS_PER_COMPONENT = 30  # of the one-at-a-time method, at most


def nnls(G: Array, C: Array, Y: Array | None = None, *, max_pivots: int | None = None) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 for every row c of C.

    Parameters
    ----------
    G : array (K, K), or (n, K, K)
        Gram matrix, symmetric positive semidefinite, or one for each row. If it is singular, a
        solution is returned whose gradient conditions hold to rounding.
    C : array (n, K)
        One right-hand side per row.
    Y : array (n, K), optional
        Its positive entries are the first guess of the passive sets. Without it a few sweeps of
        coordinate descent make one.
    max_pivots : int, optional
        Exchanges after which a row is solved one entry at a time; by default 5 K + 20.

    Returns
    -------
    array (n, K), of the type of C

    Examples
    --------
    >>> nnls(np.eye(2), np.array([[3.0, -1.0], [2.0, 5.0]]))
    array([[3., 0.],
           [2., 5.]])
    """
    G, C, Y = checked_problem(G, C, Y)
    n, K = C.shape
    max_pivots = optional(integer, "max_pivots", max_pivots, at_least=0)
    if G.ndim == 3:
        solutions = np.empty_like(C)
        for row in range(n):
            guess = None if Y is None else Y[row : row + 1]
            one = nnls(G[row], C[row : row + 1], guess, max_pivots=max_pivots)
            solutions[row] = one[0]
        return solutions
    if not (np.isfinite(G).all() and np.isfinite(C).all()):
        raise NonFiniteError("G or C holds NaN or infinity: check the factors and the data")
    if K < 1 or np.diagonal(G).min() < 0:
        raise ShapeError("G is not a Gram matrix: it is empty or has a negative diagonal entry")
    # Unit diagonal: the scale of a component must not decide what counts as singular.
    scale = np.sqrt(np.diagonal(G).astype(np.float64))
    dead = scale <= 0.0
    scale[dead] = 1.0
    gram = G / np.outer(scale, scale)
    gram[dead, dead] = 1.0
    gram = regularized(gram)
    sides = np.ascontiguousarray(C / scale, dtype=np.float64)
    sides[:, dead] = 0.0
    guess = _guess(gram, sides) if Y is None else np.array(Y, dtype=np.float64, order="C")
    solve = _pivot_compiled if kernels.AVAILABLE else pivot
    solution: Array = solve(gram, sides, guess, 5 * K + 20 if max_pivots is None else max_pivots)
    solution = solution / scale
    converted: Array = solution.astype(C.dtype, copy=False)
    return converted


def regularized(gram: Array) -> Array:
    """Add the smallest multiple of the identity that rounding can see, if `gram` is singular."""
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


def _pivot_compiled(gram: Array, sides: Array, Y: Array, max_pivots: int) -> Array:
    if kernels.nnls_rows(gram, sides, Y, _GRADIENT_TOL, max_pivots):
        unfinished = np.isnan(Y[:, 0])
        X = np.zeros_like(sides[unfinished])
        max_steps = _STEPS_PER_COMPONENT * len(gram)
        kernels.nnls_one_by_one(gram, sides[unfinished], X, _GRADIENT_TOL, max_steps)
        Y[unfinished] = X
    return Y


def pivot(
    gram: Array, sides: Array, Y: Array, max_pivots: int, max_retries: int = _MAX_RETRIES
) -> Array:
    """Solve by block principal pivoting; Y > 0 is the first guess of the passive sets."""
    n, K = sides.shape
    passive = Y > 0
    X = np.zeros_like(sides)
    fewest = np.full(n, K + 1)  # wrong entries at best so far
    retries = np.full(n, max_retries)
    limit = _GRADIENT_TOL * np.abs(sides).max(axis=1)
    rows = np.arange(n)  # those still with a wrong entry
    for _ in range(max_pivots):
        _solve_passive(gram, sides, passive, X, rows)
        gradient = X[rows] @ gram - sides[rows]
        wrong = np.where(passive[rows], X[rows] < 0, gradient < -limit[rows, None])
        count = wrong.sum(axis=1)
        rows, wrong, count = rows[count > 0], wrong[count > 0], count[count > 0]
        if rows.size == 0:
            return X
        better = count < fewest[rows]
        fewest[rows[better]] = count[better]
        retries[rows[better]] = max_retries
        retry = ~better & (retries[rows] > 0)
        retries[rows[retry]] -= 1
        backup = ~better & ~retry
        last = K - 1 - np.argmax(wrong[backup, ::-1], axis=1)
        wrong[backup] = np.arange(K) == last[:, None]
        passive[rows] ^= wrong
    X[rows] = lawson_hanson(gram, sides[rows])
    return X


def _solve_passive(gram: Array, sides: Array, passive: Array, X: Array, rows: Array) -> None:
    """Solve for the passive entries of the given rows, all rows with one pattern together."""
    X[rows] = 0.0
    patterns, owner = np.unique(np.packbits(passive[rows], axis=1), axis=0, return_inverse=True)
    order = np.argsort(owner.ravel(), kind="stable")
    borders = np.searchsorted(owner.ravel()[order], np.arange(len(patterns) + 1))
    for start, stop in pairwise(borders):
        alike = rows[order[start:stop]]
        members = np.flatnonzero(passive[alike[0]])
        if members.size:
            block = np.ix_(alike, members)
            X[block] = np.linalg.solve(gram[np.ix_(members, members)], sides[block].T).T


def lawson_hanson(gram: Array, sides: Array) -> Array:
    """Move one entry at a time (Lawson and Hanson, 1974): slow, but it always ends.

    The entry with the most negative gradient becomes passive; if solving then makes others
    negative, the step is cut where the first of them reaches zero, and that one is dropped.
    """
    K = gram.shape[0]
    X = np.zeros_like(sides)
    for x, c in zip(X, sides, strict=True):
        passive = np.zeros(K, dtype=bool)
        limit = _GRADIENT_TOL * np.abs(c).max()
        for _ in range(_STEPS_PER_COMPONENT * K):
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

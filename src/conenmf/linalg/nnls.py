"""Exact nonnegative least squares for many right-hand sides, from K x K products only.

For every row c of C it finds the y >= 0 that minimises y'Gy / 2 - c'y. With G = W'W and
c = W'v that is the nearest point W y to v; V itself does not appear here.

The method is block principal pivoting (Kim and Park, "Fast nonnegative matrix factorization: an
active-set-like method and comparisons", SIAM J. Sci. Comput. 33, 2011): guess which entries are
positive (the passive set), solve for them, move every entry with the wrong sign to the other
side, repeat. A backup rule, which moves only the last wrong entry when their number has stopped
falling, makes it finite. Rows that share a passive set are solved together; the compiled twin in
`kernels` takes one row after the other instead.

*Dependent columns.* W'W has the squared condition number of W, and is singular to rounding for a W
that is nearly so. For W >= 0 that does not matter, since nothing cancels in W y: with columns of
unit norm y_k <= ||W y|| <= ||v||, so that an error of rounding in G y is one relative to ||v||, and
so are those in the gradient and, as the problem is convex, in the least ||v - W y||^2, for any
condition number. What suffers are passive sets on the way, whose solutions are large and of either
sign: rounding may then send the exchanges in a circle, or make a Cholesky decomposition break down.
So a G that is singular to rounding gets a multiple of the identity of that size, the gradient
conditions of its solutions are checked, and rows in which they do not hold are solved one entry at
a time.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.linalg import LinAlgError

from .. import kernels
from ..arguments import array, integer, optional
from ..data.blocks import Array
from ..errors import DataError

_GRADIENT_TOL = 1e-13  # relative to the right-hand side: a smaller gradient counts as zero
_DOUBTFUL_RESIDUAL = 1e-10  # ... and a larger residual of the gradient conditions is a failure
_DOUBTFUL_PIVOT_SQ = 1e-8  # of the Cholesky decomposition, below which solutions are checked
_MAX_RETRIES = 3  # exchanges without progress before the backup rule
_GUESS_SWEEPS = 5
_STEPS_PER_COMPONENT = 30  # of the one-at-a-time method, at most


def nnls(G: Array, C: Array, Y: Array | None = None, *, max_pivots: int | None = None) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 for every row c of C.

    Parameters
    ----------
    G : array (K, K), or (n, K, K)
        Gram matrix, symmetric positive semidefinite, or one for each row. If it is singular, a
        solution is returned whose gradient conditions hold to rounding. A component whose diagonal
        entry is below 1e-290, which has lost digits, counts as zero.
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
    C = array("C", C, ("n", "K"), error=DataError)
    C = C if C.dtype.kind == "f" else C.astype(np.float64)
    n_grams = C.shape[:1] if getattr(G, "ndim", 2) == 3 else ()
    G = array("G", G, (*n_grams, *2 * C.shape[1:]), error=DataError)
    Y = optional(array, "Y", Y, C.shape, error=DataError)
    max_pivots = optional(integer, "max_pivots", max_pivots, at_least=0)
    return solve_rows(G, C, Y, max_pivots=max_pivots)


def solve_rows(
    G: Array, C: Array, Y: Array | None = None, *, max_pivots: int | None = None
) -> Array:
    """Do the same for arrays of floats whose shapes fit."""
    K = C.shape[1]
    max_pivots = 5 * K + 20 if max_pivots is None else max_pivots
    if not (np.isfinite(G).all() and np.isfinite(C).all()):
        raise DataError("G or C holds NaN or infinity: check the factors and the data")
    squares = np.diagonal(G, axis1=-2, axis2=-1).astype(np.float64)
    if squares.min(initial=0.0) < 0:
        raise DataError("G is not a Gram matrix: it has a negative diagonal entry")
    # Unit diagonal: the scale of a component must not decide what counts as singular.
    dead = squares <= kernels.SMALLEST_SQUARE
    scale = np.sqrt(np.where(dead, 1.0, squares))
    sides = np.ascontiguousarray(np.where(dead, 0.0, C / scale), dtype=np.float64)
    if G.ndim == 3:
        return _nnls_own(G, C, dead, scale, sides, max_pivots)
    gram = G / np.outer(scale, scale)
    if dead.any():
        gram[dead, :] = gram[:, dead] = 0.0
        gram[dead, dead] = 1.0
    pivot_sq = _smallest_pivot_squared(gram)
    gram = gram if pivot_sq > _rounding(K) else gram + _rounding(K) * np.eye(K)
    guess = _guess(gram, sides) if Y is None else np.array(Y, dtype=np.float64, order="C")
    solve = _pivot_compiled if kernels.AVAILABLE else pivot
    solution: Array = solve(gram, sides, guess, max_pivots)
    if pivot_sq < _DOUBTFUL_PIVOT_SQ:
        _mend(gram, sides, solution)
    return np.asarray((solution / scale).astype(C.dtype, copy=False))


def _nnls_own(
    G: Array, C: Array, dead: Array, scale: Array, sides: Array, max_pivots: int
) -> Array:
    """Do the same with a Gram matrix for each row, G (n, K, K)."""
    solutions = np.zeros(C.shape)
    left = np.arange(len(C))
    if kernels.AVAILABLE:
        grams = G / (scale[:, :, None] * scale[:, None, :])
        grams[dead[:, :, None] | dead[:, None, :]] = 0.0
        diagonal = np.arange(C.shape[1])
        grams[:, diagonal, diagonal] = 1.0 + _rounding(C.shape[1])
        kernels.hals_own_rows(grams, sides, solutions, 0.0, _GUESS_SWEEPS, 0.0)
        memory = kernels.nnls_memory(C.shape[1])
        kernels.nnls_own_rows(grams, sides, solutions, _GRADIENT_TOL, max_pivots, *memory)
        left = np.flatnonzero(~(_residual(grams, sides, solutions) <= _DOUBTFUL_RESIDUAL))
    solutions /= scale
    for row in left:
        solutions[row] = solve_rows(
            G[row], C[row : row + 1].astype(np.float64), max_pivots=max_pivots
        )
    return np.asarray(solutions.astype(C.dtype, copy=False))


def _rounding(K: int) -> float:
    """The smallest multiple of the identity that rounding can see beside a unit diagonal."""
    return 100 * K * float(np.finfo(np.float64).eps)


def _smallest_pivot_squared(gram: Array) -> float:
    """Of the Cholesky decomposition; 0 if there is none."""
    try:
        return float(np.diagonal(np.linalg.cholesky(gram)).min() ** 2)
    except LinAlgError:
        return 0.0


def _mend(gram: Array, sides: Array, Y: Array) -> None:
    """Solve once more, in place, the rows of Y in which the gradient conditions do not hold."""
    failed = ~(_residual(gram, sides, Y) <= _DOUBTFUL_RESIDUAL)
    if failed.any():
        Y[failed] = lawson_hanson(gram, sides[failed])
        if not np.isfinite(Y[failed]).all():
            raise DataError(
                "G is not a Gram matrix W'W, or W and V are too large for one: "
                "divide them by their largest entries"
            )


def _residual(gram: Array, sides: Array, Y: Array) -> Array:
    """How far y >= 0, gradient >= 0, y * gradient = 0 are from holding, for each row."""
    with np.errstate(invalid="ignore", over="ignore"):  # where a decomposition broke down
        image = Y @ gram if gram.ndim == 2 else np.einsum("nj,njk->nk", Y, gram)
        gradient = image - sides
    wrong = np.where(Y > 0, np.abs(gradient), -gradient).max(axis=1)
    size = np.abs(sides).max(axis=1)
    return wrong / np.where(size > 0, size, 1.0)


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
    memory = kernels.nnls_memory(gram.shape[0])
    if kernels.nnls_rows(gram, sides, Y, _GRADIENT_TOL, max_pivots, *memory):
        unfinished = np.isnan(Y[:, 0])
        Y[unfinished] = lawson_hanson(gram, sides[unfinished])
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
            X[block] = _solution(gram[np.ix_(members, members)], sides[block].T).T


def _solution(gram: Array, sides: Array) -> Array:
    """Solve G X = C; the shortest of the nearest solutions if G is singular."""
    try:
        return np.linalg.solve(gram, sides)
    except LinAlgError:
        return np.linalg.lstsq(gram, sides)[0]


def lawson_hanson(gram: Array, sides: Array) -> Array:
    """Move one entry at a time (Lawson and Hanson, 1974): slow, but it always ends.

    The entry with the most negative gradient becomes passive; if solving then makes others
    negative, the step is cut where the first of them reaches zero, and that one is dropped. An
    entry that solving would not make positive owes its gradient to rounding: it is left out until
    another one has moved.
    """
    K = gram.shape[0]
    X = np.zeros_like(sides)
    for x, c in zip(X, sides, strict=True):
        passive, refused = np.zeros(K, dtype=bool), np.zeros(K, dtype=bool)
        limit = _GRADIENT_TOL * np.abs(c).max()
        for _ in range(_STEPS_PER_COMPONENT * K):
            gradient = np.where(passive | refused, 0.0, gram @ x - c)
            enter = int(np.argmin(gradient))
            if not gradient[enter] < -limit:
                break
            passive[enter] = True
            target = _target(gram, c, passive)
            if not target[enter] > 0:
                passive[enter], refused[enter] = False, True
                continue
            refused[:] = False
            while (blocking := passive & (target <= 0)).any():
                shares = x[blocking] / (x[blocking] - target[blocking])
                x += shares.min() * (target - x)
                x[np.flatnonzero(blocking)[shares.argmin()]] = 0.0
                passive &= x > 1e-15 * np.abs(x).max()
                x[~passive] = 0.0
                target = _target(gram, c, passive)
            x[:] = target
    return X


def _target(gram: Array, c: Array, passive: Array) -> Array:
    """The minimiser with all entries zero that are not passive; of either sign."""
    target, members = np.zeros(len(gram)), np.flatnonzero(passive)
    if members.size:
        target[members] = _solution(gram[np.ix_(members, members)], c[members])
    return target

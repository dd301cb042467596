"""Exact nonnegative least squares for many right-hand sides, from K x K products only.

For every row c of C it finds the y >= 0 that minimises y'Gy / 2 - c'y. With G = W'W and c = W'v, W
y is the nearest point to v; the method does not need V itself.

The compiled method is block principal pivoting (Kim and Park, "Fast nonnegative matrix
factorization: an active-set-like method and comparisons", SIAM J. Sci. Comput. 33, 2011): guess
which entries are positive (the passive set), solve for them, move every entry with the wrong sign
to the other side, repeat. A backup rule, which moves only the last wrong entry when their number
has stopped falling, makes it finite. Rows that it does not finish, and all rows without numba, are
solved one by one by SciPy, which moves one entry at a time (Lawson and Hanson, 1974).

*Dependent columns.* The condition number of W'W is the square of that of W, so W'W may be singular
to rounding. For W >= 0 this does not harm the solution. With columns of unit norm, y_k <= ||W y||
<= ||v||, because nothing cancels in W y. So rounding errors in G y and in the gradient are relative
to ||v||, and since the problem is convex, the error of the least ||v - W y||^2 is too, for any
condition number. Intermediate passive sets do suffer: their solutions are large and of either sign,
so rounding may make the exchanges cycle or the Cholesky decomposition fail. Therefore, if G is
singular to rounding, a multiple of the identity of that size is added, the gradient conditions of
the solutions are checked, and SciPy solves the rows that violate them.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import LinAlgError, cholesky, eigvalsh, solve

from .. import kernels
from ..data.blocks import EPS, divisors
from ..errors import DataError
from ..types import Array

_GRADIENT_TOL = 1e-13  # relative to the right-hand side: a smaller gradient counts as zero
_DOUBTFUL_RESIDUAL = 1e-10  # ... and a residual of the gradient conditions above this is a failure
_DOUBTFUL_PIVOT_SQ = 1e-8  # check solutions if a pivot of the Cholesky decomposition is below
_GUESS_SWEEPS = 5
_ROUNDING = 100 * EPS  # added to the unit diagonal, times the number of components
_MAX_STEPS = 10_000  # of SciPy's method


def nnls(G: Array, C: Array, Y: Array | None = None) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 for every row c of C.

    Parameters
    ----------
    G : array (K, K), or (n, K, K)
        Gram matrix, symmetric positive semidefinite; one for all rows, or one for each row. If it
        is singular, the gradient conditions hold up to rounding. A component whose diagonal entry
        is below 1e-290 counts as zero.
    C : array (n, K)
        One right-hand side per row.
    Y : array (n, K), optional
        A first guess; its positive entries are the first passive sets. By default a few sweeps of
        coordinate descent compute one.

    Returns
    -------
    array (n, K), with the dtype of C

    Examples
    --------
    >>> nnls(np.eye(2), np.array([[3.0, -1.0], [2.0, 5.0]]))
    array([[3., 0.],
           [2., 5.]])
    """
    K = C.shape[1]
    if not (np.isfinite(G).all() and np.isfinite(C).all()):
        raise DataError("G or C holds NaN or infinity: check the factors and the data")
    squares = np.diagonal(G, axis1=-2, axis2=-1).astype(float)
    # Scale to a unit diagonal: the scale of a component must not decide what counts as singular.
    is_zero = squares <= kernels.SMALLEST_SQUARE
    scale = np.sqrt(np.where(is_zero, 1.0, squares))
    sides = np.ascontiguousarray(np.where(is_zero, 0.0, C / scale), dtype=float)
    gram = G / (scale[..., :, None] * scale[..., None, :])
    gram[is_zero[..., :, None] | is_zero[..., None, :]] = 0.0
    gram[..., range(K), range(K)] += is_zero
    pivot_sq = smallest_pivot_squared(gram) if G.ndim == 2 else 0.0
    if pivot_sq <= _ROUNDING * K:
        gram = gram + _ROUNDING * K * np.eye(K)
    solution = np.full_like(sides, np.nan)
    if kernels.AVAILABLE:
        solution = pivot_rows(gram, sides, Y)
    is_doubtful = pivot_sq < _DOUBTFUL_PIVOT_SQ
    for step in (1, -1):  # retry with reversed components: rarely, rounding misleads SciPy
        failed = np.isnan(solution[:, 0])
        if is_doubtful:
            failed |= _is_wrong(gram, sides, solution)
        if failed.any():
            is_doubtful = True
            grams = gram if gram.ndim == 2 else gram[failed]
            found = by_scipy(grams[..., ::step, ::step], sides[failed, ::step])
            solution[failed] = found[:, ::step]
    return np.asarray((solution / scale).astype(C.dtype, copy=False))


def smallest_pivot_squared(gram: Array) -> float:
    """Return the smallest squared pivot of the Cholesky decomposition; 0 if it does not exist."""
    try:
        return float(np.diagonal(cholesky(gram)).min()) ** 2
    except LinAlgError:
        return 0.0


def pivot_rows(gram: Array, sides: Array, Y: Array | None, *, sum_to_one: bool = False) -> Array:
    """Run block principal pivoting; rows that it does not finish are NaN.

    The positive entries of Y are the first passive sets; without Y, a few sweeps of coordinate
    descent compute them. With `sum_to_one` each row sums to one, and every row of Y needs a
    positive entry.
    """
    K = sides.shape[1]
    if Y is None:
        solution = np.zeros_like(sides)
        kernels.hals_sweeps(gram, sides, solution, 0.0, _GUESS_SWEEPS, 0.0)
    else:
        solution = np.array(Y, dtype=float, order="C")
    grams = gram.reshape(-1, K, K)
    limits = (_GRADIENT_TOL, 5 * K + 20, sum_to_one)
    kernels.nnls_rows(grams, sides, solution, *limits, *kernels.nnls_memory(K))
    return solution


def _is_wrong(gram: Array, sides: Array, Y: Array) -> Array:
    """Return in which rows of Y the gradient conditions do not hold."""
    with np.errstate(invalid="ignore", over="ignore"):  # where a decomposition failed
        gradient = (Y[:, None] @ gram)[:, 0] - sides
    wrong = np.where(Y > 0, np.abs(gradient), -gradient)
    size = np.abs(sides).max(axis=1)
    allowed = _DOUBTFUL_RESIDUAL * divisors(size)
    return np.asarray(~(wrong.max(axis=1, initial=0.0) <= allowed))


def by_scipy(gram: Array, sides: Array) -> Array:
    """Solve row by row: with G = LL' and c = Lb, minimise ||L'y - b||^2 over y >= 0.

    SciPy's tolerance is absolute, so right-hand sides are scaled to a largest entry of 1. A G in
    single precision may have negative eigenvalues; it is shifted to remove them.

    SciPy leaves entries positive that are rounding. As the diagonal is one, an entry changes the
    gradient by at most its own size, so entries below `_GRADIENT_TOL` are zero.
    """
    from scipy.optimize import nnls as scipy_nnls  # slow to import

    n, K = sides.shape
    size = np.abs(sides).max(axis=1, keepdims=True)
    unit = sides / divisors(size)
    least = eigvalsh(gram)[..., 0]
    shift = np.where(least > 0, 0.0, _ROUNDING * K - 2 * least)
    ridge = shift[..., None, None] * np.eye(K)
    L = np.broadcast_to(cholesky(gram + ridge), (n, K, K))
    B = solve(L, unit[:, :, None])
    Y = np.empty((n, K))
    for i in range(n):
        Y[i], _ = scipy_nnls(L[i].T, B[i, :, 0], maxiter=_MAX_STEPS)
    return np.where(Y > _GRADIENT_TOL, Y, 0.0) * size

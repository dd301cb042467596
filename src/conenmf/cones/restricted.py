"""Lower bounds for restricted factors: components that are given, penalties, sums of one.

All follow from Eckart and Young on a changed V. With columns A of W given, what they cannot reach
is V less its projection on their span, and K - n further components leave at least its tail beyond
as many singular values (Golub, Hoffman and Stewart, "A generalization of the Eckart-Young-Mirsky
matrix approximation theorem", Linear Algebra Appl. 88, 1987). Coefficients that sum to one span an
affine set of K - 1 dimensions: the tail is that of V less its mean. With a ||W||^2 + b ||H||^2
added, singular values are soft-thresholded, since this is at least 2 sqrt(ab) times the sum of the
singular values of WH. Other penalties are at least 0.

Where entries have weights p, or are missing, p_nf >= u_n t_f for some u and t gives the tail of V
with samples multiplied by sqrt(u) and features by sqrt(t). For a mask that is a rectangle of V all
of which is known: some features, and the samples in which none of these is missing.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..arguments import components, factor, flag, number
from ..data.blocks import Array, Block, dense, exact, is_sparse
from ..data.holes import observed_residual
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..data.views import MappedMatrix
from ..errors import ComponentsError
from ..linalg.svd import Spectrum

__all__ = ["bound_given", "known_bound", "objective_bound", "observed_bound"]

_MAX_RECTANGLES = 8  # that are compared by how much of V they hold
_DEPENDENT_SHARE = 1e-12  # of the largest singular value, up to which a direction is rounding


def bound_given(V: DataMatrix, A: Array, K: int) -> tuple[float, float]:
    """Bound the relative error of K components, of which the columns of A are the first.

    Parameters
    ----------
    V : DataMatrix (F, N)
    A : array (F, n)
    K : int
        At least n.

    Returns
    -------
    bound, failure_probability : float
        The bound holds for factors of any sign but for this probability; see `LowerBound`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> bound, _ = bound_given(from_columns([[3.0, 0.0], [4.0, 2.0]]), np.array([[1.0], [0.0]]), 1)
    >>> round(bound**2 * 29, 6)  # the second feature is out of reach
    20.0
    """
    require_data_matrix(V, nonzero=True, whole=True)
    A, K = factor("A", A, (V.shape[0], "n")), components(K)
    if A.shape[1] > K:
        raise ComponentsError(f"{A.shape[1]} components are given, more than the {K} in all")
    vectors, sizes, _ = np.linalg.svd(A.astype(np.float64), full_matrices=False)
    Q = np.ascontiguousarray(vectors[:, sizes > _DEPENDENT_SHARE * sizes[0]])
    left = MappedMatrix(V, partial(_beyond, Q=Q), dtype=np.dtype(np.float64))
    tail, chance = _tail(left, K - A.shape[1])
    return float(np.sqrt(tail / V.total)), chance


def objective_bound(
    V: DataMatrix,
    K: int,
    *,
    l2_h: float = 0.0,
    l2_w: float = 0.0,
    sum_to_one: bool = False,
    spectrum: Spectrum | None = None,
) -> float:
    """Bound ||V - WH||^2 + l2_w ||W||^2 + l2_h ||H||^2 from below, for K components.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    l2_h, l2_w : float
    sum_to_one : bool
        The coefficients of each sample sum to one.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[3.0, 0.0], [0.0, 1.0]])
    >>> round(objective_bound(V, 1), 6), round(objective_bound(V, 1, l2_h=1.0, l2_w=1.0), 6)
    (1.0, 6.0)
    """
    require_data_matrix(V, nonzero=True, whole=True)
    K, sum_to_one = components(K), flag("sum_to_one", sum_to_one)
    l2_h, l2_w = number("l2_h", l2_h, at_least=0), number("l2_w", l2_w, at_least=0)
    spectrum = Spectrum.of(V, spectrum)
    with V.own_threads():
        if sum_to_one:
            (sums,) = V.sweep(_sum_samples)
            centred = MappedMatrix(
                V, partial(_centred, mean=sums / V.shape[1]), dtype=np.dtype(np.float64)
            )
            return _tail(centred, K - 1)[0]
        rank, size = min(K, *V.shape), float(np.sqrt(l2_h * l2_w))
        tail = max(V.total - spectrum.energy_bound(rank)[0], 0.0) if rank < min(V.shape) else 0.0
        values = spectrum.singular_values(rank)
    shrunk = np.where(values > size, 2 * size * values - size**2, values**2)
    return float(tail + shrunk.sum()) if size else float(tail)


def observed_bound(
    V: DataMatrix, W: Array, H: Aligned, *, l2_h: float = 0.0, l2_w: float = 0.0
) -> float:
    """Bound sum p (v - wh)^2 + l2_w ||W||^2 + l2_h ||H||^2 from below, for any K.

    The entries of V that are known have weights p; see `Observed`. For Y = p (V - WH), and t <= 1
    so small that no singular value of tY is above sqrt(l2_h l2_w), the bound is
    2t <Y, V> - t^2 sum Y^2 / p. It is 0 if one of the two penalties is: then none is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
        The better the factors, the higher the bound.
    l2_h, l2_w : float
    """
    require_data_matrix(V, nonzero=True, whole=True, holes=True)
    W, Ht = check_factors(V, W, H)
    l2_h, l2_w = number("l2_h", l2_h, at_least=0), number("l2_w", l2_w, at_least=0)
    limit, observed = float(np.sqrt(l2_h * l2_w)), V.observed
    weights = None if observed is None else observed.weights
    aligned = (Ht,) if weights is None else (Ht, weights)
    if observed is None:
        aligned = (Ht, V.map(_ones, F=V.shape[0])[0])
    with V.own_threads():
        ((inner, squared),) = V.sweep(_known_sums, *aligned, W=W)
        left = MappedMatrix(
            V, partial(_known_left, W=W), *aligned, dtype=np.dtype(np.float64), holes=True
        )
        if not limit or left.total == 0:
            return float(max(2 * inner - squared, 0.0)) if limit else 0.0
        largest = float(np.sqrt(Spectrum(left).energy_bound(1)[0]))
    t = min(1.0, limit / largest)
    return float(max(2 * t * inner - t**2 * squared, 0.0))


def known_bound(V: DataMatrix, K: int) -> tuple[float, float]:
    """Bound the relative error of K components over the entries of V that are known.

    Features are taken in the order of how often they are known, as many as leave most of V in
    samples of which none of them is missing. It is 0 if no such rectangle has more than K sides, as
    where holes are everywhere: then nothing is known. That holds for ratings, of which each
    sample has few.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int

    Returns
    -------
    bound, failure_probability : float
        As in `bound_given`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[2.0, 0.0, np.nan], [0.0, 1.0, 5.0]], missing="nan")
    >>> round(known_bound(V, 1)[0] ** 2 * 30, 6)  # that of the first two samples
    1.0
    """
    require_data_matrix(V, nonzero=True, whole=True, holes=True)
    K, observed = components(K), V.observed
    if observed is None:  # all are known
        tail, chance = _tail(V, K)
        return float(np.sqrt(min(tail / V.total, 1.0))), chance
    if observed.weights is None or not observed.total:
        return 0.0, 0.0
    weights, F = observed.weights, V.shape[0]
    with V.own_threads():
        ((known, sums),) = V.map(_known_of_features, weights)
        scales = np.divide(sums, known, out=np.zeros(F), where=known > 0)
        order = np.argsort(-known, kind="stable")
        if F <= K or not (known >= 1).sum() > K:
            return 0.0, 0.0
        sizes = np.unique(np.geomspace(K + 1, (known >= 1).sum(), _MAX_RECTANGLES).astype(int))
        rectangles = [np.where(np.isin(np.arange(F), order[:n]), scales, 0.0) for n in sizes]
        best = max((_rectangle(V, weights, t) for t in rectangles), key=lambda view: view.total)
        if best.total == 0:
            return 0.0, 0.0
        tail, chance = _tail(best, K)
    return float(np.sqrt(min(tail / observed.total, 1.0))), chance


def _known_of_features(index: range, weights: Array) -> tuple[tuple[Array, Array]]:
    return (((weights > 0).sum(axis=0).astype(np.float64), exact(weights).sum(axis=0)),)


def _rectangle(V: DataMatrix, weights: Aligned, t: Array) -> MappedMatrix:
    """V with features times sqrt(t) and samples times sqrt(u), u_n t_f <= p_nf for all f."""
    roots, _ = V.map(_minorant_roots, weights, t=t)
    change = partial(_times_both, features=np.sqrt(t))
    return MappedMatrix(V, change, roots, dtype=np.dtype(np.float64), holes=True)


def _minorant_roots(index: range, weights: Array, *, t: Array) -> tuple[Array, None]:
    inside = t > 0
    return np.sqrt((exact(weights)[:, inside] / t[inside]).min(axis=1)), None


def _times_both(block: Block, roots: Array, *, features: Array) -> Array:
    scaled: Array = dense(block) * features[:, None] * roots
    return scaled


def _ones(index: range, *, F: int) -> tuple[Array, None]:
    return np.ones((len(index), F), bool), None


def _known_left(block: Block, H: Array, weights: Array | None = None, *, W: Array) -> Block:
    return observed_residual(exact(block), weights, W, exact(H))[0]


def _known_sums(
    block: Block, H: Array, weights: Array | None = None, *, W: Array
) -> tuple[tuple[float, float]]:
    left, squares = observed_residual(exact(block), weights, W, exact(H))
    if is_sparse(left) and is_sparse(block):  # they have one pattern
        return ((float(np.vdot(left.data, exact(block.data))), float(squares.sum())),)
    return ((float(np.vdot(dense(left), dense(block))), float(squares.sum())),)


def _tail(V: DataMatrix, k: int) -> tuple[float, float]:
    """||V||^2 less its k largest squared singular values, from below; and a probability."""
    if k == 0 or V.total == 0:
        return V.total, 0.0
    if k >= min(V.shape):
        return 0.0, 0.0
    with V.own_threads():
        energy, chance = Spectrum(V).energy_bound(k)
    return max(V.total - energy, 0.0), chance


def _beyond(block: Block, *, Q: Array) -> Array:
    samples = dense(block)
    left: Array = samples - Q @ (Q.T @ samples)
    return left


def _sum_samples(block: Block) -> tuple[Array]:
    return (dense(block).sum(axis=1),)


def _centred(block: Block, *, mean: Array) -> Array:
    centred: Array = dense(block) - mean[:, None]
    return centred

"""Bounds of the squared error: certificates of least squares, also of restricted factors.

*Restricted factors* (known components, penalties, or coefficients that sum to one) have their own
bounds. All follow from the theorem of Eckart and Young for a changed V. With n columns A of W
given, their span leaves V minus its projection on the span, and K - n further components leave at
least the tail of this residual beyond as many singular values (Golub, Hoffman and Stewart, "A
generalization of the Eckart-Young-Mirsky matrix approximation theorem", Linear Algebra Appl. 88,
1987). Coefficients that sum to one span an affine set of K - 1 dimensions, so the tail is that of V
minus its mean. With penalties a ||W||^2 + b ||H||^2 the singular values are soft-thresholded,
because these penalties are at least 2 sqrt(ab) times the sum of the singular values of WH. Other
penalties are at least 0.

Suppose that entries have weights p (0 if missing), and that p_nf >= u_n t_f for some u and t. Then
the tail of V, with samples multiplied by sqrt(u) and features by sqrt(t), is a bound. For a mask
this is a rectangle of V without missing entries: some features, and the samples in which none of
them is missing.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.linalg import svd

from ...data.blocks import Block, dense, exact, is_sparse, over
from ...data.entries import EntryWeights, observed_residual
from ...data.matrix import Aligned, DataMatrix
from ...data.validate import check_factors
from ...data.views import MappedMatrix
from ...linalg.svd import VECTOR_TOL, KnownSpectrum, Spectrum
from ...types import Array, Interval
from ..certificate import UNKNOWN, Certificate
from ..coefficients import finished
from ..constraints import NO_PENALTIES, Penalties
from ..dual_bound import (
    DEFAULT_EFFORT,
    LowerBound,
    best_lower_bound,
)
from ..loss import Bounds

_DENSE_SHARE = 0.1  # of nonzero entries: data with more count as dense
_SPARSE_EFFORT = 1  # fits of sparse data are fast, and one step gains most of what three do
_MAX_RECTANGLES = 8  # that are compared by the energy of V in them
_DEPENDENT_SHARE = 1e-12  # of the largest singular value: a smaller one is rounding
# Singular values are cheap if a side of V is at most the larger of these.
_SHORT_SIDE = 200
_SHORT_SIDE_PER_COMPONENT = 16


class SquaredBounds(Bounds):
    """Bounds of the squared error over the known entries of V."""

    @property
    def effort(self) -> int:
        """The default number of steps: 3, and 1 for sparse data."""
        V = self.V
        is_dense = V.n_entries > _DENSE_SHARE * V.n_features * V.n_samples
        return DEFAULT_EFFORT if is_dense else _SPARSE_EFFORT

    def certify(
        self,
        W: Array,
        H: Aligned,
        effort: int,
        *,
        n_fixed: int = 0,
        penalties: Penalties = NO_PENALTIES,
    ) -> Certificate:
        """Judge a factorization by the known entries of V; the residual ignores penalties."""
        V = self.V
        W, Ht = check_factors(V, W, H)
        K = W.shape[1]
        total = (V.observed or V).total
        with V.own_threads():
            end = finished(V, W, n_first=K, n_fixed=n_fixed, given=Ht)
            below = self.below(K, effort, W[:, :n_fixed] if n_fixed else None)
        error = math.sqrt(end.squared_error / total) if total else 0.0
        return Certificate.of(error, end.kkt_residual, below, effort)

    def below(self, K: int, effort: int, known: Array | None = None) -> LowerBound:
        """Return the best bound for K components, the known ones among them."""
        V = self.V
        if V.observed is not None:
            bound, chance = known_bound(V, K)
            return LowerBound(bound, bound, False, chance)
        below = best_lower_bound(V, K, effort=effort, spectrum=self.spectrum)
        if known is None:
            return below
        below = below._replace(is_attained=False)
        bound, chance = bound_given(V, known, K)
        if bound > below.value:
            below = below._replace(value=bound, failure_probability=chance)
        return below

    def first(self, relative_error: float, kkt_residual: float, K: int) -> Certificate:
        """Return the certificate of a fit from the results of the fit.

        If all entries are known and a side of V is short, the bound has effort 0. Singular values
        then take at most one pass, and about as long as a few iterations. Otherwise the bound is 0,
        and V is not read.
        """
        spectrum = self.spectrum
        below = UNKNOWN
        short_side = max(_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT * K)
        if spectrum is not None and min(spectrum.V.shape) <= short_side:
            below = best_lower_bound(spectrum.V, K, effort=0, spectrum=spectrum)
        return Certificate.of(relative_error, kkt_residual, below)

    def objective(self, W: Array, H: Aligned, penalties: Penalties) -> float:
        """Return a lower bound of the objective with L2 penalties, or coefficients of sum one."""
        ridge = {"l2_h": penalties.l2_h, "l2_w": penalties.l2_w}
        if self.V.observed is not None:
            return observed_bound(self.V, W, H, **ridge)
        K = W.shape[1]
        sums = penalties.sum_to_one
        return objective_bound(self.V, K, **ridge, sum_to_one=sums, spectrum=self.spectrum)

    def estimate(self, K: int) -> float:
        """Return the residual of K singular vectors (Eckart and Young), which inits use too."""
        if self.spectrum is None:
            return 0.0
        squares = self.spectrum.leading_subspace(K, tol=VECTOR_TOL)[1][:K]
        return math.sqrt(max(1 - float(squares.sum()) / self.V.total, 0.0))


def bound_given(V: DataMatrix, A: Array, K: int) -> Interval:
    """Bound the relative error of K components whose first ones are the columns of A.

    Parameters
    ----------
    V : DataMatrix (F, N)
    A : array (F, n)
    K : int
        At least the number of columns of A.

    Returns
    -------
    bound, failure_probability : float
        The bound holds for factors of any sign, except with this probability; see `LowerBound`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> bound, _ = bound_given(from_columns([[3.0, 0.0], [4.0, 2.0]]), np.array([[1.0], [0.0]]), 1)
    >>> round(bound**2 * 29, 6)  # the second feature is out of reach
    20.0
    """
    vectors, sizes, _ = svd(A.astype(float), full_matrices=False)
    Q = np.ascontiguousarray(vectors[:, sizes > _DEPENDENT_SHARE * sizes[0]])
    left = MappedMatrix(V, partial(_beyond, Q=Q))
    tail, chance = _tail(left, K - A.shape[1])
    return math.sqrt(tail / V.total), chance


def objective_bound(
    V: DataMatrix,
    K: int,
    *,
    l2_h: float = 0.0,
    l2_w: float = 0.0,
    sum_to_one: bool = False,
    spectrum: KnownSpectrum = None,
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
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[3.0, 0.0], [0.0, 1.0]])
    >>> round(objective_bound(V, 1), 6), round(objective_bound(V, 1, l2_h=1.0, l2_w=1.0), 6)
    (1.0, 6.0)
    """
    spectrum = Spectrum.of(V, spectrum)
    with V.own_threads():
        if sum_to_one:
            (sums,) = V.sweep(lambda block: (dense(block).sum(axis=1),))
            mean = sums[:, None] / V.n_samples
            return _tail(MappedMatrix(V, lambda block: dense(block) - mean), K - 1)[0]
        rank = min(K, *V.shape)
        size = math.sqrt(l2_h * l2_w)
        tail = max(V.total - spectrum.energy_bound(rank)[0], 0.0) if rank < min(V.shape) else 0.0
        values = spectrum.singular_values(rank)
    shrunk = np.where(values > size, 2 * size * values - size**2, values**2)
    return float(tail + shrunk.sum()) if size else float(tail)


def observed_bound(
    V: DataMatrix, W: Array, H: Aligned, *, l2_h: float = 0.0, l2_w: float = 0.0
) -> float:
    """Bound sum p (v - wh)^2 + l2_w ||W||^2 + l2_h ||H||^2 from below, for any K.

    V must have missing or weighted entries; known entries have weights p, see `Observed`. For Y = p
    (V - WH), and t <= 1 so small that no singular value of tY is above sqrt(l2_h l2_w), the bound
    is 2t <Y, V> - t^2 sum Y^2 / p. If one of the two penalties is 0, the bound is 0.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
        Better factors give a higher bound.
    l2_h, l2_w : float
    """
    limit = math.sqrt(l2_h * l2_w)
    if not limit:
        return 0.0
    W = W.astype(float, copy=False)
    aligned = V.align(H.T), *V.observed.aligned
    with V.own_threads():
        ((inner, squared),) = V.sweep(_known_sums, *aligned, W=W)
        left = MappedMatrix(V, partial(_known_left, W=W), *aligned, holes=True)
        t = 1.0
        if left.total > 0:
            t = min(1.0, limit / math.sqrt(Spectrum(left).energy_bound(1)[0]))
    return float(max(2 * t * inner - t**2 * squared, 0.0))


def known_bound(V: DataMatrix, K: int) -> Interval:
    """Bound the relative error of K components over the known entries of V.

    The features that are known most often are used: as many as leave most of V in samples in which
    none of them is missing. If no such rectangle has more than K rows and columns, as in ratings
    where each sample has few, the bound is 0.

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
    observed = V.observed
    if observed.weights is None or not observed.total:
        return 0.0, 0.0
    weights = observed.weights
    F = V.n_features
    with V.own_threads():
        ((known, sums),) = V.map(
            lambda _, rows: (((rows > 0).sum(axis=0).astype(float), exact(rows).sum(axis=0)),),
            weights,
        )
        scales = over(sums, known)
        order = np.argsort(-known, kind="stable")
        most = np.count_nonzero(known)
        if most <= K:
            return 0.0, 0.0
        sizes = np.unique(np.geomspace(K + 1, most, _MAX_RECTANGLES).astype(int))
        rectangles = [np.where(np.isin(np.arange(F), order[:n]), scales, 0.0) for n in sizes]
        best = max((_rectangle(V, weights, t) for t in rectangles), key=lambda view: view.total)
        tail, chance = _tail(best, K)
    return math.sqrt(min(tail / observed.total, 1.0)), chance


def _rectangle(V: DataMatrix, weights: Aligned, t: Array) -> MappedMatrix:
    """V with features times sqrt(t) and samples times sqrt(u), where u_n t_f <= p_nf for all f."""
    inside = t > 0
    features = np.sqrt(t)[:, None]
    roots = V.by_rows(
        lambda _, rows: np.sqrt((exact(rows)[:, inside] / t[inside]).min(axis=1)), weights
    )
    return MappedMatrix(V, lambda block, r: dense(block) * features * r, roots, holes=True)


def _known_left(block: Block, H: Array, weights: EntryWeights = None, *, W: Array) -> Block:
    return observed_residual(exact(block), weights, W, exact(H))[0]


def _known_sums(
    block: Block, H: Array, weights: EntryWeights = None, *, W: Array
) -> tuple[Interval]:
    left, squares = observed_residual(exact(block), weights, W, exact(H))
    if is_sparse(left) and is_sparse(block):  # both have the same pattern
        return ((float(np.vdot(left.data, exact(block.data))), float(squares.sum())),)
    return ((float(np.vdot(dense(left), dense(block))), float(squares.sum())),)


def _tail(V: DataMatrix, k: int) -> Interval:
    """Bound ||V||^2 minus the k largest squared singular values from below; with a probability."""
    if k == 0 or V.total == 0:
        return V.total, 0.0
    if k >= min(V.shape):
        return 0.0, 0.0
    with V.own_threads():
        energy, chance = Spectrum(V).energy_bound(k)
    return max(V.total - energy, 0.0), chance


def _beyond(block: Block, *, Q: Array) -> Array:
    samples = dense(block)
    return samples - Q @ (Q.T @ samples)

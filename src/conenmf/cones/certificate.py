"""How good a factorisation is: a lower bound for the error of any, and certificates.

No factorisation with K components has a smaller error than the truncated singular value
decomposition (Eckart and Young), and no nonnegative one than a bound from the dual problem
(`dual_bound`). For any pair of factors: how far it is from that lower bound and from being a
stationary point. A certificate judges the error, not the truth of the components.

*Restricted factors* have bounds of their own: components that are given, penalties, sums of one.
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

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import components, integer
from ..data.blocks import (
    Array,
    Block,
    dense,
    exact,
    is_sparse,
    products,
    residual_squared,
    weighted_sums,
)
from ..data.known import observed_residual
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..data.views import MappedMatrix
from ..errors import Message, Option
from ..linalg.svd import Spectrum
from ..text import card
from .dual_bound import LowerBound, best_lower_bound, default_effort

_ROUNDING = 1e-13  # of ||V||^2, in the squared error
_MAX_RECTANGLES = 8  # that are compared by how much of V they hold
_DEPENDENT_SHARE = 1e-12  # of the largest singular value, up to which a direction is rounding
_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT = 200, 16  # of a V whose singular values cost little


class BoundWarning(UserWarning):
    """An error is below its lower bound, which cannot be: one of the two numbers is wrong."""


def lower_bound(
    V: DataMatrix, K: int, *, effort: int = 0, spectrum: Spectrum | None = None
) -> float:
    """Return a relative error that no nonnegative factors with K components are below.

    With effort 0 it is sqrt(sum_{j > K} sigma_j^2) / ||V||, which holds for factors of any sign.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int
        Most steps by which to raise the bound; see `best_lower_bound` of `dual_bound`, which
        returns the probability with which it holds too.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> round(lower_bound(from_columns([[2.0, 0.0], [0.0, 1.0]]), 1), 6)
    0.447214
    """
    require_data_matrix(V, nonzero=True, whole=True)
    K, effort = components(K), integer("effort", effort, at_least=0)
    return best_lower_bound(V, K, effort=effort, spectrum=spectrum).value


def proven_in_words(failure_probability: float) -> str:
    """Say how certain a bound is."""
    if not failure_probability:
        return "proven"
    return f"proven up to a randomized check (failure probability {failure_probability:.0e})"


@dataclass(frozen=True)
class Certificate:
    """How good a factorisation is: its error, a lower bound, and the distance from stationarity.

    Attributes
    ----------
    relative_error : float
        ||V - W H|| / ||V||.
    lower_bound : float
        No nonnegative factorisation with as many components has a smaller relative error.
    gap : float
        Their difference: the error is at most this far from the best possible. If it were
        negative, one of the two would be wrong; `conenmf.certify` warns then.
    kkt_residual : float
        How far W and H are from a stationary point: the norm of the change of W H if each entry
        alone were minimised over, relative to ||V||. It is zero exactly at stationary points, and
        does not depend on the scale of V or on how scale is divided between W and H.
    eckart_young : float
        The lower bound for factors of any sign, from the singular values of V alone.
    is_attained : bool
        Whether it is proven that some nonnegative factorisation has an error equal to the bound:
        for one component, for two if the best approximation of rank two is nonnegative, and for as
        many components as V has samples or features.
    failure_probability : float
        0.0 where the bound is certain. If both sides of V are long, random vectors check that the
        bound misses nothing, and such vectors fail with at most this probability. Their seed is
        fixed, so the same data always give the same answer.
    effort : int
        With which the bound was computed.
    """

    relative_error: float
    lower_bound: float
    gap: float
    kkt_residual: float
    eckart_young: float
    is_attained: bool
    failure_probability: float
    effort: int

    @property
    def closed(self) -> float:
        """The share of the gap to Eckart and Young's bound that the effort has closed."""
        whole = self.relative_error - self.eckart_young
        return (self.lower_bound - self.eckart_young) / whole if whole > 0 else 0.0

    @property
    def proven(self) -> str:
        """How certain the bound is, in words."""
        return proven_in_words(self.failure_probability)

    @property
    def is_bound_telling(self) -> bool:
        """Whether the bound says more than that errors are not negative."""
        return self.lower_bound > 0 or self.is_attained or self.gap <= 0

    @property
    def described_bound(self) -> str:
        """The lower bound, and how certain it is."""
        if not self.is_bound_telling:
            return "0, none above it is known"
        return f"{self.lower_bound:.6g}, {self.proven}{', attained' * self.is_attained}"

    def _repr_html_(self) -> str:
        rows = {
            "relative error": f"{self.relative_error:.4g}",
            "lower bound": self.described_bound,
            "gap": f"{self.gap:.3g}",
            "lower bound for factors of any sign": f"{self.eckart_young:.4g}",
            "KKT residual": f"{self.kkt_residual:.2g}",
        }
        return card("Certificate", rows=rows.items())


def certify_least_squares(
    V: DataMatrix,
    W: npt.ArrayLike,
    H: Any,
    *,
    effort: int | None = None,
    spectrum: Spectrum | None = None,
    n_fixed: int = 0,
) -> Certificate:
    """Judge a factorisation V ~ W H; some tens of passes over V.

    The residual of the optimality conditions is
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    effort : int, optional
        Most steps by which to raise the lower bound above that of Eckart and Young, which effort 0
        gives; by default 3, of sparse data 1. Each takes about as long as the singular values; they
        end early where they close no more. More effort never lowers the bound.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    n_fixed : int
        So many components, the first ones, were given: the bound is that of factors which have
        them too, and that they could be better is not held against W.

    Warns
    -----
    BoundWarning
        If the error is below its lower bound.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certificate = certify_least_squares(V, result.W, result.H)
    >>> certificate.gap < 1e-6, certificate.kkt_residual < 1e-6  # one component: optimal
    (True, True)
    """
    require_data_matrix(V, nonzero=True, whole=True)
    effort = default_effort(V) if effort is None else effort
    W, Ht = check_factors(V, W, H)
    n_fixed = integer("n_fixed", n_fixed, at_least=0, at_most=W.shape[1])
    with V.own_threads():
        G = W.T @ W
        (VH, HH, squared, steps) = V.sweep(_judge, V.norms_squared, Ht, W=W, G=G)[0]
        steps += coordinate_steps(HH, VH, W, slice(n_fixed, None))
        below = best_lower_bound(V, W.shape[1], effort=effort, spectrum=spectrum)
        if n_fixed:
            bound, chance = bound_given(V, W[:, :n_fixed], W.shape[1])
            below = below._replace(is_attained=False)
            if bound > below.value:
                below = below._replace(value=bound, failure_probability=chance)
    error, kkt_residual = (float(np.sqrt(part / V.total)) for part in (squared, steps))
    return _stated(error, kkt_residual, below, effort)


def first_certificate(
    relative_error: float, kkt_residual: float, K: int, spectrum: Spectrum, below: float = 0.0
) -> Certificate:
    """Make the certificate of a fit from what the fit knows.

    Its bound is that of effort 0 where a side of V is short: singular values then take one pass, if
    the fit has not computed them, and about as long as a few iterations. Otherwise it is `below`,
    which may be much lower, and V is not read.

    Parameters
    ----------
    relative_error, kkt_residual : float
        Of the factors.
    K : int
    spectrum : Spectrum
        Of V.
    below : float
        A lower bound for the relative error of K components that is known.
    """
    bound, V = LowerBound(below, below, False, 0.0), spectrum.V
    if min(V.shape) <= max(_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT * K):
        bound = best_lower_bound(V, K, effort=0, spectrum=spectrum)
    return _stated(relative_error, kkt_residual, bound, 0)


def _stated(error: float, kkt_residual: float, below: LowerBound, effort: int) -> Certificate:
    certificate = Certificate(
        relative_error=error,
        lower_bound=below.value,
        gap=error - below.value,
        kkt_residual=kkt_residual,
        eckart_young=below.eckart_young,
        is_attained=bool(below.is_attained),
        failure_probability=below.failure_probability,
        effort=effort,
    )
    if error**2 < below.value**2 - _ROUNDING:
        message = Message(
            f"the relative error {error:.9g} is below its lower bound {below.value:.9g} "
            f"({certificate.proven}), which cannot be: compute both again in double precision, ",
            Option("effort", 0),
            ", and report the data if that does not help",
        )
        warnings.warn(BoundWarning(message), stacklevel=3)
    return certificate


# --- parts ------------------------------------------------------------------------------------


def _judge(
    block: Block, squared: Array, H: Array, *, W: Array, G: Array
) -> tuple[tuple[Array, Array, float, float]]:
    block, H = exact(block), exact(H)
    C = products(block, W)
    residual = float(residual_squared(block, squared, C, G, W, H).sum())
    return ((weighted_sums(block, H), H.T @ H, residual, coordinate_steps(G, C, H)),)


def coordinate_steps(G: Array, C: Array, Y: Array, columns: slice = slice(None)) -> float:
    """Return the sum over entries of the squared step that minimises over that entry alone.

    Only entries in `columns` count.
    """
    curvature, gradient, Y = np.diagonal(G)[columns], (Y @ G - C)[:, columns], Y[:, columns]
    step = np.divide(gradient, curvature, out=np.zeros_like(gradient), where=curvature > 0)
    return float((curvature * np.minimum(Y, step) ** 2).sum())


# --- restricted factors ------------------------------------------------------------------------


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

    V must have missing or weighted entries; those that are known have weights p, see `Observed`.
    For Y = p (V - WH), and t <= 1 so small that no singular value of tY is above
    sqrt(l2_h l2_w), the bound is 2t <Y, V> - t^2 sum Y^2 / p. It is 0 if one of the two penalties
    is: then none is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
        The better the factors, the higher the bound.
    l2_h, l2_w : float
    """
    limit = float(np.sqrt(l2_h * l2_w))
    if not limit:
        return 0.0
    W = W.astype(np.float64, copy=False)
    aligned = [V.align(H.T)]
    if V.observed.weights is not None:
        aligned.append(V.observed.weights)
    with V.own_threads():
        ((inner, squared),) = V.sweep(_known_sums, *aligned, W=W)
        left = MappedMatrix(
            V, partial(_known_left, W=W), *aligned, dtype=np.dtype(np.float64), holes=True
        )
        if left.total == 0:
            return float(max(2 * inner - squared, 0.0))
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
    observed = V.observed
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
    return dense(block) * features[:, None] * roots


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
    return samples - Q @ (Q.T @ samples)


def _sum_samples(block: Block) -> tuple[Array]:
    return (dense(block).sum(axis=1),)


def _centred(block: Block, *, mean: Array) -> Array:
    return dense(block) - mean[:, None]

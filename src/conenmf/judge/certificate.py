"""How good a factorization is, by the loss that it was fitted with.

`certify` is for every loss. For least squares it returns a `Certificate`. No factorization with K
components has a smaller error than the truncated singular value decomposition (Eckart and Young),
and no nonnegative one than a bound from the dual problem (`dual_bound`). For any pair of factors:
how far it is from that lower bound and from being a stationary point. A certificate is about
the error; it does not prove that components are the true ones.

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

The divergence of counts has no scale of its own, so a `CountCertificate` compares it with four
others: the divergence of one component, the product of the margins; a lower bound for all factors
with as many components (`dual_bound`); the gaps that a better H or W could close (`poisson_gaps`);
and the noise floor, which counting noise alone would leave (`noise_floor`). The first three are
exact or proven, the last one is an estimate that holds if the counts are Poisson.

Gaps: with one factor given, the other solves a convex problem, Poisson regression, for each sample
or feature by itself. Its dual is

    max sum_f v_f log(theta_f)   with   W' theta <= W' 1,

and at the optimum theta = v / x, x = Wh. So theta = a v / x with a = min_k (W'1)_k / (W'(v / x))_k
is a dual point for any h, and the divergence of h is above the smallest possible one by at most
sum x - s - s log a, with s = sum v (proof: "Duality gaps of counts" in the documentation). Both
gaps come from one pass over V, beside that for its margins. Where entries are missing or weighted,
where components are given, and with penalties, they are those of these problems (`dual_gaps`).

Noise floor: if counts are Poisson and the fitted rates are true, a fit to new counts at these rates
leaves about as much as the fit to the data did. So counts are drawn at the rates WH, and factors
are fitted to them, beginning at W and H: the mean of what is left is the floor. Without fitting
again it is larger, by about half for each parameter that is fitted.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.linalg import svd
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import Interval, Rng, components, instance, integer, optional
from ..data.blocks import Array, Block, dense, exact, is_sparse, over
from ..data.known import EntryWeights, observed_residual
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import drawn_counts
from ..data.validate import check_factors, check_shapes, require_data_matrix
from ..data.views import MappedMatrix
from ..errors import DataError, Message, NotAvailableError, Option
from ..linalg.svd import KnownSpectrum, Spectrum
from ..solve.coefficients import finished
from ..solve.constraints import NO_PENALTIES, Penalties
from ..solve.inits import Start
from ..solve.losses import dual_gaps, get_loss, margins, regressions, restraints
from ..solve.run import Stopping
from ..text import counted
from .dispersion import fitted_counts
from .dual_bound import (
    COUNT_EFFORT,
    DEFAULT_EFFORT,
    DivergenceBound,
    LowerBound,
    best_lower_bound,
    divergence_bound,
    held_if_small,
)

_ROUNDING = 1e-13  # of ||V||^2, in the squared error
_DENSE_SHARE = 0.1  # of entries that are not zero, from which on data count as dense
_SPARSE_EFFORT = 1  # fits of sparse data are quick, and this step closes most of what three do
_MAX_RECTANGLES = 8  # that are compared by how much of V they hold
_DEPENDENT_SHARE = 1e-12  # of the largest singular value, up to which a direction is rounding
_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT = 200, 16  # of a V whose singular values cost little


class BoundWarning(UserWarning):
    """An error is below its lower bound: one of the two numbers must be wrong."""


def lower_bound(V: DataMatrix, K: int, *, effort: int = 0, spectrum: KnownSpectrum = None) -> float:
    """Return a lower bound for the relative error of all nonnegative factors with K components.

    With effort 0 it is sqrt(sum_{j > K} sigma_j^2) / ||V||, which holds for factors of any sign.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int
        Largest number of steps that raise the bound; see `best_lower_bound` of `dual_bound`, which
        also returns the probability that the bound is wrong.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> round(lower_bound(from_columns([[2.0, 0.0], [0.0, 1.0]]), 1), 6)
    0.447214
    """
    require_data_matrix(V, nonzero=True)
    K = components(K)
    effort = integer("effort", effort, at_least=0)
    return best_lower_bound(V, K, effort=effort, spectrum=spectrum).value


class _Bounded:
    """What has a lower bound."""

    failure_probability: float

    @property
    def proven(self) -> str:
        """How certain the bound is, in words."""
        chance = self.failure_probability
        known = f"proven up to a randomized check (failure probability {chance:.0e})"
        return known if chance else "proven"


@dataclass(frozen=True)
class Certificate(_Bounded):
    """How good a factorization is: its error, a lower bound, and the distance from stationarity.

    Attributes
    ----------
    relative_error : float
        ||V - W H|| / ||V||.
    lower_bound : float
        No nonnegative factorization with as many components has a smaller relative error.
    gap : float
        `relative_error` minus `lower_bound`: the error is at most this far above the smallest
        possible one. If the gap were negative, `conenmf.certify` would warn.
    kkt_residual : float
        How far W and H are from a stationary point. For each entry, compute the step that minimises
        the error over this entry alone; the residual is the norm of all these steps, relative to
        ||V||. It is zero exactly at stationary points, and does not depend on the scale of V or on
        how scale is divided between W and H.
    eckart_young : float
        The lower bound for factors of any sign, from the singular values of V alone.
    is_attained : bool
        Whether some nonnegative factorization provably reaches the bound: for one component, for
        two if the best approximation of rank two is nonnegative, and for as many components as V
        has samples or features.
    failure_probability : float
        0.0 if the bound is certain. If both sides of V are long, the bound comes from a subspace,
        and random vectors check that the subspace is large enough. This check fails with at most
        this probability. The seed is fixed, so the same data always give the same answer.
    effort : int
        The effort with which the bound was computed.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> result = factorize(from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]]), 1, tol=1e-9)
    >>> certificate = result.certify()
    >>> certificate.is_attained, certificate.proven
    (True, 'proven')
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
        """The share of the gap between error and `eckart_young` that the effort has closed."""
        whole = self.relative_error - self.eckart_young
        return (self.lower_bound - self.eckart_young) / whole if whole > 0 else 0.0

    @property
    def is_bound_telling(self) -> bool:
        """Whether the bound says more than that errors are nonnegative."""
        return self.lower_bound > 0 or self.is_attained or self.gap <= 0


def _certify_squares(
    V: DataMatrix, W: Array, H: Aligned, effort: int, spectrum: KnownSpectrum, n_fixed: int
) -> Certificate:
    """Judge a least-squares factorization by the known entries of V; see `certify`."""
    W, Ht = check_factors(V, W, H)
    K = W.shape[1]
    total = (V.observed or V).total
    with V.own_threads():
        end = finished(V, W, n_first=K, n_fixed=n_fixed, given=Ht)
        if V.observed is not None:
            bound, chance = known_bound(V, K)
            below = LowerBound(bound, bound, False, chance)
        else:
            below = best_lower_bound(V, K, effort=effort, spectrum=spectrum)
        if n_fixed and V.observed is None:
            bound, chance = bound_given(V, W[:, :n_fixed], K)
            below = below._replace(is_attained=False)
            if bound > below.value:
                below = below._replace(value=bound, failure_probability=chance)
    error = math.sqrt(end.squared_error / total) if total else 0.0
    return _stated(error, end.kkt_residual, below, effort)


def first_certificate(
    relative_error: float, kkt_residual: float, K: int, spectrum: KnownSpectrum
) -> Certificate:
    """Make the certificate of a fit from what the fit knows.

    Its bound is that of effort 0 where a side of V is short: singular values then take one pass, if
    the fit has not computed them, and about as long as a few iterations. Otherwise it is 0, and V
    is not read.

    Parameters
    ----------
    relative_error, kkt_residual : float
        Of the factors.
    K : int
    spectrum : Spectrum or None
        Of V, if all of V is known.
    """
    bound = LowerBound(0.0, 0.0, False, 0.0)
    short_side = max(_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT * K)
    if spectrum is not None and min(spectrum.V.shape) <= short_side:
        bound = best_lower_bound(spectrum.V, K, effort=0, spectrum=spectrum)
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


# --- restricted factors ------------------------------------------------------------------------


def bound_given(V: DataMatrix, A: Array, K: int) -> Interval:
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
    weights = observed.weights
    F = V.n_features
    with V.own_threads():
        ((known, sums),) = V.map(
            lambda _, rows: (((rows > 0).sum(axis=0).astype(float), exact(rows).sum(axis=0)),),
            weights,
        )
        scales = over(sums, known)
        order = np.argsort(-known, kind="stable")
        if not (known >= 1).sum() > K:
            return 0.0, 0.0
        sizes = np.unique(np.geomspace(K + 1, (known >= 1).sum(), _MAX_RECTANGLES).astype(int))
        rectangles = [np.where(np.isin(np.arange(F), order[:n]), scales, 0.0) for n in sizes]
        best = max((_rectangle(V, weights, t) for t in rectangles), key=lambda view: view.total)
        tail, chance = _tail(best, K)
    return math.sqrt(min(tail / observed.total, 1.0)), chance


def _rectangle(V: DataMatrix, weights: Aligned, t: Array) -> MappedMatrix:
    """V with features times sqrt(t) and samples times sqrt(u), u_n t_f <= p_nf for all f."""
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
    if is_sparse(left) and is_sparse(block):  # they have one pattern
        return ((float(np.vdot(left.data, exact(block.data))), float(squares.sum())),)
    return ((float(np.vdot(dense(left), dense(block))), float(squares.sum())),)


def _tail(V: DataMatrix, k: int) -> Interval:
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


# --- duality gaps of counts ---------------------------------------------------------------------


class PoissonGaps(NamedTuple):
    """The divergence of factors, and bounds for what a better H or a better W would change.

    Attributes
    ----------
    divergence : float
        sum v log(v / x) - v + x over all entries v of V and x of WH.
    coefficient_gap : float
        With this W, no H has a divergence below `divergence` - `coefficient_gap`.
    component_gap : float
        With this H, no W has a divergence below `divergence` - `component_gap`.
    of_margins : float
        The divergence of one component, the product of the margins of V.
    total : float
        The sum of V.
    """

    divergence: float
    coefficient_gap: float
    component_gap: float
    of_margins: float
    total: float


def poisson_gaps(
    V: DataMatrix, W: ArrayLike, H: Aligned, *, n_fixed: int = 0, penalties: Penalties | None = None
) -> PoissonGaps:
    """Return the divergence of V from WH, and how much of it a better H, or W, could save at most.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Some of it may be missing or weighted: all is about what is known.
    W : array (F, K)
    H : array (K, N)
    n_fixed : int
        So many components, the first ones, were given: that they could be better does not count.
    penalties : Penalties, optional
        Those of the fit: the gaps are those of the divergence and these.

    Raises
    ------
    DataError
        If WH is zero where V is not: the divergence is then infinite.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[2.0, 0.0], [1.0, 3.0]])
    >>> found = poisson_gaps(V, [[2.0], [4.0]], [[0.5, 0.5]])  # the margins
    >>> round(found.coefficient_gap, 12), round(found.component_gap, 12)
    (0.0, 0.0)
    """
    penalties = penalties or NO_PENALTIES
    W, Ht = check_factors(V, W, H)
    totals, (_, for_W) = margins(V), restraints(penalties, n_fixed)
    _, _, sums = regressions(V, W, penalties, given=Ht)
    if sums["impossible"]:
        raise DataError(
            f"W H is zero where {sums['impossible']} entries of the data are not, so the "
            "divergence is infinite: fit again, or leave out the features or samples whose factors "
            "are zero"
        )
    gaps = dual_gaps(sums["ratios"], sums["known"], W, totals.features, for_W)
    return PoissonGaps(
        divergence=max(sums["divergence"], 0.0),
        coefficient_gap=sums["gap"],
        component_gap=float(gaps.sum()),
        of_margins=totals.divergence,
        total=totals.total,
    )


# --- the noise floor of counts ------------------------------------------------------------------

MAX_DENSE_ENTRIES = 1 << 25  # of drawn counts that are held in memory, if they are dense
_SEED = 0
_STOPPING = Stopping(max_iter=100)


class NoiseFloor(NamedTuple):
    """The divergence that counting noise alone would leave, an estimate if counts are Poisson.

    Attributes
    ----------
    value : float
        The mean over draws.
    spread : float
        The standard deviation of a draw.
    refitted : bool
        Whether factors were fitted to the draws; if not, the value is too large, since it ignores
        that a fit follows the noise with every parameter it has.
    """

    value: float
    spread: float
    refitted: bool


def noise_floor(
    V: DataMatrix,
    W: Array,
    H: Aligned,
    *,
    refit: bool = True,
    n_draws: int = 3,
    rng: Rng = None,
) -> NoiseFloor:
    """Estimate the divergence that counting noise alone would leave, at the rates W H.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    refit : bool
        Fit the factors to each draw, starting from W and H. Without it the floor takes one pass per
        draw, and is too large, because it ignores the parameters.
    n_draws : int
    rng : numpy.random.Generator, optional
        By default one of a fixed seed.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns(np.ones((30, 40)))
    >>> W, H = np.ones((30, 1)), np.full((1, 40), 100.0)
    >>> quick, floor = (noise_floor(V, W, H, refit=refit) for refit in (False, True))
    >>> 550 < quick.value < 650  # about half for each of 1200 entries
    True
    >>> 20 < quick.value - floor.value < 50  # half for each of 69 parameters
    True
    """
    rng = default_rng(_SEED) if rng is None else rng
    left = []
    for _ in range(n_draws):
        drawn = held_if_small(drawn_counts(V, W, H, rng), MAX_DENSE_ENTRIES)
        if not drawn.nonzero:  # so low are the rates
            left.append(0.0)
            continue
        factors = W, H
        if refit:
            solution = fitted_counts(drawn, Start(W, H, "given"), _STOPPING)
            factors = solution.W, solution.H
        left.append(poisson_gaps(drawn, *factors).divergence)
    return NoiseFloor(float(np.mean(left)), float(np.std(left, ddof=1)), refit)


# --- counts -------------------------------------------------------------------------------------

_NULL_SHARE = 1e-12  # of the total, below which the margins explain all
_TELLING_SHARE = 0.2  # of the divergence, from which on a lower bound is worth reporting
_FAR_ABOVE = 0.15  # of the noise floor: of few counts, it may be a tenth too low
_SPREADS, _NEAR = 3, 0.01  # of the noise floor, and its share: within which a divergence is at it


@dataclass(frozen=True)
class CountCertificate(_Bounded):
    """How good a factorization of counts is.

    Attributes
    ----------
    divergence : float
        sum v log(v / x) - v + x over the entries v of V and x of WH; twice this is the deviance.
    of_margins : float
        The divergence of one component, the product of the margins.
    relative_error : float
        Their quotient: the share of the deviance that is not explained. Where one component leaves
        nothing, the divergence over the total of V.
    lower_bound : float
        No nonnegative factorization with as many components has a smaller relative error; 0 if
        nothing is proven.
    gap : float
        Relative error minus lower bound.
    coefficient_gap, component_gap : float
        With this W no H, and with this H no W, has a divergence that is lower by more than this.
    noise_floor : float
        The mean divergence of fits to counts that were drawn at the fitted rates: what counting
        noise alone would leave. An estimate, which holds if counts are Poisson; infinite if it was
        not asked for.
    floor_spread : float
        The standard deviation of these divergences.
    is_refitted : bool
        Whether there were such fits. For data that are not in memory the draws are compared with
        the rates themselves, and the floor is too high: it ignores the parameters of a fit.
    failure_probability : float
        0.0 where the bound is certain; else the probability, over random vectors that were drawn,
        that it is not a bound.
    effort : int
        With which the bound was computed.
    """

    divergence: float
    of_margins: float
    relative_error: float
    lower_bound: float
    gap: float
    coefficient_gap: float
    component_gap: float
    noise_floor: float
    floor_spread: float
    is_refitted: bool
    failure_probability: float
    effort: int

    @property
    def above_floor(self) -> float:
        """By which share of the noise floor the divergence is above it; NaN if it is unknown."""
        if not np.isfinite(self.noise_floor) or self.noise_floor == 0:
            return float("nan")
        return self.divergence / self.noise_floor - 1.0

    @property
    def proven_share(self) -> float:
        """The lower bound as a share of the divergence."""
        return min(self.lower_bound / self.relative_error, 1.0) if self.relative_error > 0 else 1.0

    @property
    def is_bound_telling(self) -> bool:
        """Whether the lower bound is at least a fifth of the divergence; else it is not shown."""
        return self.proven_share >= _TELLING_SHARE

    def floor_in_words(self) -> str:
        """Say where the divergence is with respect to the noise floor; empty if it is unknown."""
        above = self.above_floor
        if np.isnan(above):
            return ""
        estimate = "an estimate, if counts are Poisson"
        meant = ""
        if not self.is_refitted:
            estimate += "; too high, since it ignores the parameters of the fit"
        floor = "the noise floor, which is what counting noise alone would leave"
        near = max(_SPREADS * self.floor_spread, _NEAR * self.noise_floor)
        if abs(self.divergence - self.noise_floor) <= near:
            excess = f"{round(above, 3) + 0.0:+.1%}"  # never "-0.0%"
            where = f"at {floor.replace(',', f' ({excess}),')}"
        elif above < 0:
            where = f"{-above:.1%} below the noise floor"
            meant = ": the data vary less than Poisson counts do" * self.is_refitted
        else:
            where = f"{1 + above:.3g} times {floor}" if above > 1 else f"{above:.1%} above {floor}"
            meant = ": counts are overdispersed, or K is too small" * (above > _FAR_ABOVE)
        return f"{where} ({estimate}){meant}"

    def bound_in_words(self, K: int) -> str:
        """Say what the lower bound means; empty if it is too low to mean much."""
        if not self.is_bound_telling:
            return ""
        below = f"{self.lower_bound * self.divergence / self.relative_error:.6g}"
        return (
            f"no factorization with {counted(K, 'component')} can have a divergence below "
            f"{below}{_chance_in_words(self)}, {self.proven_share:.0%} of this one"
        )


def certify_counts(
    V: DataMatrix,
    W: Array,
    H: Aligned,
    *,
    effort: int = COUNT_EFFORT,
    floor: bool = True,
    n_fixed: int = 0,
    penalties: Penalties | None = None,
) -> CountCertificate:
    """Judge a factorization of counts, V ~ W H.

    Where entries are missing or weighted, it is judged by those that are known; no lower bound is
    known then, and the noise floor is not estimated. Nor is it where samples have weights: they are
    not as Poisson counts any more.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    effort : int
        Steps by which the lower bound is raised.
    floor : bool
        Whether to estimate the noise floor: counts are drawn three times, and fitted if V is in
        memory.
    n_fixed, penalties
        As in `poisson_gaps`.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> rng = np.random.default_rng(0)
    >>> V = from_columns(rng.poisson(10 * rng.random((20, 2)) @ rng.random((2, 100))))
    >>> result = factorize(V, 2, loss="poisson")
    >>> abs(certify_counts(V, result.W, result.H).above_floor) < 0.2
    True
    """
    found = poisson_gaps(V, W, H, n_fixed=n_fixed, penalties=penalties)
    below = DivergenceBound(0.0, 0.0, 0.0)
    noise = NoiseFloor(np.inf, 0.0, False)
    if V.observed is None:
        below = divergence_bound(V, np.shape(W)[1], effort=effort)
    if floor and V.observed is None and V.unweighed is None:
        noise = noise_floor(V, W, H, refit=V.held_rows(MAX_DENSE_ENTRIES) is not None)
    has_null = found.of_margins > _NULL_SHARE * found.total
    scale = found.of_margins if has_null else found.total
    error = found.divergence / scale
    bound = below.value / scale
    return CountCertificate(
        divergence=found.divergence,
        of_margins=found.of_margins,
        relative_error=error,
        lower_bound=bound,
        gap=error - bound,
        coefficient_gap=found.coefficient_gap,
        component_gap=found.component_gap,
        noise_floor=noise.value,
        floor_spread=noise.spread,
        is_refitted=noise.refitted,
        failure_probability=below.failure_probability,
        effort=effort,
    )


# --- every loss ---------------------------------------------------------------------------------

AnyCertificate: TypeAlias = Certificate | CountCertificate


def certify(
    V: DataMatrix,
    W: ArrayLike,
    H: Aligned,
    *,
    loss: str = "frobenius",
    effort: int | None = None,
    spectrum: KnownSpectrum = None,
    n_fixed: int = 0,
    penalties: Penalties | None = None,
) -> AnyCertificate:
    """Compare the error of V ~ W H with a proven lower bound; some tens of passes over V.

    For least squares the result is a `Certificate`: the relative error, a lower bound for the error
    of all nonnegative factors with K components, and the residual of the optimality conditions,
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2. For counts it is a `CountCertificate`: the divergence, a lower
    bound, duality gaps, and the noise floor. If entries are missing or weighted, all numbers are
    about the known entries, and a lower bound of 0 means that none is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        The loss of the fit; "kullback-leibler" is another name of "poisson".
    effort : int, optional
        Largest number of steps that raise the lower bound above the bound from singular values
        (effort 0). The default is 3 for dense data, 1 for sparse data, and 6 for the Poisson loss.
        A step takes about as long as computing the singular values; the steps end early if they
        gain nothing.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before; not needed for counts.
    n_fixed : int
        Number of known components, which come first. The bound holds for all factors that contain
        them, and the residual ignores them. For the Poisson loss the bound holds for all factors.
    penalties : Penalties, optional
        Penalties of a fit of counts, which the duality gaps include.

    Warns
    -----
    BoundWarning
        If the error is below its lower bound.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certificate = certify(V, result.W, result.H)
    >>> certificate.gap < 1e-6, certificate.kkt_residual < 1e-6  # one component: optimal
    (True, True)
    """
    require_data_matrix(V, nonzero=True, holes=True)
    bounds = get_loss(loss).lower_bounds
    if not bounds:
        raise NotAvailableError("no lower bound is known for this loss: ", Option("loss", loss))
    W = check_shapes(V, W, H)[0]
    H = H if hasattr(H, "dtype") else np.asarray(H)
    n_fixed = integer("n_fixed", n_fixed, at_least=0, at_most=W.shape[1])
    effort = optional(integer, "effort", effort, at_least=0)
    optional(instance, "penalties", penalties, Penalties)
    spectrum = None if spectrum is None else Spectrum.of(V, spectrum)
    effort = usual_effort(V, loss) if effort is None else effort
    if "divergence" in bounds:
        return certify_counts(V, W, H, effort=effort, n_fixed=n_fixed, penalties=penalties)
    return _certify_squares(V, W, H, effort, spectrum, n_fixed)


def usual_effort(V: DataMatrix, loss: str) -> int:
    """Return the default number of steps: 3, for sparse data 1, for counts 6."""
    if "dual" not in get_loss(loss).lower_bounds:
        return COUNT_EFFORT
    is_dense = V.n_entries > _DENSE_SHARE * V.n_features * V.n_samples
    return DEFAULT_EFFORT if is_dense else _SPARSE_EFFORT


def kind_of_certificate(loss: str) -> type[AnyCertificate]:
    """Return the class of the certificates of a loss."""
    return CountCertificate if "divergence" in get_loss(loss).lower_bounds else Certificate


def quality_in_words(certificate: AnyCertificate, K: int) -> list[str]:
    """Say what a certificate means for a factorization with K components, in sentences."""
    if not isinstance(certificate, CountCertificate):
        return [bound_in_words(certificate, K)]
    floor = certificate.floor_in_words()
    bound = certificate.bound_in_words(K)
    if not floor and certificate.lower_bound == 0 and certificate.relative_error > 0:
        return ["no lower bound and no noise floor are known for the divergence"]
    return [f"the fit is {floor}"] * bool(floor) + [bound] * bool(bound)


def _chance_in_words(certificate: AnyCertificate) -> str:
    chance = certificate.failure_probability
    return f" (up to a randomized check, failure probability {chance:.0e})" if chance else ""


def bound_in_words(certificate: Certificate, K: int) -> str:
    """Say what the lower bound means for factorizations with K components."""
    if not certificate.is_bound_telling:
        return "no lower bound above 0 is known for the error"
    below = f"{certificate.lower_bound:.4g}"
    bound = f"no factorization with {counted(K, 'component')} can have an error below {below}"
    if certificate.gap < 0:
        return f"{bound}, yet this one has: one of the two numbers is wrong"
    certainty = _chance_in_words(certificate)
    return f"{bound}{certainty}{', and one attains it' * certificate.is_attained}"

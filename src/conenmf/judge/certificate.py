"""How good a factorization is, measured by the loss of its fit.

`certify` handles every loss. For least squares it returns a `Certificate`. No factorization with K
components has a smaller error than the truncated singular value decomposition (Eckart and Young),
and no nonnegative one has a smaller error than a bound from the dual problem (`dual_bound`). For
any pair of factors the certificate states how far they are from this lower bound and from a
stationary point. It covers only the error; it does not prove that components are the true ones.

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

The divergence of counts has no natural scale, so a `CountCertificate` compares it with four others:
the divergence of one component, the product of the margins; a lower bound for all factors with K
components (`dual_bound`); the gaps that a better H or W could close (`poisson_gaps`); and the noise
floor, which counting noise alone would leave (`noise_floor`). The first three are exact or proven.
The last one is an estimate for Poisson counts.

*Gaps.* With one factor fixed, finding the other is a convex problem, a Poisson regression for each
sample or feature. Its dual is

    max sum_f v_f log(theta_f)   with   W' theta <= W' 1,

At the optimum theta = v / x with x = Wh. So theta = a v / x with a = min_k (W'1)_k / (W'(v / x))_k
is a dual point for any h, and the divergence of h exceeds the minimum by at most sum x - s - s log
a, with s = sum v (proof: "Duality gaps of counts" in the documentation). One pass over V gives both
gaps, after a pass for its margins. With missing or weighted entries, known components or penalties,
`dual_gaps` computes the gaps of those problems.

*Noise floor.* If counts are Poisson and the fitted rates are true, fits to new counts at these
rates have about the same divergence as the fit to the data. So counts are drawn at the rates WH,
and factors are fitted to them from W and H; the mean divergence is the floor. Without refitting it
is larger by about one half per fitted parameter.
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

from ..arguments import components, integer, optional
from ..data.blocks import Block, dense, exact, is_sparse, over
from ..data.entries import EntryWeights, observed_residual
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import draw_counts
from ..data.validate import check_factors, check_shapes
from ..data.views import MappedMatrix
from ..errors import DataError, Message, NotAvailableError, Option
from ..io.open import as_data
from ..linalg.svd import KnownSpectrum, Spectrum
from ..solve.coefficients import finished
from ..solve.constraints import NO_PENALTIES
from ..solve.inits import Start
from ..solve.losses import dual_gaps, get_loss, margins, regressions, restraints
from ..solve.problem import Problem, check_count, problem_of
from ..solve.run import Stopping
from ..text import counted
from ..types import Array, Interval, Rng
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

_ROUNDING = 1e-13  # of ||V||^2: rounding error of the squared error
_DENSE_SHARE = 0.1  # of nonzero entries: data with more count as dense
_SPARSE_EFFORT = 1  # fits of sparse data are fast, and one step gains most of what three do
_MAX_RECTANGLES = 8  # that are compared by the energy of V in them
_DEPENDENT_SHARE = 1e-12  # of the largest singular value: a smaller one is rounding
# Singular values are cheap if a side of V is at most the larger of these.
_SHORT_SIDE = 200
_SHORT_SIDE_PER_COMPONENT = 16


class BoundWarning(UserWarning):
    """An error is below its lower bound, so one of the two numbers must be wrong."""


def lower_bound(V: object, K: int, *, effort: int = 0, spectrum: KnownSpectrum = None) -> float:
    """Return a lower bound for the relative error of all nonnegative factors with K components.

    With effort 0 it is sqrt(sum_{j > K} sigma_j^2) / ||V||, a bound for factors of any sign.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
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
    V = as_data(V, nonzero=True)
    K = components(K)
    effort = integer("effort", effort, at_least=0)
    return best_lower_bound(V, K, effort=effort, spectrum=spectrum).value


class _Bounded:
    """A certificate with a lower bound."""

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
        """The share of the gap between the error and `eckart_young` that the effort has closed."""
        whole = self.relative_error - self.eckart_young
        return (self.lower_bound - self.eckart_young) / whole if whole > 0 else 0.0

    @property
    def is_bound_telling(self) -> bool:
        """Whether the bound is clearly above zero."""
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
    """Make the certificate of a fit from the results of the fit.

    If a side of V is short, the bound has effort 0. Singular values then take at most one
    pass, and about as long as a few iterations. Otherwise the bound is 0, and V is not read.

    Parameters
    ----------
    relative_error, kkt_residual : float
        The error and the residual of the factors.
    K : int
    spectrum : Spectrum or None
        The spectrum of V, if all entries are known.
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
        if not (known >= 1).sum() > K:
            return 0.0, 0.0
        sizes = np.unique(np.geomspace(K + 1, (known >= 1).sum(), _MAX_RECTANGLES).astype(int))
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


# --- duality gaps of counts ---------------------------------------------------------------------


class PoissonGaps(NamedTuple):
    """The divergence of factors, and bounds on how much a better H or a better W could lower it.

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
    V: DataMatrix, W: ArrayLike, H: Aligned, *, problem: Problem | None = None
) -> PoissonGaps:
    """Bound how much a better H, or a better W, could lower the divergence of V from WH.

    Parameters
    ----------
    V : DataMatrix (F, N)
        May have missing or weighted entries; the result covers the known entries.
    W : array (F, K)
    H : array (K, N)
    problem : Problem, optional
        What the fit minimised: the gaps include its penalties, and its known components are not
        counted as improvable.

    Raises
    ------
    DataError
        If WH is zero at a nonzero entry of V, because the divergence is infinite.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[2.0, 0.0], [1.0, 3.0]])
    >>> found = poisson_gaps(V, [[2.0], [4.0]], [[0.5, 0.5]])  # the margins
    >>> round(found.coefficient_gap, 12), round(found.component_gap, 12)
    (0.0, 0.0)
    """
    penalties = NO_PENALTIES if problem is None else problem.penalties
    n_fixed = 0 if problem is None else problem.n_fixed
    W, Ht = check_factors(V, W, H)
    totals = margins(V)
    (_, for_W) = restraints(penalties, n_fixed)
    _, _, sums = regressions(V, W, penalties, given=Ht)
    if sums.n_impossible:
        raise DataError(
            f"W H is zero where {sums.n_impossible} entries of the data are not, so the "
            "divergence is infinite: fit again, or leave out the features or samples whose factors "
            "are zero"
        )
    gaps = dual_gaps(sums.ratios, sums.known, W, totals.features, for_W)
    return PoissonGaps(
        divergence=max(sums.divergence, 0.0),
        coefficient_gap=sums.gap,
        component_gap=float(gaps.sum()),
        of_margins=totals.divergence,
        total=totals.total,
    )


# --- the noise floor of counts ------------------------------------------------------------------

MAX_DENSE_ENTRIES = 1 << 25  # of drawn counts that are stored in memory as dense data
_SEED = 0
_STOPPING = Stopping(max_iter=100)


class NoiseFloor(NamedTuple):
    """The divergence that counting noise alone would leave, an estimate for Poisson counts.

    Attributes
    ----------
    value : float
        The mean over draws.
    spread : float
        The standard deviation of a draw.
    refitted : bool
        Whether factors were fitted to the draws. If not, the value is too large, because a fit
        follows the noise with every parameter.
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
        Fit the factors to each draw, starting from W and H. Without fitting, the floor takes one
        pass per draw, and is too large, because a fit follows the noise with every parameter.
    n_draws : int
    rng : numpy.random.Generator, optional
        By default a generator with a fixed seed.

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
        drawn = held_if_small(draw_counts(V, W, H, rng), MAX_DENSE_ENTRIES)
        if not drawn.nonzero:  # rates are so low that no counts were drawn
            left.append(0.0)
            continue
        factors = W, H
        if refit:
            solution = fitted_counts(drawn, Start(W, H, "given"), _STOPPING)
            factors = solution.W, solution.H
        left.append(poisson_gaps(drawn, *factors).divergence)
    return NoiseFloor(float(np.mean(left)), float(np.std(left, ddof=1)), refit)


# --- counts -------------------------------------------------------------------------------------

_NULL_SHARE = 1e-12  # of the total: a smaller divergence is rounding
_TELLING_SHARE = 0.2  # of the divergence: a smaller lower bound is not reported
_FAR_ABOVE = 0.15  # of the noise floor, which may be a tenth too low for few counts
_SPREADS = 3  # a divergence within this many spreads of the noise floor counts as equal
_NEAR = 0.01  # and so does one within this share of it


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
        divergence / of_margins, the share of the deviance that is not explained. If one component
        leaves nothing, the divergence over the total of V.
    lower_bound : float
        No nonnegative factorization with as many components has a smaller relative error; 0 if no
        bound was proved.
    gap : float
        Relative error minus lower bound.
    coefficient_gap, component_gap : float
        With this W no H, and with this H no W, lowers the divergence by more than this.
    noise_floor : float
        The mean divergence of fits to counts that were drawn at the fitted rates: what counting
        noise alone would leave. An estimate for Poisson counts; infinite if it was not requested.
    floor_spread : float
        The standard deviation of these divergences.
    is_refitted : bool
        Whether factors were fitted to the draws. For data that are not in memory the draws are
        compared with the rates, and the floor is too high, because a fit follows the noise.
    failure_probability : float
        0.0 if the bound is certain; otherwise the probability, over random vectors, that the bound
        is wrong.
    effort : int
        The effort with which the bound was computed.
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
        """The divergence's excess over the noise floor, as a share of it; NaN if unknown."""
        if not np.isfinite(self.noise_floor) or self.noise_floor == 0:
            return float("nan")
        return self.divergence / self.noise_floor - 1.0

    @property
    def proven_share(self) -> float:
        """The lower bound as a share of the divergence."""
        return min(self.lower_bound / self.relative_error, 1.0) if self.relative_error > 0 else 1.0

    @property
    def is_bound_telling(self) -> bool:
        """Whether the lower bound is at least a fifth of the divergence, and so worth showing."""
        return self.proven_share >= _TELLING_SHARE

    def floor_in_words(self) -> str:
        """Compare the divergence with the noise floor in words; "" if the floor is unknown."""
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
        """Describe the lower bound in words; "" if it is too low to mean much."""
        if not self.is_bound_telling:
            return ""
        unit = self.divergence / self.relative_error if self.relative_error > 0 else 0.0
        below = f"{self.lower_bound * unit:.6g}"
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
    problem: Problem | None = None,
) -> CountCertificate:
    """Judge a factorization of counts, V ~ W H.

    With missing or weighted entries, only known entries count; there is then no lower bound and no
    noise floor. With weighted samples there is no noise floor either, because weighted counts are
    not Poisson.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    effort : int
        Number of steps that raise the lower bound.
    floor : bool
        Whether to estimate the noise floor: counts are drawn three times, and factors are fitted to
        them if V is in memory.
    problem : Problem, optional
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
    found = poisson_gaps(V, W, H, problem=problem)
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
    V: object,
    W: ArrayLike,
    H: Aligned,
    *,
    loss: str = "frobenius",
    effort: int | None = None,
    spectrum: KnownSpectrum = None,
    problem: Problem | None = None,
) -> AnyCertificate:
    """Compare the error of V ~ W H with a proven lower bound; some tens of passes over V.

    For least squares the result is a `Certificate`: the relative error, a lower bound for the error
    of all nonnegative factors with K components, and the residual of the optimality conditions,
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2. For counts it is a `CountCertificate`: the divergence, a lower
    bound, duality gaps, and the noise floor. If entries are missing or weighted, all numbers are
    about the known entries, and a lower bound of 0 means that no bound is known.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
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
    problem : Problem, optional
        What the fit minimised, if that is more than a loss. With known components the bound holds
        for all factors that contain them, and the residual ignores them; for the Poisson loss the
        bound holds for all factors, and the duality gaps include penalties.

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
    V = as_data(V, nonzero=True, holes=True)
    problem = problem_of(problem, loss).bind(V)
    bounds = problem.loss.lower_bounds
    if not bounds:
        option = Option("loss", problem.loss.name)
        raise NotAvailableError("no lower bound is known for this loss: ", option)
    W = check_shapes(V, W, H)[0]
    H = H if hasattr(H, "dtype") else np.asarray(H)
    n_fixed = check_count(problem, W)
    effort = optional(integer, "effort", effort, at_least=0)
    spectrum = None if spectrum is None else Spectrum.of(V, spectrum)
    effort = usual_effort(V, problem.loss.name) if effort is None else effort
    if "divergence" in bounds:
        return certify_counts(V, W, H, effort=effort, problem=problem)
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
    """Describe a certificate of a factorization with K components, in sentences."""
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
    """Describe the lower bound for factorizations with K components in words."""
    if not certificate.is_bound_telling:
        return "no lower bound above 0 is known for the error"
    below = f"{certificate.lower_bound:.4g}"
    bound = f"no factorization with {counted(K, 'component')} can have an error below {below}"
    if certificate.gap < 0:
        return f"{bound}, yet this one has: one of the two numbers is wrong"
    certainty = _chance_in_words(certificate)
    return f"{bound}{certainty}{', and one attains it' * certificate.is_attained}"

"""Bounds of the divergence of counts: its certificates, duality gaps and noise floor.

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

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ...data.matrix import Aligned, DataMatrix
from ...data.resample import draw_counts
from ...data.validate import aligned_coefficients, check_factors
from ...errors import DataError
from ...text import counted
from ...types import Array, Rng
from ..certificate import UNKNOWN, AnyCertificate, chance_in_words
from ..constraints import NO_PENALTIES, Penalties
from ..dual_bound import (
    COUNT_EFFORT,
    DivergenceBound,
    LowerBound,
    divergence_bound,
    held_if_small,
)
from ..loss import Bounds, Loss
from ..run import Run, Stopping
from .counts import margins, regressions, restraints
from .poisson_regression import dual_gaps


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
    V: DataMatrix,
    W: ArrayLike,
    H: Aligned,
    *,
    n_fixed: int = 0,
    penalties: Penalties = NO_PENALTIES,
) -> PoissonGaps:
    """Bound how much a better H, or a better W, could lower the divergence of V from WH.

    Parameters
    ----------
    V : DataMatrix (F, N)
        May have missing or weighted entries; the result covers the known entries.
    W : array (F, K)
    H : array (K, N)
    n_fixed : int
        The first `n_fixed` components are known, and are not counted as improvable.
    penalties : Penalties, optional
        The penalties of the fit; the gaps then include them.

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


# --- the noise floor ------------------------------------------------------------------------------

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
    loss: Loss,
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
    loss : Loss
        The loss of the fits to the draws.
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
    >>> from conenmf.solve.losses import POISSON
    >>> V = from_columns(np.ones((30, 40)))
    >>> W, H = np.ones((30, 1)), np.full((1, 40), 100.0)
    >>> quick, floor = (noise_floor(POISSON, V, W, H, refit=refit) for refit in (False, True))
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
            begun = aligned_coefficients(drawn, H, W.shape[1]).T
            run = Run(loss.on(drawn), W, begun, loss.solver("auto"), _STOPPING)
            run.run()
            factors = run.factors()
        left.append(poisson_gaps(drawn, *factors).divergence)
    return NoiseFloor(float(np.mean(left)), float(np.std(left, ddof=1)), refit)


# --- certificates --------------------------------------------------------------------------------

_NULL_SHARE = 1e-12  # of the total: a smaller divergence is rounding
_TELLING_SHARE = 0.2  # of the divergence: a smaller lower bound is not reported
_FAR_ABOVE = 0.15  # of the noise floor, which may be a tenth too low for few counts
_SPREADS = 3  # a divergence within this many spreads of the noise floor counts as equal
_NEAR = 0.01  # and so does one within this share of it


@dataclass(frozen=True)
class CountCertificate(AnyCertificate):
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
        bound = f"no factorization with {counted(K, 'component')} can have a divergence below "
        chance = chance_in_words(self.failure_probability)
        return f"{bound}{below}{chance}, {self.proven_share:.0%} of this one"

    def sentences(self, K: int) -> list[str]:
        """Describe the divergence beside the noise floor and the lower bound."""
        floor = self.floor_in_words()
        bound = self.bound_in_words(K)
        if not floor and self.lower_bound == 0 and self.relative_error > 0:
            return ["no lower bound and no noise floor are known for the divergence"]
        said = [f"the fit is {floor}"] if floor else []
        if bound:
            said.append(bound)
        return said


class CountBounds(Bounds):
    """Bounds of the divergence of counts.

    With missing or weighted entries, only known entries count; there is then no lower bound and no
    noise floor. With weighted samples there is no noise floor either, because weighted counts are
    not Poisson.
    """

    effort = COUNT_EFFORT

    def below(self, K: int, effort: int, known: Array | None = None) -> LowerBound:
        """Bound the divergence, relative to that of one component."""
        if self.V.observed is not None:
            return UNKNOWN
        found = divergence_bound(self.V, K, effort=effort)
        value = found.value / (found.of_margins or 1.0)
        return LowerBound(value, 0.0, False, found.failure_probability)

    def certify(
        self,
        W: Array,
        H: Aligned,
        effort: int = COUNT_EFFORT,
        *,
        n_fixed: int = 0,
        penalties: Penalties = NO_PENALTIES,
        floor: bool = True,
    ) -> CountCertificate:
        """Judge a factorization of counts; `floor` says whether to estimate the noise floor.

        For the floor, counts are drawn three times, and factors are fitted to them if V is in
        memory.
        """
        V = self.V
        found = poisson_gaps(V, W, H, n_fixed=n_fixed, penalties=penalties)
        below = DivergenceBound(0.0, 0.0, 0.0)
        noise = NoiseFloor(np.inf, 0.0, False)
        if V.observed is None:
            below = divergence_bound(V, np.shape(W)[1], effort=effort)
        if floor and V.observed is None and V.unweighed is None:
            is_small = V.held_rows(MAX_DENSE_ENTRIES) is not None
            noise = noise_floor(self.loss, V, W, H, refit=is_small)
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

    def first(self, relative_error: float, kkt_residual: float, K: int) -> None:
        """Return None: every bound of the divergence takes more work than a fit has done."""

    def objective(self, W: Array, H: Aligned, penalties: Penalties) -> float:
        """Return the bound of the divergence alone."""
        certificate = self.certify(W, H, floor=False)
        return certificate.lower_bound * certificate.of_margins

    def estimate(self, K: int) -> float:
        """Return 0, because no cheap bound is known."""
        return 0.0

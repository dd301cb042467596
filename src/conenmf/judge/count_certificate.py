"""How good a factorisation of counts is: its divergence beside what is possible and what is noise.

The divergence of counts has no scale of its own, so it is judged by four others: that of one
component, the product of the margins, of which a share is left; a lower bound for all factors with
as many components (`divergence_bound`); the gaps that a better H or W could close (`poisson_gaps`);
and the noise floor, which counting noise alone would leave (`noise_floor`). The first three are
exact or proven, the last one is an estimate that holds if the counts are Poisson.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import components, flag, integer
from ..cones.certificate import proven_in_words
from ..data.matrix import DataMatrix
from ..pictures import card, gauge, table
from ..solve.constraints import Penalties
from ..text import counted
from .divergence_bound import DEFAULT_EFFORT, DivergenceBound, divergence_bound
from .noise_floor import MAX_DENSE_ENTRIES, NoiseFloor, noise_floor
from .poisson_gaps import poisson_gaps

__all__ = ["CountCertificate", "certify_counts"]

_NULL_SHARE = 1e-12  # of the total, below which the margins explain all
_TELLING_SHARE = 0.2  # of the divergence, from which on a lower bound is worth reporting
_FAR_ABOVE = 0.15  # of the noise floor: of few counts, it may be a tenth too low
_SPREADS, _NEAR = 3, 0.01  # of the noise floor, and its share: within which a divergence is at it


@dataclass(frozen=True)
class CountCertificate:
    """How good a factorisation of counts is.

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
        No nonnegative factorisation with as many components has a smaller relative error; 0 if
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
    def deviance_explained(self) -> float:
        """The share of the deviance from one component that is explained."""
        return 1.0 - self.relative_error

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
    def proven(self) -> str:
        """How certain the bound is, in words."""
        return proven_in_words(self.failure_probability)

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
        if not self.is_refitted:
            estimate += "; too high, since it ignores the parameters of the fit"
        near = max(_SPREADS * self.floor_spread, _NEAR * self.noise_floor)
        if abs(self.divergence - self.noise_floor) <= near:
            return (
                f"at the noise floor ({above:+.1%}), what counting noise alone would leave "
                f"({estimate})"
            )
        if above < 0 and not self.is_refitted:
            return f"{-above:.1%} below the noise floor ({estimate})"
        if above < 0:
            return (
                f"{-above:.1%} below the noise floor ({estimate}): the data vary less than Poisson "
                "counts do"
            )
        times = f"{1 + above:.3g} times" if above > 1 else f"{above:.1%} above"
        where = f"{times} the noise floor, what counting noise alone would leave"
        if above <= _FAR_ABOVE:
            return f"{where} ({estimate})"
        return f"{where} ({estimate}): counts are overdispersed, or K is too small"

    def bound_in_words(self, K: int) -> str:
        """Say what the lower bound means; empty if it is too low to mean much."""
        K = components(K)
        if not self.is_bound_telling:
            return ""
        below = f"{self.lower_bound * self.divergence / self.relative_error:.6g}"
        chance = self.failure_probability
        certainty = (
            f" (up to a randomized check, failure probability {chance:.0e})" if chance else ""
        )
        return (
            f"no factorisation with {counted(K, 'component')} can have a divergence below "
            f"{below}{certainty}, {self.proven_share:.0%} of this one"
        )

    def _repr_html_(self) -> str:
        rows = {
            "divergence": f"{self.divergence:.6g}",
            "deviance explained": f"{self.deviance_explained:.1%}",
            "noise floor": self.floor_in_words() or "not computed",
            "lower bound": (
                f"{self.lower_bound:.4g} of that of one component, {self.proven}"
                if self.lower_bound
                else "0, none above it is known"
            ),
            "duality gaps of H, W": f"{self.coefficient_gap:.2g}, {self.component_gap:.2g}",
        }
        caption = f"share of deviance left {self.relative_error:.4g}; full: up to its lower bound"
        picture = gauge(self.lower_bound, self.relative_error, caption)
        return card("CountCertificate", (), picture, table(rows))


def certify_counts(
    V: DataMatrix,
    W: Any,
    H: Any,
    *,
    effort: int = DEFAULT_EFFORT,
    floor: bool = True,
    n_fixed: int = 0,
    penalties: Penalties | None = None,
) -> CountCertificate:
    """Judge a factorisation of counts, V ~ W H.

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
    effort, floor = integer("effort", effort, at_least=0), flag("floor", floor)
    found = poisson_gaps(V, W, H, n_fixed=n_fixed, penalties=penalties)
    below, noise = DivergenceBound(0.0, 0.0, 0.0), NoiseFloor(np.inf, 0.0, False)
    if V.observed is None:
        below = divergence_bound(V, np.shape(W)[1], effort=effort)
    if floor and V.observed is None and V.unweighed is None:
        noise = noise_floor(V, W, H, refit=V.held_rows(MAX_DENSE_ENTRIES) is not None)
    has_null = found.of_margins > _NULL_SHARE * found.total
    scale = found.of_margins if has_null else found.total
    error, bound = found.divergence / scale, below.value / scale
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

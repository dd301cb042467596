"""How good a factorisation is, by the loss that it was fitted with.

`certify` is for every loss. For least squares it returns a `Certificate` (`cones.certificate`).
Where entries are missing or weighted, error and residual are those of the known entries, and the
lower bound is that of the largest rectangle found in which nothing is missing; where there is none
it is 0, which says that no bound is known: missing entries can have any value.

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

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import flag, generator, instance, integer, optional
from ..cones.certificate import Certificate, certify_least_squares, known_bound, proven_in_words
from ..cones.dual_bound import default_effort
from ..data.blocks import (
    Array,
    Block,
    entries_of,
    exact,
    products,
    products_at,
    sums_at,
    weighted_sums,
    with_values,
)
from ..data.known import row_grams, unpacked, weighted_grams
from ..data.matrix import DataMatrix
from ..data.resample import drawn_counts
from ..data.validate import check_factors, check_shapes, require_data_matrix
from ..errors import DataError, Message, NotAvailableError, Option
from ..linalg.svd import Spectrum
from ..solve.coefficients import coordinate_steps_own, exact_observed_rows
from ..solve.constraints import NO_PENALTIES, Penalties
from ..solve.losses import (
    POISSON,
    Restraint,
    dual_gaps,
    get_loss,
    known_counts,
    margins,
    restraints,
)
from ..solve.run import Stopping, alternate
from ..text import card, counted
from .dual_bound import DEFAULT_EFFORT, DivergenceBound, divergence_bound, held

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
    V: DataMatrix, W: Any, H: Any, *, n_fixed: int = 0, penalties: Penalties | None = None
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
    W, Ht = check_factors(V, W, H)
    for_H, for_W = restraints(penalties or NO_PENALTIES, n_fixed)
    known = margins(V)
    weights = () if V.observed is None else V.observed.aligned
    how: dict[str, Any] = {"has_holes": V.observed is not None, "is_weighted": bool(weights)}
    with V.own_threads():
        (sums,) = V.sweep(_judge, *weights, Ht, W=W, of_W=W.sum(axis=0), held=for_H, **how)
    if sums["impossible"]:
        raise DataError(
            f"W H is zero at {sums['impossible']} entries of the data that are not, so that the "
            "divergence is infinite: fit again, or leave out the features or samples whose factors "
            "are zero"
        )
    component_gap = float(dual_gaps(sums["VH"], sums["of_H"], W, known.features, for_W).sum())
    divergence = max(sums["v_log_ratio"] - known.of_weights - known.total + sums["mass"], 0.0)
    return PoissonGaps(
        divergence, sums["coefficient_gap"], component_gap, known.divergence, known.total
    )


def _judge(
    block: Block,
    *given: Array,
    W: Array,
    of_W: Array,
    has_holes: bool,
    is_weighted: bool,
    held: Restraint,
) -> tuple[dict[str, Any]]:
    weights, H = given[0] if is_weighted else None, exact(given[-1])
    counts = known_counts(block, weights)
    entries = entries_of(counts)
    if has_holes:
        of_W = row_grams(block, weights, W)
    rates = products_at(entries, W, H)
    impossible = rates <= 0
    ratios = entries.values / np.where(impossible, 1.0, rates)
    divided = with_values(counts, entries, ratios)
    c = sums_at(entries.samples, entries.values, block.shape[1])
    sums = {
        "v_log_ratio": float(entries.values @ np.log(ratios)),
        "mass": float((H * of_W).sum()),
        "coefficient_gap": float(dual_gaps(products(divided, W), of_W, H, c, held).sum()),
        "VH": weighted_sums(divided, H),
        "of_H": weighted_grams(block, weights, H) if has_holes else H.sum(axis=0),
        "impossible": int(np.count_nonzero(impossible)),
    }
    return (sums,)


# --- the noise floor of counts ------------------------------------------------------------------

MAX_DENSE_ENTRIES = 1 << 25
"""Of drawn counts that are held in memory, if they are dense."""

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
    W: Any,
    H: Any,
    *,
    refit: bool = True,
    n_draws: int = 3,
    rng: np.random.Generator | None = None,
) -> NoiseFloor:
    """Estimate the divergence that counting noise alone would leave, at the rates W H.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    refit : bool
        Fit the factors to the draws, beginning with W and H. Without it the floor takes one pass
        for each draw, and is too large, since it ignores the parameters.
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
    require_data_matrix(V, whole=True)
    check_factors(V, W, H)
    flag("refit", refit)
    n_draws = integer("n_draws", n_draws, at_least=2)
    rng = optional(generator, "rng", rng)
    rng = np.random.default_rng(_SEED) if rng is None else rng
    W, H = check_shapes(V, W, H)[0], H if hasattr(H, "dtype") else np.asarray(H)
    left = []
    for _ in range(n_draws):
        drawn = held(drawn_counts(V, W, H, rng), MAX_DENSE_ENTRIES)
        if not drawn.nonzero:  # so low are the rates
            left.append(0.0)
            continue
        factors = W, H
        if refit:
            how: Any = {"stopping": _STOPPING, "objective": POISSON.on(drawn)}
            solution = alternate(drawn, np.asarray(W), H, "newton", **how)
            factors = solution.W, solution.H
        left.append(poisson_gaps(drawn, *factors).divergence)
    return NoiseFloor(float(np.mean(left)), float(np.std(left, ddof=1)), refit)


# --- counts -------------------------------------------------------------------------------------

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
        estimate, meant = "an estimate, if counts are Poisson", ""
        if not self.is_refitted:
            estimate += "; too high, since it ignores the parameters of the fit"
        floor = "the noise floor, what counting noise alone would leave"
        near = max(_SPREADS * self.floor_spread, _NEAR * self.noise_floor)
        if abs(self.divergence - self.noise_floor) <= near:
            where = f"at {floor.replace(',', f' ({above:+.1%}),')}"
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
            f"no factorisation with {counted(K, 'component')} can have a divergence below "
            f"{below}{_chance_in_words(self)}, {self.proven_share:.0%} of this one"
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
        return card("CountCertificate", rows=rows.items())


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


# --- missing and weighted entries ---------------------------------------------------------------


def certify_known(
    V: DataMatrix, W: Any, H: Any, *, effort: int = 0, n_fixed: int = 0
) -> Certificate:
    """Judge a factorisation by the entries of V that are known; the arguments are as in `certify`.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> X = np.outer(np.arange(1.0, 7), [2.0, 1.0, 3.0])
    >>> X[0, 1] = np.nan
    >>> V = from_rows(X, missing="nan")
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certify_known(V, result.W, result.H).relative_error < 1e-6
    True
    """
    W, Ht = check_factors(V, W, H)
    known, K = V.observed, W.shape[1]
    assert known is not None
    shared: dict[str, Any] = {"is_weighted": bool(known.aligned), "judge": True, "keep": True}
    with V.own_threads():
        _, sums = V.sweep(exact_observed_rows, *known.aligned, Ht, W=W, **shared)
        below, chance = known_bound(V, K)
    grams = unpacked(sums["grams"], K)
    steps = sums["steps"] + coordinate_steps_own(grams, sums["VH"], W, slice(n_fixed, None))
    error, residual = (
        float(np.sqrt(part / known.total)) if known.total else 0.0
        for part in (sums["squared"], steps)
    )
    return first_known(error, residual, below, chance, effort)


def first_known(
    error: float, kkt_residual: float, below: float = 0.0, chance: float = 0.0, effort: int = 0
) -> Certificate:
    """Return the certificate with a bound; without one, it is what a fit knows by itself."""
    return Certificate(
        relative_error=error,
        lower_bound=below,
        gap=error - below,
        kkt_residual=kkt_residual,
        eckart_young=below,
        is_attained=False,
        failure_probability=chance,
        effort=effort,
    )


# --- every loss ---------------------------------------------------------------------------------

AnyCertificate: TypeAlias = Certificate | CountCertificate


def certify(
    V: DataMatrix,
    W: npt.ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    effort: int | None = None,
    spectrum: Spectrum | None = None,
    n_fixed: int = 0,
    penalties: Penalties | None = None,
) -> AnyCertificate:
    """Judge a factorisation V ~ W H; some tens of passes over V.

    For least squares it is a `Certificate`: the relative error, a lower bound for that of any
    nonnegative factors with as many components, and the residual of the optimality conditions,
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2. For counts it is a `CountCertificate`: the divergence, a lower
    bound, duality gaps, and the noise floor. Where entries are missing or weighted, all of it is
    about those that are known, and a lower bound of 0 says that none is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        What the factors were fitted with; "kullback-leibler" is another name of the second.
    effort : int, optional
        Most steps by which to raise the lower bound above that of singular values alone, which
        effort 0 gives; by default 3, of sparse data 1, of counts 6. Each takes about as long as the
        singular values; they end early where they close no more.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too; not needed for counts.
    n_fixed : int
        So many components, the first ones, were given: the bound is that of factors which have
        them too, and that they could be better is not held against W. Of counts it is the bound of
        all factors.
    penalties : Penalties, optional
        Those of a fit of counts: the duality gaps are those of the divergence and these.

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
    require_data_matrix(V, nonzero=True, whole=True, holes=True)
    bounds = get_loss(loss).lower_bounds
    if not bounds:
        raise NotAvailableError(
            Message("no lower bound is known for this loss: ", Option("loss", loss))
        )
    W, H = check_shapes(V, W, H)[0], H if hasattr(H, "dtype") else np.asarray(H)
    n_fixed = integer("n_fixed", n_fixed, at_least=0, at_most=W.shape[1])
    effort = optional(integer, "effort", effort, at_least=0)
    optional(instance, "penalties", penalties, Penalties)
    spectrum = None if spectrum is None else Spectrum.of(V, spectrum)
    effort = usual_effort(V, loss) if effort is None else effort
    if "divergence" in bounds:
        return certify_counts(V, W, H, effort=effort, n_fixed=n_fixed, penalties=penalties)
    if V.observed is not None:
        return certify_known(V, W, H, effort=effort, n_fixed=n_fixed)
    return certify_least_squares(V, W, H, effort=effort, spectrum=spectrum, n_fixed=n_fixed)


def usual_effort(V: DataMatrix, loss: str) -> int:
    """Return how many steps to take if none are asked for."""
    is_dual = "dual" in get_loss(loss).lower_bounds
    return default_effort(V) if is_dual else DEFAULT_EFFORT


def certify_beside(
    V: DataMatrix,
    known: AnyCertificate,
    W: npt.ArrayLike,
    H: Any,
    *,
    spectrum: Spectrum | None = None,
) -> AnyCertificate:
    """Judge other factors of V with as many components, given the certificate of some.

    The lower bound is the same and is not computed again; nor is a noise floor.
    """
    other: AnyCertificate
    if isinstance(known, CountCertificate):
        other = certify_counts(V, W, H, effort=0, floor=False)
    else:
        other = certify_least_squares(V, W, H, effort=0, spectrum=spectrum)
        other = replace(other, eckart_young=known.eckart_young, is_attained=known.is_attained)
    return replace(
        other,
        lower_bound=known.lower_bound,
        gap=other.relative_error - known.lower_bound,
        failure_probability=known.failure_probability,
        effort=known.effort,
    )


def numbers_of_certificate(certificate: AnyCertificate) -> Array:
    """Return all that a certificate says as an array, to be saved."""
    return np.array(list(vars(certificate).values()), dtype=np.float64)


def certificate_of_numbers(numbers: Array, loss: str) -> AnyCertificate:
    """Return the certificate of which these are the numbers."""
    kind = CountCertificate if "divergence" in get_loss(loss).lower_bounds else Certificate
    types: dict[Any, Any] = {"bool": bool, "int": int, "float": float}
    pairs = zip(fields(kind), numbers.tolist(), strict=True)
    return kind(**{field.name: types[field.type](value) for field, value in pairs})


def quality_in_words(certificate: AnyCertificate, K: int) -> list[str]:
    """Say what a certificate means for a factorisation with K components, in sentences."""
    if not isinstance(certificate, CountCertificate):
        return [bound_in_words(certificate, K)]
    floor, bound = certificate.floor_in_words(), certificate.bound_in_words(K)
    if not floor and certificate.lower_bound == 0 and certificate.relative_error > 0:
        return ["no lower bound and no noise floor are known for the divergence"]
    return [f"the fit is {floor}"] * bool(floor) + [bound] * bool(bound)


def _chance_in_words(certificate: AnyCertificate) -> str:
    chance = certificate.failure_probability
    return f" (up to a randomized check, failure probability {chance:.0e})" if chance else ""


def bound_in_words(certificate: Certificate, K: int) -> str:
    """Say what the lower bound means for factorisations with K components."""
    if not certificate.is_bound_telling:
        return "no lower bound above 0 is known for the error"
    below = f"{certificate.lower_bound:.4g}"
    bound = f"no factorisation with {counted(K, 'component')} can have an error below {below}"
    if certificate.gap < 0:
        return f"{bound}, yet this one has: one of the two numbers is wrong"
    certainty = _chance_in_words(certificate)
    return f"{bound}{certainty}{', and one attains it' * certificate.is_attained}"

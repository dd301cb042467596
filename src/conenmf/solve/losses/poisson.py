"""The Poisson loss: the Kullback-Leibler divergence of W H from V, for counts.

    D(V | W H) = sum v log(v / x) - v + x,  x = W H,

which is the negative log-likelihood of counts v with the rates x, but for a constant. Where v = 0
only x is left, and all x together are the sums of the columns of W times those of the rows of H: so
the rates are computed in the places of the entries that are not zero, and nowhere else.

Each sample is a Poisson regression on W, of which an iteration takes a step (`poisson_regression`).
NMF is symmetric: where V can be read in the other order, W takes the same step with the features in
the place of samples, and the value after it is known. Otherwise the pass sums (V / X) H' (F, K),
from which W takes the multiplicative step, and where it is small the curvatures (F, K, K), with
which W takes one of Newton's; the value is then that at the W before.

Rates must not be zero where counts are not. So an update is moved further only as far as every
entry keeps a share of itself.

Where entries are missing or weighted, counts are those that are known, times their weights, and the
sums of W are those over what is known of each sample, and of H over what is known of each feature.

*Coefficients.* As for least squares, the exact H depends on V and W alone, so a fit ends with it,
and `transform` is nothing else. Features that no component has have rates of zero for every H: they
are left out, and `report_unseen` says so.

*Margins.* The best single component of complete counts is the product of the margins. Where entries
are missing or weighted it is found by scaling both sides in turn until the totals of what is known
are right, iterative proportional fitting, whose limit is the best one too.

*Penalties.* The objective is that of scikit-learn: D(V | W H) + l1 sum + l2 ||.||^2 / 2 for both
factors, with the numbers of `Penalties`. A step minimises them as parts of the problem of each row
(`Restraint`), instead of changing matrices as for least squares.

*Held-out counts.* As `held_out_share`, with the divergence in place of squared errors. A rate may
be zero where a count is not, so a little of the mean of all components is mixed in. Where a sample
has no counts outside the fold, nothing is known of it: its rates are then those of the mean alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...arguments import array, choice, factor, instance, integer, optional
from ...data.blocks import (
    Array,
    Block,
    SparseBlock,
    entries_of,
    exact,
    features_scaled,
    sums_at,
    weighted_sums,
)
from ...data.known import row_grams, weighed, weighted_grams
from ...data.matrix import Aligned, DataMatrix
from ...data.memory import DenseMatrix
from ...data.together import Part, sweep_together
from ...data.validate import require_data_matrix
from ...errors import (
    DataError,
    InputWarning,
    Message,
    Option,
    OptionError,
)
from ...text import counted, visible
from ..coefficients import Finish, feature_folds, own_order, sorting
from ..constraints import Penalties, Term
from ..methods import Method, Slot
from ..solvers import Solver, Update
from .objective import Loss, Point, Sums
from .poisson_regression import (
    FREE,
    NOTHING,
    Restraint,
    Side,
    counts_of,
    curvatures,
    damped,
    divergences_and_ratios,
    dual_gaps,
    multiplicative,
    newton,
    newton_from_sums,
    regression,
    sample_sums,
)

__all__ = [
    "POISSON_SOLVERS",
    "CountSlot",
    "CountTerm",
    "Margins",
    "Poisson",
    "Regressions",
    "balanced",
    "check_penalties",
    "divergences",
    "held_out_deviance",
    "known_counts",
    "logs_of_weights",
    "margins",
    "margins_together",
    "poisson_method",
    "regressions",
    "report_unseen",
    "restraints",
]

_MAX_FITTING_PASSES = 500  # where little is known, a hundred or two are needed
_FITTED_SHARE = 1e-12  # of the total, by which the divergence falls in the last of them


class Margins(NamedTuple):
    """The totals of V, and what one component leaves of it.

    Attributes
    ----------
    samples : aligned (N,)
        The sum of each sample.
    features : array (F,)
        The sum of each feature.
    total : float
    divergence : float
        That of the best single component, which is the product of the margins.
    of_weights : float
        sum p v log p over entries with the weights p: 0 unless some count more than others.
    """

    samples: Aligned
    features: Array
    total: float
    divergence: float
    of_weights: float = 0.0

    @property
    def scale(self) -> float:
        """The divergence of one component, by which others are judged; the total if that is 0."""
        return self.divergence if self.divergence > 1e-12 * self.total else self.total


_measured: WeakKeyDictionary[DataMatrix, Margins] = WeakKeyDictionary()


def margins(V: DataMatrix) -> Margins:
    """Return the margins of V, of what is known of it; one pass, the first time.

    >>> from conenmf import from_columns
    >>> margins(from_columns([[1, 2], [3, 6]])).features
    array([3., 9.])
    """
    require_data_matrix(V, nonzero=True, holes=True)
    margins_together(V, [V])
    return _measured[V]


def margins_together(V: DataMatrix, views: Sequence[DataMatrix]) -> None:
    """Measure the margins of views of V, or of V itself, in one pass for all of them."""
    parts = [
        Part(view, _measure, () if view.observed is None else view.observed.aligned, {}, n_rows=1)
        for view in views
        if view not in _measured
    ]
    if not parts:
        return
    with V.own_threads():
        measured = sweep_together(V, parts)
        for part, (samples, (features, logs, of_weights)) in zip(parts, measured, strict=True):
            total, logs = float(features.sum()), logs - of_weights
            if part.V.observed is None:
                (of_samples,) = V.map(_sum_of_logs, samples)
                null = logs + _xlogx(np.array([total])) - _xlogx(features) - float(of_samples)
            else:
                null = _fitted(part.V, samples, features, logs)
            null = max(float(null), 0.0)
            _measured[part.V] = Margins(samples, features, total, null, of_weights)


def known_counts(block: Block, weights: Array | None, unit: float = 1.0) -> SparseBlock:
    """Return the entries of a block times their weights, in compressed form without zeros."""
    plain = weights is None or weights.dtype == bool  # what is missing is zero already
    return counts_of(block if plain else weighed(block, weights), unit)


def logs_of_weights(counts: SparseBlock, weights: Array | None) -> float:
    """Return the sum of v log p over counts v that were multiplied by weights p."""
    if weights is None or weights.dtype == bool:
        return 0.0
    entries = entries_of(counts)
    return float(entries.values @ np.log(exact(weights[entries.samples, entries.features])))


def _measure(
    block: Block, weights: Array | None = None
) -> tuple[Array, tuple[Array, float, float]]:
    counts = known_counts(block, weights)
    features = sums_at(counts.indices, exact(counts.data), block.shape[0])
    logs = _xlogx(exact(counts.data))
    return sample_sums(counts), (features, logs, logs_of_weights(counts, weights))


def _fitted(V: DataMatrix, samples: Aligned, features: Array, logs: float) -> float:
    """The divergence of the best single component w h for what is known of V."""
    weights, w, last = V.observed.aligned, np.array(features), np.inf
    for _ in range(_MAX_FITTING_PASSES):
        if weights:
            ((of_samples, masses),) = V.map(_fit_known, *weights, samples, w=w)
        else:
            ((of_samples, masses),) = V.sweep(_fit_stored, samples, w=w)
        value = logs - float(features @ np.log(np.where(w > 0, w, 1.0))) - of_samples
        if last - value <= _FITTED_SHARE * features.sum():
            return float(min(value, last))
        last, w = value, np.divide(features, masses, out=np.zeros_like(w), where=masses > 0)
    return last


def _fit_known(
    index: range, weights: Array, totals: Array, *, w: Array
) -> tuple[tuple[float, Array]]:
    return _fit(np.empty((w.size, len(totals))), weights, totals, w)


def _fit_stored(block: Block, totals: Array, *, w: Array) -> tuple[tuple[float, Array]]:
    return _fit(block, None, totals, w)


def _fit(
    block: Block, weights: Array | None, totals: Array, w: Array
) -> tuple[tuple[float, Array]]:
    """H for w, as sum v log h; and what it gives to each feature."""
    reached = row_grams(block, weights, w[:, None])[:, 0]
    h = np.divide(totals, reached, out=np.zeros_like(reached), where=reached > 0)
    there = h > 0
    logs = float(totals[there] @ np.log(h[there]))
    return ((logs, weighted_grams(block, weights, h[:, None])[:, 0]),)


def _sum_of_logs(index: range, sums: Array) -> tuple[float]:
    return (_xlogx(sums),)


def _xlogx(values: Array) -> float:
    """Sum of x log x, which is 0 at 0."""
    positive = values[values > 0]
    return float(positive @ np.log(positive))


_BALANCING_STEPS = 60


@dataclass(frozen=True)
class CountTerm(Term):
    """The penalty of one factor of counts."""

    def value(self, Y: Array) -> float:
        """Return l1 sum + l2 ||Y||^2 / 2: the divergence has no factor of two."""
        return super().value(Y) / 2


@dataclass(frozen=True)
class CountSlot(Slot):
    """How one factor of counts is updated."""

    @classmethod
    def of(cls, solver: Solver, held: Restraint) -> CountSlot:
        """Return the slot of a factor that is held so."""
        term = CountTerm(held.l1, held.l2)
        return cls(solver, None if term.is_none else term, held.n_fixed)

    def update(self, affordable_sweeps: float, W: Array | None = None) -> Update:
        """Return the update of rows, which knows the penalty and what is given."""
        held = Restraint(n_fixed=self.n_fixed)
        if isinstance(self.penalty, Term):
            held = held._replace(l1=self.penalty.l1, l2=self.penalty.l2)
        return partial(self.solver.update, held=held)


def restraints(penalties: Penalties | None, n_fixed: int = 0) -> tuple[Restraint, Restraint]:
    """Return what holds H, and what holds W."""
    given = Penalties() if penalties is None else penalties
    return Restraint(given.l1_h, given.l2_h), Restraint(given.l1_w, given.l2_w, n_fixed)


def check_penalties(penalties: Penalties) -> None:
    """Refuse penalties that have no meaning for counts."""
    loss = Option("loss", "poisson")
    for name in ("orthogonality", "min_volume", "sum_to_one"):
        if getattr(penalties, name):
            problem = f" takes L1 and L2 penalties, not {name}: that is for "
            raise OptionError(Message(loss, problem, Option("loss", "frobenius")))
    if penalties.fixes_columns:
        problem = (
            " needs penalties on both factors: that of one alone is evaded, as it shrinks and the "
            "other grows; give both of alpha_W and alpha_H, of `Penalties` one for h and one for w"
        )
        raise OptionError(Message(loss, problem))


def balanced(W: Array, masses: Array, squares: Array, penalties: Penalties) -> Array:
    """Return for each component the number to multiply w_k by, and to divide h_k by.

    The loss does not change with it, and the penalties are smallest. `masses` and `squares` are
    sums of the rows of H and of their squares.
    """
    a = penalties.l1_w * W.sum(axis=0, dtype=np.float64)
    c = penalties.l2_w * (W.astype(np.float64) ** 2).sum(axis=0)
    b, d = penalties.l1_h * masses, penalties.l2_h * squares
    low, high = np.full(len(a), -200.0), np.full(len(a), 200.0)
    for _ in range(_BALANCING_STEPS):  # a t + b / t + c t^2 / 2 + d / (2 t^2) is convex in log t
        middle = (low + high) / 2
        t = np.exp(middle)
        rises = a * t - b / t + c * t**2 - d / t**2 > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    is_used = (a + c > 0) & (b + d > 0)
    sizes: Array = np.where(is_used, np.exp((low + high) / 2), 1.0)
    return sizes


_PLAIN: dict[str, Any] = {"has_holes": False, "is_weighted": False, "held": FREE}
_TINY_SHARE = 1e-100  # of the largest entry of a component: coefficients would leave the range


class Regressions(NamedTuple):
    """The sums that regressions leave.

    Attributes
    ----------
    divergence : float
        Of the features that components have.
    gap : float
        How far it is at most above the smallest for this W.
    H : array (K,)
        The sums of the rows of H.
    known : array (K,) or (F, K)
        The same, of the samples in which each feature is known.
    ratios : array (F, K)
        (V / X) H'.
    unseen : array (F,)
        The counts of features that no component has, 0 elsewhere.
    penalty : float
        That of H.
    """

    divergence: float
    gap: float
    H: Array
    known: Array
    ratios: Array
    unseen: Array
    penalty: float


def regressions(
    V: DataMatrix, W: Array, penalties: Penalties | None = None
) -> tuple[Aligned, Aligned, Regressions]:
    """Return the best H (K, N) for W, labels (N,), and how good they are; one pass.

    Features that no component has are left out: their rates are zero for every H. A label is the
    component with the largest share of the rates of a sample, -1 for a sample without counts.
    """
    require_data_matrix(V, holes=True)
    optional(instance, "penalties", penalties, Penalties)
    W = factor("W", W, (V.shape[0], "K"))
    W = np.where(W > _TINY_SHARE * W.max(axis=0), W, 0)
    order = own_order(W)
    side = Side.of(W[:, order])
    aligned = () if V.observed is None else V.observed.aligned
    shared: dict[str, Any] = {"has_holes": V.observed is not None, "is_weighted": bool(aligned)}
    shared["held"], _ = restraints(penalties)
    shared |= {"side": side, "places": np.argsort(order), "is_seen": side.W.any(axis=1)}
    with V.own_threads():
        Ht, labels, sums = V.sweep(_regress, *aligned, verify=True, **shared)
    return Ht.T, labels, Regressions(**sums)


def divergences(V: DataMatrix, factors: Sequence[Array]) -> Array:
    """Return the divergence that each W (F, K) leaves with its best H, as `regressions` does.

    One pass for all of them, and no H is kept.
    """
    each = []
    for W in factors:
        W = factor("W", W, (V.shape[0], "K"))
        order = own_order(W)
        side = Side.of(W[:, order])
        places, is_seen = np.argsort(order), side.W.any(axis=1)
        each.append({"side": side, "places": places, "is_seen": is_seen, **_PLAIN})
    with V.own_threads():
        (sums,) = V.sweep(_divergences, each=each)
    found: Array = np.maximum(sums, 0.0)
    return found


def _divergences(block: Block, *, each: list[dict[str, Any]]) -> tuple[Array]:
    return (np.array([_regress(block, **one)[2]["divergence"] for one in each]),)


def _regress(
    block: Block,
    *given: Array,
    side: Side,
    places: Array,
    is_seen: Array,
    has_holes: bool,
    is_weighted: bool,
    held: Restraint,
) -> tuple[Array, Array, dict[str, Any]]:
    """The step of `regressions`; columns are in their own order, `places` are the caller's."""
    weights, of_all = given[0] if is_weighted else None, side.sums
    counts = known_counts(block, weights)
    if has_holes:
        side = side._replace(sums=row_grams(block, weights, side.W))
    unseen = sums_at(counts.indices, exact(counts.data), len(is_seen))
    unseen[is_seen] = 0.0
    if unseen.any():
        counts = counts_of(features_scaled(counts, is_seen.astype(np.float64)))
    Y, _, gaps = regression(counts, side, held)
    returned = Y.astype(block.dtype, copy=False)
    Y, totals = exact(returned), sample_sums(counts)
    labels = np.where(totals > 0, (Y * of_all)[:, places].argmax(axis=1), -1)
    logs, ratios = divergences_and_ratios(counts, side, Y)
    left = float(logs.sum()) - logs_of_weights(counts, weights)
    sums = {
        "divergence": left + float(np.sum(Y * side.sums) - totals.sum()),
        "gap": float(gaps.sum()),
        "H": Y.sum(axis=0)[places],
        "ratios": weighted_sums(ratios, Y)[:, places],
        "unseen": unseen,
        "penalty": CountTerm(held.l1, held.l2).value(Y),
    }
    sums["known"] = weighted_grams(block, weights, Y)[:, places] if has_holes else sums["H"]
    return np.ascontiguousarray(returned[:, places]), labels, sums


def report_unseen(V: DataMatrix, counts: Array, unseen: str = "warn") -> None:
    """Warn about counts (F,) of features that no component has, or raise an error."""
    some = np.flatnonzero(counts)
    message = (
        f"no component has {counted(some.size, 'feature')} with counts, in all "
        f"{counts.sum():g}: {_named(V, some)}"
    )
    if unseen == "raise":
        raise DataError(f"{message}; leave them out, or fit again with such samples")
    warnings.warn(f"{message}: left out", InputWarning, stacklevel=5)


def _named(V: DataMatrix, features: Array, most: int = 5) -> str:
    names = V.names.feature_names
    shown = [str(f) if names is None else repr(visible(names[f])) for f in features[:most]]
    return ", ".join(shown) + (", ..." if features.size > most else "")


_MAX_CURVATURE_BYTES = 1 << 25  # of the K x K matrices of all features, which every thread sums
_KEPT_SHARE = 0.1  # of an entry, that is left when it is moved further

POISSON_SOLVERS: dict[str, Solver] = {
    "newton": Solver(newton, first="H", extrapolate=True),
    "mult": Solver(multiplicative, first="H"),
}


def poisson_method(
    solver: str | Solver = "newton", penalties: Penalties | None = None, n_fixed: int = 0
) -> Method:
    """Return how the factors of counts are updated, by one of `POISSON_SOLVERS`.

    With penalties, of L1 and L2; the first `n_fixed` columns of W are given, and stay.
    """
    if not isinstance(solver, Solver):
        solver = POISSON_SOLVERS[choice("solver", solver, POISSON_SOLVERS)]
    optional(instance, "penalties", penalties, Penalties)
    n_fixed = integer("n_fixed", n_fixed, at_least=0)
    for_H, for_W = (CountSlot.of(solver, held) for held in restraints(penalties, n_fixed))
    return Method(for_H, for_W, Poisson)


class Poisson(Loss):
    """The divergence of W H from V, as counts with these rates have it; see the module.

    Its relative error is the share of the divergence of a single component that is left.
    """

    name = "poisson"
    takes_holes = True

    def __init__(self, V: DataMatrix, *, rescale: bool = True) -> None:
        super().__init__(V, rescale=rescale)
        self.margins = margins(V)
        self.total = self.margins.total / self.unit
        self.turned = _turned(V)
        self.known_at = Point.BEFORE if self.turned is None else Point.AFTER
        self.aligned = () if V.observed is None else V.observed.aligned
        self._known: tuple[Array, float] | None = None

    @staticmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> tuple[Any, ...]:
        """Update a block's rows of H and return them with the sums that are needed; see `Loss`."""
        weights, given = (given[0], given[1:]) if shared["is_weighted"] else (None, given)
        H, *before = given
        side, counts = shared["side"], known_counts(block, weights, shared["unit"])
        if shared["has_holes"]:
            side = side._replace(sums=row_grams(block, weights, side.W))
        logs = np.empty(len(H)) if shared["is_last"] else NOTHING
        updated = moved = update(counts, side, H, logs)
        if before and beta:
            moved = _moved(updated, before[0], beta)
        if shared["is_last"]:
            return moved, {"logs": float(logs.sum())}
        rows = exact(moved)
        has_own = shared["has_holes"]
        sums: Sums = {"H": weighted_grams(block, weights, rows) if has_own else rows.sum(axis=0)}
        if not shared["in_both_orders"]:
            logs, ratios = divergences_and_ratios(counts, side, moved)
            sums["logs"], sums["ratios"] = float(logs.sum()), weighted_sums(ratios, rows)
            if _function_of(update) is newton and _is_small(side.W):
                sums["curvatures"] = curvatures(counts, ratios, rows)
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> dict[str, Any]:
        """Return W with its sums, and what the step is to sum."""
        return {
            "side": Side.of(W),
            "unit": self.unit,
            "is_last": False,
            "in_both_orders": self.turned is not None,
            "has_holes": self.V.observed is not None,
            "is_weighted": bool(self.aligned),
        }

    def update_W(self, sums: Sums, W: Array, Ht: Aligned, update: Update) -> Array:
        """Update W by the step for samples on the turned data, or from the sums of the pass."""
        held = _held_by(update)
        if self.turned is None and "curvatures" in sums:
            R, A, totals = sums["ratios"], sums["curvatures"], self.margins.features / self.unit
            return newton_from_sums(R, A, sums["H"], totals, W, held)
        if self.turned is None:
            return _multiplied(W, sums["ratios"], sums["H"], held)
        options = {**self.shared(np.asarray(Ht)), "is_last": True}
        updated, last = self.turned.sweep(
            Poisson.step, W, update=update, beta=0.0, floor=0.0, **options
        )
        self.V._count(1.0)
        self._known = np.asarray(updated), last["logs"]
        return self._known[0]

    def multiplying(self, W: Array, Ht: Aligned) -> Part:
        """Return the part of a pass in which H (N, K) takes a multiplicative step, and W then."""
        options = {"update": multiplicative, "beta": 0.0, "floor": 0.0, **self.shared(W)}
        return Part(self.V, Poisson.step, (*self.aligned, Ht), options, n_rows=1)

    def multiplied(self, part: Part, W: Array, Ht: Aligned, sums: Sums, n_fixed: int = 0) -> Array:
        """Return W (F, K) after a multiplicative step for the H of that pass; none is judged.

        The first `n_fixed` columns of W stay.
        """
        held = Restraint(n_fixed=n_fixed)
        if self.turned is None:
            return _multiplied(W, sums["ratios"], sums["H"], held)
        options = part.shared | {"side": Side.of(np.asarray(Ht))}
        options["update"] = partial(multiplicative, held=held)
        W, _ = self.turned.sweep(Poisson.step, W, **options)
        self.V._count(1.0)
        return np.asarray(W)

    def extrapolate_W(self, W: Array, before: Array, share: float, floor: float) -> Array:
        """Return W moved on, but no entry to less than a share of itself."""
        return _moved(W, before, share)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the number with which all rates have the total of V."""
        mass = _mass(W, sums)
        return W * (self.total / mass) if mass > 0 else W

    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return the divergence of V / unit, which rounding may not make negative."""
        if at is Point.AFTER and self._known is not None and self._known[0] is W:
            logs = self._known[1]
        else:
            logs = sums["logs"]
        value = logs - self.margins.of_weights / self.unit + _mass(W, sums) - self.total
        if not np.isfinite(value):
            problem = "the factors give a rate of zero where a count is not zero: begin with "
            advice = "factors that are positive there, or leave the choice to "
            raise DataError(Message(problem + advice, Option("init", "auto")))
        return max(float(value), 0.0)

    def objective(self, value: float) -> float:
        """Return the divergence of V itself."""
        return value * self.unit

    def relative_error(self, value: float) -> float:
        """Return the share of the divergence of one component that is left.

        Where one component leaves nothing, the divergence is divided by the total instead.
        """
        return float(value * self.unit / self.margins.scale)

    def finish(self, W: Array, **how: Any) -> Finish:
        """Return the best H for W, with the divergence and the duality gaps; see `regressions`.

        Counts of features that no component has, where all are given, are left out with a warning.
        """
        penalties, n_fixed = how.get("penalties"), how.get("n_fixed", 0)
        _, held = restraints(penalties, n_fixed)
        H, labels, sums = regressions(self.V, W, penalties)
        if sums.unseen.any():
            report_unseen(self.V, sums.unseen)
        W = np.asarray(W, np.float64)
        totals = self.margins.features - sums.unseen
        gaps = dual_gaps(sums.ratios, sums.known, W, totals, held)
        gap = (sums.gap + float(gaps.sum())) / self.margins.total
        masses = W.sum(axis=0) * sums.H
        shares = masses / (masses.sum() or 1.0)
        order = sorting(shares, how.get("n_first", 0))
        if np.any(order != np.arange(len(order))):
            Ht, labels, _ = self.V.map(_reorder, H.T, labels, order=order)
            H = Ht.T
        value = max(sums.divergence, 0.0)
        objective = value + sums.penalty + CountTerm(held.l1, held.l2).value(W)
        return Finish(H, labels, value, objective, gap, order, shares[order])


def _reorder(index: range, H: Array, labels: Array, *, order: Array) -> tuple[Array, Array, None]:
    places = np.append(np.argsort(order), -1)  # the last for samples without counts
    return np.ascontiguousarray(H[:, order]), places[labels], None


def _is_small(W: Array) -> bool:
    """Whether a K x K matrix for every feature takes little memory."""
    return bool(W.nbytes * W.shape[1] <= _MAX_CURVATURE_BYTES)


def _multiplied(W: Array, ratios: Array, sums: Array, held: Restraint) -> Array:
    """W (V / X) H' / H1, with the penalties; what is given stays."""
    new = damped(exact(W) * ratios, sums, held).astype(W.dtype, copy=False)
    new[:, : held.n_fixed] = W[:, : held.n_fixed]
    return new


def _mass(W: Array, sums: Sums) -> float:
    """The sum of the rates of all entries that are known."""
    H = sums["H"]
    return float(exact(W).sum(axis=0) @ H if H.ndim == 1 else np.vdot(exact(W), H))


def _function_of(update: Update) -> Any:
    return update.func if isinstance(update, partial) else update


def _held_by(update: Update) -> Restraint:
    held: Restraint = update.keywords.get("held", FREE) if isinstance(update, partial) else FREE
    return held


def _moved(Y: Array, before: Array, share: float) -> Array:
    kind = Y.dtype.type
    moved: Array = np.maximum(Y + kind(share) * (Y - before), kind(_KEPT_SHARE) * Y)
    return moved


def _turned(V: DataMatrix) -> DataMatrix | None:
    """V with the features as samples, if that costs no reading and little memory."""
    if V.observed is not None and V.observed.weights is not None:
        return None  # weights are kept beside the samples
    if V.other_order is not None:
        return V.other_order
    return V.turned() if isinstance(V, DenseMatrix) and V.observed is None else None


_N_FOLDS = 5
_MIXED_SHARE = 0.01  # of the rates of a sample, that is spread like the mean of the components


def held_out_deviance(
    V: DataMatrix, W: Any, *, weights: Any = None, n_folds: int = _N_FOLDS
) -> float:
    """Return the share of the deviance that is explained for features not seen; one pass.

    1 - D / D0, where D is the divergence of the counts from rates that other features predict, and
    D0 that from the mean of the components, scaled to the total of each sample: at most 1, and
    below 0 if the components predict worse than that mean. Features that no component has do not
    count. If D0 is zero, so that nothing is to be explained, the share is 1.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Preferably samples that W was not fitted to.
    W : array (F, K)
    weights : array (N,), optional
        Of samples, at least 0; by default all are equal.
    n_folds : int
        Into which the features are divided; at most one for each.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> W = [[8.0, 0.0], [8.0, 0.0], [0.0, 8.0], [0.0, 8.0]]
    >>> V = from_columns([[9, 0], [7, 0], [0, 8], [0, 8]])
    >>> held_out_deviance(V, W) > 0.9
    True
    """
    require_data_matrix(V)
    F = V.shape[0]
    side = Side.of(factor("W", W, (F, "K")))
    W = side.W / np.where(side.sums > 0, side.sums, 1.0)
    folds = feature_folds(F, min(integer("n_folds", n_folds, at_least=1), F))
    aligned = () if weights is None else (array("weights", weights, V.shape[1:], at_least=0),)
    with V.own_threads():
        ((missed, total),) = V.sweep(_predict, *aligned, W=W, folds=folds)
    return 1.0 - float(missed / total) if total > 0 else 1.0


def _predict(
    block: Block, weights: Array | None = None, *, W: Array, folds: Array
) -> tuple[tuple[float, float]]:
    has_component: Array = W.max(axis=1) > 0
    counts = counts_of(features_scaled(exact(block), exact(has_component)))
    totals, mean = sample_sums(counts), W.mean(axis=1, keepdims=True)
    mean /= mean.sum() or 1.0
    missed = np.zeros(counts.shape[1])
    for fold in range(folds.max() + 1):
        member: Array = (folds == fold).astype(np.float64)
        other: Array = 1.0 - member
        inside = counts_of(features_scaled(counts, member))
        outside = counts_of(features_scaled(counts, other))
        H = regression(outside, Side.of(W * other[:, None]))[0]
        masses = H @ W.sum(axis=0)
        share = np.where(masses > 0, _MIXED_SHARE, 1.0)
        rest, known = float(mean[member == 0].sum()), sample_sums(outside)
        unknown = np.where(known > 0, known / (rest or 1.0), totals)  # as the mean would have it
        joined = np.hstack([H * (1 - share)[:, None], (share * unknown)[:, None]])
        missed += _sample_divergences(inside, np.hstack([W, mean]) * member[:, None], joined)
    base = _sample_divergences(counts, mean, totals[:, None])
    factors = 1.0 if weights is None else weights
    return ((float((factors * missed).sum()), float((factors * base).sum())),)


def _sample_divergences(counts: SparseBlock, W: Array, H: Array) -> Array:
    """D(v | W h) of every sample."""
    logs, _ = divergences_and_ratios(counts, Side.of(W), H)
    divergences: Array = logs + H @ W.sum(axis=0) - sample_sums(counts)
    return divergences

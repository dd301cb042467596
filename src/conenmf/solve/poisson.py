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
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..arguments import choice, instance, integer, optional
from ..data.blocks import Array, Block, exact, weighted_sums
from ..data.holes import row_grams, weighted_grams
from ..data.matrix import Aligned, DataMatrix
from ..data.memory import DenseMatrix
from ..data.together import Part
from ..errors import FactorError, Message, Option
from .coefficients import Finish, sorting
from .count_coefficients import regressions, report_unseen
from .count_margins import known_counts, margins
from .count_terms import CountSlot, CountTerm, restraints
from .losses import Loss, Point, Sums
from .methods import Method
from .penalties import Penalties
from .poisson_regression import (
    FREE,
    NOTHING,
    Restraint,
    Side,
    curvatures,
    damped,
    divergences_and_ratios,
    dual_gaps,
    multiplicative,
    newton,
    newton_from_sums,
)
from .solvers import Solver, Update

__all__ = [
    "POISSON_SOLVERS",
    "Poisson",
    "poisson_method",
]

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
            raise FactorError(Message(problem + advice, Option("init", "auto")))
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

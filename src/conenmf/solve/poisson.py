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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ..arguments import choice, factor
from ..data.blocks import Array, Block, exact, features_scaled, sums_at, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..data.memory import DenseMatrix
from ..data.together import Part, sweep_together
from ..data.validate import require_data_matrix
from ..errors import FactorError, Message, Option
from .coefficients import Finish, own_order, sorting
from .losses import Loss, Point, Sums
from .methods import Method, Slot
from .poisson_regression import (
    NOTHING,
    Side,
    counts_of,
    curvatures,
    divergences_and_ratios,
    dual_gaps,
    multiplicative,
    newton,
    newton_from_sums,
    regression,
    sample_sums,
)
from .solvers import Solver, Update

__all__ = [
    "POISSON_SOLVERS",
    "Margins",
    "Poisson",
    "Regressions",
    "divergences",
    "margins",
    "margins_together",
    "poisson_method",
    "regressions",
]

_MAX_CURVATURE_BYTES = 1 << 25  # of the K x K matrices of all features, which every thread sums
_KEPT_SHARE = 0.1  # of an entry, that is left when it is moved further

POISSON_SOLVERS: dict[str, Solver] = {
    "newton": Solver(newton, first="H", extrapolate=True),
    "mult": Solver(multiplicative, first="H"),
}


def poisson_method(solver: str | Solver = "newton") -> Method:
    """Return how the factors of counts are updated, by one of `POISSON_SOLVERS`."""
    if not isinstance(solver, Solver):
        solver = POISSON_SOLVERS[choice("solver", solver, POISSON_SOLVERS)]
    return Method(Slot(solver), Slot(solver), Poisson)


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
    """

    samples: Aligned
    features: Array
    total: float
    divergence: float


_measured: WeakKeyDictionary[DataMatrix, Margins] = WeakKeyDictionary()


def margins(V: DataMatrix) -> Margins:
    """Return the margins of V; one pass, the first time.

    >>> from conenmf import from_columns
    >>> margins(from_columns([[1, 2], [3, 6]])).features
    array([3., 9.])
    """
    require_data_matrix(V, nonzero=True)
    margins_together(V, [V])
    return _measured[V]


def margins_together(V: DataMatrix, views: Sequence[DataMatrix]) -> None:
    """Measure the margins of views of V, or of V itself, in one pass for all of them."""
    parts = [Part(view, _measure, (), {}, n_rows=1) for view in views if view not in _measured]
    if not parts:
        return
    with V.own_threads():
        measured = sweep_together(V, parts)
    for part, (samples, (features, logs)) in zip(parts, measured, strict=True):
        total = float(features.sum())
        (of_samples,) = V.map(_sum_of_logs, samples)
        null = logs + _xlogx(np.array([total])) - _xlogx(features) - float(of_samples)
        _measured[part.V] = Margins(samples, features, total, max(float(null), 0.0))


def _measure(block: Block) -> tuple[Array, tuple[Array, float]]:
    counts = counts_of(block)
    features = sums_at(counts.indices, exact(counts.data), block.shape[0])
    return sample_sums(counts), (features, _xlogx(exact(counts.data)))


def _sum_of_logs(index: range, sums: Array) -> tuple[float]:
    return (_xlogx(sums),)


def _xlogx(values: Array) -> float:
    """Sum of x log x, which is 0 at 0."""
    positive = values[values > 0]
    return float(positive @ np.log(positive))


class Poisson(Loss):
    """The divergence of W H from V, as counts with these rates have it; see the module.

    Its relative error is the share of the divergence of a single component that is left.
    """

    name = "poisson"

    def __init__(self, V: DataMatrix, *, rescale: bool = True) -> None:
        super().__init__(V, rescale=rescale)
        self.margins = margins(V)
        self.total = self.margins.total / self.unit
        self.turned = _turned(V)
        self.known_at = Point.BEFORE if self.turned is None else Point.AFTER
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
        H, *before = given
        side, counts = shared["side"], counts_of(block, shared["unit"])
        logs = np.empty(len(H)) if shared["is_last"] else NOTHING
        updated = moved = update(counts, side, H, logs)
        if before and beta:
            moved = _moved(updated, before[0], beta)
        sums: Sums = {"H": exact(moved).sum(axis=0)}
        if shared["is_last"]:
            sums["logs"] = float(logs.sum())
        elif not shared["in_both_orders"]:
            logs, ratios = divergences_and_ratios(counts, side, moved)
            sums["logs"], sums["ratios"] = float(logs.sum()), weighted_sums(ratios, exact(moved))
            if update is newton and _is_small(side.W):
                sums["curvatures"] = curvatures(counts, ratios, exact(moved))
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> dict[str, Any]:
        """Return W with its sums, and what the step is to sum."""
        both = self.turned is not None
        return {"side": Side.of(W), "unit": self.unit, "is_last": False, "in_both_orders": both}

    def update_W(self, sums: Sums, W: Array, Ht: Aligned, update: Update) -> Array:
        """Update W by the step for samples on the turned data, or from the sums of the pass."""
        if self.turned is None and "curvatures" in sums:
            R, A, totals = sums["ratios"], sums["curvatures"], self.margins.features / self.unit
            return newton_from_sums(R, A, sums["H"], totals, W)
        if self.turned is None:
            return _multiplied(W, sums["ratios"], sums["H"])
        updated, last = self.turned.sweep(
            Poisson.step,
            W,
            update=update,
            beta=0.0,
            floor=0.0,
            side=Side.of(np.asarray(Ht)),
            unit=self.unit,
            is_last=True,
            in_both_orders=True,
        )
        self.V._count(1.0)
        self._known = np.asarray(updated), last["logs"]
        return self._known[0]

    def multiplying(self, W: Array, Ht: Aligned) -> Part:
        """Return the part of a pass in which H (N, K) takes a multiplicative step, and W then."""
        options = {"update": multiplicative, "beta": 0.0, "floor": 0.0, **self.shared(W)}
        return Part(self.V, Poisson.step, (Ht,), options, n_rows=1)

    def multiplied(self, part: Part, W: Array, Ht: Aligned, sums: Sums) -> Array:
        """Return W (F, K) after a multiplicative step for the H of that pass; none is judged."""
        if self.turned is None:
            return _multiplied(W, sums["ratios"], sums["H"])
        options = part.shared | {"side": Side.of(np.asarray(Ht))}
        W, _ = self.turned.sweep(Poisson.step, W, **options)
        self.V._count(1.0)
        return np.asarray(W)

    def extrapolate_W(self, W: Array, before: Array, share: float, floor: float) -> Array:
        """Return W moved on, but no entry to less than a share of itself."""
        return _moved(W, before, share)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the number with which all rates have the total of V."""
        mass = float(exact(W).sum(axis=0) @ sums["H"])
        return W * (self.total / mass) if mass > 0 else W

    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return the divergence of V / unit, which rounding may not make negative."""
        if at is Point.AFTER and self._known is not None and self._known[0] is W:
            logs = self._known[1]
        else:
            logs = sums["logs"]
        mass = float(exact(W).sum(axis=0) @ sums["H"])
        value = logs + mass - self.total
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
        null = self.margins.divergence
        scale = null if null > 1e-12 * self.margins.total else self.margins.total
        return float(value * self.unit / scale)

    def finish(self, W: Array, **how: Any) -> Finish:
        """Return the best H for W, with the divergence and the duality gaps; see `regressions`."""
        H, labels, sums = regressions(self.V, W)
        side = Side.of(W)
        gaps = dual_gaps(sums.ratios, sums.H, side.W, self.margins.features)
        gap = (sums.gap + float(gaps.sum())) / self.margins.total
        masses = side.sums * sums.H
        shares = masses / (masses.sum() or 1.0)
        order = sorting(shares, how.get("n_first", 0))
        if np.any(order != np.arange(len(order))):
            Ht, labels, _ = self.V.map(_reorder, H.T, labels, order=order)
            H = Ht.T
        value = max(sums.divergence, 0.0)
        return Finish(H, labels, value, value, gap, order, shares[order])


def _reorder(index: range, H: Array, labels: Array, *, order: Array) -> tuple[Array, Array, None]:
    places = np.append(np.argsort(order), -1)  # the last for samples without counts
    return np.ascontiguousarray(H[:, order]), places[labels], None


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
    ratios : array (F, K)
        (V / X) H'.
    unseen : array (F,)
        The counts of features that no component has, 0 elsewhere.
    """

    divergence: float
    gap: float
    H: Array
    ratios: Array
    unseen: Array


def regressions(V: DataMatrix, W: Array) -> tuple[Aligned, Aligned, Regressions]:
    """Return the best H (K, N) for W, labels (N,), and how good they are; one pass.

    Features that no component has are left out: their rates are zero for every H. A label is the
    component with the largest share of the rates of a sample, -1 for a sample without counts.
    """
    require_data_matrix(V)
    W = factor("W", W, (V.shape[0], "K"))
    order = own_order(W)
    side = Side.of(W[:, order])
    with V.own_threads():
        Ht, labels, sums = V.sweep(
            _regress, side=side, places=np.argsort(order), verify=True, is_seen=side.W.any(axis=1)
        )
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
        each.append({"side": side, "places": places, "is_seen": is_seen})
    with V.own_threads():
        (sums,) = V.sweep(_divergences, each=each)
    found: Array = np.maximum(sums, 0.0)
    return found


def _divergences(block: Block, *, each: list[dict[str, Any]]) -> tuple[Array]:
    return (np.array([_regress(block, **one)[2]["divergence"] for one in each]),)


def _regress(
    block: Block, *, side: Side, places: Array, is_seen: Array
) -> tuple[Array, Array, dict[str, Any]]:
    """The step of `regressions`; columns are in their own order, `places` are the caller's."""
    counts = counts_of(block)
    unseen = sums_at(counts.indices, exact(counts.data), len(is_seen))
    unseen[is_seen] = 0.0
    if unseen.any():
        counts = counts_of(features_scaled(counts, is_seen.astype(np.float64)))
    Y, _, gaps = regression(counts, side)
    returned = Y.astype(block.dtype, copy=False)
    Y, totals = exact(returned), sample_sums(counts)
    masses = (Y * side.sums)[:, places]
    labels = np.where(totals > 0, masses.argmax(axis=1), -1)
    logs, ratios = divergences_and_ratios(counts, side, Y)
    sums = {
        "divergence": float(logs.sum() + masses.sum() - totals.sum()),
        "gap": float(gaps.sum()),
        "H": Y.sum(axis=0)[places],
        "ratios": weighted_sums(ratios, Y)[:, places],
        "unseen": unseen,
    }
    return np.ascontiguousarray(returned[:, places]), labels, sums


def _is_small(W: Array) -> bool:
    """Whether a K x K matrix for every feature takes little memory."""
    return bool(W.nbytes * W.shape[1] <= _MAX_CURVATURE_BYTES)


def _multiplied(W: Array, ratios: Array, sums: Array) -> Array:
    """W (V / X) H' / H1."""
    factors = np.divide(ratios, sums, out=np.zeros_like(ratios), where=sums > 0)
    return (exact(W) * factors).astype(W.dtype, copy=False)


def _moved(Y: Array, before: Array, share: float) -> Array:
    kind = Y.dtype.type
    moved: Array = np.maximum(Y + kind(share) * (Y - before), kind(_KEPT_SHARE) * Y)
    return moved


def _turned(V: DataMatrix) -> DataMatrix | None:
    """V with the features as samples, if that costs no reading and little memory."""
    if V.other_order is not None:
        return V.other_order
    return V.turned() if isinstance(V, DenseMatrix) and V.watch is None else None

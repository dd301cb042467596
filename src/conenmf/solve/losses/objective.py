"""Losses: what the loop minimises, and all that changes with it.

A loss defines the step on a block of samples, the sums that it yields, the update of W from them,
the value of the objective and the point at which a pass knows it, the exact H for a given W, and
the scale of the data. The loop knows none of these: it passes the sums from one method to the next,
and a checkpoint saves them under the names that the loss gives them.

`Frobenius` is ||V - W H||^2. With W given, a block of samples yields C = V'W, its new
H = update(G, C, H) with G = W'W, and the sums VH', HH' and <V, WH>. From these W follows by an
update with G = HH' and C = VH', and the value for any W by

    ||V - W H||^2 = ||V||^2 - 2 <V, WH> + <W'W, HH'>.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ... import kernels
from ...arguments import flag
from ...data.blocks import Array, Block, equal_borders, exact, products, weighted_sums
from ...data.matrix import Aligned, DataMatrix, add
from ...data.threads import run_in_order
from ...data.validate import require_data_matrix
from ...errors import DataError
from ..coefficients import ORDINARY, Finish, column_units, finished, nearby_power
from ..solvers import Update

__all__ = ["Frobenius", "Loss", "Point", "Sums", "extrapolated"]

Sums: TypeAlias = dict[str, Any]
"""What a pass sums over the samples, by name: arrays and numbers that a loss understands."""

_NEARLY_EXACT_SHARE = 5e-5  # of ||v||^2, below which single precision does not show the rest
_BATCHES, _BATCH_ROWS, _MAX_BATCH_ROWS = 8, 512, 4096  # of features, on threads


class Point(Enum):
    """Where the value of an iteration holds: at its new H, and at W before or after its update."""

    BEFORE = "W before"
    AFTER = "W after"


class Loss(ABC):
    """An objective for the factors of V, as the loop sees it.

    The loop factors V / unit, so that solvers which floor do so regardless of the scale of V.

    Parameters
    ----------
    V : DataMatrix (F, N)
    rescale : bool
        Choose the unit by the scale of V; otherwise it is 1.

    Attributes
    ----------
    name : str
    known_at : Point
        `AFTER` if the sums of a pass give the value at every W, so also at the one that is updated
        from them; `BEFORE` if they give it only at the W that the pass was made with.
    unit : float
        A power of two.
    aligned : tuple of arrays (N, ...)
        What a loss needs of every sample, such as weights; none by default. The step takes their
        rows before those of H.
    number : int
        Of the iteration, counted from 0.
    takes_holes : bool
        Whether entries of V may be missing, or weighted.
    """

    name: str
    known_at: Point
    unit: float
    aligned: tuple[Aligned, ...] = ()
    number: int = 0
    takes_holes: bool = False

    def __init__(self, V: DataMatrix, *, rescale: bool = True) -> None:
        require_data_matrix(V, nonzero=True, holes=self.takes_holes)
        rescale = flag("rescale", rescale)
        self.V = V
        F, N = V.shape
        self.unit = nearby_power(V.norm / np.sqrt(F * N)) if rescale else 1.0

    @staticmethod
    @abstractmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> tuple[Any, ...]:
        """Update the rows of H (n, K) that belong to a block, and return them with the sums.

        `given` are the rows of `aligned`, then those of H. If those of H `before` follow, the new H
        is moved further by `beta` times the way from there, down to `floor` at most, and the
        result is (H moved, H as updated, sums) instead of (H, sums). `shared` is what `shared`
        returns.
        """

    @abstractmethod
    def shared(self, W: Array) -> dict[str, Any]:
        """Return what every block needs for a pass with W (F, K)."""

    @abstractmethod
    def update_W(self, sums: Sums, W: Array, Ht: Aligned, update: Update) -> Array:
        """Return W (F, K) updated from the sums of a pass that was made with it, and its H."""

    def extrapolate_W(self, W: Array, before: Array, share: float, floor: float) -> Array:
        """Return W (F, K) moved on by a share of the way from `before`, down to `floor` at most."""
        return extrapolated(W, before, share, floor)

    def column_units(self, W: Array) -> Array:
        """Return for every column of W (F, K) a power of two near its largest entry."""
        return column_units(W)

    @abstractmethod
    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W (F, K) times the number that makes it best for the H of the sums."""

    @abstractmethod
    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return the objective of V / unit at W and the H of the sums; `at` says which W it is."""

    @abstractmethod
    def objective(self, value: float) -> float:
        """Return the objective of V itself for a value of V / unit."""

    @abstractmethod
    def relative_error(self, value: float) -> float:
        """Return an increasing function of the value that does not depend on the scale of V."""

    @abstractmethod
    def finish(self, W: Array, **how: Any) -> Finish:
        """Return the exact H (K, N) for W, labels (N,), and how good the two are; one pass.

        Components are sorted by what they contribute, the largest first; the first `n_first`
        stay where they are. Of these, `n_fixed` were given; `penalties` are those of a fit.
        """


class Frobenius(Loss):
    """Least squares: ||V - W H||^2, with the sums VH' (F, K), HH' (K, K) and <V, WH>.

    The value is a difference of large numbers: good to about 2e-8 (float64) of ||V||.
    """

    name = "frobenius"
    known_at = Point.AFTER

    def __init__(self, V: DataMatrix, *, rescale: bool = True, whole: bool = False) -> None:
        super().__init__(V, rescale=rescale)
        self._whole = flag("whole", whole)  # W is updated with all features at once
        self.total = V.total / self.unit**2
        self.aligned = (V.norms_squared,)
        self._known: list[_Known] = []

    @staticmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> tuple[Any, ...]:
        """Update a block's rows of H and return them with VH', HH' and <V, WH>; see `Loss`.

        VH' is left out if V is kept in both orders: W is then updated by the same step on the
        turned data. In single precision the sums do not show errors of less than a thousandth:
        where they are nearly that small, the step is repeated in double precision.
        """
        unit, (squared, H, *before) = shared["unit"], given
        C = shared.pop("C", None)  # products that were computed for several runs at once
        C = products(block, shared["W"]) if C is None else C
        moved, updated, HH, inner = _step(
            C if unit == 1 else C / C.dtype.type(unit),
            shared["G"],
            H,
            before[0] if before else None,
            update=update,
            beta=beta,
            floor=floor,
        )
        sums: Sums = {"HH": HH, "inner": inner}
        if block.dtype != np.float64:
            total = float(squared.sum()) / unit**2
            left = total - 2.0 * inner + float(np.vdot(shared["G"], HH))
            if left < _NEARLY_EXACT_SHARE * total:
                again = {"update": update, "beta": beta, "floor": floor, **shared}
                again["W"] = exact(shared["W"])
                return Frobenius.step(exact(block), *given, **again)
        if not shared.get("in_both_orders"):
            sums["VH"] = exact(weighted_sums(block, moved))
            if unit != 1:
                sums["VH"] /= unit
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> dict[str, Any]:
        """Return W as blocks are multiplied with it, and its Gram matrix, rounded alike."""
        rounded = W.astype(self.V.dtype, copy=False)
        shared = {"W": self.V.coordinates(rounded), "G": self._gram(rounded), "unit": self.unit}
        if self._whole or self.V.other_order is None:
            return shared
        return {**shared, "in_both_orders": True}

    def update_W(self, sums: Sums, W: Array, Ht: Aligned, update: Update) -> Array:
        """Update W from G = HH' and C = VH', on threads.

        Where V is kept in both orders, by the step for samples on the turned data: NMF is
        symmetric. Otherwise from the sums of the pass, many rows at a time.
        """
        other = None if "VH" in sums else self.V.other_order
        if other is not None:
            turned = {"W": np.asarray(Ht), "G": sums["HH"], "unit": self.unit}
            known = (sums.pop("C"),) if "C" in sums else ()
            updated, moments = other.sweep(
                _multiplied_step if known else Frobenius.step,
                *known,
                other.norms_squared,
                W,
                update=update,
                beta=0.0,
                floor=0.0,
                in_both_orders=True,
                **turned,
            )
            self._remember(updated, moments["HH"], moments["inner"], sums)
            return np.asarray(updated)
        dtype = self._sufficient_dtype(sums, W)
        updated, VH = np.empty_like(W), sums["VH"]

        def run(rows: slice) -> tuple[Array, float]:
            C, Y = self.V.features(VH, rows).astype(dtype, copy=False), W[rows]
            updated[rows] = _checked_update(update, sums["HH"], C, Y.astype(dtype, copy=False))
            return _moments(updated[rows], C)

        self._remember(updated, *self._over_features(run, self._whole), sums)
        return updated

    def extrapolate_W(self, W: Array, before: Array, share: float, floor: float) -> Array:
        """Return W moved on, many rows at a time on threads."""
        moved = np.empty_like(W)

        def run(rows: slice) -> tuple[Array, float]:
            return _moments(extrapolated(W[rows], before[rows], share, floor, moved[rows]))

        self._remember(moved, *self._over_features(run))
        return moved

    def column_units(self, W: Array) -> Array:
        """Return the units of columns, which are 1 if the Gram matrix shows ordinary sizes."""
        squares = self._gram(W).diagonal()
        if squares.min() > len(W) * ORDINARY[0] ** 2 and squares.max() < ORDINARY[1] ** 2:
            return np.ones(W.shape[1])
        return column_units(W)

    def _gram(self, W: Array) -> Array:
        """W'W, of a W that was made here or of any other."""
        for known in self._known:
            if known.W is W:
                return known.gram
        gram, _ = self._over_features(lambda rows: _moments(W[rows]))
        self._remember(W, gram)
        return gram

    def _inner(self, W: Array, sums: Sums) -> float:
        """<V, WH> of a W that was updated from these sums, or of any other."""
        for known in self._known:
            if known.W is W and known.sums is sums:
                return known.inner
        return float(np.vdot(exact(self.V.features(sums["VH"])), W))

    def _remember(
        self, W: Array, gram: Array, inner: float = 0.0, sums: Sums | None = None
    ) -> None:
        self._known = [_Known(W, gram, inner, sums), *self._known[:1]]

    def _over_features(
        self, run: Callable[[slice], tuple[Array, float]], whole: bool = False
    ) -> tuple[Array, float]:
        """Run a function on batches of features on threads, and add up what it returns."""
        F = self.V.shape[0]
        size = F if whole else min(max(_BATCH_ROWS, -(-F // _BATCHES)), _MAX_BATCH_ROWS)
        borders = equal_borders(F, size)
        total: Any = None

        def collect(index: int, part: tuple[Array, float]) -> None:
            nonlocal total
            total = part if total is None else add(total, part)

        run_in_order(
            lambda index: run(slice(*borders[index])), collect, len(borders), self.V.n_threads
        )
        gram, inner = total
        return gram, inner

    def _sufficient_dtype(self, sums: Sums, W: Array) -> np.dtype[Any]:
        """The type of V, or float64 if single precision does not show what is left of V."""
        if self.V.dtype == np.float64:
            return self.V.dtype
        inner = self._inner(W, sums)  # W may have been scaled since the pass
        left = self.total - 2.0 * inner + float(np.vdot(self._gram(W), sums["HH"]))
        return self.V.dtype if left > _NEARLY_EXACT_SHARE * self.total else np.dtype(np.float64)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times <V, WH> / ||WH||^2."""
        squared = float(np.vdot(self._gram(W), sums["HH"]))
        return W * (sums["inner"] / squared) if squared > 0 else W

    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return ||V / unit - W H||^2, which rounding may not make negative."""
        inner = sums["inner"] if at is Point.BEFORE else self._inner(W, sums)
        squared = self.total - 2.0 * inner + float(np.vdot(self._gram(W), sums["HH"]))
        if not np.isfinite(squared):
            raise DataError("the solver returned factors that are not finite: check its update")
        return max(squared, 0.0)

    def objective(self, value: float) -> float:
        """Return ||V - W H||^2."""
        return value * self.unit**2

    def relative_error(self, value: float) -> float:
        """Return ||V - W H|| / ||V||."""
        return float(np.sqrt(value / self.total))

    def finish(self, W: Array, **how: Any) -> Finish:
        """Return the best H for W, with ||V - W H||^2; see `coefficients`."""
        return finished(self.V, W, **how)


def _multiplied_step(block: Block, C: Array, *given: Array, **shared: Any) -> tuple[Any, ...]:
    return Frobenius.step(block, *given, C=C, **shared)


def _step(
    C: Array,
    G: Array,
    Y: Array,
    before: Array | None,
    *,
    update: Update,
    beta: float,
    floor: float,
) -> tuple[Array, Array, Array, float]:
    """Return Y updated and moved further, as updated, Y'Y and <C, Y> of the former."""
    updated = moved = _checked_update(update, G, C, Y).astype(Y.dtype, copy=False)
    if before is not None and beta:
        moved = extrapolated(updated, before, beta, floor)
    rows = exact(moved)
    return moved, updated, rows.T @ rows, float(np.vdot(exact(C), rows))


class _Known(NamedTuple):
    """What is known of a W that was made lately, for which it is asked again: W'W and <V, WH>."""

    W: Array
    gram: Array
    inner: float
    sums: Sums | None


def _moments(W: Array, VH: Array | None = None) -> tuple[Array, float]:
    """W'W and <W, VH> of some rows, in float64."""
    rows = exact(W)
    return rows.T @ rows, 0.0 if VH is None else float(np.vdot(exact(VH), rows))


def extrapolated(
    Y: Array, before: Array, share: float, floor: float, out: Array | None = None
) -> Array:
    """Return Y (n, K) moved on by a share of the way from `before`, down to `floor` at most."""
    moved, kind = np.empty_like(Y) if out is None else out, Y.dtype.type
    if kernels.AVAILABLE:
        kernels.extrapolate_rows(Y, before, kind(share), kind(floor), moved)
    else:
        np.maximum(Y + kind(share) * (Y - before), kind(floor), out=moved)
    return moved


def _checked_update(update: Update, G: Array, C: Array, Y: Array) -> Array:
    """Apply an update, which may be the user's own, and check what it returned."""
    updated = update(G, C, Y)
    if not isinstance(updated, np.ndarray) or updated.shape != Y.shape:
        got = getattr(updated, "shape", type(updated).__name__)
        raise DataError(f"the solver returned {got}, expected an array of shape {Y.shape}")
    if updated.size and updated.min() < 0:
        raise DataError(f"the solver returned a negative entry: {updated.min():g}")
    return updated

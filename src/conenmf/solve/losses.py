"""Losses: what the loop minimises, and all that changes with it.

A loss defines the step on a block of samples, the sums that it yields, the update of W from them,
the value of the objective and the point at which a pass knows it, the exact H for a given W, and
the scale of the data. The loop knows none of these: it passes the sums from one method to the next,
and a checkpoint saves them under the names that the loss gives them.

There is one loss so far, `Frobenius`: ||V - W H||^2. With W given, a block of samples yields
C = V'W, its new H = update(G, C, H) with G = W'W, and the sums VH', HH' and <V, WH>. From these W
follows by an update with G = HH' and C = VH', and the value for any W by

    ||V - W H||^2 = ||V||^2 - 2 <V, WH> + <W'W, HH'>.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from ..arguments import factor, flag
from ..data.blocks import Array, Block, exact, products, residual_squared, weighted_sums
from ..data.borders import equal_borders
from ..data.matrix import Aligned, DataMatrix
from ..data.threads import run_in_order
from ..data.validate import require_data_matrix
from ..errors import FactorError
from ..linalg.nnls import nnls
from .solvers import Update

__all__ = ["Frobenius", "Loss", "Point", "Sums", "coefficients", "column_units"]

Sums: TypeAlias = dict[str, Any]
"""What a pass sums over the samples, by name: arrays and numbers that a loss understands."""

_NEGLIGIBLE_SHARE = 1e-9  # share of ||v|| up to which a contribution is rounding
_TIE_SHARE = 1e-6  # share by which contributions that count as equal may differ
_NEARLY_EXACT_SHARE = 5e-5  # of ||v||^2, below which single precision does not show the rest
_BATCH_ROWS = 1024  # features whose W is updated at a time, on threads


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
    """

    name: str
    known_at: Point
    unit: float
    aligned: tuple[Aligned, ...] = ()

    def __init__(self, V: DataMatrix, *, rescale: bool = True) -> None:
        require_data_matrix(V, nonzero=True)
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
    def collect(self, sums: Sums) -> Sums:
        """Return the sums of all blocks in the form that the other methods take."""

    @abstractmethod
    def update_W(self, sums: Sums, W: Array, update: Update) -> Array:
        """Return W (F, K) updated from the sums of a pass that was made with it."""

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
    def coefficients(self, W: Array) -> tuple[Aligned, Aligned, float]:
        """Return the exact H (K, N) for W, labels (N,) and the objective of V; one pass."""


class Frobenius(Loss):
    """Least squares: ||V - W H||^2, with the sums VH' (F, K), HH' (K, K) and <V, WH>.

    The value is a difference of large numbers: good to about 2e-8 (float64) of ||V||.
    """

    name = "frobenius"
    known_at = Point.AFTER

    def __init__(self, V: DataMatrix, *, rescale: bool = True) -> None:
        super().__init__(V, rescale=rescale)
        self.total = V.total / self.unit**2
        self.aligned = (V.norms_squared,)

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

        In single precision the sums do not show errors of less than a thousandth: where they are
        nearly that small, the step is repeated in double precision.
        """
        unit, (squared, H, *before) = shared["unit"], given
        C = products(block, shared["W"])
        if unit != 1:
            C = C / C.dtype.type(unit)
        H = _checked_update(update, shared["G"], C, H).astype(H.dtype, copy=False)
        updated = (H,) if before else ()
        if beta:
            share = H.dtype.type(beta)
            H = np.maximum(H + share * (H - before[0]), H.dtype.type(floor))
        exact_H = exact(H)
        VH = exact(weighted_sums(block, H))
        if unit != 1:
            VH /= unit
        HH, inner = exact_H.T @ exact_H, float(np.vdot(exact(C), exact_H))
        if block.dtype != np.float64:
            total = float(squared.sum()) / unit**2
            if total - 2.0 * inner + float(np.vdot(shared["G"], HH)) < _NEARLY_EXACT_SHARE * total:
                again = {"update": update, "beta": beta, "floor": floor, **shared}
                again["W"] = exact(shared["W"])
                return Frobenius.step(exact(block), *given, **again)
        return H, *updated, {"VH": VH, "HH": HH, "inner": inner}

    def shared(self, W: Array) -> dict[str, Any]:
        """Return W as blocks are multiplied with it, and its Gram matrix, rounded alike."""
        rounded = W.astype(self.V.dtype, copy=False)
        exact_W = exact(rounded)
        return {"W": self.V.coordinates(rounded), "G": exact_W.T @ exact_W, "unit": self.unit}

    def collect(self, sums: Sums) -> Sums:
        """Return the sums with VH' in features, as it is unless V is a sketch."""
        return {**sums, "VH": self.V.features(sums["VH"])}

    def update_W(self, sums: Sums, W: Array, update: Update) -> Array:
        """Update W from G = HH' and C = VH', many rows at a time on threads."""
        borders = equal_borders(len(W), _BATCH_ROWS)
        updated = np.empty_like(W)
        dtype = self._sufficient_dtype(sums, W)

        def run(index: int) -> Array:
            rows = slice(*borders[index])
            C, Y = (array[rows].astype(dtype, copy=False) for array in (sums["VH"], W))
            return _checked_update(update, sums["HH"], C, Y)

        def collect(index: int, rows: Array) -> None:
            updated[slice(*borders[index])] = rows.astype(self.V.dtype, copy=False)

        run_in_order(run, collect, len(borders), self.V.n_threads)
        return updated

    def _sufficient_dtype(self, sums: Sums, W: Array) -> np.dtype[Any]:
        """The type of V, or float64 if single precision does not show what is left of V."""
        if self.V.dtype == np.float64:
            return self.V.dtype
        inner = float(np.vdot(sums["VH"], W))  # W may have been scaled since the pass
        left = self.total - 2.0 * inner + float(np.vdot(W.T @ W, sums["HH"]))
        return self.V.dtype if left > _NEARLY_EXACT_SHARE * self.total else np.dtype(np.float64)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times <V, WH> / ||WH||^2."""
        squared = float(np.vdot(W.T @ W, sums["HH"]))
        return W * (sums["inner"] / squared) if squared > 0 else W

    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return ||V / unit - W H||^2, which rounding may not make negative."""
        inner = sums["inner"] if at is Point.BEFORE else float(np.vdot(sums["VH"], W))
        squared = self.total - 2.0 * inner + float(np.vdot(W.T @ W, sums["HH"]))
        if not np.isfinite(squared):
            raise FactorError("the solver returned factors that are not finite: check its update")
        return max(squared, 0.0)

    def objective(self, value: float) -> float:
        """Return ||V - W H||^2."""
        return value * self.unit**2

    def relative_error(self, value: float) -> float:
        """Return ||V - W H|| / ||V||."""
        return float(np.sqrt(value / self.total))

    def coefficients(self, W: Array) -> tuple[Aligned, Aligned, float]:
        """Return the best H for W with labels and ||V - W H||^2; see `losses.coefficients`."""
        return coefficients(self.V, W)


def coefficients(V: DataMatrix, W: Array) -> tuple[Aligned, Aligned, float]:
    """Return the best H for a given W, exactly, with labels and the squared error; one pass.

    It depends on V and W alone, not on a first guess, so that it is always the same even where
    several H are best. A component so small that its coefficients would leave the range of their
    type counts as zero.

    Returns
    -------
    H : array (K, N)
    labels : array (N,), integers
        argmax_k ||w_k|| H(k, n): the component that contributes most to each sample, the first one
        of those that differ by rounding; -1 for a sample without any.
    squared_error : float
        ||V - W H||^2, exact to rounding.
    """
    require_data_matrix(V)
    W = factor("W", W, (V.shape[0], "K"))
    W = np.ascontiguousarray(W, dtype=np.float64)  # the order decides the last bits of W'W
    units = column_units(W)
    largest = np.sqrt(V.measures.largest_squared) / (np.finfo(V.dtype).max / 2)
    W = np.where(np.linalg.norm(W / units, axis=0) * units > largest, W / units, 0.0)
    with V.own_threads():
        shared: dict[str, Any] = {"units": units} if np.any(units != 1) else {}
        Ht, labels, squared = V.sweep(
            _finish_block, V.norms_squared, verify=True, W=W, G=W.T @ W, **shared
        )
    return Ht.T, labels, float(squared)


def _finish_block(
    block: Block, squared: Array, *, W: Array, G: Array, units: Array | None = None
) -> tuple[Array, Array, float]:
    """H for W in `units` and H as it is returned are the same numbers but for powers of two."""
    exact_block = exact(block)
    C = products(exact_block, W)
    H = nnls(G, C)
    returned = (H if units is None else H / units).astype(block.dtype, copy=False)
    H = returned if units is None else exact(returned) * units
    contributions = np.sqrt(np.diagonal(G)) * H
    largest = contributions.max(axis=1)
    first = (contributions >= (1 - _TIE_SHARE) * largest[:, None]).argmax(axis=1)
    labels = np.where(largest > _NEGLIGIBLE_SHARE * np.sqrt(squared), first, -1)
    residuals = residual_squared(exact_block, squared, C, G, W, exact(H))
    return returned, labels, float(residuals.sum())


def _checked_update(update: Update, G: Array, C: Array, Y: Array) -> Array:
    """Apply an update, which may be the user's own, and check what it returned."""
    updated = update(G, C, Y)
    if not isinstance(updated, np.ndarray) or updated.shape != Y.shape:
        got = getattr(updated, "shape", type(updated).__name__)
        raise FactorError(f"the solver returned {got}, expected an array of shape {Y.shape}")
    if updated.size and updated.min() < 0:
        raise FactorError(f"the solver returned a negative entry: {updated.min():g}")
    return updated


def nearby_power(size: float) -> float:
    """Return a power of two near `size`, by which numbers are divided exactly; 1 if it is ordinary.

    >>> nearby_power(3e-9) == 2.0**-28, nearby_power(5.0)
    (True, 1.0)
    """
    if size <= 0 or 1e-6 < size < 1e6:
        return 1.0
    return 2.0 ** min(round(math.log2(size)), 1023)


def column_units(W: Array) -> Array:
    """Return for every column of W (F, K) a power of two near its largest entry."""
    return np.array([nearby_power(float(size)) for size in W.max(axis=0)])

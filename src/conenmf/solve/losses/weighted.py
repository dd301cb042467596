"""Least squares where entries are missing, or count more or less: sum of p (v - w h)^2.

Every sample has a Gram matrix of its own, G_n = sum_f p_nf w_f w_f', and every feature one too,
sum_n p_nf h_n h_n'. They cost K times as much as a plain iteration. Where less than half of the
entries is missing and none has another weight, most iterations fill the holes instead with the
current W H (Srebro and Jaakkola, "Weighted low-rank approximations", ICML 2003): with
R = p (V - WH) the update sees C = R'W + H G and the plain G = W'W. Nothing is filled in memory.

Filling alone is not enough. Where a component is nearly a single feature, a sample that lacks this
feature keeps the coefficient that it had, since the hole is filled with that; then the exact H at
the end is far from it. So one iteration in six, or twelve, has Gram matrices also there. All of
them lower the same objective. The end is exact, and so is `transform`.

With Gram matrices of the features a pass knows the value at any W; otherwise at its own W only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arguments import factor, flag, integer, optional
from ...data.blocks import Array, Block, exact, products, weighted_sums
from ...data.known import observed_residual, packed, row_grams, unpacked, weighed, weighted_grams
from ...data.matrix import Aligned, DataMatrix
from ...data.threads import run_in_order
from ...errors import DataError, OptionError
from ..coefficients import (
    Finish,
    coordinate_steps_own,
    exact_observed_rows,
    labels_of,
    shares_of,
    sorting,
)
from ..solvers import Update, packed_update, takes_packed
from .objective import Loss, Point, Sums, extrapolated

__all__ = ["Weighted"]

_MAX_FILLED = 0.5  # share of missing entries up to which they are filled in the loop
_GRAMS_EVERY = 6  # iterations, where others fill holes; chosen on indian_pines, digits and yale
_GRAMS_EVERY_OF_MANY = 12  # for more components than this, of which Gram matrices take long
_MANY = 22
_GRAM_NUMBERS = 1 << 19  # in the Gram matrices of rows that are made at a time
_BATCH_FEATURES = 256  # that a thread updates at a time


class Weighted(Loss):
    """The weighted squared error of the entries that are known.

    Parameters
    ----------
    V : DataMatrix (F, N)
        With `observed`.
    rescale : bool
        Not used: weights have units of their own.
    grams_every : int, optional
        One iteration in so many has Gram matrices, the others fill holes; by default 1 where half
        of the entries or more is missing, or weights differ.
    """

    name = "frobenius"
    takes_holes = True

    def __init__(
        self, V: DataMatrix, *, rescale: bool = True, grams_every: int | None = None
    ) -> None:
        super().__init__(V, rescale=flag("rescale", rescale) and False)
        observed = V.observed
        if observed is None:
            raise OptionError("all entries of V count alike: use Frobenius(V)")
        self.total = observed.total
        if not observed.is_mask or observed.missing >= _MAX_FILLED:
            grams_every = 1
        self._grams_every = optional(integer, "grams_every", grams_every, at_least=1)
        self._is_mask = observed.is_mask
        self.aligned = observed.aligned

    @staticmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> tuple[Any, ...]:
        """Update a block's rows of H and return them with the sums; see `Loss`."""
        weights, given = (given[0], given[1:]) if shared["is_weighted"] else (None, given)
        W, (H, *before) = shared["W"], given
        sums: Sums = {}
        if shared["has_grams"]:
            entries = exact(block) if shared["is_mask"] else weighed(block, weights)
            C = products(entries, W)
            updated = np.empty_like(H)
            for rows in _parts(len(H), W.shape[1]):
                part = None if weights is None else weights[rows]
                grams = row_grams(block[:, rows], part, shared["pairs"])
                updated[rows] = _updated(update, grams, C[rows], exact(H[rows]))
        else:
            left, _ = observed_residual(block, weights, W, exact(H))
            C = products(left, W) + exact(H) @ shared["G"]
            updated = update(shared["G"], C, exact(H)).astype(H.dtype, copy=False)
        moved = extrapolated(updated, before[0], beta, floor) if before and beta else updated
        rows_of = exact(moved)
        if shared["has_grams"]:
            sums["VH"] = weighted_sums(entries, rows_of)
            sums["grams"] = weighted_grams(block, weights, packed(rows_of))
        else:
            left, squares = observed_residual(block, weights, W, rows_of)
            sums = {"value": float(squares.sum()), "HH": rows_of.T @ rows_of}
            sums["VH"] = weighted_sums(left, rows_of)
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> dict[str, Any]:
        """Return W in float64, W'W, and the products of pairs of its columns if they are needed."""
        W = exact(W)
        usual = _GRAMS_EVERY if W.shape[1] <= _MANY else _GRAMS_EVERY_OF_MANY
        has_grams = self.number % (self._grams_every or usual) == 0
        self.known_at = Point.AFTER if has_grams else Point.BEFORE
        shared = {"W": W, "has_grams": has_grams, "is_mask": self._is_mask}
        shared["is_weighted"] = bool(self.aligned)
        return {**shared, "pairs": packed(W)} if has_grams else {**shared, "G": W.T @ W}

    def update_W(self, sums: Sums, W: Array, Ht: Aligned, update: Update) -> Array:
        """Update W from a Gram matrix for each feature, or from HH' and what holes are filled with.

        Features of which nothing is known are zero.
        """
        updated = np.empty_like(W)
        if "grams" in sums:
            parts = _parts(len(W), W.shape[1], _BATCH_FEATURES)

            def run(number: int) -> None:
                rows = parts[number]
                C, Y = sums["VH"][rows], exact(W[rows])
                updated[rows] = _updated(update, sums["grams"][rows], C, Y)

            run_in_order(run, _nothing, len(parts), self.V.n_threads)
        else:
            C = sums["VH"] + exact(W) @ sums["HH"]
            updated[:] = update(sums["HH"], C, exact(W))
        if not np.isfinite(updated).all() or updated.min() < 0:
            raise DataError("the solver returned entries that are negative or not finite")
        empty = self.V.observed.empty_features
        return np.where(empty[:, None], 0, updated) if empty.any() else updated

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the number that makes it best for the H of the sums."""
        product = float(np.vdot(sums["VH"], W))  # <pV, WH>, or that less <pWH, WH>
        if "grams" in sums:
            inner, squared = product, self._squares(sums, W)
        else:
            squared = self.total - 2 * product - sums["value"]
            inner = product + squared
        return W * (inner / squared) if squared > 0 else W

    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return the weighted squared error: with Gram matrices of features, at any W."""
        if "grams" in sums:
            inner = float(np.vdot(sums["VH"], exact(W)))
            value = max(float(self.total - 2 * inner + self._squares(sums, W)), 0.0)
        else:
            value = float(sums["value"])
        if not np.isfinite(value):
            raise DataError("the solver returned factors that are not finite: check its update")
        return value

    @staticmethod
    def _squares(sums: Sums, W: Array) -> float:
        """The weighted squares of W H, from the Gram matrix of each feature."""
        first, second = np.triu_indices(W.shape[1])
        return float(np.vdot(packed(W) * np.where(first == second, 1.0, 2.0), sums["grams"]))

    def objective(self, value: float) -> float:
        """Return the weighted squared error."""
        return value

    def relative_error(self, value: float) -> float:
        """Return its root, divided by that of the weighted sum of squares of known entries."""
        return float(np.sqrt(value / self.total)) if self.total else 0.0

    def finish(self, W: Array, **how: Any) -> Finish:
        """Return the exact H for W: nonnegative least squares on what is known of each sample."""
        V, n_first = self.V, how.get("n_first", 0)
        penalties, n_fixed = how.get("penalties"), how.get("n_fixed", 0)
        W = np.ascontiguousarray(factor("W", W, (V.shape[0], "K")), dtype=np.float64)
        shared: dict[str, Any] = {"W": W, "is_weighted": bool(self.aligned), "judge": True}
        if penalties is not None:
            shared |= {"term": penalties.on_H, "simplex": penalties.sum_to_one}
        with V.own_threads():
            Ht, sums = V.sweep(exact_observed_rows, *self.aligned, verify=True, **shared)
            shares = shares_of(W.T @ W, sums["HH"])
            order = sorting(shares, n_first)
            sizes = np.linalg.norm(W, axis=0)
            Ht, labels, _ = V.map(labels_of, Ht, out=(Ht, None), order=order, sizes=sizes)
        grams, VH, penalty = unpacked(sums["grams"], W.shape[1]), sums["VH"], sums["penalty"]
        term = None if penalties is None else penalties.on_W(V.total / V.shape[1])
        if term is not None:
            penalty += term.value(W)
            grams, VH = term.at(W)(grams, VH, W)
        steps = sums["steps"] + coordinate_steps_own(grams, VH, W, slice(n_fixed, None))
        squared = float(sums["squared"])
        residual = float(np.sqrt(steps / self.total)) if self.total else 0.0
        return Finish(Ht.T, labels, squared, squared + penalty, residual, order, shares[order])


def _updated(update: Update, grams: Array, C: Array, Y: Array) -> Array:
    """Apply an update with a Gram matrix for each row, packed."""
    if takes_packed(update):
        return packed_update(update, grams, C, Y)
    return update(unpacked(grams, C.shape[1]), C, Y)


def _nothing(index: int, result: None) -> None:
    """Results are written where they belong."""


def _parts(count: int, K: int, most: int | None = None) -> list[slice]:
    """Ranges of rows whose Gram matrices fit in the cache, or nearly."""
    size = max(1, _GRAM_NUMBERS // (K * K))
    size = size if most is None else min(size, most)
    return [slice(start, start + size) for start in range(0, count, size)]

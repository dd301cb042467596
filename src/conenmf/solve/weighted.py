"""Least squares where entries are missing, or count more or less: sum of p (v - w h)^2.

Every sample has a Gram matrix of its own, G_n = sum_f p_nf w_f w_f', and every feature one too,
sum_n p_nf h_n h_n'. They cost K times as much as a plain iteration. Where less than half of the
entries is missing and none has another weight, the loop fills the holes instead with the current
W H (Srebro and Jaakkola, "Weighted low-rank approximations", ICML 2003): with R = p (V - WH) the
update sees C = R'W + H G and the plain G = W'W. Nothing is filled in memory. The end is exact
either way, and so is `transform`.

A pass knows the value at its own W only: all that it sums is of that W.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import factor, flag
from ..data.blocks import Array, Block, exact, products, weighted_sums
from ..data.holes import (
    observed_residual,
    packed,
    row_grams,
    unpacked,
    weighed,
    weighted_grams,
)
from ..data.matrix import Aligned, DataMatrix
from ..errors import FactorError, OptionError
from .coefficients import (
    Finish,
    coordinate_steps_own,
    exact_observed_rows,
    labels_of,
    shares_of,
    sorting,
)
from .losses import Loss, Point, Sums, extrapolated
from .solvers import Update

__all__ = ["Weighted"]

_MAX_FILLED = 0.5  # share of missing entries up to which they are filled in the loop
_GRAM_NUMBERS = 1 << 22  # in the Gram matrices of rows that are made at a time


class Weighted(Loss):
    """The weighted squared error of the entries that are known.

    Parameters
    ----------
    V : DataMatrix (F, N)
        With `observed`.
    rescale : bool
        Not used: weights have units of their own.
    """

    name = "frobenius"
    known_at = Point.BEFORE

    def __init__(self, V: DataMatrix, *, rescale: bool = True) -> None:
        super().__init__(V, rescale=flag("rescale", rescale) and False)
        observed = V.observed
        if observed is None:
            raise OptionError("all entries of V count alike: use Frobenius(V)")
        self.total = observed.total
        self.has_grams = not observed.is_mask or observed.missing >= _MAX_FILLED
        self.aligned = () if observed.weights is None else (observed.weights,)

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
        if shared["has_grams"]:
            entries = weighed(block, weights)
            C, pairs = products(entries, W), shared["pairs"]
            updated = np.empty_like(H)
            for rows in _parts(len(H), W.shape[1]):
                part = None if weights is None else weights[rows]
                grams = unpacked(row_grams(block[:, rows], part, pairs), W.shape[1])
                updated[rows] = update(grams, C[rows], exact(H[rows]))
        else:
            left, _ = observed_residual(block, weights, W, exact(H))
            C = products(left, W) + exact(H) @ shared["G"]
            updated = update(shared["G"], C, exact(H)).astype(H.dtype, copy=False)
        moved = extrapolated(updated, before[0], beta, floor) if before and beta else updated
        rows_of = exact(moved)
        left, squares = observed_residual(block, weights, W, rows_of)
        sums: Sums = {"value": float(squares.sum()), "HH": rows_of.T @ rows_of}
        if shared["has_grams"]:
            sums["VH"] = weighted_sums(entries, rows_of)
            sums["grams"] = weighted_grams(block, weights, packed(rows_of))
        else:
            sums["VH"] = weighted_sums(left, rows_of)
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> dict[str, Any]:
        """Return W in float64, W'W, and the products of pairs of its columns if they are needed."""
        W = exact(W)
        shared = {"W": W, "G": W.T @ W, "has_grams": self.has_grams}
        shared["is_weighted"] = bool(self.aligned)
        return {**shared, "pairs": packed(W)} if self.has_grams else shared

    def update_W(self, sums: Sums, W: Array, Ht: Aligned, update: Update) -> Array:
        """Update W from a Gram matrix for each feature, or from HH' and what holes are filled with.

        Features of which nothing is known are zero.
        """
        if self.has_grams:
            updated = np.empty_like(W)
            for rows in _parts(len(W), W.shape[1]):
                grams = unpacked(sums["grams"][rows], W.shape[1])
                updated[rows] = update(grams, sums["VH"][rows], exact(W[rows]))
        else:
            C = sums["VH"] + exact(W) @ sums["HH"]
            updated = update(sums["HH"], C, exact(W)).astype(W.dtype, copy=False)
        if not np.isfinite(updated).all() or updated.min() < 0:
            raise FactorError("the solver returned entries that are negative or not finite")
        empty = self.V.observed.empty_features
        return np.where(empty[:, None], 0, updated) if empty.any() else updated

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the number that makes it best for the H of the sums."""
        product = float(np.vdot(sums["VH"], W))  # <pV, WH>, or that less <pWH, WH>
        if self.has_grams:
            inner, squared = product, sums["value"] - self.total + 2 * product
        else:
            squared = self.total - 2 * product - sums["value"]
            inner = product + squared
        return W * (inner / squared) if squared > 0 else W

    def value(self, sums: Sums, W: Array, at: Point) -> float:
        """Return the weighted squared error at the W of the pass."""
        value = float(sums["value"])
        if not np.isfinite(value):
            raise FactorError("the solver returned factors that are not finite: check its update")
        return value

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


def _parts(count: int, K: int) -> list[slice]:
    """Ranges of rows whose Gram matrices fit in the cache, or nearly."""
    size = max(1, _GRAM_NUMBERS // (K * K))
    return [slice(start, start + size) for start in range(0, count, size)]

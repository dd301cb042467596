"""Counts: their margins, and the best coefficients for given components.

With missing or weighted entries, only known counts enter, times their weights.

*Margins.* The best single component of complete counts is the product of the margins. With missing
or weighted entries, iterative proportional fitting finds it: both sides are scaled in turn until
the totals of the known entries are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...data.blocks import (
    Block,
    entries_of,
    exact,
    features_scaled,
    first_largest,
    over,
    products,
    sums_at,
    weighted_sums,
)
from ...data.entries import EntryWeights, row_grams, weigh, weighted_grams
from ...data.groups import Groups, groups_in, sums_by
from ...data.matrix import Aligned, DataMatrix
from ...data.views import Part, sweep_together
from ...types import Array, Facts
from ..coefficients import (
    own_order,
)
from ..constraints import NO_PENALTIES, Penalties, Term
from .poisson_regression import (
    BARRED,
    Restraint,
    Side,
    counts_of,
    dual_gaps,
    log_sums,
    ratios_of,
    regression,
    sample_sums,
)

# Relative difference up to which values, or shares of a sample, count as equal.
TIE_SHARE = 1e-6
_MAX_FITTING_PASSES = 500  # up to 200 are needed if few entries are known
_FITTED_SHARE = 1e-12  # of the total: fitting ends when the divergence falls by less


class Margins(NamedTuple):
    """The totals of V, and the divergence of one component.

    Attributes
    ----------
    samples : aligned (N,)
        The sum of each sample.
    features : array (F,)
        The sum of each feature.
    total : float
    divergence : float
        The divergence of the best single component, the product of the margins.
    of_weights : float
        sum p v log p over entries with the weights p: 0 if all p are 0 or 1.
    """

    samples: Aligned
    features: Array
    total: float
    divergence: float
    of_weights: float = 0.0

    @property
    def scale(self) -> float:
        """The divergence of one component, the unit of relative errors; the total if it is 0."""
        return self.divergence if self.divergence > 1e-12 * self.total else self.total

    @property
    def mean(self) -> Array:
        """The composition (F,) of all samples together, which sums to one."""
        return self.features / self.total


_measured: WeakKeyDictionary[DataMatrix, Margins] = WeakKeyDictionary()


def margins(V: DataMatrix) -> Margins:
    """Return the margins of the known entries of V; the first call takes one pass.

    >>> from conenmf import from_columns
    >>> margins(from_columns([[1, 2], [3, 6]])).features
    array([3., 9.])
    """
    margins_together(V, [V])
    return _measured[V]


def margins_together(V: DataMatrix, views: Sequence[DataMatrix]) -> None:
    """Compute the margins of views of V, or of V itself, in one pass for all of them."""
    parts = [
        Part(view, _measure, view.aligned_weights, {}, n_rows=1)
        for view in views
        if view not in _measured
    ]
    if not parts:
        return
    with V.own_threads():
        measured = sweep_together(V, parts)
        for part, (samples, (features, logs, of_weights)) in zip(parts, measured, strict=True):
            total = float(features.sum())
            logs = logs - of_weights
            if part.V.observed is None:
                (of_samples,) = V.map(lambda _, sums: (_xlogx(sums),), samples)
                null = logs + _xlogx(np.array([total])) - _xlogx(features) - of_samples
            else:
                null = _fitted(part.V, samples, features, logs)
            null = max(float(null), 0.0)
            _measured[part.V] = Margins(samples, features, total, null, of_weights)


def known_counts(block: Block, weights: EntryWeights, unit: float = 1.0) -> Block:
    """Return the entries of a block times their weights, compressed and without zeros."""
    plain = weights is None or weights.dtype == bool  # missing entries are zero already
    return counts_of(block if plain else weigh(block, weights), unit)


def logs_of_weights(counts: Block, weights: EntryWeights) -> float:
    """Return the sum of v log p over counts v that were multiplied by weights p."""
    if weights is None or weights.dtype == bool:
        return 0.0
    entries = entries_of(counts)
    return float(entries.values @ np.log(exact(weights[entries.samples, entries.features])))


def _measure(
    block: Block, weights: EntryWeights = None
) -> tuple[Array, tuple[Array, float, float]]:
    counts = known_counts(block, weights)
    features = sums_at(counts.indices, exact(counts.data), block.shape[0])
    logs = _xlogx(exact(counts.data))
    return sample_sums(counts), (features, logs, logs_of_weights(counts, weights))


def _fitted(V: DataMatrix, samples: Aligned, features: Array, logs: float) -> float:
    """Return the divergence of the best single component w h from the known entries of V."""
    weights = V.observed.aligned
    w = np.array(features)
    last = np.inf
    for _ in range(_MAX_FITTING_PASSES):
        ((of_samples, masses),) = V.sweep(_fit, samples, *weights, w=w)
        value = logs - features @ np.log(np.where(w > 0, w, 1.0)) - of_samples
        if last - value <= _FITTED_SHARE * features.sum():
            return float(min(value, last))
        last = value
        w = over(features, masses)
    return last


def _fit(
    block: Block, totals: Array, weights: EntryWeights = None, *, w: Array
) -> tuple[tuple[float, Array]]:
    """Return h for a given w as sum v log h, and its sums for each feature."""
    reached = row_grams(block, weights, w[:, None])[:, 0]
    h = over(totals, reached)
    there = h > 0
    logs = float(totals[there] @ np.log(h[there]))
    return ((logs, weighted_grams(block, weights, h[:, None])[:, 0]),)


def _xlogx(values: Array) -> float:
    """Return the sum of x log x, where 0 log 0 = 0."""
    positive = values[values > 0]
    return float(positive @ np.log(positive))


def restraints(penalties: Penalties, n_fixed: int = 0) -> tuple[Restraint, Restraint]:
    """Return the constraints on H and on W."""
    of_W = Restraint(penalties.l1_w, penalties.l2_w, n_fixed)
    return Restraint(penalties.l1_h, penalties.l2_h), of_W


def term_of(held: Restraint) -> Term:
    """Return l1 sum + l2 ||.||^2 / 2 as a term: the divergence has no factor of two."""
    return Term(held.l1 / 2, held.l2 / 2)


class GroupRates(NamedTuple):
    """How groups change the rates: by their scales (G, F), and by the table (G, K) if it has bars.

    `masses` (G, K) are the column sums of W times the scales of each group.
    """

    scales: Array
    table: Array | None
    masses: Array

    @classmethod
    def of(cls, groups: Groups | None, W: Array) -> GroupRates | None:
        """Return the rates of groups for W (F, K); None without groups."""
        if groups is None:
            return None
        scales = np.asarray(groups.scales)
        masses = scales @ exact(W)
        bars = groups.bars
        return cls(scales, bars, masses if bars is None else np.where(bars, masses, BARRED))

    def known_masses(self, block: Block, weights: EntryWeights, W: Array, codes: Array) -> Array:
        """Return the same (n, K) over the known entries of each sample."""
        masses = np.empty((len(codes), W.shape[1]))
        for group, own, some, of_some in groups_in(codes, block, weights):
            masses[own] = row_grams(some, of_some, self.scales[group][:, None] * W)
        return masses if self.table is None else np.where(self.table[codes], masses, BARRED)

    def sums(self, H: Array, codes: Array) -> Array:
        """Return for each feature the sums (F, K) of H (n, K) times the scales."""
        return self.scales.T @ sums_by(codes, H, len(self.scales))

    def known_sums(self, block: Block, weights: EntryWeights, H: Array, codes: Array) -> Array:
        """Return the same over the samples in which each feature is known."""
        sums = np.zeros((self.scales.shape[1], H.shape[1]))
        for group, own, some, of_some in groups_in(codes, block, weights):
            sums += self.scales[group][:, None] * weighted_grams(some, of_some, H[own])
        return sums


def _logs_of(counts: Block, codes: Array, scales: Array) -> float:
    """Return the sum of v log b over counts v and the scales b of their groups."""
    entries = entries_of(counts)
    own = scales[codes[entries.samples], entries.features]
    return float(exact(entries.values) @ np.log(own))


def logs_of_scales(V: DataMatrix, groups: Groups) -> float:
    """Return the sum of v log b over all counts v and the scales b of their groups; one pass."""
    codes = groups.codes_of(V)
    (logs,) = V.sweep(_log_scales, codes, *V.aligned_weights, scales=groups.scales)
    return float(logs)


def _log_scales(
    block: Block, codes: Array, weights: EntryWeights = None, *, scales: Array
) -> tuple[float]:
    return (_logs_of(known_counts(block, weights), codes, scales),)


class CountShared(NamedTuple):
    """W with its column sums, the unit of V, how V is stored, and what groups change."""

    side: Side
    unit: float
    in_both_orders: bool
    has_holes: bool
    groups: GroupRates | None = None

    def side_of(self, block: Block, weights: EntryWeights, codes: Any) -> Side:
        """Return W with its sums over the known entries of each sample, for its group."""
        side = self.side
        if self.groups is None:
            sums = row_grams(block, weights, side.W) if self.has_holes else side.sums
        elif self.has_holes:
            sums = self.groups.known_masses(block, weights, side.W, codes)
        else:
            sums = self.groups.masses[codes]
        return side._replace(sums=sums)

    def sums_of(self, block: Block, weights: EntryWeights, H: Array, codes: Any) -> Array:
        """Return the sums of H over samples: (K,), or (F, K) over what each feature knows."""
        if self.groups is None:
            return weighted_grams(block, weights, H) if self.has_holes else H.sum(axis=0)
        if self.has_holes:
            return self.groups.known_sums(block, weights, H, codes)
        return self.groups.sums(H, codes)


_TINY_SHARE = 1e-100  # of a component's largest entry: below it, coefficients are out of range


def regressions(
    V: DataMatrix,
    W: Array,
    penalties: Penalties = NO_PENALTIES,
    *,
    given: Aligned | None = None,
    groups: Groups | None = None,
) -> tuple[Aligned, Aligned, RegressionSums]:
    """Return the best H (K, N) for W, labels (N,), and sums for the errors; one pass.

    If H' is `given`, (N, K), its errors are computed without changing it.

    Features that are zero in all components are left out, because their rates are zero for every H.
    A label is the component with the largest share of the rates of a sample, the first one up to
    rounding, or -1 for a sample without counts.
    """
    aligned = V.aligned_weights
    order = np.arange(W.shape[1])
    is_seen = np.full(len(W), True)
    rows = aligned
    if given is None:
        W = np.where(W > _TINY_SHARE * W.max(axis=0), W, 0)
        order = own_order(W)
        is_seen = np.asarray(W.any(axis=1))
    else:
        rows = (*aligned, given)
    rates = None
    if groups is not None:
        rates = GroupRates.of(groups.sorted(order), W[:, order])
        rows = (V.align(groups.codes_of(V)), *rows)
    shared = CountShared(Side.of(W[:, order]), 1.0, False, V.observed is not None, rates)
    how: Facts = {"shared": shared, "places": np.argsort(order), "is_seen": is_seen}
    with V.own_threads():
        Ht, labels, sums = V.sweep(
            _regress, *rows, n_own=len(aligned), held=restraints(penalties)[0], **how
        )
    return Ht.T, labels, sums


class RegressionSums(NamedTuple):
    """The sums of `regressions`.

    Attributes
    ----------
    divergence : float
        That of the features with components.
    gap : float
        An upper bound on its excess over the minimum for this W.
    H : array (K,)
        The row sums of H.
    known : array (K,) or (F, K)
        The sums of H over the samples in which each feature is known.
    ratios : array (F, K)
        (V / X) H'.
    unseen : array (F,)
        The counts of features without components.
    n_impossible : int
        The number of counts whose rates are zero for a given H.
    penalty : float
        That of H.
    """

    divergence: float
    gap: float
    H: Array
    known: Array
    ratios: Array
    unseen: Array
    n_impossible: int
    penalty: float


def _regress(
    block: Block,
    *given: Array,
    shared: CountShared,
    places: Array,
    is_seen: Array,
    n_own: int,
    held: Restraint,
) -> tuple[Array, Array, RegressionSums]:
    """Step of `regressions`; columns are in their own order, `places` restores the caller's."""
    codes: Any = None
    if shared.groups is not None:
        codes, *given = given  # type: ignore[assignment]
    weights = given[0] if n_own else None
    kept = given[n_own:]
    counts = known_counts(block, weights)
    side = shared.side_of(block, weights, codes)
    unseen = sums_at(counts.indices, exact(counts.data), len(is_seen))
    unseen[is_seen] = 0.0
    if unseen.any():
        counts = counts_of(features_scaled(counts, is_seen.astype(float)))
    Y = exact(kept[0]) if kept else regression(counts, side, held)
    returned = Y.astype(block.dtype, copy=False)
    Y = exact(returned)
    totals = sample_sums(counts)
    shares = (Y * shared.side.sums)[:, places]
    labels = np.where(totals > 0, first_largest(shares.T, TIE_SHARE), -1)
    ratios = ratios_of(counts, side, Y)
    left = float(log_sums(counts, ratios).sum()) - logs_of_weights(counts, weights)
    if shared.groups is not None:
        left -= _logs_of(counts, codes, shared.groups.scales)
    of_H = Y.sum(axis=0)[places]
    known = shared.sums_of(block, weights, Y, codes)[..., places]
    sums = RegressionSums(
        divergence=left + float(np.sum(Y * side.sums) - totals.sum()),
        gap=float(dual_gaps(products(ratios, side.W), side.sums, Y, totals, held).sum()),
        H=of_H,
        known=known,
        ratios=weighted_sums(ratios, Y)[:, places],
        unseen=unseen,
        n_impossible=np.isinf(ratios.data).sum(),
        penalty=term_of(held).value(Y),
    )
    return np.ascontiguousarray(returned[:, places]), labels, sums

"""The totals of counts: of every sample, of every feature, and what one component leaves.

The best single component of complete counts is the product of the margins. Where entries are
missing or weighted it is found by scaling both sides in turn until the totals of what is known are
right, iterative proportional fitting, whose limit is the best one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ..data.blocks import Array, Block, SparseBlock, exact, sums_at
from ..data.entries import entries_of
from ..data.holes import row_grams, weighed, weighted_grams
from ..data.matrix import Aligned, DataMatrix
from ..data.together import Part, sweep_together
from ..data.validate import require_data_matrix
from .poisson_regression import counts_of, sample_sums

__all__ = ["Margins", "known_counts", "logs_of_weights", "margins", "margins_together"]

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

"""Held-out counts: how well components predict the counts of features that they do not see.

As in `held_out`, with the divergence in place of squared errors. Of each sample, the coefficients
are those of the Poisson regression on the features outside a fold, and the rates are compared with
the counts on the fold. Two things keep this finite. A rate may be zero where a count is not, so a
little of the mean of all components is mixed in. And where a sample has no counts outside the fold,
nothing is known of it: its rates are then those of the mean alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import array, factor, integer
from ..data.blocks import Array, Block, SparseBlock, exact, features_scaled
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from .held_out import feature_folds
from .poisson_regression import Side, counts_of, divergences_and_ratios, regression, sample_sums

__all__ = ["held_out_deviance"]

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
        missed += _divergences(inside, np.hstack([W, mean]) * member[:, None], joined)
    base = _divergences(counts, mean, totals[:, None])
    factors = 1.0 if weights is None else weights
    return ((float((factors * missed).sum()), float((factors * base).sum())),)


def _divergences(counts: SparseBlock, W: Array, H: Array) -> Array:
    """D(v | W h) of every sample."""
    logs, _ = divergences_and_ratios(counts, Side.of(W), H)
    divergences: Array = logs + H @ W.sum(axis=0) - sample_sums(counts)
    return divergences

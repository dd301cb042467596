"""Scores that compare a clustering with the truth, and factorisations with each other.

Normalised mutual information is scikit-learn's ``normalized_mutual_info_score`` with
``average_method="geometric"``. This module stands alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

__all__ = ["dice", "match_components", "purity"]

Array = npt.NDArray[Any]


def dice(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> float:
    """Mean over true classes A of the best 2 |A and B| / (|A| + |B|) over clusters B.

    >>> dice([0, 0, 1, 1], [1, 1, 1, 0])
    0.7333333333333334
    """
    table = _contingency(labels_true, labels_pred)
    sizes = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True)
    return float((2 * table / sizes).max(axis=1).mean())


def purity(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> float:
    """Share of the samples that are of the majority class of their cluster.

    >>> purity([0, 0, 1, 1], [1, 1, 1, 0])
    0.75
    """
    table = _contingency(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())


def match_components(W: npt.ArrayLike, W_other: npt.ArrayLike) -> tuple[Array, Array]:
    """Pair the components of two factorisations so that the sum of their cosines is largest.

    Parameters
    ----------
    W, W_other : arrays (F, K), (F, K')
        Components as columns; K <= K'.

    Returns
    -------
    order : array (K,)
        Column order[k] of `W_other` is the partner of column k of `W`.
    cosines : array (K,)

    Examples
    --------
    >>> order, cosines = match_components(np.eye(3), 2 * np.eye(3)[:, [2, 0, 1]])
    >>> order.tolist(), cosines.tolist()
    ([1, 2, 0], [1.0, 1.0, 1.0])
    """
    first, second = (_unit_columns(np.asarray(factor, dtype=float)) for factor in (W, W_other))
    if first.shape[0] != second.shape[0] or first.shape[1] > second.shape[1]:
        raise ValueError(
            f"components of shapes {first.shape} and {second.shape} cannot be paired: they need "
            "the same number of rows, and the first must not have more columns"
        )
    cosines = first.T @ second
    rows, order = linear_sum_assignment(-cosines)
    return order, cosines[rows, order]


def _unit_columns(factor: Array) -> Array:
    norms = np.linalg.norm(factor, axis=0)
    unit: Array = np.divide(factor, norms, out=np.zeros_like(factor), where=norms > 0)
    return unit


def _contingency(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> Array:
    true, pred = np.asarray(labels_true), np.asarray(labels_pred)
    if true.shape != pred.shape or true.ndim != 1 or true.size == 0:
        raise ValueError(
            f"labels have shapes {true.shape} and {pred.shape}: "
            "expected two lists of the same length, at least 1"
        )
    classes, row = np.unique(true, return_inverse=True)
    clusters, column = np.unique(pred, return_inverse=True)
    table = np.zeros((classes.size, clusters.size))
    np.add.at(table, (row, column), 1)
    return table

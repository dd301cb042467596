"""Scores that compare a clustering with the truth, and factorisations with each other.

Normalised mutual information is scikit-learn's, with the geometric mean, as in the paper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arguments import array, classes
from ..data.blocks import Array
from ..errors import FactorError, ShapeError

__all__ = ["cosines", "dice", "match_components", "purity", "scores", "unit_columns"]


def dice(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> float:
    """Return the mean over true classes A of the best 2 |A and B| / (|A| + |B|) over clusters B.

    >>> dice([0, 0, 1, 1], [1, 1, 1, 0])
    0.7333333333333334
    """
    table = _contingency(labels_true, labels_pred)
    sizes = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True)
    return float((2 * table / sizes).max(axis=1).mean())


def purity(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> float:
    """Return the share of the samples that are of the majority class of their cluster.

    >>> purity([0, 0, 1, 1], [1, 1, 1, 0])
    0.75
    """
    table = _contingency(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())


def _contingency(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> Array:
    """Return how many samples each pair of a class (row) and a cluster (column) shares."""
    true, pred = classes("labels_true", labels_true), classes("labels_pred", labels_pred)
    if true.shape != pred.shape:
        raise ShapeError(
            f"labels have shapes {true.shape} and {pred.shape}: "
            "expected two lists of the same length"
        )
    from sklearn.metrics.cluster import contingency_matrix  # slow to import

    table: Array = contingency_matrix(true, pred)
    return table


def scores(labels_true: npt.ArrayLike, labels_pred: npt.ArrayLike) -> dict[str, float]:
    """Return all scores of the paper: normalised mutual information, purity and Dice.

    >>> scores([0, 0, 1, 1], [5, 5, 3, 3])
    {'nmi': 1.0, 'purity': 1.0, 'dice': 1.0}
    """
    shares = {"purity": purity(labels_true, labels_pred), "dice": dice(labels_true, labels_pred)}
    true, pred = (classes("labels", labels) for labels in (labels_true, labels_pred))
    from sklearn.metrics import normalized_mutual_info_score

    nmi = normalized_mutual_info_score(true, pred, average_method="geometric")
    return {"nmi": float(nmi), **shares}


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

    Raises
    ------
    FactorError
        If the shapes differ in F, or K > K'.

    Examples
    --------
    >>> order, cosines = match_components(np.eye(3), 2 * np.eye(3)[:, [2, 0, 1]])
    >>> order.tolist(), cosines.tolist()
    ([1, 2, 0], [1.0, 1.0, 1.0])
    """
    first, second = (
        unit_columns(array(name, value, ("F", "K"), error=FactorError).astype(float))
        for name, value in (("W", W), ("W_other", W_other))
    )
    if first.shape[0] != second.shape[0]:
        raise FactorError(
            f"components of shapes {first.shape} and {second.shape} cannot be paired: they need "
            "the same number of rows, one for each feature"
        )
    if first.shape[1] > second.shape[1]:
        raise FactorError(
            f"W has {first.shape[1]} components and W_other only {second.shape[1]}: swap them, "
            "each component of the first gets one of the second"
        )
    similarity = first.T @ second
    from scipy.optimize import linear_sum_assignment

    rows, order = linear_sum_assignment(-similarity)
    return order, similarity[rows, order]


def cosines(W: Array) -> Array:
    """Return the cosines between the columns of W (F, K); 0 where one is zero."""
    unit = unit_columns(W)
    return unit.T @ unit


def unit_columns(W: Array) -> Array:
    """Return the columns of W (F, K) scaled to norm 1; zero ones stay zero."""
    norms = np.linalg.norm(W, axis=0)
    unit: Array = np.divide(W, norms, out=np.zeros_like(W), where=norms > 0)
    return unit

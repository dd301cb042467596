"""Scores of a clustering against known classes."""

from __future__ import annotations

from numpy.typing import ArrayLike

from ..arguments import classes
from ..errors import DataError


def scores(labels_true: ArrayLike, labels_pred: ArrayLike) -> dict[str, float]:
    """Return all scores of the paper: normalised mutual information, purity and Dice.

    Purity is the share of the samples that belong to the majority class of their cluster. Dice is
    the mean over true classes A of the largest 2 |A and B| / (|A| + |B|) over all clusters B.

    Parameters
    ----------
    labels_true, labels_pred : array (N,)
        The class and the cluster of each sample, as numbers or texts.

    Examples
    --------
    >>> scores([0, 0, 1, 1], [5, 5, 3, 3])
    {'nmi': 1.0, 'purity': 1.0, 'dice': 1.0}
    """
    true = classes("labels_true", labels_true)
    pred = classes("labels_pred", labels_pred)
    if true.shape != pred.shape:
        raise DataError(
            f"labels have shapes {true.shape} and {pred.shape}: "
            "expected two lists of the same length"
        )
    from sklearn.metrics import normalized_mutual_info_score  # slow to import
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(true, pred)
    sizes = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True)
    nmi = normalized_mutual_info_score(true, pred, average_method="geometric")
    return {
        "nmi": float(nmi),
        "purity": float(table.max(axis=0).sum() / table.sum()),
        "dice": float((2 * table / sizes).max(axis=1).mean()),
    }

"""How good is a factorisation: bounds on its relative error from above and below.

From above: the error of cr1-nmf is at most the largest sine of a size angle (Theorems 4 and
5 of the paper). From below: no factorisation with K components beats the truncated
singular value decomposition (Eckart and Young).
"""

from __future__ import annotations

import numpy as np

from .data import Array, Block, DataMatrix, cone_products, require_data_matrix
from .rank import singular_values

__all__ = ["cone_sines", "deterministic_bound", "lower_bound"]


def cone_sines(V: DataMatrix, W: Array, labels: Array) -> Array:
    """Return the sine of the angle between each sample and the axis of its cone; one pass.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
        Axes; their lengths do not matter.
    labels : array (N,)
        The cone of each sample, -1 for zero samples, whose sine is 0.
    """
    require_data_matrix(V)
    axes = np.ascontiguousarray(W.T, dtype=np.float64)
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    with V.own_threads():
        h, _ = V.sweep(_project, labels, Q=axes)
    squared = V.norms_squared
    cosine_squared = np.divide(h**2, squared, out=np.ones_like(h), where=squared > 0)
    sines: Array = np.sqrt(np.clip(1.0 - cosine_squared, 0.0, 1.0))
    return sines


def deterministic_bound(V: DataMatrix, W: Array, labels: Array) -> float:
    """Bound the relative error of cr1-nmf a posteriori: max_k sin(alpha_k) (Theorem 4).

    alpha_k is the size angle of the smallest circular cone round the axis w_k that holds all
    samples labelled k. The bound holds for any data and any axes, not only under the geometric
    assumption, because each sample's error is its length times the sine of its angle.

    Examples
    --------
    >>> from conenmf import cr1_nmf, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> W, H, cones = cr1_nmf(V, 2, first=0)
    >>> error = np.linalg.norm([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]] - W @ H) / V.norm
    >>> bool(error <= deterministic_bound(V, W, cones.labels))
    True
    """
    return float(cone_sines(V, W, labels).max())


def lower_bound(V: DataMatrix, K: int) -> float:
    """Return sqrt(sum_{j > K} sigma_j^2) / ||V||: no K components have a smaller relative error.

    >>> from conenmf import from_columns
    >>> round(lower_bound(from_columns([[2.0, 0.0], [0.0, 1.0]]), 1), 6)
    0.447214
    """
    require_data_matrix(V, nonzero=True)
    if min(V.shape) <= K:
        return 0.0
    explained = float(np.sum(singular_values(V, K) ** 2)) / float(V.norms_squared.sum())
    return float(np.sqrt(max(1.0 - explained, 0.0)))


def _project(block: Block, labels: Array, *, Q: Array) -> tuple[Array, None]:
    return cone_products(block, labels, Q, sums=False)[0], None

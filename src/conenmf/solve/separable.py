"""Successive projection: samples that are far from what the samples chosen so far can express.

SPA (Araujo et al., 2001; Gillis and Vavasis, 2014) and SNPA (Gillis, 2014) solve NMF exactly if
the data are separable, that is, if every component occurs as a sample. They are the strongest
rivals of Algorithm 1 as starts: Algorithm 1 looks for samples in new directions, these for samples
outside the span, or outside the convex hull, of those chosen.
"""

from __future__ import annotations

import numpy as np

from ..cones.greedy import LazyScores, Score
from ..data.blocks import Array, Block
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, check_components
from ..linalg.nnls import nnls

__all__ = ["snpa", "spa"]

_BISECTIONS = 40


def spa(V: DataMatrix, K: int) -> Array:
    """Choose K samples by the successive projection algorithm; returns their indices.

    Each is the sample with the largest distance to the span of those before it.

    >>> from conenmf import from_columns
    >>> spa(from_columns([[4.0, 0.0, 2.0], [0.0, 3.0, 1.5]]), 2)
    array([0, 1])
    """
    F, lazy, chosen = _begin(V, K, _outside_span)
    Q = np.empty((F, K), order="F")  # orthonormal basis of the span
    for k in range(K):
        chosen[k], score, column = lazy.worst(k, chosen[:k], Q=Q[:, :k])
        _require_new(score, float(column @ column), k, K, "linearly independent samples")
        for _ in range(2):
            column = column - Q[:, :k] @ (Q[:, :k].T @ column)
        Q[:, k] = column / np.linalg.norm(column)
    return chosen


def _outside_span(block: Block, squared: Array, *, seen: int, Q: Array) -> Array:
    """Squared distances to the span of the orthonormal columns of Q."""
    products = block.astype(np.float64, copy=False).T @ Q
    outside: Array = squared - (products**2).sum(axis=1)
    return outside


def snpa(V: DataMatrix, K: int) -> Array:
    """Choose K samples by the successive nonnegative projection algorithm; returns their indices.

    Each is the sample with the largest distance to the convex hull of zero and those before
    it. Unlike `spa` it is not limited to as many samples as there are dimensions.

    >>> from conenmf import from_columns
    >>> snpa(from_columns([[4.0, 0.0, 2.0, 3.0], [0.0, 3.0, 1.5, 3.0]]), 3)
    array([3, 0, 1])
    """
    F, lazy, chosen = _begin(V, K, _outside_hull)
    W = np.empty((F, K), order="F")
    for k in range(K):
        chosen[k], score, W[:, k] = lazy.worst(k, chosen[:k], W=W[:, :k])
        squared = float(W[:, k] @ W[:, k])
        _require_new(score, squared, k, K, "samples outside the hull of others")
    return chosen


def _outside_hull(block: Block, squared: Array, *, seen: int, W: Array) -> Array:
    """Squared distances to the convex hull of zero and the columns of W."""
    G, C = W.T @ W, block.astype(np.float64, copy=False).T @ W
    H = _in_simplex(G, C)
    fitted = 2 * np.einsum("nk,nk->n", C, H) - np.einsum("nk,nk->n", H @ G, H)
    distance: Array = squared - fitted
    return distance


def _begin(V: DataMatrix, K: int, score: Score) -> tuple[int, LazyScores, Array]:
    require_data_matrix(V, nonzero=True)
    K = check_components(K)
    if K > V.shape[1]:
        raise ComponentsError(f"there are {V.shape[1]} samples, fewer than the {K} asked for")
    lazy = LazyScores(V, V.norms_squared, score, chosen=0, tie=1e-12, relative=True)
    return V.shape[0], lazy, np.empty(K, dtype=np.intp)


def _require_new(score: float, squared: float, k: int, K: int, what: str) -> None:
    if score <= 1e-12 * squared:
        raise ComponentsError(
            f"the data have only {k} {what}, fewer than the {K} components asked for: "
            f"use at most {k}"
        )


def _in_simplex(G: Array, C: Array) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 with sum(y) <= 1, for every row c of C.

    Where the sum of the free solution is above 1, the multiplier of the constraint, which is
    subtracted from c, is found by bisection.
    """
    Y = nnls(G, C)
    over = np.flatnonzero(Y.sum(axis=1) > 1)
    low, high = np.zeros(over.size), np.maximum(C[over].max(axis=1, initial=0.0), 0.0)
    for _ in range(_BISECTIONS if over.size else 0):
        middle = (low + high) / 2
        Y[over] = nnls(G, C[over] - middle[:, None], Y[over])
        outside = Y[over].sum(axis=1) > 1
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    return Y

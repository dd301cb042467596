"""Successive projection: samples that those chosen so far cannot express.

SPA (Araujo et al., 2001; Gillis and Vavasis, 2014) and SNPA (Gillis, 2014) solve NMF exactly if the
data are separable, that is, if every component occurs as a sample. They are the strongest
alternatives to Algorithm 1 as inits: Algorithm 1 looks for samples in new directions, these for
samples outside the span, or outside the convex hull, of those chosen.
"""

from __future__ import annotations

import numpy as np

from ..arguments import components
from ..cones.greedy import LazyScores, Score
from ..data.blocks import Array, Block, exact
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError
from ..linalg.nnls import nnls

__all__ = ["nnls_in_simplex", "snpa", "spa"]

_N_BISECTIONS = 40
_NEGLIGIBLE_SHARE = 1e-12  # share of a squared norm up to which rounding counts as zero


def spa(V: DataMatrix, K: int) -> Array:
    """Choose K samples by the successive projection algorithm; returns their indices.

    Each is the sample with the largest distance to the span of those before it.

    >>> from conenmf import from_columns
    >>> spa(from_columns([[4.0, 0.0, 2.0], [0.0, 3.0, 1.5]]), 2)
    array([0, 1])
    """
    F, lazy, indices = _begin(V, K, _outside_span)
    Q = np.empty((F, K), order="F")  # orthonormal basis of the span
    for k in range(K):
        indices[k], score, column = lazy.worst(k, indices[:k], Q=Q[:, :k])
        _require_new(score, float(column @ column), k, K, "linearly independent samples")
        for _ in range(2):
            column = column - Q[:, :k] @ (Q[:, :k].T @ column)
        Q[:, k] = column / np.linalg.norm(column)
    return indices


def _outside_span(block: Block, squared: Array, *, n_choices: int, Q: Array) -> Array:
    """Squared distances to the span of the orthonormal columns of Q."""
    products = exact(block).T @ Q
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
    F, lazy, indices = _begin(V, K, _outside_hull)
    W = np.empty((F, K), order="F")
    for k in range(K):
        indices[k], score, W[:, k] = lazy.worst(k, indices[:k], W=W[:, :k])
        squared = float(W[:, k] @ W[:, k])
        _require_new(score, squared, k, K, "samples outside the hull of others")
    return indices


def _outside_hull(block: Block, squared: Array, *, n_choices: int, W: Array) -> Array:
    """Squared distances to the convex hull of zero and the columns of W."""
    G, C = W.T @ W, exact(block).T @ W
    H = nnls_in_simplex(G, C)
    fitted = 2 * np.einsum("nk,nk->n", C, H) - np.einsum("nk,nk->n", H @ G, H)
    distance: Array = squared - fitted
    return distance


def _begin(V: DataMatrix, K: int, score: Score) -> tuple[int, LazyScores, Array]:
    require_data_matrix(V, nonzero=True)
    K = components(K)
    if K > V.shape[1]:
        raise ComponentsError(
            f"there are {V.shape[1]} samples, fewer than the {K} asked for: ask for fewer"
        )
    lazy = LazyScores(V, V.norms_squared, score, n_choices=0, tie=1e-12, relative=True)
    return V.shape[0], lazy, np.empty(K, dtype=np.intp)


def _require_new(score: float, squared: float, k: int, K: int, what: str) -> None:
    if score <= _NEGLIGIBLE_SHARE * squared:
        raise ComponentsError(
            f"the data have only {k} {what}, fewer than the {K} components asked for: "
            f"use at most {k}"
        )


def nnls_in_simplex(G: Array, C: Array) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 with sum(y) <= 1, for every row c of C.

    Where the sum of the free solution is above 1, the multiplier of the constraint, which is
    subtracted from c, is found by bisection.
    """
    Y = nnls(G, C)
    rows = np.flatnonzero(Y.sum(axis=1) > 1)
    low, high = np.zeros(rows.size), np.maximum(C[rows].max(axis=1, initial=0.0), 0.0)
    for _ in range(_N_BISECTIONS if rows.size else 0):
        middle = (low + high) / 2
        Y[rows] = nnls(G, C[rows] - middle[:, None], Y[rows])
        outside = Y[rows].sum(axis=1) > 1
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    return Y

"""Separable data: components that occur as samples.

Data are separable if every component occurs as a sample and all other samples are mixtures of
these, with weights that sum to at most 1. They are near-separable if this holds up to noise. SPA
(Araujo et al., 2001; Gillis and Vavasis, 2014) and SNPA (Gillis, 2014) find such samples. As inits
they are the strongest alternatives to Algorithm 1. Algorithm 1 looks for samples in new directions;
SPA and SNPA look for samples outside the span, or outside the convex hull, of the chosen ones. The
paper leaves open which relative error follows; `separable_bound` of `solve.theorems` bounds it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.linalg import qr

from ..arguments import components
from ..cones.clustering import LazyScores, Score
from ..data.blocks import Block, exact, slices
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError
from ..linalg.nnls import nnls
from ..types import Array
from .constraints import sum_to_one

_GRAM_NUMBERS = 1 << 21  # in the matrices of samples that are compared at a time
_NEGLIGIBLE_SHARE = 1e-12  # of a squared norm: smaller values are rounding


def spa(V: DataMatrix, K: int) -> Array:
    """Choose K samples by the successive projection algorithm; returns their indices.

    Each is the sample with the largest distance to the span of the earlier ones.

    >>> from conenmf import from_columns
    >>> spa(from_columns([[4.0, 0.0, 2.0], [0.0, 3.0, 1.5]]), 2)
    array([0, 1])
    """
    return _successive(V, K, _outside_span, lambda W: qr(W)[0], "linearly independent samples")


def _outside_span(block: Block, squared: Array, *, n_choices: int, W: Array) -> Array:
    """Return squared distances to the span of the columns of W, which are orthonormal."""
    products = exact(block).T @ W
    return squared - (products**2).sum(axis=1)


def snpa(V: DataMatrix, K: int) -> Array:
    """Choose K samples by the successive nonnegative projection algorithm; returns their indices.

    Each is the sample with the largest distance to the convex hull of zero and the earlier ones.
    Unlike `spa` it can choose more samples than there are dimensions.

    >>> from conenmf import from_columns
    >>> snpa(from_columns([[4.0, 0.0, 2.0, 3.0], [0.0, 3.0, 1.5, 3.0]]), 3)
    array([3, 0, 1])
    """
    return _successive(V, K, outside_hull, np.asarray, "samples outside the hull of others")


def outside_hull(block: Block, squared: Array, *, n_choices: int, W: Array) -> Array:
    """Return squared distances to the convex hull of zero and the columns of W."""
    G = W.T @ W
    C = exact(block).T @ W
    H = nnls_in_simplex(G, C)
    gained = 2 * np.vecdot(C, H)
    return squared - (gained - np.vecdot(H @ G, H))


def _successive(
    V: DataMatrix, K: int, score: Score, seen: Callable[[Array], Array], what: str
) -> Array:
    """Repeatedly choose the sample with the largest score.

    Scores depend on the chosen samples, W (F, k), through the function `seen`.
    """
    require_data_matrix(V, nonzero=True)
    K = components(K)
    lazy = LazyScores(V, V.norms_squared, score, n_choices=0, tie=1e-12, relative=True)
    W = np.empty((V.n_features, K), order="F")
    indices = np.empty(K, dtype=np.intp)
    for k in range(K):
        indices[k], largest, column = lazy.worst(k, W=seen(W[:, :k]))
        W[:, k] = column
        if largest <= _NEGLIGIBLE_SHARE * (column @ column):
            raise ComponentsError(
                f"the data have only {k} {what}, fewer than the {K} components asked for: "
                f"use at most {k}"
            )
    return indices


def nnls_in_simplex(G: Array, C: Array) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 with sum(y) <= 1, for every row c of C.

    If the sum of the unconstrained solution exceeds 1, the sum of the best one is 1.
    """
    Y = nnls(G, C)
    outside = np.flatnonzero(Y.sum(axis=1) > 1)
    for part in slices(outside.size, 1 + _GRAM_NUMBERS // G.size):
        Y[outside[part]] = sum_to_one(G, C[outside[part]])
    return Y

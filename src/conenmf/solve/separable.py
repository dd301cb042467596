"""Separable data: components that occur as samples.

Data are separable if every component occurs as a sample and all other samples are mixtures of
these, with weights that sum to at most 1. They are near-separable if this holds up to noise. SPA
(Araujo et al., 2001; Gillis and Vavasis, 2014) and SNPA (Gillis, 2014) find such samples. As inits
they are the strongest alternatives to Algorithm 1. Algorithm 1 looks for samples in new directions;
SPA and SNPA look for samples outside the span, or outside the convex hull, of the chosen ones. The
paper leaves open which relative error follows; `separable_bound` bounds it. Statements and proofs
are in the documentation, on the page "Theorems, code and tests", section "Near-separable data".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.linalg import norm, qr, svd
from numpy.typing import ArrayLike

from ..arguments import components
from ..cones.clustering import LazyScores, Score
from ..data.blocks import Array, Block, dense, exact, slices
from ..data.matrix import DataMatrix, PerSample
from ..data.validate import require_data_matrix
from ..errors import ComponentsError
from ..linalg.nnls import nnls
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
    return _successive(V, K, _outside_hull, np.asarray, "samples outside the hull of others")


def _outside_hull(block: Block, squared: Array, *, n_choices: int, W: Array) -> Array:
    """Return squared distances to the convex hull of zero and the columns of W."""
    G = W.T @ W
    C = exact(block).T @ W
    H = nnls_in_simplex(G, C)
    fitted = 2 * np.vecdot(C, H) - np.vecdot(H @ G, H)
    return squared - fitted


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
        indices[k], largest, W[:, k] = lazy.worst(k, W=seen(W[:, :k]))
        if largest <= _NEGLIGIBLE_SHARE * float(W[:, k] @ W[:, k]):
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


_SPA_CONSTANT = 80.0  # from Gillis and Vavasis (2014), Theorem 3


@dataclass(frozen=True)
class SeparableBound:
    """Bounds for V if some of its samples are used as the components.

    Attributes
    ----------
    noise : float
        epsilon, the largest distance of a sample to the convex hull of zero and the chosen samples.
        V is separable with these components up to noise of this norm in each sample.
    condition : float
        The largest norm of a chosen sample divided by their smallest singular value.
    error : float
        With these samples as W, the relative error of the best H is at most this.
    spa_noise : float
        If epsilon is below this, SPA is certain to find components of V.
    spa_error : float
        If epsilon is below `spa_noise`, any samples that SPA may choose have at most this relative
        error with the best H; otherwise infinite.
    """

    noise: float
    condition: float
    error: float
    spa_noise: float
    spa_error: float


def separable_bound(V: DataMatrix, samples: ArrayLike) -> SeparableBound:
    """Bound the error of a factorization whose components are samples.

    Let W be the chosen samples, C the largest of their norms, sigma their smallest singular value,
    and d_n the distance of sample n to the convex hull of zero and W. Then

    ||V - W H|| / ||V|| <= sqrt(sum_n d_n^2) / ||V|| <= sqrt(N) epsilon / ||V||

    If epsilon = max d_n < sigma min(1 / (2 sqrt(K - 1)), 1/4) / (1 + 80 C^2 / sigma^2), any samples
    that SPA chooses have, with the best H, a relative error of at most sqrt(N) epsilon (2 + 80 C^2
    / sigma^2) / ||V||.

    Parameters
    ----------
    V : DataMatrix (F, N)
    samples : array (K,), integers
        The chosen samples, for example from `conenmf.solve.separable.spa`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> bound = separable_bound(from_columns([[4.0, 0.0, 2.0], [0.0, 3.0, 1.5]]), [0, 1])
    >>> bound.noise < 1e-12, round(bound.condition, 4), bound.error < 1e-12
    (True, 1.3333, True)
    """
    N = V.n_samples
    chosen = np.asarray(samples)
    W = np.ascontiguousarray(exact(dense(V.columns(chosen))))
    with V.own_threads():
        squares, _ = V.sweep(_distances, V.norms_squared, W=W)
    K = chosen.size
    apart = np.asarray(squares)
    epsilon = math.sqrt(apart.max())
    sigma = float(svd(W, compute_uv=False)[K - 1]) if K <= V.n_features else 0.0
    longest = float(norm(W, axis=0).max())
    condition = longest / sigma if sigma > 0 else np.inf
    amplified = 1.0 + _SPA_CONSTANT * condition**2
    spa_noise = sigma * min(0.5 / np.sqrt(K - 1) if K > 1 else np.inf, 0.25) / amplified
    within = epsilon < spa_noise
    spa_error = np.sqrt(N) * epsilon * (1.0 + amplified) / V.norm if within else np.inf
    return SeparableBound(
        noise=epsilon,
        condition=float(condition),
        error=math.sqrt(apart.sum() / V.total),
        spa_noise=float(spa_noise),
        spa_error=float(spa_error),
    )


def _distances(block: Block, squared: Array, *, W: Array) -> PerSample:
    """Return squared distances to the hull of zero and W, at least 0 in spite of rounding."""
    return np.maximum(_outside_hull(block, squared, n_choices=0, W=W), 0.0), None

"""The span of all fits that are as good as a given one.

Let sigma_j and u_j be the singular values and left singular vectors of V, and let W' H' be any K
components with an error ||V - W' H'|| <= e. Then

    sum_{j <= K} (sigma_j^2 - sigma_{K+1}^2) sin^2(u_j, span W') <= e^2 - sum_{j > K} sigma_j^2.

So the columns of W' span nearly the same space as u_1, ..., u_K if the error is near its lower
bound and sigma_K is far above sigma_{K+1}. Components may differ within this space. The proof is in
docs/theory.md, "The span of good fits".
"""

from __future__ import annotations

import math

import numpy as np

from ..data.blocks import Block, exact, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..linalg.svd import Spectrum
from ..text import counted
from ..types import Array, Pair

_ROUNDING = 1e-12  # of ||V||^2: rounding of squared errors and of squared singular values
_TELLING_ANGLE = math.radians(10)


def span_angles(
    V: DataMatrix,
    W: Array,
    Ht: Aligned,
    *,
    ratio: float = 1.0,
) -> Array:
    """Bound the angle of u_1, ..., u_K to the span of any fit whose error is at most as large.

    The last bound, pi / 2 if nothing is proved, also holds for the largest principal angle between
    both spans. Nothing is returned if there are as many components as features or samples, or if
    both sides of V are so long that its singular values are not certain.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Complete data, fitted by least squares.
    W : array (F, K)
    Ht : array (N, K)
    ratio : float
        The errors of other fits may be this many times as large.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> rng = np.random.default_rng(0)
    >>> V = from_columns(rng.random((20, 3)) @ rng.random((3, 60)) + 0.01 * rng.random((20, 60)))
    >>> result = factorize(V, 3)
    >>> span_in_words(span_angles(V, result.W, result.H.T))
    'every fit as good as this one spans the same space, within 0.1°'
    """
    K = W.shape[1]
    if min(V.shape) <= K:
        return np.zeros(0)
    spectrum = Spectrum(V)
    energy, chance = spectrum.energy_bound(K)
    if chance > 0:
        return np.zeros(0)
    squares = spectrum.singular_values(K + 1) ** 2
    gaps = squares[:K] - squares[K] - _ROUNDING * V.total
    error = ratio**2 * _squared_error(V, W, Ht)
    slack = max(error - (V.total - energy), 0.0) + _ROUNDING * V.total
    return np.arcsin(np.sqrt(slack / np.maximum(gaps, slack)))


def span_in_words(angles: Array) -> str:
    """Describe the bounds of `span_angles`; "" if under a third of them is within 10 degrees.

    The first direction is near the mean of the samples, so by itself it tells little.
    """
    n_near = int(np.count_nonzero(angles <= _TELLING_ANGLE))
    if 3 * n_near < max(angles.size, 1):
        return ""
    if n_near == angles.size:
        degrees = math.ceil(10 * math.degrees(angles[-1])) / 10
        return f"every fit as good as this one spans the same space, within {degrees:.1f}°"
    directions = counted(angles.size, "leading direction")
    return f"every fit as good as this one contains {n_near} of the {directions}, within 10°"


def _squared_error(V: DataMatrix, W: Array, Ht: Aligned) -> float:
    """Return ||V - W H||^2 to a relative 1e-15 of ||V||^2; one pass."""
    ((products, gram),) = V.sweep(products_and_gram, Ht)
    return float(V.total - 2 * np.vdot(products, W) + np.vdot(W.T @ W, gram))


def products_and_gram(block: Block, H: Array) -> tuple[Pair]:
    """Return V H' and H H' of a block, a step of `sweep`."""
    H = exact(H)
    return ((exact(weighted_sums(exact(block), H)), H.T @ H),)

"""Angles that are accurate however small they are.

The cosine of an angle below 1e-8 rad is rounded to 1: cos t = 1 - t^2 / 2 + ... The distance of two
unit vectors keeps its digits, ||x - y|| = 2 sin(t / 2), if the difference x - y is formed
before its norm. That costs as much as reading the vectors again, so it is done where the distance
is small and its square, 2 - 2 <x, y>, would lose digits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..data.blocks import Array, Block, cone_products, dense, norms
from ..data.matrix import Aligned, DataMatrix

__all__ = ["angle_at", "angles_between", "largest_angle", "sine_at", "squared_distances"]

_DOUBTFUL_SQ = 1e-4  # a squared distance below this comes from the difference itself
_NARROW_SQ = 1e-8  # one that does so even if that takes a pass of its own
_SAMPLES_AT_ONCE = 256  # made dense


def squared_distances(block: Block, labels: Array, squared: Array, points: Array) -> Array:
    """Return ||v_n / ||v_n|| - p_label(n)||^2 for every sample of a block.

    Parameters
    ----------
    block : block (F, n)
    labels : array (n,)
        -1 counts as 0; what is returned for a zero sample is of no use.
    squared : array (n,)
        ||v_n||^2.
    points : array (K, F)
        Unit vectors, or any points p_k.
    """
    length, cones = norms(squared), np.maximum(labels, 0)
    products, _ = cone_products(block, labels, points, sums=False)
    distances: Array = 1.0 + np.vecdot(points, points)[cones] - 2.0 * products / length
    doubtful = np.flatnonzero(distances < _DOUBTFUL_SQ)
    for part in np.array_split(doubtful, 1 + doubtful.size // _SAMPLES_AT_ONCE):
        difference = np.ascontiguousarray(dense(block[:, part]).T / length[part, None])
        difference -= points[cones[part]]
        distances[part] = np.vecdot(difference, difference)
    return distances


def largest_angle(V: DataMatrix, labels: Aligned, Z: Array, smallest_cosine: float) -> float:
    """Return the largest angle between a sample and its own column of Z (F, K), unit vectors.

    The smallest cosine gives it, unless it is small: then it takes a pass. A sample labelled -1
    has none.
    """
    distance_sq = 2.0 - 2.0 * smallest_cosine
    if distance_sq < _NARROW_SQ:
        points = np.ascontiguousarray(Z.T)
        (distance_sq,) = V.sweep(_farthest, labels, V.norms_squared, reduce=max, points=points)
    return float(angle_at(distance_sq))


def _farthest(block: Block, labels: Array, squared: Array, *, points: Array) -> tuple[float]:
    distances = squared_distances(block, labels, squared, points)
    return (float(distances.max(where=labels >= 0, initial=0.0)),)


def angles_between(A: Array, B: Array) -> Array:
    """Return the angles (m, n) between unit vectors, the columns of A (F, m) and of B (F, n).

    >>> A = np.array([[1.0], [0.0]])
    >>> B = np.array([[1.0, 0.0], [1e-12, 1.0]])
    >>> [f"{angle:.6g}" for angle in angles_between(A, B)[0]]
    ['1e-12', '1.5708']
    """
    distances = 2.0 - 2.0 * (A.T @ B)
    for i, j in np.argwhere(distances < _DOUBTFUL_SQ):
        difference = A[:, i] - B[:, j]
        distances[i, j] = difference @ difference
    return angle_at(distances)


def angle_at(distance_squared: npt.ArrayLike) -> Array:
    """Return the angle between two unit vectors, given the square of their distance."""
    half = np.sqrt(np.clip(distance_squared, 0.0, 4.0)) / 2
    angle: Array = 2 * np.arcsin(half)
    return angle


def sine_at(distance_squared: npt.ArrayLike) -> Array:
    """Return the sine of the angle between two unit vectors, given the square of their distance."""
    q = np.clip(distance_squared, 0.0, 4.0)
    sine: Array = np.sqrt(q * (1.0 - q / 4))
    return sine

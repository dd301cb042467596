"""The rank of a matrix above the rounding of its entries.

Each entry may be wrong by eps of its type times the largest entry of its feature. A singular value
of the features scaled to largest entries of one is *above rounding* if no such errors can have made
it. `rank_above_rounding` counts these values, so every matrix that rounds to V has at least this
rank. It works with V itself, not with VV', which would lose half of the digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm, svd
from numpy.random import default_rng

from ..data.blocks import EPS, TINY
from ..types import Array

_MARGIN = 8.0  # the rounding of products and of singular values, in units of the rounding of data
_MAX_RANK = 100  # that is distinguished from full rank


class Rank(NamedTuple):
    """The rank of a matrix above rounding.

    Attributes
    ----------
    number : int
        Every matrix that rounds to V has at least this rank.
    is_exact : bool
        Whether a matrix of this rank rounds to V.
    rounding : float
        The Frobenius norm that errors of rounding may have, after features are scaled.
    is_full : bool
        Whether no rank is larger: the number of features or samples that are not zero.
    """

    number: int
    is_exact: bool
    rounding: float
    is_full: bool


def scaled_features(B: Array) -> Array:
    """Return B with the largest entry of every feature (row) scaled to one."""
    return B / np.maximum(B.max(axis=1, keepdims=True), TINY)


def rank_above_rounding(B: Array, eps: float = EPS) -> Rank:
    """Count the singular values of B (F, n), with scaled features, that are above rounding.

    At most 100 are counted.

    >>> rng = np.random.default_rng(0)
    >>> B = rng.random((8, 3)) @ rng.random((3, 90))
    >>> B[0] = 1.7e9 + 1e6 * rng.random(90)  # a time stamp
    >>> rank_above_rounding(B)[:2]
    (4, True)
    """
    B = scaled_features(B)
    rounding = _MARGIN * eps * math.sqrt(B.size)
    sketch = B
    if min(B.shape) > _MAX_RANK:
        sketch = B @ default_rng(0).standard_normal((B.shape[1], _MAX_RANK))
    U, sizes, _ = svd(sketch, full_matrices=False)
    Q = U[:, sizes > EPS * max(B.shape) * sizes[0]]
    C = Q.T @ B
    sigma = svd(C, compute_uv=False)
    count = int(np.count_nonzero(sigma > rounding))
    left = math.hypot(norm(B - Q @ C), norm(sigma[count:]))
    most = min(B.any(axis=0).sum(), B.any(axis=1).sum())
    return Rank(max(count, 1), left <= rounding, rounding, bool(count >= most))

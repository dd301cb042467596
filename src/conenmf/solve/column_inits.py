"""Inits from columns of V drawn at random (Langville, Meyer, Albright, Cox and Duling, 2006).

Components are means of a few samples each, or samples that are drawn in proportion to their squared
norms, as a CUR decomposition does (Drineas, Kannan and Mahoney, 2006). They are cheap, and keep the
zeros that all samples of a mean share. H is uniform on [0, 1).
"""

from __future__ import annotations

import numpy as np

from ..cones.clustering import require_samples
from ..data.blocks import Array, dense
from ..data.matrix import DataMatrix
from ..data.sampling import draw_longest, draw_samples, draw_weighted
from .initial import Factors, Generator, random_coefficients

__all__ = ["COLUMN_INITS", "acol", "cur", "random_c"]

_SAMPLES_PER_MEAN = 20  # as in the published experiments
_LONGEST_SHARE = 0.2  # of the samples that random C draws from


def acol(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Random Acol: each component is the mean of 20 samples drawn at random."""
    rng = np.random.default_rng(rng)
    require_samples(V, K)
    count = min(_SAMPLES_PER_MEAN, V.nonzero)
    groups = [draw_samples(V, count, rng) for _ in range(K)]
    return _means(V, groups), random_coefficients(V, K, rng)


def random_c(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Random C: the same from the fifth of the samples that has the largest norms."""
    rng = np.random.default_rng(rng)
    require_samples(V, K)
    longest = draw_longest(V, max(K, int(np.ceil(_LONGEST_SHARE * V.nonzero))))
    count = min(_SAMPLES_PER_MEAN, longest.size)
    groups = [rng.choice(longest, count, replace=False) for _ in range(K)]
    return _means(V, groups), random_coefficients(V, K, rng)


def cur(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """CUR: K different samples, drawn in proportion to their squared norms."""
    rng = np.random.default_rng(rng)
    require_samples(V, K)
    columns = dense(V.columns(draw_weighted(V, K, rng)))
    return np.ascontiguousarray(columns, V.dtype), random_coefficients(V, K, rng)


def _means(V: DataMatrix, groups: list[Array]) -> Array:
    W = np.empty((V.shape[0], len(groups)), V.dtype)
    for k, indices in enumerate(groups):
        W[:, k] = dense(V.columns(indices)).mean(axis=1)
    return W


COLUMN_INITS = {"acol": acol, "random-c": random_c, "cur": cur}

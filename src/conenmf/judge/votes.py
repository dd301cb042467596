"""What estimators of the number of components share: votes, and the samples they look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.sampling import draw_samples
from ..data.views import take_samples

__all__ = ["Method", "Vote", "at_least", "some_samples"]

_MIN_SAMPLES = 50  # even of very many features


@dataclass(frozen=True)
class Vote:
    """The vote of one estimator.

    Attributes
    ----------
    scores : array of float, one for each candidate
        NaN for a candidate that could not be judged.
    K : int
        Its choice.
    reason : str
        Why it chose this number.
    errors : array of float, one for each candidate, or None
        The relative error of each, if the estimator knows it; drawn beside the scores.
    """

    scores: Array
    K: int
    reason: str
    errors: Array | None = None


Method: TypeAlias = Callable[[DataMatrix, Array, np.random.Generator], Vote]


def at_least(K: int, ks: Array, V: DataMatrix, reason: str) -> str:
    """Return the reason for K, which says so if more were not tried."""
    is_limit = K == ks[-1] < min(V.shape)
    return f"at least {K}, the largest candidate: {reason}" if is_limit else reason


def some_samples(
    V: DataMatrix, rng: np.random.Generator, size: int, max_entries: int
) -> DataMatrix:
    """Return V itself if it is small, otherwise some of its nonzero samples.

    At most `size` of them, and fewer, but not fewer than 50, if they have more nonzero entries.
    """
    size = min(size, max(_MIN_SAMPLES, max_entries // (1 + V.n_entries // V.shape[1])))
    if V.nonzero <= size and V.nonzero == V.shape[1]:
        return V
    return take_samples(V, np.sort(draw_samples(V, size, rng)))

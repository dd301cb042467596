"""Where the race of inits is run: wherever an iteration is cheap.

That is a sketch of V, if V is large and dense; some of the samples or features, if there are very
many; otherwise V itself. The choice depends on the shape of V and on its entries, not on how it is
stored, so that the race has the same outcome everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import evenly_spaced
from ..data.sketch import Sketch, is_dense, sketch, sketch_rank
from ..data.views import take_samples
from .coefficients import coefficients

__all__ = ["Arena", "choose_arena", "factors_on_all", "part_of"]

_VECTORS_PER_COMPONENT = 2
_PART_SIZE, _PART_SIZE_PER_COMPONENT = 4096, 64  # samples, or features, if there are twice as many
_MIN_PART_SPEEDUP = 4  # over a sketch
_PART_ENTRIES = 1 << 23  # the most entries that are gathered
_MIN_PART_SAMPLES_PER_COMPONENT = 8  # that are not zero


class Arena(NamedTuple):
    """Where a race is run.

    Attributes
    ----------
    name : {"all", "sketch", "samples", "features"}
    V : DataMatrix
        With whose samples inits begin: all of the data, or a part.
    S : Sketch or None
        Of that matrix, if it is dense: of sparse data, singular vectors cost no more.
    data : DataMatrix
        The one of the two on which they iterate.
    """

    name: str
    V: DataMatrix
    S: Sketch | None
    data: DataMatrix


def choose_arena(V: DataMatrix, K: int, rank: int | str | None) -> Arena:
    """Choose where an iteration is cheap; the storage of V does not matter."""
    if isinstance(rank, str):
        rank = sketch_rank(V, K)
        if rank is not None and _has_cheaper_part(V, K, rank):
            rank = None
    if rank is not None:
        whole = sketch(V, rank)
        return Arena("sketch", V, whole, whole)
    name, part = part_of(V, K)
    size = min(_VECTORS_PER_COMPONENT * K, *part.shape)
    S = sketch(part, size) if is_dense(part) else None
    return Arena(name, part, S, part)


def _has_cheaper_part(V: DataMatrix, K: int, rank: int) -> bool:
    """Whether an iteration on some of the samples is much cheaper than on a sketch of them all."""
    (F, N), size = V.shape, _part_size(K)
    return _has_part(V, size, N) and _MIN_PART_SPEEDUP * F * size <= (F + N) * rank


def _part_size(K: int) -> int:
    return max(_PART_SIZE, _PART_SIZE_PER_COMPONENT * K)


def _has_part(V: DataMatrix, size: int, count: int) -> bool:
    """Whether `size` of `count` samples, or features, are a small part that fits in memory."""
    return 2 * size <= count and size * V.n_entries <= _PART_ENTRIES * count


def part_of(V: DataMatrix, K: int) -> tuple[str, DataMatrix]:
    """Return some samples, or features, if there are many more, otherwise all; and their name."""
    (F, N), size = V.shape, _part_size(K)
    if _has_part(V, size, N):
        part = take_samples(V, evenly_spaced(N, size))
        if part.total > 0 and part.nonzero > _MIN_PART_SAMPLES_PER_COMPONENT * K:
            return "samples", part
    if _has_part(V, size, F) and is_dense(V):
        return "features", take_samples(V.turned(), evenly_spaced(F, size)).turned()
    return "all", V


def factors_on_all(V: DataMatrix, name: str, W: Array, H: Aligned) -> tuple[Array, Aligned]:
    """Return factors of V for those of a part: one is whole, and the other is the best for it."""
    if name == "samples":
        H = coefficients(V, W)[0]
    elif name == "features":
        whole = np.asarray(coefficients(V.turned(), np.asarray(H).T)[0]).T
        size = np.maximum(np.linalg.norm(whole, axis=0), np.finfo(np.float64).tiny)
        W, H = (whole / size).astype(V.dtype), (np.asarray(H).T * size).T
    return W, H

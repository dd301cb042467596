"""What the first pass learns about V: norms of the samples, range of the entries, size.

Algorithms need the norms all the time, `validate` judges the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .blocks import Array, Block, exact, is_sparse

__all__ = ["Measures", "measure"]

_MEASURED_BYTES = 1 << 18  # at a time: still in the cache when they are read again


class Measures(NamedTuple):
    """What one pass learns about V.

    Attributes
    ----------
    norms_squared : aligned (N,), float64
        ||v||^2 of each sample.
    total : float
        ||V||^2, their sum.
    nonzero : int
        How many samples are not zero.
    sample_bytes : int
        About how much memory a sample takes once it is read.
    largest_squared : float
        The largest of `norms_squared`; NaN if any is.
    lowest : float
        The smallest entry of V; NaN if any is.
    """

    norms_squared: Any
    total: float
    nonzero: int
    sample_bytes: int
    largest_squared: float
    lowest: float


class _Sums(NamedTuple):
    total: float
    nonzero: int
    size_bytes: int
    largest_squared: float
    lowest: float


def measure(sweep: Callable[..., tuple[Any, ...]], N: int) -> Measures:
    """Measure the N samples of a matrix, given its `sweep`; one pass."""
    norms_squared, sums = sweep(_measure_block, reduce=_join_sums)
    sample_bytes = 1 + sums.size_bytes // N
    return Measures(
        norms_squared, sums.total, sums.nonzero, sample_bytes, sums.largest_squared, sums.lowest
    )


def _measure_block(block: Block) -> tuple[Array, _Sums]:
    with np.errstate(over="ignore", invalid="ignore"):
        if is_sparse(block):
            entries = exact(block.data)
            owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
            squared = np.bincount(owner, weights=entries * entries, minlength=block.shape[1])
            lowest = float(entries.min(initial=0.0))
            size_bytes = block.data.nbytes + block.indices.nbytes
        else:
            rows: Array = block.T
            squared, lowest = _squares_and_lowest(rows)
            size_bytes = rows.nbytes
    nonzero = int(np.count_nonzero(squared))
    return squared, _Sums(float(squared.sum()), nonzero, size_bytes, float(squared.max()), lowest)


def _squares_and_lowest(rows: Array) -> tuple[Array, float]:
    if not rows.flags.c_contiguous:
        whole = exact(rows)
        return np.einsum("nf,nf->n", whole, whole), float(rows.min())
    squared, lowest = np.empty(len(rows)), []
    at_a_time = 1 + _MEASURED_BYTES // (8 * rows.shape[1])
    for start in range(0, len(rows), at_a_time):
        part = exact(rows[start : start + at_a_time])
        np.vecdot(part, part, out=squared[start : start + at_a_time])
        lowest.append(part.min())
    return squared, float(np.min(lowest))


def _join_sums(a: _Sums, b: _Sums) -> _Sums:
    return _Sums(
        a.total + b.total,
        a.nonzero + b.nonzero,
        a.size_bytes + b.size_bytes,
        float(np.maximum(a.largest_squared, b.largest_squared)),
        float(np.minimum(a.lowest, b.lowest)),  # unlike min, it passes NaN on
    )

"""What the first pass learns about V: norms of the samples, range of the entries, size.

Algorithms need the norms all the time, `validate` judges the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..kernels import SMALLEST_SQUARE
from .blocks import Array, Block, exact, is_sparse, sums_at

__all__ = ["Measures", "join_sums", "measure", "measure_block"]

_MEASURED_BYTES = 1 << 18  # at a time: still in the cache when they are read again


class Measures(NamedTuple):
    """What one pass learns about V.

    Attributes
    ----------
    norms_squared : aligned (N,), float64
        ||v||^2 of each sample; 0 if it is so small that it has lost digits, or its inverse is
        infinite.
    total : float
        ||V||^2, their sum.
    nonzero : int
        How many samples are not zero.
    n_entries : int
        How many entries are not zero, whether or not zeros are stored.
    largest_squared : float
        The largest of `norms_squared`; NaN if any is.
    lowest : float
        The smallest entry of V; NaN if any is.
    """

    norms_squared: Any
    total: float
    nonzero: int
    n_entries: int
    largest_squared: float
    lowest: float


class _Sums(NamedTuple):
    total: float
    nonzero: int
    n_entries: int
    largest_squared: float
    lowest: float


def measure(sweep: Callable[..., tuple[Any, ...]]) -> Measures:
    """Measure the samples of a matrix, given its `sweep`; one pass."""
    norms_squared, sums = sweep(measure_block, reduce=join_sums)
    return Measures(norms_squared, *sums)


def measure_block(block: Block) -> tuple[Array, _Sums]:
    """Step: the squared norm of each sample, and what is known of the block."""
    with np.errstate(over="ignore", invalid="ignore"):
        if is_sparse(block):
            entries = exact(block.data)
            owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
            squared = sums_at(owner, entries * entries, block.shape[1])
            lowest = float(entries.min(initial=0.0))
            n_entries = int(np.count_nonzero(entries))
        else:
            rows: Array = block.T
            squared, lowest, n_entries = _measure_rows(rows)
        squared[squared <= SMALLEST_SQUARE] = 0.0
        total = float(squared.sum())
    nonzero = int(np.count_nonzero(squared))
    return squared, _Sums(total, nonzero, n_entries, float(squared.max()), lowest)


def _measure_rows(rows: Array) -> tuple[Array, float, int]:
    """Squared norms of dense samples, the smallest entry, and how many are not zero."""
    if not rows.flags.c_contiguous:
        whole, lowest = exact(rows), rows.min()
        return np.einsum("nf,nf->n", whole, whole), float(lowest), _n_entries(rows, lowest)
    squared, n_entries = np.empty(len(rows)), 0
    lowest = np.inf
    at_a_time = 1 + _MEASURED_BYTES // (8 * rows.shape[1])
    for start in range(0, len(rows), at_a_time):
        part = exact(rows[start : start + at_a_time])
        np.vecdot(part, part, out=squared[start : start + at_a_time])
        lowest_of_part = part.min()
        lowest = np.minimum(lowest, lowest_of_part)  # unlike min, it passes NaN on
        n_entries += _n_entries(part, lowest_of_part)
    return squared, float(lowest), n_entries


def _n_entries(rows: Array, lowest: float) -> int:
    """How many are not zero: all if the smallest is positive, which saves the count."""
    return rows.size if lowest > 0 else int(np.count_nonzero(rows != 0))


def join_sums(a: _Sums, b: _Sums) -> _Sums:
    """Return what is known of two blocks together."""
    return _Sums(
        a.total + b.total,
        a.nonzero + b.nonzero,
        a.n_entries + b.n_entries,
        float(np.maximum(a.largest_squared, b.largest_squared)),
        float(np.minimum(a.lowest, b.lowest)),
    )

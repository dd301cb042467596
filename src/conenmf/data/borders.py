"""How V is read: which side of it is swept, and how that is cut into blocks.

Both depend on V alone and not on where it is kept, so that the bits of sums do too.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

__all__ = [
    "LARGE_BYTES",
    "Borders",
    "dense_block_samples",
    "equal_borders",
    "paired_block_samples",
    "sparse_block_samples",
    "swept_side",
]

Borders: TypeAlias = list[tuple[int, int]]

_BLOCK_BYTES = 8 << 20  # a dense block and its products stay in the cache of one core
_MIN_BLOCK_SAMPLES = 256  # with fewer, adding up the F x K sums of the blocks takes too long
_BLOCKS_FOR_THREADS = 8  # that data of moderate size are cut into ...
_MIN_SHARED_SAMPLES = 64  # ... if they have enough samples
_MAX_SPARSE_ENTRIES = 4 << 20  # of a block
_MIN_PAIRED_ENTRIES = 1 << 15
LARGE_BYTES = 4 * _BLOCK_BYTES
"""From this size on, dense data of a single block are left to the threads of BLAS."""


def swept_side(F: int, N: int) -> Literal["samples", "features"]:
    """Return the side of V to sweep: the longer one, so that sums have the size of the other.

    The products take as long either way, for any number of nonzero entries and any type.

    >>> swept_side(3, 100), swept_side(100, 3)
    ('samples', 'features')
    """
    return "samples" if F <= N else "features"


def equal_borders(N: int, size: int) -> Borders:
    """Cut N samples into blocks of the same size, the last one possibly smaller."""
    return [(start, min(start + size, N)) for start in range(0, N, size)]


def dense_block_samples(F: int, N: int, itemsize: int) -> int:
    """Return how many samples a dense block has: what fits into a cache, or an eighth of V."""
    most = max(_MIN_BLOCK_SAMPLES, _BLOCK_BYTES // (F * itemsize))
    moderate = F * N * itemsize > _BLOCK_BYTES // 4
    return min(most, max(_MIN_SHARED_SAMPLES, -(-N // _BLOCKS_FOR_THREADS)) if moderate else N)


def sparse_block_samples(F: int, N: int, nnz: int) -> int:
    """Return how many samples a sparse block has: enough for at least four times F entries.

    Its sums cost F x K however few entries it has. An eighth of all entries is better still, as
    long as it fits easily in memory.
    """
    per_sample = max(nnz, 1) / N
    entries = max(4.0 * F, min(nnz / _BLOCKS_FOR_THREADS, _MAX_SPARSE_ENTRIES))
    return max(_MIN_BLOCK_SAMPLES, int(np.ceil(entries / per_sample)))


def paired_block_samples(N: int, nnz: int) -> int:
    """Return how many samples a block has if V is kept in both orders, and nothing is summed.

    A power of two of blocks, so that threads have equal shares, each worth the call of a step.
    """
    share = min(nnz // _MIN_PAIRED_ENTRIES, _BLOCKS_FOR_THREADS)
    n_blocks = max(1 << max(share, 1).bit_length() - 1, nnz // _MAX_SPARSE_ENTRIES)
    return max(-(-N // n_blocks), 1)

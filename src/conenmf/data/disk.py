"""V in a file, larger than memory: blocks are read ahead by a thread while others compute.

The memory budget is spent like this: a quarter for blocks in flight with their temporaries, at most
a sixteenth for an aligned array, of which several are alive at a time. The interpreter and its
libraries are not counted. A larger aligned array, such as H, is kept in a file beside the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataChangedError, MaskedDataError, Message, Option, OptionError, ReadError
from .aligned import keep_file, map_file, new_file, release_rows
from .blocks import Array, Block, canonical_rows, compute_dtype, sparse_block
from .borders import Borders
from .files.sources import Compressed, Source
from .local import LocalMatrix
from .memory import hold
from .threads import read_ahead

__all__ = ["DiskMatrix"]

_BLOCK_BYTES = 16 << 20  # large enough for a disk, small enough to overlap reading and computing
_BLOCKS_IN_BUDGET = 64
_ALIGNED_IN_BUDGET = 16  # a solver that extrapolates has six of H
_COPIES_OF_BLOCK = 4  # with its temporaries
_BLOCKS_AHEAD = 2
_COEFFICIENT_BYTES = 64 * 8  # of a sample, for which a block should leave room
_VISITED_SAMPLE_BYTES = 256  # a few numbers for each


class DiskMatrix(LocalMatrix):
    """V read from a source block by block.

    Parameters
    ----------
    source : Source
        The rows of a file, one per sample.
    budget : int
        Bytes of memory that data and results may take.
    block_samples : int, optional
        Most samples in a block; by default as many as suit the budget and the file.
    **options
        As for `DataMatrix`.

    Attributes
    ----------
    budget : int
    bytes_read : int
        How much was read from the file so far.
    """

    def __init__(
        self, source: Source, budget: int, *, block_samples: int | None = None, **options: Any
    ) -> None:
        N, F = source.shape
        if budget // _BLOCKS_IN_BUDGET < source.row_bytes:
            raise OptionError(
                Message(
                    Option("max_memory", budget),
                    f" bytes is too little: a sample takes {source.row_bytes} bytes, and "
                    f"{_BLOCKS_IN_BUDGET} times that is the least",
                )
            )
        self._max_block_bytes = min(_BLOCK_BYTES, budget // _BLOCKS_IN_BUDGET)
        most = max(1, self._max_block_bytes // max(source.row_bytes, _COEFFICIENT_BYTES))
        if block_samples is not None:
            block_samples = min(block_samples, most)
        else:
            if 1 < source.chunk <= most:  # what the file keeps together is best read together
                most = most // source.chunk * source.chunk
            block_samples = min(most, source.max_block_rows)
        dtype = compute_dtype(source.dtype)
        super().__init__((F, N), dtype, block_samples=block_samples, **options)
        self._source, self.watch = source, source.watch
        self.budget = budget
        self.bytes_read = 0
        self.max_gather = min(self.max_gather, block_samples)
        self.visit_samples = min(max(1, budget // _VISITED_SAMPLE_BYTES), N)
        # The number of threads does not change the result, but each has a block in hand.
        blocks = budget // (4 * _COPIES_OF_BLOCK * block_samples * source.row_bytes)
        self.n_threads = max(1, min(self.n_threads, blocks - _BLOCKS_AHEAD))

    def turned(self) -> LocalMatrix:
        """Return the same data with the features as samples, read from the same file."""
        rows, options = self._source.turned().readable(self.budget), self._turned_options()
        if isinstance(rows, Source):
            return DiskMatrix(rows, self.budget, **options)
        return hold(canonical_rows(rows), **options)

    def _blocks(self) -> Borders:
        return self._source.blocks(self.block_samples, self._max_block_bytes)

    def _reading(self, borders: Borders) -> AbstractContextManager[Callable[[int], Any]]:
        return read_ahead(
            lambda number: self._stored(*borders[number]), len(borders), _BLOCKS_AHEAD
        )

    def _stored(self, start: int, stop: int) -> Any:
        with self._named(f"samples {start} to {stop - 1}"):
            rows = self._source.read(start, stop)
        self.bytes_read += _size(rows)
        return rows

    def _gather(self, indices: Array) -> Block:
        with self._named(f"{indices.size} samples from {indices.min(initial=0)} on"):
            different, back = np.unique(indices, return_inverse=True)
            rows = self._source.take(different)
        self._source.watch.check_if_quick()
        self.bytes_read += _size(rows)
        if different.size == indices.size and np.array_equal(different, indices):
            return self._as_block(rows)
        if isinstance(rows, Compressed):
            matrix = sp.csr_array(tuple(rows), shape=(different.size, self.shape[0]))[back]
            return self._as_block(Compressed(matrix.data, matrix.indices, matrix.indptr))
        return self._as_block(rows[back])

    def _as_block(self, rows: Any) -> Block:
        if isinstance(rows, Compressed):
            block: Any = sparse_block(*rows, self.shape[0], self.dtype, self.clip)
            if not block.has_canonical_format:
                block = block.copy()  # the parts may be those of the source
                block.sum_duplicates()
        else:
            rows = rows.astype(self.dtype, copy=False)
            block = (np.maximum(rows, 0) if self.clip else rows).T
        samples: Block = block
        return samples

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Name the file, and the part of it, that could not be read."""
        try:
            yield
        except (ReadError, MaskedDataError, MemoryError):
            raise
        except Exception as problem:  # of any library that reads a damaged chunk
            message = f"{self._source.name}: {what} could not be read: {problem}; "
            if self._source.watch.looks_different():
                message += "it was changed after it was opened: open it again"
                raise DataChangedError(message) from problem
            raise ReadError(message + "check the file or the disk, and copy it again") from problem

    # --- aligned arrays that do not fit ---

    def fits(self, size_bytes: int) -> bool:
        """Return whether an aligned array of this size is kept in memory, not in a file."""
        return _ALIGNED_IN_BUDGET * size_bytes <= self.budget

    def _new_aligned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if self.fits(int(np.prod(shape)) * dtype.itemsize):
            return np.empty(shape, dtype)
        return new_file(self._source.folder, self._source.stem, shape, dtype)

    def _release_rows(self, array: Array, start: int, stop: int) -> None:
        release_rows(array, start, stop)

    def _load(self, path: Path) -> Array:
        return super()._load(path) if self.fits(path.stat().st_size) else map_file(path)

    def keep_aligned(self, aligned: Array) -> Array:
        """Give a file that holds an aligned array a lasting name beside the data."""
        return keep_file(aligned, self._source.stem)


def _size(rows: Any) -> int:
    parts = rows if isinstance(rows, Compressed) else [rows]
    return sum(int(part.nbytes) for part in parts)

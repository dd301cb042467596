"""V in a file, larger than memory: one thread reads a block while other threads compute.

The memory budget is used as follows: a quarter for blocks in flight with their temporaries, and at
most a sixteenth for each aligned array, several of which exist at a time. The interpreter and its
libraries are not counted. A larger aligned array, such as H, is stored in a temporary file without
a name. The operating system deletes it together with the array, even if the process is killed.

A `Source` is a file whose rows can be read; `io` has a subclass for each storage layout.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ..data.blocks import (
    Block,
    Borders,
    Rows,
    canonical_rows,
    compute_dtype,
    equal_borders,
    sparse_block,
)
from ..data.memory import LocalMatrix
from ..errors import (
    DataChangedError,
    DataTypeError,
    Option,
    OptionError,
    OutputError,
    ReadError,
    is_disk_full,
)
from ..types import Array, DType, Lengths, PathLike, Shape

_BLOCK_BYTES = 16 << 20  # large enough for a disk, small enough to overlap reading and computing
_BLOCKS_IN_BUDGET = 64
_ALIGNED_IN_BUDGET = 16  # a solver that extrapolates keeps six arrays of the size of H
_CHUNKS_IN_BUDGET = 16  # two are kept if they are larger than a block
_COPIES_OF_BLOCK = 4  # including temporaries
_COEFFICIENT_BYTES = 64 * 8  # of the coefficients of a sample; a block leaves room for them
_FEW_FILES = 128  # up to this number, their sizes are checked even when few samples are read


class Stamp:
    """The sizes and modification times of files when they were opened."""

    def __init__(self, files: Iterable[PathLike]) -> None:
        self._opened = {path: _state(path) for path in map(os.path.abspath, files)}

    def check(self, *, few: bool = False) -> None:
        """Raise `DataChangedError` if a file has changed; with `few`, skip many files."""
        if few and len(self._opened) > _FEW_FILES:
            return
        for path, (size, time) in self._opened.items():
            now = _state(path)
            if now[0] != size:
                raise DataChangedError(
                    f"{path} had {size} bytes when it was opened and now has {now[0]}: open it "
                    "again when no other program writes to it"
                )
            if now[1] != time:
                raise DataChangedError(f"{path} was changed after it was opened: open it again")


def _state(path: str) -> tuple[int, int]:
    try:
        state = os.stat(path)
    except OSError as problem:
        raise DataChangedError(f"{path} can no longer be read: {problem}") from problem
    return state.st_size, state.st_mtime_ns


class Source(ABC):
    """A matrix in a file whose rows can be read.

    Parameters
    ----------
    name : str
        The name of the source in messages.
    path : path, optional
        Temporary files are written to its folder; by default to the system's temporary folder.
    stamp : Stamp, optional
        Detects whether the file has changed since it was opened.

    Attributes
    ----------
    shape : (rows, columns)
    dtype : of the numbers
    row_bytes : int
        Memory for a row, as it is stored or as it is used in computations, whichever is larger.
    chunk : int
        How many rows the file stores together.
    max_block_rows : int
        Largest number of rows in a block, if the source limits it.
    """

    shape: Shape
    dtype: DType
    row_bytes: int
    chunk: int = 1
    max_block_rows: int = sys.maxsize

    def __init__(self, name: str, path: PathLike | None, stamp: Stamp | None) -> None:
        self.name = name
        self.stamp = stamp
        self.folder = Path(tempfile.gettempdir() if path is None else Path(path).absolute().parent)

    @abstractmethod
    def read(self, start: int, stop: int) -> Rows:
        """Return rows start..stop, as an ndarray or compressed."""

    def take(self, indices: Array) -> Rows:
        """Return the rows with these indices, which are increasing."""
        # Selecting scattered rows at once is slow in HDF5 and Zarr, as is reading a chunk twice:
        # read runs of neighbours, or all rows that are in the same chunk.
        run_of = indices // self.chunk if self.chunk > 1 else indices - np.arange(indices.size)
        runs = np.split(indices, np.flatnonzero(np.diff(run_of)) + 1)
        parts = [self.read(int(at[0]), int(at[-1]) + 1)[at - at[0]] for at in runs if at.size]
        parts = parts or [self.read(0, 0)]
        return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)

    @abstractmethod
    def turned(self) -> Self:
        """Return the transposed matrix without reading data."""

    def readable(self, budget: int) -> Source | Rows:
        """Return the source, or the matrix in memory if its rows cannot be read otherwise."""
        return self

    def blocks(self, size: int, max_bytes: int) -> Borders:
        """Return borders of blocks of at most `size` rows and about `max_bytes` bytes."""
        return equal_borders(self.shape[0], size)

    def check(self, *, few: bool = False) -> None:
        """Raise `DataChangedError` if the file has changed."""
        if self.stamp is not None:
            self.stamp.check(few=few)

    def whole(self) -> Rows:
        """Return all rows, as an ndarray or a sparse array."""
        rows = self.read(0, self.shape[0])
        self.check()
        return rows


class DiskMatrix(LocalMatrix):
    """V read from a source block by block.

    Parameters
    ----------
    source : Source
        The rows of a file, one per sample.
    budget : int
        Bytes of memory that data and results may take.
    block_samples : int, optional
        Largest number of samples in a block; by default it suits the budget and the file.
    **options
        As for `DataMatrix`.
    """

    _readers = 1

    def __init__(
        self, source: Source, budget: int, *, block_samples: int | None = None, **options: Any
    ) -> None:
        N, F = source.shape
        if budget // _BLOCKS_IN_BUDGET < source.row_bytes:
            raise OptionError(
                Option("max_memory", budget),
                f" bytes is too little: a sample takes {source.row_bytes} bytes, and "
                f"{_BLOCKS_IN_BUDGET} times that is the least",
            )
        self._max_block_bytes = min(_BLOCK_BYTES, budget // _BLOCKS_IN_BUDGET)
        most = max(1, self._max_block_bytes // max(source.row_bytes, _COEFFICIENT_BYTES))
        if block_samples is not None:
            block_samples = min(block_samples, most)
        else:
            if 1 < source.chunk <= most:  # read together the rows that are stored together
                most = most // source.chunk * source.chunk
            block_samples = min(most, source.max_block_rows)
        dtype = compute_dtype(source.dtype)
        super().__init__((F, N), dtype, block_samples=block_samples, budget=budget, **options)
        self._source = source
        chunk_bytes = source.chunk * source.row_bytes
        self._keeps_chunks = (
            block_samples < source.chunk and chunk_bytes <= budget // _CHUNKS_IN_BUDGET
        )
        self._chunks: dict[int, Rows] = {}  # by their first sample
        # One part is read at a time. The lock is acquired outside generators: an interrupt just
        # after it was acquired inside one would leave it locked for as long as the traceback lives.
        self._lock = threading.Lock()
        self.max_gather = min(self.max_gather, block_samples)
        # The number of threads does not change the result, but each thread needs a block.
        blocks = budget // (4 * _COPIES_OF_BLOCK * block_samples * source.row_bytes)
        self.n_threads = max(1, min(self.n_threads, blocks - self._readers))

    def _blocks(self) -> Borders:
        if not self._keeps_chunks:
            return self._source.blocks(self.block_samples, self._max_block_bytes)
        size = self._source.chunk
        borders = []
        for first in range(0, self.n_samples, size):
            n = min(size, self.n_samples - first)
            for start, stop in equal_borders(n, self.block_samples):
                borders.append((first + start, first + stop))
        return borders

    def _check_unchanged(self) -> None:
        self._source.check()

    def _block(self, start: int, stop: int) -> Block:
        with self._lock, self._named(f"samples {start} to {stop - 1}"):
            rows = self._read(start, stop)
        return self._as_block(rows)

    def _read(self, start: int, stop: int) -> Rows:
        """Return rows; a chunk that is larger than a block is read once for several blocks."""
        if not self._keeps_chunks:
            return self._source.read(start, stop)
        size = self._source.chunk
        first = start // size * size
        if first not in self._chunks:
            if len(self._chunks) > 1:  # threads may need the one before, not older ones
                del self._chunks[next(iter(self._chunks))]
            self._chunks[first] = self._source.read(first, min(first + size, self.n_samples))
        return self._chunks[first][start - first : stop - first]

    def _gather(self, indices: Array) -> Block:
        with self._lock, self._named(f"{indices.size} samples from {indices.min(initial=0)} on"):
            different, back = np.unique(indices, return_inverse=True)
            self._source.check(few=True)
            rows = self._source.take(different)
        return self._as_block(rows).T[back].T

    def _as_block(self, rows: Rows) -> Block:
        if sp.issparse(rows):
            parts = (rows.data, rows.indices, rows.indptr)
            block = sparse_block(*parts, self.n_features, self.dtype)
            return canonical_rows(block.T).T
        return rows.astype(self.dtype, copy=False).T

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Add the file, and the part that could not be read, to errors."""
        try:
            yield
        except (ReadError, DataTypeError, MemoryError):
            raise
        except Exception as problem:  # any library may fail on a damaged chunk
            message = f"{self._source.name}: {what} could not be read: {problem}; "
            self._source.check()
            raise ReadError(message + "check the file or the disk, and copy it again") from problem

    # --- aligned arrays that do not fit in memory ---

    def room_for_aligned(self, row_bytes: int, count: int = 1) -> int:
        """Return how many times `count` aligned arrays may be kept in memory, or in files."""
        room = super().room_for_aligned(row_bytes, count)
        return room if self.fits(row_bytes * self.n_samples) else sys.maxsize

    def fits(self, size_bytes: int) -> bool:
        """Return whether an aligned array of this size is kept in memory, not in a file."""
        return _ALIGNED_IN_BUDGET * size_bytes <= self.budget

    def _new_aligned(self, shape: Lengths, dtype: DType) -> Array:
        if self.fits(int(np.prod(shape)) * dtype.itemsize):
            return np.empty(shape, dtype)
        return new_file(self._source.folder, shape, dtype)

    def _release(self, array: Array) -> None:
        release(array)


def new_file(folder: Path, shape: Lengths, dtype: DType) -> Array:
    """Return an array in a temporary file in the folder, or in another if it is read-only."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a hole on a full disk would crash
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as problem:
        if not is_disk_full(problem):
            raise
        raise OutputError(
            f"not enough disk space for {size / 1e9:.3g} GB of coefficients in {folder}: "
            "free some, or raise ",
            Option("max_memory"),
            " so that they stay in memory",
        ) from problem


def release(array: object) -> None:
    """Release the memory of a mapped array; its content stays in the file."""
    mapping = mapping_of(array)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def mapping_of(array: object) -> mmap.mmap | None:
    """Return the mapping of an array whose changes go to the file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.mode == "c":  # changes are in memory only
            return None
        array = array.base
    return array if isinstance(array, mmap.mmap) else None

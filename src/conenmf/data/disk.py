"""V in a file, larger than memory: blocks are read ahead by a thread while others compute.

The memory budget is spent like this: a quarter for blocks in flight with their temporaries, at
most a sixteenth for an aligned array, of which several are alive at a time; the rest is for the
interpreter and its libraries. An aligned array that is larger, which will be H, goes to a file
beside the data.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DiskFullError, OptionError, ReadError, is_disk_full
from .blocks import Array, Block
from .files.atomic import temporary_name
from .files.sources import Compressed, Source
from .matrix import Borders, LocalMatrix
from .memory import compute_dtype, sparse_block
from .threads import read_ahead

__all__ = ["DiskMatrix"]

BLOCK_BYTES = 16 << 20  # large enough for a disk, small enough to overlap reading and computing
_BLOCKS_IN_BUDGET = 64
_ALIGNED_IN_BUDGET = 16  # a solver that extrapolates has six of H
_COPIES = 4  # what a block takes with its temporaries, in blocks
_READ_AHEAD = 2
_COEFFICIENTS = 64  # of a sample, for which a block should leave room


class DiskMatrix(LocalMatrix):
    """V read from a source block by block.

    Attributes
    ----------
    bytes_read : int
        How much was read from the file so far.
    """

    bytes_read: int

    def __init__(self, source: Source, budget: int, n_threads: int | None) -> None:
        N, F = source.shape
        super().__init__((F, N), compute_dtype(source.dtype), n_threads)
        self._source = source
        self._budget = budget
        self.bytes_read = 0
        if budget // _BLOCKS_IN_BUDGET < source.row_bytes:
            raise OptionError(
                f"max_memory={budget} bytes is too little: a sample takes {source.row_bytes} "
                f"bytes, and {_BLOCKS_IN_BUDGET} times that is the least"
            )
        self._largest = min(BLOCK_BYTES, budget // _BLOCKS_IN_BUDGET)
        samples = max(1, self._largest // max(source.row_bytes, _COEFFICIENTS * 8))
        if 1 < source.chunk <= samples:  # what the file keeps together is best read together
            samples = samples // source.chunk * source.chunk
        self.block_samples = min(samples, source.max_block_rows)
        self.max_gather = min(self.max_gather, self.block_samples)
        # The number of threads does not change the result, but each has a block in hand.
        blocks = budget // (4 * _COPIES * self.block_samples * source.row_bytes)
        self.n_threads = max(1, min(self.n_threads, blocks - _READ_AHEAD))

    def _blocks(self) -> Borders:
        return self._source.blocks(self.block_samples, self._largest)

    def _reading(self, borders: Borders) -> AbstractContextManager[Callable[[int], Block]]:
        self._source.check()
        return self._reading_ahead(borders)

    @contextmanager
    def _reading_ahead(self, borders: Borders) -> Iterator[Callable[[int], Block]]:
        def read(index: int) -> Any:
            return self._read_rows(*borders[index])

        with read_ahead(read, len(borders), _READ_AHEAD) as take:
            yield lambda index: self._as_block(take(index))

    def _block(self, start: int, stop: int) -> Block:
        return self._as_block(self._read_rows(start, stop))

    def _read_rows(self, start: int, stop: int) -> Any:
        with self._named(f"samples {start} to {stop - 1}"):
            rows = self._source.read(start, stop)
        self.bytes_read += _size(rows)
        return rows

    def _gather(self, indices: Array) -> Block:
        with self._named(f"{indices.size} samples from {indices.min(initial=0)} on"):
            different, back = np.unique(indices, return_inverse=True)
            rows = self._source.take(different)
        self.bytes_read += _size(rows)
        if different.size == indices.size and np.array_equal(different, indices):
            return self._as_block(rows)
        if isinstance(rows, Compressed):
            matrix = sp.csr_array(tuple(rows), shape=(different.size, self.shape[0]))[back]
            return self._as_block(Compressed(matrix.data, matrix.indices, matrix.indptr))
        return self._as_block(rows[back])

    def _as_block(self, rows: Any) -> Block:
        if isinstance(rows, Compressed):
            block = sparse_block(*rows, self.shape[0], self.dtype, self.clip)
            if not block.has_canonical_format:
                block = block.copy()  # the parts may be those of the source
                block.sum_duplicates()
            return block
        if rows.dtype != self.dtype:
            rows = rows.astype(self.dtype)
        return (np.maximum(rows, 0) if self.clip else rows).T

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Say which file and which part of it could not be read."""
        try:
            yield
        except (ReadError, MemoryError):
            raise
        except Exception as problem:  # whatever a library makes of a damaged chunk
            raise ReadError(
                f"{self._source.name}: {what} could not be read: {problem}; "
                "check the file or the disk, and copy it anew"
            ) from problem

    def _visited(self) -> int:
        return min(max(1, self._budget // 256), self.shape[1])  # a few numbers for each

    # --- aligned arrays that do not fit ---

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if _ALIGNED_IN_BUDGET * int(np.prod(shape)) * dtype.itemsize <= self._budget:
            return np.empty(shape, dtype)
        return _new_file(self._source.folder, self._source.stem, shape, dtype)

    def _done_with(self, arrays: list[Array], start: int, stop: int) -> None:
        """Let go of pages of files that were just used; they stay in the file."""
        for array in arrays:
            mapped = _mapping(array)
            if mapped is not None and mapped in _ours:
                offset = array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
                first = offset + start * array.strides[0]
                last = offset + stop * array.strides[0]
                page = mmap.PAGESIZE
                first, last = first - first % page, min(last - last % page, len(mapped))
                if last > first:
                    mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def keep(self, aligned: Array) -> Array:
        """Give a file that holds an aligned array a lasting name beside the data."""
        mapped = _mapping(aligned)
        if mapped is None or mapped not in _temporary:
            return aligned
        path, finalizer = _temporary[mapped]
        lasting = path.with_name(f"{self._source.stem}.H.npy")
        for number in range(1, 10**6):
            try:
                os.close(os.open(lasting, os.O_CREAT | os.O_EXCL))  # earlier results stay
                break
            except FileExistsError:
                lasting = path.with_name(f"{self._source.stem}.H-{number}.npy")
        finalizer.detach()
        del _temporary[mapped]
        os.replace(path, lasting)
        return _opened(lasting)

    def restore(self, folder: Path, name: str) -> Array:
        """Read one ``.npy`` file, or leave it there if it is large."""
        path = folder / f"{name}.npy"
        if _ALIGNED_IN_BUDGET * path.stat().st_size <= self._budget:
            return super().restore(folder, name)
        return self._all_rows(_opened(path), path)


def _opened(path: Path) -> Array:
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    mapped = _mapping(array)
    assert mapped is not None
    _ours.add(mapped)
    return array


_ours: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
"""Files that hold aligned arrays; other people's mappings may hold changes that are not written."""

_temporary: weakref.WeakKeyDictionary[mmap.mmap, tuple[Path, Any]] = weakref.WeakKeyDictionary()
"""Files that are deleted together with the arrays that live in them."""


def _mapping(array: Array) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _new_file(folder: Path, stem: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    path = temporary_name(folder / f"{stem}.npy")
    need = int(np.prod(shape)) * dtype.itemsize
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        with open(path, "r+b") as file:  # writing into a mapped hole of a full disk would kill us
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError as problem:
        path.unlink(missing_ok=True)
        if is_disk_full(problem):
            raise DiskFullError(
                f"no room for {need / 1e9:.3g} GB of coefficients in {folder}: make room there, "
                "or raise max_memory so that they stay in memory"
            ) from problem
        raise
    mapped = _mapping(array)
    assert mapped is not None
    _ours.add(mapped)
    _temporary[mapped] = (path, weakref.finalize(mapped, path.unlink, missing_ok=True))
    return array


def _size(rows: Any) -> int:
    parts = rows if isinstance(rows, Compressed) else [rows]
    return sum(int(part.nbytes) for part in parts)

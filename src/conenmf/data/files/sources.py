"""Matrices in files, of which rows, one per sample, can be read: a *source* is one of them.

Three layouts serve every kind of file: numbers one after the other, datasets that are read by
slicing them, and compressed sparse rows. Files are read, never mapped, so that what is read does
not count as memory of the process once a block is done.
"""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...errors import DataChangedError, FileFormatError
from ...names import Names
from ..blocks import Array
from ..matrix import Borders, check_kind, equal_borders
from ..memory import compute_dtype, sparse_block_samples

__all__ = [
    "ChunkedRows",
    "Compressed",
    "CompressedRows",
    "File",
    "Member",
    "Opened",
    "RawRows",
    "Source",
    "path_of",
    "raw_rows",
    "sparse_rows",
]


_LONG_SIDE = 64 << 20  # bytes that a vector may take whatever the budget


class Compressed(NamedTuple):
    """Rows in compressed form."""

    data: Array
    indices: Array
    indptr: Array


class Source(ABC):
    """A matrix in a file, of which rows, one per sample, can be read.

    Attributes
    ----------
    name : str
        What to call it in messages.
    folder, stem
        Where files beside it go, and how their names begin.
    shape : (N, F)
    dtype : of the numbers as stored
    row_bytes : int
        Memory for a row, as it is stored or as it is computed with, whichever is more.
    chunk : int
        Samples that the file keeps together.
    preferred_samples : int
        More would make a block too large for other reasons.
    """

    name: str
    folder: Path
    stem: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_bytes: int
    chunk: int = 1
    preferred_samples: int = sys.maxsize

    @abstractmethod
    def read(self, start: int, stop: int) -> Any:
        """Rows start..stop, as an ndarray or compressed."""

    @abstractmethod
    def take(self, indices: Array) -> Any:
        """These rows, given in increasing order."""

    @abstractmethod
    def check(self) -> None:
        """Make sure that the file is still the one that was opened."""

    def blocks(self, size: int, largest: int) -> Borders:
        """Borders of blocks of at most so many samples, and about so many bytes."""
        return equal_borders(self.shape[0], size)

    def _beside(self, path: str | os.PathLike[str] | None) -> None:
        path = Path(tempfile.gettempdir()) / "conenmf" if path is None else Path(path)
        self.folder, self.stem = path.absolute().parent, path.name

    def _dense(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.row_bytes = shape[1] * max(dtype.itemsize, compute_dtype(dtype).itemsize)


class Opened(NamedTuple):
    """What opening a file yields.

    Attributes
    ----------
    rows : Source, ndarray or sparse
        One row per sample; in memory where a file is small or had to be read as a whole.
    names : Names
    """

    rows: Source | Any
    names: Names = Names()


class File:
    """A file that is read at any place by any thread, and must not change meanwhile.

    A `descriptor` is that of a nameless copy of what the path holds; it is closed in the end.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        modified_elsewhere: bool = False,
        descriptor: int | None = None,
    ) -> None:
        self.path = Path(path)
        self._descriptor = os.open(self.path, os.O_RDONLY) if descriptor is None else descriptor
        weakref.finalize(self, os.close, self._descriptor)
        self._watched: Path | int = self.path if descriptor is None else descriptor
        self._by_others = modified_elsewhere
        self._state = self._look()
        self.size = self._state[0]

    def _look(self) -> tuple[int, int]:
        status = os.stat(self._watched)
        return status.st_size, 0 if self._by_others else status.st_mtime_ns

    def check(self) -> None:
        """Make sure that the file has not been written to since it was opened."""
        try:
            state = self._look()
        except OSError as problem:
            raise DataChangedError(f"{self.path} is gone: {problem}") from problem
        if state[0] != self._state[0]:
            raise DataChangedError(
                f"{self.path} had {self.size} bytes when it was opened and now has {state[0]}: "
                "open it again when nobody writes to it"
            )
        if state != self._state:
            raise DataChangedError(f"{self.path} was written to since it was opened: open it again")

    def fill(self, buffer: Array, offset: int) -> Array:
        """Read into a contiguous array from a place in the file."""
        view: Any = memoryview(buffer.view(np.uint8).reshape(-1))  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                raise DataChangedError(
                    f"{self.path} ends at byte {offset + done}: it had {self.size} bytes when it "
                    "was opened; copy it anew"
                )
            done += count
        return buffer


class Member:
    """An array at some place in a file; one-dimensional ones can be sliced."""

    def __init__(
        self, file: File, offset: int, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]
    ) -> None:
        self.file, self.offset, self.fortran = file, offset, fortran
        self.shape = shape
        self.dtype = dtype

    def __getitem__(self, part: slice) -> Array:
        start, stop, _ = part.indices(self.shape[0])
        buffer = np.empty(max(stop - start, 0), self.dtype)
        return self.file.fill(buffer, self.offset + start * self.dtype.itemsize)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        order: Any = "F" if self.fortran else "C"
        flat = self.file.fill(np.empty(int(np.prod(self.shape)), self.dtype), self.offset)
        return flat.reshape(self.shape, order=order).astype(dtype or self.dtype)


class RawRows(Source):
    """Numbers in a file, row after row (samples together) or column after column."""

    def __init__(
        self,
        file: File,
        offset: int,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        *,
        samples_together: bool,
    ) -> None:
        self._file, self._offset = file, offset
        self._together = samples_together
        self.name = str(file.path)
        self._beside(file.path)
        self._dense(shape, dtype)

    def check(self) -> None:
        """Make sure that the file is still the one that was opened."""
        self._file.check()

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop."""
        N, F = self.shape
        size = self.dtype.itemsize
        if self._together:
            return self._file.fill(
                np.empty((stop - start, F), self.dtype), self._offset + start * F * size
            )
        columns = np.empty((F, stop - start), self.dtype)
        for f, column in enumerate(columns):
            self._file.fill(column, self._offset + (f * N + start) * size)
        return columns.T

    def take(self, indices: Array) -> Array:
        """These rows, given in increasing order."""
        if self._together:
            rows = np.empty((indices.size, self.shape[1]), self.dtype)
            for row, n in zip(rows, indices.tolist(), strict=True):
                self._file.fill(row, self._offset + n * row.nbytes)
            return rows
        pieces = [self.read(n, n + 1) for n in indices.tolist()]
        return np.concatenate(pieces) if pieces else np.empty((0, self.shape[1]), self.dtype)


class ChunkedRows(Source):
    """A dataset of HDF5 or Zarr: an array that is read by slicing it."""

    def __init__(self, array: Any, samples_in: str) -> None:
        self._array = array
        self._by_rows = samples_in == "rows"
        first, second = array.shape
        self._dense((first, second) if self._by_rows else (second, first), np.dtype(array.dtype))
        chunks = getattr(array, "chunks", None)
        self.chunk = int(chunks[0 if self._by_rows else 1]) if chunks else 1
        path = path_of(array)
        self.name = f"{path or 'the store'}:{getattr(array, 'name', '')}"
        self._beside(path)

    def check(self) -> None:
        """Make sure that the dataset has kept its shape."""
        N, F = self.shape
        if tuple(self._array.shape) != ((N, F) if self._by_rows else (F, N)):
            raise DataChangedError(
                f"{self.name} had shape {(N, F) if self._by_rows else (F, N)} when it was opened "
                f"and now has {tuple(self._array.shape)}: open it again"
            )

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop."""
        rows = self._array[start:stop] if self._by_rows else self._array[:, start:stop].T
        return np.asarray(rows)

    def take(self, indices: Array) -> Array:
        """These rows, given in increasing order."""
        # Runs of neighbours: selecting scattered rows at once is slow in both libraries.
        borders = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        runs = np.split(indices, borders[1:]) if indices.size else []
        pieces = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        return np.concatenate(pieces) if pieces else np.empty((0, self.shape[1]), self.dtype)


class CompressedRows(Source):
    """Compressed sparse rows whose three parts are in files."""

    def __init__(
        self, name: str, beside: Any, parts: Any, shape: tuple[int, int], file: File | None
    ) -> None:
        self.name = name
        self._beside(beside)
        self._file = file
        self._data, self._indices, indptr = parts
        self._indptr = np.asarray(indptr[:], dtype=np.int64)
        self.shape = N, F = shape
        self.dtype = np.dtype(self._data.dtype)
        entries = int(self._indptr[-1]) if self._indptr.size else -1
        lengths = (self._data.shape[0], self._indices.shape[0])
        if (
            self._indptr.shape != (N + 1,)
            or self._indptr[0] != 0
            or (np.diff(self._indptr) < 0).any()
            or lengths != (entries, entries)
        ):
            raise FileFormatError(
                f"{name} is not a compressed sparse matrix of {N} rows: it has {lengths[0]} "
                f"entries, {lengths[1]} indices and {self._indptr.size} row pointers"
            )
        self._entry = max(self.dtype.itemsize, 8) + self._indices.dtype.itemsize
        self.row_bytes = max(1, entries * self._entry // max(N, 1)) + 8
        self.preferred_samples = sparse_block_samples(F, N, entries)

    def check(self) -> None:
        """Make sure that the file, if the parts are in one, is still the same."""
        if self._file is not None:
            self._file.check()

    def blocks(self, size: int, largest: int) -> Borders:
        """Rows differ in length: a block ends where it would become too large."""
        N, borders, start = self.shape[0], [], 0
        while start < N:
            entries = self._indptr[start] + largest // self._entry
            full = int(np.searchsorted(self._indptr, entries, side="right")) - 1
            stop = min(start + size, N, max(full, start + 1))
            borders.append((start, stop))
            start = stop
        return borders

    def read(self, start: int, stop: int) -> Compressed:
        """Rows start..stop, compressed."""
        first, last = int(self._indptr[start]), int(self._indptr[stop])
        data = np.asarray(self._data[first:last])
        data = data.astype(compute_dtype(self.dtype), copy=False)  # scipy.sparse lacks float16
        indices = np.asarray(self._indices[first:last])
        if indices.size and not 0 <= indices.min() <= indices.max() < self.shape[1]:
            raise ValueError(
                f"column indices run from {indices.min()} to {indices.max()} in a matrix of "
                f"{self.shape[1]} columns"
            )
        return Compressed(data, indices, self._indptr[start : stop + 1] - first)

    def take(self, indices: Array) -> Compressed:
        """These rows, given in increasing order, compressed."""
        pieces = [self.read(n, n + 1) for n in indices.tolist()]
        if not pieces:
            return self.read(0, 0)
        indptr = np.cumsum([0] + [piece.data.size for piece in pieces])
        data = np.concatenate([piece.data for piece in pieces])
        return Compressed(data, np.concatenate([piece.indices for piece in pieces]), indptr)


def path_of(stored: Any) -> str | None:
    """The file or folder that an open dataset or group is in, if it is in one."""
    if hasattr(stored, "file"):  # HDF5
        return str(stored.file.filename)
    store = getattr(stored, "store", None)  # Zarr
    root = getattr(store, "root", None)
    return None if root is None else str(root)


def raw_rows(member: Member, samples_in: str) -> RawRows:
    """The source for a matrix that lies in a file number after number."""
    file, shape, dtype = member.file, member.shape, member.dtype
    check_kind(dtype, shape)
    promised = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if file.size < member.offset + promised or min(shape) < 0:
        raise FileFormatError(
            f"{file.path} is cut off: its header promises {shape[0]} x {shape[1]} numbers, which "
            f"take {promised} bytes; it holds {max(file.size - member.offset, 0)}; copy it anew"
        )
    rows = samples_in == "rows"
    shape = (shape[0], shape[1]) if rows else (shape[1], shape[0])
    return RawRows(file, member.offset, shape, dtype, samples_together=member.fortran != rows)


def sparse_rows(
    name: str,
    beside: Any,
    parts: tuple[Any, Any, Any],
    sides: Iterable[Any],
    order: str,
    samples_in: str,
    budget: int,
    file: File | None = None,
) -> Any:
    """The source for data, indices and indptr; in memory if they are compressed by feature."""
    rows, columns = (int(side) for side in sides)
    if order not in ("csr", "csc"):
        raise FileFormatError(f"{name} is a sparse matrix in {order} order, expected csr or csc")
    for part in parts:
        if len(part.shape) != 1:
            raise FileFormatError(f"{name}: a part of the sparse matrix has shape {part.shape}")
    if min(rows, columns) < 0 or 8 * max(rows, columns) > max(budget, _LONG_SIDE):
        raise FileFormatError(
            f"{name} promises a sparse matrix of {rows} x {columns}, of which a single row or "
            f"column does not fit in memory: raise max_memory if that is right"
        )
    check_kind(np.dtype(parts[0].dtype), (rows, columns))
    if (order == "csr") == (samples_in == "rows"):
        shape = (rows, columns) if order == "csr" else (columns, rows)
        return CompressedRows(name, beside, parts, shape, file)
    size = sum(part.shape[0] * part.dtype.itemsize for part in parts)
    if size > budget // 4:
        raise FileFormatError(
            f"{name} is compressed by feature, so samples cannot be read one after the other, and "
            f"its {size} bytes are too many to turn round in memory: store it compressed by "
            "sample, or raise max_memory"
        )
    shape = (rows, columns) if order == "csr" else (columns, rows)
    everything = CompressedRows(name, beside, parts, shape, file).read(0, shape[0])
    return sp.csr_array(tuple(everything), shape=shape).T

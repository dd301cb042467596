"""The three layouts that serve every kind of file, each a `Source`.

Numbers one after the other (``.npy``, temporary files), datasets that are read by slicing them
(HDF5, Zarr), and compressed sparse rows or columns. Files are read, never mapped, so that what is
read does not count as memory of the process once a block is done.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...errors import DataChangedError, FileFormatError, MaskedDataError
from ...text import visible
from ..blocks import Array, compute_dtype
from ..borders import Borders, sparse_block_samples
from ..validate import check_kind
from .evidence import Watched, WatchedFile, WatchedFiles, WatchedShape
from .limits import attribute, cast_exactly, check_fits, check_sides, named_damage
from .sources import Compressed, Source
from .watch import Watch

__all__ = ["ChunkedSource", "CompressedSource", "OpenFile", "RawArray", "RawSource", "path_of"]

# --- numbers one after the other --------------------------------------------------------------


class OpenFile:
    """A file that several threads read, and that must not change meanwhile.

    Parameters
    ----------
    path : path
    descriptor : int, optional
        That of a nameless copy of what the path holds; it is closed in the end.
    is_mapped : bool
        The caller has mapped it, and may write to it: its size must not change.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        descriptor: int | None = None,
        is_mapped: bool = False,
    ) -> None:
        self.path, self.is_mapped = Path(path), is_mapped
        self._descriptor = os.open(self.path, os.O_RDONLY) if descriptor is None else descriptor
        weakref.finalize(self, os.close, self._descriptor)
        self.watched = WatchedFile(
            self.path,
            descriptor=self._descriptor if is_mapped else descriptor,
            opened=os.fstat(self._descriptor),
            firm="size" if is_mapped else "all",
        )
        self.size = self.watched.size

    def watch(self) -> Watch:
        """Return a watch of what is read from this file, which has its own blocks."""
        return Watch(str(self.path), (self.watched,), by_contents=self.is_mapped)

    def read_through(self) -> None:
        """Check now what is else checked while it is read in order: nothing, for most files."""

    def fill(self, buffer: Array, offset: int) -> Array:
        """Read into a contiguous array from a place in the file."""
        view: Any = memoryview(buffer.view(np.uint8).reshape(-1))  # type: ignore[arg-type]
        n_read = 0
        while n_read < len(view):
            count = os.preadv(self._descriptor, [view[n_read:]], offset + n_read)
            if count == 0:
                raise DataChangedError(
                    f"{self.path} ends at byte {offset + n_read}: it had {self.size} bytes when it "
                    "was opened; copy or download it again"
                )
            n_read += count
        return buffer


@dataclass(frozen=True)
class RawArray:
    """An array whose numbers lie one after the other in a file; vectors can be sliced."""

    file: OpenFile
    offset: int
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    def __getitem__(self, index: slice) -> Array:
        start, stop, _ = index.indices(self.shape[0])
        buffer = np.empty(max(stop - start, 0), self.dtype)
        return self.file.fill(buffer, self.offset + start * self.dtype.itemsize)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        order: Any = "F" if self.fortran else "C"
        flat = self.file.fill(np.empty(int(np.prod(self.shape)), self.dtype), self.offset)
        self.file.watch().check()
        return flat.reshape(self.shape, order=order).astype(dtype or self.dtype)


class RawSource(Source):
    """A matrix whose numbers lie one after the other, row after row or column after column."""

    def __init__(self, array: RawArray) -> None:
        file, shape, dtype = array.file, array.shape, array.dtype
        check_kind(dtype, shape)
        claimed = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if file.size < array.offset + claimed or min(shape) < 0:
            raise FileFormatError(
                f"{file.path} is truncated: its header claims {shape[0]} x {shape[1]} numbers, "
                f"which take {claimed} bytes; it holds {max(file.size - array.offset, 0)}; copy or "
                "download it again"
            )
        self.array = array
        self.watch = file.watch()
        self.name = str(file.path)
        self._set_place(file.path)
        self._set_dense((shape[0], shape[1]), dtype)

    def turned(self) -> Self:
        """Rows one after the other are the columns, one after the other, of the transpose."""
        array = self.array
        return type(self)(replace(array, shape=array.shape[::-1], fortran=not array.fortran))

    def readable(self, budget: int) -> Any:
        """Return the source, whose file has been checked if its rows do not come in order."""
        if self.array.fortran:
            self.array.file.read_through()
        return self

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop."""
        n_rows, n_columns = self.shape
        file, offset, size = self.array.file, self.array.offset, self.dtype.itemsize
        if not self.array.fortran:
            rows = np.empty((stop - start, n_columns), self.dtype)
            return file.fill(rows, offset + start * n_columns * size)
        columns = np.empty((n_columns, stop - start), self.dtype)
        for index, column in enumerate(columns):
            file.fill(column, offset + (index * n_rows + start) * size)
        return columns.T

    def take(self, indices: Array) -> Array:
        """These rows, given in increasing order."""
        rows = np.empty((indices.size, self.shape[1]), self.dtype)
        for row, index in zip(rows, indices.tolist(), strict=True):
            row[:] = self.read(index, index + 1)[0]
        return rows


# --- datasets that are sliced -----------------------------------------------------------------


class ChunkedSource(Source):
    """A dataset of HDF5 or Zarr: an array that is read by slicing it.

    Parameters
    ----------
    array : dataset
    is_ours : bool
        It was opened by this library: its file must not change.
    """

    def __init__(self, array: Any, *, is_ours: bool = False) -> None:
        check_kind(np.dtype(array.dtype), tuple(array.shape))
        self._set_origin(array, is_ours)
        self._set_sides()

    def _set_origin(self, array: Any, is_ours: bool) -> None:
        self._array, self._by_rows = array, True
        path = path_of(array)
        self.name = f"{path or 'the store'}:{getattr(array, 'name', '')}"
        self._set_place(path)
        self._missing = _missing_value(array)
        watched = (WatchedShape(self.name, array), *_files_behind(array, is_ours))
        self.watch = Watch(self.name, watched, by_contents=not is_ours)

    def turned(self) -> Self:
        """The same dataset, sliced along its other side."""
        twin = copy.copy(self)
        twin._by_rows, twin.watch = not self._by_rows, self.watch.of_other_blocks()
        twin._set_sides()
        return twin

    def _set_sides(self) -> None:
        array, by_rows = self._array, self._by_rows
        first, second = array.shape
        self._set_dense((first, second) if by_rows else (second, first), np.dtype(array.dtype))
        chunks = getattr(array, "chunks", None)
        self.chunk = int(chunks[0 if by_rows else 1]) if chunks else 1

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop."""
        return self._present(
            self._array[start:stop] if self._by_rows else self._array[:, start:stop].T
        )

    def _present(self, part: Any) -> Array:
        """What was read of the dataset; raise an error if some of it is marked as missing."""
        numbers = np.asarray(part)
        if self._missing is not None and (numbers == self._missing).any():
            raise MaskedDataError(
                f"{self.name}: some entries are {self._missing:g}, which its attribute _FillValue "
                "or missing_value (ENVI: data ignore value) marks as missing: remove such samples "
                "or features, fill them, or remove the attribute if they are numbers"
            )
        return numbers

    def take(self, indices: Array) -> Array:
        """These rows, given in increasing order."""
        # Runs of neighbours: selecting scattered rows at once is slow in both libraries.
        borders = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        runs = np.split(indices, borders[1:]) if indices.size else []
        blocks = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        return np.concatenate(blocks) if blocks else np.empty((0, self.shape[1]), self.dtype)


def _missing_value(array: Any) -> float | None:
    """The number that marks entries without a value, by the conventions of netCDF and xarray."""
    for name in ("_FillValue", "missing_value"):
        value = np.asarray(attribute(array, name))
        if value.size == 1 and value.dtype.kind in "fiu":
            return float(value.item())
    return None


def path_of(dataset: Any) -> str | None:
    """The file or folder that an open dataset or group is in, if it is in one."""
    if hasattr(dataset, "file"):  # HDF5
        return str(dataset.file.filename)
    store = getattr(dataset, "store", None)  # Zarr
    root = getattr(store, "root", None)
    return None if root is None else str(root)


def _files_behind(part: Any, is_ours: bool) -> Iterator[Watched]:
    """The files of an array of any kind, as far as they are known."""
    if isinstance(part, RawArray):
        yield part.file.watched
        return
    path = path_of(part)
    if path is not None and os.path.isdir(path):
        yield WatchedFiles.of_zarr(Path(path, part.path), is_firm=is_ours)
    elif path is not None and os.path.isfile(path):
        yield WatchedFile(path, firm="all" if is_ours else "nothing")


# --- compressed sparse rows or columns --------------------------------------------------------


class CompressedSource(Source):
    """A sparse matrix compressed by row ("csr") or by column ("csc"), its parts in files.

    Parameters
    ----------
    name : str
        What to call it in messages.
    path : where files beside it go
    parts : data, indices and indptr
        Vectors that can be sliced.
    sides : rows and columns
    order : {"csr", "csc"}
    budget : int
        A vector with a number for each row or column has to fit.
    is_ours : bool
        The parts were opened by this library: their files must not change.
    """

    def __init__(
        self,
        name: str,
        path: str | os.PathLike[str] | None,
        parts: tuple[Any, Any, Any],
        sides: Iterable[Any],
        order: str,
        budget: int,
        is_ours: bool = True,
    ) -> None:
        size = cast_exactly(f"{name}: its shape", sides, np.int64)
        if size.shape != (2,):
            raise FileFormatError(f"{name} has the shape {visible(size)}, expected two sides")
        rows, columns = size.tolist()
        if order not in ("csr", "csc"):
            raise FileFormatError(
                f"{name} is a sparse matrix in {order} order, expected csr or csc"
            )
        for part in parts:
            if len(part.shape) != 1:
                raise FileFormatError(
                    f"{name}: a part of the sparse matrix has shape {part.shape}, not a vector's"
                )
        check_sides(name, rows, columns, min(part.shape[0] for part in parts[:2]), budget)
        check_kind(np.dtype(parts[0].dtype), (rows, columns))
        self.name, self.shape, self._by_rows = name, (rows, columns), order == "csr"
        self._set_place(path)
        files = (watched for part in parts for watched in _files_behind(part, is_ours))
        different = {watched.name: watched for watched in files}
        self.watch = Watch(name, tuple(different.values()), by_contents=not is_ours)
        self._data, self._indices, indptr = parts
        self._check_pointers(indptr)
        self.dtype = np.dtype(self._data.dtype)
        n, width = self.shape if self._by_rows else self.shape[::-1]
        entries = int(self._indptr[-1])
        self._entry_bytes = max(self.dtype.itemsize, 8) + self._indices.dtype.itemsize
        self.row_bytes = max(1, entries * self._entry_bytes // max(n, 1)) + 8
        self.max_block_rows = sparse_block_samples(width, n, entries)

    def _check_pointers(self, indptr: Any) -> None:
        """Refuse pointers of another number than the sides claim, then those that lead astray."""
        n = self.shape[0 if self._by_rows else 1]
        lengths = (self._data.shape[0], self._indices.shape[0])
        if indptr.shape == (n + 1,):
            self._indptr = cast_exactly(f"{self.name}: its pointers", indptr[:], np.int64)
            ends = (self._indptr[0], *lengths)
            falls = (np.diff(self._indptr) < 0).any()
            if ends == (0, self._indptr[-1], self._indptr[-1]) and not falls:
                return
        raise FileFormatError(
            f"{self.name} is not a compressed sparse matrix of {n} "
            f"{'rows' if self._by_rows else 'columns'}: it has {lengths[0]} entries, "
            f"{lengths[1]} indices and {indptr.shape[0]} pointers"
        )

    def turned(self) -> Self:
        """Compressed rows are the compressed columns of the transpose."""
        twin = copy.copy(self)
        twin.shape, twin._by_rows = self.shape[::-1], not self._by_rows
        twin.watch = self.watch.of_other_blocks()
        return twin

    def readable(self, budget: int) -> Any:
        """Return the matrix in memory if it is compressed by column."""
        if self._by_rows:
            return self
        parts = (self._data, self._indices, self._indptr)
        check_fits(
            self.name,
            sum(part.shape[0] * part.dtype.itemsize for part in parts),
            budget,
            "it is compressed by feature, so samples cannot be read one after the other",
            "store it compressed by sample",
        )
        with named_damage(self.name):
            return self.turned().whole().T

    def blocks(self, size: int, max_bytes: int) -> Borders:
        """Rows differ in length: a block ends where it would become too large."""
        n_rows, borders, start = self.shape[0], [], 0
        while start < n_rows:
            entries = self._indptr[start] + max_bytes // self._entry_bytes
            full = int(np.searchsorted(self._indptr, entries, side="right")) - 1
            stop = min(start + size, n_rows, max(full, start + 1))
            borders.append((start, stop))
            start = stop
        return borders

    def read(self, start: int, stop: int) -> Compressed:
        """Rows start..stop, compressed."""
        first, last = int(self._indptr[start]), int(self._indptr[stop])
        data = np.asarray(self._data[first:last])
        data = data.astype(compute_dtype(self.dtype), copy=False)  # scipy.sparse lacks float16
        indices = np.asarray(self._indices[first:last])
        if indices.dtype.kind not in "iu":
            indices = cast_exactly("column indices", indices, np.int64)
        if indices.size and not 0 <= indices.min() <= indices.max() < self.shape[1]:
            raise FileFormatError(
                f"column indices run from {indices.min()} to {indices.max()} in a matrix of "
                f"{self.shape[1]} columns"
            )
        return Compressed(data, indices, self._indptr[start : stop + 1] - first)

    def take(self, indices: Array) -> Compressed:
        """These rows, given in increasing order, compressed."""
        rows = [self.read(index, index + 1) for index in indices.tolist()]
        if not rows:
            return self.read(0, 0)
        indptr = np.cumsum([0] + [row.data.size for row in rows])
        data = np.concatenate([row.data for row in rows])
        return Compressed(data, np.concatenate([row.indices for row in rows]), indptr)

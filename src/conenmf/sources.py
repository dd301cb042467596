"""Files that hold a matrix: ``.npy``, ``.npz``, HDF5, Zarr and AnnData, dense or sparse.

A *source* reads rows, one per sample, from one kind of file. Files are read, never mapped, so that
what is read does not count as memory of the process once a block is done. Nothing is unpickled.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
import weakref
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from .blocks import Array
from .errors import ConeNMFError, DataChangedError, DataTypeError, FileFormatError
from .matrix import Borders, check_kind, equal_borders
from .memory import compute_dtype, sparse_block_samples

__all__ = ["Compressed", "Source", "is_stored", "open_path", "open_stored"]


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


Opened: TypeAlias = Source | Any
"""A source; or, where a file had to be read as a whole, its rows in memory."""


class _File:
    """A file that is read at any place by any thread, and must not change meanwhile."""

    def __init__(self, path: str | os.PathLike[str], *, modified_elsewhere: bool = False) -> None:
        self.path = Path(path)
        self._descriptor = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self._by_others = modified_elsewhere
        self._state = self._look()
        self.size = self._state[0]

    def _look(self) -> tuple[int, int]:
        status = os.stat(self.path)
        return status.st_size, 0 if self._by_others else status.st_mtime_ns

    def check(self) -> None:
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


class _Member:
    """An array at some place in a file; one-dimensional ones can be sliced."""

    def __init__(
        self, file: _File, offset: int, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]
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


class _RawRows(Source):
    """Numbers in a file, row after row (samples together) or column after column."""

    def __init__(
        self,
        file: _File,
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
        self._file.check()

    def read(self, start: int, stop: int) -> Array:
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
        if self._together:
            rows = np.empty((indices.size, self.shape[1]), self.dtype)
            for row, n in zip(rows, indices.tolist(), strict=True):
                self._file.fill(row, self._offset + n * row.nbytes)
            return rows
        pieces = [self.read(n, n + 1) for n in indices.tolist()]
        return np.concatenate(pieces) if pieces else np.empty((0, self.shape[1]), self.dtype)


class _ChunkedRows(Source):
    """A dataset of HDF5 or Zarr: an array that is read by slicing it."""

    def __init__(self, array: Any, samples_in: str) -> None:
        self._array = array
        self._by_rows = samples_in == "rows"
        first, second = array.shape
        self._dense((first, second) if self._by_rows else (second, first), np.dtype(array.dtype))
        chunks = getattr(array, "chunks", None)
        self.chunk = int(chunks[0 if self._by_rows else 1]) if chunks else 1
        path = _path_of(array)
        self.name = f"{path or 'the store'}:{getattr(array, 'name', '')}"
        self._beside(path)

    def check(self) -> None:
        N, F = self.shape
        if tuple(self._array.shape) != ((N, F) if self._by_rows else (F, N)):
            raise DataChangedError(
                f"{self.name} had shape {(N, F) if self._by_rows else (F, N)} when it was opened "
                f"and now has {tuple(self._array.shape)}: open it again"
            )

    def read(self, start: int, stop: int) -> Array:
        rows = self._array[start:stop] if self._by_rows else self._array[:, start:stop].T
        return np.asarray(rows)

    def take(self, indices: Array) -> Array:
        # Runs of neighbours: selecting scattered rows at once is slow in both libraries.
        borders = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        runs = np.split(indices, borders[1:]) if indices.size else []
        pieces = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        return np.concatenate(pieces) if pieces else np.empty((0, self.shape[1]), self.dtype)


class _CompressedRows(Source):
    """Compressed sparse rows whose three parts are in files."""

    def __init__(
        self, name: str, beside: Any, parts: Any, shape: tuple[int, int], file: _File | None
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
        pieces = [self.read(n, n + 1) for n in indices.tolist()]
        if not pieces:
            return self.read(0, 0)
        indptr = np.cumsum([0] + [piece.data.size for piece in pieces])
        data = np.concatenate([piece.data for piece in pieces])
        return Compressed(data, np.concatenate([piece.indices for piece in pieces]), indptr)


def _path_of(stored: Any) -> str | None:
    """The file or folder that an open dataset or group is in, if it is in one."""
    if hasattr(stored, "file"):  # HDF5
        return str(stored.file.filename)
    store = getattr(stored, "store", None)  # Zarr
    root = getattr(store, "root", None)
    return None if root is None else str(root)


# --- opening ----------------------------------------------------------------------------------


def is_stored(matrix: Any) -> bool:
    """Whether this is an open file rather than an array in memory."""
    if isinstance(matrix, np.memmap):
        return _is_whole_file(matrix)
    return _library(matrix) in ("h5py", "zarr", "anndata")


def _library(matrix: Any) -> str:
    return type(matrix).__module__.partition(".")[0]


def _is_whole_file(array: Any) -> bool:
    """Whether a memmap shows the numbers of its file in order, and nobody's private changes."""
    return (
        array.filename is not None
        and array.mode in ("r", "r+", "w+")
        and isinstance(array.base, mmap.mmap)
        and (array.flags.c_contiguous or array.flags.f_contiguous)
        and array.ndim == 2
    )


def open_stored(matrix: Any, samples_in: str, budget: int) -> Opened:
    """Open a memmap, or a dataset or group of HDF5 or Zarr."""
    if isinstance(matrix, np.memmap):
        file = _File(str(matrix.filename), modified_elsewhere=True)
        if matrix.mode != "r":
            matrix.flush()
        fortran = not matrix.flags.c_contiguous
        return _raw(file, matrix.offset, matrix.shape, matrix.dtype, fortran, samples_in)
    if _library(matrix) == "anndata":
        if not hasattr(matrix, "group"):
            raise DataTypeError(
                "an AnnData object holds more than a matrix: pass its .X or a layer"
            )
        matrix = matrix.group
    if hasattr(matrix, "dtype"):
        return _chunked(matrix, samples_in)
    name = f"{_path_of(matrix) or 'the store'}:{matrix.name}"
    return _open_sparse_group(matrix, name, samples_in, budget)


def open_path(
    path: str | os.PathLike[str], samples_in: str, dataset: str | None, budget: int
) -> Opened:
    """Open a file by its name."""
    text = os.fspath(path)
    if dataset is None and not os.path.exists(text) and ":" in text:
        text, dataset = text.rsplit(":", 1)
    file = Path(text)
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file}")
    kind = _KINDS.get(file.suffix.lower())
    if kind is None and file.is_dir():
        kind = _open_zarr
    if kind is None:
        raise FileFormatError(
            f"{file}: unknown kind of file; known are {', '.join(sorted(_KINDS))}, "
            "and folders that hold a Zarr store"
        )
    return kind(file, samples_in, dataset, budget)


def _raw(
    file: _File,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fortran: bool,
    samples_in: str,
) -> _RawRows:
    check_kind(dtype, shape)
    promised = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if file.size < offset + promised:
        raise FileFormatError(
            f"{file.path} is cut off: its header promises {promised} bytes of numbers, "
            f"it holds {max(file.size - offset, 0)}; copy it anew"
        )
    rows = samples_in == "rows"
    shape = (shape[0], shape[1]) if rows else (shape[1], shape[0])
    return _RawRows(file, offset, shape, dtype, samples_together=fortran != rows)


def _read_header(stream: Any, name: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The header of an ``.npy`` file or of a member of an ``.npz`` file; never unpickles."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        return read(stream)
    except Exception as problem:  # whatever the parser makes of a damaged header
        raise FileFormatError(f"{name} does not begin like an .npy file: {problem}") from problem


def _open_npy(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    file = _File(path)
    with open(path, "rb") as stream:
        shape, fortran, dtype = _read_header(stream, path)
        return _raw(file, stream.tell(), shape, dtype, fortran, samples_in)


def _open_npz(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """An archive of arrays: the parts of a sparse matrix as SciPy saves them, or one matrix."""
    file = _File(path)
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as problem:
        raise FileFormatError(f"{path} is not an .npz file, or is cut off: {problem}") from problem
    with archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

        def member(name: str) -> _Member | Array:
            """In its place in the file; a compressed one is unpacked if it is small enough."""
            info = members[name]
            with archive.open(info) as stream:
                shape, fortran, dtype = _read_header(stream, path)
                length = stream.tell()
            size = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.hasobject:
                raise DataTypeError(f"{path}: member {name} holds objects, expected numbers")
            if info.file_size < length + size:
                raise FileFormatError(f"{path}: member {name} is cut off; copy the file anew")
            if info.compress_type == zipfile.ZIP_STORED:
                return _Member(file, _place_in_archive(file, info) + length, shape, fortran, dtype)
            if size > budget // 4:
                raise FileFormatError(
                    f"{path}: member {name} is compressed and takes {size} bytes, too many to "
                    "unpack in memory: save it uncompressed, or raise max_memory"
                )
            with archive.open(info) as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)

        if {"data", "indices", "indptr", "shape"} <= members.keys():
            order = np.asarray(member("format")).item() if "format" in members else "csr"
            order = order.decode() if isinstance(order, bytes) else str(order)
            parts = (member("data"), member("indices"), member("indptr"))
            shape = np.asarray(member("shape")).tolist()
            return _sparse(str(path), path, parts, shape, order, samples_in, budget, file)
        if dataset is None and len(members) == 1:
            (dataset,) = members
        if dataset not in members:
            names = ", ".join(sorted(members)) or "nothing"
            raise FileFormatError(f"{path} holds {names}: name one of them with dataset=")
        found = member(dataset)
        if isinstance(found, _Member):
            return _raw(file, found.offset, found.shape, found.dtype, found.fortran, samples_in)
        check_kind(found.dtype, found.shape)
        return found if samples_in == "rows" else found.T


def _place_in_archive(file: _File, info: zipfile.ZipInfo) -> int:
    """Where the bytes of an uncompressed member begin."""
    header = file.fill(np.empty(30, np.uint8), info.header_offset).tobytes()
    name, extra = struct.unpack("<HH", header[26:30])
    return info.header_offset + 30 + int(name) + int(extra)


def _open_hdf5(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    h5py = _needed("h5py", path)
    try:
        # A chunk that is larger than a block is needed several times in a row: let it be kept.
        root = h5py.File(path, "r", rdcc_nbytes=max(1 << 20, budget // 16))
    except OSError as problem:
        raise FileFormatError(f"{path} is not an HDF5 file, or is cut off: {problem}") from problem
    try:
        return _open_member(root, path, samples_in, dataset, budget)
    except Exception as problem:  # damaged inside
        root.close()
        if isinstance(problem, ConeNMFError):
            raise
        raise FileFormatError(f"{path} is damaged: {problem}; copy it anew") from problem


def _open_zarr(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    zarr = _needed("zarr", path)
    try:
        root = zarr.open(str(path), mode="r")
    except Exception as problem:  # the library has many
        raise FileFormatError(f"{path} is not a Zarr store: {problem}") from problem
    return _open_member(root, path, samples_in, dataset, budget)


def _open_member(
    root: Any, path: Path, samples_in: str, dataset: str | None, budget: int
) -> Opened:
    """A dataset, a sparse group, or X of AnnData, in an open HDF5 file or Zarr store."""
    member = root
    if not hasattr(root, "dtype"):
        names = sorted(root.keys())
        if dataset is None:
            if "X" in names:
                dataset = "X"
            elif len(names) == 1:
                (dataset,) = names
            elif not {"data", "indices", "indptr"} <= set(names):
                raise FileFormatError(
                    f"{path} holds {', '.join(names) or 'nothing'}: name one of them with dataset="
                )
        if dataset is not None:
            try:
                member = root[dataset.strip("/")]
            except KeyError as problem:
                raise FileFormatError(
                    f"{path} has no {dataset!r}; it holds {', '.join(names)}"
                ) from problem
    if hasattr(member, "dtype"):
        return _chunked(member, samples_in)
    return _open_sparse_group(member, f"{path}:{dataset or ''}", samples_in, budget, path)


def _chunked(array: Any, samples_in: str) -> Source:
    check_kind(np.dtype(array.dtype), tuple(array.shape))
    return _ChunkedRows(array, samples_in)


def _open_sparse_group(
    group: Any, name: str, samples_in: str, budget: int, path: Path | None = None
) -> Opened:
    attributes = dict(group.attrs)
    if not {"data", "indices", "indptr"} <= set(group.keys()):
        raise FileFormatError(
            f"{name} is a group of {', '.join(sorted(group.keys())) or 'nothing'}, expected a "
            "dataset, or a sparse matrix with data, indices and indptr"
        )
    shape = attributes.get("shape", attributes.get("h5sparse_shape"))
    if shape is None and "shape" in group:
        shape = group["shape"][:]
    if shape is None:
        raise FileFormatError(f"{name} does not say its shape: expected an attribute 'shape'")
    order = attributes.get("encoding-type", attributes.get("h5sparse_format", "csr"))
    order = order.decode() if isinstance(order, bytes) else str(order)
    parts = (group["data"], group["indices"], group["indptr"])
    beside = path or _path_of(group)
    return _sparse(name, beside, parts, shape, order[:3], samples_in, budget, None)


def _sparse(
    name: str,
    beside: Any,
    parts: tuple[Any, Any, Any],
    sides: Iterable[Any],
    order: str,
    samples_in: str,
    budget: int,
    file: _File | None,
) -> Opened:
    rows, columns = (int(side) for side in sides)
    if order not in ("csr", "csc"):
        raise FileFormatError(f"{name} is a sparse matrix in {order} order, expected csr or csc")
    if (order == "csr") == (samples_in == "rows"):
        shape = (rows, columns) if order == "csr" else (columns, rows)
        return _CompressedRows(name, beside, parts, shape, file)
    size = sum(part.shape[0] * part.dtype.itemsize for part in parts)
    if size > budget // 4:
        raise FileFormatError(
            f"{name} is compressed by feature, so samples cannot be read one after the other, and "
            f"its {size} bytes are too many to turn round in memory: store it compressed by "
            "sample, or raise max_memory"
        )
    make = sp.csr_array if order == "csr" else sp.csc_array
    matrix = make(tuple(np.asarray(part[:]) for part in parts), shape=(rows, columns))
    return matrix if samples_in == "rows" else matrix.T


def _needed(library: str, path: Path) -> Any:
    try:
        return __import__(library)
    except ImportError as problem:
        raise FileFormatError(
            f"{path} needs the package {library}: pip install 'conenmf[disk]'"
        ) from problem


_KINDS = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
    ".h5ad": _open_hdf5,
    ".zarr": _open_zarr,
}

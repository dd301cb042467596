"""Arrays: NumPy's ``.npy`` and ``.npz``, MATLAB's ``.mat`` and Matrix Market.

NumPy reads its own files, those that are not compressed mapped into memory; SciPy reads MATLAB's
files of version 5 to 7 and Matrix Market, which have to fit in memory; MATLAB 7.3 writes HDF5.
"""

from __future__ import annotations

import math
import struct
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy import io as scipy_io

from ..data.blocks import Array
from ..data.disk import Stamp
from ..data.validate import check_kind
from ..errors import DataTypeError, FileFormatError
from ..names import Names
from ..text import decoded, visible
from .hdf5 import open_matlab_hdf5
from .limits import (
    MAX_EXPANSION_RATIO,
    check_expansion,
    check_fits,
    check_sides,
    choose_member,
    fits,
    named_damage,
    only_matrix,
    too_many_names,
)
from .source import ArraySource, CompressedSource, NamedMatrix

_CHECKED_BYTES = 64 << 20  # of a member that is mapped, and whose checksum is compared
_READ_AS_A_WHOLE = "a file of this kind can only be read as a whole"
_ITEM_BYTES = {"sparse": 5, "logical": 1, "single": 4, "double": 8, "float32": 4, "float64": 8}
_ITEM_BYTES |= {f"{u}int{n}": n // 8 for u in ("", "u") for n in (8, 16, 32, 64)}
_HDF5_SIGNATURE = b"\x89HDF"  # at the beginning, or after a header of MATLAB


# --- NumPy ------------------------------------------------------------------------------------


def open_npy(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an ``.npy`` file, mapped into memory."""
    stamp = Stamp([path])
    with named_damage(path), open(path, "rb") as stream:
        header = _read_header(stream, path)
        array = _mapped(path, stream.tell(), header)
    return NamedMatrix(ArraySource(array, str(path), path, stamp))


class _Header(NamedTuple):
    """The facts at the beginning of an array."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes that its numbers take."""
        return math.prod(self.shape) * self.dtype.itemsize


def _read_header(stream: Any, name: object) -> _Header:
    """Read the header of an array; Python objects are refused, since they are pickles."""
    formats = np.lib.format
    try:
        is_first = formats.read_magic(stream)[0] == 1
        read = formats.read_array_header_1_0 if is_first else formats.read_array_header_2_0
        header = _Header(*read(stream))
    except ValueError as problem:
        raise FileFormatError(f"{name} has no valid .npy header: {visible(problem)}") from problem
    if header.dtype.hasobject:
        raise DataTypeError(
            f"{name} holds Python objects, which only pickle could read: save numbers with "
            "values.astype(float), names with values.astype(str)"
        )
    return header


def _mapped(path: Path, offset: int, header: _Header) -> Array:
    """An array in a file, mapped into memory."""
    held = path.stat().st_size - offset
    if min(header.shape, default=1) < 0 or header.size > held:
        raise FileFormatError(
            f"{path} is truncated: its header claims {' x '.join(map(str, header.shape))} numbers, "
            f"which take {header.size} bytes; it holds {held}; copy or download it again"
        )
    order: Any = "F" if header.is_fortran else "C"
    return np.asarray(np.memmap(path, header.dtype, "r", offset, header.shape, order))


class _Archive:
    """The arrays of an ``.npz`` file."""

    def __init__(self, archive: zipfile.ZipFile, path: Path, budget: int) -> None:
        self._zip, self.path, self.budget = archive, path, budget
        self.members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    def read(self, name: str) -> Array:
        """An array: numbers that are not compressed are mapped, anything else has to fit."""
        info, title = self.members[name], f"{self.path}: member {name}"
        with self._zip.open(info) as stream:
            header = _read_header(stream, title)
            start = stream.tell()
        if header.size != info.file_size - start:
            raise FileFormatError(
                f"{title} is truncated or damaged: its header claims {header.size} bytes, and it "
                f"holds {info.file_size - start}; copy or download the file again"
            )
        if self.is_plain(name) and header.shape and header.dtype.kind not in "US":
            if header.size <= _CHECKED_BYTES:
                self._zip.read(info)  # which compares the checksum
            with open(self.path, "rb") as file:
                file.seek(info.header_offset + 26)
                lengths = struct.unpack("<HH", file.read(4))  # of the name and an extra field
            return _mapped(self.path, info.header_offset + 30 + sum(lengths) + start, header)
        check_expansion(title, info.compress_size, header.size)
        check_fits(title, header.size, self.budget, "it is compressed", "save it uncompressed")
        with self._zip.open(info) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def is_plain(self, name: str) -> bool:
        """Whether a member is not compressed."""
        return self.members[name].compress_type == zipfile.ZIP_STORED

    def texts(self, name: str) -> list[str] | None:
        """A list of names; None if it is not there, or too long."""
        if name not in self.members or not fits(self.members[name].file_size, self.budget):
            return None
        array = self.read(name)
        if array.ndim != 1 or array.dtype.kind not in "US":
            raise DataTypeError(
                f"{self.path}: {name} has shape {array.shape} and type {array.dtype}, expected "
                "one text for each"
            )
        is_too_long = too_many_names(array.size, self.budget)
        return None if is_too_long else [decoded(text) for text in array.tolist()]


def open_npz(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an archive of arrays: one matrix, or the parts of a sparse one as SciPy saves them."""
    stamp = Stamp([path])
    with named_damage(path), zipfile.ZipFile(path) as file:
        archive = _Archive(file, path, budget)
        members = archive.members
        names = Names.of(archive.texts("sample_names"), archive.texts("feature_names"))
        if {"data", "indices", "indptr", "shape"} <= members.keys():
            order = decoded(archive.read("format").item()) if "format" in members else "csr"
            parts = [archive.read(part) for part in ("data", "indices", "indptr")]
            shape = archive.read("shape")
            source = CompressedSource(str(path), path, stamp, parts, shape, order)
            return NamedMatrix(source, names, roles_stored=True)
        if {"data", "row", "col", "shape"} <= members.keys():
            raise FileFormatError(
                f"{path} holds a sparse matrix by coordinates (COO), which is not read in blocks: "
                "save it with scipy.sparse.save_npz(path, matrix.tocsr())"
            )
        name = choose_member(path, dataset, members.keys() - {"sample_names", "feature_names"})
        matrix: Any = archive.read(name)
    is_mapped = archive.is_plain(name)
    source_of_array = ArraySource(matrix, f"{path}:{name}", path, stamp if is_mapped else None)
    if is_mapped or matrix.ndim == 3:
        matrix = source_of_array
    return NamedMatrix(matrix, names, roles_stored=True)


# --- MATLAB, versions 5 to 7, and Matrix Market -----------------------------------------------


def open_matlab(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a ``.mat`` file: the variable of that name, or its only matrix of numbers."""
    with open(path, "rb") as stream:
        head = stream.read(516)
    if _HDF5_SIGNATURE in (head[:4], head[512:]):
        return open_matlab_hdf5(path, dataset, budget)
    with named_damage(path):
        found = {name: (shape, kind) for name, shape, kind in _variables(path)}
        if dataset is None:
            numeric = {name: one[0] for name, one in found.items() if one[1] in _ITEM_BYTES}
            dataset = only_matrix(path, numeric, found)
        name = choose_member(path, dataset, found)
        shape, kind = found[name]
        if kind not in _ITEM_BYTES:
            raise DataTypeError(f"{path}: {name!r} is not a matrix of numbers")
        title, stored = f"{path}: {name!r}", path.stat().st_size
        if kind == "sparse":
            check_sides(title, shape[0], shape[1], stored)
        else:
            size = math.prod(shape) * _ITEM_BYTES[kind]
            check_expansion(title, stored, size)
            check_fits(title, size, budget, _READ_AS_A_WHOLE)
        array = scipy_io.loadmat(path, variable_names=[name], spmatrix=False)[name]
    if sp.issparse(array):
        parts = (array.data, array.indices, array.indptr)
        return NamedMatrix(CompressedSource(str(path), path, None, parts, array.shape, "csc"))
    source = ArraySource(array, f"{path}:{name}")
    return NamedMatrix(source if array.ndim == 3 else array)


def _variables(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    """The names, shapes and classes of all variables."""
    try:
        return scipy_io.whosmat(path)
    except TypeError:  # one is of a class that SciPy can load, but not list, such as a table
        loaded = scipy_io.loadmat(path, spmatrix=False)
        found = []
        for name, array in loaded.items():
            if not name.startswith("__"):
                kind = "sparse" if sp.issparse(array) else str(array.dtype)
                found.append((name, array.shape, kind))
        return found


def open_matrix_market(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an ``.mtx`` file, dense or sparse; with ``.gz`` at its end, a compressed one."""
    with named_damage(path):
        rows, columns, entries, form, field, _ = scipy_io.mminfo(path)
        check_kind(np.dtype(complex if field == "complex" else float), (rows, columns))
        ratio = MAX_EXPANSION_RATIO if path.suffix.lower() == ".gz" else 1
        if form == "coordinate":
            check_sides(path, rows, columns, entries)
        if (2 if form == "array" else 4) * entries > path.stat().st_size * ratio:
            raise FileFormatError(
                f"{path} is truncated: its header claims {entries} numbers, which its "
                f"{path.stat().st_size} bytes cannot hold; copy or download it again"
            )
        check_fits(path, 24 * entries + 8 * max(rows, columns), budget, _READ_AS_A_WHOLE)
        return NamedMatrix(scipy_io.mmread(path, spmatrix=False))

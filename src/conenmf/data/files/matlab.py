"""MATLAB's files, ``.mat`` of version 5 to 7.3.

Only those of version 7.3, which are HDF5, can be read in blocks; others have to fit in memory.

SciPy's `loadmat` is not used because it trusts the file: fuzzing showed that damaged numbers behind
an intact header crash the process (SciPy 1.17). Only one matrix of numbers has to be read, and its
header is compared with the file first. Cells, structures, objects and functions, which can be
nested without end, are skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ...errors import ConeNMFError, DataTypeError, FileFormatError
from ...text import decoded, visible
from ..blocks import Array
from ..validate import check_kind
from .cubes import Cube
from .layouts import ChunkedSource, CompressedSource, attribute
from .limits import (
    MAX_EXPANSION_RATIO,
    cast_exactly,
    check_fits,
    listed,
    name_one,
    named_damage,
)
from .sources import NamedMatrix
from .stores import Store, hdf5_store

__all__ = ["open_matlab", "read_matlab"]

_READ_AS_A_WHOLE = "a file of this kind can only be read as a whole"
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEADER_BYTES = 128  # before the first variable
_BYTE_ORDERS = {b"IM": "<", b"MI": ">"}  # by the last two bytes of the header
_MAX_VARIABLES = 10_000
_BEGINNING_BYTES = 4096  # of a variable, which hold its name and its shape
_MATRIX, _COMPRESSED = 14, 15  # kinds of elements of a file
_KINDS_OF_BEGINNING = {(5, 1), (6, 1), (5, 16), (6, 16)}  # shape: integers; name: text
_SPARSE_CLASS = 5
_COMPLEX_FLAG = 0x800
# NumPy's types for the classes of dense matrices, and for the kinds in which numbers are stored.
_CLASS_TYPES = dict(enumerate(("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), 6))
_STORED_TYPES = dict(enumerate(("i1", "u1", "i2", "u2", "i4", "u4", "f4"), 1))
_STORED_TYPES |= {9: "f8", 12: "i8", 13: "u8"}
_NUMERIC_CLASSES = {"double", "single", "logical"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


def open_matlab(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a ``.mat`` file: the variable of that name, or its only matrix of numbers."""
    with open(path, "rb") as stream:
        head = stream.read(512 + len(_HDF5_SIGNATURE))
        if _HDF5_SIGNATURE in (head[: len(_HDF5_SIGNATURE)], head[512:]):
            with hdf5_store(path, budget) as store:
                return _open_version_7_3(store, dataset)
        if head[126:128] not in _BYTE_ORDERS:
            raise FileFormatError(
                f"{path} is not a MATLAB file of version 5 or later: save it with -v7 or -v7.3"
            )
        with named_damage(path):
            return _open_version_5(stream, path, dataset, budget)


# --- version 5 --------------------------------------------------------------------------------


class _Variable(NamedTuple):
    """What is read from the beginning of a variable."""

    name: str
    kind: int  # MATLAB's class
    shape: tuple[int, ...]
    entries: int  # of a sparse matrix, at most
    place: int  # in the file, of its element
    size: int  # of its element in the file
    unpacked: int  # bytes that it takes unpacked
    content: int  # where its numbers begin once it is unpacked


def _open_version_5(stream: IO[bytes], path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    order = _byte_order(stream)
    variables = {variable.name: variable for variable in _variables(stream, path, order)}
    numeric = {*_CLASS_TYPES, _SPARSE_CLASS}
    matrices = {name: v.shape for name, v in variables.items() if v.kind in numeric}
    variable = variables[_choose_variable(path, dataset, list(variables), matrices)]
    if variable.name not in matrices:
        raise DataTypeError(f"{path}: {variable.name!r} is not a matrix of numbers")
    is_cube = len(variable.shape) == 3 and variable.kind != _SPARSE_CLASS
    check_kind(np.dtype(float), variable.shape[: 2 if is_cube else None])
    element = _element(stream, path, variable, order, budget)
    if variable.kind != _SPARSE_CLASS:
        array = _dense(element, path, variable, order)
        return NamedMatrix(Cube(f"{path}:{variable.name}", array) if is_cube else array)
    indices, at = _numbers(element, variable.content, order)
    indptr, at = _numbers(element, at, order)
    data, _ = _numbers(element, at, order)
    indptr = cast_exactly(f"{path}: pointers of {variable.name!r}", indptr, np.int64)
    n_entries = max(int(indptr[-1]), 0)  # there may be room for more
    parts = (data[:n_entries].astype(float), indices[:n_entries], indptr)
    return NamedMatrix(CompressedSource(str(path), path, parts, variable.shape, "csc", budget))


def read_matlab(path: Path, name: str, budget: int) -> Array:
    """The dense array of that name and of any number of dimensions, from a file of version 5."""
    with open(path, "rb") as stream, named_damage(path):
        if stream.read(_HEADER_BYTES)[126:128] not in _BYTE_ORDERS:
            raise FileFormatError(f"{path} is not a MATLAB file of version 5: save it with -v7")
        order = _byte_order(stream)
        for variable in _variables(stream, path, order):
            if variable.name == name and variable.kind in _CLASS_TYPES:
                element = _element(stream, path, variable, order, budget)
                return _dense(element, path, variable, order)
    raise FileFormatError(f"{path} holds no array of numbers that is called {name!r}")


def _byte_order(stream: IO[bytes]) -> str:
    stream.seek(0)
    return _BYTE_ORDERS[stream.read(_HEADER_BYTES)[126:128]]


def _element(stream: IO[bytes], path: Path, variable: _Variable, order: str, budget: int) -> bytes:
    """A variable unpacked, once its header has been compared with the file."""
    sparse = variable.kind == _SPARSE_CLASS
    count = variable.entries if sparse else int(np.prod(variable.shape, dtype=object))
    columns = variable.shape[1] if sparse else 0
    least = 5 * count + 4 * columns if sparse else count  # an index takes 4 bytes, a number 1
    if min(variable.shape) < 0 or least > variable.unpacked:
        raise FileFormatError(
            f"{path} is truncated: {variable.name!r} claims {variable.shape} numbers in "
            f"{variable.unpacked} bytes; copy or download it again"
        )
    size = 12 if sparse else np.dtype(_CLASS_TYPES[variable.kind]).itemsize
    need = max(size * count + 4 * columns, variable.unpacked)
    check_fits(f"{path}: {variable.name!r}", need, budget, _READ_AS_A_WHOLE)
    stream.seek(variable.place)
    element = _unpacked(stream.read(variable.size), order, variable.unpacked + 9, whole=True)
    if len(element) < variable.unpacked + 8:
        raise FileFormatError(
            f"{path} is truncated in {variable.name!r}; copy or download it again"
        )
    return element


def _dense(element: bytes, path: Path, variable: _Variable, order: str) -> Array:
    """Numbers may be stored in a smaller type than that of their class, never in another one."""
    stored, _ = _numbers(element, variable.content, order)
    numbers = cast_exactly(f"{path}: {variable.name!r}", stored, _CLASS_TYPES[variable.kind])
    return numbers.reshape(variable.shape, order="F")


def _choose_variable(
    path: Path, dataset: str | None, names: list[str], matrices: dict[str, tuple[int, ...]]
) -> str:
    """The name of the variable to open; a single number beside a matrix does not count."""
    if dataset is not None:
        if dataset.strip("/") not in names:
            raise FileFormatError(f"{path} has no {dataset!r}; it holds {listed(sorted(names))}")
        return dataset.strip("/")
    large = [name for name, shape in matrices.items() if np.prod(shape, dtype=object) != 1]
    candidates = large or list(matrices)
    if len(candidates) != 1:
        raise name_one(path, sorted(names))
    return candidates[0]


def _variables(stream: IO[bytes], path: Path, order: str) -> Iterator[_Variable]:
    """The variables of a file, of which only the beginnings are read."""
    place, end = _HEADER_BYTES, path.stat().st_size
    for _ in range(_MAX_VARIABLES):
        if place >= end:
            return
        stream.seek(place)
        kind, size = struct.unpack(f"{order}II", stream.read(8))
        if place + 8 + size > end:
            raise FileFormatError(
                f"{path} is truncated in the middle of a variable; copy or download it again"
            )
        stream.seek(place)
        beginning = _unpacked(stream.read(8 + min(size, _BEGINNING_BYTES)), order, _BEGINNING_BYTES)
        inner, unpacked = struct.unpack(f"{order}II", beginning[:8])
        if inner == _MATRIX:
            if unpacked > size * (1 if kind == _MATRIX else MAX_EXPANSION_RATIO):
                raise FileFormatError(
                    f"{path} claims more than it can hold, {unpacked} bytes; copy or "
                    "download it again"
                )
            yield _read_beginning(beginning, order, place, 8 + size, unpacked)
        place += 8 + size
    raise FileFormatError(f"{path} holds more than {_MAX_VARIABLES} variables: save fewer")


def _unpacked(element: bytes, order: str, max_bytes: int, *, whole: bool = False) -> bytes:
    """An element of a file, unpacked up to so many bytes if it is compressed.

    The checksum of a whole one is compared at its end.
    """
    (kind,) = struct.unpack(f"{order}I", element[:4])
    if kind != _COMPRESSED:
        return element
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(element[8:], max_bytes)
    if whole and not decompressor.eof:
        raise ValueError("a compressed variable does not end where it should")
    return content


def _read_beginning(element: bytes, order: str, place: int, size: int, unpacked: int) -> _Variable:
    _, flags, at = _part(element, 8, order)
    kind_of_sides, sides, at = _part(element, at, order)
    kind_of_name, name, at = _part(element, at, order)
    kind, entries = struct.unpack(f"{order}II", flags[:8])
    is_numeric = kind & 0xFF in {*_CLASS_TYPES, _SPARSE_CLASS}  # others begin in other ways
    if is_numeric and (kind_of_sides, kind_of_name) not in _KINDS_OF_BEGINNING:
        raise ValueError("the beginning of a variable is not that of a matrix")
    if kind & _COMPLEX_FLAG:
        check_kind(np.dtype(complex), (1, 1))
    shape = struct.unpack(f"{order}{len(sides) // 4}i", sides[: len(sides) // 4 * 4])
    text = name.decode("latin1")
    return _Variable(text, kind & 0xFF, shape, entries, place, size, unpacked, at)


def _part(element: bytes, at: int, order: str) -> tuple[int, bytes, int]:
    """The kind of a part of an element, the part, and where the next one begins."""
    kind, size = struct.unpack(f"{order}II", element[at : at + 8])
    if kind >> 16:  # at most 4 bytes, stored beside their size
        if kind >> 16 > 4:
            raise ValueError(f"a short part has {kind >> 16} bytes")
        return kind & 0xFFFF, element[at + 4 : at + 4 + (kind >> 16)], at + 8
    return kind, element[at + 8 : at + 8 + size], at + 8 + size + -size % 8


def _numbers(element: bytes, at: int, order: str) -> tuple[Array, int]:
    """A part that holds numbers, and where the next one begins."""
    kind, content, at = _part(element, at, order)
    return np.frombuffer(content, order + _STORED_TYPES[kind]), at


# --- version 7.3 ------------------------------------------------------------------------------


def _open_version_7_3(store: Store, dataset: str | None) -> NamedMatrix:
    """MATLAB stores matrices column after column, which HDF5 takes for rows."""
    path = store.path
    names = [name for name in store.root if not name.startswith("#")]
    if dataset is None:
        shapes = {name: shape for name in names if (shape := _shape(store, name)) is not None}
        dataset = _choose_variable(path, None, names, shapes)
    member = store.find(dataset.strip("/"))
    kind = _class(member)
    if kind not in _NUMERIC_CLASSES:
        raise DataTypeError(f"{path}: {dataset!r} is a {visible(kind)}, not a matrix of numbers")
    if hasattr(member, "dtype"):
        if len(member.shape) == 3:
            return NamedMatrix(Cube(f"{path}:{dataset}", member, is_reversed=True))
        return NamedMatrix(ChunkedSource(member).turned())
    if "MATLAB_sparse" not in member.attrs:
        raise DataTypeError(f"{path}: {dataset!r} is a structure, not a matrix of numbers")
    data, indices, indptr = (store.find(part, member) for part in ("data", "ir", "jc"))
    name = f"{path}:{dataset}"
    shape = (_sparse_rows(name, member), indptr.shape[0] - 1)
    parts = (data, indices, indptr)
    return NamedMatrix(CompressedSource(name, path, parts, shape, "csc", store.budget))


def _sparse_rows(name: str, member: Any) -> int:
    return int(cast_exactly(name, attribute(member, "MATLAB_sparse"), np.int64).item())


def _class(member: Any) -> str:
    return decoded(attribute(member, "MATLAB_class", "double"))


def _shape(store: Store, name: str) -> tuple[int, ...] | None:
    """The shape of a matrix of numbers; None for any other variable."""
    try:
        member = store.find(name)
        if _class(member) not in _NUMERIC_CLASSES:
            return None
        if hasattr(member, "dtype"):
            return tuple(member.shape)
        return (_sparse_rows(name, member), store.find("jc", member).shape[0] - 1)
    except (ConeNMFError, KeyError):
        return None

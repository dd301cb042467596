"""NumPy's own files: ``.npy``, and ``.npz`` with one matrix or the parts of a sparse one.

Headers are read with NumPy, numbers that are not compressed block by block from their place in the
file, which `numpy.load` cannot do for ``.npz``. Nothing is unpickled.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataTypeError, FileFormatError
from ...names import Names
from ...text import decoded
from ..blocks import Array
from ..validate import check_kind
from .cubes import Cube
from .layouts import CompressedSource, OpenFile, RawArray, RawSource
from .limits import check_fits, name_one, named_damage, too_many_names
from .sources import NamedMatrix

__all__ = ["open_npy", "open_npz"]

_NAME_MEMBERS = ("sample_names", "feature_names")


def open_npy(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an ``.npy`` file."""
    file = OpenFile(path)
    with open(path, "rb") as stream:
        shape, fortran, dtype = _read_header(stream, path)
        array = RawArray(file, stream.tell(), shape, fortran, dtype)
        return NamedMatrix(Cube(str(path), array) if len(shape) == 3 else RawSource(array))


def _read_header(stream: Any, name: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The header of an ``.npy`` file or of a member of an ``.npz`` file; never unpickles."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except Exception as problem:  # the parser raises many kinds for a damaged header
        raise FileFormatError(f"{name} has no valid .npy header: {problem}") from problem
    if any(side < 0 for side in shape):
        raise FileFormatError(f"{name}: header claims the shape {shape}; copy or download it again")
    return shape, fortran, dtype


class _Archive:
    """The arrays of an ``.npz`` file."""

    def __init__(self, path: Path, budget: int) -> None:
        self.path, self.budget = path, budget
        self.file = OpenFile(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as problem:
            raise FileFormatError(
                f"{path} is not an .npz file, or is truncated: {problem}"
            ) from problem
        self.members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def member(self, name: str) -> RawArray | Array:
        """An array in its place in the file; a compressed one is unpacked if it fits in memory."""
        info, path = self.members[name], self.path
        with self._zip.open(info) as stream:
            shape, fortran, dtype = _read_header(stream, path)
            length = stream.tell()
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if dtype.hasobject:
            raise DataTypeError(f"{path}: member {name} holds objects, expected numbers")
        is_plain = info.compress_type == zipfile.ZIP_STORED
        place = self._place(info) + length if is_plain else 0
        if info.file_size < length + size or (is_plain and self.file.size < place + size):
            raise FileFormatError(
                f"{path}: member {name} is truncated; copy or download the file again"
            )
        if is_plain:
            return RawArray(self.file, place, shape, fortran, dtype)
        check_fits(
            f"{path}: member {name}", size, self.budget, "it is compressed", "save it uncompressed"
        )
        with self._zip.open(info) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def _place(self, info: zipfile.ZipInfo) -> int:
        """Where the bytes of an uncompressed member begin."""
        header = self.file.fill(np.empty(30, np.uint8), info.header_offset).tobytes()
        name, extra = struct.unpack("<HH", header[26:30])
        return info.header_offset + 30 + int(name) + int(extra)

    def names(self) -> Names:
        """The names in the members ``sample_names`` and ``feature_names``, if there are any."""
        return Names.of(self._texts(_NAME_MEMBERS[0]), self._texts(_NAME_MEMBERS[1]))

    def _texts(self, name: str) -> list[str] | None:
        if name not in self.members:
            return None
        array = self.member(name)
        if len(array.shape) != 1 or array.dtype.kind not in "US":
            raise DataTypeError(
                f"{self.path}: {name} has shape {array.shape} and type {array.dtype}, expected "
                "one text for each"
            )
        if too_many_names(array.shape[0], self.budget):
            return None
        texts: list[Any] = np.asarray(array[:]).tolist()
        return [decoded(text) for text in texts]


def open_npz(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an archive of arrays: one matrix, or the parts of a sparse one as SciPy saves them."""
    with named_damage(path), _Archive(path, budget) as archive:
        members = archive.members
        if {"data", "indices", "indptr", "shape"} <= members.keys():
            order = np.asarray(archive.member("format")).item() if "format" in members else "csr"
            parts = (archive.member("data"), archive.member("indices"), archive.member("indptr"))
            shape = np.asarray(archive.member("shape")).tolist()
            source = CompressedSource(str(path), path, parts, shape, decoded(order), budget)
            return NamedMatrix(source, archive.names(), roles_stored=True)
        matrices = sorted(members.keys() - set(_NAME_MEMBERS))
        if dataset is None and len(matrices) == 1:
            (dataset,) = matrices
        if dataset is None or dataset.strip("/") not in members:
            raise name_one(path, matrices)
        array = archive.member(dataset.strip("/"))
        if len(array.shape) == 3:
            cube = Cube(f"{path}:{dataset}", array)
            return NamedMatrix(cube, archive.names(), roles_stored=True)
        check_kind(array.dtype, array.shape)
        matrix = RawSource(array) if isinstance(array, RawArray) else array
        return NamedMatrix(matrix, archive.names(), roles_stored=True)

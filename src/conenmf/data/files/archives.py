"""NumPy's own files: ``.npy``, and ``.npz`` with one matrix or the parts of a sparse one.

What is not compressed is read in its place in the file. Nothing is unpickled.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataTypeError, FileFormatError
from ...names import Names
from ..blocks import Array
from ..matrix import check_kind
from .limits import listed, named_damage, too_many_names
from .sources import File, Member, Opened, raw_rows, sparse_rows

__all__ = ["open_npy", "open_npz"]

_NAMES = ("sample_names", "feature_names")


def open_npy(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """Open an ``.npy`` file."""
    file = File(path)
    with open(path, "rb") as stream:
        shape, fortran, dtype = _read_header(stream, path)
        return Opened(raw_rows(Member(file, stream.tell(), shape, fortran, dtype), samples_in))


def _read_header(stream: Any, name: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The header of an ``.npy`` file or of a member of an ``.npz`` file; never unpickles."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except Exception as problem:  # whatever the parser makes of a damaged header
        raise FileFormatError(f"{name} does not begin like an .npy file: {problem}") from problem
    if any(side < 0 for side in shape):
        raise FileFormatError(f"{name} promises the shape {shape}: copy it anew")
    return shape, fortran, dtype


class _Archive:
    """The arrays of an ``.npz`` file."""

    def __init__(self, path: Path, budget: int) -> None:
        self.path, self.budget = path, budget
        self.file = File(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as problem:
            raise FileFormatError(
                f"{path} is not an .npz file, or is cut off: {problem}"
            ) from problem
        self.members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def member(self, name: str) -> Member | Array:
        """In its place in the file; a compressed one is unpacked if it is small enough."""
        info, path = self.members[name], self.path
        with self._zip.open(info) as stream:
            shape, fortran, dtype = _read_header(stream, path)
            length = stream.tell()
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if dtype.hasobject:
            raise DataTypeError(f"{path}: member {name} holds objects, expected numbers")
        stored = info.compress_type == zipfile.ZIP_STORED
        place = self._place(info) + length if stored else 0
        if info.file_size < length + size or (stored and self.file.size < place + size):
            raise FileFormatError(f"{path}: member {name} is cut off; copy the file anew")
        if stored:
            return Member(self.file, place, shape, fortran, dtype)
        if size > self.budget // 4:
            raise FileFormatError(
                f"{path}: member {name} is compressed and takes {size} bytes, too many to "
                "unpack in memory: save it uncompressed, or raise max_memory"
            )
        with self._zip.open(info) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def _place(self, info: zipfile.ZipInfo) -> int:
        """Where the bytes of an uncompressed member begin."""
        header = self.file.fill(np.empty(30, np.uint8), info.header_offset).tobytes()
        name, extra = struct.unpack("<HH", header[26:30])
        return info.header_offset + 30 + int(name) + int(extra)

    def names(self) -> Names:
        """What the members ``sample_names`` and ``feature_names`` hold, if there are any."""
        return Names.of(self._texts(_NAMES[0]), self._texts(_NAMES[1]))

    def _texts(self, name: str) -> list[str] | None:
        if name not in self.members:
            return None
        found = self.member(name)
        if len(found.shape) != 1 or found.dtype.kind not in "US":
            raise DataTypeError(
                f"{self.path}: {name} has shape {found.shape} and type {found.dtype}, expected "
                "one text for each"
            )
        if too_many_names(found.shape[0], self.budget):
            return None
        texts: list[Any] = np.asarray(found[:]).tolist()
        return [text if isinstance(text, str) else text.decode(errors="replace") for text in texts]


def open_npz(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """An archive of arrays: the parts of a sparse matrix as SciPy saves them, or one matrix."""
    with named_damage(path), _Archive(path, budget) as archive:
        members = archive.members
        if {"data", "indices", "indptr", "shape"} <= members.keys():
            order = np.asarray(archive.member("format")).item() if "format" in members else "csr"
            order = order.decode() if isinstance(order, bytes) else str(order)
            parts = (archive.member("data"), archive.member("indices"), archive.member("indptr"))
            shape = np.asarray(archive.member("shape")).tolist()
            rows = sparse_rows(
                str(path), path, parts, shape, order, samples_in, budget, archive.file
            )
            return Opened(rows, archive.names())
        matrices = sorted(members.keys() - set(_NAMES))
        if dataset is None and len(matrices) == 1:
            (dataset,) = matrices
        if dataset is None or dataset.strip("/") not in members:
            raise FileFormatError(
                f"{path} holds {listed(matrices)}: name one of them with dataset="
            )
        found = archive.member(dataset.strip("/"))
        if isinstance(found, Member):
            return Opened(raw_rows(found, samples_in), archive.names())
        check_kind(found.dtype, found.shape)
        return Opened(found if samples_in == "rows" else found.T, archive.names())

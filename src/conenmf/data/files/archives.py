"""NumPy's own files: ``.npy``, and ``.npz`` with one matrix or the parts of a sparse one.

Headers are read with NumPy, numbers that are not compressed block by block from their place in the
file, which `numpy.load` cannot do for ``.npz``. Nothing is unpickled.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataTypeError, FileFormatError
from ...names import Names
from ...text import decoded, visible
from ..blocks import Array
from ..validate import check_kind
from .cubes import Cube
from .layouts import CompressedSource, OpenFile, RawArray, RawSource
from .limits import check_expansion, check_fits, fits, name_one, named_damage, too_many_names
from .sources import NamedMatrix

__all__ = ["open_npy", "open_npz"]

_NAME_MEMBERS = ("sample_names", "feature_names")
_MAX_HEADER_BYTES = 10_000  # NumPy's own limit
_HEADERS = {  # by version: the form of its length, and NumPy's parser
    (1, 0): ("<H", np.lib.format.read_array_header_1_0),
    (2, 0): ("<I", np.lib.format.read_array_header_2_0),
    (3, 0): ("<I", np.lib.format.read_array_header_2_0),
}
_CHECKED_AT_ONCE_BYTES = 64 << 20  # a fiftieth of a second
_PIECE_BYTES = 1 << 20


def open_npy(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an ``.npy`` file."""
    file = OpenFile(path)
    with open(path, "rb") as stream:
        shape, fortran, dtype = _read_header(stream, path)
        array = RawArray(file, stream.tell(), shape, fortran, dtype)
        return NamedMatrix(Cube(str(path), array) if len(shape) == 3 else RawSource(array))


def _read_header(stream: Any, name: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The header of an ``.npy`` file or of a member of an ``.npz`` file; never unpickles.

    Version 3.0 differs from 2.0 in titles of fields beyond ASCII, which no matrix of numbers has.
    """
    try:
        version = np.lib.format.read_magic(stream)
        form, read = _HEADERS[version]
        length = stream.read(struct.calcsize(form))
        (size,) = struct.unpack(form, length)
        if size > _MAX_HEADER_BYTES:  # before it is read: a compressed one could be endless
            raise ValueError(f"it has {size} bytes")
        text = stream.read(size)
        if version >= (3, 0):
            text.decode("ascii")
        shape, fortran, dtype = read(io.BytesIO(length + text))
    except Exception as problem:  # the parser raises many kinds for a damaged header
        raise FileFormatError(f"{name} has no valid .npy header: {visible(problem)}") from problem
    if any(side < 0 for side in shape):
        raise FileFormatError(f"{name}: header claims the shape {shape}; copy or download it again")
    return shape, fortran, dtype


class _Member(NamedTuple):
    """A part of an archive that is read in place, and the checksum that it should have."""

    name: str
    start: int
    stop: int
    checksum: int


class _SealedFile(OpenFile):
    """A zip archive: members that are read in place are compared with their checksums.

    A small one is read once for that when it is opened, and so is one whose samples do not lie one
    after the other. The checksum of any other adds up as the first pass reads it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._unread: dict[_Member, tuple[int, int]] = {}  # up to where, and the checksum so far

    def seal(self, member: _Member, *, at_once: bool) -> None:
        """Compare a member with its checksum, now or when it has been read."""
        self._unread[member] = (member.start, 0)
        if at_once or member.stop - member.start <= _CHECKED_AT_ONCE_BYTES:
            self._read_through(member)

    def _read_through(self, member: _Member) -> None:
        place = self._unread[member][0]
        buffer = np.empty(min(_PIECE_BYTES, member.stop - place), np.uint8)
        for start in range(place, member.stop, _PIECE_BYTES):
            self.fill(buffer[: member.stop - start], start)

    def read_through(self) -> None:
        """Compare now what will not be read from beginning to end."""
        for member in list(self._unread):
            self._read_through(member)

    def fill(self, buffer: Array, offset: int) -> Array:
        """Read into a contiguous array from a place in the file."""
        super().fill(buffer, offset)
        if self._unread:
            self._compare(buffer, offset)
        return buffer

    def _compare(self, buffer: Array, offset: int) -> None:
        for member, (place, checksum) in list(self._unread.items()):
            if place != offset or offset + buffer.nbytes > member.stop or not buffer.nbytes:
                continue
            view: Any = buffer.view(np.uint8).reshape(-1)
            checksum = zlib.crc32(view, checksum)
            self._unread[member] = (offset + buffer.nbytes, checksum)
            if offset + buffer.nbytes == member.stop:
                self._unread[member] = (member.start, 0)
                if checksum != member.checksum:
                    raise FileFormatError(
                        f"{self.path}: member {member.name} does not have its checksum (CRC-32): "
                        "copy or download the file again"
                    )
                self._unread.pop(member, None)  # another thread may have come first


class _Archive:
    """The arrays of an ``.npz`` file."""

    def __init__(self, path: Path, budget: int) -> None:
        self.path, self.budget = path, budget
        self.file = _SealedFile(path)
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
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # For bzip2 and LZMA, `zipfile` unpacks 4096 bytes at once, which may be gigabytes.
            raise FileFormatError(
                f"{path}: member {name} is compressed in another way than NumPy does: save it "
                "with numpy.savez_compressed"
            )
        with self._zip.open(info) as stream:
            shape, fortran, dtype = _read_header(stream, path)
            length = stream.tell()
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if dtype.hasobject:
            is_names = name in _NAME_MEMBERS
            kind, cast = ("texts", "str") if is_names else ("numbers", "float")
            raise DataTypeError(
                f"{path}: member {name} holds Python objects, expected {kind}: save it with "
                f"{name}=values.astype({cast})"
            )
        is_plain = info.compress_type == zipfile.ZIP_STORED
        place = self._place(info) if is_plain else 0
        if info.file_size != length + size or (is_plain and self.file.size < place + length + size):
            raise FileFormatError(
                f"{path}: member {name} is truncated or damaged: its header claims {size} bytes, "
                f"and it holds {info.file_size - length}; copy or download the file again"
            )
        if is_plain:
            # Columns are not read one after the other.
            member = _Member(name, place, place + length + size, info.CRC)
            self.file.seal(member, at_once=fortran)
            self.file.fill(np.empty(length, np.uint8), place)
            return RawArray(self.file, place + length, shape, fortran, dtype)
        title = f"{path}: member {name}"
        check_expansion(title, min(info.compress_size, self.file.size), size)
        check_fits(title, size, self.budget, "it is compressed", "save it uncompressed")
        with self._zip.open(info) as stream:  # which compares the checksum at its end
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
        size = array.shape[0] * array.dtype.itemsize
        if too_many_names(array.shape[0], self.budget) or not fits(size, self.budget):
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
            shape = np.asarray(archive.member("shape"))
            source = CompressedSource(str(path), path, parts, shape, decoded(order), budget)
            return NamedMatrix(source, archive.names(), roles_stored=True)
        if {"data", "row", "col", "shape"} <= members.keys():
            raise FileFormatError(
                f"{path} holds a sparse matrix by coordinates (COO), which is not read in blocks: "
                "save it with scipy.sparse.save_npz(path, matrix.tocsr())"
            )
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

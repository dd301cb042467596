"""ENVI's files of hyperspectral scenes: a header in text, ``.hdr``, and the numbers beside it.

The numbers are stored pixel by pixel (bip), line by line (bil) or band by band (bsq) and read in
place, in blocks of lines. The pixels are the samples, row by row; the bands are the features, which
are called by their wavelengths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import EmptyDataError, FileFormatError
from ...names import Names
from ...text import excerpt, visible
from ..blocks import Array
from ..validate import check_kind
from .cubes import CubeSource
from .layouts import OpenFile
from .limits import check_fits, listed, named_damage, too_many_names
from .sources import NamedMatrix, Remark

__all__ = ["ENDINGS", "open_envi"]

ENDINGS = (".img", ".bsq", ".bil", ".bip")  # of files of numbers, besides those that are known
_DATA_ENDINGS = ("", ".img", ".dat", ".raw", ".bsq", ".bil", ".bip")  # beside a header
_MAX_HEADER_BYTES = 16 << 20
_MAX_DIGITS = 15
_TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX_TYPES = (6, 9)
# The axes of rows, columns and bands among those that are stored.
_AXES = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}
_FIELD = re.compile(r"^[ \t]*([^=\n;{}]+?)[ \t]*=[ \t]*(\{[^}]*\}|[^\n]*)", re.MULTILINE)
_FIXED = "the pixels of a scene are the samples, and the header says where they are"


def open_envi(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a scene by its header or by its file of numbers."""
    header_path, data_path = _both(path)
    with named_damage(header_path):
        header = _Header(_fields(header_path), header_path)
        file = OpenFile(data_path)
        shape, axes = header.stored, _AXES[header.interleave]
        check_kind(header.dtype, (1, 1))
        claimed = int(np.prod(shape, dtype=object)) * header.dtype.itemsize
        if 0 in shape:
            raise EmptyDataError(f"{header_path} claims {header.sides}: it needs some of each")
        if file.size < header.offset + claimed:
            raise FileFormatError(
                f"{data_path} is truncated: {header_path.name} claims {header.sides}, which take "
                f"{claimed} bytes after the first {header.offset}; it holds {file.size}: copy or "
                "download it again"
            )
        cube = _RawCube(file, header.offset, shape, header.dtype, header.attributes())
        source = _SceneSource(cube, axes)
        rows, columns, bands = (shape[axis] for axis in axes)
        reason = "a row of pixels has to be read as a whole"
        check_fits(data_path, columns * bands * header.dtype.itemsize, budget, reason)
        names = None if too_many_names(bands, budget) else header.band_names()
        remark = f"a scene of {header.sides} ({header.interleave}): each pixel is a sample"
        return NamedMatrix(
            source,
            Names.of(feature_names=names, pixels_shape=(rows, columns)),
            remarks=(Remark(remark + header.bad_bands()),),
            fixed=_FIXED,
        )


def _both(path: Path) -> tuple[Path, Path]:
    """The header and the file of numbers, of which one is given."""
    if path.suffix.lower() != ".hdr":
        for header in (path.with_suffix(".hdr"), Path(f"{path}.hdr"), path.with_suffix(".HDR")):
            if header.is_file():
                return header, path
        raise FileFormatError(f"{path} needs its header, {path.stem}.hdr, beside it: copy both")
    stem = path.with_suffix("")
    for ending in _DATA_ENDINGS:
        for data in (Path(f"{stem}{ending}"), Path(f"{stem}{ending.upper()}")):
            if data.is_file():
                return path, data
    endings = ", ".join(filter(None, _DATA_ENDINGS))
    raise FileFormatError(
        f"{path} is the header of numbers that are not beside it: copy {stem.name} with one of the "
        f"endings {endings}, or none, there too"
    )


def _fields(path: Path) -> dict[str, str]:
    """The fields of a header by their names in lower case."""
    with open(path, "rb") as stream:
        content = stream.read(_MAX_HEADER_BYTES + 1)
    if len(content) > _MAX_HEADER_BYTES:
        raise FileFormatError(f"{path} has more than {_MAX_HEADER_BYTES} bytes: shorten it")
    if not content.startswith(b"ENVI"):
        raise FileFormatError(f"{path} does not begin with ENVI, so it is no header of a scene")
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    return {match[1].lower(): match[2].strip() for match in _FIELD.finditer(text)}


@dataclass(frozen=True)
class _Header:
    """What a header says."""

    fields: dict[str, str]
    path: Path

    def _integer(self, name: str, default: int | None = None) -> int:
        text = self.fields.get(name)
        if text is None and default is not None:
            return default
        if text is None or not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
            given = "is missing" if text is None else f"is {excerpt(text)!r}"
            raise FileFormatError(f"{self.path}: '{name}' {given}, expected an integer: correct it")
        return int(text)

    @property
    def interleave(self) -> str:
        """The order of the numbers."""
        order = self.fields.get("interleave", "bsq").lower()
        if order not in _AXES:
            raise FileFormatError(
                f"{self.path}: 'interleave' is {excerpt(order)!r}, expected bsq, bil or bip"
            )
        return order

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of the cube as it is stored."""
        sides = [self._integer(name) for name in ("lines", "samples", "bands")]
        shape = [0, 0, 0]
        for side, axis in zip(sides, _AXES[self.interleave], strict=True):
            shape[axis] = side
        return tuple(shape)

    @property
    def sides(self) -> str:
        """The size of the scene, in words."""
        lines, samples, bands = (self._integer(name) for name in ("lines", "samples", "bands"))
        return f"{lines} lines x {samples} samples x {bands} bands"

    @property
    def offset(self) -> int:
        """How many bytes are before the numbers."""
        return self._integer("header offset", 0)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        code, order = self._integer("data type"), self._integer("byte order", 0)
        if code in _COMPLEX_TYPES:
            return np.dtype(complex)  # which is refused
        if code not in _TYPES or order not in (0, 1):
            raise FileFormatError(
                f"{self.path}: 'data type' is {code} and 'byte order' {order}, expected one of "
                f"{', '.join(map(str, _TYPES))}, and 0 or 1"
            )
        return np.dtype(f"{'<>'[order]}{_TYPES[code]}")

    def attributes(self) -> dict[str, float]:
        """The number that marks pixels without a value, as other formats name it."""
        text = self.fields.get("data ignore value")
        if text is None:
            return {}
        try:
            return {"_FillValue": float(text)}
        except ValueError as problem:
            raise FileFormatError(
                f"{self.path}: 'data ignore value' is {excerpt(text)!r}, expected a number"
            ) from problem

    def _list(self, name: str) -> list[str] | None:
        """A list with one item for each band."""
        text = self.fields.get(name)
        if not text:
            return None
        items = [item.strip() for item in text.strip("{}").split(",")]
        bands = self._integer("bands")
        if len(items) != bands:
            raise FileFormatError(
                f"{self.path}: '{name}' has {len(items)} items for {bands} bands: give one for each"
            )
        return items

    def band_names(self) -> list[str] | None:
        """The wavelengths, or else the names, of the bands."""
        return self._list("wavelength") or self._list("band names")

    def bad_bands(self) -> str:
        """Which bands are marked as bad, in words."""
        marks = self._list("bbl") or []
        names = self.band_names() or [str(band) for band in range(len(marks))]
        bad = [
            visible(name) for name, mark in zip(names, marks, strict=False) if mark in ("0", "0.0")
        ]
        return f"; its header marks {len(bad)} bands as bad: {listed(bad)}" if bad else ""


@dataclass(frozen=True)
class _RawCube:
    """Numbers with three axes in a file, which can be sliced as a dataset can."""

    raw: OpenFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, float]
    name: ClassVar[str] = ""

    @property
    def chunks(self) -> tuple[int, int, int]:
        """What is stored together: one index of the first axis."""
        return 1, self.shape[1], self.shape[2]

    def __getitem__(self, index: tuple[slice, slice, slice]) -> Array:
        (first, last, _), (start, stop, _) = (
            one.indices(side) for one, side in zip(index[:2], self.shape[:2], strict=True)
        )
        width, size = self.shape[2], self.dtype.itemsize
        part = np.empty((last - first, stop - start, width), self.dtype)
        if stop - start == self.shape[1]:
            self.raw.fill(part, self.offset + first * stop * width * size)
        else:
            for number, piece in enumerate(part, first):
                place = (number * self.shape[1] + start) * width
                self.raw.fill(piece, self.offset + place * size)
        return part[:, :, index[2]]


class _SceneSource(CubeSource):
    """The pixels of a scene by their bands."""

    def _set_origin(self, array: Any, is_ours: bool) -> None:
        super()._set_origin(array, is_ours)
        path = array.raw.path
        self.name, self.watch = str(path), array.raw.watch()
        self._set_place(path)

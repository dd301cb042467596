"""A folder of images of the same size: each is a sample, its grey values are the features.

The only code that imports Pillow, which decodes one image at a time; that all have one size, did
not change and are within the folder is checked here. Nothing is copied to another file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from ...errors import (
    DataChangedError,
    FileFormatError,
    Message,
    Option,
    OptionError,
    name_out_of_memory,
)
from ...names import Names
from ...text import visible
from ..blocks import Array
from ..borders import dense_block_samples
from .evidence import WatchedFiles
from .folders import files_below
from .limits import check_fits, fits, named_damage, require_package
from .sources import NamedMatrix, Remark, Source
from .watch import Watch

__all__ = ["SUFFIXES", "open_images", "open_stack", "read_resized"]

SUFFIXES = {".png", ".jpg", ".jpeg", ".pgm", ".bmp", ".tif", ".tiff", ".gif"}
_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "TIFF", "GIF")
_MAX_IMAGE_PIXELS = 1 << 26
_MAX_PAGES = 10_000  # of a stack
_MAX_HEADER_BYTES = 1 << 16  # of PGM and its relatives, whose comments Pillow reads byte by byte
_MAX_COMMENTS = 1000  # among numbers written as text; Pillow copies the rest for each
_PLAIN_FORMATS = (b"P1", b"P2", b"P3")  # whose numbers are written as text
# Modes of Pillow that are read as they are, and their type; all others become 8-bit grey.
_DTYPES = {"I;16": "u2", "I;16L": "u2", "I;16B": "u2", "I": "i4", "F": "f4"}


_FIXED = "the pixels of a scene are the samples"
_LEAST_IMAGES = 16  # that have to fit in a quarter of the memory
_ADVICE = ("make them smaller, or raise ", Option("max_memory"))


class _Format(NamedTuple):
    """The size and the type that all images of a folder have in common."""

    rows: int
    columns: int
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns} pixels of {8 * self.dtype.itemsize} bits"


def open_images(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open all images below a folder, sorted by their names."""
    files = files_below(path, SUFFIXES)
    if not files:
        raise FileFormatError(
            f"{path} is not a Zarr store, has no matrix.mtx as 10x folders have, and holds neither "
            f"images ({', '.join(sorted(SUFFIXES))}) nor texts (.txt)"
        )
    source = _ImageSource(path, files)
    names = Names.of(
        (file.relative_to(path).as_posix() for file in files),
        image_shape=(source.format.rows, source.format.columns),
    )
    return NamedMatrix(source, names)


def open_stack(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a TIFF file of several pages, the bands of a scene: its pixels are the samples."""
    pillow = require_package("PIL.Image", path)
    try:
        image = pillow.open(path, formats=("TIFF",))
    except Exception as problem:  # the library raises many kinds for a damaged header
        raise FileFormatError(
            f"{path} is not a TIFF file that can be read: {visible(problem)}; for pixels of many "
            "bands, save each band as a page, or as ENVI: gdal_translate -of ENVI"
        ) from problem
    with named_damage(path), image:
        columns, rows = image.size
        if rows * columns > _MAX_IMAGE_PIXELS:
            raise FileFormatError(
                f"{path} has more than {_MAX_IMAGE_PIXELS} pixels: make it smaller"
            )
        mode, dtype = image.mode, np.dtype(_DTYPES.get(image.mode, "u1"))
        if mode != "L" and mode not in _DTYPES:
            raise FileFormatError(
                f"{path} is a picture in colours ({visible(mode)}), expected a page for each band; "
                "to factor pictures, put them into a folder"
            )
        pages: list[Array] = []
        while len(pages) < _MAX_PAGES:
            if (image.size, image.mode) != ((columns, rows), mode):
                raise FileFormatError(
                    f"{path}: page {len(pages)} has {image.height} x {image.width} pixels of mode "
                    f"{visible(image.mode)}, unlike the first: bring all to one size"
                )
            size = (len(pages) + 1) * rows * columns * dtype.itemsize
            check_fits(path, size, budget, "a stack can only be read as a whole", "save it as ENVI")
            pages.append(np.asarray(image).reshape(-1))
            try:
                image.seek(len(pages))
            except EOFError:
                break
        else:
            raise FileFormatError(f"{path} has more than {_MAX_PAGES} pages: save it as ENVI")
        if len(pages) == 1:
            raise FileFormatError(
                f"{path} has a single page, and a scene has several bands; to factor pictures, put "
                "them into a folder"
            )
        text = (
            f"a stack of {len(pages)} pages of {rows} x {columns} was taken as the bands of a "
            "scene: each pixel is a sample; to factor the pages, put them into a folder"
        )
        names = Names(pixels_shape=(rows, columns))
        scene = np.stack(pages, axis=1)
        return NamedMatrix(scene, names, remarks=(Remark(text),), fixed=_FIXED)


def read_resized(folder: Path, rows: int, columns: int) -> tuple[Array, list[str]]:
    """The images below a folder as 8-bit grey of one size, one in each row, and their names.

    Numbers in names count as numbers: ``s2`` comes before ``s10``. An image of another size is
    brought to this one with a bicubic filter that is as wide as the image is shrunk.
    """
    pillow = require_package("PIL.Image", folder)
    files = sorted(
        files_below(folder, SUFFIXES), key=lambda file: _natural(file.relative_to(folder))
    )
    grey = np.empty((len(files), rows * columns), np.uint8)
    for row, file in zip(grey, files, strict=True):
        _check_comments(file)
        try:
            with pillow.open(file, formats=_FORMATS) as image:
                if image.width * image.height > _MAX_IMAGE_PIXELS:
                    raise FileFormatError(
                        f"{file} has more than {_MAX_IMAGE_PIXELS} pixels: make it smaller"
                    )
                small = image.convert("L")
                if small.size != (columns, rows):
                    small = small.resize((columns, rows), pillow.Resampling.BICUBIC)
                row[:] = np.asarray(small).reshape(-1)
        except FileFormatError:
            raise
        except Exception as problem:  # the library raises many kinds for damaged bytes
            raise FileFormatError(
                f"{file} is damaged: {problem}; copy or download it again"
            ) from problem
    return grey, [file.relative_to(folder).as_posix() for file in files]


def _natural(file: Path) -> list[list[tuple[int, str]]]:
    """The key to sort by so that numbers count as numbers."""
    return [
        [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
        for name in file.parts
    ]


class _ImageSource(Source):
    """Images, decoded when they are read."""

    def __init__(self, folder: Path, files: list[Path]) -> None:
        self._pillow = require_package("PIL.Image", folder)
        self._folder, self._files = folder, files
        self.name = str(folder)
        self._set_place(folder)
        self.watch = Watch(self.name, (WatchedFiles.of_list(self.name, files),))
        self._states = [_state(file) for file in files]
        for file in files:
            _check_comments(file)
        self.format = self._read_format(files[0])
        for file in files[1:]:
            format_ = self._read_format(file)
            if format_ != self.format:
                raise FileFormatError(
                    f"{file} has {format_}, unlike {files[0]}, which has {self.format}: "
                    "bring all images to one size"
                )
        self._set_dense((len(files), self.format.rows * self.format.columns), self.format.dtype)

    def _read_format(self, file: Path) -> _Format:
        """Read the header of an image, and no more."""
        with self._open(file) as image:
            columns, rows = image.size
            if rows * columns > _MAX_IMAGE_PIXELS:
                raise FileFormatError(
                    f"{file}: header claims {rows} x {columns} pixels, more than "
                    f"{_MAX_IMAGE_PIXELS}: make it smaller"
                )
            return _Format(rows, columns, np.dtype(_DTYPES.get(image.mode, "u1")))

    def _open(self, file: Path) -> Any:
        try:
            return self._pillow.open(file, formats=_FORMATS)
        except Exception as problem:  # the library raises many kinds for a damaged header
            raise FileFormatError(
                f"{file} is not an image that can be read: {problem}"
            ) from problem

    def turned(self) -> Self:
        """An image is a sample: refuse to take its pixels for samples."""
        raise OptionError(
            Message(
                f"{self.name} is a folder of images, each of which is a sample: leave out ",
                Option("samples_in"),
            )
        )

    def readable(self, budget: int) -> Any:
        """Return all images in memory if they fit, so that each is decoded once.

        They are kept in the type of the files, and computed with in blocks of float64.
        """
        N, F = self.shape
        size = N * F * self.dtype.itemsize
        block = 8 * F * min(N, dense_block_samples(F, N, 8))
        if fits(size, budget) and fits(block, budget):
            with name_out_of_memory(f"the {N} images in {self.name}", *_ADVICE):
                return self.whole()
        if not fits(_LEAST_IMAGES * self.row_bytes, budget):
            raise OptionError(
                Message(
                    f"the {N} images in {self.name} decode to {size} bytes, and each takes "
                    f"{self.row_bytes} to compute with: ",
                    *_ADVICE,
                )
            )
        return self

    def read(self, start: int, stop: int) -> Array:
        return self.take(np.arange(start, stop))

    def take(self, indices: Array) -> Array:
        rows = np.empty((indices.size, self.shape[1]), self.dtype)
        for row, index in zip(rows, indices.tolist(), strict=True):
            row[:] = self._grey(index).reshape(-1)
        return rows

    def _grey(self, index: int) -> Array:
        file = self._files[index]
        if _state(file) != self._states[index]:
            raise DataChangedError(f"{file} was changed after it was opened: open the folder again")
        if self._read_format(file) != self.format:
            raise DataChangedError(f"{file} has another size now: open the folder again")
        with self._open(file) as image:
            try:
                if image.mode in _DTYPES:
                    return np.asarray(image)
                # Colours of a palette may be transparent, which grey cannot be.
                plain = image.convert("RGBA") if image.mode == "P" else image
                return np.asarray(plain.convert("L"))
            except Exception as problem:
                raise FileFormatError(
                    f"{file} is damaged or truncated: {problem}; copy or download it again"
                ) from problem


def _check_comments(file: Path) -> None:
    """Refuse an image of the family of PGM that would take Pillow very long for its comments."""
    with open(file, "rb") as stream:
        head = stream.read(_MAX_HEADER_BYTES)
        if not head.startswith(b"P"):
            return
        plain = re.sub(rb"#[^\r\n]*", b"", head)
        is_long = len(head) == _MAX_HEADER_BYTES and len(plain.split(maxsplit=4)) < 5
        count, part = 0, head
        while part and head[:2] in _PLAIN_FORMATS and count <= _MAX_COMMENTS:
            count += part.count(b"#")
            part = stream.read(1 << 20)
        if is_long or count > _MAX_COMMENTS:
            raise FileFormatError(
                f"{file} is an image with more than {_MAX_HEADER_BYTES} bytes before its pixels, "
                f"or more than {_MAX_COMMENTS} comments: save it again"
            )


def _state(file: Path) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError as problem:
        raise DataChangedError(f"{file} can no longer be read: {problem}") from problem
    return status.st_size, status.st_mtime_ns

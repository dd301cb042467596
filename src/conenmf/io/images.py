"""Images, decoded by Pillow: a folder of them, each a sample, or a TIFF stack of bands.

The grey values of an image are its features; all images of a folder have to have one size.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from ..data.blocks import Array
from ..data.borders import dense_block_samples
from ..data.disk import Source, Stamp
from ..errors import FileFormatError, Message, Option, OptionError, name_out_of_memory
from ..names import Names
from ..text import visible
from .limits import check_fits, files_below, fits, named_damage, require_package
from .source import NamedMatrix, Remark

__all__ = ["SUFFIXES", "open_images", "open_stack", "read_resized"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".bmp", ".tif", ".tiff", ".gif")
_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "TIFF", "GIF")
_MAX_PIXELS = 1 << 26
# Modes of Pillow that are read as they are, and their type; all others become 8-bit grey.
_DTYPES = {"I;16": "u2", "I;16L": "u2", "I;16B": "u2", "I": "i4", "F": "f4"}
_LEAST_IMAGES = 16  # that have to fit in a quarter of the memory
_ADVICE = ("make them smaller, or raise ", Option("max_memory"))


class _Format(NamedTuple):
    """The size and the type that all images of a folder have in common."""

    rows: int
    columns: int
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns} pixels of {8 * self.dtype.itemsize} bits"


def _format(image: Any, path: Path) -> _Format:
    columns, rows = image.size
    if rows * columns > _MAX_PIXELS:
        raise FileFormatError(
            f"{path}: header claims {rows} x {columns} pixels, more than {_MAX_PIXELS}: make it "
            "smaller"
        )
    return _Format(rows, columns, np.dtype(_DTYPES.get(image.mode, "u1")))


def _open(path: Path) -> Any:
    return require_package("PIL.Image", path).open(path, formats=_FORMATS)


def _grey(image: Any) -> Array:
    if image.mode in _DTYPES:
        return np.asarray(image)
    # Colours of a palette may be transparent, which grey cannot be.
    return np.asarray((image.convert("RGBA") if image.mode == "P" else image).convert("L"))


def open_images(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open all images below a folder, sorted by their names."""
    files = files_below(path, SUFFIXES)
    if not files:
        raise FileFormatError(
            f"{path} is not a Zarr store, has no matrix.mtx as 10x folders have, and holds neither "
            f"images ({', '.join(sorted(SUFFIXES))}) nor texts (.txt)"
        )
    source = _ImageSource(path, files)
    names = (file.relative_to(path).as_posix() for file in files)
    return NamedMatrix(source, Names.of(names, image_shape=source.format[:2]))


class _ImageSource(Source):
    """Images, decoded when they are read."""

    def __init__(self, folder: Path, files: list[Path]) -> None:
        super().__init__(str(folder), folder, Stamp(files))
        self._files = files
        formats = [self._read_format(file) for file in files]
        self.format = formats[0]
        for file, other in zip(files, formats, strict=True):
            if other != self.format:
                raise FileFormatError(
                    f"{file} has {other}, unlike {files[0]}, which has {self.format}: bring all "
                    "images to one size"
                )
        rows, columns, self.dtype = self.format
        self.shape, self.row_bytes = (len(files), rows * columns), 8 * rows * columns

    @staticmethod
    def _read_format(file: Path) -> _Format:
        with named_damage(file), _open(file) as image:
            return _format(image, file)

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
            file = self._files[index]
            with named_damage(file), _open(file) as image:
                row[:] = _grey(image).reshape(-1)
        return rows


def open_stack(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a TIFF file of several pages, the bands of a scene: its pixels are the samples."""
    pages: list[Array] = []
    with named_damage(path), _open(path) as image:
        first, mode = _format(image, path), image.mode
        size = image.n_frames * first.rows * first.columns * first.dtype.itemsize
        check_fits(path, size, budget, "a stack can only be read as a whole", "save it as ENVI")
        if mode != "L" and mode not in _DTYPES:
            raise FileFormatError(
                f"{path} is a picture in colours ({visible(mode)}), expected a page for each band; "
                "to factor pictures, put them into a folder"
            )
        if image.n_frames == 1:
            raise FileFormatError(
                f"{path} has a single page, and a scene has several bands; to factor pictures, put "
                "them into a folder; for many bands on a page: gdal_translate -of ENVI"
            )
        for page in range(image.n_frames):
            image.seek(page)
            if _format(image, path) != first or image.mode != mode:
                raise FileFormatError(
                    f"{path}: page {page} has {image.height} x {image.width} pixels of mode "
                    f"{visible(image.mode)}, unlike the first: bring all to one size"
                )
            pages.append(np.asarray(image).reshape(-1))
    text = (
        f"a stack of {len(pages)} pages of {first.rows} x {first.columns} was taken as the bands "
        "of a scene: each pixel is a sample; to factor the pages, put them into a folder"
    )
    return NamedMatrix(
        np.stack(pages, axis=1),
        Names(pixels_shape=first[:2]),
        remarks=(Remark(text),),
        fixed="the pixels of a scene are the samples",
    )


def read_resized(folder: Path, rows: int, columns: int) -> tuple[Array, list[str]]:
    """The images below a folder as 8-bit grey of one size, one in each row, and their names.

    Numbers in names count as numbers: ``s2`` comes before ``s10``. An image of another size is
    brought to this one with a bicubic filter that is as wide as the image is shrunk.
    """
    names = [file.relative_to(folder) for file in files_below(folder, SUFFIXES)]
    names.sort(key=_natural)
    grey = np.empty((len(names), rows * columns), np.uint8)
    for row, name in zip(grey, names, strict=True):
        with named_damage(folder / name), _open(folder / name) as image:
            _format(image, folder / name)
            small = image.convert("L")
            if small.size != (columns, rows):
                bicubic = require_package("PIL.Image", folder).Resampling.BICUBIC
                small = small.resize((columns, rows), bicubic)
            row[:] = np.asarray(small).reshape(-1)
    return grey, [name.as_posix() for name in names]


def _natural(file: Path) -> list[list[tuple[int, str]]]:
    """The key to sort by so that numbers count as numbers."""
    return [
        [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
        for name in file.parts
    ]

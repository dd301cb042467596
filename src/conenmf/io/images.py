"""Images, decoded by Pillow: a folder of images, each a sample, or a TIFF stack of bands.

The grey values of an image are its features; all images of a folder must have the same size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileFormatError, Message
from ..names import Names
from ..scale.disk import Stamp
from ..text import visible
from ..types import Array
from .limits import check_fits, files_below, fits, named_damage, require_package
from .source import ArraySource, NamedMatrix, Reading

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".bmp", ".tif", ".tiff", ".gif")
_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "TIFF", "GIF")
# Modes of Pillow that are read without conversion, and their type; others become 8-bit grey.
_DTYPES = {"I;16": "u2", "I;16L": "u2", "I;16B": "u2", "I": "i4", "F": "f4", "L": "u1"}


_TIFF_STARTS = (b"II*\0", b"MM\0*")
_TIFF_TAGS = (277, 257, 256, 258)  # of the bands, rows and columns of a page, and of its bits


def _open(path: Path) -> Any:
    pillow = require_package("PIL.Image", path)
    try:
        return pillow.open(path, formats=_FORMATS)
    except pillow.UnidentifiedImageError:
        page = _page(path)
        if not all(page):
            raise
    bands, rows, columns, bits = page
    raise FileFormatError(
        f"{path} is a TIFF with {bands} bands of {rows} x {columns} pixels of {bits} bits on one "
        "page, which is not read: convert it with gdal_translate -of ENVI in.tif out.img, and open "
        "out.hdr"
    )


def _page(path: Path) -> list[int]:
    """Return the bands, rows, columns and bits of the first page of a TIFF; zeros for others."""
    with open(path, "rb") as file:
        start = file.read(8)
        if start[:4] not in _TIFF_STARTS:
            return [0, 0, 0, 0]
        tags = require_package("PIL.TiffImagePlugin", path).ImageFileDirectory_v2(start)
        file.seek(tags.next)
        tags.load(file)
    values = []
    for tag in _TIFF_TAGS:
        default = 1 if tag == _TIFF_TAGS[0] else 0  # one band
        values.append(int(np.ravel(tags.get(tag, default))[0]))
    return values


class _Images:
    """Images that are decoded when their rows are sliced."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        expected = ""
        for file in files:
            with named_damage(file), _open(file) as image:
                dtype = np.dtype(_DTYPES.get(image.mode, "u1"))
                rows, columns = image.height, image.width
            found = f"{rows} x {columns} pixels of {8 * dtype.itemsize} bits"
            expected = expected or found
            if found != expected:
                raise FileFormatError(
                    f"{file} has {found}, unlike {files[0]}, which has {expected}: bring all "
                    "images to one size"
                )
        self.dtype = dtype
        self.image_shape = (rows, columns)
        self.shape = (len(files), rows * columns)

    def __getitem__(self, index: tuple[slice, slice]) -> Array:
        files = self._files[index[0]]
        rows = np.empty((len(files), self.shape[1]), self.dtype)
        for row, file in zip(rows, files, strict=True):
            with named_damage(file), _open(file) as image:
                if image.mode == "P":  # a palette may have transparent colours, but grey cannot
                    image = image.convert("RGBA")
                grey = image if image.mode in _DTYPES else image.convert("L")
                row[:] = np.asarray(grey).reshape(-1)
        return rows[:, index[1]]


def open_images(path: Path, reading: Reading) -> NamedMatrix:
    """Open all images below a folder, sorted by their names.

    If they fit in memory, they are decoded once and stored in the type of the files; computations
    use blocks of float64.
    """
    files = files_below(path, SUFFIXES)
    if not files:
        raise FileFormatError(
            f"{path} is not a Zarr store, has no matrix.mtx as 10x folders have, and holds neither "
            f"images ({', '.join(sorted(SUFFIXES))}) nor texts (.txt)"
        )
    images = _Images(files)
    source = ArraySource(images, str(path), path, Stamp(files))
    is_small = fits(source.shape[0] * source.row_bytes, reading.budget)
    names = Names.of(
        [file.relative_to(path).as_posix() for file in files], None, images.image_shape
    )
    fixed = f"{path} is a folder of images, each of which is a sample"
    return NamedMatrix(source.whole() if is_small else source, names, fixed=fixed)


def open_stack(path: Path, reading: Reading) -> NamedMatrix:
    """Open a TIFF file whose pages are the bands of a scene; its pixels are the samples."""
    pages = []
    with _open(path) as image:
        count = image.n_frames
        mode = image.mode
        rows = image.height
        columns = image.width
        if mode not in _DTYPES or count == 1:
            raise FileFormatError(
                f"{path} is a picture of {count} pages in mode {visible(mode)}, expected several "
                "pages in grey, one for each band of a scene; to factor pictures, put them into a "
                "folder; for many bands on a page: gdal_translate -of ENVI"
            )
        size = count * rows * columns * np.dtype(_DTYPES[mode]).itemsize
        check_fits(path, size, reading.budget)
        for page in range(count):
            image.seek(page)
            pages.append(np.array(image))
    bands = np.stack(pages).reshape(count, rows * columns)  # raises if sizes differ
    remark = Message(
        f"a stack of {count} pages of {rows} x {columns} was read as the bands of a scene: each "
        "pixel is a sample; to factor the pages, put them into a folder"
    )
    names = Names(pixels_shape=(rows, columns))
    return NamedMatrix(bands.T, names, (remark,), "the pixels of a scene are the samples")

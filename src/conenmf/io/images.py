"""Images, decoded by Pillow: a folder of them, each a sample, or a TIFF stack of bands.

The grey values of an image are its features; all images of a folder have to have one size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..data.blocks import Array, dense_block_samples
from ..data.disk import Stamp
from ..errors import FileFormatError, Message, Option, OptionError, name_out_of_memory
from ..names import Names
from ..text import visible
from .limits import check_fits, files_below, fits, named_damage, require_package
from .source import ArraySource, NamedMatrix, Remark

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".bmp", ".tif", ".tiff", ".gif")
_FORMATS = ("PNG", "JPEG", "PPM", "BMP", "TIFF", "GIF")
_MAX_PIXELS = 1 << 26
# Modes of Pillow that are read as they are, and their type; all others become 8-bit grey.
_DTYPES = {"I;16": "u2", "I;16L": "u2", "I;16B": "u2", "I": "i4", "F": "f4"}
_LEAST_IMAGES = 16  # that have to fit in a quarter of the memory
_ADVICE = ("make them smaller, or raise ", Option("max_memory"))


def _format(image: Any, path: Path) -> tuple[int, int, np.dtype[Any]]:
    """The rows, the columns and the type of an image, the same for all of a folder."""
    columns, rows = image.size
    if rows * columns > _MAX_PIXELS:
        raise FileFormatError(
            f"{path}: header claims {rows} x {columns} pixels, more than {_MAX_PIXELS}: make it "
            "smaller"
        )
    return rows, columns, np.dtype(_DTYPES.get(image.mode, "u1"))


def _open(path: Path) -> Any:
    return require_package("PIL.Image", path).open(path, formats=_FORMATS)


class _Images:
    """Images that are decoded when rows are sliced from them."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        for file in files:
            with named_damage(file), _open(file) as image:
                rows, columns, dtype = _format(image, file)
            found = f"{rows} x {columns} pixels of {8 * dtype.itemsize} bits"
            if file == files[0]:
                self.format, expected = (rows, columns, dtype), found
            if (rows, columns, dtype) != self.format:
                raise FileFormatError(
                    f"{file} has {found}, unlike {files[0]}, which has {expected}: bring all "
                    "images to one size"
                )
        self.dtype, self.shape = dtype, (len(files), rows * columns)

    def __getitem__(self, index: tuple[slice, slice]) -> Array:
        files = self._files[index[0]]
        rows = np.empty((len(files), self.shape[1]), self.dtype)
        for row, file in zip(rows, files, strict=True):
            with named_damage(file), _open(file) as image:
                if image.mode == "P":  # colours of a palette may be transparent: grey cannot be
                    image = image.convert("RGBA")
                grey = image if image.mode in _DTYPES else image.convert("L")
                row[:] = np.asarray(grey).reshape(-1)
        return rows[:, index[1]]


def open_images(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open all images below a folder, sorted by their names.

    If they fit they are decoded once, and kept in the type of the files; they are computed with in
    blocks of float64.
    """
    files = files_below(path, SUFFIXES)
    if not files:
        raise FileFormatError(
            f"{path} is not a Zarr store, has no matrix.mtx as 10x folders have, and holds neither "
            f"images ({', '.join(sorted(SUFFIXES))}) nor texts (.txt)"
        )
    images = _Images(files)
    source: Any = ArraySource(images, str(path), path, Stamp(files))
    N, F = source.shape
    size, what = N * F * source.dtype.itemsize, f"the {N} images in {path}"
    block = 8 * F * min(N, dense_block_samples(F, N, 8))
    if fits(size, budget) and fits(block, budget):
        with name_out_of_memory(what, *_ADVICE):
            source = source.whole()
    elif not fits(_LEAST_IMAGES * source.row_bytes, budget):
        problem = f"{what} decode to {size} bytes, and each takes {source.row_bytes} to compute "
        raise OptionError(Message(problem, "with: ", *_ADVICE))
    names = (file.relative_to(path).as_posix() for file in files)
    fixed = f"{path} is a folder of images, each of which is a sample"
    return NamedMatrix(source, Names.of(names, image_shape=images.format[:2]), fixed=fixed)


def open_stack(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a TIFF file of several pages, the bands of a scene: its pixels are the samples."""
    pages: list[Array] = []
    with named_damage(path), _open(path) as image:
        first, mode = _format(image, path), image.mode
        rows, columns, dtype = first
        size = image.n_frames * rows * columns * dtype.itemsize
        check_fits(path, size, budget, "a stack can only be read as a whole", "save it as ENVI")
        if (mode != "L" and mode not in _DTYPES) or image.n_frames == 1:
            raise FileFormatError(
                f"{path} is a picture of {image.n_frames} pages in mode {visible(mode)}, expected "
                "several pages in grey, one for each band of a scene; to factor pictures, put them "
                "into a folder; for many bands on a page: gdal_translate -of ENVI"
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
        f"a stack of {len(pages)} pages of {rows} x {columns} was taken as the bands "
        "of a scene: each pixel is a sample; to factor the pages, put them into a folder"
    )
    return NamedMatrix(
        np.stack(pages, axis=1),
        Names(pixels_shape=(rows, columns)),
        remarks=(Remark(text),),
        fixed="the pixels of a scene are the samples",
    )

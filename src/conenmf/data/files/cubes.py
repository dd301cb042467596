"""Cubes: arrays of three axes, opened as the pixels of a hyperspectral image by their bands.

With samples in rows, the axes are the rows, the columns and the bands of the image, in this order;
with samples in columns, the bands come first. The rule does not look at the numbers, and what was
done is said. The pixels are the samples, row by row, in every format; nothing is written again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import EmptyDataError, Message, Option, ShapeWarning
from ...names import Names
from ..blocks import Array
from ..validate import SamplesIn, check_kind
from .layouts import ChunkedSource, RawArray, RawSource
from .limits import check_fits
from .sources import NamedMatrix, Remark, Source

__all__ = ["Cube", "CubeSource"]

_BANDS_LAST, _BANDS_FIRST = (0, 1, 2), (1, 2, 0)  # the axes of rows, columns and bands


@dataclass(frozen=True)
class Cube:
    """An array of three axes in a file.

    Attributes
    ----------
    name : str
        What to call it in messages.
    array : ndarray, RawArray, or a dataset that can be sliced
    is_reversed : bool
        The file stores the axes in the opposite order, as MATLAB does in HDF5.
    """

    name: str
    array: Any
    is_reversed: bool = False

    def pixels(self, names: Names, samples_in: SamplesIn, budget: int) -> NamedMatrix:
        """The pixels, as samples in the rows of a matrix."""
        stored = tuple(self.array.shape)
        shape = stored[::-1] if self.is_reversed else stored
        check_kind(np.dtype(self.array.dtype), (1, 1))
        if 0 in shape:
            raise EmptyDataError(f"{self.name} has shape {shape}: it needs some of each")
        axes = _BANDS_LAST if samples_in == "rows" else _BANDS_FIRST
        rows, columns, bands = (shape[axis] for axis in axes)
        if isinstance(self.array, RawArray):
            matrix = self._in_place(rows * columns, bands, axes, budget)
        elif isinstance(self.array, np.ndarray):
            matrix = self.array.transpose(axes).reshape(rows * columns, bands)
        else:
            stored_axes = tuple(2 - axis for axis in axes) if self.is_reversed else axes
            matrix = CubeSource(self.array, stored_axes)
            reason = "a row of pixels has to be read as a whole"
            check_fits(self.name, columns * bands * matrix.dtype.itemsize, budget, reason)
        names = replace(names, pixels_shape=(rows, columns))
        return NamedMatrix(matrix, names, remarks=(self._remark(shape, samples_in),))

    def _in_place(
        self, n_pixels: int, bands: int, axes: tuple[int, ...], budget: int
    ) -> Source | Array:
        """Numbers one after the other: in C order they are a matrix already."""
        shape = (n_pixels, bands) if axes == _BANDS_LAST else (bands, n_pixels)
        source = RawSource(replace(self.array, shape=shape))  # which checks the size of the file
        if not self.array.fortran:
            return source if axes == _BANDS_LAST else source.turned()
        size = n_pixels * bands * source.dtype.itemsize
        reason = "its pixels are stored column by column"
        check_fits(self.name, size, budget, reason, "save it in C order, np.ascontiguousarray(X)")
        return np.asarray(self.array).transpose(axes).reshape(n_pixels, bands)

    def _remark(self, shape: tuple[int, ...], samples_in: SamplesIn) -> Remark:
        order = "rows x columns x bands" if samples_in == "rows" else "bands x rows x columns"
        text = (
            f"a cube of {' x '.join(map(str, shape))} was taken as {order}: "
            "each pixel is a sample, each band a feature"
        )
        if samples_in == "columns" or not shape[0] != shape[1] == shape[2]:
            return Remark(text)
        message = Message(
            f"{self.name}: {text}; its last two axes are equal, as in a stack of images or if "
            "bands come first: reshape images to one in each row; for bands first, give ",
            Option("samples_in", "columns"),
        )
        return Remark(text, ShapeWarning(message))


class CubeSource(ChunkedSource):
    """A dataset with three axes that can be sliced, as a matrix of pixels by bands.

    `axes` are those of the rows, the columns and the bands of the image.
    """

    def __init__(self, array: Any, axes: tuple[int, ...]) -> None:
        self._axes = axes
        self._set_origin(array, is_ours=True)
        self._set_sides()

    def _set_sides(self) -> None:
        array, axes = self._array, self._axes
        rows, self._columns, bands = (array.shape[axis] for axis in axes)
        sides = (rows * self._columns, bands)
        self._set_dense(sides if self._by_rows else sides[::-1], np.dtype(array.dtype))
        chunks = getattr(array, "chunks", None) or (1, 1, 1)
        self.chunk = int(chunks[axes[0]] * self._columns if self._by_rows else chunks[axes[2]])

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop: pixels, or bands."""
        everything = slice(None)
        if not self._by_rows:
            return self._slab(everything, everything, slice(start, stop)).T
        first, last = start // self._columns, -(-stop // self._columns)
        start, stop = start - first * self._columns, stop - first * self._columns
        if last - first == 1:  # few pixels: no more of their row than these
            return self._slab(slice(first, last), slice(start, stop), everything)
        return self._slab(slice(first, last), everything, everything)[start:stop]

    def _slab(self, *slices: slice) -> Array:
        """A part of the image, as pixels by bands."""
        index = [slices[self._axes.index(axis)] for axis in range(3)]
        part = self._present(self._array[tuple(index)]).transpose(self._axes)
        return part.reshape(-1, part.shape[2])

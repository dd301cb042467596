"""Matrices in files: rows sliced from a dense array, or from the parts of a sparse one.

An array may be mapped into memory (``.npy``, ENVI, spooled tables), a dataset of HDF5 or Zarr, or a
folder of images: all are read by slicing them. An opener returns a `NamedMatrix` in the orientation
of its file; `io.open` turns it, once, if the samples are columns.
"""

from __future__ import annotations

import copy
import math
import mmap
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from ..data.aligned import mapping_of
from ..data.blocks import Array, Borders, compute_dtype, sparse_block_samples
from ..data.disk import Compressed, Source, Stamp
from ..data.validate import SamplesIn, check_kind
from ..errors import (
    DataError,
    DataTypeError,
    FileFormatError,
    InputWarning,
    Message,
    Option,
    OptionError,
)
from ..names import Names
from .limits import cast_exactly, check_fits, check_sides


class ArraySource(Source):
    """A dense array that is read by slicing it.

    Parameters
    ----------
    array : mapped ndarray, or anything else with a shape and a type that can be sliced
    name, path, stamp
        As for `Source`. An array without a stamp may be in memory.
    axes : tuple of int, optional
        The axes of the rows and the columns of a matrix, or of the rows, the columns and the bands
        of an image, whose pixels are then the rows of the matrix. By default in their order.
    missing : float, optional
        Entries that equal this number have no value, and are refused.
    scale : float
        The numbers in the file are divided by it.
    """

    def __init__(
        self,
        array: Any,
        name: str,
        path: Any = None,
        stamp: Stamp | None = None,
        *,
        axes: tuple[int, ...] | None = None,
        missing: float | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(name, path, stamp)
        self.dtype = np.dtype(array.dtype)
        self.axes = tuple(range(len(array.shape))) if axes is None else axes
        check_kind(self.dtype, (1, 1) if len(self.axes) == 3 else array.shape)
        if scale != 1 and self.dtype.kind != "f":
            self.dtype = np.dtype(np.float64)
        self.array, self._missing, self._scale = array, missing, scale
        self._is_turned = False
        self.slice_along(self.axes[:-1], self.axes[-1:])

    def slice_along(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
        """Make rows of these axes, and columns of the others."""
        self._rows, self._columns = rows, columns
        sides = self.array.shape
        chunks = getattr(self.array, "chunks", None) or [1] * len(sides)
        self._width = math.prod(sides[axis] for axis in rows[1:])  # pixels in a row of the image
        self.shape = (sides[rows[0]] * self._width, math.prod(sides[axis] for axis in columns))
        self.chunk = int(chunks[rows[0]]) * self._width
        itemsize = max(self.dtype.itemsize, compute_dtype(self.dtype).itemsize)
        self.row_bytes = self.shape[1] * itemsize

    def turned(self) -> Self:
        """The same array, sliced along its other side."""
        twin = copy.copy(self)
        twin._is_turned = not self._is_turned
        twin.slice_along(self._columns, self._rows)
        return twin

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop."""
        self.check(few=True)  # what is mapped must not be read beyond the end of its file
        first, last = start // self._width, -(-stop // self._width)
        part = slice(start - first * self._width, stop - first * self._width)
        index = [slice(None)] * len(self.axes)
        index[self._rows[0]] = slice(first, last)
        if self._width > 1 and last - first == 1:  # pixels of one row of the image
            index[self._rows[1]], part = part, slice(None)
        block = np.array(self.array[tuple(index)])
        _release(self.array)
        block = block.transpose(self._rows + self._columns).reshape(-1, self.shape[1])
        return self._valued(block[part], start)

    def _valued(self, rows: Array, start: int) -> Array:
        """Rows in the unit of the data; refuse entries that have no value."""
        if self._missing is not None and (rows == self._missing).any():
            row, column = np.argwhere(rows == self._missing)[0].tolist()
            place = [start + row, column]
            if self._is_turned:
                place.reverse()
            raise DataTypeError(
                f"{self.name}: row {place[0]}, column {place[1]}, counted from 0, is "
                f"{self._missing:g}, which its attribute _FillValue or missing_value (ENVI: data "
                "ignore value) marks as missing: remove such samples or features, fill them, or "
                "remove the attribute if they are numbers"
            )
        return rows if self._scale == 1 else (rows / self._scale).astype(self.dtype, copy=False)

    def take(self, indices: Array) -> Array:
        """These rows, given in increasing order."""
        # Runs of neighbours: selecting scattered rows at once is slow in HDF5 and Zarr.
        gaps = np.flatnonzero(np.diff(indices) != 1)
        runs = np.split(indices, gaps + 1)
        blocks = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs if run.size]
        return np.concatenate(blocks) if blocks else np.empty((0, self.shape[1]), self.dtype)


def _release(array: Any) -> None:
    """Release the memory of what was read of a mapped file, which else counts as ours."""
    mapping = mapping_of(array)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


class CompressedSource(Source):
    """A sparse matrix compressed by row ("csr") or by column ("csc"), its parts in files.

    Parameters
    ----------
    name, path, stamp
        As for `Source`.
    parts : data, indices and indptr
        Vectors that can be sliced.
    sides : rows and columns
    order : {"csr", "csc"}
    """

    def __init__(
        self, name: str, path: Any, stamp: Stamp | None, parts: Any, sides: Any, order: str
    ) -> None:
        super().__init__(name, path, stamp)
        self._data, self._indices, indptr = parts
        size = cast_exactly(f"{name}: its shape", sides)
        if size.shape != (2,) or order not in ("csr", "csc"):
            raise FileFormatError(
                f"{name} is a sparse matrix of shape {size.tolist()} in {order} order, expected "
                "two sides, and csr or csc: save it again"
            )
        rows, columns = size.tolist()
        entries = int(self._data.size)
        check_sides(name, rows, columns, entries)
        self.shape, self.dtype = (rows, columns), np.dtype(self._data.dtype)
        check_kind(self.dtype, self.shape)
        self._by_rows = order == "csr"
        n, width = self.shape if self._by_rows else self.shape[::-1]
        shapes = (self._data.shape, self._indices.shape, indptr.shape)
        self._indptr = cast_exactly(f"{name}: its pointers", np.array(indptr[:]))
        steps = np.diff(self._indptr, prepend=0, append=entries)
        rises = steps[0] == steps[-1] == 0 and (steps >= 0).all()
        if shapes != ((entries,), (entries,), (n + 1,)) or not rises:
            raise FileFormatError(
                f"{name} is not a compressed sparse matrix of {n} "
                f"{'rows' if self._by_rows else 'columns'}: the shapes of its entries, indices and "
                f"pointers are {shapes}, or the pointers do not rise from 0 to their number"
            )
        self._entry_bytes = max(self.dtype.itemsize, 8) + self._indices.dtype.itemsize
        self.row_bytes = max(1, entries * self._entry_bytes // max(n, 1)) + 8
        self.max_block_rows = sparse_block_samples(width, n, entries)

    def turned(self) -> Self:
        """Compressed rows are the compressed columns of the transpose."""
        twin = copy.copy(self)
        twin.shape, twin._by_rows = self.shape[::-1], not self._by_rows
        return twin

    def readable(self, budget: int) -> Any:
        """Return the matrix in memory if it is compressed by column."""
        if self._by_rows:
            return self
        parts = (self._data, self._indices, self._indptr)
        check_fits(
            self.name,
            sum(part.shape[0] * part.dtype.itemsize for part in parts),
            budget,
            "it is compressed by feature, so samples cannot be read one after the other",
            "store it compressed by sample",
        )
        return self.turned().whole().T

    def blocks(self, size: int, max_bytes: int) -> Borders:
        """Rows differ in length: a block ends where it would become too large."""
        n_rows, borders, start = self.shape[0], [], 0
        while start < n_rows:
            entries = self._indptr[start] + max_bytes // self._entry_bytes
            full = int(np.searchsorted(self._indptr, entries, side="right")) - 1
            stop = min(start + size, n_rows, max(full, start + 1))
            borders.append((start, stop))
            start = stop
        return borders

    def read(self, start: int, stop: int) -> Compressed:
        """Rows start..stop, compressed."""
        self.check(few=True)
        first, last = int(self._indptr[start]), int(self._indptr[stop])
        data = np.array(self._data[first:last], compute_dtype(self.dtype))  # sparse lacks float16
        indices = np.array(self._indices[first:last])
        _release(self._data)
        _release(self._indices)
        if indices.dtype.kind not in "iu":
            indices = cast_exactly("column indices", indices)
        if indices.size and not 0 <= indices.min() <= indices.max() < self.shape[1]:
            raise FileFormatError(
                f"column indices run from {indices.min()} to {indices.max()} in a matrix of "
                f"{self.shape[1]} columns"
            )
        return Compressed(data, indices, self._indptr[start : stop + 1] - first)

    def take(self, indices: Array) -> Compressed:
        """These rows, given in increasing order, compressed."""
        rows = [self.read(0, 0)] + [self.read(index, index + 1) for index in indices.tolist()]
        data, columns, _ = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        lengths = [row.data.size for row in rows]
        return Compressed(data, columns, np.cumsum(lengths))


class Remark(NamedTuple):
    """How some of the data were read, where there was a choice.

    Attributes
    ----------
    text : str
        In words.
    warning : InputWarning, or None
        To be issued if the choice may be wrong; it says what to do.
    """

    text: str
    warning: InputWarning | None = None


class NamedMatrix(NamedTuple):
    """What opening a file yields, in the orientation of the file.

    Attributes
    ----------
    matrix : Source, ndarray or sparse array
        In memory where a file is small or had to be read as a whole.
    names : Names
        Those of the rows as names of samples, those of the columns as names of features.
    roles_stored : bool
        The file itself says which names are those of samples, so they are not turned.
    remarks : tuple of Remark
        What was decided while it was read.
    fixed : str
        Why its rows are the samples, and its columns cannot be; empty if they can.
    """

    matrix: Any
    names: Names = Names()
    roles_stored: bool = False
    remarks: tuple[Remark, ...] = ()
    fixed: str = ""

    def turned(self) -> NamedMatrix:
        """The transposed matrix: its columns are the samples."""
        if self.fixed:
            raise OptionError(Message(f"{self.fixed}: leave out ", Option("samples_in")))
        matrix = self.matrix.turned() if isinstance(self.matrix, Source) else self.matrix.T
        names = self.names if self.roles_stored else self.names.turned()
        return self._replace(matrix=matrix, names=names)


def is_cube(opened: NamedMatrix) -> bool:
    """Whether it has three axes, and the caller says which one is that of the bands."""
    is_array = isinstance(opened.matrix, ArraySource) and not opened.fixed
    return is_array and len(opened.matrix.axes) == 3


def as_pixels(cube: NamedMatrix, samples_in: SamplesIn, budget: int) -> NamedMatrix:
    """An array of three axes as an image: its pixels are samples, its bands are features.

    With samples in rows, the axes are the rows, the columns and the bands of the image; with
    samples in columns, the bands come first. The rule does not look at the numbers.
    """
    source = copy.copy(cube.matrix)
    lengths = tuple(source.array.shape[axis] for axis in source.axes)
    if 0 in lengths:
        raise DataError(f"{source.name} has shape {lengths}: it needs some of each")
    rows, columns = lengths[:2] if samples_in == "rows" else lengths[1:]
    if samples_in == "columns":
        source.slice_along(source.axes[1:], source.axes[:1])
    if source.stamp is not None:
        reason = "a row of pixels has to be read as a whole"
        check_fits(source.name, columns * source.shape[1] * source.dtype.itemsize, budget, reason)
    order = "rows x columns x bands" if samples_in == "rows" else "bands x rows x columns"
    text = (
        f"a cube of {' x '.join(map(str, lengths))} was taken as {order}: "
        "each pixel is a sample, each band a feature"
    )
    warning = None
    if samples_in == "rows" and lengths[0] != lengths[1] == lengths[2]:
        message = Message(
            f"{source.name}: {text}; its last two axes are equal, as in a stack of images or if "
            "bands come first: reshape images to one in each row; for bands first, give ",
            Option("samples_in", "columns"),
        )
        warning = InputWarning(message)
    return NamedMatrix(
        source.whole() if source.stamp is None else source,
        replace(cube.names, pixels_shape=(rows, columns)),
        remarks=(Remark(text, warning),),
    )

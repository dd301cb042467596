"""Matrices in files: rows are sliced from a dense array, or from the parts of a sparse one.

An array may be mapped into memory (``.npy``, ENVI, temporary tables), a dataset of HDF5 or Zarr, or
a folder of images; all are read by slicing. An opener returns a `NamedMatrix` in the orientation of
its file; `io.open` transposes it if the samples are columns.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..data.blocks import Borders, Rows, compute_dtype, sparse_block_samples
from ..data.validate import SamplesIn, check_kind
from ..errors import DataError, FileFormatError, Message, Option, OptionError
from ..names import Names
from ..scale.disk import Source, Stamp, release
from ..types import Array, Facts, Lengths, PathLike
from .limits import Layout, check_fits, named_damage

Remarks: TypeAlias = tuple[Message, ...]
# A column of a table: its title, or its number, counted from 0.
Column: TypeAlias = str | int


class Reading(NamedTuple):
    """The options of `open_data` that affect how a file is read.

    Attributes
    ----------
    budget : int
        Bytes of memory.
    dataset, header, names_column, drop, text_column, triples
        As in `open_data`; `drop` and `triples` are tuples.
    """

    budget: int
    dataset: str | None = None
    header: bool | None = None
    names_column: Column | None = None
    drop: tuple[Column, ...] = ()
    text_column: Column | None = None
    triples: tuple[Column, ...] | None = None


class NamedMatrix(NamedTuple):
    """The matrix that an opener returns, in the orientation of the file.

    Attributes
    ----------
    matrix : Source, ndarray, sparse array or list of str
        An array in memory if the file is small or had to be read as a whole; texts are a list.
    names : Names
        Row names are stored as names of samples, column names as names of features.
    remarks : tuple of Message
        Decisions made while reading. A message with several parts expresses a doubt; the further
        parts say what to do.
    fixed : str
        Why rows must be the samples, or "" if columns may be.
    roles_stored : bool
        Whether the file says which names are those of samples, so that they are not transposed.
    are_unknown : bool
        Whether entries that the sparse matrix does not store are unknown, not zero.
    are_columns : bool
        Whether other arrays of the file show that the samples are columns.
    """

    matrix: Any
    names: Names = Names()
    remarks: Remarks = ()
    fixed: str = ""
    roles_stored: bool = False
    are_unknown: bool = False
    are_columns: bool = False

    def laid_out(self, layout: Layout | None) -> NamedMatrix:
        """Return the matrix with what the other arrays of its MATLAB file say of its pixels.

        MATLAB stores an image column by column, so its rows are the columns of the image.
        """
        if layout is None:
            return self
        names = self.names
        if layout.pixels_shape is not None and len(self.matrix.shape) == 2:
            side = "image_shape" if layout.are_columns else "pixels_shape"  # until it is turned
            of_pixels: Facts = {side: layout.pixels_shape[::-1]}
            names = replace(names, **of_pixels)
        return self._replace(names=names, remarks=layout.remarks, are_columns=layout.are_columns)

    def turned(self) -> NamedMatrix:
        """Return the transposed matrix: its columns are the samples."""
        if self.fixed:
            raise OptionError(f"{self.fixed}: leave out ", Option("samples_in"))
        matrix = self.matrix.turned() if isinstance(self.matrix, Source) else self.matrix.T
        names = self.names if self.roles_stored else self.names.turned()
        return self._replace(matrix=matrix, names=names)


class ArraySource(Source):
    """A dense array whose rows are read by slicing.

    The axes of a three-dimensional array are the rows, columns and bands of an image; the pixels
    are the rows of the matrix.

    Parameters
    ----------
    array : mapped ndarray, or any sliceable object with a shape and a type
    name, path, stamp
        As for `Source`. An array without a stamp may be in memory.
    missing : float, optional
        Entries that equal this number are missing: they are read as NaN.
    scale : float
        The numbers in the file are divided by it.
    """

    def __init__(
        self,
        array: Any,
        name: str,
        path: PathLike | None = None,
        stamp: Stamp | None = None,
        *,
        missing: float | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(name, path, stamp)
        self.array = array
        self.axes = tuple(range(len(array.shape)))
        self.dtype = np.dtype(array.dtype)
        check_kind(self.dtype, (1, 1) if len(self.axes) == 3 else array.shape)
        if (scale != 1 or missing is not None) and self.dtype.kind != "f":
            self.dtype = np.dtype(np.float64)
        self._missing = missing
        self._scale = scale
        self.slice_along(self.axes[:-1], self.axes[-1:])

    def slice_along(self, rows: Lengths, columns: Lengths) -> None:
        """Set the axes that form the rows and those that form the columns."""
        self._rows = rows
        self._columns = columns
        sides = self.array.shape
        chunks = getattr(self.array, "chunks", None) or [1] * len(sides)
        self._width = math.prod(sides[axis] for axis in rows[1:])  # pixels in a row of the image
        self.shape = (sides[rows[0]] * self._width, math.prod(sides[axis] for axis in columns))
        self.chunk = int(chunks[rows[0]]) * self._width
        itemsize = max(self.dtype.itemsize, compute_dtype(self.dtype).itemsize)
        self.row_bytes = self.shape[1] * itemsize

    def turned(self) -> Self:
        """Return the same array, sliced along its other side."""
        twin = copy.copy(self)
        twin.slice_along(self._columns, self._rows)
        return twin

    def read(self, start: int, stop: int) -> Array:
        """Return rows start..stop."""
        self.check(few=True)  # mapped memory must not be read beyond the end of its file
        first = start // self._width
        last = -(-stop // self._width)
        part = slice(start - first * self._width, stop - first * self._width)
        index = [slice(None)] * len(self.axes)
        index[self._rows[0]] = slice(first, last)
        if self._width > 1 and last - first == 1:  # within one row of the image
            index[self._rows[1]] = part
            part = slice(None)
        block = np.array(self.array[tuple(index)])
        release(self.array)
        rows = block.transpose(self._rows + self._columns).reshape(-1, self.shape[1])[part]
        if self._missing is not None:
            rows = np.where(rows == self._missing, np.nan, rows)
        return (rows if self._scale == 1 else rows / self._scale).astype(self.dtype, copy=False)


def as_pixels(cube: NamedMatrix, samples_in: SamplesIn) -> NamedMatrix:
    """Read a three-dimensional array as an image: pixels are samples, bands are features.

    With samples in rows, the axes are the rows, the columns and the bands of the image; with
    samples in columns, the bands come first. The sizes of the axes do not matter.
    """
    is_source = isinstance(cube.matrix, ArraySource)
    source = copy.copy(cube.matrix) if is_source else ArraySource(cube.matrix, "the cube")
    lengths = tuple(source.array.shape[axis] for axis in source.axes)
    if 0 in lengths:
        raise DataError(f"{source.name} has shape {lengths}: it needs some of each")
    order = "rows x columns x bands"
    pixels = lengths[:2]
    if samples_in == "columns":
        order = "bands x rows x columns"
        pixels = lengths[1:]
        source.slice_along(source.axes[1:], source.axes[:1])
    sides = " x ".join(map(str, lengths))
    text = f"a cube of {sides} was read as {order}: each pixel is a sample, each band a feature"
    remark = Message(text)
    if samples_in == "rows" and lengths[0] != lengths[1] == lengths[2]:
        doubt = "; its last two axes are equal, as in a stack of images or if bands come first: "
        advice = "reshape images to one in each row; for bands first, give "
        remark = Message(text, doubt, advice, Option("samples_in", "columns"))
    matrix = source if is_source else source.whole()
    return NamedMatrix(matrix, replace(cube.names, pixels_shape=pixels), (*cube.remarks, remark))


class CompressedSource(Source):
    """A sparse matrix compressed by row ("csr") or by column ("csc"), whose parts are in files.

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
        self,
        name: str,
        path: PathLike | None,
        stamp: Stamp | None,
        parts: Any,
        sides: Any,
        order: str,
    ) -> None:
        super().__init__(name, path, stamp)
        self._data, self._indices, indptr = parts
        self.dtype = np.dtype(self._data.dtype)
        self._indptr = np.array(indptr[:], np.int64)
        self._by_rows = order == "csr"
        rows, columns = map(int, sides)
        entries = int(self._data.size)
        self.shape = (rows, columns)
        n, width = self.shape if self._by_rows else self.shape[::-1]
        ends = (self._indptr.size - 1, *self._indptr[[0, -1]].tolist(), self._indices.size)
        if ends != (n, 0, entries, entries):
            raise FileFormatError(
                f"{name} is not a sparse matrix of {rows} x {columns} in {order} order: its "
                "entries, indices and pointers do not fit together: save it again"
            )
        self._entry_bytes = max(self.dtype.itemsize, 8) + self._indices.dtype.itemsize
        self.row_bytes = max(1, entries * self._entry_bytes // max(n, 1)) + 8
        self.max_block_rows = sparse_block_samples(width, n, entries)

    def turned(self) -> Self:
        """Return the transpose: compressed rows become compressed columns."""
        twin = copy.copy(self)
        twin.shape = self.shape[::-1]
        twin._by_rows = not self._by_rows
        return twin

    def readable(self, budget: int) -> Source | Rows:
        """Return the matrix in memory if it is compressed by column: rows cannot be sliced."""
        if self._by_rows:
            return self
        check_fits(self.name, self._data.size * self._entry_bytes, budget)
        return self.turned().whole().T

    def blocks(self, size: int, max_bytes: int) -> Borders:
        """Return borders of blocks, limited in bytes too, because rows differ in length."""
        n_rows = self.shape[0]
        borders = []
        start = 0
        while start < n_rows:
            entries = self._indptr[start] + max_bytes // self._entry_bytes
            full = int(np.searchsorted(self._indptr, entries, side="right")) - 1
            stop = min(start + size, n_rows, max(full, start + 1))
            borders.append((start, stop))
            start = stop
        return borders

    def read(self, start: int, stop: int) -> Rows:
        """Return rows start..stop, compressed."""
        self.check(few=True)
        first = int(self._indptr[start])
        last = int(self._indptr[stop])
        data = np.array(self._data[first:last], compute_dtype(self.dtype))  # no sparse float16
        parts = (data, self._indices[first:last], self._indptr[start : stop + 1] - first)
        with named_damage(self.name):
            rows = sp.csr_array(parts, shape=(stop - start, self.shape[1]))
            rows.check_format()  # checks that pointers increase and indices are in range
        return rows

"""How rows are read from files: by slicing a dense array, or from the parts of a sparse one.

An array may be mapped into memory (``.npy``, ENVI, spooled tables) or a dataset of HDF5 or Zarr:
all are read by slicing them. An opener returns a `NamedMatrix` in the orientation of its file;
`io.open` turns it, once, if the samples are columns.
"""

from __future__ import annotations

import copy
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from ..data.blocks import Array, compute_dtype
from ..data.borders import Borders, sparse_block_samples
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
from ..text import visible
from .limits import cast_exactly, check_fits, check_sides

__all__ = ["ArraySource", "CompressedSource", "Cube", "NamedMatrix", "Remark"]

_BANDS_LAST, _BANDS_FIRST = (0, 1, 2), (1, 2, 0)  # the axes of rows, columns and bands


class ArraySource(Source):
    """A dense array that is read by slicing it.

    Parameters
    ----------
    array : ndarray that is mapped, or dataset of HDF5 or Zarr
    name, path, stamp
        As for `Source`.
    axes : tuple of int
        The axes of the rows and the columns of a matrix, or of the rows, the columns and the bands
        of an image, whose pixels are then the rows of the matrix.
    missing : float, optional
        Entries that equal this number have no value, and are refused.
    scale : float
        What the numbers in the file are divided by.
    """

    def __init__(
        self,
        array: Any,
        name: str,
        path: Any = None,
        stamp: Stamp | None = None,
        *,
        axes: tuple[int, ...] = (0, 1),
        missing: float | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(name, path, stamp)
        check_kind(np.dtype(array.dtype), array.shape if len(axes) == 2 else (1, 1))
        self._array, self._axes = array, axes
        self._missing, self._scale, self._by_rows = missing, scale, True
        self.dtype = np.dtype(array.dtype)
        if scale != 1 and self.dtype.kind != "f":
            self.dtype = np.dtype(np.float64)
        self._set_sides()

    def _set_sides(self) -> None:
        sides = [self._array.shape[axis] for axis in self._axes]
        chunks = getattr(self._array, "chunks", None) or [1] * len(sides)
        self._width = sides[1] if len(sides) == 3 else 1  # pixels in a row of the image
        shape = (sides[0] * self._width, sides[-1])
        self.chunk = int(chunks[self._axes[0]]) * self._width
        if not self._by_rows:
            shape, self.chunk = shape[::-1], int(chunks[self._axes[-1]])
        self.shape = shape
        itemsize = max(self.dtype.itemsize, compute_dtype(self.dtype).itemsize)
        self.row_bytes = shape[1] * itemsize

    def turned(self) -> Self:
        """The same array, sliced along its other side."""
        twin = copy.copy(self)
        twin._by_rows = not self._by_rows
        twin._set_sides()
        return twin

    def read(self, start: int, stop: int) -> Array:
        """Rows start..stop."""
        everything = slice(None)
        self.check(few=True)  # what is mapped must not be read beyond the end of its file
        if not self._by_rows:
            rows = self._slab(everything, everything, slice(start, stop)).T
        elif self._width == 1:
            rows = self._slab(slice(start, stop), everything, everything)
        else:
            first, last = start // self._width, -(-stop // self._width)
            begin, end = start - first * self._width, stop - first * self._width
            part = slice(begin, end) if last - first == 1 else everything
            rows = self._slab(slice(first, last), part, everything)
            rows = rows if last - first == 1 else rows[begin:end]
        if self._missing is not None and (rows == self._missing).any():
            row, column = np.argwhere(rows == self._missing)[0].tolist()
            place = (start + row, column) if self._by_rows else (column, start + row)
            raise DataTypeError(
                f"{self.name}: row {place[0]}, column {place[1]}, counted from 0, is "
                f"{self._missing:g}, which its attribute _FillValue or missing_value (ENVI: data "
                "ignore value) marks as missing: remove such samples or features, fill them, or "
                "remove the attribute if they are numbers"
            )
        return rows if self._scale == 1 else (rows / self._scale).astype(self.dtype, copy=False)

    def _slab(self, lines: slice, pixels: slice, columns: slice) -> Array:
        """A part of the array, copied, as rows by columns."""
        slices = (lines, columns) if len(self._axes) == 2 else (lines, pixels, columns)
        index = [slices[self._axes.index(axis)] for axis in range(len(slices))]
        part = np.array(self._array[tuple(index)])
        _release(self._array)
        part = part.transpose(self._axes)
        return part.reshape(-1, part.shape[-1])

    def take(self, indices: Array) -> Array:
        """These rows, given in increasing order."""
        # Runs of neighbours: selecting scattered rows at once is slow in HDF5 and Zarr.
        borders = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        runs = np.split(indices, borders[1:]) if indices.size else []
        blocks = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        return np.concatenate(blocks) if blocks else np.empty((0, self.shape[1]), self.dtype)


def _release(array: Any) -> None:
    """Release the memory of what was read of a mapped file, which else counts as ours."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


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
        self,
        name: str,
        path: Any,
        stamp: Stamp | None,
        parts: Sequence[Any],
        sides: Iterable[Any],
        order: str,
    ) -> None:
        super().__init__(name, path, stamp)
        size = cast_exactly(f"{name}: its shape", sides)
        if size.shape != (2,):
            raise FileFormatError(f"{name} has the shape {visible(size)}, expected two sides")
        rows, columns = size.tolist()
        if order not in ("csr", "csc"):
            raise FileFormatError(
                f"{name} is a sparse matrix in {order} order, expected csr or csc"
            )
        if any(len(part.shape) != 1 for part in parts):
            raise FileFormatError(f"{name}: a part of the sparse matrix is not a vector")
        check_sides(name, rows, columns, min(part.shape[0] for part in parts[:2]))
        check_kind(np.dtype(parts[0].dtype), (rows, columns))
        self.shape, self._by_rows = (rows, columns), order == "csr"
        self._data, self._indices, indptr = parts
        self._check_pointers(indptr)
        self.dtype = np.dtype(self._data.dtype)
        n, width = self.shape if self._by_rows else self.shape[::-1]
        entries = int(self._indptr[-1])
        self._entry_bytes = max(self.dtype.itemsize, 8) + self._indices.dtype.itemsize
        self.row_bytes = max(1, entries * self._entry_bytes // max(n, 1)) + 8
        self.max_block_rows = sparse_block_samples(width, n, entries)

    def _check_pointers(self, indptr: Any) -> None:
        """Refuse pointers of another number than the sides claim, then those that lead astray."""
        n = self.shape[0 if self._by_rows else 1]
        lengths = (self._data.shape[0], self._indices.shape[0])
        if indptr.shape == (n + 1,):
            self._indptr = cast_exactly(f"{self.name}: its pointers", np.array(indptr[:]))
            ends = (self._indptr[0], *lengths)
            falls = (np.diff(self._indptr) < 0).any()
            if ends == (0, self._indptr[-1], self._indptr[-1]) and not falls:
                return
        raise FileFormatError(
            f"{self.name} is not a compressed sparse matrix of {n} "
            f"{'rows' if self._by_rows else 'columns'}: it has {lengths[0]} entries, "
            f"{lengths[1]} indices and {indptr.shape[0]} pointers"
        )

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
        rows = [self.read(index, index + 1) for index in indices.tolist()]
        if not rows:
            return self.read(0, 0)
        indptr = np.cumsum([0] + [row.data.size for row in rows])
        data = np.concatenate([row.data for row in rows])
        return Compressed(data, np.concatenate([row.indices for row in rows]), indptr)


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

    matrix: Source | Any
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

    def readable(self, budget: int) -> Any:
        """The matrix as a source whose rows can be read, or in memory."""
        return self.matrix.readable(budget) if isinstance(self.matrix, Source) else self.matrix

    def whole(self, budget: int) -> Any:
        """The matrix in memory."""
        matrix = self.readable(budget)
        return matrix.whole() if isinstance(matrix, Source) else matrix


@dataclass(frozen=True)
class Cube:
    """An array of three axes in a file, opened as the pixels of an image by their bands.

    With samples in rows, the axes are the rows, the columns and the bands of the image; with
    samples in columns, the bands come first. The rule does not look at the numbers.

    Attributes
    ----------
    name : str
        What to call it in messages.
    array : ndarray, or a dataset that can be sliced
    path, stamp
        As for `Source`.
    is_reversed : bool
        The file stores the axes in the opposite order, as MATLAB does in HDF5.
    missing : float, optional
        As for `ArraySource`.
    """

    name: str
    array: Any
    path: Any = None
    stamp: Stamp | None = None
    is_reversed: bool = False
    missing: float | None = None

    def pixels(self, names: Names, samples_in: SamplesIn, budget: int) -> NamedMatrix:
        """The pixels, as samples in the rows of a matrix."""
        axes: tuple[int, ...] = _BANDS_LAST if samples_in == "rows" else _BANDS_FIRST
        axes = tuple(2 - axis for axis in axes) if self.is_reversed else axes
        check_kind(np.dtype(self.array.dtype), (1, 1))
        shape = tuple(self.array.shape)[:: -1 if self.is_reversed else 1]
        if 0 in shape:
            raise DataError(f"{self.name} has shape {shape}: it needs some of each")
        rows, columns, bands = (self.array.shape[axis] for axis in axes)
        matrix: Any
        if self.path is None:
            matrix = self.array.transpose(axes).reshape(rows * columns, bands)
        else:
            matrix = ArraySource(
                self.array, self.name, self.path, self.stamp, axes=axes, missing=self.missing
            )
            reason = "a row of pixels has to be read as a whole"
            check_fits(self.name, columns * bands * matrix.dtype.itemsize, budget, reason)
        names = replace(names, pixels_shape=(rows, columns))
        return NamedMatrix(matrix, names, remarks=(self._remark(shape, samples_in),))

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
        return Remark(text, InputWarning(message))

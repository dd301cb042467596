"""Sources: a *source* is a matrix in a file, of which rows can be read.

An opener returns the matrix in the orientation of its file, with names for rows and columns; the
door turns both, once, if the samples are columns. How the layouts of files are read, in either
orientation, is in `layouts`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from ...errors import InputWarning, Message, Option, OptionError
from ...names import Names
from ..blocks import Array, compute_dtype
from ..borders import Borders, equal_borders
from .watch import Watch

__all__ = ["Compressed", "NamedMatrix", "Remark", "Source"]


class Compressed(NamedTuple):
    """Rows in compressed form."""

    data: Array
    indices: Array
    indptr: Array


class Source(ABC):
    """A matrix in a file, of which rows can be read.

    Attributes
    ----------
    name : str
        What to call it in messages.
    folder, stem
        Where files beside it go, and how their names begin.
    shape : (rows, columns)
    dtype : of the numbers as stored
    row_bytes : int
        Memory for a row, as it is stored or as it is computed with: the larger of the two.
    chunk : int
        Rows that the file keeps together.
    max_block_rows : int
        More would make a block too large for other reasons.
    watch : Watch
        Notices if the file is no longer the one that was opened.
    """

    name: str
    folder: Path
    stem: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    row_bytes: int
    chunk: int = 1
    max_block_rows: int = sys.maxsize
    watch: Watch

    @abstractmethod
    def read(self, start: int, stop: int) -> Any:
        """Rows start..stop, as an ndarray or compressed."""

    @abstractmethod
    def take(self, indices: Array) -> Any:
        """These rows, given in increasing order."""

    @abstractmethod
    def turned(self) -> Self:
        """The transposed matrix, whose rows are the columns of this one; nothing is read."""

    def readable(self, budget: int) -> Any:
        """Return the source, or the matrix in memory where that is the way to read its rows.

        The door calls it last, when the rows are the samples.
        """
        return self

    def blocks(self, size: int, max_bytes: int) -> Borders:
        """Borders of blocks of at most so many rows, and about so many bytes."""
        return equal_borders(self.shape[0], size)

    def whole(self) -> Any:
        """All rows, as an ndarray or a sparse array."""
        everything = (0, self.shape[0])
        with self.watch.reading([everything], self.read) as compared:
            rows = compared(0, self.read(*everything))
        return sp.csr_array(tuple(rows), shape=self.shape) if isinstance(rows, Compressed) else rows

    def _set_place(self, path: str | os.PathLike[str] | None) -> None:
        path = Path(tempfile.gettempdir()) / "conenmf" if path is None else Path(path)
        self.folder, self.stem = path.absolute().parent, path.name

    def _set_dense(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.row_bytes = shape[1] * max(dtype.itemsize, compute_dtype(dtype).itemsize)


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

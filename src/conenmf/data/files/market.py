"""Matrix Market, ``.mtx``: a matrix as text, dense or with an entry on each line.

It cannot be read in blocks, so it has to fit in memory. SciPy's `mmread` is not used because it
trusts the file: fuzzing showed that damaged numbers behind an intact header crash the process
(SciPy 1.17). Here the header is compared with the file first. The cost, measured on 2 million
entries: `numpy.loadtxt` takes 10 times as long as `mmread`. Save such files as ``.npz`` or HDF5 if
they are read often.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...errors import FileFormatError
from ...text import visible
from ..blocks import Array
from ..validate import check_kind
from .limits import MAX_EXPANSION_RATIO, check_fits, named_damage
from .sources import NamedMatrix

__all__ = ["open_matrix_market"]

_READ_AS_A_WHOLE = "a file of this kind can only be read as a whole"
_MAX_COMMENT_LINES = 10_000
_BEGINNING_BYTES = 4096
_MAX_LINE_BYTES = 256


class _Header(NamedTuple):
    """What the beginning of a Matrix Market file says."""

    rows: int
    columns: int
    entries: int  # one on each line
    sparse: bool
    fields: int  # on a line
    symmetric: bool


def open_matrix_market(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an ``.mtx`` file, dense or sparse; with ``.gz`` at its end, a compressed one."""
    packed = path.suffix.lower() == ".gz"
    opener: Any = gzip.open if packed else open
    with named_damage(path), opener(path, "rb") as stream:
        header = _read_header(stream, path)
        rows, columns, entries = header[:3]
        size = path.stat().st_size * (MAX_EXPANSION_RATIO if packed else 1)
        if min(rows, columns, entries) < 0 or 2 * header.fields * entries > size + 1:
            raise FileFormatError(
                f"{path} is truncated: its header claims {entries} numbers, which its "
                f"{path.stat().st_size} bytes cannot hold; copy or download it again"
            )
        check_kind(np.dtype(float), (rows, columns))
        check_fits(path, 24 * entries + 8 * max(rows, columns), budget, _READ_AS_A_WHOLE)
        numbers = np.empty((0, header.fields))
        if entries:
            numbers = np.loadtxt(_lines(stream, entries), ndmin=2, comments=None)
        if numbers.shape != (entries, header.fields):
            raise FileFormatError(
                f"{path} is damaged: its header claims {entries} lines of {header.fields} "
                f"numbers, and it holds {numbers.shape[0]} of {numbers.shape[1]}"
            )
        return NamedMatrix((_coordinates if header.sparse else _array)(numbers, header))


def _read_header(stream: IO[bytes], path: Path) -> _Header:
    banner = stream.readline(_BEGINNING_BYTES).decode("latin1").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise FileFormatError(f"{path} has no valid Matrix Market header: save it again as .mtx")
    if banner[3] == "complex":
        check_kind(np.dtype(complex), (1, 1))
    if banner[4] not in ("general", "symmetric"):
        raise FileFormatError(
            f"{path} is {visible(banner[4])}, expected a general or symmetric matrix"
        )
    line = b"%"
    for _ in range(_MAX_COMMENT_LINES):
        line = stream.readline(_BEGINNING_BYTES)
        if line.strip() and not line.startswith(b"%"):
            break
    sides, sparse = [int(side) for side in line.split()], banner[2] == "coordinate"
    if len(sides) != 2 + sparse or banner[2] not in ("array", "coordinate"):
        raise FileFormatError(
            f"{path} has no line with its numbers of rows and columns: save it again"
        )
    rows, columns = sides[:2]
    symmetric = banner[4] == "symmetric"
    if symmetric and rows != columns:
        raise FileFormatError(
            f"{path} claims to be symmetric, with {rows} rows and {columns} columns: fix its header"
        )
    if sparse:
        fields = 2 if banner[3] == "pattern" else 3
        return _Header(rows, columns, sides[2], True, fields, symmetric)
    entries = rows * (rows + 1) // 2 if symmetric else rows * columns
    return _Header(rows, columns, entries, False, 1, symmetric)


def _lines(stream: IO[bytes], entries: int) -> Iterator[str]:
    """The lines with numbers, of which there are not more than that."""
    count = 0
    while line := stream.readline(_MAX_LINE_BYTES):
        if len(line) == _MAX_LINE_BYTES:
            raise FileFormatError(f"{stream.name}: a line is longer than {_MAX_LINE_BYTES} bytes")
        if line.strip() and not line.startswith(b"%"):
            count += 1
            if count > entries:
                raise FileFormatError(
                    f"{stream.name} is damaged: it has more lines than its header claims"
                )
            yield line.decode("latin1")


def _coordinates(numbers: Array, header: _Header) -> Any:
    places = numbers[:, :2] - 1
    inside = (places >= 0) & (places < header[:2]) & (places == np.floor(places))
    if not inside.all():
        wrong = int(np.flatnonzero(~inside.all(axis=1))[0])
        raise FileFormatError(
            f"entry {wrong} of a Matrix Market file is outside its matrix: save it again"
        )
    row, column = places.astype(np.int64).T
    values = numbers[:, 2] if header.fields == 3 else np.ones(len(numbers))
    if header.symmetric:
        twice = row != column
        row, column = np.append(row, column[twice]), np.append(column, row[twice])
        values = np.append(values, values[twice])
    return sp.coo_array((values, (row, column)), shape=header[:2])


def _array(numbers: Array, header: _Header) -> Array:
    """Column after column; of a symmetric matrix, from the diagonal down."""
    if not header.symmetric:
        return numbers.reshape(header[:2], order="F")
    matrix = np.zeros(header[:2])
    column, row = np.triu_indices(header.rows)
    matrix[row, column] = matrix[column, row] = numbers[:, 0]
    return matrix

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
from ...text import decoded, excerpt
from ..blocks import Array
from ..validate import check_kind
from .limits import MAX_EXPANSION_RATIO, check_fits, check_sides, named_damage
from .sources import NamedMatrix

__all__ = ["open_matrix_market"]

_READ_AS_A_WHOLE = "a file of this kind can only be read as a whole"
_MAX_SKIPPED_LINES = 10_000  # that are empty or hold comments
_MAX_LINE_BYTES = 4096
_MAX_SIDE_DIGITS = 18
_FORMATS = ("coordinate", "array")
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric")


class _Header(NamedTuple):
    """What the beginning of a file says."""

    rows: int
    columns: int
    entries: int  # one on each line
    sparse: bool
    fields: int  # on a line
    whole: bool  # are the numbers
    symmetric: bool


def open_matrix_market(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open an ``.mtx`` file, dense or sparse; with ``.gz`` at its end, a compressed one."""
    packed = path.suffix.lower() == ".gz"
    opener: Any = gzip.open if packed else open
    with named_damage(path), opener(path, "rb") as stream:
        banner = stream.readline(_MAX_LINE_BYTES)
        lines = _lines(stream, path)
        header = _read_header(decoded(banner), next(lines, ""), path)
        rows, columns, entries = header[:3]
        size = path.stat().st_size * (MAX_EXPANSION_RATIO if packed else 1)
        if 2 * header.fields * entries > size + 1:
            raise FileFormatError(
                f"{path} is truncated: its header claims {entries} numbers, which its "
                f"{path.stat().st_size} bytes cannot hold; copy or download it again"
            )
        check_kind(np.dtype(float), (rows, columns))
        if header.sparse:
            check_sides(path, rows, columns, entries, budget)
        check_fits(path, 24 * entries + 8 * max(rows, columns), budget, _READ_AS_A_WHOLE)
        rest = _rows(lines, path, entries)
        if entries:
            numbers = np.loadtxt(rest, ndmin=2, comments=None)
        else:
            numbers = np.empty((len(list(rest)), header.fields))
        if numbers.shape != (entries, header.fields):
            raise FileFormatError(
                f"{path} is damaged: its header claims {entries} lines of {header.fields} "
                f"numbers, and it holds {numbers.shape[0]} of {numbers.shape[1]}"
            )
        if header.whole and not (numbers[:, -1] % 1 == 0).all():
            raise FileFormatError(
                f"{path} claims to hold integers and holds other numbers: write real in its header"
            )
        return NamedMatrix((_coordinates if header.sparse else _array)(numbers, header))


def _read_header(banner: str, size: str, path: Path) -> _Header:
    words = banner.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FileFormatError(f"{path} has no valid Matrix Market header: save it again as .mtx")
    form, field, symmetry = words[2:]
    if field == "complex":
        check_kind(np.dtype(complex), (1, 1))
    for word, known in ((form, _FORMATS), (field, _FIELDS), (symmetry, _SYMMETRIES)):
        if word not in known:
            raise FileFormatError(
                f"{path} is {excerpt(word)}, expected a matrix that is {' or '.join(known)}: save "
                "it so"
            )
    sparse, symmetric = form == "coordinate", symmetry == "symmetric"
    sides = size.split()
    if len(sides) != 2 + sparse or (field == "pattern" and not sparse):
        raise FileFormatError(
            f"{path} has no line with its numbers of rows and columns: save it again"
        )
    for side in sides:
        if not side.isdigit() or len(side) > _MAX_SIDE_DIGITS:
            raise FileFormatError(
                f"{path}: its header claims the size {excerpt(side)}, expected an integer "
                f"of at most {_MAX_SIDE_DIGITS} digits: copy or download it again"
            )
    rows, columns, *rest = map(int, sides)
    if symmetric and rows != columns:
        raise FileFormatError(
            f"{path} claims to be symmetric, with {rows} rows and {columns} columns: fix its header"
        )
    dense = rows * (rows + 1) // 2 if symmetric else rows * columns
    fields = 1 if not sparse else 2 if field == "pattern" else 3
    entries = rest[0] if sparse else dense
    return _Header(rows, columns, entries, sparse, fields, "integer" in field, symmetric)


def _lines(stream: IO[bytes], path: Path) -> Iterator[str]:
    """The lines but for those that are empty or hold comments, of which there are not too many."""
    skipped = 0
    while line := stream.readline(_MAX_LINE_BYTES):
        if len(line) == _MAX_LINE_BYTES:
            raise FileFormatError(f"{path}: a line has {_MAX_LINE_BYTES} bytes or more: shorten it")
        if line.startswith(b"%") or not line.strip():
            skipped += 1
            if skipped > _MAX_SKIPPED_LINES:
                raise FileFormatError(
                    f"{path} has more than {_MAX_SKIPPED_LINES} lines that are empty or hold "
                    "comments: remove them"
                )
        else:
            yield line.decode("ascii")


def _rows(lines: Iterator[str], path: Path, entries: int) -> Iterator[str]:
    """The lines with numbers, of which there are not more than that."""
    for count, line in enumerate(lines):
        if count == entries:
            raise FileFormatError(f"{path} is damaged: it has more lines than its header claims")
        yield line


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

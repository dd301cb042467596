"""Text files: tables, documents, and lists of names.

Each line of a table is a row. NumPy reads rows of plain numbers behind their names. Other rows are
split into fields, by `csv` if they have quotes, and Python's `float` converts the fields; both are
exact. pandas is not used: it fills short rows with NaN, joins lines after a stray quote and ends a
field at a zero byte. The format of a table is guessed from its first lines by simple rules.

Documents are a folder of ``.txt`` files, or a column of a table; `data.prepare` converts them to
numbers with the caller's options for words. They must fit in a quarter of the memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..data.resources import memory_budget
from ..errors import DataError, FileFormatError, Message, Option
from ..names import MUTATION_TITLES, Names
from ..text import excerpt
from ..types import Array, Lengths, PathLike
from .limits import check_fits, files_below, named_damage
from .source import NamedMatrix, Reading, Remarks
from .tables import Columns, batch_bytes, is_index_title, open_batches
from .triples import are_ratings, columns_of_triples, matrix_of_triples, may_be_triples

TEXT_SUFFIXES = (".txt",)
TABLE_SUFFIXES = (".csv", ".tsv")
_DELIMITERS = (*";,\t| ", "::")  # a space is used by numpy.savetxt, "::" by MovieLens
_INDEX_TITLES = ("", "id", "index", "unnamed: 0")  # of a column of names, even numeric ones
_TITLES_OF_NAMES = (*_INDEX_TITLES, "gene", "label", "name", "sample")
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "n/a", "#N/A")
_NUMBER = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|true|false", re.ASCII | re.IGNORECASE
)
_HEAD_LINES = 20  # from which the format is guessed
_HEAD_CHARS = 1 << 18  # ... or fewer lines, if they are long
_MIN_TITLES = 6  # increasing or decreasing numbers that count as titles
_MAX_ORDERED = 0.1  # share of the other rows that may be in order, or even, too
_NEARLY = 0.75  # share of the steps of a row that is nearly in order
_MAX_UNEVEN = 0.01  # range of steps that count as even, relative to their mean
_IRREGULAR = '"\r\x1c\x1d\x1e\x1f'  # quotes, and white space that numbers seldom have
_FIELD_BYTES = 40  # memory for a number while it is parsed
_BYTES_OF_CHAR = 16  # memory for a character of a line while its fields are parsed
_FIXED = "each text is a sample"


def open_text(path: Path, reading: Reading) -> NamedMatrix:
    """Open a table with one row per line; with the ending ``.gz``, a compressed one."""
    if reading.text_column is not None:
        return open_text_column(path, reading)
    head = [line for _, line in islice(_filled_lines(path, reading.budget), _HEAD_LINES)]
    longest = max(map(len, head), default=1)
    dialect = guess(head[: max(3, _HEAD_CHARS // longest)], path, reading.header)
    ratings = _open_triples(path, dialect, reading) or _recognise(path, head, dialect, reading)
    if ratings is not None:
        return ratings
    dialect = dialect._replace(columns=dialect.columns.choose(path, reading))
    batches = _batches(path, dialect, reading.budget)
    table = open_batches(path, dialect.columns, batches, reading.budget)
    if not table.matrix.shape[0]:
        raise DataError(f"{path} has a header and no rows: it needs at least one sample")
    return table._replace(remarks=dialect.remarks + table.remarks)


def _open_triples(path: Path, dialect: Dialect, reading: Reading) -> NamedMatrix | None:
    """Open a long table of ratings, by its titles or on request; None if it is another table."""
    given = reading.triples
    columns = dialect.columns
    if given is None:
        places = columns_of_triples([title.strip() for title in columns.titles or ()])
    else:
        places = tuple(columns.place(path, column) for column in given)
    if not places:
        return None
    check_fits(path, 4 * path.stat().st_size, reading.budget)
    table = matrix_of_triples(path, _triples(path, dialect, places, reading.budget))
    # If nobody rates two items, or no item is rated twice, the columns mean something else.
    return table if given or table.matrix.nnz > max(table.matrix.shape) else None


def _triples(
    path: Path, dialect: Dialect, places: Lengths, budget: int
) -> Iterator[tuple[int, str, str, float | None]]:
    """Yield the line, the user, the item and the rating of each row."""
    user, item, rating = places
    for number, line in _body(path, dialect, budget):
        row = _split(path, number, line, dialect)
        yield number, row[user], row[item], _number(row[rating], dialect.decimal)


def _recognise(
    path: Path, head: list[str], dialect: Dialect, reading: Reading
) -> NamedMatrix | None:
    """Open a long table of ratings that is recognised only by its content, with a remark."""
    if reading.triples is not None or reading.drop or reading.names_column is not None:
        return None
    rows = [_fields(line, dialect.delimiter) for line in head[dialect.n_titles :]]
    if not rows or not may_be_triples(rows):
        return None
    with suppress(DataError, FileFormatError):  # the ordinary reader reports these
        table = _open_triples(path, dialect, reading._replace(triples=(0, 1, 2)))
        if table is not None and are_ratings(table):
            guess = "the first columns look like users, items and ratings"
            remark = Message(guess, "; if they are not, give ", Option("triples", ()))
            return table._replace(remarks=(*table.remarks, remark))
    return None


# --- formats of tables ------------------------------------------------------------------------


class Dialect(NamedTuple):
    """The format of a table; the remarks say how a first line of numbers was interpreted."""

    delimiter: str
    decimal: str
    columns: Columns
    remarks: Remarks = ()
    has_units: bool = False

    @property
    def n_titles(self) -> int:
        """How many lines there are above the numbers: titles, and perhaps units below them."""
        return int(self.columns.titles is not None) + self.has_units


def guess(lines: list[str], name: object, header: bool | None = None) -> Dialect:
    """Guess the format of a table from its first nonempty lines.

    >>> guess(["gene;x;y", "a;1,5;2", "b;0;3,25"], "file").columns[:3]
    (3, ['gene', 'x', 'y'], 0)
    """
    if not lines:
        raise DataError(f"{name} is empty: it needs at least one sample and one feature")
    lines = [line.replace("\r", "") for line in lines]
    delimiter = max(_DELIMITERS, key=lambda one: _likelihood(lines, one))
    first, *body = (_fields(line, delimiter) for line in lines)
    width = statistics.mode(map(len, body or [first]))
    body = [row for row in body if len(row) == width]
    if len(first) == width - 1 and header is not False:  # R writes no title for row names
        first.insert(0, "")
    columns_of_body = list(zip(*body, strict=True)) or [()] * width
    texts = {n for n, column in enumerate(columns_of_body) if _holds_texts(column)}
    if len(texts) == width:
        raise FileFormatError(
            f"{name} has no column of numbers: write digits without units, or factor the texts of "
            "one column with ",
            Option("text_column"),
        )
    remarks: Remarks = ()
    if header is None:
        above = {n for n, field in enumerate(first) if _is_text(field)}
        header = bool(above - texts) or first[0].strip().lower() in _TITLES_OF_NAMES
        numbers = [n for n in range(min(width, len(first))) if n not in above | texts]
        if not header and body and len(numbers) > 1:
            header, remarks = _judge_numbers([first, *body], numbers)
    if header and len(first) != width:
        raise FileFormatError(
            f"{name}: the header has {len(first)} fields and the first row has {width}: "
            "give every column a title; a column of texts is read with ",
            Option("text_column"),
        )
    has_names = 0 in texts or (header and _are_numbered(first[0], columns_of_body[0]))
    named_by = 0 if width > 1 and has_names else None
    decimal = "."
    if delimiter == ";":
        numeric = [column for n, column in enumerate(columns_of_body) if n not in texts]
        has_points = any("." in field for column in numeric for field in column)
        decimal = "." if has_points else ","
    columns = Columns(width, first if header else None, named_by)
    below = [field for n, field in enumerate(body[0] if body else ()) if n not in texts]
    is_empty = all(_is_text(field) or field.strip() in _MISSING for field in below)
    has_units = bool(header) and is_empty and sum(map(_is_text, below)) > 1
    if has_units:
        units = excerpt(", ".join(below))
        remarks += (Message(f"the line below the titles has no numbers ({units}): left out"),)
    return Dialect(delimiter, decimal, _named_by_mutations(columns), remarks, has_units)


def _named_by_mutations(columns: Columns) -> Columns:
    """Return columns of which the first ones, by their titles, name a type of mutation together."""
    titles = tuple(title.strip().lower() for title in columns.titles or ())
    for parts in MUTATION_TITLES:
        count = len(parts)
        if titles[:count] == parts:
            others = frozenset(range(1, count))
            return columns._replace(named_by=0, left_out=others, n_names=count)
    return columns


def _split_titles(line: str, column: object = None) -> tuple[str, list[str]]:
    """Split a line of titles where this splits off the column, or gives the most fields."""
    divided = {sign: _fields(line, sign) for sign in ",;\t|"}
    sign = max(divided, key=lambda one: (column in divided[one], len(divided[one])))
    return sign, divided[sign]


def _likelihood(lines: list[str], delimiter: str) -> tuple[float, bool, int]:
    """Return a key for comparing delimiters: share of numbers, matching header, many numbers."""
    rows = [_fields(line, delimiter) for line in lines]
    body = rows[1:] or rows
    has_header = len(rows[0]) == len(body[0])
    are_numbers = [not _is_text(field) for row in body for field in row]
    return statistics.fmean(are_numbers), has_header, sum(are_numbers)


def _is_text(field: str) -> bool:
    """Return whether a field may be a name or a title; percentages are rejected later."""
    return _number(field.strip().removesuffix("%").replace(",", ".")) is None


def _holds_texts(column: Sequence[str]) -> bool:
    """Return whether more than half of the fields are texts."""
    return 2 * sum(map(_is_text, column)) > len(column)


def _are_numbered(title: str, column: Sequence[str]) -> bool:
    """Return whether a column of distinct integers names the rows, by its title."""
    title = title.strip()
    if title.lower() in _INDEX_TITLES:
        return True
    are_integers = all(field.strip().isdigit() for field in column)
    return are_integers and len(set(column)) == len(column) and is_index_title(title)


def _judge_numbers(lines: list[list[str]], numbers: list[int]) -> tuple[bool, Remarks]:
    """Decide whether a first line of numbers contains titles; warn if it may.

    Titles such as wavelengths, years or 0, 1, 2, ... are in order, but the rows below are not. If
    some rows are nearly in order too, as in smooth curves, titles differ from them by even steps,
    or because all titles are larger, or all smaller.
    """
    rows = np.empty((len(lines), len(numbers)))
    for row, line in zip(rows, lines, strict=True):
        row[:] = [_number(line[n].replace(",", ".")) for n in numbers]
    rows[~np.isfinite(rows)] = np.nan
    steps = np.diff(rows, axis=1)
    if (steps[0] < 0).all():
        steps = -steps
    if not (steps[0] > 0).all():
        return False, ()
    are_ordered = (steps > 0).mean(axis=1) >= _NEARLY
    are_even = np.ptp(steps, axis=1) <= _MAX_UNEVEN * steps.mean(axis=1)
    body = rows[1:]
    is_within = (body >= rows[0].min()) & (body <= rows[0].max())
    is_beyond = not is_within.any()
    stands_out = (are_even[0] or is_beyond) and are_even[1:].mean() <= _MAX_ORDERED
    is_header = len(numbers) >= _MIN_TITLES
    if are_ordered[1:].mean() > _MAX_ORDERED and not (is_header and stands_out):
        return False, ()
    kind, other = ("titles", "data") if is_header else ("data", "titles")
    text = f"the numbers of the first line are in order; it was read as {kind}"
    advice = Message(text, f"; if it holds {other}, give ", Option("header", not is_header))
    return is_header, (advice,)


# --- reading ----------------------------------------------------------------------------------


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    """Open a UTF-8 text, compressed if it ends in ``.gz``; only a newline ends a line."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with named_damage(path), opener(path, "rt", encoding="utf-8-sig", newline="\n") as stream:
        yield stream


def _content(path: Path, budget: int) -> str:
    """Return a text that fits in memory; a compressed one may be much larger than its file."""
    with _open(path) as stream:
        content = stream.read(budget // 4 + 1)
    check_fits(path, len(content), budget)
    return content


def _filled_lines(path: Path, budget: int) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers; a line must fit in memory."""
    longest = max(budget // _BYTES_OF_CHAR, _HEAD_CHARS)
    with _open(path) as stream:
        for number, line in enumerate(iter(partial(stream.readline, longest + 1), ""), 1):
            if len(line) > longest:
                check_fits(f"{path}: line {number}", _BYTES_OF_CHAR * len(line), budget)
            if line.strip(" \r\n"):
                yield number, line


def _body(path: Path, dialect: Dialect, budget: int) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines below the titles."""
    return islice(_filled_lines(path, budget), dialect.n_titles, None)


def _fields(line: str, delimiter: str, *, strict: bool = False) -> list[str]:
    """Split a line into fields; if strict, a misplaced quote raises `csv.Error`."""
    line = _without_end(line)
    if len(delimiter) > 1 or ('"' not in line and "\r" not in line):
        return line.split(delimiter)
    skips = delimiter != " "
    return next(csv.reader([line], delimiter=delimiter, strict=strict, skipinitialspace=skips))


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _batches(path: Path, dialect: Dialect, budget: int) -> Iterator[tuple[list[str], Array]]:
    """Yield the names and the numbers of some rows at a time.

    After the first batch that NumPy's parser refuses it is no longer tried: others will follow.
    """
    lines = _body(path, dialect, budget)
    size = max(1, batch_bytes(budget) // (_FIELD_BYTES * dialect.columns.width))
    are_plain = True
    while batch := list(islice(lines, size)):
        rows = plain_rows([line for _, line in batch], dialect) if are_plain else None
        are_plain = rows is not None
        yield rows or rows_of_fields(path, batch, dialect)


def plain_rows(lines: list[str], dialect: Dialect) -> tuple[list[str], Array] | None:
    """Return names, and numbers as NumPy's parser reads them; None if they may be anything else.

    That parser is as exact as Python's `float`, and faster. It knows no missing entries, and some
    of the signs that it would accept have another meaning in a quoted or an irregular row.
    """
    columns = dialect.columns
    n_numbers = len(columns.numeric)
    lead = columns.width - n_numbers
    if columns.numeric != [*range(lead, columns.width)]:
        return None
    if len(dialect.delimiter) > 1 or dialect.decimal == ",":
        return None
    lines = [_without_end(line) for line in lines]
    together = "".join(lines)
    if any(sign in together for sign in _IRREGULAR):
        return None
    parts = [line.split(dialect.delimiter, lead) for line in lines]
    numbers = [part[-1] for part in parts if len(part) > lead]
    if len(numbers) < len(parts) or not all(numbers) or not "".join(numbers).isascii():
        return None
    try:
        rows = np.loadtxt(numbers, delimiter=dialect.delimiter, comments=None, ndmin=2)
    except ValueError:
        return None
    if rows.shape[1] != n_numbers:
        return None
    names = [] if columns.named_by is None else [columns.name_of(part) for part in parts]
    return names, rows


def rows_of_fields(
    path: Path, batch: list[tuple[int, str]], dialect: Dialect
) -> tuple[list[str], Array]:
    """Return the names and the numbers of numbered lines, which are split into fields."""
    columns = dialect.columns
    numeric = columns.numeric
    names = []
    rows = []
    for number, line in batch:
        fields = _split(path, number, line, dialect)
        if columns.named_by is not None:
            names.append(columns.name_of(fields))
        numbers = [fields[n] for n in numeric]
        rows.append(_numbers(numbers, dialect, f"{path}: line {number}"))
    return names, np.array(rows)


def _split(path: Path, number: int, line: str, dialect: Dialect) -> list[str]:
    """Split a line of a table into fields; raise an error if their number differs."""
    try:
        fields = _fields(line, dialect.delimiter, strict=True)
    except csv.Error as error:
        raise FileFormatError(
            f"{path}: line {number} cannot be split into fields ({error}): put quotes around a "
            "whole field, on one line; a column of texts is read with ",
            Option("text_column"),
        ) from error
    if len(fields) != dialect.columns.width:
        raise FileFormatError(
            f"{path}: line {number} has {len(fields)} fields, expected {dialect.columns.width}; a "
            "column of texts is read with ",
            Option("text_column"),
        )
    return fields


def _numbers(fields: list[str], dialect: Dialect, place: str) -> list[float]:
    """Convert fields to numbers; Python alone would accept 1_0 and non-ASCII digits."""
    together = "".join(fields)
    if dialect.decimal == "." and "_" not in together and together.isascii():
        with suppress(ValueError):
            return list(map(float, fields))
    row = []
    for column, field in zip(dialect.columns.numeric, fields, strict=True):
        number = _number(field, dialect.decimal)
        if number is None:
            raise _not_a_number(place, dialect, column, field)
        row.append(number)
    return row


def _not_a_number(place: str, dialect: Dialect, column: int, field: str) -> FileFormatError:
    label = dialect.columns.labels[column]
    sign = "the percent sign" if field.rstrip().endswith("%") else "units"
    where = f"{place}, column {excerpt(label)!r}"
    return FileFormatError(
        f"{where}: {excerpt(field)!r} is not a number: write digits with '{dialect.decimal}', "
        f"without {sign} (delete a line that holds only units); or drop the column with ",
        Option("drop", label),
        ", or factor its texts with ",
        Option("text_column", label),
    )


def _number(field: str, decimal: str = ".") -> float | None:
    """Return a number, NaN for a missing entry, or None."""
    plain = field.strip()
    if plain in _MISSING:
        return np.nan
    if decimal == ",":
        plain = plain.replace(".", "?").replace(",", ".")
    if _NUMBER.fullmatch(plain) is None:
        return None
    return float({"true": "1", "false": "0"}.get(plain.lower(), plain))


# --- documents and lists of names -------------------------------------------------------------


def open_texts(path: Path, reading: Reading) -> NamedMatrix:
    """Open all ``.txt`` files below a folder, sorted by their names."""
    files = files_below(path, TEXT_SUFFIXES)
    check_fits(path, sum(file.stat().st_size for file in files), reading.budget)
    names = Names.of([file.relative_to(path).as_posix() for file in files])
    texts = [_content(file, reading.budget) for file in files]
    return NamedMatrix(texts, names, fixed=_FIXED)


def open_text_column(path: Path, reading: Reading) -> NamedMatrix:
    """Open the texts in a column of a table; a quoted text may span several lines."""
    check_fits(path, 2 * path.stat().st_size, reading.budget)
    content = _content(path, reading.budget)
    column = reading.text_column
    sign, _ = _split_titles(content.partition("\n")[0], column)
    rows = _rows(path, content, sign)
    if not rows:
        raise FileFormatError(f"{path} is empty: it needs at least one text")
    width = len(rows[0])
    titles = None if reading.header is False else rows.pop(0)
    columns = Columns(width, titles, None).choose(path, reading)
    named_by = columns.named_by
    names = None if named_by is None else [row[named_by] for row in rows]
    place = columns.place(path, column or 0)
    return NamedMatrix([row[place] for row in rows], Names.of(names), fixed=_FIXED)


def read_rows(path: PathLike) -> list[list[str]]:
    """Read the rows of a small CSV file as texts; a quoted text may span several lines."""
    path = Path(path)
    with named_damage(path):
        return _rows(path, _content(path, memory_budget(None)), ",")


def _rows(path: Path, content: str, delimiter: str) -> list[list[str]]:
    csv.field_size_limit(sys.maxsize)
    stream = io.StringIO(content, newline="")
    rows = [row for row in csv.reader(stream, delimiter=delimiter, strict=True) if row]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise FileFormatError(
            f"{path} has rows of {sorted(widths)} fields, expected the same number in all"
        )
    return rows


def read_names(path: PathLike, budget: int) -> list[str]:
    """Read the lines of a UTF-8 text as names; with the ending ``.gz``, a compressed text."""
    path = Path(path)
    check_fits(path, 4 * path.stat().st_size, budget)
    text = _content(path, budget).rstrip("\r\n")
    return [line.strip() for line in text.split("\n")] if text.strip() else []

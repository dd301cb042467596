"""Everything that is written as text: tables, documents, and lists of names.

A table has one row on each line. Delimiter, header and names are guessed from the first lines, by
rules that a reader can follow. Parsers of CSV may see other rows than lines: they end a row at a
carriage return, and continue it over the end of a line inside quotes. So lines are split into
fields one at a time, by the module csv: every line is a row, or an error names it. Python makes
numbers of the fields, which are those that are printed, to the last bit. (`pandas.read_csv` is not
used: with ``float_precision="round_trip"``, which it needs for that, it takes 1.8 times as long for
50 columns and 14 times as long for 100,000, and it does not say which line is wrong.)

Documents are a folder of ``.txt`` files, or a column of a table; `data.prepare` makes numbers of
them when `io.open` knows which words count. They have to fit in a quarter of the memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Array
from ..errors import (
    DataError,
    FileFormatError,
    InputWarning,
    Message,
    Option,
    OptionError,
)
from ..names import Names
from ..text import excerpt, visible
from .limits import check_fits, files_below, named_damage
from .source import NamedMatrix, Remark
from .tables import (
    Column,
    ColumnChoice,
    batch_bytes,
    collect,
    column_place,
    is_index_title,
    remark_on_columns,
)

TEXT_SUFFIXES = (".txt",)
TABLE_SUFFIXES = (".csv", ".tsv")
MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "n/a", "#N/A")
_DELIMITERS = ";,\t| "  # one space is what numpy.savetxt writes
_INDEX_TITLES = ("", "id", "index", "unnamed: 0")  # of a column of names, even if they are numbers
_TITLES_OF_NAMES = (*_INDEX_TITLES, "gene", "label", "name", "sample")
_HEAD_LINES = 20  # from which the dialect is guessed ...
_HEAD_BYTES = 1 << 20  # ... or fewer lines, if they are long
_MAX_LABEL_CHARS = 40  # that a message asks the user to type
_JUDGED_FIELDS = 1000  # of a first line of numbers: they are evidence enough
_MIN_TEXT_SHARE = 0.5  # of first fields: if more of them are no numbers, they are names
_BOOLEANS = ("True", "False", "TRUE", "FALSE", "true", "false")  # of pandas, R and others
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"\d{4}[-/.]\d\d?[-/.]\d\d?([ T].*)?|\d\d?[-/.]\d\d?[-/.](\d\d|\d{4})([ T].*)?")
_WIDE = 6  # columns from which numbers in order are a sign of titles
_TIES = 0.02  # of the titles may equal others
_ROUNDING = 0.02  # by which equal steps may differ, since titles are rounded
_FIELD_BYTES = 64  # that a field takes while it is read
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_TEXT_BYTES = 1 << 26
_READ_AS_A_WHOLE = "texts have to fit in memory"
_ADVICE = "read them in parts with scikit-learn's HashingVectorizer and partial_fit"


def open_text(path: Path, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open a text that has one row on each line; with ``.gz`` at its end, a compressed one."""
    with named_damage(path):
        dialect = _dialect(path, choice)
        numeric, labels = dialect.numeric, dialect.labels
        dtype, batches = np.dtype(np.float64), _batches(path, dialect, budget)
        matrix, row_names = collect(path, dtype, len(numeric), batches, budget)
        if not matrix.shape[0]:
            raise DataError(f"{path} has a header and no rows: it needs at least one sample")
        titles = None if dialect.titles is None else [dialect.titles[n] for n in numeric]
        names = Names.of(row_names, titles)
        remarks = remark_on_columns(path, matrix, [labels[n] for n in numeric])
    return NamedMatrix(matrix, names, remarks=dialect.remarks + remarks)


# --- how a table is written -------------------------------------------------------------------


class Dialect(NamedTuple):
    """How a table is written.

    Attributes
    ----------
    delimiter : str
    titles : list of str, or None
        The header, with a title for each field of a row.
    named_by : int, or None
        Which field of a row is its name.
    fields : int
        How many a row has.
    dropped : tuple of int
        Fields that are not read.
    remarks : tuple of Remark
        What a first line of numbers was taken for.
    """

    delimiter: str
    titles: list[str] | None = None
    named_by: int | None = None
    fields: int = 0
    dropped: tuple[int, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def numeric(self) -> list[int]:
        """The fields that are read as numbers."""
        others = {self.named_by, *self.dropped}
        return [field for field in range(self.fields) if field not in others]

    @property
    def labels(self) -> list[str | int]:
        """What fields are called: their titles, or their numbers if these are long or repeated."""
        titles = [title.strip() for title in self.titles or [""] * self.fields]
        counts = Counter(titles)
        usable = [counts[title] == 1 and 0 < len(title) <= _MAX_LABEL_CHARS for title in titles]
        return [titles[field] if usable[field] else field for field in range(self.fields)]

    def split(self, line: str, path: object, number: int) -> list[str]:
        """The fields of a line; a quote may not be left open."""
        if '"' not in line:
            return line.split(self.delimiter)
        try:
            return next(csv.reader([line], delimiter=self.delimiter, strict=True))
        except csv.Error as problem:
            raise FileFormatError(
                Message(
                    f"{path}: line {number} cannot be split into fields ({problem}): put quotes "
                    "around a whole field, on one line, and write a quote inside of it twice; a "
                    "column of texts is read with ",
                    Option("text_column"),
                )
            ) from problem

    def plain(self, field: str) -> str:
        """A field without blanks around it, and with a decimal point."""
        text = field.strip()
        return text.replace(",", ".") if self.delimiter == ";" else text

    def is_number(self, field: str) -> bool:
        """Whether a field is a number, or marks a missing one."""
        plain = self.plain(field)
        return plain in MISSING_TEXTS or _NUMBER.fullmatch(plain) is not None

    def is_text(self, field: str) -> bool:
        """Whether a field may be a name: percentages and booleans are none, but rejected later."""
        value = field.strip().removesuffix("%")
        return not (self.is_number(value) or value in _BOOLEANS)

    def are_texts(self, rows: list[list[str]], field: int) -> bool:
        """Whether most of a column are texts."""
        texts = sum(self.is_text(row[field]) for row in rows)
        return texts > _MIN_TEXT_SHARE * len(rows)

    def fault(self, where: str, column: int, field: str) -> Message:
        """Say what a field is that is not a number, and what to do."""
        where += f"{excerpt(field)!r} is "
        if field in _BOOLEANS:
            return Message(f"{where}not a number: write 1 for True and 0 for False")
        if not self.is_text(field):
            return Message(f"{where}a percentage: remove the percent signs")
        kind, label = "a date, not" if _DATE.fullmatch(field) else "not", self.labels[column]
        advice: tuple[object, ...] = (Option("drop", label),)
        if len(field.split()) > 2:
            advice += ("; if it holds texts to factor, ", Option("text_column", label))
        problem = f"{where}{kind} a number; if the column holds no numbers, leave it out with "
        return Message(problem, *advice)


def guess(lines: list[str], name: object, header: bool | None = None) -> Dialect:
    """Guess how a table is written from its first lines, of which empty ones do not count.

    >>> guess(["gene;x;y", "a;1,5;2", "b;0;3,25"], "file")[:4]
    (';', ['gene', 'x', 'y'], 0, 3)
    """
    numbered = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    if not numbered:
        raise DataError(f"{name} is empty: it needs at least one sample and one feature")
    lines = list(numbered.values())
    dialect = max(map(Dialect, _DELIMITERS), key=lambda candidate: _likelihood(candidate, lines))
    first, *rows = (dialect.split(line, name, number) for number, line in numbered.items())
    body = rows or [first]
    fields = len(body[0])
    has_index = fields > 1 and dialect.are_texts(body, 0)
    dialect = dialect._replace(named_by=0 if has_index else None, fields=fields)
    if len(first) == fields - 1 and header is not False:  # as R writes it
        return dialect._replace(titles=["", *first], named_by=0)
    if header is None:
        header, remarks = _is_header(first, rows, dialect, lines, name)
        dialect = dialect._replace(remarks=remarks)
    if not header:
        return dialect
    if len(first) != fields:
        raise FileFormatError(
            f"{name}: the header has {len(first)} fields and the first row has {fields}: "
            "give every column a title"
        )
    if fields > 1 and _are_numbered(first[0].strip(), [row[0].strip() for row in body]):
        dialect = dialect._replace(named_by=0)
    return dialect._replace(titles=first)


def _are_numbered(title: str, column: list[str]) -> bool:
    """Whether a column of numbers names the rows, by its title and by being different integers."""
    if title.lower() in _INDEX_TITLES:
        return True
    are_different = len(set(column)) == len(column) and all(map(str.isdigit, column))
    return are_different and is_index_title(title)


def _likelihood(dialect: Dialect, lines: list[str]) -> tuple[float, int, int]:
    """A key to compare delimiters by: the share of numbers, a header that fits, many numbers.

    If all fail at some line, that is the best of them which gets furthest, and finds most fields.
    """
    rows: list[list[str]] = []
    for number, line in enumerate(lines):
        with suppress(FileFormatError):
            rows.append(dialect.split(line, "", number))
        if len(rows) == number or line.count('"') % 2:
            return -1.0, number, line.count(dialect.delimiter)
    body = rows[1:] or rows
    numbers = sum(not dialect.is_text(field) for row in body for field in row)
    fields = sum(map(len, body))
    return numbers / max(fields, 1), len(rows[0]) == len(body[0]), numbers


def _is_header(
    first: list[str], rows: list[list[str]], dialect: Dialect, lines: list[str], name: object
) -> tuple[bool, tuple[Remark, ...]]:
    """Whether the first line holds titles, and a remark if it is one of numbers."""
    body = [row for row in rows if len(row) == len(first)]
    texts = [field for field, text in enumerate(first) if not dialect.is_number(text)]
    others = {*texts, dialect.named_by}
    numbers = [field for field in range(len(first)) if field not in others]
    title = first[0].strip().lower()
    names_rows = dialect.named_by == 0 and title in _TITLES_OF_NAMES
    over_numbers = any(not dialect.are_texts(body, field) for field in texts)
    if not title or not numbers or (body and (names_rows or over_numbers)):
        return True, ()
    if len(lines) > 1 and lines[0].count('"') >= 2 * len(first) > 2 >= lines[1].count('"'):
        return True, ()
    judged = numbers[:_JUDGED_FIELDS]
    plain = [[dialect.plain(row[field]) for field in judged] for row in (first, *body)]
    is_header, is_certain = judge_first_line(plain[0], plain[1:])
    kind, other = ("titles", "data") if is_header else ("data", "titles")
    text, warning = f"the first line was taken as {kind}", None
    if not is_certain:
        advice = Option("header", not is_header)
        warning = InputWarning(Message(f"{name}: {text}; if it holds {other}, give ", advice))
    return is_header, (Remark(text, warning),)


def judge_first_line(first: list[str], rows: list[list[str]]) -> tuple[bool, bool]:
    """Whether a first line of numbers holds titles, and whether that is certain.

    Titles differ from each other, but for a few that are rounded. They get points for being in
    order, which counts for more where rows are not smooth; for equal steps; for being integers over
    decimals or the other way round; and for lying far from the numbers below. Two points make a
    header, and three leave no doubt, unless there are two columns only.

    >>> judge_first_line(["0", "1", "2", "3"], [["0.5", "2.5", "1.5", "0.1"], 4 * ["0.5"]])
    (True, True)
    >>> judge_first_line(["1", "2", "2"], [["0.5", "0.25", "1.5"]])
    (False, True)
    """
    line, body = _floats([first])[0], _floats(rows)
    F = line.size
    n_different = np.unique(line).size
    if not rows or not np.isfinite(line).all() or n_different < max(2, (1 - _TIES) * F):
        return False, True
    points = 2 * _are_of_another_kind(first, rows)
    direction = np.sign(line[-1] - line[0])
    steps, steps_below = direction * np.diff(line), direction * np.diff(body, axis=1)
    if _are_in_order(steps):
        alike = int(_are_in_order(steps_below).sum())
        if _are_equal(steps) and not any(map(_are_equal, steps_below)):
            points += 2 if F >= 5 else 1
        if F >= _WIDE and not alike:
            is_smooth = (np.abs((steps_below > 0).mean(axis=1) - 0.5) > 0.4).any()
            points += 1 if F < 8 or is_smooth else 2
        if F >= _WIDE and len(body) >= max(4, 2 * alike):
            low, high = body.min(axis=0), body.max(axis=0)
            beyond = np.maximum(low - line, line - high)
            points += 2 * ((beyond > high - low).mean() >= 0.9)
    return bool(points >= 2), bool(points == 0 or (points >= 3 and F > 2))


def _floats(rows: list[list[str]]) -> Array:
    """Rows of texts as numbers; NaN where there is none."""
    known = [[field if _NUMBER.fullmatch(field) else "nan" for field in row] for row in rows]
    return np.array(known, np.float64)


def _are_in_order(steps: Array) -> Array:
    """Whether no step goes back, and nearly all go ahead."""
    return (steps >= 0).all(axis=-1) & ((steps == 0).mean(axis=-1) <= _TIES)


def _are_equal(steps: Array) -> bool:
    """Whether steps are equal but for the rounding of titles; a single step has to be 1."""
    mean = abs(steps.mean())
    if steps.size == 1:
        return bool(mean == 1)
    return bool(mean > 0 and np.abs(steps - steps.mean()).max() <= _ROUNDING * mean)


def _are_of_another_kind(first: list[str], rows: list[list[str]]) -> bool:
    """Whether these are integers over decimals, or decimals over integers."""
    above, *below = (
        sum(_INTEGER.fullmatch(field) is not None for field in row) / len(row)
        for row in (first, *rows)
    )
    if above == 1:
        return sum(below) / len(below) < 0.1
    return above <= 0.5 and min(below) == 1


def _dialect(path: Path, choice: ColumnChoice) -> Dialect:
    """How a text is written: what the caller says, and the rest guessed from its first lines."""
    head: list[str] = []
    size = filled = 0
    for line in _lines(path):
        head.append(line)
        size, filled = size + len(line), filled + bool(line.strip())
        if filled >= 2 and (filled >= _HEAD_LINES or size > _HEAD_BYTES):
            break
    dialect = guess(head, path, choice.header)
    named_by, dropped = choice.places(path, dialect.titles, dialect.fields, dialect.named_by)
    dialect = dialect._replace(named_by=named_by, dropped=dropped)
    if not dialect.numeric:
        raise DataError(f"{path} has no column left to read: it needs at least one feature")
    return dialect


# --- reading ----------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text, which is UTF-8; a carriage return is at the end of a line only."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            text = _decoded(line, path, number)
            text = text.removesuffix("\n").removesuffix("\r")
            if "\r" in text or line.endswith(b"\r"):
                raise FileFormatError(
                    f"{path}: line {number} has a carriage return alone: end lines with a newline"
                )
            yield text


def _decoded(content: bytes, path: object, number: int | None = None) -> str:
    if b"\0" in content:
        raise FileFormatError(f"{path} holds zero bytes, so it is not text: save it as UTF-8")
    try:
        return content.removeprefix(_BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as problem:
        place = path if number is None else f"{path}: line {number}"
        raise FileFormatError(
            f"{place} is not UTF-8: save it as UTF-8, for example with iconv -f latin1 -t utf-8"
        ) from problem


def _rows(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, with the number of its line; raises for a line that is no row."""
    is_header = dialect.titles is not None
    for number, line in enumerate(_lines(path), 1):
        if is_header:
            is_header = not line.strip()
        elif line:
            fields = dialect.split(line, path, number)
            if len(fields) != dialect.fields:
                raise FileFormatError(
                    f"{path}: line {number} has {len(fields)} fields, expected {dialect.fields}"
                )
            yield number, fields


def _batches(path: Path, dialect: Dialect, budget: int) -> Iterator[tuple[Array, list[str] | None]]:
    """The numbers and the names of some rows at a time."""
    numeric, named_by, rows = dialect.numeric, dialect.named_by, _rows(path, dialect)
    size = max(1, batch_bytes(budget) // (_FIELD_BYTES * dialect.fields))
    while batch := list(islice(rows, size)):
        texts = [fields[column] for _, fields in batch for column in numeric]
        names = None if named_by is None else [fields[named_by] for _, fields in batch]
        yield _numbers(path, dialect, texts, [number for number, _ in batch]), names


def _numbers(path: Path, dialect: Dialect, texts: list[str], lines: list[int]) -> Array:
    """Fields as numbers, row after row; missing ones are NaN."""
    joined = "\n".join(texts)
    is_comma = dialect.delimiter == ";" and "," in joined
    # Python takes other digits, and 1_000, for numbers; 1.234 may be 1234 where others are 1,5.
    if joined.isascii() and "_" not in joined and not (is_comma and "." in joined):
        plain = joined.replace(",", ".").split("\n") if is_comma else texts
        with suppress(ValueError):
            return np.array(plain, np.float64)
        with suppress(ValueError):
            known = ["nan" if text.strip() in MISSING_TEXTS else text for text in plain]
            return np.array(known, np.float64)
    columns = dialect.numeric
    for place, text in enumerate(texts):
        if not dialect.is_number(text):
            line, column = lines[place // len(columns)], columns[place % len(columns)]
            where = f"{path}: line {line}, column {excerpt(dialect.labels[column])!r}: "
            raise FileFormatError(dialect.fault(where, column, text.strip()))
    raise FileFormatError(
        f"{path}: lines {lines[0]} to {lines[-1]} have decimal points and decimal commas: write "
        "all numbers in one way"
    )


# --- documents and lists of names -------------------------------------------------------------


def open_texts(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open all ``.txt`` files below a folder, sorted by their names."""
    files = files_below(path, TEXT_SUFFIXES)
    size = sum(file.stat().st_size for file in files)
    check_fits(path, size, budget, _READ_AS_A_WHOLE, _ADVICE)
    texts = [_decoded(file.read_bytes(), file) for file in files]
    names = Names.of(file.relative_to(path).as_posix() for file in files)
    return NamedMatrix(texts, names, fixed=f"{path}: each text is a sample")


def open_text_column(path: Path, column: Column, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open a column of a ``.csv`` or ``.tsv`` table, in which a text may have several lines."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        problem = f" is for .csv and .tsv tables, and {visible(path)} is none: leave it out"
        raise OptionError(Message(Option("text_column", column), problem))
    check_fits(path, 2 * path.stat().st_size, budget, _READ_AS_A_WHOLE, _ADVICE)
    with named_damage(path):
        csv.field_size_limit(_MAX_TEXT_BYTES)  # of the process; by default 128 kB
        content = _decoded(path.read_bytes(), path)
        readers = [csv.reader(io.StringIO(content, newline=""), delimiter=d) for d in ",;\t|"]
        starts = [(next(reader, []), reader) for reader in readers]
        # The delimiter that finds such a title, or most fields.
        first, rows = max(starts, key=lambda start: (column in start[0], len(start[0])))
        if not first:
            raise FileFormatError(f"{path} is empty: it needs at least one text")
        titles = None if choice.header is False else first
        named_by, _ = choice.places(path, titles, len(first), None)
        place = column_place(path, column, titles, len(first))
        table = [] if titles else [first]
        for row in filter(None, rows):
            if len(row) != len(first):
                raise FileFormatError(
                    f"{path}: the row that ends in line {rows.line_num} has {len(row)} fields, "
                    f"expected {len(first)}: put texts with a delimiter in quotes"
                )
            table.append(row)
    names = None if named_by is None else [row[named_by] for row in table]
    texts = [row[place] for row in table]
    return NamedMatrix(texts, Names.of(names), fixed=f"{path}: each text is a sample")


def read_names(path: str | os.PathLike[str], budget: int, column: int | None = None) -> list[str]:
    """Read the names in a UTF-8 text, one on each line; with ``.gz`` at its end, a compressed one.

    With `column`, lines are divided by tabs, and the names are those of that column; a line with
    fewer has its name in the last one.
    """
    path = Path(path)
    check_fits(path, 4 * path.stat().st_size, budget, "names have to fit in memory", "name fewer")
    with named_damage(visible(path)):
        content = path.read_bytes()
        text = _decoded(gzip.decompress(content) if path.suffix.lower() == ".gz" else content, path)
    lines = text.rstrip("\r\n").split("\n") if text.strip() else []
    if column is None:
        return [line.strip() for line in lines]
    fields = [line.rstrip("\r").split("\t") for line in lines]
    return [row[min(column, len(row) - 1)].strip() for row in fields]

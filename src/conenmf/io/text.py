"""Tables written as text, with one row on each line.

Delimiter, header and names are guessed from the first lines, by rules that a reader can follow.
Parsers of CSV may see other rows than lines: they end a row at a carriage return, and continue it
over the end of a line inside quotes. So lines are split into fields one at a time, by the module
csv: every line is a row, or an error names it. Python makes numbers of the fields, which are those
that are printed, to the last bit. (`pandas.read_csv` is not used: with ``float_precision=
"round_trip"``, which it needs for that, it takes 1.8 times as long for 50 columns and 14 times as
long for 100,000, and it does not say which line is wrong.)
"""

from __future__ import annotations

import csv
import gzip
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
)
from ..names import Names
from ..text import excerpt
from .columns import ColumnChoice, is_index_title, remark_on_columns
from .headers import Verdict, judge_first_line
from .limits import named_damage
from .source import NamedMatrix, Remark
from .spool import RowNames, Spool, batch_bytes

__all__ = ["Dialect", "guess", "open_text"]

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
_DATE = re.compile(r"\d{4}[-/.]\d\d?[-/.]\d\d?([ T].*)?|\d\d?[-/.]\d\d?[-/.](\d\d|\d{4})([ T].*)?")
_FIELD_BYTES = 64  # that a field takes while it is read
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_text(path: Path, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open a text that has one row on each line; with ``.gz`` at its end, a compressed one."""
    with named_damage(path):
        dialect = _dialect(path, choice)
        matrix, row_names = _read(path, dialect, budget)
        titles = None if dialect.titles is None else [dialect.titles[n] for n in dialect.numeric]
        names = Names.of(None if dialect.named_by is None else row_names, titles)
        remarks = _remark_on_first_line(path, dialect)
        labels = dialect.labels
        remarks += remark_on_columns(path, matrix, [labels[n] for n in dialect.numeric])
    return NamedMatrix(matrix, names, remarks=remarks)


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
    verdict : Verdict, or None
        How the first line was judged if it holds numbers.
    """

    delimiter: str
    titles: list[str] | None
    named_by: int | None
    fields: int
    dropped: tuple[int, ...] = ()
    verdict: Verdict | None = None

    @property
    def numeric(self) -> list[int]:
        """The fields that are read as numbers."""
        others = {self.named_by, *self.dropped}
        return [field for field in range(self.fields) if field not in others]

    @property
    def labels(self) -> list[str | int]:
        """What fields are called: their titles, or their numbers if these are long or repeated."""
        titles = [title.strip() for title in self.titles or ()]
        counts = Counter(titles)
        usable = [counts[title] == 1 and 0 < len(title) <= _MAX_LABEL_CHARS for title in titles]
        return [
            titles[field] if titles and usable[field] else field for field in range(self.fields)
        ]

    @property
    def decimals(self) -> str:
        """Characters that may be the decimal point, the likeliest first."""
        return ".," if self.delimiter == ";" else "."

    def split(self, line: str) -> list[str]:
        """The fields of a line; a quote may not be left open."""
        if '"' not in line:
            return line.split(self.delimiter)
        return next(csv.reader([line], delimiter=self.delimiter, strict=True))

    def checked_split(self, line: str, place: str) -> list[str]:
        """The same; an error names the place of the line."""
        try:
            return self.split(line)
        except csv.Error as problem:
            raise FileFormatError(
                Message(
                    f"{place} cannot be split into fields ({problem}): put quotes around a whole "
                    "field, on one line, and write a quote inside of it twice; a column of texts "
                    "is read with ",
                    Option("text_column"),
                )
            ) from problem

    def is_number(self, field: str) -> bool:
        """Whether a field is a number, or marks a missing one."""
        plain = self.plain(field)
        return plain in MISSING_TEXTS or _NUMBER.fullmatch(plain) is not None

    def is_percentage(self, field: str) -> bool:
        """Whether a field is a number with a percent sign: no name, and not read as a number."""
        text = field.strip()
        return len(text) > 1 and text.endswith("%") and self.is_number(text[:-1])

    def is_text(self, field: str) -> bool:
        """Whether a field may be a name: percentages and booleans are none, but rejected later."""
        is_other = self.is_percentage(field) or field.strip() in _BOOLEANS
        return not (self.is_number(field) or is_other)

    def plain(self, field: str) -> str:
        """A field without blanks around it, and with a decimal point."""
        text = field.strip()
        return text.replace(",", ".") if "," in self.decimals else text

    def fault(self, where: str, column: int, field: str) -> Message:
        """Say what a field is that is not a number, and what to do."""
        where += f"{excerpt(field)!r} is "
        if self.is_percentage(field):
            return Message(f"{where}a percentage: remove the percent signs")
        if field in _BOOLEANS:
            return Message(f"{where}not a number: write 1 for True and 0 for False")
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
    candidates = [Dialect(sign, None, None, 0) for sign in _DELIMITERS]
    lines = list(numbered.values())
    dialect = max(candidates, key=lambda candidate: _likelihood(candidate, lines))
    first, *rows = (
        dialect.checked_split(line, f"{name}: line {number}") for number, line in numbered.items()
    )
    body = rows or [first]
    fields = len(body[0])
    texts = sum(dialect.is_text(row[0]) for row in body)
    has_index = fields > 1 and texts > _MIN_TEXT_SHARE * len(body)
    dialect = dialect._replace(named_by=0 if has_index else None, fields=fields)
    if len(first) == fields - 1 and header is not False:  # as R writes it
        return dialect._replace(titles=["", *first], named_by=0)
    if header is None:
        verdict = _judge(first, rows, dialect, lines)
        header, dialect = verdict.is_header, dialect._replace(verdict=verdict)
    if not header:
        return dialect
    if len(first) != fields:
        raise FileFormatError(
            f"{name}: the header has {len(first)} fields and the first row has {fields}: "
            "give every column a title"
        )
    if fields > 1 and _are_numbered(first[0].strip(), [row[0] for row in body]):
        dialect = dialect._replace(named_by=0)
    return dialect._replace(titles=first)


def _are_numbered(title: str, column: list[str]) -> bool:
    """Whether a column of numbers names the rows, by its title and by being different integers."""
    if title.lower() in _INDEX_TITLES:
        return True
    integers = len(set(column)) == len(column) and all(text.strip().isdigit() for text in column)
    return integers and is_index_title(title)


def _likelihood(dialect: Dialect, lines: list[str]) -> tuple[float, bool, int]:
    """A key to compare delimiters by: the share of numbers, a header that fits, many numbers.

    If all fail at some line, that is the best of them which gets furthest, and finds most fields.
    """
    rows: list[list[str]] = []
    for line in lines:
        try:
            if line.count('"') % 2:
                raise csv.Error("a quote is left open")
            rows.append(dialect.split(line))
        except csv.Error:
            return -1.0 + len(rows) / (len(lines) + 1), False, line.count(dialect.delimiter)
    first, *body = rows
    body = body or [first]
    numbers = sum(not dialect.is_text(field) for row in body for field in row)
    fields = sum(map(len, body))
    return numbers / max(fields, 1), len(first) == len(body[0]), numbers


def _judge(first: list[str], rows: list[list[str]], dialect: Dialect, lines: list[str]) -> Verdict:
    """Whether the first line holds titles."""
    body = [row for row in rows if len(row) == len(first)]
    texts = [field for field, text in enumerate(first) if not dialect.is_number(text)]
    others = {*texts, dialect.named_by}
    numbers = [field for field in range(len(first)) if field not in others]
    over_numbers = any(_share_of_texts(body, field, dialect) <= _MIN_TEXT_SHARE for field in texts)
    if not first[0].strip() or (over_numbers and body) or not numbers:
        return Verdict(True, True, "")
    if body and dialect.named_by == 0 and first[0].strip().lower() in _TITLES_OF_NAMES:
        return Verdict(True, True, "")
    if len(lines) > 1 and lines[0].count('"') >= 2 * len(first) > 2 >= lines[1].count('"'):
        return Verdict(True, True, "are in quotes")
    judged = numbers[:_JUDGED_FIELDS]
    plain = [[dialect.plain(row[field]) for field in judged] for row in (first, *body)]
    return judge_first_line(plain[0], plain[1:])


def _share_of_texts(rows: list[list[str]], field: int, dialect: Dialect) -> float:
    return sum(dialect.is_text(row[field]) for row in rows) / max(len(rows), 1)


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


def _remark_on_first_line(path: Path, dialect: Dialect) -> tuple[Remark, ...]:
    """What a first line of numbers was taken for."""
    verdict = dialect.verdict
    if verdict is None or (verdict.is_header and not verdict.signs):  # that of a header of texts
        return ()
    kind, other = ("titles", "data") if verdict.is_header else ("data", "titles")
    text = f"the first line was taken as {kind}"
    if verdict.signs:
        text += f", {'since' if verdict.is_header else 'though'} its numbers {verdict.signs}"
    if verdict.is_certain:
        return (Remark(text),)
    message = Message(
        f"{path}: {text}; if it holds {other}, give ", Option("header", not verdict[0])
    )
    return (Remark(text, InputWarning(message)),)


# --- reading ----------------------------------------------------------------------------------


def _opened(path: Path) -> Any:
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    stream = opener(path, "rb")
    if stream.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
        stream.seek(0)
    return stream


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text, which is UTF-8; a carriage return is at the end of a line only."""
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if b"\0" in line:
                raise FileFormatError(
                    f"{path} holds zero bytes, so it is not text: save it as UTF-8"
                )
            try:
                text = line.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as problem:
                raise FileFormatError(
                    f"{path}: line {number} is not UTF-8, in which names are read: save it as "
                    "UTF-8, for example with iconv -f latin1 -t utf-8"
                ) from problem
            if "\r" in text or line.endswith(b"\r"):
                raise FileFormatError(
                    f"{path}: line {number} has a carriage return alone: end lines with a newline"
                )
            yield text


def _rows(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, with the number of its line; raises for a line that is no row."""
    begun = dialect.titles is None
    for number, line in enumerate(_lines(path), 1):
        if not begun:
            begun = bool(line.strip())
        elif line:
            fields = dialect.checked_split(line, f"{path}: line {number}")
            if len(fields) != dialect.fields:
                raise FileFormatError(
                    f"{path}: line {number} has {len(fields)} fields, expected {dialect.fields}"
                )
            yield number, fields


def _read(path: Path, dialect: Dialect, budget: int) -> tuple[Any, list[str] | None]:
    """The numbers of a table and the names of its rows, if they are not too many."""
    numeric, named_by = dialect.numeric, dialect.named_by
    spool, row_names = Spool(path, np.dtype(np.float64), budget), RowNames(budget)
    rows = _rows(path, dialect)
    size = max(1, batch_bytes(budget) // (_FIELD_BYTES * dialect.fields))
    while batch := list(islice(rows, size)):
        texts = [fields[column] for _, fields in batch for column in numeric]
        spool.add(_numbers(path, dialect, texts, [number for number, _ in batch]))
        if named_by is not None:
            row_names.add(fields[named_by] for _, fields in batch)
    matrix = spool.finish(len(numeric))
    if not matrix.shape[0]:
        raise DataError(f"{path} has a header and no rows: it needs at least one sample")
    return matrix, row_names.names


def _numbers(path: Path, dialect: Dialect, texts: list[str], lines: list[int]) -> Array:
    """Fields as numbers, row after row; missing ones are NaN."""
    joined = "\n".join(texts)
    is_comma = "," in dialect.decimals and "," in joined
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

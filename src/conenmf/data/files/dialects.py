"""How a table is written as text: what separates fields, and which of them are names.

All of it is guessed from the first lines, by rules that a reader can follow: `csv.Sniffer` and
clevercsv guess delimiters and quotes, but not which column names the rows, nor decimal commas.
Where the rest of the text contradicts the guess, an error names the line, the column and the value.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from typing import NamedTuple

from ...errors import EmptyDataError, FileFormatError, Message, Option
from ...text import excerpt
from .columns import is_index_title
from .headers import Verdict, judge_first_line
from .lines import MAX_COLUMNS, TOO_MANY_COLUMNS, Block, check_fields

__all__ = ["DELIMITERS", "MISSING_TEXTS", "Dialect", "fault", "guess"]

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "n/a", "#N/A")
DELIMITERS = ";,\t| "  # one space is what numpy.savetxt writes
_INDEX_TITLES = ("", "id", "index", "unnamed: 0")  # of a column of names, even if they are numbers
_TITLES_OF_NAMES = (*_INDEX_TITLES, "gene", "label", "name", "sample")
_MAX_LABEL_CHARS = 40  # that a message asks the user to type
_JUDGED_FIELDS = 1000  # of a first line of numbers: they are evidence enough
_MIN_TEXT_SHARE = 0.5  # of first fields: if more of them are no numbers, they are names
_BOOLEANS = ("True", "False", "TRUE", "FALSE", "true", "false")  # of pandas, R and others
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)
_DATE = re.compile(r"\d{4}[-/.]\d\d?[-/.]\d\d?([ T].*)?|\d\d?[-/.]\d\d?[-/.](\d\d|\d{4})([ T].*)?")


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
        """The fields of a line, whose quotes have been checked."""
        if line.count(self.delimiter) >= MAX_COLUMNS:
            raise FileFormatError(f"has {TOO_MANY_COLUMNS}")
        try:
            return next(csv.reader([line], delimiter=self.delimiter), []) or [""]
        except csv.Error as problem:
            raise FileFormatError(f"cannot be split into fields: {problem}") from problem

    def is_number(self, field: str) -> bool:
        """Whether a field is a number, or marks a missing one."""
        plain = field.strip() if self.delimiter != ";" else self.plain(field)  # many are asked
        return plain in MISSING_TEXTS or _NUMBER.fullmatch(plain) is not None

    def is_percentage(self, field: str) -> bool:
        """Whether a field is a number with a percent sign: no name, and not read as a number."""
        text = field.strip()
        return len(text) > 1 and text.endswith("%") and self.is_number(text[:-1])

    def plain(self, field: str) -> str:
        """A field without blanks around it, and with a decimal point."""
        text = field.strip()
        return text.replace(",", ".") if "," in self.decimals else text


def guess(lines: list[str], name: object, header: bool | None = None) -> Dialect:
    """Guess how a table is written from its first lines, of which empty ones do not count.

    >>> guess(["gene;x;y", "a;1,5;2", "b;0;3,25"], "file")[:4]
    (';', ['gene', 'x', 'y'], 0, 3)
    """
    numbered = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    if not numbered:
        raise EmptyDataError(f"{name} is empty: it needs at least one sample and one feature")
    candidates = [Dialect(sign, None, None, 0) for sign in DELIMITERS]
    lines = list(numbered.values())
    dialect = max(candidates, key=lambda candidate: _likelihood(candidate, lines))
    first, *rows = (
        _checked_split(name, number, line, dialect) for number, line in numbered.items()
    )
    body = rows or [first]
    fields = len(body[0])
    texts = sum(_is_text(row[0], dialect) for row in body)
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
            rows.append(_checked_split("", 0, line, dialect))
        except FileFormatError:
            return -1.0 + len(rows) / (len(lines) + 1), False, line.count(dialect.delimiter)
    first, *body = rows
    body = body or [first]
    numbers = sum(not _is_text(field, dialect) for row in body for field in row)
    fields = sum(map(len, body))
    return numbers / max(fields, 1), len(first) == len(body[0]), numbers


def _checked_split(name: object, number: int, line: str, dialect: Dialect) -> list[str]:
    """The fields of a line, if its quotes are where fields begin and end."""
    block = Block.of(number, line.encode(errors="replace"))
    check_fields(name, block, dialect.delimiter.encode())
    try:
        return dialect.split(line)
    except FileFormatError as problem:
        raise FileFormatError(f"{name}: line {number} {problem}") from problem


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
    return sum(_is_text(row[field], dialect) for row in rows) / max(len(rows), 1)


def _is_text(field: str, dialect: Dialect) -> bool:
    """Whether a field may be a name: percentages and booleans are none, but are refused later."""
    is_other = dialect.is_percentage(field) or field.strip() in _BOOLEANS
    return not (dialect.is_number(field) or is_other)


def fault(block: Block, dialect: Dialect) -> Message | None:
    """Describe the first error in a block; None if there is none."""
    numeric = dialect.numeric
    for number, line in enumerate(io.BytesIO(block.text), block.number):
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        try:
            fields = dialect.split(text.decode(errors="replace"))
        except FileFormatError as problem:
            return Message(f"line {number} {problem}")
        if len(fields) != dialect.fields:
            return Message(f"line {number} has {len(fields)} fields, expected {dialect.fields}")
        for column in numeric:
            if not dialect.is_number(fields[column]):
                label, field = dialect.labels[column], fields[column].strip()
                where = f"line {number}, column {excerpt(label)!r}: {excerpt(field)!r} "
                if dialect.is_percentage(field):
                    return Message(f"{where}is a percentage: remove the percent signs")
                if field in _BOOLEANS:
                    return Message(f"{where}is not a number: write 1 for True and 0 for False")
                kind = "a date, not a number" if _DATE.fullmatch(field) else "not a number"
                advice: tuple[object, ...] = (Option("drop", label),)
                if len(field.split()) > 2:
                    advice += ("; if it holds texts to factor, ", Option("text_column", label))
                return Message(
                    f"{where}is {kind}; if the column holds no numbers, leave it out with ",
                    *advice,
                )
    return None

"""How a table is written as text: what separates fields, and which of them are names.

All of it is guessed from the first lines, by rules that a reader can follow: `csv.Sniffer` and
clevercsv guess delimiters and quotes, but not which column names the rows, nor decimal commas.
Where the rest of the text contradicts the guess, an error names the line, the column and the value.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import FileFormatError
from ...text import visible

__all__ = ["MISSING_TEXTS", "Dialect", "fault", "guess"]

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "n/a", "#N/A")
_DELIMITERS = ";,\t| "  # one space is what numpy.savetxt writes
_MAX_COLUMNS = 1_000_000
_INDEX_TITLES = ("", "id", "index", "unnamed: 0")  # of a column of names, even if they are numbers
_INDEX_TITLE = re.compile(r"(?:.*[\W_])?(?:id|idx|index|no|nr|number)", re.IGNORECASE)
_MIN_TEXT_SHARE = 0.5  # of first fields: if more of them are no numbers, they are names
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)


class Dialect(NamedTuple):
    """How a table is written.

    Attributes
    ----------
    delimiter : str
    titles : list of str, or None
        The header, with a title for each field of a row.
    has_index : bool
        Whether the first field of a row is its name.
    fields : int
        How many a row has.
    """

    delimiter: str
    titles: list[str] | None
    has_index: bool
    fields: int

    @property
    def decimals(self) -> str:
        """Characters that may be the decimal point, the likeliest first."""
        return ".," if self.delimiter == ";" else "."

    def split(self, line: str) -> list[str]:
        """The fields of a line."""
        try:
            return next(csv.reader([line], delimiter=self.delimiter), []) or [""]
        except csv.Error as problem:
            raise FileFormatError(f"a line cannot be split into fields: {problem}") from problem

    def is_number(self, field: str) -> bool:
        """Whether a field is a number, or marks a missing one."""
        plain = field.strip()
        if "," in self.decimals:
            plain = plain.replace(",", ".")
        return plain in MISSING_TEXTS or _NUMBER.fullmatch(plain) is not None


def guess(lines: list[str], name: object) -> Dialect:
    """Guess how a table is written from its first lines, of which there is at least one.

    >>> guess(["gene;x;y", "a;1,5;2", "b;0;3,25"], "file")
    Dialect(delimiter=';', titles=['gene', 'x', 'y'], has_index=True, fields=3)
    """
    if any(lines[0].count(sign) >= _MAX_COLUMNS for sign in _DELIMITERS):
        raise FileFormatError(f"{name} has more than {_MAX_COLUMNS} columns: save it as .npy")
    candidates = [Dialect(sign, None, False, 0) for sign in _DELIMITERS]
    dialect = max(candidates, key=lambda candidate: _likelihood(candidate, lines))
    first, *body = (dialect.split(line) for line in lines)
    body = body or [first]
    fields = len(body[0])
    texts = sum(not dialect.is_number(row[0]) for row in body)
    has_index = fields > 1 and texts > _MIN_TEXT_SHARE * len(body)
    if len(first) == fields - 1:  # as R writes it
        return dialect._replace(titles=["", *first], has_index=True, fields=fields)
    if not _is_header(first, dialect, has_index):
        return dialect._replace(has_index=has_index, fields=fields)
    if len(first) != fields:
        raise FileFormatError(
            f"{name}: the header has {len(first)} fields and the first row has {fields}: "
            "give every column a title"
        )
    has_index |= fields > 1 and _are_numbered(first[0].strip(), [row[0] for row in body])
    return dialect._replace(titles=first, has_index=has_index, fields=fields)


def _are_numbered(title: str, column: list[str]) -> bool:
    """Whether a column of numbers names the rows, by its title and by being different integers."""
    if title.lower() in _INDEX_TITLES:
        return True
    integers = len(set(column)) == len(column) and all(text.strip().isdigit() for text in column)
    return integers and (_INDEX_TITLE.fullmatch(title) is not None or title.endswith("ID"))


def _likelihood(dialect: Dialect, lines: list[str]) -> tuple[float, bool, int]:
    """A key to compare delimiters by: the share of numbers, a header that fits, many numbers."""
    try:
        first, *body = (dialect.split(line) for line in lines)
    except FileFormatError:
        return -1.0, False, 0
    body = body or [first]
    numbers = sum(dialect.is_number(field) for row in body for field in row)
    fields = sum(map(len, body))
    return numbers / max(fields, 1), len(first) == len(body[0]), numbers


def _is_header(first: list[str], dialect: Dialect, has_index: bool) -> bool:
    """Whether the first line holds titles, given whether the rows begin with a name."""
    if not first[0].strip() or any(not dialect.is_number(field) for field in first[1:]):
        return True
    return not has_index and not dialect.is_number(first[0])


def fault(block: bytes, line: int, dialect: Dialect) -> str | None:
    """Describe the first error in a block whose first line has that number; None if none."""
    for number, fields in _rows(block, line, dialect):
        if len(fields) != dialect.fields:
            return f"line {number} has {len(fields)} fields, expected {dialect.fields}"
        for column in range(dialect.has_index, dialect.fields):
            if not dialect.is_number(fields[column]):
                title = dialect.titles[column] if dialect.titles else column
                return (
                    f"line {number}, column {visible(title)!r}: {visible(fields[column])!r} "
                    "is not a number"
                )
    return None


def _rows(block: bytes, line: int, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    for number, text in enumerate(block.split(b"\n"), line):
        if text.strip(b"\r"):
            yield number, dialect.split(text.rstrip(b"\r").decode(errors="replace"))

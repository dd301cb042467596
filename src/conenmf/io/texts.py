"""Texts: a folder of ``.txt`` files, or a column of a table; and lists of names, one on each line.

What is read here are texts; `data.prepare` makes numbers of them when `io.open` knows which
words count. They are read one at a time, and have to fit in a quarter of the memory together.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FileFormatError, Message, Option, OptionError
from ..names import Names
from ..text import visible
from .columns import Column, ColumnChoice
from .limits import check_fits, files_below, named_damage
from .source import NamedMatrix

__all__ = [
    "TABLE_SUFFIXES",
    "TEXT_SUFFIXES",
    "Texts",
    "open_text_column",
    "open_texts",
    "read_names",
]

TEXT_SUFFIXES = (".txt",)
TABLE_SUFFIXES = (".csv", ".tsv")
_DELIMITERS = ",;\t|"
_MAX_TEXT_BYTES = 1 << 26
_READ_AS_A_WHOLE = "texts have to fit in memory"
_ADVICE = "read them in parts with scikit-learn's HashingVectorizer and partial_fit"


@dataclass(frozen=True)
class Texts:
    """Texts in files, before their words are counted.

    Attributes
    ----------
    name : str
        What to call them in messages.
    texts : list of str or of Path
        A path is a file that holds a text.
    """

    name: str
    texts: list[Any]

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            yield _decoded(text.read_bytes(), text) if isinstance(text, Path) else text


def _decoded(content: bytes, file: Path) -> str:
    try:
        if b"\0" in content:
            raise FileFormatError(f"{file} holds zero bytes, so it is not text: save it as UTF-8")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise FileFormatError(
            f"{file} is not UTF-8: save it as UTF-8, for example with iconv -f latin1 -t utf-8"
        ) from problem


def open_texts(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open all ``.txt`` files below a folder, sorted by their names."""
    files = files_below(path, TEXT_SUFFIXES)
    size = sum(file.stat().st_size for file in files)
    check_fits(path, size, budget, _READ_AS_A_WHOLE, _ADVICE)
    names = Names.of(file.relative_to(path).as_posix() for file in files)
    return NamedMatrix(Texts(str(path), files), names)


def open_text_column(
    path: Path,
    column: Column,
    budget: int,
    choice: ColumnChoice = ColumnChoice(),  # noqa: B008 - immutable
) -> NamedMatrix:
    """Open a column of a ``.csv`` or ``.tsv`` table, in which a text may have several lines."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise OptionError(
            Message(
                Option("text_column", column),
                f" is for .csv and .tsv tables, and {visible(path)} is none: leave it out",
            )
        )
    check_fits(path, 2 * path.stat().st_size, budget, _READ_AS_A_WHOLE, _ADVICE)
    with named_damage(path), _long_fields():
        content = _decoded(path.read_bytes(), path)
        rows = csv.reader(io.StringIO(content, newline=""), delimiter=_delimiter(content, column))
        first = next(rows, None)
        if first is None:
            raise FileFormatError(f"{path} is empty: it needs at least one text")
        titles = None if choice.header is False else first
        named_by, _ = choice.places(path, titles, len(first), None)
        wanted = ColumnChoice(drop=(column,))
        (place,) = wanted.places(path, titles, len(first), None)[1]
        table = [] if titles else [first]
        for row in rows:
            if len(row) not in (0, len(first)):
                raise FileFormatError(
                    f"{path}: the row that ends in line {rows.line_num} has {len(row)} fields, "
                    f"expected {len(first)}: put texts with a delimiter in quotes"
                )
            table += [row] if row else []
    names = None if named_by is None else [row[named_by] for row in table]
    return NamedMatrix(Texts(str(path), [row[place] for row in table]), Names.of(names))


def _delimiter(content: str, column: Column) -> str:
    """The delimiter with which the first row has such a title, or most fields."""
    fields = {
        sign: next(csv.reader(io.StringIO(content, newline=""), delimiter=sign), [])
        for sign in _DELIMITERS
    }
    return max(fields, key=lambda sign: (column in fields[sign], len(fields[sign])))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let the module csv read long texts; its limit is that of the whole process."""
    limit = csv.field_size_limit(_MAX_TEXT_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


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

"""Tables, of text or of columns: which columns are read, where the numbers go, what looks odd.

A number of the row, an identifier or a date, read as a feature, dominates a factorisation: it is
often the largest number of each row. Such columns are looked for in the first rows, and reported.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array
from ..data.disk import Source
from ..errors import InputWarning, Message, Option, OptionError, OutputError, is_disk_full
from ..text import visible
from .limits import NAME_BYTES, check_expansion, fits, listed
from .source import ArraySource, Remark

Column: TypeAlias = str | int
"""A column of a table: its title, or its number, counted from 0."""

_INDEX_TITLE = re.compile(r"(?:.*[\W_])?(?:id|idx|index|no|nr|number)", re.IGNORECASE)
A_COLUMN = "the title of a column, or its number from 0"
_LOOKED_AT_ROWS = 4096  # or fewer ...
_LOOKED_AT_ENTRIES = 1 << 19  # ... if they are long
_MIN_ROWS = 10  # with fewer, any column may look like anything
_MAX_REPORTED = 5
_DAYS = (19000101, 21001231)
_TIMES = ((1900, 2100), *((9e8 * unit, 2.2e9 * unit) for unit in (1, 1e3, 1e6, 1e9)))
"""Years, and times since 1970, from 1998 to 2039, in seconds or smaller units."""


class ColumnChoice(NamedTuple):
    """What the caller says about the columns of a table.

    Attributes
    ----------
    header : bool, or None
        Whether the first line holds titles; by default guessed.
    names_column : Column, or None
        The column with the names of the rows; by default guessed.
    drop : tuple of Column
        Columns that are not read.
    """

    header: bool | None = None
    names_column: Column | None = None
    drop: tuple[Column, ...] = ()

    def places(
        self, path: object, titles: Sequence[str] | None, count: int, named_by: int | None
    ) -> tuple[int | None, tuple[int, ...]]:
        """The columns of names and those to drop, by number; `named_by` is guessed."""
        dropped = tuple(column_place(path, column, titles, count) for column in self.drop)
        if self.names_column is None:
            return None if named_by in dropped else named_by, dropped
        named_by = column_place(path, self.names_column, titles, count)
        if named_by in dropped:
            problem = " is among the columns to leave out: name it once"
            raise OptionError(Message(Option("names_column", self.names_column), problem))
        return named_by, dropped


def column_place(path: object, column: Column, titles: Sequence[str] | None, count: int) -> int:
    """The number of a column; a title comes before a number that is written alike."""
    hits = [place for place, title in enumerate(titles or ()) if title.strip() == column]
    if len(hits) > 1:
        raise OptionError(
            f"{path} has {len(hits)} columns that are called {visible(column)!r}: give a number, "
            f"such as {hits[0]}"
        )
    place = int(column) if str(column).isdecimal() else -1
    if not hits and not 0 <= place < count:
        named = [title for title in titles or () if title.strip()]
        known = f"it has {listed(named)}" if named else "it has no titles"
        raise OptionError(
            f"{path} has no column {visible(column)!r}; {known}, and numbers from 0 to {count - 1}"
        )
    return hits[0] if hits else place


def checked_column(name: str, value: Any) -> Column:
    """Return a title or a number; refuse anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise OptionError(Message(Option(name, value), f", expected {A_COLUMN}"))
    return value


# --- rows that arrive in batches --------------------------------------------------------------


def batch_bytes(budget: int) -> int:
    """Bytes to read at a time; they take several times as much while they are parsed."""
    return min(max(budget // 128, 1 << 16), 16 << 20)


def collect(
    path: Path,
    dtype: np.dtype[Any],
    columns: int,
    batches: Iterable[tuple[Array, list[str] | None]],
    budget: int,
) -> tuple[ArraySource | Array, list[str] | None]:
    """The numbers of a table and the names of its rows, which arrive in batches.

    A table can only be read from its beginning; so it is read once. Numbers that do not fit in a
    quarter of the budget go to a file without a name, in the folder for temporary files, which is
    deleted when it is no longer used. Names that take more than an eighth are left out.
    """
    row_names: list[str] | None = []
    name_bytes = 0
    with tempfile.SpooledTemporaryFile(budget // 4, prefix="conenmf-") as file:
        for numbers, names in batches:
            with _enough_disk(path, file.tell()):
                file.write(np.ascontiguousarray(numbers, dtype).data.cast("B"))
            check_expansion(path, path.stat().st_size, file.tell())
            if row_names is not None and names is not None:
                row_names += map(visible, names)
                name_bytes += sum(max(NAME_BYTES, 4 * len(name)) for name in names)
            if names is None or name_bytes > budget // 8:
                row_names = None
        size = file.tell()
        shape = (size // (dtype.itemsize * columns), columns)
        file.seek(0)
        if fits(size, budget):
            return np.frombuffer(file.read(), dtype).reshape(shape), row_names
        array = np.asarray(np.memmap(file, dtype, "r", 0, shape))  # which keeps the file
    return ArraySource(array, str(path), path), row_names


@contextmanager
def _enough_disk(path: Path, written: int) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if not is_disk_full(problem):
            raise
        raise OutputError(
            Message(
                f"not enough disk space for the numbers of {path} in {tempfile.gettempdir()}, "
                f"after {written / 1e9:.3g} GB: free some, set TMPDIR to a folder with more, or "
                "raise ",
                Option("max_memory"),
                " so that they stay in memory",
            )
        ) from problem


# --- columns that look like no measurement ----------------------------------------------------


def remark_on_columns(
    name: object, matrix: Source | Any, labels: Sequence[Column], *, in_memory: bool = False
) -> tuple[Remark, ...]:
    """Name the columns of a table, called by their labels, that look like no measurement.

    What to do depends on whether it is a file or a data frame in memory.
    """
    count = min(_LOOKED_AT_ROWS, _LOOKED_AT_ENTRIES // max(len(labels), 1), matrix.shape[0])
    if count < _MIN_ROWS:
        return ()
    rows = matrix.read(0, count) if isinstance(matrix, Source) else matrix[:count]
    odd = odd_columns(rows, labels)
    if not odd:
        return ()
    texts = [f"column {visible(label)!r} {reason}" for label, reason in odd[:_MAX_REPORTED]]
    if len(odd) > _MAX_REPORTED:
        texts.append(f"and {len(odd) - _MAX_REPORTED} more like these")
    text = f"{', '.join(texts)}: read as data"
    label = odd[0][0]
    drop: object = Option("drop", label)
    index: object = Option("names_column", label)
    if in_memory:
        drop, index = f"X.drop(columns={label!r})", f"X.set_index({label!r})"
    advice = ("; to leave it out, use ", drop, "; if it names the rows, ", index)
    return (Remark(text, InputWarning(Message(f"{name}: {text}", *advice))),)


def is_index_title(title: str) -> bool:
    """Whether a column of different integers that is called so names the rows.

    >>> [is_index_title(title) for title in ("sample_id", "PassengerID", "patient no", "valid")]
    [True, True, True, False]
    """
    return _INDEX_TITLE.fullmatch(title) is not None or title.endswith(("ID", "Id"))


def odd_columns(rows: Array, labels: Sequence[Column]) -> list[tuple[Column, str]]:
    """The columns that look like numbers of rows, identifiers or dates, and why.

    A look that more than half of the columns share is that of the data, and is not reported.

    >>> rows = np.column_stack([np.arange(20), np.full(20, 20191231), np.arange(20) ** 2 % 7])
    >>> odd_columns(rows, ["n", "day", "x"])
    [('n', 'counts the rows'), ('day', 'holds dates or times such as 20191231')]
    """
    rows = np.asarray(rows, np.float64)  # differences of booleans and unsigned integers are none
    if len(rows) < _MIN_ROWS or not np.isfinite(rows).all():
        return []
    low, high, steps = rows.min(axis=0), rows.max(axis=0), np.diff(rows, axis=0)
    integers = (low >= 0) & (rows % 1 == 0).all(axis=0)
    times = np.zeros(low.shape, bool)
    for first, last in _TIMES:
        times |= (low >= first) & (high <= last) & (low < high)
    days = (low >= _DAYS[0]) & (high <= _DAYS[1])
    equal = (np.abs(steps - steps[0]) <= 1e-6 * np.abs(steps[0])).all(axis=0)
    digits, most_digits = np.floor(np.log10(low.clip(1))), np.floor(np.log10(high.clip(1)))
    called = np.array([is_index_title(str(label)) for label in labels])
    rising = (steps > 0).all(axis=0)
    identifiers = integers & (rising | called | ((digits >= 4) & (digits == most_digits)))
    ordered = np.sort(rows[:, identifiers], axis=0)
    identifiers[identifiers] = (np.diff(ordered, axis=0) > 0).all(axis=0)
    looks = {
        "holds dates or times such as {:.0f}": days & integers
        | times & (integers | (steps >= 0).all(axis=0)),
        "counts the rows": equal & (steps[0] != 0),
        "holds another integer in each row, such as {:.0f}": identifiers,
    }
    found: dict[int, str] = {}
    for reason, columns in looks.items():
        places = np.flatnonzero(columns)
        if 2 * places.size <= len(labels):
            for place in places.tolist():
                found.setdefault(place, reason.format(rows[0, place]))
    return [(labels[place], found[place]) for place in sorted(found)]

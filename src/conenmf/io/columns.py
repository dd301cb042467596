"""The columns of a table: those that the caller names, and those that look like no measurement.

A number of the row, an identifier or a date, read as a feature, dominates a factorisation: it is
often the largest number of each row. Such columns are looked for in the first rows, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments import flag, optional, several
from ..data.blocks import Array
from ..data.disk import Source
from ..errors import InputWarning, Message, Option, OptionError
from ..text import visible
from .limits import listed
from .source import Remark

__all__ = [
    "Column",
    "ColumnChoice",
    "checked_column",
    "is_index_title",
    "odd_columns",
    "remark_on_columns",
]

Column: TypeAlias = str | int
"""A column of a table: its title, or its number, counted from 0."""

_INDEX_TITLE = re.compile(r"(?:.*[\W_])?(?:id|idx|index|no|nr|number)", re.IGNORECASE)
_A_COLUMN = "the title of a column, or its number from 0"
_LOOKED_AT_ROWS = 4096  # or fewer ...
_LOOKED_AT_ENTRIES = 1 << 19  # ... if they are long
_MIN_ROWS = 10  # with fewer, any column may look like anything
_MAX_REPORTED = 5
_MIN_ID_DIGITS = 5
_YEARS = (1900, 2100)
_DAYS = (19000101, 21001231)
_EPOCH = (9e8, 2.2e9)  # seconds since 1970, from 1998 to 2039 ...
_EPOCH_UNITS = (1, 1e3, 1e6, 1e9)  # ... and smaller units


class ColumnChoice(NamedTuple):
    """What the caller says about the columns of a table.

    Attributes
    ----------
    header : bool, or None
        Whether the first line holds titles; by default guessed.
    names_column : Column, or None
        That of the names of the rows; by default guessed.
    drop : tuple of Column
        Those that are not read.
    """

    header: bool | None = None
    names_column: Column | None = None
    drop: tuple[Column, ...] = ()

    @classmethod
    def of(
        cls, header: bool | None, names_column: Column | None, drop: Column | Iterable[Column]
    ) -> ColumnChoice:
        """Make a choice of what the caller of a door gives."""
        header = optional(flag, "header", header)
        columns = [drop] if isinstance(drop, str | int) else several("drop", drop, _A_COLUMN)
        named_by = optional(checked_column, "names_column", names_column)
        return cls(header, named_by, tuple(checked_column("drop", column) for column in columns))

    def places(
        self, path: object, titles: Sequence[str] | None, count: int, named_by: int | None
    ) -> tuple[int | None, tuple[int, ...]]:
        """The columns of names and those to drop, by number; `named_by` is guessed."""
        dropped = tuple(sorted({self._place(path, column, titles, count) for column in self.drop}))
        if self.names_column is not None:
            named_by = self._place(path, self.names_column, titles, count)
            if named_by in dropped:
                raise OptionError(
                    Message(
                        Option("names_column", self.names_column),
                        " is among the columns to leave out: name it once",
                    )
                )
        elif named_by in dropped:
            named_by = None
        return named_by, dropped

    @staticmethod
    def _place(path: object, column: Column, titles: Sequence[str] | None, count: int) -> int:
        """The number of a column; a title comes before a number that is written alike."""
        hits = [place for place, title in enumerate(titles or ()) if title.strip() == column]
        if len(hits) > 1:
            raise OptionError(
                f"{path} has {len(hits)} columns that are called {visible(column)!r}: give a "
                f"number, such as {hits[0]}"
            )
        if hits:
            return hits[0]
        number = int(column) if str(column).isdecimal() else -1
        if 0 <= number < count:
            return number
        named = [title for title in titles or () if title.strip()]
        known = f"it has {listed(named)}" if named else "it has no titles"
        raise OptionError(
            f"{path} has no column {visible(column)!r}; {known}, and numbers from 0 to {count - 1}"
        )


def checked_column(name: str, value: Any) -> Column:
    """Return a title or a number; refuse anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise OptionError(Message(Option(name, value), f", expected {_A_COLUMN}"))
    return value


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
    message = Message(f"{name}: {text}", *advice)
    return (Remark(text, InputWarning(message)),)


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
    [('n', 'counts the rows'), ('day', 'holds dates such as 20191231')]
    """
    rows = np.asarray(rows, np.float64)  # differences of booleans and unsigned integers are none
    if len(rows) < _MIN_ROWS or not np.isfinite(rows).all():
        return []
    integers: Array = (rows % 1 == 0).all(axis=0) & (rows >= 0).all(axis=0)
    looks = {
        "holds dates such as {:.0f}": integers & _are_days(rows),
        "holds years such as {:.0f}": integers & _vary_in(rows, *_YEARS),
        "holds times such as {:.0f}": _are_times(rows, integers),
        "counts the rows": _are_counted(rows),
        "holds another integer in each row, such as {:.0f}": _are_identifiers(
            rows, integers, labels
        ),
    }
    found: dict[int, str] = {}
    for reason, columns in looks.items():
        places = np.flatnonzero(columns)
        if 2 * places.size <= len(labels):
            for place in places.tolist():
                found.setdefault(place, reason.format(rows[0, place]))
    return [(labels[place], found[place]) for place in sorted(found)]


def _vary_in(rows: Array, first: float, last: float) -> Array:
    """Whether all numbers of a column are in a range, and are not all the same."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    within: Array = (first <= low) & (low < high) & (high <= last)
    return within


def _are_days(rows: Array) -> Array:
    """Dates that are written as 20191231."""
    days: Array = (rows.min(axis=0) >= _DAYS[0]) & (rows.max(axis=0) <= _DAYS[1])
    month, day = rows[:, days] // 100 % 100, rows[:, days] % 100
    days[days] = ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all(axis=0)
    return days


def _are_times(rows: Array, integers: Array) -> Array:
    """Times since 1970, as integers or in order."""
    first, last = _EPOCH
    near = [_vary_in(rows, first * unit, last * unit) for unit in _EPOCH_UNITS]
    in_order = (np.diff(rows, axis=0) >= 0).all(axis=0)
    times: Array = np.logical_or.reduce(near) & (in_order | integers)
    return times


def _are_counted(rows: Array) -> Array:
    """Numbers that rise or fall in equal steps from row to row."""
    steps = np.diff(rows, axis=0)
    equal = np.abs(steps - steps[0]) <= 1e-6 * np.abs(steps[0])
    counted: Array = equal.all(axis=0) & (steps[0] != 0)
    return counted


def _are_identifiers(rows: Array, integers: Array, labels: Sequence[Column]) -> Array:
    """Different integers that are sorted, have the same number of digits, or are called so."""
    rising = (np.diff(rows, axis=0) > 0).all(axis=0)
    low, high = np.log10(rows.min(axis=0).clip(1)), np.log10(rows.max(axis=0).clip(1))
    same_digits = (np.floor(low) == np.floor(high)) & (low >= _MIN_ID_DIGITS - 1)
    called = np.array([is_index_title(str(label)) for label in labels])
    identifiers: Array = integers & (rising | same_digits | called)
    ordered = np.sort(rows[:, identifiers], axis=0)
    identifiers[identifiers] = (np.diff(ordered, axis=0) > 0).all(axis=0)
    return identifiers

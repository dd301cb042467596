"""Long tables of ratings: each row has a user, an item and a rating.

Users become the samples and items the features of a sparse matrix, named by their identifiers. A
pair without a row is unknown, not zero. Such a table is recognised by its titles or by its content:
the first columns are users, items and ratings, perhaps followed by a time, and no pair occurs twice
although many would by chance. For other tables the option `triples` names the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import DataError, DataTypeError, FileFormatError, Message
from ..names import Names
from ..text import counted, excerpt
from ..types import Lengths
from .source import NamedMatrix

# Parts of the titles of users, items and ratings.
_USER = r"(?i).*(user|customer|reviewer|reader|viewer|listener|rater|uid).*"
_ITEM = (
    r"(?i).*(item|movie|film|book|isbn|product|track|song|artist|album|game|recipe|restaurant|"
    r"business|anime|joke|iid).*"
)
_RATING = r"(?i).*(rating|score|stars).*"
_ROLES = (re.compile(_USER), re.compile(_ITEM), re.compile(_RATING))

_MOST_COLUMNS = 5
_LOOKED_AT_TRIPLES = 20  # rows of a data frame without matching titles
_NO_VALUES = ("None", "nan", "NaN", "NaT", "<NA>")  # texts of missing values of data frames
_MOST_VALUES = 20  # largest number of different ratings, without titles
_LEAST_BY_CHANCE = 10  # expected number of pairs that occur twice by chance

# The forms of users, items, ratings and Unix times: integers or texts.
_NUMBERS = (r"\d+", r"\d+", r"\d+([.,]\d+)?\s*", r"\d{9,}\s*")
_FORMS = [re.compile(rf"\s*({number}|.*[^\d\s.,+e-].*)") for number in _NUMBERS]


def columns_of_triples(titles: Sequence[str]) -> Lengths:
    """Return the columns of users, items and ratings; empty if the titles do not match.

    >>> columns_of_triples(["userId", "movieId", "rating", "timestamp"])
    (0, 1, 2)
    >>> columns_of_triples(["height", "weight", "rating"])
    ()
    """
    if len(titles) > _MOST_COLUMNS:
        return ()
    places: Lengths = ()
    for role in _ROLES:
        hits = [n for n, title in enumerate(titles) if role.fullmatch(title)]
        if len(hits) != 1:
            return ()
        places += (hits[0],)
    return places


def may_be_triples(rows: Iterable[Sequence[str]]) -> bool:
    """Return whether rows may start with a user, an item and a rating, and end with a time.

    >>> may_be_triples([["196", "242", "3", "881250949"]]), may_be_triples([["5.1", "3.5", "1.4"]])
    (True, False)
    """
    return all(_may_be_triple(row) for row in rows)


def _may_be_triple(row: Sequence[str]) -> bool:
    if len(row) not in (3, 4):
        return False
    pairs = zip(_FORMS, row, strict=False)
    return all(form.fullmatch(field) for form, field in pairs)


def are_ratings(table: NamedMatrix) -> bool:
    """Return whether a table that was read as ratings, without matching titles, has their form.

    There are few different values, and at most half of the pairs occur. Users and items occur more
    than once, but no pair occurs twice, although many pairs of independent columns would.
    """
    n = table.matrix.nnz
    users, items = table.matrix.shape
    n_pairs = users * items
    if n < 2 * max(users, items) or 2 * n > n_pairs:
        return False
    if np.unique(table.matrix.data).size > _MOST_VALUES:
        return False
    return n**2 >= 2 * _LEAST_BY_CHANCE * n_pairs


def triples_of_frame(frame: Any) -> NamedMatrix | None:
    """Return a data frame of pandas or polars with a rating in each row as a sparse matrix.

    None if it is not a data frame, or has other columns.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"userId": [1, 1, 2], "movieId": [7, 8, 7], "stars": [4.0, 5.0, 2.0]})
    >>> triples_of_frame(frame).matrix.toarray().tolist()
    [[4.0, 5.0], [2.0, 0.0]]
    """
    if not (hasattr(frame, "columns") and hasattr(frame, "shape") and hasattr(frame, "head")):
        return None
    places = columns_of_triples([str(title) for title in frame.columns])
    if not places:
        head = _columns_of_frame(frame.head(_LOOKED_AT_TRIPLES), range(frame.shape[1]))
        rows = [list(map(str, row)) for row in zip(*head, strict=True)]
        if not rows or not may_be_triples(rows):
            return None
        places = (0, 1, 2)
    return matrix_of_triples(_FRAME, _triples(*_columns_of_frame(frame, places)), "row")


_FRAME = "the data frame"


def _columns_of_frame(frame: Any, places: Iterable[int]) -> list[list[Any]]:
    """Return columns of a data frame of pandas or polars as lists of values."""
    columns = getattr(frame, "iloc", frame)
    return [list(columns[:, place]) for place in places]


def _triples(
    users: list[Any], items: list[Any], ratings: list[Any]
) -> Iterator[tuple[int, str, str, float | None]]:
    """Yield the number, the user, the item and the rating of each row."""
    for row, rating in enumerate(ratings):
        yield row, _identifier(users[row]), _identifier(items[row]), _rating(row, rating)


def _identifier(value: Any) -> str:
    """Return a user or an item as text; whole numbers in a column of floats are integers."""
    if not isinstance(value, str) and str(value) in _NO_VALUES:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _rating(row: int, value: Any) -> float | None:
    """Return a rating as a number, or None if it is missing."""
    if hasattr(value, "__float__"):
        return float(value)
    if isinstance(value, str) or str(value) not in _NO_VALUES:
        raise DataTypeError(
            f"{_FRAME}: row {row} has the rating {excerpt(value)!r}, which is not a number: "
            "convert this column to numbers"
        )
    return None


def matrix_of_triples(
    place: object, triples: Iterable[tuple[int, str, str, Any]], unit: str = "line"
) -> NamedMatrix:
    """Return the ratings as a sparse matrix, with a row per user and a column per item.

    Each triple starts with its number, and `unit` says what that counts, for messages.

    >>> rows = [(2, "ann", "jaws", 4.0), (3, "bob", "jaws", 2.0), (4, "bob", "heat", 5.0)]
    >>> matrix_of_triples("table", rows).matrix.toarray().tolist()
    [[4.0, 0.0], [2.0, 5.0]]
    """
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    lines: dict[tuple[int, int], int] = {}
    ratings = []
    for line, user, item, rating in triples:
        if not user or not item:
            missing = "item" if user else "user"
            raise DataError(
                f"{place}: {unit} {line} has no {missing}: leave it out, or name the {missing}"
            )
        if rating is None or not 0 < rating < np.inf:
            raise FileFormatError(
                f"{place}: {unit} {line} has a rating that is not a finite number above 0; leave "
                "out pairs without a rating, or add the same number to all ratings"
            )
        n = users.setdefault(user, len(users))
        f = items.setdefault(item, len(items))
        earlier = lines.setdefault((n, f), line)
        if earlier != line:
            raise DataError(
                f"{place}: {unit}s {earlier} and {line} both have a rating of user "
                f"{excerpt(user)!r} and item {excerpt(item)!r}: keep one of them"
            )
        ratings.append(rating)
    places = np.array([*lines], np.intp).reshape(-1, 2)
    shape = (len(users), len(items))
    matrix = sp.csr_array((ratings, tuple(places.T)), shape, dtype=float)
    sides = f"{counted(len(items), 'item')} by {counted(len(users), 'user')}"
    count = counted(len(ratings), "rating")
    remark = f"{count} of {sides}; other pairs are unknown, not zero"
    return NamedMatrix(matrix, Names.of(users, items), (Message(remark),), are_unknown=True)

"""Long tables of ratings: each row has a user, an item and the rating of one by the other.

Users become the samples and items the features of a sparse matrix, called by their identifiers. A
pair without a row is unknown, not zero. Such a table is recognised by its titles, or by its
content: users, items and ratings come first, perhaps a time after them, and no pair comes twice
where by chance many would. The option `triples` names the columns of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..arguments import Lengths
from ..errors import DataError, FileFormatError, Message
from ..names import Names
from ..text import counted, excerpt
from .source import NamedMatrix

# What the titles of users, items and ratings have in them.
_ROLES = (
    r".*(user|customer|reviewer|reader|viewer|listener|rater|uid).*",
    r".*(item|movie|film|book|isbn|product|track|song|artist|album|game|recipe|restaurant|"
    r"business|anime|joke|iid).*",
    r".*(rating|score|stars).*",
)

_MOST_COLUMNS = 5
_MOST_VALUES = 20  # of ratings without titles
_LEAST_BY_CHANCE = 10  # pairs of users and items that would come twice

# What users, items, ratings and Unix times look like: integers, or no numbers.
_FORMS = [
    re.compile(rf"\s*({integer}|.*[^\d\s.,+e-].*)")
    for integer in (r"\d+", r"\d+", r"\d+([.,]\d+)?\s*", r"\d{9,}\s*")
]


def columns_of_triples(titles: Sequence[str]) -> Lengths:
    """Return the columns of users, items and ratings; empty if titles do not look like that.

    >>> columns_of_triples(["userId", "movieId", "rating", "timestamp"])
    (0, 1, 2)
    >>> columns_of_triples(["height", "weight", "rating"])
    ()
    """
    places = []
    for role in _ROLES:
        hits = [n for n, title in enumerate(titles) if re.fullmatch(role, title.lower())]
        if len(hits) != 1 or len(titles) > _MOST_COLUMNS:
            return ()
        places += hits
    return tuple(places)


def may_be_triples(rows: Iterable[Sequence[str]]) -> bool:
    """Whether rows of fields may begin with a user, an item and a rating, and end with a time.

    >>> may_be_triples([["196", "242", "3", "881250949"]]), may_be_triples([["5.1", "3.5", "1.4"]])
    (True, False)
    """
    return all(len(row) in (3, 4) and all(map(re.Pattern.fullmatch, _FORMS, row)) for row in rows)


def are_ratings(table: NamedMatrix) -> bool:
    """Whether a table that was read as ratings, without titles that say so, has their form.

    Values are few, and at most half of the pairs are there. Users and items come more than once,
    and yet no pair comes twice, where many pairs of independent columns would.
    """
    n = table.matrix.nnz
    users, items = table.matrix.shape
    comes_again = n >= 2 * max(users, items) and 2 * n <= users * items
    has_few = np.unique(table.matrix.data).size <= _MOST_VALUES
    return bool(comes_again and has_few and n**2 >= 2 * _LEAST_BY_CHANCE * users * items)


def matrix_of_triples(place: object, triples: Iterable[tuple[int, str, str, Any]]) -> NamedMatrix:
    """Return the ratings as a sparse matrix, a row for each user and a column for each item.

    Each triple comes with the number of its line, for messages.

    >>> rows = [(2, "ann", "jaws", 4.0), (3, "bob", "jaws", 2.0), (4, "bob", "heat", 5.0)]
    >>> matrix_of_triples("table", rows).matrix.toarray().tolist()
    [[4.0, 0.0], [2.0, 5.0]]
    """
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    lines: dict[tuple[int, int], int] = {}
    ratings = []
    for line, user, item, rating in triples:
        if rating is None or not 0 < rating < np.inf:
            problem = f"{place}: line {line} has a rating that is not a finite number above 0; "
            advice = "leave out pairs without a rating, or add the same number to all ratings"
            raise FileFormatError(problem + advice)
        pair = users.setdefault(user, len(users)), items.setdefault(item, len(items))
        earlier = lines.setdefault(pair, line)
        if earlier != line:
            said = f"user {excerpt(user)!r} and item {excerpt(item)!r}"
            problem = f"{place}: lines {earlier} and {line} both have a rating of {said}: "
            raise DataError(f"{problem}keep one of them")
        ratings.append(rating)
    rows = np.array([*lines], np.intp).reshape(-1, 2).T
    matrix = sp.csr_array((ratings, tuple(rows)), (len(users), len(items)), dtype=float)
    sides = f"{counted(len(items), 'item')} by {counted(len(users), 'user')}"
    said = f"{counted(len(ratings), 'rating')} of {sides}; other pairs are unknown, not zero"
    return NamedMatrix(matrix, Names.of(users, items), (Message(said),), are_unknown=True)

"""Tables in text, Parquet and Arrow files: which columns are read, and which look suspicious.

If a row number, an identifier or a date is read as a feature, it dominates the factorization,
because it is often the largest number of its row. Such columns are detected in the first rows and
reported.

pyarrow reads Parquet and Arrow. Row names come from the index of the saved data frame, or from a
first column of text; any other column without numbers is rejected. A table that does not fit in
memory is written once to a temporary file, because pyarrow reads row groups, not the blocks of rows
that a fit needs.

In a long table of ratings each row has a user, an item and a rating. Users become the samples and
items the features of a sparse matrix, named by their identifiers. A pair without a row is unknown,
not zero. Such a table is recognised by its titles or by its content: the first columns are users,
items and ratings, perhaps followed by a time, and no pair occurs twice although many would by
chance. For other tables the option `triples` names the columns.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..arguments import Lengths
from ..atomic import writing
from ..data.blocks import Array
from ..errors import DataError, DataTypeError, FileFormatError, Message, Option, OptionError
from ..names import Names, type_name
from ..text import Titles, counted, excerpt, visible
from .limits import NAME_BYTES, check_expansion, fits, listed, require_package
from .source import ArraySource, Column, NamedMatrix, Reading, Remarks

_INDEX_TITLE = re.compile(r"(?i:(.*[\W_])?(id|idx|index|no|nr|number))|.*I[Dd]")
_LOOKED_AT_ENTRIES = 1 << 19  # of the first rows, which are examined; at most ...
_LOOKED_AT_ROWS = 4096
_MIN_ROWS = 10  # in fewer rows, any column may look suspicious
# Years, days such as 20191231, and times since 1970 in seconds or smaller units.
_DATES = ((1900, 2100), (19000101, 21001231), *((9e8 * u, 2.2e9 * u) for u in (1, 1e3, 1e6, 1e9)))


class Columns(NamedTuple):
    """The columns of a table.

    Attributes
    ----------
    width : int
        The number of columns.
    titles : list of str, or None
    named_by : int, or None
        The column that names the rows.
    left_out : frozenset of int
        Columns that are not read as numbers.
    n_names : int
        How many columns, from `named_by` on, name a row together: see `conenmf.mutations`.
    """

    width: int
    titles: Titles
    named_by: int | None
    left_out: frozenset[int] = frozenset()
    n_names: int = 1

    @property
    def numeric(self) -> list[int]:
        """The columns that are read as numbers."""
        others = {self.named_by, *self.left_out}
        return [column for column in range(self.width) if column not in others]

    @property
    def labels(self) -> list[Column]:
        """Names of the columns: their titles, or numbers if titles are empty or repeated."""
        titles = [title.strip() for title in self.titles or [""] * self.width]
        repeats = Counter(["", *titles, ""])
        return [title if repeats[title] == 1 else n for n, title in enumerate(titles)]

    def place(self, path: object, column: Column) -> int:
        """Return the number of a column; a title takes precedence over an equal number."""
        titles = [title.strip() for title in self.titles or ()]
        hits = [place for place, title in enumerate(titles) if title == column]
        if not hits and str(column).isdecimal() and int(column) < self.width:
            return int(column)
        if len(hits) != 1:
            raise OptionError(
                f"{path} has {len(hits) or 'no'} columns called {visible(column)!r}; it has "
                f"{listed(filter(None, titles))}: give one of these, or a number from 0 to "
                f"{self.width - 1}"
            )
        return hits[0]

    def chosen(self, path: object, reading: Reading) -> Columns:
        """Return the columns after replacing guessed ones by the caller's choices."""
        dropped = {self.place(path, column) for column in reading.drop}
        named_by = None if self.named_by in dropped else self.named_by
        chosen = self._replace(named_by=named_by, left_out=self.left_out | dropped)
        if reading.names_column is None:
            return chosen
        return chosen._replace(named_by=self.place(path, reading.names_column), n_names=1)

    def name_of(self, fields: Sequence[str]) -> str:
        """Return the name of a row from its fields."""
        first = self.named_by or 0
        return type_name(*(part.lstrip(" ") for part in fields[first : first + self.n_names]))


# --- rows that arrive in batches --------------------------------------------------------------


def batch_bytes(budget: int) -> int:
    """Return how many bytes to read at a time; parsing takes several times as much."""
    return min(max(budget // 128, 1 << 16), 64 << 20)


def open_batches(
    path: Path,
    columns: Columns,
    batches: Iterable[tuple[list[str], Array]],
    budget: int,
    dtype: npt.DTypeLike = np.float64,
) -> NamedMatrix:
    """Return a table from batches of names and numbers of rows.

    A table can only be read from its beginning, so it is read once. Numbers that do not fit in a
    quarter of the budget are written to a file without a name in the folder for temporary files; it
    is deleted when it is no longer used. Names that take more than an eighth are left out.
    """
    numeric = columns.numeric
    if not numeric:
        raise DataError(f"{path} has no column of numbers left: it needs at least one feature")
    most_names = budget // 8 // NAME_BYTES
    row_names: list[str] = []
    with tempfile.SpooledTemporaryFile(budget // 4, prefix="conenmf-") as file:
        for names, numbers in batches:
            with writing(Path(tempfile.gettempdir(), f"the numbers of {path.name}")):
                file.write(numbers.data.cast("B"))
            check_expansion(path, path.stat().st_size, file.tell())
            if len(row_names) <= most_names:
                row_names += names
        size = file.tell()
        shape = (size // (np.dtype(dtype).itemsize * len(numeric)), len(numeric))
        file.seek(0)
        if fits(size, budget):
            matrix: Any = np.frombuffer(file.read(), dtype).reshape(shape)
        else:
            array = np.asarray(np.memmap(file, dtype, "r", 0, shape))  # keeps the file
            matrix = ArraySource(array, str(path), path)
    is_named = columns.named_by is not None and len(row_names) <= most_names
    titles = columns.titles and [columns.titles[column] for column in numeric]
    labels = columns.labels
    remarks = remark_on_columns(matrix, [labels[column] for column in numeric])
    return NamedMatrix(matrix, Names.of(row_names if is_named else None, titles), remarks)


# --- columns that do not look like measurements -----------------------------------------------


def remark_on_columns(
    matrix: ArraySource | Array, labels: Sequence[Column], *, in_memory: bool = False
) -> Remarks:
    """Return a remark on columns that do not look like measurements, by their labels.

    The advice depends on whether the table is a file or a data frame in memory.
    """
    count = min(_LOOKED_AT_ROWS, _LOOKED_AT_ENTRIES // max(len(labels), 1), matrix.shape[0])
    rows = matrix.read(0, count) if isinstance(matrix, ArraySource) else matrix[:count]
    odd = odd_columns(rows, labels)
    if not odd:
        return ()
    ways: Any = (Option("drop", odd[0]), Option("names_column", odd[0]))
    if in_memory:
        ways = (f"X.drop(columns={odd[0]!r})", f"X.set_index({odd[0]!r})")
    text = (
        f"columns that look like row numbers, identifiers or dates were read as data: {listed(odd)}"
    )
    return (Message(text, "; leave one out with ", ways[0], ", or name the rows by it, ", ways[1]),)


def is_index_title(title: str) -> bool:
    """Return whether a column of distinct integers with this title names the rows.

    >>> [is_index_title(title) for title in ("sample_id", "PassengerID", "patient no", "valid")]
    [True, True, True, False]
    """
    return _INDEX_TITLE.fullmatch(title) is not None


def odd_columns(rows: Array, labels: Sequence[Column]) -> list[Column]:
    """Return the columns that look like row numbers, identifiers or dates.

    If more than half of the columns look like this, it is typical of the data and not reported.

    >>> rows = np.column_stack([np.arange(20), np.full(20, 20191231), np.arange(20) ** 2 % 7])
    >>> odd_columns(rows, ["n", "day", "x"])
    ['n', 'day']
    """
    rows = np.asarray(rows, np.float64)  # booleans and unsigned integers have no differences
    if len(rows) < _MIN_ROWS or not np.isfinite(rows).all():
        return []
    low = rows.min(axis=0)
    high = rows.max(axis=0)
    steps = np.diff(rows, axis=0)
    counts = (np.abs(steps - steps[0]) <= 1e-6 * np.abs(steps[0])).all(axis=0) & (steps[0] != 0)
    integers = (low >= 0) & (rows % 1 == 0).all(axis=0)
    dates = integers & np.any([(low >= first) & (high <= last) for first, last in _DATES], axis=0)
    digits = np.floor(np.log10(np.clip([low, high], 1, None)))
    are_long = (digits[0] >= 4) & (digits[0] == digits[1])
    called = np.array([is_index_title(str(label)) for label in labels])
    different = (np.diff(np.sort(rows, axis=0), axis=0) > 0).all(axis=0)
    identifiers = integers & different & (called | are_long | (steps > 0).all(axis=0))
    looks = [look for look in (counts, dates, identifiers) if 2 * look.sum() <= len(labels)]
    return [labels[place] for place in np.flatnonzero(np.any(looks, axis=0)).tolist()]


# --- Parquet and Arrow ------------------------------------------------------------------------


def open_parquet(path: Path, reading: Reading) -> NamedMatrix:
    """Open a Parquet file."""
    parquet = require_package("pyarrow.parquet", path)
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        facts = file.metadata
        sizes = (facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        check_expansion(path, path.stat().st_size, sum(sizes))
        n_rows = max(1, batch_bytes(reading.budget) // (8 * len(file.schema_arrow)))
        batches = file.iter_batches(batch_size=min(n_rows, 1 << 16))
        return _read(path, file.schema_arrow, batches, reading)


def open_arrow(path: Path, reading: Reading) -> NamedMatrix:
    """Open an Arrow file or stream, which Feather files are too."""
    pa = require_package("pyarrow", path)
    with pa.memory_map(str(path)) as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        file = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        batches = map(file.get_batch, range(file.num_record_batches)) if is_file else file
        return _read(path, file.schema, batches, reading)


def _read(path: Path, schema: Any, batches: Iterable[Any], reading: Reading) -> NamedMatrix:
    """Read a table from batches of rows."""
    pa = require_package("pyarrow", path)
    are = pa.types
    names = schema.names
    kinds = schema.types
    index = _pandas_index(schema)
    others = frozenset(index[1:] if reading.names_column is None else ())
    columns = Columns(len(names), names, index[0] if index else None, others).chosen(path, reading)
    tests = (are.is_integer, are.is_floating, are.is_boolean, are.is_decimal)
    unusable = [n for n in columns.numeric if not any(test(kinds[n]) for test in tests)]
    if unusable == [0] and columns.named_by is None and "string" in str(kinds[0]):
        columns = columns._replace(named_by=0)
    elif unusable:
        found = listed(f"{names[column]} ({kinds[column]})" for column in unusable)
        raise DataTypeError(
            f"{path} has columns that are not numbers: {found}; convert them, or "
            "leave them out with ",
            Option("drop", names[unusable[0]]),
        )
    is_single = all(kinds[column] in (pa.float16(), pa.float32()) for column in columns.numeric)
    dtype = np.float32 if is_single else np.float64
    rows = (_rows(batch, columns, dtype) for batch in batches)
    return open_batches(path, columns, rows, reading.budget, dtype)


def _rows(batch: Any, columns: Columns, dtype: npt.DTypeLike) -> tuple[list[str], Array]:
    """Return the names and the numbers of some rows."""
    batch.validate(full=True)
    frame = batch.replace_schema_metadata(None).to_pandas()  # drops the index
    names = [] if columns.named_by is None else frame.iloc[:, columns.named_by].astype(str).tolist()
    return names, np.ascontiguousarray(frame.iloc[:, columns.numeric].to_numpy(dtype))


def _pandas_index(schema: Any) -> list[int]:
    """Return the columns that were the index of a data frame."""
    try:
        names = schema.pandas_metadata["index_columns"]
        return [schema.names.index(name) for name in names if isinstance(name, str)]
    except Exception:  # no metadata, or damaged metadata
        return []


# --- long tables of ratings -------------------------------------------------------------------

# Parts of the titles of users, items and ratings.
_ROLES = (
    r".*(user|customer|reviewer|reader|viewer|listener|rater|uid).*",
    r".*(item|movie|film|book|isbn|product|track|song|artist|album|game|recipe|restaurant|"
    r"business|anime|joke|iid).*",
    r".*(rating|score|stars).*",
)

_MOST_COLUMNS = 5
_LOOKED_AT_TRIPLES = 20  # rows of a data frame without matching titles
_NO_VALUES = ("None", "nan", "NaN", "NaT", "<NA>")  # texts of missing values of data frames
_MOST_VALUES = 20  # largest number of different ratings, without titles
_LEAST_BY_CHANCE = 10  # expected number of pairs that occur twice by chance

# The forms of users, items, ratings and Unix times: integers or texts.
_FORMS = [
    re.compile(rf"\s*({integer}|.*[^\d\s.,+e-].*)")
    for integer in (r"\d+", r"\d+", r"\d+([.,]\d+)?\s*", r"\d{9,}\s*")
]


def columns_of_triples(titles: Sequence[str]) -> Lengths:
    """Return the columns of users, items and ratings; empty if the titles do not match.

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
    """Return whether rows may start with a user, an item and a rating, and end with a time.

    >>> may_be_triples([["196", "242", "3", "881250949"]]), may_be_triples([["5.1", "3.5", "1.4"]])
    (True, False)
    """
    return all(len(row) in (3, 4) and all(map(re.Pattern.fullmatch, _FORMS, row)) for row in rows)


def are_ratings(table: NamedMatrix) -> bool:
    """Return whether a table that was read as ratings, without matching titles, has their form.

    There are few different values, and at most half of the pairs occur. Users and items occur more
    than once, but no pair occurs twice, although many pairs of independent columns would.
    """
    n = table.matrix.nnz
    users, items = table.matrix.shape
    comes_again = n >= 2 * max(users, items) and 2 * n <= users * items
    has_few = np.unique(table.matrix.data).size <= _MOST_VALUES
    return bool(comes_again and has_few and n**2 >= 2 * _LEAST_BY_CHANCE * users * items)


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
        rows = [[str(field) for field in row] for row in zip(*head, strict=True)]
        if not rows or not may_be_triples(rows):
            return None
        places = (0, 1, 2)
    users, items, ratings = _columns_of_frame(frame, places)
    triples = zip(
        range(len(ratings)),
        _identifiers("user", users),
        _identifiers("item", items),
        _rating_numbers(ratings),
        strict=True,
    )
    return matrix_of_triples(_FRAME, triples, "row")


_FRAME = "the data frame"


def _columns_of_frame(frame: Any, places: Iterable[int]) -> list[list[Any]]:
    """Return columns of a data frame of pandas or polars as lists of values."""
    columns = getattr(frame, "iloc", frame)
    return [list(columns[:, place]) for place in places]


def _identifiers(kind: str, values: list[Any]) -> Iterator[str]:
    """Yield users or items as texts; whole numbers in a column of floats are integers."""
    for row, value in enumerate(values):
        if not isinstance(value, str) and str(value) in _NO_VALUES:
            raise DataError(f"{_FRAME}: row {row} has no {kind}: drop it, or name the {kind}")
        is_whole = isinstance(value, float) and value.is_integer()
        yield str(int(value)) if is_whole else str(value)


def _rating_numbers(values: list[Any]) -> Iterator[float | None]:
    """Yield ratings as numbers, and missing ones as None."""
    for row, value in enumerate(values):
        if isinstance(value, str) or not (hasattr(value, "__float__") or str(value) in _NO_VALUES):
            found = f"{_FRAME}: row {row} has the rating {excerpt(value)!r}, which is not a number"
            raise DataTypeError(f"{found}: convert this column to numbers")
        yield float(value) if hasattr(value, "__float__") else None


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
            problem = f"{place}: {unit} {line} has no {missing}"
            raise DataError(f"{problem}: leave it out, or name the {missing}")
        if rating is None or not 0 < rating < np.inf:
            problem = f"{place}: {unit} {line} has a rating that is not a finite number above 0; "
            advice = "leave out pairs without a rating, or add the same number to all ratings"
            raise FileFormatError(problem + advice)
        pair = users.setdefault(user, len(users)), items.setdefault(item, len(items))
        earlier = lines.setdefault(pair, line)
        if earlier != line:
            said = f"user {excerpt(user)!r} and item {excerpt(item)!r}"
            problem = f"{place}: {unit}s {earlier} and {line} both have a rating of {said}: "
            raise DataError(f"{problem}keep one of them")
        ratings.append(rating)
    rows = np.array([*lines], np.intp).reshape(-1, 2).T
    matrix = sp.csr_array((ratings, tuple(rows)), (len(users), len(items)), dtype=float)
    sides = f"{counted(len(items), 'item')} by {counted(len(users), 'user')}"
    said = f"{counted(len(ratings), 'rating')} of {sides}; other pairs are unknown, not zero"
    return NamedMatrix(matrix, Names.of(users, items), (Message(said),), are_unknown=True)

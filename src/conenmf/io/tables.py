"""Tables in text, Parquet and Arrow files: which columns are read, and which look suspicious.

If a row number, an identifier or a date is read as a feature, it dominates the factorization,
because it is often the largest number of its row. Such columns are detected in the first rows and
reported.

pyarrow reads Parquet and Arrow. Row names come from the index of the saved data frame, or from a
first column of text; any other column without numbers is rejected. A table that does not fit in
memory is written once to a temporary file, because pyarrow reads row groups, not the blocks of rows
that a fit needs.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..atomic import writing
from ..errors import DataError, DataTypeError, Message, Option, OptionError
from ..names import Names, type_name
from ..text import visible
from ..types import Array, Titles
from .limits import NAME_BYTES, check_expansion, fits, listed, require_package
from .source import ArraySource, Column, NamedMatrix, Reading, Remarks

_INDEX_TITLE = re.compile(r"(?i:(.*[\W_])?(id|idx|index|no|nr|number))|.*I[Dd]")
_LOOKED_AT_ENTRIES = 1 << 19  # of the first rows, which are examined; at most ...
_LOOKED_AT_ROWS = 4096
_MIN_ROWS = 10  # in fewer rows, any column may look suspicious
# Years, days such as 20191231, and times since 1970 in seconds or smaller units.
_DATES: list[tuple[float, float]] = [(1900, 2100), (19000101, 21001231)]
_DATES += [(9e8 * unit, 2.2e9 * unit) for unit in (1, 1e3, 1e6, 1e9)]


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
        counts = Counter(titles)
        labels: list[Column] = []
        for n, title in enumerate(titles):
            labels.append(title if title and counts[title] == 1 else n)
        return labels

    def place(self, path: object, column: Column) -> int:
        """Return the number of a column; a title takes precedence over an equal number."""
        titles = [title.strip() for title in self.titles or ()]
        hits = [place for place, title in enumerate(titles) if title == column]
        if len(hits) == 1:
            return hits[0]
        if not hits and str(column).isdecimal() and int(column) < self.width:
            return int(column)
        called = f"{len(hits) or 'no'} columns called {visible(column)!r}"
        raise OptionError(
            f"{path} has {called}; it has {listed(filter(None, titles))}: give one of these, or a "
            f"number from 0 to {self.width - 1}"
        )

    def choose(self, path: object, reading: Reading) -> Columns:
        """Return the columns after replacing guessed ones by the caller's choices."""
        dropped = {self.place(path, column) for column in reading.drop}
        chosen = self._replace(left_out=self.left_out | dropped)
        if reading.names_column is not None:
            return chosen._replace(named_by=self.place(path, reading.names_column), n_names=1)
        return chosen._replace(named_by=None) if self.named_by in dropped else chosen

    def name_of(self, fields: Sequence[str]) -> str:
        """Return the name of a row from its fields; parts are joined by colons."""
        first = self.named_by or 0
        if self.n_names == 1:
            return fields[first].lstrip(" ")
        return ":".join(part.lstrip(" ") for part in fields[first : first + self.n_names])


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
        row_bytes = np.dtype(dtype).itemsize * len(numeric)
        shape = (size // row_bytes, len(numeric))
        file.seek(0)
        if fits(size, budget):
            matrix: Any = np.frombuffer(file.read(), dtype).reshape(shape)
        else:
            array = np.asarray(np.memmap(file, dtype, "r", 0, shape))  # keeps the file
            matrix = ArraySource(array, str(path), path)
    labels = columns.labels
    remarks = remark_on_columns(matrix, [labels[column] for column in numeric])
    titles = columns.titles and [columns.titles[column] for column in numeric]
    if columns.n_names > 1:
        row_names = [type_name(*name.split(":")) for name in row_names]
    is_named = columns.named_by is not None and len(row_names) <= most_names
    return NamedMatrix(matrix, Names.of(row_names if is_named else None, titles), remarks)


# --- columns that do not look like measurements -----------------------------------------------


def remark_on_columns(
    matrix: ArraySource | Array, labels: Sequence[Column], *, in_memory: bool = False
) -> Remarks:
    """Return a remark on columns that do not look like measurements, by their labels.

    The advice depends on whether the table is a file or a data frame in memory.
    """
    most = _LOOKED_AT_ENTRIES // max(len(labels), 1)
    count = min(_LOOKED_AT_ROWS, most, matrix.shape[0])
    rows = matrix.read(0, count) if isinstance(matrix, ArraySource) else matrix[:count]
    odd = odd_columns(rows, labels)
    if not odd:
        return ()
    text = (
        f"columns that look like row numbers, identifiers or dates were read as data: {listed(odd)}"
    )
    drop: object = Option("drop", odd[0])
    name: object = Option("names_column", odd[0])
    if in_memory:
        drop = f"X.drop(columns={odd[0]!r})"
        name = f"X.set_index({odd[0]!r})"
    return (Message(text, "; leave one out with ", drop, ", or name the rows by it, ", name),)


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
    first = steps[0]
    is_even = (np.abs(steps - first) <= 1e-6 * np.abs(first)).all(axis=0)
    is_count = is_even & (first != 0)
    is_integer = (low >= 0) & (rows % 1 == 0).all(axis=0)
    within = [(low >= begin) & (high <= end) for begin, end in _DATES]
    is_date = is_integer & np.any(within, axis=0)
    n_digits, most_digits = np.floor(np.log10(np.clip([low, high], 1, None)))
    is_long = (n_digits >= 4) & (n_digits == most_digits)
    is_called_so = np.array([is_index_title(str(label)) for label in labels])
    rises = (steps > 0).all(axis=0)
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    is_different = (gaps > 0).all(axis=0)
    is_identifier = is_integer & is_different & (is_called_so | is_long | rises)
    is_odd = np.zeros(len(labels), bool)
    for look in (is_count, is_date, is_identifier):
        if 2 * look.sum() <= len(labels):
            is_odd |= look
    return [labels[place] for place in np.flatnonzero(is_odd).tolist()]


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
    columns = Columns(len(names), names, None)
    index = _pandas_index(schema)
    if index:
        columns = columns._replace(named_by=index[0])
    if reading.names_column is None:
        columns = columns._replace(left_out=frozenset(index[1:]))
    columns = columns.choose(path, reading)
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
    numbers = np.ascontiguousarray(frame.iloc[:, columns.numeric].to_numpy(dtype))
    if columns.named_by is None:
        return [], numbers
    return frame.iloc[:, columns.named_by].astype(str).tolist(), numbers


def _pandas_index(schema: Any) -> list[int]:
    """Return the columns that were the index of a data frame."""
    try:
        names = schema.pandas_metadata["index_columns"]
        return [schema.names.index(name) for name in names if isinstance(name, str)]
    except Exception:  # no metadata, or damaged metadata
        return []

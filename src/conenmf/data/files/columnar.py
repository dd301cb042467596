"""Tables stored column by column: Parquet and Arrow, read by pyarrow.

Columns of numbers are features. Names of rows are the index of the data frame that was saved, or
a first column of text; whatever else is not a number is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataTypeError, EmptyDataError, FileFormatError
from ...names import Names
from ..blocks import Array
from .limits import check_expansion, check_fits, listed, named_damage, require_package
from .sources import Opened, RawRows
from .spool import RowNames, Spool, piece_bytes

__all__ = ["open_arrow", "open_parquet"]

_PAGE = 5 << 19  # bytes that reading a column of Parquet takes, if it is a long one
_SMALL_PAGE = 1 << 14  # and, beyond its size, if it is a short one


class _Layout(NamedTuple):
    """What is where in a table."""

    named_by: int | None  # the column of names
    numeric: list[int]
    titles: list[str]  # of the numeric columns
    dtype: np.dtype[Any]
    number: Any  # the same, as Arrow calls it


def open_parquet(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """Open a Parquet file."""
    parquet = require_package("pyarrow.parquet", path)
    with named_damage(path), open(path, "rb") as stream:
        # Buffered, or whole columns of a row group would be read at once.
        file = parquet.ParquetFile(stream, buffer_size=1 << 14, pre_buffer=False)
        layout = _layout(path, file.schema_arrow)
        if _side_by_side(file.metadata) > budget // 4:
            return _one_after_the_other(path, file, layout, samples_in, budget)
        at_a_time = max(1, piece_bytes(budget) // (8 * len(layout.numeric)))
        batches = file.iter_batches(batch_size=min(at_a_time, 1 << 16))
        return _collect(path, layout, batches, samples_in, budget)


def open_arrow(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """Open an Arrow file or stream, which Feather files are too."""
    ipc = require_package("pyarrow.ipc", path)
    with named_damage(path), open(path, "rb") as stream:
        if stream.read(6) == b"ARROW1":
            file = ipc.open_file(stream)
            # What a batch takes is known only when it is read.
            average = path.stat().st_size // max(file.num_record_batches, 1)
            check_fits(f"a batch of {path}", average, budget, "it has to be read as a whole")
            batches = map(file.get_batch, range(file.num_record_batches))
        else:
            stream.seek(0)
            file = ipc.open_stream(stream)
            batches = iter(file)
        return _collect(path, _layout(path, file.schema), batches, samples_in, budget)


def _collect(
    path: Path, layout: _Layout, batches: Iterable[Any], samples_in: str, budget: int
) -> Opened:
    """Gather the batches of a table, a few rows at a time."""
    spool, rows = Spool(path, layout.dtype, budget), RowNames(budget)
    at_a_time = max(1, piece_bytes(budget) // (8 * len(layout.numeric)))
    for whole in batches:
        whole.validate(full=True)  # the file may be anybody's
        for first in range(0, whole.num_rows, at_a_time):
            batch = whole.slice(first, at_a_time)
            spool.add(_numbers([batch.column(column) for column in layout.numeric], layout))
            if layout.named_by is not None:
                rows.add(_texts(batch.column(layout.named_by)))
    names = Names.of(None if layout.named_by is None else rows.names, layout.titles)
    return Opened(spool.finish(len(layout.numeric), samples_in), names.turned(samples_in))


def _numbers(columns: list[Any], layout: _Layout) -> Array:
    """Some columns as rows of numbers; NaN where there are none."""
    cast = [column.cast(layout.number, safe=False) for column in columns]
    batch = require_package("pyarrow", Path()).RecordBatch.from_arrays(cast, [""] * len(cast))
    rows: Array = batch.to_tensor(null_to_nan=True).to_numpy()
    return rows


def _texts(column: Any) -> list[Any]:
    texts: list[Any] = column.cast("string").to_pylist()
    return texts


# --- more columns than can be read side by side -----------------------------------------------


def _side_by_side(facts: Any) -> int:
    """About the memory for reading all columns at once: each has pages in hand.

    What the file says of single columns is not asked for: damaged, it would end the process.
    """
    numbers = range(facts.num_row_groups)
    groups = [int(facts.row_group(number).total_byte_size) for number in numbers]
    columns = int(facts.num_columns)
    return min(3 * max(groups, default=0) + columns * _SMALL_PAGE, columns * _PAGE)


def _one_after_the_other(
    path: Path, file: Any, layout: _Layout, samples_in: str, budget: int
) -> Opened:
    """Write one column after the other, then turn the file round if samples are rows."""
    titles, N = file.schema_arrow.names, file.metadata.num_rows
    if len(set(titles)) != len(titles):
        raise FileFormatError(f"{path} has several columns of the same name: rename them")
    check_expansion(path, path.stat().st_size, 8 * N * len(titles))
    rows, columns = RowNames(budget), Spool(path, layout.dtype, budget)
    F = len(layout.numeric)
    few = max(1, min(budget // (256 * max(N, 1)), 256))  # looking for a column takes its time
    for first in range(0, F, few):
        chosen = [titles[column] for column in layout.numeric[first : first + few]]
        batches = file.iter_batches(batch_size=1 << 16, columns=chosen)
        if len(chosen) > 1:
            batches = list(batches)
        for position in range(len(chosen)):
            for batch in batches:
                column = batch.column(position)
                column.validate(full=True)
                columns.add(_numbers([column], layout))
    if layout.named_by is not None:
        for batch in file.iter_batches(batch_size=1 << 14, columns=[titles[layout.named_by]]):
            rows.add(_texts(batch.column(0)))
    if columns.count != N * F:
        raise FileFormatError(f"{path} is damaged: it promises {N} rows in each column")
    found = columns.finish(F, samples_in, column_after_column=True)
    if isinstance(found, RawRows) and samples_in == "rows":
        found = _turned(path, found, budget)
    names = Names.of(None if layout.named_by is None else rows.names, layout.titles)
    return Opened(found, names.turned(samples_in))


def _turned(path: Path, columns: RawRows, budget: int) -> Any:
    """The same rows, each in one place."""
    N, F = columns.shape
    spool = Spool(path, columns.dtype, budget)
    at_a_time = max(1, budget // (16 * columns.row_bytes))
    for start in range(0, N, at_a_time):
        spool.add(columns.read(start, min(start + at_a_time, N)))
    return spool.finish(F, "rows")


# --- what is where ----------------------------------------------------------------------------


def _layout(path: Path, schema: Any) -> _Layout:
    pa = require_package("pyarrow", path)
    names, kinds = schema.names, schema.types
    index = _pandas_index(schema)
    others = [column for column in range(len(kinds)) if column not in index]
    numeric = [column for column in others if _is_number(kinds[column], pa.types)]
    rest = sorted(set(others) - set(numeric))
    if rest == [0] and not index and _is_text(kinds[0], pa.types):
        rest, index = [], [0]
    if rest:
        named = listed(f"{names[column]} ({kinds[column]})" for column in rest)
        raise DataTypeError(
            f"{path} has columns that are not numbers: {named}; remove or convert them first"
        )
    if not numeric:
        raise EmptyDataError(f"{path} has no column of numbers: it needs at least one feature")
    titles = [names[column] for column in numeric]
    single = all(kinds[column] in (pa.float16(), pa.float32()) for column in numeric)
    dtype, number = (np.float32, pa.float32()) if single else (np.float64, pa.float64())
    return _Layout(index[0] if index else None, numeric, titles, np.dtype(dtype), number)


def _pandas_index(schema: Any) -> list[int]:
    """The columns that were the index of a data frame."""
    try:
        names = schema.pandas_metadata["index_columns"]
        return [schema.names.index(name) for name in names if isinstance(name, str)]
    except Exception:  # there is none, or it is damaged
        return []


def _is_number(kind: Any, types: Any) -> bool:
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def _is_text(kind: Any, types: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

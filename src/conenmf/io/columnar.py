"""Tables stored column by column, Parquet and Arrow, read by pyarrow.

Names of rows are the index of the data frame that was saved, or a first column of text; any other
column that is not of numbers is refused. A table that does not fit in memory is written, once, to a
temporary file: pyarrow reads row groups, not the blocks of rows that a fit needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, DataTypeError, Message, Option
from ..names import Names
from .columns import ColumnChoice, remark_on_columns
from .limits import check_expansion, listed, named_damage, require_package
from .source import NamedMatrix
from .spool import RowNames, Spool, batch_bytes

__all__ = ["open_arrow", "open_parquet"]


class _Layout(NamedTuple):
    """Which columns hold the names and the numbers, and the common type of these."""

    named_by: int | None
    numeric: list[int]
    titles: list[str]  # of the numeric columns
    kind: Any


def open_parquet(path: Path, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open a Parquet file."""
    parquet = require_package("pyarrow.parquet", path)
    with named_damage(path), parquet.ParquetFile(path, pre_buffer=False) as file:
        facts = file.metadata
        sizes = (facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        check_expansion(path, path.stat().st_size, sum(sizes))
        layout = _layout(path, file.schema_arrow, choice)
        n_rows = max(1, batch_bytes(budget) // (8 * len(layout.numeric)))
        batches = file.iter_batches(batch_size=min(n_rows, 1 << 16))
        return _read(path, layout, batches, budget)


def open_arrow(path: Path, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open an Arrow file or stream, which Feather files are too."""
    pa = require_package("pyarrow", path)
    with named_damage(path), pa.memory_map(str(path)) as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        file = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        batches = map(file.get_batch, range(file.num_record_batches)) if is_file else file
        return _read(path, _layout(path, file.schema, choice), batches, budget)


def _read(path: Path, layout: _Layout, batches: Iterable[Any], budget: int) -> NamedMatrix:
    """Read a table in batches of rows."""
    pa = require_package("pyarrow", path)
    dtype = np.dtype(layout.kind.to_pandas_dtype())
    spool, row_names = Spool(path, dtype, budget), RowNames(budget)
    for batch in batches:
        batch.validate(full=True)
        columns = [batch.column(c).cast(layout.kind, safe=False) for c in layout.numeric]
        rows = pa.RecordBatch.from_arrays(columns, layout.titles).to_tensor(null_to_nan=True)
        spool.add(rows.to_numpy())
        if layout.named_by is not None and row_names.names is not None:
            row_names.add(batch.column(layout.named_by).cast("string").to_pylist())
    names = Names.of(None if layout.named_by is None else row_names.names, layout.titles)
    matrix = spool.finish(len(layout.numeric))
    return NamedMatrix(matrix, names, remarks=remark_on_columns(path, matrix, layout.titles))


def _layout(path: Path, schema: Any, choice: ColumnChoice) -> _Layout:
    pa = require_package("pyarrow", path)
    names, kinds = schema.names, schema.types
    index = _pandas_index(schema)
    named_by, dropped = choice.places(path, names, len(names), index[0] if index else None)
    others = [column for column in range(len(kinds)) if column not in {*dropped, named_by}]
    if choice.names_column is None:
        others = [column for column in others if column not in index]
    numeric = [column for column in others if _is_number(kinds[column], pa.types)]
    unusable = sorted(set(others) - set(numeric))
    if unusable == [0] and named_by is None and _is_text(kinds[0], pa.types):
        unusable, named_by = [], 0
    if unusable:
        columns = listed(f"{names[column]} ({kinds[column]})" for column in unusable)
        raise DataTypeError(
            Message(
                f"{path} has columns that are not numbers: {columns}; convert them, or leave them "
                "out with ",
                Option("drop", names[unusable[0]]),
            )
        )
    if not numeric:
        raise DataError(f"{path} has no column of numbers: it needs at least one feature")
    is_single = all(kinds[column] in (pa.float16(), pa.float32()) for column in numeric)
    kind = pa.float32() if is_single else pa.float64()
    return _Layout(named_by, numeric, [names[column] for column in numeric], kind)


def _pandas_index(schema: Any) -> list[int]:
    """The columns that were the index of a data frame."""
    try:
        names = schema.pandas_metadata["index_columns"]
        return [schema.names.index(name) for name in names if isinstance(name, str)]
    except Exception:  # there is none, or it is damaged
        return []


def _is_number(kind: Any, types: Any) -> bool:
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _is_text(kind: Any, types: Any) -> bool:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

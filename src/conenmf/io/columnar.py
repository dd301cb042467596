"""Tables stored column by column, Parquet and Arrow, read by pyarrow.

Names of rows are the index of the data frame that was saved, or a first column of text; any other
column that is not of numbers is refused. A table that does not fit in memory is written, once, to a
temporary file: pyarrow reads row groups, not the blocks of rows that a fit needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..errors import DataError, DataTypeError, Message, Option
from ..names import Names
from .limits import check_expansion, listed, named_damage, require_package
from .source import NamedMatrix
from .tables import ColumnChoice, batch_bytes, collect, remark_on_columns


def open_parquet(path: Path, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open a Parquet file."""
    parquet = require_package("pyarrow.parquet", path)
    with named_damage(path), parquet.ParquetFile(path, pre_buffer=False) as file:
        facts = file.metadata
        sizes = (facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        check_expansion(path, path.stat().st_size, sum(sizes))
        n_rows = max(1, batch_bytes(budget) // (8 * len(file.schema_arrow)))
        batches = file.iter_batches(batch_size=min(n_rows, 1 << 16))
        return _read(path, file.schema_arrow, batches, budget, choice)


def open_arrow(path: Path, budget: int, choice: ColumnChoice) -> NamedMatrix:
    """Open an Arrow file or stream, which Feather files are too."""
    pa = require_package("pyarrow", path)
    with named_damage(path), pa.memory_map(str(path)) as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        file = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        batches = map(file.get_batch, range(file.num_record_batches)) if is_file else file
        return _read(path, file.schema, batches, budget, choice)


def _read(
    path: Path, schema: Any, batches: Iterable[Any], budget: int, choice: ColumnChoice
) -> NamedMatrix:
    """Read a table in batches of rows."""
    pa = require_package("pyarrow", path)
    names, kinds = schema.names, schema.types
    index = _pandas_index(schema)
    named_by, dropped = choice.places(path, names, len(names), index[0] if index else None)
    left_out = {*dropped, named_by, *(index if choice.names_column is None else ())}
    others = [column for column in range(len(kinds)) if column not in left_out]
    numeric = [column for column in others if _is_number(kinds[column], pa.types)]
    unusable = sorted(set(others) - set(numeric))
    if unusable == [0] and named_by is None and _is_text(kinds[0], pa.types):
        unusable, named_by = [], 0
    if unusable:
        columns = listed(f"{names[column]} ({kinds[column]})" for column in unusable)
        problem = f"{path} has columns that are not numbers: {columns}; convert them, or "
        advice = ("leave them out with ", Option("drop", names[unusable[0]]))
        raise DataTypeError(Message(problem, *advice))
    if not numeric:
        raise DataError(f"{path} has no column of numbers: it needs at least one feature")
    is_single = all(kinds[column] in (pa.float16(), pa.float32()) for column in numeric)
    kind = pa.float32() if is_single else pa.float64()
    titles = [names[column] for column in numeric]

    def columns_of(batch: Any) -> tuple[Array, list[str] | None]:
        batch.validate(full=True)
        parts = [batch.column(column).cast(kind, safe=False) for column in numeric]
        numbers = pa.RecordBatch.from_arrays(parts, titles).to_tensor(null_to_nan=True)
        texts = None if named_by is None else batch.column(named_by).cast("string").to_pylist()
        return numbers.to_numpy(), texts and list(map(str, texts))

    dtype = np.dtype(kind.to_pandas_dtype())
    matrix, row_names = collect(path, dtype, len(titles), map(columns_of, batches), budget)
    remarks = remark_on_columns(path, matrix, titles)
    return NamedMatrix(matrix, Names.of(row_names, titles), remarks=remarks)


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

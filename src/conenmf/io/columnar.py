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
import numpy.typing as npt

from ..data.blocks import Array
from ..errors import DataTypeError, Message, Option
from .limits import check_expansion, listed, require_package
from .source import NamedMatrix, Reading
from .tables import Columns, batch_bytes, open_batches


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
    """Read a table in batches of rows."""
    pa = require_package("pyarrow", path)
    are = pa.types
    names, kinds = schema.names, schema.types
    index = _pandas_index(schema)
    others = frozenset(index[1:] if reading.names_column is None else ())
    columns = Columns(len(names), names, index[0] if index else None, others).chosen(path, reading)
    tests = (are.is_integer, are.is_floating, are.is_boolean, are.is_decimal)
    unusable = [n for n in columns.numeric if not any(test(kinds[n]) for test in tests)]
    if unusable == [0] and columns.named_by is None and "string" in str(kinds[0]):
        columns = columns._replace(named_by=0)
    elif unusable:
        found = listed(f"{names[column]} ({kinds[column]})" for column in unusable)
        problem = f"{path} has columns that are not numbers: {found}; convert them, or "
        advice = ("leave them out with ", Option("drop", names[unusable[0]]))
        raise DataTypeError(Message(problem, *advice))
    is_single = all(kinds[column] in (pa.float16(), pa.float32()) for column in columns.numeric)
    dtype = np.float32 if is_single else np.float64
    rows = (_rows(batch, columns, dtype) for batch in batches)
    return open_batches(path, columns, rows, reading.budget, dtype)


def _rows(batch: Any, columns: Columns, dtype: npt.DTypeLike) -> tuple[list[str], Array]:
    """The names and the numbers of some rows."""
    batch.validate(full=True)
    frame = batch.replace_schema_metadata(None).to_pandas()  # without an index
    names = [] if columns.named_by is None else frame.iloc[:, columns.named_by].astype(str).tolist()
    return names, np.ascontiguousarray(frame.iloc[:, columns.numeric].to_numpy(dtype))


def _pandas_index(schema: Any) -> list[int]:
    """The columns that were the index of a data frame."""
    try:
        names = schema.pandas_metadata["index_columns"]
        return [schema.names.index(name) for name in names if isinstance(name, str)]
    except Exception:  # there is none, or it is damaged
        return []

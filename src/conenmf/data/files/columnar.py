"""Tables stored column by column: Parquet and Arrow, read by pyarrow.

Names of rows are the index of the data frame that was saved, or a first column of text; any other
column that is not of numbers is refused. A table that does not fit in memory is written, once, to
a temporary file: pyarrow reads row groups and columns, not the blocks of rows that a fit needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataTypeError, EmptyDataError, FileFormatError, Message, Option
from ...names import Names
from ...text import decoded
from ..blocks import Array
from .arrow_messages import check_messages
from .columns import ColumnChoice, remark_on_columns
from .limits import check_expansion, fits, listed, named_damage, require_package
from .sources import NamedMatrix
from .spool import RowNames, Spool, batch_bytes

__all__ = ["open_arrow", "open_parquet"]

_LONG_COLUMN_BYTES = 5 << 19  # that reading a long column of Parquet takes
_SHORT_COLUMN_BYTES = 1 << 14  # that reading a short one takes beyond its size
_NAMED_ROWS = 1 << 14  # of which the names are made at a time
_BEGINNING_CHARS = 256  # of a name, of which less is shown


class _Layout(NamedTuple):
    """Which columns hold the names and the numbers, and their common type."""

    named_by: int | None  # the column of names
    numeric: list[int]
    titles: list[str]  # of the numeric columns
    dtype: np.dtype[Any]
    arrow_type: Any  # the same type in Arrow

    def among(self, columns: list[int]) -> _Layout:
        """The same layout of a table that has only these columns."""
        numeric = [columns.index(column) for column in self.numeric]
        named_by = None if self.named_by is None else columns.index(self.named_by)
        return self._replace(named_by=named_by, numeric=numeric)


def open_parquet(
    path: Path,
    dataset: str | None,
    budget: int,
    choice: ColumnChoice = ColumnChoice(),  # noqa: B008 - immutable
) -> NamedMatrix:
    """Open a Parquet file."""
    parquet = require_package("pyarrow.parquet", path)
    with named_damage(path), open(path, "rb") as stream:
        # Buffered, or whole columns of a row group would be read at once.
        options = {"buffer_size": 1 << 14, "pre_buffer": False}
        file = parquet.ParquetFile(stream, **options)
        check_expansion(path, path.stat().st_size, sum(_row_group_bytes(file.metadata)))
        layout, titles = _layout(path, file.schema_arrow, choice), file.schema_arrow.names
        if layout.named_by is not None:  # each text once, however many rows have it
            named_by = titles[layout.named_by]
            file = parquet.ParquetFile(stream, read_dictionary=[named_by], **options)
        if not fits(_bytes_side_by_side(file.metadata), budget):
            return _read_columns(path, file, layout, budget)
        n_rows = max(1, batch_bytes(budget) // (8 * len(layout.numeric)))
        used = sorted({*layout.numeric, *_present(layout.named_by)})
        subset = None
        if len(used) < len(titles) == len(set(titles)):  # columns that are left out are not read
            subset, layout = [titles[column] for column in used], layout.among(used)
        batches = file.iter_batches(batch_size=min(n_rows, 1 << 16), columns=subset)
        return _read_batches(path, layout, batches, budget)


def open_arrow(
    path: Path,
    dataset: str | None,
    budget: int,
    choice: ColumnChoice = ColumnChoice(),  # noqa: B008 - immutable
) -> NamedMatrix:
    """Open an Arrow file or stream, which Feather files are too."""
    ipc = require_package("pyarrow.ipc", path)
    with named_damage(path), open(path, "rb") as stream:
        check_messages(path, stream, budget)
        stream.seek(0)
        if stream.read(6) == b"ARROW1":
            file = ipc.open_file(stream)
            batches = map(file.get_batch, range(file.num_record_batches))
        else:
            stream.seek(0)
            file = ipc.open_stream(stream)
            batches = iter(file)
        return _read_batches(path, _layout(path, file.schema, choice), batches, budget)


def _read_batches(path: Path, layout: _Layout, batches: Iterable[Any], budget: int) -> NamedMatrix:
    """Read a table in batches of rows."""
    spool, row_names = Spool(path, layout.dtype, budget), RowNames(budget)
    n_rows = max(1, batch_bytes(budget) // (8 * len(layout.numeric)))
    for whole in batches:
        whole.validate(full=True)  # the file is untrusted
        for start in range(0, whole.num_rows, n_rows):
            batch = whole.slice(start, n_rows)
            spool.add(_numbers([batch.column(column) for column in layout.numeric], layout))
        if layout.named_by is not None:
            _add_names(path, row_names, whole.column(layout.named_by))
    return _named(path, layout, row_names, spool.finish(len(layout.numeric)))


def _named(path: Path, layout: _Layout, row_names: RowNames, matrix: Any) -> NamedMatrix:
    names = Names.of(None if layout.named_by is None else row_names.names, layout.titles)
    return NamedMatrix(matrix, names, remarks=remark_on_columns(path, matrix, layout.titles))


def _numbers(columns: list[Any], layout: _Layout) -> Array:
    """Some columns as rows of numbers; NaN where there are none."""
    cast = [column.cast(layout.arrow_type, safe=False) for column in columns]
    batch = require_package("pyarrow", Path()).RecordBatch.from_arrays(cast, [""] * len(cast))
    rows: Array = batch.to_tensor(null_to_nan=True).to_numpy()
    return rows


def _add_names(path: Path, row_names: RowNames, column: Any) -> None:
    """Take the names in a column, a few rows at a time."""
    pa = require_package("pyarrow", path)
    values = _shortened(path, column.dictionary if pa.types.is_dictionary(column.type) else column)
    for start in range(0, len(column), _NAMED_ROWS):
        if row_names.names is None:  # they were too many
            return
        if pa.types.is_dictionary(column.type):
            part = values.take(column.indices.slice(start, _NAMED_ROWS))
        else:
            part = values.slice(start, _NAMED_ROWS)
        texts = part.to_pylist()
        row_names.add(text if text is None else decoded(text) for text in texts)


def _shortened(path: Path, values: Any) -> Any:
    """Texts, cut before they are copied; anything else as text."""
    compute, types = (
        require_package("pyarrow.compute", path),
        require_package("pyarrow", path).types,
    )
    kind = values.type
    if types.is_string(kind) or types.is_large_string(kind):
        return compute.utf8_slice_codeunits(values, 0, _BEGINNING_CHARS)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return compute.binary_slice(values, 0, 4 * _BEGINNING_CHARS)
    if types.is_string_view(kind) or types.is_binary_view(kind):  # which may show the same bytes
        views = np.frombuffer(values.buffers()[1] or b"", "<i4")[::4]
        lengths = views[values.offset : values.offset + len(values)]
        check_expansion(path, path.stat().st_size, int(lengths.sum(dtype=np.int64)))
        return _shortened(path, values.cast("large_string"))
    return values.cast("string")


def _present(number: int | None) -> tuple[int, ...]:
    return () if number is None else (number,)


# --- more columns than can be read side by side -----------------------------------------------


def _bytes_side_by_side(facts: Any) -> int:
    """About the memory for reading all columns at once, each of which holds pages.

    The metadata of single columns are not used: damaged, they would end the process.
    """
    largest = max(_row_group_bytes(facts), default=0)
    columns = int(facts.num_columns)
    return min(3 * largest + columns * _SHORT_COLUMN_BYTES, columns * _LONG_COLUMN_BYTES)


def _row_group_bytes(facts: Any) -> list[int]:
    """What each group of rows takes once it is unpacked."""
    return [int(facts.row_group(i).total_byte_size) for i in range(facts.num_row_groups)]


def _read_columns(path: Path, file: Any, layout: _Layout, budget: int) -> NamedMatrix:
    """Read one column after the other, since pages of all of them at once take too much memory."""
    titles, N = file.schema_arrow.names, file.metadata.num_rows
    if len(set(titles)) != len(titles):
        raise FileFormatError(f"{path} has several columns of the same name: rename them")
    check_expansion(path, path.stat().st_size, 8 * N * len(titles))
    spool, row_names = Spool(path, layout.dtype, budget), RowNames(budget)
    F = len(layout.numeric)
    at_once = max(1, min(budget // (256 * max(N, 1)), 256))  # finding a column takes time
    for first in range(0, F, at_once):
        subset = [titles[column] for column in layout.numeric[first : first + at_once]]
        batches = file.iter_batches(batch_size=1 << 16, columns=subset)
        if len(subset) > 1:
            batches = list(batches)
        for position in range(len(subset)):
            for batch in batches:
                column = batch.column(position)
                column.validate(full=True)
                spool.add(_numbers([column], layout))
    if layout.named_by is not None:
        for batch in file.iter_batches(batch_size=1 << 14, columns=[titles[layout.named_by]]):
            batch.validate(full=True)
            _add_names(path, row_names, batch.column(0))
    if spool.count != N * F:
        raise FileFormatError(f"{path} is damaged: its header claims {N} rows in each column")
    return _named(path, layout, row_names, spool.finish(F, column_after_column=True))


# --- which columns hold what ------------------------------------------------------------------


def _layout(path: Path, schema: Any, choice: ColumnChoice) -> _Layout:
    pa = require_package("pyarrow", path)
    names, kinds = schema.names, schema.types
    index = _pandas_index(schema)
    guessed = index[0] if index else None
    named_by, dropped = choice.places(path, names, len(names), guessed)
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
        raise EmptyDataError(f"{path} has no column of numbers: it needs at least one feature")
    titles = [names[column] for column in numeric]
    single = all(kinds[column] in (pa.float16(), pa.float32()) for column in numeric)
    dtype, arrow_type = (np.float32, pa.float32()) if single else (np.float64, pa.float64())
    return _Layout(named_by, numeric, titles, np.dtype(dtype), arrow_type)


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

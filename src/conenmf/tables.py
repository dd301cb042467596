"""Tables: text with separators, Parquet and Arrow. The only code that imports pyarrow.

A table is read once, from its beginning to its end, a few megabytes at a time. Columns of numbers
are features; names of rows are in the first column, if anywhere.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .blocks import Array
from .dialects import MISSING, Dialect, fault, guess
from .errors import DataTypeError, EmptyDataError, FileFormatError
from .limits import check_fits, listed, named_damage, needed, too_many_names
from .names import Names, visible
from .sources import Opened
from .spool import Spool

__all__ = ["open_arrow", "open_parquet", "open_text"]

_LOOKED_AT = 20  # lines from which the dialect is guessed ...
_LOOKED_AT_BYTES = 1 << 20  # ... or fewer, if they are long


def _piece(budget: int) -> int:
    """Bytes to look at a time; they take several times as much while they are parsed."""
    return min(max(budget // 128, 1 << 16), 16 << 20)


def _longest_line(budget: int) -> int:
    return min(max(budget // 16, 1 << 20), 256 << 20)


class _RowNames:
    """Collects names, unless they become too many to be worth the memory."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.names: list[str] | None = []

    def add(self, texts: Iterable[object]) -> None:
        if self.names is not None:
            self.names += map(_text, texts)
            if too_many_names(len(self.names), self._budget):
                self.names = None


def _text(value: object) -> str:
    return visible(value.decode(errors="replace") if isinstance(value, bytes) else value)


# --- text -------------------------------------------------------------------------------------


def open_text(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """Open a text that has one row on each line; with ``.gz`` at its end, a compressed one."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with named_damage(path), opener(path, "rb") as stream:
        head = _head(stream, path, budget)
        lines = [text.decode(errors="replace").strip("\r\n") for text in head if text.strip()]
        if not lines:
            raise EmptyDataError(f"{path} is empty: it needs at least one sample and one feature")
        dialect = guess(lines, path)
        line = 1
        if dialect.titles is not None:
            line += next(n for n, text in enumerate(head, 1) if text.strip())
        parse = _parser(path, dialect)
        spool = Spool(path, dialect.fields - dialect.has_index, np.dtype(np.float64), budget)
        rows = _RowNames(budget)
        blocks = itertools.chain([b"".join(head[line - 1 :])], _blocks(stream, path, budget))
        for block in blocks:
            if block.strip():
                try:
                    names, numbers = parse(block)
                except Exception as problem:
                    what = fault(block, line, dialect) or visible(problem)
                    raise FileFormatError(f"{path}: {what}") from problem
                spool.add(numbers)
                rows.add(names)
            line += block.count(b"\n")
        if not spool.rows:
            raise EmptyDataError(f"{path} has a header and no rows: it needs at least one sample")
        titles = None if dialect.titles is None else dialect.titles[dialect.has_index :]
        found = Names.of(rows.names if dialect.has_index else None, titles)
        return Opened(spool.finish(samples_in), found.turned(samples_in))


def _head(stream: IO[bytes], path: Path, budget: int) -> list[bytes]:
    """The first lines of a text."""
    head: list[bytes] = []
    while len(head) < 2 or (len(head) < _LOOKED_AT and sum(map(len, head)) < _LOOKED_AT_BYTES):
        line = _line(stream, path, budget)
        if not line:
            break
        if not head:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark
            if b"\r" in line.rstrip(b"\r\n"):
                raise FileFormatError(
                    f"{path}: lines end with a carriage return alone: end them with a newline"
                )
        head.append(line)
    return head


def _line(stream: IO[bytes], path: Path, budget: int) -> bytes:
    longest = _longest_line(budget)
    line = stream.readline(longest)
    if len(line) == longest and not line.endswith(b"\n"):
        raise FileFormatError(
            f"{path} has a line of more than {longest} bytes: if that is right, raise max_memory"
        )
    return _without_zeros(line, path)


def _blocks(stream: IO[bytes], path: Path, budget: int) -> Iterator[bytes]:
    """Pieces of the text that end where a line ends."""
    while block := stream.read(_piece(budget)):
        if not block.endswith(b"\n"):
            block += _line(stream, path, budget)
        yield _without_zeros(block, path)


def _without_zeros(text: bytes, path: Path) -> bytes:
    if b"\0" in text:
        raise FileFormatError(f"{path} holds zero bytes, which no text does: save it as UTF-8")
    return text


def _parser(path: Path, dialect: Dialect) -> Callable[[bytes], tuple[Any, Array]]:
    """A function from lines to the names in them, and the numbers."""
    pa, reader = needed("pyarrow", path), needed("pyarrow.csv", path)
    columns = [str(column) for column in range(dialect.fields)]
    types = dict.fromkeys(columns, pa.float64())
    if dialect.has_index:
        types["0"] = pa.binary()
    parsing = reader.ParseOptions(delimiter=dialect.delimiter)
    conversions = [
        reader.ConvertOptions(
            column_types=types, null_values=MISSING, decimal_point=sign, check_utf8=False
        )
        for sign in dialect.decimals
    ]

    def parse(block: bytes) -> tuple[Any, Array]:
        # In one piece, or names of columns would be compared for each of its parts.
        reading = reader.ReadOptions(column_names=columns, block_size=len(block) + 1)
        for conversion in conversions:
            try:
                table = reader.read_csv(pa.BufferReader(block), reading, parsing, conversion)
                break
            except pa.ArrowInvalid:
                if conversion is conversions[-1]:
                    raise
        names = table.column(0).to_pylist() if dialect.has_index else []
        if dialect.has_index:
            table = table.remove_column(0)
        (batch,) = table.combine_chunks().to_batches()
        return names, _rows(batch)

    return parse


def _rows(batch: Any) -> Array:
    """The numbers of a batch, row after row; NaN where there are none."""
    rows: Array = batch.to_tensor(null_to_nan=True).to_numpy()
    return rows


# --- Parquet and Arrow ------------------------------------------------------------------------


def open_parquet(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """Open a Parquet file."""
    parquet = needed("pyarrow.parquet", path)
    with named_damage(path), open(path, "rb") as stream:
        # Buffered, or whole columns of a row group would be read at once.
        file = parquet.ParquetFile(stream, buffer_size=1 << 14, pre_buffer=False)
        schema = file.schema_arrow
        at_a_time = max(1, _piece(budget) // (8 * max(len(schema.names), 1)))
        batches = file.iter_batches(batch_size=min(at_a_time, 1 << 16))
        return _collect(path, schema, batches, samples_in, budget)


def open_arrow(path: Path, samples_in: str, dataset: str | None, budget: int) -> Opened:
    """Open an Arrow file or stream, which Feather files are too."""
    ipc = needed("pyarrow.ipc", path)
    with named_damage(path), open(path, "rb") as stream:
        if stream.read(6) == b"ARROW1":
            file = ipc.open_file(stream)
            # What a batch takes is known only when it is read.
            average = path.stat().st_size // max(file.num_record_batches, 1)
            check_fits(f"a batch of {path}", average, budget, "has to be read as a whole")
            batches = map(file.get_batch, range(file.num_record_batches))
            return _collect(path, file.schema, batches, samples_in, budget)
        stream.seek(0)
        file = ipc.open_stream(stream)
        return _collect(path, file.schema, iter(file), samples_in, budget)


def _collect(
    path: Path, schema: Any, batches: Iterable[Any], samples_in: str, budget: int
) -> Opened:
    """Gather the batches of a table."""
    pa = needed("pyarrow", path)
    index, numeric = _columns(path, schema, pa.types)
    titles = [schema.field(column).name for column in numeric]
    single = all(schema.field(column).type in (pa.float16(), pa.float32()) for column in numeric)
    number = pa.float32() if single else pa.float64()
    spool = Spool(path, len(numeric), np.dtype(np.float32 if single else np.float64), budget)
    rows = _RowNames(budget)
    at_a_time = max(1, _piece(budget) // (8 * len(numeric)))
    for whole in batches:
        whole.validate(full=True)  # the file may be anybody's
        for first in range(0, whole.num_rows, at_a_time):
            batch = whole.slice(first, at_a_time)
            columns = [batch.column(column).cast(number, safe=False) for column in numeric]
            spool.add(_rows(pa.RecordBatch.from_arrays(columns, [""] * len(columns))))
            if index is not None:
                rows.add(batch.column(index).cast(pa.string()).to_pylist())
    names = Names.of(None if index is None else rows.names, titles)
    return Opened(spool.finish(samples_in), names.turned(samples_in))


def _columns(path: Path, schema: Any, types: Any) -> tuple[int | None, list[int]]:
    """Which column holds the names of rows, if any, and which hold numbers."""
    index = _pandas_index(schema)
    others = [column for column in range(len(schema.names)) if column not in index]
    numeric = [column for column in others if _is_number(schema.field(column).type, types)]
    texts = [column for column in others if column not in set(numeric)]
    if texts == [0] and not index and _is_text(schema.field(0).type, types):
        texts, index = [], [0]
    if texts:
        named = listed(
            f"{schema.field(column).name} ({schema.field(column).type})" for column in texts
        )
        raise DataTypeError(
            f"{path} has columns that are not numbers: {named}; remove or convert them first"
        )
    if not numeric:
        raise EmptyDataError(f"{path} has no column of numbers: it needs at least one feature")
    return (index[0] if index else None), numeric


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

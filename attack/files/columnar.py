"""Parquet, Arrow and Feather. The independent reader is Polars, which shares no code with Arrow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from ..mutations import INTEGERS, Rng, mutated, packed
from .formats import Document, Format, RefusedError, only, pick, small_matrix


def _make_table(rng: Rng) -> Any:
    X = small_matrix(rng, pick(rng, ("f8", "f8", "f4", "i4")))
    columns: dict[str, Any] = {f"f{f}": X[:, f] for f in range(X.shape[1])}
    if rng.random() < 0.3:
        columns = {"name": [f"s{n}" for n in range(len(X))], **columns}
    if rng.random() < 0.2:
        columns["flag"] = X[:, 0] > 1
    table = pa.table(columns)
    if rng.random() < 0.2 and "name" in columns:
        table = table.set_column(0, "name", table["name"].dictionary_encode())
    return table


def _make_parquet(rng: Rng) -> tuple[str, Document]:
    stream = io.BytesIO()
    pq.write_table(
        _make_table(rng),
        stream,
        compression=pick(rng, ("NONE", "NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")),
        use_dictionary=bool(rng.random() < 0.5),
        data_page_version=pick(rng, ("1.0", "2.0")),
        row_group_size=int(pick(rng, (4, 100))),
        write_page_checksum=bool(rng.random() < 0.2),
        write_statistics=bool(rng.random() < 0.5),
    )
    return "x.parquet", {"x.parquet": stream.getvalue()}


def _mutate_parquet(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    footer = int.from_bytes(data[-8:-4], "little") if len(data) > 12 else 0
    start = len(data) - 8 - footer
    what = rng.random()
    if what < 0.1 or not 4 < start < len(data):
        return {name: mutated(data, rng)}
    if what < 0.65:
        return {name: _same_length(data, rng, 4, start)}
    changed = mutated(data[start:-8], rng)
    return {name: data[:start] + changed + packed("<I", len(changed)) + data[-4:]}


def _same_length(data: bytes, rng: Rng, start: int, stop: int) -> bytes:
    """Change bytes without moving those behind them, to whose places the footer points."""
    changed = mutated(data[start:stop], rng)[: stop - start]
    return data[:start] + changed + data[start + len(changed) :]


def _parquet_header(path: Path) -> Any:
    with pq.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def _make_arrow(rng: Rng) -> tuple[str, Document]:
    table, stream = _make_table(rng), io.BytesIO()
    if rng.random() < 0.5:
        packing = pick(rng, ("uncompressed", "uncompressed", "lz4", "zstd"))
        pyarrow.feather.write_feather(table, stream, compression=packing)
        return "x.feather", {"x.feather": stream.getvalue()}
    options = pa.ipc.IpcWriteOptions(compression=pick(rng, (None, None, "lz4", "zstd")))
    with pa.ipc.new_file(stream, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=int(pick(rng, (5, 100))))
    return "x.arrow", {"x.arrow": stream.getvalue()}


def _mutate_arrow(document: Document, rng: Rng) -> Document:
    """Mostly behind the schema, which takes about the first third of so small a file."""
    name, data = only(document)
    what = rng.random()
    if what < 0.1 or len(data) < 100:
        return {name: mutated(data, rng)}
    if what < 0.25:
        return {name: _same_length(data, rng, 8, len(data) // 3)}
    if what < 0.4:  # an integer in a header of a batch
        at = int(rng.integers(len(data) // 3, len(data) - 20)) // 4 * 4
        value = packed("<I", pick(rng, INTEGERS))
        return {name: data[:at] + value + data[at + 4 :]}
    footer = int.from_bytes(data[-10:-6], "little")
    stop = max(len(data) // 2, len(data) - 10 - footer)
    return {name: _same_length(data, rng, len(data) // 3, stop)}


def _arrow_header(path: Path) -> Any:
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        return file.schema, file.num_record_batches


def _read_columns(path: Path, V: Any) -> Any:
    """With Polars, or with Arrow where Polars cannot read the file."""
    import polars as pl

    is_parquet = path.suffix == ".parquet"
    try:
        table = (pl.read_parquet if is_parquet else pl.read_ipc)(path)
        is_text = next(iter(table.schema.values()), None) in (pl.String, pl.Categorical, pl.Enum)
        columns = {column.name: column for column in table.iter_columns()}
        missing = [name for name, column in columns.items() if column.null_count()]
    except BaseException as problem:
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        table = (pq.read_table if is_parquet else pyarrow.feather.read_table)(path)
        table.validate(full=True)
        if len(set(table.column_names)) < table.num_columns:
            raise RefusedError("several columns of the same name") from None
        is_text = not pa.types.is_primitive(table.schema.types[0])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        missing = [name for name, column in columns.items() if column.null_count]
    numeric = list(columns)[is_text:]
    if set(missing) & set(numeric):
        raise RefusedError(f"missing values in {missing}") from None
    return np.stack([columns[name].to_numpy().astype(np.float64) for name in numeric], axis=1)


FORMATS = (
    Format("parquet", _make_parquet, _mutate_parquet, _parquet_header, _read_columns).kind(8000),
    Format("arrow", _make_arrow, _mutate_arrow, _arrow_header, _read_columns).kind(8000),
)

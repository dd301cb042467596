"""Small files that claim, or expand to, far more than they are: for memory and for time.

Each kind of bomb is drawn with another size, so that limits are met from both sides. It must be
refused by name, or read within the limits of time and memory.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import conenmf

from ..cases import Case, Ending, Kind, judged
from .arrays import npy_with_header
from .formats import ALLOWANCE, Document, write

_BUDGETS = ("64MB", "200MB", None)  # None: half of the memory of the machine
_EXTRA = 200 * 10**6 + ALLOWANCE


def _sizes(rng: np.random.Generator) -> int:
    """From harmless to absurd."""
    return int(10 ** rng.uniform(4, 10))


@cache
def _zeros(count: int, packing: int) -> bytes:
    """An archive with an array of so many zeros of 8 bytes."""
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (count, 1)}
    with (
        zipfile.ZipFile(stream, "w", packing, compresslevel=1) as archive,
        archive.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy_with_header(header, b""))
        for _ in range(0, 8 * count, 1 << 22):
            member.write(bytes(1 << 22))
    return stream.getvalue()


def _archive(rng: np.random.Generator) -> Document:
    packing = int(rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    return {"x.npz": _zeros(int(rng.choice([1 << 19, 1 << 22, 1 << 24])), packing)}


def _sparse_archive(rng: np.random.Generator) -> Document:
    sides = [2, _sizes(rng)]
    rng.shuffle(sides)
    stream = io.BytesIO()
    pointers = np.zeros(3 if sides[0] == 2 else 2, np.int64)
    np.savez(
        stream,
        data=np.ones(0),
        indices=np.zeros(0, np.int64),
        indptr=pointers,
        shape=np.array(sides),
        format=np.array("csr" if sides[0] == 2 else "csc"),
    )
    return {"x.npz": stream.getvalue()}


def _market(rng: np.random.Generator) -> Document:
    rows, columns = [(_sizes(rng), 2), (2, _sizes(rng))][int(rng.integers(2))]
    text = "%%MatrixMarket matrix coordinate real general\n"
    return {"x.mtx": f"{text}{rows} {columns} 2\n1 1 1.0\n2 2 3.0\n".encode()}


@cache
def _packed(beginning: bytes, repeated: bytes, times: int, end: bytes) -> bytes:
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1, mtime=0) as file:
        file.write(beginning)
        for _ in range(times):
            file.write(repeated)
        file.write(end)
    return stream.getvalue()


def _blank_lines(rng: np.random.Generator) -> Document:
    head = b"%%MatrixMarket matrix coordinate real general\n2 2 1\n"
    line = [b"\n", b"% \n", b" \n"][int(rng.integers(3))]
    times = int(rng.choice([1, 20, 100]))
    return {"x.mtx.gz": _packed(head, line * (1 << 20), times, b"1 1 1\n")}


def _long_line(rng: np.random.Generator) -> Document:
    field = [b"12,", b"1,", b",", b"1", b'"', b"\n", b"\r", b"1,2,3\n"][int(rng.integers(8))]
    times = int(rng.choice([1, 8, 60]))
    return {"x.csv.gz": _packed(b"1,2,3\n4,5,6\n", field * (1 << 20), times, b"1\n")}


def _long_field(rng: np.random.Generator) -> Document:
    digits = int(10 ** rng.uniform(2, 6))
    field = [b"1", b"0", b"1e", b"x", b'"', b"1."][int(rng.integers(6))] * digits
    lines = [b"a,b", b"1,2", *[b"3,4"] * int(rng.integers(0, 40))]
    lines.insert(int(rng.integers(len(lines) + 1)), field + b"x,3")
    return {"x.csv": b"\n".join(lines) + b"\n"}


def _matlab(rng: np.random.Generator) -> Document:
    import scipy.io
    import scipy.sparse as sp

    stream = io.BytesIO()
    scipy.io.savemat(stream, {"X": sp.csc_matrix(np.eye(3))})
    data = bytearray(stream.getvalue())
    data[160:164] = struct.pack("<I", min(_sizes(rng), 2**31 - 1))
    return {"x.mat": bytes(data)}


def _png(rows: int, columns: int) -> bytes:
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    packer = zlib.compressobj(1)
    pixels = b"".join(packer.compress(bytes(columns + 1)) for _ in range(rows)) + packer.flush()
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


_cached_png = cache(_png)


def _images(rng: np.random.Generator) -> Document:
    side = int(rng.choice([64, 1024, 4096]))
    image = _cached_png(side, side)
    return {f"x/{number}.png": image for number in range(int(rng.choice([2, 12])))}


def _comments(rng: np.random.Generator) -> Document:
    size = int(10 ** rng.uniform(3, 6.5))
    comment = [b"# c\n", b"#" + b"c" * 80 + b"\n"][int(rng.integers(2))]
    text = b"P2\n" + comment * (size // len(comment)) + b"2 2\n255\n1 2 3 4\n"
    return {"x/1.pgm": text, "x/2.pgm": text}


def _unwritten_zarr(rng: np.random.Generator) -> Document:
    rows, chunk = _sizes(rng), int(rng.choice([1, 1000, 10**6]))
    metadata = {
        "zarr_format": 2,
        "shape": [rows, 4],
        "chunks": [chunk, int(rng.choice([1, 4]))],
        "dtype": "<f8",
        "compressor": None,
        "fill_value": 1.0,
        "filters": None,
        "order": "C",
    }
    return {"x.zarr/.zarray": json.dumps(metadata).encode()}


def _unwritten_hdf5(rng: np.random.Generator) -> Document:
    import h5py

    stream = io.BytesIO()
    rows, chunk = _sizes(rng), int(rng.choice([1, 1000, 10**6]))
    with h5py.File(stream, "w") as file:
        file.create_dataset(
            "X", (rows, 4), "f8", chunks=(min(rows, chunk), 4), compression="gzip", fillvalue=1.0
        )
    return {"x.h5": stream.getvalue()}


@cache
def _named_table(length: int, count: int) -> Document:
    """Long names that are stored once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.DictionaryArray.from_arrays(np.zeros(count, "i4"), pa.array(["n" * length]))
    table = pa.table({"name": names, "a": np.ones(count), "b": np.arange(1.0, count + 1)})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="ZSTD")
    return {"x.parquet": stream.getvalue()}


def _names(rng: np.random.Generator) -> Document:
    return _named_table(int(rng.choice([10**3, 10**6, 10**7])), int(rng.choice([10, 60])))


@cache
def _named_cells(length: int, count: int) -> Document:
    import anndata
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.h5ad")
        anndata.AnnData(np.ones((count, 2), "f4")).write_h5ad(path)
        with h5py.File(path, "r+") as file:
            del file["obs/_index"]
            file["obs"].create_dataset("_index", data=np.full(count, b"n" * length), **_GZIP)
        return {"x.h5ad": path.read_bytes()}


_GZIP: dict[str, Any] = {"compression": "gzip", "chunks": (1,)}


def _cells(rng: np.random.Generator) -> Document:
    return _named_cells(int(rng.choice([10**3, 10**6, 10**7])), int(rng.choice([2, 20])))


BOMBS: dict[str, Callable[[np.random.Generator], Document]] = {
    "archive": _archive,
    "sparse archive": _sparse_archive,
    "market": _market,
    "blank lines": _blank_lines,
    "long line": _long_line,
    "long field": _long_field,
    "matlab": _matlab,
    "images": _images,
    "comments": _comments,
    "unwritten zarr": _unwritten_zarr,
    "unwritten hdf5": _unwritten_hdf5,
    "names": _names,
    "cells": _cells,
}


def _attack(case: Case) -> Ending:
    name = case.pick(list(BOMBS))
    document = BOMBS[name](case.rng)
    write(document, case.folder)
    path = case.folder / next(iter(document)).split("/")[0]
    size = sum(len(data) for data in document.values())
    budget = case.pick(_BUDGETS)
    note = f"{name} of {size} bytes, max_memory={budget}"
    case.report(None)
    try:
        V = conenmf.open_data(path, max_memory=budget, n_threads=1)
        conenmf.factorize(V, 1, init="random", max_iter=1, rng=np.random.default_rng(0))
    except Exception as problem:
        ending = judged(problem)
        return Ending(ending.outcome, f"{note}: {ending.note}"[:300])
    return Ending("accepted", f"{note}: {V.shape}")


KINDS = (Kind("bombs", "files", _attack, default=300, batch=5, extra_memory=_EXTRA),)

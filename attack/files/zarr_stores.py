"""Zarr: versions 2 and 3, shards, AnnData, many codecs.

Metadata are changed as JSON, so that they stay JSON; chunks as they are stored, in the fields of
the headers of their codecs, or unpacked, changed and packed again, so that checksums are right.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
import zarr.codecs

from ..mutations import INTEGERS, Rng, mutated, mutated_json, packed
from .arrays import sparse_of
from .formats import Document, Format, Link, Pipe, pick, read_document, small_matrix
from .hdf5 import make_anndata

_METADATA = (".json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_VERSION_2: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "blosc": lambda: numcodecs.Blosc("lz4"),
    "blosc-zstd": lambda: numcodecs.Blosc("zstd"),
    "blosclz": lambda: numcodecs.Blosc("blosclz", shuffle=numcodecs.Blosc.BITSHUFFLE),
    "zstd": lambda: numcodecs.Zstd(),
    "gzip": lambda: numcodecs.GZip(),
    "zlib": lambda: numcodecs.Zlib(),
    "lz4": lambda: numcodecs.LZ4(),
    "bz2": lambda: numcodecs.BZ2(),
    "lzma": lambda: numcodecs.LZMA(),
}
_VERSION_3: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "blosc": lambda: zarr.codecs.BloscCodec(cname="lz4"),
    "blosc-zstd": lambda: zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle"),
    "gzip": lambda: zarr.codecs.GzipCodec(),
    "zstd": lambda: zarr.codecs.ZstdCodec(checksum=True),
    "crc32c": lambda: zarr.codecs.Crc32cCodec(),
}
_PACKERS = {name: make for name, make in _VERSION_2.items() if name != "none"}


def _make(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng, pick(rng, ("f8", "f4", "i4", "u1")))
    chunks = tuple(max(1, -(-side // int(rng.integers(1, 4)))) for side in X.shape)
    version = 2 if rng.random() < 0.45 else 3
    codecs = _VERSION_2 if version == 2 else _VERSION_3
    options: dict[str, Any] = {"compressors": codecs[pick(rng, list(codecs))]()}
    if version == 3 and rng.random() < 0.4:
        options["shards"] = tuple(2 * side for side in chunks)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "x.zarr")
        inside = path / "X" if rng.random() < 0.3 else path
        if inside != path:
            zarr.create_group(str(path), zarr_format=version)
        array = zarr.create_array(
            str(inside),
            shape=X.shape,
            chunks=chunks,
            dtype=X.dtype,
            zarr_format=version,
            **options,
        )
        array[:] = X
        return "x.zarr", read_document(Path(folder))


def _make_anndata(rng: Rng) -> tuple[str, Document]:
    import anndata

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.settings.zarr_write_format = 2 if rng.random() < 0.5 else 3
        make_anndata(rng).write_zarr(Path(folder, "x.zarr"))
        return "x.zarr", read_document(Path(folder))


def _mutate(document: Document, rng: Rng) -> Document:
    files = [name for name, data in document.items() if isinstance(data, bytes)]
    if not files:
        return document
    metadata = [name for name in files if name.endswith(_METADATA)]
    chunks = [name for name in files if name not in metadata] or files
    what = rng.random()
    if what < 0.35 and metadata:
        name = pick(rng, metadata)
        change = mutated if rng.random() < 0.15 else mutated_json
        document[name] = change(document[name], rng)
    elif what < 0.92:
        name = pick(rng, chunks)
        document[name] = mutated_chunk(document[name], rng)
    elif what < 0.95:
        del document[pick(rng, files)]
    elif what < 0.97:
        document[f"x.zarr/{pick(rng, ('c/0/9', '9.9', 'zarr.json', '.zarray', 'Y/0'))}"] = b"{}"
    else:
        name = pick(rng, files)
        target = pick(rng, ("/etc/hostname", "/dev/zero", "../../outside", Path(name).name))
        document[name] = Pipe() if rng.random() < 0.4 else Link(target)
    return _without_conflicts(document)


def _without_conflicts(document: Document) -> Document:
    """Leave out files below what is a file itself."""
    folders = {str(parent) for name in document for parent in Path(name).parents}
    return {name: data for name, data in document.items() if name not in folders}


def mutated_chunk(data: bytes, rng: Rng) -> bytes:
    """Change a chunk as it is stored, its header, or its numbers."""
    what = rng.random()
    if what < 0.2 and _may_decode("blosc", data):
        return _mutated_blosc(data, rng)
    if what < 0.3:
        return mutated(data, rng)
    if what < 0.55 and len(data) >= 24:  # the header of a codec, blosc's sizes among them
        at = int(pick(rng, (0, 4, 8, 12, 16, 20, len(data) - 4, len(data) - 8)))
        value = pick(rng, (*INTEGERS, int.from_bytes(data[at : at + 4], "little") + 1))
        return data[:at] + packed("<I", value) + data[at + 4 :]
    for make in _PACKERS.values():
        codec = make()
        if not _may_decode(codec.codec_id, data):
            continue
        try:
            plain = bytes(codec.decode(data))
            return bytes(codec.encode(np.frombuffer(mutated(plain, rng), np.uint8)))
        except Exception:  # packed with another codec
            continue
    return mutated(data, rng)


def _mutated_blosc(data: bytes, rng: Rng) -> bytes:
    """Change fields of the header: versions, flags, size of type; lengths; starts of blocks."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.4:
            at = int(rng.integers(4))
            changed[at] = int(pick(rng, (0, 1, 2, 255, changed[at] ^ (1 << int(rng.integers(8))))))
            continue
        at = int(pick(rng, (4, 8, 12, 16, 20)))
        value = int.from_bytes(changed[at : at + 4], "little")
        near = (value + 1, value - 1, value + 4, value // 2, 2 * value, len(data), len(data) - 1)
        changed[at : at + 4] = packed("<I", int(pick(rng, (*near, *INTEGERS))))
    return bytes(changed[: len(data)])


def _may_decode(codec: str, data: bytes) -> bool:
    """Whether the chunk looks like one of this codec: decoders crash on others."""
    magic = {"zstd": b"\x28\xb5\x2f\xfd", "gzip": b"\x1f\x8b", "bz2": b"BZh", "lzma": b"\xfd7zXZ"}
    if codec == "blosc":
        return (
            len(data) > 16 and data[0] == 2 and int.from_bytes(data[12:16], "little") == len(data)
        )
    if codec == "lz4":
        return len(data) > 4 and int.from_bytes(data[:4], "little") < 1 << 16
    return data.startswith(magic.get(codec, b"\x78"))


def _header(path: Path) -> Any:
    if any(file.is_fifo() or file.is_symlink() for file in path.rglob("*")):
        return None  # the metadata of the library were made of regular files
    root = zarr.open(str(path), mode="r")
    array = root if isinstance(root, zarr.Array) else root["X"]
    return getattr(array, "shape", None) or dict(array.attrs)


def _read(path: Path, V: Any) -> Any:
    root = zarr.open(str(path), mode="r")
    if isinstance(root, zarr.Array):
        return root[:].reshape(-1, root.shape[-1])
    names = sorted(root.keys())
    member = root["X"] if "X" in names else root[names[0]]
    if isinstance(member, zarr.Array):
        return member[:].reshape(-1, member.shape[-1])
    parts = [member[name][:] for name in ("data", "indices", "indptr")]
    shape = tuple(int(side) for side in member.attrs["shape"])
    return sparse_of(parts, shape, str(member.attrs.get("encoding-type", "csr"))[:3])


FORMATS = (
    Format("zarr", _make, _mutate, _header, _read).kind(10000),
    Format("zarr-anndata", _make_anndata, _mutate, _header, _read).kind(2000),
)

"""Codecs of Zarr: which of them are used, and checks of every chunk before it is decoded.

Decoders are native code that trusts the header of a chunk: it says how much memory to allocate,
and where to read. A false size in a chunk of Blosc ends the process (numcodecs 0.16). So a check is
put before each decoder, also inside shards; nothing is changed in the libraries themselves.
"""

from __future__ import annotations

import asyncio
import bz2
import importlib
import lzma
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from ...errors import FileFormatError
from .limits import listed

__all__ = ["check_codecs", "with_checked_chunks"]

Inspection: TypeAlias = Callable[[memoryview], bytes | None]
"""Takes a chunk, and returns it decoded, or None if it may be left to its decoder."""

_CODECS = {  # none of them runs code that comes with the data, or reads beyond it
    *("bytes", "endian", "transpose", "sharding_indexed", "crc32c"),
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", "pcodec"),
    *("bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle", "astype"),
    *("adler32", "crc32", "fletcher32", "jenkins_lookup3", "vlen-utf8", "vlen-bytes"),
}
_HARMLESS_CHUNK_BYTES = 64 << 20  # that a chunk of any size may decode to
_MAX_WIDENING = 8  # by filters: of numbers of one byte, differences may be kept in eight
_TEXT_BYTES = 32  # of a text, of which the type does not tell the length; with widening, 256
_ZSTD_BLOCK_BYTES = 128 << 10  # that a compressed block decodes to at most
_BLOSC_HEADER_BYTES = 16
_MAX_DEPTH = 32  # of settings


def check_codecs(settings: Any, name: str) -> None:
    """Refuse an array whose settings name other codecs than those that only compress numbers."""
    others = set(_codecs(settings)) - _CODECS
    if others:
        raise FileFormatError(
            f"{name} is encoded with {listed(sorted(others))}, which is not among the codecs that "
            "can be decoded safely: store it with one of those, such as zstd"
        )


def _codecs(settings: Any, depth: int = 0) -> Iterator[str]:
    """The names of all codecs in the settings of an array."""
    if depth > _MAX_DEPTH:
        raise FileFormatError("its settings are nested too deeply")
    if isinstance(settings, dict):
        for key, value in settings.items():
            if key in ("codecs", "index_codecs", "filters", "compressor", "compressors"):
                for codec in value if isinstance(value, list | tuple) else [value]:
                    if isinstance(codec, dict):
                        name = str(codec.get("name", codec.get("id", codec)))
                        yield name.removeprefix("numcodecs.")
            if key != "attributes":
                yield from _codecs(value, depth + 1)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _codecs(value, depth + 1)


# --- arrays whose chunks are checked ----------------------------------------------------------


def with_checked_chunks(array: Any) -> Any:
    """Return the same array, to be read, with a check before each of its decoders."""
    zarr = importlib.import_module("zarr")
    metadata = array.metadata
    dtype = np.dtype(array.dtype)
    itemsize = dtype.itemsize if dtype.kind in "fiub" else max(dtype.itemsize, _TEXT_BYTES)
    with warnings.catch_warnings():  # Zarr's, about codecs beyond its standard, were given before
        warnings.simplefilter("ignore")
        if metadata.zarr_format == 2:
            checked = _checked_filters(metadata, itemsize)
        else:
            codecs = _checked_codecs(metadata.codecs, metadata.chunk_grid.chunk_shape, itemsize)
            checked = replace(metadata, codecs=codecs)
        return zarr.Array(zarr.AsyncArray(checked, array.store_path))


def _checked_filters(metadata: Any, itemsize: int) -> Any:
    """Settings of version 2, in which the last filter takes the place of the compressor."""
    most = _most_bytes(metadata.chunks, itemsize)
    filters: list[Any] = []
    for codec in (*(metadata.filters or ()), metadata.compressor):
        if codec is not None:
            inspection, is_decoder = _inspection(codec.codec_id, codec.get_config(), most)
            filters += [] if is_decoder else [codec]
            filters += [] if inspection is None else [_filter_class()(inspection)]
    return replace(metadata, filters=tuple(filters) or None, compressor=None)


def _checked_codecs(codecs: Any, chunk: tuple[int, ...], itemsize: int) -> tuple[Any, ...]:
    """Codecs of version 3, and those inside of shards."""
    most, checked = _most_bytes(chunk, itemsize), []
    for codec in codecs:
        if hasattr(codec, "index_codecs"):
            inner = _checked_codecs(codec.codecs, codec.chunk_shape, itemsize)
            checked.append(replace(codec, codecs=inner))
            continue
        settings = codec.to_dict()
        name = str(settings["name"]).removeprefix("numcodecs.")
        inspection, is_decoder = _inspection(name, settings.get("configuration", {}), most)
        checked += [] if is_decoder else [codec]
        checked += [] if inspection is None else [_codec_class()(inspection)]
    return tuple(checked)


def _most_bytes(chunk: tuple[int, ...], itemsize: int) -> int:
    """How many bytes a chunk may decode to, at any stage."""
    size = int(np.prod(chunk, dtype=object)) * itemsize
    return max(_HARMLESS_CHUNK_BYTES, _MAX_WIDENING * size)


@cache
def _filter_class() -> Any:
    """A codec of numcodecs that only checks; the library is imported when it is needed."""
    base: Any = importlib.import_module("numcodecs.abc").Codec

    class Check(base):  # type: ignore[misc]
        codec_id = "conenmf-check"

        def __init__(self, inspection: Inspection) -> None:
            self._inspection = inspection

        def encode(self, buf: Any) -> Any:
            return buf

        def decode(self, buf: Any, out: Any = None) -> Any:
            decoded = self._inspection(_bytes_of(buf))
            return buf if decoded is None else decoded

        def get_config(self) -> dict[str, str]:
            return {"id": self.codec_id}

    return Check


@cache
def _codec_class() -> Any:
    """A codec of Zarr 3 that only checks."""
    base: Any = importlib.import_module("zarr.abc.codec").BytesBytesCodec

    class Check(base):  # type: ignore[misc]
        is_fixed_size = False

        def __init__(self, inspection: Inspection) -> None:
            self._inspection = inspection

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            raise NotImplementedError

        async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
            data = _bytes_of(chunk_data.as_numpy_array())
            decoded = await asyncio.to_thread(self._inspection, data)
            if decoded is None:
                return chunk_data
            return chunk_spec.prototype.buffer.from_bytes(decoded)

    return Check


def _bytes_of(buffer: Any) -> memoryview:
    return memoryview(np.ascontiguousarray(np.frombuffer(buffer, np.uint8)))  # type: ignore[arg-type]


# --- chunks -----------------------------------------------------------------------------------


def _inspection(codec: str, settings: Any, most: int) -> tuple[Inspection | None, bool]:
    """The check for a codec, if there is one, and whether it decodes too."""
    if codec in _CHECKS:
        return partial(_CHECKS[codec], most=most), False
    makers: dict[str, Callable[[], Any]] = {
        "zlib": zlib.decompressobj,
        "gzip": partial(zlib.decompressobj, 16 + zlib.MAX_WBITS),
        "bz2": bz2.BZ2Decompressor,
        "lzma": partial(
            lzma.LZMADecompressor,
            format=settings.get("format", lzma.FORMAT_XZ),
            filters=settings.get("filters"),
        ),
    }
    if codec in makers:
        return partial(_decompressed, make=makers[codec], codec=codec, most=most), True
    return None, False


def _decompressed(data: memoryview, *, make: Callable[[], Any], codec: str, most: int) -> bytes:
    """A chunk unpacked; never more than it may hold."""
    parts, size, rest = [], 0, bytes(data)
    while rest:  # there may be several streams, one after the other
        decompressor = make()
        parts.append(decompressor.decompress(rest, most - size + 1))
        size += len(parts[-1])
        if size > most:
            raise _false_size(codec, size, most)
        if not decompressor.eof:
            raise FileFormatError(f"a chunk ({codec}) is truncated")
        rest = decompressor.unused_data
    return b"".join(parts)


def _check_blosc(data: memoryview, *, most: int) -> None:
    """Compare the sizes in the header, and where its blocks begin, with the chunk."""
    if len(data) < _BLOSC_HEADER_BYTES:
        raise FileFormatError("a chunk (blosc) is truncated")
    _, _, flags, typesize, size, block, stored = struct.unpack("<BBBBIII", data[:16])
    if size > most:
        raise _false_size("blosc", size, most)
    is_valid = stored == len(data)
    if flags & 2:  # copied as it is
        is_valid = is_valid and size + _BLOSC_HEADER_BYTES == stored
    elif size:
        is_valid = is_valid and 0 < block <= max(size, 1) and typesize > 0
        n_blocks = -(-size // block) if is_valid else 0
        first = _BLOSC_HEADER_BYTES + 4 * n_blocks
        is_valid = is_valid and first <= stored
        if is_valid:
            starts = np.frombuffer(data[_BLOSC_HEADER_BYTES:first], "<u4")
            is_valid = bool(((starts >= first) & (starts <= stored - 4)).all()) and stored >= 4
    if not is_valid:
        raise FileFormatError(
            f"a chunk (blosc) does not hold what its header claims: {size} bytes in blocks of "
            f"{block}, compressed to {stored}; it has {len(data)}"
        )


def _check_lz4(data: memoryview, *, most: int) -> None:
    """Check the size that stands before the numbers."""
    if len(data) < 4:
        raise FileFormatError("a chunk (lz4) is truncated")
    (size,) = struct.unpack("<I", data[:4])
    if size > most:
        raise _false_size("lz4", size, most)


def _check_texts(data: memoryview, *, most: int) -> None:
    """Compare the number of texts with the bytes: the length of each takes four."""
    (count,) = struct.unpack("<I", data[:4]) if len(data) >= 4 else (1 << 32,)
    if count > (len(data) - 4) // 4:
        raise FileFormatError(f"a chunk claims {count} texts in {len(data)} bytes")


def _check_zstd(data: memoryview, *, most: int) -> None:
    """Check the size in the header of a frame; if it has none, what its blocks may decode to."""
    at = 0
    while bytes(data[at + 1 : at + 4]) == b"\x2a\x4d\x18":  # a frame that is skipped
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    size = 0
    while bytes(data[at : at + 4]) == b"\x28\xb5\x2f\xfd" and at + 5 <= len(data):
        flags = data[at + 4]
        is_single = flags >> 5 & 1
        size_bytes = (is_single, 2, 4, 8)[flags >> 6]
        at += 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
        if size_bytes:
            claimed = int.from_bytes(data[at : at + size_bytes], "little")
            if claimed + 256 * (size_bytes == 2) > most:
                raise _false_size("zstd", claimed, most)
            return  # memory for so many is allocated, and no more
        is_last = 0
        while not is_last and at + 3 <= len(data):
            block = int.from_bytes(data[at : at + 3], "little")
            is_last, kind, length = block & 1, block >> 1 & 3, block >> 3
            size += _ZSTD_BLOCK_BYTES if kind == 2 else length
            at += 3 + (1 if kind == 1 else length)
            if size > most:
                raise _false_size("zstd", size, most)
        at += 4 * (flags >> 2 & 1)


def _false_size(codec: str, size: int, most: int) -> FileFormatError:
    return FileFormatError(
        f"a chunk ({codec}) claims {size} bytes or more, where at most {most} are expected"
    )


_CHECKS: dict[str, Callable[..., None]] = {
    "blosc": _check_blosc,
    "lz4": _check_lz4,
    "vlen-utf8": _check_texts,
    "vlen-bytes": _check_texts,
    "zstd": _check_zstd,
}

"""The messages of an Arrow file: how much memory each takes, before the library unpacks it.

A file is a sequence of messages (schema, dictionaries, batches of rows): a description, then a body
of buffers. Some files have a table of contents at their end, which is all that a reader follows.
Of a compressed buffer the first eight bytes say how long it is unpacked, and the library allocates
that much; a kilobyte can claim, and with zstd hold, any amount. Descriptions are flatbuffers:
tables whose fields are found through a list of offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ...errors import FileFormatError
from .limits import check_expansion, check_fits

__all__ = ["check_messages"]

_MAX_DESCRIPTION_BYTES = 256 << 20
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
# Which field of its table holds what.
_HEADER_KIND, _HEADER, _BODY_LENGTH = 1, 2, 3
_DICTIONARY_BATCH = 1
_BUFFERS, _COMPRESSION = 2, 3
_DICTIONARY_PLACES, _BATCH_PLACES = 2, 3  # of the table of contents at the end of a file
_MARK = b"ARROW1"  # at the beginning and the end of a file; a stream has none
_OLD_COMPRESSION = b"ARROW:experimental_compression"  # where version 0.17 named it


def check_messages(path: Path, stream: IO[bytes], budget: int) -> None:
    """Refuse messages that unpack to more than their bytes can hold, or than fits in memory.

    Bodies are skipped, but for the lengths in them.
    """
    kept, stored = 0, 0
    for description in _descriptions(path, stream):
        message = _Table(description, _offset(description, 0))
        body, length = stream.tell(), message.integer(_BODY_LENGTH)
        kind, header = message.byte(_HEADER_KIND), message.table(_HEADER)
        end = body + length
        if length < 0 or end > path.stat().st_size:
            raise FileFormatError(f"{path} is truncated: copy or download it again")
        if kind == _DICTIONARY and header is not None:
            header = header.table(_DICTIONARY_BATCH)
        if kind in (_DICTIONARY, _BATCH) and header is not None:
            size = length
            if header.table(_COMPRESSION) is not None or _OLD_COMPRESSION in description:
                size = sum(_unpacked_lengths(stream, body, length, header.pairs(_BUFFERS)))
            kept += size if kind == _DICTIONARY else 0
            stored += length
            check_expansion(path, stored, kept + size)
            check_fits(f"a batch of {path}", size, budget, "it has to be read as a whole")
        stream.seek(end)


def _descriptions(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """The descriptions of all messages; after each the stream stands at its body."""
    stream.seek(0)
    if stream.read(len(_MARK)) != _MARK:  # a stream: one after the other
        stream.seek(0)
        while (description := _description(path, stream)) is not None:
            yield description
        return
    stream.seek(-len(_MARK) - 4, 2)
    size = int.from_bytes(stream.read(4), "little", signed=True)
    if not 0 < size <= min(_MAX_DESCRIPTION_BYTES, path.stat().st_size - 2 * len(_MARK) - 4):
        raise FileFormatError(f"{path} is damaged or truncated: copy or download it again")
    stream.seek(-len(_MARK) - 4 - size, 2)
    content = stream.read(size)
    contents = _Table(content, _offset(content, 0))
    for field in (_DICTIONARY_PLACES, _BATCH_PLACES):
        for place in contents.places(field):
            stream.seek(place)
            if (description := _description(path, stream)) is not None:
                yield description


def _description(path: Path, stream: IO[bytes]) -> bytes | None:
    """The next description; None at the end."""
    mark = stream.read(4)
    if mark == b"\xff\xff\xff\xff":  # which files of before 2019 lack
        mark = stream.read(4)
    size = int.from_bytes(mark, "little", signed=True)
    if len(mark) < 4 or size == 0:
        return None
    if not 0 < size <= _MAX_DESCRIPTION_BYTES or len(content := stream.read(size)) < size:
        raise FileFormatError(f"{path} is damaged or truncated: copy or download it again")
    return content


def _unpacked_lengths(
    stream: IO[bytes], body: int, length: int, buffers: Iterator[tuple[int, int]]
) -> Iterator[int]:
    for place, size in buffers:
        if not 0 <= place <= place + size <= length:
            raise FileFormatError("a buffer lies outside of its message")
        if size >= 8:
            stream.seek(body + place)
            unpacked = int.from_bytes(stream.read(8), "little", signed=True)
            if unpacked < -1:
                raise FileFormatError(f"a buffer claims {unpacked} bytes")
            yield size if unpacked == -1 else unpacked  # -1: it is not compressed


def _offset(content: bytes, at: int) -> int:
    (offset,) = struct.unpack_from("<I", content, at)
    return at + int(offset)


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at
        (back,) = struct.unpack_from("<i", content, at)
        self._fields = at - int(back)
        if at < 0 or self._fields < 0:
            raise FileFormatError("a description leads out of itself")
        (self._size,) = struct.unpack_from("<H", content, self._fields)

    def _place(self, field: int) -> int | None:
        """Where a field is stored; None if it is left out."""
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = struct.unpack_from("<H", self._content, self._fields + entry)
        return self._at + int(offset) if offset else None

    def byte(self, field: int) -> int:
        at = self._place(field)
        return 0 if at is None else self._content[at]

    def integer(self, field: int) -> int:
        at = self._place(field)
        return 0 if at is None else int(struct.unpack_from("<q", self._content, at)[0])

    def table(self, field: int) -> _Table | None:
        at = self._place(field)
        return None if at is None else _Table(self._content, _offset(self._content, at))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A list of pairs of integers."""
        for at in self._items(field, 16):
            yield struct.unpack_from("<qq", self._content, at)

    def places(self, field: int) -> Iterator[int]:
        """A list of places in the file, each with two lengths."""
        for at in self._items(field, 24):
            (place,) = struct.unpack_from("<q", self._content, at)
            yield int(place)

    def _items(self, field: int, size: int) -> Iterator[int]:
        """Where the items of a list are stored."""
        at = self._place(field)
        if at is not None:
            at = _offset(self._content, at)
            (count,) = struct.unpack_from("<I", self._content, at)
            yield from range(at + 4, at + 4 + size * int(count), size)

"""The messages of an Arrow file: how much memory each takes, before the library unpacks it.

A file is a sequence of messages (schema, dictionaries, batches of rows): a description, then a body
of buffers. Of a compressed buffer the first eight bytes say how long it is unpacked, and the
library allocates that much; a kilobyte can claim, and with zstd hold, any amount. Descriptions are
flatbuffers: tables whose fields are found through a list of offsets.
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
_OLD_COMPRESSION = b"ARROW:experimental_compression"  # where version 0.17 named it


def check_messages(path: Path, stream: IO[bytes], budget: int) -> None:
    """Refuse messages that unpack to more than their bytes can hold, or than fits in memory.

    The stream stands at the first message; bodies are skipped, but for the lengths in them.
    """
    kept, stored = 0, 0
    while (description := _description(path, stream)) is not None:
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
        at = self._place(field)
        if at is None:
            return
        at = _offset(self._content, at)
        (count,) = struct.unpack_from("<I", self._content, at)
        for number in range(count):
            yield struct.unpack_from("<qq", self._content, at + 4 + 16 * number)

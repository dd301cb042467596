"""The lines of a text, read block by block: none is too long, and each of them is a row.

Parsers of CSV may see other rows than lines: they end a row at a carriage return, and continue it
over the end of a line inside quotes. Then a stray sign loses or shifts rows in silence. So here a
carriage return has to be before the end of a line, and a quote where a field begins or ends, on one
line; anything else is an error that names the line. What is left has one row on each line that is
not empty, for every parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ...errors import FileFormatError, Message, Option
from ..blocks import Array
from .spool import batch_bytes

__all__ = ["Block", "Lines", "check_fields"]

MAX_COLUMNS = 1_000_000
MAX_FIELD_BYTES = 1 << 17  # as in Python's module csv
_WINDOW_BYTES = MAX_FIELD_BYTES // 2  # a longer field fills a window of that size
_STEP_BYTES = 2 * MAX_FIELD_BYTES  # of a line at a time: every step ends a field
_PIECE_BYTES = 1 << 18
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
TOO_MANY_COLUMNS = f"more than {MAX_COLUMNS} columns: save it as .npy"
_TOO_LONG_FIELD = f"a field of more than {MAX_FIELD_BYTES} bytes: shorten it"
_STRAY_QUOTE = (
    "a quote that does not begin or end a field: put quotes around a whole field, on one line, and "
    "write a quote inside of it twice"
)


def _max_line_bytes(budget: int) -> int:
    return min(max(budget // 16, 1 << 20), 256 << 20)


class Block(NamedTuple):
    """Some whole lines, the number of the first of them, and how many ends of lines there are."""

    number: int
    text: bytes
    ends: int

    @classmethod
    def of(cls, number: int, text: bytes) -> Block:
        """Count the lines of a text; NumPy does it faster than `bytes.count`."""
        ends = sum(np.count_nonzero(part == _NEWLINE) for _, part in _pieces(_signs(text)))
        return cls(number, text, int(ends))

    def line_at(self, place: int) -> int:
        """The number of the line at a place of the text."""
        return self.number + self.text.count(b"\n", 0, place)

    def has_rows(self, count: int) -> bool:
        """Whether so many rows are one for each line that is not empty."""
        lines = self.ends + (self.text[-1:] not in (b"", b"\n"))
        return count == lines or count == lines - self._empty()

    def _empty(self) -> int:
        signs = _signs(self.text)
        ends = _places(signs, _NEWLINE)
        lengths: Array = np.diff(ends, prepend=-1)
        returns = (lengths == 2) & (signs[ends - 1] == _RETURN)
        return int(((lengths == 1) | returns).sum())


def _signs(text: bytes) -> Array:
    return np.frombuffer(text, np.uint8)


def _pieces(signs: Array) -> Iterator[tuple[int, Array]]:
    """Parts of a text whose comparisons stay in the cache; fresh memory would cost more."""
    for start in range(0, signs.size, _PIECE_BYTES):
        yield start, signs[start : start + _PIECE_BYTES]


def _places(signs: Array, sign: int) -> Array:
    """Where a sign is in a text."""
    found = [np.flatnonzero(part == sign) + start for start, part in _pieces(signs)]
    return np.concatenate(found) if found else np.empty(0, np.intp)


class Lines:
    """Reads a text, line by line and then in blocks of lines.

    Parameters
    ----------
    stream : the text
    path : Path
        Where it comes from, for messages.
    budget : int
        Memory in bytes; a line takes at most a sixteenth of it.
    """

    def __init__(self, stream: IO[bytes], path: Path, budget: int) -> None:
        self._stream, self._path, self._budget = stream, path, budget
        self._number = 1

    def next(self, delimiters: bytes) -> bytes:
        """The next line, whose delimiter is one of these; empty at the end of the text."""
        return self._checked(self._rest(b"", delimiters)).text

    def blocks(self, delimiter: bytes) -> Iterator[Block]:
        """Blocks of the lines that follow."""
        while text := self._stream.read(batch_bytes(self._budget)):
            if not text.endswith(b"\n"):
                text += self._rest(text, delimiter)
            block = self._checked(text)
            check_fields(self._path, block, delimiter, thorough=False)
            yield block

    def _rest(self, text: bytes, delimiters: bytes) -> bytes:
        """The rest of the last line of a text; one that is too large is not read to its end."""
        max_bytes = _max_line_bytes(self._budget)
        beginning = text[text.rfind(b"\n") + 1 :]
        counts = {sign: beginning.count(sign) for sign in delimiters}
        parts, size = [beginning], len(beginning)
        while not parts[-1].endswith(b"\n") and (part := self._stream.readline(_STEP_BYTES)):
            parts.append(part)
            size += len(part)
            if size > max_bytes:
                number = self._number + text.count(b"\n")
                raise FileFormatError(
                    Message(
                        f"{self._path}: line {number} has more than {max_bytes} bytes: if that is "
                        "right, raise ",
                        Option("max_memory"),
                    )
                )
            totals = {sign: count + part.count(sign) for sign, count in counts.items()}
            # A delimiter that is not in a whole step would make too long a field.
            is_whole = len(part) == _STEP_BYTES
            counts = {
                sign: total
                for sign, total in totals.items()
                if total < MAX_COLUMNS and not (is_whole and total == counts[sign])
            }
            if not counts:
                number = self._number + text.count(b"\n")
                is_wide = max(totals.values()) >= MAX_COLUMNS
                what = TOO_MANY_COLUMNS if is_wide else _TOO_LONG_FIELD
                raise FileFormatError(f"{self._path}: line {number} has {what}")
        return b"".join(parts[1:])

    def _checked(self, text: bytes) -> Block:
        """Lines without zero bytes, and with carriage returns before their ends only."""
        block = Block.of(self._number, text)
        if b"\0" in text:
            raise FileFormatError(
                f"{self._path} holds zero bytes, so it is not text: save it as UTF-8"
            )
        if b"\r" in text:
            signs = _signs(text)
            returns = _places(signs, _RETURN)
            alone = returns[signs[np.minimum(returns + 1, len(text) - 1)] != _NEWLINE]
            if alone.size:
                raise FileFormatError(
                    f"{self._path}: line {block.line_at(int(alone[0]))} has a carriage return "
                    "alone: end lines with a newline"
                )
        self._number += block.ends
        return block


def check_fields(name: object, block: Block, delimiter: bytes, *, thorough: bool = True) -> None:
    """Refuse quotes that do not begin or end a field, and fields that are too long.

    Whether a line ends inside of quotes, which costs as much as the rest, has to be looked at only
    if a parser does not find a row on each line.
    """
    fault = _fault_of_quotes(block.text, delimiter, thorough)
    if fault is not None and not thorough:  # the first fault may be a line that ended in quotes
        fault = _fault_of_quotes(block.text, delimiter, True)
    fault = fault or _long_field(block.text, delimiter)
    if fault is not None:
        place, what = fault
        advice: tuple[object, ...] = ()
        if what == _STRAY_QUOTE:
            advice = ("; a column of texts is read with ", Option("text_column"))
        raise FileFormatError(Message(f"{name}: line {block.line_at(place)} has {what}", *advice))


def _fault_of_quotes(text: bytes, delimiter: bytes, with_ends: bool) -> tuple[int, str] | None:
    """Where the first quote is that does not belong to a field in quotes on one line."""
    if b'"' not in text:
        return None
    signs = _signs(text if text.endswith(b"\n") else text + b"\n")
    quotes = _places(signs, _QUOTE)
    # Every second quote closes what the one before it opened. A quote inside of a field is written
    # twice, so it closes the field and opens it again.
    openers, closers = quotes[::2], quotes[1::2]
    again = closers[: openers.size - 1] + 1 == openers[1:]
    borders = np.zeros(256, bool)
    borders[[ord(delimiter), _NEWLINE, _RETURN]] = True
    begins, stops = borders[signs[openers - 1]], borders[signs[closers + 1]]
    begins[1:] |= again
    stops[: again.size] |= again
    stray = np.concatenate([openers[~begins], closers[~stops], openers[closers.size :]])
    if with_ends:
        ends = _places(signs, _NEWLINE)
        stray = np.append(stray, ends[np.searchsorted(quotes, ends) % 2 == 1])
    long = openers[: closers.size][closers - openers[: closers.size] > MAX_FIELD_BYTES]
    faults = ((stray, _STRAY_QUOTE), (long, _TOO_LONG_FIELD))
    return min(((int(places.min()), what) for places, what in faults if places.size), default=None)


def _long_field(text: bytes, delimiter: bytes) -> tuple[int, str] | None:
    """Where a field without quotes is that is too long; it fills a window, in which none ends."""
    for start in range(0, len(text) - _WINDOW_BYTES + 1, _WINDOW_BYTES):
        window = start, start + _WINDOW_BYTES
        if text.find(delimiter, *window) < 0 and text.find(b"\n", *window) < 0:
            ends = [text.find(sign, window[1]) for sign in (delimiter, b"\n")]
            end = min((end for end in ends if end >= 0), default=len(text))
            begin = max(text.rfind(delimiter, 0, start), text.rfind(b"\n", 0, start)) + 1
            if end - begin > MAX_FIELD_BYTES:
                return start, _TOO_LONG_FIELD
    return None

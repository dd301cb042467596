"""Tables written as text, with one row on each line, parsed by pyarrow.

A text is read once, from its beginning to its end, some megabytes at a time. It is cut into blocks
of lines by `lines`, not by pyarrow's streaming reader, so that memory is bounded for lines of any
length and any number of columns, and errors name the line of the file. Every block has to give as
many rows as it has lines.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import EmptyDataError, FileFormatError, HeaderWarning, Message, Option
from ...names import Names
from ...text import visible
from ..blocks import Array
from .columns import ColumnChoice, remark_on_columns
from .dialects import DELIMITERS, MISSING_TEXTS, Dialect, fault, guess
from .limits import named_damage, require_package
from .lines import Block, Lines, check_fields
from .sources import NamedMatrix, Remark
from .spool import RowNames, Spool

__all__ = ["open_text"]

_Parser: TypeAlias = Callable[[bytes], tuple[Any, Array]]

_HEAD_LINES = 20  # from which the dialect is guessed ...
_HEAD_BYTES = 1 << 20  # ... or fewer lines, if they are long
_MAX_PARSED_COLUMNS = 200  # each costs more than its numbers: more are parsed as a single one
_MAX_EMPTY_LINES = 10_000  # before the first row
_SMALL_BYTES = 1 << 20  # of text that Python's own parser looks through for a fault
_MAX_REASON_CHARS = 100  # of what the parser says, which quotes the text
_QUOTED = re.compile(rb'"([^"]*+(?:""[^"]*+)*+)"')


def _decoded(text: bytes, path: Path) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as problem:
        raise FileFormatError(
            f"{path} is not UTF-8, in which names are read: save it as UTF-8, for example with "
            "iconv -f latin1 -t utf-8"
        ) from problem


def open_text(
    path: Path,
    dataset: str | None,
    budget: int,
    choice: ColumnChoice = ColumnChoice(),  # noqa: B008 - immutable
) -> NamedMatrix:
    """Open a text that has one row on each line; with ``.gz`` at its end, a compressed one."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with named_damage(path), opener(path, "rb") as stream:
        lines = Lines(stream, path, budget)
        head = _head(lines, path)
        dialect = _dialect(head, path, choice)
        begin = 0
        if dialect.titles is not None:
            begin = next(n for n, text in enumerate(head, 1) if text.strip())
        parse = _parser(path, dialect)
        spool = Spool(path, np.dtype(np.float64), budget)
        row_names = RowNames(budget)
        first = Block.of(begin + 1, b"".join(head[begin:]))
        for block in itertools.chain([first], lines.blocks(dialect.delimiter.encode())):
            if block.text.strip(b"\r\n"):
                texts, numbers = _parsed(block, parse, path, dialect)
                spool.add(numbers)
                row_names.add(
                    _decoded(text, path) if isinstance(text, bytes) else text for text in texts
                )
        if not spool.count:
            raise EmptyDataError(f"{path} has a header and no rows: it needs at least one sample")
        numeric = dialect.numeric
        titles = None if dialect.titles is None else [dialect.titles[field] for field in numeric]
        names = Names.of(None if dialect.named_by is None else row_names.names, titles)
        matrix = spool.finish(len(numeric))
        labels = dialect.labels
        remarks = _remark_on_first_line(path, dialect)
        remarks += remark_on_columns(path, matrix, [labels[field] for field in numeric])
        return NamedMatrix(matrix, names, remarks=remarks)


def _parsed(block: Block, parse: _Parser, path: Path, dialect: Dialect) -> tuple[Any, Array]:
    """The names and the numbers of a block, in as many rows as there are lines."""
    try:
        return _rows_of(block, parse)
    except Exception as problem:
        check_fields(path, block, dialect.delimiter.encode())
        part = _first_faulty(block, parse)
        description = fault(part, dialect) or Message(visible(problem, _MAX_REASON_CHARS))
        raise FileFormatError(Message(f"{path}: ", *description.parts)) from problem


def _rows_of(block: Block, parse: _Parser) -> tuple[Any, Array]:
    texts, numbers = parse(block.text)
    if not block.has_rows(len(numbers)):
        raise FileFormatError(f"the lines from {block.number} on do not give a row each")
    return texts, numbers


def _first_faulty(block: Block, parse: _Parser) -> Block:
    """A small part of a block that cannot be parsed, all before which can; halved until then."""
    while len(block.text) > _SMALL_BYTES:
        middle = block.text.find(b"\n", len(block.text) // 2) + 1
        if not 0 < middle < len(block.text):
            break
        half = Block.of(block.number, block.text[:middle])
        try:
            _rows_of(half, parse)
        except Exception:
            block = half
        else:
            block = Block.of(block.number + half.ends, block.text[middle:])
    return block


def _dialect(head: list[bytes], path: Path, choice: ColumnChoice) -> Dialect:
    """How a text is written: what the caller says, and the rest guessed from its first lines."""
    lines = [_decoded(text, path).strip("\r\n") for text in head]
    dialect = guess(lines, path, choice.header)
    named_by, dropped = choice.places(path, dialect.titles, dialect.fields, dialect.named_by)
    dialect = dialect._replace(named_by=named_by, dropped=dropped)
    if not dialect.numeric:
        raise EmptyDataError(f"{path} has no column left to read: it needs at least one feature")
    return dialect


def _remark_on_first_line(path: Path, dialect: Dialect) -> tuple[Remark, ...]:
    """What a first line of numbers was taken for."""
    verdict = dialect.verdict
    if verdict is None or (verdict.is_header and not verdict.signs):  # that of a header of texts
        return ()
    kind, other = ("titles", "data") if verdict.is_header else ("data", "titles")
    text = f"the first line was taken as {kind}"
    if verdict.signs:
        text += f", {'since' if verdict.is_header else 'though'} its numbers {verdict.signs}"
    if verdict.is_certain:
        return (Remark(text),)
    message = Message(
        f"{path}: {text}; if it holds {other}, give ", Option("header", not verdict[0])
    )
    return (Remark(text, HeaderWarning(message)),)


def _head(lines: Lines, path: Path) -> list[bytes]:
    """The first lines of a text."""
    head: list[bytes] = []
    filled = size = 0
    while filled < 2 or (filled < _HEAD_LINES and size < _HEAD_BYTES):
        line = lines.next(DELIMITERS.encode())
        if not line:
            break
        head.append(line if head else line.removeprefix(b"\xef\xbb\xbf"))  # a byte order mark
        filled += bool(head[-1].strip())
        size += len(line)
        if len(head) - filled > _MAX_EMPTY_LINES:
            raise FileFormatError(
                f"{path} begins with more than {_MAX_EMPTY_LINES} empty lines: remove them"
            )
    return head


def _parser(path: Path, dialect: Dialect) -> _Parser:
    """Return a function that reads the names and the numbers of some lines."""
    pa, reader = require_package("pyarrow", path), require_package("pyarrow.csv", path)

    def read(text: bytes, columns: list[str], kept: list[str], **options: Any) -> Any:
        types = dict.fromkeys(kept, pa.float64())
        if dialect.named_by is not None and len(columns) > 1:
            types[str(dialect.named_by)] = pa.binary()
        parsing = reader.ParseOptions(delimiter=dialect.delimiter, **options)
        # A row has to be within one block of what the library reads at a time.
        reading = reader.ReadOptions(column_names=columns, block_size=len(text) + 1)
        for sign in dialect.decimals:
            conversion = reader.ConvertOptions(
                column_types=types,
                include_columns=kept,
                null_values=MISSING_TEXTS,
                decimal_point=sign,
                check_utf8=False,
            )
            try:
                return reader.read_csv(pa.BufferReader(text), reading, parsing, conversion)
            except pa.ArrowInvalid:
                if sign == dialect.decimals[-1]:
                    raise
        raise AssertionError

    def parse(block: bytes) -> tuple[Any, Array]:
        if dialect.fields > _MAX_PARSED_COLUMNS:
            names, lines = _without_names(block, dialect)
            numbers = b"\n".join(lines)
            if b'"' not in numbers:
                numbers = numbers.replace(dialect.delimiter.encode(), b"\n") + b"\n"
                column = read(numbers, ["0"], ["0"], ignore_empty_lines=False).column(0)
                return names, column.to_numpy().reshape(len(lines), len(dialect.numeric))
        columns = [str(column) for column in range(dialect.fields)]
        kept = [str(column) for column in dialect.numeric]
        named_by = [] if dialect.named_by is None else [str(dialect.named_by)]
        table = read(block, columns, named_by + kept)
        (batch,) = table.select(kept).combine_chunks().to_batches()
        names = table.column(0).to_pylist() if named_by else []
        return names, batch.to_tensor(null_to_nan=True).to_numpy()

    return parse


def _without_names(block: bytes, dialect: Dialect) -> tuple[list[bytes], list[bytes]]:
    """Split some lines into the names in them and the numbers of each line."""
    sign = dialect.delimiter.encode()
    lines = [line.rstrip(b"\r") for line in block.split(b"\n")]
    lines = [line for line in lines if line]
    names: list[bytes] = []
    if dialect.dropped or dialect.named_by:  # another column than the first
        return _split_lines(lines, dialect)
    if dialect.named_by == 0:
        for number, line in enumerate(lines):
            quoted = _QUOTED.match(line)
            end = quoted.end() if quoted else line.find(sign)
            if line[end : end + 1] != sign or (quoted is None and line.startswith(b'"')):
                raise FileFormatError("a line has a name only, or ends inside of quotes")
            names.append(quoted[1].replace(b'""', b'"') if quoted else line[:end])
            lines[number] = line[end + 1 :]
    expected = len(dialect.numeric) - 1
    if any(line.count(sign) != expected for line in lines):
        raise FileFormatError(f"a line does not have {dialect.fields} fields")
    return names, lines


def _split_lines(lines: list[bytes], dialect: Dialect) -> tuple[list[bytes], list[bytes]]:
    """The same by splitting lines into all their fields, some of which are left out."""
    names: list[bytes] = []
    numbers = []
    numeric = dialect.numeric
    for line in lines:
        if line.count(b'"') % 2:
            raise FileFormatError("a line ends inside of quotes")
        fields = dialect.split(line.decode(errors="surrogateescape"))
        kept = [fields[field] for field in numeric] if len(fields) == dialect.fields else [""]
        if len(kept) < len(numeric) or any(dialect.delimiter in field for field in kept):
            raise FileFormatError(f"a line does not have {dialect.fields} fields of numbers")
        numbers.append(dialect.delimiter.join(kept).encode(errors="surrogateescape"))
        if dialect.named_by is not None:
            names.append(fields[dialect.named_by].encode(errors="surrogateescape"))
    return names, numbers

"""Lists of names: a text with one name on each line, such as the words of a vocabulary."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from ...errors import FileFormatError, Message, Option
from ...text import visible
from .limits import fits, named_damage

__all__ = ["read_names"]

MAX_NAME_BYTES = 4096
_NAME_BYTES = 100  # memory for a name


def read_names(path: str | os.PathLike[str], budget: int, column: int | None = None) -> list[str]:
    """Read the names in a UTF-8 text, one on each line; with ``.gz`` at its end, a compressed one.

    With `column`, lines are divided by tabs, and the names are those of that column; a line with
    fewer has its name in the last one.
    """
    path = Path(path)
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    names: list[str] = []
    size = 0
    with named_damage(visible(path)), opener(path, "rb") as stream:
        while line := stream.readline(MAX_NAME_BYTES + 1):
            size += len(line) + _NAME_BYTES
            if len(line) > MAX_NAME_BYTES or b"\0" in line:
                raise FileFormatError(
                    f"{path}: line {len(names) + 1} is not a name: it has more than "
                    f"{MAX_NAME_BYTES} bytes, or zero bytes"
                )
            if not fits(size, budget):
                raise FileFormatError(
                    Message(
                        f"the names in {path} take more than a quarter of ",
                        Option("max_memory"),
                        f" ({budget} bytes): raise it",
                    )
                )
            names.append(_name(line, path, len(names) + 1, column))
    while names and not names[-1]:  # empty lines at the end
        names.pop()
    return names


def _name(line: bytes, path: Path, number: int, column: int | None) -> str:
    try:
        text = line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as problem:
        raise FileFormatError(
            f"{path}: line {number} is not UTF-8: save it as UTF-8, for example with "
            "iconv -f latin1 -t utf-8"
        ) from problem
    if column is None:
        return text.strip()
    fields = text.split("\t")
    return fields[min(column, len(fields) - 1)].strip()

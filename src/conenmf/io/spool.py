"""Numbers that arrive in batches: held in memory, and in a temporary file once they are many.

A text can only be read from its beginning; so it is read once, and then read like any other file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..data.blocks import Array
from ..data.disk import Stamp
from ..errors import Message, Option, OutputError, is_disk_full
from ..text import visible
from .limits import check_expansion, fits, too_many_names
from .source import ArraySource

__all__ = ["RowNames", "Spool", "batch_bytes"]


def batch_bytes(budget: int) -> int:
    """Bytes to read at a time; they take several times as much while they are parsed."""
    return min(max(budget // 128, 1 << 16), 16 << 20)


class RowNames:
    """Collects names, as long as they take little of the memory budget."""

    def __init__(self, budget: int) -> None:
        self._budget, self._size = budget, 0
        self.names: list[str] | None = []

    def add(self, texts: Iterable[object]) -> None:
        """Take some more names."""
        if self.names is not None:
            names = [visible(text) for text in texts]
            self.names += names
            self._size += 4 * sum(map(len, names))  # long names take more than usual ones
            if too_many_names(len(self.names), self._budget) or self._size > self._budget // 8:
                self.names = None


class Spool:
    """Collects the numbers of a table, row after row.

    Parameters
    ----------
    path : where they come from
    dtype : of the numbers
    budget : int
        Numbers that do not fit in a quarter of it go to a file without a name, in the folder for
        temporary files, which is deleted when it is no longer used.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], budget: int) -> None:
        self._path, self._dtype, self._budget = path, dtype, budget
        self._batches: list[Array] = []
        self._stream: IO[bytes] | None = None
        self._stamp = Stamp([path])
        self._count = 0

    def add(self, numbers: Array) -> None:
        """Take some more numbers."""
        self._count += numbers.size
        size = self._count * self._dtype.itemsize
        check_expansion(self._path, self._path.stat().st_size, size)
        self._batches.append(np.ascontiguousarray(numbers, self._dtype).reshape(-1))
        if self._stream is not None or not fits(size, self._budget):
            self._write(size)

    def _write(self, size: int) -> None:
        try:
            if self._stream is None:
                self._stream = tempfile.TemporaryFile(prefix="conenmf-")  # noqa: SIM115
            for numbers in self._batches:
                self._stream.write(numbers.data)
            self._stream.flush()
        except OSError as problem:
            if not is_disk_full(problem):
                raise
            raise OutputError(
                Message(
                    f"not enough disk space for the numbers of {self._path} in "
                    f"{tempfile.gettempdir()}, after {size / 1e9:.3g} GB: free some, set TMPDIR to "
                    "a folder with more, or raise ",
                    Option("max_memory"),
                    " so that they stay in memory",
                )
            ) from problem
        self._batches = []

    def finish(self, columns: int) -> ArraySource | Array:
        """The table, in memory or in its temporary file."""
        self._stamp.check()
        shape = (self._count // columns, columns)
        if self._stream is None:
            flat = np.concatenate(self._batches) if self._batches else np.empty(0, self._dtype)
            return flat.reshape(shape)
        array = np.memmap(self._stream, self._dtype, "r", 0, shape)
        self._stream.close()  # the mapping keeps the file, which has no name
        return ArraySource(np.asarray(array), str(self._path), self._path)

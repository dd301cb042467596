"""Rows that arrive a few at a time: held in memory, and in a temporary file once they are many.

So a text, which can only be read from its beginning, is read once and then like any other file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...errors import DiskFullError, is_disk_full
from ...text import visible
from ..blocks import Array
from .limits import check_expansion, too_many_names
from .sources import File, RawRows

__all__ = ["RowNames", "Spool", "piece_bytes"]


def piece_bytes(budget: int) -> int:
    """Bytes to look at a time; they take several times as much while they are parsed."""
    return min(max(budget // 128, 1 << 16), 16 << 20)


class RowNames:
    """Collects names, unless they become too many to be worth the memory."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.names: list[str] | None = []

    def add(self, texts: Iterable[object]) -> None:
        """Take some more names."""
        if self.names is not None:
            self.names += map(visible, texts)
            if too_many_names(len(self.names), self._budget):
                self.names = None


class Spool:
    """Collects the numbers of a table, row after row or column after column.

    Parameters
    ----------
    path : where they come from
    dtype : of the numbers
    budget : int
        Numbers that take more than a quarter of it go to a file without a name, in the folder
        for temporary files, which is gone when nobody uses it any more.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], budget: int) -> None:
        self._path, self._dtype = path, dtype
        self._most = budget // 4
        self._held: list[Array] = []
        self._stream: IO[bytes] | None = None
        self._stored = path.stat().st_size
        self.count = 0

    def add(self, numbers: Array) -> None:
        """Take some more numbers."""
        self.count += numbers.size
        size = self.count * self._dtype.itemsize
        check_expansion(self._path, self._stored, size)
        self._held.append(np.ascontiguousarray(numbers, self._dtype).reshape(-1))
        if self._stream is not None or size > self._most:
            self._write(size)

    def _write(self, size: int) -> None:
        try:
            if self._stream is None:
                self._stream = tempfile.TemporaryFile(prefix="conenmf-")  # noqa: SIM115
            for numbers in self._held:
                self._stream.write(numbers.data)
            self._stream.flush()
        except OSError as problem:
            if not is_disk_full(problem):
                raise
            raise DiskFullError(
                f"no room for the numbers of {self._path} in {tempfile.gettempdir()} after "
                f"{size / 1e9:.3g} GB: make room, let TMPDIR name a larger place, or raise "
                "max_memory so that they stay in memory"
            ) from problem
        self._held = []

    def finish(
        self, columns: int, samples_in: str, *, column_after_column: bool = False
    ) -> RawRows | Array:
        """The table, turned so that it has one row per sample."""
        rows = self.count // columns
        turned = samples_in == "columns"
        if self._stream is None:
            flat = np.concatenate(self._held) if self._held else np.empty(0, self._dtype)
            self._held = []
            whole = flat.reshape((rows, columns), order="F" if column_after_column else "C")
            return whole.T if turned else whole
        file = File(self._path, descriptor=os.dup(self._stream.fileno()))
        self._stream.close()
        shape = (columns, rows) if turned else (rows, columns)
        together = turned == column_after_column
        return RawRows(file, 0, shape, self._dtype, samples_together=together)

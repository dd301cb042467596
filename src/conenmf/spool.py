"""Rows that arrive a few at a time: held in memory, and in a temporary file once they are many.

So a text, which can only be read from its beginning, is read once and then like any other file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from .blocks import Array
from .errors import DiskFullError, is_disk_full
from .limits import check_expansion
from .sources import File, RawRows

__all__ = ["Spool"]


class Spool:
    """Collects the rows of a table.

    Parameters
    ----------
    path : where they come from
    columns : int
    dtype : of the numbers
    budget : int
        Rows that take more than a quarter of it go to a file without a name, in the folder for
        temporary files, which is gone when nobody uses it any more.
    """

    def __init__(self, path: Path, columns: int, dtype: np.dtype[Any], budget: int) -> None:
        self._path, self._columns, self._dtype = path, columns, dtype
        self._most = budget // 4
        self._held: list[Array] = []
        self._stream: IO[bytes] | None = None
        self._stored = path.stat().st_size
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes of all rows so far."""
        return self.rows * self._columns * self._dtype.itemsize

    def add(self, rows: Array) -> None:
        """Take some more rows."""
        self.rows += len(rows)
        check_expansion(self._path, self._stored, self.size)
        self._held.append(np.ascontiguousarray(rows, self._dtype))
        if self._stream is not None or self.size > self._most:
            self._write()

    def _write(self) -> None:
        try:
            if self._stream is None:
                self._stream = tempfile.TemporaryFile(prefix="conenmf-")  # noqa: SIM115
            for rows in self._held:
                self._stream.write(rows.data)
            self._stream.flush()
        except OSError as problem:
            if not is_disk_full(problem):
                raise
            raise DiskFullError(
                f"no room for the numbers of {self._path} in {tempfile.gettempdir()} after "
                f"{self.size / 1e9:.3g} GB: make room, let TMPDIR name a larger place, or raise "
                "max_memory so that they stay in memory"
            ) from problem
        self._held = []

    def finish(self, samples_in: str) -> RawRows | Array:
        """All rows, one per sample."""
        N, F = self.rows, self._columns
        turned = samples_in == "columns"
        if self._stream is None:
            whole = np.concatenate(self._held) if self._held else np.empty((0, F), self._dtype)
            self._held = []
            return whole.T if turned else whole
        file = File(self._path, descriptor=os.dup(self._stream.fileno()))
        self._stream.close()
        shape = (F, N) if turned else (N, F)
        return RawRows(file, 0, shape, self._dtype, samples_together=not turned)

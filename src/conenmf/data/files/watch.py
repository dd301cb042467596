"""Watching: whether the data that are read are still those that were opened.

Two kinds of evidence are used. Files can be *looked at*: before and after each pass, their sizes,
times and inodes are compared with those at the opening. And *contents* can be compared: the first
time that a block is read, its checksum is kept.

A file that this library opened must stay as it was. A file that the caller has open, for a memmap
or a dataset, may change for good reasons: another dataset in it is written. So there the contents
decide: a part of the blocks is compared in each pass, and all of them if the file looks different.
Contents also decide where a file of ours differs in what changes without its data: permissions and
links move the time of the inode, as does setting back the time of the file after a rewrite.

If the results of a pass are final, all blocks are compared in any case. A look does not show
everything: what is written through a mapping moves the time of a file only once for each page,
until the system has brought the page to the disk.
"""

from __future__ import annotations

import copy
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from ...errors import (
    CheckpointError,
    ComponentsError,
    DataChangedError,
    DiskFullError,
    OptionError,
    OutputError,
)
from ..blocks import Array
from ..borders import Borders
from .evidence import Evidence, Watched, WatchedFile

__all__ = ["Watch", "watch_mapped"]

_PASSES_TO_COMPARE_ALL = 64
_FEW_FILES = 128  # that are looked at even for a few samples
_UNRELATED_ERRORS = (
    *(DataChangedError, OptionError, ComponentsError),
    *(CheckpointError, DiskFullError, OutputError, MemoryError),
)

Read: TypeAlias = Callable[[int, int], Any]
"""The rows from one index to another, as they are stored."""


class Watch:
    """Notices that data change while they are in use.

    Parameters
    ----------
    name : str
        What to call the data in messages.
    watched : sequence of Watched
        What can be looked at.
    by_contents : bool
        The caller has the data open: compare a part of the blocks in every pass.
    """

    def __init__(
        self, name: str, watched: Sequence[Watched] = (), *, by_contents: bool = False
    ) -> None:
        self._name, self._watched, self._by_contents = name, tuple(watched), by_contents
        self._accepted = tuple(one.opened for one in watched)
        self._checksums: dict[tuple[int, int], int] = {}
        self._n_passes = 0
        self._n_files = sum(one.n_files for one in watched)

    def of_other_blocks(self) -> Watch:
        """Return a watch of the same data, read in other blocks."""
        twin = copy.copy(self)
        twin._checksums = {}
        return twin

    def check(self) -> tuple[Evidence, ...]:
        """Raise DataChangedError if a look shows that the data have changed; return the look."""
        seen = tuple(one.look() for one in self._watched)
        for one, now in zip(self._watched, seen, strict=True):
            if now.firm != one.opened.firm:
                raise DataChangedError(one.difference(now))
        return seen

    def looks_different(self) -> bool:
        """Whether something looks different from when the data were last as they should be."""
        return self.check() != self._accepted

    def check_if_quick(self) -> None:
        """Check when a few samples are read, unless looking would take longer than reading."""
        if self._n_files <= _FEW_FILES:
            self.check()

    @contextmanager
    def reading(
        self, borders: Borders, read: Read, *, everything: bool = False
    ) -> Iterator[Callable[[int, Any], Any]]:
        """Check before and after a pass over blocks, and the contents of some of them.

        Yields a function of the number of a block and its rows, which returns the rows. If files
        look different after the pass and its blocks have not all been compared, they are `read`
        again for that, so that no pass ends with numbers of which it is not known where they
        come from.

        Parameters
        ----------
        everything : bool
            Compare all blocks.
        """
        before = self.check()
        compare_all = everything or before != self._accepted
        compared = range(len(borders)) if compare_all else self._turn(len(borders))

        def compare(number: int, rows: Any) -> Any:
            if borders[number] not in self._checksums or number in compared:
                self._compare(borders[number], rows)
            return rows

        yield compare
        if self.check() == before or compare_all:
            self._accepted = before
        else:
            self._compare_all(borders, read)

    def _turn(self, n_blocks: int) -> range:
        """The blocks to compare in this pass: others in each, all of them after 64 passes."""
        if not self._by_contents:
            return range(0)
        count = -(-n_blocks // _PASSES_TO_COMPARE_ALL)
        turn = self._n_passes % -(-n_blocks // count)
        self._n_passes += 1
        return range(turn * count, (turn + 1) * count)

    def _compare(self, border: tuple[int, int], rows: Any) -> None:
        """Compare the checksum of a block with that of the first time, or keep it."""
        now = _checksum(rows)
        if self._checksums.setdefault(border, now) != now:
            start, stop = border
            raise DataChangedError(
                f"{self._name} was changed after it was opened: samples {start} to {stop - 1} are "
                "not as they were; open it again when no program writes to it"
            )

    def _compare_all(self, borders: Borders, read: Read) -> None:
        before = self.check()
        for border in borders:
            if border in self._checksums:
                self._compare(border, read(*border))
        self._accepted = before

    @contextmanager
    def explaining(self, borders: Callable[[], Borders], read: Read) -> Iterator[None]:
        """If data that have changed led to an error, raise DataChangedError instead.

        Numbers that are not what they were may lead to any error, in the middle of any algorithm.
        """
        mine: set[int] = _explaining.__dict__.setdefault("watches", set())
        if id(self) in mine:  # only the outermost one has to look
            yield
            return
        mine.add(id(self))
        try:
            yield
        except _UNRELATED_ERRORS:
            raise
        except Exception:
            try:
                if self.looks_different() or self._by_contents:
                    self._compare_all(borders(), read)
            except DataChangedError:
                raise
            except Exception:  # what cannot be read now is what the first error is about
                pass
            raise
        finally:
            mine.discard(id(self))


def watch_mapped(*arrays: Array) -> Watch | None:
    """Return a watch of arrays in memory that is mapped to files; None if none of them is."""
    watched: dict[str, Watched] = {}
    is_mapped = False
    for array in arrays:
        base: Any = array
        while isinstance(base, np.ndarray):
            name = getattr(base, "filename", None)
            if name is not None and os.path.isfile(name):
                watched[str(name)] = WatchedFile(str(name), firm="size")
            base = base.base
        is_mapped |= isinstance(base, mmap.mmap)
    name = ", ".join(watched) or "the mapped array"
    return Watch(name, tuple(watched.values()), by_contents=True) if is_mapped else None


_explaining = threading.local()
"""The watches that a thread is inside of."""


def _checksum(rows: Any) -> int:
    """Of rows as they are stored: an array, or the parts of compressed ones."""
    checksum = 0
    for part in rows if isinstance(rows, tuple) else (rows,):
        contiguous = np.ascontiguousarray(part.T if part.flags.f_contiguous else part)
        flat: Any = contiguous.reshape(-1).view(np.uint8)
        checksum = zlib.crc32(flat, checksum)
    return checksum

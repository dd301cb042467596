"""Evidence that data have changed, from a look at their files: nothing is read.

What a difference means depends on who has opened the file. Some of the evidence is *firm*: the data
have changed, or may not be trusted any more. Some is a *hint*, for which there are harmless reasons
too; then `watch` compares contents.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ...errors import DataChangedError

__all__ = ["Evidence", "Watched", "WatchedFile", "WatchedFiles", "WatchedShape"]

_MAX_TICK_NS = 20_000_000  # of the clock that stamps files
_OF_ARRAY = re.compile(r"c|(c\.)?\d+(\.\d+)*|zarr\.json|\.zarray")

Listing: TypeAlias = Callable[[], Iterable[tuple[str, os.stat_result]]]


class Evidence(NamedTuple):
    """What a look shows.

    Attributes
    ----------
    firm
        If it differs, the data have changed.
    hint
        If it differs, they may have.
    """

    firm: Any
    hint: Any


class Watched(ABC):
    """Something that shows whether data have changed, without reading them.

    Attributes
    ----------
    name : str
        What to call it in messages.
    opened : Evidence
        What it showed when the data were opened.
    n_files : int
        How many files a look takes.
    """

    name: str
    opened: Evidence
    n_files: int = 0

    @abstractmethod
    def look(self) -> Evidence:
        """What it shows now."""

    @abstractmethod
    def difference(self, now: Evidence) -> str:
        """What is firmly different now, and what to do."""


class WatchedShape(Watched):
    """The shape of a dataset that the caller may resize."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self._array = name, array
        self.opened = self.look()

    def look(self) -> Evidence:
        """The shape."""
        return Evidence(tuple(self._array.shape), None)

    def difference(self, now: Evidence) -> str:
        """Name both shapes."""
        return (
            f"{self.name} had shape {self.opened.firm} when it was opened and now has {now.firm}: "
            "open it again"
        )


class WatchedFile(Watched):
    """One file.

    Parameters
    ----------
    path : path
        Its name in messages.
    descriptor : int, optional
        Look at the open file, which may have no name any more, instead of what has the name.
    opened : os.stat_result, optional
        Of the file that was opened; by default, look now.
    firm : {"all", "size", "nothing"}
        What must not change: anything but the time of the inode, for a file of ours; the size, for
        one that the caller has mapped; nothing, for one in which the caller may write elsewhere.
    """

    n_files = 1

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        descriptor: int | None = None,
        opened: os.stat_result | None = None,
        firm: Literal["all", "size", "nothing"] = "all",
    ) -> None:
        self.name, self._firm = os.fspath(path), firm
        self._place: str | int = os.path.abspath(path) if descriptor is None else descriptor
        status = os.stat(self._place) if opened is None else opened
        self.size = status.st_size
        self.opened = self._evidence(status)
        _await_tick(status.st_ctime_ns)

    def look(self) -> Evidence:
        """Size, time and inode."""
        return self._evidence(self._status())

    def _status(self) -> os.stat_result | None:
        try:
            return os.stat(self._place)
        except OSError as problem:
            if self._firm != "all":  # the caller can still read it
                return None
            raise DataChangedError(f"{self.name} can no longer be read: {problem}") from problem

    def _evidence(self, status: os.stat_result | None) -> Evidence:
        if status is None:
            return Evidence(self.opened.firm, ())
        facts = (status.st_size, status.st_mtime_ns, status.st_ino)
        n_firm = {"all": 3, "size": 1, "nothing": 0}[self._firm]
        return Evidence(facts[:n_firm], (*facts[n_firm:], status.st_ctime_ns))

    def difference(self, now: Evidence) -> str:
        """Name both sizes, if they differ."""
        if now.firm[0] != self.size:
            return (
                f"{self.name} had {self.size} bytes when it was opened and now has {now.firm[0]}: "
                "open it again when no other program writes to it"
            )
        return f"{self.name} was changed after it was opened: open it again"


class WatchedFiles(Watched):
    """Many files, of which one number each is kept.

    Parameters
    ----------
    name : str
        What to call them all.
    listing : callable
        Returns their paths and states.
    is_firm : bool
        Whether they must keep their names, sizes and times. Inodes are hints: where such files are
        not held open, some network file systems number them again.
    """

    def __init__(self, name: str, listing: Listing, *, is_firm: bool = True) -> None:
        self.name, self._listing, self._is_firm = name, listing, is_firm
        self._newest = 0
        self.opened = self.look()
        _await_tick(self._newest)

    @classmethod
    def of_zarr(cls, folder: Path, *, is_firm: bool = True) -> WatchedFiles:
        """The chunks and the metadata of an array of Zarr, and no other files beside them."""
        return cls(str(folder), lambda: _listed(str(folder)), is_firm=is_firm)

    @classmethod
    def of_list(cls, name: str, files: Sequence[Path]) -> WatchedFiles:
        """The files of a list; others beside them do not count."""
        return cls(name, lambda: ((str(file), os.stat(file)) for file in files))

    def look(self) -> Evidence:
        """Names, sizes and times; inodes."""
        marks, hint = [], 0
        for path, status in self._files():
            marks.append(_mark(path, status))
            hint += hash((marks[-1], status.st_ino, status.st_ctime_ns))
            self._newest = max(self._newest, status.st_ctime_ns)
        self.n_files = len(marks)
        firm = np.sort(np.array(marks, dtype=np.int64)).tobytes()
        return Evidence(firm, hint) if self._is_firm else Evidence((), (firm, hint))

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            yield from self._listing()
        except OSError as problem:
            file = problem.filename or self.name
            raise DataChangedError(f"{file} can no longer be read: {problem}") from problem

    def difference(self, now: Evidence) -> str:
        """Name a file that is new or different, or say how many are gone."""
        before = np.frombuffer(self.opened.firm, dtype=np.int64)
        known = set(before.tolist())
        for path, status in self._files():
            if _mark(path, status) not in known:
                return f"{path} was changed after {self.name} was opened: open it again"
        n_gone = before.size - len(now.firm) // before.itemsize
        return (
            f"{n_gone} of {before.size} files of {self.name} were removed after it was opened: "
            "open it again"
        )


def _mark(path: str, status: os.stat_result) -> int:
    return hash((path, status.st_size, status.st_mtime_ns))


def _listed(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _OF_ARRAY.fullmatch(entry.name) is None:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _listed(entry.path)
            else:
                with suppress(FileNotFoundError):  # removed at this moment
                    yield entry.path, entry.stat()


def _await_tick(stamp_ns: int) -> None:
    """Wait until a file that changes would get a later time than this.

    Linux stamps files with a clock that moves every few milliseconds; without this, a change right
    after the opening of a file that was just written could leave its time as it is.
    """
    clock = getattr(time, "CLOCK_REALTIME_COARSE", None)
    while clock is not None and 0 <= stamp_ns - time.clock_gettime_ns(clock) < _MAX_TICK_NS:
        time.sleep(0.001)

"""A folder of results is replaced as a whole, also if the command is killed meanwhile.

A new result is written to a hidden folder, while the folder of results is locked. Once all of its
files are complete, those of the earlier result are set aside, the new ones are moved into place,
``summary.json`` last, and the earlier ones are removed. So the folder never holds files of two
results; if it has no ``summary.json``, the command was killed between these moves, and the next
command that uses the folder completes them. All other files in the folder are left alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..data.files.atomic import flush_folder, writing
from ..data.files.locks import Temporary, in_use, remove_leftovers
from ..errors import OutputError
from .places import COMPLETE, EARLIER, MOVING, SUMMARY_FILE, earlier_files

__all__ = ["NewResult", "new_result", "settle"]


class NewResult:
    """A result that is being written.

    Parameters
    ----------
    target : Path
        The folder where it is to be; it need not exist.

    Attributes
    ----------
    folder : Path
        A hidden folder, for its files.
    """

    def __init__(self, target: Path, lock: ExitStack) -> None:
        self._target = target
        self._lock = lock
        self._is_inside = target.is_dir()
        beside = target / "result" if self._is_inside else target
        self._temporary = Temporary(beside, is_folder=True)
        self.folder = self._temporary.path

    def move_into_place(self) -> None:
        """Make this the result in the target, instead of the one that is there."""
        target = self._target
        try:
            with writing(target):
                flush_folder(self.folder)
                if not os.path.lexists(target):
                    self._temporary.move(target)
                    flush_folder(target.parent)
                    return
                if not self._is_inside:  # the target was made in the meantime
                    self._lock.enter_context(in_use(target))
                self._refuse_others()
                self._temporary.move(target / COMPLETE)
        except OSError as problem:
            raise OutputError(f"{problem}; the new result is in {self.keep()}") from problem
        _complete(target)

    def _refuse_others(self) -> None:
        names = {path.name for path in self.folder.iterdir()} - earlier_files(self._target)
        for name in sorted(names):
            if os.path.lexists(self._target / name):
                raise OutputError(f"{self._target} holds another {name} now")

    def keep(self) -> Path:
        """Keep what is there of a result that is not complete; return the folder it is in."""
        target = self._target
        place, number = target, 1
        while os.path.lexists(place):
            name = f"unfinished-result{'' if number == 1 else f'-{number}'}"
            place = target / name if self._is_inside else target.with_name(f"{target.name}-{name}")
            number += 1
        with writing(place):
            self._temporary.move(place)
        return place

    def remove(self) -> None:
        """Remove what was neither moved nor kept."""
        self._temporary.remove()


@contextmanager
def new_result(target: Path) -> Iterator[NewResult]:
    """Lock a folder of results, and write a new result for it; one process can at a time."""
    parent = target.absolute().parent
    with ExitStack() as stack:
        with writing(target):
            remove_leftovers(parent)
            inside = target.is_dir()
            lock = None if inside else parent / f".{target.name[:100]}.conenmf-lock"
            stack.enter_context(in_use(target, lock))
            if inside:
                remove_leftovers(target)
            result = NewResult(target, stack)
        stack.callback(result.remove)
        yield result


def settle(folder: Path) -> None:
    """Complete the moves of a command that was killed, before a result is looked for."""
    if any((folder / name).is_dir() for name in (COMPLETE, MOVING)):
        with writing(folder), in_use(folder):
            _complete(folder)


def _complete(target: Path) -> None:
    """Do what is left of the moves; every step can be repeated."""
    complete, moving, earlier = (target / name for name in (COMPLETE, MOVING, EARLIER))
    try:
        if complete.is_dir():
            earlier.mkdir(exist_ok=True)
            names = earlier_files(target) | earlier_files(earlier)
            for name in sorted(names, key=lambda name: name != SUMMARY_FILE):
                if os.path.lexists(target / name) and not (target / name).is_dir():
                    os.replace(target / name, earlier / name)
            os.rename(complete, moving)
        if moving.is_dir():
            for path in sorted(moving.iterdir(), key=lambda path: path.name == SUMMARY_FILE):
                os.replace(path, target / path.name)
            flush_folder(target)
            moving.rmdir()
    except OSError as problem:
        where = complete if complete.is_dir() else moving
        raise OutputError(
            f"{target}: {problem.strerror or problem}; the new result is complete in {where}, the "
            f"earlier one is in {earlier}; the next command for {target} moves the rest"
        ) from problem
    shutil.rmtree(earlier, ignore_errors=True)

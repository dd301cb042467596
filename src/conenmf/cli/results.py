"""A folder of results is replaced as a whole.

A new result is written to a hidden folder, while the folder of results is locked. Once all of its
files are complete, they are moved into place. ``summary.json`` comes first, and says that the
result is not complete; its final form comes last. So a command that is killed between these moves
leaves a folder that is no result (`settle` refuses it), and that the next ``fit`` can replace. All
other files in the folder are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..atomic import Temporary, flush_folder, in_use, remove_temporaries, writing
from ..errors import OutputError
from .places import SUMMARY_FILE, earlier_files, is_complete, write_summary

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
                self._replace_files()
        except OSError as problem:
            raise OutputError(f"{problem}; the new result is in {self.keep()}") from problem

    def _replace_files(self) -> None:
        target, earlier = self._target, earlier_files(self._target)
        names = sorted(path.name for path in self.folder.iterdir())
        for name in names:
            if name not in earlier and os.path.lexists(target / name):
                raise OutputError(f"{target} holds another {name} now")
        write_summary(target, {"complete": False}, [*earlier, *names])
        for name in sorted(names, key=lambda name: name == SUMMARY_FILE):
            os.replace(self.folder / name, target / name)
        for name in earlier.difference(names):
            if not (target / name).is_dir():
                (target / name).unlink(missing_ok=True)
        flush_folder(target)

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
            inside = target.is_dir()
            lock = None if inside else parent / f".{target.name[:100]}.conenmf-lock"
            stack.enter_context(in_use(target, lock))
            if inside:
                remove_temporaries(target, "result.", SUMMARY_FILE)
            else:
                remove_temporaries(parent, f"{target.name}.conenmf-part")
            result = NewResult(target, stack)
        stack.callback(result.remove)
        yield result


def settle(folder: Path) -> None:
    """Refuse a folder whose result was being replaced when the command was killed."""
    if not is_complete(folder):
        raise OutputError(
            f"{folder} holds a result that is not complete, since the command that wrote it was "
            "killed: run that again"
        )

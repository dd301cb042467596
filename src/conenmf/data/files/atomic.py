"""Files and folders that appear complete or not at all.

They are written under a temporary name in the folder of their target, so that moving them into
place is one operation of the file system, and are on the disk before that. A reader never sees half
of a file, and a failure leaves what was there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ...errors import ConeNMFError, DiskFullError, OptionError, OutputError, is_disk_full
from .locks import Temporary, remove_leftovers

__all__ = [
    "files_written_whole",
    "flush",
    "flush_folder",
    "folder_written_whole",
    "output_file",
    "writing",
    "written_whole",
]


def output_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write; refuse what cannot be one, before there is any work."""
    try:
        target = Path(os.fsdecode(path))
    except TypeError as problem:
        raise OptionError(f"{path!r} is not the path of a file to write") from problem
    with writing(target):
        if "\0" in str(target):
            raise OutputError(f"{str(target)!r} cannot be the name of a file")
        if target.is_dir() or not target.name:
            raise OutputError(f"{os.fspath(path)!r} is a folder: name a file to write")
        if not target.parent.is_dir():
            raise OutputError(f"{target} cannot be written: its folder does not exist")
    return target


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Name the file or folder that could not be written."""
    try:
        yield
    except ConeNMFError:
        raise
    except OSError as problem:
        _raise_if_full(problem, target)
        raise OutputError(f"{target} cannot be written: {problem.strerror or problem}") from problem


@contextmanager
def written_whole(target: Path) -> Iterator[Any]:
    """Open a temporary binary file for writing; move it to the target if no error was raised."""
    with files_written_whole([target]) as (stream,), _named_if_full(target):
        yield stream


@contextmanager
def files_written_whole(targets: Sequence[Path]) -> Iterator[list[Any]]:
    """Open temporary files; move them to their targets when all of them are complete."""
    with ExitStack() as stack:
        temporaries, streams = [], []
        for target in targets:
            with writing(target):
                remove_leftovers(target.parent)
                temporaries.append(Temporary(target))
                path = stack.enter_context(temporaries[-1])
                streams.append(stack.enter_context(open(path, "wb")))
        yield streams
        for target, stream in zip(targets, streams, strict=True):
            with writing(target):
                flush(stream)
                stream.close()
        for target, temporary in zip(targets, temporaries, strict=True):
            with writing(target):
                temporary.move(target)
                flush_folder(target.parent)


@contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """Make a temporary folder; move it to the target, which must not exist, if nothing failed."""
    with writing(target):
        remove_leftovers(target.parent)
        temporary = Temporary(target, is_folder=True)
    with temporary as folder:
        with _named_if_full(target):
            yield folder
        with writing(target):
            flush_folder(folder)
            temporary.move(target)
            flush_folder(target.parent)


def flush(stream: Any) -> None:
    """Bring what was written to a file to the disk."""
    stream.flush()
    os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the operating system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _named_if_full(target: Path) -> Iterator[None]:
    try:
        yield
    except ConeNMFError:
        raise
    except OSError as problem:
        _raise_if_full(problem, target)
        raise


def _raise_if_full(problem: OSError, target: Path) -> None:
    if is_disk_full(problem):
        remains = "the earlier one is intact" if target.exists() else "nothing of it was written"
        raise DiskFullError(
            f"not enough disk space to write {target}: free some and try again ({remains})"
        ) from problem

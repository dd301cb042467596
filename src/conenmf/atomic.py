"""Files and folders that appear only when complete, and folders used by one process at a time.

Everything is written under a hidden name beside its target, flushed to the disk, and then moved
into place with `os.replace`. A reader never sees half a file, and after a failure the earlier file
is still there. Only a process that is killed leaves hidden files; the next process that locks the
folder (`in_use`) removes them.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import ConeNMFError, OutputError, is_disk_full
from .types import PathLike

LOCK_FILE = ".conenmf-lock"
_PATIENCE_SECONDS = 0.1  # other processes hold a lock for an instant to check it
_NAME_CHARS = 40  # of the target in a hidden name; at most 4 bytes each, and most systems allow 255


def output_file(path: PathLike) -> Path:
    """Return the path of a file to write; reject an impossible one before the work starts."""
    target = Path(os.fsdecode(path))
    with writing(target):
        if target.is_dir() or not target.name:
            raise OutputError(f"{os.fspath(path)!r} is a folder: name a file to write")
        if not target.parent.is_dir():
            raise OutputError(f"{target} cannot be written: its folder does not exist")
    return target


def output_folder(path: PathLike) -> Path:
    """Return the path of a folder to write to; it need not exist, but its parent must."""
    target = Path(path)
    parent = target.absolute().parent
    with writing(target):
        if os.path.lexists(target) and not target.is_dir():
            raise OutputError(f"{target} is a file: name a folder")
        if not parent.is_dir():
            raise OutputError(f"{target}: the folder {parent} does not exist")
    return target


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Add the name of the file or folder to write errors."""
    try:
        yield
    except ConeNMFError:
        raise
    except OSError as problem:
        if not is_disk_full(problem):
            reason = problem.strerror or problem
            raise OutputError(f"{target} cannot be written: {reason}") from problem
        raise OutputError(
            f"not enough disk space to write {target}: free some, or use another disk; a file "
            "that was there before is intact"
        ) from problem


@contextmanager
def written_whole(target: Path) -> Iterator[Any]:
    """Open a temporary binary file for writing; move it to the target if no error was raised."""
    with writing(target), files_written_whole([target]) as (stream,):
        yield stream


@contextmanager
def files_written_whole(targets: Sequence[Path]) -> Iterator[list[Any]]:
    """Open temporary files; move them to their targets when all of them are complete."""
    with ExitStack() as stack:
        streams = []
        for target in targets:
            with writing(target):
                path = hidden_path(target)
                stack.callback(_remove, path)
                streams.append(stack.enter_context(open(path, "xb")))
                stack.callback(_abandon, streams[-1])
        yield streams
        for target, stream in zip(targets, streams, strict=True):
            with writing(target):
                flush(stream)
                stream.close()
        for target, stream in zip(targets, streams, strict=True):
            with writing(target):
                os.replace(stream.name, target)
                flush_folder(target.parent)


def _abandon(stream: BinaryIO) -> None:
    """Close a file; if the disk is full, this fails again, and the first error says more."""
    with suppress(OSError):
        stream.close()


@contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """Make a temporary folder; move it to the target, which must not exist, if nothing failed."""
    folder = hidden_path(target)
    try:
        with writing(target):
            folder.mkdir()
            yield folder
            flush_folder(folder)
            os.replace(folder, target)
            flush_folder(target.parent)
    finally:
        _remove(folder)


def flush(stream: BinaryIO) -> None:
    """Flush a file to the disk."""
    stream.flush()
    os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the operating system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def hidden_path(target: Path) -> Path:
    """Return a new name beside a target, such as ``.counts.npy.conenmf-part.0f3a.tmp``."""
    name = f".{target.name[:_NAME_CHARS]}.conenmf-part.{secrets.token_hex(8)}.tmp"
    return target.with_name(name)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def remove_temporaries(folder: Path, names: str) -> None:
    """Remove files of killed processes in a locked folder, for targets that match a pattern."""
    for path in folder.glob(f".{names}.conenmf-part.*.tmp"):
        _remove(path)


# --- folders that one process may use at a time --------------------------------------------------


@contextmanager
def in_use(what: Path, lock_file: Path | None = None) -> Iterator[None]:
    """Lock a folder with a lock file, by default one in it; `OutputError` if it is locked already.

    The operating system releases the lock when its process ends for any reason.
    """
    from filelock import FileLock

    path = what / LOCK_FILE if lock_file is None else lock_file
    lock = FileLock(path, timeout=_PATIENCE_SECONDS, thread_local=False)
    try:
        lock.acquire()
    except TimeoutError:
        raise OutputError(
            f"{what} is in use by another process: wait until that has ended, or name another "
            "folder"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # while locked, so others that opened it notice
            path.unlink()
        lock.release()

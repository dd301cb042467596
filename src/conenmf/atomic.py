"""Files and folders that appear whole or not at all, and folders that one process uses at a time.

Everything is written under a hidden temporary name in the folder of its target, brought to the
disk, and then moved into place with `os.replace`. A reader never sees half of a file, and a failure
leaves what was there before. A process that is killed leaves its temporary files behind. Those in a
folder that is locked (`in_use`) are removed by the next process that locks it; large ones, which
are locked themselves, by the next that needs such a file (`remove_abandoned`).
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import ConeNMFError, OptionError, OutputError, is_disk_full

__all__ = [
    "LOCK_FILE",
    "Temporary",
    "files_written_whole",
    "flush",
    "flush_folder",
    "folder_written_whole",
    "in_use",
    "is_temporary",
    "output_file",
    "remove_abandoned",
    "remove_temporaries",
    "writing",
    "written_whole",
]

LOCK_FILE = ".conenmf-lock"
_PATIENCE_SECONDS = 0.1  # others hold a lock for an instant while they look at it
_NAME_BYTES = 120  # of the target in a temporary name, which may have 255 on most file systems


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


def _raise_if_full(problem: OSError, target: Path) -> None:
    if is_disk_full(problem):
        remains = "the earlier one is intact" if target.exists() else "nothing of it was written"
        raise OutputError(
            f"not enough disk space to write {target}: free some and try again ({remains})"
        ) from problem


@contextmanager
def _named_if_full(target: Path) -> Iterator[None]:
    try:
        yield
    except ConeNMFError:
        raise
    except OSError as problem:
        _raise_if_full(problem, target)
        raise


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


# --- temporary files and folders --------------------------------------------------------------


class Temporary:
    """A hidden file or folder that is removed unless it is moved away.

    Only its owner can read it until then; it gets the usual permissions when it is moved.

    Parameters
    ----------
    target : path
        The temporary one is made beside it, and named after it.
    what : str
        What it is, for its name: ``.counts.npy.conenmf-H.0f3a.tmp``.
    is_folder : bool
    is_locked : bool
        Hold a lock on the file, so that others see that it is in use.

    Attributes
    ----------
    path : Path
    """

    def __init__(
        self,
        target: Path,
        what: str = "part",
        *,
        is_folder: bool = False,
        is_locked: bool = False,
    ) -> None:
        self._pid = os.getpid()
        short = target.name.encode("utf-8", "surrogateescape")[:_NAME_BYTES].decode(
            "utf-8", "ignore"
        )
        self.path = target.with_name(f".{short}.conenmf-{what}.{secrets.token_hex(8)}.tmp")
        self.path.touch(exist_ok=False)
        self._usual_mode = stat.S_IMODE(self.path.stat().st_mode)  # as the umask has it
        self.path.chmod(0o600)
        if is_folder:
            self._usual_mode |= (self._usual_mode & 0o444) >> 2  # who reads may enter
            self.path.unlink()
            self.path.mkdir(0o700)
        self._lock = _file_lock(self.path) if is_locked else None
        if self._lock is not None:
            self._lock.acquire()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def move(self, target: Path) -> None:
        """Give it a lasting name; a file replaces an earlier one, a folder does not."""
        self.publish()
        os.replace(self.path, target)

    def publish(self) -> None:
        """Give it the permissions that a new file or folder has."""
        with suppress(OSError):  # a file system without permissions
            self.path.chmod(stat.S_IMODE(self.path.stat().st_mode) | self._usual_mode)

    def remove(self) -> None:
        """Remove it, unless it was moved; a forked child leaves it to its parent."""
        if self._pid == os.getpid():
            _remove(self.path)
            if self._lock is not None:
                self._lock.release()


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is a temporary one of this library, or a lock."""
    is_ours = name.startswith(".") and ".conenmf-" in name
    return is_ours and name.endswith((".tmp", LOCK_FILE))


def remove_temporaries(folder: Path, *names: str) -> None:
    """Remove what killed processes left in a locked folder, for targets that begin with names."""
    for path in list(folder.iterdir()):
        is_ours = is_temporary(path.name) and path.name.startswith(tuple(f".{n}" for n in names))
        if is_ours and path.suffix == ".tmp":
            _remove(path)


def remove_abandoned(target: Path, what: str) -> None:
    """Remove locked temporary files beside a target whose processes have ended."""
    for path in list(target.parent.iterdir()):
        if is_temporary(path.name) and path.name.startswith(f".{target.name}.conenmf-{what}."):
            with suppress(OSError), _file_lock(path):  # a Timeout is an OSError
                _remove(path)


def _file_lock(path: Path) -> Any:
    from filelock import FileLock

    return FileLock(path, timeout=_PATIENCE_SECONDS, thread_local=False)


# --- folders that one process may use at a time -----------------------------------------------


@contextmanager
def in_use(what: Path, lock_file: Path | None = None) -> Iterator[None]:
    """Hold a folder by a lock file, by default one in it; `OutputError` if another holds it.

    The operating system frees the lock when its process ends, however it ends.
    """
    path = what / LOCK_FILE if lock_file is None else lock_file
    lock = _file_lock(path)
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
        with suppress(OSError):  # while it is held: who has just opened it sees that it is gone
            path.unlink()
        lock.release()

"""Locks that the operating system frees when their owner ends, however it ends.

A temporary file or folder is locked by the process that made it. One whose lock is free was left by
a process that was killed, and is removed by the next that works in the same folder; age never
counts. A folder that one process may use at a time has a lock file, which says who uses it.

Locks are those of ``flock``: they belong to an open file, which a forked child has too. So a lock
is free when its owner says so, or when the owner and all children that it has forked meanwhile have
ended. Where there are none (Windows, some network file systems) nothing is removed, and folders are
used without a lock.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from ...errors import LockWarning, OutputError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["LOCK_FILE", "Temporary", "in_use", "is_ours", "remove_leftovers"]

LOCK_FILE = ".conenmf-lock"
_TRIES, _TRY_SECONDS = 10, 0.01
_NAME_BYTES = 120  # of the target in a temporary name, which may have 255
_TEMPORARY = re.compile(
    r"\..*\.conenmf-[A-Za-z]+\.([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{12}\.tmp", re.DOTALL
)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)


class _BusyError(Exception):
    """Another process, or another part of this one, holds the lock."""


def _locked(path: Path, flags: int) -> int | None:
    """Open and lock; None where there are no locks. The path leads to what is locked.

    Raises `_BusyError` if another holds the lock, FileNotFoundError if the path does not lead there
    any more, because another has removed it in the meantime.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, flags | _NO_FOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(descriptor)
        raise _BusyError from problem
    except OSError:
        os.close(descriptor)
        return None
    try:
        if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor)):
            return descriptor
    except OSError:
        _release(descriptor)
        raise
    _release(descriptor)
    raise FileNotFoundError(path)


def _release(descriptor: int) -> None:
    """Free a lock, also if a forked child still has the file open."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


# --- temporary files and folders --------------------------------------------------------------


class Temporary:
    """A hidden file or folder that is removed if its process ends before it is moved away.

    Only its owner can read it until then; it gets the usual permissions when it is moved.

    Parameters
    ----------
    target : path
        The temporary one is made beside it, and named after it.
    what : str
        What it is, for its name: ``.counts.npy.conenmf-H.0f3a.tmp``.
    is_folder : bool

    Attributes
    ----------
    path : Path
    """

    def __init__(self, target: Path, what: str = "part", *, is_folder: bool = False) -> None:
        self._pid = os.getpid()
        self._is_folder, self._is_moved = is_folder, False
        while True:
            self.path = target.with_name(_temporary_name(target.name, what))
            self._usual_mode = _mode_of_new_file(self.path)
            if is_folder:
                self._usual_mode |= (self._usual_mode & 0o444) >> 2  # who reads may enter
                self.path.mkdir(0o700)
            else:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                self._lock = _locked(self.path, _FOLDER if is_folder else os.O_RDWR)
                return
            except (_BusyError, FileNotFoundError):  # taken for a leftover before it was locked
                continue

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def move(self, target: Path) -> None:
        """Give it a lasting name; a file replaces an earlier one, a folder does not."""
        self.publish()
        os.replace(self.path, target)
        self._is_moved = True
        self._release()

    def publish(self) -> None:
        """Give it the permissions that a new file or folder has."""
        with suppress(OSError):  # a file system without permissions
            os.chmod(self.path, stat.S_IMODE(self.path.stat().st_mode) | self._usual_mode)

    def remove(self) -> None:
        """Remove it, unless it was moved; a forked child leaves it to its parent."""
        if self._pid == os.getpid() and not self._is_moved:
            _remove(self.path, self._is_folder)
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            _release(self._lock)
            self._lock = None


def _mode_of_new_file(path: Path) -> int:
    """What the folder and the umask, which cannot be read without changing it, make of a file."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)  # another process may take it for a leftover


def remove_leftovers(folder: Path, *, of_all_machines: bool = False) -> None:
    """Remove the temporary files and folders here whose owners have ended.

    Those of other machines are left alone, since some network file systems have locks that other
    machines do not see; unless the caller knows that no other one uses this folder.
    """
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_ours(entry.name):
                path = Path(entry.path)
                if of_all_machines or _is_from_here(path):
                    _remove_if_free(path)


def is_ours(name: str) -> bool:
    """Whether a file or folder of this name is temporary, or a lock."""
    if not (name.startswith(".") and ".conenmf-" in name):  # quick, for folders of many files
        return False
    return name.endswith(LOCK_FILE) or _TEMPORARY.fullmatch(name) is not None


def _is_from_here(path: Path) -> bool:
    """Whether a file of ours was made on this machine."""
    found = _TEMPORARY.fullmatch(path.name)
    if found is None:
        return f" {_here()} " in _owner(path)
    return bool({*found.groups()} & {*_machine()})


def _remove_if_free(path: Path) -> None:
    with suppress(OSError, _BusyError):
        mode = path.lstat().st_mode
        is_folder = stat.S_ISDIR(mode)
        if is_folder or stat.S_ISREG(mode):
            lock = _locked(path, _FOLDER if is_folder else os.O_RDWR)
            if lock is not None:
                try:
                    _remove(path, is_folder)
                finally:
                    _release(lock)


def _remove(path: Path, is_folder: bool) -> None:
    if is_folder:
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _temporary_name(name: str, what: str) -> str:
    short = name.encode("utf-8", "surrogateescape")[:_NAME_BYTES].decode("utf-8", "ignore")
    return f".{short}.conenmf-{what}.{''.join(_machine())}{secrets.token_hex(6)}.tmp"


def _machine() -> tuple[str, str]:
    """What is known of this machine: its name, and when it was started, which containers share."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        started = socket.gethostname()
    name, boot = (
        hashlib.sha256(text.encode()).hexdigest()[:8] for text in (socket.gethostname(), started)
    )
    return name, boot


# --- folders that one process may use at a time -----------------------------------------------


@contextmanager
def in_use(what: Path, lock_file: Path | None = None) -> Iterator[None]:
    """Hold a folder by a lock file, by default one in it; `OutputError` if another holds it."""
    path = what / LOCK_FILE if lock_file is None else lock_file
    lock = _patiently_locked(what, path)
    if lock is None:
        path.unlink(missing_ok=True)
        if fcntl is not None:
            warnings.warn(
                f"{what}: this file system has no locks, so no other process must use the folder",
                LockWarning,
                stacklevel=4,
            )
        yield
        return
    pid, now = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S")
    with suppress(OSError):  # a full disk; the lock holds all the same
        os.ftruncate(lock, 0)
        os.write(lock, f"process {pid} {_here()} since {now}".encode())
    try:
        yield
    finally:
        if pid == os.getpid():
            with suppress(OSError):
                path.unlink()
            _release(lock)


def _patiently_locked(what: Path, path: Path) -> int | None:
    """Lock a file that others may remove, or hold for an instant while they look at it."""
    for last in (*[False] * _TRIES, True):
        try:
            return _locked(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # its last owner has just removed it
            if last or not path.parent.is_dir():
                raise
        except _BusyError:
            if last:
                raise OutputError(
                    f"{what} is in use by {_owner(path)}: wait until that has ended, or name "
                    "another folder"
                ) from None
            time.sleep(_TRY_SECONDS)
    raise AssertionError


def _here() -> str:
    return f"on {socket.gethostname()}"


def _owner(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            text = file.read(200).decode("utf-8", "replace")
    except OSError:
        text = ""
    return text or "another process"

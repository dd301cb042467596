"""Forks: a child process never waits for a lock that none of its threads holds.

A fork copies the locks that other threads hold, but not the threads. So it waits here, for a while,
until no other thread holds one of ours, compiles, or imports: an import that a fork cuts off would
never end. If they take too long the child gets new locks.

Nothing is held while it waits: all locks are tried, and all released if one of them is not free.
h5py has a lock of its own, which its own hook has taken by then, and which a thread may need to
finish its import; it is released for as long as the fork waits.
"""

from __future__ import annotations

import _imp
import concurrent.futures.thread  # noqa: F401 - first: its hook then takes its lock after ours
import logging  # noqa: F401 - like that
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from importlib import _bootstrap
from typing import Any

__all__ = ["hold_across_forks"]

_FORK_SECONDS = 10.0  # that a fork waits at most: another thread may wait for the fork
_PAUSE_SECONDS = 0.001

_locks: dict[int, weakref.ref[Any]] = {}  # by id: a later lock takes the place of one that is gone


class _Taken(threading.local):
    """The locks that the fork of this thread has taken, or was about to take."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_taken = _Taken()


class _ImportLock:
    """Python's lock of the beginning of imports; free only if no other thread imports anything."""

    def acquire(self, *, blocking: bool) -> bool:
        _imp.acquire_lock()
        me = threading.get_ident()
        locks: dict[str, Any] = vars(_bootstrap).get("_module_locks", {})
        # A lock lives from the beginning of an import to its end.
        under_way = [lock for ref in list(locks.values()) if (lock := ref()) is not None]
        if all(getattr(lock, "owner", me) == me for lock in under_way):
            return True
        _imp.release_lock()
        return False

    def release(self) -> None:
        _imp.release_lock()


_imports = _ImportLock()


def hold_across_forks(lock: Any) -> Any:
    """Let forks take this RLock first, and parent and child release it afterwards; return it."""
    _locks[id(lock)] = weakref.ref(lock)
    return lock


def _ours() -> list[Any]:
    return [lock for ref in list(_locks.values()) if (lock := ref()) is not None]


def _lock_of_h5py() -> Any:
    return getattr(sys.modules.get("h5py._objects"), "phil", None)


def _before() -> None:
    until = time.monotonic() + _FORK_SECONDS
    is_new = _lock_of_h5py() is None
    while not _take_all() and time.monotonic() < until:
        h5py = _lock_of_h5py()
        is_held = h5py is not None and h5py._is_owned()
        if is_held:
            h5py.release()
        try:
            time.sleep(_PAUSE_SECONDS)
        finally:
            if is_held:
                h5py.acquire()
    if is_new and (h5py := _lock_of_h5py()) in _taken.locks:
        _taken.locks.remove(h5py)  # imported meanwhile, its own hook will release it


def _take_all() -> bool:
    """Take all locks or none; False if another thread holds one of them."""
    h5py = _lock_of_h5py()
    for lock in (*_ours(), *([] if h5py is None else [h5py]), _imports):
        _taken.locks.append(lock)
        if not lock.acquire(blocking=False):
            _release()
            return False
    return True


def _release() -> None:
    while _taken.locks:
        with suppress(RuntimeError):  # not taken, after all
            _taken.locks[-1].release()
        _taken.locks.pop()


def _begin_child() -> None:
    """Release what the fork took, and replace what it could not."""
    _release()
    for lock in _ours():
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_begin_child)
    os.register_at_fork(after_in_parent=_release)  # again: Ctrl-C may have ended the first

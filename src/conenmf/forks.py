"""Forks: locks that a child process needs.

A fork copies the locks that other threads hold, but not the threads, so a child would wait for them
for ever. Here a fork waits instead, for a while, until they are released.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["hold_across_forks", "importing", "locks_of_libraries"]

_FORK_SECONDS = 10.0  # that a fork waits for a lock at most: its holder may wait for the fork

locks_of_libraries: list[Any] = []
"""Locks of libraries that were imported late, such as that of numba's compiler."""


def _take_locks() -> None:
    for lock in locks_of_libraries:
        lock.acquire(timeout=_FORK_SECONDS)


def _release_locks() -> None:
    for lock in locks_of_libraries:
        with suppress(RuntimeError):  # its library was imported while this thread forked
            lock.release()


def hold_across_forks(lock: Any) -> Any:
    """Let forks take this lock first, and parent and child release it afterwards; return it.

    The hooks are built-in functions, so that Ctrl-C cannot come between them and the lock.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=partial(lock.acquire, timeout=_FORK_SECONDS),
            after_in_parent=lock.release,
            after_in_child=lock.release,
        )
    return lock


# What is registered first is called last before a fork: when no thread imports a library.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_take_locks, after_in_parent=_release_locks, after_in_child=_release_locks
    )
importing = hold_across_forks(threading.RLock())
"""Held while a library is imported late: an import that a fork cuts off would never end."""

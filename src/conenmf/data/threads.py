"""Threads: blocks of V run on threads of our own, while BLAS uses one.

Results are collected in the order of the tasks, so that sums do not depend on which thread finished
first. How many threads there should be is decided in `resources`. Whatever has threads belongs to
one process: a forked child makes its own.

Threads are daemons, and wait for each other only in `SimpleQueue.get`. With a `ThreadPoolExecutor`,
about one Ctrl-C in 500 left a lock of its futures held: the next pass, or the end of the process,
waited for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController


class _Pool:
    """Threads that wait for tasks; it grows to as many as were asked for at once."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._n_threads = 0

    def put(self, task: Callable[[], None], copies: int = 1) -> None:
        """Let so many threads do this task, which raises nothing."""
        while self._n_threads < copies:
            threading.Thread(target=self._serve, name="conenmf", daemon=True).start()
            self._n_threads += 1  # not before: the start may fail, or be interrupted
        for _ in range(copies):
            self._tasks.put(task)

    def _serve(self) -> None:
        while True:
            self._tasks.get()()


@cache
def _helpers(process: int) -> _Pool:
    return _Pool()


def run_in_order(
    run: Callable[[int], Any], collect: Callable[[int, Any], None], count: int, n_threads: int
) -> None:
    """Run tasks 0, 1, ... on threads, this one included, and collect the results in order.

    A thread that finishes a task takes the next one, and collects all results that are due. The
    first exception stops the others and is raised here, when they have finished their tasks. Tasks
    may run tasks: nobody waits for a helper that has not begun.
    """
    lock = threading.Lock()
    tasks = iter(range(count))
    ready: dict[int, Any] = {}
    failures: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()
    due = n_helpers = 0
    is_over = False

    def work() -> None:
        nonlocal due
        try:
            while not failures:
                with lock:
                    index = next(tasks, None)
                if index is None:
                    return
                result = run(index)
                with lock:
                    ready[index] = result
                    while due in ready:
                        collect(due, ready.pop(due))
                        due += 1
        except BaseException as failure:
            failures.append(failure)

    def help_out() -> None:
        nonlocal n_helpers
        with lock:
            if is_over:
                return
            n_helpers += 1
        with _limit_here():
            work()
        ended.put(None)

    try:
        if n_threads > 1 and count > 1:
            _helpers(os.getpid()).put(help_out, min(n_threads, count) - 1)
        work()
    except BaseException as failure:  # interrupted between tasks
        failures.append(failure)
    with lock:
        is_over = True
    for _ in range(n_helpers):
        ended.get()
    if failures:
        raise failures[0]


@contextmanager
def read_ahead(
    read: Callable[[int], Any], count: int, depth: int
) -> Iterator[Callable[[int], Any]]:
    """Read blocks 0, 1, ... in order on a thread of its own.

    Yields a function that returns the block of a number, each once; the reader stays at most
    `depth` blocks ahead of the callers, and an exception of `read` is raised to the caller.
    """
    lock = threading.Lock()
    wanted: SimpleQueue[int | None] = SimpleQueue()
    blocks: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(count)]
    ended: SimpleQueue[None] = SimpleQueue()
    n_taken = n_begun = 0
    is_open, is_started = True, False

    def serve() -> None:
        while (index := wanted.get()) is not None:
            try:
                if not is_open:
                    raise CancelledError("reading has ended")
                blocks[index].put((read(index), None))
            except BaseException as failure:
                blocks[index].put((None, failure))
        ended.put(None)

    def take(index: int) -> Any:
        nonlocal n_taken, n_begun
        with lock:
            if not is_open:
                raise CancelledError("reading has ended")
            n_taken += 1
            while n_begun < min(count, max(n_taken + depth, index + 1)):
                wanted.put(n_begun)
                n_begun += 1
        block, failure = blocks[index].get()
        if failure is not None:
            raise failure
        return block

    try:
        threading.Thread(target=serve, name="conenmf reader", daemon=True).start()
        is_started = True
        yield take
    finally:
        with lock:
            is_open = False
            wanted.put(None)
        if is_started:
            ended.get()


@cache
def keep_freed_memory() -> None:
    """Let arrays of up to 31 MB be made from memory that others have freed, once per process.

    GNU's malloc returns large arrays to the system when they are freed, until it has seen one of
    that size; so the next ones are faulted in page by page, which takes a tenth of an iteration on
    sparse data. The array made here is not touched, so it takes no memory.
    """
    np.empty(31 << 20, np.uint8)


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


def _is_limited() -> bool:
    return all(library.num_threads == 1 for library in _blas().lib_controllers)


def _limit_here() -> AbstractContextManager[Any]:
    """Hold BLAS to one thread where that is not so: where the limit is each thread's own."""
    return nullcontext() if _is_limited() else _blas().limit(limits=1)


class _User:
    """Someone who needs BLAS held to one thread, for as long as this object lives."""


class _BlasLimit:
    """Holds BLAS to one thread as long as anyone in this process needs it.

    The limit of OpenBLAS belongs to the process, but threadpoolctl silently ignores all threads
    except the one that set it first. So a thread of its own sets it for the first user and lifts
    it after the last, whichever threads these are on.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users: weakref.WeakSet[_User] = weakref.WeakSet()
        self._keeper = _Pool()
        self.limit: Any = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be a user."""
        user = _User()
        try:
            with self._lock:
                self._users.add(user)
                if self.limit is None:
                    self._update()
            with _limit_here():
                yield
        finally:
            if self is _blas_limit(os.getpid()):  # else entered before a fork, left in the child
                with self._lock:
                    self._users.discard(user)
                    if not self._users:
                        self._update()

    def _update(self) -> None:
        """Set or lift the limit, on the keeper's thread."""
        done: SimpleQueue[None] = SimpleQueue()

        def update() -> None:
            if self._users and self.limit is None:
                self.limit = _blas().limit(limits=1).__enter__()
            elif not self._users and self.limit is not None:
                self.limit.__exit__(None, None, None)
                self.limit = None
            done.put(None)

        self._keeper.put(update)
        done.get()


@cache
def _blas_limit(process: int) -> _BlasLimit:
    return _BlasLimit()


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread in the whole process, as long as any thread is inside."""
    limit = _blas_limit(os.getpid())
    return nullcontext() if limit.limit is None and _is_limited() else limit.hold()

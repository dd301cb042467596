"""Threads: blocks of V run on threads of our own, while BLAS uses one.

Results are collected in the order of the tasks, so that sums do not depend on which thread finished
first. How many threads there should be is not decided here but in `resources`. A forked child has
none of its parent's threads: it notices when it first needs them, and makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

__all__ = ["keep_freed_memory", "one_blas_thread", "read_ahead", "run_in_order"]

_MAX_THREADS = 1024


class _Process:
    """The threads of this process, and how many users hold BLAS to one thread."""

    def __init__(self) -> None:
        self.id = os.getpid()
        self.lock = threading.RLock()  # Ctrl-C may come while this thread holds it
        self.workers = ThreadPoolExecutor(_MAX_THREADS, "conenmf")
        self.idle_readers: list[ThreadPoolExecutor] = []
        self.users, self.limit = 0, None  # type: int, Any


_process = _Process()


def _here() -> _Process:
    """Return what belongs to this process: a forked child has locks and threads of its own."""
    global _process
    if _process.id != os.getpid():
        limit, _process = _process.limit, _Process()
        if limit is not None:
            limit.restore_original_limits()
    return _process


def run_in_order(
    run: Callable[[int], Any], collect: Callable[[int, Any], None], count: int, n_threads: int
) -> None:
    """Run tasks 0, 1, ... on threads, this one included, and collect the results in order.

    A thread that finishes a task takes the next one, and collects all results that are due. The
    first exception stops the others and is raised here, when they have finished their tasks.
    """
    lock = threading.Lock()
    tasks = iter(range(count))
    ready: dict[int, Any] = {}
    failures: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()  # which waits in C, so that Ctrl-C loses no lock
    due, n_helpers, is_over = 0, 0, False

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
            if is_over:  # on a busy pool, so that tasks may start tasks
                return
            n_helpers += 1
        with _own_limit():
            work()
        ended.put(None)

    try:
        for _ in range(min(n_threads, count) - 1):
            _here().workers.submit(help_out)
        work()
        with lock:
            is_over = True
        for _ in range(n_helpers):
            ended.get()
    except BaseException as failure:  # interrupted
        failures.append(failure)
        is_over = True
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
    process, lock = _here(), threading.Lock()
    reader = process.idle_readers.pop() if process.idle_readers else ThreadPoolExecutor(1)
    places: dict[int, SimpleQueue[tuple[Any, BaseException | None]]] = {}
    n_taken = n_begun = 0
    is_open = True

    def read_into(place: SimpleQueue[tuple[Any, BaseException | None]], index: int) -> None:
        try:
            if not is_open:
                raise CancelledError("reading has ended")
            place.put((read(index), None))
        except BaseException as failure:
            place.put((None, failure))

    def take(index: int) -> Any:
        nonlocal n_taken, n_begun
        with lock:
            if not is_open:
                raise CancelledError("reading has ended")
            n_taken += 1
            while n_begun < min(count, max(n_taken + depth, index + 1)):
                places[n_begun] = SimpleQueue()
                reader.submit(read_into, places[n_begun], n_begun)
                n_begun += 1
            place = places.pop(index)
        block, failure = place.get()
        if failure is not None:
            raise failure
        return block

    try:
        yield take
    finally:
        is_open = False
        ended: SimpleQueue[None] = SimpleQueue()
        reader.submit(ended.put, None)
        ended.get()
        process.idle_readers.append(reader)


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


def _own_limit() -> AbstractContextManager[Any]:
    """Hold BLAS to one thread where that is not so: where the limit is each thread's own."""
    if all(library.num_threads == 1 for library in _blas().lib_controllers):
        return nullcontext()
    limit: AbstractContextManager[Any] = _blas().limit(limits=1)
    return limit


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread in the whole process, as long as any thread is inside."""
    process = _here()
    with process.lock:
        if process.users == 0:
            process.limit = _blas().limit(limits=1)
        process.users += 1
    try:
        with _own_limit():
            yield
    finally:
        if process is _here():  # unless a fork has come between
            with process.lock:
                process.users -= 1
                if process.users == 0 and process.limit is not None:
                    limit, process.limit = process.limit, None
                    limit.restore_original_limits()

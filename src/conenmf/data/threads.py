"""Threads: blocks of V run on threads of our own, while BLAS uses one.

Results are collected in the order of the tasks, so that sums do not depend on which thread finished
first. Threads that have done their work wait for more: on small data, starting them for every pass
would take a noticeable share of the time. How many threads there should be is not decided here but
in `resources`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeAlias

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread", "read_ahead", "run_in_order"]

_Inbox: TypeAlias = "SimpleQueue[tuple[Callable[[], None], Future[None]] | None]"


def run_in_order(
    run: Callable[[int], Any], collect: Callable[[int, Any], None], count: int, n_threads: int
) -> None:
    """Run tasks 0, 1, ... on threads, this one included, and collect the results in order.

    A thread that finishes a task takes the next one, and collects all results that are due. The
    first exception stops the others and is raised here.
    """
    lock = threading.Lock()
    tasks = iter(range(count))
    ready: dict[int, Any] = {}
    failures: list[BaseException] = []
    due = 0

    def worker() -> None:
        with _blas_controller().limit(limits=1):  # where the limit is each thread's own
            work()

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

    try:
        workers = [_crew.start(worker) for _ in range(min(n_threads, count) - 1)]
        work()
        for future in workers:
            future.result()
    except BaseException as failure:  # interrupted between tasks
        failures.append(failure)
    if failures:
        raise failures[0]


class _Crew:
    """Threads that wait for work, as many as were ever busy at once.

    No work waits for a thread to be free, so tasks may start tasks, from any number of threads.

    A `ThreadPoolExecutor` is as fast, but cannot do two things. Its threads count as idle only
    some time after their future is done, so the next pass may start more of them. And before a
    fork the idle threads must end while others, the keeper of BLAS among them, continue: an
    executor ends all threads or none, and takes no work from then on.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[threading.Thread, _Inbox]] = []

    def start(self, work: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        try:
            _, inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), daemon=True).start()
        inbox.put((work, future))
        return future

    def shutdown(self) -> None:
        """End the threads that have nothing to do."""
        while self._idle:
            thread, inbox = self._idle.pop()
            inbox.put(None)
            thread.join()

    def _serve(self, inbox: _Inbox) -> None:
        while job := inbox.get():
            work, future = job
            failure: BaseException | None = None
            try:
                work()
            except BaseException as problem:
                failure = problem
            self._idle.append((threading.current_thread(), inbox))
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
            del job, work, future, failure  # and the data that they hold


@contextmanager
def read_ahead(
    read: Callable[[int], Any], count: int, depth: int
) -> Iterator[Callable[[int], Any]]:
    """Read blocks 0, 1, ... in order on a thread of its own.

    Yields a function that returns the block of a number, each once; the reader stays at most
    `depth` blocks ahead of the callers, and an exception of `read` is raised to the caller.
    """
    lock = threading.Lock()
    futures: dict[int, Future[Any]] = {}
    n_taken = n_begun = 0
    reader = ThreadPoolExecutor(1, "conenmf-reader")

    def take(index: int) -> Any:
        nonlocal n_taken, n_begun
        with lock:
            n_taken += 1
            while n_begun < min(count, max(n_taken + depth, index + 1)):
                futures[n_begun] = reader.submit(read, n_begun)
                n_begun += 1
            future = futures.pop(index)
        return future.result()

    try:
        yield take
    finally:
        reader.shutdown(cancel_futures=True)


@cache
def _blas_controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


class _BlasKeeper:
    """Holds BLAS to one thread as long as any thread of the process asks for it.

    The limit of OpenBLAS belongs to the whole process, and threadpoolctl lets only the thread
    that set it restore the old one. So a thread of the keeper's own sets it for the first user
    and restores it after the last, regardless of which threads those are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._here = threading.local()
        self._leave = threading.Event()
        self._holding: Future[None] | None = None
        self._limit: Any = None

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        if getattr(self._here, "held", False):
            yield
            return
        user = object()
        try:
            self._enter(user)
            with _blas_controller().limit(limits=1):  # where the limit is each thread's own
                self._here.held = True
                yield
        finally:
            self._here.held = False
            self._exit(user)

    def _enter(self, user: object) -> None:
        with self._lock:
            self._users.add(user)
            if self._holding is None:
                ready, self._leave = threading.Event(), threading.Event()
                self._holding = _crew.start(lambda: self._hold(ready))
                ready.wait()

    def _exit(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            if not self._users and self._holding is not None:
                self._leave.set()
                holding, self._holding = self._holding, None
                holding.result()

    def _hold(self, ready: threading.Event) -> None:
        try:
            with _blas_controller().limit(limits=1) as self._limit:
                ready.set()
                self._leave.wait()
        finally:
            self._limit = None
            ready.set()

    def restore_limit(self) -> None:
        """Restore the old limit in a process that has none of the threads, and no users."""
        if self._limit is not None:
            with self._limit:
                pass


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread in the whole process, as long as any thread is inside."""
    return _keeper.one_thread()


_crew = _Crew()
_keeper = _BlasKeeper()


def _begin_child() -> None:
    global _crew, _keeper
    _keeper.restore_limit()
    _crew, _keeper = _Crew(), _BlasKeeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lambda: _crew.shutdown(), after_in_child=_begin_child)

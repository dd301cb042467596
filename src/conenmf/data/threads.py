"""Threads: blocks of V run on ours, while BLAS keeps to one.

Results are collected in the order of the tasks, so that sums do not depend on which thread
finished first. Threads that have done their work wait for more: on small data, starting them for
every pass would be felt.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread", "read_ahead", "run_in_order"]


def run_in_order(
    run: Callable[[int], Any], collect: Callable[[int, Any], None], count: int, n_threads: int
) -> None:
    """Run tasks 0, 1, ... on threads, this one included, and collect the results in order.

    Whoever finishes a task takes the next one, and collects all results that are due. The first
    exception stops the others and is raised here.
    """
    lock = threading.Lock()
    tasks = iter(range(count))
    ready: dict[int, Any] = {}
    failures: list[BaseException] = []
    due = 0

    def help_() -> None:
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
        jobs = [_crew.start(help_) for _ in range(min(n_threads, count) - 1)]
        work()
        for job in jobs:
            job.wait()
    except BaseException as failure:  # interrupted between tasks
        failures.append(failure)
    if failures:
        raise failures[0]


class _Job:
    """Work given to a thread of the crew."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._running = threading.Lock()
        self._running.acquire()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self._failure = failure

    def end(self) -> None:
        self._running.release()

    def wait(self) -> None:
        """Return when the work is done, or raise what it raised."""
        self._running.acquire()
        if self._failure is not None:
            raise self._failure


class _Crew:
    """Threads that wait for work, as many as were ever busy at once.

    No work waits for a thread to be free, so tasks may start tasks, from any number of threads.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[threading.Thread, SimpleQueue[_Job | None]]] = []

    def start(self, work: Callable[[], None]) -> _Job:
        job = _Job(work)
        try:
            _, inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), daemon=True).start()
        inbox.put(job)
        return job

    def dismiss(self) -> None:
        """Let the threads go that have nothing to do."""
        while self._idle:
            thread, inbox = self._idle.pop()
            inbox.put(None)
            thread.join()

    def _serve(self, inbox: SimpleQueue[_Job | None]) -> None:
        me = threading.current_thread()
        while job := inbox.get():
            job.run()
            self._idle.append((me, inbox))
            job.end()
            del job  # and the data that it holds


@contextmanager
def read_ahead(
    read: Callable[[int], Any], count: int, depth: int
) -> Iterator[Callable[[int], Any]]:
    """Read pieces 0, 1, ... in order on a thread of its own.

    Yields a function that returns the piece of a number, each once; the reader stays at most
    `depth` pieces ahead of the takers, and an exception of its own is raised to them.
    """
    changed = threading.Condition()
    ready: dict[int, Any] = {}
    failures: list[BaseException] = []
    taken = 0
    closed = False

    def work() -> None:
        try:
            for index in range(count):
                with changed:
                    changed.wait_for(lambda: closed or index - taken < depth)  # noqa: B023
                    if closed:
                        return
                piece = read(index)
                with changed:
                    ready[index] = piece
                    changed.notify_all()
        except BaseException as failure:
            with changed:
                failures.append(failure)
                changed.notify_all()

    def take(index: int) -> Any:
        nonlocal taken
        with changed:
            changed.wait_for(lambda: index in ready or failures or closed)
            if index not in ready:
                raise failures[0] if failures else RuntimeError("reading was broken off")
            taken += 1
            changed.notify_all()
            return ready.pop(index)

    reader = threading.Thread(target=work, name="conenmf-reader")
    reader.start()
    try:
        yield take
    finally:
        with changed:
            closed = True
            changed.notify_all()
        reader.join()


@cache
def _blas_controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


class _BlasKeeper:
    """Holds BLAS to one thread as long as anybody in the process asks for it.

    The limit of OpenBLAS belongs to the whole process, and threadpoolctl lets only the thread
    that set it take it back. So a thread of the keeper's own sets it for the first user and takes
    it back after the last, whichever threads those are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._here = threading.local()
        self._leave = threading.Event()
        self._holding: _Job | None = None
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
                holding.wait()

    def _hold(self, ready: threading.Event) -> None:
        try:
            with _blas_controller().limit(limits=1) as self._limit:
                ready.set()
                self._leave.wait()
        finally:
            self._limit = None
            ready.set()

    def give_back(self) -> None:
        """Take the limit back in a process that has none of the threads, and no users."""
        if self._limit is not None:
            with self._limit:
                pass


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread in the whole process, as long as anybody is inside."""
    return _keeper.one_thread()


_crew = _Crew()
_keeper = _BlasKeeper()


def _begin_child() -> None:
    global _crew, _keeper
    _keeper.give_back()
    _crew, _keeper = _Crew(), _BlasKeeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lambda: _crew.dismiss(), after_in_child=_begin_child)

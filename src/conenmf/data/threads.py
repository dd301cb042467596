"""Threads: blocks of V run on threads of our own, while BLAS uses one.

Results are collected in the order of the tasks, so that sums do not depend on which thread finished
first. Threads that have done their work wait for more: on small data, starting them for every pass
would take a noticeable share of the time. How many threads there should be is not decided here but
in `resources`.

Ctrl-C may raise KeyboardInterrupt in the main thread between any two operations. So no thread keeps
the process from ending; a thread that waits for the work of another waits in one call into C, which
can be interrupted and repeated (`Event` and `Future` cannot); and a thread that serves another ends
when that one is gone, even if it could not say so.

A forked child has none of these threads. It notices when it first needs them, and makes its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import ThreadpoolController

__all__ = ["keep_freed_memory", "one_blas_thread", "read_ahead", "run_in_order"]


class _Done:
    """Whether some work has ended; one thread may wait, be interrupted, and wait again."""

    def __init__(self) -> None:
        self._is_set = False
        self._news: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._is_set = True
        self._news.put(None)

    def wait(self) -> None:
        while not self._is_set:
            self._news.get()


class _Token:
    """Lives as long as those who hold it: what serves them has a weak reference to it."""

    __slots__ = ("__weakref__",)


_Inbox: TypeAlias = "SimpleQueue[tuple[Callable[[], None], _Done]]"


def run_in_order(
    run: Callable[[int], Any], collect: Callable[[int, Any], None], count: int, n_threads: int
) -> None:
    """Run tasks 0, 1, ... on threads, this one included, and collect the results in order.

    A thread that finishes a task takes the next one, and collects all results that are due. The
    first exception stops the others and is raised here, when they have finished their tasks.
    """
    _begin_if_child()
    lock = threading.Lock()
    tasks = iter(range(count))
    ready: dict[int, Any] = {}
    failures: list[BaseException] = []
    due = 0

    def work(limit: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        nonlocal due
        try:
            with limit():
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

    workers: list[_Done] = []
    try:
        try:
            for _ in range(min(n_threads, count) - 1):
                workers.append(_crew.start(partial(work, _own_limit)))  # noqa: PERF401 - one by one
            work()
        except BaseException as failure:  # interrupted between tasks
            failures.append(failure)
        for done in workers:
            done.wait()
    except BaseException as failure:
        failures.append(failure)
    if failures:
        raise failures[0]


class _Crew:
    """Threads that wait for work, as many as were ever busy at once.

    No work waits for a thread to be free, so tasks may start tasks, from any number of threads.

    A `ThreadPoolExecutor` is as fast, but the process waits for its threads at its end, even if
    they wait themselves. And they count as idle only some time after their future is done, so the
    next pass may start more of them.
    """

    def __init__(self) -> None:
        self._idle: list[_Inbox] = []

    def start(self, work: Callable[[], None]) -> _Done:
        """Let a thread do this work, which raises nothing."""
        done = _Done()
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            inbox.put((work, done))  # first: a thread whose start is interrupted may run
            threading.Thread(target=self._serve, name="conenmf", args=(inbox,), daemon=True).start()
        else:
            inbox.put((work, done))
        return done

    def _serve(self, inbox: _Inbox) -> None:
        process = os.getpid()
        while True:
            work, done = inbox.get()
            work()
            del work  # and the data that it holds
            if process != os.getpid():  # a fork has made this the only thread of a child
                return
            self._idle.append(inbox)
            done.set()
            del done


@contextmanager
def read_ahead(
    read: Callable[[int], Any], count: int, depth: int
) -> Iterator[Callable[[int], Any]]:
    """Read blocks 0, 1, ... in order on a thread of its own.

    Yields a function that returns the block of a number, each once; the reader stays at most
    `depth` blocks ahead of the callers, and an exception of `read` is raised to the caller.
    """
    _begin_if_child()
    lock = threading.Lock()
    wanted: SimpleQueue[Any] = SimpleQueue()
    places: dict[int, SimpleQueue[tuple[Any, BaseException | None]]] = {}
    n_taken = n_begun = 0
    ended: list[bool] = []
    caller = _Token()

    def take(index: int, _caller: _Token = caller) -> Any:
        nonlocal n_taken, n_begun
        with lock:
            if ended:
                raise CancelledError("reading has ended")
            n_taken += 1
            while n_begun < min(count, max(n_taken + depth, index + 1)):
                places[n_begun] = SimpleQueue()
                wanted.put((n_begun, places[n_begun]))
                n_begun += 1
            place = places.pop(index)
        block, failure = place.get()
        if failure is not None:
            raise failure
        return block

    reader = _crew.start(
        partial(_serve_blocks, wanted, read, ended, weakref.ref(caller, wanted.put))
    )
    try:
        yield take
    finally:
        with lock:
            ended.append(True)
        wanted.put(None)
        reader.wait()


def _serve_blocks(
    wanted: SimpleQueue[Any], read: Callable[[int], Any], ended: list[bool], caller: Any
) -> None:
    """Read the blocks that are wanted, until there is a None, or the caller is gone.

    `caller` is a reference that puts itself among the wanted when it dies, and must live for that.
    """
    while isinstance(request := wanted.get(), tuple):
        index, place = request
        try:
            if ended:
                raise CancelledError("reading has ended")
            place.put((read(index), None))
        except BaseException as failure:
            place.put((None, failure))
        del request, place


@cache
def keep_freed_memory() -> None:
    """Let arrays of up to 31 MB be made from memory that others have freed, once per process.

    GNU's malloc returns large arrays to the system when they are freed, until it has seen one of
    that size; so the next ones are faulted in page by page, which takes a tenth of an iteration on
    sparse data. The array made here is not touched, so it takes no memory.
    """
    np.empty(31 << 20, np.uint8)


@cache
def _blas_controller() -> Any:
    return ThreadpoolController().select(user_api="blas")


def _own_limit() -> AbstractContextManager[Any]:
    """Hold BLAS to one thread where that is not so: where the limit is each thread's own."""
    controller = _blas_controller()
    if all(library.num_threads == 1 for library in controller.lib_controllers):
        return nullcontext()
    limit: AbstractContextManager[Any] = controller.limit(limits=1)
    return limit


class _BlasKeeper:
    """Holds BLAS to one thread as long as any thread of the process asks for it.

    The limit of OpenBLAS belongs to the whole process, and threadpoolctl lets only the thread
    that set it restore the old one. So a thread of the keeper's own sets it for the first user
    and restores it after the last, regardless of which threads those are.

    A user who is interrupted may not get to say that it is gone. It is a user only as long as it
    holds its token: the end of that reaches the keeper too. What it calls on its thread need not
    ask again.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._users: set[Any] = set()
        self._here = threading.local()  # `user`: the one on this thread, if any
        self._limit: Any = None
        self._left: SimpleQueue[Any] = SimpleQueue()

    def one_thread(self) -> AbstractContextManager[None]:
        user = getattr(self._here, "user", None)
        if user is not None and user() is not None:
            return nullcontext()
        return self._new_user()

    @contextmanager
    def _new_user(self) -> Iterator[None]:
        token = _Token()
        user = weakref.ref(token, self._left.put)
        try:
            self._enter(user)
            with _own_limit():
                self._here.user = user
                yield
        finally:
            self._here.user = None
            self._exit(user)
            del user  # before the token, so that the keeper is not woken by its end

    def _enter(self, user: Any) -> None:
        with self.lock:
            self._users.add(user)
            is_held = self._limit is not None
        if not is_held:
            answer: SimpleQueue[BaseException | None] = SimpleQueue()
            _crew.start(partial(self._keep, answer))
            failure = answer.get()
            if failure is not None:
                raise failure

    def _exit(self, user: Any) -> None:
        _begin_if_child()
        if self is not _keeper:  # entered before a fork, left in the child
            return
        restored: SimpleQueue[None] = SimpleQueue()
        with self.lock:
            self._users.discard(user)
            if self._limit is None or self._is_used():
                return
            self._left.put(restored)
        restored.get()

    def _is_used(self) -> bool:
        return any(user() is not None for user in self._users)

    def _keep(self, answer: SimpleQueue[BaseException | None]) -> None:
        """Hold the limit as long as there are users, unless another thread does."""
        try:
            controller = _blas_controller()
            with self.lock:
                is_mine = self._limit is None and self._is_used()
                if is_mine:
                    self._limit = controller.limit(limits=1).__enter__()
        except BaseException as failure:
            answer.put(failure)
            return
        answer.put(None)
        while is_mine:
            answers = [self._left.get()]
            with self.lock:
                is_mine = self._is_used()
                if not is_mine:
                    limit, self._limit = self._limit, None
                    limit.__exit__(None, None, None)
                    self._users.clear()
                    with suppress(Empty):  # no one waits for a keeper that is gone
                        while True:
                            answers.append(self._left.get_nowait())
            for message in answers:
                if isinstance(message, SimpleQueue):
                    message.put(None)

    def restore(self) -> None:
        """Restore the old limit in a child that has a keeper of its own."""
        if self._limit is not None:
            with self._limit:
                pass


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold BLAS to one thread in the whole process, as long as any thread is inside."""
    _begin_if_child()
    return _keeper.one_thread()


_crew = _Crew()
_keeper = _BlasKeeper()
_process = os.getpid()


def _begin_if_child() -> None:
    """Make new threads and locks in a forked child: those of its parent would never answer."""
    global _crew, _keeper, _process
    if _process != os.getpid():
        of_parent, _process = _keeper, os.getpid()
        _crew, _keeper = _Crew(), _BlasKeeper()
        of_parent.restore()

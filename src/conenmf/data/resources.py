"""Memory and threads that this process may use, within the limits of its container.

A container sees the memory of its host, but may use less; its control group (cgroup) has the limit.

Blocks of V are processed by our own threads, while BLAS uses one. Results are collected in the
order of the tasks, so sums do not depend on which thread finishes first. Threads belong to one
process: a forked child creates its own.

The threads are daemons, and wait for each other only in `SimpleQueue.get`. With a
`ThreadPoolExecutor`, about one Ctrl-C in 500 left a lock of its futures locked, and the next pass
or the end of the process waited for ever.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import ThreadpoolController

from .. import kernels
from ..errors import ConeNMFError, Option, OptionError

# A number of bytes, or a text such as "2GB".
MemorySize: TypeAlias = int | str | None

_DEFAULT_BYTES = 8 << 30  # assumed if the size of the memory is unknown
_SIZE = re.compile(r"(\d+(?:\.\d+(?=\s*[kmgt]))?)\s*([kmgt]?)(i?)b?")


@cache
def available_memory(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of the machine in bytes, or the limit of the container if that is less.

    `root` is the folder of the container's control group, version 1 or 2.
    """
    limits = [_DEFAULT_BYTES]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no container, or its limit is "max"
            limits.append(int((root / file).read_text()))
    return min(limits)


def memory_budget(max_memory: MemorySize) -> int:
    """Return a budget in bytes; by default half of the available memory.

    >>> memory_budget("1GB"), memory_budget("512 MiB"), memory_budget(4096)
    (1000000000, 536870912, 4096)
    """
    if max_memory is None:
        return available_memory() // 2
    match = _SIZE.fullmatch(str(max_memory).strip().lower())
    budget = 0.0
    if match is not None:
        number, unit, is_binary = match.groups()
        base = 1024 if is_binary else 1000
        budget = float(number) * base ** ["", *"kmgt"].index(unit)
    if not 1 <= budget < 2**62:
        raise OptionError(
            Option("max_memory", max_memory), ", expected a number of bytes or a text such as '1GB'"
        )
    return int(budget)


def require_memory(
    name: str, value: int, n_bytes: int, error: type[ConeNMFError] = OptionError
) -> None:
    """Raise an error for an argument whose arrays would need more memory than is available."""
    if n_bytes > available_memory():
        needed = n_bytes / 1e9
        there = available_memory() / 1e9
        problem = f" needs arrays of {needed:.3g} GB, and there are {there:.3g} GB of memory"
        raise error(Option(name, value), f"{problem}: give less")


# --- threads ----------------------------------------------------------------------------------


def available_threads() -> int:
    """Return OMP_NUM_THREADS if set (joblib sets it in its workers), otherwise the usable cores.

    Usable cores respect the affinity of the process and the processor time of its container.
    """
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    return _usable_cores()


@cache
def _usable_cores() -> int:
    """Return joblib's count, cached: reading system files takes as long as a small transform."""
    from joblib import cpu_count  # takes 0.1 s to import

    return int(cpu_count())


class _Pool:
    """Threads that wait for tasks; their number grows to the largest number needed at once."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._n_threads = 0

    def put(self, task: Callable[[], None], copies: int = 1) -> None:
        """Let `copies` threads do this task, which must not raise."""
        while self._n_threads < copies:
            threading.Thread(target=self._serve, name="conenmf", daemon=True).start()
            self._n_threads += 1  # counted after the start, which may fail or be interrupted
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
    """Run tasks 0, 1, ... on threads, including this one, and collect the results in order.

    A thread that finishes a task takes the next one, and collects all results that are due. The
    first exception stops the other threads, and is raised here after they have finished their
    tasks; so does an interrupt while this thread waits for them. Tasks may run tasks, because
    nobody waits for a thread that has not begun.
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
        try:
            with _limit_here():
                work()
        except BaseException as failure:  # BLAS could not be limited to one thread
            failures.append(failure)
        with lock:
            n_helpers -= 1
        ended.put(None)

    def wait_for_helpers() -> None:
        nonlocal is_over
        with lock:
            is_over = True
        while n_helpers:  # an interrupt may lose what `get` returns
            ended.get()

    try:
        if n_threads > 1 and count > 1:
            kernels.free_numba_lock()  # helpers would wait for ever to compile
            _helpers(os.getpid()).put(help_out, min(n_threads, count) - 1)
        work()
        wait_for_helpers()
    except BaseException as failure:  # interrupted
        failures.append(failure)
    wait_for_helpers()
    if failures:
        raise failures[0]


@cache
def keep_freed_memory() -> None:
    """Let arrays of up to 31 MB reuse freed memory, once per process.

    GNU's malloc returns large arrays to the system when they are freed, until it has seen an array
    of that size. The next arrays are then faulted in page by page, which takes a tenth of an
    iteration on sparse data. The array created here is not touched, so it takes no memory.
    """
    np.empty(31 << 20, np.uint8)


# --- BLAS ---------------------------------------------------------------------------------------


@cache
def _blas() -> Any:
    return ThreadpoolController().select(user_api="blas")


def _limit_here() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread in this thread, if the limit is a separate one for each thread."""
    is_limited = all(library.num_threads == 1 for library in _blas().lib_controllers)
    return nullcontext() if is_limited else _blas().limit(limits=1)


class _User:
    """A caller that needs BLAS limited to one thread, as long as this object lives."""


class _BlasLimit:
    """Limits BLAS to one thread as long as this process has a user of the limit."""

    def __init__(self) -> None:
        self.users: weakref.WeakSet[_User] = weakref.WeakSet()
        self._before: list[int] | None = None
        self._lock = threading.RLock()

    def update(self) -> None:
        """Set the limit if there are users; otherwise remove it.

        The limit of OpenBLAS belongs to the process. threadpoolctl lets only the thread that set a
        limit change it, unless it is told to forget which thread this was.
        """
        libraries = _blas().lib_controllers
        with self._lock:
            if bool(self.users) == (self._before is not None):
                return
            numbers = self._before
            if numbers is None:  # stored first, because an interrupt may come at any time
                self._before = [library.num_threads for library in libraries]
                numbers = [1] * len(libraries)
            for library, number in zip(libraries, numbers, strict=True):
                if hasattr(library, "clear_controlling_thread"):
                    library.clear_controlling_thread(force=True)
                library.set_num_threads(number)
            if not self.users:
                self._before = None


@cache
def _blas_limit(process: int) -> _BlasLimit:
    """Return the limit of a process; a forked child has its own, whatever its parent's state."""
    return _BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in the whole process, as long as any thread is inside."""
    user = _User()
    limit = _blas_limit(os.getpid())
    try:
        limit.users.add(user)
        limit.update()
        with _limit_here():
            yield
    finally:
        limit = _blas_limit(os.getpid())  # a child that was forked inside has another one
        limit.users.discard(user)
        limit.update()

"""Compilation of kernels: numba compiles them at the first call of any kernel, and caches on disk.

Importing numba takes longer than importing the rest of this library, so it is imported when
`AVAILABLE` is first read or a kernel is called. `compiling` measures the time of importing and
compiling, so that a fit can exclude it, and announces it on a terminal.

numba takes its lock in Python code, so an exception that a signal raises there can leave it locked,
and every other thread that compiles waits for ever. Signals raise exceptions in the main thread, so
each import and compilation has a thread of its own. A Ctrl-C meanwhile is raised when the lock is
free.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from ..types import Function

_Function = TypeVar("_Function", bound=Function)
_Result = TypeVar("_Result")

SMALLEST_SQUARE = 1e-290  # a smaller one has lost digits: its component counts as zero

_plain: list[tuple[Function, bool]] = []  # kernels to compile, and whether sums keep their order
_loading = threading.Lock()


class Compiling:
    """The time that this process has spent importing numba and compiling kernels.

    Attributes
    ----------
    seconds : float
    is_announced : bool
        Whether the first compilation is announced on standard error, if that is a terminal.
    in_words : str
        The text that a display shows meanwhile.
    """

    in_words = "compiling (first time only)"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_announced = True
        self._began: list[float] = []  # start times of nested compilations

    @property
    def is_running(self) -> bool:
        """Whether a kernel is being compiled now."""
        return bool(self._began)

    def begin(self) -> None:
        """Start measuring; announce the first compilation."""
        if not self._began and self.is_announced and sys.stderr.isatty():
            self.is_announced = False
            print(f"conenmf: {self.in_words}", file=sys.stderr)
        self._began.append(time.perf_counter())

    def end(self) -> None:
        """Add the measured time, unless a calling kernel is still being compiled."""
        began = self._began.pop()
        if not self._began:
            self.seconds += time.perf_counter() - began


compiling = Compiling()


def clock() -> float:
    """Return the time of `time.perf_counter` minus the time of compilation."""
    return time.perf_counter() - compiling.seconds


def compiled(function: _Function, *, in_order: bool = False) -> _Function:
    """Compile at the first call; sums may be reordered, but NaN and infinity keep their meaning."""
    _plain.append((function, in_order))

    @functools.wraps(function)
    def first_call(*arguments: object) -> Any:
        load_kernels()
        return function.__globals__[function.__name__](*arguments)

    return first_call  # type: ignore[return-value]


def compiled_in_order(function: _Function) -> _Function:
    """Compile at the first call, with every operation in the order of the source.

    For a loop that stores, the compiler keeps a second version for arrays that are close together
    in memory. If sums may be reordered, the two versions round differently, and the memory
    addresses decide between them. So a loop that both sums and stores must be in such a kernel;
    loops that only sum are in functions that it calls.
    """
    return compiled(function, in_order=True)


def load_kernels() -> None:
    """Replace all kernels by compiled ones at once, because some call others."""
    if _plain:
        run_apart(_load)


def _load() -> None:
    package: Any = sys.modules[__package__]
    with _loading:
        if not _plain:
            return
        began = time.perf_counter()
        numba = _numba()
        for function, in_order in _plain:
            kernel = function if numba is None else _jit(numba, function, in_order)
            function.__globals__[function.__name__] = kernel
            if hasattr(package, function.__name__):
                setattr(package, function.__name__, kernel)
        _plain.clear()
        package.AVAILABLE = vars(package).get("AVAILABLE", numba is not None)
        compiling.seconds += time.perf_counter() - began


def _numba() -> Any:
    """Return numba with a listener for compilation; None if it is missing or disabled."""
    if os.environ.get("CONENMF_NUMBA", "1") == "0":
        return None
    try:
        import numba
    except ImportError:  # not installed, or too old for this NumPy
        return None
    events: Any = numba.core.event

    class Listener(events.Listener):  # type: ignore[misc]
        def notify(self, event: Any) -> None:
            module = event.data["dispatcher"].py_func.__module__
            if str(module).startswith(__package__):  # modules made by exec have no name
                super().notify(event)

        def on_start(self, event: Any) -> None:
            compiling.begin()

        def on_end(self, event: Any) -> None:
            compiling.end()

    events.register("numba:compile", Listener())
    return numba


def _jit(numba: Any, function: Function, in_order: bool) -> Any:
    fastmath = not in_order and {"reassoc", "contract", "nsz"}
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        kernel = numba.njit(function, cache=True, **options)
    except RuntimeError:  # a read-only installation has no place for the cache
        kernel = numba.njit(function, **options)
    compile_here = kernel.compile  # called once for each new type of the arguments

    def compile_apart(types: object) -> Any:
        if _numba_lock().is_locked():  # a kernel that calls this one is being compiled here
            return compile_here(types)
        return run_apart(lambda: compile_here(types))

    kernel.compile = compile_apart
    return kernel


# --- interrupts ---------------------------------------------------------------------------------


def run_apart(work: Callable[[], _Result]) -> _Result:
    """Do work in a thread of its own, which no signal interrupts.

    An interrupt of this thread is raised when the work has ended, and a second one at once.
    """
    results: list[_Result] = []
    failures: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()
    is_over = False

    def run() -> None:
        nonlocal is_over
        try:
            results.append(work())
        except BaseException as failure:
            failures.append(failure)
        free_numba_lock()
        is_over = True
        ended.put(None)

    free_numba_lock()
    threading.Thread(target=run, name="conenmf-compiler", daemon=True).start()
    interrupts: list[BaseException] = []
    while not is_over:  # an interrupt may lose what `get` returns
        try:
            ended.get()
        except BaseException as interrupt:
            if interrupts:
                raise
            interrupts.append(interrupt)
    for failure in interrupts + failures:
        raise failure
    return results[0]


def free_numba_lock() -> None:
    """Release numba's lock if an exception in this thread, in anybody's kernel, left it locked."""
    lock = _numba_lock()
    while lock is not None and lock.is_locked():
        lock.release()


def _numba_lock() -> Any:
    """Return the lock; None before numba is imported."""
    module = sys.modules.get("numba.core.compiler_lock")
    return getattr(module, "global_compiler_lock", None)

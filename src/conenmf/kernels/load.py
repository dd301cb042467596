"""How kernels are compiled: at the first call of any of them, by numba, and kept on disk.

Importing numba takes longer than importing the rest of this library, so it waits until `AVAILABLE`
is read for the first time or a kernel is called. `compiling` knows how long importing and compiling
took, so that a fit need not count it, and says so on a terminal.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import Any, TypeVar

from ..arguments import Function

_Function = TypeVar("_Function", bound=Function)

SMALLEST_SQUARE = 1e-290  # a smaller one has lost digits: its component counts as zero

_plain: list[tuple[Function, bool]] = []  # kernels to compile; whether sums keep order
_loading = threading.Lock()


class Compiling:
    """How long numba was imported and kernels were compiled, in this process.

    Attributes
    ----------
    seconds : float
    is_announced : bool
        Whether the first time is announced on standard error, if that is a terminal.
    in_words : str
        What a display says meanwhile.
    """

    in_words = "compiling (first time only)"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_announced = True
        self._began: list[float] = []  # of a kernel, and of those it calls: numba compiles one

    @property
    def is_running(self) -> bool:
        """Whether a kernel is being compiled now."""
        return bool(self._began)

    def begin(self) -> None:
        """Count from now on; announce it, if it is the first time."""
        if not self._began and self.is_announced and sys.stderr.isatty():
            self.is_announced = False
            print(f"conenmf: {self.in_words}", file=sys.stderr)
        self._began.append(time.perf_counter())

    def end(self) -> None:
        """Add what was counted, unless a kernel is still compiled that calls this one."""
        began = self._began.pop()
        if not self._began:
            self.seconds += time.perf_counter() - began


compiling = Compiling()


def clock() -> float:
    """Seconds, as `time.perf_counter` counts them, without those in which kernels were compiled."""
    return time.perf_counter() - compiling.seconds


def compiled(function: _Function, *, in_order: bool = False) -> _Function:
    """Compile at the first call; sums may be reassociated, NaN and infinity keep their meaning."""
    _plain.append((function, in_order))

    @functools.wraps(function)
    def first_call(*arguments: object) -> Any:
        load_kernels()
        return function.__globals__[function.__name__](*arguments)

    return first_call  # type: ignore[return-value]


def compiled_in_order(function: _Function) -> _Function:
    """Compile at the first call, with every operation in the order of the source.

    The compiler keeps a second form of a loop that stores, for arrays that lie close together.
    If sums may be reassociated, both forms round differently, and where memory was allocated
    decides between them. So a loop that both sums and stores is in one of these kernels; loops that
    only sum are in functions that they call.
    """
    return compiled(function, in_order=True)


def load_kernels() -> None:
    """Replace all kernels by their compiled form, at once, since some call others."""
    package: Any = sys.modules[__package__]
    with _loading:
        if not _plain:
            return
        began, numba = time.perf_counter(), _numba()
        for function, in_order in _plain:
            kernel = function if numba is None else _jit(numba, function, in_order)
            function.__globals__[function.__name__] = kernel
            if hasattr(package, function.__name__):
                setattr(package, function.__name__, kernel)
        _plain.clear()
        package.AVAILABLE = vars(package).get("AVAILABLE", numba is not None)
        compiling.seconds += time.perf_counter() - began


def _numba() -> Any:
    """Return numba, listening to what it compiles; None if it is missing or not wanted."""
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
            if str(module).startswith(__package__):  # one made by exec has none
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
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # nowhere to write the cache: a read-only installation
        return numba.njit(function, **options)

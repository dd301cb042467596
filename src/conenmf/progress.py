"""What a fit shows while it runs, and how long it will still take.

``verbose=1`` shows a bar in a terminal or a notebook if rich is installed, and otherwise prints a
line per iteration. The command line has a display of its own, with the same estimate of the time
left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .arguments import function, integer
from .solve.run import Callback, Iteration

_CHOOSING = "[ConeNMF] choosing an init"
_WINDOW_ITERATIONS = 5  # over which the fall of the error is measured, as a solver does


class TimeLeft:
    """An estimate of how much of a run is done: it ends at the first of its three limits.

    Parameters
    ----------
    max_iter, tol, max_time
        As in `factorize`. `max_time` counts from when this object is made.

    Attributes
    ----------
    began : float
        When it was made.
    """

    def __init__(self, max_iter: int, tol: float, max_time: float | None) -> None:
        self._max_iter, self._tol, self._max_time = max_iter, tol, max_time
        self.began = time.perf_counter()
        self._errors: list[float] = []
        self._steepest = 0.0
        self._raced = 0.0  # seconds until the race of inits was last heard of

    def after(self, now: Iteration) -> tuple[float, float] | None:
        """Return the share of the run that is done, and about how many seconds are left.

        None as long as inits compete: how long that will take is not known.
        """
        if not now.iteration:
            self._raced = now.elapsed
            return None
        self._errors.append(now.relative_error)
        share = min(max(now.iteration / self._max_iter, self._share_by_fall()), 1.0)
        seconds = (now.elapsed - self._raced) * (1 - share) / share
        if self._max_time:
            elapsed = time.perf_counter() - self.began
            share = min(max(share, elapsed / self._max_time), 1.0)
            seconds = min(seconds, self._max_time - elapsed)
        return share, max(seconds, 0.0)

    def _share_by_fall(self) -> float:
        """How far the fall of the error is on its way down to `tol`; it shrinks geometrically."""
        errors, tol = self._errors, self._tol
        if len(errors) <= _WINDOW_ITERATIONS or tol <= 0:
            return 0.0
        before = errors[-1 - _WINDOW_ITERATIONS]
        fall = max(1 - errors[-1] / before if before > 0 else 0.0, tol / 2)
        self._steepest = max(self._steepest, fall)
        if self._steepest <= tol:
            return 0.0
        return math.log(self._steepest / fall) / math.log(self._steepest / tol)


@contextmanager
def watching(
    verbose: Any,
    callback: Callback | None,
    *,
    max_iter: int,
    tol: float,
    max_time: float | None,
    console: Any = None,
) -> Iterator[Callback | None]:
    """Show a fit while the block runs; yield its callback, which calls that of the user too.

    Parameters
    ----------
    verbose : bool or int
        Show nothing if it is False or 0.
    callback : callable or None
        That of the user.
    max_iter, tol, max_time
        As in `factorize`.
    console : rich Console, optional
        By default standard output.
    """
    if not (verbose if isinstance(verbose, bool) else integer("verbose", verbose, at_least=0)):
        yield callback
        return
    observe = None if callback is None else function("callback", callback, takes=1)
    left = TimeLeft(max_iter, tol, max_time)
    with _display(console) as show:

        def shown(now: Iteration) -> object:
            show(now, left.after(now))
            return None if observe is None else observe(now)

        yield shown


@contextmanager
def _display(console: Any) -> Iterator[Callable[[Iteration, tuple[float, float] | None], None]]:
    """A bar, or lines where there cannot be one."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    except ImportError:
        yield _print_line
        return
    console = Console() if console is None else console
    if not console.is_interactive and not console.is_jupyter:
        yield _print_line
        return
    words = TextColumn("{task.description}", markup=False)
    with Progress(SpinnerColumn(), words, BarColumn(), console=console, transient=True) as bar:
        task = bar.add_task(_CHOOSING, total=None)

        def draw(now: Iteration, left: tuple[float, float] | None) -> None:
            if left is None:
                bar.update(task, description=f"{_CHOOSING}: {_error(now)}")
            else:
                bar.update(task, total=1.0, completed=left[0], description=_line(now, *left))

        yield draw


def _print_line(now: Iteration, left: tuple[float, float] | None) -> None:
    if left is not None:
        print(_line(now, *left))


def _line(now: Iteration, share: float, seconds: float) -> str:
    rest = f", about {seconds:.0f} s left" if share < 1 else ""
    return f"[ConeNMF] iteration {now.iteration}: {_error(now)}{rest}"


def _error(now: Iteration) -> str:
    return f"relative error {now.relative_error:.6f} after {now.elapsed:.2f} s"

"""The progress display of a fit or a command.

A terminal or a notebook shows a bar if rich is installed; otherwise plain lines are printed. The
first use on a machine compiles for some seconds, and the display says so.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TextIO

from . import kernels
from .arguments import function, integer
from .data.matrix import DataMatrix
from .solve.run import Callback, Iteration
from .text import visible

_BAR_SECONDS = 0.1  # between two updates of the bar


class Display:
    """Shows the current step, and the share of it that is done if this is known.

    Parameters
    ----------
    stream : text stream
    quiet : bool
        Show nothing.
    delay : float
        Seconds before anything is shown.
    interval : float
        Seconds between two plain lines.
    data : DataMatrix, optional
        Its running pass is shown too, if it says how much is done.

    Attributes
    ----------
    continued_at : int or None
        The iteration at which a run was resumed; 0 if it was new, None before its first iteration.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        quiet: bool = False,
        delay: float = 1.0,
        interval: float = 5.0,
        data: DataMatrix | None = None,
    ) -> None:
        self._stream = stream
        self._quiet = quiet
        self._delay = delay
        self._interval = interval
        self._data = data
        self.continued_at: int | None = None
        self.update("", None, "")
        self._done = threading.Event()
        kernels.compiling.is_announced &= not quiet

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show this step, and what `update` adds to it, until the block is left."""
        self.update("", None, what)
        self._done.clear()
        thread = threading.Thread(target=self._show, daemon=True)
        try:
            if not self._quiet:
                thread.start()
            yield
        finally:
            self._done.set()
            if thread.ident is not None:  # it may have just been started
                thread.join()

    def update(self, note: str, share: float | None = None, what: str | None = None) -> None:
        """Set a note, and the share of the work that is done."""
        self._note = note
        self._share = share
        if what is not None:
            self._what = visible(what, None)

    @property
    def line(self) -> str:
        """Return the current step as a line."""
        if kernels.compiling.is_running:
            return kernels.compiling.in_words
        line = f"{self._what}, {self._note}" if self._note else self._what
        share = None if self._data is None else self._data.share_of_pass
        return line if share is None else f"{line}, {share:.0%} of a pass"

    def _show(self) -> None:
        began = perf_counter()
        if self._done.wait(self._delay):
            return
        bar = _bar(self._stream)
        if bar is not None:
            with bar:
                task = bar.add_task(self.line, total=None)
                while not self._done.wait(_BAR_SECONDS):
                    total = None if self._share is None else 1.0
                    bar.update(task, description=self.line, total=total, completed=self._share)
            return
        while True:
            line = f"{self.line}, {perf_counter() - began:.0f} s"
            print(line, file=self._stream, flush=True)
            if self._done.wait(self._interval):
                return

    def iterations(self, max_iter: int, what: str = "solving") -> Callable[[Iteration], None]:
        """Return a callback for a solver that shows the iteration and the error."""

        def show(now: Iteration) -> None:
            error = f"error {now.relative_error:.5g}"
            if not now.iteration:
                self.update(error, what="choosing an init")
                return
            if self.continued_at is None:
                self.continued_at = now.iteration - 1
            self.update(f"iteration {now.iteration} of at most {max_iter}, {error}", what=what)

        return show


@contextmanager
def watching(
    verbose: object, callback: Callback | None, max_iter: int, V: DataMatrix
) -> Iterator[Callback | None]:
    """Show a fit while the block runs; yield its callback, which also calls the user's.

    Parameters
    ----------
    verbose : bool or int
        If False or 0, show nothing.
    callback : callable or None
        The user's callback.
    max_iter, V
        As in `factorize`.
    """
    if not (verbose if isinstance(verbose, bool) else integer("verbose", verbose, at_least=0)):
        yield callback
        return
    observe = None if callback is None else function("callback", callback, takes=1)
    has_bar = _bar(sys.stdout) is not None
    display = Display(sys.stdout, quiet=not has_bar, delay=0.0, data=V)
    show = display.iterations(max_iter)

    def shown(now: Iteration) -> object:
        show(now)
        if now.iteration and not has_bar:
            print(f"[ConeNMF] {display.line}")
        return None if observe is None else observe(now)

    with display.working("choosing an init"):
        yield shown


def _bar(stream: TextIO) -> Any:
    """Return a bar of rich; None where it cannot be shown."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    console = Console(file=stream)
    if not (console.is_terminal or console.is_jupyter):
        return None
    words = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), words)
    return Progress(*columns, console=console, transient=True)

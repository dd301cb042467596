"""Progress of a command, and what Ctrl-C does.

Nothing is shown for the first second. A terminal then shows a bar; elsewhere there is a plain line
every few seconds; with ``--quiet`` nothing. All of it goes to standard error, so that standard
output holds only the answer.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from .. import kernels
from ..progress import TimeLeft
from ..solve.run import Iteration
from ..text import visible

_BAR_SECONDS = 0.1  # between two updates of the bar
_TEXTS = ("description", "fields[note]")
_SAVING = "saving the result so far; Ctrl-C again to end at once"


class Display:
    """Shows what a command does, and how much of it is done.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    console : rich Console, optional
        By default standard error.
    delay : float
        Seconds before anything is shown.
    interval : float
        Seconds between two plain lines.

    Attributes
    ----------
    continued_at : int
        The iteration from which a saved run was continued; 0 if none was.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        console: Console | None = None,
        delay: float = 1.0,
        interval: float = 5.0,
    ) -> None:
        self.console = Console(stderr=True, highlight=False) if console is None else console
        self.continued_at = 0
        self._quiet, self._delay, self._interval = quiet, delay, interval
        self._what, self._note = "", ""
        self._share: float | None = None
        self._done = threading.Event()
        kernels.compiling.is_announced &= not quiet

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show this, and what `update` adds to it, until the block is left."""
        self.update("", None, what)
        self._done.clear()
        thread = threading.Thread(target=self._show, daemon=True)
        try:
            if not self._quiet:
                thread.start()
            yield
        finally:
            self._done.set()
            if thread.ident is not None:  # started, if only just
                thread.join()

    def update(self, note: str, share: float | None = None, what: str | None = None) -> None:
        """Add a note, and the share of the work that is done."""
        self._note, self._share = note, share
        if what is not None:
            self._what = visible(what, None)

    @property
    def _now(self) -> str:
        """What is being done at the moment."""
        compiling = kernels.compiling
        return compiling.in_words if compiling.is_running else self._what

    def _show(self) -> None:
        began = time.perf_counter()
        if self._done.wait(self._delay):
            return
        if self.console.is_terminal:
            self._show_bar()
            return
        while True:
            parts = [self._now, f"{time.perf_counter() - began:.0f} s", self._note]
            self.console.print(", ".join(filter(None, parts)), markup=False, soft_wrap=True)
            if self._done.wait(self._interval):
                return

    def _show_bar(self) -> None:
        text, note = (TextColumn(f"{{task.{one}}}", markup=False) for one in _TEXTS)
        columns = (SpinnerColumn(), text, BarColumn(), TimeElapsedColumn(), note)
        with ProgressBar(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(self._now, total=None, note="")
            while not self._done.wait(_BAR_SECONDS):
                done = {} if self._share is None else {"total": 1.0, "completed": self._share}
                bar.update(task, description=self._now, note=self._note, **done)  # type: ignore[arg-type]

    def iterations(
        self, max_iter: int, tol: float, max_time: float | None, what: str
    ) -> Callable[[Iteration], None]:
        """A callback for a solver that shows the error and an estimate of the time left."""
        left = TimeLeft(max_iter, tol, max_time)
        is_first = True

        def show(now: Iteration) -> None:
            nonlocal is_first
            estimate = left.after(now)
            if estimate is None:  # inits compete
                self.update(f"error {now.relative_error:.5g}", None, "choosing an init")
                return
            if is_first and now.iteration > 1:
                self.continued_at = now.iteration - 1
                if not self._quiet:
                    self.console.print(f"conenmf: continuing at iteration {self.continued_at}")
            is_first = False
            share, seconds = estimate
            note = f"iteration {now.iteration}, error {now.relative_error:.5g}"
            if share < 1:
                note += f", about {seconds:.0f} s left"
            self.update(note, share, what if share < 1 else "finishing")

        return show


class Interruption:
    """Ctrl-C while a result is computed: the result so far is saved.

    The solver stops after its iteration, and optional work is skipped; pressed again, Ctrl-C ends
    the command at once. Before there is anything to save, the first Ctrl-C does.

    Attributes
    ----------
    asked : bool
        Whether it was pressed when there was something to save.
    """

    asked = False
    _can_save = False

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def __enter__(self) -> Interruption:
        self._earlier: Any = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._earlier)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if self._can_save and not self.asked:
            self.asked = True
            with suppress(RuntimeError):  # of a stream that was just being written to
                self._say(_SAVING)
        elif callable(self._earlier):
            self._earlier(number, frame)  # raises KeyboardInterrupt

    def watch(self, then: Callable[[Iteration], None]) -> Callable[[Iteration], bool]:
        """A callback for a solver that calls another, and returns whether to stop."""

        def callback(now: Iteration) -> bool:
            self._can_save = True
            then(now)
            return self.asked

        return callback

    @contextmanager
    def optional(self) -> Iterator[None]:
        """Work that Ctrl-C ends without ending what follows."""
        self._can_save = False
        try:
            yield
        except KeyboardInterrupt:
            self.asked = True
            self._say(_SAVING)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Work that the first Ctrl-C does not end."""
        self._can_save = True
        yield

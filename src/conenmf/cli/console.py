"""What a command shows while it works, and what becomes of Ctrl-C.

Nothing is shown for the first second. On a terminal it is a bar; elsewhere a plain line every few
seconds; with ``--quiet`` nothing. All of it goes to standard error, so that standard output holds
the answer alone.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from ..solve.stopping import Iteration
from ..text import visible

__all__ = ["Display", "Interruption"]

_PATIENCE = 1.0  # seconds before anything is shown
_BETWEEN_LINES = 5.0


class Display:
    """Shows what is being done, and how far it is.

    Parameters
    ----------
    quiet : bool
    console : rich Console, optional
        By default standard error.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = Console(stderr=True, highlight=False) if console is None else console
        self._shows = not quiet
        self._what, self._note = "", ""
        self._share: float | None = None
        self._began = time.perf_counter()
        self._done = threading.Event()

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show this, and what `update` adds to it, until the block is left."""
        self._what, self._note, self._share = visible(what, None), "", None
        self._began = time.perf_counter()
        if not self._shows:
            yield
            return
        self._done.clear()
        show = self._bar if self.console.is_terminal else self._lines
        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def update(self, note: str, share: float | None = None, what: str | None = None) -> None:
        """Say more: a few words, and which share of the work is done."""
        self._note, self._share = note, share
        if what is not None:
            self._what = visible(what, None)

    def _bar(self) -> None:
        if self._done.wait(_PATIENCE):
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with ProgressBar(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(self._what, total=None, note="")
            while True:
                share = self._share
                progress.update(
                    task,
                    description=self._what,
                    note=self._note,
                    total=None if share is None else 1.0,
                    completed=share or 0.0,
                )
                if self._done.wait(0.1):
                    return

    def _lines(self) -> None:
        began = time.perf_counter()
        if self._done.wait(_PATIENCE):
            return
        while True:
            parts = [self._what, f"{time.perf_counter() - began:.0f} s", self._note]
            self.console.print(", ".join(filter(None, parts)), markup=False, soft_wrap=True)
            if self._done.wait(_BETWEEN_LINES):
                return

    def iterations(
        self, max_iter: int, tol: float, max_time: float | None, what: str
    ) -> Callable[[Iteration], None]:
        """A callback for a solver that shows the error and about how long it will take."""
        errors: list[float] = []
        steepest = 0.0

        def show(now: Iteration) -> None:
            nonlocal steepest
            errors.append(now.relative_error)
            shares = [now.iteration / max_iter]
            if len(errors) > 5 and tol > 0:  # the fall that decides shrinks about geometrically
                fall = max(1 - errors[-1] / errors[-6], tol / 2)
                steepest = max(steepest, fall)
                if steepest > tol:
                    shares.append(math.log(steepest / fall) / math.log(steepest / tol))
            share = min(max(shares), 1.0)
            left = now.elapsed * (1 - share) / share
            if max_time:  # which counts from the call, not from the first iteration
                passed = time.perf_counter() - self._began
                share = min(max(share, passed / max_time), 1.0)
                left = min(left, max_time - passed)
            note = f"iteration {now.iteration}, error {now.relative_error:.5g}"
            if share < 1:
                note += f", about {left:.0f} s left"
            self.update(note, share, what if share < 1 else "finishing")

        return show


class Interruption:
    """What Ctrl-C does while a result is made: nothing that there is gets lost.

    A solver is asked to stop after its iteration, and what may be left out is left out; pressed
    again, Ctrl-C ends everything at once. Before there is anything to save, the first one does.

    Attributes
    ----------
    asked : bool
        Whether it was pressed when there was something to save.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = False
        self._say = say
        self._patient = False
        self._before: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():  # others get no signals
            self._before = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._patient:
            raise KeyboardInterrupt
        self.asked = True
        self._say("saving what there is; Ctrl-C again to end at once")

    def watch(self, then: Callable[[Iteration], None]) -> Callable[[Iteration], bool]:
        """A callback for a solver that calls another, and says whether to stop."""

        def callback(now: Iteration) -> bool:
            self._patient = True
            then(now)
            return self.asked

        return callback

    @contextmanager
    def may_be_left_out(self) -> Iterator[None]:
        """Something that Ctrl-C ends without ending what follows."""
        self._patient = False
        try:
            yield
        except KeyboardInterrupt:
            self.asked = True
            self._say("saving what there is; Ctrl-C again to end at once")

    @contextmanager
    def put_off(self) -> Iterator[None]:
        """Something that goes on after the first Ctrl-C."""
        self._patient = True
        yield

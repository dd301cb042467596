"""Ctrl-C and SIGTERM in the command ``conenmf``.

Both raise an exception, so that temporary files are removed on the way out. Importing this takes no
time: signals are handled before the libraries are imported, and none of them leaves a traceback.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAVING = "conenmf: saving the result so far; Ctrl-C again to end at once"


class Terminated(BaseException):
    """SIGTERM was received; like KeyboardInterrupt, no error that a program should handle."""


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one does not disturb what is cleaned up
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def handle_signals() -> None:
    """Raise `KeyboardInterrupt` or `Terminated` when a signal is received."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a shell
            signal.signal(number, _stop)


def release_signals() -> None:
    """Let a signal end the process at once: nothing is left to clean up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


class Interruption:
    """Ctrl-C while a result is computed: the result so far is saved.

    The solver stops after its iteration, and optional work is skipped; pressed again, Ctrl-C ends
    the command at once. Before there is anything to save, the first Ctrl-C does.

    Attributes
    ----------
    can_save : bool
        Whether there is something to save, so that the first Ctrl-C does not end the command.
    asked : bool
        Whether Ctrl-C was pressed then.
    """

    asked = False
    can_save = False

    def __enter__(self) -> Interruption:
        self._earlier: Any = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._earlier)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if self.can_save and not self.asked:
            self._ask()
        elif callable(self._earlier):
            self._earlier(number, frame)  # raises KeyboardInterrupt

    def _ask(self) -> None:
        self.asked = True
        with suppress(RuntimeError):  # of a stream that was just being written to
            print(_SAVING, file=sys.stderr)

    def watch(self, then: Callable[[Any], None]) -> Callable[[Any], bool]:
        """A callback for a solver that calls another, and returns whether to stop."""

        def callback(now: object) -> bool:
            self.can_save = True
            then(now)
            return self.asked

        return callback

    @contextmanager
    def optional(self) -> Iterator[None]:
        """Work that Ctrl-C ends without ending what follows."""
        self.can_save = False
        try:
            yield
        except KeyboardInterrupt:
            self._ask()
        self.can_save = True

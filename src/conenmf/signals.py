"""Handling of Ctrl-C and SIGTERM in the command ``conenmf``.

Both raise an exception, so that temporary files are removed before the process ends. This module
imports fast: signals are handled before other libraries are imported, so no signal causes a
traceback.
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


_received: list[int] = []  # signals that were answered by an exception


class Terminated(BaseException):
    """SIGTERM was received; like KeyboardInterrupt, it is not an error for programs to handle."""


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def handle_signals() -> None:
    """Raise `KeyboardInterrupt` or `Terminated` when a signal is received."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored in the background of a shell
            signal.signal(number, _stop)


def raise_received() -> None:
    """Raise the exception of a signal that was received, if there was one.

    A module that is being imported may turn the first one into an ImportError.
    """
    if _received:
        raise KeyboardInterrupt if _received[0] == signal.SIGINT else Terminated


def release_signals() -> None:
    """Let a signal end the process at once, because there is nothing to clean up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


class Interruption:
    """Handling of Ctrl-C while a result is computed: the result so far is saved.

    The solver stops after the current iteration, and optional work is skipped; a second Ctrl-C ends
    the command at once. Before there is anything to save, the first Ctrl-C ends it.

    Attributes
    ----------
    can_save : bool
        Whether there is something to save; the first Ctrl-C then does not end the command.
    asked : bool
        Whether Ctrl-C was pressed while `can_save` was set.
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
        with suppress(RuntimeError):  # the stream was just being written to
            print(_SAVING, file=sys.stderr)

    def watch(self, then: Callable[[Any], None]) -> Callable[[Any], bool]:
        """Return a callback for a solver that calls `then` and returns whether to stop."""

        def callback(now: object) -> bool:
            self.can_save = True
            then(now)
            return self.asked

        return callback

    @contextmanager
    def optional(self) -> Iterator[None]:
        """Run work that Ctrl-C can end without ending later work."""
        self.can_save = False
        try:
            yield
        except KeyboardInterrupt:
            self._ask()
        self.can_save = True

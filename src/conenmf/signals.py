"""Ctrl-C and SIGTERM in the command ``conenmf``, from its first line to its last.

Importing this takes no time, so the signals can be handled before the libraries are imported. For
as long as there is nothing to clean up, a signal ends the process at once. Later it raises an
exception, so that temporary files are removed on the way out; a second signal that comes while that
happens is ignored for a moment, since it would end the removal. No signal leaves a traceback.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
import weakref
from typing import Any

__all__ = ["ExitSignals", "Terminated", "interrupt_again"]

_GRACE_SECONDS = 1.0  # to clean up in, during which further signals are ignored
_AGAIN_SECONDS = 0.01  # after which a signal whose exception was lost is repeated


class Terminated(BaseException):
    """SIGTERM was received; like KeyboardInterrupt, no error that a program should handle."""


def interrupt_again() -> None:
    """Repeat a KeyboardInterrupt that came in a finalizer, where Python drops it, after that."""
    _thread.start_new_thread(_interrupt_after_finalizers, (_thread.get_ident(),))


def _interrupt_after_finalizers(thread: int) -> None:
    frame: Any = True
    while frame:
        time.sleep(_AGAIN_SECONDS)
        frame = sys._current_frames().get(thread)
        while frame and frame.f_code is not weakref.finalize.__call__.__code__:
            frame = frame.f_back
    for signals in _installed:
        signals.listen()
    _thread.interrupt_main()


class ExitSignals:
    """What the signals do, in the three phases of a command.

    While it starts, the process ends at once, with the exit code that a shell shows for the signal;
    while it works, `KeyboardInterrupt` or `Terminated` is raised; when it has ended, and the
    interpreter cleans up, the process ends at once after a moment of grace.
    """

    def __init__(self) -> None:
        self._works = False
        self._ignored_until = 0.0
        self._lost = signal.SIGINT
        self._earlier_hook = sys.unraisablehook
        # Held here, because names of modules are gone when the interpreter ends.
        self._exit, self._clock = os._exit, time.monotonic

    def install(self) -> None:
        """Handle the signals from now on."""
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a shell
            signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, self._repeat)
            sys.unraisablehook = self._unraisable
        _installed.append(self)

    def listen(self) -> None:
        """End the moment in which signals are ignored."""
        self._ignored_until = 0.0

    def begin(self) -> None:
        """There may be something to clean up from now on."""
        self._works = True

    def end(self) -> None:
        """The work is done, and the interpreter is about to end."""
        self._works = False
        self._ignored_until = self._clock() + _GRACE_SECONDS

    def _handle(self, number: int, frame: Any) -> None:
        if self._clock() < self._ignored_until:
            return
        if not self._works:
            self._exit(128 + number)
        self._ignored_until = self._clock() + _GRACE_SECONDS
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def _unraisable(self, problem: Any) -> None:
        """Repeat a signal whose exception was raised where Python drops it, as in a destructor."""
        if not isinstance(problem.exc_value, KeyboardInterrupt | Terminated):
            self._earlier_hook(problem)
            return
        self._lost = (
            signal.SIGINT if isinstance(problem.exc_value, KeyboardInterrupt) else signal.SIGTERM
        )
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def _repeat(self, number: int, frame: Any) -> None:
        self.listen()
        signal.raise_signal(self._lost)


_installed: list[ExitSignals] = []

"""Ctrl-C and SIGTERM in the command ``conenmf``.

Both raise an exception, so that temporary files are removed on the way out. Importing this takes no
time: signals are handled before the libraries are imported, and none of them leaves a traceback.
"""

from __future__ import annotations

import signal
import time
from typing import Any

_GRACE_SECONDS = 1.0  # to clean up in, during which further signals are ignored
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(BaseException):
    """SIGTERM was received; like KeyboardInterrupt, no error that a program should handle."""


class _Stop:
    """The handler of a signal."""

    _ignored_until = 0.0

    def __call__(self, number: int, frame: Any) -> None:
        if time.monotonic() > self._ignored_until:
            self._ignored_until = time.monotonic() + _GRACE_SECONDS
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def handle_signals() -> None:
    """Raise `KeyboardInterrupt` or `Terminated` when a signal is received."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a shell
            signal.signal(number, _Stop())


def release_signals() -> None:
    """Let a signal end the process at once: nothing is left to clean up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)

"""The seconds that a fit has taken and has left, stage by stage.

A callback and the history count from the call, so also what came before the solver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import kernels
from .data.matrix import DataMatrix
from .solve.run import Callback, History, Iteration

__all__ = ["Spent", "Stages"]


class Spent(NamedTuple):
    """What a fit has spent before something began: seconds since the call, and passes over V."""

    seconds: float = 0.0
    passes: float = 0.0

    def counted(self, callback: Callback | None) -> Callback | None:
        """Return a callback to which what was spent before is counted in."""
        if callback is None:
            return None

        def later(now: Iteration) -> object:
            elapsed, passes = now.elapsed + self.seconds, now.passes + self.passes
            return callback(replace(now, elapsed=elapsed, passes=passes))

        return later

    def and_then(self, history: History) -> History:
        """Return a history to which what was spent before is counted in."""
        elapsed, passes = history.elapsed + self.seconds, history.passes + self.passes
        return replace(history, elapsed=elapsed, passes=passes)


@dataclass
class Stages:
    """The seconds of each stage, 0 for one that did not run; what numba compiles does not count."""

    max_time: float | None
    began: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("rank", "init", "sketch", "solve", "finish"), 0.0)
    )
    _entered: tuple[float, float] | None = None

    @property
    def elapsed(self) -> float:
        """The seconds until the solver, or until now if an earlier stage has not ended."""
        now = 0.0 if self._entered is None else _since(*self._entered)
        return self.seconds["rank"] + self.seconds["init"] + now

    def watched(self, callback: Callback | None, V: DataMatrix, passes: float) -> Callback | None:
        """Return a callback that gets seconds since the call, and passes from those given on."""
        if callback is None:
            return None

        def watch(now: Iteration) -> object:
            return callback(replace(now, elapsed=self.elapsed, passes=V.passes_here - passes))

        return watch

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        entered = self._entered = time.perf_counter(), kernels.compiling.seconds
        yield
        self.seconds[name], self._entered = _since(*entered), None

    def remaining(self, elapsed: float = 0.0) -> float | None:
        """The seconds left of `max_time`, for a run that has taken some of them already."""
        if self.max_time is None:
            return None
        return max(self.max_time - (time.perf_counter() - self.began) + elapsed, 0.0)


def _since(began: float, compiled: float) -> float:
    """The seconds since then, without those of compiling."""
    compiling = kernels.compiling.seconds - compiled
    return max(time.perf_counter() - began - compiling, 0.0)

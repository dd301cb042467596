"""The seconds that a fit has taken and has left, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import kernels

__all__ = ["Stages"]


@dataclass
class Stages:
    """The seconds of each stage, 0 for one that did not run; what numba compiles does not count."""

    max_time: float | None
    began: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("rank", "init", "sketch", "solve", "finish"), 0.0)
    )

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        entered, compiled = time.perf_counter(), kernels.compiling.seconds
        yield
        elapsed = time.perf_counter() - entered
        self.seconds[name] = max(elapsed - (kernels.compiling.seconds - compiled), 0.0)

    def remaining(self, elapsed: float = 0.0) -> float | None:
        """The seconds left of `max_time`, for a run that has taken some of them already."""
        if self.max_time is None:
            return None
        return max(self.max_time - (time.perf_counter() - self.began) + elapsed, 0.0)

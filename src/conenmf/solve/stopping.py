"""When a run ends, and what it reports until then.

`Stopping` holds the limits, `StopReason` names every way in which a run may end, an `Iteration` is
what a callback gets, a `Log` grows with every iteration, a `History` is the log of a run that has
ended. Nothing here computes factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from ..arguments import function, integer, number, optional
from ..data.blocks import Array

__all__ = ["Callback", "History", "Iteration", "Log", "StopReason", "Stopping", "asks_to_stop"]

_PLATEAU_TOL_SHARE = 1e-2  # of tol, at which a run ends on a plateau too


class StopReason(StrEnum):
    """Why a run ended; each is equal to its name, and `description` says it in a sentence."""

    CONVERGED = "converged"
    PLATEAU = "plateau"
    EXACT = "exact"
    MAX_ITER = "max_iter"
    MAX_TIME = "max_time"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    INIT = "init"

    @property
    def description(self) -> str:
        """The reason in a sentence, without the full stop."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    StopReason.CONVERGED: "the error hardly fell any more",
    StopReason.PLATEAU: "the error hardly fell any more, probably on a plateau",
    StopReason.EXACT: "no residual was left",
    StopReason.MAX_ITER: "the largest number of iterations was reached",
    StopReason.MAX_TIME: "the time limit was reached",
    StopReason.CALLBACK: "the callback asked for it",
    StopReason.INTERRUPTED: "the user interrupted it",
    StopReason.INIT: "no solver was asked for, these are the factors of the init",
}


@dataclass(frozen=True)
class Iteration:
    """What a callback gets after every iteration; it stops the run by returning True.

    `iteration` counts from 1, and is 0 while inits compete. `elapsed` is in seconds and `passes`
    counts the passes over V, both since the call of `factorize`, or since the loop began where it
    is called by itself. `objective` is what the loss measures, ||V - W H||^2 for least squares, and
    `relative_error` is the same relative to the norm of V: ||V - W H|| / ||V||.
    """

    iteration: int
    elapsed: float
    relative_error: float
    passes: float
    objective: float


Callback: TypeAlias = Callable[[Iteration], object]


def asks_to_stop(callback: Callback, now: Iteration) -> bool:
    """Whether a callback returns True itself; another value, even if true, is no answer.

    One that raises StopIteration asks too: as an error it would not get through generators.
    """
    try:
        answer = callback(now)
    except StopIteration:
        return True
    return isinstance(answer, bool | np.bool_) and bool(answer)


@dataclass(frozen=True)
class Stopping:
    """When the loop ends.

    Attributes
    ----------
    tol : float
        Converged when the relative error fell by less than this share of itself over the last
        `window` iterations. It does not depend on the scale of V or on the init.
    window : int
        An iteration that was undone leaves the error as it was; it is no evidence and is not
        counted, as long as one in two is not.
    max_iter : int
    max_time : float or None
        Seconds.
    exact : float
        A relative error below this is exact for the arithmetic of the loop.
    is_plateau : callable, optional
        Asked, once the error has converged, whether this error is probably not the end. Then the
        run continues until the error falls by less than a hundredth of `tol`.
    """

    tol: float = 1e-5
    window: int = 5
    max_iter: int = 200
    max_time: float | None = None
    exact: float = 1e-7
    is_plateau: Callable[[float], bool] | None = None

    def __post_init__(self) -> None:
        number("tol", self.tol, at_least=0)
        integer("window", self.window, at_least=1)
        integer("max_iter", self.max_iter, at_least=0, at_most=2**63 - 1)
        optional(number, "max_time", self.max_time, at_least=0, or_infinite=True, what="seconds")
        number("exact", self.exact, at_least=0)
        optional(function, "is_plateau", self.is_plateau, takes=1)

    def reason(
        self, errors: list[float], elapsed: float, earlier: Sequence[float] = ()
    ) -> StopReason | None:
        """Return why to stop now, or None to continue.

        The errors `earlier` are those of another run that ended where this one began.
        """
        if errors and errors[-1] <= self.exact:
            return StopReason.EXACT
        fall = self._fall([*earlier, *errors]) if errors else np.inf
        if fall < self.tol:
            if self.is_plateau is None or not self.is_plateau(errors[-1]):
                return StopReason.CONVERGED
            if fall < _PLATEAU_TOL_SHARE * self.tol:
                return StopReason.PLATEAU
        if len(errors) >= self.max_iter:
            return StopReason.MAX_ITER
        if self.max_time is not None and elapsed >= self.max_time:
            return StopReason.MAX_TIME
        return None

    def converged_at(self, errors: list[float], earlier: Sequence[float] = ()) -> int | None:
        """Return the iteration after which a run with these errors would have converged, if any."""
        limits = replace(self, max_iter=len(errors) + 1, max_time=None)
        for n in range(1, len(errors) + 1):
            if limits.reason(errors[:n], 0.0, earlier) is not None:
                return n
        return None

    def _fall(self, errors: list[float]) -> float:
        """The share by which the error fell over the window; infinite before it is full."""
        first, falls = len(errors) - 1, 0
        while first > 0 and falls < self.window and len(errors) - 1 - first < 2 * self.window:
            falls += errors[first] < errors[first - 1]
            first -= 1
        if len(errors) - 1 - first < 2 * self.window and falls < self.window:
            return np.inf
        return (errors[first] - errors[-1]) / errors[first]


@dataclass(frozen=True)
class History:
    """The relative error, seconds and passes over V after each iteration, as arrays."""

    relative_error: Array
    elapsed: Array
    passes: Array

    def __repr__(self) -> str:
        n = self.relative_error.size
        first, last = self.relative_error[:1], self.relative_error[-1:]
        ends = f": relative error {first[0]:.4g} to {last[0]:.4g}" if n else ""
        return f"<History of {n} iterations{ends}>"


@dataclass
class Log:
    """The history of a run that has not ended: the same as lists."""

    relative_error: list[float] = field(default_factory=list)
    elapsed: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)

    @property
    def last_elapsed(self) -> float:
        """Seconds until the last iteration ended; 0 if there was none."""
        return self.elapsed[-1] if self.elapsed else 0.0

    @property
    def last_passes(self) -> float:
        """Passes over V until then."""
        return self.passes[-1] if self.passes else 0.0

    def history(self) -> History:
        """Return the history so far."""
        return History(np.array(self.relative_error), np.array(self.elapsed), np.array(self.passes))

"""The race of inits: ``init="auto"`` compares several inits if the first may not be good enough.

A fit starts with the first init of its loss and runs the solver. Nearly always this is enough: for
least squares, NNDSVD ends within 0.5% of the best of many inits on nearly every matrix of the zoo
(``benchmarks/zoo.py``). Other inits compete only if this is likely to help (`may_pay`):

- V is small, so that a race is fast, and the error exceeds its lower bound by 0.1% or more;
- the error still falls after 100 iterations, and exceeds its lower bound by 5% or more. Such a run
  is probably leaving a plateau that other inits may avoid.

The lower bound is estimated from the singular vectors of the first init. The other inits run 30
iterations each, in shared passes, in single precision if the first one still does. The best of them
continues until it has run as long as the first one, and wins if its error is then lower.

Where the first run of large data falls slowly, not far above its bound, a race rarely lowers the
error by much. Then only two other inits compete. They end after 20 iterations if the error is 1%
above that of the first run at this iteration, and after 30 if it is above it at all
(``benchmarks/races.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.random import default_rng

from ..errors import ComponentsError
from ..types import Facts
from .inits import Generator, Init
from .run import Run, Stopping, StopReason, run_together

# Iterations of the first init before others may compete.
PATIENCE = 100
_MAX_SMALL_ENTRIES = 1 << 16
_MIN_GAP_OF_SMALL = 1e-3  # of the error
_MIN_GAP = 0.05
_SLOW_ITERATIONS = 20
_SLOW_FALL = 2e-3  # of the error, over so many iterations: a run of large data that falls by less
_WIDE_GAP = 0.25  # ... is slow unless its gap, as a share of the error, is wider than this
_ROUND_ITERATIONS = 30
# How far others may lag behind the first run after so many iterations, as a share of the error.
_ROUNDS = {_ROUND_ITERATIONS: np.inf}
_SLOW_ROUNDS = {20: 0.01, _ROUND_ITERATIONS: 0.0}
_ROUND_TOL = 1e-4
_TIE_SHARE = 1e-5  # relative difference up to which errors count as equal


class Entrant(NamedTuple):
    """One init in the race: its name, its error, and the number of iterations to this error."""

    init: str
    relative_error: float
    iterations: int


@dataclass(frozen=True)
class Race:
    """A race of inits.

    Attributes
    ----------
    entrants : tuple of Entrant
        The init that started the fit, and those that competed with it.
    won_by : int
        The index of the winner: the first of those with the lowest error, up to rounding.
    lower_bound : float
        An estimated lower bound for these errors; 0 if none is known.
    """

    entrants: tuple[Entrant, ...]
    won_by: int
    lower_bound: float

    @property
    def winner(self) -> Entrant:
        """The entrant whose run the solver continued."""
        return self.entrants[self.won_by]

    def plain(self) -> Facts:
        """Return the race in plain values, to be saved."""
        return dict(vars(self))

    @classmethod
    def of_plain(cls, plain: Facts | None) -> Race | None:
        """Return the race of plain values."""
        if plain is None:
            return None
        entrants = tuple(Entrant(*one) for one in plain["entrants"])
        return cls(entrants, plain["won_by"], plain["lower_bound"])


def may_pay(run: Run, max_iter: int) -> float | None:
    """Return the gap, as a share of the error, above which inits may compete; None for no race."""
    F, N = run.V.shape
    if run.reason not in (StopReason.CONVERGED, StopReason.MAX_ITER) or not run.errors:
        return None
    if F * N <= _MAX_SMALL_ENTRIES:
        return _MIN_GAP_OF_SMALL
    is_slow = run.reason is StopReason.MAX_ITER and PATIENCE <= run.n_iter < max_iter
    return _MIN_GAP if is_slow else None


def hold_race(
    first: Run,
    rivals: Sequence[Init],
    begin: Callable[[Init, np.random.Generator], Run],
    stopping: Stopping,
    rng: Generator = None,
    lower_bound: float = 0.0,
) -> tuple[Run, Race]:
    """Let inits compete with a run, and return the leading run; a callback may end the race.

    Parameters
    ----------
    first : Run
        The first run, which has started.
    rivals : sequence of inits
        The other inits.
    begin : callable
        ``begin(init, rng) -> Run``; an init that cannot make K components raises
        `ComponentsError` and does not take part.
    stopping : Stopping
        The limits of the fit, which apply to every run.
    rng : numpy.random.Generator, optional
        Generator for seeds. Without it the race is deterministic.
    lower_bound : float
        Lower bound of the relative error, which is stored with the race.
    """
    is_slow = _is_slow(first, lower_bound)
    rivals = rivals[:2] if is_slow else rivals
    seeds = range(len(rivals)) if rng is None else rng.integers(2**32, size=len(rivals)).tolist()
    runs = [first]
    for rival, seed in zip(rivals, seeds, strict=True):
        with suppress(ComponentsError):
            runs.append(begin(rival, default_rng(seed)))
    ahead = runs[1:]
    limits = replace(stopping, tol=_ROUND_TOL)
    for iterations, lag in (_SLOW_ROUNDS if is_slow else _ROUNDS).items():
        for run in ahead:
            run.continue_with(replace(limits, max_iter=min(iterations, stopping.max_iter)))
        for _ in run_together(runs[-1].V, ahead):
            pass
        ahead = [run for run in ahead if _lag(run, first) < lag]
    if ahead and all(run.reason is not StopReason.CALLBACK for run in runs):
        leader = _leader(ahead, stopping.exact)
        most = max(first.n_iter, min(_ROUND_ITERATIONS, stopping.max_iter))
        leader.continue_with(replace(limits, max_iter=most))
        leader.run()
    winner = _leader(runs, stopping.exact)
    if any(run.reason is StopReason.CALLBACK for run in runs):
        winner.reason = StopReason.CALLBACK
    entrants = tuple(Entrant(run.init, run.errors[-1], run.n_iter) for run in runs)
    return winner, Race(entrants, runs.index(winner), lower_bound)


def _is_slow(run: Run, lower_bound: float) -> bool:
    """Return whether a run of large data falls slowly, not far above its bound."""
    F, N = run.V.shape
    error = run.errors[-1]
    is_large = F * N > _MAX_SMALL_ENTRIES
    is_near = lower_bound > (1 - _WIDE_GAP) * error
    return is_large and is_near and run.errors[-_SLOW_ITERATIONS - 1] < (1 + _SLOW_FALL) * error


def _lag(run: Run, first: Run) -> float:
    """Return the share by which the error of a run is above that of the first at its iteration."""
    return run.errors[-1] / first.errors[min(run.n_iter, first.n_iter) - 1] - 1


def _leader(runs: list[Run], exact: float) -> Run:
    """Return the run with the lowest error; the first one if errors agree, or are rounding."""
    limit = max(min(run.errors[-1] for run in runs) * (1 + _TIE_SHARE), exact)
    return next(run for run in runs if run.errors[-1] <= limit)

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
(``benchmarks/large_races.py``).

**Random starts.** If entries have different weights, there is no bound, and fits of small tables
end in many minima. Random starts then compete (`race_starts`), ten at a time in shared passes: each
runs 25 iterations, and the best four continue. The race is over when four runs agree with the
leader, or after `most_starts`. If the caller asks for a number of starts, each runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

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
# Random starts; the numbers were chosen on half of the draws of `benchmarks/fields.py starts`.
_ROUND_STARTS = 10
_START_ITERATIONS = 25
_FINALISTS = 4  # of a round
_AGREEING = 5  # runs, with the leader; with 3 of them, both may have missed the same minimum
_AGREED = 5e-4  # relative difference of errors, or 0.1 % of Q
_MOST_STARTS = 40
_FEW_STARTS = 10
_MAX_ENTRIES = 1 << 20  # with more, iterations take too long for a race of starts


class Entrant(NamedTuple):
    """One init in the race: its name, error, number of iterations to this error, and seed.

    If the seed is s, ``factorize(V, K, init=init, rng=numpy.random.default_rng(s))`` starts like
    this entrant. It is None for the first init of "auto".
    """

    init: str
    relative_error: float
    iterations: int
    seed: int | None = None


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

    @property
    def n_agreeing(self) -> int:
        """How many entrants agree with the winner: their squared errors differ by at most 0.1 %."""
        return _count_near(self.entrants)

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


def most_starts(run: Run) -> int:
    """Return how many random starts may compete with a run on weighted entries."""
    F, N = run.V.shape
    if run.reason not in (StopReason.CONVERGED, StopReason.MAX_ITER) or F * N > _MAX_ENTRIES:
        return 0
    return _MOST_STARTS if F * N <= _MAX_SMALL_ENTRIES else _FEW_STARTS


def seeds_of(rng: Generator, count: int, lowest: int = 0) -> list[int]:
    """Return seeds of starts, drawn by a generator; without it, whole numbers in turn."""
    if rng is None:
        return [*range(lowest, lowest + count)]
    return [int(seed) for seed in rng.integers(2**32, size=count)]


# ``begin(init, seed) -> Run``; an init that cannot make K components raises `ComponentsError`.
Begin: TypeAlias = Callable[[Init, int], Run]


def hold_race(
    first: Run,
    rivals: Sequence[Init],
    begin: Begin,
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
        An init that raises an error does not take part.
    stopping : Stopping
        The limits of the fit, which apply to every run.
    rng : numpy.random.Generator, optional
        Generator for seeds. Without it the race is deterministic.
    lower_bound : float
        Lower bound of the relative error, which is stored with the race.
    """
    is_slow = _is_slow(first, lower_bound)
    rivals = rivals[:2] if is_slow else rivals
    limits = replace(stopping, tol=_ROUND_TOL)
    runs = [first]
    for rival, seed in zip(rivals, seeds_of(rng, len(rivals)), strict=True):
        with suppress(ComponentsError):
            runs.append(begin(rival, seed))
    ahead = runs[1:]
    for iterations, lag in (_SLOW_ROUNDS if is_slow else _ROUNDS).items():
        most = min(iterations, stopping.max_iter)
        ended = _advance(ahead, replace(limits, max_iter=most))
        ahead = [run for run in ended if _lag(run, first) < lag]
    if ahead and all(run.reason is not StopReason.CALLBACK for run in runs):
        leader = _leader(ahead, stopping.exact)
        leader.continue_with(replace(limits, max_iter=max(first.n_iter, most)))
        leader.run()
    winner = _leader(runs, stopping.exact)
    if any(run.reason is StopReason.CALLBACK for run in runs):
        winner.reason = StopReason.CALLBACK
    entrants = tuple(map(_entrant, runs))
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


def race_starts(
    first: Run,
    init: Init,
    begin: Begin,
    stopping: Stopping,
    seeds: Sequence[int],
    *,
    in_full: bool,
) -> tuple[Run, Race]:
    """Let starts of an init compete with a run, and return the run with the lowest error.

    Parameters
    ----------
    first : Run
        The first run, which has ended.
    init : str
    begin : callable
        As in `hold_race`.
    stopping : Stopping
        The limits of the fit.
    seeds : sequence of int
        One for each start.
    in_full : bool
        Whether every start runs to its end. If not, the best of each round run as long as the
        first run may, and the race is over when four runs agree with the leader.
    """
    limits = stopping
    share = 0.0
    if not in_full:
        limits = replace(stopping, max_iter=min(PATIENCE, stopping.max_iter))
        share = _TIE_SHARE
    short = replace(limits, tol=_ROUND_TOL, max_iter=min(_START_ITERATIONS, limits.max_iter))
    leader = first
    won_by = 0
    entrants = [_entrant(first)]
    for place in range(0, len(seeds), _ROUND_STARTS):
        runs = [begin(init, seed) for seed in seeds[place : place + _ROUND_STARTS]]
        finalists = runs
        if not in_full:
            finalists = sorted(_advance(runs, short), key=_error)[:_FINALISTS]
        _advance(finalists, limits)
        for run in runs:
            if _error(run) < (1 - share) * _error(leader):
                leader = run
                won_by = len(entrants)
            entrants.append(_entrant(run))
        reasons = {run.reason for run in runs}
        if StopReason.CALLBACK in reasons:
            leader.reason = StopReason.CALLBACK
        if reasons & {StopReason.CALLBACK, StopReason.MAX_TIME}:
            break
        if not in_full and _count_near(entrants) >= _AGREEING:
            break
    return leader, Race(tuple(entrants), won_by, 0.0)


def _advance(runs: list[Run], limits: Stopping) -> list[Run]:
    """Run until each reaches a limit, in shared passes; return those that have an error."""
    for run in runs:
        run.continue_with(limits)
    if runs:
        for _ in run_together(runs[0].V, runs):
            pass
    return [run for run in runs if run.errors]


def _error(run: Run) -> float:
    return run.errors[-1] if run.errors else np.inf


def _entrant(run: Run) -> Entrant:
    return Entrant(run.init, _error(run), run.n_iter, run.seed)


def _count_near(entrants: Sequence[Entrant]) -> int:
    """Return how many entrants, with the best, agree with the best."""
    errors = [one.relative_error for one in entrants]
    return int(np.count_nonzero(np.array(errors) <= (1 + _AGREED) * min(errors)))


def _leader(runs: list[Run], exact: float) -> Run:
    """Return the run with the lowest error; the first one if errors agree, or are rounding."""
    limit = max(min(map(_error, runs)) * (1 + _TIE_SHARE), exact)
    return next(run for run in runs if _error(run) <= limit)

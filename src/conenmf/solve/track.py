"""The track on which inits race: who enters, who continues, and for how long.

One run per init (`runs`), in one arena (`arena`); every pass serves all that take part. The rounds
are described in `race`, which decides what the solver does with the winner.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..data.matrix import DataMatrix
from ..data.sketch import is_dense
from ..errors import ComponentsError
from ..linalg.spectrum import Spectrum
from .arena import Arena
from .coefficients import coefficients
from .initial import Generator, InitialFactors
from .inits import initialize
from .loop import iterate
from .methods import Method
from .prospect import Prospect, prospect
from .runs import Run
from .solvers import SOLVERS, Solver
from .stopping import Callback, Iteration, Stopping, StopReason, asks_to_stop
from .svd_inits import SVD_INITS

__all__ = ["RACING_SOLVER", "Entered", "LeastSquaresTrack", "Plan", "Track"]

RACING_SOLVER = SOLVERS["hals"]
_INITS = ("cr1-robust", "nndsvd", "spa", "random", "random", "random")
_INITS_OF_TWO = ("cr1-robust", "rank-two", *_INITS[2:])
_TOLS, _WINDOWS = (3e-3, 1e-4, 1e-4), (3, 5, 5)  # in each round
_SAME_SHARE = 1e-3  # by which errors that probably lead to the same may differ
_MIN_AGREEING = 3  # inits that have reached the same error, which then is no plateau
_TIE_SHARE = 1e-5  # by which errors that count as equal may differ
_MAX_SMALL_ENTRIES = 1 << 16
_MIN_STANDOUT_RATIO = 1.001  # of sigma_K to the next, below which a sketch's vectors are any
_TIME_SHARE = 0.5  # of the time that is left
_ONE_ITERATION_SECONDS = 1e-9  # a limit after which every run has its first iteration


class Plan(NamedTuple):
    """How many inits compete, how many continue, and iterations at the end of each round."""

    n_inits: int
    n_leaders: int
    rounds: tuple[int, int, int]


_PLAN = Plan(4, 2, (10, 30, 60))
_PLAN_ON_SMALL = Plan(6, 3, (10, 30, 60))  # iterations cost next to nothing
_PLAN_ON_SKETCH = Plan(5, 3, (20, 60, 300))


@dataclass(eq=False)
class Entered:
    """An init that takes part: its number and name, its run so far, and what seconds it took.

    Its error at the end of the first round, and whether that hardly fell any more, decide who
    continues: some may be ahead by then.
    """

    number: int
    name: str
    run: Run
    seconds: float
    first_error: float = np.inf
    has_settled: bool = False

    @property
    def error(self) -> float:
        """The relative error that it has reached."""
        return self.run.log.relative_error[-1]


class Track(ABC):
    """A race: the inits that take part, in one arena, with limits for each round.

    Attributes
    ----------
    inits : tuple of str
    method : Method
        How they run, and what they compete by.
    arena : Arena
    prospect : Prospect
        The error that may be reached.
    entered : list of Entered
        The inits that have begun so far.
    is_agreed, is_stopped : bool
        Whether several have reached the lowest error; whether the callback has ended the race.
    """

    inits: tuple[str, ...]
    method: Method

    def __init__(
        self,
        arena: Arena,
        K: int,
        rng: Generator,
        plan: Plan,
        prospect: Prospect,
        remaining: Callable[[], float | None],
        callback: Callback | None = None,
        *,
        runs_ahead: bool = False,
    ) -> None:
        self.arena, self.K, self._plan, self.prospect = arena, K, plan, prospect
        self.entered: list[Entered] = []
        self.is_agreed = self.is_stopped = False
        self._runs_ahead = runs_ahead
        self._ahead: list[Entered] = []
        self._callback, self._lowest_error, self._lowest_on_sketch = callback, np.inf, np.inf
        self._is_on_all = arena.name == "all"
        self._seeds = list(range(len(self.inits)))
        if rng is not None:
            self._seeds[1:] = [int(seed) for seed in rng.integers(2**32, size=len(self.inits) - 1)]
        left = remaining()
        self._end = None if left is None else time.perf_counter() + _TIME_SHARE * left

    @abstractmethod
    def initial(self, number: int) -> InitialFactors:
        """Return the factors of an init."""

    def rng(self, number: int) -> Generator:
        """Return the generator of an init, which is the same at every call.

        The first init has none unless it draws: so it is the same for all seeds.
        """
        if number == 0 and self.inits[0] != "random":
            return None
        return np.random.default_rng(self._seeds[number])

    def begin(self) -> InitialFactors | None:
        """Enter the first init, and return its W if that is exact: nothing is left to do then.

        So the same samples in another order, or weighted, have the same W.
        """
        began = time.perf_counter()
        try:
            initial = self.initial(0)
        except ComponentsError:
            return None
        if initial.error <= Stopping.exact:
            return initial._replace(H=None)
        seconds = time.perf_counter() - began
        self._enter([0], initial)
        self.entered[0].seconds += seconds
        return None

    def run(self) -> Entered:
        """Hold the race, and return the winner, or the one that leads when it is stopped."""
        try:
            if not self.entered:
                self._enter([0])
            if not (self.entered and self.prospect.is_reached(self.entered[0].error)):
                numbers = [n for n in range(1, self._plan.n_inits) if self._suits(n)]
                if self._runs_ahead:
                    n_before = len(self.entered)
                    self._enter(numbers[:1])
                    self._run_ahead(self.entered[n_before:])
                    del numbers[:1]
                self._enter(numbers)
            winner = self._race()
        finally:
            for one in self.entered:  # a circle would keep every H, which may be a file
                one.run.callback = None
        if self.is_stopped:
            return min(self.entered, key=lambda one: one.error)
        return winner

    def _race(self) -> Entered:
        """Let those that lead continue until the best one is known."""
        by_first = _lowest(self.entered, self._plan.n_leaders, lambda one: one.first_error)
        leaders = _distinct(by_first)
        if len(leaders) > 1:
            self._continue(leaders, round=1)
        (winner,) = _lowest([*leaders, *self._ahead], 1)
        self.is_agreed = _agree(self.entered)
        if not self.is_agreed and self.prospect.is_plateau(winner.error):
            self._continue(self.entered, round=2)
            self.is_agreed = _agree(self.entered)
            (winner,) = _lowest(self.entered, 1)
        if not self._is_on_all:  # an iteration is cheaper here than on V
            self._continue([winner], round=2)
        return winner

    def _suits(self, number: int) -> bool:
        """Whether an init may win: single samples of sparse data, such as documents, do not."""
        return self.inits[number] != "spa" or is_dense(self.arena.V)

    def _enter(self, numbers: Iterable[int], known: InitialFactors | None = None) -> None:
        """Make inits, and run them; one that cannot make as many components does not take part."""
        entered = []
        for number in numbers:
            if self.entered and self.is_over():
                break
            began = time.perf_counter()
            try:
                initial = self.initial(number) if known is None else known
            except ComponentsError:
                continue
            run = Run(
                self.arena.data,
                initial.W,
                initial.H,
                self.method,
                Stopping(max_iter=0),
                callback=self._report if self._callback and self._is_on_all else None,
            )
            entered.append(Entered(number, initial.name, run, time.perf_counter() - began))
        self.entered += entered
        self._continue(entered, round=0)
        for one in entered:
            one.first_error = one.error
            one.has_settled = one.run.reason is StopReason.CONVERGED

    def _run_ahead(self, entered: list[Entered]) -> None:
        """Run to the end of the second round at once: the lowest error is reached sooner."""
        if entered and not self.is_over():
            self._continue(entered, round=1)
            self._ahead = entered

    def _continue(self, entered: list[Entered], *, round: int) -> None:
        """Run until the end of a round, or until the errors hardly fall."""
        if self.is_stopped:
            return
        began, left = time.perf_counter(), None
        for one in entered:
            if self._end is not None:
                left = one.run.log.last_elapsed + max(self._end - began, _ONE_ITERATION_SECONDS)
            tol, window = _TOLS[round], _WINDOWS[round]
            limits = Stopping(tol, window, max_iter=self._plan.rounds[round], max_time=left)
            one.run.extend(limits)
        iterate(self.arena.data, [one.run for one in entered])
        for one in entered:
            one.seconds += (time.perf_counter() - began) / len(entered)
        if self._callback is not None and self.arena.name == "sketch":
            self._report_of_all()

    def _report(self, now: Iteration) -> bool:
        """Call the callback for every error that is the lowest so far; end all runs if it asks."""
        assert self._callback is not None
        if now.relative_error < self._lowest_error and not self.is_stopped:
            self._lowest_error = now.relative_error
            if asks_to_stop(self._callback, replace(now, iteration=0)):
                self.is_stopped = True
                for one in self.entered:
                    one.run.reason = StopReason.CALLBACK
        return self.is_stopped

    def _report_of_all(self) -> None:
        """Report the error that the leader on a sketch has on V itself, which takes a pass."""
        leader = min(self.entered, key=lambda one: one.error)
        if leader.error < self._lowest_on_sketch:
            self._lowest_on_sketch, V = leader.error, self.arena.V
            squared = coefficients(V, leader.run.factors()[0])[2]
            error, log = float(np.sqrt(squared / V.total)), leader.run.log
            self._report(Iteration(0, log.last_elapsed, error, log.last_passes, squared))

    def is_over(self) -> bool:
        """Whether it was stopped, or the time for it has run out."""
        return self.is_stopped or (self._end is not None and time.perf_counter() >= self._end)


class LeastSquaresTrack(Track):
    """A race for least squares, on the data or a sketch of them, with singular values as referee.

    Attributes
    ----------
    spectrum : Spectrum
        That of the data, or of their sketch.
    """

    method = Method.of(RACING_SOLVER)

    def __init__(
        self,
        arena: Arena,
        K: int,
        solver: Solver | None,
        rng: Generator,
        spectrum: Spectrum,
        remaining: Callable[[], float | None],
        callback: Callback | None = None,
    ) -> None:
        self.inits = _INITS_OF_TWO if K == 2 else _INITS
        data = arena.V if arena.S is None else arena.S
        self.spectrum = spectrum if data is spectrum.V else Spectrum(data)
        known = self.spectrum if arena.S is None else None
        F, N = arena.V.shape
        plan = _PLAN_ON_SMALL if F * N <= _MAX_SMALL_ENTRIES else _PLAN
        if arena.data is arena.S:
            plan = _PLAN_ON_SKETCH
        referee = prospect(arena.V, K, arena.S, spectrum=known)
        # Of dense data the second most often leads. Other solvers begin where it has begun.
        ahead = solver is RACING_SOLVER and is_dense(arena.V)
        super().__init__(arena, K, rng, plan, referee, remaining, callback, runs_ahead=ahead)

    def initial(
        self, number: int, V: DataMatrix | None = None, solver: Solver | None = RACING_SOLVER
    ) -> InitialFactors:
        """Return the factors of an init, for all of V if it is given."""
        name = self.inits[number]
        if name in SVD_INITS and V is None:
            data, spectrum = self.spectrum.V, self.spectrum
            return InitialFactors(*SVD_INITS[name](data, self.K, spectrum=spectrum), name)
        data = self.arena.V if V is None else V
        is_usable = self.prospect.standout >= _MIN_STANDOUT_RATIO and V is None
        known = self.spectrum if is_usable or data is self.spectrum.V else None
        return initialize(data, self.K, name, solver, self.rng(number), spectrum=known)


def _lowest(
    entered: list[Entered],
    count: int,
    error: Callable[[Entered], float] = lambda one: one.error,
) -> list[Entered]:
    """Those of the lowest errors, lowest first; of those that are equal, up to rounding, the first.

    So rounding, which depends on the storage, does not decide.
    """
    left = sorted(entered, key=lambda one: one.number)
    lowest: list[Entered] = []
    while left and len(lowest) < count:
        limit = min(error(one) for one in left) * (1 + _TIE_SHARE)
        lowest.append(next(one for one in left if error(one) <= limit))
        left.remove(lowest[-1])
    return lowest


def _agree(entered: list[Entered]) -> bool:
    """Whether several have reached the lowest error."""
    limit = min(one.error for one in entered) * (1 + _SAME_SHARE)
    return sum(one.error <= limit for one in entered) >= _MIN_AGREEING


def _distinct(entered: list[Entered]) -> list[Entered]:
    """Leave out those that have settled at nearly the same error as one before them."""
    distinct: list[Entered] = []
    for one in entered:
        if not one.has_settled or all(
            abs(one.first_error - other.first_error) > _SAME_SHARE * other.first_error
            for other in distinct
        ):
            distinct.append(one)
    return distinct

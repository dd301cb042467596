"""The race of inits: the choice of ``init="auto"``.

Several inits compete by the error that the solver reaches from them, not by the error they begin
with. They run where an iteration is cheap: on a sketch of V, or on V itself if that is as cheap.
The order is:

1. cr1 runs a few iterations. If its error is as low as the singular values allow (`prospect`), no
   other init can do better, and the race is over.
2. The others run as many. The two that lead go on until the better one is known.
3. If the better one is on a plateau all the same, all go on: which one leaves it cannot be seen
   before.

The race draws from generators of its own, and compares errors with a tolerance for rounding, so
that it has the same outcome in any storage. The winner's factors are where the solver continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import dense
from ..data.matrix import DataMatrix
from ..data.sketch import Sketch, sketch, sketch_rank
from ..errors import ComponentsError
from .initial import Generator, InitialFactors
from .inits import initialize
from .loop import iterate
from .losses import coefficients
from .prospect import Prospect, prospect
from .runs import Run, State
from .solvers import SOLVERS, Solver
from .stopping import Stopping
from .svd_inits import SVD_INITS

__all__ = ["Entrant", "Race", "RaceOutcome", "run_race"]

_SOLVER = SOLVERS["hals"]
_INITS = ("cr1", "nndsvd", "spa", "random", "random")
_N_INITS_ON_V = 4  # where iterations are more expensive, fewer compete ...
_ROUNDS_ON_V, _ROUNDS_ON_SKETCH = (10, 30, 60), (20, 60, 180)  # ... for fewer iterations
_TOLS = (1e-3, 1e-4, 1e-4)  # in each round
_TIE_SHARE = 1e-5  # by which errors that count as equal may differ
_VECTORS_PER_COMPONENT = 2
_TIME_SHARE = 0.5  # of the time that is left
_ONE_ITERATION_SECONDS = 1e-9  # a limit after which every run has its first iteration


class Entrant(NamedTuple):
    """One init in the race: its name, the error reached from it, and what that took.

    Iterations of several entrants in one pass count evenly.
    """

    init: str
    relative_error: float
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Race:
    """A race of inits.

    Attributes
    ----------
    entrants : tuple of Entrant
        In the order in which they began; the winner is the first of those with the lowest error.
    on_sketch : bool
        The errors are those of a sketch of the data, not of the data themselves.
    lower_bound : float
        That of the error, estimated from a sketch.
    """

    entrants: tuple[Entrant, ...]
    on_sketch: bool
    lower_bound: float

    @property
    def winner(self) -> Entrant:
        """The entrant from which the solver went on."""
        return self.entrants[_best([one.relative_error for one in self.entrants])]

    def plain(self) -> dict[str, Any]:
        """Return the race in plain values, to be saved."""
        return {**vars(self), "entrants": [list(one) for one in self.entrants]}

    @classmethod
    def of_plain(cls, plain: dict[str, Any] | None) -> Race | None:
        """Return the race of plain values."""
        if plain is None:
            return None
        entrants = tuple(
            Entrant(str(init), float(error), int(iterations), float(seconds))
            for init, error, iterations, seconds in plain["entrants"]
        )
        return cls(entrants, bool(plain["on_sketch"]), float(plain["lower_bound"]))


class RaceOutcome(NamedTuple):
    """What a race leaves to the solver: the winner's factors, or its state on V itself."""

    initial: InitialFactors
    race: Race | None = None
    prospect: Prospect | None = None
    state: State | None = None


def run_race(
    V: DataMatrix,
    K: int,
    solver: Solver | None,
    rng: Generator = None,
    *,
    rank: int | str | None = "auto",
    remaining: Callable[[], float | None] = lambda: None,
) -> RaceOutcome:
    """Let inits compete, and return the factors from which the solver continues.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    solver : Solver or None
        "hals" continues from the factors that the winner has reached. Another solver begins with
        the init that won, since it may be unable to leave zeros, or is to be seen from its start.
    rng : numpy.random.Generator, optional
        Without it the race is always the same.
    rank : int, "auto" or None
        The rank of the sketch on which the race is run; "auto" if it pays, None never.
    remaining : callable, optional
        Returns the seconds that are left, or None. The race takes at most half of them.
    """
    if min(V.shape) < K:
        return RaceOutcome(initialize(V, K, _INITS[0], solver, rng))
    if min(V.shape) == K:
        return RaceOutcome(_identity(V))
    if isinstance(rank, str):
        rank = sketch_rank(V, K)
    S = sketch(V, rank or min(_VECTORS_PER_COMPONENT * K, *V.shape))
    track = _Track(V, K, S, V if rank is None else S, rng, remaining)
    winner = track.run()
    entrants = tuple(one.entrant() for one in track.entered)
    race = Race(entrants, rank is not None, track.prospect.lower_bound)
    if solver is not _SOLVER:
        return RaceOutcome(track.initial(winner.number, solver), race, track.prospect)
    if rank is not None:
        W, H = winner.run.factors()
        return RaceOutcome(InitialFactors(W, H, winner.name), race, track.prospect)
    state, error = winner.run.take_state(), winner.error
    initial = InitialFactors(state.W, None, winner.name, error=error)
    return RaceOutcome(initial, race, track.prospect, state)


def _identity(V: DataMatrix) -> InitialFactors:
    """Exact factors with as many components as there are features, or samples: W = I, or W = V."""
    F, N = V.shape
    W = np.eye(F, dtype=V.dtype) if F <= N else dense(V.columns(np.arange(N))).astype(V.dtype)
    return InitialFactors(W, coefficients(V, W)[0], "identity")


@dataclass
class _Entered:
    """An init that takes part: its number, its run so far, and the seconds that it took."""

    number: int
    run: Run
    seconds: float

    @property
    def name(self) -> str:
        return _INITS[self.number]

    @property
    def error(self) -> float:
        return self.run.log.relative_error[-1]

    def entrant(self) -> Entrant:
        return Entrant(self.name, self.error, len(self.run.log.elapsed), self.seconds)


class _Track:
    """Where a race is run: on V or on a sketch of it, with limits for each round."""

    def __init__(
        self,
        V: DataMatrix,
        K: int,
        S: Sketch,
        data: DataMatrix,
        rng: Generator,
        remaining: Callable[[], float | None],
    ) -> None:
        self.V, self.K, self.S, self.data = V, K, S, data
        self.prospect = prospect(V, K, S)
        self.entered: list[_Entered] = []
        self._seeds: list[int | None] = [None, *range(1, len(_INITS))]
        if rng is not None:
            self._seeds = [int(seed) for seed in rng.integers(2**32, size=len(_INITS))]
        left = remaining()
        self._end = None if left is None else time.perf_counter() + _TIME_SHARE * left
        self._rounds = _ROUNDS_ON_V if data is V else _ROUNDS_ON_SKETCH

    def run(self) -> _Entered:
        """Hold the race, and return the winner."""
        self._enter([0])
        if not (self.entered and self.prospect.is_reached(self.entered[0].error)):
            self._enter(range(1, _N_INITS_ON_V if self.data is self.V else len(_INITS)))
        leaders = _two_best(self.entered)
        if len(leaders) > 1:
            self._go_on(leaders, round=1)
            if self.prospect.is_plateau(_two_best(leaders)[0].error):
                self._go_on(self.entered, round=2)
                leaders = _two_best(self.entered)
        winner = _two_best(leaders)[0]
        if self.data is self.S:
            self._go_on([winner], round=2)
        return winner

    def initial(self, number: int, solver: Solver | None = _SOLVER) -> InitialFactors:
        """Return the factors of an init; always the same for the same number."""
        name, seed = _INITS[number], self._seeds[number]
        if name in SVD_INITS:
            return InitialFactors(*SVD_INITS[name](self.S, self.K), name)
        rng = None if seed is None else np.random.default_rng(seed)
        return initialize(self.V, self.K, name, solver, rng)

    def _enter(self, numbers: Iterable[int]) -> None:
        """Make inits, and run them; one that cannot make as many components does not take part."""
        entered = []
        for number in numbers:
            if self.entered and self._is_over():
                break
            began = time.perf_counter()
            try:
                initial = self.initial(number)
            except ComponentsError:
                continue
            run = Run(self.data, initial.W, initial.H, _SOLVER, Stopping(max_iter=0))
            entered.append(_Entered(number, run, time.perf_counter() - began))
        self.entered += entered
        self._go_on(entered, round=0)

    def _go_on(self, entered: list[_Entered], *, round: int) -> None:
        """Run until the end of a round, or until the errors hardly fall."""
        began, left = time.perf_counter(), None
        for one in entered:
            if self._end is not None:
                left = one.run.log.last_elapsed + max(self._end - began, _ONE_ITERATION_SECONDS)
            one.run.go_on(Stopping(tol=_TOLS[round], max_iter=self._rounds[round], max_time=left))
        iterate(self.data, [one.run for one in entered])
        for one in entered:
            one.seconds += (time.perf_counter() - began) / len(entered)

    def _is_over(self) -> bool:
        return self._end is not None and time.perf_counter() >= self._end


def _two_best(entered: list[_Entered]) -> list[_Entered]:
    """The two of the lowest errors, in this order; the first ones of those that are equal."""
    left = list(entered)
    best = [left.pop(_best([one.error for one in left])) for _ in range(min(2, len(left)))]
    return best


def _best(errors: Sequence[float]) -> int:
    """The first of the lowest errors, up to rounding."""
    limit = min(errors) * (1 + _TIE_SHARE)
    return next(i for i, error in enumerate(errors) if error <= limit)

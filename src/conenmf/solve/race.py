"""The race of inits: the choice of ``init="auto"``.

Several inits compete by the error that the solver reaches from them, not by the error they begin
with. They run where an iteration is cheap (`arena`). The order is:

1. cr1, or cr1-robust if clusters are not evident, runs a few iterations. If its error is as low
   as the singular values allow (`prospect`), no other init can do better, and the race is over.
2. The others run as many. Those that lead continue until the best one is known.
3. If the best one is on a plateau all the same, all continue: which one leaves it cannot be
   seen before. Where three reach the same error, it is taken for the end and not for a plateau.

Two components have no race where the best approximation of rank two is nonnegative: its exact
factors have the smallest error of all (`cones.plane`).

The race draws from generators of its own, and compares errors with a tolerance for rounding, so
that it has the same outcome in any storage. The winner's factors are where the solver continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arguments import choice, function, generator, instance, optional
from ..cones.plane import leading_plane, rank_two_factors
from ..data.blocks import dense
from ..data.matrix import DataMatrix
from ..data.sketch import checked_rank, is_dense
from ..data.validate import checked_components, require_data_matrix
from ..errors import ComponentsError, OptionError
from ..linalg.spectrum import Spectrum
from .arena import Arena, choose_arena, factors_on_all
from .coefficients import coefficients
from .initial import Generator, InitialFactors
from .inits import initialize
from .loop import iterate
from .prospect import Prospect, prospect
from .runs import Run
from .solvers import SOLVERS, Solver
from .state import State
from .stopping import Stopping, StopReason
from .svd_inits import SVD_INITS

__all__ = ["Entrant", "Race", "RaceOutcome", "run_race"]

_SOLVER = SOLVERS["hals"]
_PLACES = {
    "all": "the data",
    "sketch": "a sketch of the data",
    "samples": "some of the samples",
    "features": "some of the features",
}
_INITS = ("cr1-robust", "nndsvd", "spa", "random", "random", "random")
_INITS_OF_TWO = ("cr1-robust", "rank-two", *_INITS[2:])
_LOST_ON_SKETCH = 1e-3  # of ||V||^2 outside the orthant, up to which a plane may be nonnegative
_TOLS, _WINDOWS = (3e-3, 1e-4, 1e-4), (3, 5, 5)  # in each round
_SAME_SHARE = 1e-3  # by which errors that probably lead to the same may differ
_MIN_AGREEING = 3  # inits that have reached the same error, which then is no plateau
_TIE_SHARE = 1e-5  # by which errors that count as equal may differ
_MAX_SMALL_ENTRIES = 1 << 16
_MIN_STANDOUT_RATIO = 1.001  # of sigma_K to the next, below which a sketch's vectors are any
_TIME_SHARE = 0.5  # of the time that is left
_ONE_ITERATION_SECONDS = 1e-9  # a limit after which every run has its first iteration


class _Plan(NamedTuple):
    """How many inits compete, how many continue, and iterations at the end of each round."""

    n_inits: int
    n_leaders: int
    rounds: tuple[int, int, int]


_PLAN = _Plan(4, 2, (10, 30, 60))
_PLAN_ON_SMALL = _Plan(6, 3, (10, 30, 60))  # iterations cost next to nothing
_PLAN_ON_SKETCH = _Plan(5, 3, (20, 60, 300))


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
        In the order in which they began.
    won_by : int
        The index of the winner: the first of those with the lowest error, up to rounding.
    is_agreed : bool
        Whether three or more reached the same error, up to 0.1%.
    data : str
        What the errors are those of: "all" the data, a "sketch", some "samples" or "features".
    lower_bound : float
        That of these errors, estimated from a sketch.
    """

    entrants: tuple[Entrant, ...]
    won_by: int
    is_agreed: bool
    data: str
    lower_bound: float

    @property
    def place(self) -> str:
        """Where it was run, in words."""
        return _PLACES[self.data]

    @property
    def winner(self) -> Entrant:
        """The entrant from which the solver continued."""
        return self.entrants[self.won_by]

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
        won_by, data = int(plain["won_by"]), str(plain["data"])
        choice("data", data, _PLACES)
        if not 0 <= won_by < len(entrants):
            raise OptionError(f"entrant {won_by} of {len(entrants)} cannot have won a race")
        is_agreed = bool(plain["is_agreed"])
        return cls(entrants, won_by, is_agreed, data, float(plain["lower_bound"]))


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
    spectrum: Spectrum | None = None,
) -> RaceOutcome:
    """Let inits compete, and return the factors from which the solver continues.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    solver : Solver or None
        "hals" continues from the factors that the winner has reached. Another solver begins with
        the init that won, since it may be unable to leave zeros, or is to be seen from its start.
        Without a solver there is no race, and cr1-nmf is the result.
    rng : numpy.random.Generator, optional
        Without it the race is always the same.
    rank : int, "auto" or None
        The rank of the sketch on which the race is run; "auto" if it pays, None never.
    remaining : callable, optional
        Returns the seconds that are left, or None. The race takes at most half of them.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    """
    require_data_matrix(V, nonzero=True)
    K, rng = checked_components(K, V), optional(generator, "rng", rng)
    optional(instance, "solver", solver, Solver, "get_solver")
    rank = checked_rank("rank", rank)
    function("remaining", remaining, takes=0)
    spectrum = Spectrum.of(V, spectrum)
    if solver is None or min(V.shape) < K:
        return RaceOutcome(initialize(V, K, "cr1", solver, rng))
    if min(V.shape) == K:
        return RaceOutcome(_identity(V))
    track = _Track(choose_arena(V, K, rank), K, rng, spectrum, remaining)
    best = _best_two(V, track, spectrum) if K == 2 else None
    if best is not None:
        return RaceOutcome(best, None, track.prospect if track.arena.V is V else None)
    winner = track.run()
    entrants = tuple(one.entrant() for one in track.entered)
    won_by, bound = track.entered.index(winner), track.prospect.lower_bound
    race = Race(entrants, won_by, track.is_agreed, track.arena.name, bound)
    if solver is not _SOLVER:
        return RaceOutcome(track.initial(winner.number, V, solver), race)
    winner.run.normalize()
    if track.arena.name == "all":
        state = winner.run.state
        initial = InitialFactors(state.W, None, winner.name, error=winner.error)
        return RaceOutcome(initial, race, track.prospect, state)
    W, H = factors_on_all(V, track.arena.name, *winner.run.factors())
    known = track.prospect if track.arena.name == "sketch" else None
    return RaceOutcome(InitialFactors(W, H, winner.name), race, known)


def _identity(V: DataMatrix) -> InitialFactors:
    """Exact factors with as many components as there are features, or samples: W = I, or W = V."""
    F, N = V.shape
    W = np.eye(F, dtype=V.dtype) if F <= N else dense(V.columns(np.arange(N))).astype(V.dtype)
    return InitialFactors(W, coefficients(V, W)[0], "identity")


def _best_two(V: DataMatrix, track: _Track, spectrum: Spectrum) -> InitialFactors | None:
    """The best two components of all, if the best approximation of rank two is nonnegative.

    Of dense data, singular vectors of V itself are computed only if those of a sketch give hope.
    """
    if (
        track.is_over()
        or leading_plane(track.spectrum.V, spectrum=track.spectrum).lost > _LOST_ON_SKETCH
    ):
        return None
    plane = leading_plane(V, spectrum=spectrum)
    if not plane.is_nonnegative:
        return None
    W, H = rank_two_factors(V, plane=plane)
    squared = max(1.0 - plane.energy / V.total, 0.0) + plane.lost
    return InitialFactors(W, H, "rank-two", error=float(np.sqrt(squared)))


@dataclass(eq=False)
class _Entered:
    """An init that takes part: its number and name, its run so far, and what seconds it took."""

    number: int
    name: str
    run: Run
    seconds: float

    @property
    def error(self) -> float:
        return self.run.log.relative_error[-1]

    def entrant(self) -> Entrant:
        return Entrant(self.name, self.error, len(self.run.log.elapsed), self.seconds)


class _Track:
    """A race: the inits that take part, in one arena, with limits for each round."""

    def __init__(
        self,
        arena: Arena,
        K: int,
        rng: Generator,
        spectrum: Spectrum,
        remaining: Callable[[], float | None],
    ) -> None:
        self.arena, self.K = arena, K
        self.inits = _INITS_OF_TWO if K == 2 else _INITS
        data = arena.V if arena.S is None else arena.S
        self.spectrum = spectrum if data is spectrum.V else Spectrum(data)
        known = self.spectrum if arena.S is None else None
        self.prospect = prospect(arena.V, K, arena.S, spectrum=known)
        self.entered: list[_Entered] = []
        self.is_agreed = False
        self._seeds: list[int | None] = [None, *range(1, len(self.inits))]
        if rng is not None:
            self._seeds = [int(seed) for seed in rng.integers(2**32, size=len(self.inits))]
        left = remaining()
        self._end = None if left is None else time.perf_counter() + _TIME_SHARE * left
        F, N = arena.V.shape
        self._plan = _PLAN_ON_SMALL if F * N <= _MAX_SMALL_ENTRIES else _PLAN
        if arena.data is arena.S:
            self._plan = _PLAN_ON_SKETCH

    def run(self) -> _Entered:
        """Hold the race, and return the winner."""
        self._enter([0])
        if not (self.entered and self.prospect.is_reached(self.entered[0].error)):
            numbers = range(1, self._plan.n_inits)
            self._enter([number for number in numbers if self._suits(number)])
        leaders = _distinct(_lowest(self.entered, self._plan.n_leaders))
        if len(leaders) > 1:
            self._continue(leaders, round=1)
        (winner,) = _lowest(leaders, 1)
        self.is_agreed = _agree(self.entered)
        if not self.is_agreed and self.prospect.is_plateau(winner.error):
            self._continue(self.entered, round=2)
            self.is_agreed = _agree(self.entered)
            (winner,) = _lowest(self.entered, 1)
        if self.arena.name != "all":  # an iteration is cheaper here than on V
            self._continue([winner], round=2)
        return winner

    def _suits(self, number: int) -> bool:
        """Whether an init may win: single samples of sparse data, such as documents, do not."""
        return self.inits[number] != "spa" or is_dense(self.arena.V)

    def initial(
        self, number: int, V: DataMatrix | None = None, solver: Solver | None = _SOLVER
    ) -> InitialFactors:
        """Return the factors of an init, for all of V if it is given."""
        name, seed = self.inits[number], self._seeds[number]
        if name in SVD_INITS and V is None:
            data, spectrum = self.spectrum.V, self.spectrum
            return InitialFactors(*SVD_INITS[name](data, self.K, spectrum=spectrum), name)
        rng = None if seed is None else np.random.default_rng(seed)
        data = self.arena.V if V is None else V
        is_usable = self.prospect.standout >= _MIN_STANDOUT_RATIO and V is None
        known = self.spectrum if is_usable or data is self.spectrum.V else None
        return initialize(data, self.K, name, solver, rng, spectrum=known)

    def _enter(self, numbers: Iterable[int]) -> None:
        """Make inits, and run them; one that cannot make as many components does not take part."""
        entered = []
        for number in numbers:
            if self.entered and self.is_over():
                break
            began = time.perf_counter()
            try:
                initial = self.initial(number)
            except ComponentsError:
                continue
            run = Run(self.arena.data, initial.W, initial.H, _SOLVER, Stopping(max_iter=0))
            entered.append(_Entered(number, initial.name, run, time.perf_counter() - began))
        self.entered += entered
        self._continue(entered, round=0)

    def _continue(self, entered: list[_Entered], *, round: int) -> None:
        """Run until the end of a round, or until the errors hardly fall."""
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

    def is_over(self) -> bool:
        """Whether the time for the race has run out."""
        return self._end is not None and time.perf_counter() >= self._end


def _lowest(entered: list[_Entered], count: int) -> list[_Entered]:
    """Those of the lowest errors, lowest first; of those that are equal, up to rounding, the first.

    So rounding, which depends on the storage, does not decide.
    """
    left = sorted(entered, key=lambda one: one.number)
    lowest: list[_Entered] = []
    while left and len(lowest) < count:
        limit = min(one.error for one in left) * (1 + _TIE_SHARE)
        lowest.append(next(one for one in left if one.error <= limit))
        left.remove(lowest[-1])
    return lowest


def _agree(entered: list[_Entered]) -> bool:
    """Whether several have reached the lowest error."""
    limit = min(one.error for one in entered) * (1 + _SAME_SHARE)
    return sum(one.error <= limit for one in entered) >= _MIN_AGREEING


def _distinct(entered: list[_Entered]) -> list[_Entered]:
    """Leave out those that have converged to nearly the same error as one before them."""
    distinct: list[_Entered] = []
    for one in entered:
        if one.run.reason is not StopReason.CONVERGED or all(
            abs(one.error - other.error) > _SAME_SHARE * other.error for other in distinct
        ):
            distinct.append(one)
    return distinct

"""The race of inits: the choice of ``init="auto"``.

Several inits compete by the error that the solver reaches from them, not by the error they begin
with. They run where an iteration is cheap (`arena`). The order is:

1. cr1, or cr1-robust if clusters are not evident, runs a few iterations. If its error is as low
   as the singular values allow (`prospect`), no other init can do better, and the race is over.
2. The others run as many. Those that lead continue until the best one is known; of dense data,
   nndsvd does so at once, if the solver is to continue from there: it leads more often than not.
3. If the best one is on a plateau all the same, all continue: which one leaves it cannot be
   seen before. Where three reach the same error, it is taken for the end and not for a plateau.

Two components have no race where the best approximation of rank two is nonnegative: its exact
factors have the smallest error of all (`cones.plane`).

The race draws from generators of its own, and compares errors with a tolerance for rounding, so
that it has the same outcome in any storage. The winner's factors are where the solver continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arguments import choice, function, generator, instance, optional
from ..cones.plane import leading_plane, rank_two_factors
from ..data.blocks import dense
from ..data.matrix import DataMatrix
from ..data.sketch import checked_rank
from ..data.validate import checked_components, require_data_matrix
from ..errors import OptionError
from ..linalg.spectrum import Spectrum
from .arena import choose_arena, factors_on_all
from .coefficients import coefficients
from .initial import Generator, InitialFactors
from .inits import initialize
from .prospect import Prospect
from .solvers import Solver
from .state import State
from .stopping import Callback
from .track import RACING_SOLVER, Entered, LeastSquaresTrack, Track

__all__ = ["Entrant", "Race", "RaceOutcome", "race_of", "run_race"]

_PLACES = {
    "all": "the data",
    "sketch": "a sketch of the data",
    "samples": "some of the samples",
    "features": "some of the features",
}
_LOST_ON_SKETCH = 1e-3  # of ||V||^2 outside the orthant, up to which a plane may be nonnegative


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
    """What a race leaves to the solver: the winner's factors, or its state on V itself.

    `is_stopped` says that the callback has ended it, so that nothing is left to do.
    """

    initial: InitialFactors
    race: Race | None = None
    prospect: Prospect | None = None
    state: State | None = None
    is_stopped: bool = False


def run_race(
    V: DataMatrix,
    K: int,
    solver: Solver | None,
    rng: Generator = None,
    *,
    rank: int | str | None = "auto",
    remaining: Callable[[], float | None] = lambda: None,
    spectrum: Spectrum | None = None,
    callback: Callback | None = None,
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
    callback : callable, optional
        Called with an `Iteration` whenever an init has reached a lower error of V than all before,
        if the solver is to continue from there. On a sketch, whose errors are not those of V, V is
        read for it after every round; on some of the samples or features it is not called.
        Returning True ends the race.
    """
    require_data_matrix(V, nonzero=True)
    K, rng = checked_components(K, V), optional(generator, "rng", rng)
    optional(instance, "solver", solver, Solver, "get_solver")
    rank = checked_rank("rank", rank)
    function("remaining", remaining, takes=0)
    optional(function, "callback", callback, takes=1)
    spectrum = Spectrum.of(V, spectrum)
    if solver is None or min(V.shape) < K:
        return RaceOutcome(initialize(V, K, "cr1", solver, rng))
    if min(V.shape) == K:
        return RaceOutcome(_identity(V))
    arena = choose_arena(V, K, rank)
    is_seen = arena.name in ("all", "sketch") and solver is RACING_SOLVER
    watch = callback if is_seen else None
    track = LeastSquaresTrack(arena, K, solver, rng, spectrum, remaining, watch)
    best = _best_two(V, track, spectrum) if K == 2 else None
    if best is not None:
        return RaceOutcome(best, None, track.prospect if track.arena.V is V else None)
    if track.arena.V is V and (exact := track.begin()) is not None:
        return RaceOutcome(exact)
    winner = track.run()
    race = race_of(track, winner)
    if solver is not RACING_SOLVER:
        return RaceOutcome(track.initial(winner.number, V, solver), race)
    winner.run.normalize()
    if track.arena.name == "all":
        state = winner.run.state
        initial = InitialFactors(state.W, None, winner.name, error=winner.error)
        return RaceOutcome(initial, race, track.prospect, state, track.is_stopped)
    W, H = factors_on_all(V, track.arena.name, *winner.run.factors())
    known = track.prospect if track.arena.name == "sketch" else None
    return RaceOutcome(InitialFactors(W, H, winner.name), race, known, is_stopped=track.is_stopped)


def race_of(track: Track, winner: Entered) -> Race:
    """Return what a race was like that is over."""
    entrants = tuple(
        Entrant(one.name, one.error, len(one.run.log.elapsed), one.seconds) for one in track.entered
    )
    won_by, bound = track.entered.index(winner), track.prospect.lower_bound
    return Race(entrants, won_by, track.is_agreed, track.arena.name, bound)


def _identity(V: DataMatrix) -> InitialFactors:
    """Exact factors with as many components as there are features, or samples: W = I, or W = V."""
    F, N = V.shape
    W = np.eye(F, dtype=V.dtype) if F <= N else dense(V.columns(np.arange(N)))
    size = np.linalg.norm(W, axis=0)
    W = (W / np.where(size > 0, size, 1.0)).astype(V.dtype)  # lengths, or weights, are in H
    return InitialFactors(W, coefficients(V, W)[0], "identity")


def _best_two(V: DataMatrix, track: LeastSquaresTrack, spectrum: Spectrum) -> InitialFactors | None:
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

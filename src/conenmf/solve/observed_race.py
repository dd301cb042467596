"""A race of inits for small data of which entries are missing, or count more than others.

Inits see the data with their holes filled, and features in units of mean uncertainties; so they
know little of weights. Where iterations cost next to nothing, several compete by the weighted error
itself: after 20 iterations each, two continue, and the solver from the better one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from .arena import Arena
from .initial import Generator, InitialFactors
from .inits import initialize
from .methods import Method
from .prospect import Prospect
from .race import RaceOutcome, race_of
from .stopping import Callback
from .track import Plan, Track

__all__ = ["in_own_units", "race_of_observed", "suits_race"]

_INITS = ("cr1", "nndsvd", "spa", "random", "random", "random", "random", "random")
_PLAN = Plan(8, 2, (20, 40, 60))
_NO_PROSPECT = Prospect(0.0, 1.0)  # nothing is known of the lowest error
_MAX_ENTRIES = 1 << 16


def suits_race(V: DataMatrix, K: int, method: Method) -> bool:
    """Whether the data are small enough; the method continues from where a race has ended."""
    is_small = V.shape[0] * V.shape[1] <= _MAX_ENTRIES and K < min(V.shape)
    return is_small and method.H.solver.extrapolate and not method.is_penalised


def race_of_observed(
    V: DataMatrix,
    source: DataMatrix,
    roots: Array | None,
    K: int,
    method: Method,
    rng: Generator = None,
    *,
    remaining: Callable[[], float | None] = lambda: None,
    callback: Callback | None = None,
) -> RaceOutcome:
    """Let inits compete by the weighted error, and return where the solver continues.

    Parameters
    ----------
    V : DataMatrix (F, N)
        With `observed`.
    source : DataMatrix (F, N)
        What inits see.
    roots : array (F,), or None
        What its features are multiplied by.
    K : int
    method : Method
    rng : numpy.random.Generator, optional
        Without it the race is always the same.
    remaining, callback
        As in `run_race`.
    """
    arena = Arena("all", V, None, V)
    track = _ObservedTrack(arena, source, roots, K, rng, method, remaining, callback)
    winner = track.run()
    state = winner.run.state
    initial = InitialFactors(state.W, None, winner.name, error=winner.error)
    return RaceOutcome(initial, race_of(track, winner), None, state, track.is_stopped)


class _ObservedTrack(Track):
    inits = _INITS

    def __init__(
        self,
        arena: Arena,
        source: DataMatrix,
        roots: Array | None,
        K: int,
        rng: Generator,
        method: Method,
        remaining: Callable[[], float | None],
        callback: Callback | None,
    ) -> None:
        self.method, self._source, self._roots = method, source, roots
        super().__init__(arena, K, rng, _PLAN, _NO_PROSPECT, remaining, callback)

    def initial(self, number: int) -> InitialFactors:
        """Return the factors of an init in the units of V."""
        name = self.inits[number]
        W = initialize(self._source, self.K, name, None, self.rng(number)).W
        W = in_own_units(W, self._roots)
        return initialize(self.arena.V, self.K, W, self.method.H.solver)._replace(name=name)


def in_own_units(W: Array, roots: Array | None) -> Array:
    """Return W (F, K) of features that were multiplied by numbers as those of the features."""
    if roots is None:
        return W
    return (W / np.where(roots > 0, roots, np.inf)[:, None]).astype(W.dtype)

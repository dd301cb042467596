"""Inits for counts: the factors with which the Poisson loss begins, and their race.

Counts of a sample grow with its total, which says nothing about its composition. So cones, singular
vectors and other inits are computed from samples that are scaled to a sum of one. Columns of W then
are compositions as well; a little of the mean composition is added to each, since a rate must not
be zero where a count is not. H begins with equal shares of all components.

`init="auto"` lets some of them compete, as in `race`, by the divergence that is reached from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.prepare import to_sums
from ..data.resample import Seed, new_seed, uniform_rows
from ..data.together import sweep_together
from ..data.views import times_samples
from ..linalg.svd import Spectrum
from .inits import Generator, Init, InitialFactors, initialize, users_own
from .losses.poisson import Poisson, margins, regressions
from .methods import Method
from .race import Arena, Plan, Prospect, RaceOutcome, Track, part_of, race_of
from .run import Callback

__all__ = [
    "initialize_counts",
    "initialize_others",
    "race_of_counts",
    "unit_sums",
    "warmed_up",
    "warmed_up_together",
    "with_all_features",
]

_LIFTED_SHARE = 0.01  # of each column of W, that is the mean composition
_WARMING_ITERATIONS = 10
_INITS = ("nndsvd", "cr1-robust", "random", "random", "random", "random")
_INITS_ON_SMALL = ("random", "nndsvd", "random", "cr1-robust", "random", "random")
_PLAN = Plan(4, 2, (10, 30, 60))
_PLAN_ON_MODERATE = Plan(6, 3, (20, 60, 100))
_MAX_SMALL_ENTRIES = 1 << 16  # up to which singular vectors take longer than a random init
_MAX_MODERATE_ENTRIES = 1 << 18
_MIN_PART_ENTRIES = 1 << 22  # of V, from which on inits compete on some of the samples
_NO_PROSPECT = Prospect(0.0, 1.0)


def initialize_counts(
    V: DataMatrix, K: int, init: Init, rng: Generator = None, *, spectrum: Spectrum | None = None
) -> InitialFactors:
    """Return the factors with which counts begin.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        As in `initialize`. Your own factors are used as they are, but for features that have
        counts and no component; without H, the best one for W is.
    rng : numpy.random.Generator, optional
    spectrum : Spectrum, optional
        That of the samples scaled to a sum of one.
    """
    totals, mean = margins(V), _mean_composition(V)
    if not isinstance(init, str):
        W, H, name, *_ = users_own(V, K, init, rng)
        W = _with_counts(W, mean)
        H = regressions(V, W)[0] if H is None else H
    elif K == 1:
        W, H, name = mean[:, None], None, "margins"
    elif init == "random":
        rng = np.random.default_rng(rng)
        W, name = rng.random((V.shape[0], K)) * mean[:, None], "random"
        Ht, _ = V.map(_random_shares, totals.samples, K=K, seed=new_seed(rng))
        H = Ht.T
    else:
        scaled = unit_sums(V) if spectrum is None else spectrum.V
        W, _, name, *_ = initialize(scaled, K, init, None, rng, spectrum=spectrum)
        W, H = _lifted(W, mean), None
    W = np.ascontiguousarray(W, V.dtype)
    if H is None:
        H = V.map(_equal_shares, totals.samples, sums=W.sum(axis=0), dtype=V.dtype)[0].T
    return InitialFactors(W, H, name, error=np.inf)


def unit_sums(V: DataMatrix) -> DataMatrix:
    """Return a view of V with samples scaled to a sum of one, times the roots of their weights."""
    if V.unweighed is None or V.unweighed.roots is None:
        return to_sums(V, 1.0)
    return times_samples(to_sums(V.unweighed.V, 1.0), V.unweighed.roots)


def race_of_counts(
    V: DataMatrix,
    K: int,
    method: Method | None,
    rng: Generator = None,
    *,
    remaining: Callable[[], float | None] = lambda: None,
    callback: Callback | None = None,
) -> RaceOutcome:
    """Let inits compete by the divergence they lead to, and return where the solver continues.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    method : Method or None
        Without one there is no race.
    rng : numpy.random.Generator, optional
        Without it the race is always the same.
    remaining : callable, optional
        Returns the seconds that are left, or None. The race takes at most half of them.
    callback : callable, optional
        As in `run_race`.
    """
    if method is None or K == 1:
        return RaceOutcome(initialize_counts(V, K, "nndsvd" if K < min(V.shape) else "random", rng))
    name, part = part_of(V, K) if V.n_entries > _MIN_PART_ENTRIES else ("all", V)
    if name == "features":
        name, part = "all", V
    is_seen = part is V and method.H.solver.extrapolate
    arena = Arena(name, part, None, part)
    track = _CountTrack(arena, K, rng, method, remaining, callback if is_seen else None)
    winner = track.run()
    race = race_of(track, winner)
    if not method.H.solver.extrapolate:
        initial = initialize_counts(V, K, winner.name, track.rng(winner.number))
        return RaceOutcome(initial, race)
    if part is not V:
        initial = initialize_counts(V, K, winner.run.factors()[0])
        return RaceOutcome(initial._replace(name=winner.name), race)
    state = winner.run.state
    initial = InitialFactors(state.W, None, winner.name, error=winner.error)
    return RaceOutcome(initial, race, None, state, track.is_stopped)


class _CountTrack(Track):
    """A race for counts: on all of the data or some of the samples, without a referee."""

    def __init__(
        self,
        arena: Arena,
        K: int,
        rng: Generator,
        method: Method,
        remaining: Callable[[], float | None],
        callback: Callback | None,
    ) -> None:
        self.method = method
        self.spectrum = Spectrum(unit_sums(arena.V))
        n_entries = arena.V.n_entries
        self.inits = _INITS_ON_SMALL if n_entries <= _MAX_SMALL_ENTRIES else _INITS
        plan = _PLAN_ON_MODERATE if n_entries <= _MAX_MODERATE_ENTRIES else _PLAN
        super().__init__(arena, K, rng, plan, _NO_PROSPECT, remaining, callback)

    def initial(self, number: int) -> InitialFactors:
        """Return the factors of an init, after a few multiplicative steps."""
        V, name = self.arena.V, self.inits[number]
        initial = initialize_counts(V, self.K, name, self.rng(number), spectrum=self.spectrum)
        return warmed_up(V, initial) if self.method.H.solver.extrapolate else initial


def initialize_others(
    V: DataMatrix, fixed: Array, W: Array, H: Aligned | None = None
) -> InitialFactors:
    """Return the factors with which counts begin where some components are given.

    Parameters
    ----------
    V : DataMatrix (F, N)
    fixed : array (F, n)
        Those that are given.
    W : array (F, K - n)
        The others. Features that have counts but no component get a little of these.
    H : array (K, N), optional
        By default, equal shares.
    """
    totals, W = margins(V), np.asarray(W, np.float64)
    if W.shape[1]:
        mean = totals.features / totals.total
        lost = ~fixed.any(axis=1) & ~W.any(axis=1) & (mean > 0)
        W = np.where(lost[:, None], _LIFTED_SHARE * mean[:, None] * W.sum(axis=0), W)
    W = np.ascontiguousarray(np.hstack([fixed, W]), V.dtype)
    if H is None:
        H = V.map(_equal_shares, totals.samples, sums=W.sum(axis=0), dtype=V.dtype)[0].T
    return InitialFactors(W, H, "fixed", error=np.inf)


def warmed_up(V: DataMatrix, initial: InitialFactors, n_fixed: int = 0) -> InitialFactors:
    """Return factors after a few multiplicative steps; the first columns of W may be given.

    They are short: Newton's steps from far away often end in a worse minimum. On mutation
    catalogues the divergence from random inits was 3 % to 7 % higher without them.
    """
    return warmed_up_together(V, [V], [initial], n_fixed)[0]


def warmed_up_together(
    V: DataMatrix,
    views: Sequence[DataMatrix],
    initials: Sequence[InitialFactors],
    n_fixed: int = 0,
) -> list[InitialFactors]:
    """Return what `warmed_up` does for each, a view of V or V itself, in the same passes."""
    are_same = all(view is V for view in views)
    base = V.as_one_block() if are_same else V  # if it is small: these steps take no time
    losses = [Poisson(base if view is V else view, rescale=False) for view in views]
    factors = [(initial.W, initial.H.T) for initial in initials if initial.H is not None]
    with base.own_threads():
        for _ in range(_WARMING_ITERATIONS):
            parts = [loss.multiplying(*pair) for loss, pair in zip(losses, factors, strict=True)]
            outcomes = sweep_together(base, parts)
            factors = [
                (loss.multiplied(part, W, Ht, sums, n_fixed), Ht)
                for loss, part, (W, _), (Ht, sums) in zip(
                    losses, parts, factors, outcomes, strict=True
                )
            ]
    return [
        initial._replace(W=W, H=Ht.T) for initial, (W, Ht) in zip(initials, factors, strict=True)
    ]


def _mean_composition(V: DataMatrix) -> Array:
    totals = margins(V)
    return totals.features / totals.total


def _lifted(W: Array, mean: Array) -> Array:
    """Columns of sum one, with a share of the mean composition."""
    sums = W.sum(axis=0, dtype=np.float64)
    columns = np.where(sums > 0, W / np.where(sums > 0, sums, 1.0), mean[:, None])
    lifted: Array = (1 - _LIFTED_SHARE) * columns + _LIFTED_SHARE * mean[:, None]
    return lifted


def with_all_features(V: DataMatrix, W: Array) -> Array:
    """Return W (F, K) with a little of every component in features that have counts and none."""
    return np.ascontiguousarray(_with_counts(W, _mean_composition(V)), V.dtype)


def _with_counts(W: Array, mean: Array) -> Array:
    """Give a little of every component to features that have counts but no component."""
    lost = (W.sum(axis=1) == 0) & (mean > 0)
    if lost.any():
        W = W.astype(np.float64)
        W[lost] = _LIFTED_SHARE * mean[lost, None] * W.sum(axis=0)
    return W


def _equal_shares(
    index: range, totals: Array, *, sums: Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    alive = sums > 0
    shares = np.where(alive, 1.0 / np.where(alive, sums, 1.0), 0.0) / max(alive.sum(), 1)
    return (totals[:, None] * shares).astype(dtype), None


def _random_shares(index: range, totals: Array, *, K: int, seed: Seed) -> tuple[Array, None]:
    return uniform_rows(index, K, seed) * (totals[:, None] * (2.0 / K)), None

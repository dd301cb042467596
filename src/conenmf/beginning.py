"""Where the solver of a fit begins: after the choice of K and the init, or from a checkpoint.

With known components, the others are started from what these leave (`solve.fixed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .data.blocks import Array, exact
from .data.known import filled
from .data.matrix import Aligned, DataMatrix
from .data.views import times_features
from .scale.checkpoint import CheckpointedRun
from .solve.coefficients import what_is_left
from .solve.count_inits import initialize_counts, initialize_others, race_of_counts, warmed_up
from .solve.inits import Init, initialize
from .solve.losses.poisson import balanced, regressions
from .solve.methods import Method
from .solve.race import (
    Prospect,
    Race,
    RaceOutcome,
    in_own_units,
    race_of_observed,
    run_race,
    suits_race,
)
from .solve.run import Callback, Log, Saved, Stopping
from .solve.terms import Terms
from .stages import Spent, Stages

__all__ = ["Begun", "begin_counts", "begin_counts_with_terms", "begin_with_terms"]


@dataclass
class Begun:
    """Where the solver begins: at the factors of an init, or where a saved run was.

    Attributes
    ----------
    W : array (F, K)
    K_decided_by, init_used : str
        As in `Factorization`.
    sketch_rank : int or None
        The rank of the sketch to iterate on, if any.
    sketch_if_falling : bool
        Iterate on a sketch only if the error is still falling.
    H : array (K, N) or None
    error : float
        The relative error of W with its best H is at most this.
    race : Race or None
    prospect : Prospect or None
        What the singular values say about the error; None as long as it is not needed.
    saved : Saved or None
        What a checkpoint kept of the run, if it is resumed, or where the race has brought it.
    spent : Spent
        What the choice of K and the init took.
    is_stopped : bool
        Whether the callback has ended the fit.
    """

    W: Array
    K_decided_by: str
    init_used: str
    sketch_rank: int | None
    sketch_if_falling: bool
    H: Aligned | None = None
    error: float = 1.0
    race: Race | None = None
    prospect: Prospect | None = None
    saved: Saved | None = None
    spent: Spent = field(default_factory=Spent)
    is_stopped: bool = False

    @classmethod
    def after(
        cls,
        outcome: RaceOutcome,
        K_decided_by: str,
        spent: Spent,
        sketch_rank: int | None = None,
        *,
        sketch_if_falling: bool = False,
    ) -> Begun:
        """Begin where a race, or a single init, has ended."""
        initial, state = outcome.initial, outcome.state
        return cls(
            initial.W,
            K_decided_by,
            initial.name,
            sketch_rank,
            sketch_if_falling,
            initial.H,
            initial.error,
            outcome.race,
            outcome.prospect,
            None if state is None else Saved(state, Log()),
            spent,
            outcome.is_stopped,
        )

    @property
    def elapsed(self) -> float:
        """The seconds that the run has taken."""
        return 0.0 if self.saved is None else self.saved.log.last_elapsed

    @property
    def is_exact(self) -> bool:
        """Whether the W of a race leaves nothing to do."""
        return self.saved is None and self.H is None and self.error <= Stopping.exact

    @property
    def proven(self) -> float:
        """A lower bound of the error that is certain, 0 if none is known."""
        return 0.0 if self.prospect is None else self.prospect.proven

    @classmethod
    def resume(cls, run: CheckpointedRun | None, max_iter: int, stages: Stages) -> Begun | None:
        """Begin where a saved run was, or return None if nothing was saved."""
        saved = None if run is None else Saved.of_parts(run.load(max_iter))
        if run is None or saved is None:
            return None
        stages.seconds |= run.facts["seconds"]
        begun = run.facts["begun"]
        W = saved.state.W if run.initial_W is None else run.initial_W
        race, spent = Race.of_plain(begun["race"]), Spent(*begun.get("spent", ()))
        return cls(W, saved=saved, **begun | {"race": race, "spent": spent})

    def decided(self) -> dict[str, Any]:
        """What a result says about the beginning."""
        names = ("K_decided_by", "init_used", "race", "prospect")
        return {name: getattr(self, name) for name in names}

    def decisions(self) -> dict[str, Any]:
        """What a resumed run takes over, in plain values."""
        names = ("K_decided_by", "init_used", "sketch_rank", "sketch_if_falling", "error")
        race = None if self.race is None else self.race.plain()
        return {name: getattr(self, name) for name in names} | {"race": race, "spent": self.spent}

    def remember(self, run: CheckpointedRun | None, stages: Stages) -> None:
        """Leave to a checkpointed run what it is to save, unless it has been resumed."""
        if run is not None and not run.facts:
            run.facts = {"begun": self.decisions(), "seconds": dict(stages.seconds)}
            run.initial_W = self.W

    def take_H(self) -> Aligned | None:
        """Return H and forget it: the loop has a copy, and one may be all that fits in memory."""
        H, self.H = self.H, None
        return H


def begin_with_terms(
    V: DataMatrix,
    K: int,
    init: Init,
    method: Method | None,
    rng: np.random.Generator | None,
    terms: Terms,
    stages: Stages,
    callback: Callback | None,
) -> Begun:
    """Make initial factors with the given components, and in the scale that penalties ask for."""
    solver = None if method is None else method.H.solver
    fixed, outcome = terms.fixed, None
    source, count, roots = filled(V), K, terms.roots_of_features
    if roots is not None and (isinstance(init, str) or callable(init)):
        source = times_features(source, roots.astype(V.dtype))
    else:
        roots = None
    is_race = isinstance(init, str) and init == "auto"
    if is_race and fixed is None and terms.has_holes and solver is not None:
        own = Method.of(terms.method(V, solver))
        if suits_race(V, K, own):
            timing: dict[str, Any] = {"remaining": stages.remaining, "callback": callback}
            return Begun.after(
                race_of_observed(V, source, roots, K, own, rng, **timing), "user", Spent()
            )
    if fixed is not None and isinstance(init, str):
        given = fixed.W if roots is None else fixed.W * roots[:, None]
        source, count = what_is_left(source, given), K - fixed.count
    if count and source.nonzero and is_race:
        outcome = run_race(
            source,
            count,
            solver,
            rng,
            rank=None,
            remaining=stages.remaining,
            callback=callback,
        )
    elif count and source.nonzero:
        outcome = RaceOutcome(initialize(source, count, init, None, rng))
    if outcome is not None:
        W = in_own_units(outcome.initial.W, roots)
    else:  # all are given, or they explain all of V
        W = np.random.default_rng(rng).random((V.shape[0], count)).astype(V.dtype)
    if fixed is not None:
        W = np.hstack([fixed.W.astype(V.dtype), W[:, count - (K - fixed.count) :]])
    is_given = W.shape[1] == terms.n_fixed
    initial = initialize(V, K, W, None if is_given else solver)
    W, H = terms.scaled(initial.W, initial.H)
    name = "fixed" if outcome is None else outcome.initial.name
    begun = Begun(W, "user", name, None, False, H)
    if outcome is not None:
        begun.race, begun.is_stopped = outcome.race, outcome.is_stopped
    return begun


def begin_counts(
    V: DataMatrix,
    K: int,
    init: Init,
    method: Method | None,
    rng: np.random.Generator | None,
    stages: Stages,
    callback: Callback | None,
) -> RaceOutcome:
    """Make initial factors of counts."""
    if isinstance(init, str) and init == "auto":
        return race_of_counts(V, K, method, rng, remaining=stages.remaining, callback=callback)
    initial = initialize_counts(V, K, init, rng)
    if isinstance(init, str) and method is not None and method.H.solver.extrapolate:
        initial = warmed_up(V, initial)
    return RaceOutcome(initial)


def begin_counts_with_terms(
    V: DataMatrix,
    K: int,
    init: Init,
    method: Method | None,
    rng: np.random.Generator | None,
    terms: Terms,
    stages: Stages,
    callback: Callback | None,
) -> Begun:
    """Make initial factors of counts, of which some are missing, or some components given."""
    fixed, outcome = terms.fixed, None
    source, count = filled(V), K
    if fixed is not None and isinstance(init, str):
        source = what_is_left(source, fixed.W, regressions(source, fixed.W)[0])
        count = K - fixed.count
    if count and source.nonzero:
        outcome = begin_counts(source, count, init, method, rng, stages, callback)
        W = outcome.initial.W
    else:  # all are given, or they explain all of V
        W = np.random.default_rng(rng).random((V.shape[0], count))
    given = np.empty((V.shape[0], 0)) if fixed is None else fixed.W
    is_own = isinstance(init, tuple)
    H = outcome.initial.H if is_own and outcome is not None else None
    initial = initialize_others(V, given, W[:, count - (K - terms.n_fixed) :], H)
    is_extrapolated = method is not None and method.H.solver.extrapolate
    if isinstance(init, str) and is_extrapolated and K > terms.n_fixed:
        initial = warmed_up(V, initial, terms.n_fixed)
    begun = Begun(initial.W, "user", "fixed", None, False, initial.H)
    if outcome is not None:
        begun.init_used = outcome.initial.name
        begun.race, begun.is_stopped = outcome.race, outcome.is_stopped
    if not terms.penalties.are_none:
        _balance(V, begun, terms)
    return begun


def _balance(V: DataMatrix, begun: Begun, terms: Terms) -> None:
    """Give the components the scale with which penalties are smallest; that of given ones stays."""
    assert begun.H is not None
    ((masses, squares),) = V.map(_row_sums, begun.H.T)
    sizes = balanced(begun.W, masses, squares, terms.penalties)
    sizes[: terms.n_fixed] = 1.0
    begun.W = (begun.W * sizes).astype(begun.W.dtype)
    begun.H = (begun.H.T / sizes.astype(begun.W.dtype)).T


def _row_sums(index: range, H: Array) -> tuple[tuple[Array, Array]]:
    rows = exact(H)
    return ((rows.sum(axis=0), (rows**2).sum(axis=0)),)

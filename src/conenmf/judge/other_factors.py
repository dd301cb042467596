"""Looks for other factors that are as good: each component is moved, and what was found is checked.

Exact turns (`uniqueness`) come first; for components that they do not move far enough, others are
tried at errors of up to 1.001 times: the component is put elsewhere (`moves`) and held there, and
the others follow it (`refits`). The error of all is computed on V with the exact coefficients, and
a component is moved by the angle to the nearest one of the other factors.

There are two searches. The short one costs about as much as a fit: about `max_iter` iterations in
all, two places for each component, which share passes over V. It may miss what there is, so what it
does not find stays undecided. The thorough one tries 28 directions for each component, and the
others are refitted until they converge; from the best half of these places the component slides on,
at 5 degrees or more from where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import factor, flag, instance, integer
from ..data.blocks import Array, Block, exact, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import evenly_spaced
from ..data.validate import check_factors, require_data_matrix
from ..solve.goals import checked_loss
from .metrics import match_components, unit_columns
from .moves import Move, all_moves, proposed_moves, slide
from .refits import Referee, Refit, refit
from .uniqueness import (
    VISIBLE_ANGLE,
    Freedom,
    between,
    component_freedom,
    other_components,
    places_of_turns,
    turn_sum,
)
from .verdicts import MAX_ERROR_RATIO, Uniqueness

__all__ = ["exact_uniqueness", "uniqueness"]

_MAX_SAMPLES = 4000  # by which moves are proposed
_MAX_TRIALS = 2  # of each component
_MAX_COST = 300.0  # of a move, in units of what is allowed: a refit seldom brings down more
_TRIAL_ITERATIONS = 3, 12  # of a trial, at least and at most
_DIRECTIONS = 28  # of each component, in a thorough search
_LEADING = 4  # directions of the residual, which are among them, each with both signs
_THOROUGH: Any = {"max_iter": 500, "tol": 1e-5}  # of each trial
_SLIDING, _MAX_SLIDES = 14, 50  # the trials of each component that slide, and how often they may
_SLIDE_ANGLE = math.radians(5.01)  # from where the component was
_HOPEFUL_RATIO = 1.0005  # of errors to the limit, that the exact coefficients may bring down
_ROUNDING = 1e3  # in units of the precision of V, that errors may differ by
_MIN_TURN = math.radians(1)  # of an exact turn that is checked
_MAX_KEPT_BYTES = 1 << 27  # of other factors


def exact_uniqueness(
    W: npt.ArrayLike, freedom: Freedom, *, n_given: int = 0, sum_to_one: bool = False
) -> Uniqueness:
    """Return what is known without reading V, from exact turns and proofs alone.

    Parameters
    ----------
    W : array (F, K)
    freedom : Freedom
        That of these factors.
    n_given : int
        The first components were given, and are not judged.
    sum_to_one : bool
        The coefficients of each sample sum to one: turns that this rules out do not count.
    """
    instance("freedom", freedom, Freedom, "component_freedom(V, W, H)")
    W = exact(factor("W", W, ("F", freedom.angles.size)))
    n_given = integer("n_given", n_given, at_least=0, at_most=W.shape[1])
    found, sum_to_one = _Found(W, freedom, n_given), flag("sum_to_one", sum_to_one)
    for l in range(n_given, W.shape[1]):
        if sum_to_one and (freedom.spare[l] or turn_sum(freedom, W, l) <= 0):
            continue
        found.widen_by_turns(l)
        found.angles[l] = freedom.angles[l]
    return found.uniqueness(was_searched=False, passes=0.0)


def uniqueness(
    V: DataMatrix,
    W: npt.ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    n_given: int = 0,
    max_iter: int = 200,
    thorough: bool = False,
    sum_to_one: bool = False,
) -> Uniqueness:
    """Say of each component of V ~ W H whether it is unique, can be moved, or neither is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        That of the fit.
    n_given : int
        The first components were given (`fixed`): they stay, and are not judged.
    max_iter : int
        About how many iterations the search takes in all; each is one of a fit. With 0, exact turns
        and proofs alone are sought.
    thorough : bool
        Search until it can be said that a component was not found to move: 28 directions for each,
        the other components refitted until they converge. It takes up to tens of
        times the CPU time of the fit. Fits that are exact but for rounding are not searched.
    sum_to_one : bool
        The coefficients of each sample sum to one, here and in other factors. Then exact turns and
        proofs alone are sought.

    Examples
    --------
    No sample is pure: the components can be moved, here without changing W H.

    >>> from conenmf import from_columns
    >>> W, H = np.eye(2), np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    >>> found = uniqueness(from_columns(W @ H), W, H)
    >>> found.verdicts
    ('can be moved', 'can be moved')
    >>> found.in_words(0)
    'can be moved by 18° towards component 1, at the same error'
    """
    require_data_matrix(V, nonzero=True, holes=True)
    loss, max_iter = checked_loss(loss), integer("max_iter", max_iter, at_least=0)
    sum_to_one, thorough = flag("sum_to_one", sum_to_one), flag("thorough", thorough)
    if sum_to_one or V.observed is not None:
        max_iter = 0  # V has zeros where entries are missing
    freedom = component_freedom(V, W, H)
    W, Ht = check_factors(V, W, H)
    n_given = integer("n_given", n_given, at_least=0, at_most=W.shape[1])
    passes = V.passes_here
    with V.own_threads():
        search = _Search(V, W, Ht, freedom, loss, n_given, sum_to_one)
        search.exact_turns()
        if max_iter and W.shape[1] > 1:
            search.refits(max_iter)
            if thorough:
                search.everywhere()
    return search.found.uniqueness(was_searched=max_iter > 0, passes=V.passes_here - passes)


class _Found:
    """The factors that were found so far, and what they say about each component."""

    def __init__(self, W: Array, freedom: Freedom, n_given: int) -> None:
        self.W, self.freedom, self.sums = W, freedom, W.sum(axis=0)
        self.given = np.arange(W.shape[1]) < n_given
        self.angles, self.ratios = np.zeros(W.shape[1]), np.ones(W.shape[1])
        self.lower, self.upper = W.copy(), W.copy()
        self.directions = np.zeros(W.shape[1], dtype=np.int64)
        self.others: dict[int, Array] = {}

    def widen(self, l: int, w: Array) -> None:
        """Take another place of a component into its band."""
        total = float(w.sum())
        if total > 0:
            w = w * (self.sums[l] / total)
            np.minimum(self.lower[:, l], w, out=self.lower[:, l])
            np.maximum(self.upper[:, l], w, out=self.upper[:, l])

    def widen_by_turns(self, l: int) -> None:
        """Take all exact turns of a component into its band; a spare one may be anything."""
        if self.freedom.spare[l]:
            self.lower[:, l], self.upper[:, l] = 0, self.sums[l]
        for w in places_of_turns(self.freedom, self.W, l):
            self.widen(l, w)

    def add(self, W: Array, ratio: float) -> None:
        """Take other components that were checked; they may move more than one.

        A component that the others have too is not moved, whichever it is paired with; a spare one
        is, since another is then the same.
        """
        order, _ = match_components(self.W, W)
        U, U_other = unit_columns(self.W), unit_columns(W)
        angles = between(U, U_other[:, order])
        for l in map(int, np.flatnonzero(~self.given & ~self.freedom.spare)):
            to_each = between(U[:, l, None], U_other)
            order[l] = to_each.argmin()
            angles[l] = to_each[order[l]]
        for l in map(int, np.flatnonzero(~self.given)):
            self.widen(l, W[:, order[l]])
            if angles[l] > self.angles[l] and W[:, order[l]].any():
                self.angles[l], self.ratios[l] = angles[l], ratio
                self.others[l] = W

    def pending(self) -> list[int]:
        """The components that were not moved far enough to be seen."""
        pending: list[int] = np.flatnonzero(~self.given & (self.angles < VISIBLE_ANGLE)).tolist()
        return pending

    def uniqueness(self, *, was_searched: bool, passes: float) -> Uniqueness:
        """Return the verdicts."""
        kept, held = {}, 0
        for l, W in self.others.items():
            held += W.nbytes
            if self.angles[l] >= VISIBLE_ANGLE and held <= _MAX_KEPT_BYTES:
                kept[l] = W
        facts = (self.freedom, self.angles, self.ratios, self.lower, self.upper, self.given)
        return Uniqueness(*facts, was_searched, passes, kept, self.directions)


class _Search:
    """Looks for other factors, and has each checked on V."""

    def __init__(
        self,
        V: DataMatrix,
        W: Array,
        Ht: Aligned,
        freedom: Freedom,
        loss: str,
        n_given: int,
        sum_to_one: bool,
    ) -> None:
        self.V, self.W, self.Ht, self.loss, self.n_given = V, W, Ht, loss, n_given
        self.found, self.sum_to_one = _Found(W, freedom, n_given), sum_to_one
        self.referee = Referee(V, loss, sum_to_one=sum_to_one)
        self.error = self.referee.error(W)
        self.rounding = _ROUNDING * float(np.finfo(V.dtype).eps)
        self.limit = MAX_ERROR_RATIO * self.error + self.rounding

    def check(self, end: Refit) -> bool:
        """Check where a trial ended, unless its error is far too large."""
        return end.error <= _HOPEFUL_RATIO * self.limit and self.check_components(end.W)

    def check_components(self, W: Array) -> bool:
        """Compute the error of other components on V, and take them if it is low enough."""
        error = self.referee.error(W)
        if error <= self.limit:
            ratio = error / self.error if self.error > self.rounding else 1.0
            self.found.add(W, ratio)
        return error <= self.limit

    def exact_turns(self) -> None:
        """Check the farthest turn of each component; all turns are in the band if it holds."""
        freedom = self.found.freedom
        for l in range(self.n_given, self.W.shape[1]):
            if freedom.angles[l] < _MIN_TURN:
                continue
            others = other_components(freedom, self.V, self.W, self.Ht, l)
            if self.sum_to_one and not freedom.spare[l]:  # W H has the same sums with this scale
                total = turn_sum(freedom, self.W, l)
                scale = np.where(np.arange(self.W.shape[1]) == l, total, 1)
                others = iter([W / scale for W in others] if total > 0 else [])
            if any(self.check_components(W) for W in others):
                self.found.widen_by_turns(l)

    def refits(self, max_iter: int) -> None:
        """Put the other components elsewhere, and let the rest follow."""
        proposed, limits = self.proposed(), _TRIAL_ITERATIONS
        for trial in range(_MAX_TRIALS):
            pending = set(self.found.pending())
            moves = [
                own[trial]
                for own in proposed
                if len(own) > trial and own[trial].component in pending
            ]
            if not moves or max_iter <= 0:
                return
            each = int(np.clip(max_iter // len(moves), *limits))
            options: Any = {"loss": self.loss, "n_given": self.n_given, "max_iter": each}
            for end in refit(self.V, self.W, self.Ht, moves, limit=self.limit, **options):
                max_iter -= end.n_iter
                self.check(end)

    def everywhere(self) -> None:
        """Try many directions for every component that was not moved, until the rest converges."""
        if self.error**2 < self.rounding:  # 0.1 % of it is less than rounding
            return
        rng, K = np.random.default_rng(0), self.W.shape[1]
        beyond = _leading_residual(self.V, self.W, self.Ht, rng)
        proposed, most = self.proposed(math.inf), _DIRECTIONS - 2 * _LEADING
        moves = [
            all_moves(self.W, proposed[l][:most], l, beyond, _DIRECTIONS, rng) for l in range(K)
        ]
        ends: list[list[Refit]] = [[] for _ in range(K)]
        for trial in range(_DIRECTIONS):
            now = [moves[l][trial] for l in self.found.pending() if len(moves[l]) > trial]
            for move, end in zip(now, self.converged(self.W, self.Ht, now), strict=True):
                ends[move.component].append(end)
                self.check(end)
        for l in self.found.pending():
            converged = [end for end in ends[l] if end.n_iter < _THOROUGH["max_iter"]]
            self.found.directions[l] = len(converged) if len(converged) == _DIRECTIONS else 0
            for end in sorted(ends[l], key=_by_error)[:_SLIDING]:
                if self.found.angles[l] < VISIBLE_ANGLE:
                    self.slide(l, end)

    def slide(self, l: int, end: Refit) -> None:
        """Let the component go where the error is less, as long as that is 5 degrees away."""
        step = 1.0
        for _ in range(_MAX_SLIDES):
            Ht = self.referee.coefficients(end.W).T
            (VH, HH) = self.V.sweep(_cross_and_gram, Ht)[0]
            move = slide(end.W, VH, HH, l, self.W[:, l], _SLIDE_ANGLE, step)
            if move is None:
                return
            (new,) = self.converged(end.W, Ht, [move])
            fall = end.error - new.error
            if self.check(new) or (step == 1 and new.error - self.limit > _MAX_SLIDES * fall):
                return
            end, step = (new, 2 * step) if fall > 0 else (end, 1.0)

    def converged(self, W: Array, Ht: Aligned, moves: list[Move]) -> Iterator[Refit]:
        """Yield where moves end, the others refitted until they converge."""
        options: Any = {"loss": self.loss, "n_given": self.n_given, "limit": self.limit}
        return refit(self.V, W, Ht, moves, **options, **_THOROUGH)

    def proposed(self, max_cost: float = _MAX_COST) -> list[list[Move]]:
        """Moves for each component: the one that goes farthest, and others, the cheapest first."""
        N = self.V.shape[1]
        samples = evenly_spaced(N, _MAX_SAMPLES)
        H = np.asarray(self.Ht[samples], dtype=np.float64).T
        allowed = self.referee.allowed(self.error, self.limit) * samples.size / N
        counts = self.loss == "poisson"
        proposed = proposed_moves(self.W, H, self.found.freedom.exchange, allowed, counts=counts)
        return [[move for move in own if move.cost <= max_cost] for own in proposed]


def _by_error(end: Refit) -> float:
    return end.error


def _leading_residual(V: DataMatrix, W: Array, Ht: Aligned, rng: np.random.Generator) -> Array:
    """Return leading left singular vectors (F, r) of V - W H, roughly; 6 passes."""
    (VH, HH) = V.sweep(_cross_and_gram, Ht)[0]
    X = rng.standard_normal((len(W), min(_LEADING, len(W))))
    for _ in range(5):
        WX = W.T @ X
        X = exact(V.square_times(X)) - VH @ WX - W @ (VH.T @ X) + W @ (HH @ WX)
        X = np.linalg.qr(X)[0]
    return X


def _cross_and_gram(block: Block, H: Array) -> tuple[tuple[Array, Array]]:
    H = exact(H)
    return ((exact(weighted_sums(exact(block), H)), H.T @ H),)

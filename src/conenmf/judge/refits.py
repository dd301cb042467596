"""Refits: a component is put elsewhere and held there, while the others follow it.

Every trial is a run of the loop with one component more that is given (`solve.fixed`); it ends as
soon as its error is low enough. Trials that fit into memory share every pass over V. Here is also
the referee that computes the error of other components, with their exact coefficients, on V.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from ..solve.constraints import Penalties
from ..solve.goals import LOSSES, goal_of
from ..solve.methods import Method, without_floor
from ..solve.run import Iteration, Run, Solution, Stopping, iterate
from ..solve.terms import Terms
from .moves import Move, moved_component

__all__ = ["Referee", "Refit", "refit"]

_MAX_HELD_NUMBERS = 1 << 26  # in the factors of runs that share passes
_COPIES = 4  # of them, that a run has
_MAX_FALLS = 100  # of the error as in the last five iterations, before it is low enough


class Referee:
    """The error of components on V, with their best coefficients."""

    def __init__(self, V: DataMatrix, loss: str, *, sum_to_one: bool = False) -> None:
        self.goal = Terms(observed=V.observed, loss=loss).goal(V, LOSSES[loss])
        self.how = {"penalties": Penalties(sum_to_one=True)} if sum_to_one else {}

    def error(self, W: Array) -> float:
        """Return the relative error of W with its best H; one pass."""
        W = np.ascontiguousarray(W, self.goal.V.dtype)
        end = self.goal.finish(W, n_first=W.shape[1], **self.how)
        return self.goal.relative_error(end.squared_error)

    def coefficients(self, W: Array) -> Aligned:
        """Return the best H (K, N) for W; one pass."""
        W = np.ascontiguousarray(W, self.goal.V.dtype)
        return self.goal.finish(W, n_first=W.shape[1], **self.how).H

    def allowed(self, error: float, limit: float) -> float:
        """Return by how much the loss may grow between two relative errors."""
        power = 1 if self.goal.name == "poisson" else 2  # of least squares it is a root
        return (limit**power - error**power) / self.goal.relative_error(1.0) ** power


class Refit(NamedTuple):
    """Where a trial ended: W (F, K), its relative error, and the iterations that it took."""

    W: Array
    error: float
    n_iter: int


def refit(
    V: DataMatrix,
    W: Array,
    Ht: Aligned,
    moves: list[Move],
    *,
    loss: str,
    n_given: int,
    limit: float,
    max_iter: int,
    tol: float = 1e-4,
) -> Iterator[Refit]:
    """Yield where each move ended: its component is where it was put, and the others followed it.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    Ht : array (N, K)
    moves : list of Move
    loss : str
    n_given : int
        The first components are given, and stay.
    limit : float
        A trial ends when its relative error is below.
    max_iter : int
        Of each.
    tol : float
        A trial ends when its error falls by less than this share in five iterations.
    """
    at_once = max(1, _MAX_HELD_NUMBERS // (_COPIES * sum(V.shape) * W.shape[1]))
    for first in range(0, len(moves), at_once):
        trials = [_Trial(V, W, move, loss, n_given) for move in moves[first : first + at_once]]
        runs = [trial.run(Ht, limit, Stopping(tol, max_iter=max_iter)) for trial in trials]
        for trial, solution in zip(trials, iterate(V, runs), strict=True):
            errors = solution.history.relative_error
            yield Refit(trial.end(solution), float(errors[-1]), errors.size)


class _Trial:
    """One move: its run has the components that are held first."""

    def __init__(self, V: DataMatrix, W: Array, move: Move, loss: str, n_given: int) -> None:
        self.V, self.move = V, move
        W = np.array(W)
        W[:, move.component] = moved_component(W, move)
        rest = [k for k in range(n_given, W.shape[1]) if k != move.component]
        self.order = np.array([*range(n_given), move.component, *rest])
        self.W = np.ascontiguousarray(W[:, self.order])
        self.method = _holding(V, self.W[:, : n_given + 1], loss)

    def run(self, Ht: Aligned, limit: float, stopping: Stopping) -> Run:
        """Return the run, which has not begun."""
        l, V = self.move.component, self.V
        H, _ = V.map(_moved_rows, Ht, t=self.move.t, l=l, order=self.order, dtype=V.dtype)

        errors: list[float] = []

        def is_enough(now: Iteration) -> bool:
            """Whether the error is low enough, or falls too slowly to become so."""
            errors.append(now.relative_error)
            fall = errors[-6] - errors[-1] if len(errors) > 5 else math.inf
            return errors[-1] <= limit or errors[-1] - limit > _MAX_FALLS * max(fall, 0.0)

        W = self.W.astype(V.dtype)
        return Run(V, W, H.T, self.method, stopping, callback=is_enough)

    def end(self, solution: Solution) -> Array:
        """Return W in its own order."""
        W = solution.W
        if self.method.H.solver.floored:
            W = without_floor(self.V, W, solution.H)
        W = exact(W)[:, np.argsort(self.order)]
        W[:, self.move.component] = self.W[:, np.argsort(self.order)][:, self.move.component]
        return W


def _holding(V: DataMatrix, W: Array, loss: str) -> Method:
    """How the loop updates factors of which the first are given."""
    plain = goal_of(loss, "auto")[2]
    assert plain is not None
    solver = plain.H.solver
    return Method.of(Terms.of(V, W, None, solver, loss).method(V, solver))


def _moved_rows(
    index: range, H: Array, *, t: Array, l: int, order: Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    H = exact(H)
    moved = np.maximum(H - H[:, l, None] * t, 0)
    return np.ascontiguousarray(moved[:, order], dtype), None

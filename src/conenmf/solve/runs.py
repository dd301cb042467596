"""One run: the factors it proposes before each pass over V, and whether it accepts the outcome.

The loop (`loop`) reads V; a run decides with which factors. Solvers that ask for it are
extrapolated, after Ang and Gillis ("Accelerating nonnegative matrix factorization algorithms using
extrapolation", Neural Computation 31, 2019): each update is moved a little further in its
direction. Each iteration proposes factors, and accepts the outcome of the pass, or undoes it if the
objective has risen; then follows one iteration without extrapolation, which cannot fail, and
extrapolation continues with a smaller factor.

*Which value decides.* A pass is made with a W that may be extrapolated, and ends with an H that
may be; the sums are those of this H. Where the loss knows its value at the W updated from them,
that value decides (`Point.AFTER`). Where it knows it only at the W of the pass (`Point.BEFORE`),
this one decides: all that was extrapolated has taken part in it, the update of W that follows can
only lower it, and by how much is known one pass later. So the values never rise for either kind of
loss, and the factors that are returned are as good as the last value, or better.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments import factor
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import aligned_coefficients
from ..errors import CheckpointWarning, FactorError, Message, Option
from .coefficients import column_units
from .losses import Point, Sums
from .methods import Method, Penalty
from .solvers import Solver, Update
from .state import Momentum, Saved, State
from .stopping import Callback, History, Iteration, Log, Stopping, StopReason, asks_to_stop

__all__ = [
    "Leap",
    "Outcome",
    "Proposal",
    "Run",
    "Solution",
]

_LEAP_AFTER_ITER = 2
# factors of the extrapolation, as published
_GROWTH_RATIO, _CEILING_GROWTH_RATIO, _CAUTION_RATIO = 1.05, 1.01, 1.5


@dataclass(frozen=True)
class Solution:
    """Where a run ended: W (F, K), H (K, N), the history and the reason."""

    W: Array
    H: Aligned
    history: History
    stop_reason: StopReason


Leap: TypeAlias = Callable[[Array, Aligned, list[float]], tuple[Array, Aligned] | None]
"""Given W, H and the errors so far, propose a W and an H from which to continue, or None."""


class Proposal(NamedTuple):
    """The factors for a pass over V.

    `before` is the H from which on a new one is moved further, by the share `beta`; None for a run
    that is not extrapolated.
    """

    W: Array
    Ht: Aligned
    update: Update
    before: Aligned | None = None
    beta: float = 0.0
    is_leap: bool = False

    @property
    def aligned(self) -> tuple[Aligned, ...]:
        """The arrays with one row per sample that the step takes."""
        return (self.Ht,) if self.before is None else (self.Ht, self.before)

    @property
    def out(self) -> tuple[Aligned | None, ...]:
        """Where the new ones may be written: over the old, unless the iteration may be undone."""
        return (self.Ht,) if self.before is None else (None, None)


class Outcome(NamedTuple):
    """The outcome of a pass: the new H, the same before it was moved further, and the sums."""

    Ht: Aligned
    updated: Aligned
    sums: Sums


class Run:
    """One run: its state, its limits and its history so far.

    The parameters are those of `alternate`.

    Attributes
    ----------
    state : State
    stopping : Stopping
    log : Log
    reason : StopReason or None
        Why it has ended, if it has.
    lacks_sums : bool
        It needs a pass over V before its first iteration: W is updated first.
    """

    def __init__(
        self,
        V: DataMatrix,
        W: Array,
        H: Aligned | None,
        solver: Method | Solver | str | Update,
        stopping: Stopping = Stopping(),  # noqa: B008 - frozen
        *,
        callback: Callback | None = None,
        leap: Leap | None = None,
        resume: Saved | None = None,
        save: Callable[[Saved, bool], None] | None = None,
    ) -> None:
        self._began, self._already_read = time.perf_counter(), V.passes_here
        self.V, self.method, self.stopping = V, Method.of(solver), stopping
        self._solver = self.method.H.solver
        self.callback, self._leap, self._save = callback, leap, save
        # A penalty sees the factors as they are: neither V nor columns of W are rescaled then.
        self.loss = self.method.loss(V, rescale=not self.method.is_penalised)
        if resume is None:
            W = factor("W", W, (V.shape[0], "K"))
            H = H if H is None else aligned_coefficients(V, H, W.shape[1]).T
        (F, N), K = V.shape, np.shape(W)[1]
        # The products of a pass cost 4 K `work`, a sweep over H costs 2 N K^2, over W 2 F K^2.
        work = min(V.depth * (F + N), 2 * V.n_entries)
        pass_cost = 2 * work / K
        self._update_H = self.method.H.update(pass_cost / N)
        self._affordable_sweeps = pass_cost / F
        self.lacks_sums = resume is None and self._solver.first == "W"
        if resume is None:
            self.log = Log()
            self.state = State(*self._scaled_factors(W, H), {}, [])
            if self._solver.extrapolate:
                self.state.momentum = Momentum(self.state.W, self.state.Ht)
        else:
            self.state, self.log, _ = resume
            self._began -= self.log.last_elapsed
            self._already_read -= self.log.last_passes
        n_earlier = len(self.state.values) - len(self.log.elapsed)
        self._earlier = [self.loss.relative_error(value) for value in self.state.values[:n_earlier]]
        self.reason = self._reason()
        if resume is not None and resume.tol is not None and stopping.tol > resume.tol:
            self._stop_if_past()

    def _stop_if_past(self) -> None:
        """End a run, resumed with a larger `tol`, if it would have converged some time ago."""
        errors, tol = self.log.relative_error, self.stopping.tol
        met = self.stopping.converged_at(errors, self._earlier)
        if met is not None and met < len(errors):
            self.reason = StopReason.CONVERGED
            warnings.warn(
                Message(
                    Option("tol", tol),
                    f" was met at iteration {met}, and the checkpoint is past that point: the "
                    f"factors are those of iteration {len(errors)}",
                ),
                CheckpointWarning,
                stacklevel=2,
            )

    def extend(self, stopping: Stopping) -> None:
        """Continue a run that has ended, with other limits."""
        self.stopping = stopping
        self.reason = self._reason()

    def _reason(self) -> StopReason | None:
        """Why to stop now, if there is a reason."""
        log = self.log
        return self.stopping.reason(log.relative_error, log.last_elapsed, self._earlier)

    def propose(self) -> Proposal:
        """Return the factors with which V is to be read next."""
        state, momentum = self.state, self.state.momentum
        self.loss.number = len(state.values)
        if self.lacks_sums:
            return Proposal(state.W, state.Ht, _unchanged)
        if momentum is None:
            W = state.W
            if self._solver.first == "W":
                W = self._updated_W(state.sums, W, state.Ht)
            return Proposal(W, state.Ht, self._update_H)
        leap = self._proposed_leap(momentum)
        if leap is not None:
            return leap
        if momentum.rest:
            return Proposal(state.W, state.Ht, self._update_H, momentum.Ht)
        W = self.loss.extrapolate_W(state.W, momentum.W, momentum.beta, self.method.W.floor)
        return Proposal(W, state.Ht, self._update_H, momentum.Ht, momentum.beta)

    def arguments(self, proposal: Proposal) -> dict[str, Any]:
        """Return what the step of the loss needs besides a block and its rows of H."""
        return {
            **self.loss.shared(proposal.W),
            "update": proposal.update,
            "beta": proposal.beta,
            "floor": self.method.H.floor,
        }

    def settle(self, proposal: Proposal, outcome: Outcome) -> None:
        """Accept the outcome of a pass, or undo it if the objective has risen."""
        if self.lacks_sums:
            self._begin(proposal, outcome)
            return
        values, W = self.state.values, proposal.W
        if self._solver.first == "H":
            W = self._updated_W(outcome.sums, W, outcome.Ht)
        value = self._value(proposal, outcome, W)
        is_bold = proposal.beta > 0 or proposal.is_leap
        if is_bold and values and not self._is_no_worse(value, values[-1]):
            self._take_back(proposal)
            value = values[-1]
        else:
            self._accept(proposal, outcome, W)
        values.append(value)

    def _updated_W(self, sums: Sums, W: Array, Ht: Aligned) -> Array:
        update = self.method.W.update(self._affordable_sweeps, W)
        return self.loss.update_W(sums, W, Ht, update)

    def end_iteration(self) -> None:
        """Write the log, call the callback, and decide whether to stop."""
        value, log = self.state.values[-1], self.log
        log.elapsed.append(time.perf_counter() - self._began)
        log.passes.append(self.V.passes_here - self._already_read)
        log.relative_error.append(self.loss.relative_error(value))
        self.reason = self._reason()
        if self.callback is not None:
            iteration = Iteration(
                iteration=len(log.elapsed),
                elapsed=log.elapsed[-1],
                relative_error=log.relative_error[-1],
                passes=log.passes[-1],
                objective=self.loss.objective(value),
            )
            if asks_to_stop(self.callback, iteration):
                self.reason = StopReason.CALLBACK
                self.save(ended=True)

    def save(self, *, ended: bool) -> None:
        """Pass the state to the function that saves it."""
        if self._save is not None:
            self._save(Saved(self.state, self.log, float(self.stopping.tol)), ended)

    def factors(self) -> tuple[Array, Aligned]:
        """Return W (F, K) and H (K, N) in the scale of V."""
        return self.state.W.astype(self.V.dtype, copy=False), self._unscaled(self.state.Ht)

    def solution(self) -> Solution:
        """Return the factors with the history and the reason."""
        assert self.reason is not None
        return Solution(*self.factors(), self.log.history(), self.reason)

    def _begin(self, proposal: Proposal, outcome: Outcome) -> None:
        """Take the sums of the init, and scale W if the solver asks for it."""
        self.lacks_sums = False
        self.state.Ht, self.state.sums = outcome.Ht, outcome.sums
        if self._solver.rescale:
            self.state.W = self.loss.scale_W(outcome.sums, proposal.W)

    def _value(self, proposal: Proposal, outcome: Outcome, W: Array) -> float:
        """The objective at the H of a pass, and at W or the W before it, as the loss knows it."""
        at = Point.BEFORE if self._solver.first == "W" else self.loss.known_at
        W = W if at is Point.AFTER else proposal.W
        value = self.loss.value(outcome.sums, W, at)
        if self.method.W.penalty is not None:
            value += self.method.W.penalty.value(W)
        if self.method.H.penalty is not None:
            value += float(self.V.map(_penalty, outcome.Ht, penalty=self.method.H.penalty)[0])
        return value

    def _is_no_worse(self, value: float, last: float) -> bool:
        """Compared as relative errors: a rise within rounding is no reason to undo an iteration."""
        return self.loss.relative_error(value) <= self.loss.relative_error(last)

    def _accept(self, proposal: Proposal, outcome: Outcome, W: Array) -> None:
        state, momentum = self.state, self.state.momentum
        if momentum is not None:
            if proposal.beta:
                momentum.beta = min(momentum.ceiling, _GROWTH_RATIO * proposal.beta)
                momentum.ceiling = min(1.0, _CEILING_GROWTH_RATIO * momentum.ceiling)
            momentum.rest = proposal.is_leap
            momentum.W = proposal.W if proposal.is_leap else state.W
            momentum.Ht = outcome.updated
        state.W, state.Ht, state.sums = W, outcome.Ht, outcome.sums
        if momentum is not None and not self.method.is_penalised:
            self._balance(momentum)

    def _take_back(self, proposal: Proposal) -> None:
        """Keep the earlier factors, and extrapolate less."""
        momentum = self.state.momentum
        assert momentum is not None
        momentum.rest = True
        if proposal.beta:
            momentum.ceiling, momentum.beta = proposal.beta, proposal.beta / _CAUTION_RATIO

    def _balance(self, momentum: Momentum) -> None:
        """Bring columns of W back to ordinary sizes, and rows of H the other way.

        A component that no sample has used for a while may return with a huge column in W, which
        then sets the scale, so that the others are floored, or lost in single precision.
        """
        size = self.loss.column_units(self.state.W)
        if np.any(size != 1):
            self._rescale(momentum, size)

    def _rescale(self, momentum: Momentum, size: Array) -> None:
        """Divide columns of W by their sizes, and multiply rows of H with these."""
        state = self.state
        state.W, momentum.W = (
            (W / size).astype(self.V.dtype, copy=False) for W in (state.W, momentum.W)
        )
        state.Ht, momentum.Ht = (
            self.V.map(_scale, Ht, factor=size, dtype=self.V.dtype)[0]
            for Ht in (state.Ht, momentum.Ht)
        )

    def normalize(self) -> None:
        """Give the columns of W unit norm, as those of cr1-nmf have it, for any init."""
        momentum, size = self.state.momentum, np.linalg.norm(self.state.W, axis=0)
        if momentum is not None:
            self._rescale(momentum, np.where(size > 0, size, 1.0))

    def _proposed_leap(self, momentum: Momentum) -> Proposal | None:
        errors = self.log.relative_error
        if self._leap is None or momentum.leapt or len(errors) < _LEAP_AFTER_ITER:
            return None
        momentum.leapt = True
        factors = self._leap(self.state.W, self._unscaled(self.state.Ht), errors)
        if factors is None:
            return None
        W, Ht = self._scaled_factors(*factors)
        return Proposal(W, Ht, self._update_H, Ht, is_leap=True)

    def _scaled_factors(self, W: Array, H: Aligned | None) -> tuple[Array, Aligned]:
        """W (F, K) with columns of ordinary sizes, and H (N, K) to match, for V / unit."""
        if H is None and (self._solver.first == "W" or self._solver.lift_zeros):
            raise FactorError("this solver needs an initial H: pass one with W")
        W = np.asarray(W)
        size = np.ones(W.shape[1]) if self.method.is_penalised else column_units(W)
        if H is None:
            Ht, _ = self.V.map(_zeros, K=W.shape[1], dtype=self.V.dtype)
        else:
            factor = size / self.loss.unit
            Ht, _ = self.V.map(_scale, H.T, factor=factor, dtype=self.V.dtype)
        return np.ascontiguousarray(W / size, self.V.dtype), Ht

    def _unscaled(self, Ht: Aligned) -> Aligned:
        """H (K, N) for V itself."""
        if self.loss.unit != 1:
            Ht, _ = self.V.map(_scale, Ht, factor=self.loss.unit, dtype=self.V.dtype)
        return Ht.T


def _unchanged(G: Array, C: Array, Y: Array) -> Array:
    return Y


def _penalty(index: range, H: Array, *, penalty: Penalty) -> tuple[float]:
    return (penalty.value(H),)


def _zeros(index: range, *, K: int, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.zeros((len(index), K), dtype), None


def _scale(
    index: range, H: Array, *, factor: float | Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    return np.ascontiguousarray(H * factor, dtype), None

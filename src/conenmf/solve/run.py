"""Runs: factors, momentum, history and limits, and the loop that advances them.

One iteration is one pass over V: a block of samples yields its rows of the new H and the sums from
which the new W and the value of the objective follow. A run chooses the factors of a pass and
decides whether to accept its outcome; the loss defines the sums, and how W follows from them.

Solvers that ask for it are extrapolated, after Ang and Gillis ("Accelerating nonnegative matrix
factorization algorithms using extrapolation", Neural Computation 31, 2019): each update is moved a
little further in its direction. Each iteration proposes factors, and accepts the outcome of the
pass, or undoes it if the objective has risen; then follows one iteration without extrapolation,
which cannot fail, and extrapolation continues with a smaller factor.

*Which value decides.* A pass is made with a W that may be extrapolated, and ends with an H that
may be; the sums are those of this H. Where the loss knows its value at the W updated from them,
that value decides. Where it knows it only at the W of the pass,
this one decides: all that was extrapolated has taken part in it, the update of W that follows can
only lower it, and by how much is known one pass later. So the values never rise for either kind of
loss, and the factors that are returned are as good as the last value, or better.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments import factor, function, instance, integer, number, optional
from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from ..data.together import Part, sweep_together
from ..data.validate import aligned_coefficients, require_data_matrix
from ..errors import CheckpointWarning, DataError, Message, Option
from ..scale.checkpoint import Parts
from .coefficients import column_units
from .constraints import Term
from .solvers import FLOOR, Solver, Update

if TYPE_CHECKING:
    from .losses import Objective, Sums

_SUM_PREFIX = "sum "  # before the name of a sum of the loss, in a checkpoint
_MOMENTUM_FIELDS = ("beta", "ceiling", "rest", "leapt")
_PLATEAU_TOL_SHARE = 1e-2  # of tol, at which a run ends on a plateau too


class StopReason(StrEnum):
    """Why a run ended; each is equal to its name, and `description` says it in a sentence."""

    CONVERGED = "converged"
    PLATEAU = "plateau"
    EXACT = "exact"
    MAX_ITER = "max_iter"
    MAX_TIME = "max_time"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    INIT = "init"

    @property
    def description(self) -> str:
        """The reason in a sentence, without the full stop."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    StopReason.CONVERGED: "the error hardly fell any more",
    StopReason.PLATEAU: "the error hardly fell any more, probably on a plateau",
    StopReason.EXACT: "no residual was left",
    StopReason.MAX_ITER: "the largest number of iterations was reached",
    StopReason.MAX_TIME: "the time limit was reached",
    StopReason.CALLBACK: "the callback asked for it",
    StopReason.INTERRUPTED: "the user interrupted it",
    StopReason.INIT: "no solver was asked for, these are the factors of the init",
}


@dataclass(frozen=True)
class Iteration:
    """What a callback gets after every iteration; it stops the run by returning True.

    `iteration` counts from 1, and is 0 while inits compete. `elapsed` is in seconds and `passes`
    counts the passes over V, both since the call of `factorize`, or since the loop began where it
    is called by itself. `objective` is what the loss measures, ||V - W H||^2 for least squares, and
    `relative_error` is the same relative to the norm of V: ||V - W H|| / ||V||.
    """

    iteration: int
    elapsed: float
    relative_error: float
    passes: float
    objective: float


Callback: TypeAlias = Callable[[Iteration], object]


def asks_to_stop(callback: Callback, now: Iteration) -> bool:
    """Whether a callback returns True itself; another value, even if true, is no answer.

    One that raises StopIteration asks too: as an error it would not get through generators.
    """
    try:
        answer = callback(now)
    except StopIteration:
        return True
    return isinstance(answer, bool | np.bool_) and bool(answer)


@dataclass(frozen=True)
class Stopping:
    """When the loop ends.

    Attributes
    ----------
    tol : float
        Converged when the relative error fell by less than this share of itself over the last
        `window` iterations. It does not depend on the scale of V or on the init.
    window : int
        An iteration that was undone leaves the error as it was; it is no evidence and is not
        counted, as long as one in two is not.
    max_iter : int
    max_time : float or None
        Seconds.
    exact : float
        A relative error below this is exact for the arithmetic of the loop.
    is_plateau : callable, optional
        Asked, once the error has converged, whether this error is probably not the end. Then the
        run continues until the error falls by less than a hundredth of `tol`.
    """

    tol: float = 1e-5
    window: int = 5
    max_iter: int = 200
    max_time: float | None = None
    exact: float = 1e-7
    is_plateau: Callable[[float], bool] | None = None

    def __post_init__(self) -> None:
        number("tol", self.tol, at_least=0)
        integer("window", self.window, at_least=1)
        integer("max_iter", self.max_iter, at_least=0, at_most=2**63 - 1)
        optional(number, "max_time", self.max_time, at_least=0, or_infinite=True, what="seconds")
        number("exact", self.exact, at_least=0)
        optional(function, "is_plateau", self.is_plateau, takes=1)

    def reason(
        self, errors: list[float], elapsed: float, earlier: Sequence[float] = ()
    ) -> StopReason | None:
        """Return why to stop now, or None to continue.

        The errors `earlier` are those of another run that ended where this one began.
        """
        if errors and errors[-1] <= self.exact:
            return StopReason.EXACT
        fall = self._fall([*earlier, *errors]) if errors else np.inf
        if fall < self.tol:
            if self.is_plateau is None or not self.is_plateau(errors[-1]):
                return StopReason.CONVERGED
            if fall < _PLATEAU_TOL_SHARE * self.tol:
                return StopReason.PLATEAU
        if len(errors) >= self.max_iter:
            return StopReason.MAX_ITER
        if self.max_time is not None and elapsed >= self.max_time:
            return StopReason.MAX_TIME
        return None

    def converged_at(self, errors: list[float], earlier: Sequence[float] = ()) -> int | None:
        """Return the iteration after which a run with these errors would have converged, if any."""
        limits = replace(self, max_iter=len(errors) + 1, max_time=None)
        for n in range(1, len(errors) + 1):
            if limits.reason(errors[:n], 0.0, earlier) is not None:
                return n
        return None

    def _fall(self, errors: list[float]) -> float:
        """The share by which the error fell over the window; infinite before it is full."""
        first, falls = len(errors) - 1, 0
        while first > 0 and falls < self.window and len(errors) - 1 - first < 2 * self.window:
            falls += errors[first] < errors[first - 1]
            first -= 1
        if len(errors) - 1 - first < 2 * self.window and falls < self.window:
            return np.inf
        return (errors[first] - errors[-1]) / errors[first]


@dataclass(frozen=True)
class History:
    """The relative error, seconds and passes over V after each iteration, as arrays."""

    relative_error: Array
    elapsed: Array
    passes: Array

    def __repr__(self) -> str:
        n = self.relative_error.size
        first, last = self.relative_error[:1], self.relative_error[-1:]
        ends = f": relative error {first[0]:.4g} to {last[0]:.4g}" if n else ""
        return f"<History of {n} iterations{ends}>"


@dataclass
class Log:
    """The history of a run that has not ended: the same as lists."""

    relative_error: list[float] = field(default_factory=list)
    elapsed: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)

    @property
    def last_elapsed(self) -> float:
        """Seconds until the last iteration ended; 0 if there was none."""
        return self.elapsed[-1] if self.elapsed else 0.0

    @property
    def last_passes(self) -> float:
        """Passes over V until then."""
        return self.passes[-1] if self.passes else 0.0

    def history(self) -> History:
        """Return the history so far."""
        return History(np.array(self.relative_error), np.array(self.elapsed), np.array(self.passes))


@dataclass
class Momentum:
    """How an extrapolated run moves.

    Attributes
    ----------
    W : array (F, K)
        W one iteration earlier.
    Ht : aligned (N, K)
        H as the last update left it, before it was moved further.
    beta : float
        How far to move beyond an update, as a share of the way since the one before.
    ceiling : float
        The largest value that beta may reach.
    rest : bool
        The next iteration is not extrapolated.
    leapt : bool
        The leap has been asked for.
    """

    W: Array
    Ht: Aligned
    beta: float = 0.5
    ceiling: float = 1.0
    rest: bool = True
    leapt: bool = False


@dataclass
class State:
    """The state of a run between two iterations: all that the next ones depend on.

    Attributes
    ----------
    W : array (F, K)
    Ht : aligned (N, K)
    sums : dict
        The sums of the last accepted iteration; the loss defines their names.
    values : list of float
        The objective of V / unit after each iteration, with the penalties; those of the run that
        this one continues, if any, are the first.
    momentum : Momentum, optional
        For solvers that are extrapolated.
    """

    W: Array
    Ht: Aligned
    sums: Sums
    values: list[float]
    momentum: Momentum | None = None


class Saved(NamedTuple):
    """All that a checkpoint keeps of a run; `tol` is what it has been run with so far."""

    state: State
    log: Log
    tol: float | None = None

    def parts(self) -> Parts:
        """Return everything by name, for the files of a checkpoint."""
        state, momentum = self.state, self.state.momentum
        arrays = {"W": state.W}
        arrays |= {_SUM_PREFIX + name: np.asarray(value) for name, value in state.sums.items()}
        aligned = {"H": state.Ht}
        plain = {"tol": self.tol, "values": state.values, "log": vars(self.log)}
        if momentum is not None:
            arrays["W before"] = momentum.W
            aligned["before"] = momentum.Ht
            plain["momentum"] = {name: getattr(momentum, name) for name in _MOMENTUM_FIELDS}
        return Parts(arrays, aligned, plain)

    @classmethod
    def of_parts(cls, parts: Parts | None) -> Saved | None:
        """Make it again from its parts, if there are any."""
        if parts is None:
            return None
        arrays, aligned, plain = parts
        sums = {
            name.removeprefix(_SUM_PREFIX): array
            for name, array in arrays.items()
            if name.startswith(_SUM_PREFIX)
        }
        state = State(arrays["W"], aligned["H"], sums, plain["values"])
        if "momentum" in plain:
            state.momentum = Momentum(arrays["W before"], aligned["before"], **plain["momentum"])
        return cls(state, Log(**plain["log"]), plain["tol"])

    def relocate(self, aligned: dict[str, Aligned]) -> None:
        """Continue with aligned arrays that were read from the files of a checkpoint."""
        self.state.Ht = aligned["H"]
        if self.state.momentum is not None:
            self.state.momentum.Ht = aligned["before"]


_LEAP_AFTER_ITER = 2
_SMALL_ENTRY = 1e-2  # a column with a larger one would not miss entries of the size of the floor
_FLOOR_SHARE = 1e-11  # of ||V||, below which nothing misses them
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


class Outcome(NamedTuple):
    """The outcome of a pass: the new H, the same before it was moved further, and the sums."""

    Ht: Aligned
    updated: Aligned
    sums: Sums


class Run:
    """One run: its state, its limits and its history so far.

    Parameters
    ----------
    objective : Objective
        What it minimises, and of which V.
    W, H : array (F, K), array (K, N) or None
        Where it begins.
    solver : Solver
    stopping, callback, leap, resume, save
        As in `alternate`.

    Attributes
    ----------
    state : State
    log : Log
    reason : StopReason or None
        Why it has ended, if it has.
    lacks_sums : bool
        It needs a pass over V before its first iteration: W is updated first.
    """

    def __init__(
        self,
        objective: Objective,
        W: Array,
        H: Aligned | None,
        solver: Solver,
        stopping: Stopping = Stopping(),
        *,
        callback: Callback | None = None,
        leap: Leap | None = None,
        resume: Saved | None = None,
        save: Callable[[Saved, bool], None] | None = None,
    ) -> None:
        V = objective.V
        self._began, self._already_read = time.perf_counter(), V.passes_here
        self.V, self.objective, self.stopping = V, objective, stopping
        self.solver = objective.runs_as(solver)
        self.floors = [FLOOR * one.floored for one in (self.solver, solver)]  # of H and of W
        self.callback, self._leap, self._save = callback, leap, save
        (F, N), K = V.shape, np.shape(W)[1]
        # The products of a pass cost 4 K `work`, a sweep over H costs 2 N K^2, over W 2 F K^2.
        work = min(V.depth * (F + N), 2 * V.n_entries)
        pass_cost = 2 * work / K
        objective.updates(solver, pass_cost / N, pass_cost / F)
        self.lacks_sums = resume is None and self.solver.first == "W"
        if resume is None:
            self.log = Log()
            self.state = State(*self._scaled_factors(W, H), {}, [])
            if self.solver.extrapolate:
                self.state.momentum = Momentum(self.state.W, self.state.Ht)
        else:
            self.state, self.log, _ = resume
            self._began -= self.log.last_elapsed
            self._already_read -= self.log.last_passes
        n_earlier = len(self.state.values) - len(self.log.elapsed)
        self._earlier = [objective.relative_error(value) for value in self.state.values[:n_earlier]]
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
        self.objective.number = len(state.values)
        if self.lacks_sums:
            return Proposal(state.W, state.Ht, _unchanged)
        if momentum is None:
            W = state.W
            if self.solver.first == "W":
                W = self.objective.update_W(state.sums, W, state.Ht)
            return Proposal(W, state.Ht, self.objective.update_rows)
        leap = self._proposed_leap(momentum)
        if leap is not None:
            return leap
        if momentum.rest:
            return Proposal(state.W, state.Ht, self.objective.update_rows, momentum.Ht)
        W = self.objective.extrapolate_W(state.W, momentum.W, momentum.beta, self.floors[1])
        return Proposal(W, state.Ht, self.objective.update_rows, momentum.Ht, momentum.beta)

    def settle(self, proposal: Proposal, outcome: Outcome) -> None:
        """Accept the outcome of a pass, or undo it if the objective has risen."""
        if self.lacks_sums:
            self._begin(proposal, outcome)
            return
        values, W = self.state.values, proposal.W
        if self.solver.first == "H":
            W = self.objective.update_W(outcome.sums, W, outcome.Ht)
        value = self._value(proposal, outcome, W)
        is_bold, error = proposal.beta > 0 or proposal.is_leap, self.objective.relative_error
        # Compared as relative errors: a rise within rounding is no reason to undo an iteration.
        if is_bold and values and error(value) > error(values[-1]):
            self._take_back(proposal)
            value = values[-1]
        else:
            self._accept(proposal, outcome, W)
        values.append(value)

    def end_iteration(self) -> None:
        """Write the log, call the callback, and decide whether to stop."""
        value, log = self.state.values[-1], self.log
        log.elapsed.append(time.perf_counter() - self._began)
        log.passes.append(self.V.passes_here - self._already_read)
        log.relative_error.append(self.objective.relative_error(value))
        self.reason = self._reason()
        if self.callback is not None:
            iteration = Iteration(
                iteration=len(log.elapsed),
                elapsed=log.elapsed[-1],
                relative_error=log.relative_error[-1],
                passes=log.passes[-1],
                objective=self.objective.objective(value),
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
        if self.solver.rescale:
            self.state.W = self.objective.scale_W(outcome.sums, proposal.W)

    def _value(self, proposal: Proposal, outcome: Outcome, W: Array) -> float:
        """The objective at the H of a pass, and at W or the W before it, as the loss knows it."""
        after = self.solver.first == "H" and self.objective.knows_after
        W = W if after else proposal.W
        value = self.objective.value(outcome.sums, W, after=after)
        of_H, of_W = self.objective.terms
        if of_W is not None:
            value += of_W.value(W)
        if of_H is not None:
            value += float(self.V.map(_penalty, outcome.Ht, term=of_H)[0])
        return value

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
        if momentum is None or not self.objective.penalties.are_none:
            return
        # A component that no sample has used for a while may return with a huge column in W, which
        # then sets the scale, so that the others are floored, or lost in single precision.
        size = self.objective.column_units(W)
        if np.any(size != 1):
            self._rescale(momentum, size)

    def _take_back(self, proposal: Proposal) -> None:
        """Keep the earlier factors, and extrapolate less."""
        momentum = self.state.momentum
        assert momentum is not None
        momentum.rest = True
        if proposal.beta:
            momentum.ceiling, momentum.beta = proposal.beta, proposal.beta / _CAUTION_RATIO

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
        return Proposal(W, Ht, self.objective.update_rows, Ht, is_leap=True)

    def _scaled_factors(self, W: Array, H: Aligned | None) -> tuple[Array, Aligned]:
        """W (F, K) with columns of ordinary sizes, and H (N, K) to match, for V / unit."""
        if H is None and (self.solver.first == "W" or self.solver.lift_zeros):
            raise DataError("this solver needs an initial H: pass one with W")
        W = np.asarray(W)
        size = column_units(W) if self.objective.penalties.are_none else np.ones(W.shape[1])
        if H is None:
            Ht, _ = self.V.map(_zeros, K=W.shape[1], dtype=self.V.dtype)
        else:
            factor = size / self.objective.unit
            Ht, _ = self.V.map(_scale, H.T, factor=factor, dtype=self.V.dtype)
        return np.ascontiguousarray(W / size, self.V.dtype), Ht

    def _unscaled(self, Ht: Aligned) -> Aligned:
        """H (K, N) for V itself."""
        if self.objective.unit != 1:
            Ht, _ = self.V.map(_scale, Ht, factor=self.objective.unit, dtype=self.V.dtype)
        return Ht.T


def _unchanged(G: Array, C: Array, Y: Array) -> Array:
    return Y


def _penalty(index: range, H: Array, *, term: Term) -> tuple[float]:
    return (term.value(H),)


def _zeros(index: range, *, K: int, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.zeros((len(index), K), dtype), None


def _scale(
    index: range, H: Array, *, factor: float | Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    return np.ascontiguousarray(H * factor, dtype), None


def alternate(
    V: DataMatrix,
    W: Array,
    H: Aligned | None,
    solver: Solver | str | Update,
    *,
    stopping: Stopping = Stopping(),
    callback: Callback | None = None,
    leap: Leap | None = None,
    resume: Saved | None = None,
    save: Callable[[Saved, bool], None] | None = None,
    objective: Objective | None = None,
) -> Solution:
    """Update H and W alternately until a limit is reached; one pass over V per iteration.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N), or None
        None only for a solver that begins with H.
    solver : str, Solver or callable
    stopping : Stopping
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True ends the run.
    leap : callable, optional
        Asked once, after two iterations, for factors from which to continue; they are accepted if
        the next iteration lowers the objective of V itself. Only for solvers that are extrapolated.
    resume : Saved, optional
        Continue from this state, with the same bits as without the interruption; W and H are
        ignored.
    save : callable, optional
        Called with the state to save before every iteration, and when the callback has ended the
        run; then the second argument is True.
    objective : Objective, optional
        For another loss than least squares, penalties or known components.

    Notes
    -----
    The history counts seconds and passes from the call. An iteration that is undone counts as one
    in which the error has not fallen.
    """
    from .losses import FROBENIUS, Objective

    require_data_matrix(V, nonzero=True, holes=True)
    instance("stopping", stopping, Stopping)
    optional(function, "callback", callback, takes=1)
    optional(function, "leap", leap, takes=3)
    optional(instance, "resume", resume, Saved)
    optional(function, "save", save, takes=2)
    optional(instance, "objective", objective, Objective)
    if resume is None:
        W = factor("W", W, (V.shape[0], "K"))
        H = H if H is None else aligned_coefficients(V, H, W.shape[1]).T
    with V.own_threads():
        objective = FROBENIUS.on(V) if objective is None else objective
        chosen = objective.loss.solver(solver)
        assert chosen is not None
        run = Run(
            objective,
            W,
            H,
            chosen,
            stopping,
            callback=callback,
            leap=leap,
            resume=resume,
            save=save,
        )
        del W, H  # they may be large, and are not needed any more
        (solution,) = iterate(V, [run])
    return solution


def iterate(V: DataMatrix, runs: Sequence[Run]) -> list[Solution]:
    """Advance runs on V until each has stopped; every pass over V serves all that have not.

    Each run ends with the bits that it would have alone. It may be on a view of V.
    """
    for _ in ending(V, runs):
        pass
    return [run.solution() for run in runs]


def ending(V: DataMatrix, runs: Sequence[Run]) -> Iterator[tuple[int, Run]]:
    """Do the same, and return each run with its number as soon as it has stopped.

    What has stopped is not kept here: its H may be large.
    """
    with V.own_threads():
        _advance(V, [run for run in runs if run.lacks_sums])
        active = dict(enumerate(runs))
        del runs
        while active:
            for number in [number for number, run in active.items() if run.reason is not None]:
                yield number, active.pop(number)
            for run in active.values():
                run.save(ended=False)
            _advance(V, list(active.values()))
            for run in active.values():
                run.end_iteration()


def _advance(V: DataMatrix, runs: list[Run]) -> None:
    """Read V once for all runs: each proposes, the blocks answer, each settles."""
    if not runs:
        return
    proposals, parts = [run.propose() for run in runs], []
    for run, proposal in zip(runs, proposals, strict=True):
        objective, Ht, before = run.objective, proposal.Ht, proposal.before
        shared = objective.shared(proposal.W)
        shared |= {"update": proposal.update, "beta": proposal.beta, "floor": run.floors[0]}
        rows = (Ht,) if before is None else (Ht, before)
        out = (Ht,) if before is None else (None, None)  # the iteration may be undone
        aligned = (*objective.aligned, *rows)
        X = objective.factor(shared)
        parts.append(Part(run.V, objective.step, aligned, shared, len(rows), out, X=X))
    outcomes = [Outcome(rows[0], rows[-1], sums) for *rows, sums in sweep_together(V, parts)]
    together: dict[Any, list[tuple[Aligned, Sums]]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        if run.V is V and run.solver.first == "H":
            together.setdefault(type(run.objective), []).append((outcome.Ht, outcome.sums))
    for kind, factors in together.items():
        kind.multiply(V, factors)
    for run, proposal, outcome in zip(runs, proposals, outcomes, strict=True):
        run.settle(proposal, outcome)


def without_floor(V: DataMatrix, W: Array, H: Aligned) -> Array:
    """Return W (F, K) of a solver that floors, with zeros for the entries at the floor.

    The floor represents zero, but not in a component whose whole column is near it, with a huge row
    in H: there the entries at the floor are part of W H. Such a column keeps them, and is brought
    to an ordinary size.
    """
    floorless = np.where(W > FLOOR, W, 0)
    is_small = W.max(axis=0) < _SMALL_ENTRY
    if is_small.any():
        (squares,) = V.map(_squares, H.T)
        lost = FLOOR * np.sqrt(len(W) * squares)
        is_real = is_small & (lost > _FLOOR_SHARE * V.norm)
        floorless[:, is_real] = (W / column_units(W))[:, is_real]
    return floorless


def _squares(index: range, H: Array) -> tuple[Array]:
    return ((exact(H) ** 2).sum(axis=0),)

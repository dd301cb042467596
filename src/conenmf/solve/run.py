"""A run: factors, momentum, history and limits, and the iterations that change them.

One iteration is one pass over V: each block of samples yields its rows of the new H, and the sums
from which the new W and the value of the objective follow. A run chooses the factors of a pass and
decides whether to accept its result; the loss defines the sums and the update of W.

Solvers that request it are extrapolated, after Ang and Gillis ("Accelerating nonnegative matrix
factorization algorithms using extrapolation", Neural Computation 31, 2019): each update is moved a
little further in its direction. If the objective has risen after a pass, the iteration is undone.
The next iteration has no extrapolation, so it cannot raise the objective, and later iterations
extrapolate by a smaller factor.

*Which value decides.* A pass uses a W that may be extrapolated, and ends with an H that may be; the
sums belong to this H. If the loss knows its value at the W updated from the sums, this value
decides. If it knows only the value at the W of the pass, that value decides: it includes all
extrapolations, and the update of W that follows can only lower it, by an amount that the next pass
shows. So for both kinds of losses the values never rise, and the returned factors are at least as
good as the last value.

*Approximations.* A run may start with a similar objective that costs less, such as the one in
single precision. It continues with its own objective from the same state when the error falls by
less than the two objectives may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np

from ..arguments import integer, number, optional
from ..data.blocks import exact
from ..data.matrix import Aligned, DataMatrix, Factors, PerSample
from ..data.views import Part, products_together, sweep_together
from ..errors import DataError, NotFiniteError, Option
from ..kernels import clock
from ..scale.checkpoint import Parts
from ..types import Array, DType, Facts, Interval
from .coefficients import column_units
from .loss import AnyObjective, Move, Updated, step_of_run
from .solvers import FLOOR, Solver

GROUP_PREFIX = "group "  # starts the names of what groups change, in a checkpoint
_SUM_PREFIX = "sum "  # starts the name of each sum of the loss, in a checkpoint
_SMALL_ENTRY = 1e-2  # beside a larger entry of a column, the floor does not matter
_FLOOR_SHARE = 1e-11  # of ||V||: smaller contributions do not matter
# the first extrapolation factor and its changes, as published
_FIRST_BETA = 0.5
_GROWTH_RATIO = 1.05
_CEILING_GROWTH_RATIO = 1.01
_CAUTION_RATIO = 1.5


class StopReason(StrEnum):
    """Why a run ended; each value equals its name, and `description` explains it in a sentence."""

    CONVERGED = "converged"
    EXACT = "exact"
    MAX_ITER = "max_iter"
    MAX_TIME = "max_time"
    CALLBACK = "callback"
    INTERRUPTED = "interrupted"
    INIT = "init"

    @property
    def description(self) -> str:
        """The reason in a sentence, without a full stop."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    StopReason.CONVERGED: "the error hardly fell any more",
    StopReason.EXACT: "no residual was left",
    StopReason.MAX_ITER: "the largest number of iterations was reached",
    StopReason.MAX_TIME: "the time limit was reached",
    StopReason.CALLBACK: "the callback asked for it",
    StopReason.INTERRUPTED: "the user interrupted it",
    StopReason.INIT: "no solver was asked for, these are the factors of the init",
}


@dataclass(frozen=True)
class Iteration:
    """The argument of a callback after every iteration; a callback that returns True stops the run.

    Attributes
    ----------
    iteration : int
        Counts from 1; it is 0 while other inits compete.
    elapsed : float
        Seconds since the call of `factorize`, or since the start of a run without it.
    relative_error : float
        The error relative to the data, such as ||V - W H|| / ||V||.
    passes : float
        Passes over V, counted from the same moment as `elapsed`.
    objective : float
        The value of the loss plus penalties, such as ||V - W H||^2 for least squares.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0], [1.0, 2.0, 2.0]])
    >>> stop = lambda iteration: iteration.relative_error < 0.5
    >>> str(factorize(V, 2, callback=stop).stop_reason.value)
    'callback'
    """

    iteration: int
    elapsed: float
    relative_error: float
    passes: float
    objective: float


Callback: TypeAlias = Callable[[Iteration], object]


def asks_to_stop(callback: Callback, now: Iteration) -> bool:
    """Return whether a callback returned True itself; other true values do not stop a run.

    A callback may also raise StopIteration, which could not pass through generators as an error.
    """
    try:
        answer = callback(now)
    except StopIteration:
        return True
    return isinstance(answer, bool | np.bool_) and bool(answer)


@dataclass(frozen=True)
class Stopping:
    """When a run ends.

    Attributes
    ----------
    tol : float
        Converged if the relative error fell by less than this share of itself over the last
        `window` iterations. This does not depend on the scale of V or on the init.
    window : int
        Number of iterations over which errors are compared. Undone iterations do not count, unless
        more than half of the iterations were undone.
    max_iter : int
    max_time : float or None
        Seconds.
    exact : float
        A relative error below this counts as exact.
    """

    tol: float = 1e-5
    window: int = 5
    max_iter: int = 200
    max_time: float | None = None
    exact: float = 1e-7

    def __post_init__(self) -> None:
        number("tol", self.tol, at_least=0)
        integer("window", self.window, at_least=1)
        integer("max_iter", self.max_iter, at_least=0, at_most=2**63 - 1)
        optional(number, "max_time", self.max_time, at_least=0, or_infinite=True, what="seconds")
        number("exact", self.exact, at_least=0)

    def reason(self, errors: list[float], elapsed: float, since: int = 0) -> StopReason | None:
        """Return why to stop now, or None; only errors from iteration `since` on may converge."""
        if len(errors) > since and errors[-1] <= self.exact:
            return StopReason.EXACT
        if errors and self.fall(errors[since:]) < self.tol:
            return StopReason.CONVERGED
        if len(errors) >= self.max_iter:
            return StopReason.MAX_ITER
        if self.max_time is not None and elapsed >= self.max_time:
            return StopReason.MAX_TIME
        return None

    def after(self, seconds: float) -> Stopping:
        """Return the same limits when some seconds are gone.

        >>> Stopping(max_time=3.0).after(2.0).max_time, Stopping().after(2.0).max_time
        (1.0, None)
        """
        if self.max_time is None:
            return self
        return replace(self, max_time=max(self.max_time - seconds, 0.0))

    def fall(self, errors: list[float]) -> float:
        """Return the share by which the error fell over the window; infinite before it is full."""
        first = len(errors) - 1
        falls = 0
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
        errors = self.relative_error
        ends = f": relative error {errors[0]:.4g} to {errors[-1]:.4g}" if errors.size else ""
        return f"<History of {errors.size} iterations{ends}>"


@dataclass(frozen=True)
class Solution:
    """The end of a run: W (F, K), H (K, N), the history and the reason."""

    W: Array
    H: Aligned
    history: History
    stop_reason: StopReason


class Run:
    """One run: its factors, its limits and its history.

    Parameters
    ----------
    objective : Objective
        The loss to minimise and its data.
    W, H : array (F, K), array (K, N) or None
        The initial factors; H may be None for a solver that does not need it.
    solver : Solver
    stopping : Stopping
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True ends the run.
    resume : Parts, optional
        Continue from this state, with the same bits as without interruption; W and H are then
        ignored.
    save : callable, optional
        Called with the run before every iteration. It is also called when the callback has ended
        the run; the second argument is then True.
    began : pair of float, optional
        The time and the number of passes over V from which seconds and passes count.
    approximation : Objective, optional
        A similar objective that costs less, for the first iterations; see `run`.

    Attributes
    ----------
    W, Ht : array (F, K), aligned (N, K)
        The factors of V / unit.
    sums : NamedTuple or None
        The sums of the last accepted iteration, whose type the objective declares.
    errors, elapsed, passes : list of float
        The history of the run.
    reason : StopReason or None
        Why the run has ended, or None.
    init : str
        The name of its init, for a race.
    seed : int or None
        The seed of its init, if it is one of several starts.
    since : int
        The number of iterations before the present objective.
    stretch : int
        How often the run has continued with another objective; see `continue_from`.
    """

    init = ""
    seed: int | None = None
    stretch = 0
    _is_same = True  # whether earlier errors are those of the same objective, up to rounding
    _given: tuple[Array, Aligned | None] | None = None

    def __init__(
        self,
        objective: AnyObjective,
        W: Array,
        H: Aligned | None,
        solver: Solver,
        stopping: Stopping = Stopping(),
        *,
        callback: Callback | None = None,
        resume: Parts | None = None,
        save: Callable[[Run, bool], None] | None = None,
        began: Interval | None = None,
        approximation: AnyObjective | None = None,
    ) -> None:
        V = objective.V
        self._gram: Array | None = None  # W'W, if the last update has computed it
        self._shared: NamedTuple | None = None  # of the last pass, if W is still that of the pass
        F, N = V.shape
        K = np.shape(W)[1]
        # The products of a pass cost 4 K `work`, a sweep over H costs 2 N K^2, over W 2 F K^2.
        work = min(F * (F + N), 2 * V.n_entries)
        self._affordable = 2 * work / K / N, 2 * work / K / F
        self._asked = solver
        self._updates = objective.updates(solver, *self._affordable)
        self.solver = self._updates.solver
        self.floors = [FLOOR * one.floored for one in (self.solver, solver)]  # of H and of W
        self.callback = callback
        self.save = save
        self._dtype = V.dtype
        is_exact = resume is not None and resume.arrays["W"].dtype == V.dtype
        if approximation is None or is_exact:
            self.objective = objective
            self._exact = None
        else:
            self.objective = approximation
            self._exact = objective
            self._given = (W, H) if resume is None else None  # until the first iteration
        self.V = self.objective.V
        self._seconds, self._read = (clock(), V.passes_here) if began is None else began
        if resume is None:
            self._begin(W, H)
        else:
            self._resume(resume)
        self._taken = self.elapsed[-1] if self.elapsed else 0.0  # time before this call
        self._seconds -= self._taken
        self._read -= self.passes[-1] if self.passes else 0.0
        self.continue_with(stopping)

    def _begin(self, W: Array, H: Aligned | None) -> None:
        self.W, self.Ht = self._scaled_factors(W, H)
        self.sums: NamedTuple | None = None
        self.value = np.inf
        self.errors: list[float] = []
        self.elapsed: list[float] = []
        self.passes: list[float] = []
        # W one iteration earlier, and H after the last update, before extrapolation
        self._W_before = self.W
        self._Ht_before = self.Ht
        self._beta = (
            _FIRST_BETA  # extrapolation factor: share of the last change to add to an update
        )
        self._ceiling = 1.0  # upper limit of beta
        self._rests = True  # whether the next iteration is not extrapolated
        self.since = 0  # number of iterations with an earlier objective, as in single precision

    def continue_with(self, stopping: Stopping) -> None:
        """Set the limits; a run that has ended may continue with new limits."""
        self.stopping = stopping
        elapsed = self.elapsed[-1] if self.elapsed else 0.0
        self.reason = stopping.reason(self.errors, elapsed - self._taken, self.since)

    @property
    def n_iter(self) -> int:
        """The number of iterations."""
        return len(self.errors)

    @property
    def in_units(self) -> float:
        """The value of the objective in the units of V."""
        return self.value * self.objective.unit**self.objective.loss.degree

    @property
    def approximation(self) -> AnyObjective | None:
        """The similar objective that this run still uses, or None."""
        return None if self._exact is None else self.objective

    def run(self) -> None:
        """Iterate until a limit is reached.

        An approximation of the objective is used only as long as it shows how the error falls.
        """
        with self.V.own_threads():
            while self.reason is None:
                self.step()
                if self._exact is not None and self._is_blurred():
                    self._continue_with(self._exact)

    def _is_blurred(self) -> bool:
        """Return whether the approximation no longer shows how the error falls."""
        if self.reason is StopReason.CALLBACK:
            return False
        fall = self.stopping.fall(self.errors)
        return self.objective.is_blurred(self.errors[-1], fall, self.stopping.tol, self.n_iter)

    def _continue_with(self, objective: AnyObjective) -> None:
        """Continue from the same state; only errors of the objective itself may then converge.

        If the first iteration shows that the init is nearly exact, continue from the init, because
        rounding may have lost more than an iteration gains.
        """
        self._use(objective)
        if self._given is not None:
            self.W, self.Ht = self._W_before, self._Ht_before = self._scaled_factors(*self._given)
        else:
            self._resize(1.0)
        self.continue_with(self.stopping)

    def continue_from(
        self, objective: AnyObjective, W: Array, H: Aligned, stopping: Stopping
    ) -> None:
        """Continue with another objective for the same V, from these factors.

        The history goes on, but only errors of the new objective may converge.
        """
        self._read += objective.V.passes_here - self.V.passes_here
        self._use(objective)
        self._updates = objective.updates(self._asked, *self._affordable)
        self.W, self.Ht = self._W_before, self._Ht_before = self._scaled_factors(W, H)
        self.sums = None
        self._rests = True  # errors of two objectives cannot be compared
        self._is_same = False
        self.stretch += 1
        self.continue_with(stopping)

    def _use(self, objective: AnyObjective) -> None:
        """Continue with an objective; only its own errors may converge."""
        self.objective = objective
        self._exact = None
        self.V = objective.V
        self._gram = self._shared = None  # of a W that has changed
        self._beta = _FIRST_BETA  # rounding may have undone good iterations
        self._ceiling = 1.0
        self.since = self.n_iter

    def step(self) -> None:
        """Do one iteration: one pass over V."""
        part = self.propose()
        *rows, sums = part.V.sweep(part.step, *part.aligned, **part.shared)
        self.settle(rows, sums)

    def propose(self) -> Part:
        """Choose the factors for the next pass; before the first iteration, save."""
        if self.save is not None:
            self.save(self, False)
        if self.errors:
            self._given = None
        W = self.W
        gram = self._gram
        if self.solver.first == "W":
            if self.sums is None:
                self._first_pass()
            W, _, gram = self._update_W(self.sums, self.W, self.Ht)
        is_bold = self.solver.extrapolate and not self._rests
        share = self._beta if is_bold else 0.0
        floor_H, floor_W = self.floors
        move = Move(self._updates.H, share, floor_H, self._updates.kept)
        if is_bold:
            W = move._replace(floor=floor_W).extrapolate(W, self._W_before)
            gram = None
        self._tried_W = W
        self._tried_beta = share
        return self._part(W, move, gram)

    def _update_W(
        self, sums: NamedTuple | None, W: Array, Ht: Aligned, C: Array | None = None
    ) -> Updated:
        update = self._updates.near(W)
        return self.objective.update_W(sums, self._shared, W, Ht, update, C)

    def _part(self, W: Array, move: Move, gram: Array | None = None) -> Part:
        """Return a pass with W; coefficients that sum to one are the best and not extrapolated."""
        objective = self.objective
        is_moved = self.solver.extrapolate and not objective.penalties.sum_to_one
        rows = (self.Ht, self._Ht_before) if is_moved else (self.Ht,)
        shared = self._shared = objective.shared(W, self.n_iter, gram)
        how: Facts = {
            "objective": type(objective),
            "n_own": len(objective.aligned),
            "has_codes": bool(objective.codes),
            "shared": shared,
            "move": move,
        }
        X = shared.W if objective.takes_products else None
        own = (*objective.aligned, *objective.codes)
        return Part(self.V, step_of_run, (*own, *rows), how, len(rows), X=X)

    def _first_pass(self) -> None:
        """Compute the sums for the init, and scale W if the solver needs it."""
        part = self._part(self.W, Move(_keep))
        self.Ht, self.sums = part.V.sweep(part.step, *part.aligned, **part.shared)
        if self._updates.scale is not None:
            self.W = self._updates.scale(self.sums, self.W)
            self._shared = None

    def settle(self, rows: list[Aligned], sums: NamedTuple, C: Array | None = None) -> None:
        """Accept the result of a pass, or undo it if the objective has risen; end the iteration.

        `rows` contains the new H and, if it was extrapolated, the H before that. `C` is V H' if it
        was computed for several runs at once.
        """
        W = self._tried_W
        gram = None
        if self.solver.first == "H":
            W, value, gram = self._update_W(sums, W, rows[0], C)
        else:
            value = self.objective.value(sums, W, rows[0])
        error = self.objective.relative_error(value)
        if np.isnan(error) or not np.isfinite(W).all():
            problem = f"iteration {self.n_iter + 1} ended in NaN or infinity: begin with "
            raise NotFiniteError(problem, Option("init", "auto"))
        # Relative errors are compared: a rise within rounding must not undo an iteration.
        if self._tried_beta and self.errors and error > self.errors[-1]:
            self._rests = True
            self._ceiling = self._tried_beta
            self._beta = self._tried_beta / _CAUTION_RATIO
            error = self.errors[-1]
            self._gram = self._shared = None  # of a W that has changed
        else:
            self._gram = gram
            self._accept(W, rows, sums)
            self.value = value
            if self.since and self._is_same and error > self.errors[-1]:  # errors were rounded
                self.errors = [max(earlier, error) for earlier in self.errors]
        self.errors.append(error)
        self._end_iteration()

    def _accept(self, W: Array, rows: list[Aligned], sums: NamedTuple) -> None:
        before = self.W
        self.W = W
        self.Ht = rows[0]
        self.sums = sums
        if not self.solver.extrapolate:
            return
        if self._tried_beta:
            self._beta = min(self._ceiling, _GROWTH_RATIO * self._tried_beta)
            self._ceiling = min(1.0, _CEILING_GROWTH_RATIO * self._ceiling)
        self._rests = False
        self._W_before = before
        self._Ht_before = rows[-1]
        if not self.objective.penalties.are_none:
            return
        # A component that no sample has used for a while may return with a huge column in W. This
        # column would set the scale, and the others would be floored, or lost in single precision.
        size = column_units(W)
        if np.any(size != 1):
            self._resize(size)

    def _resize(self, size: float | Array) -> None:
        """Divide each column of W by its size and multiply H by it, in the precision of V."""
        V = self.V
        dtype = self.objective.dtype
        self._gram = self._shared = None  # of a W that has changed
        self.W, self._W_before = (
            (W / size).astype(dtype, copy=False) for W in (self.W, self._W_before)
        )
        self.Ht, self._Ht_before = (
            V.map(_scale, Ht, factor=size, dtype=dtype)[0] for Ht in (self.Ht, self._Ht_before)
        )

    def _end_iteration(self) -> None:
        """Record the history, call the callback, and decide whether to stop."""
        self.elapsed.append(clock() - self._seconds)
        self.passes.append(self.V.passes_here - self._read)
        self.continue_with(self.stopping)
        if self.callback is None:
            return
        now = Iteration(
            self.n_iter, self.elapsed[-1], self.errors[-1], self.passes[-1], self.in_units
        )
        if asks_to_stop(self.callback, now):
            self.reason = StopReason.CALLBACK
            if self.save is not None:
                self.save(self, True)

    def updates_on(self, V: DataMatrix) -> bool:
        """Return whether W is updated by products of H with the transposed V."""
        objective = self.objective
        is_first = self.V is V and self.solver.first == "H"
        return is_first and objective.takes_products and objective.turned is not None

    def factors(self) -> Factors:
        """Return W (F, K) and H (K, N) in the scale of V."""
        Ht = self.Ht
        if self.objective.unit != 1:
            Ht, _ = self.V.map(_scale, Ht, factor=self.objective.unit, dtype=self._dtype)
        return self.W.astype(self._dtype, copy=False), Ht.T

    def history(self) -> History:
        """Return the history."""
        return History(np.array(self.errors), np.array(self.elapsed), np.array(self.passes))

    def solution(self) -> Solution:
        """Return the factors with the history and the reason."""
        assert self.reason is not None
        return Solution(*self.factors(), self.history(), self.reason)

    def _scaled_factors(self, W: Array, H: Aligned | None) -> Factors:
        """Return W (F, K) with columns of ordinary sizes, and H (N, K) to match, for V / unit."""
        if H is None and (self.solver.first == "W" or self.solver.lift_zeros):
            raise DataError("this solver needs an initial H: pass one with W")
        W = np.asarray(W)
        dtype = self.objective.dtype
        size = column_units(W) if self.objective.penalties.are_none else np.ones(W.shape[1])
        if H is None:
            Ht = self.V.by_rows(lambda index: np.zeros((len(index), len(size)), dtype))
        else:
            Ht, _ = self.V.map(_scale, H.T, factor=size / self.objective.unit, dtype=dtype)
        return np.ascontiguousarray(W / size, dtype), Ht

    # --- checkpoints ----------------------------------------------------------------------------

    def parts(self) -> Parts:
        """Return everything that the next iterations depend on, by name."""
        sums = {} if self.sums is None else self.sums._asdict()
        arrays = {_SUM_PREFIX + name: one for name, one in sums.items() if one is not None}
        arrays = {name: np.asarray(one) for name, one in arrays.items()}
        arrays |= {"W": self.W, "W before": self._W_before, **self._found()}
        aligned = {"H": self.Ht}
        if self.solver.extrapolate:
            aligned["before"] = self._Ht_before
        plain = {
            "value": self.value,
            "history": [self.errors, self.elapsed, self.passes],
            "since": self.since,
            "stretch": [self.stretch, self._is_same],
            "momentum": [self._beta, self._ceiling, self._rests],
        }
        return Parts(arrays, aligned, plain)

    def _found(self) -> Facts:
        """Return what groups change, on which the objective depends."""
        groups = self.objective.groups
        names = () if groups is None else ("scales", "table", "weights", "matter")
        found = {GROUP_PREFIX + name: getattr(groups, name) for name in names}
        return {name: np.asarray(one) for name, one in found.items() if one is not None}

    def _resume(self, parts: Parts) -> None:
        arrays, aligned, plain = parts
        self.W = arrays["W"]
        self._W_before = arrays["W before"]
        sums = {
            name.removeprefix(_SUM_PREFIX): array
            for name, array in arrays.items()
            if name.startswith(_SUM_PREFIX)
        }
        self.sums = self.objective.Sums(**sums) if sums else None
        self.value = plain["value"]
        self.since = plain["since"]
        self.stretch, self._is_same = plain["stretch"]
        self.errors, self.elapsed, self.passes = plain["history"]
        self._beta, self._ceiling, self._rests = plain["momentum"]
        self.relocate(aligned)

    def relocate(self, aligned: dict[str, Aligned]) -> None:
        """Continue with aligned arrays that were read from a checkpoint."""
        self.Ht = aligned["H"]
        self._Ht_before = aligned.get("before", self.Ht)


def _keep(G: Array, C: Array, Y: Array) -> Array:
    """Update of a pass that only computes sums."""
    return Y


def _scale(index: range, H: Array, *, factor: float | Array, dtype: DType) -> PerSample:
    return np.ascontiguousarray(H * factor, dtype), None


def run_together(V: DataMatrix, runs: Sequence[Run]) -> Iterator[tuple[int, Run]]:
    """Advance runs on V, or on views of it; every pass over V serves all unfinished runs.

    Each run has the same bits as alone, and is yielded with its number as soon as it has ended. It
    is not stored here, because its H may be large.
    """
    active = dict(enumerate(runs))
    del runs
    with V.own_threads():
        while active:
            for number in [number for number, run in active.items() if run.reason is not None]:
                yield number, active.pop(number)
            _step_together(V, list(active.values()))


def _step_together(V: DataMatrix, runs: list[Run]) -> None:
    """Do one iteration of each run with one pass over V."""
    if not runs:
        return
    outcomes = sweep_together(V, [run.propose() for run in runs])
    products = _products_together(V, runs, [Ht for Ht, *_ in outcomes])
    for run, (*rows, sums), C in zip(runs, outcomes, products, strict=True):
        run.settle(rows, sums, C)


def _products_together(V: DataMatrix, runs: list[Run], new: list[Aligned]) -> list[Array | None]:
    """Return V H' of the runs that update W on the transposed V, in one pass; None for others."""
    products: list[Array | None] = [None] * len(runs)
    places = [place for place, run in enumerate(runs) if run.updates_on(V)]
    if places:
        turned = runs[places[0]].objective.turned
        assert turned is not None
        found = products_together(turned, [np.asarray(new[place]) for place in places])
        for place, C in zip(places, found or [], strict=False):
            products[place] = C
    return products


def without_floor(V: DataMatrix, W: Array, H: Aligned) -> Array:
    """Return W (F, K) of a solver that floors, with zeros at entries that are at the floor.

    The floor represents zero. But if all of a column is near the floor, with a huge row in H, its
    entries at the floor contribute to W H. Such a column keeps them, and is scaled to an ordinary
    size.
    """
    floorless = np.where(W > FLOOR, W, 0)
    is_small = W.max(axis=0) < _SMALL_ENTRY
    if is_small.any():
        (squares,) = V.map(lambda _, rows: ((exact(rows) ** 2).sum(axis=0),), H.T)
        lost = FLOOR * np.sqrt(len(W) * squares)
        is_real = is_small & (lost > _FLOOR_SHARE * V.norm)
        floorless[:, is_real] = (W / column_units(W))[:, is_real]
    return floorless

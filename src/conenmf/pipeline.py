"""The pipeline of one fit: check, choose K, begin, run, finish, judge.

Whatever the solver, a fit ends with the exact H for its W, so that the coefficients of a sample
depend on W alone and the reported error is that of the factors returned. Each step is a call of
another module: `solve.problem`, `judge.choose_k`, `solve.race`, `solve.run`, `judge.certificate`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import kernels
from .arguments import components, function, generator, instance, optional, path
from .cones.certificate import Certificate, first_certificate
from .data.blocks import Array
from .data.known import filled
from .data.matrix import Aligned, DataMatrix
from .data.sketch import checked_rank, is_dense, sketch_rank
from .data.sketch import sketch as make_sketch
from .data.validate import checked_components, require_data_matrix
from .errors import Message, Option, OptionError
from .judge.certificate import first_known
from .judge.choose_k import choose_k
from .linalg.svd import Spectrum
from .result import Factorization
from .scale.checkpoint import Checkpoint, CheckpointedRun, described, held_folder, identity_of
from .solve.constraints import NO_PENALTIES, Fixed, Penalties
from .solve.inits import CONE_INITS, Init, Start, lie_in_cones
from .solve.losses import Loss, get_loss
from .solve.problem import Problem
from .solve.race import Race, prospect
from .solve.run import (
    Callback,
    History,
    Iteration,
    Leap,
    Log,
    Saved,
    Stopping,
    StopReason,
    alternate,
    without_floor,
)
from .solve.solvers import Solver, Update, solver_name
from .text import function_name

_MIN_GAIN_SHARE = 1e-3  # share of the error that an iteration must still bring for a sketch to pay
_SKETCH_TOL = 2e-3  # tol on a sketch, which V itself then refines


def factorize(
    V: DataMatrix,
    K: int | str = "auto",
    *,
    init: Init = "auto",
    loss: str = "frobenius",
    solver: str | Solver | Update | None = "auto",
    max_iter: int = 200,
    tol: float = 1e-5,
    max_time: float | None = None,
    callback: Callback | None = None,
    rng: np.random.Generator | None = None,
    sketch: int | str | None = "auto",
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    fixed: Fixed | npt.ArrayLike | None = None,
    penalties: Penalties | None = None,
) -> Factorization:
    """Factor V ~ W H with nonnegative W (F, K) and H (K, N).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int or "auto"
        Number of components; "auto" counts the cones where samples lie in cones, else takes the
        largest ratio of adjacent singular values where that stands out, else parallel analysis; the
        result says which in `K_decided_by` (see `judge.choose_k.choose_k`).
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        "cr1", "cr1++", "cr1-robust", "random", "nndsvd", "nndsvda", "nndsvdar", "nnsvdlrc",
        "rank-two" (for K = 2), "spa", "snpa", "spkm", "kmeans", "kl-kmeans", "fuzzy", "acol",
        "random-c", "cur"; "auto", which lets several compete by the error they lead to (`Race`); a
        function ``(V, K, rng) -> (W, H or None)``; your own W, or W and H. The function always gets
        a generator: `rng`, or one that is seeded with 0.
    loss : {"frobenius", "poisson"}, or another of `solve.losses.LOSSES`
        What is minimised: ||V - W H||^2, or for counts the divergence of W H from V, sum v log(v/x)
        - v + x, which is the Poisson likelihood; "kullback-leibler" is the same. Its relative error
        is the share of the divergence of a single component that is left, and the columns of W add
        up to 1.
    solver : str, Solver, callable or None
        "hals", "mult", "nnlsb"; "plain-hals", "plain-mult", "plain-nnlsb", which are those of
        the paper's experiments, one sweep per product and without extrapolation; a `Solver`; an
        update ``(G, C, Y) -> Y``; or None for the init alone. For the Poisson loss "newton" and
        "mult". "auto" is the first one of each.
    max_iter, tol, max_time
        See `Stopping`. `max_time` counts from the call and covers the choice of K and the init;
        the exact finish, one pass for H, is not counted.
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True, or raising StopIteration,
        ends the run. During the race of inits it is called for every error of V that is the lowest
        so far, with 0 for the iteration; on a sketch, after every round, for which V is read once
        more. Returning True then ends the fit with those factors.
    rng : numpy.random.Generator, optional
        For inits that draw. Without it "auto" and "cr1" are deterministic.
    sketch : int, "auto" or None
        The rank of a sketch of V on which to iterate, which is much cheaper. The race of inits is
        run on it; with an init of your own choice, the solver iterates on it after two iterations
        on V, and continues with V from there if that lowers its error. "auto" does so with rank 2K
        where a pass over the sketch is several times cheaper, and, outside the race, only if the
        samples do not evidently lie in cones and the error is still falling; None never.
        The errors reported are always those of V. For "hals" and "nnlsb" only.
    checkpoint : path or Checkpoint, optional
        A folder in which the factors, the history and the state of `rng` are saved every minute
        (`Checkpoint` says how often). The same call after the process was killed resumes from
        there and ends with the same bits; with a larger `tol` that was met before, it ends at once,
        and a `CheckpointWarning` says so. Other data, options or functions are refused, and so is a
        folder that another run uses. A run that has ended is not saved again; delete the folder to
        run from the beginning.
    fixed : array (F, n), optional
        Known components: they are the first n of the K, stay as they are given, and the others are
        started from what they leave. An init of your own has all K columns; the first n of them do
        not count.
    penalties : Penalties, optional
        What is added to the squared error, or abundances that sum to one. `objective` and the
        history then are those of the sum; `relative_error` is that of the factors alone.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> from conenmf.cones.simulate import make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> result = factorize(from_columns(model.V))
    >>> result.K, result.relative_error < 0.1
    (4, True)
    """
    require_data_matrix(V, nonzero=True, holes=True)
    stopping = Stopping(tol, max_iter=max_iter, max_time=max_time)
    optional(function, "callback", callback, takes=1)
    optional(generator, "rng", rng)
    minimised = get_loss(loss)
    chosen = minimised.solver(solver)
    added = NO_PENALTIES if penalties is None else instance("penalties", penalties, Penalties)
    problem = Problem.of(V, minimised, chosen, fixed, added)
    K = checked_K(K, V) if problem.fixed is None else problem.fixed.checked_K(checked_K(K, V))
    sketch = _checked_sketch(sketch, chosen, minimised)
    settings = _settings(K, init, minimised, solver, sketch, stopping) | problem.plain()
    fit = _Fit(V, problem, chosen, stopping, callback, sketch)
    with V.own_threads(), ExitStack() as stack:
        if checkpoint is not None and solver is not None:
            identity = _identity(settings, init, solver, problem)
            fit.keep(checkpoint, identity, rng, stack)
        if not fit.resume():
            fit.begin(fit.choose_k(K), init, rng)
        W, history, stop_reason = fit.solve()
        return fit.finish(W, history, stop_reason, settings)


def checked_K(K: object, V: DataMatrix) -> int | str:
    """Return the number of components, or "auto"; refuse anything else."""
    if isinstance(K, str) and K == "auto":
        return "auto"
    return checked_components(components(K, auto=True), V)


def _checked_sketch(
    sketch: int | str | None, solver: Solver | None, loss: Loss
) -> int | str | None:
    """Return the rank of a sketch, "auto" or None; refuse what the solver or loss cannot use."""
    rank = checked_rank("sketch", sketch)
    if "sketch" not in loss.constraints:
        if isinstance(rank, int):
            problem = " is for least squares: singular vectors do not keep counts, so leave it out"
            raise OptionError(Message(Option("sketch", rank), problem))
        return None
    if isinstance(rank, int) and (solver is None or not solver.extrapolate):
        problem = (
            " needs a solver that is extrapolated: 'hals', 'nnlsb', "
            "or a Solver with extrapolate=True"
        )
        raise OptionError(Message(Option("sketch", rank), problem))
    return rank


def _settings(
    K: int | str,
    init: Init,
    loss: Loss,
    solver: str | Solver | Update | None,
    sketch: int | str | None,
    stopping: Stopping,
) -> dict[str, Any]:
    """What was asked for in plain values, which can be saved."""
    is_auto = isinstance(solver, str) and solver == "auto"
    limit = stopping.max_time
    return {
        "K": K,
        "init": init if isinstance(init, str) else function_name(init),
        "loss": loss.name,
        "solver": next(iter(loss.solvers)) if is_auto else solver_name(solver),
        "sketch": sketch,
        "max_iter": int(stopping.max_iter),
        "tol": float(stopping.tol),
        "max_time": None if limit is None else float(limit),
    }


def _identity(
    settings: dict[str, Any], init: Init, solver: str | Solver | Update, problem: Problem
) -> dict[str, Any]:
    """What a checkpoint compares."""
    factors = init if isinstance(init, tuple) else (init,)
    arrays = [array for array in factors if isinstance(array, np.ndarray | list)]  # not Dask's
    functions = [one for one in (init, solver) if callable(one) or isinstance(one, Solver)]
    identity = {name: settings[name] for name in ("K", "init", "loss", "solver", "sketch")}
    identity["penalties"] = problem.penalties.plain()
    identity["fixed"] = None if problem.fixed is None else described(problem.fixed)
    identity["arrays"] = described([np.asarray(array, np.float64) for array in arrays])
    identity["code"] = [described(one) for one in functions]
    return identity


@dataclass
class _Clock:
    """The seconds of each stage, 0 for one that did not run; what numba compiles does not count."""

    max_time: float | None
    began: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("rank", "init", "sketch", "solve", "finish"), 0.0)
    )
    _entered: tuple[float, float] | None = None

    @property
    def elapsed(self) -> float:
        """The seconds until the solver, or until now if an earlier stage has not ended."""
        now = 0.0 if self._entered is None else _since(*self._entered)
        return self.seconds["rank"] + self.seconds["init"] + now

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        entered = self._entered = time.perf_counter(), kernels.compiling.seconds
        yield
        self.seconds[name], self._entered = _since(*entered), None

    def remaining(self, elapsed: float = 0.0) -> float | None:
        """The seconds left of `max_time`, for a run that has taken some of them already."""
        if self.max_time is None:
            return None
        return max(self.max_time - (time.perf_counter() - self.began) + elapsed, 0.0)


def _since(began: float, compiled: float) -> float:
    """The seconds since then, without those of compiling."""
    compiling = kernels.compiling.seconds - compiled
    return max(time.perf_counter() - began - compiling, 0.0)


class _Fit:
    """One fit on its way: what was decided so far, and where the solver begins."""

    start: Start

    def __init__(
        self,
        V: DataMatrix,
        problem: Problem,
        solver: Solver | None,
        stopping: Stopping,
        callback: Callback | None,
        sketch: int | str | None,
    ) -> None:
        self.V, self.solver, self.stopping, self.callback = V, solver, stopping, callback
        self.data, self.problem = problem.iterated(V)
        self.clock, self.passes = _Clock(stopping.max_time), V.passes_here
        self._read = self.data.passes_here
        self.spectrum = Spectrum(V) if V.observed is None else None
        self.sketch = sketch
        self.sketch_rank: int | None = None
        self.checkpoint: CheckpointedRun | None = None
        self.saved: Saved | None = None
        self.K_decided_by = "user"
        self.spent = [0.0, 0.0]  # seconds and passes before the solver

    def keep(
        self,
        checkpoint: str | os.PathLike[str] | Checkpoint,
        identity: dict[str, Any],
        rng: np.random.Generator | None,
        stack: ExitStack,
    ) -> None:
        """Hold the folder of a checkpoint, in which the run is saved."""
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(path("checkpoint", checkpoint))
        stack.enter_context(held_folder(Path(checkpoint.folder)))
        identity = identity_of(self.V, identity, rng)
        self.checkpoint = CheckpointedRun(checkpoint, self.V, identity, rng)
        self._read = self.data.passes_here  # comparing the data is no part of the run

    def resume(self) -> bool:
        """Take over what a checkpoint kept; return whether there was any."""
        if self.checkpoint is None:
            return False
        self.saved = Saved.of_parts(self.checkpoint.load(self.stopping.max_iter))
        if self.saved is None:
            return False
        self.clock.seconds |= self.checkpoint.facts["seconds"]
        facts = dict(self.checkpoint.facts["begun"])
        race, W = Race.of_plain(facts["race"]), self.checkpoint.initial_W
        W = self.saved.state.W if W is None else W
        self.start = Start(W, None, facts["init_used"], facts["error"], race)
        self.K_decided_by, self.sketch_rank = facts["K_decided_by"], facts["sketch_rank"]
        self.spent = facts["spent"]
        return True

    def choose_k(self, K: int | str) -> int:
        """Return the number of components, chosen if that was asked for."""
        with self.clock.timed("rank"):
            if not isinstance(K, str):
                return K
            whole = filled(self.data if self.spectrum is None else self.V)
            known = self.spectrum if whole is self.V else None
            limit = self.clock.remaining()
            K, self.K_decided_by, _ = choose_k(whole, spectrum=known, max_time=limit)
            return max(K, self.problem.n_fixed)

    def begin(self, K: int, init: Init, rng: np.random.Generator | None) -> None:
        """Make the initial factors, and leave to the checkpoint what it is to save."""
        data, solver = self.data, self.solver
        is_extrapolated = solver is not None and solver.extrapolate
        with self.clock.timed("init"):
            self.start = self.problem.begin(
                data,
                K,
                init,
                solver,
                rng,
                spectrum=self.spectrum,
                rank=self.sketch if is_extrapolated else None,
                remaining=self.clock.remaining,
                callback=None if self.callback is None else self._watch,
            )
            if self.problem.is_plain and self.sketch is not None and is_extrapolated:
                self.sketch_rank = self._rank_of_sketch()
        self.spent = [self.clock.elapsed, data.passes_here - self._read]
        state = self.start.state
        self.saved = None if state is None else Saved(state, Log())
        if self.checkpoint is not None:
            race = None if self.start.race is None else self.start.race.plain()
            facts = {"K_decided_by": self.K_decided_by, "init_used": self.start.name}
            more = {"sketch_rank": self.sketch_rank, "error": self.start.error, "race": race}
            begun = {**facts, **more, "spent": self.spent}
            self.checkpoint.facts = {"begun": begun, "seconds": dict(self.clock.seconds)}
            self.checkpoint.initial_W = self.start.W

    def _watch(self, now: Iteration) -> object:
        """Call the callback with the seconds and passes since the call."""
        assert self.callback is not None
        passes = self.data.passes_here - self._read
        return self.callback(replace(now, elapsed=self.clock.elapsed, passes=passes))

    def _later(self, now: Iteration) -> object:
        """Do the same for an iteration of the solver, which counts from its own beginning."""
        assert self.callback is not None
        seconds, passes = self.spent
        later = replace(now, elapsed=now.elapsed + seconds, passes=now.passes + passes)
        return self.callback(later)

    def _rank_of_sketch(self) -> int | None:
        """The rank of the sketch to iterate on, if any."""
        start = self.start
        if start.race is not None or start.name == "identity":
            return None  # the race was run there, if it paid
        if isinstance(self.sketch, int):
            return self.sketch
        rank = sketch_rank(self.data, start.W.shape[1])
        if rank is None:
            return None
        if start.name in CONE_INITS and lie_in_cones(self.data, start.W, start.error):
            return None  # in cones a sketch delays the last digits
        return rank

    def solve(self) -> tuple[Array, History, StopReason]:
        """Return the W that the solver ended with, or that of the init if there is no solver."""
        with self.clock.timed("solve"):
            problem, W, is_exact = self.problem, self.start.W, self.start.error <= Stopping.exact
            solver = None if W.shape[1] == problem.n_fixed else self.solver
            if solver is None or self.start.is_stopped:
                reason = StopReason.INIT if solver is None else StopReason.CALLBACK
                return problem.restored(W), Log().history(), reason
            if self.saved is None and self.start.H is None and is_exact:
                return W, Log().history(), StopReason.EXACT
            return self._run(solver)

    def _run(self, solver: Solver) -> tuple[Array, History, StopReason]:
        problem, data, first = self.problem, self.data, self.start.W
        taken = 0.0 if self.saved is None else self.saved.log.last_elapsed
        limit = self.clock.remaining(taken)
        solution = alternate(
            data,
            first,
            self._take_H(),
            solver,
            stopping=replace(self.stopping, max_time=limit, is_plateau=self._plateau_test()),
            callback=None if self.callback is None else self._later,
            leap=self._leap(solver),
            resume=self.saved,
            save=None if self.checkpoint is None else self.checkpoint.save_if_due,
            objective=problem.objective(data),
        )
        history, (seconds, passes) = solution.history, self.spent
        errors = history.relative_error
        is_lower = bool(errors.size and errors[-1] <= self.start.error)
        is_ahead = is_lower or bool(errors.size and not problem.is_plain)
        W = solution.W if is_ahead else first  # a run that was stopped early may be worse
        if solver.floored and is_ahead:
            W = without_floor(data, W, solution.H)
        history = History(errors, history.elapsed + seconds, history.passes + passes)
        return problem.restored(W), history, solution.stop_reason

    def _take_H(self) -> Aligned | None:
        """Return H and forget it: the loop has a copy, and one may be all that fits in memory."""
        H, self.start = self.start.H, self.start._replace(H=None)
        return H

    def _leap(self, solver: Solver) -> Leap | None:
        """A leap of the loop that iterates on a sketch of V until little more can be gained."""
        rank = self.sketch_rank
        if rank is None:
            return None

        def leap(W: Array, H: Aligned, errors: list[float]) -> tuple[Array, Aligned] | None:
            is_falling = errors[-2] - errors[-1] >= _MIN_GAIN_SHARE * errors[-1]
            if isinstance(self.sketch, str) and not is_falling:
                return None
            with self.clock.timed("sketch"):
                S = make_sketch(self.data, rank)
                tol = max(self.stopping.tol, _SKETCH_TOL)
                limits = Stopping(tol=tol, max_time=self.clock.remaining())
                solution = alternate(S, W, H, solver, stopping=limits)
            return solution.W, solution.H

        return leap

    def _plateau_test(self) -> Callable[[float], bool] | None:
        """Whether an error is a plateau; the singular values are looked at when first asked.

        It is none if several inits have led to it. Solvers as published stop where the published
        ones do.
        """
        K, race = self.start.W.shape[1], self.start.race
        is_extrapolated = self.solver is not None and self.solver.extrapolate
        knows = "singular values" in self.problem.loss.lower_bounds and self.problem.is_plain
        if not (knows and is_extrapolated and min(self.data.shape) > K) or (
            race is not None and race.is_agreed
        ):
            return None

        def is_plateau(error: float) -> bool:
            if self.start.prospect is None:
                known = None if is_dense(self.data) else self.spectrum
                found = prospect(self.data, K, spectrum=known)
                self.start = self.start._replace(prospect=found)
            assert self.start.prospect is not None
            return self.start.prospect.is_plateau(error)

        return is_plateau

    def finish(
        self, W: Array, history: History, stop_reason: StopReason, settings: dict[str, Any]
    ) -> Factorization:
        """Return the result: the exact H for W, and how good the two are."""
        V = self.V
        with self.clock.timed("finish"):
            end, error = self.problem.finish(V, W, sort=stop_reason is not StopReason.INIT)
        own = V if V.unweighed is None else V.unweighed.V
        return Factorization(
            W=np.ascontiguousarray(W[:, end.order]),
            H=end.H,
            labels=end.labels,
            shares=end.shares,
            loss=self.problem.loss.name,
            objective=end.objective,
            relative_error=error,
            history=history,
            stop_reason=stop_reason,
            seconds=self.clock.seconds,
            first_certificate=self._first_certificate(error, end.kkt_residual),
            passes=V.passes_here - self.passes,
            settings=settings,
            K_decided_by=self.K_decided_by,
            init_used=self.start.name,
            race=self.start.race,
            prospect=self.start.prospect,
            spectrum=self.spectrum,
            preparation=own.preparation,
            names=own.names,
            vocabulary=own.vocabulary,
            data=V,
        )

    def _first_certificate(self, error: float, residual: float) -> Certificate | None:
        """What a fit knows about how good it is, without more work; of counts nothing yet."""
        bounds = self.problem.loss.lower_bounds
        if bounds and "singular values" not in bounds:
            return None
        if self.spectrum is None or not bounds:
            return first_known(error, residual)
        seen = self.start.prospect
        proven = 0.0 if seen is None else seen.proven
        return first_certificate(error, residual, self.start.W.shape[1], self.spectrum, proven)

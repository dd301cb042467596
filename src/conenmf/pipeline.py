"""The pipeline of one fit: check, choose K, initialise, run, finish, certify.

With every solver, a fit ends by computing the exact H for its W. So the coefficients of a sample
depend on W alone, and the reported error is the error of the returned factors. Each step calls
another module: `solve.problem`, `judge.choose_k`, `solve.run`, `solve.race`, `judge.certificate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import ArrayLike

from .arguments import Rng, components, function, generator, instance, optional, path
from .data.blocks import Array
from .data.matrix import Aligned, DataMatrix
from .data.validate import checked_components
from .errors import InputWarning, Message, Option
from .io.open import as_data
from .judge.certificate import first_certificate
from .judge.choose_k import Selection, choose_k
from .kernels import clock
from .linalg.svd import Spectrum
from .result import Factorization
from .scale.checkpoint import (
    Checkpoint,
    CheckpointedRun,
    Parts,
    Place,
    described,
    held_folder,
    identity_of,
)
from .solve.constraints import NO_PENALTIES, Fixed, Penalties
from .solve.inits import CONE_INITS, Init, Start, of_counted_samples
from .solve.losses import Loss, Objective, get_loss
from .solve.problem import Problem
from .solve.race import PATIENCE, Race, hold_race, may_pay
from .solve.run import (
    Callback,
    History,
    Iteration,
    Run,
    Stopping,
    StopReason,
    asks_to_stop,
    without_floor,
)
from .solve.solvers import AnySolver, ChosenSolver, Solver, solver_name
from .text import Facts, PathLike, counted, function_name

_MOSTLY_MISSING = 0.5  # of the entries: if more are missing, a fit needs a penalty


def factorize(
    V: object,
    K: int | str = "auto",
    *,
    init: Init = "auto",
    loss: str = "frobenius",
    solver: AnySolver | None = "auto",
    max_iter: int = 200,
    tol: float = 1e-5,
    max_time: float | None = None,
    callback: Callback | None = None,
    rng: Rng = None,
    checkpoint: Place = None,
    fixed: Fixed | ArrayLike | None = None,
    penalties: Penalties | None = None,
) -> Factorization:
    """Factor V ~ W H with nonnegative W (F, K) and H (K, N).

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    K : int or "auto"
        Number of components. "auto" estimates it as `select_k` does; `K_decided_by` of the result
        says whether the estimate is proved, supported or a guess.
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        "cr1", "cr1++", "cr1-robust", "random", "nndsvd", "nndsvda", "nndsvdar",
        "nndsvd-rotated", "rank-two" (for K = 2), "spa", "snpa", "simplex" (for scenes), "spkm",
        "kmeans", "kl-kmeans", "fuzzy", "acol", "random-c", "cur"; "auto", which starts with one of
        them and tries others if they are likely to lower the error (`solve.race`); a function
        ``(V, K, rng) -> (W, H or None)``; your own W, or W and H. The function always gets a
        generator: `rng`, or one with the seed 0. If samples have weights, H belongs to the original
        samples.
    loss : {"frobenius", "poisson"}, or another of `solve.losses.LOSSES`
        What the fit minimises: "frobenius" is ||V - W H||^2. "poisson" (or "kullback-leibler") is
        the divergence sum v log(v/x) - v + x between the counts v and x = W H, which is the
        negative log-likelihood of Poisson counts up to a constant. Its relative error is the
        divergence divided by the divergence of the best single component, and the columns of W sum
        to 1.
    solver : str, Solver, callable or None
        "hals", "mult", "nnlsb"; "plain-hals", "plain-mult", "plain-nnlsb" as in the paper's
        experiments, with one sweep per product and without extrapolation; a `Solver`; an update
        function ``(G, C, Y) -> Y``; or None for the factors of the init. The Poisson loss has
        "newton" and "mult". "auto" means "hals", or "newton" for the Poisson loss.
    max_iter, tol, max_time
        When to stop, see `Stopping`. `max_time` counts from the call and includes the choice of K
        and the init, but not the last pass, which computes the exact H.
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True, or raising StopIteration,
        ends the run. While other inits compete, the number of the iteration is 0; returning True
        then ends the fit with the best factors so far.
    rng : numpy.random.Generator, optional
        Generator for random inits. Without it "auto" and "cr1" are deterministic.
    checkpoint : path or Checkpoint, optional
        A folder in which the factors, the history and the state of `rng` are saved every minute
        (pass a `Checkpoint` to change the interval). After a crash, the same call resumes and gives
        the same result as an uninterrupted run. Other data, options or functions raise an error,
        and so does a folder that another run uses. To start again, delete the folder.
    fixed : array (F, n), optional
        Known components. They are the first n of the K components and do not change. The other
        components are initialised from the residual of the known ones. If you pass an init with K
        columns, the first n are ignored.
    penalties : Penalties, optional
        Penalties that are added to the loss, or the constraint that coefficients sum to one.
        `objective` and the history include the penalties; `relative_error` does not.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> from conenmf.cones.simulate import make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> result = factorize(from_columns(model.V))
    >>> result.K, result.relative_error < 0.1
    (4, True)
    """
    V = as_data(V, nonzero=True, holes=True)
    stopping = Stopping(tol, max_iter=max_iter, max_time=max_time)
    optional(function, "callback", callback, takes=1)
    optional(generator, "rng", rng)
    minimised = get_loss(loss)
    chosen = None if solver is None else minimised.solver(solver)
    added = NO_PENALTIES if penalties is None else instance("penalties", penalties, Penalties)
    problem = Problem.of(V, minimised, chosen, fixed, added)
    K = checked_K(K, V) if problem.fixed is None else problem.fixed.checked_K(checked_K(K, V))
    settings = _settings(K, init, minimised, solver, stopping) | problem.plain()
    own = of_counted_samples(V, init)
    fit = _Fit(V, problem, chosen, stopping, own, callback, rng)
    with V.own_threads(), ExitStack() as stack:
        if checkpoint is not None and solver is not None:
            stack.enter_context(fit.saved(checkpoint, _identity(settings, init, solver, problem)))
        if checkpoint is None or not fit.resume():
            fit.begin(fit.choose_k(K))
        W = fit.run()
        return fit.finish(W, settings)


def checked_K(K: object, V: DataMatrix) -> int | str:
    """Return the number of components, or "auto"; reject anything else."""
    if isinstance(K, str) and K == "auto":
        return "auto"
    return checked_components(components(K, auto=True), V)


def _settings(
    K: int | str,
    init: Init,
    loss: Loss,
    solver: AnySolver | None,
    stopping: Stopping,
) -> Facts:
    """Return the options of the call as plain values, which can be saved."""
    is_auto = isinstance(solver, str) and solver == "auto"
    limit = stopping.max_time
    return {
        "K": K,
        "init": init if isinstance(init, str) else function_name(init),
        "loss": loss.name,
        "solver": next(iter(loss.solvers)) if is_auto else solver_name(solver),
        "max_iter": int(stopping.max_iter),
        "tol": float(stopping.tol),
        "max_time": None if limit is None else float(limit),
    }


def _identity(settings: Facts, init: Init, solver: AnySolver, problem: Problem) -> Facts:
    """Return the values that identify a checkpoint."""
    factors = init if isinstance(init, tuple) else (init,)
    arrays = [array for array in factors if isinstance(array, np.ndarray | list)]  # not Dask's
    functions = [one for one in (init, solver) if callable(one) or isinstance(one, Solver)]
    return {
        **{name: settings[name] for name in ("K", "init", "loss", "solver")},
        "penalties": problem.penalties.plain(),
        "fixed": None if problem.fixed is None else described(problem.fixed),
        "arrays": described([np.asarray(array, float) for array in arrays]),
        "code": [described(one) for one in functions],
    }


class _Fit:
    """The state of one fit: the decisions so far, and the run."""

    W: Array  # of the init, if there is no run
    K_decided_by = "user"
    selection: Selection | None = None
    init_used: str
    race: Race | None = None
    _near: Aligned | None = None  # H' of the run, if the loss is not convex in H
    _is_stopped = False  # by the callback, during a race
    _run: Run | None = None
    _checkpoint: CheckpointedRun | None = None

    def __init__(
        self,
        V: DataMatrix,
        problem: Problem,
        solver: ChosenSolver,
        stopping: Stopping,
        init: Init,
        callback: Callback | None,
        rng: Rng,
    ) -> None:
        self.V = V
        self.solver = solver
        self.stopping = stopping
        self.data, self.problem = problem.iterated(V)
        self.init = init
        self.is_auto = isinstance(init, str) and init == "auto"
        self.callback = callback
        self.rng = rng
        self._passes = V.passes_here
        self._began = clock(), self.data.passes_here
        self.seconds = dict.fromkeys(("rank", "init", "solve", "finish"), 0.0)
        self.spectrum = Spectrum(V) if V.observed is None else None
        self._known = self.spectrum if self.data is V else None  # of the run's data

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Measure the seconds of a stage, excluding compilation by numba."""
        began = clock()
        yield
        self.seconds[name] += clock() - began

    @contextmanager
    def saved(self, checkpoint: PathLike | Checkpoint, identity: Facts) -> Iterator[None]:
        """Lock the folder of a checkpoint, in which the run is saved."""
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(path("checkpoint", checkpoint))
        with held_folder(Path(checkpoint.folder)):
            identity = identity_of(self.V, identity, self.rng)
            self._checkpoint = CheckpointedRun(checkpoint, self.V, identity, self.rng)
            # passes for comparing the data do not belong to the run
            self._began = self._began[0], self.data.passes_here
            yield

    def resume(self) -> bool:
        """Continue the run of a checkpoint; return whether there was one."""
        if self._checkpoint is None:
            return False
        parts = self._checkpoint.load(self.stopping.max_iter)
        if parts is None:
            return False
        facts = self._checkpoint.facts
        self.K_decided_by = facts["K_decided_by"]
        self.init_used = facts["init_used"]
        self.race = Race.of_plain(facts["race"])
        self.seconds = facts["seconds"]
        W = parts.arrays["W"]
        self.problem = replace(self.problem, penalties=Penalties.of_plain(facts["penalties"]))
        self._run = self._new_run(Start(W, None, self.init_used), resume=parts)
        return True

    def _new_run(self, start: Start, resume: Parts | None = None) -> Run:
        assert self.solver is not None
        run = Run(
            self.problem.objective(self.data),
            start.W,
            start.H,
            self.solver,
            self.stopping,
            callback=self.callback,
            resume=resume,
            save=None if self._checkpoint is None else self._save,
            began=self._began,
            approximation=self._approximation(start.W.shape[1]),
        )
        run.init = start.name
        return run

    def _approximation(self, K: int) -> Objective | None:
        """Return the objective with which the first run of an unrestricted fit starts."""
        assert self.solver is not None
        is_first = self._run is None and self.problem.is_plain and self.solver.extrapolate
        return self.problem.loss.approximation(self.data, K, self._known) if is_first else None

    def _save(self, run: Run, ended: bool) -> None:
        assert self._checkpoint is not None
        race = None if self.race is None else self.race.plain()
        self._checkpoint.facts = {
            "K_decided_by": self.K_decided_by,
            "init_used": self.init_used,
            "penalties": self.problem.penalties.plain(),
            "race": race,
            "seconds": dict(self.seconds),
        }
        self._checkpoint.save_if_due(run, ended)

    def choose_k(self, K: int | str) -> int:
        """Return the number of components, which is chosen here if K is "auto"."""
        with self._timed("rank"):
            if not isinstance(K, str):
                return K
            limit = self.stopping.max_time
            left = None if limit is None else max(limit + self._began[0] - clock(), 0.0)
            loss = self.problem.loss
            known = self.spectrum
            chosen = choose_k(self.V, loss, spectrum=known, max_time=left)
            self.K_decided_by = chosen.sentence
            self.selection = chosen
            return max(chosen.K, self.problem.n_fixed)

    def begin(self, K: int) -> None:
        """Compute the initial factors, which are the result if there is no solver."""
        known = self.V.observed
        is_free = self.problem.penalties.are_none
        if known is not None and known.missing > _MOSTLY_MISSING and is_free and K > 1:
            problem = (
                f"{known.missing:.0%} of the entries are missing, so a fit without a penalty may "
                "predict them badly: use fit_ratings, or choose a penalty with GridSearchCV"
            )
            warnings.warn(InputWarning(problem), stacklevel=3)
        penalties = self.problem.penalties
        is_solved = self.solver is not None and self.problem.n_fixed < K
        smaller = min(self.V.shape)
        if K > smaller and self.problem.n_fixed < K:
            side = "sample" if smaller == self.V.n_samples else "feature"
            problem = f"{K} components are more than the {counted(smaller, side)}: {smaller} can "
            advice = f"describe any data exactly, the others are arbitrary; use at most {smaller}"
            warnings.warn(InputWarning(problem + advice), stacklevel=3)
        if penalties.sum_to_one and not penalties.min_volume and is_solved and K > 1:
            problem = " alone does not determine the components, as larger ones fit as well: add "
            better = "; for a hyperspectral scene, use ConeNMF.for_scenes or --scene"
            parts = (Option("sum_to_one", True), problem, Option("min_volume", "auto"), better)
            warnings.warn(InputWarning(Message(*parts)), stacklevel=3)
        first = self.init
        if self.is_auto:
            first = self.problem.inits(self.data, K, self.solver)[0]
        with self._timed("init"):
            start = self._start(K, first, self.rng)
            self.init_used = start.name
            self.problem = self.problem.weighed(start, self.spectrum)
            if self.solver is None or self.problem.n_fixed == K:
                self.W = start.W
            else:
                self._run = self._new_run(start)
                if self._is_stopped:
                    self._run.reason = StopReason.CALLBACK

    def _start(self, K: int, init: Init, rng: Rng) -> Start:
        if self.is_auto:  # deterministic without a seed
            is_cones = isinstance(init, str) and init in CONE_INITS
            rng = None if is_cones else rng or default_rng(0)
        return self.problem.begin(self.data, K, init, self.solver, rng, self._known, self._report)

    def run(self) -> Array:
        """Return W from the solver, or from the init if there is no solver."""
        with self._timed("solve"):
            run = self._run
            if run is None:
                return self.problem.restored(self.W)
            is_first = self.race is None and run.n_iter <= PATIENCE and not self._is_stopped
            if self.is_auto and is_first:
                run.continue_with(
                    replace(self.stopping, max_iter=min(PATIENCE, self.stopping.max_iter))
                )
                run.run()
                run = self._run = self._winner(run)
            if run.reason is not StopReason.CALLBACK:
                run.continue_with(self.stopping)
                run.run()
            W, H = run.factors()
            self._near = self.problem.loss.near(H)
            if self.solver is not None and self.solver.floored:
                W = without_floor(self.data, W, H)
            return self.problem.restored(W)

    def _winner(self, run: Run) -> Run:
        """Return the run to continue; hold a race with other inits first if that may help."""
        K = run.W.shape[1]
        min_gap = may_pay(run, self.stopping.max_iter)
        rivals = self.problem.inits(self.data, K, self.solver)[1:]
        if min_gap is None or not rivals:
            return run
        bound = self.problem.lower_bound(self.data, K, self._known)
        if 1 - bound / run.errors[-1] <= min_gap:
            return run

        def begin(init: Init, rng: Generator) -> Run:
            rival = self._new_run(self._start(K, init, rng))
            rival.save = None
            if self.callback is not None:
                rival.callback = self._report
            return rival

        run, self.race = hold_race(run, rivals, begin, self.stopping, self.rng, bound)
        self.init_used = self.race.winner.init
        run.callback = self.callback
        run.save = None if self._checkpoint is None else self._save
        return run

    def _report(self, now: Iteration) -> object:
        """Call the callback during a race, until it or the time limit ends the race."""
        seconds, passes = self._began
        elapsed = clock() - seconds
        passes = self.data.passes_here - passes
        if self.callback is not None:
            now = replace(now, iteration=0, elapsed=elapsed, passes=passes)
            self._is_stopped = self._is_stopped or asks_to_stop(self.callback, now)
        limit = self.stopping.max_time
        return self._is_stopped or (limit is not None and elapsed > limit)

    def finish(self, W: Array, settings: Facts) -> Factorization:
        """Return the result: the exact H for W, and the errors and the certificate."""
        V = self.V
        run = self._run
        is_run = run is not None
        history = History(*np.zeros((3, 0)))
        reason = StopReason.INIT
        if run is not None and run.reason is not None:
            history = run.history()
            reason = run.reason
        self._run = None  # its H may be large
        with self._timed("finish"):
            end, error = self.problem.finish(V, W, sort=is_run, near=self._near)
        if not self.problem.penalties.are_none:
            settings = {**settings, "penalties": self.problem.penalties.plain()}
        own = V if V.unweighed is None else V.unweighed.V
        is_Q = "sigma" in self.problem.loss.constraints
        if is_Q and V.observed is not None and V.observed.of_sigma:
            n_free = W.shape[1] * (sum(V.shape) - sum(V.observed.n_empty))
            expected = float(V.observed.counts.sum()) - n_free
            settings = {**settings, "Q": error**2 * V.observed.total, "Q_expected": expected}
        return Factorization(
            W=np.ascontiguousarray(W[:, end.order]),
            H=end.H,
            labels=end.labels,
            shares=end.shares,
            loss=self.problem.loss.name,
            objective=end.objective,
            relative_error=error,
            history=history,
            stop_reason=reason,
            seconds=self.seconds,
            first_certificate=first_certificate(
                V, self.problem.loss, self.spectrum, error, end.kkt_residual, W.shape[1]
            ),
            passes=V.passes_here - self._passes,
            settings=settings,
            K_decided_by=self.K_decided_by,
            selection=self.selection,
            init_used=self.init_used,
            race=self.race,
            spectrum=self.spectrum,
            preparation=own.preparation,
            names=own.names,
            vocabulary=own.vocabulary,
            data=V,
        )

"""The pipeline of one fit: check, choose K, initialise, run, finish, certify.

With every solver, a fit ends by computing the exact H for its W. So the coefficients of a sample
depend on W alone, and the reported error is the error of the returned factors. Each step calls
another module: `solve.problem`, `judge.choose_k`, `solve.run`, `solve.race`, `judge.certificate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from .arguments import choice, components, function, generator, integer, optional
from .data.known import Observed
from .data.matrix import Aligned, DataMatrix
from .data.validate import check_components
from .errors import InputWarning, Message, NotAvailableError, Option, OptionError
from .io.open import as_data
from .judge.certificate import AnyCertificate, Certificate, first_certificate
from .judge.choose_k import Selection, choose_k
from .kernels import clock
from .linalg.svd import Spectrum
from .result import Factorization
from .scale.checkpoint import (
    Checkpoint,
    CheckpointedRun,
    Parts,
    Place,
    checkpoint_at,
    described,
    held_folder,
    identity_of,
)
from .solve.constraints import Fixed, Penalties
from .solve.groups import run_groups
from .solve.inits import CONE_INITS, Init, Start, of_counted_samples
from .solve.losses import Loss
from .solve.problem import Problem, check_count
from .solve.race import (
    PATIENCE,
    Race,
    hold_race,
    may_pay,
    most_starts,
    race_starts,
    seeds_of,
)
from .solve.reweigh import ENDED, Robust, in_words, reweigh
from .solve.run import (
    GROUP_PREFIX,
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
from .solve.symmetric import improved
from .text import counted, function_name
from .types import Array, Facts, PathLike, Rng

_PLAIN_SHARE = 4  # one in so many iterations comes before groups are taken into account
_MOSTLY_MISSING = 0.5  # of the entries: if more are missing, a fit needs a penalty


def factorize(
    V: object,
    K: int | str = "auto",
    *,
    init: Init = "auto",
    n_init: int | str = "auto",
    loss: str | float | Loss = "frobenius",
    solver: AnySolver | None = "auto",
    max_iter: int = 200,
    tol: float = 1e-5,
    max_time: float | None = None,
    callback: Callback | None = None,
    rng: Rng = None,
    checkpoint: Place = None,
    fixed: Fixed | ArrayLike | None = None,
    penalties: Penalties | None = None,
    groups: ArrayLike | None = None,
    robust: str | None = None,
    symmetric: bool = False,
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
        "nndsvd-rotated", "rank-two" (for K = 2), "spa", "snpa", "spkm", "kmeans", "kl-kmeans",
        "fuzzy", "acol", "random-c", "cur"; for scenes "simplex", "pure-pixels", and "scene", which
        chooses one of these two; "auto", which starts with one init and tries others if they are
        likely to lower the error (`solve.race`); a function ``(V, K, rng) -> (W, H or None)``; your
        own W, or W and H. The function always gets a generator: `rng`, or one with the seed 0. If
        samples have weights, H belongs to the original samples.
    n_init : int or "auto"
        With a number, run so many random starts to their end, beside the first init of "auto", and
        return the best. With a named init, run so many starts of it. ``result.race`` has the error
        and the seed of each. "auto" tries other inits if they are likely to lower the error: if
        entries have different weights, up to 40 random starts, until four agree with the best.
    loss : {"frobenius", "poisson"}, another of `solve.losses.LOSSES`, a beta, or a Loss
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
    groups : array (N,), optional
        The group of each sample, such as its donor, batch or day. Every group gets a scale for each
        feature, and a table says which components it uses: x_n ~ diag(b_d) W T_d h_n for a sample
        of group d. The fit begins without groups; `max_iter` counts all iterations.
    robust : {"samples", "entries"}, optional
        Least squares that a few wild samples, or wild entries, do not decide (`solve.reweigh`).
        The result is that of the last weighted fit: `sample_weights` has the weights of samples,
        and `relative_error` and the history belong to the weighted data.
    symmetric : bool
        Fit a graph by V ~ W S W', where V has the weights of its edges and S is symmetric: `W` of
        the result has unit columns, `affinities` is S, and H = S W'. The fit of W and H comes
        first, and the history is its history; rounds that improve W and S follow (see
        `solve.symmetric`).

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
    problem = Problem(loss, penalties, fixed, groups=groups, symmetric=symmetric)
    _check_starts(n_init, init, solver)
    chosen = None if solver is None else problem.loss.solver(solver)
    problem = problem.bind(V, chosen)
    if problem.groups is not None and solver is None:
        raise OptionError(Option("solver", None), " takes no groups, which a run estimates")
    K = check_k(K, V, problem.n_fixed)
    if robust is not None:
        how: Facts = {"init": init, "n_init": n_init, "loss": loss, "solver": solver}
        how |= {"rng": rng, "fixed": fixed}
        return _robust_fit(Robust(robust, V, problem), K, how, stopping, callback, checkpoint)
    settings = _settings(K, init, n_init, problem.loss, solver, stopping)
    passes = V.passes_here
    time = _Clock()
    with V.own_threads(), ExitStack() as stack:
        saved = None
        if checkpoint is not None and solver is not None:
            identity = _identity(settings, init, solver, problem)
            saved = stack.enter_context(_saving(checkpoint, V, identity, rng))
        data, problem = problem.iterated(V)
        spectrum = Spectrum(V) if V.observed is None else None
        task = _Task(
            V=V,
            data=data,
            problem=problem,
            solver=chosen,
            stopping=stopping,
            init=of_counted_samples(V, init),
            is_auto=isinstance(init, str) and init == "auto",
            n_init=None if isinstance(n_init, str) else int(n_init),
            callback=callback,
            rng=rng,
            clock=time,
            passes=data.passes_here,
            saved=saved,
            spectrum=spectrum,
            known=spectrum if data is V else None,
        )
        begun = None if saved is None else _resume(task, saved)
        end = _symmetric(task, _run(task, begun or _begin(task, K)))
        del begun  # its run may have a large H
        return _finish(task, end, settings, passes)


# What the result of a robust fit has from its last fit; the other fields are those of the first.
_OF_LAST = (
    *("W", "H", "labels", "shares", "problem", "objective", "relative_error", "history"),
    *("first_certificate", "spectrum", "names", "data"),
)


def _robust_fit(
    robust: Robust,
    K: int | str,
    how: Facts,
    stopping: Stopping,
    callback: Callback | None,
    checkpoint: Place,
) -> Factorization:
    """Return the last of the weighted fits of a robust fit; the first one decides K."""
    if checkpoint is not None:
        problem = " is a series of fits: leave out "
        raise NotAvailableError(Option("robust", robust.kind), problem, Option("checkpoint"))
    V = robust.V
    passes = V.passes_here
    began = clock()
    solver = robust.problem.loss.solver(how["solver"])
    how |= {"max_iter": stopping.max_iter, "tol": stopping.tol, "callback": callback}
    start = factorize(robust.first(), K, max_time=stopping.max_time, **how)
    W = start.W
    how |= {"init": "auto", "n_init": "auto"}
    if robust.is_of_samples and start.K < min(V.shape) and start.stop_reason not in ENDED:
        left = stopping.after(clock() - began).max_time
        more = factorize(robust.first(), start.K + 1, max_time=left, **how)
        W = robust.without_one(W, more.W)
    with V.own_threads():
        found = reweigh(robust, W, solver, stopping.after(clock() - began), callback)
    ended = [one for one in (start.stop_reason, found.reason) if one in ENDED]
    if ended:  # one iteration, which sorts the components
        how["max_iter"] = min(stopping.max_iter, 1)
    how["init"] = found.W, found.H
    left = stopping.after(clock() - began).max_time
    last = factorize(found.view, start.K, max_time=left, **how)
    about = {"kind": robust.kind, "scale": found.scale, "words": in_words(robust, found)}
    return replace(
        start,
        **{name: getattr(last, name) for name in _OF_LAST},
        settings={**start.settings, "robust": about},
        stop_reason=(*ended, last.stop_reason)[0],
        sample_weights=found.weights if robust.is_of_samples else None,
        seconds={**start.seconds, "solve": clock() - began},
        passes=V.passes_here - passes,
    )


def check_k(K: object, V: DataMatrix, n_fixed: int = 0) -> int | str:
    """Return the number of components, or "auto"; reject anything else."""
    if isinstance(K, str) and K == "auto":
        return "auto"
    count = check_components(components(K, auto=True), V)
    check_count(n_fixed, count)
    return count


def _check_starts(n_init: object, init: Init, solver: AnySolver | None) -> None:
    """Reject a number of starts that is none, and one beside an own start or without a solver."""
    if isinstance(n_init, str):
        choice("n_init", n_init, ("auto",))
        return
    integer("n_init", n_init, at_least=1)
    if solver is None or not isinstance(init, str):
        what = "a solver there are no runs" if solver is None else "a named init there is one start"
        problem = f" compares runs, and without {what}: leave one of the two out"
        raise OptionError(Option("n_init", n_init), problem)


def _settings(
    K: int | str,
    init: Init,
    n_init: int | str,
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
        "n_init": n_init,
        "loss": loss.name,
        "solver": next(iter(loss.solvers)) if is_auto else solver_name(solver),
        "max_iter": int(stopping.max_iter),
        "tol": float(stopping.tol),
        "max_time": None if limit is None else float(limit),
    }


def _identity(settings: Facts, init: Init, solver: AnySolver | None, problem: Problem) -> Facts:
    """Return the values that identify a checkpoint."""
    factors = init if isinstance(init, tuple) else (init,)
    arrays = [array for array in factors if isinstance(array, np.ndarray | list)]  # not Dask's
    functions = [one for one in (init, solver) if callable(one) or isinstance(one, Solver)]
    return {
        **{name: settings[name] for name in ("K", "init", "n_init", "loss", "solver")},
        "penalties": problem.penalties.plain(),
        "fixed": None if problem.fixed is None else described(problem.fixed),
        "groups": None if problem.groups is None else described(problem.groups),
        "arrays": described([np.asarray(array, float) for array in arrays]),
        "code": [described(one) for one in functions],
    }


@contextmanager
def _saving(
    place: PathLike | Checkpoint, V: DataMatrix, identity: Facts, rng: Rng
) -> Iterator[CheckpointedRun]:
    """Lock the folder of a checkpoint, in which the run is saved."""
    checkpoint = checkpoint_at(place)
    with held_folder(Path(checkpoint.folder)):
        yield CheckpointedRun(checkpoint, V, identity_of(V, identity, rng), rng)


@dataclass(frozen=True)
class _Clock:
    """When a fit began, and the seconds of its stages, excluding compilation by numba."""

    began: float = field(default_factory=clock)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the seconds of a block to those of a stage."""
        began = clock()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + clock() - began


@dataclass(frozen=True)
class _Task:
    """What a fit is asked for, and when it began."""

    V: DataMatrix
    data: DataMatrix  # V as runs read it
    problem: Problem  # for these data
    solver: ChosenSolver
    stopping: Stopping
    init: Init
    is_auto: bool  # the init
    n_init: int | None  # None for "auto"
    callback: Callback | None
    rng: Rng
    clock: _Clock
    passes: float  # over the data when the fit began
    saved: CheckpointedRun | None
    spectrum: Spectrum | None  # of V
    known: Spectrum | None  # of the data


class _Begun(NamedTuple):
    """The decisions of a fit, and its run; without a solver, the factors of the init."""

    problem: Problem
    init_used: str
    K_decided_by: str
    selection: Selection | None
    race: Race | None
    W: Array
    run: Run | None
    about: Facts | None = None  # the endmembers of a scene


def _resume(task: _Task, saved: CheckpointedRun) -> _Begun | None:
    """Return the run of a checkpoint, or None if there is none."""
    parts = saved.load(task.stopping.max_iter)
    if parts is None:
        return None
    facts = saved.facts
    W = parts.arrays["W"]
    name = facts["init_used"]
    problem = replace(task.problem, penalties=Penalties.of_plain(facts["penalties"]))
    if problem.groups is not None and parts.plain["stretch"][0]:
        found = {
            name.removeprefix(GROUP_PREFIX): array
            for name, array in parts.arrays.items()
            if name.startswith(GROUP_PREFIX)
        }
        found.setdefault("scales", np.ones((len(problem.groups.names), task.V.n_features)))
        problem = replace(problem, groups=replace(problem.groups, **found))
    task.clock.seconds.update(facts["seconds"])
    run = _first_run(task, problem, Start(W, None, name), parts)
    run.seed = facts["seed"]
    race = Race.of_plain(facts["race"])
    begun = _Begun(problem, name, facts["K_decided_by"], None, race, W, run)
    saved.facts = _facts(begun, task.clock.seconds)
    return begun


def _begin(task: _Task, K: int | str) -> _Begun:
    """Choose the number of components, and compute the initial factors."""
    selection = None
    with task.clock.measure("rank"):
        if isinstance(K, str):
            selection = _select(task)
            K = max(selection.K, task.problem.n_fixed)
    _warn(task, K)
    with task.clock.measure("init"):
        init = task.init
        if task.is_auto:
            init = task.problem.inits(task.data, K, task.solver)[0]
        watch = _Watch(task)
        seed = None
        rng = task.rng
        if task.n_init is not None and not task.is_auto:
            (seed,) = seeds_of(rng, 1)
            rng = default_rng(seed)
        start = _start(task, task.problem, K, init, rng, watch)
        problem = task.problem.weighed(start, task.spectrum)
        run = None
        if task.solver is not None and (problem.n_fixed < K or problem.groups is not None):
            run = _first_run(task, problem, start)
            run.seed = seed
            if watch.is_stopped:
                run.reason = StopReason.CALLBACK
        reason = "user" if selection is None else selection.sentence
        about = None
        if start.reason:
            about = {"scene": start.reason, "is_shaded": start.is_shaded}
        begun = _Begun(problem, start.name, reason, selection, None, start.W, run, about)
        if task.saved is not None:
            task.saved.facts = _facts(begun, task.clock.seconds)
        return begun


def _facts(begun: _Begun, seconds: dict[str, float]) -> Facts:
    """Return the decisions of a fit as plain values, which a checkpoint saves."""
    return {
        "K_decided_by": begun.K_decided_by,
        "init_used": begun.init_used,
        "seed": None if begun.run is None else begun.run.seed,
        "penalties": begun.problem.penalties.plain(),
        "race": None if begun.race is None else begun.race.plain(),
        "seconds": seconds,
    }


def _select(task: _Task) -> Selection:
    """Return the evidence for the number of components."""
    left = task.stopping.max_time
    if left is not None:
        left = max(left + task.clock.began - clock(), 0.0)
    problem = replace(task.problem, symmetric=False)
    return choose_k(task.V, problem, spectrum=task.spectrum, max_time=left)


@dataclass
class _Watch:
    """The callback while inits compete: it or the time limit ends the race."""

    task: _Task
    is_stopped: bool = False  # by the callback

    def __call__(self, now: Iteration) -> bool:
        """Return whether the race ends now."""
        task = self.task
        elapsed = clock() - task.clock.began
        if task.callback is not None and not self.is_stopped:
            passes = task.data.passes_here - task.passes
            now = replace(now, iteration=0, elapsed=elapsed, passes=passes)
            self.is_stopped = asks_to_stop(task.callback, now)
        limit = task.stopping.max_time
        return self.is_stopped or (limit is not None and elapsed > limit)


def _warn(task: _Task, K: int) -> None:
    """Warn of fits whose components the data do not determine."""
    problem = task.problem
    penalties = problem.penalties
    known = task.V.observed
    smaller = min(task.V.shape)
    has_free = problem.n_fixed < K
    texts: list[str | Message] = []
    if known is not None and known.missing > _MOSTLY_MISSING and penalties.are_none and K > 1:
        texts.append(
            f"{known.missing:.0%} of the entries are missing, so a fit without a penalty may "
            "predict them badly: use fit_ratings, or choose a penalty with GridSearchCV"
        )
    if K > smaller and has_free:
        side = "sample" if smaller == task.V.n_samples else "feature"
        texts.append(
            f"{K} components are more than the {counted(smaller, side)}: {smaller} can "
            f"describe any data exactly, the others are arbitrary; use at most {smaller}"
        )
    is_solved = task.solver is not None and has_free
    if penalties.sum_to_one and not penalties.min_volume and is_solved and K > 1:
        what = " alone does not determine the components, as larger ones fit as well: add "
        better = "; for a hyperspectral scene, use ConeNMF.for_scenes or --scene"
        option = Option("sum_to_one", True)
        texts.append(Message(option, what, Option("min_volume", "auto"), better))
    for text in texts:
        warnings.warn(InputWarning(text), stacklevel=4)  # at the caller of `factorize`


def _start(task: _Task, problem: Problem, K: int, init: Init, rng: Rng, watch: _Watch) -> Start:
    """Return the factors of an init."""
    if task.is_auto:  # deterministic without a seed
        is_cones = isinstance(init, str) and init in CONE_INITS
        rng = None if is_cones else rng or default_rng(0)
    return problem.begin(task.data, K, init, task.solver, rng, task.known, watch)


def _first_run(task: _Task, problem: Problem, start: Start, resume: Parts | None = None) -> Run:
    """Return the run from a start or a checkpoint; it may begin in single precision."""
    assert task.solver is not None
    approximation = None
    if problem.is_plain and task.solver.extrapolate:
        K = start.W.shape[1]
        approximation = problem.loss.approximation(task.data, K, task.known)
    save = None if task.saved is None else task.saved.save_if_due
    return _begun_run(
        task, problem, start, approximation, callback=task.callback, resume=resume, save=save
    )


def _begun_run(task: _Task, problem: Problem, start: Start, approximation: Any, **how: Any) -> Run:
    """Return a run from a start, whose time counts from the beginning of the fit."""
    assert task.solver is not None
    run = Run(
        problem.objective(task.data),
        start.W,
        start.H,
        task.solver,
        task.stopping,
        began=(task.clock.began, task.passes),
        approximation=approximation,
        **how,
    )
    run.init = start.name
    return run


class _End(NamedTuple):
    """The decisions of a fit, and what the solver found."""

    begun: _Begun  # without its run, whose H may be large
    W: Array
    history: History
    reason: StopReason
    near: Aligned | None = None  # H' of the run, if the loss is not convex in H


def _run(task: _Task, begun: _Begun) -> _End:
    """Run the solver, with a race of inits if it pays; without a solver, keep the init's W."""
    if begun.run is None:
        W = begun.problem.restored(begun.W)
        return _End(begun, W, History(*np.zeros((3, 0))), StopReason.INIT)
    with task.clock.measure("solve"):
        begun = _race(task, begun, begun.run)
        run = begun.run
        assert run is not None
        assert task.solver is not None
        if run.reason is not StopReason.CALLBACK:
            n_plain = -(-task.stopping.max_iter // _PLAIN_SHARE)
            problem = run_groups(run, begun.problem, task.data, task.stopping, n_plain)
            begun = begun._replace(problem=problem)
        W, H = run.factors()
        near = begun.problem.loss.near(H)
        if task.solver.floored:
            W = without_floor(task.data, W, H)
        assert run.reason is not None
        W = begun.problem.restored(W)
        return _End(begun._replace(run=None), W, run.history(), run.reason, near)


def _race(task: _Task, begun: _Begun, run: Run) -> _Begun:
    """Run the first init, and let others compete with it if that may help or is asked for."""
    if begun.race is not None or run.reason is StopReason.CALLBACK:
        return begun
    stopping = task.stopping
    begin = partial(_rival, task, begun.problem, run, _Watch(task))
    if task.n_init is not None:
        run.continue_with(stopping)
        run.run()
        init = "random" if task.is_auto else task.init
        n_begun = 0 if task.is_auto else 1  # of the starts that were asked for
        seeds = seeds_of(task.rng, task.n_init - n_begun, n_begun)
        if run.reason in (StopReason.CALLBACK, StopReason.MAX_TIME):
            return begun
        return _won(task, begun, run, *race_starts(run, init, begin, stopping, seeds, in_full=True))
    if not task.is_auto or run.n_iter > PATIENCE:
        return begun
    run.continue_with(replace(stopping, max_iter=min(PATIENCE, stopping.max_iter)))
    run.run()
    raced = _rivals(task, begun.problem, run, begin)
    return begun if raced is None else _won(task, begun, run, *raced)


def _rivals(
    task: _Task, problem: Problem, run: Run, begin: Callable[[Init, int], Run]
) -> tuple[Run, Race] | None:
    """Let other inits compete with the first run if that may help; return the winner, or None."""
    stopping = task.stopping
    K = run.W.shape[1]
    rivals = problem.inits(task.data, K, task.solver)[1:]
    if problem.entries.is_weighted and "random" in rivals and (count := most_starts(run)):
        seeds = seeds_of(task.rng, count)
        return race_starts(run, "random", begin, stopping, seeds, in_full=False)
    min_gap = may_pay(run, stopping.max_iter)
    if min_gap is None or not rivals:
        return None
    bound = problem.lower_bound(task.data, K, task.known)
    if 1 - bound / run.errors[-1] <= min_gap:
        return None
    return hold_race(run, rivals, begin, stopping, task.rng, bound)


def _won(task: _Task, begun: _Begun, first: Run, winner: Run, race: Race) -> _Begun:
    """Continue with the winner of a race."""
    winner.callback = first.callback
    winner.save = first.save
    begun = begun._replace(run=winner, race=race, init_used=race.winner.init)
    if task.saved is not None:
        task.saved.facts = _facts(begun, task.clock.seconds)
    return begun


def _rival(task: _Task, problem: Problem, first: Run, watch: _Watch, init: Init, seed: int) -> Run:
    """Return the run of another init, for a race; it minimises what the first run minimises."""
    start = _start(task, problem, first.W.shape[1], init, default_rng(seed), watch)
    callback = None if task.callback is None else watch
    run = _begun_run(task, problem, start, first.approximation, callback=callback)
    run.seed = seed
    return run


def _symmetric(task: _Task, end: _End) -> _End:
    """Return the end with W of symmetric factors, if the problem asks for them."""
    if not task.problem.symmetric:
        return end
    stopping = task.stopping
    if end.reason in (StopReason.INIT, StopReason.CALLBACK):
        stopping = replace(stopping, max_iter=0)
    with task.clock.measure("solve"):
        W = improved(task.V, end.W, stopping, task.clock.began)
    return end._replace(W=W)


def _finish(task: _Task, end: _End, settings: Facts, passes: float) -> Factorization:
    """Return the result: the exact H for W, and the errors and the certificate."""
    V = task.V
    begun = end.begun
    problem = begun.problem
    is_run = end.reason is not StopReason.INIT
    if is_run and problem.is_free and V.nonzero and not end.W.any():
        option = Option("solver", settings["solver"])
        what = " returned only zeros, but the data are not zero: mend its update"
        raise OptionError(option, what)
    with task.clock.measure("finish"):
        last, error = problem.finish(V, end.W, sort=is_run, near=end.near)
    entries = problem.entries.of(V)
    groups = None if problem.groups is None else problem.groups.sorted(last.order)
    own = V.original
    certificate: AnyCertificate | None = Certificate.of(error, last.kkt_residual)
    if not problem.has_effects:
        certificate = first_certificate(
            V, problem.loss, task.spectrum, error, last.kkt_residual, end.W.shape[1]
        )
    goodness = {} if V.observed is None else _goodness(V, V.observed, problem, end.W, error)
    return Factorization(
        W=np.ascontiguousarray(end.W[:, last.order]),
        H=last.H,
        labels=last.labels,
        shares=last.shares,
        problem=replace(problem, entries=entries, groups=groups),
        affinities=last.affinities,
        objective=last.objective,
        relative_error=error,
        history=end.history,
        stop_reason=end.reason,
        seconds=task.clock.seconds,
        first_certificate=certificate,
        passes=V.passes_here - passes,
        settings=settings | goodness | (begun.about or {}),
        K_decided_by=begun.K_decided_by,
        selection=begun.selection,
        init_used=begun.init_used,
        race=begun.race,
        spectrum=None if problem.has_effects else task.spectrum,
        preparation=own.preparation,
        names=own.names,
        vocabulary=own.vocabulary,
        data=V,
    )


def _goodness(V: DataMatrix, known: Observed, problem: Problem, W: Array, error: float) -> Facts:
    """Return Q, the sum of squares in units of sigma, and what it would be of noise alone."""
    if not known.of_sigma or "sigma" not in problem.loss.constraints:
        return {}
    n_free = W.shape[1] * (sum(V.shape) - sum(known.n_empty))
    return {"Q": error**2 * known.total, "Q_expected": float(known.counts.sum()) - n_free}

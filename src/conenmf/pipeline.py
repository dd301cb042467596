"""The pipeline of one fit: number of components, init, solver, exact finish.

Regardless of the solver, the last stage is the exact nonnegative least squares for H given W, so
that the coefficients of a sample depend on W alone and the reported error is that of the factors
returned. What the stages compute is elsewhere: `judge.choose_k`, `solve.inits`, `solve.loop`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .arguments import path
from .beginning import Begun, begin_counts, begin_counts_with_terms, begin_with_terms
from .cones.certificate import Certificate, first_certificate
from .data.aligned import freeing_disk
from .data.blocks import Array
from .data.known import filled, without_unit
from .data.matrix import Aligned, DataMatrix
from .data.memory import by_entries
from .data.sketch import is_dense, sketch_rank
from .data.sketch import sketch as make_sketch
from .data.validate import require_data_matrix
from .judge.certificate import first_known
from .judge.choose_k import choose_k
from .linalg.svd import Spectrum
from .result import Factorization
from .scale.checkpoint import Checkpoint, CheckpointedRun, described, held_folder
from .settings import check_limits, checked_K, checked_sketch, plain_settings
from .solve.coefficients import Finish
from .solve.constraints import Fixed, Penalties
from .solve.goals import LOSSES, goal_of
from .solve.inits import CONE_INITS, Init, initialize, lie_in_cones
from .solve.losses.objective import Frobenius, Loss
from .solve.losses.weighted import Weighted
from .solve.methods import Method, without_floor
from .solve.race import RaceOutcome, prospect, run_race
from .solve.run import Callback, History, Leap, Log, Stopping, StopReason, alternate
from .solve.solvers import Solver, Update
from .solve.terms import Terms, unweighed
from .stages import Spent, Stages

__all__ = ["Factorization", "factorize"]

_MIN_GAIN_SHARE = 1e-3  # share of the error that an iteration must still bring for a sketch to pay
_SKETCH_TOL = 2e-3  # tol on a sketch, which V itself then refines


@freeing_disk
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
    loss : {"frobenius", "poisson"}
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
    check_limits(max_iter, tol, max_time, callback, rng)
    loss, solver, method = goal_of(loss, solver)
    updates = None if method is None else method.H.solver
    terms = Terms.of(V, fixed, penalties, updates, loss)
    K, sketch = terms.checked_K(checked_K(K, V)), checked_sketch(sketch, updates, loss)
    settings = plain_settings(K, init, loss, solver, sketch, max_iter, tol, max_time)
    settings |= terms.plain()
    stages, passes, spectrum = Stages(max_time), V.passes_here, _spectrum(V)
    data, own = _iterated(V, terms)
    with V.own_threads(), ExitStack() as stack:
        run = _checkpointed(checkpoint, V, settings, init, solver, rng, stack, terms)
        begun = Begun.resume(run, max_iter, stages)
        if begun is None:
            begun = _begin(data, K, init, method, sketch, rng, spectrum, stages, callback, own)
        begun.remember(run, stages)
        with stages.timed("solve"):
            left = stages.remaining(begun.elapsed)
            is_plateau = _plateau_test(data, begun, method, spectrum) if own.are_none else None
            stopping = Stopping(tol, max_iter=max_iter, max_time=left, is_plateau=is_plateau)
            solved = _solve(data, begun, method, stopping, callback, run, stages, own)
        with stages.timed("finish"):
            goal, (W, history, stop_reason) = terms.goal(V, LOSSES[loss]), solved
            end = goal.finish(W, **terms.at_the_end(W, sort=stop_reason is not StopReason.INIT))
            error, end = goal.relative_error(end.squared_error), unweighed(V, W, end, terms, goal)
    return Factorization(
        W=np.ascontiguousarray(W[:, end.order]),
        H=V.keep_aligned(end.H.T).T,
        labels=end.labels,
        shares=end.shares,
        loss=loss,
        objective=end.objective,
        relative_error=error,
        history=history,
        stop_reason=stop_reason,
        seconds=stages.seconds,
        first_certificate=_first_certificate(goal, error, end, spectrum, begun),
        passes=V.passes_here - passes,
        settings=settings,
        **begun.decided(),
        spectrum=spectrum,
        **_kept_of(V),
    )


def _iterated(V: DataMatrix, terms: Terms) -> tuple[DataMatrix, Terms]:
    """What is iterated on: weights that are all alike count only where penalties do."""
    if terms.penalties.are_none:
        V = without_unit(V)
        terms = replace(terms, observed=V.observed)
    return V if terms.loss == "frobenius" or terms.has_holes else by_entries(V), terms


def _spectrum(V: DataMatrix) -> Spectrum | None:
    return Spectrum(V) if V.observed is None else None


def _kept_of(V: DataMatrix) -> dict[str, Any]:
    """What a result keeps of the data, and the data."""
    own = V if V.unweighed is None else V.unweighed.V
    about = {name: getattr(own, name) for name in ("preparation", "names", "vocabulary")}
    return {**about, "data": V}


def _begin(
    V: DataMatrix,
    K: int | str,
    init: Init,
    method: Method | None,
    sketch: int | str | None,
    rng: np.random.Generator | None,
    spectrum: Spectrum | None,
    stages: Stages,
    callback: Callback | None,
    terms: Terms,
) -> Begun:
    """Choose K if that was asked for, and make the initial factors."""
    passes, solver = V.passes_here, None if method is None else method.H.solver
    watched = stages.watched(callback, V, passes)
    with stages.timed("rank"):
        decided_by = "user"
        if isinstance(K, str):
            own = V if spectrum is None else spectrum.V
            whole = filled(own)
            known = spectrum if whole is own else None
            K, decided_by, _ = choose_k(whole, spectrum=known, max_time=stages.remaining())
            K = max(K, terms.n_fixed)
    if not terms.are_none:
        with stages.timed("init"):
            begin = begin_with_terms if terms.loss == "frobenius" else begin_counts_with_terms
            begun = begin(V, K, init, method, rng, terms, stages, watched)
        begun.K_decided_by, begun.spent = decided_by, Spent(stages.elapsed, V.passes_here - passes)
        return begun
    with stages.timed("init"):
        if terms.loss == "poisson":
            outcome = begin_counts(V, K, init, method, rng, stages, watched)
        elif isinstance(init, str) and init == "auto":
            rank = sketch if solver is not None and solver.extrapolate else None
            outcome = run_race(
                V,
                K,
                solver,
                rng,
                rank=rank,
                remaining=stages.remaining,
                spectrum=spectrum,
                callback=watched,
            )
        else:
            outcome = RaceOutcome(initialize(V, K, init, solver, rng, spectrum=spectrum))
        rank = _sketch_rank(V, sketch, solver, outcome)
    spent = Spent(stages.elapsed, V.passes_here - passes)
    return Begun.after(outcome, decided_by, spent, rank, sketch_if_falling=sketch == "auto")


def _solve(
    V: DataMatrix,
    begun: Begun,
    method: Method | None,
    stopping: Stopping,
    callback: Callback | None,
    run: CheckpointedRun | None,
    stages: Stages,
    terms: Terms,
) -> tuple[Array, History, StopReason]:
    """Return the W that the solver ended with, or that of the init if there is no solver."""
    method = None if begun.W.shape[1] == terms.n_fixed else method
    if method is None or begun.is_stopped:
        reason = StopReason.INIT if method is None else StopReason.CALLBACK
        return terms.restored(begun.W), Log().history(), reason
    if begun.is_exact:
        return begun.W, Log().history(), StopReason.EXACT
    solver = method.H.solver
    solution = alternate(
        V,
        begun.W,
        begun.take_H(),
        method if terms.are_none else terms.method(V, solver),
        stopping=stopping,
        callback=begun.spent.counted(callback),
        leap=_leap_on_sketch(V, begun, solver, stopping.tol, stages),
        resume=begun.saved,
        save=None if run is None else run.save_if_due,
    )
    errors = solution.history.relative_error
    is_ahead = bool(errors.size and (errors[-1] <= begun.error or not terms.are_none))
    W = solution.W if is_ahead else begun.W  # a run that was stopped early may be worse
    if solver.floored and is_ahead:
        W = without_floor(V, W, solution.H)
    W = terms.restored(W)
    return W, begun.spent.and_then(solution.history), solution.stop_reason


def _checkpointed(
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
    V: DataMatrix,
    settings: dict[str, Any],
    init: Init,
    solver: str | Solver | Update | None,
    rng: np.random.Generator | None,
    stack: ExitStack,
    terms: Terms,
) -> CheckpointedRun | None:
    if checkpoint is None or solver is None:
        return None
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(path("checkpoint", checkpoint))
    factors = init if isinstance(init, tuple) else (init,)
    arrays = [array for array in factors if isinstance(array, np.ndarray | list)]  # not Dask's
    functions = [one for one in (init, solver) if callable(one) or isinstance(one, Solver)]
    identity = {name: settings[name] for name in ("K", "init", "loss", "solver", "sketch")}
    identity["penalties"] = terms.penalties.plain()
    identity["fixed"] = None if terms.fixed is None else described(terms.fixed)
    identity["arrays"] = described([np.asarray(array, np.float64) for array in arrays])
    identity["code"] = [described(one) for one in functions]
    stack.enter_context(held_folder(Path(checkpoint.folder)))
    return CheckpointedRun(checkpoint, V, identity, rng)


def _sketch_rank(
    V: DataMatrix, sketch: int | str | None, solver: Solver | None, outcome: RaceOutcome
) -> int | None:
    """The rank of the sketch to iterate on, if any."""
    initial = outcome.initial
    if outcome.race is not None or initial.name == "identity":
        return None  # the race was run there, if it paid
    if not isinstance(sketch, str):
        return sketch
    rank = sketch_rank(V, initial.W.shape[1])
    if solver is None or not solver.extrapolate or rank is None:
        return None
    if initial.name in CONE_INITS and lie_in_cones(V, initial.W, initial.error):
        return None  # in cones a sketch delays the last digits
    return rank


def _leap_on_sketch(
    V: DataMatrix, begun: Begun, solver: Solver, tol: float, stages: Stages
) -> Leap | None:
    """A leap of the loop that iterates on a sketch of V until little more can be gained there."""
    rank = begun.sketch_rank
    if rank is None:
        return None

    def leap(W: Array, H: Aligned, errors: list[float]) -> tuple[Array, Aligned] | None:
        if begun.sketch_if_falling and errors[-2] - errors[-1] < _MIN_GAIN_SHARE * errors[-1]:
            return None
        with stages.timed("sketch"):
            S = make_sketch(V, rank)
            limits = Stopping(tol=max(tol, _SKETCH_TOL), max_time=stages.remaining())
            solution = alternate(S, W, H, solver, stopping=limits)
        return solution.W, solution.H

    return leap


def _first_certificate(
    goal: Loss, error: float, end: Finish, spectrum: Spectrum | None, begun: Begun
) -> Certificate | None:
    """What a fit knows about how good it is; of counts not yet anything."""
    if isinstance(goal, Weighted):
        return first_known(error, end.kkt_residual)
    if not isinstance(goal, Frobenius) or spectrum is None:
        return None
    return first_certificate(error, end.kkt_residual, len(end.order), spectrum, begun.proven)


def _plateau_test(
    V: DataMatrix, begun: Begun, method: Method | None, spectrum: Spectrum | None
) -> Callable[[float], bool] | None:
    """Whether an error is a plateau; the singular values are looked at when first asked.

    It is none if several inits have led to it. Solvers as published stop where the published ones
    do.
    """
    K = begun.W.shape[1]
    is_agreed = begun.race is not None and begun.race.is_agreed
    if method is None or method.loss is not Frobenius or min(V.shape) <= K or is_agreed:
        return None
    if not method.H.solver.extrapolate:
        return None

    def is_plateau(error: float) -> bool:
        if begun.prospect is None:
            begun.prospect = prospect(V, K, spectrum=None if is_dense(V) else spectrum)
        return begun.prospect.is_plateau(error)

    return is_plateau

"""The pipeline: number of components, start, solver, exact finish.

Whatever the solver did, the last step is the exact nonnegative least squares for H given W, so
that the coefficients of a sample depend on W alone and the reported error is that of the factors
returned.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .data.blocks import Array
from .data.doors import require_data_matrix
from .data.matrix import Aligned, DataMatrix
from .data.sketch import Sketch, sketch_rank
from .data.sketch import sketch as make_sketch
from .errors import ComponentsError, OptionError, check_components
from .judge.selection import choose_k
from .result import Factorization
from .solve.checkpoint import Checkpoint, CheckpointedRun
from .solve.inits import CONE_INITS, Init, InitialFactors, initialize, lie_in_cones
from .solve.loop import Leap, Solution, alternate, coefficients
from .solve.solvers import FLOOR, Solver, Update, get_solver, solver_name
from .solve.stopping import Callback, History, Stopping, StopReason

__all__ = ["Factorization", "factorize"]


_WORTH_A_SKETCH = 1e-3  # share of the error that an iteration must still bring
_ROUGH = 2e-3  # tol on a sketch: what it leaves is finished on V


def factorize(
    V: DataMatrix,
    K: int | str = "auto",
    *,
    init: Init = "cr1",
    solver: str | Solver | Update | None = "hals",
    max_iter: int = 200,
    tol: float = 1e-4,
    max_time: float | None = None,
    callback: Callback | None = None,
    rng: np.random.Generator | None = None,
    sketch: int | str | None = "auto",
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Factorization:
    """Factor V ~ W H with nonnegative W (F, K) and H (K, N).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int or "auto"
        Number of components; "auto" takes the largest ratio of adjacent singular values if
        cones are evident, else parallel analysis; the result says which in `K_decided_by`.
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        The start: "cr1", "cr1++", "random", "nndsvd", "nndsvda", "nndsvdar", "nnsvdlrc", "spa",
        "snpa", "spkm", "kmeans"; "auto", which takes "cr1" for samples in cones, and elsewhere
        lets it compete with a start from singular vectors; a function
        ``(V, K, rng) -> (W, H or None)``; your own W, or W and H.
    solver : str, Solver, callable or None
        "hals", "mult", "nnlsb"; "plain-hals", "plain-mult", "plain-nnlsb", which are those of
        the paper's experiments, one sweep per product and without extrapolation; a `Solver`; an
        update ``(G, C, Y) -> Y``; or None for the start alone.
    max_iter, tol, max_time
        See `Stopping`. `max_time` counts from the call; what comes after the solver, one exact
        pass for H, is not counted.
    callback : callable, optional
        Called with a `Iteration` after every iteration; returning True ends the run.
    rng : numpy.random.Generator, optional
        For starts that draw. Without it "cr1" is deterministic.
    sketch : int, "auto" or None
        After two iterations on V, iterate on a sketch of V of this rank, which is much cheaper,
        and go on with V from there if that lowers its error. "auto" does so with rank 2K where a
        pass over the sketch is several times cheaper, the samples do not evidently lie in cones
        and the error is still falling; None never.
        The errors reported are always those of V. For "hals" and "nnlsb" only.
    checkpoint : path or Checkpoint, optional
        A folder in which the factors, the history and the state of `rng` are saved every minute
        (`Checkpoint` says how often). The same call after the process was killed goes on from
        there and ends with the same bits. A run that has ended is not saved again; delete the
        folder to begin anew.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> from conenmf.cones.simulate import make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> result = factorize(from_columns(model.V))
    >>> result.K, result.relative_error < 0.1
    (4, True)
    """
    require_data_matrix(V, nonzero=True)
    rule = None if solver is None else get_solver(solver)
    _check_options(max_iter, tol, max_time, callback, rng)
    sketch = _checked_sketch(sketch, rule)
    began = time.perf_counter()
    passes = V.passes
    seconds = dict.fromkeys(("rank", "init", "sketch", "solve", "finish"), 0.0)

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        entered = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - entered

    run = resume = None
    if checkpoint is not None and rule is not None:
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(os.fspath(checkpoint))
        asked = {
            "K": K if isinstance(K, str) else check_components(K),
            "init": _name(init),
            "arrays": _digest(init),
            "solver": solver_name(solver),
            "sketch": sketch,
        }
        run = CheckpointedRun(checkpoint, V, asked, rng)
        resume = run.load(max_iter)

    with V.own_threads():
        if run is not None and resume is not None:
            W, H, sketched, start_error = resume.W, None, None, 1.0
            components, decided_by, start_name, rank = run.facts["init"]
            seconds |= run.facts["seconds"]
        else:
            with stage("rank"):
                components, decided_by = _number_of_components(V, K)
            with stage("init"):
                point = initialize(V, components, init, rule or _START_ONLY, rng)
                rank = _sketch_rank(V, sketch, rule, point)
                W, H, start_name, sketched, start_error = point
                del point
            if run is not None:
                run.facts = {
                    "init": (components, decided_by, start_name, rank),
                    "seconds": {name: seconds[name] for name in ("rank", "init")},
                }
        with stage("solve"):
            left = None if max_time is None else max_time - (time.perf_counter() - began)
            if rule is None:
                nothing = np.empty(0)
                solution = Solution(W, W, History(nothing, nothing, nothing), StopReason.INIT)
            else:
                stopping = Stopping(tol=tol, max_iter=max_iter, max_time=left)
                always = sketch != "auto"
                leap = _on_sketch(V, rule, rank, always, sketched, stopping, seconds)
                coefficients_ = [H]
                del H, sketched  # so that they can go when they have served
                solution = alternate(
                    V,
                    W,
                    coefficients_.pop(),
                    rule,
                    stopping=stopping,
                    callback=callback,
                    leap=leap,
                    resume=resume,
                    save=None if run is None else run.save_if_due,
                )
        with stage("finish"):
            errors = solution.history.relative_error
            if rule is not None and errors.size and errors[-1] <= start_error:
                W = solution.W  # else it was stopped before it was ahead of the start
            if rule is not None and rule.floored:  # what was held off zero is zero
                W = np.where(W > FLOOR, W, 0)
            H, labels, squared = coefficients(V, W)
            H = V.keep(H.T).T
    return Factorization(
        W=W,
        H=H,
        labels=labels,
        relative_error=float(np.sqrt(squared / V.total)),
        history=solution.history,
        stop_reason=solution.stop_reason,
        seconds=seconds,
        passes=V.passes - passes,
        settings={
            "K": K if isinstance(K, str) else components,
            "init": _name(init),
            "solver": solver_name(solver),
            "sketch": sketch,
            "max_iter": int(max_iter),
            "tol": float(tol),
            "max_time": None if max_time is None else float(max_time),
        },
        K_decided_by=decided_by,
        init_used=start_name,
        names=V.names,
        data=V,
    )


def _number_of_components(V: DataMatrix, K: int | str) -> tuple[int, str]:
    if isinstance(K, str):
        if K != "auto":
            raise ComponentsError(
                f"the number of components is {K!r}, expected an integer or 'auto'"
            )
        return choose_k(V)
    return check_components(K), "user"


def _check_options(
    max_iter: object, tol: object, max_time: object, callback: object, rng: object
) -> None:
    if not isinstance(max_iter, int | np.integer) or max_iter < 0:
        raise OptionError(f"max_iter={max_iter!r}, expected an integer of at least 0")
    number = float | int | np.number
    if not (isinstance(tol, number) and tol >= 0):
        raise OptionError(f"tol={tol!r}, expected a number of at least 0")
    if max_time is not None and not (isinstance(max_time, number) and max_time >= 0):
        raise OptionError(f"max_time={max_time!r}, expected seconds of at least 0, or None")
    if callback is not None and not callable(callback):
        raise OptionError(f"callback={callback!r}, expected a function or None")
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise OptionError(f"rng={rng!r}, expected a numpy.random.Generator or None")


def _checked_sketch(sketch: int | str | None, rule: Solver | None) -> int | str | None:
    if sketch is None or (isinstance(sketch, str) and sketch == "auto"):
        return sketch
    if not isinstance(sketch, int | np.integer) or isinstance(sketch, bool) or sketch < 1:
        raise OptionError(f"sketch={sketch!r}, expected a rank of at least 1, 'auto' or None")
    if rule is None or not rule.extrapolate:
        raise OptionError(
            f"sketch={sketch} needs a solver that can go back if it fails: 'hals' or "
            "'nnlsb', or a Solver with extrapolate=True"
        )
    return int(sketch)


def _sketch_rank(
    V: DataMatrix, sketch: int | str | None, rule: Solver | None, point: InitialFactors
) -> int | None:
    """The rank of the sketch to iterate on, if any."""
    if sketch != "auto":
        return sketch if isinstance(sketch, int) else None
    rank = sketch_rank(V, point.W.shape[1]) if rule is not None and rule.extrapolate else None
    if rank is None or point.name not in CONE_INITS or point.sketch is not None:
        return rank
    # In cones the last digits come later with it.
    return None if lie_in_cones(V, point.W, point.error) else rank


def _on_sketch(
    V: DataMatrix,
    rule: Solver,
    rank: int | None,
    always: bool,
    made: Sketch | None,
    stopping: Stopping,
    seconds: dict[str, float],
) -> Leap | None:
    """A leap that iterates on a sketch of V until little more can be gained there."""
    if rank is None:
        return None
    began = time.perf_counter()
    sketches = [made] if made is not None and made.depth == rank else []
    del made

    def leap(W: Array, H: Aligned, errors: list[float]) -> tuple[Array, Aligned] | None:
        if not always and errors[-2] - errors[-1] < _WORTH_A_SKETCH * errors[-1]:
            return None
        entered = time.perf_counter()
        left = stopping.max_time
        limits = Stopping(
            tol=max(stopping.tol, _ROUGH),
            max_time=None if left is None else left - (entered - began),
        )
        S = sketches.pop() if sketches else make_sketch(V, rank)
        solution = alternate(S, W, H, rule, stopping=limits)
        seconds["sketch"] = time.perf_counter() - entered
        return solution.W, solution.H

    return leap


def _no_update(G: Array, C: Array, Y: Array) -> Array:
    return Y


_START_ONLY = Solver(_no_update, first="H")  # asks a start for W alone


def _digest(init: Any) -> str | None:
    """A fingerprint of arrays that a run starts from; Dask arrays are not looked at."""
    parts = init if isinstance(init, tuple) else (init,)
    arrays = [part for part in parts if isinstance(part, np.ndarray | list)]
    if not arrays:
        return None
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=np.float64).data)
    return digest.hexdigest()


def _name(option: object) -> str | None:
    if option is None or isinstance(option, str):
        return option
    return str(getattr(option, "__name__", "custom"))

"""Replicates: the same fit several times, from random inits, on the data or on data drawn again.

Replicates that differ by their init alone are a list of runs (`solve.runs`) that every pass over V
serves, until each has converged; only the few steps with which counts begin are each run's own.
Those on data that are drawn again each have data of their own, which are kept in memory one after
the other if they are small, and otherwise drawn in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.resampled import bootstrapped, redrawn
from ..data.views import take_samples
from ..solve.count_inits import initialize_counts, warmed_up
from ..solve.goals import goal_of
from ..solve.initial import InitialFactors
from ..solve.inits import initialize
from ..solve.loop import iterate
from ..solve.methods import Method, without_floor
from ..solve.runs import Run, Solution
from ..solve.stopping import Stopping

__all__ = ["RESAMPLINGS", "Replicates", "replicate"]

_MAX_HELD_ENTRIES = 1 << 25  # of data that are drawn again, to be kept in memory

_Resampling = Callable[[DataMatrix, np.random.Generator, str], DataMatrix]


def _samples(V: DataMatrix, rng: np.random.Generator, loss: str) -> DataMatrix:
    return bootstrapped(V, rng, loss=loss)


def _counts(V: DataMatrix, rng: np.random.Generator, loss: str) -> DataMatrix:
    return redrawn(V, rng)


RESAMPLINGS: dict[str, _Resampling | None] = {"start": None, "samples": _samples, "counts": _counts}
"""What replicates differ by, besides their random init."""


class Replicates(NamedTuple):
    """The components of replicates.

    Attributes
    ----------
    spectra : array (n_runs, F, K)
        W of each run.
    errors : array (n_runs,)
        The relative error of each, on its own data.
    """

    spectra: Array
    errors: Array


def replicate(
    V: DataMatrix,
    K: int,
    n_runs: int,
    *,
    loss: str,
    resample: str,
    rng: np.random.Generator,
    stopping: Stopping,
) -> Replicates:
    """Fit V from random inits; arguments are those of `stability`, checked."""
    method = goal_of(loss, "auto")[2]
    if method is None:
        raise AssertionError("every loss has a solver")
    generators, draw = rng.spawn(n_runs), RESAMPLINGS[resample]
    if draw is None:
        return _collected(_fitted(V, K, generators, loss, method, stopping))
    solutions = []
    for one in generators:
        data = draw(V, one, loss)
        if data.n_entries <= _MAX_HELD_ENTRIES:
            data = take_samples(data, np.arange(data.shape[1]))
        solutions += _fitted(data, K, [one], loss, method, stopping)
    return _collected(solutions)


def _fitted(
    V: DataMatrix,
    K: int,
    generators: list[np.random.Generator],
    loss: str,
    method: Method,
    stopping: Stopping,
) -> list[tuple[Array, float]]:
    """W and the relative error from a random init for each generator, in one reading of V."""
    initials = [_random(V, K, rng, loss, method) for rng in generators]
    runs = [Run(V, initial.W, initial.H, method, stopping) for initial in initials]
    del initials  # their H may be large
    return [_end(V, solution, method) for solution in iterate(V, runs)]


def _random(
    V: DataMatrix, K: int, rng: np.random.Generator, loss: str, method: Method
) -> InitialFactors:
    if loss == "poisson":
        return warmed_up(V, initialize_counts(V, K, "random", rng))
    return initialize(V, K, "random", method.H.solver, rng)


def _end(V: DataMatrix, solution: Solution, method: Method) -> tuple[Array, float]:
    errors = solution.history.relative_error
    W = solution.W
    if method.H.solver.floored:
        W = without_floor(V, W, solution.H)
    return W, float(errors[-1]) if errors.size else np.inf


def _collected(ends: list[tuple[Array, float]]) -> Replicates:
    W, errors = zip(*ends, strict=True)
    return Replicates(np.array(W, dtype=np.float64), np.array(errors))

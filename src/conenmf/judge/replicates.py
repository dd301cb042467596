"""Replicates: the same fit several times, from random inits, on the data or on data drawn again.

Replicates, also of several numbers of components, are a list of runs (`solve.runs`) that every pass
over V serves until each has converged, in groups if their coefficients take too much memory. Those
on data that are drawn again are each on a view of V, which is drawn from every block that is read.
Only if V is in memory and small, data that are drawn again are kept, one after the other: reading
costs nothing there, drawing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array
from ..data.digest import digest
from ..data.matrix import DataMatrix
from ..data.memory import by_entries
from ..data.resampled import balanced, bootstrapped, redrawn
from ..data.together import is_in_memory, measure_together, room_for_aligned
from ..data.views import take_samples
from ..solve.checkpoint import Checkpoint
from ..solve.count_inits import initialize_counts, warmed_up_together
from ..solve.goals import goal_of
from ..solve.inits import InitialFactors, initialize
from ..solve.losses.poisson import margins_together
from ..solve.methods import Method
from ..solve.run import Run, Stopping, ending
from .dispersion import POISSON, Noise
from .kept_runs import KeptRuns

__all__ = ["RESAMPLINGS", "Replicates", "replicate", "replicate_over"]

_MAX_HELD_ENTRIES = 1 << 25  # of data that are drawn again, to be kept in memory
_FEW_SAMPLES = 40  # of which a draw may have none; of more, it never has
_ALIGNED_OF_RUN = 4  # arrays of the size of H that a run has in a pass, old and new

_End: TypeAlias = tuple[Array, float]
_Resampling: TypeAlias = Callable[[DataMatrix, np.random.Generator, str], DataMatrix]


def _samples(V: DataMatrix, rng: np.random.Generator, loss: str) -> DataMatrix:
    view = bootstrapped(V, rng, loss=loss)
    while V.nonzero < _FEW_SAMPLES and view.total == 0:  # perhaps none is drawn
        view = bootstrapped(V, rng, loss=loss)
    return view


def _counts(
    V: DataMatrix,
    rng: np.random.Generator,
    loss: str,
    dispersion: float = 0.0,
    balance: bool = False,
) -> DataMatrix:
    return redrawn(V, rng, dispersion=dispersion, balance=balance)


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


class _Task(NamedTuple):
    """A run to be made."""

    K: int
    number: int
    rng: np.random.Generator
    kept: KeptRuns | None


def replicate(
    V: DataMatrix,
    K: int,
    n_runs: int,
    *,
    loss: str,
    resample: str,
    rng: np.random.Generator,
    stopping: Stopping,
    noise: Noise = POISSON,
    checkpoint: Checkpoint | None = None,
) -> Replicates:
    """Fit V from random inits; arguments are those of `stability`, checked."""
    how: dict[str, Any] = {"loss": loss, "resample": resample, "stopping": stopping, "noise": noise}
    ((_, runs),) = replicate_over(V, {K: checkpoint}, n_runs, rng=rng, **how)
    return runs


def replicate_over(
    V: DataMatrix,
    ks: Mapping[int, Checkpoint | None],
    n_runs: int,
    *,
    loss: str,
    resample: str,
    rng: np.random.Generator,
    stopping: Stopping,
    noise: Noise = POISSON,
) -> Iterator[tuple[int, Replicates]]:
    """Do the same for several numbers of components, each with the checkpoint of its runs.

    All runs share their passes. Each number is returned with its runs when all of them have ended.
    """
    method = goal_of(loss, "auto")[2]
    if method is None:
        raise AssertionError("every loss has a solver")
    fits = _Fits(*_for_noise(V, loss, resample, noise), loss, method, stopping, noise)
    ends: dict[int, dict[int, _End]] = {K: {} for K in ks}
    with ExitStack() as stack:
        known = digest(V) if any(place is not None for place in ks.values()) else ""
        limits = {"max_iter": stopping.max_iter, "tol": stopping.tol}
        settings = {"loss": loss, "resample": resample, "dispersion": noise.dispersion, **limits}
        tasks = []
        for K, place in ks.items():
            generators, kept = rng.spawn(n_runs), None
            if place is not None:
                opened = KeptRuns.open(place, V, K, settings, generators[0], known)
                kept = stack.enter_context(opened)
                found = {number: kept.load(number) for number in range(n_runs)}
                ends[K] = {number: end for number, end in found.items() if end is not None}
            tasks += [_Task(K, number, one, kept) for number, one in enumerate(generators)]
        rest = [task for task in tasks if task.number not in ends[task.K]]
        yield from _complete(ends, n_runs)
        for group in fits.groups(rest):
            for task, end in fits.run(group):
                ends[task.K][task.number] = end
                if task.kept is not None:
                    task.kept.keep(task.number, *end)
                yield from _complete(ends, n_runs)


def _complete(ends: dict[int, dict[int, _End]], n_runs: int) -> Iterator[tuple[int, Replicates]]:
    """The numbers of components whose runs have all ended, which are taken out."""
    for K in [K for K, each in ends.items() if len(each) == n_runs]:
        each = ends.pop(K)
        W, errors = zip(*(each[number] for number in range(n_runs)), strict=True)
        yield K, Replicates(np.array(W, dtype=np.float64), np.array(errors))


def _for_noise(
    V: DataMatrix, loss: str, resample: str, noise: Noise
) -> tuple[DataMatrix, _Resampling | None]:
    """The data that runs are on, and how they are drawn from them."""
    has_weights = noise.weights is not None
    if resample == "counts":
        balance = loss == "poisson" and not has_weights
        return V, partial(_counts, dispersion=noise.dispersion, balance=balance)
    if resample == "start" and has_weights:
        V = noise.weighed(V)
    elif loss == "poisson" and not has_weights:
        V = balanced(V, noise.dispersion)
        V = by_entries(V) if resample == "start" else V
    return V, RESAMPLINGS[resample]


class _Fits(NamedTuple):
    """What all replicates have in common."""

    V: DataMatrix
    draw: _Resampling | None
    loss: str
    method: Method
    stopping: Stopping
    noise: Noise

    @property
    def holds_draws(self) -> bool:
        """Whether data that are drawn are kept in memory, which the fit then reads."""
        is_small = self.V.n_entries <= _MAX_HELD_ENTRIES
        return self.draw is not None and is_small and is_in_memory(self.V)

    def groups(self, tasks: list[_Task]) -> Iterator[list[_Task]]:
        """The runs that share their passes: as many as there is memory for their H."""
        group: list[_Task] = []
        for task in tasks:
            room = room_for_aligned(self.V, task.K * self.V.dtype.itemsize, _ALIGNED_OF_RUN)
            size = 1 if self.holds_draws else room
            if len(group) >= max(1, size):  # the last one has the largest rows
                yield group
                group = []
            group.append(task)
        if group:
            yield group

    def run(self, tasks: list[_Task]) -> Iterator[tuple[_Task, _End]]:
        """W and the relative error of each run, as soon as it has ended."""
        V, views = self.V, [self._drawn(task.rng) for task in tasks]
        if self.holds_draws:
            (V,) = views
        measure_together(V, views)
        if self.loss == "poisson":
            margins_together(V, views)
        for place, run in ending(V, self._begun(V, views, tasks)):
            yield tasks[place], _end(run)

    def _begun(self, V: DataMatrix, views: list[DataMatrix], tasks: list[_Task]) -> list[Run]:
        """The runs, each from its init or from where it was saved."""
        saves = [
            None if task.kept is None else task.kept.unfinished(task.number, view)
            for task, view in zip(tasks, views, strict=True)
        ]
        saved = [None if save is None else save.load(self.stopping.max_iter) for save in saves]
        new = [place for place, state in enumerate(saved) if state is None]
        initials = [self._initial(views[place], tasks[place]) for place in new]
        if self.loss == "poisson" and new:
            initials = warmed_up_together(V, [views[place] for place in new], initials)
        begins = dict(zip(new, initials, strict=True))
        del initials  # their H may be large
        runs = []
        for place, (task, save) in enumerate(zip(tasks, saves, strict=True)):
            begin = begins.pop(place, None)
            W, H = (begin.W, begin.H) if begin is not None else (np.empty((0, task.K)), None)
            how = (views[place], W, H, self.method, self.stopping)
            keep = None if save is None else save.save_if_due
            runs.append(Run(*how, resume=saved[place], save=keep))
            saved[place] = None
        return runs

    def _drawn(self, rng: np.random.Generator) -> DataMatrix:
        if self.draw is None:
            return self.V
        view = self.draw(self.V, rng, self.loss)
        if not self.holds_draws:
            return view
        held = take_samples(view, np.arange(view.shape[1]))
        has_weights = self.noise.weights is not None
        if self.loss == "poisson" and not has_weights:
            return by_entries(held)
        return self.noise.weighed(held)

    def _initial(self, V: DataMatrix, task: _Task) -> InitialFactors:
        if self.loss == "poisson":
            return initialize_counts(V, task.K, "random", task.rng)
        return initialize(V, task.K, "random", self.method.H.solver, task.rng)


def _end(run: Run) -> _End:
    errors = run.log.relative_error
    return run.factors()[0], float(errors[-1]) if errors else np.inf

"""Replicates: the same fit several times, from random inits, on the data or on data drawn again.

Replicates are a list of runs (`solve.runs`) that every pass over V serves until each has converged,
in groups if their coefficients take too much memory. Those on data that are drawn again are each on
a view of V, which is drawn from every block that is read. Only if V is in memory and small, data
that are drawn again are kept, one after the other: reading costs nothing there, drawing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.resampled import balanced, bootstrapped, redrawn
from ..data.together import is_in_memory, measure_together, room_for_aligned
from ..data.views import take_samples
from ..solve.checkpoint import Checkpoint
from ..solve.count_inits import initialize_counts, warmed_up_together
from ..solve.count_margins import margins_together
from ..solve.goals import goal_of
from ..solve.initial import InitialFactors
from ..solve.inits import initialize
from ..solve.loop import ending
from ..solve.methods import Method
from ..solve.runs import Run
from ..solve.stopping import Stopping
from .kept_runs import KeptRuns

__all__ = ["RESAMPLINGS", "Replicates", "replicate"]

_MAX_HELD_ENTRIES = 1 << 25  # of data that are drawn again, to be kept in memory
_ALIGNED_OF_RUN = 4  # arrays of the size of H that a run has in a pass, old and new

_Generators: TypeAlias = dict[int, np.random.Generator]
_End: TypeAlias = tuple[Array, float]
_Resampling: TypeAlias = Callable[[DataMatrix, np.random.Generator, str], DataMatrix]


def _samples(V: DataMatrix, rng: np.random.Generator, loss: str) -> DataMatrix:
    return bootstrapped(V, rng, loss=loss)


def _counts(
    V: DataMatrix,
    rng: np.random.Generator,
    loss: str,
    dispersion: float = 0.0,
) -> DataMatrix:
    return redrawn(V, rng, dispersion=dispersion, balance=loss == "poisson")


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
    dispersion: float = 0.0,
    checkpoint: Checkpoint | None = None,
) -> Replicates:
    """Fit V from random inits; arguments are those of `stability`, checked."""
    method = goal_of(loss, "auto")[2]
    if method is None:
        raise AssertionError("every loss has a solver")
    data, draw = _for_dispersion(V, loss, resample, dispersion)
    generators = dict(enumerate(rng.spawn(n_runs)))
    ends: dict[int, _End] = {}
    with ExitStack() as stack:
        kept = None
        if checkpoint is not None:
            limits = {"max_iter": stopping.max_iter, "tol": stopping.tol}
            settings = {"loss": loss, "resample": resample, "dispersion": dispersion, **limits}
            kept = stack.enter_context(KeptRuns.open(checkpoint, V, K, settings, generators[0]))
            found = {number: kept.load(number) for number in generators}
            ends = {number: end for number, end in found.items() if end is not None}
        fits = _Fits(data, K, loss, method, stopping, draw, kept)
        rest = {number: one for number, one in generators.items() if number not in ends}
        for group in fits.groups(rest):
            for number, end in fits.run(group):
                ends[number] = end
                if kept is not None:
                    kept.keep(number, *end)
    W, errors = zip(*(ends[number] for number in generators), strict=True)
    return Replicates(np.array(W, dtype=np.float64), np.array(errors))


def _for_dispersion(
    V: DataMatrix, loss: str, resample: str, dispersion: float
) -> tuple[DataMatrix, _Resampling | None]:
    """The data that runs are on, and how they are drawn from them."""
    if resample == "counts":
        return V, partial(_counts, dispersion=dispersion)
    if loss == "poisson":
        even = balanced(V, dispersion)
        if even is not V and V.n_entries <= _MAX_HELD_ENTRIES and is_in_memory(V):
            even = take_samples(even, np.arange(V.shape[1]))
        V = even
    return V, RESAMPLINGS[resample]


class _Fits(NamedTuple):
    """What all replicates have in common."""

    V: DataMatrix
    K: int
    loss: str
    method: Method
    stopping: Stopping
    draw: _Resampling | None
    kept: KeptRuns | None

    @property
    def holds_draws(self) -> bool:
        """Whether data that are drawn are kept in memory, which the fit then reads."""
        is_small = self.V.n_entries <= _MAX_HELD_ENTRIES
        return self.draw is not None and is_small and is_in_memory(self.V)

    def groups(self, generators: _Generators) -> Iterator[_Generators]:
        """The runs that share their passes: as many as there is memory for their H."""
        row_bytes = _ALIGNED_OF_RUN * self.K * self.V.dtype.itemsize
        size = 1 if self.holds_draws else max(1, room_for_aligned(self.V, row_bytes))
        numbers = list(generators)
        for start in range(0, len(numbers), size):
            yield {number: generators[number] for number in numbers[start : start + size]}

    def run(self, generators: _Generators) -> Iterator[tuple[int, _End]]:
        """W and the relative error of each run, as soon as it has ended."""
        V, views = self.V, [self._drawn(rng) for rng in generators.values()]
        if self.holds_draws:
            (V,) = views
        measure_together(V, views)
        if self.loss == "poisson":
            margins_together(V, views)
        on = dict(zip(generators, views, strict=True))
        ended = ending(V, self._begun(V, on, generators))
        for place, run in ended:
            yield list(on)[place], _end(run)

    def _begun(
        self, V: DataMatrix, on: dict[int, DataMatrix], generators: _Generators
    ) -> list[Run]:
        """The runs, each from its init or from where it was saved."""
        kept = self.kept
        saves = {} if kept is None else {n: kept.unfinished(n, view) for n, view in on.items()}
        saved = {number: save.load(self.stopping.max_iter) for number, save in saves.items()}
        new = [number for number in on if saved.get(number) is None]
        initials = [self._initial(on[number], generators[number]) for number in new]
        if self.loss == "poisson" and new:
            initials = warmed_up_together(V, [on[number] for number in new], initials)
        begins = dict(zip(new, initials, strict=True))
        del initials  # their H may be large
        runs = []
        for number, view in on.items():
            save = saves[number].save_if_due if number in saves else None
            resume, begin = saved.pop(number, None), begins.pop(number, None)
            W, H = (begin.W, begin.H) if begin is not None else (np.empty((0, self.K)), None)
            runs.append(Run(view, W, H, self.method, self.stopping, resume=resume, save=save))
        return runs

    def _drawn(self, rng: np.random.Generator) -> DataMatrix:
        if self.draw is None:
            return self.V
        view = self.draw(self.V, rng, self.loss)
        return take_samples(view, np.arange(view.shape[1])) if self.holds_draws else view

    def _initial(self, V: DataMatrix, rng: np.random.Generator) -> InitialFactors:
        if self.loss == "poisson":
            return initialize_counts(V, self.K, "random", rng)
        return initialize(V, self.K, "random", self.method.H.solver, rng)


def _end(run: Run) -> _End:
    errors = run.log.relative_error
    return run.factors()[0], float(errors[-1]) if errors else np.inf

"""Replicates: the same fit several times, from random inits, on the data or on data drawn again.

Replicates are a list of runs (`solve.runs`) that every pass over V serves until each has converged,
in groups if their coefficients take too much memory. Those on data that are drawn again are each on
a view of V, which is drawn from every block that is read. Only if V is in memory and small, data
that are drawn again are kept, one after the other: reading costs nothing there, drawing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.resampled import bootstrapped, redrawn
from ..data.together import is_in_memory, measure_together, room_for_aligned
from ..data.views import take_samples
from ..solve.count_inits import initialize_counts, warmed_up_together
from ..solve.goals import goal_of
from ..solve.initial import InitialFactors
from ..solve.inits import initialize
from ..solve.loop import ending
from ..solve.methods import Method
from ..solve.poisson import margins_together
from ..solve.runs import Run
from ..solve.stopping import Stopping

__all__ = ["RESAMPLINGS", "Replicates", "replicate"]

_MAX_HELD_ENTRIES = 1 << 25  # of data that are drawn again, to be kept in memory
_ALIGNED_OF_RUN = 4  # arrays of the size of H that a run has in a pass, old and new

_Generators: TypeAlias = dict[int, np.random.Generator]
_End: TypeAlias = tuple[Array, float]
_Resampling: TypeAlias = Callable[[DataMatrix, np.random.Generator, str], DataMatrix]


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
    fits = _Fits(V, K, loss, method, stopping, RESAMPLINGS[resample])
    generators = dict(enumerate(rng.spawn(n_runs)))
    ends = {number: end for group in fits.groups(generators) for number, end in fits.run(group)}
    W, errors = zip(*(ends[number] for number in generators), strict=True)
    return Replicates(np.array(W, dtype=np.float64), np.array(errors))


class _Fits(NamedTuple):
    """What all replicates have in common."""

    V: DataMatrix
    K: int
    loss: str
    method: Method
    stopping: Stopping
    draw: _Resampling | None

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
        initials = [
            self._initial(view, rng) for view, rng in zip(views, generators.values(), strict=True)
        ]
        if self.loss == "poisson":
            initials = warmed_up_together(V, views, initials)
        runs = []
        for view in views:
            initial = initials.pop(0)  # its H may be large
            runs.append(Run(view, initial.W, initial.H, self.method, self.stopping))
        numbers, ended = list(generators), ending(V, runs)
        del runs
        for place, run in ended:
            yield numbers[place], _end(run)

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

"""Many fits from random inits, of the data or of draws of them, and their consensus.

All runs with one number of components share every pass over V until each has converged. If their
coefficients take too much memory, they run in groups. Runs on redrawn data each use a view of V,
which redraws every block that is read. If V is in memory and small, redrawn data are stored and the
runs follow one after the other, because drawing then takes longer than reading.

The consensus is that of cNMF. The components of all runs, scaled to unit norm, are points. Points
with few near neighbours are left out, the others are clustered by k-means, and the median of each
cluster is a component of the consensus (Kotliar et al., "Identifying gene expression programs of
cell-type identity and cellular activity with single-cell RNA-Seq", eLife 8, 2019). For
equal components the package cnmf gives the same result.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ..data.blocks import exact, over, unit_columns
from ..data.imputation import fill_missing
from ..data.matrix import DataMatrix
from ..data.resample import balance_samples, bootstrap, redraw
from ..data.views import dense_samples, take_samples
from ..judge.matching import match_components
from ..scale.checkpoint import (
    Checkpoint,
    KeptRuns,
    described,
    held_folder,
    identity_of,
)
from ..solve.inits import Init, Start
from ..solve.loss import Noise
from ..solve.problem import Problem
from ..solve.run import Run, Stopping, run_together
from ..solve.solvers import Solver
from ..text import counted
from ..types import Array, Facts, Pair
from .dispersion import pruned

# --- the consensus ------------------------------------------------------------------------------

_NEIGHBOUR_SHARE = 0.3  # as in cNMF: number of neighbours over the number of replicates
_KMEANS_SEED = 1  # as in cNMF
_KMEANS_INITS = 10  # as in cNMF
_SAME_COSINE = 0.99  # above it, two components count as the same


class Consensus(NamedTuple):
    """The consensus of replicates.

    Attributes
    ----------
    W : array (F, K) or None
        The medians, scaled to a sum of one; None if there is no consensus.
    clusters : array (n_runs, K), integers
        The component of the consensus to which each component of a run belongs; -1 if left out.
    distances : array (n_runs, K)
        The mean distance of each component of a run to its nearest neighbours; infinite for
        components that are zero.
    silhouettes : array (n_runs, K)
        The silhouette of each component of a run in its cluster; NaN if left out, or without a
        consensus.
    no_consensus : str
        Why there is no consensus; empty if there is one.
    """

    W: Array | None
    clusters: Array
    distances: Array
    silhouettes: Array
    no_consensus: str


def consensus(spectra: Array, *, density_threshold: float = 0.5) -> Consensus:
    """Return the consensus of the components of several runs.

    Parameters
    ----------
    spectra : array (n_runs, F, K)
        W of each run.
    density_threshold : float
        Components whose mean distance to their nearest neighbours is at least this are left out.
        Nonnegative unit vectors are at most 1.41 apart, so 2 keeps all.

    Examples
    --------
    >>> runs = np.array([np.eye(3)[:, [0, 1]], np.eye(3)[:, [1, 0]], np.eye(3)[:, [0, 1]]])
    >>> found = consensus(runs)
    >>> found.clusters.tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    from sklearn.neighbors import NearestNeighbors  # slow to import

    n_runs, F, K = spectra.shape
    points = unit_columns(spectra.transpose(1, 0, 2).reshape(F, n_runs * K)).T
    n_near = max(int(_NEIGHBOUR_SHARE * n_runs), 1)
    nearest = NearestNeighbors(n_neighbors=n_near).fit(points).kneighbors()[0].mean(axis=1)
    distances = np.where(points.any(axis=1), nearest, np.inf).reshape(n_runs, K)
    kept = distances < density_threshold
    points = points[kept.ravel()]
    clusters = np.full((n_runs, K), -1)
    silhouettes = np.full((n_runs, K), np.nan)
    found = _cluster(points, K)
    W = np.zeros((F, K))
    for k in np.unique(found):
        W[:, k] = np.median(points[found == k], axis=0)
    n_found = int(W.any(axis=0).sum())
    if n_found < K:
        problem = "every component is far from those of other runs"
        if kept.any():
            problem = f"the runs have only {counted(n_found, 'component')} in common"
        return Consensus(None, clusters, distances, silhouettes, problem)
    order = np.argsort(match_components(W, spectra[0])[0])  # independent of k-means
    W = W[:, order]
    clusters[kept] = np.argsort(order)[found]
    silhouettes[kept] = _silhouettes(points, clusters[kept], K)
    return Consensus(W / W.sum(axis=0), clusters, distances, silhouettes, "")


def with_known(found: Consensus, known: Array) -> Consensus:
    """Return the consensus with known components (F, n), which are in every run, in front."""
    n = known.shape[1]
    places = np.broadcast_to(np.arange(n), (len(found.clusters), n))
    others = np.where(found.clusters < 0, -1, found.clusters + n)
    return found._replace(
        W=None if found.W is None else np.hstack([over(known, known.sum(axis=0)), found.W]),
        clusters=np.hstack([places, others]),
        distances=np.hstack([np.zeros(places.shape), found.distances]),
        silhouettes=np.hstack([np.ones(places.shape), found.silhouettes]),
    )


def _cluster(points: Array, K: int) -> Array:
    """Return labels of k-means; there may be fewer than K if few points are different."""
    if len(points) < K:
        return np.arange(len(points))
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    model = KMeans(n_clusters=K, n_init=_KMEANS_INITS, random_state=_KMEANS_SEED)
    # its threads wait in busy loops, which takes longer than the work on so few points
    with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it warns about equal points
        return model.fit_predict(points)


def _silhouettes(points: Array, clusters: Array, K: int) -> Array:
    if K == 1 or len(points) == K:  # a silhouette is not defined
        return np.full(len(points), float(K == 1))
    from sklearn.metrics import silhouette_samples

    return silhouette_samples(points, clusters)


def distinct(spectra: Array) -> int:
    """Count the runs that differ: in two such runs some component has no nearly equal partner.

    >>> distinct(np.array([np.eye(2), 3 * np.eye(2)[::-1], [[1, 0], [1, 1]]]))
    2
    """
    different: list[Array] = []
    for run in spectra:
        if not any(match_components(one, run)[1].min() >= _SAME_COSINE for one in different):
            different.append(run)
    return len(different)


def has_counting_noise(problem: Problem) -> bool:
    """Whether runs are weighted by how counts vary; known components and penalties prevent it."""
    return problem.is_free and problem.loss.noise is not None


# --- runs ---------------------------------------------------------------------------------------

MAX_HELD_ENTRIES = 1 << 25  # of redrawn data that are stored in memory
_FEW_SAMPLES = 40  # a draw of fewer samples may be empty; a draw of more never is
_ALIGNED_OF_RUN = 4  # arrays of the size of H, old and new, that a run needs in a pass

# How replicates differ, in words.
RESAMPLINGS = {
    "start": "random inits",
    "samples": "random inits, samples drawn with replacement",
    "counts": "random inits, resampled counts",
}


@dataclass(frozen=True, eq=False)
class Replicates:
    """Fits of K components from random inits, on V or on data drawn from it.

    Attributes
    ----------
    V : DataMatrix (F, N)
    K : int
    problem : Problem
        What the runs minimise.
    resample : str
        One of `RESAMPLINGS`.
    noise : Noise
        How counts vary around a fit.
    stopping : Stopping
    """

    V: DataMatrix
    K: int
    problem: Problem
    resample: str
    noise: Noise
    stopping: Stopping

    def fit(self, n_runs: int, rng: Generator, checkpoint: Checkpoint | None = None) -> Pair:
        """Return W (n_runs, F, K) of each run, and the relative error of each on its own data."""
        generators = rng.spawn(n_runs)
        ends = {}
        kept = None
        with ExitStack() as stack:
            if checkpoint is not None:
                stack.enter_context(held_folder(Path(checkpoint.folder)))
                kept = KeptRuns(checkpoint, self._identity(generators[0]))
                found = [(number, kept.load(number)) for number in range(n_runs)]
                ends = {number: end for number, end in found if end is not None}
            rest = [number for number in range(n_runs) if number not in ends]
            room = self.V.room_for_aligned(self.K * self.V.dtype.itemsize, _ALIGNED_OF_RUN)
            at_once = 1 if self._holds_draws else max(1, room)
            for first in range(0, len(rest), at_once):
                some = {number: generators[number] for number in rest[first : first + at_once]}
                for number, W, error in self._ends(some, kept):
                    ends[number] = W, error
                    if kept is not None:
                        kept.keep(number, W, error)
        spectra, errors = zip(*(ends[number] for number in range(n_runs)), strict=True)
        return np.array(spectra, dtype=float), np.array(errors)

    def refined(self, found: Consensus, best: Array) -> tuple[Consensus, Array]:
        """Return the consensus and the best run after continuing the solver from both on V.

        Neither a median nor a fit of redrawn counts is an optimum on V. If the best run ends at a
        lower error, it replaces the consensus, with its components in the same order.
        """
        data = replace(self, resample="start")._source()
        loss = self.problem.loss
        solver = loss.solver("auto")
        runs = []
        for W in [best] if found.W is None else [best, found.W]:
            start = loss.initialize(data, self.K, W)
            runs.append(Run(loss.on(data), start.W, start.H, solver, self.stopping))
        ends = dict(run_together(data, runs))
        best = exact(ends[0].factors()[0])
        if found.W is None:
            return found, best
        W = exact(ends[1].factors()[0])
        if ends[0].errors[-1] < ends[1].errors[-1]:
            W = best[:, match_components(found.W, best)[0]]
        if W.any(axis=0).all():
            found = found._replace(W=W / W.sum(axis=0))
        return found, best

    def pruned(
        self, found: Consensus, spectra: Array, generators: list[Generator], threshold: float
    ) -> tuple[Consensus, Array]:
        """Return the consensus of runs that continued with fewer activities, and these runs.

        Each run continues on the data that it fitted, see `pruned` of `judge.dispersion`, so the
        runs differ by as much as those of other measurements. The consensus continues on V.
        """
        data = replace(self, resample="start")._source()
        phi = self.noise.dispersion
        source = self._source()
        ends = []
        for W, rng in zip(spectra, generators, strict=True):
            view = self._draw(source, rng)
            ends.append(pruned(view, dense_samples(view), W, phi))
        own = consensus(np.array(ends), density_threshold=threshold)
        if own.W is None or found.W is None:
            return found, spectra
        W = pruned(data, dense_samples(self.V), own.W, phi)
        return own._replace(W=W[:, match_components(own.W, W)[0]]), np.array(ends)

    def _identity(self, rng: Generator) -> Facts:
        """Return what the runs depend on, besides their number."""
        settings = {
            "K": self.K,
            "loss": self.problem.loss.name,
            "penalties": self.problem.penalties.plain(),
            "fixed": described(self.problem.fixed),
            "resample": self.resample,
            "dispersion": self.noise.dispersion,
            "max_iter": self.stopping.max_iter,
            "tol": self.stopping.tol,
        }
        return identity_of(self.V, settings, rng)

    @property
    def _repeats(self) -> bool:
        """Whether drawn samples are repeated, and not weighted: penalties count each of them."""
        return not self.V.is_complete or not self.problem.penalties.are_none

    @property
    def _holds_draws(self) -> bool:
        """Return whether redrawn data are stored in memory."""
        is_small = self.V.n_entries <= MAX_HELD_ENTRIES and self.V.is_in_memory
        return self.resample != "start" and (is_small or self._repeats)

    def _ends(
        self, generators: dict[int, Generator], kept: KeptRuns | None
    ) -> Iterator[tuple[int, Array, float]]:
        """Yield the number, W and relative error of each run as soon as it has ended."""
        V = self._source()
        numbers = list(generators)
        views = [self._draw(V, rng) for rng in generators.values()]
        if self._holds_draws:
            (V,) = views
        self.problem.loss.measure(V, views)
        for place, run in run_together(V, self._begin(V, views, generators, kept)):
            errors = run.errors
            W, _ = run.factors()
            if not self.problem.is_free:
                W = self.problem.restored(W)
            yield numbers[place], W, float(errors[-1]) if errors else np.inf

    def _source(self) -> DataMatrix:
        """The data for the runs, or to redraw: counts with the weights of their noise."""
        V = self.V
        if self.resample == "counts" or not has_counting_noise(self.problem):
            return V
        if self.noise.weights is None:
            V = balance_samples(V, self.noise.dispersion)
        return self.problem.loss.data(self.noise.weighed(V)) if self.resample == "start" else V

    def _draw(self, V: DataMatrix, rng: Generator) -> DataMatrix:
        """Return the data of one run."""
        if self.resample == "start":
            return V
        if self._repeats and self.resample == "samples":
            return take_samples(V, np.sort(rng.integers(V.n_samples, size=V.n_samples)))
        if self.resample == "counts":
            balance = has_counting_noise(self.problem) and self.noise.weights is None
            view = redraw(V, rng, dispersion=self.noise.dispersion, balance=balance)
        else:
            view = bootstrap(V, rng, degree=self.problem.loss.degree)
            while V.nonzero < _FEW_SAMPLES and view.total == 0:  # perhaps no sample was drawn
                view = bootstrap(V, rng, degree=self.problem.loss.degree)
        if not self._holds_draws:
            return view
        held = take_samples(view, np.arange(view.shape[1]))
        return self.problem.loss.data(self.noise.weighed(held))

    def _begin(
        self,
        V: DataMatrix,
        views: list[DataMatrix],
        generators: dict[int, Generator],
        kept: KeptRuns | None,
    ) -> list[Run]:
        """Yield the runs, each from its init or from its saved state."""
        solver = self.problem.loss.solver("auto")
        unfinished = [
            None if kept is None else kept.unfinished(number, view)
            for number, view in zip(generators, views, strict=True)
        ]
        states = [one and one.load(self.stopping.max_iter) for one in unfinished]
        new = {n: rng for n, rng in enumerate(generators.values()) if states[n] is None}
        starts = self._starts(V, [views[n] for n in new], list(new.values()), solver)
        begins = {n: (start.W, start.H) for n, start in zip(new, starts, strict=True)}
        del starts  # their H may be large
        runs = []
        for n, (view, one) in enumerate(zip(views, unfinished, strict=True)):
            W, H = begins.pop(n, (np.empty((0, self.K)), None))
            saved: Facts = {"resume": states[n], "save": one and one.save_if_due}
            runs.append(Run(self.problem.objective(view), W, H, solver, self.stopping, **saved))
        return runs

    def _starts(
        self, V: DataMatrix, views: list[DataMatrix], rngs: list[Generator], solver: Solver
    ) -> list[Start]:
        """Return a random start on each view; with sums of one, the start of a fit."""
        loss = self.problem.loss
        starts = []
        for view, rng in zip(views, rngs, strict=True):
            if self.problem.is_free:
                starts.append(loss.initialize(fill_missing(view), self.K, "random", solver, rng))
                continue
            init: Init = "random"
            if self.problem.penalties.sum_to_one:
                init = self.problem.inits(view, self.K, solver)[0]
            starts.append(self.problem.begin(view, self.K, init, solver, rng))
        return loss.warm_up(V, views, starts) if self.problem.is_free else starts

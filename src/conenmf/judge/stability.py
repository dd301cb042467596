"""Which components would be found again: many fits, what they have in common, and how well.

`stability` runs the same fit many times from random inits, on the data or on data drawn again,
forms the consensus, and says of each of its components in what share of the runs it appears, how
close it is there, and within which limits each of its entries lies. `stability_over` does so for
several numbers of components.

All runs, also of several numbers of components, share every pass over V until each has converged,
in groups if their coefficients take too much memory. Runs on data that are drawn again are each on
a view of V, which is drawn from every block that is read. Only if V is in memory and small, the
drawn data are kept, one run after the other: reading costs nothing there, drawing does.

The consensus is the one of cNMF: components of all runs, of unit norm, are points. Those that have
few others near them are left out, the rest are clustered by k-means, and the median of each cluster
is a component of the consensus (Kotliar et al., "Identifying gene expression programs of cell-type
identity and cellular activity with single-cell RNA-Seq", eLife 8, 2019). On equal components the
result is that of the package cnmf.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import (
    choice,
    components,
    factor,
    function,
    generator,
    integer,
    number,
    optional,
    path,
    several,
)
from ..cones.certificate import Certificate
from ..cones.counting import count_above_edge
from ..data.blocks import Array, dense, exact
from ..data.digest import digest
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import balanced, bootstrapped, evenly_spaced, holds_counts, redrawn
from ..data.saving import arrays_of_names, reading, write_arrays
from ..data.together import is_in_memory, room_for_aligned
from ..data.validate import checked_components, require_data_matrix
from ..data.views import take_samples
from ..errors import (
    ComponentsError,
    Message,
    NotAvailableError,
    Option,
)
from ..linalg.svd import Spectrum
from ..names import Names
from ..scale.checkpoint import Checkpoint, KeptRuns, held_folder, identity_of
from ..solve.inits import Start
from ..solve.losses import Loss, Objective, get_loss
from ..solve.run import Run, Saved, Stopping, ending
from ..text import counted
from . import plots
from .certificate import (
    AnyCertificate,
    CountCertificate,
    certificate_of_numbers,
    certify,
    certify_beside,
    numbers_of_certificate,
    quality_in_words,
)
from .dispersion import POISSON, Noise, continued, edge_of, noise_of, quasi_divergence, scan
from .dispersion import dispersion as estimated_dispersion
from .limits import LEVEL, MAX_MOVE, Ranges, entry_limits, moved_ranges, without_clipping
from .scores import (
    components_frame,
    largest_features,
    match_components,
    named_features,
    unit_columns,
)

# --- the consensus ------------------------------------------------------------------------------

_NEIGHBOUR_SHARE = 0.3  # of the replicates, that are near a point; cNMF's
_KMEANS_SEED, _KMEANS_INITS = 1, 10  # cNMF's
_SAME_COSINE = 0.99  # from which on two components are the same minimum


class Consensus(NamedTuple):
    """What replicates have in common.

    Attributes
    ----------
    W : array (F, K) or None
        The medians, scaled to a sum of one; None if there is no consensus.
    clusters : array (n_runs, K), integers
        The component of the consensus to which each one belongs; -1 for those left out.
    distances : array (n_runs, K)
        The mean distance of each to its nearest neighbours; infinite for components that are zero.
    silhouettes : array (n_runs, K)
        Of each in its cluster; NaN for those left out, and without a consensus.
    problem : str
        Why there is no consensus, else empty.
    """

    W: Array | None
    clusters: Array
    distances: Array
    silhouettes: Array
    problem: str


def consensus(spectra: npt.ArrayLike, *, density_threshold: float = 0.5) -> Consensus:
    """Return the consensus of the components of several runs.

    Parameters
    ----------
    spectra : array (n_runs, F, K)
        W of each run.
    density_threshold : float
        Components whose mean distance to their nearest neighbours is not below this are left out;
        with 2 or more all are kept. Of unit norm, and nonnegative, they are at most 1.41 apart.

    Examples
    --------
    >>> runs = np.array([np.eye(3)[:, [0, 1]], np.eye(3)[:, [1, 0]], np.eye(3)[:, [0, 1]]])
    >>> found = consensus(runs)
    >>> found.clusters.tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    spectra = factor("spectra", spectra, ("n_runs", "F", "K")).astype(float)
    threshold = number("density_threshold", density_threshold, above=0)
    n_runs, F, K = spectra.shape
    points = unit_columns(spectra.transpose(1, 0, 2).reshape(F, n_runs * K)).T
    distances = _mean_distances(points, max(int(_NEIGHBOUR_SHARE * n_runs), 1))
    kept = np.flatnonzero(distances < threshold)
    clusters = np.full(n_runs * K, -1)
    silhouettes = np.full(n_runs * K, np.nan)
    problem = "" if kept.size else "every component is far from those of other runs"
    W: Array | None = None
    if not problem:
        found = _clustered(points[kept], K)
        medians = [np.median(points[kept][found == k], axis=0) for k in np.unique(found)]
        n_found = sum(bool(median.any()) for median in medians)
        if n_found < K:
            problem = f"the runs have only {counted(n_found, 'component')} in common"
        else:
            W = np.array(medians).T
            order = _in_order(W, spectra[0])
            W, found = W[:, order], np.argsort(order)[found]
            W /= W.sum(axis=0)
            clusters[kept] = found
            silhouettes[kept] = _silhouettes(points[kept], found, K)
    shape = (n_runs, K)
    return Consensus(
        W, clusters.reshape(shape), distances.reshape(shape), silhouettes.reshape(shape), problem
    )


def _mean_distances(points: Array, n_neighbours: int) -> Array:
    """The mean distance of each point to its nearest neighbours; infinite for zero points."""
    from sklearn.metrics import euclidean_distances  # slow to import

    n_neighbours = min(n_neighbours, len(points) - 1)
    distances: Array = euclidean_distances(points)
    distances.partition(n_neighbours, axis=1)  # the nearest is the point itself
    means = distances[:, : n_neighbours + 1].sum(axis=1) / max(n_neighbours, 1)
    return np.where(points.any(axis=1), means, np.inf)


def _clustered(points: Array, K: int) -> Array:
    """Labels of k-means; fewer than K of them if there are not as many different points."""
    if len(points) < K:
        return np.arange(len(points))
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(n_clusters=K, n_init=_KMEANS_INITS, random_state=_KMEANS_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of points that are equal
        labels: Array = model.fit(points).labels_
    return labels


def _in_order(W: Array, first: Array) -> Array:
    """The order of the first run, so that it does not depend on k-means."""
    return np.argsort(match_components(W, first)[0])


def _silhouettes(points: Array, clusters: Array, K: int) -> Array:
    if K == 1 or len(points) == K:
        return np.ones(len(points)) if K == 1 else np.zeros(len(points))
    from sklearn.metrics import silhouette_samples

    return silhouette_samples(points, clusters)


def found_again(W: Array, spectra: Array) -> Array:
    """Return the cosines (n_runs, K) of components with their partners, one to one, in each run."""
    return np.array([match_components(W, run)[1] for run in spectra])


def distinct(spectra: Array) -> int:
    """Return how many of the runs are different: some component has no partner nearly equal to it.

    >>> distinct(np.array([np.eye(2), 3 * np.eye(2)[::-1], [[1, 0], [1, 1]]]))
    2
    """
    different: list[Array] = []
    for run in np.asarray(spectra, dtype=float):
        is_same = (match_components(other, run)[1].min() >= _SAME_COSINE for other in different)
        if not any(is_same):
            different.append(run)
    return len(different)


# --- runs ---------------------------------------------------------------------------------------

_MAX_HELD_ENTRIES = 1 << 25  # of data that are drawn again, to be kept in memory
_FEW_SAMPLES = 40  # of which a draw may have none; of more, it never has
_ALIGNED_OF_RUN = 4  # arrays of the size of H that a run has in a pass, old and new

_End: TypeAlias = tuple[Array, float]


RESAMPLINGS = ("start", "samples", "counts")
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
    fitted = get_loss(loss)
    fits = _Fits(_data_of_runs(V, fitted, resample, noise), resample, fitted, stopping, noise)
    ends: dict[int, dict[int, _End]] = {K: {} for K in ks}
    with ExitStack() as stack:
        known = digest(V) if any(place is not None for place in ks.values()) else ""
        limits = {"max_iter": stopping.max_iter, "tol": stopping.tol}
        settings = {"loss": loss, "resample": resample, "dispersion": noise.dispersion, **limits}
        tasks = []
        for K, place in ks.items():
            generators, kept = rng.spawn(n_runs), None
            if place is not None:
                stack.enter_context(held_folder(Path(place.folder)))
                identity = identity_of(V, {"K": K, **settings}, generators[0], known)
                kept = KeptRuns(place, identity)
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


def _data_of_runs(V: DataMatrix, loss: Loss, resample: str, noise: Noise) -> DataMatrix:
    """The data that runs are on, or are drawn from: counts with the weights of their noise."""
    if resample == "counts":
        return V
    if noise.weights is not None:
        return noise.weighed(V) if resample == "start" else V
    if "counting noise" in loss.k_evidence:
        V = balanced(V, noise.dispersion)
        return loss.data(V) if resample == "start" else V
    return V


class _Fits(NamedTuple):
    """What all replicates have in common."""

    V: DataMatrix
    resample: str
    loss: Loss
    stopping: Stopping
    noise: Noise

    @property
    def holds_draws(self) -> bool:
        """Whether data that are drawn are kept in memory, which the fit then reads."""
        is_small = self.V.n_entries <= _MAX_HELD_ENTRIES
        return self.resample != "start" and is_small and is_in_memory(self.V)

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
        self.loss.measure(V, views)
        for place, run in ending(V, self._begun(V, views, tasks)):
            errors = run.log.relative_error
            yield tasks[place], (run.factors()[0], float(errors[-1]) if errors else np.inf)

    def _begun(self, V: DataMatrix, views: list[DataMatrix], tasks: list[_Task]) -> list[Run]:
        """The runs, each from its init or from where it was saved."""
        saves = [
            None if task.kept is None else task.kept.unfinished(task.number, view)
            for task, view in zip(tasks, views, strict=True)
        ]
        limit = self.stopping.max_iter
        saved = [None if save is None else Saved.of_parts(save.load(limit)) for save in saves]
        new = [place for place, state in enumerate(saved) if state is None]
        initials = [self._initial(views[place], tasks[place]) for place in new]
        initials = self.loss.warm_up(V, [views[place] for place in new], initials)
        begins = dict(zip(new, initials, strict=True))
        del initials  # their H may be large
        runs = []
        for place, (task, save) in enumerate(zip(tasks, saves, strict=True)):
            begin = begins.pop(place, None)
            W, H = (begin.W, begin.H) if begin is not None else (np.empty((0, task.K)), None)
            solver = self.loss.solver("auto")
            assert solver is not None
            how = (self.loss.on(views[place]), W, H, solver, self.stopping)
            keep = None if save is None else save.save_if_due
            runs.append(Run(*how, resume=saved[place], save=keep))
            saved[place] = None
        return runs

    def _drawn(self, rng: np.random.Generator) -> DataMatrix:
        V, noise = self.V, self.noise
        is_balanced = "counting noise" in self.loss.k_evidence and noise.weights is None
        if self.resample == "start":
            return V
        if self.resample == "counts":
            view = redrawn(V, rng, dispersion=noise.dispersion, balance=is_balanced)
        else:
            view = bootstrapped(V, rng, degree=self.loss.degree)
            while V.nonzero < _FEW_SAMPLES and view.total == 0:  # perhaps none is drawn
                view = bootstrapped(V, rng, degree=self.loss.degree)
        if not self.holds_draws:
            return view
        held = take_samples(view, np.arange(view.shape[1]))
        return self.loss.data(noise.weighed(held))

    def _initial(self, V: DataMatrix, task: _Task) -> Start:
        solver = self.loss.solver("auto")
        return self.loss.initialize(V, task.K, "random", solver, task.rng)


# --- the result ---------------------------------------------------------------------------------

LIMITS = (0.05, 0.95)
"""Quantiles: the limits of entries, and of cosines."""

FORMAT = "conenmf-stability-2"  # 1 had limits without moves
_STABLE_SHARE = 0.8  # of the runs, in which a stable component is found ...
_STABLE_SILHOUETTE = 0.5  # ... by others that are nearer to each other than to any other component
_DIFFERENCES = {
    "start": "random inits",
    "samples": "random inits, samples drawn with replacement",
    "counts": "random inits, counts drawn again",
}


@dataclass(frozen=True, eq=False)
class Stability:
    """What many fits have in common.

    Components are sorted by their share of the reconstruction, the largest first.

    Attributes
    ----------
    W : array (F, K)
        The components of the consensus: medians over runs, each with a sum of one. Those of the
        best run if there is no consensus, see `problem`.
    H : array (K, N)
        The best coefficients for W.
    labels : array (N,), integers
        The component that contributes most to each sample; -1 for samples that are zero.
    found_in : array (K,)
        The share of the runs that have such a component: matched one to one, with a cosine above
        0.9.
    silhouettes : array (K,)
        The mean silhouette of those that belong to each component; NaN without a consensus.
    cosines : array (n_runs, K)
        Of each component with its partner in each run.
    lower, upper : arrays (F, K)
        Limits of the entries of W, made to cover at least nine in ten of what W estimates. Their
        distance from W combines the error over runs, see `entry_limits`, with how far noise lets
        the component be moved, see `moved_ranges`; for least squares they allow for noise that was
        clipped at zero, see `without_clipping`. NaN where they are withheld.
    moves : array (K,)
        How far each component can be moved within the noise of the data, in radians; NaN if that
        is not known, see `no_moves`. A component may be stable, and yet be moved: all runs then
        end at the same one of several answers.
    objective, relative_error : float
        Of W and H.
    best_run : array (F, K)
        Of the run with the lowest objective.
    best_objective, best_relative_error : float
        With the best coefficients for it.
    is_kept : array (n_runs,)
        Whether each run takes part in the consensus, see `max_excess`.
    n_left_out : int
        How many components of these runs are left out, since few others are near them.
    n_minima : int
        How many of the runs are different: with a component whose cosine with its partner is below
        0.99. Of runs on data drawn again, all may be.
    spectra : array (n_runs, F, K)
        W of each run.
    run_errors : array (n_runs,)
        The relative error of each, on the data that it drew.
    loss, resample : str
    names : Names
        Of samples and features.
    problem : str
        Why there is no consensus; empty if there is one.
    no_moves : str
        Why it is not known how far components can be moved; empty if it is.
    certificate, best_certificate : Certificate, CountCertificate or None
        Of W and H, and of the best run; None until `certify()` is called.
    data : DataMatrix or None
        For `certify()`; None once this was pickled or loaded.
    """

    W: Array
    H: Aligned
    labels: Aligned
    found_in: Array
    silhouettes: Array
    cosines: Array
    lower: Array
    upper: Array
    moves: Array
    objective: float
    relative_error: float
    best_run: Array
    best_objective: float
    best_relative_error: float
    is_kept: Array
    n_left_out: int
    n_minima: int
    spectra: Array
    run_errors: Array
    loss: str
    resample: str
    names: Names
    problem: str
    no_moves: str = ""
    certificate: AnyCertificate | None = None
    best_certificate: AnyCertificate | None = None
    data: DataMatrix | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the data."""
        return {**vars(self), "data": None}

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.W.shape[1])

    @property
    def n_runs(self) -> int:
        """The number of runs."""
        return len(self.spectra)

    @property
    def difference(self) -> str:
        """What the runs differ by, in words."""
        return _DIFFERENCES[self.resample]

    @property
    def is_stable(self) -> Array:
        """Whether each component is: found in 80 % of the runs, with a silhouette of 0.5."""
        silhouettes = np.nan_to_num(self.silhouettes)
        return (self.found_in >= _STABLE_SHARE) & (silhouettes >= _STABLE_SILHOUETTE)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Why each component has no limits; empty if it has."""
        if self.no_moves:
            return (self.no_moves,) * self.K
        reasons = ["" if known else "fewer than two runs have it" for known in self.upper[0] >= 0]
        for k in map(int, np.flatnonzero(self.moves > MAX_MOVE)):
            reasons[k] = f"can be moved by {self.move_in_words(k)} within the noise"
        return tuple(reasons)

    @property
    def verdict(self) -> str:
        """One of "stable", "partly stable" and "unstable": all, at least half, or fewer are."""
        share = self.is_stable.mean()
        return "stable" if share == 1 else "partly stable" if share >= 0.5 else "unstable"

    @property
    def cosine_limits(self) -> Array:
        """The quantiles 0.05 and 0.95 of the cosines of each component, (2, K)."""
        return np.quantile(self.cosines, LIMITS, axis=0)

    def certify(self, *, effort: int | None = None) -> AnyCertificate:
        """Return the certificate of the consensus; `best_certificate` then is that of the best run.

        The first call reads the data, some tens of times. Both have the same lower bound.

        Parameters
        ----------
        effort : int, optional
            As in `conenmf.certify`; a later call computes it again only if it is higher.
        """
        effort = optional(integer, "effort", effort, at_least=0)
        known, V, best = self.certificate, self.data, self.best_run
        is_enough = known is not None and (effort is None or effort <= known.effort)
        if known is not None and is_enough and self.best_certificate is not None:
            return known
        if V is None:
            raise NotAvailableError(
                "certify() needs the data, which are not kept when this is pickled or saved: call "
                "it before"
            )
        spectrum = Spectrum(V)
        if known is None or not is_enough:
            known = certify(V, self.W, self.H, loss=self.loss, effort=effort, spectrum=spectrum)
        H = get_loss(self.loss).coefficients(V, best)[0]
        beside = certify_beside(V, known, best, H, spectrum=spectrum)
        for name, value in (("certificate", known), ("best_certificate", beside)):
            object.__setattr__(self, name, value)
        return known

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one ``.npz`` file, without pickle.

        The file appears under exactly this name, and only when it is complete.
        """
        arrays, facts = arrays_of_names(self.names)
        for name, value in vars(self).items():
            if isinstance(value, str | int | float):
                facts[name] = value
            elif isinstance(value, Certificate | CountCertificate):
                arrays[name] = numbers_of_certificate(value)
            elif name not in ("names", "data") and value is not None:
                arrays[name] = value
        write_arrays(path, arrays, {"format": FORMAT, **facts})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Stability:
        """Read what `save` wrote; anything else, or a damaged file, raises `FileFormatError`."""
        with reading(path, FORMAT, "what stability() found, as") as saved:
            names, own = saved.names_of_data(), {one.name for one in fields(cls)}
            values: dict[str, Any] = {
                name: saved.numbers(name, "fib", nan=True) for name in saved.names if name in own
            }
            values |= {name: value for name, value in saved.facts.items() if name in own}
            for name in {"certificate", "best_certificate"} & values.keys():
                values[name] = certificate_of_numbers(values[name], values["loss"])
            values |= {name: saved.factor(name) for name in ("W", "H", "best_run", "spectra")}
            return cls(**values, names=names)

    def __str__(self) -> str:
        low, high = self.cosine_limits
        rows = [f"{counted(self.K, 'component')}, {self.n_runs} runs: {self.difference}"]
        rows.append("component  found in  silhouette  cosine  [5 %, 95 %]     can move")
        for k, middle in enumerate(np.median(self.cosines, axis=0)):
            rows.append(
                f"{k:>9}  {self.found_in[k]:>8.0%}  {self.silhouettes[k]:>10.3f}  {middle:>6.3f}"
                f"  [{low[k]:.3f}, {high[k]:.3f}]  {self.move_in_words(k):>8}"
                f"{'' if self.is_stable[k] else '  not stable'}"
            )
        return "\n".join([*rows, *self.in_sentences()])

    def move_in_words(self, k: int) -> str:
        """Return how far noise lets component k be moved: "3.1°"."""
        angle = math.degrees(self.moves[k])
        return f"{angle:.1f}°" if math.isfinite(angle) else "unknown"

    def limits_in_words(self) -> str:
        """Return which components have limits, and why the others have none."""
        reasons: dict[str, list[str]] = {}
        for k, reason in enumerate(self.withheld):
            reasons.setdefault(reason, []).append(str(k))
        n_limits = len(reasons.pop("", []))
        words = f"limits of {LEVEL:.0%} for {n_limits} of {counted(self.K, 'component')}"
        for reason, which in reasons.items():
            words += f"; withheld for {', '.join(which)}: {reason}"
        return words

    def in_sentences(self) -> list[str]:
        """Return the verdict, the errors and the number of distinct solutions, in sentences."""
        n_stable = int(self.is_stable.sum())
        named = get_loss(self.loss).words.of_runs
        errors = f"{self.relative_error:.4g} of the consensus, {self.best_relative_error:.4g} of"
        n_kept = int(self.is_kept.sum())
        left_out = f"{self.n_left_out} of the {n_kept * self.K} components of {n_kept} runs"
        sentences = [
            f"{self.verdict}: {n_stable} of {counted(self.K, 'component')} found in at least "
            f"{_STABLE_SHARE:.0%} of the runs, with a silhouette of at least {_STABLE_SILHOUETTE}",
            f"{self.limits_in_words()}; stable does not mean unique: limits include how far noise "
            "lets a component move",
            f"{named}: {errors} the best run",
            f"distinct solutions: {self.n_minima} in {self.n_runs} runs; the consensus leaves out "
            f"{left_out}",
        ]
        if self.problem:
            sentences[1:] = [
                self.limits_in_words(),
                f"no consensus: {self.problem}; the components are those of the best run",
                f"{named}: {self.best_relative_error:.4g}",
                f"distinct solutions: {self.n_minima} in {self.n_runs} runs",
            ]
        if self.K > (F := self.W.shape[0]):
            sentences.append(f"{self.K} components of {F} features: at most {F} can be independent")
        return [*sentences, *self._certified()]

    def _certified(self) -> list[str]:
        """What the certificates say: the bound that both share, and how far each is from it."""
        if self.certificate is None or self.best_certificate is None:
            return []
        lines, best = quality_in_words(self.certificate, self.K), _distances(self.best_certificate)
        for what, distance in _distances(self.certificate).items():
            both = f" of the consensus, {best.get(what, '-')} of the best run"
            lines.append(f"{what}: {distance}{'' if self.problem else both}")
        if not self.problem:
            lines.append("a consensus is made of medians: it need not be a minimum, as a run is")
        return lines

    def top_features(
        self, n: int = 10, *, feature_names: Iterable[object] | None = None
    ) -> list[list[str]]:
        """Return the names of the n largest features of each component, largest first."""
        return largest_features(self.W, named_features(self.W, self.names, feature_names), n)

    def components_frame(self, *, feature_names: Iterable[object] | None = None) -> Any:
        """Return the components as a pandas data frame: a row each, features in columns."""
        names = named_features(self.W, self.names, feature_names)
        return components_frame(self.W, names, [f"component {k}" for k in range(self.K)])

    def plot(self, axes: Any = None) -> Array:
        """Draw the components with the limits of their entries; return the matplotlib axes."""
        titles = [
            f"component {k}: in {share:.0%}{', limits withheld' * bool(self.withheld[k])}"
            for k, share in enumerate(self.found_in)
        ]
        lower, upper = (self.W, self.W) if self.problem else (self.lower, self.upper)
        return plots.bands(self.W, lower, upper, axes, titles=titles)


def _distances(certificate: AnyCertificate) -> dict[str, str]:
    """How far factors are from the best, by what is known of it."""
    gap = {"gap to the lower bound": f"{certificate.gap:.2g}"}
    if isinstance(certificate, CountCertificate):
        gaps = f"{certificate.coefficient_gap:.2g}, {certificate.component_gap:.2g}"
        return (gap if certificate.is_bound_telling else {}) | {"duality gaps of H, W": gaps}
    return gap | {"distance from a stationary point": f"{certificate.kkt_residual:.2g}"}


# --- one number of components -------------------------------------------------------------------

_FOUND_COSINE = 0.9  # above which a component counts as found in a run
_MIN_KEPT_SHARE = 0.25  # of the runs, that take part in the consensus
_MIN_RUNS, _MAX_RUNS = 2, 10_000
_MAX_MOVED_ENTRIES = 1 << 22  # of the samples by which the range of moves is found


def stability(
    V: DataMatrix,
    K: int,
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    resample: str = "samples",
    dispersion: float | Noise | None = None,
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Stability:
    """Fit V many times, and return what the fits have in common.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    n_runs : int
        At least 2. Shares are multiples of 1 / n_runs, so that 20 or more say more.
    loss : {"frobenius", "poisson"}
        As in `factorize`.
    resample : {"samples", "counts", "start"}
        What runs differ by, besides their random init: samples drawn with replacement (the
        bootstrap; each sample a Poisson number of times); counts, each drawn again with that mean;
        or nothing else. Inits alone show whether the solver finds the same minimum again, which it
        may even of noise, and limits of entries then say nothing about sampling.
    dispersion : float or Noise, optional
        Of counts: those of mean x have the variance x + dispersion x^2, so 0 is for Poisson counts.
        Counts are drawn again so, and with the Poisson loss entries have weights for it, samples
        those of large data. By default it is estimated, see `judge.dispersion`.
    density_threshold : float
        See `consensus`.
    max_excess : float
        Runs whose error is higher than the lowest one by more than this share have ended in a worse
        minimum, and take no part in the consensus, unless fewer than a quarter are left; infinity
        keeps all. On data that are drawn again, all take part.
    max_iter, tol
        See `Stopping`.
    rng : numpy.random.Generator, optional
        By default one of a fixed seed.
    checkpoint : path or Checkpoint, optional
        A folder in which every run is kept when it has ended, and saved every minute until then.
        The same call continues, also with more runs, and gives the same bits.

    Notes
    -----
    All runs share every pass over V until they have converged, and each has the bits that it would
    have alone. If their coefficients would take more than half of the memory, they do so in groups.
    Data that are drawn again are drawn from every block that is read, unless V is in memory and
    small: then each run keeps its own.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> V = from_columns(np.kron(np.eye(3), np.ones((4, 9))) * rng.random((12, 27)))
    >>> stability(V, 3, 6).verdict
    'stable'
    """
    require_data_matrix(V, nonzero=True)
    K = checked_components(K, V)
    options = (loss, resample, density_threshold, max_excess, max_iter, tol, rng, checkpoint)
    settings = _Settings.checked(n_runs, *options)
    with V.own_threads():
        noise = settings.noise(V, K, dispersion)
        ((_, found),) = settings.found(V, {K: settings.checkpoint}, noise)
    return found


class _Settings(NamedTuple):
    """The options of `stability` and `stability_over`, checked."""

    n_runs: int
    loss: str
    resample: str
    density_threshold: float
    max_excess: float
    stopping: Stopping
    rng: np.random.Generator
    checkpoint: Checkpoint | None

    @classmethod
    def checked(
        cls,
        n_runs: int,
        loss: str,
        resample: str,
        density_threshold: float,
        max_excess: float,
        max_iter: int,
        tol: float,
        rng: np.random.Generator | None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None,
    ) -> _Settings:
        """Check the options."""
        rng = optional(generator, "rng", rng)
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(path("checkpoint", checkpoint))
        if get_loss(loss).degree == 0 and resample != "start":
            advice = " does not depend on the scale of a sample, so samples have no weights: use "
            raise NotAvailableError(
                Message(Option("loss", loss), advice, Option("resample", "start"))
            )
        return cls(
            integer("n_runs", n_runs, at_least=_MIN_RUNS, at_most=_MAX_RUNS),
            get_loss(loss).name,
            choice("resample", resample, RESAMPLINGS),
            number("density_threshold", density_threshold, above=0),
            number("max_excess", max_excess, at_least=0, or_infinite=True),
            Stopping(tol, max_iter=integer("max_iter", max_iter, at_least=1)),
            np.random.default_rng(0) if rng is None else rng,
            checkpoint,
        )

    def noise(self, V: DataMatrix, K: int, dispersion: float | Noise | None) -> Noise:
        """Return how counts vary around a fit with K components, as far as runs need it."""
        if isinstance(dispersion, Noise):
            return dispersion
        dispersion = optional(number, "dispersion", dispersion, at_least=0)
        if "counting noise" in get_loss(self.loss).k_evidence:
            return noise_of(V, K, np.random.default_rng(0), dispersion)
        if self.resample != "counts":
            return POISSON
        if dispersion is None:
            dispersion = estimated_dispersion(V, K, np.random.default_rng(0))
        return Noise(dispersion)

    def found(
        self, V: DataMatrix, places: Mapping[int, Checkpoint | None], noise: Noise
    ) -> Iterator[tuple[int, Stability]]:
        """Yield what runs have in common, for each number of components; they share passes."""
        how: dict[str, Any] = {"loss": self.loss, "resample": self.resample}
        options = {**how, "rng": self.rng, "stopping": self.stopping, "noise": noise}
        limits: dict[str, Any] = {
            "density_threshold": self.density_threshold,
            "max_excess": self.max_excess,
        }
        for K, runs in replicate_over(V, places, self.n_runs, **options):
            yield K, judged_replicates(V, runs, **how, **limits)


def judged_replicates(
    V: DataMatrix,
    runs: Replicates,
    loss: str,
    resample: str,
    density_threshold: float,
    max_excess: float,
) -> Stability:
    """Return what runs have in common; arguments are those of `stability`, checked."""
    is_kept = np.full(len(runs.errors), True)
    if resample == "start":
        is_kept = _best(runs.errors, max_excess)
    found = consensus(runs.spectra[is_kept], density_threshold=density_threshold)
    return _judged(V, runs, is_kept, found, loss, resample)


def _best(errors: Array, max_excess: float) -> Array:
    """Which runs have a low error, and at least some of them."""
    n_least = max(_MIN_RUNS, int(np.ceil(_MIN_KEPT_SHARE * errors.size)))
    limit = max(errors.min() * (1 + max_excess), np.sort(errors)[n_least - 1])
    return errors <= limit


class _Ended(NamedTuple):
    """W, sorted, with its best H: `order` says where its components were."""

    W: Array
    H: Aligned
    labels: Aligned
    objective: float
    relative_error: float
    order: Array


def _judged(
    V: DataMatrix, runs: Replicates, is_kept: Array, found: Consensus, loss: str, resample: str
) -> Stability:
    goal = get_loss(loss).on(V, rescale=False)
    errors = runs.errors if resample == "start" else _errors(goal, runs.spectra)
    best = _ended(goal, runs.spectra[np.argmin(errors)])
    end = best if found.W is None else _ended(goal, found.W)
    cosines = found_again(end.W, runs.spectra)
    lower, upper, silhouettes, moves = _spread(V, runs.spectra[is_kept], found, end, loss)
    return Stability(
        W=end.W,
        H=end.H,
        labels=end.labels,
        found_in=(cosines > _FOUND_COSINE).mean(axis=0),
        silhouettes=silhouettes,
        cosines=cosines,
        lower=lower,
        upper=upper,
        moves=moves.angles,
        no_moves=moves.problem,
        objective=end.objective,
        relative_error=end.relative_error,
        best_run=best.W,
        best_objective=best.objective,
        best_relative_error=best.relative_error,
        is_kept=is_kept,
        n_left_out=int((found.clusters < 0).sum()) if found.W is not None else 0,
        n_minima=distinct(runs.spectra),
        spectra=runs.spectra,
        run_errors=runs.errors,
        loss=loss,
        resample=resample,
        names=V.names,
        problem=found.problem,
        data=V,
    )


def _errors(goal: Objective, spectra: Array) -> Array:
    """The objective of V itself for each run, whose own error is that of the data it drew."""
    each = [_components(goal, W) for W in spectra]
    return goal.loss.values(goal.V, each)


def _components(goal: Objective, W: Array) -> Array:
    """W in the type of V; a rate must not be zero where a count is not."""
    return goal.loss.admissible(goal.V, W)


def _ended(goal: Objective, W: Array) -> _Ended:
    W = _components(goal, W)
    end = goal.finish(W)
    error = goal.relative_error(end.squared_error)
    sorted_W = np.ascontiguousarray(W[:, end.order])
    return _Ended(sorted_W, end.H, end.labels, end.objective, error, end.order)


def _spread(
    V: DataMatrix, spectra: Array, found: Consensus, end: _Ended, loss: str
) -> tuple[Array, Array, Array, Ranges]:
    """Limits of the entries of each component of the consensus, its silhouette, and its moves.

    Distances of limits from the consensus combine those of the bootstrap with how far the component
    can be moved; NaN if that is not known, or too far.
    """
    _, F, K = spectra.shape
    lower, upper = np.full((2, F, K), np.nan)
    silhouettes, steps = np.full(K, np.nan), np.zeros((K, K))
    if found.W is None:
        return lower, upper, silhouettes, Ranges(lower, upper, silhouettes, found.problem)
    rows, W = spectra.transpose(0, 2, 1), found.W[:, end.order]
    coordinates = np.linalg.pinv(W).T
    for place, k in enumerate(end.order):
        own = rows[found.clusters == k]
        own = own / own.sum(axis=1, keepdims=True)
        upper[:, place] = entry_limits(W[:, place], own)[1]
        silhouettes[place] = found.silhouettes[found.clusters == k].mean()
        steps[:, place] = (own @ coordinates).std(axis=0)
    X, H = _some_samples(V, end)
    moves = moved_ranges(X, W, H, steps)
    least = most = W
    if get_loss(loss).degree == 2 and not moves.problem:
        least, most = np.sort([W, without_clipping(X, W, H)], axis=0)
    half = upper - W  # the errors of runs and of moves are independent, and their squares add up
    lower = np.maximum(least - np.hypot(half, W - moves.lower), 0)
    upper = most + np.hypot(half, moves.upper - W)
    withheld = moves.angles > MAX_MOVE
    lower[:, withheld], upper[:, withheld] = np.nan, np.nan
    return lower, upper, silhouettes, moves


def _some_samples(V: DataMatrix, end: _Ended) -> tuple[Array, Array]:
    """Samples that are not zero, and their coefficients for components of sum one."""
    F, N = V.shape
    samples = evenly_spaced(N, max(_MAX_MOVED_ENTRIES // F, 2 * end.W.shape[1]))
    X, H = dense(V.columns(samples)), exact(np.asarray(end.H[:, samples]))
    is_used = X.any(axis=0)
    return X[:, is_used], H[:, is_used] * exact(end.W).sum(axis=0)[:, None]


# --- several numbers of components --------------------------------------------------------------

_MAX_DEFAULT = 50  # components that are tried by default
_PATIENCE = 2  # numbers of components beyond the best one that are tried


@dataclass(frozen=True, eq=False)
class StabilityRange:
    """What is found again for several numbers of components.

    Attributes
    ----------
    K : int
        The recommended number.
    reason : str
        Why.
    found : dict
        From each number to its `Stability`.
    """

    K: int
    reason: str
    found: dict[int, Stability]

    @property
    def ks(self) -> Array:
        """The numbers of components."""
        return np.array(list(self.found))

    @property
    def silhouettes(self) -> Array:
        """The mean silhouette for each number; 0 where there is no consensus."""
        return np.array([np.nan_to_num(one.silhouettes).mean() for one in self.found.values()])

    @property
    def relative_errors(self) -> Array:
        """The relative error of the best run for each number."""
        return np.array([one.best_relative_error for one in self.found.values()])

    def __str__(self) -> str:
        rows = ["   K  stable  silhouette  error, consensus  error, best run"]
        for (k, one), silhouette in zip(self.found.items(), self.silhouettes, strict=True):
            rows.append(
                f"{k:>4}  {int(one.is_stable.sum()):>6}  {silhouette:>10.3f}"
                f"  {one.relative_error:>16.4g}  {one.best_relative_error:>15.4g}"
            )
        return "\n".join([*rows, f"recommended: {self.K}; {self.reason}"])

    def plot(self, ax: Any = None) -> Any:
        """Draw stability and error against K; return the two matplotlib axes."""
        return plots.stability_and_error(
            self.ks, self.silhouettes, self.relative_errors, self.K, ax
        )


def stability_over(
    V: DataMatrix,
    ks: Iterable[int] | None = None,
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    resample: str = "samples",
    dispersion: float | Noise | None = None,
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    callback: Callable[[Stability], object] | None = None,
) -> StabilityRange:
    """Return what is found again for several numbers of components, and recommend one.

    For the Poisson loss of counts it is the number with the lowest divergence if every component
    costs what it would explain of noise, (sqrt F + sqrt N)^2 / 2: that is half of the square of the
    largest singular value of F x N numbers of variance one. Otherwise it is the largest number of
    which all components are stable; without any, the one with the largest mean silhouette.

    Parameters
    ----------
    V : DataMatrix (F, N)
    ks : integers, optional
        By default numbers around one that is estimated; for the Poisson loss of counts one after
        the other, until two more and two fewer than the best one have been tried.
    n_runs : int
    loss, resample, dispersion, density_threshold, max_excess, max_iter, tol, rng
        As in `stability`; the dispersion is estimated with the largest of the numbers.
    checkpoint : path or Checkpoint, optional
        A folder, with one for each number in it, in which runs are kept as `stability` does.
    callback : callable, optional
        Called with the `Stability` of each number as soon as it is known.

    Notes
    -----
    The runs of all numbers share their passes over V, as those of one do in `stability`.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> stability_over(from_columns(model.V), [2, 3], 4).ks.tolist()
    [2, 3]
    """
    require_data_matrix(V, nonzero=True)
    optional(function, "callback", callback, takes=1)
    options = (loss, resample, density_threshold, max_excess, max_iter, tol, rng, checkpoint)
    settings = _Settings.checked(n_runs, *options)
    if settings.checkpoint is not None:
        with held_folder(Path(settings.checkpoint.folder)):  # it is made, and can be written to
            pass
    with V.own_threads():
        is_counted = "thinning" in get_loss(settings.loss).k_evidence and V.observed is None
        are_counts = is_counted and holds_counts(V)
        candidates = _candidates(V, ks, are_counts)
        noise = settings.noise(V, candidates[-1], dispersion)
        trial = _RangeTrial(V, settings, noise, are_counts, callback)
        if are_counts and ks is None:
            trial.search(candidates[0])
        else:
            trial.add(candidates)
    found = dict(sorted(trial.found.items()))
    if are_counts:
        return StabilityRange(trial.best, "more would explain no more than noise allows", found)
    return StabilityRange(*_recommended(found), found)


def _candidates(V: DataMatrix, ks: Iterable[int] | None, are_counts: bool) -> list[int]:
    """Check the numbers, or find those from a good one on to the most that are likely."""
    if ks is None:
        most = min(*V.shape, _MAX_DEFAULT)
        if are_counts:
            first, most = scan(V, np.random.default_rng(0))
        else:
            first, most = min(2, most), min(count_above_edge(V, most).K + 2, most)
        return list(range(first, most + 1))
    candidates = numbers_of_components(ks)
    checked_components(int(candidates[-1]), V)
    return [int(k) for k in candidates]


def numbers_of_components(ks: Iterable[int]) -> Array:
    """Check a list of numbers, and return them sorted."""
    candidates = np.unique([components(k) for k in several("ks", ks, "a list of integers")])
    if candidates.size == 0:
        raise ComponentsError(Message(Option("ks", ks), ", expected integers of at least 1"))
    return candidates


class _RangeTrial:
    """Runs of several numbers of components; of counts also what each number costs."""

    def __init__(
        self,
        V: DataMatrix,
        settings: _Settings,
        noise: Noise,
        are_counts: bool,
        callback: Callable[[Stability], object] | None,
    ) -> None:
        self.V, self.settings, self.noise = V, settings, noise
        self.are_counts, self.callback = are_counts, callback
        self.found: dict[int, Stability] = {}
        self.costs: dict[int, float] = {}

    @property
    def best(self) -> int:
        """The number that costs least."""
        return min(self.costs, key=self.costs.__getitem__)

    def add(self, ks: list[int]) -> None:
        """Find what the runs of these numbers have in common; they share their passes."""
        place = self.settings.checkpoint
        places: dict[int, Checkpoint | None] = dict.fromkeys(ks)
        if place is not None:
            places = {k: replace(place, folder=Path(place.folder) / f"K-{k}") for k in places}
        for k, one in self.settings.found(self.V, places, self.noise):
            self.found[k] = one
            if self.callback is not None:
                self.callback(one)
        if self.are_counts:
            self.costs |= {k: self._cost(self.found[k]) for k in ks}

    def search(self, first: int) -> None:
        """Try numbers around the first, until two beyond the best one."""
        self.add([first])
        for step in (-1, 1):
            k = first + step
            while 1 <= k <= min(self.V.shape) and (k - self.best) * step <= _PATIENCE:
                self.add([k])
                k += step

    def _cost(self, one: Stability) -> float:
        """The divergence of the best fit to V, and what every component explains of noise."""
        V, W = self.V, one.best_run
        if one.resample != "start":  # then it was fitted to other data
            W = continued(V, W, self.noise, self.settings.stopping)
        H = get_loss(one.loss).coefficients(V, W)[0]
        return quasi_divergence(V, W, H, self.noise.dispersion) + one.K * edge_of(V.shape)


def _recommended(found: dict[int, Stability]) -> tuple[int, str]:
    stable = [k for k, one in found.items() if one.is_stable.all()]
    if stable:
        return stable[-1], "the most that are all stable"
    means = {k: float(np.nan_to_num(one.silhouettes).mean()) for k, one in found.items()}
    return max(means, key=means.__getitem__), "none is stable; this has the largest silhouette"

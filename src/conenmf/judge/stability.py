"""The stability of components: many fits of resampled data, and what they have in common.

`stability` runs the same fit many times (`replicates`) and forms the consensus. For each component
it reports the share of the runs that contain it, how similar it is in these runs, and limits for
each of its entries. `stability_over` does this for several numbers of components.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.linalg import norm, pinv
from numpy.random import Generator, default_rng

from .. import plots
from ..arguments import (
    choice,
    components,
    flag,
    function,
    generator,
    integer,
    number,
    optional,
    several,
)
from ..cones.counting import count_above_edge
from ..data.blocks import exact, first_largest
from ..data.imputation import fill_missing
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced, holds_counts
from ..data.validate import check_components, require_data_matrix
from ..errors import ComponentsError, NotAvailableError, Option
from ..io.open import as_data
from ..judge.matching import KNOWN_COSINE, cosines, match_components
from ..linalg.svd import Spectrum
from ..names import Names
from ..scale.checkpoint import (
    Place,
    checkpoint_at,
    held_folder,
    reading,
    write_arrays,
)
from ..solve.coefficients import Finish, require_finite
from ..solve.loss import Noise
from ..solve.losses import Objective, get_loss
from ..solve.problem import Problem, check_count, problem_of
from ..solve.run import Stopping
from ..text import counted
from ..types import Array, Facts, PathLike, Texts
from .association import followers, named_columns, shares_by_class
from .details import samples_and_weights
from .dispersion import POISSON, edge_of, likelihoods, noise_of, quasi_divergence
from .dispersion import dispersion as estimated_dispersion
from .limits import (
    LEVEL,
    MAX_MOVE,
    Ranges,
    entry_limits,
    evened,
    moved_ranges,
    without_clipping,
)
from .replicates import (
    MAX_HELD_ENTRIES,
    RESAMPLINGS,
    Consensus,
    Replicates,
    consensus,
    distinct,
    has_counting_noise,
    with_known,
)
from .requirement import first_start

# --- the result ---------------------------------------------------------------------------------

LIMITS = (0.05, 0.95)  # quantiles of cosines that are reported

FORMAT = "conenmf-stability-5"
_STABLE_SHARE = 0.8  # a stable component is found in this share of the runs ...
_STABLE_SILHOUETTE = 0.5  # ... with this silhouette, so that its cluster is distinct


@dataclass(frozen=True, eq=False)
class Stability:
    """The consensus of many fits, and how stable each of its components is.

    Components are sorted by their share of the reconstruction, the largest first.

    Attributes
    ----------
    W : array (F, K)
        The components of the consensus, each with a sum of one; known ones are as given, and with
        penalties they have the median size of the runs. They are medians over runs; for the Poisson
        loss they are refined on V, see `Replicates.refined` and `Replicates.pruned`. If
        there is no consensus (see `no_consensus`), they are the components of the best run.
    H : array (K, N)
        The best coefficients for W.
    labels : array (N,), integers
        The component that contributes most to each sample; -1 for samples that are zero.
    found_in : array (K,)
        The share of the runs that contain each component. Components are matched one to one, and
        a cosine above 0.9 counts.
    silhouettes : array (K,)
        The mean silhouette of the cluster of each component; NaN without a consensus.
    cosines : array (n_runs, K)
        The cosine between each component and its partner in each run.
    lower, upper : arrays (F, K)
        90 % limits of the entries of W; in simulations they usually contain 97 to 99 of 100 true
        entries. Their distance from W combines the error over runs (`entry_limits`) with how far
        noise can move the component (`moved_ranges`). For least squares they allow for noise that
        was clipped at zero (`without_clipping`). Limits that are withheld are NaN.
    moves : array (K,)
        How far each component can be moved within the noise of the data, in radians; NaN if this is
        not known, see `no_moves`. A stable component may still be movable: all runs may end at the
        same one of several solutions.
    relative_error : float
        The error of W and H.
    best_run : array (F, K)
        The components of the run with the lowest objective; refined on V for the Poisson loss.
    best_relative_error : float
        The error of `best_run` with the best coefficients.
    is_kept : array (n_runs,)
        Whether each run is used for the consensus, see `max_excess`.
    n_left_out : int
        How many components of the kept runs are left out because they have few near neighbours.
    n_minima : int
        The number of distinct solutions among the runs. Two solutions are distinct if a component
        has a cosine below 0.99 with its partner. If data are resampled, all runs may be distinct.
    spectra : array (n_runs, F, K)
        The components W of each run.
    run_errors : array (n_runs,)
        The relative error of each run, on its resampled data.
    loss, resample : str
    names : Names
        The names of samples and features.
    no_consensus : str
        Why there is no consensus; empty if there is one.
    no_moves : str
        Why it is not known how far components can be moved; empty if it is known.
    is_pruned : bool
        Whether activities that noise explains were set to zero for W. The statistics of the runs,
        with their silhouettes and part of the limits, describe the runs before this step.
    class_shares : dict
        For each column of classes that was given, the share of the variation of each component that
        they explain; see `judge.association`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> V = from_columns(np.kron(np.eye(3), np.ones((4, 9))) * rng.random((12, 27)))
    >>> found = stability(V, 3, 6)
    >>> found.found_in.tolist(), found.W.shape
    ([1.0, 1.0, 1.0], (12, 3))
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
    relative_error: float
    best_run: Array
    best_relative_error: float
    is_kept: Array
    n_left_out: int
    n_minima: int
    spectra: Array
    run_errors: Array
    loss: str
    resample: str
    names: Names
    no_consensus: str
    no_moves: str = ""
    is_pruned: bool = False
    class_shares: Facts = field(default_factory=dict)

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
        """How the data of the runs were resampled, in words."""
        return RESAMPLINGS[self.resample]

    @property
    def is_stable(self) -> Array:
        """Whether each component is in at least 80% of the runs, with a silhouette of 0.5."""
        silhouettes = np.nan_to_num(self.silhouettes)
        return (self.found_in >= _STABLE_SHARE) & (silhouettes >= _STABLE_SILHOUETTE)

    @property
    def mean_silhouette(self) -> float:
        """The mean silhouette of all components; 0 without a consensus."""
        return float(np.nan_to_num(self.silhouettes).mean())

    @property
    def withheld(self) -> Texts:
        """Why each component has no limits; empty if it has limits."""
        if self.no_moves:
            return (self.no_moves,) * self.K
        reasons = [
            "" if known else "fewer than two runs contain it" for known in self.upper[0] >= 0
        ]
        for k in map(int, np.flatnonzero(self.moves > MAX_MOVE)):
            reasons[k] = (
                f"can be moved by {self.move_in_words(k)} within the noise (do not name it by its "
                "profile; add samples that have it, or give a known profile)"
            )
        return tuple(reasons)

    @property
    def verdict(self) -> str:
        """Return "stable" if all components are, "partly stable" if half are, or "unstable"."""
        share = self.is_stable.mean()
        return "stable" if share == 1 else "partly stable" if share >= 0.5 else "unstable"

    @property
    def cosine_limits(self) -> Array:
        """The 0.05 and 0.95 quantiles of the cosines of each component, (2, K)."""
        return np.quantile(self.cosines, LIMITS, axis=0)

    def save(self, path: PathLike) -> None:
        """Write everything to one ``.npz`` file, without pickle.

        The file gets exactly this name, and appears only when it is complete.

        Parameters
        ----------
        path : path
        """
        arrays: Facts = {}
        facts: Facts = {"format": FORMAT, "names": vars(self.names)}
        for name, value in vars(self).items():
            if isinstance(value, str | int | float | dict):
                facts[name] = value
            elif name != "names":
                arrays[name] = value
        write_arrays(path, arrays, facts)

    @classmethod
    def load(cls, path: PathLike) -> Stability:
        """Read a file written by `save`; any other or damaged file raises `FileFormatError`.

        Parameters
        ----------
        path : path
        """
        with reading(path, FORMAT, "what stability() found, as") as (facts, arrays):
            del facts["format"]
            return cls(**{**facts, **arrays, "names": Names.of(**facts["names"])})

    def __str__(self) -> str:
        low, high = self.cosine_limits
        rows = [f"{counted(self.K, 'component')}, {self.n_runs} runs: {self.difference}"]
        rows.append("component  found in  silhouette  cosine  [5 %, 95 %]     can move")
        row = "{:>9}  {:>8.0%}  {:>10.3f}  {:>6.3f}  [{:.3f}, {:.3f}]  {:>8}{}"
        middle = np.median(self.cosines, axis=0)
        columns = zip(self.found_in, self.silhouettes, middle, low, high, strict=True)
        for k, numbers in enumerate(columns):
            note = "" if self.is_stable[k] else "  not stable"
            rows.append(row.format(k, *numbers, self.move_in_words(k), note))
        return "\n".join([*rows, *self.in_sentences()])

    def move_in_words(self, k: int) -> str:
        """Return how far noise can move component k, such as "3.1°".

        Parameters
        ----------
        k : int
        """
        angle = math.degrees(self.moves[k])
        return f"{angle:.1f}°" if math.isfinite(angle) else "unknown"

    def limits_in_words(self) -> str:
        """Return which components have limits, and why the others have none."""
        reasons: dict[str, list[str]] = {}
        for k, reason in enumerate(self.withheld):
            reasons.setdefault(reason, []).append(str(k))
        n_limits = len(reasons.pop("", []))
        words = f"{LEVEL:.0%} limits for {n_limits} of {counted(self.K, 'component')}"
        for reason, which in reasons.items():
            words += f"; withheld for {', '.join(which)}: {reason}"
        return words

    def in_sentences(self, unit: str = "component", first: int = 0) -> list[str]:
        """Return the verdict, the errors, distinct solutions and followed classes, in sentences.

        Parameters
        ----------
        unit : str
            What components are called that follow a class.
        first : int
            The number of the first of them.
        """
        n_stable = int(self.is_stable.sum())
        n_kept = int(self.is_kept.sum())
        error = get_loss(self.loss).words.of_runs
        sentences = [
            f"{self.verdict}: {n_stable} of {counted(self.K, 'component')} found in at least "
            f"{_STABLE_SHARE:.0%} of the runs, with a silhouette of at least {_STABLE_SILHOUETTE}",
            f"{self.limits_in_words()}; stable components may not be unique, so the limits include "
            "how far noise can move them",
            f"{error}: {self.relative_error:.4g} (consensus), {self.best_relative_error:.4g} "
            "(best run)",
            f"distinct solutions: {self.n_minima} in {self.n_runs} runs; the consensus leaves out "
            f"{self.n_left_out} of the {n_kept * self.K} components of {n_kept} runs",
        ]
        if self.no_consensus:
            sentences[1:] = [
                self.limits_in_words(),
                f"no consensus: {self.no_consensus}; the components are those of the best run",
                f"{error}: {self.best_relative_error:.4g}",
                f"distinct solutions: {self.n_minima} in {self.n_runs} runs",
            ]
        if self.is_pruned:
            sentences.append(
                "activities that noise explains were dropped, in the consensus and in each run"
            )
        if self.K > (F := self.W.shape[0]):
            sentences.append(f"{self.K} components of {F} features: at most {F} can be independent")
        return sentences + followers(self.class_shares, unit, first)

    def plot(self, axes: object = None) -> Array:
        """Draw the components with the limits of their entries; return the matplotlib axes.

        Parameters
        ----------
        axes : array of matplotlib axes, optional
        """
        titles = [
            f"component {k}: in {share:.0%} of runs{', limits withheld' * bool(self.withheld[k])}"
            for k, share in enumerate(self.found_in)
        ]
        limits = (self.W, self.W) if self.no_consensus else (self.lower, self.upper)
        return plots.components(self.W, Names(), axes, limits=limits, titles=titles)

    def clustergram(self, density_threshold: float = 0.5, axes: object = None) -> Array:
        """Draw the distances between the components of all runs, sorted by their clusters.

        A second panel shows the distance of each component from its nearest neighbours. Components
        beyond the threshold are left out of the consensus and drawn last. If there are very many
        components, only a subset is drawn.

        Parameters
        ----------
        density_threshold : float
            As in `consensus`.
        axes : pair of matplotlib axes, optional
        """
        kept = self.spectra[self.is_kept]
        shown = kept[evenly_spaced(len(kept), max(_MAX_DRAWN // self.K, 2))]
        found = consensus(shown, density_threshold=density_threshold)
        clusters = found.clusters.ravel()
        means = found.distances.ravel()
        order = np.argsort(np.where(clusters < 0, self.K, clusters), kind="stable")
        spectra = shown.transpose(1, 0, 2).reshape(len(self.W), -1)[:, order]
        distances = np.sqrt(np.maximum(2 - 2 * cosines(spectra), 0))
        return plots.clustergram(distances, clusters[order], means, density_threshold, axes)


# --- one number of components -------------------------------------------------------------------

_MIN_KEPT_SHARE = 0.25  # of the runs: the fewest that form the consensus
_MAX_LOST_SHARE = 0.05  # of what a component explains on average: the largest loss of a kept run
_TIE_SHARE = 1e-6  # relative difference up to which errors or silhouettes count as equal
_MIN_RUNS = 2
_MAX_RUNS = 10_000
_MAX_DRAWN = 2000  # components of runs that a clustergram shows
_MAX_MOVED_ENTRIES = 1 << 22  # of the samples that are used to find ranges of moves


def stability(
    V: object,
    K: int,
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    problem: Problem | None = None,
    resample: str = "samples",
    dispersion: float | Noise | None = None,
    prune: bool = False,
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: Generator | None = None,
    checkpoint: Place = None,
    classes: Any = None,
) -> Stability:
    """Fit resampled data many times, and measure how stable each component is.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
        Entries may be missing or have weights, for least squares.
    K : int
    n_runs : int
        Number of fits, at least 2; use 20 or more for precise shares.
    loss : {"frobenius", "poisson"}
        As in `factorize`.
    problem : Problem, optional
        What each run minimises, if that is more than a loss. Known components are the first ones;
        they do not move, and count as found. With penalties drawn samples are repeated, and the
        columns of W keep the median size of the runs. How far noise can move a component does not
        count penalties.
    resample : {"samples", "counts", "start"}
        The data of each run: samples drawn with replacement (bootstrap); random counts with the
        observed counts as means; or the original data. Every run has its own random init. With
        "start" the runs only show whether the solver reaches the same minimum, which it may do even
        for noise, and the limits ignore the sampling of the data.
    dispersion : float or Noise, optional
        For counts: a count with mean x has the variance x + dispersion x^2; 0 means Poisson. Counts
        are resampled with this variance, and the Poisson loss is weighted by it. By default it is
        estimated, see `judge.dispersion`.
    prune : bool
        For the Poisson loss of counts in memory: continue all runs on V, set activities to zero
        without which a sample is hardly less likely, and form the consensus of the results.
        This makes components sharper if each sample uses few of them, as in mutational signatures.
        The statistics describe the runs before this step. Other data and losses ignore it.
    density_threshold : float
        See `consensus`.
    max_excess : float
        With "start", runs are left out of the consensus if their error exceeds the lowest by more
        than this share, or by more than a twentieth of what a component explains, unless fewer than
        a quarter of the runs would remain. Infinity keeps all.
    max_iter, tol
        See `Stopping`.
    rng : numpy.random.Generator, optional
        By default a generator with a fixed seed.
    checkpoint : path or Checkpoint, optional
        A folder in which runs are saved every minute and when they end. The same call, even with
        more runs, resumes and gives the same result as an uninterrupted call.
    classes : array (N,) or table of N rows, optional
        Known classes of the samples, such as donors: one column, or a dict or data frame with
        several. The result says which components follow them.

    Notes
    -----
    All runs share every pass over V; each gives the same result as it would alone. If the
    coefficients of all runs would take more than half of the memory, the runs share passes in
    groups.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> V = from_columns(np.kron(np.eye(3), np.ones((4, 9))) * rng.random((12, 27)))
    >>> stability(V, 3, 6).verdict
    'stable'
    """
    V = as_data(V, nonzero=True, holes=True)
    K = check_components(K, V)
    problem = problem_of(problem, loss, "stability").bind(V)
    fitted = problem.loss
    n_runs = integer("n_runs", n_runs, at_least=_MIN_RUNS, at_most=_MAX_RUNS)
    resample = choice("resample", resample, RESAMPLINGS)
    threshold = number("density_threshold", density_threshold, above=0)
    max_excess = number("max_excess", max_excess, at_least=0, or_infinite=True)
    stopping = Stopping(tol, max_iter=integer("max_iter", max_iter, at_least=1))
    rng = optional(generator, "rng", rng) or default_rng(0)
    columns = named_columns("classes", classes, V.n_samples)
    require_data_matrix(V, holes=fitted.noise is None and resample != "counts")
    if "resampling" not in fitted.constraints and resample != "start":
        advice = " takes no fractional weights of samples: use "
        raise NotAvailableError(Option("loss", fitted.name), advice, Option("resample", "start"))
    if check_count(problem.n_fixed, K) == K:
        raise ComponentsError(f"all {K} components are known: none is left to be checked")
    with V.own_threads():
        problem = _with_numbers(V, K, problem)
        noise = _noise(V, K, problem, resample, dispersion)
        can_prune = flag("prune", prune) and _can_prune(V, problem)
        replicates = Replicates(V, K, problem, resample, noise, stopping)
        place = None if checkpoint is None else checkpoint_at(checkpoint)
        again = copy.deepcopy(rng)
        spectra, errors = replicates.fit(n_runs, rng, place)
        shown = spectra.copy()
        is_kept = np.full(n_runs, True)
        on_V = errors
        if resample == "start":
            is_kept = _best(errors, max_excess, K)
        else:  # the error of a run is the error on its redrawn data
            on_V = np.array([_value_on(V, problem, W) for W in spectra])
        free = spectra[is_kept][:, :, problem.n_fixed :]
        found = consensus(free, density_threshold=threshold)
        if problem.fixed is not None:
            found = with_known(found, problem.fixed.W)
        best = spectra[first_largest(-on_V, _TIE_SHARE)]
        if has_counting_noise(problem):
            found, best = replicates.refined(found, best)
            if can_prune:
                generators = list(compress(again.spawn(n_runs), is_kept))
                found, ends = replicates.pruned(found, spectra[is_kept], generators, threshold)
                shown[is_kept] = ends
        stable = _statistics(V, shown, errors, is_kept, found, best, problem, resample, can_prune)
        shares = shares_by_class(stable.W, stable.H, columns)
        return replace(stable, spectra=spectra, class_shares=shares)


def _with_numbers(V: DataMatrix, K: int, problem: Problem) -> Problem:
    """Return the problem with a number in place of "auto" for the weight of a penalty."""
    if not isinstance(problem.penalties.min_volume, str):
        return problem
    return first_start(problem, V, K, Spectrum(V) if V.is_complete else None)[1]


def _value_on(V: DataMatrix, problem: Problem, W: Array) -> float:
    """Return the objective of components with the best coefficients on V."""
    W = problem.loss.admissible(V, W)
    if problem.is_free:
        return problem.loss.coefficients(V, W)[2]
    return problem.objective(V, rescale=False).finish(W, sort=False).objective


def _can_prune(V: DataMatrix, problem: Problem) -> bool:
    """Whether these are counts in memory, and not too many."""
    is_small = V.is_in_memory and V.size <= MAX_HELD_ENTRIES
    has_noise = V.is_complete and has_counting_noise(problem)
    return is_small and has_noise and holds_counts(V)


def _noise(
    V: DataMatrix, K: int, problem: Problem, resample: str, dispersion: float | Noise | None
) -> Noise:
    """Return how counts vary around a fit with K components, if the runs need it."""
    if isinstance(dispersion, Noise):
        return dispersion
    dispersion = optional(number, "dispersion", dispersion, at_least=0)
    if has_counting_noise(problem):
        return noise_of(V, K, default_rng(0), dispersion)
    if resample != "counts":
        return POISSON
    if dispersion is None:
        dispersion = estimated_dispersion(V, K, default_rng(0))
    return Noise(dispersion)


def _best(errors: Array, max_excess: float, K: int) -> Array:
    """Return which runs have a low error; at least some do."""
    n_least = max(_MIN_RUNS, int(np.ceil(_MIN_KEPT_SHARE * errors.size)))
    lowest = errors.min()
    excess = max_excess * lowest
    if np.isfinite(max_excess):
        excess = min(excess, _MAX_LOST_SHARE * max(1 - lowest, 0) / K)
    return errors <= max(lowest + excess, np.sort(errors)[n_least - 1])


def _statistics(
    V: DataMatrix,
    spectra: Array,
    errors: Array,
    is_kept: Array,
    found: Consensus,
    best_W: Array,
    problem: Problem,
    resample: str,
    is_pruned: bool,
) -> Stability:
    """Return the statistics of all runs, given the consensus of the kept runs."""
    goal = problem.objective(V, rescale=False)
    best_run, best = _finish(goal, best_W)
    W, end = best_run, best
    if found.W is not None:
        W, end = _finish(goal, _with_sizes(found, spectra[is_kept], problem))
    partners = np.array([match_components(W, run)[1] for run in spectra])
    lower, upper, silhouettes, moves = _spread(V, spectra[is_kept], found, W, end, problem)
    return Stability(
        W=W,
        H=end.H,
        labels=end.labels,
        found_in=(partners > KNOWN_COSINE).mean(axis=0),
        silhouettes=silhouettes,
        cosines=partners,
        lower=lower,
        upper=upper,
        moves=moves.angles,
        no_moves=moves.reason,
        relative_error=goal.relative_error(end.squared_error),
        best_run=best_run,
        best_relative_error=goal.relative_error(best.squared_error),
        is_kept=is_kept,
        n_left_out=0 if found.W is None else int((found.clusters < 0).sum()),
        n_minima=distinct(spectra),
        spectra=spectra,
        run_errors=errors,
        loss=problem.loss.name,
        resample=resample,
        names=V.names,
        no_consensus=found.no_consensus,
        is_pruned=is_pruned,
    )


def _finish(goal: Objective, W: Array) -> tuple[Array, Finish]:
    """Return W in the type of V, sorted, and the exact H for it."""
    W = goal.loss.admissible(goal.V, W)
    end = goal.finish(W)
    require_finite(goal.V, W, end.H, end.objective)
    return np.ascontiguousarray(W[:, end.order]), end


def _with_sizes(found: Consensus, spectra: Array, problem: Problem) -> Array:
    """Return W of the consensus; with penalties, columns of the median size of the runs."""
    assert found.W is not None
    W = found.W
    penalties = problem.penalties
    if not penalties.are_none:
        sums = spectra.sum(axis=1)
        W = W * [np.median(sums[found.clusters == k]) for k in range(W.shape[1])]
    if penalties.fixes_columns:
        W = W / norm(W, axis=0)
    return W if problem.fixed is None else problem.fixed.put_into(W)


def _spread(
    V: DataMatrix, spectra: Array, found: Consensus, W_end: Array, end: Finish, problem: Problem
) -> tuple[Array, Array, Array, Ranges]:
    """Return limits of the entries of each component, its silhouette, and its moves.

    The distance of a limit from the consensus combines the bootstrap's with how far the component
    can be moved; NaN if that is not known, or too far.
    """
    _, F, K = spectra.shape
    lower, upper = np.full((2, F, K), np.nan)
    silhouettes = np.full(K, np.nan)
    steps = np.zeros((K, K))
    if found.W is None:
        return lower, upper, silhouettes, Ranges(lower, upper, silhouettes, found.no_consensus)
    rows = spectra.transpose(0, 2, 1)
    sums_to_one = problem.penalties.sum_to_one  # so the size of components is known
    W = exact(W_end) if sums_to_one else found.W[:, end.order]
    coordinates = pinv(W).T
    for place, k in enumerate(end.order):
        is_own = found.clusters == k
        own = rows[is_own]
        if not sums_to_one:
            own = own / own.sum(axis=1, keepdims=True)
        upper[:, place] = entry_limits(W[:, place], own)[1]
        silhouettes[place] = found.silhouettes[is_own].mean()
        steps[:, place] = (own @ coordinates).std(axis=0)
    samples = evenly_spaced(V.n_samples, max(_MAX_MOVED_ENTRIES // F, 2 * K))
    X, weights = samples_and_weights(V, samples)
    H = exact(np.asarray(end.H[:, samples]))
    sizes = exact(W_end).sum(axis=0)
    if not sums_to_one:
        H *= sizes[:, None]  # for components of sum one
    if not V.is_complete:
        X = W @ H + evened(weights) * (X - W @ H)
    is_used = X.any(axis=0)
    X = X[:, is_used]
    H = H[:, is_used]
    moves = moved_ranges(X, W, H, steps, problem)
    least = most = W
    is_squared = problem.is_free and "sigma" in problem.loss.constraints
    if is_squared and not moves.reason and V.measures.lowest >= 0:
        least, most = np.sort([W, without_clipping(X, W, H)], axis=0)
    half = upper - W  # independent errors: squares add up
    lower = np.maximum(least - np.hypot(half, W - moves.lower), 0)
    upper = most + np.hypot(half, moves.upper - W)
    if not (sums_to_one or problem.is_free):
        lower = lower * sizes
        upper = upper * sizes
    withheld = moves.angles > MAX_MOVE
    lower[:, withheld] = np.nan
    upper[:, withheld] = np.nan
    return lower, upper, silhouettes, moves


# --- several numbers of components --------------------------------------------------------------

_MAX_DEFAULT = 50  # largest default number of components


@dataclass(frozen=True, eq=False)
class StabilityRange:
    """The stability for several numbers of components.

    Attributes
    ----------
    K : int
        The recommended number.
    reason : str
        The reason for the recommendation.
    found : dict
        The `Stability` for each number.
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
        """The mean silhouette for each number; 0 without a consensus."""
        return np.array([one.mean_silhouette for one in self.found.values()])

    @property
    def relative_errors(self) -> Array:
        """The relative error of the best run for each number."""
        return np.array([one.best_relative_error for one in self.found.values()])

    def __str__(self) -> str:
        rows = ["   K  stable  silhouette  error, consensus  error, best run"]
        row = "{:>4}  {:>6}  {:>10.3f}  {:>16.4g}  {:>15.4g}"
        for k, one in self.found.items():
            n_stable = one.is_stable.sum()
            errors = one.relative_error, one.best_relative_error
            rows.append(row.format(k, n_stable, one.mean_silhouette, *errors))
        return "\n".join([*rows, f"recommended: {self.K}; {self.reason}"])

    def plot(self, ax: object = None) -> tuple[plots.Axes, plots.Axes]:
        """Draw stability and error against K; return the two matplotlib axes."""
        return plots.stability_and_error(
            self.ks, self.silhouettes, self.relative_errors, self.K, ax
        )


def stability_over(
    V: object,
    ks: Iterable[int] | None = None,
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    problem: Problem | None = None,
    resample: str = "samples",
    dispersion: float | Noise | None = None,
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: Generator | None = None,
    checkpoint: Place = None,
    callback: Callable[[Stability], object] | None = None,
    classes: Any = None,
) -> StabilityRange:
    """Compare the stability of several numbers of components, and recommend one.

    For counts with the Poisson loss it recommends the number with the lowest divergence, after
    charging each component what it would explain of pure noise, (sqrt F + sqrt N)^2 / 2. (This is
    half the squared largest singular value of an F x N matrix of noise with variance one.)
    Otherwise it recommends the largest number for which all components are stable. If there is
    none, it recommends the number with the largest mean silhouette.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    ks : integers, optional
        By default numbers around an estimate. For counts with the Poisson loss, those that
        `select_k` fits: up to two above and two below the best one.
    n_runs : int
    loss, problem, resample, dispersion, density_threshold, max_excess, max_iter, tol, rng
        As in `stability`; the dispersion is estimated with the largest number.
    checkpoint : path or Checkpoint, optional
        A folder with a subfolder for each number, in which `stability` saves its runs.
    callback : callable, optional
        Called with the `Stability` of each number as soon as it is known.
    classes : array (N,) or table of N rows, optional
        As in `stability`.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> stability_over(from_columns(model.V), [2, 3], 4).ks.tolist()
    [2, 3]
    """
    problem = problem_of(problem, loss, "stability")
    fitted = problem.loss
    V = as_data(V, nonzero=True, holes=fitted.noise is None and resample != "counts")
    problem = problem.bind(V)
    tell = optional(function, "callback", callback, takes=1)
    place = None if checkpoint is None else checkpoint_at(checkpoint)
    rng = optional(generator, "rng", rng) or default_rng(0)
    if place is not None:
        with held_folder(Path(place.folder)):  # creates it, and checks it can be written
            pass
    with V.own_threads():
        is_counted = has_counting_noise(problem) and V.is_complete
        are_counts = is_counted and holds_counts(V)
        candidates = _candidates(V, ks, are_counts, problem.n_fixed)
        noise = _noise(V, candidates[-1], problem, resample, dispersion)
        found: dict[int, Stability] = {}
        costs: dict[int, float] = {}
        for k in candidates:
            here = place and replace(place, folder=Path(place.folder) / f"K-{k}")
            one = found[k] = stability(
                V,
                k,
                n_runs,
                problem=problem,
                resample=resample,
                dispersion=noise,
                density_threshold=density_threshold,
                max_excess=max_excess,
                max_iter=max_iter,
                tol=tol,
                rng=rng,
                checkpoint=here,
                classes=classes,
            )
            if tell is not None:
                tell(one)
            if are_counts:
                divergence = quasi_divergence(V, one.W, one.H, noise.dispersion)
                costs[k] = divergence + k * edge_of(V.shape)
    if are_counts:
        best = min(costs, key=costs.__getitem__)
        return StabilityRange(best, "more components would explain only noise", found)
    return StabilityRange(*_recommend(found), found)


def _candidates(
    V: DataMatrix, ks: Iterable[int] | None, are_counts: bool, n_fixed: int
) -> list[int]:
    """Check the numbers, or find those that are likely."""
    if ks is None and are_counts:
        first = count_above_edge(V, by_features=True).K
        return sorted(likelihoods(V, default_rng(0), None, np.inf, first).costs)
    if ks is None:
        most = min(*V.shape, _MAX_DEFAULT)
        known = V if V.is_complete else fill_missing(V)
        least = max(min(2, most), n_fixed + 1)
        return list(range(least, max(min(count_above_edge(known).K + 2, most), least) + 1))
    candidates = numbers_of_components(ks).tolist()
    check_components(candidates[-1], V)
    return candidates


def numbers_of_components(ks: Iterable[int]) -> Array:
    """Check a list of numbers, and return them sorted."""
    candidates = np.unique([components(k) for k in several("ks", ks, "a list of integers")])
    if candidates.size == 0:
        raise ComponentsError(Option("ks", ks), ", expected integers of at least 1")
    return candidates


def _recommend(found: dict[int, Stability]) -> tuple[int, str]:
    stable = [k for k, one in found.items() if one.is_stable.all()]
    if stable:
        return stable[-1], "the largest number whose components are all stable"
    silhouettes = np.array([one.mean_silhouette for one in found.values()])
    best = list(found)[int(first_largest(silhouettes, _TIE_SHARE))]
    return best, "for no number all components are stable; this one has the largest silhouette"

"""Which components would be found again: many fits, what they have in common, and how well.

`stability` runs the same fit many times (`replicates`), forms the consensus (`consensus`), and says
of each of its components in what share of the runs it appears, how close it is there, and within
which limits each of its entries lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arguments import choice, generator, integer, number, optional
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import checked_components, require_data_matrix
from ..names import Names
from ..solve.coefficients import squared_errors
from ..solve.count_inits import with_all_features
from ..solve.goals import LOSSES, checked_loss
from ..solve.losses import Loss
from ..solve.poisson import divergences
from ..solve.stopping import Stopping
from ..text import counted
from . import plots
from .consensus import Consensus, consensus, distinct, found_again
from .named import NamedComponents
from .replicates import RESAMPLINGS, Replicates, replicate

__all__ = ["Stability", "judged_replicates", "stability"]

_FOUND_COSINE = 0.9  # above which a component counts as found in a run
_STABLE_SHARE = 0.8  # of the runs, in which a stable component is found ...
_STABLE_SILHOUETTE = 0.5  # ... by others that are nearer to each other than to any other component
_MIN_KEPT_SHARE = 0.25  # of the runs, that take part in the consensus
_LIMITS = (0.05, 0.95)  # quantiles
_MIN_RUNS, _MAX_RUNS = 2, 10_000
_DIFFERENCES = {
    "start": "random inits",
    "samples": "random inits, samples drawn with replacement",
    "counts": "random inits, counts drawn again",
}


@dataclass(frozen=True, eq=False)
class Stability(NamedComponents):
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
        The quantiles 0.05 and 0.95 of the entries of the components, of sum one, that belong to
        each component of the consensus; NaN without one.
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
    loss, resample : str
    names : Names
        Of samples and features.
    problem : str
        Why there is no consensus; empty if there is one.
    """

    W: Array
    H: Aligned
    labels: Aligned
    found_in: Array
    silhouettes: Array
    cosines: Array
    lower: Array
    upper: Array
    objective: float
    relative_error: float
    best_run: Array
    best_objective: float
    best_relative_error: float
    is_kept: Array
    n_left_out: int
    n_minima: int
    spectra: Array
    loss: str
    resample: str
    names: Names
    problem: str

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.W.shape[1])

    @property
    def n_runs(self) -> int:
        """The number of runs."""
        return len(self.spectra)

    @property
    def is_stable(self) -> Array:
        """Whether each component is: found in 80 % of the runs, with a silhouette of 0.5."""
        silhouettes = np.nan_to_num(self.silhouettes)
        stable: Array = (self.found_in >= _STABLE_SHARE) & (silhouettes >= _STABLE_SILHOUETTE)
        return stable

    @property
    def verdict(self) -> str:
        """One of "stable", "partly stable" and "unstable": all, at least half, or fewer are."""
        share = self.is_stable.mean()
        return "stable" if share == 1 else "partly stable" if share >= 0.5 else "unstable"

    @property
    def cosine_limits(self) -> Array:
        """The quantiles 0.05 and 0.95 of the cosines of each component, (2, K)."""
        return np.quantile(self.cosines, _LIMITS, axis=0)

    def __str__(self) -> str:
        low, high = self.cosine_limits
        rows = [
            f"{counted(self.K, 'component')}, {self.n_runs} runs: {_DIFFERENCES[self.resample]}"
        ]
        rows.append("component  found in  silhouette  cosine  [5 %, 95 %]")
        for k, middle in enumerate(np.median(self.cosines, axis=0)):
            rows.append(
                f"{k:>9}  {self.found_in[k]:>8.0%}  {self.silhouettes[k]:>10.3f}  {middle:>6.3f}"
                f"  [{low[k]:.3f}, {high[k]:.3f}]{'' if self.is_stable[k] else '  not stable'}"
            )
        return "\n".join([*rows, *self._sentences()])

    def _sentences(self) -> list[str]:
        n_stable = int(self.is_stable.sum())
        named = "relative divergence" if self.loss == "poisson" else "relative error"
        errors = f"{self.relative_error:.4g} of the consensus, {self.best_relative_error:.4g} of"
        n_kept = int(self.is_kept.sum())
        left_out = f"{self.n_left_out} of the {n_kept * self.K} components of {n_kept} runs"
        sentences = [
            f"{self.verdict}: {n_stable} of {counted(self.K, 'component')} found in at least "
            f"{_STABLE_SHARE:.0%} of the runs, with a silhouette of at least {_STABLE_SILHOUETTE}",
            f"{named}: {errors} the best run",
            f"distinct solutions: {self.n_minima} in {self.n_runs} runs; the consensus leaves out "
            f"{left_out}",
        ]
        if self.problem:
            sentences[1:] = [
                f"no consensus: {self.problem}; the components are those of the best run",
                f"{named}: {self.best_relative_error:.4g}",
                f"distinct solutions: {self.n_minima} in {self.n_runs} runs",
            ]
        return sentences

    def plot(self, axes: Any = None) -> Array:
        """Draw the components with the limits of their entries; return the matplotlib axes."""
        titles = [f"component {k}: in {share:.0%}" for k, share in enumerate(self.found_in)]
        lower, upper = (self.W, self.W) if self.problem else (self.lower, self.upper)
        return plots.bands(self.W, lower, upper, axes, titles=titles)


def stability(
    V: DataMatrix,
    K: int,
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    resample: str = "samples",
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
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
        bootstrap; each sample a Poisson number of times); counts, each drawn again from a Poisson
        distribution of that mean; or nothing else. Inits alone show whether the solver finds the
        same minimum again, which it may even of noise, and limits of entries then say nothing about
        sampling.
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
    n_runs = integer("n_runs", n_runs, at_least=_MIN_RUNS, at_most=_MAX_RUNS)
    loss, resample = checked_loss(loss), choice("resample", resample, RESAMPLINGS)
    threshold = number("density_threshold", density_threshold, above=0)
    max_excess = number("max_excess", max_excess, at_least=0, or_infinite=True)
    stopping = Stopping(tol, max_iter=integer("max_iter", max_iter, at_least=1))
    rng = optional(generator, "rng", rng)
    rng = np.random.default_rng(0) if rng is None else rng
    with V.own_threads():
        runs = replicate(V, K, n_runs, loss=loss, resample=resample, rng=rng, stopping=stopping)
        return judged_replicates(V, runs, loss, resample, threshold, max_excess)


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
    best: Array = errors <= limit
    return best


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
    goal = LOSSES[loss](V, rescale=False)
    errors = runs.errors if resample == "start" else _errors(goal, runs.spectra)
    best = _ended(goal, runs.spectra[np.argmin(errors)])
    end = best if found.W is None else _ended(goal, found.W)
    cosines = found_again(end.W, runs.spectra)
    lower, upper, silhouettes = _spread(runs.spectra[is_kept], found, end.order)
    return Stability(
        W=end.W,
        H=V.keep_aligned(end.H.T).T,
        labels=end.labels,
        found_in=(cosines > _FOUND_COSINE).mean(axis=0),
        silhouettes=silhouettes,
        cosines=cosines,
        lower=lower,
        upper=upper,
        objective=end.objective,
        relative_error=end.relative_error,
        best_run=best.W,
        best_objective=best.objective,
        best_relative_error=best.relative_error,
        is_kept=is_kept,
        n_left_out=int((found.clusters < 0).sum()) if found.W is not None else 0,
        n_minima=distinct(runs.spectra),
        spectra=runs.spectra,
        loss=loss,
        resample=resample,
        names=V.names,
        problem=found.problem,
    )


def _errors(goal: Loss, spectra: Array) -> Array:
    """The objective of V itself for each run, whose own error is that of the data it drew."""
    each = [_components(goal, W) for W in spectra]
    return divergences(goal.V, each) if goal.name == "poisson" else squared_errors(goal.V, each)


def _components(goal: Loss, W: Array) -> Array:
    """W in the type of V; a rate must not be zero where a count is not."""
    W = np.ascontiguousarray(W, goal.V.dtype)
    return with_all_features(goal.V, W) if goal.name == "poisson" else W


def _ended(goal: Loss, W: Array) -> _Ended:
    W = _components(goal, W)
    end = goal.finish(W)
    error = goal.relative_error(end.squared_error)
    sorted_W = np.ascontiguousarray(W[:, end.order])
    return _Ended(sorted_W, end.H, end.labels, end.objective, error, end.order)


def _spread(spectra: Array, found: Consensus, order: Array) -> tuple[Array, Array, Array]:
    """Quantiles of the entries of each component of the consensus, and its silhouette."""
    _, F, K = spectra.shape
    lower, upper = np.full((2, F, K), np.nan)
    silhouettes = np.full(K, np.nan)
    if found.W is None:
        return lower, upper, silhouettes
    rows = spectra.transpose(0, 2, 1)
    for place, k in enumerate(order):
        own = rows[found.clusters == k]
        own = own / own.sum(axis=1, keepdims=True)
        lower[:, place], upper[:, place] = np.quantile(own, _LIMITS, axis=0)
        silhouettes[place] = found.silhouettes[found.clusters == k].mean()
    return lower, upper, silhouettes

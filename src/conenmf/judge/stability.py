"""Which components would be found again: many fits, what they have in common, and how well.

`stability` runs the same fit many times (`replicates`), forms the consensus (`consensus`), and says
of each of its components in what share of the runs it appears, how close it is there, and within
which limits each of its entries lies.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from ..arguments import choice, generator, integer, number, optional, path
from ..data.blocks import Array, dense, exact
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import evenly_spaced
from ..data.validate import checked_components, require_data_matrix
from ..solve.checkpoint import Checkpoint
from ..solve.coefficients import squared_errors
from ..solve.count_inits import with_all_features
from ..solve.goals import LOSSES, checked_loss
from ..solve.losses.objective import Loss
from ..solve.losses.poisson import divergences
from ..solve.run import Stopping
from .consensus import Consensus, consensus, distinct, found_again
from .dispersion import POISSON, Noise, noise_of
from .dispersion import dispersion as estimated_dispersion
from .limits import MAX_MOVE, Ranges, entry_limits, moved_ranges, without_clipping
from .replicates import RESAMPLINGS, Replicates, replicate
from .stability_result import Stability

__all__ = ["Stability", "judged_replicates", "stability"]

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
    checked = checked_options(
        n_runs=n_runs,
        loss=loss,
        resample=resample,
        density_threshold=density_threshold,
        max_excess=max_excess,
        max_iter=max_iter,
        tol=tol,
        rng=rng,
        checkpoint=checkpoint,
    )
    with V.own_threads():
        noise = checked_noise(V, K, dispersion, **checked.of_noise)
        runs = replicate(V, K, **checked.of_runs, noise=noise, checkpoint=checked.checkpoint)
        return judged_replicates(V, runs, **checked.of_consensus)


def checked_noise(
    V: DataMatrix, K: int, dispersion: float | Noise | None, loss: str, resample: str
) -> Noise:
    """Return how counts vary around a fit with K components, as far as runs need it."""
    if isinstance(dispersion, Noise):
        return dispersion
    if dispersion is not None:
        dispersion = number("dispersion", dispersion, at_least=0)
    if loss == "poisson":
        return noise_of(V, K, np.random.default_rng(0), dispersion)
    if resample != "counts":
        return POISSON
    if dispersion is None:
        dispersion = estimated_dispersion(V, K, np.random.default_rng(0))
    return Noise(dispersion)


class Options(NamedTuple):
    """The options of `stability`: of its runs, of what is made of them, and where they are kept."""

    of_runs: dict[str, Any]
    of_consensus: dict[str, Any]
    of_noise: dict[str, str]
    checkpoint: Checkpoint | None


def checked_options(
    *,
    n_runs: int,
    loss: str,
    resample: str,
    density_threshold: float,
    max_excess: float,
    max_iter: int,
    tol: float,
    rng: np.random.Generator | None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None,
) -> Options:
    """Return the options of `stability`, checked."""
    n_runs = integer("n_runs", n_runs, at_least=_MIN_RUNS, at_most=_MAX_RUNS)
    how = {"loss": checked_loss(loss), "resample": choice("resample", resample, RESAMPLINGS)}
    threshold = number("density_threshold", density_threshold, above=0)
    max_excess = number("max_excess", max_excess, at_least=0, or_infinite=True)
    stopping = Stopping(tol, max_iter=integer("max_iter", max_iter, at_least=1))
    rng = optional(generator, "rng", rng)
    rng = np.random.default_rng(0) if rng is None else rng
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(path("checkpoint", checkpoint))
    return Options(
        {"n_runs": n_runs, "rng": rng, "stopping": stopping, **how},
        {"density_threshold": threshold, "max_excess": max_excess, **how},
        how,
        checkpoint,
    )


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
    lower, upper, silhouettes, moves = _spread(V, runs.spectra[is_kept], found, end, loss)
    return Stability(
        W=end.W,
        H=V.keep_aligned(end.H.T).T,
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
    if loss == "frobenius" and not moves.problem:
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

"""Centres drawn at random, in proportion to the squared residual of each sample.

Algorithm 1 of the paper takes the sample farthest from all centres, which may be an outlier. Here
a sample is drawn with a probability proportional to its squared distance to the nearest line
through a centre, as k-means++ does with distances to points (Arthur and Vassilvitskii, 2007).
Outside cones too, the mean of the squared error is then within a factor of the best possible with
one axis for each sample; docs/theory.md has the proof.

All runs read V together, one pass for each centre. Samples race for it: each draws an exponential
time and divides it by its weight, and the earliest wins. The times depend on the index of a sample
(see `sampling`), so the choice does not depend on blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator, default_rng

from ..arguments import Pair
from ..data.blocks import Array, Block, exact, norms
from ..data.matrix import DataMatrix
from ..data.resample import Seed, new_seed, uniform_rows
from .clustering import Cones, require_new_direction, require_samples
from .geometry import cosine_rounding, unit_samples_at
from .rank_one import cr1_error, factors_from_centres, rank_one_factors

_N_RUNS = 4
_COMPARISON_TOL = 1e-2  # of the axes by which runs are compared
_TIE_SHARE = 1e-12  # share of ||V||^2 by which the errors of equal runs may differ
_RUNS_PER_SEED = 4  # numbers that a seed yields at once for each sample
_MIN_WEIGHT_SHARE = 1e-290  # a smaller share of ||V||^2 cannot be divided by


def cr1_plus_plus(
    V: DataMatrix,
    K: int,
    *,
    rng: Generator | None = None,
    runs: int = _N_RUNS,
    tol: float = 1e-10,
) -> tuple[Array, Array, Cones]:
    """Factor V as `cr1_nmf` does, with centres drawn at random; the best of several runs.

    The first centre is drawn with probability proportional to ||v_n||^2, the next ones to
    ||v_n||^2 sin^2(angle of v_n to the nearest centre). In each run the mean of ||V - W H||^2 is at
    most 5 (ln K + 2) times the smallest possible with K axes and each sample on one of them; with
    probability at least 1 - 2^-runs the best run is at most twice that. Samples that mix components
    may have a much smaller error, with which this does not compare.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        Number of cones, at most the number of distinct directions among the samples; directions
        closer than about 1e-7 rad count as one.
    rng : numpy.random.Generator, optional
        Draws the centres; fresh entropy without it.
    runs : int
        How many sets of centres are tried. With the same `rng`, the first of them are those of
        fewer runs.
    tol : float
        As in `rank_one_factors`, for the best run; runs are compared by rougher axes.

    Returns
    -------
    W : array (F, K)
    H : array (K, N)
    cones : Cones

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[2.0, 0.0, 4.0], [0.0, 3.0, 0.0]])
    >>> W, H, cones = cr1_plus_plus(V, 2, rng=np.random.default_rng(0))
    >>> W @ H
    array([[2., 0., 4.],
           [0., 3., 0.]])
    """
    rng = default_rng(rng)
    comparison_tol = tol if runs == 1 else max(tol, _COMPARISON_TOL)
    lowest_squared = np.inf
    with V.own_threads():
        for centres, Z in zip(*draw_centres(V, K, rng, runs), strict=True):
            factors = factors_from_centres(V, centres, Z, comparison_tol)
            squared = cr1_error(V, *factors[:2]) ** 2
            if squared < lowest_squared - _TIE_SHARE:
                lowest_squared, best = squared, factors
        W, H, cones = best
        if comparison_tol > tol:
            W, H = rank_one_factors(V, cones, tol=tol)
    return W, H, cones


def draw_centres(V: DataMatrix, K: int, rng: Generator, runs: int) -> Pair:
    """Return the centres of every run, (runs, K), and their directions (runs, F, K)."""
    require_samples(V, K)
    n_seeds = -(-runs // _RUNS_PER_SEED)
    seeds = [[new_seed(rng) for _ in range(K)] for _ in range(n_seeds)]
    tie = cosine_rounding(V)
    centres = np.empty((runs, K), dtype=np.intp)
    Z = np.empty((runs, V.shape[0], K))
    index = V.indices()
    nearest, winners = V.map(
        _first_race,
        V.norms_squared,
        reduce=_earlier,
        runs=runs,
        total=V.total,
        seeds=[of_centres[0] for of_centres in seeds],
    )
    for k in range(K):
        if not np.isfinite(winners.times).all():
            require_new_direction(1.0, k, K, tie)
        centres[:, k] = winners.indices
        z = unit_samples_at(V, winners.indices)
        Z[:, :, k] = z.T
        if k + 1 < K:
            nearest, winners = V.sweep(
                _next_race,
                index,
                V.norms_squared,
                nearest,
                reduce=_earlier,
                z=z,
                tie=tie,
                total=V.total,
                seeds=[of_centres[k + 1] for of_centres in seeds],
            )
    return centres, Z


class _Winners(NamedTuple):
    """The sample that comes first in each run, and its time; inf if none can come."""

    times: Array
    indices: Array


def _first_race(
    index: range, squared: Array, *, runs: int, total: float, seeds: list[Seed]
) -> tuple[Array, _Winners]:
    """The largest cosines to a centre, none yet, and a race by squared norm."""
    weights = np.repeat(squared[:, None] / total, runs, axis=1)
    return np.zeros(weights.shape), _race(index, weights, seeds)


def _next_race(
    block: Block,
    index: Array,
    squared: Array,
    nearest: Array,
    *,
    z: Array,
    tie: float,
    total: float,
    seeds: list[Seed],
) -> tuple[Array, _Winners]:
    """The largest cosines, now that there are centres z (F, runs) too, and a race by distance."""
    products = exact(block).T @ z
    nearest = np.maximum(nearest, products / norms(squared)[:, None])
    sines_squared = np.where(nearest < 1.0 - tie, (1.0 - nearest) * (1.0 + nearest), 0.0)
    indices = range(int(index[0]), int(index[-1]) + 1)
    return nearest, _race(indices, squared[:, None] / total * sines_squared, seeds)


def _race(index: range, weights: Array, seeds: list[Seed]) -> _Winners:
    """Draw a sample for each run (column), with probabilities proportional to its weights.

    The minimum of independent exponential times with rates w_n is that of sample n with
    probability w_n / sum of w.
    """
    runs = weights.shape[1]
    uniform = np.hstack([uniform_rows(index, _RUNS_PER_SEED, seed) for seed in seeds])[:, :runs]
    times = np.full(weights.shape, np.inf)
    np.divide(-np.log1p(-uniform), weights, out=times, where=weights > _MIN_WEIGHT_SHARE)
    first = times.argmin(axis=0)
    return _Winners(times[first, np.arange(runs)], index.start + first)


def _earlier(a: _Winners, b: _Winners) -> _Winners:
    """The winners of two blocks, of which `a` comes first and keeps ties."""
    beaten = b.times < a.times
    return _Winners(np.where(beaten, b.times, a.times), np.where(beaten, b.indices, a.indices))

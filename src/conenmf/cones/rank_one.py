"""Algorithm 2 of the paper, "cr1-nmf": one rank-one factor for each cone.

The best rank-one factor of the samples V_k of a cone is their leading singular pair (Lemma 3). All
K pairs are computed together, with one pass over V per step, by the locally optimal conjugate
gradient method for the largest eigenvalue of V_k V_k' (Knyazev, "Toward the optimal preconditioned
eigensolver", SIAM J. Sci. Comput. 23, 2001). The next vector is the best one in the span of the
current vector, its residual and the last direction. SciPy's `lobpcg` handles one matrix at a time,
so K cones would take K times as many passes.

cr1++ draws centres at random, because the sample farthest from all centres, which Algorithm 1
takes, may be an outlier. It draws a sample with a probability proportional to its squared distance
to the nearest line through a centre, as k-means++ does with distances to points (Arthur and
Vassilvitskii, 2007). For any data, the expected squared error is within a known factor of the best
possible error with one axis for each sample; docs/theory.md has the proof. All runs read V
together, one pass for each centre. Samples race to become a centre: each draws an exponential time
and divides it by its weight, and the earliest wins. The times depend on the index of a sample (see
`data/resample.py`), so the choice does not depend on the blocks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.linalg import eigh
from numpy.random import Generator, default_rng

from ..arguments import instance, number, optional
from ..data.blocks import Block, cone_products, exact, norms, over, products, residual_squared
from ..data.matrix import Aligned, DataMatrix, PerSample, add
from ..data.resample import Seed, new_seed, uniform_rows
from ..io.open import as_data
from ..linalg.svd import KnownSpectrum, Spectrum
from ..types import Array, Pair, Rng
from .clustering import Cones, assign, choose_centres, require_new_direction, require_samples
from .geometry import cosine_rounding, largest_angle, unit_samples_at

# W, H, and the cones they were computed from.
ConeFactors: TypeAlias = tuple[Array, Array, Cones]

_MAX_PASSES = 200
_SMALL_SQUARE = 1e-100  # if ||V_k||^2 is smaller, vectors are scaled before they are squared


def cr1_nmf(
    V: object,
    K: int,
    *,
    rng: Rng = None,
    first: int | None = None,
    method: str = "exact",
    tol: float = 1e-10,
    spectrum: KnownSpectrum = None,
) -> ConeFactors:
    """Factor V by clustering and rank-one NMF (Algorithm 2, "cr1-nmf").

    The relative error is sqrt(sum_n ||v_n||^2 sin^2(angle of v_n to its w) / ||V||^2), which is
    at most the largest sine of a size angle (Theorem 4).

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    K, rng, first, method
        As in `cluster_cones`.
    tol
        As in `rank_one_factors`.
    spectrum
        As in `centres_in_noise` of `cones.robust`, for the method "robust".

    Returns
    -------
    W : array (F, K)
    H : array (K, N)
    cones : Cones

    Examples
    --------
    >>> from conenmf import from_columns
    >>> W, H, cones = cr1_nmf(from_columns([[2.0, 0.0, 4.0], [0.0, 3.0, 0.0]]), 2, first=0)
    >>> W @ H
    array([[2., 0., 4.],
           [0., 3., 0.]])
    """
    V = as_data(V, nonzero=True)
    tol = number("tol", tol, at_least=0)
    optional(instance, "spectrum", spectrum, Spectrum, "Spectrum(V)")
    with V.own_threads():
        centres, Z, moved, noise = choose_centres(V, K, rng, first, method, spectrum)
        W, H, cones = factors_from_centres(V, centres, Z, tol, moved=moved)
    return W, H, replace(cones, noise=noise)


def rank_one_factors(V: DataMatrix, cones: Cones, *, tol: float = 1e-10) -> Pair:
    """Find the best rank-one factor of every cone (step 2 of Algorithm 2).

    w_k is the leading left singular vector of V_k, the samples of cone k, and h_k = V_k' w_k;
    both are nonnegative, and no other rank-one factor of V_k has a smaller error (Lemma 3).

    Parameters
    ----------
    V : DataMatrix (F, N)
    cones : Cones
        Labels and, as first vectors, directions.
    tol : float
        Stop when ||V_k V_k' w - theta w|| <= tol * theta with theta = ||V_k' w||^2 for every cone.

    Returns
    -------
    W : array (F, K), unit columns
    H : array (K, N), at most one nonzero in each column
    """
    first = cones.directions.T
    _, products = V.sweep(cone_products, cones.labels, Q=first)
    return _factors(V, cones.labels, first, products, tol)


def factors_from_centres(
    V: DataMatrix, centres: Array, Z: Array, tol: float, *, moved: bool = False
) -> ConeFactors:
    """Return the result of `cr1_nmf` for given centres and their directions Z (F, K).

    `moved` says that the directions are no longer samples; they may have negative entries.
    """
    tie = cosine_rounding(V)
    labels, clusters = V.sweep(
        _assign_and_multiply, V.norms_squared, reduce=_join_clusters, Z=Z, tie=tie
    )
    W, H = _factors(V, labels, Z.T, clusters.products, tol)
    radius = largest_angle(V, labels, Z, clusters.smallest)
    return W, H, Cones(labels, centres, Z, radius, moved)


def cr1_error(V: DataMatrix, W: Array, H: Aligned) -> float:
    """Return the relative error of the factors of cr1-nmf.

    The error follows from ||V - W H||^2 = ||V||^2 - ||H||^2 without reading V. If this difference
    would lose half of its digits, one pass computes the norm of V - W H.
    """
    Ht = V.align(H.T)
    (explained,) = V.map(_sum_of_squares, Ht)
    squared_error = 1.0 - explained / V.total
    rounding = np.finfo(np.result_type(Ht.dtype, np.float32)).eps
    if squared_error < np.sqrt(rounding):
        W = np.ascontiguousarray(W, dtype=float)
        (residual,) = V.sweep(_residual_of_factors, V.norms_squared, Ht, W=W, G=W.T @ W)
        squared_error = residual / V.total
    return math.sqrt(squared_error)


def _sum_of_squares(index: range, H: Array) -> tuple[float]:
    return (float(np.einsum("nk,nk->", H, H, dtype=float)),)


def _residual_of_factors(
    block: Block, squared: Array, H: Array, *, W: Array, G: Array
) -> tuple[float]:
    block = exact(block)
    C = products(block, W)
    residuals = residual_squared(block, squared, C, G, W, exact(H))
    return (float(residuals.sum()),)


class _Clusters(NamedTuple):
    """The products V_k V_k' z_k (K, F), and the smallest cosine of a sample and its centre."""

    products: Array
    smallest: float


def _assign_and_multiply(
    block: Block, squared: Array, *, Z: Array, tie: float
) -> tuple[Array, _Clusters]:
    """Assign samples to centres and compute the products for Algorithm 2 in the same pass."""
    labels, smallest = assign(block, squared, Z=Z, tie=tie)
    _, products = cone_products(block, labels, Q=Z.T)
    return labels, _Clusters(products, smallest)


def _join_clusters(a: _Clusters, b: _Clusters) -> _Clusters:
    return _Clusters(add(a.products, b.products), min(a.smallest, b.smallest))


def _factors(V: DataMatrix, labels: Aligned, first: Array, products: Array, tol: float) -> Pair:
    """Return W and H, from the first vectors (K, F) and their products with V_k V_k'."""
    w = _leading_vectors(V, labels, first, products, tol)
    w = np.abs(np.where(w.any(axis=1, keepdims=True), w, first))  # an empty cone takes any axis
    w /= np.sqrt(_dots(w, w))
    Ht, _ = V.sweep(_coefficients, labels, Q=w)
    return w.T.astype(V.dtype, copy=False), Ht.T


def _coefficients(block: Block, labels: Array, *, Q: Array) -> PerSample:
    """Return rows of H: one nonzero coefficient, for the sample's cone."""
    h, _ = cone_products(block, labels, Q, sums=False)
    H = np.zeros((labels.size, Q.shape[0]), dtype=block.dtype)
    inside = np.flatnonzero(labels >= 0)
    H[inside, labels[inside]] = h[inside]
    return H, None


# --- the locally optimal conjugate gradient method --------------------------------------------


def _leading_vectors(
    V: DataMatrix, labels: Aligned, first: Array, products: Array, tol: float
) -> Array:
    """Maximise ||V_k' w|| over unit w for all k at once; row k of every array belongs to cone k.

    Each step maximises over the span of the current vector w, its residual r and the last direction
    p. It needs one new product, A r with A = V_k V_k'; A w and A p follow by linearity (Knyazev,
    2001, without a preconditioner).
    """
    w = first.copy(), products
    p = np.zeros_like(products), np.zeros_like(products)
    for _ in range(_MAX_PASSES):
        r, is_done = _residual(*w, tol)
        if is_done:
            break
        _, Ar = V.sweep(cone_products, labels, Q=r)
        _maximize_in_span(w, (r, Ar), p)
    return w[0]


def _residual(w: Array, Aw: Array, tol: float) -> tuple[Array, bool]:
    """Return the unit residuals A w - theta w, zero where small, and whether all are zero."""
    theta = _dots(w, Aw)
    r = Aw - theta * w
    if theta.min() < _SMALL_SQUARE:  # the square of r would leave the range of float64
        unit = np.where((theta > 0) & (theta < _SMALL_SQUARE), theta, 1.0)
        r /= unit
        theta = theta / unit
    norm = np.sqrt(_dots(r, r))
    unfinished = norm > tol * theta
    r *= over(unfinished, norm)
    r -= _dots(w, r) * w  # rounding left a part along w in the difference r
    return r, not unfinished.any()


def _maximize_in_span(w: Pair, r: Pair, p: Pair) -> None:
    """Replace w by the best unit vector in the span of w, r and p, and p by the step from w.

    Each argument is a pair: vectors (K, F), one for each cone, and their products with A.
    """
    for vectors, images in (w, r):
        overlap = _dots(vectors, p[0])
        p[0][:] -= overlap * vectors
        p[1][:] -= overlap * images
    norm = np.sqrt(_dots(p[0], p[0]))
    scale = over(norm > 1e-8, norm)
    for of_p in p:
        of_p *= scale
    span = (w, r, p)
    projected = np.empty((len(norm), 3, 3))
    for i, (left, _) in enumerate(span):
        for j, (_, right) in enumerate(span):
            projected[:, i, j] = np.vecdot(left, right)
    _, vectors = eigh((projected + projected.swapaxes(1, 2)) / 2)
    by_w, by_r, by_p = vectors[:, :, -1:].swapaxes(0, 1)
    for of_w, of_r, of_p in zip(*span, strict=True):
        of_p *= by_p
        of_p += by_r * of_r
        of_w *= by_w
        of_w += of_p


def _dots(a: Array, b: Array) -> Array:
    """Return <a_k, b_k> for each row, as a column (K, 1)."""
    return np.vecdot(a, b)[:, None]


# --- cr1++: centres drawn at random -----------------------------------------------------------


_N_RUNS = 4
_COMPARISON_TOL = 1e-2  # of the axes with which runs are compared
_TIE_SHARE = 1e-12  # of ||V||^2; errors that differ by less count as equal
_RUNS_PER_SEED = 4  # random numbers for each sample from one seed
_MIN_WEIGHT_SHARE = 1e-290  # of ||V||^2: division by a smaller share overflows


def cr1_plus_plus(
    V: DataMatrix,
    K: int,
    *,
    rng: Rng = None,
    runs: int = _N_RUNS,
    tol: float = 1e-10,
) -> ConeFactors:
    """Factor V as `cr1_nmf` does, with centres drawn at random; the best of several runs.

    The first centre is drawn with probability proportional to ||v_n||^2, the next ones proportional
    to ||v_n||^2 sin^2(angle of v_n to the nearest centre). Consider factorizations with K axes and
    each sample on one of them. In each run the expected ||V - W H||^2 is at most 5 (ln K + 2) times
    their smallest; with probability at least 1 - 2^-runs the best run is at most twice this bound.
    Factorizations in which samples mix components may have a much smaller error.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        Number of cones, at most the number of distinct directions among the samples; directions
        closer than about 1e-7 rad count as one.
    rng : numpy.random.Generator, optional
        Draws the centres; if not given, runs differ from call to call.
    runs : int
        How many sets of centres are tried. With the same `rng`, more runs repeat the first ones.
    tol : float
        As in `rank_one_factors`, for the best run; runs are compared with rougher axes.

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
    rough_tol = tol if runs == 1 else max(tol, _COMPARISON_TOL)
    least = np.inf
    with V.own_threads():
        for centres, Z in zip(*draw_centres(V, K, rng, runs), strict=True):
            W, H, cones = factors_from_centres(V, centres, Z, rough_tol)
            squared = cr1_error(V, W, H) ** 2
            if squared < least - _TIE_SHARE:
                least = squared
                best = W, H, cones
        W, H, cones = best
        if rough_tol > tol:
            W, H = rank_one_factors(V, cones, tol=tol)
    return W, H, cones


def draw_centres(V: DataMatrix, K: int, rng: Generator, runs: int) -> Pair:
    """Return the centres of every run (runs, K) and their directions (runs, F, K)."""
    require_samples(V, K)
    n_seeds = -(-runs // _RUNS_PER_SEED)
    of_runs = [[new_seed(rng) for _ in range(K)] for _ in range(n_seeds)]
    first, *later = zip(*of_runs, strict=True)  # the seeds of each centre
    tie = cosine_rounding(V)
    centres = np.empty((runs, K), dtype=np.intp)
    Z = np.empty((runs, V.n_features, K))
    index = V.indices()
    squared = V.norms_squared
    total = V.total
    nearest, winners = V.map(
        _first_race, squared, reduce=_earlier, runs=runs, total=total, seeds=first
    )
    for k in range(K):
        if not np.isfinite(winners.times).all():
            require_new_direction(1.0, k, K, tie)
        centres[:, k] = winners.indices
        z = unit_samples_at(V, winners.indices)
        Z[:, :, k] = z.T
        if k + 1 < K:
            options = {"z": z, "tie": tie, "total": total, "seeds": later[k]}
            nearest, winners = V.sweep(
                _next_race, index, squared, nearest, reduce=_earlier, **options
            )
    return centres, Z


class _Winners(NamedTuple):
    """The winning sample of each run and its time, which is infinite if no sample can win."""

    times: Array
    indices: Array


def _first_race(
    index: range, squared: Array, *, runs: int, total: float, seeds: tuple[Seed, ...]
) -> tuple[Array, _Winners]:
    """Draw the first centres by squared norm; return the largest cosines and the winners."""
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
    seeds: tuple[Seed, ...],
) -> tuple[Array, _Winners]:
    """Update the largest cosines for the new centres z (F, runs), and draw by squared distance."""
    products = exact(block).T @ z
    nearest = np.maximum(nearest, products / norms(squared)[:, None])
    sines_squared = (1.0 - nearest) * (1.0 + nearest)
    sines_squared[nearest >= 1.0 - tie] = 0.0
    start = index[0]
    weights = squared[:, None] / total * sines_squared
    return nearest, _race(range(start, start + index.size), weights, seeds)


def _race(index: range, weights: Array, seeds: tuple[Seed, ...]) -> _Winners:
    """Draw a sample for each run (column), with probabilities proportional to its weights.

    With independent exponential times of rates w_n, sample n has the smallest time with probability
    w_n / sum of w.
    """
    runs = weights.shape[1]
    parts = [uniform_rows(index, _RUNS_PER_SEED, seed) for seed in seeds]
    uniform = np.hstack(parts)[:, :runs]
    times = np.full(weights.shape, np.inf)
    np.divide(-np.log1p(-uniform), weights, out=times, where=weights > _MIN_WEIGHT_SHARE)
    first = times.argmin(axis=0)
    return _Winners(times[first, np.arange(runs)], index.start + first)


def _earlier(a: _Winners, b: _Winners) -> _Winners:
    """Return the winners of two blocks; in a tie, `a`, the earlier block, wins."""
    is_beaten = b.times < a.times
    indices = np.where(is_beaten, b.indices, a.indices)
    return _Winners(np.minimum(a.times, b.times), indices)

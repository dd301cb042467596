"""Estimates of K: the largest ratio of singular values, the edge of noise, and counting cones.

*The paper's estimate* (`estimate_rank`) is the K with the largest ratio of adjacent singular values
(Section V, Theorem 9). `judge.choose_k` chooses among several estimates.

*The edge of noise* (`count_above_edge`). If V has rank K plus noise, K is the number of singular
values above the largest singular value of noise alone. If all entries of the noise have the
variance a, this is sqrt(a) (sqrt(F) + sqrt(N)), the edge of Marchenko and Pastur. For samples in
cones, the component orthogonal to the axis acts as noise. It grows with the norm and the angle of
the sample, so each sample has its own variance, and the edge is the edge for these variances
(`noise_edge`). Variances are estimated from each sample's residual after the leading components;
all features are assumed to have the same variance. Theorem and proofs: "Singular values above the
edge of noise" in the documentation.

*Counting cones* (`count_cones`) uses only the angles between samples. Clusters are *apart* if their
pairwise separation S_p is positive: any two samples of one cluster are closer than any two samples
of different clusters. Under the geometric assumption the true cones are apart, so the true number
is among the k for which some k clusters are apart. For each k there is at most one such clustering,
and single linkage finds it: it joins samples in the order of their distances, so it joins all pairs
within clusters before the first pair between clusters. (Algorithm 1 finds it too, see
`cluster_cones`.) One matrix of distances therefore yields S_p(k) for every k.

The count does not depend on the probabilities or norms of the samples, and the cones may differ,
whereas Theorem 9 of the paper requires equal cones. But several k may qualify: cones may form
groups, and two samples that are very close are apart from all others. `count_cones` lists all such
k and chooses one.

If there are many samples, only a subset is compared. Clusters of all samples that are apart are
also apart in the subset. So if no clusters of the subset are apart, there are no cones; if some
are, another pass finds the cones that have no sample in the subset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.linalg import eigh, matrix_rank, norm
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import flag, integer, optional
from ..data.blocks import EPS, TINY, Block, cross_products, dense, exact, first_largest, norms
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import draw_samples
from ..data.views import unit_samples
from ..errors import ComponentsError
from ..io.open import as_data
from ..linalg.bisection import bisect
from ..linalg.svd import KnownSpectrum, Spectrum
from ..types import Array, Facts, Pair
from .clustering import farthest_first
from .geometry import (
    Separation,
    angles_of,
    cosine_rounding,
    distances,
    pairwise_separation,
    unit_samples_at,
)

_MAX_DEFAULT_K = 50  # the default upper end of the search

_MANY_FEATURES = 400
_EDGE_SAMPLES = 2000  # compared to judge the noise; fewer if they have many features
_EXACT_SHARE = 1e-13  # of the squared norm: a smaller residual is rounding
_MAX_ROUNDS = 5
_LEAST_NOISE = 1e-6  # of a feature, relative to the largest: a feature without noise counts too
_OUTLIER_LEVERAGE = 0.6  # of a sample that is a component of its own
_OUTLIER_SHARE = 0.05  # of the samples: at most so many are outliers
_TRACY_WIDOM = 0.45  # the 90 % quantile of the law of the largest eigenvalue
_HIGH_TRACY_WIDOM = 3.3  # the 99.9 % quantile, as there are many clusters
_STARTS = 4  # of the clustering
_STEPS = 10  # of each start
_PER_CLUSTER = 15  # samples on average; with fewer, cones look like mixtures
_MAX_ZEROS = 0.2  # largest share of zeros of a feature in a cluster
_QUANTILES = (0.25, 0.5, 0.75, 0.9)

_MAX_SAMPLES = 2000  # all pairs are compared up to this number of samples; ...
_SUBSET_SAMPLES = 1000  # ... beyond it, a subset of this size is compared, ...
_SUBSET_PRODUCTS = 10**10  # ... or a smaller one that takes about this many products, ...
_MIN_SUBSET_SAMPLES = 200  # ... but at least this size: no cones here means no cones at all
_MAX_PASSES = 3  # to find the cones without a sample in the subset
_ROUNDING = 1e-9  # distances closer than this count as equal
_FEW_SAMPLES = 5  # a cluster of fewer may be chance, ...
_LARGE_SHARE = 0.8  # ... unless several others hold this share of the samples ...
_CLEAR_RATIO = 1.3  # ... and clusters are farther apart than wide by this factor
_SHORTEST_SHARE = 0.002  # of the samples: noise turns the shortest most, so they form no cones
_NORM_ROUNDING = 1e-9
_EQUAL_RATIOS = 4e-4  # rough singular values, and so both of a ratio, are known to 1e-4


# --- the largest ratio of singular values -----------------------------------------------------


@dataclass(frozen=True)
class RankEstimate:
    """The number of components by the ratio of adjacent singular values.

    Attributes
    ----------
    K : int
    singular_values : array (k_max + 1,)
        sigma_1, sigma_2, ... of V (of samples of unit norm if normalized).
    ratios : array (k_max,)
        sigma_k / sigma_{k+1} for k = 1, 2, ...; 1 where both are zero to rounding, or where
        sigma_{k+1} does not exist.
    rank : int
        How many of these singular values are above rounding.
    margin : float
        The largest ratio in the range searched over the second largest, at least 1.
    """

    K: int
    singular_values: Array
    ratios: Array
    rank: int
    margin: float

    @property
    def highest_shown(self) -> float:
        """Upper end of the axis of ratios in charts.

        The first ratio of nonnegative data is always large; the axis leaves it out.
        """
        top = float(self.ratios[1:].max() if self.ratios.size > 1 else self.ratios.max())
        return max(1.1 * top - 0.1, 1.01)


def estimate_rank(
    V: object,
    k_min: int = 2,
    k_max: int | None = None,
    *,
    normalize: bool = False,
    spectrum: KnownSpectrum = None,
) -> RankEstimate:
    """Estimate K as the argmax of sigma_k / sigma_{k+1} over k_min <= k <= k_max.

    Ratios within 0.04 % of the largest count as equal, and the first of them is used.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    k_min : int
        The paper requires more than 1, because the first ratio of nonnegative data is always large.
        The estimate is smaller only if V has a smaller rank.
    k_max : int, optional
        By default half of min(F, N), and at most 50. As long as the estimate equals this limit, the
        limit is doubled.
    normalize : bool
        Scale samples to unit norm, as the paper advises if norms differ between cones.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> from conenmf import make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> estimate_rank(from_columns(model.V)).K
    4
    """
    V = as_data(V, nonzero=True)
    smaller = min(V.shape)
    flag("normalize", normalize)
    k_min = integer("k_min", k_min)
    k_max = optional(integer, "k_max", k_max)
    spectrum = Spectrum.of(V, spectrum)
    if normalize:
        spectrum = Spectrum(unit_samples(V))
    if k_max is not None:
        return _largest_ratio(k_min, k_max, spectrum)
    k_max = max(k_min if smaller > k_min else 1, default_most(V))
    while True:
        estimate = _largest_ratio(min(k_min, k_max), k_max, spectrum)
        if not estimate.K == k_max < smaller:
            return estimate
        k_max = min(2 * k_max, smaller)


def _largest_ratio(k_min: int, k_max: int, spectrum: Spectrum) -> RankEstimate:
    V = spectrum.V
    smaller = min(V.shape)
    if not 1 <= k_min <= k_max <= smaller:
        raise ComponentsError(
            f"the search range {k_min}..{k_max} must lie within 1..{smaller}, "
            f"the smaller side of a {V.n_samples} x {V.n_features} matrix"
        )
    values = np.zeros(k_max + 1)
    k = min(k_max + 1, smaller)
    values[:k] = spectrum.singular_values(k, rough=True)
    # VV' squares the singular values: values below this floor are rounding.
    floor = np.sqrt(10 * smaller * EPS) * values[0]
    above = np.maximum(values, floor)
    ratios = above[:-1] / above[1:]
    if k_max == smaller > 1:
        ratios[-1] = 1.0  # there is no next singular value
    searched = ratios[k_min - 1 : k_max]
    rank = int(np.count_nonzero(values > floor))
    K = min(k_min + int(first_largest(searched, _EQUAL_RATIOS)), rank)
    runner_up = np.partition(searched, -2)[-2] if searched.size > 1 else 1.0
    return RankEstimate(K, values, ratios, rank, float(searched.max() / runner_up))


def default_most(V: DataMatrix) -> int:
    """Return the largest number of components that is searched by default."""
    smaller = min(V.shape)
    return max(2 if smaller > 2 else 1, min(smaller // 2, _MAX_DEFAULT_K))


# --- the edge of noise ------------------------------------------------------------------------


class EdgeCount(NamedTuple):
    """How many singular values are above the edge of the noise.

    Attributes
    ----------
    K : int
        This number; at least 1.
    values : array (min(F, n),)
        The singular values of n samples, scaled to equal noise, over the edge of the noise.
    misfit : float
        Largest relative difference between four quantiles of the other singular values and of the
        law of Marchenko and Pastur. It is a few per cent if the noise is alike in all features, and
        infinite if half of all singular values are above the edge.
    axes : array (F, K)
        The left singular vectors above the edge, up to their lengths.
    scales : array (n,)
        Factors that give all samples the same noise.
    leverages : array (n,)
        The share of each sample in the directions above the edge: near 1 for a sample that is a
        direction of its own. They sum to K.
    """

    K: int
    values: Array
    misfit: float
    axes: Array
    scales: Array
    leverages: Array

    @property
    def gap(self) -> float:
        """The ratio of the last singular value above the edge to the next one."""
        is_last = self.K == self.values.size
        return 1.0 if is_last else float(self.values[self.K - 1] / self.values[self.K])


def noise_edge(variances: ArrayLike, F: int, counts: ArrayLike | None = None) -> float:
    """Bound the expected spectral norm of Gaussian noise E (F, N) whose samples have own variances.

    E ||E||_2 <= sqrt(min_s F / s + sum_n a_n / (1 - a_n s)) over 0 < s < 1 / max a_n. If all
    variances are a, that is sqrt(a) (sqrt(F) + sqrt(N)).

    Parameters
    ----------
    variances : array (m,)
        a_n, the variance of the entries of sample n.
    F : int
        Number of features.
    counts : array (m,), optional
        How many samples have each variance; by default one.

    Examples
    --------
    >>> round(noise_edge([0.25] * 100, 16), 6)  # (4 + 10) / 2
    7.0
    """
    a = np.asarray(variances, dtype=float)
    c = np.ones(a.size) if counts is None else np.asarray(counts)
    largest = np.max(a, where=c > 0, initial=0.0)
    if largest == 0.0:
        return 0.0
    a = a / largest
    # the function is convex; where its derivative is zero
    s, _ = bisect(lambda s: (c * (a / (1 - a * s)) ** 2).sum() <= F / s**2, 0.0, 1.0)
    return math.sqrt(largest * (F / s + (c * a / (1 - a * s)).sum()))


def count_above_edge(V: DataMatrix, *, by_features: bool = False) -> EdgeCount:
    """Count the singular values of V that are above the edge of the noise, up to half of them.

    Samples are scaled so that the noise in each has variance one; so are features, if they may have
    noise of different sizes. The noise is estimated from the residual of k components, first for k
    = 1, then for the number above the edge, until this number stops growing. A sample of a cone
    that is not yet counted leaves a large residual that is not noise. So no variance, relative to
    the squared norm of the sample, may exceed the 90% quantile of all samples. For large data a
    subset of the samples is compared.

    Parameters
    ----------
    V : DataMatrix (F, N)
    by_features : bool
        Whether features are scaled too. Components that share no features look like noise of
        different sizes, so ask for this only if the noise is not alike.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, noise=0.05, rng=np.random.default_rng(0))
    >>> count_above_edge(from_columns(model.V)).K
    4
    """
    return _above_edge(compared_samples(V)[0], _TRACY_WIDOM, by_features=by_features)


def compared_samples(V: DataMatrix) -> Pair:
    """Return nonzero samples as columns, no more than are affordable, and their indices."""
    size = _MANY_FEATURES if V.n_features > _MANY_FEATURES else _EDGE_SAMPLES
    indices = np.sort(draw_samples(V, size, default_rng(0)))
    return dense(exact(V.columns(indices))), indices


def count_without_outliers(B: Array, *, by_features: bool = False) -> tuple[EdgeCount, Array]:
    """Count singular values above the edge, without samples that are a component of their own.

    A sample is an outlier if the components above the edge hold most of its leverage, and the count
    is smaller without it. Few samples can be outliers.

    Parameters
    ----------
    B : array (F, n)
    by_features : bool
        As in `count_above_edge`.

    Returns
    -------
    found : EdgeCount
    kept : array of int
        The other samples.
    """
    found = _above_edge(B, _TRACY_WIDOM, by_features=by_features)
    kept = np.arange(B.shape[1])
    fewest = kept.size - max(_FEW_SAMPLES, int(_OUTLIER_SHARE * kept.size))
    for _ in range(_MAX_ROUNDS):
        rest = kept[found.leverages <= _OUTLIER_LEVERAGE]
        if rest.size == kept.size or rest.size < fewest:
            break
        without = _above_edge(B[:, rest], _TRACY_WIDOM, by_features=by_features)
        if without.K >= found.K:
            break
        kept = rest
        found = without
    return found, kept


def _above_edge(B: Array, quantile: float, *, by_features: bool = False) -> EdgeCount:
    F, n = B.shape
    most = max(min(F, n) // 2, 1)  # more would leave too few to estimate the noise
    limit = highest_noise(F, n, quantile)
    k = 1
    scales = 1 / norm(B, axis=0)
    U = (B @ scales)[:, None]
    for _ in range(_MAX_ROUNDS):
        U = U / norm(U, axis=0)
        left = B - U @ (U.T @ B)
        squares = np.einsum("fn,fn->n", B, B)
        if norm(left) ** 2 <= _EXACT_SHARE * squares.sum():
            exact_values = np.where(np.arange(min(F, n)) < k, np.inf, 1.0)
            return EdgeCount(k, exact_values, 0.0, U, scales, np.zeros(n))
        if by_features:
            sizes = np.sqrt(((left * scales) ** 2).mean(axis=1, keepdims=True))
            sizes = np.maximum(sizes, _LEAST_NOISE * sizes.max())
            B = B / sizes
            left = left / sizes
            squares = np.einsum("fn,fn->n", B, B)
        variances = np.einsum("fn,fn->n", left, left) * n / ((F - k) * (n - k))
        scales = 1 / np.sqrt(_capped(variances, squares))
        U, values, leverages = _decomposed(B * scales, limit, most)
        new = U.shape[1]
        if new <= k:
            break
        k = new
        if k == most:
            return EdgeCount(k, values, np.inf, U, scales, leverages)
    expected = _noise_quantiles(F - new, n - new)
    misfit = np.abs(np.quantile(limit * values[new:], _QUANTILES) / expected - 1.0).max()
    return EdgeCount(new, values, float(misfit), U, scales, leverages)


def _decomposed(Y: Array, limit: float, most: int) -> tuple[Array, Array, Array]:
    """Return left singular vectors above a limit, all values over it, and the samples' leverages.

    There is at least one vector, and at most `most` are counted.
    """
    is_tall = Y.shape[0] > Y.shape[1]
    eigenvalues, vectors = eigh(Y.T @ Y if is_tall else Y @ Y.T)
    values = np.sqrt(np.maximum(eigenvalues[::-1], 0.0))
    above = np.append(values[:most] > limit, False)
    K = max(int(np.argmin(above)), 1)
    leading = vectors[:, : -K - 1 : -1]
    right = leading if is_tall else Y.T @ leading / np.maximum(values[:K], TINY)
    U = Y @ leading if is_tall else leading
    return U, values / limit, (right**2).sum(axis=1)


def count_in_clusters(V: DataMatrix, above: EdgeCount) -> int:
    """Count components in clusters of samples, one for each singular value above the edge.

    Two cones may be so close that the noise of all samples hides the difference between them. One
    cluster has less noise, so its singular values may be above its own edge. If samples lie in
    cones, most clusters contain a single component. If samples are mixtures, most contain several,
    and the count is 0. It is also 0 if there are fewer than 15 samples per cluster. Features that
    are often zero in a cluster are left out there: setting entries to zero removed the negative
    part of their noise.

    Parameters
    ----------
    V : DataMatrix (F, N)
    above : EdgeCount
        The result of `count_above_edge`.

    Examples
    --------
    Noise hides that there are six directions, not five; the last two are close to each other:

    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(3)
    >>> axes = 0.5 + rng.random((60, 6))
    >>> axes[:, 5] = axes[:, 4] * (1 + 0.1 * rng.choice([-1, 1], 60))
    >>> X = axes[:, rng.integers(6, size=900)] + 0.3 * rng.standard_normal((60, 900))
    >>> V = from_columns(np.maximum(X, 0))
    >>> above = count_above_edge(V)
    >>> above.K, count_in_clusters(V, above)
    (5, 6)
    """
    B = compared_samples(V)[0]
    if B.shape[1] < _PER_CLUSTER * above.K:
        return 0
    labels = _clusters((above.axes / norm(above.axes, axis=0)).T @ (B * above.scales), above.K)
    counts = [_in_cluster(B[:, labels == k]) for k in np.unique(labels)]
    are_cones = 2 * counts.count(1) >= above.K >= sum(counts) / 2
    return sum(counts) if are_cones else 0


def _clusters(Y: Array, K: int) -> Array:
    """Cluster the directions of columns; longer columns count more, because noise turns them less.

    This is spherical k-means with squared lengths as weights; the best of several starts wins. The
    first start takes columns that are long and far from the earlier ones; the others draw such
    columns.
    """
    rng = default_rng(0)
    lengths = np.maximum(norm(Y, axis=0), TINY)
    Z = Y / lengths
    best = -np.inf
    result = np.zeros(lengths.size, int)
    for start in range(_STARTS):
        nearest = np.full(lengths.size, -1.0)
        chosen = []
        for _ in range(K):
            distances = lengths**2 * np.maximum(1.0 - nearest, TINY)
            keys = distances if start == 0 else distances / rng.exponential(size=distances.size)
            chosen.append(np.argmax(keys))
            nearest = np.maximum(nearest, Z[:, chosen[-1]] @ Z)
        centres = Z[:, chosen]
        for _ in range(_STEPS):
            labels = np.argmax(centres.T @ Z, axis=0)
            sums = (Y * lengths) @ np.eye(K)[labels]
            lengths_of_sums = norm(sums, axis=0)
            centres = sums / np.maximum(lengths_of_sums, TINY)
        if lengths_of_sums.sum() > best:  # the weighted sum of cosines
            best = lengths_of_sums.sum()
            result = labels
    return result


def _in_cluster(B: Array) -> int:
    """Return the number of components in samples, from the features with equal noise."""
    B = B[np.mean(B == 0, axis=1) <= _MAX_ZEROS]
    B = B[:, B.any(axis=0)]
    return _above_edge(B, _HIGH_TRACY_WIDOM).K if min(B.shape) >= _FEW_SAMPLES else 1


def _capped(variances: Array, squares: Array) -> Array:
    """Limit the variances of noise in samples, so that hidden components do not raise them."""
    alike = np.quantile(variances, 0.1)
    relative = np.quantile(np.maximum(variances - alike, 0.0) / squares, 0.9)
    capped = np.minimum(variances, 1.5 * alike + relative * squares)
    return np.maximum(capped, _EXACT_SHARE * squares)


def highest_noise(F: int, N: int, quantile: float = _TRACY_WIDOM) -> float:
    """Return the 90% quantile of the norm of F x N noise of variance one, or another quantile.

    The largest eigenvalue follows the law of Tracy and Widom.
    """
    edge = noise_edge([1.0], F, [N])
    return math.sqrt(edge**2 + quantile * edge * (1 / np.sqrt(F) + 1 / np.sqrt(N)) ** (1 / 3))


def _noise_quantiles(F: int, N: int) -> Array:
    """Quantiles of the singular values of noise of variance one (Marchenko and Pastur, 1967)."""
    share = min(F, N) / max(F, N)
    turn = np.linspace(0.0, np.pi, 4001)[1:-1]
    x = 1 + share - 2 * np.sqrt(share) * np.cos(turn)
    mass = np.cumsum(np.sin(turn) ** 2 / x)
    return np.asarray(np.sqrt(max(F, N) * np.interp(_QUANTILES, mass / mass[-1], x)))


# --- counting cones ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ConeCount:
    """How many cones there are.

    Attributes
    ----------
    K : int
        The number chosen; 0 if samples do not lie in cones.
    ks : array of int
        All k from 2 to min(F, N) for which k clusters of the compared samples are apart. If the
        geometric assumption holds, the true number of cones is among them.
    separations : array (n,)
        S_p(k) in radians for k = 1, ..., n, from single linkage of the n compared samples; infinite
        for k = 1.
    separation : Separation or None
        The separation of the K clusters of all samples, or a lower bound; None if K is 0.
    reason : str
        Why this number was chosen, or why there are no cones.
    """

    K: int
    ks: Array
    separations: Array
    separation: Separation | None
    reason: str


def count_cones(V: object) -> ConeCount:
    """Count the cones that the samples lie in.

    The candidates are all k <= min(F, N) for which some k clusters are apart. The function chooses
    the largest candidate for which every cluster has at least 5 samples. It also accepts a k if at
    least two clusters of this size contain 80% of all samples, if samples of different clusters are
    at least 1.3 times as far apart as samples of the same cluster, and if no cluster consists of
    the shortest 0.2% of the samples, whose directions a little noise can change completely.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows

    Examples
    --------
    Three cones, two of which are close to each other:

    >>> from conenmf import from_columns
    >>> turns = np.add.outer([0.1, 1.0, 1.3], 0.01 * np.arange(6)).ravel()
    >>> V = from_columns(np.stack([np.cos(turns), np.sin(turns), turns**2]))
    >>> count = count_cones(V)
    >>> count.K, count.ks.tolist()
    (3, [2, 3])
    """
    V = as_data(V, nonzero=True)
    size = _n_compared(V)
    indices, tree, ks = _compared(V, min(size, _MIN_SUBSET_SAMPLES))
    if indices.size < size and 2 * ks.min(initial=size) <= indices.size:
        indices, tree, ks = _compared(V, size)
    between = angles_of(tree.between)
    within = angles_of(tree.within)
    between[0] = np.inf
    shortest, is_long = _without_shortest(np.asarray(V.norms_squared[indices]))
    clear = [
        k
        for k in ks.tolist()
        if _is_clear(tree, k, tree.sizes(k))
        and np.logical_or.reduceat(is_long[tree.order], tree.first(k)).all()
    ]
    K = 0
    separation = None
    reason = f"no clusters of {indices.size} samples are apart" + " and clear" * bool(ks.size)
    if clear:
        K, separation, reason = _in_all_samples(V, indices, tree, clear[-1], shortest)
    return ConeCount(K, ks, between - within, separation, reason)


def _compared(V: DataMatrix, size: int) -> tuple[Array, Linkage, Array]:
    """Return some samples, their clusters, and the numbers of clusters that are apart."""
    indices = np.sort(draw_samples(V, size, default_rng(0)))
    tree = linkage(distances(V, indices))
    is_apart = tree.between > tree.within + _ROUNDING
    return indices, tree, 1 + np.flatnonzero(is_apart[: min(V.shape)])[1:]


def _n_compared(V: DataMatrix) -> int:
    """Return how many samples to compare: n samples take n^2 / 2 products."""
    if V.nonzero <= _MAX_SAMPLES:
        return V.nonzero
    entries = 1 + V.n_entries // V.n_samples
    affordable = np.sqrt(2 * _SUBSET_PRODUCTS / entries)
    return int(np.clip(affordable, _MIN_SUBSET_SAMPLES, _SUBSET_SAMPLES))


def _without_shortest(squared: Array) -> tuple[float, Array]:
    """Return the squared norm below which samples count as shortest, and a mask of the others."""
    place = min(math.ceil(_SHORTEST_SHARE * squared.size), squared.size - 1)
    limit = float(np.partition(squared, place)[place]) * (1.0 - _NORM_ROUNDING)
    return limit, squared >= limit


def _is_clear(tree: Linkage, k: int, sizes: Array) -> bool:
    """Return whether chance is ruled out by the sizes of k clusters and their distance."""
    large = sizes[sizes >= _FEW_SAMPLES]
    if large.size == sizes.size:
        return True
    is_wide_apart = tree.between[k - 1] >= _CLEAR_RATIO * tree.within[k - 1]
    return bool(is_wide_apart and large.size > 1 and large.sum() >= _LARGE_SHARE * sizes.sum())


class Linkage(NamedTuple):
    """The clusters that single linkage makes of n samples, for every number of clusters.

    Attributes
    ----------
    order : array (n,)
        An order of the samples in which every cluster, for every number of clusters, is contiguous.
    steps : array (n,)
        The distance of each sample to the nearest earlier one in this order; infinite for the
        first.
    between, within : array (n,)
        For k = 1, ..., n clusters: the smallest distance between two clusters (infinite for k = 1),
        and the largest distance within a cluster.
    """

    order: Array
    steps: Array
    between: Array
    within: Array

    def first(self, k: int) -> Array:
        """Return where each of k clusters begins in the order, if they are apart."""
        return np.flatnonzero(self.steps >= self.between[k - 1])

    def sizes(self, k: int) -> Array:
        """Return how many samples each of k clusters has, if they are apart."""
        return np.diff(self.first(k), append=self.steps.size)


def linkage(distances: Array) -> Linkage:
    """Make all clusters of single linkage from a matrix of distances (n, n).

    >>> tree = linkage(np.abs(np.subtract.outer([0.0, 5.0, 1.0, 7.0], [0.0, 5.0, 1.0, 7.0])))
    >>> tree.order.tolist(), tree.between.tolist(), tree.within.tolist()
    ([0, 2, 1, 3], [inf, 4.0, 2.0, 1.0], [7.0, 2.0, 1.0, 0.0])
    """
    from scipy.cluster.hierarchy import leaves_list, single  # slow to import
    from scipy.spatial.distance import squareform

    if len(distances) == 1:
        return Linkage(np.zeros(1, np.intp), np.full(1, np.inf), np.full(1, np.inf), np.zeros(1))
    joined = single(squareform(distances, checks=False))
    order = leaves_list(joined)
    distances = distances[np.ix_(order, order)]
    spans = [(place, place + 1) for place in np.argsort(order).tolist()]  # of clusters
    steps = np.full(order.size, np.inf)
    within = np.zeros(order.size)
    for n_left, (a, b, step, _) in zip(range(order.size - 1, 0, -1), joined.tolist(), strict=True):
        (begin, middle), (_, end) = sorted((spans[int(a)], spans[int(b)]))
        spans.append((begin, end))
        steps[middle] = step
        widest = distances[begin:middle, middle:end].max()
        within[n_left - 1] = max(widest, within[n_left])
    return Linkage(order, steps, np.append(np.inf, joined[::-1, 2]), within)


def _in_all_samples(
    V: DataMatrix, indices: Array, tree: Linkage, k: int, shortest: float
) -> tuple[int, Separation | None, str]:
    """Extend k clusters of some samples to all; return the number, separation and reason."""
    Z = unit_samples_at(V, indices[tree.order[tree.first(k)]])
    between = tree.between[k - 1]
    within = tree.within[k - 1]
    if indices.size == V.nonzero:
        separation = Separation(float(angles_of(between)), float(angles_of(within)), is_exact=True)
        return _checked(Z, separation, "")
    of_subset = f" in {indices.size} samples"
    labels, Z, found = _cover(V, Z, 1.0 - ((between + within) / 2) ** 2 / 2, shortest)
    if found.new.shape[1] or found.n_unclear or not _is_clear(tree, k, found.sizes):
        return 0, None, f"{k} clusters are apart{of_subset}, but not in all"
    return _checked(Z, pairwise_separation(V, labels), of_subset)


def _checked(Z: Array, separation: Separation, where: str) -> tuple[int, Separation | None, str]:
    K = Z.shape[1]
    rank = matrix_rank(Z)
    if rank < K:
        return 0, None, f"{K} clusters are apart{where}, but their directions have rank {rank}"
    of = "" if separation.is_exact else "at least "
    reason = f"{K} clusters are apart{where}, with a separation of {of}{separation.value:.3g} rad"
    return K, separation, reason


class _Cover(NamedTuple):
    """Which samples of some blocks are near to the directions.

    `sizes` counts the samples by their nearest direction, `n_unclear` counts samples near to two,
    and `new` contains directions of samples near to none. The shortest samples are assigned to the
    nearest direction but not counted.
    """

    sizes: Array
    n_unclear: int
    new: Array


def _cover(V: DataMatrix, Z: Array, limit: float, shortest: float) -> tuple[Aligned, Array, _Cover]:
    """Add directions to Z until every sample has a cosine of `limit` or more to one of them."""
    options: Facts = {"limit": limit, "tie": cosine_rounding(V)}
    with V.own_threads():
        for _ in range(_MAX_PASSES):
            join = partial(_join, most=Z.shape[1], **options)
            labels, found = V.sweep(
                _cover_block, V.norms_squared, reduce=join, Z=Z, shortest=shortest, **options
            )
            if not 0 < found.new.shape[1] <= min(V.shape) - Z.shape[1]:
                break
            Z = np.hstack([Z, found.new])
    return labels, Z[:, : found.sizes.size], found


def _cover_block(
    block: Block, squared: Array, *, Z: Array, limit: float, shortest: float, tie: float
) -> tuple[Array, _Cover]:
    block = exact(block)
    K = Z.shape[1]
    cosines = cross_products(block, Z) / norms(squared)[:, None]
    second, largest = np.partition(cosines, K - 2, axis=1)[:, K - 2 :].T
    labels = np.where(squared > 0, first_largest(cosines.T, tie), -1)
    is_long = squared >= shortest
    scores = np.where(is_long, -largest, -np.inf)
    _, new = farthest_first(block, norms(squared), scores, K, -limit, tie)
    n_unclear = int(np.count_nonzero(second[is_long] >= limit))
    sizes = np.bincount(labels[labels >= 0], minlength=K)
    return labels, _Cover(sizes, n_unclear, new)


def _join(a: _Cover, b: _Cover, *, most: int, limit: float, tie: float) -> _Cover:
    new = np.hstack([a.new, b.new])
    if a.new.shape[1] and b.new.shape[1]:
        scores = np.ones(new.shape[1])
        _, new = farthest_first(new, scores, scores, most, -limit, tie)
    return _Cover(a.sizes + b.sizes, a.n_unclear + b.n_unclear, new)

"""How many cones the samples lie in, from the angles between samples alone.

Clusters are *apart* if their pairwise separation S_p is positive: any two samples of one cluster
are closer than any two of different clusters. The geometric assumption implies it for the true
cones, so the true number is among the k for which some k clusters are apart. For each k there is at
most one such clustering, and single linkage finds it: joining samples in the order of their
distances, it joins all pairs within clusters before the first pair between two. (So does Algorithm
1, see `cluster_cones`.) One matrix of distances therefore yields S_p(k) for every k at once.

Probabilities and norms of the samples play no part, nor need cones be alike, as Theorem 9 of the
paper asks for its ratio of singular values. But several k may qualify: cones may lie in groups, two
samples that are very close are apart from all others. `count_cones` lists all and chooses one.

If samples are many, those of a subset are compared. Where clusters of all samples are apart, so are
those of the subset: if none are, there are no cones. If some are, another pass finds the cones that
the subset has no sample of.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arguments import number, optional
from ..data.blocks import Array, Block, cross_products, dense, exact, norms
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import draw_samples
from ..data.validate import require_data_matrix
from ..data.views import unit_samples
from .clustering import farthest_first
from .geometry import Separation, angles_of, cosine_rounding, distances, pairwise_separation

__all__ = ["ConeCount", "Linkage", "count_cones", "linkage"]

_MAX_SAMPLES = 2000  # up to which all are compared; ...
_SUBSET_SAMPLES = 1000  # ... of more, so many; ...
_SUBSET_PRODUCTS = 10**10  # ... or fewer, so that this takes about so many products, ...
_MIN_SUBSET_SAMPLES = 200  # ... but at least so many
_MAX_PASSES = 3  # to find the cones that are missing among them
_ROUNDING = 1e-9  # distances closer than this count as equal
_FEW_SAMPLES = 5  # a cluster of fewer may be chance, ...
_LARGE_SHARE = 0.8  # ... unless several others hold this share of the samples ...
_CLEAR_RATIO = 1.3  # ... and clusters are so much farther apart than they are wide
_SHORTEST_SHARE = 0.002  # of the samples: noise turns them most, so they are no cones of their own
_NORM_ROUNDING = 1e-9


@dataclass(frozen=True)
class ConeCount:
    """How many cones there are.

    Attributes
    ----------
    K : int
        The number chosen; 0 if samples do not lie in cones.
    ks : array of int
        All k from 2 to min(F, N) for which k clusters of the samples compared are apart. If the
        geometric assumption holds, the number of cones that they come from is among them.
    separations : array (n,)
        S_p(k) for k = 1, ..., n, in radians, of the k clusters that single linkage makes of the n
        samples compared; infinite for one cluster.
    separation : Separation or None
        That of the K clusters of all samples, or a lower bound.
    reason : str
        Why this number, or why none.
    """

    K: int
    ks: Array
    separations: Array
    separation: Separation | None
    reason: str


def count_cones(V: DataMatrix, *, deadline: float | None = None) -> ConeCount:
    """Count the cones that the samples lie in.

    Of all k <= min(F, N) for which k clusters are apart, the largest is chosen at which every
    cluster has at least 5 samples; or at which two or more that have hold 80% of all samples,
    samples of different clusters are at least 1.3 times as far apart as samples of one cluster, and
    no cluster has only samples of the shortest 0.2%, which a little noise can turn anywhere.

    Parameters
    ----------
    V : DataMatrix (F, N)
    deadline : float, optional
        The `time.perf_counter()` from which on a subset decides alone.

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
    require_data_matrix(V, nonzero=True)
    deadline = optional(number, "deadline", deadline, or_infinite=True)
    indices = np.sort(draw_samples(V, _n_compared(V), np.random.default_rng(0)))
    tree = linkage(distances(V, indices))
    between, within = angles_of(tree.between), angles_of(tree.within)
    between[0] = np.inf
    is_apart = tree.between > tree.within + _ROUNDING
    ks = 1 + np.flatnonzero(is_apart[: min(V.shape)])[1:]
    shortest, is_long = _without_shortest(np.asarray(V.norms_squared[indices]))
    clear = [
        k
        for k in ks.tolist()
        if _is_clear(tree, k, tree.sizes(k))
        and np.logical_or.reduceat(is_long[tree.order], tree.first(k)).all()
    ]
    K, separation = 0, None
    reason = f"no clusters of {indices.size} samples are apart" + " and clear" * bool(ks.size)
    if clear:
        K, separation, reason = _in_all_samples(V, indices, tree, clear[-1], shortest, deadline)
    return ConeCount(K, ks, between - within, separation, reason)


def _n_compared(V: DataMatrix) -> int:
    """How many samples to compare: n of them take n^2 / 2 products of all features."""
    if V.nonzero <= _MAX_SAMPLES:
        return V.nonzero
    entries = 1 + V.n_entries // V.shape[1]
    affordable = int(np.sqrt(2 * _SUBSET_PRODUCTS / entries))
    return int(np.clip(affordable, _MIN_SUBSET_SAMPLES, _SUBSET_SAMPLES))


def _without_shortest(squared: Array) -> tuple[float, Array]:
    """The squared norm that all but the shortest samples have, and which have it."""
    place = min(int(np.ceil(_SHORTEST_SHARE * squared.size)), squared.size - 1)
    limit = float(np.partition(squared, place)[place]) * (1.0 - _NORM_ROUNDING)
    return limit, squared >= limit


def _is_clear(tree: Linkage, k: int, sizes: Array) -> bool:
    """Whether the sizes of k clusters, and how far they are apart, rule chance out."""
    large = sizes[sizes >= _FEW_SAMPLES]
    if large.size == sizes.size:
        return True
    is_wide_apart = tree.between[k - 1] >= _CLEAR_RATIO * tree.within[k - 1]
    return bool(is_wide_apart and large.size > 1 and large.sum() >= _LARGE_SHARE * sizes.sum())


# --- all clusterings of some samples ----------------------------------------------------------


class Linkage(NamedTuple):
    """The clusters that single linkage makes of n samples, for every number of clusters.

    Attributes
    ----------
    order : array (n,)
        The samples in an order in which every cluster, for every number, is contiguous.
    steps : array (n,)
        The distance of each to the nearest one before it; infinite for the first.
    between, within : array (n,)
        For k = 1, ..., n clusters the smallest distance between two of them, infinite for one, and
        the largest within one.
    """

    order: Array
    steps: Array
    between: Array
    within: Array

    def first(self, k: int) -> Array:
        """Where in the order each of k clusters begins, if they are apart."""
        return np.flatnonzero(self.steps >= self.between[k - 1])

    def sizes(self, k: int) -> Array:
        """How many samples each of k clusters has, if they are apart."""
        return np.diff(self.first(k), append=self.steps.size)


def linkage(distances: Array) -> Linkage:
    """Make all clusters of single linkage from a matrix of distances (n, n), in n^2 steps.

    Prim's algorithm visits the samples, next always the one nearest to those visited. It leaves a
    cluster only when all of its samples are visited, since the next cluster is farther: clusters
    are contiguous, and joining them in the order of the steps between them makes all of them.

    >>> tree = linkage(np.abs(np.subtract.outer([0.0, 5.0, 1.0, 7.0], [0.0, 5.0, 1.0, 7.0])))
    >>> tree.order.tolist(), tree.between.tolist(), tree.within.tolist()
    ([0, 2, 1, 3], [inf, 4.0, 2.0, 1.0], [7.0, 2.0, 1.0, 0.0])
    """
    n = len(distances)
    order, steps = _visit_nearest(distances)
    distances = distances[np.ix_(order, order)]
    by_step = 1 + np.argsort(steps[1:], kind="stable")
    first, last = np.arange(n), np.arange(n)  # of the cluster that ends, or begins, at a place
    widest = 0.0
    within = np.zeros(n)
    for n_joined, place in enumerate(by_step, 1):
        begin, end = first[place - 1], last[place]
        widest = max(widest, float(distances[begin:place, place : end + 1].max()))
        first[end], last[begin] = begin, end
        within[n - n_joined - 1] = widest
    return Linkage(order, steps, np.append(np.inf, steps[by_step[::-1]]), within)


def _visit_nearest(distances: Array) -> tuple[Array, Array]:
    order = np.zeros(len(distances), dtype=np.intp)
    steps = np.full(len(distances), np.inf)
    visited = np.zeros(len(distances))  # infinite where visited
    visited[0] = np.inf
    nearest = distances[0].copy()
    for place in range(1, len(distances)):
        order[place] = n = int(np.argmin(nearest + visited))
        steps[place] = nearest[n]
        visited[n] = np.inf
        np.minimum(nearest, distances[n], out=nearest)
    return order, steps


# --- from some samples to all -----------------------------------------------------------------


def _in_all_samples(
    V: DataMatrix,
    indices: Array,
    tree: Linkage,
    k: int,
    shortest: float,
    deadline: float | None,
) -> tuple[int, Separation | None, str]:
    """The number of cones, their separation and the reason, given k clusters of some samples."""
    Z = dense(unit_samples(V).columns(indices[tree.order[tree.first(k)]]))
    between, within = tree.between[k - 1], tree.within[k - 1]
    if indices.size == V.nonzero:
        separation = Separation(float(angles_of(between)), float(angles_of(within)), is_exact=True)
        return _checked(V, Z, separation, "")
    of_subset = f" in {indices.size} samples"
    if deadline is not None and time.perf_counter() > deadline:
        return k, None, f"{k} clusters are apart{of_subset}; the time ran out to look at the others"
    labels, found = _cover(V, Z, 1.0 - ((between + within) / 2) ** 2 / 2, shortest)
    if found.new.shape[1] or found.n_unclear or not _is_clear(tree, k, found.sizes):
        return 0, None, f"{k} clusters are apart{of_subset}, but not in all"
    return _checked(V, found.Z, pairwise_separation(V, labels), of_subset)


def _checked(
    V: DataMatrix, Z: Array, separation: Separation, where: str
) -> tuple[int, Separation | None, str]:
    K = Z.shape[1]
    rank = int(np.linalg.matrix_rank(Z))
    if rank < K:
        return 0, None, f"{K} clusters are apart{where}, but their directions have rank {rank}"
    of = "" if separation.is_exact else "at least "
    reason = f"{K} clusters are apart{where}, with a separation of {of}{separation.value:.3g} rad"
    return K, separation, reason


class _Cover(NamedTuple):
    """How the samples of some blocks lie to directions Z (F, K).

    Those with a cosine of `limit` or more are near. `sizes` counts the samples by the nearest
    direction, `n_unclear` those near to two; `new` are directions of samples near to none. The
    shortest samples belong to the nearest direction, but count for neither.
    """

    Z: Array
    limit: float
    tie: float
    sizes: Array
    n_unclear: int
    new: Array


def _cover(V: DataMatrix, Z: Array, limit: float, shortest: float) -> tuple[Aligned, _Cover]:
    """Add directions until every sample is near to one; return labels too."""
    options: dict[str, Any] = {"limit": limit, "shortest": shortest, "tie": cosine_rounding(V)}
    with V.own_threads():
        for _ in range(_MAX_PASSES):
            labels, found = V.sweep(_cover_block, V.norms_squared, reduce=_join, Z=Z, **options)
            if not 0 < found.new.shape[1] <= min(V.shape) - Z.shape[1]:
                break
            Z = np.hstack([Z, found.new])
    return labels, found


def _cover_block(
    block: Block, squared: Array, *, Z: Array, limit: float, shortest: float, tie: float
) -> tuple[Array, _Cover]:
    block, K = exact(block), Z.shape[1]
    cosines = cross_products(block, Z) / norms(squared)[:, None]
    second, largest = np.partition(cosines, K - 2, axis=1)[:, K - 2 :].T
    labels = np.where(squared > 0, cosines.argmax(axis=1), -1)
    is_long = squared >= shortest
    scores = np.where(is_long, -largest, -np.inf)
    _, new = farthest_first(block, norms(squared), scores, K, -limit, tie)
    n_unclear = int(np.count_nonzero(second[is_long] >= limit))
    sizes = np.bincount(labels[labels >= 0], minlength=K)
    return labels, _Cover(Z, limit, tie, sizes, n_unclear, new)


def _join(a: _Cover, b: _Cover) -> _Cover:
    new = np.hstack([a.new, b.new])
    if a.new.shape[1] and b.new.shape[1]:
        scores = np.ones(new.shape[1])
        _, new = farthest_first(new, scores, scores, a.Z.shape[1], -a.limit, a.tie)
    return a._replace(sizes=a.sizes + b.sizes, n_unclear=a.n_unclear + b.n_unclear, new=new)

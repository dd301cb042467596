"""Inits from clusters: k-means and spherical k-means, a few iterations of Lloyd's algorithm each.

scikit-learn's k-means is not used because it needs all samples in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cones.clustering import require_samples
from ..data.blocks import Array, Block, dense, exact
from ..data.matrix import Aligned, DataMatrix, sample_indices
from ..data.sampling import draw_samples
from .initial import Factors, Generator, random_coefficients

__all__ = ["kmeans", "spkm"]

_KMEANS_MAX_ITER = 10  # as the published experiments do for spherical k-means
_TIE_SHARE = 1e-12  # share of the largest squared norm by which distances differ through rounding
_DISTANCE_SHARE = 1e-10  # ... and to which they are rounded, so that farthest samples tie


def spkm(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Spherical k-means: unit centroids, H uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    W, _ = _lloyd(V, K, rng, spherical=True)
    return W.astype(V.dtype), random_coefficients(V, K, rng)


def kmeans(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """k-means: centroids, H the indicator of the clusters plus 0.2."""
    rng = np.random.default_rng(rng)
    W, labels = _lloyd(V, K, rng, spherical=False)
    Ht, _ = V.map(_indicators, labels, K=K, dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _indicators(index: range, labels: Array, *, K: int, dtype: np.dtype[Any]) -> tuple[Array, None]:
    Ht = np.full((labels.size, K), 0.2, dtype=dtype)
    Ht[np.arange(labels.size), labels] += 1
    return Ht, None


def _lloyd(
    V: DataMatrix, K: int, rng: np.random.Generator, *, spherical: bool
) -> tuple[Array, Aligned]:
    """A few iterations of Lloyd's algorithm from K random samples; returns centroids and labels.

    An empty cluster takes the sample that is farthest from its own centroid.
    """
    require_samples(V, K)
    with V.own_threads():
        index, _ = V.map(sample_indices)
        labels, _ = V.map(_unlabelled)
        centroids = _weighted_columns(V, draw_samples(V, K, rng), spherical)
        unit = _DISTANCE_SHARE * (1.0 if spherical else V.measures.largest_squared)
        for _ in range(_KMEANS_MAX_ITER):
            labels, (sums, counts, n_changed, far) = V.sweep(
                _nearest,
                index,
                labels,
                V.norms_squared,
                reduce=_join_clusters,
                centroids=centroids,
                spherical=spherical,
                unit=unit,
            )
            empty = np.flatnonzero(counts == 0)
            moving = far[: empty.size]
            for k, (_, n, label) in zip(empty, moving, strict=False):
                column = _weighted_columns(V, np.array([int(n)]), spherical)[:, 0]
                sums[:, int(label)] -= column
                counts[int(label)] -= 1
                sums[:, k], counts[k] = column, 1
            if len(moving):
                new = dict(zip(moving[:, 1].astype(np.intp).tolist(), empty.tolist(), strict=False))
                labels, _ = V.map(_relabelled, labels, new=new)
            centroids = np.maximum(sums / np.maximum(counts, 1), 0.0)
            if spherical:
                centroids = centroids / np.maximum(np.linalg.norm(centroids, axis=0), 1e-300)
            if not n_changed and not len(moving):
                break
    return centroids, labels


def _weighted_columns(V: DataMatrix, indices: Array, spherical: bool) -> Array:
    columns = np.ascontiguousarray(dense(V.columns(indices)))
    if not spherical:
        return columns
    size = np.linalg.norm(columns, axis=0)
    return columns / np.where(size > 0, size, 1.0)


def _unlabelled(index: range) -> tuple[Array, None]:
    return np.full(len(index), -1), None


def _relabelled(index: range, labels: Array, *, new: dict[int, int]) -> tuple[Array, None]:
    labels = labels.copy()
    for n, label in new.items():
        if n in index:
            labels[n - index.start] = label
    return labels, None


def _nearest(
    block: Block,
    index: Array,
    before: Array,
    squared: Array,
    *,
    centroids: Array,
    spherical: bool,
    unit: float,
) -> tuple[Array, tuple[Array, Array, int, Array]]:
    """Label samples by their nearest centroid.

    Sums samples and counts them per label; how many changed theirs; and the K samples farthest
    from their centroid, as rows (distance / unit, sample, label).
    """
    exact_block = exact(block)
    weights = np.ones_like(squared)
    if spherical:
        weights = np.sqrt(np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0))
    products = (exact_block.T @ centroids) * weights[:, None]
    sizes = (centroids**2).sum(axis=0)
    distances = sizes - 2.0 * products
    tie = _TIE_SHARE * float(sizes.max())
    labels = (distances <= distances.min(axis=1, keepdims=True) + tie).argmax(axis=1)
    member = np.zeros_like(products)
    member[np.arange(labels.size), labels] = 1.0
    distance = squared * weights**2 + distances[np.arange(labels.size), labels]
    if spherical:
        distance[squared == 0] = 0.0  # a zero sample has no direction: the last to be a centroid
    far = np.stack([np.round(distance / unit), index, labels], axis=1)
    sums = exact_block @ (member * weights[:, None])
    n_changed = int(np.count_nonzero(labels != before))
    return labels, (sums, member.sum(axis=0), n_changed, _farthest(far, centroids.shape[1]))


def _farthest(rows: Array, count: int) -> Array:
    return rows[np.argsort(-rows[:, 0], kind="stable")[:count]]


def _join_clusters(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    far = _farthest(np.vstack([a[3], b[3]]), a[1].size)
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], far

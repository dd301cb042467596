"""Inits from clusters: four kinds of k-means, a few iterations each.

Spherical k-means and k-means; k-means with the divergence of Kullback and Leibler instead of the
squared distance (Xue, Tong, Chen and Chen, 2008); and fuzzy c-means, where every sample belongs to
all clusters to some degree (Zheng, Yang and Zhu, 2007).

scikit-learn's k-means is not used because it needs all samples in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cones.clustering import require_samples
from ..data.blocks import Array, Block, dense, entropies, exact
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import draw_samples
from ..data.steps import sample_indices
from .initial import Factors, Generator, random_coefficients

__all__ = ["CLUSTER_INITS", "fuzzy", "kl_kmeans", "kmeans", "spkm"]

_KMEANS_MAX_ITER = 10  # as the published experiments do for spherical k-means
_TIE_SHARE = 1e-12  # share of the largest squared norm by which distances differ through rounding
_DISTANCE_SHARE = 1e-10  # ... and to which they are rounded, so that farthest samples tie
_FUZZY_MAX_ITER = 30
_FUZZY_TOL = 1e-3  # stop when no centroid moves by more than this share of the largest
_CENTROID_FLOOR = 1e-3  # share of the mean entry below which no entry of a centroid is taken to be


def spkm(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Spherical k-means: unit centroids, H uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    W, _ = _lloyd(V, K, rng, "angle")
    return W.astype(V.dtype), random_coefficients(V, K, rng)


def kmeans(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """k-means: centroids, H the indicator of the clusters plus 0.2."""
    rng = np.random.default_rng(rng)
    return _with_indicators(V, *_lloyd(V, K, rng, "distance"))


def kl_kmeans(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """k-means with the divergence sum_f v log(v / c) - v + c; H as for `kmeans`.

    The mean of a cluster minimises this divergence too. Entries of a centroid count as at least a
    thousandth of the mean entry of V, so that a feature that no sample of a cluster has does not
    keep all samples away that have it.
    """
    rng = np.random.default_rng(rng)
    return _with_indicators(V, *_lloyd(V, K, rng, "divergence"))


def _with_indicators(V: DataMatrix, W: Array, labels: Aligned) -> Factors:
    Ht, _ = V.map(_indicators, labels, K=W.shape[1], dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _indicators(index: range, labels: Array, *, K: int, dtype: np.dtype[Any]) -> tuple[Array, None]:
    Ht = np.full((labels.size, K), 0.2, dtype=dtype)
    Ht[np.arange(labels.size), labels] += 1
    return Ht, None


def fuzzy(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Fuzzy c-means with exponent 2: centroids, H the memberships u_kn.

    u_kn is proportional to 1 / ||v_n - c_k||^2 and sums to 1 over k; c_k is the mean of all
    samples with weights u_kn^2.
    """
    rng = np.random.default_rng(rng)
    require_samples(V, K)
    with V.own_threads():
        centroids = _weighted_columns(V, draw_samples(V, K, rng), "distance")
        for _ in range(_FUZZY_MAX_ITER):
            sums, totals = V.sweep(_fuzzy_sums, V.norms_squared, centroids=centroids)[0]
            moved = np.maximum(sums / np.maximum(totals, 1e-300), 0.0)
            shift = np.abs(moved - centroids).max()
            centroids = moved
            if shift <= _FUZZY_TOL * centroids.max():
                break
        Ht, _ = V.sweep(_memberships, V.norms_squared, centroids=centroids, dtype=V.dtype)
    return centroids.astype(V.dtype), Ht.T


def _lloyd(V: DataMatrix, K: int, rng: np.random.Generator, kind: str) -> tuple[Array, Aligned]:
    """A few iterations of Lloyd's algorithm from K random samples; returns centroids and labels.

    An empty cluster takes the sample that is farthest from its own centroid. The kind says how
    far a sample is from a centroid: see `_distances`.
    """
    require_samples(V, K)
    with V.own_threads():
        index, _ = V.map(sample_indices)
        labels, _ = V.map(_unlabelled)
        centroids = _weighted_columns(V, draw_samples(V, K, rng), kind)
        unit = _DISTANCE_SHARE * (1.0 if kind == "angle" else V.measures.largest_squared)
        floor = _CENTROID_FLOOR * V.mean() if kind == "divergence" else 0.0
        for _ in range(_KMEANS_MAX_ITER):
            labels, (sums, counts, n_changed, far) = V.sweep(
                _nearest,
                index,
                labels,
                V.norms_squared,
                reduce=_join_clusters,
                centroids=np.maximum(centroids, floor),
                kind=kind,
                unit=unit,
            )
            empty = np.flatnonzero(counts == 0)
            moving = far[: empty.size]
            for k, (_, n, label) in zip(empty, moving, strict=False):
                column = _weighted_columns(V, np.array([int(n)]), kind)[:, 0]
                sums[:, int(label)] -= column
                counts[int(label)] -= 1
                sums[:, k], counts[k] = column, 1
            if len(moving):
                new = dict(zip(moving[:, 1].astype(np.intp).tolist(), empty.tolist(), strict=False))
                labels, _ = V.map(_relabelled, labels, new=new)
            centroids = np.maximum(sums / np.maximum(counts, 1), 0.0)
            if kind == "angle":
                centroids = centroids / np.maximum(np.linalg.norm(centroids, axis=0), 1e-300)
            if not n_changed and not len(moving):
                break
    return centroids, labels


def _weighted_columns(V: DataMatrix, indices: Array, kind: str) -> Array:
    columns = np.ascontiguousarray(dense(V.columns(indices)))
    if kind != "angle":
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
    kind: str,
    unit: float,
) -> tuple[Array, tuple[Array, Array, int, Array]]:
    """Label samples by their nearest centroid.

    Sums samples and counts them per label; how many changed theirs; and the K samples farthest
    from their centroid, as rows (distance / unit, sample, label).
    """
    exact_block = exact(block)
    weights = np.ones_like(squared)
    if kind == "angle":
        weights = np.sqrt(np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0))
    own, distances, sizes = _distances(exact_block, squared, weights, centroids, kind)
    tie = _TIE_SHARE * float(sizes.max())
    labels = (distances <= distances.min(axis=1, keepdims=True) + tie).argmax(axis=1)
    member = np.zeros_like(distances)
    member[np.arange(labels.size), labels] = 1.0
    distance = own + distances[np.arange(labels.size), labels]
    if kind == "angle":
        distance[squared == 0] = 0.0  # a zero sample has no direction: the last to be a centroid
    far = np.stack([np.round(distance / unit), index, labels], axis=1)
    sums = exact_block @ (member * weights[:, None])
    n_changed = int(np.count_nonzero(labels != before))
    return labels, (sums, member.sum(axis=0), n_changed, _farthest(far, centroids.shape[1]))


def _distances(
    block: Block, squared: Array, weights: Array, centroids: Array, kind: str
) -> tuple[Array, Array, Array]:
    """How far samples are from centroids, as own (n,) + distances (n, K), and the centroids' sizes.

    Squared distances of samples times their weights, or the divergence of Kullback and Leibler.
    """
    if kind == "divergence":
        sizes = centroids.sum(axis=0)
        return entropies(block), sizes - block.T @ np.log(centroids), sizes
    sizes = (centroids**2).sum(axis=0)
    return squared * weights**2, sizes - 2.0 * (block.T @ centroids) * weights[:, None], sizes


def _fuzzy_sums(block: Block, squared: Array, *, centroids: Array) -> tuple[tuple[Array, Array]]:
    """The sums of samples with weights u^2 for each cluster, and the sums of the weights."""
    samples = exact(block)
    weights = _membership(samples, squared, centroids) ** 2
    return ((samples @ weights, weights.sum(axis=0)),)


def _memberships(
    block: Block, squared: Array, *, centroids: Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    return _membership(exact(block), squared, centroids).astype(dtype), None


def _membership(samples: Block, squared: Array, centroids: Array) -> Array:
    """u_nk, proportional to one over the squared distance; 1 for a centroid that is the sample."""
    _, distances, sizes = _distances(samples, squared, np.ones_like(squared), centroids, "distance")
    distances = distances + squared[:, None]
    rounding = _TIE_SHARE * (squared[:, None] + sizes)
    nearest = distances.min(axis=1, keepdims=True)
    at = distances <= rounding  # the sample is that centroid, up to rounding
    ratio = np.where(at.any(axis=1, keepdims=True), at, nearest / np.maximum(distances, rounding))
    u: Array = ratio / ratio.sum(axis=1, keepdims=True)
    return u


def _farthest(rows: Array, count: int) -> Array:
    return rows[np.argsort(-rows[:, 0], kind="stable")[:count]]


def _join_clusters(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    far = _farthest(np.vstack([a[3], b[3]]), a[1].size)
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], far


CLUSTER_INITS = {"spkm": spkm, "kmeans": kmeans, "kl-kmeans": kl_kmeans, "fuzzy": fuzzy}

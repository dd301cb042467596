"""The number of clusters by X-means, the gap statistic, the silhouette and the elbow.

The paper cites these methods as alternatives to its own estimate of K. All of them cluster points
(the rows of X) by k-means; `counting.py` measures them on the paper's model.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances, silhouette_score

from conenmf.types import Array

REFERENCES = 10  # sets of uniform points for the gap statistic


def clusterings(X: Array, rng: np.random.Generator) -> Iterator[KMeans]:
    """k-means for k = 1, 2, and so on; the scatter within clusters falls at every step.

    Each k has two runs, and the better one counts: one from k-means++, and one from the centres
    for k - 1 and the point farthest from its own.
    """
    best = _k_means(X, 1, "k-means++", rng)
    for k in count(2):
        yield best
        own = best.cluster_centers_[best.labels_]
        farthest = ((X - own) ** 2).sum(axis=1).argmax()
        centres = np.vstack([best.cluster_centers_, X[farthest]])
        found = [_k_means(X, k, init, rng) for init in ("k-means++", centres)]
        best = min(found, key=lambda one: one.inertia_)


def _k_means(X: Array, k: int, init: str | Array, rng: np.random.Generator) -> KMeans:
    return KMeans(k, init=init, n_init=1, random_state=int(rng.integers(2**31))).fit(X)


def silhouette_count(X: Array, path: list[KMeans]) -> int:
    """The number with the largest mean silhouette (Rousseeuw, 1987), at least 2."""
    distances = pairwise_distances(X)
    np.fill_diagonal(distances, 0.0)
    means = [silhouette_score(distances, one.labels_, metric="precomputed") for one in path[1:]]
    return 2 + int(np.argmax(means))


def elbow_count(path: list[KMeans]) -> int:
    """The number k, at least 2, whose step lowers the scatter most compared with the next step.

    Thorndike (1953) has no formula. The paper describes the elbow so: the decrease from k to k + 1
    clusters is small compared with the decrease from k - 1 to k.
    """
    decreases = -np.diff([one.inertia_ for one in path])
    return 2 + int(np.argmax(decreases[:-1] / decreases[1:]))


def gap_count(X: Array, path: list[KMeans], rng: np.random.Generator) -> int:
    """The number by the gap statistic (Tibshirani, Walther and Hastie, 2001).

    The smallest k with Gap(k) >= Gap(k + 1) - s(k + 1), where the reference points are uniform in
    the box of the principal components of X; the largest k if there is none.
    """
    centred = X - X.mean(axis=0)
    turned = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
    low, high = turned.min(axis=0), turned.max(axis=0)
    references = [
        clusterings(low + (high - low) * rng.random(turned.shape), rng) for _ in range(REFERENCES)
    ]
    before = -np.inf
    for k, (ours, *theirs) in enumerate(zip(path, *references, strict=False), 1):
        logs = np.log([one.inertia_ for one in theirs])
        gap = logs.mean() - np.log(ours.inertia_)
        spread = logs.std() * np.sqrt(1 + 1 / REFERENCES)
        if before >= gap - spread:
            return k - 1
        before = gap
    return len(path)


def x_means_count(X: Array, most: int, rng: np.random.Generator) -> int:
    """The number by X-means (Pelleg and Moore, 2000), at most `most`.

    Starting with one cluster, every cluster is split in two where that improves its own BIC, and
    k-means runs on all points. This repeats until nothing is split; the number with the best BIC
    counts.
    """
    labels = np.zeros(len(X), int)
    found = {1: information(X, labels)}
    while True:
        centres = [part for k in np.unique(labels) for part in _split(X[labels == k], rng)]
        if len(centres) in found or len(centres) > most:
            return max(found, key=found.__getitem__)
        labels = _k_means(X, len(centres), np.array(centres), rng).labels_
        found[len(centres)] = information(X, labels)


def _split(X: Array, rng: np.random.Generator) -> Array:
    """The centres of two halves of a cluster, or its own centre if that has the better BIC."""
    if len(X) > 2:
        halves = _k_means(X, 2, "k-means++", rng)
        if information(X, halves.labels_) > information(X, np.zeros(len(X), int)):
            return halves.cluster_centers_
    return X.mean(axis=0, keepdims=True)


def information(X: Array, labels: Array) -> float:
    """BIC of round Gaussian clusters with one variance, as in X-means: larger is better.

    The variance is estimated per coordinate, as its likelihood needs.
    """
    n, d = X.shape
    sizes = np.bincount(labels)
    k = sizes.size
    if n <= k or not sizes.all():
        return -np.inf
    scatter = sum(((X[labels == j] - X[labels == j].mean(axis=0)) ** 2).sum() for j in range(k))
    variance = scatter / (d * (n - k))
    mixing = (sizes * np.log(sizes / n)).sum()
    likelihood = mixing - n * d / 2 * np.log(2 * np.pi * variance) - d * (n - k) / 2
    return float(likelihood - k * (d + 1) / 2 * np.log(n))


def cluster_counts(X: Array, most: int, rng: np.random.Generator) -> dict[str, int]:
    """The number of clusters by all four methods, up to `most`."""
    path = list(islice(clusterings(X, rng), most + 1))
    return {
        "X-means": x_means_count(X, most, rng),
        "gap": gap_count(X, path, rng),
        "silhouette": silhouette_count(X, path[:most]),
        "elbow": elbow_count(path),
    }

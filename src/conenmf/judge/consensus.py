"""The consensus of replicates, as cNMF forms it.

Components of all replicates, of unit norm, are points. Those that have few others near them are
left out, the rest are clustered by k-means, and the median of each cluster is a component of the
consensus (Kotliar et al., "Identifying gene expression programs of cell-type identity and cellular
activity with single-cell RNA-Seq", eLife 8, 2019). On equal components the result is that of the
package cnmf. Nothing here reads data.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..arguments import factor, number
from ..data.blocks import Array
from ..text import counted
from .metrics import match_components, unit_columns

__all__ = ["Consensus", "consensus", "distinct", "found_again"]

_NEIGHBOUR_SHARE = 0.3  # of the replicates, that are near a point; cNMF's
_KMEANS_SEED, _KMEANS_INITS = 1, 10  # cNMF's
_SAME_COSINE = 0.99  # from which on two components are the same minimum


class Consensus(NamedTuple):
    """What replicates have in common.

    Attributes
    ----------
    W : array (F, K) or None
        The medians, scaled to a sum of one; None if there is no consensus.
    clusters : array (n_runs, K), integers
        The component of the consensus to which each one belongs; -1 for those left out.
    distances : array (n_runs, K)
        The mean distance of each to its nearest neighbours; infinite for components that are zero.
    silhouettes : array (n_runs, K)
        Of each in its cluster; NaN for those left out, and without a consensus.
    problem : str
        Why there is no consensus, else empty.
    """

    W: Array | None
    clusters: Array
    distances: Array
    silhouettes: Array
    problem: str


def consensus(spectra: npt.ArrayLike, *, density_threshold: float = 0.5) -> Consensus:
    """Return the consensus of the components of several runs.

    Parameters
    ----------
    spectra : array (n_runs, F, K)
        W of each run.
    density_threshold : float
        Components whose mean distance to their nearest neighbours is not below this are left out;
        with 2 or more all are kept. Of unit norm, and nonnegative, they are at most 1.41 apart.

    Examples
    --------
    >>> runs = np.array([np.eye(3)[:, [0, 1]], np.eye(3)[:, [1, 0]], np.eye(3)[:, [0, 1]]])
    >>> found = consensus(runs)
    >>> found.clusters.tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    spectra = factor("spectra", spectra, ("n_runs", "F", "K")).astype(float)
    threshold = number("density_threshold", density_threshold, above=0)
    n_runs, F, K = spectra.shape
    points = unit_columns(spectra.transpose(1, 0, 2).reshape(F, n_runs * K)).T
    distances = _mean_distances(points, max(int(_NEIGHBOUR_SHARE * n_runs), 1))
    kept = np.flatnonzero(distances < threshold)
    clusters = np.full(n_runs * K, -1)
    silhouettes = np.full(n_runs * K, np.nan)
    problem = "" if kept.size else "every component is far from those of other runs"
    W: Array | None = None
    if not problem:
        found = _clustered(points[kept], K)
        medians = [np.median(points[kept][found == k], axis=0) for k in np.unique(found)]
        n_found = sum(bool(median.any()) for median in medians)
        if n_found < K:
            problem = f"the runs have only {counted(n_found, 'component')} in common"
        else:
            W = np.array(medians).T
            order = _in_order(W, spectra[0])
            W, found = W[:, order], np.argsort(order)[found]
            W /= W.sum(axis=0)
            clusters[kept] = found
            silhouettes[kept] = _silhouettes(points[kept], found, K)
    shape = (n_runs, K)
    return Consensus(
        W, clusters.reshape(shape), distances.reshape(shape), silhouettes.reshape(shape), problem
    )


def _mean_distances(points: Array, n_neighbours: int) -> Array:
    """The mean distance of each point to its nearest neighbours; infinite for zero points."""
    from sklearn.metrics import euclidean_distances  # slow to import

    n_neighbours = min(n_neighbours, len(points) - 1)
    distances: Array = euclidean_distances(points)
    distances.partition(n_neighbours, axis=1)  # the nearest is the point itself
    means = distances[:, : n_neighbours + 1].sum(axis=1) / max(n_neighbours, 1)
    return np.where(points.any(axis=1), means, np.inf)


def _clustered(points: Array, K: int) -> Array:
    """Labels of k-means; fewer than K of them if there are not as many different points."""
    if len(points) < K:
        return np.arange(len(points))
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(n_clusters=K, n_init=_KMEANS_INITS, random_state=_KMEANS_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of points that are equal
        labels: Array = model.fit(points).labels_
    return labels


def _in_order(W: Array, first: Array) -> Array:
    """The order of the first run, so that it does not depend on k-means."""
    return np.argsort(match_components(W, first)[0])


def _silhouettes(points: Array, clusters: Array, K: int) -> Array:
    if K == 1 or len(points) == K:
        return np.ones(len(points)) if K == 1 else np.zeros(len(points))
    from sklearn.metrics import silhouette_samples

    silhouettes: Array = silhouette_samples(points, clusters)
    return silhouettes


def found_again(W: Array, spectra: Array) -> Array:
    """Return the cosines (n_runs, K) of components with their partners, one to one, in each run."""
    return np.array([match_components(W, run)[1] for run in spectra])


def distinct(spectra: Array) -> int:
    """Return how many of the runs are different: some component has no partner nearly equal to it.

    >>> distinct(np.array([np.eye(2), 3 * np.eye(2)[::-1], [[1, 0], [1, 1]]]))
    2
    """
    different: list[Array] = []
    for run in np.asarray(spectra, dtype=float):
        is_same = (match_components(other, run)[1].min() >= _SAME_COSINE for other in different)
        if not any(is_same):
            different.append(run)
    return len(different)

"""How far clusters are apart: the pairwise separation.

S_p is the smallest angle between samples of different clusters minus the largest angle between
samples of one cluster. Where it is positive Algorithm 1 finds the clusters from any first centre
(the proof of Lemma 1 of the paper uses nothing else), and the geometric assumption implies that
it is: for samples of cones i and j, both angles follow from the triangle inequality on the sphere.

The angle between unit vectors x and y is 2 arcsin(||x - y|| / 2). The distance comes from their
cosine, or, where that would lose too many digits, from the difference itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..data.blocks import (
    Array,
    Block,
    cone_products,
    cross_products,
    dense,
    exact,
    weighted_sums,
)
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_labels, require_data_matrix
from ..data.views import unit_samples
from .clustering import cosine_rounding

__all__ = ["Separation", "angles_of", "distances", "pairwise_separation"]

_MAX_EXACT_SAMPLES = 2000
_GATHERED_BYTES = 64 << 20
_NEAR = 1e-4  # distance below which it is computed from the difference


@dataclass(frozen=True)
class Separation:
    """How far clusters are apart, in radians.

    Attributes
    ----------
    between : float
        The smallest angle between samples of different clusters; infinite for one cluster.
    within : float
        The largest angle between samples of one cluster.
    is_exact : bool
        Otherwise `between` is a lower bound and `within` an upper one, so that `value` is a lower
        bound on the separation.
    """

    between: float
    within: float
    is_exact: bool

    @property
    def value(self) -> float:
        """`between` minus `within`: positive if the clusters are cones apart from each other."""
        return self.between - self.within


def pairwise_separation(V: DataMatrix, labels: Aligned) -> Separation:
    """Compute the pairwise separation of clusters, or a lower bound.

    Up to 2000 nonzero samples it is exact. Beyond, it is bounded from the mean directions c_i of
    the clusters and the largest angles r_i between c_i and a sample, which takes two passes:
    samples of one cluster are at most 2 r_i apart, samples of two at least angle(c_i, c_j) - r_i -
    r_j. Rounding is kept on the safe side.

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
        The cluster of each sample, a number from 0; -1 for samples that belong to none. Zero
        samples belong to none, and numbers may be missing.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> angles = np.array([0.0, 0.1, 0.6, 0.9])
    >>> V = from_columns(np.stack([np.cos(angles), np.sin(angles)]))
    >>> separation = pairwise_separation(V, np.array([0, 0, 1, 1]))
    >>> round(separation.between, 12), round(separation.within, 12), round(separation.value, 12)
    (0.5, 0.3, 0.2)
    """
    require_data_matrix(V, nonzero=True)
    labels = check_labels(V, labels, np.iinfo(np.intp).max)
    (clusters,) = V.map(_clusters, labels, V.norms_squared, reduce=np.union1d)
    own, n_members = V.map(_own_clusters, labels, V.norms_squared, clusters=clusters)
    if n_members > _MAX_EXACT_SAMPLES:
        return _bound(V, own, clusters.size)
    ((indices, own),) = V.map(_members, own, reduce=_append_both)
    apart = distances(V, indices)
    same = own[:, None] == own
    between = angles_of(apart.min(where=~same, initial=2.0)) if clusters.size > 1 else np.inf
    within = angles_of(apart.max(where=same, initial=0.0))
    return Separation(float(between), float(within), is_exact=True)


def _clusters(index: range, labels: Array, squared: Array) -> tuple[Array]:
    """The numbers of the clusters that have a nonzero sample."""
    return (np.unique(labels[(labels >= 0) & (squared > 0)]),)


def _own_clusters(
    index: range, labels: Array, squared: Array, *, clusters: Array
) -> tuple[Array, int]:
    """Labels without gaps, -1 for samples that belong to none; and how many belong to one."""
    is_member = (labels >= 0) & (squared > 0)
    return np.where(is_member, np.searchsorted(clusters, labels), -1), int(is_member.sum())


def _members(index: range, own: Array) -> tuple[tuple[Array, Array]]:
    members = np.flatnonzero(own >= 0)
    return ((members + index.start, own[members]),)


def _append_both(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.append(a[0], b[0]), np.append(a[1], b[1])


# --- distances and angles ---------------------------------------------------------------------


def distances(V: DataMatrix, indices: Array) -> Array:
    """Return the distances (n, n) between some samples, none of them zero, scaled to norm 1."""
    X = unit_samples(V)
    size = int(np.clip(_GATHERED_BYTES // (8 * V.shape[0]), 1, V.max_gather))
    result = np.empty((indices.size, indices.size))
    for start in range(0, indices.size, size):
        rows = slice(start, start + size)
        block = X.columns(indices[rows])
        result[rows, rows] = _distances_of_blocks(block, block)
        for before in range(0, start, size):
            columns = slice(before, before + size)
            part = _distances_of_blocks(block, X.columns(indices[columns]))
            result[rows, columns], result[columns, rows] = part, part.T
    np.fill_diagonal(result, 0.0)
    return result


def angles_of(distances: npt.ArrayLike) -> Array:
    """Return the angles between unit vectors at these distances.

    >>> angles_of([0.0, np.sqrt(2), 2.0])  # 0, a right angle, opposite
    array([0.        , 1.57079633, 3.14159265])
    """
    angles: Array = 2.0 * np.arcsin(np.clip(np.asarray(distances) / 2.0, 0.0, 1.0))
    return angles


def _distances_of_blocks(block: Block, other: Block) -> Array:
    """||x - y|| for all x of one block and all y of another, all unit vectors."""
    squared = 2.0 - 2.0 * cross_products(block, other)
    near = squared < _NEAR**2
    for row in np.flatnonzero(near.any(axis=1)):
        columns = np.flatnonzero(near[row])
        difference = dense(other[:, columns]) - dense(block[:, [row]])
        squared[row, columns] = np.einsum("fn,fn->n", difference, difference)
    result: Array = np.sqrt(squared)
    return result


# --- the bound --------------------------------------------------------------------------------


def _bound(V: DataMatrix, own: Aligned, n_clusters: int) -> Separation:
    rounding = cosine_rounding(V) / _NEAR  # of distances
    with V.own_threads():
        (sums,) = V.sweep(_sum_directions, own, V.norms_squared, n_clusters=n_clusters)
        C = sums / np.linalg.norm(sums, axis=0)
        (farthest,) = V.sweep(_largest_distances, own, V.norms_squared, reduce=np.maximum, C=C)
    radii = angles_of(farthest + rounding)
    apart = angles_of(_distances_of_blocks(C, C) - rounding) - radii - radii[:, None]
    between = apart.min(where=~np.eye(n_clusters, dtype=bool), initial=np.inf)
    return Separation(float(between), 2.0 * float(radii.max()), is_exact=False)


def _sum_directions(block: Block, own: Array, squared: Array, *, n_clusters: int) -> tuple[Array]:
    """The sum (F, K) of the samples of each cluster, scaled to norm 1."""
    members = np.flatnonzero(own >= 0)
    coefficients = np.zeros((own.size, n_clusters))
    coefficients[members, own[members]] = 1.0 / np.sqrt(squared[members])
    return (weighted_sums(exact(block), coefficients),)


def _largest_distances(block: Block, own: Array, squared: Array, *, C: Array) -> tuple[Array]:
    """The largest distance of a sample of each cluster, at norm 1, from its mean direction."""
    members = np.flatnonzero(own >= 0)
    products, _ = cone_products(block, own, C.T, sums=False)
    own, norms = own[members], np.sqrt(squared[members])
    apart = 2.0 - 2.0 * products[members] / norms
    near = apart < _NEAR**2
    difference = dense(block[:, members[near]]) / norms[near] - C[:, own[near]]
    apart[near] = np.einsum("fn,fn->n", difference, difference)
    farthest = np.zeros(C.shape[1])
    np.maximum.at(farthest, own, np.sqrt(apart))
    return (farthest,)

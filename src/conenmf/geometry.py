"""The geometry of clusters: smallest enclosing cones and the geometric assumption.

The smallest circular cone round a set of unit vectors x_m has the axis u / ||u||, where u solves
the quadratic program of Section III of the paper: minimise ||u||^2 / 2 subject to <x_m, u> >= 1.
(Its constraint u >= 0 holds by itself, because the solution is a nonnegative combination of
nonnegative vectors.) The dual is a nonnegative least-squares problem with the Gram matrix of the
x_m, and only a few samples have a positive multiplier. So constraints are generated: solve for a
few samples, look for samples that violate the solution, add them, repeat; one pass over V each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .blocks import cone_products
from .data import Array, Block, DataMatrix, check_labels, require_data_matrix
from .errors import ShapeError
from .nnls import nnls

__all__ = ["ConeGeometry", "cone_geometry", "enclosing_cones"]

_NEW_PER_ROUND = 32  # violating samples added to each cone at a time
_MAX_ROUNDS = 200


@dataclass(frozen=True)
class ConeGeometry:
    """How the cones of a clustering lie to each other.

    Attributes
    ----------
    axes : array (F, K)
        Unit axes u_k of the smallest enclosing cones.
    angles : array (K,)
        Their size angles alpha_k, in radians.
    between : array (K, K)
        Angles beta_ij between axes.
    margin : float
        min beta_ij - (3 a_1 + a_2), where a_1 >= a_2 are the two largest size angles: positive
        if and only if the geometric assumption (equation (2) of the paper) holds. Infinite for
        a single cone.
    closest : pair of int, or None
        The two cones with the smallest angle between them; they break the assumption if it
        does not hold. None for a single cone.
    separation : float
        min (beta_ij - alpha_i - alpha_j) - 2 a_1: if this is positive, samples of different
        cones are farther apart than samples of one cone, which is all that Lemma 1 needs. It
        is never smaller than the margin.
    ambiguous : array of int
        Samples that lie between cones: within the size angle of another cone's axis, or closer
        to another axis than to their own.
    """

    axes: Array
    angles: Array
    between: Array
    margin: float
    closest: tuple[int, int] | None
    separation: float
    ambiguous: Array

    @property
    def holds(self) -> bool:
        """Whether the geometric assumption holds."""
        return self.margin > 0


def cone_geometry(V: DataMatrix, labels: Array) -> ConeGeometry:
    """Describe the cones of a clustering.

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
        The cone of each sample, 0..K-1; -1 for samples that belong to none.

    Examples
    --------
    >>> from conenmf import cluster_cones, from_columns, make_cones
    >>> model = make_cones(80, 3, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> V = from_columns(model.V)
    >>> geometry = cone_geometry(V, cluster_cones(V, 3).labels)
    >>> geometry.holds, geometry.ambiguous.size, bool(geometry.angles.max() <= 0.1)
    (True, 0, True)
    """
    require_data_matrix(V, nonzero=True)
    labels = _checked_labels(V, labels)
    axes, angles = enclosing_cones(V, labels)
    K = angles.size
    between = np.arccos(np.clip(axes.T @ axes, -1.0, 1.0))
    np.fill_diagonal(between, 0.0)
    with V.own_threads():
        to_axes, _ = V.sweep(_angles_to_axes, V.norms_squared, axes=axes)
    margin = separation = float("inf")
    closest = None
    if K > 1:
        largest, second = np.sort(angles)[::-1][:2]
        apart = between + np.where(np.eye(K, dtype=bool), np.inf, 0.0)
        first, other = np.unravel_index(np.argmin(apart), apart.shape)
        closest = (int(first), int(other))
        margin = float(apart.min() - (3 * largest + second))
        separation = float((apart - angles - angles[:, None]).min() - 2 * largest)
    return ConeGeometry(
        axes, angles, between, margin, closest, separation, _ambiguous(to_axes, labels, angles)
    )


def enclosing_cones(V: DataMatrix, labels: Array, *, tol: float = 1e-10) -> tuple[Array, Array]:
    """Find the smallest circular cone round each cluster (Section III of the paper).

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
        The cone of each sample, 0..K-1; -1 for samples that belong to none.
    tol : float
        Stop when no sample violates <x, u> >= 1 by more than this.

    Returns
    -------
    axes : array (F, K), unit columns
    angles : array (K,)
        The largest angle between a sample of the cluster and the axis, so that the cone holds
        every sample whatever `tol` is.
    """
    require_data_matrix(V, nonzero=True)
    labels = _checked_labels(V, labels)
    K = int(labels.max()) + 1
    norms = np.sqrt(V.norms_squared)
    with V.own_threads():
        first = [int(np.argmax(np.where(labels == k, norms, -1.0))) for k in range(K)]
        active = [np.array([n]) for n in first]
        supports = [_unit_samples(V, chosen, norms) for chosen in active]
        u = np.stack([support[:, 0] for support in supports])
        for _ in range(_MAX_ROUNDS):
            heights, _ = V.sweep(_heights, labels, norms, Q=u)  # <x_n, u> for each sample
            done = True
            for k in range(K):
                low = np.flatnonzero((labels == k) & (heights < 1.0 - tol))
                low = np.setdiff1d(low, active[k])
                if low.size == 0:
                    continue
                done = False
                worst = low[np.argsort(heights[low], kind="stable")[:_NEW_PER_ROUND]]
                active[k] = np.concatenate([active[k], worst])
                supports[k] = np.hstack([supports[k], _unit_samples(V, worst, norms)])
                gram = supports[k].T @ supports[k]
                multipliers = nnls(gram, np.ones((1, active[k].size)))[0]
                u[k] = supports[k] @ multipliers
                kept = multipliers > 0  # ||u|| grows every round, so what is dropped cannot cycle
                active[k], supports[k] = active[k][kept], supports[k][:, kept]
            if done:
                break
        else:
            heights, _ = V.sweep(_heights, labels, norms, Q=u)
    cosines = np.full(K, 1.0)
    size = np.linalg.norm(u, axis=1)
    mine = labels >= 0
    np.minimum.at(cosines, labels[mine], heights[mine] / size[labels[mine]])
    return (u / size[:, None]).T, np.arccos(np.clip(cosines, -1.0, 1.0))


def _checked_labels(V: DataMatrix, labels: Array) -> Array:
    labels = check_labels(V, labels, V.shape[1])
    labels = np.where(V.norms_squared > 0, labels, -1)
    missing = np.setdiff1d(np.arange(labels.max() + 1), labels)
    if labels.max() < 0 or missing.size:
        raise ShapeError(
            f"cluster {int(missing[0]) if missing.size else 0} has no nonzero sample: "
            "labels must use every number from 0 to the largest"
        )
    return labels


def _unit_samples(V: DataMatrix, indices: Array, norms: Array) -> Array:
    unit: Array = V.columns(indices).astype(np.float64, copy=False) @ np.diag(1 / norms[indices])
    return unit


def _heights(block: Block, labels: Array, norms: Array, *, Q: Array) -> tuple[Array, None]:
    products, _ = cone_products(block, labels, Q, sums=False)
    return products / np.where(norms > 0, norms, 1.0), None


def _angles_to_axes(block: Block, squared: Array, *, axes: Array) -> tuple[Array, None]:
    norms = np.sqrt(np.where(squared > 0, squared, 1.0))
    cosines = (block.astype(np.float64, copy=False).T @ axes) / norms[:, None]
    return np.arccos(np.clip(cosines, -1.0, 1.0)), None


def _ambiguous(to_axes: Array, labels: Array, angles: Array) -> Array:
    mine = np.flatnonzero(labels >= 0)
    own = to_axes[mine, labels[mine]][:, None]
    other = to_axes[mine] + np.where(np.arange(angles.size) == labels[mine, None], np.inf, 0.0)
    inside = (other <= angles) | (other < own)
    return mine[inside.any(axis=1)]

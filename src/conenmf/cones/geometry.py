"""The geometry of clusters: smallest enclosing cones, and what they say of the assumption.

The smallest circular cone round a set of unit vectors x_m has the axis u / ||u||, where u solves
the quadratic program of Section III of the paper: minimise ||u||^2 / 2 subject to <x_m, u> >= 1.
(Its constraint u >= 0 holds by itself, because the solution is a nonnegative combination of
nonnegative vectors.) It is the same as the smallest ball round the x_m: the distances from t u to
vectors within alpha of a unit vector u are at most (1 - 2 t cos alpha + t^2)^(1/2), which is
smallest, and sin alpha, for t = cos alpha. A ball may be moved and scaled, so that this form loses
no digits where alpha is small. Only few samples touch the ball. So constraints are generated: solve
for a few samples, look for samples outside the ball, add them, repeat; one pass over V each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise as neighbours
from typing import TypeAlias

import numpy as np

from ..arguments import number
from ..data.blocks import Array, Block, dense, exact, norms
from ..data.matrix import Aligned, DataMatrix
from ..data.steps import sample_indices
from ..data.validate import check_labels, require_data_matrix
from ..errors import DataError
from ..linalg.nnls import nnls
from .angles import angle_at, angles_between, squared_distances
from .separation import Separation, pairwise_separation

__all__ = ["ConeGeometry", "cone_geometry", "enclosing_cones"]

_MAX_NEW_SAMPLES = 32  # violating samples added to each cone at a time
_MAX_PASSES = 200
_MIN_RADIUS_SQ = 1e-28  # rounding of a squared distance
_PENALTY = 100.0  # on weights whose sum is not 1, relative to squared distances
_MAX_MOVES, _MIN_MOVE_SQ = 60, 1e-26  # of a centre; the square relative to that of the radius


@dataclass(frozen=True)
class ConeGeometry:
    """The cones of a clustering, and the angles between them.

    Attributes
    ----------
    axes : array (F, K)
        Unit axes u_k of the smallest enclosing cones.
    angles : array (K,)
        Their size angles alpha_k, in radians.
    between : array (K, K)
        Angles beta_ij between axes.
    margin : float
        min beta_ij - (3 a_1 + a_2), where a_1 >= a_2 are the two largest size angles. If it is
        positive, the geometric assumption (equation (2) of the paper) holds. If it is not, other
        cones round the same clusters may still satisfy the assumption, because the smallest cones
        are not always the best: turning an axis by eta widens its cone by about eta^2 only, and
        may take it farther from another one by eta. Infinite for a single cone.
    closest : pair of int, or None
        The two cones with the smallest angle between them. None for a single cone.
    separation : float
        min (beta_ij - alpha_i - alpha_j) - 2 a_1. It is never smaller than the margin, and never
        larger than the pairwise separation.
    pairwise : Separation
        The smallest angle between samples of different clusters, and the largest between samples
        of one. If the first is larger, Algorithm 1 finds these clusters from any first centre: the
        proof of Lemma 1 needs no more. The assumption implies it, so if it is not, no cones round
        these clusters satisfy the assumption.
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
    pairwise: Separation
    ambiguous: Array

    @property
    def required_angle(self) -> float:
        """The angle 3 a_1 + a_2 that axes have to be farther apart than; 0 for a single cone."""
        largest = np.sort(self.angles)[::-1][:2]
        return float(3 * largest[0] + largest[1]) if largest.size > 1 else 0.0

    @property
    def holds(self) -> bool:
        """Whether the smallest cones satisfy the geometric assumption; if not, see `verdict`."""
        return self.margin > 0

    @property
    def verdict(self) -> str:
        """What is known of the geometric assumption: it "holds", "does not hold" or "may hold".

        It holds if the margin is positive. It does not, for any cones round these clusters, if
        samples of different clusters are no farther apart than samples of one.
        """
        if self.holds:
            return "holds"
        is_broken = self.pairwise.is_exact and self.pairwise.value <= 0
        return "does not hold" if is_broken else "may hold"


def cone_geometry(V: DataMatrix, labels: Aligned) -> ConeGeometry:
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
    >>> geometry.verdict, geometry.ambiguous.size, bool(geometry.angles.max() <= 0.1)
    ('holds', 0, True)
    """
    require_data_matrix(V, nonzero=True)
    axes, angles = enclosing_cones(V, labels)
    labels, K = _checked_labels(V, labels)
    between = angles_between(axes, axes)
    np.fill_diagonal(between, 0.0)
    with V.own_threads():
        (ambiguous,) = V.sweep(
            _ambiguous,
            V.map(sample_indices)[0],
            labels,
            V.norms_squared,
            reduce=_concatenate,
            axes=axes,
            angles=angles,
        )
    margin = separation = float("inf")
    closest, pairwise = None, pairwise_separation(V, labels)
    if K > 1:
        largest, second = np.sort(angles)[::-1][:2]
        apart = between + np.where(np.eye(K, dtype=bool), np.inf, 0.0)
        first, other = np.unravel_index(np.argmin(apart), apart.shape)
        closest = (int(first), int(other))
        margin = float(apart.min() - (3 * largest + second))
        gap = float((apart - angles - angles[:, None]).min())
        separation = gap - float(2 * largest)
        if not pairwise.is_exact:  # the smallest cones bound the same two angles
            tighter = max(pairwise.between, gap), min(pairwise.within, float(2 * largest))
            pairwise = Separation(*tighter, is_exact=False)
    return ConeGeometry(axes, angles, between, margin, closest, separation, pairwise, ambiguous)


def enclosing_cones(V: DataMatrix, labels: Aligned, *, tol: float = 1e-10) -> tuple[Array, Array]:
    """Find the smallest circular cone round each cluster (Section III of the paper).

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
        The cone of each sample, 0..K-1; -1 for samples that belong to none.
    tol : float
        Stop when no sample is outside its ball by more than this share of the squared radius.

    Returns
    -------
    axes : array (F, K), unit columns
    angles : array (K,)
        The largest angle between a sample of the cluster and the axis, so that the cone holds
        every sample for any `tol`. Small angles are accurate to about 1e-15.
    """
    require_data_matrix(V, nonzero=True)
    tol = number("tol", tol, at_least=0)
    labels, K = _checked_labels(V, labels)
    index, _ = V.map(sample_indices)
    with V.own_threads():
        (longest,) = V.map(_longest_of_each, index, labels, V.norms_squared, reduce=_lowest, K=K)
        active = [indices[:1] for _, indices in longest]
        supports = [_unit_samples(V, indices) for indices in active]
        centres, radii = np.stack([support[:, 0] for support in supports]), np.zeros(K)
        for _ in range(_MAX_PASSES):
            (far,) = V.sweep(_farthest, index, labels, V.norms_squared, reduce=_lowest, P=centres)
            is_done = True
            for k, (distances, indices) in enumerate(far):
                outside = -distances > (1.0 + tol) * radii[k] + _MIN_RADIUS_SQ
                new = indices[outside & ~np.isin(indices, active[k])]
                if not new.size:
                    continue
                is_done = False
                active[k] = np.concatenate([active[k], new])
                supports[k] = np.hstack([supports[k], _unit_samples(V, new)])
                centres[k], radii[k], shares = smallest_ball(supports[k], centres[k])
                positive = shares > 0  # the ball grows every pass: dropping others cannot cycle
                active[k], supports[k] = active[k][positive], supports[k][:, positive]
            if is_done:
                break
        else:
            (far,) = V.sweep(_farthest, index, labels, V.norms_squared, reduce=_lowest, P=centres)
    norm = np.linalg.norm(centres, axis=1)
    farthest = -np.array([distances[0] for distances, _ in far])
    # ||x - t u||^2 = (1 - t)^2 + t ||x - u||^2 for unit vectors x and u
    return (centres / norm[:, None]).T, angle_at((farthest - (1.0 - norm) ** 2) / norm)


def smallest_ball(points: Array, centre: Array) -> tuple[Array, float, Array]:
    """Find the smallest ball round the columns of `points` (F, m).

    Its centre is the mean of the points p_m with weights y >= 0 of sum 1 that maximise
    sum y_m ||p_m||^2 - ||sum y_m p_m||^2. The condition on the sum becomes a penalty, so that y is
    the solution of a nonnegative least-squares problem; the penalty moves the centre towards the
    origin, so the origin is moved to the centre, until it stays. In differences to the centre small
    balls have as many digits as large ones.

    Returns
    -------
    centre : array (F,)
    radius_squared : float
    y : array (m,)
    """
    shares = np.full((1, points.shape[1]), 1.0 / points.shape[1])
    for _ in range(_MAX_MOVES):
        differences, squared = _differences(points, centre)
        size = squared.max()
        if not size > 0:
            break
        gram = differences.T @ differences / size + _PENALTY
        shares = nnls(gram, (squared / size / 2 + _PENALTY)[None], shares)
        shares /= shares.sum()
        move = differences @ shares[0]
        centre = centre + move
        if move @ move <= _MIN_MOVE_SQ * size:
            break
    return centre, float(_differences(points, centre)[1].max()), shares[0]


def _differences(points: Array, centre: Array) -> tuple[Array, Array]:
    """Of each point (column) to the centre, and the squares of their norms."""
    differences = points - centre[:, None]
    return differences, np.einsum("fm,fm->m", differences, differences)


def _checked_labels(V: DataMatrix, labels: Aligned) -> tuple[Aligned, int]:
    """Labels that are -1 for zero samples, and how many clusters there are."""
    integers, counts = V.map(
        _count,
        check_labels(V, labels, V.shape[1]),
        V.norms_squared,
        reduce=_add_counts,
    )
    empty = np.flatnonzero(counts == 0)
    if counts.size == 0 or empty.size:
        raise DataError(
            f"cluster {int(empty[0]) if empty.size else 0} has no nonzero sample: "
            "labels must use every number from 0 to the largest"
        )
    return integers, counts.size


def _count(index: range, labels: Array, squared: Array) -> tuple[Array, Array]:
    labels = np.where(squared > 0, labels, -1)
    return labels, np.bincount(labels[labels >= 0])


def _add_counts(a: Array, b: Array) -> Array:
    total = np.zeros(max(a.size, b.size), dtype=np.intp)
    total[: a.size] += a
    total[: b.size] += b
    return total


_Extremes: TypeAlias = list[tuple[Array, Array]]
"""For every cone a few values and the indices of their samples, lowest first."""


def _longest_of_each(
    block_index: range, index: Array, labels: Array, squared: Array, *, K: int
) -> tuple[_Extremes]:
    return (_lowest_of_each(-squared, index, labels, K),)


def _farthest(
    block: Block, index: Array, labels: Array, squared: Array, *, P: Array
) -> tuple[_Extremes]:
    """Minus the squared distances of directions to the points of their cones."""
    distances = squared_distances(block, labels, squared, P)
    return (_lowest_of_each(-distances, index, labels, P.shape[0]),)


def _lowest_of_each(values: Array, index: Array, labels: Array, K: int) -> _Extremes:
    order = np.lexsort((values, labels))
    borders = np.searchsorted(labels[order], np.arange(K + 1))
    parts = [order[start:stop][:_MAX_NEW_SAMPLES] for start, stop in neighbours(borders)]
    return [(values[part], index[part]) for part in parts]


def _lowest(a: _Extremes, b: _Extremes) -> _Extremes:
    extremes = []
    for (values_a, indices_a), (values_b, indices_b) in zip(a, b, strict=True):
        values, indices = np.append(values_a, values_b), np.append(indices_a, indices_b)
        order = np.argsort(values, kind="stable")[:_MAX_NEW_SAMPLES]
        extremes.append((values[order], indices[order]))
    return extremes


def _unit_samples(V: DataMatrix, indices: Array) -> Array:
    columns = dense(V.columns(indices))
    unit: Array = columns / np.linalg.norm(columns, axis=0)
    return unit


def _ambiguous(
    block: Block, index: Array, labels: Array, squared: Array, *, axes: Array, angles: Array
) -> tuple[Array]:
    """Samples of a block that lie between cones."""
    cosines = (exact(block).T @ axes) / norms(squared)[:, None]
    members = np.flatnonzero(labels >= 0)
    to_axes = np.arccos(np.clip(cosines[members], -1.0, 1.0))
    own = to_axes[np.arange(members.size), labels[members]][:, None]
    other = to_axes + np.where(np.arange(angles.size) == labels[members, None], np.inf, 0.0)
    inside = (other <= angles) | (other < own)
    return (index[members[inside.any(axis=1)]],)


def _concatenate(a: Array, b: Array) -> Array:
    return np.concatenate([a, b])

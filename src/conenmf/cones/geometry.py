"""The geometry of cones: angles, distances between clusters, and smallest enclosing cones.

*Small angles.* The cosine of an angle t below 1e-8 rad is rounded to 1, because cos t = 1 - t^2 / 2
+ ... The distance of two unit vectors, ||x - y|| = 2 sin(t / 2), keeps its digits if the difference
x - y is formed before its norm. This costs as much as reading the vectors again, so it is done only
if the distance is small and its square, 2 - 2 <x, y>, would lose digits.

*The pairwise separation* S_p is the smallest angle between samples of different clusters minus the
largest angle between samples of one cluster. If it is positive, Algorithm 1 finds the clusters from
any first centre; the proof of Lemma 1 of the paper uses nothing else. The geometric assumption
implies that S_p is positive: bounds on both angles follow from the triangle inequality on the
sphere.

*The smallest circular cone* round unit vectors x_m has the axis u / ||u||, where u solves the
quadratic program of Section III of the paper: minimise ||u||^2 / 2 subject to <x_m, u> >= 1. (The
paper's constraint u >= 0 always holds, because u is a nonnegative combination of nonnegative
vectors.) The problem is equivalent to the smallest ball round the x_m. The distance from t u to a
vector within the angle alpha of a unit vector u is at most (1 - 2 t cos alpha + t^2)^(1/2); its
minimum over t is sin alpha, at t = cos alpha. A ball can be moved and scaled, so no digits are lost
if alpha is small. Only few samples touch the ball, so the solver adds constraints step by step: it
solves the problem for a few samples, looks for samples outside the ball, adds them and repeats.
Each step takes one pass over V.

*The leading plane.* The best rank-two approximation of V projects the samples to a plane. The
nonnegative vectors of this plane form a cone between two rays. If all projected samples lie in this
cone, the rank-2 part is nonnegative. The two extreme samples then span a narrower cone that
contains all others. With these two as columns of W, the factors of the rank-2 part are exact, and
no factors with two components have a smaller error (Eckart and Young). Samples outside the cone are
moved to its nearest ray, which gives the best factors with components in the plane. Proofs: "Where
the bound is attained" in the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise as neighbours
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike

from ..data.blocks import EPS, Block, cone_products, cross_products, dense, norms, slices
from ..data.matrix import Aligned, DataMatrix, Factors, PerSample
from ..data.validate import check_labels
from ..data.views import unit_samples
from ..errors import DataError
from ..io.open import as_data
from ..linalg.nnls import nnls
from ..linalg.svd import KnownSpectrum, Spectrum
from ..types import Array, DType, Interval, Pair

RIGHT_ANGLE = np.pi / 2

_DOUBTFUL_SQ = 1e-4  # for smaller squared distances the difference is formed
_NARROW_SQ = 1e-8  # ... even if this is expensive
_SAMPLES_AT_ONCE = 256  # converted to dense at a time

_MAX_EXACT_SAMPLES = 2000  # up to this number all pairs are compared
_GATHERED_BYTES = 64 << 20

_MAX_NEW_SAMPLES = 32  # added to each cone at a time
_MAX_PASSES = 200
_BALL_TOL = 1e-10  # relative excess of the squared distance at which a sample is outside the ball
_MIN_RADIUS_SQ = 1e-28  # rounding error of a squared distance
_PENALTY = 100.0  # on the sum of the weights, which should be 1; relative to squared distances
_MAX_MOVES = 60  # of a centre
_MIN_MOVE_SQ = 1e-26  # squared, relative to the squared radius

_ZERO_NORM = 1e-12  # relative to the largest norm
_ZERO_ENTRY = 1e-15  # of a unit vector
_LOST_SHARE = 1e-12  # of ||V||^2 that rounding may put outside the cone
_SAME_ANGLE = 1e-9  # two rays at a smaller angle count as one


# --- angles -----------------------------------------------------------------------------------


def cosine_rounding(V: DataMatrix) -> float:
    """Return the largest difference of two cosines that are treated as equal."""
    return float(8.0 * EPS * np.sqrt(V.n_features))


def squared_distances(block: Block, labels: Array, squared: Array, points: Array) -> Array:
    """Return ||v_n / ||v_n|| - p_label(n)||^2 for every sample of a block.

    Parameters
    ----------
    block : block (F, n)
    labels : array (n,)
        -1 counts as 0. The result for a zero sample is meaningless.
    squared : array (n,)
        ||v_n||^2.
    points : array (K, F)
        Unit vectors, or any points p_k.
    """
    lengths = norms(squared)
    cones = np.maximum(labels, 0)
    products, _ = cone_products(block, labels, points, sums=False)
    of_points = np.vecdot(points, points)[cones]
    distances = 1.0 + of_points - 2.0 * products / lengths
    doubtful = np.flatnonzero(distances < _DOUBTFUL_SQ)
    for part in np.array_split(doubtful, 1 + doubtful.size // _SAMPLES_AT_ONCE):
        directions = dense(block[:, part]).T / lengths[part, None]
        difference = np.ascontiguousarray(directions)
        difference -= points[cones[part]]
        distances[part] = np.vecdot(difference, difference)
    return distances


def largest_angle(V: DataMatrix, labels: Aligned, Z: Array, smallest_cosine: float) -> float:
    """Return the largest angle between a sample and its column of Z (F, K), unit vectors.

    The angle follows from the smallest cosine; if the angle is small, a pass over V computes it.
    Samples labelled -1 are ignored.
    """
    distance_sq = 2.0 - 2.0 * smallest_cosine
    if distance_sq < _NARROW_SQ:
        points = np.ascontiguousarray(Z.T)
        (distance_sq,) = V.sweep(
            _farthest_squared, labels, V.norms_squared, reduce=max, points=points
        )
    return float(angles_of(np.sqrt(distance_sq)))


def _farthest_squared(
    block: Block, labels: Array, squared: Array, *, points: Array
) -> tuple[float]:
    distances = squared_distances(block, labels, squared, points)
    return (float(distances.max(where=labels >= 0, initial=0.0)),)


def angles_between(A: Array, B: Array) -> Array:
    """Return the angles (m, n) between unit vectors, the columns of A (F, m) and of B (F, n).

    >>> A = np.array([[1.0], [0.0]])
    >>> B = np.array([[1.0, 0.0], [1e-12, 1.0]])
    >>> [f"{angle:.6g}" for angle in angles_between(A, B)[0]]
    ['1e-12', '1.5708']
    """
    return angles_of(_distances_of_blocks(A, B, _DOUBTFUL_SQ))


def angles_of(distances: ArrayLike) -> Array:
    """Return the angles between unit vectors at these distances.

    >>> angles_of([0.0, np.sqrt(2), 2.0])  # 0, a right angle, opposite
    array([0.        , 1.57079633, 3.14159265])
    """
    sines = np.clip(np.asarray(distances) / 2.0, 0.0, 1.0)
    return 2.0 * np.arcsin(sines)


def sine_at(distance_squared: ArrayLike) -> Array:
    """Return the sine of the angle between two unit vectors, given the square of their distance."""
    q = np.clip(distance_squared, 0.0, 4.0)
    return np.sqrt(q * (1.0 - q / 4))


def unit_samples_at(V: DataMatrix, indices: Array) -> Array:
    """Return some samples (F, n), none of them zero, scaled to norm 1."""
    columns = dense(V.columns(indices))
    return columns / norm(columns, axis=0)


# --- how far clusters are apart ---------------------------------------------------------------


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
        Whether both angles are exact. If not, `between` is a lower bound and `within` an upper
        bound, so `value` is a lower bound.
    """

    between: float
    within: float
    is_exact: bool

    @property
    def value(self) -> float:
        """`between` minus `within`: positive if the clusters are apart."""
        return self.between - self.within


def pairwise_separation(V: DataMatrix, labels: Aligned, *, cones: Pair | None = None) -> Separation:
    """Compute the pairwise separation of clusters, or a lower bound on it.

    The result is exact for up to 2000 nonzero samples. For more samples it is a lower bound from
    the smallest cones round the clusters, with axes u_i and size angles alpha_i: samples of one
    cluster are at most 2 alpha_i apart, and samples of two clusters at least angle(u_i, u_j) -
    alpha_i - alpha_j. Rounding errors cannot raise the bound above the true value.

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
        The cluster of each sample, 0..K-1; -1 for samples without a cluster. Zero samples have
        none.
    cones : axes (F, K) and angles (K,), optional
        The smallest cones round the clusters, if already computed.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> angles = np.array([0.0, 0.1, 0.6, 0.9])
    >>> V = from_columns(np.stack([np.cos(angles), np.sin(angles)]))
    >>> separation = pairwise_separation(V, np.array([0, 0, 1, 1]))
    >>> round(separation.between, 12), round(separation.within, 12), round(separation.value, 12)
    (0.5, 0.3, 0.2)
    """
    labels, K = _count_clusters(V, labels)
    if V.nonzero > _MAX_EXACT_SAMPLES:
        return _separation_of_cones(V, *(cones or enclosing_cones(V, labels)))
    ((indices, own),) = V.map(_members, labels, reduce=partial(np.append, axis=1))
    apart = distances(V, indices)
    same = own[:, None] == own
    between = angles_of(apart.min(where=~same, initial=2.0)) if K > 1 else np.inf
    within = angles_of(apart.max(where=same, initial=0.0))
    return Separation(float(between), float(within), is_exact=True)


def _members(index: range, own: Array) -> tuple[Array]:
    """Return the samples (2, n) that belong to a cluster: their indices and clusters."""
    members = np.flatnonzero(own >= 0)
    return (np.stack([members + index.start, own[members]]),)


def distances(V: DataMatrix, indices: Array) -> Array:
    """Return the distances (n, n) between some samples, none of them zero, scaled to norm 1."""
    X = unit_samples(V)
    size = np.clip(_GATHERED_BYTES // (8 * V.n_features), 1, V.max_gather)
    result = np.empty((indices.size, indices.size))
    parts = slices(indices.size, size)
    for i, rows in enumerate(parts):
        block = X.columns(indices[rows])
        result[rows, rows] = _distances_of_blocks(block, block, _NARROW_SQ)
        for columns in parts[:i]:
            apart = _distances_of_blocks(block, X.columns(indices[columns]), _NARROW_SQ)
            result[rows, columns] = apart
            result[columns, rows] = apart.T
    np.fill_diagonal(result, 0.0)
    return result


def _distances_of_blocks(block: Block, other: Block, narrow_sq: float) -> Array:
    """Return ||x - y|| for all unit vectors x of one block and y of another."""
    squared = 2.0 - 2.0 * cross_products(block, other)
    if block is other:
        np.fill_diagonal(squared, 4.0)  # no differences of a sample with itself
    near = squared < narrow_sq
    for row in np.flatnonzero(near.any(axis=1)):
        columns = np.flatnonzero(near[row])
        x = dense(block[:, [row]])
        difference = dense(other[:, columns]) - x
        squared[row, columns] = np.einsum("fn,fn->n", difference, difference)
    return np.sqrt(squared)


def _separation_of_cones(V: DataMatrix, axes: Array, angles: Array) -> Separation:
    rounding = cosine_rounding(V) / np.sqrt(_NARROW_SQ)  # of an angle, in radians
    angles = angles + rounding
    apart = angles_between(axes, axes) - rounding - angles - angles[:, None]
    np.fill_diagonal(apart, np.inf)
    return Separation(float(apart.min()), 2.0 * float(angles.max()), is_exact=False)


# --- the smallest cones round clusters --------------------------------------------------------


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
            min beta_ij - (3 a_1 + a_2), where a_1 >= a_2 are the two largest size angles; infinite
            for a single cone. If it is positive, the geometric assumption (equation (2) of the
            paper) holds. If it is not, other cones round the same clusters may still satisfy the
            assumption: turning an axis by eta widens its cone by only about eta^2, and may take it
            farther from another axis by eta.
    closest : pair of int, or None
        The two cones with the smallest angle between them. None for a single cone.
    separation : float
        min (beta_ij - alpha_i - alpha_j) - 2 a_1. It is never smaller than the margin, and never
        larger than the pairwise separation.
    pairwise : Separation
        The smallest angle between samples of different clusters, and the largest angle between
        samples of one cluster. If the first is larger, Algorithm 1 finds these clusters from any
        first centre; the proof of Lemma 1 needs nothing else. If it is not larger, no cones round
        these clusters satisfy the assumption.
    """

    axes: Array
    angles: Array
    between: Array
    margin: float
    closest: tuple[int, int] | None
    separation: float
    pairwise: Separation

    @property
    def required_angle(self) -> float:
        """The angle 3 a_1 + a_2 that angles between axes must exceed; 0 for a single cone."""
        if self.angles.size == 1:
            return 0.0
        *_, second, largest = np.sort(self.angles)
        return float(3 * largest + second)

    @property
    def holds(self) -> bool:
        """Whether the smallest cones satisfy the geometric assumption; if not, see `verdict`."""
        return self.margin > 0

    @property
    def verdict(self) -> str:
        """Whether the geometric assumption "holds", "does not hold" or "may hold".

        The assumption holds if the margin is positive. It does not hold, for any cones round these
        clusters, if the pairwise separation is not positive.
        """
        if self.holds:
            return "holds"
        is_broken = self.pairwise.is_exact and self.pairwise.value <= 0
        return "does not hold" if is_broken else "may hold"


def cone_geometry(V: object, labels: Aligned) -> ConeGeometry:
    """Describe the cones of a clustering.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    labels : array (N,)
        The cone of each sample, 0..K-1; -1 for samples without a cone.

    Examples
    --------
    >>> from conenmf import cluster_cones, from_columns, make_cones
    >>> model = make_cones(80, 3, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> V = from_columns(model.V)
    >>> geometry = cone_geometry(V, cluster_cones(V, 3).labels)
    >>> geometry.verdict, bool(geometry.angles.max() <= 0.1)
    ('holds', True)
    """
    V = as_data(V, nonzero=True)
    axes, angles = enclosing_cones(V, labels)
    between = angles_between(axes, axes)
    np.fill_diagonal(between, 0.0)
    pairwise = pairwise_separation(V, labels, cones=(axes, angles))
    K = angles.size
    if K == 1:
        return ConeGeometry(axes, angles, between, np.inf, None, np.inf, pairwise)
    *_, second, largest = np.sort(angles)
    apart = between.copy()
    np.fill_diagonal(apart, np.inf)
    closest = divmod(int(apart.argmin()), K)
    margin = float(apart.min() - (3 * largest + second))
    between_samples = apart - angles - angles[:, None]
    separation = float(between_samples.min() - 2 * largest)
    return ConeGeometry(axes, angles, between, margin, closest, separation, pairwise)


def enclosing_cones(V: DataMatrix, labels: Aligned) -> Pair:
    """Find the smallest circular cone round each cluster (Section III of the paper).

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
        The cone of each sample, 0..K-1; -1 for samples without a cone.

    Returns
    -------
    axes : array (F, K), unit columns
    angles : array (K,)
        The largest angle between the axis and a sample of the cluster. Small angles are accurate to
        about 1e-15.
    """
    labels, K = _count_clusters(V, labels)
    aligned = V.indices(), labels, V.norms_squared
    with V.own_threads():
        (longest,) = V.map(_longest_of_each, *aligned, reduce=_lowest, K=K)
        balls = [_Ball.of(V, indices[:1]) for _, indices in longest]
        for n_passes in range(_MAX_PASSES + 1):
            centres = np.stack([ball.centre for ball in balls])
            (far,) = V.sweep(_farthest, *aligned, reduce=_lowest, P=centres)
            if n_passes == _MAX_PASSES:
                break
            grown = [ball.grow(V, *samples) for ball, samples in zip(balls, far, strict=True)]
            if grown == balls:
                break
            balls = grown
    lengths = norm(centres, axis=1)
    farthest = -np.array([distances[0] for distances, _ in far])
    # ||x - t u||^2 = (1 - t)^2 + t ||x - u||^2 for unit vectors x and u
    squared = np.maximum(farthest - (1.0 - lengths) ** 2, 0.0) / lengths
    return (centres / lengths[:, None]).T, angles_of(np.sqrt(squared))


@dataclass(frozen=True, eq=False)
class _Ball:
    """The smallest ball round some samples of a cone, those that touch it.

    Attributes
    ----------
    samples : array (m,)
        The indices of the samples.
    points : array (F, m)
        The samples as unit vectors.
    centre : array (F,)
    radius_squared : float
    """

    samples: Array
    points: Array
    centre: Array
    radius_squared: float

    @classmethod
    def of(cls, V: DataMatrix, sample: Array) -> _Ball:
        """Return the ball of radius 0 round one sample."""
        points = unit_samples_at(V, sample)
        return cls(sample, points, points[:, 0], 0.0)

    def grow(self, V: DataMatrix, distances: Array, indices: Array) -> _Ball:
        """Add samples outside the ball, given minus squared distances; itself if there are none."""
        outside = -distances > (1.0 + _BALL_TOL) * self.radius_squared + _MIN_RADIUS_SQ
        new = indices[outside & ~np.isin(indices, self.samples)]
        if not new.size:
            return self
        samples = np.concatenate([self.samples, new])
        points = np.hstack([self.points, unit_samples_at(V, new)])
        centre, radius_squared, shares = smallest_ball(points, self.centre)
        touching = shares > 0  # the ball grows every pass: dropping others cannot cycle
        return _Ball(samples[touching], points[:, touching], centre, radius_squared)


def smallest_ball(points: Array, centre: Array) -> tuple[Array, float, Array]:
    """Find the smallest ball round the columns of `points` (F, m).

    The centre is the mean of the points p_m with weights y >= 0 of sum 1 that maximise sum y_m
    ||p_m||^2 - ||sum y_m p_m||^2. A penalty replaces the constraint on the sum, so y solves a
    nonnegative least-squares problem. The penalty shifts the centre towards the origin; so the
    origin is moved to the centre until the centre stays in place. Differences to the centre are
    accurate for small balls too.

    Returns
    -------
    centre : array (F,)
    radius_squared : float
    y : array (m,)
    """
    m = points.shape[1]
    shares = np.full((1, m), 1.0 / m)
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


def _differences(points: Array, centre: Array) -> Pair:
    """Return the difference of each point (column) to the centre, and its squared norm."""
    differences = points - centre[:, None]
    return differences, np.einsum("fm,fm->m", differences, differences)


def _count_clusters(V: DataMatrix, labels: Aligned) -> tuple[Aligned, int]:
    """Return labels with -1 for zero samples, and the number of clusters."""
    labels = check_labels(V, labels, V.n_samples)
    labels, clusters = V.map(_clusters, labels, V.norms_squared, reduce=np.union1d)
    K = clusters.size
    if K == 0 or clusters[-1] >= K:
        empty = np.setdiff1d(np.arange(K + 1), clusters)[0]
        raise DataError(
            f"cluster {empty} has no nonzero sample: "
            "labels must use every number from 0 to the largest"
        )
    return labels, K


def _clusters(index: range, labels: Array, squared: Array) -> Pair:
    labels = np.where(squared > 0, labels, -1)
    return labels, np.unique(labels[labels >= 0])


def _longest_of_each(
    block_index: range, index: Array, labels: Array, squared: Array, *, K: int
) -> tuple[list[Pair]]:
    return (_lowest_of_each(-squared, index, labels, K),)


def _farthest(
    block: Block, index: Array, labels: Array, squared: Array, *, P: Array
) -> tuple[list[Pair]]:
    """Return minus the squared distances of directions to the points of their cones."""
    distances = squared_distances(block, labels, squared, P)
    return (_lowest_of_each(-distances, index, labels, P.shape[0]),)


def _lowest_of_each(values: Array, index: Array, labels: Array, K: int) -> list[Pair]:
    """Return for each cone the lowest values, lowest first, and the indices of their samples."""
    order = np.lexsort((values, labels))
    borders = np.searchsorted(labels[order], np.arange(K + 1))
    extremes = []
    for start, stop in neighbours(borders):
        part = order[start:stop][:_MAX_NEW_SAMPLES]
        extremes.append((values[part], index[part]))
    return extremes


def _lowest(a: list[Pair], b: list[Pair]) -> list[Pair]:
    extremes = []
    for (values_a, indices_a), (values_b, indices_b) in zip(a, b, strict=True):
        values = np.append(values_a, values_b)
        indices = np.append(indices_a, indices_b)
        order = np.argsort(values, kind="stable")[:_MAX_NEW_SAMPLES]
        extremes.append((values[order], indices[order]))
    return extremes


# --- the leading plane ------------------------------------------------------------------------


class Plane(NamedTuple):
    """The plane of the two leading left singular vectors, and the angles of samples in it.

    Directions in the plane are given by their angles to the first vector, in radians.

    Attributes
    ----------
    vectors : array (F, 2)
        Orthonormal; the first is the direction of the projected vector of ones.
    points : array (N, 2)
        The coordinates of the projected samples.
    energy : float
        The part of ||V||^2 that the projection to the plane keeps.
    samples : (float, float)
        The smallest and the largest angle of a projected sample.
    cone : (float, float)
        Exactly the vectors of the plane between these angles are nonnegative.
    lost : float
        How much larger the squared error of the best nonnegative factors with components in the
        plane is than the squared error of the projection, as a share of ||V||^2. It is 0 if the
        rank-2 part is nonnegative.
    """

    vectors: Array
    points: Aligned
    energy: float
    samples: Interval
    cone: Interval
    lost: float

    @property
    def is_nonnegative(self) -> bool:
        """Whether the projected samples are nonnegative up to rounding."""
        return self.lost <= _LOST_SHARE

    @property
    def rays(self) -> Interval:
        """The angles of the two components: the extreme samples, or the rays of the cone."""
        low, high = np.clip(self.samples, *self.cone)
        return float(low), float(high)


def leading_plane(V: DataMatrix, *, spectrum: KnownSpectrum = None) -> Plane:
    """Return the plane of the two leading singular vectors of V; one pass after computing these.

    Parameters
    ----------
    V : DataMatrix (F, N)
        At least two features and two samples.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> leading_plane(from_columns(np.diag([4.0, 3.0, 0.5]))).is_nonnegative
    True
    """
    with V.own_threads():
        U, sigma, R = Spectrum.of(V, spectrum).truncated_svd(2)
        # The leading vector is nonnegative, so features and samples are on one side of a line
        # through 0, and no angle to the sum of the features is beyond pi.
        towards = U.sum(axis=0)
        cosine, sine = towards / np.hypot(*towards)
        turn = np.array([[cosine, -sine], [sine, cosine]])
        Q = U @ turn
        first, last = _extreme_angles(Q, _ZERO_NORM)
        low = last - RIGHT_ANGLE
        high = first + RIGHT_ANGLE
        if low > high:  # rounding
            low = high = (low + high) / 2
        turn = sigma[:, None] * turn
        points = V.by_rows(lambda index, R: R @ turn, R.T)
        (samples,) = V.map(_angles, points, negligible=_ZERO_NORM * sigma[0], reduce=widen)
        (lost,) = V.map(_lost, points, low=low, high=high)
    energy = float((sigma**2).sum())
    return Plane(Q, points, energy, samples, (low, high), lost / V.total)


def rank_two_factors(V: DataMatrix, *, spectrum: KnownSpectrum = None) -> Factors:
    """Return nonnegative factors W (F, 2) and H (2, N) with components in the leading plane.

    If the rank-2 part is nonnegative, W H is the best rank-two approximation of V, and no factors
    with two components have a smaller error. If it is not, W H has the smallest error among factors
    with components in the plane.

    Parameters
    ----------
    V : DataMatrix (F, N)
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = np.outer([1.0, 2.0, 2.0], [1.0, 0.0, 3.0]) + np.outer([2.0, 1.0, 0.0], [0.0, 2.0, 1.0])
    >>> W, H = rank_two_factors(from_columns(V))
    >>> np.allclose(W @ H, V)
    True
    """
    plane = leading_plane(V, spectrum=spectrum)
    low, high = plane.rays
    W = plane.vectors @ np.stack([np.cos(plane.rays), np.sin(plane.rays)])
    W[_ZERO_ENTRY > W] = 0.0
    Ht, _ = V.map(_coordinates, plane.points, low=low, high=high, dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _angles(index: range, points: Array, *, negligible: float) -> tuple[Interval]:
    return (_extreme_angles(points, negligible),)


def _extreme_angles(points: Array, negligible: float) -> Interval:
    """Return the smallest and the largest angle of the points (n, 2) that are not negligible."""
    lengths, angles = _polar(points)
    angles = angles[lengths > negligible]
    return float(angles.min(initial=np.inf)), float(angles.max(initial=-np.inf))


def _polar(points: Array) -> Pair:
    """Return the lengths of the points (n, 2) and their angles to the first axis."""
    x, y = points.T
    return np.hypot(x, y), np.arctan2(y, x)


def widen(a: Interval, b: Interval) -> Interval:
    """Return the smaller of two lower limits and the larger of two upper limits."""
    return min(a[0], b[0]), max(a[1], b[1])


def _lost(index: range, points: Array, *, low: float, high: float) -> tuple[float]:
    """Return the squared distance of points to the cone between two angles."""
    lengths, angles = _polar(points)
    outside = np.maximum(low - angles, angles - high).clip(0.0, RIGHT_ANGLE)
    distances = lengths * np.sin(outside)
    return (float((distances**2).sum()),)


def _coordinates(
    index: range, points: Array, *, low: float, high: float, dtype: DType
) -> PerSample:
    """Return nonnegative coordinates of the nearest point of the cone, in terms of its two rays.

    A point of norm r at the angle t is r sin(high - t) / sin(high - low) times the one ray and
    r sin(t - low) / sin(high - low) times the other.
    """
    lengths, angles = _polar(points)
    inside = np.clip(angles, low, high)
    outside = np.minimum(np.abs(angles - inside), RIGHT_ANGLE)
    size = lengths * np.cos(outside)
    if high - low <= _SAME_ANGLE:
        H = np.stack([size, size], axis=1) / 2
    else:
        H = np.sin(np.stack([high - inside, inside - low], axis=1))
        H *= (size / np.sin(high - low))[:, None]
    return np.maximum(H, 0.0).astype(dtype), None

"""Answers to problems that the paper leaves open: outliers, and samples that arrive in a stream.

*Outliers* are samples that are long but belong to no cone. Algorithm 1 gives each a cone of its
own: it is the farthest sample. The k-centre problem with outliers asks for K centres such that all
samples but a given number are within the smallest possible angle of one. Its greedy algorithm
(Charikar, Khuller, Mount and Narasimhan, "Algorithms for facility location problems with outliers",
SODA 2001) is within a factor of 3 of the best, and uses nothing but the triangle inequality, which
angles satisfy. All pairs of samples are compared, so large data are represented by evenly spaced
samples.

*Streams* run Algorithm 1 on samples that arrive batch by batch and are not kept. A stream keeps at
most K centres and, for each of their cones, how many samples it has, their sum, and a sketch of
them, from which the axis of the cone follows. The guarantees for every order of the samples and all
sizes of batches are stated, and proved, in `solve.online.ConeStream` and, for the axes, in the
documentation, on the page "Theorems, code and tests", section "Streams".

*Frequent Directions* is the sketch. For samples V (F, N) it is S (F, l) with l columns for any N,
and for every unit vector x it loses at most a small part of what V has in that direction:

0 <= ||V'x||^2 - ||S'x||^2 <= sum_{j > k} sigma_j(V)^2 / (l + 1 - k)   for every k <= l

(Liberty, "Simple and deterministic matrix sketching", KDD 2013; Ghashami, Liberty, Phillips and
Woodruff, "Frequent Directions", SIAM J. Comput. 45, 2016). Sketches of two parts of the samples
merge into a sketch of both, so neither the order of samples nor the batches matter for what is
guaranteed.

Noise, the third open problem, is in `robust`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.linalg import eigh, norm

from ..data.blocks import Array, Block, dense, exact, norms, over
from ..data.matrix import DataMatrix
from ..data.resample import evenly_spaced
from ..errors import ComponentsError
from ..text import Facts
from .clustering import farthest_first
from .geometry import angles_of, cosine_rounding, distances, unit_samples_at

_MAX_SAMPLES = 2000  # that are compared with each other
_EXPANSION = 3.0  # of the angle within which a centre removes what it covers

# Columns that are kept of each cone: axes are then within sqrt(1.1) of the best.
SKETCH_SIZE = 10

_DENSE_COLUMNS = 64  # of sparse samples, at a time


# --- outliers ---------------------------------------------------------------------------------


class CoveringCentres(NamedTuple):
    """Centres that cover all samples except some outliers.

    Attributes
    ----------
    centres : array (K,)
        The samples chosen, in the order of how many they cover.
    directions : array (F, K)
        The same as unit vectors.
    radius : float
        All samples that were compared, but the outliers, are within this angle of a centre.
    least_radius : float
        No K samples as centres cover as many within a smaller angle than this.
    """

    centres: Array
    directions: Array
    radius: float
    least_radius: float


def centres_with_outliers(V: DataMatrix, K: int, outliers: int) -> CoveringCentres:
    """Choose K centres that cover all samples but a number of outliers (k-centre with outliers).

    For an angle rho, the next centre is the sample with the most uncovered samples within rho, and
    it covers all within 3 rho. The smallest rho is taken for which at most `outliers` samples are
    left after K centres. If all but so many samples are within rho of K of them, this succeeds, so
    the radius is at most three times the smallest possible.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    outliers : int
        How many samples may be left out. Of more than 2000 nonzero samples, 2000 evenly spaced
        ones are compared, and as large a share of them is left out.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> t = np.array([0.0, 0.1, 0.2, 0.7, 1.4, 1.5])
    >>> V = from_columns(np.stack([np.cos(t), np.sin(t)]))
    >>> centres_with_outliers(V, 2, 1).centres
    array([1, 4])
    """
    (indices,) = V.map(_nonzero, V.norms_squared, reduce=np.append)
    total = indices.size
    indices = indices[evenly_spaced(total, _MAX_SAMPLES)] if total > _MAX_SAMPLES else indices
    allowed = min(outliers, total) * indices.size // total
    if indices.size - allowed < K:
        raise ComponentsError(
            f"{indices.size} samples with {allowed} outliers leave fewer than the {K} components "
            "asked for: use fewer of either"
        )
    with V.own_threads():
        angles = angles_of(distances(V, indices))
        chosen, rho = _smallest_cover(angles, K, allowed)
        directions = unit_samples_at(V, indices[chosen])
    to_nearest = np.sort(angles[chosen].min(axis=0))
    radius = float(to_nearest[indices.size - 1 - allowed])
    return CoveringCentres(indices[chosen], directions, radius, rho)


def _smallest_cover(angles: Array, K: int, allowed: int) -> tuple[Array, float]:
    """The centres for the smallest angle that leaves no more than `allowed`, and that angle."""
    candidates = np.unique(angles)
    low, high = 0, candidates.size - 1  # the largest angle covers everything
    while low < high:
        middle = (low + high) // 2
        if _greedy_cover(angles, K, candidates[middle])[1] <= allowed:
            high = middle
        else:
            low = middle + 1
    rho = float(candidates[high])
    return _greedy_cover(angles, K, rho)[0], rho


def _greedy_cover(angles: Array, K: int, rho: float) -> tuple[Array, int]:
    """K centres, each of which has the most uncovered samples within rho; how many are left."""
    within = angles <= rho
    uncovered = np.ones(len(angles), dtype=bool)
    counts = within.sum(axis=1)
    centres = np.empty(K, dtype=np.intp)
    for k in range(K):
        centres[k] = n = int(counts.argmax())
        removed = uncovered & (angles[n] <= _EXPANSION * rho)
        uncovered &= ~removed
        counts = counts - within[:, removed].sum(axis=1)
        counts[n] = -1  # is chosen
    return centres, int(uncovered.sum())


def _nonzero(index: range, squared: Array) -> tuple[Array]:
    return (np.flatnonzero(squared > 0) + index.start,)


# --- streams ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamCones:
    """The cones that a stream has found so far.

    Attributes
    ----------
    directions : array (F, k)
        One sample of each cone as a unit vector, its centre.
    sums : array (F, k)
        The sum of all samples of each cone.
    counts : array (k,)
        How many samples those are; zero samples belong to none.
    sketches : array (k, F, l)
        The samples of each cone by Frequent Directions.
    """

    directions: Array
    sums: Array
    counts: Array
    sketches: Array

    @classmethod
    def empty(cls, F: int) -> StreamCones:
        """No cones yet."""
        columns = np.zeros((F, 0))
        return cls(columns, columns, np.zeros(0), np.zeros((0, F, SKETCH_SIZE)))

    def __add__(self, other: StreamCones) -> StreamCones:
        """The same cones with the samples of both."""
        pairs = zip(self.sketches, other.sketches, strict=True)
        sketches = np.array([merge_sketches(a, b) for a, b in pairs]).reshape(self.sketches.shape)
        sums = self.sums + other.sums
        counts = self.counts + other.counts
        return StreamCones(self.directions, sums, counts, sketches)

    @property
    def axes(self) -> Array:
        """The axes of the cones, unit vectors (F, k).

        If each cone's samples are all in its sketch, as under the geometric assumption, the squared
        error with one axis for each sample is at most 1 + 1 / l times that of cr1-nmf.
        """
        F, k = self.directions.shape
        axes = np.empty((F, k))
        for i, sketch in enumerate(self.sketches):
            axis = leading_direction(sketch)
            axes[:, i] = axis if axis.any() else self.directions[:, i]
        return axes


def update_cones(V: DataMatrix, cones: StreamCones, K: int) -> StreamCones:
    """Find the centres after a batch, and add its samples to their cones."""
    Z = cones.directions
    tie = cosine_rounding(V)
    min_score = -1.0 if Z.shape[1] < K else -_closest_centres(Z)[0]
    options: Facts = {"Z": Z, "max_count": K, "min_score": min_score, "tie": tie}
    merge = partial(_merge_scans, **options)
    ((candidates, new),) = V.sweep(_scan_block, V.norms_squared, reduce=merge, **options)
    after = _replace_centres(cones, candidates, K, tie)
    if after.directions is not Z:  # the sums are to be of the new cones
        options |= {"Z": after.directions, "max_count": 0}
        merge = partial(_merge_scans, **options)
        ((_, new),) = V.sweep(_scan_block, V.norms_squared, reduce=merge, **options)
    return after + new


# What blocks yield: samples that may become centres (F, m); cones with the samples of each.
_Scan: TypeAlias = tuple[Array, StreamCones]


def _scan_block(
    block: Block, squared: Array, *, Z: Array, max_count: int, min_score: float, tie: float
) -> tuple[_Scan]:
    samples = exact(block)
    sample_norms = norms(squared)
    nonzero = squared > 0
    member = np.zeros((squared.size, Z.shape[1]))
    best = np.full(squared.size, -2.0)
    if Z.shape[1]:
        cosines = (samples.T @ Z) / sample_norms[:, None]
        best = cosines.max(axis=1)
        nearest = (cosines >= best[:, None] - tie).argmax(axis=1)
        member[np.arange(squared.size), nearest] = nonzero
    scores = np.where(nonzero, -best, -np.inf)
    _, candidates = farthest_first(samples, sample_norms, scores, max_count, min_score, tie)
    sketches = [_sketch(samples, np.flatnonzero(column)) for column in member.T]
    shape = (Z.shape[1], Z.shape[0], SKETCH_SIZE)
    sums = samples @ member
    counts = member.sum(axis=0)
    return ((candidates, StreamCones(Z, sums, counts, np.array(sketches).reshape(shape))),)


def _sketch(samples: Block, indices: Array) -> Array:
    """The sketch of some samples of a block, a few made dense at a time."""
    sketch = np.zeros((samples.shape[0], SKETCH_SIZE))
    for first in range(0, indices.size, _DENSE_COLUMNS):
        part = dense(samples[:, indices[first : first + _DENSE_COLUMNS]])
        sketch = merge_sketches(sketch, sketch_columns(part, SKETCH_SIZE))
    return sketch


def _merge_scans(a: _Scan, b: _Scan, **options: Any) -> _Scan:
    candidates = np.hstack([a[0], b[0]])
    if candidates.shape[1]:
        ((candidates, _),) = _scan_block(candidates, np.ones(candidates.shape[1]), **options)
    return candidates, a[1] + b[1]


def _closest_centres(Z: Array) -> tuple[float, int, int]:
    """The cosine of the two closest centres, and which they are; of a single one, -1."""
    cosines = Z.T @ Z
    cosines[np.tril_indices_from(cosines)] = -1.0
    i, j = np.unravel_index(int(np.argmax(cosines)), cosines.shape)
    return float(cosines[i, j]), int(i), int(j)


def _replace_centres(cones: StreamCones, candidates: Array, K: int, tie: float) -> StreamCones:
    """Make centres of candidates, the farthest first, as long as one is due."""
    while candidates.shape[1]:
        Z = cones.directions
        nearest = (candidates.T @ Z).max(axis=1, initial=-2.0)
        n = int(np.argmin(nearest))
        if Z.shape[1] < K:
            if nearest[n] >= 1.0 - tie:
                break
            cones = _with_centre(cones, candidates[:, n])
            continue
        cosine, i, j = _closest_centres(Z)
        if nearest[n] >= cosine - tie or K == 1:
            break
        cones = _with_centre(_joined(cones, i, j), candidates[:, n], j)
    return cones


def _with_centre(cones: StreamCones, direction: Array, at: int | None = None) -> StreamCones:
    """The same with a new cone that has no samples yet, by default the last one."""
    at = cones.counts.size if at is None else at
    return StreamCones(
        np.insert(cones.directions, at, direction, axis=1),
        np.insert(cones.sums, at, 0.0, axis=1),
        np.insert(cones.counts, at, 0.0),
        np.insert(cones.sketches, at, 0.0, axis=0),
    )


def _joined(cones: StreamCones, i: int, j: int) -> StreamCones:
    """The same with the samples of cone j in cone i, which keeps its centre; j is gone."""
    sums = cones.sums.copy()
    counts = cones.counts.copy()
    sketches = cones.sketches.copy()
    sums[:, i] += sums[:, j]
    counts[i] += counts[j]
    sketches[i] = merge_sketches(sketches[i], sketches[j])
    return StreamCones(
        np.delete(cones.directions, j, axis=1),
        np.delete(sums, j, axis=1),
        np.delete(counts, j),
        np.delete(sketches, j, axis=0),
    )


# --- Frequent Directions ----------------------------------------------------------------------


def sketch_columns(columns: Array, size: int) -> Array:
    """Return a sketch (F, size) of dense samples (F, n): their Gram matrix (n, n) is decomposed.

    The (size + 1)-th squared singular value is taken from all, so no more than `size` are left. In
    any direction at most that much is lost, of the sum of squares size + 1 times as much.
    """
    columns = columns[:, columns.any(axis=0)]
    if columns.shape[1] <= size:
        return np.pad(columns, ((0, 0), (0, size - columns.shape[1])))
    squares, turn = eigh(columns.T @ columns)
    lost = max(squares[-size - 1], 0.0)
    squares = squares[-size:]
    turn = turn[:, -size:]
    share = np.maximum(squares - lost, 0.0) / np.where(squares > 0, squares, 1.0)
    return columns @ (turn * np.sqrt(share))


def merge_sketches(a: Array, b: Array) -> Array:
    """Return the sketch of the samples of two sketches (F, size) of the same size."""
    return sketch_columns(np.hstack([a, b]), a.shape[1])


def leading_direction(sketch: Array) -> Array:
    """Return the best axis of the samples of a sketch (F, l), nonnegative if all of them are.

    With w the leading left singular vector, ||V - |w| |w|'V||^2 is at most 1 + 1 / l times the
    squared error of the best axis: see "Streams" in the documentation.
    """
    axis = np.abs(sketch @ eigh(sketch.T @ sketch)[1][:, -1])
    return over(axis, norm(axis, axis=0))

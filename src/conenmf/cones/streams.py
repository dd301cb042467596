"""Axes for samples that arrive in a stream, one of the open problems of the paper.

A stream runs Algorithm 1 on samples that arrive in batches and are not stored. It keeps at most K
centres. For each cone it also keeps the number of samples, their sum, and a sketch from which the
axis is computed. The guarantees hold for every order of the samples and all sizes of batches.
`solve.online.ConeStream` states and proves them; for the axes see section "Streams" of the page
"Theorems, code and tests" in the documentation.

*Frequent Directions* is the sketch. For samples V (F, N) it is a matrix S (F, l), whatever N is.
For every unit vector x it loses at most a small part of V's energy in that direction:

0 <= ||V'x||^2 - ||S'x||^2 <= sum_{j > k} sigma_j(V)^2 / (l + 1 - k)   for every k <= l

(Liberty, "Simple and deterministic matrix sketching", KDD 2013; Ghashami, Liberty, Phillips and
Woodruff, "Frequent Directions", SIAM J. Comput. 45, 2016). Sketches of two sets of samples can be
merged into a sketch of both, so the guarantee does not depend on the order of samples or the
batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.linalg import eigh

from ..data.blocks import Block, dense, exact, first_largest, norms, over, unit_columns
from ..data.matrix import DataMatrix
from ..types import Array
from .clustering import farthest_first
from .geometry import cosine_rounding

# Columns of the sketch of each cone: errors are then within sqrt(1.1) of the best axes.
SKETCH_SIZE = 10

_TIE_SHARE = 1e-9  # relative difference up to which cosines and distances count as equal
_DENSE_COLUMNS = 64  # sparse samples converted to dense at a time


@dataclass(frozen=True)
class StreamCones:
    """The cones that a stream has found so far.

    Attributes
    ----------
    directions : array (F, k)
        The centre of each cone, a sample as a unit vector.
    sums : array (F, k)
        The sum of all samples of each cone.
    counts : array (k,)
        How many samples each cone has; zero samples belong to none.
    sketches : array (k, F, l)
        Sketches of the samples of each cone by Frequent Directions.
    """

    directions: Array
    sums: Array
    counts: Array
    sketches: Array

    @classmethod
    def empty(cls, F: int) -> StreamCones:
        """Return zero cones."""
        columns = np.zeros((F, 0))
        return cls(columns, columns, np.zeros(0), np.zeros((0, F, SKETCH_SIZE)))

    def __add__(self, other: StreamCones) -> StreamCones:
        """Return the same cones with the samples of both."""
        sketches = np.empty_like(self.sketches)
        for i, sketch in enumerate(self.sketches):
            sketches[i] = merge_sketches(sketch, other.sketches[i])
        sums = self.sums + other.sums
        return StreamCones(self.directions, sums, self.counts + other.counts, sketches)

    @property
    def axes(self) -> Array:
        """The axes of the cones, unit vectors (F, k).

        If the sketch of each cone contains all its samples, as under the geometric assumption, the
        squared error with one axis for each sample is at most 1 + 1 / l times the error of cr1-nmf.
        """
        axes = np.empty_like(self.directions)
        for i, sketch in enumerate(self.sketches):
            axis = leading_direction(sketch)
            axes[:, i] = axis if axis.any() else self.directions[:, i]
        return axes


def update_cones(V: DataMatrix, cones: StreamCones, K: int) -> StreamCones:
    """Update the centres after a batch, and add the samples of the batch to their cones."""
    Z = cones.directions
    tie = cosine_rounding(V)
    min_score = -1.0 if Z.shape[1] < K else -_closest_centres(Z)[0]
    candidates, new = _scan(V, Z=Z, max_count=K, min_score=min_score, tie=tie)
    after = _replace_centres(cones, candidates, K, tie)
    if after.directions is not Z:  # the sums must belong to the new cones
        _, new = _scan(V, Z=after.directions, max_count=0, min_score=min_score, tie=tie)
    return after + new


def _scan(V: DataMatrix, **options: Any) -> tuple[Array, StreamCones]:
    """Return samples that may become centres (F, m), and cones with the samples of V."""
    merge = partial(_merge_scans, **options)
    (scan,) = V.sweep(_scan_block, V.norms_squared, reduce=merge, **options)
    return scan


def _scan_block(
    block: Block, squared: Array, *, Z: Array, max_count: int, min_score: float, tie: float
) -> tuple[tuple[Array, StreamCones]]:
    samples = exact(block)
    sample_norms = norms(squared)
    nonzero = squared > 0
    n = squared.size
    k = Z.shape[1]
    member = np.zeros((n, k))
    best = np.full(n, -2.0)
    if k:
        cosines = (samples.T @ Z) / sample_norms[:, None]
        best = cosines.max(axis=1)
        nearest = (cosines >= best[:, None] - tie).argmax(axis=1)
        member[np.arange(n), nearest] = nonzero
    scores = np.where(nonzero, -best, -np.inf)
    _, candidates = farthest_first(samples, sample_norms, scores, max_count, min_score, tie)
    sketches = np.empty((k, len(Z), SKETCH_SIZE))
    for i in range(k):
        sketches[i] = _sketch(samples, np.flatnonzero(member[:, i]))
    cones = StreamCones(Z, samples @ member, member.sum(axis=0), sketches)
    return ((candidates, cones),)


def _sketch(samples: Block, indices: Array) -> Array:
    """Return the sketch of some samples of a block; converts a few samples to dense at a time."""
    sketch = np.zeros((samples.shape[0], SKETCH_SIZE))
    for first in range(0, indices.size, _DENSE_COLUMNS):
        part = dense(samples[:, indices[first : first + _DENSE_COLUMNS]])
        sketch = merge_sketches(sketch, sketch_columns(part, SKETCH_SIZE))
    return sketch


def _merge_scans(
    a: tuple[Array, StreamCones], b: tuple[Array, StreamCones], **options: Any
) -> tuple[Array, StreamCones]:
    candidates = np.hstack([a[0], b[0]])
    if candidates.shape[1]:
        ((candidates, _),) = _scan_block(candidates, np.ones(candidates.shape[1]), **options)
    return candidates, a[1] + b[1]


def _closest_centres(Z: Array) -> tuple[float, int, int]:
    """Return the cosine of the two closest centres and their indices; -1 for a single centre."""
    cosines = Z.T @ Z
    cosines[np.tril_indices_from(cosines)] = -1.0
    i, j = np.unravel_index(first_largest(cosines.ravel(), _TIE_SHARE), cosines.shape)
    return float(cosines[i, j]), int(i), int(j)


def _replace_centres(cones: StreamCones, candidates: Array, K: int, tie: float) -> StreamCones:
    """Make candidates centres, the farthest first, until no candidate qualifies."""
    while candidates.shape[1]:
        Z = cones.directions
        nearest = (candidates.T @ Z).max(axis=1, initial=-2.0)
        n = first_largest(1.0 - nearest, _TIE_SHARE)
        if Z.shape[1] < K:
            if nearest[n] >= 1.0 - tie:
                break
            cones = _with_centre(cones, candidates[:, n])
            continue
        cosine, i, j = _closest_centres(Z)
        if nearest[n] >= cosine - tie or K == 1:
            break
        cones = _with_centre(_join_cones(cones, i, j), candidates[:, n], j)
    return cones


def _with_centre(cones: StreamCones, direction: Array, at: int | None = None) -> StreamCones:
    """Add a cone without samples, by default as the last one."""
    at = cones.counts.size if at is None else at
    directions = np.insert(cones.directions, at, direction, axis=1)
    sums = np.insert(cones.sums, at, 0.0, axis=1)
    counts = np.insert(cones.counts, at, 0.0)
    sketches = np.insert(cones.sketches, at, 0.0, axis=0)
    return StreamCones(directions, sums, counts, sketches)


def _join_cones(cones: StreamCones, i: int, j: int) -> StreamCones:
    """Move the samples of cone j into cone i < j, which keeps its centre, and remove cone j."""
    directions = np.delete(cones.directions, j, axis=1)
    sums = np.delete(cones.sums, j, axis=1)
    counts = np.delete(cones.counts, j)
    sketches = np.delete(cones.sketches, j, axis=0)
    sums[:, i] += cones.sums[:, j]
    counts[i] += cones.counts[j]
    sketches[i] = merge_sketches(sketches[i], cones.sketches[j])
    return StreamCones(directions, sums, counts, sketches)


# --- Frequent Directions ----------------------------------------------------------------------


def sketch_columns(columns: Array, size: int) -> Array:
    """Return a sketch (F, size) of dense samples (F, n), from their Gram matrix (n, n).

    The (size + 1)-th squared singular value is subtracted from all others, so at most `size` of
    them stay positive. Any direction loses at most this value, while the sum of squares loses at
    least size + 1 times as much.
    """
    columns = columns[:, columns.any(axis=0)]
    if columns.shape[1] <= size:
        return np.pad(columns, ((0, 0), (0, size - columns.shape[1])))
    squares, turn = eigh(columns.T @ columns)
    lost = max(squares[-size - 1], 0.0)
    squares = squares[-size:]
    turn = turn[:, -size:]
    share = over(np.maximum(squares - lost, 0.0), squares)
    return columns @ (turn * np.sqrt(share))


def merge_sketches(a: Array, b: Array) -> Array:
    """Merge two sketches (F, size) into a sketch of the samples of both."""
    return sketch_columns(np.hstack([a, b]), a.shape[1])


def leading_direction(sketch: Array) -> Array:
    """Return the best axis for the samples of a sketch (F, l); nonnegative if all samples are.

    With w the leading left singular vector, ||V - |w| |w|'V||^2 is at most 1 + 1 / l times the
    squared error of the best axis: see "Streams" in the documentation.
    """
    axis = np.abs(sketch @ eigh(sketch.T @ sketch)[1][:, -1])
    return unit_columns(axis)

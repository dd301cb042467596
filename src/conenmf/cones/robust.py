"""Centres that survive noise: Algorithm 1 on projected samples, with lower bounds on angles.

Algorithm 1 chooses the sample farthest from all centres. With noise, this is often the shortest
sample: noise of norm r turns a sample of length l by up to arcsin(r / l), and a sample shorter than
the noise may have any direction. This module makes three changes.

1. It projects samples on the K leading left singular vectors of V. The axes of K cones nearly span
   this space. If the noise is spread over F features, a share of K / F of it remains.
2. From each angle it subtracts the most that noise may have turned either sample. So a short sample
   of a cone that has a centre does not seem farther than it is.
3. Two Lloyd steps move each centre to the axis of its samples.

The norm of the noise is estimated from the singular values beyond K; if there are none, the result
says that the norm is unknown. The theorem is on the page "Theorems, code and tests", section
"Beyond the paper: noise". It covers a given norm and no Lloyd steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm

from ..data.blocks import Block, exact, first_largest, norms, products
from ..data.matrix import Aligned, DataMatrix
from ..linalg.svd import VECTOR_TOL, KnownSpectrum, Spectrum
from ..types import Array, Interval, Pair, Shape
from .geometry import RIGHT_ANGLE, widen

_ROUNDING = 1e-13  # of ||V||^2: smaller energy beyond K is rounding
_TIE_SHARE = 1e-7  # of a score: vectors are known to VECTOR_TOL, and angles from cosines to 1e-8
_POWER_STEPS = 2  # in each Lloyd step, towards the leading singular vector of a cluster


class NoisyCentres(NamedTuple):
    """Centres chosen by a method that allows for noise.

    Attributes
    ----------
    centres : array (K,)
        The chosen samples.
    axes : array (F, K)
        Unit vectors in the span of the leading singular vectors: the projected samples, moved to
        the axes of their clusters.
    noise : float
        r, the norm of the projected noise of a sample, given or estimated. NaN if it was not given
        and there is no energy beyond K to estimate it from. Centres are then the farthest samples,
        however short, and none of them is certain.
    largest_turn : float
        The largest arcsin(r / ||y||) of a centre, in radians. If noise is no larger than r, no
        centre was turned farther. It is pi/2 if a centre is no longer than r, or if r is unknown.
    counts : array (K,)
        How many samples are nearest to each axis.
    """

    centres: Array
    axes: Array
    noise: float
    largest_turn: float
    counts: Array


def centres_in_noise(
    V: DataMatrix,
    K: int,
    *,
    first: int | None = None,
    noise: float | None = None,
    lloyd_steps: int = 2,
    spectrum: KnownSpectrum = None,
) -> NoisyCentres:
    """Choose K centres among samples longer than the noise, and move them to the axes.

    z_{k+1} is the sample n with the largest min_{i <= k} angle(y_n, z_i) - t_n - t_i. Here y_n is
    the projection of v_n on the K leading singular vectors, and t_n = arcsin(r / ||y_n||) is the
    largest angle by which noise of norm r can turn it.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        At most min(F, N).
    first : int, optional
        The first centre, used if it is longer than the noise. By default, the sample with the
        longest projection.
    noise : float, optional
        r; by default the estimate `noise_norm`.
    lloyd_steps : int
        The number of Lloyd steps: each assigns samples to axes, then moves axes to their samples.
    spectrum : Spectrum, optional
        The spectrum of V, or of a sketch of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(200, 5, 0.2, n_samples=500, noise=0.05, rng=np.random.default_rng(0))
    >>> found = centres_in_noise(from_columns(model.V), 5)
    >>> sorted(model.labels[found.centres].tolist())
    [0, 1, 2, 3, 4]
    """
    with V.own_threads():
        spectrum = Spectrum(V) if spectrum is None else spectrum
        U, _ = spectrum.leading_subspace(K, tol=VECTOR_TOL)
        U = U[:, :K]
        Y, squared, explained = V.sweep(_project, U=U)
        if noise is None:
            noise = noise_norm(V.total, explained, V.shape, K)
        is_known = not np.isnan(noise)
        r = noise if is_known else 0.0
        centres, Z, turn = _farthest_for_certain(V, Y, squared, r, K, first)
        for _ in range(lloyd_steps):
            labels, _ = V.map(_nearest, Y, squared, Z=Z)
            for _ in range(_POWER_STEPS):
                (sums,) = V.map(_weighted_sums, Y, labels, Z=Z)
                Z = np.where(sums.any(axis=0), sums, Z)
                Z /= norm(Z, axis=0)
        _, counts = V.map(_nearest, Y, squared, Z=Z)
    return NoisyCentres(centres, U @ Z, noise, turn if is_known else RIGHT_ANGLE, counts)


def are_evident(V: DataMatrix, Z: Array, tie: float) -> bool:
    """Return whether each sample is closer to its centre than any sample is to another centre.

    Under the geometric assumption, and whenever S_p > 0, the centres of Algorithm 1 satisfy this: a
    centre is a sample, and two samples of one cone are closer than two samples of different cones.
    """
    own, other = V.sweep(_extreme_cosines, V.norms_squared, reduce=widen, Z=Z)[0]
    return bool(own > other + tie)


def noise_norm(total: float, explained: float, shape: Shape, K: int) -> float:
    """Estimate the largest norm among N samples of noise projected on K directions.

    If V has rank K plus noise with entries of variance s^2, the squares of its singular values
    beyond K sum to about s^2 (F - K)(N - K). The projected noise of a sample has K entries of this
    variance. If they are Gaussian, the largest norm of N such vectors exceeds s (sqrt(K) + sqrt(2
    ln(N / eta))) with probability at most eta; here eta = 1. The result is NaN if there is no
    energy beyond K, as when K is F or N.

    Parameters
    ----------
    total : float
        ||V||^2.
    explained : float
        The sum of the squares of the K largest singular values.
    shape : (F, N)
    K : int
    """
    F, N = shape
    entries = (F - K) * (N - K)
    left = total - explained
    if entries == 0 or left <= _ROUNDING * total:
        return math.nan
    deviation = math.sqrt(left / entries)
    return deviation * (math.sqrt(K) + math.sqrt(2.0 * math.log(N)))


def _extreme_cosines(block: Block, squared: Array, *, Z: Array) -> tuple[Interval]:
    """Return the smallest cosine to the sample's centre and the largest to another centre."""
    cosines = (Z.T @ exact(block)) / norms(squared)
    *others, own = np.sort(cosines[:, squared > 0], axis=0)
    smallest = own.min(initial=np.inf)
    largest = np.max(others[-1:], initial=-np.inf)
    return ((smallest, largest),)


def _project(block: Block, *, U: Array) -> tuple[Array, Array, float]:
    """Return Y = V'U, the squared norms of its rows, and their sum."""
    Y = products(exact(block), U)
    squared = np.vecdot(Y, Y)
    return Y, squared, float(squared.sum())


def _farthest_for_certain(
    V: DataMatrix, Y: Aligned, squared: Aligned, r: float, K: int, first: int | None
) -> tuple[Array, Array, float]:
    """Choose samples, each the farthest from the earlier ones by a lower bound on the angle.

    Returns their indices, their projections as unit vectors (K, K), and their largest turn.
    """
    certain, best = V.map(_first_scores, squared, Y, reduce=_higher, r=r, first=first)
    centres = np.empty(K, dtype=np.intp)
    Z = np.empty((K, K))
    turns = np.empty(K)
    for k in range(K):
        centres[k] = best.n
        length_sq = np.vecdot(best.y, best.y)
        z = best.y / np.sqrt(length_sq) if length_sq > 0 else np.eye(K)[k]
        Z[:, k] = z
        turns[k] = turn = _turn(length_sq, r)
        if k + 1 < K:
            certain, best = V.map(_scores, certain, squared, Y, reduce=_higher, z=z, turn=turn, r=r)
    return centres, Z, float(turns.max())


class _Best(NamedTuple):
    """A score, the index of its sample, and the projection of the sample."""

    score: float
    n: int
    y: Array


def _turn(squared: Array, r: float) -> Array:
    """Return arcsin(r / ||y||), the largest turn by noise of norm r; pi/2 if ||y|| <= r."""
    is_longer = squared > r * r
    sine = r / np.sqrt(np.where(is_longer, squared, 1.0))
    turn = np.arcsin(np.minimum(sine, 1.0))
    return np.where(is_longer, turn, RIGHT_ANGLE)


def _first_scores(
    index: range, squared: Array, Y: Array, *, r: float, first: int | None
) -> tuple[Array, _Best]:
    """Return infinite angles (no centre yet) and the longest or the requested sample."""
    scores = squared.copy()
    if first is not None and first in index:
        own = first - index.start
        if squared[own] > r * r:
            scores[own] = np.inf
    return np.full(len(index), np.inf), _best(index, scores, Y)


def _scores(
    index: range, certain: Array, squared: Array, Y: Array, *, z: Array, turn: float, r: float
) -> tuple[Array, _Best]:
    """Update lower bounds on angles to the nearest centre for a new z; find the largest."""
    cosines = np.clip(Y @ z / norms(squared), -1.0, 1.0)
    angles = np.arccos(cosines) - _turn(squared, r) - turn
    certain = np.minimum(certain, angles)
    scores = np.where(squared > r * r, certain, -np.inf)
    return certain, _best(index, scores, Y)


def _best(index: range, scores: Array, Y: Array) -> _Best:
    n = int(first_largest(scores, _TIE_SHARE))
    return _Best(float(scores[n]), index.start + n, Y[n])


def _higher(a: _Best, b: _Best) -> _Best:
    """Return the higher of two scores; in a tie, `a`, the earlier block, wins."""
    scores = np.array([a.score, b.score])
    return b if first_largest(scores, _TIE_SHARE) else a


def _nearest(index: range, Y: Array, squared: Array, *, Z: Array) -> Pair:
    """Return the nearest axis of each sample, and the number of samples nearest to each axis."""
    labels = first_largest((Y @ Z).T, _TIE_SHARE)
    return labels, np.bincount(labels[squared > 0], minlength=Z.shape[1])


def _weighted_sums(index: range, Y: Array, labels: Array, *, Z: Array) -> tuple[Array]:
    """Do one power step for each cluster: sum <y, z> y over its samples."""
    H = np.zeros((len(index), Z.shape[1]))
    H[np.arange(len(index)), labels] = np.vecdot(Y, Z.T[labels])
    return (Y.T @ H,)

"""Centres of data with outliers, one of the open problems of the paper.

Outliers are long samples that belong to no cone. Algorithm 1 chooses the sample farthest from all
centres, so each outlier gets a cone. The k-centre problem with outliers asks for K centres such
that all samples, except a given number, are within the smallest possible angle of a centre. The
greedy algorithm for it (Charikar, Khuller, Mount and Narasimhan, "Algorithms for facility location
problems with outliers", SODA 2001) is within a factor of 3 of the optimum. It needs only the
triangle inequality, which angles satisfy. It compares all pairs of samples, so for large data
evenly spaced samples are used.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from ..data.matrix import DataMatrix
from ..data.resample import evenly_spaced
from ..errors import ComponentsError
from ..types import Array
from .geometry import angles_of, distances, unit_samples_at

_MAX_SAMPLES = 2000  # largest number of samples whose pairs are all compared
_EXPANSION = 3.0  # a centre covers samples within this multiple of the radius


class CoveringCentres(NamedTuple):
    """Centres that cover all samples except some outliers.

    Attributes
    ----------
    centres : array (K,)
        The chosen samples, in the order in which the greedy algorithm chose them.
    directions : array (F, K)
        The chosen samples as unit vectors.
    radius : float
        All compared samples except the outliers are within this angle of a centre.
    least_radius : float
        No K samples as centres cover as many samples within a smaller angle.
    """

    centres: Array
    directions: Array
    radius: float
    least_radius: float


def centres_with_outliers(V: DataMatrix, K: int, outliers: int) -> CoveringCentres:
    """Choose K centres that cover all samples except a given number (k-centre with outliers).

    For an angle rho, the next centre is the sample with the most uncovered samples within rho; it
    covers all samples within 3 rho. The function returns the result for the smallest rho that
    leaves at most `outliers` samples uncovered. If K samples exist that cover all but `outliers`
    samples within rho, the algorithm succeeds for this rho, so the radius is at most three times
    the smallest possible one.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    outliers : int
        How many samples may be left uncovered. Of more than 2000 nonzero samples, 2000 evenly
        spaced ones are compared, and the same share of them may be left uncovered.

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
    indices = indices[evenly_spaced(total, _MAX_SAMPLES)]
    n = indices.size
    allowed = min(outliers, total) * n // total
    if n - allowed < K:
        raise ComponentsError(
            f"{n} samples with {allowed} outliers leave fewer than the {K} components asked for: "
            "use fewer of either"
        )
    with V.own_threads():
        angles = angles_of(distances(V, indices))
        chosen, rho = _smallest_cover(angles, K, allowed)
        directions = unit_samples_at(V, indices[chosen])
    to_nearest = np.sort(angles[chosen].min(axis=0))
    radius = float(to_nearest[n - 1 - allowed])
    return CoveringCentres(indices[chosen], directions, radius, rho)


def _nonzero(index: range, squared: Array) -> tuple[Array]:
    """Return the indices of the samples that are not zero."""
    return (np.flatnonzero(squared > 0) + index.start,)


def _smallest_cover(angles: Array, K: int, allowed: int) -> tuple[Array, float]:
    """Find the smallest angle that leaves at most `allowed` samples; return centres and angle."""

    def is_enough(rho: float) -> bool:
        return _greedy_cover(angles, K, rho)[1] <= allowed

    candidates = np.unique(angles)
    last = candidates.size - 1  # the largest angle covers everything
    rho = float(candidates[bisect_left(candidates, True, hi=last, key=is_enough)])
    centres, _ = _greedy_cover(angles, K, rho)
    return centres, rho


def _greedy_cover(angles: Array, K: int, rho: float) -> tuple[Array, int]:
    """Choose K centres, each with the most uncovered samples within rho; count those left."""
    within = angles <= rho
    uncovered = np.ones(len(angles), dtype=bool)
    counts = within.sum(axis=1)
    centres = np.empty(K, dtype=np.intp)
    for k in range(K):
        centres[k] = n = counts.argmax()
        new = uncovered & (angles[n] <= _EXPANSION * rho)
        uncovered &= ~new
        counts -= within[:, new].sum(axis=1)
        counts[n] = -1  # a centre is not chosen again
    return centres, int(uncovered.sum())

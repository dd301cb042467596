"""Centres in spite of outliers: samples that are long but belong to no cone.

Algorithm 1 gives every outlier a cone of its own: it is the farthest sample. The k-centre problem
with outliers asks for K centres such that all samples but a given number are within the smallest
possible angle of one. Its greedy algorithm (Charikar, Khuller, Mount and Narasimhan, "Algorithms
for facility location problems with outliers", SODA 2001) is within a factor of 3 of the best, and
uses nothing but the triangle inequality, which angles satisfy.

All pairs of samples are compared, so large data are represented by evenly spaced samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arguments import components, integer
from ..data.blocks import Array, dense
from ..data.matrix import DataMatrix
from ..data.sampling import evenly_spaced
from ..data.validate import require_data_matrix
from ..errors import ComponentsError
from .geometry import angles_of, distances

__all__ = ["CoveringCentres", "centres_with_outliers"]

_MAX_SAMPLES = 2000  # that are compared with each other
_EXPANSION = 3.0  # of the angle within which a centre removes what it covers


class CoveringCentres(NamedTuple):
    """Centres that cover all samples but some.

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
    require_data_matrix(V, nonzero=True)
    K, outliers = components(K), integer("outliers", outliers, at_least=0)
    ((indices,),) = V.map(_nonzero, V.norms_squared, reduce=_joined)
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
        columns = dense(V.columns(indices[chosen]))
    to_nearest = np.sort(angles[chosen].min(axis=0))
    radius = float(to_nearest[indices.size - 1 - allowed])
    return CoveringCentres(indices[chosen], columns / np.linalg.norm(columns, axis=0), radius, rho)


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


def _nonzero(index: range, squared: Array) -> tuple[tuple[Array]]:
    return ((np.flatnonzero(squared > 0) + index.start,),)


def _joined(a: tuple[Array], b: tuple[Array]) -> tuple[Array]:
    return (np.concatenate([a[0], b[0]]),)

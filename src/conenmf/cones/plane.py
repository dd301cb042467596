"""Two components: the exact nonnegative factors of a nonnegative rank-2 part.

The best approximation of V of rank two is the projection of its samples to a plane. The
nonnegative vectors of the plane are a cone, between two rays. If all projected samples lie in it,
the rank-2 part is nonnegative, and the two extreme samples span a narrower cone that still holds
all: as W they give the exact factors of the rank-2 part, and no factors with two components have a
smaller error (Eckart and Young). Where some samples fall outside, they are moved to the nearest ray
of the cone, which gives the best factors whose components lie in the plane. Proofs: "Where the
bound is attained" in the documentation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arguments import instance, optional
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError
from ..linalg.svd import Spectrum

__all__ = ["Plane", "leading_plane", "rank_two_factors"]

_ZERO_NORM = 1e-12  # relative to the largest
_ZERO_ENTRY = 1e-15  # of a unit vector
_LOST_SHARE = 1e-12  # of ||V||^2, which rounding may put outside the cone
_SAME_ANGLE = 1e-9  # between two rays up to which they count as one


class Plane(NamedTuple):
    """The plane of the two leading left singular vectors, and where samples lie in it.

    Directions in the plane are angles to the first vector, in radians.

    Attributes
    ----------
    vectors : array (F, 2)
        Orthonormal; the first is the projection of the vector of ones.
    points : array (N, 2)
        The coordinates of the projected samples.
    energy : float
        Of ||V||^2, what the projection to the plane keeps.
    samples : (float, float)
        The smallest and the largest angle of a projected sample.
    cone : (float, float)
        Between these angles, and only there, vectors of the plane are nonnegative.
    lost : float
        The share of ||V||^2 by which the best nonnegative factors with components in the plane have
        a larger squared error than the projection to it; 0 if the rank-2 part is nonnegative.
    """

    vectors: Array
    points: Aligned
    energy: float
    samples: tuple[float, float]
    cone: tuple[float, float]
    lost: float

    @property
    def is_nonnegative(self) -> bool:
        """Whether the projected samples are nonnegative, to rounding."""
        return self.lost <= _LOST_SHARE

    @property
    def rays(self) -> tuple[float, float]:
        """The angles of the two components: the extreme samples, or the border of the cone."""
        low, high = self.cone
        smallest, largest = self.samples
        return float(np.clip(smallest, low, high)), float(np.clip(largest, low, high))


def leading_plane(V: DataMatrix, *, spectrum: Spectrum | None = None) -> Plane:
    """Return the plane of the two leading singular vectors of V; one pass after these.

    Parameters
    ----------
    V : DataMatrix (F, N)
        With two features and two samples or more.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> leading_plane(from_columns(np.diag([4.0, 3.0, 0.5]))).is_nonnegative
    True
    """
    require_data_matrix(V, nonzero=True)
    if min(V.shape) < 2:
        raise ComponentsError(
            f"a {V.shape[1]} x {V.shape[0]} matrix has no two singular vectors; use one component"
        )
    with V.own_threads():
        U, sigma, R = Spectrum.of(V, spectrum).truncated_svd(2)
        # The leading vector is nonnegative, so features and samples are on one side of a line
        # through 0, and no angle to the sum of the features is beyond pi.
        towards = U.sum(axis=0)
        cosine, sine = towards / np.hypot(*towards)
        turn = np.array([[cosine, -sine], [sine, cosine]])
        Q = U @ turn
        first, last = _extreme_angles(Q, _ZERO_NORM)
        low, high = last - np.pi / 2, first + np.pi / 2
        if low > high:  # rounding
            low = high = (low + high) / 2
        points, _ = V.map(_turned, R.T, turn=sigma[:, None] * turn)
        (samples,) = V.map(_angles, points, negligible=_ZERO_NORM * sigma[0], reduce=_wider)
        (lost,) = V.map(_lost, points, low=low, high=high)
    energy = float((sigma**2).sum())
    return Plane(Q, points, energy, samples, (float(low), float(high)), float(lost) / V.total)


def rank_two_factors(
    V: DataMatrix, *, spectrum: Spectrum | None = None, plane: Plane | None = None
) -> tuple[Array, Aligned]:
    """Return nonnegative factors W (F, 2) and H (2, N) with components in the leading plane.

    If the plane is nonnegative, W H is the best approximation of V of rank two, and no factors with
    two components have a smaller error. Otherwise they are the best of those whose components lie
    in the plane.

    Parameters
    ----------
    V : DataMatrix (F, N)
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    plane : Plane, optional
        That of V, if it is known.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = np.outer([1.0, 2.0, 2.0], [1.0, 0.0, 3.0]) + np.outer([2.0, 1.0, 0.0], [0.0, 2.0, 1.0])
    >>> W, H = rank_two_factors(from_columns(V))
    >>> np.allclose(W @ H, V)
    True
    """
    require_data_matrix(V, nonzero=True)
    plane = optional(instance, "plane", plane, Plane, "leading_plane(V)")
    plane = leading_plane(V, spectrum=spectrum) if plane is None else plane
    low, high = plane.rays
    directions = np.array([[np.cos(low), np.cos(high)], [np.sin(low), np.sin(high)]])
    W = plane.vectors @ directions
    W[_ZERO_ENTRY > W] = 0.0
    Ht, _ = V.map(_coordinates, plane.points, low=low, high=high, dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _turned(index: range, R: Array, *, turn: Array) -> tuple[Array, None]:
    return R @ turn, None


def _angles(index: range, points: Array, *, negligible: float) -> tuple[tuple[float, float]]:
    return (_extreme_angles(points, negligible),)


def _extreme_angles(points: Array, negligible: float) -> tuple[float, float]:
    """The smallest and the largest angle of points (n, 2) that are not zero to rounding."""
    kept = points[np.hypot(*points.T) > negligible]
    angles = np.arctan2(kept[:, 1], kept[:, 0])
    return float(angles.min(initial=np.inf)), float(angles.max(initial=-np.inf))


def _wider(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), max(a[1], b[1])


def _lost(index: range, points: Array, *, low: float, high: float) -> tuple[float]:
    """The squared distance of points to the cone between two angles."""
    angles = np.arctan2(points[:, 1], points[:, 0])
    outside = np.maximum(low - angles, angles - high).clip(0.0, np.pi / 2)
    return (float(((np.hypot(*points.T) * np.sin(outside)) ** 2).sum()),)


def _coordinates(
    index: range, points: Array, *, low: float, high: float, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    """The nonnegative coordinates of the nearest point of the cone, in terms of its two rays.

    A point of norm r at the angle t is r sin(high - t) / sin(high - low) times the one ray and
    r sin(t - low) / sin(high - low) times the other.
    """
    angles = np.arctan2(points[:, 1], points[:, 0])
    inside = np.clip(angles, low, high)
    size = np.hypot(*points.T) * np.cos(np.minimum(np.abs(angles - inside), np.pi / 2))
    if high - low <= _SAME_ANGLE:
        H = np.stack([size / 2, size / 2], axis=1)
    else:
        H = np.stack([np.sin(high - inside), np.sin(inside - low)], axis=1)
        H *= (size / np.sin(high - low))[:, None]
    return np.maximum(H, 0.0).astype(dtype), None

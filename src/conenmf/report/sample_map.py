"""The map of samples: components on a circle, and each sample between those it is made of.

The layout is an illustration: distances on it have no exact meaning. Similar components are
neighbours on the circle, and samples that would hide each other
take free places of a honeycomb, so that the size of a crowd shows how many they are. Where samples
have places already, such as those of UMAP, they are drawn there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..data.blocks import Array
from .charts import outline

# Lengths are in units of the radius of the circle of components.
_HALF_SIDE = 1.45  # of the honeycomb
_MEDIAN_RADIUS = 0.7  # at least this far from the middle should half of the samples be
_CROWD_AREA = 1.5  # of all samples when they touch
_MAX_SPACING = 0.05
_ROW_SPACING = 0.866  # of a honeycomb, in units of its spacing
_NUMBER_GAP = 0.1  # between a component's number and the circle, or the samples before it
_RIM_WIDTH = 0.08


@dataclass(frozen=True, eq=False)
class SampleMap:
    """Places on a plane.

    Attributes
    ----------
    anchors : array (K, 2)
        The components, on a circle of radius 1; none if the places were given.
    places : array (S, 2)
        The samples.
    """

    anchors: Array
    places: Array

    @classmethod
    def of(cls, shares: Array, similarity: Array) -> SampleMap:
        """Place each sample at the mean of the components it is made of.

        A component counts by its share in the sample compared with its share in the mean sample,
        so that a component present in all samples does not attract them all. With more than
        three components these ratios are raised to the lowest power that keeps mixtures from
        crowding in the middle, where any mixture could be. Then samples take the nearest free
        place of a honeycomb, the purest samples first.

        Parameters
        ----------
        shares : array (S, K)
            Rows sum to 1, or are 0.
        similarity : array (K, K)
            Of components; similar ones become neighbours.
        """
        S, K = shares.shape
        angles = np.empty(K)
        angles[round_tour(similarity)] = np.arange(K) * (2 * np.pi / K) - np.pi / 2
        anchors = np.stack([np.cos(angles), np.sin(angles)], axis=1) * (K > 1)
        mean = shares.mean(axis=0)
        ratios = np.divide(shares, mean, out=np.zeros_like(shares), where=mean > 0)
        ratios /= max(float(ratios.max()), 1.0)
        for power in (1, 2, 3, 4, 6, 8) if K > 3 else (1,):
            powers = ratios**power
            total = powers.sum(axis=1, keepdims=True)
            targets = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0) @ anchors
            if np.median(np.linalg.norm(targets, axis=1)) >= _MEDIAN_RADIUS:
                break
        cells = _honeycomb(_spacing(S))
        x, y = cells[:, 0].copy(), cells[:, 1].copy()
        places = np.empty((S, 2))
        for n in np.argsort(-shares.max(axis=1), kind="stable"):
            cell = int(np.argmin((x - targets[n, 0]) ** 2 + (y - targets[n, 1]) ** 2))
            places[n] = cells[cell]
            x[cell] = np.inf  # taken
        return cls(anchors, places)

    @classmethod
    def at(cls, coordinates: Array) -> SampleMap:
        """Draw samples at given coordinates (S, 2), the second one upwards, both to one scale."""
        low, high = coordinates.min(axis=0), coordinates.max(axis=0)
        half = max(float((high - low).max()), np.finfo(float).tiny) / 2
        return cls(np.zeros((0, 2)), (coordinates - (low + high) / 2) / half * (1, -1))

    @cached_property
    def numbers(self) -> Array:
        """The places (K, 2) of the components' numbers, outside the samples before them."""
        if not len(self.anchors):
            return self.anchors
        along = self.places @ self.anchors.T
        aside = np.abs(
            self.places[:, :1] * self.anchors[:, 1] - self.places[:, 1:] * self.anchors[:, 0]
        )
        before = np.where(aside < _RIM_WIDTH, along, 0.0).max(axis=0)
        return self.anchors * (np.maximum(before, 1.0) + _NUMBER_GAP)[:, None]

    @cached_property
    def half_side(self) -> float:
        """Half the side of a square that holds all samples and numbers."""
        return max(float(np.abs(np.vstack([self.numbers, self.places])).max()), 1.0) + _RIM_WIDTH

    def marks(self, labels: Array) -> list[tuple[int, str]]:
        """Return each label and the path that marks its samples, with the shape of the label."""
        marks = []
        for k in np.unique(labels).tolist():
            mark = outline(k, 0.42 * _spacing(len(self.places)))
            places = self.places[labels == k]
            marks.append((k, "".join(f"M{x:.3f} {y:.3f}{mark}" for x, y in places)))
        return marks

    @property
    def spokes(self) -> str:
        """The lines from the middle to the components."""
        return "".join(f"M0 0L{x:.3f} {y:.3f}" for x, y in self.anchors)

    @property
    def ring(self) -> float:
        """The radius of a ring round a sample."""
        return 0.67 * _spacing(len(self.places))


def round_tour(similarity: Array) -> Array:
    """Return an order of components in which the most similar one of those left is next."""
    tour, left = [0], set(range(1, len(similarity)))
    while left:
        tour.append(max(sorted(left), key=lambda k: similarity[tour[-1], k]))
        left.remove(tour[-1])
    return np.array(tour)


def _spacing(S: int) -> float:
    """Return the smallest distance of S samples."""
    return min(_MAX_SPACING, float(np.sqrt(_CROWD_AREA / _ROW_SPACING / max(S, 1))))


def _honeycomb(spacing: float) -> Array:
    """Return the centres of its cells."""
    last_row = int(_HALF_SIDE / spacing / _ROW_SPACING)
    last_column = int(_HALF_SIDE / spacing)
    rows = np.arange(-last_row, last_row + 1)
    columns = np.arange(-last_column, last_column + 1)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    centres = np.stack([(x + 0.5 * (y % 2)) * spacing, y * spacing * _ROW_SPACING], axis=-1)
    return centres.reshape(-1, 2)

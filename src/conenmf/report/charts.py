"""Charts and the map of samples, as SVG paths for the template.

A chart is an area that stretches with its frame. Its axes are text beside it, so lines stay thin
and text stays legible on any screen. On the map, components lie on a circle, and each sample
between the components that it uses; distances have no exact meaning. The style of the page sets the
colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike

from ..data.blocks import TINY, over
from ..text import visible
from ..types import Array, Facts, Pair

_N_COLOURS = 8
_SIDE = 1000  # units of SVG; a chart is drawn in a square of this side, then stretched
_MAX_LABEL = 12  # characters of a name on an axis
_MAX_BINS = 400  # points at which a long curve is drawn
_MAX_DATES = 8  # on an axis
_GAP = 20.0  # in median distances of neighbours: a curve is interrupted at larger gaps
_HEADROOM_RATIO = 1.05  # top of an axis over the largest value

# Outlines about as large as the unit circle; with colours, they distinguish components.
_SHAPES = (
    "m-{r} 0a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
    "m-{r} -{r}h{d}v{d}h-{d}z",
    "m0 -{r}l{r} {d}h-{d}z",
    "m0 -{r}l{r} {r}l-{r} {r}l-{r} -{r}z",
    "m0 {r}l{r} -{d}h-{d}z",
)


def colour(k: int) -> str:
    """Return the style for the colour of component k."""
    return "--colour:var(--none)" if k < 0 else f"--colour:var(--c{k % _N_COLOURS})"


def outline(k: int, size: float) -> str:
    """Return the shape of component k's mark as path commands relative to its centre."""
    shape = _SHAPES[max(k, 0) // _N_COLOURS % len(_SHAPES)]
    return shape.format(r=f"{size:.3g}", d=f"{2 * size:.3g}")


# --- charts -------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """A range of numbers, or the integers from 0 on with individual or group names.

    `groups` contains the centre and the name of each group of neighbours, or positions and dates.
    """

    name: str
    low: float
    high: float
    labels: Sequence[str] = ()
    groups: Sequence[tuple[float, str]] = ()

    def place(self, values: ArrayLike) -> Array:
        """Return positions of values: 0 at `low`, 1 at `high`."""
        span = self.high - self.low
        values = np.asarray(values, dtype=float)
        return (values - self.low) / span if span > 0 else np.full(values.shape, 0.5)

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions and texts of about five round numbers within the range."""
        marks = self.groups or self._round_numbers()
        return [(float(self.place(value)), text) for value, text in marks]

    def _round_numbers(self) -> list[tuple[float, str]]:
        spacing = (self.high - self.low) / 5 or 1.0
        power = 10.0 ** np.floor(np.log10(spacing))
        for factor in (1, 2, 5, 10):
            step = factor * power
            if step >= spacing * 0.999:
                break
        first = np.ceil(self.low / step - 1e-9)
        values = np.arange(first, self.high / step + 1e-9) * step
        if not self.labels:
            return [(value, f"{value + 0.0:.6g}") for value in values]
        places = [int(value) for value in values if value == int(value) < len(self.labels)]
        return [(place, visible(self.labels[place], _MAX_LABEL)) for place in places]


def value_axis(highest: float) -> Axis:
    """Return an axis from 0 to somewhat above the highest value."""
    return Axis("value", 0.0, highest * _HEADROOM_RATIO or 1.0)


def date_axis(times: Array) -> tuple[Array, Axis]:
    """Return dates and times in seconds, and an axis with the starts of years, months, ...

    >>> date_axis(np.array(["2001-11-05", "2002-02-20"], "datetime64[s]"))[1].ticks()[0][1]
    '2001-12'
    """
    first = np.fmin.reduce(times)
    last = np.fmax.reduce(times)
    ends = np.array([first, last])
    for unit in "YMDhms":
        begin, end = ends.astype(f"datetime64[{unit}]")
        starts = np.append(np.arange(begin, end), end)  # a date plus a number is deprecated
        starts = starts[starts >= first]
        if starts.size > 2:
            break
    starts = starts[:: 1 + starts.size // _MAX_DATES]
    places = starts.astype(times.dtype).astype(float).tolist()
    groups = list(zip(places, map(str, starts), strict=True))
    seconds = np.where(np.isnat(times), np.nan, times.astype(float))
    return seconds, Axis("date", np.nanmin(seconds), np.nanmax(seconds), groups=groups)


class Mark(NamedTuple):
    """A path in a chart: its commands, style class, component and own style."""

    path: str
    class_: str
    k: int | None = None
    style: str = ""


class Chart(NamedTuple):
    """A drawing in a frame with axes; `texts` describe the points (x, y)."""

    label: str
    x: Axis
    y: Axis
    marks: list[Mark]
    id: str = ""
    points: Pair = (np.zeros(0), np.zeros(0))
    texts: Sequence[str] = ()

    def data(self) -> Facts:
        """Return the points for the script."""
        x = self.x.place(self.points[0])
        y = self.y.place(self.points[1]).clip(0, 1)
        return {"x": x.round(4).tolist(), "y": y.round(4).tolist(), "text": self.texts}


def bars(x: Array, heights: Array, width: float) -> str:
    """Return bars centred at x; positions are between 0 and 1."""
    path = ""
    for left, gap in zip(x - width / 2, 1 - heights, strict=True):
        path += f"M{_at(left)} {_SIDE}V{_at(gap)}h{_at(width)}V{_SIDE}z"
    return path


def whiskers(x: Array, lows: Array, highs: Array) -> str:
    """Return vertical lines at x; positions are between 0 and 1."""
    path = ""
    for place, start, end in zip(x, 1 - lows, 1 - highs, strict=True):
        path += f"M{_at(place)} {_at(start)}V{_at(end)}"
    return path


def _at(place: float) -> str:
    return f"{_SIDE * place:.1f}".removesuffix(".0")


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{_at(a)} {_at(b)}" for a, b in zip(x, 1 - y, strict=True))


class Curve:
    """The points of curves over features or samples: bins of consecutive ones.

    Features or samples without a position (NaN) are left out. If the axis is only a title, it leads
    from the first point to the last.

    Parameters
    ----------
    positions : array
    name : function
        Names a feature or sample by its index.
    axis : Axis or str
    """

    def __init__(self, positions: Array, name: Callable[[int], str], axis: Axis | str) -> None:
        size = int(np.isfinite(positions).sum())
        self._order = np.argsort(positions, kind="stable")[:size]
        count = size if size <= 2 * _MAX_BINS else _MAX_BINS
        self._starts = np.linspace(0, size, count + 1).astype(np.intp)[:-1]
        self.x = positions[self._order][self._starts]
        self.axis = Axis(axis, self.x[0], self.x[-1]) if isinstance(axis, str) else axis
        self._name = name

    def highs(self, values: Array) -> Array:
        """Return the largest value in each bin."""
        return np.maximum.reduceat(values[self._order], self._starts)

    @cached_property
    def names(self) -> list[str]:
        """The name of each bin."""
        names = [self._name(f) for f in self._order[self._starts].tolist()]
        return names if self.x.size == self._order.size else [f"from {one}" for one in names]

    def path(self, values: Array, y: Axis) -> str:
        """Return the curve as a line through the peaks of bins.

        It has gaps where values are NaN, and where positions are far apart.
        """
        places = self.axis.place(self.x)
        heights = y.place(self.highs(values))
        is_known = np.isfinite(heights)
        steps = np.diff(self.x)
        is_gap = steps > _GAP * np.median(steps) if steps.size else steps > 0
        ends = 1 + np.flatnonzero(np.diff(is_known) | is_gap)
        path = ""
        for part in np.split(np.arange(is_known.size), ends):
            if is_known[part[0]]:
                path += f"M{_points(places[part], heights[part])}"
        return path or "M0 0"

    def band(self, lower: Array, upper: Array, y: Axis) -> str:
        """Return the area between two curves, clipped to the chart."""
        places = self.axis.place(self.x)
        high = y.place(self.highs(upper)).clip(0, 1)
        low = y.place(-self.highs(-lower)).clip(0, 1)
        return f"M{_points(places, high)} {_points(places[::-1], low[::-1])}z"

    def chart(
        self,
        label: str,
        y: Axis,
        marks: list[Mark],
        id_: str,
        highs: Array,
        texts: Sequence[str] = (),
    ) -> Chart:
        """Return a chart with texts at the highs of bins; by default names and highs."""
        if not texts:
            texts = [f"{name}: {high:.3g}" for name, high in zip(self.names, highs, strict=True)]
        return Chart(label, self.axis, y, marks, id_, (self.x, highs), texts)


# --- the map of samples -------------------------------------------------------------------------

# Lengths are in units of the radius of the circle of components.
_MEDIAN_RADIUS = 0.7  # smallest distance from the centre that half of the samples should have
_CROWD_RADIUS = 0.12  # of the disc of equal samples
_GOLDEN_ANGLE = np.pi * (3 - math.sqrt(5))  # of a spiral that fills a disc evenly
_MAX_SPACING = 0.05
_RIM_WIDTH = 0.08


class SampleMap:
    """Positions of samples (S, 2) on a plane, and of components around them, (K, 2) or none.

    Attributes
    ----------
    places, anchors : arrays
    numbers : array (K, 2)
        Where the numbers of components are written: outside all samples.
    half_side : float
        Half the side of a square that contains all samples and numbers.
    spacing : float
        The size of the mark of a sample.
    """

    def __init__(self, places: Array, anchors: Array) -> None:
        self.places = places
        self.anchors = anchors
        self.spacing = min(_MAX_SPACING, 1 / math.sqrt(len(places)))
        self.numbers = anchors * (1 + _CROWD_RADIUS + _RIM_WIDTH)
        self.half_side = 1 + _CROWD_RADIUS + 2 * _RIM_WIDTH

    def marks(self, labels: Array) -> list[tuple[int, str]]:
        """Return each label with a path that marks its samples, in the shape of the label."""
        marks = []
        for k in np.unique(labels).tolist():
            mark = outline(k, 0.42 * self.spacing)
            path = ""
            for x, y in self.places[labels == k]:
                path += f"M{x:.3f} {y:.3f}{mark}"
            marks.append((k, path))
        return marks


def map_of(shares: Array, similarity: Array) -> SampleMap:
    """Place each sample at the weighted mean of the components that it uses.

    The weight of a component is its share in the sample over its share in the mean sample, so a
    component present in all samples does not attract them all. With more than three components,
    these ratios are raised to the lowest power that keeps mixtures from crowding in the centre,
    where any mixture could be. Samples are moved along a spiral, so equal ones form a disc.

    Parameters
    ----------
    shares : array (S, K)
        Rows sum to 1, or are 0.
    similarity : array (K, K)
        Similarity of components; similar ones become neighbours.
    """
    S, K = shares.shape
    anchors = _circle(round_tour(similarity)) * (K > 1)
    ratios = rows_to_one(shares / np.maximum(shares.mean(axis=0), TINY))
    for power in (1, 2, 3, 4, 6, 8) if K > 3 else (1,):
        targets = rows_to_one(ratios**power) @ anchors
        if np.median(norm(targets, axis=1)) >= _MEDIAN_RADIUS:
            break
    turns = _GOLDEN_ANGLE * np.arange(S)
    spiral = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    radii = _CROWD_RADIUS * np.sqrt(np.arange(S) / S)
    return SampleMap(targets + spiral * radii[:, None], anchors)


def _circle(tour: Array) -> Array:
    """Return places on the unit circle, the first of the tour at the top."""
    K = len(tour)
    angles = np.empty(K)
    angles[tour] = np.arange(K) * (2 * np.pi / K) - np.pi / 2
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def rows_to_one(rows: Array) -> Array:
    """Return rows scaled to a sum of 1; rows of zeros stay zero."""
    return over(rows, rows.sum(axis=1, keepdims=True))


def round_tour(similarity: Array) -> Array:
    """Return an order of components in which each is followed by the most similar remaining one."""
    tour = [0]
    remaining = list(range(1, len(similarity)))
    while remaining:
        own = similarity[tour[-1], remaining]
        tour.append(remaining.pop(int(own.argmax())))
    return np.array(tour)

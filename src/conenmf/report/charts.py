"""Charts: axes, and paths of SVG for the template to draw.

A chart is an area that stretches with its frame, with its axes as text beside it, so that lines
stay thin and text stays legible on any screen. Colours are left to the style of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..text import visible

N_COLOURS = 8
_SIDE = 1000  # units of SVG; a chart is drawn in a square of this side, and stretched
_MAX_LABEL = 12  # characters of a name on an axis
_MAX_BINS = 400  # places at which a long curve is drawn

# Outlines of about the unit circle's size: with the colour, they distinguish components.
_SHAPES = (
    ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    ((0.0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    ((0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)),
    ((0.0, 1.1), (1.05, -0.8), (-1.05, -0.8)),
)


def colour(k: int) -> str:
    """Return the style that gives an element the colour of component k."""
    return "--colour:var(--none)" if k < 0 else f"--colour:var(--c{k % N_COLOURS})"


def outline(k: int, size: float) -> str:
    """Return the shape of component k's mark as path commands relative to its middle."""
    number = (max(k, 0) // N_COLOURS) % (len(_SHAPES) + 1)
    if number == 0:
        r, across = f"{size:.3g}", f"{2 * size:.3g}"
        return f"m-{r} 0a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0 -{across} 0z"
    corners = np.array(_SHAPES[number - 1]) * size
    steps = " ".join(f"{x:.3g} {y:.3g}" for x, y in (b - a for a, b in pairwise(corners)))
    return f"m{corners[0, 0]:.3g} {corners[0, 1]:.3g}l{steps}z"


@dataclass(frozen=True)
class Axis:
    """A range of numbers mapped to 0 to 1, linearly or by logarithms.

    Attributes
    ----------
    name : str
        Its title.
    low, high : float
        The ends of the range.
    log : bool
        Whether by logarithms; then `low` is positive.
    labels : tuple of str
        Names of the integers from 0 on, to write instead of numbers.
    """

    name: str
    low: float
    high: float
    log: bool = False
    labels: tuple[str, ...] = ()

    def place(self, values: Any) -> Array:
        """Return where values lie between the ends: 0 at `low`, 1 at `high`."""
        low, high, scaled = self.low, self.high, np.asarray(values, dtype=np.float64)
        if self.log:
            scaled = np.log(np.maximum(scaled, low))
            low, high = float(np.log(low)), float(np.log(high))
        if not high > low:
            return np.full(scaled.shape, 0.5)
        return (scaled - low) / (high - low)

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Return the places and texts of about `count` round numbers within the range."""
        values = self._round_numbers(count)
        if self.labels:
            whole = [int(value) for value in values if value == int(value) < len(self.labels)]
            return [(float(self.place(v)), visible(self.labels[v], _MAX_LABEL)) for v in whole]
        texts = {f"{value + 0.0:.6g}": float(self.place(value)) for value in values}
        return [(place, text) for text, place in texts.items()]

    def _round_numbers(self, count: int) -> Array:
        if not self.high > self.low:
            return np.array([self.low])
        if self.log and self.high / self.low > 50:
            first, last = np.ceil(np.log10(self.low)), np.floor(np.log10(self.high))
            step = max(1, int(np.ceil((last - first + 1) / count)))
            powers: Array = 10.0 ** np.arange(first, last + 1, step)
            if powers.size >= 3:
                return powers
            values = np.outer(10.0 ** np.arange(first - 1, last + 1), (1, 2, 5)).ravel()
            return np.array([v for v in values if self.low <= v <= self.high])
        spacing = (self.high - self.low) / count
        power = 10.0 ** np.floor(np.log10(spacing))
        step = power * next(m for m in (1, 2, 5, 10) if m * power >= spacing * 0.999)
        steps = np.arange(np.ceil(self.low / step - 1e-9), self.high / step + 1e-9)
        return np.asarray(steps * step)


@dataclass(frozen=True)
class Mark:
    """A path in a chart: its commands, its class in the style, and the component it belongs to."""

    path: str
    class_: str
    k: int | None = None


@dataclass(frozen=True)
class Chart:
    """A drawing in a frame with axes.

    Attributes
    ----------
    label : str
        What the chart shows, for screen readers.
    x, y : Axis
    marks : list of Mark
    id : str, optional
        By which the script finds it.
    points : tuple of arrays and texts, optional
        Where the chart can be pointed at: places x and y, and what to say there.
    """

    label: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    id: str = ""
    points: tuple[Array, Array, Sequence[str]] | None = None

    def data(self) -> dict[str, Any]:
        """Return the points for the script."""
        assert self.points is not None
        x, y, texts = self.points
        places = {"x": self.x.place(x), "y": np.clip(self.y.place(y), 0, 1)}
        return {name: np.round(one, 4).tolist() for name, one in places.items()} | {"text": texts}


def line(x: Array, y: Array) -> str:
    """Return a line through points between 0 and 1, with a gap where one is NaN."""
    known = np.isfinite(y)
    starts = known & ~np.append(False, known[:-1])
    points = [
        f"{'M' if starts[place] else ''}{_at(x[place])} {_at(1 - y[place])}"
        for place in np.flatnonzero(known)
    ]
    return " ".join(points) or "M0 0"


def dots(x: Array, y: Array) -> str:
    """Return points between 0 and 1; as lines of length 0 they stay round when stretched."""
    return "".join(f"M{_at(a)} {_at(1 - b)}h0" for a, b in zip(x, y, strict=True))


def bars(x: Array, heights: Array, width: float) -> str:
    """Return bars centred at x."""
    return "".join(
        f"M{_at(a - width / 2)} {_SIDE}V{_at(1 - b)}h{_at(width)}V{_SIDE}z"
        for a, b in zip(x, heights, strict=True)
    )


def level(y: float) -> str:
    """Return a line across the chart."""
    return f"M0 {_at(1 - y)}H{_SIDE}"


def upright(x: float) -> str:
    """Return a line from the bottom to the top of the chart."""
    return f"M{_at(x)} 0V{_SIDE}"


def _at(place: float) -> str:
    return f"{_SIDE * float(place):.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Curve:
    """The places at which a curve over features or samples is drawn: bins of consecutive ones.

    Attributes
    ----------
    order : array (F,)
        The features from left to right.
    starts : array (B,)
        Where in `order` each bin starts.
    x : array (B,)
        The position of each bin's first feature.
    """

    order: Array
    starts: Array
    x: Array

    @classmethod
    def over(cls, positions: Array) -> Curve:
        """Make a bin of each feature, or as many bins as a screen can show."""
        order = np.argsort(positions, kind="stable")
        count = positions.size if positions.size <= 2 * _MAX_BINS else _MAX_BINS
        starts = np.linspace(0, positions.size, count + 1).astype(np.intp)[:-1]
        return cls(order, starts, positions[order][starts])

    @property
    def thinned(self) -> bool:
        """Whether a bin represents several features."""
        return self.starts.size < self.order.size

    def highs(self, values: Array) -> Array:
        """Return the largest value in each bin."""
        return np.maximum.reduceat(values[self.order], self.starts)

    def lows(self, values: Array) -> Array:
        """Return the smallest value in each bin."""
        return np.minimum.reduceat(values[self.order], self.starts)

    def named(self, name: Any) -> list[str]:
        """Return what each bin is called, given the name of a feature by its index."""
        first = [name(int(f)) for f in self.order[self.starts]]
        if not self.thinned:
            return first
        ends = np.append(self.starts[1:], self.order.size) - 1
        last: Iterable[str] = (name(int(f)) for f in self.order[ends])
        return [f"{a} to {b}" for a, b in zip(first, last, strict=True)]

    def path(self, values: Array, x: Axis, y: Axis) -> str:
        """Return the curve as a line that touches the extremes of each bin."""
        places, high = x.place(self.x), y.place(self.highs(values))
        if not self.thinned:
            return line(places, high)
        both = np.stack([y.place(self.lows(values)), high], axis=1).ravel()
        return line(np.repeat(places, 2), both)

    def band(self, lower: Array, upper: Array, x: Axis, y: Axis) -> str:
        """Return the area between two curves, as far as it is in the chart."""
        places = x.place(self.x)
        high = np.clip(y.place(self.highs(upper)), 0, 1)
        low = np.clip(y.place(self.lows(lower)), 0, 1)
        around, ends = np.append(places, places[::-1]), np.append(high, low[::-1])
        points = " ".join(f"{_at(a)} {_at(1 - b)}" for a, b in zip(around, ends, strict=True))
        return f"M{points}z"

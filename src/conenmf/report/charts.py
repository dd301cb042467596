"""Charts as SVG, drawn without a plotting library so that pages stay small.

A chart is an area that stretches with its frame, with its axes as text beside it, so that lines
stay thin and text stays legible on any screen. Colours are left to the style of the page: what
belongs to component k has the class ``c`` and the colour number k modulo `N_COLOURS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..data.blocks import Array
from ..markup import Html, element, join, style

__all__ = [
    "N_COLOURS",
    "Axis",
    "Curve",
    "bars",
    "chart",
    "colour",
    "dots",
    "glyph",
    "level",
    "line",
    "shape",
    "upright",
]

N_COLOURS = 8
_SIDE_UNITS = 1000.0  # units of SVG; a chart is drawn in a square of this side, and stretched
_MAX_BINS = 400  # places at which a long curve is drawn


# --- marks of components ----------------------------------------------------------------------


def colour(k: int) -> str:
    """Return the style that gives an element the colour of component k."""
    return style(colour="var(--none)" if k < 0 else f"var(--c{k % N_COLOURS})")


# Outlines of about the unit circle's size: with the colour, they distinguish components.
_SHAPES = (
    ((1.0, 0.0),),
    ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    ((0.0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    ((0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)),
    ((0.0, 1.1), (1.05, -0.8), (-1.05, -0.8)),
)


def shape(k: int, size: float) -> str:
    """Return the outline of component k's mark as path commands relative to its middle."""
    outline = np.array(_SHAPES[(max(k, 0) // N_COLOURS) % len(_SHAPES)]) * size
    if len(outline) == 1:
        r = f"{size:.3g}"
        return f"m-{r} 0a{r} {r} 0 1 0 {2 * size:.3g} 0a{r} {r} 0 1 0 -{2 * size:.3g} 0z"
    steps = " ".join(f"{x:.3g} {y:.3g}" for x, y in (b - a for a, b in pairwise(outline)))
    return f"m{outline[0, 0]:.3g} {outline[0, 1]:.3g}l{steps}z"


def glyph(k: int) -> Html:
    """Return component k's mark for a line of text."""
    return element(
        "svg",
        element("path", d="M7 7" + shape(k, 5)),
        viewBox="0 0 14 14",
        class_="glyph",
        style=colour(k),
        aria_hidden="true",
        focusable="false",
    )


# --- axes and charts --------------------------------------------------------------------------


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
    """

    name: str
    low: float
    high: float
    log: bool = False

    def place(self, values: Array) -> Array:
        """Return where values lie between the ends: 0 at `low`, 1 at `high`."""
        low, high = np.log([self.low, self.high]) if self.log else (self.low, self.high)
        scaled = np.log(np.maximum(values, self.low)) if self.log else np.asarray(values)
        places: Array = (scaled - low) / (high - low) if high > low else np.full(scaled.shape, 0.5)
        return places

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Return the places and texts of about `count` round numbers within the range."""
        if self.log and self.high / self.low > 50:
            first, last = np.ceil(np.log10(self.low)), np.floor(np.log10(self.high))
            step = max(1, int(np.ceil((last - first + 1) / count)))
            values = 10.0 ** np.arange(first, last + 1, step)
            if values.size < 3:
                values = np.multiply.outer(
                    10.0 ** np.arange(first - 1, last + 1), (1, 2, 5)
                ).ravel()
                values = values[(values >= self.low) & (values <= self.high)]
        elif not self.high > self.low:
            values = np.array([self.low])
        else:
            spacing = (self.high - self.low) / count
            power = 10.0 ** np.floor(np.log10(spacing))
            step = power * next(m for m in (1, 2, 5, 10) if m * power >= spacing * 0.999)
            values = np.arange(np.ceil(self.low / step - 1e-9), self.high / step + 1e-9) * step
        return [
            (float(place), f"{v + 0.0:.6g}")
            for v, place in zip(values, self.place(values), strict=True)
        ]


def chart(drawing: Html, x: Axis, y: Axis, *, label: str, id_: str | None = None) -> Html:
    """Return a drawing in a frame with axes.

    Parameters
    ----------
    drawing : Html
        What `line`, `dots`, `bars`, `level` and `upright` return, joined.
    x, y : Axis
    label : str
        What the chart shows, for screen readers.
    id_ : str, optional
        The id of the chart, by which the script finds it.
    """
    grid = join(
        element("path", d=f"M0 {_at(1 - place)}H{_SIDE_UNITS:.0f}", class_="grid")
        for place, _ in y.ticks()
    )
    return element(
        "div",
        element(
            "div",
            *(element("span", text, style=style(at=_percent(p))) for p, text in y.ticks()),
            class_="y axis",
            aria_hidden="true",
        ),
        element(
            "div",
            element(
                "svg",
                grid,
                drawing,
                viewBox=f"0 0 {_SIDE_UNITS:.0f} {_SIDE_UNITS:.0f}",
                preserveAspectRatio="none",
                aria_hidden="true",
                focusable="false",
            ),
            class_="area",
        ),
        element(
            "div",
            *(element("span", text, style=style(at=_percent(p))) for p, text in x.ticks()),
            class_="x axis",
            aria_hidden="true",
        ),
        element("div", x.name, class_="x name", aria_hidden="true"),
        class_="chart",
        id=id_,
        role="img",
        aria_label=label,
    )


def line(x: Array, y: Array, class_: str) -> Html:
    """Return a line through points between 0 and 1, with a gap where one is NaN."""
    known = np.isfinite(y)
    starts = known & ~np.append(False, known[:-1])
    points = " ".join(
        f"{'M' if first else ''}{_at(a)} {_at(1 - b)}"
        for a, b, there, first in zip(x, y, known, starts, strict=True)
        if there
    )
    return element("path", d=points or "M0 0", class_=f"line {class_}")


def dots(x: Array, y: Array, class_: str) -> Html:
    """Return points between 0 and 1; as lines of length 0 they stay round when stretched."""
    points = "".join(f"M{_at(a)} {_at(1 - b)}h0" for a, b in zip(x, y, strict=True))
    return element("path", d=points, class_=f"dots {class_}")


def level(y: float, class_: str) -> Html:
    """Return a line across the chart."""
    return element("path", d=f"M0 {_at(1 - y)}H{_SIDE_UNITS:.0f}", class_=f"line {class_}")


def upright(x: float, class_: str) -> Html:
    """Return a line from the bottom to the top of the chart."""
    return element("path", d=f"M{_at(x)} 0V{_SIDE_UNITS:.0f}", class_=f"line {class_}")


def bars(x: Array, heights: Array, width: float, class_: str) -> Html:
    """Return bars centred at x."""
    outlines = "".join(
        f"M{_at(a - width / 2)} {_SIDE_UNITS:.0f}V{_at(1 - b)}h{_at(width)}V{_SIDE_UNITS:.0f}z"
        for a, b in zip(x, heights, strict=True)
    )
    return element("path", d=outlines, class_=class_)


def _at(place: float) -> str:
    return f"{_SIDE_UNITS * float(place):.1f}".removesuffix(".0")


def _percent(place: float) -> str:
    return f"{100 * place:.2f}%"


# --- curves -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """The places at which a curve over the features is drawn: bins of consecutive features.

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
        count = min(positions.size, _MAX_BINS if positions.size > 2 * _MAX_BINS else positions.size)
        starts = np.linspace(0, positions.size, count + 1).astype(np.intp)[:-1]
        return cls(order, starts, positions[order][starts])

    @property
    def thinned(self) -> bool:
        """Whether a bin represents several features."""
        return self.starts.size < self.order.size

    def highs(self, values: Array) -> Array:
        """Return the largest value in each bin."""
        highs: Array = np.maximum.reduceat(values[self.order], self.starts)
        return highs

    def path(self, values: Array, x: Axis, y: Axis, class_: str) -> Html:
        """Return the curve as a line that touches the extremes of each bin."""
        places = x.place(self.x)
        high = y.place(self.highs(values))
        if not self.thinned:
            return line(places, high, class_)
        low = y.place(np.minimum.reduceat(values[self.order], self.starts))
        both = np.stack([low, high], axis=1).ravel()
        return line(np.repeat(places, 2), both, class_)

    def band(self, lower: Array, upper: Array, x: Axis, y: Axis) -> Html:
        """Return the area between two curves, as far as it is in the chart."""
        places = x.place(self.x)
        high = np.clip(y.place(self.highs(upper)), 0, 1)
        low = np.clip(y.place(np.minimum.reduceat(lower[self.order], self.starts)), 0, 1)
        ends = (np.append(places, places[::-1]), np.append(high, low[::-1]))
        points = " ".join(f"{_at(a)} {_at(1 - b)}" for a, b in zip(*ends, strict=True))
        return element("path", d=f"M{points}z", class_="band")

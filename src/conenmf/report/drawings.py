"""Drawings for pages: charts and maps as SVG, images as PNG, small enough to be sent.

A chart is an area that stretches with its frame, with its axes as text beside it, so that lines
stay thin and text stays legible on any screen. Colours are left to the style of the page: what
belongs to component k has the class ``c`` and the colour number k modulo `COLOURS`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..data.blocks import Array
from .markup import Html, data_uri, element, join, style

__all__ = [
    "COLOURS",
    "LEVELS",
    "Axis",
    "Curve",
    "bars",
    "chart",
    "colour",
    "dots",
    "extent",
    "glyph",
    "heat_map",
    "level",
    "line",
    "numbered",
    "picture",
    "round_tour",
    "sample_map",
    "shape",
    "shrunk",
    "spread_out",
    "upright",
]

COLOURS = 8
SIDE = 1000.0  # a chart is drawn in a square of this side, and stretched

_BINS = 400  # places at which a long curve is kept
LEVELS = 6  # of colour on either side of the threshold in a heat map


def colour(k: int) -> str:
    """The style that gives an element the colour of component k."""
    return style(colour="var(--none)" if k < 0 else f"var(--c{k % COLOURS})")


# --- axes and charts --------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """A range of numbers laid out from 0 to 1, linearly or by logarithms."""

    name: str
    low: float
    high: float
    log: bool = False

    def place(self, values: Array) -> Array:
        """Where numbers lie between the ends."""
        low, high = np.log([self.low, self.high]) if self.log else (self.low, self.high)
        inside = np.log(np.maximum(values, self.low)) if self.log else np.asarray(values)
        placed: Array = (inside - low) / (high - low) if high > low else np.full(inside.shape, 0.5)
        return placed

    def ticks(self, about: int = 5) -> list[tuple[float, str]]:
        """Round numbers within the range, and how to write them."""
        if self.log and self.high / self.low > 50:
            first, last = np.ceil(np.log10(self.low)), np.floor(np.log10(self.high))
            step = max(1, int(np.ceil((last - first + 1) / about)))
            values = 10.0 ** np.arange(first, last + 1, step)
        elif not self.high > self.low:
            values = np.array([self.low])
        else:
            rough = (self.high - self.low) / about
            size = 10.0 ** np.floor(np.log10(rough))
            step = size * next(m for m in (1, 2, 5, 10) if m * size >= rough * 0.999)
            values = np.arange(np.ceil(self.low / step - 1e-9), self.high / step + 1e-9) * step
        return [
            (float(place), f"{v + 0.0:.6g}")
            for v, place in zip(values, self.place(values), strict=True)
        ]


def chart(
    inside: Html,
    x: Axis,
    y: Axis,
    *,
    label: str,
    id_: str | None = None,
) -> Html:
    """Put a frame with axes round what is drawn in the square.

    Parameters
    ----------
    inside : Html
        SVG, in a square of side `SIDE`.
    x, y : Axis
    label : str
        What there is to see, for those who do not.
    """
    grid = join(
        element("path", d=f"M0 {_at(1 - place)}H{SIDE:.0f}", class_="grid")
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
                inside,
                viewBox=f"0 0 {SIDE:.0f} {SIDE:.0f}",
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
    """A line through points between 0 and 1."""
    points = " ".join(f"{_at(a)} {_at(1 - b)}" for a, b in zip(x, y, strict=True))
    return element("path", d=f"M{points}", class_=f"line {class_}")


def dots(x: Array, y: Array, class_: str) -> Html:
    """Points between 0 and 1; as ends of lines without length they stay round when stretched."""
    points = "".join(f"M{_at(a)} {_at(1 - b)}h0" for a, b in zip(x, y, strict=True))
    return element("path", d=points, class_=f"dots {class_}")


def level(y: float, class_: str) -> Html:
    """A line across the chart."""
    return element("path", d=f"M0 {_at(1 - y)}H{SIDE:.0f}", class_=f"line {class_}")


def upright(x: float, class_: str) -> Html:
    """A line from the bottom to the top of the chart."""
    return element("path", d=f"M{_at(x)} 0V{SIDE:.0f}", class_=f"line {class_}")


def bars(x: Array, heights: Array, width: float, class_: str) -> Html:
    """Bars round their places."""
    outlines = "".join(
        f"M{_at(a - width / 2)} {SIDE:.0f}V{_at(1 - b)}h{_at(width)}V{SIDE:.0f}z"
        for a, b in zip(x, heights, strict=True)
    )
    return element("path", d=outlines, class_=class_)


def _at(place: float) -> str:
    return f"{SIDE * float(place):.1f}".removesuffix(".0")


def _percent(place: float) -> str:
    return f"{100 * place:.2f}%"


# --- curves -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """The places at which long curves are kept: bins of consecutive features."""

    order: Array
    starts: Array
    x: Array

    @classmethod
    def over(cls, positions: Array) -> Curve:
        """Keep every feature, or the extremes of as many bins as a screen can show."""
        order = np.argsort(positions, kind="stable")
        count = min(positions.size, _BINS if positions.size > 2 * _BINS else positions.size)
        starts = np.linspace(0, positions.size, count + 1).astype(np.intp)[:-1]
        return cls(order, starts, positions[order][starts])

    @property
    def thinned(self) -> bool:
        """Whether a bin stands for several features."""
        return self.starts.size < self.order.size

    def highs(self, values: Array) -> Array:
        """The largest value in each bin."""
        found: Array = np.maximum.reduceat(values[self.order], self.starts)
        return found

    def path(self, values: Array, x: Axis, y: Axis, class_: str) -> Html:
        """The curve as a line, which touches the extremes of each bin."""
        places = x.place(self.x)
        high = y.place(self.highs(values))
        if not self.thinned:
            return line(places, high, class_)
        low = y.place(np.minimum.reduceat(values[self.order], self.starts))
        both = np.stack([low, high], axis=1).ravel()
        return line(np.repeat(places, 2), both, class_)


# --- images -----------------------------------------------------------------------------------


def shrunk(image: Array, factor: int) -> Array:
    """Means over squares of pixels; what is left over at the ends is cut off."""
    high, wide = (min(factor, side) for side in image.shape)
    rows, columns = image.shape[0] // high, image.shape[1] // wide
    squares = image[: rows * high, : columns * wide].reshape(rows, high, columns, wide)
    means: Array = squares.mean(axis=(1, 3))
    return means


def picture(image: Array, top: float) -> str:
    """An image as the address of an 8-bit grey PNG; black is 0, white is `top`."""
    scaled = np.clip(image * (255.0 / top if top > 0 else 0.0), 0, 255).round().astype(np.uint8)
    rows, columns = scaled.shape
    lines = np.empty((rows, columns + 1), dtype=np.uint8)
    lines[:, 0] = 1  # each pixel is stored as the difference from its left neighbour
    lines[:, 1] = scaled[:, 0]
    lines[:, 2:] = scaled[:, 1:] - scaled[:, :-1]
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    return data_uri("image/png", b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


# --- angles between cones ---------------------------------------------------------------------


def heat_map(angles: Array, threshold: float) -> Html:
    """Squares coloured by how far an angle is from the threshold; too small ones have a dot.

    Below the threshold, or a right angle if that is less, colours deepen towards 0; above it
    towards a right angle.
    """
    K = angles.shape[0]
    apart = ~np.eye(K, dtype=bool)
    middle = min(threshold, np.pi / 2)
    close = (angles <= threshold) & apart
    reach = np.where(close, middle, np.pi / 2 - middle)
    share = np.divide(np.abs(angles - middle), reach, out=np.ones_like(angles), where=reach > 0)
    levels = np.clip(np.ceil(share * LEVELS), 1, LEVELS).astype(int)
    levels = np.where(close, -levels, levels)
    squares = []
    for value in (*range(-LEVELS, 0), *range(1, LEVELS + 1)):
        rows, columns = np.nonzero((levels == value) & apart)
        if rows.size:
            d = "".join(f"M{c} {r}h1v1h-1z" for r, c in zip(rows, columns, strict=True))
            class_ = f"{'close' if value < 0 else 'apart'} l{abs(value)}"
            squares.append(element("path", d=d, class_=class_))
    rows, columns = np.nonzero(close)
    marks = "".join(f"M{c + 0.5} {r + 0.5}h0" for r, c in zip(rows, columns, strict=True))
    return element(
        "svg",
        *squares,
        element("path", d=marks, class_="mark") if marks else None,
        viewBox=f"0 0 {K} {K}",
        aria_hidden="true",
        focusable="false",
    )


# --- samples on a plane -----------------------------------------------------------------------

_REACH = 1.45  # half the side of the map; components lie on a circle of radius 1
_OUTWARD = 0.7  # how far from the middle half of the samples shall be
_CROWD = 1.5  # area that samples take when they touch


def round_tour(similarity: Array) -> Array:
    """An order of components on a circle in which similar ones are neighbours.

    A tour from each to its most similar one that is left, then reversals of parts of it for as
    long as they help.
    """
    K = similarity.shape[0]
    tour, left = [0], set(range(1, K))
    while left:
        tour.append(max(sorted(left), key=lambda k: similarity[tour[-1], k]))
        left.remove(tour[-1])
    improved = K > 3
    while improved:
        improved = False
        for i in range(K - 1):
            for j in range(i + 2, K - (i == 0)):
                a, b, c, d = tour[i], tour[i + 1], tour[j], tour[(j + 1) % K]
                now = similarity[a, b] + similarity[c, d]
                if similarity[a, c] + similarity[b, d] > now + 1e-12:
                    tour[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1]
                    improved = True
    return np.array(tour)


def spread_out(shares: Array, tour: Array) -> tuple[Array, Array]:
    """Places for components on a circle, and for samples at the mean of what they are made of.

    Components are weighted by a sample's shares compared with the mean sample's, so that one that
    is in all samples does not draw all to itself. With more than three, these weights are raised
    to the lowest power that keeps mixtures from crowding in the middle, where they could be of
    anything. Then samples take free places of a honeycomb, the purest first, so that none hides
    another and the size of a crowd can be seen.

    Parameters
    ----------
    shares : array (S, K)
        Rows sum to 1, or are 0.
    tour : array (K,)
        The components in their order on the circle.

    Returns
    -------
    anchors : array (K, 2)
    places : array (S, 2)
    """
    S, K = shares.shape
    turn = np.empty(K)
    turn[tour] = np.arange(K) * (2 * np.pi / K) - np.pi / 2
    anchors = np.stack([np.cos(turn), np.sin(turn)], axis=1) * (K > 1)
    usual = shares.mean(axis=0)
    unusual = np.divide(shares, usual, out=np.zeros_like(shares), where=usual > 0)
    unusual /= max(float(unusual.max()), 1.0)
    for power in (1, 2, 3, 4, 6, 8) if K > 3 else (1,):
        weights = unusual**power
        total = weights.sum(axis=1, keepdims=True)
        wanted = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ anchors
        if np.median(np.linalg.norm(wanted, axis=1)) >= _OUTWARD:
            break
    cells = _honeycomb(_spacing(S))
    x, y = cells[:, 0].copy(), cells[:, 1].copy()
    places = np.empty((S, 2))
    for n in np.argsort(-shares.max(axis=1), kind="stable"):
        cell = int(np.argmin((x - wanted[n, 0]) ** 2 + (y - wanted[n, 1]) ** 2))
        places[n] = cells[cell]
        x[cell] = np.inf  # taken
    return anchors, places


def _spacing(S: int) -> float:
    """How far samples are apart at least."""
    return min(0.05, float(np.sqrt(_CROWD / 0.866 / max(S, 1))))


def _honeycomb(spacing: float) -> Array:
    rows = np.arange(-int(_REACH / spacing / 0.866), int(_REACH / spacing / 0.866) + 1)
    columns = np.arange(-int(_REACH / spacing), int(_REACH / spacing) + 1)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    centres = np.stack([(x + 0.5 * (y % 2)) * spacing, y * spacing * 0.866], axis=-1)
    return centres.reshape(-1, 2)


# Outlines round (0, 0) that touch about a unit circle: what tells components apart but colour.
_SHAPES = (
    ((1.0, 0.0),),
    ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    ((0.0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    ((0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)),
    ((0.0, 1.1), (1.05, -0.8), (-1.05, -0.8)),
)


def shape(k: int, size: float) -> str:
    """The outline of component k's mark, as path commands relative to its middle."""
    outline = np.array(_SHAPES[(max(k, 0) // COLOURS) % len(_SHAPES)]) * size
    if len(outline) == 1:
        r = f"{size:.3g}"
        return f"m-{r} 0a{r} {r} 0 1 0 {2 * size:.3g} 0a{r} {r} 0 1 0 -{2 * size:.3g} 0z"
    steps = " ".join(f"{x:.3g} {y:.3g}" for x, y in (b - a for a, b in pairwise(outline)))
    return f"m{outline[0, 0]:.3g} {outline[0, 1]:.3g}l{steps}z"


def glyph(k: int) -> Html:
    """Component k's mark, to stand in a line of text."""
    return element(
        "svg",
        element("path", d="M7 7" + shape(k, 5)),
        viewBox="0 0 14 14",
        class_="glyph",
        style=colour(k),
        aria_hidden="true",
        focusable="false",
    )


def sample_map(anchors: Array, places: Array, labels: Array) -> Html:
    """Samples at their places, in the colour and shape of the component they belong to most."""
    size = 0.42 * _spacing(len(places))
    spokes = "".join(f"M0 0L{x:.3f} {y:.3f}" for x, y in anchors)
    groups = []
    for k in np.unique(labels):
        outline = shape(int(k), size)
        d = "".join(f"M{x:.3f} {y:.3f}{outline}" for x, y in places[labels == k])
        groups.append(element("path", d=d, class_="samples", data_k=int(k), style=colour(int(k))))
    reach = extent(anchors, places)
    return element(
        "svg",
        element("circle", r=1, class_="grid"),
        element("path", d=spokes, class_="grid"),
        *groups,
        element("circle", r=f"{1.6 * size:.3g}", class_="ring", visibility="hidden"),
        viewBox=f"{-reach:.3f} {-reach:.3f} {2 * reach:.3f} {2 * reach:.3f}",
        aria_hidden="true",
        focusable="false",
    )


def numbered(anchors: Array, places: Array) -> Array:
    """Where the numbers of components stand: farther out than the samples before them."""
    along = places @ anchors.T
    aside = np.abs(places[:, :1] * anchors[:, 1] - places[:, 1:] * anchors[:, 0])
    before = np.where(aside < 0.08, along, 0.0).max(axis=0)
    away: Array = anchors * (np.maximum(before, 1.0) + 0.1)[:, None]
    return away


def extent(anchors: Array, places: Array) -> float:
    """Half the side of a map that has room for all samples and for the numbers round them."""
    both = np.vstack([numbered(anchors, places), places])
    return max(float(np.abs(both).max()), 1.0) + 0.08

"""Small pictures for notebooks: SVG and PNG in a few lines, without a plotting library.

A result, a certificate, a selection and a comparison show one each. Text and frames have the colour
of the notebook's own text, so that they are legible in light and dark ones. Names are untrusted:
everything is made of `markup`. The report has larger charts of its own, see `conenmf.report`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .markup import Html, data_uri, element, join

__all__ = ["COLOURS", "card", "gauge", "images", "lines", "png", "shrink", "table", "words"]

_Array: TypeAlias = npt.NDArray[Any]

COLOURS = (
    *("#2a7bbd", "#d96a1c", "#16967b", "#bf559b"),
    *("#a88414", "#3ba3d1", "#ab4a62", "#788491"),
)  # legible on white and on black
_WIDTH, _HEIGHT = 240.0, 96.0  # of a picture, in pixels
_RIM = 6.0  # pixels between the frame and what is drawn
_MAX_POINTS = 120  # of a line
_MAX_IMAGE_SIDE = 48  # pixels of an image of a component
_SOFT = "currentColor"


def card(title: str, sentences: Iterable[str], *parts: Html | None) -> str:
    """Return a heading, a list of sentences, and pictures and tables below them."""
    items = (element("li", line) for line in sentences)
    return str(
        element(
            "div",
            element("strong", title),
            element("ul", *items, style="margin:0.3em 0"),
            element(
                "div",
                *parts,
                style="display:flex;flex-wrap:wrap;gap:0.5em 1.5em;align-items:flex-start",
            ),
        )
    )


def table(rows: Mapping[str, str]) -> Html:
    """Return a table of facts by name."""
    return element(
        "table",
        *(
            element("tr", element("th", name, style="text-align:left"), element("td", value))
            for name, value in rows.items()
        ),
    )


def lines(
    drawn: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    caption: str,
    *,
    colours: Sequence[int] | None = None,
    levels: Iterable[float] = (),
    uprights: Iterable[float] = (),
    log: bool = False,
) -> Html:
    """Return lines (x, y) in one frame.

    Parameters
    ----------
    drawn : pairs of arrays
        Points that are not finite are left out.
    caption : str
        What is shown; it stands below the frame.
    colours : integers, optional
        The colour of each line; by default the first one for all.
    levels, uprights : numbers
        Where to draw dashed lines across, and from the bottom to the top.
    log : bool
        Whether x is drawn by logarithms.
    """
    curves = [_finite(x, y, log) for x, y in drawn]
    levels = [level for level in levels if np.isfinite(level)]
    uprights = np.log(list(uprights)).tolist() if log else list(uprights)
    xs = np.concatenate([*(x for x, _ in curves), np.asarray(uprights, dtype=float)])
    ys = np.concatenate([*(y for _, y in curves), np.asarray(levels, dtype=float)])
    if not ys.size or not xs.size:
        return element("span", f"{caption}: nothing to draw")
    x_place = _Places(xs, _RIM, _WIDTH - _RIM)
    y_place = _Places(ys, _HEIGHT - _RIM, _RIM)
    dashes = [f"M0 {y_place(level):.1f}H{_WIDTH:.0f}" for level in levels]
    dashes += [f"M{x_place(x):.1f} 0V{_HEIGHT:.0f}" for x in uprights]
    return _figure(
        join(
            (
                element(
                    "path", d="".join(dashes), fill="none", stroke=_SOFT, stroke_dasharray="4 3"
                )
                if dashes
                else None,
                *(
                    _line(x_place(x), y_place(y), COLOURS[colour % len(COLOURS)])
                    for (x, y), colour in zip(curves, colours or [0] * len(curves), strict=True)
                ),
            )
        ),
        caption,
    )


class _Places:
    """A range of numbers mapped to pixels."""

    def __init__(self, values: _Array, first: float, last: float) -> None:
        self._low, self._high = float(values.min()), float(values.max())
        self._first, self._last = first, last

    def __call__(self, values: Any) -> Any:
        span = self._high - self._low
        share = (
            (np.asarray(values) - self._low) / span if span > 0 else np.asarray(values) * 0 + 0.5
        )
        return self._first + (self._last - self._first) * share


def _finite(x: npt.ArrayLike, y: npt.ArrayLike, log: bool) -> tuple[_Array, _Array]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    kept = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not log))
    kept = np.flatnonzero(kept)
    if kept.size > _MAX_POINTS:
        kept = kept[np.linspace(0, kept.size - 1, _MAX_POINTS).astype(np.intp)]
    return (np.log(x[kept]) if log else x[kept]), y[kept]


def _line(x: _Array, y: _Array, colour: str) -> Html:
    points = " ".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    if x.size == 1:
        points += " h0"
    return element(
        "path",
        d=f"M{points}" if x.size else "",
        fill="none",
        stroke=colour,
        stroke_width="4" if x.size == 1 else "1.6",
        stroke_linecap="round",
        stroke_linejoin="round",
    )


def gauge(low: float, value: float, caption: str) -> Html:
    """Return a bar from 0 to an error: full up to its lower bound, faint from there to the error.

    What is faint is the gap: all that a better factorisation could save.
    """
    span = max(low, value)
    share = low / span if span > 0 else 1.0
    whole = element("rect", width=f"{_WIDTH:.0f}", height="18", fill=COLOURS[0], opacity="0.3")
    full = element("rect", width=f"{_WIDTH * min(share, 1):.1f}", height="18", fill=COLOURS[0])
    return _figure(join((whole, full)), caption, height=18)


def _figure(drawing: Html, caption: str, height: float = _HEIGHT) -> Html:
    frame = element(
        "rect",
        width=f"{_WIDTH:.0f}",
        height=f"{height:.0f}",
        fill="none",
        stroke=_SOFT,
        stroke_opacity="0.35",
    )
    svg = element(
        "svg",
        drawing,
        frame,
        xmlns="http://www.w3.org/2000/svg",
        width=f"{_WIDTH:.0f}",
        height=f"{height:.0f}",
        viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}",
        role="img",
        aria_label=caption,
    )
    text = element("div", caption, style=f"font-size:0.85em;max-width:{_WIDTH:.0f}px")
    return element("div", svg, text)


# --- components -------------------------------------------------------------------------------


def images(pictures: Sequence[_Array], caption: str) -> Html:
    """Return images (rows, columns) side by side, each from black (0) to white (its largest)."""
    drawn = []
    for number, picture in enumerate(pictures):
        pixels = shrink(picture, -(-max(picture.shape) // _MAX_IMAGE_SIDE))
        height = 56
        drawn.append(
            element(
                "img",
                src=png(pixels, float(pixels.max(initial=0.0))),
                alt=f"component {number}",
                height=height,
                width=max(1, round(height * pixels.shape[1] / pixels.shape[0])),
                style="margin:0 3px 3px 0;image-rendering:pixelated;display:inline-block",
            )
        )
    text = element("div", caption, style="font-size:0.85em")
    return element("div", *drawn, text, style="max-width:32em")


def words(lists: Sequence[Sequence[str]], caption: str) -> Html:
    """Return a list of words for each component, numbered from 0."""
    items = (
        element("div", element("span", f"{number} ", style="opacity:0.6"), ", ".join(one))
        for number, one in enumerate(lists)
    )
    text = element("div", caption, style="font-size:0.85em")
    return element("div", *items, text, style="max-width:40em")


def shrink(image: _Array, factor: int) -> _Array:
    """Return the means over squares of pixels; incomplete squares at the ends are cut off."""
    high, wide = (max(1, min(factor, side)) for side in image.shape)
    rows, columns = image.shape[0] // high, image.shape[1] // wide
    squares = image[: rows * high, : columns * wide].reshape(rows, high, columns, wide)
    means: _Array = squares.mean(axis=(1, 3))
    return means


def png(image: _Array, white: float, *, in_colour: bool = False) -> str:
    """Return an image as the URL of an 8-bit PNG; 0 is black, the value `white` is white.

    With `in_colour`, 0 is dark blue, and colours get lighter over green to yellow.
    """
    scale = 255.0 / white if white > 0 else 0.0
    scaled = np.clip(image * scale, 0, 255).round().astype(np.uint8)
    rows, columns = scaled.shape
    filtered = np.empty((rows, columns + 1), dtype=np.uint8)
    filtered[:, 0] = 1  # each pixel is stored as the difference from its left neighbour
    filtered[:, 1] = scaled[:, 0]
    filtered[:, 2:] = scaled[:, 1:] - scaled[:, :-1]
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3 if in_colour else 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b"")]
    if in_colour:
        parts.insert(1, (b"PLTE", _palette().tobytes()))
    chunks = (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    return data_uri("image/png", b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def _palette() -> _Array:
    """Colours (256, 3) from dark blue over green to yellow, each lighter than the one before."""
    marks = np.array([[20, 12, 60], [46, 62, 128], [30, 120, 140], [70, 180, 110], [250, 230, 60]])
    at = np.linspace(0, 255, len(marks))
    ramps = [np.interp(np.arange(256), at, channel) for channel in marks.T]
    return np.stack(ramps, axis=1).round().astype(np.uint8)

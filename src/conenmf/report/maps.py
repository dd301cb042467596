"""The section on maps: where in a scene components are, if samples are the pixels of an image."""

from __future__ import annotations

from ..judge.scores import abundance_maps
from ..markup import Html, element
from ..pictures import png
from . import charts
from .context import ReportContext
from .page import Section, percent

__all__ = ["maps"]

_MAX_MAP_PIXELS = 600_000  # of all maps of a page together
_MAX_ENLARGED_PIXELS = 200  # side up to which the pixels of a map stay sharp


def maps(context: ReportContext) -> Section | None:
    """Return the section, if samples are pixels."""
    shape = context.names.pixels_shape
    if shape is None:
        return None
    shares = abundance_maps(context.W, context.result.H, shape, max_pixels=_MAX_MAP_PIXELS)
    rows, columns = shares.shape[1:]
    thinned = (
        ""
        if (rows, columns) == shape
        else f" Of {shape[0]} x {shape[1]} pixels, {rows} x {columns} are drawn."
    )
    text = (
        "The share of each component in every pixel of the scene, from dark (0) to yellow (the "
        f"largest share of that component).{thinned}"
    )
    figures = []
    for k, share in enumerate(shares):
        top = float(share.max())
        image = element(
            "img",
            src=png(share, top, in_colour=True),
            alt=f"map of component {k}",
            width=columns,
            height=rows,
            class_="small" if max(rows, columns) <= _MAX_ENLARGED_PIXELS else None,
            decoding="async",
        )
        figures.append(_figure(k, image, top))
    return Section.of(
        "maps",
        "Maps",
        "Maps",
        element("p", text),
        element("div", *figures, class_="maps"),
    )


def _figure(k: int, image: Html, top: float) -> Html:
    return element(
        "figure",
        image,
        element(
            "figcaption",
            element("span", charts.glyph(k), f" {k}"),
            element("span", f"up to {percent(top)}", class_="value"),
        ),
    )

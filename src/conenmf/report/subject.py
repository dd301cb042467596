"""What a report is about: a result, how to look at it, and how pages say things."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..errors import OptionError
from ..judge.diagnosis import Diagnosis
from ..names import Names
from ..result import Factorization
from ..text import visible
from . import drawings as draw
from .drawings import Axis
from .markup import Html, element

__all__ = [
    "Section",
    "Subject",
    "check_view",
    "components_of",
    "degrees",
    "legend",
    "number",
    "percent",
    "readout",
    "rounded",
    "sentence",
    "table",
]

VIEWS = ("auto", "images", "curves", "terms")
_PIXELS = 1_500_000  # of all images together


def check_view(view: str, names: Names) -> None:
    """Make sure that components can be looked at like this."""
    if view not in VIEWS:
        raise OptionError.unknown("view", view, VIEWS)
    if view == "images" and names.image_shape is None:
        raise OptionError("view='images' needs image_shape=(rows, columns)")


@dataclass(frozen=True)
class Subject:
    """A result, how to look at it, and what several sections need."""

    result: Factorization
    diagnosis: Diagnosis
    names: Names
    view: str

    @classmethod
    def of(cls, result: Factorization, view: str, image_shape: tuple[int, int] | None) -> Subject:
        """Decide how to look at a result."""
        names = result.names
        if image_shape is not None:
            rows, columns = image_shape
            names = replace(names, image_shape=(int(rows), int(columns)))
            names.checked(result.H.shape[1], result.W.shape[0])
        check_view(view, names)
        subject = cls(result, result.diagnose(), names, view)
        if view != "auto":
            return subject
        if names.image_shape is not None:
            return replace(subject, view="images")
        numbers = names.feature_names is None or subject.positions is not None
        return replace(subject, view="curves" if numbers else "terms")

    @property
    def K(self) -> int:
        """The number of components."""
        return self.result.K

    @property
    def N(self) -> int:
        """The number of samples."""
        return int(self.result.H.shape[1])

    @property
    def F(self) -> int:
        """The number of features."""
        return int(self.result.W.shape[0])

    @cached_property
    def positions(self) -> Array | None:
        """The features' names as numbers, if all of them are."""
        if self.names.feature_names is None:
            return None
        try:
            numbers = np.array([float(name) for name in self.names.feature_names])
        except ValueError:
            return None
        return numbers if np.isfinite(numbers).all() and np.ptp(numbers) > 0 else None

    @cached_property
    def curve(self) -> draw.Curve:
        """Where curves over the features are kept."""
        return draw.Curve.over(np.arange(self.F) if self.positions is None else self.positions)

    @cached_property
    def feature_axis(self) -> Axis:
        """The features from left to right."""
        x = self.curve.x
        last = float(x[-1]) if self.positions is not None else float(self.F - 1)
        return Axis("feature", float(x[0]), last)

    @cached_property
    def shares(self) -> Array:
        """What part of each sample's contributions comes from each component."""
        found = self.diagnosis.inspected.coefficients
        total = found.sum(axis=1, keepdims=True)
        parts: Array = np.divide(found, total, out=np.zeros_like(found), where=total > 0)
        return parts

    @cached_property
    def plane(self) -> tuple[Array, Array]:
        """Places of components and of samples."""
        W = self.result.W.astype(np.float64, copy=False)
        return draw.spread_out(self.shares, draw.round_tour(_cosines(W) + _cosines(self.shares)))

    @cached_property
    def shrink(self) -> int:
        """By how much images are reduced."""
        count = self.K + 2 * self.diagnosis.inspected.examples.size
        return max(1, math.ceil(math.sqrt(count * self.F / _PIXELS)))

    def sample(self, place: int) -> str:
        """What one of the samples that were looked at is called."""
        return self.names.sample(int(self.diagnosis.inspected.indices[place]))

    def image(self, vector: Array, top: float, what: str) -> Html:
        """A vector over the pixels as an image; white is `top`."""
        assert self.names.image_shape is not None
        pixels = draw.shrunk(np.reshape(vector, self.names.image_shape), self.shrink)
        rows, columns = pixels.shape
        small = "small" if max(rows, columns) <= 64 else None
        address = draw.picture(pixels, top)
        return element(
            "img", src=address, alt=what, width=columns, height=rows, class_=small, decoding="async"
        )


def _cosines(columns: Array) -> Array:
    size = np.linalg.norm(columns, axis=0)
    unit = np.divide(columns, size, out=np.zeros_like(columns), where=size > 0)
    cosines: Array = unit.T @ unit
    return cosines


# --- parts of a page ------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A part of a page, its short name for links, and what the script of the page needs for it."""

    id: str
    short: str
    html: Html
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        id_: str,
        short: str,
        title: str,
        *children: str | None,
        data: Mapping[str, Any] | None = None,
    ) -> Section:
        """Put a heading before what the section shows."""
        heading = element("h2", title, id=f"{id_}-title")
        inside = element("section", heading, *children, id=id_, aria_labelledby=f"{id_}-title")
        return cls(id_, short, inside, data or {})


def readout() -> Html:
    """Where the script tells what is pointed at."""
    return element("output", "\N{NO-BREAK SPACE}", class_="readout controls", aria_live="polite")


def legend(*entries: tuple[str, str]) -> Html:
    """Keys, by their classes, and what they mean."""
    keys = (element("li", element("i", class_=f"key {class_}"), text) for class_, text in entries)
    return element("ul", *keys, class_="legend")


def table(rows: Mapping[str, str]) -> Html:
    """Facts by name."""
    return element(
        "table",
        element(
            "tbody",
            *(
                element("tr", element("th", visible(name), scope="row"), element("td", value))
                for name, value in rows.items()
            ),
        ),
    )


# --- in words ---------------------------------------------------------------------------------


def components_of(subject: Subject) -> str:
    """How many there are, in words."""
    return f"{subject.K} component{'s' * (subject.K > 1)}"


def sentence(text: str) -> str:
    """A text that begins with a capital."""
    return text[:1].upper() + text[1:]


def number(value: float) -> str:
    """A number, to four digits."""
    return f"{value:.4g}"


def percent(share: float) -> str:
    """A share of 1, to two digits; only what is all is 100 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.9945 <= share < 1:
        return f"{min(100 * share, 99.99):.2f} %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def degrees(angle: float) -> str:
    """An angle given in radians."""
    return f"{math.degrees(angle):.1f}°"


def rounded(values: Array, digits: int = 4) -> list[Any]:
    """Numbers for the script, in few characters."""
    found: list[Any] = np.round(values, digits).tolist()
    return found

"""The parts that every section of a page is made of, and how a page writes numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..markup import Html, element, style
from ..text import visible

__all__ = [
    "Section",
    "bar",
    "degrees",
    "legend",
    "number",
    "percent",
    "readout",
    "rounded",
    "sentence",
    "table",
    "tiles",
]


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes
    ----------
    id : str
        The target of links to it.
    short : str
        Its name in the navigation.
    html : Html
    data : mapping
        What the script of the page needs for it.
    """

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
        """Make a section with a heading."""
        heading = element("h2", title, id=f"{id_}-title")
        html = element("section", heading, *children, id=id_, aria_labelledby=f"{id_}-title")
        return cls(id_, short, html, data or {})


def readout() -> Html:
    """Return the line in which the script describes what is pointed at."""
    return element("output", "\N{NO-BREAK SPACE}", class_="readout controls", aria_live="polite")


def legend(*entries: tuple[str, str]) -> Html:
    """Return keys, given by their classes, and what they mean."""
    keys = (element("li", element("i", class_=f"key {class_}"), text) for class_, text in entries)
    return element("ul", *keys, class_="legend")


def tiles(facts: Iterable[tuple[str, str, str]]) -> Html:
    """Return numbers with their names and explanations."""
    parts = (
        element(
            "div", element("dt", name), element("dd", value, class_="value"), element("dd", text)
        )
        for name, value, text in facts
    )
    return element("dl", *parts, class_="tiles")


def table(rows: Mapping[str, str]) -> Html:
    """Return a table of facts by name."""
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


def bar(name: str, value: str, *, below: str | None = None, **shares: float) -> Html:
    """Return an item of a list of bars; a share from 0 to 1 is the width of a bar.

    The style of the page draws ``share``, ``again`` beside it, and a line from ``low`` to ``high``;
    a text may come below the name.
    """
    widths = {key: f"{100 * share:.1f}%" for key, share in shares.items()}
    return element(
        "li",
        element("span", name, class_="of"),
        element("span", value, class_="value"),
        None if below is None else element("span", below, class_="text"),
        class_="limits" if "low" in shares else None,
        style=style(**widths),
    )


# --- in words ---------------------------------------------------------------------------------


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def number(value: float) -> str:
    """Return a number to four digits."""
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share of 1 to two digits; only a whole is 100%."""
    if 0 < share < 0.001:
        return "< 0.1%"
    if 0.9945 <= share < 1:
        return f"{min(100 * share, 99.99):.2f}%"
    return f"{100 * share:.1f}%" if share < 0.0995 else f"{100 * share:.0f}%"


def degrees(radians: float) -> str:
    """Return an angle in degrees."""
    return f"{math.degrees(radians):.1f}°"


def rounded(values: Array, digits: int = 4) -> list[Any]:
    """Return numbers for the script, in few characters."""
    numbers: list[Any] = np.round(values, digits).tolist()
    return numbers

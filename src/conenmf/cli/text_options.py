"""Options that say what samples and features are: names, pixels of an image, words of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

__all__ = ["NAME_OPTIONS", "TEXT_OPTIONS", "NameList", "ParamType", "Shape"]


if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # without brackets in older versions of click


class Shape(ParamType):
    """The sides of an image, such as 92x112."""

    name = "ROWSxCOLUMNS"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Split the sides."""
        if isinstance(value, tuple):
            return value
        rows, _, columns = str(value).lower().partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            self.fail(f"{value!r} is not a shape such as 92x112", param, ctx)
        return int(rows), int(columns)


class NameList(ParamType):
    """Names with commas between them."""

    name = "NAME,..."

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = tuple(choices)

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Split the names, and refuse unknown ones."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        for name in names:
            if name not in self.choices:
                self.fail(f"{name!r} is not one of {', '.join(self.choices)}", param, ctx)
        if not names:
            self.fail(f"name some of {', '.join(self.choices)}", param, ctx)
        return names


NAME_OPTIONS = (
    click.option(
        "--feature-names",
        type=click.Path(),
        metavar="FILE",
        help="Names of the features, such as words: a text with one on each line.",
    ),
    click.option(
        "--sample-names",
        type=click.Path(),
        metavar="FILE",
        help="Names of the samples: a text with one on each line.",
    ),
    click.option(
        "--pixels-shape",
        type=Shape(),
        help="Samples are the pixels of an image of this shape, row by row; scenes say so.",
    ),
)
TEXT_OPTIONS = (
    click.option(
        "--text-column",
        metavar="COLUMN",
        help="The samples are the texts in this column of a .csv or .tsv table.",
    ),
    click.option(
        "--stop-words",
        type=click.Choice(["auto", "english", "none"]),
        default="auto",
        show_default=True,
        help="Of texts: frequent words to leave out; auto knows English.",
    ),
    click.option(
        "--min-df",
        type=click.IntRange(1),
        default=2,
        show_default=True,
        help="Of texts: a word has to be in so many of them.",
    ),
    click.option(
        "--max-df",
        type=click.FloatRange(0, 1, min_open=True),
        help="Of texts: a word may be in this share of them; by default 0.95, or 0.5 "
        "without stop words.",
    ),
    click.option(
        "--max-words", type=click.IntRange(1), help="Of texts: keep the most frequent words only."
    ),
)

"""Options for names in files of their own, and for texts."""

from __future__ import annotations

import click

__all__ = ["NAME_OPTIONS", "TEXT_OPTIONS"]

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

"""Options that prepare counts before they are factored; a result keeps what they did."""

from __future__ import annotations

import click

__all__ = ["PREPARING_OPTIONS"]

PREPARING_OPTIONS = (
    click.option(
        "--normalize-total",
        type=click.FloatRange(0, 1e15, min_open=True),
        metavar="SUM",
        help="Scale each sample to this sum, such as 10000 for cells.",
    ),
    click.option("--log1p", is_flag=True, help="Take log(1 + x) of each entry."),
    click.option(
        "--tfidf",
        is_flag=True,
        help="Counts of words times log(N / df), if df of N samples have the word; unit length.",
    ),
    click.option("--normalize", is_flag=True, help="Scale each sample to unit length, at last."),
)

"""The option that says what is minimised."""

from __future__ import annotations

import click

from ..solve.goals import LOSSES

__all__ = ["LOSS_OPTION"]

LOSS_OPTION = click.option(
    "--loss",
    type=click.Choice([*LOSSES, "kullback-leibler"]),
    default="frobenius",
    show_default=True,
    help="What is minimised: least squares, or poisson for counts.",
)

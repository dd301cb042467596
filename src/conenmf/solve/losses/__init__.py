"""Losses that a fit can minimise, one file each. A new loss is registered here only."""

from __future__ import annotations

from ...arguments import choice
from ..loss import AnyObjective as Objective
from ..loss import Loss, Words
from .counts import margins, regressions, restraints
from .frobenius import FROBENIUS
from .itakura_saito import ITAKURA_SAITO
from .poisson import POISSON
from .poisson_regression import dual_gaps

__all__ = [
    "FROBENIUS",
    "LOSSES",
    "POISSON",
    "SOLVER_NAMES",
    "Loss",
    "Objective",
    "Words",
    "dual_gaps",
    "get_loss",
    "margins",
    "regressions",
    "restraints",
]

# The losses by name.
LOSSES = {loss.name: loss for loss in (FROBENIUS, POISSON, ITAKURA_SAITO)}

# The names of the solvers of all losses.
SOLVER_NAMES = tuple(dict.fromkeys(name for loss in LOSSES.values() for name in loss.solvers))


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with this name or alias.

    >>> get_loss("kullback-leibler").name
    'poisson'
    """
    if isinstance(loss, Loss):
        return loss
    names = {alias: one for one in LOSSES.values() for alias in (one.name, *one.words.aliases)}
    return names[choice("loss", loss, names)]

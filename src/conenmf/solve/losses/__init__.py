"""Losses that a fit can minimise, one file each. A new loss is registered here only."""

from __future__ import annotations

from contextlib import suppress

from ...arguments import number
from ...errors import OptionError
from ..loss import AnyObjective as Objective
from ..loss import Loss, Words
from .beta_divergence import ITAKURA_SAITO, of_beta
from .counts import margins, regressions, restraints
from .frobenius import FROBENIUS
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


_PREFIX = "beta="
_OF_BETA: dict[float, Loss] = {1.0: POISSON, 2.0: FROBENIUS}


def get_loss(loss: str | float | Loss) -> Loss:
    """Return the loss with this name or alias, or the divergence of this beta.

    >>> get_loss("kullback-leibler").name, get_loss(1.0).name, get_loss(1.5).name
    ('poisson', 'poisson', 'beta=1.5')
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss.startswith(_PREFIX):  # the name that a result has
        with suppress(ValueError):
            loss = float(loss.removeprefix(_PREFIX))
    if not isinstance(loss, str):
        beta = number("loss", loss, what="a name such as 'poisson', or a beta")
        return _OF_BETA.get(beta) or of_beta(beta)
    names = {alias: one for one in LOSSES.values() for alias in (one.name, *one.words.aliases)}
    if loss not in names:
        problem = OptionError.unknown("loss", loss, names)
        raise OptionError(*problem.args[0].parts, ", or a beta as a number, such as 1.5")
    return names[loss]

"""What a fit minimises and how, by the names that users give: losses, and the solvers of each.

The loop takes a `Method`; here is the one that belongs to a loss and a solver, and the exact
coefficients of new samples for each loss.
"""

from __future__ import annotations

from collections.abc import Callable

from ..arguments import choice, instance, optional
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..errors import Message, Option, OptionError
from .coefficients import coefficients
from .constraints import Penalties
from .losses.objective import Frobenius, Loss
from .losses.poisson import POISSON_SOLVERS, Poisson, poisson_method, regressions, report_unseen
from .methods import Method
from .solvers import SOLVERS, Solver, Update

__all__ = ["LOSSES", "SOLVERS_OF", "best_coefficients", "checked_loss", "goal_of"]

LOSSES: dict[str, Callable[..., Loss]] = {"frobenius": Frobenius, "poisson": Poisson}
SOLVERS_OF: dict[str, dict[str, Solver]] = {"frobenius": SOLVERS, "poisson": POISSON_SOLVERS}
"""The solvers of each loss; the first one is that of "auto"."""

_SYNONYMS = {"kullback-leibler": "poisson"}


def checked_loss(loss: str) -> str:
    """Return the name of a loss.

    >>> checked_loss("kullback-leibler")
    'poisson'
    """
    loss = choice("loss", loss, (*LOSSES, *_SYNONYMS))
    return _SYNONYMS.get(loss, loss)


def goal_of(
    loss: str, solver: str | Solver | Update | None
) -> tuple[str, str | Solver | Update | None, Method | None]:
    """Return the name of the loss, the solver that is meant, and how the loop runs the two.

    Without a solver there is no method.
    """
    loss = checked_loss(loss)
    if isinstance(solver, str) and solver == "auto":
        solver = next(iter(SOLVERS_OF[loss]))
    if solver is None:
        return loss, None, None
    if loss == "frobenius":
        return loss, solver, Method.of(solver)
    if not isinstance(solver, str):
        problem = " has its own solvers: solver is 'auto' or one of "
        names = ", ".join(map(repr, POISSON_SOLVERS))
        raise OptionError(Message(Option("loss", loss), problem + names))
    return loss, solver, poisson_method(solver)


def best_coefficients(
    V: DataMatrix,
    W: Array,
    loss: str = "frobenius",
    *,
    penalties: Penalties | None = None,
    unseen: str = "warn",
) -> tuple[Aligned, Aligned, float]:
    """Return the best H (K, N) for W, labels (N,) and the objective, for a loss; one pass.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    loss : {"frobenius", "poisson"}
    penalties : Penalties, optional
        Those of a fit, on H.
    unseen : {"warn", "raise"}
        What to do about counts of features that no component has, such as words that did not occur
        before. The loss is infinite with them; they are left out, or an error.
    """
    unseen = choice("unseen", unseen, ("warn", "raise"))
    if checked_loss(loss) == "frobenius":
        return coefficients(V, W, penalties)
    optional(instance, "penalties", penalties, Penalties)
    H, labels, sums = regressions(V, W, penalties)
    if sums.unseen.any():
        report_unseen(V, sums.unseen, unseen)
    return H, labels, max(sums.divergence, 0.0)

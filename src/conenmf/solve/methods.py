"""Methods: the solvers, the penalties and the loss of a run.

Each factor has a slot of its own, with a solver and a penalty. All penalties are changes of the
small matrices G and C of an update, so solvers and losses need not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..arguments import function, instance, optional
from ..data.blocks import Array
from .losses import Frobenius, Loss
from .solvers import FLOOR, Solver, Update, get_solver

__all__ = ["Method", "Penalty", "Slot"]


class Penalty(Protocol):
    """A term of the objective that enters an update as a change of G and C.

    Called as ``(G, C, Y) -> (G, C)``, so that the update minimises y'Gy / 2 - c'y with the new
    ones; `value` is the term itself, in units of ||V - W H||^2, which is twice that. For example
    b ||Y||^2 adds b I to G.
    """

    def __call__(self, G: Array, C: Array, Y: Array, /) -> tuple[Array, Array]:
        """Return G and C with the penalty for Y in them."""

    def value(self, Y: Array, /) -> float:
        """Return the penalty for the rows of Y; a sum over them."""


@dataclass(frozen=True)
class Slot:
    """How one factor is updated.

    Attributes
    ----------
    solver : Solver
    penalty : Penalty, optional
        Changes G and C before each update, and adds its value to the objective.
    """

    solver: Solver
    penalty: Penalty | None = None

    def __post_init__(self) -> None:
        instance("solver", self.solver, Solver, "get_solver")
        optional(function, "penalty", self.penalty, takes=3)

    @property
    def floor(self) -> float:
        """The smallest entry that the solver leaves."""
        return FLOOR if self.solver.floored else 0.0

    def update(self, affordable_sweeps: float) -> Update:
        """Return the update with the penalty, and with as many sweeps as pay."""
        update = self.solver.sweeping(affordable_sweeps)
        if self.penalty is None:
            return update
        return partial(_penalised_update, update=update, penalty=self.penalty)


def _penalised_update(G: Array, C: Array, Y: Array, *, update: Update, penalty: Penalty) -> Array:
    return update(*penalty(G, C, Y), Y)


@dataclass(frozen=True)
class Method:
    """How a run updates its factors, and what it minimises.

    Attributes
    ----------
    H : Slot
        Its solver says also how the loop runs: which factor is first, whether to extrapolate.
    W : Slot
    loss : callable
        ``loss(V, rescale=...) -> Loss``, such as the class itself.
    """

    H: Slot
    W: Slot
    loss: Callable[..., Loss] = Frobenius

    def __post_init__(self) -> None:
        instance("H", self.H, Slot)
        instance("W", self.W, Slot)
        instance("loss", self.loss, Callable)  # type: ignore[arg-type]

    @classmethod
    def of(cls, solver: Method | Solver | str | Update) -> Method:
        """Return the method with one solver for both factors; a method is returned as it is."""
        if isinstance(solver, Method):
            return solver
        slot = Slot(get_solver(solver))
        return cls(slot, slot)

    @property
    def is_penalised(self) -> bool:
        """Whether the objective is more than the loss."""
        return self.H.penalty is not None or self.W.penalty is not None

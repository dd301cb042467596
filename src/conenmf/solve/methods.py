"""Methods: the solvers, the penalties and the loss of a run.

Each factor has a slot of its own, with a solver and a penalty. All penalties are changes of the
small matrices G and C of an update, so solvers and losses need not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from ..arguments import function, instance, optional
from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from .coefficients import column_units
from .losses import Frobenius, Loss
from .solvers import FLOOR, Solver, Update, get_solver, unchecked

__all__ = ["Method", "Penalty", "Slot", "without_floor"]

_SMALL_ENTRY = 1e-2  # a column with a larger one would not miss entries of the size of the floor
_FLOOR_SHARE = 1e-11  # of ||V||, below which nothing misses them


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
            return unchecked(update)
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


def without_floor(V: DataMatrix, W: Array, H: Aligned) -> Array:
    """Return W (F, K) of a solver that floors, with zeros for the entries at the floor.

    The floor represents zero, but not in a component whose whole column is near it, with a huge row
    in H: there the entries at the floor are part of W H. Such a column keeps them, and is brought
    to an ordinary size.
    """
    floorless = np.where(W > FLOOR, W, 0)
    is_small = W.max(axis=0) < _SMALL_ENTRY
    if is_small.any():
        (squares,) = V.map(_squares, H.T)
        lost = FLOOR * np.sqrt(len(W) * squares)
        is_real = is_small & (lost > _FLOOR_SHARE * V.norm)
        floorless[:, is_real] = (W / column_units(W))[:, is_real]
    return floorless


def _squares(index: range, H: Array) -> tuple[Array]:
    return ((exact(H) ** 2).sum(axis=0),)

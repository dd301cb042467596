"""Methods: the solvers, the penalties and the loss of a run.

Each factor has a slot of its own, with a solver and a penalty. All penalties are changes of the
small matrices G and C of an update, so solvers and losses need not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..arguments import flag, function, instance, integer, optional
from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from .coefficients import column_units
from .constraints import unit_columns, update_others
from .losses.objective import Frobenius, Loss
from .solvers import FLOOR, Solver, Update, get_solver, unchecked

__all__ = ["Method", "Penalty", "Slot", "without_floor"]

_SMALL_ENTRY = 1e-2  # a column with a larger one would not miss entries of the size of the floor
_UNIT_SWEEPS = 5  # over columns of unit length
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
        Changes G and C before each update, and adds its value to the objective. If it has a method
        ``at(W)``, that is asked for the penalty near W before each update of W.
    n_fixed : int
        The first columns are given, and stay.
    unit_columns : bool
        Columns have unit length; for W only.
    keeps_scale : bool
        The factor has a scale of its own, such as rows that sum to one.
    """

    solver: Solver
    penalty: Penalty | None = None
    n_fixed: int = 0
    unit_columns: bool = False
    keeps_scale: bool = False

    def __post_init__(self) -> None:
        instance("solver", self.solver, Solver, "get_solver")
        optional(function, "penalty", self.penalty, takes=3)
        integer("n_fixed", self.n_fixed, at_least=0)
        for name in ("unit_columns", "keeps_scale"):
            flag(name, getattr(self, name))

    @property
    def floor(self) -> float:
        """The smallest entry that the solver leaves."""
        return FLOOR if self.solver.floored else 0.0

    def update(self, affordable_sweeps: float, W: Array | None = None) -> Update:
        """Return the update with the penalty, near W, and with as many sweeps as pay."""
        update: Update
        if self.unit_columns:
            update = partial(unit_columns, sweeps=_UNIT_SWEEPS, n_fixed=self.n_fixed)
        else:
            update = unchecked(self.solver.sweeping(affordable_sweeps))
            if self.n_fixed:
                update = partial(update_others, update=update, n_fixed=self.n_fixed)
        if self.penalty is None:
            return update
        penalty: Any = self.penalty
        if W is not None and hasattr(penalty, "at"):
            penalty = penalty.at(W)
        n_kept = None if self.unit_columns else self.n_fixed
        return partial(_penalised_update, update=update, penalty=penalty, n_kept=n_kept)


def _penalised_update(
    G: Array, C: Array, Y: Array, *, update: Update, penalty: Penalty, n_kept: int | None
) -> Array:
    """Update Y with a penalty; columns that nothing else depends on, but the first, become zero."""
    G, C = penalty(G, C, Y)
    updated = update(G, C, Y)
    unused = np.einsum("...kk->...k", G) == 0
    unused[..., :n_kept] = False
    return np.where(unused & (C < 0), 0, updated) if unused.any() else updated


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
        """Whether the objective is more than the loss, or a factor has a scale of its own."""
        return any(
            slot.penalty is not None or slot.unit_columns or slot.keeps_scale
            for slot in (self.H, self.W)
        )


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

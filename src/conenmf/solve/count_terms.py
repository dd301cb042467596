"""What is given of the factors of counts, and penalties: how a run with the Poisson loss has them.

The objective is that of scikit-learn: D(V | W H) + l1 sum + l2 ||.||^2 / 2 for both factors, with
the numbers of `Penalties`. A step minimises them as parts of the problem of each row
(`Restraint`), instead of changing matrices as for least squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..data.blocks import Array
from ..errors import Message, Option, OptionError
from .methods import Slot
from .penalties import Penalties, Term
from .poisson_regression import Restraint
from .solvers import Solver, Update

__all__ = ["CountSlot", "CountTerm", "balanced", "check_penalties", "restraints"]

_BALANCING_STEPS = 60


@dataclass(frozen=True)
class CountTerm(Term):
    """The penalty of one factor of counts."""

    def value(self, Y: Array) -> float:
        """Return l1 sum + l2 ||Y||^2 / 2: the divergence has no factor of two."""
        return super().value(Y) / 2


@dataclass(frozen=True)
class CountSlot(Slot):
    """How one factor of counts is updated."""

    @classmethod
    def of(cls, solver: Solver, held: Restraint) -> CountSlot:
        """Return the slot of a factor that is held so."""
        term = CountTerm(held.l1, held.l2)
        return cls(solver, None if term.is_none else term, held.n_fixed)

    def update(self, affordable_sweeps: float, W: Array | None = None) -> Update:
        """Return the update of rows, which knows the penalty and what is given."""
        held = Restraint(n_fixed=self.n_fixed)
        if isinstance(self.penalty, Term):
            held = held._replace(l1=self.penalty.l1, l2=self.penalty.l2)
        return partial(self.solver.update, held=held)


def restraints(penalties: Penalties | None, n_fixed: int = 0) -> tuple[Restraint, Restraint]:
    """Return what holds H, and what holds W."""
    given = Penalties() if penalties is None else penalties
    return Restraint(given.l1_h, given.l2_h), Restraint(given.l1_w, given.l2_w, n_fixed)


def check_penalties(penalties: Penalties) -> None:
    """Refuse penalties that have no meaning for counts."""
    loss = Option("loss", "poisson")
    for name in ("orthogonality", "min_volume", "sum_to_one"):
        if getattr(penalties, name):
            problem = f" takes L1 and L2 penalties, not {name}: that is for "
            raise OptionError(Message(loss, problem, Option("loss", "frobenius")))
    if penalties.fixes_columns:
        problem = (
            " needs penalties on both factors: that of one alone is evaded, as it shrinks and the "
            "other grows; give both of alpha_W and alpha_H, of `Penalties` one for h and one for w"
        )
        raise OptionError(Message(loss, problem))


def balanced(W: Array, masses: Array, squares: Array, penalties: Penalties) -> Array:
    """Return for each component the number to multiply w_k by, and to divide h_k by.

    The loss does not change with it, and the penalties are smallest. `masses` and `squares` are
    sums of the rows of H and of their squares.
    """
    a = penalties.l1_w * W.sum(axis=0, dtype=np.float64)
    c = penalties.l2_w * (W.astype(np.float64) ** 2).sum(axis=0)
    b, d = penalties.l1_h * masses, penalties.l2_h * squares
    low, high = np.full(len(a), -200.0), np.full(len(a), 200.0)
    for _ in range(_BALANCING_STEPS):  # a t + b / t + c t^2 / 2 + d / (2 t^2) is convex in log t
        middle = (low + high) / 2
        t = np.exp(middle)
        rises = a * t - b / t + c * t**2 - d / t**2 > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    is_used = (a + c > 0) & (b + d > 0)
    sizes: Array = np.where(is_used, np.exp((low + high) / 2), 1.0)
    return sizes

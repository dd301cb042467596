"""The state of a run between two iterations: all that the next ones depend on.

A checkpoint saves it, and the solver continues with that of the init that won the race. Nothing
here computes factors; `runs` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..data.blocks import Array
from ..data.matrix import Aligned
from .losses import Sums
from .stopping import Log

__all__ = ["Momentum", "Saved", "State"]


@dataclass
class Momentum:
    """How an extrapolated run moves.

    Attributes
    ----------
    W : array (F, K)
        W one iteration earlier.
    Ht : aligned (N, K)
        H as the last update left it, before it was moved further.
    beta : float
        How far to move beyond an update, as a share of the way since the one before.
    ceiling : float
        The largest value that beta may reach.
    rest : bool
        The next iteration is not extrapolated.
    leapt : bool
        The leap has been asked for.
    """

    W: Array
    Ht: Aligned
    beta: float = 0.5
    ceiling: float = 1.0
    rest: bool = True
    leapt: bool = False


@dataclass
class State:
    """The state of a run between two iterations: all that the next ones depend on.

    Attributes
    ----------
    W : array (F, K)
    Ht : aligned (N, K)
    sums : dict
        The sums of the last accepted iteration; the loss defines their names.
    values : list of float
        The objective of V / unit after each iteration, with the penalties; those of the run that
        this one continues, if any, are the first.
    momentum : Momentum, optional
        For solvers that are extrapolated.
    """

    W: Array
    Ht: Aligned
    sums: Sums
    values: list[float]
    momentum: Momentum | None = None


class Saved(NamedTuple):
    """All that a checkpoint keeps of a run; `tol` is what it has been run with so far."""

    state: State
    log: Log
    tol: float | None = None

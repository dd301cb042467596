"""What a fit accepts: checks of the options of `factorize`, and how a result keeps them."""

from __future__ import annotations

from typing import Any

from .arguments import components, function, generator, optional
from .data.matrix import DataMatrix
from .data.sketch import checked_rank
from .data.validate import checked_components
from .errors import Message, Option, OptionError
from .solve.inits import Init
from .solve.solvers import Solver, Update, solver_name
from .solve.stopping import Stopping
from .text import function_name

__all__ = ["check_limits", "checked_K", "checked_sketch", "plain_settings"]


def checked_K(K: object, V: DataMatrix) -> int | str:
    """Return the number of components, or "auto"; refuse anything else."""
    if isinstance(K, str) and K == "auto":
        return "auto"
    return checked_components(components(K, auto=True), V)


def check_limits(
    max_iter: int, tol: float, max_time: float | None, callback: object, rng: object
) -> None:
    """Refuse limits, a callback or a generator that a fit cannot use."""
    Stopping(tol, max_iter=max_iter, max_time=max_time)
    optional(function, "callback", callback, takes=1)
    optional(generator, "rng", rng)


def checked_sketch(sketch: int | str | None, solver: Solver | None) -> int | str | None:
    """Return the rank of a sketch, "auto" or None; refuse what the solver cannot use."""
    rank = checked_rank("sketch", sketch)
    if isinstance(rank, int) and (solver is None or not solver.extrapolate):
        problem = (
            " needs a solver that is extrapolated: 'hals', 'nnlsb', "
            "or a Solver with extrapolate=True"
        )
        raise OptionError(Message(Option("sketch", rank), problem))
    return rank


def plain_settings(
    K: int | str,
    init: Init,
    solver: str | Solver | Update | None,
    sketch: int | str | None,
    max_iter: int,
    tol: float,
    max_time: float | None,
) -> dict[str, Any]:
    """Return what was asked for in plain values, which can be saved."""
    return {
        "K": K,
        "init": init if isinstance(init, str) else function_name(init),
        "solver": solver_name(solver),
        "sketch": sketch,
        "max_iter": int(max_iter),
        "tol": float(tol),
        "max_time": None if max_time is None else float(max_time),
    }

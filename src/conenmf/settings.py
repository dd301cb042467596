"""What a fit accepts: checks of the options of `factorize`, and how a result keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ComponentsError, Message, Option, OptionError, check_components
from .solve.inits import Init
from .solve.solvers import Solver, Update, solver_name
from .text import function_name

__all__ = ["check_limits", "checked_K", "checked_sketch", "plain_settings"]


def checked_K(K: object) -> int | str:
    """Return the number of components, or "auto"; refuse anything else."""
    if isinstance(K, str) and K != "auto":
        raise ComponentsError(f"the number of components is {K!r}, expected an integer or 'auto'")
    return K if isinstance(K, str) else check_components(K)


def check_limits(
    max_iter: object, tol: object, max_time: object, callback: object, rng: object
) -> None:
    """Refuse limits, a callback or a generator that a fit cannot use."""
    if not isinstance(max_iter, int | np.integer) or max_iter < 0:
        raise OptionError(
            Message(Option("max_iter", max_iter), ", expected an integer of at least 0")
        )
    number = float | int | np.number
    if not (isinstance(tol, number) and tol >= 0):
        raise OptionError(Message(Option("tol", tol), ", expected a number of at least 0"))
    if max_time is not None and not (isinstance(max_time, number) and max_time >= 0):
        raise OptionError(
            Message(Option("max_time", max_time), ", expected seconds of at least 0, or None")
        )
    if callback is not None and not callable(callback):
        raise OptionError(f"callback={callback!r}, expected a function or None")
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise OptionError(f"rng={rng!r}, expected a numpy.random.Generator or None")


def checked_sketch(sketch: int | str | None, solver: Solver | None) -> int | str | None:
    """Return the rank of a sketch, "auto" or None; refuse what the solver cannot use."""
    if sketch is None or (isinstance(sketch, str) and sketch == "auto"):
        return sketch
    if not isinstance(sketch, int | np.integer) or isinstance(sketch, bool) or sketch < 1:
        raise OptionError(f"sketch={sketch!r}, expected a rank of at least 1, 'auto' or None")
    if solver is None or not solver.extrapolate:
        raise OptionError(
            f"sketch={sketch} needs a solver that is extrapolated: 'hals', 'nnlsb', "
            "or a Solver with extrapolate=True"
        )
    return int(sketch)


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

"""What a fit accepts: checks of its options, and how a result keeps them."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from .arguments import components, function, generator, optional, seeded
from .data.matrix import DataMatrix
from .data.sketch import checked_rank
from .data.validate import checked_components
from .errors import Message, NotAvailableError, Option, OptionError
from .solve.inits import Init
from .solve.run import Stopping
from .solve.solvers import Solver, Update, solver_name
from .text import function_name

__all__ = [
    "NeedsNumberOfComponents",
    "check_limits",
    "checked_K",
    "checked_sketch",
    "plain_settings",
    "scikit_learn_rng",
]


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


def checked_sketch(sketch: int | str | None, solver: Solver | None, loss: str) -> int | str | None:
    """Return the rank of a sketch, "auto" or None; refuse what the solver or loss cannot use."""
    rank = checked_rank("sketch", sketch)
    if loss == "poisson":
        if isinstance(rank, int):
            problem = " is for least squares: singular vectors do not keep counts, so leave it out"
            raise OptionError(Message(Option("sketch", rank), problem))
        return None
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
    loss: str,
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
        "loss": loss,
        "solver": solver_name(solver),
        "sketch": sketch,
        "max_iter": int(max_iter),
        "tol": float(tol),
        "max_time": None if max_time is None else float(max_time),
    }


class NeedsNumberOfComponents:
    """A method for batches: only if the number of components is given, and for least squares."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method

    def __get__(self, model: Any, owner: type) -> Callable[..., Any]:
        if model is None:
            return self.method
        if model.loss != "frobenius":
            problem = "partial_fit minimises least squares, and there is none for "
            advice = ": fit all samples; files larger than memory are read a part at a time"
            raise NotAvailableError(Message(problem, Option("loss", model.loss), advice))
        if isinstance(model.n_components, str) and model.n_components == "auto":
            raise NotAvailableError(
                "n_components='auto' needs all samples at once, and partial_fit has one batch: "
                "give a number; after fit, model.set_params(n_components=model.n_components_)"
            )
        return MethodType(self.method, model)


def scikit_learn_rng(random_state: Any) -> np.random.Generator | None:
    """Turn a random state of scikit-learn into a Generator."""
    if isinstance(random_state, np.random.RandomState) or random_state is np.random:
        from sklearn.utils import check_random_state  # slow to import

        random_state = check_random_state(random_state).randint(2**31)
    return None if random_state is None else seeded("random_state", random_state)

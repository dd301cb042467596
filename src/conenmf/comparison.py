"""Inits and solvers side by side on one matrix: error, time, and clustering scores if asked for.

Every pair is one fit by `pipeline.factorize`; nothing is computed here but scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .arguments import choice, classes, components, function, integer, optional, several
from .data.matrix import DataMatrix
from .data.resample import evenly_spaced
from .data.validate import require_data_matrix, require_nonnegative
from .data.views import take_samples
from .errors import ComponentsError, ConeNMFError, DataError, OptionError
from .judge import plots
from .judge.scores import scores
from .pipeline import factorize
from .result import Factorization
from .solve.inits import INITS, InitFunction
from .solve.run import Callback, History, Stopping
from .solve.solvers import SOLVERS, Solver, Update, solver_name
from .text import card, counted, function_name

INITS_COMPARED = ("cr1", "random", "nndsvd", "nndsvda", "nnsvdlrc", "spkm", "spa")
SOLVERS_COMPARED = ("hals", "mult", "nnlsb")
_WARM_UP_SAMPLES = 64
_N_NAMES = 2  # columns of the table that hold names, not numbers


@dataclass(frozen=True, eq=False)
class Contender:
    """One init with one solver.

    Attributes
    ----------
    init, solver : str
    relative_error : float
    seconds : float
        In all: init, solver and exact finish.
    n_iter : int
    history : History
        Its seconds are counted from the beginning, the time of the init included.
    scores : dict
        "nmi", "purity" and "dice" against the true labels, if they were given.
    """

    init: str
    solver: str
    relative_error: float
    seconds: float
    n_iter: int
    history: History
    scores: dict[str, float]

    @classmethod
    def of(
        cls, init: str, solver: str, result: Factorization, classes: npt.NDArray[Any] | None
    ) -> Contender:
        """Describe the result of a fit."""
        return cls(
            init,
            solver,
            result.relative_error,
            result.total_seconds,
            result.n_iter,
            result.history,
            {} if classes is None else scores(classes, np.asarray(result.labels)),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The contenders, lowest error first, and the number of components; ``print`` shows a table."""

    contenders: tuple[Contender, ...]
    K: int

    def rows(self) -> list[dict[str, Any]]:
        """The table: a dictionary for each contender."""
        return [
            {
                "init": one.init,
                "solver": one.solver,
                "relative_error": one.relative_error,
                "seconds": one.seconds,
                "n_iter": one.n_iter,
                **one.scores,
            }
            for one in self.contenders
        ]

    def __repr__(self) -> str:
        best = self.contenders[0]
        return (
            f"Comparison(K={self.K}, {len(self.contenders)} contenders, best: {best.init} + "
            f"{best.solver}, relative_error={best.relative_error:.4g})"
        )

    def __str__(self) -> str:
        lines = [list(self.rows()[0]), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place < _N_NAMES else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def _cells(self) -> list[list[str]]:
        return [
            [f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row.values()]
            for row in self.rows()
        ]

    def _repr_html_(self) -> str:
        title = f"Comparison with {counted(self.K, 'component')}, lowest error first"
        return card(title, rows=[list(self.rows()[0]), *self._cells()])

    def plot(self, ax: Any = None) -> Any:
        """Draw error against time, a colour for each init and a style for each solver.

        Returns the matplotlib axes.
        """
        curves = {(one.init, one.solver): one.history for one in self.contenders}
        return plots.curves(curves, ax)


def compare(
    V: DataMatrix,
    K: int,
    *,
    inits: Iterable[str | InitFunction] = INITS_COMPARED,
    solvers: Iterable[str | Solver | Update] = SOLVERS_COMPARED,
    labels: npt.ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 1e-4,
    max_time: float | None = None,
    seed: int = 0,
    watch: Callable[[str, str], Callback | None] | None = None,
) -> Comparison:
    """Fit with every init and every solver.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    inits, solvers : names in `INITS` and `SOLVERS`, or functions as `factorize` takes them
        Functions are called by their names. An init that cannot be made for these data (fewer
        directions than components) is left out.
    labels : array (N,), optional
        The true class of each sample, of any type.
    max_iter, tol, max_time
        For each fit, as in `factorize`.
    seed : int
        Seeds each init that draws.
    watch : callable, optional
        Called with the names of init and solver before each fit; returns a callback for it.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> table = compare(from_columns(model.V), 4, solvers=["hals"], labels=model.labels)
    >>> best = table.contenders[0]
    >>> best.relative_error < 0.07, sorted(best.scores)
    (True, ['dice', 'nmi', 'purity'])
    """
    require_data_matrix(V, nonzero=True, holes=True)
    require_nonnegative(V, "a comparison")
    K, seed = components(K), integer("seed", seed, at_least=0)
    inits = _checked("inits", inits, ("auto", *INITS))
    solvers = _checked("solvers", solvers, SOLVERS)
    Stopping(tol, max_iter=max_iter, max_time=max_time)
    optional(function, "watch", watch, takes=2)
    true = optional(classes, "labels", labels)
    if true is not None and true.size != V.shape[1]:
        raise DataError(f"there are {true.size} labels for {V.shape[1]} samples: give one for each")
    _warm_up(V, K, solvers)
    contenders, problem = [], None
    for init in inits:
        for solver in solvers:
            names = init if isinstance(init, str) else function_name(init), str(solver_name(solver))
            try:
                result = factorize(
                    V,
                    K,
                    init=init,
                    solver=solver,
                    max_iter=max_iter,
                    tol=tol,
                    max_time=max_time,
                    rng=np.random.default_rng(seed) if init != "cr1" else None,
                    callback=watch(*names) if watch is not None else None,
                )
            except ComponentsError as reason:
                problem = reason
                break
            contenders.append(Contender.of(*names, result, true))
    if not contenders:
        raise problem or OptionError("nothing to compare: name at least one init and one solver")
    contenders.sort(key=lambda one: one.relative_error)
    return Comparison(tuple(contenders), K)


def _checked(name: str, values: Any, valid: Collection[str]) -> list[Any]:
    """Names and functions; a single one counts as a list of one."""
    is_one = isinstance(values, str | Solver) or callable(values)
    given = [values] if is_one else several(name, values)
    for one in given:
        if not (callable(one) or isinstance(one, Solver)):
            choice(name, one, valid)
    return given


def _warm_up(V: DataMatrix, K: int, solvers: Iterable[Any]) -> None:
    """Run each solver on a few samples, so that none is timed while its code is compiled."""
    index = evenly_spaced(V.shape[1], _WARM_UP_SAMPLES)
    subset = take_samples(V, index)
    for solver in solvers if subset.nonzero else ():
        with suppress(ConeNMFError):  # an error is raised again by the fit of all samples
            factorize(
                subset, K, init="random", solver=solver, max_iter=2, rng=np.random.default_rng(0)
            )

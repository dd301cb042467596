"""Inits and solvers side by side on one matrix: error, time, and clustering scores if asked for.

Every pair is one fit by `pipeline.factorize`; nothing is computed here but scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from .arguments import choice, classes, components, function, integer, optional, several
from .data.matrix import DataMatrix
from .data.validate import require_data_matrix, require_nonnegative
from .errors import ComponentsError, DataError, OptionError
from .judge import plots
from .judge.scores import scores
from .pipeline import factorize
from .solve.inits import INITS, InitFunction
from .solve.run import Callback, History, Stopping
from .solve.solvers import SOLVERS, Solver, Update, solver_name
from .text import Facts, card, counted, function_name

INITS_COMPARED = ("cr1", "random", "nndsvd", "nndsvda", "nnsvdlrc", "spkm", "spa")
SOLVERS_COMPARED = ("hals", "mult", "nnlsb")


class Contender(NamedTuple):
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


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The contenders, lowest error first, and the number of components; ``print`` shows a table."""

    contenders: tuple[Contender, ...]
    K: int

    def rows(self) -> list[Facts]:
        """The table: a dictionary for each contender."""
        names = Contender._fields[:-2]
        return [dict(zip(names, one, strict=False)) | one.scores for one in self.contenders]

    def __repr__(self) -> str:
        best = self.contenders[0]
        return (
            f"Comparison(K={self.K}, {len(self.contenders)} contenders, best: {best.init} + "
            f"{best.solver}, relative_error={best.relative_error:.4g})"
        )

    def __str__(self) -> str:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def _cells(self) -> list[list[str]]:
        rows = self.rows()
        cells = [
            [f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row.values()]
            for row in rows
        ]
        return [list(rows[0]), *cells]

    def _repr_html_(self) -> str:
        title = f"Comparison with {counted(self.K, 'component')}, lowest error first"
        return card(title, rows=self._cells())

    def plot(self, ax: object = None) -> plots.Axes:
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
    labels: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 1e-4,
    max_time: float | None = None,
    seed: int = 0,
    watch: Callable[[str, str], Callback | None] | None = None,
) -> Comparison:
    """Fit V with every pair of init and solver, and compare errors and times.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    inits, solvers : names in `INITS` and `SOLVERS`, or functions as `factorize` takes them
        The table shows functions by their names. An init that fails on these data (fewer directions
        than components) is left out.
    labels : array (N,), optional
        The true class of each sample, of any type.
    max_iter, tol, max_time
        For each fit, as in `factorize`.
    seed : int
        Seed of the random inits.
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
    contenders, problem = [], None
    for init, solver in product(inits, solvers):
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
                rng=default_rng(seed) if init != "cr1" else None,
                callback=watch(*names) if watch is not None else None,
            )
        except ComponentsError as reason:
            problem = reason
            continue
        judged = {} if true is None else scores(true, np.asarray(result.labels))
        error, seconds = result.relative_error, result.total_seconds
        contenders.append(Contender(*names, error, seconds, result.n_iter, result.history, judged))
    if not contenders:
        raise problem or OptionError("nothing to compare: name at least one init and one solver")
    contenders.sort(key=lambda one: one.relative_error)
    return Comparison(tuple(contenders), K)


def _checked(name: str, values: object, valid: Collection[str]) -> list[Any]:
    """Names and functions; a single one counts as a list of one."""
    is_one = isinstance(values, str | Solver) or callable(values)
    given = [values] if is_one else several(name, values)
    for one in given:
        if not (callable(one) or isinstance(one, Solver)):
            choice(name, one, valid)
    return given

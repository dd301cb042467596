"""Comparison of inits and solvers on one matrix: error, time, and clustering scores on request.

Every pair is one fit by `pipeline.factorize`. Other programs, such as scikit-learn's NMF, can take
part; the same function computes the error of their factors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import product
from math import sqrt
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from . import plots
from .arguments import (
    choice,
    classes,
    components,
    function,
    instance,
    integer,
    optional,
    several,
)
from .data.matrix import Aligned, DataMatrix
from .data.validate import require_nonnegative
from .errors import ComponentsError, DataError, OptionError
from .io.open import as_data
from .judge.scores import scores
from .names import check_count
from .pipeline import factorize
from .result import Factorization
from .solve.coefficients import finished
from .solve.inits import INITS, InitFunction
from .solve.run import Callback, History
from .solve.solvers import SOLVERS, AnySolver, Solver, solver_name
from .text import function_name
from .types import Array, Facts

INITS_COMPARED = ("cr1", "random", "nndsvd", "nndsvda", "spkm", "spa")
SOLVERS_COMPARED = ("hals", "mult", "nnlsb")
_ERROR_DIGITS = 8  # of errors that are compared, so that rounding does not decide the order


class Contender(NamedTuple):
    """One init with one solver.

    Attributes
    ----------
    init, solver : str
        For another program: its name, and "".
    relative_error : float
    seconds : float
        Total time: init, solver and exact finish.
    n_iter : int
    history : History
        Seconds count from the beginning, including the init.
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
    """Inits and solvers side by side; ``print`` shows a table.

    Attributes
    ----------
    contenders : tuple of Contender
        The results, lowest error first.
    K : int
        The number of components.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> table = compare(from_columns(model.V), 4, inits=["cr1"], solvers=["hals"])
    >>> [(row["init"], row["solver"]) for row in table.rows()]
    [('cr1', 'hals')]
    """

    contenders: tuple[Contender, ...]
    K: int

    def rows(self) -> list[Facts]:
        """The table, with a dictionary for each contender."""
        rows = []
        for one in self.contenders:
            facts = one._asdict()
            del facts["history"], facts["scores"]
            rows.append(facts | one.scores)
        return rows

    def __repr__(self) -> str:
        rows = self.rows()
        cells = [[*rows[0]]]
        cells += [[_text(value) for value in row.values()] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for row in cells:
            padded = map(str.ljust, row, widths)
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines)

    def plot(self, ax: object = None, *, against: str = "seconds") -> plots.Axes:
        """Draw the error against "seconds" or "passes" over the data; return the matplotlib axes.

        Each init has a colour and each solver a line style. Other programs have only a point at the
        end of their fit, and no number of passes.

        Parameters
        ----------
        ax : matplotlib axes, optional
        against : {"seconds", "passes"}
        """
        choice("against", against, ("seconds", "passes"))
        curves = {}
        for one in self.contenders:
            if against == "seconds" or one.history.passes.size:
                curves[one.init, one.solver] = one.history
        return plots.curves(curves, ax, against=against)


def compare(
    V: object,
    K: int,
    *,
    inits: Iterable[str | InitFunction] = INITS_COMPARED,
    solvers: Iterable[AnySolver] = SOLVERS_COMPARED,
    labels: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 1e-4,
    max_time: float | None = None,
    seed: int = 0,
    watch: Callable[[str, str], Callback | None] | None = None,
    others: dict[str, Any] | None = None,
) -> Comparison:
    """Fit V with every pair of init and solver, and compare errors and times.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
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
        Called with the names of init and solver before each fit; returns a callback for the fit.
    others : dict, optional
        Others by name: an estimator with ``fit_transform`` and ``components_``, such as
        scikit-learn's ``NMF(K)``; a function of X (N, F) that returns the coefficients (N, K) and
        the components (K, F); or a fitted `ConeNMF` or a `Factorization` of V, which is not fitted
        again. V must be in memory. All errors are computed in the same way.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> table = compare(from_columns(model.V), 4, solvers=["hals"], labels=model.labels)
    >>> best = table.contenders[0]
    >>> best.relative_error < 0.07, sorted(best.scores)
    (True, ['dice', 'nmi', 'purity'])

    Beside scikit-learn:

    >>> from sklearn.decomposition import NMF
    >>> peers = {"scikit-learn": NMF(4, max_iter=2000)}
    >>> table = compare(from_columns(model.V), 4, inits="auto", solvers="hals", others=peers)
    >>> sorted(one.init for one in table.contenders)
    ['auto', 'scikit-learn']
    """
    V = as_data(V, nonzero=True, holes=True)
    require_nonnegative(V, "a comparison")
    K = components(K)
    seed = integer("seed", seed, at_least=0)
    inits = _check_all("inits", inits, ("auto", *INITS))
    solvers = _check_all("solvers", solvers, SOLVERS)
    optional(function, "watch", watch, takes=2)
    true = optional(classes, "labels", labels)
    if true is not None:
        check_count(true.size, "labels", V.n_samples)
    contenders = []
    failure = None
    for init, solver in product(inits, solvers):
        init_name = init if isinstance(init, str) else function_name(init)
        names = (init_name, str(solver_name(solver)))
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
                callback=None if watch is None else watch(*names),
            )
        except ComponentsError as error:
            failure = error
            continue
        contender = Contender(
            *names,
            result.relative_error,
            result.total_seconds,
            result.n_iter,
            result.history,
            _scores(true, result.labels),
        )
        contenders.append(contender)
    optional(instance, "others", others, dict)
    for name, program in (others or {}).items():
        contenders.append(_other(V, K, name, program, true))
    if not contenders:
        raise failure or OptionError("nothing to compare: name at least one init and one solver")
    contenders.sort(key=lambda one: round(one.relative_error, _ERROR_DIGITS))
    return Comparison(tuple(contenders), K)


def _other(V: DataMatrix, K: int, name: str, program: Any, true: Array | None) -> Contender:
    """Fit another program and compute the error of its factors."""
    X = V.held_rows(V.n_features * V.n_samples)
    if X is None or V.observed is not None:
        raise OptionError("others need complete data in memory: leave out `others`")
    began = perf_counter()
    fitted = getattr(program, "result_", program)
    if isinstance(fitted, Factorization):
        began -= fitted.total_seconds
        A, C = fitted.coefficients, fitted.components
    elif hasattr(program, "fit_transform"):
        A = program.fit_transform(X)
        C = program.components_
    else:
        A, C = function("others", program, takes=1)(X)
    seconds = perf_counter() - began
    A = np.asarray(A, float)
    C = np.asarray(C, float)
    if (A.shape, C.shape) != ((V.n_samples, K), (K, V.n_features)):
        raise DataError(
            f"{name} returned factors of shape {A.shape} and {C.shape}, expected "
            f"{(V.n_samples, K)} and {(K, V.n_features)}"
        )
    end = finished(V, C.T, given=V.align(A))
    error = sqrt(end.squared_error / V.total)
    history = History(np.array([error]), np.array([seconds]), np.zeros(0))
    n_iter = getattr(fitted, "n_iter", getattr(program, "n_iter_", 0))
    return Contender(name, "", error, seconds, n_iter, history, _scores(true, end.labels))


def _scores(true: Array | None, labels: Aligned) -> dict[str, float]:
    return {} if true is None else scores(true, np.asarray(labels))


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _check_all(name: str, values: object, valid: Collection[str]) -> list[Any]:
    """Return a list of names and functions; a single one becomes a list of one."""
    if isinstance(values, str | Solver) or callable(values):
        values = [values]
    choices = several(name, values)
    for one in choices:
        if not (callable(one) or isinstance(one, Solver)):
            choice(name, one, valid)
    return choices

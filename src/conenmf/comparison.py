"""Starts and solvers side by side on one matrix: error, time, and clustering scores if wanted."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import normalized_mutual_info_score

from .data.blocks import Array
from .data.doors import from_columns
from .data.matrix import DataMatrix
from .data.sampling import evenly_spaced
from .data.validate import require_data_matrix
from .errors import ComponentsError, ConeNMFError, FileFormatError, OptionError, ShapeError
from .judge import plots
from .judge.metrics import dice, purity
from .pipeline import factorize
from .solve.inits import INITS
from .solve.solvers import SOLVERS
from .solve.stopping import Callback, History
from .text import visible

__all__ = [
    "INITS_COMPARED",
    "SOLVERS_COMPARED",
    "Comparison",
    "Contender",
    "compare",
    "read_labels",
    "scores",
]

INITS_COMPARED = ("cr1", "random", "nndsvd", "nndsvda", "nnsvdlrc", "spkm", "spa")
SOLVERS_COMPARED = ("hals", "mult", "nnlsb")


@dataclass(frozen=True, eq=False)
class Contender:
    """One start with one solver.

    Attributes
    ----------
    init, solver : str
    relative_error : float
    seconds : float
        In all: start, solver and exact finish.
    n_iter : int
    history : History
        Its seconds are counted from the beginning, the time of the start included.
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


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found: the contenders, best error first, and the number of components."""

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

    def plot(self, ax: Any = None) -> Any:
        """Draw error against time, a line for each; return the matplotlib axes."""
        curves = {f"{one.init} + {one.solver}": one.history for one in self.contenders}
        return plots.curves(curves, ax)


def compare(
    V: DataMatrix,
    K: int,
    *,
    inits: Iterable[str] = INITS_COMPARED,
    solvers: Iterable[str] = SOLVERS_COMPARED,
    labels: npt.ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 1e-4,
    max_time: float | None = None,
    seed: int = 0,
    watch: Callable[[str, str], Callback | None] | None = None,
) -> Comparison:
    """Run every start with every solver.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    inits, solvers : names in `INITS` and `SOLVERS`
        A start that cannot be made for these data (fewer directions than components) is left out.
    labels : array (N,), optional
        The true class of each sample, of any type.
    max_iter, tol, max_time
        For each run, as in `factorize`.
    seed : int
        Each start that draws begins with it.
    watch : callable, optional
        Called with the names of start and solver before each run; returns a callback for it.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> table = compare(from_columns(model.V), 4, solvers=["hals"], labels=model.labels)
    >>> best = table.contenders[0]
    >>> best.relative_error < 0.07, sorted(best.scores)
    (True, ['dice', 'nmi', 'purity'])
    """
    require_data_matrix(V, nonzero=True)
    inits, solvers = tuple(inits), tuple(solvers)
    for option, names, known in (("inits", inits, INITS), ("solvers", solvers, SOLVERS)):
        for name in names:
            if name not in known and (option, name) != ("inits", "auto"):
                raise OptionError.unknown(option, name, known)
    truth = None if labels is None else np.asarray(labels)
    if truth is not None and truth.shape != (V.shape[1],):
        raise ShapeError(
            f"there are {truth.size} labels for {V.shape[1]} samples: give one for each"
        )
    some = from_columns(V.columns(evenly_spaced(V.shape[1], 64)), n_threads=V.n_threads)
    if some.nonzero:  # so that no contender waits for what is compiled when first used
        for solver in solvers:
            rng = np.random.default_rng(seed)
            with suppress(ConeNMFError):  # the race will tell
                factorize(some, K, init="random", solver=solver, max_iter=2, rng=rng)
    found, problem = [], None
    for init in inits:
        for solver in solvers:
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
                    callback=watch(init, solver) if watch is not None else None,
                )
            except ComponentsError as reason:
                problem = reason
                break
            late = result.seconds["rank"] + result.seconds["init"]
            history = result.history
            found.append(
                Contender(
                    init,
                    solver,
                    result.relative_error,
                    result.total_seconds,
                    result.n_iter,
                    History(history.relative_error, late + history.elapsed, history.passes),
                    {} if truth is None else scores(truth, np.asarray(result.labels)),
                )
            )
    if not found:
        raise problem or OptionError("nothing to compare: name at least one start and one solver")
    found.sort(key=lambda one: one.relative_error)
    return Comparison(tuple(found), K)


def scores(truth: Array, labels: Array) -> dict[str, float]:
    """How well labels agree with true ones, by the measures of the paper.

    >>> scores(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    {'nmi': 1.0, 'purity': 1.0, 'dice': 1.0}
    """
    nmi = normalized_mutual_info_score(truth, labels, average_method="geometric")
    return {"nmi": float(nmi), "purity": purity(truth, labels), "dice": dice(truth, labels)}


def read_labels(path: str, V: DataMatrix) -> Array:
    """Classes in the order of the samples, or by their names."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise FileFormatError(f"{path} is not a text of labels: {problem}") from problem
    N = V.shape[1]
    if len(rows) == N + 1:
        rows = rows[1:]  # a heading
    if len(rows) != N:
        raise ShapeError(f"{path} has {len(rows)} labels for {N} samples: give one for each")
    if len(rows[0]) > 1 and V.names.sample_names is not None:
        if [visible(row[0]) for row in rows] == list(V.names.sample_names):
            return np.array([row[-1] for row in rows])
        by_name = {visible(row[0]): row[-1] for row in rows}
        if len(by_name) < N:
            raise FileFormatError(f"{path} has names that repeat, and not in the order of the data")
        missing = [name for name in V.names.sample_names if name not in by_name]
        if missing:
            raise FileFormatError(f"{path} has no label for the sample {missing[0]!r}")
        return np.array([by_name[name] for name in V.names.sample_names])
    return np.array([row[-1] for row in rows])

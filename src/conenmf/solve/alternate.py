"""One run from given factors, for the judges and for tools that need no problem or init."""

from __future__ import annotations

from ..data.matrix import Aligned, DataMatrix
from ..data.validate import aligned_coefficients
from ..types import Array
from .loss import AnyObjective
from .losses import FROBENIUS
from .run import Callback, Run, Solution, Stopping
from .solvers import Solver, Update

_USUAL = Stopping()


def alternate(
    V: DataMatrix,
    W: Array,
    H: Aligned | None,
    solver: Solver | str | Update,
    *,
    stopping: Stopping = _USUAL,
    callback: Callback | None = None,
    objective: AnyObjective | None = None,
) -> Solution:
    """Update H and W alternately until a limit is reached; one pass over V per iteration.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N), or None
        May be None only for a solver that starts by computing H.
    solver : str, Solver or callable
    stopping : Stopping
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True ends the run.
    objective : Objective, optional
        Another loss than least squares, penalties or known components.

    Notes
    -----
    The history counts seconds and passes from the call. If an iteration is undone, the error stays
    the same in the history.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[1.0, 2.0], [2.0, 4.0]])
    >>> solution = alternate(V, np.ones((2, 1)), np.ones((1, 2)), "hals")
    >>> np.round(solution.W[:, 0] / solution.W[0, 0], 6)
    array([1., 2.])
    """
    H = H if H is None else aligned_coefficients(V, H, W.shape[1]).T
    with V.own_threads():
        objective = FROBENIUS.on(V) if objective is None else objective
        run = Run(objective, W, H, objective.loss.solver(solver), stopping, callback=callback)
        del W, H  # they may be large
        run.run()
    return run.solution()

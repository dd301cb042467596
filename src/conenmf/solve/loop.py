"""The loop that alternates between W and H, for any solver and any loss.

One iteration is one pass over V, for one run or for several at once: a block of samples yields its
rows of the new H and the sums from which the new W and the value of the objective follow. A run
(`runs`) chooses the factors of a pass and decides whether to accept its outcome; the loss
(`losses`) defines the sums, and how W follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..arguments import function, instance, optional, several
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.together import Part, products_together, sweep_together
from ..data.validate import require_data_matrix
from .losses import Frobenius
from .methods import Method
from .runs import Leap, Outcome, Run, Solution
from .solvers import Solver, Update
from .state import Saved
from .stopping import Callback, Stopping

__all__ = ["alternate", "ending", "iterate"]


def alternate(
    V: DataMatrix,
    W: Array,
    H: Aligned | None,
    solver: Method | Solver | str | Update,
    *,
    stopping: Stopping = Stopping(),  # noqa: B008 - frozen
    callback: Callback | None = None,
    leap: Leap | None = None,
    resume: Saved | None = None,
    save: Callable[[Saved, bool], None] | None = None,
) -> Solution:
    """Update H and W alternately until a limit is reached; one pass over V per iteration.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N), or None
        None only for a solver that begins with H.
    solver : str, Solver, callable or Method
        A `Method` if W and H have different solvers, or penalties, or for another loss.
    stopping : Stopping
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True ends the run.
    leap : callable, optional
        Asked once, after two iterations, for factors from which to continue; they are accepted if
        the next iteration lowers the objective of V itself. Only for solvers that are extrapolated.
    resume : Saved, optional
        Continue from this state, with the same bits as without the interruption; W and H are
        ignored.
    save : callable, optional
        Called with the state to save before every iteration, and when the callback has ended the
        run; then the second argument is True.

    Notes
    -----
    The history counts seconds and passes from the call. An iteration that is undone counts as one
    in which the error has not fallen.
    """
    require_data_matrix(V, nonzero=True, holes=True)
    instance("stopping", stopping, Stopping)
    optional(function, "callback", callback, takes=1)
    optional(function, "leap", leap, takes=3)
    optional(instance, "resume", resume, Saved)
    optional(function, "save", save, takes=2)
    with V.own_threads():
        run = Run(V, W, H, solver, stopping, callback=callback, leap=leap, resume=resume, save=save)
        del W, H  # they may be large, and are not needed any more
        (solution,) = iterate(V, [run])
    return solution


def iterate(V: DataMatrix, runs: Sequence[Run]) -> list[Solution]:
    """Advance runs on V until each has stopped; every pass over V serves all that have not.

    Each run ends with the bits that it would have alone. It may be on a view of V.
    """
    runs = [instance("runs", run, Run) for run in several("runs", runs, "a list of runs")]
    for _ in ending(V, runs):
        pass
    return [run.solution() for run in runs]


def ending(V: DataMatrix, runs: Sequence[Run]) -> Iterator[tuple[int, Run]]:
    """Do the same, and return each run with its number as soon as it has stopped.

    What has stopped is not kept here: its H may be large.
    """
    require_data_matrix(V, holes=True)
    with V.own_threads():
        _advance(V, [run for run in runs if run.lacks_sums])
        active = dict(enumerate(runs))
        del runs
        while active:
            for number in [number for number, run in active.items() if run.reason is not None]:
                yield number, active.pop(number)
            for run in active.values():
                run.save(ended=False)
            _advance(V, list(active.values()))
            for run in active.values():
                run.end_iteration()


def _advance(V: DataMatrix, runs: list[Run]) -> None:
    """Read V once for all runs: each proposes, the blocks answer, each settles."""
    if not runs:
        return
    proposals = [run.propose() for run in runs]
    given = [run.arguments(proposal) for run, proposal in zip(runs, proposals, strict=True)]
    parts = [
        Part(
            run.V,
            run.loss.step,
            (*run.loss.aligned, *proposal.aligned),
            arguments,
            n_rows=len(proposal.aligned),
            out=proposal.out,
            X=arguments["W"] if isinstance(run.loss, Frobenius) else None,
        )
        for run, proposal, arguments in zip(runs, proposals, given, strict=True)
    ]
    outcomes = sweep_together(V, parts)
    _multiply_turned(V, runs, outcomes)
    for run, proposal, (*rows, sums) in zip(runs, proposals, outcomes, strict=True):
        run.settle(proposal, Outcome(rows[0], rows[-1], sums))


def _multiply_turned(V: DataMatrix, runs: list[Run], outcomes: list[tuple[Any, ...]]) -> None:
    """Multiply V with the new H of all runs at once, where W is updated on the turned data."""
    if V.other_order is None:
        return
    new = [
        (np.asarray(rows[0]), sums)
        for run, (*rows, sums) in zip(runs, outcomes, strict=True)
        if run.V is V and run.method.H.solver.first == "H" and "HH" in sums and "VH" not in sums
    ]
    products = products_together(V.other_order, [Ht for Ht, _ in new])
    for (_, sums), C in zip(new, products or [], strict=False):
        sums["C"] = C

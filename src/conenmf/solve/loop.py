"""The loop that alternates between W and H, for any solver and any loss.

One iteration is one pass over V, for one run or for several at once: a block of samples yields its
rows of the new H and the sums from which the new W and the value of the objective follow. A run
(`runs`) chooses the factors of a pass and decides whether to accept its outcome; the loss
(`losses`) defines the sums, and how W follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arguments import function, instance, optional, several
from ..data.blocks import Array, Block
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_data_matrix
from .losses import Sums
from .methods import Method
from .runs import Leap, Outcome, Run, Solution
from .solvers import Solver, Update
from .state import Saved
from .stopping import Callback, Stopping

__all__ = ["alternate", "iterate"]


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
    require_data_matrix(V, nonzero=True)
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

    Each run ends with the bits that it would have alone.
    """
    require_data_matrix(V)
    runs = [instance("runs", run, Run) for run in several("runs", runs, "a list of runs")]
    with V.own_threads():
        _advance(V, [run for run in runs if run.lacks_sums])
        active = [run for run in runs if run.reason is None]
        while active:
            for run in active:
                run.save(ended=False)
            _advance(V, active)
            for run in active:
                run.end_iteration()
            active = [run for run in active if run.reason is None]
        return [run.solution() for run in runs]


def _advance(V: DataMatrix, runs: list[Run]) -> None:
    """Read V once for all runs: each proposes, the blocks answer, each settles."""
    if not runs:
        return
    proposals = [run.propose() for run in runs]
    inputs = [
        (*run.loss.aligned, *proposal.aligned)
        for run, proposal in zip(runs, proposals, strict=True)
    ]
    old = [array for proposal in proposals for array in proposal.out]
    *rows, sums = V.sweep(
        _step_runs,
        *(array for arrays in inputs for array in arrays),
        steps=[run.loss.step for run in runs],
        counts=[len(arrays) for arrays in inputs],
        arguments=[run.arguments(proposal) for run, proposal in zip(runs, proposals, strict=True)],
        out=old if any(array is not None for array in old) and not V.is_one_block else (),
    )
    for run, proposal, part in zip(runs, proposals, sums, strict=True):
        count = len(proposal.aligned)
        mine, rows = rows[:count], rows[count:]
        run.settle(proposal, Outcome(mine[0], mine[-1], part))


def _step_runs(
    block: Block,
    *aligned: Array,
    steps: list[Callable[..., tuple[Any, ...]]],
    counts: list[int],
    arguments: list[dict[str, Any]],
) -> tuple[Any, ...]:
    """Do the step of every run with one block; each takes `count` of the aligned arrays."""
    rows: list[Array] = []
    sums: list[Sums] = []
    for step, count, shared in zip(steps, counts, arguments, strict=True):
        mine, aligned = aligned[:count], aligned[count:]
        *updated, part = step(block, *mine, **shared)
        rows += updated
        sums.append(part)
    return *rows, tuple(sums)

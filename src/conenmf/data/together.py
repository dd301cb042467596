"""One pass over V for several steps, each on V itself or on a view of it.

Many fits of the same data, or of data drawn from them, each do a step of their own with every
block. `sweep_together` reads a block once and gives it to all of them, changed as the view of each
changes it. What each gets back has the bits that a sweep of its own would have: a kernel adds up
the entries of a column in the same order for any number of columns.

Where several steps multiply the same sparse samples, each with a matrix of its own, one product
with all of them side by side is much faster: an entry of V is looked up once, and processors
multiply many columns at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..arguments import Arrays
from ..text import Facts
from .blocks import Array, Block, is_sparse, products
from .matrix import (
    Aligned,
    DataMatrix,
    Measures,
    PerSample,
    Reduce,
    Results,
    Step,
    add,
    join_sums,
    measure_block,
)
from .views import MappedMatrix, on_changed


class Part(NamedTuple):
    """A step that takes part in a pass; the fields are those of `DataMatrix.sweep`.

    Attributes
    ----------
    V : DataMatrix
        The matrix that is read, or a `MappedMatrix` of it.
    step : callable
    aligned : tuple of arrays (N, ...)
    shared : dict
    n_rows : int
        How many results the step returns for every sample.
    reduce : callable
    X : array (F, K), optional
        With which the step multiplies every sample. The step may get the products as ``C=``.
    """

    V: DataMatrix
    step: Step
    aligned: tuple[Aligned, ...]
    shared: Facts
    n_rows: int
    reduce: Reduce = add
    X: Array | None = None


def sweep_together(V: DataMatrix, parts: Sequence[Part]) -> list[Results]:
    """Read V once for all parts; return for each what ``part.V.sweep(...)`` would return."""
    inputs = []
    steps = []
    for part in parts:
        step = part.step
        own = ()
        if part.V is not V:
            assert isinstance(part.V, MappedMatrix)
            step = partial(on_changed, step, part.V.change, len(part.V.arrays))
            own = part.V.arrays
            part.V._count(1.0)
        inputs.append((*own, *part.aligned))
        steps.append(step)
    more: Facts = {}
    beside = SideBySide.of([None if part.V is not V else part.X for part in parts])
    if beside is not None and not V.is_remote:  # where W would be sent twice
        more["side_by_side"] = beside
    *rows, totals = V.sweep(
        _steps_together,
        *(array for arrays in inputs for array in arrays),
        reduce=partial(_reduce_each, [part.reduce for part in parts]),
        steps=steps,
        counts=[len(arrays) for arrays in inputs],
        shared=[part.shared for part in parts],
        **more,
    )
    results = []
    for part, total in zip(parts, totals, strict=True):
        results.append((*rows[: part.n_rows], total))
        rows = rows[part.n_rows :]
    return results


class SideBySide(NamedTuple):
    """Matrices side by side, and where each is: its first column and the one after its last."""

    X: Array
    places: list[tuple[int, int] | None]

    @classmethod
    def of(cls, matrices: Sequence[Array | None]) -> SideBySide | None:
        """Put matrices of one type side by side; None if that saves nothing."""
        given = [X for X in matrices if X is not None]
        if len(given) < 2 or len({X.dtype for X in given}) > 1 or not kernels.AVAILABLE:
            return None
        places: list[tuple[int, int] | None] = []
        end = 0
        for X in matrices:
            width = 0 if X is None else X.shape[1]
            places.append(None if X is None else (end, end + width))
            end += width
        return cls(np.hstack(given), places)

    def split(self, C: Array) -> list[Arrays]:
        """Return the columns of each, as an argument of its step."""
        return [
            {} if place is None else {"C": np.ascontiguousarray(C[:, slice(*place)])}
            for place in self.places
        ]


def products_together(V: DataMatrix, matrices: Sequence[Array]) -> list[Array] | None:
    """Return V'X (N, K) for each matrix X (F, K), in one pass; None if that saves nothing."""
    beside = SideBySide.of(matrices)
    if beside is None:
        return None
    C, _ = V.sweep(_multiply, X=beside.X)
    return [part["C"] for part in beside.split(np.asarray(C))]


def _multiply(block: Block, *, X: Array) -> PerSample:
    return products(block, X), None


def measure_together(V: DataMatrix, views: Sequence[DataMatrix]) -> None:
    """Measure views of V in one pass, so that none has to make its own."""
    parts = [
        Part(view, measure_block, (), {}, n_rows=1, reduce=join_sums)
        for view in views
        if view is not V and view._measures is None
    ]
    if parts:
        for part, (norms, sums) in zip(parts, sweep_together(V, parts), strict=True):
            part.V._measures = Measures(norms, *sums)


def _steps_together(
    block: Block,
    *aligned: Array,
    steps: list[Step],
    counts: list[int],
    shared: list[Facts],
    side_by_side: SideBySide | None = None,
) -> Results:
    """Do every step with one block; each takes `count` of the aligned arrays."""
    rows: list[Array] = []
    sums: list[Any] = []
    if side_by_side is not None and is_sparse(block):
        split = side_by_side.split(products(block, side_by_side.X))
        shared = [{**own, **C} for own, C in zip(shared, split, strict=True)]
    for step, count, own in zip(steps, counts, shared, strict=True):
        mine = aligned[:count]
        aligned = aligned[count:]
        *results, part = step(block, *mine, **own)
        rows += results
        sums.append(part)
    return *rows, tuple(sums)


def _reduce_each(reducers: list[Reduce], total: Results, part: Results) -> Results:
    return tuple(
        reduce(one, other) for reduce, one, other in zip(reducers, total, part, strict=True)
    )

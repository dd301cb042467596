"""Coordinate descent over the rows of a factor, from the residuals of single ratings."""

from __future__ import annotations

import numpy as np

from ..types import Array
from .load import compiled, compiled_in_order


@compiled
def _sums(left: Array, column: Array, weights: Array, n: int) -> tuple[float, float]:
    """Return the sums of weights * column * left and of weights * column^2 over n ratings."""
    slope = 0.0
    curvature = 0.0
    for p in range(n):
        weighted = weights[p] * column[p]
        slope += weighted * left[p]
        curvature += weighted * column[p]
    return slope, curvature


@compiled_in_order
def rating_rows(
    starts: Array,
    places: Array,
    partners: Array,
    weights: Array,
    left: Array,
    own: Array,
    other: Array,
    mean: Array,
    penalties: Array,
) -> None:
    """Minimise over each entry of each row of `own` once, and update the residuals `left`.

    The ratings of row r are places[starts[r] : starts[r + 1]] of `left`, and belong to these rows
    `partners` of `other`. The first column of `own` may be negative. See `fields.ratings`.
    """
    n_rows, n_columns = own.shape
    longest = np.diff(starts).max()
    mine = np.empty(longest)
    heavy = np.empty(longest)
    columns = np.ones((n_columns, longest))
    for r in range(n_rows):
        first = starts[r]
        n = starts[r + 1] - first
        for p in range(n):
            mine[p] = left[places[first + p]]
            heavy[p] = weights[places[first + p]]
            row = other[partners[first + p]]
            for k in range(1, n_columns):
                columns[k, p] = row[k]
        for k in range(n_columns):
            column = columns[k]
            slope, curvature = _sums(mine, column, heavy, n)
            penalty = penalties[r, k]
            pull = slope + curvature * own[r, k] + penalty * mean[k]
            new = pull / (curvature + penalty)
            if k > 0:
                new = max(new, 0.0)
            step = new - own[r, k]
            own[r, k] = new
            for p in range(n):
                mine[p] -= step * column[p]
        for p in range(n):
            left[places[first + p]] = mine[p]

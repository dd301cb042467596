"""Frequent Directions: a sketch of samples that arrive one after the other and are not kept.

The sketch S (F, l) of samples V (F, N) has l columns for any N. For every unit vector x it
loses at most a small part of what V has in that direction:

0 <= ||V'x||^2 - ||S'x||^2 <= sum_{j > k} sigma_j(V)^2 / (l + 1 - k)   for every k <= l

(Liberty, "Simple and deterministic matrix sketching", KDD 2013; Ghashami, Liberty, Phillips and
Woodruff, "Frequent Directions", SIAM J. Comput. 45, 2016). Sketches of two parts of the samples
merge into a sketch of both, so the order of samples and how they are cut into batches does not
matter for what is guaranteed.
"""

from __future__ import annotations

import numpy as np

from ..data.blocks import Array


def sketch_columns(columns: Array, size: int) -> Array:
    """Return a sketch (F, size) of dense samples (F, n): their Gram matrix (n, n) is decomposed.

    The (size + 1)-th squared singular value is taken from all, so no more than `size` are left. In
    any direction at most that much is lost, of the sum of squares size + 1 times as much.
    """
    columns = columns[:, columns.any(axis=0)]
    if columns.shape[1] <= size:
        return np.pad(columns, ((0, 0), (0, size - columns.shape[1])))
    squares, turn = np.linalg.eigh(columns.T @ columns)
    lost, squares, turn = max(squares[-size - 1], 0.0), squares[-size:], turn[:, -size:]
    share = np.maximum(squares - lost, 0.0) / np.where(squares > 0, squares, 1.0)
    return columns @ (turn * np.sqrt(share))


def merge_sketches(a: Array, b: Array) -> Array:
    """Return the sketch of the samples of two sketches (F, size) of the same size."""
    return sketch_columns(np.hstack([a, b]), a.shape[1])


def leading_direction(sketch: Array) -> Array:
    """Return the best axis of the samples of a sketch (F, l), nonnegative if all of them are.

    With w the leading left singular vector, ||V - |w| |w|'V||^2 is at most 1 + 1 / l times the
    squared error of the best axis: see "Streams" in the documentation.
    """
    axis: Array = np.abs(sketch @ np.linalg.eigh(sketch.T @ sketch)[1][:, -1])
    length = np.linalg.norm(axis)
    return axis / length if length > 0 else axis

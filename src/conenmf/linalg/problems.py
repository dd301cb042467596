"""The small problems that solvers work on: minimise y'Gy / 2 - c'y over y >= 0, for many c at once.

G is a Gram matrix (K, K), or one for each row, (n, K, K); C (n, K) has a right-hand side in each
row, Y (n, K) a first guess.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array
from ..errors import DataError, DataTypeError
from ..text import shown

__all__ = ["checked_problem"]


def checked_problem(G: Any, C: Any, Y: Any = None) -> tuple[Array, Array, Array | None]:
    """Return G, C and Y as arrays of numbers, C and Y of floats; raise unless they fit together.

    >>> checked_problem([[1]], [[2]])[1]
    array([[2.]])
    """
    G, C = _numbers("G", G), _floats("C", C)
    n, K = C.shape if C.ndim == 2 else (-1, -1)
    if G.shape not in ((K, K), (n, K, K)):
        raise DataError(
            f"G has shape {G.shape} and C {C.shape}, expected (K, K), or (n, K, K), and (n, K)"
        )
    if Y is None:
        return G, C, None
    Y = _floats("Y", Y)
    if Y.shape != C.shape:
        raise DataError(f"Y has shape {Y.shape}, expected that of C, {C.shape}")
    return G, C, Y


def _floats(name: str, value: Any) -> Array:
    numbers = _numbers(name, value)
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)


def _numbers(name: str, value: Any) -> Array:
    if type(value) is np.ndarray and value.dtype.kind == "f":
        return value
    try:
        numbers = np.asarray(value)
    except Exception:  # rows that differ in length, or an object of the caller's own
        numbers = np.empty((), dtype=object)
    if numbers.dtype.kind not in "fiub":
        raise DataTypeError(f"{name} is {shown(value)}, expected a matrix of numbers")
    return numbers

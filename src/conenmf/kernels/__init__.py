"""Compiled versions of the innermost loops; only this folder imports numba.

Each kernel works on raw arrays, row by row, without the interpreter lock. The module that calls it
has a NumPy version, which explains the kernel and replaces it if numba is missing. A kernel exists
only if it is at least twice as fast in a benchmark. Without numba, `AVAILABLE` is False.
"""

from __future__ import annotations

from .hals import (
    extrapolate_rows,
    hals_packed_rows,
    hals_rows,
    hals_sweeps,
)
from .load import SMALLEST_SQUARE, clock, compiling, free_numba_lock, load_kernels
from .nnls import nnls_memory, nnls_rows
from .poisson import poisson_rows
from .ratings import rating_rows
from .sparse import (
    cone_products_columns,
    cone_products_rows,
    cone_products_sparse,
    entry_products,
    sparse_products,
)

__all__ = [
    "AVAILABLE",
    "SMALLEST_SQUARE",
    "clock",
    "compiling",
    "cone_products_columns",
    "cone_products_rows",
    "cone_products_sparse",
    "entry_products",
    "extrapolate_rows",
    "free_numba_lock",
    "hals_packed_rows",
    "hals_rows",
    "hals_sweeps",
    "nnls_memory",
    "nnls_rows",
    "poisson_rows",
    "rating_rows",
    "sparse_products",
]

AVAILABLE: bool  # set when it is first read, then a plain attribute


def __getattr__(name: str) -> bool:
    if name != "AVAILABLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_kernels()
    return bool(globals()[name])

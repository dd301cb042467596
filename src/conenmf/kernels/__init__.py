"""Compiled twins of the innermost loops; the only place that imports numba.

Each kernel works on raw arrays, row by row, without the interpreter lock, and has a NumPy twin
in the module that calls it. The NumPy twin is the explanation and the fallback; the kernel is
here because a benchmark showed it at least twice as fast. Without numba, `AVAILABLE` is False.
"""

from __future__ import annotations

from .hals import (
    HALS_BATCH_BYTES,
    HALS_BATCH_ROWS,
    HALS_LANES,
    extrapolate_rows,
    hals_packed_rows,
    hals_rows,
    hals_sweeps,
)
from .load import SMALLEST_SQUARE, clock, compiling, load_kernels
from .nnls import nnls_memory, nnls_rows
from .poisson import poisson_steps
from .sparse import (
    cone_products_columns,
    cone_products_rows,
    cone_products_sparse,
    entry_products,
    sparse_products,
    sparse_sums,
)

__all__ = [
    "AVAILABLE",
    "HALS_BATCH_BYTES",
    "HALS_BATCH_ROWS",
    "HALS_LANES",
    "SMALLEST_SQUARE",
    "clock",
    "compiling",
    "cone_products_columns",
    "cone_products_rows",
    "cone_products_sparse",
    "entry_products",
    "extrapolate_rows",
    "hals_packed_rows",
    "hals_rows",
    "hals_sweeps",
    "nnls_memory",
    "nnls_rows",
    "poisson_steps",
    "sparse_products",
    "sparse_sums",
]

AVAILABLE: bool  # decided when it is first read, and a plain attribute from then on


def __getattr__(name: str) -> bool:
    if name != "AVAILABLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_kernels()
    return bool(globals()[name])

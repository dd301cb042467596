"""Compiled twins of the innermost loops; the only place that imports numba.

Each kernel works on raw arrays, row by row, without the interpreter lock, and has a NumPy twin
in the module that calls it. The NumPy twin is the explanation and the fallback; the kernel is
here because a benchmark showed it at least twice as fast. Without numba, `AVAILABLE` is False.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "AVAILABLE",
    "cone_products_columns",
    "cone_products_rows",
    "cone_products_sparse",
    "hals_rows",
    "nnls_one_by_one",
    "nnls_rows",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

AVAILABLE = False
if os.environ.get("CONENMF_NUMBA", "1") != "0":
    try:
        import numba
    except ImportError:
        pass
    else:
        AVAILABLE = True


def _compiled(function: _Function) -> _Function:
    """Compile at the first call; sums may be reassociated, NaN and infinity keep their meaning."""
    if not AVAILABLE:
        return function

    def compiler(cache: bool) -> Any:
        fastmath = {"reassoc", "contract", "nsz"}
        return numba.njit(nogil=True, cache=cache, error_model="numpy", fastmath=fastmath)

    try:
        result: _Function = compiler(cache=True)(function)
    except RuntimeError:  # nowhere to write the cache: a read-only installation
        result = compiler(cache=False)(function)
    return result


@_compiled
def cone_products_rows(rows: Any, cones: Any, Q: Any, h: Any, S: Any) -> None:
    """h[n] = <rows[n], Q[cone]> and S[cone] += h[n] rows[n]; Q and S have one row per cone.

    Here and below `cones` is unsigned, so that no index counts from the end; h starts at zero;
    S without cones is not wanted and left alone.
    """
    for n in range(rows.shape[0]):
        k = cones[n]
        row, direction = rows[n], Q[k]
        product = 0.0
        for f in range(row.shape[0]):
            product += row[f] * direction[f]
        h[n] = product
        if S.shape[0] > 0:
            total = S[k]
            for f in range(row.shape[0]):
                total[f] += product * row[f]


@_compiled
def cone_products_columns(columns: Any, cones: Any, Q: Any, h: Any, S: Any) -> None:
    """The same for samples in columns; Q and S have one column per cone."""
    for f in range(columns.shape[0]):
        for n in range(columns.shape[1]):
            h[n] += columns[f, n] * Q[f, cones[n]]
    if S.shape[1] > 0:
        for f in range(columns.shape[0]):
            for n in range(columns.shape[1]):
                S[f, cones[n]] += h[n] * columns[f, n]


@_compiled
def cone_products_sparse(
    data: Any, indices: Any, indptr: Any, cones: Any, Q: Any, h: Any, S: Any
) -> None:
    """The same for compressed sparse rows; Q and S have one row per cone."""
    for n in range(cones.shape[0]):
        k = cones[n]
        product = 0.0
        for position in range(indptr[n], indptr[n + 1]):
            product += data[position] * Q[k, indices[position]]
        h[n] = product
        if S.shape[0] > 0:
            for position in range(indptr[n], indptr[n + 1]):
                S[k, indices[position]] += product * data[position]


@_compiled
def hals_rows(G: Any, C: Any, Y: Any, floor: float) -> None:
    """One sweep of coordinate descent over each row of Y, in place (see `solvers.hals`)."""
    K = G.shape[0]
    for n in range(Y.shape[0]):
        for k in range(K):
            if G[k, k] > 0.0:
                gradient = -C[n, k]
                for j in range(K):
                    gradient += G[k, j] * Y[n, j]
                value = Y[n, k] - gradient / G[k, k]
                Y[n, k] = value if value > floor else floor


@_compiled
def _factor(G: Any, members: Any, size: int, L: Any) -> None:
    """Cholesky factor of the rows and columns of G that `members` names."""
    for i in range(size):
        for j in range(i + 1):
            value = G[members[i], members[j]]
            for m in range(j):
                value -= L[i, m] * L[j, m]
            if i == j:
                L[i, i] = np.sqrt(max(value, 1e-300))
            else:
                L[i, j] = value / L[j, j]


@_compiled
def _substitute(L: Any, members: Any, size: int, c: Any, x: Any) -> None:
    """Solve L L' x = c[members]."""
    for i in range(size):
        value = c[members[i]]
        for m in range(i):
            value -= L[i, m] * x[m]
        x[i] = value / L[i, i]
    for i in range(size - 1, -1, -1):
        value = x[i]
        for m in range(i + 1, size):
            value -= L[m, i] * x[m]
        x[i] = value / L[i, i]


@_compiled
def nnls_rows(G: Any, C: Any, Y: Any, tolerance: float, max_pivots: int) -> int:
    """Block principal pivoting for each row of C, in place in Y (see `nnls.nnls`).

    The passive set of a row starts as the positive entries of Y. Returns how many rows did not
    finish within `max_pivots`; their rows of Y are set to NaN.
    """
    K = G.shape[0]
    passive = np.zeros(K, dtype=np.bool_)
    members = np.zeros(K, dtype=np.intp)
    factored = np.zeros(K, dtype=np.bool_)
    any_factored = False
    L = np.zeros((K, K))
    x = np.zeros(K)
    wrong = np.zeros(K, dtype=np.intp)
    unfinished = 0
    for n in range(C.shape[0]):
        scale = 0.0
        for k in range(K):
            scale = max(scale, abs(C[n, k]))
            passive[k] = Y[n, k] > 0.0
        fewest = K + 1
        retries = 3
        finished = False
        size = 0
        for _ in range(max_pivots):
            same = any_factored
            size = 0
            for k in range(K):
                if passive[k] != factored[k]:
                    same = False
                    factored[k] = passive[k]
                if passive[k]:
                    members[size] = k
                    size += 1
            if not same:
                _factor(G, members, size, L)
                any_factored = True
            _substitute(L, members, size, C[n], x)
            n_wrong = 0
            position = 0
            for k in range(K):
                if passive[k]:
                    if x[position] < 0.0:
                        wrong[n_wrong] = k
                        n_wrong += 1
                    position += 1
                else:
                    gradient = -C[n, k]
                    for i in range(size):
                        gradient += G[k, members[i]] * x[i]
                    if gradient < -tolerance * scale:
                        wrong[n_wrong] = k
                        n_wrong += 1
            if n_wrong == 0:
                finished = True
                break
            if n_wrong < fewest:
                fewest = n_wrong
                retries = 3
            elif retries > 0:
                retries -= 1
            else:  # the backup rule: only the last wrong index changes side
                wrong[0] = wrong[n_wrong - 1]
                n_wrong = 1
            for i in range(n_wrong):
                passive[wrong[i]] = not passive[wrong[i]]
        for k in range(K):
            Y[n, k] = 0.0 if finished else np.nan
        if finished:
            for i in range(size):
                Y[n, members[i]] = x[i]
        else:
            unfinished += 1
    return unfinished


@_compiled
def nnls_one_by_one(G: Any, C: Any, Y: Any, tolerance: float, max_steps: int) -> None:
    """Lawson and Hanson's method for each row of C, into Y (see `nnls._solve_one_by_one`)."""
    K = G.shape[0]
    members = np.zeros(K, dtype=np.intp)
    passive = np.zeros(K, dtype=np.bool_)
    target = np.zeros(K)
    L = np.zeros((K, K))
    x = np.zeros(K)
    for n in range(C.shape[0]):
        y = Y[n]
        scale = 0.0
        for k in range(K):
            y[k] = 0.0
            passive[k] = False
            scale = max(scale, abs(C[n, k]))
        for _ in range(max_steps):
            enter = -1
            steepest = -tolerance * scale
            for k in range(K):
                if not passive[k]:
                    gradient = -C[n, k]
                    for j in range(K):
                        gradient += G[k, j] * y[j]
                    if gradient < steepest:
                        steepest = gradient
                        enter = k
            if enter < 0:
                break
            passive[enter] = True
            while True:
                size = 0
                for k in range(K):
                    if passive[k]:
                        members[size] = k
                        size += 1
                if size == 0:
                    break
                _factor(G, members, size, L)
                _substitute(L, members, size, C[n], x)
                share = 1.0
                for k in range(K):
                    target[k] = 0.0
                for i in range(size):
                    k = members[i]
                    target[k] = x[i]
                    if x[i] <= 0.0:
                        share = min(share, y[k] / (y[k] - x[i]) if y[k] > 0.0 else 0.0)
                if share == 1.0:
                    for k in range(K):
                        y[k] = max(target[k], 0.0)
                    break
                largest = 0.0
                for k in range(K):
                    y[k] += share * (target[k] - y[k])
                    largest = max(largest, y[k])
                for k in range(K):
                    if passive[k] and y[k] <= 1e-15 * largest:
                        passive[k] = False
                    if not passive[k]:
                        y[k] = 0.0

"""Block principal pivoting for nonnegative least squares (`linalg.nnls`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import Array
from .load import compiled


def nnls_memory(K: int) -> tuple[Any, ...]:
    """Return working memory for `nnls_rows`; numba takes long to compile ``np.zeros``."""
    return np.zeros((4, K), np.intp), np.zeros((K, K)), np.zeros((2, K)), np.ones(K)


@compiled
def _factor(G: Array, members: Array, size: np.intp, L: Array) -> None:
    """Compute the Cholesky factor L of G[members, members]."""
    for i in range(size):
        for j in range(i + 1):
            value = G[members[i], members[j]]
            for m in range(j):
                value -= L[i, m] * L[j, m]
            if i == j:
                L[i, i] = np.sqrt(max(value, 1e-300))
            else:
                L[i, j] = value / L[j, j]


@compiled
def _substitute(L: Array, members: Array, size: np.intp, c: Array, x: Array) -> None:
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


@compiled
def nnls_rows(
    G: Array,
    C: Array,
    Y: Array,
    tolerance: float,
    max_pivots: int,
    sum_to_one: bool,
    places: Array,
    L: Array,
    solutions: Array,
    ones: Array,
) -> None:
    """Run block principal pivoting for each row of C, in place in Y (see `nnls.nnls`).

    G (1, K, K) serves all rows, or (n, K, K) has a matrix for each row. The first passive set of a
    row consists of the positive entries of Y. Rows of Y that do not finish within `max_pivots` are
    set to NaN. With `sum_to_one` the rows of Y sum to one: c is shifted by the multiplier of this
    constraint. Every row of Y then needs a positive entry. `places`, L, `solutions` and `ones` come
    from `nnls_memory`.
    """
    K = C.shape[1]
    passive = places[0]
    factored = places[1]
    members = places[2]
    wrong = places[3]
    x = solutions[0]
    of_ones = solutions[1]
    any_factored = False
    shift = 0.0
    for n in range(C.shape[0]):
        gram = G[min(n, G.shape[0] - 1)]
        any_factored = any_factored and G.shape[0] == 1
        scale = 0.0
        for k in range(K):
            scale = max(scale, abs(C[n, k]))
            passive[k] = 1 if Y[n, k] > 0.0 else 0
        fewest = K + 1
        retries = 3
        finished = False
        size = np.intp(0)  # a plain 0 would be compiled twice
        for _ in range(max_pivots):
            same = any_factored
            size = np.intp(0)
            for k in range(K):
                if passive[k] != factored[k]:
                    same = False
                    factored[k] = passive[k]
                if passive[k]:
                    members[size] = k
                    size += 1
            if not same:
                _factor(gram, members, size, L)
                any_factored = True
            _substitute(L, members, size, C[n], x)
            if sum_to_one:
                if not same:
                    _substitute(L, members, size, ones, of_ones)
                missing = 1.0
                total = 0.0
                for i in range(size):
                    missing -= x[i]
                    total += of_ones[i]
                shift = missing / total
                for i in range(size):
                    x[i] += shift * of_ones[i]
            n_wrong = 0
            position = 0
            for k in range(K):
                if passive[k]:
                    if x[position] < 0.0:
                        wrong[n_wrong] = k
                        n_wrong += 1
                    position += 1
                else:
                    gradient = -C[n, k] - shift
                    for i in range(size):
                        gradient += gram[k, members[i]] * x[i]
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
                passive[wrong[i]] = 1 - passive[wrong[i]]
        for k in range(K):
            Y[n, k] = 0.0 if finished else np.nan
        if finished:
            for i in range(size):
                Y[n, members[i]] = x[i]

"""Newton's method for the Poisson loss, row by row (`solve.losses.poisson_regression`)."""

from __future__ import annotations

import numpy as np

from ..types import Array
from .load import SMALLEST_SQUARE, compiled, compiled_in_order


@compiled
def _dot(a: Array, b: Array) -> float:
    """Return the product a'b."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@compiled
def _gram(B: Array, m: int, A: Array) -> None:
    """Add the lower triangle of B B' to A; B has m columns."""
    for k in range(A.shape[0]):
        p = B[k]
        for j in range(k + 1):
            q = B[j]
            total = 0.0
            for i in range(m):
                total += p[i] * q[i]
            A[k, j] += total


@compiled
def _slope(v: Array, u: Array, length: float) -> float:
    """Return the sum of v u / (1 + t u), where 1 + t u >= 0 up to rounding."""
    total = 0.0
    for i in range(v.shape[0]):
        total += v[i] * u[i] / max(1.0 + length * u[i], 1e-200)
    return total


@compiled_in_order
def _descend(
    A: Array,
    gradient: Array,
    y: Array,
    d: Array,
    inverse: Array,
    sweeps: int,
    stall_ratio_sq: float,
) -> None:
    """Minimise gradient'd + d'Ad / 2 over y + d >= 0 by coordinate descent from d = 0.

    `inverse` is memory for the inverse diagonal, because divisions would take most of the time.
    """
    d[:] = 0.0
    for k in range(y.shape[0]):
        inverse[k] = 1.0 / A[k, k] if A[k, k] > SMALLEST_SQUARE else 0.0
    first = 0.0
    for number in range(sweeps):
        moved = 0.0
        for k in range(y.shape[0]):
            step = max(-gradient[k] * inverse[k], -y[k] - d[k])
            if step != 0.0:
                moved += A[k, k] * step * step
                d[k] += step
                for j in range(y.shape[0]):
                    gradient[j] += step * A[k, j]
        if number == 0:
            first = moved
        if moved <= stall_ratio_sq * first:
            return


@compiled_in_order
def poisson_steps(
    v: Array,
    indices: Array,
    indptr: Array,
    W: Array,
    x: Array,
    C: Array,
    S: Array,
    Y: Array,
    limits: tuple[float, int, int, float],
    B: Array,
    u: Array,
) -> None:
    """Do one step for every row of Y in place, given the rates x of the entries v, and C.

    A row of C is sum_f (v_f / x_f) w_f. `limits` are l2, n_fixed, the number of sweeps and the
    ratio at which they end. The columns of B are w_f sqrt(v) / x of the components that may move;
    entries are processed as many at a time as B has columns. u is memory for each entry.
    """
    l2, n_fixed, sweeps, stall_ratio_sq = limits
    K = W.shape[1]
    size = B.shape[1]
    slopes = np.zeros(K)
    d = np.zeros(K)
    active = np.zeros(K, np.intp)
    way = np.zeros(K)
    A = np.zeros((K, K))
    y = np.zeros(K)
    gradient = np.zeros(K)
    inverse = np.zeros(K)
    for n in range(Y.shape[0]):
        start = indptr[n]
        stop = indptr[n + 1]
        c = C[n]
        m = 0
        for k in range(n_fixed, K):
            if c[k] <= 0.0:  # no count supports this component
                Y[n, k] = 0.0
            elif Y[n, k] > 0.0 or c[k] > S[n, k]:
                active[m] = k
                m += 1
        way[:] = 0.0
        for a in range(m):
            k = active[a]
            y[a] = Y[n, k]
            slopes[a] = S[n, k] + l2 * y[a]
            gradient[a] = slopes[a] - c[k]
        A[:m, :m] = 0.0
        for first in range(start, stop, size):
            count = min(size, stop - first)
            for i in range(count):
                w = W[indices[first + i]]
                weight = np.sqrt(v[first + i]) / x[first + i]
                for a in range(m):
                    B[a, i] = weight * w[active[a]]
            _gram(B, count, A[:m, :m])
        for a in range(m):
            A[a, a] += l2
            for b in range(a):
                A[b, a] = A[a, b]
        _descend(A, gradient, y[:m], d[:m], inverse, sweeps, stall_ratio_sq)
        falls = straight = bent = deepest = bends = 0.0
        for a in range(m):
            k = active[a]
            way[k] = d[a]
            falls += (c[k] - slopes[a]) * d[a]
            straight += slopes[a] * d[a]
            bent += l2 * d[a] * d[a]
            if d[a] < 0.0:
                deepest = max(deepest, -d[a] / y[a])
        if not falls > 0.0:
            continue
        for i in range(start, stop):
            u[i] = _dot(W[indices[i]], way) / x[i]
            bends += v[i] * u[i] * u[i]
        safe = falls / max(bends + bent + falls * deepest, falls)
        length = 1.0
        for shorter in ((1.0 + safe) / 2.0, safe):
            if straight + bent * length <= _slope(v[start:stop], u[start:stop], length):
                break
            length = shorter  # the convex objective rises there
        for a in range(m):
            Y[n, active[a]] = max(y[a] + length * d[a], 0.0)

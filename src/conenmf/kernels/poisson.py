"""Newton's method for the Poisson loss, row by row (`solve.losses.poisson_regression`)."""

from __future__ import annotations

import numpy as np

from ..types import Array
from .load import SMALLEST_SQUARE, compiled, compiled_in_order

_GATHERED = 128  # entries of a row whose products are summed at a time


@compiled
def _dot(a: Array, b: Array) -> float:
    """Return the product a'b."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


@compiled
def _total(v: Array, size: int) -> float:
    """Return the sum of the counts of a row."""
    total = 0.0
    for i in range(size):
        total += v[i]
    return total


@compiled
def _gram(B: Array, m: int, count: int, A: Array) -> None:
    """Add the lower triangle of B B' to A, for m rows and some columns of B."""
    for k in range(m):
        p = B[k]
        for j in range(k + 1):
            q = B[j]
            total = 0.0
            for i in range(count):
                total += p[i] * q[i]
            A[k, j] += total


@compiled
def _slope(v: Array, size: int, roots: Array, changes: Array, length: float) -> float:
    """Return the sum of v t / (sqrt(v) + length t), where no rate is negative up to rounding."""
    total = 0.0
    for i in range(size):
        total += v[i] * changes[i] / max(roots[i] + length * changes[i], 1e-200)
    return total


@compiled_in_order
def _rates(W: Array, places: Array, size: int, y: Array, x: Array) -> float:
    """Compute the rates x = W y of the entries of a row, and return the lowest."""
    lowest = np.inf
    for i in range(size):
        x[i] = _dot(W[places[i]], y)
        lowest = min(lowest, x[i])
    return lowest


@compiled
def _supports(W: Array, ratios: Array, places: Array, padded: int, c: Array) -> None:
    """Compute c as the sum of (v / x) w over the entries of a row, four at a time."""
    for k in range(c.shape[0]):
        c[k] = 0.0
    for i in range(0, padded, 4):
        w0 = W[places[i]]
        w1 = W[places[i + 1]]
        w2 = W[places[i + 2]]
        w3 = W[places[i + 3]]
        r0 = ratios[i]
        r1 = ratios[i + 1]
        r2 = ratios[i + 2]
        r3 = ratios[i + 3]
        for k in range(c.shape[0]):
            c[k] += r0 * w0[k] + r1 * w1[k] + r2 * w2[k] + r3 * w3[k]


@compiled_in_order
def _rescale(y: Array, s: Array, total: float, l2: float) -> None:
    """Replace y by its best multiple, with s'y + l2 ||y||^2 = total."""
    mass = _dot(s, y)
    if mass > 0.0:
        factor = 2.0 * total / (mass + np.sqrt(mass * mass + 4.0 * l2 * _dot(y, y) * total))
        for k in range(y.shape[0]):
            y[k] *= factor


@compiled
def _gap(c: Array, s: Array, y: Array, total: float, l2: float) -> float:
    """Return the duality gap of a row without known entries (see `dual_gaps`)."""
    excess = 0.0
    mass = 0.0
    for k in range(y.shape[0]):
        slope = s[k] + l2 * y[k]
        mass += y[k] * slope
        if slope > 0.0:
            excess = max(excess, c[k] / slope)
    return mass - total + total * np.log(excess)


@compiled_in_order
def _descend(
    A: Array,
    m: int,
    gradient: Array,
    y: Array,
    d: Array,
    inverse: Array,
    sweeps: int,
    stall_ratio_sq: float,
) -> None:
    """Minimise gradient'd + d'Ad / 2 over m entries y + d >= 0 by coordinate descent from d = 0.

    `inverse` is memory for the inverse diagonal, because divisions would take most of the time.
    """
    for k in range(m):
        d[k] = 0.0
        inverse[k] = 1.0 / A[k, k] if A[k, k] > SMALLEST_SQUARE else 0.0
    first = 0.0
    for number in range(sweeps):
        moved = 0.0
        for k in range(m):
            step = max(-gradient[k] * inverse[k], -y[k] - d[k])
            if step != 0.0:
                moved += A[k, k] * step * step
                d[k] += step
                for j in range(m):
                    gradient[j] += step * A[k, j]
        if number == 0:
            first = moved
        if moved <= stall_ratio_sq * first:
            return


@compiled
def _padded(size: int) -> int:
    return size + 15 - (size + 15) % 16


@compiled_in_order
def poisson_rows(
    v: Array,
    indices: Array,
    indptr: Array,
    W: Array,
    S: Array,
    Y: Array,
    x: Array,
    limits: tuple[float, int, int, float, int, float, float],
) -> None:
    """Do steps for every row of Y in place, with the entries v; x becomes the rates after them.

    S (1, K) serves all rows, or (n, K) has a row for each. `limits` are l2, n_fixed, the number of
    sweeps and the ratio at which they end, the number of steps, the share of the total at which a
    gap ends them, and the size of S that bars a component.
    """
    l2, n_fixed, sweeps, stall_ratio_sq, n_steps, gap_share, barred = limits
    K = W.shape[1]
    longest = _padded(np.diff(indptr).max())
    own = np.empty(longest)
    places = np.empty(longest, np.uintp)
    rates = np.empty(longest)
    ratios = np.empty(longest)
    roots = np.empty(longest)
    changes = np.empty(longest)
    weights = np.empty(_GATHERED)
    B = np.empty((K, _GATHERED))
    A = np.empty((K, K))
    c = np.empty(K)
    d = np.empty(K)
    way = np.empty(K)
    y = np.empty(K)
    gradient = np.empty(K)
    inverse = np.empty(K)
    active = np.empty(K, np.intp)
    for n in range(Y.shape[0]):
        start = max(indptr[n], 0)
        size = indptr[n + 1] - start
        padded = _padded(size)
        for i in range(size):
            own[i] = v[start + i]
            places[i] = indices[start + i]
        for i in range(size, padded):  # vector loops have no remainder
            own[i] = 0.0
            places[i] = 0
            rates[i] = 1.0
            changes[i] = 0.0
        row = Y[n]
        s = S[min(n, S.shape[0] - 1)]
        total = _total(own, padded)
        for k in range(n_fixed, K):
            if not (0.0 < s[k] < barred and total > 0.0):
                row[k] = 0.0
        if size == 0:
            continue
        if n_fixed == 0:
            _rescale(row, s, total, l2)
        if _rates(W, places, size, row, rates) <= 0.0:  # start with equal shares
            for k in range(n_fixed, K):
                row[k] = total / K / s[k] if 0.0 < s[k] < barred else 0.0
            if n_fixed == 0:
                _rescale(row, s, total, l2)
            _rates(W, places, size, row, rates)
        for i in range(padded):
            roots[i] = np.sqrt(own[i])
        for _ in range(n_steps):
            for i in range(padded):
                ratios[i] = own[i] / rates[i]
            _supports(W, ratios, places, size + -size % 4, c)
            if n_steps > 1 and _gap(c, s, row, total, l2) <= gap_share * total:
                break
            m: int = np.intp(0)  # type: ignore[assignment]  # a plain 0 would be compiled twice
            for k in range(n_fixed, K):
                if c[k] <= 0.0:  # no count supports this component
                    row[k] = 0.0
                elif row[k] > 0.0 or c[k] > s[k]:
                    active[m] = k
                    m += 1
            for a in range(m):
                for b in range(m):
                    A[a, b] = 0.0
            for first in range(0, size, _GATHERED):
                count = min(_GATHERED, size - first)
                full = _padded(count)
                for i in range(full):
                    weights[i] = roots[first + i] / rates[first + i]
                for i in range(count):
                    w = W[places[first + i]]
                    for a in range(m):
                        B[a, i] = weights[i] * w[active[a]]
                for i in range(count, full):
                    for a in range(m):
                        B[a, i] = 0.0
                _gram(B, m, full, A)
            falls = straight = bent = deepest = bends = 0.0
            for a in range(m):
                k = active[a]
                y[a] = row[k]
                gradient[a] = s[k] + l2 * y[a] - c[k]
                A[a, a] += l2
                for b in range(a):
                    A[b, a] = A[a, b]
            _descend(A, m, gradient, y, d, inverse, sweeps, stall_ratio_sq)
            for a in range(m):
                k = active[a]
                slope = s[k] + l2 * y[a]
                falls += (c[k] - slope) * d[a]
                straight += slope * d[a]
                bent += l2 * d[a] * d[a]
                for b in range(m):
                    bends += d[a] * A[a, b] * d[b]
                if d[a] < 0.0:
                    deepest = max(deepest, -d[a] / y[a])
            if falls > 0.0:
                if size <= _GATHERED:  # B has all entries
                    for i in range(padded):
                        changes[i] = 0.0
                    for a in range(m):
                        for i in range(padded):
                            changes[i] += d[a] * B[a, i]
                else:
                    for k in range(K):
                        way[k] = 0.0
                    for a in range(m):
                        way[active[a]] = d[a]
                    _rates(W, places, size, way, changes)
                    for i in range(padded):
                        changes[i] *= roots[i] / rates[i]
                safe = falls / max(bends + falls * deepest, falls)
                length = 1.0
                for shorter in ((1.0 + safe) / 2.0, safe):
                    slope = _slope(own, padded, roots, changes, length)
                    if straight + bent * length <= slope:
                        break
                    length = shorter  # the convex objective rises there
                for a in range(m):
                    row[active[a]] = max(y[a] + length * d[a], 0.0)
            if n_fixed == 0:
                _rescale(row, s, total, l2)
            _rates(W, places, size, row, rates)
        for i in range(size):
            x[start + i] = rates[i]

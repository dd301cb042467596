"""Newton's method and multiplicative updates for the Poisson loss, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .load import SMALLEST_SQUARE, compiled, compiled_in_order

CACHED_ENTRIES = 3072  # of float64, that stay in the nearest cache beside other things


@compiled
def _dot(a: Any, b: Any) -> float:
    """The product a'b."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@compiled
def _bend(A: Any, z: Any) -> float:
    """The product z'Az of the first rows and columns of A."""
    total = 0.0
    for k in range(z.shape[0]):
        row, product = A[k], 0.0
        for j in range(z.shape[0]):
            product += row[j] * z[j]
        total += z[k] * product
    return total


@compiled
def _total(v: Any, begin: int, end: int) -> float:
    """Sum of v from one place to another."""
    total = 0.0
    for i in range(begin, end):
        total += v[i]
    return total


@compiled_in_order
def multiplied_rows(data: Any, indices: Any, indptr: Any, W: Any, S: Any, Y: Any) -> None:
    """y_k <- y_k sum_f (v_f / x_f) W[f, k] / s_k for each row of Y, in place.

    Rates are products of y with rows of W, at the entries of compressed sparse rows. `S` holds the
    s of each row, or one for all.
    """
    K = W.shape[1]
    c = np.empty(K)
    for n in range(Y.shape[0]):
        y, s = Y[n], S[n if S.shape[0] > 1 else 0]
        for k in range(K):
            c[k] = 0.0
        for position in range(indptr[n], indptr[n + 1]):
            row = W[indices[position]]
            ratio = data[position] / _dot(row, y)
            for k in range(K):
                c[k] += ratio * row[k]
        for k in range(K):
            y[k] = y[k] * (c[k] / s[k]) if s[k] > 0.0 else 0.0


@compiled
def _gathered(features: Any, W: Any, B: Any) -> None:
    """Write rows of W into the columns of B; loops over parts of arrays would be slow."""
    i, m = 0, features.shape[0]
    while i + 3 < m:
        w0, w1 = W[features[i]], W[features[i + 1]]
        w2, w3 = W[features[i + 2]], W[features[i + 3]]
        for k in range(W.shape[1]):
            own = B[k]
            own[i], own[i + 1], own[i + 2], own[i + 3] = w0[k], w1[k], w2[k], w3[k]
        i += 4
    while i < m:
        w0 = W[features[i]]
        for k in range(W.shape[1]):
            B[k, i] = w0[k]
        i += 1


@compiled_in_order
def _combined(B: Any, y: Any, x: Any) -> None:
    """X = B'y, four rows at a time; the rows of B beyond those of y are left out."""
    K, k, m = y.shape[0], 0, x.shape[0]
    if K % 4 == 0:
        for i in range(m):
            x[i] = 0.0
    elif K % 4 == 1:
        b0, y0 = B[0], y[0]
        for i in range(m):
            x[i] = y0 * b0[i]
        k = 1
    elif K % 4 == 2:
        b0, b1, y0, y1 = B[0], B[1], y[0], y[1]
        for i in range(m):
            x[i] = y0 * b0[i] + y1 * b1[i]
        k = 2
    else:
        b0, b1, b2, y0, y1, y2 = B[0], B[1], B[2], y[0], y[1], y[2]
        for i in range(m):
            x[i] = y0 * b0[i] + y1 * b1[i] + y2 * b2[i]
        k = 3
    while k < K:
        b0, b1, b2, b3 = B[k], B[k + 1], B[k + 2], B[k + 3]
        y0, y1, y2, y3 = y[k], y[k + 1], y[k + 2], y[k + 3]
        for i in range(m):
            x[i] += y0 * b0[i] + y1 * b1[i] + y2 * b2[i] + y3 * b3[i]
        k += 4


@compiled
def _add_gram(B: Any, m: int, A: Any) -> None:
    """Add the lower triangle of B B' of m columns to A.

    Two rows with two others at a time: entries are loaded half as often.
    """
    K = A.shape[0]
    for k in range(0, K - 1, 2):
        p, q = B[k], B[k + 1]
        for j in range(0, k + 1, 2):
            r, s = B[j], B[j + 1]
            pr = ps = qr = qs = 0.0
            for i in range(m):
                pr += p[i] * r[i]
                ps += p[i] * s[i]
                qr += q[i] * r[i]
                qs += q[i] * s[i]
            A[k, j] += pr
            A[k, j + 1] += ps
            A[k + 1, j] += qr
            A[k + 1, j + 1] += qs
    if K % 2:
        p = B[K - 1]
        for j in range(K):
            r = B[j]
            pr = 0.0
            for i in range(m):
                pr += p[i] * r[i]
            A[K - 1, j] += pr


@compiled_in_order
def _quadratic_minimum(
    A: Any, g: Any, y: Any, z: Any, gradient: Any, sweeps: int, stall: float, n_fixed: int
) -> None:
    """Coordinate descent from y for g'(z - y) + (z - y)'A(z - y) / 2 over z >= 0.

    The first `n_fixed` entries stay.
    """
    K = y.shape[0]
    for k in range(K):
        z[k] = y[k]
        gradient[k] = g[k]
    first = 0.0
    for number in range(sweeps):
        moved = 0.0
        for k in range(n_fixed, K):
            weight = A[k, k]
            if weight > SMALLEST_SQUARE:
                new = max(z[k] - gradient[k] / weight, 0.0)
            elif gradient[k] > 0.0:
                new = 0.0
            else:
                new = z[k]
            step = new - z[k]
            if step != 0.0:
                z[k] = new
                moved += weight * step * step
                row = A[k]
                for j in range(K):
                    gradient[j] += step * row[j]
        if number == 0:
            first = moved
        if moved <= stall * first:
            break


@compiled
def _slope(v: Any, u: Any, m: int, length: float) -> float:
    """Sum of v u / (1 + t u)."""
    total = 0.0
    for i in range(m):
        total += v[i] * u[i] / (1.0 + length * u[i])
    return total


@compiled
def _step_length(
    v: Any, u: Any, m: int, lowest: float, mass: float, stiff: float, fall: float, bend: float
) -> float:
    """How far to go along a direction in which the rates change by the shares u, at most 1.

    Along it the objective is convex, with the slope ``mass + stiff t - sum v u / (1 + t u)``. All
    of the way is right if it still falls there. ``fall / (bend - fall lowest)`` lowers it surely;
    from there to the end a secant leads further.
    """
    end = np.inf
    if lowest > -0.5 and (min(lowest, 0.0) ** 2 + 1.0) * bend <= 1.5 * fall:
        return 1.0  # -log(1 + u) <= -u + 0.62 (1 + u^2) u^2 there: 7 % of `fall` are certain
    if lowest > -0.999:
        end = mass + stiff - _slope(v, u, m, 1.0)
        if end <= 0.0:
            return 1.0
    safe = min(fall / (bend - fall * min(lowest, 0.0)), 1.0)
    further = 0.5 * (1.0 + safe)
    if end < np.inf:
        there = mass + stiff * safe - _slope(v, u, m, safe)
        if there < 0.0:
            further = safe - there * (1.0 - safe) / (end - there)
    is_inside = 1.0 + further * lowest > 0.001
    if is_inside and mass + stiff * further - _slope(v, u, m, further) <= 0.0:
        return further
    return safe


@compiled
def _excess_beside(
    total: float, s: Any, y: Any, c: Any, l2: float, n_fixed: int, excess: float
) -> float:
    """The duality gap of a row of which some entries stay, as exp(gap / total).

    The total is not met by scaling there: see `dual_gaps` of `solve.poisson_regression`.
    """
    excess = max(excess, 1.0)
    short = np.log(excess) - 1.0
    for k in range(y.shape[0]):
        part = c[k] / excess if k < n_fixed else s[k] + l2 * y[k]
        short += part * y[k] / total
    return float(np.exp(max(short, 0.0)))


@compiled
def _sum_of_logs(v: Any, x: Any, whole: Any) -> float:
    """Sum of v log(x); x and `whole` are overwritten.

    A call of log for every entry would take longer than all else. Numbers are taken apart into
    2^e m with m between sqrt(1/2) and sqrt(2), and log(m) = 2 artanh((m - 1) / (m + 1)) is summed
    as a series, to less than one unit in the last place.
    """
    bits = x.view(np.int64)
    for i in range(x.shape[0]):
        whole[i] = (bits[i] - 0x3FE6A09E667F3BCD) >> 52
        bits[i] -= whole[i] << 52
    total = 0.0
    for i in range(x.shape[0]):
        s = (x[i] - 1.0) / (x[i] + 1.0)
        z = s * s
        series = 1.0 / 21.0
        series = series * z + 1.0 / 19.0
        series = series * z + 1.0 / 17.0
        series = series * z + 1.0 / 15.0
        series = series * z + 1.0 / 13.0
        series = series * z + 1.0 / 11.0
        series = series * z + 1.0 / 9.0
        series = series * z + 1.0 / 7.0
        series = series * z + 1.0 / 5.0
        series = series * z + 1.0 / 3.0
        log = whole[i] * 0.6931471805599453 + 2.0 * (s + s * z * series)
        total += v[i] * log
    return total


@compiled
def _scale_to(total: float, s: Any, y: Any, l2: float, n_fixed: int) -> float:
    """Scale y to the best of its multiples, where s'y + l2 ||y||^2 is the total; return the factor.

    Nothing is scaled where some entries stay.
    """
    if n_fixed > 0:
        return 1.0
    mass, squares = 0.0, 0.0
    for k in range(y.shape[0]):
        mass += s[k] * y[k]
        squares += y[k] * y[k]
    factor = total / mass if mass > 0.0 else 0.0
    if l2 > 0.0 and mass > 0.0:
        factor = 2.0 * total / (mass + np.sqrt(mass * mass + 4.0 * l2 * squares * total))
    for k in range(y.shape[0]):
        y[k] *= factor
    return factor


@compiled_in_order
def _weigh(B: Any, root: Any, x: Any) -> None:
    """Multiply columns of B with sqrt(v) / x, and write sqrt(v) below them."""
    K, m = B.shape[0] - 1, x.shape[0]
    last = B[K]
    for i in range(m):
        last[i] = root[i] / x[i]
    for k in range(K):
        own = B[k]
        for i in range(m):
            own[i] *= last[i]
    for i in range(m):
        last[i] = root[i]


@compiled_in_order
def newton_from_sums(
    R: Any,
    A: Any,
    S: Any,
    totals: Any,
    W: Any,
    sweeps: int,
    stall: float,
    l2: float,
    n_fixed: int,
) -> None:
    """Step of Newton's method for each row of W, in place, from its sums (`poisson_regression`).

    The curvature A has `l2` on its diagonal; `S`, `l2` and `n_fixed` are as in `poisson_rows`.
    """
    K = W.shape[1]
    g, z, gradient = np.empty(K), np.empty(K), np.empty(K)
    for f in range(W.shape[0]):
        w, s = W[f], S[f if S.shape[0] > 1 else 0]
        for k in range(K):
            g[k] = s[k] + l2 * w[k] - R[f, k]
        _quadratic_minimum(A[f], g, w, z, gradient, sweeps, stall, n_fixed)
        fall, deepest = 0.0, 0.0
        for k in range(K):
            z[k] -= w[k]
            fall -= g[k] * z[k]
            if z[k] < 0.0:
                deepest = max(deepest, -z[k] / w[k])
        if fall > 0.0:
            length = min(fall / (_bend(A[f], z) + fall * deepest), 1.0)
            for k in range(K):
                w[k] = max(w[k] + length * z[k], 0.0)
        _scale_to(totals[f], s, w, l2, n_fixed)


@compiled_in_order
def poisson_rows(
    data: Any,
    indices: Any,
    indptr: Any,
    W: Any,
    S: Any,
    Y: Any,
    steps: int,
    sweeps: int,
    stall: float,
    gap: float,
    divergences: Any,
    gaps: Any,
    l2: float,
    n_fixed: int,
) -> None:
    """Newton's method for each row of Y, in place.

    It minimises s'y + l2 ||y||^2 / 2 - sum v log(w_f'y) over y >= 0, of which the first `n_fixed`
    entries stay. Rows are samples in compressed sparse rows; `S` holds the s of each, or one for
    all: the sums of the columns of W. A row is done after so many steps, or when its duality gap is
    at most `gap` times its total. The sum of v log(v / x) for each, and its gap as a share of its
    total, are written unless the arrays for them are empty. See `solve.poisson_regression`.
    """
    K, longest = W.shape[1], 1
    for n in range(Y.shape[0]):
        longest = max(longest, indptr[n + 1] - indptr[n])
    chunk = max(CACHED_ENTRIES // (K + 1), 16)
    # Columns of B are w_f sqrt(v) / x, with sqrt(v) below: B B' holds the curvature and V'W / x.
    # It is divided into parts that stay in the cache; loops over parts of rows would be slow.
    B, A = np.empty((-(-longest // chunk), K + 1, chunk)), np.empty((K + 1, K + 1))
    v, x, u, root = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    g, z, gradient, y = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    whole = np.empty(longest, np.int64)
    for n in range(Y.shape[0]):
        begin, s = indptr[n], S[n if S.shape[0] > 1 else 0]
        m = indptr[n + 1] - begin
        total, lowest = _total(data, begin, begin + m), 0.0
        for i in range(m):
            v[i] = data[begin + i]
            root[i] = np.sqrt(v[i])
        for k in range(K):
            y[k] = Y[n, k] if s[k] > 0.0 or k < n_fixed else 0.0
            if total == 0.0 and k >= n_fixed:
                y[k] = 0.0
        for _ in range(2):  # from the given row, or if that has no rate for some entry, from equal
            _scale_to(total, s, y, l2, n_fixed)
            A[:] = 0.0
            lowest = np.inf
            for p in range(-(-m // chunk)):
                low, high = p * chunk, min(p * chunk + chunk, m)
                rates, part = x[low:high], B[p]
                _gathered(indices[begin + low : begin + high], W, part)
                _combined(part, y, rates)
                for i in range(high - low):
                    lowest = min(lowest, rates[i])
                if lowest > 0.0:
                    _weigh(part, root[low:high], rates)
                    _add_gram(part, high - low, A)
            if lowest > 0.0:
                break
            for k in range(n_fixed, K):
                y[k] = 1.0 / s[k] if s[k] > 0.0 else 0.0
                if n_fixed > 0:
                    y[k] *= total / K
        number, excess = 0, 1.0 if lowest > 0.0 else np.inf
        while total > 0.0 and lowest > 0.0:
            excess = 0.0
            for k in range(K):
                slope = s[k] + l2 * y[k]
                g[k] = slope - A[K, k]
                if slope > 0.0 and k >= n_fixed:
                    excess = max(excess, A[K, k] / slope)
            if n_fixed > 0:
                excess = _excess_beside(total, s, y, A[K], l2, n_fixed, excess)
            if number == steps or excess <= 1.0 + gap:
                break
            number += 1
            for k in range(K):
                for j in range(k):
                    A[j, k] = A[k, j]
                A[k, k] += l2
            _quadratic_minimum(A, g, y, z, gradient, sweeps, stall, n_fixed)
            fall, mass, stiff = 0.0, 0.0, 0.0
            for k in range(K):
                z[k] -= y[k]
                fall -= g[k] * z[k]
                mass += (s[k] + l2 * y[k]) * z[k]
                stiff += l2 * z[k] * z[k]
            if not fall > 0.0:
                break
            lowest = np.inf
            for p in range(-(-m // chunk)):
                low, high = p * chunk, min(p * chunk + chunk, m)
                _combined(B[p], z, u[low:high])
            for i in range(m):
                u[i] /= root[i]
                lowest = min(lowest, u[i])
            length = _step_length(v, u, m, lowest, mass, stiff, fall, _bend(A, z))
            for k in range(K):
                y[k] = max(y[k] + length * z[k], 0.0)
            scale = _scale_to(total, s, y, l2, n_fixed)
            lowest = np.inf
            for i in range(m):
                u[i] = (1.0 + length * u[i]) * scale
                x[i] *= u[i]
                lowest = min(lowest, x[i])
            if number == steps and gaps.shape[0] == 0:
                break
            A[:] = 0.0
            for p in range(-(-m // chunk)):
                low, high = p * chunk, min(p * chunk + chunk, m)
                shares, part = u[low:high], B[p]
                for i in range(high - low):
                    shares[i] = 1.0 / shares[i]
                for k in range(K):
                    own = part[k]
                    for i in range(high - low):
                        own[i] *= shares[i]
                _add_gram(part, high - low, A)
        for k in range(K):
            Y[n, k] = y[k]
        if gaps.shape[0] > 0:
            gaps[n] = np.log(max(excess, 1.0))
        if divergences.shape[0] > 0:
            for i in range(m):
                x[i] = v[i] / x[i]
            divergences[n] = _sum_of_logs(v[:m], x[:m], whole[:m])

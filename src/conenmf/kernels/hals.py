"""Coordinate descent over the rows of a factor, from products alone (`solve.solvers`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import Array
from .load import SMALLEST_SQUARE, compiled

# Sizes for caches and registers; `benchmarks/speed.py sets` and `small` time them.
HALS_BATCH_ROWS = 128  # rows that `hals_rows` updates at a time
HALS_BATCH_BYTES = 1 << 16  # half as many rows if they would take more than this
HALS_LANES = 32  # when fewer rows are left, it updates a multiple of this number
PACKED_LANES = 16  # rows that `hals_packed_rows` updates side by side


@compiled
def _sweep_lanes(
    G: Array,
    inverse: Array,
    c: Array,
    y: Array,
    floor: float,
    lanes: int,
    gradient: Array,
    distance: Array,
) -> None:
    """Sweep over rows that stand side by side in y (K, lanes), and return how far each moved."""
    K = G.shape[0]
    fours = K - K % 4
    for t in range(lanes):
        distance[t] = 0.0
    for k in range(K):
        if inverse[k] == 0.0:
            continue
        for t in range(lanes):
            gradient[t] = -c[k, t]
        for j in range(0, fours, 4):  # four at a time save most loads of the gradient
            g0 = G[k, j]
            g1 = G[k, j + 1]
            g2 = G[k, j + 2]
            g3 = G[k, j + 3]
            y0 = y[j]
            y1 = y[j + 1]
            y2 = y[j + 2]
            y3 = y[j + 3]
            for t in range(lanes):
                gradient[t] += g0 * y0[t] + g1 * y1[t] + g2 * y2[t] + g3 * y3[t]
        for j in range(fours, K):
            g0 = G[k, j]
            y0 = y[j]
            for t in range(lanes):
                gradient[t] += g0 * y0[t]
        entries = y[k]
        scale = inverse[k]
        weight = G[k, k]
        for t in range(lanes):
            new = max(entries[t] - gradient[t] * scale, floor)
            step = new - entries[t]
            entries[t] = new
            distance[t] += weight * step * step


@compiled
def hals_rows(
    G: Array, C: Array, Y: Array, floor: float, sweeps: int, stall_ratio_sq: float
) -> None:
    """Do sweeps of coordinate descent over each row of Y, in place (see `solvers.hals`).

    Several rows are updated side by side, transposed so that the innermost loop runs over rows
    and everything stays in the cache from sweep to sweep. A row is done when it moves by no more
    than `stall_ratio_sq` of its first move, both squared and weighted by the diagonal of G; the
    next row then takes its place. Each row is updated independently of the others.
    """
    K = G.shape[0]
    batch = HALS_BATCH_ROWS
    if 2 * K * batch * Y.itemsize > HALS_BATCH_BYTES:
        batch //= 2
    # Allocated here: memory passed as an argument may alias, which made loops a third slower.
    y = np.zeros((K, batch), Y.dtype)
    c = np.zeros((K, batch), Y.dtype)
    gradient = np.zeros(batch, Y.dtype)
    moved = np.zeros(batch, Y.dtype)
    first = np.zeros(batch, Y.dtype)  # move of each row in its first sweep
    row = np.zeros(batch, np.intp)
    counts = np.zeros(batch, np.intp)  # number of sweeps over each row
    inverse = np.zeros(K, Y.dtype)
    for k in range(K):
        if G[k, k] > SMALLEST_SQUARE:
            inverse[k] = 1.0 / G[k, k]
    width = 0
    next_row = 0
    while True:
        while width < batch and next_row < Y.shape[0]:
            for k in range(K):
                y[k, width] = Y[next_row, k]
                c[k, width] = C[next_row, k]
            row[width] = next_row
            counts[width] = 0
            width += 1
            next_row += 1
        if width == 0:
            return
        lanes = min(batch, width + (-width) % HALS_LANES)  # whole vectors
        _sweep_lanes(G, inverse, c, y, floor, lanes, gradient, moved)
        t = 0
        while t < width:
            if counts[t] == 0:
                first[t] = moved[t]
            counts[t] += 1
            if counts[t] < sweeps and moved[t] > stall_ratio_sq * first[t]:
                t += 1
                continue
            width -= 1  # this row is done; the last one takes its place
            for k in range(K):
                Y[row[t], k] = y[k, t]
                y[k, t] = y[k, width]
                c[k, t] = c[k, width]
            row[t] = row[width]
            counts[t] = counts[width]
            first[t] = first[width]
            moved[t] = moved[width]


@compiled
def _sweep_packed(
    g: Array, inverse: Array, c: Array, y: Array, floor: float, gradient: Array, moved: Array
) -> None:
    """Sweep over rows side by side, each with the upper half of its Gram matrix."""
    K, lanes = y.shape
    for t in range(lanes):
        moved[t] = 0.0
    diagonal = 0
    for k in range(K):
        own = y[k]
        ck = c[k]
        for t in range(lanes):
            gradient[t] = -ck[t]
        place = k
        for j in range(k):
            gj = g[place]
            yj = y[j]
            for t in range(lanes):
                gradient[t] += gj[t] * yj[t]
            place += K - j - 1
        for j in range(k, K):
            gj = g[diagonal + j - k]
            yj = y[j]
            for t in range(lanes):
                gradient[t] += gj[t] * yj[t]
        square = g[diagonal]
        weight = inverse[k]
        for t in range(lanes):
            new = max(own[t] - gradient[t] * weight[t], floor)
            step = new - own[t] if weight[t] > 0.0 else 0.0
            own[t] += step
            moved[t] += square[t] * step * step
        diagonal += K - k


@compiled
def hals_packed_rows(
    G: Array, C: Array, Y: Array, floor: float, sweeps: int, stall_ratio_sq: float
) -> None:
    """Do the same with an upper half of a Gram matrix per row, G (n, K (K + 1) / 2).

    As in `hals_rows`, several rows are updated side by side, and when one is done, the next takes
    its place. All computations are in float64.
    """
    N, K = Y.shape
    lanes = PACKED_LANES
    size = G.shape[1]
    g = np.zeros((size, lanes))
    inverse = np.zeros((K, lanes))
    y = np.zeros((K, lanes))
    c = np.zeros((K, lanes))
    gradient = np.zeros(lanes)
    moved = np.zeros(lanes)
    first = np.zeros(lanes)
    row = np.full(lanes, -1)
    counts = np.full(lanes, sweeps)
    next_row = 0
    left = N
    while left > 0:
        for t in range(lanes):
            if row[t] >= 0 and counts[t] < sweeps and moved[t] > stall_ratio_sq * first[t]:
                continue
            if row[t] >= 0:
                for k in range(K):
                    Y[row[t], k] = y[k, t]
                row[t] = -1
                left -= 1
            if next_row < N:
                row[t] = next_row
                counts[t] = 0
                for p in range(size):
                    g[p, t] = G[next_row, p]
                diagonal = 0
                for k in range(K):
                    y[k, t] = Y[next_row, k]
                    c[k, t] = C[next_row, k]
                    square = g[diagonal, t]
                    inverse[k, t] = 1.0 / square if square > SMALLEST_SQUARE else 0.0
                    diagonal += K - k
                next_row += 1
        if left > 0:
            _sweep_packed(g, inverse, c, y, floor, gradient, moved)
        for t in range(lanes):
            if counts[t] == 0:
                first[t] = moved[t]
            counts[t] += 1


def hals_sweeps(G: Array, C: Array, Y: Array, *limits: Any) -> None:
    """Call `hals_rows`, or `hals_packed_rows` for G (n, K, K) with a Gram matrix per row."""
    if G.ndim == 2:
        hals_rows(G, C, Y, *limits)
    else:
        first, second = np.triu_indices(G.shape[-1])
        hals_packed_rows(G[:, first, second], C, Y, *limits)


@compiled
def extrapolate_rows(Y: Array, before: Array, share: Array, floor: float, out: Array) -> None:
    """Write max(Y + share (Y - before), floor) to `out` without temporary arrays."""
    for n in range(Y.shape[0]):
        y = Y[n]
        old = before[n]
        new = out[n]
        for k in range(y.shape[0]):
            new[k] = max(y[k] + share * (y[k] - old[k]), floor)

"""Products with compressed sparse rows, with single entries, and with masks.

It also multiplies samples with the direction of their cone, a step of the power method, whose NumPy
version is in `cones.rank_one`.
"""

from __future__ import annotations

from ..types import Array
from .load import compiled


@compiled
def sparse_products(data: Array, indices: Array, indptr: Array, W: Array, C: Array) -> None:
    """Compute C[n] = sum of v W[f] over the entries v of every row n of compressed sparse rows.

    Processing eight entries at a time loads and stores the row of C an eighth as often. Indices are
    unsigned, so no check for negative indices is needed.
    """
    for n in range(C.shape[0]):
        row = C[n]
        row[:] = 0.0
        values = data[indptr[n] : indptr[n + 1]]
        places = indices[indptr[n] : indptr[n + 1]]
        eights = values.size - values.size % 8
        pairs = values.size - values.size % 2
        for p in range(0, eights, 8):
            v0 = values[p]
            v1 = values[p + 1]
            v2 = values[p + 2]
            v3 = values[p + 3]
            v4 = values[p + 4]
            v5 = values[p + 5]
            v6 = values[p + 6]
            v7 = values[p + 7]
            w0 = W[places[p]]
            w1 = W[places[p + 1]]
            w2 = W[places[p + 2]]
            w3 = W[places[p + 3]]
            w4 = W[places[p + 4]]
            w5 = W[places[p + 5]]
            w6 = W[places[p + 6]]
            w7 = W[places[p + 7]]
            for k in range(row.size):
                first = v0 * w0[k] + v1 * w1[k] + v2 * w2[k] + v3 * w3[k]
                second = v4 * w4[k] + v5 * w5[k] + v6 * w6[k] + v7 * w7[k]
                row[k] += first + second
        for p in range(eights, pairs, 2):
            v0 = values[p]
            w0 = W[places[p]]
            v1 = values[p + 1]
            w1 = W[places[p + 1]]
            for k in range(row.size):
                row[k] += v0 * w0[k] + v1 * w1[k]
        for p in range(pairs, values.size):
            w0 = W[places[p]]
            for k in range(row.size):
                row[k] += values[p] * w0[k]


@compiled
def entry_products(
    features: Array, samples: Array, left: Array, right: Array, products: Array
) -> None:
    """Compute products[e] = <left[features[e]], right[samples[e]]> without copies."""
    for e in range(products.shape[0]):
        a = left[features[e]]
        b = right[samples[e]]
        total = 0.0
        for k in range(a.shape[0]):
            total += a[k] * b[k]
        products[e] = total


# --- one step of the power method -------------------------------------------------------------


@compiled
def cone_products_rows(
    rows: Array, order: Array, cones: Array, Q: Array, h: Array, S: Array
) -> None:
    """Compute h[n] = <rows[n], Q[cone]>, and add h[n] rows[n] to S[cone]; a row for each cone.

    Samples are processed in the given order. `cones` is unsigned in these functions, which avoids
    checks for negative indices. h must be zero at first; an S without rows is not computed.
    """
    for n in order:
        k = cones[n]
        row = rows[n]
        direction = Q[k]
        product = 0.0
        for f in range(row.shape[0]):
            product += row[f] * direction[f]
        h[n] = product
        if S.shape[0] > 0:
            total = S[k]
            for f in range(row.shape[0]):
                total[f] += product * row[f]


@compiled
def cone_products_columns(columns: Array, cones: Array, Q: Array, h: Array, S: Array) -> None:
    """Do the same for samples in columns; Q and S have one column per cone."""
    for f in range(columns.shape[0]):
        for n in range(columns.shape[1]):
            h[n] += columns[f, n] * Q[f, cones[n]]
    if S.shape[1] > 0:
        for f in range(columns.shape[0]):
            for n in range(columns.shape[1]):
                S[f, cones[n]] += h[n] * columns[f, n]


@compiled
def cone_products_sparse(
    data: Array, indices: Array, indptr: Array, cones: Array, Q: Array, h: Array, S: Array
) -> None:
    """As `cone_products_rows`, for CSR data; Q and S have one row per cone."""
    for n in range(cones.shape[0]):
        k = cones[n]
        product = 0.0
        for position in range(indptr[n], indptr[n + 1]):
            product += data[position] * Q[k, indices[position]]
        h[n] = product
        if S.shape[0] > 0:
            for position in range(indptr[n], indptr[n + 1]):
                S[k, indices[position]] += product * data[position]

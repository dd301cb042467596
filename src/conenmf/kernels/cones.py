"""Products of samples with the direction of their cone: one step of the power method.

The NumPy twin is in `cones.rank_one`.
"""

from __future__ import annotations

from ..arguments import Array
from .load import compiled


@compiled
def cone_products_rows(
    rows: Array, order: Array, cones: Array, Q: Array, h: Array, S: Array
) -> None:
    """h[n] = <rows[n], Q[cone]> and S[cone] += h[n] rows[n]; Q and S have one row per cone.

    Samples are taken in the given order. Here and below `cones` is unsigned, so that no index
    counts from the end; h is zero at first; an S without cones is not computed.
    """
    for n in order:
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


@compiled
def cone_products_columns(columns: Array, cones: Array, Q: Array, h: Array, S: Array) -> None:
    """The same for samples in columns; Q and S have one column per cone."""
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

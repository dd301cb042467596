"""Products with compressed sparse rows, with single entries, and with masks of entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from .load import compiled

__all__ = ["entry_products", "mask_row_sums", "mask_sums", "sparse_products", "sparse_sums"]


@compiled
def sparse_products(data: Any, indices: Any, indptr: Any, W: Any, C: Any) -> None:
    """C[n] = sum of v W[f] over the entries v of every row n of compressed sparse rows.

    Four entries at a time: the row of C is loaded and stored a quarter as often.
    """
    for n in range(C.shape[0]):
        row = C[n]
        for k in range(row.shape[0]):
            row[k] = 0.0
        position, stop = indptr[n], indptr[n + 1]
        while position + 3 < stop:
            v0, v1 = data[position], data[position + 1]
            v2, v3 = data[position + 2], data[position + 3]
            w0, w1 = W[indices[position]], W[indices[position + 1]]
            w2, w3 = W[indices[position + 2]], W[indices[position + 3]]
            for k in range(row.shape[0]):
                row[k] += v0 * w0[k] + v1 * w1[k] + v2 * w2[k] + v3 * w3[k]
            position += 4
        while position < stop:
            v0, w0 = data[position], W[indices[position]]
            for k in range(row.shape[0]):
                row[k] += v0 * w0[k]
            position += 1


@compiled
def sparse_sums(data: Any, indices: Any, indptr: Any, H: Any, S: Any) -> None:
    """S[f] += v H[n] for the entries v of every row n of compressed sparse rows."""
    for n in range(H.shape[0]):
        row = H[n]
        for position in range(indptr[n], indptr[n + 1]):
            value, total = data[position], S[indices[position]]
            for k in range(row.shape[0]):
                total[k] += value * row[k]


@compiled
def entry_products(features: Any, samples: Any, left: Any, right: Any, products: Any) -> None:
    """products[e] = <left[features[e]], right[samples[e]]>, without gathered copies."""
    for e in range(products.shape[0]):
        a, b = left[features[e]], right[samples[e]]
        total = 0.0
        for k in range(a.shape[0]):
            total += a[k] * b[k]
        products[e] = total


@compiled
def mask_row_sums(codes: Any, X: Any, S: Any) -> None:
    """S[n] = sum of X[f] over the features that a mask has of row n.

    `codes` (n, F / 8) has eight features in a byte, the first one lowest. For each group of eight
    features the sums of all its subsets are made first: then a row takes one of them for each
    group, instead of a product for each feature. Two groups at a time, so that rows are loaded half
    as often.
    """
    F, size = X.shape
    tables = np.zeros((2, 256, size))
    S[:] = 0.0
    for first in range(0, codes.shape[1], 2):
        for side in range(2):
            for bit in range(8):
                f = 8 * (first + side) + bit
                for code in range(1 << bit):
                    source, target = tables[side, code], tables[side, code + (1 << bit)]
                    if f < F:
                        x = X[f]
                        for p in range(size):
                            target[p] = source[p] + x[p]
        is_last = first + 1 == codes.shape[1]
        for n in range(S.shape[0]):
            a = tables[0, codes[n, first]]
            b = tables[1, 0 if is_last else codes[n, first + 1]]
            row = S[n]
            for p in range(size):
                row[p] += a[p] + b[p]


@compiled
def mask_sums(codes: Any, X: Any, S: Any) -> None:
    """S[f] = sum of X[n] over the rows n in which a mask has feature f; see `mask_row_sums`.

    Rows with the same features of a group are added up first.
    """
    F, size = S.shape
    tables = np.empty((2, 256, size))
    S[:] = 0.0
    for first in range(0, codes.shape[1], 2):
        tables[:] = 0.0
        is_last = first + 1 == codes.shape[1]
        for n in range(X.shape[0]):
            a = tables[0, codes[n, first]]
            b = tables[1, 0 if is_last else codes[n, first + 1]]
            x = X[n]
            for p in range(size):
                a[p] += x[p]
                b[p] += x[p]
        for side in range(2):
            for bit in range(7, -1, -1):
                f = 8 * (first + side) + bit
                for code in range(1 << bit):
                    source, target = tables[side, code + (1 << bit)], tables[side, code]
                    if f < F:
                        row = S[f]
                        for p in range(size):
                            row[p] += source[p]
                    for p in range(size):
                        target[p] += source[p]

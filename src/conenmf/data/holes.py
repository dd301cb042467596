"""What can be computed from one block of which some entries are missing, or count more or less.

Weights are rows (n, F) beside the block, zero where an entry is missing; None means the
pattern of a sparse block, whose other entries are unknown. Then only stored entries are touched,
and nothing is filled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import kernels
from .blocks import Array, Block, exact, is_sparse, products, sums_at, weighted_sums

__all__ = [
    "hidden",
    "observed_residual",
    "observed_squares",
    "packed",
    "row_grams",
    "unpacked",
    "weighed",
    "weighted_grams",
]

_MIN_TABLE_ROWS = 1000  # of a mask, for which tables of sums pay
_MAX_TABLE_COLUMNS = 256  # of tables of sums that stay in a cache
_PAIR_ENTRIES = 1 << 16  # of a sparse block, for which W H is computed at a time


def hidden(block: Block, weights: Array) -> Block:
    """Return a block with zeros where the weight is zero; it may have NaN there."""
    if is_sparse(block):
        owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        kept = weights[owner, block.indices] > 0
        data = np.where(kept, block.data, 0)
        result: Block = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
        return result
    rows: Array = np.where(weights > 0, np.asarray(block.T), 0)
    return rows.astype(block.dtype, copy=False).T


def weighed(block: Block, weights: Array | None) -> Block:
    """Return a block in float64 with each entry times its weight."""
    block = exact(block)
    if weights is None:
        return block
    if is_sparse(block):
        owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        data = block.data * weights[owner, block.indices]
        result: Block = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
        return result
    return (np.asarray(block.T) * weights).T


def observed_squares(block: Block, weights: Array | None) -> Array:
    """Return the weighted sum of the squares of each sample, in float64."""
    entries = weighed(block, weights)
    if is_sparse(entries):
        values = entries.data * exact(block).data  # type: ignore[attr-defined]
        owner = np.repeat(np.arange(block.shape[1]), np.diff(entries.indptr))
        return sums_at(owner, values, block.shape[1])
    rows: Array = np.einsum("nf,nf->n", np.asarray(entries.T), exact(np.asarray(block.T)))
    return rows


def observed_residual(
    block: Block, weights: Array | None, W: Array, H: Array
) -> tuple[Block, Array]:
    """Return weights times (block - W H') as a block, and the weighted squares of each sample."""
    if weights is None and is_sparse(block):
        owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        data = exact(block.data)
        left = np.empty_like(data)
        for start in range(0, data.size, _PAIR_ENTRIES):
            part = slice(start, start + _PAIR_ENTRIES)
            product = np.einsum("ek,ek->e", W[block.indices[part]], H[owner[part]])
            left[part] = data[part] - product
        rest: Block = sp.csc_array((left, block.indices, block.indptr), shape=block.shape)
        return rest, sums_at(owner, left**2, block.shape[1])
    values: Any = block.toarray() if is_sparse(block) else block
    rows = H @ W.T
    np.subtract(values.T, rows, out=rows)
    if weights is not None and weights.dtype == bool:
        rows *= weights
    if weights is None or weights.dtype == bool:
        return rows.T, np.einsum("nf,nf->n", rows, rows, dtype=np.float64)
    kept = rows * weights
    return kept.T, np.einsum("nf,nf->n", rows, kept, dtype=np.float64)


def packed(W: Array) -> Array:
    """Return the products of pairs of columns of W (F, K), (F, K (K + 1) / 2) in float64."""
    first, second = np.triu_indices(W.shape[1])
    rows = exact(W)
    pairs: Array = rows[:, first] * rows[:, second]
    return pairs


def unpacked(pairs: Array, K: int) -> Array:
    """Return symmetric matrices (n, K, K) from their upper halves (n, K (K + 1) / 2)."""
    place = np.empty((K, K), np.intp)
    first, second = np.triu_indices(K)
    place[first, second] = place[second, first] = np.arange(first.size)
    return np.ascontiguousarray(pairs[:, place])


def row_grams(block: Block, weights: Array | None, pairs: Array) -> Array:
    """Return the sum of weight w_f w_f' over the entries of each sample, packed."""
    if _has_tables(weights, pairs):
        grams = np.empty((block.shape[1], pairs.shape[1]))
        kernels.mask_row_sums(_codes(weights), pairs, grams)
        return grams
    return products(_pattern(block, weights), pairs)


def weighted_grams(block: Block, weights: Array | None, pairs: Array) -> Array:
    """Return the sum of weight h_n h_n' over the entries of each feature, packed."""
    if _has_tables(weights, pairs):
        grams = np.empty((block.shape[0], pairs.shape[1]))
        kernels.mask_sums(_codes(weights), pairs, grams)
        return grams
    return weighted_sums(_pattern(block, weights), pairs)


def _has_tables(weights: Array | None, pairs: Array) -> bool:
    """Whether tables of sums are faster than products: of a mask of many rows, with few columns."""
    if weights is None or weights.dtype != bool or len(weights) < _MIN_TABLE_ROWS:
        return False
    return pairs.shape[1] <= _MAX_TABLE_COLUMNS and kernels.AVAILABLE


def _codes(mask: Array | None) -> Array:
    """Eight entries of a mask in a byte."""
    codes: Array = np.packbits(np.asarray(mask), axis=1, bitorder="little")
    return codes


def _pattern(block: Block, weights: Array | None) -> Block:
    if weights is not None:
        return exact(weights).T
    if is_sparse(block):
        ones = np.ones(block.data.size)
        pattern: Block = sp.csc_array((ones, block.indices, block.indptr), shape=block.shape)
        return pattern
    return np.ones(block.shape)

"""Computations on one block with missing or weighted entries.

A block comes with the weights of its entries, zero where one is missing. For a sparse matrix of
ratings the pattern of stored entries replaces the weights, so only stored entries are processed.
Gram matrices of single samples are packed: the upper half of each is a row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from ..types import Array, Pair
from .blocks import (
    Block,
    Entries,
    exact,
    is_sparse,
    owners,
    products,
    products_at,
    sums_at,
    weighted_sums,
    with_data,
)
from .matrix import PerSample

# Weights (n, F) of the entries of a block; None if stored entries weigh the same.
EntryWeights: TypeAlias = Array | None


def hide(block: Block, weights: Array) -> Block:
    """Return a block with zeros where the weight is zero; the block may have NaN there."""
    if is_sparse(block):
        kept = weights[owners(block), block.indices] > 0
        return with_data(block, np.where(kept, block.data, 0))
    rows: Array = np.where(weights > 0, np.asarray(block.T), 0)
    return rows.astype(block.dtype, copy=False).T


def weigh(block: Block, weights: EntryWeights) -> Block:
    """Return a block in float64 with each entry times its weight."""
    block = exact(block)
    if weights is None:
        return block
    if is_sparse(block):
        return with_data(block, block.data * weights[owners(block), block.indices])
    return (np.asarray(block.T) * weights).T


def observed_squares(block: Block, weights: EntryWeights) -> Array:
    """Return the weighted sum of the squares of each sample, in float64."""
    entries: Any = weigh(block, weights)
    return np.asarray((entries * exact(block)).sum(axis=0))


def observed_residual(
    block: Block, weights: EntryWeights, W: Array, H: Array
) -> tuple[Block, Array]:
    """Return weights times (block - W H') as a block, and the weighted squares of each sample."""
    if weights is None and is_sparse(block):
        owner = owners(block)
        data = exact(block.data)
        left = data - products_at(Entries(block.indices, owner, data), W, H)
        return with_data(block, left), sums_at(owner, left**2, block.shape[1])
    values: Any = block.toarray() if is_sparse(block) else block
    rows = H @ W.T
    np.subtract(values.T, rows, out=rows)
    if weights is not None and weights.dtype == bool:
        rows *= weights
    if weights is None or weights.dtype == bool:
        return rows.T, np.einsum("nf,nf->n", rows, rows, dtype=float)
    kept = rows * weights
    return kept.T, np.einsum("nf,nf->n", rows, kept, dtype=float)


def pack(W: Array) -> Array:
    """Return the products of pairs of columns of W (F, K), (F, K (K + 1) / 2) in float64."""
    first, second = upper_half(W.shape[1])
    columns = exact(W).T
    return (columns[first] * columns[second]).T


@lru_cache
def upper_half(K: int) -> Pair:
    """Return the rows and columns of the upper half of a matrix (K, K)."""
    return np.triu_indices(K)


def unpack(pairs: Array, K: int) -> Array:
    """Return symmetric matrices (n, K, K) from their upper halves (n, K (K + 1) / 2)."""
    first, second = upper_half(K)
    places = np.arange(first.size)
    place = np.empty((K, K), np.intp)
    place[first, second] = places
    place[second, first] = places
    return np.ascontiguousarray(pairs[:, place])


def row_grams(block: Block, weights: EntryWeights, pairs: Array) -> Array:
    """Return the sum of weight w_f w_f' over the entries of each sample, packed."""
    return products(pattern(block, weights), pairs)


def weighted_grams(block: Block, weights: EntryWeights, pairs: Array) -> Array:
    """Return the sum of weight h_n h_n' over the entries of each feature, packed."""
    return weighted_sums(pattern(block, weights), pairs)


def pattern(block: Block, weights: EntryWeights) -> Block:
    """Return the weights as a block, or ones where entries are known."""
    if weights is not None:
        return exact(weights).T
    if is_sparse(block):
        return with_data(block, np.ones(block.data.size))
    return np.ones(block.shape)


def known_entries(block: Block, weights: EntryWeights = None) -> Array:
    """Return whether each entry of a block is known, (n, F)."""
    if weights is not None:
        return weights > 0
    return known_rows(block, missing="zeros")[0]


def known_rows(block: Block, *, missing: str | float) -> PerSample:
    """Step: return which entries are known if NaN, zeros or a number mark missing entries.

    For sparse data, "zeros" means entries that are not stored. If `missing` is a number, NaN also
    counts as missing.
    """
    is_zero = missing == "zeros"
    code = np.nan if isinstance(missing, str) else missing
    if is_sparse(block):
        values = block.data
        known = np.full(block.shape[::-1], not is_zero and code != 0)
        known[owners(block), block.indices] = is_zero | ~(np.isnan(values) | (values == code))
        return known, None
    rows = np.asarray(block.T)
    known = rows != 0 if is_zero else ~np.isnan(rows) & (rows != code)
    return np.ascontiguousarray(known), None

"""The nonzero entries of a block, one by one: their places, factors at these places, new values.

For losses that look at single entries, such as those of counts. Zeros are never touched, so sparse
blocks stay sparse; a dense block has the same entries in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .. import kernels
from .blocks import Array, Block, SparseBlock, is_sparse

__all__ = [
    "Entries",
    "block_of_counts",
    "compressed",
    "entries_of",
    "products_at",
    "with_data",
    "with_values",
]

_PIECE_NUMBERS = 1 << 16  # multiplied at a time


class Entries(NamedTuple):
    """The nonzero entries of a block, sample after sample, features ascending.

    Attributes
    ----------
    features, samples : arrays (n,), integers
        Where they are.
    values : array (n,), float64
    """

    features: Array
    samples: Array
    values: Array


def entries_of(block: Block) -> Entries:
    """Return the nonzero entries of a block (F, n)."""
    if is_sparse(block):
        samples = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        features, values = block.indices, block.data.astype(np.float64, copy=False)
        there = values != 0
        if there.all():
            return Entries(features, samples, values)
        return Entries(features[there], samples[there], values[there])
    rows = np.asarray(block.T)
    samples, features = np.nonzero(rows)
    return Entries(features, samples, rows[samples, features].astype(np.float64))


def compressed(block: Block) -> SparseBlock:
    """Return a block as compressed sparse columns that have no zeros stored."""
    result: SparseBlock
    if not is_sparse(block):
        result = sp.csr_array(np.asarray(block).T).T
    elif block.data.all():
        result = block
    else:
        copied = sp.csc_array(block, copy=True)
        copied.eliminate_zeros()
        result = copied
    return result


def with_data(block: SparseBlock, data: Array) -> SparseBlock:
    """Return a sparse block with other values in the same places."""
    result: SparseBlock = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
    return result


def with_values(block: Block, entries: Entries, values: Array) -> Block:
    """Return a block like this one, dense or sparse, with other values at its entries."""
    result: Block
    if is_sparse(block):
        starts = np.searchsorted(entries.samples, np.arange(block.shape[1] + 1))
        result = sp.csc_array((values, entries.features, starts), shape=block.shape)
    else:
        rows = np.zeros(block.shape[::-1], dtype=values.dtype)
        rows[entries.samples, entries.features] = values
        result = rows.T
    return result


def products_at(entries: Entries, left: Array, right: Array) -> Array:
    """Return <left_f, right_n> for each entry, given left (F, K) and right (n, K)."""
    products = np.empty(entries.features.size)
    if kernels.AVAILABLE:
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        kernels.entry_products(entries.features, entries.samples, left, right, products)
        return products
    size = 1 + _PIECE_NUMBERS // max(left.shape[1], 1)
    for start in range(0, products.size, size):
        part = slice(start, start + size)
        np.einsum(
            "ek,ek->e",
            left[entries.features[part]],
            right[entries.samples[part]],
            out=products[part],
        )
    return products


def block_of_counts(features: Array, samples: Array, shape: tuple[int, int]) -> Block:
    """Return a sparse block (F, n) of how often each feature occurs in each sample.

    `features` and `samples` have one entry for each single count, in any order.
    """
    F, n = shape
    keys, counts = np.unique(samples.astype(np.int64) * F + features, return_counts=True)
    places, indices = np.divmod(keys, F)
    starts = np.searchsorted(places, np.arange(n + 1))
    parts = (counts.astype(np.float64), indices, starts)
    block: Block = sp.csc_array(parts, shape=shape)
    return block

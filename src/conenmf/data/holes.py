"""What can be computed from one block of which some entries are missing, or count more or less.

Weights are rows (n, F) beside the block, zero where an entry is missing; None means the
pattern of a sparse block, whose other entries are unknown. Then only stored entries are touched,
and nothing is filled.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import kernels
from .blocks import (
    Array,
    Block,
    dense,
    entrywise,
    exact,
    is_sparse,
    products,
    sums_at,
    weighted_sums,
)
from .matrix import Aligned, DataMatrix
from .memory import DenseMatrix
from .resources import available_memory
from .views import MappedMatrix

__all__ = [
    "completed",
    "extremes",
    "filled",
    "hidden",
    "inverse_weights",
    "is_not_zero",
    "is_number",
    "is_positive",
    "is_stored",
    "known_entries",
    "observed_residual",
    "observed_squares",
    "packed",
    "positive_extremes",
    "row_grams",
    "survey",
    "unpacked",
    "weighed",
    "weighed_squares",
    "weighted_grams",
    "weights_times",
    "wider",
    "with_zeros",
]

_COPY_SHARE = 0.25  # of the memory, up to which a copy with zeros for missing entries is made
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


# --- views of data with holes, which have none ---------------------------------------------


def with_zeros(V: DataMatrix, rows: Aligned) -> DataMatrix:
    """V with zeros where the weight is zero: a copy of dense data in memory, a view of others.

    A fit reads them often, and to hide entries takes as long as to multiply them.
    """
    F, N = V.shape
    if isinstance(V, DenseMatrix) and F * N * V.dtype.itemsize <= _COPY_SHARE * available_memory():
        held = V.held_rows(F * N)
        if held is not None:
            kept = np.ascontiguousarray(hidden(held.T, rows).T, dtype=V.dtype)
            size = V.block_samples
            return DenseMatrix(kept, block_samples=size, n_threads=V.n_threads, names=V.names)
    return MappedMatrix(V, hidden, rows, dtype=V.dtype, holes=True)


def filled(V: DataMatrix) -> DataMatrix:
    """Return a view with the mean of its feature at each missing entry, to start from.

    Sparse data of which only stored entries are known stay as they are: zeros. Negative entries
    are zeros too.
    """
    observed, own = V.observed, V.unweighed
    if observed is not None and own is not None and own.repeated is None:
        return own.again(filled(own.V))  # type: ignore[no-any-return]
    if V.measures.lowest < 0:
        V = MappedMatrix(V, _nonnegative, dtype=V.dtype, holes=True)
    if observed is None:
        return V
    if observed.weights is None:
        twin = copy.copy(V)
        twin.observed = None
        return twin
    known, (sums, counts) = V.sweep(_means_of_known, observed.weights)
    means = sums / np.maximum(counts, 1)
    change = partial(_with_means, means=means.astype(V.dtype))
    return MappedMatrix(V, change, known, dtype=V.dtype, holes=True)


def completed(V: DataMatrix, W: Array, Ht: Aligned) -> DataMatrix:
    """Return a view with W H at each missing entry, to be described: W (F, K), H' (N, K) aligned.

    Negative entries are zeros there.
    """
    observed = V.observed
    if observed is None:
        return filled(V)
    change = partial(_with_model, W=exact(W), is_weighted=bool(observed.aligned))
    return MappedMatrix(V, change, *observed.aligned, Ht, dtype=V.dtype, holes=True)


def _with_model(block: Block, *given: Array, W: Array, is_weighted: bool) -> Block:
    known = known_entries(block, given[0] if is_weighted else None)
    rows: Array = np.where(known, dense(block).T, exact(given[-1]) @ W.T)
    return _positive_part(rows).astype(block.dtype, copy=False).T


def known_entries(block: Block, weights: Array | None) -> Array:
    """Return whether each entry of a block is known, (n, F)."""
    if weights is not None:
        return weights > 0
    known = np.zeros(block.shape[::-1], bool)
    owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))  # type: ignore[attr-defined]
    known[owner, block.indices] = True  # type: ignore[attr-defined]
    return known


def _nonnegative(block: Block) -> Block:
    return entrywise(block, _positive_part)


def _positive_part(entries: Array) -> Array:
    positive: Array = np.maximum(entries, 0)
    return positive


def _means_of_known(block: Block, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    known = weights > 0
    return known, (
        weighted_sums(exact(block), np.ones((block.shape[1], 1)))[:, 0],
        known.sum(axis=0),
    )


def _with_means(block: Block, known: Array, *, means: Array) -> Block:
    rows: Array = np.where(known, dense(block).T, means)
    return rows.astype(block.dtype, copy=False).T


# --- what weights say --------------------------------------------------------------------------


def extremes(index: range, rows: Array) -> tuple[tuple[float, float]]:
    """Step of a map: the smallest and the largest weight."""
    return ((float(np.min(rows)), float(np.max(rows))),)


def positive_extremes(index: range, rows: Array) -> tuple[tuple[float, float]]:
    """Step of a map: the smallest and the largest weight that is not zero."""
    positive = exact(rows[rows > 0])
    return ((float(positive.min(initial=np.inf)), float(positive.max(initial=0))),)


def wider(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Return the range that holds two; NaN if one of them does."""
    return float(np.minimum(a[0], b[0])), float(np.maximum(a[1], b[1]))


def weights_times(index: range, rows: Array, others: Array) -> tuple[Array, None]:
    """Step of a map: the products of weights; an entry is known if both say so."""
    if rows.dtype == bool and others.dtype == bool:
        return rows & others, None
    return exact(rows) * others, None  # whole numbers would leave the range of their type


def inverse_weights(index: range, rows: Array, *, unit: float) -> tuple[tuple[Array, Array]]:
    """Step of a map: the sum of `unit` / weight over what is known of features, and counts."""
    known = rows > 0
    inverses = np.divide(unit, exact(rows), out=np.zeros(rows.shape), where=known)
    return ((inverses.sum(axis=0), known.sum(axis=0)),)


def is_positive(index: range, rows: Array) -> tuple[Array, None]:
    """Step of a map: whether entries are known."""
    return rows > 0, None


def is_number(block: Block) -> tuple[Array, None]:
    """Step: whether entries are no NaN."""
    if is_sparse(block):
        rows = np.ones(block.shape[::-1], bool)
        owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        rows[owner, block.indices] = ~np.isnan(block.data)
        return rows, None
    return np.ascontiguousarray(~np.isnan(np.asarray(block.T))), None


def is_not_zero(block: Block) -> tuple[Array, None]:
    """Step: whether entries are not zero."""
    return np.ascontiguousarray(np.asarray(block.T) != 0), None


def is_stored(block: Block) -> tuple[Array, None]:
    """Step: whether entries of sparse data are stored."""
    return known_entries(block, None), None


def survey(
    block: Block, weights: Array | None = None
) -> tuple[tuple[float, Array, int, int, bool]]:
    """Weighted squares, entries known of each feature and in all, empty samples, other weights."""
    known = None if weights is None else (weights > 0).astype(np.float64)
    per_sample = row_grams(block, known, np.ones((block.shape[0], 1)))[:, 0]
    if known is not None:
        per_feature = known.sum(axis=0)
    else:
        ones = np.bincount(block.indices, minlength=block.shape[0])  # type: ignore[attr-defined]
        per_feature = ones.astype(np.float64)
    unlike = weights is not None and bool(((weights != 0) & (weights != 1)).any())
    with np.errstate(over="ignore"):
        squares = float(observed_squares(block, weights).sum())
    counts = int(per_sample.sum()), int((per_sample == 0).sum())
    return ((squares, per_feature, *counts, unlike),)


def weighed_squares(index: range, squared: Array, weights: Array, *, power: int) -> tuple[float]:
    """Step of a map: the sum of squared norms times powers of weights of samples."""
    with np.errstate(over="ignore"):
        return (float((squared * weights**power).sum()),)

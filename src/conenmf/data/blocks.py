"""Computations on one block of samples, for dense and sparse storage.

A block is a few columns of V, (F, n): an ndarray or a compressed sparse array. This module contains
the code that differs between the two, or that uses a compiled kernel. Sums are in float64. It also
decides how V is cut into blocks, from its size alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.linalg import norm

from .. import kernels
from ..types import Array, DType, Pair, Shape

# The precision of float64, and its smallest positive number, which replaces 0 as a divisor.
EPS = float(np.finfo(float).eps)
TINY = float(np.finfo(float).tiny)

Rows: TypeAlias = Any  # samples in rows, (N, F): an ndarray, or a `scipy.sparse.csr_array`

# A few columns of V, (F, n), in float32 or float64: an ndarray, or a `scipy.sparse.csc_array`.
Block: TypeAlias = Any

is_sparse: Callable[[Block], bool] = sp.issparse

_DOUBTFUL_RATIO = 1e-5  # residual over ||v||^2: a smaller difference is computed exactly
_DOUBTFUL_SAMPLES = 256  # converted to dense at a time
_CACHED_BYTES = 1 << 20


def compute_dtype(dtype: DType) -> DType:
    """Return the type to compute in: float32 for float32 and float16, float64 for all others."""
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


def canonical_rows(rows: Rows) -> Rows:
    """Return rows as an ndarray or as CSR without repeated entries; the argument is not changed."""
    if hasattr(rows, "to_scipy_sparse"):  # of the library `sparse`
        rows = rows.to_scipy_sparse()
    if not sp.issparse(rows):
        return np.asarray(rows)
    compressed = rows.tocsr()
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return compressed


def sparse_block(data: Array, indices: Array, indptr: Array, F: int, dtype: DType) -> Block:
    """Return a block of samples (F, n) from the arrays of their compressed rows.

    Indices are 32 bits wide if they fit. A kernel compiled for another width may add in another
    order, and the bits of results must not depend on the width in a file or array.
    """
    data = data.astype(dtype, copy=False)
    index_dtype = sp.get_index_dtype(maxval=max(F, data.size))
    indices = indices.astype(index_dtype, copy=False)
    indptr = indptr.astype(index_dtype, copy=False)
    return of_arrays(data, indices, indptr, (F, indptr.size - 1))


def of_arrays(data: Array, indices: Array, indptr: Array, shape: Shape) -> Block:
    """Return a sparse block of these arrays; SciPy's constructor would copy short slices."""
    block = sp.csc_array(shape, dtype=data.dtype)
    block.data = data
    block.indices = indices
    block.indptr = indptr
    return block


def exact(block: Block) -> Block:
    """Return a block, or any array, in float64; without a copy if it is float64 already."""
    return block.astype(float, copy=False)


def dense(block: Block) -> Array:
    """Return a block as an ndarray in float64 and C order, so sums do not depend on the storage."""
    array: Array = block.toarray() if is_sparse(block) else block
    return np.ascontiguousarray(array, dtype=float)


def first_largest(values: Array, share: float) -> Array:
    """Return the index of the largest value of each column: the first, if several are equal.

    Values count as equal up to this share of the largest; rounding, and with it the storage, would
    choose among them.

    >>> first_largest(np.array([0.1, 0.3, 0.1 + 0.2]), 1e-9)
    array(1)
    """
    largest = values.max(axis=0)
    lowest = np.minimum(largest * (1.0 - share), largest * (1.0 + share))  # of either sign
    return np.asarray((values >= lowest).argmax(axis=0))


def norms(squared: Array) -> Array:
    """Return ||v|| for each ||v||^2, and 1 for zero samples, so that division is possible."""
    return np.sqrt(divisors(squared))


def divisors(numbers: Array) -> Array:
    """Return the numbers, with 1 in place of those that are not positive."""
    return np.where(numbers > 0, numbers, 1.0)


def with_data(block: Block, data: Array) -> Block:
    """Return a sparse block with other values at the same positions."""
    return of_arrays(data, block.indices, block.indptr, block.shape)


def owners(block: Block) -> Array:
    """Return the sample index of each stored entry of a sparse block."""
    return np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))


def scaled(block: Block, factors: Array) -> Block:
    """Return a block with each sample multiplied by its factor."""
    if is_sparse(block):
        return with_data(block, block.data * np.repeat(factors, np.diff(block.indptr)))
    return np.asarray(block) * factors


def features_scaled(block: Block, factors: Array) -> Block:
    """Return a block with each feature multiplied by its factor."""
    if is_sparse(block):
        return with_data(block, block.data * factors[block.indices])
    return np.asarray(block) * factors[:, None]


def entrywise(block: Block, function: Callable[[Array], Array]) -> Block:
    """Return a block with a function applied to each entry; the function keeps zeros."""
    if is_sparse(block):
        return with_data(block, function(block.data))
    return function(np.asarray(block))


def subtracted(block: Block, W: Array, H: Array) -> Block:
    """Return max(block - W H', 0) for W (F, K) and H (n, K): zero where the block is zero."""
    if not is_sparse(block):
        left = np.maximum(np.asarray(block.T) - H @ W.T, 0).astype(block.dtype, copy=False)
        return left.T
    products = products_at(Entries(block.indices, owners(block), block.data), W, H)
    left = np.maximum(block.data - products, 0).astype(block.dtype, copy=False)
    return with_data(block, left)


def cone_products(block: Block, labels: Array, Q: Array, *, sums: bool = True) -> Pair:
    """Multiply each sample with the direction of its cone, and back.

    Q (K, F) has one direction per row. Returns h (n,) with h_n = <v_n, q_label(n)> and S (K, F)
    with s_k = sum of h_n v_n over the samples of cone k, both in float64; S is empty without
    `sums`. Samples labelled -1 are zero, so they may be treated as members of cone 0.
    """
    Q = np.ascontiguousarray(Q)
    cones = np.maximum(labels, 0).astype(np.uintp)
    summed = Q if sums else Q[:0]
    if not kernels.AVAILABLE:
        whole = exact(block)
        h = np.take_along_axis(whole.T @ Q.T, cones[:, None], axis=1)[:, 0]
        coefficients = np.zeros((cones.size, summed.shape[0]))
        if sums:
            np.put_along_axis(coefficients, cones[:, None], h[:, None], axis=1)
        return h, (whole @ coefficients).T
    h = np.zeros(cones.size)
    if isinstance(block, np.ndarray) and block.strides[0] != block.itemsize:
        S = np.zeros(summed.T.shape)
        kernels.cone_products_columns(block, cones, np.ascontiguousarray(Q.T), h, S)
        return h, S.T
    S = np.zeros(summed.shape)
    if is_sparse(block):
        kernels.cone_products_sparse(block.data, block.indices, block.indptr, cones, Q, h, S)
    else:
        # Go through the cones one by one if directions and sums do not fit in the cache together.
        large = Q.nbytes > _CACHED_BYTES
        order = np.argsort(cones, kind="stable") if large else np.arange(cones.size)
        kernels.cone_products_rows(np.ascontiguousarray(block.T), order, cones, Q, h, S)
    return h, S


def products(block: Block, X: Array) -> Array:
    """Return block' X (n, K): the product of every sample with every column of X (F, K)."""
    if not (kernels.AVAILABLE and is_sparse(block)):
        return np.asarray(block.T @ X)
    X = np.ascontiguousarray(X)
    C = np.empty((block.shape[1], X.shape[1]), np.result_type(block.dtype, X.dtype))
    indices = block.indices.view(f"u{block.indices.itemsize}")
    kernels.sparse_products(block.data, indices, block.indptr, X, C)
    return C


def weighted_sums(block: Block, Y: Array) -> Array:
    """Return block Y (F, K): sums of samples, weighted by the columns of Y (n, K)."""
    return np.asarray(block @ Y)


def feature_gram(block: Block) -> Array:
    """Return the sum of v_n v_n' over the samples of a block, (F, F) in float64."""
    block = exact(block)
    return dense(block @ block.T)


def cross_products(block: Block, other: Block) -> Array:
    """Return the products of all samples of two blocks, (n, m) in float64."""
    return dense(exact(block).T @ exact(other))


def sums_at(places: Array, values: Array, size: int) -> Array:
    """Return the sums (size,) of the values at each place, in float64 even if there are no values.

    >>> sums_at(np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]), 3)
    array([1., 0., 5.])
    """
    return np.bincount(places, values, size).astype(float, copy=False)


def with_entries(block: Block, indices: Array, values: Array) -> Block:
    """Return a block in float64 with values added to some entries of each sample.

    `indices` and `values` (n, s) have one row per sample; indices are distinct and ascending.
    """
    if is_sparse(block):
        indptr = np.arange(0, values.size + 1, values.shape[1])
        parts = (values.ravel(), indices.ravel(), indptr)
        return exact(block) + sp.csc_array(parts, shape=block.shape)
    rows = np.array(block.T, dtype=float)
    rows[np.arange(len(rows))[:, None], indices] += values
    return rows.T


def over(numbers: Any, divisors: Array) -> Array:
    """Return numbers / divisors, and 0 where a divisor is not positive.

    >>> over(np.array([2.0, 3.0]), np.array([4.0, 0.0]))
    array([0.5, 0. ])
    """
    shape = np.broadcast(numbers, divisors).shape
    dtype = np.result_type(numbers, divisors)
    return np.divide(numbers, divisors, out=np.zeros(shape, dtype), where=divisors > 0)


def unit_columns(W: Array) -> Array:
    """Return the columns of W (F, K) scaled to norm 1; zero columns stay zero."""
    return over(W, norm(W, axis=0))


def residual_squared(block: Block, squared: Array, C: Array, G: Array, W: Array, H: Array) -> Array:
    """Return ||v_n - W h_n||^2 for each sample of a block, in float64.

    ||v||^2 - 2 <c, h> + h'Gh is cheap given C = block' W, but it is a difference of large numbers.
    If it would lose a third of the digits, v - W h is computed. `squared` contains ||v||^2.
    """
    residual: Array = squared - 2.0 * np.einsum("nk,nk->n", C, H) + np.einsum("nk,nk->n", H @ G, H)
    doubtful = np.flatnonzero(residual < _DOUBTFUL_RATIO * squared)
    n_parts = 1 + doubtful.size // _DOUBTFUL_SAMPLES
    for part in np.array_split(doubtful, n_parts) if doubtful.size else ():
        columns = block[:, part]
        samples: Array = columns.toarray() if is_sparse(columns) else columns
        difference = samples.T - H[part] @ W.T
        residual[part] = np.einsum("nf,nf->n", difference, difference)
    return np.maximum(residual, 0.0)


_PIECE_NUMBERS = 1 << 16  # products computed at a time


class Entries(NamedTuple):
    """The nonzero entries of a block, sample after sample, features ascending.

    Attributes
    ----------
    features, samples : arrays (n,), integers
        The feature and the sample of each entry.
    values : array (n,), float64
    """

    features: Array
    samples: Array
    values: Array


def entries_of(block: Block) -> Entries:
    """Return the nonzero entries of a block (F, n)."""
    if is_sparse(block):
        samples = owners(block)
        features = block.indices
        values = block.data.astype(float, copy=False)
        if values.all():
            return Entries(features, samples, values)
        there = values != 0
        return Entries(features[there], samples[there], values[there])
    rows = np.asarray(block.T)
    samples, features = np.nonzero(rows)
    return Entries(features, samples, rows[samples, features].astype(float))


def compressed(block: Block) -> Block:
    """Return a block as compressed sparse columns without stored zeros."""
    if not is_sparse(block):
        return sp.csr_array(np.asarray(block).T).T
    if block.data.all():
        return block
    copied = sp.csc_array(block, copy=True)
    copied.eliminate_zeros()
    return copied


def with_values(block: Block, entries: Entries, values: Array) -> Block:
    """Return a block like this one, dense or sparse, with other values at its entries."""
    if is_sparse(block):
        starts = np.searchsorted(entries.samples, np.arange(block.shape[1] + 1))
        return sp.csc_array((values, entries.features, starts), shape=block.shape)
    rows = np.zeros(block.shape[::-1], dtype=values.dtype)
    rows[entries.samples, entries.features] = values
    return rows.T


def products_at(entries: Entries, left: Array, right: Array) -> Array:
    """Return <left_f, right_n> for each entry, given left (F, K) and right (n, K)."""
    products = np.empty(entries.features.size)
    if kernels.AVAILABLE:
        left = np.ascontiguousarray(left)
        right = np.ascontiguousarray(right)
        kernels.entry_products(entries.features, entries.samples, left, right, products)
        return products
    size = 1 + _PIECE_NUMBERS // max(left.shape[1], 1)
    for part in slices(products.size, size):
        np.einsum(
            "ek,ek->e",
            left[entries.features[part]],
            right[entries.samples[part]],
            out=products[part],
        )
    return products


def block_of_counts(features: Array, samples: Array, shape: Shape) -> Block:
    """Return a sparse block (F, n) that counts how often each feature occurs in each sample.

    `features` and `samples` have one item per single count, in any order.
    """
    single = (np.ones(features.size), (features, samples))
    return sp.coo_array(single, shape=shape).tocsc()


Borders: TypeAlias = list[tuple[int, int]]

_BLOCK_BYTES = 8 << 20  # a dense block and its products stay in the cache of one core
_MIN_BLOCK_SAMPLES = 256  # with fewer, adding up the F x K sums of the blocks takes too long
_BLOCKS_FOR_THREADS = 8  # data of moderate size are cut into so many blocks ...
_MIN_SHARED_SAMPLES = 64  # ... if each has at least so many samples
_MAX_SPARSE_ENTRIES = 4 << 20  # in a block
_MIN_PAIRED_ENTRIES = 1 << 17
# From this size on, dense data of a single block are left to the threads of BLAS.
LARGE_BYTES = 4 * _BLOCK_BYTES


def slices(count: int, size: int) -> list[slice]:
    """Return slices of `size` rows that cover `count` rows."""
    return [slice(start, start + size) for start in range(0, count, size)]


def equal_borders(N: int, size: int) -> Borders:
    """Cut N samples into blocks of the same size, the last one possibly smaller."""
    return [(start, min(start + size, N)) for start in range(0, N, size)]


def dense_block_samples(F: int, N: int, itemsize: int) -> int:
    """Return how many samples a dense block has: as many as fit into a cache, or an eighth of V."""
    most = max(_MIN_BLOCK_SAMPLES, _BLOCK_BYTES // (F * itemsize))
    moderate = F * N * itemsize > _BLOCK_BYTES // 4
    return min(most, max(_MIN_SHARED_SAMPLES, -(-N // _BLOCKS_FOR_THREADS)) if moderate else N)


def sparse_block_samples(F: int, N: int, nnz: int) -> int:
    """Return how many samples a sparse block has, so that it has at least 4 F entries.

    The sums of a block cost F x K however few entries it has. A block with an eighth of all entries
    is better still if it easily fits in memory.
    """
    per_sample = max(nnz, 1) / N
    entries = max(4.0 * F, min(nnz / _BLOCKS_FOR_THREADS, _MAX_SPARSE_ENTRIES))
    return max(_MIN_BLOCK_SAMPLES, int(np.ceil(entries / per_sample)))


def paired_block_samples(N: int, nnz: int) -> int:
    """Return how many samples a block has if V is stored in both orders and blocks return no sums.

    The number of blocks is a power of two, so that threads have equal shares; each block is large
    enough to be worth a call.
    """
    share = min(nnz // _MIN_PAIRED_ENTRIES, _BLOCKS_FOR_THREADS)
    n_blocks = max(1 << max(share, 1).bit_length() - 1, nnz // _MAX_SPARSE_ENTRIES)
    return max(-(-N // n_blocks), 1)

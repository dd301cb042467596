"""What can be computed from one block of samples, however it is stored.

A block is a few columns of V, (F, n): an ndarray or a compressed sparse array. Where the two need
different code, or where a compiled kernel helps, it is here; sums are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import xlogy

from .. import kernels
from ..errors import DataError

__all__ = [
    "Array",
    "Block",
    "SparseBlock",
    "canonical_rows",
    "compute_dtype",
    "cone_products",
    "cross_products",
    "dense",
    "entropies",
    "entrywise",
    "exact",
    "feature_gram",
    "features_scaled",
    "is_sparse",
    "norms",
    "products",
    "residual_squared",
    "scaled",
    "sparse_block",
    "subtracted",
    "sums_at",
    "weighted_sums",
    "with_entries",
]

Array: TypeAlias = npt.NDArray[Any]


class Block(Protocol):
    """A few columns of V, (F, n), with all that an algorithm may use: dense and sparse have it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(F, n)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""

    @property
    def T(self) -> Any:
        """One row per sample."""

    def astype(self, dtype: Any, /, *, copy: bool = ...) -> Any:
        """Convert the entries."""

    def sum(self, *, dtype: Any = ...) -> Any:
        """Add up all entries."""

    def max(self) -> Any:
        """Find the largest entry."""

    def __matmul__(self, other: Any, /) -> Any: ...

    def __getitem__(self, key: Any, /) -> Any: ...


class SparseBlock(Block, Protocol):
    """A block in compressed sparse columns."""

    data: Array
    indices: Array
    indptr: Array

    def toarray(self) -> Array:
        """Make it dense."""


_AnyBlock = TypeVar("_AnyBlock", bound=Block)

_DOUBTFUL_RATIO = 1e-5  # residual over ||v||^2, below which their difference is not trusted
_DOUBTFUL_SAMPLES = 256  # made dense at a time
_CACHED_BYTES = 1 << 20
_PAIR_ENTRIES = 1 << 16  # of a sparse block, for which W H is computed at a time


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type to compute in: float32 for float32 and float16, float64 for all others."""
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


def canonical_rows(rows: Any) -> Any:
    """Return rows as an ndarray or as CSR without repeated entries, never altering the caller's."""
    if not sp.issparse(rows):
        return np.asarray(rows)
    compressed = rows.tocsr()
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return compressed


def sparse_block(
    data: Array, indices: Array, indptr: Array, F: int, dtype: np.dtype[Any], clip: bool
) -> Block:
    """Return a block of samples (F, n), given the parts of their compressed rows.

    Indices are 32 bits wide where they fit: a kernel compiled for another width may add in another
    order, and the bits must not depend on how a file or an array keeps its indices.
    """
    data = data.astype(dtype, copy=False)
    index_dtype = sp.get_index_dtype(maxval=max(F, data.size))
    indices = indices.astype(index_dtype, copy=False)
    indptr = indptr.astype(index_dtype, copy=False)
    if clip:
        data = np.maximum(data, 0)
    shape = (F, indptr.size - 1)
    block: Block = sp.csc_array((data, indices, indptr), shape=shape, copy=False)
    return block


def is_sparse(block: Block) -> TypeGuard[SparseBlock]:
    """Return whether a block is sparse."""
    return bool(sp.issparse(block))


def exact(block: _AnyBlock) -> _AnyBlock:
    """Return a block, or any array, in float64: itself if it is so already."""
    result: _AnyBlock = block.astype(np.float64, copy=False)
    return result


def dense(block: Block) -> Array:
    """Return a block as an ndarray in float64 and C order: sums do not depend on the storage."""
    array: Any = block.toarray() if is_sparse(block) else block
    return np.ascontiguousarray(array, dtype=np.float64)


def norms(squared: Array) -> Array:
    """Return ||v|| for each ||v||^2, and 1 for a zero sample, so that one can divide by them."""
    return np.sqrt(np.where(squared > 0, squared, 1.0))


def scaled(block: Block, factors: Array) -> Block:
    """Return a block with each sample multiplied by its factor."""
    product: Block
    if is_sparse(block):
        data = block.data * np.repeat(factors, np.diff(block.indptr))
        product = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
    else:
        product = np.asarray(block) * factors
    return product


def features_scaled(block: Block, factors: Array) -> Block:
    """Return a block with each feature multiplied by its factor."""
    product: Block
    if is_sparse(block):
        data = block.data * factors[block.indices]
        product = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
    else:
        product = np.asarray(block) * factors[:, None]
    return product


def entrywise(block: Block, function: Callable[[Array], Array]) -> Block:
    """Return a block after a function of each entry, which leaves zeros zero."""
    result: Block
    if is_sparse(block):
        data = function(block.data)
        result = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
    else:
        result = function(np.asarray(block))
    return result


def subtracted(block: Block, W: Array, H: Array) -> Block:
    """Return max(block - W H', 0) for W (F, K) and H (n, K): zero where the block is zero."""
    left: Block
    if is_sparse(block):
        owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        data = np.empty_like(block.data)
        for start in range(0, data.size, _PAIR_ENTRIES):
            part = slice(start, start + _PAIR_ENTRIES)
            product = np.einsum("ek,ek->e", W[block.indices[part]], H[owner[part]])
            data[part] = np.maximum(block.data[part] - product, 0)
        left = sp.csc_array((data, block.indices, block.indptr), shape=block.shape)
    else:
        left = np.maximum(np.asarray(block.T) - H @ W.T, 0).astype(block.dtype, copy=False).T
    return left


def cone_products(
    block: Block, labels: Array, Q: Array, *, sums: bool = True
) -> tuple[Array, Array]:
    """Multiply each sample with its own cone's direction, and back.

    Q (K, F) has one direction per row. Returns h (n,) with h_n = <v_n, q_label(n)> and S (K, F)
    with s_k = sum of h_n v_n over the samples of cone k, both in float64; S is empty without
    `sums`. A sample labelled -1 is zero, and may as well belong to cone 0.
    """
    if Q.shape[1] != block.shape[0] or labels.max(initial=-1) >= Q.shape[0]:
        raise DataError(
            f"directions have shape {Q.shape} and labels reach {labels.max(initial=-1)}: "
            f"expected {block.shape[0]} features and one direction per label"
        )
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
        # Cone after cone, if otherwise directions and sums would not stay in the cache.
        large = Q.nbytes > _CACHED_BYTES
        order = np.argsort(cones, kind="stable") if large else np.arange(cones.size)
        kernels.cone_products_rows(np.ascontiguousarray(block.T), order, cones, Q, h, S)
    return h, S


def products(block: Block, X: Array) -> Array:
    """Return block' X (n, K): the product of every sample with every column of X (F, K)."""
    if kernels.AVAILABLE and is_sparse(block):
        X = np.ascontiguousarray(X)
        C = np.empty((block.shape[1], X.shape[1]), np.result_type(block.dtype, X.dtype))
        kernels.sparse_products(block.data, block.indices, block.indptr, X, C)
    else:
        C = block.T @ X
    return C


def weighted_sums(block: Block, Y: Array) -> Array:
    """Return block Y (F, K): sums of samples, weighted by the columns of Y (n, K)."""
    if kernels.AVAILABLE and is_sparse(block):
        Y = np.ascontiguousarray(Y)
        S = np.zeros((block.shape[0], Y.shape[1]), np.result_type(block.dtype, Y.dtype))
        kernels.sparse_sums(block.data, block.indices, block.indptr, Y, S)
    else:
        S = block @ Y
    return S


def feature_gram(block: Block, weights: Array | None = None) -> Array:
    """Return the sum of weight_n v_n v_n' over the samples of a block, (F, F) in float64."""
    block = exact(block)
    if weights is not None:
        block = scaled(block, np.sqrt(weights))
    return dense(block @ block.T)


def cross_products(block: Block, other: Block) -> Array:
    """Return the products of all samples of two blocks, (n, m) in float64."""
    return dense(exact(block).T @ exact(other))


def sums_at(places: Array, values: Array, size: int) -> Array:
    """Return the sums (size,) of the values at each place, in float64 also if there are none.

    >>> sums_at(np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]), 3)
    array([1., 0., 5.])
    """
    return np.bincount(places, values, size).astype(np.float64, copy=False)


def entropies(block: Block) -> Array:
    """Return the sum of v log v - v over the entries of each sample, with 0 log 0 = 0."""
    if not is_sparse(block):
        entries: Any = block
        return np.asarray((xlogy(entries, entries) - entries).sum(axis=0))
    sums: Any = entrywise(block, lambda entries: xlogy(entries, entries) - entries)
    return np.asarray(sums.sum(axis=0)).ravel()


def with_entries(block: Block, indices: Array, values: Array) -> Block:
    """Return a block in float64 with values added to some entries of each sample.

    `indices` and `values` (n, s) have a row for each sample; indices are distinct and ascending.
    """
    total: Block
    if is_sparse(block):
        indptr = np.arange(0, values.size + 1, values.shape[1])
        parts = (values.ravel(), indices.ravel(), indptr)
        total = exact(block) + sp.csc_array(parts, shape=block.shape)
    else:
        rows = np.array(block.T, dtype=np.float64)
        rows[np.arange(len(rows))[:, None], indices] += values
        total = rows.T
    return total


def residual_squared(block: Block, squared: Array, C: Array, G: Array, W: Array, H: Array) -> Array:
    """Return ||v_n - W h_n||^2 for each sample of a block, in float64.

    ||v||^2 - 2 <c, h> + h'Gh costs next to nothing given C = block' W, but is a difference of large
    numbers; where it would lose a third of the digits, v - W h itself is formed. `squared` holds
    the ||v||^2.
    """
    residual: Array = squared - 2.0 * np.einsum("nk,nk->n", C, H) + np.einsum("nk,nk->n", H @ G, H)
    doubtful = np.flatnonzero(residual < _DOUBTFUL_RATIO * squared)
    for part in np.array_split(doubtful, 1 + doubtful.size // _DOUBTFUL_SAMPLES):
        columns = block[:, part]
        samples: Any = columns.toarray() if is_sparse(columns) else columns
        difference = samples.T - H[part] @ W.T
        residual[part] = np.einsum("nf,nf->n", difference, difference)
    nonnegative: Array = np.maximum(residual, 0.0)
    return nonnegative

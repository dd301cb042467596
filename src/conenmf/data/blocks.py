"""What can be computed from one block of samples, however it is stored.

A block is a few columns of V, (F, n): an ndarray or a compressed sparse array. Where the two need
different code, or where a compiled kernel helps, it is here; sums are in float64.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .. import kernels
from ..errors import ShapeError

__all__ = [
    "Array",
    "Block",
    "canonical_rows",
    "compute_dtype",
    "cone_products",
    "cross_products",
    "dense",
    "exact",
    "feature_gram",
    "norms",
    "products",
    "residual_squared",
    "scaled",
    "sparse_block",
    "weighted_sums",
]

Array: TypeAlias = npt.NDArray[Any]
Block: TypeAlias = Any
"""A few columns of V, (F, n): an ndarray or a sparse array; it has ``.T``, ``@``, ``astype``."""

_DOUBTFUL = 1e-5  # what is left of ||v||^2 when that difference is no longer trusted
_CACHED_BYTES = 1 << 20
_DOUBTFUL_AT_A_TIME = 256


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 stays (and float16 becomes) float32, everything else is computed in float64."""
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
    """A block of samples (F, n) from the parts of their compressed rows.

    Indices are 32 bits wide where they fit: a kernel compiled for another width may add in another
    order, and the bits must not depend on how a file or an array keeps its indices.
    """
    data = data.astype(dtype, copy=False)
    index_dtype = sp.get_index_dtype(maxval=max(F, data.size))
    indices = indices.astype(index_dtype, copy=False)
    indptr = indptr.astype(index_dtype, copy=False)
    if clip:
        data = np.maximum(data, 0)
    return sp.csc_array((data, indices, indptr), shape=(F, indptr.size - 1), copy=False)


def exact(block: Block) -> Block:
    """Return a block in float64: itself if it is so already."""
    return block.astype(np.float64, copy=False)


def dense(block: Block) -> Array:
    """Return a block as an ndarray in float64 and C order: sums do not depend on the storage."""
    array = block.toarray() if sp.issparse(block) else block
    return np.ascontiguousarray(array, dtype=np.float64)


def norms(squared: Array) -> Array:
    """Return ||v|| for each ||v||^2, and 1 for a zero sample, so that one can divide by them."""
    return np.sqrt(np.where(squared > 0, squared, 1.0))


def scaled(block: Block, factors: Array) -> Block:
    """Return a block with each sample multiplied by its factor."""
    if not sp.issparse(block):
        return block * factors
    data = block.data * np.repeat(factors, np.diff(block.indptr))
    return sp.csc_array((data, block.indices, block.indptr), shape=block.shape)


def cone_products(
    block: Block, labels: Array, Q: Array, *, sums: bool = True
) -> tuple[Array, Array]:
    """Multiply each sample with its own cone's direction, and back.

    Q (K, F) has one direction per row. Returns h (n,) with h_n = <v_n, q_label(n)> and S (K, F)
    with s_k = sum of h_n v_n over the samples of cone k, both in float64; S is empty without
    `sums`. A sample labelled -1 is zero, and may as well belong to cone 0.
    """
    if Q.shape[1] != block.shape[0] or labels.max(initial=-1) >= Q.shape[0]:
        raise ShapeError(
            f"directions have shape {Q.shape} and labels reach {labels.max(initial=-1)}: "
            f"expected {block.shape[0]} features and one direction per label"
        )
    Q = np.ascontiguousarray(Q)
    cones = np.maximum(labels, 0).astype(np.uintp)
    wanted = Q if sums else Q[:0]
    if not kernels.AVAILABLE:
        whole = exact(block)
        h = np.take_along_axis(whole.T @ Q.T, cones[:, None], axis=1)[:, 0]
        coefficients = np.zeros((cones.size, wanted.shape[0]))
        if sums:
            np.put_along_axis(coefficients, cones[:, None], h[:, None], axis=1)
        return h, (whole @ coefficients).T
    h = np.zeros(cones.size)
    if not sp.issparse(block) and block.strides[0] != block.itemsize:
        S = np.zeros(wanted.T.shape)
        kernels.cone_products_columns(block, cones, np.ascontiguousarray(Q.T), h, S)
        return h, S.T
    S = np.zeros(wanted.shape)
    if sp.issparse(block):
        kernels.cone_products_sparse(block.data, block.indices, block.indptr, cones, Q, h, S)
    else:
        # Cone after cone, if otherwise directions and sums would not stay in the cache.
        large = Q.nbytes > _CACHED_BYTES
        order = np.argsort(cones, kind="stable") if large else np.arange(cones.size)
        kernels.cone_products_rows(np.ascontiguousarray(block.T), order, cones, Q, h, S)
    return h, S


def products(block: Block, X: Array) -> Array:
    """Return block' X (n, K): the product of every sample with every column of X (F, K)."""
    if not (kernels.AVAILABLE and sp.issparse(block)):
        dense: Array = block.T @ X
        return dense
    X = np.ascontiguousarray(X)
    C = np.zeros((block.shape[1], X.shape[1]), np.result_type(block.dtype, X.dtype))
    kernels.sparse_products(block.data, block.indices, block.indptr, X, C)
    return C


def weighted_sums(block: Block, Y: Array) -> Array:
    """Return block Y (F, K): sums of samples, weighted by the columns of Y (n, K)."""
    if not (kernels.AVAILABLE and sp.issparse(block)):
        dense: Array = block @ Y
        return dense
    Y = np.ascontiguousarray(Y)
    S = np.zeros((block.shape[0], Y.shape[1]), np.result_type(block.dtype, Y.dtype))
    kernels.sparse_sums(block.data, block.indices, block.indptr, Y, S)
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


def residual_squared(block: Block, squared: Array, C: Array, G: Array, W: Array, H: Array) -> Array:
    """||v_n - W h_n||^2 for each sample of a block, in float64.

    ||v||^2 - 2 <c, h> + h'Gh costs next to nothing once C = block' W is known, but is a difference
    of large numbers; where it would lose a third of the digits, the sample's difference is formed
    after all. `squared` holds the ||v||^2.
    """
    rest: Array = squared - 2.0 * np.einsum("nk,nk->n", C, H) + np.einsum("nk,nk->n", H @ G, H)
    doubtful = np.flatnonzero(rest < _DOUBTFUL * squared)
    for part in np.array_split(doubtful, 1 + doubtful.size // _DOUBTFUL_AT_A_TIME):
        columns = block[:, part]
        dense = columns.toarray() if sp.issparse(columns) else columns
        difference = dense.T - H[part] @ W.T
        rest[part] = np.einsum("nf,nf->n", difference, difference)
    nonnegative: Array = np.maximum(rest, 0.0)
    return nonnegative

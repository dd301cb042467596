"""What can be computed from one block of samples, however it is stored.

A block is a few columns of V, (F, n): an ndarray or a compressed sparse array. Where the two need
different code, or where a compiled kernel helps, it is here; sums are in float64.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from . import kernels
from .errors import ShapeError

__all__ = [
    "Array",
    "Block",
    "cone_products",
    "cross_products",
    "feature_gram",
    "residual_squared",
]

Array: TypeAlias = npt.NDArray[Any]
Block: TypeAlias = Any
"""A few columns of V, (F, n): an ndarray or a sparse array; it has ``.T``, ``@``, ``astype``."""

_DOUBTFUL_AT_A_TIME = 256


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
        exact = block.astype(np.float64, copy=False)
        h = np.take_along_axis(exact.T @ Q.T, cones[:, None], axis=1)[:, 0]
        coefficients = np.zeros((cones.size, wanted.shape[0]))
        if sums:
            np.put_along_axis(coefficients, cones[:, None], h[:, None], axis=1)
        return h, (exact @ coefficients).T
    h = np.zeros(cones.size)
    if not sp.issparse(block) and block.strides[0] != block.itemsize:
        S = np.zeros_like(wanted.T, order="C")
        kernels.cone_products_columns(block, cones, np.ascontiguousarray(Q.T), h, S)
        return h, S.T
    S = np.zeros_like(wanted, order="C")
    if sp.issparse(block):
        kernels.cone_products_sparse(block.data, block.indices, block.indptr, cones, Q, h, S)
    else:
        kernels.cone_products_rows(np.ascontiguousarray(block.T), cones, Q, h, S)
    return h, S


def feature_gram(block: Block, weights: Array | None = None) -> Array:
    """Return the sum of weight_n v_n v_n' over the samples of a block, (F, F) in float64."""
    scaled = block.astype(np.float64, copy=False)
    if weights is not None:
        size = np.sqrt(weights)
        scaled = scaled * (size if not sp.issparse(block) else size[None, :])
    product = scaled @ scaled.T
    gram: Array = product.toarray() if sp.issparse(product) else product
    return gram


def cross_products(block: Block, other: Block) -> Array:
    """Return the products of all samples of two blocks, (n, m) in float64."""
    product = block.astype(np.float64, copy=False).T @ other.astype(np.float64, copy=False)
    products: Array = product.toarray() if sp.issparse(product) else product
    return products


def residual_squared(block: Block, C: Array, G: Array, W: Array, H: Array) -> Array:
    """||v_n - W h_n||^2 for each sample of a block, in float64.

    Dense blocks are subtracted entry by entry, which is exact to rounding. For sparse blocks
    ||v||^2 - 2 <c, h> + h'Gh keeps the cost at the number of nonzeros, with C = block' W; where
    that would lose more than half of the digits, the sample's difference is formed after all.
    """
    if not sp.issparse(block):
        difference = block.T - H @ W.T
        exact: Array = np.einsum("nf,nf->n", difference, difference)
        return exact
    norms = np.asarray(block.multiply(block).sum(axis=0)).ravel()
    squared: Array = norms - 2.0 * np.einsum("nk,nk->n", C, H) + np.einsum("nk,nk->n", H @ G, H)
    doubtful = np.flatnonzero(squared < 1e-7 * norms)
    for part in np.array_split(doubtful, 1 + doubtful.size // _DOUBTFUL_AT_A_TIME):
        difference = block[:, part].toarray().T - H[part] @ W.T
        squared[part] = np.einsum("nf,nf->n", difference, difference)
    nonnegative: Array = np.maximum(squared, 0.0)
    return nonnegative

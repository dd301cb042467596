"""What one pass over V, or one over arrays beside it, yields for its singular values.

Products with VV', Gram matrices, and the triangle of a tall matrix that lives beside the samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array, Block, cross_products, exact, products, weighted_sums
from ..data.blocks import feature_gram as block_gram
from ..data.matrix import Aligned, DataMatrix

__all__ = [
    "combine",
    "gram_beside",
    "gram_of_features",
    "gram_of_samples",
    "image_of",
    "only_triangle",
    "product_beside",
    "project",
    "random_start",
    "sample_scale",
    "stack",
]

_GATHERED_SAMPLES = 256  # whose products with all others are formed at a time


def image_of(V: DataMatrix, aligned: tuple[Aligned, ...], X: Array) -> Array:
    """VV'X, or the same for samples of unit norm; one pass."""
    return np.asarray(V.sweep(_apply, *aligned, X=X)[0])


def project(block: Block, *, X: Array) -> tuple[Array, Array]:
    """V'X, and the triangle of its QR decomposition, which has the same singular values."""
    B = products(exact(block), X)
    return B, _triangle(B)


def only_triangle(index: range, B: Array) -> tuple[Array]:
    """Step of a map: the triangle of the QR decomposition of what is beside the samples."""
    return (_triangle(B.astype(np.float64)),)


def stack(a: Array, b: Array) -> Array:
    """Reduce: the triangle of two."""
    return _triangle(np.vstack([a, b]))


def _triangle(B: Array) -> Array:
    n_zero_rows = max(B.shape[1] - B.shape[0], 0)  # which make it square
    triangle: Any = np.linalg.qr(np.pad(B, ((0, n_zero_rows), (0, 0))), mode="r")
    return np.asarray(triangle)


def product_beside(index: range, B: Array, *, right: Array) -> tuple[Array, None]:
    """Step of a map: what is beside the samples times a small matrix."""
    return B @ right, None


def _inverses(squared: Array) -> Array:
    """1 / ||v||^2, by which samples of unit norm are weighted; 0 for zero samples."""
    return np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)


def _gram(block: Block, squared: Array | None = None) -> tuple[Array]:
    return (block_gram(block, None if squared is None else _inverses(squared)),)


def _cross(block: Block, *, other: Block) -> tuple[Array, None]:
    return cross_products(block, other), None


def gram_beside(index: range, B: Array) -> tuple[Array]:
    """Step of a map: the Gram matrix of what is beside the samples."""
    return (B.T @ B,)


def combine(block: Block, coefficients: Array) -> tuple[Array]:
    """Step: sums of samples, weighted by what is beside them."""
    return (weighted_sums(exact(block), coefficients),)


def _apply(block: Block, squared: Array | None = None, *, X: Array) -> tuple[Array]:
    """VV'X, or the same for samples of unit norm."""
    block = exact(block)
    C = products(block, X)
    return (weighted_sums(block, C if squared is None else C * _inverses(squared)[:, None]),)


def gram_of_features(V: DataMatrix, normalize: bool) -> Array:
    """VV' (F, F), F small; one pass."""
    A: Array = V.sweep(_gram, *((V.norms_squared,) if normalize else ()))[0]
    return A


def gram_of_samples(V: DataMatrix, normalize: bool) -> Array:
    """V'V (N, N), N small, which has the same eigenvalues; a pass for each batch of samples."""
    N = V.shape[1]
    size = min(_GATHERED_SAMPLES, V.max_gather)
    batches = [np.arange(n, min(n + size, N)) for n in range(0, N, size)]
    A = np.hstack([np.asarray(V.sweep(_cross, other=V.columns(batch))[0]) for batch in batches])
    scale = sample_scale(V, normalize)
    scaled: Array = scale[:, None] * A * scale
    return scaled


def sample_scale(V: DataMatrix, normalize: bool) -> Array:
    """What each sample is multiplied by: 1, or the inverse of its norm."""
    if not normalize:
        return np.ones(V.shape[1])
    return np.sqrt(_inverses(np.asarray(V.norms_squared)))


def random_start(V: DataMatrix, size: int, aligned: tuple[Aligned, ...]) -> Array:
    """What VV' makes of random vectors; one pass."""
    start = np.random.default_rng(0).standard_normal((V.shape[0], size))
    return np.asarray(V.sweep(_apply, *aligned, X=start)[0])

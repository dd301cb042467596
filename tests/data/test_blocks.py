"""Products, residuals and weighted sums of a block, for every storage and both kernels."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf.data.blocks import (
    cone_products,
    products,
    residual_squared,
    weighted_sums,
)
from conenmf.solve.losses.poisson import margins


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cone_products(main_backend, both_twins, dtype, sample_matrix):
    block = main_backend(sample_matrix.astype(dtype)).columns(np.arange(40))
    labels = np.where(sample_matrix.any(axis=0), np.arange(40) % 3, -1)
    Q = np.random.default_rng(0).random((3, 12))
    h, S = cone_products(block, labels, Q)
    exact = sample_matrix.astype(dtype).astype(float)
    expected = np.einsum("fn,nf->n", exact, Q[labels])
    np.testing.assert_allclose(h, expected, rtol=1e-13)
    for k in range(3):
        np.testing.assert_allclose(
            S[k], exact[:, labels == k] @ expected[labels == k], rtol=1e-13, atol=1e-14
        )
    alone, nothing = cone_products(block, labels, Q, sums=False)
    np.testing.assert_allclose(alone, h, rtol=1e-14)
    assert nothing.shape == (0, 12)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_there_and_back(main_backend, both_twins, dtype, sample_matrix, rng, all_close):
    block = main_backend(sample_matrix.astype(dtype)).columns(np.arange(40))
    X, Y = rng.random((12, 3)), np.asfortranarray(rng.random((40, 3)))
    exact = sample_matrix.astype(dtype).astype(float)
    there_and_back = (products(block, X), weighted_sums(block, Y))
    all_close(there_and_back, (exact.T @ X, exact @ Y), rtol=1e-13, atol=1e-14)
    there, back = products(block, X.astype(dtype)), weighted_sums(block, Y.astype(dtype))
    assert there.dtype == back.dtype == dtype


@pytest.mark.seed(5)
@pytest.mark.parametrize("distance", [1.0, 1e-3, 1e-7, 0.0])
def test_residuals_are_exact_even_when_tiny(main_backend, distance, rng):
    W, H = rng.random((30, 4)), rng.random((600, 4))
    V = (H @ W.T).T * (1 + distance * rng.random((30, 600)))
    block = main_backend(V).columns(np.arange(600))
    expected = ((V - W @ H.T) ** 2).sum(axis=0)
    norms = (
        np.asarray(block.multiply(block).sum(axis=0)).ravel()
        if sp.issparse(block)
        else (block**2).sum(axis=0)
    )
    squared = residual_squared(block, norms, block.T @ W, W.T @ W, W, H)
    np.testing.assert_allclose(squared, expected, rtol=1e-6, atol=1e-28)


def test_samples_without_entries_may_come_first(main_backend, small_blocks, all_close):
    X = np.random.default_rng(0).random((5, 30))
    X[:, :20] = 0.0  # whole blocks
    V = main_backend(X)
    np.testing.assert_allclose(V.norms_squared, (X**2).sum(axis=0), rtol=1e-12)
    found = margins(V)
    all_close((found.samples, found.features), (X.sum(axis=0), X.sum(axis=1)), rtol=1e-12)

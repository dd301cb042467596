"""Gram matrices, residuals and squares of the known entries of a block, against einsum."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf.data.entries import (
    hide,
    observed_residual,
    observed_squares,
    pack,
    row_grams,
    unpack,
    weigh,
    weighted_grams,
)


@pytest.mark.parametrize("F", [1, 7, 21])
@pytest.mark.parametrize("N", [3, 1003])
def test_gram_matrices_of_known_entries(F, N, both_twins):
    rng = np.random.default_rng(F)
    mask, W, H = rng.random((N, F)) < 0.6, rng.random((F, 3)), rng.random((N, 3))
    block = rng.random((F, N))
    grams = unpack(row_grams(block, mask, pack(W)), 3)
    np.testing.assert_allclose(grams, np.einsum("nf,fj,fk->njk", mask, W, W), atol=1e-12)
    sums = unpack(weighted_grams(block, mask, pack(H)), 3)
    np.testing.assert_allclose(sums, np.einsum("nf,nj,nk->fjk", mask, H, H), atol=1e-10)
    weights = mask * rng.random((N, F))
    grams = unpack(row_grams(block, weights, pack(W)), 3)
    np.testing.assert_allclose(grams, np.einsum("nf,fj,fk->njk", weights, W, W), atol=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sp.csc_array])
def test_residuals_and_squares_of_known_entries(make, both_twins, rng):
    X = np.where(rng.random((6, 40)) < 0.5, rng.random((6, 40)), 0)
    W, H, mask = rng.random((6, 2)), rng.random((40, 2)), rng.random((40, 6)) < 0.5
    for weights in (mask, mask * rng.random((40, 6))):
        block = hide(make(X), weights)
        left, squares = observed_residual(block, weights, W, H)
        expected = weights.T * (X - W @ H.T)
        np.testing.assert_allclose(np.asarray(left), expected, atol=1e-14)
        np.testing.assert_allclose(squares, (weights.T * (X - W @ H.T) ** 2).sum(axis=0))
        entries = weigh(block, weights)
        entries = entries.toarray() if sp.issparse(entries) else entries
        np.testing.assert_allclose(entries, weights.T * X)
        np.testing.assert_allclose(observed_squares(block, weights), (weights.T * X**2).sum(axis=0))

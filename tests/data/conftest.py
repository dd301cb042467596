"""What every matrix must do: one check for all storages and views."""

import functools

import numpy as np
import pytest
from threadpoolctl import threadpool_limits


def products(block, weights, *, W):
    C = block.T @ W
    return C, (block @ (C * weights[:, None]), float(C.sum()))


@pytest.fixture
def several_blas_threads():
    """Three threads of BLAS, however many cores and workers there are."""
    with threadpool_limits(3, user_api="blas"):
        yield


@pytest.fixture
def holds():
    """Check that a matrix has the sweeps, columns and norms of an array (F, N)."""

    def check(V, expected, rtol=1e-12):
        assert V.shape == expected.shape
        F, N = expected.shape
        W, weights = np.random.default_rng(0).random((F, 3)), np.arange(float(N))
        by_hand = expected.T @ W
        C, (sums, total) = V.sweep(products, weights, W=W)
        close = functools.partial(np.testing.assert_allclose, rtol=rtol, atol=1e-14)
        close(C, by_hand)
        close(sums, expected @ (weights[:, None] * by_hand))
        close(total, by_hand.sum())
        close(V.norms_squared, (expected**2).sum(axis=0))
        wanted = np.array([N - 10, 0, 3, 3, N // 2])
        close(V.columns(wanted) @ np.eye(5), expected[:, wanted], rtol=rtol / 100, atol=1e-16)

    return check

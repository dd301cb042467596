"""The number of components from ratios of singular values (Theorem 9)."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conenmf import from_columns, make_cones
from conenmf.cones.counting import estimate_rank


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [0, 4])
@pytest.mark.parametrize("normalize", [False, True])
def test_theorem_9_finds_the_number_of_cones(seed, normalize):
    check_estimate(from_columns, seed, normalize)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("seed", "normalize"), [(0, False), (4, True)])
def test_theorem_9_on_every_storage(main_backend, seed, normalize):
    check_estimate(main_backend, seed, normalize)


def check_estimate(make, seed, normalize):
    K = 3 + seed
    model = make_cones(60, K, 0.15, n_samples=300, rng=np.random.default_rng(seed))
    estimate = estimate_rank(make(model.V), k_max=20, normalize=normalize)
    assert estimate.K == K
    assert estimate.margin > 1.2
    assert estimate.singular_values.shape == (21,)
    full = np.linalg.svd(
        model.V / np.linalg.norm(model.V, axis=0) if normalize else model.V, compute_uv=False
    )
    np.testing.assert_allclose(estimate.ratios, full[:20] / full[1:21], rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 9), (3, 3)])
def test_tiny_matrices(shape):
    assert 1 <= estimate_rank(from_columns(np.random.default_rng(0).random(shape))).K <= min(shape)


@pytest.mark.parametrize("K", [1, 3])
def test_exact_low_rank(K, rng):
    V = from_columns(rng.random((40, K)) @ rng.random((K, 50)))
    assert estimate_rank(V, k_min=1, k_max=10).K == K


@settings(max_examples=60)
@given(st.integers(0, 10**7).map(np.random.default_rng))
def test_rank_k_and_noise(rng):
    K, most = int(rng.integers(2, 6)), 8
    L = rng.random((30, K)) ** 3 @ rng.random((K, 50)) ** 3
    E = 10 ** rng.uniform(-3, 0) * rng.standard_normal(L.shape)
    values, s, eta = (np.linalg.svd(A, compute_uv=False) for A in (L + E, L, E))
    before = [
        (s[k - 1] + eta[0]) / (s[k] - eta[0]) if s[k] > eta[0] else np.inf for k in range(2, K)
    ]
    after = [eta[k - K - 1] / eta[k + K] for k in range(K + 1, most + 1)]
    assume((s[K - 1] - eta[0]) / eta[0] > max([0.0, *before, *after]))
    ratios = values[:-1] / values[1:]
    assert 2 + int(np.argmax(ratios[1:most])) == K


def test_there_is_no_ratio_to_a_singular_value_that_does_not_exist():
    V = make_cones(6, 2, 0.1, n_samples=40, rng=np.random.default_rng(0)).V
    estimate = estimate_rank(from_columns(V), k_max=6)
    assert (estimate.ratios[-1], estimate.K) == (1, 2)


def test_the_margin_is_the_largest_ratio_over_the_second_in_the_range():
    V = from_columns(np.diag([1000.0, 90.0, 80.0, 8.0, 2.0, 1.0]))
    estimate = estimate_rank(V, 2, 4)  # the ratios are 90 / 80, 10 and 4
    assert (estimate.K, estimate.margin) == (3, pytest.approx(10 / 4))

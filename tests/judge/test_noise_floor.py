import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import kl_div

from conenmf import from_columns, from_rows
from conenmf.judge.noise_floor import noise_floor


def known_rates(rng, K=4, n_samples=150, n_features=80, mean=100):
    return rng.dirichlet(np.full(n_features, 0.2), K).T, rng.gamma(0.7, mean, (K, n_samples))


def test_without_refitting_it_is_the_divergence_of_draws_from_their_rates():
    rng = np.random.default_rng(0)
    W, H = known_rates(rng)
    V = from_columns(sp.csc_array(rng.poisson(W @ H)))
    floor = noise_floor(V, W, H, refit=False, n_draws=5)
    mean = np.mean([kl_div(rng.poisson(W @ H), W @ H).sum() for _ in range(20)])
    assert not floor.refitted
    assert floor.value == pytest.approx(mean, abs=4 * floor.spread)
    assert 0 < floor.spread < 0.05 * mean


def test_refits_leave_what_a_fit_to_counts_at_known_rates_leaves():
    """About half for each parameter less than the draws have from their true rates."""
    rng = np.random.default_rng(1)
    W, H = known_rates(rng)
    V = from_columns(rng.poisson(W @ H).astype(float))
    quick, floor = noise_floor(V, W, H, refit=False), noise_floor(V, W, H)
    assert floor.refitted
    n_parameters = W.size + H.size - 4**2
    assert quick.value - floor.value == pytest.approx(n_parameters / 2, rel=0.5)


def test_rates_so_low_that_nothing_is_drawn_leave_nothing():
    V = from_columns([[1e-12, 0.0], [0.0, 2e-12]])
    W, H = [[1e-12], [2e-12]], [[1.0, 1.0]]
    assert noise_floor(V, W, H) == (0.0, 0.0, True)


def test_draws_depend_on_the_generator_alone(main_backend, small_blocks):
    rng = np.random.default_rng(2)
    W, H = known_rates(rng, 2, 40, 15)
    X = rng.poisson(W @ H).T.astype(float)
    expected = noise_floor(from_rows(X), W, H, refit=False)
    found = noise_floor(main_backend(X.T), W, H, refit=False)
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-10)
    other = noise_floor(from_rows(X), W, H, refit=False, rng=np.random.default_rng(9))
    assert other.value != expected.value

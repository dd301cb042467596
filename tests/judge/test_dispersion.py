"""Dispersion of counts, the number of components of counts, and pruned activities."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import nbinom

from conenmf import from_columns, stability
from conenmf.data.resample import balance_samples
from conenmf.judge.dispersion import (
    _influence,
    _refitted,
    dispersion,
    edge_of,
    likelihoods,
    pruned,
    quasi_divergence,
)
from conenmf.judge.matching import match_components
from conenmf.judge.stability import stability_over


def rates_of(seed=0, F=40, N=120, K=3):
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.full(F, 0.3), K).T
    return W @ rng.gamma(0.6, 2000.0, (K, N)), rng, W


def test_the_dispersion_of_counts_is_found():
    rates, rng, _ = rates_of()
    assert dispersion(from_columns(rng.poisson(rates).astype(float)), 3, rng) == 0
    for phi in (0.02, 0.2):
        X = rng.poisson(rates * rng.gamma(1 / phi, phi, rates.shape)).astype(float)
        assert dispersion(from_columns(X), 3, rng) == pytest.approx(phi, rel=0.15)
        # what too few components leave looks like noise; too many follow it
        assert dispersion(from_columns(X), 2, rng) > 1.5 * phi
        assert dispersion(from_columns(X), 6, rng) == pytest.approx(phi, rel=0.25)


@pytest.fixture(scope="module")
def dispersed_counts():
    """Counts of dispersion 0.1, and what is found in memory."""
    rates, rng, _ = rates_of(F=30, N=40)
    X = rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float)
    return X, dispersion(from_columns(X), 3, np.random.default_rng(0))


def test_the_dispersion_is_the_same_in_every_storage(main_backend, small_blocks, dispersed_counts):
    X, expected = dispersed_counts
    found = dispersion(main_backend(X), 3, np.random.default_rng(0))
    assert found == pytest.approx(expected, rel=0.02)  # fits stop at 1e-4


def test_entries_that_are_not_counts_have_none():
    rates, rng, _ = rates_of(N=30)
    assert dispersion(from_columns(rates), 3, rng) == 0


@pytest.mark.seed(1)
def test_weights_follow_how_closely_counts_are_known(main_backend, small_blocks, rng):
    X = rng.poisson(np.outer(rng.random(30), [0.02, 1.0, 10.0, 100.0, 1000.0]) * 9).astype(float)
    X[:, 0] = np.minimum(X[:, 0], 1)  # counts of one are known as closely as Poisson counts
    V = main_backend(X)
    assert balance_samples(V, 0.0) is V
    before = np.ones(5)
    for phi in (0.001, 0.01, 0.1):
        scaled = np.array(balance_samples(V, phi).columns(np.arange(5)).sum(axis=0)).ravel()
        weights = scaled / np.maximum(X.sum(axis=0), 1)
        assert weights[0] == pytest.approx(float(X[:, 0].any()))
        assert (np.diff(weights[1:]) < 0).all()
        assert (weights[1:] < before[1:]).all()
        before = weights


def test_a_few_samples_with_very_many_counts_do_not_decide():
    # ten samples of one component vary by a fifth, with a thousand times the counts of the others
    rates, rng, W = rates_of(seed=2, K=4)
    rates[:, :10] = 2e6 * W[:, :1]
    V = from_columns(rng.poisson(rates * rng.gamma(25, 0.04, rates.shape)).astype(float))
    options = {"loss": "poisson", "resample": "start", "max_iter": 60}
    found = stability(V, 4, 3, **options)
    plain = stability(V, 4, 3, dispersion=0.0, **options)
    cosines = [match_components(W, one.W)[1].min() for one in (found, plain)]
    assert cosines[0] > 0.97
    assert cosines[1] < 0.9


def test_the_divergence_is_that_of_negative_binomial_counts(main_backend, small_blocks):
    rates, rng, W = rates_of(N=20)
    X = rng.poisson(rates).astype(float)
    H = np.linalg.lstsq(W, rates)[0]
    for phi in (0.01, 1.0):
        size = 1 / phi
        likelihoods = [
            nbinom.logpmf(X, size, size / (size + np.maximum(x, 1e-300))).sum() for x in (X, rates)
        ]
        found = quasi_divergence(main_backend(X), W, H, phi)
        assert found == pytest.approx(likelihoods[0] - likelihoods[1], rel=1e-6)
    positive = np.where(X > 0, X, 1)
    poisson = (X * np.log(positive / rates) - X + rates).sum()
    assert quasi_divergence(main_backend(X), W, H, 0.0) == pytest.approx(poisson, rel=1e-9)
    assert quasi_divergence(main_backend(X), W, H, 1e-8) == pytest.approx(poisson, rel=1e-4)


@pytest.mark.seed(5)
def test_one_component_explains_no_more_of_noise(rng):
    largest = [np.linalg.norm(rng.standard_normal((40, 90)), 2) ** 2 / 2 for _ in range(20)]
    assert np.mean(largest) == pytest.approx(edge_of((40, 90)), rel=0.1)


@pytest.mark.parametrize("phi", [pytest.param(0.0, marks=pytest.mark.nightly), 0.05])
def test_the_number_of_components_is_found_without_candidates(phi):
    rates, rng, W = rates_of(seed=4, F=20, N=50)
    if phi:
        rates = rates * rng.gamma(1 / phi, phi, rates.shape)
    V = from_columns(rng.poisson(rates).astype(float))
    found = stability_over(V, n_runs=3, loss="poisson", resample="start", max_iter=20)
    assert found.K == 3
    assert {2, 3, 4, 5} <= set(found.ks.tolist())
    assert "noise" in found.reason
    assert (match_components(W, found.found[3].W)[1] > 0.97).all()


def test_other_data_have_candidates_up_to_the_edge_of_noise():
    X = np.kron(np.eye(3), np.ones((6, 15))) + 0.01 * np.random.default_rng(0).random((18, 45))
    found = stability_over(from_columns(X), n_runs=2, max_iter=10)
    assert found.ks.tolist() == [2, 3, 4, 5]
    assert found.K == 3


def test_the_number_is_also_found_if_entries_are_missing():
    X = np.kron(np.eye(3), np.ones((6, 15))) + 0.01 * np.random.default_rng(0).random((18, 45))
    V = from_columns(X, mask=np.random.default_rng(1).random(X.shape) < 0.95)
    found = stability_over(V, n_runs=2, max_iter=10)
    assert found.K == 3
    assert {2, 3} <= set(found.ks.tolist())


def test_components_of_few_samples_are_counted_as_fitted(rng):
    rates = rng.dirichlet(np.ones(300), 3).T @ rng.gamma(2.0, 8000.0, (3, 8))
    X = rng.poisson(rates * rng.gamma(5, 0.2, rates.shape)).astype(float)
    assert dispersion(from_columns(X), 3, rng) == pytest.approx(0.2, rel=0.2)


def test_pruning_finds_components_of_which_each_sample_has_few():
    """With exact zeros in H, dropping what noise explains comes closer to the truth."""
    rng = np.random.default_rng(1)
    W = rng.dirichlet(np.full(24, 1.0), 6).T  # flat, so that they can take parts of each other
    H = rng.gamma(1.0, 1500.0, (6, 90)) * (rng.random((6, 90)) < 0.3)
    H[rng.integers(6, size=90), np.arange(90)] += 300
    V = from_columns(rng.poisson(W @ H).astype(float))
    options = {"loss": "poisson", "resample": "counts"}
    plain = stability(V, 6, 6, **options)
    found = stability(V, 6, 6, prune=True, **options)
    before, after = (match_components(W, one.W)[1] for one in (plain, found))
    assert after.mean() > before.mean()
    assert after.min() > 0.99
    np.testing.assert_array_equal(found.spectra, plain.spectra)
    assert "activities that noise explains were dropped" in str(found)
    assert "dropped" not in str(plain)
    np.testing.assert_allclose(found.W.sum(axis=0), 1)
    assert (found.lower <= found.W).all()
    assert (found.W <= found.upper).all()


def test_activities_without_which_counts_are_unlikely_stay(rng):
    """Even one whose standard error is large: it has one feature, and its counts vary strongly."""
    W = np.column_stack([np.r_[1, np.zeros(29)], *rng.dirichlet(np.ones(30), 2)])
    W = 0.98 * W + 0.02 / 30
    H = rng.gamma(2.0, 300.0, (3, 200)) * (rng.random((3, 200)) < 0.6)
    H[1] += 50
    rates = W @ H
    counts = rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float)
    found = pruned(from_columns(counts), counts, W, 0.1)  # one bar: scores of 1 / sqrt(0.1) at most
    assert (match_components(W, found)[1] > 0.99).all()


def test_a_refit_keeps_zeros_and_is_the_most_likely(rng):
    rates, _, W = rates_of(F=12, N=5)
    counts = rng.poisson(rates).astype(float)
    zero = np.eye(len(W.T), 5, dtype=bool)
    H = np.where(zero, 0.0, np.linalg.lstsq(W, rates, rcond=None)[0])
    H, own = _refitted(counts, W, H, 0.0)
    assert (H[zero] == 0).all()
    expected = [
        minimize(
            lambda h, n=n: quasi_divergence(from_columns(counts[:, [n]]), W, h[:, None], 0.0),
            H[:, n],
            bounds=[(0, 0) if one else (1e-9, None) for one in zero[:, n]],
        ).fun
        for n in range(5)
    ]
    np.testing.assert_allclose(own, expected, rtol=0.05)


def test_data_that_are_not_counts_are_not_pruned():
    X = np.random.default_rng(0).random((8, 20))
    options = {"loss": "poisson", "resample": "start", "max_iter": 20}
    plain, found = (stability(from_columns(X), 2, 2, prune=one, **options) for one in (False, True))
    np.testing.assert_array_equal(plain.W, found.W)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_component_that_noise_explains_keeps_one_activity(seed):
    """Without any, it would be lost, and with it the number of components."""
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.full(15, 2.0), 2).T
    counts = rng.poisson(W @ (rng.gamma(1.0, 300.0, (2, 6)) + 50)).astype(float)
    three = np.column_stack([W, rng.dirichlet(np.full(15, 2.0))])  # the third is in no sample
    found = pruned(from_columns(counts), counts, three, 0.0)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=0), 1)
    assert np.count_nonzero(found > 1e-6, axis=0).min() > 1


@pytest.mark.parametrize("phi", [0.0, 0.1])
def test_influence_is_that_of_weighted_regressions(phi, rng):
    W = rng.random((12, 3))
    H = 50 * rng.random((3, 7))
    H[0, 2] = 0.0  # no parameter of its sample
    gains, leverages = _influence(W, H, phi)
    expected = np.zeros(3)
    hats = np.zeros(12)
    for h, x in zip(H.T, (W @ H).T, strict=True):
        own = h > 0
        P = np.diag(1 / (x + phi * x**2))
        inverse = np.linalg.inv(W[:, own].T @ P @ W[:, own])
        expected[own] += h[own] ** 2 / np.diagonal(inverse)
        hats += np.diagonal(W[:, own] @ inverse @ W[:, own].T @ P) / 7
    np.testing.assert_allclose(gains, expected, rtol=1e-5)
    np.testing.assert_allclose(leverages, hats, rtol=1e-5)


@pytest.mark.parametrize("by_feature", [False, True])
def test_too_many_components_do_not_look_like_uneven_dispersion(by_feature):
    """Fits begin with many more components than there are, and descend to their number."""
    rates, rng, _ = rates_of(F=60, N=400, K=4)
    size = np.exp(rng.uniform(np.log(2), np.log(100), (60, 1))) if by_feature else 10
    X = rng.poisson(rates * rng.gamma(size, 1 / size, rates.shape)).astype(float)
    tried = []
    fits = likelihoods(from_columns(X), rng, None, np.inf, 11, tried.append)
    assert tried[0] == 14
    assert fits.is_uneven == by_feature
    if by_feature:
        assert len(fits.costs) == 1
    else:
        assert fits.best == 4
        assert sorted(fits.costs) == list(range(2, 15))


def test_what_many_components_explain_of_noise_is_not_uneven_dispersion():
    rates, rng, _ = rates_of(F=60, N=900, K=12)
    X = rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float)
    assert not likelihoods(from_columns(X), rng, np.array([14]), np.inf, 14).is_uneven


def test_numbers_that_are_given_are_the_only_ones():
    rates, rng, _ = rates_of(F=40, N=150)
    X = rng.poisson(rates).astype(float)
    fits = likelihoods(from_columns(X), rng, np.array([1, 3, 6]), np.inf, 5)
    assert (fits.best, sorted(fits.costs)) == (3, [1, 3, 6])
    fits = likelihoods(from_columns(X), rng, np.array([1, 3, 6]), np.inf, 1)
    assert fits.best == 3  # the search goes up, too

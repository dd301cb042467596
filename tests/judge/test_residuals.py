"""Uncertainties: weights, missing entries, Q and residuals in units of sigma."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, factorize, from_columns, from_rows, stability
from conenmf.errors import DataError, InputWarning, NotAvailableError
from conenmf.judge.matching import match_components
from conenmf.judge.residuals import residuals


def measurements(seed=0, N=150, F=12, K=3):
    """Data with noise of known sigma, sigma, and the true components."""
    rng = np.random.default_rng(seed)
    A, C = rng.gamma(1.0, 1.0, (N, K)), rng.dirichlet(np.full(F, 0.4), K)
    sigma = 0.02 + 0.1 * A @ C
    return A @ C + sigma * rng.standard_normal((N, F)), sigma, C.T


@pytest.fixture(scope="module")
def result():
    X, sigma, _ = measurements()
    return factorize(from_rows(X, sigma=sigma, negative="keep"), 3)


def test_sigma_gives_the_fit_of_its_weights(result):
    X, sigma, _ = measurements()
    by_weights = factorize(from_rows(X, weights=1 / sigma**2, negative="keep"), 3)
    assert "Q" not in by_weights.settings  # these may be other weights
    by_columns = factorize(from_columns(X.T, sigma=sigma.T, negative="keep"), 3)
    model = ConeNMF(3, negative="keep").fit(X, sigma=sigma)
    for W in (by_weights.W, by_columns.W, model.components_.T):
        np.testing.assert_array_equal(result.W, W)


def test_residuals_are_those_of_the_definition(result):
    X, sigma, _ = measurements()
    found = result.residuals()
    scaled = (X - (result.W @ result.H).T) / sigma
    np.testing.assert_allclose(found.scaled, scaled, atol=1e-9)
    assert found.Q == pytest.approx((scaled**2).sum())
    assert result.settings["Q"] == pytest.approx(found.Q)
    assert found.expected == X.size - 3 * sum(X.shape) == result.settings["Q_expected"]
    ratio = found.expected / X.size
    np.testing.assert_allclose(found.by_feature, (scaled**2).mean(axis=0) / ratio)
    np.testing.assert_allclose(found.by_sample, (scaled**2).mean(axis=1) / ratio)
    assert f"Q {found.Q:.6g}, {found.ratio:.4g} of the expected 1314" in result.summary()


@pytest.mark.parametrize("seed", range(5))
def test_the_right_model_has_the_expected_Q_and_a_smaller_one_has_not(seed):
    X, sigma, _ = measurements(seed)
    V = from_rows(X, sigma=sigma, negative="keep")
    assert 0.85 < factorize(V, 3).residuals().ratio < 1.15
    assert factorize(V, 2).residuals().ratio > 1.5


def test_the_summary_says_when_Q_is_far_from_its_expectation(result):
    X, sigma, _ = measurements()
    assert not any("sigma or K" in line for line in result.summary())
    for factor, advice in ((0.5, "seems too small"), (2.0, "seems too large")):
        result = factorize(from_rows(X, sigma=factor * sigma, negative="keep"), 3)
        assert any(line.endswith(f"; sigma or K {advice}") for line in result.summary())


def test_a_bad_feature_and_a_bad_sample_stand_out(result):
    X, sigma, _ = measurements()
    sigma[:, 4] /= 4
    X[20] += 8 * sigma[20] * np.where(np.arange(12) % 2, 1, -1)
    found = factorize(from_rows(X, sigma=sigma, negative="keep"), 3).residuals()
    assert (found.by_feature.argmax(), found.by_sample.argmax()) == (4, 20)


def test_a_number_marks_missing_entries():
    X, sigma, _ = measurements()
    X = np.maximum(X, 0)
    holes = np.random.default_rng(1).random(X.shape) < 0.1
    by_nan = ConeNMF(3, missing="nan").fit(np.where(holes, np.nan, X), sigma=sigma)
    marked, unknown = np.where(holes, -999, X), np.where(holes, -999, sigma)
    by_number = ConeNMF(3, missing=-999).fit(marked, sigma=unknown)
    np.testing.assert_array_equal(by_nan.components_, by_number.components_)
    marked[~holes & (X > 1)] = np.nan  # NaN is missing too
    both = from_rows(marked, missing=-999)
    assert both.observed.counts.sum() == (~holes & ~(X > 1)).sum()
    assert by_number.transform(np.where(holes, -999, X)).shape == (150, 3)
    found = by_number.result_.residuals()
    np.testing.assert_array_equal(np.isnan(found.scaled), holes)
    assert found.expected == (~holes).sum() - 3 * sum(X.shape)
    sparse = from_rows(sp.csr_array([[0.0, 7.0], [2.0, 3.0]]), missing=7.0)
    assert sparse.observed.counts.tolist() == [2, 1]


def test_samples_without_known_entries_have_no_parameters():
    X, sigma, _ = measurements()
    X[7] = np.nan
    with pytest.warns(InputWarning, match="nothing is observed of 1 sample"):
        V = from_rows(X, missing="nan", negative="keep")
    result = ConeNMF(3).fit(V, sigma=sigma).result_  # which does not warn of it again
    found = result.residuals()
    assert found.expected == result.settings["Q_expected"] == 149 * 12 - 3 * (149 + 12)
    assert np.isnan(found.by_sample).nonzero()[0].tolist() == [7]


def test_a_summary_has_the_quantiles_of_each_feature():
    X, sigma, _ = measurements()
    X[:, 2] = np.nan
    X[5:9, 3] = np.nan
    X[10, 3] -= 20 * sigma[10, 3]
    X[11, 3] += 20 * sigma[11, 3]
    with pytest.warns(InputWarning, match="nothing is observed of 1 feature"):
        V = from_rows(X, sigma=sigma, missing="nan", negative="keep")
    left = factorize(V, 3).residuals()
    found = left.summary()
    assert np.isnan(found.quantiles[:, 2]).all()
    own = left.scaled[~np.isnan(left.scaled[:, 3]), 3]
    np.testing.assert_allclose(found.quantiles[:, 3], np.quantile(own, (0.05, 0.5, 0.95)))
    assert (own < -3).any()
    assert (own > 3).any()
    assert found.far[3] == pytest.approx((np.abs(own) > 3).mean())


def test_an_entry_without_uncertainty_is_missing():
    X, sigma, _ = measurements()
    sigma[3, 5] = np.nan
    assert from_rows(np.abs(X), sigma=sigma).observed.counts.sum() == X.size - 1


@pytest.mark.parametrize("wrong", [0.0, -999.0])
def test_uncertainties_are_above_zero_where_entries_are_known(wrong, refuses):
    X, sigma, _ = measurements()
    sigma[3, 5] = wrong
    frame = pd.DataFrame(np.abs(X), columns=[f"s{n}" for n in range(12)])
    message = rf"sigma has {wrong:g} at .*3, s5: expected numbers above"
    refuses(DataError, message, lambda: ConeNMF(3).fit(frame, sigma=sigma))
    refuses(DataError, "sigma has shape", lambda: from_rows(np.abs(X), sigma=sigma[:, :5]))


def test_weights_that_grow_with_the_data_are_remarked_upon():
    X, sigma, _ = measurements()
    with pytest.warns(InputWarning, match="weights grow with the data: .* give them as sigma"):
        from_rows(np.abs(X), weights=sigma)
    from_rows(np.abs(X), weights=1 / sigma**2)  # a warning would be an error
    from_rows(np.abs(X), weights=np.random.default_rng(0).random(X.shape))


def test_Q_is_for_least_squares_only(rng, refuses):
    V = from_rows(rng.poisson(3.0, (30, 8)).astype(float))
    counts = factorize(V, 2, loss="poisson")
    refuses(NotAvailableError, "Q is for least squares", lambda: counts.residuals())
    plain = factorize(V, 2)
    assert residuals(plain.data, plain.W, plain.H).Q == pytest.approx(plain.objective)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_limits_hold_nine_in_ten_true_entries_beside_holes(seed):
    X, sigma, truth = measurements(seed)
    X[np.random.default_rng([seed]).random(X.shape) < 0.15] = np.nan
    found = stability(from_rows(X, sigma=sigma, missing="nan", negative="keep"), 3, 20)
    own = truth[:, np.argsort(match_components(truth, found.W)[0])]
    assert ((found.lower <= own) & (own <= found.upper)).mean() >= 0.9
    half = (found.upper - found.lower) / 2
    assert np.median(half[own > 1 / 12] / own[own > 1 / 12]) < 0.5  # and yet they say something


def test_the_bootstrap_takes_weights_and_holes(refuses):
    X, sigma, W = measurements(N=200)
    rng = np.random.default_rng(3)
    noisy = rng.random(X.shape) < 0.15  # entries that are wrong, and known to be
    X[noisy] += rng.normal(0.0, 3.0, noisy.sum())
    sigma[noisy] = 3.0
    X[rng.random(X.shape) < 0.05] = np.nan
    V = from_rows(X, sigma=sigma, missing="nan", negative="keep")
    found = stability(V, 3, 10, rng=np.random.default_rng(0))
    assert found.verdict == "stable"
    order, cosines = match_components(W, found.W)
    assert cosines.min() > 0.99
    truth = W[:, np.argsort(order)]
    assert ((found.lower <= truth) & (truth <= found.upper)).mean() >= 0.9
    assert (found.moves > 0).all()
    again = ConeNMF(3, missing="nan", negative="keep", random_state=np.random.default_rng(0))
    np.testing.assert_array_equal(again.stability(X, 10, sigma=sigma).W, found.W)
    blind = stability(from_rows(X, missing="nan", negative="keep"), 3, 10)
    assert match_components(W, blind.W)[1].min() < cosines.min()
    refuses(NotAvailableError, "complete data", lambda: stability(V, 3, 3, resample="counts"))

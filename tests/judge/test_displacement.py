"""Displacement: limits of entries for a rise of Q, beside a profile by brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from conenmf import factorize, from_rows
from conenmf.judge.displacement import _held_column, displacement


def measurements(seed, N=12, F=4, K=2):
    """Data with uncertainties and a hole."""
    rng = np.random.default_rng(seed)
    truth = rng.gamma(1.0, 1.0, (N, K)) @ rng.dirichlet(np.full(F, 0.6), K)
    sigma = 0.05 * (1 + truth) * rng.choice([1, 3], truth.shape)
    X = truth + sigma * rng.standard_normal(truth.shape)
    X[2, 1] = np.nan
    return X, sigma


def fit_of(seed):
    X, sigma = measurements(seed)
    V = from_rows(X, sigma=sigma, missing="nan", negative="keep")
    return X, sigma, factorize(V, 2, tol=1e-10, max_iter=3000)


def profile(X, sigma, fit, f, k, share):
    """The least Q with a share held, from many starts, by a general minimiser."""
    (F, K), N, ratio = fit.W.shape, len(X), share / (1 - share)
    weights = np.where(np.isnan(X), 0, 1 / sigma**2).T
    V, others = np.nan_to_num(X).T, np.arange(len(fit.W)) != f

    def value(z):
        W, H = z[: F * K].reshape(F, K) ** 2, z[F * K :].reshape(K, N) ** 2
        W[f, k] = ratio * W[others, k].sum()
        left = W @ H - V
        by_W, by_H = 2 * (weights * left) @ H.T, 2 * W.T @ (weights * left)
        by_W[others, k] += ratio * by_W[f, k]
        by_W[f, k] = 0
        return (weights * left**2).sum(), np.r_[by_W.ravel(), by_H.ravel()] * 2 * z

    rng, lowest = np.random.default_rng(0), np.inf
    for spread in (0.02, 0.1, 0.3, 0.3, 0.3, 0.3):
        z = np.sqrt(np.r_[fit.W.ravel(), fit.H.ravel()] + 1e-6)
        z *= 1 + spread * rng.standard_normal(z.size)
        how = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-13, "gtol": 1e-9}
        lowest = min(lowest, minimize(value, z, jac=True, method="L-BFGS-B", options=how).fun)
    return lowest


@pytest.mark.parametrize("seed", [0, 1])
def test_limits_are_where_the_profile_has_risen(seed):
    X, sigma, fit = fit_of(seed)
    found = displacement(fit.data, fit.W, fit.H, [4.0, 15.0])
    assert found.Q == pytest.approx(fit.settings["Q"], rel=1e-6)
    assert found.fall < 0.01
    checked = 0
    for i, f, k in np.ndindex(found.lower.shape):
        for limits in (found.lower, found.upper):
            share = limits[i, f, k]
            if 1e-3 < share < 0.99:  # at 0 and 1 the profile may be below the rise
                rise = profile(X, sigma, fit, f, k, share) - found.Q
                # a general minimiser may find a lower one, never a higher one that is right
                assert rise < 1.1 * found.rises[i], (f, k, share)
                checked += rise > 0.9 * found.rises[i]
    assert checked >= 20


def test_limits_hold_the_shares_and_grow_with_the_rise():
    _, _, fit = fit_of(0)
    found = displacement(fit.data, fit.W, fit.H, [15.0, 4.0, 1.0], features=[0, 2])
    assert found.rises.tolist() == [1, 4, 15]
    np.testing.assert_allclose(found.W.sum(axis=0), 1)
    W, lower, upper = (part[..., [0, 2], :] for part in (found.W, found.lower, found.upper))
    assert ((lower >= 0) & (lower <= W + 1e-12) & (W <= upper + 1e-12) & (upper <= 1)).all()
    assert (np.diff(lower, axis=0) <= 1e-12).all()
    assert (np.diff(upper, axis=0) >= -1e-12).all()
    assert np.isnan(found.lower[:, [1, 3]]).all()


def test_smaller_uncertainties_give_narrower_limits():
    X, sigma, fit = fit_of(1)
    wide = displacement(fit.data, fit.W, fit.H, [4.0], features=[0])
    V = from_rows(X, sigma=sigma / 4, missing="nan", negative="keep")
    narrow = displacement(V, fit.W, fit.H, [4.0], features=[0])
    ratio = (narrow.upper - narrow.lower)[0, 0] / (wide.upper - wide.lower)[0, 0]
    np.testing.assert_allclose(ratio, 0.25, atol=0.08)


def test_how_far_factors_were_from_an_optimum_is_said():
    X, sigma, fit = fit_of(0)
    V = from_rows(X, sigma=sigma, missing="nan", negative="keep")
    found = displacement(V, 1.1 * fit.W, fit.H, [4.0], features=[0])
    Q = np.nansum(((X - 1.1 * (fit.W @ fit.H).T) / sigma) ** 2)
    assert Q > 1.5 * found.Q
    assert found.fall == pytest.approx(Q - found.Q, rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 0.99])
def test_a_column_with_a_held_share_is_the_best_of_its_kind(share, rng):
    """With w_f = r sum z for the other entries z, it is least squares in z alone."""
    ratio = share / (1 - share)
    for _ in range(20):
        a, b = rng.lognormal(0.0, 3.0, 5), rng.normal(0.3, 1.0, 5)
        a[0] *= rng.choice([1.0, 1e-6])  # an entry of which the data say little
        rows = np.vstack([np.diag(np.sqrt(a[1:])), np.full(4, ratio * np.sqrt(a[0]))])
        z, _ = nnls(rows, np.r_[b[1:] / np.sqrt(a[1:]), b[0] / np.sqrt(a[0])])
        column = _held_column(a, b, 0, share)
        np.testing.assert_allclose(column, [ratio * z.sum(), *z], rtol=1e-6)


def test_a_share_of_one_leaves_one_entry():
    a, b = np.array([2.0, 4.0, 1.0]), np.array([3.0, 6.0, -1.0])
    assert _held_column(a, b, 1, 1.0).tolist() == [0.0, 1.5, 0.0]
    assert _held_column(a, b, 2, 1.0).tolist() == [0.0, 0.0, 0.0]


def test_the_share_of_the_only_feature_is_one():
    X = np.random.default_rng(0).random((8, 1))
    found = displacement(X, np.ones((1, 1)), X.T, [1.0, 4.0])
    assert (found.lower == 1).all()
    assert (found.upper == 1).all()


@pytest.mark.filterwarnings("ignore:nothing is observed of 1 feature")
def test_features_and_components_without_data_have_no_limits():
    X, sigma, fit = fit_of(0)
    X, sigma = (np.insert(array, 1, np.nan, axis=1) for array in (X, sigma))
    V = from_rows(X, sigma=np.where(np.isnan(sigma), 1, sigma), missing="nan", negative="keep")
    W = np.hstack([np.insert(fit.W, 1, 0.0, axis=0), np.ones((5, 1))])
    H = np.vstack([fit.H, np.zeros(X.shape[0])])
    found = displacement(V, W, H, [4.0], features=[0, 1])
    whole = displacement(*of_fit(0), [4.0], features=[0])
    assert np.isnan(found.lower[:, 1]).all()
    assert np.isnan(found.upper[..., 2]).all()
    for side in ("lower", "upper"):
        limits = getattr(found, side)[0, 0, :2], getattr(whole, side)[0, 0]
        np.testing.assert_allclose(*limits, atol=1e-6)


def of_fit(seed):
    X, sigma, fit = fit_of(seed)
    return from_rows(X, sigma=sigma, missing="nan", negative="keep"), fit.W, fit.H

"""Limits of components: coverage of the truth, and cases where no limits are given."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, nnls

from conenmf import from_columns, stability
from conenmf.judge.limits import LEVEL, entry_limits, moved_ranges, without_clipping
from conenmf.judge.limits import _Window as Window
from conenmf.judge.matching import match_components


@pytest.mark.parametrize("n", [2, 5, 20])
def test_limits_cover_what_they_are_made_to_cover(n):
    # entries of a fit differ from the truth as those of runs differ from the fit
    rng = np.random.default_rng(n)
    truth = np.full(20_000, 10.0)
    fit = rng.normal(truth)
    runs = rng.normal(fit, size=(n, truth.size))
    lower, upper = entry_limits(np.median(runs, axis=0), runs)
    covered = ((lower <= truth) & (truth <= upper)).mean()
    assert covered == pytest.approx(LEVEL, abs=0.015)
    # the quantiles of the runs themselves do not
    low, high = np.quantile(runs, (0.05, 0.95), axis=0)
    assert ((low <= truth) & (truth <= high)).mean() < 0.84


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 12), st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1).map(np.random.default_rng)
)
def test_limits_are_around_the_centre_and_scale_with_it(n, scale, rng):
    runs = rng.dirichlet(np.full(6, 0.3), n)
    centre = np.median(runs, axis=0)
    lower, upper = limits = entry_limits(centre, runs)
    assert ((lower >= 0) & (lower <= centre) & (centre <= upper)).all()
    scaled = entry_limits(scale * centre, scale * runs)
    np.testing.assert_allclose(scaled, scale * np.array(limits), rtol=1e-9, atol=1e-15 * scale)
    # runs that agree leave no doubt, and their order says nothing
    assert np.ptp(entry_limits(centre, np.tile(centre, (n, 1))), axis=0).max() <= 1e-15
    np.testing.assert_allclose(entry_limits(centre, runs[::-1]), (lower, upper), atol=1e-15)


def test_one_run_has_no_limits():
    assert np.isnan(entry_limits(np.ones(3), np.ones((1, 3)))).all()


def mixtures(seed, alpha, N=200, F=60, K=4, noise=0.05):
    """Samples of components without zeros, with normal noise; and the components of sum one."""
    rng = np.random.default_rng(seed)
    W = rng.random((F, K))
    X = W @ rng.dirichlet(np.full(K, alpha), N).T
    X += noise * np.sqrt(np.mean(X**2)) * rng.normal(size=X.shape)
    return np.maximum(X, 0), W / W.sum(axis=0)


def coverage(found, truth):
    """Of entries above 1 / F: the share within the limits, and within those of the runs alone."""
    F, both = len(truth), []
    order, _ = match_components(truth, found.W)
    W = found.W[:, order]
    runs = np.array([run[:, match_components(W, run)[0]] for run in found.spectra])
    bare = entry_limits(W, runs / runs.sum(axis=1, keepdims=True))
    for lower, upper in ((found.lower[:, order], found.upper[:, order]), bare):
        both.append(((lower <= truth) & (truth <= upper))[truth > 1 / F].mean())
    return both


@pytest.mark.parametrize(
    ("alpha", "N"),
    [
        (0.5, 200),
        pytest.param(0.2, 200, marks=pytest.mark.nightly),
        pytest.param(0.5, 1000, marks=pytest.mark.nightly),
    ],
)
def test_limits_cover_the_truth_where_the_bootstrap_does_not(alpha, N):
    # the components have no zeros and samples are mixed: all runs agree on other components
    each = []
    for seed in range(20, 23):
        X, truth = mixtures(seed, alpha, N)
        found = stability(from_columns(X), 4, 20)
        assert found.verdict == "stable"
        assert not any(found.withheld)
        each.append(coverage(found, truth))
    covered, by_runs = np.mean(each, axis=0)
    assert covered >= 0.9
    assert by_runs < 0.75


def test_limits_of_identified_components_stay_narrow():
    # an anchor and pure samples for each: only noise moves them, and more samples less so
    rng, widths = np.random.default_rng(0), []
    W = np.vstack([np.eye(3), rng.random((27, 3)) * (rng.random((27, 3)) < 0.5)])
    for noise in (0.05, 0.005):
        X = W @ rng.dirichlet(np.full(3, 0.1), 300).T
        X = np.maximum(X + noise * np.sqrt(np.mean(X**2)) * rng.normal(size=X.shape), 0)
        found = stability(from_columns(X), 3, 10)
        assert coverage(found, W / W.sum(axis=0))[0] > 0.85
        assert (np.degrees(found.moves) < 100 * noise).all()
        widths.append(float(np.mean(found.upper - found.lower)))
    assert widths[1] < widths[0] / 4


def test_moved_components_explain_the_data_up_to_noise():
    X, _ = mixtures(0, 0.5)
    found = stability(from_columns(X), 4, 8)
    W, H = found.W, np.asarray(found.H)
    window = Window(X, W, H)
    noise = np.mean((X - W @ H) ** 2)
    steps = np.full((4, 4), 0.01)
    for moved in window.extremes(steps, 0)[::5]:
        # with exact coefficients, the error is about as large as before
        moved = np.maximum(moved, 0)
        error = np.mean([nnls(moved, x)[1] ** 2 / len(x) for x in X.T])
        assert error < 1.05 * noise
    ranges = moved_ranges(X, W, H, steps)
    assert ((ranges.lower <= W) & (W <= ranges.upper)).all()
    assert (ranges.angles > 0.01).all()


def test_the_gradient_is_that_of_the_excess():
    X, _ = mixtures(1, 0.5)
    found = stability(from_columns(X), 4, 4)
    window = Window(X, found.W, np.asarray(found.H))
    T = np.eye(4) + 0.2 * np.random.default_rng(0).normal(size=(4, 4))
    assert window.excess(np.eye(4))[0] == 0
    value, gradient = window.excess(T)
    assert value > 0
    differences = approx_fprime(T.ravel(), lambda t: window.excess(t.reshape(4, 4))[0], 1e-7)
    np.testing.assert_allclose(gradient.ravel(), differences, rtol=1e-4, atol=1e-4 * value)


def test_no_push_pays_far_from_all_components():
    """A search may jump there. Distances of faces do not grow any more, but a push does."""
    X, _ = mixtures(1, 0.5)
    found = stability(from_columns(X), 4, 4)
    window = Window(X, found.W, np.asarray(found.H))
    far = np.random.default_rng(0).normal(size=(4, 4))
    far -= far.mean(axis=0)  # sums of components stay one
    assert window.excess(np.eye(4) + 1e9 * far)[0] > 1e9 / 1e-4


def test_scaling_the_data_does_not_change_the_moves():
    X, _ = mixtures(2, 0.5)
    found = stability(from_columns(X), 4, 4)
    W, H, steps = found.W, np.asarray(found.H), np.full((4, 4), 0.01)
    before = moved_ranges(X, W, H, steps)
    after = moved_ranges(1024 * X, W, 1024 * H, steps)
    np.testing.assert_allclose(after.angles, before.angles, rtol=1e-3)


@pytest.mark.parametrize(
    ("F", "N", "K", "reason"),
    [
        (3, 30, 3, "too few features to see noise"),
        (30, 4, 4, "too few samples to see noise"),
        (30, 30, 4, "linearly dependent"),
    ],
)
def test_limits_are_withheld_where_moves_are_unknown(F, N, K, reason, rng):
    W, H = rng.random((F, K)), rng.random((K, N))
    W[:, 1] = W[:, 0] if "dependent" in reason else W[:, 1]
    ranges = moved_ranges(W @ H, W / W.sum(axis=0), H, np.full((K, K), 0.01))
    assert reason in ranges.reason
    assert all(np.isnan(part).all() for part in (ranges.lower, ranges.upper, ranges.angles))
    if "dependent" not in reason:
        found = stability(from_columns(W @ H), K, 4)
        assert np.isnan(found.lower).all()
        assert reason in found.withheld[0] or found.no_consensus
        assert f"withheld for {', '.join(map(str, range(K)))}: " in str(found)


def test_components_that_can_be_anything_have_no_limits(reloaded, monkeypatch):
    X, _ = mixtures(3, 2.0)
    V = from_columns(X)
    narrow = stability(V, 4, 6)
    middle = float(np.median(narrow.moves))
    monkeypatch.setattr("conenmf.judge.stability.MAX_MOVE", middle)
    found = stability(V, 4, 6)
    is_withheld = found.moves > middle
    assert is_withheld.sum() == 2
    for limit in (found.lower, found.upper):
        np.testing.assert_array_equal(np.isnan(limit).any(axis=0), is_withheld)
    assert [bool(reason) for reason in found.withheld] == is_withheld.tolist()
    assert "90% limits for 2 of 4 components; withheld for " in str(found)
    k = int(np.flatnonzero(~is_withheld)[0])
    alone = replace(narrow, upper=np.where(np.arange(4) == k, np.nan, narrow.upper))
    assert alone.withheld[k] == "fewer than two runs contain it"
    loaded = reloaded(found)
    assert (loaded.withheld, str(loaded)) == (found.withheld, str(found))


def test_noise_that_was_clipped_is_allowed_for():
    # least squares then finds entries where there are none, and all others are too small
    rng, each = np.random.default_rng(5), []
    for _ in range(2):
        W = rng.random((60, 4)) * (rng.random((60, 4)) < 0.5)
        X = W @ rng.dirichlet(np.full(4, 0.1), 1000).T
        X = np.maximum(X + 0.05 * np.sqrt(np.mean(X**2)) * rng.normal(size=X.shape), 0)
        each.append(coverage(stability(from_columns(X), 4, 20), W / W.sum(axis=0)))
    covered, by_runs = np.mean(each, axis=0)
    assert covered > 0.85
    assert by_runs < 0.6


def test_data_without_noise_have_nothing_that_was_clipped():
    W, H = np.eye(3), np.array([[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 3.0, 1.0]])
    np.testing.assert_allclose(without_clipping(W @ H, W, H), W, atol=1e-9)


def test_an_exact_fit_does_not_get_infinite_weight():
    """The noise of a sample, or a feature, is not zero because it has no residual."""
    rng = np.random.default_rng(0)
    W, H = rng.random((12, 3)), rng.dirichlet(np.ones(3), 40).T
    W /= W.sum(axis=0)
    X = W @ H + 0.003 * rng.normal(size=(12, 40))
    steps, window = np.full((3, 3), 0.01), Window(X, W, H)
    squares = (X - W @ H) ** 2
    mean = squares.sum() / (9 * 37)
    of_features = (squares.sum(axis=1) / mean + 5) / (37 + 5)
    of_samples = (squares.T @ (1 / of_features) + 5 * mean) / (9 + 5)
    scaled = (X / np.sqrt(of_features)[:, None]) / np.sqrt(of_samples)
    np.testing.assert_allclose(window.A, window.Q.T @ scaled)
    X[:, 0], X[0] = W @ H[:, 0], W[0] @ H
    assert np.isfinite(moved_ranges(X, W, H, steps).angles).all()

"""What components predict of hidden entries, for least squares and for counts."""

import numpy as np
import pytest
import scipy.optimize

from conenmf import factorize, from_columns
from conenmf.solve.coefficients import feature_folds, held_out_share
from conenmf.solve.losses import POISSON

rng = np.random.default_rng(0)
W = rng.gamma(0.5, size=(15, 3))
V = rng.poisson(4 * W @ rng.gamma(0.5, size=(3, 40))).astype(float)


def by_hand(V, W, n_folds=5, weights=None):
    """Sample by sample and fold by fold, with another solver; the zeros are rows of their own."""
    folds = feature_folds(len(V), n_folds)
    weights = np.ones(V.shape[1]) if weights is None else weights
    missed = 0.0
    for fold in range(n_folds):
        seen, hidden = W[folds != fold], W[folds == fold]
        A = np.vstack([seen, np.sqrt(0.03) * hidden])
        for v, weight in zip(V.T, weights, strict=True):
            b = np.concatenate([v[folds != fold], np.zeros(len(hidden))])
            h = scipy.optimize.nnls(A, b)[0]
            missed += weight * ((v[folds == fold] - hidden @ h) ** 2).sum()
    return 1 - missed / (weights * V**2).sum()


def test_the_share_is_what_its_definition_says(main_backend):
    assert held_out_share(main_backend(V), W) == pytest.approx(by_hand(V, W), rel=1e-9)


@pytest.mark.parametrize("n_folds", [2, 15])
def test_any_number_of_folds(n_folds):
    share = held_out_share(from_columns(V), W, n_folds=n_folds)
    assert share == pytest.approx(by_hand(V, W, n_folds), rel=1e-9)


def test_folds_are_equal_and_always_the_same():
    folds = feature_folds(23)
    assert sorted(np.bincount(folds)) == [4, 4, 5, 5, 5]
    np.testing.assert_array_equal(folds, feature_folds(23))


def test_a_weight_counts_a_sample_several_times():
    weights = np.arange(40.0) % 3
    share = held_out_share(from_columns(V), W, weights=weights)
    assert share == pytest.approx(by_hand(V, W, weights=weights), rel=1e-9)
    repeated = np.repeat(V, weights.astype(int), axis=1)
    assert share == pytest.approx(held_out_share(from_columns(repeated), W), rel=1e-12)


def test_a_component_that_rests_on_hidden_features_is_not_blown_up():
    """What is seen of it is next to nothing: divided by that, noise would be a huge prediction."""
    spiky = np.full((10, 2), 1e-9)
    spiky[0, 0] = spiky[1:, 1] = 1.0
    noisy = spiky @ rng.random((2, 30)) + 0.01 * rng.random((10, 30))
    assert 0 < held_out_share(from_columns(noisy), spiky) < 1


def test_nothing_to_predict_or_to_predict_from():
    assert held_out_share(from_columns(np.array([[1.0, 2.0]])), [[1.0]]) == 0.0
    assert held_out_share(from_columns(np.zeros((3, 2))), np.ones((3, 1))) == 1.0


# --- counts ---


def parts(N=300):
    """Counts of four components, to fit and to predict."""
    rng = np.random.default_rng(0)
    W = rng.dirichlet(np.full(60, 0.2), 4).T
    return [rng.poisson(400 * W @ rng.dirichlet(np.full(4, 0.3), N).T) for _ in range(2)]


def test_too_few_and_too_many_components_predict_worse():
    train, test = map(from_columns, parts())
    scores = {
        K: POISSON.held_out(test, factorize(train, K, loss="poisson").W) for K in (1, 2, 4, 16)
    }
    assert scores[1] < scores[2] < scores[4] - 0.3
    assert scores[16] < scores[4] - 0.05
    assert scores[4] < 1


def test_every_storage_gives_the_same_deviance(main_backend):
    train, test = parts(N=40)
    W = factorize(from_columns(train), 3, loss="poisson").W
    expected = POISSON.held_out(from_columns(test), W)
    found = POISSON.held_out(main_backend(test.astype(float)), W)
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_weight_of_two_is_a_sample_twice():
    train, test = parts(N=30)
    W = factorize(from_columns(train), 3, loss="poisson").W
    twice = np.hstack([test, test[:, :5]])
    weighted = POISSON.held_out(from_columns(test), W, weights=np.repeat([2, 1], [5, 25]))
    assert weighted == pytest.approx(POISSON.held_out(from_columns(twice), W))


@pytest.mark.parametrize(
    ("V", "W", "low", "high"),
    [
        ([[1.0, 2.0], [2.0, 4.0]], [[1.0], [2.0]], 1, 1),  # nothing to explain
        ([[1.0, 0.0], [0.0, 4.0]], [[1.0], [2.0]], -100, 1),
        ([[1, 9], [5, 4], [3, 2]], [[1.0], [2.0], [0.0]], -100, 1),  # unseen by the components
    ],
)
def test_the_deviance_of_tiny_tables_is_finite(V, W, low, high):
    assert low <= POISSON.held_out(from_columns(V), np.array(W)) <= high

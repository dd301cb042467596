import numpy as np
import pytest
import scipy.optimize

from conenmf import from_columns
from conenmf.solve.coefficients import feature_folds, held_out_share

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


def test_it_is_what_its_definition_says(main_backend):
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

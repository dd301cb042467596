import numpy as np
import pytest

from conenmf import factorize, from_columns
from conenmf.solve.losses.poisson import held_out_deviance


def parts(seed=0, K=4, N=300):
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.full(60, 0.2), K).T
    return [rng.poisson(400 * W @ rng.dirichlet(np.full(K, 0.3), n).T) for n in (N, N)]


def test_too_few_and_too_many_components_predict_worse():
    train, test = map(from_columns, parts())
    scores = {
        K: held_out_deviance(test, factorize(train, K, loss="poisson").W) for K in (1, 2, 4, 16)
    }
    assert scores[1] < scores[2] < scores[4] - 0.3
    assert scores[16] < scores[4] - 0.05
    assert scores[4] < 1


def test_every_storage_gives_the_same(main_backend):
    train, test = parts(N=40)
    W = factorize(from_columns(train), 3, loss="poisson").W
    wanted = held_out_deviance(from_columns(test), W)
    assert held_out_deviance(main_backend(test.astype(float)), W) == pytest.approx(wanted, abs=1e-5)


def test_a_weight_of_two_is_a_sample_twice():
    train, test = parts(N=30)
    W = factorize(from_columns(train), 3, loss="poisson").W
    weights = np.ones(30)
    weights[:5] = 2
    twice = np.hstack([test, test[:, :5]])
    weighted = held_out_deviance(from_columns(test), W, weights=weights)
    assert weighted == pytest.approx(held_out_deviance(from_columns(twice), W))


def test_edges():
    W = np.array([[1.0], [2.0]])
    assert held_out_deviance(from_columns([[1.0, 2.0], [2.0, 4.0]]), W) == 1.0  # nothing to explain
    score = held_out_deviance(from_columns([[1.0, 0.0], [0.0, 4.0]]), W)
    assert np.isfinite(score)
    assert score <= 1
    unseen = held_out_deviance(from_columns([[1, 9], [5, 4], [3, 2]]), [[1.0], [2.0], [0.0]])
    assert np.isfinite(unseen)

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

from conenmf.errors import FactorError, OptionError
from conenmf.judge.consensus import consensus, distinct, found_again
from conenmf.judge.metrics import match_components


def noisy_runs(n_runs=10, F=20, K=4, noise=0.1, seed=0):
    """Runs that find the same components, in another order, and one that finds others."""
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(F, K)) ** 2
    runs = [(W + noise * rng.random((F, K)))[:, rng.permutation(K)] for _ in range(n_runs)]
    runs[-1][:, 0] = rng.random(F)
    return W, np.array(
        [scale * run for run, scale in zip(runs, rng.random(n_runs) + 1, strict=True)]
    )


def test_the_consensus_is_that_of_cnmf():
    _, runs = noisy_runs()
    found = consensus(runs)
    rows = np.concatenate([run.T for run in runs])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    distances = np.sort(np.linalg.norm(rows[:, None] - rows[None], axis=2), axis=1)
    density = distances[:, 1:4].mean(axis=1)  # 3 = 0.3 * 10 neighbours
    np.testing.assert_allclose(found.distances.ravel(), density, atol=1e-7)
    kept = density < 0.5
    assert kept.sum() == 39
    labels = KMeans(4, n_init=10, random_state=1).fit(rows[kept]).labels_
    medians = np.array([np.median(rows[kept][labels == k], axis=0) for k in range(4)])
    medians /= medians.sum(axis=1, keepdims=True)
    by_first = found.W.T[np.lexsort(found.W)]
    np.testing.assert_allclose(by_first, medians[np.lexsort(medians.T)], rtol=0, atol=1e-12)
    silhouettes = silhouette_samples(rows[kept], labels)
    np.testing.assert_allclose(found.silhouettes.ravel()[kept], silhouettes, atol=1e-10)
    assert np.isnan(found.silhouettes.ravel()[~kept]).all()


@given(seed=st.integers(0, 100))
@settings(max_examples=10)
def test_neither_scale_nor_order_matters(seed):
    W, runs = noisy_runs(noise=0.02, seed=seed)
    found = consensus(runs)
    shuffled = consensus(3 * runs[:, :, ::-1])
    order, _ = match_components(shuffled.W, found.W)
    np.testing.assert_allclose(found.W[:, order], shuffled.W, atol=1e-12)
    np.testing.assert_allclose(found.W.sum(axis=0), 1)
    assert (found_again(found.W, np.array([W])) > 0.99).all()


def test_components_of_zeros_are_left_out():
    _, runs = noisy_runs()
    runs[3, :, 1] = 0
    found = consensus(runs)
    assert found.clusters[3, 1] == -1
    assert np.isinf(found.distances[3, 1])
    assert np.isfinite(found.W).all()


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        (np.eye(12).reshape(12, 4, 3).transpose(1, 0, 2), "far from those of other runs"),
        (np.ones((4, 6, 3)), "only 1 component in common"),
        (np.zeros((4, 6, 3)), "far from those of other runs"),
    ],
)
def test_runs_without_a_consensus_say_why(runs, problem):
    found = consensus(runs)
    assert found.W is None
    assert problem in found.problem


def test_wrong_arguments_are_named():
    with pytest.raises(FactorError, match="spectra"):
        consensus(np.ones((3, 4)))
    with pytest.raises(OptionError, match="density_threshold=0"):
        consensus(np.ones((3, 4, 2)), density_threshold=0)


def test_distinct_runs_are_counted():
    W, _ = noisy_runs()
    other = W.copy()
    other[:, 0] = W[::-1, 0]
    assert distinct(np.array([W, 2 * W[:, ::-1], other, W])) == 2

"""Inits from clusters, against independent programs."""

import numpy as np
import pytest
import skfuzzy

from conenmf import from_columns
from conenmf.solve.inits import fuzzy, kl_kmeans


def clusters(seed=0, K=3):
    rng = np.random.default_rng(seed)
    return np.hstack([rng.random((6, 60)) + 3 * np.eye(6)[:, [k]] for k in range(K)])


def divergence(V, C):
    """sum_f v log(v / c) - v + c for every sample and centroid, entry by entry."""
    v, c = V[:, :, None], C[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(v > 0, v * np.log(v / c), 0.0)
    return (terms - v + c).sum(axis=0)


def test_fuzzy_memberships_and_centroids_are_those_of_scikit_fuzzy():
    V = clusters()
    W, H = fuzzy(from_columns(V), 3, np.random.default_rng(1))
    memberships, *_ = skfuzzy.cluster.cmeans_predict(V, W.T, 2, 1e-12, 1)
    np.testing.assert_allclose(H, memberships, atol=1e-12)
    expected, *_ = skfuzzy.cluster.cmeans(V, 3, 2, 1e-12, 1000, seed=0)
    order = [int(np.linalg.norm(expected.T - w[:, None], axis=0).argmin()) for w in W.T]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(W, expected.T[:, order], rtol=1e-2)


def test_a_sample_that_is_a_centroid_belongs_to_it_alone():
    V = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0]])
    W, H = fuzzy(from_columns(V), 2, np.random.default_rng(0))
    np.testing.assert_allclose(W @ H, V, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_samples_are_in_the_cluster_of_the_smallest_divergence(seed):
    rng = np.random.default_rng(seed)
    V = rng.poisson(rng.gamma(1.0, size=(8, 3)) @ rng.dirichlet(np.ones(3), 80).T * 30).astype(
        float
    )
    V = V[:, V.any(axis=0)]
    W, H = kl_kmeans(from_columns(V), 3, rng)
    labels = H.argmax(axis=0)
    for k in range(3):  # centroids are the means of their clusters
        np.testing.assert_allclose(W[:, k], V[:, labels == k].mean(axis=1), atol=1e-9)
    floored = np.maximum(W, 1e-3 * V.mean())
    best = divergence(V, floored).argmin(axis=1)
    assert np.mean(best == labels) > 0.9  # it may have stopped before the last sample settled

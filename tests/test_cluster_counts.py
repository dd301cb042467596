"""The numbers of clusters that the benchmarks compare with."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

pytestmark = pytest.mark.nightly  # these programs are run by benchmarks only


def points(K, d=5, n=60, apart=10.0):
    """K round clusters around the corners of a simplex."""
    rng = np.random.default_rng(0)
    return np.vstack([apart * np.eye(d)[k] + rng.standard_normal((n, d)) for k in range(K)])


@pytest.mark.parametrize("K", [2, 4])
def test_separate_clusters_are_counted_by_every_method(paper, K):
    found = paper("cluster_counts").cluster_counts(points(K), 8, np.random.default_rng(1))
    assert found == dict.fromkeys(("X-means", "gap", "silhouette", "elbow"), K)


def test_one_cluster_is_one_where_a_method_can_say_so(paper):
    found = paper("cluster_counts").cluster_counts(points(1), 6, np.random.default_rng(1))
    assert (found["X-means"], found["gap"]) == (1, 1)
    assert min(found["silhouette"], found["elbow"]) >= 2


def test_the_scatter_falls_at_every_step(paper):
    X = points(3)
    path = list(islice(paper("cluster_counts").clusterings(X, np.random.default_rng(0)), 40))
    scatter = [one.inertia_ for one in path]
    assert [one.n_clusters for one in path] == list(range(1, 41))
    assert (np.diff(scatter) < 0).all()
    assert scatter[0] == pytest.approx(((X - X.mean(axis=0)) ** 2).sum())


def test_the_information_is_that_of_a_gaussian_mixture(paper):
    """The likelihood by SciPy, minus half the parameters times log n."""
    X = points(3, d=4)
    labels = np.repeat([0, 1, 2], 60)
    n, d, k = 180, 4, 3
    means = [X[labels == j].mean(axis=0) for j in range(k)]
    variance = sum(((X[labels == j] - means[j]) ** 2).sum() for j in range(k)) / (d * (n - k))
    likelihood = sum(
        multivariate_normal(means[j], variance * np.eye(d)).logpdf(X[labels == j]).sum()
        + 60 * np.log(60 / n)
        for j in range(k)
    )
    parameters = (k - 1) + k * d + 1
    found = paper("cluster_counts").information(X, labels)
    assert found == pytest.approx(likelihood - parameters / 2 * np.log(n), rel=1e-12)


def test_the_elbow_is_the_largest_ratio_of_neighbouring_decreases(paper):
    path = [SimpleNamespace(inertia_=scatter) for scatter in (100.0, 60.0, 20.0, 18.0, 15.0, 12.0)]
    assert paper("cluster_counts").elbow_count(path) == 3

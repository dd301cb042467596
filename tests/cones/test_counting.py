"""How many cones the data have, by single linkage of directions."""

import numpy as np
import pytest
import scipy.cluster.hierarchy as hierarchy
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

from conenmf import cluster_cones, from_columns, make_cones
from conenmf.cones import counting
from conenmf.cones.counting import count_above_edge, count_cones, count_in_clusters, linkage
from conenmf.cones.geometry import angles_between, pairwise_separation


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_linkage_is_single_linkage(rng):
    points = rng.random((int(rng.integers(2, 12)), 2))
    apart = squareform(pdist(points))
    tree = linkage(apart)
    joined = hierarchy.linkage(points, "single")
    for k in range(1, len(points) + 1):
        labels = hierarchy.fcluster(joined, k, "maxclust")
        same = labels[:, None] == labels
        assert (tree.within[k - 1], tree.between[k - 1]) == (
            apart[same].max(),
            apart.min(where=~same, initial=np.inf),
        )
        places = np.sort(labels[tree.order[tree.first(k)]])
        assert places.tolist() == np.unique(labels).tolist()  # one of each cluster
        assert np.sort(tree.sizes(k)).tolist() == np.sort(np.bincount(labels)[1:]).tolist()


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_true_number_is_listed(rng):
    """Cones that satisfy equation (2) of the paper, any probabilities, sizes, angles and rates."""
    F, K = int(rng.integers(3, 30)), int(rng.integers(2, 7))
    axes = rng.gamma(0.5, size=(F, K)) + 1e-3
    axes /= np.linalg.norm(axes, axis=0)
    apart = np.arccos(np.clip(axes.T @ axes, -1, 1))[~np.eye(K, dtype=bool)].min()
    sizes = rng.uniform(0.1, 1, K)
    largest, second = np.sort(sizes)[::-1][:2]
    sizes *= rng.uniform(0.1, 0.99) * apart / (3 * largest + second)
    rates, weights = rng.uniform(0.1, 10, K), rng.dirichlet(np.ones(K))
    options = {"axes": axes, "rates": rates, "weights": weights, "n_samples": 60, "rng": rng}
    model = make_cones(F, K, sizes, **options)
    V = from_columns(model.V)
    n_cones = np.unique(model.labels).size
    count = count_cones(V)
    assert n_cones in [1, *count.ks] or n_cones > F
    value = pairwise_separation(V, np.unique(model.labels, return_inverse=True)[1]).value
    assert count.separations[n_cones - 1] == pytest.approx(value, abs=1e-9)
    if count.K:
        assert count.K in count.ks
        labels = cluster_cones(V, count.K).labels  # which any clusters that are apart must be
        assert pairwise_separation(V, labels).value == pytest.approx(count.separation.value)


@pytest.mark.parametrize("seed", range(5))
def test_three_cones_of_which_two_are_close(seed):
    """The assumption holds; the largest ratio of angles to earlier centres says 2, S_p > 0 too."""
    apart = np.zeros((3, 3))
    apart[0, 1], apart[0, 2], apart[1, 2] = 0.25, 1.31, 1.32
    values, vectors = np.linalg.eigh(np.cos(apart + apart.T))
    axes = (vectors * np.sqrt(values)) @ vectors.T  # whose products are these cosines
    rng = np.random.default_rng(seed)
    model = make_cones(3, 3, 0.05, axes=axes, weights=[0.6, 0.3, 0.1], n_samples=300, rng=rng)
    V = from_columns(model.V)
    Z = cluster_cones(V, 10).directions
    apart = angles_between(Z, Z)
    d = np.array([apart[k, :k].min() for k in range(1, 10)])
    assert 2 + np.argmax(d[:-1] / d[1:]) == 2
    count = count_cones(V)
    assert (count.ks[:2].tolist(), count.K) == ([2, 3], 3)
    assert count.separation.is_exact
    assert "3 clusters are apart, with a separation of 0.0" in count.reason


def rare_cones(n_rare=3):
    """2500 samples in four cones, of which one has three samples."""
    rng = np.random.default_rng(0)
    model = make_cones(40, 4, 0.1, n_samples=2600, weights=[0.5, 0.3, 0.15, 0.05], rng=rng)
    rare = np.flatnonzero(model.labels == 3)
    return np.delete(model.V, rare[n_rare:], axis=1)


def test_many_samples(monkeypatch):
    """A subset is compared, which has no sample of the rare cone; all are looked at."""
    monkeypatch.setattr(counting, "_SUBSET_SAMPLES", 100)
    V = from_columns(rare_cones())
    before = V.passes
    count = count_cones(V)
    assert V.passes - before < 8  # most of them for the smallest cones round the clusters
    assert (count.ks[0], count.K) == (3, 4)
    assert not count.separation.is_exact
    assert count.separation.value > 0
    assert "4 clusters are apart in 100 samples" in count.reason
    assert "of at least 0.0" in count.reason


def test_a_subset_may_mislead(monkeypatch):
    """Mixtures between two cones, none of them in the subset."""
    monkeypatch.setattr(counting, "_SUBSET_SAMPLES", 100)
    samples = rare_cones()
    drawn = counting.draw_samples(from_columns(samples), 100, np.random.default_rng(0))
    others = np.setdiff1d(np.arange(samples.shape[1]), drawn)[:200]
    first, second = (samples[:, [n]] / np.linalg.norm(samples[:, n]) for n in others[:2])
    assert first.T @ second < 0.95  # of two cones
    share = np.linspace(0, 1, 200)
    samples[:, others] = 2 * (first * share + second * (1 - share))
    count = count_cones(from_columns(samples))
    assert count.K == 0
    assert "but not in all" in count.reason


def test_no_cones(rng):
    mixtures = rng.random((30, 3)) @ rng.dirichlet(np.ones(3), size=100).T
    one = make_cones(30, 1, 0.1, n_samples=100, rng=rng).V
    outlier = np.hstack([one, np.eye(30)[:, :1]])
    for V in (mixtures, one, outlier, np.eye(8)):
        assert count_cones(from_columns(V)).K == 0
    assert count_cones(from_columns(outlier)).ks[0] == 2
    assert count_cones(from_columns(np.ones((3, 1)))).ks.size == 0


def test_directions_that_depend_on_each_other():
    """Every mixture of three parts, ten times: seven clusters, but three components."""
    parts = np.eye(9)[:, :3] + np.eye(9)[:, 3:6]
    mixed = parts @ np.array([[int(bit) for bit in f"{n:03b}"] for n in range(1, 8)]).T
    count = count_cones(from_columns(np.tile(mixed, 10)))
    assert (count.K, count.ks.tolist()) == (0, [7])
    assert "rank 3" in count.reason


@pytest.mark.thinned(2)
@pytest.mark.parametrize("limit", [2000, 10])
def test_every_storage(main_backend, small_blocks, cones, limit, monkeypatch):
    monkeypatch.setattr(counting, "_MAX_SAMPLES", limit)
    monkeypatch.setattr(counting, "_SUBSET_SAMPLES", 60)
    cones = cones.copy()
    cones[:, [2, 40]] = 0.0
    count, expected = count_cones(main_backend(cones)), count_cones(from_columns(cones))
    assert count.K == expected.K == 4
    assert (count.ks.tolist(), count.reason) == (expected.ks.tolist(), expected.reason)
    np.testing.assert_allclose(count.separations, expected.separations, atol=1e-9)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 1, 1, 2, 2], 7),
        ([1, 1, 1, 3, 4], 10),
        ([1, 1, 1, 4, 4], 0),
        ([1, 1, 2, 2, 2], 0),
        ([1, 1, 1, 1, 1], 5),
    ],
)
def test_clusters_are_cones_if_most_have_one_component(counts, expected, monkeypatch, rng):
    """And if the others do not have far more than there are clusters."""
    axes = 0.1 + rng.gamma(0.3, size=(60, 5))
    X = axes[:, np.arange(600) % 5] + 0.05 * rng.random((60, 600))
    V = from_columns(X)
    above = count_above_edge(V)
    assert above.K == 5
    places = iter(counts)
    monkeypatch.setattr("conenmf.cones.counting._in_cluster", lambda samples: next(places))
    assert count_in_clusters(V, above) == expected

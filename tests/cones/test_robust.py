"""Centres that survive noise: the statements of "Clusters that survive noise" in docs/theory.md."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones.geometry import pairwise_separation
from conenmf.cones.rank_one import cr1_error
from conenmf.cones.robust import centres_in_noise, noise_norm
from conenmf.judge.scores import scores

seeds = st.integers(0, 10**7)


def norms(A):
    return np.linalg.norm(A, axis=0)


def angles(A, B):
    A, B = A / norms(A), B / norms(B)
    apart = np.linalg.norm(A[:, :, None] - B[:, None, :], axis=0)
    return 2 * np.arcsin(np.minimum(apart / 2, 1))


def separation_of(A, labels):
    """S: the smallest angle between clusters minus the largest within one."""
    apart, same = angles(A, A), labels[:, None] == labels
    return apart.min(where=~same, initial=np.inf) - apart.max(where=same, initial=0)


def noisy_cones(seed, delta, *, K=None, N=120, F=40):
    rng = np.random.default_rng(seed)
    K = K or int(rng.integers(2, 6))
    alpha = rng.uniform(0.02, 0.2)
    clean = make_cones(F, K, alpha, angle=min(4 * alpha + 0.3, 1.4), n_samples=N, rng=rng)
    X = np.maximum(clean.V + delta * rng.standard_normal(clean.V.shape), 0)
    assume(np.unique(clean.labels).size == K)
    return clean, X, K


@settings(max_examples=60)
@given(seeds, st.floats(0, 0.05))
def test_a_centre_in_each_cone_and_right_labels_for_all_that_are_long_enough(seed, delta):
    clean, X, K = noisy_cones(seed, delta)
    V = from_columns(X)
    U = centres_in_noise(V, K).axes  # spans the space that samples are projected on
    Q = np.linalg.qr(U)[0]
    P_clean, P_noise = Q.T @ clean.V, Q.T @ (X - clean.V)
    r = norms(P_noise).max()
    found = centres_in_noise(V, K, noise=r, lloyd_steps=0)
    Y = Q.T @ X
    turns = np.where(norms(Y) > r, np.arcsin(np.minimum(r / norms(Y), 1)), np.pi / 2)
    S = separation_of(P_clean, clean.labels)
    is_good = 2 * turns + 2 * found.largest_turn < S - 1e-9
    assume(np.unique(clean.labels[is_good]).size == K)

    cone_of = clean.labels[found.centres]
    assert np.unique(cone_of).size == K
    nearest = (found.axes.T @ X).argmax(axis=0)
    np.testing.assert_array_equal(cone_of[nearest[is_good]], clean.labels[is_good])


@settings(max_examples=40)
@given(seeds, st.floats(0, 0.2))
def test_the_error_is_bounded_by_that_of_the_good_part(seed, delta):
    clean, X, K = noisy_cones(seed, delta)
    V = from_columns(X)
    W, H, cones = cr1_nmf(V, K, method="robust")
    # Any part in which every cluster holds samples of one cone only is a good part.
    main = [np.bincount(clean.labels[cones.labels == k], minlength=K).argmax() for k in range(K)]
    assume(len(set(main)) == K)
    G = np.array(main)[cones.labels] == clean.labels
    s = np.sqrt(
        sum(
            (np.linalg.svd(clean.V[:, G & (clean.labels == k)], compute_uv=False)[1:] ** 2).sum()
            for k in range(K)
        )
    ) / np.linalg.norm(clean.V[:, G])
    epsilon = np.linalg.norm((X - clean.V)[:, G]) / np.linalg.norm(clean.V[:, G])
    angle = np.arcsin(s) + np.arcsin(min(epsilon, 1))
    good = np.sin(min(angle, np.pi / 2)) ** 2 * (X[:, G] ** 2).sum()
    bound = np.sqrt((good + (X[:, ~G] ** 2).sum()) / V.total)
    assert cr1_error(V, W, H) <= bound + 1e-9


@settings(max_examples=40)
@given(seeds)
def test_without_noise_the_clusters_are_those_of_algorithm_1(all_close, seed):
    clean, _, K = noisy_cones(seed, 0.0)
    V = from_columns(clean.V)
    assume(pairwise_separation(V, clean.labels).value > 1e-9)
    exact, robust = (cluster_cones(V, K, method=method) for method in ("exact", "robust"))
    all_close((robust.labels, robust.centres), (exact.labels, exact.centres), rtol=0)
    assert not robust.moved


@pytest.mark.parametrize(("delta", "least"), [(0.01, 0.99), (0.03, 0.97), (0.1, 0.84)])
def test_it_survives_the_noise_of_the_paper(delta, least):
    model = make_cones(400, 10, 0.2, n_samples=2000, noise=delta, rng=np.random.default_rng(11))
    V = from_columns(model.V)
    found = cluster_cones(V, 10, method="robust")
    plain = cluster_cones(V, 10)
    assert found.moved
    assert scores(model.labels, found.labels)["nmi"] > least
    assert scores(model.labels, plain.labels)["nmi"] < 0.6
    assert found.least_size_angle == 0


def test_no_cone_of_short_samples_is_lost():
    model = make_cones(400, 40, 0.2, n_samples=4000, noise=0.01, rng=np.random.default_rng(5))
    assert np.unique(model.labels[centres_in_noise(from_columns(model.V), 40).centres]).size == 40


@pytest.mark.seed(3)
def test_short_samples_are_not_centres(rng):
    clean = make_cones(60, 4, 0.1, n_samples=200, rng=rng)
    long = clean.V / norms(clean.V) * (1 + rng.random(200))
    X = np.hstack([long, 0.01 * rng.random((60, 40)) * (rng.random((60, 40)) < 0.2)])
    found = centres_in_noise(from_columns(X), 4, noise=0.2)
    assert found.centres.max() < 200
    assert np.unique(clean.labels[found.centres]).size == 4
    assert found.largest_turn <= np.arcsin(0.2)


@pytest.mark.seed(180)
def test_fewer_directions_than_cones_are_left_to_algorithm_1(rng):
    for _ in range(40):
        V = from_columns(rng.random((9, 2)) @ rng.random((2, 12)))
        W, H, cones = cr1_nmf(V, 5, method="robust", tol=5e-2)
        assert 0 <= W.min() <= W.max() < np.inf
        assert np.bincount(cones.labels, minlength=5).min() > 0
        assert cr1_error(V, W, H) < 1


def test_the_noise_is_estimated_from_the_singular_values_beyond_k(rng):
    F, K, N, delta = 200, 4, 1000, 0.05
    V = rng.random((F, K)) @ rng.random((K, N)) + 1
    X = from_columns(V + delta * rng.standard_normal((F, N)))
    assert np.linalg.svd(V, compute_uv=False)[K + 1] < 1e-9
    explained = (np.linalg.svd(X.columns(range(N)), compute_uv=False)[: K + 1] ** 2).sum()
    expected = delta * (np.sqrt(K + 1) + np.sqrt(2 * np.log(N)))
    assert noise_norm(X.total, explained, (F, N), K + 1) == pytest.approx(expected, rel=0.02)


@settings(max_examples=60)
@given(seeds.map(np.random.default_rng), st.integers(3, 5), st.integers(0, 2))
def test_without_singular_values_beyond_k_nothing_is_certain(rng, K, more):
    """A sample of norm 1e-6 may take a cone's centre where no norm of noise can be estimated."""
    alpha = rng.uniform(0.02, 0.1)
    axes = np.eye(K) + rng.uniform(0.1, 1) * rng.random((K, K))
    axes /= norms(axes)
    clean = make_cones(K, K, alpha, axes=axes, n_samples=30, rng=rng)
    assume(np.unique(clean.labels).size == K)
    short = np.abs(rng.standard_normal(K))
    rows = np.column_stack([clean.V, 1e-6 * short / norms(short)])
    V = from_columns(np.vstack([rows, np.zeros((more, 31))]))  # of rank K
    found = centres_in_noise(V, K)
    assert np.isnan(found.noise)
    assert found.largest_turn == np.pi / 2
    for cones in (cluster_cones(V, K, method="robust"), cr1_nmf(V, K, method="robust")[2]):
        assert np.isnan(cones.noise) or more > 0
    known = centres_in_noise(V, K, noise=2e-6, lloyd_steps=0)
    assert known.noise == 2e-6
    if separation_of(clean.V, clean.labels) > 1e-3 and norms(clean.V).min() > 0.01:
        assert known.centres.max() < 30
        assert np.unique(clean.labels[known.centres]).size == K  # as proved


def test_a_short_sample_that_becomes_a_centre_has_an_unknown_noise_level():
    """Three cones in three dimensions: two share a cluster, and a speck of dust has its own."""
    V = np.array([[1, 0.9, 0.5], [0.9, 1, 0.5], [0.8, 0.5, 1], [0, 1e-6, 0]]).T
    found = cluster_cones(from_columns(V), 3, method="robust")
    assert 3 in found.centres
    assert np.isnan(found.noise)
    assert sorted(centres_in_noise(from_columns(V), 3, noise=1e-5).centres) == [0, 1, 2]


def test_clusters_report_the_noise_level_they_allow():
    model = make_cones(100, 4, 0.2, n_samples=400, noise=0.05, rng=np.random.default_rng(4))
    V = from_columns(model.V)
    assert cluster_cones(V, 4).noise == 0
    assert cluster_cones(V, 4, method="robust").noise == centres_in_noise(V, 4).noise > 0.05
    assert cr1_nmf(V, 4, method="robust")[2].noise > 0.05


def test_the_same_in_every_storage(main_backend, all_close):
    model = make_cones(30, 3, 0.2, n_samples=90, noise=0.03, rng=np.random.default_rng(2))
    expected = cluster_cones(from_columns(model.V), 3, method="robust")
    found = cluster_cones(main_backend(model.V), 3, method="robust")
    all_close((found.centres, found.labels), (expected.centres, expected.labels), rtol=0)

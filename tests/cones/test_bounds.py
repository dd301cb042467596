"""The bounds of the paper: Theorems 4 to 9, Lemmas 10 and 14, and sample sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones.bounds import deterministic_bound, probabilistic_bound
from conenmf.cones.geometry import enclosing_cones
from conenmf.cones.rank_one import cr1_error
from conenmf.solve.theorems import (
    largest_angle_in_orthant,
    rank_epsilon,
    rank_sample_size,
    sample_size,
    smallest_limit,
    weighted_bound,
)


def f(alpha):
    return 0.5 - np.sin(2 * alpha) / (4 * alpha)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_theorem_4_for_any_data(rng):
    V = rng.random((7, 25)) ** 2
    data = from_columns(V)
    W, H, cones = cr1_nmf(data, int(rng.integers(1, 6)), rng=rng)
    error = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    assert error <= deterministic_bound(data, W, cones.labels) + 1e-12
    _, angles = enclosing_cones(data, cones.labels)
    weighted = weighted_bound(data, cones.labels, angles)
    assert error - 1e-12 <= weighted <= np.sin(angles).max() + 1e-12


@settings(max_examples=40)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng), exponent=st.floats(-12, -1))
def test_theorem_4_for_small_angles(rng, exponent):
    """A bound from rounded cosines would be 0 below 1e-8 rad, and the error is not."""
    u = rng.random((6, 1)) + 0.1
    V = (u + 10.0**exponent * rng.random((6, 8))) * rng.uniform(0.1, 9.0, 8)
    data = from_columns(V, block_samples=3)
    W, H, cones = cr1_nmf(data, 1)
    error = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    assert 1e-3 * 10.0**exponent < error
    assert error <= deterministic_bound(data, W, cones.labels) + 1e-15
    assert cr1_error(data, W, H) == pytest.approx(error, rel=1e-6, abs=1e-15)
    _, angles = enclosing_cones(data, cones.labels)
    assert angles[0] <= cones.radius + 1e-15
    assert error <= weighted_bound(data, cones.labels, angles) + 1e-10  # the accuracy of W


def test_the_error_of_cr1_on_every_storage(main_backend):
    at = np.array([0.3, 0.3 + 1e-9, 1.2, 1.2])
    held = main_backend(np.array([np.cos(at), np.sin(at)]))
    W, H, _ = cr1_nmf(held, 2, first=0)
    assert cr1_error(held, W, H) == pytest.approx(1e-9 / np.sqrt(2) / 2, rel=1e-6)


def test_sines(main_backend, both_twins, sample_matrix):
    """The bound is the largest sine, of one sample its own; zero samples have none."""
    V = main_backend(sample_matrix)
    W, _, cones = cr1_nmf(V, 4)
    labels = np.asarray(cones.labels)
    sines = np.zeros(40)
    for n in np.flatnonzero(sample_matrix.any(axis=0)):
        v, w = sample_matrix[:, n], W[:, labels[n]]
        angle = np.arccos(np.clip(v @ w / np.linalg.norm(v) / np.linalg.norm(w), -1, 1))
        sines[n] = np.sin(angle)
    assert deterministic_bound(V, 3 * W, labels) == pytest.approx(sines.max())
    for n in (1, 20):
        samples = [0, n, 17]  # the first and the last are zero
        bound = deterministic_bound(main_backend(sample_matrix[:, samples]), 3 * W, labels[samples])
        assert bound == pytest.approx(sines[n])


def test_nothing_is_explained_without_a_cone_or_an_axis(sample_matrix):
    V = from_columns(sample_matrix)
    W, _, cones = cr1_nmf(V, 4)
    nowhere = np.full(40, -1)
    assert deterministic_bound(V, np.zeros_like(W), cones.labels) == 1
    assert deterministic_bound(V, W, nowhere) == weighted_bound(V, nowhere, np.full(4, 0.1)) == 1


# --- the paper's model ------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "expected"), [(0.2, 0.11501), (0.3, 0.17165)])
def test_the_papers_numbers(alpha, expected):
    assert probabilistic_bound([alpha] * 40, 1 / np.arange(1, 41)) == pytest.approx(
        expected, abs=5e-6
    )
    assert probabilistic_bound([alpha], [3.0]) == pytest.approx(np.sqrt(f(alpha)))


def test_unequal_cones():
    angles, rates, weights = [0.1, 0.4], [1.0, 4.0], [0.3, 0.7]
    expected = np.sqrt((0.3 * f(0.1) + 0.7 * f(0.4) / 4) / (0.3 + 0.7 / 4))
    assert probabilistic_bound(angles, rates, weights) == pytest.approx(expected)


def test_theorem_8_without_projection_the_bound_is_the_limit():
    """The error is sqrt(1 - sum sigma_1(V_k)^2 / ||V||^2); V may be negative, so by hand."""
    model = make_cones(200, 8, 0.2, n_samples=10_000, project=False, rng=np.random.default_rng(0))
    cones = (model.V[:, model.labels == k] for k in range(8))
    explained = sum(np.linalg.eigvalsh(V_k @ V_k.T)[-1] for V_k in cones)
    error = np.sqrt(1 - explained / (model.V**2).sum())
    assert error == pytest.approx(probabilistic_bound(model.angles, model.rates), rel=0.01)


@pytest.mark.parametrize(("F", "K"), [(40, 8), (30, 3), (12, 11)])
def test_the_smallest_error_of_any_components_has_its_limit(F, K):
    rng = np.random.default_rng(F)
    angles, weights = rng.uniform(0.1, 0.3, K), rng.dirichlet(np.full(K, 5.0))
    options = {"project": False, "weights": weights, "angle": 0.6}
    model = make_cones(F, K, angles, n_samples=200_000, rng=rng, **options)
    values = np.linalg.eigvalsh(model.V @ model.V.T)
    error = np.sqrt(values[: F - K].sum() / values.sum())
    limit = smallest_limit(F, model.angles, model.rates, weights)
    assert error == pytest.approx(limit, rel=0.01)
    assert limit < probabilistic_bound(model.angles, model.rates, weights)


@pytest.mark.seed(2)
def test_nonnegative_components_reach_the_smallest_limit(rng):
    """Two cones that lie in the orthant."""
    axes = np.array([[3.0, 2.0, 2.0, 1.5], [1.5, 2.0, 2.0, 3.0]]).T
    axes /= np.linalg.norm(axes, axis=0)
    model = make_cones(4, 2, 0.2, axes=axes, n_samples=20_000, project=False, rng=rng)
    assert model.V.min() > 0
    error = factorize(from_columns(model.V), 2).relative_error
    assert error == pytest.approx(smallest_limit(4, model.angles, model.rates), rel=0.02)


@pytest.mark.seed(1)
def test_theorem_6_and_8_inside_the_orthant(rng):
    """Cones round constant axes in few dimensions lie in the orthant: the library's own error."""
    axis = np.full((4, 1), 0.5)
    assert 0.2 < largest_angle_in_orthant(axis[:, 0])
    options = {"axes": axis, "rates": [0.5], "n_samples": 20_000, "project": False}
    V = make_cones(4, 1, 0.2, **options, rng=rng).V
    assert V.min() > 0
    W, H, _ = cr1_nmf(from_columns(V), 1)
    error = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    assert error == pytest.approx(probabilistic_bound([0.2], [0.5]), rel=0.01)


def test_lemma_14_the_second_moment_of_a_sample(rng):
    F, K, alpha, rates = 6, 3, np.array([0.1, 0.3, 0.5]), np.array([1.0, 2.0, 0.5])
    options = {"angle": 0.6, "rates": rates, "n_samples": 400_000, "project": False}
    model = make_cones(F, K, alpha, **options, rng=rng)
    weights = (1 - f(alpha) - f(alpha) / (F - 1)) / rates / K
    expected = (f(alpha) / rates).sum() / (K * (F - 1)) * np.eye(F)
    expected += (model.axes * weights) @ model.axes.T
    moment = model.V @ model.V.T / model.V.shape[1]
    np.testing.assert_allclose(moment, expected, atol=0.01 * np.abs(expected).max())


def test_theorem_9_the_eigenvalues_of_the_second_moment():
    alpha, beta, K, F = 0.2, 0.9, 4, 30
    model = make_cones(
        F, K, alpha, angle=beta, rates=np.ones(K), n_samples=300_000, project=False,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    a = f(alpha) / (F - 1)
    b = (1 - f(alpha) - a) / K
    values = np.linalg.eigvalsh(model.V @ model.V.T / model.V.shape[1])[::-1]
    assert values[0] == pytest.approx(a + b * (1 + (K - 1) * np.cos(beta)), rel=0.02)
    np.testing.assert_allclose(values[1:K], a + b * (1 - np.cos(beta)), rtol=0.03)
    np.testing.assert_allclose(values[K:], a, rtol=0.05)


def rotate(u, towards, angle):
    """A unit vector, rotated by an angle."""
    side = towards - u * (u @ towards)
    return np.cos(angle) * u + np.sin(angle) * side / np.linalg.norm(side)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_lemma_10_cones_in_the_orthant(rng):
    u = rng.random(int(rng.integers(2, 8))) + 0.01
    u /= np.linalg.norm(u)
    alpha = largest_angle_in_orthant(3 * u)
    assert rotate(u, rng.standard_normal(u.size), alpha).min() >= -1e-12
    nearest_face = -np.eye(u.size)[np.argmin(u)]
    assert rotate(u, nearest_face, alpha * 1.01 + 1e-6).min() < 0
    assert largest_angle_in_orthant([2.0]) == pytest.approx(np.pi / 2)  # one dimension


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.05), (0.02, 0.01)])
def test_sample_size_is_enough(epsilon, delta, rng):
    angles, rates, weights = [0.2, 0.3, 0.1], [1.0, 0.2, 3.0], [0.5, 0.2, 0.3]
    N = sample_size(angles, rates, epsilon=epsilon, delta=delta, weights=weights)
    k = rng.choice(3, (2000, N), p=weights)
    squared_norms = rng.exponential(1 / np.take(rates, k))
    sines = np.sin(rng.random((2000, N)) * np.take(angles, k)) ** 2
    errors = np.sqrt((squared_norms * sines).sum(axis=1) / squared_norms.sum(axis=1))
    limit = probabilistic_bound(angles, rates, weights)
    assert (errors > limit + epsilon).mean() <= delta
    assert (errors > limit + epsilon / 3).mean() > delta  # it is not idle either


def test_sample_size_is_monotone_and_one_when_the_deterministic_bound_suffices():
    sizes = [sample_size([0.3] * 3, [1.0] * 3, epsilon=e, delta=0.1) for e in (0.1, 0.03, 0.01)]
    assert sizes == sorted(sizes)
    assert sample_size([0.3], [1.0], epsilon=0.2, delta=0.01) == 1


def test_sample_size_is_enough_from_below():
    """Theorem 8: with the true clusters the error stays near the bound, on both sides."""
    angles, rates, F = np.array([0.3, 0.2]), np.array([1.0, 0.5]), 4
    options = {"epsilon": 0.04, "delta": 0.1}
    N = sample_size(angles, rates, **options, F=F)
    assert N > sample_size(angles, rates, **options)
    limit = probabilistic_bound(angles, rates)
    errors = []
    for seed in range(60):
        model = make_cones(
            F, 2, angles, angle=1.2, rates=rates, n_samples=N, project=False,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        clusters = [model.V[:, model.labels == k] for k in range(2)]
        kept = sum(np.linalg.norm(cluster, 2) ** 2 for cluster in clusters)
        errors.append(np.sqrt(1 - kept / (model.V**2).sum()))
    assert np.abs(np.array(errors) - limit).max() <= 0.04
    assert sample_size(angles, rates, epsilon=0.5, delta=0.1, F=F) == 1


def test_sample_size_from_below_by_hand():
    """One cone: E exp(theta l (c - t)) = g / (1 - theta (1 - t)) + f / (1 + theta t)."""
    alpha, F, epsilon, delta = 0.2, 10, 0.05, 0.02
    g, t = 1 - f(alpha), 1 - (np.sqrt(f(alpha)) - epsilon) ** 2
    theta = np.linspace(0, 1 / (1 - t), 10**6, endpoint=False)
    moment = g / (1 - theta * (1 - t)) + f(alpha) / (1 + theta * t)
    expected = np.log(F * 2 / delta) / -np.log(moment.min())
    found = sample_size([alpha], [1.0], epsilon=epsilon, delta=delta, F=F)
    assert found == pytest.approx(expected, abs=1.5)


def test_every_cone_needs_the_logarithm_of_the_number_of_features():
    """The matrices of K cones have F eigenvalues each."""
    angles, rates, options = [0.2, 0.3, 0.25], [1.0, 2.0, 0.5], {"epsilon": 0.02, "delta": 0.05}
    sizes = np.array([sample_size(angles, rates, **options, F=F) for F in (10, 100, 10**6)])
    chances = np.log(2 / 0.05) + 3 * np.log([10, 100, 10**6])
    np.testing.assert_allclose(sizes / chances, sizes[0] / chances[0], rtol=1e-3)


def test_theorem_9_asks_for_a_tiny_epsilon():
    """The paper's Figure 3, by hand: f = 0.02946, a = 1.842e-5, b = 0.02426, beta = 1.21."""
    a, drop = 0.0294646 / 1599, (1 - 0.0294646 - 1.8427e-5) / 40 * (1 - np.cos(1.21))
    epsilon = rank_epsilon(1600, 40, 0.3, 1.21)
    assert epsilon == pytest.approx(a * drop / (4 * a + drop), rel=1e-5)
    assert 1600 / epsilon**2 == pytest.approx(4.8e12, rel=0.02)
    assert rank_epsilon(1600, 40, 0.3, 1.21, rate=4.0) == pytest.approx(epsilon / 4)
    for factor, holds in ((0.9999, True), (1.0001, False)):  # the condition of the appendix
        e = factor * epsilon
        assert ((a + e) / (a - e) < (a + drop - e) / (a + e)) == holds


def test_rank_sample_size_is_enough():
    F, K, alpha, beta = 12, 3, 0.3, 0.9
    N = rank_sample_size(F, K, alpha, beta, delta=0.1)
    assert N < 1e-3 * F / rank_epsilon(F, K, alpha, beta) ** 2
    a = f(alpha) / (F - 1)
    ratio = np.sqrt(1 + (1 - f(alpha) - a) / K * (1 - np.cos(beta)) / a)
    eta = (ratio - 1) / (ratio + 1)
    for seed in range(30):
        model = make_cones(
            F, K, alpha, angle=beta, rates=np.ones(K), n_samples=N, project=False,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        moment = a * np.eye(F) + (1 - f(alpha) - a) / K * model.axes @ model.axes.T
        white = np.linalg.inv(np.linalg.cholesky(moment)) @ model.V / np.sqrt(N)
        values = np.linalg.eigvalsh(white @ white.T)
        assert 1 - eta < values.min() <= values.max() < 1 + eta
        values = np.linalg.svd(model.V, compute_uv=False)
        assert np.argmax(values[1:-1] / values[2:]) + 2 == K


def test_tiny_angles_and_tiny_epsilons():
    for alpha in (1e-8, 1e-4, 9.9e-3, 1.01e-2):
        assert probabilistic_bound([alpha], [1.0]) == pytest.approx(
            alpha / np.sqrt(3) * (1 - alpha**2 / 10), rel=1e-7
        )
    coarse = sample_size([0.2] * 5, [1.0] * 5, epsilon=1e-4, delta=0.01)
    fine = sample_size([0.2] * 5, [1.0] * 5, epsilon=1e-6, delta=0.01)
    assert fine / coarse == pytest.approx(1e4, rel=0.02)
    assert sample_size([0.2, 0.05], [1e9, 1e9], epsilon=0.01, delta=0.01) > 1

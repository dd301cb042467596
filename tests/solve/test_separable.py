"""Separable data, and the statements of "Near-separable data" in docs/theory.md."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import from_columns, make_cones
from conenmf.cones.bounds import deterministic_bound
from conenmf.errors import ComponentsError
from conenmf.solve.coefficients import coefficients
from conenmf.solve.separable import nnls_in_simplex, snpa, spa
from conenmf.solve.theorems import separable_bound

SEEDS = st.integers(0, 10**7)


def separable(seed, F=12, K=4, N=60):
    """Data in which the components themselves occur, at known places."""
    rng = np.random.default_rng(seed)
    W = rng.random((F, K)) ** 3
    H = rng.dirichlet(np.full(K, 0.5), N).T
    places = rng.choice(N, K, replace=False)
    H[:, places] = np.eye(K)
    return W @ H, places


@pytest.mark.parametrize("method", [spa, snpa])
@given(seed=st.integers(0, 10**6))
def test_separable_data_are_solved_exactly(method, seed):
    V, places = separable(seed)
    assert set(method(from_columns(V), 4).tolist()) == set(places.tolist())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("method", [spa, snpa])
def test_every_storage_gives_the_same_samples(method, backend, small_blocks, sample_matrix):
    plain = method(from_columns(sample_matrix, **small_blocks), 5)
    np.testing.assert_array_equal(method(backend(sample_matrix), 5), plain)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_lazy_spa_is_the_plain_one(rng):
    V = rng.random((10, 40))
    R, indices = V.copy(), []
    for _ in range(6):
        indices.append(int(np.argmax((R**2).sum(axis=0))))
        q = R[:, indices[-1]] / np.linalg.norm(R[:, indices[-1]])
        R = R - np.outer(q, q @ R)
    assert spa(from_columns(V), 6).tolist() == indices


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_projection_onto_the_simplex_is_optimal(rng):
    W, V = rng.random((8, 3)), 2 * rng.random((8, 10))
    H = nnls_in_simplex(W.T @ W, V.T @ W)
    assert H.min() >= 0
    assert H.sum(axis=1).max() <= 1 + 1e-9
    for _ in range(20):  # no point of the simplex is closer
        other = rng.dirichlet(np.ones(4), 10)[:, :3]
        assert (
            ((V - W @ H.T) ** 2).sum(axis=0) <= ((V - W @ other.T) ** 2).sum(axis=0) + 1e-9
        ).all()


def test_spa_is_limited_by_dimensions_and_snpa_is_not(refuses):
    angles = np.linspace(0, np.pi / 2, 7)
    V = from_columns([np.cos(angles), np.sin(angles)])
    refuses(ComponentsError, "only 2 linearly independent samples", lambda: spa(V, 3))
    assert len(set(snpa(V, 7).tolist())) == 7


@pytest.mark.parametrize("method", [spa, snpa])
def test_no_sample_is_chosen_twice(method, refuses):
    V = from_columns(np.diag([1e-3, 1.0, 3e-7]))
    assert method(V, 3).tolist() == [1, 0, 2]
    doubled = from_columns(np.repeat(np.eye(3), 3, axis=1))
    assert sorted(method(doubled, 3).tolist()) == [0, 3, 6]
    refuses(ComponentsError, "the data have only 3 .* fewer than the 4", lambda: method(V, 4))


# --- near-separable data ---


def relative_error(V, W):
    return np.sqrt(coefficients(V, W)[2] / V.total)


def near_separable(seed, share):
    """W [I, H] + noise, of a given share of the noise at which SPA is certain."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 6))
    W = rng.random((20, K)) + 5 * np.eye(20)[:, :K]
    H = rng.dirichlet(np.full(K, 0.5), 60).T * rng.random(60)
    clean = W @ np.hstack([np.eye(K), H])
    sigma = np.linalg.svd(W, compute_uv=False)[-1]
    condition = np.linalg.norm(W, axis=0).max() / sigma
    limit = sigma * min(0.5 / np.sqrt(K - 1), 0.25) / (1 + 80 * condition**2)
    E = rng.standard_normal(clean.shape)
    E *= share * limit / np.linalg.norm(E, axis=0).max()
    return W, np.maximum(clean + E, 0), share * limit, condition, K


@settings(max_examples=60)
@given(SEEDS, st.floats(0.01, 0.99))
def test_samples_chosen_by_successive_projection_have_a_bounded_error(seed, share):
    W, X, epsilon, condition, K = near_separable(seed, share)
    V = from_columns(X)
    chosen = spa(V, K)
    components = X[:, chosen]
    apart = np.linalg.norm(components[:, :, None] - W[:, None, :], axis=0).min(axis=0)
    assert apart.max() <= epsilon * (1 + 80 * condition**2)
    bound = np.sqrt(X.shape[1]) * epsilon * (2 + 80 * condition**2) / V.norm
    assert relative_error(V, components) <= bound


@settings(max_examples=60)
@given(SEEDS.map(np.random.default_rng))
def test_the_error_of_any_samples_is_bounded_a_posteriori(rng):
    X = rng.random((8, 30)) ** 2
    V = from_columns(X)
    chosen = rng.choice(30, int(rng.integers(1, 8)), replace=False)
    bound = separable_bound(V, chosen)
    error = relative_error(V, X[:, chosen])
    assert error <= bound.error + 1e-9
    assert bound.error <= np.sqrt(30) * bound.noise / V.norm + 1e-9


@settings(max_examples=30)
@given(SEEDS)
def test_the_guarantee_of_spa_holds_for_its_choice(seed):
    _, X, _, _, K = near_separable(seed, 0.2)
    V = from_columns(X)
    chosen = spa(V, K)
    bound = separable_bound(V, chosen)
    if np.isfinite(bound.spa_error):
        assert bound.noise < bound.spa_noise
        assert relative_error(V, X[:, chosen]) <= bound.spa_error


def test_the_noise_that_spa_bears_follows_from_the_chosen_samples():
    """The theorem of Gillis and Vavasis; from K = 6 on, the number of components limits it."""
    for K in (1, 3, 8):
        V, places = separable(0, K=K)
        W = V[:, places]
        bound = separable_bound(from_columns(V), places)
        smallest = np.linalg.svd(W, compute_uv=False)[-1]
        longest = np.linalg.norm(W, axis=0).max()
        share = 0.25 if K < 6 else 0.5 / np.sqrt(K - 1)
        noise = smallest * share / (1 + 80 * (longest / smallest) ** 2)
        assert bound.spa_noise == pytest.approx(noise)
        assert bound.condition == pytest.approx(longest / smallest)


def test_cones_are_near_separable():
    """The error from samples is at least that of axes, which Theorem 4 bounds."""
    model = make_cones(40, 4, 0.1, n_samples=300, rng=np.random.default_rng(0))
    unit = model.V / np.linalg.norm(model.V, axis=0)
    V = from_columns(unit)
    chosen = [int(np.flatnonzero(model.labels == k)[0]) for k in range(4)]
    bound = separable_bound(V, chosen)
    twice = 2 * np.sin(0.1)  # two unit vectors of a cone of size angle 0.1 are no farther apart
    assert bound.noise <= twice
    assert deterministic_bound(V, unit[:, chosen], model.labels) <= np.sin(0.2) + 1e-9


def test_the_bound_is_the_same_on_every_storage(main_backend, sample_matrix):
    expected = separable_bound(from_columns(sample_matrix), [1, 2, 4])
    found = separable_bound(main_backend(sample_matrix), [1, 2, 4])
    assert (found.error, found.noise) == pytest.approx((expected.error, expected.noise))

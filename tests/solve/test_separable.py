import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import from_columns
from conenmf.errors import ComponentsError
from conenmf.solve.separable import nnls_in_simplex, snpa, spa


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
def test_every_storage(method, backend, small_blocks, sample_matrix):
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
    refuses(ComponentsError, "there are 3 samples, fewer than the 4", lambda: method(V, 4))

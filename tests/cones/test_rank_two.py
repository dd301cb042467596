"""The best two components: optimal where Eckart and Young allow it, never worse than others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import from_columns
from conenmf.cones.geometry import leading_plane, rank_two_factors
from conenmf.errors import ComponentsError
from conenmf.linalg.nnls import nnls


def make_data(seed):
    """Two components and noise, some entries missing, sometimes of rank one or in two blocks."""
    rng = np.random.default_rng(seed)
    F, N = rng.integers(2, 12, 2)
    V = rng.random((F, 2)) @ rng.random((2, N)) + rng.uniform(0, 1) * rng.random((F, N))
    if seed % 4 == 0:
        V = np.where(rng.random(V.shape) < 0.7, V, 0.0)
    if seed % 10 == 5:
        V = np.outer(V[:, 0], V[0])
    if seed % 10 == 7:  # two equal singular values
        V = np.kron(np.eye(2), V)
    V[0, 0] += 0.01
    return V


def best_of_rank_two(V):
    u, sigma, v = np.linalg.svd(V)
    return (u[:, :2] * sigma[:2]) @ v[:2]


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6))
def test_the_error_is_that_of_eckart_and_young_where_the_rank_two_part_is_nonnegative(seed):
    V = make_data(seed)
    W, H = rank_two_factors(from_columns(V))
    assert min(W.min(), H.min()) >= 0
    part, norm = best_of_rank_two(V), np.linalg.norm(V)
    error, bound = np.linalg.norm(V - W @ H) / norm, np.linalg.norm(V - part) / norm
    plane = leading_plane(from_columns(V))
    assert error**2 == pytest.approx(bound**2 + plane.lost, abs=1e-13)
    if part.min() >= -1e-14 * norm:
        assert plane.is_nonnegative
        assert error**2 - bound**2 <= 1e-12
        assert error - bound <= 1e-10 or bound <= 1e-2
    elif part.min() < -1e-5 * norm:
        assert not plane.is_nonnegative


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_no_components_in_the_plane_are_better(seed):
    """Nonnegative combinations of its nonnegative vectors, with the best H for them."""
    V = make_data(seed)
    D = from_columns(V)
    W, H = rank_two_factors(D)
    error = np.linalg.norm(V - W @ H)
    plane, rng = leading_plane(D), np.random.default_rng(seed)
    for angles in [plane.cone, *rng.uniform(*plane.cone, (5, 2))]:
        other = np.maximum(plane.vectors @ np.array([np.cos(angles), np.sin(angles)]), 0.0)
        best = nnls(other.T @ other, V.T @ other).T
        assert error <= np.linalg.norm(V - other @ best) + 1e-9


def test_a_negative_part_is_moved_to_the_border():
    """Of three features in turn, the rank-2 part has negative entries."""
    V = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
    assert best_of_rank_two(V).min() < -0.1
    plane = leading_plane(from_columns(V))
    assert not plane.is_nonnegative
    assert plane.rays == plane.cone
    W, H = rank_two_factors(from_columns(V))
    assert W.min() == 0
    np.testing.assert_allclose(H, nnls(W.T @ W, V.T @ W).T, atol=1e-12)


def test_data_of_rank_one_have_one_direction():
    V = np.outer([1.0, 0.0, 2.0], [3.0, 0.0, 1.0, 1.0])
    W, H = rank_two_factors(from_columns(V))
    np.testing.assert_allclose(W @ H, V, atol=1e-12)
    np.testing.assert_allclose(W[:, 0], W[:, 1], atol=1e-7)


def test_every_storage_gives_the_same_factors(main_backend, small_blocks, sample_matrix, all_close):
    found, plain = main_backend(sample_matrix), from_columns(sample_matrix)
    all_close(rank_two_factors(found), rank_two_factors(plain), atol=1e-10)


def test_one_feature_has_no_plane(refuses):
    V = from_columns([[1.0, 2.0, 3.0]])
    refuses(
        ComponentsError,
        "a 3 x 1 matrix has 1 singular values, not the 2 asked for",
        leading_plane,
        V,
    )

"""Algorithm 2: rank-one factors of clusters against the original programs, Theorem 4, Lemma 2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones.clustering import Cones
from conenmf.cones.rank_one import rank_one_factors
from conenmf.errors import ComponentsError
from conenmf.solve.inits import INITS


def svd_per_cluster(V, labels, K):
    W, H = np.zeros((V.shape[0], K)), np.zeros((K, V.shape[1]))
    for k in range(K):
        U, s, R = np.linalg.svd(V[:, labels == k], full_matrices=False)
        W[:, k], H[k, labels == k] = np.abs(U[:, 0]), s[0] * np.abs(R[0])
    return W, H


@pytest.mark.thinned(3)
def test_the_original_programs_agree(oracle, main_backend, both_twins, small_blocks, all_close):
    V, K = main_backend(oracle["V"]), int(oracle["K"])
    W, H, cones = cr1_nmf(V, K, first=int(oracle["first"]))
    np.testing.assert_array_equal(cones.labels, oracle["labels"])
    scale = oracle["cr1_H"].max()
    all_close((W, H / scale), (oracle["cr1_W"], oracle["cr1_H"] / scale), atol=2e-5)
    exact_W, exact_H = svd_per_cluster(oracle["V"], cones.labels, K)
    all_close((W, H / scale), (exact_W, exact_H / scale), atol=1e-9)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_rank_one_factors_are_leading_singular_pairs(rng):
    F, N, K = int(rng.integers(2, 12)), int(rng.integers(8, 40)), int(rng.integers(1, 4))
    V = rng.random((F, N)) ** rng.integers(1, 6)
    labels = np.concatenate([np.arange(K), rng.integers(0, K, N - K)])
    first = np.stack([V[:, k] / np.linalg.norm(V[:, k]) for k in range(K)], axis=1)
    W, H = rank_one_factors(from_columns(V), Cones(labels, np.arange(K), first, 0.0))
    for k in range(K):
        V_k, h = V[:, labels == k], H[k, labels == k]
        best = np.linalg.svd(V_k, compute_uv=False)
        error = np.linalg.norm(V_k - np.outer(W[:, k], h))
        assert error**2 <= (best[1:] ** 2).sum() * (1 + 1e-9) + 1e-12 * best[0] ** 2
        assert np.linalg.norm(W[:, k]) == pytest.approx(1)
    assert min(W.min(), H.min()) >= 0
    assert ((H > 0).sum(axis=0) <= 1).all()


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_coefficients_are_products_with_the_factors(rng):
    V = rng.random((12, 40)) ** 4 * (rng.random((12, 40)) < 0.5)
    V[0, 0] += 1
    unit = V[:, V.any(axis=0)] / np.linalg.norm(V[:, V.any(axis=0)], axis=0)
    K = int(rng.integers(1, min(6, np.unique(unit.round(10), axis=1).shape[1]) + 1))
    tol = 10.0 ** rng.integers(-12, -1)
    opened = from_columns(V)
    cones = cluster_cones(opened, K, rng=rng)
    W, H = rank_one_factors(opened, cones, tol=tol)
    expected = np.where(cones.labels == np.arange(K)[:, None], W.T @ V, 0.0)
    np.testing.assert_allclose(H, expected, atol=1e-13 * np.linalg.norm(V))
    assert min(W.min(), H.min()) >= 0


def test_one_direction_only(refuses):
    V = from_columns([[1.0, 2.0, 3.0]])  # F = 1
    W, H, cones = cr1_nmf(V, 1)
    assert cones.labels.tolist() == [0, 0, 0]
    np.testing.assert_allclose(W @ H, [[1.0, 2.0, 3.0]])
    refuses(ComponentsError, "only 1 distinct direction,", lambda: cr1_nmf(V, 2))


def test_one_sample(all_close):
    W, H, cones = cr1_nmf(from_columns([[3.0], [4.0]]), 1)
    all_close((W, H), ([[0.6], [0.8]], [[5.0]]))
    assert cones.centres.tolist() == [0]


def test_as_many_components_as_samples():
    V = np.random.default_rng(0).random((9, 6))
    W, H, cones = cr1_nmf(from_columns(V), 6)
    assert sorted(cones.labels.tolist()) == list(range(6))
    np.testing.assert_allclose(W @ H, V, rtol=1e-12)


def test_a_first_vector_orthogonal_to_nothing_is_enough_when_a_cone_splits():
    """Two orthogonal clusters in one cone: the heavier one wins, with exact zeros elsewhere."""
    V = np.zeros((4, 6))
    V[:2, :4], V[2:, 4:] = 1.0, 0.5
    first = np.full((4, 1), 0.5)
    cones = Cones(np.zeros(6, int), np.array([0]), first, 0.0)
    W, H = rank_one_factors(from_columns(V), cones)
    np.testing.assert_allclose(W[:, 0], [np.sqrt(0.5), np.sqrt(0.5), 0, 0], atol=1e-9)
    assert H.shape == (1, 6)


@given(seed=st.integers(0, 10**6), size=st.floats(1e-6, 3.0))
def test_lemma_2_singular_values_move_no_more_than_the_perturbation(seed, size):
    rng = np.random.default_rng(seed)
    F, N = rng.integers(1, 7, 2)
    A = rng.random((F, N)) if seed % 2 else np.outer(rng.random(F), rng.random(N))
    E = size * rng.standard_normal((F, N))
    before, after = (np.linalg.svd(M, compute_uv=False) for M in (A, A + E))
    assert ((after - before) ** 2).sum() <= np.linalg.norm(E) ** 2 * (1 + 1e-9) + 1e-14
    assert np.abs(after - before).max() <= np.linalg.norm(E, 2) * (1 + 1e-9) + 1e-14
    if seed % 2 == 0:  # rank one, as in the proof of Theorem 4
        assert (after[1:] ** 2).sum() <= np.linalg.norm(E) ** 2 * (1 + 1e-9)


def test_rank_one_nmf_is_better_than_a_mean_direction():
    """The example of Section VI-B2: errors 1 and 1.0954."""
    V = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    w, u = cr1_nmf(from_columns(V), 1)[0], INITS["spkm"](from_columns(V), 1, None)[0]
    assert np.linalg.norm(V - w @ w.T @ V) == pytest.approx(1.0)
    assert np.linalg.norm(V - u @ u.T @ V) == pytest.approx(1.0954, abs=5e-5)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_theorem_4_the_error_is_at_most_the_largest_sine(rng):
    V = rng.random((8, 30)) ** 3
    W, H, cones = cr1_nmf(from_columns(V), int(rng.integers(1, 6)), rng=rng)
    norms = np.linalg.norm(V, axis=0)
    cosines = np.einsum("fn,fn->n", V, W[:, cones.labels]) / norms
    sines = np.sqrt(np.maximum(1 - cosines**2, 0))
    error = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    assert error == pytest.approx(np.sqrt((norms**2 * sines**2).sum() / (norms**2).sum()))
    assert error <= sines.max() + 1e-12


def test_every_storage_gives_the_same_labels_and_factors(
    backend, small_blocks, sample_matrix, all_close
):
    W, H, cones = cr1_nmf(backend(sample_matrix), 5)
    W0, H0, cones0 = cr1_nmf(from_columns(sample_matrix), 5)
    all_close((cones.labels, cones.centres), (cones0.labels, cones0.centres), rtol=0)
    all_close((W, H), (W0, H0), atol=1e-10)


def test_float32_stays_float32():
    V = make_cones(50, 3, 0.2, n_samples=100, rng=np.random.default_rng(0)).V
    W, H, cones = cr1_nmf(from_columns(V.astype(np.float32)), 3)
    exact_W, exact_H, exact = cr1_nmf(from_columns(V), 3)
    assert W.dtype == H.dtype == np.float32
    np.testing.assert_array_equal(cones.labels, exact.labels)
    np.testing.assert_allclose(W, exact_W, atol=1e-6)
    np.testing.assert_allclose(H, exact_H, atol=1e-5)


def test_cones_of_tiny_samples_beside_ordinary_ones(all_close):
    """||V_k||^4 leaves the range of float64, ||V_k||^2 does not."""
    model = make_cones(8, 2, 0.1, n_samples=60, rng=np.random.default_rng(0))
    labels = cluster_cones(from_columns(model.V), 2).labels
    sizes = np.where(labels == labels[0], 1.0, 1e-90)
    W, H, _ = cr1_nmf(from_columns(model.V), 2)
    tiny_W, tiny_H, _ = cr1_nmf(from_columns(model.V * sizes), 2)
    all_close((tiny_W, tiny_H / sizes), (W, H), atol=1e-5)

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones import clustering as cones_module
from conenmf.cones.clustering import Cones, rank_one_factors
from conenmf.errors import (
    ComponentsError,
    NotADataMatrixError,
    OptionError,
    ShapeError,
    ZeroDataError,
)

ORACLE = sorted((Path(__file__).parents[1] / "oracle").glob("case*.npz"))


def plain_algorithm_1(V, K, first):
    """The paper's two loops, one cosine at a time; ties within rounding to the lowest index."""
    V = V.astype(float)
    tie = 8 * np.finfo(float).eps * np.sqrt(V.shape[0])
    norms = np.linalg.norm(V, axis=0)
    samples = [n for n in range(V.shape[1]) if norms[n] > 0]
    unit = {n: V[:, n] / norms[n] for n in samples}
    centres = [first]
    for _ in range(K - 1):
        largest = {n: max(float(unit[i] @ unit[n]) for i in centres) for n in samples}
        smallest = min(largest.values())
        centres.append(min(n for n in samples if largest[n] <= smallest + tie))
    labels = np.full(V.shape[1], -1)
    for n in samples:
        cosines = [float(unit[i] @ unit[n]) for i in centres]
        labels[n] = min(k for k in range(K) if cosines[k] >= max(cosines) - tie)
    return centres, labels


def count_directions(V):
    """Greedy count of samples that are not parallel to an earlier one."""
    kept = []
    for v in V.astype(float).T:
        if v.any():
            v = v / np.linalg.norm(v)
            if all(v @ u < 1 - 1e-12 for u in kept):
                kept.append(v)
    return len(kept)


@st.composite
def matrices(draw):
    """Matrices with ties, duplicates, zero columns: small integers; or arbitrary reals."""
    F, N = draw(st.integers(1, 6)), draw(st.integers(1, 25))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    if draw(st.booleans()):
        V = draw(hnp.arrays(np.int64, (F, N), elements=st.integers(0, 3))).astype(dtype)
    else:
        seed = draw(st.integers(0, 10**6))
        rng = np.random.default_rng(seed)
        V = (rng.random((F, N)) * (rng.random((F, N)) < 0.8)).astype(dtype)
    V[0, 0] = max(V[0, 0], 1)
    return V


@pytest.mark.parametrize("make", [np.asarray, sp.csc_array], ids=["dense", "sparse"])
@given(V=matrices(), data=st.data())
def test_lazy_algorithm_1_is_the_plain_one_centre_for_centre(make, V, data):
    K = data.draw(st.integers(1, count_directions(V)))
    first = data.draw(st.sampled_from(np.flatnonzero(V.any(axis=0)).tolist()))
    cones = cluster_cones(from_columns(make(V)), K, first=first)
    centres, labels = plain_algorithm_1(V, K, first)
    assert cones.centres.tolist() == centres
    assert cones.labels.tolist() == labels.tolist()


@pytest.mark.parametrize(("seed", "dtype"), [(0, np.float32), (1, np.float64)])
def test_lazy_is_plain_on_larger_matrices(main_backend, small_blocks, seed, dtype):
    V = make_cones(40, 6, 0.2, n_samples=300, noise=0.05, rng=np.random.default_rng(seed)).V
    V = V.astype(dtype)
    centres, labels = plain_algorithm_1(V, 25, 7)
    cones = cluster_cones(main_backend(V), 25, first=7)
    assert cones.centres.tolist() == centres
    assert np.asarray(cones.labels).tolist() == labels.tolist()


def test_it_reads_far_less_than_one_pass_per_centre():
    V = from_columns(make_cones(200, 20, 0.2, n_samples=2000, rng=np.random.default_rng(0)).V)
    before = V.passes
    cluster_cones(V, 20)
    assert V.passes - before < 5  # the plain form takes 20


@given(seed=st.integers(0, 10**7))
def test_lemma_1_clusters_are_the_true_cones(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 7))
    angles = rng.uniform(0.01, 0.25, K)
    largest, second = np.sort(angles)[::-1][:2]
    apart = 3 * largest + second + rng.uniform(1e-3, 0.1)  # barely more than is assumed
    model = make_cones(80, K, angles, angle=apart, n_samples=150, rng=rng)
    assume(np.unique(model.labels).size == K)
    labels = cluster_cones(from_columns(model.V), K, rng=rng).labels
    pairs = set(zip(model.labels.tolist(), labels.tolist(), strict=True))
    assert len(pairs) == len({true for true, _ in pairs})
    assert len(pairs) == len({found for _, found in pairs})


@given(seed=st.integers(0, 10**7), block=st.integers(1, 60))
def test_one_pass_finds_every_cone(seed, block):
    """Blocks that see some of the cones only, in any order, lead to the true cones."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 7))
    angles = rng.uniform(0.01, 0.25, K)
    largest, second = np.sort(np.append(angles, 0.0))[::-1][:2]
    apart = 3 * largest + second + rng.uniform(1e-3, 0.1)
    model = make_cones(80, K, angles, angle=apart, n_samples=150, rng=rng)
    assume(np.unique(model.labels).size == K)
    order = np.argsort(model.labels) if seed % 2 else np.arange(150)  # one cone after the other
    V = from_columns(model.V[:, order])
    V.block_samples = block
    before = V.passes
    cones = cluster_cones(V, K, method="one-pass", rng=rng)
    assert V.passes - before == 2.0  # one to choose, one to label
    pairs = set(zip(model.labels[order].tolist(), cones.labels.tolist(), strict=True))
    assert len(pairs) == K
    assert cones.labels[cones.centres].tolist() == list(range(K))
    W, H, again = cr1_nmf(V, K, method="one-pass", first=int(cones.centres[0]))
    assert again.centres.tolist() == cones.centres.tolist()
    exact = cr1_nmf(V, K)
    assert np.linalg.norm(W @ H - exact[0] @ exact[1]) <= 1e-6 * V.norm


def test_one_pass_on_every_storage(main_backend, small_blocks, sample_matrix):
    cones = cluster_cones(main_backend(sample_matrix), 5, first=3, method="one-pass")
    assert cones.centres[0] == 3
    assert len(set(cones.centres.tolist())) == 5
    directions = sample_matrix[:, cones.centres]
    np.testing.assert_allclose(
        cones.directions, directions / np.linalg.norm(directions, axis=0), atol=1e-14
    )
    with pytest.raises(ComponentsError, match="only 1 distinct direction,"):
        cluster_cones(main_backend(np.outer(np.ones(12), np.arange(40.0))), 2, method="one-pass")
    with pytest.raises(OptionError, match="method='two-pass' is unknown"):
        cluster_cones(main_backend(sample_matrix), 5, method="two-pass")


@given(seed=st.integers(0, 10**6))
def test_the_radius_certifies_the_clustering(seed):
    rng = np.random.default_rng(seed)
    V = rng.random((5, 12)) * (rng.random((5, 12)) < 0.7)
    V[0, 0] += 1
    K = int(rng.integers(1, min(4, count_directions(V)) + 1))
    cones = cluster_cones(from_columns(V), K, rng=rng)
    unit = V[:, V.any(axis=0)] / np.linalg.norm(V[:, V.any(axis=0)], axis=0)
    angles = np.arccos(np.clip(unit.T @ unit, -1, 1))
    labels = cones.labels[V.any(axis=0)]
    assert angles[labels[:, None] == labels].max() <= 2 * cones.radius + 1e-6
    for _ in range(20):  # no other clustering has all its angular diameters below the radius
        other = rng.integers(0, K, labels.size)
        assert angles[other[:, None] == other].max() >= cones.radius - 1e-6


def test_zero_columns_belong_to_no_cone(backend, sample_matrix):
    V = backend(sample_matrix)
    cones = cluster_cones(V, 4)
    zero = ~sample_matrix.any(axis=0)
    np.testing.assert_array_equal(cones.labels == -1, zero)
    assert (cones.cosines[zero] == 0).all()
    W, H = rank_one_factors(V, cones)
    assert (H[:, zero] == 0).all()
    assert (W[5] == 0).all()


def test_the_first_centre(sample_matrix):
    V = from_columns(sample_matrix)
    longest = int(np.argmax(V.norms_squared))
    assert cluster_cones(V, 3).centres[0] == longest
    assert cluster_cones(V, 3, first=9).centres[0] == 9
    drawn = {int(cluster_cones(V, 1, rng=np.random.default_rng(s)).centres[0]) for s in range(60)}
    assert len(drawn) > 20
    assert not drawn & {0, 17}
    for first in (17, 40, -1):
        with pytest.raises(OptionError, match=f"first={first} is not the index of a nonzero"):
            cluster_cones(V, 3, first=first)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_fewer_directions_than_components(K):
    V = from_columns([[1.0, 2.0, 0.0, 0.0, 3.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    if K <= 2:
        assert cluster_cones(V, K).labels.max() == K - 1
        return
    with pytest.raises(ComponentsError, match=r"only 2 distinct directions.*use at most 2"):
        cluster_cones(V, K)


def test_one_direction_only():
    V = from_columns([[1.0, 2.0, 3.0]])  # F = 1
    W, H, cones = cr1_nmf(V, 1)
    assert cones.labels.tolist() == [0, 0, 0]
    np.testing.assert_allclose(W @ H, [[1.0, 2.0, 3.0]])
    with pytest.raises(ComponentsError, match="only 1 distinct direction,"):
        cr1_nmf(V, 2)
    with pytest.raises(ComponentsError, match="3 nonzero samples, fewer than the 1000000000"):
        cr1_nmf(V, 10**9)


def test_one_sample():
    W, H, cones = cr1_nmf(from_columns([[3.0], [4.0]]), 1)
    np.testing.assert_allclose(W, [[0.6], [0.8]])
    np.testing.assert_allclose(H, [[5.0]])
    assert cones.centres.tolist() == [0]


def test_as_many_components_as_samples():
    V = np.random.default_rng(0).random((9, 6))
    W, H, cones = cr1_nmf(from_columns(V), 6)
    assert sorted(cones.labels.tolist()) == list(range(6))
    np.testing.assert_allclose(W @ H, V, rtol=1e-12)


@pytest.mark.parametrize("K", [0, -3, 2.0, True, None, "4"])
def test_bad_number_of_components(K, sample_matrix):
    with pytest.raises(ComponentsError, match="the number of components is"):
        cluster_cones(from_columns(sample_matrix), K)


def test_bare_arrays_and_zeros_are_refused():
    with pytest.raises(NotADataMatrixError):
        cluster_cones(np.ones((3, 3)), 1)
    with pytest.raises(ZeroDataError):
        cluster_cones(from_columns(np.zeros((3, 3))), 1)


# --- Algorithm 2 ------------------------------------------------------------------------------


def svd_per_cluster(V, labels, K):
    W, H = np.zeros((V.shape[0], K)), np.zeros((K, V.shape[1]))
    for k in range(K):
        U, s, R = np.linalg.svd(V[:, labels == k], full_matrices=False)
        W[:, k], H[k, labels == k] = np.abs(U[:, 0]), s[0] * np.abs(R[0])
    return W, H


@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.stem)
def test_the_original_programs_agree(path, main_backend, both_twins, small_blocks):
    case = np.load(path)
    V, K = main_backend(case["V"]), int(case["K"])
    W, H, cones = cr1_nmf(V, K, first=int(case["first"]))
    np.testing.assert_array_equal(cones.labels, case["labels"])
    np.testing.assert_allclose(W, case["cr1_W"], atol=2e-5)
    np.testing.assert_allclose(H, case["cr1_H"], atol=2e-5 * case["cr1_H"].max())
    exact_W, exact_H = svd_per_cluster(case["V"], cones.labels, K)
    np.testing.assert_allclose(W, exact_W, atol=1e-9)
    np.testing.assert_allclose(H, exact_H, atol=1e-9 * exact_H.max())


@given(seed=st.integers(0, 10**6))
def test_rank_one_factors_are_leading_singular_pairs(seed):
    rng = np.random.default_rng(seed)
    F, N, K = int(rng.integers(2, 12)), int(rng.integers(8, 40)), int(rng.integers(1, 4))
    V = rng.random((F, N)) ** rng.integers(1, 6)
    labels = np.concatenate([np.arange(K), rng.integers(0, K, N - K)])
    start = np.stack([V[:, k] / np.linalg.norm(V[:, k]) for k in range(K)], axis=1)
    W, H = rank_one_factors(from_columns(V), Cones(labels, np.arange(K), start, np.ones(N)))
    for k in range(K):
        V_k, h = V[:, labels == k], H[k, labels == k]
        best = np.linalg.svd(V_k, compute_uv=False)
        error = np.linalg.norm(V_k - np.outer(W[:, k], h))
        assert error**2 <= (best[1:] ** 2).sum() * (1 + 1e-9) + 1e-12 * best[0] ** 2
        assert np.linalg.norm(W[:, k]) == pytest.approx(1)
    assert W.min() >= 0
    assert H.min() >= 0
    assert ((H > 0).sum(axis=0) <= 1).all()


@given(seed=st.integers(0, 10**6), kept=st.sampled_from([1, 3, 8]))
def test_coefficients_are_products_with_the_factors(seed, kept):
    """Whether they are put together from earlier products, or taken in a pass of their own."""
    rng = np.random.default_rng(seed)
    V = rng.random((12, 40)) ** 4 * (rng.random((12, 40)) < 0.5)
    V[0, 0] += 1
    K = int(rng.integers(1, min(6, count_directions(V)) + 1))
    with mock.patch.object(cones_module, "_KEPT", kept):
        W, H, cones = cr1_nmf(from_columns(V), K, tol=10.0 ** rng.integers(-12, -1), rng=rng)
    expected = np.where(cones.labels == np.arange(K)[:, None], W.T @ V, 0.0)
    np.testing.assert_allclose(H, expected, atol=1e-13 * np.linalg.norm(V))
    assert W.min() >= 0
    assert H.min() >= 0


def test_cones_of_other_data(sample_matrix):
    cones = cluster_cones(from_columns(sample_matrix), 3)
    with pytest.raises(ShapeError, match="directions of 12 features, the data have 11"):
        rank_one_factors(from_columns(sample_matrix[1:]), cones)
    with pytest.raises(ShapeError, match="expected 39 integers"):
        rank_one_factors(from_columns(sample_matrix[:, 1:]), cones)


def test_a_start_orthogonal_to_nothing_is_enough_when_a_cone_splits():
    """Two orthogonal groups in one cone: the heavier one wins, with exact zeros elsewhere."""
    V = np.zeros((4, 6))
    V[:2, :4], V[2:, 4:] = 1.0, 0.5
    start = np.full((4, 1), 0.5)
    cones = Cones(np.zeros(6, int), np.array([0]), start, np.ones(6))
    W, H = rank_one_factors(from_columns(V), cones)
    np.testing.assert_allclose(W[:, 0], [np.sqrt(0.5), np.sqrt(0.5), 0, 0], atol=1e-9)
    assert H.shape == (1, 6)


@given(seed=st.integers(0, 10**6))
def test_theorem_4_the_error_is_at_most_the_largest_sine(seed):
    rng = np.random.default_rng(seed)
    V = rng.random((8, 30)) ** 3
    K = int(rng.integers(1, 6))
    W, H, cones = cr1_nmf(from_columns(V), K, rng=rng)
    norms = np.linalg.norm(V, axis=0)
    cosines = np.einsum("fn,fn->n", V, W[:, cones.labels]) / norms
    sines = np.sqrt(np.maximum(1 - cosines**2, 0))
    error = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    assert error == pytest.approx(np.sqrt((norms**2 * sines**2).sum() / (norms**2).sum()))
    assert error <= sines.max() + 1e-12


def test_same_bits_for_any_number_of_threads(small_blocks):
    V = make_cones(60, 5, 0.2, n_samples=400, rng=np.random.default_rng(2)).V
    runs = [cr1_nmf(from_columns(V, n_threads=n), 5)[:2] for n in (1, 2, 4)]
    for W, H in runs[1:]:
        assert np.array_equal(W, runs[0][0])
        assert np.array_equal(H, runs[0][1])


def test_every_storage_gives_the_same_labels_and_factors(backend, small_blocks, sample_matrix):
    W, H, cones = cr1_nmf(backend(sample_matrix), 5)
    W0, H0, cones0 = cr1_nmf(from_columns(sample_matrix), 5)
    np.testing.assert_array_equal(cones.labels, cones0.labels)
    np.testing.assert_array_equal(cones.centres, cones0.centres)
    np.testing.assert_allclose(W, W0, atol=1e-10)
    np.testing.assert_allclose(H, H0, atol=1e-10)


def test_float32_stays_float32():
    V = make_cones(50, 3, 0.2, n_samples=100, rng=np.random.default_rng(0)).V
    W, H, cones = cr1_nmf(from_columns(V.astype(np.float32)), 3)
    exact_W, exact_H, exact = cr1_nmf(from_columns(V), 3)
    assert W.dtype == H.dtype == np.float32
    np.testing.assert_array_equal(cones.labels, exact.labels)
    np.testing.assert_allclose(W, exact_W, atol=1e-6)
    np.testing.assert_allclose(H, exact_H, atol=1e-5)


def test_a_sample_without_a_cone_is_refused(sample_matrix):
    V = from_columns(sample_matrix)
    cones = cluster_cones(V, 3)
    labels = cones.labels.copy()
    labels[5] = -1
    with pytest.raises(ShapeError, match="has label -1"):
        rank_one_factors(V, Cones(labels, cones.centres, cones.directions, cones.cosines))

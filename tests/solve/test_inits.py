"""Inits: each gives factors to begin with, and is what its paper says."""

import numpy as np
import pytest
import skfuzzy

from conenmf import cr1_nmf, from_columns, make_cones
from conenmf.cones.rank_one import cr1_plus_plus
from conenmf.data.resample import draw_longest, draw_weighted
from conenmf.errors import ComponentsError
from conenmf.linalg.nnls import nnls
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import (
    INITS,
    fuzzy,
    initialize,
    lift_zeros,
)
from conenmf.solve.solvers import SOLVERS

HALS, MULT, NNLSB = SOLVERS["plain-hals"], SOLVERS["mult"], SOLVERS["nnlsb"]


def rng():
    return np.random.default_rng(0)


def count(name):
    """How many components to ask of an init; of one that makes two only, two."""
    return 2 if name == "rank-two" else 4


@pytest.mark.thinned(2)
def test_nndsvd_equals_the_original_program(oracle, main_backend, small_blocks):
    W, H = INITS["nndsvd"](main_backend(oracle["V"]), int(oracle["K"]), None)
    np.testing.assert_allclose(W, oracle["nndsvd_W"], atol=1e-9)
    np.testing.assert_allclose(H, oracle["nndsvd_H"], atol=1e-9)


def test_the_first_singular_pair_is_used_as_a_whole():
    """Noise below zero in the data may give its vectors entries of both signs."""
    noise = rng().standard_normal((8, 20))
    V = np.outer(np.linspace(0, 1, 8), np.ones(20)) + 0.5 * noise
    u, sigma, v = np.linalg.svd(V)
    assert (np.sign(u[:, 0]) != np.sign(u[-1, 0])).any()
    W, H = INITS["nndsvd"](from_columns(V, negative="keep"), 2, None)
    np.testing.assert_allclose(W[:, 0], np.sqrt(sigma[0]) * np.abs(u[:, 0]), atol=1e-12)
    np.testing.assert_allclose(H[0], np.sqrt(sigma[0]) * np.abs(v[0]), atol=1e-12)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", INITS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_init_is_an_init(name, dtype, main_backend, small_blocks, sample_matrix):
    V, K = main_backend(sample_matrix.astype(dtype)), count(name)
    W, H, *_ = initialize(V, K, name, HALS, rng())
    assert (W.shape, H.shape) == ((12, K), (K, 40))
    for Y in (W, np.asarray(H)):
        assert Y.dtype == V.dtype
        assert Y.min() >= 0
        assert np.isfinite(Y).all()
    assert W.any(axis=0).all()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "name",
    sorted({*INITS} - {"nndsvdar"}),  # which fills zeros block by block
)
def test_every_storage_gives_the_same_init(name, main_backend, small_blocks, sample_matrix):
    K = count(name)
    W, H, *_ = initialize(main_backend(sample_matrix), K, name, HALS, rng())
    W0, H0, *_ = initialize(from_columns(sample_matrix, **small_blocks), K, name, HALS, rng())
    np.testing.assert_allclose(W, W0, atol=1e-10)
    np.testing.assert_allclose(H, H0, atol=1e-10)


@pytest.mark.parametrize("name", INITS)
def test_the_generator_decides(name, sample_matrix, same_factors):
    V = from_columns(sample_matrix)
    same_factors(*(initialize(V, count(name), name, HALS, rng()) for _ in range(2)))


@pytest.mark.parametrize(
    ("name", "factor", "solver"),
    [("cr1", cr1_nmf, MULT), ("cr1", cr1_nmf, HALS), ("cr1++", cr1_plus_plus, MULT)],
)
def test_the_zeros_of_cones_are_lifted(name, factor, solver, sample_matrix):
    V = from_columns(sample_matrix)
    W, H, _ = factor(V, 4, rng=rng(), tol=5e-2)
    initial = initialize(V, 4, name, solver, rng())
    np.testing.assert_array_equal(initial.W, W)
    np.testing.assert_allclose(initial.H, H + H[H > 0].mean(), rtol=1e-14)
    assert initial.name == name


def test_cr1_gives_w_alone_to_nnlsb(sample_matrix):
    V = from_columns(sample_matrix)
    initial = initialize(V, 4, "cr1", NNLSB)
    np.testing.assert_array_equal(initial.W, cr1_nmf(V, 4, tol=5e-2)[0])
    assert initial.H is None


def test_nndsvd_variants_fill_the_zeros(main_backend, sample_matrix):
    V = main_backend(sample_matrix)
    W, H = INITS["nndsvd"](V, 4, None)
    assert all((Y == 0).any() for Y in (W, np.asarray(H)))
    Wa, Ha = INITS["nndsvda"](V, 4, None)
    np.testing.assert_allclose(Wa, np.where(W == 0, sample_matrix.mean(), W))
    np.testing.assert_allclose(Ha, np.where(H == 0, sample_matrix.mean(), H))
    War, Har = INITS["nndsvdar"](V, 4, rng())
    assert War[W == 0].max() <= sample_matrix.mean() / 100
    np.testing.assert_array_equal(Har[H != 0], H[H != 0])


def test_spherical_k_means_finds_cones():
    model = make_cones(60, 3, 0.1, n_samples=200, rng=rng())
    W, _ = INITS["spkm"](from_columns(model.V), 3, np.random.default_rng(4))
    np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1)
    cosines = W.T @ model.axes
    assert (cosines.max(axis=0) > 0.95).all()


def test_k_means_finds_clusters_and_marks_them():
    centres = np.array([[0.0, 10.0, 5.0], [10.0, 0.0, 5.0]])
    labels = np.arange(60) % 3
    V = np.abs(centres[:, labels] + 0.1 * rng().standard_normal((2, 60)))
    W, H = INITS["kmeans"](from_columns(V), 3, np.random.default_rng(3))
    order = np.argsort(W[0])
    np.testing.assert_allclose(W[:, order], centres[:, [0, 2, 1]], atol=0.2)
    assert set(np.unique(H).round(6)) == {0.2, 1.2}
    assert (H.argmax(axis=0)[labels == 0] == order[0]).all()


@pytest.mark.parametrize(
    ("name", "rows", "K", "message"),
    [
        ("rank-two", 12, 3, "rank-two makes 2 components, not the 3 asked for"),
        ("spkm", 12, 39, "38 nonzero samples, fewer than the 39"),
        ("kmeans", 12, 39, "38 nonzero samples, fewer than the 39"),
    ],
)
def test_more_components_than_an_init_makes(name, rows, K, message, sample_matrix, refuses):
    V = from_columns(sample_matrix[:rows])
    refuses(ComponentsError, message, lambda: initialize(V, K, name, HALS, rng()))


# --- the user's own ---------------------------------------------------------------------------


def test_own_factors(sample_matrix):
    V = from_columns(sample_matrix)
    W, H = rng().random((12, 3)), rng().random((3, 40))
    own = initialize(V, 3, (W, H), HALS)
    np.testing.assert_array_equal(own.W, W)
    np.testing.assert_array_equal(own.H, H)
    best = nnls(W.T @ W, sample_matrix.T @ W).T
    np.testing.assert_allclose(initialize(V, 3, W, MULT).H, lift_zeros(V, best))
    own = initialize(V, 3, lambda V, K, rng: (W, None), NNLSB)
    np.testing.assert_array_equal(own.W, W)
    assert own.H is None


def test_lifting_an_empty_h():
    V = from_columns(np.eye(2))
    np.testing.assert_array_equal(lift_zeros(V, np.zeros((2, 2))), np.ones((2, 2)))


@pytest.mark.parametrize("name", ["cr1", "cr1++", "nndsvd", "rank-two", "spa", "snpa"])
def test_the_scale_of_the_data_does_not_matter(name, sample_matrix):
    scale, K = 2.0**-200, count(name)
    W, H = INITS[name](from_columns(sample_matrix), K, rng())
    W_small, H_small = INITS[name](from_columns(scale * sample_matrix), K, rng())
    if H is None:
        np.testing.assert_allclose(W_small / scale, W, rtol=1e-9)
    else:
        np.testing.assert_allclose(W_small @ H_small / scale, W @ H, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["nndsvd", "nndsvda"])
def test_the_spectrum_of_a_fit_is_used(name, same_factors):
    V = from_columns(rng().random((30, 50)))
    spectrum = Spectrum(V)
    spectrum.truncated_svd(3)  # of a small V one pass serves all requests
    before = V.passes
    initial = initialize(V, 4, name, HALS, rng(), spectrum=spectrum)
    shared = V.passes - before
    same_factors(initial, initialize(V, 4, name, HALS, rng()))
    assert V.passes - before - shared == shared + 1


@pytest.mark.parametrize("name", ["spkm", "kmeans"])
def test_clusters_that_run_empty_among_zero_samples(name):
    """A zero sample has no direction, so that it was NaN as the centroid of an empty cluster."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        V = from_columns(np.outer([1.0, 2.0, 3.0], draw.integers(0, 3, 12)) + 0.0)
        if V.nonzero >= 3:
            assert all(np.isfinite(Y).all() for Y in INITS[name](V, 3, draw))


# --- columns drawn at random ---


def data(n=200):
    draw = rng()
    V = draw.random((5, n)) * draw.exponential(1.0, n)
    V[:, ::10] = 0.0
    return V


def test_components_of_acol_are_means_of_twenty_samples():
    W, _ = INITS["acol"](from_columns(np.eye(60)), 4, rng())
    assert set(np.unique(W)) == {0.0, 1 / 20}
    np.testing.assert_allclose(W.sum(axis=0), 1)


def test_random_c_draws_from_the_longest_samples_only():
    W, _ = INITS["random-c"](from_columns(np.diag(np.arange(1.0, 101))), 3, rng())
    assert np.flatnonzero(W.any(axis=1)).min() >= 80
    W, _ = INITS["random-c"](from_columns(np.diag(np.arange(1.0, 201))), 3, rng())
    assert ((W > 0).sum(axis=0) == 20).all()  # the mean of as many of the forty longest
    sizes = 20 * W[W > 0]
    np.testing.assert_allclose(sizes, np.rint(sizes))


def test_components_of_cur_are_different_samples():
    V = data()
    W, _ = INITS["cur"](from_columns(V), 6, rng())
    chosen = [int(np.flatnonzero((V == w[:, None]).all(axis=0))[0]) for w in W.T]
    assert len(set(chosen)) == 6


def test_draws_are_in_proportion_to_squared_norms():
    V, draw = from_columns(data(12)), np.random.default_rng(1)
    counts = np.bincount([int(draw_weighted(V, 1, draw)[0]) for _ in range(4000)], minlength=12)
    expected = 4000 * np.asarray(V.norms_squared) / V.total
    assert not counts[expected == 0].any()
    kept = expected > 0
    chi_squared = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert chi_squared < 35  # 0.999 quantile of 9 degrees of freedom is 27.9


def test_the_longest_come_first(main_backend):
    V = data()
    found = np.asarray(draw_longest(main_backend(V), 7))
    np.testing.assert_array_equal(found, np.argsort(-np.linalg.norm(V, axis=0))[:7])


@pytest.mark.parametrize("init", ["acol", "random-c", "cur"])
def test_as_many_components_as_samples(init):
    W, H = INITS[init](from_columns(np.eye(3)), 3, rng())
    assert W.any(axis=0).all()
    assert H.shape == (3, 3)


# --- clusters, against independent programs ---


def clusters():
    draw = rng()
    return np.hstack([draw.random((6, 60)) + 3 * np.eye(6)[:, [k]] for k in range(3)])


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
    draw = np.random.default_rng(seed)
    rates = 30 * draw.gamma(1.0, size=(8, 3)) @ draw.dirichlet(np.ones(3), 80).T
    V = draw.poisson(rates).astype(float)
    V = V[:, V.any(axis=0)]
    W, H = INITS["kl-kmeans"](from_columns(V), 3, draw)
    labels = H.argmax(axis=0)
    for k in range(3):  # centroids are the means of their clusters
        np.testing.assert_allclose(W[:, k], V[:, labels == k].mean(axis=1), atol=1e-9)
    floored = np.maximum(W, 1e-3 * V.mean())
    best = divergence(V, floored).argmin(axis=1)
    assert np.mean(best == labels) > 0.9  # it may have stopped before the last sample settled

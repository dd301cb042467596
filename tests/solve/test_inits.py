from pathlib import Path

import numpy as np
import pytest

from conenmf import cr1_nmf, from_columns, make_cones
from conenmf.cones.rank_one import cr1_plus_plus
from conenmf.errors import ComponentsError
from conenmf.linalg.nnls import nnls
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import INITS, initialize, lift_zeros
from conenmf.solve.solvers import SOLVERS

ORACLE = sorted((Path(__file__).parents[1] / "oracle").glob("case*.npz"))
HALS, MULT, NNLSB = SOLVERS["plain-hals"], SOLVERS["mult"], SOLVERS["nnlsb"]


def rng():
    return np.random.default_rng(0)


def count(name):
    """How many components to ask of an init; of one that makes two only, two."""
    return 2 if name == "rank-two" else 4


@pytest.mark.thinned(2)
@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.stem)
def test_nndsvd_equals_the_original_program(path, main_backend, small_blocks):
    case = np.load(path)
    W, H = INITS["nndsvd"](main_backend(case["V"]), int(case["K"]), None)
    np.testing.assert_allclose(W, case["nndsvd_W"], atol=1e-9)
    np.testing.assert_allclose(H, case["nndsvd_H"], atol=1e-9)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", INITS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_init_is_an_init(name, dtype, main_backend, small_blocks, sample_matrix):
    V, K = main_backend(sample_matrix.astype(dtype)), count(name)
    W, H, *_ = initialize(V, K, name, HALS, rng())
    assert W.shape == (12, K)
    assert H.shape == (K, 40)
    assert W.dtype == H.dtype == V.dtype
    assert W.min() >= 0
    assert H.min() >= 0
    assert np.isfinite(W).all()
    assert np.isfinite(H).all()
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
def test_the_generator_decides(name, sample_matrix):
    V = from_columns(sample_matrix)
    first, second = (initialize(V, count(name), name, HALS, rng()) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_cr1_is_lifted_for_mult_and_hals_and_w_alone_goes_to_nnlsb(sample_matrix):
    V = from_columns(sample_matrix)
    W, H, _ = cr1_nmf(V, 4, tol=5e-2)
    for solver in (MULT, HALS):
        initial_W, initial_H, *_ = initialize(V, 4, "cr1", solver)
        np.testing.assert_array_equal(initial_W, W)
        np.testing.assert_allclose(initial_H, H + H[H > 0].mean(), rtol=1e-14)
    initial_W, initial_H, *_ = initialize(V, 4, "cr1", NNLSB)
    np.testing.assert_array_equal(initial_W, W)
    assert initial_H is None


@pytest.mark.parametrize("name", ["cr1", "cr1++"])
def test_the_zeros_of_cones_are_lifted(name, sample_matrix):
    V = from_columns(sample_matrix)
    factor = {"cr1": cr1_nmf, "cr1++": cr1_plus_plus}[name]
    W, H, _ = factor(V, 4, rng=rng(), tol=5e-2)
    initial = initialize(V, 4, name, MULT, rng())
    np.testing.assert_array_equal(initial.W, W)
    np.testing.assert_allclose(initial.H, H + H[H > 0].mean(), rtol=1e-14)
    assert initial.name == name


def test_nndsvd_variants_fill_the_zeros(main_backend, sample_matrix):
    V = main_backend(sample_matrix)
    W, H = INITS["nndsvd"](V, 4, None)
    assert (W == 0).any()
    assert (H == 0).any()
    Wa, Ha = INITS["nndsvda"](V, 4, None)
    np.testing.assert_allclose(Wa, np.where(W == 0, sample_matrix.mean(), W))
    np.testing.assert_allclose(Ha, np.where(H == 0, sample_matrix.mean(), H))
    War, Har = INITS["nndsvdar"](V, 4, rng())
    assert War[W == 0].max() <= sample_matrix.mean() / 100
    np.testing.assert_array_equal(Har[H != 0], H[H != 0])


def test_nnsvdlrc_is_better_than_nndsvd_before_any_iteration():
    rng_ = rng()
    V = rng_.gamma(1.0, size=(40, 6)) @ rng_.gamma(0.3, size=(6, 90))
    errors = [
        np.linalg.norm(V - W @ H)
        for W, H in (INITS[name](from_columns(V), 6, None) for name in ("nnsvdlrc", "nndsvd"))
    ]
    assert errors[0] < errors[1]
    with pytest.raises(ComponentsError, match="nnsvdlrc makes at most 3 components"):
        INITS["nnsvdlrc"](from_columns(V[:2]), 4, None)


def test_rank_two_makes_two_components(sample_matrix):
    with pytest.raises(ComponentsError, match="rank-two makes 2 components, not the 3 asked for"):
        initialize(from_columns(sample_matrix), 3, "rank-two", HALS)


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


def test_more_clusters_than_samples(sample_matrix):
    for name in ("spkm", "kmeans"):
        with pytest.raises(ComponentsError, match="38 nonzero samples, fewer than the 39"):
            INITS[name](from_columns(sample_matrix), 39, rng())


# --- the user's own ---------------------------------------------------------------------------


def test_own_factors(sample_matrix):
    V = from_columns(sample_matrix)
    W, H = rng().random((12, 3)), rng().random((3, 40))
    initial_W, initial_H, *_ = initialize(V, 3, (W, H), HALS)
    np.testing.assert_array_equal(initial_W, W)
    np.testing.assert_array_equal(initial_H, H)
    initial_W, initial_H, *_ = initialize(V, 3, W, MULT)
    best = nnls(W.T @ W, sample_matrix.T @ W).T
    np.testing.assert_allclose(initial_H, lift_zeros(V, best))
    initial_W, initial_H, *_ = initialize(V, 3, lambda V, K, rng: (W, None), NNLSB)
    np.testing.assert_array_equal(initial_W, W)
    assert initial_H is None


def test_lifting_an_empty_h():
    V = from_columns(np.eye(2))
    np.testing.assert_array_equal(lift_zeros(V, np.zeros((2, 2))), np.ones((2, 2)))


@pytest.mark.parametrize("name", ["cr1", "cr1++", "nndsvd", "nnsvdlrc", "rank-two", "spa", "snpa"])
def test_the_scale_of_the_data_does_not_matter(name, sample_matrix):
    scale, K = 2.0**-200, count(name)
    W, H = INITS[name](from_columns(sample_matrix), K, rng())
    W_small, H_small = INITS[name](from_columns(scale * sample_matrix), K, rng())
    if H is None:
        np.testing.assert_allclose(W_small / scale, W, rtol=1e-9)
    else:
        np.testing.assert_allclose(W_small @ H_small / scale, W @ H, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["nndsvd", "nndsvda", "nnsvdlrc"])
def test_the_spectrum_of_a_fit_is_used(name):
    V = from_columns(rng().random((30, 50)))
    spectrum = Spectrum(V)
    spectrum.truncated_svd(3)  # of a small V one pass serves all requests
    before = V.passes
    W, H, *_ = initialize(V, 4, name, HALS, rng(), spectrum=spectrum)
    shared = V.passes - before
    W0, H0, *_ = initialize(V, 4, name, HALS, rng())
    assert V.passes - before - shared == shared + 1
    np.testing.assert_array_equal(W, W0)
    np.testing.assert_array_equal(H, H0)


@pytest.mark.parametrize("name", ["spkm", "kmeans"])
def test_clusters_that_run_empty_among_zero_samples(name):
    """A zero sample has no direction, so that it was NaN as the centroid of an empty cluster."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        V = from_columns(np.outer([1.0, 2.0, 3.0], draw.integers(0, 3, 12)) + 0.0)
        if V.nonzero >= 3:
            W, H = INITS[name](V, 3, draw)
            assert np.isfinite(W).all()
            assert np.isfinite(H).all()

"""Singular values and vectors: from a Gram matrix, by subspace iterations, and by ARPACK."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence

from conenmf import from_columns, from_rows
from conenmf.cones.counting import estimate_rank
from conenmf.data.views import unit_samples
from conenmf.judge.certificate import lower_bound
from conenmf.linalg import svd
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import nndsvd


@pytest.fixture(params=[10**9, 0], ids=["gram", "subspace"])
def spectrum_of(request, monkeypatch):
    """Force one of the two ways to the singular values, and more than one batch of samples."""
    monkeypatch.setattr("conenmf.linalg.svd._MAX_GRAM_SIDE", request.param)
    monkeypatch.setattr("conenmf.linalg.svd._GRAM_SIDE_PER_VECTOR", 0)

    def make(V):
        V.max_gather = 16
        V.held_rows = lambda max_dense_entries: None  # as on disk: no vectors by ARPACK
        return Spectrum(V)

    return make


def decaying(F, N, rate, seed=0):
    rng = np.random.default_rng(seed)
    V = sum(rate**j * np.outer(rng.random(F), rng.random(N)) for j in range(min(F, N)))
    return V * (rng.random((F, N)) < 0.7)


@pytest.mark.parametrize(("F", "N", "k"), [(80, 200, 10), (200, 60, 10), (40, 50, 40), (30, 7, 7)])
@pytest.mark.parametrize("rate", [0.6, 0.99])
def test_singular_values_equal_a_full_svd(spectrum_of, F, N, k, rate):
    check_singular_values(spectrum_of, from_columns, decaying(F, N, rate), k)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("F", "N", "rate"), [(40, 110, 0.6), (60, 30, 0.99)])
def test_singular_values_on_every_storage(spectrum_of, main_backend, F, N, rate):
    check_singular_values(spectrum_of, main_backend, decaying(F, N, rate), 10)


def check_singular_values(spectrum_of, make, V, k):
    expected = np.linalg.svd(V, compute_uv=False)[:k]
    np.testing.assert_allclose(spectrum_of(make(V)).singular_values(k), expected, rtol=1e-7)
    of_unit_samples = np.linalg.svd(V / np.linalg.norm(V, axis=0), compute_uv=False)[:k]
    found = spectrum_of(unit_samples(make(V))).singular_values(k)
    np.testing.assert_allclose(found, of_unit_samples, rtol=1e-7)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("F", "N", "k"), [(80, 200, 6), (200, 60, 6), (30, 7, 7)])
def test_truncated_svd(spectrum_of, main_backend, small_blocks, F, N, k):
    V = decaying(F, N, 0.7)
    U, sigma, R = spectrum_of(main_backend(V)).truncated_svd(k)
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(R @ R.T, np.eye(k), atol=1e-12)
    full_U, full_sigma, full_R = np.linalg.svd(V, full_matrices=False)
    best = (full_U[:, :k] * full_sigma[:k]) @ full_R[:k]
    np.testing.assert_allclose((U * sigma) @ R, best, atol=1e-4 * sigma[-1])
    np.testing.assert_allclose(sigma, full_sigma[:k], rtol=1e-8)


def test_small_singular_values_survive_the_square(spectrum_of, rng):
    left, right = np.linalg.qr(rng.random((60, 5)))[0], np.linalg.qr(rng.random((90, 5)))[0]
    expected = np.array([1.0, 1e-2, 1e-4, 1e-5, 1e-6])
    V = np.abs((left * expected) @ right.T)
    full = np.linalg.svd(V, compute_uv=False)[:5]
    np.testing.assert_allclose(spectrum_of(from_columns(V)).truncated_svd(5)[1], full, rtol=1e-6)


def test_rank_deficient_and_constant_matrices(spectrum_of, rng):
    V = from_columns(rng.random((40, 3)) @ rng.random((3, 50)))
    values = spectrum_of(V).singular_values(10)
    assert (values[3:] < 1e-6 * values[0]).all()
    ones = from_columns(np.ones((40, 50)))
    np.testing.assert_allclose(spectrum_of(ones).singular_values(3)[0], np.sqrt(2000))


def test_the_largest_share_is_never_too_small(rng):
    """Eigenvalues that hardly differ: vectors converge slowly, and the bound must say so."""
    for spread in (1e-3, 1e-5):
        sigma = 1 + spread * rng.random(620)
        V = from_columns(sp.csc_array(np.diag(sigma)[:, :620]))
        exact = (np.sort(sigma**2)[::-1][:15]).sum() / (sigma**2).sum()
        assert exact <= Spectrum(V).energy_bound(15).value / V.total <= exact * 1.001


@pytest.mark.parametrize(("F", "N"), [(40, 90), (90, 40)])
def test_the_same_request_reads_the_data_once_and_gives_the_bits_of_a_new_one(spectrum_of, F, N):
    V = from_columns(decaying(F, N, 0.7))
    shared = spectrum_of(V)
    requests = [
        lambda spectrum: spectrum.singular_values(6, rough=True),
        lambda spectrum: spectrum.energy_bound(5).value,
        lambda spectrum: spectrum.truncated_svd(5)[1],
    ]
    results = [request(shared) for request in requests]
    before = V.passes
    again = [request(shared) for request in requests[:2]]
    assert V.passes == before
    for first, second, request in zip(results, again, requests, strict=False):
        assert np.array_equal(first, second)
        assert np.array_equal(first, request(spectrum_of(V)))


def test_one_spectrum_serves_the_rank_and_the_bound():
    V = from_columns(decaying(40, 90, 0.7))
    spectrum = Spectrum(V)
    before = V.passes
    estimate = estimate_rank(V, spectrum=spectrum)
    bound = lower_bound(V, 3, spectrum=spectrum)
    assert V.passes - before == 1
    assert estimate.ratios.tolist() == estimate_rank(V).ratios.tolist()
    assert bound == lower_bound(V, 3)


@pytest.mark.parametrize("rank", [1, 3])
def test_there_are_as_many_vectors_as_asked_for_beyond_the_rank(spectrum_of, rank):
    """Rounding may make squared singular values negative; they count as zero, not as equal."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        V = rng.random((40, rank)) @ rng.random((rank, 50))
        U, sigma, R = spectrum_of(from_columns(V)).truncated_svd(10)
        assert U.shape == (40, 10)
        assert R.shape == (10, 50)
        np.testing.assert_allclose(U.T @ U, np.eye(10), atol=1e-12)
        np.testing.assert_allclose((U * sigma) @ R, V, atol=1e-10)
        assert (sigma[rank:] <= 1e-12 * sigma[0]).all()


def test_vectors_of_singular_values_that_are_rounding():
    """Divided by the smallest numbers there are, they were infinite."""
    for shape in ((16, 95), (31, 57), (14, 156)):
        _, _, R = Spectrum(from_columns(np.full(shape, 3.0))).truncated_svd(min(shape))
        assert np.abs(R).max() < 10


# --- ARPACK, where both sides are long and the data are in memory ---


def counts(F=520, N=610, topics=6, seed=0):
    """Sparse samples of a few topics; both sides are too long for a Gram matrix to be formed."""
    rng = np.random.default_rng(seed)
    W = rng.gamma(0.2, size=(F, topics)) * np.arange(1, topics + 1)
    return rng.poisson(0.3 * W @ rng.dirichlet(np.full(topics, 0.2), N).T).astype(float)


def residuals(V, U, sigma, R):
    there = np.linalg.norm(V @ R.T - U * sigma, axis=0)
    back = np.linalg.norm(V.T @ U - R.T * sigma, axis=0)
    return np.maximum(there, back) / sigma[0]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("turned", [False, True])
def test_vectors_of_a_start_are_the_same_on_every_storage(main_backend, turned):
    V = counts().T if turned else counts()
    U, sigma, R = Spectrum(main_backend(V)).truncated_svd(5)
    R = np.asarray(R)
    assert residuals(V, U, sigma, R).max() <= 1e-10
    expected = Spectrum(from_columns(sp.csc_array(V))).truncated_svd(5)
    for found, other in zip((U, sigma, R), expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=0, atol=1e-8 * np.abs(other).max())
    W, H = nndsvd(main_backend(V), 5)
    known_W, known_H = nndsvd(from_columns(sp.csc_array(V)), 5)
    np.testing.assert_allclose(W, known_W, atol=1e-8 * known_W.max())
    np.testing.assert_allclose(np.asarray(H), known_H, atol=1e-8 * known_H.max())


@pytest.mark.parametrize("is_dense", [False, True])
def test_rough_vectors_are_nearly_as_good_and_the_same_on_every_storage(main_backend, is_dense):
    rng = np.random.default_rng(4)
    V = rng.random((530, 6)) @ rng.random((6, 510)) + 0.1 * rng.random((530, 510))
    if not is_dense:
        V = np.where(rng.random(V.shape) < 0.05, V, 0.0)
    U, sigma, R = Spectrum(main_backend(V)).truncated_svd(4, rough=True)
    R = np.asarray(R)
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(V.T @ U, R.T * sigma, atol=1e-12 * sigma[0])
    largest = np.linalg.svd(V, compute_uv=False)[:4]
    assert (sigma <= largest * (1 + 1e-12)).all()
    assert (sigma**2).sum() >= 0.9 * (largest**2).sum()
    expected = Spectrum(from_columns(sp.csc_array(V))).truncated_svd(4, rough=True)
    for found, other in zip((U, sigma, R), expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=0, atol=1e-9 * np.abs(other).max())


@pytest.mark.parametrize("scale", [1.0, 2.0**-200, 2.0**200])
def test_rough_vectors_of_any_scale_and_rank(scale):
    """Without a Cholesky decomposition, if VV'X has dependent columns or leaves the range."""
    rng = np.random.default_rng(4)
    V = scale * sp.random_array((400, 300), density=0.05, rng=rng, format="csc").toarray()
    V[:, 50:] = V[:, np.arange(50).repeat(5)]  # of rank 50
    U, sigma, _ = Spectrum(from_columns(sp.csc_array(V))).truncated_svd(54, rough=True)
    largest = np.linalg.svd(V, compute_uv=False)[:54]
    np.testing.assert_allclose(sigma, largest, rtol=0, atol=1e-9 * largest[0])
    np.testing.assert_allclose(U.T @ U, np.eye(54), atol=1e-12)


def test_rough_vectors_take_a_fixed_number_of_passes():
    V = from_columns(sp.random_array((300, 250), density=0.05, rng=np.random.default_rng(0)))
    before = V.passes + V.other_order.passes
    Spectrum(V).truncated_svd(5, rough=True)
    assert V.passes + V.other_order.passes - before == 2 * svd._POWERS + 1


def test_equal_singular_values_are_all_found():
    """One vector sees each value once only: the others must be looked for."""
    block = counts(180, 200, 3)
    V = sp.csc_array(sp.block_diag([sp.coo_array(block)] * 3))
    expected = np.repeat(np.linalg.svd(block, compute_uv=False)[:3], 3)
    U, sigma, R = Spectrum(from_columns(V)).truncated_svd(7)
    np.testing.assert_allclose(sigma, expected[:7], rtol=1e-12)
    assert residuals(V, U, sigma, R).max() <= 1e-10
    np.testing.assert_allclose(U.T @ U, np.eye(7), atol=1e-12)


def test_low_rank_gives_the_same_bits_again(rng):
    V = from_columns(sp.csc_array(rng.random((530, 4)) @ rng.random((4, 600))))
    first, again = (Spectrum(V).truncated_svd(10) for _ in range(2))
    assert (first[1][4:] < 1e-12 * first[1][0]).all()
    assert all(map(np.array_equal, first, again))


@pytest.mark.seed(1)
@pytest.mark.parametrize("make", [from_columns, lambda V: from_columns(sp.csc_array(V))])
def test_small_singular_values_have_small_residuals_too(make, rng):
    V = (rng.random((520, 6)) * 10.0 ** -np.arange(0, 12, 2)) @ rng.random((6, 560))
    U, sigma, R = Spectrum(make(V)).truncated_svd(6)
    assert sigma[4] < 1e-7 * sigma[0]
    assert residuals(V, U, sigma, R).max() <= 1e-10


def test_single_precision_is_lifted_and_threads_do_not_matter():
    V = counts().astype(np.float32)
    ways = [from_rows(sp.csr_array(V.T), n_threads=n) for n in (1, 3)]
    one, other = (Spectrum(way).truncated_svd(5) for way in ways)
    assert residuals(V.astype(float), *one).max() <= 1e-10
    assert all(map(np.array_equal, one, other))


def test_the_block_method_completes_what_arpack_does_not_find(monkeypatch):
    V = from_columns(sp.csc_array(counts()))
    expected = Spectrum(V).truncated_svd(5)

    def failing(operator, k, **options):
        vectors = np.linalg.qr(np.random.default_rng(0).random((operator.shape[0], 2)))[0]
        raise ArpackNoConvergence("no convergence", np.ones(2), vectors)

    monkeypatch.setattr(svd, "eigsh", failing)
    for found, other in zip(Spectrum(V).truncated_svd(5), expected, strict=True):
        np.testing.assert_allclose(found, other, atol=1e-8 * np.abs(other).max())


def test_one_set_of_vectors_serves_a_smaller_request():
    V = from_columns(sp.csc_array(counts()))
    spectrum = Spectrum(V)
    values = spectrum.singular_values(9)
    before = V.passes
    np.testing.assert_allclose(spectrum.singular_values(5), values[:5], rtol=0)
    assert V.passes == before
    bound = spectrum.energy_bound(5)
    exact = (np.linalg.svd(counts(), compute_uv=False)[:5] ** 2).sum()
    assert exact <= bound.value <= exact * (1 + 1e-6)


def test_the_largest_entry_of_a_left_singular_vector_is_positive(rng):
    U = Spectrum(from_columns(rng.random((30, 40)) ** 4)).truncated_svd(8)[0]
    assert (U[np.abs(U).argmax(axis=0), np.arange(8)] > 0).all()
    assert (U.sum(axis=0) < 0).any()


def test_the_variance_of_white_noise_follows_from_the_next_singular_value(rng):
    noise = 0.2 * rng.standard_normal((150, 400))
    V = from_columns(rng.random((150, 3)) @ rng.random((3, 400)) + noise, negative="keep")
    assert Spectrum(V).noise(3) == pytest.approx(0.04, rel=0.1)

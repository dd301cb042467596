import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_columns
from conenmf.cones.counting import estimate_rank
from conenmf.data.views import unit_samples
from conenmf.judge.certificate import lower_bound
from conenmf.linalg.svd import Spectrum


@pytest.fixture(params=[10**9, 0], ids=["gram", "subspace"])
def spectrum_of(request, monkeypatch):
    """Force one of the two ways to the singular values, and more than one batch of samples."""
    monkeypatch.setattr("conenmf.linalg.svd._MAX_GRAM_SIDE", request.param)
    monkeypatch.setattr("conenmf.linalg.svd._GRAM_SIDE_PER_VECTOR", 0)
    monkeypatch.setattr("conenmf.linalg.svd._HAS_SEED", False)

    def make(V):
        V.max_gather = 16
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
    unit = V / np.linalg.norm(V, axis=0)
    np.testing.assert_allclose(
        spectrum_of(unit_samples(make(V))).singular_values(k),
        np.linalg.svd(unit, compute_uv=False)[:k],
        rtol=1e-7,
    )


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
    V = (left * expected) @ right.T
    V = from_columns(np.abs(V))
    full = np.linalg.svd(V.columns(np.arange(90)), compute_uv=False)[:5]
    np.testing.assert_allclose(spectrum_of(V).truncated_svd(5)[1], full, rtol=1e-6)


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
        lambda spectrum: spectrum.truncated_svd(5, tol=1e-3)[1],
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


def test_vectors_of_singular_values_that_are_rounding():
    """Divided by the smallest numbers there are, they were infinite."""
    for shape in ((16, 95), (31, 57), (14, 156)):
        _, _, R = Spectrum(from_columns(np.full(shape, 3.0))).truncated_svd(min(shape))
        assert np.abs(R).max() < 10

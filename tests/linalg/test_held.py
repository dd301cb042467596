import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence

from conenmf import from_columns, from_rows
from conenmf.linalg import svd
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import nndsvd

pytestmark = pytest.mark.skipif(not svd._HAS_SEED, reason="ARPACK cannot be seeded before 1.17")


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


def test_equal_singular_values_are_all_found():
    """One vector sees each value once only: the others must be looked for."""
    block = counts(180, 200, 3)
    V = sp.csc_array(sp.block_diag([block] * 3))
    expected = np.repeat(np.linalg.svd(block, compute_uv=False)[:3], 3)
    U, sigma, R = Spectrum(from_columns(V)).truncated_svd(7)
    np.testing.assert_allclose(sigma, expected[:7], rtol=1e-12)
    assert residuals(V, U, sigma, R).max() <= 1e-10
    np.testing.assert_allclose(U.T @ U, np.eye(7), atol=1e-12)


def test_low_rank_gives_the_same_bits_again(rng):
    V = from_columns(sp.csc_array(rng.random((530, 4)) @ rng.random((4, 600))))
    first, again = (Spectrum(V).truncated_svd(10) for _ in range(2))
    assert (first[1][4:] < 1e-12 * first[1][0]).all()
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one, other)


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
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


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


@pytest.mark.parametrize("turned", [False, True])
def test_products_with_the_gram_matrix_of_the_shorter_side(turned):
    V = counts().T if turned else counts()
    X = np.random.default_rng(0).standard_normal((min(V.shape), 7))
    gram = V @ V.T if len(V) == len(X) else V.T @ V
    opened = from_columns(sp.csc_array(V))
    apply, side, is_held = Spectrum(opened)._operator()
    assert is_held
    assert side == len(X)
    product = apply(X)
    np.testing.assert_allclose(product, gram @ X, rtol=1e-12, atol=1e-12 * np.abs(gram).max())

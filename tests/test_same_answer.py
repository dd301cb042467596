"""Same data, same answer: the storage, the blocks and the chunks decide nothing."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, cluster_cones, cr1_nmf, factorize, from_columns, from_rows, make_cones
from conenmf.linalg.svd import Spectrum
from conenmf.solve.alternate import alternate
from conenmf.solve.online import ConeStream
from conenmf.solve.run import Stopping
from conenmf.solve.solvers import SOLVERS


def _mixtures(rng, F=40, N=90, K=3):
    mixtures = rng.gamma(1.0, size=(F, K)) @ rng.dirichlet(np.full(K, 0.4), size=N).T
    return mixtures + 0.05 * rng.random((F, N))


def _unit_norms(rng):
    V = _mixtures(rng)
    return V / np.linalg.norm(V, axis=0)


def _counts(rng):
    return rng.poisson(0.15 * rng.gamma(0.5, size=(40, 3)) @ rng.gamma(0.5, size=(3, 90))) + 0.0


KINDS = {
    "cones": lambda rng: make_cones(40, 3, 0.2, n_samples=90, rng=rng).V,
    "mixtures": _mixtures,
    "counts, mostly zero": _counts,
    "unit norms": _unit_norms,
    "duplicates": lambda rng: np.tile(_unit_norms(rng)[:, :18], 5),
    "equal blocks": lambda rng: np.kron(np.eye(5), np.ones((4, 12))),
    "K = min(F, N)": lambda rng: rng.random((3, 90)),
}


@functools.cache
def _data(kind):
    return KINDS[kind](np.random.default_rng(5))


@functools.cache
def _fit_in_memory(kind, init):
    return factorize(from_columns(_data(kind)), 3, init=init, rng=_rng(init))


def _rng(init):
    return np.random.default_rng(0) if init == "kmeans" else None


def check_same(result, expected):
    assert result.init_used == expected.init_used
    np.testing.assert_array_equal(result.labels, expected.labels)
    assert result.relative_error == pytest.approx(expected.relative_error, rel=1e-8, abs=1e-8)
    WH = expected.W @ expected.H
    difference = result.W @ np.asarray(result.H) - WH
    assert np.linalg.norm(difference) <= 1e-8 * np.linalg.norm(WH)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("kind", "init"),
    [*((kind, "auto") for kind in KINDS), ("unit norms", "kmeans")],
)
def test_any_storage_and_any_blocks(kind, init, main_backend, small_blocks):
    result = factorize(main_backend(_data(kind)), 3, init=init, rng=_rng(init))
    check_same(result, _fit_in_memory(kind, init))


def test_the_choice_of_K(main_backend, small_blocks):
    V = _data("counts, mostly zero")
    assert factorize(main_backend(V)).K == factorize(from_columns(V)).K


def test_the_first_centre_of_samples_of_equal_norms(main_backend, small_blocks):
    assert cluster_cones(main_backend(_data("unit norms")), 3).centres[0] == 0


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_singular_vectors_of_equal_singular_values(k, rng):
    """Of all bases of their span one is taken, so that rounding does not choose."""
    X = np.kron(np.eye(4), np.ones((25, 8)))
    U, sigma, R = Spectrum(from_rows(X)).truncated_svd(k)
    blocks = np.kron(np.eye(4), np.ones((8, 1))) / np.sqrt(8)
    np.testing.assert_allclose(U, blocks[:, :k], atol=1e-14)
    np.testing.assert_allclose(sigma, np.sqrt(200))
    np.testing.assert_allclose(R @ R.T, np.eye(k), atol=1e-14)
    for rows in (X[rng.permutation(100)], sp.csr_array(X)):
        again = Spectrum(from_rows(rows, block_samples=9)).truncated_svd(k)[0]
        np.testing.assert_allclose(again, U, atol=1e-13)


def _opened(kind, n_threads, **known):
    return from_columns(_data(kind), n_threads=n_threads, block_samples=7, **known)


def _opened_sparse(n_threads, dtype=np.float64):
    rows = sp.csr_array(_data("counts, mostly zero").T, dtype=dtype)
    return from_rows(rows, n_threads=n_threads, block_samples=7)


def _streamed(n_threads):
    stream = ConeStream(40, 3)
    for batch in np.split(_data("cones"), 3, axis=1):
        stream.update(from_columns(batch, n_threads=n_threads, block_samples=7))
    return (stream.W,)


def _iterated(n_threads, solver):
    start = np.random.default_rng(0).random((40, 3)), np.random.default_rng(1).random((3, 90))
    run = alternate(_opened("cones", n_threads), *start, solver, stopping=Stopping(0, max_iter=5))
    return run.W, run.H, run.history.relative_error


def _fitted(V, **options):
    fit = factorize(V, **{"max_iter": 10, "tol": 0} | options)
    return fit.W, fit.H, fit.relative_error


THREADED = {
    "cr1": lambda n: cr1_nmf(_opened("cones", n), 3)[:2],
    "a stream": _streamed,
    "a fit": lambda n: _fitted(_opened("mixtures", n)),
    "holes": lambda n: _fitted(
        _opened("mixtures", n, mask=np.add.outer(range(40), range(90)) % 5 > 0), K=3
    ),
    "counts": lambda n: _fitted(_opened_sparse(n), K=3, loss="poisson"),
    "sparse": lambda n: _fitted(_opened_sparse(n), K=3),
    "sparse, in single precision": lambda n: _fitted(_opened_sparse(n, np.float32), K=3),
} | {solver: functools.partial(_iterated, solver=solver) for solver in SOLVERS}


@pytest.mark.parametrize("kind", THREADED)
def test_any_number_of_threads(kind):
    bits = [tuple(np.asarray(Y).tobytes() for Y in THREADED[kind](n)) for n in (1, 2, 4)]
    assert len({*bits}) == 1


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4])
def test_the_poisson_loss_has_the_same_bits_with_any_number_of_threads(n_threads):
    """Several fits: rounding once depended on where memory was allocated, which varies."""
    X = sp.random_array((300, 600), density=0.05, rng=np.random.default_rng(0), format="csr")
    options = {"loss": "poisson", "init": "random", "max_iter": 2, "tol": 0}
    fits = [
        factorize(
            from_rows(X, n_threads=threads, block_samples=40),
            5,
            rng=np.random.default_rng(0),
            **options,
        )
        for threads in [1, *[n_threads] * 20]
    ]
    assert len({(fit.W.tobytes(), fit.H.tobytes()) for fit in fits}) == 1


def test_np_matrix_is_read_as_an_array():
    X = _data("mixtures").T
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(X)
    model = ConeNMF(3).fit(matrix)
    array = np.asarray(matrix)
    np.testing.assert_array_equal(model.components_, ConeNMF(3).fit(array).components_)
    np.testing.assert_array_equal(model.transform(matrix), model.transform(array))

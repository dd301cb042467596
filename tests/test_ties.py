"""Ties: what rounding could decide, such as equal parts, samples or errors, a rule decides.

Every storage adds up in its own order, so it has other last bits. Each test fits data that are full
of ties, and compares each storage with an array in memory.
"""

import functools

import numpy as np
import pytest

from conenmf import cluster_cones, factorize, from_columns, make_cones
from conenmf.cones.counting import estimate_rank
from conenmf.cones.robust import centres_in_noise
from conenmf.data.known import observed_only
from conenmf.linalg.svd import Spectrum

K = 4


def _mirrored(n_samples=2000):
    """Cones beside their mirror image: features and samples of tests/scale/test_dask.py."""
    V = make_cones(30, K, 0.15, n_samples=n_samples, rng=np.random.default_rng(0)).V
    return np.vstack([V, V[:, ::-1]])


def _permuted(n_samples=2000):
    V = _mirrored(n_samples)
    rng = np.random.default_rng(1)
    return V[rng.permutation(V.shape[0])][:, rng.permutation(V.shape[1])]


def _perturbed(n_samples=2000):
    V = _mirrored(n_samples)
    return V * (1 + 1e-13 * np.random.default_rng(2).standard_normal(V.shape))


KINDS = {
    "mirrored": _mirrored,
    "permuted": _permuted,
    "perturbed": _perturbed,
    "few mirrored": lambda: _mirrored(200),
    "fewest mirrored": lambda: _mirrored(40),
    "few permuted": lambda: _permuted(200),
    "few perturbed": lambda: _perturbed(200),
    "duplicates": lambda: np.tile(_mirrored(20), 8),
    "equal blocks": lambda: np.kron(np.eye(6), np.ones((5, 20))),
    "equal pairs": lambda: np.kron(np.ones((2, 1)), np.kron(np.eye(3) + 0.2, np.ones((4, 30)))),
}
LARGE = ("mirrored", "permuted", "perturbed")
FEW = [kind for kind in KINDS if kind not in LARGE]


@functools.cache
def _data(kind):
    V = KINDS[kind]()
    V.flags.writeable = False
    return V


def _counts(kind):
    return np.random.default_rng(3).poisson(20 * _data(kind)).astype(float)


@functools.cache
def _in_memory(kind, **options):
    return factorize(from_columns(_data(kind)), K, **options)


@functools.cache
def _counts_in_memory(kind, **options):
    return factorize(from_columns(_counts(kind)), K, **options)


def _with_holes(make, kind):
    mask = np.random.default_rng(4).random(_data(kind).T.shape) > 0.1
    return observed_only(make(_data(kind)), mask=mask)


@functools.cache
def _holes_in_memory(kind, **options):
    return factorize(_with_holes(from_columns, kind), K, **options)


def check_same(found, expected, tolerance):
    assert found.relative_error == pytest.approx(
        expected.relative_error, rel=tolerance, abs=tolerance
    )
    assert found.init_used == expected.init_used
    shares = expected.H * np.linalg.norm(expected.W, axis=0)[:, None]
    first, second = np.sort(shares, axis=0)[:-3:-1]
    is_clear = first - second > 1e-3 * first
    assert is_clear.any()
    np.testing.assert_array_equal(found.labels[is_clear], expected.labels[is_clear])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("init", ["nndsvd", "auto"])
@pytest.mark.parametrize("kind", FEW)
def test_stated_iterations_lead_to_the_same_errors(kind, init, main_backend):
    options = {"init": init, "max_iter": 4, "tol": 0}
    found = factorize(main_backend(_data(kind)), K, **options)
    check_same(found, _in_memory(kind, **options), 1e-8)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", LARGE)
def test_fits_that_begin_in_single_precision(kind, main_backend):
    found = factorize(main_backend(_data(kind)), K, max_iter=4)
    check_same(found, _in_memory(kind, max_iter=4), 1e-6)


def test_the_data_of_dask_in_every_storage(backend):
    found = factorize(backend(_data("fewest mirrored")), K, max_iter=4)
    check_same(found, _in_memory("fewest mirrored", max_iter=4), 1e-8)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["few mirrored", "few perturbed", "duplicates"])
def test_counts_at_convergence(kind, main_backend):
    """Without the other order of V, W takes other steps, so earlier errors differ more."""
    options = {"loss": "poisson", "tol": 1e-9, "max_iter": 2000}
    found = factorize(main_backend(_counts(kind)), K, **options)
    check_same(found, _counts_in_memory(kind, **options), 1e-6)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", FEW)
def test_holes(kind, main_backend):
    options = {"max_iter": 4, "tol": 0}
    found = factorize(_with_holes(main_backend, kind), K, **options)
    check_same(found, _holes_in_memory(kind, **options), 1e-6)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", KINDS)
def test_choices_of_samples_and_of_K(kind, main_backend):
    V, here = main_backend(_data(kind)), from_columns(_data(kind))
    assert estimate_rank(V).K == estimate_rank(here).K
    n_centres = min(3, K)
    for choose in (cluster_cones, centres_in_noise):
        found, expected = (choose(one, n_centres).centres for one in (V, here))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["mirrored", "few mirrored", "few perturbed", "equal pairs"])
def test_singular_vectors_have_the_same_signs(kind, main_backend):
    found, expected = (
        Spectrum(open_(_data(kind))).truncated_svd(3)[0] for open_ in (main_backend, from_columns)
    )
    assert np.all(np.vecdot(found.T, expected.T) > 0)

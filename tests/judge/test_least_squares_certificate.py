import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import certify, factorize, from_columns
from conenmf.judge import certificate as module
from conenmf.judge.certificate import BoundWarning, lower_bound
from conenmf.linalg.nnls import nnls


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_eckart_young_is_below_every_factorization(rng):
    V = rng.random((7, 25))
    K = int(rng.integers(1, 8))
    W = rng.random((7, K))
    H = np.linalg.lstsq(W, V, rcond=None)[0]
    bound = lower_bound(from_columns(V), K)
    assert bound <= np.linalg.norm(V - W @ H) / np.linalg.norm(V) + 1e-7
    sigma = np.linalg.svd(V, compute_uv=False)
    assert bound == pytest.approx(np.sqrt((sigma[K:] ** 2).sum() / (sigma**2).sum()), abs=1e-7)


def test_certificate_of_a_fit(main_backend, small_blocks, sample_matrix):
    V = main_backend(sample_matrix)
    fit = factorize(V, 3, solver="nnlsb", tol=1e-12, max_iter=500)
    certificate = certify(V, fit.W, fit.H)
    assert certificate.relative_error == pytest.approx(fit.relative_error, rel=1e-10)
    assert certificate.eckart_young == pytest.approx(lower_bound(V, 3))
    assert certificate.lower_bound == pytest.approx(lower_bound(V, 3, effort=certificate.effort))
    assert 0 < certificate.closed < 1
    assert certificate.gap == certificate.relative_error - certificate.lower_bound > 0
    assert certificate.kkt_residual < 1e-5
    rough = certify(V, fit.W + 0.1, fit.H)
    assert rough.kkt_residual > 1e-2


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_kkt_residual_ignores_scales(rng):
    V, W, H = rng.random((6, 15)), rng.random((6, 3)), rng.random((3, 15))
    scale = 10 ** rng.uniform(-3, 3, 3)
    plain = certify(from_columns(V), W, H).kkt_residual
    moved = certify(from_columns(V), W * scale, H / scale[:, None]).kkt_residual
    larger = certify(from_columns(1e5 * V), W, 1e5 * H).kkt_residual
    assert moved == pytest.approx(plain, rel=1e-6)
    assert larger == pytest.approx(plain, rel=1e-6)


def test_an_exact_factorization_has_no_residual(rng):
    W, H = rng.random((8, 2)), rng.random((2, 20))
    certificate = certify(from_columns(W @ H), W, H)
    assert certificate.kkt_residual < 1e-12
    assert certificate.relative_error < 1e-12
    assert certificate.gap < 1e-7


def test_an_error_below_its_bound_is_reported_and_not_hidden(sample_matrix, monkeypatch):
    V = from_columns(sample_matrix)
    fit = factorize(V, 3)
    wrong = module.best_lower_bound(V, 3)._replace(value=0.9)
    monkeypatch.setattr(module, "best_lower_bound", lambda *args, **options: wrong)
    with pytest.warns(BoundWarning, match=r"is below its lower bound 0\.9 \(proven\)"):
        certificate = certify(V, fit.W, fit.H)
    assert certificate.gap == certificate.relative_error - 0.9 < 0
    with pytest.warns(BoundWarning):
        fit.certify()
    assert "one of the two numbers is wrong" in " ".join(fit.summary())


def test_a_certificate_says_with_which_probability_it_holds(rng):
    V = from_columns(rng.random((620, 640)))
    fit = factorize(V, 2, max_iter=3)
    certificate = fit.certify(effort=0)
    assert certificate.failure_probability == 1e-9
    expected = "proven up to a randomized check (failure probability 1e-09)"
    assert certificate.proven == expected
    assert "(up to a randomized check, failure probability 1e-09)" in " ".join(fit.summary())


def test_the_kkt_residual_is_that_of_both_factors(rng):
    """The coefficients are best for the components, but not the other way round."""
    V, W = rng.random((6, 15)), rng.random((6, 3))
    H = nnls(W.T @ W, V.T @ W).T
    squares = (H**2).sum(axis=1)
    steps = np.minimum(W, (W @ H - V) @ H.T / squares)
    expected = np.sqrt((squares * steps**2).sum() / (V**2).sum())
    assert expected > 0.01
    assert certify(from_columns(V), W, H).kkt_residual == pytest.approx(expected)
    assert certify(from_columns(V.T), H.T, W.T).kkt_residual == pytest.approx(expected)

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, factorize, from_rows
from conenmf.cones.clustering import cluster_cones
from conenmf.data.known import weigh_samples
from conenmf.errors import DataError


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.random((40, 3)) @ rng.random((3, 12)) + 0.05 * rng.random((40, 12))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_weight_of_two_is_the_sample_twice(make, X):
    weights = np.random.default_rng(1).integers(0, 4, 40)
    one = ConeNMF(3).fit(make(X), sample_weight=weights)
    other = ConeNMF(3).fit(make(np.repeat(X, weights, axis=0)))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-7)
    np.testing.assert_allclose(one.transform(X), other.transform(X), rtol=1e-7, atol=1e-9)
    assert one.relative_error_ == pytest.approx(other.relative_error_)
    assert one.result_.H.shape == (3, 40)
    assert one.certify().lower_bound == pytest.approx(other.certify().lower_bound)


def test_other_weights_are_in_the_objective(X):
    weights = np.random.default_rng(1).random(40) * 3
    result = factorize(weigh_samples(from_rows(X), weights), 3, max_iter=2000, tol=1e-10)
    squared = (weights[:, None] * (X - (result.W @ result.H).T) ** 2).sum()
    assert result.objective == pytest.approx(squared, rel=1e-9)
    total = (weights[:, None] * X**2).sum()
    assert result.relative_error == pytest.approx(np.sqrt(squared / total))
    plain = factorize(from_rows(X), 3, max_iter=2000, tol=1e-10)
    assert squared < (weights[:, None] * (X - (plain.W @ plain.H).T) ** 2).sum()
    assert result.certify().gap >= 0


@pytest.mark.parametrize("solver", ["hals", "nnlsb"])
def test_noise_below_zero_is_kept(solver, X):
    noisy = X - X.mean() / 2 + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    V = from_rows(noisy, negative="keep")
    result = factorize(V, 3, solver=solver, max_iter=1000, tol=1e-9)
    assert min(result.W.min(), result.H.min()) >= 0
    error = np.linalg.norm(noisy.T - result.W @ result.H) / np.linalg.norm(noisy)
    assert result.relative_error == pytest.approx(error, rel=1e-9)
    clipped = factorize(from_rows(np.maximum(noisy, 0)), 3, max_iter=1000, tol=1e-9)
    assert error < np.linalg.norm(noisy.T - clipped.W @ clipped.H) / np.linalg.norm(noisy)
    certificate = result.certify()
    assert 0 <= certificate.gap
    assert certificate.kkt_residual < 1e-3
    assert not factorize(V, 1).certify().is_attained


def test_what_needs_nonnegative_data_refuses_noise_below_zero(X, refuses):
    V = from_rows(X - X.mean(), negative="keep")
    for solver in ("mult", "plain-mult", "plain-hals"):
        refuses(DataError, solver, factorize, V, 3, solver=solver)
    refuses(DataError, "cone", cluster_cones, V, 3)
    assert not ConeNMF(negative="keep").__sklearn_tags__().input_tags.positive_only


def test_counts_are_multiplied_by_the_weight_itself():
    X = np.random.default_rng(0).poisson(3.0, (6, 4)).astype(float)
    weights = np.array([0.5, 1.5, 2.0, 0.0, 3.25, 1.0])
    for degree, scales in ((1, weights), (2, np.sqrt(weights))):
        view = weigh_samples(from_rows(X), weights, degree)
        np.testing.assert_allclose(view.columns(np.arange(6)), (X * scales[:, None]).T)


def test_a_sample_without_weight_has_a_label():
    X = np.random.default_rng(0).random((30, 6))
    model = ConeNMF(2).fit(X, sample_weight=np.where(np.arange(30) == 4, 0.0, 0.5))
    contributions = model.transform(X) * np.linalg.norm(model.components_, axis=1)
    np.testing.assert_array_equal(model.labels_, contributions.argmax(axis=1))

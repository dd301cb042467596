"""Sample weights: a weight of two is the sample twice."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

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


@pytest.mark.seed(0)
@pytest.mark.parametrize("kind", ["counts", "weights of features", "weights of entries", "holes"])
def test_whole_weights_choose_the_components_of_repeated_samples(kind, rng):
    rates = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.5, size=(3, 20)) * 5
    X = rng.poisson(rates).astype(float)
    repeats = rng.integers(0, 3, 60)
    loss = "poisson" if kind == "counts" else "frobenius"
    weights = {
        "weights of features": rng.random(20) + 0.5,
        "weights of entries": rng.random(X.shape) + 0.5,
    }.get(kind)
    again = weights.repeat(repeats, axis=0) if kind == "weights of entries" else weights
    if kind == "holes":
        X = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    model = ConeNMF(loss=loss, missing="nan")
    one = clone(model).fit(X, sample_weight=repeats, weights=weights)
    other = model.fit(X.repeat(repeats, axis=0), weights=again)
    assert one.result_.K_decided_by == other.result_.K_decided_by
    assert one.n_components_ == other.n_components_
    assert one.relative_error_ == pytest.approx(other.relative_error_, rel=1e-6)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_an_own_start_belongs_to_the_original_samples(loss, X):
    rng = np.random.default_rng(2)
    A, C = rng.random((40, 3)), rng.random((3, 12))
    repeats = rng.integers(0, 4, 40)
    one = ConeNMF(3, init=(A, C), loss=loss).fit(X, sample_weight=repeats)
    other = ConeNMF(3, init=(A.repeat(repeats, axis=0), C), loss=loss)
    other.fit(X.repeat(repeats, axis=0))
    assert one.relative_error_ == pytest.approx(other.relative_error_, rel=1e-9)
    assert one.n_iter_ == other.n_iter_
    # halves of these weights are the same problem, in which nothing is repeated
    half = ConeNMF(3, init=(A, C), loss=loss).fit(X, sample_weight=repeats / 2)
    assert half.relative_error_ == pytest.approx(other.relative_error_, rel=1e-3)
    again = factorize(weigh_samples(from_rows(X), repeats), 3, init=(C.T, A.T))
    assert again.H.shape == (3, 40)


def test_the_score_of_data_with_holes_has_sample_weights(X):
    known = np.random.default_rng(1).random(X.shape) < 0.8
    holed = np.where(known, X, np.nan)
    model = ConeNMF(3, missing="nan").fit(holed[:20])
    assert model.score(holed, sample_weight=np.ones(40)) == model.score(holed)
    first = np.arange(40) < 20
    alone = model.score(holed[first])
    assert model.score(holed, sample_weight=first.astype(float)) == pytest.approx(alone)
    assert model.score(holed) != pytest.approx(alone)


def test_penalties_of_components_grow_with_the_weighted_number_of_samples(X):
    """Half the weights halve the objective and its penalty."""
    rng = np.random.default_rng(2)
    repeats = np.arange(40) % 6  # half of them are 48 in the sum, of 40 samples
    start = rng.random((40, 3)), rng.random((3, 12))
    model = ConeNMF(3, init=start, alpha_W=0.0, alpha_H=0.02, l1_ratio=0.5, tol=1e-10)
    model.set_params(max_iter=5000)
    one = clone(model).fit(X, sample_weight=repeats / 2)
    other = model.set_params(init=(start[0].repeat(repeats, axis=0), start[1]))
    other.fit(X.repeat(repeats, axis=0))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-3, atol=1e-5)

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conenmf import Factorization, certify, factorize, from_rows
from conenmf.cones.restricted import known_bound
from conenmf.data.holes import completed
from conenmf.data.known import observed_only
from conenmf.errors import OptionError
from conenmf.judge.known_certificate import certify_known
from conenmf.report import render
from conenmf.solve.constraints import Penalties

K = 2


def make_samples(seed, N=40, F=12):
    rng = np.random.default_rng(seed)
    return rng.random((N, K)) @ rng.random((K, F)) + 0.2 * rng.random((N, F))


@given(st.integers(0, 2**16), st.sampled_from(["scattered", "block", "weights"]))
@example(0, "block")  # nothing is missing
@settings(max_examples=12)
def test_no_factors_are_below_the_bound(seed, kind):
    X, rng = make_samples(seed), np.random.default_rng(seed + 1)
    weights = (rng.random(X.shape) > 0.1).astype(float)
    if kind == "block":
        weights = np.ones(X.shape)
        weights[: seed % 30, : seed % 9] = 0.0
    if kind == "weights":
        weights = rng.uniform(0.5, 2.0, X.shape)
    weights[-1] = weights[:, -1] = 1.0
    V = from_rows(X, weights=weights)
    below, chance = known_bound(V, K)
    assert chance == 0.0
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    best = np.inf
    L, R = U[:, :K] * s[:K], Vt[:K]
    for _ in range(60):  # factors of any sign, by alternating weighted least squares
        for n in range(len(X)):
            P = weights[n][:, None] * R.T
            L[n] = np.linalg.lstsq(R @ P + 1e-9 * np.eye(K), P.T @ X[n], rcond=None)[0]
        for f in range(X.shape[1]):
            P = weights[:, f][:, None] * L
            R[:, f] = np.linalg.lstsq(L.T @ P + 1e-9 * np.eye(K), P.T @ X[:, f], rcond=None)[0]
        best = min(best, (weights * (X - L @ R) ** 2).sum())
    assert below <= np.sqrt(best / (weights * X**2).sum()) * (1 + 1e-9)
    if kind == "block":
        assert below > 0


def test_the_certificate_is_about_known_entries(main_backend):
    X = make_samples(3)
    mask = np.random.default_rng(4).random(X.shape) > 0.3
    mask[:20] = True
    V = observed_only(main_backend(X.T), mask=mask)
    result = factorize(V, K, init="nndsvd", tol=1e-9, max_iter=1000)
    certificate = result.certify()
    WH = (result.W @ np.asarray(result.H)).T
    error = np.sqrt((mask * (X - WH) ** 2).sum() / (mask * X**2).sum())
    tolerance = 1e-4 if V.dtype == np.float32 else 1e-9
    assert certificate.relative_error == pytest.approx(error, rel=tolerance)
    assert 0 < certificate.lower_bound < error
    assert certificate.gap == certificate.relative_error - certificate.lower_bound
    assert certificate.kkt_residual < 1e-3
    worse = certify(V, result.W * 1.1, result.H)
    assert worse.kkt_residual > 10 * certificate.kkt_residual
    assert worse.relative_error > error


def test_known_components_and_penalties_are_not_held_against_factors():
    X = make_samples(5)
    mask = np.random.default_rng(6).random(X.shape) > 0.2
    V = from_rows(X, mask=mask)
    fixed = factorize(V, K, fixed=np.ones((12, 1)), tol=1e-9, max_iter=1000)
    assert fixed.certify().kkt_residual < 1e-3
    assert certify(V, fixed.W, fixed.H).kkt_residual > fixed.certify().kkt_residual
    penalties = Penalties(l2_h=1.0, l2_w=1.0)
    ridge = factorize(V, K, penalties=penalties, tol=1e-9, max_iter=1000)
    assert ridge.certify().kkt_residual < 1e-3
    assert 0 < ridge.objective_bound() <= ridge.objective


def test_where_nothing_is_known_of_the_bound_it_says_so():
    rng = np.random.default_rng(0)
    ratings = sp.csr_array(np.where(rng.random((40, 12)) < 0.5, make_samples(0), 0))
    result = factorize(from_rows(ratings, missing="zeros"), K)
    certificate = result.certify()
    assert certificate.lower_bound == 0.0
    assert certificate.gap == certificate.relative_error
    assert "0, none above it is known" in certificate._repr_html_()
    result.diagnose()
    assert "no lower bound above 0 is known for the error" in result.summary()
    assert "None is known: where entries are missing" in render(result)
    with pytest.raises(OptionError, match="use certify"):
        certify_known(from_rows(make_samples(0)), result.W, result.H)


@pytest.mark.parametrize("names", [None, [f"word {f}" for f in range(12)]])
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_reports_show_what_is_imputed(loss, names, tmp_path):
    X = np.round(10 * make_samples(1))
    X[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    from conenmf.names import Names

    V = from_rows(X, missing="nan", names=Names.of(feature_names=names))
    result = factorize(V, K, loss=loss)
    diagnosis = result.diagnose()
    inspected = diagnosis.inspected
    assert inspected.missing.shape == inspected.originals.shape
    known = ~np.isnan(X)
    reached = (result.W @ result.H).T
    errors = np.linalg.norm(np.where(known, X - reached, 0), axis=1)
    np.testing.assert_allclose(
        inspected.errors, errors / np.linalg.norm(np.where(known, X, 0), axis=1)
    )
    page = render(result)
    assert "it is imputed" in page
    assert "the reconstruction replaces the entries that are missing" in page
    assert "nan" not in page.split("<script")[0].lower().replace("nano", "")
    result.save(tmp_path / "result.npz")
    assert render(Factorization.load(tmp_path / "result.npz")) == page
    assert any("entries that are known (0.3" in line for line in result.summary())


def test_data_are_completed_by_the_fit():
    X = make_samples(2) - 0.1
    mask = np.random.default_rng(3).random(X.shape) > 0.3
    V = from_rows(X, mask=mask, negative="keep")
    result = factorize(V, K)
    rows = completed(V, result.W, result.H.T).columns(np.arange(40)).T
    expected = np.maximum(np.where(mask, X, (result.W @ result.H).T), 0)
    np.testing.assert_allclose(rows, expected)
    assert "relative error" in render(result)

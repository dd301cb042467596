"""Tests of `judge.certificate`."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import kl_div

from conenmf import ConeNMF, certify, factorize, from_columns, from_rows
from conenmf.data.known import completed, observed_only
from conenmf.errors import DataError
from conenmf.judge.certificate import (
    Certificate,
    CountCertificate,
    certify_counts,
    known_bound,
    noise_floor,
    poisson_gaps,
)
from conenmf.judge.dual_bound import divergence_bound
from conenmf.report import render
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses.poisson import margins


@pytest.fixture(scope="module")
def counts():
    """Counts of three patterns, with known rates."""
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.5, 30, (80, 3)) @ rng.dirichlet(np.full(25, 0.2), 3))


@pytest.fixture(scope="module")
def fitted(counts):
    result = factorize(from_rows(counts), 3, loss="poisson")
    result.diagnose()
    return result


def test_the_loss_chooses_the_certificate(counts, fitted):
    V, W, H = from_rows(counts), fitted.W, fitted.H
    assert isinstance(certify(V, W, H), Certificate)
    by_name = [certify(V, W, H, loss=loss) for loss in ("poisson", "kullback-leibler")]
    assert by_name[0] == by_name[1] == fitted.certify()
    assert isinstance(by_name[0], CountCertificate)
    # with a given component too the bound is that of all factors
    given = certify(V, W, H, loss="poisson", n_fixed=1)
    assert given.lower_bound == pytest.approx(by_name[0].lower_bound, rel=1e-12)


def test_a_fit_of_counts_judges_itself_in_the_words_of_counts(fitted):
    certificate = fitted.certify()
    assert certificate.divergence == pytest.approx(fitted.objective, rel=1e-9)
    assert certificate.relative_error == pytest.approx(fitted.relative_error, rel=1e-9)
    assert certificate.coefficient_gap <= 1e-7 * fitted.data.mean() * 25 * 80
    assert abs(certificate.above_floor) < 0.1
    summary = "\n".join(fitted.summary())
    assert f"{1 - certificate.relative_error:.1%} of the deviance explained" in summary
    assert "noise floor" in summary
    assert "relative error" not in summary
    assert fitted.certify() is certificate
    assert fitted.certify(effort=12).effort == 12
    fitted.diagnose()
    assert fitted.certificate.effort == 12


def test_too_few_components_are_far_above_the_floor(counts):
    model = ConeNMF(1, loss="poisson").fit(counts)
    assert model.certify().above_floor > 0.3
    assert "overdispersed, or K is too small" in "\n".join(model.result_.summary())
    assert model.certify().lower_bound == pytest.approx(1.0)  # attained


def test_data_that_are_not_in_memory_have_the_quick_floor(counts, tmp_path):
    np.save(tmp_path / "counts.npy", counts.T.astype(float))
    V = from_columns(np.load(tmp_path / "counts.npy", mmap_mode="r"))
    result = factorize(V, 3, loss="poisson")
    certificate = result.certify()
    assert not certificate.is_refitted
    assert "ignores the parameters" in certificate.floor_in_words()


@pytest.fixture(scope="module")
def judged():
    """Counts with known rates, and the certificate of these rates."""
    rng = np.random.default_rng(0)
    W, H = rng.dirichlet(np.full(30, 0.3), 3).T, rng.gamma(0.7, 40, (3, 60))
    counts = rng.poisson(W @ H).astype(float)
    return counts, W, H, certify_counts(from_columns(counts), W, H)


def test_it_collects_what_others_compute(judged):
    counts, W, H, certificate = judged
    V = from_columns(counts)
    margins = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    of_margins = kl_div(counts, margins).sum()
    assert certificate.divergence == pytest.approx(kl_div(counts, W @ H).sum())
    assert certificate.of_margins == pytest.approx(of_margins)
    assert certificate.relative_error == pytest.approx(certificate.divergence / of_margins)
    bound = divergence_bound(V, 3)
    assert certificate.lower_bound == pytest.approx(bound.value / bound.of_margins)
    assert certificate.gap == pytest.approx(certificate.relative_error - certificate.lower_bound)
    assert certificate.coefficient_gap == poisson_gaps(V, W, H).coefficient_gap
    assert certificate.noise_floor == noise_floor(V, W, H).value
    plain = certify_counts(V, W, H, floor=False, effort=0)
    assert np.isnan(plain.above_floor)
    assert plain.floor_in_words() == ""
    assert plain.effort == 0


def test_data_of_one_component_are_judged_by_their_total():
    V = from_columns(np.outer([1.0, 2.0, 3.0], [2.0, 4.0]))
    certificate = certify(V, [[1.0], [2.0], [3.0]], [[2.0, 4.0]], loss="poisson")
    assert certificate.relative_error == pytest.approx(0.0, abs=1e-12)
    assert certificate.divergence == pytest.approx(0.0, abs=1e-9)


def test_the_bound_of_the_objective_of_counts_is_that_of_their_divergence(rng):
    """That of the squared error, which was returned for both losses, may be far above it."""
    counts = rng.poisson(20 * rng.random((30, 4)) @ rng.random((4, 12))).astype(float)
    result = factorize(from_rows(counts), 2, loss="poisson")
    bound = result.objective_bound()
    assert bound == pytest.approx(result.certify().lower_bound * result.certify().of_margins)
    assert 0 <= bound <= result.objective


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
        weights[: max(seed % 30, 1), : max(seed % 9, 1)] = 0.0
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


@pytest.mark.filterwarnings("ignore:.*entries are missing")
def test_where_nothing_is_known_of_the_bound_it_says_so(rng):
    ratings = sp.csr_array(np.where(rng.random((40, 12)) < 0.5, make_samples(0), 0))
    result = factorize(from_rows(ratings, missing="zeros"), K)
    certificate = result.certify()
    assert certificate.lower_bound == 0.0
    assert certificate.gap == certificate.relative_error
    result.diagnose()
    assert "no lower bound above 0 is known for the error" in result.summary()
    assert "No lower bound above 0 is known for the error" in render(result)


def test_data_are_completed_by_the_fit():
    X = make_samples(2) - 0.1
    mask = np.random.default_rng(3).random(X.shape) > 0.3
    V = from_rows(X, mask=mask, negative="keep")
    result = factorize(V, K)
    rows = completed(V, result.W, result.H.T).columns(np.arange(40)).T
    expected = np.maximum(np.where(mask, X, (result.W @ result.H).T), 0)
    np.testing.assert_allclose(rows, expected)
    assert "relative error" in render(result)


def known_rates(rng, K=4, n_samples=150, n_features=80, mean=100):
    return rng.dirichlet(np.full(n_features, 0.2), K).T, rng.gamma(0.7, mean, (K, n_samples))


def test_without_refitting_it_is_the_divergence_of_draws_from_their_rates(rng):
    W, H = known_rates(rng)
    V = from_columns(sp.csc_array(rng.poisson(W @ H)))
    floor = noise_floor(V, W, H, refit=False, n_draws=5)
    mean = np.mean([kl_div(rng.poisson(W @ H), W @ H).sum() for _ in range(20)])
    assert not floor.refitted
    assert floor.value == pytest.approx(mean, abs=4 * floor.spread)
    assert 0 < floor.spread < 0.05 * mean


@pytest.mark.seed(1)
def test_refits_leave_what_a_fit_to_counts_at_known_rates_leaves(rng):
    """About half for each parameter less than the draws have from their true rates."""
    W, H = known_rates(rng)
    V = from_columns(rng.poisson(W @ H).astype(float))
    quick, floor = noise_floor(V, W, H, refit=False), noise_floor(V, W, H)
    assert floor.refitted
    n_parameters = W.size + H.size - 4**2
    assert quick.value - floor.value == pytest.approx(n_parameters / 2, rel=0.5)


def test_rates_so_low_that_nothing_is_drawn_leave_nothing():
    V = from_columns([[1e-12, 0.0], [0.0, 2e-12]])
    W, H = [[1e-12], [2e-12]], [[1.0, 1.0]]
    assert noise_floor(V, W, H) == (0.0, 0.0, True)


@pytest.mark.seed(2)
def test_draws_depend_on_the_generator_alone(main_backend, small_blocks, rng):
    W, H = known_rates(rng, 2, 40, 15)
    X = rng.poisson(W @ H).T.astype(float)
    expected = noise_floor(from_rows(X), W, H, refit=False)
    found = noise_floor(main_backend(X.T), W, H, refit=False)
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-10)
    other = noise_floor(from_rows(X), W, H, refit=False, rng=np.random.default_rng(9))
    assert other.value != expected.value


def problem(seed):
    """Counts with zeros and zero rows, and factors that are positive."""
    rng = np.random.default_rng(seed)
    F, N, K = rng.integers(1, 9, 3)
    V = rng.poisson(rng.gamma(0.5, 4, (F, N))) * (rng.random((F, 1)) < 0.9)
    V[0, 0] += 1
    return V.astype(float), 0.1 + rng.random((F, K)), (0.1 + rng.random((K, N))) * 5


def em(V, W, H, n_iter, fixed):
    """Multiplicative updates of one factor; zeros of V and whole zero rows are no problem."""
    for _ in range(n_iter):
        if fixed == "W":
            H = H * (W.T @ (V / (W @ H))) / W.sum(axis=0)[:, None]
        else:
            W = W * ((V / (W @ H)) @ H.T) / H.sum(axis=1)
        W, H = np.maximum(W, 1e-300), np.maximum(H, 1e-300)
    return kl_div(V, W @ H).sum()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_no_better_factor_beats_a_gap(seed):
    V, W, H = problem(seed)
    found = poisson_gaps(from_columns(V), W, H)
    assert found.divergence == pytest.approx(kl_div(V, W @ H).sum(), rel=1e-10)
    room = 1e-9 * found.divergence
    assert found.divergence - found.coefficient_gap <= em(V, W, H, 200, "W") + room
    assert found.divergence - found.component_gap <= em(V, W, H, 200, "H") + room


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_gaps_close_at_the_optimum(seed):
    V, W, H = problem(seed)
    for n in range(V.shape[1]):  # by another method
        slope, v = W.sum(axis=0), V[:, n]

        def value(h, v=v, slope=slope):
            x = np.maximum(W @ h, 1e-12)
            return slope @ h - v @ np.log(x), slope - W.T @ (v / x)

        bounds = [(0, None)] * H.shape[0]
        options = {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 2000}
        H[:, n] = minimize(
            value, H[:, n], jac=True, bounds=bounds, method="L-BFGS-B", options=options
        ).x
    found = poisson_gaps(from_columns(V), W, H)
    assert found.coefficient_gap <= 1e-4 * found.total


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_the_margins_are_the_best_single_component(seed):
    V, _, _ = problem(seed)
    W, H = V.sum(axis=1, keepdims=True), V.sum(axis=0, keepdims=True) / V.sum()
    found = poisson_gaps(from_columns(V), W, H)
    assert found.coefficient_gap + found.component_gap <= 1e-10 * found.total
    assert found.of_margins == pytest.approx(found.divergence, abs=1e-9 * found.total)


def test_in_every_storage(main_backend, small_blocks, both_twins, sample_matrix, rng):
    W, H = 0.1 + rng.random((12, 3)), rng.random((3, 40))
    V = main_backend(sample_matrix)
    margins(V)
    before = V.passes
    found = poisson_gaps(V, W, H)
    assert V.passes - before == 1
    np.testing.assert_allclose(found, poisson_gaps(from_columns(sample_matrix), W, H), rtol=1e-6)
    assert found.divergence == pytest.approx(kl_div(sample_matrix, W @ H).sum(), rel=1e-6)


def test_rates_of_zero_are_refused_where_there_are_counts():
    V = from_columns([[2.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    with pytest.raises(DataError, match="zero where 3 entries"):
        poisson_gaps(V, [[0.0], [0.0], [1.0]], [[1.0, 1.0]])

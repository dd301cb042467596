"""Certificates of least squares, of known entries, and of counts."""

from dataclasses import astuple, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import kl_div

from conenmf import ConeNMF, Problem, certify, factorize, from_columns, from_rows
from conenmf.data.imputation import complete
from conenmf.data.known import observed_only
from conenmf.data.resample import draw_counts
from conenmf.errors import DataError
from conenmf.judge.certificate import BoundWarning, Certificate, CountCertificate, lower_bound
from conenmf.linalg.nnls import nnls
from conenmf.report import render
from conenmf.solve.constraints import Penalties
from conenmf.solve.dual_bound import best_lower_bound, divergence_bound
from conenmf.solve.losses import POISSON, margins, squared_bounds
from conenmf.solve.losses.count_bounds import noise_floor, poisson_gaps
from conenmf.solve.losses.squared_bounds import known_bound, observed_bound

# --- least squares ---


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
    without_effort = best_lower_bound(from_columns(V), K, effort=0)
    assert bound == without_effort.value == without_effort.eckart_young


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
    assert certify(V, fit.W + 0.1, fit.H).kkt_residual > 1e-2


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_kkt_residual_ignores_scales(rng):
    V, W, H = rng.random((6, 15)), rng.random((6, 3)), rng.random((3, 15))
    scale = 10 ** rng.uniform(-3, 3, 3)
    plain = certify(from_columns(V), W, H).kkt_residual
    moved = certify(from_columns(V), W * scale, H / scale[:, None]).kkt_residual
    larger = certify(from_columns(1e5 * V), W, 1e5 * H).kkt_residual
    assert (moved, larger) == pytest.approx((plain, plain), rel=1e-6)


def test_an_exact_factorization_has_no_residual(rng):
    W, H = rng.random((8, 2)), rng.random((2, 20))
    certificate = certify(from_columns(W @ H), W, H)
    assert certificate.kkt_residual < 1e-12
    assert certificate.relative_error < 1e-12
    assert certificate.gap < 1e-7


def test_an_error_below_its_bound_is_reported_and_not_hidden(sample_matrix, monkeypatch):
    V = from_columns(sample_matrix)
    fit = factorize(V, 3)
    wrong = best_lower_bound(V, 3)._replace(value=0.9)
    monkeypatch.setattr(squared_bounds, "best_lower_bound", lambda *args, **options: wrong)
    with pytest.warns(BoundWarning, match=r"is below its lower bound 0\.9 \(proven\)"):
        certificate = certify(V, fit.W, fit.H)
    assert certificate.gap == certificate.relative_error - 0.9 < 0
    with pytest.warns(BoundWarning):
        fit.certify()
    assert "one of the two numbers is wrong" in " ".join(fit.summary())


def test_a_certificate_says_with_which_probability_it_holds(rng):
    fit = factorize(from_columns(rng.random((620, 640))), 2, max_iter=3)
    certificate = fit.certify(effort=0)
    assert certificate.failure_probability == 1e-9
    assert certificate.proven == "proven up to a randomized check (failure probability 1e-09)"
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


# --- missing entries and weights ---


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
    below, chance = known_bound(from_rows(X, weights=weights), K)
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
    ridge = factorize(V, K, penalties=Penalties(l2_h=1.0, l2_w=1.0), tol=1e-9, max_iter=1000)
    assert ridge.certify().kkt_residual < 1e-3
    assert 0 < ridge.objective_bound() <= ridge.objective


def test_a_bound_of_all_factors_is_not_attained_by_those_with_a_given_component(rng):
    V = from_columns(rng.random((6, 20)))
    free, given = (factorize(V, 1, fixed=one).certify() for one in (None, np.ones((6, 1))))
    assert free.is_attained
    assert not given.is_attained
    assert given.lower_bound >= free.lower_bound


def test_the_bound_of_an_objective_over_known_entries_is_the_best_multiple_of_the_residual(rng):
    X, known = rng.random((8, 20)), rng.random((8, 20)) > 0.2
    W, H = rng.random((8, 2)), rng.random((2, 20))
    Y = known * (X - W @ H)
    inner, square, size = (Y * X).sum(), (Y**2).sum(), np.linalg.norm(Y, 2)
    V = from_columns(X, mask=known)
    for weight in (0.3 * size, 5 * size):
        t = min(1, weight / size)
        bound = observed_bound(V, W, H, l2_h=weight, l2_w=weight)
        assert bound == pytest.approx(max(2 * t * inner - t**2 * square, 0), rel=1e-3)
        assert bound >= 0


@pytest.mark.filterwarnings("ignore:.*entries are missing")
def test_where_nothing_is_known_of_the_bound_it_says_so(rng):
    ratings = sp.csr_array(np.where(rng.random((40, 12)) < 0.5, make_samples(0), 0))
    result = factorize(from_rows(ratings, missing="zeros"), K)
    certificate = result.certify()
    assert certificate.lower_bound == 0.0
    assert certificate.gap == certificate.relative_error
    result.diagnose()
    row = result.diagnose().row("Optimum")
    assert row.grade == "open"
    assert row.finding.endswith("no useful lower bound is known")
    assert "no useful lower bound is known" in render(result)


def test_data_are_completed_by_the_fit():
    X = make_samples(2) - 0.1
    mask = np.random.default_rng(3).random(X.shape) > 0.3
    V = from_rows(X, mask=mask, negative="keep")
    result = factorize(V, K)
    rows = complete(V, result.W, result.H.T).columns(np.arange(40)).T
    expected = np.maximum(np.where(mask, X, (result.W @ result.H).T), 0)
    np.testing.assert_allclose(rows, expected)
    assert "relative error" in render(result)


# --- counts ---


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
    assert by_name == [fitted.certify()] * 2
    assert isinstance(by_name[0], CountCertificate)
    # with a given component too the bound is that of all factors
    given = certify(V, W, H, problem=Problem("poisson", fixed=W[:, :1]))
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


def test_too_few_components_are_far_above_the_floor(counts):
    model = ConeNMF(1, loss="poisson").fit(counts)
    assert model.certify().above_floor > 0.3
    assert "overdispersed, or K is too small" in "\n".join(model.result_.summary())
    assert model.certify().lower_bound == pytest.approx(1.0)  # attained


def test_a_perfect_fit_of_counts_has_words():
    result = factorize(from_rows([[3.0, 3.0], [4.0, 4.0]]), 1, loss="poisson")
    certificate = result.certify()
    assert certificate.relative_error == 0
    assert "divergence below 0, 100% of this one" in certificate.bound_in_words(1)


def test_data_that_are_not_in_memory_have_the_quick_floor(counts, tmp_path):
    np.save(tmp_path / "counts.npy", counts.T.astype(float))
    V = from_columns(np.load(tmp_path / "counts.npy", mmap_mode="r"))
    certificate = factorize(V, 3, loss="poisson").certify()
    assert not certificate.is_refitted
    assert "ignores the parameters" in certificate.floor_in_words()


def test_a_certificate_of_counts_collects_what_others_compute(rng):
    W, H = known_rates(rng, 3, 60, 30)
    counts = rng.poisson(W @ H).astype(float)
    V = from_columns(counts)
    certificate = POISSON.bounds(V).certify(W, H)
    divergence = kl_div(counts, W @ H).sum()
    of_margins = kl_div(counts, np.outer(counts.sum(1), counts.sum(0)) / counts.sum()).sum()
    bound, error = divergence_bound(V, 3), divergence / of_margins
    below = bound.value / bound.of_margins
    found = astuple(certificate)[:5]
    assert found == pytest.approx((divergence, of_margins, error, below, error - below))
    assert certificate.coefficient_gap == poisson_gaps(V, W, H).coefficient_gap
    assert certificate.noise_floor == noise_floor(POISSON, V, W, H).value
    plain = POISSON.bounds(V).certify(W, H, 0, floor=False)
    assert np.isnan(plain.above_floor)
    assert (plain.floor_in_words(), plain.effort) == ("", 0)


def test_data_of_one_component_are_judged_by_their_total():
    W, H = np.array([[1.0], [2.0], [3.0]]), np.array([[2.0, 4.0]])
    certificate = certify(from_columns(W @ H), W, H, loss="poisson")
    assert (certificate.relative_error, certificate.divergence) == pytest.approx((0, 0), abs=1e-9)


def test_the_bound_of_the_objective_of_counts_is_that_of_their_divergence(rng):
    """That of the squared error, which was returned for both losses, may be far above it."""
    counts = rng.poisson(20 * rng.random((30, 4)) @ rng.random((4, 12))).astype(float)
    result = factorize(from_rows(counts), 2, loss="poisson")
    bound = result.objective_bound()
    assert bound == pytest.approx(result.certify().lower_bound * result.certify().of_margins)
    assert 0 <= bound <= result.objective


def known_rates(rng, K=4, n_samples=150, n_features=80, mean=100):
    return rng.dirichlet(np.full(n_features, 0.2), K).T, rng.gamma(0.7, mean, (K, n_samples))


def test_without_refitting_it_is_the_divergence_of_draws_from_their_rates(rng):
    W, H = known_rates(rng)
    V = from_columns(sp.csc_array(rng.poisson(W @ H)))
    floor = noise_floor(POISSON, V, W, H, refit=False, n_draws=5)
    mean = np.mean([kl_div(rng.poisson(W @ H), W @ H).sum() for _ in range(20)])
    assert not floor.refitted
    assert floor.value == pytest.approx(mean, abs=4 * floor.spread)
    assert 0 < floor.spread < 0.05 * mean


def test_the_spread_of_the_floor_is_estimated_from_its_few_draws(rng):
    W, H = known_rates(rng, 2, 20, 15)
    V = from_columns(rng.poisson(W @ H).astype(float))
    floor = noise_floor(POISSON, V, W, H, refit=False, rng=np.random.default_rng(5))
    again = np.random.default_rng(5)
    draws = [poisson_gaps(draw_counts(V, W, H, again), W, H).divergence for _ in range(3)]
    assert floor.value == pytest.approx(np.mean(draws))
    assert floor.spread == pytest.approx(np.std(draws, ddof=1))


@pytest.mark.parametrize(
    ("divergence", "spread", "words"),
    [
        (102.5, 1.0, "at the noise floor (+2.5%)"),  # within three spreads
        (103.5, 1.0, "3.5% above the noise floor"),
        (100.9, 0.0, "at the noise floor (+0.9%)"),  # within one per cent
        (101.1, 0.0, "1.1% above the noise floor"),
        (98.0, 0.1, "2.0% below the noise floor"),
    ],
)
def test_a_divergence_near_the_floor_is_at_the_floor(fitted, divergence, spread, words):
    near = {"divergence": divergence, "noise_floor": 100.0, "floor_spread": spread}
    assert replace(fitted.certify(), **near).floor_in_words().startswith(words)


@pytest.mark.seed(1)
def test_refits_leave_what_a_fit_to_counts_at_known_rates_leaves(rng):
    """About half for each parameter less than the draws have from their true rates."""
    W, H = known_rates(rng)
    V = from_columns(rng.poisson(W @ H).astype(float))
    quick, floor = noise_floor(POISSON, V, W, H, refit=False), noise_floor(POISSON, V, W, H)
    assert floor.refitted
    n_parameters = W.size + H.size - 4**2
    assert quick.value - floor.value == pytest.approx(n_parameters / 2, rel=0.5)


def test_rates_so_low_that_nothing_is_drawn_leave_nothing():
    V = from_columns([[1e-12, 0.0], [0.0, 2e-12]])
    W, H = np.array([[1e-12], [2e-12]]), np.array([[1.0, 1.0]])
    assert noise_floor(POISSON, V, W, H) == (0.0, 0.0, True)


@pytest.mark.seed(2)
def test_draws_depend_on_the_generator_alone(main_backend, small_blocks, rng):
    W, H = known_rates(rng, 2, 40, 15)
    X = rng.poisson(W @ H).T.astype(float)
    expected = noise_floor(POISSON, from_rows(X), W, H, refit=False)
    found = noise_floor(POISSON, main_backend(X.T), W, H, refit=False)
    assert found[:2] == pytest.approx(expected[:2], rel=1e-10)
    other = noise_floor(POISSON, from_rows(X), W, H, refit=False, rng=np.random.default_rng(9))
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
    slope, bounds = W.sum(axis=0), [(0, None)] * len(H)
    how = {"method": "L-BFGS-B", "options": {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 2000}}

    def value(h, v):
        x = np.maximum(W @ h, 1e-12)
        return slope @ h - v @ np.log(x), slope - W.T @ (v / x)

    for n, v in enumerate(V.T):
        H[:, n] = minimize(value, H[:, n], args=(v,), jac=True, bounds=bounds, **how).x
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


def test_gaps_are_the_same_in_every_storage(
    main_backend, small_blocks, both_twins, sample_matrix, rng
):
    W, H = 0.1 + rng.random((12, 3)), rng.random((3, 40))
    V = main_backend(sample_matrix)
    margins(V)
    before = V.passes
    found = poisson_gaps(V, W, H)
    assert V.passes - before == 1
    np.testing.assert_allclose(found, poisson_gaps(from_columns(sample_matrix), W, H), rtol=1e-6)
    assert found.divergence == pytest.approx(kl_div(sample_matrix, W @ H).sum(), rel=1e-6)


def test_rates_of_zero_are_refused_where_there_are_counts(refuses):
    V = from_columns([[2.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    W, H = [[0.0], [0.0], [1.0]], [[1.0, 1.0]]
    refuses(DataError, "zero where 3 entries", lambda: poisson_gaps(V, W, H))

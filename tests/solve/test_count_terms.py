"""Counts with holes, weights, known components and penalties, against direct formulas."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import kl_div
from sklearn.decomposition import NMF

from conenmf import ConeNMF, certify, factorize, from_columns, from_rows
from conenmf.data import known as known_data
from conenmf.data.known import observed_only, weigh_samples
from conenmf.errors import InputWarning
from conenmf.solve.alternate import alternate
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses.poisson import POISSON, balancing_factors
from conenmf.solve.run import Stopping

F, N, K = 16, 50, 3
BOTH = Penalties(l1_h=0.3, l2_h=0.2, l1_w=0.4, l2_w=0.5)


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    return rng.gamma(0.5, size=(F, K)), 8 * rng.gamma(0.5, size=(K, N))


@pytest.fixture(scope="module")
def counts(truth):
    return np.random.default_rng(1).poisson(truth[0] @ truth[1]).astype(float)


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(2)
    weights = rng.gamma(1.0, size=(N, F)) * (rng.random((N, F)) > 0.3)
    weights[:, 0] = weights[0] = 1.0
    return weights


def divergence(counts, W, H, weights=1.0):
    losses = kl_div(counts, W @ np.asarray(H))
    return float(np.where(weights > 0, weights * np.where(weights > 0, losses, 0), 0).sum())


def penalty(W, H, given):
    H = np.asarray(H)
    of_H = given.l1_h * H.sum() + given.l2_h * (H**2).sum() / 2
    return float(of_H + given.l1_w * W.sum() + given.l2_w * (W**2).sum() / 2)


KNOWN_LIMITS = {"loss": "poisson", "init": "nndsvd", "max_iter": 40, "tol": 1e-7}


@pytest.fixture(scope="module", params=["newton", "mult"])
def solver(request):
    return request.param


@pytest.fixture(scope="module", params=[True, False])
def is_mask(request):
    return request.param


@pytest.fixture(scope="module")
def known_in_memory(is_mask, solver, counts, weights):
    """A fit of what is known, in memory."""
    of = (weights > 0).astype(float) if is_mask else weights
    return factorize(from_columns(counts, weights=of.T), K, solver=solver, **KNOWN_LIMITS)


@pytest.mark.thinned(3)
def test_known_entries_on_every_storage(
    main_backend, is_mask, solver, counts, weights, known_in_memory
):
    of = (weights > 0).astype(float) if is_mask else weights
    V = observed_only(main_backend(counts), **{"mask" if is_mask else "weights": of})
    result = factorize(V, K, solver=solver, **KNOWN_LIMITS)
    value = divergence(counts, result.W, result.H, of.T)
    assert result.objective == pytest.approx(value, rel=1e-5 if V.dtype == np.float32 else 1e-9)
    assert np.all(np.diff(result.history.relative_error) <= 1e-12)
    assert result.history.relative_error[-1] == pytest.approx(result.relative_error, rel=1e-2)
    assert factorize(V, 1, loss="poisson").relative_error == pytest.approx(1.0, rel=1e-5)
    assert result.objective == pytest.approx(known_in_memory.objective, rel=1e-4)


def test_complete_data_with_the_option_have_the_same_bits(counts, same_factors):
    both = (from_columns(counts), from_columns(counts, missing="nan"))
    same_factors(*(factorize(V, K, loss="poisson") for V in both))


def test_stored_entries_of_sparse_counts(counts):
    """Those not stored are unknown, a stored zero is a count of zero."""
    mask = np.random.default_rng(3).random(counts.shape) > 0.4
    mask[0] = mask[:, 0] = True
    samples, features = np.nonzero(mask.T)
    X = sp.csr_array((counts.T[samples, features], (samples, features)), shape=(N, F))
    assert (X.data == 0).any()
    V = from_rows(X, missing="zeros")
    init = np.random.default_rng(4).random((F, K))
    result = factorize(V, K, loss="poisson", init=init)
    assert result.objective == pytest.approx(divergence(counts, result.W, result.H, mask))
    dense = factorize(from_columns(counts, mask=mask), K, loss="poisson", init=init)
    assert result.objective == pytest.approx(dense.objective, rel=1e-6)


def test_hidden_counts_are_found(truth):
    W, H = truth
    rates = 50 * W @ H
    X = np.random.default_rng(4).poisson(rates).T.astype(float)
    hidden = np.random.default_rng(5).random(X.shape) < 0.3
    hidden[:, 0] = hidden[0] = False
    X[hidden] = np.nan
    model = ConeNMF(K, loss="poisson", missing="nan").fit(X)
    imputed = model.inverse_transform(model.transform(X))
    error = np.linalg.norm((imputed - rates.T)[hidden]) / np.linalg.norm(rates.T[hidden])
    assert error < 0.1
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * model.result_.objective))
    assert model.explained_share(X) == pytest.approx(1 - model.relative_error_)


def test_samples_and_features_without_known_entries(counts):
    X = counts.T.copy()
    X[4], X[:, 3] = np.nan, np.nan
    with pytest.warns(InputWarning):
        model = ConeNMF(K, loss="poisson", missing="nan").fit(X)
    assert not model.components_[:, 3].any()
    with pytest.warns(InputWarning):
        A = model.transform(X)
    assert not A[4].any()
    assert np.isnan(model.inverse_transform(A)[:, 3]).all()


def test_known_components_stay_and_help(truth, counts):
    W, _ = truth
    names = ["zinc", "lead"]
    table = pd.DataFrame(W[:, :2].T, names)
    result = ConeNMF(K, loss="poisson", fixed=table, tol=1e-8, max_iter=500).fit(counts.T).result_
    assert np.array_equal(result.W[:, :2], W[:, :2])
    assert result.component_names[:2] == tuple(names)
    assert result.W[:, 2].sum() == pytest.approx(1.0)
    assert result.objective == pytest.approx(divergence(counts, result.W, result.H))
    true = factorize(from_columns(counts), K, loss="poisson", fixed=W)
    assert result.objective < true.objective  # the third is fitted to these counts
    plain = factorize(from_columns(counts), K, loss="poisson", tol=1e-8, max_iter=500)
    assert plain.objective < result.objective


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_all_components_given_is_transform(make, truth, counts):
    W, _ = truth
    model = ConeNMF(K, loss="poisson", fixed=W.T).fit(make(counts.T))
    other = ConeNMF(K, loss="poisson", fixed=W.T).fit(make(counts.T[:20]))
    assert (model.result_.n_iter, model.n_iter_) == (0, 1)
    np.testing.assert_array_equal(model.components_, W.T)
    np.testing.assert_array_equal(other.transform(counts.T), model.result_.H.T)


def test_counts_that_no_given_component_has_are_named(truth, counts):
    W = truth[0].copy()
    W[2] = 0.0
    with pytest.warns(InputWarning, match="1 feature"):
        result = factorize(from_columns(counts), K, loss="poisson", fixed=W)
    rest = np.arange(F) != 2
    assert result.objective == pytest.approx(divergence(counts[rest], W[rest], result.H))
    free = factorize(from_columns(counts), K + 1, loss="poisson", fixed=W)  # without a warning
    assert free.W[2, K] > 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_objective_is_that_of_scikit_learn(counts):
    """At equal factors to 1e-10, at the end not above it, in both solvers."""
    options = {"alpha_W": 0.01, "alpha_H": 0.02, "l1_ratio": 0.3}
    theirs = NMF(K, beta_loss="kullback-leibler", solver="mu", max_iter=3000, tol=1e-8, **options)
    A = theirs.set_params(init="nndsvda").fit_transform(counts.T)
    C = theirs.components_
    value = kl_div(counts.T, A @ C).sum()
    value += options["alpha_W"] * F * (0.3 * A.sum() + 0.7 / 2 * (A**2).sum())
    value += options["alpha_H"] * N * (0.3 * C.sum() + 0.7 / 2 * (C**2).sum())
    given = Penalties.as_in_sklearn((F, N), **options)
    V, limits = from_columns(counts), Stopping(tol=0.0, max_iter=1)
    step = alternate(V, C.T, A.T, "mult", stopping=limits, objective=POISSON.on(V, given))
    ours = step.history.relative_error[-1] * POISSON.on(V, rescale=False).total
    at_step = divergence(counts, step.W, step.H) + penalty(step.W, step.H, given)
    assert ours == pytest.approx(at_step, rel=1e-10)
    assert ours <= value * (1 + 1e-12)
    assert ours == pytest.approx(value, rel=1e-5)
    model = ConeNMF(K, loss="poisson", tol=1e-8, max_iter=1000, **options).fit(counts.T)
    assert model.result_.objective <= value * (1 + 1e-9)
    np.testing.assert_allclose(model.transform(counts.T), model.result_.H.T)
    left = divergence(counts, model.result_.W, model.result_.H)
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * left))


@pytest.mark.parametrize("n_fixed", [0, 1])
@pytest.mark.parametrize("with_holes", [False, True])
def test_penalties_with_the_others(n_fixed, with_holes, truth, counts, weights):
    V = from_columns(counts, weights=weights.T) if with_holes else from_columns(counts)
    of = weights.T if with_holes else 1.0
    fixed = truth[0][:, :n_fixed] if n_fixed else None
    options = {"penalties": BOTH, "fixed": fixed, "tol": 1e-9, "max_iter": 1000}
    result = factorize(V, K, loss="poisson", **options)
    value = divergence(counts, result.W, result.H, of) + penalty(result.W, result.H, BOTH)
    assert result.objective == pytest.approx(value, rel=1e-9)
    slow = factorize(V, K, loss="poisson", solver="mult", **options | {"max_iter": 3000})
    assert result.objective <= slow.objective * (1 + 1e-6)
    assert np.all(np.diff(slow.history.relative_error) <= 1e-12)


def test_penalties_are_smallest_in_the_balanced_scale(rng):
    W, H = rng.random((5, 2)), 100 * rng.random((2, 7))
    sizes = balancing_factors(W, H.sum(axis=1), (H**2).sum(axis=1), BOTH)
    at = [penalty(W * (sizes * t), (H.T / (sizes * t)).T, BOTH) for t in (0.99, 1.0, 1.01)]
    assert at[1] < min(at[0], at[2])


@pytest.mark.parametrize("init", ["auto", "nndsvd", "cr1"])
def test_a_weight_of_two_is_the_sample_twice(init, counts, monkeypatch):
    """Whether samples are repeated or multiplied by their weights."""
    times = np.random.default_rng(1).integers(0, 4, N)
    options = {"loss": "poisson", "init": init, "tol": 1e-9, "max_iter": 500, "random_state": 0}
    twice = ConeNMF(K, **options).fit(np.repeat(counts.T, times, axis=0))
    repeated = ConeNMF(K, **options).fit(counts.T, sample_weight=times)
    monkeypatch.setattr(known_data, "_MAX_REPEATED_ENTRIES", 0)
    scaled = ConeNMF(K, **options).fit(counts.T, sample_weight=times)
    for model in (repeated, scaled):
        assert model.result_.objective == pytest.approx(twice.result_.objective, rel=1e-6)
        np.testing.assert_allclose(model.components_, twice.components_, atol=1e-3)
        assert model.result_.H.shape == (K, N)
    np.testing.assert_allclose(scaled.transform(counts.T), scaled.result_.H.T)


def test_any_weights_of_samples_are_in_the_objective(main_backend, counts):
    times = np.random.default_rng(1).gamma(1.0, size=N)
    V = weigh_samples(main_backend(counts), times, POISSON.degree)
    result = factorize(V, K, loss="poisson", init="nndsvd")
    value = divergence(counts, result.W, result.H, times)
    assert result.objective == pytest.approx(value, rel=1e-5 if V.dtype == np.float32 else 1e-9)


def test_certificates_know_what_is_given_and_penalised(truth, counts):
    """Gaps are those of the problem that was solved; the noise floor is that of plain counts."""
    V, fixed = from_columns(counts), truth[0][:, :1]
    options = {"loss": "poisson", "tol": 1e-10, "max_iter": 1000}
    for terms in ({"fixed": fixed}, {"penalties": BOTH}, {"penalties": BOTH, "fixed": fixed}):
        result = factorize(V, K, **options, **terms)
        certificate = result.certify()
        assert certificate.relative_error == pytest.approx(result.relative_error)
        assert certificate.coefficient_gap <= 1e-6 * counts.sum()
        assert certificate.component_gap <= 1e-4 * counts.sum()
        plain = certify(V, result.W, result.H, loss="poisson")
        assert plain.component_gap > 10 * certificate.component_gap
        assert certificate.gap >= 0
    weighed = weigh_samples(V, np.arange(N) / 7, POISSON.degree)
    certificate = factorize(weighed, K, **options).certify()
    assert certificate.component_gap <= 1e-4 * counts.sum()
    assert np.isinf(certificate.noise_floor)

"""Beta divergences: iterates of scikit-learn, monotone, stationary, clear refusals."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import NMF
from sklearn.model_selection import GridSearchCV

from conenmf import ConeNMF, certify, factorize, from_columns, from_rows, stability
from conenmf.cli import main
from conenmf.errors import DataError, NotAvailableError, OptionError
from conenmf.solve.alternate import alternate
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses import get_loss
from conenmf.solve.losses.beta_divergence import ITAKURA_SAITO
from conenmf.solve.run import Stopping

F, N, K = 12, 40, 3
OPTIONS = {"loss": "itakura-saito", "max_iter": 60}
UNFINISHED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def spectra(seed=0):
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.5, size=(F, K)) @ rng.gamma(1.0, size=(K, N)) + 0.05
    return rates * rng.exponential(size=(F, N)) + 1e-3


def divergence(V, W, H):
    ratios = V / (W @ H)
    return float((ratios - np.log(ratios) - 1).sum())


@UNFINISHED
def test_multiplicative_iterates_are_those_of_scikit_learn(main_backend, refuses):
    V, rng = spectra(), np.random.default_rng(1)
    W, H = rng.random((F, K)) + 0.1, rng.random((K, N)) + 0.1
    theirs = NMF(K, init="custom", solver="mu", beta_loss="itakura-saito", max_iter=30, tol=0.0)
    A = theirs.fit_transform(V.T, W=H.T.copy(), H=W.T.copy())
    data = main_backend(V)
    if not data.measures.lowest > 0:
        refuses(DataError, "needs positive entries", lambda: factorize(data, K, **OPTIONS))
        return
    how = {"stopping": Stopping(0.0, max_iter=30), "objective": ITAKURA_SAITO.on(data)}
    ours = alternate(data, W, H, "mult", **how)
    single = data.dtype == np.float32
    np.testing.assert_allclose(ours.W, theirs.components_.T, rtol=1e-3 if single else 1e-10)
    np.testing.assert_allclose(np.asarray(ours.H), A.T, rtol=1e-3 if single else 1e-10)


@pytest.mark.parametrize("init", ["auto", "random", "nndsvd", "spa"])
def test_the_divergence_never_rises_and_its_value_is_exact(init):
    V = spectra()
    result = factorize(from_columns(V), K, init=init, rng=np.random.default_rng(0), **OPTIONS)
    assert (np.diff(result.history.relative_error) <= 1e-12).all()
    assert result.objective == pytest.approx(divergence(V, result.W, result.H), rel=1e-10)
    mean = divergence(V, V.mean(axis=1, keepdims=True), np.ones((1, N)))
    assert result.relative_error == pytest.approx(result.objective / mean, rel=1e-10)


@UNFINISHED
def test_transform_is_the_fit_and_ends_at_a_stationary_point():
    V = spectra()
    model = ConeNMF(K, loss="itakura-saito", max_iter=60)
    A = model.fit_transform(V.T)
    np.testing.assert_array_equal(model.transform(V.T), A)
    W, X = model.components_.T, model.components_.T @ A.T
    slopes = W.T @ (1 / X - V / X**2)
    assert np.abs(A.T * slopes).max() < 1e-5
    assert slopes.min() > -1e-4
    left = divergence(V, W, A.T)
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * left))
    assert "divergence" in model.result_.summary()[0]


def started(case):
    """Own factors (W, H), some with zeros or nearly zeros, of 20 features and 50 samples."""
    rng = np.random.default_rng(0)
    W, H = rng.random((20, 3)), rng.random((3, 50))
    if case == "a feature without components":
        W[4] = 0
    elif case == "a zero component":
        W[:, 1] = 0
    elif case == "zeros":
        W[rng.random(W.shape) < 0.5] = 0
        H[rng.random(H.shape) < 0.5] = 0
    elif case == "a tiny feature":
        W[4] = 1e-300
    return W, H


CASES = ["positive", "a feature without components", "a zero component", "zeros", "a tiny feature"]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("with_H", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_own_factors_begin_a_run_whose_end_is_finite(case, with_H):
    rng = np.random.default_rng(0)
    V = rng.gamma(1.0, 1.0, (20, 3)) @ rng.gamma(1.0, 1.0, (3, 50)) + 0.01
    W, H = started(case)
    result = factorize(
        from_columns(V), 3, loss="itakura-saito", init=(W, H) if with_H else W, max_iter=30
    )
    assert (np.diff(result.history.relative_error) <= 1e-12).all()
    assert result.objective == pytest.approx(divergence(V, result.W, result.H), rel=1e-9)
    assert result.relative_error <= result.history.relative_error[-1]
    if case == "a zero component":  # updates cannot change it
        assert (~result.W.any(axis=0)).sum() == 1


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("entries", [(3, 4), (slice(None), 4)], ids=["entry", "feature"])
def test_tiny_entries_of_the_data(entries):
    V = spectra()
    V[entries[::-1]] = 1e-300
    result = factorize(from_columns(V), K, **OPTIONS)
    logs = np.log(V) - np.log(result.W @ result.H)
    by_hand = (V / (result.W @ result.H) - logs - 1).sum()
    assert result.objective == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_result_is_never_worse_than_its_run(seed):
    """From equal shares alone, 10 of 200 fits of 15 x 11 such spectra ended up to 7.5% above it."""
    rng = np.random.default_rng(seed)
    N, F, K = (int(rng.integers(*ends)) for ends in ((8, 60), (6, 30), (2, 6)))
    X = rng.gamma(0.5, 1, (N, K)) @ rng.gamma(0.5, 1, (K, F)) + 0.01
    X = X * rng.exponential(size=(N, F)) + 1e-3
    V = from_rows(X)
    result = factorize(V, K, loss="itakura-saito", init="random", rng=rng)
    assert result.relative_error <= result.history.relative_error[-1] * (1 + 1e-9)
    H, _, value = ITAKURA_SAITO.coefficients(V, result.W)
    assert value >= result.objective * (1 - 1e-9)
    is_kept = np.abs(H - result.H).max(axis=0) > 1e-6 * result.H.max(axis=0)
    assert is_kept.mean() < 0.1


@UNFINISHED
@pytest.mark.parametrize("seed", [7, 62, 96])
def test_transform_is_never_worse_than_the_fit(seed):
    """A sample of each draw keeps the coefficients of its run."""
    rng = np.random.default_rng(seed)
    N, F, K = (int(rng.integers(*ends)) for ends in ((8, 60), (6, 30), (2, 6)))
    X = rng.gamma(0.5, 1, (N, K)) @ rng.gamma(0.5, 1, (K, F)) + 0.01
    X = X * rng.exponential(size=(N, F)) + 1e-3
    model = ConeNMF(K, loss="itakura-saito", init="random", random_state=seed)
    A = model.fit_transform(X)
    V = from_rows(X)
    alone = ITAKURA_SAITO.coefficients(V, model.components_.T)[2]
    assert alone > model.result_.objective * (1 + 1e-4)
    np.testing.assert_allclose(model.transform(X), A, rtol=1e-6, atol=1e-6 * A.max())
    again = divergence(X.T, model.components_.T, model.transform(X).T)
    assert again <= model.result_.objective * (1 + 1e-9)


def test_coefficients_of_a_sample_do_not_depend_on_others():
    V = from_columns(spectra())
    W = factorize(V, K, **OPTIONS).W
    whole = ITAKURA_SAITO.coefficients(V, W)[0]
    alone = ITAKURA_SAITO.coefficients(from_columns(spectra()[:, 7:9]), W)[0]
    np.testing.assert_allclose(whole[:, 7:9], alone, rtol=1e-6, atol=1e-9 * whole.max())


@UNFINISHED
def test_a_grid_search_over_losses_and_components_has_scores():
    rng = np.random.default_rng(0)
    X = rng.gamma(0.5, size=(60, K)) @ rng.gamma(0.5, size=(K, 24)) + 0.01
    X *= rng.gamma(5, 0.2, size=X.shape)
    grid = {"loss": ["frobenius", "itakura-saito"], "n_components": [1, K]}
    found = GridSearchCV(ConeNMF(max_iter=60), grid, cv=2).fit(X)
    scores = found.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert scores[3] > scores[2]  # K components predict better than one


def test_a_score_is_that_of_samples_with_their_weights():
    V, rng = spectra(), np.random.default_rng(0)
    W = rng.random((F, K)) + 0.1
    weights = rng.integers(0, 3, N)
    weighted = ITAKURA_SAITO.held_out(from_columns(V), W, weights=weights)
    repeated = ITAKURA_SAITO.held_out(from_columns(np.repeat(V, weights, axis=1)), W)
    assert weighted == pytest.approx(repeated, rel=1e-9)
    scaled = ITAKURA_SAITO.held_out(from_columns(1e-3 * V, block_samples=7), 1e4 * W)
    assert scaled == pytest.approx(ITAKURA_SAITO.held_out(from_columns(V), W), rel=1e-6)


def test_the_distance_from_a_stationary_point_is_that_of_both_factors():
    V, W = spectra(), np.random.default_rng(2).random((F, K)) + 0.1
    end = ITAKURA_SAITO.on(from_columns(V, block_samples=7)).finish(W, sort=False)
    X = W @ end.H
    slopes = 1 / X - V / X**2
    distance = np.abs(W * (slopes @ end.H.T)).sum() + np.abs(end.H * (W.T @ slopes)).sum()
    assert end.kkt_residual == pytest.approx(distance / V.size, rel=1e-9)
    assert end.squared_error == end.objective == pytest.approx(divergence(V, W, end.H))
    masses = W.sum(axis=0) * end.H.sum(axis=1)
    np.testing.assert_allclose(end.shares, masses / masses.sum())


def fit(V, **options):
    return factorize(V, K, **OPTIONS, **options)


V = spectra()
DATA = from_columns(V)
REFUSED = {
    "zeros": (DataError, "needs positive", lambda: fit(from_columns(np.where(V < 0.1, 0.0, V)))),
    "sparse data": (DataError, "needs positive", lambda: fit(from_rows(sp.csr_array(V.T)))),
    "another solver": (OptionError, "solver='hals' is unknown", lambda: fit(DATA, solver="hals")),
    "penalties": (
        OptionError,
        "takes no penalties",
        lambda: fit(DATA, penalties=Penalties(l1_h=0.1, l1_w=0.1)),
    ),
    "known components": (
        OptionError,
        "takes no known components .*use loss='poisson'",
        lambda: fit(DATA, fixed=V[:, :1]),
    ),
    "holes": (OptionError, "takes no missing", lambda: fit(from_columns(V, mask=V > 0.01))),
    "other samples": (
        NotAvailableError,
        "resample='start'",
        lambda: stability(DATA, K, loss="itakura-saito"),
    ),
    "a score of zeros": (
        DataError,
        "needs positive",
        lambda: ITAKURA_SAITO.held_out(from_columns(np.eye(3)), np.ones((3, 2))),
    ),
    "batches": (
        NotAvailableError,
        "partial_fit",
        lambda: ConeNMF(K, loss="itakura-saito").partial_fit(V.T),
    ),
    "a certificate of a fit": (
        NotAvailableError,
        "no lower bound is known for this loss",
        lambda: fit(DATA).certify(),
    ),
    "a certificate of factors": (
        NotAvailableError,
        "no lower bound is known for this loss",
        lambda: certify(DATA, V[:, :K], np.ones((K, N)), loss="itakura-saito"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_it_does_not_offer_are_refused(case, refuses):
    refuses(*REFUSED[case])


def test_a_diagnosis_has_no_lower_bound():
    result = fit(DATA)
    result.diagnose()
    assert result.certificate.lower_bound == 0


def test_the_command_line_has_it(tmp_path, capsys):
    np.save(tmp_path / "spectra.npy", V.T)
    arguments = ["fit", str(tmp_path / "spectra.npy"), "-k", "3", "--loss", "itakura-saito"]
    assert main([*arguments, "-o", str(tmp_path / "out")]) == 0
    assert "divergence" in capsys.readouterr().out


@UNFINISHED
def test_a_sample_counts_as_often_as_its_weight_says(refuses):
    X = spectra().T
    times = np.random.default_rng(0).integers(0, 3, N)
    weighted = ConeNMF(K, **OPTIONS).fit(X, sample_weight=times)
    repeated = ConeNMF(K, **OPTIONS).fit(X.repeat(times, axis=0))
    np.testing.assert_allclose(weighted.components_, repeated.components_, rtol=1e-10)
    assert weighted.relative_error_ == pytest.approx(repeated.relative_error_, rel=1e-10)
    assert weighted.transform(X).shape == weighted.result_.H.T.shape == (N, K)
    model = ConeNMF(K, loss="itakura-saito")
    refuses(OptionError, "sample_weight has fractions", model.fit, X, None, times / 2 + 0.1)


# --- the family -------------------------------------------------------------------------------

BETAS = [-0.5, 0.0, 0.5, 1.5, 3.0]


def entries_of(beta, v, x):
    """The divergence of one entry, from its definition."""
    if beta == 0:
        return v / x - np.log(v / x) - 1
    powers = v**beta + (beta - 1) * x**beta - beta * v * x ** (beta - 1)
    return powers / (beta * (beta - 1))


@UNFINISHED
@pytest.mark.parametrize("n_iter", [1, 30, 200])
@pytest.mark.parametrize(
    ("beta", "zeros"), [(beta, 0) for beta in BETAS] + [(beta, 0.3) for beta in BETAS[2:]]
)
def test_iterates_of_every_beta_are_those_of_scikit_learn(beta, zeros, n_iter):
    rng = np.random.default_rng(3)
    V = spectra(3)
    V[rng.random(V.shape) < zeros] = 0
    W, H = rng.random((F, K)) + 0.1, rng.random((K, N)) + 0.1
    theirs = NMF(K, init="custom", solver="mu", beta_loss=beta, max_iter=n_iter, tol=0.0)
    A = theirs.fit_transform(V.T, W=H.T.copy(), H=W.T.copy())
    how = {
        "stopping": Stopping(0.0, max_iter=n_iter),
        "objective": get_loss(beta).on(from_columns(V)),
    }
    ours = alternate(from_columns(V), W, H, "mult", **how)
    np.testing.assert_allclose(ours.W, theirs.components_.T, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(np.asarray(ours.H), A.T, rtol=1e-10, atol=1e-13)


@UNFINISHED
@pytest.mark.parametrize("beta", BETAS)
def test_fits_of_every_beta_are_monotone_exact_and_saved(beta, tmp_path):
    V = spectra(1)
    model = ConeNMF(K, loss=beta, max_iter=40)
    A = model.fit_transform(V.T)
    result = model.result_
    assert (np.diff(result.history.relative_error) <= 1e-12).all()
    assert result.relative_error <= result.history.relative_error[-1] * (1 + 1e-12)
    fitted = model.components_.T @ A.T
    assert result.objective == pytest.approx(entries_of(beta, V, fitted).sum(), rel=1e-9)
    mean = np.broadcast_to(V.mean(axis=1, keepdims=True), V.shape)
    of_mean = entries_of(beta, V, mean).sum()
    assert result.relative_error == pytest.approx(result.objective / of_mean, rel=1e-9)
    slopes = model.components_ @ (fitted ** (beta - 1) - V * fitted ** (beta - 2))
    size = model.components_ @ fitted ** (beta - 1)
    assert np.abs(A.T * slopes).max() < 1e-5 * (A.T * size).max()
    assert (slopes / size).min() > -1e-3
    model.save(tmp_path / "model.npz")
    again = ConeNMF.load(tmp_path / "model.npz")
    assert again.loss == beta
    np.testing.assert_array_equal(again.fit(V.T).transform(V.T), A)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(V.T), A)


@pytest.mark.parametrize("beta", BETAS)
def test_the_unit_does_not_matter(beta):
    V = spectra(2)
    errors = [
        factorize(from_columns(unit * V), K, loss=beta, max_iter=20, tol=0.0).relative_error
        for unit in (1.0, 1e-9, 1e9, 1e-30, 1e30)
    ]
    np.testing.assert_allclose(errors, errors[0], rtol=1e-6)


@UNFINISHED
@pytest.mark.parametrize("beta", [0.5, 1.5, 3.0])
def test_sparse_data_and_empty_samples_give_the_dense_answer(beta):
    V = np.where(spectra(4) > 0.5, spectra(4), 0.0)
    V[:, 3] = 0
    dense, sparse = (ConeNMF(K, loss=beta, max_iter=30).fit(X) for X in (V.T, sp.csr_array(V.T)))
    assert sparse.relative_error_ == pytest.approx(dense.relative_error_, rel=1e-8)
    A = dense.transform(V.T)
    assert np.isfinite(A).all()
    assert not A[3].any()
    assert np.isfinite(dense.score(V.T))


def test_betas_one_and_two_are_the_losses_with_names():
    assert get_loss(1) is get_loss("poisson")
    assert get_loss(2.0) is get_loss("frobenius")
    assert get_loss(0) is ITAKURA_SAITO
    assert get_loss(np.float32(1.5)) is get_loss("beta=1.5")


@pytest.mark.parametrize("wrong", ["1.5", float("nan"), float("inf"), True, "beta=x", None])
def test_what_is_no_beta(wrong):
    with pytest.raises(OptionError, match="loss="):
        ConeNMF(2, loss=wrong).fit(spectra().T)


@pytest.mark.parametrize("beta", [0, -0.5])
def test_zeros_need_a_beta_above_zero(beta):
    V = spectra()
    V[2, 5] = 0
    with pytest.raises(DataError, match="needs positive entries"):
        factorize(from_columns(V), K, loss=beta)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_equal_samples_have_an_error_of_nearly_zero(beta, noise, rng):
    """Their divergence from the mean sample is rounding, so it is no unit."""
    X = np.tile(1 + rng.random(7), (9, 1)) * (1 + noise * rng.random((9, 1)))
    loss = "itakura-saito" if not beta else f"beta={beta}"
    result = factorize(from_rows(X), 1, loss=loss, max_iter=300)
    assert 0 <= result.relative_error < 1e-6


def test_more_samples_than_were_fitted_are_transformed(rng):
    """The coefficients of the fit are no start for other samples."""
    X = rng.gamma(2.0, size=(12, 2)) @ rng.gamma(2.0, size=(2, 9)) * rng.gamma(50, 1 / 50, (12, 9))
    model = ConeNMF(2, loss="itakura-saito", max_iter=300).fit(X)
    more = np.vstack([X[::-1], X])
    alone = np.vstack([model.transform(one[None]) for one in more])
    np.testing.assert_allclose(model.transform(more), alone, rtol=1e-6, atol=1e-9 * alone.max())

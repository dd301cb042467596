"""The estimator: attributes, pipelines, searches, own inits, and streams by `partial_fit`."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import check_estimator

from conenmf import ConeNMF, Factorization, make_cones
from conenmf.errors import (
    ComponentsError,
    DataError,
    DataTypeError,
    NotAvailableError,
    OptionError,
)
from conenmf.estimator import sklearn_init
from conenmf.solve.scenes import SCENE
from conenmf.solve.solvers import SOLVERS


@pytest.fixture(scope="module")
def X():
    return make_cones(60, 4, 0.15, n_samples=200, rng=np.random.default_rng(0)).V.T


def test_attributes(X):
    model = ConeNMF(random_state=0)
    A = model.fit_transform(X)
    assert (A.shape, model.labels_.shape) == ((200, 4), (200,))
    assert (model.n_components_, model.n_features_in_) == model.components_.shape == (4, 60)
    np.testing.assert_allclose(model.inverse_transform(A), A @ model.components_)
    error = np.linalg.norm(X - A @ model.components_)
    expected = (error, error / np.linalg.norm(X))
    assert (model.reconstruction_err_, model.relative_error_) == pytest.approx(expected, rel=1e-10)
    assert model.explained_share(X) == pytest.approx(1 - model.relative_error_**2)
    assert model.n_iter_ == model.history_.relative_error.size > 0
    assert model.stop_reason_ == "converged"
    assert isinstance(model.result_, Factorization)


@pytest.mark.parametrize("solver", [*SOLVERS, None])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fit_transform_is_fit_then_transform(X, solver, dtype):
    X = X.astype(dtype)
    model = ConeNMF(solver=solver, max_iter=30, tol=0)
    A = model.fit_transform(X)
    assert A.dtype == dtype
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(model.transform(X), A, atol=tolerance * A.max())
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.seed(79)
def test_fit_transform_is_fit_then_transform_even_if_rank_deficient(rng):
    X = rng.random((52, 2)) @ rng.random((2, 32))
    for seed in range(20):
        model = ConeNMF(7, init="random", solver="nnlsb", random_state=seed, max_iter=20, tol=0)
        A = model.fit_transform(X)
        np.testing.assert_array_equal(model.transform(X), A)
        A[:] = -1  # the caller's own
        assert model.result_.H.min() >= 0


def test_dense_and_sparse_are_exchangeable(X):
    X = np.where(X < 0.1, 0, X)
    dense, sparse = ConeNMF(4).fit(X), ConeNMF(4).fit(sp.csc_matrix(X))
    np.testing.assert_allclose(dense.components_, sparse.components_, atol=1e-10)
    np.testing.assert_allclose(dense.transform(sp.coo_array(X)), sparse.transform(X), atol=1e-10)
    frame = ConeNMF(4).fit(pd.DataFrame(np.asfortranarray(X)).rename(columns=str))
    np.testing.assert_allclose(frame.components_, dense.components_, atol=1e-10)


def test_zero_samples_and_zero_features_are_legal(X):
    X = X.copy()
    X[[3, 9]] = 0
    X[:, 5] = 0
    model = ConeNMF(4).fit(X)
    assert (model.labels_[[3, 9]] == -1).all()
    assert not model.components_[:, 5].any()
    nothing = np.zeros((2, 60))
    assert not model.transform(nothing).any()
    assert (model.predict(nothing).tolist(), model.score(nothing)) == ([-1, -1], 1.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pipeline_and_grid_search():
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(Normalizer(), ConeNMF(8, init="cr1"), LogisticRegression(max_iter=500))
    choices = {"conenmf__n_components": [2, 12], "conenmf__solver": ["hals"]}
    search = GridSearchCV(pipeline, choices, cv=3).fit(X[:300], y[:300])
    assert search.best_params_["conenmf__n_components"] == 12
    assert search.best_score_ > 0.6


@pytest.fixture(scope="module")
def mixtures():
    """Samples that mix five components, with noise."""
    rng = np.random.default_rng(0)
    X = rng.gamma(0.5, size=(150, 5)) @ rng.gamma(0.3, size=(5, 60))
    return rng.poisson(5 * X / X.mean()).astype(float)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_search_finds_the_number_of_components_also_in_processes(mixtures, make):
    numbers = [3, 5, 7, 12]
    search = GridSearchCV(ConeNMF(), {"n_components": numbers}, cv=3, n_jobs=2).fit(make(mixtures))
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"n_components": 5}
    assert np.all(np.diff(scores[1:]) < 0)  # falls where more would only fit noise


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_breaks_with_metadata_routing(mixtures):
    with config_context(enable_metadata_routing=True):
        check_estimator(ConeNMF(1), on_skip=None)
        pipeline = make_pipeline(Normalizer(), ConeNMF(3, max_iter=5, tol=0))
        A = pipeline.fit_transform(mixtures)
        np.testing.assert_array_equal(pipeline.fit(mixtures).transform(mixtures), A)
        search = GridSearchCV(pipeline, {"conenmf__n_components": [1, 3]}, cv=2)
        assert search.fit(mixtures).best_params_ == {"conenmf__n_components": 3}
        weighted = make_pipeline(Normalizer(), ConeNMF(3).set_score_request(sample_weight=True))
        weighted.fit(mixtures)
        found = [weighted.score(mixtures, sample_weight=np.arange(150) < n) for n in (150, 75)]
        expected = [weighted.score(mixtures[:n]) for n in (150, 75)]
        assert found == pytest.approx(expected, rel=1e-12)
        assert np.ptp(expected) > 1e-4


def test_groups_are_routed_to_fit_and_transform(mixtures):
    """Through a pipeline, as scikit-learn routes metadata."""
    labels = np.repeat(["a", "b"], 75)
    X = np.where(labels[:, None] == "a", 1.0, np.linspace(0.5, 2, mixtures.shape[1])) * mixtures
    with config_context(enable_metadata_routing=True):
        model = ConeNMF(3).set_fit_request(groups=True).set_transform_request(groups=True)
        pipeline = make_pipeline(Normalizer(), model)
        A = pipeline.fit(X, groups=labels).transform(X, groups=labels)
    own = ConeNMF(3)
    own.fit(Normalizer().fit_transform(X), groups=labels)
    assert (own.group_scales_ != 1).any()
    np.testing.assert_array_equal(model.group_scales_, own.group_scales_)
    expected = own.transform(Normalizer().fit_transform(X), groups=labels)
    np.testing.assert_array_equal(A, expected)


def test_random_state(X):
    def components(state, init="random"):
        return ConeNMF(4, init=init, random_state=state, max_iter=3, tol=0).fit(X).components_

    np.testing.assert_array_equal(components(1), components(1))
    assert not np.array_equal(components(1), components(2))
    assert not np.array_equal(components(None), components(None))
    np.testing.assert_array_equal(components(None, "cr1"), components(None, "cr1"))
    state = np.random.RandomState(0)
    assert not np.array_equal(components(state), components(state))
    np.testing.assert_array_equal(
        components(np.random.default_rng(5)), components(np.random.default_rng(5))
    )


def test_own_start_in_scikit_learns_layout(X, rng, refuses):
    A, C = rng.random((200, 4)), rng.random((4, 60))
    for init in ((A, C), C):
        model = ConeNMF(init=init, solver="nnlsb", max_iter=5, tol=0).fit(X)
        assert (model.n_components_, model.n_iter_) == (4, 5)
    assert ConeNMF(4, init=None).fit(X).result_.settings["init"] == "auto"
    for init, message in (
        (C.T, r"components has shape \(60, 4\), expected \(4, 60\)"),
        ((A.T, C), r"coefficients has shape \(4, 200\), expected \(200, 4\)"),
        (-C, "components is -.* at"),
        ((A, C, C), "tuple of 3"),
    ):
        refuses(DataError, message, ConeNMF(4, init=init).fit, X)


def test_bad_input(X, refuses):
    bad = X.copy()
    bad[2, 1] = -3
    refuses(DataError, r"row 2 \(sample\), column 1 \(feature\), .* is -3", ConeNMF().fit, bad)
    bad[4, 7] = np.nan
    refuses(DataError, "row 4", ConeNMF().fit, bad)
    too_many = "200 samples and 60 features, fewer than the 201"
    refuses(ComponentsError, too_many, ConeNMF(201).fit, X)
    theirs = r"solver='cd' is unknown.*scikit-learn's 'cd' is 'hals'"
    refuses(OptionError, theirs, ConeNMF(solver="cd").fit, X)
    for method in ("transform", "predict", "score", "inverse_transform"):
        refuses(NotFittedError, None, getattr(ConeNMF(), method), X)


def test_certificate(X):
    model = ConeNMF(4, tol=1e-6, max_iter=5000).fit(X)
    certificate = model.certify()
    assert certificate is model.certify()
    assert certificate.relative_error == pytest.approx(model.relative_error_)
    assert 0 <= certificate.gap < 0.01
    assert certificate.kkt_residual < 1e-3
    pickled = pickle.dumps(model)
    assert pickle.loads(pickled).certify() == certificate
    assert len(pickled) < X.nbytes / 2


def test_auto_start_suits_the_data(X, rng):
    assert ConeNMF(4).fit(X).result_.init_used == "nndsvd"
    topics = rng.dirichlet(np.full(60, 0.1), 6)
    mixtures = rng.gamma(1.0, size=(300, 5)) @ rng.gamma(0.3, size=(5, 30))
    counts = rng.poisson(30 * rng.dirichlet(np.full(6, 0.3), 400) @ topics)
    for data, K in ((mixtures + rng.random((300, 30)), 5), (sp.csr_array(counts), 6)):
        options = {"solver": "hals", "random_state": 0}
        auto = ConeNMF(K, **options).fit(data)
        errors = {
            init: ConeNMF(K, init=init, **options).fit(data).relative_error_
            for init in ("cr1", "nndsvda", "random")
        }
        assert auto.relative_error_ <= 1.0005 * min(errors.values())


def test_a_fit_that_did_not_converge_warns(X):
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=1 before it converged"):
        ConeNMF(4, max_iter=1).fit(X)


# --- streams ----------------------------------------------------------------------------------

OF_A_FIT = ("labels_", "relative_error_", "reconstruction_err_", "history_", "stop_reason_")


def test_partial_fit(X, refuses):
    model = ConeNMF(4, n_threads=1)
    for n, batch in enumerate(np.array_split(X, 5), 1):
        assert model.partial_fit(batch) is model
        assert (model.n_iter_, model.n_samples_seen_) == (n, 40 * n)
    assert (model.n_components_, model.n_features_in_) == model.components_.shape == (4, 60)
    assert 1 - model.explained_share(X) <= (1.01 * ConeNMF(4).fit(X).relative_error_) ** 2
    A = model.transform(X)
    assert model.inverse_transform(A).shape == X.shape
    np.testing.assert_array_equal(model.predict(X), A.argmax(axis=1))
    assert list(model.get_feature_names_out()) == [f"conenmf{k}" for k in range(4)]
    assert not any(hasattr(model, name) for name in OF_A_FIT)
    refuses(AttributeError, r"give samples, as in model.certify\(X\)", model.certify)


WITHOUT_BATCHES = {
    "loss": {"loss": "itakura-saito"},
    "n_components": {"n_components": "auto"},
    "alpha_W": {"alpha_W": 1e-3},
    "alpha_H": {"alpha_H": 1e-3, "l1_ratio": 1.0},
    "orthogonality": {"orthogonality": 0.1},
    "min_volume": {"min_volume": "auto"},
    "sum_to_one": SCENE,
    "fixed": {"fixed": np.ones((1, 60))},
    "missing": {"missing": "zeros"},
}


@pytest.mark.parametrize("option", WITHOUT_BATCHES)
def test_partial_fit_is_hidden_where_it_would_refuse(X, option, refuses):
    model = ConeNMF(4).set_params(**WITHOUT_BATCHES[option])
    assert not hasattr(model, "partial_fit")
    refuses(NotAvailableError, option, lambda: model.partial_fit(X))


def test_weights_of_a_stream_repeat_samples_or_scale_their_squares(rng):
    """Whole weights give the bits of repeated samples; others minimise the weighted squares."""
    A = rng.dirichlet(np.full(3, 0.3), 90)
    X = A @ np.kron(np.eye(3), [2.0, 1.0]) + 0.01 * rng.random((90, 6))
    weights = rng.integers(1, 4, 90)
    whole, repeated, shared = ConeNMF(3), ConeNMF(3), ConeNMF(3)
    for batch in np.split(np.arange(90), 3):
        times = weights[batch]
        whole.partial_fit(X[batch], sample_weight=times)
        repeated.partial_fit(X[batch].repeat(times, axis=0))
        shared.partial_fit(X[batch], sample_weight=times / 4)
    np.testing.assert_array_equal(whole.components_, repeated.components_)

    def weighted_squares(model):
        lefts = [nnls(model.components_.T, x)[1] for x in X]
        return weights @ np.square(lefts)

    best = ConeNMF(3, tol=1e-8).fit(X, sample_weight=weights)
    for model in (whole, shared):  # docs/theory.md: a stream ends within 1.4 % of a fit
        assert weighted_squares(model) < 1.014**2 * weighted_squares(best)


def test_partial_fit_is_hidden_after_a_fit_with_weights_of_features(X, refuses):
    model = ConeNMF(4).fit(X, weights=np.linspace(1, 2, 60))
    assert not hasattr(model, "partial_fit")
    refuses(NotAvailableError, "weights", lambda: model.partial_fit(X))
    assert hasattr(model.fit(X), "partial_fit")


@pytest.mark.parametrize("options", [{"l1_ratio": 1.0}, {"missing": "nan"}, {"missing": -999}])
def test_partial_fit_stays_where_it_works(X, options):
    found = ConeNMF(4, **options).partial_fit(X).components_
    np.testing.assert_array_equal(found, ConeNMF(4).partial_fit(X).components_)


def test_partial_fit_before_and_after_fit(X):
    fitted = ConeNMF(4).fit(X[:150])
    components = fitted.components_
    fitted.partial_fit(X[150:])
    assert (fitted.n_samples_seen_, fitted.n_iter_) == (200, 1)
    unit = components / np.linalg.norm(components, axis=1, keepdims=True)
    assert np.einsum("kf,kf->k", fitted.components_, unit).min() > 0.99
    assert not any(hasattr(fitted, name) for name in (*OF_A_FIT, "result_"))
    fitted.fit(X)
    assert not hasattr(fitted, "n_samples_seen_")
    np.testing.assert_array_equal(fitted.components_, ConeNMF(4).fit(X).components_)
    assert fitted.partial_fit(X).n_samples_seen_ == 400


def test_partial_fit_is_the_same_after_a_pickle_and_new_after_a_clone(X):
    model = ConeNMF(4).partial_fit(X[:80])
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        back.partial_fit(X[80:]).components_, model.partial_fit(X[80:]).components_
    )
    assert clone(model).partial_fit(X[:80]).n_samples_seen_ == 80


def test_partial_fit_with_few_directions_so_far(X):
    model = ConeNMF(4).partial_fit(X[:1])
    assert model.components_.shape == (4, 60)
    assert model.components_.any(axis=1).tolist() == [True, False, False, False]
    assert not model.transform(X)[:, 1:].any()
    assert model.partial_fit(X).components_.any(axis=1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_partial_fit_keeps_the_type_and_takes_sparse_batches(X, dtype):
    X = np.where(X < 0.1, 0, X).astype(dtype)
    dense, sparse = (
        ConeNMF(4).partial_fit(make(X[:100])).partial_fit(make(X[100:]))
        for make in (np.asarray, sp.csc_matrix)
    )
    assert dense.components_.dtype == dtype
    tolerance = 1e-8 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(dense.components_, sparse.components_, atol=tolerance)


def test_partial_fit_of_data_that_are_elsewhere(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    chunked = da.from_array(X, chunks=(30, 60))
    expected = ConeNMF(4).partial_fit(X[:120]).partial_fit(X[120:])
    for far in (mapped, chunked):
        for begun in (ConeNMF(4).partial_fit(far[:120]), ConeNMF(4).fit(far[:120])):
            model = begun.partial_fit(far[120:])
            assert model.n_samples_seen_ == 200
            assert model.explained_share(X) == pytest.approx(expected.explained_share(X), rel=1e-3)


# --- for people who stay with scikit-learn ----------------------------------------------------


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("solver", ["cd", "mu"])
def test_a_start_for_scikit_learn(X, make, solver):
    W, H = sklearn_init(make(X), 4, solver=solver)
    assert (W.shape, H.shape) == ((200, 4), (4, 60))
    assert W.min() > 0
    assert H.min() > 0 or solver != "mu"
    ours = NMF(4, init="custom", solver=solver, max_iter=10, tol=0)
    ours.fit_transform(make(X), W=W, H=H)
    random = NMF(4, init="random", solver=solver, max_iter=10, tol=0, random_state=0)
    assert ours.reconstruction_err_ < random.fit(make(X)).reconstruction_err_
    apart = np.kron(np.eye(2), np.ones((4, 3)))  # components with zeros, which "mu" cannot leave
    assert (sklearn_init(make(apart), 2, solver=solver)[1].min() > 0) == (solver == "mu")


def test_masks_are_not_forgotten(X, refuses):
    """Neither in data, nor in coefficients, nor in components to begin with."""
    masked = np.ma.masked_array(X, mask=X == X.max())
    model = ConeNMF(2, max_iter=1, tol=0).fit(np.ma.masked_array(X))
    plain = ConeNMF(2, max_iter=1, tol=0).fit(X)
    np.testing.assert_array_equal(model.components_, plain.components_)
    for attempt in (
        model.fit,
        model.fit_transform,
        model.partial_fit,
        plain.transform,
        plain.score,
    ):
        refuses(DataTypeError, "entries are masked", attempt, masked)
    A, C = (np.ma.masked_less(part, 1e9) for part in (plain.transform(X), plain.components_))
    refuses(DataTypeError, "entries are masked", plain.inverse_transform, A)
    refuses(DataTypeError, "entries are masked", ConeNMF(2, init=C).fit, X)


def test_a_fit_whose_penalties_leave_nothing_warns(X):
    with pytest.warns(ConvergenceWarning, match="nothing is left of W H"):
        ConeNMF(2, alpha_W=1e6).fit(X)

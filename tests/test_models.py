"""A fitted model answers for itself: it is saved, loaded, judged on data, reported and compared."""

import importlib
import subprocess
import sys

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import skops.io
from anndata import AnnData
from sklearn.exceptions import NotFittedError

from conenmf import (
    ConeNMF,
    Factorization,
    compare,
    factorize,
    from_rows,
    from_texts,
    prepare,
    write_report,
)
from conenmf.errors import DataError, FileFormatError, NotAvailableError, OptionError
from conenmf.export import annotate, write_tables
from conenmf.report import render
from conenmf.save import TRUSTED_TYPES
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.run import StopReason

K = 3


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.random((60, K)) @ rng.random((K, 12)) + 0.1 * rng.random((60, 12))


@pytest.fixture
def save_and_load(tmp_path):
    """Save a model, and load it."""

    def save(model):
        model.save(tmp_path / "model.npz")
        return type(model).load(tmp_path / "model.npz")

    return save


def with_holes(X):
    return np.where(X < np.quantile(X, 0.05), np.nan, X)


MODELS = {
    "plain": lambda X: ConeNMF(K).fit(X),
    "auto": lambda X: ConeNMF().fit(X),
    "numbers of NumPy": lambda X: ConeNMF(np.int64(K), tol=np.float64(1e-4)).fit(X),
    "single precision": lambda X: ConeNMF(K).fit(X.astype(np.float32)),
    "Poisson": lambda X: ConeNMF(K, loss="poisson").fit(np.floor(9 * X)),
    "Itakura-Saito": lambda X: ConeNMF(K, loss="itakura-saito", tol=1e-3).fit(X),
    "penalties": lambda X: ConeNMF(K, alpha_W=1e-3, l1_ratio=0.5).fit(X),
    "Poisson, penalties": lambda X: ConeNMF(K, loss="poisson", alpha_W=1e-3).fit(X),
    "scene": lambda X: ConeNMF.for_scenes(K).fit(X),
    "holes": lambda X: ConeNMF(K, missing="nan").fit(with_holes(X)),
    "weights": lambda X: ConeNMF(K).fit(X, weights=np.linspace(1, 2, X.shape[1])),
    "known": lambda X: ConeNMF(K, fixed=X[:1]).fit(X),
    "prepared": lambda X: ConeNMF(K).fit(prepare(X, normalize_total=1, log1p=True)),
    "an empty feature": lambda X: ConeNMF(K, missing="zeros").fit(X * (np.arange(12) != 3)),
}
fitted = pytest.mark.parametrize("name", MODELS)
quiet = pytest.mark.filterwarnings(
    "ignore:the file of the model:UserWarning", "ignore:nothing is observed of 1 feature"
)


@quiet
@fitted
def test_a_loaded_model_answers_as_before(name, X, save_and_load):
    model = MODELS[name](X)
    back = save_and_load(model)
    new = X[:20] + 0.05
    for verb in ("transform", "predict", "explained_share"):
        np.testing.assert_array_equal(getattr(back, verb)(new), getattr(model, verb)(new))
    assert back.score(new) == model.score(new)
    A = model.transform(new)
    np.testing.assert_array_equal(back.inverse_transform(A), model.inverse_transform(A))
    left_out = {"fixed"} if name == "known" else set()
    given = model.get_params()
    assert back.get_params() == given | dict.fromkeys(left_out)
    state = {"components_", "labels_", "n_components_", "n_features_in_", "n_iter_"}
    state |= {"reconstruction_err_", "relative_error_", "stop_reason_"}
    for attribute in state:
        np.testing.assert_array_equal(getattr(back, attribute), getattr(model, attribute))
    assert back.components_.dtype == model.components_.dtype
    refitted = save_and_load(ConeNMF(K).fit(X)).fit(X)
    np.testing.assert_array_equal(refitted.components_, ConeNMF(K).fit(X).components_)


LOADED = """
import sys
import numpy as np, pandas as pd
from conenmf import ConeNMF
model = ConeNMF.load("model.npz")
frame = pd.read_parquet("new.parquet")
np.savez("answers.npz", transform=model.transform(frame), predict=model.predict(frame),
    score=model.score(frame), names=model.feature_names_in_.astype(str),
    top=np.array(model.top_features(2)), columns=model.get_feature_names_out().astype(str))
"""


def test_a_fresh_process_gives_the_same_answers_with_names(X, tmp_path):
    frame = pd.DataFrame(X, columns=[f"gene {f}" for f in range(12)])
    model = ConeNMF(K).fit(frame)
    model.save(tmp_path / "model.npz")
    new = frame[:9]
    new.to_parquet(tmp_path / "new.parquet")
    subprocess.run([sys.executable, "-c", LOADED], cwd=tmp_path, check=True)
    answers = np.load(tmp_path / "answers.npz")
    np.testing.assert_array_equal(answers["transform"], model.transform(new))
    np.testing.assert_array_equal(answers["predict"], model.predict(new))
    assert answers["score"] == model.score(new)
    assert answers["names"].tolist() == list(frame.columns)
    assert answers["top"].tolist() == model.top_features(2)
    assert answers["columns"].tolist() == list(model.get_feature_names_out())


def test_the_names_of_features_are_still_checked(X, save_and_load):
    frame = pd.DataFrame(X, columns=[f"gene {f}" for f in range(12)])
    back = save_and_load(ConeNMF(K).fit(frame))
    assert back.feature_names_in_.dtype == object
    with pytest.raises(DataError, match="gene 0"):
        back.transform(frame.rename(columns={"gene 0": "oak"}))


def test_parameters_that_a_file_cannot_hold_are_named(X, save_and_load):
    model = ConeNMF(K, callback=lambda now: None, init=X[:K]).fit(X)
    with pytest.warns(UserWarning, match="does not contain callback, init, which have their def"):
        back = save_and_load(model)
    assert (back.callback, back.init) == (None, "auto")


def test_a_file_of_a_model_is_a_result_too_but_not_the_reverse(X, tmp_path, refuses):
    model = ConeNMF(K).fit(X)
    model.save(tmp_path / "model.npz")
    result = Factorization.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(result.W, model.result_.W)
    assert result.settings == model.result_.settings
    result.save(tmp_path / "result.npz")
    message = "result.npz has a result, but no model: use Factorization.load"
    refuses(FileFormatError, message, ConeNMF.load, tmp_path / "result.npz")


def test_a_model_without_a_fit_is_not_saved_or_judged(X, tmp_path, refuses):
    refuses(NotFittedError, None, ConeNMF(K).save, tmp_path / "model.npz")
    stream = ConeNMF(K).partial_fit(X)
    refuses(NotAvailableError, "or pickle the model", stream.save, tmp_path / "model.npz")
    refuses(NotAvailableError, r"give samples, as in model.certify\(X\)", stream.diagnose)
    assert not (tmp_path / "model.npz").exists()
    error = np.linalg.norm(X - stream.transform(X) @ stream.components_) / np.linalg.norm(X)
    assert stream.certify(X).relative_error == pytest.approx(error, rel=1e-9)


# --- judged on data ---------------------------------------------------------------------------


@quiet
@fitted
def test_a_loaded_model_is_judged_on_its_data(name, X, save_and_load):
    """The same numbers as those of the fit, whose data a file does not contain."""
    model = MODELS[name](X)
    data = model.result_.data if name == "prepared" else X
    data = {"Poisson": np.floor(9 * X), "holes": with_holes(X)}.get(name, data)
    data = X * (np.arange(12) != 3) if name == "an empty feature" else data
    data = X.astype(np.float32) if name == "single precision" else data
    back = save_and_load(model)
    again = back._result_on(data)
    # the regressions of a loss begin anew: equal up to where they end
    for attribute in ("relative_error", "objective"):
        expected = getattr(model.result_, attribute)
        assert getattr(again, attribute) == pytest.approx(expected, rel=1e-7)
    assert again.W.tolist() == model.result_.W.tolist()
    if name != "Itakura-Saito":  # which has no lower bound
        found, expected = back.certify(data), model.certify()
        assert found.lower_bound == pytest.approx(expected.lower_bound, rel=1e-6, abs=1e-9)
    assert len(back.uniqueness(data, max_iter=0).verdicts) == model.n_components_
    diagnosis = back.diagnose(data)
    assert type(diagnosis) is type(model.diagnose())
    assert back.result_.diagnosis is None


def test_new_samples_are_judged_by_their_own_numbers(X):
    model = ConeNMF(K).fit(X, feature_names=[f"gene {f}" for f in range(12)])
    new = np.random.default_rng(1).random((30, 12))
    result = model._result_on(new)
    error = np.linalg.norm(new - model.transform(new) @ model.components_) / np.linalg.norm(new)
    assert result.relative_error == pytest.approx(error, rel=1e-12)
    assert model.certify(new).relative_error == pytest.approx(error, rel=1e-9)
    assert (result.n_samples, result.names.feature(2)) == (30, "gene 2")
    assert model.result_.certificate is None
    V = from_rows(X)
    plain = ConeNMF(K).fit(V)
    assert plain._result_on(V) is plain.result_


# --- where functions take a result ------------------------------------------------------------


def test_reports_and_tables_take_a_model(X, tmp_path, refuses):
    model = ConeNMF(K).fit(X)
    write_report(model, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == render(model.result_)
    (tmp_path / "tables").mkdir()
    assert len(write_tables(model, tmp_path / "tables")) == 5
    adata = AnnData(X)
    annotate(adata, model)
    np.testing.assert_array_equal(adata.obsm["X_conenmf"], model.result_.coefficients)
    message = "expected a Factorization, from factorize, or a fitted ConeNMF"
    refuses(OptionError, message, render, ConeNMF(K))


def test_a_fitted_model_is_compared_without_another_fit(X):
    model = ConeNMF(K).fit(X)
    model.fit_transform = None  # calling it would fail
    result = factorize(X, K, init="random", rng=np.random.default_rng(0), max_iter=2)
    others = {"mine": model, "short": result}
    table = compare(X, K, inits="cr1", solvers="hals", others=others)
    rows = {one.init: one for one in table.contenders}
    assert rows["mine"].relative_error == pytest.approx(model.relative_error_, rel=1e-9)
    assert rows["short"].relative_error == pytest.approx(result.relative_error, rel=1e-9)
    assert (rows["mine"].n_iter, rows["short"].n_iter) == (model.n_iter_, 2)
    assert rows["mine"].seconds >= model.result_.total_seconds


def test_a_result_has_the_factors_as_an_estimator_has_them(X):
    model = ConeNMF(K)
    A = model.fit_transform(X)
    np.testing.assert_array_equal(model.result_.components, model.components_)
    np.testing.assert_array_equal(model.result_.coefficients, A)
    on_workers = factorize(da.from_array(X, chunks=(20, -1)), K)
    assert isinstance(on_workers.coefficients, da.Array)
    assert on_workers.coefficients.shape == (60, K)


# --- skops and MLflow -------------------------------------------------------------------------


def counts(X):
    return np.random.default_rng(1).poisson(5 * X).astype(float)


def with_hole(X):
    return np.where(np.arange(X.size).reshape(X.shape) == 5, np.nan, X)


def judged(model, X):
    """A fitted model that was asked everything that its result remembers."""
    model.fit(X)
    model.certify()
    model.uniqueness()
    model.diagnose()
    return model


FITS = {
    "automatic K": lambda X: ConeNMF().fit(X),
    "judged": lambda X: judged(ConeNMF(K), X),
    "judged counts": lambda X: judged(ConeNMF(K, loss="poisson"), counts(X)),
    "Itakura-Saito": lambda X: ConeNMF(1, loss="itakura-saito").fit(X),
    "a race": lambda X: ConeNMF(8, max_iter=2000).fit(X),
    "holes": lambda X: ConeNMF(K, missing="nan").fit(with_hole(X)),
    "uncertainties": lambda X: ConeNMF(K).fit(X, sigma=1 + X),
    "samples with weights": lambda X: ConeNMF(K).fit(X, np.arange(60) / 7),
    "penalties": lambda X: ConeNMF(K, alpha_W=1e-3, fixed=X[:1]).fit(X),
    "a scene": lambda X: ConeNMF.for_scenes(K).fit(X),
    "a data frame": lambda X: ConeNMF(K).fit(pd.DataFrame(X, columns=list("abcdefghijkl"))),
    "words": lambda X: ConeNMF(2).fit(from_texts(["oak elm", "elm oak", "ash fir", "fir ash"])),
    "prepared": lambda X: ConeNMF(K).fit(prepare(X, log1p=True)),
    "a checkpoint": lambda X: ConeNMF(K).fit(X).set_params(checkpoint=Checkpoint("run")),
    "a stream": lambda X: ConeNMF(K).partial_fit(X),
}


def plain(thing):
    """The attributes of a model, down to numbers, texts and lists."""
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, StopReason):
        return repr(thing)
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [plain(value) for value in thing]
    return plain(thing.__getstate__()) if type(thing).__module__.startswith("conenmf") else thing


@pytest.mark.parametrize("kind", FITS)
def test_skops_loads_every_model_with_one_list(kind, X):
    model = FITS[kind](X)
    content = skops.io.dumps(model)
    found = skops.io.get_untrusted_types(data=content)
    assert "conenmf.estimator.ConeNMF" in found
    loaded = skops.io.loads(content, trusted=TRUSTED_TYPES)
    np.testing.assert_equal(plain(loaded), plain(model))


def test_every_trusted_type_exists():
    for name in TRUSTED_TYPES:
        module, _, kind = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), kind), type)


@pytest.mark.filterwarnings("ignore")  # those of MLflow, about its own types and versions
def test_mlflow_saves_a_model(X, tmp_path):
    flavour = pytest.importorskip("mlflow.sklearn")
    model = judged(ConeNMF(K), X)
    flavour.save_model(model, tmp_path / "model", skops_trusted_types=TRUSTED_TYPES)
    loaded = flavour.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.diagnose().headline == model.diagnose().headline

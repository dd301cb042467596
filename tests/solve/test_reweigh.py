"""Robust fits: planted components beside wild samples and entries."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, Factorization, factorize, from_rows
from conenmf.errors import NotAvailableError, OptionError
from conenmf.export import write_tables
from conenmf.linalg.nnls import nnls
from conenmf.solve.losses.frobenius import FROBENIUS
from conenmf.solve.problem import Problem
from conenmf.solve.reweigh import Robust, _median, reweigh
from conenmf.solve.run import Stopping, StopReason

K = 4
ALIKE = "these samples are alike: outliers or one more component"


def draw(size, alike, seed, N=300, F=30, share=0.05):
    """Mixtures of four components with 10 % noise, and where some are replaced by wild samples."""
    rng = np.random.default_rng(seed)
    C = rng.gamma(0.4, size=(K, F)) + 1e-3
    C /= np.linalg.norm(C, axis=1)[:, None]
    X = rng.dirichlet(np.full(K, 0.5), N) * rng.lognormal(0, 0.3, (N, 1)) @ C
    typical = np.median(np.linalg.norm(X, axis=1))
    X = np.maximum(X + 0.1 * typical / np.sqrt(F) * rng.standard_normal(X.shape), 0)
    wild = rng.choice(N, int(share * N), replace=False)
    directions = rng.gamma(0.4, size=(1 if alike else wild.size, F))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    X[wild] = size * typical * rng.lognormal(0, 0.1, (wild.size, 1)) * directions
    X[wild] += 0.01 * rng.random((wild.size, F))
    return X, C, wild


def least_cosine(C, found):
    cosines = C @ (found / np.linalg.norm(found, axis=1)[:, None]).T
    return cosines.max(axis=1).min()


def sum_of_biweights(X, W, s):
    """The objective for the best H, in plain NumPy."""
    H = nnls(W.T @ W, X @ W)
    t2 = np.minimum(((X - H @ W.T) ** 2).sum(axis=1) / s**2, 1)
    return ((1 - (1 - t2) ** 3) / 3).sum()


@pytest.mark.parametrize("size", [2, 5, 20, 100])
@pytest.mark.parametrize("alike", [False, True])
def test_wild_samples_take_no_component(size, alike):
    lost = 0
    for seed in (11, 12):
        X, C, wild = draw(size, alike, seed)
        lost += least_cosine(C, ConeNMF(K).fit(X).components_) < 0.9
        model = ConeNMF(K, robust="samples").fit(X)
        assert least_cosine(C, model.components_) > 0.99
        weights = model.result_.sample_weights
        assert weights[wild].max() < 0.1
        assert np.delete(weights, wild).min() > 0.3
        words = model.result_.settings["robust"]["words"]
        assert words.startswith("15 wild samples of 300 with a weight below 0.1")
        assert words.endswith(ALIKE) == alike
        assert words in model.result_.summary()
    assert lost or size == 2  # plain least squares loses a component


def test_empty_samples_do_not_count_for_the_scale():
    X, C, _ = draw(20, True, 3)
    plain = ConeNMF(K, robust="samples").fit(X)
    padded = ConeNMF(K, robust="samples").fit(np.vstack([X, np.zeros((400, X.shape[1]))]))
    weights = padded.result_.sample_weights
    np.testing.assert_allclose(weights[:300], plain.result_.sample_weights, atol=1e-6)
    assert (weights[300:] == 1).all()
    assert least_cosine(C, padded.components_) > 0.99


@pytest.mark.parametrize("kind", ["samples", "entries"])
@pytest.mark.parametrize("solver", ["hals", "mult"])
def test_rounds_never_raise_the_objective(kind, solver):
    X, _, _ = draw(5, True, 13)
    V = from_rows(X)
    robust = Robust(kind, V, Problem().bind(V))
    start = np.random.default_rng(0).random((30, K))
    found = reweigh(robust, start, FROBENIUS.solver(solver), Stopping())
    assert len(found.values) > 2
    assert (np.diff(found.values) <= 0).all()
    assert found.values[-1] < found.values[0]
    s = found.scale
    if kind == "samples":
        expected = sum_of_biweights(X, found.W, s)
    else:
        t = np.abs(X - (found.W @ found.H).T) / s
        expected = np.where(t <= 1, t**2, 2 * t - 1).sum()
    assert found.values[-1] == pytest.approx(expected, rel=1e-6)


def test_weights_and_scale_are_those_of_the_residuals():
    X, _, _ = draw(20, False, 14)
    V = from_rows(X)
    robust = Robust("samples", V, Problem().bind(V))
    start = factorize(robust.first(), K)
    found = reweigh(robust, start.W, FROBENIUS.solver("hals"), Stopping())
    t2 = ((X - (found.W @ found.H).T) ** 2).sum(axis=1) / found.scale**2
    np.testing.assert_allclose(found.weights, np.maximum(1 - t2, 0) ** 2, atol=1e-9)
    norms = np.sqrt(np.asarray(start.data.norms_squared))
    np.testing.assert_allclose(norms, norms[0])


def test_samples_keep_their_coefficients():
    """H and labels are exact for all samples, the wild ones too, and `transform` has no weights."""
    X, _, _ = draw(20, True, 15)
    model = ConeNMF(K, robust="samples")
    A = model.fit_transform(X)
    np.testing.assert_allclose(A, model.transform(X))
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    W = model.result_.W
    np.testing.assert_allclose(A, nnls(W.T @ W, X @ W), atol=1e-9)
    certificate = model.certify()
    assert certificate.lower_bound <= model.relative_error_ < 0.2
    assert model.result_.settings["init"] == "auto"
    assert model.result_.K_decided_by == "user"


def test_a_robust_fit_of_clean_data_is_the_plain_fit():
    X, C, wild = draw(5, False, 16)
    X = np.delete(X, wild, axis=0)
    plain, robust = ConeNMF(K).fit(X), ConeNMF(K, robust="samples").fit(X)
    assert least_cosine(C, robust.components_) > least_cosine(C, plain.components_) - 1e-3
    assert robust.result_.settings["robust"]["words"] == ""
    assert robust.result_.sample_weights.min() > 0.1


def test_wild_entries_take_no_component():
    X, C, wild = draw(5, False, 17)
    X = np.delete(X, wild, axis=0)
    rng = np.random.default_rng(0)
    X[rng.random(X.shape) < 0.02] += 3
    plain = least_cosine(C, ConeNMF(K).fit(X).components_)
    model = ConeNMF(K, robust="entries").fit(X)
    assert least_cosine(C, model.components_) > max(0.98, plain + 0.02)
    assert model.result_.sample_weights is None
    weights = np.asarray(model.result_.data.observed.weights)
    assert (weights[X > 3] < 0.3).all()
    assert (weights == 1).mean() > 0.7


def test_entries_with_holes_and_uncertainties():
    X, C, wild = draw(5, False, 18)
    X = np.delete(X, wild, axis=0)
    mask = np.random.default_rng(1).random(X.shape) > 0.1
    X[np.random.default_rng(2).random(X.shape) < 0.02] += 3
    sigma = np.where(mask, 0.1, np.nan)
    model = ConeNMF(K, robust="entries").fit(X, sigma=sigma)
    assert least_cosine(C, model.components_) > 0.97
    assert (np.asarray(model.result_.data.observed.weights)[~mask] == 0).all()


@pytest.mark.parametrize("kind", ["samples", "entries"])
def test_every_storage(main_backend, kind):
    X, C, _ = draw(20, True, 11, N=200)
    V = main_backend(X.T)
    if kind == "entries" and sp.issparse(V.columns([0])):
        with pytest.raises(NotAvailableError, match="the data are sparse: use robust='samples'"):
            factorize(V, K, robust=kind)
        return
    result = factorize(V, K, robust=kind)
    expected = factorize(from_rows(X), K, robust=kind)
    assert result.relative_error == pytest.approx(expected.relative_error, rel=1e-3)
    if kind == "samples":
        assert least_cosine(C, result.W.T) > 0.99


def test_weights_of_samples_repeat_them():
    X, _, _ = draw(5, True, 12)
    counts = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = ConeNMF(K, robust="samples").fit(X, sample_weight=counts)
    repeated = ConeNMF(K, robust="samples").fit(np.repeat(X, counts, axis=0))
    assert weighted.relative_error_ == pytest.approx(repeated.relative_error_, rel=1e-3)
    assert weighted.result_.sample_weights.shape == (len(X),)
    scales = [one.result_.settings["robust"]["scale"] for one in (weighted, repeated)]
    assert scales[0] == pytest.approx(scales[1], rel=1e-3)


def test_known_components_stay():
    X, C, _ = draw(20, True, 13)
    model = ConeNMF(K, robust="samples", fixed=C[:2]).fit(X)
    np.testing.assert_array_equal(model.components_[:2], C[:2])
    assert least_cosine(C, model.components_) > 0.99


def test_the_number_is_chosen_on_samples_of_equal_norm():
    X, *_ = draw(100, False, 11)
    result = ConeNMF(robust="samples").fit(X).result_
    assert result.selection is not None
    assert result.K_decided_by != "user"
    assert result.K >= K


def test_files_have_the_weights(tmp_path):
    X, _, _ = draw(20, False, 11)
    model = ConeNMF(K, robust="samples").fit(X)
    model.save(tmp_path / "model.npz")
    loaded = ConeNMF.load(tmp_path / "model.npz")
    assert loaded.robust == "samples"
    np.testing.assert_array_equal(loaded.result_.sample_weights, model.result_.sample_weights)
    assert loaded.result_.summary()[:2] == model.result_.summary()[:2]
    write_tables(model, tmp_path)
    table = pd.read_csv(tmp_path / "labels.csv")
    np.testing.assert_allclose(table["weight"], model.result_.sample_weights, rtol=1e-12)
    ConeNMF(2).fit(X).result_.save(tmp_path / "plain.npz")
    assert Factorization.load(tmp_path / "plain.npz").sample_weights is None


def test_other_samples_have_no_weights():
    X, _, _ = draw(20, False, 11)
    model = ConeNMF(K, robust="samples").fit(X)
    other = model._result_on(X[:50])
    assert other.sample_weights is None
    assert "robust" not in other.settings


def test_limits_end_every_stage():
    X, _, _ = draw(20, False, 11)
    calls = []

    def stop(iteration):
        calls.append(iteration)
        return len(calls) >= 5

    assert factorize(from_rows(X), K, robust="samples", callback=stop).stop_reason == "callback"
    assert len(calls) < 12
    result = factorize(from_rows(X), K, robust="samples", max_time=0.0)
    assert result.stop_reason is StopReason.MAX_TIME
    assert result.settings["max_time"] == 0.0
    assert factorize(from_rows(X), K, robust="samples", max_iter=0).n_iter == 0


HOLES = {"mask": np.arange(300)[:, None] + np.arange(30) > 3}


@pytest.mark.parametrize(
    ("options", "known", "words"),
    [
        ({"robust": "samples", "loss": "poisson"}, {}, "is for least squares"),
        ({"robust": "samples"}, HOLES, "takes no missing or weighted entries"),
        ({"robust": "entries", "alpha_W": 0.1}, {}, "takes no penalties"),
        ({"robust": "samples", "min_volume": 1e-4}, {}, "takes no penalties"),
        ({"robust": "samples", "sum_to_one": True}, {}, "coefficients that sum to one"),
        ({"robust": "samples"}, {"groups": np.arange(300) % 2}, "takes no penalties, .* groups"),
        ({"robust": "samples", "checkpoint": "run"}, {}, "leave out checkpoint"),
    ],
)
def test_what_is_not_built_is_a_named_error(options, known, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _, _ = draw(5, False, 11)
    with pytest.raises(NotAvailableError, match=words):
        ConeNMF(K, **options).fit(X, **known)


def test_no_stream_and_no_other_kind():
    X, _, _ = draw(5, False, 11)
    assert not hasattr(ConeNMF(K, robust="samples"), "partial_fit")
    with pytest.raises(OptionError, match="robust"):
        ConeNMF(K, robust="rows").fit(X)
    with pytest.raises(OptionError, match="solver=None is unknown"):
        ConeNMF(K, robust="samples", solver=None).fit(X)


def test_the_median_counts_a_sample_of_weight_two_twice(rng):
    for n in range(1, 30):
        values, counts = rng.random(n), rng.integers(4, size=n) + (np.arange(n) == 0)
        repeated = np.sort(np.repeat(values, counts))
        assert _median(values, counts.astype(float)) == repeated[(repeated.size - 1) // 2]


def test_exact_mixtures_have_a_scale(rng):
    """Their median residual is rounding, and says nothing about wild samples."""
    X = rng.dirichlet(np.ones(2), 90) @ rng.gamma(0.5, size=(2, 12))
    wild = [4, 30, 31, 70]
    X[wild] = 5 * rng.random((4, 12))
    for kind in ("samples", "entries"):
        exact = factorize(from_rows(np.delete(X, wild, axis=0)), 2, robust=kind, max_iter=500)
        assert exact.relative_error < 1e-6
        if kind == "samples":
            assert exact.sample_weights.min() > 0.99
    result = factorize(from_rows(X), 2, robust="samples", max_iter=500)
    assert result.sample_weights[wild].max() < 0.01
    assert (np.delete(result.sample_weights, wild) > 0.99).mean() > 0.9


def test_one_component_too_many_is_left_out_but_no_known_one(rng):
    """The one without which the other samples are described best."""
    W = rng.gamma(0.5, size=(20, 3)) + 0.01
    X = rng.dirichlet(np.ones(3), 200) @ W.T
    V, bad = from_rows(X), rng.gamma(0.5, size=(20, 3))
    more = np.column_stack([rng.random(20), W])
    plain = Robust("samples", V, Problem().bind(V))
    np.testing.assert_array_equal(plain.without_one(bad, more), W)
    np.testing.assert_array_equal(plain.without_one(W, np.column_stack([bad, bad[:, 0]])), W)
    known = Robust("samples", V, Problem(fixed=more[:, :1]).bind(V))
    kept = known.without_one(bad, more)
    np.testing.assert_array_equal(kept[:, 0], more[:, 0])
    assert kept.shape == (20, 3)

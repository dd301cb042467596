"""Tests of `judge.stability`."""

import json
import pickle
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

from conenmf import (
    Stability,
    certify,
    factorize,
    from_columns,
    from_rows,
    open_data,
    stability,
    stability_over,
)
from conenmf.data.resample import bootstrapped, redrawn
from conenmf.data.together import is_in_memory
from conenmf.data.views import take_samples
from conenmf.errors import (
    ComponentsError,
    DataError,
    DataTypeError,
    FileFormatError,
    NotAvailableError,
    OptionError,
    OutputError,
)
from conenmf.judge import stability as module
from conenmf.judge.scores import match_components
from conenmf.judge.stability import (
    consensus,
    distinct,
    found_again,
    replicate,
    replicate_over,
)
from conenmf.solve.losses import get_loss
from conenmf.solve.run import Stopping

OPTIONS = {"max_iter": 12, "tol": 1e-3}


def counts_of(K=3, F=24, N=80, seed=0):
    """Counts with sparse components, and these."""
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(F, K)) * (rng.random((F, K)) < 0.3) + 1e-3
    W /= W.sum(axis=0)
    H = 400 * rng.exponential(size=(K, N)) * (rng.random((K, N)) < 0.6)
    return rng.poisson(W @ H).astype(float), W


def sorted_columns(W):
    return W[:, np.lexsort(W)]


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_each_run_has_the_bits_of_the_same_fit_alone(loss):
    X, _ = counts_of()
    V = from_columns(X)
    options = {"loss": loss, **OPTIONS}
    before = V.passes
    found = stability(V, 3, 4, resample="start", rng=np.random.default_rng(7), **options)
    spent, passes = V.passes - before, []
    for W, rng in zip(found.spectra, np.random.default_rng(7).spawn(4), strict=True):
        alone = factorize(V, 3, init="random", sketch=None, rng=rng, **options)
        if (
            loss == "poisson"
        ):  # where a result is scaled to sums of one, which may change the last bit
            np.testing.assert_allclose(
                sorted_columns(W / W.sum(axis=0)), sorted_columns(alone.W), rtol=1e-14
            )
        else:
            np.testing.assert_array_equal(sorted_columns(W), sorted_columns(alone.W))
        passes.append(alone.passes)
    if loss == "frobenius":  # counts in memory are read in the other order too, for each W
        assert spent <= max(passes) + 8  # the ends of the consensus and of the best run


@pytest.mark.parametrize("resample", ["start", "samples", "counts"])
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_clear_components_are_found_again(loss, resample):
    X, truth = counts_of()
    V = from_columns(X)
    found = stability(V, 3, 6, loss=loss, resample=resample)
    assert found.verdict == "stable"
    assert not found.problem
    assert (found.found_in >= 0.8).all()
    assert (found.silhouettes > 0.8).all()
    assert (match_components(truth, found.W)[1] > 0.97).all()
    assert (found.lower <= found.upper).all()
    width = (found.upper - found.lower).max()
    assert 5e-3 < width < 0.1  # of sums of one; runs from other inits agree, noise remains
    assert not any(found.withheld)
    assert ((found.moves > 0) & (found.moves < np.radians(20))).all()
    again = factorize(V, 3, init=found.W, solver=None, loss=loss, sketch=None)
    assert found.objective == pytest.approx(again.objective, rel=1e-9)
    assert found.relative_error == pytest.approx(again.relative_error, rel=1e-9)
    if resample == "start":
        assert found.best_objective <= found.objective * (1 + 1e-6)
    assert found.objective <= 1.05 * found.best_objective
    assert "stable: 3 of 3 components" in str(found)


@pytest.mark.parametrize("resample", ["samples", "counts"])
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_noise_is_unstable(loss, resample):
    X = np.random.default_rng(0).poisson(3.0, (40, 100)).astype(float)
    found = stability(from_columns(X), 5, 8, loss=loss, resample=resample, **OPTIONS)
    assert found.verdict == "unstable"
    assert found.n_minima == 8
    assert "unstable: 0 of 5" in str(found)


def test_noise_is_unstable_by_default():
    X = np.random.default_rng(0).random((40, 100))
    V = from_columns(X)
    assert stability(V, 5, 8).verdict == "unstable"
    # inits alone find the same minimum of these numbers again
    assert stability(V, 5, 8, resample="start").verdict != "unstable"


def test_runs_in_worse_minima_take_no_part():
    X, _ = counts_of(K=5)
    V = from_columns(X)
    all_kept = stability(V, 5, 8, loss="poisson", resample="start", max_excess=np.inf)
    found = stability(V, 5, 8, loss="poisson", resample="start", max_excess=0.0)
    assert all_kept.is_kept.all()
    assert found.is_kept.sum() == 2  # a quarter
    assert found.best_objective == all_kept.best_objective
    np.testing.assert_array_equal(found.spectra, all_kept.spectra)


def test_without_a_consensus_the_best_run_is_returned():
    X, _ = counts_of()
    found = stability(from_columns(X), 3, 4, density_threshold=1e-12, **OPTIONS)
    assert "far from those of other runs" in found.problem
    np.testing.assert_array_equal(found.W, found.best_run)
    assert found.objective == found.best_objective
    assert np.isnan(found.lower).all()
    assert found.verdict == "unstable"
    assert "no consensus" in str(found)
    assert "best run" in str(found)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_more_components_than_directions(loss):
    X = np.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    found = stability(from_columns(X), 4, 4, loss=loss, resample="start")
    assert found.verdict == "unstable"
    assert found.best_relative_error < 1e-3
    single = stability(from_columns(X), 1, 3, loss=loss)
    assert single.verdict == "stable"
    np.testing.assert_allclose(single.W[:, 0], np.arange(1, 7) / 21, rtol=1e-6)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_of_a_few_samples_some_are_drawn(loss):
    V = from_columns([[1.0, 0.0], [2.0, 0.0]])  # one sample: no run may be without it
    found = stability(V, 1, 12, loss=loss, max_iter=2)
    assert (found.spectra.sum(axis=(1, 2)) > 0).all()


def test_wrong_arguments_are_named():
    V = from_columns(counts_of()[0])
    with pytest.raises(OptionError, match="n_runs=1, expected an integer of at least 2"):
        stability(V, 3, 1)
    with pytest.raises(ComponentsError, match="fewer than the 81 components"):
        stability(V, 81, 3)
    with pytest.raises(OptionError, match="resample='entries' is unknown"):
        stability(V, 3, 3, resample="entries")
    with pytest.raises(DataTypeError, match="not counts"):
        stability(from_columns(V.columns([0, 1, 2, 3]) / 3), 2, 3, resample="counts")
    with pytest.raises(ComponentsError, match="ks"):
        stability_over(V, [])


def test_a_range_recommends_the_most_that_are_stable():
    X, _ = counts_of(N=150)
    seen = []
    found = stability_over(
        from_columns(X), [5, 2, 3], 6, loss="poisson", resample="counts", callback=seen.append
    )
    assert found.ks.tolist() == [2, 3, 5] == [one.K for one in seen]
    assert found.K == 3
    assert (np.diff(found.relative_errors) < 0).all()
    assert "recommended: 3" in str(found)
    left, right = found.plot()
    np.testing.assert_array_equal(left.lines[0].get_ydata(), found.silhouettes)
    np.testing.assert_array_equal(right.lines[0].get_ydata(), found.relative_errors)
    axes = found.found[3].plot()
    assert len(axes) == 3
    assert axes[0].get_title() == "component 0: in 100%"


def test_more_components_than_features_are_named():
    X = np.random.default_rng(0).random((20, 4))
    found = stability(from_rows(X), 6, 3, max_iter=5)
    assert "6 components of 4 features: at most 4 can be independent" in str(found)


def test_a_component_is_found_where_its_cosine_is_above_nine_tenths():
    X, _ = counts_of()
    found = stability(from_columns(X), 4, 12, resample="counts", max_iter=30, tol=1e-3)
    near = (found.cosines > 0.9) & (found.cosines < 0.99)
    assert near.any()
    np.testing.assert_array_equal(found.found_in, (found.cosines > 0.9).mean(axis=0))


RESULT_OPTIONS = {"max_iter": 30, "tol": 1e-4}


def labelled_counts(K=3, F=20, N=70):
    rng = np.random.default_rng(0)
    W = rng.exponential(size=(F, K)) * (rng.random((F, K)) < 0.4) + 1e-3
    H = 300 * rng.exponential(size=(K, N)) * (rng.random((K, N)) < 0.6)
    return rng.poisson(W / W.sum(axis=0) @ H).astype(float)


@pytest.fixture(scope="module", params=["frobenius", "poisson"])
def found(request):
    table = pd.DataFrame(labelled_counts().T, columns=[f"type {f}" for f in range(20)])
    return stability(from_rows(table), 3, 5, loss=request.param, **RESULT_OPTIONS)


def check_equal(one, other):
    for field in fields(Stability):
        if field.name != "data":
            first, second = getattr(one, field.name), getattr(other, field.name)
            if isinstance(first, np.ndarray):
                np.testing.assert_array_equal(first, second, strict=True)
            else:
                assert first == second


@pytest.mark.parametrize("is_certified", [False, True])
def test_it_is_saved_and_loaded_whole(tmp_path, found, is_certified):
    if is_certified:
        found = replace(found)
        found.certify(effort=0)
    found.save(tmp_path / "found.npz")
    back = Stability.load(tmp_path / "found.npz")
    check_equal(found, back)
    assert back.names.feature_names[:2] == ("type 0", "type 1")
    assert str(back) == str(found)
    assert back.data is None
    check_equal(pickle.loads(pickle.dumps(found)), found)


def test_without_a_consensus_it_is_saved_too(tmp_path):
    found = stability(
        from_columns(labelled_counts()), 3, 3, density_threshold=1e-12, **RESULT_OPTIONS
    )
    assert found.problem
    found.save(tmp_path / "found.npz")
    check_equal(found, Stability.load(tmp_path / "found.npz"))


def rewritten(path, **changed):
    with np.load(path) as stored:
        parts = {name: stored[name] for name in stored.files}
    facts = json.loads(str(parts["facts"])) | changed.pop("facts", {})
    np.savez(path, **{**parts, **changed, "facts": np.array(json.dumps(facts))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": -np.ones((20, 3))}, "W holds negative or infinite numbers"),
        ({"H": np.full((3, 70), np.nan)}, "H holds NaN"),
        ({"facts": {"format": "conenmf-stability-9"}}, "this version reads 'conenmf-stability-2'"),
    ],
)
def test_what_cannot_have_been_saved_is_refused(tmp_path, found, change, message):
    target = tmp_path / "found.npz"
    found.save(target)
    rewritten(target, **{**change})
    with pytest.raises(FileFormatError, match=message):
        Stability.load(target)


def test_a_full_disk_leaves_the_earlier_file(tmp_path, found, monkeypatch):
    target = tmp_path / "found.npz"
    found.save(target)
    before = target.read_bytes()

    def full_disk(stream, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.data.saving.write_array", full_disk)
    with pytest.raises(OutputError, match="the earlier one is intact"):
        found.save(target)
    assert target.read_bytes() == before


def test_certificates_of_the_consensus_and_of_the_best_run(found):
    found = replace(found)
    V, loss = found.data, found.loss
    known = found.certify()
    assert known is found.certificate
    alone = certify(V, found.W, found.H, loss=loss)
    assert known == alone
    best = factorize(V, 3, init=found.best_run, solver=None, loss=loss, sketch=None)
    beside = certify(V, best.W, best.H, loss=loss)
    assert found.best_certificate.lower_bound == pytest.approx(beside.lower_bound, rel=1e-6)
    assert found.best_certificate.gap == pytest.approx(beside.gap, rel=1e-6)
    assert found.best_certificate.relative_error == pytest.approx(
        found.best_relative_error, rel=1e-9
    )
    assert 0 <= known.lower_bound <= known.relative_error == pytest.approx(found.relative_error)
    name = "component_gap" if loss == "poisson" else "kkt_residual"
    assert getattr(found.best_certificate, name) == pytest.approx(getattr(beside, name), rel=1e-6)
    said = "duality gaps of H, W" if loss == "poisson" else "no factorisation with 3 components"
    assert said in str(found)
    passes = V.passes
    assert found.certify(effort=0) is known
    assert V.passes == passes


def test_certificates_need_the_data(found, tmp_path):
    found.save(tmp_path / "found.npz")
    with pytest.raises(NotAvailableError, match="needs the data"):
        Stability.load(tmp_path / "found.npz").certify()


def test_it_is_saved_from_any_storage(main_backend, small_blocks, tmp_path):
    found = stability(main_backend(labelled_counts()), 2, 2, max_iter=2)
    found.save(tmp_path / "found.npz")
    back = Stability.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(back.H, np.asarray(found.H))
    np.testing.assert_array_equal(back.labels, np.asarray(found.labels))


RESAMPLED = {
    "start": lambda V, rng, loss: V,
    "samples": lambda V, rng, loss: bootstrapped(V, rng, degree=get_loss(loss).degree),
    "counts": lambda V, rng, loss: redrawn(V, rng),
}


def run_counts(K=3, F=24, N=60, seed=0):
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(F, K)) * (rng.random((F, K)) < 0.3) + 1e-3
    H = rng.exponential(size=(K, N)) * (rng.random((K, N)) < 0.6)
    return rng.poisson(400 * (W / W.sum(axis=0)) @ H).astype(float)


def check_runs_are_those_alone(V, loss, resample, *, max_iter=4):
    """Every run together has the bits of the same fit by itself."""
    stopping = Stopping(1e-2, max_iter=max_iter)
    options = {"loss": loss, "resample": resample, "stopping": stopping}
    together = replicate(V, 3, 3, rng=np.random.default_rng(7), **options)
    for W, rng in zip(together.spectra, np.random.default_rng(7).spawn(3), strict=True):
        data = RESAMPLED[resample](V, rng, loss)
        if resample != "start" and is_in_memory(V):
            data = take_samples(data, np.arange(V.shape[1]))
        alone = factorize(
            data, 3, init="random", sketch=None, rng=rng, loss=loss, tol=1e-2, max_iter=max_iter
        )
        if loss == "poisson":  # where a result is scaled to sums of one: that is a rounding
            W = W / W.sum(axis=0)
            np.testing.assert_allclose(sorted_columns(W), sorted_columns(alone.W), rtol=1e-13)
        else:
            np.testing.assert_array_equal(sorted_columns(W), sorted_columns(alone.W))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("resample", RESAMPLED)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_each_run_has_the_bits_of_the_same_fit_alone_on_every_storage(
    main_backend, small_blocks, loss, resample
):
    check_runs_are_those_alone(main_backend(run_counts()), loss, resample)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_runs_leave_as_they_converge(tmp_path, monkeypatch, loss):
    path = tmp_path / "counts.npy"
    np.save(path, run_counts().T)
    V = open_data(path, max_memory="2MB", block_samples=20)
    options = {"loss": loss, "resample": "samples", "stopping": Stopping(1e-3, max_iter=90)}
    before = V.passes
    together = replicate(V, 3, 3, rng=np.random.default_rng(1), **options)
    spent = V.passes - before
    alone = []

    def each_by_itself(V, row_bytes, count=1):
        alone.append(V.passes)
        return 1

    monkeypatch.setattr(module, "room_for_aligned", each_by_itself)
    monkeypatch.setattr("conenmf.solve.losses.loss.measure_together", each_by_itself)
    by_itself = replicate(V, 3, 3, rng=np.random.default_rng(1), **options)
    np.testing.assert_array_equal(together.spectra, by_itself.spectra)
    np.testing.assert_array_equal(together.errors, by_itself.errors)
    passes = np.diff([*alone[1:], V.passes])  # from where each was measured
    assert len(set(passes)) > 1
    assert spent == passes.max()


@pytest.mark.parametrize("resample", RESAMPLED)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_a_file_is_read_as_often_as_for_one_fit(tmp_path, rows_read, loss, resample):
    path = tmp_path / "counts.npz"
    sp.save_npz(path, sp.csr_array(run_counts(N=120).T), compressed=False)
    limits = {"tol": 0.0, "max_iter": 40}
    passes, size = [], []
    for n in range(4):
        V = open_data(path, max_memory="2MB", block_samples=60)
        assert not is_in_memory(V)
        before, began = V.passes, sum(rows_read)
        if n:
            rng = np.random.default_rng(0).spawn(3)[n - 1]
            data = RESAMPLED[resample](V, rng, loss)
            factorize(data, 3, init="random", sketch=None, rng=rng, loss=loss, **limits)
        else:
            stability(V, 3, 3, loss=loss, resample=resample, **limits)
        passes.append(V.passes - before)
        size.append(sum(rows_read) - began)
    # Limits need the samples themselves once, to see how far components can move.
    size[0] -= size[1] / passes[1]
    passes[0] -= 1
    assert passes[0] <= 1.1 * max(passes[1:])
    assert size[0] <= 1.1 * max(size[1:])


def test_runs_share_passes_in_groups_that_fit_into_memory(tmp_path, monkeypatch):
    path = tmp_path / "counts.npy"
    np.save(path, run_counts().T)
    V = open_data(path, max_memory="2MB", block_samples=10)
    options = {"loss": "frobenius", "resample": "samples", "stopping": Stopping(0.0, max_iter=5)}
    before = V.passes
    together = replicate(V, 3, 5, rng=np.random.default_rng(1), **options)
    spent = V.passes - before
    monkeypatch.setattr(module, "room_for_aligned", lambda V, row_bytes, count: 2)
    before = V.passes
    grouped = replicate(V, 3, 5, rng=np.random.default_rng(1), **options)
    assert V.passes - before == 3 * spent
    np.testing.assert_array_equal(grouped.spectra, together.spectra)
    np.testing.assert_array_equal(grouped.errors, together.errors)


def test_no_solver_of_replicates_leaves_a_floor():
    X = np.kron(np.eye(3), np.ones((4, 9))) * np.random.default_rng(0).random((12, 27))
    V = from_columns(X)
    options = {"loss": "frobenius", "resample": "start", "stopping": Stopping(1e-6)}
    spectra = replicate(V, 3, 2, rng=np.random.default_rng(0), **options).spectra
    assert ((spectra > 0).sum(axis=1) == 4).all()


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_runs_of_several_numbers_of_components_share_passes_too(tmp_path, loss):
    path = tmp_path / "counts.npy"
    np.save(path, run_counts().T)
    V = open_data(path, max_memory="2MB", block_samples=20)
    options = {"loss": loss, "resample": "samples", "stopping": Stopping(0.0, max_iter=5)}
    before, rng = V.passes, np.random.default_rng(1)
    together = dict(replicate_over(V, {2: None, 4: None}, 3, rng=rng, **options))
    spent, rng = V.passes - before, np.random.default_rng(1)
    for K in (2, 4):
        before = V.passes
        alone = replicate(V, K, 3, rng=rng, **options)
        assert V.passes - before == spent
        np.testing.assert_array_equal(together[K].spectra, alone.spectra)
        np.testing.assert_array_equal(together[K].errors, alone.errors)


def noisy_runs(n_runs=10, F=20, K=4, noise=0.1, seed=0):
    """Runs that find the same components, in another order, and one that finds others."""
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(F, K)) ** 2
    runs = [(W + noise * rng.random((F, K)))[:, rng.permutation(K)] for _ in range(n_runs)]
    runs[-1][:, 0] = rng.random(F)
    return W, np.array(
        [scale * run for run, scale in zip(runs, rng.random(n_runs) + 1, strict=True)]
    )


def test_the_consensus_is_that_of_cnmf():
    _, runs = noisy_runs()
    found = consensus(runs)
    rows = np.concatenate([run.T for run in runs])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    distances = np.sort(np.linalg.norm(rows[:, None] - rows[None], axis=2), axis=1)
    density = distances[:, 1:4].mean(axis=1)  # 3 = 0.3 * 10 neighbours
    np.testing.assert_allclose(found.distances.ravel(), density, atol=1e-7)
    kept = density < 0.5
    assert kept.sum() == 39
    labels = KMeans(4, n_init=10, random_state=1).fit(rows[kept]).labels_
    medians = np.array([np.median(rows[kept][labels == k], axis=0) for k in range(4)])
    medians /= medians.sum(axis=1, keepdims=True)
    by_first = found.W.T[np.lexsort(found.W)]
    np.testing.assert_allclose(by_first, medians[np.lexsort(medians.T)], rtol=0, atol=1e-12)
    silhouettes = silhouette_samples(rows[kept], labels)
    np.testing.assert_allclose(found.silhouettes.ravel()[kept], silhouettes, atol=1e-10)
    assert np.isnan(found.silhouettes.ravel()[~kept]).all()


@given(seed=st.integers(0, 100))
@settings(max_examples=10)
def test_neither_scale_nor_order_matters(seed):
    W, runs = noisy_runs(noise=0.02, seed=seed)
    found = consensus(runs)
    shuffled = consensus(3 * runs[:, :, ::-1])
    order, _ = match_components(shuffled.W, found.W)
    np.testing.assert_allclose(found.W[:, order], shuffled.W, atol=1e-12)
    np.testing.assert_allclose(found.W.sum(axis=0), 1)
    assert (found_again(found.W, np.array([W])) > 0.99).all()


def test_components_of_zeros_are_left_out():
    _, runs = noisy_runs()
    runs[3, :, 1] = 0
    found = consensus(runs)
    assert found.clusters[3, 1] == -1
    assert np.isinf(found.distances[3, 1])
    assert np.isfinite(found.W).all()


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        (np.eye(12).reshape(12, 4, 3).transpose(1, 0, 2), "far from those of other runs"),
        (np.ones((4, 6, 3)), "only 1 component in common"),
        (np.zeros((4, 6, 3)), "far from those of other runs"),
    ],
)
def test_runs_without_a_consensus_say_why(runs, problem):
    found = consensus(runs)
    assert found.W is None
    assert problem in found.problem


def test_wrong_arguments_of_a_consensus_are_named():
    with pytest.raises(DataError, match="spectra"):
        consensus(np.ones((3, 4)))
    with pytest.raises(OptionError, match="density_threshold=0"):
        consensus(np.ones((3, 4, 2)), density_threshold=0)


def test_distinct_runs_are_counted():
    W, _ = noisy_runs()
    other = W.copy()
    other[:, 0] = W[::-1, 0]
    assert distinct(np.array([W, 2 * W[:, ::-1], other, W])) == 2

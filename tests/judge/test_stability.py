"""Stability: consensus components, their certainty and limits, ranges of K, and kept settings."""

import pickle
import re
from dataclasses import fields, replace

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

from conenmf import factorize, from_columns, from_rows, open_data, stability
from conenmf.data.resample import bootstrap, redraw
from conenmf.data.views import take_samples
from conenmf.judge.dispersion import Noise
from conenmf.judge.matching import match_components
from conenmf.judge.replicates import Replicates, consensus, distinct
from conenmf.judge.stability import Stability, _best, stability_over
from conenmf.solve.losses import get_loss
from conenmf.solve.problem import Problem
from conenmf.solve.run import Stopping

OPTIONS = {"max_iter": 12, "tol": 1e-3}


def counts_of(K=3, F=24, N=80, seed=0):
    """Counts with sparse components, and these."""
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(F, K)) * (rng.random((F, K)) < 0.3) + 1e-3
    W /= W.sum(axis=0)
    H = 400 * rng.exponential(size=(K, N)) * (rng.random((K, N)) < 0.6)
    return rng.poisson(W @ H).astype(float), W


def replicate(V, K, n_runs, *, rng, loss, resample, stopping):
    """W of each run, and its error, for Poisson counts."""
    return Replicates(V, K, Problem(loss), resample, Noise(0.0), stopping).fit(n_runs, rng)


def sorted_columns(W):
    return W[:, np.lexsort(W)]


@pytest.mark.parametrize("resample", ["start", "samples", "counts"])
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_clear_components_are_stable(loss, resample):
    X, truth = counts_of()
    V = from_columns(X)
    found = stability(V, 3, 6, loss=loss, resample=resample)
    assert (found.verdict, found.no_consensus) == ("stable", "")
    assert found.found_in.min() >= 0.8
    assert found.silhouettes.min() > 0.8
    assert match_components(truth, found.W)[1].min() > 0.97
    widths = found.upper - found.lower
    assert widths.min() >= 0
    assert 5e-3 < widths.max() < 0.1  # of sums of one; runs from other inits agree, noise remains
    assert not any(found.withheld)
    assert ((found.moves > 0) & (found.moves < np.radians(20))).all()
    again = factorize(V, 3, init=found.W, solver=None, loss=loss)
    assert found.relative_error == pytest.approx(again.relative_error, rel=1e-9)
    if resample == "start":
        assert found.best_relative_error <= found.relative_error * (1 + 1e-6)
    assert found.relative_error <= 1.05 * found.best_relative_error
    assert "stable: 3 of 3 components" in str(found)


@pytest.mark.parametrize("resample", ["samples", "counts"])
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_noise_is_unstable(loss, resample):
    X = np.random.default_rng(0).poisson(3.0, (30, 60)).astype(float)
    found = stability(from_columns(X), 4, 6, loss=loss, resample=resample, **OPTIONS)
    assert (found.verdict, found.n_minima) == ("unstable", 6)
    assert "unstable: 0 of 4" in str(found)


def test_runs_in_worse_minima_take_no_part():
    X, _ = counts_of(K=5)
    V = from_columns(X)
    options = {"loss": "poisson", "resample": "start"}
    all_kept, found = (stability(V, 5, 8, max_excess=most, **options) for most in (np.inf, 0.0))
    assert all_kept.is_kept.all()
    assert found.is_kept.sum() == 2  # a quarter
    assert found.best_relative_error == all_kept.best_relative_error
    np.testing.assert_array_equal(found.spectra, all_kept.spectra)


def test_runs_at_a_worse_minimum_are_left_out_also_where_noise_hides_them():
    errors = np.array([0.94493, 0.94494, 0.94495, 0.94496, 0.94688, 0.94689, 0.94700])
    # five components explain 0.055: a fifth of what one explains is missing in the last three
    assert _best(errors, 0.01, 5).tolist() == [True] * 4 + [False] * 3
    assert _best(errors, np.inf, 5).all()
    assert _best(errors[3:], 0.01, 5).tolist() == [True, True, False, False]  # at least two
    assert _best(np.array([0.1, 0.1005, 0.102]), 0.01, 5).tolist() == [True, True, False]


def test_without_a_consensus_the_best_run_is_returned():
    X, _ = counts_of()
    found = stability(from_columns(X), 3, 4, density_threshold=1e-12, **OPTIONS)
    assert "far from those of other runs" in found.no_consensus
    np.testing.assert_array_equal(found.W, found.best_run)
    assert found.relative_error == found.best_relative_error
    assert np.isnan(found.lower).all()
    assert found.verdict == "unstable"
    assert re.search("no consensus.*best run", str(found), re.DOTALL)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_more_components_than_directions(loss):
    X = np.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    found = stability(from_columns(X), 4, 4, loss=loss, resample="start")
    assert found.verdict == "unstable"
    assert found.best_relative_error < 1e-3
    single = stability(from_columns(X), 1, 3, loss=loss)
    assert single.verdict == "stable"
    np.testing.assert_allclose(single.W[:, 0], np.arange(1, 7) / 21, rtol=1e-6)


def test_a_range_recommends_the_most_that_are_stable():
    V, seen = from_columns(counts_of(N=150)[0]), []
    options = {"loss": "poisson", "resample": "counts", "callback": seen.append}
    found = stability_over(V, [5, 2, 3], 6, **options)
    assert found.ks.tolist() == [2, 3, 5] == [one.K for one in seen]
    assert found.K == 3
    assert (np.diff(found.relative_errors) < 0).all()
    assert "recommended: 3" in str(found)
    left, right = found.plot()
    np.testing.assert_array_equal(left.lines[0].get_ydata(), found.silhouettes)
    np.testing.assert_array_equal(right.lines[0].get_ydata(), found.relative_errors)
    titles = [ax.get_title() for ax in found.found[3].plot()]
    assert titles == [f"component {k}: in 100% of runs" for k in range(3)]


def test_half_of_the_components_make_it_partly_stable(found):
    for n_found, verdict in ((3, "stable"), (2, "partly stable"), (1, "unstable")):
        shares = np.where(np.arange(3) < n_found, 0.8, 0.79)
        assert replace(found, found_in=shares).verdict == verdict
    four = {"found_in": np.array([1, 1, 0.5, 1]), "silhouettes": np.array([0.5, 0.5, 1, 0.49])}
    assert replace(found, **four).verdict == "partly stable"


def test_a_component_is_found_where_its_cosine_is_above_nine_tenths():
    X, _ = counts_of()
    found = stability(from_columns(X), 4, 12, resample="counts", max_iter=30, tol=1e-3)
    near = (found.cosines > 0.9) & (found.cosines < 0.99)
    assert near.any()
    np.testing.assert_array_equal(found.found_in, (found.cosines > 0.9).mean(axis=0))


RESULT_OPTIONS = {"max_iter": 30, "tol": 1e-4}


@pytest.fixture(scope="module", params=["frobenius", "poisson"])
def found(request):
    table = pd.DataFrame(counts_of(F=20)[0].T, columns=[f"type {f}" for f in range(20)])
    return stability(from_rows(table), 3, 5, loss=request.param, **RESULT_OPTIONS)


def check_equal(one, other):
    for field in fields(Stability):
        if field.name != "data":
            first, second = getattr(one, field.name), getattr(other, field.name)
            if isinstance(first, np.ndarray):
                np.testing.assert_array_equal(first, second, strict=True)
            else:
                assert first == second


def test_it_is_saved_and_loaded_whole(reloaded, found):
    back = reloaded(found)
    check_equal(found, back)
    assert back.names.feature_names[:2] == ("type 0", "type 1")
    assert str(back) == str(found)
    check_equal(pickle.loads(pickle.dumps(found)), found)


def test_it_is_saved_from_any_storage(main_backend, small_blocks, reloaded):
    found = stability(main_backend(counts_of()[0]), 2, 2, max_iter=2)
    back = reloaded(found)
    for name in ("H", "labels"):
        np.testing.assert_array_equal(getattr(back, name), np.asarray(getattr(found, name)))


RESAMPLED = {
    "start": lambda V, rng, loss: V,
    "samples": lambda V, rng, loss: bootstrap(V, rng, degree=get_loss(loss).degree),
    "counts": lambda V, rng, loss: redraw(V, rng),
}


def check_runs_are_those_alone(V, loss, resample, *, max_iter=3):
    """Every run together has the bits of the same fit by itself."""
    stopping = Stopping(1e-2, max_iter=max_iter)
    options = {"loss": loss, "resample": resample, "stopping": stopping}
    spectra, _ = replicate(V, 3, 2, rng=np.random.default_rng(7), **options)
    for W, rng in zip(spectra, np.random.default_rng(7).spawn(2), strict=True):
        data = RESAMPLED[resample](V, rng, loss)
        if resample != "start" and V.is_in_memory:
            data = take_samples(data, np.arange(V.shape[1]))
        alone = factorize(data, 3, init="random", rng=rng, loss=loss, tol=1e-2, max_iter=max_iter)
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
    check_runs_are_those_alone(main_backend(counts_of(N=40)[0]), loss, resample)


@pytest.fixture
def on_disk(tmp_path):
    """Counts of 60 samples in a file, in three blocks."""
    np.save(tmp_path / "counts.npy", counts_of(N=60)[0].T)
    return open_data(tmp_path / "counts.npy", max_memory="2MB", block_samples=20)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_runs_leave_as_they_converge(on_disk, monkeypatch, loss):
    V = on_disk
    options = {"loss": loss, "resample": "samples", "stopping": Stopping(1e-3, max_iter=90)}
    before = V.passes
    together = replicate(V, 3, 3, rng=np.random.default_rng(1), **options)
    spent = V.passes - before
    alone = []

    def each_by_itself(V, row_bytes, count=1):
        alone.append(V.passes)
        return 1

    monkeypatch.setattr(type(V), "room_for_aligned", each_by_itself)
    monkeypatch.setattr("conenmf.solve.loss.measure_together", each_by_itself)
    by_itself = replicate(V, 3, 3, rng=np.random.default_rng(1), **options)
    assert all(map(np.array_equal, together, by_itself))
    passes = np.diff([*alone[1:], V.passes])  # from where each was measured
    assert len(set(passes)) > 1
    assert spent == passes.max()


@pytest.mark.parametrize("resample", RESAMPLED)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_a_file_is_read_as_often_as_for_one_fit(tmp_path, rows_read, loss, resample):
    path = tmp_path / "counts.h5ad"
    anndata.AnnData(sp.csr_matrix(counts_of(N=120)[0].T)).write_h5ad(path)
    limits = {"tol": 0.0, "max_iter": 15}
    passes, size = [], []
    for n in range(4):
        V = open_data(path, max_memory="2MB", block_samples=60)
        assert not V.is_in_memory
        before, began = V.passes, sum(rows_read)
        if n:
            rng = np.random.default_rng(0).spawn(3)[n - 1]
            data = RESAMPLED[resample](V, rng, loss)
            factorize(data, 3, init="random", rng=rng, loss=loss, **limits)
        else:
            stability(V, 3, 3, loss=loss, resample=resample, **limits)
        passes.append(V.passes - before)
        size.append(sum(rows_read) - began)
    # The ends take a few more: the noise, the consensus, the best run, and the limits; counts are
    # refined by one more fit, which serves the consensus and the best run.
    few = {"frobenius": 5, "poisson": 8 + 2}[loss]
    refining = {"frobenius": 0, "poisson": limits["max_iter"]}[loss]
    assert passes[0] <= max(passes[1:]) + few + refining
    assert size[0] <= max(size[1:]) + (few + refining) * 120


def test_runs_share_passes_in_groups_that_fit_into_memory(on_disk, monkeypatch):
    options = {"loss": "frobenius", "resample": "samples", "stopping": Stopping(0.0, max_iter=5)}
    passes = [on_disk.passes]
    together = replicate(on_disk, 3, 5, rng=np.random.default_rng(1), **options)
    passes.append(on_disk.passes)
    monkeypatch.setattr(type(on_disk), "room_for_aligned", lambda V, row_bytes, count: 2)
    grouped = replicate(on_disk, 3, 5, rng=np.random.default_rng(1), **options)
    passes.append(on_disk.passes)
    assert passes[2] - passes[1] == 3 * (passes[1] - passes[0])
    assert all(map(np.array_equal, grouped, together))


def test_no_solver_of_replicates_leaves_a_floor():
    X = np.kron(np.eye(3), np.ones((4, 9))) * np.random.default_rng(0).random((12, 27))
    V = from_columns(X)
    options = {"loss": "frobenius", "resample": "start", "stopping": Stopping(1e-6)}
    spectra, _ = replicate(V, 3, 2, rng=np.random.default_rng(0), **options)
    assert ((spectra > 0).sum(axis=1) == 4).all()


def test_a_range_has_the_bits_of_each_number_by_itself():
    V, rng = from_columns(counts_of(N=60)[0]), np.random.default_rng(1)
    together = stability_over(V, [2, 4], 3, rng=np.random.default_rng(1), **OPTIONS)
    for K in (2, 4):
        alone = stability(V, K, 3, rng=rng, **OPTIONS)
        np.testing.assert_array_equal(together.found[K].spectra, alone.spectra)


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
@settings(max_examples=5)
def test_neither_scale_nor_order_matters(seed):
    W, runs = noisy_runs(noise=0.02, seed=seed)
    found = consensus(runs)
    shuffled = consensus(3 * runs[:, :, ::-1])
    order, _ = match_components(shuffled.W, found.W)
    np.testing.assert_allclose(found.W[:, order], shuffled.W, atol=1e-12)
    np.testing.assert_allclose(found.W.sum(axis=0), 1)
    assert (match_components(found.W, W)[1] > 0.99).all()


def test_components_of_zeros_are_left_out():
    _, runs = noisy_runs()
    runs[3, :, 1] = 0
    found = consensus(runs)
    assert (found.clusters[3, 1], found.distances[3, 1]) == (-1, np.inf)
    assert np.isfinite(found.W).all()


def test_distinct_runs_are_counted():
    W, _ = noisy_runs()
    other = W.copy()
    other[:, 0] = W[::-1, 0]
    assert distinct(np.array([W, 2 * W[:, ::-1], other, W])) == 2


@pytest.mark.parametrize("resample", ["counts", "start"])
def test_the_consensus_of_counts_is_refined_on_the_data(resample):
    V = from_columns(counts_of(N=120)[0])
    found = stability(V, 3, 4, loss="poisson", resample=resample, dispersion=0.0)
    medians = consensus(found.spectra[found.is_kept]).W
    loss = get_loss("poisson")
    both = (loss.admissible(V, W) for W in (found.W, medians))
    refined, unrefined = (loss.coefficients(V, W)[2] for W in both)
    assert refined <= unrefined
    assert found.relative_error <= found.best_relative_error * (1 + 1e-6)
    np.testing.assert_allclose(found.W.sum(axis=0), 1)
    fit = factorize(V, 3, init=found.W, loss="poisson", solver=None)
    assert fit.certify().component_gap < 1e-3 * refined  # another W would hardly be better


def test_the_better_of_consensus_and_best_run_is_refined(rng):
    counts, truth = counts_of(N=40)
    worse = rng.dirichlet(np.ones(len(truth)), 3).T
    once = Replicates(
        from_columns(counts), 3, Problem("poisson"), "start", Noise(0.0), Stopping(0, max_iter=1)
    )
    for agreed, best in ((worse, truth), (truth, worse)):
        given = consensus(np.array([agreed, agreed]))
        found, _ = once.refined(given, best)
        assert match_components(truth, found.W)[1].min() > 0.95

import numpy as np
import pytest

from conenmf import factorize, from_columns, from_rows, stability, stability_over
from conenmf.errors import ComponentsError, DataTypeError, OptionError
from conenmf.judge.metrics import match_components

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

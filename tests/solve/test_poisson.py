"""Fits of counts: iterates of scikit-learn, every storage, any order of samples."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import kl_div, xlogy
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

from conenmf import ConeNMF, factorize, from_columns, from_rows
from conenmf.errors import DataError, InputWarning, OptionError
from conenmf.solve.alternate import alternate
from conenmf.solve.losses import poisson
from conenmf.solve.losses.poisson import POISSON, margins
from conenmf.solve.problem import Problem
from conenmf.solve.run import Stopping

K = 3


def make_counts(seed=0, F=20, N=40, K=K, rate=4.0):
    rng = np.random.default_rng(seed)
    return rng.poisson(rate * rng.random((F, K)) @ rng.gamma(0.5, size=(K, N))).astype(float)


def start(V, seed=1, K=K):
    rng = np.random.default_rng(seed)
    return rng.random((V.shape[0], K)) + 0.1, rng.random((K, V.shape[1])) + 0.1


def divergence(V, W, H):
    return kl_div(V, W @ H).sum()


def rounding_of_divergence(V, solution):
    """Bound the rounding error of one divergence, a sum of logarithms, of rates and of counts.

    A sum of n terms in any order is off by at most n eps / 2 times the sum of their sizes. A rate x
    of K products is off by a share of K eps / 2, so v log(v / x) is off by v times that and a few.
    """
    X = solution.W @ solution.H
    logs = np.abs(xlogy(V, V / np.where(V > 0, X, 1.0))).sum()
    n_terms = V.size + sum(V.shape) + len(solution.H) + 4
    return n_terms * np.finfo(float).eps / 2 * (logs + X.sum() + V.sum())


def run(V, solver, n, tol=0.0, seed=1):
    W, H = start(V, seed)
    limits = Stopping(tol=tol, max_iter=n)
    how = {"stopping": limits, "objective": POISSON.on(V)}
    return alternate(V, W, np.asarray(H), solver, **how)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_multiplicative_iterates_are_those_of_scikit_learn():
    counts = make_counts()
    V = from_columns(counts)
    W, H = start(V)
    theirs = NMF(K, init="custom", solver="mu", beta_loss="kullback-leibler", max_iter=30, tol=0.0)
    coefficients = theirs.fit_transform(counts.T, W=H.T.copy(), H=W.T.copy())
    ours = run(V, "mult", 30)
    np.testing.assert_allclose(ours.W, theirs.components_.T, rtol=1e-10)
    np.testing.assert_allclose(ours.H, coefficients.T, rtol=1e-10)
    value = ours.history.relative_error[-1] * margins(V).divergence
    np.testing.assert_allclose(np.sqrt(2 * value), theirs.reconstruction_err_, rtol=1e-10)


@pytest.mark.parametrize("solver", ["newton", "mult"])
def test_every_storage_counts_the_same_divergence(backend, solver):
    """The value is that of the factors; W takes another step where V cannot be turned."""
    counts = make_counts()
    counts[:, 7], counts[4] = 0.0, 0.0
    V = backend(counts)
    solution = run(V, solver, 5)
    errors = solution.history.relative_error
    assert np.all(np.diff(errors) <= 1e-12)
    value = divergence(counts, solution.W, np.asarray(solution.H))
    reached = errors[-1] * margins(V).divergence
    if POISSON.on(V).turned is not None:
        np.testing.assert_allclose(value, reached, rtol=1e-5 if V.dtype == np.float32 else 1e-9)
    else:
        assert value <= reached * (1 + 1e-6)  # W has been updated since


def test_the_end_is_the_same_in_every_storage(main_backend):
    counts = make_counts(2)
    here, there = (
        factorize(V, 2, loss="poisson", tol=1e-5, init="nndsvd")
        for V in (from_columns(counts), main_backend(counts))
    )
    np.testing.assert_allclose(there.objective, here.objective, rtol=1e-3)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_the_divergence_never_rises(seed):
    counts = make_counts(seed % 1000, rate=10.0 ** (seed % 4 - 1))
    V = from_columns(counts)
    solution = run(V, "newton", 30, seed=seed)
    rises = np.diff(solution.history.relative_error) * margins(V).divergence
    assert np.all(rises <= 2 * rounding_of_divergence(counts, solution))


def test_newton_needs_a_tenth_of_the_iterations():
    V = from_columns(make_counts(rate=20, N=100))
    newton, mult = (run(V, solver, n) for solver, n in (("newton", 30), ("mult", 300)))
    assert newton.history.relative_error[-1] <= mult.history.relative_error[-1]


def test_margins_and_one_component():
    counts = make_counts()
    V = from_columns(counts)
    found = margins(V)
    np.testing.assert_allclose(found.features, counts.sum(axis=1))
    outer = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    np.testing.assert_allclose(found.divergence, kl_div(counts, outer).sum())
    result = factorize(V, 1, loss="poisson")
    np.testing.assert_allclose(result.W @ result.H, outer, rtol=1e-9)
    assert result.init_used == "margins"
    assert result.relative_error == pytest.approx(1.0)
    exact = factorize(from_columns(np.outer([1, 2, 3], [4, 0, 5])), 1, loss="poisson")
    assert exact.relative_error < 1e-12


def test_what_rounding_leaves_of_one_component_is_no_unit(rng):
    for _ in range(5):
        counts = np.outer(rng.random(7), rng.random(9))
        assert margins(from_columns(counts)).scale == pytest.approx(counts.sum())


def test_result_of_counts():
    counts = make_counts(rate=30)
    result = factorize(from_columns(counts), K, loss="kullback-leibler")
    assert (result.loss, result.settings["solver"]) == ("poisson", "newton")
    assert result.init_used in ("nndsvd", "cr1-robust", "random")
    np.testing.assert_allclose(result.W.sum(axis=0), 1.0)
    np.testing.assert_allclose(result.H.sum(axis=0), counts.sum(axis=0), rtol=1e-8)
    np.testing.assert_allclose(result.objective, divergence(counts, result.W, result.H))
    np.testing.assert_allclose(result.shares, result.H.sum(axis=1) / counts.sum(), rtol=1e-8)
    assert np.all(np.diff(result.shares) <= 0)
    assert result.shares.sum() == pytest.approx(1)


def test_exact_counts_are_found(rng):
    V = rng.random((30, K)) ** 3 @ rng.gamma(0.3, size=(K, 80))
    result = factorize(from_columns(V), K, loss="poisson", max_iter=3000, tol=1e-9)
    assert result.relative_error < 1e-4


@pytest.mark.parametrize("scale", [1e-60, 1e-12, 1e9, 1e60])
def test_the_scale_of_counts_does_not_matter(scale):
    counts = make_counts()
    plain, scaled = (
        factorize(from_columns(counts * factor), K, loss="poisson", max_iter=20)
        for factor in (1.0, scale)
    )
    assert scaled.relative_error == pytest.approx(plain.relative_error, rel=1e-9)


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("shape", [(20, 40), (200, 700)])
def test_fits_of_the_same_counts_are_the_same(shape, seed):
    V = from_columns(make_counts(F=shape[0], N=shape[1]))
    generators = (None if seed is None else np.random.default_rng(seed) for _ in range(2))
    first, second = (factorize(V, K, loss="poisson", rng=rng, max_iter=20) for rng in generators)
    np.testing.assert_allclose(first.W, second.W, rtol=1e-9)
    assert first.init_used == second.init_used


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_types(dtype):
    counts = make_counts().astype(dtype)
    result = factorize(from_columns(counts), K, loss="poisson")
    expected = np.float32 if dtype == np.float32 else np.float64
    assert result.W.dtype == result.H.dtype == expected
    double = factorize(from_columns(counts.astype(float)), K, loss="poisson")
    assert result.objective == pytest.approx(double.objective, rel=1e-3)


def test_as_many_components_as_features():
    counts = make_counts(F=4, N=9)
    result = factorize(from_columns(counts), 4, loss="poisson", max_iter=2000, tol=1e-10)
    assert result.relative_error < 0.01


def test_words_that_no_component_has(refuses):
    W = np.array([[1.0, 0.2], [0.5, 1.0], [0.0, 0.0]])
    V = from_columns([[3, 0, 1], [2, 5, 0], [0, 0, 4]])
    with pytest.warns(InputWarning, match="1 feature with counts, in all 4: 2"):
        H, labels, value = POISSON.coefficients(V, W)
    without, _, same = POISSON.coefficients(from_columns([[3, 0, 1], [2, 5, 0]]), W[:2])
    np.testing.assert_allclose(H, without)
    assert value == same
    assert labels.tolist() == [0, 1, 0]
    refuses(DataError, "fit again", lambda: POISSON.coefficients(V, W, unseen="raise"))


def test_a_rate_of_zero_where_a_count_is_not_is_named(refuses):
    V = from_columns([[3.0, 1.0], [2.0, 5.0]])
    W, H = np.eye(2), np.array([[1.0, 1.0], [0.0, 1.0]])
    how = {"stopping": Stopping(max_iter=3), "objective": POISSON.on(V)}
    refuses(DataError, "rate of zero", lambda: alternate(V, W, H, "mult", **how))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "hals"}, "newton"),
        ({"solver": lambda G, C, Y: Y}, "its own solvers"),
        ({"loss": "huber"}, "kullback-leibler"),
    ],
)
def test_options_that_counts_do_not_have(options, words, refuses):
    V = from_columns(make_counts())
    refuses(OptionError, words, lambda: factorize(V, 2, **{"loss": "poisson", **options}))


@pytest.mark.parametrize("init", ["cr1", "nndsvda", "random", "spa", "kl-kmeans"])
def test_inits(init):
    counts = make_counts(rate=20)
    options = {"loss": "poisson", "init": init, "rng": np.random.default_rng(0)}
    result = factorize(from_columns(counts), K, **options)
    best = factorize(from_columns(counts), K, loss="poisson")
    assert result.init_used == init
    assert result.objective <= 1.1 * best.objective
    alone = factorize(from_columns(counts), K, **options, solver=None)
    assert best.objective <= alone.objective < np.inf


def test_own_factors_begin_the_run():
    V = from_columns(make_counts(rate=20))
    best = factorize(V, K, loss="poisson", tol=1e-8, max_iter=1000)
    again = factorize(V, K, loss="poisson", init=(best.W, best.H), max_iter=1)
    assert again.objective <= best.objective * (1 + 1e-9)
    holed = best.W.copy()
    holed[3] = 0.0  # a feature with counts that no component has
    assert factorize(V, K, loss="poisson", init=holed).objective <= 1.05 * best.objective


def test_a_fit_continues_the_init_that_leads_a_sprint(monkeypatch):
    """Where there are many counts, random inits do not take part."""
    V = from_columns(make_counts(3, F=40, N=300, K=6))
    ours = factorize(V, 6, loss="poisson")
    alone = factorize(V, 6, loss="poisson", init="nndsvd")
    assert ours.objective <= 1.005 * alone.objective
    monkeypatch.setattr(poisson, "_MANY_ENTRIES", 0)
    assert factorize(V, 6, loss="poisson").init_used in ("nndsvd", "cr1-robust")


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_samples_and_features_does_not_matter(seed):
    """Fits end where their last falls are below 1e-5; from the same starts, rounding is left."""
    counts = make_counts(seed, F=15, N=40, K=3)
    shuffle = np.random.default_rng(seed)
    rows, columns = shuffle.permutation(15), shuffle.permutation(40)
    shuffled = counts[rows][:, columns]
    sorts = {
        "dense": from_columns(shuffled),
        "blocks": from_columns(shuffled, block_samples=7),
        "sparse": from_columns(sp.csc_array(shuffled)),
    }
    best = factorize(from_columns(counts), 3, loss="poisson")
    for storage, V in sorts.items():
        result = factorize(V, 3, loss="poisson")
        assert result.objective == pytest.approx(best.objective, rel=1e-6), storage
        np.testing.assert_allclose(result.W, best.W[rows], atol=1e-3 * best.W.max())


def test_digits_end_low_in_every_order():
    """Random inits by sample number ended at 0.4500, or permuted at 0.4423."""
    X = load_digits().data
    shuffle = np.random.default_rng(0)
    shuffled = X[shuffle.permutation(len(X))][:, shuffle.permutation(64)]
    first, second = (ConeNMF(8, loss="poisson").fit(data).relative_error_ for data in (X, shuffled))
    assert max(first, second) <= 0.4423
    assert first == pytest.approx(second, rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*components are more than")
def test_more_components_than_features_start_from_rotations():
    V = from_columns(make_counts(F=4, N=30))
    result = factorize(V, 6, loss="poisson")
    assert result.init_used == "nndsvd-rotated"
    assert result.relative_error < 1e-3  # four components are exact


@pytest.mark.parametrize("other", [0, 1, 2])
def test_the_leading_init_and_the_one_expected_to_lead_compete(other, monkeypatch):
    """The first init counts as the leader; if another may win, both run six iterations more."""
    V = from_columns(make_counts(3, F=40, N=300, K=6))
    seen = []
    chosen = iter([0, other])
    monkeypatch.setattr(poisson, "_lowest", lambda values: next(chosen))
    start = POISSON.initialize(V, 6, "auto", POISSON.solvers["newton"], callback=seen.append)
    ends = [now.objective for now in seen[17::6]]
    assert (len(seen), len(ends)) == ((24, 2) if other else (12, 0))
    lower = other if other and ends[1] < ends[0] else 0
    assert start.name == poisson._COMPETING[lower]


def test_a_value_that_falls_fast_is_expected_to_fall_further():
    slow, fast, ended = ([9.0, 5.0, 4.5, 4.25], [20.0, 9.0, 6.0, 5.0], [6.0])
    expected = [poisson._expected(SimpleNamespace(errors=errors)) for errors in (slow, fast, ended)]
    assert expected == [4.0, 4.0, 6.0]


def test_a_callback_ends_the_competition_of_inits_at_once():
    V = from_columns(make_counts(3, F=40, N=300, K=6))
    seen = []

    def callback(now):
        seen.append(now.iteration)
        return True

    result = factorize(V, 6, loss="poisson", callback=callback)
    assert (set(seen), result.stop_reason) == ({0}, "callback")
    assert np.isfinite(result.relative_error)


def test_what_one_component_leaves_of_few_counts_is_found_to_the_end():
    """Scaling both sides in turn takes a hundred rounds where little is known."""
    P = np.eye(9, 10) + np.eye(9, 10, 1)  # a chain: each sample knows two features
    P[:, 0] += 0.01
    X = np.random.default_rng(0).poisson(9.0, (9, 10)) + 1.0
    a, c = np.ones(9), np.ones(10)
    for _ in range(20000):
        a = (P * X).sum(axis=1) / (P @ c)
        c = (P * X).sum(axis=0) / (P.T @ a)
    found = margins(from_rows(X, weights=P)).divergence
    assert found == pytest.approx((P * kl_div(X, np.outer(a, c))).sum(), rel=1e-6)


def test_entries_of_components_do_not_shrink_without_end():
    """A sample of which one feature is known must not need a coefficient of 1e299."""
    V = from_rows(np.eye(4) + 1, missing="zeros")
    W = np.array([[1e-299, 0.6], [0.3, 1e-90], [0.5, 0.4], [0.2, 0.0]])
    ended = Problem(POISSON).bind(V).restored(W)
    assert (ended == 0).tolist() == [[True, False], [False, False], [False, False], [False, True]]


def test_sums_over_blocks_count_each_block_once(main_backend, small_blocks, sample_matrix):
    W = 0.1 + np.random.default_rng(0).random((12, 3))
    H, _, sums = poisson.regressions(main_backend(sample_matrix), W)
    np.testing.assert_allclose(sums.H, np.asarray(H).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(sums.known, sums.H)


@pytest.mark.parametrize("dtype", ["f2", ">f8", ">f4", ">i4"])
def test_counts_in_formats_that_scipy_does_not_take(dtype):
    counts = make_counts().T
    expected = factorize(from_rows(counts), K, loss="poisson")
    result = factorize(from_rows(counts.astype(dtype)), K, loss="poisson")
    assert result.objective == pytest.approx(expected.objective, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_labels_of_a_fit_are_those_it_predicts_even_for_ties(seed):
    """Samples of one count often use two components equally, which a fit sorts at its end."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(2 * rng.gamma(0.3, size=(20, 3)) @ rng.gamma(0.3, size=(3, 12)))
    X = np.vstack([X, np.eye(12, dtype=int)[:6]])
    model = ConeNMF(3, loss="poisson", init="random", random_state=seed, max_iter=30, tol=1e-3)
    labels = model.fit(X).labels_
    np.testing.assert_array_equal(model.predict(X), labels)

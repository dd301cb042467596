"""Missing entries and weights of entries in fits, in every storage and with every solver."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, factorize, from_columns, from_rows, open_data
from conenmf.data.known import observed_only
from conenmf.errors import (
    DataError,
    InputWarning,
    NotAvailableError,
    OptionError,
)
from conenmf.linalg.nnls import nnls
from conenmf.solve.alternate import alternate
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses.frobenius import FROBENIUS, KnownSquares
from conenmf.solve.losses.squared_bounds import observed_bound
from conenmf.solve.run import Stopping
from conenmf.solve.solvers import Solver


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(2)
    A = rng.random((80, 3)) * (rng.random((80, 3)) < 0.7)
    return A @ (rng.random((3, 20)) + 0.05) + 0.01 * rng.random((80, 20))


def known(X, share, seed=0):
    mask = np.random.default_rng(seed).random(X.shape) > share
    mask[:, 0] = mask[0] = True
    return mask


def weighted_error(X, weights, W, H):
    return (weights * (X - (W @ H).T) ** 2).sum()


MANY = pytest.mark.filterwarnings("ignore:.*of the entries are missing")


@pytest.fixture(scope="module", params=[0.25, 0.7])
def with_holes(request, X):
    """Which entries are known, and a fit to them."""
    mask = known(X, request.param)
    V = from_rows(X, mask=mask, block_samples=16)
    return mask, factorize(V, 3, max_iter=400, init="nndsvd")


@MANY
def test_holes(X, with_holes):
    """The exact H on what is known, the error on what is known, and what is hidden is found."""
    mask, result = with_holes
    W, H = result.W, np.asarray(result.H)
    for n in range(0, 80, 7):
        of = mask[n]
        best = nnls(W[of].T @ W[of], (X[n, of] @ W[of])[None])[0]
        np.testing.assert_allclose(H[:, n], best, atol=1e-9)
    squared = weighted_error(X, mask, W, H)
    assert result.objective == pytest.approx(squared, rel=1e-9)
    assert result.relative_error == pytest.approx(np.sqrt(squared / (mask * X**2).sum()), rel=1e-9)
    assert (np.diff(result.history.relative_error) <= 1e-12).all()
    hidden = weighted_error(X, ~mask, W, H) / (~mask * X**2).sum()
    assert np.sqrt(hidden) < 0.05


@MANY
@pytest.mark.thinned(2)
def test_holes_on_every_storage(main_backend, small_blocks, X, with_holes):
    mask, result = with_holes
    stored = observed_only(main_backend(np.where(mask, X, 0.5).T), mask=mask)
    other = factorize(stored, 3, max_iter=400, init="nndsvd")
    np.testing.assert_allclose(other.relative_error, result.relative_error, rtol=1e-3)


@pytest.mark.parametrize("solver", ["hals", "mult", "nnlsb", "plain-hals"])
@pytest.mark.parametrize("grams_every", [1, 4, 99])
def test_filling_holes_and_gram_matrices_lower_the_same_objective(
    solver, grams_every, X, rng, monkeypatch
):
    monkeypatch.setattr("conenmf.solve.losses.frobenius._GRAMS_EVERY", grams_every)
    mask = known(X, 0.3)
    V = from_rows(X, mask=mask, block_samples=32)
    W, H = rng.random((20, 3)), rng.random((3, 80))
    objective = KnownSquares(FROBENIUS, V, rescale=False)
    how = {"stopping": Stopping(0.0, max_iter=15), "objective": objective}
    solution = alternate(V, W, H, solver, **how)
    errors = solution.history.relative_error
    assert (np.diff(errors) <= 1e-12).all()
    first = weighted_error(X, mask, W, H) / (mask * X**2).sum()
    end = weighted_error(X, mask, solution.W, np.asarray(solution.H)) / (mask * X**2).sum()
    assert end <= errors[-1] ** 2 + 1e-12 < first


@pytest.mark.seed(1)
def test_weights_are_in_the_objective_and_a_weight_of_zero_is_a_hole(X, rng):
    weights = rng.random(X.shape) * 10 * known(X, 0.1)
    spoiled = np.where(weights > 0, X, -7.0)  # what is hidden may be anything
    result = factorize(from_rows(spoiled, weights=weights), 3, max_iter=500, tol=1e-8)
    W, H = result.W, np.asarray(result.H)
    assert result.objective == pytest.approx(weighted_error(X, weights, W, H), rel=1e-9)
    plain = factorize(from_rows(X), 3, max_iter=500, tol=1e-8)
    assert result.objective < weighted_error(X, weights, plain.W, np.asarray(plain.H))
    assert result.problem.entries.is_weighted


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("init", ["nndsvd", "cr1", "spa"])
def test_a_weight_of_two_is_the_feature_twice(make, init, X):
    """Also in `transform`; a weight of 0 is a feature left out."""
    counts = np.random.default_rng(1).integers(0, 4, 20)
    options = {"init": init, "max_iter": 3000, "tol": 1e-9}
    with pytest.warns(InputWarning, match="features"):
        one = ConeNMF(3, **options).fit(make(X), weights=counts)
    other = ConeNMF(3, **options).fit(make(np.repeat(X, counts, axis=1)))
    assert one.result_.objective == pytest.approx(other.result_.objective, rel=1e-6)
    expected = other.components_[:, np.cumsum(counts)[counts > 0] - 1]
    product = one.result_.H.T @ one.components_[:, counts > 0]
    np.testing.assert_allclose(product, other.result_.H.T @ expected, atol=1e-3)
    with pytest.warns(InputWarning, match="features"):
        coefficients = one.transform(make(X))
    np.testing.assert_allclose(coefficients, one.result_.H.T, atol=1e-12)
    value = (counts * (X - coefficients @ one.components_) ** 2).sum()
    assert one.reconstruction_err_**2 == pytest.approx(value, rel=1e-9)


@MANY
def test_sparse_ratings_are_never_filled(X):
    mask = known(X, 0.9)
    S = sp.csr_array(np.where(mask, X, 0))
    init = np.random.default_rng(0).random((20, 2))  # inits see stored entries alone
    result = factorize(from_rows(S, missing="zeros"), 2, init=init)
    dense = factorize(from_rows(np.where(mask, X, 0), missing="zeros"), 2, init=init)
    assert result.data.observed.weights is None
    squared = weighted_error(X, mask, result.W, np.asarray(result.H))
    assert result.objective == pytest.approx(squared, rel=1e-9)
    assert result.relative_error == pytest.approx(dense.relative_error, rel=1e-6)


@pytest.mark.seed(5)
def test_inits_of_small_data_compete_by_the_weighted_error(rng):
    """As low as the best of many random starts, where these end in several minima."""
    A = rng.gamma(0.3, size=(60, 5)) @ rng.gamma(0.3, size=(5, 25))
    sigma = 0.3 * A + 0.05 * A.mean(axis=0)
    V = from_rows(np.maximum(A + sigma * rng.standard_normal(A.shape), 0), weights=1 / sigma**2)
    result = factorize(V, 5)
    assert {one.init for one in result.race.entrants} == {"nndsvd", "random"}
    assert len(result.race.entrants) % 10 == 1
    assert result.race.n_agreeing >= 5
    ends = [factorize(V, 5, init="random", rng=np.random.default_rng(n)) for n in range(6)]
    assert result.objective <= 1.0001 * np.median([end.objective for end in ends])
    np.testing.assert_array_equal(factorize(V, 5).W, result.W)
    lowest = min(entrant.relative_error for entrant in result.race.entrants)
    assert result.relative_error <= lowest * 1.00002  # up to ties
    asked = []
    stopped = factorize(V, 5, callback=lambda now: asked.append(now) or len(asked) == 3)
    assert stopped.stop_reason == "callback"


def test_with_nothing_missing_every_storage_gives_the_same_bits(backend, X, same_factors):
    plain, ones = backend(X.T), np.ones_like(X)
    options = {"init": "nndsvd", "max_iter": 2, "tol": 0}
    one = factorize(plain, 2, **options)
    for known in ({"missing": "nan"}, {"mask": ones}, {"weights": ones}):
        V = observed_only(plain, **known)
        assert V.observed is None
        same_factors(one, factorize(V, 2, **options))


def test_the_estimator_imputes(X, refuses):
    mask = known(X, 0.3)
    holes = np.where(mask, X, np.nan)
    model = ConeNMF(3, missing="nan", max_iter=500)
    coefficients = model.fit_transform(holes)
    np.testing.assert_array_equal(coefficients, model.transform(holes))
    imputed = model.inverse_transform(coefficients)
    assert np.linalg.norm((imputed - X)[~mask]) < 0.05 * np.linalg.norm(X[~mask])
    masked = np.ma.masked_array(X, ~mask)
    np.testing.assert_array_equal(model.transform(masked), coefficients)
    given = ConeNMF(3, max_iter=500).fit(X, mask=mask)
    np.testing.assert_array_equal(given.components_, model.components_)
    np.testing.assert_array_equal(model.predict(holes), model.labels_)
    assert model.explained_share(holes) == pytest.approx(1 - model.relative_error_**2)
    assert model.__sklearn_tags__().input_tags.allow_nan
    assert not ConeNMF().__sklearn_tags__().input_tags.allow_nan
    assert model.certify().relative_error == pytest.approx(model.relative_error_)
    assert model.score(holes) < model.explained_share(holes)
    fresh = ConeNMF(3, missing="nan")
    refuses(NotAvailableError, "missing entries", lambda: fresh.partial_fit(holes))


def test_empty_samples_and_features_are_zero_and_counted(X):
    mask = known(X, 0.3)
    mask[[3, 5]] = False
    mask[:, 4] = False
    with pytest.warns(InputWarning) as caught:
        model = ConeNMF(3).fit(np.where(mask, X, np.nan), mask=mask)
    counted = [str(one.message).partition(":")[0] for one in caught]
    unknown = "nothing is observed of"
    assert counted == [f"{unknown} 2 samples", f"{unknown} 1 feature"]
    assert not model.result_.H[:, [3, 5]].any()
    assert not model.components_[:, 4].any()
    assert model.labels_[3] == -1
    assert np.isnan(model.inverse_transform(np.ones((1, 3)))[0, 4])
    with pytest.warns(InputWarning):
        own = ConeNMF(3, init=np.ones((3, 20)), tol=1e-2).fit(X, mask=mask)
    assert not own.components_[:, 4].any()  # whatever it began with


def test_the_bound_with_two_ridges(X, rng):
    mask = known(X, 0.4)
    V = from_rows(X, mask=mask)
    result = factorize(V, 8, penalties=Penalties(l2_h=1.0, l2_w=1.0), max_iter=3000, tol=1e-9)
    bound = result.objective_bound()
    assert 0.9 * result.objective < bound <= result.objective * (1 + 1e-9)
    for _ in range(5):  # no other factors are below it
        W, H = rng.random((20, 4)), rng.random((4, 80))
        value = weighted_error(X, mask, W, H) + (W**2).sum() + (H**2).sum()
        assert bound <= value
    assert factorize(V, 3).objective_bound() == 0
    assert observed_bound(V, result.W, result.H) == 0


@pytest.mark.filterwarnings("ignore:sum_to_one")
def test_known_components_and_penalties_with_holes(X, refuses):
    mask = known(X, 0.6)
    V, known_one = from_rows(X, mask=mask), np.ones((20, 1))
    result = factorize(V, 3, fixed=known_one, penalties=Penalties(l2_h=0.1, l2_w=0.1))
    np.testing.assert_array_equal(result.W[:, :1], known_one)
    W, H = result.W, np.asarray(result.H)
    value = weighted_error(X, mask, W, H) + 0.1 * ((W**2).sum() + (H**2).sum())
    assert result.objective == pytest.approx(value, rel=1e-9)
    sums = factorize(V, 3, penalties=Penalties(sum_to_one=True), max_iter=30)
    np.testing.assert_allclose(np.asarray(sums.H).sum(axis=0), 1, atol=1e-9)
    volume = Penalties(min_volume=1.0)
    refuses(OptionError, "complete data", lambda: factorize(V, 3, penalties=volume))


def test_an_invalid_update_of_weighted_entries_is_named(X, refuses):
    V = from_rows(X, weights=1 / (1 + X))
    for wrong in (-1.0, np.nan):
        solver = Solver(lambda G, C, Y, wrong=wrong: np.full_like(Y, wrong), first="W")
        message = "the solver returned entries that are negative or not finite"
        refuses(DataError, message, factorize, V, 3, solver=solver, init=X[:3].T)


def test_files_with_holes(tmp_path, X):
    mask = known(X, 0.3)
    np.save(tmp_path / "X.npy", np.where(mask, X, np.nan))
    V = open_data(tmp_path / "X.npy", missing="nan", max_memory="1MB")
    turned = from_columns(np.where(mask, X, 5.0).T, mask=mask.T)
    one, other = (factorize(data, 3, init="nndsvd", max_iter=50) for data in (V, turned))
    np.testing.assert_allclose(one.W, other.W, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("K", "every"), [(3, 6), (30, 12)])
def test_one_iteration_in_six_or_twelve_has_gram_matrices(K, every, rng):
    loss = FROBENIUS.on(from_rows(rng.random((40, 35)), mask=rng.random((40, 35)) > 0.2))
    for number in range(25):
        shared = loss.shared(rng.random((35, K)), number)
        assert (shared.pairs is not None) == (number % every == 0)

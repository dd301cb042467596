"""What is known of the data is one thing, wherever and in whatever order it was said."""

import itertools

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, factorize, from_columns, from_rows, open_data, prepare
from conenmf.data.imputation import fill_missing
from conenmf.data.known import observed_only, weigh_samples
from conenmf.errors import (
    DataError,
    OptionError,
)
from conenmf.names import Names
from conenmf.scale.checkpoint import known_digest
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses import get_loss

N, F, K = 36, 11, 2
RNG = np.random.default_rng(0)
X = RNG.gamma(0.6, 1, (N, 3)) @ RNG.gamma(0.5, 1, (3, F)) + 0.05
A, B = RNG.random((N, F)) > 0.2, RNG.random((N, F)) > 0.2
P, Q = RNG.gamma(2.0, 1.0, (N, F)), RNG.gamma(2.0, 1.0, (N, F))
OF_FEATURES, OF_SAMPLES = RNG.gamma(1.0, 1.0, F), RNG.gamma(1.0, 1.0, N)


def weights_of(V):
    """The weights of a matrix as an array, ones if there are none."""
    if V.observed is None:
        return np.ones(V.shape[::-1])
    if V.observed.weights is None:
        block = V.columns(np.arange(V.shape[1]))
        return (
            sp.csc_array((np.ones(block.nnz), block.indices, block.indptr), block.shape).toarray().T
        )
    return np.asarray(V.observed.weights, float)


def judged(result, weights, loss="frobenius"):
    """The objective and the weighted total by plain NumPy."""
    model = np.asarray((result.W @ result.H).T)
    if loss == "frobenius":
        return (weights * (X - model) ** 2).sum(), (weights * X**2).sum()
    logs = np.where(weights > 0, X * np.log(X / np.maximum(model, 1e-300)), 0)
    return (weights * (logs - X + model)).sum(), np.nan


@pytest.mark.parametrize("V", [from_rows(X), from_rows(sp.csr_array(X))])
def test_without_masks_or_weights_the_data_stay_as_they_are(V):
    assert observed_only(V) is V


# --- combined ---------------------------------------------------------------------------------

SAID = {
    "mask": ({"mask": A}, A),
    "other mask": ({"mask": B}, B),
    "weights": ({"weights": P}, P),
    "others": ({"weights": Q.astype(np.float32)}, Q.astype(np.float32)),
    "features": ({"weights": OF_FEATURES}, np.broadcast_to(OF_FEATURES, X.shape)),
    "whole numbers": ({"weights": (9 * P).astype(np.uint8)}, (9 * P).astype(np.uint8)),
}


@pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")
@pytest.mark.parametrize("pair", list(itertools.permutations(SAID, 2)), ids="-".join)
def test_masks_and_weights_combine_in_any_order(pair):
    (one, p), (other, q) = (SAID[name] for name in pair)
    V = observed_only(observed_only(from_rows(X), **one), **other)
    np.testing.assert_allclose(weights_of(V), p.astype(float) * q, rtol=1e-12)
    assert known_digest(V) == known_digest(observed_only(from_rows(X, **other), **one))
    if {*one} != {*other}:
        assert known_digest(V) == known_digest(from_rows(X, **one, **other))
    hidden = weights_of(V) == 0
    np.testing.assert_array_equal(V.columns(np.arange(N)).T, np.where(hidden, 0, X))
    assert V.observed.total == pytest.approx((p.astype(float) * q * X**2).sum(), rel=1e-12)
    assert V.observed.missing == pytest.approx(hidden.mean())


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
@pytest.mark.parametrize("opened", [{"mask": A}, {"weights": A * P}, {"missing": "nan"}])
@pytest.mark.parametrize("fitted", [{"mask": B}, {"weights": B * Q}])
def test_a_mask_where_data_are_opened_is_not_forgotten_in_fit(loss, opened, fitted):
    data = np.where(A, X, np.nan) if "missing" in opened else X
    known = (P * A if "weights" in opened else A) * (Q * B if "weights" in fitted else B)
    model = ConeNMF(K, loss=loss).fit(from_rows(data, **opened), **fitted)
    objective, total = judged(model.result_, known.astype(float), loss)
    assert model.result_.objective == pytest.approx(objective, rel=1e-8)
    once = ConeNMF(K, loss=loss).fit(X, weights=known.astype(float))
    assert model.relative_error_ == pytest.approx(once.relative_error_, rel=1e-12)
    if loss == "frobenius":
        assert model.relative_error_ == pytest.approx(np.sqrt(objective / total), rel=1e-8)
        assert model.reconstruction_err_ == pytest.approx(np.sqrt(objective), rel=1e-8)


def test_missing_of_the_estimator_holds_for_open_data(tmp_path):
    Z = np.where(A, X, 0)
    np.save(tmp_path / "z.npy", Z)
    places = (Z, from_rows(Z), from_rows(sp.csr_array(Z)), open_data(tmp_path / "z.npy"))
    places = (*places, from_rows(da.from_array(Z, chunks=(9, F))), from_rows(X, mask=A))
    errors = [ConeNMF(K, missing="zeros").fit(V).relative_error_ for V in places]
    np.testing.assert_allclose(errors, errors[0], rtol=1e-6)
    assert errors[0] == pytest.approx(ConeNMF(K).fit(X, mask=A).relative_error_, rel=1e-6)
    V = from_rows(X)
    passes = V.passes
    ConeNMF(K, missing="nan")._read(V, reset=True)  # open data have no NaN: nothing is read
    assert V.passes == passes


@pytest.mark.parametrize("said", [{"mask": B}, {"weights": P}, {"weights": OF_FEATURES}])
def test_of_sparse_ratings_a_mask_and_weights_are_for_what_is_stored(said):
    stored = sp.csr_array(np.where(A, X, 0))
    stored.data[::5] = 0  # known to be zero
    dense, weights = stored.toarray(), next(iter(said.values()))
    V = from_rows(stored, missing="zeros", **said)
    np.testing.assert_allclose(weights_of(V), A * np.broadcast_to(weights, X.shape))
    for other in (from_rows(stored, missing="zeros"), from_rows(dense, mask=A)):
        later = observed_only(other, **said)
        assert known_digest(V) == known_digest(later)
        expected = factorize(later, K).relative_error
        assert factorize(V, K).relative_error == pytest.approx(expected, rel=1e-6)


def test_masked_arrays_and_masks(refuses):
    masked = np.ma.array(X, mask=~A)
    rows = [np.ma.array(row, mask=~known) for row, known in zip(X, A, strict=True)]
    results = [
        ConeNMF(K).fit(X, mask=A & B).result_,
        ConeNMF(K, missing="nan").fit(masked, mask=B).result_,
        ConeNMF(K).fit(from_rows(masked, missing="nan"), mask=B).result_,
        factorize(from_columns(masked.T, missing="nan", mask=B.T), K),
        factorize(from_rows(rows, missing="nan", mask=B), K),
    ]
    assert len({result.relative_error for result in results}) == 1
    whole = np.ma.array((9 * X).astype(np.int16), mask=~A)
    V = from_rows(whole, missing="nan")
    assert V.dtype == np.float64
    np.testing.assert_array_equal(weights_of(V), A)
    for mask in (np.arange(F) > 2, np.where(A, np.nan, 1.0), A.T):
        fit = ConeNMF(K, missing="nan").fit
        refuses((OptionError, DataError), "mask has", fit, masked, mask=mask)


def test_weights_that_undo_each_other_leave_complete_data():
    V = observed_only(from_rows(X, weights=2.0 ** (P > 1)), weights=0.5 ** (P > 1))
    assert V.observed is None
    np.testing.assert_array_equal(V.columns(np.arange(N)).T, X)


def test_what_was_done_to_the_data_is_kept():
    V = prepare(from_rows(X), log1p=True)
    model = ConeNMF(K).fit(V, weights=OF_FEATURES)
    assert model.result_.preparation == V.preparation
    np.testing.assert_allclose(model.transform(X), model.result_.H.T, rtol=1e-7, atol=1e-9)


# --- weights of samples -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
@pytest.mark.parametrize("storage", ["dense", "sparse", "file", "dask"])
@pytest.mark.parametrize("said", [{"mask": A}, {"weights": P}], ids=["mask", "weights"])
def test_weights_of_samples_multiply_those_of_entries(loss, storage, said, tmp_path):
    np.save(tmp_path / "x.npy", X)
    data = {"dense": X, "sparse": sp.csr_array(X), "dask": da.from_array(X, chunks=(9, F))}
    opened = open_data(tmp_path / "x.npy") if storage == "file" else from_rows(data[storage])
    V, s = observed_only(opened, **said), OF_SAMPLES * (np.arange(N) % 5 > 0)
    result = factorize(
        weigh_samples(V, s, get_loss(loss).degree), K, loss=loss, max_iter=1000, tol=1e-9
    )
    weights = next(iter(said.values())) * s[:, None]
    objective, total = judged(result, weights, loss)
    assert result.objective == pytest.approx(objective, rel=1e-7)
    if loss == "frobenius":
        assert result.relative_error == pytest.approx(np.sqrt(objective / total), rel=1e-7)
    own = ConeNMF(K, init=result.W.T, solver=None, loss=loss).fit(X, **said)  # exact, of all
    atol = 1e-9 * own.result_.H.max()  # counts: a regression ends at a duality gap of 1e-9
    np.testing.assert_allclose(np.asarray(result.H), own.result_.H, rtol=1e-6, atol=atol)
    assert result.certify().gap >= -1e-9
    by_entries = factorize(from_rows(X, weights=weights), K, loss=loss, max_iter=1000, tol=1e-9)
    assert result.relative_error == pytest.approx(by_entries.relative_error, rel=2e-3)


def test_a_sample_twice_is_a_weight_of_two_where_entries_are_missing():
    times = np.arange(N) % 3
    for penalties in (None, Penalties(l1_h=0.1, l2_w=0.1)):
        one = factorize(weigh_samples(from_rows(X, mask=A), times), K, penalties=penalties)
        twice = from_rows(np.repeat(X, times, axis=0), mask=np.repeat(A, times, axis=0))
        other = factorize(twice, K, penalties=penalties)
        np.testing.assert_allclose(one.W, other.W, rtol=1e-9)
        assert one.objective == pytest.approx(other.objective)
        assert one.H.shape == (K, N)


def test_the_order_of_masks_and_weights_of_samples_does_not_matter():
    for weights in (np.arange(N) % 3, OF_SAMPLES):
        one = weigh_samples(from_rows(X, mask=A), weights)
        other = observed_only(weigh_samples(from_rows(X), weights), mask=A)
        assert known_digest(one) == known_digest(other)
        assert factorize(one, K).relative_error == factorize(other, K).relative_error
    twice = weigh_samples(weigh_samples(from_rows(X), OF_SAMPLES), OF_SAMPLES)
    assert known_digest(twice) == known_digest(weigh_samples(from_rows(X), OF_SAMPLES**2))


def test_a_feature_known_in_samples_without_weight_alone_is_unknown():
    known, s = np.ones(X.shape, bool), OF_SAMPLES.copy()
    known[4:, 0], s[:4] = False, 0
    for data in (from_rows(X, mask=known), from_rows(sp.csr_array(X * known), missing="zeros")):
        V = weigh_samples(data, s)
        assert V.observed.empty_features.tolist() == [True] + [False] * (F - 1)
        assert not factorize(V, K).W[0].any()
    s[:4], s[4:] = 1, 0  # complete samples alone count; the others have coefficients too
    whole = np.where(np.arange(N)[:, None] < 4, True, A)
    result = factorize(weigh_samples(from_rows(X, mask=whole), s), 1, init="cr1")
    exact = ConeNMF(1, init=result.W.T, solver=None).fit(X, mask=whole).result_
    np.testing.assert_allclose(result.H, exact.H, rtol=1e-7)


# --- names ------------------------------------------------------------------------------------

FEATURES, SAMPLES = [f"g{f}" for f in range(F)], [f"s{n}" for n in range(N)]
FRAME = pd.DataFrame(X, SAMPLES, FEATURES)
TURN, TURN_F = RNG.permutation(N), RNG.permutation(F)


def shuffled(frame):
    """The same data frame with its rows and columns in another order."""
    return frame.iloc[TURN, TURN_F]


def same(one, other):
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-9, atol=1e-12)
    assert one.relative_error_ == pytest.approx(other.relative_error_, rel=1e-12)


@pytest.mark.parametrize("name", ["mask", "weights"])
def test_tables_of_entries_are_matched_by_name(name, refuses):
    table = pd.DataFrame({"mask": A, "weights": P}[name], SAMPLES, FEATURES)
    plain = ConeNMF(K).fit(X, **{name: table.to_numpy()})
    same(ConeNMF(K).fit(FRAME, **{name: shuffled(table)}), plain)
    V = from_columns(FRAME.T, **{name: shuffled(table).T})
    assert known_digest(V) == known_digest(from_rows(X, **{name: table.to_numpy()}))
    polars = pl.DataFrame(FRAME.to_numpy(), FEATURES)
    turned = pl.DataFrame(table.to_numpy()[:, TURN_F], [FEATURES[f] for f in TURN_F])
    same(ConeNMF(K).fit(polars, **{name: turned}), plain)
    names = Names.of(SAMPLES, FEATURES)
    columns = pl.DataFrame(table.to_numpy()[TURN].T, [SAMPLES[n] for n in TURN])
    V = from_columns(X.T, names=names, **{name: columns})
    assert known_digest(V) == known_digest(from_rows(X, **{name: table.to_numpy()}))
    wrong = {name: table.rename(index={"s1": "h"})}
    message = f"36 samples, {name} has 36; missing in the data: 'h'"
    refuses(DataError, message, ConeNMF(K).fit, FRAME, **wrong)


def test_weights_of_features_and_samples_are_matched_by_name():
    of_features = pd.Series(OF_FEATURES, FEATURES)
    plain = ConeNMF(K).fit(X, weights=OF_FEATURES)
    for frame in (FRAME, pl.DataFrame(X, FEATURES)):
        same(ConeNMF(K).fit(frame, weights=of_features.iloc[TURN_F]), plain)
    columns = from_columns(FRAME.T, weights=of_features.iloc[TURN_F])
    assert known_digest(columns) == known_digest(from_rows(X, weights=OF_FEATURES))
    of_samples = pd.Series(OF_SAMPLES, SAMPLES)
    one = ConeNMF(K).fit(FRAME, sample_weight=of_samples.iloc[TURN])
    same(one, ConeNMF(K).fit(X, sample_weight=OF_SAMPLES))
    assert one.score(FRAME, sample_weight=of_samples.iloc[TURN]) == pytest.approx(
        one.score(FRAME, sample_weight=OF_SAMPLES)
    )


@pytest.mark.parametrize("weights", [OF_FEATURES, pd.Series(OF_FEATURES, FEATURES)])
def test_new_data_in_another_order_have_the_weights_of_their_features(weights):
    V = from_rows(FRAME)
    model = ConeNMF(K).fit(V, weights=weights)
    expected = model.transform(V)
    np.testing.assert_allclose(expected, model.result_.H.T, rtol=1e-7, atol=1e-9)
    turned = from_rows(FRAME.iloc[:, TURN_F])
    np.testing.assert_allclose(model.transform(turned), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_own_factors_are_matched_by_name(refuses):
    C, H = RNG.random((K, F)), RNG.random((N, K))
    components = pd.DataFrame(C, ["a", "b"], FEATURES)
    coefficients = pd.DataFrame(H, SAMPLES, ["a", "b"])
    plain = ConeNMF(K, init=C).fit(X)
    same(ConeNMF(K, init=components.iloc[:, TURN_F]).fit(FRAME), plain)
    turned = pl.DataFrame(C[:, TURN_F], [FEATURES[f] for f in TURN_F])
    same(ConeNMF(K, init=turned).fit(pl.DataFrame(X, FEATURES)), plain)
    plain = ConeNMF(K, init=(H, C), solver="plain-hals", max_iter=3).fit(X)
    pair = (coefficients.iloc[TURN, ::-1], components.iloc[:, TURN_F])
    same(ConeNMF(K, init=pair, solver="plain-hals", max_iter=3).fit(FRAME), plain)
    V = from_rows(FRAME)
    W = components.T.iloc[TURN_F]
    assert factorize(V, K, init=W).relative_error == factorize(V, K, init=C.T).relative_error
    assert factorize(V, K, fixed=W.iloc[:, :1]).relative_error == (
        factorize(V, K, fixed=C.T[:, :1]).relative_error
    )
    wrong = ConeNMF(K, init=components.rename(columns={"g1": "h"}))
    refuses(DataError, "components has 11; missing in the data: 'h'", wrong.fit, FRAME)


# --- what is refused, and units ---------------------------------------------------------------


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_weights_have_no_unit(loss):
    alike = ({"weights": A * 1.0}, {"weights": np.ones(X.shape)}, {"weights": np.ones(F)})
    differ = ({"weights": P}, {"weights": OF_FEATURES}, {"sample_weight": OF_SAMPLES})
    for known in (*differ, *alike):
        one = ConeNMF(K, loss=loss).fit(X, **known)
        for unit in (1e6, 1e-30, 1e30, 3.0):
            other = ConeNMF(K, loss=loss).fit(X, **{k: v * unit for k, v in known.items()})
            np.testing.assert_allclose(other.components_, one.components_, rtol=1e-6, atol=1e-9)
            assert other.result_.objective == pytest.approx(unit * one.result_.objective)


def test_penalties_are_compared_with_weights_as_they_are():
    penalties = Penalties(l2_h=0.3, l2_w=0.2)
    for weights in (P, A * 1.0, np.ones(X.shape)):
        one = factorize(from_rows(X, weights=weights), K, penalties=penalties, tol=1e-9)
        result = factorize(from_rows(X, weights=7 * weights), K, penalties=penalties, tol=1e-9)
        squared, added = judged(result, 7 * weights)[0], 0.3 * (result.H**2).sum()
        added += 0.2 * (result.W**2).sum()
        assert result.objective == pytest.approx(squared + added, rel=1e-8)
        assert squared / 7 < judged(one, weights)[0]


def test_the_unit_of_a_feature_is_the_harmonic_mean_of_its_weights():
    weights = np.array([[1.0, 2.0, 4.0], [3.0, 0.0, 4.0], [1.0, 6.0, 4.0]])
    of_features = from_rows(np.ones((3, 3)), weights=weights).observed.of_features
    np.testing.assert_allclose(of_features / of_features[2], [9 / 28, 3 / 4, 1])


def test_weights_of_zero_and_one_are_kept_as_a_mask():
    observed = from_rows(X, weights=A.astype(float)).observed
    assert (observed.is_mask, observed.weights.dtype) == (True, bool)  # an eighth of the memory


@pytest.mark.parametrize("weights", [[2.0, 1.0, 3.0] * 12, [2.0, 0.5, 3.0] * 12])
def test_weighed_samples_keep_the_names_of_their_features(weights):
    """Known components in another order are matched by them."""
    fixed = pd.DataFrame(X[:1], columns=FEATURES)
    models = [
        ConeNMF(K, fixed=one).fit(FRAME, None, weights) for one in (fixed, fixed.iloc[:, TURN_F])
    ]
    same(*models)
    np.testing.assert_array_equal(models[1].components_[0], X[0])


def test_with_weights_beside_uncertainties_the_error_is_no_longer_q():
    sigma = 0.1 + X
    alone = factorize(from_rows(X, sigma=sigma), K, max_iter=2)
    assert alone.data.observed.of_sigma
    assert alone.settings["Q"] == pytest.approx(alone.objective)
    masked = observed_only(from_rows(X, sigma=sigma), mask=A)
    assert masked.observed.of_sigma
    for V in (
        from_rows(X, sigma=sigma, weights=P),
        observed_only(from_rows(X, sigma=sigma), weights=P),
    ):
        assert not V.observed.of_sigma
        assert "Q" not in factorize(V, K, max_iter=2).settings
        np.testing.assert_allclose(weights_of(V), P / sigma**2)


def test_inits_see_zeros_for_negative_entries_and_means_without_them_for_missing_ones():
    X = np.array([[-2.0, 4.0, 1.0], [6.0, np.nan, 3.0], [np.nan, 1.0, -1.0]])
    V = fill_missing(from_rows(X, missing="nan", negative="keep"))
    expected = [[0, 4, 1], [6, 2.5, 3], [3, 1, 0]]
    np.testing.assert_allclose(np.asarray(V.columns([0, 1, 2])).T, expected)

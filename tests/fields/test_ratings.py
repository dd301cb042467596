"""Ratings: long tables are read as sparse matrices, and predictions beat regularised means."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

from conenmf import ConeNMF, fit_ratings, from_rows, open_data
from conenmf.data.known import weigh_samples
from conenmf.errors import (
    DataError,
    DataTypeError,
    FileFormatError,
    InputWarning,
    OptionError,
)
from conenmf.fields import ratings as module
from conenmf.fields.ratings import Ratings


def draw_ratings(seed, shape=(300, 120), share=0.12):
    """True ratings of two kinds of taste, with offsets, and which of them are known."""
    rng = np.random.default_rng(seed)
    taste = rng.dirichlet([0.3, 0.3], shape[0]) @ (3 * (rng.random((2, shape[1])) < 0.4))
    offsets = 0.4 * rng.standard_normal((shape[0], 1)) + 0.4 * rng.standard_normal(shape[1])
    truth = np.clip(2.2 + taste + offsets, 1, 5)
    noisy = np.clip(truth + 0.4 * rng.standard_normal(shape), 1, 5)
    return truth, noisy, rng.random(shape) < share


def without_tastes(rng):
    offsets = 0.5 * rng.standard_normal((150, 1)) + 0.5 * rng.standard_normal(80)
    return np.clip(3 + offsets + 0.7 * rng.standard_normal(offsets.shape), 1, 5)


def strong_tastes(seed):
    """Ratings of products of taste, which no sum of offsets describes, and which are known."""
    rng = np.random.default_rng(seed)
    tastes = rng.gamma(1.0, 1.0, (300, 6)) @ rng.gamma(1.0, 1.0, (6, 200))
    noisy = 1 + 4 * tastes / np.quantile(tastes, 0.99) + 0.3 * rng.standard_normal(tastes.shape)
    return np.clip(noisy, 1, 5), rng.random(noisy.shape) < 0.12


def rmse(found, true):
    return np.sqrt(np.mean((found - true) ** 2))


def long_table(noisy, known):
    users, items = np.nonzero(known)
    names = [f"u{n}" for n in users], [f"film {n}" for n in items]
    return pd.DataFrame(
        {"userId": names[0], "movieId": names[1], "rating": noisy[users, items], "timestamp": 1e9}
    )


@pytest.fixture(scope="module")
def model():
    _, noisy, known = draw_ratings(1)
    return fit_ratings(sp.csr_array(noisy * known))


@pytest.fixture
def one_penalty(monkeypatch):
    """Try one penalty instead of three, where a test is not about the choice."""
    monkeypatch.setattr(module, "_PENALTIES", (4.0,))


def regularised_means(noisy, known):
    mean = noisy[known].mean()
    users, items = np.zeros((len(known), 1)), np.zeros((1, known.shape[1]))
    for _ in range(20):
        users = (known * (noisy - mean - items)).sum(1, keepdims=True)
        users /= known.sum(1, keepdims=True) + 3
        items = (known * (noisy - mean - users)).sum(0, keepdims=True)
        items /= known.sum(0, keepdims=True) + 3
    return mean + users + items


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in (3, 5))])
def test_unknown_ratings_are_predicted_better_than_by_regularised_means(seed, model):
    truth, noisy, known = draw_ratings(seed)
    found = model if seed == 1 else fit_ratings(sp.csr_array(noisy * known))
    users, items = np.nonzero(~known)
    means = regularised_means(noisy, known)[~known]
    assert rmse(found.predict(users, items), truth[~known]) < 0.9 * rmse(means, truth[~known])
    # the printed estimates, of ratings with noise, are near the true errors
    assert abs(found.rmse - rmse(found.predict(users, items), noisy[~known])) < 0.08
    assert abs(found.rmse_of_means - rmse(means, noisy[~known])) < 0.08


@pytest.mark.nightly
@pytest.mark.seed(2)
def test_without_tastes_it_is_not_worse_than_means(rng):
    noisy = without_tastes(rng)
    known = rng.random(noisy.shape) < 0.15
    found = fit_ratings(sp.csr_array(noisy * known))
    users, items = np.nonzero(~known)
    means = rmse(regularised_means(noisy, known)[~known], noisy[~known])
    assert rmse(found.predict(users, items), noisy[~known]) < 1.02 * means


@pytest.mark.nightly
def test_strong_tastes_are_predicted_as_well_as_by_a_grid_search_without_offsets():
    noisy, known = strong_tastes(1)
    X = sp.csr_array(noisy * known)
    users, items = np.nonzero(~known)
    found = fit_ratings(X)
    grid = {"n_components": [4, 8], "alpha_W": [1e-3, 3e-3]}
    plain = GridSearchCV(ConeNMF(missing="zeros"), grid, cv=3).fit(X).best_estimator_
    predicted = (plain.transform(X)[users] * plain.components_.T[items]).sum(axis=1)
    error = rmse(found.predict(users, items), noisy[~known])
    assert error <= rmse(np.clip(predicted, 1, 5), noisy[~known])
    assert error < 0.9 * rmse(regularised_means(noisy, known)[~known], noisy[~known])


@pytest.mark.usefixtures("one_penalty")
def test_a_user_without_ratings_gets_the_offsets_of_items():
    _, noisy, known = draw_ratings(1)
    known[7] = False
    found = fit_ratings(sp.csr_array(noisy * known), 3)
    everyone = found.predict([7] * 120, range(120))
    assert np.ptp(everyone) > 0.5
    assert abs(everyone.mean() - noisy[known].mean()) < 0.4


def test_recommendations_are_the_best_items_that_are_not_rated(model):
    _, noisy, known = draw_ratings(1)
    items, ratings = zip(*model.recommend(5, n=200), strict=True)
    assert set(map(int, items)) == set(np.flatnonzero(~known[5]))
    assert list(ratings) == sorted(ratings, reverse=True)
    np.testing.assert_allclose(ratings, model.predict([5] * len(items), map(int, items)))
    assert len(model.recommend(5)) == 10
    assert noisy[known].min() <= min(ratings) <= max(ratings) <= noisy[known].max()


@pytest.mark.parametrize(("offset", "rating"), [(-9.0, 1.0), (9.0, 5.0)])
def test_predictions_stay_in_the_range_of_the_ratings(model, offset, rating):
    assert (model.known.data.min(), model.known.data.max()) == (1.0, 5.0)
    users, items = model.offsets
    moved = replace(model, offsets=(users + offset, items))
    assert set(moved.predict([0, 1, 2], [5, 6, 7])) == {rating}


def test_the_result_is_that_of_the_centred_ratings():
    _, noisy, known = draw_ratings(1)
    model = fit_ratings(sp.csr_array(noisy * known), 3)
    result, (users, items) = model.result, model.offsets
    centred = (noisy - users[:, None] - items) * known
    left = (centred - (result.W @ result.H).T * known)[known]
    assert result.objective == pytest.approx((left**2).sum())
    error = np.linalg.norm(left) / np.linalg.norm(centred[known])
    assert result.relative_error == pytest.approx(error)
    assert result.history.relative_error[-1] == pytest.approx(error)
    assert result.problem.entries.missing == pytest.approx(1 - known.mean())
    assert (np.diff(result.shares) <= 0).all()
    np.testing.assert_array_equal(
        result.labels, (np.linalg.norm(result.W, axis=0)[:, None] * result.H).argmax(axis=0)
    )
    assert min(result.W.min(), np.min(result.H)) >= 0
    assert result.diagnose() is not None  # which checks that the data are those of the fit


@pytest.mark.usefixtures("one_penalty")
def test_equal_calls_give_equal_bits():
    _, noisy, known = draw_ratings(3, (40, 25), 0.4)
    X = sp.csr_array(noisy * known)
    first, second = fit_ratings(X, 3), fit_ratings(X, 3)
    assert first.result.K == 3
    np.testing.assert_array_equal(first.result.W, second.result.W)
    assert first.rmse == second.rmse


@pytest.mark.usefixtures("one_penalty")
def test_ratings_are_the_same_from_a_matrix_a_data_frame_and_a_file(tmp_path):
    _, noisy, known = draw_ratings(1, (30, 20), 0.4)
    table = long_table(noisy, known)
    table.to_csv(tmp_path / "ratings.csv", index=False)
    opened = open_data(tmp_path / "ratings.csv")
    assert opened.shape == (20, 30)
    assert opened.remarks == (
        f"{known.sum():,} ratings of 20 items by 30 users; other pairs are unknown, not zero",
    )
    order = [int(name.removeprefix("film ")) for name in opened.names.feature_names]
    matrix = fit_ratings(sp.csr_array((noisy * known)[:, order]), 3)
    expected = matrix.predict([3, 25], [order.index(4), order.index(7)])
    for ratings in (opened, table, pl.from_pandas(table)):
        found = fit_ratings(ratings, 3)
        assert isinstance(found, Ratings)
        predicted = found.predict(["u3", "u25"], ["film 4", "film 7"])
        np.testing.assert_allclose(predicted, expected, rtol=1e-9)  # printed numbers are exact


def test_other_titles_are_named(tmp_path, refuses):
    path = tmp_path / "long.tsv"
    path.write_text("who\twhat\thow much\n" + "a\tx\t1\na\ty\t2\nb\tx\t3\nb\ty\t0.5\n")
    V = open_data(path, triples=("who", "what", "how much"))
    assert V.names.sample_names == ("a", "b")
    np.testing.assert_array_equal(V.columns(np.arange(2)).toarray(), [[1, 3], [2, 0.5]])
    refuses(OptionError, "expected three columns", lambda: open_data(path, triples=("who", "what")))


def test_tables_of_features_are_not_read_as_ratings(tmp_path):
    path = tmp_path / "products.csv"
    path.write_text("user,item_price,score\n1,10,3\n2,11,4\n3,12,5\n4,11,6\n")
    assert open_data(path, drop="user").shape == (2, 4)  # each user once: a table of features
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n1,1,3\n1,2,4\n2,1,5\n")
    assert open_data(path).shape == (2, 2)
    assert open_data(path, triples=()).shape == (3, 3)


@pytest.mark.parametrize(
    ("name", "sign", "titles"),
    [
        ("u.data", "\t", None),
        ("ratings.dat", "::", None),
        ("log.csv", ",", ["who", "what", "mark"]),
    ],
)
def test_ratings_without_titles_are_recognised_by_their_content(tmp_path, name, sign, titles):
    _, noisy, known = draw_ratings(1, share=0.2)
    users, items = np.nonzero(known)
    rows = [[u, i + 1000, round(2 * noisy[u, i]) / 2] for u, i in zip(users, items, strict=True)]
    if titles is None:
        rows = [[*row, 881250949 + 7 * n] for n, row in enumerate(rows)]
    path = tmp_path / name
    lines = [sign.join(map(str, row)) for row in [*([titles] if titles else []), *rows]]
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(InputWarning, match=r"look like users, items and ratings; .* triples=\(\)"):
        V = open_data(path)
    assert V.shape == (120, 300)
    first, user, item = noisy[users[0], items[0]], str(users[0]), str(items[0] + 1000)
    place = V.names.feature_names.index(item), V.names.sample_names.index(user)
    assert V.columns(np.arange(300)).toarray()[place] == round(2 * first) / 2
    times = () if titles else 3
    assert open_data(path, triples=(), drop=times).shape == (3, len(rows))


@pytest.mark.usefixtures("one_penalty")
def test_a_data_frame_with_other_titles_begins_with_users_items_and_ratings():
    _, noisy, known = draw_ratings(1, (40, 20), 0.5)
    table = long_table(np.rint(noisy), known).set_axis(range(4), axis="columns")
    table[3] = np.arange(881250949, 881250949 + len(table))
    assert fit_ratings(table, 2).known.shape == (40, 20)


@pytest.mark.seed(0)
def test_other_columns_of_integers_are_not_read_as_ratings(tmp_path, rng):
    def shape(columns):
        path = tmp_path / "table.csv"
        np.savetxt(path, np.column_stack(columns), "%g", ",")
        return open_data(path).shape

    ages, rooms, grades = rng.integers([18, 1, 1], [80, 9, 6], (1000, 3)).T
    assert shape([ages, rooms, grades]) == (3, 1000)  # pairs come twice
    rows, columns = np.mgrid[:30, :40].reshape(2, -1)
    assert shape([rows, columns, grades[rows]]) == (3, 1200)  # a whole grid
    known = np.flatnonzero(rng.random(1200) < 0.3)
    some = rows[known], columns[known]
    assert shape([*some, 1 + rows[known]]) == (3, known.size)  # too many values
    assert shape([*some, grades[: known.size], grades[: known.size]]) == (4, known.size)  # no time
    with pytest.warns(InputWarning, match="look like users"):
        assert shape([*some, grades[: known.size]]) == (40, 30)  # these may be ratings


def test_bad_ratings_are_named_with_their_lines(tmp_path, refuses):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\na,x,3\nb,x,4\na,x,5\n")
    twice = "lines 2 and 4 both have a rating of user 'a' and item"
    refuses(DataError, twice, open_data, path)
    for wrong in ("0", "", "good", "-1"):
        path.write_text(f"user,item,rating\na,x,3\nb,x,{wrong}\na,y,5\n")
        no_number = "line 3 has a rating that is not a finite"
        refuses(FileFormatError, no_number, open_data, path, triples=("user", "item", "rating"))
    path.write_text("user,item,rating\na,x,3\n,x,4\na,y,5\n")
    refuses(DataError, "line 3 has no user", open_data, path)
    for known in (from_rows(np.eye(4)), from_rows(-np.ones((4, 5)), negative="keep")):
        refuses(DataError, "ratings must be above 0", fit_ratings, known)


def test_unknown_users_are_named(model, refuses):
    refuses(OptionError, "there is no such user; the first of 300 is 0", model.recommend, "nobody")
    refuses(OptionError, "there is no such user", model.predict, [[0]], [1])


def test_pairs_have_equal_lengths_or_a_single_name(model, refuses):
    for users, items in (([0, 1], [5]), ([0, 1, 2], [5, 6]), ([], [5])):
        refuses(DataError, "give an item for each user", model.predict, users, items)
    expected = model.predict([7, 7], [5, 6])
    np.testing.assert_array_equal(model.predict(7, [5, 6]), expected)
    np.testing.assert_array_equal(model.predict([7], [5]), expected[:1])
    np.testing.assert_array_equal(model.predict(7, 5), expected[:1])


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("column", "values", "error", "problem"),
    [
        ("rating", ["3", "4", "5", "4"], DataTypeError, "row 0 has the rating '3', which is not"),
        ("rating", pd.Timestamp("2020-01-01"), DataTypeError, "row 0 has the rating '2020-01-01"),
        ("rating", [3.0, None, 4.0, 5.0], FileFormatError, "row 1 has a rating that is not a fin"),
        ("userId", [1, 1, None, 2], DataError, "row 2 has no user"),
        ("movieId", ["x", "y", None, "y"], DataError, "row 2 has no item"),
    ],
)
def test_invalid_ratings_in_a_data_frame_are_named(kind, column, values, error, problem, refuses):
    table = pd.DataFrame({"userId": [1, 1, 2, 2], "movieId": list("xyxy"), "rating": 3.0})
    table[column] = values
    frame = table if kind == "pandas" else pl.from_pandas(table)
    refuses(error, problem, fit_ratings, frame)


@pytest.mark.usefixtures("one_penalty")
def test_whole_numbers_name_users_even_as_floats():
    table = pd.DataFrame({"userId": [1.0, 1.0, 2.0, 2.0], "movieId": list("xyxy"), "rating": 3})
    assert fit_ratings(table, 1).result.names.sample_names == ("1", "2")


@pytest.mark.usefixtures("one_penalty")
def test_ratings_of_all_pairs():
    full = 1 + np.random.default_rng(0).random((12, 8))
    model = fit_ratings(sp.csr_array(full), 2)
    assert model.result.problem.entries.are_whole
    assert model.recommend(0) == []
    assert model.result.diagnose() is not None
    for same in (full, from_rows(full), pd.DataFrame(full), pl.DataFrame(full)):
        assert fit_ratings(same, 2).rmse == model.rmse


@pytest.mark.usefixtures("one_penalty")
def test_unknown_ratings_of_a_table_are_zero_or_nan():
    _, noisy, known = draw_ratings(1, (20, 15), 0.5)
    expected = fit_ratings(sp.csr_array(noisy * known), 2).rmse
    holed = np.where(known, noisy, np.nan)
    for same in (noisy * known, pd.DataFrame(holed), pl.DataFrame(holed)):
        assert fit_ratings(same, 2).rmse == pytest.approx(expected, rel=1e-9)


def test_a_user_of_weight_two_is_that_user_twice():
    _, noisy, known = draw_ratings(1, (40, 30), 0.4)
    X = sp.csr_array(noisy * known)
    times = np.random.default_rng(1).integers(1, 4, 40)
    model = fit_ratings(weigh_samples(from_rows(X, missing="zeros"), times), 3)
    repeated = fit_ratings(sp.csr_array((noisy * known).repeat(times, axis=0)), 3)
    assert model.rmse == pytest.approx(repeated.rmse, rel=1e-9)
    np.testing.assert_allclose(model.result.W, repeated.result.W, rtol=1e-7)
    offsets = model.offsets[0].repeat(times)
    np.testing.assert_allclose(offsets, repeated.offsets[0], rtol=1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_order_of_users_and_items_does_not_matter(axis):
    _, noisy, known = draw_ratings(1, (80, 40), 0.3)
    X = noisy * known
    order = np.random.default_rng(7).permutation(X.shape[axis])
    one, other = fit_ratings(X), fit_ratings(X.take(order, axis))
    assert one.result.K == other.result.K
    assert other.pulls == pytest.approx(one.pulls, rel=1e-9)
    assert other.rmse == pytest.approx(one.rmse, rel=1e-9)
    assert other.rmse_of_means == pytest.approx(one.rmse_of_means, rel=1e-9)
    for place in np.ndindex(3, 3):
        moved = list(place)
        moved[axis] = order[place[axis]]
        assert other.predict(*place) == pytest.approx(one.predict(*moved), rel=1e-7)


def test_weights_of_ratings_count():
    """A model follows heavy ratings more closely, and only ratios of weights matter."""
    _, noisy, known = draw_ratings(1, (40, 30), 0.4)
    heavy = np.arange(40)[:, None] < 20
    weights = np.where(heavy, 10.0, 0.1) * np.ones(known.shape)
    X = sp.csr_array(noisy * known)
    plain = fit_ratings(X, 2)
    model = fit_ratings(from_rows(X, missing="zeros", weights=weights), 2)
    assert model.result.problem.entries.is_weighted

    def error(model, where):
        users, items = np.nonzero(known & where)
        return rmse(model.predict(users, items), noisy[users, items])

    assert error(model, heavy) < error(plain, heavy)
    assert error(model, ~heavy) > error(plain, ~heavy)
    other = fit_ratings(from_rows(X, missing="zeros", weights=7 * weights), 2)
    assert other.rmse == pytest.approx(model.rmse, rel=1e-9)
    of_users, of_items = model.offsets
    left = noisy - of_users[:, None] - of_items - (model.result.W @ model.result.H).T
    own = np.where(known, weights, 0.0) / weights[known].mean()
    assert model.result.objective == pytest.approx((own * left**2).sum())
    assert model.result.diagnose() is not None


@pytest.mark.parametrize("shape", [(1, 40), (40, 1), (2, 2)])
def test_small_tables(shape):
    X = 1 + np.random.default_rng(0).random(shape)
    model = fit_ratings(X)
    assert np.isfinite([model.rmse, model.rmse_of_means]).all()
    assert model.result.K <= min(shape)
    assert np.isfinite(model.predict(0, np.arange(shape[1]))).all()


def test_equal_ratings_are_predicted():
    np.testing.assert_allclose(fit_ratings(np.full((4, 5), 3.0)).predict(1, range(5)), 3.0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_ratings_are_refused(count, refuses):
    problem = f"X has only {count}: give at least 4"
    refuses(DataError, problem, fit_ratings, 3 * np.eye(count))


@pytest.mark.usefixtures("one_penalty")
def test_the_unit_of_the_ratings_does_not_matter():
    _, noisy, known = draw_ratings(1, (30, 20), 0.4)
    one = fit_ratings(sp.csr_array(noisy * known), 3)
    for unit in (1e3, 1e-3):
        other = fit_ratings(sp.csr_array(unit * noisy * known), 3)
        # after division by their deviation, the ratings differ only by rounding
        assert other.rmse / unit == pytest.approx(one.rmse, rel=1e-6)
        assert other.result.relative_error == pytest.approx(one.result.relative_error, rel=1e-5)
        assert other.result.objective / unit**2 == pytest.approx(one.result.objective, rel=1e-5)
        assert other.predict(2, 3) / unit == pytest.approx(one.predict(2, 3), rel=1e-5)


@pytest.mark.usefixtures("one_penalty")
def test_new_users_are_folded_in_without_a_fit(refuses):
    """They get the rows that minimise the objective for the items; other users do not matter."""
    _, noisy, known = draw_ratings(1, (90, 40), 0.4)
    X = noisy * known
    model = fit_ratings(X[:60], 3)
    new = model.with_ratings(X[60:])
    assert new.known.shape == (30, 40)
    np.testing.assert_array_equal(new.result.W, model.result.W)
    damping, penalty, per_rating = model.pulls
    average = model.average_user
    for n in range(30):
        at = known[60 + n]
        parts = np.column_stack([np.ones(at.sum()), model.result.W[at]])
        left = X[60 + n, at] - model.offsets[1][at]
        row = np.append(new.offsets[0][n], new.result.H[:, n])
        pulls = np.append(damping, np.full(3, penalty + per_rating * at.sum()))
        gradient = parts.T @ (parts @ row - left) + pulls * (row - average)
        size = np.abs(parts.T @ left).max()
        assert abs(gradient[0]) < 1e-5 * size
        assert np.abs(np.minimum(row[1:], gradient[1:])).max() < 1e-5 * size
    alone = model.with_ratings(X[70:71])
    np.testing.assert_allclose(alone.predict(0, range(40)), new.predict(10, range(40)), rtol=1e-5)
    problem = "X has 39 items and the model 40"
    refuses(DataError, problem, model.with_ratings, X[:, :39])


@pytest.mark.usefixtures("one_penalty")
def test_one_rating_is_enough_for_a_new_user():
    _, noisy, known = draw_ratings(1, (60, 30), 0.4)
    model = fit_ratings(long_table(noisy, known), 2)
    table = pd.DataFrame({"userId": ["zoe"], "movieId": ["film 4"], "rating": [5.0]})
    new = model.with_ratings(table)
    assert len(new.recommend("zoe", 50)) == 29
    assert "film 4" not in dict(new.recommend("zoe", 50))
    average = model.average_user[0]
    assert average < new.offsets[0][0] < 5
    table["movieId"] = "film 99"
    with pytest.raises(OptionError, match="there is no such item"):
        model.with_ratings(table)


@pytest.mark.usefixtures("one_penalty")
def test_recommendations_of_many_users_are_those_of_each():
    _, noisy, known = draw_ratings(1, (40, 20), 0.5)
    known[3] = True
    model = fit_ratings(long_table(noisy, known), 2)
    found = model.recommend_many(n=4)
    assert [*found] == [f"u{n}" for n in range(40)]
    assert found["u3"] == []  # all items are rated
    for user in ("u0", "u7"):
        assert found[user] == model.recommend(user, 4)
    assert model.recommend_many(["u7"], 2) == {"u7": found["u7"][:2]}
    for one_user in (7, "u7"):
        with pytest.raises(OptionError, match=r"users=.*expected a list"):
            model.recommend_many(one_user)


@pytest.mark.usefixtures("one_penalty")
def test_an_item_without_ratings_is_predicted_like_the_average_item():
    _, noisy, known = draw_ratings(1, (50, 30), 0.5)
    known[:, 9] = False
    model = fit_ratings(sp.csr_array(noisy * known), 2)
    cold = model.predict(range(50), 9)
    everything = np.mean([model.predict(range(50), item) for item in range(30)], axis=0)
    assert np.corrcoef(cold, everything)[0, 1] > 0.9
    assert model.offsets[1][9] == 0


@pytest.mark.usefixtures("one_penalty")
def test_progress_is_reported():
    _, noisy, known = draw_ratings(1, (40, 20), 0.5)
    said = []
    fit_ratings(noisy * known, callback=lambda step, share: said.append((step, share)))
    steps, shares = zip(*said, strict=True)
    assert "fitting 5 components" in steps
    assert shares == tuple(sorted(shares))
    assert 0 <= shares[0] < 0.2 < 0.8 < shares[-1] < 1


@pytest.mark.parametrize("side", [0, 1])
def test_a_round_minimises_over_each_entry_in_turn(side, rng):
    """The objective never rises, and plain NumPy finds the same rows."""
    _, noisy, known = draw_ratings(1, (20, 12), 0.5)
    ratings = module._opened(noisy * known)[1]
    ratings = ratings._replace(weights=rng.random(ratings.values.size))
    rows = [np.column_stack([rng.standard_normal(n), rng.random((n, 2))]) for n in (20, 12)]
    one = ratings.sides()[side]
    table = one.penalties(ratings.weights, (2.0, 3.0, 0.1), 2)
    mean = np.array([0.5, 0.2, 0.3])
    left = ratings.values - module._scores(rows, ratings.users, ratings.items)
    own, other = rows[side].copy(), rows[1 - side]
    weights = np.zeros(known.shape)
    weights[ratings.users, ratings.items] = ratings.weights
    R, P = (noisy, weights) if side == 0 else (noisy.T, weights.T)
    expected = own.copy()
    for r in range(len(own)):
        for k in range(3):
            column = other[:, k] if k else np.ones(len(other))
            others = expected[r, 0] + other[:, 0] + other[:, 1:] @ expected[r, 1:]
            rest = R[r] - others + column * expected[r, k]
            top = P[r] @ (column * rest) + table[r, k] * mean[k]
            new = top / (P[r] @ column**2 + table[r, k])
            expected[r, k] = max(new, 0) if k else new
    one.descend(ratings.weights, left, own, other, mean, table)
    np.testing.assert_allclose(own, expected, rtol=1e-10, atol=1e-12)
    rows[side] = own
    kept = ratings.values - module._scores(rows, ratings.users, ratings.items)
    np.testing.assert_allclose(left, kept, rtol=1e-9, atol=1e-10)


def test_compiled_rounds_agree_with_numpy(monkeypatch):
    _, noisy, known = draw_ratings(1, (60, 30), 0.3)
    one = fit_ratings(noisy * known, 3)
    monkeypatch.setattr(module.kernels, "AVAILABLE", False)
    other = fit_ratings(noisy * known, 3)
    assert other.rmse == pytest.approx(one.rmse, rel=1e-9)
    np.testing.assert_allclose(other.result.W, one.result.W, rtol=1e-7)


def test_hidden_ratings_are_drawn_by_what_was_rated():
    """Equal users are hidden together, and a part has about a tenth of the ratings."""
    _, noisy, known = draw_ratings(1, (200, 80), 0.3)
    X = np.rint(noisy) * known
    X[1] = X[0]
    ratings = module._opened(X)[1]
    part = module._parts(ratings, module._keys(ratings))
    table = np.full(X.shape, -1)
    table[ratings.users, ratings.items] = part
    np.testing.assert_array_equal(table[0], table[1])
    for n in (0, 1):
        assert 0.08 < (part == n).mean() < 0.12
        shares = ((table == n).sum(axis=1) / (table >= 0).sum(axis=1))[2:]
        assert 0.05 < shares.std() < 0.1  # as of independent draws of a tenth


def test_the_printed_error_is_of_ratings_that_chose_nothing(monkeypatch):
    """A tenth has no weight in any fit but the last."""
    _, noisy, known = draw_ratings(1, (25, 15), 0.6)
    X = noisy * known
    ratings = module._opened(X)[1]
    first = module._parts(ratings, module._keys(ratings)) == 0
    seen, fit = [], module._fitted

    def watched(known, *rest):
        seen.append(known.weights[first].any())
        return fit(known, *rest)

    monkeypatch.setattr(module, "_fitted", watched)
    fit_ratings(X, 2)
    assert len(seen) > 3
    assert seen[-1]
    assert not any(seen[:-1])

"""Missing entries, weights, known components and penalties on the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.io import mmwrite

from conenmf import ConeNMF, Factorization, Problem, components_for, from_rows, select_k
from conenmf.judge.displacement import displacement
from conenmf.judge.stability import Stability

PLAIN = ("-k", 3, "--tol", 0.01, "--tables", "none", "-q")


def assert_agree(W, expected):
    """Compare a fit of a file with one of an array, which are other storages: bits may differ."""
    np.testing.assert_allclose(W, expected, rtol=1e-9, atol=1e-10 * expected.max())


@pytest.fixture
def X(folder):
    """The data of the folder, with the printed numbers to the last bit."""
    return pd.read_csv("cells.csv", index_col=0, float_precision="round_trip")


@pytest.fixture
def fit(folder, run):
    """Fit with some options; the result."""

    def fit(data, *options):
        assert run("fit", data, "-o", "out", *PLAIN, *options) == 0
        return Factorization.load("out/result.npz")

    return fit


def model(**options):
    return ConeNMF(3, tol=0.01, **options)


def test_nan_is_missing_in_fit_and_in_transform(X, fails, fit, capsys, output_of):
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    X.to_csv("holes.csv")
    fails(3, "--missing nan", "fit", "holes.csv", "-o", "out")
    result, expected = fit("holes.csv", "--missing", "nan"), model(missing="nan").fit(X)
    assert_agree(result.W, expected.components_.T)
    assert result.relative_error == expected.relative_error_
    assert "entries that are known (0.3" in capsys.readouterr().out
    output_of("report", "out", "--data", "holes.csv")  # what is missing is as before
    assert "only its reconstruction is drawn" in Path("out/report.html").read_text()
    answer = output_of("transform", "out", "holes.csv", "-o", "new.npy", "--json", "-q")
    np.testing.assert_allclose(np.load("new.npy"), expected.transform(X), rtol=1e-12)
    assert answer["relative_error"] == pytest.approx(result.relative_error, rel=1e-9)


def test_entries_that_a_sparse_matrix_does_not_store_are_missing(X, fit):
    ratings = sp.csr_array(X.to_numpy() * (np.random.default_rng(1).random(X.shape) < 0.4))
    sp.save_npz("ratings.npz", ratings)
    result = fit("ratings.npz", "--missing", "zeros", "--alpha-w", 0.01, "--l1-ratio", 0.5)
    expected = model(missing="zeros", alpha_W=0.01, l1_ratio=0.5).fit(ratings)
    assert_agree(result.W, expected.components_.T)


@pytest.fixture(params=["rows", "columns"])
def written(request):
    """Write tables with samples in rows or in columns; the option that says so."""

    def write(**frames):
        for name, frame in frames.items():
            (frame if request.param == "rows" else frame.T).to_csv(f"{name}.csv")
        return "--samples-in", request.param

    return write


@pytest.mark.seed(2)
def test_masks_and_weights_are_files(X, fit, written, output_of, rng):
    mask = pd.DataFrame(rng.random(X.shape) < 0.8, X.index, X.columns)
    weights = pd.DataFrame(rng.uniform(0.5, 2, X.shape), X.index, X.columns)
    samples_in = written(data=X, mask=mask.astype(int), weights=weights)
    options = ("--mask", "mask.csv", "--weights", "weights.csv", *samples_in)
    expected = model().fit(X, mask=mask, weights=weights)
    result = fit("data.csv", *options)
    assert_agree(result.W, expected.components_.T)
    answer = output_of("transform", "out", "data.csv", "-o", "new.npy", "--json", "-q", *options)
    np.testing.assert_allclose(np.load("new.npy"), result.H.T, rtol=1e-9)
    assert answer["relative_error"] == pytest.approx(result.relative_error, rel=1e-9)


def test_a_file_with_one_row_has_weights_of_features(X, fit, written):
    weights = pd.DataFrame([np.linspace(0.5, 2, X.shape[1])], ["weight"], X.columns)
    result = fit("data.csv", "--weights", "weights.csv", *written(data=X, weights=weights))
    expected = model().fit(X, weights=weights.to_numpy()[0])
    assert_agree(result.W, expected.components_.T)


def test_fixed_components_are_matched_by_name(X, fit, run):
    library = pd.DataFrame(X.to_numpy()[[4, 70]], ["first", "second"], X.columns)
    library.iloc[:, ::-1].to_csv("library.csv")
    result = fit("cells.csv", "--fixed", "library.csv", "--alpha-w", 0.1, "--alpha-h", 0)
    expected = model(fixed=library, alpha_W=0.1, alpha_H=0.0).fit(X)
    # A frame and a file lie in memory in other orders, so sums may differ in their last bits: up to
    # one in each of about 100 iterations and finishing steps.
    np.testing.assert_allclose(result.W, expected.components_.T, rtol=1e-12, atol=1e-14)
    assert result.component_names == ("first", "second", "component 2")
    np.testing.assert_array_equal(result.W[:, :2].T, library)
    assert run("transform", "out", "cells.csv", "-o", "new.csv", "-q") == 0
    assert tuple(pd.read_csv("new.csv"))[1:] == result.component_names


def test_negative_entries_are_kept_for_fits(X, fit, output_of, fails):
    Y = X.to_numpy() - 0.1
    np.save("noise.npy", Y)
    result = fit("noise.npy", "--negative", "keep")
    assert_agree(result.W, model(negative="keep").fit(Y).components_.T)
    output_of("report", "out", "--data", "noise.npy")
    kept = ("noise.npy", "--negative", "keep", "-q")
    assert "lower bound" in output_of("diagnose", *kept, "-k", 3)
    for command in ("rank", "compare"):
        fails(3, "which --negative keep kept", command, *kept)


@pytest.mark.parametrize(
    ("option", "change", "code", "problem"),
    [
        ("mask", lambda A: A[:, 1:], 3, "--mask has shape (90, 29)"),
        ("weights", lambda A: A - 3, 4, "--weights has entries from -2 to -2"),
        ("weights", lambda A: A * np.nan, 3, "--weights: every entry is missing"),
        ("weights", lambda A: np.where(np.eye(90, 30), np.nan, A), 3, "--weights wrong.npy: 0.011"),
        ("fixed", lambda A: A[:2, 1:], 3, "the table of fixed components has 29"),
        ("fixed", lambda A: -A[:2], 3, "--fixed is -1.0 at (0, 0)"),
        ("fixed", lambda A: A[:4], 4, "4 components are fixed, more than the 3"),
    ],
)
@pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")
def test_files_that_do_not_suit_the_data(folder, fails, option, change, code, problem):
    np.save("wrong.npy", change(np.ones((90, 30))))
    fails(code, problem, "fit", "cells.npy", f"--{option}", "wrong.npy", *PLAIN)


def test_a_mask_is_matched_by_name(X, fails, fit):
    mask = pd.DataFrame(np.random.default_rng(2).random(X.shape) < 0.8, X.index, X.columns)
    mask.iloc[::-1, ::-1].astype(int).to_csv("mask.csv")
    expected = model().fit(X, mask=mask.to_numpy()).components_.T
    assert_agree(fit("cells.csv", "--mask", "mask.csv").W, expected)
    mask.rename(columns={"gene 3": "gene x"}).astype(int).to_csv("mask.csv")
    fails(3, "--mask", "fit", "cells.csv", "--mask", "mask.csv", *PLAIN)


def test_weights_of_samples_are_a_file(X, run, fit, fails):
    weights = np.random.default_rng(3).gamma(1.0, size=len(X))
    Path("weights.txt").write_text("\n".join(map(repr, weights.tolist())))
    np.save("weights.npy", weights)
    expected = model().fit(np.ascontiguousarray(X), sample_weight=weights)
    for name in ("weights.txt", "weights.npy"):
        result = fit("cells.csv", "--sample-weight", name)
        assert_agree(result.W, expected.components_.T)
    assert run("report", "out", "--data", "cells.csv") == 0  # with the same weights
    command = ("fit", "cells.csv", "-o", "new", "--sample-weight", "weights.txt", *PLAIN)
    Path("weights.txt").write_text("1\nmany\n")
    fails(3, "could not convert string 'many'", *command)
    Path("weights.txt").write_text("1\n2\n")
    fails(4, "--sample-weight", *command)


def test_whole_weights_of_counts_choose_the_number_of_components(folder, run):
    np.save("counts.npy", np.random.default_rng(0).poisson(3, (40, 15)))
    np.savetxt("weights.txt", np.arange(40) % 3, "%d")
    command = ("fit", "counts.npy", "--loss", "poisson", "--sample-weight", "weights.txt")
    assert run(*command, "-o", "out", "--quick", "-q") == 0
    assert Factorization.load("out/result.npz").H.shape[1] == 40


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (("--sum-to-one", "--min-volume", 5e-4), {"sum_to_one": True, "min_volume": 5e-4}),
        (("--orthogonality", 2.0), {"orthogonality": 2.0}),
    ],
)
def test_other_penalties_are_options(X, fit, flags, options):
    result, expected = fit("cells.csv", *flags), model(**options).fit(X).result_
    np.testing.assert_allclose(result.W, expected.W, rtol=1e-9)
    np.testing.assert_allclose(result.H, expected.H, rtol=1e-9, atol=1e-12)


def test_a_penalty_that_a_solver_cannot_have_is_refused(folder, fails):
    options = ("--orthogonality", 1, "--solver", "nnlsb", *PLAIN)
    fails(4, "needs a positive definite Gram matrix", "fit", "cells.csv", "-o", "new", *options)


def test_commands_that_judge_data_respect_missing_entries(X, output_of):
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    X.to_csv("holes.csv")
    known = ("holes.csv", "--missing", "nan", "-q")
    assert output_of("rank", *known, "-k", "2-4", "--json")["n_components"] >= 1
    error = output_of("diagnose", *known, "-k", 3, "--json")["relative_error"]
    expected = ConeNMF(3, missing="nan").fit(X).relative_error_
    assert error == pytest.approx(expected, rel=1e-6)
    output_of("compare", *known, "-k", 3, "--inits", "cr1", "--solvers", "hals")
    output = output_of("stability", *known, "-k", 3, "--runs", 3)
    assert "the limits include how far noise can move them" in output


def test_a_long_table_of_ratings_is_fitted_as_such(folder, output_of, fails, rng):
    users, items = np.nonzero(rng.random((80, 40)) < 0.3)
    ratings = np.clip(1 + 2 * rng.random((80, 2)) @ rng.random((2, 40)), 1, 5)[users, items]
    rows = zip(users, items, ratings, strict=True)
    text = "\n".join(f"{user},film {item},{rating:.3f},1000000000" for user, item, rating in rows)
    Path("ratings.csv").write_text(f"userId,movieId,rating,timestamp\n{text}\n")
    summary = output_of("fit", "ratings.csv", "-k", 3, "-o", "out", "--json", "-q")
    assert (summary["n_samples"], summary["n_features"]) == (80, 40)
    assert 0 < summary["settings"]["rmse"] < 0.3
    assert any(line.startswith("RMSE of hidden ratings: 0.") for line in summary["summary"])
    table = Path("out/recommendations.csv").read_text().splitlines()
    assert (table[0], len(table)) == ("user,item,predicted rating", 1 + 80 * 10)
    together = "fit the ratings of old and new users together"
    fails(4, together, "transform", "out", "ratings.csv", "-o", "x.csv", "-q")
    fails(4, "leave out --data", "report", "out", "--data", "ratings.csv", "-q")
    output_of("report", "out", "-q")


def test_a_table_in_which_every_pair_is_rated_is_one_of_ratings(folder, output_of):
    pairs = np.ndindex(6, 5)
    rows = "\n".join(f"u{user},i{item},{1 + (user * item) % 4}" for user, item in pairs)
    Path("ratings.csv").write_text(f"user,item,rating\n{rows}\n")
    summary = output_of("fit", "ratings.csv", "-k", 1, "-o", "out", "--json", "-q")
    assert summary["settings"]["rmse"] > 0
    table = Path("out/recommendations.csv").read_text().splitlines()
    assert table == ["user,item,predicted rating"]  # nothing is left to recommend


def test_displacement_is_an_option(X, fit):
    part = X.iloc[:20, :4]
    part.to_csv("con.csv")
    (0.02 + 0.1 * part).to_csv("unc.csv")
    result = fit("con.csv", "--uncertainty", "unc.csv", "--displacement", "4,25")
    found = displacement(from_rows(part, sigma=0.02 + 0.1 * part), result.W, result.H, [4, 25])
    table = pd.read_csv("out/displacement.csv")
    K = result.W.shape[1]
    assert table["rise of Q"].tolist() == [4.0] * (4 * K) + [25.0] * (4 * K)
    assert table["feature"].tolist() == [*part.columns] * (2 * K)
    for name in ("lower", "upper"):
        expected = getattr(found, name).transpose(0, 2, 1).ravel()
        np.testing.assert_allclose(table[name], expected, atol=1e-6)


def test_uncertainties_and_codes_for_missing_entries_are_options(
    X, fit, fails, run, capsys, all_close
):
    sigma = 0.02 + 0.1 * X
    X.iloc[2, 3] = sigma.iloc[2, 3] = -999
    X.to_csv("con.csv")
    sigma.to_csv("unc.csv")
    result = fit("con.csv", "--missing", -999, "--uncertainty", "unc.csv")
    expected = model(missing=-999).fit(X, sigma=sigma)
    assert_agree(result.W, expected.components_.T)
    assert "of the expected" in capsys.readouterr().out
    table, by_feature = (pd.read_csv(f"out/{name}.csv", index_col=0) for name in ("residuals", "q"))
    found = expected.result_.residuals()
    np.testing.assert_allclose(table.iloc[:, 1:], found.scaled, atol=1e-9)
    written = (table.iloc[:, 0], by_feature.iloc[:, 0])
    all_close(written, (found.by_sample, found.by_feature))
    fails(2, "nor a number such as -999", "fit", "con.csv", "--missing", "none", *PLAIN)
    fails(2, "not numbers above 0", "fit", "con.csv", "--displacement", "4,x", *PLAIN)
    poisson = ("--displacement", "4", "--loss", "poisson")
    fails(4, "is for least squares", "fit", "con.csv", *poisson, *PLAIN)
    assert run("fit", "cells.csv", "--weights", "cells.csv", "-o", "w", *PLAIN) == 0
    assert "give them as --uncertainty" in capsys.readouterr().err


@pytest.fixture
def library(X):
    """A file with two known components, and the components by their names."""
    library = pd.DataFrame(X.to_numpy()[[4, 70]], ["first", "second"], X.columns)
    library.iloc[:, ::-1].to_csv("library.csv")
    return library


def test_known_components_and_penalties_are_options_of_stability(X, library, output_of, fails):
    terms = ("--fixed", "library.csv", "--alpha-w", 0.001, "--l1-ratio", 0.5)
    runs = ("--runs", 3, "--resample", "start", "--no-report", "-o", "out", "-q")
    output_of("stability", "cells.csv", "-k", 3, *terms, *runs)
    found = Stability.load("out/stability.npz")
    fit = model(fixed=library, alpha_W=0.001, l1_ratio=0.5)
    expected = fit.set_params(tol=1e-5).stability(X, 3, resample="start")
    np.testing.assert_allclose(found.W, expected.W, rtol=1e-6, atol=1e-9)
    result = Factorization.load("out/result.npz")
    np.testing.assert_allclose(result.W, found.W, rtol=1e-12)
    np.testing.assert_allclose(result.H, found.H, rtol=1e-9, atol=1e-9)
    assert result.component_names == ("first", "second", "component 2")
    assert result.problem.penalties.l1_w > 0
    fails(4, "all 2 components are known", "stability", "cells.csv", "-k", 2, *terms, *runs)


def test_known_components_count_in_the_number(X, library, output_of):
    known = ("cells.csv", "--fixed", "library.csv", "-q", "--json")
    said = output_of("rank", *known, "--error", 0.1)
    problem = Problem(fixed=library.T)
    assert said["n_components"] == select_k(X, problem=problem).K
    needed = components_for(X, 0.1, problem=problem)
    assert (said["components_for"]["low"], said["components_for"]["high"]) == (
        needed.low,
        needed.high,
    )
    said = output_of("fit", *known, "-k", "1-3", "--quick", "--no-report", "-o", "new")
    assert said["n_components"] >= 2


def test_signatures_may_be_known(folder, output_of, rng):
    types = [f"gene {f}" for f in range(12)]
    known = rng.dirichlet(np.full(12, 0.3), 3)
    counts = rng.poisson(rng.gamma(0.7, 300, (40, 3)) @ known)
    pd.DataFrame(counts.T, types).to_csv("counts.csv")
    pd.DataFrame(known[:1], ["clock"], types).to_csv("known.csv")
    options = ("--samples-in", "columns", "-k", 3, "--runs", 3, "--no-report", "-q")
    output_of("signatures", "counts.csv", "--fixed", "known.csv", *options, "-o", "out")
    result = Factorization.load("out/result.npz")
    np.testing.assert_array_equal(result.W[:, 0], known[0])
    assert result.component_names[0] == "clock"
    assert result.loss == "poisson"


def test_a_graph_of_a_matrix_market_file(folder, run, output_of, fails, capsys):
    rng = np.random.default_rng(0)
    chances = np.full((3, 3), 0.05) + 0.6 * np.eye(3)[[0, 2, 1]]
    groups = np.repeat(np.arange(3), 10)
    upper = np.triu(rng.random((30, 30)) < chances[groups][:, groups], 1)
    edges = (upper | upper.T).astype(float)
    mmwrite("graph.mtx", sp.coo_array(edges), symmetry="symmetric")
    options = ("-k", 3, "--symmetric", "-o", "out")
    assert run("fit", "graph.mtx", *options) == 0
    text = capsys.readouterr().out
    assert "a graph: V ~ W S W'" in text
    assert "No report" not in text  # there is none of a graph
    result = Factorization.load("out/result.npz")
    expected = ConeNMF(3, symmetric=True).fit(sp.csr_array(edges)).result_
    np.testing.assert_allclose(result.affinities, expected.affinities, rtol=1e-6, atol=1e-8)
    assert Path("out/labels.csv").exists()
    new = ("transform", "out", "graph.mtx", "-o", "new.csv")
    fails(4, "the coefficients of new nodes are not available", *new)
    np.save("directed.npy", np.triu(edges))
    fails(3, "--symmetric needs a symmetric matrix", "fit", "directed.npy", *options, "--force")

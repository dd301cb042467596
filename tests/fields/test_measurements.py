"""Species, starts, bootstrap and totals of measurements, against plain NumPy."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, factorize, from_rows
from conenmf.cli import main
from conenmf.data.known import weigh_samples
from conenmf.errors import NotAvailableError, OptionError
from conenmf.fields.measurements import Q_of_starts, bootstrap, measurements
from conenmf.judge.displacement import displacement
from conenmf.names import Names

SPECIES = ("Fe", "Zn", "1,2-Dimethylbenzene", "Cd", "mass")


@pytest.fixture
def air():
    """Concentrations with holes, and their uncertainties."""
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, size=(40, 2)) @ rng.gamma(1.0, size=(2, 4))
    X = np.column_stack([X, X.sum(axis=1)])
    sigma = 0.05 + 0.1 * X
    X = np.maximum(X + sigma * rng.standard_normal(X.shape), 0)
    X[3, 1] = X[7, 4] = np.nan
    return X, sigma


def opened(air, **options):
    X, sigma = air
    names = Names.of(feature_names=SPECIES)
    return measurements(X, sigma, missing="nan", names=names, **options)


def test_weak_species_have_three_times_the_uncertainty_and_bad_ones_are_left_out(air):
    X, sigma = air
    V = opened(air, weak=["Zn"], bad=["Cd"], total="mass")
    kept = [0, 1, 2, 4]
    assert V.names.feature_names == tuple(SPECIES[f] for f in kept)
    expected = sigma[:, kept] * [1, 3, 1, 3]
    plain = from_rows(X[:, kept], sigma=expected, missing="nan")
    np.testing.assert_allclose(V.observed.weights, plain.observed.weights, rtol=1e-12)
    assert V.observed.of_sigma
    fit, same = factorize(V, 2), factorize(plain, 2)
    assert fit.settings["Q"] == pytest.approx(same.settings["Q"], rel=1e-9)
    left = (X[:, kept] - (fit.W @ fit.H).T) / expected
    assert fit.settings["Q"] == pytest.approx(np.nansum(left**2), rel=1e-9)
    assert "weak: Zn; left out: Cd; total: mass" in V.remarks


@pytest.mark.parametrize("missing", ["raise", "nan", "zeros"])
def test_bad_species_need_no_uncertainties(air, missing):
    X = np.where(np.isnan(air[0]), 0 if missing == "raise" else np.nan, air[0])
    X = np.nan_to_num(X) if missing == "zeros" else X
    for table in (X, sp.csr_array(X)) if missing == "zeros" else (X,):
        V = measurements(table, missing=missing, bad=[1, 3])
        plain = from_rows(table[:, [0, 2, 4]], missing=missing)
        assert factorize(V, 2).relative_error == pytest.approx(factorize(plain, 2).relative_error)
        assert "Q" not in factorize(V, 2).settings


def test_an_open_matrix_and_the_estimator_take_them(air):
    X, sigma = air
    frame = pd.DataFrame(X, columns=SPECIES)
    V = from_rows(frame, sigma=sigma, missing="nan")
    by_name = measurements(V, weak=["Zn"])
    by_place = measurements(from_rows(frame, missing="nan"), sigma, weak=[1])
    np.testing.assert_allclose(by_name.observed.weights, by_place.observed.weights, rtol=1e-12)
    assert ConeNMF(2).fit(by_name).result_.settings["Q"] > 0
    assert measurements(V) is V


@pytest.mark.parametrize(
    ("species", "message"),
    [
        ({"weak": ["Znn"]}, "did you mean Zn"),
        ({"bad": ["Zn"], "weak": ["Zn"]}, "Zn is bad, and weak or the total"),
        ({"weak": "Zn"}, "expected a list"),
        ({"total": 9}, "at most 4"),
    ],
)
def test_wrong_species_are_named(air, species, message):
    with pytest.raises(OptionError, match=message):
        opened(air, **species)
    with pytest.raises(OptionError, match="give sigma"):
        measurements(np.ones((5, 3)), weak=[0])


def test_displacement_takes_names_of_species(air):
    V = opened(air)
    fit = factorize(V, 2, tol=1e-8, max_iter=2000)
    named, placed = (displacement(V, fit.W, fit.H, [4.0], features=[one]) for one in ("Zn", 1))
    np.testing.assert_array_equal(named.lower, placed.lower)
    with pytest.raises(OptionError, match="names 0 features"):
        displacement(V, fit.W, fit.H, [4.0], features=["zN", "Zinc"])


def test_Q_of_starts_is_the_weighted_sum_of_squares_of_each(air):
    V = opened(air)
    result = factorize(V, 2, n_init=4)
    Qs = Q_of_starts(result)
    assert len(Qs) == 5
    for Q, seed in zip(Qs[1:], range(4), strict=True):
        alone = factorize(V, 2, init="random", rng=np.random.default_rng(seed))
        assert Q == pytest.approx(alone.settings["Q"], rel=1e-3)
    with pytest.raises(NotAvailableError, match="n_init=20"):
        Q_of_starts(factorize(from_rows(np.ones((4, 3))), 1))


def test_a_bootstrap_finds_clear_components_in_all_runs_and_noise_in_few():
    rng = np.random.default_rng(1)
    X = np.kron(np.eye(3), np.ones((20, 4))) * rng.uniform(0.5, 1.5, (60, 12))
    clear = factorize(from_rows(X, sigma=0.1 + 0.1 * X), 3)
    found = bootstrap(clear, 25)
    assert found.found.tolist() == [25, 25, 25]
    shares = clear.W / clear.W.sum(axis=0)
    np.testing.assert_allclose(found.W, shares)
    assert (found.lower <= found.upper + 1e-12).all()
    assert ((found.lower <= shares + 0.02) & (shares <= found.upper + 0.02)).all()
    noise = rng.random((40, 30))
    doubtful = factorize(from_rows(noise, sigma=0.1 + noise), 6)
    some = bootstrap(doubtful, 25, min_correlation=0.9)
    assert some.found.min() < 20
    np.testing.assert_array_equal(bootstrap(doubtful, 25, min_correlation=0.9).found, some.found)


def test_a_bootstrap_draws_samples_as_often_as_they_weigh():
    rng = np.random.default_rng(3)
    X = np.kron(np.eye(2), np.ones((8, 4))) * (0.5 + rng.random((16, 8)))
    weights = rng.integers(1, 4, 16)
    weighed = factorize(weigh_samples(from_rows(X), weights), 2, max_iter=500)
    found = bootstrap(weighed, 5)
    repeated = bootstrap(factorize(X.repeat(weights, axis=0), 2, max_iter=500), 5)
    np.testing.assert_array_equal(found.found, [5, 5])
    np.testing.assert_allclose(found.W, repeated.W, atol=1e-6)


def test_the_command_writes_categories_totals_and_the_bootstrap(air, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, sigma = air
    for name, table in (("con", X), ("unc", sigma)):
        pd.DataFrame(table, columns=SPECIES).to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["--uncertainty", "unc.csv", "--missing", "nan", "--weak", SPECIES[2], "--bad", "Cd"]
    words += ["--total", "mass", "--n-init", "3", "--bootstrap", "5", "--quick", "-o", "out"]
    assert main(["fit", "con.csv", "-k", "2", *words]) == 0
    text = capsys.readouterr().out
    assert "left out: Cd" in text
    assert "4 starts: Q" in text
    assert "bootstrap of 5 runs" in text
    table = pd.read_csv(tmp_path / "out" / "q.csv")
    kinds = dict(zip(table["feature"], table["category"], strict=True))
    assert kinds == {"Fe": "strong", "Zn": "strong", SPECIES[2]: "weak", "mass": "total",
                     "Cd": "bad"}  # fmt: skip
    total = pd.read_csv(tmp_path / "out" / "total.csv", index_col=0)
    # The model says which species are bad, so that new samples may have them.
    again = ["transform", "out", "con.csv", "--uncertainty", "unc.csv", "-o", "new.csv"]
    assert main([*again, "--weak", SPECIES[2], "--total", "mass"]) == 0
    new = pd.read_csv(tmp_path / "new.csv", index_col=0).to_numpy()[:, -2:]
    old = pd.read_csv(tmp_path / "out" / "coefficients.csv", index_col=0).to_numpy()[:, -2:]
    np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-9 * old.max())
    components = pd.read_csv(tmp_path / "out" / "components.csv", index_col=0)
    coefficients = pd.read_csv(tmp_path / "out" / "coefficients.csv", index_col=0)
    expected = coefficients.to_numpy()[:, -2:] * components.loc["mass"].to_numpy()
    np.testing.assert_allclose(total.to_numpy(), expected, rtol=1e-9)
    found = pd.read_csv(tmp_path / "out" / "bootstrap.csv")
    assert len(found) == 8
    assert main(["transform", "out", "con.csv", "-o", "again.csv"]) == 0


def test_uncertainties_that_are_given_twice_and_species_that_are_all_bad(air):
    _, sigma = air
    with pytest.raises(OptionError, match="sigma is given, and the data have uncertainties"):
        measurements(opened(air), sigma)
    with pytest.raises(OptionError, match="all species are bad: keep at least one"):
        opened(air, bad=SPECIES)


def test_new_measurements_in_a_data_frame_are_matched_by_name(air):
    frame = pd.DataFrame(np.nan_to_num(air[0]), columns=SPECIES)
    model = ConeNMF(2).fit(measurements(frame, 0.1 + 0.1 * frame))
    A = model.transform(frame.to_numpy())
    np.testing.assert_allclose(model.transform(frame.iloc[:, ::-1]), A, rtol=1e-8, atol=1e-12)


def test_of_several_components_of_a_run_the_most_similar_one_is_taken(air, monkeypatch):
    """Its entries count for the limits, wherever it stands in the run."""
    result = factorize(opened(air), 2)
    rng = np.random.default_rng(5)

    def run(V, W, H, *given, **options):
        alike = H[0] + 0.5 * H[0].std() * rng.standard_normal(H.shape[1])
        return SimpleNamespace(W=np.eye(len(W), 2), H=np.stack([np.maximum(alike, 0), H[0]]))

    monkeypatch.setattr("conenmf.fields.measurements.alternate", run)
    found = bootstrap(result, 5)
    assert found.found.tolist() == [5, 0]
    np.testing.assert_array_equal(found.lower[:, 0], np.eye(len(found.W), 2)[:, 1])
    np.testing.assert_array_equal(found.upper[:, 0], found.lower[:, 0])
    assert np.isnan(found.lower[:, 1]).all()


@pytest.mark.parametrize(("least", "found"), [(0.3, [5, 0]), (0.999, [0, 0])])
def test_a_component_that_hardly_correlates_was_not_found(air, monkeypatch, least, found):
    result = factorize(opened(air), 2)

    def run(V, W, H, *given, **options):
        noise = np.random.default_rng(0).standard_normal(H.shape[1])
        alike = np.maximum(H[0] + 0.5 * H[0].std() * noise, 0)
        assert 0.5 < np.corrcoef(alike, H[0])[0, 1] < 0.99
        return SimpleNamespace(W=W, H=np.stack([alike, np.ones_like(alike)]))

    monkeypatch.setattr("conenmf.fields.measurements.alternate", run)
    assert bootstrap(result, 5, min_correlation=least).found.tolist() == found

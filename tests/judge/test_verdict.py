"""The verdict: what halves of the samples show, the grades, and pitfalls of the data."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from conenmf import factorize, from_columns, from_rows, make_cones
from conenmf.errors import DataError
from conenmf.judge.association import shares_by_class
from conenmf.judge.diagnosis import agreement, grade_components
from conenmf.judge.halves import HalfFit, Structure, _better, splits, units_of
from conenmf.judge.matching import match_spectra
from conenmf.judge.pitfalls import Features
from conenmf.result import Factorization
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses import get_loss
from conenmf.solve.problem import Problem


def shares_of(W, H, labels):
    """The shares (K,) that one column of classes explains."""
    return np.array(shares_by_class(W, H, {"class": labels})["class"])


def mixtures(rng, N=240, F=60, K=4, noise=0.02):
    truth = rng.gamma(0.5, 1.0, (K, F))
    shares = rng.dirichlet(np.full(K, 0.3), N)
    return np.abs(shares @ truth + noise * rng.standard_normal((N, F))), truth


def data_row(X, K, feature_names=None):
    X = X if feature_names is None else pd.DataFrame(X, columns=feature_names)
    return factorize(from_rows(X), K).diagnose(n_splits=0).row("Data")


@pytest.fixture(scope="module")
def surplus():
    """A fit with two components more than the data have, and its diagnosis."""
    X, truth = mixtures(np.random.default_rng(0))
    result = factorize(from_rows(X), 6)
    return result, truth, result.diagnose()


def test_true_components_are_to_be_interpreted_and_surplus_ones_are_not(surplus):
    result, truth, found = surplus
    units = truth.T / np.linalg.norm(truth, axis=1)
    cosines = (units.T @ (result.W / np.linalg.norm(result.W, axis=0))).max(axis=0)
    is_true = cosines >= 0.95
    chosen = [k for k, grade in enumerate(found.components) if grade == "interpret"]
    assert is_true.sum() == 4
    assert is_true[chosen].all()
    assert len(chosen) >= 2
    listed = ", ".join(map(str, chosen))
    assert found.headline == f"{len(chosen)} of 6 components can be interpreted: {listed}"
    assert found.row("Structure").grade == "good"


def test_a_diagnosis_is_printed_in_twelve_lines_and_has_every_number(surplus):
    _, _, found = surplus
    lines = str(found).splitlines()
    assert lines[0] == found.headline
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100
    names = ["Data", "Structure", "Components", "Number", "Optimum"]
    assert [row.name for row in found.rows][:5] == names
    assert found.cosines.shape == (6, 6)
    assert np.array_equal(found.agreement, np.sort(found.cosines, axis=0)[1])
    assert found.details.sizes.sum() <= 240


def test_many_components_are_counted_not_listed(rng):
    X, _ = mixtures(rng, N=300, F=80, K=14)
    found = factorize(from_rows(X), 14).diagnose()
    assert ":" not in found.headline
    assert len(str(found).splitlines()) <= 12


@pytest.mark.parametrize(
    "noise",
    [
        lambda rng: sp.random(300, 400, 0.02, random_state=1, format="csr"),
        lambda rng: rng.gamma(1.0, 1.0, (200, 50)),
        lambda rng: rng.poisson(np.outer(rng.gamma(2.0, 1.0, 200), rng.gamma(1.0, 1.0, 60))) * 1.0,
        lambda rng: rng.lognormal(0.0, 1.0, (200, 50)),
        lambda rng: np.tile(rng.gamma(1.0, 1.0, (100, 50)), (3, 1)),
        lambda rng: np.outer(rng.random(200) + 1, rng.random(50)) + 0.1 * rng.random((200, 50)),
    ],
    ids=["sparse", "gamma", "poisson", "lognormal", "repeated", "one-component"],
)
def test_noise_has_no_structure_and_nothing_to_interpret(noise, rng):
    found = factorize(from_rows(noise(rng)), 5).diagnose()
    assert "interpret" not in found.components
    assert found.row("Structure").grade == "poor"
    assert found.headline == "none of 5 components can be interpreted"


@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_cones_that_single_features_tell_apart_are_not_noise(alpha):
    model = make_cones(60, 5, alpha, n_samples=300, rng=np.random.default_rng(0))
    found = factorize(from_columns(model.V), 5).diagnose()
    assert found.row("Structure").grade == "open"
    assert found.row("Cones").grade == "good"
    assert "interpret" in found.components


def test_counts_of_low_depth_have_structure_by_their_own_loss(rng):
    truth = rng.gamma(0.3, 1.0, (4, 100))
    X = rng.poisson(2.0 * rng.dirichlet(np.full(4, 0.2), 300) @ truth) * 1.0
    found = factorize(from_rows(X), 4, loss="poisson").diagnose()
    assert found.structure > 0.8
    assert set(found.components) == {"interpret"}


def test_equal_samples_and_groups_are_in_one_half(rng):
    X = rng.random((30, 5))
    V = from_rows(np.vstack([X, X[:10], np.zeros((2, 5))]))
    units = units_of(V)
    assert np.array_equal(units[30:40], units[:10])
    assert (units[40:] == -1).all()
    assert np.unique(units[:30]).size == 30
    for first, second in splits(units, 5, rng):
        assert not set(units[first]) & set(units[second])
        assert len(first) + len(second) == 40
        assert abs(len(first) - len(second)) <= 2
    labels = np.repeat([0, 1, 2, 3], 10)
    grouped = units_of(from_rows(X[:30].repeat(2, axis=0)[:40]), labels)
    assert np.array_equal(grouped, labels)


def test_halves_of_groups_of_unlike_sizes_have_as_many_samples(rng):
    units = np.repeat(np.arange(51), np.where(np.arange(51) == 7, 10, 1))  # one of ten samples
    halves = splits(units, 30, rng)
    differences = [abs(len(first) - len(second)) for first, second in halves]
    assert np.median(differences) <= 1  # up to ten where the large group comes last


def test_a_half_has_its_share_of_the_penalty_on_components(rng):
    """The squared error has fewer terms then; a penalty on coefficients has fewer as well."""
    V = from_rows(mixtures(rng)[0])

    def fit(share, **penalties):
        how = HalfFit(Problem(penalties=Penalties(**penalties)))
        return how.of(V, 3, np.random.default_rng(0), share)

    whole = fit(1.0, l1_w=1.0, l1_h=1.0)
    np.testing.assert_array_equal(fit(0.5, l1_w=2.0, l1_h=1.0), whole)
    assert not np.array_equal(fit(1.0, l1_w=2.0, l1_h=1.0), whole)


def test_equal_predictions_are_not_better(rng):
    columns, W = rng.random((6, 9)), rng.random((6, 2))
    hidden = np.arange(6) < 3
    better = _better(columns, np.ones((6, 9)), get_loss("frobenius"), [W, W], hidden)
    assert better.tolist() == [0.0]


def test_features_are_described_by_weighted_entries(rng):
    X = rng.dirichlet(np.ones(3), 50) @ rng.random((3, 6))
    P = rng.random(X.shape)
    V = from_rows(X, weights=P)
    result = factorize(V, 2)
    found = Features.of(V, result.W, result.H)
    means = (P * X).sum(axis=0) / P.sum(axis=0)
    left = (P * (X - (result.W @ result.H).T) ** 2).sum(axis=0)
    expected = 1 - left / (P * (X - means) ** 2).sum(axis=0)
    np.testing.assert_allclose(found.r_squared, expected, rtol=1e-9)


def test_of_few_samples_one_may_hold_half_of_the_norm(rng):
    X = rng.random((4, 30))
    X[1] *= 5
    assert "sample 1" not in data_row(X, 2).finding


def test_a_component_that_follows_a_group_is_interpreted_with_care(rng):
    X, _ = mixtures(rng, N=240, K=3)
    labels = np.repeat(np.array(list("abcdef")), 40)
    X[labels < "d"] += 3.0 * rng.random(X.shape[1])  # what only three of six groups have
    result = factorize(from_rows(X), 4)
    plain = result.diagnose()
    found = result.diagnose(groups=labels)
    follows = int(found.class_shares.argmax())
    assert found.class_shares[follows] > 0.9
    assert np.isnan(plain.class_shares).all()
    assert found.components[follows] != "interpret"
    assert "follows the group (" in found.reasons[follows]
    with pytest.raises(DataError, match="groups has 3 labels for 240 samples"):
        result.diagnose(groups=[1, 2, 3])


def test_the_share_of_classes_is_eta_squared_without_chance(rng):
    labels = rng.integers(5, size=400)
    H = np.vstack([labels == 1, rng.random(400)]) + 0.1
    shares = shares_of(np.eye(2), H, labels)
    assert shares[0] > 0.3
    null = [shares_of(np.eye(2), H, rng.permutation(labels))[0] for _ in range(20)]
    assert np.mean(null) < 0.02
    usages = H / H.sum(axis=0)
    total = usages[0].var()
    between = sum(
        ((labels == g).mean() * (usages[0, labels == g].mean() - usages[0].mean()) ** 2)
        for g in range(5)
    )
    chance = 4 / 399
    assert shares[0] == pytest.approx((between / total - chance) / (1 - chance))


@pytest.mark.parametrize(
    ("cosines", "found", "grade"),
    [
        (6 * [0.951], Structure(0.46, 0.31), "interpret"),
        ([0.1] + 5 * [0.951], Structure(0.46, 0.31), "interpret"),
        (2 * [0.1] + 4 * [0.951], Structure(0.46, 0.31), "with care"),
        (6 * [0.951], Structure(0.46, 0.29), "with care"),
        (6 * [0.951], Structure(0.44, 0.9), "with care"),
        (6 * [0.89], Structure(0.44, 0.9), "do not"),
        (6 * [0.81], Structure(0.9, 0.9), "with care"),
        (6 * [0.79], Structure(0.9, 0.9), "do not"),
        (6 * [0.99], None, "with care"),
        ([], Structure(0.9, 0.9), "open"),
    ],
)
def test_grades_follow_from_the_evidence(cosines, found, grade):
    assert grade_components(np.reshape(cosines, (-1, 1)), found) == [grade]


def test_without_fits_there_is_no_agreement():
    assert np.isnan(agreement(np.zeros((0, 3)))).all()


def test_units_that_decide_are_named():
    wine = load_wine()
    row = data_row(wine.data, 3, feature_names=wine.feature_names)
    assert row.grade == "poor"
    assert row.finding.startswith("proline holds ")
    assert row.advice == "scale features to similar size, or leave the largest out"
    cancer = load_breast_cancer()
    row = data_row(cancer.data, 3, feature_names=cancer.feature_names)
    assert row.finding.startswith("worst area, mean area hold ")


@pytest.mark.parametrize(
    "X", [load_iris().data, load_diabetes(scaled=False).data, load_digits().data[:400]]
)
def test_tables_without_pitfalls_are_silent(X):
    assert data_row(X, 2).grade == "good"


def test_a_total_is_to_be_left_out(rng):
    parts = rng.random((100, 20)) ** 3 * 10
    total = parts.sum(axis=1, keepdims=True) * 30
    row = data_row(np.hstack([parts, total]), 2)
    assert row.finding.startswith("feature 20 holds ")
    assert row.advice == "leave out this total"


def test_a_sample_that_holds_half_of_the_norm_is_named(rng):
    X = rng.random((50, 20))
    X[7] *= 100
    row = data_row(X, 2)
    assert row.grade == "poor"
    assert row.finding.startswith("sample 7 holds 9")


@pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")  # from the reader, of the same
@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("target", lambda rng: rng.integers(3, size=60), "a class"),
        ("sample_id", lambda rng: rng.permutation(60) + 1, "a row number, an identifier"),
        ("b", lambda rng: np.arange(60), "a row number, an identifier"),
        ("day", lambda rng: rng.integers(20190101, 20191231, size=60), "a row number, an"),
    ],
)
def test_columns_that_are_not_amounts_are_named(name, values, kind, rng):
    X = np.column_stack([rng.random((60, 4)), values(rng)])
    row = data_row(X, 2, ["a", "c", "d", "e", name])
    assert f"{name}: {kind}" in row.finding
    assert data_row(X[:, :4], 2, ["a", "c", "d", "e"]).grade == "good"


def test_codes_constant_features_and_too_many_components_are_named(rng):
    X = rng.random((60, 12))
    X[rng.permutation(60)[:5], 3] = 999
    assert "feature 3: 999 may be a code" in data_row(X, 2).finding
    X = rng.random((60, 12))
    X[:, 5] = 0.7
    row = data_row(X, 2)
    assert (row.grade, row.finding) == ("fair", "1 feature never vary: feature 5")
    assert "describe any data of 12 features" in data_row(rng.random((60, 12)), 12).finding


def test_counts_fitted_by_least_squares_are_a_remark_only(rng):
    row = data_row(rng.poisson(0.3, (100, 30)) * 1.0, 2)
    assert row.grade == "good"
    assert "loss='poisson'" in row.advice


@pytest.mark.parametrize("K", [1, 2])
def test_few_features_leave_the_structure_open(K, rng):
    found = factorize(from_rows(rng.random((60, 6))), K).diagnose()
    assert found.row("Structure").grade == "open"
    assert np.isnan(found.structure)
    assert "interpret" not in found.components


def test_without_splits_components_are_open(rng):
    X, _ = mixtures(rng)
    found = factorize(from_rows(X), 3).diagnose(n_splits=0)
    assert found.components == ("open",) * 3
    assert found.row("Components").grade == "open"
    assert found.headline == "open: the 3 components were not checked"


def test_a_stop_keeps_the_splits_that_are_finished(rng):
    X, _ = mixtures(rng)
    calls = []

    def watch(note):
        calls.append(note)
        return len(calls) > 300

    found = factorize(from_rows(X), 4).diagnose(n_splits=50, watch=watch)
    assert calls[0] == "split 1 of 50"
    assert 0 < len(found.cosines) < 100
    assert len(found.cosines) % 2 == 0


def test_halves_are_fitted_like_the_whole(rng):
    X, truth = mixtures(rng)
    V = from_rows(X)
    fixed = factorize(V, 4, fixed=truth[:2].T).diagnose()
    assert fixed.cosines[:, :2] == pytest.approx(1.0)
    assert fixed.reasons[0].startswith("given")
    penalised = factorize(V, 4, penalties=Penalties(l1_h=0.5, l2_w=0.5)).diagnose()
    assert set(penalised.components) == {"interpret"}
    holes = X.copy()
    holes[rng.random(X.shape) < 0.1] = np.nan
    assert set(factorize(from_rows(holes, missing="nan"), 4).diagnose().components) == {"interpret"}


def test_halves_of_mixtures_that_sum_to_one_begin_among_the_samples():
    """From random starts, some corners would be far from all samples."""
    rng = np.random.default_rng(0)
    truth = rng.random((4, 30))
    X = rng.dirichlet(np.full(4, 0.5), 300) @ truth + 0.01 * rng.random((300, 30))
    how = HalfFit(Problem(penalties=Penalties(sum_to_one=True)))
    for seed in range(3):
        W = how.of(from_rows(X), 4, np.random.default_rng(seed))
        assert match_spectra(truth, W.T).angles.max() < 2


def test_a_diagnosis_is_repeatable_saved_and_loaded(tmp_path, rng):
    X, _ = mixtures(rng)
    result = factorize(from_rows(X), 4)
    found = result.diagnose()
    again = factorize(from_rows(X), 4).diagnose()
    assert np.array_equal(found.cosines, again.cosines)
    assert found.structure == again.structure
    result.save(tmp_path / "result.npz")
    back = Factorization.load(tmp_path / "result.npz").diagnose()
    assert str(back) == str(found)
    assert back.components == found.components
    assert back.reasons == found.reasons
    assert np.array_equal(back.cosines, found.cosines)
    assert back.row("Data") == found.row("Data")

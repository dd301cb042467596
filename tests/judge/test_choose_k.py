"""The choice of K: its evidence, clear answers and guesses, masks, weights and counts."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV

from conenmf import (
    ConeNMF,
    Problem,
    components_for,
    factorize,
    from_columns,
    from_rows,
    make_cones,
    select_k,
)
from conenmf.cones.counting import estimate_rank
from conenmf.data.resample import draw_samples
from conenmf.data.views import unit_samples
from conenmf.errors import InputWarning
from conenmf.judge.choose_k import (
    SPECTRAL,
    Evidence,
    Question,
    _among,
    _decision,
    _ratio,
    choose_k,
)
from conenmf.linalg.svd import Spectrum
from conenmf.solve.losses import LOSSES


@pytest.fixture(scope="module")
def cones():
    return make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V


def mixtures(strengths, noise):
    """Mixtures of five parts, with noise."""
    rng = np.random.default_rng(1)
    W = np.repeat(np.eye(5), 8, axis=0) * rng.uniform(0.5, 1, (40, 1))
    H = strengths[:, None] * rng.gamma(1.0, 1.0, (5, 250))
    return np.maximum(W @ H + noise * rng.standard_normal((40, 250)), 0)


@pytest.fixture(scope="module")
def parts():
    return mixtures(np.ones(5), 0.05)


@pytest.fixture(scope="module")
def fading_parts():
    """Each fainter than the one before, so that no ratio of singular values stands out."""
    return mixtures(0.6 ** np.arange(5), 0.1)


def noisy_cones():
    """Samples in three cones, with noise that turns the short ones anywhere."""
    return make_cones(60, 3, 0.1, n_samples=200, noise=0.05, rng=np.random.default_rng(0)).V


def found(selection, name):
    return next(one for one in selection.evidence if one.name == name)


# --- grades -------------------------------------------------------------------------------------


def test_cones_that_are_apart_are_proved_as_cones_only(cones, main_backend, small_blocks):
    chosen = select_k(main_backend(cones))
    assert (chosen.K, chosen.interval, chosen.grade) == (4, (4, 6), "supported")
    assert chosen.decided_by == "cones"
    assert chosen.sentence == "4 to 6 components, supported: use 4; 4 cones, proved"
    piece = found(chosen, "cones")
    assert (piece.scores[1:8] > 0).tolist() == [k == 4 for k in range(2, 9)]


def test_several_numbers_of_clusters_that_are_apart_are_no_proof():
    turns = np.add.outer([0.1, 1.0, 1.3], 0.01 * np.arange(6)).ravel()
    V = from_columns(np.stack([np.cos(turns), np.sin(turns), turns**2]))
    chosen = select_k(V)
    assert found(chosen, "cones").K == 3
    assert chosen.grade != "proved"


@pytest.mark.parametrize("kind", ["parts", "fading_parts"])
def test_evidence_that_agrees_supports_a_number(kind, request):
    chosen = select_k(from_columns(request.getfixturevalue(kind)))
    assert (chosen.K, chosen.grade) == (5, "supported")
    assert chosen.decided_by == {"parts": "ratio", "fading_parts": "edge"}[kind]
    assert chosen.interval[0] <= 5 <= chosen.interval[1] <= 7
    low, high = chosen.interval
    assert chosen.sentence == f"{low} to {high} components, supported: use 5"
    assert {one.K for one in chosen.evidence} == {5}


def test_noise_does_not_force_a_guess():
    chosen = choose_k(from_columns(noisy_cones()))
    assert (chosen.K, chosen.grade, chosen.decided_by) == (3, "supported", "edge")
    assert "cones" not in [one.name for one in chosen.evidence]  # none are apart


def test_components_of_faint_samples_are_counted_where_noise_is_not_alike(rng):
    """Two more components are in faint samples only; features have noise of different sizes."""
    W = np.repeat(np.eye(4), 8, axis=0) * rng.uniform(0.5, 1, (32, 1))
    H = rng.gamma(1.0, 1.0, (4, 240))
    H[2:, :120] = 0
    H[:, 120:] *= 1e-3
    V = W @ H * (1 + 0.01 * rng.standard_normal((32, 240)))
    V += 0.002 * np.linalg.norm(V, axis=0) * rng.random(V.shape)
    chosen = choose_k(from_columns(V))
    assert (chosen.K, chosen.grade, chosen.decided_by) == (4, "supported", "edge")
    assert "samples and samples of unit norm disagree (2 and 4)" in str(chosen)


def test_a_guess_says_what_to_try(rng):
    noise = np.cumsum(rng.standard_normal((60, 250)), axis=0)
    chosen = select_k(from_columns(np.maximum(mixtures(np.ones(5), 0.05) + 0.02 * noise[:40], 0)))
    low, high = chosen.interval
    tried = f"begin with {chosen.K}, try {low} to {high} and look at stability"
    assert chosen.sentence == f"{low} to {high} components, a guess: {tried}"


def test_outlier_samples_are_named_and_not_counted(rng, main_backend, small_blocks):
    V = mixtures(np.ones(5), 0.05)
    V[:, [7, 100]] = 3 * rng.gamma(0.3, 1, (40, 2))
    chosen = select_k(main_backend(V))
    assert (chosen.K, chosen.grade) == (5, "supported")
    assert chosen.sentence.endswith("as no other sample is like them: sample 7, sample 100")


@pytest.mark.parametrize("kind", ["white", "heavy", "proportional"])
def test_one_component_and_noise_are_one(kind):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = np.outer(0.2 + rng.random(60), 1 + rng.random(200))
        noise = {
            "white": 0.1 * rng.standard_normal(X.shape),
            "heavy": 0.1 * rng.standard_t(2.5, X.shape),
            "proportional": 0.2 * X * rng.standard_normal(X.shape),
        }[kind]
        assert select_k(from_columns(np.maximum(X + noise, 0))).interval[0] == 1, seed


def test_features_in_other_units_are_scaled(rng):
    V = mixtures(np.ones(5), 0.05)
    V *= 10 ** rng.uniform(0, 9, (40, 1))
    chosen = select_k(from_columns(V))
    assert (chosen.K, chosen.grade) == (5, "supported")
    assert "features were scaled to equal norms" in chosen.sentence


def test_pure_noise_is_one_component():
    assert select_k(from_rows(np.random.default_rng(0).random((200, 30)))).K == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_interval_of_a_guess_is_at_most_as_wide_as_the_number(seed):
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.3, size=(120, 12)) @ rng.gamma(0.3, size=(12, 40))
    chosen = select_k(from_rows(X * rng.lognormal(0, 1.0, X.shape)))
    low, high = chosen.interval
    assert low <= chosen.K <= high <= 40
    assert chosen.grade != "guess" or high - low <= chosen.K


@pytest.mark.parametrize(
    "X",
    [
        np.ones((10, 10)),
        np.outer(np.arange(1.0, 27), np.arange(1.0, 42)),
        np.outer([0, 0, 3.0, 0], np.arange(5.0)),
    ],
    ids=["constant", "outer", "one sample"],
)
def test_auto_finds_one_component_in_rank_one_data(X):
    result = factorize(from_rows(X), max_iter=5)
    assert result.K == 1
    assert result.K_decided_by.startswith("1 component, proved: the rank of the data is 1")
    assert result.relative_error < 1e-6


def test_tight_groups_do_not_prove_a_number_of_components():
    """K components lie in K - 1 groups that are apart: K - 1 cones are proved, but not K - 1."""
    n_cones = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        W = rng.random((40, 5)) ** 3
        pure = np.vstack([np.eye(4) * 0.9 + 0.02, 0.3 * rng.random((1, 4))])
        H = np.repeat(pure, 20, 1) * (1 + 0.15 * rng.random((5, 80)))
        chosen = select_k(from_columns(W @ H))
        n_cones += "4 cones, proved" in chosen.sentence
        assert (chosen.K, chosen.decided_by) == (5, "rank")
        assert chosen.interval[0] == 5
    assert n_cones >= 1


@pytest.mark.parametrize("seed", range(5))
def test_a_time_stamp_beside_features_of_size_one_hides_no_components(seed):
    rng = np.random.default_rng(seed)
    V = rng.random((8, 3)) @ rng.random((3, 90))
    V[0] = 1.7e9 + 1e6 * rng.random(90)
    chosen = select_k(from_columns(V))
    assert chosen.interval[0] == 4 == np.linalg.matrix_rank(V / V.max(axis=1, keepdims=True))
    assert chosen.K >= 4


@pytest.mark.parametrize("more", [0, 2])
def test_a_rank_is_no_number_of_components(more, rng):
    """A cone over a square has rank 3 and needs four components."""
    W = np.zeros((24, 4 + more))
    W[:4, :4] = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    W[4:, :4] = rng.random((20, 4)) @ W[:4, :4]
    W[4:, 4:] = rng.random((20, more))
    V = W[:, np.resize(np.arange(4 + more), 80)] * rng.uniform(0.5, 2, 80)
    chosen = select_k(from_columns(V))
    assert (chosen.K, chosen.interval) == (4 + more, (3 + more, 4 + more))
    assert chosen.grade != "proved"


@pytest.mark.parametrize("axis", [0, 1])
def test_zeros_do_not_lower_a_full_rank(axis, rng):
    """Margins of images are zero in all samples; the rank of the others still says nothing."""
    X = rng.random((40, 9))
    X = np.concatenate([X, np.zeros_like(X)], axis)
    chosen = select_k(from_rows(X))
    assert "rank" not in [one.name for one in chosen.evidence]
    found = components_for(X, 0.0)
    assert (found.low, found.high) == (9, 9)


def test_pure_samples_prove_the_number_of_components(rng):
    """The rank is three above rounding, and three samples reproduce all others."""
    V = rng.random((20, 3)) @ np.hstack([np.eye(3), rng.dirichlet(np.ones(3), 50).T])
    for dtype in (float, np.float32):
        chosen = select_k(from_columns(V.astype(dtype)))
        assert (chosen.K, chosen.interval, chosen.grade) == (3, (3, 3), "proved")
        assert chosen.sentence.endswith("and 3 components reproduce them to rounding")


# --- doors --------------------------------------------------------------------------------------


def test_all_doors_lead_to_the_same_number(cones, fading_parts):
    for V in map(from_columns, (cones, fading_parts, noisy_cones())):
        chosen = choose_k(V)
        result = factorize(V, max_iter=1)
        assert (result.K, result.K_decided_by) == (chosen.K, select_k(V).sentence)
        assert result.K_decided_by in result.summary()


def test_all_evidence_is_shown(parts):
    chosen = select_k(from_columns(parts))
    lines = str(chosen).splitlines()
    assert lines[0] == chosen.sentence
    assert [line.split()[0] for line in lines[1:]] == [one.name for one in chosen.evidence]
    assert repr(chosen) == str(chosen)
    axes = chosen.plot()
    assert [ax.get_title() for ax in axes] == [f"{one.name}: 5" for one in chosen.evidence]
    np.testing.assert_array_equal(axes[0].lines[0].get_ydata(), chosen.evidence[0].scores)


def test_what_regression_on_other_features_leaves_is_an_upper_end_only(rng):
    """It has a say where noise is not alike in all features, and supports no number."""
    X = rng.gamma(1.0, size=(400, 4)) @ rng.gamma(1.0, size=(4, 60))
    X = np.maximum(X + 0.3 * rng.standard_normal(X.shape) * rng.lognormal(0, 1, 60), 0)
    chosen = select_k(from_rows(X))
    piece = found(chosen, "hysime")
    assert (piece.K, piece.trust, chosen.grade) == (4, -1, "guess")
    assert piece.scores[3] > 1 > piece.scores[4]


def variable_spectra(K, noise, rng):
    """Each sample of K materials has a smooth factor of its own, which adds weak components."""
    band = np.linspace(0, 1, 80)[:, None]
    W = 0.3 + np.exp(-(((band - np.linspace(0.1, 0.9, K)) / 0.12) ** 2) / 2)
    factors = np.exp(0.05 * np.cos(np.pi * band * np.arange(6)) @ rng.standard_normal((6, 600)))
    return factors * (W @ rng.dirichlet(np.full(K, 0.5), 600).T) + noise((80, 600))


def test_variable_spectra_do_not_add_materials():
    rng = np.random.default_rng(0)
    chosen = select_k(from_columns(variable_spectra(4, lambda size: 0.005 * rng.random(size), rng)))
    assert found(chosen, "edge").K > 8
    assert chosen.grade == "guess"
    assert chosen.interval[0] <= 4 <= chosen.interval[1] <= 12


@pytest.mark.parametrize("seed", range(3))
def test_two_kinds_of_evidence_win_over_an_edge_without_a_step(seed):
    rng = np.random.default_rng(seed)
    V = variable_spectra(6, lambda size: 0.012 * rng.standard_normal(size), rng)
    chosen = select_k(from_columns(np.maximum(V, 0)))
    assert [found(chosen, name).K for name in ("ratio", "shuffled")] == [6, 6]
    edge = found(chosen, "edge")
    assert edge.trust == 2
    assert not edge.is_sure
    assert 9 < edge.K <= 12
    assert (chosen.K, chosen.interval, chosen.grade) == (6, (4, 7), "guess")


def test_full_rank_but_for_features_that_are_zero_says_nothing():
    chosen = select_k(load_digits().data[:300])
    assert chosen.decided_by != "rank"
    assert chosen.interval[0] <= 10 <= chosen.interval[1]


def test_two_clusters_of_flowers_prove_nothing():
    chosen = select_k(load_iris().data)
    assert chosen.grade != "proved"
    assert chosen.sentence.count("proved") == chosen.sentence.count("2 cones, proved")


def test_candidates_limit_the_choice(parts):
    chosen = select_k(from_columns(parts), [2, 3])
    assert (chosen.K, chosen.grade) == (3, "guess")
    assert "5 is no candidate, 3 is the nearest" in chosen.sentence


def test_progress_is_reported(parts):
    seen = []
    names = list(enumerate(SPECTRAL))
    select_k(from_columns(parts), callback=lambda name, place: seen.append((place, name)))
    assert seen == names[:-2]  # the last two are for guesses
    X = np.abs(np.cumsum(np.random.default_rng(0).standard_normal((60, 40)), axis=1))
    select_k(from_rows(X), callback=lambda name, place: seen.append((place, name)))
    assert seen[len(names) - 2 :] == names


def test_the_budget_may_run_out(parts):
    chosen = select_k(from_columns(parts), budget=0.0)
    assert (chosen.K, chosen.grade, len(chosen.evidence)) == (5, "guess", 1)
    assert chosen.sentence.endswith("; the time ran out")


def test_a_number_is_not_supported_before_all_was_asked(parts, monkeypatch):
    seen = []
    monkeypatch.setattr(Question, "is_late", property(lambda self: len(seen) == 3))
    chosen = select_k(from_columns(parts), callback=lambda name, place: seen.append(name))
    assert [one.K for one in chosen.evidence] == [5, 5]
    assert chosen.grade == "guess"


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_an_answer(loss, parts):
    assert select_k(from_columns(parts + 0.01), loss=loss).K == 5


def test_the_edge_is_not_asked_where_most_entries_are_zero(parts, rng):
    X = np.where(rng.random(parts.shape) < 0.2, parts, 0)
    choices = [select_k(from_columns(data)) for data in (X, sp.csc_array(X))]
    names, of_sparse = ([one.name for one in chosen.evidence] for chosen in choices)
    assert names == of_sparse
    assert (choices[0].K, choices[0].interval) == (choices[1].K, choices[1].interval)
    assert all(np.isfinite(piece.scores).any() for piece in choices[1].evidence)
    assert "edge" not in names
    assert "ratio" in names


def test_the_rank_of_all_samples_counts_where_some_are_compared(rng):
    """The samples that are compared have rank 2, one of the others adds a dimension."""
    X = np.zeros((3, 5000))
    X[:2] = rng.random((2, 5000))
    V = from_columns(X)
    assert select_k(V).grade == "proved"
    left_out = np.setdiff1d(np.arange(5000), draw_samples(V, 2000, np.random.default_rng(0)))
    X[2, left_out[:2]] = 1.0
    assert select_k(from_columns(X)).grade != "proved"


def test_the_search_is_widened(rng):
    """More parts, and more cones, than are searched at first."""
    X = rng.gamma(0.3, size=(600, 60)) @ np.kron(np.eye(60), np.ones((1, 3)))
    X = np.maximum(X + 0.5 * rng.standard_normal(X.shape), 0)
    chosen = choose_k(from_rows(X))
    assert (chosen.K, chosen.decided_by) == (60, "edge")
    assert found(chosen, "shuffled").K == 57  # 50 is the first limit
    V = from_columns(make_cones(130, 60, 0.05, n_samples=700, rng=rng).V)
    assert choose_k(V).K == 60


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
@pytest.mark.parametrize(
    "X", [np.eye(4), np.eye(8), [[1.0, 2.0], [3.0, 4.0]], [[2.0]], np.ones((5, 3))], ids=str
)
def test_tiny_tables_have_an_answer(X, loss):
    sigma = 1 + np.arange(np.size(X)).reshape(np.shape(X))
    for V in (from_rows(X), from_rows(X, sigma=sigma)):
        chosen = select_k(V, loss=loss)
        assert 1 <= chosen.K <= min(np.shape(X))
        assert str(chosen)


# --- holes --------------------------------------------------------------------------------------


ANY_END = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def ratings(share=0.3, K=3):
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, size=(150, K)) @ rng.gamma(1.0, size=(K, 60)) + 0.1 * rng.random((150, 60))
    return np.where(rng.random(X.shape) < share, X, np.nan)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_hidden_entries_choose_where_entries_are_missing(loss):
    X = ratings()
    X = X if loss == "frobenius" else np.round(20 * X)
    chosen = select_k(from_rows(X, missing="nan"), loss=loss)
    assert (chosen.K, chosen.decided_by, chosen.grade) == (3, "hidden", "guess")
    assert found(chosen, "hidden").scores.argmin() == 2
    assert select_k(from_rows(np.nan_to_num(X), missing="zeros"), loss=loss).K == 3


@pytest.mark.parametrize("seed", range(3))
def test_uncertainties_decide_how_much_an_entry_says(seed):
    """Sources that only small, precise entries tell apart are counted."""
    rng = np.random.default_rng(seed)
    profiles = rng.gamma(0.5, size=(5, 25)) * rng.lognormal(0, 1.5, 25)
    X = rng.lognormal(size=(300, 5)) @ profiles
    sigma = 0.05 * X + np.quantile(X, 0.05, axis=0)
    X = np.maximum(X + sigma * rng.standard_normal(X.shape), 0)
    for known in ({"sigma": sigma}, {"weights": 1 / sigma**2}):
        chosen = select_k(from_rows(X, **known))
        assert (chosen.K, chosen.decided_by, chosen.grade) == (5, "hidden", "guess")


def test_an_arbitrary_coefficient_does_not_hide_the_number():
    """A component of nearly one feature has any coefficient where that feature is hidden."""
    rng = np.random.default_rng(0)
    profiles = np.eye(4, 30) + 1e-4 * rng.random((4, 30))
    profiles[:3] += rng.gamma(0.5, size=(3, 30))
    X = rng.lognormal(size=(300, 4)) @ profiles
    sigma = 0.02 * X + 1e-3
    chosen = select_k(from_rows(np.abs(X + sigma * rng.standard_normal(X.shape)), sigma=sigma))
    assert np.max(found(chosen, "hidden").scores) <= 1
    assert chosen.K in (3, 4)


@ANY_END
def test_a_score_hides_known_entries():
    """The best K has the best score of new samples, and holes may be anything."""
    X = ratings(0.5)
    models = {K: ConeNMF(K, missing="nan", alpha_W=1e-6).fit(X[:100]) for K in (1, 3, 9)}
    scores = {K: model.score(X[100:]) for K, model in models.items()}
    assert max(scores, key=scores.get) == 3
    assert 0.95 < scores[3] <= 1
    model = models[9]
    direct = 1 - np.nansum((X - model.fit_transform(X) @ model.components_) ** 2) / np.nansum(X**2)
    assert model.score(X) < direct  # entries that were seen


@ANY_END
def test_a_grid_search_chooses_where_entries_are_missing():
    grid = {"n_components": [1, 3, 8], "alpha_W": [1e-6, 1e-3]}
    search = GridSearchCV(ConeNMF(missing="nan"), grid, cv=3).fit(ratings(0.5))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["n_components"] == 3


def test_a_fit_of_few_entries_without_a_penalty_warns():
    V = from_rows(ratings(0.3), missing="nan")
    with pytest.warns(InputWarning, match=r"7\d% of the entries are missing.*GridSearchCV"):
        factorize(V, 3, max_iter=2)


# --- counts -------------------------------------------------------------------------------------


def topics(rng, K, n_samples=150, n_features=100, length=120):
    patterns = rng.dirichlet(np.full(n_features, 0.1), K)
    shares = rng.dirichlet(np.full(K, 0.3), n_samples) * rng.gamma(4, length / 4, (n_samples, 1))
    return rng.poisson(shares @ patterns)


def signatures(rng, K, n_samples=120, n_features=60):
    return rng.poisson(rng.gamma(0.7, 300, (n_samples, K)) @ rng.dirichlet([0.1] * n_features, K))


@pytest.mark.parametrize("make", [topics, signatures])
@pytest.mark.parametrize("K", [1, 3, pytest.param(6, marks=pytest.mark.nightly)])
def test_drawn_counts_have_the_number_that_they_were_drawn_from(make, K):
    X = make(np.random.default_rng(K), K)
    chosen = select_k(from_rows(sp.csr_array(X)), range(1, 9), loss="poisson")
    assert (chosen.K, chosen.decided_by) == (K, "counting noise")
    costs = found(chosen, "counting noise")
    assert costs.scores[costs.ks == K] == 0


@pytest.mark.seed(2)
def test_counts_that_vary_more_than_poisson_have_no_more_components(rng):
    rates = rng.gamma(0.7, 300, (120, 4)) @ rng.dirichlet([0.1] * 60, 4)
    X = rng.poisson(rates * rng.gamma(20, 1 / 20, rates.shape))
    chosen = select_k(from_rows(X), loss="poisson")
    assert (chosen.K, chosen.grade) == (4, "supported")
    assert "variance x + 0.0" in chosen.reason
    residuals = found(chosen, "residuals")
    assert (residuals.scores <= 1).tolist() == (residuals.ks >= 4).tolist()


def test_data_that_are_not_counts_are_judged_by_singular_values(parts):
    chosen = select_k(from_columns(parts), loss="poisson")
    assert [one.name for one in chosen.evidence] == ["edge", "ratio"]


def test_few_counts_do_not_fail():
    X = np.zeros((5, 4))
    X[2, 1] = 1
    assert select_k(from_rows(X), loss="poisson").K == 1


# --- the decision -------------------------------------------------------------------------------


def piece(name, K, trust, **more):
    scores = np.ones(1)
    given = {"interval": (K - 1, K + 2), "text": f"{name} text", "meaning": ""} | more
    return Evidence(name=name, K=K, trust=trust, ks=np.array([K]), scores=scores, **given)


@pytest.mark.parametrize(
    ("K", "below", "interval"),
    [
        (9, None, (6, 15)),
        (9, 2, (7, 16)),
        (1, None, (1, 2)),
        (15, 1, (14, 20)),
        (19, None, (13, 20)),
    ],
)
def test_a_guess_is_as_far_below_as_it_says_and_the_rest_of_its_number_above(K, below, interval):
    one = piece("one", K, 3, below=below, is_sure=True)
    chosen = _decision([one, piece("other", K + 1, 1)], 20, is_complete=True)
    assert (chosen.K, chosen.interval, chosen.grade) == (K, interval, "guess")
    assert chosen.reason == "one text"


def test_a_sure_number_needs_another_that_agrees_and_all_evidence():
    sure, other = piece("sure", 5, 2, is_sure=True), piece("other", 5, 0)

    def grade(*pieces, is_complete=True):
        chosen = _decision([*pieces], 20, is_complete=is_complete)
        return chosen.grade, chosen.decided_by, chosen.interval

    assert grade(sure, other) == ("supported", "sure", (4, 7))
    assert grade(sure, other, is_complete=False) == ("guess", "sure", (4, 9))
    assert grade(sure, replace(other, K=6))[0] == "guess"
    assert grade(sure, replace(other, trust=-1))[0] == "guess"  # it supports no number
    assert grade(replace(sure, is_sure=False), other)[0] == "guess"
    assert grade(replace(sure, trust=1), other)[0] == "guess"
    assert grade(sure)[0] == "guess"
    proof = piece("proof", 3, -1, theorem="a theorem")
    assert grade(sure, other, proof) == ("proved", "proof", (3, 3))
    assert grade(sure, piece("most", 8, 3))[1] == "most"
    assert _decision([piece("none", 0, 1)], 20, is_complete=True).K == 1


def test_the_nearest_candidate_is_taken():
    chosen = _decision([piece("one", 6, 2)], 20, is_complete=True)
    assert _among(chosen, np.array([2, 6, 9])) is chosen
    assert [_among(chosen, np.array(ks)).K for ks in ([2, 5, 9], [7, 12], [1, 3])] == [5, 7, 3]


def test_the_papers_estimate_is_as_clear_as_with_and_without_unit_norms(rng):
    """The smaller of the two margins counts."""
    smaller = []
    for spread in (0.5, 2.5):
        V = from_columns(mixtures(np.ones(5), 0.02) * rng.lognormal(0, spread, 250))
        (found,) = _ratio(Question(V, Problem(), None, Spectrum(V), np.inf))
        ratios = [estimate_rank(one) for one in (V, unit_samples(V))]
        margins = [one.margin for one in ratios]
        assert [one.K for one in ratios] == [5, 5]
        assert f"stands out by a factor of {min(margins):.3g}" in found.text
        smaller.append(int(np.argmin(margins)))
    assert smaller == [1, 0]


def test_the_smallest_number_that_is_as_good_as_the_best_is_taken(monkeypatch):
    """As good: within the standard error of the best mean, which follows from two splits."""
    errors = {1: (0.3, 0.3), 2: (0.12, 0.12), 3: (0.10, 0.12), 4: (0.098, 0.118), 5: (0.2, 0.2)}
    seen = []

    def prediction(V, data, K, loss, rng):
        seen.append(K)
        return errors.get(K, (0.4, 0.4))[seen.count(K) - 1], 0.0

    monkeypatch.setattr("conenmf.judge.choose_k._prediction", prediction)
    holes = np.add.outer(np.arange(12), np.arange(12)) % 4 == 0
    chosen = select_k(from_rows(np.where(holes, np.nan, 1.0), missing="nan"))
    hidden = found(chosen, "hidden")
    assert (hidden.K, hidden.interval) == (3, (3, 4))


def test_a_candidate_outside_the_interval_is_marked():
    q = np.random.default_rng(0)
    X = q.random((40, 3)) @ q.random((3, 200)) + 0.05 * q.random((40, 200))
    chosen = select_k(X, [5, 6])
    low, high = chosen.interval
    assert not low <= chosen.K <= high
    assert "5 is the nearest, outside of what the data support" in chosen.sentence
    assert "outside" not in select_k(X, [2, 4]).sentence


def test_a_number_that_q_contradicts_is_not_given_without_saying_so():
    """Few sources predict hidden entries best, but sigma says that more are needed."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(150, 6)) @ rng.gamma(0.5, size=(6, 14))
    X *= rng.lognormal(0, 0.5, X.shape)
    chosen = select_k(from_rows(X, sigma=0.1 * X + 0.01))
    hidden = found(chosen, "hidden")
    ratios = dict(zip(hidden.ks.tolist(), hidden.Q_ratios, strict=True))
    assert ratios[chosen.K] > 3
    assert f"Q is {ratios[chosen.K]:.3g} times the expected Q" in chosen.sentence
    lines = str(chosen).splitlines()
    heading = lines.index("    K  hidden error  Q/Qexp    fall")
    assert len(lines) - heading - 1 == hidden.ks.size
    enough = [k for k, ratio in ratios.items() if ratio <= 3]
    assert chosen.interval[1] >= min(enough, default=max(ratios))


def test_overdispersion_of_features_is_no_component():
    rng = np.random.default_rng(1)
    rates = rng.dirichlet(np.full(60, 0.3), 4).T @ rng.gamma(0.8, 1500, (4, 120))
    size = np.exp(rng.uniform(np.log(2), np.log(100), (60, 1)))
    V = rng.poisson(rates * rng.gamma(size, 1 / size, rates.shape)).astype(float)
    chosen = select_k(from_columns(V), loss="poisson")
    assert (chosen.K, chosen.grade, chosen.decided_by) == (4, "guess", "edge")
    assert "differs between features" in found(chosen, "counting noise").text


def test_the_noise_row_allows_for_the_overdispersion_that_was_found():
    """Neither the number that was chosen nor one more is called too small."""
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(60, 0.3), 3).T @ rng.gamma(0.8, 1500, (3, 100))
    V = from_columns(rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float))
    result = factorize(V, "auto", loss="poisson")
    assert result.K == 3
    assert result.selection.inflation > 2
    more = factorize(V, 4, loss="poisson")
    for one in (result, replace(more, selection=result.selection)):
        (row,) = [row for row in one.diagnose().rows if row.name == "Noise"]
        assert (row.grade, row.advice) == ("good", "")
        assert "K is too small" not in str(one.diagnose())
    (row,) = [row for row in more.diagnose().rows if row.name == "Noise"]
    assert row.grade == "poor"  # nothing is known of the overdispersion


def test_samples_with_very_many_counts_are_left_out():
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(96, 0.3), 4).T @ rng.gamma(0.8, 1500, (4, 80))
    rates[:, :2] = 1e5 * rng.dirichlet(np.full(96, 0.3), 2).T
    chosen = select_k(from_columns(rng.poisson(rates).astype(float)), loss="poisson")
    assert chosen.K == 4
    assert chosen.sentence.endswith("sample 0, sample 1")


def test_the_library_speaks_of_data_in_its_first_sentence(cones, fading_parts):
    """No names of methods, which only the evidence below uses."""
    noisy = from_columns(np.abs(np.cumsum(np.random.default_rng(0).random((40, 90)) - 0.5, axis=1)))
    for V in (from_columns(cones), from_columns(fading_parts), noisy):
        sentence = select_k(V).sentence
        assert not re.search("ratio|edge|shuffled|hysime", sentence)
        assert re.search("use \\d+|begin with \\d+", sentence)

"""The race of inits: the same in every storage, and held only where it may pay."""

import numpy as np
import pytest

from conenmf import factorize, from_columns, from_rows, make_cones
from conenmf.errors import CheckpointError, InputWarning, OptionError
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.race import PATIENCE, Race, hold_race


@pytest.fixture
def hard():
    """A small matrix on which a random init ends lower than NNDSVD."""
    return np.random.default_rng(8).random((10, 30)) ** 3


def errors(race):
    return np.array([one.relative_error for one in race.entrants])


def test_every_storage_holds_the_same_race(main_backend, hard):
    here, there = (factorize(V, 5) for V in (from_columns(hard), main_backend(hard)))
    assert here.init_used == there.init_used
    np.testing.assert_allclose(errors(there.race), errors(here.race), rtol=1e-8)
    assert there.relative_error == pytest.approx(here.relative_error, rel=1e-8)


def test_where_the_bound_is_reached_no_other_init_competes():
    V = from_columns(make_cones(60, 3, 0.1, n_samples=200, rng=np.random.default_rng(0)).V)
    result = factorize(V, 3)
    assert (result.init_used, result.race) == ("nndsvd", None)
    certificate = result.certify()
    assert certificate.gap <= 1e-3 * certificate.relative_error


@pytest.fixture
def large(rng):
    """A large matrix on which a run still falls after 100 iterations, but slowly."""
    return from_columns(rng.random((150, 600)) ** 3)


def test_large_data_are_raced_only_if_the_error_still_falls_far_above_the_bound(large, monkeypatch):
    V = large
    assert V.shape[0] * V.shape[1] > 1 << 16
    assert factorize(V, 40, tol=1e-3).race is None
    slow = factorize(V, 40, tol=0, max_iter=PATIENCE + 20)
    assert [one.init for one in slow.race.entrants] == ["nndsvd", "cr1-robust", "random"]
    assert slow.race.entrants[0].iterations == PATIENCE
    monkeypatch.setattr("conenmf.solve.race._SLOW_FALL", 0.0)
    fast = factorize(V, 40, tol=0, max_iter=PATIENCE + 20)
    assert [one.init for one in fast.race.entrants] == ["nndsvd", "cr1-robust", "random", "random"]
    iterations = sorted(one.iterations for one in fast.race.entrants)
    assert 20 < iterations[0] <= iterations[1] <= 30 < iterations[2]
    assert factorize(V, 40, tol=0, max_iter=PATIENCE).race is None
    assert factorize(V, 40, tol=0, max_iter=PATIENCE + 20, init="nndsvd").race is None


@pytest.mark.parametrize("lags", [(0.01, 0.0), (-1.0, 0.0), (1.0, 1.0)])
def test_others_end_when_they_lag_behind_a_slow_run(large, lags, monkeypatch):
    monkeypatch.setattr("conenmf.solve.race._SLOW_ROUNDS", dict(zip((20, 30), lags, strict=True)))
    first = factorize(large, 40, tol=0, max_iter=PATIENCE, init="nndsvd").history.relative_error
    race = factorize(large, 40, tol=0, max_iter=PATIENCE + 1).race
    begun = {}
    for one, rng in zip(race.entrants[1:], (None, np.random.default_rng(1)), strict=True):
        run = factorize(large, 40, tol=0, max_iter=30, init=one.init, rng=rng)
        begun[one] = run.history.relative_error
    allowed = [one for one in begun if begun[one][19] < (1 + lags[0]) * first[19]]
    for one in begun:
        if one not in allowed:
            assert one.iterations == 20
    ahead = [one for one in allowed if begun[one][29] < (1 + lags[1]) * first[29]]
    leader = min(ahead, key=lambda one: begun[one][29], default=None)
    assert all(20 < one.iterations <= 30 for one in allowed if one is not leader)
    assert leader is None or leader.iterations > 30


def test_others_minimise_what_the_first_run_minimises(large, monkeypatch):
    kinds = []

    def spy(first, rivals, begin, *others):
        run = begin("random", np.random.default_rng(0))
        kinds.extend([first.V.dtype, run.V.dtype])
        assert run.V is first.V
        return hold_race(first, rivals, begin, *others)

    monkeypatch.setattr("conenmf.pipeline.hold_race", spy)
    result = factorize(large, 40, tol=0, max_iter=PATIENCE + 1)
    assert kinds == [np.float32, np.float32]
    assert result.race is not None


@pytest.mark.parametrize("solver", ["hals", "nnlsb"])
@pytest.mark.parametrize("shape", [(12, 40), (300, 5000)])
def test_two_components_are_optimal_where_the_rank_two_part_is_nonnegative(shape, solver):
    (F, N), rng = shape, np.random.default_rng(0)
    V = rng.random((F, 2)) @ rng.random((2, N)) + 0.2 * rng.random((F, N))
    result = factorize(from_columns(V), 2, solver=solver)
    assert (result.init_used, result.race) == ("rank-two", None)
    certificate = result.certify()
    assert certificate.is_attained
    assert abs(certificate.gap) < 1e-8


def test_the_winner_has_the_lowest_error_and_the_solver_continues_there(hard):
    result = factorize(from_columns(hard), 5)
    race = result.race
    assert race.winner.relative_error <= errors(race).min() * 1.00002
    assert result.init_used == race.winner.init
    assert result.history.relative_error[race.winner.iterations - 1] == race.winner.relative_error
    assert result.relative_error <= race.winner.relative_error * (1 + 1e-9)
    first = factorize(from_columns(hard), 5, init="nndsvd")
    assert race.entrants[0].relative_error == first.history.relative_error[-1]


@pytest.mark.parametrize("solver", ["mult", "nnlsb", "plain-hals"])
def test_other_solvers_race_with_their_own_errors(hard, solver):
    V = from_columns(hard)
    result = factorize(V, 5, solver=solver)
    first = "nndsvd" if solver == "nnlsb" else "cr1-robust"
    assert result.race.entrants[0].init == first
    alone = factorize(V, 5, solver=solver, init=first)
    assert result.relative_error <= alone.relative_error * (1 + 1e-9)


def test_it_is_always_the_same_and_a_generator_changes_it(hard):
    V = from_columns(hard)
    first, second = (errors(factorize(V, 5).race) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    draws = [errors(factorize(V, 5, rng=np.random.default_rng(seed)).race) for seed in (5, 5, 6)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", [(4, 30), (30, 4), (5, 5)])
def test_as_many_components_as_features_or_samples_are_exact(main_backend, shape):
    V, K = np.random.default_rng(2).random(shape), min(shape)
    result = factorize(main_backend(V), K)
    assert result.relative_error < 1e-12
    assert (result.init_used, result.race) == ("identity", None)


def test_more_components_than_features_are_cones():
    V = from_columns(np.random.default_rng(2).random((4, 30)))
    with pytest.warns(InputWarning, match="more than the 4 features"):
        assert factorize(V, 6).init_used == "cr1"


def test_the_callback_sees_a_race_as_iteration_zero(main_backend, hard):
    seen, V = [], main_backend(hard)
    plain = factorize(V, 5)
    result = factorize(V, 5, callback=seen.append)
    numbers = [now.iteration for now in seen]
    n_first = result.race.entrants[0].iterations
    assert numbers[:n_first] == list(range(1, n_first + 1))
    raced = sum(one.iterations for one in result.race.entrants[1:])
    assert numbers[n_first : n_first + raced] == [0] * raced
    for now in seen:
        assert now.objective == pytest.approx(now.relative_error**2 * V.total, rel=1e-6)
    assert (np.diff([now.elapsed for now in seen]) > 0).all()
    assert (np.diff([now.passes for now in seen]) >= 0).all()
    assert seen[-1].passes <= result.passes  # those of the fit before do not count
    np.testing.assert_array_equal(plain.W, result.W)


def test_a_race_can_be_saved(hard):
    race = factorize(from_columns(hard), 5).race
    assert Race.of_plain(race.plain()) == race
    assert Race.of_plain(None) is None


def test_the_best_of_the_others_goes_on_as_far_as_the_first_and_none_beyond_the_limit():
    V = from_columns(np.random.default_rng(0).random((20, 60)) ** 3)
    first, *others = (one.iterations for one in factorize(V, 8, tol=1e-6).race.entrants)
    assert 30 < max(others) <= first
    assert sorted(others)[1] <= 30
    short = factorize(V, 8, tol=0, max_iter=8).race
    assert {one.iterations for one in short.entrants} == {8}


def test_a_resumed_run_keeps_its_race(tmp_path, hard):
    V = from_columns(hard)
    whole = factorize(V, 5)
    after = whole.race.winner.iterations + 2
    assert whole.n_iter > after
    seen = []

    def fit(**more):
        saved = Checkpoint(tmp_path / "run", every=0)
        return factorize(V, 5, checkpoint=saved, **more)

    def stop(now):
        seen.append(now.iteration)
        return 0 in seen and now.iteration >= after

    stopped = fit(callback=stop)
    again = fit()
    assert stopped.race == again.race == whole.race
    assert again.init_used == whole.init_used == whole.race.winner.init
    np.testing.assert_array_equal(again.W, whole.W)


# --- random starts ----------------------------------------------------------------------------


def with_sigma(seed, shape=(60, 20), K=5):
    """Data in which random starts end in several minima, with uncertainties."""
    rng = np.random.default_rng(seed)
    truth = rng.gamma(0.3, size=(shape[0], K)) @ rng.gamma(0.3, size=(K, shape[1]))
    sigma = 0.3 * truth + 0.02 * truth.mean(axis=0)
    return np.maximum(truth + sigma * rng.standard_normal(shape), 0), sigma


def test_as_many_starts_as_are_asked_for_run_to_their_end():
    X, sigma = with_sigma(0)
    V = from_rows(X, sigma=sigma)
    result = factorize(V, 5, n_init=12)
    first, *others = result.race.entrants
    assert (first.init, first.seed) == ("nndsvd", None)
    assert [one.seed for one in others] == [*range(12)]
    alone = [factorize(V, 5, init="random", rng=np.random.default_rng(seed)) for seed in range(12)]
    for one, fit in zip(others, alone, strict=True):
        assert one.relative_error == fit.history.relative_error[-1]
        assert one.iterations == fit.n_iter
    assert result.objective <= min(fit.objective for fit in alone) * (1 + 1e-6)
    assert result.settings["n_init"] == 12
    winner = result.race.winner.seed
    if winner is not None:
        np.testing.assert_array_equal(result.W, alone[winner].W)


def test_starts_of_a_named_init_are_those_of_their_seeds():
    X, sigma = with_sigma(1)
    V = from_rows(X, sigma=sigma)
    for rng in (None, np.random.default_rng(3)):
        race = factorize(V, 4, init="random-c", n_init=3, rng=rng).race
        assert len({one.seed for one in race.entrants}) == 3
        for one in race.entrants:
            own = np.random.default_rng(one.seed)
            alone = factorize(V, 4, init="random-c", rng=own)
            assert alone.history.relative_error[-1] == one.relative_error
    assert factorize(V, 4, init="random", n_init=1).race.winner.seed == 0


@pytest.mark.parametrize("options", [{"init": np.ones((20, 3))}, {"solver": None}])
def test_an_own_start_or_no_solver_is_not_one_of_several(options):
    X, sigma = with_sigma(2)
    with pytest.raises(OptionError, match=r"n_init=4 .*leave one of the two out"):
        factorize(from_rows(X, sigma=sigma), 3, n_init=4, **options)


def test_weights_alone_let_random_starts_compete_until_five_runs_agree():
    X, sigma = with_sigma(4)
    race = factorize(from_rows(X, sigma=sigma), 3).race
    assert {one.init for one in race.entrants[1:]} == {"random"}
    assert len(race.entrants) == 41 or race.n_agreeing >= 5
    plain = factorize(from_rows(X), 3).race
    masked = factorize(from_rows(X, mask=np.arange(X.size).reshape(X.shape) % 9 > 0), 3).race
    for other in (plain, masked):
        assert other is None or len(other.entrants) == 4


def test_starts_end_with_the_callback_and_resume_from_a_checkpoint(tmp_path):
    X, sigma = with_sigma(5)
    V = from_rows(X, sigma=sigma)
    asked = []
    stopped = factorize(V, 5, n_init=9, callback=lambda now: asked.append(now) or len(asked) > 60)
    assert stopped.stop_reason == "callback"
    assert len(asked) < 75
    whole = factorize(V, 5, n_init=5)
    place = Checkpoint(tmp_path / "run", every=0)
    for limit in (12, 200):  # the first call leaves a checkpoint of its first run
        again = factorize(V, 5, n_init=5, max_iter=limit, checkpoint=place)
    np.testing.assert_array_equal(again.W, whole.W)
    assert again.race == whole.race
    with pytest.raises(CheckpointError):
        factorize(V, 5, n_init=6, checkpoint=place)


def test_starts_work_in_every_storage_without_weights(main_backend, hard):
    here, there = (factorize(V, 5, n_init=3) for V in (from_columns(hard), main_backend(hard)))
    np.testing.assert_allclose(errors(there.race), errors(here.race), rtol=1e-8)
    assert here.race.winner.relative_error == errors(here.race).min()

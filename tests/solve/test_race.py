import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import factorize, from_columns, from_rows, make_cones
from conenmf.data.sketch import sketch_rank
from conenmf.errors import OptionError
from conenmf.solve.inits import initialize
from conenmf.solve.losses import FROBENIUS
from conenmf.solve.race import Race, Track
from conenmf.solve.solvers import SOLVERS

HALS = SOLVERS["hals"]


def scene(seed, n_samples=300, n_bands=30, K=5):
    """Nearly exact mixtures of smooth spectra, by samples of very different norms."""
    rng = np.random.default_rng(seed)
    band = np.linspace(0.0, 1.0, n_bands)
    centre, width = rng.uniform(0, 1, (3, K, 1)), rng.uniform(0.05, 0.3, (3, K, 1))
    peaks = rng.uniform(0.1, 1, (3, K, 1)) * np.exp(-(((band - centre) / width) ** 2) / 2)
    spectra = rng.uniform(0.05, 0.5, (K, 1)) + peaks.sum(axis=0)
    X = rng.lognormal(0, 1.5, (n_samples, 1)) * (
        rng.dirichlet(np.full(K, 0.2), n_samples) @ spectra
    )
    return X * (1 + 1e-3 * rng.standard_normal(X.shape))


def run_race(V, K, solver, rng=None, **how):
    return FROBENIUS.race(V, K, solver, rng, **how)


def errors(race):
    return np.array([one.relative_error for one in race.entrants])


def test_every_storage_holds_the_same_race(main_backend, sample_matrix):
    here, there = (
        run_race(V, 4, HALS) for V in (from_columns(sample_matrix), main_backend(sample_matrix))
    )
    assert here.name == there.name
    np.testing.assert_allclose(errors(there.race), errors(here.race), rtol=1e-8)
    np.testing.assert_allclose(there.W, here.W, rtol=1e-6, atol=1e-9)


def test_where_cr1_reaches_the_bound_no_other_init_competes():
    V = from_columns(make_cones(60, 3, 0.1, n_samples=200, rng=np.random.default_rng(0)).V)
    outcome = run_race(V, 3, HALS)
    (only,) = outcome.race.entrants
    assert only.init == outcome.name == "cr1"
    assert only.relative_error <= 1.0006 * outcome.race.lower_bound


@pytest.mark.parametrize("solver", ["hals", "mult", "nnlsb"])
@pytest.mark.parametrize("shape", [(12, 40), (300, 5000)])
def test_two_components_are_optimal_where_the_rank_two_part_is_nonnegative(shape, solver):
    """Also where the race would be run on a sketch."""
    (F, N), rng = shape, np.random.default_rng(0)
    V = rng.random((F, 2)) @ rng.random((2, N)) + 0.2 * rng.random((F, N))
    result = factorize(from_columns(V), 2, solver=solver)
    assert (result.init_used, result.race) == ("rank-two", None)
    certificate = result.certify()
    assert certificate.is_attained
    assert abs(certificate.gap) < 1e-10


def test_two_components_are_raced_where_it_is_not():
    V = np.kron([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]], np.ones((4, 9)))
    outcome = run_race(from_columns(V), 2, HALS)
    assert [one.init for one in outcome.race.entrants][:3] == ["cr1-robust", "rank-two", "spa"]
    assert outcome.race.winner.relative_error <= errors(outcome.race).min() * 1.00002


@pytest.mark.parametrize("rank", [None, 12])
def test_the_winner_has_the_lowest_error_reached(sample_matrix, rank):
    V = from_columns(sample_matrix)
    outcome = run_race(V, 4, HALS, rank=rank)
    race = outcome.race
    assert race.data == ("all" if rank is None else "sketch")
    assert [one.init for one in race.entrants][:4] == ["cr1-robust", "nndsvd", "spa", "random"]
    assert race.winner.relative_error <= errors(race).min() * 1.00002
    assert outcome.name == race.winner.init
    assert all(one.iterations >= 1 and one.seconds > 0 for one in race.entrants)


def test_the_solver_goes_on_where_the_winner_is(sample_matrix):
    V = from_columns(sample_matrix)
    result = factorize(V, 4, tol=0, max_iter=3)
    reached = result.race.winner.relative_error
    assert result.history.relative_error[0] <= reached
    assert result.n_iter == 3
    without = factorize(V, 4, max_iter=0)
    assert without.relative_error <= reached * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["mult", "nnlsb", "plain-hals"])
def test_other_solvers_begin_with_the_init_that_won(sample_matrix, solver):
    V = from_columns(sample_matrix)
    outcome = run_race(V, 4, SOLVERS[solver])
    name, number = outcome.race.winner.init, outcome.race.won_by
    rng = np.random.default_rng(number) if number else None
    expected = initialize(V, 4, name, SOLVERS[solver], rng)
    np.testing.assert_allclose(outcome.W, expected.W, rtol=1e-3, atol=1e-6)
    assert outcome.state is None


def test_it_is_always_the_same_and_a_generator_changes_it(sample_matrix):
    V = from_columns(sample_matrix)
    first, second = (errors(run_race(V, 4, HALS).race) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    draws = [errors(run_race(V, 4, HALS, np.random.default_rng(seed)).race) for seed in (5, 5, 6)]
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
    assert run_race(V, 6, HALS).name == "cr1"


def test_an_init_that_cannot_make_so_many_components_does_not_take_part():
    rng = np.random.default_rng(3)
    V = from_columns(rng.random((12, 2)) @ (np.eye(2)[rng.integers(2, size=40)].T * rng.random(40)))
    outcome = run_race(V, 3, HALS)  # the samples have two directions
    assert {one.init for one in outcome.race.entrants} == {"nndsvd", "random"}
    assert factorize(V, 3).relative_error < 1e-6


def test_the_race_respects_the_time(sample_matrix):
    V = from_columns(sample_matrix)
    outcome = run_race(V, 4, HALS, remaining=lambda: 0.0)
    (only,) = outcome.race.entrants
    assert only.iterations == 1


def test_the_callback_sees_every_error_that_is_the_lowest_so_far(main_backend, sample_matrix):
    seen, V = [], main_backend(sample_matrix)
    result = factorize(V, 4, tol=0, max_iter=3, callback=seen.append)
    raced, solved = seen[:-3], seen[-3:]
    assert {now.iteration for now in raced} == {0}
    assert [now.iteration for now in solved] == [1, 2, 3]
    assert len(raced) > 10
    errors = [now.relative_error for now in raced]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] <= result.race.winner.relative_error <= 1.00002 * errors[-1]
    for now in raced:
        assert now.objective == pytest.approx(now.relative_error**2 * V.total)
    assert (np.diff([now.elapsed for now in seen]) > 0).all()
    assert (np.diff([now.passes for now in seen]) >= 0).all()
    assert seen[-1].passes <= result.passes - 1  # that of the finish
    assert [now.elapsed for now in solved] == list(result.history.elapsed)
    assert [now.passes for now in solved] == list(result.history.passes)
    unseen = factorize(V, 4, tol=0, max_iter=3)
    np.testing.assert_array_equal(unseen.W, result.W)


@pytest.mark.parametrize("n", [1, 5, 13])
def test_the_callback_can_end_the_race(sample_matrix, n):
    """At once, with the factors that it was told of, also if they are not of the first run."""
    seen, V = [], from_columns(sample_matrix)
    result = factorize(V, 4, callback=lambda now: seen.append(now) or len(seen) == n)
    assert len(seen) == n
    assert (result.stop_reason, result.n_iter, result.history.elapsed.size) == ("callback", 0, 0)
    assert result.relative_error <= seen[-1].relative_error * (1 + 1e-9)
    assert result.relative_error > 0.9 * seen[-1].relative_error
    assert result.passes <= seen[-1].passes + 2  # the finish, and singular values for a bound
    assert result.race.winner.relative_error == seen[-1].relative_error


@pytest.mark.parametrize("n", [1, 2])
def test_on_a_sketch_the_callback_sees_the_errors_of_v(sample_matrix, n):
    seen, V = [], from_columns(sample_matrix)
    stopped = factorize(V, 4, sketch=8, callback=lambda now: seen.append(now) or len(seen) == n)
    assert (stopped.race.data, stopped.stop_reason, stopped.n_iter) == ("sketch", "callback", 0)
    assert stopped.relative_error == pytest.approx(seen[-1].relative_error, rel=1e-9)
    assert stopped.race.winner.relative_error != pytest.approx(stopped.relative_error, rel=1e-6)
    whole = factorize(V, 4, sketch=8, callback=seen.append)
    np.testing.assert_array_equal(whole.W, factorize(V, 4, sketch=8).W)
    assert {now.relative_error for now in seen[:n]} <= {now.relative_error for now in seen[n:]}


@pytest.mark.parametrize("solver", ["mult", "plain-hals"])
def test_the_callback_sees_no_errors_of_another_solver(sample_matrix, solver):
    seen, V = [], from_columns(sample_matrix)
    factorize(V, 4, solver=solver, tol=0, max_iter=3, callback=seen.append)
    assert [now.iteration for now in seen] == [1, 2, 3]


def test_of_dense_data_nndsvd_runs_ahead(monkeypatch):
    """The others are compared with the error that it had when it had run as far as they have."""
    rounds, original = [], Track._continue

    def watched(track, entered, *, round):
        original(track, entered, round=round)
        rounds.append((round, [one.name for one in entered]))
        for one in entered if round == 1 else ():
            assert one.first_error >= one.error
            assert one.run.log.relative_error.index(one.first_error) < 10

    monkeypatch.setattr(Track, "_continue", watched)
    X = np.random.default_rng(7).random((300, 250)) ** 6
    run_race(from_rows(X), 8, HALS)
    begun = [(0, ["cr1-robust"]), (0, ["nndsvd"]), (1, ["nndsvd"]), (0, ["spa", "random"])]
    assert rounds[:4] == begun
    rounds.clear()
    run_race(from_rows(sp.csr_array(np.where(X > 0.8, X, 0.0))), 8, HALS)
    assert rounds[:2] == [(0, ["cr1-robust"]), (0, ["nndsvd", "random"])]


def test_plateaus_make_all_go_on():
    V = from_rows(scene(1))
    outcome = run_race(V, 5, HALS)
    assert outcome.prospect.standout > 2
    assert min(one.iterations for one in outcome.race.entrants) > 30
    assert outcome.race.winner.relative_error < 1.05 * outcome.race.lower_bound


def test_a_large_dense_matrix_is_raced_on_a_sketch():
    rng = np.random.default_rng(4)
    V = from_rows(rng.gamma(0.5, size=(1200, 6)) @ rng.gamma(0.5, size=(6, 900)))
    assert sketch_rank(V, 6) == 12
    outcome = run_race(V, 6, HALS)
    assert outcome.race.data == "sketch"
    assert outcome.state is None


@pytest.mark.parametrize("data", ["samples", "features"])
def test_many_samples_or_features_are_raced_on_some(data):
    rng = np.random.default_rng(5)
    V = rng.gamma(0.5, size=(12, 4)) @ rng.gamma(0.5, size=(4, 9000)) + 0.1 * rng.random((12, 9000))
    V = from_columns(V if data == "samples" else V.T)
    outcome = run_race(V, 4, HALS)
    assert outcome.race.data == data
    assert outcome.W.shape == (V.shape[0], 4)
    assert outcome.H.shape == (4, V.shape[1])
    result = factorize(V, 4)
    assert result.history.relative_error[0] <= 1.01 * result.race.winner.relative_error
    best = min(factorize(V, 4, init=init).relative_error for init in ("cr1", "nndsvd", "spa"))
    assert result.relative_error <= 1.0005 * best
    other = run_race(V, 4, SOLVERS["mult"])
    assert other.W.shape == (V.shape[0], 4)
    assert other.name == result.init_used


def test_samples_that_are_mostly_zero_are_raced_whole():
    rng = np.random.default_rng(6)
    X = sp.lil_array((10_000, 20))
    X[1:21] = rng.random((20, 20))  # evenly spaced ones would miss nearly all
    assert run_race(from_rows(X.tocsr()), 3, HALS).race.data == "all"


def test_a_race_can_be_saved(sample_matrix):
    race = run_race(from_columns(sample_matrix), 4, HALS).race
    assert Race.of_plain(race.plain()) == race
    assert Race.of_plain(None) is None
    with pytest.raises(OptionError, match="data='elsewhere' is unknown"):
        Race.of_plain(race.plain() | {"data": "elsewhere"})
    with pytest.raises(OptionError, match="entrant 9 of 6 cannot have won"):
        Race.of_plain(race.plain() | {"won_by": 9})

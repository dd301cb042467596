import threading
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import Factorization, factorize, from_columns, from_rows, make_cones
from conenmf.data.sketch import sketch
from conenmf.errors import ComponentsError, DataError, DataTypeError, OptionError
from conenmf.linalg.nnls import nnls
from conenmf.solve.inits import INITS, initialize
from conenmf.solve.run import alternate
from conenmf.solve.solvers import SOLVERS, hals


@pytest.fixture(scope="module")
def cones():
    return make_cones(80, 4, 0.15, n_samples=300, rng=np.random.default_rng(0)).V


@pytest.mark.thinned(3)
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("solver", [*SOLVERS, None])
def test_every_init_with_every_solver(init, solver, small_blocks, sample_matrix):
    check_factors(from_columns(sample_matrix, **small_blocks), init, solver, sample_matrix)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("init", "solver"),
    [*((init, "hals") for init in INITS), *(("cr1", solver) for solver in [*SOLVERS, None])],
)
def test_every_init_and_every_solver_on_every_storage(
    init, solver, main_backend, small_blocks, sample_matrix
):
    check_factors(main_backend(sample_matrix), init, solver, sample_matrix)


def check_factors(V, init, solver, sample_matrix):
    K = 2 if init == "rank-two" else 4
    result = factorize(V, K, init=init, solver=solver, max_iter=20, rng=np.random.default_rng(0))
    W, H = result.W, np.asarray(result.H)
    assert W.shape == (12, K)
    assert H.shape == (K, 40)
    assert W.min() >= 0
    assert H.min() >= 0
    exact = np.linalg.norm(sample_matrix - W @ H) / np.linalg.norm(sample_matrix)
    assert result.relative_error == pytest.approx(exact, rel=1e-10)
    assert result.objective == pytest.approx(np.linalg.norm(sample_matrix - W @ H) ** 2, rel=1e-10)
    np.testing.assert_allclose(H, nnls(W.T @ W, sample_matrix.T @ W).T, atol=1e-10)
    np.testing.assert_array_equal(result.labels == -1, ~sample_matrix.any(axis=0))
    if solver is None:
        assert (result.n_iter, result.stop_reason) == (0, "init")
    else:
        assert result.relative_error <= result.history.relative_error[-1] + 1e-8


def test_components_are_sorted_by_their_shares(cones):
    """Also those of a warm start, at its end; without a solver they stay as the init made them."""
    V = from_columns(cones)
    result = factorize(V, 4)
    assert (np.diff(result.shares) < 0).all()
    turned = factorize(V, 4, init=result.W[:, ::-1], max_iter=3)
    units = [one.W / np.linalg.norm(one.W, axis=0) for one in (turned, result)]
    assert (np.einsum("fk,fk->k", *units)[[0, 3]] > 0.99).all()  # the others differ little
    W = initialize(V, 4, "cr1", None).W
    np.testing.assert_array_equal(factorize(V, 4, init="cr1", solver=None).W, W)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_component_near_the_floor_is_not_lost(dtype):
    """A column of W near the floor with a huge row in H is part of the error in the history."""
    rng = np.random.default_rng(19)
    V = rng.random((5, 3)) @ rng.random((3, 12)) * 10.0 ** rng.uniform(-3, 3, 12)
    options = {"init": "random", "solver": "plain-hals", "max_iter": 10, "rng": rng}
    result = factorize(from_columns(V.astype(dtype)), 4, **options)
    assert result.relative_error <= result.history.relative_error[-1] + 1e-8
    assert result.H.max() < 1e6 * V.max()


def test_a_tiny_init_that_no_iteration_has_changed_is_kept(cones):
    result = factorize(from_columns(cones), 4, init=1e-20 * cones[:, :4], solver="mult", max_iter=0)
    assert result.relative_error < 0.9


def test_auto_finds_the_number_of_cones(cones, main_backend):
    result = factorize(main_backend(cones))
    assert result.K == 4
    assert result.relative_error < np.sin(0.15)
    assert result.settings["K"] == "auto"


def test_a_sketch_on_the_way_and_v_itself_at_the_end(main_backend, small_blocks):
    rng = np.random.default_rng(3)
    matrix = rng.random((40, 6)) @ rng.random((6, 200)) ** 3 + 0.3 * rng.random((40, 200))
    V = main_backend(matrix)
    options = {"init": "random", "max_iter": 60, "tol": 1e-5}
    with_, without = (
        factorize(V, 6, sketch=rank, rng=np.random.default_rng(0), **options) for rank in (12, None)
    )
    assert with_.seconds["sketch"] > without.seconds["sketch"] == 0
    assert (with_.settings["sketch"], without.settings["sketch"]) == (12, None)
    errors = with_.history.relative_error
    np.testing.assert_allclose(errors[:2], without.history.relative_error[:2], rtol=1e-9)
    assert errors[2] < without.history.relative_error[2]  # a leap
    assert (np.diff(errors) <= 1e-9).all()
    exact = np.linalg.norm(matrix - with_.W @ np.asarray(with_.H)) / np.linalg.norm(matrix)
    assert with_.relative_error == pytest.approx(exact, rel=1e-10)
    assert with_.relative_error <= 1.01 * without.relative_error


def test_auto_sketches_large_dense_data_only():
    rng = np.random.default_rng(0)
    matrix = rng.random((270, 3)) @ rng.random((3, 4000)) + 0.1 * rng.random((270, 4000))
    options = {"init": "random", "rng": np.random.default_rng(0)}
    assert factorize(from_columns(matrix[:, :3000]), 3, **options).seconds["sketch"] == 0
    assert factorize(from_columns(matrix), 3, **options).seconds["sketch"] > 0
    assert factorize(from_columns(matrix), 3, solver="mult", **options).seconds["sketch"] == 0
    flat = factorize(from_columns(matrix), 3, init=(matrix[:, :3], np.ones((3, 4000))), max_iter=9)
    done = factorize(from_columns(matrix), 3, init=(flat.W, flat.H))
    assert done.seconds["sketch"] == 0  # the error hardly falls any more
    cones = make_cones(270, 3, 0.15, n_samples=4000, rng=rng).V
    assert factorize(from_columns(cones), 3, init="cr1").seconds["sketch"] == 0


@pytest.mark.parametrize(
    ("made_by", "part", "options"),
    [
        ("conenmf.solve.losses.loss.initialize", "H", {"init": "random", "sketch": None}),
        ("conenmf.solve.race.sketch", "B", {"init": "auto", "sketch": 6}),
        ("conenmf.solve.race.sketch", "B", {"init": "auto", "sketch": None}),
    ],
)
def test_what_an_init_made_is_gone_while_the_solver_runs(monkeypatch, made_by, part, options):
    """It may be as large as memory allows, and the loop has its own H."""
    references, alive = [], []
    original = {"H": initialize, "B": sketch}[part]

    def watched(*arguments, **keywords):
        made = original(*arguments, **keywords)
        references.append(weakref.ref(getattr(made, part)))
        return made

    monkeypatch.setattr(made_by, watched)
    V = from_columns(np.random.default_rng(0).random((30, 300)) ** 6)  # no cones
    limits = {"max_iter": 5, "tol": 0, "rng": np.random.default_rng(0)}

    def look(now):
        if now.iteration:  # the race is over
            alive.append(references[0]() is not None)

    factorize(V, 3, callback=look, **limits, **options)
    assert alive == [False] * 5


def test_the_time_on_a_sketch_counts(monkeypatch):
    limits = []

    def watched(V, *arguments, **options):
        limits.append(options["stopping"].max_time)
        return alternate(V, *arguments, **options)

    monkeypatch.setattr("conenmf.pipeline.alternate", watched)
    rng = np.random.default_rng(0)
    V = from_columns(rng.random((30, 300)))
    factorize(V, 3, init="random", sketch=6, max_time=1000.0, rng=rng)
    factorize(V, 3, init="random", sketch=6, rng=rng)
    whole, on_sketch, *unlimited = limits
    assert 0 < on_sketch < whole < 1000
    assert unlimited == [None, None]


@pytest.mark.parametrize("solver", ["hals", "mult", "plain-hals"])
def test_a_run_that_is_stopped_early_is_not_worse_than_its_init(cones, solver):
    """The lifted init is above cr1-nmf itself at first."""
    V = from_columns(cones)
    alone = factorize(V, 4, solver=None)
    for max_iter in (0, 1, 2, 50):
        run = factorize(V, 4, solver=solver, max_iter=max_iter, tol=0)
        assert run.relative_error <= alone.relative_error * (1 + 1e-12)
    assert run.relative_error < 0.999 * alone.relative_error


def test_a_fit_counts_its_own_passes_while_others_read_the_same_matrix(cones):
    V = from_columns(cones, block_samples=50)
    alone = factorize(V, 4, max_iter=5)
    results, before = [], V.passes
    users = [
        threading.Thread(target=lambda: results.append(factorize(V, 4, max_iter=5)))
        for _ in range(4)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
    assert [result.passes for result in results] == pytest.approx([alone.passes] * 4)
    for result in results:
        np.testing.assert_allclose(result.history.passes, alone.history.passes, rtol=1e-12)
    assert V.passes == pytest.approx(before + 4 * alone.passes)


def test_what_a_result_contains(cones):
    V = from_columns(cones)
    before = V.passes
    result = factorize(V, 4, init="cr1", max_iter=3, tol=0)
    assert result.K == 4
    assert result.n_iter == 3
    assert result.stop_reason == "max_iter"
    assert result.passes == V.passes - before
    assert set(result.seconds) == {"rank", "init", "sketch", "solve", "finish"}
    assert result.seconds["sketch"] == 0
    assert all(s > 0 for stage, s in result.seconds.items() if stage != "sketch")
    assert result.settings == {
        "K": 4,
        "init": "cr1",
        "loss": "frobenius",
        "solver": "hals",
        "sketch": "auto",
        "max_iter": 3,
        "tol": 0,
        "max_time": None,
    }
    assert (result.K_decided_by, result.init_used) == ("user", "cr1")
    assert repr(result).startswith("Factorization(F=80, N=300, K=4, relative_error=0.0")
    with pytest.raises(AttributeError):
        result.W = None


def test_own_solvers_and_inits_are_named(cones):
    def mine(V, K, rng):
        return np.ones((80, K)) + np.eye(80, K), None

    result = factorize(from_columns(cones), 4, init=mine, solver=hals, max_iter=2)
    assert (result.settings["init"], result.settings["solver"]) == ("mine", "hals")


def test_parts_that_do_not_fit_are_refused(cones):
    result = factorize(from_columns(cones), 4, max_iter=1)
    with pytest.raises(ValueError, match="do not make a factorisation"):
        Factorization(**{**vars(result), "W": result.W[:, :2]})
    with pytest.raises(ValueError, match="do not make a factorisation"):
        Factorization(**{**vars(result), "relative_error": float("nan")})


def test_same_bits_for_any_number_of_threads(small_blocks, cones):
    runs = [
        factorize(from_columns(cones, n_threads=n, **small_blocks), max_iter=10) for n in (1, 2, 4)
    ]
    for run in runs[1:]:
        assert np.array_equal(run.W, runs[0].W)
        assert np.array_equal(run.H, runs[0].H)
        assert run.relative_error == runs[0].relative_error


def test_every_storage_gives_the_same_factors(backend, small_blocks, sample_matrix):
    result = factorize(backend(sample_matrix), 3, max_iter=10, tol=0)
    plain = factorize(from_columns(sample_matrix, **small_blocks), 3, max_iter=10, tol=0)
    np.testing.assert_array_equal(result.labels, plain.labels)
    np.testing.assert_allclose(result.W, plain.W, atol=1e-10)
    np.testing.assert_allclose(result.H, plain.H, atol=1e-10)
    assert result.relative_error == pytest.approx(plain.relative_error, rel=1e-10)


def test_max_time_counts_from_the_call(cones):
    result = factorize(from_columns(cones), 4, max_time=0.0)
    assert (result.stop_reason, result.n_iter) == ("max_time", 0)
    assert result.relative_error < np.sin(0.15)  # the init alone is good


@pytest.mark.parametrize("init", ["auto", "cr1"])
def test_a_callback_that_raises_stop_iteration_stops(cones, init):
    def callback(now):
        raise StopIteration

    result = factorize(from_columns(cones), 4, init=init, callback=callback)
    assert result.stop_reason == "callback"
    assert result.n_iter <= 1


def test_callback_stops(cones):
    result = factorize(from_columns(cones), 4, callback=lambda p: p.iteration == 2)
    assert (result.stop_reason, result.n_iter, result.converged) == ("callback", 2, False)


def test_tiny_shapes():
    for V in ([[2.0]], [[1.0, 2.0, 3.0]], [[1.0], [2.0]], np.eye(3), np.ones((3, 3))):
        result = factorize(from_columns(V))
        np.testing.assert_array_less(result.relative_error, 1.0)
        assert result.H.shape[1] == np.shape(V)[1]
    assert factorize(from_columns(np.eye(3)), 3).relative_error < 1e-12


@pytest.mark.parametrize("K", [0, -1, 2.5, "many", None])
def test_bad_number_of_components(K, cones):
    with pytest.raises(ComponentsError, match="the number of components is"):
        factorize(from_columns(cones), K)


def test_more_components_than_directions():
    V = from_columns(np.outer([1.0, 2.0], [1.0, 1.0, 4.0]))
    with pytest.raises(ComponentsError, match="only 1 distinct direction"):
        factorize(V, 2, init="cr1")
    assert factorize(V, 2).relative_error < 1e-12
    assert factorize(V, 2, init="random", rng=np.random.default_rng(0)).relative_error < 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "newton"}, "solver='newton' is unknown"),
        ({"init": "guess"}, "init='guess' is unknown"),
        ({"max_iter": -1}, "max_iter=-1"),
        ({"sketch": 0}, "sketch=0, expected a rank"),
        ({"sketch": "yes"}, "sketch='yes', expected a rank"),
        ({"sketch": True}, "sketch=True, expected a rank"),
        ({"sketch": 2.5}, "sketch=2.5, expected a rank"),
        ({"sketch": 5, "solver": "mult"}, "needs a solver that is extrapolated"),
        ({"sketch": 5, "solver": None}, "needs a solver that is extrapolated"),
        ({"max_iter": 1.5}, "max_iter=1.5"),
        ({"tol": -1e-3}, "tol=-0.001"),
        ({"tol": float("nan")}, "tol=nan"),
        ({"max_time": -1}, "max_time=-1"),
        ({"max_time": "1"}, "max_time='1'"),
        ({"tol": "a"}, "tol='a'"),
        ({"callback": 3}, "callback=3"),
        ({"rng": 0}, r"rng=0, expected a numpy.random.Generator"),
    ],
)
def test_bad_options(options, message, cones):
    with pytest.raises(OptionError, match=message):
        factorize(from_columns(cones), 4, **options)


def test_bad_data(cones):
    with pytest.raises(DataTypeError, match="expected a DataMatrix"):
        factorize(cones, 4)
    with pytest.raises(DataError, match="zero"):
        factorize(from_columns(np.zeros((3, 3))), 1)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_samples_on_as_many_rays_as_components_are_exact_at_once(make):
    """In any order, as often as one likes, and in any length: no iteration could only spoil it."""
    rng = np.random.default_rng(0)
    rays, owner = rng.random((5, 30)), np.arange(40) % 5
    X = rays[owner] * rng.integers(1, 5, 40)[:, None]
    result = factorize(from_rows(make(X)), 5)
    other = factorize(from_rows(make(X[rng.permutation(40)])), 5)
    assert (result.stop_reason, result.n_iter) == ("exact", 0)
    assert max(result.relative_error, other.relative_error) < 1e-14
    np.testing.assert_allclose(np.sort(result.W, axis=1), np.sort(other.W, axis=1), rtol=1e-12)
    assert factorize(from_rows(make(X + 1e-3 * rng.random(X.shape))), 5).n_iter > 0

"""`factorize`: every init with every solver on every storage, and what a result contains."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import kl_div

from conenmf import ConeNMF, factorize, from_columns, from_rows, open_data, pipeline
from conenmf.data.blocks import exact
from conenmf.data.views import coordinates
from conenmf.errors import ComponentsError, InputWarning, NotFiniteError
from conenmf.linalg.nnls import nnls
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.coefficients import require_finite
from conenmf.solve.constraints import Penalties
from conenmf.solve.inits import INITS, initialize
from conenmf.solve.losses import LOSSES, beta_divergence
from conenmf.solve.solvers import SOLVERS, hals


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
    assert (W.shape, H.shape) == ((12, K), (K, 40))
    assert min(W.min(), H.min()) >= 0
    error = np.linalg.norm(sample_matrix - W @ H)
    relative = error / np.linalg.norm(sample_matrix)
    found = (result.objective, result.relative_error)
    assert found == pytest.approx((error**2, relative), rel=1e-10)
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


@pytest.mark.seed(19)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_component_near_the_floor_is_not_lost(dtype, rng):
    """A column of W near the floor with a huge row in H is part of the error in the history."""
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
    assert (result.K, result.settings["K"]) == (4, "auto")
    assert result.relative_error < np.sin(0.15)


def test_what_a_result_contains(cones):
    V = from_columns(cones)
    before = V.passes
    result = factorize(V, 4, init="cr1", max_iter=3, tol=0)
    assert (result.K, result.n_iter, result.stop_reason) == (4, 3, "max_iter")
    assert result.passes == V.passes - before
    assert set(result.seconds) == {"rank", "init", "solve", "finish"}
    assert min(result.seconds.values()) > 0
    assert result.settings == {
        "K": 4,
        "init": "cr1",
        "n_init": "auto",
        "loss": "frobenius",
        "solver": "hals",
        "max_iter": 3,
        "tol": 0,
        "max_time": None,
    }
    assert (result.K_decided_by, result.init_used) == ("user", "cr1")
    assert repr(result).startswith("Factorization(F=80, N=300, K=4, relative_error=0.0")


def test_own_solvers_and_inits_are_named(cones):
    def mine(V, K, rng):
        return np.ones((80, K)) + np.eye(80, K), None

    result = factorize(from_columns(cones), 4, init=mine, solver=hals, max_iter=2)
    assert (result.settings["init"], result.settings["solver"]) == ("mine", "hals")


def test_every_storage_gives_the_same_factors(backend, small_blocks, sample_matrix, all_close):
    result = factorize(backend(sample_matrix), 3, max_iter=10, tol=0)
    plain = factorize(from_columns(sample_matrix, **small_blocks), 3, max_iter=10, tol=0)
    np.testing.assert_array_equal(result.labels, plain.labels)
    all_close((result.W, result.H), (plain.W, plain.H), atol=1e-10)
    assert result.relative_error == pytest.approx(plain.relative_error, rel=1e-10)


def test_mostly_missing_data_need_a_penalty_or_one_component(cones):
    rng = np.random.default_rng(0)
    few, most = (from_columns(cones, mask=rng.random(cones.shape) < share) for share in (0.6, 0.4))
    words = "60% of the entries are missing, so a fit without a penalty may predict them badly"
    with pytest.warns(InputWarning, match=words):
        factorize(most, 3, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factorize(few, 3, max_iter=1)
        factorize(most, 1, max_iter=1)
        factorize(most, 3, max_iter=1, penalties=Penalties(l2_h=0.1, l2_w=0.1))


def test_max_time_counts_from_the_call(cones):
    result = factorize(from_columns(cones), 4, init="cr1", max_time=0.0)
    assert (result.stop_reason, result.n_iter) == ("max_time", 0)
    assert result.relative_error < np.sin(0.15)  # the init alone is good


def test_the_choice_of_k_has_what_is_left_of_the_time(cones, monkeypatch):
    def noted(*given, max_time, **options):
        left.append(max_time)
        return true(*given, max_time=max_time, **options)

    left, true = [], pipeline.choose_k
    monkeypatch.setattr(pipeline, "choose_k", noted)
    for limit in (60.0, 0.0, None):
        factorize(from_columns(cones), "auto", max_iter=1, max_time=limit)
    assert 0 < left[0] < 60
    assert left[1:] == [0, None]


@pytest.mark.parametrize("init", ["auto", "cr1"])
def test_a_callback_that_raises_stop_iteration_stops(cones, init):
    def callback(now):
        raise StopIteration

    result = factorize(from_columns(cones), 4, init=init, callback=callback)
    assert result.stop_reason == "callback"
    assert result.n_iter <= 1


def test_tiny_shapes():
    for V in ([[2.0]], [[1.0, 2.0, 3.0]], [[1.0], [2.0]], np.eye(3), np.ones((3, 3))):
        result = factorize(from_columns(V))
        np.testing.assert_array_less(result.relative_error, 1.0)
        assert result.H.shape[1] == np.shape(V)[1]
    assert factorize(from_columns(np.eye(3)), 3).relative_error < 1e-12


def test_more_components_than_directions(refuses):
    V = from_columns(np.outer([1.0, 2.0], [1.0, 1.0, 4.0]))
    refuses(ComponentsError, "only 1 distinct direction", lambda: factorize(V, 2, init="cr1"))
    assert factorize(V, 2).relative_error < 1e-12
    assert factorize(V, 2, init="random", rng=np.random.default_rng(0)).relative_error < 1e-6


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_samples_on_as_many_rays_as_components_are_exact(make, rng):
    rays, owner = rng.random((5, 30)), np.arange(40) % 5
    X = rays[owner] * rng.integers(1, 5, 40)[:, None]
    result = factorize(from_rows(make(X)), 5)
    assert result.stop_reason == "exact"
    assert result.relative_error < 1e-7
    assert factorize(from_rows(make(X)), 5, init="cr1").relative_error < 1e-7


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_tall_data_begin_on_their_leading_singular_vectors(
    make, monkeypatch, tmp_path, rng, same_factors
):
    module = "conenmf.solve.losses.frobenius"
    sizes = 2.0 ** -np.arange(12)
    X = (rng.exponential(size=(1500, 12)) * sizes) @ rng.random((12, 90))
    X += 1e-3 * rng.random(X.shape)
    V = from_rows(make(X))
    bases = []
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.coordinates", lambda V, B: bases.append(B) or coordinates(V, B))
        found = factorize(V, 4)
    (basis,) = bases
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-12)
    assert found.W.dtype == found.H.dtype == np.float64
    assert np.all(np.diff(found.history.relative_error) <= 0)
    np.testing.assert_allclose(
        found.relative_error, np.linalg.norm(X.T - found.W @ found.H) / np.linalg.norm(X)
    )
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}._MAX_LEFT_SHARE", 0.0)
        whole = factorize(V, 4)
    assert found.relative_error <= 1.0005 * whole.relative_error
    same_factors(factorize(from_rows(make(X), n_threads=3), 4), found)
    np.save(tmp_path / "X.npy", X)
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.coordinates", lambda V, B: bases.append(V) or coordinates(V, B))
        on_disk = factorize(open_data(tmp_path / "X.npy", max_memory="1MB"), 4)
    assert not bases[1].is_in_memory
    assert on_disk.relative_error == pytest.approx(found.relative_error, rel=1e-6)
    options = {"checkpoint": Checkpoint(tmp_path / "run", every=0), "tol": 0.0}
    factorize(V, 4, max_iter=7, **options)
    resumed = factorize(V, 4, max_iter=20, **options)
    np.testing.assert_array_equal(resumed.W, factorize(V, 4, max_iter=20, tol=0.0).W)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_large_data_begin_in_single_and_end_as_in_double(make, monkeypatch, tmp_path, rng):
    exact = rng.random((300, 4)) @ rng.random((4, 400))
    for noise, limit in ((0.0, 1e-7), (0.01, 0.02), (1.0, 0.5)):  # the second ends in double
        V = from_rows(make(exact + noise * rng.random(exact.shape)))
        found = factorize(V, 4, max_iter=1000)
        assert found.W.dtype == found.H.dtype == np.float64
        assert np.all(np.diff(found.history.relative_error) <= 0)
        assert found.relative_error < limit
        with monkeypatch.context() as patch:
            patch.setattr("conenmf.solve.losses.frobenius.in_single", lambda V: None)
            double = factorize(V, 4, max_iter=1000)
        assert found.relative_error <= 1.0005 * max(double.relative_error, 1e-7)
    with monkeypatch.context() as patch:
        patch.setattr(
            "conenmf.solve.losses.frobenius.in_single",
            lambda V: pytest.fail("counts stay in double"),
        )
        factorize(V, 4, loss="poisson", max_iter=2)
    options = {"checkpoint": Checkpoint(tmp_path, every=0), "tol": 0.0}
    factorize(V, 4, max_iter=7, **options)
    resumed = factorize(V, 4, max_iter=20, **options)
    np.testing.assert_array_equal(resumed.W, factorize(V, 4, max_iter=20, tol=0.0).W)


def test_a_run_that_ends_in_nan_is_an_error_and_saves_nothing(
    tmp_path, sample_matrix, refuses, monkeypatch
):
    calls = []
    update_W = beta_divergence.BetaObjective.update_W

    def broken(self, sums, shared, W, Ht, update, C=None):
        calls.append(W)
        updated = update_W(self, sums, shared, W, Ht, update, C)
        return updated._replace(W=updated.W * (np.nan if len(calls) == 3 else 1.0))

    monkeypatch.setattr(beta_divergence.BetaObjective, "update_W", broken)
    V = from_columns(sample_matrix + 1)
    options = {"loss": "itakura-saito", "checkpoint": Checkpoint(tmp_path / "run", every=0)}
    refuses(NotFiniteError, "iteration 3 ended in NaN", lambda: factorize(V, 3, **options))
    saved = [np.load(path) for path in (tmp_path / "run").rglob("*.npy")]
    assert saved
    assert all(np.isfinite(array).all() for array in saved)


@pytest.mark.parametrize("part", ["W", "H", "the objective"])
def test_a_result_is_finite(part, sample_matrix, refuses):
    V = from_columns(sample_matrix)
    W, H = np.ones((12, 2)), np.ones((2, 40))
    require_finite(V, W, H, 1.0)
    values = {"W": W, "H": H, "the objective": 1.0}
    values[part] = values[part] * np.inf
    refuses(NotFiniteError, f"infinity in {part}", require_finite, V, *values.values())


def test_an_end_in_nan_gives_no_result(sample_matrix, refuses, monkeypatch):
    monkeypatch.setattr(beta_divergence, "_best_rows", lambda V, W, *more: V.T[:, :2] * np.nan)
    V = from_columns(sample_matrix + 1)
    words = "infinity in H and the objective"
    refuses(NotFiniteError, words, lambda: factorize(V, 2, loss="itakura-saito", max_iter=3))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("loss", LOSSES)
def test_fit_transform_equals_transform_and_its_error_is_that_of_its_factors(loss, dtype):
    """1e-6 in the coefficients; the error to the rounding of entries in float32."""
    rng = np.random.default_rng(0)
    X = rng.poisson(9 * rng.gamma(0.5, size=(50, 3)) @ rng.gamma(0.5, size=(3, 12))) + 1.0
    X = X.astype(dtype)
    model = ConeNMF(3, loss=loss, tol=1e-4, init="random", random_state=0)
    A = model.fit_transform(X)
    assert A.dtype == X.dtype
    np.testing.assert_allclose(model.transform(X), A, rtol=1e-6, atol=1e-6 * A.max())
    fitted = exact(A) @ exact(model.components_)
    values = {
        "frobenius": (exact(X) - fitted) ** 2,
        "poisson": kl_div(exact(X), fitted),
        "itakura-saito": X / fitted - np.log(X / fitted) - 1,
    }
    assert model.result_.objective == pytest.approx(values[loss].sum(), rel=1e-9)
    history = model.history_.relative_error
    assert model.relative_error_ <= history[-1] * (1 + 10 * np.finfo(dtype).eps)


def test_more_components_than_samples_or_features_raise_a_warning():
    X = np.random.default_rng(0).random((6, 4))
    for data, words in ((X, "4 features"), (X.T, "4 samples")):
        with pytest.warns(
            InputWarning, match=f"5 components are more than the {words}: .* at most"
        ):
            factorize(from_rows(data), 5, init="random", max_iter=2, tol=0)
    factorize(from_rows(X), 4, max_iter=2, tol=0)  # no warning
    factorize(from_rows(X), 5, fixed=np.random.default_rng(1).random((4, 5)))

"""Penalties: monotone objectives, agreement with scikit-learn, optimality, and units."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.decomposition import NMF

from conenmf import ConeNMF, factorize, from_columns, from_rows
from conenmf.data.known import weigh_samples
from conenmf.errors import DataError, OptionError
from conenmf.judge.matching import match_spectra
from conenmf.linalg.nnls import nnls
from conenmf.linalg.svd import Spectrum
from conenmf.solve.coefficients import coefficients
from conenmf.solve.constraints import (
    Fixed,
    Penalties,
    Term,
    best_rows,
    penalised_update,
    sum_to_one,
    unit_steps,
    update_unit_columns,
)
from conenmf.solve.inits import Start
from conenmf.solve.losses import FROBENIUS
from conenmf.solve.problem import Problem
from conenmf.solve.simplex import simplex, volume_weight
from conenmf.solve.solvers import SOLVERS, hals

KINDS = {
    "L1": Penalties(l1_h=0.3, l1_w=0.2),
    "L2": Penalties(l2_h=0.5, l2_w=0.4),
    "both on one side": Penalties(l1_h=0.1, l2_h=0.1),
    "L1 of components": Penalties(l1_w=0.5),
    "orthogonality": Penalties(orthogonality=0.3),
    "volume": Penalties(min_volume=5e-4),
    "abundances": Penalties(sum_to_one=True),
    "abundances and volume": Penalties(sum_to_one=True, min_volume=5e-4),
}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(3)
    A = rng.random((60, 4)) * (rng.random((60, 4)) < 0.6)
    return A @ rng.random((4, 15)) + 0.02 * rng.random((60, 15))


def penalised(V, W, H, penalties):
    """The objective in NumPy, from the definition."""
    value = ((V - W @ H) ** 2).sum() + 2 * penalties.l1_h * H.sum() + 2 * penalties.l1_w * W.sum()
    value += penalties.l2_h * (H**2).sum() + penalties.l2_w * (W**2).sum()
    value += penalties.orthogonality * ((H @ H.T).sum() - (H**2).sum())
    K, size = W.shape[1], (V**2).sum() / V.shape[1] if penalties.sum_to_one else 1.0
    gram = W.T @ W + 0.01 * size * np.eye(K)
    volume = np.linalg.slogdet(gram)[1] - K * np.log(0.01 * size)
    return value + penalties.min_volume * (V**2).sum() * volume


@pytest.mark.filterwarnings("ignore:sum_to_one")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_falls_and_is_what_is_reported(kind, main_backend, small_blocks, X):
    penalties = KINDS[kind]
    result = factorize(main_backend(X.T), 4, penalties=penalties, init="nndsvd", max_iter=60)
    W, H = result.W, np.asarray(result.H)
    tolerance = 1e-9 if W.dtype == np.float64 else 1e-4
    assert result.objective == pytest.approx(penalised(X.T, W, H, penalties), rel=tolerance)
    last = result.history.relative_error[-1] ** 2 * (X**2).sum()
    assert result.objective <= last * (1 + tolerance) + 1e-9
    assert (np.diff(result.history.relative_error) <= 1e-6).all()
    error = np.linalg.norm(X.T - W @ H) / np.linalg.norm(X)
    assert result.relative_error == pytest.approx(error, rel=1e-4)
    if penalties.sum_to_one:
        np.testing.assert_allclose(H.sum(axis=0), 1, atol=1e-6)
    if penalties.fixes_columns:
        np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1, atol=1e-6)
    assert result.objective_bound() <= result.objective
    assert result.problem.penalties == penalties


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("l1_ratio", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("alpha_H", ["same", 1e-4])
def test_the_objective_is_that_of_scikit_learn(alpha_H, l1_ratio, X):
    options = {"alpha_W": 1e-3, "alpha_H": alpha_H, "l1_ratio": l1_ratio}
    theirs = NMF(4, init="nndsvd", max_iter=2000, tol=1e-6, **options)
    A = theirs.fit_transform(X)
    C = theirs.components_
    alpha = 1e-3 if alpha_H == "same" else alpha_H
    (n, m), l2_ratio = X.shape, 1 - l1_ratio
    objective = 0.5 * ((X - A @ C) ** 2).sum()
    objective += 1e-3 * m * (l1_ratio * A.sum() + 0.5 * l2_ratio * (A**2).sum())
    objective += alpha * n * (l1_ratio * C.sum() + 0.5 * l2_ratio * (C**2).sum())
    penalties = Penalties.as_in_sklearn((m, n), **options)
    assert penalised(X.T, C.T, A.T, penalties) == pytest.approx(2 * objective, rel=1e-12)
    model = ConeNMF(4, max_iter=5000, tol=1e-9, **options)
    ours = model.fit_transform(X)
    assert model.result_.objective / 2 <= objective * (1 + 1e-6)
    np.testing.assert_array_equal(ours, model.transform(X))
    # coefficients of new samples: theirs, for equal components
    theirs.set_params(tol=1e-12).components_ = model.components_
    np.testing.assert_allclose(theirs.transform(X[:9]), model.transform(X[:9]), atol=1e-4)


def test_abundances_are_the_best_that_sum_to_one(rng):
    W = rng.random((9, 4))
    V = W @ rng.dirichlet(np.full(4, 0.3), 12).T + 0.1 * rng.random((9, 12))
    H = sum_to_one(W.T @ W, V.T @ W, np.zeros((12, 4)))
    constraint = {"type": "eq", "fun": lambda h: h.sum() - 1}
    for v, h in zip(V.T, H, strict=True):
        best = minimize(
            lambda x, v=v: ((v - W @ x) ** 2).sum(),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints=constraint,
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert ((v - W @ h) ** 2).sum() <= best.fun + 1e-9


@pytest.mark.parametrize("K", [1, 2, 5, 12])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 0.0])
def test_abundances_by_pivoting_and_as_shortest_vectors(rng, K, apart):
    W = 1 + apart * rng.random((20, K))
    C = (rng.dirichlet(np.full(K, 0.3), 200) @ W.T + 0.1 * rng.standard_normal((200, 20))) @ W
    G = W.T @ W

    def values(Y):
        return ((Y @ G) * Y).sum(axis=1) / 2 - (C * Y).sum(axis=1)

    grams = np.broadcast_to(G, (200, K, K))  # one for each row: not by pivoting
    rows = sum_to_one(G, C), sum_to_one(G, C, rng.random((200, K))), sum_to_one(grams, C)
    for Y in rows:
        assert Y.min() >= 0
        np.testing.assert_allclose(Y.sum(axis=1), 1)
        np.testing.assert_allclose(values(Y), values(rows[0]), rtol=1e-9)


def test_columns_of_unit_length_are_minimised_over_one_by_one(rng):
    V, H = rng.random((6, 20)), rng.random((3, 20))
    W = rng.random((6, 3))
    W /= np.linalg.norm(W, axis=0)
    before = ((V - W @ H) ** 2).sum()
    after = update_unit_columns(H @ H.T, V @ H.T, W, sweeps=1)
    assert ((V - after @ H) ** 2).sum() < before
    in_turn, moved = W.copy(), 0.0
    for k, h in enumerate(H):
        apart = W @ H - np.outer(W[:, k], h)
        in_turn[:, k] = np.maximum((V - (in_turn @ H - np.outer(in_turn[:, k], h))) @ h, 0)
        in_turn[:, k] /= np.linalg.norm(in_turn[:, k])
        alone = np.maximum((V - apart) @ h, 0)
        moved += ((W[:, k] - alone / np.linalg.norm(alone)) ** 2).sum() * (h**2).sum()
    np.testing.assert_allclose(after, in_turn)
    assert unit_steps(H @ H.T, V @ H.T, W, np.arange(3)) == pytest.approx(moved)
    kept = update_unit_columns(H @ H.T, V @ H.T, W, sweeps=1, n_fixed=2)
    np.testing.assert_array_equal(kept[:, :2], W[:, :2])
    unused = update_unit_columns(np.zeros((3, 3)), np.zeros((6, 3)), 2 * W, sweeps=1)
    np.testing.assert_allclose(unused, W)  # extrapolation may have moved them
    np.testing.assert_allclose(np.linalg.norm(after, axis=0), 1)
    hopeless = update_unit_columns(H @ H.T, V @ H.T - 1e3, W, sweeps=1)  # no entry pays
    np.testing.assert_allclose(np.sort(hopeless, axis=0)[-1], 1)
    rest = V @ H.T - 1e3 - W @ (H @ H.T) + W * np.diagonal(H @ H.T)
    assert hopeless[:, 0].argmax() == rest[:, 0].argmax()


def test_few_components_for_each_sample(X):
    V = from_columns(X.T)
    apart = factorize(V, 4, penalties=Penalties(orthogonality=20.0))
    assert (apart.H > 0).sum() < 0.6 * (factorize(V, 4).H > 0).sum()
    G = np.full((2, 2), 3.0) - 2 * np.eye(2)  # indefinite: either alone is best
    np.testing.assert_allclose(
        best_rows(G, np.array([[1.0, 2.0]]), KINDS["orthogonality"].on_H, False)[0, 0], 0
    )


def test_the_bound_of_two_ridges_is_attained_by_rank_one(rng):
    V = from_columns(np.outer(rng.random(8), rng.random(20)))
    result = factorize(V, 1, penalties=Penalties(l2_h=0.2, l2_w=0.1), max_iter=2000, tol=1e-12)
    assert result.objective_bound() == pytest.approx(result.objective, rel=1e-6)


def test_a_larger_volume_penalty_brings_components_closer(X):
    V = from_columns(X.T)
    volumes = []
    for weight in (1e-5, 1e-3, 1e-2):
        W = factorize(V, 4, penalties=Penalties(min_volume=weight), max_iter=500).W
        volumes.append(np.linalg.det(W.T @ W))
    assert volumes[0] > volumes[1] > volumes[2]


@pytest.mark.parametrize("volume", [1e-4, "auto"])
@pytest.mark.parametrize("sums", [False, True])
def test_the_volume_penalty_does_not_depend_on_the_units(X, sums, volume):
    options = {"penalties": Penalties(min_volume=volume, sum_to_one=sums)}
    small, large = (factorize(from_columns(unit * X.T), 4, **options) for unit in (1, 1024))
    unit = 1024 if sums else 1
    np.testing.assert_allclose(large.W, unit * small.W, rtol=1e-6, atol=1e-6 * unit)
    assert large.relative_error == pytest.approx(small.relative_error, rel=1e-8)


@pytest.mark.filterwarnings("ignore:sum_to_one")
def test_abundances_do_not_depend_on_the_units(X):
    first, second = (ConeNMF(4, sum_to_one=True).fit_transform(unit * X) for unit in (1.0, 1000.0))
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_the_volume_of_uniform_mixtures_is_weighed_by_a_quarter_of_the_noise(rng, refuses):
    noise = 0.01 * rng.standard_normal((2000, 80))
    X = rng.dirichlet(np.ones(3), 2000) @ rng.random((3, 80)) + noise
    V = from_rows(X, negative="keep")
    auto = Penalties(min_volume="auto", sum_to_one=True)
    result = factorize(V, 3, penalties=auto)
    alone = factorize(V, 3, penalties=Penalties(min_volume="auto"), max_iter=1)
    noise = 0.01**2 * 2000 / (X**2).sum()
    assert alone.problem.penalties.min_volume == pytest.approx(noise, rel=0.1)
    expected = 0.01**2 * 2000 / 4 / (X**2).sum()
    assert result.problem.penalties.min_volume == pytest.approx(expected, rel=0.1)
    again = factorize(V, 3, penalties=result.problem.penalties)
    np.testing.assert_array_equal(again.W, result.W)
    holes = from_rows(np.abs(X), mask=rng.random(X.shape) < 0.9)
    refuses(OptionError, "is for complete data", lambda: factorize(holes, 3, penalties=auto))


def test_the_pair_of_sums_and_volume_finds_mixtures_quickly(rng):
    W = rng.random((80, 3))
    H = rng.dirichlet(np.ones(3), 3000)
    H = H[H.max(axis=1) < 0.8][:2000].T
    V = from_columns(W @ H + 0.005 * rng.standard_normal((80, H.shape[1])), negative="keep")
    result = factorize(V, 3, penalties=Penalties(min_volume="auto", sum_to_one=True), max_iter=500)
    assert result.stop_reason == "converged"
    assert match_spectra(W.T, result.W.T).angles.max() < 2
    assert result.n_iter < 200


def test_nothing_asked_for_is_a_plain_fit(X):
    V = from_columns(X.T)
    plain, none = factorize(V, 4), factorize(V, 4, penalties=Penalties())
    np.testing.assert_array_equal(plain.W, none.W)
    assert none.problem.penalties.are_none


WEIGHTS = {
    **{
        f"l{power}_{side}": Penalties(**{f"l{power}_{side}": 0.3})
        for power in "12"
        for side in "hw"
    },
    "all": Penalties(l1_h=0.1, l2_h=0.2, l1_w=0.3, l2_w=0.1),
}


@pytest.mark.parametrize("n_fixed", [0, 1])
@pytest.mark.parametrize(("name", "holes"), [*((name, False) for name in WEIGHTS), ("all", True)])
def test_multiplicative_updates_never_raise_the_objective(name, holes, n_fixed, X):
    penalties = WEIGHTS[name]
    data = X.copy()
    data[::7, ::5] = np.nan if holes else data[::7, ::5]
    known = np.isfinite(data).T
    start = np.random.default_rng(0)
    init = start.random((15, 4)), start.random((4, 60))
    values = []
    for rounds in (1, 2, 3, 5, 8, 40):  # the objective is computed from the factors of each
        result = factorize(
            from_rows(data, missing="nan"),
            4,
            init=init,
            solver="mult",
            penalties=penalties,
            fixed=X[:1].T if n_fixed else None,
            max_iter=rounds,
            tol=0,
        )
        W, H = result.W, np.asarray(result.H)
        values.append(penalised(np.where(known, X.T, 0), W, H, penalties))
        values[-1] -= (((W @ H)[~known]) ** 2).sum()
        assert result.objective == pytest.approx(values[-1], rel=1e-9)
        falls = np.diff(result.history.relative_error)
        assert (falls <= 1e-7).all()  # of ||V||: the value is a difference of large numbers
        last = result.history.relative_error[-1] ** 2 * (np.where(known, X.T, 0) ** 2).sum()
        assert result.objective <= last * (1 + 1e-9)
    assert values[-1] < values[0]


def test_multiplicative_updates_end_where_others_do(X):
    for penalties in (KINDS["L1"], KINDS["L2"]):
        ends = [
            factorize(from_rows(X), 4, solver=solver, penalties=penalties, max_iter=2000).objective
            for solver in ("mult", "hals")
        ]
        assert ends[0] == pytest.approx(ends[1], rel=1e-3)  # mult is slow near zeros


def test_solvers_that_cannot_are_refused_by_name(X, refuses):
    V = from_columns(X.T)
    for solver, penalties, words in (
        ("plain-mult", Penalties(l1_h=1.0), "plain-mult.*does not support penalties: use 'hals'"),
        ("mult", Penalties(min_volume=1e-4), "mult.*does not support.* other than L1 and L2"),
        ("nnlsb", Penalties(orthogonality=1.0), "positive definite"),
    ):
        how = {"solver": solver, "penalties": penalties}
        refuses(OptionError, words, lambda how=how: factorize(V, 3, **how))
    refuses(OptionError, "l1_h would lower", lambda: Penalties(sum_to_one=True, l1_h=1.0))
    factorize(V, 3, solver="nnlsb", penalties=KINDS["L2"], max_iter=5)


def test_penalties_come_back_from_a_saved_result(reloaded, X):
    result = factorize(from_rows(X), 3, penalties=KINDS["L1"], max_iter=20)
    loaded = reloaded(result)
    penalties = loaded.problem.penalties
    assert penalties == KINDS["L1"]
    H, _, _ = coefficients(from_rows(X), loaded.W, penalties)
    np.testing.assert_array_equal(H, result.H)
    assert loaded.certify().kkt_residual == result.certify().kkt_residual


def test_orthogonal_coefficients_are_where_nothing_falls_any_more(rng):
    """Flat valleys take thousands of sweeps: y must have the gradient of a minimum."""
    W = rng.gamma(0.5, 1.0, (7, 4)) + 0.01
    C, pairs = rng.gamma(0.6, 1.0, (60, 4)) @ (W.T @ W), 0.3
    Y = best_rows(W.T @ W, C, Term(pairs=pairs), simplex=False)
    slopes = Y @ (W.T @ W + pairs * (1 - np.eye(4))) - C
    limit = 1e-7 * np.abs(C).max(axis=1, keepdims=True)
    assert (slopes > -limit).all()
    assert (np.abs(np.where(Y > 0, slopes, 0.0)) < limit).all()


def test_known_components_keep_their_length_where_others_have_unit_length(rng):
    V, given = from_rows(rng.random((20, 8))), 5 * rng.random((8, 1))
    W = np.column_stack([given, rng.random((8, 2))])
    start = FROBENIUS.initialize(V, 3, W, SOLVERS["hals"])
    how = (SOLVERS["hals"], Penalties(orthogonality=0.1), 1)
    scaled, coefficients, *_ = FROBENIUS.begin(V, 3, W, None, *how, warm=False)
    np.testing.assert_array_equal(scaled[:, :1], given)
    np.testing.assert_allclose(np.linalg.norm(scaled[:, 1:], axis=0), 1)
    np.testing.assert_allclose(scaled @ coefficients, W @ start.H)


@pytest.mark.parametrize("mask", [None, np.random.default_rng(0).random((20, 8)) > 0.2])
def test_components_that_no_sample_uses_cost_nothing(mask, rng):
    X, given = np.outer(rng.random(20), rng.random(8)) + 0.01, rng.random((8, 1))
    W, H = rng.random((8, 4)), np.vstack([rng.random((2, 20)), np.zeros((2, 20))])
    penalties = Penalties(l1_h=0.1, l1_w=0.1)
    V = from_rows(X, mask=mask)
    for fixed, n_fixed in ((None, 0), (given, 1)):
        result = factorize(V, 4, init=(W, H), fixed=fixed, penalties=penalties, tol=1e-9)
        unused = ~result.H.any(axis=1)[n_fixed:]
        assert unused.any()
        assert not result.W[:, n_fixed:][:, unused].any()
        assert fixed is None or np.array_equal(result.W[:, :1], given)


def test_the_majorant_of_the_volume_touches_it_from_above(rng):
    """Term.at(W) adds y'Gy, with the value and the gradient of the volume at W."""
    W, term = rng.random((6, 3)), Term(volume=0.7, shift=0.2)
    G, C = term.at(W)(np.eye(3), W, W)
    weights = G - np.eye(3)
    np.testing.assert_array_equal(C, W)

    def quadratic(Y):
        return np.vdot(Y @ weights, Y)

    volume = 0.7 * np.linalg.slogdet(W.T @ W / 0.2 + np.eye(3))[1]
    assert term.value(W) == pytest.approx(volume)
    for _ in range(20):
        move = rng.standard_normal((6, 3))
        slope = (term.value(W + 1e-6 * move) - term.value(W - 1e-6 * move)) / 2e-6
        assert 2 * np.vdot(W @ weights, move) == pytest.approx(slope, rel=1e-6, abs=1e-8)
        Y = np.abs(W + move)
        assert term.value(Y) - volume <= quadratic(Y) - quadratic(W) + 1e-12


def test_of_two_minima_the_better_is_taken(rng):
    """Descent from the best single component, and from the best without the penalty."""
    W = rng.gamma(0.5, 1.0, (7, 4))
    C, pairs = rng.gamma(0.6, 1.0, (200, 4)) @ (W.T @ W), 1.5
    G = W.T @ W + pairs * (1 - np.eye(4))
    gains = C**2 / np.diagonal(G)
    alone = np.where(gains == gains.max(axis=1, keepdims=True), C / np.diagonal(G), 0)
    starts = alone, nnls(W.T @ W, C)
    values = [
        np.vecdot(Y @ G / 2 - C, Y)
        for Y in (
            *(hals(G, C, start, sweeps=3000, floor=0.0) for start in starts),
            best_rows(W.T @ W, C, Term(pairs=pairs), simplex=False),
        )
    ]
    limit = 1e-9 * np.abs(values[2])
    assert (values[2] <= values[0] + limit).all()
    assert (values[2] <= values[1] + limit).all()
    assert (values[0] < values[1] - limit).any()
    assert (values[1] < values[0] - limit).any()


def test_fractional_weights_of_samples_take_no_penalty_that_depends_on_them(X, refuses):
    weighed = weigh_samples(from_rows(X), np.linspace(0.5, 1.5, 60))
    repeated = weigh_samples(from_rows(X), 1 + np.arange(60) % 2)
    l1, sums = Penalties(l1_h=0.1, l1_w=0.1), Penalties(sum_to_one=True, min_volume=1e-5)
    for penalties in (l1, sums):
        words = "sample_weight.* works with L2 penalties on coefficients, but not with L1"
        refuses(OptionError, words, factorize, weighed, 3, penalties=penalties)
        factorize(repeated, 3, penalties=penalties, max_iter=1)
    factorize(weighed, 3, penalties=Penalties(l2_h=0.1, l1_w=0.1), max_iter=1)


def test_columns_have_unit_length_where_one_factor_alone_is_penalised():
    """An L1 penalty on one factor and an L2 penalty on the other fix the scale as well."""
    for name, is_fixed in (
        ("l1_h l1_w", False),
        ("l1_h l2_w", False),
        ("l2_h l1_w", False),
        ("l2_h l2_w", False),
        ("l1_h l2_h", True),
        ("l1_w l2_w", True),
        ("orthogonality", True),
        ("min_volume", True),
        ("l1_h orthogonality", True),
        ("l1_h l1_w orthogonality", False),
        ("sum_to_one", False),
    ):
        given = dict.fromkeys(name.split(), 0.1) | {"sum_to_one": name == "sum_to_one"}
        assert Penalties(**given).fixes_columns == is_fixed, name
    assert not Penalties().fixes_columns


def test_an_unused_column_is_zero_only_if_that_pays():
    def update(term, n_kept):
        zeros, ones = np.zeros((2, 2)), np.ones((3, 2))
        same = {"update": lambda G, C, Y: Y, "term": term, "n_kept": n_kept}
        return penalised_update(zeros, np.zeros((3, 2)), ones, **same)

    np.testing.assert_array_equal(update(Term(l1=0.1), 0), np.zeros((3, 2)))
    np.testing.assert_array_equal(update(Term(l1=0.1), 1), np.ones((3, 2)) * [1, 0])
    np.testing.assert_array_equal(update(Term(l1=0.1), None), np.ones((3, 2)))
    np.testing.assert_array_equal(update(Term(pairs=0.1), 0), np.ones((3, 2)))  # it costs nothing


def test_inits_of_problems_with_restrictions(X):
    V, hals = from_rows(X), SOLVERS["hals"]
    given, sums = Fixed(X[:1].T), Penalties(sum_to_one=True)
    volume = Penalties(sum_to_one=True, min_volume=1e-5)
    for penalties, fixed, K, first in (
        (Penalties(), None, 4, "nndsvd"),
        (Penalties(), given, 4, "nndsvd"),
        (Penalties(), given, 3, "rank-two"),  # two others
        (Penalties(), given, 2, "cr1"),
        (sums, None, 4, "snpa"),
        (volume, None, 15, "simplex"),  # as many as features
        (volume, None, 16, "snpa"),
        (volume, given, 4, "snpa"),
    ):
        problem = Problem(FROBENIUS, penalties, fixed)
        assert problem.inits(V, K, hals)[0] == first


def test_known_components_are_in_the_units_of_the_data(X, refuses):
    words = "fixed components are from .* times as large as the data: give them in the units"
    for dtype, size in ((np.float32, 1e16), (np.float32, 1e-17), (float, 1e101)):
        V = from_rows(X.astype(dtype))
        refuses(DataError, words, factorize, V, 3, fixed=size * X[:1].T)
    factorize(from_rows(X), 3, fixed=1e16 * X[:1].T, max_iter=1)


@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1.0])
def test_sums_of_one_where_rows_have_other_matrices_of_any_scale(scale):
    """Rows whose matrices are 1e20 times as large as those of others changed these before."""
    rng = np.random.default_rng(0)
    Z = rng.random((30, 7, 4)) * scale
    Z[0] *= 1e10
    X = np.einsum("nfk,nk->nf", Z, rng.dirichlet(np.ones(4), 30)) * rng.uniform(0.8, 1.2, (30, 7))
    G, C = np.einsum("nfj,nfk->njk", Z, Z), np.einsum("nfk,nf->nk", Z, X)
    rows = sum_to_one(G, C)
    for n in range(30):
        alone = sum_to_one(G[n] / np.trace(G[n]), C[n : n + 1] / np.trace(G[n]))
        np.testing.assert_allclose(rows[n], alone[0], atol=1e-6)  # of a sum of one


@pytest.mark.filterwarnings("ignore:sum_to_one")
@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1.0])
@pytest.mark.parametrize("seed", [1, 6, 11, 14])
def test_abundances_with_holes_are_better_than_others_at_any_scale(seed, scale):
    """Entries that no sample with the feature uses may grow to 1e12 times the data."""
    rng = np.random.default_rng(seed)
    N, F = rng.integers(8, 40, 2)
    X = rng.gamma(0.5, 1, (N, 4)) @ rng.gamma(0.5, 1, (4, F)) * scale
    mask = rng.random((N, F)) < 0.6
    mask[:, 0] = True
    V = from_rows(X, mask=mask)
    result = factorize(
        V, 3, penalties=Penalties(sum_to_one=True), max_iter=20, init="random", rng=rng
    )
    left = (mask * (X - result.H.T @ result.W.T) ** 2).sum(axis=1)
    for _ in range(100):
        others = rng.dirichlet(np.full(3, 0.4), N) @ result.W.T
        better = left - (mask * (X - others) ** 2).sum(axis=1)
        assert (better <= 1e-9 * (mask * X**2).sum(axis=1)).all()


@pytest.mark.parametrize("name", ["cr1", "simplex"])
def test_the_automatic_weight_of_the_volume_does_not_depend_on_the_init(rng, name):
    """It is that of the simplex of largest likelihood, which the init "simplex" has already."""
    X = rng.dirichlet(np.ones(3), 300) @ rng.random((3, 12)) + 0.01 * rng.random((300, 12))
    V = from_rows(X)
    problem = Problem(penalties=Penalties(min_volume="auto", sum_to_one=True))
    W = simplex(V, 3)
    start = Start(W if name == "simplex" else X[:3].T, None, name)
    weight = problem.weighed(start, Spectrum(V)).penalties.min_volume
    assert weight == pytest.approx(volume_weight(V, W), rel=1e-12)
    assert weight > 0

"""Stability, limits and displacement with known components and penalties, against plain NumPy."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import (
    ConeNMF,
    Factorization,
    Problem,
    certify,
    components_for,
    diagnose,
    factorize,
    from_columns,
    from_rows,
    select_k,
    stability,
    uniqueness,
)
from conenmf.errors import (
    CheckpointError,
    ComponentsError,
    ConeNMFError,
    DataError,
    NotAvailableError,
    OptionError,
)
from conenmf.judge.displacement import displacement
from conenmf.judge.limits import entry_limits, moved_ranges
from conenmf.judge.matching import match_components
from conenmf.judge.stability import stability_over
from conenmf.solve.constraints import Penalties

F, N, K = 15, 60, 3
BOTH = Penalties(l1_h=0.2, l2_h=0.1, l1_w=0.1, l2_w=0.3)
PROBLEMS = {
    "known": (None, 1),
    "penalties": (BOTH, 0),
    "known and penalties": (BOTH, 1),
}


@pytest.fixture(scope="module")
def mixed():
    """Samples (F, N) of three components without common features, and these components."""
    rng = np.random.default_rng(0)
    W = np.kron(np.eye(K), np.ones((F // K, 1))) * (0.5 + rng.random((F, K)))
    V = W @ (0.05 + rng.dirichlet(np.full(K, 0.3), N).T * 4)
    return V * (1 + 0.1 * rng.standard_normal((F, N))), W


def minimise(V, W, n_fixed, penalties, n_iter=400):
    """Alternate over columns of W and rows of H; the plainest descent that there is."""
    p = penalties or Penalties()
    W = W.copy()
    H = np.ones((W.shape[1], V.shape[1]))
    for _ in range(n_iter):
        for k in range(W.shape[1]):
            rest = V - W @ H + np.outer(W[:, k], H[k])
            H[k] = np.maximum(W[:, k] @ rest - p.l1_h, 0) / (W[:, k] @ W[:, k] + p.l2_h)
        for k in range(n_fixed, W.shape[1]):
            rest = V - W @ H + np.outer(W[:, k], H[k])
            W[:, k] = np.maximum(rest @ H[k] - p.l1_w, 0) / (H[k] @ H[k] + p.l2_w)
    added = 2 * p.l1_h * H.sum() + p.l2_h * (H**2).sum()
    added += 2 * p.l1_w * W.sum() + p.l2_w * (W**2).sum()
    return ((V - W @ H) ** 2).sum() + added, W, H


def problem_of(mixed, name):
    penalties, n_fixed = PROBLEMS[name]
    return Problem(penalties=penalties, fixed=mixed[1][:, :n_fixed] if n_fixed else None)


@pytest.mark.parametrize("name", PROBLEMS)
def test_runs_from_random_inits_end_where_plain_descent_ends(mixed, name):
    V, W = mixed
    penalties, n_fixed = PROBLEMS[name]
    objective, expected, _ = minimise(V, W, n_fixed, penalties, 5000)
    found = stability(
        from_columns(V),
        K,
        4,
        problem=problem_of(mixed, name),
        resample="start",
        tol=1e-9,
        max_iter=2000,
    )
    order, cosines = match_components(expected, found.best_run)
    for W in (found.best_run, found.W):
        value, *_ = minimise(V, W, K, penalties)  # only H moves
        added = 0 if penalties is None else 2 * penalties.l1_w * W.sum()
        added += 0 if penalties is None else penalties.l2_w * (W**2).sum()
        assert value == pytest.approx(objective, rel=1e-5)
    np.testing.assert_array_equal(found.W[:, :n_fixed], expected[:, :n_fixed])
    if penalties is not None:  # otherwise several components have the same error
        assert cosines.min() > 1 - 1e-6
        np.testing.assert_allclose(found.W[:, order], expected, rtol=0.01, atol=1e-3)


def aligned_spread(W, spectra):
    """The standard deviation over runs of components of sum one, in the order of W."""
    runs = [run[:, match_components(W, run)[0]] for run in spectra]
    return np.std([run / run.sum(axis=0) for run in runs], axis=0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_resampled_runs_scatter_as_those_of_plain_descent(mixed, name):
    V, W = mixed
    penalties, n_fixed = PROBLEMS[name]
    rng = np.random.default_rng(1)
    draws = [V[:, rng.integers(N, size=N)] for _ in range(30)]
    runs = np.array([minimise(draw, W, n_fixed, penalties)[1] for draw in draws])
    found = stability(from_columns(V), K, 30, problem=problem_of(mixed, name))
    expected, own = (aligned_spread(W, spectra)[:, n_fixed:] for spectra in (runs, found.spectra))
    clear = expected > 1e-4
    ratios = own / expected
    # a standard deviation of 30 values has a relative error of 13 %, a ratio of two such 18 %, and
    # the median of ten about 7 %
    assert clear.sum() >= 10
    assert np.median(ratios[clear]) == pytest.approx(1, abs=0.2)
    assert found.verdict == "stable"
    assert (found.cosines[:, :n_fixed] > 1 - 1e-9).all()


def test_limits_of_a_known_component_are_its_entries(mixed):
    V, W = mixed
    found = stability(from_columns(V), K, 6, problem=Problem(fixed=W[:, :1]))
    np.testing.assert_allclose(found.lower[:, 0], W[:, 0], rtol=1e-9)
    np.testing.assert_allclose(found.upper[:, 0], W[:, 0], rtol=1e-9)
    assert found.moves[0] < 1e-6
    assert (found.upper[:, 1:] > found.lower[:, 1:]).all()
    assert found.withheld[0] == ""


def test_moves_keep_known_components_and_sums_of_one():
    rng = np.random.default_rng(0)
    W = rng.random((8, 3))
    H = rng.dirichlet([4, 4, 4], 200).T
    X = W @ H + 1e-3 * rng.standard_normal((8, 200))
    steps = np.full((3, 3), 0.01)
    free = moved_ranges(X, W, H, steps, Problem(penalties=Penalties(sum_to_one=True)))
    known = Problem(penalties=Penalties(sum_to_one=True), fixed=W[:, :1])
    held = moved_ranges(X, W, H, steps, known)
    assert (free.angles > 0.02).all()
    assert held.angles[0] < 1e-7
    assert (held.angles <= free.angles + 0.05).all()
    assert (held.angles[1:] > 0.01).all()


def test_a_scene_has_limits_in_its_own_units():
    """Coefficients that sum to one fix the size of components, so limits contain the true ones."""
    rng = np.random.default_rng(0)
    spectra = rng.random((3, 12))
    mixtures = rng.dirichlet(np.full(3, 0.5), 200) @ spectra
    V = from_rows(mixtures + 0.005 * rng.standard_normal((200, 12)), negative="keep")
    problem = Problem(penalties=Penalties(sum_to_one=True, min_volume="auto"))
    found = stability(V, 3, 8, problem=problem)
    np.testing.assert_allclose(found.H.sum(axis=0), 1, atol=1e-6)
    order = match_components(found.W, spectra.T)[0]
    truth = spectra.T[:, order]
    assert ((found.lower <= truth) & (truth <= found.upper)).mean() > 0.8
    np.testing.assert_allclose(found.W, truth, atol=0.1)


def test_the_range_of_numbers_begins_above_the_known_ones(mixed):
    V, W = mixed
    found = stability_over(from_columns(V), [3], 4, problem=Problem(fixed=W[:, :2]))
    assert found.K == 3
    with pytest.raises(ComponentsError, match="all 2 components are known"):
        stability(from_columns(V), 2, 4, problem=Problem(fixed=W[:, :2]))
    with pytest.raises(ComponentsError, match="3 components are fixed, more than the 2"):
        stability(from_columns(V), 2, 4, problem=Problem(fixed=W))
    with pytest.raises(ComponentsError, match="3 components are fixed, more than the 2 that are"):
        select_k(from_columns(V), [1, 2], problem=Problem(fixed=W))


def test_the_model_passes_its_constraints_on(mixed):
    V, W = mixed
    model = ConeNMF(K, fixed=W[:, :1].T, alpha_W=1e-3, tol=1e-6)
    found = model.stability(V.T, 4)
    np.testing.assert_array_equal(found.W[:, 0], W[:, 0])
    assert found.verdict == "stable"


def test_a_checkpoint_of_another_problem_is_refused(mixed, tmp_path):
    V, W = mixed
    here = {"checkpoint": tmp_path / "runs", "max_iter": 5}
    first = stability(from_columns(V), K, 3, problem=Problem(penalties=BOTH), **here)
    again = stability(from_columns(V), K, 3, problem=Problem(penalties=BOTH), **here)
    np.testing.assert_array_equal(first.spectra, again.spectra)
    with pytest.raises(CheckpointError, match="its penalties is"):
        stability(from_columns(V), K, 3, **here)
    problem = Problem(penalties=BOTH, fixed=W[:, :1])
    with pytest.raises(CheckpointError, match="fixed components"):
        stability(from_columns(V), K, 3, problem=problem, **here)


# --- displacement -----------------------------------------------------------------------------


def least_rise(V, W, n_fixed, penalties, entry, share):
    """The objective if one entry keeps a share of its component, by plain projected descent."""
    f, k = entry

    def held(w):
        others = np.delete(w, f)
        return np.insert(others, f, share / (1 - share) * others.sum())

    p = penalties or Penalties()
    W = W.copy()
    W[:, k] = held(W[:, k])
    _, _, H = minimise(V, W, W.shape[1], penalties)
    best = np.inf
    for _ in range(300):
        for j in range(n_fixed, W.shape[1]):
            rest = V - W @ H + np.outer(W[:, j], H[j])
            a, b = H[j] @ H[j] + p.l2_w, rest @ H[j] - p.l1_w
            if j != k:
                W[:, j] = np.maximum(b, 0) / a
                continue
            ratio = share / (1 - share)
            low, high = -abs(b).sum() * (1 + ratio) - 1, b.max()
            for _ in range(100):  # bisection over the common multiplier of the other entries
                m = (low + high) / 2
                others = np.maximum(np.delete(b, f) - m, 0) / a
                is_low = a * ratio**2 * others.sum() - b[f] * ratio > m
                low, high = (m, high) if is_low else (low, m)
            W[:, j] = np.insert(others, f, ratio * others.sum())
        for j in range(W.shape[1]):
            rest = V - W @ H + np.outer(W[:, j], H[j])
            H[j] = np.maximum(W[:, j] @ rest - p.l1_h, 0) / (W[:, j] @ W[:, j] + p.l2_h)
        added = 2 * p.l1_h * H.sum() + p.l2_h * (H**2).sum()
        added += 2 * p.l1_w * W.sum() + p.l2_w * (W**2).sum()
        best = min(best, ((V - W @ H) ** 2).sum() + added)
    return best


@pytest.mark.parametrize("name", PROBLEMS)
def test_displacement_ends_where_the_penalised_sum_has_risen(mixed, name):
    V, _ = mixed
    penalties, n_fixed = PROBLEMS[name]
    problem = problem_of(mixed, name)
    fit = factorize(
        from_columns(V), K, fixed=problem.fixed, penalties=penalties, tol=1e-10, max_iter=3000
    )
    rise = 0.5
    found = displacement(from_columns(V), fit.W, fit.H, [rise], features=[1], problem=fit.problem)
    assert found.Q == pytest.approx(fit.objective, rel=1e-4)
    for k in range(n_fixed, K):
        for limit in (found.lower[0, 1, k], found.upper[0, 1, k]):
            if 0.0 < limit < 1.0:
                value = least_rise(V, fit.W, n_fixed, penalties, (1, k), limit)
                # roots are found to 3 %, so a rise to 6 %, and each fit to 1e-3
                assert value - found.Q == pytest.approx(rise, rel=0.1)
    for k in range(n_fixed):
        np.testing.assert_array_equal(found.lower[0, 1, k], found.W[1, k])


def test_displacement_refuses_what_fixes_the_length_of_components(mixed):
    V, W = mixed
    H = np.ones((K, N))
    for penalties in (Penalties(l1_h=0.1), Penalties(min_volume=0.1, sum_to_one=True)):
        with pytest.raises(NotAvailableError, match="needs components of any length"):
            displacement(from_columns(V), W, H, problem=Problem(penalties=penalties))
    with pytest.raises(NotAvailableError, match="Q is for least squares"):
        displacement(from_columns(V), W, H, problem=Problem("poisson"))


# --- the problem itself -----------------------------------------------------------------------


def test_a_result_has_its_problem(mixed, reloaded):
    V, W = mixed
    result = factorize(from_columns(V), K, fixed=W[:, :1], penalties=BOTH, max_iter=5)
    for one in (result, reloaded(result)):
        assert one.problem.loss.name == one.loss == "frobenius"
        assert one.problem.penalties == BOTH
        assert one.problem.entries.are_whole
        np.testing.assert_array_equal(one.problem.fixed.W, W[:, :1])
    assert factorize(from_columns(V), K, max_iter=5).problem.is_plain


def test_known_components_of_a_data_frame_are_matched_by_name(mixed):
    pd = pytest.importorskip("pandas")
    V, W = mixed
    names = [f"band {f}" for f in range(F)]
    table = pd.DataFrame(W[:, :1], index=names).iloc[::-1]
    X = pd.DataFrame(V.T, columns=names)
    np.testing.assert_array_equal(Problem(fixed=table).bind(from_rows(X)).fixed.W, W[:, :1])


@pytest.mark.parametrize("fixed", ["oak", [[-1.0]], [1.0, 2.0], [[np.nan]]])
def test_known_components_are_nonnegative_columns(fixed):
    with pytest.raises(ConeNMFError, match="fixed"):
        Problem(fixed=fixed)


def test_a_loss_that_contradicts_the_problem_is_refused(mixed):
    V, _ = mixed
    with pytest.raises(OptionError, match="not the loss of the problem, 'frobenius'"):
        stability(from_columns(V), K, 4, loss="poisson", problem=Problem())
    with pytest.raises(OptionError, match="takes no penalties"):
        Problem("itakura-saito", BOTH).bind(from_columns(V + 1))


def test_entry_limits_of_equal_runs_are_the_entries():
    low, high = entry_limits(np.array([0.5]), np.full((4, 1), 0.5))
    assert (low, high) == (0.5, 0.5)


# --- the number of components -----------------------------------------------------------------


def hidden_error(V, known, K, penalties):
    """The error on hidden entries of plain fits to the others, mean over five splits."""
    rng = np.random.default_rng(0)
    p = penalties
    errors = []
    for split in range(5):
        M = (np.random.default_rng(9).integers(5, size=V.shape) != split).astype(float)
        W = np.hstack([known, rng.random((len(V), K - known.shape[1]))])
        H = rng.random((K, V.shape[1]))
        for _ in range(150):
            for k in range(K):
                R = M * (V - W @ H + np.outer(W[:, k], H[k]))
                a = M.T @ W[:, k] ** 2 + p.l2_h
                H[k] = np.maximum(R.T @ W[:, k] - p.l1_h, 0) / a
            for k in range(known.shape[1], K):
                R = M * (V - W @ H + np.outer(W[:, k], H[k]))
                W[:, k] = np.maximum(R @ H[k] - p.l1_w, 0) / (M @ H[k] ** 2 + p.l2_w)
        errors.append(np.linalg.norm((1 - M) * (V - W @ H)) / np.linalg.norm((1 - M) * V))
    return np.mean(errors)


def test_the_number_that_predicts_hidden_entries_includes_the_known_ones():
    rng = np.random.default_rng(3)
    W = rng.random((20, 4)) ** 3
    V = np.maximum(W @ rng.dirichlet(np.full(4, 0.3), 120).T, 0)
    V = np.maximum(V + 0.02 * rng.standard_normal(V.shape), 0)
    holes = from_rows(V.T, mask=rng.random(V.T.shape) < 0.85)
    problem = Problem(penalties=Penalties(l2_h=0.01, l2_w=0.01), fixed=W[:, :2])
    (evidence,) = select_k(holes, problem=problem).evidence
    assert (evidence.name, evidence.K) == ("hidden", 4)
    assert evidence.ks[0] == 2  # the known components
    plain = [hidden_error(V, W[:, :2], k, problem.penalties) for k in (2, 3, 4)]
    scores = dict(zip(evidence.ks, evidence.scores, strict=True))
    # with other splits, and 85 % of the entries
    np.testing.assert_allclose([scores[k] for k in (2, 3, 4)], plain, rtol=0.25)
    assert factorize(holes, "auto", fixed=W[:, :2], penalties=problem.penalties).K == 4


def test_no_fewer_components_are_chosen_than_are_known():
    rng = np.random.default_rng(0)
    V = from_columns(rng.random((30, 1)) @ rng.random((1, 40)))
    assert select_k(V).K == 1
    assert select_k(V, problem=Problem(fixed=rng.random((30, 2)))).K == 2


@pytest.fixture(scope="module")
def tables(mixed):
    """A table, the same with its columns in another order, and a known component with names."""
    V, W = mixed
    names = [f"band {f}" for f in range(F)]
    table = pd.DataFrame(V.clip(0).T, columns=names)
    known = pd.DataFrame(W[:, :1], index=names, columns=["soil"])
    return table, table.iloc[:, ::-1], known


def test_the_problem_of_a_fit_keeps_names(tables, tmp_path):
    table, turned, known = tables
    fit = factorize(table, K, fixed=known)
    assert fit.component_names == ("soil", "component 1", "component 2")
    fit.save(tmp_path / "fit.npz")
    loaded = Factorization.load(tmp_path / "fit.npz")
    for problem in (Problem(fixed=known), fit.problem, loaded.problem):
        given = certify(table, fit.W, fit.H, problem=problem)
        other = certify(turned, fit.W[::-1], fit.H, problem=problem)
        assert other.relative_error == pytest.approx(given.relative_error, rel=1e-9)
        found = stability(turned, K, 3, problem=problem, resample="start")
        np.testing.assert_array_equal(found.W[:, 0], fit.W[::-1, 0])
        assert components_for(turned, 0.2, problem=problem).high == K
    with pytest.raises(DataError, match="band 3"):
        stability(table.rename(columns={"band 3": "x"}), K, 3, problem=fit.problem)


def test_factors_begin_with_the_known_components_of_their_problem(mixed):
    V, W = mixed
    data = from_columns(V.clip(0))
    H = np.linalg.lstsq(W, V, rcond=None)[0].clip(0)
    problem = Problem(fixed=W[:, 1:2])
    for judge in (certify, uniqueness, diagnose, displacement):
        with pytest.raises(ComponentsError, match="W does not begin with the 1 known component"):
            judge(data, W, H, problem=problem)
    order = [1, 0, 2]
    assert certify(data, W[:, order].astype(np.float32), H[order], problem=problem, effort=0)


def test_components_for_weighs_the_volume_for_each_number(mixed):
    V, _ = mixed
    problem = Problem(penalties=Penalties(min_volume="auto"))
    found = components_for(V.clip(0).T, 0.2, problem=problem)
    fit = factorize(V.clip(0).T, found.high, penalties=problem.penalties)
    assert found.high == K
    assert found.errors[K] == pytest.approx(fit.relative_error, rel=1e-2)  # fewer iterations


GUESSED = {
    "both": Penalties(l2_h=0.1, l2_w=0.1, l1_w=0.1),
    "one factor": Penalties(l1_h=0.1),
    "orthogonality": Penalties(orthogonality=0.1),
    "volume": Penalties(min_volume="auto"),
    "sums": Penalties(sum_to_one=True, min_volume=1e-3),
}


@pytest.mark.parametrize("name", GUESSED)
def test_penalties_and_complete_data_that_allow_a_guess(name):
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, (30, 9)) + 1.0
    chosen = select_k(X, problem=Problem(penalties=GUESSED[name], fixed=rng.random((9, 1))))
    assert ("hidden" in [one.name for one in chosen.evidence]) == (name == "both")
    assert 1 <= chosen.K <= 9


def test_entries_of_complete_data_are_hidden_in_any_storage():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.8, (30, 9)).astype(float)
    X[:, 0] += 1
    problem = Problem(penalties=GUESSED["both"], fixed=rng.random((9, 1)))
    expected = select_k(X, [1, 2, 3], problem=problem)
    assert expected.evidence[-1].name == "hidden"
    for table in (sp.csr_array(X), da.from_array(X, chunks=(7, 9))):
        found = select_k(table, [1, 2, 3], problem=problem)
        np.testing.assert_allclose(
            found.evidence[-1].scores, expected.evidence[-1].scores, rtol=1e-6
        )  # fits of few iterations, in single precision at first


def test_a_volume_from_the_data_does_not_count_where_entries_are_missing():
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.ones(3), 60) @ rng.random((3, 9))
    V = from_rows(X, mask=rng.random(X.shape) < 0.85)
    scores = []
    for volume in (0.0, "auto"):
        problem = Problem(penalties=Penalties(sum_to_one=True, min_volume=volume))
        scores.append(select_k(V, [2, 3, 4], problem=problem).evidence[0].scores)
    np.testing.assert_array_equal(*scores)

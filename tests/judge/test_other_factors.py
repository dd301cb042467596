import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from conenmf import Uniqueness, factorize, from_columns, from_rows, uniqueness
from conenmf.errors import FactorError, NotADataMatrixError, NotAvailableError, OptionError
from conenmf.judge import other_factors
from conenmf.judge.metrics import match_components, unit_columns
from conenmf.judge.other_factors import _Found, exact_uniqueness
from conenmf.judge.uniqueness import between, component_freedom
from conenmf.judge.verdicts import MAX_ERROR_RATIO, VERDICTS
from conenmf.solve.constraints import Penalties
from conenmf.solve.goals import best_coefficients

SEEDS = st.integers(0, 2**32 - 1)
FIVE_DEGREES = np.radians(5)


def relative_error(V, W, H):
    return np.linalg.norm(V - W @ H) / np.linalg.norm(V)


def check_others(V, W, found, error):
    """Every component that can be moved has other factors that show it."""
    matrix = from_columns(V)
    for k, verdict in enumerate(found.verdicts):
        if verdict != "can be moved":
            with pytest.raises(NotAvailableError, match="none were found"):
                found.other(k)
            continue
        other = found.other(k)
        H = np.asarray(best_coefficients(matrix, other)[0])
        assert other.min() >= 0
        assert H.min() >= 0
        assert relative_error(V, other, H) <= MAX_ERROR_RATIO * error + 1e-12
        angles = between(unit_columns(W)[:, k, None], unit_columns(other))
        nearest = match_components(W, other)[0][k]
        if not found.freedom.spare[k]:
            nearest = angles.argmin()
        assert angles[nearest] == pytest.approx(found.angles[k], abs=1e-6)
        assert found.angles[k] >= FIVE_DEGREES
        moved = other[:, nearest]
        if not found.freedom.spare[k]:
            moved = moved * (W[:, k].sum() / moved.sum())
        assert (found.lower[:, k] <= moved + 1e-9 * moved.max()).all()
        assert (found.upper[:, k] >= moved - 1e-9 * moved.max()).all()


def mixtures(rng, noise=0.0, K=4, F=30, N=120):
    """Strictly positive factors: no sample is pure and no feature an anchor."""
    W, H = rng.random((F, K)) + 0.1, rng.dirichlet(np.full(K, 4.0), N).T + 0.02
    V = W @ H
    return W, H, np.maximum(V + noise * V.std() * rng.standard_normal(V.shape), 0)


# --- planted ----------------------------------------------------------------------------------


@given(SEEDS, st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=25)
def test_positive_factors_can_be_moved_and_others_show_it(seed, noise):
    rng = np.random.default_rng(seed)
    W, H, V = mixtures(rng, noise)
    if noise:
        result = factorize(from_columns(V), 4, rng=rng)
        W, H = result.W, np.asarray(result.H)
    found = uniqueness(from_columns(V), W, H)
    check_others(V, W, found, relative_error(V, W, H))
    if not noise:
        assert found.verdicts.count("can be moved") >= 3
        assert (found.freedom.radii >= found.angles).all()


@given(SEEDS)
@settings(max_examples=25)
def test_pure_samples_and_anchor_features_make_all_unique(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 6))
    W = np.vstack([np.diag(rng.random(K) + 0.5), rng.random((9, K))])[rng.permutation(K + 9)]
    H = np.hstack([np.diag(rng.random(K) + 0.5), rng.random((K, 20))])[:, rng.permutation(K + 20)]
    found = uniqueness(from_columns(W @ H), W, H)
    assert found.verdicts == ("unique",) * K
    assert found.others == {}
    np.testing.assert_allclose(found.lower, W, 0, 1e-6)
    np.testing.assert_allclose(found.upper, W, 0, 1e-6)


@given(SEEDS)
@settings(max_examples=25)
def test_what_is_unique_is_moved_by_no_factors_that_were_found(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 6))
    W = rng.random((3 * K, K)) * (rng.random((3 * K, K)) < 0.5)
    H = rng.random((K, 5 * K)) * (rng.random((K, 5 * K)) < 0.5)
    if not (W.any(axis=0).all() and H.any(axis=1).all()):
        return
    V = W @ H
    found = uniqueness(from_columns(V), W, H)
    check_others(V, W, found, relative_error(V, W, H))
    others = list(found.others.values())
    for k, verdict in enumerate(found.verdicts):
        if verdict == "unique":
            assert all(
                between(unit_columns(W)[:, k, None], unit_columns(other)).min() < 1e-6
                for other in others
            )


def test_one_component_is_unique():
    rng = np.random.default_rng(0)
    W, H = rng.random((6, 1)), rng.random((1, 9))
    found = uniqueness(from_columns(W @ H), W, H)
    assert found.verdicts == ("unique",)
    assert found.in_words(0) == "unique: exact factors of WH move it by at most 0.01°"


@pytest.mark.parametrize("kind", ["zero", "unused", "twice", "used alike"])
def test_spare_components_may_be_anything(kind):
    rng = np.random.default_rng(0)
    W = np.vstack([np.eye(3), rng.random((5, 3))])
    H = np.hstack([np.eye(3), rng.random((3, 9))])
    if kind == "zero":
        W[:, 2] = 0
    elif kind == "unused":
        H[2] = 0
    elif kind == "twice":
        W[:, 2] = 0.3 * W[:, 1]
    else:
        H[2] = 0.3 * H[1]
    found = uniqueness(from_columns(W @ H), W, H)
    assert found.verdicts[2] == "can be moved"
    assert "to anything" in found.in_words(2)
    H_other = np.asarray(best_coefficients(from_columns(W @ H), found.other(2))[0])
    np.testing.assert_allclose(found.other(2) @ H_other, W @ H, 0, 1e-9)
    assert found.lower[:, 2].max() == 0


def test_noise_lets_components_move_that_are_unique_without_it():
    rng = np.random.default_rng(1)
    W = np.vstack([np.eye(3), rng.random((20, 3))])
    H = np.hstack([np.eye(3), rng.dirichlet(np.ones(3), 60).T])
    noisy = np.maximum(W @ H + 0.4 * rng.standard_normal((23, 63)), 0)
    assert uniqueness(from_columns(W @ H), W, H).verdicts == ("unique",) * 3
    found = uniqueness(from_columns(noisy), W, H)
    assert found.verdicts == ("can be moved",) * 3
    assert (found.freedom.radii < 1e-6).all()
    assert "exact factors of WH move it by at most 0.01°" in found.in_words(0)
    check_others(noisy, W, found, relative_error(noisy, W, _best(noisy, W)))


def _best(V, W):
    return np.asarray(best_coefficients(from_columns(V), W)[0])


def test_a_component_that_both_factors_have_is_not_moved():
    # Paired by the sum of cosines, component 0 belongs to the second one of the others.
    degrees = np.radians([[30, 75], [30, 0]])
    W, other = (np.stack([np.cos(one), np.sin(one)]) for one in degrees)
    assert match_components(W, other)[0].tolist() == [1, 0]
    found = _Found(W, component_freedom(from_columns(np.ones((2, 3))), W, np.eye(2, 3) + 1), 0)
    found.add(other, 1.0)
    np.testing.assert_allclose(np.degrees(found.angles), [0, 45], 0, 1e-9)


@given(SEEDS)
@settings(max_examples=8)
def test_factors_whose_coefficients_sum_to_one_have_the_error_that_is_said(seed):
    rng = np.random.default_rng(seed)
    W, H = rng.random((30, 3)) + 0.1, rng.dirichlet(np.full(3, 4.0), 150).T
    scene = np.maximum(0.9 * W @ H + 0.02 * rng.standard_normal((30, 150)), 0)
    abundances = Penalties(sum_to_one=True)
    result = factorize(from_columns(scene), 3, penalties=abundances, rng=rng)
    found = result.uniqueness()
    for k in found.others:
        H_other, _, squared = best_coefficients(
            from_columns(scene), found.other(k), penalties=abundances
        )
        np.testing.assert_allclose(np.asarray(H_other).sum(axis=0), 1)
        error = np.sqrt(squared) / np.linalg.norm(scene)
        assert error <= 1.00005 * result.relative_error
        assert error == pytest.approx(found.error_ratios[k] * result.relative_error, rel=1e-6)


# --- the thorough search ------------------------------------------------------------------------


def test_a_thorough_search_moves_what_a_short_one_does_not():
    V = from_rows(load_digits().data)
    result = factorize(V, 6)
    short = result.uniqueness()
    assert "undecided" in short.verdicts
    assert "not found to move" not in short.verdicts  # it did not look everywhere
    assert result.uniqueness() is short
    found = result.uniqueness(thorough=True)
    assert found is result.uniqueness()
    assert found.verdicts.count("can be moved") > short.verdicts.count("can be moved")
    X = load_digits().data.T
    check_others(X, result.W, found, relative_error(X, result.W, np.asarray(result.H)))


def test_what_a_thorough_search_does_not_move_is_not_called_unique():
    rng = np.random.default_rng(0)
    W, H = rng.random((60, 5)) + 0.05, rng.dirichlet(np.full(5, 3.0), 400).T
    W[:5], H[:, :5] = np.eye(5), np.eye(5)
    V = W @ H
    V = from_columns(np.maximum(V + 0.1 * V.std() * rng.standard_normal(V.shape), 0))
    result = factorize(V, 5)
    found = uniqueness(V, result.W, result.H, thorough=True)
    assert found.verdicts.count("not found to move") >= 3
    for k in range(5):
        if found.verdicts[k] == "not found to move":
            assert found.freedom.radii[k] > np.radians(1)
            assert found.directions[k] == 28
            assert found.in_words(k).endswith("in 28 directions; no proof")
    again = Uniqueness.from_arrays(found.arrays(), 60, 5)
    assert again.lines() == found.lines()
    older = {
        name: value
        for name, value in found.arrays().items()
        if name not in ("directions", "freedom_radii")
    }
    assert set(Uniqueness.from_arrays(older, 60, 5).verdicts) == {"undecided"}


def test_sliding_moves_what_no_direction_does(monkeypatch):
    rng = np.random.default_rng(152)
    K, F, N = (int(rng.integers(*limits)) for limits in ((2, 5), (8, 25), (30, 80)))
    W = rng.random((F, K)) * (rng.random((F, K)) < rng.choice([0.5, 0.8, 1.0]))
    W += 0.01 * rng.integers(0, 2)
    V = W @ rng.dirichlet(np.full(K, rng.choice([0.2, 0.5, 1.0])), N).T
    noise = rng.choice([0.01, 0.05, 0.2]) * V.std()
    V = np.maximum(V + noise * rng.standard_normal(V.shape), 0)
    result = factorize(from_columns(V), K, tol=1e-7, max_iter=2000)
    found = uniqueness(from_columns(V), result.W, result.H, thorough=True)
    check_others(V, result.W, found, relative_error(V, result.W, np.asarray(result.H)))
    monkeypatch.setattr(other_factors, "_SLIDING", 0)
    less = uniqueness(from_columns(V), result.W, result.H, thorough=True)
    assert less.verdicts.count("can be moved") < found.verdicts.count("can be moved")


def test_exact_fits_are_not_searched():
    # 0.1 % of an error that is all rounding means nothing.
    rng = np.random.default_rng(0)
    W = rng.random((12, 3)) * (rng.random((12, 3)) < 0.7)
    H = rng.random((3, 30)) * (rng.random((3, 30)) < 0.7)
    found = uniqueness(from_columns(W @ H), W, H, thorough=True)
    assert not found.directions.any()


# --- losses, storages, costs --------------------------------------------------------------------


def test_counts(main_backend):
    rng = np.random.default_rng(0)
    W, H, _ = mixtures(rng, K=3)
    counts = rng.poisson(60 * W @ H).astype(float)
    V = main_backend(counts)
    result = factorize(V, 3, loss="poisson", init="random", rng=np.random.default_rng(0))
    found = result.uniqueness()
    assert found is result.uniqueness()
    assert "can be moved" in found.verdicts
    for k in found.others:
        divergence = best_coefficients(V, found.other(k), "poisson")[2]
        assert divergence <= MAX_ERROR_RATIO * result.objective * (1 + 1e-9)
        assert found.error_ratios[k] == pytest.approx(divergence / result.objective, rel=1e-6)


def test_every_storage_has_the_same_verdicts(main_backend, small_blocks):
    W, H, V = mixtures(np.random.default_rng(4), 0.2)
    expected = uniqueness(from_columns(V, **small_blocks), W, H)
    X = main_backend(V)
    found = uniqueness(X, W, X.align(np.ascontiguousarray(H.T)).T)
    assert found.verdicts == expected.verdicts
    np.testing.assert_allclose(found.angles, expected.angles, 0, 1e-6)
    np.testing.assert_allclose(found.upper, expected.upper, 1e-5, 1e-9)


def test_single_precision_has_the_same_verdicts():
    W, H, V = mixtures(np.random.default_rng(4), 0.2)
    expected = uniqueness(from_columns(V), W, H)
    found = uniqueness(from_columns(V.astype(np.float32)), W, H)
    assert found.verdicts == expected.verdicts


def test_what_it_costs():
    W, H, V = mixtures(np.random.default_rng(4), 0.2, K=5)
    X = from_columns(V)
    passes = X.passes
    found = uniqueness(X, W, H)
    assert X.passes - passes == found.passes
    # two trials of each component are checked, and share at most 12 iterations each
    assert found.passes <= 1 + 2 * 5 + 2 * (12 + 1) + 5
    passes = X.passes
    exact = uniqueness(X, W, H, max_iter=0)
    assert X.passes - passes <= 1 + 5
    assert not exact.was_searched
    passes = X.passes
    again = exact_uniqueness(W, component_freedom(X, W, H))
    assert X.passes == passes
    assert again.verdicts == exact.verdicts
    np.testing.assert_allclose(again.upper, exact.upper)


def test_given_components_stay_and_are_not_judged():
    W, H, V = mixtures(np.random.default_rng(4), 0.2)
    found = uniqueness(from_columns(V), W, H, n_given=2)
    assert found.verdicts[:2] == ("given", "given")
    assert found.in_words(1) == "given, and so not judged"
    assert set(found.verdicts[2:]) <= set(VERDICTS[:4])
    for other in found.others.values():
        np.testing.assert_allclose(other[:, :2], W[:, :2])
    np.testing.assert_array_equal(found.lower[:, :2], W[:, :2])
    result = factorize(from_columns(V), 4, fixed=W[:, :2])
    assert result.uniqueness().verdicts[:2] == ("given", "given")


def test_bad_arguments():
    V = from_columns(np.ones((4, 5)))
    with pytest.raises(NotADataMatrixError):
        uniqueness(np.ones((4, 5)), np.ones((4, 1)), np.ones((1, 5)))
    with pytest.raises(FactorError):
        uniqueness(V, np.ones((3, 1)), np.ones((1, 5)))
    with pytest.raises(OptionError):
        uniqueness(V, np.ones((4, 1)), np.ones((1, 5)), loss="zebra")


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_missing_entries(loss):
    rng = np.random.default_rng(2)
    W, H, _ = mixtures(rng, K=3)
    V = rng.poisson(60 * W @ H).astype(float)
    mask = rng.random(V.shape) < 0.9
    result = factorize(from_columns(V, mask=mask), 3, loss=loss, init=W)
    found = result.uniqueness()
    assert "can be moved" in found.verdicts
    assert (found.error_ratios[list(found.others)] <= MAX_ERROR_RATIO).all()

"""Unique components: proofs, factors with the same product or error, freedom, and searches."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.datasets import load_digits
from tests import pairs

from conenmf import Problem, factorize, from_columns, uniqueness
from conenmf.data.blocks import unit_columns
from conenmf.errors import NotAvailableError
from conenmf.judge import uniqueness as module
from conenmf.judge.matching import match_components
from conenmf.judge.uniqueness import (
    MAX_ERROR_RATIO,
    UNIQUE_RADIUS,
    VERDICTS,
    Uniqueness,
    between,
    uniqueness_radii,
)
from conenmf.scale.checkpoint import arrays_of, part_of
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses import FROBENIUS, POISSON

SEEDS = st.integers(0, 2**32 - 1)


def verdicts_of(W, H):
    """Return the verdicts on exact factors, without a search."""
    return uniqueness(from_columns(np.ones((len(W), H.shape[1]))), W, H, max_iter=0)


def turn(W, H, exchange, k):
    """Return the factors with component k turned: W H stays the same."""
    norms = np.linalg.norm(W, axis=0)
    t = norms[k] * np.divide(exchange[:, k], norms, out=np.zeros_like(norms), where=norms > 0)
    W = np.array(W)
    W[:, k] = np.maximum(W[:, k] + W @ t, 0)
    return W, np.maximum(H - np.outer(t, H[k]), 0)


def best(V, W):
    """The exact coefficients of these components."""
    return np.asarray(FROBENIUS.coefficients(V, W)[0])


def angle(a, b):
    return np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))


@st.composite
def factors(draw, least=1):
    """Factors of any scale, dense or with zeros: few of them, so that turns remain."""
    rng = np.random.default_rng(draw(SEEDS))
    F, N, K = draw(st.integers(2, 8)), draw(st.integers(2, 12)), draw(st.integers(least, 6))
    W, H = rng.exponential(size=(F, K)), rng.exponential(size=(K, N))
    W *= rng.random((F, K)) >= draw(st.sampled_from([0, 0.1, 0.3]))
    H *= rng.random((K, N)) >= draw(st.sampled_from([0, 0.1, 0.3]))
    scale = 10.0 ** rng.integers(-9, 9, K)
    return W * scale, H / scale[:, None]


# --- the theorem ------------------------------------------------------------------------------


@given(factors())
def test_turned_factors_are_others_with_the_same_product(pair):
    W, H = pair
    freedom = verdicts_of(W, H)
    K = W.shape[1]
    for k in np.flatnonzero(~freedom.spare):
        W_turned, H_turned = turn(W, H, freedom.exchange, k)
        assert min(W_turned.min(), H_turned.min()) >= 0
        product = W @ H
        np.testing.assert_allclose(W_turned @ H_turned, product, 0, 1e-12 * product.max())
        others = np.arange(K) != k
        np.testing.assert_array_equal(W_turned[:, others], W[:, others])
        np.testing.assert_array_equal(H_turned[k], H[k])
        moved = between(unit_columns(W)[:, [k]], unit_columns(W_turned)).min()
        assert moved == pytest.approx(freedom.angles[k], abs=1e-7)


@given(factors(least=2))
def test_no_turn_along_one_component_is_larger(pair):
    W, H = pair
    freedom = verdicts_of(W, H)
    for l in np.flatnonzero(~freedom.spare):
        farthest = angle(W[:, l], turn(W, H, freedom.exchange, l)[0][:, l])
        for k in np.flatnonzero((np.arange(W.shape[1]) != l) & (W.max(axis=0) > 0)):
            added = (H[k] / np.where(H[l] > 0, H[l], np.nan))[H[l] > 0].min()
            subtracted = (W[:, l][W[:, k] > 0] / W[:, k][W[:, k] > 0]).min()
            for t in (added, -subtracted):
                w = W[:, l] + t * W[:, k]
                if np.linalg.norm(w) > 1e-3 * np.linalg.norm(W[:, l]):
                    assert farthest >= angle(W[:, l], w) - 2e-4


def test_several_components_turn_one_farther_than_any_alone():
    W = np.eye(4)
    freedom = verdicts_of(W, np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0], [3.0, 1.0]]))
    # Component 0 takes one of each other: (1, 1, 1, 1) instead of (1, 0, 0, 0).
    assert freedom.angles[0] == pytest.approx(np.pi / 3)
    np.testing.assert_allclose(freedom.exchange[:, 0], [0, 1, 1, 1])


# --- spare components -------------------------------------------------------------------------


RNG = np.random.default_rng(0)
PLAIN_W = np.vstack([np.eye(3), RNG.random((5, 3))])
PLAIN_H = np.hstack([np.eye(3), RNG.random((3, 9))])
SPARE = {
    "no sample uses it": (PLAIN_W, PLAIN_H * [[1], [0], [1]], [1]),
    "zero": (PLAIN_W * [1, 1, 0], PLAIN_H, [2]),
    "a multiple of another": (
        PLAIN_W[:, [0, 1, 2, 1]] * [1, 1, 1, 0.3],
        np.vstack([PLAIN_H, RNG.random(12)]),
        [1, 3],
    ),
    "used like another": (np.eye(4), PLAIN_H[[0, 1, 2, 1]] * [[1], [1], [1], [0.3]], [1, 3]),
}


@pytest.mark.parametrize("kind", SPARE)
def test_a_spare_component_may_be_any_nonnegative_vector(kind):
    W, H, expected = SPARE[kind]
    V = from_columns(W @ H)
    freedom, found = verdicts_of(W, H), uniqueness(V, W, H)
    assert np.flatnonzero(freedom.spare).tolist() == expected
    for k in expected:
        rest = np.delete(np.arange(W.shape[1]), k)
        of_components = max(nnls(W[:, rest], v)[1] for v in (W @ H).T)
        of_coefficients = max(nnls(H[rest].T, v)[1] for v in W @ H)
        assert min(of_components, of_coefficients) < 1e-12
        assert freedom.angles[k] == pytest.approx(np.arccos(unit_columns(W)[:, k].min()))
        assert found.verdicts[k] == "can be moved"
        assert "anywhere" in freedom.in_words(k)
        assert "anywhere" in found.in_words(k)
        np.testing.assert_allclose(found.other(k) @ best(V, found.other(k)), W @ H, 0, 1e-9)
        assert found.lower[:, k].max() == 0


# --- numbers ----------------------------------------------------------------------------------


@given(factors(least=2), SEEDS.map(np.random.default_rng))
@settings(max_examples=40)
def test_verdicts_do_not_depend_on_rounding(pair, rng):
    W, H = pair
    assume(W.any(axis=0).all() and H.any(axis=1).all())
    noise_W, noise_H = (1e-15 * (rng.random(Y.shape) < 0.5) for Y in (W, H))
    exact = verdicts_of(W, H)
    rounded = verdicts_of(W + noise_W * W.max(axis=0), H + noise_H * H.max(axis=1, keepdims=True))
    np.testing.assert_allclose(rounded.angles, exact.angles, 0, 1e-6)
    for k in np.flatnonzero(~rounded.spare):
        W_turned, H_turned = turn(W, H, rounded.exchange, k)
        np.testing.assert_allclose(W_turned @ H_turned, W @ H, 0, 1e-11 * (W @ H).max())


# --- fits: components that can be moved within the error ---


def relative_error(V, W, H):
    return np.linalg.norm(V - W @ H) / np.linalg.norm(V)


def check_others(V, W, found, error):
    """Every component that can be moved has other factors that show it."""
    for k, verdict in enumerate(found.verdicts):
        if verdict != "can be moved":
            with pytest.raises(NotAvailableError, match="none were found"):
                found.other(k)
            continue
        other = found.other(k)
        H = best(from_columns(V), other)
        assert min(other.min(), H.min()) >= 0
        assert relative_error(V, other, H) <= MAX_ERROR_RATIO * error + 1e-12
        angles = between(unit_columns(W)[:, k, None], unit_columns(other))
        nearest = match_components(W, other)[0][k] if found.spare[k] else angles.argmin()
        assert angles[nearest] == pytest.approx(found.angles[k], abs=1e-6)
        assert found.angles[k] >= np.radians(5)
        moved = other[:, nearest]
        if not found.spare[k]:
            moved = moved * (W[:, k].sum() / moved.sum())
        assert (found.lower[:, k] <= moved + 1e-9 * moved.max()).all()
        assert (found.upper[:, k] >= moved - 1e-9 * moved.max()).all()


def mixtures(rng, noise=0.0, K=4, F=30, N=120):
    """Strictly positive factors: no sample is pure and no feature an anchor."""
    W, H = rng.random((F, K)) + 0.1, rng.dirichlet(np.full(K, 4.0), N).T + 0.02
    V = W @ H
    return W, H, np.maximum(V + noise * V.std() * rng.standard_normal(V.shape), 0)


# --- planted ----------------------------------------------------------------------------------


@given(SEEDS.map(np.random.default_rng), st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=25)
def test_positive_factors_can_be_moved_and_others_show_it(rng, noise):
    W, H, V = mixtures(rng, noise)
    if noise:
        result = factorize(from_columns(V), 4, rng=rng)
        W, H = result.W, np.asarray(result.H)
    found = uniqueness(from_columns(V), W, H)
    check_others(V, W, found, relative_error(V, W, H))
    if not noise:
        assert found.verdicts.count("can be moved") >= 3
        assert (found.radii >= found.angles).all()


@given(SEEDS.map(np.random.default_rng))
@settings(max_examples=40)
def test_pure_samples_and_anchor_features_make_all_unique(rng):
    K = int(rng.integers(1, 6))
    W = np.vstack([np.diag(rng.random(K) + 0.1), rng.random((9, K))])[rng.permutation(K + 9)]
    H = np.hstack([np.diag(rng.random(K) + 0.1), rng.random((K, 20))])[:, rng.permutation(K + 20)]
    found = uniqueness(from_columns(W @ H), W, H)
    assert (found.verdicts, found.others) == (("unique",) * K, {})
    np.testing.assert_allclose(found.lower, W, 0, 1e-6)
    np.testing.assert_allclose(found.upper, W, 0, 1e-6)
    freedom = verdicts_of(W, H)
    assert (freedom.radii <= UNIQUE_RADIUS).all()
    assert freedom.verdicts == ("undecided",) * K  # other errors were not searched
    assert found.in_words(0).startswith("proved: no other factors of WH (exact factors")
    assert freedom.in_words(0).startswith("other factors: not searched; exact factors of WH move")
    assert not freedom.angles.any()
    assert not freedom.spare.any()


@given(SEEDS.map(np.random.default_rng))
@settings(max_examples=25)
def test_unique_components_are_not_moved_by_the_factors_found(rng):
    K = int(rng.integers(2, 6))
    W = rng.random((3 * K, K)) * (rng.random((3 * K, K)) < 0.5)
    H = rng.random((K, 5 * K)) * (rng.random((K, 5 * K)) < 0.5)
    assume(W.any(axis=0).all() and H.any(axis=1).all())
    V = W @ H
    found = uniqueness(from_columns(V), W, H)
    check_others(V, W, found, relative_error(V, W, H))
    unique = [verdict == "unique" for verdict in found.verdicts]
    for other in found.others.values():
        assert (pairs.nearest(W, other)[unique] < 1e-6).all()


@pytest.mark.seed(1)
def test_noise_lets_components_move_that_are_unique_without_it(rng):
    W = np.vstack([np.eye(3), rng.random((20, 3))])
    H = np.hstack([np.eye(3), rng.dirichlet(np.ones(3), 60).T])
    noisy = np.maximum(W @ H + 0.4 * rng.standard_normal((23, 63)), 0)
    assert uniqueness(from_columns(W @ H), W, H).verdicts == ("unique",) * 3
    found = uniqueness(from_columns(noisy), W, H)
    assert found.verdicts == ("can be moved",) * 3
    assert (found.radii < 1e-6).all()
    assert "exact factors of WH move it by at most 0.01°" in found.in_words(0)
    check_others(noisy, W, found, relative_error(noisy, W, best(from_columns(noisy), W)))


def test_a_component_that_both_factors_have_is_not_moved():
    # Paired by the sum of cosines, component 0 belongs to the second one of the others.
    degrees = np.radians([[30, 75], [30, 0]])
    W, other = (np.stack([np.cos(one), np.sin(one)]) for one in degrees)
    assert match_components(W, other)[0].tolist() == [1, 0]
    V, H = from_columns(W @ np.eye(2, 3)), np.eye(2, 3)
    found = uniqueness(V, W, H, max_iter=0)
    found.angles[:] = 0
    module._add(found, W, other, 1.0)
    np.testing.assert_allclose(np.degrees(found.angles), [0, 45], 0, 1e-9)


@pytest.mark.filterwarnings("ignore:sum_to_one")
@given(SEEDS.map(np.random.default_rng))
@settings(max_examples=8)
def test_factors_whose_coefficients_sum_to_one_have_the_stated_error(rng):
    W, H = rng.random((30, 3)) + 0.1, rng.dirichlet(np.full(3, 4.0), 150).T
    scene = np.maximum(0.9 * W @ H + 0.02 * rng.standard_normal((30, 150)), 0)
    abundances = Penalties(sum_to_one=True)
    result = factorize(from_columns(scene), 3, penalties=abundances, rng=rng)
    found = result.uniqueness()
    for k in found.others:
        H_other, _, squared = FROBENIUS.coefficients(
            from_columns(scene), found.other(k), penalties=abundances
        )
        np.testing.assert_allclose(np.asarray(H_other).sum(axis=0), 1)
        error = np.sqrt(squared) / np.linalg.norm(scene)
        assert found.error_ratios[k] == 1
        assert error <= (1 + 1e-9) * result.relative_error


# --- the thorough search ------------------------------------------------------------------------


def test_a_thorough_search_moves_what_a_short_one_does_not():
    X = load_digits().data.T
    result = factorize(from_columns(X), 6)
    short = result.uniqueness()
    assert "undecided" in short.verdicts
    assert "no move found" not in short.verdicts  # it did not look everywhere
    assert result.uniqueness() is short
    found = result.uniqueness(thorough=True)
    assert found is result.uniqueness()
    assert found.verdicts.count("can be moved") > short.verdicts.count("can be moved")
    check_others(X, result.W, found, relative_error(X, result.W, np.asarray(result.H)))


def test_what_a_thorough_search_does_not_move_is_not_called_unique(rng):
    W, H = rng.random((60, 5)) + 0.05, rng.dirichlet(np.full(5, 3.0), 400).T
    W[:5], H[:, :5] = np.eye(5), np.eye(5)
    V = W @ H
    V = from_columns(np.maximum(V + 0.1 * V.std() * rng.standard_normal(V.shape), 0))
    result = factorize(V, 5)
    found = uniqueness(V, result.W, result.H, thorough=True)
    assert found.verdicts.count("no move found") >= 3
    for k in range(5):
        if found.verdicts[k] == "no move found":
            assert found.radii[k] > np.radians(1)
            assert found.directions[k] == 28
            assert found.in_words(k).endswith("in 28 directions; no proof")
    assert part_of(Uniqueness, "", arrays_of(found, "")).lines() == found.lines()


@pytest.mark.seed(104)
def test_sliding_moves_what_no_direction_does(monkeypatch, rng):
    K, F, N = (int(rng.integers(*limits)) for limits in ((2, 5), (8, 25), (30, 80)))
    W = rng.random((F, K)) * (rng.random((F, K)) < rng.choice([0.5, 0.8, 1.0]))
    W += 0.01 * rng.integers(0, 2)
    V = W @ rng.dirichlet(np.full(K, rng.choice([0.2, 0.5, 1.0])), N).T
    noise = rng.choice([0.01, 0.05, 0.2]) * V.std()
    V = np.maximum(V + noise * rng.standard_normal(V.shape), 0)
    result = factorize(from_columns(V), K, tol=1e-7, max_iter=2000)
    found = uniqueness(from_columns(V), result.W, result.H, thorough=True)
    check_others(V, result.W, found, relative_error(V, result.W, np.asarray(result.H)))
    monkeypatch.setattr(module, "_SLIDING", 0)
    less = uniqueness(from_columns(V), result.W, result.H, thorough=True)
    assert less.verdicts.count("can be moved") < found.verdicts.count("can be moved")


# --- losses, storages, costs --------------------------------------------------------------------


def test_components_of_counts_can_be_moved(main_backend, rng):
    W, H, _ = mixtures(rng, K=3)
    V = main_backend(rng.poisson(60 * W @ H).astype(float))
    result = factorize(V, 3, loss="poisson", init="random", rng=np.random.default_rng(0))
    found = result.uniqueness()
    assert found is result.uniqueness()
    assert "can be moved" in found.verdicts
    for k in found.others:
        divergence = POISSON.coefficients(V, found.other(k))[2]
        assert divergence <= MAX_ERROR_RATIO * result.objective * (1 + 1e-9)
        assert found.error_ratios[k] == pytest.approx(divergence / result.objective, rel=1e-6)


def test_every_storage_and_precision_has_the_same_verdicts(main_backend, small_blocks):
    W, H, V = mixtures(np.random.default_rng(4), 0.2)
    expected = uniqueness(from_columns(V, **small_blocks), W, H)
    X = main_backend(V)
    found = uniqueness(X, W, X.align(np.ascontiguousarray(H.T)).T)
    single = uniqueness(from_columns(V.astype(np.float32)), W, H)
    assert found.verdicts == single.verdicts == expected.verdicts
    np.testing.assert_allclose(found.angles, expected.angles, 0, 1e-6)
    np.testing.assert_allclose(found.upper, expected.upper, 1e-5, 1e-9)


def test_given_components_stay_and_are_not_judged():
    W, H, V = mixtures(np.random.default_rng(4), 0.2)
    found = uniqueness(from_columns(V), W, H, problem=Problem(fixed=W[:, :2]))
    assert found.verdicts[:2] == ("given", "given")
    assert found.in_words(1) == "known component, not judged"
    assert set(found.verdicts[2:]) <= set(VERDICTS) - {"given"}
    for other in found.others.values():
        np.testing.assert_allclose(other[:, :2], W[:, :2])
    np.testing.assert_array_equal(found.lower[:, :2], W[:, :2])
    result = factorize(from_columns(V), 4, fixed=W[:, :2])
    assert result.uniqueness().verdicts[:2] == ("given", "given")


@pytest.mark.seed(2)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_components_of_known_entries_can_be_moved(loss, rng):
    W, H, _ = mixtures(rng, K=3)
    V = rng.poisson(60 * W @ H).astype(float)
    mask = rng.random(V.shape) < 0.9
    found = factorize(from_columns(V, mask=mask), 3, loss=loss, init=W).uniqueness()
    assert "can be moved" in found.verdicts
    assert (found.error_ratios[list(found.others)] <= MAX_ERROR_RATIO).all()


# --- proofs -------------------------------------------------------------------------------------


def radii_of(W, H):
    return uniqueness_radii(from_columns(W @ H + 1.0), W, H)


def unique_of(W, H):
    return radii_of(W, H) <= UNIQUE_RADIUS


@given(st.integers(3, 8), st.sampled_from([1e-4, 1e-3, 1e-2]))
def test_a_radius_is_little_larger_than_the_worst_move(K, delta):
    """The purest sample of component 0 is the sum of K - 1 parts that are farther from it."""
    others = np.zeros((K, K))
    others[0, :-1] = 1 / (K - 1)
    others[1:, :-1] = delta * np.eye(K - 1)
    others[1:, -1] = np.arange(1, K)  # the last component has nothing of component 0
    H = np.column_stack([others, others[:, :-1].sum(axis=1)])
    radius = uniqueness_radii(from_columns(H), np.eye(K), H)[0]
    moved = between(np.eye(K)[:, :1], unit_columns(others)).min()
    assert np.tan(moved) == pytest.approx((K - 1) * delta, rel=1e-6)
    # sqrt(K (K - 1)) delta, the norm of the sample, and what rounding adds to it
    assert moved <= radius <= 1.01 * np.sqrt(K * (K - 1)) * delta + 1e-8


@st.composite
def sparse_factors(draw):
    """Factors with so many zeros that some components are unique and others are not."""
    rng = np.random.default_rng(draw(SEEDS))
    K = draw(st.integers(1, 5))
    W, H = rng.integers(1, 9, (2 * K + 3, K)), rng.integers(1, 9, (K, 2 * K + 4))
    W = W * (rng.random(W.shape) < draw(st.sampled_from([0.35, 0.5, 0.7])))
    H = H * (rng.random(H.shape) < draw(st.sampled_from([0.35, 0.5, 0.7])))
    return W.astype(float), H.astype(float), rng


@given(sparse_factors())
def test_other_factors_of_the_same_product_have_a_unique_component(drawn):
    W, H, rng = drawn
    radii = radii_of(W, H)
    product, other, other_H = W @ H, W, H
    for _ in range(6):  # turns one after the other: each component, and so the others' freedom
        freedom = verdicts_of(other, other_H)
        movable = np.flatnonzero(~freedom.spare & (freedom.angles > 0.01))
        if not movable.size:
            break
        k = int(rng.choice(movable))
        share = freedom.exchange * rng.choice([0.3, 1.0])
        other, other_H = turn(other, other_H, share, k)
        np.testing.assert_allclose(other @ other_H, product, 0, 1e-9 * (product.max() or 1))
    assert (pairs.nearest(W, other)[W.any(axis=0)] <= radii[W.any(axis=0)] + 1e-9).all()


@given(sparse_factors())
@settings(max_examples=40)
def test_a_unique_component_cannot_be_turned_and_is_not_spare(drawn):
    W, H, _ = drawn
    freedom = verdicts_of(W, H)
    np.testing.assert_array_equal(freedom.radii, radii_of(W, H))
    assert not freedom.spare[np.isfinite(freedom.radii)].any()
    assert (freedom.angles <= freedom.radii).all()


@given(SEEDS.map(np.random.default_rng))
@settings(max_examples=8)
def test_a_solver_that_reaches_the_product_finds_unique_components(rng):
    W = np.vstack([np.eye(3), rng.random((5, 3))])
    H = np.hstack([np.eye(3)[:, [0, 1]], rng.random((3, 12)) + 0.2])  # component 2 is never pure
    V, unique = from_columns(W @ H), unique_of(W, H)
    assert unique.tolist() == [True, True, False]
    result = factorize(V, 3, init="random", tol=0, max_iter=400, rng=rng)
    if result.relative_error < 1e-6:
        assert (match_components(W, result.W)[1][unique] > 1 - 1e-6).all()


# --- each condition is needed -----------------------------------------------------------------


EYE = np.eye(3)
MIXED = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 2.0], [1.0, 1.0, 1.0]])


ANCHORED, PURE = np.vstack([EYE, MIXED]), np.hstack([EYE, MIXED.T])
# No feature is in one component alone, but those without component 0 have rank 2.
WINDOW = np.vstack([MIXED, [[0, 1, 2], [0, 2, 1]]])
ONE_PURE = np.hstack([EYE[:, :1], MIXED.T])
# Rows 1 and 2: anchors, and samples without them of rank 2. Component 0 is never pure.
TWO_ANCHORS = np.vstack([EYE[1:], MIXED])
NEVER_PURE = np.hstack([TWO_ANCHORS.T, [[1, 2], [0, 0], [1, 1]], [[1, 2], [1, 1], [0, 0]]])
# The fourth component is the sum of two others: then no pure sample proves anything.
DEPENDENT = np.column_stack([ANCHORED, ANCHORED[:, 0] + ANCHORED[:, 1]])


@pytest.mark.parametrize(
    ("W", "H", "unique"),
    [
        (np.array([[1.0], [2.0]]), np.array([[3.0, 1.0]]), [True]),
        (ANCHORED, PURE, [True] * 3),
        (MIXED, MIXED.T, [False] * 3),
        (WINDOW, ONE_PURE, [True, False, False]),
        (WINDOW[:-1], ONE_PURE, [False] * 3),
        (DEPENDENT, np.hstack([np.eye(4), np.ones((4, 3))]), [False] * 4),
        (ANCHORED * [1, 0, 1], PURE, [False] * 3),
        (ANCHORED, PURE * [[1], [0], [1]], [False] * 3),
    ],
    ids=[
        "one component",
        "anchors and pure samples",
        "strictly positive",
        "a window of full rank serves as well as anchors",
        "a window of rank 1",
        "dependent components",
        "a component of zeros",
        "a component that no sample uses",
    ],
)
def test_which_components_are_proved_unique(W, H, unique):
    assert unique_of(W, H).tolist() == unique


def test_a_component_is_unique_if_the_coefficients_of_all_others_are():
    assert unique_of(TWO_ANCHORS, NEVER_PURE)[0]
    assert not unique_of(TWO_ANCHORS[1:], NEVER_PURE)[0]  # without the anchor of component 1


@pytest.mark.parametrize("noise", [1e-7, 1e-5, 1e-3])
def test_small_numbers_in_place_of_zeros_make_the_radius_larger(noise):
    radii = radii_of(np.maximum(ANCHORED, noise), np.maximum(PURE, noise))
    # W' and H' with zeros again are at least that far away
    assert ((noise < radii) & (radii < 30 * noise)).all()


def test_the_rounding_of_single_precision_is_in_the_radius():
    assert (radii_of(ANCHORED, PURE) < 1e-8).all()
    assert (radii_of(ANCHORED, PURE.astype(np.float32)) > 1e-6).all()
    assert unique_of(ANCHORED, PURE.astype(np.float32)).all()


# --- factors that are known to be others ------------------------------------------------------


def test_a_small_sample_that_mixes_all_components_is_not_pure():
    # Two triangles round the same points of a plane: no vertex of one is near one of the other.
    # The last sample has little weight, but is no less mixed for that.
    plane = [(1, 0, 0), (0, 1, 0), (-0.45, -0.45, 1), (1, 0, 0.05), (0, 1, 0.05), (0.5, 0.5, 0.05)]
    points = [(0.3, 0), (0, 0.3), (0.5, 0.1), (0.4, 0.2), (0.9, 0), (0.9, 0.1), (0.75, 0.18)]
    points += [(0.35, 0.12), (0.2, 0.25), (0.25, 0.2)]
    weights = np.array([1, 1, 1, 1, 1, 10, 20, 1, 1, 4e-6])
    triangles = [(0, 0), (1, 0), (0, 1)], [(0.2, 0), (2, 0), (0, 0.3)]

    def lifted(places):
        return np.vstack([np.transpose(places), np.ones(len(places))])

    product = np.array(plane) @ lifted(points) * weights
    factors = []
    for triangle in triangles:
        H = np.linalg.solve(lifted(triangle), lifted(points)) * weights
        assert H.min() > -1e-15
        factors.append((np.array(plane) @ lifted(triangle), np.maximum(H, 0)))
        np.testing.assert_allclose(factors[-1][0] @ factors[-1][1], product, 0, 1e-14)
    assert pairs.nearest(factors[0][0], factors[1][0]).min() > np.radians(17)
    for (W, H), (other, _) in zip(factors, factors[::-1], strict=True):
        assert (radii_of(W, H) >= pairs.nearest(W, other)).all()


def test_a_sample_of_two_components_is_not_pure_however_small():
    W = np.vstack([np.eye(2), np.ones((3, 2))])
    H = np.array([[2e-6, 1.0, 3.0], [1e-6, 2.0, 1.0]])
    assert not unique_of(W, H).any()
    assert (radii_of(W, H) >= verdicts_of(W, H).angles).all()


def should_be_proved(W, H):
    """Which components have a pure sample, and all others anchors, of weight above 1e-3."""
    A, Y = unit_columns(W), (H * np.linalg.norm(W, axis=0)[:, None]).T
    pure, anchored = alone(Y), alone(A)
    ranks = {np.linalg.matrix_rank(unit_columns(rows.T)) for rows in (A, Y)}
    return (ranks == {len(H)}) & pure & (anchored.sum() - anchored == len(H) - 1)


def alone(rows):
    sizes = np.linalg.norm(rows, axis=1)
    heavy = sizes > 1e-3 * sizes.max()
    return (rows[heavy & ((rows > 0).sum(axis=1) == 1)] > 0).any(axis=0)


def test_no_component_that_differs_between_pairs_is_within_its_radius():
    """And those with pure samples and anchors are proved."""
    proved = []
    for number in range(400):
        pair = pairs.draw_pair(np.random.default_rng([0, number]))
        assert pairs.broken_radii(pair) == []
        for W, H in pair:
            if W.dtype == np.float64:
                proved += (pairs.radii_of(W, H) <= UNIQUE_RADIUS)[should_be_proved(W, H)].tolist()
    assert len(proved) >= 50  # so that there is something to count
    assert np.mean(proved) >= 0.9


# --- storages ----------------------------------------------------------------------------------


@given(factors(), SEEDS)
@settings(max_examples=40)
def test_scale_does_not_matter(pair, seed):
    W, H = pair
    scale = 2.0 ** np.random.default_rng(seed).integers(-9, 9, W.shape[1])
    expected, found = verdicts_of(W, H), verdicts_of(W * scale, H / scale[:, None])
    np.testing.assert_array_equal(found.spare, expected.spare)
    np.testing.assert_allclose(found.angles, expected.angles, 0, 1e-12)
    np.testing.assert_allclose(found.exchange, expected.exchange, 1e-9, 1e-12)


def test_every_storage_has_the_same_proofs_and_freedom_and_is_not_read(
    main_backend, small_blocks, rng
):
    W = np.vstack([np.eye(4), rng.random((16, 4))])
    H = rng.random((4, 90)) + 0.05
    H[:, 70], H[:, 3], H[:2, 80:] = [0, 0, 2, 0], [0, 0, 0, 1], 0
    H[2, :40] = 0  # no sample of the first blocks uses it
    V = main_backend(W @ H)
    passes = V.passes
    found = uniqueness(V, W, V.align(np.ascontiguousarray(H.T)).T, max_iter=0)
    assert V.passes == passes
    expected = uniqueness(from_columns(W @ H, **small_blocks), W, H, max_iter=0)
    assert (expected.radii < 1e-6).tolist() == [False, False, True, True]
    assert (expected.angles[:2] > 0).all()
    assert (expected.radii >= expected.angles).all()
    for name in ("angles", "exchange", "spare", "radii"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), 1e-6)


def test_the_passes_that_a_search_takes():
    W, H, V = mixtures(np.random.default_rng(4), 0.2, K=5)
    X = from_columns(V)
    passes = X.passes
    assert uniqueness(X, W, H).was_searched
    # two trials of each component are checked, and share at most 12 iterations each
    assert 0 < X.passes - passes <= 1 + 2 * 5 + 2 * (12 + 1) + 5
    passes = X.passes
    exact = uniqueness(X, W, H, max_iter=0)
    assert X.passes == passes
    assert not exact.was_searched


def test_exact_fits_are_not_searched(rng):
    # 0.1 % of an error that is all rounding means nothing.
    W = rng.random((12, 3)) * (rng.random((12, 3)) < 0.7)
    H = rng.random((3, 30)) * (rng.random((3, 30)) < 0.7)
    assert not uniqueness(from_columns(W @ H), W, H, thorough=True).directions.any()

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from conenmf import from_columns
from conenmf.errors import FactorError, NotADataMatrixError, NotAvailableError
from conenmf.judge.metrics import unit_columns
from conenmf.judge.uniqueness import VISIBLE_ANGLE, Freedom, component_freedom

SEEDS = st.integers(0, 2**32 - 1)


def freedom_of(W, H):
    return component_freedom(from_columns(np.ones((len(W), H.shape[1]))), W, H)


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
    freedom = freedom_of(W, H)
    K = W.shape[1]
    for k in np.flatnonzero(~freedom.spare):
        W_turned, H_turned = freedom.turned(W, H, k)
        assert W_turned.min() >= 0
        assert H_turned.min() >= 0
        product = W @ H
        np.testing.assert_allclose(W_turned @ H_turned, product, 0, 1e-12 * product.max())
        others = np.arange(K) != k
        np.testing.assert_array_equal(W_turned[:, others], W[:, others])
        np.testing.assert_array_equal(H_turned[k], H[k])
        assert angle(W[:, k], W_turned[:, k]) == pytest.approx(freedom.angles[k], abs=1e-7)


@given(factors(least=2))
def test_no_turn_along_one_component_is_larger(pair):
    W, H = pair
    freedom = freedom_of(W, H)
    for l in np.flatnonzero(~freedom.spare):
        for k in np.flatnonzero((np.arange(W.shape[1]) != l) & (W.max(axis=0) > 0)):
            added = (H[k] / np.where(H[l] > 0, H[l], np.nan))[H[l] > 0].min()
            subtracted = (W[:, l][W[:, k] > 0] / W[:, k][W[:, k] > 0]).min()
            for t in (added, -subtracted):
                w = W[:, l] + t * W[:, k]
                if np.linalg.norm(w) > 1e-3 * np.linalg.norm(W[:, l]):
                    assert freedom.angles[l] >= angle(W[:, l], w) - 2e-4


@given(factors(), SEEDS)
@settings(max_examples=40)
def test_scale_does_not_matter(pair, seed):
    W, H = pair
    scale = 2.0 ** np.random.default_rng(seed).integers(-9, 9, W.shape[1])
    expected, found = freedom_of(W, H), freedom_of(W * scale, H / scale[:, None])
    np.testing.assert_array_equal(found.spare, expected.spare)
    np.testing.assert_allclose(found.angles, expected.angles, 0, 1e-12)
    np.testing.assert_allclose(found.exchange, expected.exchange, 1e-9, 1e-12)


@given(SEEDS)
@settings(max_examples=40)
def test_pure_samples_and_anchor_features_leave_no_freedom(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 6))
    W = np.vstack([np.diag(rng.random(K) + 0.1), rng.random((7, K))])
    H = np.hstack([np.diag(rng.random(K) + 0.1), rng.random((K, 9))])
    freedom = freedom_of(W, H)
    assert not freedom.angles.any()
    assert not freedom.spare.any()
    assert freedom.visible == []
    assert freedom.in_words() is None


def test_several_components_turn_one_farther_than_any_alone():
    W = np.eye(4)
    H = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0], [3.0, 1.0]])
    freedom = freedom_of(W, H)
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
def test_spare_components(kind):
    W, H, expected = SPARE[kind]
    freedom = freedom_of(W, H)
    assert np.flatnonzero(freedom.spare).tolist() == expected
    for k in expected:
        rest = np.delete(np.arange(W.shape[1]), k)
        of_components = max(nnls(W[:, rest], v)[1] for v in (W @ H).T)
        of_coefficients = max(nnls(H[rest].T, v)[1] for v in W @ H)
        assert min(of_components, of_coefficients) < 1e-12
        farthest = np.arccos(unit_columns(W)[:, k].min())
        assert freedom.angles[k] == pytest.approx(farthest)
        assert "to anything" in freedom.turn_in_words(k)
        with pytest.raises(NotAvailableError, match=f"component {k} is spare"):
            freedom.turned(W, H, k)


# --- numbers ----------------------------------------------------------------------------------


@given(factors(least=2), SEEDS)
@settings(max_examples=40)
def test_rounding_is_not_in_the_way(pair, seed):
    W, H = pair
    assume(W.any(axis=0).all() and H.any(axis=1).all())
    rng = np.random.default_rng(seed)
    noise_W, noise_H = (1e-15 * (rng.random(Y.shape) < 0.5) for Y in (W, H))
    exact = freedom_of(W, H)
    rounded = freedom_of(W + noise_W * W.max(axis=0), H + noise_H * H.max(axis=1, keepdims=True))
    np.testing.assert_allclose(rounded.angles, exact.angles, 0, 1e-6)
    for k in np.flatnonzero(~rounded.spare):
        W_turned, H_turned = rounded.turned(W, H, k)
        np.testing.assert_allclose(W_turned @ H_turned, W @ H, 0, 1e-11 * (W @ H).max())


def test_every_storage_has_the_same_freedom_and_is_not_read(main_backend, small_blocks):
    rng = np.random.default_rng(0)
    W, H = rng.random((20, 4)), rng.random((4, 90)) + 0.05
    H[2, :40] = 0  # no sample of the first blocks uses it
    V = main_backend(W @ H)
    passes = V.passes
    freedom = component_freedom(V, W, V.align(np.ascontiguousarray(H.T)).T)
    assert V.passes == passes
    expected = component_freedom(from_columns(W @ H, **small_blocks), W, H)
    assert expected.angles.min() > 0
    for name in ("angles", "exchange", "spare"):
        np.testing.assert_array_equal(getattr(freedom, name), getattr(expected, name))


# --- in words ---------------------------------------------------------------------------------


def test_in_words():
    degrees = np.array([14.99, 4.9, 21.0, 90.0])
    exchange = np.array([[0, 0, -0.2, 0], [0.3, 0, -0.1, 0], [0.0, 0, 0, 0], [0, 0, 0, 0]])
    freedom = Freedom(np.radians(degrees), exchange, np.array([False, False, False, True]))
    assert freedom.visible == [0, 2, 3]
    assert freedom.turn_in_words(0) == "by 14° towards component 1"  # not rounded up
    assert freedom.turn_in_words(2) == "by 21° mainly away from component 0"
    assert freedom.in_words() == (
        "the components are not unique: 3 of 4 (0, 2, 3) can be turned, each by itself, by up to "
        "90°, at exactly the same error"
    )
    alone = Freedom(np.radians(degrees[:2]), exchange[:2, :2], np.zeros(2, bool))
    assert alone.in_words() == (
        "the components are not unique: 1 of 2 (0) can be turned, by 14°, at exactly the same error"
    )
    many = Freedom(np.ones(9), np.zeros((9, 9)), np.zeros(9, bool))
    assert "9 of 9 can be turned" in many.in_words()
    assert np.degrees(VISIBLE_ANGLE) == pytest.approx(5)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("W", "H", "message"),
    [
        (np.ones((3, 2)), np.ones((3, 4)), r"H has shape \(3, 4\) .*, expected .*\(2, 4\)"),
        (np.ones((3, 2)), np.ones((2, 5)), r"H has shape \(2, 5\) .*, expected .*\(2, 4\)"),
        (np.ones(3), np.ones((1, 4)), r"W has shape \(3,\), expected \(3, K\)"),
        (np.ones((3, 0)), np.ones((0, 4)), r"W has shape \(3, 0\), expected \(3, K\)"),
        (-np.ones((3, 2)), np.ones((2, 4)), r"W is -1.0 at \(0, 0\)"),
        (np.ones((3, 2)), -np.ones((2, 4)), "finite and nonnegative"),
        (np.ones((3, 2)), np.full((2, 4), np.nan), "finite and nonnegative"),
        (np.full((3, 2), np.inf), np.ones((2, 4)), r"W is inf at \(0, 0\)"),
    ],
)
def test_what_are_no_factors_is_refused(W, H, message):
    with pytest.raises(FactorError, match=message):
        component_freedom(from_columns(np.ones((3, 4))), W, H)


def test_a_bare_array_is_refused():
    with pytest.raises(NotADataMatrixError):
        component_freedom(np.ones((3, 4)), np.ones((3, 2)), np.ones((2, 4)))

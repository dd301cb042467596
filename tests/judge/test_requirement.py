"""How many components an error needs: `judge.requirement` and `linalg.rank`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import Problem, components_for, factorize, from_columns, from_rows
from conenmf.errors import ConeNMFError
from conenmf.judge.requirement import first
from conenmf.linalg.rank import rank_above_rounding


def product(seed, K, F=12, N=40):
    rng = np.random.default_rng(seed)
    return rng.gamma(0.7, 1, (F, K)) @ rng.gamma(0.7, 1, (K, N))


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), K=st.integers(1, 5))
def test_an_exact_product_needs_no_more_components_than_it_has(seed, K):
    V = from_columns(product(seed, K))
    for error in (0.0, 0.02, 0.2):
        found = components_for(V, error)
        assert found.low <= K
        assert found.high is None or found.high >= found.low
        if error == 0:
            assert found.low == K
            assert found.high is None or found.high >= K


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from(["frobenius", "poisson"]))
def test_the_ends_fall_with_the_error(seed, loss):
    V = from_columns(np.random.default_rng(seed).random((9, 30)) + product(seed, 3, 9, 30))
    ends = [components_for(V, error, loss=loss) for error in (0.02, 0.1, 0.3)]
    lows = [one.low for one in ends]
    highs = [one.high or 9 for one in ends]
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs, reverse=True)
    assert all(low <= high for low, high in zip(lows, highs, strict=True))


@pytest.mark.parametrize("loss", ["frobenius", "poisson", "itakura-saito"])
def test_no_fit_below_the_lower_end_has_the_error(loss):
    V = from_columns(product(3, 4) + 0.1)
    found = components_for(V, 0.05, loss=loss)
    fits = {K: factorize(V, K, loss=loss).relative_error for K in range(1, 6)}
    assert all(fits[K] > 0.05 for K in range(1, found.low))
    assert found.errors[found.high] <= 0.05
    assert len(found.errors) <= 8
    if loss == "itakura-saito":
        assert found.low == 1  # no bound is known


def test_both_ends_of_digits_are_near():
    """The bounds of singular values and one fit, to be read as: 3 to 3, 5 to 5 components."""
    from sklearn.datasets import load_digits

    V = from_rows(load_digits().data[:400])
    for error, ends in ((0.46, (3, 3)), (0.392, (5, 5))):
        found = components_for(V, error)
        assert (found.low, found.high) == ends
        assert found.sentence == (
            f"a relative error of {error} needs at least {ends[0]} and at most {ends[1]} components"
        )


def test_the_fit_at_hand_counts_as_a_fit():
    V = from_columns(product(1, 4) + 0.3 * np.random.default_rng(0).random((12, 40)))
    result = factorize(V, 4)
    found = result.components_for()
    assert found.error == result.relative_error
    assert found.low <= found.high <= 4
    assert found.errors[4] == result.relative_error
    assert result.components_for(0.9).high == 1


def test_known_components_are_counted(rng):
    W = rng.random((12, 3))
    V = from_columns(W @ rng.random((3, 40)) + 0.01 * rng.random((12, 40)))
    free = components_for(V, 0.02)
    wrong = components_for(V, 0.02, problem=Problem(fixed=rng.random((12, 2))))
    assert free.high == 3
    assert wrong.low > free.low
    result = factorize(V, 5, fixed=W[:, :2])
    assert result.components_for(0.02).high == 3


@pytest.mark.parametrize("kind", ["missing", "weights"])
def test_holes_and_weights_have_a_lower_end(kind, rng):
    X = product(2, 3).T
    if kind == "missing":
        V = from_rows(np.where(rng.random(X.shape) < 0.1, np.nan, X), missing="nan")
    else:
        V = from_rows(X, weights=rng.uniform(0.5, 2, X.shape))
    found = components_for(V, 0.05)
    assert 1 <= found.low <= 3 <= found.high
    assert components_for(V, 0.0).low >= 1


@pytest.mark.parametrize("error", [-0.1, 1.0, 2.0, np.nan, np.inf, "0.1", None, True])
def test_an_error_is_from_0_to_below_1(error):
    with pytest.raises(ConeNMFError, match=r"error.*expected a number"):
        components_for(product(0, 2), error)


def test_zero_means_the_rounding_of_the_data(rng):
    W = rng.random((20, 3))
    H = np.hstack([np.eye(3), rng.dirichlet(np.ones(3), 50).T])
    assert components_for(from_columns(W @ H), 0).sentence == (
        "an error within rounding needs at least 3 and at most 3 components"
    )
    single = components_for(from_columns((W @ H).astype(np.float32)), 0)
    assert (single.low, single.high) == (3, 3)
    full = components_for(from_columns(rng.random((6, 20))), 0)
    assert (full.low, full.high) == (6, 6)  # each feature is a component


def test_integers_have_no_rounding():
    """A difference that single precision would round away is there if entries are integers."""
    V = np.outer(np.arange(1, 5), np.arange(1, 7)).astype(np.float32) * 500_000
    V[0, 0] += 1
    assert components_for(from_columns(V), 0).low == 2
    assert components_for(from_columns(V / 7), 0).low == 1


def test_features_are_scaled_before_their_rank_is_counted(rng):
    B = rng.random((8, 3)) @ rng.random((3, 90))
    B *= 10.0 ** np.arange(-8, 8, 2)[:, None]
    assert rank_above_rounding(B)[:2] == (3, True)
    assert rank_above_rounding(rng.random((150, 200)))[:2] == (100, False)
    big = rng.random((150, 7)) @ rng.random((7, 200))
    assert rank_above_rounding(big)[:2] == (7, True)


@pytest.mark.parametrize(("size", "expected"), [(3.0, 1), (30.0, 2)])
def test_rounding_grows_with_the_root_of_the_number_of_entries(size, expected):
    """The Frobenius norm of errors of eps in every entry is eps times this root."""
    eps = float(np.finfo(np.float32).eps)
    B = np.ones((40, 2000))
    B[::2, ::2] -= 2 * size * eps  # a second direction, of about size / 2 times that norm
    found = rank_above_rounding(B, eps)
    assert (found.number, found.is_exact) == (expected, True)
    assert found.rounding == pytest.approx(8 * eps * np.sqrt(B.size))


def test_the_search_asks_few_numbers():
    for least in range(3, 40):
        asked = []

        def is_enough(k, asked=asked, least=least):
            asked.append(k)
            return k >= least

        assert first(is_enough, 3, 100) == least
        assert len(asked) <= 12
    assert first(lambda k: k >= 90, 3, 100, 4) is None
    assert first(lambda k: False, 3, 8) is None

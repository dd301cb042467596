"""The span of all fits that are as good as a given one: `judge.span`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import factorize, from_columns, from_rows, uniqueness
from conenmf.judge.span import span_angles, span_in_words


def angles_to_span(V, W, K):
    """The sines of the K leading left singular vectors of V to the span of W."""
    U = np.linalg.svd(V)[0][:, :K]
    Q = np.linalg.qr(W)[0]
    sines = np.linalg.norm(U - Q @ (Q.T @ U), axis=0)
    cosines = np.linalg.svd(Q.T @ U, compute_uv=False)
    return np.arcsin(np.minimum(sines, 1)), np.arccos(min(cosines.min(), 1))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_no_fit_with_at_most_this_error_leaves_the_bounds(seed):
    """The other fits come from random starts, and some are pushed until they are as bad."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 5))
    V = rng.random((12, K)) ** 3 @ rng.random((K, 30)) ** 3 + 0.02 * rng.random((12, 30))
    data = from_columns(V)
    given_fit = factorize(data, K, init="random", rng=rng, max_iter=int(rng.integers(5, 100)))
    error = np.linalg.norm(V - given_fit.W @ given_fit.H)
    bounds = span_angles(data, given_fit.W, given_fit.H.T)
    assert (np.diff(bounds) >= 0).all()
    for _ in range(3):
        other = factorize(data, K, init="random", rng=rng)
        for push in (0.0, 0.003, 0.03):
            W = np.maximum(other.W * (1 + push * rng.standard_normal(other.W.shape)), 0)
            H = factorize(data, K, init=W, solver=None).H
            if np.linalg.norm(V - W @ H) <= error:
                own, largest = angles_to_span(V, W, K)
                assert (own <= bounds + 1e-6).all()
                assert largest <= bounds[-1] + 1e-6


def test_a_worse_fit_and_more_slack_say_less(rng):
    V = from_columns(rng.random((20, 3)) @ rng.random((3, 60)) + 0.02 * rng.random((20, 60)))
    good, rough = (factorize(V, 3, max_iter=n) for n in (200, 3))
    angles = [
        span_angles(V, good.W, good.H.T)[-1],
        span_angles(V, good.W, good.H.T, ratio=1.01)[-1],
        span_angles(V, rough.W, rough.H.T)[-1],
    ]
    assert angles[0] < angles[1]
    assert angles[0] < angles[2]


def test_equal_singular_values_say_nothing():
    V = from_columns(np.kron(np.eye(4), np.ones((3, 5))))
    result = factorize(V, 3)
    angles = span_angles(V, result.W, result.H.T)
    assert angles[-1] == pytest.approx(np.pi / 2)
    assert span_in_words(angles) == ""
    assert span_angles(V, np.eye(12), np.ones((20, 12))).size == 0


def test_the_words_count_directions():
    near, far = np.radians([2.34, 40.0])
    assert span_in_words(np.array([near, near])).endswith("spans the same space, within 2.4°")
    assert "contains 1 of the 2 leading directions" in span_in_words(np.array([near, far]))
    assert span_in_words(np.zeros(0)) == ""


@pytest.mark.parametrize("kind", ["holes", "weights", "poisson", "digits"])
def test_there_is_no_statement_where_nothing_is_known(kind, rng):
    X = rng.random((60, 3)) @ rng.random((3, 20)) + 0.01
    if kind == "holes":
        V = from_rows(np.where(rng.random(X.shape) < 0.1, np.nan, X), missing="nan")
    elif kind == "weights":
        V = from_rows(X, weights=rng.uniform(0.5, 2, X.shape))
    elif kind == "digits":
        from sklearn.datasets import load_digits

        V = from_rows(load_digits().data[:300])
    else:
        V = from_rows(X)
    loss = "poisson" if kind == "poisson" else "frobenius"
    result = factorize(V, 10 if kind == "digits" else 3, loss=loss)
    found = uniqueness(V, result.W, result.H, loss=loss, max_iter=20)
    assert span_in_words(found.span_angles) == ""


def test_uniqueness_and_the_verdict_say_it(rng):
    V = from_rows(rng.random((60, 3)) @ rng.random((3, 20)) + 0.001 * rng.random((60, 20)))
    result = factorize(V, 3)
    assert "spans the same space" in str(result.uniqueness())
    assert "spans the same space" in result.diagnose().row("Optimum").finding

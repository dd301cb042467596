import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import kl_div

from conenmf import from_columns
from conenmf.errors import FactorError
from conenmf.judge.poisson_gaps import poisson_gaps
from conenmf.solve.losses.poisson import margins


def problem(seed):
    """Counts with zeros and zero rows, and factors that are positive."""
    rng = np.random.default_rng(seed)
    F, N, K = rng.integers(1, 9, 3)
    V = rng.poisson(rng.gamma(0.5, 4, (F, N))) * (rng.random((F, 1)) < 0.9)
    V[0, 0] += 1
    return V.astype(float), 0.1 + rng.random((F, K)), (0.1 + rng.random((K, N))) * 5


def em(V, W, H, n_iter, fixed):
    """Multiplicative updates of one factor; zeros of V and whole zero rows are no problem."""
    for _ in range(n_iter):
        if fixed == "W":
            H = H * (W.T @ (V / (W @ H))) / W.sum(axis=0)[:, None]
        else:
            W = W * ((V / (W @ H)) @ H.T) / H.sum(axis=1)
        W, H = np.maximum(W, 1e-300), np.maximum(H, 1e-300)
    return kl_div(V, W @ H).sum()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_no_better_factor_beats_a_gap(seed):
    V, W, H = problem(seed)
    found = poisson_gaps(from_columns(V), W, H)
    assert found.divergence == pytest.approx(kl_div(V, W @ H).sum(), rel=1e-10)
    room = 1e-9 * found.divergence
    assert found.divergence - found.coefficient_gap <= em(V, W, H, 200, "W") + room
    assert found.divergence - found.component_gap <= em(V, W, H, 200, "H") + room


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_gaps_close_at_the_optimum(seed):
    V, W, H = problem(seed)
    for n in range(V.shape[1]):  # by another method
        slope, v = W.sum(axis=0), V[:, n]

        def value(h, v=v, slope=slope):
            x = np.maximum(W @ h, 1e-12)
            return slope @ h - v @ np.log(x), slope - W.T @ (v / x)

        bounds = [(0, None)] * H.shape[0]
        options = {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 2000}
        H[:, n] = minimize(
            value, H[:, n], jac=True, bounds=bounds, method="L-BFGS-B", options=options
        ).x
    found = poisson_gaps(from_columns(V), W, H)
    assert found.coefficient_gap <= 1e-4 * found.total


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_the_margins_are_the_best_single_component(seed):
    V, _, _ = problem(seed)
    W, H = V.sum(axis=1, keepdims=True), V.sum(axis=0, keepdims=True) / V.sum()
    found = poisson_gaps(from_columns(V), W, H)
    assert found.coefficient_gap + found.component_gap <= 1e-10 * found.total
    assert found.of_margins == pytest.approx(found.divergence, abs=1e-9 * found.total)


def test_in_every_storage(main_backend, small_blocks, both_twins, sample_matrix):
    rng = np.random.default_rng(0)
    W, H = 0.1 + rng.random((12, 3)), rng.random((3, 40))
    V = main_backend(sample_matrix)
    margins(V)
    before = V.passes
    found = poisson_gaps(V, W, H)
    assert V.passes - before == 1
    np.testing.assert_allclose(found, poisson_gaps(from_columns(sample_matrix), W, H), rtol=1e-6)
    assert found.divergence == pytest.approx(kl_div(sample_matrix, W @ H).sum(), rel=1e-6)


def test_rates_of_zero_are_refused_where_there_are_counts():
    V = from_columns([[2.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    with pytest.raises(FactorError, match="zero at 3 entries"):
        poisson_gaps(V, [[0.0], [0.0], [1.0]], [[1.0, 1.0]])

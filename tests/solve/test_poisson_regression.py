"""Poisson regression of a row: optimality within its gap, SciPy's solution, both kernels."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from conenmf import kernels
from conenmf.solve.losses import poisson_regression
from conenmf.solve.losses.poisson_regression import (
    GAP_SHARE,
    Restraint,
    Side,
    counts_of,
    curvatures,
    log_sums,
    multiplicative,
    newton,
    newton_from_sums,
    ratios_of,
    regression,
    row_gaps,
    sample_sums,
)

SEEDS = st.integers(0, 2**32 - 1)


def problem(seed, F=30, N=12, K=4, rate=3.0):
    rng = np.random.default_rng(seed)
    W = rng.random((F, K)) * (rng.random((F, K)) < 0.7) + 1e-3
    V = rng.poisson(rate * W @ rng.gamma(0.5, size=(K, N)))
    return counts_of(sp.csc_array(V.astype(float))), Side.of(W), rng


def objectives(counts, side, Y):
    logs = log_sums(counts, ratios_of(counts, side, Y))
    return logs + Y @ side.sums - sample_sums(counts)


@given(SEEDS)
@settings(max_examples=25)
def test_regression_ends_at_its_gap_and_no_point_is_better(seed):
    counts, side, rng = problem(seed)
    Y = regression(counts, side)
    found, gaps = objectives(counts, side, Y), row_gaps(counts, side, Y)
    assert np.all(gaps <= 1.01 * GAP_SHARE * sample_sums(counts) + 1e-12)
    for _ in range(20):
        other = Y * rng.lognormal(0, 0.3, Y.shape) + rng.random(Y.shape) * 0.1 * Y.mean()
        assert np.all(found <= objectives(counts, side, other) + gaps + 1e-9)


def test_regression_agrees_with_scipy():
    counts, side, _ = problem(5, N=4)
    Y = regression(counts, side)
    dense = counts.toarray().T
    for v, y in zip(dense, Y, strict=True):

        def value(h, v=v):
            x = side.W @ np.maximum(h, 0) + 1e-300
            return side.sums @ h - v @ np.log(x)

        best = minimize(
            value, np.full(4, v.sum() / side.sums.sum() + 1e-3), bounds=[(1e-12, None)] * 4
        )
        assert value(y) <= best.fun + 1e-6 * max(abs(best.fun), 1)


@given(SEEDS)
@settings(max_examples=20)
def test_no_step_of_newton_raises_the_objective(seed):
    counts, side, rng = problem(seed, rate=10.0 ** (seed % 7 - 2))
    Y = rng.random((counts.shape[1], 4)) + 1e-6
    value = objectives(counts, side, Y)
    for _ in range(5):
        Y = newton(counts, side, Y)
        new = objectives(counts, side, Y)
        assert np.all(new <= value + 1e-9 * (1 + np.abs(value)))
        np.testing.assert_allclose(Y @ side.sums, sample_sums(counts))
        value = new


# --- with penalties, known components and missing entries ---


def restrained_problem(seed):
    rng = np.random.default_rng(seed)
    W = rng.gamma(0.5, size=(9, 4)) + 1e-3
    known = rng.random((6, 9)) > 0.3
    V = rng.poisson(3 * rng.gamma(0.5, size=(6, 4)) @ W.T) * known
    V[2] = 0
    Y = rng.gamma(0.5, size=(6, 4)) + 1e-3
    return counts_of(V.T.astype(float)), Side(W, known @ W), Y


def row_values(counts, side, Y, held):
    logs = log_sums(counts, ratios_of(counts, side, Y))
    linear = (Y * (side.sums + held.l1)).sum(axis=1)
    return logs + linear + held.l2 * (Y**2).sum(axis=1) / 2


RESTRAINTS = [
    Restraint(),
    Restraint(l1=0.7),
    Restraint(l2=0.4),
    Restraint(l1=0.3, l2=2.0, n_fixed=2),
    Restraint(n_fixed=1),
]


@pytest.mark.parametrize("held", RESTRAINTS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=4)
def test_gaps_bound_how_far_any_row_is_from_the_best(held, seed):
    counts, side, Y = restrained_problem(seed)
    best = Y
    allowed = 1e-4 * (1 + sample_sums(counts).max())
    for n in range(2000):  # along a flat direction, steps of a few sweeps each are slow
        better = newton(counts, side, best, held=held)
        fell = row_values(counts, side, best, held) - row_values(counts, side, better, held)
        assert np.all(fell >= -1e-9)
        best = better
        if n >= 60 and row_gaps(counts, side, best, held).max() <= allowed:
            break
    np.testing.assert_array_equal(best[:, : held.n_fixed], Y[:, : held.n_fixed])
    for rows in (Y, best):
        gaps = row_gaps(counts, side, rows, held)
        above = row_values(counts, side, rows, held) - row_values(counts, side, best, held)
        assert np.all(above <= gaps * (1 + 1e-9) + 1e-9)
    assert gaps.max() <= allowed


@pytest.mark.parametrize("held", RESTRAINTS[:3])
def test_the_regression_ends_at_the_minimum(held, both_twins):
    counts, side, Y = restrained_problem(4)
    best = regression(counts, side, held)
    assert np.all(row_gaps(counts, side, best, held) <= 1.01e-9 * sample_sums(counts))
    for _ in range(400):  # a method of its own comes no lower
        Y = multiplicative(counts, side, Y, held=held)
    lowest = row_values(counts, side, Y, held)
    assert np.all(row_values(counts, side, best, held) <= lowest + 1e-7)
    np.testing.assert_allclose(row_values(counts, side, best, held), lowest, rtol=1e-3, atol=1e-3)


@pytest.mark.seed(5)
@pytest.mark.parametrize("held", RESTRAINTS)
def test_steps_from_sums_lower_the_objective_of_every_feature(held, both_twins, rng):
    """They know the rates only through sums over the samples."""
    V, H = rng.poisson(2.0, (7, 30)).astype(float), rng.gamma(0.5, size=(30, 4)) + 1e-3
    known = rng.random((7, 30)) > 0.3
    counts, transposed, turned = counts_of(V * known), counts_of((V * known).T), Side(H, known @ H)
    W = first = rng.gamma(0.5, size=(7, 4)) + 1e-3
    totals, values = (V * known).sum(axis=1), row_values(transposed, turned, W, held)
    for _ in range(40):
        ratios = ratios_of(counts, Side.of(W), H)
        A = curvatures(counts, ratios, H)
        W = newton_from_sums(np.asarray(ratios @ H), A, turned.sums, totals, W, held)
        before, values = values, row_values(transposed, turned, W, held)
        assert np.all(values <= before + 1e-9)
    np.testing.assert_array_equal(W[:, : held.n_fixed], first[:, : held.n_fixed])
    if not held.n_fixed:
        least = row_values(transposed, turned, regression(transposed, turned, held), held)
        assert np.all(values - least <= 1e-3 * totals)


@pytest.mark.parametrize("l2", [0.0, 2.0, 50.0])
def test_a_step_from_sums_has_the_length_that_its_curvature_allows(l2, both_twins):
    """Of a single entry that may move, with the L2 penalty in the slope and in the curvature."""
    rng = np.random.default_rng(7)
    W, sums, totals = rng.gamma(0.7, size=(40, 2)) + 0.05, np.array([1.5, 2.0]), np.full(40, 9.0)
    R, squares = rng.gamma(1.0, 3.0, (40, 2)), rng.gamma(1.0, 2.0, 40)
    A = np.column_stack([np.ones(40), np.ones(40), squares])  # the upper half of each matrix
    found = newton_from_sums(R, A, sums, totals, W, Restraint(l1=0.3, l2=l2, n_fixed=1))
    np.testing.assert_array_equal(found[:, 0], W[:, 0])
    lengths = np.empty(40)
    for f, y in enumerate(W[:, 1]):
        slope, curvature = R[f, 1] - sums[1] - 0.3 - l2 * y, squares[f] + l2
        d = max(slope / curvature, -y)
        falls, bends = slope * d, curvature * d**2
        lengths[f] = min(1.0, falls / (bends + falls * max(-d / y, 0.0)))
        assert found[f, 1] == pytest.approx(y + lengths[f] * d, rel=1e-9)
    assert ((lengths > 0.4) & (lengths < 0.9)).sum() > 3


@pytest.mark.parametrize("held", RESTRAINTS)
def test_twins_agree(held, monkeypatch):
    counts, side, Y = restrained_problem(6)
    ours = [method(counts, side, Y, held=held) for method in (newton, multiplicative)]
    best = regression(counts, side)
    monkeypatch.setattr(kernels, "AVAILABLE", False)
    theirs = [method(counts, side, Y, held=held) for method in (newton, multiplicative)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(regression(counts, side), best, rtol=1e-5, atol=1e-7)


# --- shapes, types and edges ---


def test_long_samples_are_worked_on_in_parts(monkeypatch, rng):
    """More entries, or samples, than are worked on at a time give the same."""
    W, V = rng.random((3000, 3)), rng.poisson(1.0, (3000, 5)).astype(float)
    order = rng.permutation(len(W))
    counts, side = counts_of(V), Side.of(W)
    one = regression(counts, side)
    other = regression(counts_of(V[order]), Side.of(W[order]))
    np.testing.assert_allclose(one, other, rtol=1e-7)
    assert np.all(row_gaps(counts, side, one) <= 1.01 * GAP_SHARE * V.sum(axis=0))
    monkeypatch.setattr(poisson_regression, "_GRAM_NUMBERS", 9)
    parts = regression(counts, side)  # without kernels, BLAS adds up in another order for few rows
    np.testing.assert_allclose(parts, one, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges(dtype):
    """A sample without counts, a component without features, a row of Y that is zero."""
    V = np.array([[3, 0, 1], [0, 0, 2], [5, 0, 0]], dtype)
    side = Side.of(np.array([[1.0, 0, 1], [1, 0, 2], [1, 0, 0.1]]))
    counts = counts_of(V)
    Y = regression(counts, side)
    gaps = row_gaps(counts, side, Y)
    assert not Y[1].any()
    assert not Y[:, 1].any()
    assert np.all(gaps <= 1.01 * GAP_SHARE * V.sum(axis=0))
    stepped = newton(counts, side, np.zeros((3, 3), dtype))
    assert stepped.dtype == dtype
    assert np.isfinite(stepped).all()
    assert stepped[0].any()


def test_stored_zeros_and_units():
    V = sp.csc_array(np.array([[2.0, 0.0], [4.0, 6.0]]))
    V.data[0] = 0.0
    assert counts_of(V, 2.0).data.tolist() == [2.0, 3.0]
    assert V.nnz == 3

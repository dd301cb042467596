"""The end of a fit for components that are not the best: every number of it, in plain NumPy."""

import itertools

import numpy as np
import pytest
from scipy.special import kl_div

from conenmf import from_rows
from conenmf.data.known import weigh_samples
from conenmf.data.prepare import to_sums
from conenmf.data.views import times_samples
from conenmf.solve.coefficients import coefficients
from conenmf.solve.constraints import NO_PENALTIES, Fixed, Penalties
from conenmf.solve.inits import initialize
from conenmf.solve.losses import LOSSES
from conenmf.solve.losses.frobenius import FROBENIUS
from conenmf.solve.losses.poisson import (
    POISSON,
    _equal_coefficients,
    balancing_factors,
    margins,
    unit_sums,
)
from conenmf.solve.problem import Problem
from conenmf.solve.run import Run, Stopping
from conenmf.solve.solvers import SOLVERS

N, F, K = 30, 9, 3
RNG = np.random.default_rng(5)
X = RNG.poisson(4 * RNG.gamma(0.6, 1, (N, K)) @ RNG.gamma(0.6, 1, (K, F))) + RNG.integers(0, 2, F)
X[:, 0] += 2  # so that no sample is hidden by the mask
W = RNG.gamma(0.6, 1.0, (F, K)) + 0.01
KNOWN = {
    "complete": ({}, np.ones((N, F))),
    "mask": ({"mask": X != 1}, (X != 1).astype(float)),
    "weights": ({"weights": 1 / (1 + X)}, 1 / (1 + X)),
}
PENALTIES = {"none": NO_PENALTIES, "both": Penalties(l1_h=0.3, l2_h=0.4, l1_w=0.5, l2_w=0.7)}


def distance(x, p, y, Z, l1, l2, columns):
    """The squared steps of the entries of y, each to its minimum alone; x ~ Z y with weights p."""
    G = (Z.T * p) @ Z + l2 * np.eye(K)
    steps = np.minimum(y, (G @ y - Z.T @ (p * x) + l1) / np.diagonal(G))
    return float((np.diagonal(G) * steps**2)[columns].sum())


@pytest.mark.parametrize("n_fixed", [0, 1])
@pytest.mark.parametrize("terms", PENALTIES)
@pytest.mark.parametrize("known", KNOWN)
def test_least_squares(known, terms, n_fixed):
    (said, P), penalties = KNOWN[known], PENALTIES[terms]
    V = from_rows(X.astype(float), block_samples=7, **said)
    end = FROBENIUS.on(V, penalties, n_fixed, rescale=False).finish(W)
    C, H = W[:, end.order], end.H
    squared = (P * (X - (C @ H).T) ** 2).sum()
    added = 2 * (0.3 * H.sum() + 0.5 * C.sum()) + 0.4 * (H**2).sum() + 0.7 * (C**2).sum()
    assert end.order[0] == 0 or not n_fixed
    assert end.squared_error == pytest.approx(squared, rel=1e-10)
    assert end.objective == pytest.approx(squared + added * (terms == "both"), rel=1e-10)
    of_H, of_W = (penalties.l1_h, penalties.l2_h), (penalties.l1_w, penalties.l2_w)
    free = np.arange(K) >= n_fixed
    rows, columns = zip(X, P, H.T, strict=True), zip(X.T, P.T, C, strict=True)
    parts = [distance(x, p, h, C, *of_H, free | True) for x, p, h in rows]
    assert max(parts) < 1e-20 * (X**2).sum()  # these are the best
    parts += [distance(x, p, c, H.T, *of_W, free) for x, p, c in columns]
    assert end.kkt_residual == pytest.approx(np.sqrt(sum(parts) / (P * X**2).sum()), rel=1e-9)
    own = FROBENIUS.on(V, penalties, n_fixed, rescale=False).finish(W, sort=False)
    np.testing.assert_array_equal(own.H[end.order], H)
    contributions = np.linalg.norm(C, axis=0)[:, None] * H
    np.testing.assert_array_equal(end.labels, contributions.argmax(axis=0))


@pytest.mark.parametrize("n_fixed", [0, 1])
@pytest.mark.parametrize("terms", PENALTIES)
@pytest.mark.parametrize("known", KNOWN)
def test_counts(known, terms, n_fixed):
    (said, P), penalties = KNOWN[known], PENALTIES[terms]
    V = from_rows(X.astype(float), block_samples=7, **said)
    end = POISSON.on(V, penalties, n_fixed, rescale=False).finish(W)
    C, H = W[:, end.order], end.H
    rates = (C @ H).T
    value = (P * kl_div(X, rates)).sum()
    added = 0.3 * H.sum() + 0.5 * C.sum() + (0.4 * (H**2).sum() + 0.7 * (C**2).sum()) / 2
    assert end.squared_error == pytest.approx(value, rel=1e-9)
    assert end.objective == pytest.approx(value + added * (terms == "both"), rel=1e-9)
    free = slice(n_fixed, None)
    slopes = P.T @ H.T + penalties.l1_w + penalties.l2_w * C  # (F, K)
    pulls = (P * X / rates).T @ H.T
    excess = (pulls / slopes)[:, free].max(axis=1)
    masses = (C * slopes)[:, free].sum(axis=1)
    if n_fixed:
        excess = np.maximum(excess, 1)
        masses += (C * pulls)[:, 0] / excess
    totals = (P * X).sum(axis=0)
    gaps = masses - totals + totals * np.log(excess)
    assert end.kkt_residual == pytest.approx(np.maximum(gaps, 0).sum() / totals.sum(), rel=1e-6)
    shares = C.sum(axis=0) * H.sum(axis=1)
    np.testing.assert_allclose(end.shares, shares / shares.sum())
    assert (np.diff(end.shares[n_fixed:]) <= 0).all()
    np.testing.assert_array_equal(end.labels, (C.sum(axis=0)[:, None] * H).argmax(axis=0))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_order_of_components_does_not_change_the_end(loss):
    V = from_rows(X + 0.5, block_samples=7)
    first = loss.on(V, rescale=False).finish(W)
    for order in itertools.permutations(range(K)):
        end = loss.on(V, rescale=False).finish(W[:, order])
        np.testing.assert_array_equal(np.array(order)[end.order], first.order)
        np.testing.assert_array_equal(end.labels, first.labels)
        np.testing.assert_allclose(end.H, first.H, rtol=1e-6)
        np.testing.assert_allclose(end.shares, first.shares, rtol=1e-6)
        kept = loss.on(V, rescale=False).finish(W[:, order], sort=False)
        np.testing.assert_array_equal(kept.order, range(K))
        np.testing.assert_array_equal(np.array(order)[kept.labels], first.order[first.labels])


@pytest.mark.parametrize("loss", [FROBENIUS, POISSON], ids=["squares", "counts"])
@pytest.mark.parametrize("terms", PENALTIES)
@pytest.mark.parametrize("known", KNOWN)
def test_the_value_of_each_iteration(known, terms, loss):
    """At the updated W if the loss knows it there, or at the W of the pass."""
    (said, P), penalties = KNOWN[known], PENALTIES[terms]
    V = from_rows(X.astype(float), block_samples=7, **said)
    objective = loss.on(V, penalties, rescale=False)
    start = RNG.random((K, N)) + 0.1
    run = Run(objective, W, start, loss.solver("auto"), Stopping(0, max_iter=3))
    for _ in range(2):
        run._rests = True  # not extrapolated
        before = run.W
        run.step()
        shows_any_W = loss is FROBENIUS and getattr(run.sums, "grams", True) is not None
        is_known = shows_any_W or objective.turned is not None
        C, H = run.W if is_known else before, np.asarray(run.Ht).T
        rates = (C @ H).T
        losses = (X - rates) ** 2 if loss is FROBENIUS else kl_div(X, rates)
        added = 0.3 * H.sum() + 0.5 * C.sum() + (0.4 * (H**2).sum() + 0.7 * (C**2).sum()) / 2
        value = (P * losses).sum() + added * loss.degree * (terms == "both")
        assert run.value == pytest.approx(value, rel=1e-9)
        scale = (P * X**2).sum() if loss is FROBENIUS else margins(V).divergence
        assert run.errors[-1] == pytest.approx((value / scale) ** (1 / loss.degree))


def test_errors_that_were_rounded_are_raised_to_the_first_exact_one():
    """So the history does not rise where a run leaves single precision."""
    V = from_rows(X.astype(float))
    run = Run(FROBENIUS.on(V), W, None, SOLVERS["nnlsb"], Stopping(0, max_iter=9))
    run.step()
    error = run.errors[0]
    run.since, run.errors, run._rests = 2, [2 * error, 0.0], True
    run.step()
    assert run.errors[0] == 2 * error
    assert 0 < run.errors[1] == run.errors[2] <= error


# --- where fits begin -------------------------------------------------------------------------


def test_weights_of_features_begin_as_on_data_that_are_scaled():
    """Also the residual of known components, from whose init the others come."""
    weights, solver = np.linspace(0.2, 3, F), SOLVERS["hals"]
    roots = np.sqrt(weights)
    for given in (None, W[:, :1]):
        fixed = None if given is None else Fixed(given)
        scaled_fixed = None if given is None else Fixed(given * roots[:, None])
        V, scaled = from_rows(X.astype(float), weights=weights), from_rows(X * roots)
        one = Problem(FROBENIUS, fixed=fixed).bind(V)
        other = Problem(FROBENIUS, fixed=scaled_fixed)
        begun = one.begin(V, K, "spa", solver, None)
        expected = other.begin(scaled, K, "spa", solver, None)
        np.testing.assert_allclose(begun.W * roots[:, None], expected.W, rtol=1e-9)


def test_counts_begin_with_their_totals_in_the_balanced_scale():
    V, solver, given = from_rows(X.astype(float)), POISSON.solvers["newton"], PENALTIES["both"]
    plain = POISSON.begin(V, K, W, None, solver, NO_PENALTIES, 0, warm=False)
    np.testing.assert_allclose((plain.W @ plain.H).sum(axis=0), X.sum(axis=1))
    np.testing.assert_allclose(np.ptp(W.sum(axis=0)[:, None] * plain.H, axis=0), 0, atol=1e-9)
    np.testing.assert_array_equal(_equal_coefficients(V, W), plain.H)
    for n_fixed in (0, 1):
        start = POISSON.begin(V, K, W, None, solver, given, n_fixed, warm=False)
        np.testing.assert_allclose(start.W @ start.H, plain.W @ plain.H)
        np.testing.assert_array_equal(start.W[:, :n_fixed], W[:, :n_fixed])
        left = balancing_factors(start.W, start.H.sum(axis=1), (start.H**2).sum(axis=1), given)
        np.testing.assert_allclose(left[n_fixed:], 1.0)
        assert not np.allclose(start.W, W)
    lost = W * (np.arange(F) != 4)[:, None]
    start = POISSON.begin(V, K, lost, None, solver, NO_PENALTIES, 1, warm=False)
    assert start.W[4, 0] == 0  # a known component stays as it is
    assert (start.W[4, 1:] > 0).all()
    warm = POISSON.begin(V, K, W, None, solver, NO_PENALTIES, 1, warm=True)
    np.testing.assert_array_equal(warm.W[:, :1], W[:, :1])
    assert kl_div(X.T, warm.W @ warm.H).sum() < kl_div(X.T, plain.W @ plain.H).sum()


def test_inits_of_counts_have_a_little_of_the_mean_everywhere():
    V = from_rows(X.astype(float))
    mean = X.sum(axis=0) / X.sum()
    start = POISSON.initialize(V, K, "nndsvd")
    np.testing.assert_allclose(start.W.sum(axis=0), 1)
    source = initialize(to_sums(V, 1.0), K, "nndsvd", None).W
    expected = 0.99 * source / source.sum(axis=0) + 0.01 * mean[:, None]
    np.testing.assert_allclose(start.W, expected, rtol=1e-6)
    weighed = weigh_samples(V, np.linspace(0.5, 2, N), POISSON.degree)
    roots = np.sqrt(np.linspace(0.5, 2, N))
    everything = np.arange(N)
    np.testing.assert_allclose(
        unit_sums(weighed).columns(everything),
        times_samples(to_sums(V, 1.0), roots).columns(everything),
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_kept_of_the_components_is_never_that_of_others(order):
    """The last components are kept for the next call; they may change in place meanwhile."""
    V = from_rows(X + 0.0)
    own = np.array(W, order=order)
    first = coefficients(V, own)[0]
    np.testing.assert_array_equal(coefficients(V, own)[0], first)
    own[:, 1] *= 3.0
    np.testing.assert_allclose(coefficients(V, own)[0][1], first[1] / 3.0)
    own[:, 0] = 1e-320  # too small for coefficients in range
    assert not coefficients(V, own)[0][0].any()
    single = coefficients(V, W.astype(np.float32))[0]
    np.testing.assert_array_equal(single, coefficients(V, W.astype(np.float32).astype(float))[0])
    holes = from_rows(X + 0.0, mask=X != 1)
    np.testing.assert_array_equal(coefficients(holes, W)[0], coefficients(holes, W.copy())[0])
    assert np.abs(coefficients(holes, W)[0] - first).max() > 1e-3

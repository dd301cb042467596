"""Tests of `judge.dual_bound`."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import kl_div
from sklearn.decomposition import NMF

from conenmf import from_columns
from conenmf.judge import dual_bound as module
from conenmf.judge.dual_bound import divergence_bound


def tiny(seed):
    """A tiny table of counts with zeros, a zero feature perhaps, and a number of components."""
    rng = np.random.default_rng(seed)
    F, N = rng.integers(3, 9, 2)
    V = rng.poisson(rng.gamma(0.4, 6, (F, N))).astype(float)
    V[rng.integers(F)] *= rng.random() < 0.5
    V[0] += rng.random() < 0.5
    V[1, 1] += 1
    return V, int(rng.integers(1, min(F, N) + 1)), rng


def smallest_divergence(V, K, rng, n_starts=10, n_iter=200):
    """Of multiplicative updates from random factors."""
    W, H = (rng.random(shape) ** 3 for shape in ((n_starts, len(V), K), (n_starts, K, V.shape[1])))
    for _ in range(n_iter):
        W = W * ((V / (W @ H + 1e-300)) @ H.swapaxes(1, 2)) / (H.sum(axis=2)[:, None] + 1e-300)
        H = H * (W.swapaxes(1, 2) @ (V / (W @ H + 1e-300))) / (W.sum(axis=1)[..., None] + 1e-300)
    return kl_div(V, W @ H).sum(axis=(1, 2)).min()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), effort=st.sampled_from([0, 1, 6, 30]))
def test_no_factors_beat_the_bound(seed, effort):
    V, K, rng = tiny(seed)
    bound = divergence_bound(from_columns(V), K, effort=effort)
    assert 0 <= bound.value <= bound.of_margins
    assert bound.value <= smallest_divergence(V, K, rng) + 1e-9 * V.sum()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_any_weights_give_a_bound(seed):
    """The theorem, without this library."""
    V, K, rng = tiny(seed)
    V = V[V.any(axis=1)][:, V.any(axis=0)]
    total = V.sum()
    r, c = V.sum(axis=1) / total, V.sum(axis=0) / total
    B = np.where(V > 0, np.exp(rng.standard_normal(V.shape)), 0.0)
    A = np.sqrt(r)[:, None] * B * np.sqrt(c)
    of_r, of_c = (np.eye(len(m)) - np.outer(np.sqrt(m), np.sqrt(m)) for m in (r, c))
    sigma = np.linalg.svd(of_r @ A @ of_c, compute_uv=False)
    logs = np.log(B, out=np.zeros_like(B), where=B > 0)
    below = (V * logs).sum() - total * np.log(r @ B @ c + sigma[: K - 1].sum())
    assert below <= smallest_divergence(V, K, rng) + 1e-9 * total


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_it_is_exact_for_one_component_and_zero_for_exact_data(seed):
    V, K, rng = tiny(seed)
    margins = np.outer(V.sum(axis=1), V.sum(axis=0)) / V.sum()
    one = divergence_bound(from_columns(V), 1)
    assert one.value == pytest.approx(kl_div(V, margins).sum(), abs=1e-9 * V.sum())
    exact = rng.random((12, K)) @ rng.random((K, 15))
    assert divergence_bound(from_columns(exact), K).value <= 1e-6 * exact.sum()
    assert divergence_bound(from_columns(V), min(V.shape)).value == 0


def topics(rng, n_samples=300, n_features=120):
    """Sparse counts of four topics."""
    patterns = rng.dirichlet(np.full(n_features, 0.05), 4)
    return rng.poisson(rng.gamma(0.3, 12, (n_samples, 4)) @ patterns).T.astype(float)


def test_steps_raise_it_far_above_correspondence_analysis():
    V = topics(np.random.default_rng(0))
    at_first, raised = (divergence_bound(from_columns(V), 4, effort=e) for e in (0, 6))
    r, c = V.sum(axis=1) / V.sum(), V.sum(axis=0) / V.sum()
    keep_r, keep_c = r > 0, c > 0
    S = V[keep_r][:, keep_c] / V.sum() / np.sqrt(np.outer(r[keep_r], c[keep_c]))
    sigma = np.linalg.svd(S, compute_uv=False)
    by_hand = at_first.of_margins - V.sum() * np.log(sigma[:4].sum())
    assert at_first.value == pytest.approx(max(by_hand, 0.0), abs=1e-5 * at_first.of_margins)
    model = NMF(4, solver="mu", beta_loss="kullback-leibler", init="random", random_state=0)
    model.set_params(max_iter=300)
    found = kl_div(V.T, model.fit_transform(V.T) @ model.components_).sum()
    assert at_first.value + 0.1 * found <= raised.value <= found
    assert raised.failure_probability == 0


def test_long_sides_are_bounded_by_a_subspace(monkeypatch):
    V = topics(np.random.default_rng(1))
    whole = divergence_bound(from_columns(sp.csc_array(V)), 4)
    monkeypatch.setattr(module, "_MAX_GRAM_SIDE", 0)
    part = divergence_bound(from_columns(sp.csc_array(V)), 4)
    assert part.failure_probability == 1e-9
    assert whole.value * 0.99 <= part.value <= whole.value + 1e-9 * whole.of_margins


def test_it_is_the_same_in_every_storage(main_backend, small_blocks):
    V = topics(np.random.default_rng(2), 60, 20)
    found, expected = divergence_bound(main_backend(V), 3), divergence_bound(from_columns(V), 3)
    assert found.of_margins == pytest.approx(expected.of_margins, rel=1e-6)
    assert found.value == pytest.approx(expected.value, rel=1e-6)
    assert expected.value > 0

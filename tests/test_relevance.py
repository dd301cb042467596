"""Automatic relevance determination, which the benchmarks compare with."""

import numpy as np
import pytest

from conenmf import make_cones

pytestmark = pytest.mark.nightly  # these programs are run by benchmarks only


@pytest.fixture
def relevance(paper):
    def determine(V, K, prior="l1", noise=0.01, max_iter=1000):
        rng = np.random.default_rng(0)
        return paper("relevance").determine_relevance(V, K, prior, noise, max_iter, rng)

    return determine


def cones(noise=0.1):
    rng = np.random.default_rng(0)
    return make_cones(60, 3, 0.2, n_samples=200, noise=noise, rng=rng).V


def published(V, W, H, scale, phi, prior):
    """One iteration of Tan and Fevotte for beta = 2, entry by entry as in their paper."""
    (F, N), K = V.shape, W.shape[1]
    shrink = phi / np.tile(scale[:, None], (1, N))
    H = H * (W.T @ V) / (W.T @ (W @ H) + (shrink * H if prior == "l2" else shrink))
    shrink = phi / np.tile(scale[None, :], (F, 1))
    W = W * (V @ H.T) / ((W @ H) @ H.T + (shrink * W if prior == "l2" else shrink))
    a = np.log(F + N)
    if prior == "l2":
        c, b = (F + N) / 2 + a + 1, np.pi * (a - 1) * V.mean() / (2 * K)
        sizes = (W**2).sum(axis=0) / 2 + (H**2).sum(axis=1) / 2
    else:
        c, b = F + N + a + 1, np.sqrt((a - 1) * (a - 2) * V.mean() / K)
        sizes = W.sum(axis=0) + H.sum(axis=1)
    costs = (sizes + b) / scale + c * np.log(scale)
    objective = ((V - W @ H) ** 2).sum() / (2 * phi) + costs.sum()
    return W, H, (sizes + b) / c, b / c, objective


@pytest.mark.parametrize("prior", ["l1", "l2"])
def test_the_updates_are_the_published_ones(prior, relevance):
    """From where one iteration has led, nine more."""
    V = cones()
    first, second, last = (relevance(V, 5, prior, max_iter=n) for n in (1, 2, 10))
    W, H, scale = first.W, first.H, second.scales  # those that the second iteration begins with
    for _ in range(9):
        before = scale
        W, H, scale, bound, objective = published(V, W, H, scale, 0.01, prior)
    np.testing.assert_allclose(last.W, W, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(last.H, H, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(last.scales, before, rtol=1e-9)
    assert last.bound == pytest.approx(bound, rel=1e-12)
    assert last.objectives[-1] == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("prior", ["l1", "l2"])
def test_the_objective_never_rises(prior, relevance):
    found = relevance(cones(), 6, prior, max_iter=200)
    assert (np.diff(found.objectives) <= 1e-10 * np.abs(found.objectives[:-1])).all()
    assert (found.scales >= found.bound).all()


def test_irrelevant_components_vanish(relevance):
    found = relevance(cones(), 10)
    assert found.n_relevant == 3
    kept = found.scales > 2 * found.bound
    assert kept.sum() == 3
    assert found.W[:, ~kept].max() < 1e-6 * found.W.max()
    assert relevance(cones(), 10, noise=10.0).n_relevant < 3  # more noise than anything there is


def test_data_without_noise_keep_too_many(relevance):
    """As the paper says of samples in cones: what is beside the axes counts as components."""
    assert relevance(cones(0.0), 10, noise=1e-3, max_iter=300).n_relevant > 3

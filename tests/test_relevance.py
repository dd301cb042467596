"""Automatic relevance determination, which the benchmarks compare with."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from conenmf import from_columns, make_cones

PATH = Path(__file__).parents[1] / "benchmarks" / "paper" / "relevance.py"
_specification = importlib.util.spec_from_file_location("_relevance", PATH)
relevance = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(relevance)
determine_relevance = relevance.determine_relevance


def noisy(seed=0):
    rng = np.random.default_rng(seed)
    return make_cones(60, 3, 0.2, n_samples=200, noise=0.1, rng=rng).V


def published(V, W, H, phi, a, prior, n_iter):
    """The updates of Tan and Fevotte for beta = 2, written out for a whole matrix."""
    (F, N), K = V.shape, W.shape[1]
    if prior == "l2":
        c, b = (F + N) / 2 + a + 1, np.pi * (a - 1) * V.mean() / (2 * K)
    else:
        c, b = F + N + a + 1, np.sqrt((a - 1) * (a - 2) * V.mean() / K)

    def scales():
        if prior == "l2":
            return ((W**2).sum(axis=0) / 2 + (H**2).sum(axis=1) / 2 + b) / c
        return (W.sum(axis=0) + H.sum(axis=1) + b) / c

    scale = scales()
    for _ in range(n_iter):
        shrink = phi / np.tile(scale[:, None], (1, N))
        H = H * (W.T @ V) / (W.T @ (W @ H) + (shrink * H if prior == "l2" else shrink))
        shrink = phi / np.tile(scale[None, :], (F, 1))
        W = W * (V @ H.T) / ((W @ H) @ H.T + (shrink * W if prior == "l2" else shrink))
        scale = scales()
    fit = ((V - W @ H) ** 2).sum() / (2 * phi)
    if prior == "l2":
        sizes = (W**2).sum(axis=0) / 2 + (H**2).sum(axis=1) / 2
    else:
        sizes = W.sum(axis=0) + H.sum(axis=1)
    return W, H, scale, b / c, fit + ((sizes + b) / scale + c * np.log(scale)).sum()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("prior", ["l1", "l2"])
def test_the_updates_are_the_published_ones(prior, main_backend, small_blocks):
    """From where one iteration has led, nine more."""
    V, options = noisy(), {"prior": prior, "noise": 0.01, "shape": 6.0, "tol": 0.0}
    D = main_backend(V)
    first = determine_relevance(D, 5, max_iter=1, rng=np.random.default_rng(1), **options)
    last = determine_relevance(D, 5, max_iter=10, rng=np.random.default_rng(1), **options)
    H = np.asarray(first.H)
    W, H, scale, bound, objective = published(V, first.W, H, 0.01, 6.0, prior, 9)
    np.testing.assert_allclose(last.W, W, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.asarray(last.H), H, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(last.scales, scale, rtol=1e-9)
    assert last.bound == pytest.approx(bound, rel=1e-12)
    assert last.objectives[-1] == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("prior", ["l1", "l2"])
def test_the_objective_never_rises(prior):
    found = determine_relevance(from_columns(noisy()), 6, prior=prior, max_iter=200, tol=0.0)
    steps = np.diff(found.objectives)
    assert (steps <= 1e-10 * np.abs(found.objectives[:-1])).all()
    assert (found.scales >= found.bound).all()


def test_irrelevant_components_vanish():
    found = determine_relevance(from_columns(noisy()), 10)
    assert found.n_relevant == 3
    kept = found.scales > 2 * found.bound
    assert kept.sum() == 3
    assert found.W[:, ~kept].max() < 1e-6 * found.W.max()
    noisier = determine_relevance(from_columns(noisy()), 10, noise=10.0)  # than anything there is
    assert noisier.n_relevant < 3


def test_data_without_noise_keep_too_many():
    """As the paper says of samples in cones: what is beside the axes counts as components."""
    V = make_cones(60, 3, 0.2, n_samples=200, rng=np.random.default_rng(0)).V
    assert determine_relevance(from_columns(V), 10, max_iter=300).n_relevant > 3

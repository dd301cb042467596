"""Automatic relevance determination for NMF (Tan and Fevotte, 2013), which the paper names.

`counting.py` measures it on the paper's model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conenmf.types import Array

PRIORS = ("l1", "l2")
RELEVANT = 1e-3  # a component counts if its scale exceeds the lower bound by this share
TINY = np.finfo(np.float64).tiny


class Relevance(NamedTuple):
    """Factors, the scales of components, their lower bound, and the objective per iteration."""

    W: Array
    H: Array
    scales: Array
    bound: float
    objectives: list[float]

    @property
    def n_relevant(self) -> int:
        """How many components are relevant: their scales are above the bound."""
        return int(np.count_nonzero(self.scales > (1 + RELEVANT) * self.bound))


def determine_relevance(
    V: Array, K: int, prior: str, noise: float, max_iter: int, rng: np.random.Generator
) -> Relevance:
    """Factor V (F, N) with K components, and let irrelevant components vanish.

    The Bayesian model of Tan and Fevotte ("Automatic relevance determination in nonnegative matrix
    factorization with the beta-divergence", IEEE Trans. Pattern Anal. Mach. Intell. 35, 2013) for
    Gaussian noise of variance `noise`, beta = 2. Column k of W and row k of H share a scale. If it
    falls to its lower bound, the component is irrelevant. The updates by majorisation and
    minimisation, and the shapes a and b of the prior, are as published.

    It minimises ||V - W H||^2 / (2 noise) + sum_k (f(w_k) + f(h_k) + b) / lambda_k + c log lambda_k
    over W, H and lambda, where f is the sum ("l1": exponential priors, c = F + N + a + 1) or half
    the sum of squares ("l2": half-normal priors, c = (F + N) / 2 + a + 1).

    >>> from conenmf import make_cones
    >>> rng = np.random.default_rng(0)
    >>> V = make_cones(60, 3, 0.2, n_samples=200, noise=0.1, rng=rng).V
    >>> determine_relevance(V, 10, "l1", 0.01, 1000, rng).n_relevant
    3
    """
    (F, N), mean, power = V.shape, V.mean(), 1 if prior == "l1" else 2
    a = np.log(F + N)
    b = np.sqrt((a - 1) * (a - 2) * mean / K) if power == 1 else np.pi * (a - 1) * mean / (2 * K)
    c = (F + N) / power + a + 1
    size = 2 * np.sqrt(mean / K)  # uniform entries up to this size give W H the mean of V
    W = size * rng.random((F, K))
    H = size * rng.random((K, N))
    total = (V**2).sum()
    scales = np.zeros(K)
    objectives = []
    for _ in range(max_iter):
        before = scales
        scales = _sizes(W, H, b, power) / c
        if np.allclose(scales, before, rtol=1e-7, atol=0):
            break
        shrink = noise / scales
        penalty = shrink[:, None] * H ** (power - 1)
        H = H * (W.T @ V) / np.maximum(W.T @ W @ H + penalty, TINY)
        G = H @ H.T
        Y = V @ H.T
        W = W * Y / np.maximum(W @ G + shrink * W ** (power - 1), TINY)
        squares = total - 2 * (W * Y).sum() + (W.T @ W * G).sum()
        costs = _sizes(W, H, b, power) / scales + c * np.log(scales)
        objectives.append(float(squares / (2 * noise) + costs.sum()))
    return Relevance(W, H, scales, float(b / c), objectives)


def _sizes(W: Array, H: Array, b: float, power: int) -> Array:
    """f(w_k) + f(h_k) + b of each component."""
    return ((W**power).sum(axis=0) + (H**power).sum(axis=1)) / power + b

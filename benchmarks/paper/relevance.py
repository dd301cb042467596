"""Automatic relevance determination for NMF (Tan and Fevotte, 2013), which the paper names.

`counting.py` measures it on the paper's model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conenmf.data.blocks import Array, Block, exact, products, weighted_sums
from conenmf.data.matrix import Aligned, DataMatrix
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import random_coefficients

PRIORS = ("l1", "l2")
_RELEVANT = 1e-3  # by which a scale exceeds its lower bound, relatively, if a component counts
_TINY = np.finfo(np.float64).tiny


class Relevance(NamedTuple):
    """Which components are relevant.

    Attributes
    ----------
    W : array (F, K)
    H : array (K, N)
    scales : array (K,)
        lambda_k.
    bound : float
        The lower bound of the scales, at which a component is zero.
    objectives : array
        The negative logarithm of the posterior density, but for a constant, after each iteration.
    """

    W: Array
    H: Aligned
    scales: Array
    bound: float
    objectives: Array

    @property
    def excess(self) -> Array:
        """How far scales are above their bound, relative to it; the largest first."""
        return np.sort((self.scales - self.bound) / self.bound)[::-1]

    @property
    def n_relevant(self) -> int:
        """How many components are relevant."""
        return int(np.count_nonzero(self.excess > _RELEVANT))


def determine_relevance(
    V: DataMatrix,
    K: int,
    *,
    prior: str = "l1",
    noise: float | None = None,
    shape: float | None = None,
    tol: float = 1e-7,
    max_iter: int = 1000,
    rng: np.random.Generator | None = None,
) -> Relevance:
    """Factor V with K components, and let those that are not relevant vanish.

    The Bayesian model of Tan and Fevotte ("Automatic relevance determination in nonnegative matrix
    factorization with the beta-divergence", IEEE Trans. Pattern Anal. Mach. Intell. 35, 2013) for
    Gaussian noise, beta = 2. Column k of W and row k of H share a scale lambda_k; where it falls to
    its lower bound, the component is not relevant. The updates are the published ones, by
    majorisation and minimisation, one pass over V each. The paper on cones says that this does not
    work well for them (Section V); `counting.py` measures it.

    Minimises ||V - W H||^2 / (2 phi) + sum_k (f(w_k) + f(h_k) + b) / lambda_k + c log lambda_k
    over W, H and lambda, where f is the sum ("l1": exponential priors, c = F + N + a + 1) or half
    the sum of squares ("l2": half-normal ones, c = (F + N) / 2 + a + 1).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        Components to begin with, more than are expected to be relevant.
    prior : {"l1", "l2"}
    noise : float, optional
        phi, the variance of the noise; by default what the K leading singular values leave.
    shape : float, optional
        a, above 2; by default log(F + N). The smaller, the fewer are relevant. b follows from it
        and from the mean of V, as published.
    tol : float
        Stop when no scale changes by more than this, relatively, ...
    max_iter : int
        ... or after so many iterations.
    rng : numpy.random.Generator, optional
        For the initial factors; by default one of a fixed seed.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 3, 0.2, n_samples=200, noise=0.1, rng=np.random.default_rng(0))
    >>> determine_relevance(from_columns(model.V), 10).n_relevant
    3
    """
    rng = np.random.default_rng(0) if rng is None else rng
    (F, N), mean = V.shape, V.mean()
    a = max(np.log(F + N), 2.1) if shape is None else shape
    b = np.sqrt((a - 1) * (a - 2) * mean / K) if prior == "l1" else np.pi * (a - 1) * mean / (2 * K)
    c = (F + N if prior == "l1" else (F + N) / 2) + a + 1
    with V.own_threads():
        phi = _noise_left(V, K) if noise is None else noise
        size = 2 * np.sqrt(mean / K)  # of entries that are uniform up to it: W H is as V on average
        W = size * rng.random((F, K))
        Ht, (penalty,) = V.map(_first, random_coefficients(V, K, rng).T, size=size, prior=prior)
        scales = (_penalties(W, prior) + penalty + b) / c
        objectives = []
        for _ in range(max_iter):
            ratio, G, before = phi / scales, W.T @ W, scales
            Ht, (VH, HH, penalty) = V.sweep(_update, Ht, W=W, G=G, ratio=ratio, prior=prior)
            W = _multiplied(W, VH, HH, ratio, prior)
            sizes = _penalties(W, prior) + penalty + b
            scales = sizes / c
            squared = V.total - 2 * float(np.vdot(VH, W)) + float(np.vdot(W.T @ W, HH))
            costs = sizes / scales + c * np.log(scales)
            objectives.append(squared / (2 * phi) + float(costs.sum()))
            if np.max(np.abs(scales - before) / before) <= tol:
                break
    return Relevance(W, Ht.T, scales, float(b / c), np.array(objectives))


def _noise_left(V: DataMatrix, K: int) -> float:
    """The variance of noise in V if the K leading components are not noise."""
    F, N = V.shape
    left = V.total - float((Spectrum(V).singular_values(K, rough=True) ** 2).sum())
    rounding = 10 * min(F, N) * np.finfo(np.float64).eps * V.total
    return max(left, rounding) / (max(F - K, 1) * max(N - K, 1))


def _penalties(Y: Array, prior: str) -> Array:
    """The sum of each column, or half the sum of its squares."""
    return Y.sum(axis=0) if prior == "l1" else 0.5 * np.einsum("nk,nk->k", Y, Y)


def _multiplied(Y: Array, C: Array, G: Array, ratio: Array, prior: str) -> Array:
    """Y C / (Y G + phi / lambda), or with Y phi / lambda as the last term for "l2"."""
    below = Y @ G + (ratio if prior == "l1" else ratio * Y)
    return Y * C / np.maximum(below, _TINY)


def _first(index: range, H: Array, *, size: float, prior: str) -> tuple[Array, tuple[Array]]:
    H = size * H.astype(np.float64)
    return H, (_penalties(H, prior),)


def _update(
    block: Block, H: Array, *, W: Array, G: Array, ratio: Array, prior: str
) -> tuple[Array, tuple[Array, Array, Array]]:
    block = exact(block)
    H = _multiplied(H, products(block, W), G, ratio, prior)
    return H, (weighted_sums(block, H), H.T @ H, _penalties(H, prior))

"""Limits for the entries of components, from the scatter of runs and from movable components.

The bootstrap assumes that fits of resampled data scatter around the fit as the fit scatters around
the truth. Their standard deviation is a standard error, and `entry_limits` uses Student's t, which
allows for few runs. (Quantiles of the runs are too narrow: the 5% and 95% quantiles of 20 runs
contain 81% of new values.)

The bootstrap does not show whether other factors explain the data equally well, because all runs
may end at the same factors. `moved_ranges` looks for other factors. Up to noise, all of them are W
T with a matrix T (K, K). They explain the data if negative entries of W T and T^-1 H are not larger
than noise: the samples then lie inside the simplex of the moved components, and the components
inside the nonnegative orthant. So each component is moved in several directions, as far as these
conditions allow, and the other components follow. This reads the data once, or only a subset of the
samples for large data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.linalg import cond, inv, norm, pinv, qr
from scipy.special import ndtr, stdtrit

from ..data.blocks import unit_columns
from ..solve.problem import Problem
from ..types import Array, Pair

LEAST_SQUARES = Problem()
LEVEL = 0.9  # the share of true entries that the limits are designed to cover
MAX_MOVE = math.radians(45)  # a component that can be moved farther gets no limits
_NEAR = 1.0  # in standard deviations of noise: a sample this near to a face counts as on it
_SLACK = 1.0  # allowed growth of the squared distances, in units of what noise causes
_PRIOR = 5.0  # entries of average noise, added to the residuals of each sample and feature
_MIN_NOISE = 1e-3  # of the data: assumed even if residuals are smaller
_MIN_STEP = 1e-4  # the smallest unit of a move
_MAX_PUSHES = 36  # in opposite pairs, for all components; each component has at least two
_MAX_ITER = 50  # iterations of each push
_MAX_HALVINGS = 40
_MAX_CORRECTIONS = 10
_FAR = 1e100  # beyond all limits
# Largest share of a component in another one; a search that exceeds it is turned back. The excess
# is bounded but a push is not, so the search would never return.
_MAX_SHARE = 10.0
_ROUNDING = 1e-12  # of the largest entry: smaller noise is rounding
_MAX_CONDITION = 1e8  # beyond it, vectors count as linearly dependent


def entry_limits(centre: Array, runs: Array) -> Pair:
    """Return the limits of each entry: centre -+ t s sqrt(1 + pi / 2n), not below zero.

    Here s is the standard deviation over the n runs, t the 0.95 quantile of Student's t with n - 1
    degrees of freedom, and pi / 2n the variance of a median of n values. With one run the limits
    are NaN.

    Parameters
    ----------
    centre : array (F,)
        The median over runs.
    runs : array (n, F)

    Examples
    --------
    >>> low, high = entry_limits(np.array([0.5]), np.array([[0.4], [0.5], [0.6]]))
    >>> low.round(2), high.round(2)
    (array([0.14]), array([0.86]))
    """
    n = len(runs)
    if n < 2:
        nothing = np.full_like(centre, np.nan)
        return nothing, nothing
    quantile = stdtrit(n - 1, (1 + LEVEL) / 2)
    width = quantile * np.sqrt(1 + np.pi / (2 * n)) * runs.std(axis=0, ddof=1)
    return np.maximum(centre - width, 0.0), centre + width


def evened(weights: Array) -> Array:
    """Return factors that give residuals the noise of their feature and their sample.

    Weights are inverse variances of noise, up to a factor, and 0 for missing entries, whose factors
    are 0. `moved_ranges` models noise as a product of features and samples. So an entry that is
    noisier than this product is moved towards the fit by the ratio of the two.

    Examples
    --------
    >>> evened(np.array([[4.0, 4.0, 4.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.01]])).round(2).tolist()
    [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.1]]
    """
    logs = np.ma.log(np.ma.masked_equal(weights, 0)) / 2
    for axis in (1, 0):
        logs -= np.ma.median(logs, axis, keepdims=True)  # type: ignore[no-untyped-call]
    return np.asarray(np.ma.exp(logs).filled(0.0))


class Ranges(NamedTuple):
    """The ranges of components, each with a sum of one.

    Attributes
    ----------
    lower, upper : arrays (F, K)
    angles : array (K,)
        How far each component was moved, in radians.
    reason : str
        Why nothing is known; empty if ranges are known.
    """

    lower: Array
    upper: Array
    angles: Array
    reason: str = ""


def moved_ranges(
    X: Array, W: Array, H: Array, steps: Array, problem: Problem = LEAST_SQUARES
) -> Ranges:
    """Return the ranges over which components of X ~ W H can be moved within the noise of X.

    The variance of an entry's noise is the product of one factor for its feature and one for its
    sample, estimated from residuals, so counts need no special treatment. A face of the simplex may
    move inside the samples, but only a little. The sum of squared distances of samples outside the
    face may grow by what noise of samples on the face causes: half the number of these samples,
    plus one. Samples inside the face of W by at most one standard deviation, or outside it, count
    as on it.

    Parameters
    ----------
    X : array (F, N)
    W : array (F, K)
        Each column has a sum of one.
    H : array (K, N)
    steps : array (K, K)
        Units of the moves: column l has units for moving component l towards each other one, such
        as the standard deviations over runs.
    problem : Problem
        What the fit minimised. Known components do not move. If coefficients sum to one, they still
        do after a move, and W has the sizes of the fit instead of sums of one.

    Examples
    --------
    Samples are mixed, and no feature is without any component: both can be moved.

    >>> rng = np.random.default_rng(0)
    >>> W = np.array([[0.5, 0.2], [0.2, 0.6], [0.3, 0.2]])
    >>> H = rng.dirichlet([9, 9], 50).T
    >>> X = W @ H + rng.normal(0, 1e-3, (3, 50))
    >>> np.degrees(moved_ranges(X, W, H, np.full((2, 2), 0.01)).angles).round()
    array([19., 20.])
    """
    (F, K) = W.shape
    N = X.shape[1]
    if K == 1:
        return Ranges(W, W, np.zeros(1))
    reason = ""
    if min(F, N) <= K:
        reason = f"there are too few {'features' if F <= K else 'samples'} to see noise"
    elif not max(cond(unit_columns(Y)) for Y in (W, H.T)) < _MAX_CONDITION:
        reason = "the components, or their coefficients, are linearly dependent"
    if reason:
        nothing = np.full((F, K), np.nan)
        return Ranges(nothing, nothing, nothing[0], reason)
    ends = _Window(X, W, H).extremes(np.maximum(steps, _MIN_STEP), problem.n_fixed)
    moved = np.maximum([W, *ends], 0)
    if not problem.penalties.sum_to_one:
        moved /= moved.sum(axis=1, keepdims=True)
    cosines = np.array([(unit_columns(W) * unit_columns(one)).sum(axis=0) for one in moved])
    angles = np.arccos(np.minimum(cosines.min(axis=0), 1))
    return Ranges(moved.min(axis=0), moved.max(axis=0), angles)


class _Window:
    """The matrices T for which W T and T^-1 H are nonnegative up to noise.

    With W = Q R, the samples are A = Q' X, the components W T = Q (R T), and H = (R T)^-1 A. Noise
    is scaled to variance one.
    """

    def __init__(self, X: Array, W: Array, H: Array) -> None:
        (F, K) = W.shape
        N = X.shape[1]
        squares = (X - W @ H) ** 2
        mean = max(squares.sum() / ((F - K) * (N - K)), _MIN_NOISE**2 * np.mean(X**2))
        of_features = (squares.sum(axis=1) / mean + _PRIOR) / (N - K + _PRIOR)
        of_samples = (squares.T @ (1 / of_features) + _PRIOR * mean) / (F - K + _PRIOR)
        self.W = W
        self.Q, self.R = qr(W / np.sqrt(of_features)[:, None])
        self.A = (self.Q / np.sqrt(of_features)[:, None]).T @ (X / np.sqrt(of_samples))
        self.inverse = inv(self.A @ self.A.T)
        D, E = self.distances(self.R, inv(self.R))
        self.by_noise = 1 + np.array([(one < _NEAR).sum(axis=1) for one in (D, E)]) / 2
        squared = np.array([_squares(np.minimum(one, 0)) for one in (D, E)])
        self.at_start = squared / self.by_noise

    def distances(self, T: Array, U: Array) -> Pair:
        """Return distances of samples from the faces (K, N), and entries of components (K, F)."""
        sizes = np.sqrt((T * (self.inverse @ T)).sum(axis=0))
        return U / norm(U, axis=1, keepdims=True) @ self.A, (T / sizes).T @ self.Q.T

    def excess(self, T: Array) -> tuple[float, Array]:
        """Return by how much T exceeds what noise allows, and the gradient.

        It is the sum of squares over all faces and components, each in units of what noise causes.
        """
        if not np.abs(T).max() < _MAX_SHARE:
            return _FAR, np.zeros_like(T)
        T = self.R @ T
        try:
            U = inv(T)
        except np.linalg.LinAlgError:
            return _FAR, np.zeros_like(T)
        D, E = (np.minimum(distances, 0, out=distances) for distances in self.distances(T, U))
        squares = np.array([_squares(D), _squares(E)])
        faces, components = np.maximum(squares / self.by_noise - self.at_start - _SLACK, 0)
        norms = norm(U, axis=1, keepdims=True)
        M = self.inverse @ T
        sizes = np.sqrt((T * M).sum(axis=0))
        by_U = D @ self.A.T / norms - squares[0][:, None] * U / norms**2
        by_T = (E @ self.Q).T / sizes - squares[1] * M / sizes**2
        by_U = 4 * (faces / self.by_noise[0])[:, None] * by_U
        by_T = 4 * components / self.by_noise[1] * by_T
        value = float(faces @ faces + components @ components)
        return value, self.R.T @ (by_T - U.T @ by_U @ U.T)

    def extremes(self, steps: Array, n_fixed: int) -> list[Array]:
        """Push each component along several directions and back; return W after each push."""
        from scipy.optimize import minimize  # slow to import

        K = len(steps)
        others = ~np.eye(K, dtype=bool)
        others[:, :n_fixed] = False
        units = steps[others]

        def moved(z: Array) -> Array:
            T = np.zeros((K, K))
            T[others] = z * units
            np.fill_diagonal(T, 1 - T.sum(axis=0))  # sums stay one
            return T

        def loss(z: Array, push: Array) -> tuple[float, Array]:
            value, gradient = self.excess(moved(z))
            gradient = (gradient - gradient.diagonal())[others] * units
            return value - float(push @ z), gradient - push

        ends = []
        for push in _pushes(steps * others, n_fixed):
            with np.errstate(all="ignore"):  # a trial step may go too far
                z = minimize(
                    loss,
                    0 * units,
                    push[others],
                    method="L-BFGS-B",
                    jac=True,
                    options={"maxiter": _MAX_ITER},
                ).x
            for _ in range(_MAX_HALVINGS):
                if self.excess(moved(z))[0] <= _SLACK:
                    ends.append(self.W @ moved(z))
                    break
                z /= 2
        return ends


def _squares(rows: Array) -> Array:
    return np.vecdot(rows, rows)


def _pushes(steps: Array, n_fixed: int) -> list[Array]:
    """Return directions (K, K) that push one component: along all others, and along each."""
    K = len(steps)
    pushes = []
    for l in range(n_fixed, K):
        nearest = np.argsort(-steps[:, l], kind="stable")[: K - 1]
        for along in [steps[:, l], *np.eye(K)[nearest]][: max(2, _MAX_PUSHES // K)]:
            push = np.outer(along / norm(along), np.eye(K)[l])
            pushes += [push, -push]
    return pushes


def without_clipping(X: Array, W: Array, H: Array) -> Array:
    """Return the components, of sum one, from which clipping noise at zero made W.

    Least squares expects noise of mean zero. Data that cannot be negative often have normal noise
    that was clipped at zero, which raises a mean of u to u Phi(u) + phi(u), in units of the noise.
    So W has positive entries where the true ones are zero, and all other entries are relatively too
    small. Entries that clipping may explain, within two standard errors, become zero. The noise is
    estimated from entries that are too large to be clipped.

    Parameters
    ----------
    X : array (F, N)
    W : array (F, K)
    H : array (K, N)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> W, H = np.array([[0.9, 0.0], [0.1, 0.2], [0.0, 0.8]]), rng.dirichlet([0.1, 0.1], 5000).T
    >>> X = np.maximum(W @ H + rng.normal(0, 0.1, (3, 5000)), 0)
    >>> fit = X @ np.linalg.pinv(H)
    >>> fit.round(2).tolist()
    [[0.9, 0.03], [0.11, 0.2], [0.03, 0.8]]
    >>> without_clipping(X, fit, H).round(2).tolist()
    [[0.9, 0.0], [0.1, 0.2], [0.0, 0.8]]
    """
    fitted = W @ H
    squares = (X - fitted) ** 2
    clear = fitted > 2 * math.sqrt(squares.mean())
    noise = math.sqrt(squares[clear].mean() if clear.any() else squares.mean())
    noise = max(noise, _ROUNDING * np.abs(X).max())
    inverse = pinv(H @ H.T)
    found = W
    errors = noise * np.sqrt(inverse.diagonal())
    for _ in range(_MAX_CORRECTIONS):
        u = found @ H / noise
        raised = noise * (np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi) - u * ndtr(-u))
        found = W - raised @ H.T @ inverse
        found = np.where(found > 2 * errors, found, 0)
    found = np.where(found.any(axis=0), found, W)
    return found / found.sum(axis=0)

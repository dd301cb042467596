"""How large the relative error of cr1-nmf can be: the paper's bounds from above.

It is at most the largest sine of a size angle (Theorems 4 and 5 of the paper), and for samples
drawn from the paper's model close to a smaller number (Theorems 6 and 8). Bounds from below, which
hold for every factorisation, are in `certificate`; bounds under noise are in `noise`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from ..data.blocks import Array, Block
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_labels, require_data_matrix
from ..errors import FactorError, OptionError
from .angles import sine_at, squared_distances

__all__ = [
    "deterministic_bound",
    "largest_angle_in_orthant",
    "probabilistic_bound",
    "sample_size",
    "weighted_bound",
]


def deterministic_bound(V: DataMatrix, W: Array, labels: Aligned) -> float:
    """Bound the relative error of cr1-nmf a posteriori: max_k sin(alpha_k) (Theorem 4).

    alpha_k is the size angle of the smallest circular cone round the axis w_k that holds all
    samples labelled k. The bound holds for any data and any axes, not only under the geometric
    assumption, because each sample's error is its norm times the sine of its angle. Given size
    angles instead of data, the bound is ``np.sin(angles).max()``. One pass. Sines are accurate to
    about 1e-16, however small they are.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
        Axes; their norms do not matter.
    labels : array (N,)
        The cone of each sample, -1 for none: nothing of it is explained then.

    Examples
    --------
    >>> from conenmf import cr1_nmf, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> W, H, cones = cr1_nmf(V, 2, first=0)
    >>> error = np.linalg.norm([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]] - W @ H) / V.norm
    >>> bool(error <= deterministic_bound(V, W, cones.labels))
    True
    """
    require_data_matrix(V)
    W = np.asarray(W, dtype=np.float64)
    if W.ndim != 2 or W.shape[0] != V.shape[0]:
        raise FactorError(
            f"W has shape {W.shape}, expected ({V.shape[0]}, K): axes are columns "
            "(for a fitted ConeNMF, components_.T)"
        )
    if not (np.isfinite(W).all() and W.min() >= 0):
        raise FactorError("axes must be finite and nonnegative")
    labels = check_labels(V, labels, W.shape[1])
    axes = np.ascontiguousarray(W.T)
    norms = np.linalg.norm(axes, axis=1, keepdims=True)
    axes = np.divide(axes, norms, out=np.zeros_like(axes), where=norms > 0)
    with V.own_threads():
        (largest,) = V.sweep(_largest_sine, labels, V.norms_squared, reduce=max, axes=axes)
    return float(largest)


def _largest_sine(block: Block, labels: Array, squared: Array, *, axes: Array) -> tuple[float]:
    sines = sine_at(squared_distances(block, labels, squared, axes))
    has_axis = np.linalg.norm(axes, axis=1) > 0
    sines[(labels < 0) | ~has_axis[labels]] = 1.0
    sines[squared == 0] = 0.0
    return (float(sines.max()),)


def weighted_bound(V: DataMatrix, labels: Aligned, angles: Array) -> float:
    """Return sqrt(sum_k ||V_k||^2 sin^2 alpha_k / ||V||^2), from the proof of Theorem 4.

    It is never above the deterministic bound max_k sin(alpha_k), of which it is a weighted
    mean, and does not read V: V_k are the samples labelled k, whose norms V has already.

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
    angles : array (K,)
        Size angles of cones that hold the samples, such as those of `enclosing_cones`.
    """
    require_data_matrix(V, nonzero=True)
    angles = np.asarray(angles, dtype=float)
    labels = check_labels(V, labels, angles.size)
    (squared,) = V.map(_weighted_sines, labels, V.norms_squared, sines=np.sin(angles))
    return float(np.sqrt(squared / V.total))


def _weighted_sines(index: range, labels: Array, squared: Array, *, sines: Array) -> tuple[float]:
    return (float((squared * np.where(labels >= 0, sines[labels], 1.0) ** 2).sum()),)


def probabilistic_bound(
    angles: npt.ArrayLike, rates: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Return the limit of the relative error under the paper's model (Theorems 6 and 8).

    sqrt(sum_k p_k f(alpha_k) / lambda_k / sum_k p_k / lambda_k), f(a) = 1/2 - sin(2a) / (4a)

    With many samples the error of cr1-nmf is at most this; it tends to it if the cones lie in
    the nonnegative orthant. `sample_size` says how many samples are enough.

    Parameters
    ----------
    angles : array (K,)
        Size angles alpha_k.
    rates : array (K,)
        lambda_k: the mean squared norm of a sample of cone k is 1 / lambda_k.
    weights : array (K,), optional
        Probabilities p_k of the cones, by default equal.

    Examples
    --------
    >>> round(probabilistic_bound([0.2] * 40, 1 / np.arange(1, 41)), 5)
    0.11501
    """
    angles, shares = _model(angles, rates, weights)
    return float(np.sqrt((shares * _mean_squared_sine(angles)).sum()))


def sample_size(
    angles: npt.ArrayLike,
    rates: npt.ArrayLike,
    *,
    epsilon: float,
    delta: float,
    weights: npt.ArrayLike | None = None,
) -> int:
    """Return how many samples make the error at most the probabilistic bound plus epsilon.

    With at least so many samples of the paper's model, and exact clusters, the relative error
    of cr1-nmf exceeds ``probabilistic_bound(...) + epsilon`` with probability at most delta.

    Theorem 6 states this with a constant xi that it does not give; the number returned here has
    no unknown constant. The squared error is at most D = sum l_n s_n / sum l_n, with squared
    norms l_n and s_n = sin^2 of the angles to the axes, and D >= t if and only if
    sum l_n (s_n - t) >= 0. By Chernoff's inequality that has probability at most r^N with
    r = min_theta E exp(theta l (s - t)), and for exponential l
    E exp(theta l (s - t)) = E lambda / (lambda - theta (s - t)), an integral over the angle.
    Moving samples into the orthant only makes their angles smaller. (The constant of Theorem 8,
    on how fast the error approaches the bound from below, is not known explicitly.)

    Examples
    --------
    >>> sample_size([0.2] * 5, [1.0] * 5, epsilon=0.01, delta=0.01)
    470
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise OptionError(f"epsilon={epsilon} must be positive and delta={delta} within (0, 1)")
    angles_, _ = _model(angles, rates, weights)
    rates_ = np.asarray(rates, dtype=float)
    probabilities = np.full(angles_.size, 1 / angles_.size)
    if weights is not None:
        probabilities = np.asarray(weights, dtype=float) / np.sum(weights)
    t = (probabilistic_bound(angles, rates, weights) + epsilon) ** 2
    largest = float(np.sin(angles_.max()) ** 2)
    if t >= largest:  # then the deterministic bound gives it for any number of samples
        return 1
    nodes, node_weights = np.polynomial.legendre.leggauss(64)
    sines = np.sin(np.outer(angles_, (nodes + 1) / 2)) ** 2  # (K, 64)

    def log_moment(theta: float) -> float:
        excess = theta * (sines - t) / (rates_[:, None] - theta * (sines - t))
        return float(np.log1p(probabilities @ (excess @ node_weights / 2)))

    beyond = np.sin(angles_) ** 2 > t
    limit = float((rates_[beyond] / (np.sin(angles_[beyond]) ** 2 - t)).min())
    options = {"xatol": 1e-9 * limit}
    rate = -minimize_scalar(log_moment, bounds=(0, limit), method="bounded", options=options).fun
    if not rate > 0:
        raise OptionError(
            f"epsilon={epsilon} is too small for double precision: choose a larger one"
        )
    return int(np.ceil(np.log(1 / delta) / rate))


def largest_angle_in_orthant(axis: npt.ArrayLike) -> float:
    """Return the largest size angle of a cone round an axis inside the orthant (Lemma 10).

    arccos sqrt(1 - u_min^2), with u_min the smallest entry of the axis as a unit vector.

    >>> round(largest_angle_in_orthant([1.0, 1.0]), 6)  # half of a right angle
    0.785398
    """
    u = np.asarray(axis, dtype=float)
    if u.ndim != 1 or not np.isfinite(u).all() or u.min() < 0 or not u.any():
        raise FactorError("the axis must be a vector of nonnegative numbers, not all zero")
    if u.size == 1:
        return float(np.pi / 2)
    return float(np.arcsin(u.min() / np.linalg.norm(u)))


# --- parts ------------------------------------------------------------------------------------


def _model(
    angles: npt.ArrayLike, rates: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Array, Array]:
    """Angles, and each cone's share of the expected squared norm."""
    angles = np.atleast_1d(np.asarray(angles, dtype=float))
    energy = 1 / np.asarray(rates, dtype=float)
    if weights is not None:
        energy = energy * np.asarray(weights, dtype=float)
    if angles.shape != energy.shape or not ((angles > 0) & (angles <= np.pi / 2)).all():
        raise OptionError(
            "expected one size angle within (0, pi/2] and one rate for every cone, "
            f"got {angles.shape} and {energy.shape}"
        )
    if not (np.isfinite(energy).all() and energy.min() >= 0 and energy.sum() > 0):
        raise OptionError("rates must be positive and weights nonnegative, not all zero")
    return angles, energy / energy.sum()


def _mean_squared_sine(angles: Array) -> Array:
    """f(alpha) = E sin^2(beta) for beta uniform on [0, alpha]."""
    series = angles**2 / 3 - angles**4 / 15  # the formula is a difference of nearly equal numbers
    f: Array = np.where(angles < 1e-2, series, 0.5 - np.sin(2 * angles) / (4 * angles))
    return f

"""Upper bounds on the relative error of cr1-nmf, from the paper.

The error is at most the largest sine of a size angle (Theorems 4 and 5 of the paper). For samples
drawn from the paper's model it is close to a smaller number, or below it (Theorems 6 and 8). Lower
bounds, which hold for every factorization, are in `certificate`.

With noise, the data are X = V + E, and V lies in cones. Lemma 1 and Theorem 4 are about angles, and
noise e turns a vector v by at most arcsin(||e|| / ||v||), so both carry over to X. The
documentation has statements and proofs on the page "Theorems, code and tests", section "Beyond the
paper: noise".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike

from ..arguments import array, factor
from ..data.blocks import Array, Block, over
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_labels
from ..errors import Option, OptionError
from ..io.open import as_data
from .geometry import RIGHT_ANGLE, sine_at, squared_distances

_GOLDEN_RATIO = (1 + 5**0.5) / 2


def deterministic_bound(V: object, W: Array, labels: Aligned) -> float:
    """Bound the relative error of cr1-nmf a posteriori: max_k sin(alpha_k) (Theorem 4).

    alpha_k is the size angle of the smallest circular cone around the axis w_k that contains all
    samples labelled k. The bound holds for any data and any axes, not only under the geometric
    assumption, because each sample's error is its norm times the sine of its angle. If you know the
    size angles, the bound is ``np.sin(angles).max()``. The function takes one pass. Sines are
    accurate to about 1e-16, however small they are.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    W : array (F, K)
        Axes; their norms do not matter.
    labels : array (N,)
        The cone of each sample, or -1 for a sample that belongs to none and is not explained.

    Examples
    --------
    >>> from conenmf import cr1_nmf, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> W, H, cones = cr1_nmf(V, 2, first=0)
    >>> error = np.linalg.norm([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]] - W @ H) / V.norm
    >>> bool(error <= deterministic_bound(V, W, cones.labels))
    True
    """
    V = as_data(V)
    W = np.asarray(factor("W", W, (V.n_features, "K")), dtype=float)
    labels = check_labels(V, labels, W.shape[1])
    axes = np.ascontiguousarray(over(W, norm(W, axis=0)).T)
    (largest,) = V.sweep(_largest_sine, labels, V.norms_squared, reduce=max, axes=axes)
    return float(largest)


def _largest_sine(block: Block, labels: Array, squared: Array, *, axes: Array) -> tuple[float]:
    sines = sine_at(squared_distances(block, labels, squared, axes))
    has_axis = norm(axes, axis=1) > 0
    sines[(labels < 0) | ~has_axis[labels]] = 1.0
    sines[squared == 0] = 0.0
    return (float(sines.max()),)


def weighted_bound(V: DataMatrix, labels: Aligned, angles: Array) -> float:
    """Return sqrt(sum_k ||V_k||^2 sin^2 alpha_k / ||V||^2), from the proof of Theorem 4.

    This weighted mean is never above the deterministic bound max_k sin(alpha_k). V_k are the
    samples with the label k. Only their norms are needed, so V is not read.

    Parameters
    ----------
    V : DataMatrix (F, N)
    labels : array (N,)
    angles : array (K,)
        Size angles of cones that contain the samples, for example from `enclosing_cones`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[1.0, 0.0], [0.0, 2.0]])
    >>> round(weighted_bound(V, np.array([0, 1]), np.array([0.0, 0.1])), 4)
    0.0893
    """
    (squared,) = V.map(_weighted_sines, labels, V.norms_squared, sines=np.sin(angles))
    return math.sqrt(squared / V.total)


def _weighted_sines(index: range, labels: Array, squared: Array, *, sines: Array) -> tuple[float]:
    return (float((squared * np.where(labels >= 0, sines[labels], 1.0) ** 2).sum()),)


def probabilistic_bound(
    angles: ArrayLike, rates: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return the limit of the relative error under the paper's model (Theorems 6 and 8).

    sqrt(sum_k p_k f(alpha_k) / lambda_k / sum_k p_k / lambda_k), f(a) = 1/2 - sin(2a) / (4a)

    With many samples the error of cr1-nmf is at most this number, up to a small deviation. If the
    cones lie in the nonnegative orthant, the error tends to this number. `sample_size` returns how
    many samples are enough.

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
    angles, shares, _, _ = _model(angles, rates, weights)
    return math.sqrt((shares * _mean_squared_sine(angles)).sum())


def smallest_limit(
    F: int, angles: ArrayLike, rates: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return the limit of the smallest relative error of any K components, of any sign.

    It is sqrt((F - K) / (F - 1)) times `probabilistic_bound`, the limit for cr1-nmf. So with many
    samples from cones inside the orthant, no factorization has a smaller error than cr1-nmf by more
    than a factor of sqrt((F - 1) / (F - K)), and singular vectors reach this factor. The proof is
    in the documentation, "How good cr1-nmf is at best".

    Parameters
    ----------
    F : int
        Number of features, at least K.
    angles, rates, weights
        As in `probabilistic_bound`; K is the number of angles.

    Examples
    --------
    >>> rates = 1 / np.arange(1, 41)
    >>> round(smallest_limit(1600, [0.2] * 40, rates) / probabilistic_bound([0.2] * 40, rates), 4)
    0.9877
    """
    limit = probabilistic_bound(angles, rates, weights)
    K = np.size(angles)
    return math.sqrt((F - K) / (F - 1)) * limit


def sample_size(
    angles: ArrayLike,
    rates: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    weights: ArrayLike | None = None,
    F: int | None = None,
) -> int:
    """Return how many samples make the error at most the probabilistic bound plus epsilon.

    With at least this many samples of the paper's model and exact clusters, the relative error of
    cr1-nmf exceeds ``probabilistic_bound(...) + epsilon`` with probability at most delta. If F is
    given and the cones lie inside the orthant, the error is also at least
    ``probabilistic_bound(...) - epsilon``; both hold together with probability at least 1 - delta.

    Theorems 6 and 8 contain constants that the paper does not give; the number returned here has no
    unknown constant. The squared error is at most D = sum l_n s_n / sum l_n, with squared norms l_n
    and s_n = sin^2 of the angles to the axes. D >= t if and only if sum l_n (s_n - t) >= 0. By
    Chernoff's inequality this has probability at most r^N with r = min_theta E exp(theta l (s -
    t)). For exponential l, E exp(theta l (s - t)) = E lambda / (lambda - theta (s - t)), an
    integral over the angle. Moving samples into the orthant only makes their angles smaller. The
    lower bound uses the same inequality for matrices, which needs many more samples than are
    probably necessary: see "Theorem 8" in the documentation.

    Parameters
    ----------
    angles, rates
        As in `probabilistic_bound`.
    epsilon, delta : float
    weights
        As in `probabilistic_bound`.
    F : int, optional
        Number of features.

    Examples
    --------
    >>> sample_size([0.2] * 5, [1.0] * 5, epsilon=0.01, delta=0.01)
    470
    >>> sample_size([0.2] * 5, [1.0] * 5, epsilon=0.01, delta=0.01, F=100)
    279807
    """
    angles_, _, rates_, p = _model(angles, rates, weights)
    K = angles_.size
    p = p / p.sum()
    bound = probabilistic_bound(angles, rates, weights)
    nodes, node_weights = np.polynomial.legendre.leggauss(64)
    sines = np.sin(np.outer(angles_, (nodes + 1) / 2)) ** 2  # (K, 64)
    shares = np.broadcast_to(node_weights / 2, sines.shape)
    above = _rate(sines, shares, np.sin(angles_) ** 2, (bound + epsilon) ** 2, p, rates_)
    if F is None:
        return _enough(np.log(1 / delta), above, epsilon)
    f = _mean_squared_sine(angles_)
    ends = np.tile([1.0, 0.0], (K, 1))
    shares = np.column_stack([1 - f, f])
    t = 1 - max(bound - epsilon, 0.0) ** 2
    below = _rate(ends, shares, np.ones(K), t, p, rates_)
    log_delta = np.log(2 / delta)
    return max(
        _enough(log_delta, above, epsilon), _enough(log_delta + K * np.log(F), below, epsilon)
    )


def _rate(values: Array, shares: Array, largest: Array, t: float, p: Array, rates: Array) -> float:
    """Return -log min_theta E exp(theta l (s - t)); in cone k, s takes values[k] with shares[k]."""
    beyond = largest > t
    if not beyond.any():
        return np.inf  # s is never above t

    def log_moment(theta: float) -> float:
        excess = theta * (values - t) / (rates[:, None] - theta * (values - t))
        return float(np.log1p(p @ np.vecdot(excess, shares)))

    limit = float((rates[beyond] / (largest[beyond] - t)).min())
    options = {"xatol": 1e-9 * limit}
    from scipy.optimize import minimize_scalar  # slow to import

    found = minimize_scalar(log_moment, bounds=(0, limit), method="bounded", options=options)
    return -float(found.fun)


def _enough(log_chances: float, rate: float, epsilon: float) -> int:
    """Return the smallest N with exp(log_chances - N rate) <= 1."""
    if not rate > 0:
        raise OptionError(f"{epsilon=} is too small for double precision: use a larger value")
    return max(1, int(np.ceil(log_chances / rate)))


def rank_epsilon(F: int, K: int, alpha: float, beta: float, *, rate: float = 1.0) -> float:
    """Return the upper limit for epsilon in Theorem 9, from a condition in the paper's Appendix B.

    The condition is (a + epsilon) / (a - epsilon) < (a + b (1 - cos beta) - epsilon) / (a +
    epsilon), where a and a + b (1 - cos beta) are eigenvalues of the second moment of a sample.
    Solved for epsilon, the limit is a B / (4 a + B) with B = b (1 - cos beta). The theorem needs N
    >= c (t / epsilon)^2 F samples, with a constant c that the paper does not give. For the paper's
    Figure 3 this is 4.8e12 c, although 2000 samples suffice there. `rank_sample_size` returns a
    smaller number.

    Examples
    --------
    >>> epsilon = rank_epsilon(1600, 40, 0.3, 1.21)
    >>> f"{epsilon:.3g}, {1600 / epsilon**2:.2g}"
    '1.83e-05, 4.8e+12'
    """
    a, _, drop = _second_moment(F, K, alpha, beta)
    return a * drop / (4 * a + drop) / rate


def rank_sample_size(F: int, K: int, alpha: float, beta: float, *, delta: float) -> int:
    """Return how many samples make sigma_K / sigma_{K+1} the largest ratio (Theorem 9).

    Let samples come from K cones of size angle alpha inside the orthant, with axes at angles beta,
    and with the same rate and probability. With at least this many samples, the largest ratio
    sigma_k / sigma_{k+1} over 2 <= k < F is at k = K with probability at least 1 - delta. All
    constants are known. The deviation is measured relative to the second moment, not absolutely as
    in `rank_epsilon`. The proof is in the documentation, "Theorem 9".

    Examples
    --------
    >>> rank_sample_size(1600, 40, 0.3, 1.21, delta=0.01)  # the paper's Figure 3
    396882
    """
    a, b, drop = _second_moment(F, K, alpha, beta)
    ratio = np.sqrt(1 + drop / a)
    eta = (ratio - 1) / (ratio + 1)
    kappa = np.cos(alpha) ** 2 / (a + b) + np.sin(alpha) ** 2 / a
    return int(np.ceil(kappa * np.log(2 * F / delta) / (np.sqrt(1 + eta) - 1) ** 2))


def _second_moment(F: int, K: int, alpha: float, beta: float) -> tuple[float, float, float]:
    """Return a, b and b (1 - cos beta) of Theorem 9 for rate 1: E vv' = a I + b sum_k u_k u_k'."""
    f = float(_mean_squared_sine(np.array(alpha)))
    a = f / (F - 1)
    b = (1 - f - a) / K
    return a, b, b * (1 - float(np.cos(beta)))


def largest_angle_in_orthant(axis: ArrayLike) -> float:
    """Return the largest size angle of a cone with this axis inside the orthant (Lemma 10).

    It is arccos sqrt(1 - u_min^2), where u_min is the smallest entry of the unit axis u.

    >>> round(largest_angle_in_orthant([1.0, 1.0]), 6)  # half of a right angle
    0.785398
    """
    u = np.asarray(axis, dtype=float)
    if u.size == 1:
        return float(RIGHT_ANGLE)
    return float(np.arcsin(u.min() / norm(u)))


# --- under noise ------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseBound:
    """Guarantees for cr1-nmf of X = V + E when V lies in cones.

    Attributes
    ----------
    error : float
        Upper bound on ||X - W H|| / ||X|| if X is put into the clusters of V.
    clean : float
        Upper bound on ||V - W H|| / ||V|| in the same case. W and H are computed from X, and
        compared with the samples without noise.
    unconditional : float
        Upper bound on ||X - W H|| / ||X|| for any clusters that Algorithm 1 may find.
    tolerance : float
        If ||e_n|| / ||v_n|| is below this for every sample, and each cluster of V has a sample,
        Algorithm 1 puts X into the clusters of V, whatever the first centre. 0 if nothing is
        certain.
    clusters_kept : bool
        Whether Algorithm 1 certainly finds the clusters of V at the given noise. If False, it may
        still find them.
    """

    error: float
    clean: float
    unconditional: float
    tolerance: float
    clusters_kept: bool


def noise_bound(
    angles: ArrayLike,
    separation: float,
    noise: float,
    *,
    sample_noise: float | None = None,
    weights: ArrayLike | None = None,
) -> NoiseBound:
    """Bound the error of cr1-nmf of V + E, and the noise up to which clusters stay the same.

    With s = max_k sin(alpha_k), or the root of the weighted mean of sin^2(alpha_k), with
    epsilon = ||E|| / ||V|| and the golden ratio phi = (1 + sqrt 5) / 2:

    ||X - W H|| / ||X|| <= sin(arcsin s + arcsin epsilon) <= s + epsilon

    ||V - W H|| / ||V|| <= min(s + phi epsilon, sqrt(1 + epsilon^2))

    ||V - W H|| / ||V|| <= sqrt(epsilon^2 + (s + q epsilon)^2), q = m / (cos a - sin a)

    where m is the largest ||e_n|| / ||v_n||, a the largest size angle, and the last line needs
    arcsin m < pi/4 - a. These hold if the clusters are kept, which is certain if each cluster has a
    sample and arcsin m < separation / 4. Without any condition,

    ||X - W H|| / ||X|| <= sin(2 a + 2 arcsin m), or 1 if that angle is above pi/2

    The number 4, the first bound, and phi if s = 0, cannot be improved. Setting negative entries of
    V + E to zero only makes the noise smaller, so the bounds hold for max(V + E, 0) too. The
    proofs are in the documentation, section "Beyond the paper: noise".

    Parameters
    ----------
    angles : array (K,)
        Size angles alpha_k of the cones of V, such as `ConeGeometry.angles`.
    separation : float
        Lower bound on the pairwise separation of V, at least 0. ``pairwise_separation(V,
        labels).value`` is exact; `ConeGeometry.separation` and `ConeGeometry.margin` are often
        several times smaller. If the value is negative, the clusters are not apart: pass 0.
    noise : float
        epsilon.
    sample_noise : float, optional
        m, the largest ||e_n|| / ||v_n||; samples that are zero in V must be zero in X. Without it
        nothing is certain about the clusters, because all noise may be in one sample.
    weights : array (K,), optional
        ||V_k||^2 of each cone, up to a factor; s is then the weighted mean.

    Notes
    -----
    V and X may change places. With angles, separation and norms of X, the bound says whether
    Algorithm 1 would find the clusters of X in V.

    Examples
    --------
    >>> bound = noise_bound([0.1, 0.1], 0.4, 0.05, sample_noise=0.08)
    >>> round(bound.error, 4), round(bound.clean, 4), round(bound.unconditional, 4)
    (0.1495, 0.1157, 0.3524)
    >>> round(bound.tolerance, 4)
    0.0998
    >>> bound.clusters_kept
    True
    """
    alpha = np.atleast_1d(angles)
    s = float(np.sin(alpha.max()))
    if weights is not None:
        shares = _shares(np.asarray(weights, dtype=float))
        s = math.sqrt(shares @ np.sin(alpha) ** 2)
    turned = np.arcsin(s) + np.arcsin(min(noise, 1.0))
    clean = min(s + _GOLDEN_RATIO * noise, np.hypot(1.0, noise))
    gap = np.cos(alpha.max()) - np.sin(alpha.max())  # between two singular values of a cone
    if sample_noise is not None and sample_noise < gap / np.sqrt(2):
        clean = min(clean, np.hypot(noise, s + sample_noise / gap * noise))
    tolerance = float(np.sin(np.clip(separation / 4, 0.0, RIGHT_ANGLE)))
    doubled = RIGHT_ANGLE
    if sample_noise is not None:
        doubled = min(2 * alpha.max() + 2 * np.arcsin(min(sample_noise, 1.0)), doubled)
    return NoiseBound(
        error=float(np.sin(min(turned, RIGHT_ANGLE))),
        clean=float(clean),
        unconditional=float(np.sin(doubled)),
        tolerance=tolerance,
        clusters_kept=sample_noise is not None and bool(sample_noise < tolerance),
    )


def trimmed_bound(sine: float, noise: float, share: float) -> float:
    """Bound the error of cr1-nmf of X = V + E if labels are right only for a part G of the samples.

    ||X - W H||^2 / ||X||^2 <= share sin^2(arcsin s_G + arcsin epsilon_G) + 1 - share

    The other samples may have any labels; their error is at most their norm. `centres_in_noise`
    finds clusters that are right for all samples that are long enough.

    Parameters
    ----------
    sine : float
        s_G, the relative error of cr1-nmf for the samples of V in G with their true clusters, or an
        upper bound on it such as the largest sine of a size angle.
    noise : float
        epsilon_G = ||E_G|| / ||V_G||.
    share : float
        ||X_G||^2 / ||X||^2.

    Examples
    --------
    >>> round(trimmed_bound(0.1, 0.05, 1.0), 4), round(trimmed_bound(0.1, 0.05, 0.98), 4)
    (0.1496, 0.2048)
    """
    turned = min(np.arcsin(sine) + np.arcsin(min(noise, 1.0)), RIGHT_ANGLE)
    return math.sqrt(share * np.sin(turned) ** 2 + 1.0 - share)


# --- inner functions --------------------------------------------------------------------------


def _model(
    angles: ArrayLike, rates: ArrayLike, weights: ArrayLike | None
) -> tuple[Array, Array, Array, Array]:
    """Return angles, each cone's share of the expected squared norm, rates and weights."""
    angles = array("angles", angles, ("K",), above=0, at_most=RIGHT_ANGLE, or_one=True)
    angles = angles.astype(float)
    rates = array("rates", rates, angles.shape, above=0, or_one=True).astype(float)
    weights = np.ones(angles.size) if weights is None else weights
    weights = array("weights", weights, angles.shape, at_least=0, or_one=True).astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        energy = 1 / rates * weights
    return angles, _shares(energy), rates, weights


def _shares(weights: Array) -> Array:
    """Return the weights divided by their sum."""
    with np.errstate(over="ignore", invalid="ignore"):
        shares = weights / weights.sum()
    if not np.isfinite(shares).all() or not shares.any():
        raise OptionError(
            Option("weights"), " are all zero, or leave the range of numbers: scale them"
        )
    return shares


def _mean_squared_sine(angles: Array) -> Array:
    """f(alpha) = E sin^2(beta) for beta uniform on [0, alpha]."""
    series = angles**2 / 3 - angles**4 / 15  # the formula is a difference of nearly equal numbers
    return np.where(angles < 1e-2, series, 0.5 - np.sin(2 * angles) / (4 * angles))

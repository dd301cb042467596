"""The theorems that no fit computes: numbers for readers of the paper, checked by the tests.

Tests and the experiments of the paper call these functions, the rest of the library does not. They
trust their arguments. Statements and proofs are in the documentation, on the page "Theorems, code
and tests". The bounds that the library computes are `cones.bounds` and `judge.certificate`.

With noise, the data are X = V + E, and V lies in cones. Lemma 1 and Theorem 4 are about angles, and
noise e turns a vector v by at most arcsin(||e|| / ||v||), so both carry over to X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.linalg import norm, svd
from numpy.typing import ArrayLike

from ..cones.bounds import mean_squared_sine, probabilistic_bound, read_model, shares_of
from ..cones.geometry import RIGHT_ANGLE
from ..data.blocks import Block, dense, exact
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..errors import OptionError
from ..types import Array
from .separable import outside_hull

_GOLDEN_RATIO = (1 + 5**0.5) / 2


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
    own = np.where(labels >= 0, sines[labels], 1.0)
    return (float((squared * own**2).sum()),)


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
    share = (F - np.size(angles)) / (F - 1)
    return math.sqrt(share) * limit


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
    bound = probabilistic_bound(angles, rates, weights)
    alpha, rates, weights = read_model(angles, rates, weights)
    K = alpha.size
    p = weights / weights.sum()
    nodes, node_weights = np.polynomial.legendre.leggauss(64)
    sines = np.sin(np.outer(alpha, (nodes + 1) / 2)) ** 2  # (K, 64)
    shares = np.broadcast_to(node_weights / 2, sines.shape)
    t = (bound + epsilon) ** 2
    above = _rate(sines, shares, np.sin(alpha) ** 2, t, p, rates)
    if F is None:
        return _enough(np.log(1 / delta), above, epsilon)
    log_delta = np.log(2 / delta)
    f = mean_squared_sine(alpha)
    ends = np.tile([1.0, 0.0], (K, 1))
    shares = np.column_stack([1 - f, f])
    t = 1 - max(bound - epsilon, 0.0) ** 2
    below = _rate(ends, shares, np.ones(K), t, p, rates)
    enough_above = _enough(log_delta, above, epsilon)
    enough_below = _enough(log_delta + K * np.log(F), below, epsilon)
    return max(enough_above, enough_below)


def _rate(values: Array, shares: Array, largest: Array, t: float, p: Array, rates: Array) -> float:
    """Return -log min_theta E exp(theta l (s - t)); in cone k, s takes values[k] with shares[k]."""
    beyond = largest > t
    if not beyond.any():
        return np.inf  # s is never above t

    def log_moment(theta: float) -> float:
        moved = theta * (values - t)
        excess = moved / (rates[:, None] - moved)
        return float(np.log1p(p @ np.vecdot(excess, shares)))

    from scipy.optimize import minimize_scalar  # slow to import

    limit = float((rates[beyond] / (largest[beyond] - t)).min())
    least = minimize_scalar(
        log_moment, bounds=(0, limit), method="bounded", options={"xatol": 1e-9 * limit}
    )
    return -float(least.fun)


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
    growth = (np.sqrt(1 + eta) - 1) ** 2
    return int(np.ceil(kappa * np.log(2 * F / delta) / growth))


def _second_moment(F: int, K: int, alpha: float, beta: float) -> tuple[float, float, float]:
    """Return a, b and b (1 - cos beta) of Theorem 9 for rate 1: E vv' = a I + b sum_k u_k u_k'."""
    f = float(mean_squared_sine(np.array(alpha)))
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


# --- noise ------------------------------------------------------------------------------------


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
    a = alpha.max()
    s = float(np.sin(a))
    if weights is not None:
        shares = shares_of(np.asarray(weights, dtype=float))
        s = math.sqrt(shares @ np.sin(alpha) ** 2)
    error = _sine_after_noise(s, noise)
    clean = min(s + _GOLDEN_RATIO * noise, np.hypot(1.0, noise))
    tolerance = float(np.sin(np.clip(separation / 4, 0.0, RIGHT_ANGLE)))
    unconditional = 1.0
    clusters_kept = False
    if sample_noise is not None:
        gap = np.cos(a) - np.sin(a)  # between two singular values of a cone
        if sample_noise < gap / np.sqrt(2):
            clean = min(clean, np.hypot(noise, s + sample_noise / gap * noise))
        angle = 2 * a + 2 * np.arcsin(min(sample_noise, 1.0))
        unconditional = float(np.sin(min(angle, RIGHT_ANGLE)))
        clusters_kept = bool(sample_noise < tolerance)
    return NoiseBound(error, float(clean), unconditional, tolerance, clusters_kept)


def _sine_after_noise(sine: float, noise: float) -> float:
    """Return sin(arcsin s + arcsin epsilon), or 1 if that angle is above pi/2."""
    angle = np.arcsin(sine) + np.arcsin(min(noise, 1.0))
    return float(np.sin(min(angle, RIGHT_ANGLE)))


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
    return math.sqrt(share * _sine_after_noise(sine, noise) ** 2 + 1.0 - share)


# --- separable data ----------------------------------------------------------------------------


_SPA_CONSTANT = 80.0  # from Gillis and Vavasis (2014), Theorem 3


@dataclass(frozen=True)
class SeparableBound:
    """Bounds for V if some of its samples are used as the components.

    Attributes
    ----------
    noise : float
        epsilon, the largest distance of a sample to the convex hull of zero and the chosen samples.
        V is separable with these components up to noise of this norm in each sample.
    condition : float
        The largest norm of a chosen sample divided by their smallest singular value.
    error : float
        With these samples as W, the relative error of the best H is at most this.
    spa_noise : float
        If epsilon is below this, SPA is certain to find components of V.
    spa_error : float
        If epsilon is below `spa_noise`, any samples that SPA may choose have at most this relative
        error with the best H; otherwise infinite.
    """

    noise: float
    condition: float
    error: float
    spa_noise: float
    spa_error: float


def separable_bound(V: DataMatrix, samples: ArrayLike) -> SeparableBound:
    """Bound the error of a factorization whose components are samples.

    Let W be the chosen samples, C the largest of their norms, sigma their smallest singular value,
    and d_n the distance of sample n to the convex hull of zero and W. Then

    ||V - W H|| / ||V|| <= sqrt(sum_n d_n^2) / ||V|| <= sqrt(N) epsilon / ||V||

    If epsilon = max d_n < sigma min(1 / (2 sqrt(K - 1)), 1/4) / (1 + 80 C^2 / sigma^2), any samples
    that SPA chooses have, with the best H, a relative error of at most sqrt(N) epsilon (2 + 80 C^2
    / sigma^2) / ||V||.

    Parameters
    ----------
    V : DataMatrix (F, N)
    samples : array (K,), integers
        The chosen samples, for example from `conenmf.solve.separable.spa`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> bound = separable_bound(from_columns([[4.0, 0.0, 2.0], [0.0, 3.0, 1.5]]), [0, 1])
    >>> bound.noise < 1e-12, round(bound.condition, 4), bound.error < 1e-12
    (True, 1.3333, True)
    """
    chosen = np.asarray(samples)
    W = np.ascontiguousarray(exact(dense(V.columns(chosen))))
    with V.own_threads():
        squares, _ = V.sweep(_distances, V.norms_squared, W=W)
    apart = np.asarray(squares)
    epsilon = math.sqrt(apart.max())
    error = math.sqrt(apart.sum() / V.total)
    K = chosen.size
    sigmas = svd(W, compute_uv=False)
    if K > sigmas.size or sigmas[-1] == 0:
        return SeparableBound(epsilon, math.inf, error, 0.0, math.inf)
    sigma = float(sigmas[-1])
    condition = float(norm(W, axis=0).max()) / sigma
    growth = 1.0 + _SPA_CONSTANT * condition**2
    share = 0.5 / math.sqrt(max(K - 1, 4))  # the smaller of 1 / (2 sqrt(K - 1)) and 1/4
    spa_noise = sigma * share / growth
    spa_error = math.inf
    if epsilon < spa_noise:
        spa_error = math.sqrt(V.n_samples) * epsilon * (1.0 + growth) / V.norm
    return SeparableBound(epsilon, condition, error, spa_noise, spa_error)


def _distances(block: Block, squared: Array, *, W: Array) -> PerSample:
    """Return squared distances to the hull of zero and W, at least 0 in spite of rounding."""
    return np.maximum(outside_hull(block, squared, n_choices=0, W=W), 0.0), None

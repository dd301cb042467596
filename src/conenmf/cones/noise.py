"""Noise: what the paper guarantees if samples lie in cones up to noise only.

The paper's Lemma 1 and Theorem 4 are about samples V in cones. Here the data are X = V + E. Both
have a form for X, because they are about angles, and noise e turns a vector v by at most
arcsin(||e|| / ||v||). Statements and proofs are in the documentation, on the page "Theorems, code
and tests", section "Beyond the paper: noise". This module computes with angles and norms; it reads
no data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..arguments import array, number, optional
from ..data.blocks import Array
from ..errors import Message, Option, OptionError

__all__ = ["NoiseBound", "noise_bound", "trimmed_bound"]

_GOLDEN_RATIO = (1 + 5**0.5) / 2


@dataclass(frozen=True)
class NoiseBound:
    """Guarantees for cr1-nmf of X = V + E, if V lies in cones.

    Attributes
    ----------
    error : float
        ||X - W H|| / ||X|| is at most this, if X is put into the clusters of V.
    clean : float
        ||V - W H|| / ||V|| is at most this, in the same case: W and H, found from X, are
        compared with the samples without noise.
    unconditional : float
        ||X - W H|| / ||X|| is at most this, for any clusters that Algorithm 1 may find.
    tolerance : float
        As long as ||e_n|| / ||v_n|| is below this for every sample, Algorithm 1 puts X into the
        clusters of V, for any first centre, if each cluster has a sample. 0 if nothing can be said.
    clusters_kept : bool
        Whether that is certain for the noise given. If not, clusters may still be right.
    """

    error: float
    clean: float
    unconditional: float
    tolerance: float
    clusters_kept: bool


def noise_bound(
    angles: npt.ArrayLike,
    separation: float,
    noise: float,
    *,
    sample_noise: float | None = None,
    weights: npt.ArrayLike | None = None,
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
        The pairwise separation of V, ``pairwise_separation(V, labels).value``, or anything smaller,
        such as `ConeGeometry.separation` and `ConeGeometry.margin`, which are often several times
        smaller. At least 0: where it is negative the clusters are not apart, and 0 says as much.
    noise : float
        epsilon.
    sample_noise : float, optional
        m, the largest ||e_n|| / ||v_n||; samples that are zero in V have to be zero in X. If it
        is not known, nothing is certain about clusters: all noise may be in one sample.
    weights : array (K,), optional
        ||V_k||^2 of each cone, up to a factor: turns s into the weighted mean.

    Notes
    -----
    V and X may change places: with angles, separation and norms of X, the bound says whether the
    clusters found in X are those that Algorithm 1 would find in V.

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
    alpha = array("angles", angles, ("K",), at_least=0, at_most=np.pi / 2, or_one=True)
    separation = number("separation", separation, at_least=0, or_infinite=True)
    noise = number("noise", noise, at_least=0)
    sample_noise = optional(number, "sample_noise", sample_noise, at_least=0)
    s = _sine(alpha, weights)
    turned = np.arcsin(s) + np.arcsin(min(noise, 1.0))
    clean = min(s + _GOLDEN_RATIO * noise, np.hypot(1.0, noise))
    gap = np.cos(alpha.max()) - np.sin(alpha.max())  # between two singular values of a cone
    if sample_noise is not None and sample_noise < gap / np.sqrt(2):
        clean = min(clean, np.hypot(noise, s + sample_noise / gap * noise))
    tolerance = float(np.sin(np.clip(separation / 4, 0.0, np.pi / 2)))
    doubled = np.pi / 2
    if sample_noise is not None:
        doubled = min(2 * alpha.max() + 2 * np.arcsin(min(sample_noise, 1.0)), doubled)
    return NoiseBound(
        error=float(np.sin(min(turned, np.pi / 2))),
        clean=float(clean),
        unconditional=float(np.sin(doubled)),
        tolerance=tolerance,
        clusters_kept=sample_noise is not None and bool(sample_noise < tolerance),
    )


def trimmed_bound(sine: float, noise: float, share: float) -> float:
    """Bound the error of cr1-nmf of X = V + E where only a part G of the samples is labelled right.

    ||X - W H||^2 / ||X||^2 <= share sin^2(arcsin s_G + arcsin epsilon_G) + 1 - share

    The other samples, with any labels, lose at most everything. `centres_in_noise`
    finds clusters that are right on all samples that are long enough.

    Parameters
    ----------
    sine : float
        s_G, the relative error of cr1-nmf for the samples of V in G, with their true clusters, or
        anything above it, such as the largest sine of a size angle.
    noise : float
        epsilon_G = ||E_G|| / ||V_G||.
    share : float
        ||X_G||^2 / ||X||^2.

    Examples
    --------
    >>> round(trimmed_bound(0.1, 0.05, 1.0), 4), round(trimmed_bound(0.1, 0.05, 0.98), 4)
    (0.1496, 0.2048)
    """
    sine = number("sine", sine, at_least=0, at_most=1)
    noise = number("noise", noise, at_least=0)
    share = number("share", share, at_least=0, at_most=1)
    turned = min(np.arcsin(sine) + np.arcsin(min(noise, 1.0)), np.pi / 2)
    return float(np.sqrt(share * np.sin(turned) ** 2 + 1.0 - share))


def _sine(alpha: Array, weights: npt.ArrayLike | None) -> float:
    """The bound of Theorem 4, or of its proof, without noise."""
    if weights is None:
        return float(np.sin(alpha.max()))
    shares = array("weights", weights, alpha.shape, at_least=0).astype(float)
    with np.errstate(over="ignore"):
        if not 0 < shares.sum() < np.inf:
            problem = " are all zero, or leave the range of numbers: scale them"
            raise OptionError(Message(Option("weights"), problem))
    return float(np.sqrt(shares @ np.sin(alpha) ** 2 / shares.sum()))

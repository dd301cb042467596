"""Upper bounds on the relative error of cr1-nmf, from the paper.

The error is at most the largest sine of a size angle (Theorems 4 and 5 of the paper). For samples
drawn from the paper's model it is close to a smaller number, or below it (Theorems 6 and 8). Lower
bounds, which hold for every factorization, are in `certificate`, and the other theorems in
`solve.theorems`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike

from ..arguments import array, factor
from ..data.blocks import Block, exact, unit_columns
from ..data.matrix import Aligned
from ..data.validate import check_labels
from ..errors import Option, OptionError
from ..io.open import as_data
from ..types import Array
from .geometry import RIGHT_ANGLE, sine_at, squared_distances


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
    W = exact(factor("W", W, (V.n_features, "K")))
    labels = check_labels(V, labels, W.shape[1])
    axes = np.ascontiguousarray(unit_columns(W).T)
    (largest,) = V.sweep(_largest_sine, labels, V.norms_squared, reduce=max, axes=axes)
    return float(largest)


def _largest_sine(block: Block, labels: Array, squared: Array, *, axes: Array) -> tuple[float]:
    sines = sine_at(squared_distances(block, labels, squared, axes))
    has_axis = norm(axes, axis=1) > 0
    sines[(labels < 0) | ~has_axis[labels]] = 1.0
    sines[squared == 0] = 0.0
    return (float(sines.max()),)


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
    angles, rates, weights = read_model(angles, rates, weights)
    with np.errstate(over="ignore", invalid="ignore"):
        energy = 1 / rates * weights
    return math.sqrt((shares_of(energy) * mean_squared_sine(angles)).sum())


def read_model(
    angles: ArrayLike, rates: ArrayLike, weights: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Check the size angles, rates and weights (K,) of the paper's model."""
    angles = array("angles", angles, ("K",), above=0, at_most=RIGHT_ANGLE, or_one=True)
    angles = angles.astype(float)
    rates = array("rates", rates, angles.shape, above=0, or_one=True).astype(float)
    if weights is None:
        weights = np.ones(angles.size)
    weights = array("weights", weights, angles.shape, at_least=0, or_one=True).astype(float)
    return angles, rates, weights


def shares_of(weights: Array) -> Array:
    """Return the weights divided by their sum."""
    with np.errstate(over="ignore", invalid="ignore"):
        shares = weights / weights.sum()
    if not np.isfinite(shares).all() or not shares.any():
        raise OptionError(
            Option("weights"), " are all zero, or leave the range of numbers: scale them"
        )
    return shares


def mean_squared_sine(angles: Array) -> Array:
    """f(alpha) = E sin^2(beta) for beta uniform on [0, alpha]."""
    f = 0.5 - np.sin(2 * angles) / (4 * angles)
    series = angles**2 / 3 - angles**4 / 15  # f is a difference of nearly equal numbers
    return np.where(angles < 1e-2, series, f)

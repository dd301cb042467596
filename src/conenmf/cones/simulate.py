"""Random matrices after the paper's generative model: samples in circular cones.

Section IV of the paper describes how samples are drawn, and Section VI how axes and norms are
chosen. This module returns plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.linalg import norm, solve
from numpy.random import Generator
from numpy.typing import ArrayLike

from ..arguments import array, as_generator, flag, function, generator, integer, number, optional
from ..data.resources import require_memory
from ..errors import Option, OptionError
from ..types import Array, Pair
from .geometry import RIGHT_ANGLE

_PROBABILITY_ROUNDING = 1e-8  # tolerance for their sum, as in numpy
_TEMPORARY_VECTORS = 8
_MAX_DRAWS = 100  # repeated until all axes are nonnegative


@dataclass(frozen=True)
class ConeModel:
    """A matrix drawn by `make_cones`, with its true parameters.

    Attributes
    ----------
    V : array (F, N)
        The samples, as columns (a view of an array that is contiguous sample by sample).
    labels : array (N,)
        The cone of each sample.
    axes : array (F, K)
        Unit vectors u_k.
    angles : array (K,)
        Size angles alpha_k.
    rates : array (K,)
        lambda_k; the squared norm of a sample of cone k has mean 1 / lambda_k.
    """

    V: Array
    labels: Array
    axes: Array
    angles: Array
    rates: Array


def make_cones(
    F: int,
    K: int,
    alpha: ArrayLike,
    *,
    n_samples: int,
    angle: float | None = None,
    axes: ArrayLike | None = None,
    rates: ArrayLike | None = None,
    weights: Sequence[float] | Array | None = None,
    squared_norm: Callable[[Generator, Array], Array] | None = None,
    project: bool = True,
    noise: float = 0.0,
    rng: Generator,
) -> ConeModel:
    """Draw samples from K circular cones (the process before Theorem 6 of the paper).

    A sample of cone k has a squared norm drawn from Exp(lambda_k) and a direction at an angle
    uniform on [0, alpha_k] from the axis u_k; negative entries are set to zero and the norm is
    restored.

    Parameters
    ----------
    F, K : int
        Number of features and of cones.
    alpha : float or array (K,)
        Size angles of the cones, in radians.
    n_samples : int
        N.
    angle : float, optional
        Angle between any two axes; by default 4 * max(alpha) + 0.01, which satisfies the
        geometric assumption.
    axes : array (F, K), optional
        Axes of unit length, to be used instead of axes drawn at equal angles.
    rates : array (K,), optional
        lambda_k, by default 1 / k.
    weights : array (K,), optional
        Probabilities of the cones, by default equal.
    squared_norm : callable, optional
        ``(rng, means) -> squared norms``, given the mean 1 / lambda of each sample; by default
        exponential. The theory holds for any sub-exponential law.
    project : bool
        Move samples into the nonnegative orthant. With False, V may have negative entries.
    noise : float
        Standard deviation delta of Gaussian noise; the result is max(V + delta E, 0).
    rng : numpy.random.Generator

    Examples
    --------
    >>> model = make_cones(50, 3, 0.2, n_samples=100, rng=np.random.default_rng(0))
    >>> model.V.shape, bool(model.V.min() >= 0)
    ((50, 100), True)
    >>> np.round(np.arccos(model.axes[:, 0] @ model.axes[:, 2]), 6)
    np.float64(0.81)
    """
    F = integer("F", F, at_least=2)
    K = integer("K", K, at_least=1)
    n_samples = integer("n_samples", n_samples, at_least=1)
    require_memory("F", F, 8 * F * (min(K, F) + _TEMPORARY_VECTORS))
    require_memory("K", K, 8 * F * K)
    require_memory("n_samples", n_samples, 16 * F * n_samples)
    of_each = [alpha] * K if np.ndim(alpha) == 0 else alpha
    angles = array("alpha", of_each, (K,), at_least=0, at_most=RIGHT_ANGLE).astype(float)
    means = np.arange(1.0, K + 1)
    if rates is not None:
        means = 1.0 / array("rates", rates, (K,), above=0).astype(float)
    weights = None if weights is None else _probabilities(weights, K)
    draw = optional(function, "squared_norm", squared_norm, takes=2)
    draw = draw or Generator.exponential
    project = flag("project", project)
    noise = number("noise", noise, at_least=0)
    generator("rng", rng)
    if axes is None:
        angle = 4 * angles.max() + 0.01 if angle is None else angle
        axes = equal_angle_axes(F, K, number("angle", angle, above=0, below=RIGHT_ANGLE), rng)
    axes = array("axes", axes, (F, K)).astype(float)
    if not np.allclose(norm(axes, axis=0), 1.0):
        raise OptionError(Option("axes"), " are not unit vectors: divide by their norms")
    labels = rng.choice(K, size=n_samples, p=weights)
    rows = _draw_directions(labels, angles, axes, rng)
    squared = array("squared_norm", draw(rng, means[labels]), (n_samples,), at_least=0)
    norms = np.sqrt(squared, dtype=float)
    if project:
        np.maximum(rows, 0.0, out=rows)
        norms /= norm(rows, axis=1)
    rows *= norms[:, None]
    if noise > 0:
        rows += noise * rng.standard_normal(rows.shape)
        np.maximum(rows, 0.0, out=rows)
    return ConeModel(rows.T, labels, axes, angles, 1.0 / means)


def _probabilities(weights: ArrayLike, K: int) -> Array:
    shares = array("weights", weights, (K,), at_least=0).astype(float)
    if abs(shares.sum() - 1.0) > _PROBABILITY_ROUNDING:
        raise OptionError(
            Option("weights"), f" have the sum {shares.sum():.6g}, expected probabilities, of sum 1"
        )
    return shares


def _draw_directions(labels: Array, angles: Array, axes: Array, rng: Generator) -> Array:
    """Unit vectors (N, F), each at an angle uniform on [0, alpha_k] from the axis of its cone."""
    beta = rng.random(labels.size) * angles[labels]
    # Round the first unit vector e, the direction is (cos beta, sin beta * a unit vector) ...
    rows = rng.standard_normal((labels.size, axes.shape[0]))
    rows[:, 0] = 0.0
    rows *= (np.sin(beta) / norm(rows, axis=1))[:, None]
    rows[:, 0] = np.cos(beta)
    # ... and the reflection x - 2 z <z, x> with z along e - u maps e to the axis u.
    for k in range(axes.shape[1]):
        z = -axes[:, k]
        z[0] += 1.0
        length = norm(z)
        if length > 0:
            z /= length
            members = labels == k
            rows[members] -= np.outer(2.0 * (rows[members] @ z), z)
    return rows


def make_cone_data(
    n_samples: int = 100,
    n_features: int = 20,
    n_components: int = 3,
    *,
    alpha: ArrayLike = 0.1,
    noise: float = 0.0,
    random_state: int | Generator | None = None,
    **options: Any,
) -> Pair:
    """Draw samples from cones in scikit-learn's style, for tests and examples.

    Parameters
    ----------
    n_samples, n_features, n_components : int
    alpha : float or array (n_components,)
        Size angles of the cones, in radians.
    noise : float
        Standard deviation of Gaussian noise.
    random_state : int, Generator or None
    **options
        Further options of `make_cones`.

    Returns
    -------
    X : array (n_samples, n_features)
    y : array (n_samples,)
        The cone of each sample.

    Examples
    --------
    >>> X, y = make_cone_data(50, 30, 4, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((50, 30), [0, 1, 2, 3])
    """
    rng = as_generator("random_state", random_state)
    model = make_cones(
        n_features, n_components, alpha, n_samples=n_samples, noise=noise, rng=rng, **options
    )
    return model.V.T, model.labels


def equal_angle_axes(F: int, K: int, angle: float, rng: Generator) -> Array:
    """Draw K nonnegative unit vectors (F, K) with the same angle between any two.

    Each new axis is the shortest vector at that angle from all earlier ones, plus an orthogonal
    vector that completes it to unit norm. The orthogonal vector raises the smallest entry that no
    earlier axis has raised; earlier unit vectors are already combinations of the axes.
    """
    if K > F:
        raise OptionError(
            f"no {K} axes in {F} dimensions at angle {angle:.3g}: there can be no more axes than "
            "dimensions"
        )
    for _ in range(_MAX_DRAWS):
        axes = np.empty((F, K))
        first = rng.random(F) + 0.5
        axes[:, 0] = first / norm(first)
        lifted = np.zeros(F, dtype=bool)
        for k in range(1, K):
            U = axes[:, :k]
            gram = U.T @ U
            shortest = U @ solve(gram, np.full(k, np.cos(angle)))
            lowest = np.argmin(np.where(lifted, np.inf, shortest))
            lifted[lowest] = True
            lift = np.zeros(F)
            lift[lowest] = 1.0
            lift -= U @ solve(gram, U.T @ lift)
            lift /= norm(lift)
            axes[:, k] = shortest + np.sqrt(1.0 - shortest @ shortest) * lift
        if axes.min() >= 0:
            return axes
    raise OptionError(
        f"found no {K} nonnegative axes in {F} dimensions at angle {angle:.3g}: "
        "use more features, fewer cones or a smaller angle"
    )

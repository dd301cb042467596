"""Endmembers of a scene: the choice between two models, and brightness that varies.

*Two models.* `simplex` finds the corners of the smallest simplex that contains the pixels up to
white noise. The corners may lie far from all pixels, so no pixel needs to be pure. In many real
scenes the spectra of a material vary from place to place. The pixels then have no sharp facets, and
corners beyond them are not reliable. `pure_pixels` stays among the pixels. It finds K pixels in two
ways: those that span the largest simplex (N-FINDR; Winter, 1999), and those of `snpa`. It keeps the
K pixels whose nonnegative combinations describe the others better, and returns the means of the
pixels that consist almost entirely of one material, by their shares in these combinations.

*The choice* (`choose_endmembers`) follows from singular values. If spectra do not vary, the pixels
have only white noise beyond K directions, so singular value K + 1 is close to the largest one of
white noise. They vary if it is far larger and not negligible beside singular value K. Then, or if
the simplex does not describe the pixels about as well as K singular vectors, the pure pixels are
chosen.

*Brightness.* With b_n the brightness of pixel n, its coefficients are b_n times shares that sum to
one. Brightness varies if the coefficients that sum to one leave clearly more of the pixels
unexplained than nonnegative coefficients do. The shares are then the coefficients divided by their
sum. This determines the endmembers up to one scale each, so a dark material cannot be told from
shade by its spectrum alone: the scales are those of the pixels from which the endmembers come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.linalg import eigh, inv, norm
from numpy.linalg import qr as orthonormal
from scipy.linalg import qr

from ..arguments import components
from ..data.blocks import TINY, exact, first_largest, over, unit_columns
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import aligned_coefficients, require_data_matrix
from ..io.open import from_columns
from ..linalg.nnls import nnls
from ..linalg.svd import KnownSpectrum, Spectrum
from ..types import Array, Facts
from .constraints import sum_to_one
from .separable import snpa
from .simplex import (
    check_distinct,
    leading_directions,
    noise_variances,
    pixels_of,
    simplex,
    simplex_from,
)

# The options for unmixing a scene.
SCENE: Facts = {"init": "scene", "solver": None, "sum_to_one": True, "negative": "keep"}

# `benchmarks/fields.py windows` prints the scenes for which these were chosen, and others.
_NEARLY_PURE = 0.9  # the share of a material from which a pixel counts for its spectrum
_MAX_WHITE = 10.0  # the variance beyond K directions, in units of white noise
_MAX_VARIATION = 0.05  # ... what exceeds white noise, in units of direction K
_MAX_MISFIT = 1.1  # the squared error of a simplex, in units of that of K singular vectors
_MIN_SHADE = 1.2  # the squared error with sums of one, in units of that without
_MIN_SHADE_OF_VARYING = 2.0  # ... if spectra vary, because variation looks like brightness
_MIN_NOISE = 1e-7  # the least squared error, relative to the pixels
_MIN_SPREAD = 0.02  # of brightness, relative to its mean
_SATURATED_BANDS = 5  # at the largest value of the scene
_MIN_GAIN = 0.01  # in log-likelihood per pixel; two searches that end alike differ by less
_ROUNDS = 50  # of exchanges of pixels
_GAIN = 1e-9  # of the volume; exchanges that gain less are rounding


class Endmembers(NamedTuple):
    """Spectra of materials, and the evidence for the model that gave them.

    Attributes
    ----------
    W : array (F, K)
    model : str
        "simplex" or "pure-pixels".
    reason : str
        Why this model was chosen, and whether brightness varies, as a sentence.
    is_shaded : bool
        Whether brightness varies from pixel to pixel.
    """

    W: Array
    model: str
    reason: str = ""
    is_shaded: bool = False


def choose_endmembers(
    V: DataMatrix, K: int, *, known: Array | None = None, spectrum: KnownSpectrum = None
) -> Endmembers:
    """Return the endmembers of the model for which the pixels have evidence.

    Known spectra (F, m) become the first columns.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> rng = np.random.default_rng(0)
    >>> scene = rng.dirichlet(np.ones(3), 900) @ rng.random((3, 40))
    >>> choose_endmembers(from_rows(scene + 0.01 * rng.random((900, 40))), 3).model
    'simplex'
    """
    spectrum = Spectrum.of(V, spectrum)
    leading_directions(spectrum, K)
    white, largest = noise_variances(spectrum, K)
    variation = (largest - white) / spectrum.noise(K - 1)
    varies = largest > _MAX_WHITE * white and variation > _MAX_VARIATION
    X = pixels_of(V)
    what = "corners of a simplex (beyond their directions the pixels have only white noise)"
    if varies:
        fit = _fit(X, pure_pixels(V, K, known=known))
        why = f"spectra vary: along one more direction by {variation:.0%} of the weakest material"
    else:
        least = white * (V.n_features - K) * X.shape[1] + _MIN_NOISE * (X**2).sum()
        fit = _best_simplex(V, X, K, _MAX_MISFIT * least, known, spectrum)
        if fit.squared > _MAX_MISFIT * least:
            other = _fit(X, pure_pixels(V, K, known=known))
            varies = other.squared < fit.squared
            fit = other if varies else fit
            why = "no simplex describes the pixels up to noise"
    if varies:
        what = f"means of nearly pure pixels ({why})"
    shade = _MIN_SHADE_OF_VARYING if varies else _MIN_SHADE
    is_shaded = fit.with_sums > shade * fit.squared and fit.spread > _MIN_SPREAD
    is_shaded = is_shaded and V.n_features > K  # else coefficients describe any pixel
    sums = "sum to one"
    if is_shaded:
        sums = f"are divided by their sum, as brightness varies by {fit.spread:.0%}"
    said = [f"endmembers: {what}", f"abundances {sums}", *_unusable(X)]
    return Endmembers(fit.W, "pure-pixels" if varies else "simplex", "; ".join(said), is_shaded)


def _unusable(X: Array) -> list[str]:
    """Say which of the pixels X (F, n) and bands hold no measurements.

    Saturated pixels have the largest value of the scene in several bands; others hardly ever do.
    """
    top = X.max()
    n_top = (X == top).sum(axis=0)
    counts = {
        "pixels are zero in all bands": (~X.any(axis=0)).sum(),
        "pixels look saturated": (n_top >= _SATURATED_BANDS).sum(),
        "bands are zero in all pixels": (~X.any(axis=1)).sum(),
    }
    return [f"{n} {problem}: leave them out" for problem, n in counts.items() if n]


class _Fit(NamedTuple):
    """Endmembers and their squared errors: nonnegative coefficients, and with sums of one.

    `spread` is the standard deviation of the sums of nonnegative coefficients, over their mean.
    """

    W: Array
    squared: float
    with_sums: float
    spread: float


def _fit(X: Array, W: Array) -> _Fit:
    """Return how endmembers describe pixels X (F, n)."""
    own = exact(W)
    G = own.T @ own
    C = X.T @ own
    H = nnls(G, C)
    sums = H.sum(axis=1)
    squared, with_sums = (float(((X - own @ A.T) ** 2).sum()) for A in (H, sum_to_one(G, C)))
    return _Fit(W, squared, with_sums, float(sums.std() / max(sums.mean(), TINY)))


def _best_simplex(
    V: DataMatrix, X: Array, K: int, enough: float, known: Array | None, spectrum: Spectrum
) -> _Fit:
    """Return the simplex of two searches with the larger likelihood, if it describes the pixels."""
    search = partial(simplex_from, V=V, K=K, known=known, spectrum=spectrum)
    W, loss = search(None)
    fit = _fit(X, W)
    W, loss_again = search(_largest_simplex(X, K, known))
    again = _fit(X, W)
    is_better = loss_again < loss - _MIN_GAIN and again.squared <= max(fit.squared, enough)
    return again if is_better else fit


def pure_pixels(
    V: DataMatrix, K: int, *, known: Array | None = None, spectrum: KnownSpectrum = None
) -> Array:
    """Return the mean spectrum W (F, K) of nearly pure pixels of each material.

    Pixels are weighted by how far their share of the material exceeds 0.9. If there are more than
    10,000 pixels, 10,000 are drawn. Known spectra (F, m) become the first columns.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> rng = np.random.default_rng(0)
    >>> spectra = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.3], [0.1, 0.3, 0.9]])
    >>> shares = np.vstack([rng.dirichlet(np.ones(3), 100), np.eye(3)])
    >>> found = pure_pixels(from_rows(shares @ spectra), 3)
    >>> bool(np.abs(np.sort(found.T, axis=0) - np.sort(spectra, axis=0)).max() < 0.03)
    True
    """
    require_data_matrix(V, nonzero=True)
    K = components(K)
    leading_directions(Spectrum.of(V, spectrum), K)
    X = pixels_of(V)
    X = X[:, X.any(axis=0)]
    corners = _largest_simplex(X, K, known)
    H, error = _mixtures(X, corners)
    if known is None:
        others = X[:, snpa(from_columns(X, negative="keep"), K)]
        H_of_others, error_of_others = _mixtures(X, others)
        if error_of_others < (1 - _GAIN) * error:
            corners = others
            H = H_of_others
    weights = np.maximum(abundances(H) - _NEARLY_PURE, 0.0)
    totals = weights.sum(axis=0)
    W: Array = np.where(totals > 0, over(X @ weights, totals), corners)
    W = np.maximum(W, 0.0)
    if known is not None:
        W[:, : known.shape[1]] = known
    return W.astype(V.dtype)


def _mixtures(X: Array, corners: Array) -> tuple[Array, float]:
    """Return the coefficients (n, K) of pixels for corners of length 1, and the mean error.

    The squared error of each pixel is relative to its own squared norm, so dark materials count.
    """
    units = unit_columns(corners)
    H = nnls(units.T @ units, X.T @ units)
    squared = ((X - units @ H.T) ** 2).sum(axis=0)
    return H, float((squared / (X**2).sum(axis=0)).mean())


def _largest_simplex(X: Array, K: int, known: Array | None) -> Array:
    """Return the corners (F, K) of the largest simplex of known spectra and of pixels X (F, n).

    Pixels are exchanged, one at a time, as long as the volume grows. The first ones are pivots:
    each is as far as possible from the span of the earlier ones.
    """
    m = 0
    if known is not None:
        check_distinct(known)
        m = known.shape[1]
        X = np.hstack([known, X])
    mean = X[:, m:].mean(axis=1, keepdims=True)
    centred = X - mean
    axes = eigh(centred[:, m:] @ centred[:, m:].T)[1][:, ::-1][:, : K - 1]
    Y = np.vstack([np.full(X.shape[1], norm(X) / math.sqrt(X.shape[1])), axes.T @ centred])
    spanned = orthonormal(Y[:, :m])[0]
    _, order = qr(Y - spanned @ (spanned.T @ Y), mode="r", pivoting=True)
    chosen = np.r_[np.arange(m), order[: K - m]]
    for _ in range(_ROUNDS):
        before = chosen.copy()
        for k in range(m, K):
            volumes = np.abs(inv(Y[:, chosen])[k] @ Y)  # relative to the simplex so far
            best = first_largest(volumes, _GAIN)
            if volumes[best] > 1 + _GAIN:
                chosen[k] = best
        if (chosen == before).all():
            break
    corners: Array = X[:, chosen]
    return corners


def abundances(coefficients: Array) -> Array:
    """Return coefficients (n, K) divided by their sums; equal shares for rows of zeros.

    >>> abundances(np.array([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    sums = coefficients.sum(axis=1, keepdims=True)
    equal = coefficients.dtype.type(1 / coefficients.shape[1])
    return np.where(sums > 0, over(coefficients, sums), equal)


def abundances_of(V: DataMatrix, H: Aligned) -> Aligned:
    """Return the abundances (N, K) of the pixels of V for H (K, N), where H is kept."""
    return V.by_rows(lambda index, rows: abundances(rows), aligned_coefficients(V, H))


Finder: TypeAlias = Callable[..., Endmembers]
ENDMEMBERS: dict[str, Finder] = {
    "simplex": lambda *given, **options: Endmembers(simplex(*given, **options), "simplex"),
    "pure-pixels": lambda *given, **options: Endmembers(
        pure_pixels(*given, **options), "pure-pixels"
    ),
    "scene": choose_endmembers,
}

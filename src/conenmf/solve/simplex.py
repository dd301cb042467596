"""The simplex of a scene: endmembers by maximum likelihood, even if no pixel is pure.

The pixels of a scene are mixtures of K spectra, so without noise they fill a simplex whose vertices
are the spectra. The pixels y are projected on the K leading singular vectors. There W is a K x K
matrix, and Q = W^-1 gives the abundances Q y. The method estimates the facets, not the vertices:
every pixel without material k lies on facet k, so no pixel needs to be pure.

*The model.* A share p of the abundances is zero. The others are exponential with mean b / K, where
b is the brightness of the pixel; given their sum, this is uniform on the simplex. White noise of
standard deviation s in y becomes noise of s_k = s ||q_k|| in abundance k, so its density is

    f(t) = p N(t; 0, s_k) + (1 - p) r exp(r^2 s_k^2 / 2 - r t) Phi(t / s_k - r s_k),  r = K / b,

which is a spike plus an exponential with noise. If the noise of different abundances is treated as
independent, the log-likelihood is

    N log |det Q| + sum_n sum_k log f(q_k' y_n).

The first term makes the simplex small and the second keeps the pixels in it, up to noise, so there
is no volume weight to choose. Craig ("Minimum-volume transforms for remotely sensed data", 1994)
stated the geometry; Wu, Ma et al. ("Probabilistic simplex component analysis", 2021) treat the
likelihood of uniform abundances.

*Pure pixels.* All zeros of a pure pixel occur together, which the share p does not model. So a
share of the pixels is pure: b w_k for the nearest vertex w_k, with white noise. Maximum likelihood
estimates this share too; it becomes zero in scenes without such pixels.

*The scale.* The rows of Q sum to the vector u for which u'y is closest to 1 for all pixels. A pixel
may be brighter or darker, by its brightness b = u'y; its likelihood then depends on its direction.

The coordinates y are divided by their sizes, the singular values over sqrt(N). In real scenes these
sizes differ a thousandfold, and a search in y itself would take thousands of steps.

*The noise.* The residual of K singular vectors is white noise or, in real scenes, also the
variability of the materials, which is larger along some directions. So s lies between the mean
deviation per direction and the largest deviation along any direction, and is estimated too.

*Known spectra* A fix the directions of vertices, by Q a_j = e_j for u'a_j = 1. These equations are
linear in Q. The search without them finds a simplex, in which A replaces the vertices that it
contains most; the search goes on from there within the equations.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.linalg import inv, lstsq, matrix_rank, norm, slogdet
from numpy.random import default_rng
from scipy.linalg import null_space, qr
from scipy.special import gammaln, log_ndtr

from ..arguments import components
from ..data.blocks import dense, exact
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, DataError, InputWarning, Message, Option
from ..linalg.svd import KnownSpectrum, Spectrum
from ..types import Array, Interval, Pair
from .constraints import sum_to_one

# `benchmarks/fields.py scenes` prints the angles and times for which these were chosen.
_MAX_PIXELS = 10_000  # largest number of pixels in the likelihood
_FIRST_PIXELS = 2000  # fewer pixels, with which the search starts
_MIN_NOISE = 3e-4  # relative to the size of a pixel; less noise would only slow the search
_MIN_BRIGHTNESS = 0.05  # relative to the mean
_MIN_START_BRIGHTNESS = 0.3  # of pixels with which the search may start
_STEEP = 10.0  # scale of logits in the search, so that its steps suit them and Q
_MAX_LOGIT = 1.2
_MIN_UNIT = 0.5  # of the brightness of the scene: darker known spectra may have another unit
_FIRST_ZEROS = -0.1  # initial logit of the share of zero abundances
_FIRST_PURE = -0.46  # ... and of the share of pure pixels, once facets are near
_MIN_SQUARE = 1e-14  # of the largest: a direction with a smaller one is empty
_MAX_ITER = 500
_TOL = 1e-7
_MEMORY = 20  # steps that the search stores
_ROOT = math.log(math.sqrt(2 * math.pi))


def simplex(
    V: DataMatrix,
    K: int,
    *,
    known: Array | None = None,
    spectrum: KnownSpectrum = None,
) -> Array:
    """Return the spectra W (F, K) of the materials in a scene whose pixels are the samples.

    The spectra are scaled so that abundances sum to about one; otherwise they do not depend on the
    units of V. If there are more than 10,000 pixels, 10,000 are drawn. Known spectra (F, m) become
    the first columns.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> W = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.3], [0.1, 0.3, 0.9], [0.5, 0.5, 0.1]])
    >>> H = rng.dirichlet(np.ones(3), 1000).T
    >>> found = simplex(from_columns(W @ np.where(H.max(axis=0) > 0.8, 1 / 3, H)), 3)
    >>> bool(np.abs(np.sort(found) - np.sort(W)).max() < 0.01)
    True
    """
    return simplex_from(None, V, K, known=known, spectrum=spectrum)[0]


def simplex_from(
    corners: Array | None,
    V: DataMatrix,
    K: int,
    *,
    known: Array | None = None,
    spectrum: KnownSpectrum = None,
) -> tuple[Array, float]:
    """Return `simplex` and its negative log-likelihood per pixel, for a search from other corners.

    The likelihood has local optima. By default the search starts from distant pixels.
    """
    require_data_matrix(V, nonzero=True)
    K = components(K)
    spectrum = Spectrum.of(V, spectrum)
    basis, squares = leading_directions(spectrum, K)
    N = V.n_samples
    unit = math.sqrt(squares.sum() / N)
    variances = noise_variances(spectrum, K)
    noise = np.maximum(np.sqrt(np.sort(variances)) / unit, _MIN_NOISE)
    sizes = np.sqrt(squares / N) / unit
    lengths = sizes * unit
    project = (basis / lengths).T
    vertices = None if known is None else project @ known
    others = None if corners is None else project @ corners
    Q, loss = _facets(project @ pixels_of(V), sizes, noise, vertices, others)
    W: Array = np.maximum(basis * lengths @ inv(Q), 0.0)
    if known is not None:
        W[:, : known.shape[1]] = known
    return W.astype(V.dtype), loss


def leading_directions(spectrum: Spectrum, K: int) -> Pair:
    """Return the K leading singular vectors (F, K) of a scene and their squared singular values.

    A scene with fewer directions than materials is rejected.
    """
    F, N = shape = spectrum.V.shape
    if min(shape) < K:
        raise ComponentsError(
            f"a scene of {N} pixels and {F} bands has at most {min(shape)} endmembers, not {K}"
        )
    if F > N:
        problem = f"a scene of {N} pixels has fewer than its {F} bands: are bands in the rows?"
        advice = " If so, transpose the matrix, or give "
        message = Message(problem, advice, Option("samples_in", "columns"))
        warnings.warn(InputWarning(message), stacklevel=3)
    basis, squares = spectrum.leading_subspace(min(K + 1, F, N))
    rank = (squares > _MIN_SQUARE * squares[0]).sum()
    if rank < K:
        raise ComponentsError(
            f"the pixels lie in {rank} dimensions, which is too few for {K} endmembers: "
            f"use at most {rank}"
        )
    return exact(basis[:, :K]), exact(squares[:K])


def noise_variances(spectrum: Spectrum, K: int) -> tuple[float, float]:
    """Return the mean variance beyond K directions, and the largest along any, as white noise."""
    V = spectrum.V
    F, N = V.shape
    left = V.total - float(spectrum.leading_subspace(K)[1][:K].sum())
    return max(left, 0.0) / (N * max(F - K, 1)), spectrum.noise(K)


def pixels_of(V: DataMatrix) -> Array:
    """Return all pixels (F, n), or 10,000 random ones."""
    chosen = np.arange(V.n_samples)
    if chosen.size > _MAX_PIXELS:
        chosen = np.sort(default_rng(0).choice(chosen.size, _MAX_PIXELS, replace=False))
    return exact(dense(V.columns(chosen)))


def volume_weight(V: DataMatrix, W: Array) -> float:
    """Return the volume weight, relative to ||V||^2, that keeps a simplex as large as that of W.

    If the simplex grows about the mean w of the vertices, W changes by dW = W - w1'. At the weight,
    the squared error with the best H falls as fast as the weighted volume rises: <V - WH, dW H> =
    (K - 1) weight.
    """
    W = exact(W)
    X = pixels_of(V)
    H = sum_to_one(W.T @ W, X.T @ W)
    dW = W - W.mean(axis=1, keepdims=True)
    fall = np.vdot((X - W @ H.T) @ H, dW)
    return max(float(fall / (X**2).sum()), 0.0) / (W.shape[1] - 1)


def _facets(
    Y: Array, sizes: Array, noise: Array, known: Array | None, corners: Array | None
) -> tuple[Array, float]:
    """Return Q (K, K) with the largest likelihood for pixels Y (K, n) and noise between two bounds.

    The second value is the negative log-likelihood per pixel.

    At first no pixel is pure and the share of zeros is fixed. From a simplex around all pixels, a
    free share would become zero before any facet is near a pixel.
    """
    scale = lstsq(Y.T, np.ones(Y.shape[1]))[0]
    bright = scale @ Y
    distant, pixels = _distant_pixels(Y, bright)
    if corners is not None and (scale @ corners).min() > _MIN_BRIGHTNESS:
        distant = corners / (scale @ corners)
    space = _Space(_around(pixels, distant, scale), scale)
    bright = np.maximum(bright, _MIN_BRIGHTNESS)
    log_noise = np.log(noise)
    some = slice(None, None, 1 + bright.size // _FIRST_PIXELS)
    first = _Scene(Y[:, some], sizes, space, bright[some])
    fixed = [(-_MAX_LOGIT, -_MAX_LOGIT), (_FIRST_ZEROS, _FIRST_ZEROS)]
    start = np.r_[space.start, -_MAX_LOGIT, _FIRST_ZEROS, log_noise.mean()]
    start = _search(start, first, [*fixed, tuple(log_noise)])
    start[-3] = _FIRST_PURE
    limit = (-_MAX_LOGIT, _MAX_LOGIT)
    limits = [limit, limit, tuple(log_noise)]
    scene = _Scene(Y, sizes, space, bright)
    start = _search(start, scene, limits)
    if known is not None:
        space = _with_known(space.facets(start[:-3]), scale, known)
        scene = scene._replace(space=space)
        start = _search(np.r_[space.start, start[-3:]], scene, limits)
    return space.facets(start[:-3]), _loss(start, *scene)[0]


def _search(start: Array, scene: _Scene, limits: list[Interval]) -> Array:
    """Return the point of least loss; the minimiser returns its bounds if nothing is free."""
    from scipy.optimize import minimize  # slow to import

    n_free = start.size - len(limits)
    bounds = [(None, None)] * n_free + limits
    options = {"maxiter": _MAX_ITER, "ftol": _TOL, "maxcor": _MEMORY}
    least = minimize(_loss, start, scene, "L-BFGS-B", jac=True, bounds=bounds, options=options)
    return np.array(least.x)


def _distant_pixels(Y: Array, bright: Array) -> Pair:
    """Return K distant pixels (K, K), and all bright ones, at brightness 1.

    The pivots of a QR decomposition are the samples that `spa` chooses.
    """
    is_bright = bright > _MIN_START_BRIGHTNESS
    rest = Y[:, is_bright] / bright[is_bright]
    _, order = qr(rest, mode="r", pivoting=True)
    return rest[:, order[: len(Y)]], rest


def _around(pixels: Array, corners: Array, scale: Array) -> Array:
    """Return the facets of the simplex of K corners, enlarged until it holds the pixels."""
    K = len(pixels)
    Q = inv(corners)
    growth = max(1.0 - K * (Q @ pixels).min(), 1.0)
    shift = (1 - 1 / growth) / K
    return Q / growth + shift * scale


class _Scene(NamedTuple):
    """What the likelihood is computed from: pixels (K, n), their sizes and brightness."""

    Y: Array
    sizes: Array
    space: _Space
    bright: Array


class _Space:
    """The facets Q (K, K) whose rows sum to the scale, through known vertices if there are any.

    Q = `origin` + Z `axes`', where the free Z has K - 1 rows and Q's last row follows from the sum.
    """

    def __init__(self, Q: Array, scale: Array, known: Array | None = None) -> None:
        K = scale.size
        self.scale = scale
        self.axes = np.eye(K) if known is None else null_space(known.T)
        rows = Q[:-1]
        free = rows @ self.axes
        self.start = free.ravel()
        self._origin = rows - free @ self.axes.T

    def facets(self, free: Array) -> Array:
        """Return Q for the free numbers Z."""
        Z = free.reshape(-1, self.axes.shape[1])
        rows = self._origin + Z @ self.axes.T
        return np.vstack([rows, self.scale - rows.sum(axis=0)])


def check_distinct(known: Array, bright: Array | float = 1.0) -> None:
    """Reject known spectra (F, m) that are mixtures of each other, or without brightness."""
    sizes = norm(known, axis=0)
    is_dark = np.min(bright) <= 0 or not sizes.all()
    if is_dark or matrix_rank(known / sizes) < known.shape[1]:
        raise DataError(
            "the fixed components cannot be told apart in this scene, or are not part of it: "
            "leave out those that no pixel contains, and give each only once"
        )


def _with_known(Q: Array, scale: Array, known: Array) -> _Space:
    """Return the space of facets through known vertices (K, m), beginning near Q."""
    bright = scale @ known
    m = bright.size
    check_distinct(known, bright)
    if not _MIN_UNIT <= bright.min() <= bright.max() <= 1 / _MIN_UNIT:
        times = ", ".join(f"{one:.2g}" for one in bright)
        problem = f"fixed components are {times} times as bright as materials of the scene"
        warnings.warn(InputWarning(f"{problem}: give them in its units"), stacklevel=2)
    known = known / bright
    _, order = qr((Q @ known).T, mode="r", pivoting=True)
    rest = np.delete(inv(Q), order[:m], axis=1)
    return _Space(inv(np.hstack([known, rest])), scale, known)


def _loss(
    given: Array, Y: Array, sizes: Array, space: _Space, bright: Array
) -> tuple[float, Array]:
    """Return the negative log-likelihood per pixel and its gradient.

    `given` contains the free numbers of the facets Q, a tenth of the logits of the shares of pure
    pixels and of zeros, and log s.

    A pure pixel has the density of a mixed pixel's brightness, K^K e^-K / (b (K-1)!), times a
    choice of one of K materials and noise in the other K - 1 directions.
    """
    K, n = Y.shape
    Q = space.facets(given[:-3])
    inverse = inv(Q)
    tenths = given[-3:-1]
    pure, zeros = 1 / (1 + np.exp(-_STEEP * tenths))
    log_noise = given[-1]
    noise = math.exp(log_noise)
    spread = noise * norm(Q / sizes, axis=1, keepdims=True)  # s_k, as y was divided by the sizes
    mixed = _mixed_pixels(Q / spread @ Y, K / bright * spread, spread, zeros)

    column = sizes[:, None]
    W = column * inverse
    lengths = (W**2).sum(axis=0)[:, None]
    products = 2 * (column * W).T @ Y
    apart = bright * (bright * lengths - products)
    least = apart.min(axis=0)  # the squared distance d^2 from the nearest vertex, minus ||y||^2
    squares = least + ((column * Y) ** 2).sum(axis=0)
    volume = pure * norm(space.scale / sizes) * sizes.prod()
    alone = math.log(volume) - squares / (2 * noise**2)
    constant = K * math.log(K) - K - gammaln(K + 1) - (K - 1) * (log_noise + _ROOT)
    alone += constant - np.log(bright)

    _, log_det = slogdet(Q)
    values = np.logaddexp(mixed.values + log_det + math.log1p(-pure), alone)
    is_pure = np.exp(alone - values)
    weights = 1 - is_pure
    by_Z = weights * mixed.slopes
    by_spread = mixed.by_spread @ weights + np.vecdot(mixed.Z, by_Z)
    by_noise = is_pure @ (squares / noise**2 - (K - 1)) - by_spread.sum()
    by_pure = is_pure.sum() - n * pure
    by_zeros = (mixed.spikes @ weights).sum() - zeros * K * weights.sum()
    own = (apart == least) * (is_pure * bright)
    by_W = column * (column * (Y @ own.T) - W * (own @ bright)) / noise**2
    share = (noise / (spread * sizes)) ** 2
    by_Q = by_Z @ Y.T / spread - by_spread[:, None] * Q * share
    by_Q += weights.sum() * inverse.T - inverse.T @ by_W @ inverse.T
    by_free = (by_Q[:-1] - by_Q[-1]) @ space.axes
    gradient = np.r_[by_free.ravel(), _STEEP * by_pure, _STEEP * by_zeros, by_noise]
    return -float(values.sum()) / n, -gradient / n


class _Mixed(NamedTuple):
    """Log-densities of mixed pixels, their slopes, and how likely each abundance is zero."""

    Z: Array
    values: Array
    slopes: Array
    by_spread: Array
    spikes: Array


def _mixed_pixels(Z: Array, A: Array, spread: Array, zeros: float) -> _Mixed:
    """Return sum_k log f(t_k), with its derivatives by z = t / s_k and by log s_k.

    With a = r s_k and the hazard h = N(z - a; 0, 1) / Phi(z - a),

        f = ((1 - p) a + p h) Phi(z - a) exp(a^2 / 2 - a z) / s_k.
    """
    shifted = Z - A
    log_tail = log_ndtr(shifted)
    hazard = np.exp(-(shifted**2) / 2 - _ROOT - log_tail)
    slab = (1 - zeros) * A
    both = slab + zeros * hazard
    slabs = slab / both
    spikes = 1 - slabs
    logs = np.log(both / spread) + log_tail + A * (A / 2 - Z)
    slopes = slabs * (hazard - A) - spikes * Z
    by_spread = slabs * A * (shifted + hazard) + spikes
    return _Mixed(Z, logs.sum(axis=0), slopes, by_spread, spikes)

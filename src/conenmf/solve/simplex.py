"""The simplex of a scene: endmembers by maximum likelihood, also where no pixel is pure.

The pixels of a scene are mixtures of K spectra, so without noise they fill a simplex with the
spectra as its vertices. The pixels y are projected on the K leading singular vectors, where W is
a K x K matrix, and Q = W^-1 gives the abundances Q y. The facets are found rather than the
vertices: every pixel without material k lies on facet k, so no pixel needs to be pure.

The model. A share p of the abundances is zero, and the others are exponential with the mean 1/K
times the brightness b of the pixel; given their sum, this is uniform on the simplex. White noise of
deviation s in y becomes noise of s_k = s ||q_k|| in abundance k, so its density is

    f(t) = p N(t; 0, s_k) + (1 - p) r exp(r^2 s_k^2 / 2 - r t) Phi(t / s_k - r s_k),  r = K / b,

a spike beside an exponential with noise. The log-likelihood, with the noise of the abundances
treated as independent, is

    N log |det Q| + sum_n sum_k log f(q_k' y_n).

The first term makes the simplex small and the second keeps the pixels in it, up to their noise, so
no weight of the volume has to be chosen. Craig ("Minimum-volume transforms for remotely sensed
data", 1994) stated the geometry; Wu, Ma et al. ("Probabilistic simplex component analysis", 2021)
treat the likelihood of uniform abundances.

The scale. The rows of Q sum to the u that is closest to u'y = 1 for all pixels. A pixel may be
brighter or darker than that by its brightness b = u'y, and is then judged by its direction.

The noise. What K singular vectors leave is white noise or, in real scenes, also the variability of
the materials, which is larger along some directions. So s lies between the deviation that is left
per direction and the largest one along any, and the likelihood decides.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.linalg import inv, lstsq, norm, slogdet
from numpy.random import default_rng
from scipy.linalg import qr
from scipy.special import log_ndtr

from ..arguments import components
from ..data.blocks import Array, dense, exact
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, InputWarning, Message, Option
from ..linalg.svd import KnownSpectrum, Spectrum
from ..text import Facts

# The options of a fit that unmixes a scene.
SCENE: Facts = {"init": "simplex", "solver": None, "sum_to_one": True, "negative": "keep"}

_MAX_PIXELS = 10_000  # that the likelihood is computed from
_MIN_NOISE = 3e-4  # relative to the size of a pixel; less would only slow the search
_MIN_BRIGHTNESS = 0.05  # relative to the mean
_MIN_START_BRIGHTNESS = 0.3  # of pixels with which the search may begin
_FIRST_ZEROS = 0.5  # share of abundances that are zero, at first
_MAX_LOGIT = 12.0  # of that share
_MIN_SQUARE = 1e-12  # of the largest, below which a direction is empty
_MAX_ITER = 500
_TOL = 1e-9
_ROOT = math.log(math.sqrt(2 * math.pi))


def simplex(V: DataMatrix, K: int, *, spectrum: KnownSpectrum = None) -> Array:
    """Return the spectra W (F, K) of the materials in a scene whose pixels are the samples.

    They are scaled so that abundances sum to about one, and depend on the units of V in nothing
    else. Of more than 10,000 pixels so many are drawn.

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
    require_data_matrix(V, nonzero=True)
    K = components(K)
    F, N = V.shape
    if min(F, N) < K:
        raise ComponentsError(
            f"a scene of {N} pixels and {F} bands has at most {min(F, N)} endmembers, not {K}"
        )
    if F > N:
        problem = f"a scene of {N} pixels has fewer than its {F} bands: are bands in the rows?"
        advice = " If so, transpose the matrix, or give "
        option = Option("samples_in", "columns")
        warnings.warn(InputWarning(Message(problem, advice, option)), stacklevel=2)
    spectrum = Spectrum.of(V, spectrum)
    largest = spectrum.noise(K)
    basis, squares = spectrum.leading_subspace(min(K + 1, F, N))
    if not squares[K - 1] > _MIN_SQUARE * squares[0]:
        rank = int((squares > _MIN_SQUARE * squares[0]).sum())
        raise ComponentsError(
            f"the pixels lie in {rank} dimensions, which is too few for {K} endmembers: "
            f"use at most {rank}"
        )
    pixels = np.arange(N)
    if N > _MAX_PIXELS:
        pixels = np.sort(default_rng(0).choice(N, _MAX_PIXELS, replace=False))
    unit = math.sqrt(float(squares[:K].sum()) / N)
    basis = exact(basis[:, :K])
    Y = exact(dense(V.columns(pixels))).T @ basis / unit
    left = max(V.total - float(squares[:K].sum()), 0.0) / (N * max(F - K, 1))
    bounds = np.maximum(np.sqrt(np.sort([left, largest])) / unit, _MIN_NOISE)
    Q = _facets(Y, bounds)
    W: Array = np.maximum(basis @ inv(Q) * unit, 0.0)
    return W.astype(V.dtype)


def _facets(Y: Array, noise: Array) -> Array:
    """The Q (K, K) of the largest likelihood for pixels Y (n, K), noise between two bounds.

    First the share of zeros is fixed: begun with a simplex around all pixels, a free share would
    become zero before any facet is near a pixel.
    """
    from scipy.optimize import minimize  # slow to import

    K = Y.shape[1]
    scale = lstsq(Y, np.ones(len(Y)))[0]
    bright = Y @ scale
    rates = (K / np.maximum(bright, _MIN_BRIGHTNESS))[:, None]
    Q = _first_facets(Y, bright, scale)
    levels = np.log(noise)
    free = [(None, None)] * (K * (K - 1))
    start = np.r_[Q[:-1].ravel(), np.log(_FIRST_ZEROS / (1 - _FIRST_ZEROS)), levels.mean()]
    for limit in (0.0, _MAX_LOGIT):
        found = minimize(
            _loss,
            start,
            (Y, scale, rates),
            jac=True,
            method="L-BFGS-B",
            bounds=[*free, (-limit, limit), tuple(levels)],
            options={"maxiter": _MAX_ITER, "ftol": _TOL},
        )
        start = found.x
    return _all_rows(start[:-2], scale)


def _first_facets(Y: Array, bright: Array, scale: Array) -> Array:
    """Facets of a simplex around all pixels: the simplex of K distant pixels, enlarged.

    The pivots of a QR decomposition are the samples that `spa` chooses.
    """
    K = Y.shape[1]
    is_bright = bright > _MIN_START_BRIGHTNESS
    rest = Y[is_bright] / bright[is_bright, None]
    far = qr(rest.T, mode="r", pivoting=True)[1][:K]
    Q = inv(rest[far].T)
    growth = max(1.0 - K * float((rest @ Q.T).min()), 1.0)
    return Q / growth + (1 - 1 / growth) / K * scale


def _all_rows(free: Array, scale: Array) -> Array:
    """Q from all rows but the last: they sum to the scale."""
    rows = free.reshape(-1, scale.size)
    return np.vstack([rows, scale - rows.sum(axis=0)])


def _loss(given: Array, Y: Array, scale: Array, rates: Array) -> tuple[float, Array]:
    """The negative log-likelihood per pixel, and its gradient.

    `given` has the rows of Q but the last, the logit of the share of zeros, and log s.
    """
    Q = _all_rows(given[:-2], scale)
    noise = math.exp(given[-1])
    zeros = 1 / (1 + math.exp(-given[-2]))
    lengths = norm(Q, axis=1)
    spread = noise * lengths  # s_k
    T = Y @ Q.T
    Z = T / spread
    shifted = Z - rates * spread
    tail = log_ndtr(shifted)
    slab = tail + math.log1p(-zeros) + np.log(rates) + (rates * spread) ** 2 / 2 - rates * T
    spike = -(Z**2) / 2 - _ROOT + math.log(zeros) - np.log(spread)
    values = np.logaddexp(slab, spike)
    of_spike = np.exp(spike - values)  # responsibilities
    of_slab = 1 - of_spike
    hazard = np.exp(-(shifted**2) / 2 - _ROOT - tail)
    by_T = of_slab * (hazard / spread - rates) - of_spike * Z / spread
    by_spread = of_slab * (rates**2 * spread - hazard * (Z / spread + rates))
    by_spread = (by_spread + of_spike * (Z**2 - 1) / spread).sum(axis=0)
    by_zeros = float(of_spike.sum() - zeros * of_spike.size)
    by_Q = by_T.T @ Y + (by_spread * noise / lengths)[:, None] * Q
    by_Q += len(Y) * inv(Q).T
    value = len(Y) * slogdet(Q)[1] + values.sum()
    gradient = np.r_[(by_Q[:-1] - by_Q[-1]).ravel(), by_zeros, by_spread @ spread]
    return -float(value) / len(Y), -gradient / len(Y)

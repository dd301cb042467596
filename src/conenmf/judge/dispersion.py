"""The overdispersion of counts, and weights for fits of overdispersed counts.

The variance of a count of mean x is modelled as x + phi x^2, the variance of a Poisson count whose
rate varies too. The dispersion phi is the squared coefficient of variation of the rate. If it is
positive, the Poisson loss trusts large counts too much, and a few samples with very many counts
determine all components. Weights prevent this: 1 / (1 + phi x) for each entry, with the rates x of
a first fit, as in quasi-likelihood (Wedderburn, "Quasi-likelihood functions, generalized linear
models, and the Gauss-Newton method", Biometrika 61, 1974). For large data, samples are weighted
instead, see `balance_samples`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.random import Generator

from ..cones.counting import highest_noise
from ..data.blocks import TINY, Block, dense, first_largest, over, slices
from ..data.entries import pack, unpack
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import draw_samples, holds_counts
from ..data.views import take_samples
from ..io.open import from_columns
from ..linalg.bisection import bisect
from ..solve.alternate import alternate
from ..solve.inits import Start
from ..solve.loss import Noise, inverse_of
from ..solve.losses import get_loss
from ..solve.run import Solution, Stopping
from ..types import Array, Pair, Shape

_MAX_SAMPLES = 5000  # of the data that are examined
_MAX_ENTRIES = 1 << 22  # of the same data
_SEARCHED_ENTRIES = 1 << 21  # of data to which many numbers of components are fitted
_MIN_SAMPLES = 50  # even with very many features
_MAX_WEIGHTS = 1 << 25  # of entries, stored in memory
_MIN_RATE = 1.0  # of counts whose residuals are examined
_ACTIVE_SHARE = 1e-3  # of a sample or component: a larger coefficient counts as a parameter
_STARTS = 3
_TIE_SHARE = 1e-6  # relative difference up to which the errors of starts count as equal
_BEGINNING = Stopping(1e-4, max_iter=40)
_STOPPING = Stopping(1e-4, max_iter=150)
_ROUNDS = 3  # later rounds use weights, and so follow noise less
_MIN_EXCESS = 4.0  # in standard deviations of the sum of squares
_MAX_DISPERSION = 100.0
_MIN_GAIN = 4.0  # in the log-likelihood of a sample: an activity that gains less may be noise
_PRUNING = Stopping(0.0, max_iter=10)
_ENDING = Stopping(1e-6, max_iter=200)
_REFITTING = 12  # steps that refit the activities of a sample with and without one of them
_MIXED_SHARE = 0.01  # of the mean sample in a component that begins a fit
_GRAM_NUMBERS = 1 << 21  # in the second derivatives of samples that are inverted at a time
_FLOOR = 1e-9  # of an entry of W, or a rate, instead of zero
_BEYOND = 3  # how many components beyond an estimate explain all but noise
_PATIENCE = 2  # worse numbers in a row before stopping
_SEARCH_STARTS = 2  # of each number
_SEARCH_ROUNDS = 2
_MAX_UNEVENNESS = 6.0  # median square of the z-scores of features that share a dispersion


_LOSS = get_loss("poisson")
POISSON = Noise()


def dispersion(V: DataMatrix, K: int, rng: Generator) -> float:
    """Return the dispersion of counts around a fit with K components: phi in x + phi x^2.

    It is the phi at which squared residuals, divided by their variance, sum to the degrees of
    freedom. It is 0 if they do so without dispersion, up to chance, and if entries are not counts.
    If K is too small the result is too large, because unexplained components look like noise. For
    large data a subset of the samples is used.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> rates = rng.dirichlet(np.ones(40), 3).T @ rng.gamma(2.0, 1000.0, (3, 90))
    >>> dispersion(from_columns(rng.poisson(rates).astype(float)), 3, rng)
    0.0
    >>> varying = rates * rng.gamma(20, 1 / 20, rates.shape)
    >>> round(dispersion(from_columns(rng.poisson(varying).astype(float)), 3, rng), 2)
    0.05
    """
    if not holds_counts(V):
        return 0.0
    return _pilot(_Part.of(V, rng), K, rng)[1].dispersion


def noise_of(V: DataMatrix, K: int, rng: Generator, dispersion: float | None = None) -> Noise:
    """Return how counts vary around a fit with K components; the dispersion may be given.

    Data that are not counts, or have missing or weighted entries, get no dispersion.
    """
    if dispersion == 0 or V.observed is not None or not holds_counts(V):
        return POISSON if dispersion is None else Noise(dispersion)
    W, around = _pilot(_Part.of(V, rng), K, rng)
    phi = around.dispersion if dispersion is None else dispersion
    is_small = V.n_features * V.n_samples <= _MAX_WEIGHTS and V.is_in_memory
    if phi == 0 or not is_small:
        return Noise(phi)
    return Noise(phi, _weights(phi, W, _coefficients(V, W)))


class CountFits(NamedTuple):
    """Fits of counts with several numbers of components.

    Attributes
    ----------
    part : the samples that were fitted
    noise : Noise
        The noise around the fit with most components.
    factors : dict
        W (F, k) for each k.
    costs : dict
        For each k: the divergence plus k times what a component explains of noise, over the latter.
    is_uneven : bool
        Whether the dispersion differs between features; then only one number is kept.
    """

    part: _Part
    noise: Noise
    factors: dict[int, Array]
    costs: dict[int, float]
    is_uneven: bool

    @property
    def best(self) -> int:
        """The number with the lowest cost."""
        return min(self.costs, key=self.costs.__getitem__)

    def add(self, W: Array) -> bool:
        """Keep a fit if it is the best of its number; return whether it is the best of all."""
        k = W.shape[1]
        H = _coefficients(self.part.V, W)
        left = quasi_divergence(self.part.V, W, H, self.noise.dispersion)
        cost = left / edge_of(self.part.V.shape) + k
        if cost < self.costs.get(k, np.inf):
            self.factors[k] = W
            self.costs[k] = cost
        return self.best == k


def likelihoods(
    V: DataMatrix,
    rng: Generator,
    ks: Array | None,
    deadline: float,
    first: int,
    watch: Callable[[int], object] | None = None,
) -> CountFits:
    """Fit numbers of components around the best one, until two more and two fewer cost more.

    `first` is an estimate of the best number. The first fit has a few components more, and each
    next one begins without the components that explain least. If its cost is not the lowest so far,
    random starts are also tried. For large data a subset of the samples is fitted. At the
    `deadline` of `time.perf_counter` no more numbers are tried. `watch` is called with each number
    before its fit.
    """
    part = _Part.of(V, rng, max(_SEARCHED_ENTRIES // V.n_features, _MIN_SAMPLES))
    most = min(part.V.shape)
    candidates = [k for k in (range(1, most + 1) if ks is None else ks.tolist()) if k <= most]
    fewer = [k for k in candidates if k <= first + _BEYOND] or candidates[:1]
    more = candidates[len(fewer) :]
    watch = watch or (lambda k: None)
    watch(fewer[-1])
    W, noise = _pilot(part, fewer.pop(), rng, _SEARCH_ROUNDS)
    data = _LOSS.data(noise.weighed(part.V))
    fits = CountFits(part, noise, {}, {}, is_uneven=False)
    fits.add(W)
    for numbers in (fewer[::-1], more):
        for k in numbers:
            beyond = [other for other in fits.costs if (fits.best - other) * (other - k) > 0]
            if len(beyond) >= _PATIENCE or perf_counter() > deadline:
                break
            watch(k)
            is_least = False
            if k < W.shape[1]:
                start = _LOSS.initialize(data, k, _strongest(part, W, noise.dispersion, k))
                W = fitted_counts(data, start, _STOPPING).W.astype(float)
                is_least = fits.add(W)
            if not is_least:
                fits.add(_best_of_several(data, k, rng, _SEARCH_STARTS))
                W = fits.factors[k]
    if not _is_uneven(part, fits.factors[fits.best], noise.dispersion):
        return fits
    k = min(fits.costs, key=lambda k: abs(k - first))  # as likelihoods cannot choose
    return fits._replace(factors={k: fits.factors[k]}, costs={k: fits.costs[k]}, is_uneven=True)


def _coefficients(V: DataMatrix, W: Array) -> Array:
    """Return the best H (K, N) for counts in memory."""
    return np.asarray(_LOSS.coefficients(V, W)[0], float)


def largest_residual(fits: CountFits, k: int) -> float:
    """Return the largest singular value of the residuals of k components, relative to noise.

    Residuals are the signed roots of the deviance of each entry, with variance about one.
    """
    part = fits.part
    W = fits.factors[k]
    rates = part.rates(W)
    roots = np.sqrt(2 * np.maximum(_divergences(part.counts, rates, fits.noise.dispersion), 0.0))
    residuals = np.sign(part.counts - rates) * roots
    return float(norm(residuals, 2) / highest_noise(*rates.shape))


def edge_of(shape: Shape) -> float:
    """Return how much one more component explains of noise: (sqrt F + sqrt N)^2 / 2.

    This is half the squared largest singular value of an F x N matrix of noise with variance one
    (Marchenko and Pastur, 1967), like residuals divided by their standard deviations.
    """
    F, N = shape
    return float((np.sqrt(F) + np.sqrt(N)) ** 2 / 2)


def quasi_divergence(V: DataMatrix, W: Array, H: Aligned, phi: float) -> float:
    """Return the divergence of W H from counts of this dispersion; one pass.

    It is half the deviance of negative binomial counts, or the Poisson divergence if phi is 0.
    """
    with V.own_threads():
        (total,) = V.sweep(_diverge, H.T, W=np.asarray(W, float), phi=phi)
    return float(total)


def some_samples(V: DataMatrix, rng: Generator, size: int, max_entries: int) -> DataMatrix:
    """Return V itself if it is small, otherwise some of its nonzero samples.

    At most `size` samples are returned. If they have more than `max_entries` nonzero entries, there
    are fewer, but at least 50.
    """
    size = min(size, max(_MIN_SAMPLES, max_entries // (1 + V.n_entries // V.n_samples)))
    if V.nonzero <= size and V.nonzero == V.n_samples:
        return V
    return take_samples(V, np.sort(draw_samples(V, size, rng)))


class _Part(NamedTuple):
    """The examined samples, in memory, and their counts (F, n)."""

    V: DataMatrix
    counts: Array

    @classmethod
    def of(cls, V: DataMatrix, rng: Generator, size: int = _MAX_SAMPLES) -> _Part:
        part = some_samples(V, rng, size, _MAX_ENTRIES)
        counts = np.asarray(dense(part.columns(np.arange(part.shape[1]))), float)
        return cls(part if part.is_in_memory else from_columns(counts), counts)

    def rates(self, W: Array) -> Array:
        """Return the rates (F, n) of the best coefficients, above zero."""
        return np.maximum(W @ _coefficients(self.V, W), TINY)


def _pilot(part: _Part, K: int, rng: Generator, rounds: int = _ROUNDS) -> tuple[Array, Noise]:
    """Return W of short fits with the weights of earlier fits, and the noise around the last."""
    noise = POISSON
    W = np.empty(0)
    for _ in range(rounds):
        data = _LOSS.data(noise.weighed(part.V))
        W = _best_of_several(data, min(K, *part.V.shape), rng)
        H = _coefficients(part.V, W)
        phi = _solved(part.counts, W, H)
        if phi == 0:
            return W, POISSON
        noise = Noise(phi, _weights(phi, W, H))
    return W, noise


def _best_of_several(data: DataMatrix, K: int, rng: Generator, n_starts: int = _STARTS) -> Array:
    """Return W of a fit from the best of a few random inits."""
    begun = []
    for _ in range(n_starts):
        (start,) = _LOSS.warm_up(data, [data], [_LOSS.initialize(data, K, "random", rng=rng)])
        begun.append(fitted_counts(data, start, _BEGINNING))
    errors = np.array([solution.history.relative_error[-1] for solution in begun])
    best = begun[int(first_largest(-errors, _TIE_SHARE))]
    start = Start(best.W, best.H, "random")
    return fitted_counts(data, start, _STOPPING).W.astype(float)


def fitted_counts(data: DataMatrix, start: Start, stopping: Stopping) -> Solution:
    """Fit counts from given factors with the default solver of the Poisson loss."""
    return alternate(data, start.W, start.H, "newton", stopping=stopping, objective=_LOSS.on(data))


def pruned(data: DataMatrix, counts: Array, W: Array, phi: float) -> Array:
    """Return W of a continued fit of counts that drops activities which noise explains.

    A sample uses few of the components, but its most likely activities are rarely zero, so
    components may contain parts of each other. In each round, every sample tries to drop one of its
    activities, the smallest first. It drops the activity if its likelihood falls by less than
    `_MIN_GAIN` after its other activities are refitted. (A standard error does not help: for an
    activity of one feature, it is at least sqrt(phi) times the activity.) Multiplicative steps
    follow, which keep zeros.

    Parameters
    ----------
    data : DataMatrix (F, N)
        The counts with the weights of their noise.
    counts : array (F, N)
    W : array (F, K)
    phi : float
    """
    W = np.asarray(_LOSS.admissible(data, W), float)
    H = _coefficients(data, W)
    is_active = H > _ACTIVE_SHARE * H.sum(axis=0)
    for smallest in np.argsort(H * W.sum(axis=0)[:, None], axis=0):
        is_tried = is_active & (np.arange(len(H))[:, None] == smallest)
        if not is_tried.any():
            continue
        H, before = _refitted(counts, W, np.where(is_active, H, 0.0), phi)
        fewer, after = _refitted(counts, W, np.where(is_tried, 0.0, H), phi)
        is_dropped = is_tried & (after - before < _MIN_GAIN)
        is_dropped &= (is_active & ~is_dropped).any(axis=1)[:, None]  # each component stays
        is_active &= ~is_dropped
        W, H = _multiplied(data, W, np.where(is_dropped.any(axis=0), fewer, H), _PRUNING)
    W = _multiplied(data, W, np.where(is_active, H, 0.0), _ENDING)[0]
    return W / W.sum(axis=0)


def _refitted(counts: Array, W: Array, H: Array, phi: float) -> Pair:
    """Return H after multiplicative steps, which keep zeros, and the divergence of each sample."""
    for _ in range(_REFITTING):
        rates = np.maximum(W @ H, _FLOOR)
        weights = 1 / (1 + phi * rates)
        H = H * (W.T @ (weights * counts / rates)) / (W.T @ weights)
    return H, _divergences(counts, np.maximum(W @ H, _FLOOR), phi).sum(axis=0)


def _multiplied(data: DataMatrix, W: Array, H: Array, stopping: Stopping) -> tuple[Array, Array]:
    """Return factors after multiplicative steps; W starts above zero, so rates are positive."""
    W = np.maximum(W, _FLOOR)
    end = alternate(data, W, H, "mult", stopping=stopping, objective=_LOSS.on(data))
    return np.asarray(end.W, float), np.asarray(end.H, float)


def _weights(phi: float, W: Array, H: Array) -> Array:
    return 1 / (1 + phi * (H.T @ W.T))


def _is_uneven(part: _Part, W: Array, phi: float) -> bool:
    """Return whether the dispersion differs between features by more than chance.

    The squared residual of an entry, over its variance for the common dispersion, has a mean of one
    less its leverage.
    """
    if phi == 0:
        return False
    H = _coefficients(part.V, W)
    rates = np.maximum(W @ H, TINY)
    ratios = (part.counts - rates) ** 2 / (rates + phi * rates**2)
    expected = 1 - _influence(W, H, phi)[1]
    ratios *= expected.mean() / max(ratios.mean(), TINY)
    spreads = ratios.std(axis=1) / np.sqrt(ratios.shape[1])
    z = (ratios.mean(axis=1) - expected) / np.maximum(spreads, _FLOOR)
    return bool(np.median(z**2) > _MAX_UNEVENNESS)


def _strongest(part: _Part, W: Array, phi: float, k: int) -> Array:
    """Return the k components (F, k) whose removal would cost most, above zero."""
    gains = _influence(W, _coefficients(part.V, W), phi)[0]
    kept = W[:, np.sort(np.argsort(-gains, kind="stable")[:k])]
    mean = part.counts.sum(axis=1, keepdims=True) / part.counts.sum()
    return (1 - _MIXED_SHARE) * kept / kept.sum(axis=0) + _MIXED_SHARE * mean


def _influence(W: Array, H: Array, phi: float) -> Pair:
    """Return what each component explains beyond the others (K,), and leverages of features (F,).

    Both follow from the second derivative A in the active coefficients h of a sample. Without one
    of them, the divergence rises by about h^2 / [A^-1]_kk / 2. The leverage of an entry is
    p w' A^-1 w, with its precision p: the share of its noise that the coefficients explain.
    """
    K, N = H.shape
    rates = np.maximum(W @ H, _FLOOR)
    precision = 1 / (rates + phi * rates**2)
    is_active = H.T * W.sum(axis=0) > _ACTIVE_SHARE * rates.sum(axis=0)[:, None]
    gains = np.zeros(K)
    leverages = np.zeros(len(W))
    for some in slices(N, 1 + _GRAM_NUMBERS // K**2):
        own = is_active[some]
        pairs = own[:, :, None] & own[:, None, :]
        inverse = pairs * inverse_of(pairs * unpack(precision[:, some].T @ pack(W), K))
        gains += over(H.T[some] ** 2, np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=0)
        of_samples = W, precision[:, some], inverse, W
        leverages += np.einsum("fk,fn,nkl,fl->f", *of_samples, optimize=True)
    return gains, leverages / N


def _solved(counts: Array, W: Array, H: Array) -> float:
    rates = W @ H
    active = H * W.sum(axis=0)[:, None] > _ACTIVE_SHARE * rates.sum(axis=0)
    n_fitted = active.sum() + (W > _ACTIVE_SHARE * W.max(axis=0)).sum() - W.shape[1]
    seen = rates >= _MIN_RATE
    x = rates[seen]
    squares = (counts[seen] - x) ** 2 / x
    freedom = max(x.size - n_fitted, x.size / 2)
    if squares.sum() <= freedom + _MIN_EXCESS * np.sqrt(3 * freedom):  # their variance is 2 + 1/x
        return 0.0

    def is_below(phi: float) -> bool:
        return bool((squares / (1 + phi * x)).sum() > freedom)

    return bisect(is_below, 0.0, _MAX_DISPERSION)[0]


def _diverge(block: Block, H: Array, *, W: Array, phi: float) -> tuple[float]:
    rates = np.maximum(W @ H.T, TINY)
    return (float(_divergences(np.asarray(dense(block), float), rates, phi).sum()),)


def _divergences(counts: Array, rates: Array, phi: float) -> Array:
    """Return half the deviance of each entry."""
    logs = counts * np.log(np.where(counts > 0, counts, 1.0) / rates)
    if phi == 0:
        return logs - counts + rates
    return logs - (counts + 1 / phi) * np.log((1 + phi * counts) / (1 + phi * rates))

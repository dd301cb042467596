"""The number of components: one decision, and a table of the estimators that vote on it.

Where samples lie in cones, the cones are counted. Elsewhere the paper's ratio of singular values
decides, if it stands out; where it does not, parallel analysis does. `factorize` with
``K="auto"``, `select_k` and the command ``conenmf rank`` share this decision.

An estimator is a function ``(V, ks, rng) -> Vote``; `METHODS` gives each a name. The number of
cones and the paper's ratio of singular values are for samples in cones; the others assume less.
All but the first three work on a subset of the data: at most `_MAX_SAMPLES` samples, and for
cross-validation and relevance the `_MAX_CV_FEATURES` features of the largest norm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments import (
    choice,
    function,
    generator,
    instance,
    optional,
    several,
)
from ..cones.counting import (
    ConeCount,
    RankEstimate,
    count_above_edge,
    count_cones,
    default_range,
    estimate_rank,
)
from ..data.blocks import (
    Array,
    Block,
    dense,
    entries_of,
    exact,
    products,
    products_at,
    sums_at,
    weighted_sums,
)
from ..data.known import filled
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import draw_samples, holds_counts, thinned
from ..data.validate import require_data_matrix, require_nonnegative
from ..data.views import shuffled_samples, take_samples, unit_samples
from ..errors import ComponentsError, OptionError
from ..io.open import from_columns
from ..linalg.svd import Spectrum
from ..solve.inits import MAX_CONE_MIXING, initialize, mixing, random_coefficients
from ..solve.losses import POISSON, margins
from ..solve.run import Solution, Stopping, alternate
from ..solve.solvers import SOLVERS, hals
from ..text import card, function_name
from . import plots
from .dispersion import fitted_counts, some_samples
from .dual_bound import held
from .stability import numbers_of_components, stability_over

# --- votes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vote:
    """The vote of one estimator.

    Attributes
    ----------
    scores : array of float, one for each candidate
        NaN for a candidate that could not be judged.
    K : int
        Its choice.
    reason : str
        Why it chose this number.
    errors : array of float, one for each candidate, or None
        The relative error of each, if the estimator knows it; drawn beside the scores.
    """

    scores: Array
    K: int
    reason: str
    errors: Array | None = None


Method: TypeAlias = Callable[[DataMatrix, Array, np.random.Generator], Vote]
"""An estimator of the user."""

Estimator: TypeAlias = Callable[["Evidence", Array, np.random.Generator], Vote]
"""One of ours, which takes over what others have computed."""


def at_least(K: int, ks: Array, V: DataMatrix, reason: str) -> str:
    """Return the reason for K, which says so if more were not tried."""
    is_limit = K == ks[-1] < min(V.shape)
    return f"at least {K}, the largest candidate: {reason}" if is_limit else reason


# --- estimators ---------------------------------------------------------------------------------

_MAX_SAMPLES = 1000
_SUBSET_ENTRIES = 20 << 20
_MAX_CV_SAMPLES = 400
_MAX_CV_FEATURES = 400
_HELD_OUT_SHARE = 0.1  # of the entries
_N_FOLDS = 3
_FILL_MAX_ITER = 20
_CV_MAX_ITER = 15
_MASKED_SWEEPS = 4
_RELEVANCE_MAX_ITER = 500
_N_SHUFFLES = 3
_N_REPLICATES = 6
_REPLICATE_MAX_ITER = 60
_FOUND_SHARE = 0.8  # of the fits, in which all components of a stable number are found
_MAX_LISTED = 12


def by_cones(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """How many clusters are apart, see `count_cones`; without any, the largest separation."""
    count = evidence.cones
    scores = _scores_of(count.separations, ks)
    if count.K in ks:
        return Vote(scores, count.K, f"{count.reason}; also apart: {_others(count)}")
    finite = np.where(np.isfinite(scores), scores, -np.inf)
    reason = f"{count.reason}; the largest separation is here"
    return Vote(scores, int(ks[np.argmax(finite)]), reason)


def _others(count: ConeCount) -> str:
    """Name the other numbers for which clusters are apart."""
    others = count.ks[count.ks != count.K]
    shown = ", ".join(map(str, others[:_MAX_LISTED])) or "no other number of clusters"
    more = f" and {others.size - _MAX_LISTED} more" if others.size > _MAX_LISTED else ""
    return shown + more


def by_ratio(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """The paper's estimate (Section V, Theorem 9)."""
    estimate = estimate_rank(evidence.V, int(ks[0]), int(ks[-1]), spectrum=evidence.spectrum)
    scores = estimate.ratios[ks - 1]
    best = int(ks[np.argmax(scores)])
    K = estimate.K if estimate.K < ks[0] else best  # below all candidates: the rank is lower
    return Vote(scores, K, at_least(K, ks, evidence.V, "largest ratio of adjacent singular values"))


def by_edge(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """Count the singular values above the edge of the noise, see `count_above_edge`."""
    found = count_above_edge(evidence.V, int(ks[-1]), spectrum=evidence.spectrum)
    limits = np.maximum(found.limits, np.finfo(np.float64).tiny)
    K = _most_below(found.K, ks)
    reason = f"{found.K} singular values are above the edge of the noise"
    return Vote((found.values / limits)[ks - 1], K, at_least(K, ks, evidence.V, reason))


@dataclass(frozen=True)
class ParallelAnalysis:
    """Leading singular values, of samples of unit norm, beside those of shuffled data."""

    values: Array
    noise: Array

    @property
    def count(self) -> int:
        """How many singular values are above those of shuffled data."""
        above = np.append(self.values > self.noise, False)
        above[0] = True  # the mean, which shuffling keeps
        return int(np.argmin(above))

    def reason(self, K: int) -> str:
        """Why K was chosen; where K is a limit, it says so."""
        is_limit = self.count > K or self.count == self.values.size
        found = f"{self.count} singular values are above those of shuffled data"
        return f"at least {K}: all {found}" if is_limit else found


def parallel_analysis(V: DataMatrix, k_max: int, *, widen: bool = False) -> ParallelAnalysis:
    """Compare k_max singular values with those of shuffled data (Horn, 1965).

    Samples are scaled to unit norm. The values of every feature are shuffled over the samples,
    which keeps each feature's distribution and destroys what features have in common. What is
    drawn is always the same. With `widen`, k_max is doubled while all values are above.
    """
    rng = np.random.default_rng(0)
    part = unit_samples(some_samples(V, rng, _MAX_SAMPLES, _SUBSET_ENTRIES))
    shuffled = [shuffled_samples(part, rng) for _ in range(_N_SHUFFLES)]
    while True:
        k_max = min(k_max, *part.shape)
        values = Spectrum(part).singular_values(k_max, rough=True)
        rounding = np.sqrt(10 * max(part.shape) * np.finfo(np.float64).eps) * values[0]
        noise = [Spectrum(data).singular_values(k_max, rough=True) for data in shuffled]
        analysis = ParallelAnalysis(values, np.maximum(np.max(noise, axis=0), rounding))
        if not widen or analysis.count < k_max or k_max == min(part.shape):
            return analysis
        k_max *= 2


def by_parallel(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """Count the singular values above those of shuffled data."""
    analysis: ParallelAnalysis | None = vars(evidence).get("parallel")  # if it was asked for
    if analysis is None or analysis.values.size < ks[-1]:
        analysis = parallel_analysis(evidence.V, int(ks[-1]))
    K = _most_below(analysis.count, ks)
    return Vote(_scores_of(analysis.values / analysis.noise, ks), K, analysis.reason(K))


def _scores_of(values: Array, ks: Array) -> Array:
    """The values for these numbers, of those for 1, 2, ...; NaN where there are none."""
    scores = np.full(ks.size, np.nan)
    judged = ks <= values.size
    scores[judged] = values[ks[judged] - 1]
    return scores


def _most_below(count: int, ks: Array) -> int:
    """The largest candidate that is not above a number; the smallest if all are."""
    return int(max(ks[0], ks[ks <= count].max(initial=0)))


def _crossval(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """Hold out single entries, fit the others, predict (Wold, 1978)."""
    V, data = evidence.V, _small_part(evidence.V, rng)
    errors = np.full((_N_FOLDS, ks.size), np.nan)
    for fold in range(_N_FOLDS):
        observed = rng.random(data.shape) >= _HELD_OUT_SHARE
        for column, k in enumerate(ks):
            if k <= min(data.shape):
                errors[fold, column] = _held_out_error(data, observed, int(k), rng)
    scores, spread = errors.mean(axis=0), errors.std(axis=0, ddof=1) / np.sqrt(_N_FOLDS)
    if np.isnan(scores).all():
        return Vote(scores, int(ks[0]), "too few entries to hold some out")
    best = int(np.nanargmin(scores))
    K = int(ks[np.argmax(scores <= scores[best] + spread[best])])
    reason = "fewest within one standard error of the best prediction of held-out entries"
    return Vote(scores, K, at_least(K, ks, V, reason))


def _relevance(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """How many of the most components are relevant (Tan and Fevotte, 2013)."""
    part = from_columns(_small_part(evidence.V, rng))
    most = min(int(ks[-1]), *part.shape)
    found = determine_relevance(part, most, max_iter=_RELEVANCE_MAX_ITER, rng=rng)
    K = _most_below(found.n_relevant, ks)
    reason = f"{found.n_relevant} of {most} components are relevant"
    return Vote(_scores_of(found.excess, ks), K, at_least(K, ks, evidence.V, reason))


def _stability(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """Whether fits of samples drawn with replacement find the same components again."""
    V, part = evidence.V, some_samples(evidence.V, rng, _MAX_SAMPLES, _SUBSET_ENTRIES)
    scores, errors = np.full((2, ks.size), np.nan)
    judged = ks <= part.shape[1]
    found = stability_over(part, ks[judged], _N_REPLICATES, max_iter=_REPLICATE_MAX_ITER, rng=rng)
    scores[judged] = [one.found_in.min() for one in found.found.values()]
    errors[judged] = found.relative_errors
    stable = np.flatnonzero(scores >= _FOUND_SHARE)
    if stable.size:
        K = int(ks[stable[-1]])
        reason = f"most components that are all found in {_FOUND_SHARE:.0%} of the fits"
        return Vote(scores, K, at_least(K, ks, V, reason), errors)
    reason = "no number is stable over samples drawn again; this is the least unstable"
    return Vote(scores, int(ks[np.nanargmax(scores)]), reason, errors)


def _small_part(V: DataMatrix, rng: np.random.Generator) -> Array:
    """Some samples (columns), and the features of the largest norm among them."""
    part = some_samples(V, rng, _MAX_CV_SAMPLES, _SUBSET_ENTRIES)
    data = np.ascontiguousarray(dense(part.columns(np.arange(part.shape[1]))))
    norms_squared = (data**2).sum(axis=1)
    return data[np.sort(np.argsort(-norms_squared, kind="stable")[:_MAX_CV_FEATURES])]


def _held_out_error(data: Array, observed: Array, K: int, rng: np.random.Generator) -> float:
    """Return the error at the held-out entries after fitting the observed ones, over ||V||.

    NaN if the observed entries are all zero.
    """
    if not data[observed].any():
        return np.nan
    means = (data * observed).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
    filled = from_columns(np.where(observed, data, means))
    init = initialize(filled, K, "nnsvdlrc", SOLVERS["hals"], rng)
    stopping = Stopping(max_iter=_FILL_MAX_ITER)
    solution = alternate(filled, init.W, init.H, SOLVERS["hals"], stopping=stopping)
    W, H = solution.W, solution.H.T.copy()
    for _ in range(_CV_MAX_ITER):
        W = masked_nnls(H, data.T, observed.T, W)
        H = masked_nnls(W, data, observed, H)
    difference = np.where(observed, 0.0, data - W @ H.T)
    return float(np.linalg.norm(difference) / np.linalg.norm(data))


def masked_nnls(W: Array, V: Array, observed: Array, H: Array) -> Array:
    """Nonnegative least squares for the columns of V on their observed entries only.

    Each sample has its own Gram matrix, W' diag(observed) W; a few sweeps of `hals` from H.
    """
    K = W.shape[1]
    outer = (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)
    grams = (observed.T.astype(float) @ outer).reshape(-1, K, K)
    C = (V * observed).T @ W
    for _ in range(_MASKED_SWEEPS):
        H = hals(grams, C, H, floor=0.0)
    return H


# --- automatic relevance determination ----------------------------------------------------------

PRIORS = ("l1", "l2")
_RELEVANT = 1e-3  # by which a scale exceeds its lower bound, relatively, if a component counts
_TINY = np.finfo(np.float64).tiny


class Relevance(NamedTuple):
    """Which components are relevant.

    Attributes
    ----------
    W : array (F, K)
    H : array (K, N)
    scales : array (K,)
        lambda_k.
    bound : float
        The lower bound of the scales, at which a component is zero.
    objectives : array
        The negative logarithm of the posterior density, but for a constant, after each iteration.
    """

    W: Array
    H: Aligned
    scales: Array
    bound: float
    objectives: Array

    @property
    def excess(self) -> Array:
        """How far scales are above their bound, relative to it; the largest first."""
        return np.sort((self.scales - self.bound) / self.bound)[::-1]

    @property
    def n_relevant(self) -> int:
        """How many components are relevant."""
        return int(np.count_nonzero(self.excess > _RELEVANT))


def determine_relevance(
    V: DataMatrix,
    K: int,
    *,
    prior: str = "l1",
    noise: float | None = None,
    shape: float | None = None,
    tol: float = 1e-7,
    max_iter: int = 1000,
    rng: np.random.Generator | None = None,
) -> Relevance:
    """Factor V with K components, and let those that are not relevant vanish.

    The Bayesian model of Tan and Fevotte ("Automatic relevance determination in nonnegative matrix
    factorization with the beta-divergence", IEEE Trans. Pattern Anal. Mach. Intell. 35, 2013) for
    Gaussian noise, beta = 2. Column k of W and row k of H share a scale lambda_k; where it falls to
    its lower bound, the component is not relevant. The updates are the published ones, by
    majorisation and minimisation, one pass over V each. The paper on cones says that this does not
    work well for them (Section V); `benchmarks/paper/ard.py` measures it.

    Minimises ||V - W H||^2 / (2 phi) + sum_k (f(w_k) + f(h_k) + b) / lambda_k + c log lambda_k
    over W, H and lambda, where f is the sum ("l1": exponential priors, c = F + N + a + 1) or half
    the sum of squares ("l2": half-normal ones, c = (F + N) / 2 + a + 1).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        Components to begin with, more than are expected to be relevant.
    prior : {"l1", "l2"}
    noise : float, optional
        phi, the variance of the noise; by default what the K leading singular values leave.
    shape : float, optional
        a, above 2; by default log(F + N). The smaller, the fewer are relevant. b follows from it
        and from the mean of V, as published.
    tol : float
        Stop when no scale changes by more than this, relatively, ...
    max_iter : int
        ... or after so many iterations.
    rng : numpy.random.Generator, optional
        For the initial factors; by default one of a fixed seed.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 3, 0.2, n_samples=200, noise=0.1, rng=np.random.default_rng(0))
    >>> determine_relevance(from_columns(model.V), 10).n_relevant
    3
    """
    rng = np.random.default_rng(0) if rng is None else rng
    (F, N), mean = V.shape, V.mean()
    a = max(np.log(F + N), 2.1) if shape is None else shape
    b = np.sqrt((a - 1) * (a - 2) * mean / K) if prior == "l1" else np.pi * (a - 1) * mean / (2 * K)
    c = (F + N if prior == "l1" else (F + N) / 2) + a + 1
    with V.own_threads():
        phi = _noise_left(V, K) if noise is None else noise
        size = 2 * np.sqrt(mean / K)  # of entries that are uniform up to it: W H is as V on average
        W = size * rng.random((F, K))
        Ht, (penalty,) = V.map(_first, random_coefficients(V, K, rng).T, size=size, prior=prior)
        scales = (_penalties(W, prior) + penalty + b) / c
        objectives = []
        for _ in range(max_iter):
            ratio, G, before = phi / scales, W.T @ W, scales
            Ht, (VH, HH, penalty) = V.sweep(_update, Ht, W=W, G=G, ratio=ratio, prior=prior)
            W = _multiplied(W, VH, HH, ratio, prior)
            sizes = _penalties(W, prior) + penalty + b
            scales = sizes / c
            squared = V.total - 2 * float(np.vdot(VH, W)) + float(np.vdot(W.T @ W, HH))
            costs = sizes / scales + c * np.log(scales)
            objectives.append(squared / (2 * phi) + float(costs.sum()))
            if np.max(np.abs(scales - before) / before) <= tol:
                break
    return Relevance(W, Ht.T, scales, float(b / c), np.array(objectives))


def _noise_left(V: DataMatrix, K: int) -> float:
    """The variance of noise in V if the K leading components are not noise."""
    F, N = V.shape
    left = V.total - float((Spectrum(V).singular_values(K, rough=True) ** 2).sum())
    rounding = 10 * min(F, N) * np.finfo(np.float64).eps * V.total
    return max(left, rounding) / (max(F - K, 1) * max(N - K, 1))


def _penalties(Y: Array, prior: str) -> Array:
    """The sum of each column, or half the sum of its squares."""
    return Y.sum(axis=0) if prior == "l1" else 0.5 * np.einsum("nk,nk->k", Y, Y)


def _multiplied(Y: Array, C: Array, G: Array, ratio: Array, prior: str) -> Array:
    """Y C / (Y G + phi / lambda), or with Y phi / lambda as the last term for "l2"."""
    below = Y @ G + (ratio if prior == "l1" else ratio * Y)
    return Y * C / np.maximum(below, _TINY)


def _first(index: range, H: Array, *, size: float, prior: str) -> tuple[Array, tuple[Array]]:
    H = size * H.astype(np.float64)
    return H, (_penalties(H, prior),)


def _update(
    block: Block, H: Array, *, W: Array, G: Array, ratio: Array, prior: str
) -> tuple[Array, tuple[Array, Array, Array]]:
    block = exact(block)
    H = _multiplied(H, products(block, W), G, ratio, prior)
    return H, (weighted_sums(block, H), H.T @ H, _penalties(H, prior))


# --- thinned counts -----------------------------------------------------------------------------

_THINNED_SAMPLES = 2000
_THINNED_ENTRIES = 1 << 20
_FITTED_SHARE = 0.8  # of the counts
_N_SPLITS = 2
_MARGINS_SHARE = 0.2  # of the rates
_UNSEEN = 0.5  # counts of a feature that one part does not have
_THINNED_STOPPING = Stopping(max_iter=60, tol=1e-4)
_INITS = ("cr1-robust", "random")  # of which the better one counts; nndsvd is sometimes far off
_PATIENCE = 4  # candidates in a row that predict worse than the best before
_MAX_DENSE_ENTRIES = 1 << 24


def by_thinning(evidence: Evidence, ks: Array, rng: np.random.Generator) -> Vote:
    """Fit most of the counts, predict the others (data thinning).

    Counts are split at random (`thinned`): four fifths to fit, one to judge. If they are Poisson,
    the parts are independent, though every sample and every feature is in both: so no entries need
    be held out, and sparse counts stay sparse. Components that follow noise in one part predict the
    other one worse. The score is the divergence of the held-out counts from the rates, relative to
    that of one component.

    A feature may be rare, so that its rate in a sample is zero by one part, and its count in the
    other is not. So the rates are mixed with those of one component, the product of the margins.
    Its share and that of the split were chosen on nine sets of drawn counts (topics, cells and
    mutations). Six of these have many counts, and any share from 0.01 to 0.1 chooses the true
    numbers; of those with few counts, halves and a small share find too few components.
    """
    V = evidence.V
    part = some_samples(V, rng, _THINNED_SAMPLES, _THINNED_ENTRIES)
    splits = [thinned(part, rng, share=_FITTED_SHARE) for _ in range(_N_SPLITS)]
    pairs = [[held(one, _MAX_DENSE_ENTRIES) for one in split] for split in splits]
    scores, can_split = np.full(ks.size, np.nan), all(one.nonzero for pair in pairs for one in pair)
    if not can_split or ks[0] > min(part.shape):
        return Vote(scores, int(ks[0]), "too few counts to split them")
    one = _predicted(pairs, 1, rng).sum()
    missed: list[Array] = []  # of each sample, for each candidate
    best = 0
    for k in ks[ks <= min(part.shape)]:
        if len(missed) > best + _PATIENCE:
            break
        missed.append(_predicted(pairs, int(k), rng))
        if missed[-1].sum() < missed[best].sum():
            best = len(missed) - 1
    scores[: len(missed)] = [sums.sum() / one for sums in missed]
    K = int(ks[_fewest_within_one_error(missed, best)])
    reason = "fewest within one standard error of the best prediction of held-out counts"
    return Vote(scores, K, at_least(K, ks, V, reason))


def _fewest_within_one_error(missed: list[Array], best: int) -> int:
    for place, sums in enumerate(missed):
        more = sums - missed[best]
        if more.sum() <= np.sqrt(more.size) * more.std():
            return place
    return best


def _predicted(pairs: list[list[DataMatrix]], K: int, rng: np.random.Generator) -> Array:
    """The divergence of each sample's held-out counts from the rates fitted to the others."""
    total: Array = np.zeros(pairs[0][0].shape[1])
    for fitted, other in pairs:
        fits = [fit for init in _INITS if (fit := _fit(fitted, K, init, rng)) is not None]
        best = min(fits, key=lambda fit: fit.history.relative_error[-1])
        total = total + _divergences(fitted, other, best.W, best.H.T)
    return total


def _fit(V: DataMatrix, K: int, init: str, rng: np.random.Generator) -> Solution | None:
    """The factors from one init; None if the samples have too few directions for it."""
    try:
        first = POISSON.initialize(V, K, init, rng=rng)
    except ComponentsError:
        return None
    return fitted_counts(V, first, _THINNED_STOPPING)


def _divergences(fitted: DataMatrix, other: DataMatrix, W: Array, Ht: Aligned) -> Array:
    """Of each sample of the other part, from rates mixed with those of one component; one pass."""
    known = margins(fitted)
    features = known.features + _UNSEEN
    left = (1 - _FITTED_SHARE) / _FITTED_SHARE
    shared = {"W": left * exact(W), "shares": features / features.sum(), "left": left}
    divergences, _ = other.sweep(_miss, known.samples, Ht, **shared)
    return np.asarray(divergences)


def _miss(
    block: Block, sums: Array, H: Array, *, W: Array, shares: Array, left: float
) -> tuple[Array, None]:
    entries, sums, H = entries_of(block), left * sums, exact(H)
    of_margins = shares[entries.features] * sums[entries.samples]
    rates = (1 - _MARGINS_SHARE) * products_at(entries, W, H) + _MARGINS_SHARE * of_margins
    rates = np.maximum(rates, _UNSEEN * shares.min())  # of a sample without fitted counts
    values = entries.values * (np.log(entries.values / rates) - 1.0)
    mass = (1 - _MARGINS_SHARE) * (H @ W.sum(axis=0)) + _MARGINS_SHARE * sums
    return sums_at(entries.samples, values, block.shape[1]) + mass, None


METHODS: dict[str, Estimator] = {
    "cones": by_cones,
    "ratio": by_ratio,
    "edge": by_edge,
    "parallel": by_parallel,
    "crossval": _crossval,
    "relevance": _relevance,
    "stability": _stability,
    "thinning": by_thinning,
}

OF_COUNTS = ("thinning",)
"""Estimators that are asked only where all entries are counts, unless they are asked by name."""


_SCORE = "score"  # of an estimator of the user
_MEANINGS = {  # what scores are, and which are better
    "cones": "separation in radians; above 0: apart",
    "ratio": "ratio to the next singular value; higher is better",
    "edge": "singular value over the edge of noise; above 1: signal",
    "parallel": "singular value over that of shuffled data; above 1: signal",
    "crossval": "error of held-out entries; lower is better",
    "relevance": "scale over its bound, less 1; above 0: relevant",
    "stability": "share of fits that have its rarest component; higher is better",
    "thinning": "divergence of held-out counts over that of one component; lower is better",
}


# --- selection ----------------------------------------------------------------------------------

_MAX_DEFAULT_K = 20  # largest candidate of the table, ...
_CANDIDATES_ABOVE = 5  # ... or so many above the number decided on
_EVIDENT_MARGIN_RATIO = 1.2  # from which on the largest ratio stands out, in cones ...
_CLIFF_MARGIN_RATIO = 2.0  # ... and in any data
_QUICK_SAMPLES = 200  # from which to estimate when the time has run out


# --- the decision -----------------------------------------------------------------------------


class Decision(NamedTuple):
    """A number of components, the estimator that chose it, and why."""

    K: int
    decided_by: str
    reason: str


def choose_k(
    V: DataMatrix, *, spectrum: Spectrum | None = None, max_time: float | None = None
) -> Decision:
    """Choose the number of components for ``"auto"``.

    1. "cones": if clusters of samples are apart, as the geometric assumption implies, they are
       counted (`count_cones`).
    2. "ratio": else the largest ratio of adjacent singular values, if it stands out and samples of
       unit norm lead to the same number: by a factor of 2 over all other ratios, or by 1.2 if cones
       of that number explain the data about as well as their mixtures do.
    3. "parallel": else the number of singular values that are above those of shuffled data.

    Parameters
    ----------
    V : DataMatrix (F, N)
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    max_time : float, optional
        Seconds after which no further estimator is asked: the best estimate there is by then is
        returned, and the reason says so. An estimator that runs is not interrupted.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> choose_k(from_columns(model.V))[:2]
    (4, 'cones')
    """
    V = V if V.observed is None else filled(V)
    decision = _decide(Evidence(V, spectrum, max_time), _STEPS)[0]
    assert decision is not None  # parallel analysis always has an answer
    return decision


class Evidence:
    """What estimators find in V over their default ranges; each is computed when asked for."""

    def __init__(
        self, V: DataMatrix, spectrum: Spectrum | None = None, max_time: float | None = None
    ) -> None:
        self.V = V
        self.spectrum = Spectrum.of(V, spectrum)
        self.deadline = None if max_time is None else time.perf_counter() + max_time

    @property
    def is_late(self) -> bool:
        """Whether the time has run out."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    @cached_property
    def cones(self) -> ConeCount:
        """The number of cones."""
        return count_cones(self.V, deadline=self.deadline)

    @cached_property
    def ratio(self) -> RankEstimate:
        """The largest ratio of singular values."""
        return estimate_rank(self.V, spectrum=self.spectrum)

    @cached_property
    def parallel(self) -> ParallelAnalysis:
        """The singular values above those of shuffled data."""
        return parallel_analysis(self.V, default_range(self.V)[1], widen=True)


def _decide(evidence: Evidence, names: Iterable[str]) -> tuple[Decision | None, list[str]]:
    """The decision, if those estimators of `_STEPS` with these names make one; and objections."""
    best: Decision | None = None
    objections: list[str] = []
    for step in (step for name, step in _STEPS.items() if name in names):
        if evidence.is_late:
            best = _quick_decision(evidence.V) if best is None else best
            return best._replace(reason=f"the time ran out; {best.reason}"), objections
        decision, objection = step(evidence)
        if decision is not None and not objection:
            reason = "; ".join([*objections, decision.reason])
            return decision._replace(reason=reason), objections
        best = decision
        objections.append(objection)
    return None, objections


_Step: TypeAlias = Callable[[Evidence], tuple[Decision | None, str]]
"""The decision of an estimator, and an objection if it is in doubt."""


def _count(evidence: Evidence) -> tuple[Decision | None, str]:
    count = evidence.cones
    if count.K == 0:
        return None, count.reason
    return Decision(count.K, "cones", count.reason), ""


def _largest_ratio(evidence: Evidence) -> tuple[Decision | None, str]:
    low, high = default_range(evidence.V)
    ratio = evidence.ratio
    reason = f"the largest ratio stands out by a factor of {ratio.margin:.3g}"
    decision = Decision(ratio.K, "ratio", reason)
    if high <= 2 or ratio.K < low:
        return decision._replace(reason=f"the rank is {ratio.rank}"), ""
    return decision, _why_not_ratio(evidence.V, ratio, evidence.spectrum)


def _above_shuffled(evidence: Evidence) -> tuple[Decision | None, str]:
    analysis = evidence.parallel
    K = max(analysis.count, default_range(evidence.V)[0])
    return Decision(K, "parallel", analysis.reason(K)), ""


_STEPS: dict[str, _Step] = {
    "cones": _count,
    "ratio": _largest_ratio,
    "parallel": _above_shuffled,
}


def _quick_decision(V: DataMatrix) -> Decision:
    part = take_samples(V, draw_samples(V, _QUICK_SAMPLES, np.random.default_rng(0)))
    reason = f"the largest ratio of adjacent singular values of {part.shape[1]} samples"
    return Decision(estimate_rank(part).K, "ratio", reason)


def _why_not_ratio(V: DataMatrix, ratio: RankEstimate, spectrum: Spectrum) -> str:
    """Return why the largest ratio is not trusted; an empty text if it is."""
    if ratio.margin < _EVIDENT_MARGIN_RATIO:
        return f"the largest ratio stands out by a factor of only {ratio.margin:.2f}"
    unit = estimate_rank(V, normalize=True, spectrum=spectrum)
    if unit.K != ratio.K:
        return f"samples as they are and of unit norm disagree ({ratio.K} and {unit.K})"
    if unit.margin < _EVIDENT_MARGIN_RATIO:
        return (
            "for samples of unit norm the largest ratio stands out by a factor of only "
            f"{unit.margin:.2f}"
        )
    if min(ratio.margin, unit.margin) >= _CLIFF_MARGIN_RATIO:
        return ""
    share = mixing(V, ratio.K)
    if share > MAX_CONE_MIXING:
        return f"samples are mixtures: mixing cones lowers the error by {share:.0%}"
    return ""


# --- the table --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """The votes on the number of components, and a recommendation.

    Attributes
    ----------
    K : int
        The recommended number.
    decided_by : str
        The name of the estimator whose choice it is.
    reason : str
        Why this estimator decided.
    ks : array of int
        The candidates.
    votes : dict
        From the name of an estimator to its `Vote`; ``print(selection)`` shows all votes.
    """

    K: int
    decided_by: str
    reason: str
    ks: Array
    votes: dict[str, Vote]

    def __str__(self) -> str:
        width = max(12, *(len(name) + 2 for name in self.votes))
        lines = ["   K" + "".join(f"{name:>{width}}" for name in self.votes)]
        for row, k in enumerate(self.ks):
            cells = (
                f"{vote.scores[row]:>{width - 1}.4g}" + ("*" if vote.K == k else " ")
                for vote in self.votes.values()
            )
            lines.append(f"{k:>4}" + "".join(cells))
        lines += [f"{name}: {vote.K}; {vote.reason}" for name, vote in self.votes.items()]
        return "\n".join([*lines, f"recommended: {self.K}; {self.reason}"])

    def _repr_html_(self) -> str:
        sentences = [f"recommended: {self.K}; {self.reason}"]
        sentences += [f"{name}: {vote.K}; {vote.reason}" for name, vote in self.votes.items()]
        return card("Selection", sentences)

    def plot(self, axes: Any = None) -> Array:
        """Draw the scores of each estimator and its choice, errors where they are known."""
        votes = {name: (vote.scores, vote.K) for name, vote in self.votes.items()}
        meanings = {name: _MEANINGS.get(name, _SCORE) for name in votes}
        drawn = plots.scores(self.ks, votes, meanings, axes)
        errors = [vote.errors for vote in self.votes.values()]
        for ax, known in ((ax, e) for ax, e in zip(drawn, errors, strict=True) if e is not None):
            (line,) = ax.twinx().plot(self.ks, known, marker="s", color="C1")
            line.axes.set_ylabel("relative error", color="C1")
        return drawn


def select_k(
    V: DataMatrix,
    ks: Iterable[int] | None = None,
    *,
    methods: Iterable[str | Method] | None = None,
    rng: np.random.Generator | None = None,
    spectrum: Spectrum | None = None,
    callback: Callable[[str, int], object] | None = None,
) -> Selection:
    """Let several estimators vote on the number of components.

    The recommendation is that of `choose_k`, so it is the number that ``"auto"`` takes; only if
    that is not among the candidates, or its estimator not among the methods, another one decides,
    and the reason says so.

    Parameters
    ----------
    V : DataMatrix (F, N)
    ks : integers, optional
        Candidates, each from 1 to min(F, N); by default 2 to 20, or to half of min(F, N), and more
        if more are recommended.
    methods : names in `METHODS` or functions, optional
        "cones", "ratio", "edge", "parallel", "crossval", "relevance", "stability", and "thinning"
        for counts; by default all that suit the data. A function ``(V, ks, rng) -> Vote`` votes
        under its own name.
    rng : numpy.random.Generator, optional
        For holding out and restarts; by default one of a fixed seed.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    callback : callable, optional
        Called with the name of each estimator and its place, from 0 on, before it votes.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> selection = select_k(from_columns(model.V), range(2, 8), methods=["cones", "parallel"])
    >>> selection.K, selection.decided_by
    (4, 'cones')
    """
    require_data_matrix(V, nonzero=True, holes=True)
    V = V if V.observed is None else filled(V)
    require_nonnegative(V, "the vote on the number of components")
    rng = optional(generator, "rng", rng)
    optional(function, "callback", callback, takes=2)
    evidence = Evidence(V, spectrum)
    estimators = _estimators(V, methods)
    candidates = None if ks is None else _checked(V, ks)
    decision, objections = _decide(evidence, [n for n in estimators if estimators[n] is None])
    if candidates is None:
        candidates = _default_candidates(V, decision)
    rng = np.random.default_rng(0) if rng is None else rng
    votes: dict[str, Vote] = {}
    for place, (name, method) in enumerate(estimators.items()):
        if callback is not None:
            callback(name, place)
        if method is None:
            votes[name] = METHODS[name](evidence, candidates, rng)
        else:
            votes[name] = instance(name, method(V, candidates, rng), Vote)
    K, decided_by, reason = _recommend(decision, objections, votes, candidates)
    return Selection(K, decided_by, reason, candidates, votes)


def _default_candidates(V: DataMatrix, decision: Decision | None) -> Array:
    low, high = default_range(V)
    high = min(high, _MAX_DEFAULT_K)
    if decision is not None:
        low = min(low, decision.K)
        high = max(high, min(decision.K + _CANDIDATES_ABOVE, min(V.shape)))
    return np.arange(low, high + 1)


def _checked(V: DataMatrix, ks: Iterable[int]) -> Array:
    candidates = numbers_of_components(ks)
    if candidates[-1] > min(V.shape):
        raise ComponentsError(
            f"{candidates[-1]} components are more than min(F, N) = {min(V.shape)} of the data: "
            "leave such candidates out of ks"
        )
    return candidates


def _estimators(V: DataMatrix, methods: Iterable[str | Method] | None) -> dict[str, Method | None]:
    """The estimators by name; None for one of our own."""
    if methods is None:
        are_counts = holds_counts(V)
        return dict.fromkeys(name for name in METHODS if are_counts or name not in OF_COUNTS)
    estimators: dict[str, Method | None] = {}
    for method in [methods] if isinstance(methods, str) else several("methods", methods):
        if callable(method):
            estimators[function_name(method)] = function("methods", method, takes=3)
        else:
            estimators[choice("methods", method, METHODS)] = None
    if not estimators:
        raise OptionError(f"methods is empty; choose some of {', '.join(map(repr, METHODS))}")
    return estimators


def _recommend(
    decision: Decision | None, objections: list[str], votes: dict[str, Vote], candidates: Array
) -> Decision:
    if decision is not None and decision.K in candidates:
        return decision
    if decision is not None:
        missed = f"{decision.decided_by} chooses {decision.K}, which is no candidate"
        objections = [missed]
    preferred = (name for name in ("parallel", "crossval", "stability") if name in votes)
    name = next(preferred, list(votes)[-1])
    return Decision(votes[name].K, name, "; ".join([*objections, votes[name].reason]))

"""Estimators of the number of components.

An estimator is a function ``(V, ks, rng) -> Vote``; `METHODS` gives each a name. The number of
cones and the paper's ratio of singular values are for samples in cones; the others assume less.
All but the first three work on a subset of the data: at most `_MAX_SAMPLES` samples, and for
cross-validation and relevance the `_MAX_CV_FEATURES` features of the largest norm. Thinning, in a
module of its own, is for counts. Which of them decides is written in `selection`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..cones.counting import ConeCount, count_cones
from ..cones.edge import count_above_edge
from ..cones.rank import estimate_rank
from ..data.blocks import Array, dense
from ..data.matrix import DataMatrix
from ..data.views import shuffled_samples, unit_samples
from ..io.open import from_columns
from ..linalg.spectrum import Spectrum
from ..solve.inits import initialize
from ..solve.run import Stopping, alternate
from ..solve.solvers import SOLVERS, hals
from .relevance import determine_relevance
from .stability_range import stability_over
from .thinning import by_thinning
from .votes import Method, Vote, at_least, some_samples

__all__ = [
    "METHODS",
    "OF_COUNTS",
    "Method",
    "ParallelAnalysis",
    "Vote",
    "by_cones",
    "by_edge",
    "by_parallel",
    "by_ratio",
    "masked_nnls",
    "meaning_of",
    "parallel_analysis",
]

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


def by_cones(
    V: DataMatrix, ks: Array, rng: np.random.Generator, *, count: ConeCount | None = None
) -> Vote:
    """How many clusters are apart, see `count_cones`; without any, the largest separation."""
    count = count_cones(V) if count is None else count
    scores = np.full(ks.size, np.nan)
    judged = ks <= count.separations.size
    scores[judged] = count.separations[ks[judged] - 1]
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


def by_ratio(
    V: DataMatrix, ks: Array, rng: np.random.Generator, *, spectrum: Spectrum | None = None
) -> Vote:
    """The paper's estimate (Section V, Theorem 9)."""
    estimate = estimate_rank(V, int(ks[0]), int(ks[-1]), spectrum=spectrum)
    scores = estimate.ratios[ks - 1]
    best = int(ks[np.argmax(scores)])
    K = estimate.K if estimate.K < ks[0] else best  # below all candidates: the rank is lower
    return Vote(scores, K, at_least(K, ks, V, "largest ratio of adjacent singular values"))


def by_edge(
    V: DataMatrix, ks: Array, rng: np.random.Generator, *, spectrum: Spectrum | None = None
) -> Vote:
    """Count the singular values above the edge of the noise, see `count_above_edge`."""
    found = count_above_edge(V, int(ks[-1]), spectrum=spectrum)
    limits = np.maximum(found.limits, np.finfo(np.float64).tiny)
    K = int(max(ks[0], ks[ks <= found.K].max(initial=0)))
    reason = f"{found.K} singular values are above the edge of the noise"
    return Vote((found.values / limits)[ks - 1], K, at_least(K, ks, V, reason))


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
    part = unit_samples(_subset(V, rng, _MAX_SAMPLES))
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


def by_parallel(
    V: DataMatrix, ks: Array, rng: np.random.Generator, *, analysis: ParallelAnalysis | None = None
) -> Vote:
    """Count the singular values above those of shuffled data."""
    if analysis is None or analysis.values.size < ks[-1]:
        analysis = parallel_analysis(V, int(ks[-1]))
    scores = np.full(ks.size, np.nan)
    judged = ks <= analysis.values.size
    scores[judged] = (analysis.values / analysis.noise)[ks[judged] - 1]
    K = int(max(ks[0], ks[ks <= analysis.count].max(initial=0)))
    return Vote(scores, K, analysis.reason(K))


def _crossval(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Hold out single entries, fit the others, predict (Wold, 1978)."""
    data = _small_part(V, rng)
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


def _relevance(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """How many of the most components are relevant (Tan and Fevotte, 2013)."""
    part = from_columns(_small_part(V, rng))
    most = min(int(ks[-1]), *part.shape)
    found = determine_relevance(part, most, max_iter=_RELEVANCE_MAX_ITER, rng=rng)
    scores = np.full(ks.size, np.nan)
    scores[ks <= most] = found.excess[ks[ks <= most] - 1]
    K = int(max(ks[0], ks[ks <= found.n_relevant].max(initial=0)))
    reason = f"{found.n_relevant} of {most} components are relevant"
    return Vote(scores, K, at_least(K, ks, V, reason))


def _stability(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Whether fits of samples drawn with replacement find the same components again."""
    part = _subset(V, rng, _MAX_SAMPLES)
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


METHODS: dict[str, Method] = {
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


_MEANINGS = {
    "cones": "separation in radians; above 0: apart",
    "ratio": "ratio to the next singular value; higher is better",
    "edge": "singular value over the edge of noise; above 1: signal",
    "parallel": "singular value over that of shuffled data; above 1: signal",
    "crossval": "error of held-out entries; lower is better",
    "relevance": "scale over its bound, less 1; above 0: relevant",
    "stability": "share of fits that have its rarest component; higher is better",
    "thinning": "divergence of held-out counts over that of one component; lower is better",
}


def meaning_of(name: str) -> str:
    """What the scores of an estimator are, and which are better; "score" for a user's own."""
    return _MEANINGS.get(name, "score")


def _subset(V: DataMatrix, rng: np.random.Generator, size: int) -> DataMatrix:
    """V itself if it is small, otherwise some of its nonzero samples."""
    return some_samples(V, rng, size, _SUBSET_ENTRIES)


def _small_part(V: DataMatrix, rng: np.random.Generator) -> Array:
    """Some samples (columns), and the features of the largest norm among them."""
    part = _subset(V, rng, _MAX_CV_SAMPLES)
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

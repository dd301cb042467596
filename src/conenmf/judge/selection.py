"""How many components: several estimators, one table, one recommendation.

The paper's ratio of singular values (Section V) is proven for cones only. Where cones are not
evident, three other estimators vote; they assume less and are more expensive. All but the ratio
work on a subset of the data: at most `_MAX_SAMPLES` samples, and for cross-validation the
`_MAX_CV_FEATURES` features of the largest norm.

An estimator is a function ``(V, ks, rng) -> Vote``; `METHODS` gives each a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.metrics import silhouette_samples

from ..cones.rank import RankEstimate, default_range, estimate_rank
from ..data.blocks import Array, dense
from ..data.doors import from_columns
from ..data.matrix import DataMatrix
from ..data.sampling import draw_samples
from ..data.validate import require_data_matrix
from ..data.views import shuffled_samples, take_samples, unit_samples
from ..errors import ComponentsError, OptionError
from ..linalg.spectrum import Spectrum
from ..solve.cone_inits import MAX_CONE_MIXING, mixing
from ..solve.inits import initialize
from ..solve.loop import alternate
from ..solve.solvers import SOLVERS, hals
from ..solve.stopping import Stopping
from ..text import function_name
from . import plots
from .metrics import cosines, match_components

__all__ = ["METHODS", "Selection", "Vote", "choose_k", "masked_nnls", "select_k"]

_MAX_DEFAULT_K = 20
_MAX_SAMPLES = 1000
_MIN_SAMPLES = 50  # even of very many features
_SUBSET_BYTES = 160 << 20
_MAX_CV_SAMPLES = 400
_MAX_CV_FEATURES = 400
_HELD_OUT_SHARE = 0.1  # of the entries
_N_FOLDS = 3
_FILL_MAX_ITER = 20
_CV_MAX_ITER = 15
_MASKED_SWEEPS = 4
_N_SHUFFLES = 3
_N_RESTARTS = 6
_RESTART_MAX_ITER = 60
_STABLE_SILHOUETTE = 0.75  # from which on components count as found again by restarts
_EVIDENT_MARGIN_RATIO = 1.2


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
    """

    scores: Array
    K: int
    reason: str


Method: TypeAlias = Callable[[DataMatrix, Array, np.random.Generator], Vote]


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
        names = list(self.votes)
        lines = ["   K" + "".join(f"{name:>12}" for name in names)]
        for row, k in enumerate(self.ks):
            cells = (
                f"{vote.scores[row]:>11.4g}" + ("*" if vote.K == k else " ")
                for vote in self.votes.values()
            )
            lines.append(f"{k:>4}" + "".join(cells))
        lines += [f"{name}: {vote.K}; {vote.reason}" for name, vote in self.votes.items()]
        return "\n".join([*lines, f"recommended: {self.K}; {self.reason}"])

    def plot(self, axes: Any = None) -> Array:
        """Draw the scores of each estimator and its choice; return the matplotlib axes."""
        votes = {name: (vote.scores, vote.K) for name, vote in self.votes.items()}
        return plots.scores(self.ks, votes, axes)


def select_k(
    V: DataMatrix,
    ks: Iterable[int] | None = None,
    *,
    methods: Iterable[str | Method] | None = None,
    rng: np.random.Generator | None = None,
    spectrum: Spectrum | None = None,
) -> Selection:
    """Let several estimators vote on the number of components.

    Parameters
    ----------
    V : DataMatrix (F, N)
    ks : integers, optional
        Candidates, each from 1 to min(F, N); by default 2 to 20, or to half of min(F, N).
    methods : names in `METHODS` or functions, optional
        "ratio", "parallel", "crossval", "stability", by default all; a function
        ``(V, ks, rng) -> Vote`` votes under its own name.
    rng : numpy.random.Generator, optional
        For subsets, shuffling, holding out and restarts; by default one of a fixed seed.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> selection = select_k(from_columns(model.V), range(2, 8), methods=["ratio", "parallel"])
    >>> selection.K, selection.decided_by
    (4, 'ratio')
    """
    require_data_matrix(V, nonzero=True)
    candidates = _candidates(V, ks)
    spectrum = Spectrum.of(V, spectrum)
    estimators = _estimators(methods, spectrum)
    rng = np.random.default_rng(0) if rng is None else rng
    votes = {name: method(V, candidates, rng) for name, method in estimators.items()}
    decided_by, reason = _decide(V, votes, spectrum)
    return Selection(votes[decided_by].K, decided_by, reason, candidates, votes)


def _candidates(V: DataMatrix, ks: Iterable[int] | None) -> Array:
    if ks is None:
        low, high = default_range(V)
        return np.arange(low, min(high, _MAX_DEFAULT_K) + 1)
    if not isinstance(ks, Iterable):
        raise ComponentsError(f"ks={ks!r}: expected several integers of at least 1")
    candidates = np.unique(list(ks))
    if candidates.size == 0 or candidates.dtype.kind not in "iu" or candidates[0] < 1:
        raise ComponentsError(f"ks={ks!r}: expected integers of at least 1")
    if candidates[-1] > min(V.shape):
        raise ComponentsError(
            f"{candidates[-1]} components are more than min(F, N) = {min(V.shape)} of the data: "
            "leave such candidates out of ks"
        )
    return candidates


def _estimators(methods: Iterable[str | Method] | None, spectrum: Spectrum) -> dict[str, Method]:
    by_name = METHODS | {"ratio": partial(_ratio, spectrum=spectrum)}
    if methods is None:
        return by_name
    estimators: dict[str, Method] = {}
    for method in [methods] if isinstance(methods, str) else methods:
        if callable(method):
            estimators[function_name(method)] = method
        elif method in by_name:
            estimators[method] = by_name[method]
        else:
            raise OptionError.unknown("methods", method, METHODS)
    if not estimators:
        raise OptionError(f"methods is empty; choose some of {', '.join(map(repr, METHODS))}")
    return estimators


def choose_k(V: DataMatrix, *, spectrum: Spectrum | None = None) -> tuple[int, str]:
    """Choose the number of components for ``"auto"``; return it and the estimator that decided.

    The paper's ratio decides if cones are evident; otherwise parallel analysis does.
    """
    low, high = default_range(V)
    spectrum = Spectrum.of(V, spectrum)
    ratio = estimate_rank(V, spectrum=spectrum)
    if high <= 2 or ratio.K < low or not _why_no_cones(V, ratio, spectrum):
        return ratio.K, "ratio"
    vote = _parallel(V, np.arange(low, high + 1), np.random.default_rng(0))
    return min(vote.K, ratio.rank), "parallel"


def _decide(V: DataMatrix, votes: dict[str, Vote], spectrum: Spectrum) -> tuple[str, str]:
    objection = ""
    if "ratio" in votes:
        ratio = estimate_rank(V, spectrum=spectrum)
        objection = _why_no_cones(V, ratio, spectrum)
        if not objection and ratio.K == votes["ratio"].K:
            return "ratio", "cones are evident, for which the ratio is proven"
        objection = objection or f"over a wider range the largest ratio is at {ratio.K}"
    preferred = (name for name in ("crossval", "parallel", "stability") if name in votes)
    name = next(preferred, list(votes)[-1])
    return name, f"{objection}; {votes[name].reason}" if objection else votes[name].reason


def _why_no_cones(V: DataMatrix, ratio: RankEstimate, spectrum: Spectrum) -> str:
    """Return why cones are not evident; an empty text if they are.

    They are if the largest ratio stands out, samples of unit norm lead to the same number, and
    cones of that number explain the data about as well as their mixtures do.
    """
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
    share = mixing(V, ratio.K)
    if share > MAX_CONE_MIXING:
        return f"samples are mixtures: mixing cones lowers the error by {share:.0%}"
    return ""


# --- the estimators ---------------------------------------------------------------------------


def _ratio(
    V: DataMatrix, ks: Array, rng: np.random.Generator, *, spectrum: Spectrum | None = None
) -> Vote:
    """The paper's estimate (Section V, Theorem 9)."""
    estimate = estimate_rank(V, int(ks[0]), int(ks[-1]), spectrum=spectrum)
    scores = estimate.ratios[ks - 1]
    best = int(ks[np.argmax(scores)])
    K = estimate.K if estimate.K < ks[0] else best  # below all candidates: the rank is lower
    return Vote(scores, K, "largest ratio of adjacent singular values")


def _parallel(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Parallel analysis (Horn, 1965): singular values against those of shuffled data.

    Samples are scaled to unit norm. The values of every feature are shuffled over the samples,
    which keeps each feature's distribution and destroys what features have in common. The
    leading singular values that exceed those of the shuffled data are counted.
    """
    part = unit_samples(_subset(V, rng, _MAX_SAMPLES))
    k = min(int(ks[-1]), *part.shape)
    values = Spectrum(part).singular_values(k, rough=True)
    shuffled = (shuffled_samples(part, rng) for _ in range(_N_SHUFFLES))
    noise = np.max([Spectrum(data).singular_values(k, rough=True) for data in shuffled], axis=0)
    rounding = np.sqrt(10 * max(part.shape) * np.finfo(np.float64).eps) * values[0]
    above = np.append(values > np.maximum(noise, rounding), False)
    above[0] = True  # the mean, which shuffling keeps
    count = int(np.argmin(above))
    scores = np.full(ks.size, np.nan)
    judged = ks <= k
    scores[judged] = (values / np.maximum(noise, rounding))[ks[judged] - 1]
    K = int(max(ks[0], ks[ks <= count].max(initial=0)))
    return Vote(scores, K, f"{count} singular values are above those of shuffled data")


def _crossval(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Hold out single entries, fit the others, predict (Wold, 1978)."""
    part = _subset(V, rng, _MAX_CV_SAMPLES)
    data = np.ascontiguousarray(dense(part.columns(np.arange(part.shape[1]))))
    norms_squared = (data**2).sum(axis=1)
    data = data[np.sort(np.argsort(-norms_squared, kind="stable")[:_MAX_CV_FEATURES])]
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
    return Vote(
        scores, K, "fewest within one standard error of the best prediction of held-out entries"
    )


def _stability(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Whether random restarts find the same components again (as NMFk does)."""
    part = _subset(V, rng, _MAX_SAMPLES)
    scores = np.array([_found_again(part, int(k), rng) for k in ks])
    stable = np.flatnonzero(scores >= _STABLE_SILHOUETTE)
    if stable.size:
        return Vote(
            scores,
            int(ks[stable[-1]]),
            "the most components that restarts find again "
            f"(silhouette {_STABLE_SILHOUETTE} or more)",
        )
    return Vote(
        scores,
        int(ks[np.argmax(scores)]),
        "no number is stable over restarts; this is the least unstable",
    )


METHODS: dict[str, Method] = {
    "ratio": _ratio,
    "parallel": _parallel,
    "crossval": _crossval,
    "stability": _stability,
}


def _subset(V: DataMatrix, rng: np.random.Generator, size: int) -> DataMatrix:
    """V itself if it is small, otherwise some of its nonzero samples."""
    size = min(size, max(_MIN_SAMPLES, _SUBSET_BYTES // (1 + 8 * V.n_entries // V.shape[1])))
    if V.nonzero <= size and V.nonzero == V.shape[1]:
        return V
    return take_samples(V, np.sort(draw_samples(V, size, rng)))


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


def _found_again(V: DataMatrix, K: int, rng: np.random.Generator) -> float:
    """Return the smallest mean silhouette of the clusters of components matched over restarts."""
    if K == 1:
        return 1.0
    stopping = Stopping(max_iter=_RESTART_MAX_ITER)
    runs = []
    for _ in range(_N_RESTARTS):
        init = initialize(V, K, "random", SOLVERS["hals"], rng)
        solution = alternate(V, init.W, init.H, SOLVERS["hals"], stopping=stopping)
        runs.append(solution.W.astype(np.float64))
    matched = [runs[0]] + [W[:, match_components(runs[0], W)[0]] for W in runs[1:]]
    clusters = np.tile(np.arange(K), _N_RESTARTS)
    distances = np.clip(1.0 - cosines(np.hstack(matched)), 0.0, None)
    np.fill_diagonal(distances, 0.0)
    silhouettes = silhouette_samples(distances, clusters, metric="precomputed")
    return float(min(silhouettes[clusters == k].mean() for k in range(K)))

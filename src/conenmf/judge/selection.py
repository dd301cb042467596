"""How many components: several estimators, one table, one recommendation.

The paper's ratio of singular values is proven for cones only. Where cones are not evident, three
others are asked, which assume less and cost more. All but the ratio work on a sample of the data:
at most `_SAMPLES` samples, and for cross-validation the `_FEATURES` features with most weight.

An estimator is a function ``(V, ks, rng) -> Vote``; `METHODS` gives each a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.metrics import silhouette_samples

from ..cones.rank import RankEstimate, default_range, estimate_rank
from ..data.blocks import Array
from ..data.doors import from_columns, require_data_matrix, shuffled_samples, unit_samples
from ..data.matrix import DataMatrix
from ..data.sampling import draw_samples
from ..errors import ComponentsError, OptionError
from ..linalg.spectrum import Spectrum
from ..solve.inits import MOSTLY_CONES, initialize, mixing
from ..solve.loop import alternate
from ..solve.solvers import SOLVERS
from ..solve.stopping import Stopping
from . import plots
from .metrics import match_components

__all__ = ["METHODS", "Selection", "Vote", "choose_k", "select_k"]

_SAMPLES = 1000
_FEWEST_SAMPLES = 50  # ... however wide they are
_SUBSET_BYTES = 160 << 20
_FEATURES = 400
_CV_SAMPLES = 400
_HELD_OUT = 0.1  # share of the entries
_FOLDS = 3
_SHUFFLES = 3
_RESTARTS = 6
_STABLE = 0.75  # silhouette from which a set of components counts as found again
_EVIDENT_MARGIN = 1.2


@dataclass(frozen=True)
class Vote:
    """What one estimator says: a score for each candidate, its choice, and why."""

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
        The estimator it comes from.
    reason : str
    ks : array of int
        The candidates.
    votes : dict
        From the name of an estimator to its `Vote`. Printing the selection shows them all.
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
) -> Selection:
    """Ask several estimators for the number of components.

    Parameters
    ----------
    V : DataMatrix (F, N)
    ks : integers, optional
        Candidates, each from 1 to min(F, N); by default 2 to 20, or to half of min(F, N).
    methods : names in `METHODS` or functions, optional
        "ratio", "parallel", "crossval", "stability", by default all; a function
        ``(V, ks, rng) -> Vote`` counts under its own name.
    rng : numpy.random.Generator, optional
        For sampling, shuffling, holding out and restarts; by default always the same.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> table = select_k(from_columns(model.V), range(2, 8), methods=["ratio", "parallel"])
    >>> table.K, table.decided_by
    (4, 'ratio')
    """
    require_data_matrix(V, nonzero=True)
    low, high = default_range(V)
    methods = [methods] if isinstance(methods, str) else methods
    if ks is not None and not isinstance(ks, Iterable):
        raise ComponentsError(f"ks={ks!r}: expected several integers of at least 1")
    wanted = np.unique(list(range(low, min(high, 20) + 1)) if ks is None else list(ks))
    if wanted.size == 0 or wanted.dtype.kind not in "iu" or not 1 <= wanted[0]:
        raise ComponentsError(f"ks={ks!r}: expected integers of at least 1")
    if wanted[-1] > min(V.shape):
        raise ComponentsError(
            f"{wanted[-1]} components are more than min(F, N) = {min(V.shape)} of the data"
        )
    asked: dict[str, Method] = {}
    for method in METHODS if methods is None else methods:
        if callable(method):
            asked[str(getattr(method, "__name__", "custom"))] = method
        elif method in METHODS:
            asked[method] = METHODS[method]
        else:
            raise OptionError.unknown("methods", method, METHODS)
    rng = np.random.default_rng(0) if rng is None else rng
    votes = {name: method(V, wanted, rng) for name, method in asked.items()}
    decided_by, reason = _decide(V, votes)
    return Selection(votes[decided_by].K, decided_by, reason, wanted, votes)


def choose_k(V: DataMatrix) -> tuple[int, str]:
    """Choose the number of components for ``"auto"``; returns it and who decided.

    The paper's ratio decides if cones are evident; otherwise parallel analysis does.
    """
    low, high = default_range(V)
    ratio = estimate_rank(V)
    if high <= 2 or ratio.K < low or not _why_no_cones(V, ratio):
        return ratio.K, "ratio"
    vote = _parallel(V, np.arange(low, high + 1), np.random.default_rng(0))
    return min(vote.K, ratio.rank), "parallel"


def _decide(V: DataMatrix, votes: dict[str, Vote]) -> tuple[str, str]:
    if not votes:
        raise OptionError(f"methods is empty; choose some of {', '.join(map(repr, METHODS))}")
    why_not = ""
    if "ratio" in votes:
        ratio = estimate_rank(V)
        why_not = _why_no_cones(V, ratio)
        if not why_not and ratio.K == votes["ratio"].K:
            return "ratio", "cones are evident, for which the ratio is proven"
        why_not = why_not or f"over a wider range the ratio says {ratio.K}"
    for name in ("crossval", "parallel", "stability"):
        if name in votes:
            return name, f"{why_not}; {votes[name].reason}" if why_not else votes[name].reason
    name = next(reversed(votes))
    return name, f"{why_not}; {votes[name].reason}" if why_not else votes[name].reason


def _why_no_cones(V: DataMatrix, ratio: RankEstimate) -> str:
    """Say why cones are not evident; nothing if they are.

    They are if the largest ratio stands out, samples of unit length lead to the same number,
    and cones of that number explain the data about as well as their mixtures do.
    """
    if ratio.margin < _EVIDENT_MARGIN:
        return f"the largest ratio stands out by a factor of only {ratio.margin:.2f}"
    unit = estimate_rank(V, normalize=True)
    if unit.K != ratio.K:
        return f"raw and unit-length samples disagree ({ratio.K} and {unit.K})"
    if unit.margin < _EVIDENT_MARGIN:
        return f"for unit-length samples the ratio stands out by only {unit.margin:.2f}"
    share = mixing(V, ratio.K)
    if share > MOSTLY_CONES:
        return f"samples are mixtures: {share:.0%} of the error goes if cones may mix"
    return ""


# --- the estimators ---------------------------------------------------------------------------


def _ratio(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """The paper's estimate."""
    estimate = estimate_rank(V, int(ks[0]), int(ks[-1]))
    scores = estimate.ratios[ks - 1]
    best = int(ks[np.argmax(scores)])
    K = estimate.K if estimate.K < ks[0] else best  # fewer than asked for: the rank is lower
    return Vote(scores, K, "largest ratio of adjacent singular values")


def _parallel(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Parallel analysis (Horn, 1965): singular values against those of shuffled data.

    Samples are scaled to unit length. The values of every feature are shuffled over the
    samples, which keeps the features as they are and destroys what they have in common.
    Components count while theirs are larger.
    """
    part = unit_samples(_subset(V, rng, _SAMPLES))
    k = min(int(ks[-1]), *part.shape)
    values = Spectrum(part).singular_values(k, rough=True)
    shuffled = (shuffled_samples(part, rng) for _ in range(_SHUFFLES))
    noise = np.max([Spectrum(data).singular_values(k, rough=True) for data in shuffled], axis=0)
    rounding = np.sqrt(10 * max(part.shape) * np.finfo(np.float64).eps) * values[0]
    above = np.append(values > np.maximum(noise, rounding), False)
    above[0] = True  # the mean, which shuffling keeps
    found = int(np.argmin(above))
    scores = np.full(ks.size, np.nan)
    known = ks <= k
    scores[known] = (values / np.maximum(noise, rounding))[ks[known] - 1]
    K = int(max(ks[0], ks[ks <= found].max(initial=0)))
    return Vote(scores, K, f"{found} singular values are above those of shuffled data")


def _crossval(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Hold out single entries, fit the others, predict (Wold, 1978)."""
    part = _subset(V, rng, _CV_SAMPLES)
    dense = part.columns(np.arange(part.shape[1])).astype(np.float64) @ np.eye(part.shape[1])
    weight = (dense**2).sum(axis=1)
    dense = dense[np.sort(np.argsort(-weight, kind="stable")[:_FEATURES])]
    errors = np.full((_FOLDS, ks.size), np.nan)
    for fold in range(_FOLDS):
        known = rng.random(dense.shape) >= _HELD_OUT
        for column, k in enumerate(ks):
            if k <= min(dense.shape):
                errors[fold, column] = _held_out_error(dense, known, int(k), rng)
    scores, spread = errors.mean(axis=0), errors.std(axis=0, ddof=1) / np.sqrt(_FOLDS)
    if np.isnan(scores).all():
        return Vote(scores, int(ks[0]), "too few entries to hold some out")
    best = int(np.nanargmin(scores))
    good = scores <= scores[best] + spread[best]
    K = int(ks[np.argmax(good)])
    return Vote(
        scores, K, "fewest within one standard error of the best prediction of held-out entries"
    )


def _stability(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Whether random restarts find the same components again (as NMFk does)."""
    part = _subset(V, rng, _SAMPLES)
    scores = np.array([_found_again(part, int(k), rng) for k in ks])
    stable = np.flatnonzero(scores >= _STABLE)
    if stable.size:
        return Vote(
            scores,
            int(ks[stable[-1]]),
            f"most components that restarts find again (silhouette {_STABLE} or more)",
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
    size = min(size, max(_FEWEST_SAMPLES, _SUBSET_BYTES // V.sample_bytes))
    if V.nonzero <= size and V.nonzero == V.shape[1]:
        return V
    chosen = np.sort(draw_samples(V, size, rng))
    return from_columns(V.columns(chosen), n_threads=V.n_threads)


def _held_out_error(dense: Array, known: Array, K: int, rng: np.random.Generator) -> float:
    """Error at the entries that are not known, after fitting those that are, over ||V||.

    NaN if the known entries are all zero.
    """
    if not dense[known].any():
        return np.nan
    means = (dense * known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    filled = from_columns(np.where(known, dense, means))
    first = initialize(filled, K, "nnsvdlrc", SOLVERS["hals"], rng)
    begun = alternate(filled, first.W, first.H, SOLVERS["hals"], stopping=Stopping(max_iter=20))
    W, H = begun.W, begun.H.T.copy()
    for _ in range(15):
        W = _masked_nnls(H, dense.T, known.T, W)
        H = _masked_nnls(W, dense, known, H)
    difference = np.where(known, 0.0, dense - W @ H.T)
    return float(np.linalg.norm(difference) / np.linalg.norm(dense))


def _masked_nnls(W: Array, V: Array, known: Array, H: Array) -> Array:
    """Nonnegative least squares for the columns of V on their known entries only.

    Each sample has its own Gram matrix, W' diag(known) W; coordinate descent from H.
    """
    K = W.shape[1]
    grams = (known.T.astype(float) @ (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)).reshape(
        -1, K, K
    )
    C = (V * known).T @ W
    H = H.copy()
    for _ in range(4):
        for k in range(K):
            size = np.maximum(grams[:, k, k], 1e-300)
            gradient = np.einsum("nk,nk->n", grams[:, k], H) - C[:, k]
            H[:, k] = np.maximum(H[:, k] - gradient / size, 0.0)
    return H


def _found_again(V: DataMatrix, K: int, rng: np.random.Generator) -> float:
    """Smallest mean silhouette of the groups that matched components of restarts form."""
    if K == 1:
        return 1.0
    runs = []
    for _ in range(_RESTARTS):
        first = initialize(V, K, "random", SOLVERS["hals"], rng)
        run = alternate(V, first.W, first.H, SOLVERS["hals"], stopping=Stopping(max_iter=60))
        runs.append(run.W.astype(np.float64))
    matched = [runs[0]] + [W[:, match_components(runs[0], W)[0]] for W in runs[1:]]
    components = np.hstack(matched).T
    norms = np.linalg.norm(components, axis=1, keepdims=True)
    components = components / np.where(norms > 0, norms, 1.0)
    groups = np.tile(np.arange(K), _RESTARTS)
    distances = np.clip(1.0 - components @ components.T, 0.0, None)
    np.fill_diagonal(distances, 0.0)
    widths = silhouette_samples(distances, groups, metric="precomputed")
    return float(min(widths[groups == k].mean() for k in range(K)))

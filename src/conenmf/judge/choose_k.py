"""The number of components: one procedure gathers evidence and grades the answer.

`EVIDENCE` maps the name of each kind of evidence to a function. A loss that assumes counting noise
(`Loss.noise`) has evidence of its own, all others that of least squares. Each piece of evidence has
a number and an interval, and says whether the data meet its assumptions. The most trusted evidence
decides, and the answer has a grade:

*proved*
    Fewer components cannot reproduce the data, and this number does, up to rounding.
*supported*
    The data meet the assumptions of the deciding evidence, and other evidence gives the same
    number.
*guess*
    Anything else.

`factorize` with ``K="auto"``, `select_k` and the command line all use this procedure.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.linalg import eigh, norm, pinv
from numpy.random import Generator, default_rng

from .. import plots
from ..arguments import function, number, optional
from ..cones.counting import (
    EdgeCount,
    compared_samples,
    count_cones,
    count_in_clusters,
    count_without_outliers,
    default_most,
    estimate_rank,
)
from ..data.blocks import EPS, TINY, Block, divisors, exact
from ..data.entries import EntryWeights, observed_residual
from ..data.imputation import fill_missing
from ..data.known import as_repeated, observed_only
from ..data.matrix import DataMatrix
from ..data.resample import holds_counts, uniform_rows
from ..data.validate import require_nonnegative
from ..data.views import dense_samples, shuffle_samples, take_samples, times_features, unit_samples
from ..errors import ComponentsError, InputWarning
from ..io.open import as_data
from ..linalg.svd import KnownSpectrum, Spectrum
from ..solve.alternate import alternate
from ..solve.inits import Start
from ..solve.problem import Problem, problem_of
from ..solve.run import Stopping
from ..solve.solvers import Solver
from ..text import counted, listed
from ..types import Array, Facts, Interval, Range, Texts
from .dispersion import largest_residual, likelihoods, some_samples
from .requirement import exact_number, exact_rank
from .stability import numbers_of_components

PROVED = "proved"
SUPPORTED = "supported"
GUESS = "guess"

# Trust: the evidence with the highest value decides.
_CERTAIN = 4
_FIRST = 3
_CLEAR = 2
_USABLE = 1
_WEAK = 0
_UPPER_END = -1  # shown as an upper end; it never decides or supports a number
_FOR_GUESSES = ("shuffled", "hysime", "hidden")  # gathered only if the others leave a guess

_MIN_DENSITY = 0.25  # of nonzero entries: with fewer, noise cannot be alike in all entries
_MAX_MISFIT = 0.05  # of singular values to the law of noise
# Ratios of the last singular value that counts to the next.
_CLEAR_GAP = 1.5
_WIDE_GAP = 5.0
_MIN_GAP = 1.02  # for a smaller ratio, singular values cross the edge without a step
_OTHER_UNITS = 1e3  # times the norm of a typical feature: units differ
_BLUR = 2  # feature scales that leave at most half of the values above the edge explain the rest
_AGREED_BLUR = 1.5  # the same, if the ratio agrees and no step marks the edge
_NEAR_EDGE = 1.15  # singular values this near the edge are noise after a huge drop
_HUGE_DROP = 10.0
_EVIDENT_MARGIN_RATIO = 2.0  # the largest ratio of singular values over the second largest, ...
_CLIFF_MARGIN_RATIO = 5.0  # ... enough even if noise seems to give another number
_MAX_RATIO_AFTER = 1.3  # of singular values after the gap, if the rest is noise
_EXACT_TRIES = 3  # numbers of components from the rank on that may reproduce exact data
_MAX_SAMPLES = 2000  # of the data whose directions are compared
_MAX_ENTRIES = 20 << 20  # of the same data
_MANY_FEATURES = 400  # with more features than this, so many samples are compared
_NEAR_SHARE = 0.5  # of what a component explains of noise: costs that differ by less count as equal
_HIDDEN_ENTRIES = 1 << 22  # of the samples in which entries are hidden
_SPLITS = 10  # parts of the entries, of which one is hidden
_MAX_NAMED = 5  # outliers
_N_SPLITS = 2  # parts that are hidden, one after the other
_N_FOLDS = 3  # of a score
_MANY_HOLES = 0.1  # of the entries; fewer missing entries can be replaced by means
_PATIENCE = 4
_Q_PATIENCE = 8  # while Q contradicts all numbers
_MAX_Q_RATIO = 3.0  # of Q to the expected Q: above it, Q contradicts a number
_SHORT = Stopping(1e-4, max_iter=60)
_MAX_RESIDUAL = 1.12  # largest singular value of the residuals over that of noise
_MAX_DISPERSION = 0.3  # above it, counts vary so much that the model is doubtful


@dataclass(frozen=True)
class Evidence:
    """What one piece of evidence says about the number of components.

    Attributes
    ----------
    name : str
    K : int
    interval : (int, int)
        Where the true number may be, if another piece agrees.
    text : str
        The reason for the number.
    trust : int
        The piece with the largest trust decides: 2 or 3 if the data meet its assumptions, 1 if it
        can serve as a guess, 0 if it is only shown, -1 if it does not support a number either.
    ks, scores : array
        A score for each of these numbers, for the figure.
    meaning : str
        What the scores are.
    is_sure : bool
        Whether it supports its number if another piece agrees.
    below : int, optional
        How far below K the true number may be, if K is a guess; by default K / 3.
    theorem : str
        Why the number of components is proved; empty if it is not.
    n_cones : int
        The proven number of cones, which is no number of components; 0 if none is proved.
    seconds : float
        The time that the evidence took.
    Q_ratios : array
        With uncertainties, Q over its expected value for each of `ks`; otherwise empty.
    inflation : float
        How many times the divergence of Poisson counts the noise of overdispersed counts leaves.
    """

    name: str
    K: int
    interval: Range
    text: str
    trust: int
    ks: Array
    scores: Array
    meaning: str
    is_sure: bool = False
    below: int | None = None
    theorem: str = ""
    n_cones: int = 0
    seconds: float = 0.0
    Q_ratios: Array = field(default_factory=lambda: np.zeros(0))
    inflation: float = 1.0

    def table(self) -> list[str]:
        """Return the lines of a table of errors on hidden entries and of Q over its expectation."""
        if not self.Q_ratios.size:
            return []
        falls = -np.diff(self.Q_ratios, prepend=np.nan)
        rows = zip(self.ks.tolist(), self.scores, self.Q_ratios, falls, strict=True)
        lines = ["    K  hidden error  Q/Qexp    fall"]
        for K, error, ratio, fall in rows:
            shown = "" if np.isnan(fall) else f"{fall:.3g}"
            lines.append(f"  {K:>3}  {error:>12.1%}  {ratio:>6.3g}  {shown:>6}")
        return lines


@dataclass(frozen=True, repr=False)
class Selection:
    """An estimate of the number of components, its grade, and the evidence.

    Attributes
    ----------
    K : int
        The number to use.
    interval : (int, int)
        The smallest and largest number that the evidence allows.
    grade : {"proved", "supported", "guess"}
    decided_by : str
        The name of the piece of evidence that decided.
    reason : str
        Why this evidence decided, and which other evidence agrees.
    evidence : tuple of Evidence
        All pieces, in the order in which they were gathered.
    notes : tuple of str
        What else the sentence says: proven cones, outliers, why the answer may not be used.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> selection = select_k(from_columns(model.V))
    >>> selection.K, selection.grade, selection.sentence.split(":")[0]
    (4, 'supported', '4 to 6 components, supported')
    """

    K: int
    interval: Range
    grade: str
    decided_by: str
    reason: str
    evidence: tuple[Evidence, ...]
    notes: Texts = ()

    @property
    def inflation(self) -> float:
        """How many times the divergence of Poisson counts the noise leaves; 1 if unknown."""
        return max(one.inflation for one in self.evidence)

    @property
    def sentence(self) -> str:
        """The answer in a sentence: number, interval, grade and what to do."""
        low, high = self.interval
        numbers = counted(high, "component") if low == high else f"{low} to {high} components"
        if self.grade == PROVED:
            answer = f"{numbers}, proved: {self.reason}"
        elif self.grade == SUPPORTED:
            answer = f"{numbers}, supported: use {self.K}"
        else:
            answer = f"{numbers}, a guess: begin with {self.K}"
            if low < high:
                answer += f", try {low} to {high} and look at stability"
        return "; ".join([answer, *self.notes])

    def __repr__(self) -> str:
        width = max(len(one.name) for one in self.evidence)
        rows = [
            f"  {one.name:<{width}}  {one.K:>3}  {one.text} ({one.seconds:.2g} s)"
            for one in self.evidence
        ]
        tables = [line for one in self.evidence for line in one.table()]
        return "\n".join([self.sentence, *rows, *tables])

    @classmethod
    def of_plain(cls, facts: Facts | None) -> Selection | None:
        """Return the selection that was saved as these facts, or None.

        Parameters
        ----------
        facts : dict or None
        """
        if facts is None:
            return None
        pieces = []
        for one in facts["evidence"]:
            arrays = {name: np.array(one[name]) for name in ("ks", "scores", "Q_ratios")}
            pieces.append(Evidence(**{**one, **arrays, "interval": tuple(one["interval"])}))
        lists = {"interval": tuple(facts["interval"]), "notes": tuple(facts["notes"])}
        return cls(**{**facts, **lists, "evidence": tuple(pieces)})

    def plot(self, axes: object = None) -> Array:
        """Draw the scores of each piece of evidence, its number, and the interval.

        Parameters
        ----------
        axes : array of matplotlib axes, optional
        """
        return plots.evidence(self.evidence, self.interval, axes)


# --- evidence for least squares ---------------------------------------------------------------


# Called with the name and the number of each piece of evidence before it is computed.
Watch: TypeAlias = Callable[[str, int], object]


@dataclass
class Question:
    """The data, the candidates, and intermediate results that several pieces of evidence use."""

    V: DataMatrix
    problem: Problem
    ks: Array | None
    spectrum: KnownSpectrum
    deadline: float
    watch: Watch | None = None
    gathered: list[Evidence] = field(default_factory=list)
    outliers: Array | None = None
    is_scaled: bool = False

    def scale(self, factors: Array) -> None:
        """Scale features, before anything is computed from them."""
        self.is_scaled = True
        self.V = times_features(self.V, factors.astype(self.V.dtype))
        self.spectrum = Spectrum(self.V)

    def keep(self, indices: Array, kept: Array) -> None:
        """Leave out samples that are not kept, before anything is computed from the others."""
        if kept.size < indices.size:
            self.outliers = np.delete(indices, kept)
            self.V = take_samples(self.V, indices[kept])
            self.spectrum = Spectrum(self.V)

    def tell(self, name: str, K: int) -> None:
        """Tell the callback which number of components is tried."""
        if self.watch is not None:
            self.watch(f"{name}, {counted(K, 'component')}", len(self.gathered))

    @property
    def is_late(self) -> bool:
        """Whether the budget is used up."""
        return perf_counter() > self.deadline

    @cached_property
    def samples(self) -> DataMatrix:
        """All samples, or a subset if there are many."""
        size = _MANY_FEATURES if self.V.n_features > _MANY_FEATURES else _MAX_SAMPLES
        return some_samples(self.V, default_rng(0), size, _MAX_ENTRIES)

    @cached_property
    def directions(self) -> Spectrum:
        """The spectrum of these samples scaled to unit norm."""
        return Spectrum(unit_samples(self.samples), vectors=False)


def _rank(question: Question) -> Iterator[Evidence]:
    """Count the rank above the rounding of the data, and components that reproduce the data.

    Without noise both may be equal, and then the number of components is proved. Data of full rank
    say nothing: each sample (or feature) that is not zero may be a component.
    """
    V = question.V
    with V.own_threads():
        found = exact_rank(V)
        if found is None or not found.is_exact or (found.is_full and found.number > 2):
            return
        high = exact_number(V, found, _EXACT_TRIES)
    rank = found.number
    K = high or rank
    text = f"the rank of the data is {rank} above rounding"
    theorem = ""
    if high == rank:
        theorem = f"{counted(K, 'component')} reproduce them to rounding"
        if K <= 2:
            theorem = "a nonnegative matrix of rank at most 2 has as many components"
    elif high is not None:
        text += f", and {K} components reproduce the data to rounding"
    yield Evidence(
        name="rank",
        K=K,
        interval=(rank, high or rank + 2),
        text=text,
        trust=_CERTAIN,
        ks=np.array([rank]),
        scores=np.array([float(rank)]),
        meaning="rank above rounding",
        is_sure=True,
        theorem=theorem,
    )


def _edge(question: Question) -> Iterator[Evidence]:
    """Count singular values above the edge of the noise, for all samples and within clusters.

    See `count_above_edge` and `count_in_clusters`. Features are scaled to equal noise only if the
    noise of unscaled features is not alike. Samples that are a component of their own are left out
    here and by all later evidence. Data of mostly zeros are skipped, because noise that is alike in
    all entries would leave few zeros.
    """
    V = question.V
    if V.n_entries < _MIN_DENSITY * V.size:
        return
    B, indices = compared_samples(V)
    sizes = norm(B, axis=1)
    present = sizes[sizes > 0]
    if present.max() > _OTHER_UNITS * np.median(present):
        question.scale(1 / divisors(sizes))
        B = compared_samples(question.V)[0]
    found, kept = count_without_outliers(B)
    plain = _without_near(found)
    edge = plain
    if not _is_noise(plain):
        found, kept_now = count_without_outliers(B, by_features=True)
        scaled = _without_near(found)
        if scaled.misfit < plain.misfit and scaled.K <= plain.K:
            edge = scaled
            kept = kept_now
    question.keep(indices, kept)
    piece = _above_edge(edge, is_blurred=_BLUR * edge.K <= plain.K)
    if edge is not plain and not piece.is_sure:
        piece = replace(piece, trust=min(piece.trust, _USABLE))
    if edge is plain and piece.trust == _CLEAR and np.isfinite(edge.values[0]):
        yield from _clusters(question.V, edge, piece)
    yield piece


def _is_noise(found: EdgeCount) -> bool:
    """Return whether the singular values below the edge look like noise."""
    return found.misfit <= _MAX_MISFIT and found.gap >= _MIN_GAP


def _above_edge(found: EdgeCount, *, is_blurred: bool) -> Evidence:
    """Return the evidence of the edge; it is blurred if features had to be scaled."""
    K = found.K
    last = min(found.values.size - 1, 2 * K + 10)
    gap = found.gap
    size = f"{gap:.3g} times as large as the next"
    if not np.isfinite(gap):
        size = "and all others are zero"
    text = f"{K} singular values are above the edge of the noise, {size}"
    trust = _CLEAR
    if not _is_noise(found):
        text = f"{K} singular values are above the edge, but the others do not look like noise"
        trust = _USABLE if is_blurred else _WEAK
    more = 1 if gap >= _WIDE_GAP else max(2, -(-K // 5))
    return Evidence(
        name="edge",
        K=K,
        interval=(K - 1, K + more),
        text=text,
        trust=trust,
        ks=np.arange(1, last + 1),
        scores=np.where(np.isfinite(found.values), found.values, np.nan)[:last],
        meaning="singular value over the edge of noise; above 1: signal",
        is_sure=gap >= _CLEAR_GAP,
        below=max(K // 5, 1),
    )


def _clusters(V: DataMatrix, above: EdgeCount, edge: Evidence) -> Iterator[Evidence]:
    """Count components in clusters of samples, where the edge is lower."""
    count = count_in_clusters(V, above)
    if count:
        yield replace(
            edge,
            name="clusters",
            K=count,
            text=f"{above.K} clusters of samples contain {counted(count, 'component')}",
            trust=_CLEAR if count > above.K else _WEAK,
            ks=np.array([count]),
            scores=np.array([count / above.K]),
            meaning="components for each cluster",
            is_sure=False,
        )


def _without_near(found: EdgeCount) -> EdgeCount:
    """Return the count without singular values just above the edge after a huge drop.

    Noise that is not quite alike in all entries has a few singular values there.
    """
    K = int(np.count_nonzero(found.values[: found.K] >= _NEAR_EDGE))
    above = found._replace(K=K)
    return above if 0 < K < found.K and above.gap >= _HUGE_DROP else found


def _ratio(question: Question) -> Iterator[Evidence]:
    """Compute the paper's estimate (Section V, Theorem 9)."""
    V = question.V
    part = question.samples
    ratio = estimate_rank(
        part, spectrum=question.spectrum if part is V else Spectrum(part, vectors=False)
    )
    if ratio.rank <= 2 and part is not V:
        ratio = estimate_rank(V, spectrum=question.spectrum)
    unit = estimate_rank(question.directions.V, spectrum=question.directions)
    K = ratio.K
    margin = min(ratio.margin, unit.margin)
    after = float(ratio.ratios[K : K + 10].max(initial=1.0))
    text = f"the largest ratio of singular values stands out by a factor of {margin:.3g}"
    if unit.K != K:
        text = f"samples and samples of unit norm disagree ({K} and {unit.K})"
    trust = _WEAK
    if unit.K == K and margin >= _EVIDENT_MARGIN_RATIO and after <= _MAX_RATIO_AFTER:
        trust = _FIRST if margin >= _CLIFF_MARGIN_RATIO else _CLEAR
    yield Evidence(
        name="ratio",
        K=K,
        interval=(K - 1, K + 1),
        text=text,
        trust=trust,
        ks=np.arange(1, ratio.ratios.size + 1),
        scores=ratio.ratios,
        meaning="ratio to the next singular value; higher is better",
        is_sure=True,
    )


def _shuffled(question: Question) -> Iterator[Evidence]:
    """Do parallel analysis: count singular values above those of shuffled data (Horn, 1965).

    Samples are scaled to unit norm. The values of every feature are shuffled over the samples,
    which keeps each feature's distribution and destroys correlations between features. It decides
    if more than twice as many values are above the edge; 1.5 times as many are enough if the ratio
    gives the same number and the gap at the edge is small.
    """
    directions = question.directions
    others = Spectrum(shuffle_samples(directions.V, default_rng(0)), vectors=False)
    k_max = default_most(question.V)
    most = min(directions.V.shape)
    count = 0
    while count == 0 or count == k_max < most:
        k_max = min(2 * count or k_max, most)
        values = directions.singular_values(k_max, rough=True)
        rounding = np.sqrt(10 * max(directions.V.shape) * EPS) * values[0]
        scores = values / np.maximum(others.singular_values(k_max, rough=True), rounding)
        above = np.append(scores > 1.0, False)
        above[0] = True  # the mean, which shuffling keeps
        count = int(np.argmin(above))
    K = count
    counts = {one.name: one.K for one in question.gathered}
    edges = [one for one in question.gathered if one.name == "edge" and one.trust == _CLEAR]
    is_doubtful = any(not one.is_sure for one in edges)
    is_same = counts["ratio"] == K
    is_alone = "clusters" not in counts  # these would confirm the edge
    blur = _AGREED_BLUR if is_same and is_alone and is_doubtful else _BLUR
    is_blurred = 2 < K and counts.get("edge", 0) > blur * K and (is_same or is_alone)
    interval = (K - K // 2, K + 2) if is_blurred and not is_same else (K - K // 3, K + 1)
    text = f"{count} singular values are above those of shuffled data"
    if is_blurred:
        text += "; more are above the edge of noise, which may differ between features"
    shown = slice(0, 2 * K + 10)
    yield Evidence(
        name="shuffled",
        K=K,
        interval=interval,
        text=text,
        trust=_FIRST if is_blurred else _USABLE,
        ks=np.arange(1, k_max + 1)[shown],
        scores=scores[shown],
        meaning="singular value over that of shuffled data; above 1: signal",
    )


def _hysime(question: Question) -> Iterator[Evidence]:
    """Count directions with more signal than noise, an upper end for scenes.

    The noise of a feature is its residual after regression on all others (Bioucas-Dias and
    Nascimento, "Hyperspectral subspace identification", IEEE TGRS 46, 2008). Nonlinear effects
    count as signal, so there are far more such directions than materials. If noise is alike in all
    entries, weak components are missed, and the edge of the noise is better evidence. With R = VV'
    / N and D the inverse of the diagonal of R^-1, the noise is D R^-1 V.
    """
    F, N = question.V.shape
    is_noise = any(one.name == "edge" and one.trust >= _CLEAR for one in question.gathered)
    if is_noise or F > _MANY_FEATURES or N < 2 * F or F < 3:
        return
    part = question.samples
    B = dense_samples(part)
    R = B @ B.T / B.shape[1]
    inverse = pinv(R, hermitian=True)
    D = 1 / np.maximum(np.diag(inverse), TINY)
    noise = D[:, None] * inverse * D
    vectors = eigh(R - 2 * np.diag(D) + noise)[1][:, ::-1]
    signal, lost = (((vectors.T @ S) * vectors.T).sum(axis=1) for S in (R, 2 * np.diag(D)))
    ratios = signal / np.maximum(lost, TINY)
    K = max(int(np.count_nonzero(ratios > 1)), 1)
    text = f"directions that hold more signal than noise (HySime): {K}, an upper end"
    scores = ratios[: 2 * K + 10]
    meaning = "signal over twice the noise; above 1: signal"
    ks = np.arange(1, scores.size + 1)
    yield Evidence("hysime", K, (1, K), text, _UPPER_END, ks, scores, meaning)


def _cones(question: Question) -> Iterator[Evidence]:
    """Count clusters of samples that are apart, as under the geometric assumption: `count_cones`.

    If noise leaves two more singular values than there are clusters, these are groups of cones.
    """
    count = count_cones(question.V)
    if count.K == 0:
        return
    trusted = [one for one in question.gathered if one.trust >= _CLEAR]
    trusted += [one for one in question.gathered if one.name == "edge" and one.is_sure]
    most = max((one.K for one in trusted), default=0)
    trust = _FIRST if count.K >= most - 1 else _WEAK
    is_exact = count.separation is not None and count.separation.is_exact and trust == _FIRST
    n_cones = 0
    if is_exact and count.ks.tolist() == [count.K]:
        n_cones = count.K  # no other number of clusters is apart
    scores = count.separations[: 2 * count.K + 10]
    scores = np.where(np.isfinite(scores), scores, np.nan)
    yield Evidence(
        name="cones",
        K=count.K,
        interval=(count.K, count.K + 2),
        text=count.reason,
        trust=trust,
        ks=np.arange(1, scores.size + 1),
        scores=scores,
        meaning="separation in radians; above 0: apart",
        is_sure=True,
        n_cones=n_cones,
    )


# --- evidence for counts ----------------------------------------------------------------------


def _edge_of_counts(question: Question) -> Iterator[Evidence]:
    """Count singular values above the edge, with features and samples scaled to equal noise.

    The rates of counts make the noise of all entries differ, and scales of features and samples
    remove most of that. The number is where fits begin.
    """
    B, indices = compared_samples(question.V)
    found, kept = count_without_outliers(B[B.any(axis=1)], by_features=True)
    question.keep(indices, kept)
    piece = _above_edge(found, is_blurred=True)
    yield replace(piece, trust=min(piece.trust, _USABLE))


def _counting_noise(question: Question) -> Iterator[Evidence]:
    """Compare likelihoods, charging each component what it would explain of pure noise.

    The residuals of the best fit are also examined: if only noise is left, none of their singular
    values is above the edge of the noise.
    """
    begin = question.gathered[-1].K
    watch = partial(question.tell, "counting noise")
    fits = likelihoods(question.V, default_rng(0), question.ks, question.deadline, begin, watch)
    ks = np.array(sorted(fits.costs))
    costs = np.array([fits.costs[k] for k in ks])
    K = int(ks[np.argmin(costs)])
    near = ks[costs <= costs.min() + _NEAR_SHARE]
    low, high = int(near[0]), int(near[-1]) + K // 10  # weak components are hard to see among many
    phi = fits.noise.dispersion
    text = f"components beyond the first {K} explain only noise"
    if phi > 0:
        text += f" (variance x + {phi:.3g} x^2)"
    if fits.is_uneven:
        text = "the overdispersion differs between features, so likelihoods cannot choose"
    is_sharp = ks[0] < K < ks[-1] and high - low <= max(3, K // 4)
    is_sure = bool(is_sharp and phi <= _MAX_DISPERSION)
    meaning = "cost: divergence over what a component explains of noise; lower is better"
    scores = costs - costs.min()
    trust = _WEAK if fits.is_uneven else _CLEAR
    first = Evidence("counting noise", K, (low, high), text, trust, ks, scores, meaning, is_sure)
    first = replace(first, inflation=1 + phi * float(fits.part.counts.mean()))
    yield first
    tops = np.array([largest_residual(fits, k) for k in ks.tolist()])
    enough = ks[tops <= _MAX_RESIDUAL]
    if enough.size == 0:
        return
    k = int(enough[0])
    text = f"the residuals of {k} components have no singular value above the edge of the noise"
    is_same = low <= k <= high  # if costs are nearly equal, either number may be right
    yield replace(
        first,
        name="residuals",
        K=K if is_same else k,
        interval=(k, k),
        text=text,
        trust=_WEAK,
        scores=tops,
        meaning="largest singular value of the residuals over the edge; below 1: noise",
    )


# --- evidence for data with missing entries ---------------------------------------------------


def _hidden(question: Question) -> Iterator[Evidence]:
    """Compare errors on known entries that are hidden from the fit (Wold, 1978).

    The number of components grows until four in a row predict worse than the best number.
    """
    V = question.V
    rng = default_rng(0)
    part = some_samples(V, rng, _HIDDEN_ENTRIES // V.n_features, _HIDDEN_ENTRIES)
    most = min(part.shape)
    problem = question.problem.scaled(part.n_samples / V.n_samples)
    problem = replace(problem, penalties=replace(problem.penalties, min_volume=0.0))
    least = max(problem.n_fixed, 1)
    candidates = range(1, most + 1) if question.ks is None else question.ks.tolist()
    candidates = [k for k in candidates if least <= k <= most] or [least]
    splits = [_without(part, fold, _SPLITS) for fold in range(_N_SPLITS)]
    has_sigma = not V.is_complete and V.observed.of_sigma
    has_sigma = has_sigma and "sigma" in problem.loss.constraints
    errors: dict[int, Array] = {}
    Q_ratios: dict[int, float] = {}
    best = candidates[0]
    for k in candidates:
        question.tell("hidden", k)
        predictions = [_prediction(part, data, k, problem, rng) for data in splits]
        errors[k] = np.array([error for error, _ in predictions])
        if has_sigma:
            Q_ratios[k] = float(np.mean([ratio for _, ratio in predictions]))
        best = min(errors, key=lambda one: errors[one].mean())
        fits_sigma = Q_ratios.get(k, 0.0) <= _MAX_Q_RATIO or k >= best + _Q_PATIENCE
        if (k >= best + _PATIENCE and fits_sigma) or question.is_late:
            break
    ks = np.array(list(errors))
    means = np.array([one.mean() for one in errors.values()])
    spread = errors[best].std(ddof=1) / np.sqrt(_N_SPLITS)
    K = int(ks[np.argmax(means <= means.min() + spread)])
    text = f"{counted(K, 'component')} predict hidden entries best (error {means.min():.1%})"
    meaning = "error on hidden entries; lower is better"
    ratios = np.array([*Q_ratios.values()])
    yield Evidence("hidden", K, (K, best), text, _CLEAR, ks, means, meaning, Q_ratios=ratios)


def _prediction(
    V: DataMatrix, data: DataMatrix, K: int, problem: Problem, rng: Generator
) -> Interval:
    """Fit `data`; return the relative error at the entries known only in V, and Q over expected Q.

    The expected Q is the number of entries that the fit reads, minus its parameters.
    """
    solver = problem.loss.solver("auto")
    try:
        start = _start(data, K, "cr1", problem, solver, rng)
    except ComponentsError:  # there are fewer distinct directions
        start = _start(data, K, "random", problem, solver, rng)
    W = start.W
    squared = 0.0  # of the relative error of a fit without further components
    if K > problem.n_fixed:
        objective = problem.objective(data)
        run = alternate(data, W, start.H, solver, stopping=_SHORT, objective=objective)
        W = run.W
        squared = float(run.history.relative_error[-1]) ** 2
    if not problem.is_free:
        W = problem.restored(W)
    error = math.sqrt(1.0 - _predicted(V, data, W, problem))
    known = data.observed
    expected = float(known.counts.sum()) - K * (sum(V.shape) - sum(known.n_empty))
    return error, squared * known.total / expected if expected > 0 else 0.0


def _start(
    data: DataMatrix, K: int, init: str, problem: Problem, solver: Solver, rng: Generator
) -> Start:
    if problem.is_free:
        return problem.loss.initialize(fill_missing(data), K, init, solver, rng)
    return problem.bind(data, solver).begin(data, K, init, solver, rng)


def _predicted(
    V: DataMatrix,
    data: DataMatrix,
    W: Array,
    problem: Problem,
    sample_weight: Array | float = 1.0,
) -> float:
    """Return which share of the squares of hidden entries W and the other entries predict.

    A sample that is predicted worse than by zeros counts as zeros: where the only large feature of
    a component is hidden, its coefficient is arbitrary.
    """
    H = problem.coefficients(data, W)[0].T
    every = []
    for one in (V, data):
        known = (np.ones((V.n_samples, V.n_features), bool),)
        if not one.is_complete:
            known = one.observed.aligned
        every.append(one.sweep(_squares_left, H, *known, W=W)[:2])
    left, hidden = (
        sample_weight * (of_all - of_known) for of_all, of_known in zip(*every, strict=True)
    )
    return min(1.0 - float(np.minimum(left, hidden).sum()) / (hidden.sum() or 1.0), 1.0)


def _squares_left(block: Block, H: Array, weights: EntryWeights = None, *, W: Array) -> Any:
    """Return each sample's weighted sums of squares: of the residuals, and of the known entries."""
    return *(
        observed_residual(block, weights, exact(W), exact(rows))[1] for rows in (H, 0 * H)
    ), None


def _without(V: DataMatrix, fold: int, n_folds: int) -> DataMatrix:
    """Return V without one of several parts of its known entries."""
    F, N = V.shape
    folds = (n_folds * uniform_rows(range(N), F, (5, 1))).astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # samples may lose all their entries
        return observed_only(as_repeated(V), mask=folds != fold)


def hidden_share(
    V: DataMatrix,
    W: Array,
    problem: Problem,
    sample_weight: Array | float,
) -> float:
    """Return the predicted share of the squared norm of known entries, at most 1.

    A third of the entries is hidden at a time; coefficients are fitted to the other entries.
    """
    splits = (_without(V, fold, _N_FOLDS) for fold in range(_N_FOLDS))
    shares = [_predicted(V, data, W, problem, sample_weight) for data in splits]
    return float(np.mean(shares))


EVIDENCE: dict[str, Callable[[Question], Iterator[Evidence]]] = {
    "hidden": _hidden,
    "rank": _rank,
    "edge": _edge,
    "ratio": _ratio,
    "shuffled": _shuffled,
    "cones": _cones,
    "hysime": _hysime,
    "edge of counts": _edge_of_counts,
    "counting noise": _counting_noise,
}


# --- the decision -----------------------------------------------------------------------------

_LEAST_SQUARES = Problem()
# The evidence for losses that assume no counting noise, and for counts, in this order.
SPECTRAL = ("rank", "edge", "ratio", "cones", "shuffled", "hysime")
OF_COUNTS = ("edge of counts", "counting noise")


def choose_k(
    V: DataMatrix,
    problem: Problem = _LEAST_SQUARES,
    ks: Array | None = None,
    *,
    spectrum: KnownSpectrum = None,
    max_time: float | None = None,
    callback: Watch | None = None,
) -> Selection:
    """Choose the number of components like `select_k`, without checking arguments.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> chosen = choose_k(from_columns(model.V))
    >>> chosen.K, chosen.grade, chosen.decided_by
    (4, 'supported', 'cones')
    """
    loss = problem.loss
    has_holes = not V.is_complete and (
        V.observed.missing > _MANY_HOLES or not V.observed.is_alike  # spectra do not know weights
    )
    whole = V if V.is_complete or has_holes else fill_missing(V)
    deadline = np.inf if max_time is None else perf_counter() + max_time
    spectrum = None if has_holes else Spectrum.of(whole, spectrum if whole is V else None)
    question = Question(whole, problem, ks, spectrum, deadline, callback)
    suits = loss.noise is None or (V.is_complete and holds_counts(V))
    names: Texts = SPECTRAL if loss.noise is None or not suits else OF_COUNTS
    names = ("hidden",) if has_holes else names
    penalties = problem.penalties
    has_size = penalties.sum_to_one or penalties.fixes_columns  # unit columns need complete data
    if not (problem.is_free or has_size or penalties.min_volume or has_holes):
        names = (*names, "hidden")
    gathered = question.gathered
    for place, name in enumerate(names):
        is_asked = name not in _FOR_GUESSES or not gathered
        if not is_asked and _decision(gathered, min(V.shape), is_complete=True).grade != GUESS:
            break
        if callback is not None:
            callback(name, place)
        began = perf_counter()
        pieces = list(EVIDENCE[name](question))
        seconds = (perf_counter() - began) / max(len(pieces), 1)
        gathered += [replace(one, seconds=seconds) for one in pieces]
        if (question.is_late and gathered) or any(one.theorem for one in pieces):
            break
    chosen = _decision(gathered, min(V.shape), is_complete=not question.is_late)
    least = problem.n_fixed
    if ks is None and chosen.K < least:
        ks = np.arange(least, min(V.shape) + 1)
    if chosen.decided_by == "hidden":
        chosen = _with_Q(chosen, gathered[0])
    notes = [*chosen.notes]
    if question.is_scaled and chosen.grade != PROVED:
        notes.append("units differ: features were scaled to equal norms, scale them before a fit")
    if question.outliers is not None:
        samples = [V.names.sample(n) for n in question.outliers.tolist()]
        names_of_samples = listed(samples, _MAX_NAMED)
        notes.append(f"not counted, as no other sample is like them: {names_of_samples}")
    return _among(replace(chosen, notes=tuple(notes)), ks)


def _with_Q(chosen: Selection, hidden: Evidence) -> Selection:
    """Say what Q says about the number; its interval reaches the first that Q allows."""
    ratios = dict(zip(hidden.ks.tolist(), hidden.Q_ratios.tolist(), strict=False))
    Q = ratios.get(chosen.K, 0.0)
    if Q <= _MAX_Q_RATIO:
        return chosen
    note = f"Q is {Q:.3g} times the expected Q, sigma or K is too small"
    enough = min((k for k, ratio in ratios.items() if ratio <= _MAX_Q_RATIO), default=max(ratios))
    note += f"; with {enough} it is {ratios[enough]:.3g} times"
    low, high = chosen.interval
    return replace(chosen, interval=(low, max(high, enough)), notes=(*chosen.notes, note))


def _decision(gathered: list[Evidence], most: int, *, is_complete: bool) -> Selection:
    """Let the most trusted evidence decide, and grade it by how well other evidence agrees."""
    proofs = [one for one in gathered if one.theorem]
    if proofs:
        best = proofs[0]
        reason = f"{best.text}, and {best.theorem}"
        return Selection(best.K, (best.K, best.K), PROVED, best.name, reason, tuple(gathered))
    best = max(gathered, key=lambda one: one.trust)
    if best.trust == _USABLE:
        usable = [one for one in gathered if one.trust == _USABLE]
        best = next((one for one in usable if _agreeing(one, gathered)), best)
    K = max(best.K, 1)
    agreeing = _agreeing(best, gathered)
    notes = [f"{one.n_cones} cones, proved" for one in gathered if one.n_cones]
    low, high = best.interval
    grade = SUPPORTED
    if not (best.is_sure and best.trust >= _CLEAR and agreeing and is_complete):
        grade = GUESS
        has_interval = agreeing if best.trust == _USABLE else best.name == "shuffled"
        if best.trust < _CERTAIN and not has_interval:
            below = K // 3 if best.below is None else min(best.below, K - 1)
            low = K - below
            high = 2 * K - below
        agreeing = []
        if not is_complete:
            notes.append("the time ran out")
    reason = "; ".join(one.text for one in [best, *agreeing])
    low = max(low, 1)
    if grade == GUESS and best.trust < _CERTAIN:
        high = min(high, low + K)
    interval = (low, min(max(high, K), most))
    return Selection(K, interval, grade, best.name, reason, tuple(gathered), tuple(notes))


def _agreeing(piece: Evidence, gathered: list[Evidence]) -> list[Evidence]:
    """Return the other evidence that gives the same number."""
    others = [one for one in gathered if one is not piece and one.trust >= 0]
    return [one for one in others if one.K == max(piece.K, 1)]


def _among(chosen: Selection, ks: Array | None) -> Selection:
    """Replace the chosen number by the nearest candidate."""
    if ks is None or chosen.K in ks:
        return chosen
    K = int(ks[np.argmin(np.abs(ks - chosen.K))])
    low, high = chosen.interval
    note = f"{chosen.K} is no candidate, {K} is the nearest"
    if not low <= K <= high:
        note += ", outside of what the data support"
    return replace(chosen, K=K, grade=GUESS, notes=(*chosen.notes, note))


def select_k(
    V: object,
    ks: Iterable[int] | None = None,
    *,
    loss: str = "frobenius",
    problem: Problem | None = None,
    budget: float | None = None,
    callback: Watch | None = None,
) -> Selection:
    """Estimate the number of components, and say how sure the estimate is.

    The result has a number, an interval, a grade ("proved", "supported" or "guess") and the
    evidence; ``print(selection)`` shows all of it, and ``selection.plot()`` draws it.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    ks : integers, optional
        Candidates, each from 1 to min(F, N); by default all numbers are allowed.
    loss : str
        The loss of the fit, which decides what evidence is gathered.
    problem : Problem, optional
        What the fit minimises, if that is more than a loss. The number includes known components.
        If other evidence only allows a guess, hidden entries are predicted by such fits; a penalty
        `min_volume`, penalties that give components unit length and sums of one do not count here.
    budget : float, optional
        Seconds after which no more evidence is gathered; by default there is no limit.
    callback : callable, optional
        Called before each piece of evidence is computed, with its name and its number (from 0), and
        again for each number of components that is fitted, which is then part of the name.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, noise=0.02, rng=np.random.default_rng(0))
    >>> selection = select_k(from_columns(model.V))
    >>> selection.K, selection.interval, selection.grade
    (4, (3, 6), 'supported')
    """
    V = as_data(V, nonzero=True, holes=True)
    require_nonnegative(V if V.is_complete else fill_missing(V), "the choice of K")
    optional(function, "callback", callback, takes=2)
    budget = optional(number, "budget", budget, at_least=0)
    candidates = None if ks is None else numbers_of_components(ks)
    if candidates is not None and candidates[-1] > min(V.shape):
        raise ComponentsError(
            f"{candidates[-1]} components are too many for {V.n_samples} samples and "
            f"{V.n_features} features: try at most {min(V.shape)}"
        )
    problem = problem_of(problem, loss, "select_k").bind(V)
    if candidates is not None and candidates[-1] < problem.n_fixed:
        raise ComponentsError(
            f"{problem.n_fixed} components are fixed, more than the {candidates[-1]} that are "
            "tried at most: the number counts them too"
        )
    return choose_k(V, problem, candidates, max_time=budget, callback=callback)

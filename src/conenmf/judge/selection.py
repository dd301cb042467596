"""How many components: one decision, and a table of the estimators that vote on it.

Where samples lie in cones, the cones are counted. Elsewhere the paper's ratio of singular values
decides, if it stands out; where it does not, parallel analysis does. `factorize` with
``K="auto"``, `select_k` and the command ``conenmf rank`` share this decision. The estimators
themselves are in `estimators`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments import choice, components, function, generator, instance, number, optional, several
from ..cones.counting import ConeCount, count_cones
from ..cones.rank import RankEstimate, default_range, estimate_rank
from ..data.blocks import Array
from ..data.holes import filled
from ..data.matrix import DataMatrix
from ..data.resampled import holds_counts
from ..data.sampling import draw_samples
from ..data.validate import require_data_matrix, require_nonnegative
from ..data.views import take_samples
from ..errors import ComponentsError, Message, Option, OptionError
from ..linalg.spectrum import Spectrum
from ..pictures import card, lines
from ..solve.inits import MAX_CONE_MIXING, mixing
from ..text import function_name
from . import plots
from .estimators import (
    METHODS,
    OF_COUNTS,
    ParallelAnalysis,
    by_cones,
    by_edge,
    by_parallel,
    by_ratio,
    meaning_of,
    parallel_analysis,
)
from .votes import Method, Vote

__all__ = ["Decision", "Selection", "choose_k", "select_k"]

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
    require_data_matrix(V, nonzero=True, holes=True)
    V = V if V.observed is None else filled(V)
    max_time = optional(number, "max_time", max_time, at_least=0, or_infinite=True, what="seconds")
    decision = _decide(_Evidence(V, spectrum, max_time), _STEPS)[0]
    if decision is None:
        raise AssertionError("parallel analysis always has an answer")
    return decision


class _Evidence:
    """What estimators find in V over their default ranges; each is computed when asked for."""

    def __init__(self, V: DataMatrix, spectrum: Spectrum | None, max_time: float | None) -> None:
        self.V = V
        self.spectrum = Spectrum.of(V, spectrum)
        self.deadline = None if max_time is None else time.perf_counter() + max_time

    @property
    def is_late(self) -> bool:
        return self.deadline is not None and time.perf_counter() > self.deadline

    @cached_property
    def cones(self) -> ConeCount:
        return count_cones(self.V, deadline=self.deadline)

    @cached_property
    def ratio(self) -> RankEstimate:
        return estimate_rank(self.V, spectrum=self.spectrum)

    @cached_property
    def parallel(self) -> ParallelAnalysis:
        return parallel_analysis(self.V, default_range(self.V)[1], widen=True)


def _decide(evidence: _Evidence, names: Iterable[str]) -> tuple[Decision | None, list[str]]:
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


_Step: TypeAlias = Callable[[_Evidence], tuple[Decision | None, str]]
"""The decision of an estimator, and an objection if it is in doubt."""


def _count(evidence: _Evidence) -> tuple[Decision | None, str]:
    count = evidence.cones
    if count.K == 0:
        return None, count.reason
    return Decision(count.K, "cones", count.reason), ""


def _largest_ratio(evidence: _Evidence) -> tuple[Decision | None, str]:
    low, high = default_range(evidence.V)
    ratio = evidence.ratio
    reason = f"the largest ratio stands out by a factor of {ratio.margin:.3g}"
    decision = Decision(ratio.K, "ratio", reason)
    if high <= 2 or ratio.K < low:
        return decision._replace(reason=f"the rank is {ratio.rank}"), ""
    return decision, _why_not_ratio(evidence.V, ratio, evidence.spectrum)


def _above_shuffled(evidence: _Evidence) -> tuple[Decision | None, str]:
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
        drawn = (
            lines(
                [(self.ks, vote.scores)],
                f"{name}: {vote.K} (dashed), of {self.ks[0]} to {self.ks[-1]}; {meaning_of(name)}",
                uprights=[vote.K],
            )
            for name, vote in self.votes.items()
        )
        return card("Selection", sentences, *drawn)

    def plot(self, axes: Any = None) -> Array:
        """Draw the scores of each estimator and its choice, errors where they are known."""
        votes = {name: (vote.scores, vote.K) for name, vote in self.votes.items()}
        drawn = plots.scores(self.ks, votes, axes, meanings={n: meaning_of(n) for n in votes})
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
    evidence = _Evidence(V, spectrum, None)
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
        vote = (method or _on(evidence, name))(V, candidates, rng)
        votes[name] = instance(name, vote, Vote)
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
    candidates = np.unique([components(k) for k in several("ks", ks, "a list of integers")])
    if candidates.size == 0:
        raise ComponentsError(Message(Option("ks", ks), ", expected integers of at least 1"))
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


def _on(evidence: _Evidence, name: str) -> Method:
    """An estimator of our own that takes over what is known."""
    if name == "cones":
        return partial(by_cones, count=evidence.cones)
    if name == "ratio":
        return partial(by_ratio, spectrum=evidence.spectrum)
    if name == "edge":
        return partial(by_edge, spectrum=evidence.spectrum)
    if name == "parallel":
        return partial(by_parallel, analysis=evidence.__dict__.get("parallel"))
    return METHODS[name]


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

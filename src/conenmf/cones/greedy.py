"""Choosing samples one at a time, scoring again only those that may be next.

Algorithm 1 of the paper and the successive projection algorithms repeatedly choose the sample with
the largest score: the one that the samples chosen so far represent worst. A score can only fall as
more samples are chosen, so an earlier score is an upper bound: to find the largest one, bring the
samples with the largest bounds up to date until the largest bound is a score. The choice is exactly
that of the plain method, which scores every sample every time.

Where the samples are in several partitions, each finds its own candidates in this way and sends
them with their columns, so that a choice takes one small round; or none, if the best candidate of
an earlier round still has a larger score than any other sample can have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array, Block, dense
from ..data.matrix import Aligned, DataMatrix
from ..data.memory import Reader

_FIRST_BATCH_SAMPLES = 16  # brought up to date at first; twice as many each time
_COUNT_OF_EXCLUDED = np.iinfo(np.intp).max  # never stale, so never scored again

Score: TypeAlias = Callable[..., Array]


class Candidates(NamedTuple):
    """Samples that may have the largest score.

    Attributes
    ----------
    scores : array (m,)
    indices : array (m,)
        Of the samples, increasing.
    columns : array (F, m)
        The samples themselves, in float64.
    limit : float
        No other sample has a larger score.
    """

    scores: Array
    indices: Array
    columns: Array
    limit: float

    def reduced(self, n_candidates: int, tie: float, relative: bool) -> Candidates:
        """The `n_candidates` largest, and those that may win a tie against each other."""
        tied = self.scores >= _tied_from(self.scores, tie, relative)
        before = np.maximum.accumulate(np.append(-np.inf, self.scores[:-1]))
        subset = tied & (self.scores > before)  # no lower index has a score as large
        subset[np.argmax(tied)] = True  # even if no sample can be chosen at all
        if n_candidates > 1:
            largest = np.argsort(-self.scores, kind="stable")[:n_candidates]
            subset[largest[np.isfinite(self.scores[largest])]] = True
        return self._replace(
            scores=self.scores[subset],
            indices=self.indices[subset],
            columns=self.columns[:, subset],
            limit=max(self.limit, float(self.scores[~subset].max(initial=-np.inf))),
        )


class LazyScores:
    """Upper bounds on the scores of all samples, made exact where a choice depends on it.

    Parameters
    ----------
    V : DataMatrix (F, N)
    scores : aligned (N,)
        Exact for the first `n_choices`; -inf for samples that must not be chosen.
    score : callable
        ``score(block, squared, *, n_choices, **shared) -> scores`` of a few samples, given their
        squared norms, and that each has already been scored against the first `n_choices`.
    n_choices : int
        How many choices the scores take into account.
    tie : float
        Scores closer than this count as equal, and the lowest index wins.
    relative : bool
        The tie is a share of the largest score.
    """

    def __init__(
        self,
        V: DataMatrix,
        scores: Aligned,
        score: Score,
        *,
        n_choices: int,
        tie: float,
        relative: bool = False,
    ) -> None:
        self.V = V
        self.state = (scores, *V.map(_counts, scores, n_choices=n_choices)[:1])
        self.score = score
        self.ties: dict[str, Any] = {"tie": tie, "relative": relative}
        self.candidates: Candidates | None = None
        self.choices_of_candidates = 0

    def worst(
        self, k: int, excluded: Array | None = None, **shared: Any
    ) -> tuple[int, float, Array]:
        """Return the sample with the largest score after k choices, its score and its column.

        Samples that are `excluded` are never chosen again. What is `shared` goes to `score`.
        """
        excluded = np.empty(0, dtype=np.intp) if excluded is None else excluded
        candidates = self._earlier_candidates(k, excluded, shared)
        if candidates is None:
            *state, candidates = self.V.visit(
                _candidates_of_partition,
                *self.state,
                self.V.norms_squared,
                reduce=partial(_join, n_candidates=self.V.candidates, **self.ties),
                k=k,
                score=self.score,
                n_candidates=self.V.candidates,
                excluded=excluded,
                shared=shared,
                **self.ties,
            )
            self.state = tuple(state)
        self.candidates, self.choices_of_candidates = candidates, k
        scores = candidates.scores
        first = int(np.argmax(scores >= _tied_from(scores, **self.ties)))
        return int(candidates.indices[first]), float(scores.max()), candidates.columns[:, first]

    def _earlier_candidates(
        self, k: int, excluded: Array, shared: dict[str, Any]
    ) -> Candidates | None:
        """The last candidates with scores after k choices, if the largest is among them."""
        earlier = self.candidates
        if earlier is None or self.V.candidates == 1:
            return None
        squared = np.einsum("fm,fm->m", earlier.columns, earlier.columns)
        known = self.choices_of_candidates
        fresh = self.score(earlier.columns, squared, n_choices=known, **shared)
        scores = np.minimum(earlier.scores, fresh)
        scores[np.isin(earlier.indices, excluded)] = -np.inf
        if earlier.limit >= _tied_from(scores, **self.ties):
            return None
        return earlier._replace(scores=scores)


def _counts(index: range, scores: Array, *, n_choices: int) -> tuple[Array, None]:
    """How many choices each score takes into account."""
    return np.where(np.isfinite(scores), n_choices, _COUNT_OF_EXCLUDED), None


def _candidates_of_partition(
    reader: Reader,
    scores: Array,
    counts: Array,
    squared: Array,
    *,
    k: int,
    score: Score,
    tie: float,
    relative: bool,
    n_candidates: int,
    excluded: Array,
    shared: dict[str, Any],
) -> tuple[Array, Array, Candidates]:
    """Bounds and how many choices they take into account, brought up to date; the candidates."""
    scores, counts = scores.copy(), counts.copy()
    here = excluded[(excluded >= reader.index.start) & (excluded < reader.index.stop)]
    scores[here - reader.index.start] = -np.inf
    counts[here - reader.index.start] = _COUNT_OF_EXCLUDED

    def update(block: Block, part: Array) -> Array:
        return score(block, squared[part], n_choices=int(counts[part].min()), **shared)

    n = scores.size
    size = _FIRST_BATCH_SAMPLES
    while True:
        size = min(size, n)
        order = np.argpartition(scores, n - size)[n - size :]  # the largest bounds
        limit = scores[order].min()  # no other sample has a larger score
        stale = order[counts[order] < k]
        if stale.size:
            stale = stale[np.argsort(counts[stale], kind="stable")]  # alike ones together
            fresh = reader.each(update, stale)
            scores[stale] = np.minimum(scores[stale], fresh)
            counts[stale] = k
        if size == n or limit < _tied_from(scores[order], tie, relative):
            break
        size *= 2
    fresh = np.sort(order[counts[order] == k])
    fresh = fresh if fresh.size else order[:1]  # no sample of this partition can be chosen
    candidates = Candidates(
        scores[fresh],
        fresh + reader.index.start,
        np.empty((0, fresh.size)),
        float(limit) if size < n else -np.inf,
    ).reduced(n_candidates, tie, relative)
    columns = dense(reader.columns(candidates.indices - reader.index.start))
    return scores, counts, candidates._replace(columns=columns)


def _join(a: Candidates, b: Candidates, **options: Any) -> Candidates:
    return Candidates(
        scores=np.concatenate([a.scores, b.scores]),
        indices=np.concatenate([a.indices, b.indices]),
        columns=np.hstack([a.columns, b.columns]),
        limit=max(a.limit, b.limit),
    ).reduced(**options)


def _tied_from(scores: Array, tie: float, relative: bool) -> float:
    """The smallest score that ties with the largest."""
    largest = float(scores.max())
    return largest - tie * (abs(largest) if relative else 1.0)

"""Choosing samples one at a time, looking again only at those that may be next.

Algorithm 1 of the paper and the successive projection algorithms all choose, again and again, the
sample that is worst served by the samples chosen so far. How badly a sample is served can only
fall as more are chosen, so what was computed earlier is an upper bound: to find the worst sample,
bring the few with the largest bounds up to date until the largest one is. The choice is exactly
that of the plain method, which looks at every sample every time.

Where the samples are kept in several pieces, each piece finds its own worst samples in this way
and offers them with their columns, so that a choice takes one small round; or none, if the worst
sample offered before is still worse served than any that was not offered can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array, Block
from ..data.matrix import Aligned, DataMatrix, Reader

__all__ = ["LazyScores", "Offers", "Score"]

_FIRST_BATCH = 16
_NEVER = np.iinfo(np.intp).max  # "seen" of samples that must not be chosen

Score: TypeAlias = Callable[..., Array]


class Offers(NamedTuple):
    """Samples that may be the worst.

    Attributes
    ----------
    scores : array (m,)
    samples : array (m,)
        Their indices, increasing.
    columns : array (F, m)
        The samples themselves, in float64.
    rest : float
        No other sample has a larger score.
    wanted : int
        How many samples to offer, besides those that may win a tie.
    tie : float
        Scores closer than this count as equal, and the lowest index wins.
    relative : bool
        The tie is a share of the largest score.
    """

    scores: Array
    samples: Array
    columns: Array
    rest: float
    wanted: int
    tie: float
    relative: bool

    @property
    def enough(self) -> float:
        """The score from which on a sample ties with the largest."""
        return _enough(float(self.scores.max()), self.tie, self.relative)

    def fewer(self) -> Offers:
        """The `wanted` largest, and those that may win a tie against each other."""
        tied = self.scores >= self.enough
        before = np.maximum.accumulate(np.append(-np.inf, self.scores[:-1]))
        kept = tied & (self.scores > before)  # nothing with a lower index is as bad
        kept[np.argmax(tied)] = True  # even if no sample can be chosen at all
        if self.wanted > 1:
            largest = np.argsort(-self.scores, kind="stable")[: self.wanted]
            kept[largest[np.isfinite(self.scores[largest])]] = True
        return self._replace(
            scores=self.scores[kept],
            samples=self.samples[kept],
            columns=self.columns[:, kept],
            rest=max(self.rest, float(self.scores[~kept].max(initial=-np.inf))),
        )


class LazyScores:
    """How badly each sample is served by the choices so far, kept as upper bounds.

    Parameters
    ----------
    V : DataMatrix (F, N)
    scores : aligned (N,)
        Exact for the first `chosen` choices; -inf for samples that must not be chosen.
    score : callable
        ``score(block, squared, *, seen, **shared) -> scores`` of a few samples, given their
        squared lengths, and that each has already been scored against the first `seen` choices.
    chosen : int
        How many choices the scores take into account.
    tie, relative
        As in `Offers`.
    """

    def __init__(
        self,
        V: DataMatrix,
        scores: Aligned,
        score: Score,
        *,
        chosen: int,
        tie: float,
        relative: bool = False,
    ) -> None:
        self.V = V
        self.state = (scores, *V.map(_seen, scores, chosen=chosen)[:1])
        self.options: dict[str, Any] = {
            "score": score,
            "tie": tie,
            "relative": relative,
            "wanted": V.candidates,
        }
        self.offers: Offers | None = None
        self.offers_seen = 0

    def worst(
        self, k: int, excluded: Array | None = None, **shared: Any
    ) -> tuple[int, float, Array]:
        """Return the sample with the largest score after k choices, its score and its column.

        Samples that are `excluded` are never chosen again. What is `shared` goes to `score`.
        """
        none = np.empty(0, dtype=np.intp)
        excluded = none if excluded is None else excluded
        offers = self._offered_before(k, excluded, shared)
        if offers is None:
            *state, offers = self.V.visit(
                _worst_of_piece,
                *self.state,
                self.V.norms_squared,
                reduce=_join,
                k=k,
                excluded=excluded,
                shared=shared,
                **self.options,
            )
            self.state = tuple(state)
        self.offers, self.offers_seen = offers, k
        first = int(np.argmax(offers.scores >= offers.enough))
        return int(offers.samples[first]), float(offers.scores.max()), offers.columns[:, first]

    def _offered_before(self, k: int, excluded: Array, shared: dict[str, Any]) -> Offers | None:
        """Earlier offers with scores after k choices, if the worst sample is among them."""
        offers = self.offers
        if offers is None or offers.wanted == 1:
            return None
        squared = np.einsum("fm,fm->m", offers.columns, offers.columns)
        fresh = self.options["score"](offers.columns, squared, seen=self.offers_seen, **shared)
        scores = np.minimum(offers.scores, fresh)
        scores[np.isin(offers.samples, excluded)] = -np.inf
        offers = offers._replace(scores=scores)
        return offers if offers.rest < offers.enough else None


def _seen(samples: range, scores: Array, *, chosen: int) -> tuple[Array, None]:
    return np.where(np.isfinite(scores), chosen, _NEVER), None


def _worst_of_piece(
    reader: Reader,
    scores: Array,
    seen: Array,
    squared: Array,
    *,
    k: int,
    score: Score,
    tie: float,
    relative: bool,
    wanted: int,
    excluded: Array,
    shared: dict[str, Any],
) -> tuple[Array, Array, Offers]:
    scores, seen = scores.copy(), seen.copy()
    here = excluded[(excluded >= reader.samples.start) & (excluded < reader.samples.stop)]
    scores[here - reader.samples.start] = -np.inf
    seen[here - reader.samples.start] = _NEVER

    def look(block: Block, part: Array) -> Array:
        return score(block, squared[part], seen=int(seen[part].min()), **shared)

    n = scores.size
    size = _FIRST_BATCH
    while True:
        size = min(size, n)
        order = np.argpartition(scores, n - size)[n - size :]  # the largest bounds
        others = scores[order].min()  # no sample left out has a larger score
        stale = order[seen[order] < k]
        if stale.size:
            stale = stale[np.argsort(seen[stale], kind="stable")]  # alike ones together
            fresh = reader.each(look, stale)
            scores[stale] = np.minimum(scores[stale], fresh)
            seen[stale] = k
        enough = _enough(float(scores[order].max()), tie, relative)
        if size == n or others < enough:
            break
        size *= 2
    fresh = np.sort(order[seen[order] == k])
    fresh = fresh if fresh.size else order[:1]  # no sample of this piece can be chosen
    offers = Offers(
        scores[fresh],
        fresh + reader.samples.start,
        np.empty((0, fresh.size)),
        float(others) if size < n else -np.inf,
        wanted,
        tie,
        relative,
    ).fewer()
    columns = reader.columns(offers.samples - reader.samples.start).astype(np.float64, copy=False)
    dense = columns @ np.eye(offers.samples.size)
    return scores, seen, offers._replace(columns=dense)


def _join(a: Offers, b: Offers) -> Offers:
    return a._replace(
        scores=np.concatenate([a.scores, b.scores]),
        samples=np.concatenate([a.samples, b.samples]),
        columns=np.hstack([a.columns, b.columns]),
        rest=max(a.rest, b.rest),
    ).fewer()


def _enough(largest: float, tie: float, relative: bool) -> float:
    return largest - tie * (abs(largest) if relative else 1.0)

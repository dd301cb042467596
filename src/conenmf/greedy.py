"""Choosing samples one at a time, looking again only at those that may be next.

Algorithm 1 of the paper and the successive projection algorithms all choose, again and again, the
sample that is worst served by the samples chosen so far. How badly a sample is served can only
fall as more are chosen, so what was computed earlier is an upper bound: to find the worst sample,
bring the few with the largest bounds up to date until the largest one is. The choice is exactly
that of the plain method, which looks at every sample every time.

Where the samples are kept in several pieces, each piece finds its own worst sample in this way and
offers it with its column, so that a choice takes one small round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .data import Aligned, Array, DataMatrix, Reader

__all__ = ["LazyScores", "Offers", "Score"]

_FIRST_BATCH = 64
_CHUNK = 512  # samples that are read at a time
_NEVER = np.iinfo(np.intp).max  # "seen" of samples that must not be chosen

Score: TypeAlias = Callable[..., Array]


class Offers(NamedTuple):
    """Samples that may be the worst: none has a lower index and at least the same score.

    Attributes
    ----------
    scores : array (m,)
    samples : array (m,)
        Their indices, increasing.
    columns : array (F, m)
        The samples themselves, in float64.
    tie : float
        Scores closer than this count as equal, and the lowest index wins.
    relative : bool
        The tie is a share of the largest score.
    """

    scores: Array
    samples: Array
    columns: Array
    tie: float
    relative: bool

    def best(self) -> Offers:
        """Only those offers that may win against each other."""
        enough = _enough(float(self.scores.max()), self.tie, self.relative)
        before = np.maximum.accumulate(np.append(-np.inf, self.scores[:-1]))
        kept = (self.scores >= enough) & (self.scores > before)
        kept[np.argmax(self.scores >= enough)] = True  # even if no sample can be chosen at all
        return self._replace(
            scores=self.scores[kept], samples=self.samples[kept], columns=self.columns[:, kept]
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
        self.options = {"score": score, "tie": tie, "relative": relative}

    def worst(
        self, k: int, excluded: Array | None = None, **shared: Any
    ) -> tuple[int, float, Array]:
        """Return the sample with the largest score after k choices, its score and its column.

        Samples that are `excluded` are never chosen again. What is `shared` goes to `score`.
        """
        none = np.empty(0, dtype=np.intp)
        *state, offers = self.V.visit(
            _worst_of_piece,
            *self.state,
            self.V.norms_squared,
            reduce=_best_of_two,
            k=k,
            excluded=none if excluded is None else excluded,
            shared=shared,
            **self.options,
        )
        self.state = tuple(state)
        return int(offers.samples[0]), float(offers.scores.max()), offers.columns[:, 0]


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
    excluded: Array,
    shared: dict[str, Any],
) -> tuple[Array, Array, Offers]:
    scores, seen = scores.copy(), seen.copy()
    here = excluded[(excluded >= reader.samples.start) & (excluded < reader.samples.stop)]
    scores[here - reader.samples.start] = -np.inf
    seen[here - reader.samples.start] = _NEVER
    n = scores.size
    size = _FIRST_BATCH
    while True:
        size = min(size, n)
        order = np.argpartition(scores, n - size)[n - size :]  # the largest bounds
        others = scores[order].min()  # no sample left out has a larger score
        stale = order[seen[order] < k]
        for part in np.array_split(stale, -(-stale.size // _CHUNK) or 1):
            if part.size:
                block = reader.columns(part)
                fresh = score(block, squared[part], seen=int(seen[part].min()), **shared)
                scores[part] = np.minimum(scores[part], fresh)
                seen[part] = k
        enough = _enough(float(scores[order].max()), tie, relative)
        if size == n or others < enough:
            break
        size *= 2
    offered = np.sort(order[scores[order] >= enough])
    offers = Offers(
        scores[offered],
        offered + reader.samples.start,
        np.empty((0, offered.size)),
        tie,
        relative,
    ).best()
    columns = reader.columns(offers.samples - reader.samples.start).astype(np.float64, copy=False)
    dense = columns @ np.eye(offers.samples.size)
    return scores, seen, offers._replace(columns=dense)


def _best_of_two(a: Offers, b: Offers) -> Offers:
    return a._replace(
        scores=np.concatenate([a.scores, b.scores]),
        samples=np.concatenate([a.samples, b.samples]),
        columns=np.hstack([a.columns, b.columns]),
    ).best()


def _enough(largest: float, tie: float, relative: bool) -> float:
    return largest - tie * (abs(largest) if relative else 1.0)

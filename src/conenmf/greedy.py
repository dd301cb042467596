"""Choosing samples one at a time, looking again only at those that may be next.

Algorithm 1 of the paper and the successive projection algorithms all choose, again and again, the
sample that is worst served by the samples chosen so far. How badly a sample is served can only
fall as more are chosen, so what was computed earlier is an upper bound: to find the worst sample,
bring the few with the largest bounds up to date until the largest one is. The choice is exactly
that of the plain method, which looks at every sample every time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .data import Array

__all__ = ["LazyScores"]

_FIRST_BATCH = 64
_CHUNK = 512  # samples that are read at a time


class LazyScores:
    """How badly each sample is served by the choices so far, kept as upper bounds.

    Parameters
    ----------
    scores : array (N,)
        Exact for the first `chosen` choices; -inf for samples that must not be chosen.
    chosen : int
        How many choices the scores take into account.
    tie : float
        Scores closer than this count as equal, and the lowest index wins.
    relative : bool
        The tie is a share of the largest score.
    """

    def __init__(self, scores: Array, *, chosen: int, tie: float, relative: bool = False) -> None:
        self.scores = scores
        self.seen = np.where(np.isfinite(scores), chosen, np.iinfo(np.intp).max)
        self.tie = tie
        self.relative = relative

    def exclude(self, sample: int) -> None:
        """Never choose this sample (again)."""
        self.scores[sample] = -np.inf
        self.seen[sample] = np.iinfo(np.intp).max

    def worst(self, k: int, refresh: Callable[[Array, int], Array]) -> tuple[int, float]:
        """Return the sample with the largest score after k choices, and its score.

        Parameters
        ----------
        k : int
        refresh : callable
            ``refresh(samples, seen) -> scores``: exact scores of a few samples after k choices,
            given that each has already been scored against the first `seen` choices.
        """
        N = self.scores.size
        size = _FIRST_BATCH
        while True:
            size = min(size, N)
            order = np.argpartition(self.scores, N - size)[N - size :]  # the largest bounds
            others = self.scores[order].min()  # no sample left out has a larger score
            stale = order[self.seen[order] < k]
            for part in np.array_split(stale, -(-stale.size // _CHUNK) or 1):
                if part.size:
                    fresh = refresh(part, int(self.seen[part].min()))
                    self.scores[part] = np.minimum(self.scores[part], fresh)
                    self.seen[part] = k
            largest = float(self.scores[order].max())
            enough = largest - self.tie * (abs(largest) if self.relative else 1.0)
            if size == N or others < enough:
                return int(order[self.scores[order] >= enough].min()), largest
            size *= 2

"""What `stability` found, brought to the components of a result: matched one to one, and scaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments import instance
from ..data.blocks import Array
from ..errors import DataError
from ..judge.scores import match_components
from ..judge.stability import Stability

__all__ = ["FoundAgain"]


@dataclass(frozen=True, eq=False)
class FoundAgain:
    """How often each component of a result is found again, and within which limits.

    Attributes
    ----------
    stability : Stability
    partners : array (K,)
        The component of `stability` that belongs to each component of the result.
    lower, upper : arrays (F, K)
        Limits of entries, scaled to the sums of the components of the result; NaN where they are
        withheld.
    """

    stability: Stability
    partners: Array
    lower: Array
    upper: Array

    @classmethod
    def of(cls, stability: Stability, W: Array) -> FoundAgain:
        """Match the components of W (F, K) with those that were found again."""
        instance("stability", stability, Stability, "stability(V, K)")
        if stability.W.shape != W.shape:
            raise DataError(
                f"stability has components of shape {stability.W.shape}, and the result of "
                f"{W.shape}: give the stability of the same data with as many components"
            )
        partners, _ = match_components(W, stability.W)
        sums = W.sum(axis=0)
        lower, upper = (limit[:, partners] * sums for limit in (stability.lower, stability.upper))
        return cls(stability, partners, lower, upper)

    def has_limits(self, k: int) -> bool:
        """Whether component k has limits of its entries."""
        return not self.stability.withheld[self.partners[k]]

    def share(self, k: int) -> str:
        """Return in which share of the runs component k was found."""
        return f"{self.stability.found_in[self.partners[k]]:.0%}"

    def in_words(self, k: int) -> tuple[str, str]:
        """Return in how many runs component k was found, and how closely."""
        own, found = int(self.partners[k]), self.stability
        low, high = found.cosine_limits[:, own]
        middle = float(np.median(found.cosines[:, own]))
        words = f"cosine {middle:.3f} [{low:.3f}, {high:.3f}]"
        if not found.problem:
            words += f", silhouette {found.silhouettes[own]:.2f}"
            words += f", can move by {found.move_in_words(own)} within the noise"
        if reason := found.withheld[own]:
            words += f"; limits withheld: {reason}"
        if not found.is_stable[own]:
            words += "; not stable"
        return f"in {self.share(k)} of {found.n_runs} runs", words

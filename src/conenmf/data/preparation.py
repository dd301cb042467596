"""What was done to the data before they were factored, so that it can be done to new samples.

An entry x of feature f becomes y = a d log(1 + b x) or a d b x: b scales its sample to a given sum,
d is the weight of f, a scales its sample to unit length. What is not asked for is left out. Only d
is learned from data; `prepared` makes the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..arguments import array, flag, indices, number, optional
from .blocks import Array

__all__ = ["Preparation"]

_MAX_TOTAL = 1e15


@dataclass(frozen=True, eq=False)
class Preparation:
    """The steps, in the order in which they are done.

    Attributes
    ----------
    total : float or None
        The sum to which each sample is scaled.
    log1p : bool
        Take log(1 + x).
    idf : array (F,) or None
        The weight of each feature, log(N / df): of N samples, it is not zero in df. A feature that
        was zero in all of them has weight 0.
    normalize : bool
        Scale each sample to unit length.

    Examples
    --------
    >>> Preparation(log1p=True, normalize=True).in_words()
    'log(1 + x) of each entry, then each sample scaled to unit length'
    """

    total: float | None = None
    log1p: bool = False
    idf: Array | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        optional(number, "total", self.total, above=0, at_most=_MAX_TOTAL)
        flag("log1p", self.log1p)
        optional(array, "idf", self.idf, ("F",), at_least=0)
        flag("normalize", self.normalize)

    def in_words(self) -> str:
        """Describe the steps."""
        steps = (
            self.total is not None and f"each sample scaled to a sum of {self.total:g}",
            self.log1p and "log(1 + x) of each entry",
            self.idf is not None and "each feature times log(N / df), if df of N samples have it",
            self.normalize and "each sample scaled to unit length",
        )
        return ", then ".join(step for step in steps if step)

    def reordered(self, features: Array) -> Preparation:
        """Return the same for data that have these features, given by their places here."""
        if self.idf is None:
            return self
        return replace(self, idf=self.idf[indices("features", features, self.idf.size)])

    def plain(self) -> dict[str, Any]:
        """Return everything but the weights in plain values."""
        return {"total": self.total, "log1p": self.log1p, "normalize": self.normalize}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any], idf: Array | None) -> Preparation:
        """Make one from what `plain` returned, and the weights; anything else is an error."""
        return cls(plain["total"], plain["log1p"], idf, plain["normalize"])

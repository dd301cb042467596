"""Known components: columns of W that are given and stay, beside others that are sought.

The given ones come first. An update of W then solves for the other columns alone: with W = [A B],
A given, the rows of B see C - A G_AB instead of C. The search for B begins with what A leaves,
max(V - A H, 0) with the best H for A: where V is zero that is zero too, so sparse data stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..arguments import factor
from ..data.blocks import Array, Block, subtracted
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..data.views import MappedMatrix
from ..errors import ComponentsError, FactorError
from ..names import Names, in_order
from .coefficients import coefficients
from .penalties import times_gram
from .solvers import Update

__all__ = ["FIXED_TABLE", "Fixed", "update_others", "what_is_left"]


FIXED_TABLE = "the table of fixed components"  # what errors about features call it


@dataclass(frozen=True, eq=False)
class Fixed:
    """Components that are given.

    Attributes
    ----------
    W : array (F, n)
        In the units of V; each is a column, and not all zero.
    names : tuple of str, or None
        What they are called.
    """

    W: Array
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        W = factor("fixed", self.W, ("F", "n"))
        if not W.any(axis=0).all():
            empty = int(np.flatnonzero(~W.any(axis=0))[0])
            raise FactorError(f"fixed component {empty}, counted from 0, is all zero: leave it out")
        if self.names is not None:
            names = Names.of(sample_names=self.names).checked(W.shape[1], None).sample_names
            object.__setattr__(self, "names", names)
        object.__setattr__(self, "W", np.ascontiguousarray(W, dtype=np.float64))

    @classmethod
    def of(cls, fixed: Any, V: DataMatrix) -> Fixed | None:
        """Return what a caller gave, checked against V: an array (F, n), a `Fixed`, or None.

        The rows of a data frame are matched with the features of V by name.
        """
        if fixed is None:
            return None
        if isinstance(fixed, Fixed):
            known = fixed
        else:
            rows = in_order(Names(V.names.feature_names), "fixed", fixed, "sample")
            known = cls(factor("fixed", rows, (V.shape[0], "n")))
        W = factor("fixed", known.W, (V.shape[0], "n"))
        ratio = W.max(axis=0) * (np.sqrt(V.shape[0] * V.shape[1]) / (V.norm or 1.0))
        largest = 1e100 if V.dtype == np.float64 else 1e15
        if not (ratio.max() <= largest and ratio.min() >= 1 / largest):
            size = f"from {ratio.min():g} to {ratio.max():g} times as large as the data"
            raise FactorError(f"fixed components are {size}: give them in the units of the data")
        return known

    @property
    def count(self) -> int:
        """How many they are."""
        return int(self.W.shape[1])

    def checked_K(self, K: int | str) -> int | str:
        """Return a number of components in all; raise `ComponentsError` if it is too small."""
        if isinstance(K, int) and K < self.count:
            raise ComponentsError(
                f"{self.count} components are fixed, more than the {K} asked for in all: the "
                "number counts them too"
            )
        return K

    def put_into(self, W: Array) -> Array:
        """Return W (F, K) with the given components as its first columns, bit for bit."""
        W = np.array(W, order="C")
        W[:, : self.count] = self.W
        return W


def what_is_left(V: DataMatrix, W: Array, H: Aligned | None = None) -> MappedMatrix:
    """Return a view of max(V - W H, 0); without H, the least-squares one for W, in one pass.

    >>> from conenmf import from_columns
    >>> what_is_left(from_columns([[3.0, 0.0], [4.0, 2.0]]), np.array([[3.0], [4.0]])).columns([1])
    array([[0.  ],
           [0.72]])
    """
    require_data_matrix(V)
    Ht = coefficients(V, W)[0].T if H is None else check_factors(V, W, H)[1]
    change: Callable[..., Block] = partial(_left, W=np.ascontiguousarray(W, dtype=V.dtype))
    return MappedMatrix(V, change, Ht, dtype=V.dtype)


def _left(block: Block, H: Array, *, W: Array) -> Block:
    return subtracted(block, W, H)


def update_others(G: Array, C: Array, Y: Array, *, update: Update, n_fixed: int) -> Array:
    """Apply an update to all columns of Y (n, K) but the first `n_fixed`."""
    fixed, rest = Y[:, :n_fixed], slice(n_fixed, None)
    seen = C[:, rest] - times_gram(fixed, G[..., :n_fixed, rest].astype(Y.dtype, copy=False))
    updated = np.array(Y, order="C")
    if seen.shape[1]:
        gram = np.ascontiguousarray(G[..., rest, rest])
        updated[:, rest] = update(gram, seen, np.ascontiguousarray(Y[:, rest]))
    return updated

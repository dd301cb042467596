"""Some features of V, each times a factor: a view, in any storage, whose blocks have fewer rows.

Samples are not gathered and nothing is copied. `held` keeps such a view, or any other, in memory,
for repeated passes over data that are small enough.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..arguments import array, choice, indices, optional
from ..errors import OptionError
from .blocks import Array, Block, canonical_rows, features_scaled
from .local import LocalMatrix
from .matrix import DataMatrix
from .memory import hold
from .validate import require_data_matrix
from .views import MappedMatrix

__all__ = ["SelectedMatrix", "held", "take_features"]


def take_features(
    V: DataMatrix,
    features: npt.ArrayLike,
    *,
    factors: npt.ArrayLike | None = None,
    dtype: str = "float64",
) -> SelectedMatrix:
    """Return a view of V with some of its features, each times a factor.

    Parameters
    ----------
    V : DataMatrix (F, N)
    features : indices
        Different ones, in increasing order.
    factors : array, optional
        At least 0, one for each of these features.
    dtype : {"float64", "float32"}

    Examples
    --------
    >>> from conenmf import from_rows
    >>> V = from_rows([[2, 1, 0], [2, 0, 3]])
    >>> take_features(V, [0, 2], factors=[0.5, 1.0]).columns([0, 1])
    array([[1., 1.],
           [0., 3.]])
    """
    require_data_matrix(V, whole=True)
    rows = indices("features", features, V.shape[0])
    if rows.size == 0 or np.any(np.diff(rows) <= 0):
        raise OptionError("features are different indices in increasing order, at least one")
    weights = optional(array, "factors", factors, (rows.size,), at_least=0)
    return SelectedMatrix(V, rows, weights, np.dtype(choice("dtype", dtype, _DTYPES)))


_DTYPES = ("float64", "float32")


class SelectedMatrix(MappedMatrix):
    """A view of some features of V.

    Attributes
    ----------
    taken : array, integers
        Which of the features of V.
    """

    def __init__(
        self, V: DataMatrix, features: Array, factors: Array | None, dtype: np.dtype[Any]
    ) -> None:
        is_all = features.size == V.shape[0]
        change = partial(
            _select,
            features=None if is_all else features,
            factors=None if factors is None else factors.astype(dtype),
            dtype=dtype,
        )
        super().__init__(V, change, dtype=dtype)
        self.taken = features
        self.shape = (features.size, V.shape[1])
        self.names = V.names.taking(features)


def _select(
    block: Block, *, features: Array | None, factors: Array | None, dtype: np.dtype[Any]
) -> Block:
    chosen: Block = block if features is None else block[features]
    chosen = chosen.astype(dtype, copy=False)
    return chosen if factors is None else features_scaled(chosen, factors)


def held(V: DataMatrix) -> LocalMatrix:
    """Return a matrix in memory with the same samples; one pass, which reads them in order.

    >>> from conenmf import from_rows
    >>> held(take_features(from_rows([[2, 1, 0], [2, 0, 3]]), [0, 2])).columns([1])
    array([[2.],
           [3.]])
    """
    require_data_matrix(V)
    (parts,) = V.sweep(_rows, reduce=_joined)
    rows = sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
    return hold(canonical_rows(rows), n_threads=V.n_threads, names=V.names)


def _rows(block: Block) -> tuple[list[Any]]:
    return ([block.T],)


def _joined(some: list[Any], more: list[Any]) -> list[Any]:
    some += more
    return some

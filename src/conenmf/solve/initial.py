"""Initial factors: the result of an init, checks of factors given by users, lifting of zeros.

Nothing here chooses an init or computes one; see `inits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import factor
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import Seed, new_seed, uniform_rows
from ..data.validate import aligned_coefficients, require_data_matrix
from ..errors import FactorError

__all__ = [
    "Factors",
    "Generator",
    "InitFunction",
    "InitialFactors",
    "check_coefficients",
    "check_factor",
    "lift_zeros",
    "random_coefficients",
]

Generator: TypeAlias = np.random.Generator | None
Factors: TypeAlias = tuple[Array, Aligned | None]
InitFunction: TypeAlias = Callable[[DataMatrix, int, Generator], Factors]
"""``(V, K, rng) -> (W, H)``; H may be None, which means "the best H for this W"."""

_NEGLIGIBLE_SHARE = 1e-12  # share of the largest entry up to which rounding counts as zero


class InitialFactors(NamedTuple):
    """The factors of an init, and what it found out about the data.

    Attributes
    ----------
    W : array (F, K)
    H : array (K, N) or None
    name : str
        The init that made them.
    error : float
        The relative error of W with its best H is at most this; 1 if nothing is known.
    """

    W: Array
    H: Aligned | None
    name: str
    error: float = 1.0


def check_factor(
    value: npt.ArrayLike, shape: tuple[int, int], name: str, dtype: npt.DTypeLike
) -> Array:
    """Return a factor that a user gave as a new array; raise `FactorError` if it is invalid."""
    with np.errstate(over="ignore"):
        array = factor(name, factor(name, value, shape).astype(dtype), shape)
    if not array.any():
        raise FactorError(f"{name} is all zero, and no solver can leave that point")
    return array


def check_coefficients(V: DataMatrix, H: Aligned, K: int) -> Aligned:
    """Do the same for an H (K, N) that is in a file or on a cluster, and stays there."""
    if H.shape != (K, V.shape[1]) or H.dtype.kind not in "fiub":
        raise FactorError(
            f"H has shape {H.shape} and type {H.dtype}, expected numbers of {(K, V.shape[1])}"
        )
    Ht, (lowest, largest) = V.map(_as_coefficients, H.T, reduce=_extremes, dtype=V.dtype)
    if not (np.isfinite(largest) and lowest >= 0 and largest > 0):
        raise FactorError(
            f"H has entries from {lowest:g} to {largest:g}, expected finite and nonnegative "
            "numbers that are not all zero"
        )
    return Ht.T


def _as_coefficients(
    index: range, H: Array, *, dtype: np.dtype[Any]
) -> tuple[Array, tuple[float, float]]:
    return np.ascontiguousarray(H, dtype), (float(H.min()), float(H.max()))


def _extremes(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return float(np.minimum(a[0], b[0])), float(np.maximum(a[1], b[1]))


def lift_zeros(V: DataMatrix, H: Aligned) -> Aligned:
    """Add the mean of the positive entries to every entry of H (K, N).

    The pair from Algorithm 2 is a fixed point of `mult` (Lemma 15 of the paper). Lifted like this,
    as in the published experiments, it no longer is.

    >>> from conenmf import from_columns
    >>> lift_zeros(from_columns(np.eye(2)), np.array([[0.0, 1.0], [3.0, 0.0]]))
    array([[2., 3.],
           [5., 2.]])
    """
    require_data_matrix(V, holes=True)
    Ht = aligned_coefficients(V, H)
    (largest,) = V.map(_largest, Ht, reduce=max)
    (total, count) = V.map(_sum_of_positive, Ht, above=_NEGLIGIBLE_SHARE * largest)[0]
    lifted, _ = V.map(_lifted, Ht, by=total / count if count else 1.0)
    return lifted.T


def _largest(index: range, H: Array) -> tuple[float]:
    return (float(H.max()),)


def _sum_of_positive(index: range, H: Array, *, above: float) -> tuple[tuple[float, int]]:
    positive = H[H > above]  # rounding on either side of zero is zero
    return ((float(positive.sum(dtype=np.float64)), positive.size),)


def _lifted(index: range, H: Array, *, by: float) -> tuple[Array, None]:
    return (H + by).astype(H.dtype, copy=False), None


def random_coefficients(V: DataMatrix, K: int, rng: np.random.Generator) -> Aligned:
    """Return an H (K, N) that is uniform on [0, 1)."""
    Ht, _ = V.map(_uniform, K=K, seed=new_seed(rng), dtype=V.dtype)
    return Ht.T


def _uniform(index: range, *, K: int, seed: Seed, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return uniform_rows(index, K, seed).astype(dtype), None

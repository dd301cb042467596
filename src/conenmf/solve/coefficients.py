"""The exact coefficients: the best H for a given W, by nonnegative least squares.

They depend on V and W alone, so a fit ends with them, and `transform` is nothing else. Columns of W
far from ordinary sizes are brought there by powers of two first.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..arguments import factor
from ..cones.certificate import coordinate_steps
from ..data.blocks import Array, Block, exact, products, residual_squared, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_data_matrix
from ..linalg.nnls import nnls

__all__ = [
    "ORDINARY",
    "Finish",
    "coefficients",
    "column_units",
    "finish_and_judge",
    "finishing",
    "nearby_power",
]

ORDINARY = 1e-6, 1e6
"""Sizes between which nothing is rescaled."""

_NEGLIGIBLE_SHARE = 1e-9  # share of ||v|| up to which a contribution is rounding
_TIE_SHARE = 1e-6  # share by which contributions that count as equal may differ


class Finish(NamedTuple):
    """The end of a fit: the exact H for W, and how good the two are.

    Attributes
    ----------
    H : array (K, N)
    labels : array (N,), integers
        As in `coefficients`.
    objective : float
        Of V itself.
    kkt_residual : float
        How far W and H are from a stationary point; see `Certificate`.
    """

    H: Aligned
    labels: Aligned
    objective: float
    kkt_residual: float


def coefficients(V: DataMatrix, W: Array) -> tuple[Aligned, Aligned, float]:
    """Return the best H for a given W, exactly, with labels and the squared error; one pass.

    It depends on V and W alone, not on a first guess, so that it is always the same even where
    several H are best. A component so small that its coefficients would leave the range of their
    type counts as zero.

    Returns
    -------
    H : array (K, N)
    labels : array (N,), integers
        argmax_k ||w_k|| H(k, n): the component that contributes most to each sample, the first one
        of those that differ by rounding; -1 for a sample without any.
    squared_error : float
        ||V - W H||^2, exact to rounding.
    """
    require_data_matrix(V)
    shared = finishing(V, W)
    with V.own_threads():
        Ht, labels, squared = V.sweep(_finish_block, V.norms_squared, verify=True, **shared)
    return Ht.T, labels, float(squared)


def finishing(V: DataMatrix, W: Array) -> dict[str, Any]:
    """Return what every block needs for its exact H: W in units that are powers of two, and W'W."""
    W = factor("W", W, (V.shape[0], "K"))
    W = np.ascontiguousarray(W, dtype=np.float64)  # the order decides the last bits of W'W
    units = column_units(W)
    largest = np.sqrt(V.measures.largest_squared) / (np.finfo(V.dtype).max / 2)
    W = np.where(np.linalg.norm(W / units, axis=0) * units > largest, W / units, 0.0)
    return {"W": W, "G": W.T @ W} | ({"units": units} if np.any(units != 1) else {})


def _finish_block(
    block: Block, squared: Array, *, W: Array, G: Array, units: Array | None = None
) -> tuple[Array, Array, float]:
    returned, labels, residual, *_ = _exact_rows(block, squared, W, G, units)
    return returned, labels, residual


def finish_and_judge(
    block: Block, squared: Array, *, W: Array, G: Array, units: Array | None = None
) -> tuple[Array, Array, tuple[float, Array, Array, float]]:
    """Return the same, and what the distance from a stationary point is computed from."""
    returned, labels, residual, C, H = _exact_rows(block, squared, W, G, units)
    sums = weighted_sums(exact(block), H), H.T @ H, coordinate_steps(G, C, H)
    return returned, labels, (residual, *sums)


def _exact_rows(
    block: Block, squared: Array, W: Array, G: Array, units: Array | None
) -> tuple[Array, Array, float, Array, Array]:
    """H for W in `units` and H as it is returned are the same numbers but for powers of two."""
    exact_block = exact(block)
    C = products(exact_block, W)
    H = nnls(G, C)
    returned = (H if units is None else H / units).astype(block.dtype, copy=False)
    H = returned if units is None else exact(returned) * units
    contributions = np.sqrt(np.diagonal(G)) * H
    largest = contributions.max(axis=1)
    first = (contributions >= (1 - _TIE_SHARE) * largest[:, None]).argmax(axis=1)
    labels = np.where(largest > _NEGLIGIBLE_SHARE * np.sqrt(squared), first, -1)
    H = exact(H)
    residuals = residual_squared(exact_block, squared, C, G, W, H)
    return returned, labels, float(residuals.sum()), C, H


def nearby_power(size: float) -> float:
    """Return a power of two near `size`, by which numbers are divided exactly; 1 if it is ordinary.

    >>> nearby_power(3e-9) == 2.0**-28, nearby_power(5.0)
    (True, 1.0)
    """
    if size <= 0 or ORDINARY[0] < size < ORDINARY[1]:
        return 1.0
    return 2.0 ** min(round(math.log2(size)), 1023)


def column_units(W: Array) -> Array:
    """Return for every column of W (F, K) a power of two near its largest entry."""
    return np.array([nearby_power(float(size)) for size in W.max(axis=0)])

"""Weights of samples: a weight of 2 gives what the sample twice gives.

Whole numbers on small data do so literally: samples are repeated, so that every init sees what it
would see. Otherwise each sample is multiplied by the root of its weight: sums over samples and the
error are the same then, and so are directions and singular vectors; a sample of weight 0 is zero.
The divergence of counts is as large as they are, so that they are multiplied by the weight itself.
Coefficients of a result are those of the samples themselves: they do not depend on weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import array, choice
from ..errors import Message, Option, OptionError
from .blocks import Array, Block, scaled
from .matrix import Aligned, DataMatrix
from .validate import require_data_matrix
from .views import MappedMatrix, take_samples

__all__ = ["Weighed", "times_samples", "weigh_samples"]

_MAX_REPEATED_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Weighed:
    """Where weighed samples come from.

    Attributes
    ----------
    V : DataMatrix (F, N)
        The samples themselves.
    weights : array (N,)
    repeated : array of integers, or None
        The samples, as often as they are repeated.
    roots : array (N,), or None
        The roots of the weights, aligned.
    scales : array (N,), or None
        What samples are multiplied by, aligned: the roots, or of counts the weights.
    """

    V: DataMatrix
    weights: Array
    repeated: Array | None = None
    roots: Aligned | None = None
    scales: Aligned | None = None

    @property
    def n_counted(self) -> float:
        """The sum of the weights: how many samples they count as."""
        return float(self.weights.sum())

    def weighed(self, H: Aligned) -> Aligned:
        """Return coefficients (K, N) of the samples as those of the weighed ones."""
        if self.repeated is not None:
            return np.asarray(H)[:, self.repeated]
        return self.V.map(_times_rows, H.T, self.scales)[0].T


def weigh_samples(V: DataMatrix, weights: Any, loss: str = "frobenius") -> DataMatrix:
    """Return a view of V in which samples count as often as their weights say.

    Parameters
    ----------
    V : DataMatrix (F, N)
    weights : array (N,)
        At least 0, not all 0. Without them, or if all are 1, V itself is returned.
    loss : {"frobenius", "poisson"}
        What they are the weights of.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [2.0, 0.0]).norms_squared
    array([25., 25.])
    >>> weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [0.5, 0.0]).norms_squared.round(6)
    array([12.5,  0. ])
    """
    require_data_matrix(V)
    choice("loss", loss, ("frobenius", "poisson"))
    if weights is None:
        return V
    if isinstance(weights, int | float) and not isinstance(weights, bool) and weights > 0:
        return V  # one number for all
    weights = array("sample_weight", weights, V.shape[1:], at_least=0)
    if not weights.any():
        problem = " is zero for every sample: give some a weight above zero"
        raise OptionError(Message(Option("sample_weight"), problem))
    if (weights == 1).all():
        return V
    if V.observed is not None:
        problem = " is for complete data: multiply the weights of the entries by it"
        raise OptionError(Message(Option("sample_weight"), problem))
    total = float(weights.sum())
    view: DataMatrix
    if (weights == np.round(weights)).all() and total * V.shape[0] <= _MAX_REPEATED_ENTRIES:
        repeated = np.repeat(np.arange(V.shape[1]), weights.astype(np.intp))
        view = take_samples(V, repeated)
        view.unweighed = Weighed(V, weights, repeated=repeated)
        return view
    roots = scales = V.align(np.sqrt(weights.astype(np.float64)))
    if loss == "poisson":
        scales = V.align(weights.astype(np.float64))
    view = times_samples(V, scales)
    view.unweighed = Weighed(V, weights, roots=roots, scales=scales)
    return view


def times_samples(V: DataMatrix, scales: Aligned) -> MappedMatrix:
    """Return a view of V with samples multiplied by numbers (N,), aligned."""
    return MappedMatrix(V, _times_scale, scales, dtype=V.dtype)


def _times_scale(block: Block, scales: Array) -> Block:
    return scaled(block, scales.astype(block.dtype, copy=False))


def _times_rows(index: range, H: Array, roots: Array) -> tuple[Array, None]:
    return (H * roots[:, None]).astype(H.dtype, copy=False), None

"""The noise floor of counts: the divergence that counting noise alone would leave.

If counts are Poisson and the fitted rates are true, a fit to new counts at these rates leaves about
as much as the fit to the data did. So counts are drawn at the rates WH, and the factors are fitted
to them, beginning at W and H: the mean of what is left is the floor. Without fitting again the
divergence of the draws from WH itself is larger, by about half for each parameter that is fitted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arguments import flag, generator, integer, optional
from ..data.matrix import DataMatrix
from ..data.memory import hold
from ..data.resampled import drawn_counts
from ..solve.losses.poisson import POISSON_SOLVERS, Poisson
from ..solve.methods import Method, Slot
from ..solve.run import Stopping, alternate
from .poisson_gaps import poisson_gaps

__all__ = ["MAX_DENSE_ENTRIES", "NoiseFloor", "noise_floor"]

MAX_DENSE_ENTRIES = 1 << 25
"""Of drawn counts that are held in memory, if they are dense."""

_SEED = 0
_STOPPING = Stopping(max_iter=100)


class NoiseFloor(NamedTuple):
    """The divergence that counting noise alone would leave, an estimate if counts are Poisson.

    Attributes
    ----------
    value : float
        The mean over draws.
    spread : float
        The standard deviation of a draw.
    refitted : bool
        Whether factors were fitted to the draws; if not, the value is too large, since it ignores
        that a fit follows the noise with every parameter it has.
    """

    value: float
    spread: float
    refitted: bool


def noise_floor(
    V: DataMatrix,
    W: Any,
    H: Any,
    *,
    refit: bool = True,
    n_draws: int = 3,
    rng: np.random.Generator | None = None,
) -> NoiseFloor:
    """Estimate the divergence that counting noise alone would leave, at the rates W H.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    refit : bool
        Fit the factors to the draws, beginning with W and H. Without it the floor takes one pass
        for each draw, and is too large, since it ignores the parameters.
    n_draws : int
    rng : numpy.random.Generator, optional
        By default one of a fixed seed.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns(np.ones((30, 40)))
    >>> W, H = np.ones((30, 1)), np.full((1, 40), 100.0)
    >>> quick, floor = (noise_floor(V, W, H, refit=refit) for refit in (False, True))
    >>> 550 < quick.value < 650  # about half for each of 1200 entries
    True
    >>> 20 < quick.value - floor.value < 50  # half for each of 69 parameters
    True
    """
    flag("refit", refit)
    n_draws = integer("n_draws", n_draws, at_least=2)
    rng = optional(generator, "rng", rng)
    rng = np.random.default_rng(_SEED) if rng is None else rng
    slot = Slot(POISSON_SOLVERS["newton"])
    method = Method(slot, slot, Poisson)
    left = []
    for _ in range(n_draws):
        view = drawn_counts(V, W, H, rng)
        rows = view.held_rows(MAX_DENSE_ENTRIES)
        drawn = view if rows is None else hold(rows, n_threads=V.n_threads)
        if not drawn.nonzero:  # so low are the rates
            left.append(0.0)
            continue
        factors = W, H
        if refit:
            solution = alternate(drawn, np.asarray(W), H, method, stopping=_STOPPING)
            factors = solution.W, solution.H
        left.append(poisson_gaps(drawn, *factors).divergence)
    return NoiseFloor(float(np.mean(left)), float(np.std(left, ddof=1)), refit)

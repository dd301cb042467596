"""The number of components by the paper's estimate.

K is where the ratio of adjacent singular values is largest (Section V, Theorem 9). Other estimates,
and the choice among them, are in `judge.choose_k`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments import flag, integer, optional
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..data.views import unit_samples
from ..errors import ComponentsError
from ..linalg.svd import Spectrum

__all__ = ["RankEstimate", "default_range", "estimate_rank"]

_MAX_DEFAULT_K = 50  # largest K searched by default


@dataclass(frozen=True)
class RankEstimate:
    """The number of components by the ratio of adjacent singular values.

    Attributes
    ----------
    K : int
    singular_values : array (k_max + 1,)
        sigma_1, sigma_2, ... of V (of samples of unit norm if normalized).
    ratios : array (k_max,)
        sigma_k / sigma_{k+1} for k = 1, 2, ...; where both are zero to rounding, or there is no
        next one, it is 1.
    rank : int
        How many of these singular values are above rounding.
    margin : float
        The largest ratio in the range searched over the second largest, at least 1.
    """

    K: int
    singular_values: Array
    ratios: Array
    rank: int
    margin: float

    @property
    def highest_shown(self) -> float:
        """The ratio up to which charts show them.

        The first ratio of nonnegative data is always large, and must not flatten the others.
        """
        top = float(self.ratios[1:].max() if self.ratios.size > 1 else self.ratios.max())
        return max(1.1 * top - 0.1, 1.01)


def estimate_rank(
    V: DataMatrix,
    k_min: int = 2,
    k_max: int | None = None,
    *,
    normalize: bool = False,
    spectrum: Spectrum | None = None,
) -> RankEstimate:
    """Estimate K as the argmax of sigma_k / sigma_{k+1} over k_min <= k <= k_max.

    Parameters
    ----------
    V : DataMatrix (F, N)
    k_min : int
        The paper asks for more than one: the first ratio of nonnegative data is always large.
        The estimate is smaller only if the rank of V is.
    k_max : int, optional
        By default half of min(F, N), at most 50, and twice as many as long as the estimate is this
        limit itself.
    normalize : bool
        Use samples of unit norm, as the paper advises if norms differ between cones.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> from conenmf.cones.simulate import make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> estimate_rank(from_columns(model.V)).K
    4
    """
    require_data_matrix(V, nonzero=True, whole=True)
    smaller = min(V.shape)
    flag("normalize", normalize)
    k_min, k_max = integer("k_min", k_min), optional(integer, "k_max", k_max)
    spectrum = Spectrum.of(V, spectrum)
    if normalize:
        spectrum = Spectrum(unit_samples(V))
    if k_max is not None:
        return _largest_ratio(k_min, k_max, spectrum)
    k_max = max(k_min if smaller > k_min else 1, default_range(V)[1])
    while True:
        estimate = _largest_ratio(min(k_min, k_max), k_max, spectrum)
        if not estimate.K == k_max < smaller:
            return estimate
        k_max = min(2 * k_max, smaller)


def _largest_ratio(k_min: int, k_max: int, spectrum: Spectrum) -> RankEstimate:
    V = spectrum.V
    smaller = min(V.shape)
    if not 1 <= k_min <= k_max <= smaller:
        raise ComponentsError(
            f"the search range {k_min}..{k_max} must lie within 1..{smaller}, "
            f"the smaller side of a {V.shape[1]} x {V.shape[0]} matrix"
        )
    values = np.zeros(k_max + 1)
    k = min(k_max + 1, smaller)
    values[:k] = spectrum.singular_values(k, rough=True)
    # VV' squares the singular values: below this they are rounding.
    floor = np.sqrt(10 * smaller * np.finfo(np.float64).eps) * values[0]
    above = np.maximum(values, floor)
    ratios = above[:-1] / above[1:]
    if k_max == smaller > 1:
        ratios[-1] = 1.0  # there is no next one
    searched = ratios[k_min - 1 : k_max]
    rank = int(np.count_nonzero(values > floor))
    K = min(k_min + int(np.argmax(searched)), rank)
    runner_up = np.partition(searched, -2)[-2] if searched.size > 1 else 1.0
    return RankEstimate(K, values, ratios, rank, float(searched.max() / runner_up))


def default_range(V: DataMatrix) -> tuple[int, int]:
    """Return the numbers of components that are searched by default, first and last."""
    require_data_matrix(V, holes=True)  # its shape says it
    smaller = min(V.shape)
    last = max(2 if smaller > 2 else 1, min(smaller // 2, _MAX_DEFAULT_K))
    return min(2, last), last

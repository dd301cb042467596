"""How far factors of counts are from the best H for their W, and from the best W for their H.

With one factor given, the other solves a convex problem, Poisson regression, for each sample or
feature by itself. Its dual is

    max sum_f v_f log(theta_f)   with   W' theta <= W' 1,

and at the optimum theta = v / x, x = Wh. So theta = a v / x with a = min_k (W'1)_k / (W'(v / x))_k
is a dual point for any h, and the divergence of h is above the smallest possible one by at most
sum x - s - s log a, with s = sum v (proof: "Duality gaps of counts" in the documentation). Both
gaps come from one pass over V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Array, Block, exact, products, sums_at, weighted_sums
from ..data.entries import entries_of, products_at, with_values
from ..data.matrix import DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..errors import FactorError
from ..solve.poisson_regression import dual_gaps

__all__ = ["PoissonGaps", "poisson_gaps"]


class PoissonGaps(NamedTuple):
    """The divergence of factors, and bounds for what a better H or a better W would change.

    Attributes
    ----------
    divergence : float
        sum v log(v / x) - v + x over all entries v of V and x of WH.
    coefficient_gap : float
        With this W, no H has a divergence below `divergence` - `coefficient_gap`.
    component_gap : float
        With this H, no W has a divergence below `divergence` - `component_gap`.
    of_margins : float
        The divergence of one component, the product of the margins of V.
    total : float
        The sum of V.
    """

    divergence: float
    coefficient_gap: float
    component_gap: float
    of_margins: float
    total: float

    @property
    def deviance_explained(self) -> float:
        """1 - divergence / `of_margins`: 0 for one component, 1 for an exact factorisation."""
        if self.of_margins > 0:
            return 1.0 - self.divergence / self.of_margins
        return 1.0 if self.divergence == 0 else -np.inf


def poisson_gaps(V: DataMatrix, W: Any, H: Any) -> PoissonGaps:
    """Return the divergence of V from WH, and how much of it a better H, or W, could save at most.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)

    Raises
    ------
    FactorError
        If WH is zero where V is not: the divergence is then infinite.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[2.0, 0.0], [1.0, 3.0]])
    >>> found = poisson_gaps(V, [[2.0], [4.0]], [[0.5, 0.5]])  # the margins
    >>> round(found.coefficient_gap, 12), round(found.component_gap, 12)
    (0.0, 0.0)
    """
    require_data_matrix(V, nonzero=True, whole=True)
    W, Ht = check_factors(V, W, H)
    with V.own_threads():
        (sums,) = V.sweep(_judge, Ht, W=W, of_W=W.sum(axis=0), verify=True)
    impossible = int(sums["impossible"])
    if impossible:
        raise FactorError(
            f"W H is zero at {impossible} entries of the data that are not, so that the divergence "
            "is infinite: fit again, or leave out the features or samples whose factors are zero"
        )
    of_H, v, x = sums["of_H"], sums["features"], W @ sums["of_H"]
    component_gap = float(dual_gaps(sums["VH"], of_H, W, v).sum())
    total = float(v.sum())
    margins = sums["v_log_v"] - sums["c_log_c"] - float(_xlogx(v).sum()) + float(_xlogx(total))
    divergence = max(sums["v_log_ratio"] - total + float(x.sum()), 0.0)
    return PoissonGaps(divergence, sums["coefficient_gap"], component_gap, max(margins, 0.0), total)


def _judge(block: Block, H: Array, *, W: Array, of_W: Array) -> tuple[dict[str, Any]]:
    F, n = block.shape
    entries, H = entries_of(block), exact(H)
    rates = products_at(entries, W, H)
    impossible = rates <= 0
    ratios = entries.values / np.where(impossible, 1.0, rates)
    divided = with_values(block, entries, ratios)
    c = sums_at(entries.samples, entries.values, n)
    sums = {
        "v_log_ratio": float(entries.values @ np.log(ratios)),
        "v_log_v": float(_xlogx(entries.values).sum()),
        "c_log_c": float(_xlogx(c).sum()),
        "coefficient_gap": float(dual_gaps(products(divided, W), of_W, H, c).sum()),
        "VH": weighted_sums(divided, H),
        "features": sums_at(entries.features, entries.values, F),
        "of_H": H.sum(axis=0),
        "impossible": int(np.count_nonzero(impossible)),
    }
    return (sums,)


def _xlogx(values: Any) -> Array:
    values = np.asarray(values, dtype=np.float64)
    logs: Array = values * np.log(values, out=np.zeros_like(values), where=values > 0)
    return logs

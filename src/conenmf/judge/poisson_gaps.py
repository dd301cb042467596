"""How far factors of counts are from the best H for their W, and from the best W for their H.

With one factor given, the other solves a convex problem, Poisson regression, for each sample or
feature by itself. Its dual is

    max sum_f v_f log(theta_f)   with   W' theta <= W' 1,

and at the optimum theta = v / x, x = Wh. So theta = a v / x with a = min_k (W'1)_k / (W'(v / x))_k
is a dual point for any h, and the divergence of h is above the smallest possible one by at most
sum x - s - s log a, with s = sum v (proof: "Duality gaps of counts" in the documentation). Both
gaps come from one pass over V, beside that for its margins. Where entries are missing or weighted,
where components are given, and with penalties, they are those of these problems (`dual_gaps`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arguments import instance, integer, optional
from ..data.blocks import Array, Block, exact, products, sums_at, weighted_sums
from ..data.entries import entries_of, products_at, with_values
from ..data.holes import row_grams, weighted_grams
from ..data.matrix import DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..errors import FactorError
from ..solve.constraints import Penalties
from ..solve.losses.poisson import known_counts, margins, restraints
from ..solve.losses.poisson_regression import Restraint, dual_gaps

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


def poisson_gaps(
    V: DataMatrix, W: Any, H: Any, *, n_fixed: int = 0, penalties: Penalties | None = None
) -> PoissonGaps:
    """Return the divergence of V from WH, and how much of it a better H, or W, could save at most.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Some of it may be missing or weighted: all is about what is known.
    W : array (F, K)
    H : array (K, N)
    n_fixed : int
        So many components, the first ones, were given: that they could be better does not count.
    penalties : Penalties, optional
        Those of the fit: the gaps are those of the divergence and these.

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
    require_data_matrix(V, nonzero=True, holes=True)
    W, Ht = check_factors(V, W, H)
    n_fixed = integer("n_fixed", n_fixed, at_least=0, at_most=W.shape[1])
    optional(instance, "penalties", penalties, Penalties)
    for_H, for_W = restraints(penalties, n_fixed)
    known, total, of_margins = margins(V), margins(V).total, margins(V).divergence
    weights = () if V.observed is None else V.observed.aligned
    how: dict[str, Any] = {
        "has_holes": V.observed is not None,
        "is_weighted": bool(weights),
        "held": for_H,
    }
    with V.own_threads():
        (sums,) = V.sweep(_judge, *weights, Ht, W=W, of_W=W.sum(axis=0), verify=True, **how)
    impossible = int(sums["impossible"])
    if impossible:
        raise FactorError(
            f"W H is zero at {impossible} entries of the data that are not, so that the divergence "
            "is infinite: fit again, or leave out the features or samples whose factors are zero"
        )
    component_gap = float(dual_gaps(sums["VH"], sums["of_H"], W, known.features, for_W).sum())
    divergence = max(sums["v_log_ratio"] - known.of_weights - total + sums["mass"], 0.0)
    return PoissonGaps(divergence, sums["coefficient_gap"], component_gap, of_margins, total)


def _judge(
    block: Block,
    *given: Array,
    W: Array,
    of_W: Array,
    has_holes: bool,
    is_weighted: bool,
    held: Restraint,
) -> tuple[dict[str, Any]]:
    weights, H = given[0] if is_weighted else None, exact(given[-1])
    counts = known_counts(block, weights)
    entries = entries_of(counts)
    if has_holes:
        of_W = row_grams(block, weights, W)
    rates = products_at(entries, W, H)
    impossible = rates <= 0
    ratios = entries.values / np.where(impossible, 1.0, rates)
    divided = with_values(counts, entries, ratios)
    c = sums_at(entries.samples, entries.values, block.shape[1])
    sums = {
        "v_log_ratio": float(entries.values @ np.log(ratios)),
        "mass": float((H * of_W).sum()),
        "coefficient_gap": float(dual_gaps(products(divided, W), of_W, H, c, held).sum()),
        "VH": weighted_sums(divided, H),
        "of_H": weighted_grams(block, weights, H) if has_holes else H.sum(axis=0),
        "impossible": int(np.count_nonzero(impossible)),
    }
    return (sums,)

"""The certificate of a factorisation by what is known of V, where entries are missing or weighted.

The error and the distance from a stationary point are those of the known entries. The lower bound
is that of the largest rectangle found in which nothing is missing; where there is none it is 0,
which says that no bound is known: of entries that are missing, factors can say anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cones.certificate import Certificate
from ..cones.restricted import known_bound
from ..data.holes import unpacked
from ..data.matrix import DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..errors import OptionError
from ..solve.coefficients import coordinate_steps_own, exact_observed_rows

__all__ = ["certify_known", "first_known"]


def certify_known(
    V: DataMatrix, W: Any, H: Any, *, effort: int = 0, n_fixed: int = 0
) -> Certificate:
    """Judge a factorisation by the entries of V that are known; the arguments are as in `certify`.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> X = np.outer(np.arange(1.0, 7), [2.0, 1.0, 3.0])
    >>> X[0, 1] = np.nan
    >>> V = from_rows(X, missing="nan")
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certify_known(V, result.W, result.H).relative_error < 1e-6
    True
    """
    require_data_matrix(V, nonzero=True, whole=True, holes=True)
    if V.observed is None:
        raise OptionError("all entries of V are known and count alike: use certify(V, W, H)")
    W, Ht = check_factors(V, W, H)
    known, K = V.observed, W.shape[1]
    shared: dict[str, Any] = {"is_weighted": bool(known.aligned), "judge": True, "keep": True}
    with V.own_threads():
        _, sums = V.sweep(exact_observed_rows, *known.aligned, Ht, W=W, verify=True, **shared)
        below, chance = known_bound(V, K)
    grams = unpacked(sums["grams"], K)
    steps = sums["steps"] + coordinate_steps_own(grams, sums["VH"], W, slice(n_fixed, None))
    error, residual = (
        float(np.sqrt(part / known.total)) if known.total else 0.0
        for part in (sums["squared"], steps)
    )
    return first_known(error, residual, below, chance, effort)


def first_known(
    error: float, kkt_residual: float, below: float = 0.0, chance: float = 0.0, effort: int = 0
) -> Certificate:
    """Return the certificate with a bound; without one, it is what a fit knows by itself."""
    return Certificate(
        relative_error=error,
        lower_bound=below,
        gap=error - below,
        kkt_residual=kkt_residual,
        eckart_young=below,
        is_attained=False,
        failure_probability=chance,
        effort=effort,
    )

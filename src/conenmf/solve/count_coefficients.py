"""The exact coefficients of counts: the best H for a given W, by Poisson regression.

As in `coefficients`, they depend on V and W alone, so a fit ends with them, and `transform` is
nothing else. Features that no component has have rates of zero for every H: they are left out, and
`report_unseen` says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arguments import factor, instance, optional
from ..data.blocks import Array, Block, exact, features_scaled, sums_at, weighted_sums
from ..data.holes import row_grams, weighted_grams
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_data_matrix
from ..errors import UnseenFeaturesError, UnseenFeaturesWarning
from ..text import counted, visible
from .coefficients import own_order
from .count_margins import known_counts, logs_of_weights
from .count_terms import CountTerm, restraints
from .penalties import Penalties
from .poisson_regression import (
    FREE,
    Restraint,
    Side,
    counts_of,
    divergences_and_ratios,
    regression,
    sample_sums,
)

__all__ = ["Regressions", "divergences", "regressions", "report_unseen"]

_PLAIN: dict[str, Any] = {"has_holes": False, "is_weighted": False, "held": FREE}
_TINY_SHARE = 1e-100  # of the largest entry of a component: coefficients would leave the range


class Regressions(NamedTuple):
    """The sums that regressions leave.

    Attributes
    ----------
    divergence : float
        Of the features that components have.
    gap : float
        How far it is at most above the smallest for this W.
    H : array (K,)
        The sums of the rows of H.
    known : array (K,) or (F, K)
        The same, of the samples in which each feature is known.
    ratios : array (F, K)
        (V / X) H'.
    unseen : array (F,)
        The counts of features that no component has, 0 elsewhere.
    penalty : float
        That of H.
    """

    divergence: float
    gap: float
    H: Array
    known: Array
    ratios: Array
    unseen: Array
    penalty: float


def regressions(
    V: DataMatrix, W: Array, penalties: Penalties | None = None
) -> tuple[Aligned, Aligned, Regressions]:
    """Return the best H (K, N) for W, labels (N,), and how good they are; one pass.

    Features that no component has are left out: their rates are zero for every H. A label is the
    component with the largest share of the rates of a sample, -1 for a sample without counts.
    """
    require_data_matrix(V, holes=True)
    optional(instance, "penalties", penalties, Penalties)
    W = factor("W", W, (V.shape[0], "K"))
    W = np.where(W > _TINY_SHARE * W.max(axis=0), W, 0)
    order = own_order(W)
    side = Side.of(W[:, order])
    aligned = () if V.observed is None else V.observed.aligned
    shared: dict[str, Any] = {"has_holes": V.observed is not None, "is_weighted": bool(aligned)}
    shared["held"], _ = restraints(penalties)
    shared |= {"side": side, "places": np.argsort(order), "is_seen": side.W.any(axis=1)}
    with V.own_threads():
        Ht, labels, sums = V.sweep(_regress, *aligned, verify=True, **shared)
    return Ht.T, labels, Regressions(**sums)


def divergences(V: DataMatrix, factors: Sequence[Array]) -> Array:
    """Return the divergence that each W (F, K) leaves with its best H, as `regressions` does.

    One pass for all of them, and no H is kept.
    """
    each = []
    for W in factors:
        W = factor("W", W, (V.shape[0], "K"))
        order = own_order(W)
        side = Side.of(W[:, order])
        places, is_seen = np.argsort(order), side.W.any(axis=1)
        each.append({"side": side, "places": places, "is_seen": is_seen, **_PLAIN})
    with V.own_threads():
        (sums,) = V.sweep(_divergences, each=each)
    found: Array = np.maximum(sums, 0.0)
    return found


def _divergences(block: Block, *, each: list[dict[str, Any]]) -> tuple[Array]:
    return (np.array([_regress(block, **one)[2]["divergence"] for one in each]),)


def _regress(
    block: Block,
    *given: Array,
    side: Side,
    places: Array,
    is_seen: Array,
    has_holes: bool,
    is_weighted: bool,
    held: Restraint,
) -> tuple[Array, Array, dict[str, Any]]:
    """The step of `regressions`; columns are in their own order, `places` are the caller's."""
    weights, of_all = given[0] if is_weighted else None, side.sums
    counts = known_counts(block, weights)
    if has_holes:
        side = side._replace(sums=row_grams(block, weights, side.W))
    unseen = sums_at(counts.indices, exact(counts.data), len(is_seen))
    unseen[is_seen] = 0.0
    if unseen.any():
        counts = counts_of(features_scaled(counts, is_seen.astype(np.float64)))
    Y, _, gaps = regression(counts, side, held)
    returned = Y.astype(block.dtype, copy=False)
    Y, totals = exact(returned), sample_sums(counts)
    labels = np.where(totals > 0, (Y * of_all)[:, places].argmax(axis=1), -1)
    logs, ratios = divergences_and_ratios(counts, side, Y)
    left = float(logs.sum()) - logs_of_weights(counts, weights)
    sums = {
        "divergence": left + float(np.sum(Y * side.sums) - totals.sum()),
        "gap": float(gaps.sum()),
        "H": Y.sum(axis=0)[places],
        "ratios": weighted_sums(ratios, Y)[:, places],
        "unseen": unseen,
        "penalty": CountTerm(held.l1, held.l2).value(Y),
    }
    sums["known"] = weighted_grams(block, weights, Y)[:, places] if has_holes else sums["H"]
    return np.ascontiguousarray(returned[:, places]), labels, sums


def report_unseen(V: DataMatrix, counts: Array, unseen: str = "warn") -> None:
    """Warn about counts (F,) of features that no component has, or raise an error."""
    some = np.flatnonzero(counts)
    message = (
        f"no component has {counted(some.size, 'feature')} with counts, in all "
        f"{counts.sum():g}: {_named(V, some)}"
    )
    if unseen == "raise":
        raise UnseenFeaturesError(f"{message}; leave them out, or fit again with such samples")
    warnings.warn(f"{message}: left out", UnseenFeaturesWarning, stacklevel=5)


def _named(V: DataMatrix, features: Array, most: int = 5) -> str:
    names = V.names.feature_names
    shown = [str(f) if names is None else repr(visible(names[f])) for f in features[:most]]
    return ", ".join(shown) + (", ..." if features.size > most else "")

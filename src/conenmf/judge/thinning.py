"""The number of components of counts: fitted to most of the counts, judged by the others.

Counts are split at random (`thinned`): four fifths to fit, one to judge. If they are Poisson, the
parts are independent, though every sample and every feature is in both: so no entries need be held
out, and sparse counts stay sparse. Components that follow noise in one part predict the other one
worse.

A feature may be rare, so that its rate in a sample is zero by one part, and its count in the other
is not. So the rates are mixed with those of one component, the product of the margins. Its share
and that of the split were chosen on nine sets of drawn counts (topics, cells and mutations). Six of
these have many counts, and any share from 0.01 to 0.1 chooses the true numbers; of those with few
counts, halves and a small share find too few components.
"""

from __future__ import annotations

import numpy as np

from ..data.blocks import Array, Block, exact, sums_at
from ..data.entries import entries_of, products_at
from ..data.matrix import Aligned, DataMatrix
from ..data.memory import hold
from ..data.resampled import thinned
from ..errors import ComponentsError
from ..solve.count_inits import initialize_counts
from ..solve.losses.poisson import POISSON_SOLVERS, Poisson, margins
from ..solve.methods import Method as LoopMethod
from ..solve.methods import Slot
from ..solve.run import Solution, Stopping, alternate
from .votes import Vote, at_least, some_samples

__all__ = ["by_thinning"]

_MAX_SAMPLES = 2000
_MAX_ENTRIES = 1 << 20
_FITTED_SHARE = 0.8  # of the counts
_N_SPLITS = 2
_MARGINS_SHARE = 0.2  # of the rates
_UNSEEN = 0.5  # counts of a feature that one part does not have
_MAX_ITER, _TOL = 60, 1e-4
_INITS = ("cr1-robust", "random")  # of which the better one counts; nndsvd is sometimes far off
_PATIENCE = 4  # candidates in a row that predict worse than the best before
_MAX_DENSE_ENTRIES = 1 << 24


def by_thinning(V: DataMatrix, ks: Array, rng: np.random.Generator) -> Vote:
    """Fit most of the counts, predict the others (data thinning).

    The score is the divergence of these from the rates, relative to that of one component.
    """
    part = some_samples(V, rng, _MAX_SAMPLES, _MAX_ENTRIES)
    splits = [thinned(part, rng, share=_FITTED_SHARE) for _ in range(_N_SPLITS)]
    pairs = [(_in_memory(fitted), _in_memory(other)) for fitted, other in splits]
    if min(one.nonzero for pair in pairs for one in pair) == 0:
        return Vote(np.full(ks.size, np.nan), int(ks[0]), "too few counts to split them")
    one = _predicted(pairs, 1, rng).sum()
    missed: list[Array] = []  # of each sample, for each candidate
    best = 0
    for k in ks:
        if k > min(part.shape) or len(missed) > best + _PATIENCE:
            break
        missed.append(_predicted(pairs, int(k), rng))
        if missed[-1].sum() < missed[best].sum():
            best = len(missed) - 1
    scores = np.full(ks.size, np.nan)
    scores[: len(missed)] = [sums.sum() / one for sums in missed]
    if not missed:
        return Vote(scores, int(ks[0]), "too few counts to split them")
    K = int(ks[_fewest_within_one_error(missed, best)])
    reason = "fewest within one standard error of the best prediction of held-out counts"
    return Vote(scores, K, at_least(K, ks, V, reason))


def _fewest_within_one_error(missed: list[Array], best: int) -> int:
    for place, sums in enumerate(missed):
        more = sums - missed[best]
        if more.sum() <= np.sqrt(more.size) * more.std():
            return place
    return best


def _in_memory(view: DataMatrix) -> DataMatrix:
    rows = view.held_rows(_MAX_DENSE_ENTRIES)
    return view if rows is None else hold(rows, n_threads=view.n_threads)


def _predicted(
    pairs: list[tuple[DataMatrix, DataMatrix]], K: int, rng: np.random.Generator
) -> Array:
    """The divergence of each sample's held-out counts from the rates fitted to the others."""
    total: Array = np.zeros(pairs[0][0].shape[1])
    for fitted, other in pairs:
        fits = [fit for init in _INITS if (fit := _fit(fitted, K, init, rng)) is not None]
        best = min(fits, key=lambda fit: fit.history.relative_error[-1])
        total = total + _divergences(fitted, other, best.W, best.H.T)
    return total


def _fit(V: DataMatrix, K: int, init: str, rng: np.random.Generator) -> Solution | None:
    """The factors from one init; None if the samples have too few directions for it."""
    slot = Slot(POISSON_SOLVERS["newton"])
    method, stopping = LoopMethod(slot, slot, Poisson), Stopping(max_iter=_MAX_ITER, tol=_TOL)
    try:
        first = initialize_counts(V, K, init, rng)
    except ComponentsError:
        return None
    return alternate(V, first.W, first.H, method, stopping=stopping)


def _divergences(fitted: DataMatrix, other: DataMatrix, W: Array, Ht: Aligned) -> Array:
    """Of each sample of the other part, from rates mixed with those of one component; one pass."""
    known = margins(fitted)
    features = known.features + _UNSEEN
    left = (1 - _FITTED_SHARE) / _FITTED_SHARE
    shared = {"W": left * exact(W), "shares": features / features.sum(), "left": left}
    divergences, _ = other.sweep(_miss, known.samples, Ht, **shared)
    return np.asarray(divergences)


def _miss(
    block: Block, sums: Array, H: Array, *, W: Array, shares: Array, left: float
) -> tuple[Array, None]:
    entries, sums, H = entries_of(block), left * sums, exact(H)
    of_margins = shares[entries.features] * sums[entries.samples]
    rates = (1 - _MARGINS_SHARE) * products_at(entries, W, H) + _MARGINS_SHARE * of_margins
    rates = np.maximum(rates, _UNSEEN * shares.min())  # of a sample without fitted counts
    values = entries.values * (np.log(entries.values / rates) - 1.0)
    mass = (1 - _MARGINS_SHARE) * (H @ W.sum(axis=0)) + _MARGINS_SHARE * sums
    return sums_at(entries.samples, values, block.shape[1]) + mass, None

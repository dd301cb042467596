"""The exact coefficients: the best H for a given W, by nonnegative least squares.

They depend on V and W alone. A fit ends with them, and `transform` computes the same. Columns of W
with extreme sizes are first scaled by powers of two, and columns are processed in an order that
depends on their values. So the same components in another order have the same coefficients, bit for
bit, and a fit may sort its components by their contributions (`shares_of`).

*Held-out entries* (`held_out_share`). An error that uses all features of a sample falls with every
further component, so it cannot choose their number. Here the features are divided into folds. The
coefficients of a sample are fitted by least squares to the features outside a fold, and the error
is measured on the fold, so components that were fitted to noise increase it (Owen and Perry,
"Bi-cross-validation of the SVD and the nonnegative matrix factorization", Ann. Appl. Stat., 2009).
A component may have nearly all its weight in one fold. The other features then determine its
coefficient poorly: little but noise is divided by a small number. So the features of the fold are
not left out, but count as zeros with a small weight. Then the squared norm of a prediction is at
most 1 / weight times the squared norm of the features that it uses. The weight was chosen on four
sets (mixtures with normal and with Poisson noise, the latter also with few counts, and handwritten
digits), where 0.01 to 0.1 choose the same numbers of components.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..data.blocks import (
    Block,
    entrywise,
    exact,
    first_largest,
    over,
    products,
    residual_squared,
    slices,
    subtracted,
    weighted_sums,
)
from ..data.entries import observed_residual, pack, row_grams, unpack, weigh, weighted_grams
from ..data.groups import Groups
from ..data.matrix import Aligned, DataMatrix, Step, add
from ..data.views import MappedMatrix
from ..errors import NotFiniteError, Option
from ..linalg.nnls import nnls
from ..types import Array, Facts, Interval
from .constraints import NO_PENALTIES, Penalties, Term, barred, best_rows, times_gram, unit_steps

# Sizes within this range are not rescaled.
ORDINARY = 1e-6, 1e6

_NEGLIGIBLE_SHARE = 1e-9  # of ||v||: smaller contributions are rounding
_TIE_SHARE = 1e-6  # relative difference up to which contributions count as equal
_GRAM_NUMBERS = 1 << 22  # in the Gram matrices of rows that are computed at a time
_EQUAL_SHARES = 1e-9  # difference up to which shares count as equal


class Finish(NamedTuple):
    """The end of a fit: the exact H for W, and the errors of both.

    Components are sorted: `order` contains their former positions, so W[:, order] belongs to H.

    Attributes
    ----------
    H : array (K, N)
    labels : array (N,), integers
        As in `coefficients`.
    squared_error : float
        ||V - WH||^2, or for other losses the loss without penalties.
    objective : float
        The objective for V itself: the loss with penalties.
    kkt_residual : float
        How far W and H are from a stationary point; see `Certificate`.
    order : array (K,), integers
    shares : array (K,)
        The contribution of each component to W H; they sum to 1, unless W H is zero.
    affinities : array (K, K) or None
        S of symmetric factors, whose H is S W'.
    """

    H: Aligned
    labels: Aligned
    squared_error: float
    objective: float
    kkt_residual: float
    order: Array
    shares: Array
    affinities: Array | None = None


def coefficients(
    V: DataMatrix,
    W: Array,
    penalties: Penalties = NO_PENALTIES,
    groups: Groups | None = None,
) -> tuple[Aligned, Aligned, float]:
    """Return the best H for a given W, exactly, with labels and the squared error; one pass.

    The result depends on V and W alone, not on a first guess, so it is unique even if several H are
    best. A component counts as zero if it is so small that its coefficients would leave the range
    of their type. With `penalties`, the penalties on H are minimised too.

    Returns
    -------
    H : array (K, N)
    labels : array (N,), integers
        argmax_k ||w_k|| H(k, n): the component that contributes most to each sample, or the first
        one up to rounding; -1 for a sample that uses none.
    squared_error : float
        ||V - W H||^2, exact to rounding.
    """
    with V.own_threads():
        Ht, sums, _, how = _best_rows(V, W, penalties, groups=groups)
        Ht, labels, _ = V.map(sorted_rows, Ht, V.norms_squared, **how)
    return Ht.T, labels, float(sums["squared"])


def finished(
    V: DataMatrix,
    W: Array,
    penalties: Penalties = NO_PENALTIES,
    *,
    n_first: int = 0,
    n_fixed: int = 0,
    given: Aligned | None = None,
    groups: Groups | None = None,
) -> Finish:
    """Return the best H for W, sorted except for the first components, and the errors of both.

    The first `n_fixed` columns of W are known, so the residual ignores them. If H' is `given`, (N,
    K), its errors are computed without changing it.
    """
    with V.own_threads():
        Ht, sums, W, how = _best_rows(V, W, penalties, judge=True, given=given, groups=groups)
        HH = sums["HH"]
        VH = sums["VH"]
        penalty = sums["penalty"]
        places = how["order"]
        shares = shares_of(W.T @ W, HH)[places]
        order = sorting(shares, n_first)
        Ht, labels, _ = V.map(sorted_rows, Ht, V.norms_squared, **how | {"order": places[order]})
    grams = HH if V.observed is None else unpack(sums["grams"], len(HH))
    term = penalties.on_W(V.total, V.n_samples)
    if term is not None:
        penalty += term.value(W)
        grams, VH = term.at(W)(grams, VH, W)
    steps_of = unit_steps if penalties.fixes_columns else coordinate_steps
    steps = sums["steps"] + steps_of(grams, VH, W, places[n_fixed:])
    squared = sums["squared"]
    total = (V.observed or V).total
    residual = math.sqrt(steps / total) if total else 0.0
    return Finish(Ht.T, labels, squared, squared + penalty, residual, order, shares[order])


def _best_rows(
    V: DataMatrix,
    W: Array,
    penalties: Penalties,
    *,
    judge: bool = False,
    given: Aligned | None = None,
    groups: Groups | None = None,
) -> tuple[Aligned, Facts, Array, Facts]:
    """Return the best H' (N, K), or the given one, with its columns in their own order.

    Also returns the squared error and, with `judge`, further sums; W in that order and in its
    units; and the arguments with which `sorted_rows` restores the caller's order.
    """
    rows = () if given is None else (given,)
    is_plain = penalties.are_none and V.observed is None
    columns = _columns(W, is_plain, is_ordered=given is None)
    order = columns.order
    shared = _finishing(V, columns, penalties) | {"judge": judge, "keep": given is not None}
    shared["table"] = None if groups is None else groups.sorted(order).bars
    if groups is not None and groups.bars is not None:
        rows = (*rows, V.align(groups.codes_of(V)))
    if V.observed is None:
        Ht, sums = V.sweep(_exact_rows, V.norms_squared, *rows, **shared)
    else:
        aligned = V.observed.aligned
        shared["is_weighted"] = bool(aligned)
        Ht, sums = V.sweep(_exact_known_rows, *aligned, *rows, **shared)
    sizes = shared["units"] * np.sqrt(np.diagonal(shared["G"]))
    return Ht, sums, shared["W"], {"order": np.argsort(order), "sizes": sizes}


class _Columns(NamedTuple):
    """The columns of W in an order, divided by powers of two; their norms, and W'W."""

    order: Array
    W: Array
    units: Array
    norms: Array
    G: Array


_MAX_KEPT_BYTES = 1 << 24  # of W
_kept: dict[tuple[bool, bool], tuple[Array, _Columns]] = {}  # the last W and its columns


def _columns(W: Array, is_plain: bool, *, is_ordered: bool) -> _Columns:
    """Return what the exact H needs of W alone.

    For a single sample this takes most of the time of `transform`, so the last one is kept. A copy
    of W shows whether the next W equals it.
    """
    W = np.asarray(W)
    kept = _kept.get((is_plain, is_ordered))
    if kept is not None and kept[0].dtype == W.dtype and np.array_equal(kept[0], W):
        return kept[1]
    rows = np.ascontiguousarray(W, dtype=float)  # the memory order decides the last bits of W'W
    order = own_order(rows) if is_ordered else np.arange(rows.shape[1])
    rows = np.ascontiguousarray(rows[:, order])
    units = column_units(rows) if is_plain else np.ones(order.size)  # penalties see W itself
    rows = rows / units
    columns = _Columns(order, rows, units, np.sqrt((rows * rows).sum(axis=0)), rows.T @ rows)
    if W.nbytes <= _MAX_KEPT_BYTES:
        _kept[is_plain, is_ordered] = W.copy("K"), columns
    return columns


def _finishing(V: DataMatrix, columns: _Columns, penalties: Penalties = NO_PENALTIES) -> Facts:
    """Return what every block needs for the exact H: W in units of powers of two, and W'W."""
    largest = np.sqrt(V.measures.largest_squared) / (np.finfo(V.dtype).max / 2)
    _, W, units, norms, G = columns
    is_tiny = ~(norms * units > largest)
    if is_tiny.any():
        W = np.where(is_tiny, 0.0, W)
        G = W.T @ W
    return {
        "W": W,
        "G": G,
        "units": units,
        "term": penalties.on_H,
        "simplex": penalties.sum_to_one,
    }


def own_order(W: Array) -> Array:
    """Return an order of the columns of W (F, K) that depends on their values, not their positions.

    Scaling a column by a power of two does not change it, unless columns differ only in scale.

    >>> own_order(np.array([[3.0, 1.0], [0.0, 0.1]]))
    array([1, 0])
    """
    W = np.ascontiguousarray(W, dtype=float)  # sums of columns then add up row by row
    with np.errstate(over="ignore"):
        sums, scales = np.frexp(W.sum(axis=0))
    return np.lexsort((scales, W.argmax(axis=0), np.frexp(W.max(axis=0))[0], sums))


def shares_of(G: Array, HH: Array) -> Array:
    """Return <w_k h_k, WH> / ||WH||^2 of each component, given W'W and HH'; they add up to 1."""
    parts = (G * HH).sum(axis=1)
    total = parts.sum()
    return parts / total if total > 0 else np.zeros(len(parts))


def require_finite(V: DataMatrix, W: Array, H: Aligned, objective: float) -> None:
    """Raise `NotFiniteError` unless W (F, K), H (K, N) and the objective of a result are finite."""
    (is_finite,) = V.map(lambda _, rows: (np.isfinite(rows).all(),), H.T, reduce=min)
    ends = {"W": np.isfinite(W).all(), "H": is_finite, "the objective": np.isfinite(objective)}
    wrong = [name for name, is_right in ends.items() if not is_right]
    if wrong:
        problem = f"the fit ended with NaN or infinity in {' and '.join(wrong)}: begin with "
        advice = ", and check the data for entries that are far smaller or larger than all others"
        raise NotFiniteError(problem, Option("init", "auto"), advice)


def sorting(shares: Array, n_first: int) -> Array:
    """Return the order by decreasing share; the first `n_first` components keep their positions.

    So do components of equal shares, whose order rounding would decide.

    >>> sorting(np.array([0.1, 0.3, 0.6]), 0), sorting(np.array([0.1, 0.3, 0.6]), 1)
    (array([2, 1, 0]), array([0, 2, 1]))
    """
    rest = n_first + np.argsort(-shares[n_first:], kind="stable")
    falls = -np.diff(shares[rest], prepend=np.inf) > _EQUAL_SHARES
    rest = rest[np.lexsort((rest, np.cumsum(falls)))]
    return np.concatenate([np.arange(n_first), rest])


def _exact_rows(
    block: Block,
    squared: Array,
    *given: Array,
    W: Array,
    G: Array,
    units: Array,
    judge: bool,
    keep: bool,
    table: Array | None,
    **how: Any,
) -> tuple[Array, Facts]:
    """Step: return the exact H, its squared error, and the sums for the stationarity residual.

    H for W in `units` differs from the returned H only by powers of two. With `keep`, the given
    rows are returned unchanged with their errors.
    """
    entries = exact(block)
    C = products(entries, W)
    seen = C if table is None else barred(C, table[given[-1]])
    returned = (
        given[0] if keep else (best_rows(G, seen, **how) / units).astype(block.dtype, copy=False)
    )
    H = exact(returned) * units
    sums: Facts = {"squared": float(residual_squared(entries, squared, C, G, W, H).sum())}
    if judge:
        sums |= {"VH": weighted_sums(entries, H), "HH": H.T @ H, **_judged(G, seen, H, **how)}
    return returned, sums


def _exact_known_rows(
    block: Block,
    *given: Array,
    W: Array,
    is_weighted: bool,
    judge: bool,
    keep: bool,
    table: Array | None,
    term: Term | None,
    simplex: bool,
    **_: Array,
) -> tuple[Array, Facts]:
    """Step: the same for the known entries of each sample."""
    weights = given[0] if is_weighted else None
    K = W.shape[1]
    entries = weigh(block, weights)
    pairs = pack(W)
    C = barred(products(entries, W), None if table is None else table[given[-1]])
    kept = given[int(is_weighted)] if keep else None
    H = np.empty((block.shape[1], K))
    judged: Facts = {"steps": 0.0, "penalty": 0.0}
    for rows in slices(len(H), max(1, _GRAM_NUMBERS // (K * K))):
        part = None if weights is None else weights[rows]
        grams = unpack(row_grams(block[:, rows], part, pairs), K)
        H[rows] = best_rows(grams, C[rows], term, simplex) if kept is None else kept[rows]
        if judge:
            judged = add(judged, _judged(grams, C[rows], H[rows], term, simplex))
    returned = H.astype(block.dtype, copy=False)
    H = exact(returned)
    sums: Facts = {"squared": float(observed_residual(block, weights, W, H)[1].sum())}
    if judge:
        sums |= {"VH": weighted_sums(entries, H), "HH": H.T @ H, **judged}
        sums["grams"] = weighted_grams(block, weights, pack(H))
    return returned, sums


def _judged(G: Array, C: Array, H: Array, term: Term | None, simplex: bool) -> Facts:
    """Return the squared distance of H from a stationary point, and its penalty."""
    penalty = 0.0 if term is None else term.value(H)
    G, C = (G, C) if term is None else term(G, C, H)
    steps = 0.0 if simplex else coordinate_steps(G, C, H)  # on the simplex H is exact
    return {"steps": steps, "penalty": penalty}


def coordinate_steps(G: Array, C: Array, Y: Array, columns: Array | slice = slice(None)) -> float:
    """Return the sum of squared steps, each minimising over one entry alone.

    G is one Gram matrix (K, K), or (n, K, K) for one per row. Only entries in `columns` count.
    """
    curvature = np.diagonal(G, axis1=-2, axis2=-1)[..., columns]
    gradient = (times_gram(Y, G) - C)[:, columns]
    Y = Y[:, columns]
    return float((curvature * np.minimum(Y, over(gradient, curvature)) ** 2).sum())


def sorted_rows(
    index: range, H: Array, squared: Array, *, order: Array, sizes: Array
) -> tuple[Array, Array, None]:
    """Step of a map: return the rows of H in this order, and the main component of each.

    `sizes` are the norms of the columns of W for the given H, and `squared` are the squared norms
    of the samples. A label is -1 if no component contributes.
    """
    contributions = (sizes * exact(H))[:, order]
    is_used = contributions.max(axis=1) > _NEGLIGIBLE_SHARE * np.sqrt(squared)
    labels = np.where(is_used, first_largest(contributions.T, _TIE_SHARE), -1)
    return np.ascontiguousarray(H[:, order]), labels, None


def nearby_power(size: float) -> float:
    """Return a power of two near `size`, which divides numbers exactly; 1 for ordinary sizes.

    >>> nearby_power(3e-9) == 2.0**-28, nearby_power(5.0)
    (True, 1.0)
    """
    if size <= 0 or ORDINARY[0] < size < ORDINARY[1]:
        return 1.0
    return 2.0 ** min(round(math.log2(size)), 1023)


def column_units(W: Array) -> Array:
    """Return for every column of W (F, K) a power of two near its largest entry."""
    largest = W.T.copy().max(axis=1)  # up to 30 times as fast as along short rows
    return np.array([nearby_power(size) for size in largest.tolist()])


def what_is_left(V: DataMatrix, W: Array, H: Aligned | None = None) -> MappedMatrix:
    """Return a view of max(V - W H, 0); without H, one pass computes the least-squares H for W.

    >>> from conenmf import from_columns
    >>> what_is_left(from_columns([[3.0, 0.0], [4.0, 2.0]]), np.array([[3.0], [4.0]])).columns([1])
    array([[0.  ],
           [0.72]])
    """
    Ht = coefficients(V, W)[0].T if H is None else H.T
    W = np.ascontiguousarray(W, dtype=V.dtype)
    return MappedMatrix(V, lambda block, H: subtracted(block, W, H), Ht, dtype=V.dtype)


_N_FOLDS = 5
_ZEROS_WEIGHT = 0.03  # weight of the predicted features, which count as zeros


def feature_folds(n_features: int, n_folds: int = _N_FOLDS) -> Array:
    """Return the fold of each feature: fixed random folds whose sizes differ by at most one.

    >>> feature_folds(6, 2)
    array([0, 1, 1, 0, 1, 0])
    """
    order = default_rng(0).permutation(n_features)
    return np.argsort(order) % min(n_folds, n_features)


def held_out_share(
    V: DataMatrix, W: ArrayLike, *, weights: ArrayLike | None = None, n_folds: int = _N_FOLDS
) -> float:
    """Return the share of ||V||^2 that is predicted from other features, at most 1; one pass.

    1 - sum ||v_f - W_f h||^2 / sum ||v_f||^2 over folds f and samples v. Here v_f are the features
    in f, v_g the others, and h >= 0 minimises ||v_g - W_g h||^2 + 0.03 ||W_f h||^2. A single
    feature cannot be predicted from others; its prediction is zero. If V is zero, the error is zero
    and the share is 1.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Preferably samples that were not used to fit W.
    W : array (F, K)
    weights : array (N,), optional
        Weights of samples, at least 0; by default all are equal.
    n_folds : int
        Number of folds of features; at most the number of features.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    >>> held_out_share(V, [[1.0], [2.0], [3.0]]) > 0.99
    True
    """
    is_plain = V.observed is None
    fitted = _finishing(V, _columns(np.asarray(W), is_plain, is_ordered=False))["W"]
    folds = feature_folds(V.n_features, n_folds)
    members = (folds[:, None] == np.arange(folds.max() + 1)).astype(float)
    grams = np.stack([fitted.T @ (fitted * member[:, None]) for member in members.T])
    return predicted_share(V, weights, _predict, W=fitted, grams=grams, members=members)


def predicted_share(V: DataMatrix, weights: ArrayLike | None, step: Step, **shared: Any) -> float:
    """Return 1 - missed / total, where a step returns both sums for a block; 1 if total is 0."""
    weights = np.ones(V.n_samples) if weights is None else np.asarray(weights)
    with V.own_threads():
        ((missed, total),) = V.sweep(step, weights, **shared)
    return 1.0 - float(missed / total) if total > 0 else 1.0


def _predict(
    block: Block, weights: Array, *, W: Array, grams: Array, members: Array
) -> tuple[Interval]:
    block = exact(block)
    squares = products(entrywise(block, np.square), members)  # of each sample on each fold
    parts = np.stack([products(block, W * member[:, None]) for member in members.T])
    missed = np.zeros(len(squares))
    for fold in range(len(grams)):
        # add up visible folds: a difference would lose digits
        G = np.delete(grams, fold, axis=0).sum(axis=0) + _ZEROS_WEIGHT * grams[fold]
        H = nnls(G, np.delete(parts, fold, axis=0).sum(axis=0))
        explained = 2 * np.vecdot(parts[fold], H) - np.vecdot(H @ grams[fold], H)
        missed += np.maximum(squares[:, fold] - explained, 0.0)
    return ((float((weights * missed).sum()), float((weights * squares.T).sum())),)

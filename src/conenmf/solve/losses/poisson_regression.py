"""Poisson regression of every sample on W: the best y >= 0 for counts v with rates x = W y.

The problem of a sample is convex: minimise s'y - sum_f v_f log(w_f'y) over y >= 0, where s contains
the column sums of W, and the sum is over the nonzero entries of v. Newton's method takes few steps.
Each minimises the quadratic model with the curvature A = sum_f (v_f / x_f^2) w_f w_f' by coordinate
descent, and moves in that direction as far as the objective falls. Entries of y that are zero, and
would at first raise the objective, stay zero in that step. These are most entries, so the curvature
of few entries is needed. The best multiple of y is known: it has s'y = sum v. The same step is used
in the loop, for the exact H and for `transform`.

Duality bounds the distance of y from the optimum. With c = sum_f (v_f / x_f) w_f and s'y = sum v,
the objective exceeds its minimum by at most

    (sum v) log max_k c_k / s_k

because (v / x) / max_k (c_k / s_k) is feasible in the dual problem, which maximises sum v log(z)
over W'z <= s, and this is the difference of the two objectives.

Other terms keep this form of the problem (`Restraint`). With missing or weighted entries, every
sample has its own s = sum_f p_f w_f and counts p v. An L1 penalty is added to s, an L2 penalty to
the diagonal of the curvature. Known components are entries of y that do not change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ... import kernels
from ...data.blocks import (
    Block,
    Entries,
    compressed,
    entries_of,
    exact,
    over,
    products,
    products_at,
    slices,
    weighted_sums,
    with_data,
)
from ...data.entries import pack, unpack
from ...types import Array
from ..solvers import STALL_RATIO_SQ, hals

# Sweeps of coordinate descent in a step, and the ratio at which they end. In a loop the other
# factor moves as well; in a regression, more but less accurate steps are faster.
_OF_A_LOOP = 10, STALL_RATIO_SQ
_OF_A_REGRESSION = 30, 1e-4
_MAX_STEPS = 300
_GRAM_NUMBERS = 1 << 21  # in the curvatures of rows that take a step at a time
# Of the total of a sample: its regression ends at this duality gap.
GAP_SHARE = 1e-11
BARRED = 1e150  # instead of the column sum of a component that the group of a sample does not use


class Side(NamedTuple):
    """The given factor: its rows W (F, K), and its column sums.

    The sums are (K,). With missing or weighted entries they are (n, K), over the known entries of
    each sample; with groups they are sums of W times the scales of the group of each sample.
    """

    W: Array
    sums: Array

    @classmethod
    def of(cls, W: Array) -> Side:
        """Return W in float64 and C order, with its sums."""
        W = np.ascontiguousarray(W, float)
        return cls(W, W.sum(axis=0))

    def of_rows(self, rows: Array | slice) -> Side:
        """Return the sums for some of the samples, with the same rows."""
        return self if self.sums.ndim == 1 else Side(self.W, self.sums[rows])


class Restraint(NamedTuple):
    """The penalties and known entries of the factor to compute.

    Attributes
    ----------
    l1, l2 : float
        l1 sum y + l2 ||y||^2 / 2 is added to the problem of each row y.
    n_fixed : int
        The first entries of a row are known and do not change.
    """

    l1: float = 0.0
    l2: float = 0.0
    n_fixed: int = 0


# No penalties and no known entries.
FREE = Restraint()


def counts_of(block: Block, unit: float = 1.0) -> Block:
    """Return a block, divided by the unit, as compressed sparse columns without stored zeros."""
    counts = compressed(block)
    return counts if unit == 1 else with_data(counts, counts.data / counts.dtype.type(unit))


def newton(
    counts: Block,
    side: Side,
    Y: Array,
    held: Restraint = FREE,
    effort: tuple[int, float] = _OF_A_LOOP,
    rates: Array | None = None,
) -> Array:
    """Return Y (n, K) after one step of Newton's method for every sample.

    `rates` is memory for the rates of all counts after the step.
    """
    if kernels.AVAILABLE:
        return _compiled(counts, side, Y, held, effort, rates).astype(Y.dtype, copy=False)
    new = np.empty_like(Y)
    for rows in slices(len(Y), 1 + _GRAM_NUMBERS // Y.shape[1] ** 2):
        new[rows] = _step(counts[:, rows], side.of_rows(rows), Y[rows], held, effort[0])
    if rates is not None:
        rates[:] = products_at(entries_of(counts), side.W, exact(new))
    return new


def _compiled(
    counts: Block,
    side: Side,
    Y: Array,
    held: Restraint,
    effort: tuple[int, float],
    rates: Array | None = None,
    n_steps: int = 1,
) -> Array:
    """Do steps of every sample, until its gap is small if there are several."""
    Y = np.array(Y, float, order="C")
    S = np.atleast_2d(side.sums) + held.l1
    values = exact(counts.data)
    places = counts.indices.view(f"u{counts.indices.itemsize}")  # no checks of their signs
    rates = np.empty(values.size) if rates is None else rates
    limits = held.l2, held.n_fixed, *effort, n_steps, GAP_SHARE, BARRED
    kernels.poisson_rows(values, places, counts.indptr, side.W, S, Y, rates, limits)
    return Y


def _step(counts: Block, side: Side, Y: Array, held: Restraint, sweeps: int) -> Array:
    """Do what `kernels.poisson_rows` does in a step; the curvatures nearly fit in the cache."""
    S = np.broadcast_to(side.sums + held.l1, Y.shape)
    totals = sample_sums(counts)
    is_given = np.arange(Y.shape[1]) < held.n_fixed
    is_used = is_given | (S > 0) & (S < BARRED) & (totals > 0)[:, None]
    Y = _scaled(np.where(is_used, Y, 0.0), S, totals, held)
    entries = entries_of(counts)
    x = products_at(entries, side.W, Y)
    if not np.all(x > 0):  # rows without a rate for some count start with equal shares
        lost = _sums_of_samples(counts, x <= 0) > 0
        equal = over(totals[:, None] / Y.shape[1], S) * is_used
        Y = _scaled(np.where(lost[:, None] & ~is_given, equal, Y), S, totals, held)
        x = products_at(entries, side.W, Y)
    with np.errstate(all="ignore"):  # missing rates show up in the value
        C = products(with_data(counts, entries.values / x), side.W)
        Y = _moved(counts, entries, side.W, x, C, S, Y, held, sweeps)
    return _scaled(Y, S, totals, held)


def _moved(
    counts: Block,
    entries: Entries,
    W: Array,
    x: Array,
    C: Array,
    S: Array,
    Y: Array,
    held: Restraint,
    sweeps: int,
) -> Array:
    """Return Y after one step from the rates x, unscaled."""
    A = products(with_data(counts, entries.values / x**2), pack(W))
    Y, D, falls = _direction(A, C, S, Y, held, sweeps)
    u = products_at(entries, W, D) / x
    straight = np.vecdot(S + held.l2 * Y, D)
    bent = held.l2 * np.vecdot(D, D)
    bends = _sums_of_samples(counts, entries.values * u * u) + bent
    safe = _safe_lengths(Y, D, falls, bends)
    length = np.ones(len(Y))
    for shorter in ((1.0 + safe) / 2, safe):
        shares = np.maximum(1.0 + length[entries.samples] * u, 1e-200)  # positive up to rounding
        gains = _sums_of_samples(counts, entries.values * u / shares)
        rises = straight + bent * length > gains  # at this length; the objective is convex
        length = np.where(rises, shorter, length)
    return np.maximum(Y + length[:, None] * D, 0.0)


def _direction(
    A: Array, C: Array, S: Array, Y: Array, held: Restraint, sweeps: int = _OF_A_LOOP[0]
) -> tuple[Array, Array, Array]:
    """Return Y without unsupported entries, the steps (n, K), and the initial decrease.

    A step leads to the minimum of the quadratic model over the entries that may move: those that
    are positive, and those that would lower the objective if they became positive. A is packed.
    """
    K = Y.shape[1]
    is_free = np.arange(K) >= held.n_fixed
    Y = np.where(is_free & (C <= 0), 0.0, Y)
    is_active = is_free & (C > 0) & ((Y > 0) | (C > S))
    grams = unpack(A, K) + held.l2 * np.eye(K)
    grams *= is_active[:, :, None] & is_active[:, None, :]
    slopes = C - S - held.l2 * Y
    images = np.vecdot(grams, Y[:, None])
    D = hals(grams, images + slopes, Y, sweeps=sweeps, floor=0.0) - Y
    falls = np.vecdot(slopes, D)
    D[~(falls > 0)] = 0.0
    return Y, D, np.where(falls > 0, falls, 0.0)


def _safe_lengths(Y: Array, D: Array, falls: Array, bends: Array) -> Array:
    """Return lengths of the steps D that certainly lower the objective; near the minimum >= 1/2.

    They follow from d'Ad, because rates fall by a share of at most max_k (-d_k / y_k).
    """
    deepest = np.divide(-D, Y, out=np.zeros_like(D), where=D < 0).max(axis=1)
    whole = bends + falls * deepest
    return np.divide(falls, whole, out=np.ones_like(whole), where=whole > falls)


def _scaled(Y: Array, S: Array, totals: Array, held: Restraint) -> Array:
    """Return the best multiples of rows: s'y + l2 ||y||^2 is the total; Y if entries are known."""
    if held.n_fixed:
        return Y
    masses = np.vecdot(S, Y)
    doubled = masses + np.sqrt(masses**2 + 4 * held.l2 * np.vecdot(Y, Y) * totals)
    return Y * np.divide(2 * totals, doubled, out=np.zeros_like(masses), where=masses > 0)[:, None]


def newton_from_sums(
    R: Array, A: Array, sums: Array, totals: Array, W: Array, held: Restraint = FREE
) -> Array:
    """Return W (F, K) after one step of Newton's method for every feature, from sums over samples.

    The rates x are not known here, only sums over them, so the step has a safe length.

    Parameters
    ----------
    R : array (F, K)
        sum_n (v / x) h_n of every feature.
    A : array (F, K (K + 1) / 2)
        sum_n (v / x^2) h_n h_n', packed.
    sums : array (K,) or (F, K)
        sum_n h_n, over the samples in which each feature is known.
    totals : array (F,)
        sum_n v.
    W : array (F, K)
    held : Restraint, optional
    """
    S = np.broadcast_to(sums + held.l1, W.shape)
    Y = exact(W)
    Y, D, falls = _direction(A, R, S, Y, held)
    twice = 2.0 - np.eye(W.shape[1])[np.triu_indices(W.shape[1])]  # each pair but the diagonal
    bends = np.vecdot(pack(D) * twice, A) + held.l2 * np.vecdot(D, D)
    safe = _safe_lengths(Y, D, falls, bends)
    new = _scaled(np.maximum(Y + safe[:, None] * D, 0.0), S, totals, held)
    return new.astype(W.dtype, copy=False)


def curvatures(counts: Block, ratios: Block, Y: Array) -> Array:
    """Return sum_n (v / x^2) y_n y_n' of every feature, packed, given the ratios v / x."""
    return weighted_sums(with_data(counts, ratios.data**2 / exact(counts.data)), pack(Y))


def multiplicative(counts: Block, side: Side, Y: Array, held: Restraint = FREE) -> Array:
    """Return Y (n, K) after the update of Lee and Seung: y_k <- y_k c_k / s_k."""
    return multiplied(Y, products(ratios_of(counts, side, Y), side.W), side.sums, held)


def multiplied(Y: Array, C: Array, sums: Array, held: Restraint) -> Array:
    """Minimise (s + l1) z + l2 z^2 / 2 - y c log z over all entries z that are not known.

    >>> held = Restraint(l1=1.0, l2=2.0)
    >>> multiplied(np.array([[2.0, 1.0]]), np.array([[3.0, 2.0]]), np.array([1.0, 2.0]), held)
    array([[1.30277564, 0.5       ]])
    """
    with np.errstate(invalid="ignore"):  # missing rates show up in the value
        parts = exact(Y) * C
        slopes = np.broadcast_to(sums + held.l1, Y.shape)
    if held.l2:
        parts, slopes = 2 * parts, slopes + np.sqrt(slopes**2 + 4 * held.l2 * parts)
    new = over(parts, slopes)
    new[:, : held.n_fixed] = Y[:, : held.n_fixed]
    return new.astype(Y.dtype, copy=False)


def regression(counts: Block, side: Side, held: Restraint = FREE) -> Array:
    """Return the best Y (n, K): Newton's method until duality gaps are small.

    It starts with equal shares of all components, so the result depends on nothing else. Features
    that are zero in all components must have been left out.
    """
    Y = np.zeros((counts.shape[1], side.W.shape[1]))
    if kernels.AVAILABLE:
        return _compiled(counts, side, Y, held, _OF_A_REGRESSION, n_steps=_MAX_STEPS)
    rows = np.arange(len(Y))
    for _ in range(_MAX_STEPS):
        own = side.of_rows(rows)
        Y[rows] = newton(counts, own, Y[rows], held, _OF_A_REGRESSION)
        gaps = row_gaps(counts, own, Y[rows], held)
        totals = sample_sums(counts)
        left = gaps > GAP_SHARE * totals
        if not left.any():
            break
        rows = rows[left]
        counts = counts[:, left]
    return Y


def row_gaps(counts: Block, side: Side, Y: Array, held: Restraint = FREE) -> Array:
    """Return the duality gap of every sample."""
    C = products(ratios_of(counts, side, Y), side.W)
    return dual_gaps(C, side.sums, Y, sample_sums(counts), held)


def dual_gaps(C: Array, sums: Array, Y: Array, totals: Array, held: Restraint = FREE) -> Array:
    """Return an upper bound on how far the objective of each row is above its minimum.

    An L2 penalty is at least its tangent at y, which is linear: s becomes s + l2 y. Known entries
    give a constant part of the rates; the dual problem then maximises sum v log(z) - z'(constant
    part).

    Parameters
    ----------
    C : array (n, K)
        sum_f (v_f / x_f) w_f of every row.
    sums : array (K,) or (n, K)
        Column sums of W, over the known entries of every row.
    Y : array (n, K)
    totals : array (n,)
        sum v of every row.
    held : Restraint, optional
    """
    free = slice(held.n_fixed, None)
    slopes = np.broadcast_to(sums + held.l1, C.shape) + held.l2 * Y
    excess = over(C, slopes)[:, free].max(axis=1, initial=0.0)
    masses = np.vecdot(Y[:, free], slopes[:, free])
    if held.n_fixed:
        excess = np.maximum(excess, 1.0)
        given = np.vecdot(Y[:, : held.n_fixed], C[:, : held.n_fixed])
        masses = masses + given / excess
    with np.errstate(divide="ignore"):
        logs = np.where(totals > 0, np.log(np.where(excess > 0, excess, 1.0)), 0.0)
    return np.maximum(masses - totals + totals * logs, 0.0)


def ratios_of(counts: Block, side: Side, Y: Array) -> Block:
    """Return v / x at the nonzero entries of v."""
    entries = entries_of(counts)
    with np.errstate(divide="ignore"):
        return with_data(counts, entries.values / products_at(entries, side.W, exact(Y)))


def log_sums(counts: Block, ratios: Block) -> Array:
    """Return sum v log(v / x) of every sample."""
    return _sums_of_samples(counts, counts.data * np.log(ratios.data))


def sample_sums(counts: Block) -> Array:
    """Return the total of every sample, (n,) in float64."""
    return _sums_of_samples(counts, exact(counts.data))


def _sums_of_samples(counts: Block, values: Array) -> Array:
    """Sum, for each sample, the values at its nonzero counts."""
    there = np.diff(counts.indptr) > 0
    sums = np.zeros(counts.shape[1])
    sums[there] = np.add.reduceat(values, counts.indptr[:-1][there])
    return sums

"""Poisson regression of every sample on W: the best y >= 0 for counts v with the rates x = W y.

The problem of a sample is convex: minimise s'y - sum_f v_f log(w_f'y) over y >= 0, where s holds
the sums of the columns of W, and the sum goes over the entries of v that are not zero. Newton's
method takes few steps: each minimises the quadratic model with the curvature
sum_f (v_f / x_f^2) w_f w_f', which is K x K and costs no more than K / 2 products with W, and goes
as far in that direction as the objective falls. All multiples of y are compared at once: the best
one has s'y = sum v.

Duality says how far from the best a y is. With c = sum_f (v_f / x_f) w_f and s'y = sum v, the
objective is at most

    (sum v) log max_k c_k / s_k

above its minimum: the point (v / x) / max_k (c_k / s_k) is feasible in the dual problem, maximise
sum v log(z) over W'z <= s, and this is the difference of the two objectives.

Other terms keep the problem of this kind (`Restraint`). Where entries are missing or weighted,
every sample has its own s, sum_f p_f w_f, and counts p v. An L1 penalty is added to s, an L2
penalty to the diagonal of the curvature. Known components are entries of y that stay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ... import kernels
from ...data.blocks import (
    Array,
    Block,
    compressed,
    entries_of,
    exact,
    products_at,
    sums_at,
    weighted_sums,
    with_data,
)

NOTHING: Array = np.empty(0)
"""In place of an array that is to be filled: nothing is asked for."""

_SWEEPS, _STALL = 10, 0.01  # of coordinate descent in a step of the loop
_EXACT_SWEEPS, _EXACT_STALL = 300, 1e-10
_MAX_STEPS = 300
_DENSE_SHARE = 0.25  # of entries that are not zero, from which on products are those of BLAS
GAP_SHARE = 1e-9
"""Of the total of a sample: the duality gap at which its regression has ended."""


class Side(NamedTuple):
    """The factor that is given: its rows W (F, K), and the sums of its columns.

    The sums are (K,), or (n, K) where entries are missing or weighted: those over the entries that
    are known of each sample.
    """

    W: Array
    sums: Array

    @classmethod
    def of(cls, W: Array) -> Side:
        """Return W in float64 and C order, with its sums."""
        W = np.ascontiguousarray(W, np.float64)
        return cls(W, W.sum(axis=0))


class Restraint(NamedTuple):
    """What holds the factor that is sought.

    Attributes
    ----------
    l1, l2 : float
        l1 sum y + l2 ||y||^2 / 2 is added to the problem of each row y.
    n_fixed : int
        The first entries of a row are given, and stay.
    """

    l1: float = 0.0
    l2: float = 0.0
    n_fixed: int = 0


FREE = Restraint()
"""Nothing holds it."""


def counts_of(block: Block, unit: float = 1.0) -> Block:
    """Return a block, divided by the unit, as compressed sparse columns without stored zeros."""
    counts = compressed(block)
    return counts if unit == 1 else with_data(counts, counts.data / counts.dtype.type(unit))


def newton(
    counts: Block, side: Side, Y: Array, logs: Array = NOTHING, held: Restraint = FREE
) -> Array:
    """Return Y (n, K) after one step of Newton's method for every sample.

    Here and below, `logs` (n,) gets sum v log(v / x) for the new Y, unless it is empty.
    """
    return _newton(counts, side, Y, 1, _SWEEPS, _STALL, 0.0, logs, NOTHING, held)


def multiplicative(
    counts: Block, side: Side, Y: Array, logs: Array = NOTHING, held: Restraint = FREE
) -> Array:
    """Return Y (n, K) after the update of Lee and Seung: y_k <- y_k c_k / s_k.

    With penalties it is the minimum of the same majorant and these; entries that are given stay.
    """
    side = side._replace(sums=side.sums + held.l1) if held.l1 else side
    new = np.array(Y, np.float64, order="C")
    F, n = counts.shape
    if counts.data.size > _DENSE_SHARE * F * n:
        whole = exact(counts.toarray().T)
        rates = new @ side.W.T
        with np.errstate(divide="ignore", invalid="ignore"):  # a rate of zero is found by its value
            ratios = np.divide(whole, rates, out=np.zeros_like(rates), where=whole > 0)
            C = ratios @ side.W
            new *= np.divide(C, side.sums, out=np.zeros_like(C), where=side.sums > 0)
    elif kernels.AVAILABLE:
        parts = counts.data, counts.indices, counts.indptr
        kernels.multiplied_rows(*parts, side.W, np.atleast_2d(side.sums), new)
    else:
        C = np.asarray(divergences_and_ratios(counts, side, Y)[1].T @ side.W)
        new *= np.divide(C, side.sums, out=np.zeros_like(C), where=side.sums > 0)
    if held.l2:
        new = damped(new * side.sums, side.sums, held._replace(l1=0.0))
    new[:, : held.n_fixed] = Y[:, : held.n_fixed]
    if logs.size:
        logs[:], _ = divergences_and_ratios(counts, side, new)
    return new.astype(Y.dtype, copy=False)


def damped(parts: Array, sums: Array, held: Restraint) -> Array:
    """Minimise (s + l1) y + l2 y^2 / 2 - a log y for all parts a (n, K); 0 where a is.

    >>> damped(np.array([[6.0, 2.0]]), np.array([1.0, 2.0]), Restraint(l1=1.0, l2=2.0)).round(6)
    array([[1.302776, 0.5     ]])
    """
    slopes = np.broadcast_to(sums + held.l1, parts.shape)
    if held.l2:
        doubled = slopes + np.sqrt(slopes**2 + 4 * held.l2 * parts)
        parts, slopes = 2 * parts, doubled
    return np.divide(parts, slopes, out=np.zeros_like(parts), where=slopes > 0)


def newton_from_sums(
    R: Array, A: Array, sums: Array, totals: Array, W: Array, held: Restraint = FREE
) -> Array:
    """Return W (F, K) after one step of Newton's method for every feature, from sums over samples.

    The rates x are not known here, only what is summed over them. They change by a share of at
    least -max_k (-d_k / w_k) along a direction d, and that is enough for a length that lowers the
    objective surely; it is at least half of the way near the minimum.

    Parameters
    ----------
    R : array (F, K)
        sum_n (v / x) h_n of every feature.
    A : array (F, K, K)
        sum_n (v / x^2) h_n h_n'.
    sums : array (K,) or (F, K)
        sum_n h_n; of the samples in which each feature is known.
    totals : array (F,)
        sum_n v.
    W : array (F, K)
    held : Restraint, optional
    """
    result, (l1, l2, n_fixed) = np.array(W, np.float64, order="C"), held
    S = np.ascontiguousarray(np.atleast_2d(sums)) + l1
    A = A + l2 * np.eye(A.shape[-1]) if l2 else A
    if kernels.AVAILABLE:
        kernels.newton_from_sums(R, A, S, totals, result, _SWEEPS, _STALL, l2, n_fixed)
        return result.astype(W.dtype, copy=False)
    for f, w in enumerate(result):
        s = S[f if len(S) > 1 else 0]
        g = s + l2 * w - R[f]
        d = _quadratic_minimum(A[f], g, w, _SWEEPS, _STALL, n_fixed) - w
        fall, down = -float(g @ d), d < 0
        if fall > 0:
            deepest = float((-d[down] / w[down]).max(initial=0.0))
            w[:] = np.maximum(w + min(fall / (d @ A[f] @ d + fall * deepest), 1.0) * d, 0.0)
        w *= _best_multiple(totals[f], s, w, held)
    return result.astype(W.dtype, copy=False)


def curvatures(counts: Block, ratios: Block, Y: Array) -> Array:
    """Return sum_n (v / x^2) y_n y_n' of every feature, (F, K, K), given the ratios v / x."""
    block, K = with_data(counts, ratios.data**2 / exact(counts.data)), Y.shape[1]
    products = (Y[:, :, None] * Y[:, None, :]).reshape(len(Y), K * K)
    return weighted_sums(block, products).reshape(-1, K, K)


def regression(counts: Block, side: Side, held: Restraint = FREE) -> tuple[Array, Array, Array]:
    """Return the best Y (n, K), sum v log(v / x) and the duality gap of every sample.

    It begins with the same share of every component, so that it depends on nothing else. Features
    that no component has must have been left out.
    """
    alive = side.sums > 0
    Y = np.where(alive, 1.0 / np.where(alive, side.sums, 1.0), 0.0)
    Y = np.array(np.broadcast_to(Y, (counts.shape[1], Y.shape[-1])))
    logs, shares = np.empty((2, len(Y)))
    exactly = _MAX_STEPS, _EXACT_SWEEPS, _EXACT_STALL, GAP_SHARE
    Y = _newton(counts, side, Y, *exactly, logs, shares, held)
    return Y, logs, shares * sample_sums(counts)


def dual_gaps(C: Array, sums: Array, Y: Array, totals: Array, held: Restraint = FREE) -> Array:
    """Return how far above their minimum the objectives of rows are at most.

    An L2 penalty is at least its tangent at y, which is linear: s is s + l2 y then. Entries that
    stay give a constant part of the rates, with which the dual problem is to maximise
    sum v log(z) - z'(constant part).

    Parameters
    ----------
    C : array (n, K)
        sum_f (v_f / x_f) w_f of every row.
    sums : array (K,) or (n, K)
        Those of the columns of W; over what is known of every row.
    Y : array (n, K)
    totals : array (n,)
        sum v of every row.
    held : Restraint, optional
    """
    free = slice(held.n_fixed, None)
    slopes = np.broadcast_to(sums + held.l1, C.shape) + held.l2 * Y
    ratios = np.divide(C, slopes, out=np.zeros_like(C), where=slopes > 0)
    excess = ratios[:, free].max(axis=1, initial=0.0)
    masses = np.einsum("nk,nk->n", Y[:, free], slopes[:, free])
    if held.n_fixed:
        excess = np.maximum(excess, 1.0)
        given = np.einsum("nk,nk->n", Y[:, : held.n_fixed], C[:, : held.n_fixed])
        masses = masses + given / excess
    with np.errstate(divide="ignore"):
        logs = np.where(totals > 0, np.log(np.where(excess > 0, excess, 1.0)), 0.0)
    return np.maximum(masses - totals + totals * logs, 0.0)


def divergences_and_ratios(counts: Block, side: Side, Y: Array) -> tuple[Array, Block]:
    """Return sum v log(v / x) of every sample, and v / x in the places of v."""
    entries = entries_of(counts)
    x = products_at(entries, side.W, exact(Y))
    with np.errstate(divide="ignore"):
        ratios = entries.values / x
        logs = entries.values * np.log(ratios)
    return _sums_of_samples(counts, logs), with_data(counts, ratios)


def sample_sums(counts: Block) -> Array:
    """Return the total of every sample, (n,) in float64."""
    return _sums_of_samples(counts, exact(counts.data))


def _sums_of_samples(counts: Block, values: Array) -> Array:
    owner = np.repeat(np.arange(counts.shape[1]), np.diff(counts.indptr))
    return sums_at(owner, values, counts.shape[1])


def _newton(
    counts: Block,
    side: Side,
    Y: Array,
    steps: int,
    sweeps: int,
    stall: float,
    gap: float,
    logs: Array,
    gaps: Array,
    held: Restraint,
) -> Array:
    """Newton's method on a copy of Y; the gaps are shares of the totals."""
    W, S = side.W, np.ascontiguousarray(np.atleast_2d(side.sums) + held.l1)
    result, how = np.array(Y, np.float64, order="C"), (sweeps, stall, gap)
    if kernels.AVAILABLE:
        parts = counts.data, counts.indices, counts.indptr
        kernels.poisson_rows(*parts, W, S, result, steps, *how, logs, gaps, held.l2, held.n_fixed)
    else:
        for n, (low, high) in enumerate(zip(counts.indptr[:-1], counts.indptr[1:], strict=True)):
            v, B = exact(counts.data[low:high]), W[counts.indices[low:high]]
            row = _newton_row(v, B, S[n if len(S) > 1 else 0], result[n], steps, *how, held)
            result[n], logs[n : n + 1], gaps[n : n + 1] = row
    return result.astype(Y.dtype, copy=False)


def _newton_row(
    v: Array,
    B: Array,
    s: Array,
    y: Array,
    steps: int,
    sweeps: int,
    stall: float,
    gap: float,
    held: Restraint,
) -> tuple[Array, float, float]:
    """One sample: counts v (m,) and the rows B (m, K) of W that belong to them."""
    _, l2, n_fixed = held
    stays, total = np.arange(y.size) < n_fixed, v.sum()
    if not v.size:
        return np.where(stays, y, 0.0), 0.0, 0.0
    y = np.where(stays | (s > 0), y, 0.0)
    if not np.all(B @ y > 0):
        equal = np.where(s > 0, 1.0 / np.where(s > 0, s, 1.0), 0.0)
        y = np.where(stays, y, equal * (total / y.size if n_fixed else 1.0))
    y = y * _best_multiple(total, s, y, held)
    if not np.all(B @ y > 0):
        return y, np.inf, np.inf
    for number in range(steps + 1):
        x = B @ y
        c = B.T @ (v / x)
        short = float(dual_gaps(c[None], s, y[None], total[None], held._replace(l1=0.0))[0] / total)
        if number == steps or short <= gap:
            break
        A, g = B.T @ (B * (v / x**2)[:, None]) + l2 * np.eye(y.size), s + l2 * y - c
        d = _quadratic_minimum(A, g, y, sweeps, stall, n_fixed) - y
        fall, u = -float(g @ d), (B @ d) / x
        if not fall > 0:
            break
        slope = float((s + l2 * y) @ d), l2 * float(d @ d)
        length = _step_length(v, u, *slope, fall, float(d @ A @ d))
        y = np.maximum(y + length * d, 0.0)
        y *= _best_multiple(total, s, y, held)
    return y, float(v @ np.log(v / (B @ y))), short


def _best_multiple(total: float, s: Array, y: Array, held: Restraint) -> float:
    """By what to multiply y, so that s'y + l2 ||y||^2 is the total; by 1 if some entries stay."""
    mass = float(s @ y)
    if held.n_fixed:
        return 1.0
    if not held.l2 or not mass > 0:
        return total / mass if mass > 0 else 0.0
    return 2 * total / (mass + float(np.sqrt(mass**2 + 4 * held.l2 * (y @ y) * total)))


def _quadratic_minimum(
    A: Array, g: Array, y: Array, sweeps: int, stall: float, n_fixed: int = 0
) -> Array:
    """Coordinate descent from y for g'(z - y) + (z - y)'A(z - y) / 2 over z >= 0."""
    z, gradient, first = y.copy(), g.copy(), 0.0
    for number in range(sweeps):
        moved = 0.0
        for k in range(n_fixed, z.size):
            if A[k, k] > kernels.SMALLEST_SQUARE:
                new = max(z[k] - gradient[k] / A[k, k], 0.0)
            else:
                new = 0.0 if gradient[k] > 0 else z[k]
            step, z[k] = new - z[k], new
            moved += A[k, k] * step * step
            gradient += step * A[k]
        first = first if number else moved
        if moved <= stall * first:
            break
    return z


def _step_length(v: Array, u: Array, mass: float, stiff: float, fall: float, bend: float) -> float:
    """How far to go, at most 1: the rates change by the shares u; see `kernels`."""

    def slope(length: float) -> float:
        return mass + stiff * length - float((v * u / (1 + length * u)).sum())

    lowest, end = float(u.min()), np.inf
    if lowest > -0.5 and (min(lowest, 0.0) ** 2 + 1.0) * bend <= 1.5 * fall:
        return 1.0
    if lowest > -0.999:
        end = slope(1.0)
        if end <= 0:
            return 1.0
    safe = min(fall / (bend - fall * min(lowest, 0.0)), 1.0)
    further = 0.5 * (1 + safe)
    if end < np.inf and slope(safe) < 0:
        further = safe - slope(safe) * (1 - safe) / (end - slope(safe))
    is_further = 1 + further * lowest > 0.001 and slope(further) <= 0
    return further if is_further else safe

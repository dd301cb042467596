"""Displacement: how far an entry of a component can move until Q has risen by a given number.

Entries are scaled so that each component sums to one; the scale between W and H then does not
matter. The method fixes an entry at a new value, refits everything else, and finds where Q, the
weighted sum of squares, has risen by dQ, like the displacement of EPA PMF. The constraint is w_f =
r times the sum of the other entries, with r = share / (1 - share). The best column for given H
minimises sum (a_g w_g^2 / 2 - b_g w_g) over w >= 0 under this constraint. So the other entries are
max(b_g - m, 0) / a_g with a common m, which is found by bisection. Penalties change a and b, and Q
includes them.

The fits start from the given fit and follow the entry. They do not find distant minima, so the true
limits are at least as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from ..arguments import array, factor
from ..data.blocks import EPS, TINY, exact, over
from ..data.matrix import Aligned
from ..errors import NotAvailableError
from ..io.open import as_data
from ..linalg.bisection import bisect
from ..solve.constraints import Penalties, best_rows
from ..solve.problem import Problem, check_known, problem_of
from ..types import Array
from .details import samples_and_weights

RISES = (4.0, 8.0, 15.0, 25.0)  # of Q, the default of EPA PMF
_SWEEPS = 3  # over the columns of W, for each H
_MAX_ITER = 200  # of a fit
_SETTLED = 1e-3  # a fit ends when an iteration lowers Q by less
_MAX_TRIALS = 15  # shares to try for one limit
_NEAR_ENOUGH = 0.03  # tolerance of the root
_FIRST_STEP = 0.1  # of the share
_SMALLEST_STEP = 1e-4  # of the share


@dataclass(frozen=True, eq=False)
class Displacement:
    """Limits of the entries of components, for several rises of Q.

    Attributes
    ----------
    W : array (F, K)
        The components, each with a sum of one.
    rises : array (n,)
    lower, upper : arrays (n, F, K)
        The limits of each entry.
    Q : float
        Q at the fit, with penalties.
    fall : float
        The largest amount by which Q fell below the Q of the fit. If it is above about 1, the fit
        had not converged, or there is a better fit.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> X = [[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]
    >>> V = from_rows(X, sigma=[[0.1] * 3] * 3)
    >>> fit = factorize(V, 2, tol=1e-9)
    >>> found = displacement(V, fit.W, fit.H, [1.0, 4.0], features=[1])
    >>> found.lower.shape, bool((found.lower[1, 1] <= found.lower[0, 1]).all())
    ((2, 3, 2), True)
    """

    W: Array
    rises: Array
    lower: Array
    upper: Array
    Q: float
    fall: float


class _Fit(NamedTuple):
    """The factors of a fit, their Q, and the move of the share for which they were fitted."""

    Q: float
    W: Array
    H: Array
    move: float = 0.0


def displacement(
    V: object,
    W: Array,
    H: Aligned,
    rises: Sequence[float] = RISES,
    *,
    problem: Problem | None = None,
    features: Sequence[int | str] | None = None,
) -> Displacement:
    """Return how far each entry of each component can move if everything else is refitted.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
        In memory; entries may be missing or weighted, for example by 1 / sigma^2 with `sigma`.
    W : array (F, K)
    H : array (K, N)
    rises : numbers above 0
        The rises of Q. If sigma is right, a rise of 1 corresponds to one standard error of an
        entry, and 4 to two.
    problem : Problem, optional
        What the fit minimised: known components do not move, and Q includes penalties. Those that
        fix the length of components, and `min_volume`, are not available.
    features : integers or names, optional
        The features whose entries are displaced; by default all. An entry takes about as long as
        several fits. The limits of other features are NaN, and so are those of features without
        any known entry, and of components that contribute nothing.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((40, 2)) @ np.array([[0.8, 0.2, 0.0], [0.0, 0.3, 0.7]])
    >>> V = from_rows(truth + 0.01 * rng.random((40, 3)), sigma=np.full((40, 3), 0.01))
    >>> fit = factorize(V, 2, tol=1e-9, max_iter=2000)
    >>> found = displacement(V, fit.W, fit.H, [4.0])
    >>> bool((found.lower <= found.W + 1e-9).all() and (found.W <= found.upper + 1e-9).all())
    True
    """
    V = as_data(V, nonzero=True, holes=True)
    W = exact(factor("W", W, (V.n_features, "K")))
    H = exact(factor("H", H, (W.shape[1], V.n_samples)))
    steps = np.sort(array("rises", rises, ("n",), at_least=0).astype(float))
    minimised = _check(problem_of(problem, "frobenius", "displacement").bind(V))
    n_fixed = check_known(minimised, W)
    X, weights = map(exact, samples_and_weights(V, np.arange(V.n_samples)))
    squares = _Squares(X, weights, minimised.penalties, n_fixed)
    start = squares.fit(W, H, None)
    shares = over(start.W, start.W.sum(axis=0))
    limits = np.full((2, len(steps), *W.shape), np.nan)
    chosen = range(len(W)) if features is None else features
    places = V.names.positions("features", chosen, len(W))
    fall = squares.value(W, H) - start.Q
    is_used = start.W.any(axis=0) & start.H.any(axis=1)
    known = np.asarray(squares.weights.any(axis=1))
    if np.count_nonzero(known) == 1:  # the only feature has the share 1
        limits[:, :, known] = np.where(is_used, 1.0, np.nan)
        places = []
    squares = replace(squares, X=X[known], weights=weights[known])
    start = start._replace(W=start.W[known])
    positions = np.cumsum(known) - 1
    limits[:, :, :, :n_fixed] = shares[:, :n_fixed]
    free = [k for k in np.flatnonzero(is_used).tolist() if k >= n_fixed]
    for f, k in product((f for f in places if known[f]), free):
        for side, end in enumerate((0.0, 1.0)):
            entry = positions[f], k
            limits[side, :, f, k], lowest = _limits(squares, start, entry, end, steps)
            fall = max(fall, start.Q - lowest)
    return Displacement(shares, steps, limits[0], limits[1], start.Q, fall)


def _check(problem: Problem) -> Problem:
    """Return the problem; raise an error if its columns cannot be displaced."""
    penalties = problem.penalties
    if "sigma" not in problem.loss.constraints:
        raise NotAvailableError(f"Q is for least squares, and the loss is {problem.loss.name}")
    if penalties.fixes_columns or penalties.min_volume:
        kinds = ", ".join(penalties.kinds)
        raise NotAvailableError(
            f"displacement needs components of any length, and the penalties ({kinds}) fix it: "
            "penalise both factors by L1 or L2, or let coefficients sum to one"
        )
    return problem


def _limits(
    squares: _Squares, start: _Fit, entry: tuple[int, int], end: float, rises: Array
) -> tuple[Array, float]:
    """Move a share towards 0 or 1; return where each rise is reached, and the lowest Q.

    The square root of the rise is nearly linear in the share, which predicts the next share. A fit
    starts from the last one inside the limit.
    """
    f, k = entry
    first = start.W[f, k] / start.W[:, k].sum()
    lowest, tried = start.Q, [start]  # the last fit inside the limit, and perhaps one outside
    found = []
    for root in np.sqrt(rises):
        tried = tried[:1]
        for _ in range(_MAX_TRIALS):
            roots = np.sqrt(np.maximum([fit.Q - start.Q for fit in tried], 0.0))
            is_near = np.abs(roots - root).min() <= _NEAR_ENOUGH * root
            if is_near or tried[0].move == abs(end - first):
                break
            move = _next_move(tried, roots, root, first, abs(end - first))
            share = first + np.copysign(move, end - first)
            fit = squares.fit(tried[0].W, tried[0].H, (f, k, share))._replace(move=move)
            lowest = min(lowest, fit.Q)
            is_inside = fit.Q - start.Q <= root**2
            tried = [fit, *tried[1:]] if is_inside else [tried[0], fit]
        limit = np.interp(root, roots, [fit.move for fit in tried])
        found.append(first + np.copysign(limit, end - first))
    return np.array(found), lowest


def _next_move(tried: list[_Fit], roots: Array, root: float, first: float, room: float) -> float:
    """Predict where the root of the rise is reached, not too near to shares already tried."""
    moves = [fit.move for fit in tried]
    if len(tried) == 1:
        growth = np.clip(root / max(roots[0], 0.1 * root), 1.5, 4.0)
        return min(max(growth * moves[0], _FIRST_STEP * first, _SMALLEST_STEP), room)
    return float(np.clip(np.interp(root, roots, moves), *np.quantile(moves, (0.1, 0.9))))


@dataclass(frozen=True)
class _Squares:
    """The known entries of V and their weights, in memory (F, N), and what is added to Q."""

    X: Array
    weights: Array
    penalties: Penalties
    n_fixed: int

    def value(self, W: Array, H: Array) -> float:
        """Return Q with the penalties."""
        Q = float((self.weights * (self.X - W @ H) ** 2).sum())
        of_H = self.penalties.on_H
        of_W = self.penalties.on_W(0.0, H.shape[1])
        Q += 0.0 if of_H is None else of_H.value(H.T)
        return Q + (0.0 if of_W is None else of_W.value(W))

    def fit(self, W: Array, H: Array, held: tuple[int, int, float] | None) -> _Fit:
        """Fit from W and H with a held share of one entry; H is exact at the end."""
        before = H
        step = 0.0
        last = np.inf
        for _ in range(_MAX_ITER):
            tried = np.maximum(H + step * (H - before), 0.0)
            new_W = self.columns(W, tried, held)
            grams = np.einsum("fn,fj,fk->njk", self.weights, new_W, new_W, optimize=True)
            products = (self.weights * self.X).T @ new_W
            rows = best_rows(grams, products, self.penalties.on_H, self.penalties.sum_to_one)
            new_H = np.ascontiguousarray(rows.T)
            Q = self.value(new_W, new_H)
            if Q > last and step:
                step = 0.0
                continue
            step = min(1.0, 1.1 * step + 0.1)
            W = new_W
            before = H
            H = new_H
            if last - Q < _SETTLED:
                break
            last = Q
        return _Fit(Q, W, H)

    def columns(self, W: Array, H: Array, held: tuple[int, int, float] | None) -> Array:
        """Improve the columns of W one after the other for given H."""
        W = W.copy()
        sums = np.einsum("fn,jn,kn->fjk", self.weights, H, H, optimize=True)
        products = (self.weights * self.X) @ H.T
        for _ in range(_SWEEPS):
            for k in range(self.n_fixed, W.shape[1]):
                a = sums[:, k, k]
                b = products[:, k] - np.einsum("fj,fj->f", sums[:, k], W) + a * W[:, k]
                a = a + self.penalties.l2_w
                b = b - self.penalties.l1_w
                if held is not None and held[1] == k:
                    W[:, k] = _held_column(a, b, held[0], held[2])
                else:
                    W[:, k] = np.maximum(b, 0.0) / np.maximum(a, TINY)
        return W


def _held_column(a: Array, b: Array, f: int, share: float) -> Array:
    """Return the column w >= 0 that minimises sum (a w^2 / 2 - b w) for a given share of w_f."""
    others = np.arange(a.size) != f
    own = np.maximum(a[others], max(EPS * a.max(), TINY))  # 0 where no known entry uses it
    sides = b[others]
    if share >= 1.0:
        return np.where(others, 0.0, max(b[f], 0.0) / max(a[f], TINY))
    ratio = share / (1.0 - share)
    low = min(sides.min() - np.abs(b).sum(), -ratio * abs(b[f]) - 1.0)

    def is_below(m: float) -> bool:
        total = (np.maximum(sides - m, 0.0) / own).sum()
        return bool(a[f] * ratio**2 * total - b[f] * ratio > m)

    _, m = bisect(is_below, low, sides.max())
    column = np.zeros(a.size)
    column[others] = np.maximum(sides - m, 0.0) / own
    column[f] = ratio * column.sum()
    return column

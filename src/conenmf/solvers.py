"""The classical solvers: three update rules and the one loop that runs them.

All minimise ||V - W H||_F over nonnegative W and H, one factor at a time. Given W, the problem
for the samples is known through G = W'W (K, K) and C = V'W (N, K) alone; given H it is known
through G = HH' and C = VH' (F, K). So a rule is one pure function ``(G, C, Y) -> Y`` that moves
the rows of Y closer to the minimiser of y'Gy / 2 - c'y, and serves W and H alike.

One iteration is one pass over V: a block of samples yields its part of C, its new part of H, and
the sums VH', HH' and <V, WH>, from which follow the new W and the relative error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from . import kernels
from .blocks import residual_squared
from .data import Aligned, Array, Block, DataMatrix, require_data_matrix
from .errors import FactorError, OptionError
from .nnls import nnls

__all__ = [
    "FLOOR",
    "SOLVERS",
    "Callback",
    "History",
    "Loop",
    "Progress",
    "Rule",
    "Solution",
    "Stopping",
    "alternate",
    "coefficients",
    "get_rule",
    "hals",
    "mult",
    "nnlsb",
]

FLOOR = 1e-16  # smallest entry that `mult` and `hals` leave, as in the published experiments

Update: TypeAlias = Callable[[Array, Array, Array], Array]


def mult(G: Array, C: Array, Y: Array) -> Array:
    """Multiplicative update of Lee and Seung: Y <- max(Y * C / (Y G), floor).

    >>> mult(np.eye(1), np.array([[2.0]]), np.array([[0.5]]))
    array([[2.]])
    """
    denominator = Y @ G
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(denominator > 0, C / denominator, 1.0)
    updated: Array = np.maximum(Y * ratio, FLOOR).astype(Y.dtype, copy=False)
    return updated


def hals(G: Array, C: Array, Y: Array) -> Array:
    """Hierarchical alternating least squares: for k = 1..K, minimise exactly over column k.

    y_k <- max(y_k - (Y G_k - c_k) / G_kk, floor)

    >>> hals(np.eye(2), np.array([[2.0, -1.0]]), np.array([[0.5, 0.5]]))
    array([[2.e+00, 1.e-16]])
    """
    if kernels.AVAILABLE:
        Y = np.array(Y, order="C")
        kernels.hals_rows(np.ascontiguousarray(G), np.ascontiguousarray(C), Y, FLOOR)
        return Y
    Y = np.array(Y, order="F")
    for k in range(G.shape[0]):
        if G[k, k] > 0:
            Y[:, k] = np.maximum(Y[:, k] - (Y @ G[:, k] - C[:, k]) / G[k, k], FLOOR)
    return np.ascontiguousarray(Y)


def nnlsb(G: Array, C: Array, Y: Array) -> Array:
    """Nonnegative least squares by block principal pivoting: the exact minimiser.

    >>> nnlsb(np.eye(2), np.array([[2.0, -1.0]]), np.array([[0.5, 0.5]]))
    array([[2., 0.]])
    """
    return nnls(G, C, Y)


@dataclass(frozen=True)
class Rule:
    """An update rule and how the published experiments ran it.

    Attributes
    ----------
    update : callable
        ``(G, C, Y) -> Y`` with one row of C and Y per sample (or per feature).
    first : {"W", "H"}
        Which factor an iteration updates first. A rule that begins with H needs no H to start.
    rescale : bool
        Scale W by <V, WH> / ||WH||^2 before the first iteration.
    floored : bool
        The rule holds entries at `FLOOR` that would be zero.
    raise_start : bool
        An H that is zero outside its cones is raised off zero before the first iteration.
    """

    update: Update
    first: str = "W"
    rescale: bool = False
    floored: bool = False
    raise_start: bool = False


SOLVERS: dict[str, Rule] = {
    "mult": Rule(mult, floored=True, raise_start=True),
    "hals": Rule(hals, rescale=True, floored=True, raise_start=True),
    "nnlsb": Rule(nnlsb, first="H"),
}


def get_rule(solver: str | Rule | Update) -> Rule:
    """Return the rule of that name; a rule is returned as it is, a function becomes a rule."""
    if isinstance(solver, Rule):
        return solver
    if callable(solver):
        return Rule(solver)
    if solver not in SOLVERS:
        problem = OptionError.unknown("solver", solver, SOLVERS)
        known = {"cd": "hals", "mu": "mult"}.get(solver)
        hint = f" (scikit-learn's {solver!r} is {known!r} here)" if known else ""
        raise OptionError(f"{problem}{hint}")
    return SOLVERS[solver]


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every iteration; it stops the run by returning True.

    `iteration` counts from 1, `elapsed` is in seconds since the loop began, `passes` counts
    the passes over V so far.
    """

    iteration: int
    elapsed: float
    relative_error: float
    passes: float


Callback: TypeAlias = Callable[[Progress], object]


@dataclass(frozen=True)
class Stopping:
    """When the loop ends.

    Attributes
    ----------
    tol : float
        Converged when the relative error fell by less than this share of itself over the last
        `window` iterations. It does not depend on the scale of V or on the start.
    window : int
    max_iter : int
    max_time : float or None
        Seconds.
    exact : float
        A relative error below this is exact for the arithmetic of the loop.
    """

    tol: float = 1e-4
    window: int = 5
    max_iter: int = 200
    max_time: float | None = None
    exact: float = 1e-7

    def reason(self, errors: list[float], elapsed: float) -> str | None:
        """Return why to stop now, or None to go on."""
        if errors and errors[-1] <= self.exact:
            return "exact"
        if len(errors) > self.window:
            before, now = errors[-1 - self.window], errors[-1]
            if before - now < self.tol * before:
                return "converged"
        if len(errors) >= self.max_iter:
            return "max_iter"
        if self.max_time is not None and elapsed >= self.max_time:
            return "max_time"
        return None


@dataclass(frozen=True)
class History:
    """The relative error, seconds and passes over V after each iteration, as arrays."""

    relative_error: Array
    elapsed: Array
    passes: Array

    def __repr__(self) -> str:
        n = self.relative_error.size
        first, last = self.relative_error[:1], self.relative_error[-1:]
        ends = f": relative error {first[0]:.4g} to {last[0]:.4g}" if n else ""
        return f"<History of {n} iterations{ends}>"


@dataclass(frozen=True)
class Solution:
    """Where the loop ended: W (F, K), H (K, N), the history and the reason.

    The reason is "converged", "exact", "max_iter", "max_time" or "callback".
    """

    W: Array
    H: Aligned
    history: History
    stop_reason: str


@dataclass
class Loop:
    """The state of the loop between two iterations: all that the next ones depend on.

    Attributes
    ----------
    W : array (F, K), float64
    Ht : aligned (N, K)
    VH, HH, inner
        The sums VH' (F, K), HH' (K, K) and <V, WH> that the last pass yielded.
    errors, elapsed, passes : lists
        The history so far.
    """

    W: Array
    Ht: Aligned
    VH: Array
    HH: Array
    inner: float
    errors: list[float]
    elapsed: list[float]
    passes: list[float]


def alternate(
    V: DataMatrix,
    W: Array,
    H: Aligned | None,
    rule: Rule | str | Update,
    *,
    stopping: Stopping = Stopping(),  # noqa: B008 - frozen
    callback: Callback | None = None,
    resume: Loop | None = None,
    save: Callable[[Loop], None] | None = None,
) -> Solution:
    """Update H and W in turn until it is time to stop; one pass over V per iteration.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N), or None
        None only for a rule that begins with H.
    rule : Rule
    stopping : Stopping
    callback : callable, optional
        Called with a `Progress` after every iteration; returning True ends the run.
    resume : Loop, optional
        Go on from here, with the same bits as if there had been no break; W and H are ignored.
    save : callable, optional
        Called with the state of the loop before every iteration.

    Notes
    -----
    The history counts seconds and passes from the call. The error
    ||V||^2 - 2 <V, WH> + ||WH||^2 comes free with the sums, but is a difference of large
    numbers: good to about 2e-8 (float64) of ||V||.
    """
    require_data_matrix(V, nonzero=True)
    rule = get_rule(rule)
    # The loop factors V / unit, so that what is floored does not depend on the scale of V.
    unit = _unit(V.norm / np.sqrt(V.shape[0] * V.shape[1]))
    total = V.total / unit**2
    began, already_read = time.perf_counter(), V.passes

    def update_samples(loop: Loop, update: Update) -> None:
        rounded = loop.W.astype(V.dtype)
        exact = rounded.astype(np.float64, copy=False)
        loop.Ht, (loop.VH, loop.HH, inner) = V.sweep(
            _update_block, loop.Ht, W=rounded, G=exact.T @ exact, unit=unit, update=update
        )
        loop.inner = float(inner)

    def relative_error(loop: Loop, inner: float) -> float:
        squared = total - 2.0 * inner + float(np.vdot(loop.W.T @ loop.W, loop.HH))
        if not np.isfinite(squared):
            raise FactorError("the solver returned factors that are not finite")
        return float(np.sqrt(max(squared, 0.0) / total))

    with V.own_threads():
        if resume is None:
            loop = _begin(V, W, H, rule, unit)
            if rule.first == "W":
                update_samples(loop, _unchanged)
                if rule.rescale:
                    norm = float(np.vdot(loop.W.T @ loop.W, loop.HH))
                    loop.W = loop.W * (loop.inner / norm) if norm > 0 else loop.W
        else:
            loop = resume
            began -= loop.elapsed[-1] if loop.elapsed else 0.0
            already_read -= loop.passes[-1] if loop.passes else 0.0
        reason = stopping.reason(loop.errors, loop.elapsed[-1] if loop.elapsed else 0.0)
        while reason is None:
            if save is not None:
                save(loop)
            if rule.first == "W":
                loop.W = _updated(rule.update, loop.HH, loop.VH, loop.W)
                update_samples(loop, rule.update)
                loop.errors.append(relative_error(loop, loop.inner))
            else:
                update_samples(loop, rule.update)
                loop.W = _updated(rule.update, loop.HH, loop.VH, loop.W)
                loop.errors.append(relative_error(loop, float(np.vdot(loop.VH, loop.W))))
            loop.elapsed.append(time.perf_counter() - began)
            loop.passes.append(V.passes - already_read)
            reason = stopping.reason(loop.errors, loop.elapsed[-1])
            if callback is not None and _asks_to_stop(callback, loop):
                reason = "callback"
        history = History(np.array(loop.errors), np.array(loop.elapsed), np.array(loop.passes))
        Ht = loop.Ht if unit == 1 else V.map(_scaled, loop.Ht, factor=unit, dtype=V.dtype)[0]
    return Solution(loop.W.astype(V.dtype, copy=False), Ht.T, history, reason)


def _begin(V: DataMatrix, W: Array, H: Aligned | None, rule: Rule, unit: float) -> Loop:
    if H is None and rule.first == "W":
        raise FactorError("this rule begins with W and needs an H to start from")
    size = _unit(float(np.max(W)))
    W = np.asarray(W, dtype=np.float64) / size
    if H is None:
        Ht, _ = V.map(_zeros, K=W.shape[1], dtype=V.dtype)
    else:
        Ht, _ = V.map(_scaled, H.T, factor=size / unit, dtype=V.dtype)
    F, K = W.shape
    return Loop(W, Ht, np.zeros((F, K)), np.zeros((K, K)), 0.0, [], [], [])


def _asks_to_stop(callback: Callback, loop: Loop) -> bool:
    iteration = len(loop.errors)
    answer = callback(Progress(iteration, loop.elapsed[-1], loop.errors[-1], loop.passes[-1]))
    return isinstance(answer, bool | np.bool_) and bool(answer)


def coefficients(V: DataMatrix, W: Array) -> tuple[Aligned, Aligned, float]:
    """Return the best H for a given W, exactly, with labels and the squared error; one pass.

    Returns
    -------
    H : array (K, N)
    labels : array (N,), integers
        argmax_k ||w_k|| H(k, n): the component that contributes most to each sample; -1 for a
        sample without any.
    squared_error : float
        ||V - W H||^2, summed from the differences themselves.
    """
    require_data_matrix(V)
    W = np.ascontiguousarray(W, dtype=np.float64)  # the order decides the last bits of W'W
    with V.own_threads():
        Ht, labels, squared = V.sweep(_finish_block, W=W, G=W.T @ W)
    return Ht.T, labels, float(squared)


def _zeros(samples: range, *, K: int, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.zeros((len(samples), K), dtype), None


def _scaled(samples: range, H: Array, *, factor: float, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.ascontiguousarray(H * factor, dtype), None


def _unit(size: float) -> float:
    """A power of two near `size`, by which numbers can be divided exactly; 1 in ordinary ranges."""
    if size <= 0 or 1e-6 < size < 1e6:
        return 1.0
    return float(2.0 ** np.round(np.log2(size)))


def _updated(update: Update, G: Array, C: Array, Y: Array) -> Array:
    """Apply a rule, which may be the user's own, and check what it returned."""
    after = update(G, C, Y)
    if not isinstance(after, np.ndarray) or after.shape != Y.shape:
        got = getattr(after, "shape", type(after).__name__)
        raise FactorError(f"the solver returned {got}, expected an array of shape {Y.shape}")
    if after.size and after.min() < 0:
        raise FactorError(f"the solver returned a negative entry: {after.min():g}")
    return after


def _unchanged(G: Array, C: Array, Y: Array) -> Array:
    return Y


def _update_block(
    block: Block, H: Array, *, W: Array, G: Array, unit: float, update: Update
) -> tuple[Array, tuple[Array, Array, float]]:
    """Update a block's piece of H (n, K) and its sums VH' (F, K), HH' (K, K), <V, WH>."""
    C = block.T @ W
    if unit != 1:
        C = C / C.dtype.type(unit)
    H = _updated(update, G, C, H)
    exact = H.astype(np.float64, copy=False)
    VH = (block @ H).astype(np.float64, copy=False) / unit
    return H, (VH, exact.T @ exact, float(np.vdot(C.astype(np.float64, copy=False), exact)))


def _finish_block(block: Block, *, W: Array, G: Array) -> tuple[Array, Array, float]:
    exact = block.astype(np.float64, copy=False)
    C = exact.T @ W
    H = nnls(G, C).astype(block.dtype, copy=False)
    weights = np.sqrt(np.diagonal(G)) * H
    labels = np.where(weights.max(axis=1) > 0, weights.argmax(axis=1), -1)
    squared = residual_squared(exact, C, G, W, H.astype(np.float64, copy=False))
    return H, labels, float(squared.sum())

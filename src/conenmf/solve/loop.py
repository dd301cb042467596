"""The loop that alternates between W and H, whatever the rule.

All rules minimise ||V - W H||_F over nonnegative W and H, one factor at a time. One iteration is
one pass over V: a block of samples yields its part of C = V'W, its new part of H, and the sums
VH', HH' and <V, WH>, from which follow the new W and the relative error.

Rules that ask for it are extrapolated, after Ang and Gillis ("Accelerating nonnegative matrix
factorization algorithms using extrapolation", Neural Computation 31, 2019): what an update has
moved, it is moved a little further. Both sums that a pass yields are those of the extrapolated H,
so the error of (W, H) is known and the step is taken back if it has not fallen; then follows one
step without extrapolation, which cannot fail, and the extrapolation goes on with more caution.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..data.blocks import Array, Block, products, residual_squared, weighted_sums
from ..data.borders import equal_borders
from ..data.matrix import Aligned, DataMatrix
from ..data.threads import run_in_order
from ..data.validate import require_data_matrix
from ..errors import FactorError
from ..linalg.nnls import nnls
from .solvers import FLOOR, Solver, Update, get_solver
from .stopping import Callback, History, Iteration, Stopping, StopReason

__all__ = [
    "Leap",
    "Loop",
    "Momentum",
    "Solution",
    "alternate",
    "coefficients",
]

_ROWS_OF_W = 1024  # updated at a time, on threads
_LEAP_AFTER = 2  # iterations
_GROWTH, _GROWTH_OF_CEILING, _CAUTION = 1.05, 1.01, 1.5  # of the extrapolation, as published


@dataclass(frozen=True)
class Solution:
    """Where the loop ended: W (F, K), H (K, N), the history and the reason."""

    W: Array
    H: Aligned
    history: History
    stop_reason: StopReason


@dataclass
class Momentum:
    """How an extrapolated run moves.

    Attributes
    ----------
    W : array (F, K)
        W one iteration earlier.
    Ht : aligned (N, K)
        H as the last update left it, before it was moved further.
    beta : float
        How far to go beyond an update, as a share of the way since the one before.
    ceiling : float
        What beta may grow to.
    rest : bool
        The next step is not extrapolated.
    leapt : bool
        The leap has been asked for.
    """

    W: Array
    Ht: Aligned
    beta: float = 0.5
    ceiling: float = 1.0
    rest: bool = True
    leapt: bool = False


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
    momentum : Momentum, optional
        For rules that are extrapolated.
    """

    W: Array
    Ht: Aligned
    VH: Array
    HH: Array
    inner: float
    errors: list[float]
    elapsed: list[float]
    passes: list[float]
    momentum: Momentum | None = None


Leap: TypeAlias = Callable[[Array, Aligned, list[float]], tuple[Array, Aligned] | None]
"""Given W, H and the errors so far, propose a W and an H from which to go on, or None."""


def alternate(
    V: DataMatrix,
    W: Array,
    H: Aligned | None,
    rule: Solver | str | Update,
    *,
    stopping: Stopping = Stopping(),  # noqa: B008 - frozen
    callback: Callback | None = None,
    leap: Leap | None = None,
    resume: Loop | None = None,
    save: Callable[[Loop, bool], None] | None = None,
) -> Solution:
    """Update H and W in turn until it is time to stop; one pass over V per iteration.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N), or None
        None only for a rule that begins with H.
    rule : Solver
    stopping : Stopping
    callback : callable, optional
        Called with a `Iteration` after every iteration; returning True ends the run.
    leap : callable, optional
        Asked once, after two iterations, for factors from which to go on; they are taken if the
        next iteration lowers the error of V itself. Only for rules that are extrapolated.
    resume : Loop, optional
        Go on from here, with the same bits as if there had been no break; W and H are ignored.
    save : callable, optional
        Called with the state of the loop before every iteration, and when the callback has
        ended it; then the second argument is True.

    Notes
    -----
    The history counts seconds and passes from the call. The error
    ||V||^2 - 2 <V, WH> + ||WH||^2 comes free with the sums, but is a difference of large
    numbers: good to about 2e-8 (float64) of ||V||. A step that is taken back counts as an
    iteration in which the error has not fallen.
    """
    require_data_matrix(V, nonzero=True)
    rule = get_solver(rule)
    began, already_read = time.perf_counter(), V.passes
    with V.own_threads():
        steps = _Steps(V, rule, W.shape[1], leap)
        loop = resume
        if loop is None:
            loop = steps.begin(W, H)
            del W, H  # the start may be large, and is not needed any more
        else:
            began -= loop.elapsed[-1] if loop.elapsed else 0.0
            already_read -= loop.passes[-1] if loop.passes else 0.0
        reason = stopping.reason(loop.errors, loop.elapsed[-1] if loop.elapsed else 0.0)
        while reason is None:
            if save is not None:
                save(loop, False)
            loop.errors.append(steps.extrapolated(loop) if loop.momentum else steps.plain(loop))
            loop.elapsed.append(time.perf_counter() - began)
            loop.passes.append(V.passes - already_read)
            reason = stopping.reason(loop.errors, loop.elapsed[-1])
            if callback is not None and _asks_to_stop(callback, loop):
                reason = StopReason.CALLBACK
                if save is not None:
                    save(loop, True)
        history = History(np.array(loop.errors), np.array(loop.elapsed), np.array(loop.passes))
        scaled = steps.in_scale(loop.Ht)
    return Solution(loop.W.astype(V.dtype, copy=False), scaled, history, reason)


class _Steps:
    """What one iteration does for a given V and rule.

    The loop factors V / unit, so that what is floored does not depend on the scale of V.
    """

    def __init__(self, V: DataMatrix, rule: Solver, K: int, leap: Leap | None) -> None:
        self.V, self.rule, self.leap = V, rule, leap
        F, N = V.shape
        self.unit = _unit(V.norm / np.sqrt(F * N))
        self.total = V.total / self.unit**2
        # A pass costs 4 K (F + N) `depth` or less, a sweep over H costs 2 N K^2, over W 2 F K^2.
        pass_ = 2 * V.depth * (F + N) / K
        self.update_H = rule.sweeping(pass_ / N)
        self.update_W = rule.sweeping(pass_ / F)
        self.floor = FLOOR if rule.floored else 0.0

    def begin(self, W: Array, H: Aligned | None) -> Loop:
        loop = self._started(W, H)
        if self.rule.extrapolate:
            loop.momentum = Momentum(loop.W, loop.Ht)
        elif self.rule.first == "W":
            self._pass(loop, _unchanged)
            if self.rule.rescale:
                norm = float(np.vdot(loop.W.T @ loop.W, loop.HH))
                loop.W = loop.W * (loop.inner / norm) if norm > 0 else loop.W
        return loop

    def _started(self, W: Array, H: Aligned | None) -> Loop:
        if H is None and (self.rule.first == "W" or self.rule.lift_zeros):
            raise FactorError("this rule needs an H to start from")
        size = _units(W)
        W = np.asarray(W, dtype=np.float64) / size
        if H is None:
            Ht, _ = self.V.map(_zeros, K=W.shape[1], dtype=self.V.dtype)
        else:
            Ht, _ = self.V.map(_scaled, H.T, factor=size / self.unit, dtype=self.V.dtype)
        F, K = W.shape
        return Loop(W, Ht, np.zeros((F, K)), np.zeros((K, K)), 0.0, [], [], [])

    def in_scale(self, Ht: Aligned) -> Aligned:
        """H (K, N) for V itself from the Ht of the loop."""
        if self.unit != 1:
            Ht, _ = self.V.map(_scaled, Ht, factor=self.unit, dtype=self.V.dtype)
        return Ht.T

    def plain(self, loop: Loop) -> float:
        if self.rule.first == "W":
            loop.W = self._updated_W(loop.HH, loop.VH, loop.W)
            self._pass(loop, self.update_H)
            return self._error(loop.W, loop.HH, loop.inner)
        self._pass(loop, self.update_H)
        loop.W = self._updated_W(loop.HH, loop.VH, loop.W)
        return self._error(loop.W, loop.HH, float(np.vdot(loop.VH, loop.W)))

    def extrapolated(self, loop: Loop) -> float:
        momentum = loop.momentum
        assert momentum is not None
        start = self._leap(loop, momentum)
        leaping = start is not None
        beta = 0.0 if leaping or momentum.rest else momentum.beta
        before = momentum.Ht
        if start is None:
            W = loop.W
            if beta:
                W = W - momentum.W
                W *= beta
                W += loop.W
                np.maximum(W, self.floor, out=W)
            start = Loop(W, loop.Ht, loop.VH, loop.HH, 0.0, [], [], [])
        else:
            before = start.Ht
        unmoved = self._pass(start, self.update_H, before, beta=beta)
        W = self._updated_W(start.HH, start.VH, start.W)
        error = self._error(W, start.HH, float(np.vdot(start.VH, W)))
        if (beta or leaping) and loop.errors and not error <= loop.errors[-1]:
            momentum.rest = True
            if beta:
                momentum.ceiling, momentum.beta = beta, beta / _CAUTION
            return loop.errors[-1]
        if beta:
            momentum.beta = min(momentum.ceiling, _GROWTH * beta)
            momentum.ceiling = min(1.0, _GROWTH_OF_CEILING * momentum.ceiling)
        momentum.rest = leaping
        momentum.W, momentum.Ht = start.W if leaping else loop.W, unmoved
        loop.W, loop.Ht = W, start.Ht
        self._balance(loop, momentum)
        return error

    def _balance(self, loop: Loop, momentum: Momentum) -> None:
        """Bring columns of W back to ordinary sizes, and rows of H the other way.

        A component that no sample uses for a while comes back with a huge column in W, which
        then sets the scale, so that the others are floored, or lost in single precision.
        """
        size = _units(loop.W)
        if np.all(size == 1):
            return
        loop.W, momentum.W = loop.W / size, momentum.W / size
        for state in (loop, momentum):
            state.Ht, _ = self.V.map(_scaled, state.Ht, factor=size, dtype=self.V.dtype)

    def _leap(self, loop: Loop, momentum: Momentum) -> Loop | None:
        if self.leap is None or momentum.leapt or len(loop.errors) < _LEAP_AFTER:
            return None
        momentum.leapt = True
        proposed = self.leap(loop.W, self.in_scale(loop.Ht), loop.errors)
        return None if proposed is None else self._started(*proposed)

    def _pass(self, loop: Loop, update: Update, *before: Aligned, beta: float = 0.0) -> Aligned:
        """Read V once: H is updated for W, and the sums follow; returns H before it was moved."""
        V = self.V
        rounded = loop.W.astype(V.dtype, copy=False)
        exact = rounded.astype(np.float64, copy=False)
        loop.Ht, *unmoved, (VH, loop.HH, inner) = V.sweep(
            _update_block,
            loop.Ht,
            *before,
            W=V.coordinates(rounded),
            G=exact.T @ exact,
            unit=self.unit,
            update=update,
            beta=beta,
            floor=self.floor,
        )
        loop.VH, loop.inner = V.features(VH), float(inner)
        return unmoved[0] if unmoved else loop.Ht

    def _updated_W(self, G: Array, C: Array, W: Array) -> Array:
        """Update W, many rows at a time on threads."""
        borders = equal_borders(len(W), _ROWS_OF_W)
        updated = np.empty_like(W)
        dtype = self.V.dtype

        def run(index: int) -> Array:
            rows = slice(*borders[index])
            C_, W_ = (array[rows].astype(dtype, copy=False) for array in (C, W))
            return _updated(self.update_W, G, C_, W_)

        def collect(index: int, rows: Array) -> None:
            updated[slice(*borders[index])] = rows

        run_in_order(run, collect, len(borders), self.V.n_threads)
        return updated

    def _error(self, W: Array, HH: Array, inner: float) -> float:
        squared = self.total - 2.0 * inner + float(np.vdot(W.T @ W, HH))
        if not np.isfinite(squared):
            raise FactorError("the solver returned factors that are not finite")
        return float(np.sqrt(max(squared, 0.0) / self.total))


def _asks_to_stop(callback: Callback, loop: Loop) -> bool:
    iteration = len(loop.errors)
    answer = callback(Iteration(iteration, loop.elapsed[-1], loop.errors[-1], loop.passes[-1]))
    return isinstance(answer, bool | np.bool_) and bool(answer)


def coefficients(V: DataMatrix, W: Array) -> tuple[Aligned, Aligned, float]:
    """Return the best H for a given W, exactly, with labels and the squared error; one pass.

    Nothing but V and W goes into it, not even a first guess, so that even where several H are
    best it is always the same one.

    Returns
    -------
    H : array (K, N)
    labels : array (N,), integers
        argmax_k ||w_k|| H(k, n): the component that contributes most to each sample; -1 for a
        sample without any.
    squared_error : float
        ||V - W H||^2, exact to rounding.
    """
    require_data_matrix(V)
    W = np.ascontiguousarray(W, dtype=np.float64)  # the order decides the last bits of W'W
    with V.own_threads():
        Ht, labels, squared = V.sweep(_finish_block, V.norms_squared, W=W, G=W.T @ W)
    return Ht.T, labels, float(squared)


def _zeros(samples: range, *, K: int, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.zeros((len(samples), K), dtype), None


def _scaled(
    samples: range, H: Array, *, factor: float | Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    return np.ascontiguousarray(H * factor, dtype), None


def _units(W: Array) -> Array:
    return np.array([_unit(float(size)) for size in W.max(axis=0)])


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
    block: Block,
    H: Array,
    *before: Array,
    W: Array,
    G: Array,
    unit: float,
    update: Update,
    beta: float = 0.0,
    floor: float = 0.0,
) -> tuple[Any, ...]:
    """Update a block's piece of H (n, K) and its sums VH' (F, K), HH' (K, K), <V, WH>.

    If H `before` is given, the new H is moved further by `beta` times what it has moved since,
    and follows in the result as it was until then.
    """
    C = products(block, W)
    if unit != 1:
        C = C / C.dtype.type(unit)
    H = _updated(update, G, C, H)
    kept = (H,) if before else ()
    if beta:
        step = H.dtype.type(beta)
        H = np.maximum(H + step * (H - before[0]), H.dtype.type(floor))
    exact = H.astype(np.float64, copy=False)
    VH = weighted_sums(block, H).astype(np.float64, copy=False)
    if unit != 1:
        VH /= unit
    inner = float(np.vdot(C.astype(np.float64, copy=False), exact))
    return H, *kept, (VH, exact.T @ exact, inner)


def _finish_block(
    block: Block, squared: Array, *, W: Array, G: Array
) -> tuple[Array, Array, float]:
    exact = block.astype(np.float64, copy=False)
    C = products(exact, W)
    H = nnls(G, C).astype(block.dtype, copy=False)
    weights = np.sqrt(np.diagonal(G)) * H
    labels = np.where(weights.max(axis=1) > 0, weights.argmax(axis=1), -1)
    rest = residual_squared(exact, squared, C, G, W, H.astype(np.float64, copy=False))
    return H, labels, float(rest.sum())

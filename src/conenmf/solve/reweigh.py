"""Robust least squares: fits that a few wild samples, or wild entries, do not decide.

Least squares follows whatever is large, so a few samples that are not mixtures of the components
can take a component. A robust fit minimises

    sum_n u_n rho(r_n / s)

where r_n is the distance of sample n from the cone of the components, u_n its weight, and s a scale
that is estimated before the sum is minimised. For entries the sum is over the entries, and r
are their residuals in units of their uncertainty, if one is given.

- "samples": Tukey's biweight, rho(t) = (1 - (1 - t^2)^3) / 3 up to 1, and 1/3 beyond. It
  redescends: a sample beyond s does not pull at all. s is a multiple of the median residual norm.
- "entries": the loss of Huber, rho(t) = t^2 up to 1 and 2t - 1 beyond, which is convex in each
  factor. s is a multiple of the median residual of the entries that are not fitted exactly.

Both are concave functions of t^2. So weighted least squares with the weights rho'(t) / 2t is an
upper bound that touches the sum at the present factors, and each weighted fit lowers the sum
(iteratively reweighted least squares).

A redescending loss has local minima, so the start decides. It is the fit of K components to samples
of equal norm, where no sample counts more than others, or that of K + 1 components without one of
them, whichever is best by the objective: wild samples that are alike take one component of K + 1,
and the other samples do not need it. s is estimated again after the first weighted fit. A fit of
robust entries starts from weights with which no entry counts more than a typical one.

This module has no penalties, which would need weights of their own, and no other losses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arguments import choice
from ..data.blocks import Block, dense, exact, is_sparse, norms, products, residual_squared
from ..data.entries import EntryWeights
from ..data.known import observed_only, weigh_samples
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..data.resample import evenly_spaced
from ..errors import NotAvailableError, Option
from ..kernels import clock
from ..text import counted
from ..types import Array
from .problem import Problem
from .run import Callback, Run, Stopping, StopReason
from .solvers import Solver

KINDS = ("samples", "entries")
ENDED = (StopReason.CALLBACK, StopReason.MAX_TIME)  # reasons to start no other run

_TUKEY = 4.0  # s as a multiple of the median residual norm
_HUBER = 2.0  # s as a multiple of the median absolute residual, which is 1.35 sigma of normal noise
_DARK = 0.03  # shorter samples, compared with s for zero factors, are not lengthened beyond it
_EXACT = 1e-3  # of the root mean square: the least median residual that a scale is made of
_MAX_ROUNDS = 40
_ROUND = 10  # iterations with the same weights
_TOL = 1e-4  # relative fall of the objective in a round that ends the rounds
_MAX_SAMPLES = 2000  # in which the median of entries is taken, and directions are compared

_LOW = 0.1  # weight below which a sample counts as wild: its residual is 3.3 times the median
_ALIKE = 0.75  # of the squared unit residuals of wild samples in one direction
_MIN_ALIKE = 3  # wild samples whose directions are compared


@dataclass(frozen=True, eq=False)
class Robust:
    """What a robust fit of V minimises.

    Attributes
    ----------
    kind : {"samples", "entries"}
    V : DataMatrix (F, N)
        The data, whose samples may have weights.
    problem : Problem
    """

    kind: str
    V: DataMatrix
    problem: Problem

    def __post_init__(self) -> None:
        """Reject what a robust fit does not have."""
        choice("robust", self.kind, KINDS)
        asked = Option("robust", self.kind)
        if "robust" not in self.problem.loss.constraints:
            other = Option("loss", "frobenius")
            raise NotAvailableError(asked, " is for least squares: use ", other)
        is_structured = self.problem.groups is not None or self.problem.symmetric
        if is_structured or not self.problem.penalties.are_none:
            what = " takes no penalties, coefficients that sum to one, groups or symmetric factors"
            raise NotAvailableError(asked, what, ": leave out one of both")
        if self.is_of_samples and self.V.observed is not None:
            problem = " takes no missing or weighted entries: use "
            raise NotAvailableError(asked, problem, Option("robust", "entries"), ", or fill them")
        if not self.is_of_samples and is_sparse(self.V.columns([0])):
            problem = " needs a weight for each entry, zeros included, and the data are sparse: "
            advice = ", or give a dense array"
            raise NotAvailableError(asked, problem, "use ", Option("robust", "samples"), advice)

    @property
    def is_of_samples(self) -> bool:
        """Whether samples are weighted, not entries."""
        return self.kind == "samples"

    @cached_property
    def own(self) -> DataMatrix:
        """The data without weights of samples."""
        return self.V.original

    @cached_property
    def counts(self) -> Array:
        """The weights of the samples before the robust ones, (N,)."""
        return np.ones(self.own.n_samples) if self.V.unweighed is None else self.V.unweighed.weights

    def first(self) -> DataMatrix:
        """Return the data to begin with: samples of equal norm, or no entry far above others."""
        nothing = np.zeros((1, self.own.n_samples))
        squares = self.squares(np.zeros((self.own.n_features, 1)), nothing)
        scale = self.scale(squares)
        least = _DARK**2 if self.is_of_samples else 1.0
        return self.weighed(
            self.own.by_rows(lambda _, rows: 1.0 / np.maximum(rows / scale, least), squares)
        )

    def squares(self, W: Array, H: Aligned) -> Aligned:
        """Return the squared residuals of samples (N,), or of entries (N, F)."""
        W = exact(W)
        if self.is_of_samples:
            step = _of_samples
            return np.asarray(self.own.sweep(step, self.own.norms_squared, H.T, W=W)[0])
        return self.own.sweep(_of_entries, H.T, *self.own.aligned_weights, W=W)[0]

    def scale(self, squares: Aligned) -> float:
        """Return s^2 for squared residuals, by the median of those that are not 0."""
        least = _EXACT**2 * self.V.total / self.V.n_samples
        if self.is_of_samples:
            middle = _median(squares, self.counts * (squares > 0))
            return _TUKEY**2 * max(middle, least)
        some = evenly_spaced(self.own.n_samples, _MAX_SAMPLES)
        found = np.asarray(squares[some])
        found = found[found > 0]
        middle = float(np.median(found)) if found.size else 0.0
        return _HUBER**2 * max(middle, least / self.V.n_features)

    def value(self, squares: Aligned, scale: float) -> float:
        """Return the objective, the sum of rho."""
        rho = _tukey if self.is_of_samples else _huber

        def total(index: range, rows: Array, counts: Array) -> tuple[float]:
            return (float(counts @ rho(rows / scale).reshape(len(rows), -1).sum(axis=1)),)

        return float(self.own.map(total, squares, self.counts)[0])

    def weights(self, squares: Aligned, scale: float) -> Aligned:
        """Return the weights rho'(t) / 2t of samples, or of entries."""
        if self.is_of_samples:
            return np.maximum(1.0 - squares / scale, 0.0) ** 2
        return self.own.by_rows(lambda _, rows: 1.0 / np.sqrt(np.maximum(rows / scale, 1)), squares)

    def weighed(self, weights: Aligned) -> DataMatrix:
        """Return the data with these weights of samples or entries."""
        if self.is_of_samples:
            return weigh_samples(self.V, weights)
        return observed_only(self.V, weights=weights)

    def coefficients(self, view: DataMatrix, W: Array) -> Aligned:
        """Return the exact H (K, N) of the original samples."""
        V = view.original
        return self.problem.bind(V).coefficients(V, W)[0]

    def without_one(self, W: Array, more: Array) -> Array:
        """Return W (F, K), or the K + 1 components `more` without one: the best by the objective.

        Wild samples that are alike may take a component of W, although it costs more samples than
        they are. With one component more there is room for both.
        """

        def squares_of(W: Array) -> Aligned:
            return self.squares(W, self.coefficients(self.V, W))

        scale = self.scale(squares_of(more))
        left_out = range(self.problem.n_fixed, more.shape[1])
        rivals = [W, *(np.delete(more, k, axis=1) for k in left_out)]
        return min(rivals, key=lambda one: self.value(squares_of(one), scale))


class Reweighed(NamedTuple):
    """The end of the rounds of weighted fits.

    Attributes
    ----------
    view : DataMatrix (F, N)
        The data with the last weights.
    W, H : arrays (F, K), (K, N)
    weights : array (N,), or (N, F)
    scale : float
        s.
    values : list of float
        The objective before the first round, and after each.
    reason : StopReason or None
        Why a run ended early.
    """

    view: DataMatrix
    W: Array
    H: Aligned
    weights: Aligned
    scale: float
    values: list[float]
    reason: StopReason | None


def reweigh(
    robust: Robust,
    W: Array,
    solver: Solver,
    stopping: Stopping,
    callback: Callback | None = None,
) -> Reweighed:
    """Minimise the robust objective from W (F, K) by weighted fits, each from the last factors."""
    rounds = Stopping(stopping.tol, max_iter=min(_ROUND, stopping.max_iter))
    end = _state(robust, robust.V, W)
    scale = robust.scale(end.squares)
    if robust.is_of_samples and stopping.max_iter:
        end = _round(robust, end, scale, solver, rounds, callback)
        scale = robust.scale(end.squares)
    values = [robust.value(end.squares, scale)]
    began = clock()
    while len(values) <= _MAX_ROUNDS and stopping.max_iter and end.reason not in ENDED:
        if stopping.after(clock() - began).max_time == 0:
            end = end._replace(reason=StopReason.MAX_TIME)
            break
        following = _round(robust, end, scale, solver, rounds, callback)
        value = robust.value(following.squares, scale)
        if value > values[-1]:  # by rounding
            break
        end = following
        values.append(value)
        if values[-2] - value <= _TOL * value:
            break
    weights = robust.weights(end.squares, scale)
    view = robust.weighed(weights)
    return Reweighed(view, end.W, end.H, weights, math.sqrt(scale), values, end.reason)


class _State(NamedTuple):
    """The factors between two rounds, and their squared residuals."""

    W: Array
    H: Aligned
    squares: Aligned
    reason: StopReason | None = None  # of the last run


def _state(robust: Robust, view: DataMatrix, W: Array, reason: StopReason | None = None) -> _State:
    """Return the factors W and the exact H of weighted data."""
    H = robust.coefficients(view, W)
    return _State(W, H, robust.squares(W, H), reason)


def _round(
    robust: Robust,
    state: _State,
    scale: float,
    solver: Solver,
    stopping: Stopping,
    callback: Callback | None,
) -> _State:
    """Return the factors after one weighted fit."""
    view = robust.weighed(robust.weights(state.squares, scale))
    data, problem = robust.problem.bind(view).iterated(view)
    H = state.H if view.unweighed is None else view.unweighed.weighed(state.H)
    run = Run(problem.objective(data), state.W, H, solver, stopping, callback=callback)
    run.run()
    W = problem.restored(run.factors()[0])
    return _state(robust, view, W, run.reason)


def in_words(robust: Robust, found: Reweighed) -> str:
    """Say how many samples count little, and whether they are alike; "" if there are none."""
    low = np.flatnonzero(found.weights < _LOW)
    if not (robust.is_of_samples and low.size):
        return ""
    said = f"{counted(low.size, 'wild sample')} of {len(found.weights)} with a weight below {_LOW}"
    if are_alike(robust.own, found.W, found.H, low):
        said += "; these samples are alike: outliers or one more component"
    return said


def are_alike(V: DataMatrix, W: Array, H: Aligned, indices: Array) -> bool:
    """Return whether the residuals of at least three samples share a direction.

    They do if one direction has three quarters of the squares of the unit residuals.

    >>> from conenmf import from_columns
    >>> V = from_columns([[1.0, 0.0, 0.0, 0.1], [0.0, 5.0, 9.0, 7.0], [0.0, 0.0, 1.0, 0.0]])
    >>> W, H = np.array([[1.0], [0.0], [0.0]]), np.array([[1.0, 0.0, 0.0, 0.1]])
    >>> are_alike(V, W, H, np.array([1, 2, 3]))
    True
    """
    if len(indices) < _MIN_ALIKE:
        return False
    indices = indices[evenly_spaced(len(indices), _MAX_SAMPLES)]
    rows = dense(exact(V.columns(indices))).T - exact(np.asarray(H.T[indices])) @ exact(W).T
    rows /= norms((rows**2).sum(axis=1))[:, None]
    return bool(np.linalg.norm(rows, 2) ** 2 > _ALIKE * len(rows))


# --- steps and small functions -----------------------------------------------------------------


def _of_samples(block: Block, squared: Array, H: Array, *, W: Array) -> PerSample:
    """Step: return the squared residual norm of each sample."""
    entries = exact(block)
    C = products(entries, W)
    return residual_squared(entries, squared, C, W.T @ W, W, exact(H)), None


def _of_entries(block: Block, H: Array, weights: EntryWeights = None, *, W: Array) -> PerSample:
    """Step: return the squared residual of each entry, times its weight."""
    squares = (dense(exact(block)).T - exact(H) @ W.T) ** 2
    return (squares if weights is None else weights * squares), None


def _median(values: Array, counts: Array) -> float:
    """Return the lower median, where a value of count 2 is there twice.

    >>> _median(np.array([5.0, 1.0, 3.0]), np.array([1.0, 1.0, 3.0]))
    3.0
    """
    order = values.argsort()
    below = counts[order].cumsum()
    return float(values[order[np.searchsorted(below, below[-1] / 2)]])


def _tukey(squares: Array) -> Array:
    return (1.0 - np.maximum(1.0 - squares, 0.0) ** 3) / 3


def _huber(squares: Array) -> Array:
    return np.where(squares <= 1, squares, 2 * np.sqrt(squares) - 1)

"""The Itakura-Saito divergence of W H from V: sum v / x - log(v / x) - 1, for power spectra.

The divergence weighs quiet and loud entries equally; all entries must be positive. The
multiplicative updates of Fevotte and Idier (Neural Computation 23, 2011) never raise it and end at
a stationary point. No lower bound is known.

*Coefficients.* The divergence is not convex in H, so a sample may have several local minima.
`finish` and `transform` update the coefficients of each sample from K + 1 starts, equal shares of
all components and each component at the head, and continue from the best one until they settle. So
the coefficients depend on V and W alone. For some samples the coefficients of the run may still be
better. A fit keeps those, so its result is never worse than its run.

*Zeros.* Updates cannot change zeros, and a rate of zero has no divergence. So a feature or a sample
whose rates vanish at the start of a run gets a little of all components. Other zeros stay, and a
component that is zero has coefficients of zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...data.blocks import Block, dense, exact, over
from ...data.entries import pack, unpack
from ...data.matrix import Aligned, DataMatrix, PerSample
from ...errors import DataError, Option
from ...linalg.nnls import nnls
from ...types import Array, DType, Facts, Interval
from ..coefficients import (
    Finish,
    feature_folds,
    own_order,
    predicted_share,
    sorted_rows,
    sorting,
)
from ..constraints import times_gram
from ..inits import Generator, Init, Start, users_own
from ..loss import Loss, Move, Objective, Rows, Stepped, Updated, Words
from ..solvers import ChosenSolver, Solver, Update

_IMPOSSIBLE = 1e-300  # replaces a fitted value of 0
_STEPS = 3000  # largest number of steps to a minimum
_SETTLED = 1e-9  # of the largest coefficient of a sample: stop when all change by less
_HALVINGS = 40  # of a step
_LOWEST_RATE = 1e-120  # of an entry at the scale 1: the curvature at lower rates would overflow
_FIRST_STEPS = 30  # updates from each start, before the best one continues
_HEAD_SHARE = 0.9  # of the coefficients of a start belong to one component
_LOWER = 1e-9  # of the number of features: a divergence that is lower by more is another minimum
_LIFTED_SHARE = 0.01  # of the mean, added to an init because updates cannot change zeros
_VANISHING = 1e-30  # of the rate at the mean composition: smaller rates count as zero


def multiplicative(V: Array, W: Array, Y: Array) -> Array:
    """Return Y (n, K) multiplied by the square root of (V / X^2)'W / (1 / X)'W, where X = W Y'."""
    X = W @ Y.T
    return Y * np.sqrt(over((V / X / X).T @ W, (1 / X).T @ W))


_SOLVERS = {"mult": Solver(multiplicative, first="H")}


class ItakuraSaito(Loss):
    """A loss with one solver; errors are relative to the divergence of V from its mean sample."""

    name = "itakura-saito"
    solvers = _SOLVERS
    constraints = frozenset({"sample weights"})  # whole numbers, see `weigh_samples`
    degree = 0
    words = Words(
        share="share of the divergence left",
        of_runs="relative divergence",
        summary="divergence {objective:.6g}{known}, {error:.4g} of that from the mean sample",
        help="itakura-saito for positive power spectra",
    )

    def on(
        self, V: DataMatrix, *given: Any, rescale: bool = True, **more: Any
    ) -> SpectralDivergence:
        """Return the divergence of W H from V, in its own units."""
        return SpectralDivergence(self, V, *given, **more | {"rescale": False})

    def near(self, H: Aligned) -> Aligned:
        """Return H', because a sample may have several local minima."""
        return H.T

    def sample_errors(self, entries: Array, fitted: Array, weights: Array) -> Array:
        """Return the divergence of samples, up to a constant for each."""
        fitted = np.maximum(fitted, _IMPOSSIBLE)
        return np.asarray((weights * (entries / fitted + np.log(fitted))).sum(axis=0))

    def inits(self, *given: object) -> tuple[Init, ...]:
        """Start with cones."""
        return ("cr1",)

    def initialize(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver = None,
        rng: Generator = None,
        **known: Any,
    ) -> Start:
        """Return W and H of an init, raised above zero; a named init has equal shares in H."""
        if not isinstance(init, str):
            W, H, name, *_ = users_own(V, K, init, rng)
            W = self.admissible(V, W)
            return Start(W, _equal_coefficients(V, W) if H is None else _raised(V, W, H), name)
        start = super().initialize(V, K, init, solver, rng, **known)
        W = start.W + V.dtype.type(_LIFTED_SHARE * start.W.mean())
        return start._replace(W=W, H=_equal_coefficients(V, W))

    def admissible(self, V: DataMatrix, W: Array) -> Array:
        """Return W with a little of every component in features without any component."""
        mean = V.sweep(_sums_and_logs)[0][0] / V.n_samples
        W = exact(W)
        rates = W.sum(axis=1) / mean
        lost = rates <= _VANISHING * rates.max()
        W = np.where(lost[:, None], _LIFTED_SHARE * np.outer(mean, W.sum(axis=0) / mean.sum()), W)
        return np.ascontiguousarray(W, V.dtype)

    def held_out(self, V: DataMatrix, W: Array, weights: Array | None = None) -> float:
        """Return the share of the divergence that other features explain; one pass.

        1 - D / D0, where D is the divergence of the entries from the rates predicted by other
        features, and D0 is the divergence from the mean of the components at the best scale for
        each sample. Components sum to one here, and each prediction contains a tenth of their mean,
        because a low rate may cost as much as all other entries. The share is at most 1, and below
        0 if the components predict worse than their mean. If D0 is zero, the share is 1.

        >>> from conenmf import from_columns
        >>> W = np.array([[8.0, 1.0], [8.0, 1.0], [1.0, 8.0], [1.0, 8.0]])
        >>> V = from_columns([[9.0, 1.0], [9.0, 1.0], [1.0, 5.0], [1.0, 5.0]])
        >>> ITAKURA_SAITO.held_out(V, W) > 0.5
        True
        """
        _require_positive(self, V)
        W = self.admissible(V, exact(W)).astype(float)
        folds = feature_folds(V.n_features)
        return predicted_share(V, weights, _predict, W=over(W, W.sum(axis=0)), folds=folds)


class SpectralSums(NamedTuple):
    """The divergence, V / X^2 H' (F, K), 1 / X H' (F, K), and the row sums of H (K,)."""

    value: float
    above: Array
    below: Array
    H: Array

    @classmethod
    def of(cls, V: Array, W: Array, H: Array) -> SpectralSums:
        """Return the sums of samples V (F, n) with coefficients H (n, K)."""
        X = W @ H.T
        ratios = V / X
        value = float((ratios - (np.log(V) - np.log(X))).sum()) - V.size
        return cls(value, (ratios / X) @ H, (1 / X) @ H, H.sum(axis=0))


class SpectralShared(NamedTuple):
    """W (F, K) in float64."""

    W: Array


class SpectralDivergence(Objective[SpectralSums, SpectralShared]):
    """The divergence, with sums of v / x^2 and 1 / x for the update of W."""

    Sums = SpectralSums

    def _largest_value(self) -> float:
        """Return the divergence of V from the mean of its samples; one pass."""
        V = self.V
        _require_positive(self.loss, V)
        ((sums, logs),) = V.sweep(_sums_and_logs)
        means = np.log(sums / V.n_samples).sum() * V.n_samples - logs
        return float(means) if means > 1e-12 else float(V.n_entries)

    @staticmethod
    def step(
        block: Block, rows: Rows, shared: SpectralShared, move: Move, C: Array | None = None
    ) -> Stepped[SpectralSums]:
        """Update a block's rows of H, and return sums at the new ones; see `Objective`."""
        V = exact(dense(block))
        H = move.update(V, shared.W, exact(rows.H)).astype(rows.H.dtype, copy=False)
        return Stepped(H, H, SpectralSums.of(V, shared.W, exact(H)))

    def shared(self, W: Array, number: int = 0, gram: Array | None = None) -> SpectralShared:
        """Return W in float64."""
        return SpectralShared(exact(W))

    def update_W(
        self,
        sums: SpectralSums,
        shared: SpectralShared | None,
        W: Array,
        Ht: Aligned,
        update: Update,
        C: Array | None = None,
    ) -> Updated:
        """Return W times the square root of (V / X^2) H' / (1 / X) H'."""
        updated = np.asarray(W * np.sqrt(over(sums.above, sums.below)), dtype=W.dtype)
        return Updated(updated, self.value(sums, W, Ht))

    def value(self, sums: SpectralSums, W: Array, Ht: Aligned) -> float:
        """Return the divergence, at least 0 in spite of rounding."""
        return max(float(sums.value), 0.0)

    def finish(self, W: Array, *, sort: bool = True, near: Aligned | None = None) -> Finish:
        """Return H at a stationary point; the residual is its distance from one.

        Coefficients `near` those of a run are kept for samples where they are better.
        """
        V = self.V
        W = exact(W)
        rows = () if near is None else (near,)
        with V.own_threads():
            how: Facts = {"W": W, "own": own_order(W), "dtype": V.dtype}
            Ht, (sums, slopes) = V.sweep(_finish, *rows, **how)
            sizes = W.sum(axis=0)
            shares = sizes * sums.H / (sizes @ sums.H)
            order = sorting(shares, 0 if sort else len(shares))
            Ht, labels, _ = V.map(sorted_rows, Ht, V.norms_squared, order=order, sizes=sizes)
        slopes += np.abs(W * (sums.below - sums.above)).sum()
        value = max(sums.value, 0.0)
        residual = float(slopes) / V.n_entries
        return Finish(Ht.T, labels, value, value, residual, order, shares[order])


def _finish(
    block: Block, near: Array | None = None, *, W: Array, own: Array, dtype: DType
) -> tuple[Array, tuple[SpectralSums, float]]:
    """Step: return the best H that is found, with components in their `own` order."""
    V = exact(dense(block))
    near = None if near is None else near[:, own]
    found = _best_rows(V, np.ascontiguousarray(W[:, own]), near)
    returned = np.ascontiguousarray(found[:, np.argsort(own)], dtype)
    H = exact(returned)
    X = W @ H.T
    slopes = np.abs(H * ((1 / X - V / X / X).T @ W)).sum()
    return returned, (SpectralSums.of(V, W, H), float(slopes))


def _best_rows(V: Array, W: Array, near: Array | None = None) -> Array:
    """Return the coefficients (n, K) to which the best of K + 1 starts leads, or a better `near`.

    Features and samples are first divided by their scales, which changes no divergence by more than
    a constant.
    """
    K = W.shape[1]
    of_features = W.sum(axis=1, keepdims=True)
    W = W / of_features
    V = V / of_features
    of_samples = V.mean(axis=0)
    V = V / of_samples
    is_used = W.any(axis=0)
    starts = [np.ones(K), *(_HEAD_SHARE * np.eye(K) + (1 - _HEAD_SHARE) / K)[is_used]]
    best = None
    for shares in starts:
        H = np.outer((V / (W @ shares)[:, None]).mean(axis=0), shares * is_used)
        for _ in range(_FIRST_STEPS):
            H = multiplicative(V, W, H)
        best = H if best is None else _lower(V, W, best, H)
    assert best is not None
    best = _settled(V, W, best)
    if near is not None:
        best = _lower(V, W, best, _settled(V, W, exact(near) / of_samples[:, None] * is_used))
    return best * of_samples[:, None]


def _lower(V: Array, W: Array, H: Array, other: Array) -> Array:
    """Return H with the rows of another where these have a lower divergence."""
    is_lower = _divergences(V, W, other) < _divergences(V, W, H) - _LOWER * len(V)
    return np.where(is_lower[:, None], other, H)


def _settled(V: Array, W: Array, H: Array) -> Array:
    """Return coefficients (n, K) at a minimum, after Fisher scoring from H.

    A step minimises the quadratic model with the curvature sum_f w_f w_f' / x_f^2 over y >= 0. It
    is halved until the divergence falls.
    """
    K = W.shape[1]
    pairs = pack(W)
    H = np.array(H)
    rows = np.arange(len(H))
    for _ in range(_STEPS):
        now = H[rows]
        X = np.maximum(W @ now.T, _LOWEST_RATE)
        grams = unpack((1 / X**2).T @ pairs, K)
        slopes = ((1 - V / X) / X).T @ W
        step = nnls(grams, times_gram(now, grams) - slopes) - now
        moved = now + _lengths(V, W, now, step)[:, None] * step
        H[rows] = np.maximum(moved, 0.0)
        moves = np.abs(moved - now).max(axis=1) > _SETTLED * now.max(axis=1)
        if not moves.any():
            break
        rows = rows[moves]
        V = V[:, moves]
    return H


def _lengths(V: Array, W: Array, H: Array, step: Array) -> Array:
    """Return the longest of 1, 1/2, 1/4, ... with which the divergence of a sample falls, or 0."""
    before = _divergences(V, W, H)
    lengths = np.ones(len(H))
    for _ in range(_HALVINGS):
        rises = ~(_divergences(V, W, np.maximum(H + lengths[:, None] * step, 0.0)) <= before)
        if not rises.any():
            return lengths
        lengths[rises] /= 2
    return np.where(rises, 0.0, lengths)


def _divergences(V: Array, W: Array, H: Array) -> Array:
    """Return the divergence of each sample, up to a constant; infinite if a rate is zero."""
    X = W @ H.T
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (V / X + np.log(X)).sum(axis=0)
    return np.where(np.isfinite(values), values, np.inf)


def _equal(block: Block, *, W: Array, dtype: DType) -> PerSample:
    """Step: return equal coefficients for all components, at the best scale for each sample."""
    sizes = (exact(dense(block)) / W.sum(axis=1)[:, None]).mean(axis=0)
    return np.repeat(sizes[:, None], W.shape[1], axis=1).astype(dtype), None


def _equal_coefficients(V: DataMatrix, W: Array) -> Aligned:
    return V.sweep(_equal, W=exact(W), dtype=V.dtype)[0].T


def _raised(V: DataMatrix, W: Array, H: Aligned) -> Aligned:
    """Return H (K, N) with a little of all components in samples where a rate vanishes."""
    equal = _equal_coefficients(V, W)
    Ht, _ = V.sweep(_raised_rows, V.align(H.T), equal.T, W=exact(W))
    return Ht.T


def _raised_rows(block: Block, H: Array, equal: Array, *, W: Array) -> PerSample:
    rates = exact(H) @ W.T
    lost = (rates <= _VANISHING * (exact(equal) @ W.T)).any(axis=1)
    return np.where(lost[:, None], H + H.dtype.type(_LIFTED_SHARE) * equal, H), None


def _require_positive(loss: Loss, V: DataMatrix) -> None:
    if V.n_entries < V.n_features * V.n_samples or not V.measures.lowest > 0:
        problem = " needs positive entries, and some are zero: add a small number to dense "
        advice = "data, or use another loss; sparse data have zeros"
        raise DataError(Option("loss", loss.name), problem + advice)


def _sums_and_logs(block: Block) -> tuple[tuple[Array, float]]:
    V = exact(dense(block))
    return ((V.sum(axis=1), float(np.log(V).sum())),)


_MIXED_SHARE = 0.1  # of the rates of a sample, distributed like the mean of the components


def _predict(block: Block, weights: Array, *, W: Array, folds: Array) -> tuple[Interval]:
    V = exact(dense(block))
    mean = W.mean(axis=1, keepdims=True)
    rates = np.empty_like(V)
    for fold in range(folds.max() + 1):
        hidden = folds == fold
        if hidden.all():  # nothing predicts a single feature
            return ((0.0, 0.0),)
        sizes = (V[~hidden] / mean[~hidden]).mean(axis=0)
        predicted = W[hidden] @ _best_rows(V[~hidden], W[~hidden]).T
        rates[hidden] = (1 - _MIXED_SHARE) * predicted
        rates[hidden] += _MIXED_SHARE * mean[hidden] * sizes
    missed = _from_rates(V, rates)
    base = _from_rates(V, mean * (V / mean).mean(axis=0))
    return ((float(weights @ missed), float(weights @ base)),)


def _from_rates(V: Array, rates: Array) -> Array:
    ratios = V / rates
    return np.asarray((ratios - np.log(ratios) - 1).sum(axis=0))


ITAKURA_SAITO = ItakuraSaito()

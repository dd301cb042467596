"""The beta divergences of W H from V, such as Itakura-Saito's (beta = 0) for power spectra.

    d(v | x) = v^beta / (beta (beta - 1)) + x^beta / beta - v x^(beta - 1) / (beta - 1),
    d(v | x) = v / x - log(v / x) - 1 for beta = 0.

The smaller beta is, the more quiet entries count beside loud ones; d(cv | cx) = c^beta d(v | x).
The multiplicative updates of Fevotte and Idier (Neural Computation 23, 2011) never raise it. No
lower bound is known. Betas 1 and 2 are the Kullback-Leibler divergence and half the squared error,
which have files of their own.

*Coefficients.* From beta 1 to 2 the divergence is convex in H. For another beta a sample may have
several local minima: `finish` and `transform` then update the coefficients of each sample from
K + 1 starts, equal shares of all components and each component at the head, and continue from the
best one until they settle. So the coefficients depend on V and W alone. For some samples the
coefficients of the run may still be better. A fit keeps those, so its result is never worse than
its run.

*Zeros.* V must be positive unless beta is above 0. Updates cannot change zeros of a factor. Below
1, a rate of zero has an infinite divergence, so a feature or a sample whose rates vanish at the
start of a run gets a little of all components. Between 0 and 1, rates of zeros fall without end:
updates count rates below a floor as the floor, and set entries below another to zero, with the
numbers of scikit-learn's solver "mu".
"""

from __future__ import annotations

from functools import cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from ...data.blocks import Block, dense, exact, over
from ...data.entries import pack, unpack
from ...data.matrix import Aligned, DataMatrix, PerSample
from ...errors import DataError, Option
from ...linalg.nnls import nnls
from ...types import Array, DType, Facts, Interval, Pair
from ..coefficients import (
    Finish,
    feature_folds,
    nearby_power,
    own_order,
    predicted_share,
    sorted_rows,
    sorting,
)
from ..constraints import times_gram
from ..inits import Generator, Init, Start, users_own
from ..loss import Loss, Move, Objective, Rows, Stepped, Updated, Updates, Words
from ..solvers import ChosenSolver, Solver, Update

_IMPOSSIBLE = 1e-300  # replaces a fitted value of 0
_RATE_FLOOR = float(np.finfo(np.float32).eps)  # of scikit-learn's updates
_ENTRY_FLOOR = float(np.finfo(float).eps)  # entries below it become zero, as there
_STEPS = 3000  # largest number of steps to a minimum
_SETTLED = 1e-9  # of the largest coefficient of a sample: stop when all change by less
_HALVINGS = 40  # of a step
_LOWEST_POWER = 1e-240  # of rates: the curvature at lower rates would overflow
_FIRST_STEPS = 30  # updates from each start, before the best one continues
_HEAD_SHARE = 0.9  # of the coefficients of a start belong to one component
_LOWER = 1e-9  # of the number of features: a divergence that is lower by more is another minimum
_LIFTED_SHARE = 0.01  # of the mean, added to an init because updates cannot change zeros
_VANISHING = 1e-30  # of the rate at the mean composition: smaller rates count as zero


def multiplicative(V: Array, W: Array, Y: Array, *, beta: float = 0.0, floor: float = 0.0) -> Array:
    """Return Y (n, K) times a power of (V X^(beta - 2))'W / (X^(beta - 1))'W, where X = W Y'.

    Betas between 0 and 1 replace lower rates by the floor, and betas up to 2 in the numerator.
    """
    above, below = _powers(V, W @ Y.T, beta, floor)
    return _multiplied(Y, above.T @ W, below.T @ W, beta, floor)


def _powers(V: Array, X: Array, beta: float, floor: float = 0.0) -> Pair:
    """Return V X^(beta - 2) and X^(beta - 1)."""
    raised = np.maximum(X, floor) if beta < 2 else X
    powers = raised ** (beta - 1)
    return over(V, raised) * powers, powers if beta < 1 else X ** (beta - 1)


def _multiplied(Y: Array, above: Array, below: Array, beta: float, floor: float) -> Array:
    """Return Y times above / below, to the power with which the divergence never rises."""
    exponent = 1.0
    if beta < 1:
        exponent = 1 / (2 - beta)
    elif beta > 2:
        exponent = 1 / (beta - 1)
    updated = Y * over(above, below) ** exponent
    if floor and beta < 1:
        updated[updated < floor * (_ENTRY_FLOOR / _RATE_FLOOR)] = 0.0
    return updated


class BetaDivergence(Loss):
    """The loss of one `beta`; errors are relative to the divergence of V from its mean sample."""

    name = "itakura-saito"
    constraints = frozenset({"sample weights"})  # whole numbers, see `weigh_samples`
    degree = 0
    words = Words(
        aliases=("is",),
        share="share of the divergence left",
        of_runs="relative divergence",
        summary="divergence {objective:.6g}{known}, {error:.4g} of that from the mean sample",
        help="itakura-saito for positive power spectra",
        advised="poisson",
    )

    def __init__(self, beta: float = 0.0) -> None:
        self.beta = beta
        self.solvers = {"mult": Solver(partial(multiplicative, beta=beta), first="H")}
        if beta:
            self.name = f"beta={beta!r}"
        if beta > 0:
            self.constraints = self.constraints | {"sparse"}

    def on(self, V: DataMatrix, *given: Any, rescale: bool = True, **more: Any) -> BetaObjective:
        """Return the divergence of W H from V, in its own units."""
        return BetaObjective(self, V, *given, **more | {"rescale": False})

    def near(self, H: Aligned) -> Aligned | None:
        """Return H' if a sample may have several local minima."""
        return None if 1 <= self.beta <= 2 else H.T  # convex in H

    def sample_errors(self, entries: Array, fitted: Array, weights: Array) -> Array:
        """Return the divergence of samples, up to a constant for each."""
        fitted = np.maximum(fitted, _IMPOSSIBLE)
        return np.asarray((weights * _of_rates(entries, fitted, self.beta)).sum(axis=0))

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
            if H is None:
                H = _equal_coefficients(V, W, self.beta)
            elif self.beta < 1:
                H = _raised(V, W, H, self.beta)
            return Start(W, H, name)
        start = super().initialize(V, K, init, solver, rng, **known)
        W = start.W + V.dtype.type(_LIFTED_SHARE * start.W.mean())
        return start._replace(W=W, H=_equal_coefficients(V, W, self.beta))

    def admissible(self, V: DataMatrix, W: Array) -> Array:
        """Return W with a little of every component in features without any component."""
        if self.beta > 1:
            return np.ascontiguousarray(W, V.dtype)
        mean = V.sweep(_sums_and_powers, beta=self.beta)[0][0] / V.n_samples
        W = exact(W)
        rates = over(W.sum(axis=1), mean)
        lost = (mean > 0) & (rates <= _VANISHING * rates.max())
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
        self.require_entries(V)
        W = self.admissible(V, exact(W)).astype(float)
        folds = feature_folds(V.n_features)
        W = over(W, W.sum(axis=0))
        return predicted_share(V, weights, _predict, W=W, folds=folds, beta=self.beta)

    def require_entries(self, V: DataMatrix) -> None:
        """Raise an error for zeros where the divergence of a zero is infinite."""
        has_zeros = V.n_entries < V.n_features * V.n_samples or not V.measures.lowest > 0
        if self.beta <= 0 and has_zeros:
            problem = " needs positive entries, and some are zero: add a small number to dense "
            advice = "data, or use another loss; sparse data have zeros"
            raise DataError(Option("loss", self.name), problem + advice)


class BetaSums(NamedTuple):
    """The divergence, V X^(beta - 2) H' and X^(beta - 1) H' (F, K), and the row sums of H (K,)."""

    value: float
    above: Array
    below: Array
    H: Array

    @classmethod
    def of(cls, V: Array, W: Array, H: Array, beta: float, floor: float = 0.0) -> BetaSums:
        """Return the sums of samples V (F, n) with coefficients H (n, K)."""
        X = W @ H.T
        above, below = _powers(V, X, beta, floor)
        return cls(_total(V, X, beta), above @ H, below @ H, H.sum(axis=0))


class BetaShared(NamedTuple):
    """W (F, K) in float64, beta, and the floor of rates."""

    W: Array
    beta: float
    floor: float


class BetaObjective(Objective[BetaSums, BetaShared]):
    """The divergence, with sums of v x^(beta - 2) and x^(beta - 1) for the update of W."""

    Sums = BetaSums
    loss: BetaDivergence

    @property
    def floor(self) -> float:
        """The floor of rates in updates, in the units of V; 0 if rates need none."""
        beta = self.loss.beta
        if not 0 < beta < 2:
            return 0.0
        F, N = self.V.shape
        return _RATE_FLOOR * nearby_power(self.V.norm / np.sqrt(F * N))

    def _largest_value(self) -> float:
        """Return the divergence of V from the mean of its samples; one pass."""
        V = self.V
        beta = self.loss.beta
        self.loss.require_entries(V)
        ((sums, powers),) = V.sweep(_sums_and_powers, beta=beta)
        of_means = _power(sums / V.n_samples, beta)
        value = (powers - of_means.sum() * V.n_samples) / (beta * (beta - 1) or -1.0)
        unit = powers if beta else V.n_entries
        return float(value if value > 1e-12 * unit else unit)

    @staticmethod
    def step(
        block: Block, rows: Rows, shared: BetaShared, move: Move, C: Array | None = None
    ) -> Stepped[BetaSums]:
        """Update a block's rows of H, and return sums at the new ones; see `Objective`."""
        V = exact(dense(block))
        H = move.update(V, shared.W, exact(rows.H)).astype(rows.H.dtype, copy=False)
        return Stepped(H, H, BetaSums.of(V, shared.W, exact(H), shared.beta, shared.floor))

    def shared(self, W: Array, number: int = 0, gram: Array | None = None) -> BetaShared:
        """Return W in float64."""
        return BetaShared(exact(W), self.loss.beta, self.floor)

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> Updates:
        """Return the update of rows of H with the floor of rates."""
        update = solver.update
        if self.floor and solver in self.loss.solvers.values():
            update = partial(update, floor=self.floor)
        return Updates(solver, update, lambda W: update)

    def update_W(
        self,
        sums: BetaSums,
        shared: BetaShared | None,
        W: Array,
        Ht: Aligned,
        update: Update,
        C: Array | None = None,
    ) -> Updated:
        """Return W times a power of V X^(beta - 2) H' / X^(beta - 1) H'."""
        floor = _RATE_FLOOR * (self.floor > 0)  # H has the units of V, W has none
        updated = _multiplied(exact(W), sums.above, sums.below, self.loss.beta, floor)
        return Updated(updated.astype(W.dtype, copy=False), self.value(sums, W, Ht))

    def value(self, sums: BetaSums, W: Array, Ht: Aligned) -> float:
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
            how: Facts = {"W": W, "own": own_order(W), "dtype": V.dtype, "beta": self.loss.beta}
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
    block: Block, near: Array | None = None, *, W: Array, own: Array, dtype: DType, beta: float
) -> tuple[Array, tuple[BetaSums, float]]:
    """Step: return the best H that is found, with components in their `own` order."""
    V = exact(dense(block))
    near = None if near is None else near[:, own]
    found = _best_rows(V, np.ascontiguousarray(W[:, own]), beta, near)
    returned = np.ascontiguousarray(found[:, np.argsort(own)], dtype)
    H = exact(returned)
    lowest = _IMPOSSIBLE if beta > 0 else 0.0
    above, below = _powers(V, W @ H.T, beta, lowest)
    slopes = np.abs(H * ((below - above).T @ W)).sum()
    return returned, (BetaSums.of(V, W, H, beta, lowest), float(slopes))


def _best_rows(V: Array, W: Array, beta: float, near: Array | None = None) -> Array:
    """Return the coefficients (n, K) to which the best of the starts leads, or a better `near`.

    Samples are first divided by their scales, and features by theirs if beta is 0. That changes no
    divergence by more than a constant and a factor. A convex divergence needs a single start.
    """
    K = W.shape[1]
    of_features = W.sum(axis=1, keepdims=True) if beta == 0 else W.mean() * K or 1.0
    W = W / of_features
    V = V / of_features
    of_samples = V.mean(axis=0)
    is_zero = of_samples == 0
    of_samples[is_zero] = 1.0
    V = V / of_samples
    is_used = W.any(axis=0)
    starts = [np.ones(K)]
    if not 1 <= beta <= 2:
        starts += [*(_HEAD_SHARE * np.eye(K) + (1 - _HEAD_SHARE) / K)[is_used]]
    ends = []
    for shares in starts:
        H = np.outer(_best_scales(V, W @ shares, beta), shares * is_used)
        for _ in range(_FIRST_STEPS):
            H = multiplicative(V, W, H, beta=beta, floor=_RATE_FLOOR * (0 < beta < 2))
        ends.append(H)
    best = _settled(V, W, beta, reduce(partial(_lower, V, W, beta), ends))
    if near is not None:
        own = exact(near) / of_samples[:, None] * is_used
        best = _lower(V, W, beta, best, _settled(V, W, beta, own))
    best[is_zero] = 0.0
    return best * of_samples[:, None]


def _best_scales(V: Array, rates: Array, beta: float) -> Array:
    """Return for each sample (F, n) the number by which rates (F,) describe it best."""
    if beta <= 1:  # a rate of zero says nothing about the others
        V = V[rates > 0]
        rates = rates[rates > 0]
    return np.asarray(V.T @ rates ** (beta - 1) / ((rates**beta).sum() or 1.0))


def _lower(V: Array, W: Array, beta: float, H: Array, other: Array) -> Array:
    """Return H with the rows of another where these have a lower divergence."""
    limit = _divergences(V, W, H, beta) - _LOWER * len(V)
    is_lower = _divergences(V, W, other, beta) < limit
    return np.where(is_lower[:, None], other, H)


def _settled(V: Array, W: Array, beta: float, H: Array) -> Array:
    """Return coefficients (n, K) at a minimum, after Fisher scoring from H.

    A step minimises the quadratic model with the curvature sum_f w_f w_f' x_f^(beta - 2) over
    y >= 0. It is halved until the divergence falls.
    """
    lowest = _LOWEST_POWER ** (1 / max(2 - beta, 2.0))
    K = W.shape[1]
    pairs = pack(W)
    H = np.array(H)
    rows = np.arange(len(H))
    for _ in range(_STEPS):
        now = H[rows]
        X = np.maximum(W @ now.T, lowest)
        powers = X ** (beta - 1)
        grams = unpack((powers / X).T @ pairs, K)
        slopes = ((1 - V / X) * powers).T @ W
        step = nnls(grams, times_gram(now, grams) - slopes) - now
        moved = now + _lengths(V, W, beta, now, step)[:, None] * step
        H[rows] = np.maximum(moved, 0.0)
        moves = np.abs(moved - now).max(axis=1) > _SETTLED * now.max(axis=1)
        if not moves.any():
            break
        rows = rows[moves]
        V = V[:, moves]
    return H


def _lengths(V: Array, W: Array, beta: float, H: Array, step: Array) -> Array:
    """Return the longest of 1, 1/2, 1/4, ... with which the divergence of a sample falls, or 0."""
    before = _divergences(V, W, H, beta)
    lengths = np.ones(len(H))
    for _ in range(_HALVINGS):
        moved = np.maximum(H + lengths[:, None] * step, 0.0)
        rises = ~(_divergences(V, W, moved, beta) <= before)
        if not rises.any():
            return lengths
        lengths[rises] /= 2
    return np.where(rises, 0.0, lengths)


def _of_rates(V: Array, X: Array, beta: float) -> Array:
    """Return the divergence of each entry, up to a constant.

    If a rate is zero, it is infinite or NaN unless beta is above 0; then it may be very large.
    """
    if not beta:
        return np.asarray(V / X + np.log(X))
    X = np.maximum(X, _IMPOSSIBLE) if beta > 0 else X
    return np.asarray(X**beta / beta - V * X ** (beta - 1) / (beta - 1))


def _divergences(V: Array, W: Array, H: Array, beta: float) -> Array:
    """Return the divergence of each sample, up to a constant; infinite if a rate is zero."""
    X = W @ H.T
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = _of_rates(V, X, beta).sum(axis=0)
    return np.where(np.isfinite(values), values, np.inf)


def _total(V: Array, X: Array, beta: float) -> float:
    """Return the divergence of all entries."""
    if not beta:
        return float((V / X - (np.log(V) - np.log(X))).sum()) - V.size
    return float(_of_rates(V, X, beta).sum() + (V**beta).sum() / (beta * (beta - 1)))


def _equal(block: Block, *, W: Array, dtype: DType, beta: float) -> PerSample:
    """Step: return equal coefficients for all components, at the best scale for each sample."""
    sizes = _best_scales(exact(dense(block)), W.sum(axis=1), beta)
    return np.repeat(sizes[:, None], W.shape[1], axis=1).astype(dtype), None


def _equal_coefficients(V: DataMatrix, W: Array, beta: float) -> Aligned:
    return V.sweep(_equal, W=exact(W), dtype=V.dtype, beta=beta)[0].T


def _raised(V: DataMatrix, W: Array, H: Aligned, beta: float) -> Aligned:
    """Return H (K, N) with a little of all components in samples where a rate vanishes."""
    equal = _equal_coefficients(V, W, beta)
    Ht, _ = V.sweep(_raised_rows, V.align(H.T), equal.T, W=exact(W))
    return Ht.T


def _raised_rows(block: Block, H: Array, equal: Array, *, W: Array) -> PerSample:
    rates = exact(H) @ W.T
    lost = (rates <= _VANISHING * (exact(equal) @ W.T)) & (dense(block).T > 0)
    is_lost = lost.any(axis=1)[:, None]
    return np.where(is_lost, H + H.dtype.type(_LIFTED_SHARE) * equal, H), None


def _sums_and_powers(block: Block, *, beta: float) -> tuple[tuple[Array, float]]:
    """Step: return the sums of features, and of the powers of all entries, or of their logs."""
    V = exact(dense(block))
    return ((V.sum(axis=1), float(_power(V, beta).sum())),)


def _power(V: Array, beta: float) -> Array:
    """Return V^beta, or log V for beta = 0."""
    return V**beta if beta else np.log(V)


_MIXED_SHARE = 0.1  # of the rates of a sample, distributed like the mean of the components


def _predict(
    block: Block, weights: Array, *, W: Array, folds: Array, beta: float
) -> tuple[Interval]:
    V = exact(dense(block))
    mean = W.mean(axis=1, keepdims=True)
    rates = np.empty_like(V)
    for fold in range(folds.max() + 1):
        hidden = folds == fold
        if hidden.all():  # nothing predicts a single feature
            return ((0.0, 0.0),)
        sizes = _best_scales(V[~hidden], mean[~hidden, 0], beta)
        predicted = W[hidden] @ _best_rows(V[~hidden], W[~hidden], beta).T
        rates[hidden] = (1 - _MIXED_SHARE) * predicted
        rates[hidden] += _MIXED_SHARE * mean[hidden] * sizes
    least = _of_rates(V, V, beta)
    base = mean * _best_scales(V, mean[:, 0], beta)
    missed, unexplained = ((_of_rates(V, X, beta) - least).sum(axis=0) for X in (rates, base))
    return ((float(weights @ missed), float(weights @ unexplained)),)


ITAKURA_SAITO = BetaDivergence()


@cache
def of_beta(beta: float) -> BetaDivergence:
    """Return the loss of a beta."""
    return BetaDivergence(beta) if beta else ITAKURA_SAITO

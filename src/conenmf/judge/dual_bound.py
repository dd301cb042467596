"""A lower bound for the divergence of counts: Lagrange's dual of the best K components.

The best X = WH keeps the margins of V, since otherwise a scaled row or column would be better. So
D_r^-1/2 X D_c^-1/2, with the margins r and c as shares, is sqrt(r) sqrt(c)' plus a matrix of rank
K - 1 and norm at most 1, and for any weights B > 0 of the nonzero entries of V Jensen's and von
Neumann's inequalities give

    D(V | WH) >= sum V log B - S log(<B, rc'> + sum_{k < K} sigma_k(A)),

where S = sum V, and A is D_r^1/2 B D_c^1/2, zero where V is, without the parts along sqrt(r) and
sqrt(c). With B = V S / (V1 1'V) the singular values are those of correspondence analysis, and the
bound is exact for one component. It is concave in B up to the scale of B, which does not matter, so
B can be improved step by step: where a rank-K matrix made of the leading singular vectors is below
V / B, B is raised. Every B on the way is valid. The proof is in the documentation, "A lower bound
for counts".

B is not kept, since it has as many entries as V: it is made from V and the steps when a block is
read.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ..arguments import components, integer
from ..data.blocks import (
    Array,
    Block,
    Entries,
    entries_of,
    products,
    products_at,
    sums_at,
    with_values,
)
from ..data.matrix import Aligned, DataMatrix
from ..data.memory import hold
from ..data.validate import require_data_matrix
from ..data.views import MappedMatrix
from ..linalg.energy import EnergyBound, subspace_energy
from ..linalg.svd import Leading, davidson, gram_of_features, gram_of_samples

DEFAULT_EFFORT = 6
"""Steps if none are asked for; each takes about as long as K singular vectors of V."""

_FIRST_POWERS = (1.0, 0.6)  # of the ratio to the margins, one of which is B at first
_FIRST_LENGTH, _SHORTER_AFTER = 0.3, 4  # of the steps, which become shorter after so many
_LARGEST_CHANGE = 2.0  # of log B in a step of length 1
_WIDTH = 0.1  # of the singular values that share the weight at K, relative to the K-th
_EXTRA_VECTORS = 8  # beyond the K-th
_STEP_TOL = 5e-2  # of the vectors from which a step is computed
_BOUND_TOL = 1e-2  # of the vectors from which the bound is computed; squared in it
_N_STARTS = 8  # random vectors that bound the tail
_MAX_GRAM_SIDE = 500  # side of V up to which all singular values are computed
_MAX_DENSE_ENTRIES = 1 << 24  # of a copy of V in memory
_ROUNDING = 1e-12


class DivergenceBound(NamedTuple):
    """A lower bound for the divergence of counts from K components.

    Attributes
    ----------
    value : float
        No nonnegative factors with K components have a smaller divergence; at least 0.
    of_margins : float
        The divergence of one component, the product of the margins: the smallest there is for
        K = 1, and of which the divergence of more components is a share.
    failure_probability : float
        0.0, or the probability, over random vectors that were drawn, that `value` is not a bound.
    """

    value: float
    of_margins: float
    failure_probability: float

    @property
    def share(self) -> float:
        """The bound as a share of the divergence of one component."""
        return self.value / self.of_margins if self.of_margins > 0 else 0.0


def divergence_bound(V: DataMatrix, K: int, *, effort: int = DEFAULT_EFFORT) -> DivergenceBound:
    """Bound sum v log(v / x) - v + x, x = WH, from below for all factors with K components.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int
        Steps by which the bound is raised above that of correspondence analysis, which 0 gives.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
    >>> one = divergence_bound(V, 1)
    >>> round(one.value, 3) == round(one.of_margins, 3)  # attained
    True
    >>> 0 <= divergence_bound(V, 2).value < one.value
    True
    """
    require_data_matrix(V, nonzero=True, whole=True)
    K, effort = components(K), integer("effort", effort, at_least=0)
    V = _with_few_features(V)
    with V.own_threads():
        c, sums = V.sweep(_margins)
        weights = _Weights(sums / sums.sum(), float(sums.sum()), 1.0, (), (), ())
        first = _Trial(V, c, (), weights)
        of_margins = first.log_sum
        if K >= min(V.shape):
            return DivergenceBound(0.0, of_margins, 0.0)
        if K == 1:
            return DivergenceBound(max(of_margins * (1 - _ROUNDING), 0.0), of_margins, 0.0)
        best = _ascend(first, K, effort)
        value, chance = best.certain(K)
    return DivergenceBound(min(max(value, 0.0), of_margins), of_margins, chance)


def held(view: DataMatrix, max_entries: int) -> DataMatrix:
    """Return a view as a matrix of its own if it is in memory and has no more entries than that."""
    rows = view.held_rows(max_entries)
    return view if rows is None else hold(rows, n_threads=view.n_threads)


def _with_few_features(V: DataMatrix) -> DataMatrix:
    """V, or V turned if it is in memory and that makes vectors shorter: the bound is the same."""
    F, N = V.shape
    if F <= N or V.held_rows(_MAX_DENSE_ENTRIES) is None:
        return V
    return V.other_order or V.turned()


def _ascend(trial: _Trial, K: int, effort: int) -> _Trial:
    """Return the best weights on the way; judged by singular values that are not yet certain."""
    best, start = trial, None
    if effort:
        for power in _FIRST_POWERS[1:]:
            other = _Trial(trial.V, trial.c, (), trial.weights._replace(power=power))
            if other.value(K, best.vectors(K)) > best.value(K):
                best = other
    trial = best
    for number in range(effort):
        length = _FIRST_LENGTH / (1 + number / _SHORTER_AFTER)
        start = trial.vectors(K)
        trial = trial.moved(K, length)
        if trial.value(K, start) > best.value(K):
            best = trial
    return best


class _Weights(NamedTuple):
    """The weights B of entries: a power of the ratio to the margins, and steps from there."""

    r: Array  # sums of features, as shares
    total: float
    power: float
    lefts: tuple[Array, ...]  # (F, m) of each step
    log_sizes: tuple[float, ...]  # of B before each step
    lengths: tuple[float, ...]


class _Trial:
    """Weights B, and what they make of V: sums, and the matrix A whose singular values count."""

    def __init__(
        self, V: DataMatrix, c: Aligned, rights: tuple[Aligned, ...], weights: _Weights
    ) -> None:
        self.V, self.c, self.rights, self.weights = V, c, rights, weights
        self.root_r = np.sqrt(weights.r)
        self.y, sums = V.sweep(_sums, c, *rights, weights=weights)
        self.log_sum, self.first, self.squared, self.z = sums
        (self.y_squared,) = V.map(_sum_of_squares, self.y)
        self._leading: Leading | None = None

    @cached_property
    def matrix(self) -> DataMatrix:
        """A with the parts along the margins; held in memory if V is."""
        change = partial(_scaled_weights, weights=self.weights)
        view = MappedMatrix(self.V, change, self.c, *self.rights, dtype=np.dtype(np.float64))
        return held(view, _MAX_DENSE_ENTRIES)

    @property
    def trace(self) -> float:
        """||A||^2 without the parts along the margins."""
        parts = float(self.z @ self.z) + float(self.y_squared)
        return max(float(self.squared) - parts + float(self.first) ** 2, 0.0)

    def apply(self, X: Array) -> Array:
        """AA'X (F, m), without the parts along the margins."""
        X = _without(X, self.root_r)
        return _without(self.matrix.square_times(X) - np.outer(self.z, self.z @ X), self.root_r)

    def leading(self, K: int, start: Array | None = None) -> Leading:
        """The K - 1 leading eigenpairs of AA', roughly, and a few more."""
        if self._leading is None:
            size = min(K - 1 + _EXTRA_VECTORS, self.V.shape[0])
            if start is None or start.shape[1] < size:
                random = np.random.default_rng(0).standard_normal((self.V.shape[0], size))
                start = self.apply(random)
            self._leading = davidson(self.apply, K - 1, start, _STEP_TOL, rough=True)
        return self._leading

    def vectors(self, K: int) -> Array:
        return self.leading(K).vectors

    def size(self, K: int, start: Array | None = None) -> float:
        """<B, rc'> plus the sum of K - 1 singular values, roughly."""
        values = np.maximum(self.leading(K, start).values[: K - 1], 0.0)
        return float(self.first + np.sqrt(values).sum())

    def value(self, K: int, start: Array | None = None) -> float:
        return float(self.log_sum - self.weights.total * np.log(self.size(K, start)))

    def certain(self, K: int) -> tuple[float, float]:
        """The bound with singular values from above, and the chance that it is none."""
        roots, chance = self._largest_roots(K - 1)
        size = (self.first + roots) * (1 + _ROUNDING)
        value = self.log_sum - self.weights.total * np.log(size)
        return float(value - _ROUNDING * (abs(self.log_sum) + self.weights.total)), chance

    def _largest_roots(self, k: int) -> EnergyBound:
        F, N = self.V.shape
        rounding = 10 * min(F, N) * np.finfo(np.float64).eps * float(self.squared)
        if min(F, N) <= _MAX_GRAM_SIDE:
            if F <= N:
                margin, image, gram = self.root_r, self.z, gram_of_features(self.matrix)
            else:
                margin = np.sqrt(np.asarray(self.c) / self.weights.total)
                image, gram = np.asarray(self.y), gram_of_samples(self.matrix)
            gram = _without(_without(gram - np.outer(image, image), margin).T, margin)
            values = np.linalg.eigvalsh(gram)[::-1][:k]
            return EnergyBound(float(np.sqrt(np.maximum(values, 0.0) + rounding).sum()), 0.0)
        found = davidson(self.apply, k, self.vectors(k + 1), _BOUND_TOL)
        assert found.images is not None
        return subspace_energy(
            found.vectors,
            np.maximum(found.values, 0.0),
            found.images,
            k,
            self.trace,
            rounding,
            self.apply,
            n_starts=_N_STARTS,
            roots=True,
        )

    def moved(self, K: int, length: float) -> _Trial:
        """Weights after a step from these, along a supergradient of the bound."""
        leading, weights = self.leading(K), self.weights
        values = np.sqrt(np.maximum(leading.values, 0.0))
        shares = _shared_weights(values, K - 1)
        used = values > np.sqrt(_ROUNDING) * values[0]
        U = leading.vectors[:, used] * (shares / np.where(used, values, 1.0))[used]
        right = self._right(leading.vectors[:, used])
        moved = weights._replace(
            lefts=(*weights.lefts, _over(U, self.root_r[:, None])),
            log_sizes=(*weights.log_sizes, float(np.log(self.size(K)))),
            lengths=(*weights.lengths, length),
        )
        return _Trial(self.V, self.c, (*self.rights, right), moved)

    def _right(self, U: Array) -> Aligned:
        """A'U without the parts along the margins, each row over the root of its margin."""
        shared = {"U": U, "image": self.z @ U, "total": self.weights.total}
        right, _ = self.matrix.sweep(_right_rows, self.c, **shared)
        return right


def _shared_weights(values: Array, k: int) -> Array:
    """Weights from 0 to 1 of singular values, in descending order, with the sum k.

    About 1 for the first k and 0 for the others; those near the k-th share. That makes a smooth
    function of their sum, which can be climbed with longer steps.
    """
    if values.size <= k:
        return np.ones(values.size)
    width = _WIDTH * values[k]
    if not width > 0:
        return (np.arange(values.size) < k).astype(float)
    low, high = values[-1] - 60 * width, values[0] + 60 * width
    for _ in range(100):
        middle = 0.5 * (low + high)
        weights: Array = 1.0 / (1.0 + np.exp(np.clip((middle - values) / width, -500, 500)))
        low, high = (middle, high) if weights.sum() > k else (low, middle)
    return weights


def _without(X: Array, unit: Array) -> Array:
    """What of the columns of X is orthogonal to a unit vector."""
    return np.asarray(X - np.outer(unit, unit @ X))


def _over(numbers: Array, divisors: Array) -> Array:
    return np.divide(numbers, divisors, out=np.zeros_like(numbers), where=divisors > 0)


# --- steps ------------------------------------------------------------------------------------


def _margins(block: Block) -> tuple[Array, Array]:
    F, n = block.shape
    entries = entries_of(block)
    c = sums_at(entries.samples, entries.values, n)
    return c, sums_at(entries.features, entries.values, F)


def _log_weights(entries: Entries, c: Array, rights: tuple[Array, ...], weights: _Weights) -> Array:
    """Return log B of each entry."""
    margins = weights.r[entries.features] * c[entries.samples]
    ratio = np.log(entries.values / margins)
    log_b: Array = weights.power * ratio
    steps = zip(weights.lefts, rights, weights.log_sizes, weights.lengths, strict=True)
    for left, right, log_size, length in steps:
        log_b -= log_size
        leading = (1.0 + products_at(entries, left, right)) * np.exp(log_b - ratio)
        log_b += length * np.clip(1.0 - leading, -_LARGEST_CHANGE, _LARGEST_CHANGE)
    return log_b


def _sums(block: Block, c: Array, *rights: Array, weights: _Weights) -> tuple[Array, Any]:
    """A' sqrt(r), and sums: of v log b, of rc' b, of squared entries of A; A sqrt(c)."""
    F, n = block.shape
    entries = entries_of(block)
    log_b = _log_weights(entries, c, rights, weights)
    root_r = np.sqrt(weights.r)[entries.features]
    root_c = np.sqrt(c / weights.total)[entries.samples]
    A = np.exp(log_b) * root_r * root_c
    y = sums_at(entries.samples, A * root_r, n)
    z = sums_at(entries.features, A * root_c, F)
    first = float((A * root_r * root_c).sum())
    return y, (float(entries.values @ log_b), first, float(A @ A), z)


def _scaled_weights(block: Block, c: Array, *rights: Array, weights: _Weights) -> Block:
    """A = D_r^1/2 B D_c^1/2."""
    entries = entries_of(block)
    log_b = _log_weights(entries, c, rights, weights)
    margins = weights.r[entries.features] * (c / weights.total)[entries.samples]
    return with_values(block, entries, np.exp(log_b) * np.sqrt(margins))


def _right_rows(
    block: Block, c: Array, *, U: Array, image: Array, total: float
) -> tuple[Array, None]:
    root_c = np.sqrt(c / total)[:, None]
    return _over(products(block, U) - root_c * image, root_c), None


def _sum_of_squares(index: range, y: Array) -> tuple[float]:
    return (float(y @ y),)

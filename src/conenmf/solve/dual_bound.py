"""Lower bounds from Lagrange's dual for all nonnegative factors with K components.

*Least squares.* For every P >= 0 (F, N), no nonnegative factors with K components have a smaller
squared error than ||V||^2 - sum_{j <= K} sigma_j(V + P)^2. With P = 0 this is the bound of Eckart
and Young, which holds for factors of any sign. The bound is concave in P. It rises if P grows at
entries where the rank-K part of V + P is negative: -1/2 times a supergradient is this part
(Grussler, Rantzer and Giselsson, "Low-rank optimization with convex constraints", IEEE Trans.
Automat. Control 63, 2018). Every P on the way gives a valid bound. Proofs: "A lower bound that uses
nonnegativity" in the documentation.

P is stored as an aligned array. For each sample, P is nonzero at the entries where the rank-K part
of V is most negative: at as many entries as a sample of V has nonzero ones on average, and at
most at half. For a small V, all entries of P may be nonzero. V + P is a view and is never formed as
a whole.

*Counts.* The best X = WH has the margins of V, because otherwise scaling a row or column would
improve it. So D_r^-1/2 X D_c^-1/2, with the margins r and c as shares, is sqrt(r) sqrt(c)' plus a
matrix of rank K - 1 and norm at most 1. For any weights B > 0 of the nonzero entries of V, Jensen's
and von Neumann's inequalities give

    D(V | WH) >= sum V log B - S log(<B, rc'> + sum_{k < K} sigma_k(A)),

where S = sum V, and A is D_r^1/2 B D_c^1/2 (zero where V is zero) without its parts along sqrt(r)
and sqrt(c). With B = V S / (V1 1'V) the singular values are those of correspondence analysis, and
the bound is exact for one component. The bound is concave in B up to the scale of B, which does not
matter, so B can be improved step by step: B is raised where a rank-K matrix of the leading singular
vectors is below V / B. Every B on the way is valid. The proof is in the documentation, "A lower
bound for counts".

B has as many entries as V, so it is not stored: it is computed from V and the steps when a block is
read.
"""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import eigvalsh
from numpy.random import default_rng

from ..cones.geometry import leading_plane
from ..data.blocks import (
    EPS,
    Block,
    Entries,
    canonical_rows,
    entries_of,
    exact,
    over,
    products,
    products_at,
    slices,
    sums_at,
    with_entries,
    with_values,
)
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..data.memory import hold
from ..data.views import MappedMatrix
from ..linalg.bisection import bisect
from ..linalg.energy import EnergyBound, subspace_energy
from ..linalg.svd import (
    KnownSpectrum,
    Leading,
    Spectrum,
    davidson,
    gram_of_features,
    gram_of_samples,
)
from ..types import Array, Interval, Pair

# --- least squares ----------------------------------------------------------------------------

DEFAULT_EFFORT = 3  # steps; each takes about as long as the singular values of a matrix like V
_FIRST_STEP = 1.0  # multiple of the rank-K part
_LONGER = 1.3  # factor of the next step after one that raised the bound
_SHORTER = 0.5  # factor of the next step after one that did not
_FIRST_WIDTH = 0.5  # range of eigenvalues that share the weight at K, relative to the K-th
_NARROWER = 0.25  # after two steps in a row that did not raise the bound
_STEP_TOL = 1e-2  # of the vectors from which a step is computed
_RISEN_TOL = 5e-3  # ... and from which the bound is computed, which has the square of this error
_LEAST_GAIN = 1e-6  # smallest gain of a step, as a share of the squared bound
_STALL_STEPS = 6  # over this many steps the bound must rise ...
_STALL_SHARE = 0.02  # ... by this share of its total gain, ...
_STALL_BOUND = 1e-5  # ... and this share of its square
_SMALL_ENTRIES = 1 << 17  # of V: up to this size, P may be nonzero everywhere
_MAX_SUPPORT = 1 << 26  # entries of P
_CANDIDATES = 4  # features searched per nonzero entry of P
_PIECE_ENTRIES = 1 << 20  # computed at a time
_ATTAINED_SHARE = 1e-8  # of ||V||^2: an error this close to the bound attains it


class LowerBound(NamedTuple):
    """A lower bound for the relative error of nonnegative factors.

    Attributes
    ----------
    value : float
    eckart_young : float
        The bound for factors of any sign; never above `value`.
    is_attained : bool
        Whether it is proven, up to rounding, that some nonnegative factors have this error.
    failure_probability : float
        0.0, or the probability, over random vectors, that `value` is not a bound.
    """

    value: float
    eckart_young: float
    is_attained: bool
    failure_probability: float


def best_lower_bound(
    V: DataMatrix, K: int, *, effort: int = DEFAULT_EFFORT, spectrum: KnownSpectrum = None
) -> LowerBound:
    """Bound the relative error of all nonnegative factors with K components from below.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int
        Largest number of steps; 0 gives the bound of Eckart and Young. A larger effort never lowers
        a bound that is certain. The steps end early if they gain nothing.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
    >>> bound = best_lower_bound(V, 2, effort=20)
    >>> round(bound.eckart_young, 3), round(bound.value, 3)  # factors with an error of 0.378 exist
    (0.359, 0.378)
    """
    if min(V.shape) <= K:
        return LowerBound(0.0, 0.0, V.measures.lowest >= 0, 0.0)  # V = V I = I V
    spectrum = Spectrum.of(V, spectrum)
    with V.own_threads():
        energy, chance = spectrum.energy_bound(K)
        value = _relative(V, energy)
        attained = (K == 1 and V.measures.lowest >= 0) or (
            K == 2 and _is_attained_by_two(V, spectrum, energy)
        )
        first = LowerBound(value, value, attained, chance)
        if effort == 0 or attained or value == 0.0:  # V >= 0 has rank K: the bound cannot rise
            return first
        best = _ascend(V, K, effort, spectrum)
        if best.spectrum is spectrum:
            return first
        risen, chance = best.spectrum.energy_bound(K, tol=_RISEN_TOL)
    if risen >= energy:
        return first
    return first._replace(value=_relative(V, risen), failure_probability=chance)


def _is_attained_by_two(V: DataMatrix, spectrum: Spectrum, energy: float) -> bool:
    """Return whether the projection of V to a plane is nonnegative and keeps all this energy."""
    plane = leading_plane(V, spectrum=spectrum)
    return bool(plane.is_nonnegative and plane.energy >= energy - _ATTAINED_SHARE * V.total)


def _relative(V: DataMatrix, energy: float) -> float:
    return math.sqrt(max(1.0 - energy / V.total, 0.0))


# --- the ascent -------------------------------------------------------------------------------


class _Point(NamedTuple):
    """V + P, its leading vectors and eigenvalues, and the energy that K components explain."""

    P: Aligned  # values on the support
    spectrum: Spectrum
    vectors: Array
    values: Array
    energy: float


def _ascend(V: DataMatrix, K: int, effort: int, spectrum: Spectrum) -> _Point:
    """Take projected gradient steps from P = 0; undo a step that does not lower the energy.

    At the best P the K-th singular value often equals the next ones, so the rank-K part is not
    continuous. Therefore eigenvalues close to the K-th share the weight: the part belongs to sum_j
    weight_j sigma_j^2, which is smooth.
    """
    vectors, values = spectrum.leading_subspace(K)
    Q = vectors[:, :K]
    features = _candidate_features(V, Q * np.sqrt(values[:K]))
    support, P, negative = V.sweep(_choose_support, Q=Q, features=features, width=support_width(V))
    best = _Point(P, spectrum, vectors, values, float(values[:K].sum()))
    if 2 * _FIRST_STEP * negative <= _STALL_BOUND * (V.total - best.energy):
        return best  # by concavity, the first step cannot raise the bound by more than this
    step = _FIRST_STEP
    smoothing = _FIRST_WIDTH
    failures = 0
    first = best.energy
    risen = [0.0]
    for _ in range(effort):
        weights = _weights(best.values, K, smoothing * best.values[K - 1])
        P, _ = best.spectrum.V.sweep(
            _grow, support, best.P, Q=best.vectors, weights=step * weights, features=features
        )
        trial = _point(V, K, support, P, features, best.vectors)
        if trial.energy < best.energy - _LEAST_GAIN * (V.total - best.energy):
            best = trial
            step = _LONGER * step
            failures = 0
        else:
            step = _SHORTER * step
            failures = failures + 1
            if failures == 2:
                smoothing = _NARROWER * smoothing
                failures = 0
        risen.append(first - best.energy)
        needed = _STALL_SHARE * risen[-1] + _STALL_BOUND * (V.total - best.energy)
        if len(risen) > _STALL_STEPS and risen[-1] - risen[-1 - _STALL_STEPS] < needed:
            break
    return best


def _point(
    V: DataMatrix, K: int, support: Aligned, P: Aligned, features: Array, start: Array
) -> _Point:
    # Rounding keeps V + P >= V, so the computed matrix is exactly such a sum.
    matrix = MappedMatrix(V, lambda block, s, P: with_entries(block, features[s], P), support, P)
    spectrum = Spectrum(matrix, start=start)
    vectors, values = spectrum.leading_subspace(K, tol=_STEP_TOL)
    return _Point(P, spectrum, vectors, values, float(values[:K].sum()))


def _weights(values: Array, K: int, width: float) -> Array:
    """Return weights in [0, 1] with sum K: min(1, max(0, (value - t) / width)) for a suitable t."""

    def weights(t: float) -> Array:
        return np.clip((values - t) / width, 0.0, 1.0)

    return weights(bisect(lambda t: weights(t).sum() > K, values[-1] - width, values[0])[0])


def support_width(V: DataMatrix) -> int:
    """Return how many entries of P may be nonzero per sample: the average number in V.

    At most half of all, because few entries are negative in the rank-K part of dense data; all if V
    is small.
    """
    F, N = V.shape
    if F * N <= _SMALL_ENTRIES:
        return F
    return max(1, min(-(-F // 2), -(-V.n_entries // N), _MAX_SUPPORT // N))


def _candidate_features(V: DataMatrix, weighted: Array) -> Array:
    """Return the features with the largest entries in the rank-K part, ascending."""
    count = min(V.n_features, _CANDIDATES * support_width(V))
    energies = np.einsum("fk,fk->f", weighted, weighted)
    return np.sort(np.argsort(-energies, kind="stable")[:count])


def _choose_support(
    block: Block, *, Q: Array, features: Array, width: int
) -> tuple[Array, Array, float]:
    """Return the features where the rank-K part of each sample is most negative, ascending.

    Also returns zeros for P there, and the sum of squares of these negative entries.
    """
    C = products(exact(block), Q)
    support = np.empty((len(C), width), np.int32)
    negative = 0.0
    for rows in _pieces(len(C), features.size):
        part = C[rows] @ Q[features].T
        support[rows] = np.sort(np.argpartition(part, width - 1, axis=1)[:, :width], axis=1)
        chosen = np.take_along_axis(part, support[rows], axis=1)
        negative += float((np.minimum(chosen, 0.0) ** 2).sum())
    return support, np.zeros((len(C), width)), negative


def _grow(
    block: Block, support: Array, P: Array, *, Q: Array, weights: Array, features: Array
) -> PerSample:
    """Return max(P - Q diag(weights) Q'(V + P), 0) on the support; the block is one of V + P."""
    C = products(exact(block), Q) * weights
    grown = np.empty_like(P)
    for rows in _pieces(len(P), features.size):
        part = np.take_along_axis(C[rows] @ Q[features].T, support[rows], axis=1)
        grown[rows] = np.maximum(P[rows] - part, 0.0)
    return grown, None


def _pieces(n: int, width: int) -> list[slice]:
    return slices(n, max(1, _PIECE_ENTRIES // width))


# --- counts ------------------------------------------------------------------------------------

COUNT_EFFORT = 6  # default number of steps; each takes about as long as K singular vectors
_OTHER_POWER = 0.6  # B may start as this power of the ratio to the margins
_FIRST_LENGTH = 0.3  # of a step
_SHORTER_AFTER = 4  # steps
_LARGEST_CHANGE = 2.0  # of log B in a step of length 1
_WIDTH = 0.1  # range of singular values that share the weight at K, relative to the K-th
_EXTRA_VECTORS = 8  # beyond the K-th
_COUNT_STEP_TOL = 5e-2  # of the vectors from which a step is computed
_BOUND_TOL = 1e-2  # of the vectors from which the bound is computed; its error is the square
_N_STARTS = 8  # random vectors that bound the tail
_MAX_GRAM_SIDE = 500  # up to this side of V, all singular values are computed
_MAX_DENSE_ENTRIES = 1 << 24  # of a copy of V in memory
_ROUNDING = 1e-12


class DivergenceBound(NamedTuple):
    """A lower bound for the divergence of counts from K components.

    Attributes
    ----------
    value : float
        No nonnegative factors with K components have a smaller divergence; at least 0.
    of_margins : float
        The divergence of one component, the product of the margins. It is the smallest divergence
        for K = 1, and the unit of relative errors.
    failure_probability : float
        0.0, or the probability, over random vectors, that `value` is not a bound. It counts all
        bounds from which `value` was chosen.
    """

    value: float
    of_margins: float
    failure_probability: float


def divergence_bound(V: DataMatrix, K: int, *, effort: int = COUNT_EFFORT) -> DivergenceBound:
    """Bound sum v log(v / x) - v + x, x = WH, from below for all factors with K components.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int
        Number of steps that raise the bound; 0 gives the bound of correspondence analysis. A larger
        effort never lowers the bound.

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
    V = _with_few_features(V)
    with V.own_threads():
        c, sums = V.sweep(_margins)
        weights = _Weights(sums / sums.sum(), float(sums.sum()), 1.0, ())
        first = _Trial(V, c, (), weights)
        of_margins = first.log_sum
        value = 0.0
        chance = 0.0
        if K == 1 < min(V.shape):
            value = of_margins * (1 - _ROUNDING)
        elif K < min(V.shape):
            value, chance = _ascend_counts(first, K, effort)
    return DivergenceBound(max(min(value, of_margins), 0.0), of_margins, chance)


def held_if_small(view: DataMatrix, max_entries: int) -> DataMatrix:
    """Return a view as a matrix in memory if it is in memory already and small enough."""
    rows = view.held_rows(max_entries)
    return view if rows is None else hold(rows, n_threads=view.n_threads)


def _with_few_features(V: DataMatrix) -> DataMatrix:
    """Return V, or its transpose if in memory and shorter, because the bound is the same."""
    F, N = V.shape
    rows = None if F <= N else V.held_rows(_MAX_DENSE_ENTRIES)
    if rows is None:
        return V
    return V.other_order or hold(canonical_rows(rows.T), n_threads=V.n_threads)


def _ascend_counts(trial: _Trial, K: int, effort: int) -> Interval:
    """Return the best bound of all weights on the way that holds for certain."""
    tried = [trial]
    if effort:
        other = _Trial(trial.V, trial.c, (), trial.weights._replace(power=_OTHER_POWER))
        other.leading(K, trial.leading(K).vectors)
        tried.append(other)
        if other.value(K) > trial.value(K):
            trial = other
    for number in range(effort):
        length = _FIRST_LENGTH / (1 + number / _SHORTER_AFTER)
        before = trial
        trial = before.moved(K, length)
        trial.leading(K, before.leading(K).vectors)
        before.forget_matrix()
        tried.append(trial)
    return _best_certain(tried, K)


def _best_certain(tried: list[_Trial], K: int) -> Interval:
    """Return the largest certain bound, and the probability that it does not hold.

    The values of `_Trial.value` come from Ritz values, which are never above the eigenvalues. So
    they are never below the certain bounds, and the search ends at the first one that is below the
    best certain bound. The probability counts all bounds that were computed.
    """
    best = -math.inf
    chance = 0.0
    for trial in sorted(tried, key=lambda one: one.value(K), reverse=True):
        if trial.value(K) <= best:
            break
        value, of_this = trial.certain(K)
        trial.forget_matrix()
        best = max(best, value)
        chance += of_this
    return best, chance


class _Weights(NamedTuple):
    """The weights B of entries: a power of the ratio to the margins, and steps from there."""

    r: Array  # sums of features, as shares
    total: float
    power: float
    steps: tuple[Any, ...]  # (F, m) of each step, log of the size of B before it, and its length


class _Trial:
    """The weights B, their row and column sums, and the matrix A.

    The singular values of A give the bound.
    """

    def __init__(
        self, V: DataMatrix, c: Aligned, rights: tuple[Aligned, ...], weights: _Weights
    ) -> None:
        self.V = V
        self.c = c
        self.rights = rights
        self.weights = weights
        self.root_r = np.sqrt(weights.r)
        self.y, sums = V.sweep(_sums, c, *rights, weights=weights)
        self.log_sum, self.first, self.squared, self.z = sums
        (self.y_squared,) = V.map(lambda _, y: (float(y @ y),), self.y)
        self._leading: Leading | None = None

    @cached_property
    def matrix(self) -> DataMatrix:
        """A with the parts along the margins; stored in memory if V is."""
        change = partial(_scaled_weights, weights=self.weights)
        view = MappedMatrix(self.V, change, self.c, *self.rights)
        return held_if_small(view, _MAX_DENSE_ENTRIES)

    def forget_matrix(self) -> None:
        """Free the copy of A; it is computed again when it is needed."""
        vars(self).pop("matrix", None)

    @property
    def trace(self) -> float:
        """||A||^2 without the parts along the margins."""
        parts = float(self.z @ self.z) + float(self.y_squared)
        return max(float(self.squared) - parts + float(self.first) ** 2, 0.0)

    def apply(self, X: Array) -> Array:
        """Return AA'X (F, m) without the parts along the margins."""
        X = _without(X, self.root_r)
        return _without(self.matrix.square_times(X) - np.outer(self.z, self.z @ X), self.root_r)

    def leading(self, K: int, start: Array | None = None) -> Leading:
        """Return at least K - 1 leading eigenpairs of AA', approximately."""
        if self._leading is None:
            size = min(K - 1 + _EXTRA_VECTORS, self.V.n_features)
            if start is None or start.shape[1] < size:
                random = default_rng(0).standard_normal((self.V.n_features, size))
                start = self.apply(random)
            self._leading = davidson(self.apply, K - 1, start, _COUNT_STEP_TOL)
        return self._leading

    def size(self, K: int) -> float:
        """Return <B, rc'> plus the sum of K - 1 singular values, approximately."""
        values = np.maximum(self.leading(K).values[: K - 1], 0.0)
        return float(self.first + np.sqrt(values).sum())

    def value(self, K: int) -> float:
        return float(self.log_sum - self.weights.total * np.log(self.size(K)))

    def certain(self, K: int) -> Interval:
        """Return the bound from upper bounds of singular values, and its failure probability."""
        roots, chance = self._largest_roots(K - 1)
        size = (self.first + roots) * (1 + _ROUNDING)
        value = self.log_sum - self.weights.total * np.log(size)
        return float(value - _ROUNDING * (abs(self.log_sum) + self.weights.total)), chance

    def _largest_roots(self, k: int) -> EnergyBound:
        F, N = self.V.shape
        rounding = 10 * min(F, N) * EPS * float(self.squared)
        if min(F, N) <= _MAX_GRAM_SIDE:
            if F <= N:
                margin = self.root_r
                image = self.z
                gram = gram_of_features(self.matrix)
            else:
                margin = np.sqrt(np.asarray(self.c) / self.weights.total)
                image = np.asarray(self.y)
                gram = gram_of_samples(self.matrix)
            gram = _without(_without(gram - np.outer(image, image), margin).T, margin)
            values = eigvalsh(gram)[::-1][:k]
            return EnergyBound(float(np.sqrt(np.maximum(values, 0.0) + rounding).sum()), 0.0)
        found = davidson(self.apply, k, self.leading(k + 1).vectors, _BOUND_TOL)
        return subspace_energy(
            found, k, self.trace, rounding, self.apply, n_starts=_N_STARTS, roots=True
        )

    def moved(self, K: int, length: float) -> _Trial:
        """Return the weights after a step along a supergradient of the bound."""
        leading = self.leading(K)
        weights = self.weights
        values = np.sqrt(np.maximum(leading.values, 0.0))
        shares = _shared_weights(values, K - 1)
        used = values > np.sqrt(_ROUNDING) * values[0]
        U = leading.vectors[:, used] * (shares / np.where(used, values, 1.0))[used]
        image = self.z @ leading.vectors[:, used]
        right, _ = self.matrix.sweep(
            _right_rows, self.c, U=leading.vectors[:, used], image=image, total=weights.total
        )
        step = over(U, self.root_r[:, None]), float(np.log(self.size(K))), length
        moved = weights._replace(steps=(*weights.steps, step))
        return _Trial(self.V, self.c, (*self.rights, right), moved)


def _shared_weights(values: Array, k: int) -> Array:
    """Return weights from 0 to 1 of singular values, in descending order, with the sum k.

    They are about 1 for the first k and 0 for the others; values near the k-th share the weight.
    The weighted sum is a smooth function, which allows longer steps.
    """
    width = _WIDTH * values[k] if values.size > k else 0.0
    if not width > 0:
        return (np.arange(values.size) < k).astype(float)

    def weights(t: float) -> Array:
        return (1.0 + np.tanh((values - t) / (2 * width))) / 2

    low = values[-1] - 60 * width
    high = values[0] + 60 * width
    return weights(bisect(lambda t: weights(t).sum() > k, low, high)[0])


def _without(X: Array, unit: Array) -> Array:
    """Return the part of the columns of X that is orthogonal to a unit vector."""
    return np.asarray(X - np.outer(unit, unit @ X))


# --- steps of the bound for counts ------------------------------------------------------------


def _margins(block: Block) -> Pair:
    F, n = block.shape
    entries = entries_of(block)
    return (
        sums_at(entries.samples, entries.values, n),
        sums_at(entries.features, entries.values, F),
    )


def _log_weights(
    block: Block, c: Array, rights: tuple[Array, ...], weights: _Weights
) -> tuple[Entries, Array, Array, Array]:
    """Return the entries of V, log B at each, and the square roots of r and c there."""
    entries = entries_of(block)
    r = weights.r[entries.features]
    c = c[entries.samples]
    ratio = np.log(entries.values / (r * c))
    log_b = weights.power * ratio
    for (left, log_size, length), right in zip(weights.steps, rights, strict=True):
        log_b -= log_size
        leading = (1.0 + products_at(entries, left, right)) * np.exp(log_b - ratio)
        log_b += length * np.clip(1.0 - leading, -_LARGEST_CHANGE, _LARGEST_CHANGE)
    return entries, log_b, np.sqrt(r), np.sqrt(c / weights.total)


def _sums(block: Block, c: Array, *rights: Array, weights: _Weights) -> tuple[Array, Any]:
    """Return A' sqrt(r); the sums of v log b, rc' b and squared entries of A; and A sqrt(c)."""
    F, n = block.shape
    entries, log_b, root_r, root_c = _log_weights(block, c, rights, weights)
    A = np.exp(log_b) * root_r * root_c
    y = sums_at(entries.samples, A * root_r, n)
    z = sums_at(entries.features, A * root_c, F)
    first = float((A * root_r * root_c).sum())
    return y, (float(entries.values @ log_b), first, float(A @ A), z)


def _scaled_weights(block: Block, c: Array, *rights: Array, weights: _Weights) -> Block:
    """Return A = D_r^1/2 B D_c^1/2."""
    entries, log_b, root_r, root_c = _log_weights(block, c, rights, weights)
    return with_values(block, entries, np.exp(log_b) * root_r * root_c)


def _right_rows(block: Block, c: Array, *, U: Array, image: Array, total: float) -> PerSample:
    """Return A'U without the parts along the margins, each row over the root of its margin."""
    root_c = np.sqrt(c / total)[:, None]
    return over(products(block, U) - root_c * image, root_c), None

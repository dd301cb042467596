"""A lower bound for the error that uses nonnegativity: Lagrange's dual of the best rank K.

For every P >= 0 (F, N), no nonnegative factors with K components have a smaller squared error than
||V||^2 - sum_{j <= K} sigma_j(V + P)^2. With P = 0 this is the bound of Eckart and Young, which
holds for factors of any sign. The bound is concave in P, and it rises where P grows at entries at
which the rank-K part of V + P is negative: that part is -1/2 times a supergradient (Grussler,
Rantzer and Giselsson, "Low-rank optimization with convex constraints", IEEE Trans. Automat. Control
63, 2018). Every P on the way gives a valid bound. Proofs: "A lower bound that feels nonnegativity"
in the documentation.

P lives beside the samples. Of each it may fill as many entries as a sample of V has on average, at
most half, those where the rank-K part of V is most negative; of a small V, all. V + P is a view and
is never formed as a whole.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ..data.blocks import Array, Block, exact, products, with_entries
from ..data.matrix import Aligned, DataMatrix
from ..data.sketch import is_dense
from ..data.views import MappedMatrix
from ..linalg.svd import Spectrum
from .geometry import leading_plane

DEFAULT_EFFORT, SPARSE_EFFORT = 3, 1
"""Steps if none are asked for; each takes about as long as the singular values of a matrix like V.

Fits of sparse data are quick, and the first step closes most of what three do.
"""

_FIRST_STEP = 1.0  # along the rank-K part
_LONGER, _SHORTER = 1.3, 0.5  # the next step, after one that raised the bound and one that did not
_FIRST_WIDTH = 0.5  # of the eigenvalues that share the weight at K, relative to the K-th
_NARROWER = 0.25  # after two steps in a row that did not raise it
_STEP_TOL = 1e-2  # of the vectors from which a step is computed
_RISEN_TOL = 5e-3  # ... and of those from which the bound is; squared in it
_LEAST_GAIN = 1e-6  # share of its square by which a step must raise the bound
_STALL_STEPS = 6  # over which it must rise ...
_STALL_SHARE = 0.02  # ... by this share of what was gained, ...
_STALL_BOUND = 1e-5  # ... and of its square
_SMALL_ENTRIES = 1 << 17  # of a V whose entries P may all fill
_MAX_SUPPORT = 1 << 26  # entries of P
_CANDIDATES = 4  # features searched for each entry kept
_PIECE_ENTRIES = 1 << 20  # computed at a time
_ATTAINED_SHARE = 1e-8  # of ||V||^2, by which an error that counts as attained may differ


class LowerBound(NamedTuple):
    """A lower bound for the relative error of nonnegative factors.

    Attributes
    ----------
    value : float
    eckart_young : float
        The bound for factors of any sign; never above `value`.
    is_attained : bool
        Whether it is proven, to rounding, that some nonnegative factors have this error.
    failure_probability : float
        0.0, or the probability, over random vectors that were drawn, that `value` is not a bound.
    """

    value: float
    eckart_young: float
    is_attained: bool
    failure_probability: float


def best_lower_bound(
    V: DataMatrix, K: int, *, effort: int | None = None, spectrum: Spectrum | None = None
) -> LowerBound:
    """Bound the relative error of all nonnegative factors with K components from below.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int, optional
        Most steps to take, by default `default_effort`; 0 gives the bound of Eckart and Young. A
        larger effort never lowers the bound. Steps end early where they close no more.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
    >>> bound = best_lower_bound(V, 2, effort=20)
    >>> round(bound.eckart_young, 3), round(bound.value, 3)  # factors with an error of 0.378 exist
    (0.359, 0.378)
    """
    effort = default_effort(V) if effort is None else effort
    if min(V.shape) <= K:
        return LowerBound(0.0, 0.0, V.measures.lowest >= 0, 0.0)  # V = V I = I V
    spectrum = Spectrum.of(V, spectrum)
    with V.own_threads():
        energy, chance = spectrum.energy_bound(K)
        below = _relative(V, energy)
        attained = (K == 1 and V.measures.lowest >= 0) or (
            K == 2 and _is_attained_by_two(V, spectrum, energy)
        )
        if effort == 0 or attained or below == 0.0:  # V >= 0 of rank K: nothing can raise it
            return LowerBound(below, below, attained, chance)
        best = _ascend(V, K, effort, spectrum)
        if best.matrix is V:
            return LowerBound(below, below, False, chance)
        risen, risen_chance = best.spectrum.energy_bound(K, tol=_RISEN_TOL)
    if risen >= energy:
        return LowerBound(below, below, False, chance)
    return LowerBound(_relative(V, risen), below, False, risen_chance)


def _is_attained_by_two(V: DataMatrix, spectrum: Spectrum, energy: float) -> bool:
    """Whether the projection of V to a plane is nonnegative and keeps all this energy."""
    plane = leading_plane(V, spectrum=spectrum)
    return bool(plane.is_nonnegative and plane.energy >= energy - _ATTAINED_SHARE * V.total)


def default_effort(V: DataMatrix) -> int:
    """Return how many steps to take if none are asked for: 3, or 1 if few entries are not zero."""
    return DEFAULT_EFFORT if is_dense(V) else SPARSE_EFFORT


def _relative(V: DataMatrix, energy: float) -> float:
    return float(np.sqrt(max(1.0 - energy / V.total, 0.0)))


# --- the ascent -------------------------------------------------------------------------------


class _Point(NamedTuple):
    """V + P, its leading vectors and eigenvalues, and what K components explain of it."""

    P: Aligned  # values on the support
    matrix: DataMatrix
    spectrum: Spectrum
    vectors: Array
    values: Array
    energy: float


def _ascend(V: DataMatrix, K: int, effort: int, spectrum: Spectrum) -> _Point:
    """Projected gradient steps from P = 0; a step that does not lower the energy is taken back.

    At the best P the K-th singular value is often equal to the next ones, so that the rank-K part
    jumps. Eigenvalues within a width of the K-th share the weight: the part is that of
    sum_j weight_j sigma_j^2, which is smooth.
    """
    vectors, values = spectrum.leading_subspace(K)
    Q, width = vectors[:, :K], support_width(V)
    features = _candidate_features(V, Q * np.sqrt(values[:K]))
    support, P, negative = V.sweep(_choose_support, Q=Q, features=features, width=width)
    best = _Point(P, V, spectrum, vectors, values, float(values[:K].sum()))
    if 2 * _FIRST_STEP * negative <= _STALL_BOUND * (V.total - best.energy):
        return best  # by concavity the first step raises the bound by no more than this
    step, smoothing, failures = _FIRST_STEP, _FIRST_WIDTH, 0
    first, risen = best.energy, [0.0]
    for _ in range(effort):
        weights = _weights(best.values, K, smoothing * best.values[K - 1])
        P, _ = best.matrix.sweep(
            _grow, support, best.P, Q=best.vectors, weights=step * weights, features=features
        )
        trial = _point(V, K, support, P, features, best.vectors)
        if trial.energy < best.energy - _LEAST_GAIN * (V.total - best.energy):
            best, step, failures = trial, _LONGER * step, 0
        else:
            step, failures = _SHORTER * step, failures + 1
            if failures == 2:
                smoothing, failures = _NARROWER * smoothing, 0
        risen.append(first - best.energy)
        needed = _STALL_SHARE * risen[-1] + _STALL_BOUND * (V.total - best.energy)
        if len(risen) > _STALL_STEPS and risen[-1] - risen[-1 - _STALL_STEPS] < needed:
            break
    return best


def _point(
    V: DataMatrix, K: int, support: Aligned, P: Aligned, features: Array, start: Array
) -> _Point:
    change = partial(_plus, features=features)
    matrix = MappedMatrix(V, change, support, P, dtype=np.dtype(np.float64))
    spectrum = Spectrum(matrix, start=start)
    vectors, values = spectrum.leading_subspace(K, tol=_STEP_TOL)
    return _Point(P, matrix, spectrum, vectors, values, float(values[:K].sum()))


def _plus(block: Block, support: Array, P: Array, *, features: Array) -> Block:
    """V + P. Rounding keeps it at V or above, so what is computed with is exactly such a sum."""
    return with_entries(block, features[support], P)


def _weights(values: Array, K: int, width: float) -> Array:
    """Weights in [0, 1] that sum to K: min(1, max(0, (value - t) / width)) with the right t."""
    low, high = float(values[-1]) - width, float(values[0])
    for _ in range(60):
        t = (low + high) / 2
        weights = np.clip((values - t) / width, 0.0, 1.0)
        low, high = (t, high) if weights.sum() > K else (low, t)
    return weights


def support_width(V: DataMatrix) -> int:
    """Return how many entries of each sample P may fill: as many as V has, on average.

    At most half of all, since few are negative in the rank-K part of dense data; all if V is small.
    """
    F, N = V.shape
    if F * N <= _SMALL_ENTRIES:
        return F
    return max(1, min(-(-F // 2), -(-V.n_entries // N), _MAX_SUPPORT // N))


def _candidate_features(V: DataMatrix, weighted: Array) -> Array:
    """Features with the largest entries in the rank-K part, ascending, a few per entry kept."""
    count = min(V.shape[0], _CANDIDATES * support_width(V))
    energies = np.einsum("fk,fk->f", weighted, weighted)
    return np.sort(np.argsort(-energies, kind="stable")[:count])


def _choose_support(
    block: Block, *, Q: Array, features: Array, width: int
) -> tuple[Array, Array, float]:
    """Where the rank-K part of each sample is most negative: ascending places among features.

    With zeros for P there, and the sum of squares of these negative entries.
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
) -> tuple[Array, None]:
    """max(P - Q diag(weights) Q'(V + P), 0) on the support; the block is that of V + P."""
    C = products(exact(block), Q) * weights
    grown = np.empty_like(P)
    for rows in _pieces(len(P), features.size):
        part = np.take_along_axis(C[rows] @ Q[features].T, support[rows], axis=1)
        grown[rows] = np.maximum(P[rows] - part, 0.0)
    return grown, None


def _pieces(n: int, width: int) -> list[slice]:
    size = max(1, _PIECE_ENTRIES // width)
    return [slice(start, start + size) for start in range(0, n, size)]

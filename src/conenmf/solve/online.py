"""Streams: cones and factors of samples that arrive batch by batch and are not kept.

The paper leaves an online version of its algorithms open; this is one. A stream keeps at most K
centres and, for each of their cones, a sketch of its samples (`cones.streams`). It also keeps
K components with the statistics HH' and VH', from which a loop updates them one batch at a time,
because no sample is read twice. Cones affect components in only one way: a cone whose sum the
components approximate badly gets its own component. The memory of a stream does not grow with the
number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.linalg import norm

from ..arguments import components, integer
from ..cones.streams import SKETCH_SIZE, StreamCones, update_cones
from ..data.blocks import Block, exact, first_largest, over
from ..data.matrix import Aligned, DataMatrix
from ..data.resources import require_memory
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, DataError, NotFiniteError
from ..linalg.nnls import nnls
from ..types import Array, Pair
from .solvers import FLOOR, hals

# Chosen on simulated cones and on spectra, faces and texts.
_BATCH_ITER = 3  # updates of H and W for each batch
_FIRST_BATCH_ITER = 50  # for the first batch, on which later ones build
_W_SWEEPS = 4  # of hals over W in each iteration
_FORGET_POWER = 0.5  # n past samples weigh (n / (n + m))^0.5 when m new ones arrive
_EVIDENCE_RATIO = 3.0  # error that moving a component removes, over the error that it adds
_NEGLIGIBLE_SHARE = 1e-12  # of a squared norm: smaller values are rounding
_TIE_SHARE = 1e-9  # relative difference up to which errors count as equal
_FLOORED_NORM = 1e-8  # a component with a smaller norm is at the floor of hals


@dataclass(frozen=True)
class _Factors:
    """Unit components W (F, k), and statistics of the coefficients H of the samples so far.

    A = HH' (k, k) and B = VH' (F, k) weigh recent samples more; D is HH' with equal weights.
    """

    W: Array
    A: Array
    B: Array
    D: Array

    def extended(self, w: Array) -> _Factors:
        """Return the factors with one more component, which no sample uses."""
        K = len(self.A)
        return self._moved(np.column_stack([self.W, w]), np.eye(K + 1, K))

    def _moved(self, W: Array, M: Array) -> _Factors:
        """Return the factors with components W and coefficients M H."""
        return _Factors(W, M @ self.A @ M.T, self.B @ M.T, M @ self.D @ M.T)

    def scaled(self, size: Array) -> _Factors:
        """Return the factors with columns w_k / size_k and rows size_k h_k; size 0 empties one."""
        both = np.outer(size, size)
        return _Factors(over(self.W, size), self.A * both, self.B * size, self.D * both)

    def cheapest_merge(self) -> tuple[float, int, int]:
        """Return the smallest squared error of replacing two components by one, and their indices.

        w_i h_i' + w_j h_j' has rank two. The error of its best rank-one approximation is the
        smaller squared singular value, the smaller root of x^2 - t x + d with t = tr(G D) and d =
        det(G D) for the two components.
        """
        unit = self.D.max() or 1.0
        D = self.D / unit
        G = np.clip(self.W.T @ self.W, 0.0, 1.0)
        own = np.diagonal(D)
        t = own[:, None] + own + 2.0 * G * D
        d = (1.0 - G**2) * np.maximum(np.outer(own, own) - D**2, 0.0)
        larger = (t + np.sqrt(np.maximum(t**2 - 4.0 * d, 0.0))) / 2.0
        error = over(d, larger)
        error[np.tril_indices_from(error)] = np.inf
        i, j = np.unravel_index(first_largest(-error.ravel(), _TIE_SHARE), error.shape)
        return float(error[i, j]) * unit, int(i), int(j)

    def with_merged(self, i: int, j: int, total: Array, count: float) -> _Factors:
        """Merge components i and j; j then represents `count` samples with the sum `total`."""
        W = self.W.copy()
        M = np.eye(len(self.A))
        weights = np.sqrt(self.D[[i, j], [i, j]])
        joint = W[:, [i, j]] @ (weights if weights.any() else np.ones(2))
        W[:, i] = joint / norm(joint)
        M[i, [i, j]] = W[:, i] @ self.W[:, [i, j]]  # their coefficients in units of component i
        M[j, j] = 0.0
        length = norm(total)
        W[:, j] = total / length
        after = self._moved(W, M)
        after.A[j, j] = after.D[j, j] = length**2 / count
        after.B[:, j] = W[:, j] * after.A[j, j]
        return after


class ConeStream:
    """Cones and a factorization of samples that arrive in batches.

    Parameters
    ----------
    F : int
        Number of features.
    K : int
        Number of components, and of cones.

    Attributes
    ----------
    cones : StreamCones
    n_samples : int
        The number of samples so far, including zero samples.
    n_batches : int

    Notes
    -----
    *How the cones change.* Of the samples of a batch, the one farthest from all centres is taken,
    again and again. While there are fewer than K centres it becomes one, if its direction is
    new. With K centres it becomes one if its angle to all of them is larger than the smallest
    angle between two of them; those two then become one cone, which keeps one of the two centres
    and the sum of both. Every sample is added to the sum of its nearest centre.

    *What is guaranteed.* Let there be K cones, and let any two samples of different cones be
    farther apart than any two samples of one cone, which the geometric assumption implies. Then
    for every order of the samples and all sizes of batches:

    1. two centres are only ever joined if they are of one cone, so no cone loses its last centre;
    2. after each batch, every cone that has sent a sample has a centre;
    3. as soon as every cone has sent one, there is one centre for each, and they never change;
    4. the sums are those of the true cones: each sum is of samples of one cone, and from 3. on
       it is the sum of all of them.

    Proof. (1) If a sample x replaces a centre, it and the K centres are K + 1 samples of K cones,
    so two of them share a cone, and the smallest angle among the K + 1 is that between two of one
    cone. It is not one of the angles of x, which are larger than the smallest between centres; so
    the two closest centres are of one cone, and one of them stays. (2) Let x be of a cone without
    a centre. Its angle to every centre is larger than any within a cone. If there are fewer than
    K centres it is a new direction. If there are K, they are of at most K - 1 cones, two of them
    share one, and x is farther from all centres than those two from each other. Either way x is
    eligible, and before any sample whose cone has a centre, being farther away. (3) One centre for
    each of K cones, and a sample of any of them is nearer to the centre of its own cone than any
    two centres are to each other. (4) By 2. a sample's own cone has a centre when it is added,
    and all those of other cones are farther away; by 1. only sums of one cone are ever added.

    Every block sends only its candidates: K samples, each the farthest from the centres and the
    candidates before it. These include one of each cone without a centre, as in `cluster_cones`
    with method "one-pass", so the proof holds for them.

    By 4. a settled cone has all its samples in its sketch. So with `axes` as W, and each sample on
    the axis of its cone, the relative error of everything seen is at most sqrt(1 + 1 / l) times
    that of cr1-nmf on all samples at once, for any order, with l = 10 columns in a sketch: see
    "Streams" in the documentation.

    *How the components change.* Each new cone brings a component until there are K. After that, the
    axis of a cone takes over a component where that pays: n_k samples with sum s_k have an error of
    at least ||s_k - W h||^2 / n_k for the best h >= 0, because the squared distance to a convex
    cone is convex. If that is several times the error made by merging the two components that are
    needed least, known from HH', these are merged. So a lone outlier, which always becomes a
    centre, does not cost a component that many samples use. Then H is found by exact nonnegative
    least squares for the batch, W by hals from HH' and VH', a few times alternately. Earlier
    samples enter with the coefficients they had when they arrived, which later components cannot
    change; recent samples weigh more.

    *What is only measured.* About the error of W, which is not `axes`, nothing is proved. On
    simulated cones of a thousand samples or more in random order it was within 0.8% of that of
    `factorize` on all samples at once; of 200 samples, one at a time, within 1.4%. With one whole
    cone after the other it was within 1% for 200 features and 8 cones, and up to 1.6% above for
    fewer: there the init of `factorize`, Algorithm 2, is that much above what its solver reaches,
    and a stream cannot go back over its samples.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> stream = ConeStream(2, 2)
    >>> stream.update(from_columns([[9.0, 8.0], [1.0, 0.0]]))
    >>> stream.update(from_columns([[0.0, 1.0], [3.0, 7.0]]))
    >>> stream.cones.counts
    array([2., 2.])
    """

    def __init__(self, F: int, K: int) -> None:
        self.F = integer("F", F, at_least=1)
        self.K = components(K)
        require_memory("K", K, 8 * K * max(F, K), ComponentsError)
        self.n_samples = self.n_batches = 0
        columns = np.zeros((F, 0))
        none = np.zeros((0, 0))
        self.cones = StreamCones.empty(F)
        self._factors = _Factors(columns, none, columns, none)

    @classmethod
    def from_factors(cls, W: Array, HH: Array, sums: Array, n_samples: int) -> Self:
        """Continue from a factorization of earlier samples, as if they were exactly W H.

        Parameters
        ----------
        W : array (F, K)
        HH : array (K, K)
            HH'.
        sums : array (K,)
            The sum of each row of H.
        n_samples : int
            N.
        """
        W = exact(W)
        stream = cls(*W.shape)
        stream.n_samples = n_samples
        size = norm(W, axis=0)
        is_used = (size > 0) & (np.diagonal(HH) > 0)
        W = W[:, is_used] / size[is_used]
        size = size[is_used]
        A = HH[np.ix_(is_used, is_used)] * np.outer(size, size)
        sums = exact(sums)[is_used] * size
        # this many equal samples with this sum and this sum of squares
        sketches = np.zeros((*W.T.shape, SKETCH_SIZE))
        sketches[:, :, 0] = (W * np.sqrt(np.diagonal(A))).T
        stream.cones = StreamCones(W, W * sums, sums**2 / np.diagonal(A), sketches)
        stream._factors = _Factors(W, A, W @ A, A)
        return stream

    @property
    def W(self) -> Array:
        """The components (F, K) with unit columns; zero for components not known yet."""
        return self._padded(np.where(self._factors.W > FLOOR, self._factors.W, 0.0))

    @property
    def axes(self) -> Array:
        """The axes of the cones, unit vectors (F, K); zero for cones not known yet."""
        return self._padded(self.cones.axes)

    def _padded(self, columns: Array) -> Array:
        return np.pad(columns, ((0, 0), (0, self.K - columns.shape[1])))

    def update(self, V: DataMatrix) -> None:
        """Update cones and components with a batch of samples, a DataMatrix (F, N).

        This takes four passes over the batch, one more if centres change, and 47 more for the first
        batch.
        """
        require_data_matrix(V)
        if V.n_features != self.F:
            raise DataError(
                f"the batch has {V.n_features} features, the stream has {self.F}: they must agree"
            )
        cones = self.cones
        factors = self._factors
        if V.nonzero:
            with V.own_threads():
                cones = update_cones(V, cones, self.K)
                factors = _update_W(V, _assign_components(cones, factors), self.n_samples)
        if not (np.isfinite(factors.W).all() and np.isfinite(cones.axes).all()):
            problem = "the batch made components NaN or infinite, so the stream did not take it: "
            raise NotFiniteError(problem, "check it for entries far larger than all others")
        self.cones = cones
        self._factors = factors
        self.n_samples += V.n_samples
        self.n_batches += 1


# --- components -------------------------------------------------------------------------------


def _assign_components(cones: StreamCones, factors: _Factors) -> _Factors:
    """Give components to new cones, and to cones that need one more than other cones do."""
    S = cones.sums
    counts = np.maximum(cones.counts, 1.0)
    K = S.shape[1]
    for k in range(factors.W.shape[1], K):
        length = norm(S[:, k])
        axis = S[:, k] / length if length > 0 else cones.directions[:, k]
        factors = factors.extended(axis)
    if not factors.D.any() or K == 1:
        return factors
    for _ in range(K):
        W = factors.W
        residual = S - W @ nnls(W.T @ W, S.T @ W).T
        error = np.einsum("fk,fk->k", residual, residual) / counts
        k = int(first_largest(error, _TIE_SHARE))
        added, i, j = factors.cheapest_merge()
        if error[k] <= _EVIDENCE_RATIO * added or error[k] <= _NEGLIGIBLE_SHARE * S[:, k] @ S[:, k]:
            break
        factors = factors.with_merged(i, j, S[:, k], counts[k])
    return factors


def _update_W(V: DataMatrix, factors: _Factors, n_samples: int) -> _Factors:
    """Update W from a batch, and add its final coefficients to the statistics."""
    past = (n_samples / (n_samples + V.n_samples)) ** _FORGET_POWER
    W = factors.W
    Ht: list[Aligned] = []
    for _ in range(_BATCH_ITER if factors.D.any() else _FIRST_BATCH_ITER):
        *Ht, (VH, HH) = V.sweep(_solve_H, *Ht, W=W, G=W.T @ W)
        A = past * factors.A + HH
        B = past * factors.B + VH
        for _ in range(_W_SWEEPS):
            W = hals(A, B, W)
    size = norm(W, axis=0)
    size = np.where(size > _FLOORED_NORM, size, 0.0)  # a component at the floor ...
    after = _Factors(W, A, B, factors.D + HH).scaled(size)
    return replace(after, W=np.where(size > 0, after.W, factors.W))  # ... stays without samples


def _solve_H(block: Block, H: Array | None = None, *, W: Array, G: Array) -> tuple[Array, Pair]:
    """Return the coefficients of a block's samples, and their sums VH' (F, K) and HH' (K, K)."""
    samples = exact(block)
    H = nnls(G, samples.T @ W, H)
    return H, (samples @ H, H.T @ H)

"""A sketch of V: its samples in the coordinates of a small basis, V ~ Q B'.

Q (F, r) spans nearly the leading r left singular vectors of V, found by a randomised subspace
iteration (Halko, Martinsson and Tropp, "Finding structure with randomness", SIAM Review 53, 2011);
B = V'Q (N, r) is kept beside the samples. A pass over the sketch costs r / F of one over V, so a
solver may iterate on it and finish on V itself.

A sketch is the same for the same data, wherever and in whichever blocks they are kept: the basis
begins with the same random vectors, what decides (is a sketch worth it?) are the entries that are
not zero and not those that are stored, and sums are in double precision, unless V is in single
precision itself. On a cluster an iteration on V takes a round of messages; B is small, so it is
brought to this process, where an iteration takes none.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from ..arguments import integer
from ..errors import ComponentsError, Message, NotAvailableError, Option, OptionError
from .blocks import Array, Block, equal_borders, exact, products
from .matrix import Aligned, DataMatrix, Measures, Step, Work
from .memory import hold
from .threads import run_in_order
from .validate import require_data_matrix
from .views import View

_SUBSPACE_STEPS = 3  # text has flat spectra, for which two are too few
_VECTORS_PER_COMPONENT = 2
_MIN_SPEEDUP = 3  # of a pass over the sketch
_DENSE_SHARE = 0.1  # of entries that are not zero, from which on data count as dense
_LARGE_ENTRIES = 1 << 20  # fewer are not worth a sketch
_MIN_SINE = 1e-6  # of the angle between a column and those before it
_MAX_CLIENT_BYTES = 1 << 28  # of coordinates that are brought from a cluster
_MAX_SINGLE_NORM = 1e15  # up to which squares stay in the range of float32
_BATCHES, _MIN_BATCH_ROWS = 8, 512  # of features, on threads
_NO_SAMPLES = "a sketch has no samples to read: use V itself"


class Sketch(View):
    """V ~ Q B', for solvers: they see V through V'W = B (Q'W) and VH' = Q (B'H') alone.

    Its norms are those of V. It has no samples of its own to read: `visit` and `columns` raise
    `NotAvailableError`.
    """

    def __init__(self, V: DataMatrix, Q: Array, B: Aligned) -> None:
        super().__init__(V, Q.dtype)
        self.Q, self.B, self._whole = Q, B, V
        if V.is_remote and B.nbytes <= _MAX_CLIENT_BYTES:
            self.B = np.asarray(B)
            self.V, self.is_remote = hold(self.B, n_threads=V.n_threads), False

    @property
    def depth(self) -> int:
        """The number of vectors in the basis."""
        return int(self.Q.shape[1])

    @property
    def subspace(self) -> tuple[Array, Aligned]:
        """The basis Q (F, r), and the coordinates B (N, r) of the samples."""
        return self.Q, self.B

    def _measure(self) -> Measures:
        measures = self._whole.measures
        return measures._replace(norms_squared=self.align(measures.norms_squared))

    def mean(self) -> float:
        """Return the mean entry of V; costs a pass."""
        return self._whole.mean()

    def gram(self) -> Array:
        """Return B'B (r, r), whose eigenvalues are the squared singular values of the sketch."""
        return np.asarray(self.sweep(_gram)[0])

    def coordinates(self, W: Array) -> Array:
        """Return Q'W, summed over batches of features on threads."""
        borders = equal_borders(len(W), max(_MIN_BATCH_ROWS, -(-len(W) // _BATCHES)))
        total = np.zeros((self.depth, W.shape[1]), np.result_type(self.Q, W))

        def run(number: int) -> Array:
            rows = slice(*borders[number])
            return self.Q[rows].T @ W[rows]

        def collect(number: int, part: Array) -> None:
            np.add(total, part, out=total)

        run_in_order(run, collect, len(borders), self.n_threads)
        return total

    def features(self, sums: Array, rows: slice = slice(None)) -> Array:
        """Return Q times sums of samples, or some rows of it."""
        features: Array = self.Q[rows] @ sums.astype(self.dtype, copy=False)
        return features.astype(sums.dtype, copy=False)

    def _sweep(self, work: Work) -> tuple[Any, ...]:
        aligned, shared = (self.B, *work.aligned), {"step": work.step, **work.shared}
        return self.V._map(work._replace(step=_on_coordinates, aligned=aligned, shared=shared))

    def _visit(self, work: Work) -> tuple[Any, ...]:
        raise NotAvailableError(_NO_SAMPLES)

    def _gather(self, indices: Array) -> Block:
        raise NotAvailableError(_NO_SAMPLES)


def _on_coordinates(
    index: range, B: Array, *aligned: Array, step: Step, **shared: Any
) -> tuple[Any, ...]:
    return step(B.T, *aligned, **shared)


def sketch(V: DataMatrix, rank: int) -> Sketch:
    """Make a sketch of V with a basis of `rank` vectors; four passes, always the same bits.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> W, H = rng.random((30, 3)), rng.random((3, 50))
    >>> S = sketch(from_columns(W @ H), 6)
    >>> bool(np.allclose(S.Q @ S.B.T, W @ H, atol=1e-5))
    True
    """
    require_data_matrix(V, nonzero=True)
    rank = integer("rank", rank)
    if not 1 <= rank <= min(V.shape):
        raise ComponentsError(
            f"a sketch of a {V.shape[1]} x {V.shape[0]} matrix has a rank from 1 to "
            f"{min(V.shape)}, not {rank}"
        )
    in_range = 1 / _MAX_SINGLE_NORM < V.norm < _MAX_SINGLE_NORM
    dtype = V.dtype if in_range else np.dtype(np.float64)
    Q = np.random.default_rng(0).standard_normal((V.shape[0], rank)).astype(dtype)
    with V.own_threads():
        for _ in range(_SUBSPACE_STEPS):
            Q = orthonormal(V.square_times(Q)).astype(dtype)
        B, _ = V.sweep(_coordinates, Q=Q)
    return Sketch(V, Q, B)


def checked_rank(name: str, rank: int | str | None) -> int | str | None:
    """Return the rank of a sketch, "auto" or None."""
    if rank is None or (isinstance(rank, str) and rank == "auto"):
        return rank
    with suppress(OptionError):
        return integer(name, rank, at_least=1)
    expected = ", expected a rank of at least 1, 'auto' or None"
    raise OptionError(Message(Option(name, rank), expected))


def orthonormal(Y: Array) -> Array:
    """Return an orthonormal basis of the columns of Y (F, r), by Cholesky decomposition done twice.

    Much faster than Householder's method for long columns. That is used instead if the columns are
    too close to dependent.
    """
    basis: Array = Y / np.maximum(np.linalg.norm(Y, axis=0), np.finfo(np.float64).tiny)
    try:
        for _ in range(2):
            L = np.linalg.cholesky(basis.T @ basis)
            if np.diagonal(L).min() < _MIN_SINE:
                break
            basis = basis @ np.linalg.inv(L).T
        else:
            return basis
    except LinAlgError:
        pass
    return np.linalg.qr(Y)[0]


def _gram(block: Block) -> tuple[Array]:
    coordinates = exact(block)
    return (coordinates @ coordinates.T,)


def _coordinates(block: Block, *, Q: Array) -> tuple[Array, None]:
    return products(block.astype(Q.dtype, copy=False), Q), None


def sketch_rank(V: DataMatrix, K: int) -> int | None:
    """Return the rank of the sketch that speeds up a solver with K components, or None.

    A pass over V costs the entries of V that are not zero times K, one over the sketch (F + N) r K.
    """
    F, N = V.shape
    rank = _VECTORS_PER_COMPONENT * K
    if not is_dense(V) or V.n_entries < _LARGE_ENTRIES or rank > min(F, N) / 2:
        return None
    return rank if V.n_entries >= _MIN_SPEEDUP * (F + N) * rank else None


def is_dense(V: DataMatrix) -> bool:
    """Return whether V has many entries that are not zero; stored zeros do not count."""
    return V.n_entries > _DENSE_SHARE * V.shape[0] * V.shape[1]

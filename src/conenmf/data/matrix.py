"""The protocol for reading V, independent of its storage.

Every algorithm of this library applies a step to each block of samples, keeps the results per
sample and sums the others: `DataMatrix.sweep` does this. `map` works in the same way but does not
read V; `columns` reads single samples.

In the paper V is F x N and its columns are the samples. Arrays with one row per sample, such as the
transpose of H, are called *aligned*. They are stored with the blocks: in memory, in a temporary
file, or on the workers of a cluster. Therefore algorithms do not compute with them directly, but
pass them to steps.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import integer, optional
from ..kernels import SMALLEST_SQUARE
from ..names import Names
from ..types import Array, DType, Facts, Shape, Texts
from .blocks import Block, Rows, exact, is_sparse, products, weighted_sums, with_data
from .resources import available_threads

# An array with one row per sample, which is passed to steps: an ndarray, or a Dask array.
Aligned: TypeAlias = Any

# W (F, K), and H or its transpose.
Factors: TypeAlias = tuple[Array, Aligned]

# What a step returns: rows for the samples of its block, then sums.
Results: TypeAlias = tuple[Any, ...]

# What a step without sums returns.
PerSample: TypeAlias = tuple[Array, None]

Step: TypeAlias = Callable[..., Results]
Reduce: TypeAlias = Callable[[Any, Any], Any]


def add(total: Any, part: Any) -> Any:
    """Add a block's part to the total: tuples and dicts item by item, arrays in place."""
    if part is None:
        return None
    if isinstance(part, dict):
        return {name: add(total[name], value) for name, value in part.items()}
    if isinstance(part, tuple):
        items = [add(a, b) for a, b in zip(total, part, strict=True)]
        return part._make(items) if hasattr(part, "_make") else tuple(items)
    total += part
    return total


class Work(NamedTuple):
    """A step and its arguments; it is applied to blocks of V, or to indices of samples."""

    reads: bool
    step: Step
    aligned: tuple[Aligned, ...]
    reduce: Reduce
    shared: Facts


_MEASURED_BYTES = 1 << 18  # read at a time, so that a second reading finds them in the cache


class Measures(NamedTuple):
    """The measures of V that one pass computes.

    Attributes
    ----------
    norms_squared : aligned (N,), float64
        ||v||^2 of each sample; 0 if it is so small that digits are lost or its inverse is infinite.
    total : float
        ||V||^2, their sum.
    nonzero : int
        How many samples are not zero.
    n_entries : int
        How many entries are not zero; stored zeros do not count.
    largest_squared : float
        The largest of `norms_squared`; NaN if any is.
    lowest : float
        The smallest entry of V; NaN if any is.
    """

    norms_squared: Aligned
    total: float
    nonzero: int
    n_entries: int
    largest_squared: float
    lowest: float


# The fields of `Measures` after the first, for some of the samples.
_Sums: TypeAlias = tuple[float, int, int, float, float]


def measure_block(block: Block) -> tuple[Array, _Sums]:
    """Step: return the squared norm of each sample, and the sums for the block."""
    with np.errstate(over="ignore", invalid="ignore"):
        if is_sparse(block):
            entries = exact(block.data)
            squared = with_data(block, entries * entries).T @ np.ones(block.shape[0])
            lowest = entries.min(initial=0.0)
            n_entries = int(np.count_nonzero(entries))
        else:
            rows: Array = block.T
            squared = np.empty(len(rows))
            lowest = np.inf
            n_entries = 0
            at_a_time = 1 + _MEASURED_BYTES // (8 * rows.shape[1])
            for start in range(0, len(rows), at_a_time):
                part = np.ascontiguousarray(rows[start : start + at_a_time], dtype=float)
                np.vecdot(part, part, out=squared[start : start + at_a_time])
                lowest_of_part = part.min()
                lowest = np.minimum(lowest, lowest_of_part)  # unlike min, this propagates NaN
                n_entries += part.size if lowest_of_part > 0 else int(np.count_nonzero(part))
        squared[squared <= SMALLEST_SQUARE] = 0.0
        total = float(squared.sum())
    nonzero = int(np.count_nonzero(squared))
    return squared, (total, nonzero, n_entries, float(squared.max()), float(lowest))


def join_sums(a: _Sums, b: _Sums) -> _Sums:
    """Return the joint sums of two blocks."""
    return (
        a[0] + b[0],
        a[1] + b[1],
        a[2] + b[2],
        float(np.maximum(a[3], b[3])),
        float(np.minimum(a[4], b[4])),
    )


if TYPE_CHECKING:
    from .prepare import Preparation, Vocabulary


_MAX_THREADS = 1024
_UNLIMITED = 1 << 40


class DataMatrix(ABC):
    """A nonnegative matrix V of F features by N samples, read in blocks of samples.

    Parameters
    ----------
    shape : (F, N)
    dtype : float32 or float64
        The type of the blocks.
    n_threads : int, optional
        Number of threads; by default as many as this process may use.
    names : Names
        The names of samples and features, if they have any.

    Attributes
    ----------
    shape, n_features, n_samples : (F, N), int, int
        The numbers of features and samples.
    passes : float
        The number of passes over V so far: samples read / N.
    passes_here : float
        The part of `passes` that the current thread caused, so that a fit counts its own passes
        while other fits read the same matrix.
    is_in_memory : bool
        Whether V is in the memory of this process.
    is_remote : bool
        Whether the samples are on the workers of a cluster. Then every call costs a round of
        messages, and aligned arrays are not in this process.
    max_gather : int
        A hint for `columns`: the largest batch to request.
    remarks : tuple of str
        How the file was read, if there were several ways.
    vocabulary : Vocabulary or None
        The words of texts and their weights.
    preparation : Preparation or None
        The steps that `prepare` applied to the entries, if the matrix is such a view.
    observed : Observed or None
        Which entries are known, and their weights; None if all are known and weigh the same.
    are_ratings : bool
        Whether entries that a sparse matrix does not store are unknown, not zero, although all may
        be known.
    unweighed : Weighed or None
        The original samples, if the samples of this matrix are multiplied by weights.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> V = from_rows([[3.0, 4.0], [0.0, 12.0]])  # two samples
    >>> V.norms_squared.tolist(), V.norm, V.columns([1]).ravel().tolist()
    ([25.0, 144.0], 13.0, [0.0, 12.0])
    """

    is_in_memory: bool = False
    is_remote: bool = False
    max_gather: int = 512
    remarks: Texts = ()
    vocabulary: Vocabulary | None = None
    preparation: Preparation | None = None
    observed: Any = None
    are_ratings: bool = False
    unweighed: Any = None

    def __init__(
        self,
        shape: Shape,
        dtype: DType,
        *,
        n_threads: int | None = None,
        names: Names = Names(),  # noqa: B008 - immutable
    ) -> None:
        self.shape = self.n_features, self.n_samples = shape
        self.dtype = dtype
        threads = optional(integer, "n_threads", n_threads, at_least=1, at_most=_MAX_THREADS)
        self.n_threads = available_threads() if threads is None else threads
        self.names = names.checked(shape[1], shape[0])
        self._passes_by_thread: dict[int, float] = {}
        self._measures: Measures | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all entries are known and weigh the same."""
        return self.observed is None

    @property
    def original(self) -> DataMatrix:
        """The matrix without weights of samples."""
        V: DataMatrix = self if self.unweighed is None else self.unweighed.V
        return V

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.n_features * self.n_samples

    @property
    def aligned_weights(self) -> tuple[Aligned, ...]:
        """The weights of entries as arguments for steps; empty if all weigh the same."""
        return () if self.is_complete else self.observed.aligned

    # --- what was read ---

    @property
    def passes(self) -> float:
        """The number of passes over V so far: samples read / N."""
        return sum(list(self._passes_by_thread.values()), 0.0)

    @property
    def passes_here(self) -> float:
        """The number of passes that the current thread caused."""
        return self._passes_by_thread.get(threading.get_ident(), 0.0)

    def _count(self, passes: float) -> None:
        """Count passes for the current thread, even if other threads read."""
        self._passes_by_thread[threading.get_ident()] = self.passes_here + passes

    @property
    def share_of_pass(self) -> float | None:
        """The part of the running pass that is done; None between passes, or if it is unknown."""
        return None

    # --- measures of one pass ---

    @property
    def measures(self) -> Measures:
        """The measures of V; opened data have them, other matrices compute them on first use."""
        if self._measures is None:
            norms_squared, sums = self.sweep(measure_block, reduce=join_sums)
            self._measures = Measures(norms_squared, *sums)
        return self._measures

    @property
    def norms_squared(self) -> Aligned:
        """||v||^2 of each sample: aligned (N,), float64."""
        return self.measures.norms_squared

    @property
    def total(self) -> float:
        """||V||^2, the sum of `norms_squared`."""
        return self.measures.total

    @property
    def norm(self) -> float:
        """||V||, the Frobenius norm."""
        return math.sqrt(self.total)

    @property
    def nonzero(self) -> int:
        """How many samples are not zero."""
        return self.measures.nonzero

    @property
    def n_entries(self) -> int:
        """How many entries are not zero; stored zeros do not count."""
        return self.measures.n_entries

    def mean(self) -> float:
        """Return the mean entry of V; takes a pass."""
        (total,) = self.sweep(lambda block: (float(block.sum(dtype=float)),))
        return float(total) / self.size

    @property
    def other_order(self) -> DataMatrix | None:
        """The transposed data, if a copy is stored for repeated passes; otherwise None.

        Sparse data in memory have such a copy if it is small enough. With it each of the two
        products of an iteration goes along rows, and blocks need no sums of the size of a factor.
        """
        return None

    def square_times(self, X: Array) -> Array:
        """Return V V'X (F, r) for an array X (F, r), multiplied in the type of X; one pass.

        Parameters
        ----------
        X : array (F, r)
        """
        other = self.other_order
        if other is None:
            (image,) = self.sweep(_square_times, X=X)
            return np.asarray(image)
        products, _ = self.sweep(multiplied, X=X)
        image, _ = other.sweep(multiplied, X=products)
        return np.asarray(image)

    # --- reading ---

    def sweep(self, step: Step, *aligned: Aligned, reduce: Reduce = add, **shared: Any) -> Results:
        """Read V once: apply a step to every block, keep results per sample, sum the others.

        Parameters
        ----------
        step : callable
            ``step(block, *aligned_rows, **shared) -> (*per_sample, part)``. Each of `per_sample`
            has one row per sample of the block; `part` is reduced over blocks (None if there is
            nothing to reduce). A step must be a function of a module, so that it can be sent to
            other processes, and must not change its arguments.
        *aligned : arrays (N, ...)
            Arrays with one row per sample; the step gets the rows of its block.
        reduce : callable
            ``reduce(total, part) -> total``; it must be associative, and is applied in the order of
            the blocks. It may change `total`.
        **shared
            Small objects that every block needs, such as W.

        Returns
        -------
        tuple
            ``(*per_sample, total)``; the results per sample are joined over all blocks.

        Notes
        -----
        The borders of the blocks and the order of the sums depend only on V, so the results have
        the same bits for any number of threads or workers.
        """
        self._count(1.0)
        return self._run(Work(True, step, tuple(map(self.align, aligned)), reduce, shared))

    def map(self, step: Step, *aligned: Aligned, reduce: Reduce = add, **shared: Any) -> Results:
        """Work like `sweep` without reading V: the step gets the range of its samples' indices.

        Parameters
        ----------
        step : callable
            ``step(index, *aligned_rows, **shared)``.
        *aligned, reduce, **shared
            As in `sweep`.
        """
        return self._run(Work(False, step, tuple(map(self.align, aligned)), reduce, shared))

    def by_rows(self, function: Callable[..., Array], *aligned: Aligned) -> Aligned:
        """Return ``function(index, *rows)`` of aligned arrays, with one row per sample.

        V is not read; `index` is the range of the samples.

        Parameters
        ----------
        function : callable
        *aligned : arrays (N, ...)
            Arrays with one row per sample.
        """
        return self.map(lambda index, *rows: (function(index, *rows), None), *aligned)[0]

    def indices(self) -> Aligned:
        """Return the index of each sample: aligned (N,)."""
        return self.by_rows(np.asarray)

    def columns(self, indices: ArrayLike) -> Block:
        """Return the samples with these indices as one block (F, n).

        Parameters
        ----------
        indices : array of integers
        """
        array = np.asarray(indices, dtype=np.intp)
        self._count(array.size / self.n_samples)
        return self._gather(array)

    def held_rows(self, max_dense_entries: int) -> Rows:
        """Return all samples as rows (N, F), an ndarray or CSR; None if they are not in memory.

        An ndarray with more than the given number of entries is not returned. The rows may have any
        type, and must not be changed.

        Parameters
        ----------
        max_dense_entries : int
            An ndarray with more entries is not returned.
        """
        return None

    @abstractmethod
    def own_threads(self) -> AbstractContextManager[None]:
        """Keep BLAS to one thread while our threads work on blocks; every algorithm uses this."""

    # --- aligned arrays ---

    @abstractmethod
    def align(self, array: Aligned) -> Aligned:
        """Move an array with one row per sample to where the blocks are stored.

        Parameters
        ----------
        array : array (N, ...)
        """

    def room_for_aligned(self, row_bytes: int, count: int = 1) -> int:
        """Return how many times `count` aligned arrays with rows of this size fit in memory.

        The arrays may take half of the memory that V may take. Arrays in files or on a cluster need
        none.

        Parameters
        ----------
        row_bytes : int
        count : int
        """
        return _UNLIMITED

    # --- methods that a storage implements ---

    @abstractmethod
    def _run(self, work: Work) -> Results:
        """Return the results of a step, per sample and reduced."""

    @abstractmethod
    def _gather(self, indices: Array) -> Block:
        """Return the samples with these indices, in the type `dtype`."""


def multiplied(block: Block, *, X: Array) -> PerSample:
    """Step: the product of every sample with X, in the type of X."""
    return products(block.astype(X.dtype, copy=False), X), None


def _square_times(block: Block, *, X: Array) -> tuple[Array]:
    block = block.astype(X.dtype, copy=False)
    return (exact(weighted_sums(block, products(block, X))),)

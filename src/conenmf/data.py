"""The data matrix V, and the one way to read it.

Every algorithm of this library does something to a block of samples, keeps a result per sample
and sums the rest; `DataMatrix.sweep` is that sentence. This module is the only one that knows
how V is stored; what is computed from one block is in `blocks`.

In the paper V is F x N and its columns are the samples; arrays that have one row per sample
(the transpose of H among them) are called *aligned*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .blocks import Array, Block
from .errors import (
    DataTypeError,
    EmptyDataError,
    NegativeValueError,
    NonFiniteError,
    NotADataMatrixError,
    OptionError,
    ScaleError,
    ShapeError,
    ZeroDataError,
)
from .threads import available_threads, one_blas_thread, run_in_order

__all__ = [
    "Array",
    "Block",
    "DataMatrix",
    "Negative",
    "add",
    "check_labels",
    "from_columns",
    "from_rows",
    "require_data_matrix",
    "shuffled_samples",
    "unit_samples",
]

Negative: TypeAlias = Literal["raise", "clip"]

_BLOCK_BYTES = 8 << 20  # a dense block and its products stay in the cache of one core
_BLOCK_SAMPLES = 256  # fewer, and adding up the F x K sums of each block would be felt
_TINY_NEGATIVE = 1e-6  # negative="clip" accepts entries down to this share of the largest one


def from_rows(X: Any, *, negative: Negative = "raise", n_threads: int | None = None) -> DataMatrix:
    """Read a matrix whose *rows* are the samples, as scikit-learn's users have it.

    Parameters
    ----------
    X : array or scipy sparse matrix or array, shape (N, F)
        Nonnegative and finite. Dense arrays are never copied: float32 (and float16) is computed
        in float32, every other type block by block in float64. Sparse formats other than CSR,
        and CSR with unsorted or repeated indices, are converted once.
    negative : {"raise", "clip"}
        With "clip", negative entries no larger in size than 1e-6 times the largest entry
        are read as zeros; larger ones are an error all the same.
    n_threads : int, optional
        Threads that work on blocks; by default all that this process may use.
        The results have the same bits for any number.

    Examples
    --------
    >>> V = from_rows([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    >>> V.shape, V.passes
    ((2, 3), 1.0)
    >>> V.norms_squared
    array([25.,  4.,  1.])
    """
    return _open(X, "rows", negative, n_threads)


def from_columns(
    V: Any, *, negative: Negative = "raise", n_threads: int | None = None
) -> DataMatrix:
    """Read a matrix whose *columns* are the samples, as the paper has it; see `from_rows`.

    Among the sparse formats CSC is the one that needs no conversion.

    >>> from_columns([[3.0, 0.0, 1.0], [4.0, 2.0, 0.0]]).norms_squared
    array([25.,  4.,  1.])
    """
    return _open(V, "columns", negative, n_threads)


def add(total: Any, part: Any) -> Any:
    """Add a block's part to the total, tuples element by element, arrays in place."""
    if part is None:
        return None
    if isinstance(part, tuple):
        return tuple(add(a, b) for a, b in zip(total, part, strict=True))
    total += part
    return total


class DataMatrix(ABC):
    """A nonnegative matrix V of F features by N samples, read in blocks of samples.

    Attributes
    ----------
    shape : (F, N)
    dtype : float32 or float64
        The type of the blocks.
    norms_squared : array (N,), float64
        Squared length of each sample, computed by the first pass, which also validates.
    passes : float
        How much of V has been read so far: columns read / N.
    n_threads : int
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    norms_squared: Array
    passes: float
    n_threads: int

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        block_samples: int,
        n_threads: int | None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.passes = 0.0
        self.n_threads = available_threads() if n_threads is None else int(n_threads)
        if self.n_threads < 1:
            raise OptionError(f"n_threads={n_threads}; give at least 1, or None for all cores")
        self._block_samples = block_samples
        self._clip = False
        # One block of so much data is better left to the threads of BLAS than to one thread.
        large = shape[0] * shape[1] * dtype.itemsize > 4 * _BLOCK_BYTES
        self._leave_to_blas = block_samples >= shape[1] and large

    @abstractmethod
    def _block(self, start: int, stop: int) -> Block:
        """Columns start..stop in the type `dtype`."""

    @abstractmethod
    def _gather(self, indices: Array) -> Block:
        """The named columns in the type `dtype`."""

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """About how much memory a sample takes once it is read."""

    @property
    def norm(self) -> float:
        """The Frobenius norm of V."""
        return float(np.sqrt(self.norms_squared.sum()))

    @property
    def mean(self) -> float:
        """The mean entry of V; costs a pass."""
        (total,) = self.sweep(_sum_entries)
        return float(total) / (self.shape[0] * self.shape[1])

    def columns(self, indices: npt.ArrayLike) -> Block:
        """Return the samples with these indices as one block (F, n)."""
        chosen = np.asarray(indices, dtype=np.intp)
        self.passes += chosen.size / self.shape[1]
        return self._gather(chosen)

    def sweep(
        self,
        step: Callable[..., tuple[Any, ...]],
        *aligned: Array,
        reduce: Callable[[Any, Any], Any] = add,
        **shared: Any,
    ) -> tuple[Any, ...]:
        """Read V once: apply a step to every block, keep what is per sample, sum the rest.

        Parameters
        ----------
        step : callable
            ``step(block, *aligned_pieces, **shared) -> (*per_sample, part)``. Each of
            `per_sample` has one row per sample of the block; `part` is what is reduced over
            blocks (None if there is nothing). A step is a function of a module, so that it can
            travel to other processes.
        *aligned : arrays (N, ...)
            Arrays with one row per sample; the step gets the matching pieces.
        reduce : callable
            ``reduce(total, part) -> total``, called in the order of the blocks.
        **shared
            Small things every block needs: W, its Gram matrix.

        Returns
        -------
        tuple
            ``(*per_sample, total)``, each per-sample result joined over all blocks.

        Notes
        -----
        The borders of the blocks and the order of the sums depend only on V, so the results
        have the same bits for any number of threads.
        """
        for array in aligned:
            if len(array) != self.shape[1]:
                raise ShapeError(
                    f"an aligned array has {len(array)} rows, expected one for each of "
                    f"{self.shape[1]} samples"
                )
        self.passes += 1.0
        N, size = self.shape[1], self._block_samples
        borders = [(start, min(start + size, N)) for start in range(0, N, size)]
        joined: list[Array] = []
        total: Any = None

        def run(index: int) -> tuple[Any, ...]:
            start, stop = borders[index]
            pieces = (array[start:stop] for array in aligned)
            return step(self._block(start, stop), *pieces, **shared)

        def collect(index: int, result: tuple[Any, ...]) -> None:
            nonlocal joined, total
            *per_sample, part = result
            if index == 0:
                joined = [np.empty((N, *piece.shape[1:]), piece.dtype) for piece in per_sample]
            total = part if index == 0 else reduce(total, part)
            for whole, piece in zip(joined, per_sample, strict=True):
                whole[slice(*borders[index])] = piece

        with self.own_threads():
            if len(borders) == 1:
                return run(0)
            run_in_order(run, collect, len(borders), self.n_threads)
        return (*joined, total)

    @contextmanager
    def own_threads(self) -> Iterator[None]:
        """Keep BLAS to one thread while blocks of V run on our own.

        An algorithm holds this from beginning to end: threads of BLAS that have just worked
        between two passes would keep spinning and take the cores from the next one. Large
        data of a single block (few samples of very many features) are left to BLAS.
        """
        if self._leave_to_blas:
            yield
        else:
            with one_blas_thread():
                yield


class _DenseMatrix(DataMatrix):
    """V held in an ndarray, of which `rows` is a view with one row per sample."""

    def __init__(self, rows: Array, n_threads: int | None) -> None:
        N, F = rows.shape
        dtype = _compute_dtype(rows.dtype)
        size = max(_BLOCK_SAMPLES, _BLOCK_BYTES // (F * dtype.itemsize))
        super().__init__((F, N), dtype, size, n_threads)
        self._rows = rows

    @property
    def sample_bytes(self) -> int:
        return self.shape[0] * self.dtype.itemsize

    def _read(self, rows: Array) -> Block:
        if rows.dtype != self.dtype or rows.itemsize not in rows.strides:
            rows = np.array(rows, dtype=self.dtype, order="C")
        if self._clip:
            rows = np.maximum(rows, 0)
        return rows.T

    def _block(self, start: int, stop: int) -> Block:
        return self._read(self._rows[start:stop])

    def _gather(self, indices: Array) -> Block:
        return self._read(self._rows[indices])


class _SparseMatrix(DataMatrix):
    """V held in compressed sparse rows, one row per sample."""

    def __init__(self, rows: Any, n_threads: int | None) -> None:
        N, F = rows.shape
        # A block's sums cost F x K however few entries it has: give it eight times F of them.
        size = max(_BLOCK_SAMPLES, int(np.ceil(8.0 * F * N / max(rows.nnz, 1))))
        super().__init__((F, N), _compute_dtype(rows.dtype), size, n_threads)
        self._rows = rows

    @property
    def sample_bytes(self) -> int:
        per_entry = self.dtype.itemsize + self._rows.indices.itemsize
        return 1 + int(self._rows.nnz) * int(per_entry) // self.shape[1]

    def _read(self, data: Array, indices: Array, indptr: Array) -> Block:
        data = data.astype(self.dtype, copy=False)
        if self._clip:
            data = np.maximum(data, 0)
        shape = (self.shape[0], indptr.size - 1)
        return sp.csc_array((data, indices, indptr), shape=shape, copy=False)

    def _block(self, start: int, stop: int) -> Block:
        rows = self._rows
        first, last = rows.indptr[start], rows.indptr[stop]
        indptr = rows.indptr[start : stop + 1] - first
        return self._read(rows.data[first:last], rows.indices[first:last], indptr)

    def _gather(self, indices: Array) -> Block:
        chosen = self._rows[indices]
        return self._read(chosen.data, chosen.indices, chosen.indptr)


def require_data_matrix(V: object, *, nonzero: bool = False) -> None:
    """Refuse a bare array: whether its rows or its columns are the samples cannot be seen.

    With `nonzero`, refuse a matrix of zeros too.
    """
    if not isinstance(V, DataMatrix):
        raise NotADataMatrixError(
            f"expected a DataMatrix, got {type(V).__name__}: "
            "use from_rows(X) if samples are rows, from_columns(V) if samples are columns"
        )
    if nonzero and not V.norms_squared.any():
        raise ZeroDataError("every entry is zero: there is nothing to factor")


def check_labels(V: DataMatrix, labels: Any, K: int) -> Array:
    """Return labels as an array of one integer from -1 to K - 1 per sample, or say why not."""
    array = np.asarray(labels)
    if array.shape != (V.shape[1],) or array.dtype.kind not in "iu":
        raise ShapeError(
            f"labels have shape {array.shape} and type {array.dtype}, "
            f"expected {V.shape[1]} integers, one per sample"
        )
    if array.min() < -1 or array.max() >= K:
        raise ShapeError(f"labels run from {array.min()} to {array.max()}, expected -1 to {K - 1}")
    return array.astype(np.intp)


def unit_samples(V: DataMatrix) -> DataMatrix:
    """A copy of a small V with samples of unit length; zero samples stay zero."""
    rows = V.columns(np.arange(V.shape[1])).T.astype(np.float64, copy=False)
    norms = np.sqrt(np.where(V.norms_squared > 0, V.norms_squared, 1.0))
    return from_rows(sp.diags_array(1.0 / norms) @ rows, n_threads=V.n_threads)


def shuffled_samples(V: DataMatrix, rng: np.random.Generator) -> DataMatrix:
    """A matrix like V with the values of every feature shuffled over the samples.

    Only for matrices small enough to be held twice.
    """
    features = V.columns(np.arange(V.shape[1])).T  # one row per sample
    if not sp.issparse(features):
        return from_rows(rng.permuted(features, axis=0), n_threads=V.n_threads)
    by_feature = sp.csc_array(features)
    N = by_feature.shape[0]
    rows = by_feature.indices.copy()
    for start, stop in pairwise(by_feature.indptr):
        rows[start:stop] = rng.choice(N, stop - start, replace=False)
    parts = (by_feature.data, rows, by_feature.indptr)
    return from_rows(sp.csc_array(parts, shape=by_feature.shape), n_threads=V.n_threads)


# --- opening and validating -------------------------------------------------------------------


def _open(
    matrix: Any, samples_in: Literal["rows", "columns"], negative: str, n_threads: int | None
) -> DataMatrix:
    if negative not in ("raise", "clip"):
        raise OptionError.unknown("negative", negative, ("raise", "clip"))
    if not sp.issparse(matrix):
        matrix = np.asanyarray(matrix)
    kind = matrix.dtype.kind
    if isinstance(matrix, np.ma.MaskedArray):
        raise DataTypeError("the array is masked: fill the masked entries first, X.filled(0)")
    if kind == "c":
        raise DataTypeError("Complex data not supported: take the magnitude, np.abs(X), first")
    if kind not in "fiub":
        raise DataTypeError(
            f"entries have type {matrix.dtype}, expected numbers: convert with X.astype(float)"
        )
    if matrix.ndim != 2:
        raise ShapeError(
            f"expected a matrix with 2 dimensions, got {matrix.ndim}: "
            "reshape one sample to X.reshape(1, -1), one feature to X.reshape(-1, 1)"
        )
    if 0 in matrix.shape:
        raise EmptyDataError(
            f"the matrix has shape {matrix.shape}: it needs at least one sample and one feature"
        )
    rows = matrix if samples_in == "rows" else matrix.T
    V: DataMatrix
    if sp.issparse(rows):
        V = _SparseMatrix(_canonical_rows(rows), n_threads)
    else:
        V = _DenseMatrix(np.asarray(rows), n_threads)
    _validate(V, samples_in, negative)
    return V


def _canonical_rows(rows: Any) -> Any:
    """CSR without repeated entries; the caller's own matrix is never altered."""
    compressed = rows.tocsr()
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return compressed


def _compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


def _measure(block: Block) -> tuple[Array, float]:
    """Step of the first pass: squared lengths and the smallest entry."""
    with np.errstate(over="ignore", invalid="ignore"):
        if sp.issparse(block):
            entries = block.data.astype(np.float64, copy=False)
            owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
            squared = np.bincount(owner, weights=entries * entries, minlength=block.shape[1])
            return squared, float(entries.min(initial=0.0))
        rows = block.T
        exact = rows.astype(np.float64, copy=False)
        return np.einsum("nf,nf->n", exact, exact), float(rows.min())


def _largest(block: Block) -> tuple[float]:
    return (float(block.max()),)


def _sum_entries(block: Block) -> tuple[float]:
    return (float(block.sum(dtype=np.float64)),)


def _validate(V: DataMatrix, samples_in: str, negative: str) -> None:
    norms_squared, low = V.sweep(_measure, reduce=np.minimum)
    # Products of four entries stay finite in float64, products of two in float32.
    largest, smallest = (1e150, 1e-150) if V.dtype == np.float64 else (1e36, 1e-30)
    total, longest = norms_squared.sum(), norms_squared.max()
    if low >= 0 and total < largest and longest >= V.shape[0] * smallest:
        V.norms_squared = norms_squared
        return

    (high,) = V.sweep(_largest, reduce=np.maximum)
    if not (np.isfinite(low) and np.isfinite(high)):
        where, value = _find(V, samples_in, lambda entries: ~np.isfinite(entries))
        name = "NaN" if np.isnan(value) else "infinity (inf)"
        raise NonFiniteError(f"{where} is {name}: remove, impute or replace such entries first")
    if low < 0:
        tiny = low >= -_TINY_NEGATIVE * high
        if negative == "raise" or not tiny:
            where, value = _find(V, samples_in, lambda entries: entries == low)
            advice = 'pass negative="clip" to read it as zero' if tiny else "shift or clip it first"
            raise NegativeValueError(
                f"Negative values in data: {where} is {value:g}, the smallest entry; {advice}"
            )
        V._clip = True
        _validate(V, samples_in, negative)
        return
    too_small = high > 0 and high * high < smallest
    if too_small or not total < largest:
        raise ScaleError(
            f"the largest entry is {high:g}: squares leave the range of {V.dtype}; "
            "divide the data by their largest entry"
        )
    V.norms_squared = norms_squared


def _find(V: DataMatrix, samples_in: str, wrong: Callable[[Array], Array]) -> tuple[str, float]:
    """Name the first wrong entry in the caller's own rows and columns."""
    size = V._block_samples
    for start in range(0, V.shape[1], size):
        block = sp.coo_array(V._block(start, min(start + size, V.shape[1])))
        hits = np.flatnonzero(wrong(block.data))
        if hits.size:
            first = hits[np.lexsort((block.row[hits], block.col[hits]))[0]]
            sample, feature = int(block.col[first]), int(block.row[first])
            value = float(block.data[first])
            break
    else:
        raise AssertionError("the entry seen by the first pass is gone: V changed meanwhile")
    sample += start
    if samples_in == "rows":
        return f"row {sample} (sample), column {feature} (feature)", value
    return f"row {feature} (feature), column {sample} (sample)", value

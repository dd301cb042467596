"""V processed by threads of this process, and V stored in memory as an ndarray or sparse rows.

A subclass reads blocks and single samples. `LocalMatrix` runs steps over them and collects the
results in the order of the blocks, so they have the same bits for any number of threads.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..errors import name_out_of_memory
from ..types import Array, DType, Lengths, Shape
from .blocks import (
    LARGE_BYTES,
    Block,
    Borders,
    Rows,
    canonical_rows,
    compute_dtype,
    dense_block_samples,
    equal_borders,
    paired_block_samples,
    sparse_block,
)
from .matrix import DataMatrix, Results, Work
from .resources import available_memory, keep_freed_memory, one_blas_thread, run_in_order

_FEW_ENTRIES = 1 << 12  # of a single block: BLAS uses one thread for its products anyway


class LocalMatrix(DataMatrix):
    """A matrix whose blocks are read and processed by threads of this process.

    Parameters
    ----------
    shape, dtype
        As for `DataMatrix`.
    block_samples : int
        Samples in a block.
    budget : int, optional
        Bytes of memory that data and results may take; by default all available memory.
    **options
        As for `DataMatrix`.
    """

    _leave_to_blas = False
    _readers = 0  # threads beyond `n_threads` that wait for the disk

    def __init__(
        self,
        shape: Shape,
        dtype: DType,
        *,
        block_samples: int,
        budget: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(shape, dtype, **options)
        self.block_samples = block_samples
        self.budget = budget or available_memory()

    def align(self, array: ArrayLike) -> Array:
        """Return the array itself."""
        return array if isinstance(array, np.ndarray) else np.asarray(array)

    def room_for_aligned(self, row_bytes: int, count: int = 1) -> int:
        """Return how many times `count` aligned arrays with rows of this size fit in memory."""
        return self.budget // 2 // (count * max(row_bytes * self.n_samples, 1))

    @contextmanager
    def own_threads(self) -> Iterator[None]:
        """Keep BLAS to one thread while our threads work on blocks.

        An algorithm holds this limit from beginning to end: threads of BLAS that have just worked
        between two passes would keep spinning and take cores from the next pass. BLAS keeps its
        threads for large data of a single block (few samples of very many features) and for data so
        small that it would use one thread anyway.
        """
        F, N = self.shape
        is_small = N <= self.block_samples and F * N <= _FEW_ENTRIES
        keep_freed_memory()
        with nullcontext() if is_small or self._leave_to_blas else one_blas_thread():
            try:
                yield
            except MemoryError:
                what = "computing with {} features and {} samples".format(*self.shape)
                advice = "take fewer components, or remove features and samples that are empty"
                with name_out_of_memory(what, advice):
                    raise

    # --- methods that a storage implements, besides `_gather` ---

    @abstractmethod
    def _block(self, start: int, stop: int) -> Block:
        """Return samples `start` to `stop` as a block, in the type `dtype`."""

    def _blocks(self) -> Borders:
        """Return the borders of the blocks."""
        return equal_borders(self.n_samples, self.block_samples)

    def _check_unchanged(self) -> None:
        """Raise an error if data changed during a pass."""

    def _new_aligned(self, shape: Lengths, dtype: DType) -> Array:
        return np.empty(shape, dtype)

    def _release(self, array: Array) -> None:
        """Release the memory of an aligned array that is in a file."""

    # --- running a step ---

    def _run(self, work: Work) -> Results:
        N = self.n_samples
        borders = self._blocks()
        wholes: list[Array] = []
        total: Any = None

        def run(number: int) -> Results:
            start, stop = borders[number]
            subject = self._block(start, stop) if work.reads else range(start, stop)
            given = (array[start:stop] for array in work.aligned)
            return work.step(subject, *given, **work.shared)

        def collect(number: int, results: Results) -> None:
            nonlocal total
            *per_sample, part = results
            total = part if number == 0 else work.reduce(total, part)
            if number == 0:
                shapes = ((N, *rows.shape[1:]) for rows in per_sample)
                wholes.extend(map(self._new_aligned, shapes, (rows.dtype for rows in per_sample)))
            for whole, rows in zip(wholes, per_sample, strict=True):
                whole[slice(*borders[number])] = rows
            for array in (*wholes, *work.aligned):
                self._release(array)

        with self.own_threads():
            try:
                if len(borders) == 1:
                    results = run(0)
                else:
                    run_in_order(run, collect, len(borders), self.n_threads + self._readers)
                    results = (*wholes, total)
            finally:  # data that changed during the pass may lead to any error
                if work.reads:
                    self._check_unchanged()
        return results


_MAX_COMPRESSED_BYTES = 32 << 20  # of dense data in both orders; more if the data are larger
_COPY_SHARE = 0.25  # of the memory: the largest second copy of V


def hold(rows: Rows, **options: Any) -> LocalMatrix:
    """Wrap an ndarray or a canonical CSR matrix that has one row per sample."""
    return (SparseMatrix if sp.issparse(rows) else DenseMatrix)(rows, **options)


def by_entries(V: DataMatrix) -> DataMatrix:
    """Return V in the form that is fastest for steps which work long on each nonzero entry.

    For dense data in memory this is the compressed form in both orders, unless it takes much more
    memory. Other data are returned as they are. Weights of entries stay. Passes count for V.
    """
    if not isinstance(V, DenseMatrix):
        return V
    entry_bytes = V.dtype.itemsize + np.dtype(np.int32).itemsize
    if 2 * V.n_entries * entry_bytes > max(V._rows.nbytes, _MAX_COMPRESSED_BYTES):
        return V
    rows = V._rows
    if rows.dtype == np.float16 or not rows.dtype.isnative:  # which SciPy does not take
        rows = rows.astype(V.dtype)
    twin = SparseMatrix(sp.csr_array(rows), dtype=V.dtype, n_threads=V.n_threads)
    twin._measures = V.measures
    twin.observed = V.observed
    twin._passes_by_thread = V._passes_by_thread
    return twin


def single_copy(V: DataMatrix) -> DataMatrix | None:
    """Return a float32 copy of V with its measures; None if V is not in memory or lacks room.

    Passes count for V.
    """
    if not isinstance(V, DenseMatrix | SparseMatrix):
        return None
    size = V.n_entries if isinstance(V, SparseMatrix) else V._rows.size
    if 8 * size > _COPY_SHARE * available_memory():
        return None
    twin: Any = copy.copy(V)
    twin.dtype = np.dtype(np.float32)
    if isinstance(V, DenseMatrix):
        twin._rows = V._rows.astype(np.float32)
        return twin
    parts = V._rows.data.astype(np.float32), V._rows.indices, V._rows.indptr
    twin._rows = sp.csr_array(parts, shape=V._rows.shape)
    twin._kept = {}
    twin._other_order = None
    return twin


class DenseMatrix(LocalMatrix):
    """V stored in an ndarray; `rows` is a view of it with one row per sample."""

    is_in_memory = True

    def __init__(
        self,
        rows: Array,
        *,
        dtype: DType | None = None,
        block_samples: int | None = None,
        **options: Any,
    ) -> None:
        N, F = rows.shape
        dtype = dtype or compute_dtype(rows.dtype)
        if block_samples is None:
            block_samples = dense_block_samples(F, N, dtype.itemsize)
        super().__init__((F, N), dtype, block_samples=block_samples, **options)
        self._leave_to_blas = block_samples >= N and F * N * dtype.itemsize > LARGE_BYTES
        self._rows = rows

    def turned(self) -> DenseMatrix:
        """Return the transposed data without a copy."""
        return DenseMatrix(self._rows.T, dtype=self.dtype, n_threads=self.n_threads)

    def held_rows(self, max_dense_entries: int) -> Array | None:
        """Return the array, or None if it is too large."""
        return self._rows if self._rows.size <= max_dense_entries else None

    def _block(self, start: int, stop: int) -> Block:
        return self._as_block(self._rows[start:stop])

    def _as_block(self, rows: Array) -> Block:
        if rows.dtype != self.dtype or rows.itemsize not in rows.strides:
            rows = np.array(rows, dtype=self.dtype, order="C")
        return rows.T

    def _gather(self, indices: Array) -> Block:
        return self._as_block(self._rows[indices])


class SparseMatrix(LocalMatrix):
    """V stored in compressed sparse rows, one row per sample."""

    is_in_memory = True

    def __init__(
        self,
        rows: Rows,
        *,
        dtype: DType | None = None,
        block_samples: int | None = None,
        **options: Any,
    ) -> None:
        N, F = rows.shape
        if block_samples is None:
            block_samples = paired_block_samples(N, rows.nnz)
        dtype = dtype or compute_dtype(rows.dtype)
        super().__init__((F, N), dtype, block_samples=block_samples, **options)
        self._rows = rows
        self._other_order: SparseMatrix | None = None
        self._kept: dict[tuple[int, int], Block] = {}

    @property
    def other_order(self) -> SparseMatrix | None:
        """The transposed data, created at the first call unless it would take too much memory."""
        entry_bytes = self.dtype.itemsize + self._rows.indices.itemsize
        copied = self._rows.nnz * entry_bytes
        if copied > _COPY_SHARE * available_memory():
            return None
        if self._other_order is None:
            rows = canonical_rows(self._rows.T).astype(self.dtype, copy=False)
            self._other_order = SparseMatrix(rows, dtype=self.dtype, n_threads=self.n_threads)
        return self._other_order

    def held_rows(self, max_dense_entries: int) -> Rows:
        """Return the compressed rows."""
        return self._rows

    def _block(self, start: int, stop: int) -> Block:
        """Create views of rows once: on small data, creating them takes longer than a step."""
        block = self._kept.get((start, stop))
        if block is None:
            rows = self._rows
            part = slice(rows.indptr[start], rows.indptr[stop])
            indptr = rows.indptr[start : stop + 1] - part.start
            block = self._as_block(rows.data[part], rows.indices[part], indptr)
            if np.may_share_memory(block.data, rows.data):
                self._kept[start, stop] = block
        return block

    def _as_block(self, data: Array, indices: Array, indptr: Array) -> Block:
        return sparse_block(data, indices, indptr, self.n_features, self.dtype)

    def _gather(self, indices: Array) -> Block:
        rows = self._rows[indices]
        return self._as_block(rows.data, rows.indices, rows.indptr)

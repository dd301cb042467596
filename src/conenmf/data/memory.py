"""V held in memory: an ndarray, or compressed sparse rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .blocks import Array, Block, canonical_rows, compute_dtype, sparse_block
from .borders import LARGE_BYTES, Borders, dense_block_samples, paired_block_samples
from .local import LocalMatrix
from .matrix import DataMatrix
from .resources import available_memory

_MAX_BLOCK_ENTRIES = 1 << 18  # up to which all samples may be one block
_MAX_COMPRESSED_BYTES = 32 << 20  # of dense data in both orders, or as much as they take themselves
_LEAST_BLOCKS = 8  # of steps that take long for each entry
_COPY_SHARE = 0.25  # of the memory, up to which a second copy of V is kept

__all__ = ["DenseMatrix", "SparseMatrix", "by_entries", "hold"]


def hold(rows: Any, **options: Any) -> LocalMatrix:
    """Wrap an ndarray or a canonical CSR matrix that has one row per sample."""
    return (SparseMatrix if sp.issparse(rows) else DenseMatrix)(rows, **options)


def by_entries(V: DataMatrix) -> DataMatrix:
    """Return V as steps read it best that work long on every nonzero entry.

    Of data in memory that is the compressed form, in both orders and in several blocks; data that
    are dense stay so, if it takes much more memory. All others are returned as they are. Passes
    count for V.
    """
    if not isinstance(V, DenseMatrix | SparseMatrix) or V.clip:
        return V
    rows: Any = V.held_rows(V.shape[0] * V.shape[1])
    entry_bytes = V.dtype.itemsize + np.dtype(np.int32).itemsize
    if isinstance(V, DenseMatrix):
        if 2 * V.n_entries * entry_bytes > max(rows.nbytes, _MAX_COMPRESSED_BYTES):
            return V
        rows = sp.csr_array(rows).astype(V.dtype, copy=False)
    F, N = V.shape
    options: dict[str, Any] = {"dtype": V.dtype, "n_threads": V.n_threads}
    size = min(paired_block_samples(N, rows.nnz), -(-N // _LEAST_BLOCKS))
    twin = SparseMatrix(rows, block_samples=size, **options)
    other = V.other_order if isinstance(V, SparseMatrix) else twin
    if other is not None:
        turned = other._rows if other is not twin else canonical_rows(rows.T)
        size = min(paired_block_samples(F, rows.nnz), -(-F // _LEAST_BLOCKS))
        twin._other_order = SparseMatrix(turned, block_samples=size, **options)
    twin._measures, twin._passes_by_thread = V.measures, V._passes_by_thread
    return twin


class DenseMatrix(LocalMatrix):
    """V held in an ndarray, of which `rows` is a view with one row per sample."""

    gathers_at_once = True

    def __init__(
        self,
        rows: Array,
        *,
        dtype: np.dtype[Any] | None = None,
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
        """Return the same data with the features as samples; nothing is copied."""
        return DenseMatrix(self._rows.T, dtype=self.dtype, **self._turned_options())

    def held_rows(self, max_dense_entries: int) -> Array | None:
        """Return the array, unless it is large, or has entries that count as zeros."""
        is_held = not self.clip and self._rows.size <= max_dense_entries
        return self._rows if is_held else None

    def _stored(self, start: int, stop: int) -> Array:
        return self._rows[start:stop]

    def _as_block(self, rows: Array) -> Block:
        if rows.dtype != self.dtype or rows.itemsize not in rows.strides:
            rows = np.array(rows, dtype=self.dtype, order="C")
        if self.clip:
            rows = np.maximum(rows, 0)
        return rows.T

    def _gather(self, indices: Array) -> Block:
        return self._as_block(self._rows[indices])


class SparseMatrix(LocalMatrix):
    """V held in compressed sparse rows, one row per sample."""

    def __init__(
        self,
        rows: Any,
        *,
        dtype: np.dtype[Any] | None = None,
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

    def turned(self) -> SparseMatrix:
        """Return the same data with the features as samples, in the other compressed order."""
        return self._turned(self._turned_options())

    def _turned(self, options: dict[str, Any]) -> SparseMatrix:
        rows = canonical_rows(self._rows.T).astype(self.dtype, copy=False)
        return SparseMatrix(rows, dtype=self.dtype, **options)

    @property
    def other_order(self) -> SparseMatrix | None:
        """The same data, turned: made at the first call, unless it would take too much memory."""
        entry_bytes = self.dtype.itemsize + self._rows.indices.itemsize
        copied = self._rows.nnz * entry_bytes
        if copied > _COPY_SHARE * available_memory():
            return None
        if self._other_order is None:
            self._other_order = self._turned(self._turned_options(holes=True))
        return self._other_order

    def as_one_block(self) -> SparseMatrix:
        """Return the same rows as one block if they have few entries.

        To gather some of them takes longer than to read them all.
        """
        if self._rows.nnz > _MAX_BLOCK_ENTRIES or self.is_one_block:
            return self
        twin = copy.copy(self)
        twin.block_samples = self.shape[1]
        if self._other_order is not None and not self._other_order.is_one_block:
            twin._other_order = self._other_order.as_one_block()
        return twin

    def clipped(self) -> Self:
        """Return the same data with negative entries read as zeros."""
        twin = super().clipped()
        twin._other_order, twin._kept = None, {}
        return twin

    @contextmanager
    def _reading_blocks(self, borders: Borders) -> Iterator[Callable[[int], Block]]:
        if not self.clip and self._rows.data.dtype == self.dtype:
            yield lambda number: self._kept_block(*borders[number])
        else:
            with super()._reading_blocks(borders) as read:
                yield read

    def _kept_block(self, start: int, stop: int) -> Block:
        """A block that is a view of the rows: on small data, making it takes longer than a step."""
        block = self._kept.get((start, stop))
        if block is None:
            block = self._kept[start, stop] = self._as_block(self._stored(start, stop))
        return block

    def held_rows(self, max_dense_entries: int) -> Any:
        """Return the compressed rows, unless negative entries count as zeros."""
        return None if self.clip else self._rows

    def _stored(self, start: int, stop: int) -> tuple[Array, Array, Array]:
        rows = self._rows
        first, last = rows.indptr[start], rows.indptr[stop]
        indptr = rows.indptr[start : stop + 1] - first
        return rows.data[first:last], rows.indices[first:last], indptr

    def _as_block(self, rows: tuple[Array, Array, Array]) -> Block:
        return sparse_block(*rows, self.shape[0], self.dtype, self.clip)

    def _gather(self, indices: Array) -> Block:
        rows = self._rows[indices]
        return self._as_block((rows.data, rows.indices, rows.indptr))

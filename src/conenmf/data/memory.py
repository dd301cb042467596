"""V held in memory: an ndarray, or compressed sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .blocks import Array, Block
from .matrix import LocalMatrix

__all__ = ["DenseMatrix", "SparseMatrix", "canonical_rows", "compute_dtype", "hold"]

BLOCK_BYTES = 8 << 20  # a dense block and its products stay in the cache of one core
BLOCK_SAMPLES = 256  # fewer, and adding up the F x K sums of each block would be felt
_SHARES = 8  # blocks that data of moderate size are cut into, for threads to share ...
_SHARED_SAMPLES = 64  # ... if they have enough samples
_SPARSE_BLOCK = 4 << 20  # most entries of a sparse block


def hold(rows: Any, n_threads: int | None) -> LocalMatrix:
    """Wrap an ndarray or a canonical CSR matrix that has one row per sample."""
    return (SparseMatrix if sp.issparse(rows) else DenseMatrix)(rows, n_threads)


class DenseMatrix(LocalMatrix):
    """V held in an ndarray, of which `rows` is a view with one row per sample."""

    gathers_at_once = True

    def __init__(self, rows: Array, n_threads: int | None) -> None:
        N, F = rows.shape
        super().__init__((F, N), compute_dtype(rows.dtype), n_threads)
        sample, size = F * self.dtype.itemsize, F * N * self.dtype.itemsize
        most = max(BLOCK_SAMPLES, BLOCK_BYTES // sample)
        shared = max(_SHARED_SAMPLES, -(-N // _SHARES)) if size > BLOCK_BYTES // 4 else N
        self.block_samples = min(most, shared)
        # One block of so much data is better left to the threads of BLAS than to one thread.
        self._leave_to_blas = self.block_samples >= N and size > 4 * BLOCK_BYTES
        self._rows = rows

    def _read(self, rows: Array) -> Block:
        if rows.dtype != self.dtype or rows.itemsize not in rows.strides:
            rows = np.array(rows, dtype=self.dtype, order="C")
        if self.clip:
            rows = np.maximum(rows, 0)
        return rows.T

    def _block(self, start: int, stop: int) -> Block:
        return self._read(self._rows[start:stop])

    def _gather(self, indices: Array) -> Block:
        return self._read(self._rows[indices])


class SparseMatrix(LocalMatrix):
    """V held in compressed sparse rows, one row per sample."""

    def __init__(self, rows: Any, n_threads: int | None) -> None:
        N, F = rows.shape
        super().__init__((F, N), compute_dtype(rows.dtype), n_threads)
        self.block_samples = sparse_block_samples(F, N, rows.nnz)
        self._rows = rows

    def _read(self, data: Array, indices: Array, indptr: Array) -> Block:
        return sparse_block(data, indices, indptr, self.shape[0], self.dtype, self.clip)

    def _block(self, start: int, stop: int) -> Block:
        rows = self._rows
        first, last = rows.indptr[start], rows.indptr[stop]
        indptr = rows.indptr[start : stop + 1] - first
        return self._read(rows.data[first:last], rows.indices[first:last], indptr)

    def _gather(self, indices: Array) -> Block:
        chosen = self._rows[indices]
        return self._read(chosen.data, chosen.indices, chosen.indptr)


def sparse_block(
    data: Array, indices: Array, indptr: Array, F: int, dtype: np.dtype[Any], clip: bool
) -> Block:
    """A block of samples (F, n) from the parts of their compressed rows.

    Indices are 32 bits wide where they fit: a kernel compiled for another width may add in another
    order, and the bits must not depend on how a file or an array keeps its indices.
    """
    data = data.astype(dtype, copy=False)
    index_dtype = sp.get_index_dtype(maxval=max(F, data.size))
    indices = indices.astype(index_dtype, copy=False)
    indptr = indptr.astype(index_dtype, copy=False)
    if clip:
        data = np.maximum(data, 0)
    return sp.csc_array((data, indices, indptr), shape=(F, indptr.size - 1), copy=False)


def sparse_block_samples(F: int, N: int, nnz: int) -> int:
    """A block's sums cost F x K however few entries it has: give it at least four times F.

    An eighth of all entries is better still, up to what fits into memory with ease.
    """
    per_sample = max(nnz, 1) / N
    wanted = max(4.0 * F, min(nnz / _SHARES, _SPARSE_BLOCK))
    return max(BLOCK_SAMPLES, int(np.ceil(wanted / per_sample)))


def canonical_rows(rows: Any) -> Any:
    """CSR without repeated entries; the caller's own matrix is never altered."""
    compressed = rows.tocsr()
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return compressed


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 stays (and float16 becomes) float32, everything else is computed in float64."""
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)

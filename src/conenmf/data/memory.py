"""V worked on by threads of this process, and V held in memory: an ndarray, or sparse rows.

A storage reads blocks and single samples; `LocalMatrix` runs steps over them and collects their
results in the order of the blocks, so that they have the same bits for any number of threads.
"""

from __future__ import annotations

import copy
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ..errors import CheckpointError, DataError, name_out_of_memory
from .aligned import check_file, save_array
from .blocks import (
    LARGE_BYTES,
    Array,
    Block,
    Borders,
    canonical_rows,
    compute_dtype,
    dense_block_samples,
    equal_borders,
    paired_block_samples,
    sparse_block,
)
from .matrix import Checksum, DataMatrix, Work
from .resources import available_memory
from .threads import keep_freed_memory, one_blas_thread, run_in_order

_FEW_ENTRIES = 1 << 12  # of a single block, whose products BLAS computes on one thread anyway
_GATHER_BYTES = 4 << 20  # of samples that a thread is given when only some are read


class Reader:
    """What a visiting step gets: a range of samples, of which it reads the few it needs.

    Attributes
    ----------
    index : range
        The indices in V of these samples.
    max_gather : int
        The largest batch to request from `columns`.
    columns_read : int
        How many samples were read so far.
    """

    def __init__(self, V: LocalMatrix, start: int, stop: int) -> None:
        self._V = V
        self._start = start
        self.max_gather = V.max_gather
        self.index = range(V.first + start, V.first + stop)
        self.columns_read = 0

    def columns(self, indices: Array) -> Block:
        """Return the samples with these indices, counted within the range, as one block."""
        self.columns_read += indices.size
        return self._V._gather(indices + self._start)

    def each(self, step: Callable[[Block, Array], Array], indices: Array) -> Array:
        """Join ``step(block, indices)`` of a few samples at a time, which run on threads."""
        V = self._V
        self.columns_read += indices.size
        size = self.max_gather
        if V.gathers_at_once:
            size = min(size, 1 + _GATHER_BYTES // (V.shape[0] * V.dtype.itemsize))
        borders = equal_borders(indices.size, size)
        results: list[Array] = []

        def run(number: int) -> Array:
            part = indices[slice(*borders[number])]
            return step(V._gather(part + self._start), part)

        def collect(number: int, result: Array) -> None:
            results.append(result)

        run_in_order(run, collect, len(borders), V.n_threads if V.gathers_at_once else 1)
        return np.concatenate(results)


class LocalMatrix(DataMatrix):
    """A matrix whose blocks are read and worked on by threads of this process.

    Parameters
    ----------
    block_samples : int
        Samples in a block.
    first : int
        The index of the first sample, for a matrix that is a part of a larger one.
    **options
        As for `DataMatrix`.

    Attributes
    ----------
    gathers_at_once : bool
        Whether several threads may ask for columns.
    visit_samples : int or None
        Most samples that a visiting step gets at a time; None for all.
    """

    gathers_at_once: bool = False
    visit_samples: int | None = None
    _leave_to_blas = False

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        *,
        block_samples: int,
        first: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(shape, dtype, **options)
        self.block_samples = block_samples
        self.first = first

    @property
    def is_one_block(self) -> bool:
        """Whether a step gets all samples at once."""
        return len(self._blocks()) == 1

    def align(self, array: Any) -> Array:
        """Return the array itself."""
        return array if isinstance(array, np.ndarray) else np.asarray(array)

    def save_aligned(self, aligned: Array, folder: Path, name: str) -> dict[str, Checksum]:
        """Write one ``.npy`` file."""
        file = f"{name}.npy"
        return {file: save_array(folder / file, aligned)}

    def load_aligned(self, folder: Path, name: str, checksums: Mapping[str, Checksum]) -> Array:
        """Read one ``.npy`` file."""
        path = folder / f"{name}.npy"
        check_file(path, checksums.get(path.name))
        array = self._load(path)
        if len(array) != self.shape[1]:
            raise CheckpointError(f"{path} has {len(array)} rows, expected {self.shape[1]}")
        return array

    def _load(self, path: Path) -> Array:
        return np.load(path, allow_pickle=False)

    @contextmanager
    def own_threads(self) -> Iterator[None]:
        """Keep BLAS to one thread while blocks of V run on our own.

        An algorithm holds this from beginning to end: threads of BLAS that have just worked
        between two passes would keep spinning and take the cores from the next one. Large
        data of a single block (few samples of very many features) are left to BLAS, and so are
        data so small that BLAS would use one thread anyway.
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

    # --- what a storage implements, besides `_gather` ---

    @abstractmethod
    def _block(self, start: int, stop: int) -> Block:
        """Samples `start` to `stop` as a block, in the type `dtype`."""

    def _blocks(self) -> Borders:
        """Where blocks begin and end."""
        return equal_borders(self.shape[1], self.block_samples)

    def _reading(self, borders: Borders) -> AbstractContextManager[Callable[[int], Block]]:
        """A function that reads a block by its number; it is called for 0, 1, ..."""
        return nullcontext(lambda number: self._block(*borders[number]))

    def _new_aligned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def _release_rows(self, array: Array, start: int, stop: int) -> None:
        """These rows of an aligned array are read, or written, and not needed for now."""

    # --- running a step ---

    def _sweep(self, work: Work) -> tuple[Any, ...]:
        borders = self._blocks()
        return self._run(work, borders, self._reading(borders))

    def _visit(self, work: Work) -> tuple[Any, ...]:
        borders = equal_borders(self.shape[1], self.visit_samples or self.shape[1])
        readers = [Reader(self, start, stop) for start, stop in borders]
        results = self._run(work, borders, nullcontext(readers.__getitem__))
        self._count(sum(reader.columns_read for reader in readers) / self.shape[1])
        return results

    def _map(self, work: Work) -> tuple[Any, ...]:
        borders = self._blocks()
        first = self.first
        ranges = [range(first + start, first + stop) for start, stop in borders]
        return self._run(work, borders, nullcontext(ranges.__getitem__))

    def _run(
        self,
        work: Work,
        borders: Borders,
        subjects: AbstractContextManager[Callable[[int], Any]],
    ) -> tuple[Any, ...]:
        """Apply a step to its subject between each two borders: a block, a Reader or a range."""
        wholes: list[Array] = []
        total: Any = None
        lock, is_ready = threading.Lock(), False

        def run(number: int) -> Any:
            nonlocal is_ready
            start, stop = borders[number]
            given = (array[start:stop] for array in work.aligned)
            *per_sample, part = work.step(subject(number), *given, **work.shared)
            with lock:
                if not is_ready:
                    is_ready = True  # tried once: if it fails, that error ends the pass
                    wholes.extend(self._destinations(per_sample, work.out))
            if len(wholes) < len(per_sample):
                return part
            if work.out:
                per_sample = _apart(per_sample, wholes)
            for whole, rows in zip(wholes, per_sample, strict=True):
                whole[start:stop] = rows
            return part

        def collect(number: int, part: Any) -> None:
            nonlocal total
            total = part if number == 0 else work.reduce(total, part)
            for array in (*wholes, *work.aligned):
                self._release_rows(array, *borders[number])

        with self.own_threads(), subjects as subject:
            if len(borders) == 1 and not work.out:
                return work.step(subject(0), *work.aligned, **work.shared)
            run_in_order(run, collect, len(borders), self.n_threads)
        return (*wholes, total)

    def _destinations(self, rows: list[Array], out: Sequence[Array | None]) -> list[Array]:
        """Where per-sample results go: into given arrays, or into new ones."""
        arrays = []
        for part, array in zip(rows, out or [None] * len(rows), strict=True):
            shape = (self.shape[1], *part.shape[1:])
            if array is None or not array.flags.writeable:
                array = self._new_aligned(shape, part.dtype)
            elif array.shape != shape or array.dtype != part.dtype:
                raise DataError(
                    f"out has shape {array.shape} and type {array.dtype}, "
                    f"expected {shape} and {part.dtype}"
                )
            arrays.append(array)
        return arrays


def _apart(rows: list[Array], arrays: list[Array]) -> list[Array]:
    """Copies of those results that are parts of arrays about to be written to."""
    return [
        part.copy() if any(np.may_share_memory(part, array) for array in arrays) else part
        for part in rows
    ]


_MAX_BLOCK_ENTRIES = 1 << 18  # up to which all samples may be one block
_MAX_COMPRESSED_BYTES = 32 << 20  # of dense data in both orders, or as much as they take themselves
_LEAST_BLOCKS = 8  # of steps that take long for each entry
_COPY_SHARE = 0.25  # of the memory, up to which a second copy of V is kept


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

    def _block(self, start: int, stop: int) -> Block:
        return self._as_block(self._rows[start:stop])

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

    def held_rows(self, max_dense_entries: int) -> Any:
        """Return the compressed rows, unless negative entries count as zeros."""
        return None if self.clip else self._rows

    def _block(self, start: int, stop: int) -> Block:
        """Views of the rows are kept: on small data, making them takes longer than a step."""
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
        return sparse_block(data, indices, indptr, self.shape[0], self.dtype, self.clip)

    def _gather(self, indices: Array) -> Block:
        rows = self._rows[indices]
        return self._as_block(rows.data, rows.indices, rows.indptr)

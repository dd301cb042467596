"""Matrices whose blocks are worked on by threads of this process: in memory or on disk.

A storage reads blocks and single samples; this module runs steps over them and collects their
results. Results are collected in the order of the blocks, so that they have the same bits for any
number of threads.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, DataError, name_out_of_memory
from .aligned import check_file, save_array
from .blocks import Array, Block
from .borders import Borders, equal_borders
from .matrix import Checksum, DataMatrix
from .steps import Work
from .threads import keep_freed_memory, one_blas_thread, run_in_order

__all__ = ["LocalMatrix", "Reader"]

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
        array: Array = np.load(path, allow_pickle=False)
        return array

    @contextmanager
    def own_threads(self) -> Iterator[None]:
        """Keep BLAS to one thread while blocks of V run on our own.

        An algorithm holds this from beginning to end: threads of BLAS that have just worked
        between two passes would keep spinning and take the cores from the next one. Large
        data of a single block (few samples of very many features) are left to BLAS.
        """
        keep_freed_memory()
        with nullcontext() if self._leave_to_blas else one_blas_thread():
            try:
                yield
            except MemoryError:
                what = "computing with {} features and {} samples".format(*self.shape)
                advice = "take fewer components, or remove features and samples that are empty"
                with name_out_of_memory(what, advice):
                    raise

    # --- what a storage implements, besides `_gather` ---

    @abstractmethod
    def _stored(self, start: int, stop: int) -> Any:
        """Samples `start` to `stop`, in rows, as they are stored: an array, or a tuple of some."""

    @abstractmethod
    def _as_block(self, rows: Any) -> Block:
        """Stored rows as a block, in the type `dtype`."""

    def _blocks(self) -> Borders:
        """Where blocks begin and end."""
        return equal_borders(self.shape[1], self.block_samples)

    def _reading(self, borders: Borders) -> AbstractContextManager[Callable[[int], Any]]:
        """A function that reads the rows of a block by its number; it is called for 0, 1, ..."""
        return nullcontext(lambda number: self._stored(*borders[number]))

    def _new_aligned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def _release_rows(self, array: Array, start: int, stop: int) -> None:
        """These rows of an aligned array are read, or written, and not needed for now."""

    # --- running a step ---

    def _sweep(self, work: Work) -> tuple[Any, ...]:
        borders = self._blocks()
        return self._run(work, borders, self._reading_blocks(borders))

    @contextmanager
    def _reading_blocks(self, borders: Borders) -> Iterator[Callable[[int], Block]]:
        with self._reading(borders) as read:
            yield lambda number: self._as_block(read(number))

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

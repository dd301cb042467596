"""The protocol: one way to read V, wherever it is kept.

Every algorithm of this library does something to a block of samples, keeps a result per sample
and sums the rest; `DataMatrix.sweep` is that sentence. Two shorter ones go with it: `visit` reads
only the samples that its step asks for, `map` reads none.

In the paper V is F x N and its columns are the samples; arrays that have one row per sample (the
transpose of H among them) are called *aligned*. They live where the blocks live: in memory, in a
file beside the data, on the workers of a cluster. So an algorithm never computes with them itself,
it hands them to steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError, DataTypeError, EmptyDataError, OptionError, ShapeError
from ..names import Names
from .blocks import Array, Block
from .resources import available_threads
from .threads import one_blas_thread, run_in_order

__all__ = [
    "Aligned",
    "Borders",
    "DataMatrix",
    "LocalMatrix",
    "Reader",
    "Step",
    "add",
    "check_kind",
    "equal_borders",
    "write_array",
]

Aligned: TypeAlias = Any
"""An array with one row per sample, to be handed to steps: an ndarray, or a Dask array."""

Step: TypeAlias = Callable[..., tuple[Any, ...]]
Borders: TypeAlias = list[tuple[int, int]]

_WRITTEN_BYTES = 64 << 20  # written at a time
_PART_BYTES = 4 << 20  # of samples that a thread is given when only some are read


def check_kind(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Make sure that these are a type and a shape of a matrix of real numbers."""
    if dtype.kind == "c":
        raise DataTypeError("Complex data not supported: take the magnitude, np.abs(X), first")
    if dtype.kind not in "fiub":
        raise DataTypeError(
            f"entries have type {dtype}, expected numbers: convert with X.astype(float)"
        )
    if len(shape) != 2:
        raise ShapeError(
            f"expected a matrix with 2 dimensions, got {len(shape)}: "
            "reshape one sample to X.reshape(1, -1), one feature to X.reshape(-1, 1)"
        )
    if 0 in shape:
        raise EmptyDataError(
            f"the matrix has shape {shape}: it needs at least one sample and one feature"
        )


def equal_borders(N: int, size: int) -> Borders:
    """Cut N samples into blocks of the same size, the last one possibly smaller."""
    return [(start, min(start + size, N)) for start in range(0, N, size)]


def write_array(stream: Any, array: Any) -> None:
    """Write an array in the ``.npy`` format, a part at a time: it may be on disk or a cluster."""
    # H is the transpose of what keeps samples together, and is written like that.
    in_rows = isinstance(array, np.ndarray) and array.flags.c_contiguous
    columns = array.ndim == 2 and not in_rows
    facts = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": columns,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_2_0(stream, facts)
    if array.ndim == 0:
        stream.write(np.asarray(array).tobytes())
        return
    rows = array.T if columns else array
    size = max(1, _WRITTEN_BYTES // (rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for first in range(0, len(rows), size):
        stream.write(np.ascontiguousarray(rows[first : first + size]).tobytes())


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
    norms_squared : aligned (N,), float64
        Squared length of each sample, computed by the first pass, which also validates.
    total : float
        ||V||^2, their sum.
    nonzero : int
        How many samples are not zero.
    sample_bytes : int
        About how much memory a sample takes once it is read.
    passes : float
        How much of V has been read so far: columns read / N.
    n_threads : int
    names : Names
        What samples and features are called, if the data came with names.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    norms_squared: Aligned
    total: float
    nonzero: int
    sample_bytes: int
    passes: float
    n_threads: int
    clip: bool  # read negative entries as zeros
    candidates: int = 1  # per partition and round; more on a cluster
    is_remote: bool = False  # the samples are with the workers of a cluster
    names: Names = Names()
    max_gather: int = 512  # largest batch to request from `columns`

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], n_threads: int | None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.passes = 0.0
        self.n_threads = available_threads() if n_threads is None else int(n_threads)
        if self.n_threads < 1:
            raise OptionError(f"n_threads={n_threads}; give at least 1, or None for all cores")
        self.clip = False

    def sweep(
        self, step: Step, *aligned: Aligned, reduce: Callable[[Any, Any], Any] = add, **shared: Any
    ) -> tuple[Any, ...]:
        """Read V once: apply a step to every block, keep what is per sample, sum the rest.

        Parameters
        ----------
        step : callable
            ``step(block, *aligned_pieces, **shared) -> (*per_sample, part)``. Each of
            `per_sample` has one row per sample of the block; `part` is what is reduced over
            blocks (None if there is nothing). A step is a function of a module, so that it can
            travel to other processes; it must not alter its arguments.
        *aligned : arrays (N, ...)
            Arrays with one row per sample; the step gets the matching pieces.
        reduce : callable
            ``reduce(total, part) -> total``; associative, and applied in the order of the
            blocks. It may alter `total`.
        **shared
            Small things every block needs: W, its Gram matrix.

        Returns
        -------
        tuple
            ``(*per_sample, total)``, each per-sample result joined over all blocks.

        Notes
        -----
        The borders of the blocks and the order of the sums depend only on V, so the results
        have the same bits for any number of threads or workers.
        """
        self.passes += 1.0
        return self._run("sweep", step, self._checked(aligned), reduce, shared)

    def visit(
        self, step: Step, *aligned: Aligned, reduce: Callable[[Any, Any], Any] = add, **shared: Any
    ) -> tuple[Any, ...]:
        """Like `sweep`, but the step gets a `Reader` and reads only the samples it asks for.

        The pieces are as large as the storage allows: all of V in memory, a chunk on a cluster.
        """
        return self._run("visit", step, self._checked(aligned), reduce, shared)

    def map(
        self, step: Step, *aligned: Aligned, reduce: Callable[[Any, Any], Any] = add, **shared: Any
    ) -> tuple[Any, ...]:
        """Like `sweep`, but V is not read: the step gets the range of samples of its pieces."""
        return self._run("map", step, self._checked(aligned), reduce, shared)

    def columns(self, indices: npt.ArrayLike) -> Block:
        """Return the samples with these indices as one block (F, n)."""
        chosen = np.asarray(indices, dtype=np.intp)
        self.passes += chosen.size / self.shape[1]
        return self._gather(chosen)

    @property
    def is_one_block(self) -> bool:
        """Whether a step gets all samples at once."""
        return False

    @property
    def depth(self) -> int:
        """How many numbers a block has for each sample: F, but for a sketch."""
        return self.shape[0]

    @property
    def subspace(self) -> tuple[Array, Aligned] | None:
        """Q (F, r) and B (N, r) if V is a sketch, Q B'; None for any other matrix."""
        return None

    def coordinates(self, W: Array) -> Array:
        """Return W (F, K) as blocks must be multiplied with it: as it is, but for a sketch."""
        return W

    def features(self, sums: Array) -> Array:
        """Return sums of samples as F features, from what blocks yield."""
        return sums

    @abstractmethod
    def align(self, array: Any) -> Aligned:
        """Bring an array with one row per sample to where the blocks are."""

    @abstractmethod
    def store(self, aligned: Aligned, folder: Path, name: str) -> None:
        """Write an aligned array into a folder that every process sees."""

    @abstractmethod
    def restore(self, folder: Path, name: str) -> Aligned:
        """Read back what `store` wrote."""

    def stored(self, aligned: Aligned, folder: Path, name: str) -> Aligned:
        """The array again, now that it is stored: what it came from may be forgotten."""
        return aligned

    def keep(self, aligned: Aligned) -> Aligned:
        """Make an aligned array outlast this matrix, wherever it lives."""
        return aligned

    @abstractmethod
    def own_threads(self) -> AbstractContextManager[None]:
        """Keep BLAS to one thread while blocks of V run on our own; held by every algorithm."""

    @abstractmethod
    def _run(
        self,
        how: str,
        step: Step,
        aligned: tuple[Aligned, ...],
        reduce: Callable[[Any, Any], Any],
        shared: dict[str, Any],
    ) -> tuple[Any, ...]:
        """Carry out the method of that name."""

    @abstractmethod
    def _gather(self, indices: Array) -> Block:
        """The named columns in the type `dtype`."""

    @property
    def norm(self) -> float:
        """The Frobenius norm of V."""
        return float(np.sqrt(self.total))

    def mean(self) -> float:
        """Return the mean entry of V; costs a pass."""
        (total,) = self.sweep(_sum_entries)
        return float(total) / (self.shape[0] * self.shape[1])

    def _checked(self, aligned: tuple[Aligned, ...]) -> tuple[Aligned, ...]:
        for array in aligned:
            if len(array) != self.shape[1]:
                raise ShapeError(
                    f"an aligned array has {len(array)} rows, expected one for each of "
                    f"{self.shape[1]} samples"
                )
        return tuple(self.align(array) for array in aligned)


def _sum_entries(block: Block) -> tuple[float]:
    return (float(block.sum(dtype=np.float64)),)


class Reader:
    """What a visiting step gets: a range of samples, of which it reads the few it needs.

    Attributes
    ----------
    samples : range
        The indices in V of the samples of this piece.
    max_gather : int
        Most samples that `columns` should be asked for at a time.
    """

    def __init__(self, V: LocalMatrix, start: int, stop: int) -> None:
        self._V = V
        self._start = start
        self.max_gather = V.max_gather
        self.samples = range(V.first + start, V.first + stop)

    def columns(self, indices: Array) -> Block:
        """Return the samples with these indices, counted within the piece, as one block."""
        return self._V.columns(indices + self._start)

    def each(self, step: Callable[[Block, Array], Array], indices: Array) -> Array:
        """Join ``step(block, indices)`` of a few samples at a time, which run on threads."""
        V = self._V
        V.passes += indices.size / V.shape[1]
        size = self.max_gather
        if V.gathers_at_once:
            size = min(size, 1 + _PART_BYTES // (V.shape[0] * V.dtype.itemsize))
        parts = equal_borders(indices.size, size)
        results: list[Array] = []

        def run(index: int) -> Array:
            part = indices[slice(*parts[index])]
            return step(V._gather(part + self._start), part)

        def collect(index: int, result: Array) -> None:
            results.append(result)

        run_in_order(run, collect, len(parts), V.n_threads if V.gathers_at_once else 1)
        return np.concatenate(results)


class LocalMatrix(DataMatrix):
    """A matrix whose blocks are read and worked on by threads of this process.

    Attributes
    ----------
    block_samples : int
        Samples in a block.
    first : int
        The index of the first sample, for a matrix that is a part of a larger one.
    gathers_at_once : bool
        Whether several threads may ask for columns.
    """

    block_samples: int
    first: int = 0
    gathers_at_once: bool = False
    _leave_to_blas = False

    @property
    def is_one_block(self) -> bool:
        """Whether a step gets all samples at once."""
        return len(self._blocks()) == 1

    @abstractmethod
    def _block(self, start: int, stop: int) -> Block:
        """Columns start..stop in the type `dtype`."""

    def _reading(self, borders: Borders) -> AbstractContextManager[Callable[[int], Block]]:
        """A function that reads the block of a number, called for 0, 1, ... in order."""
        return nullcontext(lambda index: self._block(*borders[index]))

    def _visited(self) -> int:
        """How many samples a visiting step looks after at a time."""
        return self.shape[1]

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Room for a new aligned array."""
        return np.empty(shape, dtype)

    def _done_with(self, arrays: list[Array], start: int, stop: int) -> None:
        """These rows of aligned arrays are read, or written, and not needed for now."""

    def align(self, array: Any) -> Array:
        """Return the array itself."""
        return array if isinstance(array, np.ndarray) else np.asarray(array)

    def store(self, aligned: Array, folder: Path, name: str) -> None:
        """Write one ``.npy`` file."""
        with open(folder / f"{name}.npy", "xb") as stream:
            write_array(stream, aligned)

    def restore(self, folder: Path, name: str) -> Array:
        """Read one ``.npy`` file."""
        path = folder / f"{name}.npy"
        return self._all_rows(np.load(path, allow_pickle=False), path)

    def _all_rows(self, stored: Array, path: Path) -> Array:
        if len(stored) != self.shape[1]:
            raise CheckpointError(f"{path} has {len(stored)} rows, expected {self.shape[1]}")
        return stored

    def _blocks(self) -> Borders:
        """Where blocks begin and end."""
        return self._borders(self.block_samples)

    def _borders(self, size: int) -> Borders:
        return equal_borders(self.shape[1], size)

    def _run(
        self,
        how: str,
        step: Step,
        aligned: tuple[Array, ...],
        reduce: Callable[[Any, Any], Any],
        shared: dict[str, Any],
    ) -> tuple[Any, ...]:
        borders = self._borders(self._visited()) if how == "visit" else self._blocks()
        if how == "sweep":
            reading = self._reading(borders)
        elif how == "visit":
            reading = nullcontext(lambda index: Reader(self, *borders[index]))
        else:
            reading = nullcontext(
                lambda index: range(*(self.first + border for border in borders[index]))
            )
        joined: list[Array] = []
        total: Any = None

        def run(index: int) -> tuple[Any, ...]:
            start, stop = borders[index]
            pieces = (array[start:stop] for array in aligned)
            return step(subject(index), *pieces, **shared)

        def collect(index: int, result: tuple[Any, ...]) -> None:
            nonlocal joined, total
            *per_sample, part = result
            start, stop = borders[index]
            if index == 0:
                N = self.shape[1]
                joined = [self._empty((N, *piece.shape[1:]), piece.dtype) for piece in per_sample]
            total = part if index == 0 else reduce(total, part)
            for whole, piece in zip(joined, per_sample, strict=True):
                whole[start:stop] = piece
            self._done_with([*joined, *aligned], start, stop)

        with self.own_threads(), reading as subject:
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

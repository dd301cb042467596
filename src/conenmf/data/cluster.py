"""V on a cluster: a Dask array whose chunks of samples stay on the workers.

Every chunk is a small matrix in memory, and one task applies a step to it, by the very method
(`sweep`, `visit`, `map`) that would be used without Dask. What is per sample stays with the chunk,
as a Dask array; the parts are reduced as a tree in an order that depends only on the chunks, so
results have the same bits for any number of workers. A worker that is lost takes its pieces with
it; Dask computes them again from the graph, which holds W and not V, and nothing else changes.
"""

from __future__ import annotations

import copy
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.highlevelgraph import HighLevelGraph

from ..errors import (
    CheckpointError,
    ClusterError,
    ConeNMFError,
    DataTypeError,
    ReadError,
    ShapeError,
    is_disk_full,
)
from .blocks import Array, Block
from .matrix import DataMatrix, LocalMatrix, Step, check_kind, write_array
from .memory import canonical_rows, compute_dtype, hold
from .resources import available_memory

__all__ = ["ClusterMatrix", "RechunkWarning", "Traffic", "checked_array"]

_FAN_IN = 8  # parts that one task of the tree adds up


class RechunkWarning(UserWarning):
    """A Dask array had to be cut anew so that every chunk has whole samples."""


class Traffic(NamedTuple):
    """What has moved between the client and the workers so far.

    Attributes
    ----------
    rounds : int
        How often the client waited for the workers.
    tasks : int
        Steps applied to chunks, one message to a worker each.
    bytes_out : int
        What is shared with all chunks (W, its Gram matrix), counted once a round.
    bytes_in : int
        The totals that came back.
    """

    rounds: int = 0
    tasks: int = 0
    bytes_out: int = 0
    bytes_in: int = 0


def checked_array(array: Any) -> da.Array:
    """Return a Dask array of numbers whose chunks have known sizes; refuse anything else."""
    if not isinstance(array, da.Array):
        raise ShapeError(
            f"expected a Dask array, got {type(array).__name__}: "
            "use its to_dask_array(lengths=True)"
        )
    check_kind(array.dtype, array.shape)
    if np.isnan(array.shape).any():
        raise ShapeError(
            "the Dask array does not know the sizes of its chunks: "
            "call compute_chunk_sizes() on it first"
        )
    return array


class ClusterMatrix(DataMatrix):
    """V held in a Dask array of dense or sparse chunks, with one row per sample.

    Attributes
    ----------
    traffic : Traffic
    """

    traffic: Traffic
    candidates = 32
    is_remote = True

    def __init__(self, rows: da.Array, persist: bool | None, n_threads: int | None) -> None:
        N, F = (int(side) for side in rows.shape)
        super().__init__((F, N), compute_dtype(rows.dtype), n_threads)
        if len(rows.chunks[1]) > 1:
            warnings.warn(
                f"the Dask array is cut along features into {len(rows.chunks[1])} chunks; it is "
                "cut anew along samples, which moves the data: store it in chunks of whole samples",
                RechunkWarning,
                stacklevel=4,
            )
            rows = rows.rechunk({0: "auto", 1: F})
        rows = rows[:, :]
        self.traffic = Traffic()
        self._sizes: tuple[int, ...] = tuple(int(n) for n in rows.chunks[0] if n)
        self._starts = np.cumsum([0, *self._sizes]).tolist()
        (rows,) = dask.optimize(rows)
        graph = dict(rows.__dask_graph__())
        keys = [(rows.name, i, 0) for i, n in enumerate(rows.chunks[0]) if n]
        name = f"conenmf-chunk-{uuid.uuid4().hex}"
        graph |= {(name, i): (_prepare, key) for i, key in enumerate(keys)}
        self._chunks = _Pieces(name, len(keys), graph)
        self._persisted = _fits(rows.nbytes) if persist is None else persist
        if self._persisted:
            with _naming_failures(opening=True):
                self._chunks = self._chunks.persisted()

    def align(self, array: Any) -> da.Array:
        """Cut an array into the pieces that belong to the chunks."""
        if isinstance(array, da.Array):
            whole = array.chunks[0] == self._sizes and all(
                len(cut) == 1 for cut in array.chunks[1:]
            )
            others = dict.fromkeys(range(1, array.ndim), -1)
            return array if whole else array.rechunk({0: self._sizes, **others})
        array = np.asarray(array)
        return da.from_array(array, chunks=(self._sizes, *array.shape[1:]), name=False)

    def own_threads(self) -> AbstractContextManager[None]:
        """Nothing to hold: the work is done elsewhere."""
        return nullcontext()

    def _run(
        self,
        how: str,
        step: Step,
        aligned: tuple[da.Array, ...],
        reduce: Callable[[Any, Any], Any],
        shared: dict[str, Any],
    ) -> tuple[Any, ...]:
        name = f"conenmf-{how}-{getattr(step, '__name__', 'step')}-{uuid.uuid4().hex}"
        call = f"{name}-call"
        graph: dict[Any, Any] = {
            call: _Call(how, step, reduce, shared, self.clip, self.dtype, self.shape[0])
        }
        rows: list[Any] = list(self._sizes)
        if how != "map" or self._persisted:  # what is new should be where the chunk is
            rows = self._chunks.keys()
            graph |= self._chunks.graph
        inputs = [self._inputs(array, graph) for array in aligned]
        for i, start in enumerate(self._starts[:-1]):
            pieces = [keys[i] for keys in inputs]
            graph[f"{name}-step", i] = (_apply, call, rows[i], start, *pieces)
            graph[f"{name}-pieces", i] = (_item, (f"{name}-step", i), 0)  # stay where they are
            graph[f"{name}-part", i] = (_item, (f"{name}-step", i), 1)  # travel
        parts: list[Any] = [(f"{name}-part", i) for i in range(len(rows))]
        level = 0
        while len(parts) > 1 or level == 0:
            groups = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
            parts = [(f"{name}-sum-{level}", i) for i in range(len(groups))]
            graph |= {key: (_reduce, call, group) for key, group in zip(parts, groups, strict=True)}
            level += 1
        with _naming_failures(opening=not hasattr(self, "norms_squared")):
            kept, sums = dask.persist(
                _Pieces(f"{name}-pieces", len(rows), graph),
                _Pieces(f"{name}-sum-{level - 1}", 1, graph),
                optimize_graph=False,
            )
            outcome: _Outcome = sums.first()
        self.passes += outcome.read / self.shape[1] if how == "visit" else 0.0
        self.traffic = Traffic(
            self.traffic.rounds + 1,
            self.traffic.tasks + len(rows),
            self.traffic.bytes_out + _bytes(shared),
            self.traffic.bytes_in + _bytes(outcome.part),
        )
        return (*self._outputs(kept, outcome.kinds), outcome.part)

    def _inputs(self, array: da.Array, graph: dict[Any, Any]) -> list[Any]:
        """What a task is given for each piece of an aligned array; its graph is added."""
        kept, j = getattr(array, "_conenmf_pieces", (None, 0))
        if kept is None:
            graph |= dict(array.__dask_graph__())
            return [(array.name, i, *(0,) * (array.ndim - 1)) for i in range(len(self._sizes))]
        graph |= kept.graph
        return [(_item, key, j) for key in kept.keys()]  # noqa: SIM118 - not a dict

    def _outputs(self, kept: _Pieces, kinds: list[Any]) -> Iterator[da.Array]:
        """The Dask arrays of what is per sample."""
        for j, (rest, dtype) in enumerate(kinds):
            name = f"{kept.name}-{j}"
            zeros = (0,) * len(rest)
            layer = {(name, i, *zeros): (_item, key, j) for i, key in enumerate(kept.keys())}
            graph = HighLevelGraph(
                {name: layer, kept.name: kept.graph}, {name: {kept.name}, kept.name: set()}
            )
            array = da.Array(graph, name, (self._sizes, *((side,) for side in rest)), dtype=dtype)
            array._conenmf_pieces = (kept, j)
            yield array

    def _gather(self, indices: Array) -> Block:
        """The named columns, brought to the client."""
        name = f"conenmf-gather-{uuid.uuid4().hex}"
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        graph: dict[Any, Any] = dict(self._chunks.graph)
        keys = self._chunks.keys()
        order = np.argsort(owner, kind="stable")
        chunks = np.unique(owner)
        for place, i in enumerate(chunks.tolist()):
            wanted = indices[order][owner[order] == i] - self._starts[i]
            graph[name, place] = (_take, keys[i], wanted, self.clip, self.dtype)
        with _naming_failures():
            blocks = dask.compute(_Pieces(name, chunks.size, graph), optimize_graph=False)[0]
        self.traffic = self.traffic._replace(
            rounds=self.traffic.rounds + 1,
            tasks=self.traffic.tasks + chunks.size,
            bytes_in=self.traffic.bytes_in + _bytes(list(blocks)),
        )
        back = np.empty(indices.size, dtype=np.intp)
        back[order] = np.arange(indices.size)
        if not blocks:
            return np.empty((self.shape[0], 0), self.dtype)
        if any(sp.issparse(block) for block in blocks):
            return sp.csc_array(sp.hstack(blocks, format="csc"))[:, back]
        return np.hstack(blocks)[:, back]

    def store(self, aligned: da.Array, folder: Path, name: str) -> None:
        """Let every worker write its pieces, one ``.npy`` file each."""
        self.map(_store_piece, aligned, folder=str(folder), name=name)

    def restore(self, folder: Path, name: str) -> da.Array:
        """Let every worker read its pieces."""
        return self.map(_restore_piece, folder=str(folder), name=name)[0]

    def stored(self, aligned: da.Array, folder: Path, name: str) -> da.Array:
        """The pieces read back: a lost one comes from its file, not from every step since."""
        return self.restore(folder, name)


# --- what runs on the workers -----------------------------------------------------------------


class _Call(NamedTuple):
    """A step and all that it needs besides its chunk."""

    how: str
    step: Step
    reduce: Callable[[Any, Any], Any]
    shared: dict[str, Any]
    clip: bool
    dtype: np.dtype[Any]
    F: int


class _Outcome(NamedTuple):
    """What a task sends up the tree: its part, the columns it read, the kinds of its pieces."""

    part: Any
    read: float
    kinds: list[tuple[tuple[int, ...], np.dtype[Any]]]


class _Nothing(LocalMatrix):
    """A matrix that has samples but no entries, for steps that read none."""

    def __init__(self, F: int, n: int, dtype: np.dtype[Any]) -> None:
        super().__init__((F, n), dtype, 1)
        self.block_samples = n

    def _block(self, start: int, stop: int) -> Block:
        raise AssertionError("a map reads nothing")

    def _gather(self, indices: Array) -> Block:
        raise AssertionError("a map reads nothing")


def _prepare(rows: Any) -> Any:
    if isinstance(rows, np.ma.MaskedArray):
        raise DataTypeError(
            "the array is masked: fill the masked entries first, da.ma.filled(X, 0)"
        )
    return canonical_rows(rows) if sp.issparse(rows) else _in_place(np.asarray(rows))


def _held(rows: Any, clip: bool, dtype: np.dtype[Any]) -> LocalMatrix:
    local = hold(_in_place(rows), 1)
    local.dtype, local.clip = dtype, clip
    return local


def _apply(call: _Call, rows: Any, start: int, *pieces: Any) -> tuple[tuple[Any, ...], _Outcome]:
    if call.how == "map":
        n = rows if isinstance(rows, int) else rows.shape[0]
        local: LocalMatrix = _Nothing(call.F, n, call.dtype)
    else:
        local = _held(rows, call.clip, call.dtype)
    local.first = start
    shared = {name: _in_place(value) for name, value in call.shared.items()}
    *per_sample, part = getattr(local, call.how)(
        call.step, *map(_in_place, pieces), reduce=call.reduce, **shared
    )
    kinds = [(piece.shape[1:], piece.dtype) for piece in per_sample]
    return tuple(per_sample), _Outcome(part, local.passes * local.shape[1], kinds)


def _in_place(array: Any) -> Any:
    """Arrays that came over the network may lie at odd addresses, where sums have other bits."""
    return np.require(array, requirements="A") if isinstance(array, np.ndarray) else array


def _reduce(call: _Call, outcomes: list[_Outcome]) -> _Outcome:
    first, *others = outcomes
    part, read = copy.deepcopy(first.part) if others else first.part, first.read
    for outcome in others:
        part, read = call.reduce(part, outcome.part), read + outcome.read
    return _Outcome(part, read, first.kinds)


def _take(rows: Any, indices: Array, clip: bool, dtype: np.dtype[Any]) -> Block:
    return _held(rows, clip, dtype).columns(indices)


def _item(pieces: tuple[Any, ...], j: int) -> Any:
    return pieces[j]


def _store_piece(samples: range, piece: Array, *, folder: str, name: str) -> tuple[None]:
    with open(Path(folder) / f"{name}-{samples.start}.npy", "wb") as stream:
        write_array(stream, piece)
    return (None,)


def _restore_piece(samples: range, *, folder: str, name: str) -> tuple[Array, None]:
    path = Path(folder) / f"{name}-{samples.start}.npy"
    piece = np.load(path, allow_pickle=False) if path.exists() else None
    if piece is None or len(piece) != len(samples):
        raise CheckpointError(
            f"{path} is missing or has another length than {len(samples)}: the chunks are cut "
            "differently now, or this worker does not see the folder"
        )
    return piece, None


# --- Dask's side ------------------------------------------------------------------------------


class _Pieces:
    """A collection of Dask: the keys (name, 0), (name, 1), ... of a graph."""

    def __init__(self, name: str, count: int, graph: dict[Any, Any]) -> None:
        self.name = name
        self.count = count
        self.graph = graph

    def keys(self) -> list[Any]:
        return [(self.name, i) for i in range(self.count)]

    def first(self) -> Any:
        """The value of the first key, once it is computed."""
        value = self.graph[self.name, 0]
        return value.result() if hasattr(value, "result") else value

    def persisted(self) -> _Pieces:
        pieces: _Pieces
        (pieces,) = dask.persist(self, optimize_graph=False)
        return pieces

    def __dask_graph__(self) -> dict[Any, Any]:
        return self.graph

    def __dask_keys__(self) -> list[Any]:
        return self.keys()

    def __dask_postcompute__(self) -> tuple[Any, tuple[Any, ...]]:
        return list, ()

    def __dask_postpersist__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._rebuild, ()

    def _rebuild(self, graph: Any, *, rename: dict[str, str] | None = None) -> _Pieces:
        return _Pieces(self.name, self.count, dict(graph))

    __dask_scheduler__ = staticmethod(dask.threaded.get)


def _fits(size: int) -> bool:
    """Whether the data take less than half of the memory of the workers."""
    client = _client()
    if client is None:
        return size < available_memory() // 2
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return size < sum(int(worker["memory_limit"]) for worker in workers) // 2


def _client() -> Any:
    """The client of `distributed` that Dask would use now, if there is one."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


@contextmanager
def _naming_failures(*, opening: bool = False) -> Iterator[None]:
    """Turn what happens when a scheduler, a worker or a chunk is lost into an error of ours.

    While V is opened only its own chunks are computed, so any other failure is theirs.
    """
    try:
        yield
    except ConeNMFError:
        raise
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}"
        library = type(problem).__module__.partition(".")[0]
        lost = library in ("distributed", "asyncio", "concurrent", "tornado")
        if lost or isinstance(problem, TimeoutError):
            raise ClusterError(
                f"the cluster was lost, or gave up on a task: {what}; "
                "start it again and repeat the call, which resumes if it has a checkpoint"
            ) from problem
        full = isinstance(problem, OSError) and is_disk_full(problem)
        if opening or (isinstance(problem, OSError) and not full):
            raise ReadError(f"a chunk of the Dask array could not be computed: {what}") from problem
        raise


def _bytes(thing: Any) -> int:
    """About how many bytes travel."""
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes)
    if sp.issparse(thing):
        return int(thing.data.nbytes + thing.indices.nbytes + thing.indptr.nbytes)
    if isinstance(thing, dict):
        return sum(_bytes(value) for value in thing.values())
    if isinstance(thing, tuple | list):
        return sum(_bytes(value) for value in thing)
    return 8

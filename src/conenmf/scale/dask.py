"""V on a cluster: a Dask array whose chunks of samples stay on the workers.

Consecutive chunks form groups, and one task applies a step to all chunks of a group. Results per
sample stay with the group, as a Dask array; the other results are added in a binary tree over the
chunks. A group is a whole subtree, so the sums depend neither on the grouping nor on the workers.
If a worker is lost, its results are lost too. Dask computes them again from the graph, which
contains W but not V. A group that is computed again is compared with its first version.

Errors of a step, or of the graph that creates the chunks, are raised unchanged. If a client, a
scheduler or a worker is lost, the error says so.
"""

from __future__ import annotations

import copy
import operator
import uuid
import warnings
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import scipy.sparse as sp
from dask.highlevelgraph import HighLevelGraph

from ..arguments import DType, Lengths
from ..data.blocks import Array, Block, Rows, canonical_rows, compute_dtype, is_sparse
from ..data.matrix import Aligned, DataMatrix, Results, Work
from ..data.memory import hold
from ..data.resources import available_memory, available_threads, one_blas_thread
from ..data.validate import check_kind
from ..errors import (
    DataChangedError,
    DataError,
    DataTypeError,
    InputWarning,
    ReadError,
)
from ..text import Facts

_FAN_IN_PARTS = 8  # results that one task of the tree adds up; a power of two
_MAX_GROUP_BYTES = 32 << 20
_GROUPS_PER_THREAD = 4  # at least, so that no worker waits long for the last group
_PART_BYTES = 1 << 18  # part of a chunk whose evidence is computed at a time; fits in the cache
_GOLDEN_RATIO = 0.6180339887498949  # multiples of it, modulo 1, are evenly spread
_Graph: TypeAlias = dict[Any, Any]  # tasks by their keys
_CLUSTER_LIBRARIES = ("distributed", "asyncio", "concurrent", "tornado")


def checked_array(array: object) -> da.Array:
    """Return a Dask array of numbers whose chunks have known sizes; reject anything else."""
    if not isinstance(array, da.Array):
        raise DataError(
            f"expected a Dask array, got {type(array).__name__}: "
            "use its to_dask_array(lengths=True)"
        )
    check_kind(array.dtype, array.shape)
    if np.isnan(array.shape).any():
        raise DataError(
            "the Dask array does not know the sizes of its chunks: "
            "call compute_chunk_sizes() on it first"
        )
    return array


class ClusterMatrix(DataMatrix):
    """V held in a Dask array of dense or sparse chunks.

    Parameters
    ----------
    rows : Dask array (N, F)
        One row per sample.
    persist : bool, optional
        Keep the chunks in the memory of the workers; by default if they take less than half of it.
    block_samples : int, optional
        Largest number of samples in a block; workers cut their chunks into blocks.
    **options
        As for `DataMatrix`.
    """

    is_remote = True

    def __init__(
        self,
        rows: da.Array,
        persist: bool | None = None,
        *,
        block_samples: int | None = None,
        **options: Any,
    ) -> None:
        N, F = (int(side) for side in rows.shape)
        super().__init__((F, N), compute_dtype(rows.dtype), **options)
        if len(rows.chunks[1]) > 1:
            warnings.warn(
                f"the Dask array is cut along features into {len(rows.chunks[1])} chunks; it is "
                "now cut along samples, which moves the data: store it in chunks of whole samples",
                InputWarning,
                stacklevel=4,
            )
            rows = rows.rechunk({0: "auto", 1: F})
        self._client = _client_id()
        self._block_samples = block_samples
        self._evidence: dict[int, list[float]] = {}  # of each group, in the first pass
        sizes = [int(n) for n in rows.chunks[0] if n]
        width = _group_width(sizes, F * rows.dtype.itemsize)
        self._groups = [sizes[i : i + width] for i in range(0, len(sizes), width)]
        self._group_sizes = tuple(sum(group) for group in self._groups)
        self._starts = np.cumsum([0, *self._group_sizes]).tolist()[:-1]
        (rows,) = dask.optimize(rows)
        graph = dict(rows.__dask_graph__())
        keys = [(rows.name, i, 0) for i, n in enumerate(rows.chunks[0]) if n]
        name = f"conenmf-group-{uuid.uuid4().hex}"
        for g, (start, group) in enumerate(zip(self._starts, self._groups, strict=True)):
            chunks = keys[g * width : (g + 1) * width]
            graph[name, g] = (_prepare_group, chunks, start, group, F)
        self._chunks = _Keys(graph, name, len(self._groups))
        with _naming_failures(self._client):
            self._persisted = _fits(rows.nbytes) if persist is None else persist
            if self._persisted:
                (self._chunks,) = dask.persist(self._chunks, optimize_graph=False)

    def align(self, array: Aligned) -> da.Array:
        """Cut an array at the borders of the groups."""
        if isinstance(array, da.Array):
            sizes = {0: self._group_sizes, **dict.fromkeys(range(1, array.ndim), -1)}
            is_cut = array.numblocks[1:] == (1,) * (array.ndim - 1)
            return array if is_cut and array.chunks[0] == sizes[0] else array.rechunk(sizes)
        array = np.asarray(array)
        return da.from_array(array, chunks=(self._group_sizes, *array.shape[1:]), name=False)

    def own_threads(self) -> AbstractContextManager[None]:
        """Do nothing: the workers compute."""
        return nullcontext()

    def _run(self, work: Work) -> Results:
        """Run one task per group, and reduce the results."""
        name = f"conenmf-{getattr(work.step, '__name__', 'step')}-{uuid.uuid4().hex}"
        call = f"{name}-call"
        n_groups = len(self._groups)
        graph: _Graph = {call: _Call(work._replace(aligned=()), self._options())}
        chunks: list[Any] = [None] * n_groups
        if work.reads or self._persisted:  # place new results where the chunk is
            chunks = self._chunks.__dask_keys__()
            graph |= self._chunks.dask
        inputs = [self._inputs(array, graph) for array in work.aligned]
        for g, (start, sizes) in enumerate(zip(self._starts, self._groups, strict=True)):
            place = (g, start, sizes, self._evidence.get(g))
            aligned = [keys[g] for keys in inputs]
            graph[f"{name}-task", g] = (_run_group, call, chunks[g], list(place), *aligned)
            graph[f"{name}-rows", g] = (operator.getitem, (f"{name}-task", g), 0)  # stays there
            graph[f"{name}-part", g] = (operator.getitem, (f"{name}-task", g), 1)  # is sent
        parts: list[Any] = [(f"{name}-part", g) for g in range(n_groups)]
        level = 0
        while len(parts) > 1 or level == 0:
            lots = [parts[i : i + _FAN_IN_PARTS] for i in range(0, len(parts), _FAN_IN_PARTS)]
            parts = [(f"{name}-sum-{level}", i) for i in range(len(lots))]
            for key, lot in zip(parts, lots, strict=True):
                graph[key] = (_reduce_copies, call, lot)
            level += 1
        with _naming_failures(self._client):
            results, sums = dask.persist(
                _Keys(graph, f"{name}-rows", n_groups),
                _Keys(graph, f"{name}-sum-{level - 1}", 1),
                optimize_graph=False,
            )
            outcome = sums.dask[parts[0]]
            outcome = outcome.result() if hasattr(outcome, "result") else outcome
        self._evidence |= outcome.evidence
        return *self._outputs(results, outcome.kinds), outcome.part

    def _options(self) -> Facts:
        """Return the options with which workers store chunks."""
        return {"dtype": self.dtype, "block_samples": self._block_samples}

    def _inputs(self, array: da.Array, graph: _Graph) -> list[Any]:
        """Return the inputs of each group's task from an aligned array, and add its graph."""
        results, j = getattr(array, "_conenmf_results", (None, 0))
        if results is None:
            graph |= dict(array.__dask_graph__())
            return [(array.name, g, *(0,) * (array.ndim - 1)) for g in range(len(self._groups))]
        graph |= results.dask
        return [(operator.getitem, key, j) for key in results.__dask_keys__()]

    def _outputs(self, results: _Keys, kinds: list[Any]) -> Iterator[da.Array]:
        """Yield the Dask arrays of the results per sample."""
        for j, (sides, dtype) in enumerate(kinds):
            name = f"{results.name}-{j}"
            zeros = (0,) * len(sides)
            keys = enumerate(results.__dask_keys__())
            layer = {(name, g, *zeros): (operator.getitem, key, j) for g, key in keys}
            graph = HighLevelGraph.from_collections(name, layer, dependencies=[results])
            sizes = (self._group_sizes, *((side,) for side in sides))
            array = da.Array(graph, name, sizes, dtype=dtype)
            array._conenmf_results = (results, j)
            yield array

    def _gather(self, indices: Array) -> Block:
        """Return samples, moved to the client."""
        if not indices.size:
            return np.empty((self.n_features, 0), self.dtype)
        name = f"conenmf-gather-{uuid.uuid4().hex}"
        order = np.argsort(indices, kind="stable")
        owner = np.searchsorted(self._starts, indices[order], side="right") - 1
        graph: _Graph = dict(self._chunks.dask)
        groups = np.unique(owner).tolist()
        for place, g in enumerate(groups):
            within = indices[order][owner == g] - self._starts[g]
            key = (self._chunks.name, g)
            graph[name, place] = (_take_columns, key, within, self._options())
        with _naming_failures(self._client):
            (blocks,) = dask.compute(_Keys(graph, name, len(groups)), optimize_graph=False)
        return _joined(blocks, axis=1)[:, np.argsort(order)]


def _group_width(sizes: list[int], sample_bytes: int) -> int:
    """Return how many chunks form a group: a power of two, for subtrees of one binary tree."""
    width = 1
    threads = _n_threads()
    largest = max(sizes, default=0) * sample_bytes
    while (
        2 * width * largest <= _MAX_GROUP_BYTES
        and len(sizes) >= 2 * width * _GROUPS_PER_THREAD * threads
    ):
        width *= 2
    return width


# --- what runs on the workers -----------------------------------------------------------------


class _Call(NamedTuple):
    """A step and its arguments other than the chunk; `options` belong to the chunk's matrix."""

    work: Work
    options: Facts


class _Group(NamedTuple):
    """Chunks on a worker, and a number for each that changes if its entries change."""

    chunks: list[Rows]
    evidence: list[float]


class _Outcome(NamedTuple):
    """The results that a task sends back to the client.

    Attributes
    ----------
    part
        The result of the step that is to be reduced.
    kinds : list of (shape of a row, dtype)
        Types of the per-sample results, which stay on the worker.
    evidence : dict
        The evidence of a group, by its number, if it was not known before.
    """

    part: Any
    kinds: list[tuple[Lengths, DType]]
    evidence: dict[int, list[float]]


def _prepare_group(chunks: list[Rows], start: int, sizes: list[int], n_features: int) -> _Group:
    """Return the chunks of a group, converted as matrices in memory require."""
    prepared = []
    for rows, n in zip(chunks, sizes, strict=True):
        prepared.append(_prepare_chunk(rows, start, n, n_features))
        start += n
    return _Group(prepared, [_evidence(rows) for rows in prepared])


def _prepare_chunk(rows: Rows, start: int, n_samples: int, n_features: int) -> Rows:
    """Return a chunk as an ndarray or canonical CSR, after checking its declared form."""
    where = _place(start, n_samples)
    if np.ma.is_masked(rows):
        raise DataTypeError(
            f"{where}: some entries are masked: remove such samples or features, or fill them, "
            "da.ma.filled(X, 0)"
        )
    rows = canonical_rows(np.ma.getdata(rows) if np.ma.isMA(rows) else rows)
    if rows.shape != (n_samples, n_features):
        raise DataError(
            f"{where}: the chunk has shape {rows.shape}, but the array declares "
            f"({n_samples}, {n_features}), samples by features: declare the true sizes, as with "
            "map_blocks(..., chunks=...)"
        )
    try:
        check_kind(rows.dtype, rows.shape)
    except DataTypeError as problem:
        raise DataTypeError(f"{where}: {problem}") from None
    return rows


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if len(parts) == 1:
        return parts[0]
    if any(is_sparse(part) for part in parts):
        return (sp.hstack if axis else sp.vstack)(parts, format="csc" if axis else "csr")
    return np.concatenate(parts, axis=axis)


def _run_group(
    call: _Call, group: _Group | None, place: list[Any], *aligned: Any
) -> tuple[tuple[Array, ...], _Outcome]:
    """Apply a step to each chunk of a group: join the results per sample, reduce the others."""
    g, start, sizes, known = place
    chunks = [None] * len(sizes)
    if group is not None:
        chunks = _addressable(group.chunks)
        _compare(group, start, known)
    aligned = tuple(_addressable(list(aligned)))
    shared = _addressable(call.work.shared)
    evidence = {g: group.evidence} if group is not None and known is None else {}
    results = []
    outcomes = []
    first = 0
    for rows, n in zip(chunks, sizes, strict=True):
        given = [array[first : first + n] for array in aligned]
        index = range(start, start + n)
        *per_sample, part = _run_step(call, rows, index, given, shared)
        kinds = [(array.shape[1:], array.dtype) for array in per_sample]
        results.append(per_sample)
        outcomes.append(_Outcome(part, kinds, evidence))
        start = start + n
        first = first + n
    joined = tuple(_joined(parts, axis=0) for parts in zip(*results, strict=True))
    return joined, _reduce_outcomes(call, outcomes)


def _run_step(
    call: _Call, rows: Rows, index: range, aligned: list[Array], shared: Facts
) -> Results:
    """Return the results of a step on a chunk."""
    work = call.work
    if not work.reads:
        with one_blas_thread():
            return work.step(index, *aligned, **shared)
    local = hold(rows, n_threads=1, **call.options)
    return local.sweep(work.step, *aligned, reduce=work.reduce, **shared)


def _compare(group: _Group, start: int, known: list[float] | None) -> None:
    """Reject a group that was computed again and differs from its first version."""
    for rows, now, before in zip(group.chunks, group.evidence, known or [], strict=False):
        eps = float(np.finfo(rows.dtype).eps) if rows.dtype.kind == "f" else 0.0
        if not np.isclose(now, before, rtol=max(1e-9, 8 * eps), atol=0, equal_nan=True):
            raise DataChangedError(
                f"{_place(start, rows.shape[0])}: the numbers differ from those of the first pass, "
                "because Dask computed the chunk again with another outcome: keep it with "
                "persist=True, or make its graph give the same numbers every time"
            )
        start += rows.shape[0]


def _evidence(rows: Rows) -> float:
    """Return a sum of all entries with weights of their samples and features.

    It is not a checksum, because another machine may compute a chunk with other last bits.
    """
    of_samples, of_features = (0.5 + np.arange(n) * _GOLDEN_RATIO % 1 for n in rows.shape)
    size = 1 + _PART_BYTES // (8 * rows.shape[1])
    total = 0.0
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, rows.shape[0], size):
            sums = rows[first : first + size] @ of_features
            total += float(sums @ of_samples[first : first + size])
    return total


def _reduce_copies(call: _Call, outcomes: list[_Outcome]) -> _Outcome:
    """Reduce copies of the results of other tasks, which must not be changed."""
    return _reduce_outcomes(call, copy.deepcopy(outcomes))


def _reduce_outcomes(call: _Call, outcomes: list[_Outcome]) -> _Outcome:
    """Reduce the outcomes of neighbours to one, in a binary tree; it may change their results."""
    while len(outcomes) > 1:
        pairs = [outcomes[i : i + 2] for i in range(0, len(outcomes), 2)]
        outcomes = [pair[0] if len(pair) == 1 else _added(call, *pair) for pair in pairs]
    return outcomes[0]


def _added(call: _Call, first: _Outcome, second: _Outcome) -> _Outcome:
    part = call.work.reduce(first.part, second.part)
    return _Outcome(part, first.kinds, first.evidence | second.evidence)


def _take_columns(group: _Group, indices: Array, options: Facts) -> Block:
    """Return samples of a group by their sorted indices within it."""
    firsts = np.cumsum([0, *(rows.shape[0] for rows in group.chunks)])[:-1]
    owned = np.split(indices, np.searchsorted(indices, firsts[1:]))
    blocks = [
        hold(rows, n_threads=1, **options).columns(some - first)
        for rows, some, first in zip(group.chunks, owned, firsts, strict=True)
        if some.size
    ]
    return _joined(blocks, axis=1)


def _place(start: int, n_samples: int) -> str:
    return f"samples {start} to {start + n_samples - 1} of the Dask array"


def _addressable(value: Any) -> Any:
    """Copy misaligned arrays from the network, because misalignment changes bits of sums."""
    if isinstance(value, dict):
        return {name: _addressable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_addressable(inner) for inner in value]
    return np.require(value, requirements="A") if isinstance(value, np.ndarray) else value


# --- Dask's side --------------------------------------------------------------------------------


class _Keys(db.Bag):  # type: ignore[misc]
    """The keys (name, 0), (name, 1), ... of a graph; threads run it unless there is a client."""

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __dask_postcompute__(self) -> tuple[Any, tuple[Any, ...]]:
        return list, ()


def _fits(size: int) -> bool:
    """Return whether the data take less than half of the memory of the workers."""
    client = _client()
    if client is None:
        return size < available_memory() // 2
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return size < sum(int(worker["memory_limit"]) for worker in workers) // 2


def _n_threads() -> int:
    """Return how many threads the workers have."""
    client = _client()
    return available_threads() if client is None else max(1, sum(client.nthreads().values()))


def _client_id() -> str | None:
    """Return the name of the client that Dask would use now, if there is one."""
    client = _client()
    return None if client is None else str(client.id)


def _client() -> Any:
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


@contextmanager
def _naming_failures(client: str | None) -> Iterator[None]:
    """Report the loss of the client, the scheduler or a worker; raise other errors unchanged.

    `client` is the one that has earlier results, if any.
    """
    _require_client(client)
    try:
        yield
    except (Exception, CancelledError) as problem:
        library = type(problem).__module__.partition(".")[0]
        if library not in _CLUSTER_LIBRARIES and not isinstance(problem, TimeoutError):
            raise
        _require_client(client, problem)
        raise ReadError(
            f"the cluster was lost, or gave up on a task: {type(problem).__name__}: {problem}; "
            "start it again and repeat the call, which resumes if it has a checkpoint"
        ) from problem


def _require_client(client: str | None, problem: BaseException | None = None) -> None:
    """Raise an error if another client has earlier results, because Dask cannot combine them."""
    if client is not None and client != _client_id():
        raise ReadError(
            "the client with which the data were opened is closed, or no longer the one that Dask "
            "uses: connect to the cluster, open the data again and repeat the call, which resumes "
            "if it has a checkpoint"
        ) from problem

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
import warnings
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Self

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.delayed import Delayed, delayed

from ..data.blocks import Block, Rows, canonical_rows, compute_dtype, is_sparse, slices
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
from ..names import Names
from ..types import Array, DType, Facts, Lengths

_FAN_IN_PARTS = 8  # results that one task of the tree adds up; a power of two
_MAX_GROUP_BYTES = 32 << 20
_GROUPS_PER_THREAD = 4  # at least, so that no worker waits long for the last group
_PART_BYTES = 1 << 18  # part of a chunk whose evidence is computed at a time; fits in the cache
_GOLDEN_RATIO = 0.6180339887498949  # multiples of it, modulo 1, are evenly spread
_NO_WORKERS = (
    "the cluster has had no worker for 30 s: the fit goes on when workers come; to get an error "
    "instead, set distributed.scheduler.no-workers-timeout of Dask"
)
_CLUSTER_LIBRARIES = ("distributed", "asyncio", "concurrent", "tornado")
_LOOK_SECONDS = 5.0  # between two looks at the workers during a long pass
_PATIENCE_SECONDS = 30.0  # without a worker, before the client says so


def array_of(X: Any) -> tuple[da.Array, Names]:
    """Return a Dask array of numbers whose chunks have known sizes, and its names.

    X is such an array, a Dask data frame, or a DataArray of xarray that consists of chunks.
    """
    names = Names()
    kind = type(X)  # a Delayed object has every attribute, but its type has not
    if hasattr(kind, "to_dask_array"):
        names = Names.of(feature_names=X.columns)
        X = X.to_dask_array(lengths=True)
    elif hasattr(kind, "data_vars"):
        raise DataTypeError(
            "got a Dataset of xarray, which may have several variables: pass one of them, X['name']"
        )
    elif hasattr(kind, "indexes"):
        axes = [X.indexes.get(dimension) for dimension in X.dims[:2]]
        names = Names.of(*axes)
        X = X.data
    if not isinstance(X, da.Array):
        raise DataError(f"expected a Dask array, got {type(X).__name__}: convert it to one")
    check_kind(X.dtype, X.shape)
    if np.isnan(X.shape).any():
        raise DataError(
            "the Dask array does not know the sizes of its chunks: "
            "call compute_chunk_sizes() on it first"
        )
    return X, names


class RowsOnWorkers(da.Array):  # type: ignore[misc]
    """A Dask array of results per sample, or its transpose, which the workers hold.

    Attributes
    ----------
    pieces : list of Delayed
        The results of each group: a tuple with the rows of this array, of others, and an outcome.
    place : int
        The place of this array in each tuple.
    client : distributed.Client or None
    """

    pieces: Sequence[Delayed] = ()
    place: int | None = None
    client: Any = None
    _turned: RowsOnWorkers | None = None

    @classmethod
    def of(cls, array: da.Array, client: Any) -> Self:
        """Return a Dask array as one that knows the client to which its chunks belong."""
        rows = cls(array.dask, array.name, array.chunks, dtype=array.dtype)
        rows.client = client
        return rows

    @property
    def T(self) -> RowsOnWorkers:
        """The transposed array; the transpose of that is this array."""
        if self._turned is None:
            self._turned = RowsOnWorkers.of(self.transpose(), self.client)
            self._turned._turned = self
        return self._turned

    def __dask_graph__(self) -> Any:
        """Return the graph; raise an error if the client is closed, with which all is lost."""
        if self.client is not None and self.client.status in ("closing", "closed"):
            raise ReadError(
                "the client with which these coefficients were computed is closed, and they were "
                "on its workers: store or compute them before, or repeat the fit"
            )
        return super().__dask_graph__()


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
        self._evidence: dict[int, Array] = {}  # of each group, in the first pass
        self._running: Sequence[Any] = ()  # futures of the groups, in a pass
        sizes = [int(n) for n in rows.chunks[0] if n]
        width = _group_width(sizes, F * rows.dtype.itemsize)
        chunks = [one for one, n in zip(_pieces(rows), rows.chunks[0], strict=True) if n]
        lots = _lots(sizes, width)
        self._group_sizes = tuple(map(sum, lots))
        self._starts = list(accumulate(self._group_sizes[:-1], initial=0))
        groups = zip(self._starts, map(np.array, lots), strict=True)
        self._places = [_Place(g, *group) for g, group in enumerate(groups)]
        prepare = delayed(_prepare_group, pure=False)
        given = zip(self._places, _lots(chunks, width), strict=True)
        self._groups = [prepare(place, F, *some) for place, some in given]
        with _naming_failures(self._client):
            self._persisted = _fits(rows.nbytes) if persist is None else persist
            if self._persisted:
                self._groups = list(dask.persist(*self._groups, optimize_graph=False))

    def align(self, array: Aligned) -> da.Array:
        """Cut an array at the borders of the groups."""
        shape = np.shape(array)
        chunks = (self._group_sizes, *((side,) for side in shape[1:]))
        if not isinstance(array, da.Array):
            array = da.from_array(np.asarray(array), chunks=chunks, name=False)
        elif array.chunks == chunks:
            return array
        else:
            array = array.rechunk(chunks)
        if self._persisted and shape == (self.n_samples, self.n_features):
            return array.persist()  # a mask, or weights, which every pass needs
        return array

    @property
    def share_of_pass(self) -> float | None:
        """The part of the running pass that is done: groups that the scheduler has reported."""
        running = self._running
        if not running:
            return None
        return sum(future.done() for future in running) / len(running)

    def own_threads(self) -> AbstractContextManager[None]:
        """Do nothing: the workers compute."""
        return nullcontext()

    def _run(self, work: Work) -> Results:
        """Run one task per group, and reduce the results."""
        places = [getattr(array, "place", None) for array in work.aligned]
        step = _Call(work._replace(aligned=()), places, self.dtype, self._block_samples)
        call = delayed(step, pure=False, traverse=False)
        run = delayed(_run_group, pure=False)
        pick = delayed(operator.getitem, pure=False)
        inputs = [_pieces(array) for array in work.aligned]
        done = []
        parts = []
        for g, place in enumerate(self._places):
            # Results are placed where the chunk is.
            group = self._groups[g] if work.reads or self._persisted else None
            aligned = [pieces[g] for pieces in inputs]
            done.append(run(call, place, self._evidence.get(g), group, *aligned))  # stays there
            parts.append(pick(done[g], -1))  # is sent
        add = delayed(_reduce_copies, pure=False)
        while len(parts) > 1:
            parts = [add(call, *lot) for lot in _lots(parts, _FAN_IN_PARTS)]
        kept, (outcome,) = self._compute(done, parts)
        self._evidence |= outcome.evidence
        return *self._outputs(kept, outcome.kinds), outcome.part

    def _outputs(self, rows: Sequence[Delayed], kinds: list[Any]) -> Iterator[da.Array]:
        """Yield the Dask arrays of the results per sample."""
        client = _client()
        pick = delayed(operator.getitem, pure=False)
        for j, (sides, dtype) in enumerate(kinds):
            parts = []
            for piece, n in zip(rows, self._group_sizes, strict=True):
                parts.append(da.from_delayed(pick(piece, j), (n, *sides), dtype))
            array = RowsOnWorkers.of(da.concatenate(parts), client)
            array.pieces = rows
            array.place = j
            yield array

    def _gather(self, indices: Array) -> Block:
        """Return samples, moved to the client."""
        if not indices.size:
            return np.empty((self.n_features, 0), self.dtype)
        order = np.argsort(indices, kind="stable")
        owner = np.searchsorted(self._starts, indices[order], side="right") - 1
        take = delayed(_take_columns, pure=False)
        wanted = []
        for g in np.unique(owner).tolist():
            within = indices[order][owner == g] - self._starts[g]
            wanted.append(take(self._groups[g], within, self.dtype, self._block_samples))
        _, blocks = self._compute([], wanted)
        return _joined(blocks, axis=1)[:, np.argsort(order)]

    def _compute(
        self, rows: list[Delayed], wanted: list[Delayed]
    ) -> tuple[Sequence[Delayed], list[Any]]:
        """Compute tasks: rows stay on the workers, and what is wanted comes to the client."""
        with _naming_failures(self._client):
            tasks = dask.persist(*rows, *wanted, optimize_graph=False)
            futures = _futures(tasks)
            self._running = futures[: len(rows)]
            found = [self._result(future) for future in futures[len(rows) :]]
            if not futures:
                found = list(dask.compute(*tasks[len(rows) :]))
            self._running = ()
        return tasks[: len(rows)], found

    def _result(self, future: Any) -> Any:
        """Wait for a result; warn if there has been no worker for half a minute."""
        idle = 0.0
        while not future.done():
            try:
                return future.result(timeout=_LOOK_SECONDS)
            except TimeoutError:  # or the task has just ended, perhaps with an error of this kind
                idle = 0.0 if _client().nthreads() else idle + _LOOK_SECONDS
            if idle == _PATIENCE_SECONDS:
                warnings.warn(_NO_WORKERS, InputWarning, stacklevel=2)
        return future.result()


def _pieces(array: da.Array) -> Sequence[Delayed]:
    """Return what the task of each group gets of an aligned array."""
    if isinstance(array, RowsOnWorkers) and array.pieces:
        return array.pieces
    pieces: list[Delayed] = array.to_delayed().ravel().tolist()
    return pieces


def _lots(items: list[Any], size: int) -> list[list[Any]]:
    """Cut a list into lists of this size; the last one may be shorter."""
    return [items[part] for part in slices(len(items), size)]


def _group_width(sizes: list[int], sample_bytes: int) -> int:
    """Return how many chunks form a group: a power of two, for subtrees of one binary tree."""
    largest = max(sizes) * sample_bytes
    fair = len(sizes) // (_GROUPS_PER_THREAD * _n_threads())
    most = min(_MAX_GROUP_BYTES // largest, fair)
    return 1 << max(most, 1).bit_length() - 1


# --- what runs on the workers -----------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A step and its arguments other than the chunk.

    Attributes
    ----------
    work : Work
    places : list
        Where a group's piece of each aligned array is in what the task gets; None if it is that.
    dtype, block_samples
        How workers store chunks.
    """

    work: Work
    places: list[int | None]
    dtype: DType
    block_samples: int | None


class _Place(NamedTuple):
    """The number of a group, its first sample, and the sizes of its chunks."""

    group: int
    start: int
    sizes: Array


class _Group(NamedTuple):
    """Chunks on a worker, and a number for each that changes if its entries change."""

    chunks: list[Rows]
    evidence: Array


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
    evidence: dict[int, Array]


def _prepare_group(place: _Place, n_features: int, *chunks: Rows) -> _Group:
    """Return the chunks of a group, converted as matrices in memory require."""
    prepared = []
    start = place.start
    for rows, n in zip(chunks, place.sizes.tolist(), strict=True):
        prepared.append(_prepare_chunk(rows, start, n, n_features))
        start += n
    return _Group(prepared, np.array([_evidence(rows) for rows in prepared]))


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
    call: _Call, place: _Place, known: Array | None, group: _Group | None, *pieces: Any
) -> tuple[Any, ...]:
    """Apply a step to each chunk of a group: the joined results per sample, and the `_Outcome`.

    The outcome stays on the worker too, because a task that picks the others costs more.
    """
    chunks: list[Rows] = [None] * len(place.sizes)
    evidence = {}
    if group is not None:
        chunks = _addressable(group.chunks)
        if known is None:
            evidence[place.group] = group.evidence
        else:
            _compare(group, place.start, known)
    aligned = []
    for piece, j in zip(pieces, call.places, strict=True):
        aligned.append(_addressable(piece if j is None else piece[j]))
    shared = _addressable(call.work.shared)
    results = []
    outcomes = []
    start = place.start
    for rows, n in zip(chunks, place.sizes.tolist(), strict=True):
        first = start - place.start
        given = [array[first : first + n] for array in aligned]
        *per_sample, part = _run_step(call, rows, range(start, start + n), given, shared)
        kinds = [(array.shape[1:], array.dtype) for array in per_sample]
        results.append(per_sample)
        outcomes.append(_Outcome(part, kinds, evidence))
        start += n
    joined = (_joined(parts, axis=0) for parts in zip(*results, strict=True))
    return *joined, _reduce_outcomes(call, outcomes)


def _run_step(
    call: _Call, rows: Rows, index: range, aligned: list[Array], shared: Facts
) -> Results:
    """Return the results of a step on a chunk."""
    work = call.work
    if not work.reads:
        with one_blas_thread():
            return work.step(index, *aligned, **shared)
    local = hold(rows, n_threads=1, dtype=call.dtype, block_samples=call.block_samples)
    return local.sweep(work.step, *aligned, reduce=work.reduce, **shared)


def _compare(group: _Group, start: int, known: Array) -> None:
    """Reject a group that was computed again and differs from its first version."""
    for rows, now, before in zip(group.chunks, group.evidence, known, strict=True):
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


def _reduce_copies(call: _Call, *outcomes: _Outcome) -> _Outcome:
    """Reduce copies of the results of other tasks, which must not be changed."""
    return _reduce_outcomes(call, copy.deepcopy(list(outcomes)))


def _reduce_outcomes(call: _Call, outcomes: list[_Outcome]) -> _Outcome:
    """Reduce the outcomes of neighbours to one, in a binary tree; it may change their results."""
    while len(outcomes) > 1:
        outcomes = [_sum(call, *pair) for pair in _lots(outcomes, 2)]
    return outcomes[0]


def _sum(call: _Call, first: _Outcome, second: _Outcome | None = None) -> _Outcome:
    if second is None:
        return first
    part = call.work.reduce(first.part, second.part)
    return _Outcome(part, first.kinds, first.evidence | second.evidence)


def _take_columns(group: _Group, indices: Array, dtype: DType, block_samples: int | None) -> Block:
    """Return samples of a group by their sorted indices within it."""
    blocks = []
    first = 0
    for rows in group.chunks:
        within = indices[(indices >= first) & (indices < first + rows.shape[0])] - first
        if within.size:
            local = hold(rows, n_threads=1, dtype=dtype, block_samples=block_samples)
            blocks.append(local.columns(within))
        first += rows.shape[0]
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
    if client is None:
        return available_threads()
    return max(1, sum(client.nthreads().values()))


def _client_id() -> str | None:
    """Return the name of the client that Dask would use now, if there is one."""
    return getattr(_client(), "id", None)


def _client() -> Any:
    """Return the client that Dask would use now, or None."""
    try:
        from distributed import get_client

        client = get_client()
    except (ImportError, ValueError):
        return None
    if client.asynchronous:
        raise ReadError(
            "the client is asynchronous, and a fit waits for its results: call it in a thread, "
            "await asyncio.to_thread(model.fit, X), or connect with Client(...) instead"
        )
    return client


def _futures(wanted: Sequence[Delayed]) -> list[Any]:
    """Return the futures of tasks on a cluster; none in a task, which must not wait for others."""
    try:
        from distributed import futures_of, get_worker

        get_worker()
    except ImportError:
        return []
    except ValueError:  # not in a task
        return list(futures_of(wanted))
    return []


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
        kind = type(problem).__name__
        advice = (
            "start it again, persist again what was persisted on it, and repeat the call, which "
            "resumes if it has a checkpoint"
        )
        if kind == "KilledWorker":
            advice = "perhaps for want of memory: use smaller chunks, or workers with more memory"
        what = f"the cluster was lost, or gave up on a task: {kind}: {problem}; {advice}"
        raise ReadError(what) from problem


def _require_client(client: str | None, problem: BaseException | None = None) -> None:
    """Raise an error if another client has earlier results, because Dask cannot combine them."""
    if client is not None and client != _client_id():
        raise ReadError(
            "the client with which the data were opened is closed, or no longer the one that Dask "
            "uses: connect to the cluster, open the data again and repeat the call, which resumes "
            "if it has a checkpoint"
        ) from problem

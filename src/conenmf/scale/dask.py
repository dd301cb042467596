"""V on a cluster: a Dask array whose chunks of samples stay on the workers.

Consecutive chunks form groups, and one task applies a step to all chunks of a group. Results per
sample stay with the group, as a Dask array; the parts are added as a binary tree over the chunks.
A group is a whole subtree, so the numbers depend neither on the grouping nor on the workers. A
worker that is lost takes its results with it; Dask computes them again from the graph, which holds
W and not V.

A task can fail in three ways, which the caller must be able to distinguish. A step raises an error:
that is raised as it is, as if there were no cluster. The graph that makes the chunks fails. Or the
cluster does.
"""

from __future__ import annotations

import copy
import uuid
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.highlevelgraph import HighLevelGraph

from ..data.aligned import check_file, save_array
from ..data.blocks import Array, Block, canonical_rows, compute_dtype, is_sparse
from ..data.local import LocalMatrix
from ..data.matrix import Checksum, DataMatrix
from ..data.memory import hold
from ..data.resources import available_memory, available_threads
from ..data.steps import Reduce, Step, Work
from ..data.threads import one_blas_thread
from ..data.validate import check_kind
from ..errors import (
    CheckpointError,
    ClusterError,
    ConeNMFError,
    DataChangedError,
    DataError,
    DataTypeError,
    InputWarning,
    ReadError,
)

__all__ = ["ClusterMatrix", "StepError", "Traffic", "checked_array"]

_FAN_IN_PARTS = 8  # parts that one task of the tree adds up: a power of two
_MAX_GROUP_BYTES = 32 << 20
_GROUPS_PER_THREAD = 4  # at least, so that no worker waits long for the last one
_ROUNDS_TO_CHECK = 64  # passes in which every chunk is compared with the first pass once
_PART_BYTES = 1 << 18  # of which the evidence is computed at a time: they stay in the cache
_GOLDEN_RATIO = 0.6180339887498949  # its multiples, modulo 1, are spread evenly
_CLUSTER_LIBRARIES = ("distributed", "asyncio", "concurrent", "tornado")


class Traffic(NamedTuple):
    """What was sent between the client and the workers so far.

    Attributes
    ----------
    rounds : int
        How often the client waited for the workers.
    tasks : int
        Groups of chunks to which steps were applied, one message to a worker each.
    bytes_out : int
        What is shared with all chunks (W, its Gram matrix), counted once a round.
    bytes_in : int
        The sums that came back.
    """

    rounds: int = 0
    tasks: int = 0
    bytes_out: int = 0
    bytes_in: int = 0


def checked_array(array: Any) -> da.Array:
    """Return a Dask array of numbers whose chunks have known sizes; refuse anything else."""
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
        Most samples in a block, into which a worker cuts its chunk.
    **options
        As for `DataMatrix`.

    Attributes
    ----------
    traffic : Traffic
    """

    candidates = 32
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
        rows = rows[:, :]
        self.traffic = Traffic()
        self._client = _client_id()
        self._evidence: dict[int, float] = {}  # of each chunk, by the sample that it begins with
        self._n_sweeps = 0
        self._block_samples = block_samples
        self._sizes: tuple[int, ...] = tuple(int(n) for n in rows.chunks[0] if n)
        self._starts = np.cumsum([0, *self._sizes]).tolist()
        threads, width = _n_threads(), 1
        largest = max(self._sizes, default=0) * F * rows.dtype.itemsize
        while (
            2 * width * largest <= _MAX_GROUP_BYTES
            and len(self._sizes) >= 2 * width * _GROUPS_PER_THREAD * threads
        ):
            width *= 2
        self._groups = [
            range(i, min(i + width, len(self._sizes))) for i in range(0, len(self._sizes), width)
        ]
        self._group_sizes = tuple(sum(self._sizes[i] for i in group) for group in self._groups)
        (rows,) = dask.optimize(rows)
        graph = dict(rows.__dask_graph__())
        keys = [(rows.name, i, 0) for i, n in enumerate(rows.chunks[0]) if n]
        name = f"conenmf-group-{uuid.uuid4().hex}"
        for g, group in enumerate(self._groups):
            chunks, (start, sizes) = [keys[i] for i in group], self._place(group)
            graph[name, g] = (_prepare_group, chunks, start, sizes, F)
        self._chunks = _Keys(name, len(self._groups), graph)
        with _naming_failures(self._client, opening=True):
            self._persisted = _fits(rows.nbytes) if persist is None else persist
            if self._persisted:
                self._chunks = self._chunks.persisted()

    def _place(self, group: range) -> tuple[int, list[int]]:
        """The first sample of a group, and the sizes of its chunks."""
        return self._starts[group.start], [self._sizes[i] for i in group]

    def turned(self) -> ClusterMatrix:
        """Return the same data with the features as samples; the data move between workers."""
        name = f"conenmf-turned-{uuid.uuid4().hex}"
        keys = enumerate(self._chunks.keys())
        graph = self._chunks.graph | {(name, 0, g): (_transpose_group, key) for g, key in keys}
        V = da.Array(graph, name, ((self.shape[0],), self._group_sizes), dtype=self.dtype)
        options = {"block_samples": self._block_samples, **self._turned_options()}
        return ClusterMatrix(V.rechunk({0: "auto", 1: -1}), self._persisted, **options)

    def align(self, array: Any) -> da.Array:
        """Cut an array like the groups."""
        if isinstance(array, da.Array):
            whole = array.chunks[0] == self._group_sizes and all(
                len(cut) == 1 for cut in array.chunks[1:]
            )
            others = dict.fromkeys(range(1, array.ndim), -1)
            return array if whole else array.rechunk({0: self._group_sizes, **others})
        array = np.asarray(array)
        return da.from_array(array, chunks=(self._group_sizes, *array.shape[1:]), name=False)

    def own_threads(self) -> AbstractContextManager[None]:
        """Do nothing: the workers compute."""
        return nullcontext()

    def _sweep(self, work: Work) -> tuple[Any, ...]:
        self._n_sweeps += 1
        return self._run(_sweep_chunk, work)[0]

    def _visit(self, work: Work) -> tuple[Any, ...]:
        results, columns_read = self._run(_visit_chunk, work)
        self._count(columns_read / self.shape[1])
        return results

    def _map(self, work: Work) -> tuple[Any, ...]:
        return self._run(_map_chunk, work, reads=False)[0]

    def _run(
        self, task: Callable[..., Any], work: Work, *, reads: bool = True
    ) -> tuple[tuple[Any, ...], float]:
        """Give every group to a task, reduce the parts; also return how many columns were read."""
        name = f"conenmf-{getattr(work.step, '__name__', 'step')}-{uuid.uuid4().hex}"
        call = f"{name}-call"
        graph: dict[Any, Any] = {call: _Call(work.step, work.reduce, work.shared, self._options())}
        rows: list[Any] = [self._place(group)[1] for group in self._groups]
        if reads or self._persisted:  # what is new should be where the chunk is
            rows = self._chunks.keys()
            graph |= self._chunks.graph
        inputs = [self._inputs(array, graph) for array in work.aligned]
        for g, group in enumerate(self._groups):
            aligned, (start, sizes) = [keys[g] for keys in inputs], self._place(group)
            known: list[float | None] = [None] * len(group)
            if task is _sweep_chunk:
                known = [self._to_compare(i, everything=work.verify) for i in group]
            graph[f"{name}-task", g] = (
                _run_group,
                task,
                call,
                rows[g],
                start,
                sizes,
                known,
                *aligned,
            )
            graph[f"{name}-rows", g] = (_item, (f"{name}-task", g), 0)  # stay where they are
            graph[f"{name}-part", g] = (_item, (f"{name}-task", g), 1)  # travel
        parts: list[Any] = [(f"{name}-part", i) for i in range(len(rows))]
        level = 0
        while len(parts) > 1 or level == 0:
            groups = [parts[i : i + _FAN_IN_PARTS] for i in range(0, len(parts), _FAN_IN_PARTS)]
            parts = [(f"{name}-sum-{level}", i) for i in range(len(groups))]
            tasks = [(_reduce_outcomes, call, group) for group in groups]
            graph |= dict(zip(parts, tasks, strict=True))
            level += 1
        with _naming_failures(self._client, opening=not self._evidence):
            results, sums = dask.persist(
                _Keys(f"{name}-rows", len(rows), graph),
                _Keys(f"{name}-sum-{level - 1}", 1, graph),
                optimize_graph=False,
            )
            outcome: _Outcome = sums.first()
        self._evidence |= outcome.evidence
        self.traffic = Traffic(
            self.traffic.rounds + 1,
            self.traffic.tasks + len(rows),
            self.traffic.bytes_out + _bytes(work.shared),
            self.traffic.bytes_in + _bytes(outcome.part),
        )
        return (*self._outputs(results, outcome.kinds), outcome.part), outcome.columns_read

    def _to_compare(self, i: int, *, everything: bool) -> float | None:
        """The evidence of a chunk if it is to be compared now; NaN if there is none yet."""
        turns = min(_ROUNDS_TO_CHECK, len(self._sizes))
        known: float = self._evidence.get(self._starts[i], np.nan)
        is_due = everything or np.isnan(known) or (i - self._n_sweeps) % turns == 0
        return known if is_due else None

    def _options(self) -> dict[str, Any]:
        """How workers hold chunks."""
        return {"dtype": self.dtype, "clip": self.clip, "block_samples": self._block_samples}

    def _inputs(self, array: da.Array, graph: dict[Any, Any]) -> list[Any]:
        """What the task of each group is given of an aligned array, whose graph is added."""
        results, j = getattr(array, "_conenmf_results", (None, 0))
        if results is None:
            graph |= dict(array.__dask_graph__())
            return [(array.name, g, *(0,) * (array.ndim - 1)) for g in range(len(self._groups))]
        graph |= results.graph
        return [(_item, key, j) for key in results.keys()]  # noqa: SIM118 - not a dict

    def _outputs(self, results: _Keys, kinds: list[Any]) -> Iterator[da.Array]:
        """The Dask arrays of the results per sample."""
        for j, (sides, dtype) in enumerate(kinds):
            name = f"{results.name}-{j}"
            zeros = (0,) * len(sides)
            layer = {(name, i, *zeros): (_item, key, j) for i, key in enumerate(results.keys())}
            layers = {name: layer, results.name: results.graph}
            graph = HighLevelGraph(layers, {name: {results.name}, results.name: set()})
            sizes = (self._group_sizes, *((side,) for side in sides))
            array = da.Array(graph, name, sizes, dtype=dtype)
            array._conenmf_results = (results, j)
            yield array

    def _gather(self, indices: Array) -> Block:
        """Samples, brought to the client."""
        name = f"conenmf-gather-{uuid.uuid4().hex}"
        order = np.argsort(indices, kind="stable")
        firsts = [self._starts[group.start] for group in self._groups]
        owner = np.searchsorted(firsts, indices[order], side="right") - 1
        graph: dict[Any, Any] = dict(self._chunks.graph)
        keys = self._chunks.keys()
        groups = np.unique(owner)
        for place, g in enumerate(groups.tolist()):
            within = indices[order][owner == g] - firsts[g]
            graph[name, place] = (_take_columns, keys[g], within, self._options())
        with _naming_failures(self._client):
            blocks = dask.compute(_Keys(name, groups.size, graph), optimize_graph=False)[0]
        self.traffic = self.traffic._replace(
            rounds=self.traffic.rounds + 1,
            tasks=self.traffic.tasks + groups.size,
            bytes_in=self.traffic.bytes_in + _bytes(list(blocks)),
        )
        back = np.empty(indices.size, dtype=np.intp)
        back[order] = np.arange(indices.size)
        if not blocks:
            return np.empty((self.shape[0], 0), self.dtype)
        samples: Block = _joined(blocks, axis=1)[:, back]
        return samples

    def save_aligned(self, aligned: da.Array, folder: Path, name: str) -> dict[str, Checksum]:
        """Let every worker write its rows, one ``.npy`` file for each chunk."""
        (checksums,) = self.map(
            _save_rows, aligned, reduce=_join_checksums, folder=str(folder), name=name
        )
        return dict(checksums)

    def load_aligned(self, folder: Path, name: str, checksums: Mapping[str, Checksum]) -> da.Array:
        """Let every worker read its rows: if lost, they come from the file again."""
        mine = {file: checksums[file] for file in checksums if file.startswith(f"{name}-")}
        return self.map(_load_rows, folder=str(folder), name=name, checksums=mine)[0]


# --- what runs on the workers -----------------------------------------------------------------


def _item(results: tuple[Any, ...], j: int) -> Any:
    return results[j]


def _bytes(message: Any) -> int:
    """About how many bytes a message has."""
    if isinstance(message, np.ndarray):
        return int(message.nbytes)
    if is_sparse(message):
        return int(message.data.nbytes + message.indices.nbytes + message.indptr.nbytes)
    if isinstance(message, dict):
        return sum(_bytes(value) for value in message.values())
    if isinstance(message, tuple | list):
        return sum(_bytes(value) for value in message)
    return 8


class _Call(NamedTuple):
    """A step and all that it needs besides its chunk; `options` are those of the chunk's matrix."""

    step: Step
    reduce: Reduce
    shared: dict[str, Any]
    options: dict[str, Any]


class _Outcome(NamedTuple):
    """What a task sends towards the client.

    Attributes
    ----------
    part
        What its step returned to be reduced.
    columns_read : float
    kinds : list of (shape of a row, dtype)
        Of the per-sample results, which stay on the worker.
    evidence : dict of float
        A number that represents the entries of a chunk, by the sample that it begins with, if it
        was not known.
    """

    part: Any
    columns_read: float
    kinds: list[tuple[tuple[int, ...], np.dtype[Any]]]
    evidence: dict[int, float]


_Result = tuple[tuple[Array, ...], _Outcome]


class StepError(Exception):
    """A step raised an error on a worker; `problem` is that error, to be raised by the client."""

    @property
    def problem(self) -> Exception:
        """The error of the step."""
        problem: Exception = self.args[0]
        return problem


@contextmanager
def _running_step() -> Iterator[None]:
    """Distinguish what a step raises from all else that can fail in a task."""
    try:
        yield
    except ConeNMFError:
        raise
    except Exception as problem:
        raise StepError(problem) from problem


def _prepare_chunk(rows: Any, start: int, n_samples: int, n_features: int) -> Any:
    """Return a chunk as matrices in memory need it: an ndarray or canonical CSR.

    Refuse one that is not what the Dask array declares.
    """
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
    return _addressable(rows)


def _prepare_group(chunks: list[Any], start: int, sizes: list[int], n_features: int) -> list[Any]:
    """Return the chunks of a group, each prepared."""
    starts = np.cumsum([start, *sizes]).tolist()
    return [
        _prepare_chunk(rows, first, n, n_features)
        for rows, first, n in zip(chunks, starts, sizes, strict=False)
    ]


def _transpose_group(chunks: list[Any]) -> Any:
    """Return the chunks of a group as one, with one row per feature."""
    return _joined(chunks, axis=0).T


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if len(parts) == 1:
        return parts[0]
    if any(is_sparse(part) for part in parts):
        return (sp.hstack if axis else sp.vstack)(parts, format="csc" if axis else "csr")
    return np.concatenate(parts, axis=axis)


def _run_group(
    task: Callable[..., _Result],
    call: _Call,
    chunks: list[Any],
    start: int,
    sizes: list[int],
    known: list[float | None],
    *aligned: Any,
) -> _Result:
    """Apply a step to each chunk of a group: join the results per sample, add the parts."""
    results, outcomes, first = [], [], 0
    for rows, n, evidence in zip(chunks, sizes, known, strict=True):
        mine = [array[first : first + n] for array in aligned]
        per_sample, outcome = task(call, rows, start + first, evidence, *mine)
        results.append(per_sample)
        outcomes.append(outcome)
        first += n
    joined = tuple(_joined(parts, axis=0) for parts in zip(*results, strict=True))
    return joined, _reduce_outcomes(call, outcomes)


def _sweep_chunk(call: _Call, rows: Any, start: int, known: float | None, *aligned: Any) -> _Result:
    """Apply a step to the blocks of a chunk, which begins with sample `start`.

    Compare the chunk with its `known` evidence, unless that is None; NaN is for unknown.
    """
    evidence: dict[int, float] = {}
    if known is not None:
        now = _evidence(rows)
        if np.isnan(known):
            evidence = {start: now}
        elif not np.isclose(now, known, rtol=_rounding(rows.dtype), atol=0):
            raise DataChangedError(
                f"{_place(start, rows.shape[0])}: they are not what they were in the first pass, "
                "since the chunk was computed again, with another outcome: keep it with "
                "persist=True, or make its graph give the same every time"
            )
    local = _hold_chunk(rows, call.options, start)
    with _running_step():
        results = local.sweep(
            call.step, *_all(aligned), reduce=call.reduce, **_addressable(call.shared)
        )
    return _result(results, rows.shape[0], evidence)


def _visit_chunk(call: _Call, rows: Any, start: int, known: None, *aligned: Any) -> _Result:
    """Let a step read samples of a chunk."""
    local = _hold_chunk(rows, call.options, start)
    with _running_step():
        results = local.visit(
            call.step, *_all(aligned), reduce=call.reduce, **_addressable(call.shared)
        )
    return _result(results, local.passes * rows.shape[0])


def _map_chunk(call: _Call, rows: Any, start: int, known: None, *aligned: Any) -> _Result:
    """Apply a step to the indices of a chunk, of which only the number of samples matters."""
    n_samples = rows if isinstance(rows, int) else rows.shape[0]
    with one_blas_thread(), _running_step():
        index = range(start, start + n_samples)
        return _result(call.step(index, *_all(aligned), **_addressable(call.shared)), 0.0)


def _reduce_outcomes(call: _Call, outcomes: list[_Outcome]) -> _Outcome:
    """Reduce the outcomes of neighbours to one, as a binary tree; parts are not altered."""
    is_own = False
    while len(outcomes) > 1:
        pairs = [outcomes[i : i + 2] for i in range(0, len(outcomes), 2)]
        outcomes = [_added(call, *pair, is_own=is_own) for pair in pairs]
        is_own = True
    return outcomes[0]


def _added(
    call: _Call, first: _Outcome, second: _Outcome | None = None, *, is_own: bool
) -> _Outcome:
    if second is None:
        return first
    part = first.part if is_own else copy.deepcopy(first.part)
    with _running_step():
        part = call.reduce(part, second.part)
    columns_read = first.columns_read + second.columns_read
    return _Outcome(part, columns_read, first.kinds, first.evidence | second.evidence)


def _take_columns(chunks: list[Any], indices: Array, options: dict[str, Any]) -> Block:
    """Return samples of a group by their indices within it, which are sorted."""
    ends = np.cumsum([rows.shape[0] for rows in chunks])
    owner = np.searchsorted(ends, indices, side="right")
    blocks = []
    for i in np.unique(owner).tolist():
        within = indices[owner == i] - (ends[i] - chunks[i].shape[0])
        blocks.append(_hold_chunk(chunks[i], options, 0).columns(within))
    block: Block = _joined(blocks, axis=1)
    return block


def _save_rows(index: range, rows: Array, *, folder: str, name: str) -> tuple[dict[str, Checksum]]:
    """Step of a map: write these rows of an aligned array; return the checksum of the file."""
    path = _rows_file(index, folder, name)
    return ({path.name: save_array(path, rows)},)


def _join_checksums(total: dict[str, Checksum], part: dict[str, Checksum]) -> dict[str, Checksum]:
    """Put the checksums of two steps together."""
    return total | part


def _load_rows(
    index: range, *, folder: str, name: str, checksums: dict[str, Checksum]
) -> tuple[Array, None]:
    """Step of a map: read what `_save_rows` wrote."""
    path = _rows_file(index, folder, name)
    if path.name not in checksums or not path.exists():
        raise CheckpointError(
            f"{path} is missing: the chunks have other sizes now, or this worker does not see the "
            "folder"
        )
    check_file(path, checksums[path.name])
    rows = np.load(path, allow_pickle=False)
    if len(rows) != len(index):
        raise CheckpointError(
            f"{path} does not have {len(index)} rows: the chunks have other sizes now"
        )
    return rows, None


def _rows_file(index: range, folder: str, name: str) -> Path:
    return Path(folder) / f"{name}-{index.start}.npy"


def _hold_chunk(rows: Any, options: dict[str, Any], first: int) -> LocalMatrix:
    return hold(_addressable(rows), n_threads=1, first=first, **options)


def _evidence(rows: Any) -> float:
    """A sum of all entries with weights of their samples and features.

    Not a checksum: computed by another machine, a chunk may differ in the last bits of its entries.
    """
    of_samples, of_features = (0.5 + np.arange(n) * _GOLDEN_RATIO % 1 for n in rows.shape)
    size = 1 + _PART_BYTES // (8 * rows.shape[1])
    total = 0.0
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, rows.shape[0], size):
            sums = rows[first : first + size] @ of_features
            total += float(sums @ of_samples[first : first + size])
    return total


def _rounding(dtype: np.dtype[Any]) -> float:
    """By how much, relatively, the evidence of the same chunk may differ."""
    eps = np.finfo(dtype).eps if dtype.kind == "f" else 0.0
    return max(1e-9, 8 * float(eps))


def _place(start: int, n_samples: int) -> str:
    return f"samples {start} to {start + n_samples - 1} of the Dask array"


def _result(
    results: tuple[Any, ...], columns_read: float, evidence: dict[int, float] | None = None
) -> _Result:
    *per_sample, part = results
    kinds = [(rows.shape[1:], rows.dtype) for rows in per_sample]
    return tuple(per_sample), _Outcome(part, columns_read, kinds, evidence or {})


def _all(arrays: tuple[Any, ...]) -> list[Any]:
    return [_addressable(array) for array in arrays]


def _addressable(array: Any) -> Any:
    """Arrays received over the network may be misaligned in memory, which changes bits of sums."""
    if isinstance(array, dict):
        return {name: _addressable(value) for name, value in array.items()}
    if isinstance(array, list):
        return [_addressable(value) for value in array]
    return np.require(array, requirements="A") if isinstance(array, np.ndarray) else array


# --- Dask's side --------------------------------------------------------------------------------


class _Keys:
    """A collection as Dask defines it: the keys (name, 0), (name, 1), ... of a graph."""

    def __init__(self, name: str, count: int, graph: dict[Any, Any]) -> None:
        self.name = name
        self.count = count
        self.graph = graph

    def keys(self) -> list[Any]:
        """All keys, in order."""
        return [(self.name, i) for i in range(self.count)]

    def first(self) -> Any:
        """The value of the first key, once it is computed."""
        value = self.graph[self.name, 0]
        return value.result() if hasattr(value, "result") else value

    def persisted(self) -> _Keys:
        """The same keys, computed, with values that stay where they are."""
        keys: _Keys
        (keys,) = dask.persist(self, optimize_graph=False)
        return keys

    def __dask_graph__(self) -> dict[Any, Any]:
        return self.graph

    def __dask_keys__(self) -> list[Any]:
        return self.keys()

    def __dask_postcompute__(self) -> tuple[Any, tuple[Any, ...]]:
        return list, ()

    def __dask_postpersist__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._rebuild, ()

    def _rebuild(self, graph: Any, *, rename: dict[str, str] | None = None) -> _Keys:
        return _Keys(self.name, self.count, dict(graph))

    __dask_scheduler__ = staticmethod(dask.threaded.get)


def _fits(size: int) -> bool:
    """Whether the data take less than half of the memory of the workers."""
    client = _client()
    if client is None:
        return size < available_memory() // 2
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return size < sum(int(worker["memory_limit"]) for worker in workers) // 2


def _n_threads() -> int:
    """How many threads the workers have."""
    client = _client()
    return available_threads() if client is None else max(1, sum(client.nthreads().values()))


def _client_id() -> str | None:
    """The name of the client that Dask would use now, if there is one."""
    client = _client()
    return None if client is None else str(client.id)


def _client() -> Any:
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


@contextmanager
def _naming_failures(client: str | None, *, opening: bool = False) -> Iterator[None]:
    """Raise a named error if a client, a scheduler, a worker or a chunk is lost.

    `client` has what was computed earlier, if anything. While V is opened only its own chunks are
    computed, so every other failure is theirs.
    """
    _require_client(client)
    try:
        yield
    except ConeNMFError:
        raise
    except StepError as failed:
        error = failed.problem  # whose own cause stays: `failed` would lead back to it
        raise error from error.__cause__
    except (Exception, CancelledError) as problem:
        _require_client(client, problem)
        cause = f"{type(problem).__name__}: {problem}"
        library = type(problem).__module__.partition(".")[0]
        if library in _CLUSTER_LIBRARIES or isinstance(problem, TimeoutError):
            raise ClusterError(
                f"the cluster was lost, or gave up on a task: {cause}; "
                "start it again and repeat the call, which resumes if it has a checkpoint"
            ) from problem
        if opening or isinstance(problem, OSError):
            raise ReadError(
                f"a chunk of the Dask array could not be computed: {cause}"
            ) from problem
        raise ClusterError(
            f"a task failed: {cause}; if the graph of the Dask array is not the reason, look into "
            "the logs of the workers"
        ) from problem


def _require_client(client: str | None, problem: BaseException | None = None) -> None:
    """Refuse to compute with what another client has, which Dask cannot."""
    if client is not None and client != _client_id():
        raise ClusterError(
            "the client with which the data were opened is closed, or no longer the one that Dask "
            "uses: connect to the cluster, open the data again and repeat the call, which resumes "
            "if it has a checkpoint"
        ) from problem

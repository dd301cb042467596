"""V on a cluster: a Dask array whose chunks of samples stay on the workers.

One task applies a step to one chunk (`chunks`). Results per sample stay with the chunk, as a Dask
array; the parts are reduced as a tree in an order that depends only on the chunks, so results have
the same bits for any number of workers. A worker that is lost takes its results with it; Dask
computes them again from the graph, which holds W and not V, and nothing else changes.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.highlevelgraph import HighLevelGraph

from ..errors import ShapeError
from .blocks import Array, Block, compute_dtype, is_sparse
from .chunks import (
    Call,
    Outcome,
    join_checksums,
    load_rows,
    map_chunk,
    prepare_chunk,
    reduce_outcomes,
    save_rows,
    sweep_chunk,
    take_columns,
    transpose_chunk,
    visit_chunk,
)
from .matrix import Checksum, DataMatrix
from .scheduler import Keys, client_id, fits, naming_failures
from .steps import Work
from .validate import check_kind

__all__ = ["ClusterMatrix", "RechunkWarning", "Traffic", "checked_array"]

_FAN_IN_PARTS = 8  # parts that one task of the tree adds up
_ROUNDS_TO_CHECK = 64  # passes in which every chunk is compared with the first pass once


class RechunkWarning(UserWarning):
    """A Dask array had to be cut again so that every chunk has whole samples."""


class Traffic(NamedTuple):
    """What was sent between the client and the workers so far.

    Attributes
    ----------
    rounds : int
        How often the client waited for the workers.
    tasks : int
        Steps applied to chunks, one message to a worker each.
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
                RechunkWarning,
                stacklevel=4,
            )
            rows = rows.rechunk({0: "auto", 1: F})
        rows = rows[:, :]
        self.traffic = Traffic()
        self._client = client_id()
        self._evidence: dict[int, float] = {}  # of each chunk, by the sample that it begins with
        self._n_sweeps = 0
        self._block_samples = block_samples
        self._sizes: tuple[int, ...] = tuple(int(n) for n in rows.chunks[0] if n)
        self._starts = np.cumsum([0, *self._sizes]).tolist()
        (rows,) = dask.optimize(rows)
        graph = dict(rows.__dask_graph__())
        keys = [(rows.name, i, 0) for i, n in enumerate(rows.chunks[0]) if n]
        name = f"conenmf-chunk-{uuid.uuid4().hex}"
        for i, key in enumerate(keys):
            graph[name, i] = (prepare_chunk, key, self._starts[i], self._sizes[i], F)
        self._chunks = Keys(name, len(keys), graph)
        with naming_failures(self._client, opening=True):
            self._persisted = fits(rows.nbytes) if persist is None else persist
            if self._persisted:
                self._chunks = self._chunks.persisted()

    def turned(self) -> ClusterMatrix:
        """Return the same data with the features as samples; the data move between workers."""
        name = f"conenmf-turned-{uuid.uuid4().hex}"
        keys = enumerate(self._chunks.keys())
        graph = self._chunks.graph | {(name, 0, i): (transpose_chunk, key) for i, key in keys}
        V = da.Array(graph, name, ((self.shape[0],), self._sizes), dtype=self.dtype)
        options = {"block_samples": self._block_samples, **self._turned_options()}
        return ClusterMatrix(V.rechunk({0: "auto", 1: -1}), self._persisted, **options)

    def align(self, array: Any) -> da.Array:
        """Cut an array like the chunks."""
        if isinstance(array, da.Array):
            whole = array.chunks[0] == self._sizes and all(
                len(cut) == 1 for cut in array.chunks[1:]
            )
            others = dict.fromkeys(range(1, array.ndim), -1)
            return array if whole else array.rechunk({0: self._sizes, **others})
        array = np.asarray(array)
        return da.from_array(array, chunks=(self._sizes, *array.shape[1:]), name=False)

    def own_threads(self) -> AbstractContextManager[None]:
        """Do nothing: the workers compute."""
        return nullcontext()

    def _sweep(self, work: Work) -> tuple[Any, ...]:
        self._n_sweeps += 1
        return self._run(sweep_chunk, work)[0]

    def _visit(self, work: Work) -> tuple[Any, ...]:
        results, columns_read = self._run(visit_chunk, work)
        self._count(columns_read / self.shape[1])
        return results

    def _map(self, work: Work) -> tuple[Any, ...]:
        return self._run(map_chunk, work, reads=False)[0]

    def _run(
        self, task: Callable[..., Any], work: Work, *, reads: bool = True
    ) -> tuple[tuple[Any, ...], float]:
        """Give every chunk to a task, reduce the parts; also return how many columns were read."""
        name = f"conenmf-{getattr(work.step, '__name__', 'step')}-{uuid.uuid4().hex}"
        call = f"{name}-call"
        graph: dict[Any, Any] = {call: Call(work.step, work.reduce, work.shared, self._options())}
        rows: list[Any] = list(self._sizes)
        if reads or self._persisted:  # what is new should be where the chunk is
            rows = self._chunks.keys()
            graph |= self._chunks.graph
        inputs = [self._inputs(array, graph) for array in work.aligned]
        for i, start in enumerate(self._starts[:-1]):
            aligned = [keys[i] for keys in inputs]
            known = self._to_compare(i, everything=work.verify) if task is sweep_chunk else None
            graph[f"{name}-task", i] = (task, call, rows[i], start, known, *aligned)
            graph[f"{name}-rows", i] = (_item, (f"{name}-task", i), 0)  # stay where they are
            graph[f"{name}-part", i] = (_item, (f"{name}-task", i), 1)  # travel
        parts: list[Any] = [(f"{name}-part", i) for i in range(len(rows))]
        level = 0
        while len(parts) > 1 or level == 0:
            groups = [parts[i : i + _FAN_IN_PARTS] for i in range(0, len(parts), _FAN_IN_PARTS)]
            parts = [(f"{name}-sum-{level}", i) for i in range(len(groups))]
            tasks = [(reduce_outcomes, call, group) for group in groups]
            graph |= dict(zip(parts, tasks, strict=True))
            level += 1
        with naming_failures(self._client, opening=not self._evidence):
            results, sums = dask.persist(
                Keys(f"{name}-rows", len(rows), graph),
                Keys(f"{name}-sum-{level - 1}", 1, graph),
                optimize_graph=False,
            )
            outcome: Outcome = sums.first()
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
        known = self._evidence.get(self._starts[i], np.nan)
        is_due = everything or np.isnan(known) or (i - self._n_sweeps) % turns == 0
        return known if is_due else None

    def _options(self) -> dict[str, Any]:
        """How workers hold chunks."""
        return {"dtype": self.dtype, "clip": self.clip, "block_samples": self._block_samples}

    def _inputs(self, array: da.Array, graph: dict[Any, Any]) -> list[Any]:
        """What the task of each chunk is given of an aligned array, whose graph is added."""
        results, j = getattr(array, "_conenmf_results", (None, 0))
        if results is None:
            graph |= dict(array.__dask_graph__())
            return [(array.name, i, *(0,) * (array.ndim - 1)) for i in range(len(self._sizes))]
        graph |= results.graph
        return [(_item, key, j) for key in results.keys()]  # noqa: SIM118 - not a dict

    def _outputs(self, results: Keys, kinds: list[Any]) -> Iterator[da.Array]:
        """The Dask arrays of the results per sample."""
        for j, (sides, dtype) in enumerate(kinds):
            name = f"{results.name}-{j}"
            zeros = (0,) * len(sides)
            layer = {(name, i, *zeros): (_item, key, j) for i, key in enumerate(results.keys())}
            layers = {name: layer, results.name: results.graph}
            graph = HighLevelGraph(layers, {name: {results.name}, results.name: set()})
            array = da.Array(graph, name, (self._sizes, *((side,) for side in sides)), dtype=dtype)
            array._conenmf_results = (results, j)
            yield array

    def _gather(self, indices: Array) -> Block:
        """Samples, brought to the client."""
        name = f"conenmf-gather-{uuid.uuid4().hex}"
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        graph: dict[Any, Any] = dict(self._chunks.graph)
        keys = self._chunks.keys()
        order = np.argsort(owner, kind="stable")
        chunks = np.unique(owner)
        for place, i in enumerate(chunks.tolist()):
            within = indices[order][owner[order] == i] - self._starts[i]
            graph[name, place] = (take_columns, keys[i], within, self._options())
        with naming_failures(self._client):
            blocks = dask.compute(Keys(name, chunks.size, graph), optimize_graph=False)[0]
        self.traffic = self.traffic._replace(
            rounds=self.traffic.rounds + 1,
            tasks=self.traffic.tasks + chunks.size,
            bytes_in=self.traffic.bytes_in + _bytes(list(blocks)),
        )
        back = np.empty(indices.size, dtype=np.intp)
        back[order] = np.arange(indices.size)
        if not blocks:
            return np.empty((self.shape[0], 0), self.dtype)
        sparse = any(is_sparse(block) for block in blocks)
        block: Block = sp.hstack(blocks, format="csc") if sparse else np.hstack(blocks)
        samples: Block = block[:, back]
        return samples

    def save_aligned(self, aligned: da.Array, folder: Path, name: str) -> dict[str, Checksum]:
        """Let every worker write its rows, one ``.npy`` file for each chunk."""
        (checksums,) = self.map(
            save_rows, aligned, reduce=join_checksums, folder=str(folder), name=name
        )
        return dict(checksums)

    def load_aligned(self, folder: Path, name: str, checksums: Mapping[str, Checksum]) -> da.Array:
        """Let every worker read its rows: if lost, they come from the file again."""
        mine = {file: checksums[file] for file in checksums if file.startswith(f"{name}-")}
        return self.map(load_rows, folder=str(folder), name=name, checksums=mine)[0]


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

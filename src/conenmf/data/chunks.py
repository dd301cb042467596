"""What runs on the workers of a cluster: one task applies a step to one chunk of samples.

A chunk is a small matrix in memory, and the step is applied by the very method (`sweep`, `visit`)
that would be used without a cluster. Nothing here knows Dask.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import CheckpointError, MaskedDataError
from .aligned import check_file, save_array
from .blocks import Array, Block, canonical_rows
from .local import LocalMatrix
from .matrix import Checksum, Reduce, Step
from .memory import hold
from .threads import one_blas_thread

__all__ = [
    "Call",
    "Outcome",
    "join_checksums",
    "load_rows",
    "map_chunk",
    "prepare_chunk",
    "reduce_outcomes",
    "save_rows",
    "sweep_chunk",
    "take_columns",
    "transpose_chunk",
    "visit_chunk",
]


class Call(NamedTuple):
    """A step and all that it needs besides its chunk; `options` are those of the chunk's matrix."""

    step: Step
    reduce: Reduce
    shared: dict[str, Any]
    options: dict[str, Any]


class Outcome(NamedTuple):
    """What a task sends towards the client.

    Attributes
    ----------
    part
        What its step returned to be reduced.
    columns_read : float
    kinds : list of (shape of a row, dtype)
        Of the per-sample results, which stay on the worker.
    """

    part: Any
    columns_read: float
    kinds: list[tuple[tuple[int, ...], np.dtype[Any]]]


Result = tuple[tuple[Array, ...], Outcome]


def prepare_chunk(rows: Any) -> Any:
    """Return a chunk as matrices in memory need it: an ndarray or canonical CSR."""
    if np.ma.is_masked(rows):
        raise MaskedDataError(
            "some entries are masked: remove such samples or features, or fill them, "
            "da.ma.filled(X, 0)"
        )
    return _addressable(canonical_rows(np.ma.getdata(rows) if np.ma.isMA(rows) else rows))


def transpose_chunk(rows: Any) -> Any:
    """Return a chunk with one row per feature."""
    return rows.T


def sweep_chunk(call: Call, rows: Any, start: int, *aligned: Any) -> Result:
    """Apply a step to the blocks of a chunk, which begins with sample `start`."""
    local = _hold_chunk(rows, call.options, start)
    results = local.sweep(
        call.step, *_all(aligned), reduce=call.reduce, **_addressable(call.shared)
    )
    return _result(results, rows.shape[0])


def visit_chunk(call: Call, rows: Any, start: int, *aligned: Any) -> Result:
    """Let a step read samples of a chunk."""
    local = _hold_chunk(rows, call.options, start)
    results = local.visit(
        call.step, *_all(aligned), reduce=call.reduce, **_addressable(call.shared)
    )
    return _result(results, local.passes * rows.shape[0])


def map_chunk(call: Call, rows: Any, start: int, *aligned: Any) -> Result:
    """Apply a step to the indices of a chunk, of which only the number of samples matters."""
    n_samples = rows if isinstance(rows, int) else rows.shape[0]
    with one_blas_thread():
        index = range(start, start + n_samples)
        return _result(call.step(index, *_all(aligned), **_addressable(call.shared)), 0.0)


def reduce_outcomes(call: Call, outcomes: list[Outcome]) -> Outcome:
    """Reduce the outcomes of several tasks to one, in their order."""
    first, *others = outcomes
    part = copy.deepcopy(first.part) if others else first.part
    columns_read = first.columns_read
    for outcome in others:
        part = call.reduce(part, outcome.part)
        columns_read += outcome.columns_read
    return Outcome(part, columns_read, first.kinds)


def take_columns(rows: Any, indices: Array, options: dict[str, Any]) -> Block:
    """Return samples of a chunk by their indices within it."""
    return _hold_chunk(rows, options, 0).columns(indices)


def save_rows(index: range, rows: Array, *, folder: str, name: str) -> tuple[dict[str, Checksum]]:
    """Step of a map: write these rows of an aligned array; return the checksum of the file."""
    path = _rows_file(index, folder, name)
    return ({path.name: save_array(path, rows)},)


def join_checksums(total: dict[str, Checksum], part: dict[str, Checksum]) -> dict[str, Checksum]:
    """Put the checksums of two steps together."""
    return total | part


def load_rows(
    index: range, *, folder: str, name: str, checksums: dict[str, Checksum]
) -> tuple[Array, None]:
    """Step of a map: read what `save_rows` wrote."""
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


def _result(results: tuple[Any, ...], columns_read: float) -> Result:
    *per_sample, part = results
    kinds = [(rows.shape[1:], rows.dtype) for rows in per_sample]
    return tuple(per_sample), Outcome(part, columns_read, kinds)


def _all(arrays: tuple[Any, ...]) -> list[Any]:
    return [_addressable(array) for array in arrays]


def _addressable(array: Any) -> Any:
    """Arrays received over the network may be misaligned in memory, which changes bits of sums."""
    if isinstance(array, dict):
        return {name: _addressable(value) for name, value in array.items()}
    if isinstance(array, list):
        return [_addressable(value) for value in array]
    return np.require(array, requirements="A") if isinstance(array, np.ndarray) else array

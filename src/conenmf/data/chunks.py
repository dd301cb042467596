"""What runs on the workers of a cluster: one task applies a step to one chunk of samples.

A chunk is a small matrix in memory, and the step is applied by the very method (`sweep`, `visit`)
that would be used without a cluster. Nothing here knows Dask.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import (
    CheckpointError,
    ConeNMFError,
    DataChangedError,
    DataTypeError,
    MaskedDataError,
    ShapeError,
)
from .aligned import check_file, save_array
from .blocks import Array, Block, canonical_rows
from .local import LocalMatrix
from .matrix import Checksum
from .memory import hold
from .steps import Reduce, Step
from .threads import one_blas_thread
from .validate import check_kind

__all__ = [
    "Call",
    "Outcome",
    "StepError",
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


_PART_BYTES = 1 << 18  # of which the evidence is computed at a time: they stay in the cache
_GOLDEN_RATIO = 0.6180339887498949  # its multiples, modulo 1, are spread evenly


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
    evidence : dict of float
        A number that represents the entries of a chunk, by the sample that it begins with, if it
        was not known.
    """

    part: Any
    columns_read: float
    kinds: list[tuple[tuple[int, ...], np.dtype[Any]]]
    evidence: dict[int, float]


Result = tuple[tuple[Array, ...], Outcome]


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


def prepare_chunk(rows: Any, start: int, n_samples: int, n_features: int) -> Any:
    """Return a chunk as matrices in memory need it: an ndarray or canonical CSR.

    Refuse one that is not what the Dask array declares.
    """
    where = _place(start, n_samples)
    if np.ma.is_masked(rows):
        raise MaskedDataError(
            f"{where}: some entries are masked: remove such samples or features, or fill them, "
            "da.ma.filled(X, 0)"
        )
    rows = canonical_rows(np.ma.getdata(rows) if np.ma.isMA(rows) else rows)
    if rows.shape != (n_samples, n_features):
        raise ShapeError(
            f"{where}: the chunk has shape {rows.shape}, but the array declares "
            f"({n_samples}, {n_features}), samples by features: declare the true sizes, as with "
            "map_blocks(..., chunks=...)"
        )
    try:
        check_kind(rows.dtype, rows.shape)
    except DataTypeError as problem:
        raise DataTypeError(f"{where}: {problem}") from None
    return _addressable(rows)


def transpose_chunk(rows: Any) -> Any:
    """Return a chunk with one row per feature."""
    return rows.T


def sweep_chunk(call: Call, rows: Any, start: int, known: float | None, *aligned: Any) -> Result:
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


def visit_chunk(call: Call, rows: Any, start: int, known: None, *aligned: Any) -> Result:
    """Let a step read samples of a chunk."""
    local = _hold_chunk(rows, call.options, start)
    with _running_step():
        results = local.visit(
            call.step, *_all(aligned), reduce=call.reduce, **_addressable(call.shared)
        )
    return _result(results, local.passes * rows.shape[0])


def map_chunk(call: Call, rows: Any, start: int, known: None, *aligned: Any) -> Result:
    """Apply a step to the indices of a chunk, of which only the number of samples matters."""
    n_samples = rows if isinstance(rows, int) else rows.shape[0]
    with one_blas_thread(), _running_step():
        index = range(start, start + n_samples)
        return _result(call.step(index, *_all(aligned), **_addressable(call.shared)), 0.0)


def reduce_outcomes(call: Call, outcomes: list[Outcome]) -> Outcome:
    """Reduce the outcomes of several tasks to one, in their order."""
    first, *others = outcomes
    part = copy.deepcopy(first.part) if others else first.part
    columns_read, evidence = first.columns_read, dict(first.evidence)
    for outcome in others:
        with _running_step():
            part = call.reduce(part, outcome.part)
        columns_read += outcome.columns_read
        evidence |= outcome.evidence
    return Outcome(part, columns_read, first.kinds, evidence)


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
) -> Result:
    *per_sample, part = results
    kinds = [(rows.shape[1:], rows.dtype) for rows in per_sample]
    return tuple(per_sample), Outcome(part, columns_read, kinds, evidence or {})


def _all(arrays: tuple[Any, ...]) -> list[Any]:
    return [_addressable(array) for array in arrays]


def _addressable(array: Any) -> Any:
    """Arrays received over the network may be misaligned in memory, which changes bits of sums."""
    if isinstance(array, dict):
        return {name: _addressable(value) for name, value in array.items()}
    if isinstance(array, list):
        return [_addressable(value) for value in array]
    return np.require(array, requirements="A") if isinstance(array, np.ndarray) else array

"""The doors: how a matrix comes in, and what is checked on the way.

`from_rows`, `from_columns` and `open_data` state which way round the samples are; what they return
is a `DataMatrix`, which every algorithm takes. The first pass over the data validates them.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..errors import (
    DataChangedError,
    DataTypeError,
    NegativeValueError,
    NonFiniteError,
    NotADataMatrixError,
    OptionError,
    ScaleError,
    ShapeError,
    ZeroDataError,
)
from ..names import names_of
from .blocks import Array, Block
from .disk import DiskMatrix
from .files.formats import is_open_dataset, open_dataset, open_path
from .files.sources import NamedMatrix, Source
from .matrix import Aligned, DataMatrix, Reader, Step, add, check_kind, equal_borders, write_array
from .memory import canonical_rows, hold
from .resources import memory_budget

__all__ = [
    "Aligned",
    "Array",
    "Block",
    "DataMatrix",
    "Negative",
    "Reader",
    "Step",
    "add",
    "check_labels",
    "equal_borders",
    "from_columns",
    "from_rows",
    "is_elsewhere",
    "open_data",
    "require_data_matrix",
    "sample_indices",
    "shuffled_samples",
    "unit_samples",
    "write_array",
]

Negative: TypeAlias = Literal["raise", "clip"]
SamplesIn: TypeAlias = Literal["rows", "columns"]

_MEASURED_BYTES = 1 << 18  # few enough to be still in the cache when they are read twice
_TINY_NEGATIVE = 1e-6  # negative="clip" accepts entries down to this share of the largest one


def from_rows(
    X: Any,
    *,
    negative: Negative = "raise",
    n_threads: int | None = None,
    max_memory: int | str | None = None,
    persist: bool | None = None,
) -> DataMatrix:
    """Read a matrix whose *rows* are the samples, as scikit-learn's users have it.

    Parameters
    ----------
    X : array, scipy sparse matrix or array, open file or Dask array, shape (N, F)
        Nonnegative and finite. Dense arrays are never copied: float32 (and float16) is computed
        in float32, every other type block by block in float64. Sparse formats other than CSR,
        and CSR with unsorted or repeated indices, are converted once. A `numpy.memmap`, and
        datasets and sparse groups of HDF5 (h5py) and Zarr, are read from disk in blocks; see
        also `open_data`. A Dask array stays on its workers.
    negative : {"raise", "clip"}
        With "clip", negative entries no larger in size than 1e-6 times the largest entry
        are read as zeros; larger ones are an error all the same.
    n_threads : int, optional
        Threads that work on blocks; by default all that this process may use.
        The results have the same bits for any number.
    max_memory : int or str, optional
        For files: the memory this process may take, such as "1GB"; by default half of what the
        machine, or the container, has. See `open_data`.
    persist : bool, optional
        For Dask arrays: keep the data in the memory of the workers. By default if they take less
        than half of it.

    Examples
    --------
    >>> V = from_rows([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    >>> V.shape, V.passes
    ((2, 3), 1.0)
    >>> V.norms_squared
    array([25.,  4.,  1.])
    """
    return _open(X, "rows", negative, n_threads, max_memory, persist)


def from_columns(
    V: Any,
    *,
    negative: Negative = "raise",
    n_threads: int | None = None,
    max_memory: int | str | None = None,
    persist: bool | None = None,
) -> DataMatrix:
    """Read a matrix whose *columns* are the samples, as the paper has it; see `from_rows`.

    Among the sparse formats CSC is the one that needs no conversion.

    >>> from_columns([[3.0, 0.0, 1.0], [4.0, 2.0, 0.0]]).norms_squared
    array([25.,  4.,  1.])
    """
    return _open(V, "columns", negative, n_threads, max_memory, persist)


def open_data(
    path: str | os.PathLike[str],
    *,
    samples_in: SamplesIn = "rows",
    dataset: str | None = None,
    negative: Negative = "raise",
    n_threads: int | None = None,
    max_memory: int | str | None = None,
) -> DataMatrix:
    """Read a matrix from a file, block by block, without ever holding all of a large one.

    Parameters
    ----------
    path : str or path
        ``.npy``; ``.npz`` with one matrix or with the parts of a sparse one, as
        `scipy.sparse.save_npz` writes them; HDF5 (``.h5``, ``.hdf5``); AnnData (``.h5ad``);
        a Zarr store; text (``.csv``, ``.tsv``, ``.txt``, also with ``.gz``); Parquet and Arrow
        (``.parquet``, ``.pq``, ``.arrow``, ``.feather``, ``.ipc``); MATLAB (``.mat``); Matrix
        Market (``.mtx``, ``.mtx.gz``); or a folder of images, each of which is a sample.
        Stored sample after sample (rows in C order, CSR) is fastest. Names of samples and
        features, where the file has them, are in the attribute ``names`` of the result.
    samples_in : {"rows", "columns"}
    dataset : str, optional
        Which member of the file, such as ``"/group/counts"`` or ``"layers/counts"``; also as
        ``"file.h5:/group/counts"``. By default the only one, or X.
    negative, n_threads
        As in `from_rows`.
    max_memory : int or str, optional
        The memory this process may take, such as ``"1GB"``; by default half of what the machine,
        or the container, has. A quarter of it is for blocks of data in flight, at most a
        sixteenth for any array with one row per sample. If H takes more, it is kept in a
        file beside the data, named like the data with ``.H.npy`` at the end (in the folder for
        temporary files if that place cannot be written to), and the result refers to it. A
        table that takes more than a quarter is written, once, to a temporary file of numbers.

    Notes
    -----
    The file may be anybody's. Nothing is unpickled, no link is followed out of the file or
    folder, and what promises more than 256 MiB has to hold a 1100th of it. ``docs/files.md``
    lists what is refused, and the other limits.

    Examples
    --------
    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "counts.npy")
    >>> np.save(path, np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]))
    >>> open_data(path, max_memory="100MB").shape
    (2, 3)
    """
    budget = memory_budget(max_memory)
    _check_options(negative, samples_in)
    opened = open_path(path, dataset, budget)
    return _opened(opened, samples_in, negative, n_threads, budget)


def is_elsewhere(X: Any) -> bool:
    """Whether this is not an array in memory: an open file, a Dask array, or already opened."""
    return isinstance(X, DataMatrix) or _is_dask(X) or is_open_dataset(X)


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "dask"


def require_data_matrix(V: object, *, nonzero: bool = False) -> None:
    """Refuse a bare array: whether its rows or its columns are the samples cannot be seen.

    With `nonzero`, refuse a matrix of zeros too.
    """
    if not isinstance(V, DataMatrix):
        raise NotADataMatrixError(
            f"expected a DataMatrix, got {type(V).__name__}: "
            "use from_rows(X) if samples are rows, from_columns(V) if samples are columns, "
            "open_data(path) for a file"
        )
    if nonzero and not V.nonzero:
        raise ZeroDataError("every entry is zero: there is nothing to factor")


def check_labels(V: DataMatrix, labels: Any, K: int, *, complete: bool = False) -> Aligned:
    """Return labels as an aligned array of integers from -1 to K - 1, or say why they are not.

    With `complete`, a label of -1 is for zero samples only.
    """
    array = labels if hasattr(labels, "shape") else np.asarray(labels)
    if array.shape != (V.shape[1],) or array.dtype.kind not in "iu":
        raise ShapeError(
            f"labels have shape {array.shape} and type {array.dtype}, "
            f"expected {V.shape[1]} integers, one per sample"
        )
    integers, (low, high, left_out) = V.map(
        _look_at_labels, array, V.norms_squared, reduce=_extremes
    )
    if low < -1 or high >= K:
        raise ShapeError(f"labels run from {low} to {high}, expected -1 to {K - 1}")
    if complete and left_out:
        raise ShapeError("a sample that is not zero has label -1: every sample needs a cone")
    return integers


def _look_at_labels(
    samples: range, labels: Array, squared: Array
) -> tuple[Array, tuple[int, int, bool]]:
    left_out = bool(((labels < 0) & (squared > 0)).any())
    return labels.astype(np.intp), (int(labels.min()), int(labels.max()), left_out)


def _extremes(a: tuple[int, int, bool], b: tuple[int, int, bool]) -> tuple[int, int, bool]:
    return min(a[0], b[0]), max(a[1], b[1]), a[2] or b[2]


def unit_samples(V: DataMatrix) -> DataMatrix:
    """A copy of a small V with samples of unit length; zero samples stay zero."""
    rows = V.columns(np.arange(V.shape[1])).T.astype(np.float64, copy=False)
    squared = np.asarray(V.norms_squared)
    norms = np.sqrt(np.where(squared > 0, squared, 1.0))
    return from_rows(sp.diags_array(1.0 / norms) @ rows, n_threads=V.n_threads)


def shuffled_samples(V: DataMatrix, rng: np.random.Generator) -> DataMatrix:
    """A matrix like V with the values of every feature shuffled over the samples.

    Only for matrices small enough to be held twice.
    """
    features = V.columns(np.arange(V.shape[1])).T  # one row per sample
    if not sp.issparse(features):
        return from_rows(rng.permuted(features, axis=0), n_threads=V.n_threads)
    by_feature = sp.csc_array(features)
    N = by_feature.shape[0]
    rows = by_feature.indices.copy()
    for start, stop in pairwise(by_feature.indptr):
        rows[start:stop] = rng.choice(N, stop - start, replace=False)
    parts = (by_feature.data, rows, by_feature.indptr)
    return from_rows(sp.csc_array(parts, shape=by_feature.shape), n_threads=V.n_threads)


# --- opening and validating -------------------------------------------------------------------


def _check_options(negative: str, samples_in: str) -> None:
    if negative not in ("raise", "clip"):
        raise OptionError.unknown("negative", negative, ("raise", "clip"))
    if samples_in not in ("rows", "columns"):
        raise OptionError.unknown("samples_in", samples_in, ("rows", "columns"))


def _open(
    matrix: Any,
    samples_in: SamplesIn,
    negative: str,
    n_threads: int | None,
    max_memory: int | str | None,
    persist: bool | None,
) -> DataMatrix:
    _check_options(negative, samples_in)
    budget = memory_budget(max_memory)
    if isinstance(matrix, str | os.PathLike):
        raise DataTypeError(
            f"{os.fspath(matrix)!r} is a name, expected a matrix: use open_data to read a file"
        )
    if _is_dask(matrix):
        from .cluster import ClusterMatrix, checked_array

        array = checked_array(matrix)
        rows = array if samples_in == "rows" else array.T
        return _validated(ClusterMatrix(rows, persist, n_threads), samples_in, negative)
    if persist is not None:
        raise OptionError(f"persist={persist} is for Dask arrays, got {type(matrix).__name__}")
    if is_open_dataset(matrix):
        opened = open_dataset(matrix, budget)
        return _opened(opened, samples_in, negative, n_threads, budget)
    names = names_of(matrix)
    if not sp.issparse(matrix):
        matrix = np.asanyarray(matrix)
    if isinstance(matrix, np.ma.MaskedArray):
        raise DataTypeError("the array is masked: fill the masked entries first, X.filled(0)")
    check_kind(matrix.dtype, matrix.shape)
    return _opened(NamedMatrix(matrix, names), samples_in, negative, n_threads, budget)


def _opened(
    opened: NamedMatrix, samples_in: str, negative: str, n_threads: int | None, budget: int
) -> DataMatrix:
    """A validated matrix, turned so that it has one row per sample."""
    V: DataMatrix
    if samples_in == "columns":
        opened = opened.turned()
    rows = opened.readable(budget)
    check_kind(rows.dtype, rows.shape)
    if isinstance(rows, Source):
        V = DiskMatrix(rows, budget, n_threads)
    else:
        V = hold(canonical_rows(rows) if sp.issparse(rows) else np.asarray(rows), n_threads)
    V.names = opened.names.checked(V.shape[1], V.shape[0])
    return _validated(V, samples_in, negative)


def _validated(V: DataMatrix, samples_in: str, negative: str) -> DataMatrix:
    _validate(V, samples_in, negative)
    return V


class _Measures(NamedTuple):
    """What the first pass learns about V."""

    total: float
    longest: float
    low: float
    nonzero: int
    size: int


def _measure(block: Block) -> tuple[Array, _Measures]:
    """Step of the first pass: squared lengths; their sum and largest, the smallest entry."""
    with np.errstate(over="ignore", invalid="ignore"):
        if sp.issparse(block):
            entries = block.data.astype(np.float64, copy=False)
            owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
            squared = np.bincount(owner, weights=entries * entries, minlength=block.shape[1])
            low = float(entries.min(initial=0.0))
            size = block.data.nbytes + block.indices.nbytes
        else:
            squared, low = _squares_and_lowest(block.T)
            size = block.nbytes
    nonzero = int(np.count_nonzero(squared))
    return squared, _Measures(float(squared.sum()), float(squared.max()), low, nonzero, size)


def _squares_and_lowest(rows: Array) -> tuple[Array, float]:
    if not rows.flags.c_contiguous:
        exact = rows.astype(np.float64, copy=False)
        return np.einsum("nf,nf->n", exact, exact), float(rows.min())
    squared, lowest = np.empty(len(rows)), []
    at_a_time = 1 + _MEASURED_BYTES // (8 * rows.shape[1])
    for start in range(0, len(rows), at_a_time):
        few = rows[start : start + at_a_time].astype(np.float64, copy=False)
        np.vecdot(few, few, out=squared[start : start + at_a_time])
        lowest.append(few.min())
    return squared, float(np.min(lowest))


def _join_measures(a: _Measures, b: _Measures) -> _Measures:
    return _Measures(
        a.total + b.total,
        float(np.maximum(a.longest, b.longest)),
        float(np.minimum(a.low, b.low)),  # unlike min, it passes NaN on
        a.nonzero + b.nonzero,
        a.size + b.size,
    )


def _largest(block: Block) -> tuple[float]:
    return (float(block.max()),)


def _validate(V: DataMatrix, samples_in: str, negative: str) -> None:
    V.norms_squared, (V.total, longest, low, V.nonzero, size) = V.sweep(
        _measure, reduce=_join_measures
    )
    V.sample_bytes = 1 + size // V.shape[1]
    # Products of four entries stay finite in float64, products of two in float32.
    largest, smallest = (1e150, 1e-150) if V.dtype == np.float64 else (1e36, 1e-30)
    if low >= 0 and V.total < largest and longest >= V.shape[0] * smallest:
        return

    (high,) = V.sweep(_largest, reduce=np.maximum)
    if not (np.isfinite(low) and np.isfinite(high)):
        where, value = _find(V, samples_in, None)
        name = "NaN" if np.isnan(value) else "infinity (inf)"
        raise NonFiniteError(f"{where} is {name}: remove, impute or replace such entries first")
    if low < 0:
        tiny = low >= -_TINY_NEGATIVE * high
        if negative == "raise" or not tiny:
            where, value = _find(V, samples_in, low)
            advice = 'pass negative="clip" to read it as zero'
            if not tiny:
                size = f"{_TINY_NEGATIVE:g} of the largest entry, {high:g}"
                advice = f"shift it, or set it to zero, first (clip is for at most {size})"
            raise NegativeValueError(
                f"Negative values in data: {where} is {value:g}, the smallest entry; {advice}"
            )
        V.clip = True
        _validate(V, samples_in, negative)
        return
    too_small = high > 0 and high * high < smallest
    if too_small or not V.total < largest:
        raise ScaleError(
            f"the largest entry is {high:g}: squares leave the range of {V.dtype}; "
            "divide the data by their largest entry"
        )


def _find(V: DataMatrix, samples_in: str, wanted: float | None) -> tuple[str, float]:
    """Name the first entry of a value, or the first that is not finite, as the caller knows it."""
    index, _ = V.map(sample_indices)
    (found,) = V.sweep(_find_in_block, index, reduce=_earlier, wanted=wanted)
    if found is None:
        raise DataChangedError("an entry seen by the first pass is gone: V changed meanwhile")
    sample, feature, value = found
    names = V.names
    of_sample = "sample" if names.sample_names is None else f"sample {names.sample(sample)!r}"
    of_feature = "feature" if names.feature_names is None else f"feature {names.feature(feature)!r}"
    if samples_in == "rows":
        return f"row {sample} ({of_sample}), column {feature} ({of_feature})", value
    return f"row {feature} ({of_feature}), column {sample} ({of_sample})", value


def sample_indices(samples: range) -> tuple[Array, None]:
    """Step of a map: the index of each sample."""
    return np.arange(samples.start, samples.stop), None


def _find_in_block(
    block: Block, index: Array, *, wanted: float | None
) -> tuple[tuple[int, int, float] | None]:
    entries = sp.coo_array(block)
    wrong = ~np.isfinite(entries.data) if wanted is None else entries.data == wanted
    hits = np.flatnonzero(wrong)
    if hits.size == 0:
        return (None,)
    first = hits[np.lexsort((entries.row[hits], entries.col[hits]))[0]]
    sample, feature = index[entries.col[first]], entries.row[first]
    return ((int(sample), int(feature), float(entries.data[first])),)


def _earlier(a: Any, b: Any) -> Any:
    return b if a is None else a

"""Checks of opened data and of other arguments of algorithms.

Data must be a matrix of real, finite, nonnegative numbers whose squares are in the range of their
type. The measures of the first pass show whether they are valid. If not, further passes find the
entry that the error names.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..arguments import components, factor, real_numbers
from ..errors import (
    ComponentsError,
    ConeNMFError,
    DataChangedError,
    DataError,
    DataTypeError,
    NotAvailableError,
    Option,
)
from ..text import shown
from ..types import Array, DType, Lengths, Pair
from .blocks import Block, Rows, entries_of
from .matrix import Aligned, DataMatrix, Factors
from .resources import require_memory

Negative: TypeAlias = Literal["raise", "clip", "keep"]
SamplesIn: TypeAlias = Literal["rows", "columns"]

# range of squares: products of four entries are finite, in single precision of two
_SQUARES = {"float64": (1e150, 1e-150), "float32": (1e36, 1e-30)}
CODES = (99, 999, 9999, 99999)  # written for missing values, often with a minus
_CLIPPED_SHARE = 1e-6  # of the largest entry: negative="clip" accepts negative entries down to this


def check_kind(dtype: DType, shape: Lengths) -> None:
    """Reject types and shapes that no matrix of real numbers has."""
    if dtype.kind == "c":
        raise DataTypeError("Complex data not supported: take the magnitude, np.abs(X), first")
    if dtype.kind not in "fiub":
        raise DataTypeError(
            f"entries have type {dtype}, expected numbers: convert with X.astype(float)"
        )
    if len(shape) != 2:
        advice = "reshape one sample to X.reshape(1, -1), one feature to X.reshape(-1, 1)"
        if len(shape) > 2:
            advice = (
                "reshape a stack of images to X.reshape(len(X), -1), a cube of rows x columns x "
                "bands whose pixels are samples to X.reshape(-1, X.shape[-1]), or open its file "
                "with open_data"
            )
        raise DataError(f"expected a matrix with 2 dimensions, got {len(shape)}: {advice}")
    if 0 in shape:
        raise DataError(
            f"the matrix has shape {shape}: it needs at least one sample and one feature"
        )


def as_matrix(name: str, matrix: Rows, missing: str | float) -> Rows:
    """Return data in memory as an array, or unchanged if sparse; reject everything else."""
    if not sp.issparse(matrix):
        try:
            matrix = np.asanyarray(unmask(matrix, missing))
        except ConeNMFError:
            raise
        except Exception as problem:  # e.g. rows of different lengths, or an unknown object
            raise DataTypeError(
                f"{name} is {shown(matrix)}, expected a matrix of numbers"
            ) from problem
    check_kind(matrix.dtype, matrix.shape)
    return matrix


def unmask(matrix: Any, missing: str | float) -> Any:
    """Replace masked entries by NaN and remove the mask, if NaN means missing.

    If it does not, masked entries raise an error.
    """
    if isinstance(matrix, list | tuple) and any(map(np.ma.isMaskedArray, matrix)):
        matrix = np.ma.array(matrix)  # asarray would drop the masks of rows
    if not np.ma.isMaskedArray(matrix):
        return matrix
    if missing not in ("raise", "zeros"):
        kind = matrix.dtype if matrix.dtype.kind == "f" else np.dtype(float)
        return np.ma.filled(matrix.astype(kind), np.nan)
    masked = np.argwhere(np.ma.getmaskarray(matrix))
    if len(masked):
        where = ", ".join(map(str, masked[0].tolist()))
        raise DataTypeError(
            f"{len(masked)} of {matrix.size} entries are masked, the first at ({where}): "
            "remove such samples or features, fill them, X.filled(0), or pass ",
            Option("missing", "nan"),
        )
    return np.ma.getdata(matrix)


def require_data_matrix(V: object, *, nonzero: bool = False, holes: bool = False) -> None:
    """Reject bare arrays, and data with missing or weighted entries.

    A bare array does not show whether rows or columns are the samples. A function that ignores
    weights would treat a missing entry as zero, so functions that handle weights pass `holes`. With
    `nonzero`, reject matrices of zeros too.
    """
    if not isinstance(V, DataMatrix):
        raise DataTypeError(
            f"expected a DataMatrix, got {type(V).__name__}: "
            "use from_rows(X) if samples are rows, from_columns(V) if samples are columns, "
            "open_data(path) for a file"
        )
    if not V.is_complete and not holes:
        raise NotAvailableError(
            "this needs complete data, but some entries are missing or weighted: complete them "
            "with inverse_transform of a fit, or leave out samples or features"
        )
    if nonzero and not V.nonzero:
        raise DataError("every entry is zero: there is nothing to factor")


def require_nonnegative(V: DataMatrix, what: str) -> None:
    """Reject data with negative entries, for algorithms that need cones or directions."""
    if V.measures.lowest < 0:
        raise DataError(
            f"{what} needs nonnegative data, and these have entries down to "
            f"{V.measures.lowest:g}, which ",
            Option("negative", "keep"),
            " kept: read them with another option",
        )


def check_components(K: object, V: DataMatrix) -> int:
    """Return a number of components that is not above both sides of V and fits in memory."""
    K = components(K)
    if K > max(V.shape):
        raise ComponentsError(
            f"there are {V.n_samples} samples and {V.n_features} features, fewer than the {K} "
            f"components asked for: use at most {min(V.shape)}"
        )
    require_memory("K", K, 8 * K * max(K, V.n_features), ComponentsError)
    return K


# --- factors ----------------------------------------------------------------------------------


def check_factors(V: DataMatrix, W: ArrayLike, H: Aligned) -> Factors:
    """Return W (F, K) in double precision, and H' (N, K) aligned with the samples of V.

    Raise `DataError` unless both are finite and nonnegative.
    """
    W, Ht = check_shapes(V, W, H)
    (is_valid,) = V.map(_is_valid, Ht, reduce=min)
    if not is_valid:
        raise DataError(
            "W or H has entries that are NaN, infinite or negative: remove or clip them"
        )
    return W.astype(float, copy=False), Ht


def _is_valid(index: range, H: Array) -> tuple[bool]:
    return (bool(np.isfinite(H).all() and H.min() >= 0),)


def check_shapes(V: DataMatrix, W: ArrayLike, H: Aligned) -> Factors:
    """Return factors in the precision of W, without checking the entries of H."""
    W = factor("W", W, (V.n_features, "K"))
    return W, aligned_coefficients(V, H, W.shape[1])


def aligned_coefficients(V: DataMatrix, H: Aligned, K: int | str = "K") -> Aligned:
    """Return H' (N, K), aligned with the samples of V; raise `DataError` for another shape."""
    N = V.n_samples
    if not hasattr(H, "dtype"):
        H = factor("H", H, (K, N))
    shape = tuple(H.shape)
    is_short = len(shape) != 2 or shape[0] < 1 or shape[1] != N
    if is_short or K not in ("K", shape[0]) or H.dtype.kind not in "fiub":
        raise DataError(f"H has shape {shape} and type {H.dtype}, expected numbers of ({K}, {N})")
    return V.align(H.T)


# --- labels -----------------------------------------------------------------------------------


def check_labels(V: DataMatrix, labels: Aligned, K: int) -> Aligned:
    """Return labels as an aligned array of integers from -1 to K - 1; reject others."""
    N = V.n_samples
    if not hasattr(labels, "dtype"):
        labels = real_numbers("labels", labels, (N,), DataError)
    if labels.shape != (N,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"labels have shape {labels.shape} and type {labels.dtype}, "
            f"expected {N} integers, one per sample"
        )
    integers, (below, high) = V.map(_label_range, labels, reduce=np.maximum)
    if below > 1 or high >= K:
        raise DataError(f"labels run from {-below} to {high}, expected -1 to {K - 1}")
    return integers


def _label_range(index: range, labels: Array) -> Pair:
    """Step of a map: return -min and max of the labels."""
    integers = labels.astype(np.intp)
    return integers, np.array([-integers.min(), integers.max()])


# --- entries ----------------------------------------------------------------------------------


def check_entries(V: DataMatrix, samples_in: SamplesIn, negative: Negative) -> bool:
    """Reject invalid entries; return whether there are tiny negative entries to clip.

    Errors give the row and column in the caller's matrix; `samples_in` says which axis holds the
    samples.
    """
    total = V.measures.total
    lowest = V.measures.lowest
    largest, smallest = _SQUARES[V.dtype.name]
    has_small = V.measures.largest_squared < V.n_features * smallest
    if lowest >= 0 and total < largest and not has_small:
        return False

    highest = float(V.sweep(_highest, reduce=np.maximum)[0])
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        where, value = _find_entry(V, samples_in, None)
        nan = Option("missing", "nan")
        problem = f"{where} is NaN: remove or replace such entries, or pass "
        if not np.isnan(value):
            problem = f"{where} is infinity (inf): replace such entries by numbers, or by NaN with "
        raise DataError(problem, nan)
    tiny = lowest >= -_CLIPPED_SHARE * highest
    clips = negative == "clip" and tiny
    if lowest < 0 and negative != "keep" and not clips:
        where, value = _find_entry(V, samples_in, lowest)
        advice: tuple[object, ...] = ("pass ", Option("negative", "clip"), " to read it as zero")
        if -lowest in CODES:
            advice = ("if it stands for missing values, pass ", Option("missing", int(lowest)))
        elif not tiny:
            advice = (
                f"clip is for {_CLIPPED_SHARE:g} of the largest; use the data from before centring "
                "(StandardScaler, sc.pp.scale), let MinMaxScaler clip new samples, or pass ",
                Option("negative", "keep"),
                " if they are noise",
            )
        raise DataError(
            f"Negative values in data: {where} is {value:g}, the smallest entry; ", *advice
        )
    too_small = highest > 0 and highest * highest < smallest
    if too_small or not total < largest:
        raise DataError(
            f"the largest entry is {highest:g}: squares leave the range of {V.dtype}; "
            "divide the data by their largest entry"
        )
    return clips


def squares_within(dtype: DType, total: float) -> bool:
    """Return whether a sum of squares is zero, or in the range of the type."""
    largest, smallest = _SQUARES[dtype.name]
    return total == 0 or smallest <= total < largest


def _highest(block: Block) -> tuple[float]:
    return (float(block.max()),)


def _find_entry(V: DataMatrix, samples_in: str, value: float | None) -> tuple[str, float]:
    """Name the first entry with a value, or the first not finite, by the caller's indices."""
    indices = V.indices()
    (entry,) = V.sweep(_find_in_block, indices, reduce=_first_of_two, value=value)
    if entry is None:
        raise DataChangedError("V was changed while it was validated: open it again")
    sample, feature, number = entry
    names = V.names
    row = f"{sample} (sample)"
    if names.sample_names is not None:
        row = f"{sample} (sample {names.sample(sample)!r})"
    column = f"{feature} (feature)"
    if names.feature_names is not None:
        column = f"{feature} (feature {names.feature(feature)!r})"
    if samples_in == "columns":
        row, column = column, row
    return f"row {row}, column {column}, counted from 0,", number


def _find_in_block(
    block: Block, indices: Array, *, value: float | None
) -> tuple[tuple[int, int, float] | None]:
    features, samples, values = entries_of(block)
    is_hit = ~np.isfinite(values) if value is None else values == value
    for first in np.flatnonzero(is_hit)[:1]:
        sample = int(indices[samples[first]])
        return ((sample, int(features[first]), float(values[first])),)
    return (None,)


def _first_of_two(a: Any, b: Any) -> Any:
    return b if a is None else a

"""Data of which entries are missing, or count more or less: a view, and the weights beside it.

The view has zeros where nothing is known, so that no algorithm sees NaN; the weights are an aligned
array (N, F), kept where the samples are. Of a sparse matrix of ratings only stored entries are
known, and its pattern takes the place of weights.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arguments import choice
from ..errors import (
    DataTypeError,
    Message,
    NotADataMatrixError,
    Option,
    OptionError,
    ShapeError,
    ZeroDataError,
)
from ..names import check_same_names
from ..text import counted
from .blocks import Array, Block, dense, entrywise, exact, features_scaled, is_sparse, weighted_sums
from .holes import hidden, observed_squares, row_grams
from .matrix import Aligned, DataMatrix
from .memory import DenseMatrix
from .resources import available_memory
from .views import MappedMatrix

__all__ = [
    "Known",
    "MissingWarning",
    "Observed",
    "completed",
    "filled",
    "is_of_features",
    "known_entries",
    "observed_only",
]

_COPY_SHARE = 0.25  # of the memory, up to which a copy with zeros for missing entries is made


class MissingWarning(UserWarning):
    """Samples or features of which nothing is observed: nothing can be said about them."""


@dataclass(frozen=True, eq=False)
class Observed:
    """What is known of a matrix.

    Attributes
    ----------
    weights : array (N, F), or None
        Aligned; 0 where an entry is missing. None for a sparse matrix of which only stored entries
        are known.
    is_mask : bool
        All weights are 0 or 1.
    missing : float
        The share of entries that are missing.
    total : float
        The weighted sum of squares.
    n_empty_samples : int
    empty_features : array (F,), booleans
        Features of which nothing is known.
    of_features : array (F,), or None
        The weights of features, or the harmonic means of those of their known entries, if weights
        differ: inits see the data in units of mean uncertainties.
    """

    weights: Aligned | None
    is_mask: bool
    missing: float
    total: float
    n_empty_samples: int
    empty_features: Array
    of_features: Array | None = None

    @property
    def aligned(self) -> tuple[Aligned, ...]:
        """The weights, if there are any, as steps take them."""
        return () if self.weights is None else (self.weights,)


class Known(NamedTuple):
    """What a caller says about the entries; see `observed_only`."""

    missing: str = "raise"
    mask: Any = None
    weights: Any = None

    @classmethod
    def of(cls, missing: str, mask: Any, weights: Any) -> Known:
        """Return the same, checked."""
        return cls(choice("missing", missing, ("raise", "nan", "zeros")), mask, weights)

    def unmasked(self, matrix: Any) -> tuple[Any, Known]:
        """Return a masked array without its mask, which is kept here, if NaN is missing too."""
        if self.missing != "nan" or not np.ma.isMaskedArray(matrix):
            return matrix, self
        mask = ~np.ma.getmaskarray(matrix)
        if self.mask is not None:
            mask &= np.asarray(self.mask, dtype=bool)
        return np.ma.getdata(matrix), self._replace(mask=mask)

    def applied(self, V: DataMatrix, samples_in: str) -> DataMatrix:
        """Return V, or the view of it that knows its weights."""
        mask, weights = self.mask, self.weights
        if samples_in == "columns":
            mask, weights = (_turned(one) for one in (mask, weights))
        return observed_only(V, missing=self.missing, mask=mask, weights=weights)


def _turned(array: Any) -> Any:
    if array is None or hasattr(array, "T"):
        return None if array is None else array.T
    try:
        return np.asarray(array).T
    except Exception:  # rows that differ in length, an object of the caller's own
        return array


def is_of_features(weights: Any) -> bool:
    """Whether weights are one number for each feature."""
    try:
        return np.ndim(weights) == 1
    except Exception:  # as above; their errors are named where they are read
        return False


def observed_only(
    V: DataMatrix, *, missing: str = "raise", mask: Any = None, weights: Any = None
) -> DataMatrix:
    """Return a view of V with zeros where entries are missing, which knows its weights.

    V itself is returned if nothing is missing and all entries count alike.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Entries that are missing may be anything.
    missing : {"raise", "nan", "zeros"}
        Entries that are missing: none, NaN, or zeros; of sparse data those that are not stored.
    mask : array (N, F), optional
        True where an entry is known.
    weights : array (N, F) or (F,), optional
        At least 0; an entry of weight 0 is missing. With one number for each feature, a weight of 2
        gives what the feature twice gives.
    """
    if not isinstance(V, DataMatrix):
        raise NotADataMatrixError(
            f"expected a DataMatrix, got {type(V).__name__}: use from_rows(X)"
        )
    choice("missing", missing, ("raise", "nan", "zeros"))
    if missing == "raise" and mask is None and weights is None:
        return V
    rows: Aligned | None = None
    check_same_names(V.names, "mask", mask)
    check_same_names(V.names, "weights", weights)
    if mask is not None:
        rows = _checked(V, "mask", mask)
    if weights is not None:
        if is_of_features(weights) and np.shape(weights) == V.shape[:1]:
            weights = np.broadcast_to(np.asarray(weights), V.shape[::-1])
        given = _checked(V, "weights", weights)
        rows = given if rows is None else V.map(_product, rows, given)[0]
    if missing == "raise" and rows is None:
        return V
    if missing == "nan":
        known, _ = V.sweep(_is_number)
        rows = known if rows is None else V.map(_product, rows, known)[0]
    elif missing == "zeros" and not _is_stored_sparse(V):
        known, _ = V.sweep(_is_not_zero)
        rows = known if rows is None else V.map(_product, rows, known)[0]
    elif missing == "zeros" and rows is not None:
        raise OptionError(
            Message(
                Option("missing", "zeros"),
                " takes what is stored of sparse data as known: leave out ",
                Option("mask"),
                " and ",
                Option("weights"),
            )
        )
    view = copy.copy(V) if rows is None else _with_zeros(V, rows)
    view.names, view.vocabulary = V.names, V.vocabulary
    aligned = () if rows is None else (rows,)
    (squares, known_of, n_known, n_empty, unlike) = view.sweep(_survey, *aligned)[0]
    empty = known_of == 0
    if not n_known:
        raise ZeroDataError("every entry is missing: there is nothing to factor")
    F, N = V.shape
    if n_known == F * N and not unlike:
        return V
    if rows is not None and not unlike and rows.dtype != bool:
        rows = V.map(_is_positive, rows)[0]
    of_features = None
    if rows is not None and unlike:
        (inverses, counts) = V.map(_inverses, rows)[0]
        of_features = np.divide(counts, inverses, out=np.zeros(F), where=counts > 0)
    facts = 1.0 - n_known / (F * N), float(squares), int(n_empty), empty, of_features
    view.observed = Observed(rows, not unlike, *facts)
    _warn(int(n_empty), int(empty.sum()))
    return view


def _with_zeros(V: DataMatrix, rows: Aligned) -> DataMatrix:
    """V with zeros where the weight is zero: a copy of dense data in memory, a view of others.

    A fit reads them often, and to hide entries takes as long as to multiply them.
    """
    F, N = V.shape
    if isinstance(V, DenseMatrix) and F * N * V.dtype.itemsize <= _COPY_SHARE * available_memory():
        held = V.held_rows(F * N)
        if held is not None:
            kept = np.ascontiguousarray(hidden(held.T, rows).T, dtype=V.dtype)
            size = V.block_samples
            return DenseMatrix(kept, block_samples=size, n_threads=V.n_threads, names=V.names)
    return MappedMatrix(V, hidden, rows, dtype=V.dtype)


def times_features(V: DataMatrix, factors: Array) -> DataMatrix:
    """Return a view of V with features multiplied by numbers (F,)."""
    return MappedMatrix(V, partial(features_scaled, factors=factors), dtype=V.dtype)


def filled(V: DataMatrix) -> DataMatrix:
    """Return a view with the mean of its feature at each missing entry, to start from.

    Sparse data of which only stored entries are known stay as they are: zeros. Negative entries
    are zeros too.
    """
    observed = V.observed
    if V.measures.lowest < 0:
        V = MappedMatrix(V, _nonnegative, dtype=V.dtype)
    if observed is None or observed.weights is None:
        return V
    known, (sums, counts) = V.sweep(_means_of_known, observed.weights)
    means = sums / np.maximum(counts, 1)
    change = partial(_with_means, means=means.astype(V.dtype))
    return MappedMatrix(V, change, known, dtype=V.dtype)


def completed(V: DataMatrix, W: Array, Ht: Aligned) -> DataMatrix:
    """Return a view with W H at each missing entry, to be described: W (F, K), H' (N, K) aligned.

    Negative entries are zeros there.
    """
    observed = V.observed
    if observed is None:
        return filled(V)
    change = partial(_with_model, W=exact(W), is_weighted=bool(observed.aligned))
    return MappedMatrix(V, change, *observed.aligned, Ht, dtype=V.dtype)


def _with_model(block: Block, *given: Array, W: Array, is_weighted: bool) -> Block:
    known = known_entries(block, given[0] if is_weighted else None)
    rows: Array = np.where(known, dense(block).T, exact(given[-1]) @ W.T)
    return _positive_part(rows).astype(block.dtype, copy=False).T


def known_entries(block: Block, weights: Array | None) -> Array:
    """Return whether each entry of a block is known, (n, F)."""
    if weights is not None:
        return weights > 0
    known = np.zeros(block.shape[::-1], bool)
    owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))  # type: ignore[attr-defined]
    known[owner, block.indices] = True  # type: ignore[attr-defined]
    return known


def _nonnegative(block: Block) -> Block:
    return entrywise(block, _positive_part)


def _positive_part(entries: Array) -> Array:
    positive: Array = np.maximum(entries, 0)
    return positive


def _means_of_known(block: Block, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    known = weights > 0
    return known, (
        weighted_sums(exact(block), np.ones((block.shape[1], 1)))[:, 0],
        known.sum(axis=0),
    )


def _with_means(block: Block, known: Array, *, means: Array) -> Block:
    rows: Array = np.where(known, dense(block).T, means)
    return rows.astype(block.dtype, copy=False).T


def _warn(n_samples: int, n_features: int) -> None:
    for count, what in ((n_samples, "sample"), (n_features, "feature")):
        if count:
            warnings.warn(
                MissingWarning(
                    f"nothing is observed of {counted(count, what)}: coefficients and components "
                    "are zero there"
                ),
                stacklevel=4,
            )


def _checked(V: DataMatrix, name: str, array: Any) -> Aligned:
    """Weights as an aligned array of numbers that are at least 0."""
    F, N = V.shape
    if sp.issparse(array):
        array = array.toarray()
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        try:
            array = np.asarray(array)
        except Exception:  # rows that differ in length, an object of the caller's own
            array = np.empty((), dtype=object)
    if array.dtype.kind not in "fiub":
        problem = f" has entries of type {array.dtype}, expected numbers"
        raise DataTypeError(Message(Option(name), problem))
    if tuple(array.shape) != (N, F):
        problem = f" has shape {tuple(array.shape)}, expected one entry for each of the data, "
        also = f", or for each feature, {(F,)}" if name == "weights" else ""
        raise ShapeError(Message(Option(name), problem, f"{(N, F)}{also}"))
    (lowest, highest) = V.map(_extremes, array, reduce=_wider)[0]
    if name == "mask" and not np.isnan(lowest):
        array = array.astype(bool, copy=False)
        lowest = highest = 1.0
    if not (lowest >= 0 and np.isfinite(highest)):
        raise OptionError(
            Message(
                Option(name),
                " has NaN" if np.isnan(lowest) else f" has entries from {lowest:g} to {highest:g}",
                ": expected finite numbers that are at least 0; write 0 where an entry is missing",
            )
        )
    return V.align(array)


def _is_stored_sparse(V: DataMatrix) -> bool:
    return is_sparse(V.columns(np.arange(1)))


def _extremes(index: range, rows: Array) -> tuple[tuple[float, float]]:
    return ((float(np.min(rows)), float(np.max(rows))),)


def _wider(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return float(np.minimum(a[0], b[0])), float(np.maximum(a[1], b[1]))


def _product(index: range, rows: Array, others: Array) -> tuple[Array, None]:
    return rows * others, None


def _inverses(index: range, rows: Array) -> tuple[tuple[Array, Array]]:
    known = rows > 0
    inverses = np.divide(1.0, exact(rows), out=np.zeros(rows.shape), where=known)
    return ((inverses.sum(axis=0), known.sum(axis=0)),)


def _is_positive(index: range, rows: Array) -> tuple[Array, None]:
    return rows > 0, None


def _is_number(block: Block) -> tuple[Array, None]:
    if is_sparse(block):
        rows = np.ones(block.shape[::-1], bool)
        owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
        rows[owner, block.indices] = ~np.isnan(block.data)
        return rows, None
    return np.ascontiguousarray(~np.isnan(np.asarray(block.T))), None


def _is_not_zero(block: Block) -> tuple[Array, None]:
    return np.ascontiguousarray(np.asarray(block.T) != 0), None


def _survey(
    block: Block, weights: Array | None = None
) -> tuple[tuple[float, Array, int, int, bool]]:
    """Weighted squares, entries known of each feature and in all, empty samples, other weights."""
    known = None if weights is None else (weights > 0).astype(np.float64)
    per_sample = row_grams(block, known, np.ones((block.shape[0], 1)))[:, 0]
    if known is not None:
        per_feature = known.sum(axis=0)
    else:
        ones = np.bincount(block.indices, minlength=block.shape[0])  # type: ignore[attr-defined]
        per_feature = ones.astype(np.float64)
    unlike = weights is not None and bool(((weights != 0) & (weights != 1)).any())
    squares = float(observed_squares(block, weights).sum())
    counts = int(per_sample.sum()), int((per_sample == 0).sum())
    return ((squares, per_feature, *counts, unlike),)

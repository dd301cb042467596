"""Missing entries, and the weights of entries, features and samples.

This module combines everything that a caller specifies: `missing`, masks and weights when data are
opened, masks and weights when they are fitted, and weights of samples. An entry is known if none of
these excludes it, and its weight is the product of all weights.

The result is a view with zeros at missing entries, together with an aligned array (N, F) of
weights, zero where an entry is missing. For a sparse matrix of ratings the pattern of stored
entries replaces the weights, so only stored entries are processed.

A sample of weight 2 is equivalent to repeating the sample. On small data, whole-number weights do
repeat samples. In all other cases each sample is multiplied by the root of its weight, or for
counts by the weight itself, which gives the same sums and the same error. The coefficients of a
result belong to the original samples.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..arguments import array, choice, number, real_numbers
from ..errors import (
    DataError,
    DataTypeError,
    InputWarning,
    Option,
    OptionError,
)
from ..names import Names, in_order
from ..text import counted
from ..types import Array, DType, Interval
from .blocks import Block, dense, exact, is_sparse, over
from .entries import EntryWeights, hide, known_rows, observed_squares, pattern
from .matrix import Aligned, DataMatrix, add
from .memory import DenseMatrix
from .resources import available_memory
from .validate import squares_within
from .views import MappedMatrix, take_features, take_samples, times_samples

_MAX_REPEATED_ENTRIES = 1 << 22
_LARGEST_WEIGHT = 1e100  # the smallest weight is its inverse
_LARGEST_IN_SINGLE = 1e36  # the same in single precision
_LOOKED_AT = 500  # samples that are compared with weights
_MIN_LOOKED_AT = 10  # entries of a feature that are compared with weights
_GROWS = 0.5  # mean rank correlation of weights and data from which on a remark is made
_COPY_SHARE = 0.25  # of the memory: the largest copy with zeros for missing entries


@dataclass(frozen=True, eq=False)
class Observed:
    """Which entries of a matrix are known, and their weights.

    Attributes
    ----------
    weights : array (N, F), or None
        Aligned; 0 where an entry is missing. None for a sparse matrix whose stored entries are the
        known ones.
    is_mask : bool
        All weights are 0 or 1.
    missing : float
        The share of entries that are missing.
    total : float
        The weighted sum of squares.
    n_empty_samples : int
    counts : array (F,)
        The number of known entries of each feature.
    of_features : array (F,), or None
        If weights differ: the weight of each feature, or the harmonic mean of the weights of its
        known entries, divided by the largest. Inits scale the data with them to units of mean
        uncertainty.
    is_alike : bool
        All known entries have the same weight.
    of_sigma : bool
        Weights are 1 / sigma^2 of uncertainties sigma, and the error is Q.
    """

    weights: Aligned | None
    is_mask: bool
    missing: float
    total: float
    n_empty_samples: int
    counts: Array
    of_features: Array | None = None
    is_alike: bool = True
    of_sigma: bool = False

    @classmethod
    def of(cls, view: DataMatrix, rows: Aligned | None) -> Observed | None:
        """Return which entries of a view with zeros at missing ones are known; None if all are.

        `rows` (N, F) are weights. Without them the stored entries of a sparse view are known.
        """
        (F, N) = view.shape
        aligned = () if rows is None else (rows,)
        (survey,) = view.sweep(_survey, *aligned, reduce=_join)
        (counts, inverses, n_empty, squares), (lowest, highest) = survey
        n_known = int(counts.sum())
        is_mask = n_known == 0 or lowest == highest == 1
        if n_known == F * N and is_mask:
            return None
        of_features = None
        if not is_mask:
            checked = squares if np.isfinite(view.total) else 1.0  # if not, data are at fault
            _check_scale("weights", np.dtype(float), lowest, highest, checked)
            of_features = over(counts, inverses)
            of_features /= of_features.max()
        elif rows is not None and rows.dtype != bool:
            rows = view.by_rows(_is_positive, rows)
        missing = 1.0 - n_known / (F * N)
        is_alike = is_mask or lowest == highest
        return cls(rows, is_mask, missing, squares, n_empty, counts, of_features, is_alike)

    @property
    def empty_features(self) -> Array:
        """Which features have no known entry, (F,)."""
        return self.counts == 0

    @property
    def n_empty(self) -> tuple[int, int]:
        """How many samples, and how many features, have no known entry."""
        return self.n_empty_samples, int(self.empty_features.sum())

    @property
    def aligned(self) -> tuple[Aligned, ...]:
        """The weights as arguments for steps; empty if there are none."""
        return () if self.weights is None else (self.weights,)

    def taken(self, view: DataMatrix, indices: Array) -> Observed | None:
        """Return the mask and weights of some samples; `view` contains these samples."""
        rows = None if self.weights is None else np.asarray(self.weights[indices])
        return Observed.of(view, rows)


@dataclass(frozen=True, eq=False)
class Weighed:
    """The original samples of weighted data.

    Attributes
    ----------
    V : DataMatrix (F, N)
        The original samples.
    weights, degree
        As in `weigh_samples`.
    repeated : array of integers, or None
        The indices of samples, each repeated by its weight.
    scales : array (N,), or None
        The factors of the samples, aligned: the roots, or for counts the weights.
    """

    V: DataMatrix
    weights: Array
    degree: int
    repeated: Array | None = None
    scales: Aligned | None = None

    @property
    def n_counted(self) -> float:
        """The sum of the weights."""
        return float(self.weights.sum())

    def weighed(self, H: Aligned) -> Aligned:
        """Return coefficients (K, N) of the weighted samples from those of the original samples."""
        if self.repeated is not None:
            return np.asarray(H)[:, self.repeated]
        return self.V.by_rows(_scale_rows, H.T, self.scales).T

    def again(self, V: DataMatrix) -> DataMatrix:
        """Apply the same sample weights to other data of these samples."""
        return weigh_samples(V, self.weights, self.degree)


def _scale_rows(index: range, H: Array, scales: Array) -> Array:
    return (H * scales[:, None]).astype(H.dtype, copy=False)


def is_of_features(weights: ArrayLike) -> bool:
    """Whether weights are one number for each feature."""
    try:
        return np.ndim(weights) == 1
    except ValueError:  # rows differ in length; the error is raised where they are read
        return False


def observed_only(
    V: DataMatrix,
    *,
    missing: str | float = "raise",
    mask: object = None,
    weights: object = None,
    sigma: object = None,
    samples_in: str = "rows",
) -> DataMatrix:
    """Return a view of V with zeros at missing entries; the view stores the weights.

    Entries that were already missing in V stay missing. If nothing is missing and all entries weigh
    the same, V itself is returned.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Missing entries may have any value.
    missing : {"raise", "nan", "zeros"} or a number
        Which entries are missing: none, NaN, or zeros; for sparse data, "zeros" means entries that
        are not stored. If a number such as -999 is given, entries equal to it and NaN are missing.
    mask : array (N, F), optional
        True where an entry is known. The rows and columns of a data frame are matched by name.
    weights : array (N, F) or (F,), optional
        At least 0; an entry of weight 0 is missing. With one number for each feature, a weight of 2
        is equivalent to repeating the feature; a pandas Series is matched by name.
    sigma : array (N, F), optional
        The uncertainty of each entry, above 0: its weight is 1 / sigma^2. An entry is missing if
        its uncertainty is NaN; uncertainties of other missing entries may be anything.
    samples_in : {"rows", "columns"}
        Whether samples are the rows or the columns of masks and weights; with "columns", both are
        (F, N).
    """
    if isinstance(missing, int | float) and not isinstance(missing, bool):
        number("missing", missing)
    else:
        choice("missing", missing, ("raise", "nan", "zeros"))
    if missing == "raise" and mask is None and weights is None and sigma is None:
        return V
    if sigma is not None and V.observed is not None and V.observed.of_sigma:
        raise OptionError(Option("sigma"), " is given, and the data have uncertainties: drop one")
    if V.unweighed is not None:
        own: Weighed = V.unweighed
        seen = observed_only(
            own.V, missing=missing, mask=mask, weights=weights, sigma=sigma, samples_in=samples_in
        )
        return own.again(seen)
    parts = [*V.aligned_weights]
    if mask is not None:
        parts.append(_read_weights(V, "mask", mask, samples_in))
    if weights is not None:
        parts.append(_read_weights(V, "weights", weights, samples_in))
    is_pattern = not V.is_complete and V.observed.weights is None
    is_pattern |= missing == "zeros" and is_sparse(V.columns([0]))
    codes = [missing] if missing != "raise" else []
    if is_pattern:
        codes = [code for code in codes if code != "zeros"]
        if codes or parts or sigma is not None:
            codes.append("zeros")
    parts += [V.sweep(known_rows, missing=code)[0] for code in codes]
    if not parts and not is_pattern and sigma is None:
        return V
    rows = parts[0] if parts else None
    for part in parts[1:]:
        rows = V.by_rows(_weights_times, rows, part)
    if sigma is not None:
        others = () if rows is None else (rows,)
        by_sigma = partial(_weights_of_sigma, names=V.names)
        rows = V.by_rows(by_sigma, _read_table(V, "sigma", sigma, samples_in), *others)
    view = copy.copy(V) if rows is None else with_zeros(V, rows)
    for name in ("names", "vocabulary", "remarks", "preparation"):
        setattr(view, name, getattr(V, name))
    view.observed = Observed.of(view, rows)
    if view.is_complete:
        return V if V.is_complete else view
    of_sigma = sigma is not None or (not V.is_complete and V.observed.of_sigma)
    view.observed = replace(view.observed, of_sigma=of_sigma and weights is None)
    if view.observed.missing == 1:
        raise DataError("every entry is missing: there is nothing to factor")
    _warn_of_empty(view.observed, V.observed)
    return view


def without_unit(V: DataMatrix) -> DataMatrix:
    """Return V with weights of 1 if all its known entries weigh the same; if not, V itself."""
    if V.is_complete or V.observed.is_mask or not V.observed.is_alike:
        return V
    twin = copy.copy(V)
    twin.observed = Observed.of(V, V.by_rows(_is_positive, V.observed.weights))
    return twin


def choose_features(V: DataMatrix, features: Array, factors: Array) -> DataMatrix:
    """Return V with some of its features, each with its uncertainties times a factor.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Without uncertainties, factors do not matter.
    features : array of integers (n,)
        In increasing order.
    factors : array (n,)
        One for each of these features.
    """
    bare = copy.copy(V)
    bare.observed = None
    view = take_features(bare, features)
    if V.is_complete:
        return view
    if V.observed.weights is None:
        return observed_only(view, missing="zeros")
    if not V.observed.of_sigma:
        return observed_only(view, weights=V.observed.weights[:, features])
    change = partial(_scaled_sigma, factors=factors, features=features)
    return observed_only(view, sigma=V.by_rows(change, V.observed.weights))


def _scaled_sigma(index: range, weights: Array, *, factors: Array, features: Array) -> Array:
    own = np.asarray(weights[:, features], float)
    known = own > 0
    return np.divide(factors, np.sqrt(own), out=np.full(own.shape, np.nan), where=known)


def _warn_of_empty(now: Observed, before: Observed | None) -> None:
    """Warn about samples and features without known entries, unless they were reported before."""
    earlier = (0, 0) if before is None else before.n_empty
    for count, reported, what in zip(now.n_empty, earlier, ("sample", "feature"), strict=True):
        if count > reported:
            problem = f"nothing is observed of {counted(count, what)}"
            effect = "coefficients and components are zero there"
            warnings.warn(InputWarning(f"{problem}: {effect}"), stacklevel=4)


def _check_scale(name: str, dtype: DType, lowest: float, highest: float, squares: float) -> None:
    """Reject weights with which results would leave the range of their type."""
    largest = _LARGEST_WEIGHT if dtype == np.float64 else _LARGEST_IN_SINGLE
    if 1 / largest <= lowest and highest <= largest and squares_within(dtype, squares):
        return
    size = f" has numbers from {lowest:g} to {highest:g}, with which squares leave the range of "
    advice = f"{dtype}; divide it by its largest number, and write 0 for the tiny ones"
    raise DataError(Option(name), size + advice)


def _read_table(V: DataMatrix, name: str, table: Any, samples_in: str) -> Aligned:
    """Return a number for each entry as an aligned array (N, F)."""
    F, N = V.shape
    is_short = name == "weights" and is_of_features(table)
    sides = ("sample", "feature") if samples_in == "rows" else ("feature", "sample")
    table = in_order(V.names, name, table, *(("feature",) if is_short else sides))
    table = table.toarray() if sp.issparse(table) else table
    if not hasattr(table, "numblocks"):  # a Dask array stays on its workers
        table = real_numbers(name, table, (N, F), DataTypeError)
    table = table if samples_in == "rows" else table.T
    if is_short and table.shape == (F,):
        table = np.broadcast_to(table, (N, F))
    own = tuple(table.shape)
    if own != (N, F):
        expected = f"one entry for each of the data, {(N, F)}"
        if name == "weights":
            expected += f", or for each feature, {(F,)}"
        raise DataError(Option(name), f" has shape {own}, expected {expected}")
    return V.align(table)


def _read_weights(V: DataMatrix, name: str, table: object, samples_in: str) -> Aligned:
    """Return a mask or weights as an aligned array (N, F) of numbers that are at least 0."""
    rows = _read_table(V, name, table, samples_in)
    (limits,) = V.map(_range_of_rows, rows, reduce=_wider)
    lowest, highest = limits
    if name == "mask" and not np.isnan(lowest):
        return V.by_rows(_as_mask, rows)
    if not (lowest >= 0 and np.isfinite(highest)):
        problem = " has NaN" if np.isnan(lowest) else f" has entries from {lowest:g} to {highest:g}"
        expected = "finite numbers that are at least 0; write 0 where an entry is missing"
        raise OptionError(Option(name), f"{problem}: expected {expected}")
    return rows


def _range_of_rows(index: range, rows: Array) -> tuple[Interval]:
    return (_range_of(exact(rows)),)


def _as_mask(index: range, rows: Array) -> Array:
    return rows.astype(bool, copy=False)


def _weights_of_sigma(
    index: range, sigma: Array, weights: Array | float = 1.0, *, names: Names
) -> Array:
    """Return weights / sigma^2, 0 where an entry is missing or its uncertainty is NaN."""
    is_known = ~np.isnan(sigma) & (np.asarray(weights) > 0)
    wrong = np.argwhere(is_known & ~(sigma > 0))
    if len(wrong):
        sample, feature = wrong[0]
        place = f"{names.sample(index[sample])}, {names.feature(feature)}"
        problem = f" has {sigma[sample, feature]:g} at {place}: expected numbers above 0; "
        raise DataError(Option("sigma"), problem, "write NaN where an entry is missing")
    return np.divide(weights, sigma**2, out=np.zeros(sigma.shape), where=is_known)


def remark_on_weights(V: DataMatrix) -> str:
    """Return a remark if weights grow with the data, as uncertainties do but weights should not.

    It compares the rank correlation in each feature, and returns "" if the mean is not high.
    """
    if V.is_complete or V.observed.weights is None:
        return ""
    some = np.arange(0, V.n_samples, max(V.n_samples // _LOOKED_AT, 1))
    rows = dense(V.columns(some)).T
    weights = np.asarray(V.observed.weights[some], float)
    correlations = []
    for feature, weight in zip(rows.T, weights.T, strict=True):
        known = weight > 0
        if known.sum() > _MIN_LOOKED_AT and np.ptp(weight[known]) > 0:
            ranks = [one[known].argsort().argsort() for one in (feature, weight)]
            correlations.append(np.corrcoef(ranks)[0, 1])
    if not correlations or np.mean(correlations) < _GROWS:
        return ""
    return "the weights grow with the data: if they are uncertainties, give them as "


# --- weights of samples -----------------------------------------------------------------------


def weigh_samples(V: DataMatrix, weights: object, degree: int = 2) -> DataMatrix:
    """Return a view of V in which a sample of weight w is equivalent to w samples.

    Parameters
    ----------
    V : DataMatrix (F, N)
    weights : array (N,)
        At least 0, not all 0; a pandas Series is matched by name. If all are 1, V is returned.
    degree : int
        Degree of homogeneity of the loss: 2 for least squares, 1 for the Poisson loss. A loss of
        degree 0 does not change with the scale of a sample, so it takes whole numbers only.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [2.0, 0.0]).norms_squared
    array([25., 25.])
    >>> weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [0.5, 0.0]).norms_squared.round(6)
    array([12.5,  0. ])
    """
    if weights is None:
        return V
    if isinstance(weights, int | float) and not isinstance(weights, bool):
        number("sample_weight", weights, above=0)
        return V  # one weight for all samples
    earlier = V.unweighed
    V = V if earlier is None else earlier.V
    weights = in_order(V.names, "sample_weight", weights, "sample")
    weights = array("sample_weight", weights, V.shape[1:], at_least=0)
    weights = weights.astype(float)
    if earlier is not None:
        weights *= earlier.weights
    if not weights.any():
        problem = " is zero for every sample: give some a weight above zero"
        raise OptionError(Option("sample_weight"), problem)
    if (weights == 1).all():
        return V
    with np.errstate(over="ignore"):
        powers = weights ** (2 // max(degree, 1))
        squares = float((V.norms_squared * powers).sum())
    smallest = weights[weights > 0].min()
    _check_scale("sample_weight", V.dtype, smallest, weights.max(), squares)
    is_whole = (weights == np.round(weights)).all()
    view: DataMatrix
    if is_whole and weights.sum() * V.n_features <= _MAX_REPEATED_ENTRIES:
        repeated = np.repeat(np.arange(V.n_samples), weights.astype(np.intp))
        view = take_samples(V, repeated)
        view.unweighed = Weighed(V, weights, degree, repeated=repeated)
        return view
    if not degree:
        problem = (
            " has fractions, or counts too many samples, for a loss that does not depend on "
            "scale: give small whole numbers"
        )
        raise OptionError(Option("sample_weight"), problem)
    scales = V.align(weights ** (1 / degree))
    view = times_samples(V, scales, holes=True)
    if not V.is_complete:
        rows = V.observed.weights
        if not weights.all():  # samples of weight 0 do not count as known
            rows = V.sweep(known_rows, missing="zeros")[0] if rows is None else rows
            rows = V.by_rows(_weights_times, rows, (weights > 0)[:, None])
        view.observed = Observed.of(view, rows)
    view.unweighed = Weighed(V, weights, degree, scales=scales)
    return view


def as_repeated(V: DataMatrix) -> DataMatrix:
    """Return samples repeated by whole-number weights as data of their own; other V as they are.

    Masks and weights of entries for the result have one row for each repetition.

    >>> from conenmf import from_rows
    >>> V = weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [2.0, 1.0])
    >>> observed_only(as_repeated(V), mask=[[1, 1], [0, 1], [1, 1]]).observed.counts
    array([2., 3.])
    """
    if V.unweighed is None or V.unweighed.repeated is None:
        return V
    twin = copy.copy(V)
    twin.unweighed = None
    return twin


# --- zeros at missing entries -----------------------------------------------------------------


def with_zeros(V: DataMatrix, rows: Aligned) -> DataMatrix:
    """Return V with zeros at weight zero: a copy of dense data in memory, a view of other data.

    A fit reads the data often, and replacing entries takes as long as multiplying them.
    """
    view = MappedMatrix(V, hide, rows, dtype=V.dtype, holes=True)
    size = V.size
    is_small = size * V.dtype.itemsize <= _COPY_SHARE * available_memory()
    if not isinstance(V, DenseMatrix) or not is_small:
        return view
    kept = np.ascontiguousarray(view.held_rows(size), dtype=V.dtype)
    size = V.block_samples
    return DenseMatrix(kept, block_samples=size, n_threads=V.n_threads, names=V.names)


# --- steps that read weights -------------------------------------------------------------------


def _range_of(rows: Array) -> Interval:
    """Return the smallest and the largest number; an empty range if there are none."""
    return float(rows.min(initial=np.inf)), float(rows.max(initial=-np.inf))


def _wider(a: Interval, b: Interval) -> Interval:
    """Return the range that contains both; NaN if either range has one."""
    lowest, highest = zip(a, b, strict=True)
    return float(np.min(lowest)), float(np.max(highest))


def _weights_times(index: range, rows: Array, others: Array) -> Array:
    """Return the products of weights; an entry is known if both arrays say so."""
    if rows.dtype == bool and others.dtype == bool:
        return rows & others
    return exact(rows) * others  # integers could overflow


def _is_positive(index: range, rows: Array) -> Array:
    return rows > 0


# Counts of features, sums of inverse weights, the number of empty samples, and weighted squares;
# and the range of the weights.
_Survey: TypeAlias = tuple[tuple[Array, Array, int, float], Interval]


def _survey(block: Block, weights: EntryWeights = None) -> tuple[_Survey]:
    """Step: survey the known entries of a block."""
    ones: Any = pattern(block, None if weights is None else weights > 0)
    counts = ones.sum(axis=1)
    n_empty = int((ones.sum(axis=0) == 0).sum())
    inverses = np.zeros(len(counts))
    extremes = 1.0, 1.0
    with np.errstate(over="ignore"):
        squares = float(observed_squares(block, weights).sum())
        if weights is not None and weights.dtype != bool:
            is_known = weights > 0
            extremes = _range_of(exact(weights[is_known]))
            of_entries = np.divide(1.0, weights, out=np.zeros(weights.shape), where=is_known)
            inverses = of_entries.sum(axis=0)
    return (((counts, inverses, n_empty, squares), extremes),)


def _join(a: _Survey, b: _Survey) -> _Survey:
    return add(a[0], b[0]), _wider(a[1], b[1])

"""What is known of a matrix: which entries, and how much entries, features and samples count.

All that a caller says about it is combined here, in any order and wherever it was said: `missing`,
masks and weights where data are opened, others where they are fitted, weights of samples. An entry
is known if everything agrees that it is, and counts by the product of its weights.

The result is a view with zeros where nothing is known, and the weights beside it, an aligned array
(N, F). Of a sparse matrix of ratings the pattern takes the place of weights.

A sample of weight 2 gives what the sample twice gives. On small data, whole numbers repeat samples.
Otherwise each is multiplied by the root of its weight, and counts by the weight itself: sums over
samples and the error are the same then. The coefficients of a result are those of the samples
themselves, which do not depend on it.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arguments import array, choice, number
from ..errors import (
    DataError,
    DataTypeError,
    InputWarning,
    Message,
    Option,
    OptionError,
)
from ..names import in_order
from ..text import counted
from .blocks import Array, is_sparse
from .holes import (
    extremes,
    inverse_weights,
    is_not_zero,
    is_number,
    is_positive,
    is_stored,
    positive_extremes,
    survey,
    weighed_squares,
    weights_times,
    wider,
    with_zeros,
)
from .matrix import Aligned, DataMatrix
from .validate import require_data_matrix, squares_within
from .views import take_samples, times_samples

__all__ = [
    "Given",
    "Observed",
    "Weighed",
    "is_of_features",
    "observed_only",
    "weigh_samples",
    "without_unit",
]

_MAX_REPEATED_ENTRIES = 1 << 22
_LARGEST_WEIGHT, _LARGEST_IN_SINGLE = 1e100, 1e36  # their inverses are the smallest


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
        The weights of features, or the harmonic means of those of their known entries, divided by
        the largest, if weights differ: inits see the data in units of mean uncertainties.
    is_alike : bool
        All known entries have the same weight.
    """

    weights: Aligned | None
    is_mask: bool
    missing: float
    total: float
    n_empty_samples: int
    empty_features: Array
    of_features: Array | None = None
    is_alike: bool = True

    @classmethod
    def of(cls, view: DataMatrix, rows: Aligned | None) -> Observed | None:
        """Return what is known of a view with zeros where rows (N, F) are zero; None if it is all.

        Without rows the stored entries of a sparse view are known.
        """
        (F, N), aligned = view.shape, () if rows is None else (rows,)
        (squares, known_of, n_known, n_empty, unlike) = view.sweep(survey, *aligned)[0]
        if n_known == F * N and not unlike:
            return None
        of_features, lowest, highest = None, 1.0, 1.0
        if rows is not None and unlike:
            (lowest, highest) = view.map(positive_extremes, rows, reduce=wider)[0]
            checked = squares if np.isfinite(view.total) else 1.0  # else the data are at fault
            _check_scale("weights", np.dtype(np.float64), lowest, highest, checked)
            (inverses, counts) = view.map(inverse_weights, rows, unit=highest)[0]
            of_features = np.divide(counts, inverses, out=np.zeros(F), where=counts > 0)
            of_features /= of_features.max() or 1.0
        elif rows is not None and rows.dtype != bool:
            rows = view.map(is_positive, rows)[0]
        facts = 1.0 - n_known / (F * N), float(squares), int(n_empty), known_of == 0, of_features
        return cls(rows, not unlike, *facts, is_alike=lowest == highest)

    @property
    def aligned(self) -> tuple[Aligned, ...]:
        """The weights, if there are any, as steps take them."""
        return () if self.weights is None else (self.weights,)

    def taken(self, view: DataMatrix, indices: Array) -> Observed | None:
        """Return what is known of some of the samples, of which `view` consists."""
        rows = None if self.weights is None else np.asarray(self.weights[indices])
        return Observed.of(view, rows)


@dataclass(frozen=True, eq=False)
class Weighed:
    """Where weighed samples come from.

    Attributes
    ----------
    V : DataMatrix (F, N)
        The samples themselves.
    weights, loss
        As in `weigh_samples`.
    repeated : array of integers, or None
        The samples, as often as they are repeated.
    roots : array (N,), or None
        The roots of the weights, aligned.
    scales : array (N,), or None
        What samples are multiplied by, aligned: the roots, or of counts the weights.
    """

    V: DataMatrix
    weights: Array
    loss: str
    repeated: Array | None = None
    roots: Aligned | None = None
    scales: Aligned | None = None

    @property
    def n_counted(self) -> float:
        """The sum of the weights: how many samples they count as."""
        return float(self.weights.sum())

    def weighed(self, H: Aligned) -> Aligned:
        """Return coefficients (K, N) of the samples as those of the weighed ones."""
        if self.repeated is not None:
            return np.asarray(H)[:, self.repeated]
        return self.V.map(_times_rows, H.T, self.scales)[0].T

    def again(self, V: DataMatrix) -> DataMatrix:
        """Return other data of these samples with the same weights of samples."""
        return weigh_samples(V, self.weights, self.loss)


class Given(NamedTuple):
    """What a caller says about the entries; see `observed_only`."""

    missing: str = "raise"
    mask: Any = None
    weights: Any = None

    def applied(self, V: DataMatrix, samples_in: str) -> DataMatrix:
        """Return V, or the view of it that knows its weights."""
        if samples_in == "rows":
            return observed_only(V, **self._asdict())
        mask, weights = (
            one if one is None or is_of_features(one) else _turned(V, name, one)
            for name, one in (("mask", self.mask), ("weights", self.weights))
        )
        return observed_only(V, missing=self.missing, mask=mask, weights=weights)


def _turned(V: DataMatrix, name: str, table: Any) -> Any:
    table = in_order(V.names, name, table, "feature", "sample")
    try:
        return table.T if hasattr(table, "T") else np.asarray(table).T
    except Exception:  # rows that differ in length, an object of the caller's own
        return table


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

    What was known of V before holds as well. V itself is returned if nothing is missing and all
    entries count alike.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Entries that are missing may be anything.
    missing : {"raise", "nan", "zeros"}
        Entries that are missing: none, NaN, or zeros; of sparse data those that are not stored.
    mask : array (N, F), optional
        True where an entry is known. The rows and columns of a data frame are matched by name.
    weights : array (N, F) or (F,), optional
        At least 0; an entry of weight 0 is missing. With one number for each feature, a weight of 2
        gives what the feature twice gives; a pandas Series is matched by name.
    """
    require_data_matrix(V, holes=True)
    choice("missing", missing, ("raise", "nan", "zeros"))
    if missing == "raise" and mask is None and weights is None:
        return V
    if V.unweighed is not None:
        own: Weighed = V.unweighed
        return own.again(observed_only(own.V, missing=missing, mask=mask, weights=weights))
    parts = [] if V.observed is None else [*V.observed.aligned]
    for name, given in (("mask", mask), ("weights", weights)):
        if given is not None:
            parts.append(_checked(V, name, given))
    is_pattern = V.observed is not None and V.observed.weights is None
    is_pattern |= missing == "zeros" and is_sparse(V.columns(np.arange(1)))
    if missing == "nan" or (missing == "zeros" and not is_pattern):
        parts.append(V.sweep(is_number if missing == "nan" else is_not_zero)[0])
    if is_pattern and parts:
        parts.append(V.sweep(is_stored)[0])
    if not parts and not is_pattern:
        return V
    rows = parts[0] if parts else None
    for part in parts[1:]:
        rows = V.map(weights_times, rows, part)[0]
    view = copy.copy(V) if rows is None else with_zeros(V, rows)
    for name in ("names", "vocabulary", "remarks", "preparation"):
        setattr(view, name, getattr(V, name))
    view.observed = Observed.of(view, rows)
    if view.observed is None:
        return V if V.observed is None else view
    if view.observed.missing == 1:
        raise DataError("every entry is missing: there is nothing to factor")
    _warn(view.observed.n_empty_samples, int(view.observed.empty_features.sum()))
    return view


def without_unit(V: DataMatrix) -> DataMatrix:
    """Return V with weights of 1 if all that is known of it counts alike, else V itself."""
    if V.observed is None or V.observed.is_mask or not V.observed.is_alike:
        return V
    twin = copy.copy(V)
    twin.observed = Observed.of(V, V.map(is_positive, V.observed.weights)[0])
    return twin


def _warn(n_samples: int, n_features: int) -> None:
    for count, what in ((n_samples, "sample"), (n_features, "feature")):
        if count:
            problem = f"nothing is observed of {counted(count, what)}: coefficients and components "
            warnings.warn(InputWarning(problem + "are zero there"), stacklevel=4)


def _check_scale(
    name: str, dtype: np.dtype[Any], lowest: float, highest: float, squares: float
) -> None:
    """Refuse weights, or weights of samples, with which numbers leave the range of their type."""
    largest = _LARGEST_WEIGHT if dtype == np.float64 else _LARGEST_IN_SINGLE
    if 1 / largest <= lowest and highest <= largest and squares_within(dtype, squares):
        return
    size = f" has numbers from {lowest:g} to {highest:g}, with which squares leave the range of "
    advice = f"{dtype}; divide it by its largest number, and write 0 for the tiny ones"
    raise DataError(Message(Option(name), size + advice))


def _checked(V: DataMatrix, name: str, table: Any) -> Aligned:
    """A mask or weights as an aligned array (N, F) of numbers that are at least 0."""
    F, N = V.shape
    is_short = name == "weights" and is_of_features(table)
    table = in_order(V.names, name, table, *(("feature",) if is_short else ("sample", "feature")))
    if sp.issparse(table):
        table = table.toarray()
    if not hasattr(table, "dtype") or not hasattr(table, "shape"):
        try:
            table = np.asarray(table)
        except Exception:  # rows that differ in length, an object of the caller's own
            table = np.empty((), dtype=object)
    if np.ma.is_masked(table):
        raise DataTypeError(Message(Option(name), ": some entries are masked; fill them first"))
    if getattr(table.dtype, "kind", "O") not in "fiub":
        problem = f" has entries of type {table.dtype}, expected numbers"
        raise DataTypeError(Message(Option(name), problem))
    if is_short and table.shape == (F,):
        table = np.broadcast_to(table, (N, F))
    if tuple(table.shape) != (N, F):
        problem = f" has shape {tuple(table.shape)}, expected one entry for each of the data, "
        also = f", or for each feature, {(F,)}" if name == "weights" else ""
        raise DataError(Message(Option(name), problem, f"{(N, F)}{also}"))
    (lowest, highest) = V.map(extremes, table, reduce=wider)[0]
    if name == "mask" and not np.isnan(lowest):
        table = table.astype(bool, copy=False)
        lowest = highest = 1.0
    if not (lowest >= 0 and np.isfinite(highest)):
        has = " has NaN" if np.isnan(lowest) else f" has entries from {lowest:g} to {highest:g}"
        expected = (
            ": expected finite numbers that are at least 0; write 0 where an entry is missing"
        )
        raise OptionError(Message(Option(name), has + expected))
    return V.align(table)


# --- weights of samples -----------------------------------------------------------------------


def weigh_samples(V: DataMatrix, weights: Any, loss: str = "frobenius") -> DataMatrix:
    """Return a view of V in which samples count as often as their weights say.

    Parameters
    ----------
    V : DataMatrix (F, N)
    weights : array (N,)
        At least 0, not all 0; a pandas Series is matched by name. If all are 1, V is returned.
    loss : {"frobenius", "poisson"}
        What they are the weights of.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [2.0, 0.0]).norms_squared
    array([25., 25.])
    >>> weigh_samples(from_rows([[3.0, 4.0], [1.0, 0.0]]), [0.5, 0.0]).norms_squared.round(6)
    array([12.5,  0. ])
    """
    require_data_matrix(V, holes=True)
    choice("loss", loss, ("frobenius", "poisson"))
    if weights is None:
        return V
    if isinstance(weights, int | float) and not isinstance(weights, bool):
        number("sample_weight", weights, above=0)
        return V  # one number for all
    earlier = V.unweighed
    V = V if earlier is None else earlier.V
    weights = in_order(V.names, "sample_weight", weights, "sample")
    weights = array("sample_weight", weights, V.shape[1:], at_least=0)
    weights = weights.astype(np.float64) * (1.0 if earlier is None else earlier.weights)
    if not weights.any():
        problem = " is zero for every sample: give some a weight above zero"
        raise OptionError(Message(Option("sample_weight"), problem))
    if (weights == 1).all():
        return V
    squares = V.map(weighed_squares, V.norms_squared, weights, power=1 + (loss == "poisson"))[0]
    _check_scale("sample_weight", V.dtype, weights[weights > 0].min(), weights.max(), squares)
    is_whole = bool((weights == np.round(weights)).all())
    view: DataMatrix
    if is_whole and weights.sum() * V.shape[0] <= _MAX_REPEATED_ENTRIES:
        repeated = np.repeat(np.arange(V.shape[1]), weights.astype(np.intp))
        view = take_samples(V, repeated)
        view.unweighed = Weighed(V, weights, loss, repeated=repeated)
        return view
    roots = V.align(np.sqrt(weights))
    scales = V.align(weights) if loss == "poisson" else roots
    view = times_samples(V, scales, holes=True)
    if V.observed is not None:
        rows = V.observed.weights
        if not weights.all():  # what counts nowhere is not known
            rows = V.sweep(is_stored)[0] if rows is None else rows
            rows = V.map(weights_times, rows, (weights > 0)[:, None])[0]
        view.observed = Observed.of(view, rows)
    view.unweighed = Weighed(V, weights, loss, roots=roots, scales=scales)
    return view


def _times_rows(index: range, H: Array, roots: Array) -> tuple[Array, None]:
    return (H * roots[:, None]).astype(H.dtype, copy=False), None

"""Pitfalls of the data: what keeps a factorization from meaning anything, whatever the fit.

Least squares describes what is large. If one feature in other units holds nearly all of the squared
norm, or one sample half of it, the components describe that, and a small error says nothing about
the rest. Columns of classes, identifiers or dates, and codes for missing numbers, are no amounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..data.blocks import over
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import draw_longest, evenly_spaced
from ..data.validate import CODES
from ..io.tables import odd_columns
from ..names import Names
from ..text import counted, excerpt, listed
from ..types import Array
from .details import samples_and_weights

_MAX_ENTRIES = 1 << 20  # of the samples that are looked at
_MIN_SAMPLES = 200  # that are looked at, however many features there are
_FEW_FEATURES = 2.2  # an effective number of features up to which the others hardly count
_POORLY_DESCRIBED = 0.1  # R squared
_MANY_POOR = 0.2  # share of features
_LARGEST_SAMPLE = 0.5  # share of the squared norm
_MOSTLY = 0.9  # share of the samples in which a total is larger than all others together
_LIKE_A_SUM = 0.6  # correlation of a total with the sum of the others
_SHOWN = 3  # names in a finding
_MAX_CLASSES = 20  # different values of a column that may be classes
_N_CODES = 3  # equal entries that may be a code
_CODE_RATIO = 3.0  # of a code over the largest other value of its feature
_MOSTLY_ZEROS = 0.6  # share of entries; counts, rather than brightness of pixels
_TABLE_FEATURES = 200  # columns of a table that somebody wrote; only these may be classes or dates

_CLASSES = re.compile(r"(target|class|labels?|y|species|cluster|category|diagnosis|group)", re.I)


class Pitfall(NamedTuple):
    """One finding about the data, the advice, and whether it is a remark only."""

    finding: str
    advice: str
    grade: str = "poor"


class Features(NamedTuple):
    """How large each feature is, and how well it is described, in samples spread over the data.

    Attributes
    ----------
    columns, weights : arrays (F, n)
        The samples, and the weights of their entries.
    squares : array (F,)
        The squared norm of each feature, with the weights of entries.
    r_squared : array (F,)
        The share of the variance of a feature that the fit explains; NaN if it does not vary.
    """

    columns: Array
    weights: Array
    squares: Array
    r_squared: Array

    @classmethod
    def of(cls, V: DataMatrix, W: Array, H: Aligned) -> Features:
        """Read the samples, and compare them with what a fit makes of them."""
        indices = evenly_spaced(V.n_samples, max(_MIN_SAMPLES, _MAX_ENTRIES // V.n_features))
        columns, weights = samples_and_weights(V, indices)
        fitted = W @ np.asarray(H[:, indices], dtype=float)

        def total(entries: Array) -> Array:
            return np.asarray((weights * entries).sum(axis=1))

        means = over(total(columns), weights.sum(axis=1))
        left = total((columns - fitted) ** 2)
        varies = total((columns - means[:, None]) ** 2)
        squares = total(columns**2)
        varies[varies <= 1e-12 * squares] = np.nan
        return cls(columns, weights, squares, 1.0 - left / varies)

    @property
    def effective_number(self) -> float:
        """The number of equally large features that would hold the norm as evenly."""
        return float(over(self.squares.sum() ** 2, (self.squares**2).sum()))

    @property
    def poor(self) -> Array:
        """The features that are hardly described, the least described first."""
        order = np.argsort(self.r_squared, kind="stable")
        return order[self.r_squared[order] < _POORLY_DESCRIBED]

    @property
    def is_of_few(self) -> bool:
        """Whether so few features decide that others are not described."""
        varying = max(np.isfinite(self.r_squared).sum(), 1)
        return self.effective_number <= _FEW_FEATURES and self.poor.size >= _MANY_POOR * varying

    def poor_in_words(self, names: Names) -> str:
        """Name the features that are hardly described; "" if there are none."""
        poor = self.poor
        if not poor.size:
            return ""
        count = f"{poor.size} of {len(self.squares)} features hardly described"
        return f"{count} (R2 < {_POORLY_DESCRIBED}): {_named(poor, names)}"


def pitfalls(V: DataMatrix, features: Features, K: int, *, for_counts: bool) -> Iterator[Pitfall]:
    """Yield what is wrong with the data, the gravest first."""
    if features.is_of_few:
        yield _units(features, V.names)
    yield from _largest_sample(V)
    yield from _columns_that_are_no_amounts(features, V.names)
    yield from _codes(features, V.names)
    if min(V.shape) <= K:
        side = "features" if V.n_features <= V.n_samples else "samples"
        few = f"{counted(K, 'component')} describe any data of {min(V.shape)} {side}"
        yield Pitfall(few, "use fewer components")
    constant = np.flatnonzero(np.isnan(features.r_squared) & (features.squares > 0))
    if constant.size:
        finding = f"{counted(constant.size, 'feature')} never vary: {_named(constant, V.names)}"
        yield Pitfall(finding, "leave them out", "fair")
    if not for_counts and _may_be_counts(features):
        advice = "if they are counts, loss='poisson' fits their noise"
        yield Pitfall("the entries are whole numbers, mostly zeros", advice, "good")


def _units(features: Features, names: Names) -> Pitfall:
    order = np.argsort(-features.squares, kind="stable")
    largest = order[: max(1, round(features.effective_number))]
    share = features.squares[largest].sum() / features.squares.sum()
    hold = "holds" if largest.size == 1 else "hold"
    finding = f"{_named(largest, names)} {hold} {share:.0%} of the squared norm"
    advice = "scale features to similar size, or leave the largest out"
    if largest.size == 1 and _is_total(features.columns, largest[0]):
        advice = "leave out this total"
    return Pitfall(f"{finding}, with {features.poor_in_words(names)}", advice)


def _is_total(columns: Array, feature: int) -> bool:
    """Return whether a feature rises and falls with the sum of the others, and is larger."""
    values = columns[feature]
    others = columns.sum(axis=0) - values
    is_larger = (values >= others).mean() > _MOSTLY
    return bool(is_larger and np.corrcoef(values, others)[0, 1] > _LIKE_A_SUM)


def _largest_sample(V: DataMatrix) -> Iterator[Pitfall]:
    (largest,) = draw_longest(V, 1)
    (squared,) = np.asarray(V.norms_squared[largest : largest + 1])
    share = squared / V.total
    if share >= _LARGEST_SAMPLE and V.nonzero > 2 / _LARGEST_SAMPLE:
        finding = f"{excerpt(V.names.sample(largest))} holds {share:.0%} of the squared norm"
        yield Pitfall(finding, "leave it out, or scale samples to equal norm")


def _columns_that_are_no_amounts(features: Features, names: Names) -> Iterator[Pitfall]:
    """Find columns of a table that look like classes, row numbers, identifiers or dates."""
    if len(features.columns) > _TABLE_FEATURES:
        return
    labels = [names.feature(place) for place in range(len(features.columns))]
    odd = odd_columns(features.columns.T, labels)
    if odd:
        listed = ", ".join(map(excerpt, odd[:_SHOWN]))
        finding = f"{listed}: a row number, an identifier or a date rather than an amount"
        yield Pitfall(finding, "leave it out")
    for label, values in zip(labels, features.columns, strict=True):
        are_whole = np.unique(values).size <= _MAX_CLASSES and not (values % 1).any()
        if are_whole and _CLASSES.fullmatch(label):
            yield Pitfall(f"{excerpt(label)}: a class rather than an amount", "leave it out")


def _codes(features: Features, names: Names) -> Iterator[Pitfall]:
    for code in CODES:
        is_code = (features.columns == code) & (features.weights > 0)
        others = np.where(is_code, 0.0, features.columns).max(axis=1)
        places = np.flatnonzero((is_code.sum(axis=1) >= _N_CODES) & (code > _CODE_RATIO * others))
        if places.size:
            finding = f"{_named(places, names)}: {code} may be a code for a missing number"
            yield Pitfall(finding, f"missing={code}")


def _may_be_counts(features: Features) -> bool:
    entries = features.columns[features.weights > 0]
    is_mostly_zero = (entries == 0).mean() > _MOSTLY_ZEROS
    return bool(is_mostly_zero and entries.max() > 1 and not (entries % 1).any())


def _named(places: Array, names: Names) -> str:
    """Return the names of some features, for a finding."""
    return listed([excerpt(names.feature(place)) for place in places.tolist()], _SHOWN)

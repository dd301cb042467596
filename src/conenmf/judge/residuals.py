"""Residuals in units of the uncertainties, and Q, the sum of their squares.

Positive matrix factorization compares Q = sum ((x - W H) / sigma)^2 over the known entries with the
value that is expected if the model and the uncertainties are right: the number of known entries
minus the K (F + N) parameters of the features and samples with known entries. The expected Q is
divided among features and samples in proportion to their known entries; a ratio far from 1 shows
where the model or sigma is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.blocks import over
from ..data.groups import Groups, of_residuals, scaled_residuals
from ..data.matrix import Aligned
from ..io.open import as_data
from ..types import Array

QUANTILES = (0.05, 0.5, 0.95)  # of residuals, in a summary
_FAR = 3.0  # in units of sigma: larger residuals count as large
_FAR_FROM_EXPECTED = 1.5  # ratio of Q to its expectation, or the inverse, that causes a remark


def advice_on_sigma(Q: float, expected: float) -> str:
    """Say whether sigma or K seems wrong; "" if Q is near its expectation."""
    if Q * _FAR_FROM_EXPECTED < expected or expected <= 0:
        return "sigma or K seems too large"
    return "sigma or K seems too small" if Q > _FAR_FROM_EXPECTED * expected else ""


@dataclass(frozen=True, eq=False)
class ResidualSummary:
    """The part of `Residuals` that a report shows.

    Attributes
    ----------
    by_feature, by_sample : arrays (F,), (N,)
        Q of each feature and sample over its expected Q.
    quantiles : array (3, F)
        Quantiles 5, 50 and 95% of the residuals of each feature, in units of sigma.
    far : array (F,)
        The share of each feature's known entries with residuals beyond 3 sigma.
    """

    by_feature: Array
    by_sample: Array
    quantiles: Array
    far: Array


@dataclass(frozen=True, eq=False)
class Residuals:
    """The residuals of the known entries in units of sigma, and Q, the sum of their squares.

    Attributes
    ----------
    scaled : array (N, F)
        (x - W H) / sigma, samples in rows; NaN where an entry is missing. Without weights, sigma
        is 1.
    Q : float
        The sum of the squared residuals.
    expected : float
        The number of known entries minus K (F + N), where F and N are the numbers of features and
        samples with known entries.
    by_feature, by_sample : arrays (F,), (N,)
        Q of each feature and sample over its expected Q; NaN if it has no known entry.

    Examples
    --------
    >>> from conenmf import ConeNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((50, 2)) @ rng.random((2, 20)) + 0.1
    >>> sigma = np.full(X.shape, 0.01)
    >>> model = ConeNMF(3).fit(X + sigma * rng.standard_normal(X.shape), sigma=sigma)
    >>> found = model.result_.residuals()
    >>> found.scaled.shape, 0.8 < found.ratio < 1.2
    ((50, 20), True)
    """

    scaled: Array
    Q: float
    expected: float
    by_feature: Array
    by_sample: Array

    @property
    def ratio(self) -> float:
        """Q over the expected Q; NaN if there are more parameters than known entries."""
        return self.Q / self.expected if self.expected > 0 else float("nan")

    def summary(self) -> ResidualSummary:
        """Return the small summary that a report shows."""
        counts = (~np.isnan(self.scaled)).sum(axis=0)
        quantiles = np.full((len(QUANTILES), counts.size), np.nan)
        quantiles[:, counts > 0] = np.nanquantile(self.scaled[:, counts > 0], QUANTILES, axis=0)
        far = over((np.abs(self.scaled) > _FAR).sum(axis=0, dtype=float), counts)
        return ResidualSummary(self.by_feature, self.by_sample, quantiles, far)


def residuals(V: object, W: Array, H: Aligned, *, groups: Groups | None = None) -> Residuals:
    """Return the residuals of V ~ W H; of a fit with groups, those of V ~ diag(b) W H.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
        Opened with `sigma`, or with weights 1 / sigma^2.
    W : array (F, K)
    H : array (K, N)
    groups : Groups, optional
        Those of the problem of a fit, with their scales b.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[1.0, 2.0], [2.0, 5.0]], sigma=[[0.5, 0.5], [1.0, 0.5]])
    >>> found = residuals(V, np.array([[1.0], [2.0]]), np.array([[1.0, 2.0]]))
    >>> found.scaled.tolist(), found.Q
    ([[0.0, 0.0], [0.0, 2.0]], 4.0)
    """
    V = as_data(V, holes=True)
    V = V if groups is None else groups.divided(V)
    rows, how = of_residuals(V, W, H, groups)
    scaled = np.asarray(V.sweep(scaled_residuals, *rows, **how)[0])
    squares = np.nan_to_num(scaled) ** 2
    known = ~np.isnan(scaled)
    n_known = known.sum()
    n_sides = sum(known.any(axis=axis).sum() for axis in (0, 1))
    expected = float(n_known - W.shape[1] * n_sides)
    per_entry = expected / n_known if expected > 0 else np.nan
    with np.errstate(invalid="ignore"):  # features without known entries
        ratios = [squares.sum(axis=axis) / known.sum(axis=axis) / per_entry for axis in (0, 1)]
    return Residuals(scaled, float(squares.sum()), expected, *ratios)

"""How much more counts vary than Poisson counts, and what follows for fits of them.

The variance of a count of mean x is taken as x + phi x^2, that of a Poisson count whose rate varies
itself; phi, the dispersion, is the squared coefficient of variation of the rate. Where it is above
zero the Poisson loss trusts large counts too much, and a few samples with very many of them decide
where all components go. Weights of samples (`balanced`) prevent that, as in quasi-likelihood:
Wedderburn, "Quasi-likelihood functions, generalized linear models, and the Gauss-Newton method",
Biometrika 61, 1974. The best coefficients of a sample do not depend on its weight.
"""

from __future__ import annotations

import numpy as np

from ..arguments import components, generator
from ..data.blocks import Array, dense
from ..data.matrix import DataMatrix
from ..data.resampled import balanced, holds_counts
from ..data.validate import checked_components, require_data_matrix
from ..data.views import take_samples
from ..solve.count_inits import initialize_counts, warmed_up
from ..solve.goals import best_coefficients, goal_of
from ..solve.loop import alternate
from ..solve.stopping import Stopping
from .votes import some_samples

__all__ = ["dispersion"]

_MAX_SAMPLES, _MAX_ENTRIES = 5000, 1 << 22  # that are looked at
_MIN_RATE = 1.0  # of counts whose residuals are looked at
_ACTIVE_SHARE = 1e-3  # of a sample or component, from which on a coefficient counts as fitted
_STOPPING = Stopping(1e-4, max_iter=100)
_ROUNDS = 2  # the second fit has weights, and so follows noise less
_MIN_EXCESS = 4.0  # in standard deviations of the sum of squares
_MAX_DISPERSION = 100.0
_HALVINGS = 60


def dispersion(V: DataMatrix, K: int, rng: np.random.Generator) -> float:
    """Return the dispersion of counts around a fit with K components: phi in x + phi x^2.

    The phi with which squared residuals, divided by their variance, add up to the degrees of
    freedom. It is 0 if they do so without it, up to chance, and if entries are not counts. With
    fewer components than there are it is too large, since what they do not explain looks like
    noise. Of large data some samples are looked at.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> rates = rng.dirichlet(np.ones(40), 3).T @ rng.gamma(2.0, 1000.0, (3, 90))
    >>> dispersion(from_columns(rng.poisson(rates).astype(float)), 3, rng)
    0.0
    >>> varying = rates * rng.gamma(20, 1 / 20, rates.shape)
    >>> round(dispersion(from_columns(rng.poisson(varying).astype(float)), 3, rng), 2)
    0.05
    """
    require_data_matrix(V, whole=True, nonzero=True)
    K = checked_components(components(K), V)
    generator("rng", rng)
    if not holds_counts(V):
        return 0.0
    part = some_samples(V, rng, _MAX_SAMPLES, _MAX_ENTRIES)
    counts = np.asarray(dense(part.columns(np.arange(part.shape[1]))), np.float64)
    method = goal_of("poisson", "auto")[2]
    if method is None:
        raise AssertionError("every loss has a solver")
    phi = 0.0
    for _ in range(_ROUNDS):
        data = take_samples(balanced(part, phi), np.arange(part.shape[1]))
        initial = warmed_up(data, initialize_counts(data, min(K, *part.shape), "random", rng))
        W = alternate(data, initial.W, initial.H, method, stopping=_STOPPING).W
        H = np.asarray(best_coefficients(part, W, "poisson")[0])
        phi = _solved(counts, W.astype(np.float64), H.astype(np.float64))
    return phi


def _solved(counts: Array, W: Array, H: Array) -> float:
    rates = W @ H
    active = H * W.sum(axis=0)[:, None] > _ACTIVE_SHARE * rates.sum(axis=0)
    n_fitted = active.sum() + (W > _ACTIVE_SHARE * W.max(axis=0)).sum() - W.shape[1]
    seen = rates >= _MIN_RATE
    x = rates[seen]
    squares = (counts[seen] - x) ** 2 / x
    freedom = max(x.size - float(n_fitted), x.size / 2)
    if squares.sum() <= freedom + _MIN_EXCESS * np.sqrt(3 * freedom):  # their variance is 2 + 1/x
        return 0.0
    low, high = 0.0, _MAX_DISPERSION
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (squares / (1 + middle * x)).sum() > freedom:
            low = middle
        else:
            high = middle
    return low

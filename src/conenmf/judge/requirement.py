"""How many components an error needs: at least k, by a lower bound, and at most k', by a fit.

The statement needs no assumption about the data. No fit of fewer than k components has an error of
e, because a lower bound for k - 1 components is above e; bounds for more components hold for fewer
too. And k' is the smallest number for which a fit with this error was found, so it is an upper end
that better fits may lower.

An error of 0 means the rounding of the data (`linalg.rank`): k is the rank above rounding, and k'
the smallest number of components found whose product differs from V by rounding only. If both are
equal, the number of components is proved. A rank alone does not prove it: a matrix of rank 3 may
need any number of nonnegative components. `exact_factors` looks for such factors in two ways.
Samples (or features) that contain one component each are found by successive projections. Or the
columns of W lie in the span of V, whose dimension is K, and are zero where those of a converged fit
are nearly zero; K - 1 zeros determine a column up to its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.linalg import lstsq, norm
from numpy.random import default_rng

from ..arguments import number
from ..data.blocks import EPS
from ..data.matrix import DataMatrix
from ..data.resample import holds_counts
from ..data.views import dense_samples
from ..errors import ComponentsError, ConeNMFError
from ..io.open import as_data, from_columns
from ..linalg.nnls import nnls
from ..linalg.rank import Rank, rank_above_rounding, scaled_features
from ..linalg.svd import KnownSpectrum, Spectrum
from ..solve.alternate import alternate
from ..solve.inits import Start
from ..solve.problem import Problem, problem_of
from ..solve.run import Stopping
from ..solve.separable import snpa
from ..text import counted
from ..types import Array, Interval

_MAX_FITS = 8
_MAX_RAISES = 2  # of k by bounds that take longer
_ROUNDING = 1e-13  # of ||V||^2, as in certificates
_STOPPING = Stopping(1e-5, max_iter=500)
_MAX_ENTRIES = 1 << 22  # of data whose rank above rounding is computed
_MAX_EXACT_ENTRIES = 1 << 18  # of data whose exact factors are searched


@dataclass(frozen=True)
class Requirement:
    """How many components an error needs; see `components_for`.

    Attributes
    ----------
    error : float
        The relative error; 0 means the rounding of the data.
    low : int
        No fit of fewer components has this error.
    high : int or None
        The smallest number of components of a fit that has this error; None if no fit reached it.
    bounds : dict
        The lower bound of the error for numbers of components.
    errors : dict
        The relative errors of the fits that were made.
    failure_probability : float
        0.0, or the probability that `low` is too large; see `LowerBound`.
    """

    error: float
    low: int
    high: int | None
    bounds: dict[int, float]
    errors: dict[int, float]
    failure_probability: float = 0.0

    @property
    def sentence(self) -> str:
        """The statement in words."""
        error = (
            f"a relative error of {self.error:.4g}" if self.error else "an error within rounding"
        )
        needed = f"{error} needs at least {counted(self.low, 'component')}"
        if self.high is not None:
            return (
                f"{error} needs at least {self.low} and at most {counted(self.high, 'component')}"
            )
        tried = max(self.errors, default=0)
        return f"{needed}; no fit up to {tried} reached it" if tried else needed

    def __str__(self) -> str:
        return self.sentence


def components_for(
    V: object, error: float, *, loss: str = "frobenius", problem: Problem | None = None
) -> Requirement:
    """Say how many components an error needs at least, by a bound, and at most, by a fit.

    At most 8 fits are made. Bounds are known for least squares, also with missing or weighted
    entries or known components, and for counts; for other losses the lower end is 1.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    error : float
        A relative error from 0 to below 1, as `Factorization.relative_error`; 0 means the rounding
        of the data.
    loss : str
    problem : Problem, optional
        The problem of the fits. Known components are among the components that are counted; the
        lower end holds with and without penalties.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> rng = np.random.default_rng(0)
    >>> V = from_columns(rng.random((20, 4)) ** 3 @ rng.random((4, 60)) ** 3)
    >>> found = components_for(V, 0.05)
    >>> found.low, found.high
    (4, 4)
    >>> components_for(V, 0.0).sentence
    'an error within rounding needs at least 4 components'
    """
    V = as_data(V, nonzero=True, holes=True)
    error = number("error", error, at_least=0, below=1)
    with V.own_threads():
        return Search(V, problem_of(problem, loss, "components_for")).requirement(error)


class Search:
    """The bounds and fits of one V from which requirements are made."""

    def __init__(self, V: DataMatrix, problem: Problem, spectrum: KnownSpectrum = None) -> None:
        loss = problem.loss
        self.V = V
        self.problem = problem.bind(V, loss.solver("auto"))
        self.spectrum = spectrum
        if V.is_complete and loss.noise is None:
            self.spectrum = Spectrum.of(V, spectrum)
        self.bounds: dict[int, float] = {}
        self.errors: dict[int, float] = {}
        self.chance = 0.0

    def requirement(self, error: float) -> Requirement:
        """Return how many components this error needs."""
        most = min(self.V.shape)
        least = max(self.problem.n_fixed, 1)
        if error == 0 and self.V.is_complete and self.problem.fixed is None:
            low, high = self._within_rounding()
        else:
            low = self._least(error, least, most)
            known = [k for k, value in self.errors.items() if value <= error]
            high = min(known, default=None)
            high = first(lambda k: self._error(k) <= error, low, high or most, _MAX_FITS) or high
        bounds = dict(sorted(self.bounds.items()))
        errors = dict(sorted(self.errors.items()))
        return Requirement(error, low, high, bounds, errors, self.chance)

    def _least(self, error: float, least: int, most: int) -> int:
        """Return the smallest number of components whose lower bound allows this error."""
        limit = error**2 + _ROUNDING
        low = first(lambda k: self._bound(k, 0) ** 2 <= limit, least, most) or most
        for _ in range(_MAX_RAISES):
            if low == most or self._bound(low, 3) ** 2 <= limit:
                break
            low += 1
        return low

    def _bound(self, K: int, effort: int) -> float:
        """Return a lower bound for the relative error of K components."""
        value, chance = self._bound_and_chance(K, effort)
        self.chance = max(self.chance, chance)
        self.bounds[K] = max(value, self.bounds.get(K, 0.0))
        return self.bounds[K]

    def _bound_and_chance(self, K: int, effort: int) -> Interval:
        fixed = self.problem.fixed
        bounds = self.problem.loss.bounds(self.V, self.spectrum)
        if K >= min(self.V.shape) or bounds is None:
            return 0.0, 0.0
        found = bounds.below(K, effort, None if fixed is None else fixed.W)
        return found.value, found.failure_probability

    def _error(self, K: int) -> float:
        """Return the relative error of a fit of K components."""
        if K not in self.errors:
            try:
                W, problem = fitted_components(self.problem, self.V, K, _STOPPING, self.spectrum)
                self.errors[K] = problem.finish(self.V, W, sort=False)[1]
            except ComponentsError:  # fewer distinct samples
                self.errors[K] = math.inf
        return self.errors[K]

    def _within_rounding(self) -> tuple[int, int | None]:
        found = exact_rank(self.V)
        if found is None:
            return 1, None
        high = exact_number(self.V, found, _MAX_FITS) if found.is_exact else None
        if found.is_full:
            high = found.number  # V = V I, without the features and samples of zeros
        return found.number, high


def first(
    is_enough: Callable[[int], bool], low: int, high: int, tries: int | None = None
) -> int | None:
    """Return the smallest number from low to high that is found to be enough, or None.

    Steps from `low` double until a number is enough; the last step is then halved. All larger
    numbers are taken to be enough too. With a limit of tries, the number may not be the smallest.

    >>> first(lambda k: k >= 11, 3, 100), first(lambda k: k >= 11, 3, 100, 2)
    (11, None)
    """
    k = low
    step = 1
    below = low - 1  # the largest number that is known not to be enough
    left = high if tries is None else tries
    while left and not is_enough(k):
        below = k
        left -= 1
        if k == high:
            return None
        k = min(k + step, high)
        step *= 2
    if not left:
        return None
    while left > 1 and k - below > 1:
        middle = (below + k) // 2
        left -= 1
        if is_enough(middle):
            k = middle
        else:
            below = middle
    return k


def first_start(
    problem: Problem, V: DataMatrix, K: int, spectrum: KnownSpectrum
) -> tuple[Start, Problem]:
    """Return the first init of the loss, and the problem with the weights of its penalties."""
    solver = problem.loss.solver("auto")
    init = problem.inits(V, K, solver)[0]
    start = problem.begin(V, K, init, solver, default_rng(0), spectrum)
    return start, problem.weighed(start, spectrum)


def fitted_components(
    problem: Problem, V: DataMatrix, K: int, stopping: Stopping, spectrum: KnownSpectrum = None
) -> tuple[Array, Problem]:
    """Return W of a fit of K components from the first init of the loss, and its problem."""
    start, problem = first_start(problem, V, K, spectrum)
    if K == problem.n_fixed:
        return start.W, problem
    objective = problem.objective(V)
    solver = problem.loss.solver("auto")
    run = alternate(V, start.W, start.H, solver, stopping=stopping, objective=objective)
    return problem.restored(run.W), problem


# --- within rounding ----------------------------------------------------------------------------


def exact_rank(V: DataMatrix) -> Rank | None:
    """Return the rank of complete data above rounding; None if V is large."""
    if V.size > _MAX_ENTRIES or not V.is_complete:
        return None
    eps = EPS if holds_counts(V) else float(np.finfo(V.dtype).eps)
    return rank_above_rounding(dense_samples(V), eps)


def exact_number(V: DataMatrix, found: Rank, tries: int) -> int | None:
    """Return the smallest number of components found whose product differs from V by rounding.

    One or two components are as many as the rank. For more, small data are searched.
    """
    if found.number <= 2:
        return found.number
    if V.size > _MAX_EXACT_ENTRIES:
        return None
    B = scaled_features(dense_samples(V))
    B = B[B.any(axis=1)][:, B.any(axis=0)]
    for K in range(found.number, min(found.number + tries, *B.shape)):
        if has_exact_factors(B, K, found):
            return K
    return None


def has_exact_factors(B: Array, K: int, found: Rank) -> bool:
    """Return whether K nonnegative components are found whose product is B to rounding."""
    for one in (B, B.T):
        W = one[:, _pure(one / one.sum(axis=0), K)]
        if _residual(one, W) <= found.rounding:
            return True
    return False


def _pure(B: Array, K: int) -> Array:
    """Return K samples whose hull contains the others, if there are such samples."""
    try:
        return snpa(from_columns(B), K)
    except ConeNMFError:  # fewer are outside the hull of the others
        return np.arange(min(K, B.shape[1]))


def _residual(B: Array, W: Array) -> float:
    """Return the norm of B - W H for the best H >= 0."""
    is_used = nnls(W.T @ W, B.T @ W).T > 0
    H = np.zeros(is_used.shape)  # from W itself: W'W has lost half of the digits
    for pattern in np.unique(is_used, axis=1).T:
        some = (is_used == pattern[:, None]).all(axis=0)
        H[np.ix_(pattern, some)] = lstsq(W[:, pattern], B[:, some])[0]
    return float(norm(B - W @ np.maximum(H, 0)))

"""Independent halves of the samples: which components return, and whether components predict.

A component is a property of the data, not of one sample of them, if fits of both halves of the
samples contain it. `half_spectra` fits both halves of several random splits from random starts, and
`agreement` compares these fits with the components that are to be judged.

`structure` asks whether there is anything to interpret at all. Components are learned from one half
of the samples. In the other half, coefficients are fitted to half of the features, and the rest is
predicted. In noise, and in data of one component, K components predict the rest worse than one.

Equal samples stay in one half, and so do the samples of a group, because they are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, default_rng

from ..data.blocks import exact
from ..data.entries import pack, unpack
from ..data.matrix import DataMatrix, multiplied
from ..data.memory import hold
from ..data.resample import evenly_spaced
from ..data.views import hold_copy, take_samples, unit_samples
from ..errors import ConeNMFError
from ..judge.matching import match_components
from ..linalg.nnls import nnls
from ..solve.inits import Init
from ..solve.losses import Loss, get_loss
from ..solve.problem import Problem
from ..solve.run import Callback, Iteration, Run, Stopping
from ..text import counted
from ..types import Array, Pair
from .details import samples_and_weights

N_SPLITS = 3
_HALF_STOPPING = Stopping(tol=1e-3, max_iter=40)  # the cosines hardly change after that
_MIN_UNITS_PER_COMPONENT = 4  # of independent samples, in both halves together
_MIN_FEATURES_PER_COMPONENT = 4  # to predict half of the features from the other half
_PREDICTED_SAMPLES = 500  # of each half, to learn components from and to predict
_SAMPLES_PER_COMPONENT = 20  # ... at least
_LIFTED_SHARE = 1e-3  # of the mean of a component, added to its entries before it predicts
_MAX_PREDICTED_ENTRIES = 1 << 21  # of the samples of each half whose features are predicted
_DIGITS = 9  # of projections of a sample that are compared with those of others

Watch = Callable[[str], object]


@dataclass(frozen=True)
class HalfFit:
    """How a half of the samples is fitted: like the whole, but briefly and from a random start.

    Attributes
    ----------
    problem : Problem
        What the whole fit minimises.
    init : str
        "random", or the name of an init that is the whole fit.
    """

    problem: Problem
    init: str = "random"

    def of(
        self,
        V: DataMatrix,
        K: int,
        rng: Generator,
        share: float = 1.0,
        callback: Callback | None = None,
    ) -> Array:
        """Return W (F, K) of a fit of V, which is a share of the samples."""
        is_random = self.init == "random"
        solver = self.problem.loss.solver("auto") if is_random else None
        data, problem = self.problem.scaled(share).bind(V, solver).iterated(V)
        init: Init = self.init
        if problem.penalties.sum_to_one:
            init = problem.inits(data, K, solver)[0]
        W, H, *_ = problem.begin(data, K, init, solver, rng)
        if solver is not None:
            objective = problem.objective(data)
            run = Run(objective, W, H, solver, _HALF_STOPPING, callback=callback)
            run.run()
            W = problem.restored(run.factors()[0])
        return exact(W)


# --- splits -------------------------------------------------------------------------------------


def units_of(V: DataMatrix, groups: Array | None = None) -> Array:
    """Number the units (N,) that are drawn together: groups, or else equal samples; -1 for zeros.

    >>> from conenmf import from_rows
    >>> units_of(from_rows([[1.0, 2.0], [0.0, 0.0], [3.0, 0.0], [1.0, 2.0]])).tolist()
    [0, -1, 1, 0]
    """
    squared = np.asarray(V.norms_squared)
    nonzero = np.flatnonzero(squared > 0)
    if groups is None:
        directions = default_rng(0).standard_normal((V.n_features, 2))
        (projections, _) = V.sweep(multiplied, X=directions)
        size = np.sqrt(squared[nonzero, None])
        projected = np.asarray(projections)[nonzero] / size
        marks = np.hstack([projected, np.log(size)])
        own = list(map(tuple, marks.round(_DIGITS).tolist()))
    else:
        own = groups[nonzero].tolist()
    numbers: dict[Hashable, int] = {}
    units = np.full(V.n_samples, -1)
    units[nonzero] = [numbers.setdefault(one, len(numbers)) for one in own]
    return units


def splits(units: Array, count: int, rng: Generator) -> Iterator[tuple[Array, Array]]:
    """Yield the indices of both halves of random splits; a unit is in one half only."""
    sizes = np.bincount(units[units >= 0])
    is_first = np.zeros(sizes.size, dtype=bool)
    for _ in range(count):
        surplus = 0  # of samples in the first half
        for unit in rng.permutation(sizes.size):
            is_first[unit] = surplus <= 0
            surplus += sizes[unit] if is_first[unit] else -sizes[unit]
        half = np.where(units < 0, -1, is_first[units])
        first = np.flatnonzero(half == 1)
        second = np.flatnonzero(half == 0)
        yield first, second


# --- components that return ---------------------------------------------------------------------


def half_spectra(
    V: DataMatrix,
    K: int,
    how: HalfFit,
    units: Array,
    rng: Generator,
    n_splits: int = N_SPLITS,
    watch: Watch = str,
) -> Array:
    """Return W (n, F, K) of fits of both halves of splits; fewer if `watch` returns True.

    A half that cannot be fitted, for instance because it has too few directions, has zeros.
    """
    fits = list(_fits_of_halves(V, K, how, splits(units, n_splits, rng), rng, n_splits, watch))
    n_finished = len(fits) // 2 * 2  # of both halves of a split
    return np.array(fits[:n_finished]).reshape(-1, V.n_features, K)


def _fits_of_halves(
    V: DataMatrix,
    K: int,
    how: HalfFit,
    pairs: Iterable[Pair],
    rng: Generator,
    n_splits: int,
    watch: Watch,
) -> Iterator[Array]:
    """Yield W (F, K) of one half after the other, until `watch` returns True."""
    for number, pair in enumerate(pairs):
        tell = partial(_tell, watch, f"split {number + 1} of {n_splits}")
        for indices in pair:
            W = np.zeros((V.n_features, K))
            share = len(indices) / V.n_samples
            with suppress(ConeNMFError):
                W = how.of(take_samples(V, indices), K, rng, share, tell)
            if tell() is True:
                return
            yield W


def _tell(watch: Watch, note: str, now: Iteration | None = None) -> object:
    return watch(note)


def cosines_in_halves(W: Array, spectra: Array) -> Array:
    """Return the cosine (n, K) of each component of W (F, K) with its partner in n fits.

    >>> cosines_in_halves(np.eye(2), np.array([np.eye(2)[::-1], [[1.0, 0.0], [1.0, 1.0]]])).round(2)
    array([[1.  , 1.  ],
           [0.71, 1.  ]])
    """
    found = [match_components(W, one)[1] for one in spectra]
    return np.array(found).reshape(-1, W.shape[1])


# --- structure ----------------------------------------------------------------------------------


class Structure(NamedTuple):
    """In which share of the samples components predict hidden features better than one does.

    Attributes
    ----------
    share : float
        With half of the features hidden, chosen at random.
    far : float
        With the first or the last half hidden, so that neighbours do not give features away.
    """

    share: float
    far: float


def why_untested(V: DataMatrix, K: int, units: Array) -> str:
    """Return why halves cannot show whether K components predict; "" if they can."""
    if K == 1:
        return "one component describes the mean, and is not compared with less"
    least = _MIN_FEATURES_PER_COMPONENT * K
    if V.n_features < least:
        return f"not tested: {K} components need {least} features, and there are {V.n_features}"
    n_units = units.max() + 1
    if n_units < _MIN_UNITS_PER_COMPONENT * K:
        return f"{counted(n_units, 'different sample')} are too few for two halves"
    return ""


def structure(
    V: DataMatrix, K: int, loss: Loss, units: Array, equal: Array, rng: Generator
) -> Structure:
    """Ask whether K components, or 2, predict the hidden features of unseen samples better than 1.

    For least squares, samples count with equal norm.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    loss : Loss
    units : array (N,)
        The samples with one number stay in one half.
    equal : array (N,)
        Equal samples have one number, and count once; zero samples have -1.
    rng : Generator

    Examples
    --------
    >>> from conenmf import from_rows
    >>> rng = np.random.default_rng(0)
    >>> mixtures = rng.dirichlet(np.full(3, 0.3), 200) @ rng.gamma(0.5, 1.0, (3, 40))
    >>> noise = rng.random((200, 40))
    >>> each = np.arange(200)
    >>> loss = get_loss("frobenius")
    >>> found = [structure(from_rows(X), 3, loss, each, each, rng) for X in (mixtures, noise)]
    >>> found[0].share > 0.9, found[1].share < 0.45
    (True, True)
    """
    if not V.is_complete:
        loss = get_loss("frobenius")  # coefficients for other losses need all entries
    _, once = np.unique(equal, return_index=True)
    once = once[equal[once] >= 0]
    at_most = max(_PREDICTED_SAMPLES, _SAMPLES_PER_COMPONENT * K)
    share = min(1.0, at_most / len(once))
    n_splits = math.ceil(N_SPLITS * share)
    n_predicted = max(_MAX_PREDICTED_ENTRIES // V.n_features, 1)
    is_first = np.arange(V.n_features) < V.n_features // 2
    shares = []
    for pair in splits(units, n_splits, rng):
        halves = [_some(np.intersect1d(half, once), at_most) for half in pair]
        for learned, others in (halves, halves[::-1]):
            part = take_samples(V, learned)
            if loss.noise is None and part.is_complete:
                part = hold_copy(unit_samples(part))
            fits = [HalfFit(Problem(loss)).of(part, k, rng) for k in sorted({1, 2, K})]
            predicted = samples_and_weights(V, _some(others, n_predicted))
            hidden = (rng.permutation(is_first), is_first)
            shares.append([_better(*predicted, loss, fits, one) for one in hidden])
    share, far = np.mean(shares, axis=0).max(axis=1).tolist()
    return Structure(share, far)


def _some(indices: Array, at_most: int) -> Array:
    """Return some of the indices, evenly spaced."""
    return indices[evenly_spaced(len(indices), at_most)]


def _better(
    columns: Array, weights: Array, loss: Loss, fits: list[Array], is_hidden: Array
) -> Array:
    """Return the share of samples that each fit but the first predicts better than the first."""
    errors = np.zeros((len(fits), columns.shape[1]))
    for hidden in (is_hidden, ~is_hidden):
        seen = ~hidden
        known = (columns[seen], weights[seen])
        for own, W in zip(errors, fits, strict=True):
            W = W + _LIFTED_SHARE * W.mean(axis=0)  # so that no entry is impossible
            H = _coefficients(*known, loss, W[seen])
            fitted = W[hidden] @ H.T
            own += loss.sample_errors(columns[hidden], fitted, weights[hidden])
    return (errors[1:] < errors[0]).mean(axis=1)


def _coefficients(columns: Array, weights: Array, loss: Loss, W: Array) -> Array:
    """Return the best coefficients (n, K) for columns (F, n) with weights."""
    if (weights == 1).all():
        seen = loss.data(hold(np.ascontiguousarray(columns.T)))
        return np.asarray(loss.coefficients(seen, W)[0].T, dtype=float)
    grams = unpack(weights.T @ pack(W), W.shape[1])
    sides = (columns * weights).T @ W
    return nnls(grams, sides)

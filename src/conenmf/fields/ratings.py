"""Ratings of items by users: means of users and items, and components of taste.

A rating of item i by user u is modelled as

    offset of the user + offset of the item + (W H)(i, u)

The offsets are regularised means: each is computed as if there were three more ratings equal to the
mean. The remainder is shifted by a constant level to be nonnegative, and factored with W, H >= 0
and L2 penalties. The first component is the same for all items. A few average users and items are
added, with ratings equal to the level; they pull the coefficients of the first component towards
the level. So the prediction for a user with few ratings is close to the means; with penalties alone
it would be close to zero. Ratings are divided by their standard deviation before the fit, so the
model does not depend on their unit.

If users differ more in taste than in their means, offsets increase the error. They are then zero,
the level is the mean, and no component is fixed. The number of components, the penalty and the use
of offsets are chosen to predict hidden ratings best. If the result has offsets and a single
component, other components do not improve on the means.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arguments import components, integer
from ..data.blocks import entries_of
from ..data.known import observed_only
from ..data.matrix import DataMatrix
from ..errors import DataError, Option, OptionError
from ..io.open import from_rows
from ..io.triples import triples_of_frame
from ..names import Names
from ..pipeline import factorize
from ..result import Factorization
from ..solve.constraints import Fixed, Penalties
from ..text import counted
from ..types import Array, Pair, Shape

_DAMPING = 3.0  # number of extra ratings, equal to the mean, of each user and item
_ROUNDS = 10  # rounds that compute offsets of users and of items in turn
_AVERAGES = 10  # average users, and items, that are appended
_LEVEL_SCALE = 1e3  # scale of the known component, so that penalties hardly change its coefficients
_PENALTIES = (1.25e-3, 2.5e-3, 5e-3, 1e-2, 2e-2)  # of ratings with unit deviation: alpha_W to try
_NUMBERS = (5, 2, 3, 9, 17)  # numbers of components to try; the penalty is chosen with the first
_FOLDS = 10  # of the ratings; the first one measures the error of the model
_CHOOSING = (1, 2, 3)  # folds that select the model
_LEAST = 1 + len(_CHOOSING)  # ratings, one for each of these folds
_MAX_ITER = 100
_Model = tuple[int, float, bool]  # a number of components, a penalty, whether there are offsets
_NEGLIGIBLE = 1e-9  # of the mean: a smaller standard deviation of the ratings is rounding


@dataclass(frozen=True, eq=False)
class Ratings:
    """A model of ratings: predictions, and recommendations for a user.

    Attributes
    ----------
    result : Factorization
        The factorization of the ratings minus the offsets; items are features, users are samples.
        With offsets its first component, "level", is one for every item.
    offsets : pair of arrays (N,), (F,)
        The offsets of users and of items, which are added to W H; zero if they do not help.
    known : sparse array (N, F)
        The ratings. Predictions are in their range.
    rmse, rmse_of_means : float
        Root mean squared errors of this model, and of regularised means, with the weights of the
        ratings if there are any. They were measured on a tenth of the ratings, before the last fit;
        this tenth was not used to choose the parameters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> taste = 1 + 2 * rng.random((60, 2)) @ rng.random((2, 40))
    >>> model = fit_ratings(sp.csr_array(taste * (rng.random(taste.shape) < 0.3)), 3)
    >>> model.predict([0, 1], [5, 6]).shape, len(model.recommend(0, 3))
    ((2,), 3)
    """

    result: Factorization
    offsets: Pair
    known: Any
    rmse: float
    rmse_of_means: float

    def predict(self, users: object, items: object) -> Array:
        """Return the predicted ratings for pairs of a user and an item, given by their names.

        If the data have no names, pass the indices of rows and columns.

        Parameters
        ----------
        users, items : names or indices
            Two lists of equal length. A single name, not in a list, belongs to every pair.
        """
        rows, columns = self._all_places("user", users), self._all_places("item", items)
        if rows.ndim and columns.ndim and rows.size != columns.size:
            sizes = f"{counted(rows.size, 'user')} and {counted(columns.size, 'item')}"
            advice = "give an item for each user, or a single name that is not in a list"
            raise DataError(f"users and items differ in length, {sizes}: {advice}")
        rows, columns = np.broadcast_arrays(np.atleast_1d(rows), columns)
        found = _scores(self.offsets, self.result, rows, columns)
        return np.clip(found, self.known.data.min(), self.known.data.max())

    def recommend(self, user: object, n: int = 10) -> list[tuple[str, float]]:
        """Return the items with the highest predictions that a user has not rated, best first.

        Parameters
        ----------
        user : name, or index if users have no names
        n : int

        Returns
        -------
        list of pairs: the item and its predicted rating
        """
        names = [*self._places["item"]]
        place = self._place("user", user)
        items = np.setdiff1d(np.arange(len(names)), self.known[[place]].indices)
        found = _scores(self.offsets, self.result, np.full(items.size, place), items)
        best = items[np.argsort(-found, kind="stable")[: integer("n", n, at_least=1)]]
        chosen = [names[item] for item in best]
        ratings = self.predict(user, chosen)
        return list(zip(map(str, chosen), ratings.tolist(), strict=True))

    def summary(self) -> str:
        """Say how well hidden ratings are predicted."""
        means = f"regularised means of users and items: {self.rmse_of_means:.4g}"
        return f"RMSE of hidden ratings: {self.rmse:.4g} ({means})"

    @cached_property
    def _places(self) -> dict[str, dict[Any, int]]:
        """The positions of users and of items, by their names, or by indices if they have none."""
        names = self.result.names
        N, F = self.known.shape
        users = names.sample_names or range(N)
        items = names.feature_names or range(F)
        sides = {"user": users, "item": items}
        return {kind: {name: n for n, name in enumerate(side)} for kind, side in sides.items()}

    def _all_places(self, kind: str, names: Any) -> Array:
        """Return the positions of several users or items, or of one, without axes."""
        is_one = isinstance(names, str) or not isinstance(names, Iterable)
        if is_one or getattr(names, "ndim", 1) == 0:
            return np.array(self._place(kind, names))
        return np.array([self._place(kind, name) for name in names], np.intp)

    def _place(self, kind: str, name: Any) -> int:
        places = self._places[kind]
        asked = name if isinstance(name, Hashable) and name in places else str(name)
        if asked not in places:
            problem = f": there is no such {kind}; the first of {len(places)} is "
            raise OptionError(Option(kind, name), problem, str(next(iter(places))))
        return places[asked]


def fit_ratings(X: object, K: int | str = "auto") -> Ratings:
    """Model ratings by the means of users and items, plus a factorization of the remainder.

    Parameters
    ----------
    X : sparse matrix or array (users, items), data frame, or DataMatrix
        At least four ratings above 0. Entries that are not stored, zeros and NaN are unknown. The
        columns of a data frame of pandas or polars are named like userId, movieId and rating, or
        the first three contain these; another data frame has users in rows and items in columns.
        `open_data` reads files. Weights of entries or samples of a DataMatrix count relative to
        their mean.
    K : int or "auto"
        The number of components; with offsets the first is the level. "auto" chooses the number
        that predicts hidden ratings best, which is 1 if other components do not help.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> taste = 1 + 2 * rng.random((60, 2)) @ rng.random((2, 40))
    >>> model = fit_ratings(sp.csr_array(taste * (rng.random(taste.shape) < 0.3)), 3)
    >>> len(model.recommend(0, n=5)), bool(model.rmse < 0.3)
    (5, True)
    """
    V, ratings = _opened(X)
    unit = _unit(ratings.values)
    known = ratings._replace(values=ratings.values / unit)
    folds = np.random.default_rng(0).permutation(known.values.size) % _FOLDS

    def error(model: _Model | None, fold: int) -> float:
        """Return the error of a fit, or of means, in a fold left out with the first one."""
        hidden = known.taken(folds == fold)
        rest = known.taken((folds > 0) & (folds != fold))
        if model is None:
            users, items, mean = _means(rest, V.shape)
            return hidden.rmse(mean + users[hidden.samples] + items[hidden.features])
        offsets, fit = _fit(rest, V, model)
        return hidden.rmse(_scores(offsets, fit, hidden.samples, hidden.features))

    @cache
    def mean_error(model: _Model | None) -> float:
        return float(np.mean([error(model, fold) for fold in _CHOOSING]))

    def best_of(models: Iterable[_Model]) -> _Model:
        return min(models, key=mean_error)

    numbers = [k for k in _NUMBERS if k <= min(V.shape)] or [1]
    first, *others = numbers if K == "auto" else [components(K)]
    best = best_of((first, alpha, True) for alpha in _PENALTIES)
    best = best_of((k, best[1], True) for k in (first, *others))
    plain = best_of((first, alpha, False) for alpha in _PENALTIES)
    for k in others:
        if k < 2 * plain[0]:  # many components are slow
            plain = best_of([plain, (k, *plain[1:])])
    best = best_of([best, *((plain[0], alpha, False) for alpha in _PENALTIES)])
    if K == "auto" and mean_error(None) <= mean_error(best):
        best = (1, best[1], True)
    of_means = unit * error(None, 0)
    of_fit = unit * error(best, 0)
    (users, items), fit = _in_unit(*_fit(known, V, best), unit, has_level=best[2])
    reason = "this number of components predicts hidden ratings best" if K == "auto" else "user"
    left = ratings.values - users[ratings.samples] - items[ratings.features]
    data = ratings._replace(values=left).opened(V.shape, V.names)
    fit = replace(fit, names=V.names, data=data, K_decided_by=reason)
    fit = replace(fit, problem=replace(fit.problem, entries=fit.problem.entries.of(data)))
    return Ratings(fit, (users, items), ratings.matrix(V.shape), of_fit, of_means)


class _Known(NamedTuple):
    """Known ratings: items, users, values and weights, whose mean is 1 for all ratings together."""

    features: Array
    samples: Array
    values: Array
    weights: Array

    def taken(self, where: Array) -> _Known:
        """Return some of the ratings."""
        return _Known(*(array[where] for array in self))

    def matrix(self, shape: Shape) -> Any:
        """Return a sparse array (N, F) of the values."""
        F, N = shape
        return sp.csr_array((self.values, (self.samples, self.features)), (N, F))

    def table_of_weights(self, shape: Shape, count: int = 0) -> Array | None:
        """Return weights (N, F), and 1 for some average users and items; None if all are equal."""
        if np.ptp(self.weights) == 0:
            return None
        F, N = shape
        table = np.ones((N + count, F + count))
        table[:N, :F] = 0.0
        table[self.samples, self.features] = self.weights
        return table

    def opened(self, shape: Shape, names: Names) -> DataMatrix:
        """Return a matrix of the values with their weights."""
        V = from_rows(self.matrix(shape), missing="zeros", names=names)
        return observed_only(V, weights=self.table_of_weights(shape))

    def rmse(self, predicted: Array) -> float:
        """Return the weighted root mean squared error of predictions."""
        return float(np.sqrt(np.average((predicted - self.values) ** 2, weights=self.weights)))


def _unit(values: Array) -> float:
    """Return the standard deviation of ratings, or their mean if all are equal."""
    deviation, mean = float(values.std()), float(values.mean())
    return deviation if deviation > _NEGLIGIBLE * mean else mean


def _in_unit(
    offsets: Pair, fit: Factorization, unit: float, *, has_level: bool
) -> tuple[Pair, Factorization]:
    """Return a model of ratings that were divided by a unit as one of the ratings themselves."""
    sizes = np.where(has_level & (np.arange(fit.K) == 0), 1.0, np.sqrt(unit))
    H = np.asarray(fit.H) * (unit / sizes)[:, None]
    given = fit.problem.penalties
    penalties = replace(given, l2_h=unit * given.l2_h, l2_w=unit * given.l2_w)
    problem = replace(fit.problem, penalties=penalties)
    objective = unit**2 * fit.objective
    fit = replace(fit, W=fit.W * sizes, H=H, objective=objective, problem=problem)
    return (unit * offsets[0], unit * offsets[1]), fit


def _fit(known: _Known, V: DataMatrix, model: _Model) -> tuple[Pair, Factorization]:
    """Fit known ratings of the users and items of V.

    Return the offsets of users and items, and a factorization of the remainder.
    """
    F, N = V.shape
    K, alpha, has_offsets = model
    users, items, mean = _means(known, V.shape, _ROUNDS * has_offsets)
    left = known.values - mean - users[known.samples] - items[known.features]
    level = max(mean, -2.0 * float(left.min())) if has_offsets else mean
    centred = known._replace(values=left + level)
    averaged = from_rows(with_averages(centred.matrix(V.shape), level), missing="zeros")
    averaged = observed_only(averaged, weights=known.table_of_weights(V.shape, _AVERAGES))
    penalties = Penalties.as_in_sklearn(averaged.shape, alpha_W=alpha)
    constant = np.full((F + _AVERAGES, 1), _LEVEL_SCALE)
    fixed = Fixed(constant, ("level",)) if has_offsets else None
    full = factorize(averaged, K, fixed=fixed, penalties=penalties, max_iter=_MAX_ITER)
    scales = np.where(has_offsets & (np.arange(K) == 0), _LEVEL_SCALE, 1.0)
    W = full.W[:F] / scales
    H = np.asarray(full.H)[:, :N] * scales[:, None]
    offsets = users + (mean - level), items
    labels = np.asarray(full.labels)[:N]
    level_alone = Fixed(W[:, :1], fixed.names) if fixed is not None else None
    problem = replace(full.problem, fixed=level_alone)
    fit = replace(full, W=W, H=H, labels=labels, problem=problem)
    fit = replace(fit, names=Names(), data=None, spectrum=None)
    found = _scores(offsets, fit, known.samples, known.features)
    squares = float((known.weights * (found - known.values) ** 2).sum())
    error = np.sqrt(squares / float((known.weights * centred.values**2).sum()))
    return offsets, replace(fit, objective=squares, relative_error=float(error))


def with_averages(X: object, value: float, count: int = _AVERAGES) -> Any:
    """Return sparse ratings with `count` average users and items appended, a csr_array.

    All their ratings are `value`.

    >>> with_averages(sp.csr_array([[5.0, 0.0], [0.0, 3.0]]), 4.0, 1).toarray().tolist()
    [[5.0, 0.0, 4.0], [0.0, 3.0, 4.0], [4.0, 4.0, 4.0]]
    """
    known = sp.csr_array(X)
    n_users, n_items = known.shape
    items = sp.csr_array(np.full((n_users, count), value))
    users = sp.csr_array(np.full((count, n_items + count), value))
    return sp.vstack([sp.hstack([known, items]), users], format="csr")


def _opened(X: Any) -> tuple[DataMatrix, _Known]:
    """Return a matrix whose samples are users, and its known ratings, all above zero."""
    rated = X if isinstance(X, DataMatrix) else triples_of_frame(X) or X
    V = rated
    if not isinstance(V, DataMatrix):  # 0 means zeros and NaN
        V = from_rows(rated, missing=0 if rated is X and not sp.issparse(X) else "zeros")
    of_users = None if V.unweighed is None else V.unweighed.weights
    V = V if V.unweighed is None else V.unweighed.V
    entries = entries_of(V.columns(np.arange(V.n_samples)))
    n_known = V.n_features * V.n_samples if V.observed is None else V.observed.counts.sum()
    n_wrong = int(n_known - np.count_nonzero(entries.values > 0))
    if n_wrong:
        problem = f"ratings must be above 0, and {n_wrong} of {int(n_known)} are not: "
        advice = "leave out pairs that are not rated, or add the same number to all ratings"
        raise DataError(problem + advice)
    weights = np.ones(entries.values.size)
    if V.observed is not None and V.observed.weights is not None:
        weights *= np.asarray(V.observed.weights)[entries.samples, entries.features]
    if of_users is not None:
        weights *= of_users[entries.samples]
    known = _Known(*entries, weights).taken(weights > 0)
    if known.values.size < _LEAST:
        problem = "fit_ratings hides some ratings to choose and to judge the model, and X has only"
        raise DataError(f"{problem} {known.values.size}: give at least {_LEAST}")
    return V, known._replace(weights=known.weights / known.weights.mean())


def _means(known: _Known, shape: Shape, rounds: int = _ROUNDS) -> tuple[Array, Array, float]:
    """Return regularised offsets of users and items (zeros without rounds), and the mean."""
    F, N = shape
    mean = float(np.average(known.values, weights=known.weights))
    users = np.zeros(N)
    items = np.zeros(F)
    for _ in range(rounds):
        left = known.values - mean - items[known.features]
        users = _offsets(known.samples, left, known.weights, N)
        left = known.values - mean - users[known.samples]
        items = _offsets(known.features, left, known.weights, F)
    return users, items, mean


def _offsets(groups: Array, left: Array, weights: Array, size: int) -> Array:
    counts = np.bincount(groups, weights, size)
    return np.bincount(groups, weights * left, size) / (counts + _DAMPING)


def _scores(offsets: Pair, fit: Factorization, users: Array, items: Array) -> Array:
    tastes = np.asarray(fit.H).T[users] * fit.W[items]
    return offsets[0][users] + offsets[1][items] + tastes.sum(axis=1)

"""Ratings of items by users: means of users and items, and components of taste.

A rating of item i by user u is modelled as

    offset of the user + offset of the item + (W H)(i, u)

The offsets are regularised means: each is computed as if there were three more ratings equal to the
mean. The remainder is shifted by a constant level to be nonnegative, and factored with W, H >= 0
and L2 penalties. The first component is the same for all items. A few average users and items are
added, with ratings equal to the level; they pull the coefficients of the first component towards
the level. So the prediction for a user with few ratings is close to the means; with penalties alone
it would be close to zero.

If users differ more in taste than in their means, offsets increase the error. They are then zero,
the level is the mean, and no component is fixed. The number of components, the penalty and the use
of offsets are chosen to predict hidden ratings best. If the result has offsets and a single
component, other components do not improve on the means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arguments import Pair, Shape, components, integer
from .data.blocks import Array, Entries, entries_of
from .data.matrix import DataMatrix
from .errors import DataError, Option, OptionError
from .io.open import from_rows
from .io.tables import columns_of_triples, matrix_of_triples, may_be_triples
from .names import Names
from .pipeline import factorize
from .result import Factorization
from .solve.constraints import Fixed, Penalties

_DAMPING = 3.0  # number of extra ratings, equal to the mean, of each user and item
_ROUNDS = 10  # rounds that compute offsets of users and of items in turn
_AVERAGES = 10  # average users, and items, that are appended
_LEVEL_SCALE = 1e3  # scale of the known component, so that penalties hardly change its coefficients
_PENALTIES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)  # values to try for alpha_W
_NUMBERS = (5, 2, 3, 9, 17)  # numbers of components to try; the penalty is chosen with the first
_FOLDS = 10  # of the ratings; the first one measures the error of the model
_CHOOSING = (1, 2, 3)  # folds that select the model
_MAX_ITER = 100
_Model = tuple[int, float, bool]  # a number of components, a penalty, whether there are offsets
_LOOKED_AT = 20  # rows of a data frame without titles, to see whether they are ratings


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
        Root mean squared errors of this model, and of regularised means. They were measured on a
        tenth of the ratings, before the last fit; this tenth was not used to choose the parameters.

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

    def predict(self, users: Sequence[object], items: Sequence[object]) -> Array:
        """Return the predicted ratings for pairs of a user and an item, given by their names.

        Parameters
        ----------
        users, items : sequences of the same length
            Names, or the indices of rows and columns if the data have no names.
        """
        rows = np.array([self._place("user", one) for one in users], np.intp)
        columns = np.array([self._place("item", one) for one in items], np.intp)
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
        ratings = self.predict([user] * best.size, chosen)
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

    def _place(self, kind: str, name: Any) -> int:
        places = self._places[kind]
        asked = name if name in places else str(name)
        if asked not in places:
            problem = f": there is no such {kind}; the first of {len(places)} is "
            raise OptionError(Option(kind, name), problem, str(next(iter(places))))
        return places[asked]


def fit_ratings(X: object, K: int | str = "auto") -> Ratings:
    """Model ratings by the means of users and items, plus a factorization of the remainder.

    Parameters
    ----------
    X : sparse matrix (users, items), data frame, or DataMatrix
        Ratings above 0; entries that are not stored are unknown. The columns of a data frame are
        named like userId, movieId and rating, or the first three contain these; `open_data` reads
        files.
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
    V = _opened(X)
    known = entries_of(V.columns(np.arange(V.n_samples)))
    folds = np.random.default_rng(0).integers(_FOLDS, size=known.values.size)

    def error(model: _Model | None, fold: int) -> float:
        """Return the error of a fit, or of means, in a fold left out with the first one."""
        hidden = _taken(known, folds == fold)
        rest = _taken(known, (folds > 0) & (folds != fold))
        if model is None:
            users, items, mean = _means(rest, V.shape)
            return _rmse(mean + users[hidden.samples] + items[hidden.features] - hidden.values)
        offsets, fit = _fit(rest, V, model)
        return _rmse(_scores(offsets, fit, hidden.samples, hidden.features) - hidden.values)

    @cache
    def mean_error(model: _Model | None) -> float:
        return float(np.mean([error(model, fold) for fold in _CHOOSING]))

    def best_of(models: Iterable[_Model]) -> _Model:
        return min(models, key=mean_error)

    first, *others = [components(K)] if K != "auto" else [k for k in _NUMBERS if k <= min(V.shape)]
    best = best_of((first, alpha, True) for alpha in _PENALTIES)
    best = best_of((k, best[1], True) for k in (first, *others))
    plain = best_of((first, alpha, False) for alpha in _PENALTIES)
    for k in others:
        if k < 2 * plain[0]:  # many components are slow
            plain = best_of([plain, (k, *plain[1:])])
    best = best_of([best, *((plain[0], alpha, False) for alpha in _PENALTIES)])
    if K == "auto" and mean_error(None) <= mean_error(best):
        best = (1, best[1], True)
    of_means = error(None, 0)
    of_fit = error(best, 0)
    offsets, fit = _fit(known, V, best)
    reason = "this number of components predicts hidden ratings best" if K == "auto" else "user"
    left = known.values - offsets[0][known.samples] - offsets[1][known.features]
    own = _matrix(known._replace(values=left), V.shape)
    data = from_rows(own, missing="zeros", names=V.names)
    facts = {"missing": V.observed.missing, "weighted": False}  # of the original users and items
    settings = {**fit.settings, "observed": facts}
    fit = replace(fit, names=V.names, data=data, K_decided_by=reason, settings=settings)
    return Ratings(fit, offsets, _matrix(known, V.shape), of_fit, of_means)


def _fit(known: Entries, V: DataMatrix, model: _Model) -> tuple[Pair, Factorization]:
    """Fit known ratings of the users and items of V.

    Return the offsets of users and items, and a factorization of the remainder.
    """
    F, N = V.shape
    K, alpha, has_offsets = model
    users, items, mean = _means(known, V.shape, _ROUNDS * has_offsets)
    left = known.values - mean - users[known.samples] - items[known.features]
    level = max(mean, -2.0 * float(left.min())) if has_offsets else mean
    centred = _matrix(known._replace(values=left + level), V.shape)
    averaged = from_rows(with_averages(centred, level), missing="zeros")
    penalties = Penalties.as_in_sklearn(averaged.shape, alpha_W=alpha)
    constant = np.full((F + _AVERAGES, 1), _LEVEL_SCALE)
    fixed = Fixed(constant, ("level",)) if has_offsets else None
    full = factorize(averaged, K, fixed=fixed, penalties=penalties, max_iter=_MAX_ITER)
    scales = np.where(has_offsets & (np.arange(K) == 0), _LEVEL_SCALE, 1.0)
    W = full.W[:F] / scales
    H = np.asarray(full.H)[:, :N] * scales[:, None]
    offsets = users + (mean - level), items
    fit = replace(full, W=W, H=H, labels=np.asarray(full.labels)[:N], names=Names(), data=None)
    found = _scores(offsets, fit, known.samples, known.features)
    squares = float(((found - known.values) ** 2).sum())
    error = np.sqrt(squares / float((centred.data**2).sum()))
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


def _opened(X: Any) -> DataMatrix:
    """Return ratings as a matrix whose stored entries are the known ones, all above zero."""
    if hasattr(X, "iloc"):
        places = columns_of_triples([str(one) for one in X.columns])
        if not places and may_be_triples(X.head(_LOOKED_AT).astype(str).to_numpy().tolist()):
            places = (0, 1, 2)
        if places:
            users, items, ratings = (X.iloc[:, place].tolist() for place in places)
            rows = zip(range(len(X)), map(str, users), map(str, items), ratings, strict=True)
            X = matrix_of_triples("the data frame", rows)
    V = X if isinstance(X, DataMatrix) else from_rows(X, missing="zeros")
    if V.observed is None or V.observed.counts.sum() != V.measures.n_entries:
        raise DataError("ratings must be above 0: leave out pairs that are not rated")
    return V


def _means(known: Entries, shape: Shape, rounds: int = _ROUNDS) -> tuple[Array, Array, float]:
    """Return regularised offsets of users and items (zeros without rounds), and the mean."""
    F, N = shape
    mean = float(known.values.mean())
    users = np.zeros(N)
    items = np.zeros(F)
    for _ in range(rounds):
        users = _offsets(known.samples, known.values - mean - items[known.features], N)
        items = _offsets(known.features, known.values - mean - users[known.samples], F)
    return users, items, mean


def _offsets(groups: Array, left: Array, size: int) -> Array:
    counts = np.bincount(groups, minlength=size)
    return np.bincount(groups, left, size) / (counts + _DAMPING)


def _scores(offsets: Pair, fit: Factorization, users: Array, items: Array) -> Array:
    tastes = np.asarray(fit.H).T[users] * fit.W[items]
    return offsets[0][users] + offsets[1][items] + tastes.sum(axis=1)


def _taken(known: Entries, where: Array) -> Entries:
    return Entries(known.features[where], known.samples[where], known.values[where])


def _matrix(known: Entries, shape: Shape) -> Any:
    F, N = shape
    return sp.csr_array((known.values, (known.samples, known.features)), (N, F))


def _rmse(left: Array) -> float:
    return float(np.sqrt(np.mean(left**2)))

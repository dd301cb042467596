"""Ratings of items by users: offsets of users and items, and components of taste.

A rating of item i by user u is modelled as

    offset of the user + offset of the item + (W H)(i, u),    W, H >= 0

and all four are fitted together to the known ratings. Offsets have an L2 penalty. The rows of W and
of H' are drawn towards their own weighted mean, not towards zero, by the penalty

    sum over rows r of (penalty + share * number of ratings of r) ||row r - mean||^2

So a user with few ratings is predicted like the average user. A mean above zero also makes the
constraint cheap: a taste that is below the mean acts like a negative one, as offsets absorb the
difference. Penalties are relative to the standard deviation of the ratings, so the model does not
depend on their unit.

A round of coordinate descent minimises over each entry once, first for users, then for items, from
the residuals of the known ratings alone. The penalties and the number of components are chosen by
hidden ratings. These are drawn by a hash of who rated what and how, so neither the order of users
and items nor the repetition of a user matters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.linalg import norm

from .. import kernels
from ..arguments import components, function, integer, optional, several
from ..data.blocks import entries_of, over
from ..data.known import observed_only
from ..data.matrix import DataMatrix
from ..errors import DataError, InputWarning, Option, OptionError
from ..io.open import from_rows
from ..io.triples import triples_of_frame
from ..names import Names
from ..result import Factorization
from ..solve.coefficients import shares_of, sorting
from ..solve.problem import Problem
from ..solve.run import History, StopReason
from ..text import counted
from ..types import Array, Facts, Pair

# Constants are for ratings with a standard deviation of 1.
_DAMPINGS = (2.0, 4.0, 8.0)  # of offsets: like as many more ratings that equal the mean
# Of the factors: tried in this order, each from the last factors, until one does not help.
_PENALTIES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25)
_LEAST_TRIED = 3  # penalties that are tried in any case
_FLAT = 100.0  # a penalty with which components hardly differ between users or items
_PER_RATING = 0.02  # what each rating of a row adds to its penalty
_FIRST_K = 5  # the number of components with which the penalty is chosen
_OTHER_K = (2, 10)  # the others to try
_MARGIN = 1e-3  # by so much of the error may fewer components be worse
_BEGIN = 0.1  # least entry of the first factors; the largest is twice as large
_ROUNDS = 20  # of fits that choose or judge the model
_MAX_ITER = 100  # rounds of the last fit
_TOL = 3e-4  # a fit ends when its objective falls by less than this share in a round
_FOLDED = 1e-12  # the same for new users
_FOLDS = 10  # parts of the ratings: the first judges the model, the second chooses it
_LEAST = 4  # ratings
_NEGLIGIBLE = 1e-9  # of the mean: a smaller standard deviation of the ratings is rounding
_REASON = "the least number of components that predicts hidden ratings as well as any, to 0.1 %"

# Called with the current step and the share of the work that is done.
_Progress: TypeAlias = Callable[[str, float], object]
_Pulls: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Ratings:
    """A model of ratings: predictions, and recommendations for users.

    Attributes
    ----------
    result : Factorization
        The factorization of the ratings minus the offsets; items are features, users are samples.
    offsets : pair of arrays (N,), (F,)
        The offsets of users, around the mean rating, and of items, around zero.
    known : sparse array (N, F)
        The ratings. Predictions are in the range of those that the model was fitted to.
    rmse, rmse_of_means : float
        Root mean squared errors of this model, and of regularised means, with the weights of the
        ratings if there are any. They were measured on a tenth of the ratings, before the last fit;
        this tenth was not used to choose the parameters.
    average_user : array (1 + K,)
        The offset and the coefficients of a user without ratings.
    pulls : (float, float, float)
        How strongly a user is drawn to the average user: the penalties of the offset and of the
        coefficients, and what each rating adds to the latter.
    scale : pair of float
        The smallest and the largest rating.

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
    average_user: Array
    pulls: tuple[float, float, float]
    scale: tuple[float, float]

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
        return np.clip(_scores(self._rows, rows, columns), *self.scale)

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
        (found,) = self.recommend_many([user], n).values()
        return found

    def recommend_many(
        self, users: Iterable[object] | None = None, n: int = 10
    ) -> dict[str, list[tuple[str, float]]]:
        """Return the recommendations of several users, as `recommend` does for one.

        Parameters
        ----------
        users : names or indices, optional
            By default all users.
        n : int

        Returns
        -------
        dict: for each user a list of pairs, the item and its predicted rating
        """
        n = integer("n", n, at_least=1)
        names = [*map(str, self._places["item"])]
        found = {}
        users = self._places["user"] if users is None else several("users", users)
        for name in users:
            user = self._place("user", name)
            items = np.setdiff1d(np.arange(len(names)), self.known[[user]].indices)
            scores = _scores(self._rows, np.full_like(items, user), items)
            best = np.argsort(-scores, kind="stable")[:n]
            ratings = np.clip(scores[best], *self.scale)
            chosen = [names[item] for item in items[best]]
            found[str(name)] = [*zip(chosen, ratings.tolist(), strict=True)]
        return found

    def with_ratings(self, X: object) -> Ratings:
        """Return a model of other users, or of the same ones with more ratings, without a fit.

        Items stay as they are. The offset and the coefficients of each user minimise what
        `fit_ratings` minimises, so one rating is enough.

        Parameters
        ----------
        X : as in `fit_ratings`
            All ratings of these users. Items are found by their names if both have names, and X may
            then lack some of them.

        Examples
        --------
        >>> taste = 1 + np.random.default_rng(0).random((30, 2)) @ [[3, 0, 2, 1], [0, 3, 1, 2]]
        >>> model = fit_ratings(taste[:20], 2)
        >>> model.with_ratings(taste[20:]).known.shape
        (10, 4)
        """
        V, known = _opened(X)
        F = self.result.n_features
        names = V.names.feature_names
        if names and self.result.names.feature_names:
            known = known._replace(items=self._all_places("item", names)[known.items])
        elif V.n_features != F:
            problem = f"X has {counted(V.n_features, 'item')} and the model {F}: pass as many"
            raise DataError(f"{problem} columns, or names of items")
        known = known._replace(n_items=F)
        rows = np.tile(self.average_user, (V.n_samples, 1)), self._rows[1]
        fit = _fitted(known, known.sides(), rows, self.pulls, _MAX_ITER, self.average_user)
        all_names = Names(V.names.sample_names, self.result.names.feature_names)
        result = replace(self.result, **_facts(known, fit.rows, all_names))
        offsets = fit.rows[0][:, 0], self.offsets[1]
        return replace(self, result=result, offsets=offsets, known=known.matrix(known.values))

    def summary(self) -> str:
        """Say how well hidden ratings are predicted."""
        means = f"regularised means of users and items: {self.rmse_of_means:.4g}"
        return f"RMSE of hidden ratings: {self.rmse:.4g} ({means})"

    @cached_property
    def _rows(self) -> Pair:
        """Rows of users (N, 1 + K) and of items (F, 1 + K): offset, then factors."""
        users, items = self.offsets
        H = np.asarray(self.result.H)
        return np.column_stack([users, H.T]), np.column_stack([items, self.result.W])

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


def fit_ratings(X: object, K: int | str = "auto", *, callback: _Progress | None = None) -> Ratings:
    """Model ratings by offsets of users and items, plus a factorization of the remainder.

    Parameters
    ----------
    X : sparse matrix or array (users, items), data frame, or DataMatrix
        At least four ratings above 0. Entries that are not stored, zeros and NaN are unknown. The
        columns of a data frame of pandas or polars are named like userId, movieId and rating, or
        the first three contain these; another data frame has users in rows and items in columns.
        `open_data` reads files. Weights of entries of a DataMatrix count relative to their mean; a
        sample of weight 2 is equivalent to repeating the user.
    K : int or "auto"
        The number of components. "auto" chooses the least number that predicts hidden ratings as
        well as any, to 0.1 %; it is 1 if components do not improve on offsets.
    callback : callable, optional
        Called with the current step and the share of the work that is done, from 0 to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> taste = 1 + 2 * rng.random((60, 2)) @ rng.random((2, 40))
    >>> model = fit_ratings(sp.csr_array(taste * (rng.random(taste.shape) < 0.3)), 3)
    >>> len(model.recommend(0, n=5)), bool(model.rmse < 0.3)
    (5, True)
    """
    tell = optional(function, "callback", callback, takes=2) or (lambda *_: None)
    V, known = _opened(X)
    if known.values.size < _LEAST:
        problem = "fit_ratings hides ratings to choose and to judge the model, and X has only"
        raise DataError(f"{problem} {known.values.size}: give at least {_LEAST}")
    numbers = [k for k in (_FIRST_K, *_OTHER_K) if k <= min(V.shape)] or [1]
    if K != "auto":
        numbers = [components(K)]
    sides = known.sides()
    keys = _keys(known)
    part = _parts(known, keys)
    unit = known.unit
    n_fits = len(_DAMPINGS) + len(_PENALTIES) + len(numbers) + 3
    fits: list[_Fit] = []

    def fit(first: int, rows: Pair, pulls: _Pulls, max_iter: int = _ROUNDS) -> _Fit:
        """Fit the ratings of this part and of all later ones."""
        tell(f"fitting {counted(rows[0].shape[1] - 1, 'component')}", len(fits) / n_fits)
        fits.append(_fitted(known.without(part < first), sides, rows, pulls, max_iter))
        return fits[-1]

    def error(fit: _Fit) -> float:
        return known.rmse(fit.left, part == 1)

    def begin(K: int) -> Pair:
        return _first_rows(known, keys, K, np.sqrt(unit))

    def pulls(damping: float, penalty: float) -> _Pulls:
        return damping, unit * penalty, unit * _PER_RATING

    means = [fit(2, begin(0), pulls(damping, _FLAT)) for damping in _DAMPINGS]
    flat = min(means, key=error).pulls
    rows = begin(numbers[0])
    paths = []
    for penalty in _PENALTIES:
        paths.append(fit(2, rows, pulls(flat[0], penalty)))
        rows = paths[-1].rows
        if len(paths) >= _LEAST_TRIED and error(paths[-1]) > error(paths[-2]):
            break
    best = min(paths, key=error)
    paths += [fit(2, begin(k), best.pulls) for k in numbers[1:]]
    paths.append(fit(2, begin(1 if K == "auto" else numbers[0]), flat))
    limit = (1 + _MARGIN) * min(map(error, paths))
    best = min(paths, key=lambda fit: (error(fit) > limit, fit.K, error(fit)))
    mean = fit(1, begin(0), best.pulls)
    judged = fit(1, best.rows, best.pulls)
    last = fit(0, judged.rows, best.pulls, _MAX_ITER).sorted()
    facts = _facts(known, last.rows, Names(V.names.sample_names, V.names.feature_names))
    squares, elapsed, passes = last.history
    errors = np.sqrt(over(squares, squares[-1:])) * facts["relative_error"]
    result = Factorization(
        **facts,
        history=History(errors, elapsed, passes),
        stop_reason=StopReason.CONVERGED,
        seconds={"solve": float(elapsed[-1])},
        passes=0.0,
        settings={},
        K_decided_by=_REASON if K == "auto" else "user",
        init_used="random",
    )
    return Ratings(
        result,
        (last.rows[0][:, 0], last.rows[1][:, 0]),
        known.matrix(known.values),
        known.rmse(judged.left, part == 0),
        known.rmse(mean.left, part == 0),
        last.average,
        last.pulls,
        known.scale,
    )


def _scores(rows: Pair, users: Array, items: Array) -> Array:
    """Return the predictions for pairs of a user and an item."""
    of_users, of_items = rows[0][users], rows[1][items]
    tastes = np.einsum("ek,ek->e", of_users[:, 1:], of_items[:, 1:])
    return of_users[:, 0] + of_items[:, 0] + tastes


# --- ratings ----------------------------------------------------------------------------------


class _Known(NamedTuple):
    """Known ratings: users, items, values and weights; the weights of users; how many items."""

    users: Array
    items: Array
    values: Array
    weights: Array
    importance: Array
    n_items: int

    def without(self, hidden: Array) -> _Known:
        """Return the ratings with weights of 0 where they are hidden."""
        return self._replace(weights=np.where(hidden, 0.0, self.weights))

    def rmse(self, left: Array, where: Array) -> float:
        """Return the weighted root mean squared error of some predictions, given residuals."""
        wrong = np.clip(self.values - left, *self.scale) - self.values
        return float(np.sqrt(np.average(wrong[where] ** 2, weights=self.weights[where])))

    def sides(self) -> tuple[_Side, _Side]:
        """Return the ratings grouped by user, and by item."""
        of_users = _Side.of(self.users, self.items, self.importance)
        return of_users, _Side.of(self.items, self.users, np.ones(self.n_items))

    @property
    def mean(self) -> float:
        """The mean rating."""
        return float(np.average(self.values, weights=self.weights))

    @property
    def scale(self) -> tuple[float, float]:
        """The smallest and the largest rating."""
        return float(self.values.min()), float(self.values.max())

    @property
    def unit(self) -> float:
        """The standard deviation of the ratings, or their mean if all are equal."""
        deviation = self.rmse(self.values - self.mean, self.weights > 0)
        return deviation if deviation > _NEGLIGIBLE * self.mean else self.mean

    def matrix(self, values: Array) -> Any:
        """Return values, one for each rating, as a sparse array (N, F)."""
        shape = self.importance.size, self.n_items
        return sp.csr_array((values, (self.users, self.items)), shape)


def _opened(X: Any) -> tuple[DataMatrix, _Known]:
    """Return a matrix whose samples are users, and its known ratings, all above zero."""
    rated = X if isinstance(X, DataMatrix) else triples_of_frame(X) or X
    V = rated
    if not isinstance(V, DataMatrix):  # 0 means zeros and NaN
        V = _read(rated, missing=0 if rated is X and not sp.issparse(X) else "zeros")
    importance = np.ones(V.n_samples)
    if V.unweighed is not None:
        importance = np.maximum(V.unweighed.weights, _NEGLIGIBLE**2)
        V = V.unweighed.V
    entries = entries_of(V.columns(np.arange(V.n_samples)))
    n_known = V.n_features * V.n_samples if V.observed is None else V.observed.counts.sum()
    n_wrong = int(n_known - np.count_nonzero(entries.values > 0))
    if n_wrong:
        problem = f"ratings must be above 0, and {n_wrong} of {int(n_known)} are not: "
        advice = "leave out pairs that are not rated, or add the same number to all ratings"
        raise DataError(problem + advice)
    items, users = entries.features, entries.samples
    weights = np.ones(users.size)
    if V.observed is not None and V.observed.weights is not None:
        weights *= np.asarray(V.observed.weights)[users, items]
    weights *= importance[users] / np.average(weights, weights=importance[users])
    there = weights > _NEGLIGIBLE
    values = entries.values[there]
    rest = weights[there], importance, V.n_features
    return V, _Known(users[there], items[there], values, *rest)


def _read(X: object, **how: Any) -> DataMatrix:
    """Read a matrix without the warning that rows and columns without ratings become zero."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "nothing is observed", InputWarning)
        return from_rows(X, **how)


def _shares(rows: Pair) -> Array:
    """Return the shares of components."""
    H, W = (side[:, 1:] for side in rows)
    return shares_of(W.T @ W, H.T @ H)


def _facts(known: _Known, rows: Pair, names: Names) -> Facts:
    """Return what a result says of these rows: factors, labels, data and errors."""
    of_users, of_items = rows
    H, W = of_users[:, 1:], of_items[:, 1:]
    values = known.values - of_users[known.users, 0] - of_items[known.items, 0]
    left = known.values - _scores(rows, known.users, known.items)
    contributions = H * norm(W, axis=0)
    labels = np.where(contributions.any(axis=1), contributions.argmax(axis=1), -1)
    V = _read(known.matrix(values), missing="zeros", negative="keep", names=names)
    if np.ptp(known.weights) > 0:
        V = observed_only(V, weights=known.matrix(known.weights))
    objective = float(known.weights @ left**2)
    return {
        "W": np.ascontiguousarray(W),
        "H": np.ascontiguousarray(H.T),
        "labels": labels,
        "shares": _shares(rows),
        "problem": Problem().bind(V),
        "objective": objective,
        "relative_error": float(np.sqrt(over(objective, known.weights @ values**2))),
        "names": names,
        "data": V,
    }


# --- hidden ratings and first factors, by hashes of who rated what and how ----------------------


def _mixed(keys: Array) -> Array:
    """Return a hash of 64 bits of each key."""
    for _ in range(2):
        keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return keys ^ (keys >> np.uint64(32))


def _keys(known: _Known) -> Pair:
    """Return a key for each user and each item, which stays the same if they are permuted.

    Users with equal ratings have equal keys; the keys of items see one of them.
    """
    kinds = np.unique(known.values, return_inverse=True)[1]
    table = known.matrix(_mixed(1 + kinds.astype(np.uint64)))
    rows = table @ _mixed(1 + np.arange(known.n_items, dtype=np.uint64))
    is_first = np.zeros_like(rows)
    is_first[np.unique(rows, return_index=True)[1]] = 1
    users = is_first
    for _ in range(2):
        items = _mixed(table.T @ (users * is_first))
        users = _mixed(table @ items)
    return users, items


def _parts(known: _Known, keys: Pair) -> Array:
    """Return 0 for a tenth of the ratings, 1 for another one, and larger numbers for the others."""
    users, items = keys
    pairs = np.unique(_mixed(users[known.users] + items[known.items]), return_inverse=True)[1]
    if pairs.max() + 1 < _LEAST:  # nearly all ratings are alike
        pairs = np.arange(pairs.size)
    return pairs // -(-(int(pairs.max()) + 1) // _FOLDS)


def _first_rows(known: _Known, keys: Pair, K: int, size: float) -> Pair:
    """Return the rows of users and items with which a fit begins."""
    columns = np.arange(K + 1, dtype=np.uint64)
    users, items = (
        _BEGIN * size * (1 + _mixed(side[:, None] + columns) * 2.0**-64) for side in keys
    )
    users[:, 0] = known.mean
    items[:, 0] = 0.0
    return users, items


# --- fits -------------------------------------------------------------------------------------


class _Fit(NamedTuple):
    """Rows of users (N, 1 + K) and of items (F, 1 + K): an offset, then entries of the factors.

    Also the row of the average user, the residuals, the penalties of offsets and factors with what
    a rating adds to the latter, and the relative error, seconds and passes after each round.
    """

    rows: Pair
    average: Array
    left: Array
    pulls: _Pulls
    history: tuple[Array, Array, Array]

    @property
    def K(self) -> int:
        """The number of components."""
        return self.average.size - 1

    def sorted(self) -> _Fit:
        """Return the fit with the largest components first."""
        users, items = self.rows
        order = np.append(0, 1 + sorting(_shares(self.rows), 0))
        rows = users[:, order], items[:, order]
        return self._replace(rows=rows, average=self.average[order])


class _Side(NamedTuple):
    """Ratings grouped by user or by item.

    Of the ratings in their order: the places among all, where each group starts, the group, and the
    row of the other side. Also how often each group counts.
    """

    places: Array
    starts: Array
    own: Array
    partners: Array
    importance: Array

    @classmethod
    def of(cls, own: Array, partners: Array, importance: Array) -> _Side:
        """Group ratings by `own`."""
        places = np.argsort(own, kind="stable")
        starts = np.searchsorted(own[places], np.arange(importance.size + 1))
        return cls(places, starts, own[places], partners[places].astype(np.intp), importance)

    def sums(self, values: Array) -> Array:
        """Return the sum of values, one for each rating in this order, over each group."""
        return np.bincount(self.own, values, self.importance.size)

    def penalties(self, weights: Array, pulls: _Pulls, K: int) -> Array:
        """Return the penalties of the rows, with a column for offsets."""
        damping, penalty, per_rating = pulls
        of_rows = penalty * self.importance + per_rating * self.sums(weights[self.places])
        return np.column_stack([damping * self.importance, *[of_rows] * K])

    def descend(
        self,
        weights: Array,
        left: Array,
        own: Array,
        other: Array,
        mean: Array,
        penalties: Array,
    ) -> None:
        """Minimise over each entry of each row of `own` once, in place.

        Entry k of row r minimises, with the others as they are, over its ratings p with the entries
        c(p) of the rows of the other side (1 for offsets),

            sum_p weight(p) (left(p) - c(p) step)^2 + penalty(r, k) (own(r, k) + step - mean(k))^2

        All entries but the offsets, in the first column, stay at least 0. `left` are the residuals,
        which are updated.
        """
        if kernels.AVAILABLE:
            ratings = self.starts, self.places, self.partners, weights, left
            kernels.rating_rows(*ratings, own, other, mean, penalties)
            return
        mine = left[self.places]
        heavy = weights[self.places]
        for k in range(own.shape[1]):
            column = other[self.partners, k] if k else np.ones(left.size)
            curvature = self.sums(heavy * column**2)
            pull = self.sums(heavy * column * mine) + curvature * own[:, k]
            pull += penalties[:, k] * mean[k]
            new = pull / (curvature + penalties[:, k])
            new = np.maximum(new, 0.0) if k else new
            mine -= column * (new - own[:, k])[self.own]
            own[:, k] = new
        left[self.places] = mine


def _fitted(
    known: _Known,
    sides: Sequence[_Side],
    begin: Pair,
    pulls: _Pulls,
    max_iter: int,
    average: Array | None = None,
) -> _Fit:
    """Fit rows of users and items, or of users alone if the average user is given."""
    began = perf_counter()
    rows = begin[0].copy(), begin[1].copy()
    left = known.values - _scores(rows, known.users, known.items)
    K = rows[0].shape[1] - 1
    tables = [side.penalties(known.weights, pulls, K) for side in sides]
    means = [np.append(known.mean, np.zeros(K)), np.zeros(K + 1)]
    tol = _TOL
    if average is not None:
        means, tables, tol = [average], tables[:1], _FOLDED
    history = []
    value = np.inf
    for _ in range(max_iter):
        before, value = value, 0.0
        for n, table in enumerate(tables):
            own, mean = rows[n], means[n]
            if average is None:
                mean[1:] = np.einsum("rk,rk->k", table, own)[1:] / table.sum(axis=0)[1:]
            sides[n].descend(known.weights, left, own, rows[1 - n], mean, table)
            value += float(np.einsum("rk,rk->", table, (own - mean) ** 2))
        squares = float(known.weights @ left**2)
        value += squares
        history.append((squares, perf_counter() - began, 0.0))
        if before - value <= tol * value:
            break
    squares, elapsed, passes = np.array(history).T
    return _Fit(rows, means[0], left, pulls, (squares, elapsed, passes))

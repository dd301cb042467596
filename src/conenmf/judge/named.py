"""Components by the names of their features: the largest ones, and a table.

Results and the estimator share this: a component is easiest to read as the words, genes or bands in
which it is large.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..arguments import array, instance, integer
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..errors import ShapeError
from ..names import Names, places_of

__all__ = ["NamedComponents", "largest_features", "matched_rows"]


def largest_features(W: Array, names: Names, n: int = 10) -> list[list[str]]:
    """The names of the n largest features of each component, a column of W (F, K).

    Largest first; features that are zero in a component are left out, and features that are equal
    keep their order. A feature without a name is called "feature" and its index.

    >>> W = np.array([[0.1, 2.0], [3.0, 0.0], [0.5, 1.0]])
    >>> largest_features(W, Names.of(feature_names=["oak", "elm", "ash"]), 2)
    [['elm', 'ash'], ['oak', 'ash']]
    """
    W, n = array("W", W, ("F", "K")), integer("n", n, at_least=1)
    instance("names", names, Names).checked(None, len(W))
    return [
        [names.feature(f) for f in np.argsort(-w, kind="stable")[:n].tolist() if w[f] > 0]
        for w in W.T
    ]


def matched_rows(W: Array, names: Names, V: DataMatrix, owner: str = "the model") -> Array:
    """W (F, K) with its rows, which have these names, in the order of the features of V.

    Where both have names, features are matched by them; the error names those that are missing in
    V, and those that only V has, and calls W what `owner` says.
    """
    known, given = names.feature_names, V.names.feature_names
    if known is not None and given is not None:
        order = places_of(given, known, owner)
        return W if order is None else W[order]
    if len(W) != V.shape[0]:
        raise ShapeError(
            f"the data have {V.shape[0]} features, {owner} has {len(W)}: they must agree"
        )
    return W


class NamedComponents:
    """What a result and an estimator say about their components by the names of features."""

    W: Array
    names: Names

    def _named_components(self) -> tuple[Array, Names]:
        """W (F, K) and the names of its rows."""
        return self.W, self.names

    def top_features(
        self, n: int = 10, *, feature_names: Iterable[object] | None = None
    ) -> list[list[str]]:
        """Return the names of the n largest features of each component, largest first.

        Features that are zero in a component are left out.

        Parameters
        ----------
        n : int
        feature_names : names, optional
            By default those that came with the data; without any, features are called "feature 0"
            and so on.

        Returns
        -------
        list of lists of str
            One list for each component.
        """
        return largest_features(*self._with_names(feature_names), n)

    def components_frame(self, *, feature_names: Iterable[object] | None = None) -> Any:
        """Return the components as a pandas data frame: a row each, features in columns.

        Parameters
        ----------
        feature_names : names, optional
            As in `top_features`.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as problem:
            raise ImportError(
                "data frames need the package pandas: pip install pandas"
            ) from problem
        W, names = self._with_names(feature_names)
        F, K = W.shape
        columns = [names.feature(f) for f in range(F)]
        result = getattr(self, "result_", self)
        index = getattr(result, "component_names", [f"component {k}" for k in range(K)])
        return pandas.DataFrame(np.ascontiguousarray(W.T), index=index, columns=columns)

    def _with_names(self, feature_names: Iterable[object] | None) -> tuple[Array, Names]:
        W, names = self._named_components()
        if feature_names is not None:
            names = Names.of(feature_names=feature_names).checked(None, len(W))
        return W, names

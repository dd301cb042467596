"""Components as tables, with the features that they share with data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arguments import integer
from .data.matrix import DataMatrix
from .errors import DataError
from .names import NameList, Names, places_of
from .types import Array


def largest_features(W: Array, names: Names, n: int = 10) -> list[list[str]]:
    """Return the names of the n largest features of each component, a column of W (F, K).

    The largest feature comes first; zero entries are left out, and equal entries keep their order.
    A feature without a name is called "feature" and its index.

    >>> W = np.array([[0.1, 2.0], [3.0, 0.0], [0.5, 1.0]])
    >>> largest_features(W, Names.of(feature_names=["oak", "elm", "ash"]), 2)
    [['elm', 'ash'], ['oak', 'ash']]
    """
    n = integer("n", n, at_least=1)
    return [
        [names.feature(f) for f in np.argsort(-w, kind="stable")[:n].tolist() if w[f] > 0]
        for w in W.T
    ]


def matched_rows(W: Array, names: Names, V: DataMatrix, owner: str = "the model") -> Array:
    """Return W (F, K) with its rows, which have these names, in the order of the features of V.

    If both have names, features are matched by name. If features are missing in V, or only in V,
    the error names them, and calls W what `owner` says.
    """
    known = names.feature_names
    given = V.names.feature_names
    if known is not None and given is not None:
        order = places_of(given, known, owner)
        return W if order is None else W[order]
    if len(W) != V.n_features:
        raise DataError(
            f"the data have {V.n_features} features, {owner} has {len(W)}: they must agree"
        )
    return W


def named_features(W: Array, names: Names, feature_names: NameList) -> Names:
    """Return the names given for the rows of W, or the known names if none are given."""
    if feature_names is None:
        return names
    return Names.of(feature_names=feature_names).checked(None, len(W))


def components_frame(W: Array, names: Names, component_names: Sequence[str]) -> Any:
    """Return components (F, K) as a pandas data frame with a row for each component."""
    import pandas as pd

    columns = [names.feature(f) for f in range(len(W))]
    return pd.DataFrame(np.ascontiguousarray(W.T), index=component_names, columns=columns)

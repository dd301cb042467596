"""Scores of clusterings, matches of components, abundance maps, and named components.

Normalised mutual information is scikit-learn's with the geometric mean, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike

from ..arguments import array, classes, integer, rows_and_columns
from ..data.blocks import over
from ..data.matrix import Aligned, DataMatrix
from ..errors import DataError
from ..names import NameList, Names, places_of
from ..types import Array, Pair, Shape, Texts

KNOWN_COSINE = 0.9  # from which on two components count as the same

# --- clusterings and pairs of components --------------------------------------------------------


def scores(labels_true: ArrayLike, labels_pred: ArrayLike) -> dict[str, float]:
    """Return all scores of the paper: normalised mutual information, purity and Dice.

    Purity is the share of the samples that belong to the majority class of their cluster. Dice is
    the mean over true classes A of the largest 2 |A and B| / (|A| + |B|) over all clusters B.

    Parameters
    ----------
    labels_true, labels_pred : array (N,)
        The class and the cluster of each sample, as numbers or texts.

    Examples
    --------
    >>> scores([0, 0, 1, 1], [5, 5, 3, 3])
    {'nmi': 1.0, 'purity': 1.0, 'dice': 1.0}
    """
    true = classes("labels_true", labels_true)
    pred = classes("labels_pred", labels_pred)
    if true.shape != pred.shape:
        raise DataError(
            f"labels have shapes {true.shape} and {pred.shape}: "
            "expected two lists of the same length"
        )
    from sklearn.metrics import normalized_mutual_info_score  # slow to import
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(true, pred)
    sizes = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True)
    nmi = normalized_mutual_info_score(true, pred, average_method="geometric")
    return {
        "nmi": float(nmi),
        "purity": float(table.max(axis=0).sum() / table.sum()),
        "dice": float((2 * table / sizes).max(axis=1).mean()),
    }


def match_components(W: ArrayLike, W_other: ArrayLike) -> Pair:
    """Pair the components of two factorizations so that the sum of their cosines is largest.

    Parameters
    ----------
    W, W_other : arrays (F, K), (F, K')
        Components as columns; K <= K'.

    Returns
    -------
    order : array (K,)
        Column order[k] of `W_other` is the partner of column k of `W`.
    cosines : array (K,)

    Raises
    ------
    DataError
        If the shapes differ in F, or K > K'.

    Examples
    --------
    >>> order, cosines = match_components(np.eye(3), 2 * np.eye(3)[:, [2, 0, 1]])
    >>> order.tolist(), cosines.tolist()
    ([1, 2, 0], [1.0, 1.0, 1.0])
    """
    first, second = (
        unit_columns(array(name, value, ("F", "K"), error=DataError).astype(float))
        for name, value in (("W", W), ("W_other", W_other))
    )
    if first.shape[0] != second.shape[0]:
        raise DataError(
            f"components of shapes {first.shape} and {second.shape} cannot be paired: they need "
            "the same number of rows, one for each feature"
        )
    if first.shape[1] > second.shape[1]:
        raise DataError(
            f"W has {first.shape[1]} components and W_other only {second.shape[1]}: swap them, "
            "each component of the first gets one of the second"
        )
    similarity = first.T @ second
    from scipy.optimize import linear_sum_assignment

    rows, order = linear_sum_assignment(-similarity)
    return order, similarity[rows, order]


def named_after(W: Array, reference: Array, names: Sequence[str]) -> tuple[Texts, Texts]:
    """Name components after known ones, one to one, if their cosine is at least 0.9.

    Parameters
    ----------
    W, reference : arrays (F, K), (F, n)
    names : list of n str

    Returns
    -------
    component_names : tuple of K str
        The name of the known component, or "new" with the number of the component.
    known_as : tuple of K str
        The known component and the cosine, in words.

    Examples
    --------
    >>> named_after(np.eye(2), np.array([[3.0, 1.0], [0.1, 1.0]]), ["SBS1", "SBS5"])[1]
    ('known as SBS1 (cosine 1.00)', 'new (nearest: SBS5, cosine 0.71)')
    """
    F, K = W.shape
    padding = np.zeros((F, max(K - len(names), 0)))  # gives each component a partner
    order, cosines_of_pairs = match_components(W, np.hstack([reference, padding]))
    similarity = unit_columns(W).T @ unit_columns(reference)
    component_names = []
    known_as = []
    for k, cosine in enumerate(cosines_of_pairs):
        nearest = int(similarity[k].argmax())
        name = f"new {k}"
        said = f"new (nearest: {names[nearest]}, cosine {similarity[k, nearest]:.2f})"
        if cosine >= KNOWN_COSINE:
            name = names[order[k]]
            said = f"known as {name} (cosine {cosine:.2f})"
        component_names.append(name)
        known_as.append(said)
    return tuple(component_names), tuple(known_as)


class SpectraMatch(NamedTuple):
    """The matches between the spectra of a library and estimated spectra.

    Attributes
    ----------
    order : array (K,)
        Row order[k] of the spectra found is the partner of row k of the library.
    angles : array (K,)
        Spectral angles between partners, in degrees.
    rmse : float or None
        Root of the mean squared difference of the abundances, if both are given.
    """

    order: Array
    angles: Array
    rmse: float | None = None


def match_spectra(
    library: ArrayLike,
    found: ArrayLike,
    *,
    library_abundances: ArrayLike | None = None,
    abundances: ArrayLike | None = None,
) -> SpectraMatch:
    """Match each spectrum of a library with an estimated one, so that angles are small.

    Parameters
    ----------
    library : array (K, bands)
        Known spectra in rows.
    found : array (K', bands), K' >= K
        Spectra in rows, such as `components_`.
    library_abundances, abundances : arrays (pixels, K), (pixels, K'), optional
        True and estimated abundances, which are compared after matching.

    Examples
    --------
    >>> library = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    >>> match = match_spectra(library, [[0.0, 2.0, 2.0], [1.0, 1.0, 0.0]])
    >>> match.order, match.angles.round(1)
    (array([1, 0]), array([45.,  0.]))
    """
    known = array("library", library, ("K", "bands"), error=DataError)
    given = array("found", found, ("K'", known.shape[1]), error=DataError)
    order, cosines = match_components(known.T, given.T)
    angles = np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0)))
    if library_abundances is None or abundances is None:
        return SpectraMatch(order, angles)
    wanted = ("pixels", len(known))
    true = array("library_abundances", library_abundances, wanted, error=DataError)
    shares = array("abundances", abundances, (len(true), len(given)), error=DataError)
    return SpectraMatch(order, angles, float(np.sqrt(((shares[:, order] - true) ** 2).mean())))


def cosines(W: Array) -> Array:
    """Return the cosines between the columns of W (F, K); 0 for zero columns."""
    unit = unit_columns(W)
    return unit.T @ unit


def unit_columns(W: Array) -> Array:
    """Return the columns of W (F, K) scaled to norm 1; zero columns stay zero."""
    return over(W, norm(W, axis=0))


# --- abundance maps -----------------------------------------------------------------------------


def abundance_maps(
    W: Array, H: Aligned, pixels_shape: Shape, *, max_pixels: int | None = None
) -> Array:
    """Return the share of each component in every pixel, (K, rows, columns).

    The share of component k in pixel n is ||w_k|| H(k, n) / sum_j ||w_j|| H(j, n), or 0 if all H(j,
    n) are 0. Shares do not depend on how the scale is divided between W and H.

    Parameters
    ----------
    W : array (F, K)
    H : array (K, N)
    pixels_shape : (rows, columns)
        The samples are the pixels of an image of this shape, row by row.
    max_pixels : int, optional
        Largest number of pixels in all maps together. Larger maps keep every second pixel of every
        second row, or every third pixel of every third row, and so on.

    Examples
    --------
    >>> W, H = np.eye(2), np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 1.0, 2.0, 0.0]])
    >>> abundance_maps(W, H, (2, 2))[0].tolist()
    [[0.75, 0.5], [0.0, 0.0]]
    """
    rows, columns = rows_and_columns("pixels_shape", pixels_shape)
    K = W.shape[1]
    if tuple(H.shape) != (K, rows * columns):
        raise DataError(f"H has shape {tuple(H.shape)}, expected ({K}, {rows * columns})")
    step = 1 if max_pixels is None else math.ceil(math.sqrt(K * rows * columns / max_pixels))
    pixels = np.arange(rows * columns).reshape(rows, columns)[::step, ::step]
    amounts = np.asarray(H[:, pixels.ravel()], dtype=float) * norm(W, axis=0)[:, None]
    return over(amounts, amounts.sum(axis=0)).reshape(K, *pixels.shape)


# --- components by the names of their features --------------------------------------------------


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

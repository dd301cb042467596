"""Components compared with others: partners, names and angles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import array
from ..data.blocks import exact, unit_columns
from ..data.matrix import DataMatrix, multiplied
from ..errors import DataError
from ..linalg.nnls import nnls
from ..solve.constraints import sum_to_one
from ..solve.scenes import abundances as shares_of
from ..types import Array, Pair, Texts

KNOWN_COSINE = 0.9  # from which on two components count as the same
_SIMILAR = 0.8  # from which on a component may be a part of a known one


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
        The name of the known component, or "new" with the number of the component, or "like", if
        another component has the name.
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
        if similarity[k, nearest] >= KNOWN_COSINE:
            name = f"like {names[nearest]} {k}"
            said = f"another component like {names[nearest]} (cosine {similarity[k, nearest]:.2f})"
        if cosine >= KNOWN_COSINE:
            name = names[order[k]]
            said = f"known as {name} (cosine {cosine:.2f})"
        component_names.append(name)
        known_as.append(said)
    return tuple(component_names), tuple(known_as)


def repeated_names(W: Array, reference: Array, names: Sequence[str], own: Sequence[str]) -> str:
    """Say which components resemble a known one that another component has the name of.

    Parameters
    ----------
    W, reference : arrays (F, K), (F, n)
    names : list of n str
    own : list of K str
        The names of the components, see `named_after`.

    Examples
    --------
    >>> W = np.array([[1.0, 1.0, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 1.0]])
    >>> repeated_names(W, W[:, [0, 2]], ["SBS1", "SBS5"], ["SBS1", "new 1", "SBS5"])
    'component 1 resembles SBS1 (cosine 0.86), as component 0 does: try 2 components'
    """
    similarity = unit_columns(W).T @ unit_columns(reference)
    parts = []
    for k, cosines_of_one in enumerate(similarity):
        name = names[cosines_of_one.argmax()]
        cosine = cosines_of_one.max()
        if cosine >= _SIMILAR and own[k] not in names and name in own:
            said = f"component {k} resembles {name} (cosine {cosine:.2f})"
            parts.append(f"{said}, as component {own.index(name)} does")
    return f"{'; '.join(parts)}: try {W.shape[1] - len(parts)} components" if parts else ""


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
    return SpectraMatch(order, angles, _rmse(shares[:, order], true))


def _rmse(found: Array, true: Array) -> float:
    return float(np.sqrt(((found - true) ** 2).mean()))


def match_scene(
    V: DataMatrix, W: Array, library: Array, abundances: Sequence[Array] = ()
) -> tuple[SpectraMatch, str]:
    """Match the endmembers W (F, K) of a scene V with those of its reference; say how well.

    References differ in how their abundances were computed, and in the order of pixels. Those that
    the endmembers of the reference reproduce best are used.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    library : array (n, F)
        The endmembers of the reference in rows, n <= K.
    abundances : arrays (N, n)
        The abundances of the reference, in each order that the pixels may have.
    """
    match = match_spectra(library, W.T)
    angles = ", ".join(f"{angle:.1f}" for angle in match.angles)
    said = f"{angles} degrees to the reference, mean {match.angles.mean():.2f}"
    least = np.inf
    for convention, divides in _CONVENTIONS.items():
        own, found = (_unmixed(V, exact(E), divides) for E in (library, W.T))
        for true in abundances:
            own_rmse = _rmse(own, true)
            if own_rmse < least:
                least = own_rmse
                rmse = _rmse(found[:, match.order], true)
                more = f"{convention}; {own_rmse:.3f} with the spectra of the reference"
                match = match._replace(rmse=rmse)
    if match.rmse is not None:
        said += f"; RMSE of abundances {match.rmse:.3f} ({more})"
    return match, said


def _unmixed(V: DataMatrix, E: Array, divides: bool) -> Array:
    """Return the abundances (N, K) for endmembers E (K, F)."""
    if divides:
        E = E / E.max(axis=1, keepdims=True)
    G = E @ E.T
    C = np.asarray(V.sweep(multiplied, X=E.T)[0])
    return shares_of(nnls(G, C)) if divides else sum_to_one(G, C)


_CONVENTIONS = {
    "least squares with sums of one": False,
    "coefficients of endmembers of maximum one, over their sum": True,
}


def cosines(W: Array) -> Array:
    """Return the cosines between the columns of W (F, K); 0 for zero columns."""
    unit = unit_columns(W)
    return unit.T @ unit

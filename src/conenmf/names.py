"""Names of samples and features, and of types of mutations, which have an order and colours.

Names come from untrusted files and data frames, and are shown on terminals and in pages. So control
characters are replaced by visible escapes when a name is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .arguments import integer, optional, rows_and_columns, several
from .errors import DataError, DataTypeError, Option, OptionError
from .text import excerpt, listed, shown, suggestion, visible
from .types import Shape, Texts

# Names in the form that callers pass, of any type.
NameList: TypeAlias = Iterable[object] | None

_TEXTS = "a list of names"
_LISTED_NAMES = 5
_DAYS = ("%Y-%m-%d", "%m/%d/%Y", "%m/%d/%y", "%d.%m.%Y", "%Y%m%d")
_DATE_FORMS = [day + hour for day in _DAYS for hour in ("", " %H:%M", " %H:%M:%S")]


@dataclass(frozen=True, repr=False)
class Names:
    """The names of samples and features, if they have any.

    Attributes
    ----------
    sample_names : tuple of str, or None
    feature_names : tuple of str, or None
    image_shape : (rows, columns), or None
        The shape of an image whose pixels are the features.
    pixels_shape : (rows, columns), or None
        The shape of an image whose pixels are the samples, row by row.

    Examples
    --------
    >>> Names.of(feature_names=[400, 410, 420]).feature_positions
    array([400., 410., 420.])
    """

    sample_names: Texts | None = None
    feature_names: Texts | None = None
    image_shape: Shape | None = None
    pixels_shape: Shape | None = None

    def __post_init__(self) -> None:
        for name in ("sample_names", "feature_names"):
            object.__setattr__(self, name, optional(_texts, name, getattr(self, name)))
        for name in ("image_shape", "pixels_shape"):
            object.__setattr__(self, name, optional(rows_and_columns, name, getattr(self, name)))

    @classmethod
    def of(
        cls,
        sample_names: NameList = None,
        feature_names: NameList = None,
        image_shape: Shape | None = None,
        pixels_shape: Shape | None = None,
    ) -> Names:
        """Make names from objects of any type, as text that is safe for display.

        Parameters
        ----------
        sample_names, feature_names : objects, optional
            One for each sample or feature.
        image_shape, pixels_shape : (rows, columns), optional
            As in `Names`.
        """
        samples = optional(several, "sample_names", sample_names, _TEXTS)
        features = optional(several, "feature_names", feature_names, _TEXTS)
        return cls(_visible(samples), _visible(features), image_shape, pixels_shape)

    def checked(self, n_samples: int | None, n_features: int | None) -> Names:
        """Return these names; raise an error unless there is one for each sample and feature.

        Parameters
        ----------
        n_samples, n_features : int or None
            A number that is None is not compared.
        """
        if n_samples is not None:
            _check_names("samples", n_samples, self.sample_names)
            _check_shape("samples", n_samples, "pixels_shape", self.pixels_shape)
        if n_features is not None:
            _check_names("features", n_features, self.feature_names)
            _check_shape("features", n_features, "image_shape", self.image_shape)
        return self

    def updated(self, other: Names) -> Names:
        """Return these names, replaced by the names of `other` where it has any.

        Parameters
        ----------
        other : Names
        """
        given = {key: value for key, value in vars(other).items() if value is not None}
        return replace(self, **given) if given else self

    def taking(self, features: npt.NDArray[np.intp]) -> Names:
        """Return the names for some of the features, without the image shape.

        Parameters
        ----------
        features : array of integers
            Their indices.

        Examples
        --------
        >>> Names.of(feature_names=["oak", "elm", "ash"]).taking(np.array([0, 2])).feature_names
        ('oak', 'ash')
        """
        names = self.feature_names
        if names is not None:
            names = tuple(names[place] for place in features)
        return replace(self, feature_names=names, image_shape=None)

    def turned(self) -> Names:
        """Return the names of the transposed matrix: samples and features swapped."""
        return Names(self.feature_names, self.sample_names, self.pixels_shape, self.image_shape)

    def __repr__(self) -> str:
        given = []
        for name, value in vars(self).items():
            if value is not None:
                given.append(f"{name}={shown(value)}")
        return f"Names({', '.join(given)})"

    @property
    def feature_positions(self) -> npt.NDArray[np.float64] | None:
        """The names of features as numbers, such as wavelengths, if all are numbers."""
        if self.feature_names is None:
            return None
        try:
            positions = np.array([float(name) for name in self.feature_names])
        except ValueError:
            return None
        return positions if np.isfinite(positions).all() and np.ptp(positions) > 0 else None

    @property
    def sample_times(self) -> npt.NDArray[np.datetime64] | None:
        """The names of samples as dates and times, if all have the same format.

        An empty name gives NaT, because spreadsheets end in empty rows.

        >>> Names.of(["12/14/2000", "1/1/2001"]).sample_times
        array(['2000-12-14T00:00:00', '2001-01-01T00:00:00'], dtype='datetime64[s]')
        """
        names = self.sample_names or ()
        for form in _DATE_FORMS if any(names) else ():
            try:
                times = [datetime.strptime(name, form) if name else None for name in names]
            except ValueError:
                continue
            return np.array(times, "datetime64[s]")
        return None

    def sample(self, index: int) -> str:
        """Return the name of a sample, or "sample" and its index.

        Parameters
        ----------
        index : int
        """
        return f"sample {index}" if self.sample_names is None else self.sample_names[index]

    def feature(self, index: int) -> str:
        """Return the name of a feature, or "feature" and its index.

        Parameters
        ----------
        index : int
        """
        return f"feature {index}" if self.feature_names is None else self.feature_names[index]

    def positions(self, option: str, features: object, n_features: int) -> list[int]:
        """Return the positions of features that are given by name or by position.

        Parameters
        ----------
        option : str
            The name of the argument, for errors.
        features : iterable of str or int
        n_features : int

        Examples
        --------
        >>> Names.of(feature_names=["oak", "elm", "ash"]).positions("features", ["ash", 0], 3)
        [2, 0]
        """
        own = self.feature_names or ()
        places = []
        for one in several(option, features, "a list of names or numbers of features"):
            if not isinstance(one, str):
                places.append(integer(option, one, at_least=0, at_most=n_features - 1))
            elif own.count(one) == 1:
                places.append(own.index(one))
            else:
                count = own.count(one)
                problem = f" has {excerpt(one)!r}, which names {count} features, expected one"
                raise OptionError(Option(option), problem, suggestion(one, own))
        return places


@dataclass(frozen=True, eq=False)
class Labelled:
    """An array of numbers or texts with the names of its rows and columns, like a data frame."""

    values: npt.NDArray[Any]
    names: Names

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.values.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.values, dtype, copy=copy)


def check_count(count: int, what: str, N: int, kind: str = "samples") -> None:
    """Raise `DataError` unless there is one for each sample or feature."""
    if count != N:
        raise DataError(f"there are {count} {what} for {N} {kind}: give one for each")


def _check_names(kind: str, count: int, names: Texts | None) -> None:
    if names is not None:
        check_count(len(names), "names", count, kind)


def _check_shape(kind: str, count: int, option: str, shape: Shape | None) -> None:
    if shape is not None and shape[0] * shape[1] != count:
        rows, columns = shape
        pixels = f"{rows} x {columns} have {rows * columns} pixels"
        raise OptionError(Option(option), f": images of {pixels}, and there are {count} {kind}")


def _texts(name: str, values: object) -> Texts:
    texts = values if isinstance(values, tuple) else tuple(several(name, values, _TEXTS))
    if not all(isinstance(one, str) for one in texts):
        raise OptionError(Option(name, values), f", expected {_TEXTS}")
    return texts


def _visible(values: list[object] | None) -> Texts | None:
    return None if values is None else tuple(map(visible, values))


def names_of(table: object) -> Names:
    """Return the names in a data frame of pandas or polars whose rows are samples, or a `Labelled`.

    The index of a pandas Series names samples too. Default indices of pandas (0, 1, 2, ...) do not
    count as names.
    """
    if isinstance(table, Labelled):
        return table.names
    if isinstance(table, type):
        return Names()
    if hasattr(table, "collect_schema") and not hasattr(table, "shape"):  # polars' LazyFrame
        kind = type(table).__name__
        raise DataTypeError(f"got a {kind}, whose rows are not computed yet: call .collect() first")
    if not hasattr(table, "dtypes"):
        return Names()
    return Names.of(_given(table, "index"), _given(table, "columns"))


def in_order(names: Names, option: str, table: object, *sides: str) -> Any:
    """Return a data frame, a pandas Series or a `Labelled` in the order of the data, by name.

    `sides` says what its rows and columns are: "sample", "feature", or "" for neither. Names that
    the data do not have raise an error. If the table or the data have no names, values are matched
    by position.

    >>> import pandas as pd
    >>> names = Names.of(feature_names=["oak", "elm"])
    >>> in_order(names, "weights", pd.Series([1.0, 2.0], index=["elm", "oak"]), "feature")
    array([2., 1.])
    """
    labels = names_of(table)
    own_names = {"sample": names.sample_names, "feature": names.feature_names, "": None}
    of_axes = (labels.sample_names, labels.feature_names)
    for axis, (side, given) in enumerate(zip(sides, of_axes, strict=False)):
        own = own_names[side]
        if own is not None and given is None and hasattr(table, "iloc") and not axis:
            _check_default(own, len(np.asarray(table)), option)
        if own is not None and given is not None and len(own) == len(given):
            order = places_of(own, given, Option(option), side)
            if order is not None:
                table = np.take(np.asarray(table), order, axis)
    return table


def _check_default(own: Texts, count: int, option: str) -> None:
    """Reject a default index where the rows of the data are the same numbers in another order."""
    if len(own) == count and {*own} == {*map(str, range(count))}:
        raise DataError(
            Option(option),
            " has a default index, and the rows of the data are the same numbers in another order: "
            "give it the index of the data, or pass an array for the order of the rows",
        )


def places_of(own: Texts, given: Texts, owner: object, side: str = "feature") -> list[int] | None:
    """Return the position of each name of the data among the given names; None if all agree.

    If names are missing on either side, the error lists them, and calls the table `owner`.
    """
    if own == given:
        return None
    place = {name: number for number, name in enumerate(given)}
    there = set(own)
    parts = [f"the data have {len(own)} {side}s, ", owner, f" has {len(given)}"]
    missing = [name for name in given if name not in there]
    if missing:
        parts.append(f"; missing in the data: {_listed(missing)}")
    extra = [name for name in own if name not in place]
    if extra:
        parts += ["; not in ", owner, f": {_listed(extra)}"]
    if extra or missing:
        raise DataError(*parts, f": give both the same {side}s")
    if len(place) < len(given) or len(own) != len(given):
        raise DataError(
            f"{side}s share names and differ in order from ", owner, ": give each its own name"
        )
    return [place[name] for name in own]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, for a message."""
    return listed([repr(excerpt(name)) for name in names], _LISTED_NAMES)


def _given(table: object, axis: str) -> NameList:
    """Return the labels of an axis of a table; None for the default labels of pandas."""
    labels = getattr(table, axis, None)
    if labels is None or list(labels) == list(range(len(labels))):
        return None
    return labels


# --- types of mutations -------------------------------------------------------------------------

# There are 96 substitutions, 83 indels and 78 doublets. COSMIC calls them A[C>T]G, 1:Del:T:5 and
# CC>TT. Other programs write the parts in several columns: C>T and ACG, or DEL, T, 1 and 5+, or CC
# and TT. `type_name` converts these to COSMIC's names.

_BASES = "ACGT"
_REPEATS = "012345"
_HOMOLOGIES = {"2:Del:M": "1", "3:Del:M": "12", "4:Del:M": "123", "5:Del:M": "12345"}
_DOUBLETS = {  # if two are the same on opposite strands, one is counted
    "AC>NN": "CA CG CT GA GG GT TA TG TT",
    "AT>NN": "CA CC CG GA GC TA",
    "CC>NN": "AA AG AT GA GG GT TA TG TT",
    "CG>NN": "AT GC GT TA TC TT",
    "CT>NN": "AA AC AG GA GC GG TA TC TG",
    "GC>NN": "AA AG AT CA CG TA",
    "TA>NN": "AT CG CT GC GG GT",
    "TC>NN": "AA AG AT CA CG CT GA GG GT",
    "TG>NN": "AA AC AT CA CC CT GA GC GT",
    "TT>NN": "AA AC AG CA CC CG GA GC GG",
}
_INDEL_KINDS = {"repeats": "R", "MH": "M"}

# The classes of types in COSMIC's order, with the colours of its figures.
MUTATION_COLOURS = {
    "C>A": "#03bcee",
    "C>G": "#010101",
    "C>T": "#e32926",
    "T>A": "#cac9c9",
    "T>C": "#a1ce63",
    "T>G": "#ebc6c4",
    "1:Del:C": "#fdbe6f",
    "1:Del:T": "#ff8001",
    "1:Ins:C": "#b0dd8b",
    "1:Ins:T": "#36a12e",
    "2:Del:R": "#fdcab5",
    "3:Del:R": "#fc8a6a",
    "4:Del:R": "#f14432",
    "5:Del:R": "#bc141a",
    "2:Ins:R": "#d0e1f2",
    "3:Ins:R": "#94c4df",
    "4:Ins:R": "#4a98c9",
    "5:Ins:R": "#1764ab",
    "2:Del:M": "#e2e2ef",
    "3:Del:M": "#b6b6d8",
    "4:Del:M": "#8683bd",
    "5:Del:M": "#61409b",
    "AC>NN": "#03bdef",
    "AT>NN": "#0366cc",
    "CC>NN": "#a2cf63",
    "CG>NN": "#016601",
    "CT>NN": "#ff9999",
    "GC>NN": "#e42926",
    "TA>NN": "#ffb266",
    "TC>NN": "#ff8001",
    "TG>NN": "#cc99ff",
    "TT>NN": "#4c0199",
}

# Titles of columns that together name a type, in lower case.
MUTATION_TITLES = (
    ("type", "subtype", "indel_size", "repeat_mh_size"),
    ("substitution type", "trinucleotide", "somatic mutation type"),
    ("mutation type", "trinucleotide"),
    ("type", "subtype"),
    ("ref", "var"),
)


def _types_of(class_: str) -> Texts:
    """Return the types of a class in their order."""
    if class_ in _DOUBLETS:
        return tuple(f"{class_[:3]}{bases}" for bases in _DOUBLETS[class_].split())
    if ">" in class_:
        return tuple(f"{before}[{class_}]{after}" for before, after in product(_BASES, _BASES))
    return tuple(f"{class_}:{count}" for count in _HOMOLOGIES.get(class_, _REPEATS))


# The class of each type, in COSMIC's order.
MUTATION_CLASSES = {one: class_ for class_ in MUTATION_COLOURS for one in _types_of(class_)}

_TYPES = [*MUTATION_CLASSES]
_CATALOGUES = (_TYPES[:96], _TYPES[96:179], _TYPES[179:])
CATALOGUE_SIZES = tuple(map(len, _CATALOGUES))


def looks_like_type(name: str) -> bool:
    """Whether a name has the form of a substitution with its neighbours.

    >>> looks_like_type("A[C>A]A"), looks_like_type("C[C>A]Q"), looks_like_type("TP53")
    (True, True, False)
    """
    return re.fullmatch(r"\w\[\w>\w\]\w", name) is not None


def type_name(*parts: str) -> str:
    """Return COSMIC's name of a type that is given in parts; if unknown, the parts, joined.

    >>> type_name("C>T", "ACG"), type_name("DEL", "MH", "5+", "2"), type_name("INS", "T", "1", "0")
    ('A[C>T]G', '5:Del:M:2', '1:Ins:T:0')
    >>> type_name("CC", "TT")
    'CC>TT'
    """
    name = ""
    if len(parts) == 4:
        kind, bases, size, count = (part.removesuffix("+") for part in parts)
        bases = _INDEL_KINDS.get(bases, bases)
        name = f"{size}:{kind.capitalize()}:{bases}:{count}"
    elif len(parts) > 1 and len(parts[1]) == 3:
        bases = parts[1]
        name = f"{bases[0]}[{parts[0]}]{bases[2]}"
    elif len(parts) == 2:
        name = ">".join(parts)
    return name if name in MUTATION_CLASSES else ":".join(parts)


class MutationTypes(NamedTuple):
    """The positions of mutation types in COSMIC's order, and the class of each."""

    places: npt.NDArray[np.intp]
    classes: Texts

    @property
    def groups(self) -> list[tuple[float, str]]:
        """Return the centre and the name of each group of classes in figures."""
        labels = np.array(self.classes)
        groups = []
        for name in dict.fromkeys(self.classes):
            centre = self.places[labels == name].mean()
            groups.append((float(centre), name))
        return groups


def are_types(names: Sequence[str] | None) -> bool:
    """Whether all names are types of mutations, also if some types of a catalogue are missing.

    >>> are_types(["T[C>T]G", "A[C>A]A"]), are_types(["T[C>T]G", "TP53"]), are_types(None)
    (True, False, False)
    """
    return bool(names) and MUTATION_CLASSES.keys() >= set(names or ())


def mutation_types(names: Sequence[str] | None) -> MutationTypes | None:
    """Return the positions of types by their names; None unless they are one whole catalogue.

    >>> mutation_types(["T[C>T]G", "A[C>A]A"]) is None
    True
    >>> mutation_types([*MUTATION_CLASSES][:96][::-1]).places[:3].tolist()
    [95, 94, 93]
    """
    for types in _CATALOGUES:
        if names is not None and sorted(names) == sorted(types):
            places = np.array([types.index(name) for name in names])
            classes = tuple(MUTATION_CLASSES[name] for name in names)
            return MutationTypes(places, classes)
    return None

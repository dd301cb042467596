"""Types of mutations: their names, order and colours in catalogues.

There are 96 substitutions, 83 indels and 78 doublets. COSMIC calls them ``A[C>T]G``, ``1:Del:T:5``
and ``CC>TT``. Other programs write the parts in several columns: C>T and ACG, or DEL, T, 1 and 5+,
or CC and TT. `type_name` converts these to COSMIC's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .text import Texts

_BASES = "ACGT"
_COUNTS = "012345"
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
_KINDS = {"repeats": "R", "MH": "M"}

# The classes of types in COSMIC's order, with the colours of its figures.
COLOURS = {
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
TITLES = (
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
        return tuple(f"{before}[{class_}]{after}" for before in _BASES for after in _BASES)
    return tuple(f"{class_}:{count}" for count in _HOMOLOGIES.get(class_, _COUNTS))


def _label(class_: str) -> str:
    """Return the label of a class in figures: C>A, AC>NN; Del C, Ins 4, or MH for microhomology."""
    if ">" in class_:
        return class_
    size, kind, bases = class_.split(":")
    label = f"{kind} {bases}" if size == "1" else f"{kind} {size}"
    return "MH" if bases == "M" else label


# The class of each type, in COSMIC's order.
CLASSES = {one: class_ for class_ in COLOURS for one in _types_of(class_)}

_CATALOGUES = [[*CLASSES][:96], [*CLASSES][96:179], [*CLASSES][179:]]


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
        name = f"{size}:{kind.capitalize()}:{_KINDS.get(bases, bases)}:{count}"
    elif len(parts) > 1 and len(parts[1]) == 3:
        name = f"{parts[1][0]}[{parts[0]}]{parts[1][2]}"
    elif len(parts) == 2:
        name = ">".join(parts)
    return name if name in CLASSES else ":".join(parts)


class MutationTypes(NamedTuple):
    """The positions of mutation types in COSMIC's order, and the class of each."""

    places: npt.NDArray[np.intp]
    classes: Texts

    @property
    def groups(self) -> list[tuple[float, str]]:
        """Return the centre and the name of each group of classes in figures."""
        labels = np.array([_label(class_) for class_ in self.classes])
        names = dict.fromkeys(labels.tolist())
        return [(float(self.places[labels == name].mean()), name) for name in names]


def mutation_types(names: Sequence[str] | None) -> MutationTypes | None:
    """Return the positions of types by their names; None unless they are one whole catalogue.

    >>> mutation_types(["T[C>T]G", "A[C>A]A"]) is None
    True
    >>> mutation_types([*CLASSES][:96][::-1]).places[:3].tolist()
    [95, 94, 93]
    """
    for types in _CATALOGUES:
        if names is not None and sorted(names) == sorted(types):
            places = np.array([types.index(name) for name in names])
            return MutationTypes(places, tuple(CLASSES[name] for name in names))
    return None

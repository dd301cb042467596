"""True classes of samples: from a file, or from a column of the data that is no feature.

The scores of `compare` and the colours of reports need them. Reports show too where UMAP has placed
the samples, and how they begin if they are texts, where the file of the data says so.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.resources import memory_budget
from ..errors import DataError, FileFormatError, OptionError
from ..io.hdf5 import read_annotation, read_coordinates
from ..io.tables import ColumnChoice
from ..io.text import TABLE_SUFFIXES, open_text_column, open_texts
from ..names import Names
from ..text import visible
from .options import CommonOptions

__all__ = ["GivenClasses", "read_labels"]

_MAX_CHARS = 1000  # of a text, which the report shows the beginning of


@dataclass(frozen=True)
class GivenClasses:
    """What ``--classes`` says: nothing, a file, or a column of the data.

    Attributes
    ----------
    given : str or None
        A file if there is one of this name; else a column of a table, or of obs of AnnData.
    common : CommonOptions
        With which the data are to be read: a column of classes is no feature.
    """

    given: str | None
    common: CommonOptions

    @classmethod
    def of(cls, given: str | None, common: CommonOptions) -> GivenClasses:
        """Find out what was given."""
        is_column = given is not None and not Path(given).is_file()
        if is_column and common.path.suffix.lower() in TABLE_SUFFIXES and common.data:
            assert given is not None
            common = replace(common, drop=(*common.drop, given))
        return cls(given, common)

    def known(self, N: int, names: Names) -> dict[str, Any]:
        """What the report shows of the N samples: classes, places of UMAP, and texts."""
        classes = self.read(N, names)
        return {"classes": classes, "coordinates": self._umap(N), "texts": self._texts(N)}

    def _umap(self, N: int) -> Array | None:
        """The coordinates of UMAP that AnnData may have."""
        common = self.common
        if common.path.suffix.lower() != ".h5ad" or not common.path.is_file():
            return None
        places = read_coordinates(common.path, "X_umap", memory_budget(common.max_memory))
        is_usable = places is not None and places.shape == (N, 2) and np.isfinite(places).all()
        return places if is_usable else None

    def _texts(self, N: int) -> list[str] | None:
        """The beginnings of the samples, if they are texts."""
        common, budget = self.common, memory_budget(self.common.max_memory)
        if common.text_column is not None and common.data:
            choice = ColumnChoice(common.header)
            opened: Any = open_text_column(common.path, common.text_column, budget, choice).matrix
        elif common.data and common.path.is_dir() and any(common.path.rglob("*.txt")):
            opened = open_texts(common.path, None, budget).matrix
        else:
            return None
        texts = [text[:_MAX_CHARS] for text in opened]
        return texts if len(texts) == N else None

    def read(self, N: int, names: Names) -> Array | None:
        """Read the class of each of N samples with these names; None if there are no classes."""
        given, common = self.given, self.common
        if given is None:
            return None
        if Path(given).is_file():
            return _in_file(given, N, names)
        suffix, budget = common.path.suffix.lower(), memory_budget(common.max_memory)
        if not common.data or suffix not in (*TABLE_SUFFIXES, ".h5ad"):
            raise OptionError(
                f"--classes {visible(given)} is no file: name one, or a column of DATA, if that is "
                "a .csv, .tsv or .h5ad file"
            )
        if suffix == ".h5ad":
            classes = read_annotation(common.path, given, budget)
        else:
            choice = ColumnChoice(common.header)
            column: Any = open_text_column(common.path, given, budget, choice).matrix
            classes = list(column)
        if len(classes) != N:
            raise DataError(f"{common.path} has {len(classes)} classes for {N} samples")
        return np.array(classes)


def read_labels(path: str, V: DataMatrix) -> Array:
    """Read one class for each sample: in the order of the samples, or by their names.

    The last column has the classes, the first one the names if there are more columns; a header
    may come first.
    """
    return _in_file(path, V.shape[1], V.names)


def _in_file(path: str, N: int, names_of_samples: Names) -> Array:
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise FileFormatError(f"{path} is not a text file of labels: {problem}") from problem
    sample_names = names_of_samples.sample_names
    if len(rows) == N + 1:
        rows = rows[1:]  # without the header
    if len(rows) != N:
        raise DataError(f"{path} has {len(rows)} labels for {N} samples: give one for each")
    classes = [row[-1] for row in rows]
    names = tuple(visible(row[0]) for row in rows)
    if sample_names is None or len(rows[0]) == 1 or names == sample_names:
        return np.array(classes)
    class_of = dict(zip(names, classes, strict=True))
    if len(class_of) < N:
        raise FileFormatError(
            f"{path} has repeated names, and not in the order of the samples: make names unique"
        )
    missing = [name for name in sample_names if name not in class_of]
    if missing:
        raise FileFormatError(f"{path} has no label for the sample {missing[0]!r}: add it")
    return np.array([class_of[name] for name in sample_names])

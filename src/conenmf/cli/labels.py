"""True classes of samples, read from a text file; the scores of `compare` need them."""

from __future__ import annotations

import csv

import numpy as np

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..errors import FileFormatError, ShapeError
from ..text import visible

__all__ = ["read_labels"]


def read_labels(path: str, V: DataMatrix) -> Array:
    """Read one class for each sample: in the order of the samples, or by their names.

    The last column has the classes, the first one the names if there are more columns; a header
    may come first.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise FileFormatError(f"{path} is not a text file of labels: {problem}") from problem
    N, sample_names = V.shape[1], V.names.sample_names
    if len(rows) == N + 1:
        rows = rows[1:]  # without the header
    if len(rows) != N:
        raise ShapeError(f"{path} has {len(rows)} labels for {N} samples: give one for each")
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

"""Reading a dataset from its folder: ``V.npz`` and ``labels.npy``, or the official files.

Numbers are returned as they are stored, samples in rows; `load` does the preprocessing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TextIO

import numpy as np
import scipy.sparse as sp

from ..data.blocks import Array
from ..data.files.archives import open_npz
from ..data.files.images import read_resized
from ..data.files.limits import check_sides, named_damage
from ..data.files.matlab import read_matlab
from ..data.resources import memory_budget
from ..errors import FileFormatError
from .catalogue import Description
from .cells import read_cells

__all__ = ["Contents", "is_original", "read_anndata", "read_folder"]

_MAX_CLASSES_BYTES = 1 << 22
_MAX_COUNTS_BYTES = 1 << 28
_MAX_DOCUMENT_BYTES = 1 << 22
_MAX_COUNT = 1 << 53
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".pgm", ".bmp", ".tif", ".tiff", ".gif")


class Contents(NamedTuple):
    """What a folder holds: samples in rows, their classes, and the names of all these."""

    X: Any
    labels: Array | None
    sample_names: list[str] | None = None
    feature_names: list[str] | None = None
    class_names: list[str] | None = None


def read_folder(folder: Path, description: Description) -> Contents | None:
    """What the folder of a dataset holds; None if there is nothing in it that can be read."""
    if not folder.is_dir():
        return None
    if (folder / "V.npz").is_file():
        contents: Contents | None = _prepared(folder)
    else:
        contents = _ORIGINALS[description.kind](folder, description)
    if contents is None or contents.labels is None:
        return contents
    n_samples, n_labels = contents.X.shape[0], len(contents.labels)
    if n_samples != n_labels:
        raise FileFormatError(
            f"{folder} holds {n_samples} samples and {n_labels} labels, expected one for each: "
            "get both files again"
        )
    return contents


def is_original(name: str, description: Description) -> bool:
    """Whether a member of an official archive is needed."""
    if description.kind == "images":
        # Some systems keep notes about an image in a file whose name begins with a dot.
        return name.lower().endswith(_IMAGE_SUFFIXES) and not name.startswith(".")
    return name in (f"{description.name}.mat", f"{description.name}.mat.rclass")


def _prepared(folder: Path) -> Contents:
    budget = memory_budget(None)
    rows = open_npz(folder / "V.npz", None, budget).whole(budget)
    path = folder / "labels.npy"
    if not path.is_file():
        return Contents(rows, None)
    with named_damage(path):
        # Mapping compares the size of the file with what its header claims.
        labels = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise FileFormatError(
            f"{path} holds {labels.dtype} of shape {labels.shape}, expected integers in a row"
        )
    return Contents(rows, labels)


def _text(folder: Path, description: Description) -> Contents | None:
    """CLUTO's text: a line of three sizes, then pairs of term and count for each document."""
    path = _find(folder, f"{description.name}.mat")
    if path is None:
        return None
    _check_size(path, _MAX_COUNTS_BYTES)
    with named_damage(path), open(path, encoding="ascii") as stream:
        N, F, nnz = map(int, _line(stream, path).split()[:3])
        if not 0 <= nnz <= path.stat().st_size:
            raise FileFormatError(f"{path} claims more counts than it can hold: copy it again")
        check_sides(path, N, F, nnz, memory_budget(None))
        lines = iter(partial(_line, stream, path), "")
        documents = [np.array(line.split(), np.float64) for line in islice(lines, N)]
        if any(line.strip() for line in lines):
            raise FileFormatError(f"{path} holds more documents than {N}: copy it again")
    pairs = np.concatenate([np.zeros(0), *documents])
    terms, counts = pairs[::2] - 1, pairs[1::2]
    if len(documents) != N or len(counts) != nnz or any(len(line) % 2 for line in documents):
        raise FileFormatError(
            f"{path} claims {nnz} counts in {N} documents and holds {len(counts)} in "
            f"{len(documents)}: copy it again"
        )
    is_term = (terms == np.floor(terms)) & (terms >= 0) & (terms < F)
    is_count = (counts == np.floor(counts)) & (counts >= 0) & (counts < _MAX_COUNT)
    if not (is_term.all() and is_count.all()):
        raise FileFormatError(f"{path} holds a term outside 1 to {F}, or a count that is not whole")
    starts = np.cumsum([0, *(len(line) // 2 for line in documents)])
    arrays = (counts.astype(np.int64), terms.astype(np.int32), starts.astype(np.int32))
    X = sp.csr_array(arrays, shape=(N, F))
    classes = _find(folder, f"{description.name}.mat.rclass")
    if classes is None:
        return Contents(X, None)
    _check_size(classes, _MAX_CLASSES_BYTES)
    with named_damage(classes):
        topics = classes.read_text("ascii").split()
    labels, class_names = _numbered(topics, sorted(set(topics)))
    return Contents(X, labels, class_names=class_names)


def _line(stream: TextIO, path: Path) -> str:
    """The next line, empty at the end; a document has not more terms than fit in its limit."""
    line = stream.readline(_MAX_DOCUMENT_BYTES)
    if len(line) == _MAX_DOCUMENT_BYTES:
        raise FileFormatError(
            f"{path} has a line of {_MAX_DOCUMENT_BYTES} bytes or more: copy it again"
        )
    return line


def _check_size(path: Path, max_bytes: int) -> None:
    if path.stat().st_size > max_bytes:
        raise FileFormatError(
            f"{path} has {path.stat().st_size} bytes, expected at most {max_bytes}: copy it again"
        )


def _images(folder: Path, description: Description) -> Contents | None:
    assert description.image_shape is not None  # all images have one
    if description.variables:
        return _vectors(folder, description)
    grey, names = read_resized(folder, *description.image_shape)
    classes = [_class_of(folder, name, description.class_level) for name in names]
    excluded = description.excluded_folder
    index = [
        n
        for n, name in enumerate(classes)
        if not (excluded and f"/{name}".endswith(f"/{excluded}"))
    ]
    if not index:
        return None
    classes = [classes[n] for n in index]
    labels, class_names = _numbered(classes, list(dict.fromkeys(classes)))
    X = grey[index] if len(index) < len(names) else grey
    return Contents(X, labels, [names[n] for n in index], class_names=class_names)


def _class_of(folder: Path, name: str, level: int) -> str:
    """The class of an image: a folder above it, or the beginning of its own name."""
    if level == 0:
        beginning, separator, _ = PurePosixPath(name).name.partition("__")
        label = beginning if separator else ""
    else:
        label = "/".join(name.split("/")[:-level])
    if not label:
        where = f"{level} folders deep" if level else "called like obj1__0.png"
        raise FileFormatError(
            f"{folder / name}: the class of this image is unknown, expected a file {where}: keep "
            "the names of the official archive"
        )
    return label


def _vectors(folder: Path, description: Description) -> Contents | None:
    """Images stored as a matrix, one in each row."""
    path, variables = _find(folder, description.downloads[0].name), description.variables
    if path is None:
        return None
    X, labels = (read_matlab(path, name, memory_budget(None)) for name in variables)
    if X.ndim != 2 or labels.size != X.shape[0]:
        raise FileFormatError(
            f"{path} holds images of shape {X.shape} and {labels.size} classes, expected one row "
            "and one class for each image: copy it again"
        )
    grey = (X == np.floor(X)).all() and X.min(initial=0) >= 0 and X.max(initial=0) < 256
    return Contents(X.astype(np.uint8 if grey else np.float32), labels.ravel().astype(np.int16))


def _scene(folder: Path, description: Description) -> Contents | None:
    """A cube of rows, columns and bands, and the classes of its pixels."""
    cube, classes = (
        None if path is None else read_matlab(path, variable, memory_budget(None))
        for path, variable in zip(
            (_find(folder, download.name) for download in description.downloads),
            description.variables,
            strict=True,
        )
    )
    if cube is None:
        return None
    if cube.ndim != 3:
        raise FileFormatError(f"{folder} holds a scene of shape {cube.shape}, expected 3 sides")
    if classes is not None and classes.shape != cube.shape[:2]:
        raise FileFormatError(
            f"{folder} holds a scene of shape {cube.shape} and classes of shape {classes.shape}, "
            "expected one class for each pixel: get both files again"
        )
    labels = None if classes is None else classes.reshape(-1).astype(np.int16)
    return Contents(np.ascontiguousarray(cube).reshape(-1, cube.shape[2]), labels)


def _cells(folder: Path, description: Description) -> Contents | None:
    path = _find(folder, PurePosixPath(description.package_file).name)
    return None if path is None else read_anndata(path)


def read_anndata(path: Path) -> Contents:
    """Cells from a file of AnnData."""
    cells = read_cells(path)
    return Contents(cells.counts, cells.labels, cells.barcodes, cells.genes, cells.types)


def _find(folder: Path, name: str) -> Path | None:
    return next(iter(sorted(path for path in folder.rglob(name) if path.is_file())), None)


def _numbered(classes: list[str], class_names: list[str]) -> tuple[Array, list[str]]:
    """Classes as numbers from 0, and the names of these."""
    numbers = {name: number for number, name in enumerate(class_names)}
    dtype = np.int16 if len(class_names) <= np.iinfo(np.int16).max else np.int64
    return np.array([numbers[name] for name in classes], dtype), class_names


_ORIGINALS: dict[str, Callable[[Path, Description], Contents | None]] = {
    "text": _text,
    "images": _images,
    "scene": _scene,
    "cells": _cells,
}

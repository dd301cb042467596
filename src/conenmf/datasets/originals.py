"""Reading a dataset from its folder: ``V.npz`` and ``labels.npy``, or the official files.

Numbers come out as they are stored, samples in rows; `load` does the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..data.blocks import Array
from ..data.files.archives import open_npz
from ..data.files.images import read_resized
from ..data.files.limits import check_fits, named_damage
from ..data.files.matlab import read_matlab
from ..data.resources import memory_budget
from ..errors import FileFormatError
from .catalogue import Description
from .cells import read_cells, whole

__all__ = ["Numbers", "fingerprint", "is_original", "read_folder", "read_shipped"]

_TEXT_BYTES = 1 << 28  # of a file of counts, at most
_AT_A_TIME = 1024
_IMAGES = (".jpg", ".jpeg", ".png", ".pgm", ".bmp", ".tif", ".tiff", ".gif")


class Numbers(NamedTuple):
    """What a folder holds: samples in rows, their classes, and what all these are called."""

    X: Any
    labels: Array | None
    names: list[str] | None = None
    features: list[str] | None = None
    classes: list[str] | None = None


def fingerprint(X: Any, labels: Array | None) -> str:
    """The SHA-256 of numbers and classes, however they are stored.

    Whole numbers that fit count as 16 bits, and classes are numbered in order of appearance.

    >>> X = np.array([[1, 2], [3, 4]])
    >>> fingerprint(X, np.array([7, 3])) == fingerprint(X.astype("u1"), np.array([0, 1]))
    True
    >>> fingerprint(X, np.array([7, 7])) == fingerprint(X, np.array([0, 1]))
    False
    """
    digest = hashlib.sha256(repr(tuple(map(int, X.shape))).encode())
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        parts = [(X.indptr, "<i8"), (X.indices, "<i8"), (X.data, _counted_as(X.data))]
    else:
        parts = [(X, _counted_as(X))]
    for part, kind in parts:
        for start in range(0, part.shape[0], _AT_A_TIME):
            digest.update(part[start : start + _AT_A_TIME].astype(kind).tobytes())
    if labels is not None:
        _, first, number = np.unique(labels, return_index=True, return_inverse=True)
        digest.update(np.argsort(np.argsort(first))[number].astype("<i8").tobytes())
    return digest.hexdigest()


def _counted_as(numbers: Array) -> str:
    """Whole numbers are whole numbers in any type."""
    if numbers.dtype.kind in "iub" or (numbers == np.floor(numbers)).all():
        lowest, highest = numbers.min(initial=0), numbers.max(initial=0)
        if 0 <= lowest and highest < 1 << 16:
            return "<u2"
        if -(1 << 53) <= lowest and highest <= 1 << 53:
            return "<i8"
    return f"<{numbers.dtype.kind}{numbers.dtype.itemsize}"


def read_folder(folder: Path, description: Description) -> Numbers | None:
    """What the folder of a dataset holds; None if there is nothing to be read in it."""
    if not folder.is_dir():
        return None
    if (folder / "V.npz").is_file():
        found: Numbers | None = _prepared(folder)
    else:
        found = _ORIGINALS[description.kind](folder, description)
    if found is None or found.labels is None or len(found.labels) == found.X.shape[0]:
        return found
    raise FileFormatError(
        f"{folder} holds {found.X.shape[0]} samples and {len(found.labels)} labels, expected one "
        "for each: get both files anew"
    )


def is_original(name: str, description: Description) -> bool:
    """Whether a member of an official archive is of use."""
    if description.kind == "images":
        # What begins with a dot is no image, but what some systems note about one.
        return name.lower().endswith(_IMAGES) and not name.startswith(".")
    return name in (f"{description.name}.mat", f"{description.name}.mat.rclass")


def _prepared(folder: Path) -> Numbers:
    rows = whole(open_npz(folder / "V.npz", "rows", None, memory_budget(None)).rows)
    path = folder / "labels.npy"
    if not path.is_file():
        return Numbers(rows, None)
    with named_damage(path):
        # Mapping compares the size of the file with what its header promises.
        labels = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise FileFormatError(
            f"{path} holds {labels.dtype} of shape {labels.shape}, expected integers in a row"
        )
    return Numbers(rows, labels)


def _text(folder: Path, description: Description) -> Numbers | None:
    """CLUTO's text: a line of three sizes, then pairs of term and count for each document."""
    path = _find(folder, f"{description.name}.mat")
    if path is None:
        return None
    check_fits(path, path.stat().st_size, 4 * _TEXT_BYTES, "a file of counts is smaller")
    with named_damage(path), open(path, encoding="ascii") as lines:
        N, F, nnz = map(int, next(lines).split()[:3])
        documents = [np.array(line.split(), np.float64) for line in lines][:N]
    pairs = np.concatenate([np.zeros(0), *documents])
    terms, counts = pairs[::2] - 1, pairs[1::2]
    if len(documents) != N or len(counts) != nnz or any(len(line) % 2 for line in documents):
        raise FileFormatError(
            f"{path} promises {nnz} counts in {N} documents and holds {len(counts)} in "
            f"{len(documents)}: copy it anew"
        )
    whole = (terms == np.floor(terms)) & (terms >= 0) & (terms < F)
    if not (whole.all() and (counts == np.floor(counts)).all() and (counts >= 0).all()):
        raise FileFormatError(f"{path} holds a term outside 1 to {F}, or a part of a count")
    starts = np.cumsum([0, *(len(line) // 2 for line in documents)])
    parts = (counts.astype(np.int64), terms.astype(np.int32), starts.astype(np.int32))
    X = sp.csr_array(parts, shape=(N, F))
    path = _find(folder, f"{description.name}.mat.rclass")
    if path is None:
        return Numbers(X, None)
    check_fits(path, path.stat().st_size, _TEXT_BYTES, "a file of classes is smaller")
    with named_damage(path):
        topics = path.read_text("ascii").split()
    labels, classes = _numbered(topics, sorted(set(topics)))
    return Numbers(X, labels, classes=classes)


def _images(folder: Path, description: Description) -> Numbers | None:
    assert description.image_shape is not None  # all images have one
    if description.variables:
        return _vectors(folder, description)
    grey, names = read_resized(folder, *description.image_shape)
    whose = [_whose(folder, name, description.levels) for name in names]
    copies = f"/{description.left_out}" if description.left_out else "//"  # nobody's folder
    kept = [n for n, who in enumerate(whose) if not f"/{who}".endswith(copies)]
    if not kept:
        return None
    whose = [whose[n] for n in kept]
    labels, classes = _numbered(whose, list(dict.fromkeys(whose)))
    X = grey[kept] if len(kept) < len(names) else grey
    return Numbers(X, labels, [names[n] for n in kept], classes=classes)


def _whose(folder: Path, name: str, levels: int) -> str:
    """The class of an image: a folder above it, or the beginning of its own name."""
    if levels == 0:
        beginning, found, _ = PurePosixPath(name).name.partition("__")
        who = beginning if found else ""
    else:
        who = "/".join(name.split("/")[:-levels])
    if not who:
        where = f"{levels} folders deep" if levels else "called like obj1__0.png"
        raise FileFormatError(
            f"{folder / name} does not say whose image it is, expected one that is {where}: keep "
            "the names of the official archive"
        )
    return who


def _vectors(folder: Path, description: Description) -> Numbers | None:
    """Images that somebody has made a matrix of, one in each row."""
    path, (numbers, classes) = _find(folder, description.downloads[0].name), description.variables
    if path is None:
        return None
    X, labels = (read_matlab(path, name, memory_budget(None)) for name in (numbers, classes))
    if X.ndim != 2 or labels.size != X.shape[0]:
        raise FileFormatError(
            f"{path} holds images of shape {X.shape} and {labels.size} classes, expected one row "
            "and one class for each image: copy it anew"
        )
    grey = (X == np.floor(X)).all() and X.min(initial=0) >= 0 and X.max(initial=0) < 256
    return Numbers(X.astype(np.uint8 if grey else np.float32), labels.ravel().astype(np.int16))


def _scene(folder: Path, description: Description) -> Numbers | None:
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
            "expected one class for each pixel: get both files anew"
        )
    labels = None if classes is None else classes.reshape(-1).astype(np.int16)
    return Numbers(np.ascontiguousarray(cube).reshape(-1, cube.shape[2]), labels)


def _cells(folder: Path, description: Description) -> Numbers | None:
    path = _find(folder, PurePosixPath(description.shipped).name)
    return None if path is None else read_shipped(path)


def read_shipped(path: Path) -> Numbers:
    """Cells from the file that a package has of them."""
    cells = read_cells(path)
    return Numbers(cells.counts, cells.labels, cells.names, cells.genes, cells.types)


def _find(folder: Path, name: str) -> Path | None:
    return next(iter(sorted(path for path in folder.rglob(name) if path.is_file())), None)


def _numbered(classes: list[str], known: list[str]) -> tuple[Array, list[str]]:
    """Classes as numbers from 0, and what these are called."""
    numbers = {name: number for number, name in enumerate(known)}
    return np.array([numbers[name] for name in classes], np.int16), known


_ORIGINALS: dict[str, Callable[[Path, Description], Numbers | None]] = {
    "text": _text,
    "images": _images,
    "scene": _scene,
    "cells": _cells,
}

"""Reading a dataset from its folder: ``V.npz`` and ``labels.npy``, or the official files.

Numbers come out as they are stored, samples in rows; `load` does the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..blocks import Array
from ..disk import memory_budget
from ..errors import FileFormatError
from ..files.archives import open_npz
from ..files.images import read_resized
from ..files.limits import check_fits, named_damage
from ..files.matlab import read_matlab
from ..files.sources import Source
from .catalogue import Description

__all__ = ["Numbers", "fingerprint", "is_original", "read_folder"]

_TEXT_BYTES = 1 << 28  # of a file of counts, at most
_AT_A_TIME = 1024
_IMAGES = (".jpg", ".jpeg", ".png", ".pgm", ".bmp", ".tif", ".tiff", ".gif")


class Numbers(NamedTuple):
    """What a folder holds: samples in rows, their classes, and their names if they have any."""

    X: Any
    labels: Array | None
    names: list[str] | None = None


def fingerprint(X: Any, labels: Array | None) -> str:
    """The SHA-256 of numbers and classes, however they are stored.

    Whole numbers count as 16 bits, and classes are numbered in order of appearance.

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
        return "<u2"
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
        return name.lower().endswith(_IMAGES)
    return name in (f"{description.name}.mat", f"{description.name}.mat.rclass")


def _prepared(folder: Path) -> Numbers:
    rows = open_npz(folder / "V.npz", "rows", None, memory_budget(None)).rows
    if isinstance(rows, Source):
        shape = rows.shape
        everything = rows.read(0, shape[0])
        is_array = isinstance(everything, np.ndarray)
        rows = everything if is_array else sp.csr_array(tuple(everything), shape=shape)
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
    return Numbers(sp.csr_array(parts, shape=(N, F)), _classes(folder, description))


def _classes(folder: Path, description: Description) -> Array | None:
    path = _find(folder, f"{description.name}.mat.rclass")
    if path is None:
        return None
    check_fits(path, path.stat().st_size, _TEXT_BYTES, "a file of classes is smaller")
    with named_damage(path):
        return _numbered(path.read_text("ascii").split())


def _images(folder: Path, description: Description) -> Numbers | None:
    assert description.image_shape is not None  # all images have one
    if description.columns_first:  # somebody's version, which cannot be made from the originals
        return None
    grey, names = read_resized(folder, *description.image_shape)
    people = ["/".join(name.split("/")[: -description.levels]) for name in names]
    kept = [
        n for n, who in enumerate(people) if who.split("/")[-1] != description.left_out or not who
    ]
    if not kept:
        return None
    labels = _numbered([people[n] for n in kept], in_order=True)
    return Numbers(grey[kept] if len(kept) < len(names) else grey, labels, [names[n] for n in kept])


def _scene(folder: Path, description: Description) -> Numbers | None:
    """A cube of rows, columns and bands, and the classes of its pixels."""
    cube, classes = _cubes(folder, description)
    if cube is None:
        return None
    if cube.ndim != 3 or (classes is not None and classes.shape != cube.shape[:2]):
        raise FileFormatError(f"{folder} holds a scene of shape {cube.shape}, expected 3 sides")
    labels = None if classes is None else classes.reshape(-1).astype(np.int16)
    return Numbers(np.ascontiguousarray(cube).reshape(-1, cube.shape[2]), labels)


def _cubes(folder: Path, description: Description) -> Iterator[Array | None]:
    for download, variable in zip(description.downloads, description.variables, strict=True):
        path = _find(folder, download.name)
        yield None if path is None else read_matlab(path, variable, memory_budget(None))


def _find(folder: Path, name: str) -> Path | None:
    return next(iter(sorted(path for path in folder.rglob(name) if path.is_file())), None)


def _numbered(classes: list[str], *, in_order: bool = False) -> Array:
    """Classes as numbers from 0, sorted by name or in order of appearance."""
    known = {
        name: number
        for number, name in enumerate(dict.fromkeys(classes) if in_order else sorted(set(classes)))
    }
    return np.array([known[name] for name in classes], np.int16)


_ORIGINALS: dict[str, Callable[[Path, Description], Numbers | None]] = {
    "text": _text,
    "images": _images,
    "scene": _scene,
}

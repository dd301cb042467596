"""The datasets of the paper, and others that people factor, as the paper's experiments had them.

`load` looks into the folder that the variable CONENMF_DATA names, which has a folder for each
dataset with ``V.npz`` and ``labels.npy`` or with the official files, then into the cache of the
user, then into installed packages that have it. Nothing is fetched unless it is asked for with
``download=True``, and nothing is shipped: each dataset comes from its official source on the terms
given there.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..data.blocks import Array
from ..errors import ConeNMFError, DatasetError, DatasetMissingError, FileFormatError, OptionError
from ..names import Names
from .catalogue import ALL, Description
from .downloads import Download, Report, fetch, show_progress, unpack
from .originals import Numbers, fingerprint, is_original, read_folder, read_shipped
from .places import cache, folders, shipped
from .weights import log_counts, tf_idf

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetWarning",
    "Description",
    "Download",
    "available",
    "fingerprint",
    "load",
    "log_counts",
    "tf_idf",
]

#: What is known of each dataset, by name.
DATASETS: dict[str, Description] = {description.name: description for description in ALL}

# Which options there are for which kinds, and what can be chosen; the default comes first.
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "samples": {"scene": ("pixels", "bands")},
    "weights": {"text": ("tf-idf", "counts"), "cells": ("log", "counts")},
    "shrink": {"images": ()},
}


class DatasetWarning(UserWarning):
    """What is on this machine under the name of a dataset is not, to the bit, that dataset."""


@dataclass(frozen=True)
class Dataset:
    """A dataset as it is factored.

    Attributes
    ----------
    name : str
    X : ndarray or sparse array, shape (N, F)
        Samples in rows. Images and scenes have the integers of their source: `from_rows` computes
        in float64, but convert them before you multiply them yourself.
    labels : ndarray of shape (N,), or None
        Classes; in scenes, 0 is for pixels of no known class.
    classes : tuple of str, or None
        What the classes 0, 1 and so on are called, if the files say so.
    names : Names
    image_shape : (rows, columns), or None
        Of each sample if features are pixels, of the scene if samples are.
    K : int
        The number of classes, which the paper takes for the number of components.
    source, licence : str
    verified : bool
        Whether numbers and classes are, to the bit, those whose checksum is known; of "paviau",
        it is known for a part of the scene.
    """

    name: str
    X: Any = field(repr=False)
    labels: Array | None = field(repr=False)
    classes: tuple[str, ...] | None = field(repr=False)
    names: Names = field(repr=False)
    image_shape: tuple[int, int] | None
    K: int
    source: str
    licence: str
    verified: bool


def load(
    name: str,
    *,
    samples: Literal["pixels", "bands"] | None = None,
    weights: Literal["tf-idf", "log", "counts"] | None = None,
    shrink: int | None = None,
    download: bool = False,
    progress: Report | None = show_progress,
) -> Dataset:
    """Read a dataset, preprocessed as in the paper's experiments.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    samples : {"pixels", "bands"}, optional
        For scenes: what the samples are, by default pixels. In the paper they are the bands.
    weights : {"tf-idf", "log", "counts"}, optional
        For texts: by default "tf-idf", counts times log(N / df), documents of unit length; see
        `tf_idf`. For cells: by default "log"; see `log_counts`.
    shrink : int, optional
        For images: the means of squares of so many pixels a side; 2 halves the sides.
    download : bool
        Fetch the official files if the dataset is not on this machine, into the cache of the
        user; not all have a direct address.
    progress : callable ``(file, bytes so far, bytes in all or None)``, optional
        Called during a download; by default a bar on the terminal.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetMissingError
        If it is not there; the message says where to get it and where to put it.
    DatasetError
        If it could not be fetched, or is not what was expected. Nothing is kept then.

    Warns
    -----
    DatasetWarning
        If what is on this machine is not what the known checksum belongs to.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.K, digits.image_shape
    ((1797, 64), 10, (8, 8))
    """
    if not isinstance(name, str) or name not in DATASETS:
        raise OptionError.unknown("name", name, DATASETS)
    description = DATASETS[name]
    _check_options(description, samples, weights, shrink)
    place, numbers = _found(description)
    if numbers is None and download and description.downloads:
        place, numbers = _downloaded(description, progress)
    if numbers is None:
        raise DatasetMissingError(_where_to_get(description))
    dataset = _as_stored(description, numbers)
    if not dataset.verified:
        _warn_of_others(description, numbers, place)
    if weights != "counts" and description.kind in _WEIGHTS:
        return replace(dataset, X=_WEIGHTS[description.kind](dataset.X))
    if samples == "bands":
        return _bands_as_samples(dataset)
    return dataset if shrink is None else _shrunk(dataset, shrink)


def available() -> list[str]:
    """The names of the datasets that are on this machine, without reading them.

    >>> "digits" in available()
    True
    """
    return [name for name, description in DATASETS.items() if _is_here(description)]


_WEIGHTS = {"text": tf_idf, "cells": log_counts}


# --- finding ----------------------------------------------------------------------------------


def _check_options(
    description: Description, samples: str | None, weights: str | None, shrink: Any
) -> None:
    for option, value in (("samples", samples), ("weights", weights), ("shrink", shrink)):
        if value is None:
            continue
        kinds = _OPTIONS[option]
        if description.kind not in kinds:
            raise OptionError(
                f"{option}={value!r} is for datasets of the kind {' or '.join(map(repr, kinds))}, "
                f"and {description.name} is of the kind {description.kind!r}: leave it out"
            )
        choices = kinds[description.kind]
        if choices and value not in choices:
            raise OptionError.unknown(option, value, choices)
    if shrink is not None and (
        not isinstance(shrink, Integral)
        or shrink < 1
        or any(side % shrink for side in description.image_shape or ())
    ):
        raise OptionError(
            f"shrink={shrink!r} does not divide images of {description.image_shape}: "
            "choose a divisor of both sides"
        )


def _is_here(description: Description) -> bool:
    places = [folder / description.name for folder in folders()]
    if any(place.is_dir() and any(place.iterdir()) for place in places):
        return True
    return description.name == "digits" or shipped(description) is not None


def _found(description: Description) -> tuple[object, Numbers | None]:
    """Where the dataset is on this machine, and its numbers."""
    if description.name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return "scikit-learn", Numbers(digits.data, digits.target.astype(np.int16))
    for folder in folders():
        place = folder / description.name
        numbers = read_folder(place, description)
        if numbers is not None:
            return place, numbers
    path = shipped(description)
    return path, None if path is None else read_shipped(path)


def _where_to_get(description: Description) -> str:
    name = description.name
    places = [folder / name for folder in folders()]
    missing = f"{name} is not in {' or '.join(map(str, places))}"
    if not places:
        missing = f"{name} is not on this machine: CONENMF_DATA names no folder"
    files = "V.npz (samples in rows) and labels.npy"
    placing = f"{files}, or {description.placing}," if description.placing else files
    folder = places[0] if places else Path("$CONENMF_DATA", name)
    named = "" if os.environ.get("CONENMF_DATA") else " (CONENMF_DATA can name another folder)"
    fetched = "it has no direct address, so it cannot be fetched for you"
    if description.downloads:
        fetched = f"or load({name!r}, download=True) fetches it"
    return (
        f"{missing}. Get it from {description.source}; terms: {description.licence}. "
        f"Put {placing} into {folder}{named}; {fetched}"
    )


def _downloaded(description: Description, progress: Report | None) -> tuple[Path, Numbers]:
    """Fetch official files, and move them into the cache once they have been read and checked."""
    fetched = cache()
    if fetched is None:
        raise DatasetError(
            "there is no folder to fetch datasets into, since this user has no home: set "
            "XDG_CACHE_HOME to a folder that can be written to"
        )
    kept = fetched / description.name
    try:
        fetched.mkdir(parents=True, exist_ok=True)
        in_the_way = kept.exists() and (not kept.is_dir() or any(kept.iterdir()))
        hidden = tempfile.TemporaryDirectory(prefix=f".{description.name}-", dir=fetched)
    except OSError as problem:
        raise DatasetError(f"{fetched} cannot be written to: {problem}") from problem
    with hidden as place:
        if in_the_way:
            raise DatasetError(
                f"{kept} is in the way: nothing in it can be read as {description.name}; remove it"
            )
        folder = Path(place) / description.name
        folder.mkdir()
        for file in description.downloads:
            path = fetch(file, folder, progress)
            if path.suffix in (".gz", ".zip"):
                unpack(path, folder, lambda member: is_original(member.name, description))
                path.unlink()
        try:
            numbers = read_folder(folder, description)
        except ConeNMFError as problem:
            raise DatasetError(
                f"what was fetched for {description.name} cannot be read, and nothing was kept: "
                f"{problem}"
            ) from problem
        if numbers is None or not _is_expected(description, numbers):
            raise DatasetError(
                f"what was fetched for {description.name} is not that dataset, its checksum or its "
                f"shape is another; nothing was kept. See {description.source}"
            )
        try:
            folder.replace(kept)
        except OSError as problem:
            if read_folder(kept, description) is None:  # else another process was faster
                raise DatasetError(f"{kept} cannot be written to: {problem}") from problem
    return kept, numbers


def _is_expected(description: Description, numbers: Numbers) -> bool:
    """Whether numbers are those of the dataset, as far as that can be known."""
    if _is_verified(description, numbers):
        return True
    return (description.sha256 is None or not description.exact) and _has_its_size(
        description, numbers
    )


def _has_its_size(description: Description, numbers: Numbers) -> bool:
    if numbers.X.shape != description.shape or numbers.labels is None:
        return False
    return description.kind == "scene" or len(np.unique(numbers.labels)) == description.K


def _warn_of_others(description: Description, numbers: Numbers, place: object) -> None:
    """Say that the numbers are not those of the dataset, if that is known."""
    N, F = numbers.X.shape
    if not _has_its_size(description, numbers):
        K = "no" if numbers.labels is None else len(np.unique(numbers.labels))
        what = f"holds {N} samples of {F} features in {K} classes, expected "
        what += f"{description.shape[0]} of {description.shape[1]} in {description.K}"
    elif description.sha256 is not None:
        what = "holds other numbers or classes than those whose checksum is known"
        if not description.exact:
            what += ", as it may be if JPEG is decoded by another program"
    else:
        return
    warnings.warn(
        f"{description.name} in {place} {what}; to get it anew, see {description.source}",
        DatasetWarning,
        stacklevel=3,
    )


def _is_verified(description: Description, numbers: Numbers) -> bool:
    """Whether the checksum is the one that is known; False if none is."""
    X, labels = numbers.X, numbers.labels
    if description.sha256 is None:
        return False
    if description.window is not None:
        if X.shape != description.shape or labels is None:
            return False
        assert description.image_shape is not None  # scenes have one
        top, bottom, left, right = description.window
        part = np.arange(len(X)).reshape(description.image_shape)[top:bottom, left:right].ravel()
        X, labels = X[part], labels[part]
    return fingerprint(X, labels) == description.sha256


# --- preparing --------------------------------------------------------------------------------


def _as_stored(description: Description, numbers: Numbers) -> Dataset:
    """Samples in rows, images upright."""
    X, shape = numbers.X, description.image_shape
    verified = _is_verified(description, numbers)
    if shape is not None:
        pixels = X.shape[0 if description.kind == "scene" else 1]
        if pixels != shape[0] * shape[1]:
            raise FileFormatError(
                f"{description.name} holds {pixels} pixels where {shape[0]} x {shape[1]} are "
                f"expected: get it anew from {description.source}"
            )
    if description.columns_first and shape is not None:
        upright = X.reshape(-1, shape[1], shape[0]).transpose(0, 2, 1)
        X = np.ascontiguousarray(upright).reshape(X.shape)
    features = numbers.features
    if description.kind == "scene":
        features = [f"band {band}" for band in range(1, X.shape[1] + 1)]
    names = Names.of(numbers.names, features, shape if description.kind == "images" else None)
    return Dataset(
        name=description.name,
        X=X,
        labels=numbers.labels,
        classes=None if numbers.classes is None else tuple(numbers.classes),
        names=names.checked(*X.shape),
        image_shape=shape,
        K=description.K,
        source=description.source,
        licence=description.licence,
        verified=verified,
    )


def _bands_as_samples(dataset: Dataset) -> Dataset:
    names = Names(sample_names=dataset.names.feature_names, image_shape=dataset.image_shape)
    return replace(
        dataset, X=np.ascontiguousarray(dataset.X.T), labels=None, classes=None, names=names
    )


def _shrunk(dataset: Dataset, shrink: int) -> Dataset:
    """Means of squares of pixels."""
    assert dataset.image_shape is not None  # all images have one
    rows, columns = (side // shrink for side in dataset.image_shape)
    squares = dataset.X.reshape(-1, rows, shrink, columns, shrink)
    X = squares.mean(axis=(2, 4)).reshape(-1, rows * columns)
    names = replace(dataset.names, image_shape=(rows, columns))
    return replace(dataset, X=X, names=names, image_shape=(rows, columns))

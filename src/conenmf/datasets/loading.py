"""Loading a dataset: its options, its preprocessing, and a warning if its numbers differ.

Samples are rows, images are upright, texts and cells are weighted as in the paper's experiments.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..arguments import choice, flag, function, integer, optional
from ..data.blocks import Array
from ..errors import DatasetMissingError, FileFormatError, Message, Option, OptionError
from ..names import Names
from .catalogue import DATASETS, Description
from .checksums import has_expected_size, is_verified
from .downloads import ProgressCallback, show_progress
from .finding import fetch_dataset, find, is_here, where_to_get
from .originals import Contents
from .weights import log_counts, tf_idf

__all__ = ["Dataset", "DatasetWarning", "available", "load"]

# Which options there are for which kinds, and what can be chosen; the default comes first.
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "samples_are": {"scene": ("pixels", "bands")},
    "weights": {"text": ("tf-idf", "counts"), "cells": ("log", "counts")},
    "shrink": {"images": ()},
}
_WEIGHTS = {"text": tf_idf, "cells": log_counts}


class DatasetWarning(UserWarning):
    """The numbers on this machine under the name of a dataset differ from that dataset."""


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
        Classes; in scenes, 0 means pixels of no known class.
    classes : tuple of str, or None
        Names of the classes 0, 1 and so on, if the files have them.
    names : Names
    image_shape : (rows, columns), or None
        Of each sample if features are pixels, of the scene if samples are.
    K : int
        The number of classes, which the paper takes for the number of components.
    source, licence : str
    verified : bool
        Whether numbers and classes have, to the bit, the checksum in the catalogue; for "paviau",
        that of a window of the scene.
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
    samples_are: Literal["pixels", "bands"] | None = None,
    weights: Literal["tf-idf", "log", "counts"] | None = None,
    shrink: int | None = None,
    download: bool = False,
    progress: ProgressCallback | None = show_progress,
) -> Dataset:
    """Read a dataset, preprocessed as in the paper's experiments.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    samples_are : {"pixels", "bands"}, optional
        For scenes: by default pixels. In the paper the samples are the bands.
    weights : {"tf-idf", "log", "counts"}, optional
        For texts: by default "tf-idf", counts times log(N / df), documents of unit norm; see
        `tf_idf`. For cells: by default "log"; see `log_counts`.
    shrink : int, optional
        For images: average squares of so many pixels a side; 2 halves the sides.
    download : bool
        Fetch the official files into the user's cache if the dataset is not on this machine;
        not all have a direct address.
    progress : callable ``(file, bytes so far, bytes in all or None)``, optional
        Called during a download; by default a bar on the terminal.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetMissingError
        If it is not on this machine; the message says where to get it and where to put it.
    DatasetError
        If it could not be fetched, or is not what was expected. Nothing is kept then.

    Warns
    -----
    DatasetWarning
        If the numbers on this machine have another checksum or size than the catalogue says.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.K, digits.image_shape
    ((1797, 64), 10, (8, 8))
    """
    description = DATASETS[choice("name", name, DATASETS)]
    download = flag("download", download)
    optional(function, "progress", progress, takes=3)
    _check_options(description, samples_are=samples_are, weights=weights, shrink=shrink)
    place, contents = find(description)
    if contents is None and download and description.downloads:
        place, contents = fetch_dataset(description, progress)
    if contents is None:
        raise DatasetMissingError(where_to_get(description))
    dataset = _as_stored(description, contents)
    if not dataset.verified:
        _warn_of_difference(description, contents, place)
    if weights != "counts" and description.kind in _WEIGHTS:
        return replace(dataset, X=_WEIGHTS[description.kind](dataset.X))
    if samples_are == "bands":
        return _bands_as_samples(dataset)
    return dataset if shrink is None else _shrunk(dataset, shrink)


def available() -> list[str]:
    """The names of the datasets that are on this machine, without reading them.

    >>> "digits" in available()
    True
    """
    return [name for name, description in DATASETS.items() if is_here(description)]


def _check_options(description: Description, **options: Any) -> None:
    for option, value in options.items():
        if value is None:
            continue
        kinds = _OPTIONS[option]
        if description.kind not in kinds:
            problem = (
                f" is for datasets of the kind {' or '.join(map(repr, kinds))}, "
                f"and {description.name} is of the kind {description.kind!r}: leave it out"
            )
            raise OptionError(Message(Option(option, value), problem))
        if kinds[description.kind]:
            choice(option, value, kinds[description.kind])
    shrink = optional(integer, "shrink", options["shrink"], at_least=1)
    if shrink is not None and any(side % shrink for side in description.image_shape or ()):
        problem = f" does not divide images of {description.image_shape}"
        raise OptionError(
            Message(Option("shrink", shrink), f"{problem}: choose a divisor of both sides")
        )


def _warn_of_difference(description: Description, contents: Contents, place: object) -> None:
    """Warn if size or checksum show that the numbers are not those of the dataset."""
    N, F = contents.X.shape
    if not has_expected_size(description, contents):
        K = "no" if contents.labels is None else len(np.unique(contents.labels))
        difference = f"holds {N} samples of {F} features in {K} classes, expected "
        difference += f"{description.shape[0]} of {description.shape[1]} in {description.K}"
    elif description.sha256 is not None:
        difference = "holds other numbers or classes than those whose checksum is known"
        if not description.exact:
            difference += ", perhaps because another program decodes JPEG differently"
    else:
        return
    warnings.warn(
        f"{description.name} in {place} {difference}; to get it again, see {description.source}",
        DatasetWarning,
        stacklevel=3,
    )


def _as_stored(description: Description, contents: Contents) -> Dataset:
    """Samples in rows, images upright."""
    X, shape = contents.X, description.image_shape
    if shape is not None:
        pixels = X.shape[0 if description.kind == "scene" else 1]
        if pixels != shape[0] * shape[1]:
            raise FileFormatError(
                f"{description.name} holds {pixels} pixels where {shape[0]} x {shape[1]} are "
                f"expected: get it again from {description.source}"
            )
    if description.columns_first and shape is not None:
        upright = X.reshape(-1, shape[1], shape[0]).transpose(0, 2, 1)
        X = np.ascontiguousarray(upright).reshape(X.shape)
    feature_names = contents.feature_names
    if description.kind == "scene":
        feature_names = [f"band {band}" for band in range(1, X.shape[1] + 1)]
    image_shape = shape if description.kind == "images" else None
    names = Names.of(contents.sample_names, feature_names, image_shape)
    return Dataset(
        name=description.name,
        X=X,
        labels=contents.labels,
        classes=None if contents.class_names is None else tuple(contents.class_names),
        names=names.checked(*X.shape),
        image_shape=shape,
        K=description.K,
        source=description.source,
        licence=description.licence,
        verified=is_verified(description, contents),
    )


def _bands_as_samples(dataset: Dataset) -> Dataset:
    names = Names(sample_names=dataset.names.feature_names, image_shape=dataset.image_shape)
    return replace(
        dataset, X=np.ascontiguousarray(dataset.X.T), labels=None, classes=None, names=names
    )


def _shrunk(dataset: Dataset, shrink: int) -> Dataset:
    """Average squares of pixels."""
    assert dataset.image_shape is not None  # all images have one
    rows, columns = (side // shrink for side in dataset.image_shape)
    squares = dataset.X.reshape(-1, rows, shrink, columns, shrink)
    X = squares.mean(axis=(2, 4)).reshape(-1, rows * columns)
    names = replace(dataset.names, image_shape=(rows, columns))
    return replace(dataset, X=X, names=names, image_shape=(rows, columns))

"""The datasets of the paper, and others that people factor, as the paper's experiments had them.

`load` looks into the folder that the variable CONENMF_DATA names, which has a folder for each
dataset with ``V.npz`` and ``labels.npy`` or with the official files, then into the cache of the
user. Nothing is fetched unless it is asked for with ``download=True``, and nothing is shipped:
each dataset comes from its official source on the terms given there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from ..blocks import Array
from ..errors import (
    ConeNMFError,
    DatasetError,
    DatasetMissingError,
    FileFormatError,
    OptionError,
)
from ..names import Names
from .catalogue import ALL, Description
from .downloads import Download, Report, fetch, show_progress, unpack
from .originals import Numbers, fingerprint, is_original, read_folder

__all__ = [
    "DATASETS",
    "Dataset",
    "Description",
    "Download",
    "available",
    "fingerprint",
    "load",
    "tf_idf",
]

#: What is known of each dataset, by name.
DATASETS: dict[str, Description] = {description.name: description for description in ALL}

_CHOICES = {"samples": ("pixels", "bands"), "weights": ("tf-idf", "counts")}


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
    weights: Literal["tf-idf", "counts"] | None = None,
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
    weights : {"tf-idf", "counts"}, optional
        For texts: by default counts times log(N / df), documents of unit length; see `tf_idf`.
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

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.K, digits.image_shape
    ((1797, 64), 10, (8, 8))
    """
    if name not in DATASETS:
        raise OptionError.unknown("name", name, DATASETS)
    description = DATASETS[name]
    _check_options(description, samples, weights, shrink)
    numbers = _found(description)
    if numbers is None and download and description.downloads:
        numbers = _downloaded(description, progress)
    if numbers is None:
        raise DatasetMissingError(_where_to_get(description))
    dataset = _as_stored(description, numbers)
    if description.kind == "text" and weights != "counts":
        return replace(dataset, X=tf_idf(dataset.X))
    if samples == "bands":
        return _bands_as_samples(dataset)
    return dataset if shrink is None else _shrunk(dataset, shrink)


def available() -> list[str]:
    """The names of the datasets that are on this machine, without reading them.

    >>> "digits" in available()
    True
    """
    folders = _folders()
    return [
        name
        for name in DATASETS
        if name == "digits"
        or any((folder / name).is_dir() and any((folder / name).iterdir()) for folder in folders)
    ]


def tf_idf(counts: Any) -> Any:
    """Counts of terms times log(N / df), documents of unit length.

    A term that is in every document gets no weight; a document of such terms stays zero.

    >>> tf_idf(np.array([[2, 1, 0], [2, 0, 3]])).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    weighted = sp.csr_array(counts, dtype=np.float64, copy=True)
    weighted.sum_duplicates()
    weighted.eliminate_zeros()
    N, F = weighted.shape
    frequency = np.bincount(weighted.indices, minlength=F).clip(1)
    weighted.data *= np.log(N / frequency)[weighted.indices]
    weighted.eliminate_zeros()
    document = np.repeat(np.arange(N), np.diff(weighted.indptr))
    lengths = np.sqrt(np.bincount(document, weights=weighted.data**2, minlength=N))
    weighted.data /= lengths[document]
    if weighted.nnz < 2**31:  # scikit-learn takes no larger indices
        weighted.indices = weighted.indices.astype(np.int32)
        weighted.indptr = weighted.indptr.astype(np.int32)
    return weighted


# --- finding ----------------------------------------------------------------------------------


def _check_options(
    description: Description, samples: str | None, weights: str | None, shrink: int | None
) -> None:
    given = {
        "samples": (samples, "scene"),
        "weights": (weights, "text"),
        "shrink": (shrink, "images"),
    }
    for option, (value, kind) in given.items():
        if value is None:
            continue
        if description.kind != kind:
            raise OptionError(
                f"{option}={value!r} is for datasets of the kind {kind!r}, and {description.name} "
                f"is of the kind {description.kind!r}: leave it out"
            )
        if option in _CHOICES and value not in _CHOICES[option]:
            raise OptionError.unknown(option, value, _CHOICES[option])
    if shrink is not None and (
        shrink < 1 or any(side % shrink for side in description.image_shape or ())
    ):
        raise OptionError(
            f"shrink={shrink} does not divide images of {description.image_shape}: "
            "choose a divisor of both sides"
        )


def _cache() -> Path:
    """The folder for what can be fetched again."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "conenmf" / "datasets"


def _folders() -> list[Path]:
    """Where datasets are looked for."""
    named = os.environ.get("CONENMF_DATA")
    return [*([Path(named)] if named else []), _cache()]


def _found(description: Description) -> Numbers | None:
    if description.name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return Numbers(digits.data, digits.target.astype(np.int16))
    places = (read_folder(folder / description.name, description) for folder in _folders())
    return next((numbers for numbers in places if numbers is not None), None)


def _where_to_get(description: Description) -> str:
    name = description.name
    folder = _folders()[0] / name
    files = "V.npz (samples in rows) and labels.npy"
    placing = f"{files}, or {description.placing}," if description.placing else files
    named = "" if os.environ.get("CONENMF_DATA") else " (CONENMF_DATA can name another folder)"
    fetched = "it has no direct address, so it cannot be fetched for you"
    if description.downloads:
        fetched = f"or load({name!r}, download=True) fetches it"
    return (
        f"{name} is not in {' or '.join(str(place / name) for place in _folders())}. "
        f"Get it from {description.source}; terms: {description.licence}. "
        f"Put {placing} into {folder}{named}; {fetched}"
    )


def _downloaded(description: Description, progress: Report | None) -> Numbers:
    """Fetch official files, and move them into the cache once they have been read and checked."""
    cache = _cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        hidden = tempfile.TemporaryDirectory(prefix=f".{description.name}-", dir=cache)
    except OSError as problem:
        raise DatasetError(f"{cache} cannot be written to: {problem}") from problem
    with hidden as place:
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
        if not (cache / description.name).exists():  # else another process was faster
            folder.rename(cache / description.name)
    return numbers


def _is_expected(description: Description, numbers: Numbers) -> bool:
    if description.sha256 is None:
        return bool(numbers.X.shape == description.shape)
    return _is_verified(description, numbers)


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
    features = None
    if description.kind == "scene":
        features = [f"band {band}" for band in range(1, X.shape[1] + 1)]
    names = Names.of(numbers.names, features, shape if description.kind == "images" else None)
    return Dataset(
        name=description.name,
        X=X,
        labels=numbers.labels,
        names=names.checked(*X.shape),
        image_shape=shape,
        K=description.K,
        source=description.source,
        licence=description.licence,
        verified=verified,
    )


def _bands_as_samples(dataset: Dataset) -> Dataset:
    names = Names(samples=dataset.names.features, image_shape=dataset.image_shape)
    return replace(dataset, X=np.ascontiguousarray(dataset.X.T), labels=None, names=names)


def _shrunk(dataset: Dataset, shrink: int) -> Dataset:
    """Means of squares of pixels."""
    assert dataset.image_shape is not None  # all images have one
    rows, columns = (side // shrink for side in dataset.image_shape)
    squares = dataset.X.reshape(-1, rows, shrink, columns, shrink)
    X = squares.mean(axis=(2, 4)).reshape(-1, rows * columns)
    names = replace(dataset.names, image_shape=(rows, columns))
    return replace(dataset, X=X, names=names, image_shape=(rows, columns))

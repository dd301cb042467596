"""Loading a dataset: find its folder, read its files, preprocess it as the paper did.

The folder holds ``V.npz`` and ``labels.npy``, or the official files. Samples are rows, images are
upright. A digest of the numbers shows whether they are the ones that the catalogue describes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arguments import Shape, choice, flag, integer, optional
from ..data.blocks import Array
from ..errors import (
    FileFormatError,
    InputWarning,
    Message,
    Option,
    OptionError,
    ReadError,
)
from ..io.images import SUFFIXES
from ..io.limits import files_below, named_damage
from ..names import Names
from ..text import Texts
from .catalogue import DATASETS, Description
from .fetch import cache_folder, fetch_into_cache

_OTHER_NUMBERS = "holds other numbers or classes than those whose digest is known"
_OTHER_DECODER = f"{_OTHER_NUMBERS}, perhaps because another program decodes JPEG differently"
_MAX_ROUNDING = 0.25  # largest distance of a recovered count from a whole number


@dataclass(frozen=True)
class Dataset:
    """A dataset, ready to be factored.

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
        The number of classes, which the paper uses as the number of components.
    source, licence : str
    verified : bool
        Whether numbers and classes have, to the bit, the digest in the catalogue.
    """

    name: str
    X: Any = field(repr=False)
    labels: Array | None = field(repr=False)
    classes: Texts | None = field(repr=False)
    names: Names = field(repr=False)
    image_shape: Shape | None
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
    progress: bool = False,
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
        For images: average squares of this many pixels a side; 2 halves the sides.
    download : bool
        Fetch the official files into the user's cache if the dataset is not on this machine. It
        needs pooch, and not all datasets have a direct address.
    progress : bool
        Show a progress bar during a download; it needs tqdm.

    Returns
    -------
    Dataset

    Raises
    ------
    ReadError
        If it is not on this machine; the message says where to get it and where to put it. Or if it
        could not be fetched, or is not what was expected: nothing is kept then.

    Warns
    -----
    InputWarning
        If the numbers on this machine have another digest or size than the catalogue says.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.K, digits.image_shape
    ((1797, 64), 10, (8, 8))
    """
    description = DATASETS[choice("name", name, DATASETS)]
    flag("download", download)
    flag("progress", progress)
    _check_options(description, samples_are=samples_are, weights=weights, shrink=shrink)
    place, contents = _find(description)
    if contents is None and download and description.downloads:
        place, contents = fetch_into_cache(
            description, lambda folder: _read_expected(folder, description), progress=progress
        )
    if contents is None:
        raise ReadError(_where_to_get(description))
    dataset = _as_stored(description, contents)
    difference = _difference(description, contents)
    if difference:
        advice = f"to get it again, see {description.source}"
        warnings.warn(f"{name} in {place} {difference}; {advice}", InputWarning, stacklevel=2)
    if weights != "counts" and description.kind in _WEIGHTS:
        return replace(dataset, X=_WEIGHTS[description.kind](dataset.X))
    if samples_are == "bands":
        return _bands_as_samples(dataset)
    return dataset if shrink is None else _shrunk(dataset, shrink)


def available() -> list[str]:
    """Return the names of the datasets on this machine, without reading them.

    >>> "digits" in available()
    True
    """

    def is_here(description: Description) -> bool:
        places = [folder / description.name for folder in _folders()]
        has_files = any(place.is_dir() and any(place.iterdir()) for place in places)
        return has_files or description.name == "digits" or package_file(description) is not None

    return [name for name, description in DATASETS.items() if is_here(description)]


# --- options and preprocessing ------------------------------------------------------------------


def _check_options(description: Description, **options: object) -> None:
    for option, value in options.items():
        kinds = _OPTIONS[option]
        if value is not None and description.kind not in kinds:
            kind = f" is for datasets of the kind {' or '.join(map(repr, kinds))}, "
            own = f"and {description.name} is of the kind {description.kind!r}: leave it out"
            raise OptionError(Message(Option(option, value), kind, own))
        if value is not None and kinds[description.kind]:
            choice(option, value, kinds[description.kind])
    shrink = optional(integer, "shrink", options["shrink"], at_least=1)
    if shrink is not None and any(side % shrink for side in description.image_shape or ()):
        problem = f" does not divide images of {description.image_shape}: choose a divisor of both"
        raise OptionError(Message(Option("shrink", shrink), problem, " sides"))


def _as_stored(description: Description, contents: _Contents) -> Dataset:
    """Samples in rows, images upright."""
    X, shape = contents.X, description.image_shape
    if shape is not None:
        pixels = X.shape[0 if description.kind == "scene" else 1]
        if pixels != shape[0] * shape[1]:
            raise FileFormatError(
                f"{description.name} holds {pixels} pixels where {shape[0]} x {shape[1]} are "
                f"expected: get it again from {description.source}"
            )
        if description.kind == "images" and description.variables:  # they run down columns
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
        verified=_is_verified(description, contents),
    )


def _bands_as_samples(dataset: Dataset) -> Dataset:
    names = Names(sample_names=dataset.names.feature_names, image_shape=dataset.image_shape)
    X = np.ascontiguousarray(dataset.X.T)
    return replace(dataset, X=X, labels=None, classes=None, names=names)


def _shrunk(dataset: Dataset, shrink: int) -> Dataset:
    """Average squares of pixels."""
    assert dataset.image_shape is not None  # all images have one
    rows, columns = (side // shrink for side in dataset.image_shape)
    squares = dataset.X.reshape(-1, rows, shrink, columns, shrink)
    X = squares.mean(axis=(2, 4)).reshape(-1, rows * columns)
    names = replace(dataset.names, image_shape=(rows, columns))
    return replace(dataset, X=X, names=names, image_shape=(rows, columns))


def tf_idf(counts: object) -> Any:
    """Counts of terms times log(N / df), documents of unit norm.

    A term that is in every document gets no weight; a document of such terms stays zero.

    >>> tf_idf(np.array([[2, 1, 0], [2, 0, 3]])).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    from sklearn.preprocessing import normalize

    weighted = sp.csr_array(counts, dtype=float, copy=True)
    weighted.sum_duplicates()
    weighted.eliminate_zeros()
    N, F = weighted.shape
    frequency = np.bincount(weighted.indices, minlength=F).clip(1)
    weighted.data *= np.log(N / frequency)[weighted.indices]
    weighted.eliminate_zeros()
    if weighted.nnz < 2**31:  # scikit-learn takes no larger indices
        weighted.indices = weighted.indices.astype(np.int32)
        weighted.indptr = weighted.indptr.astype(np.int32)
    return normalize(weighted, copy=False)


def log_counts(counts: object) -> Any:
    """Counts of genes, each cell scaled to 10,000, as log(1 + x); a cell of no counts stays zero.

    >>> log_counts(np.array([[1, 0, 3], [0, 0, 0]])).toarray().round(3)
    array([[7.824, 0.   , 8.923],
           [0.   , 0.   , 0.   ]])
    """
    scaled = sp.csr_array(counts, dtype=float, copy=True)
    totals = np.asarray(scaled.sum(axis=1)).clip(1)
    scaled.data *= np.repeat(1e4 / totals, np.diff(scaled.indptr))
    return scaled.log1p()


# Which options there are for which kinds, and what can be chosen; the default comes first.
_OPTIONS: dict[str, dict[str, Texts]] = {
    "samples_are": {"scene": ("pixels", "bands")},
    "weights": {"text": ("tf-idf", "counts"), "cells": ("log", "counts")},
    "shrink": {"images": ()},
}
_WEIGHTS = {"text": tf_idf, "cells": log_counts}


# --- are these the numbers of the dataset? ------------------------------------------------------


def fingerprint(X: Any, labels: Array | None) -> str:
    """The SHA-256 of numbers and classes, independent of how they are stored.

    Whole numbers that fit count as 16 bits, and classes are numbered in order of appearance.

    >>> X = np.array([[1, 2], [3, 4]])
    >>> fingerprint(X, np.array([7, 3])) == fingerprint(X.astype("u1"), np.array([0, 1]))
    True
    >>> fingerprint(X, np.array([7, 7])) == fingerprint(X, np.array([0, 1]))
    False
    """
    digest = hashlib.sha256(repr(tuple(map(int, X.shape))).encode())
    arrays = [(X, "")]
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        arrays = [(X.indptr, "<i8"), (X.indices, "<i8"), (X.data, "")]
    for numbers, dtype in arrays:
        digest.update(numbers.astype(dtype or _digest_dtype(numbers)).tobytes())
    if labels is not None:
        _, first, number = np.unique(labels, return_index=True, return_inverse=True)
        digest.update(np.argsort(np.argsort(first))[number].astype("<i8").tobytes())
    return digest.hexdigest()


def _digest_dtype(numbers: Array) -> str:
    """The same for whole numbers of any dtype."""
    if numbers.dtype.kind in "iub" or (numbers == np.floor(numbers)).all():
        lowest, highest = numbers.min(initial=0), numbers.max(initial=0)
        if 0 <= lowest and highest < 1 << 16:
            return "<u2"
        if -(1 << 53) <= lowest and highest <= 1 << 53:
            return "<i8"
    return f"<{numbers.dtype.kind}{numbers.dtype.itemsize}"


def _is_verified(description: Description, contents: _Contents) -> bool:
    """Whether the digest is the one in the catalogue; False if it has none."""
    digest = description.sha256
    return digest is not None and fingerprint(contents.X, contents.labels) == digest


def _difference(description: Description, contents: _Contents) -> str:
    """How the data differ from the catalogue, in words; empty if that cannot be seen."""
    if _is_verified(description, contents):
        return ""
    N, F = contents.X.shape
    n_classes = 0 if contents.labels is None else len(np.unique(contents.labels))
    is_full = n_classes == description.K or (description.kind == "scene" and n_classes > 0)
    if (N, F) != description.shape or not is_full:
        expected = f"{description.shape[0]} of {description.shape[1]} in {description.K}"
        return f"holds {N} samples of {F} features in {n_classes} classes, expected {expected}"
    if description.sha256 is None:
        return ""
    return _OTHER_NUMBERS if description.exact else _OTHER_DECODER


def _read_expected(folder: Path, description: Description) -> _Contents:
    """Read fetched files; an error unless they hold the dataset, as far as that can be checked."""
    contents = _read_folder(folder, description)
    difference = "cannot be read" if contents is None else _difference(description, contents)
    if contents is None or difference not in ("", _OTHER_DECODER):
        raise FileFormatError(
            f"the files fetched are not those of {description.name}: the folder {difference}; see "
            f"{description.source}"
        )
    return contents


# --- finding and reading ------------------------------------------------------------------------


class _Contents(NamedTuple):
    """What a folder holds: samples in rows, their classes, and the names of all these."""

    X: Any
    labels: Array | None
    sample_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None


def _folders() -> list[Path]:
    """The folders in which datasets are looked for, in this order."""
    named = os.environ.get("CONENMF_DATA")
    folders = [Path(named).expanduser() if named else None, cache_folder()]
    return [folder for folder in folders if folder is not None]


def package_file(description: Description) -> Path | None:
    """The file of an installed package that holds the dataset; the package is not imported."""
    package, _, rest = description.package_file.partition("/")
    spec = importlib.util.find_spec(package) if package else None
    homes = [] if spec is None else spec.submodule_search_locations or []
    places = [Path(home, rest) for home in homes]
    return next((path for path in places if path.is_file()), None)


def _find(description: Description) -> tuple[object, _Contents | None]:
    """Where the dataset is on this machine, and what is there."""
    if description.name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return "scikit-learn", _Contents(digits.data, digits.target.astype(np.int16))
    for place in (folder / description.name for folder in _folders()):
        contents = _read_folder(place, description)
        if contents is not None:
            return place, contents
    path = package_file(description)
    return path, None if path is None else _read_cells(path.parent, description)


def _where_to_get(description: Description) -> str:
    """Where to get a missing dataset, on what terms, and where to put it."""
    name = description.name
    folders = _folders() or [Path("$CONENMF_DATA")]
    places = " or ".join(str(folder / name) for folder in folders)
    files = "V.npz (samples in rows) and labels.npy"
    if description.official_files:
        files += f", or {description.official_files},"
    fetching = "it has no direct address, so it cannot be fetched for you"
    if description.downloads:
        fetching = f"or load({name!r}, download=True) fetches it"
    return (
        f"{name} is not in {places}. Get it from {description.source}; terms: "
        f"{description.licence}. Put {files} there (CONENMF_DATA can name another folder); "
        f"{fetching}"
    )


def _read_folder(folder: Path, description: Description) -> _Contents | None:
    """What the folder of a dataset holds; None if there is nothing in it that can be read."""
    if not folder.is_dir():
        return None
    official = _read_matlab if description.variables else _OFFICIAL[description.kind]
    read = _read_prepared if (folder / "V.npz").is_file() else official
    with named_damage(folder):
        contents = read(folder, description)
    if contents is not None and contents.labels is not None:
        n_samples, n_labels = contents.X.shape[0], len(contents.labels)
        if n_samples != n_labels:
            raise FileFormatError(
                f"{folder} holds {n_samples} samples and {n_labels} labels, expected one for "
                "each: get both files again"
            )
    return contents


def _read_prepared(folder: Path, description: Description) -> _Contents:
    with open(folder / "V.npz", "rb") as stream, np.load(stream, allow_pickle=False) as file:
        X = sp.load_npz(folder / "V.npz").tocsr() if "indptr" in file else file["V"]
    path = folder / "labels.npy"
    labels = np.load(path, allow_pickle=False) if path.is_file() else None
    if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
        raise FileFormatError(
            f"{path} holds {labels.dtype} of shape {labels.shape}, expected integers in a row"
        )
    return _Contents(sp.csr_array(X) if sp.issparse(X) else X, labels)


def _read_text(folder: Path, description: Description) -> _Contents | None:
    """CLUTO's text: a line of three sizes, then pairs of term and count for each document."""
    path = _search(folder, f"{description.name}.mat")
    if path is None:
        return None
    head, *lines = path.read_text("ascii").removesuffix("\n").split("\n")
    N, F, nnz = map(int, head.split()[:3])
    documents = [np.array(line.split(), float).reshape(-1, 2) for line in lines]
    pairs = np.concatenate([np.zeros((0, 2)), *documents])
    if len(documents) != N or len(pairs) != nnz or F > path.stat().st_size:
        raise FileFormatError(
            f"{path} claims {nnz} counts of {F} terms in {N} documents and holds {len(pairs)} in "
            f"{len(documents)}: copy it again"
        )
    are_valid = (pairs >= (1, 0)) & (pairs <= (F, 1 << 53)) & (pairs == np.floor(pairs))
    if not are_valid.all():
        raise FileFormatError(f"{path} holds a term outside 1 to {F}, or a count that is not whole")
    terms, counts = pairs.astype(np.int64).T
    starts = np.cumsum([0, *map(len, documents)])
    X = sp.csr_array((counts, terms - 1, starts), shape=(N, F))
    topics = _search(folder, f"{description.name}.mat.rclass")
    if topics is None:
        return _Contents(X, None)
    class_names, labels = np.unique(topics.read_text("ascii").split(), return_inverse=True)
    return _Contents(X, labels, class_names=class_names.tolist())


def _read_images(folder: Path, description: Description) -> _Contents | None:
    """Images in folders, as 8-bit grey of one size; numbers in names count as numbers."""
    from PIL import Image

    names = [file.relative_to(folder).as_posix() for file in files_below(folder, SUFFIXES)]
    names.sort(key=_natural)
    topics = {name: _class_of(folder, name, description.class_level) for name in names}
    if description.excluded_folder:
        excluded = description.excluded_folder
        topics = {name: topic for name, topic in topics.items() if not topic.endswith(excluded)}
    if not topics or description.image_shape is None:
        return None
    rows, columns = description.image_shape
    X = np.empty((len(topics), rows * columns), np.uint8)
    for row, name in zip(X, topics, strict=True):
        with Image.open(folder / name) as image:
            grey = image.convert("L")
        if grey.size != (columns, rows):
            grey = grey.resize((columns, rows), Image.Resampling.BICUBIC)
        row[:] = np.asarray(grey).reshape(-1)
    class_names = list(dict.fromkeys(topics.values()))
    labels = np.array([class_names.index(topic) for topic in topics.values()])
    return _Contents(X, labels, list(topics), class_names=class_names)


def _natural(name: str) -> list[tuple[int, str]]:
    """The key to sort paths by so that s2 comes before s10."""
    parts = re.split(r"(\d+|/)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _class_of(folder: Path, name: str, level: int) -> str:
    """The class of an image: a folder above it, or the beginning of its own name."""
    if level == 0:
        beginning, separator, _ = name.rpartition("/")[2].partition("__")
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


def _read_matlab(folder: Path, description: Description) -> _Contents | None:
    """Images in rows, or a cube of rows, columns and bands; and the class of each row or pixel."""
    names = [url.rpartition("/")[2] for url in description.downloads]
    paths = [_search(folder, name) for name in names]
    if not paths or paths[0] is None:
        return None
    X = _variable(paths[0], description.variables[0])
    topics = None if paths[-1] is None else _variable(paths[-1], description.variables[1])
    if X.ndim != (3 if description.kind == "scene" else 2):
        raise FileFormatError(f"{paths[0]} holds numbers of shape {X.shape}, not images or a scene")
    if topics is not None and topics.squeeze().shape != X.shape[:-1]:
        raise FileFormatError(
            f"{folder} holds numbers of shape {X.shape} and classes of shape {topics.shape}, "
            "expected one class for each image or pixel: get the files again"
        )
    if description.kind == "images":
        is_grey = (X == np.floor(X)).all() and X.min(initial=0) >= 0 and X.max(initial=0) < 256
        X = X.astype(np.uint8 if is_grey else np.float32)
    labels = None if topics is None else topics.reshape(-1).astype(np.int16)
    return _Contents(np.ascontiguousarray(X).reshape(-1, X.shape[-1]), labels)


def _variable(path: Path, name: str) -> Array:
    """A numeric variable of a MATLAB file."""
    from scipy.io import loadmat

    found = loadmat(path, variable_names=[name]).get(name)
    if found is None or found.dtype.kind not in "fiu":
        raise FileFormatError(f"{path} holds no numbers called {name!r}")
    return found


def _read_cells(folder: Path, description: Description) -> _Contents | None:
    """Counts of genes from an AnnData file whose ``raw`` holds log(1 + x).

    There x is the count of a gene, scaled so that all genes of the cell sum to 10,000. The sum
    before scaling is in ``obs``, so the counts can be recovered; whole numbers prove them right.
    """
    path = _search(folder, description.package_file.rpartition("/")[2])
    if path is None:
        return None
    import anndata  # slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file has the format of an older version
        cells = anndata.read_h5ad(path)
    logs, types = sp.csr_array(cells.raw.X), cells.obs["bulk_labels"].cat
    totals = cells.obs["n_counts"].to_numpy(float)
    counts = np.expm1(logs.data.astype(float)) * np.repeat(totals, np.diff(logs.indptr)) / 1e4
    if not (np.abs(counts - np.rint(counts)) < _MAX_ROUNDING).all() or (counts < 0).any():
        raise FileFormatError(
            f"{path} does not hold logarithms of counts in raw.X, scaled to 10000 counts for each "
            "cell: copy it again"
        )
    X = sp.csr_array((np.rint(counts).astype(np.int64), logs.indices, logs.indptr), logs.shape)
    labels = types.codes.to_numpy(np.int16)
    if (labels < 0).any():
        raise FileFormatError(f"{path} has a cell without a type: copy it again")
    names = cells.obs_names.tolist(), cells.raw.var_names.tolist(), types.categories.tolist()
    return _Contents(X, labels, *names)


def _search(folder: Path, name: str) -> Path | None:
    return next(iter(sorted(path for path in folder.rglob(name) if path.is_file())), None)


_OFFICIAL: dict[str, Callable[[Path, Description], _Contents | None]] = {
    "text": _read_text,
    "images": _read_images,
    "scene": _read_matlab,
    "cells": _read_cells,
}

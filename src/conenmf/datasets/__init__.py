"""The datasets of the paper and other common ones, preprocessed as in the paper.

`load` searches the folder in the variable CONENMF_DATA, then the user's cache, then installed
packages. The folder contains one folder for each dataset, with ``V.npz`` and ``labels.npy`` or with
the official files. Nothing is downloaded without ``download=True``. No dataset is part of this
package: each comes from its official source on the terms given there.

Samples are rows, and images are upright. A digest shows whether the numbers are those that the
catalogue describes.

pooch downloads official files into the user's cache; only complete datasets are stored there. If
the SHA-256 of a file is known, it is compared. Otherwise the numbers are checked after reading: by
their digest if the catalogue has one, or by their size and the number of classes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arguments import choice, flag, optional
from ..data.blocks import Rows
from ..errors import (
    ConeNMFError,
    InputWarning,
    ReadError,
)
from ..io.images import SUFFIXES
from ..io.limits import files_below, named_damage
from ..io.open import from_rows, prepare
from ..names import Names, check_count
from ..types import Array, Shape, Texts, Titles
from .catalogue import DATASETS, Description

__all__ = [
    "DATASETS",
    "Dataset",
    "Description",
    "available",
    "fingerprint",
    "load",
    "log_counts",
    "tf_idf",
]

_OTHER_NUMBERS = "holds other numbers or classes than those whose digest is known"
_OTHER_DECODER = f"{_OTHER_NUMBERS}, perhaps because another program decodes JPEG differently"


@dataclass(frozen=True)
class Dataset:
    """A dataset, ready to be factored.

    Attributes
    ----------
    name : str
    X : ndarray or sparse array, shape (N, F)
        Samples in rows. Images and scenes have the integer type of their source: `from_rows`
        computes in float64, but convert them before you multiply them yourself.
    labels : ndarray of shape (N,), or None
        Classes of the samples; in scenes, 0 means that the class of a pixel is not known.
    classes : tuple of str, or None
        Names of the classes 0, 1 and so on, if the files have them.
    names : Names
    image_shape : (rows, columns), or None
        The shape of each sample if features are pixels, or of the scene if samples are pixels.
    K : int
        The number of classes, which the paper uses as the number of components.
    source, licence : str
    verified : bool
        Whether numbers and classes have exactly the checksum listed in the catalogue.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.labels.shape, digits.verified
    ((1797, 64), (1797,), True)
    """

    name: str
    X: Rows = field(repr=False)
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
        For texts, the default is "tf-idf": counts times log(N / df), scaled to unit norm in each
        document; see `tf_idf`. For cells, the default is "log"; see `log_counts`.
    download : bool
        Download the official files into the user's cache if the dataset is not on this machine.
        This needs pooch, and not all datasets have a direct address.
    progress : bool
        Show a progress bar during a download; this needs tqdm.

    Returns
    -------
    Dataset

    Raises
    ------
    ReadError
        If the dataset is not on this machine; the message says where to get it and where to put it.
        Also if the download failed or its content is not as expected; then nothing is kept.

    Warns
    -----
    InputWarning
        If the numbers on this machine do not have the checksum or size listed in the catalogue.

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.X.shape, digits.K, digits.image_shape
    ((1797, 64), 10, (8, 8))
    """
    description = DATASETS[choice("name", name, DATASETS)]
    flag("download", download)
    flag("progress", progress)
    choices = _CHOICES.get(description.kind, ())
    optional(choice, "weights", weights, choices)
    is_scene = description.kind == "scene"
    optional(choice, "samples_are", samples_are, ("pixels", "bands") if is_scene else ())
    place, contents = _find(description)
    if contents is None and download and description.downloads:
        place, contents = _fetch_into_cache(description, progress)
    if contents is None:
        raise ReadError(_where_to_get(description))
    difference = _difference(description, contents)
    verified = not difference and description.sha256 is not None
    dataset = _dataset(description, contents, verified)
    if difference:
        remark = f"{name} in {place} {difference}; to get it again, see {description.source}"
        warnings.warn(remark, InputWarning, stacklevel=2)
    if weights != "counts" and choices:
        return replace(dataset, X=_WEIGHTS[description.kind](dataset.X))
    return _bands_as_samples(dataset) if samples_are == "bands" else dataset


def available() -> list[str]:
    """Return the names of the datasets on this machine, without reading them.

    >>> "digits" in available()
    True
    """
    return [name for name, description in DATASETS.items() if _is_here(description)]


def _is_here(description: Description) -> bool:
    if description.name == "digits":
        return True
    places = [folder / description.name for folder in _folders()]
    return any(place.is_dir() and any(place.iterdir()) for place in places)


# --- preprocessing ------------------------------------------------------------------------------


def _dataset(description: Description, contents: _Contents, verified: bool) -> Dataset:
    """Return the dataset with samples in rows and upright images."""
    X = contents.X
    shape = description.image_shape
    if shape is not None and description.kind == "images" and description.variables:
        rows, columns = shape
        upright = X.reshape(-1, columns, rows).transpose(0, 2, 1)  # stored by columns
        X = np.ascontiguousarray(upright).reshape(X.shape)
    feature_names = contents.feature_names
    if description.kind == "scene":
        feature_names = [f"band {band}" for band in range(1, X.shape[1] + 1)]
    image_shape = shape if description.kind == "images" else None
    names = Names.of(contents.sample_names, feature_names, image_shape)
    class_names = contents.class_names
    return Dataset(
        name=description.name,
        X=X,
        labels=contents.labels,
        classes=None if class_names is None else tuple(class_names),
        names=names.checked(*X.shape),
        image_shape=shape,
        K=description.K,
        source=description.source,
        licence=description.licence,
        verified=verified,
    )


def _bands_as_samples(dataset: Dataset) -> Dataset:
    names = Names(sample_names=dataset.names.feature_names, image_shape=dataset.image_shape)
    X = np.ascontiguousarray(dataset.X.T)
    return replace(dataset, X=X, labels=None, classes=None, names=names)


def tf_idf(counts: object) -> Rows:
    """Return counts of terms times log(N / df), with documents of unit norm.

    A term that is in every document has weight 0; a document of such terms stays zero.

    >>> tf_idf(np.array([[2, 1, 0], [2, 0, 3]])).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    return _prepare(counts, tfidf=True)


def log_counts(counts: object) -> Rows:
    """Return log(1 + x) of gene counts with each cell scaled to 10,000; empty cells stay zero.

    >>> log_counts(np.array([[1, 0, 3], [0, 0, 0]])).toarray().round(3)
    array([[7.824, 0.   , 8.923],
           [0.   , 0.   , 0.   ]])
    """
    return _prepare(counts, normalize_total=1e4, log1p=True)


def _prepare(counts: object, **steps: Any) -> Rows:
    V = prepare(from_rows(sp.csr_array(counts)), **steps)
    rows = V.columns(np.arange(V.n_samples)).T
    rows.eliminate_zeros()
    return rows


# The weights of each kind of dataset; the default comes first.
_CHOICES: dict[str, Texts] = {"text": ("tf-idf", "counts"), "cells": ("log", "counts")}
_WEIGHTS = {"text": tf_idf, "cells": log_counts}


# --- checks of the numbers ------------------------------------------------------------------------


def fingerprint(X: Rows, labels: Array | None) -> str:
    """Return the SHA-256 of numbers and classes, independent of their storage.

    Integers that fit count as 16 bits, and classes are numbered in order of appearance.

    >>> X = np.array([[1, 2], [3, 4]])
    >>> fingerprint(X, np.array([7, 3])) == fingerprint(X.astype("u1"), np.array([0, 1]))
    True
    >>> fingerprint(X, np.array([7, 7])) == fingerprint(X, np.array([0, 1]))
    False
    """
    shape = tuple(map(int, X.shape))
    digest = hashlib.sha256(repr(shape).encode())
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
        rank = np.argsort(np.argsort(first)).astype("<i8")
        digest.update(rank[number].tobytes())
    return digest.hexdigest()


def _digest_dtype(numbers: Array) -> str:
    """Return the dtype for a digest; it is the same for equal integers of any dtype."""
    if numbers.dtype.kind in "iub" or (numbers == np.floor(numbers)).all():
        lowest = numbers.min(initial=0)
        highest = numbers.max(initial=0)
        if 0 <= lowest and highest < 1 << 16:
            return "<u2"
        if -(1 << 53) <= lowest and highest <= 1 << 53:
            return "<i8"
    return f"<{numbers.dtype.kind}{numbers.dtype.itemsize}"


def _difference(description: Description, contents: _Contents) -> str:
    """Describe how the data differ from the catalogue; "" if no difference is known."""
    digest = description.sha256
    if digest is not None and fingerprint(contents.X, contents.labels) == digest:
        return ""
    N, F = contents.X.shape
    n_classes = 0 if contents.labels is None else len(np.unique(contents.labels))
    has_all = n_classes == description.K or (description.kind == "scene" and n_classes > 0)
    if (N, F) != description.shape or not has_all:
        expected = f"expected {description.shape} in {description.K}"
        return f"holds {(N, F)} numbers in {n_classes} classes, {expected}"
    if digest is None:
        return ""
    return _OTHER_NUMBERS if description.exact else _OTHER_DECODER


# --- finding and reading ------------------------------------------------------------------------


class _Contents(NamedTuple):
    """The content of a folder: samples in rows, their classes, and their names."""

    X: Rows
    labels: Array | None
    sample_names: Titles = None
    feature_names: Titles = None
    class_names: Titles = None


def _folders() -> list[Path]:
    """Return the folders that are searched for datasets, in this order."""
    folders = []
    named = os.environ.get("CONENMF_DATA")
    if named:
        folders.append(Path(named).expanduser())
    cache = cache_folder()
    if cache is not None:
        folders.append(cache)
    return folders


def _find(description: Description) -> tuple[object, _Contents | None]:
    """Find the dataset on this machine: its location and its content."""
    if description.name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return "scikit-learn", _Contents(digits.data, digits.target.astype(np.int16))
    for place in (folder / description.name for folder in _folders()):
        contents = _read_folder(place, description)
        if contents is not None:
            return place, contents
    return None, None


def _where_to_get(description: Description) -> str:
    """Describe where to get a missing dataset, on what terms, and where to put it."""
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
    """Read the folder of a dataset; None if it contains nothing readable."""
    if not folder.is_dir():
        return None
    official = _read_matlab if description.variables else _OFFICIAL[description.kind]
    read = _read_arrays if (folder / "V.npz").is_file() else official
    with named_damage(folder):
        contents = read(folder, description)
    if contents is not None and contents.labels is not None:
        check_count(len(contents.labels), f"labels in {folder}", contents.X.shape[0])
    return contents


def _read_arrays(folder: Path, description: Description) -> _Contents:
    with open(folder / "V.npz", "rb") as stream, np.load(stream, allow_pickle=False) as file:
        X = sp.csr_array(sp.load_npz(folder / "V.npz")) if "indptr" in file else file["V"]
    path = folder / "labels.npy"
    labels = np.load(path, allow_pickle=False) if path.is_file() else None
    return _Contents(X, labels)


def _read_text(folder: Path, description: Description) -> _Contents | None:
    """Read CLUTO's text: a line with three sizes, then pairs of term and count per document."""
    path = _search(folder, f"{description.name}.mat")
    if path is None:
        return None
    head, *lines = path.read_text("ascii").removesuffix("\n").split("\n")
    documents = [np.array(line.split(), float).reshape(-1, 2) for line in lines]
    pairs = np.concatenate([np.zeros((0, 2)), *documents])
    terms, counts = pairs.astype(np.int64).T
    rows = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    n_rows, n_terms, *_ = head.split()
    shape = (int(n_rows), int(n_terms))
    X = sp.coo_array((counts, (rows, terms - 1)), shape).tocsr()  # raises an error for other terms
    topics = _search(folder, f"{description.name}.mat.rclass")
    if topics is None:
        return _Contents(X, None)
    class_names, labels = np.unique(topics.read_text("ascii").split(), return_inverse=True)
    return _Contents(X, labels, class_names=class_names.tolist())


def _read_images(folder: Path, description: Description) -> _Contents | None:
    """Read images in folders as 8-bit grey of one size; numbers in names sort as numbers."""
    from PIL import Image

    names = [file.relative_to(folder).as_posix() for file in files_below(folder, SUFFIXES)]
    excluded = description.excluded_folder
    topics = {}
    for name in sorted(names, key=_natural):
        topic = _class_of(name, description.class_level)
        if not (excluded and topic.endswith(excluded)):
            topics[name] = topic
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
    """Return a key that sorts s2 before s10."""
    parts = re.split(r"(\d+|/)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _class_of(name: str, level: int) -> str:
    """Return the class of an image: a folder above it, or the start of its file name."""
    if level == 0:
        return name.rpartition("/")[2].partition("__")[0]
    return "/".join(name.split("/")[:-level])


def _read_matlab(folder: Path, description: Description) -> _Contents | None:
    """Read images in rows, or a cube of rows, columns and bands, with classes of rows or pixels."""
    from scipy.io import loadmat

    names = [url.rpartition("/")[2] for url in description.downloads]
    paths = [_search(folder, name) for name in names]
    if not paths or paths[0] is None:
        return None
    X = loadmat(paths[0])[description.variables[0]]
    labels = None
    if paths[-1] is not None:
        topics = loadmat(paths[-1])[description.variables[1]]
        labels = topics.reshape(-1).astype(np.int16)
    if description.kind == "images":
        is_whole = (X == np.floor(X)).all()
        is_grey = is_whole and X.min(initial=0) >= 0 and X.max(initial=0) < 256
        X = X.astype(np.uint8 if is_grey else np.float32)
    return _Contents(np.ascontiguousarray(X).reshape(-1, X.shape[-1]), labels)


def _read_cells(folder: Path, description: Description) -> _Contents | None:
    """Read gene counts from an AnnData file whose ``raw`` contains log(1 + x).

    There x is the count of a gene, scaled so that the genes of each cell sum to 10,000. ``obs``
    contains the sum before scaling, so the counts can be recovered.
    """
    path = _search(folder, description.downloads[0].rpartition("/")[2])
    if path is None:
        return None
    import anndata  # slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file is in an older format
        cells = anndata.read_h5ad(path)
    logs = sp.csr_array(cells.raw.X)
    types = cells.obs["bulk_labels"].cat
    totals = cells.obs["n_counts"].to_numpy(float)
    shares = np.expm1(logs.data.astype(float))
    counts = shares * np.repeat(totals, np.diff(logs.indptr)) / 1e4
    X = sp.csr_array((np.rint(counts).astype(np.int64), logs.indices, logs.indptr), logs.shape)
    return _Contents(
        X,
        types.codes.to_numpy(np.int16),
        cells.obs_names.tolist(),
        cells.raw.var_names.tolist(),
        types.categories.tolist(),
    )


def _search(folder: Path, name: str) -> Path | None:
    files = [path for path in folder.rglob(name) if path.is_file()]
    return min(files, default=None)


_OFFICIAL = {
    "text": _read_text,
    "images": _read_images,
    "scene": _read_matlab,
    "cells": _read_cells,
}


# --- downloads ------------------------------------------------------------------------------------


def cache_folder() -> Path | None:
    """Return the folder of downloaded datasets; None without pooch."""
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("conenmf")) / "datasets"


def _fetch_into_cache(description: Description, progress: bool) -> tuple[Path, _Contents]:
    """Download the official files, check them by reading them, then move them into the cache."""
    cache = cache_folder()
    if cache is None:
        raise ReadError("fetching datasets needs pooch: pip install 'conenmf[datasets]'")
    target = cache / description.name
    if target.exists() and any(target.iterdir()):
        raise ReadError(f"{target} exists but does not hold {description.name}: remove it")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
            folder = Path(temporary, description.name)
            for url in description.downloads:
                _retrieve(folder, url, description.download_sha256, progress)
            contents = _read_folder(folder, description)
            if contents is None or _difference(description, contents) not in ("", _OTHER_DECODER):
                raise ReadError(f"the files fetched are not those of {description.source}")
            os.replace(folder, target)
    except (ConeNMFError, OSError) as error:
        raise ReadError(f"{description.name} was not fetched: {error}") from error
    return target, contents


def _retrieve(folder: Path, url: str, sha256: str | None, progress: bool) -> None:
    """Download a file, and unpack it if it is an archive."""
    import pooch

    name = url.rpartition("/")[2]
    pooch.get_logger().setLevel("ERROR")  # it reports every download
    try:
        path = pooch.retrieve(url, sha256, name, folder, progressbar=progress)
        if name.endswith(".zip"):
            shutil.unpack_archive(path, folder)  # rejects files outside the folder
            os.remove(path)
        elif name.endswith(".gz"):
            shutil.unpack_archive(path, folder, filter="data")  # as well
            os.remove(path)
    except Exception as error:  # requests, tarfile and zipfile have no common class
        raise ReadError(f"{url} could not be fetched: {error}") from error

"""Functions that open a matrix.

`from_rows`, `from_columns` and `open_data` state whether samples are rows or columns. They return a
`DataMatrix`, the input of every algorithm, after one pass that validates the data. The ending of a
file, or the content of a folder, decides which function reads it. Public functions pass what they
are given to `as_data`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from ..arguments import choice, flag, instance, integer, number, optional, several, text
from ..arguments import path as checked_path
from ..data.blocks import Rows, canonical_rows, is_sparse
from ..data.imputation import clip_negative
from ..data.known import observed_only, remark_on_weights
from ..data.matrix import DataMatrix
from ..data.memory import hold
from ..data.prepare import (
    MAX_TOTAL,
    Preparation,
    Vocabulary,
    Words,
    apply_preparation,
    inverse_frequencies,
)
from ..data.resources import MemorySize, memory_budget
from ..data.validate import (
    Negative,
    SamplesIn,
    as_matrix,
    check_entries,
    check_kind,
    require_data_matrix,
)
from ..errors import (
    ConeNMFError,
    DataError,
    DataTypeError,
    FileFormatError,
    InputWarning,
    Message,
    Option,
    OptionError,
    name_out_of_memory,
)
from ..names import Names, names_of
from ..scale.disk import DiskMatrix, Source, Stamp
from ..text import shown, visible
from ..types import Facts, PathLike
from .arrays import open_matlab, open_matrix_market, open_npy, open_npz
from .hdf5 import open_object, open_zarr
from .images import SUFFIXES, open_images, open_stack
from .limits import files_below, named_damage
from .source import ArraySource, Column, NamedMatrix, Reading, Remarks, as_pixels
from .spectral import open_envi
from .tables import open_arrow, open_parquet, remark_on_columns
from .tenx import matrix_of_folder, open_10x_folder, open_h5
from .text import TEXT_SUFFIXES, open_text, open_texts

_SIDE_BYTES = 256  # memory for a row or a column of a sparse matrix in a fit of few components
_MAX_SAMPLES = 2**62
_A_COLUMN = "the title of a column, or its number from 0"
_SAVING_MEMORY = (
    "remove rows and columns that are empty, open it from a file, or raise ",
    Option("max_memory"),
)


def from_rows(
    X: object,
    *,
    negative: Negative = "raise",
    n_threads: int | None = None,
    max_memory: MemorySize = None,
    persist: bool | None = None,
    names: Names | None = None,
    block_samples: int | None = None,
    missing: str | float = "raise",
    mask: object = None,
    weights: object = None,
    sigma: object = None,
) -> DataMatrix:
    """Read a matrix whose *rows* are the samples, as in scikit-learn.

    Parameters
    ----------
    X : array, scipy sparse matrix or array, open file or Dask array, shape (N, F)
        Entries must be nonnegative and finite. Dense arrays are never copied: float32 and float16
        are computed in float32, and every other type in float64, block by block. Sparse formats
        other than CSR, and CSR with unsorted or repeated indices, are converted once. A
        `numpy.memmap`, and datasets and sparse groups of HDF5 (h5py) and Zarr, are read from disk
        in blocks; see also `open_data`. They must not change while they are in use. A Dask array
        stays on its workers, also within a DataArray of xarray or as a Dask data frame, whose
        coordinates or columns become names.
    negative : {"raise", "clip", "keep"}
        With "clip", negative entries down to -1e-6 times the largest entry become zeros; lower ones
        raise an error. With "keep" negative entries are kept, for noise around zero; then use
        "hals" or "nnlsb".
    n_threads : int, optional
        Number of threads that work on blocks; by default all processors that this process may use.
        It does not change the results.
    max_memory : int or str, optional
        For files: the memory that data and results may take, such as "1GB"; by default half of
        the memory of the machine or container. See `open_data`.
    persist : bool, optional
        For Dask arrays: keep the data in the memory of the workers. The default is True if they
        take less than half of that memory.
    names : Names, optional
        Names of samples and features, which replace those of the data.
    block_samples : int, optional
        Largest number of samples in a block; by default chosen from the size of the data. It
        changes results only by rounding.
    missing : {"raise", "nan", "zeros"} or a number
        With "nan", NaN and masked entries are missing. With "zeros", zeros are missing; in a sparse
        matrix these are the entries that are not stored, such as unknown ratings. With a number,
        such as -999, entries that equal it and NaN are missing.
    mask : array like X, optional
        True where an entry is known. Unknown entries may have any value.
    weights : array like X, or (F,), optional
        The weight of each entry, at least 0, such as 1 / sigma^2 for uncertainties sigma; a weight
        of 0 means missing. An array (F,) has the weight of each feature.
    sigma : array like X, optional
        The uncertainty of each entry, above 0: its weight is 1 / sigma^2. An entry is missing if
        its uncertainty is NaN. The uncertainties of other missing entries may have any value.

    Examples
    --------
    >>> V = from_rows([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    >>> V.shape, V.passes
    ((2, 3), 1.0)
    >>> V.norms_squared
    array([25.,  4.,  1.])
    """
    return _read(
        X,
        "rows",
        negative=negative,
        max_memory=max_memory,
        names=names,
        persist=persist,
        n_threads=n_threads,
        block_samples=block_samples,
        missing=missing,
        mask=mask,
        weights=weights,
        sigma=sigma,
    )


def from_columns(
    V: object,
    *,
    negative: Negative = "raise",
    n_threads: int | None = None,
    max_memory: MemorySize = None,
    persist: bool | None = None,
    names: Names | None = None,
    block_samples: int | None = None,
    missing: str | float = "raise",
    mask: object = None,
    weights: object = None,
    sigma: object = None,
) -> DataMatrix:
    """Read a matrix whose *columns* are the samples, as in the paper; see `from_rows`.

    Sparse matrices in CSC format need no conversion.

    Parameters
    ----------
    V : array, scipy sparse matrix or array, open file or Dask array, shape (F, N)
    negative, n_threads, max_memory, persist, names, block_samples
        As in `from_rows`.
    missing, mask, weights, sigma
        As in `from_rows`; arrays have the shape of V.

    Examples
    --------
    >>> from_columns([[3.0, 0.0, 1.0], [4.0, 2.0, 0.0]]).norms_squared
    array([25.,  4.,  1.])
    """
    return _read(
        V,
        "columns",
        negative=negative,
        max_memory=max_memory,
        names=names,
        persist=persist,
        n_threads=n_threads,
        block_samples=block_samples,
        missing=missing,
        mask=mask,
        weights=weights,
        sigma=sigma,
    )


def open_data(
    path: PathLike,
    *,
    samples_in: SamplesIn = "rows",
    dataset: str | None = None,
    header: bool | None = None,
    names_column: Column | None = None,
    drop: Column | Iterable[Column] = (),
    text_column: Column | None = None,
    words: Words | Vocabulary | None = None,
    triples: Iterable[Column] | None = None,
    negative: Negative = "raise",
    n_threads: int | None = None,
    max_memory: MemorySize = None,
    names: Names | None = None,
    block_samples: int | None = None,
    missing: str | float = "raise",
    mask: object = None,
    weights: object = None,
    sigma: object = None,
) -> DataMatrix:
    """Read a matrix from a file, block by block, so that it may be larger than memory.

    Parameters
    ----------
    path : str or path
        ``.npy``; ``.npz`` with one matrix or with the parts of a sparse one, as
        `scipy.sparse.save_npz` writes them; HDF5 (``.h5``, ``.hdf5``) and NetCDF 4 (``.nc``,
        ``.nc4``); AnnData (``.h5ad``); a Zarr store; text (``.csv``, ``.tsv``, ``.txt``, also with
        ``.gz``; ``.data`` and ``.dat``); SigProfiler's ``.all``, ``.exome`` and ``.region``;
        Parquet and Arrow (``.parquet``, ``.pq``, ``.arrow``, ``.feather``, ``.ipc``); MATLAB
        (``.mat``); Matrix Market (``.mtx``, ``.mtx.gz``); ENVI scenes (``.hdr`` with ``.img``,
        ``.bsq``, ``.bil`` or ``.bip``) and TIFF stacks (``.tif``, ``.tiff``); a folder from 10x; or
        a folder of images or texts (``.txt``), each of which is a sample.
        Files that store sample after sample (rows in C order, CSR) are read fastest. The result has
        the names of samples and features in its attribute ``names``, if the file has them, and
        ``remarks`` says how the file was read.
    samples_in : {"rows", "columns"}
        Whether the samples are the rows or the columns of the matrix in the file. The samples of an
        array of three axes are the pixels of an image of (rows, columns, bands), or, with
        "columns", of (bands, rows, columns).
    dataset : str, optional
        The member of the file to read, such as ``"/group/counts"`` or ``"layers/counts"``; you can
        also write ``"file.h5:/group/counts"``. By default the only member, or X.
    header : bool, optional
        For text: whether the first line is a header. By default it is a header if it has texts
        above numbers. If it has numbers that may be titles, an `InputWarning` says how it was read.
    names_column : str or int, optional
        For tables: the column with the names of the rows, by its title or its number, counted from
        0. By default the first column, if it contains texts or looks like row numbers.
    drop : str, int or several
        For tables: columns that are not read, such as dates. An `InputWarning` names columns that
        were read as data, but look like row numbers, identifiers or dates.
    text_column : str or int, optional
        For ``.csv`` and ``.tsv``: the samples are the texts in this column.
    words : Words or Vocabulary, optional
        For texts: options that select the words; or the ``vocabulary`` of an earlier result, to
        read new texts for its model. Other data ignore it.
    triples : three columns, optional
        For text: the columns of users, items and ratings, by title or number, if each row is one
        rating. Users become the samples; pairs without a rating are missing. By default such a
        table is recognised by its titles or its content; ``()`` reads it as an ordinary table.
    negative, n_threads
        As in `from_rows`.
    max_memory : int or str, optional
        The memory that data and results may take, such as ``"1GB"``, besides some 300 MB for Python
        and the libraries; by default half of the memory of the machine or container. A quarter of
        it is for the blocks in use, and at most a sixteenth for any array with one row per sample.
        If H takes more, it is stored in a temporary file in the folder of the data (or in the
        system's temporary folder, if the former is read-only); save the result to keep it. A table
        that takes more than a quarter is converted once to a temporary file of numbers.
    names, block_samples, missing, mask, weights, sigma
        As in `from_rows`.

    Notes
    -----
    The libraries of each format read the files; open only files that you would open with them. No
    pickle is loaded, and a header that claims more data than the file can hold raises an error
    before memory is allocated. ``docs/files.md`` lists all limits.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "counts.npy")
    >>> np.save(path, np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]))
    >>> open_data(path, max_memory="100MB").shape
    (2, 3)
    """
    choice("samples_in", samples_in, ("rows", "columns"))
    dropped = [drop] if isinstance(drop, str | int) else several("drop", drop, _A_COLUMN)
    reading = Reading(
        memory_budget(max_memory),
        optional(text, "dataset", dataset),
        optional(flag, "header", header),
        optional(_column, "names_column", names_column),
        tuple(_column("drop", column) for column in dropped),
        optional(_column, "text_column", text_column),
        optional(_triple, "triples", triples),
    )
    return _read(
        checked_path("path", path),
        samples_in,
        negative=negative,
        max_memory=max_memory,
        names=names,
        words=words,
        reading=reading,
        n_threads=n_threads,
        block_samples=block_samples,
        missing=missing,
        mask=mask,
        weights=weights,
        sigma=sigma,
    )


def from_texts(
    texts: Iterable[str],
    *,
    words: Words | Vocabulary | None = None,
    names: Names | None = None,
    n_threads: int | None = None,
    max_memory: MemorySize = None,
) -> DataMatrix:
    """Read texts: each text is a sample, and each word a feature, weighted by tf-idf.

    scikit-learn's `TfidfVectorizer` counts them. Files of texts are read by `open_data`.

    Parameters
    ----------
    texts : list of str
    words : Words or Vocabulary, optional
        Options that select the words; or the ``vocabulary`` of an earlier result, to read new texts
        for its model.
    names, n_threads, max_memory
        As in `from_rows`.

    Examples
    --------
    >>> from conenmf import ConeNMF
    >>> V = from_texts(["oak elm", "elm oak ash", "salt pepper", "pepper salt"])
    >>> model = ConeNMF(2).fit(V)
    >>> model.top_features(2)
    [['elm', 'oak'], ['pepper', 'salt']]
    >>> new = from_texts(["an oak and an elm"], words=model.result_.vocabulary)
    >>> model.predict(new)
    array([0])
    """
    matrix = NamedMatrix(list(several("texts", texts, "a list of texts")))
    return _read(
        matrix, "rows", max_memory=max_memory, names=names, words=words, n_threads=n_threads
    )


def as_data(V: object, *, nonzero: bool = False, holes: bool = False) -> DataMatrix:
    """Return the data of a public function: a `DataMatrix` as it is, else what `from_rows` reads.

    `nonzero` and `holes` are those of `require_data_matrix`. An error that advises an option of
    `from_rows` shows the call with this option, since the function itself does not take it.

    >>> as_data([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]).shape
    (2, 3)
    """
    if not isinstance(V, DataMatrix):
        try:
            V = from_rows(V)
        except ConeNMFError as problem:
            raise _with_call(problem) from problem.__cause__
    require_data_matrix(V, nonzero=nonzero, holes=holes)
    return V


def _with_call(problem: ConeNMFError) -> ConeNMFError:
    """Return an error of `from_rows`; if it advises an option, with the call that takes it."""
    parts = Message(*problem.args).parts
    if any(isinstance(part, Option) for part in parts):
        return type(problem)(*parts, "; options for reading go to from_rows(X, ...)")
    return problem


def prepare(
    V: object,
    *,
    normalize_total: float | None = None,
    log1p: bool = False,
    tfidf: bool = False,
    normalize: bool = False,
    floor: float = 0.0,
) -> DataMatrix:
    """Return a view of V with the selected steps applied, in the order of the parameters.

    This takes up to three passes. The view's `preparation` describes the steps and stores the
    weights; a result of `factorize` keeps it, and `apply_preparation` applies the same steps to new
    samples.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    normalize_total : float, optional
        Scale each sample to this sum, such as 10,000 for the counts of a cell.
    log1p : bool
        Take log(1 + x) of each entry.
    tfidf : bool
        Multiply each feature by log(N / df), where df is the number of samples, out of N, that have
        the feature, and scale samples to unit length. A feature that all samples have gets the
        weight 0.
    normalize : bool
        Scale each sample to unit length.
    floor : float
        Add this share of the mean entry to every entry. With the Itakura-Saito loss, silence then
        counts no more than a faint sound.

    Examples
    --------
    >>> from conenmf import factorize
    >>> from conenmf.data.prepare import apply_preparation
    >>> V = prepare([[2, 1, 0], [2, 0, 3]], tfidf=True)
    >>> V.columns([0, 1])
    array([[0., 0.],
           [1., 0.],
           [0., 1.]])
    >>> result = factorize(V, 1)
    >>> apply_preparation(from_rows([[5, 1, 0]]), result.preparation).columns([0]).ravel()
    array([0., 1., 0.])
    """
    V = as_data(V, holes=True)  # `apply_preparation` rejects missing entries, with advice
    total = optional(number, "normalize_total", normalize_total, above=0, at_most=MAX_TOTAL)
    log1p = flag("log1p", log1p)
    tfidf = flag("tfidf", tfidf)
    normalize = flag("normalize", normalize)
    if tfidf and V.vocabulary is not None:
        raise OptionError(
            Option("tfidf", True),
            " is for counts, and these texts are weighted so already: leave it out",
        )
    floor = number("floor", floor, at_least=0, at_most=1)
    idf = inverse_frequencies(V) if tfidf else None
    steps = Preparation(total, log1p, idf, normalize or tfidf)
    if floor:
        steps = replace(steps, floor=floor * apply_preparation(V, steps).mean())
    return apply_preparation(V, steps)


def is_elsewhere(X: object) -> bool:
    """Return whether this is not an array in memory: an open file, Dask array or `DataMatrix`."""
    return isinstance(X, DataMatrix) or _is_dask(X) or is_open_dataset(X)


def _is_dask(X: object) -> bool:
    """Return whether this is a Dask array or data frame, or what xarray makes of one."""
    libraries = {base.__module__.partition(".")[0] for base in type(X).__mro__}
    if "xarray" in libraries:
        return getattr(X, "chunks", None) is not None
    return "dask" in libraries


def _column(name: str, value: object) -> Column:
    """Return a title or a number; reject anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise OptionError(Option(name, value), f", expected {_A_COLUMN}")
    return value


def _triple(name: str, value: Any) -> tuple[Column, ...]:
    columns = tuple(_column(name, column) for column in several(name, value, _A_COLUMN))
    if len(columns) not in (0, 3):
        expected = ", expected three columns: of users, items and ratings"
        raise OptionError(Option(name, columns), expected)
    return columns


# --- opening ----------------------------------------------------------------------------------


def _read(
    X: Any,
    samples_in: SamplesIn,
    *,
    max_memory: MemorySize,
    names: Names | None,
    n_threads: int | None,
    negative: Negative = "raise",
    block_samples: int | None = None,
    words: object = None,
    persist: bool | None = None,
    reading: Reading | None = None,
    **known: Any,
) -> DataMatrix:
    """Return a validated matrix with one row per sample; X is the caller's matrix or a path.

    The options in `known` are those of `observed_only`.
    """
    if not isinstance(words, Words | Vocabulary | None):
        raise OptionError(
            Option("words", words), ", expected Words(...), the vocabulary of a result, or None"
        )
    choice("negative", negative, ("raise", "clip", "keep"))
    optional(integer, "block_samples", block_samples, at_least=1, at_most=_MAX_SAMPLES)
    optional(instance, "names", names, Names)
    optional(flag, "persist", persist)
    budget = memory_budget(max_memory)
    for name in ("mask", "weights", "sigma"):  # of xarray
        if hasattr(known.get(name), "dims") and _is_dask(known[name]):
            known[name] = known[name].data
    vocabulary = None
    if reading is not None:
        opened = open_path(X, reading)
    else:
        opened = _opened(X, samples_in, persist, known)
    if isinstance(opened.matrix, list):
        if not opened.matrix:
            raise DataError("there are no texts: give at least one")
        rows, vocabulary, said = (Words() if words is None else words).counted(opened.matrix)
        titled = opened.names.updated(Names.of(feature_names=vocabulary.words))
        opened = NamedMatrix(rows, titled, (Message(said),), opened.fixed)
    n_axes = len(getattr(opened.matrix, "axes", opened.matrix.shape))
    if reading is not None and n_axes == 3 and not opened.fixed:
        opened = as_pixels(opened, samples_in)
    elif samples_in == "columns" or opened.are_columns:
        samples_in = "columns"
        opened = opened.turned()
    options: Facts = {"n_threads": n_threads, "block_samples": block_samples}
    options["names"] = opened.names if names is None else opened.names.updated(names)
    shape = " x ".join(map(str, opened.matrix.shape))
    with name_out_of_memory(f"a matrix of {shape}", *_SAVING_MEMORY):
        V = _made(opened.matrix, budget, persist, options)
        V.remarks = tuple(str(remark.parts[0]) for remark in opened.remarks)
        V.vocabulary = vocabulary
        if opened.are_unknown:
            known["missing"] = "zeros"
        V = observed_only(V, samples_in=samples_in, **known)
        V = clip_negative(V) if check_entries(V, samples_in, negative) else V
        if isinstance(known.get("missing"), str) and known["missing"] == "zeros":
            V.are_ratings = is_sparse(V.columns(np.arange(1)))
    is_weighed = getattr(known.get("weights"), "ndim", 0) == 2 and V.is_in_memory
    if is_weighed and (said := remark_on_weights(V)):
        warnings.warn(InputWarning(Message(said, Option("sigma"))), stacklevel=3)
    for remark in opened.remarks:
        if len(remark.parts) > 1:
            name = "the data frame: " if reading is None else f"{visible(X)}: "
            warnings.warn(InputWarning(Message(name, *remark.parts)), stacklevel=3)
    return V


def _opened(X: object, samples_in: SamplesIn, persist: bool | None, known: Facts) -> NamedMatrix:
    """Open the caller's matrix in its own orientation: in memory, an open file, or a Dask array."""
    if isinstance(X, NamedMatrix):
        return X
    if isinstance(X, str | os.PathLike):
        place = shown(checked_path("X", X))
        raise DataTypeError(f"got the path {place}, expected a matrix: use open_data({place})")
    if _is_dask(X):
        from ..scale.dask import array_of

        return NamedMatrix(*array_of(X))
    if persist is not None:
        raise OptionError(
            Option("persist", persist), f" is for Dask arrays, got {type(X).__name__}: leave it out"
        )
    if is_open_dataset(X):
        return open_dataset(X)
    found = names_of(X)
    with name_out_of_memory("the data", *_SAVING_MEMORY):
        matrix = as_matrix("X" if samples_in == "rows" else "V", X, known["missing"])
    titles = found.feature_names
    remarks: Remarks = ()
    if titles is not None and len(titles) == matrix.shape[1] and not sp.issparse(matrix):
        remarks = remark_on_columns(matrix, titles, in_memory=True)
    return NamedMatrix(matrix, found, remarks)


def _made(rows: Rows, budget: int, persist: bool | None, options: Facts) -> DataMatrix:
    """Return a matrix of the class for the storage of the rows."""
    if _is_dask(rows):
        from ..scale.dask import ClusterMatrix

        return ClusterMatrix(rows, persist, **options)
    rows = rows.readable(budget) if isinstance(rows, Source) else rows
    check_kind(rows.dtype, rows.shape)
    if isinstance(rows, Source):
        return DiskMatrix(rows, budget, **options)
    if sp.issparse(rows) and _SIDE_BYTES * sum(rows.shape) > budget:
        raise MemoryError(f"{_SIDE_BYTES * sum(rows.shape)} bytes for its rows and columns")
    return hold(canonical_rows(rows), **options)


# --- formats ----------------------------------------------------------------------------------


Opener: TypeAlias = Callable[[Path, Reading], NamedMatrix]

_ENDINGS: dict[Opener, str] = {
    open_npy: ".npy",
    open_npz: ".npz",
    open_h5: ".h5 .hdf5 .h5ad .nc .nc4",
    open_text: ".csv .csv.gz .tsv .tsv.gz .txt .txt.gz "
    ".all .exome .region "  # of SigProfiler
    ".data .dat",  # of MovieLens
    open_parquet: ".parquet .pq",
    open_arrow: ".arrow .feather .ipc",
    open_matrix_market: ".mtx .mtx.gz",
    open_matlab: ".mat",
    open_envi: ".hdr .img .bsq .bil .bip",
    open_stack: ".tif .tiff",
}
# The function that opens a file, by its ending.
KINDS = {ending: opener for opener, endings in _ENDINGS.items() for ending in endings.split()}

# Options that only some formats have.
_OPTIONS: dict[Opener, tuple[str, ...]] = {
    **dict.fromkeys((open_npz, open_matlab, open_h5, open_zarr), ("dataset",)),
    open_text: ("header", "names_column", "drop", "text_column", "triples"),
    **dict.fromkeys((open_parquet, open_arrow), ("names_column", "drop")),
}

_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")  # a store contains one of them


def open_path(path: str, reading: Reading) -> NamedMatrix:
    """Open a file or folder by its name, in its own orientation."""
    if reading.dataset is None:
        path, member = split_member(path)
        reading = reading._replace(dataset=member)
    file = Path(path)
    if not file.exists():
        others = [one for one in file.parent.glob("*") if one.name != f"{file.name}-conenmf"]
        beside = {one.name.lower(): one.name for one in others}
        close = get_close_matches(file.name.lower(), beside, 1)
        hint = f": did you mean {visible(beside[close[0]])}?" if close else ""
        if "://" in path:
            hint = ": addresses are not opened; download it, then name the file"
        raise FileNotFoundError(f"there is no file {visible(path)}{hint}")
    opener = _opener(file)
    for option, value in reading._asdict().items():
        is_known = option == "budget" or option in _OPTIONS.get(opener, ())
        if value not in (None, ()) and not is_known:
            raise OptionError(
                Option(option, value), f" is not an option for {visible(path)}: leave it out"
            )
    stamp = Stamp([file] if file.is_file() else [])
    with named_damage(file):
        matrix = opener(file, reading)
    stamp.check()
    return matrix


def split_member(text: str) -> tuple[str, str | None]:
    """Split ``file.h5:/member`` into the file and its member.

    >>> split_member("gone.h5:/counts"), split_member("gone.csv")
    (('gone.h5', '/counts'), ('gone.csv', None))
    """
    file, colon, member = text.rpartition(":")
    is_whole = not colon or os.path.exists(text) or member.startswith("//")  # https://...
    return (text, None) if is_whole else (file, member)


def _opener(file: Path) -> Opener:
    """Return the function that opens a file, by its ending, or a folder, by its content."""
    if file.is_dir():
        if file.suffix == ".zarr" or any((file / name).exists() for name in _ZARR_FILES):
            return open_zarr
        if matrix_of_folder(file) is not None:
            return open_10x_folder
        has_texts = not files_below(file, SUFFIXES) and files_below(file, TEXT_SUFFIXES)
        return open_texts if has_texts else open_images
    endings = ("".join(file.suffixes[-2:]).lower(), file.suffix.lower())
    found = [KINDS[ending] for ending in endings if ending in KINDS]
    if not found or not file.is_file():
        raise FileFormatError(
            f"{file}: unknown file format; known are {', '.join(sorted(KINDS))}, folders that hold "
            "a Zarr store or the matrix.mtx of 10x, and folders of images or texts; save a "
            "spreadsheet as CSV (UTF-8), samples in rows, titles of columns in the first line; "
            "read libsvm files with sklearn.datasets.load_svmlight_file, and save X with "
            "scipy.sparse.save_npz"
        )
    return found[0]


# --- open files -------------------------------------------------------------------------------


def is_open_dataset(matrix: object) -> bool:
    """Return whether this is an open file, not an array in memory.

    A memmap is an open file if it shows the content of the file, without unwritten changes.
    """
    if isinstance(matrix, np.memmap):
        return matrix.filename is not None and matrix.mode != "c" and matrix.ndim == 2
    if isinstance(matrix, np.ndarray) or hasattr(matrix, "tocsr"):  # includes AnnData's views
        return False
    return type(matrix).__module__.partition(".")[0] in ("h5py", "zarr", "anndata")


def open_dataset(matrix: Any) -> NamedMatrix:
    """Open a memmap, or a dataset or group of HDF5 or Zarr, in its own orientation."""
    if not isinstance(matrix, np.memmap):
        return open_object(matrix)
    path = str(matrix.filename)
    stamp = Stamp([path]) if matrix.mode == "r" and os.path.isfile(path) else None
    return NamedMatrix(ArraySource(np.asarray(matrix), path, path, stamp))

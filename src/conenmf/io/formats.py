"""Which file is read by which function: by the ending of its name, or by what a folder holds."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..data.disk import Stamp
from ..errors import FileFormatError, Message, Option, OptionError
from ..text import visible
from .arrays import open_matlab, open_matrix_market, open_npy, open_npz
from .columnar import open_arrow, open_parquet
from .hdf5 import open_object
from .images import SUFFIXES, open_images, open_stack
from .limits import files_below
from .source import ArraySource, NamedMatrix
from .spectral import open_envi
from .tables import Column, ColumnChoice
from .tenx import matrix_of_folder, open_10x_folder, open_h5
from .text import TEXT_SUFFIXES, open_text, open_text_column, open_texts
from .zarr import open_zarr

Opener: TypeAlias = Callable[..., NamedMatrix]

KINDS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys((".h5", ".hdf5", ".h5ad"), open_h5),
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"), open_text),
    **dict.fromkeys((".parquet", ".pq"), open_parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), open_arrow),
    **dict.fromkeys((".mtx", ".mtx.gz"), open_matrix_market),
    ".mat": open_matlab,
    **dict.fromkeys((".hdr", ".img", ".bsq", ".bil", ".bip"), open_envi),
    **dict.fromkeys((".tif", ".tiff"), open_stack),
}
"""By the ending of a file, the function that opens it."""

_TABLES = (open_text, open_parquet, open_arrow)
_WITH_MEMBERS = (open_npz, open_matlab, open_h5, open_zarr)
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")  # a store has one of them


def open_path(
    path: str | os.PathLike[str],
    dataset: str | None,
    budget: int,
    choice: ColumnChoice = ColumnChoice(),  # noqa: B008 - immutable
    text_column: Column | None = None,
) -> NamedMatrix:
    """Open a file or folder by its name, in its own orientation."""
    text = os.fspath(path)
    if dataset is None:
        text, dataset = split_member(text)
    if not os.path.exists(text):
        problem = f"there is no file {visible(text)}"
        if _ADDRESS.match(text):
            problem = f"{visible(text)} is an address, not a file: download it and give the file"
        raise FileNotFoundError(problem)
    file = Path(text)
    opener = _opener(file)
    if dataset is not None and opener not in _WITH_MEMBERS:
        raise OptionError(
            f"{visible(text)} holds one matrix, not several: leave out {visible(dataset)!r}"
        )
    stamp = Stamp([file] if file.is_file() else [])
    if text_column is not None:
        matrix = open_text_column(file, text_column, budget, choice)
    elif opener is open_text or (opener in _TABLES and choice.header is None):
        matrix = opener(file, budget, choice)
    else:
        for option, value in choice._asdict().items():
            if value not in (None, ()):
                kind = "tables written as text" if option == "header" else "tables"
                problem = f" is for {kind}, and {visible(text)} is none: leave it out"
                raise OptionError(Message(Option(option), problem))
        matrix = opener(file, dataset, budget)
    stamp.check()
    return matrix


def split_member(text: str) -> tuple[str, str | None]:
    """A file and the member of it that ``file.h5:/member`` names.

    >>> split_member("gone.h5:/counts"), split_member("gone.csv")
    (('gone.h5', '/counts'), ('gone.csv', None))
    """
    file, colon, member = text.rpartition(":")
    is_whole = not colon or os.path.exists(text) or member.startswith("//")  # https://...
    return (text, None) if is_whole else (file, member)


def _opener(file: Path) -> Opener:
    """The function that opens a file, by its ending, or a folder, by its content."""
    if file.is_dir():
        if file.suffix == ".zarr" or any((file / name).exists() for name in _ZARR_FILES):
            return open_zarr
        if matrix_of_folder(file) is not None:
            return open_10x_folder
        has_texts = not files_below(file, SUFFIXES) and files_below(file, TEXT_SUFFIXES)
        return open_texts if has_texts else open_images
    if not file.is_file():
        raise FileFormatError(f"{file} is neither a file nor a folder: save the data as a file")
    for ending in ("".join(file.suffixes[-2:]).lower(), file.suffix.lower()):
        if ending in KINDS:
            return KINDS[ending]
    if file.suffix.lower() in _SPREADSHEETS:
        raise FileFormatError(
            f"{file} is a spreadsheet, which is not read: save the sheet with the numbers as CSV "
            "(UTF-8), samples in rows, titles of columns in the first line, and give that file"
        )
    raise FileFormatError(
        f"{file}: unknown file format; known are {', '.join(sorted(KINDS))}, "
        "folders that hold a Zarr store or the matrix.mtx of 10x, and folders of images or texts"
    )


# --- open files -------------------------------------------------------------------------------


def is_open_dataset(matrix: Any) -> bool:
    """Whether this is an open file rather than an array in memory.

    A memmap is one if it shows the numbers of its file in order, and no unwritten changes.
    """
    if isinstance(matrix, np.memmap):
        base: Any = matrix.base
        is_whole = isinstance(base, mmap.mmap) and matrix.filename is not None
        is_contiguous = matrix.flags.c_contiguous or matrix.flags.f_contiguous
        return is_whole and is_contiguous and matrix.mode != "c" and matrix.ndim == 2
    if isinstance(matrix, np.ndarray) or hasattr(matrix, "tocsr"):  # AnnData's views among them
        return False
    return type(matrix).__module__.partition(".")[0] in ("h5py", "zarr", "anndata")


def open_dataset(matrix: Any) -> NamedMatrix:
    """Open a memmap, or a dataset or group of HDF5 or Zarr, in its own orientation."""
    if not isinstance(matrix, np.memmap):
        return open_object(matrix)
    path = str(matrix.filename)
    stamp = Stamp([path]) if matrix.mode == "r" and os.path.isfile(path) else None
    return NamedMatrix(ArraySource(np.asarray(matrix), path, path, stamp))

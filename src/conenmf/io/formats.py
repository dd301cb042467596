"""Which file is read by which function: by the ending of its name, or by what a folder holds."""

from __future__ import annotations

import importlib
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
from .columns import Column, ColumnChoice
from .limits import files_below
from .source import ArraySource, NamedMatrix
from .tenx import matrix_of_folder
from .texts import TEXT_SUFFIXES, open_text_column

__all__ = ["KINDS", "is_open_dataset", "open_dataset", "open_path", "split_member"]

Opener: TypeAlias = Callable[..., NamedMatrix]

KINDS: dict[str, str] = {
    ".npy": "arrays.open_npy",
    ".npz": "arrays.open_npz",
    ".h5": "tenx.open_h5",
    ".hdf5": "tenx.open_h5",
    ".h5ad": "hdf5.open_hdf5",
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"), "text.open_text"),
    **dict.fromkeys((".parquet", ".pq"), "columnar.open_parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "columnar.open_arrow"),
    **dict.fromkeys((".mtx", ".mtx.gz"), "arrays.open_matrix_market"),
    ".mat": "arrays.open_matlab",
    **dict.fromkeys((".hdr", ".img", ".bsq", ".bil", ".bip"), "spectral.open_envi"),
    **dict.fromkeys((".tif", ".tiff"), "images.open_stack"),
}
"""By the ending of a file, the module and the function that reads it."""

_TABLES = ("text.", "columnar.")
_WITH_MEMBERS = ("arrays.open_npz", "arrays.open_matlab", "hdf5", "tenx.open_h5", "zarr")
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
    if not _exists(text):
        problem = f"there is no file {visible(text)}"
        if _ADDRESS.match(text):
            problem = f"{visible(text)} is an address, not a file: download it and give the file"
        raise FileNotFoundError(problem)
    file = Path(text)
    kind = _kind(file)
    if dataset is not None and not kind.startswith(_WITH_MEMBERS):
        raise OptionError(
            f"{visible(text)} holds one matrix, not several: leave out {visible(dataset)!r}"
        )
    stamp = Stamp([file] if file.is_file() else [])
    if text_column is not None:
        matrix = open_text_column(file, text_column, budget, choice)
    elif kind.startswith(_TABLES):
        if choice.header is not None and not kind.startswith("text."):
            raise _unsuitable("header", "tables written as text", text)
        matrix = _opener(kind)(file, budget, choice)
    else:
        for option, value in choice._asdict().items():
            if value not in (None, ()):
                raise _unsuitable(option, "tables", text)
        matrix = _opener(kind)(file, dataset, budget)
    stamp.check()
    return matrix


def _unsuitable(option: str, kind: str, text: str) -> OptionError:
    problem = f" is for {kind}, and {visible(text)} is none: leave it out"
    return OptionError(Message(Option(option), problem))


def _opener(kind: str) -> Opener:
    module, _, name = kind.partition(".")
    opener: Opener = getattr(importlib.import_module(f".{module}", __package__), name)
    return opener


def split_member(text: str) -> tuple[str, str | None]:
    """A file and the member of it that ``file.h5:/member`` names.

    >>> split_member("gone.h5:/counts"), split_member("gone.csv")
    (('gone.h5', '/counts'), ('gone.csv', None))
    """
    file, colon, member = text.rpartition(":")
    is_whole = not colon or _exists(text) or member.startswith("//")  # https://...
    return (text, None) if is_whole else (file, member)


def _exists(text: str) -> bool:
    try:
        return os.path.exists(text)
    except ValueError:  # a zero byte
        return False


def _kind(file: Path) -> str:
    if file.is_dir():
        if file.suffix == ".zarr" or any((file / name).exists() for name in _ZARR_FILES):
            return "zarr.open_zarr"
        if matrix_of_folder(file) is not None:
            return "tenx.open_10x_folder"
        images = importlib.import_module(".images", __package__)
        has_texts = not files_below(file, images.SUFFIXES) and files_below(file, TEXT_SUFFIXES)
        return "texts.open_texts" if has_texts else "images.open_images"
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
    """Whether this is an open file rather than an array in memory."""
    if isinstance(matrix, np.memmap):
        return _is_whole_file(matrix)
    if isinstance(matrix, np.ndarray) or hasattr(matrix, "tocsr"):  # AnnData's views among them
        return False
    return type(matrix).__module__.partition(".")[0] in ("h5py", "zarr", "anndata")


def _is_whole_file(array: Any) -> bool:
    """Whether a memmap shows the numbers of its file in order, and no unwritten changes."""
    return (
        array.filename is not None
        and array.mode in ("r", "r+", "w+")
        and isinstance(array.base, mmap.mmap)
        and (array.flags.c_contiguous or array.flags.f_contiguous)
        and array.ndim == 2
    )


def open_dataset(matrix: Any) -> NamedMatrix:
    """Open a memmap, or a dataset or group of HDF5 or Zarr, in its own orientation."""
    if not isinstance(matrix, np.memmap):
        return _opener("hdf5.open_object")(matrix)
    path = str(matrix.filename)
    stamp = Stamp([path]) if matrix.mode == "r" and os.path.isfile(path) else None
    return NamedMatrix(ArraySource(np.asarray(matrix), path, path, stamp))

"""File formats: the opener of a file by its name, and of datasets that are open already."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import DataChangedError, FileFormatError, Message, Option, OptionError
from ...text import visible
from .archives import open_npy, open_npz
from .columnar import open_arrow, open_parquet
from .columns import Column, ColumnChoice
from .envi import ENDINGS, open_envi
from .evidence import WatchedFile
from .folders import files_below
from .images import SUFFIXES, open_images, open_stack
from .layouts import OpenFile, RawArray, RawSource
from .locks import remove_leftovers
from .market import open_matrix_market
from .matlab import open_matlab
from .sources import NamedMatrix
from .stores import open_hdf5, open_object
from .tables import open_text
from .tenx import matrix_of_folder, open_10x_folder, open_h5
from .texts import TEXT_SUFFIXES, open_text_column, open_texts
from .watch import Watch
from .zarr_stores import open_zarr

__all__ = ["KINDS", "is_open_dataset", "open_dataset", "open_path", "split_member"]

Opener: TypeAlias = Callable[..., NamedMatrix]
"""Takes the path, the name of a member, the memory budget in bytes, and of tables the columns."""

KINDS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".h5": open_h5,
    ".hdf5": open_h5,
    ".h5ad": open_hdf5,
    ".csv": open_text,
    ".csv.gz": open_text,
    ".tsv": open_text,
    ".tsv.gz": open_text,
    ".txt": open_text,
    ".txt.gz": open_text,
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".arrow": open_arrow,
    ".feather": open_arrow,
    ".ipc": open_arrow,
    ".mtx": open_matrix_market,
    ".mtx.gz": open_matrix_market,
    ".mat": open_matlab,
    ".hdr": open_envi,
    **dict.fromkeys(ENDINGS, open_envi),
    ".tif": open_stack,
    ".tiff": open_stack,
}
_TABLES = (open_text, open_parquet, open_arrow)
_WITH_MEMBERS = (open_npz, open_hdf5, open_h5, open_zarr, open_matlab)

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
        is_address = _ADDRESS.match(text) is not None
        raise FileNotFoundError(
            f"{visible(text)} is an address, not a file: download it and give the file"
            if is_address
            else f"there is no file {visible(text)}"
        )
    file = Path(text)
    remove_leftovers(file.parent)
    opener = _opener(file)
    if dataset is not None and opener not in _WITH_MEMBERS:
        raise OptionError(
            f"{visible(text)} holds one matrix, not several: leave out {visible(dataset)!r}"
        )
    if text_column is not None:
        return _unchanged(file, lambda: open_text_column(file, text_column, budget, choice))
    if opener in _TABLES:
        _check_header(text, opener, choice)
        return _unchanged(file, lambda: opener(file, dataset, budget, choice))
    for option, value in choice._asdict().items():
        if value not in (None, ()):
            raise OptionError(
                Message(
                    Option(option), f" is for tables, and {visible(text)} is none: leave it out"
                )
            )
    return _unchanged(file, lambda: opener(file, dataset, budget))


def _unchanged(path: Path, read: Callable[[], NamedMatrix]) -> NamedMatrix:
    """What is read of a file, all of it or its header, unless the file changed meanwhile."""
    watch = Watch(str(path), (WatchedFile(path),) if path.is_file() else ())
    matrix = read()
    watch.check()
    return matrix


def _check_header(text: str, opener: Opener, choice: ColumnChoice) -> None:
    if choice.header is not None and opener is not open_text:
        raise OptionError(
            Message(
                Option("header"),
                f" is for tables written as text, and {visible(text)} stores its titles apart: "
                "leave it out",
            )
        )


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


def _opener(file: Path) -> Opener:
    if file.is_dir():
        is_zarr = file.suffix == ".zarr" or any((file / name).exists() for name in _ZARR_FILES)
        if is_zarr:
            return open_zarr
        if matrix_of_folder(file) is not None:
            return open_10x_folder
        has_texts = not files_below(file, SUFFIXES) and files_below(file, TEXT_SUFFIXES)
        return open_texts if has_texts else open_images
    if not file.is_file():
        raise FileFormatError(f"{file} is neither a file nor a folder: save the data as a file")
    endings = "".join(file.suffixes[-2:]).lower(), file.suffix.lower()
    for ending in endings:
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


def open_dataset(matrix: Any, budget: int) -> NamedMatrix:
    """Open a memmap, or a dataset or group of HDF5 or Zarr, in its own orientation."""
    if not isinstance(matrix, np.memmap):
        return open_object(matrix, budget)
    if matrix.mode != "r":
        matrix.flush()
    file = OpenFile(str(matrix.filename), is_mapped=True)
    fortran = not matrix.flags.c_contiguous
    source = RawSource(RawArray(file, matrix.offset, matrix.shape, fortran, matrix.dtype))
    for row in {0, len(matrix) // 2, len(matrix) - 1}:
        if source.read(row, row + 1).tobytes() != matrix[row].tobytes():
            raise DataChangedError(
                f"{file.path} does not hold what the memmap shows: it was replaced, or is being "
                "written; map it again"
            )
    return NamedMatrix(source)

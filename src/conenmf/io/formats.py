"""Which file is read by which function: by the ending of its name, or by what a folder holds."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..errors import FileFormatError, Message, Option, OptionError
from ..scale.disk import Stamp
from ..text import visible
from .arrays import open_matlab, open_matrix_market, open_npy, open_npz
from .columnar import open_arrow, open_parquet
from .hdf5 import open_object, open_zarr
from .images import SUFFIXES, open_images, open_stack
from .limits import files_below, named_damage
from .source import ArraySource, NamedMatrix, Reading
from .spectral import open_envi
from .tenx import matrix_of_folder, open_10x_folder, open_h5
from .text import TEXT_SUFFIXES, open_text, open_texts

Opener: TypeAlias = Callable[[Path, Reading], NamedMatrix]

KINDS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys((".h5", ".hdf5", ".h5ad"), open_h5),
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"), open_text),
    **dict.fromkeys((".all", ".exome", ".region"), open_text),  # of SigProfiler
    **dict.fromkeys((".parquet", ".pq"), open_parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), open_arrow),
    **dict.fromkeys((".mtx", ".mtx.gz"), open_matrix_market),
    ".mat": open_matlab,
    **dict.fromkeys((".hdr", ".img", ".bsq", ".bil", ".bip"), open_envi),
    **dict.fromkeys((".tif", ".tiff"), open_stack),
}
"""By the ending of a file, the function that opens it."""

_OPTIONS: dict[Opener, tuple[str, ...]] = {
    **dict.fromkeys((open_npz, open_matlab, open_h5, open_zarr), ("dataset",)),
    open_text: ("header", "names_column", "drop", "text_column"),
    **dict.fromkeys((open_parquet, open_arrow), ("names_column", "drop")),
}
"""The options that only some formats have."""

_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")  # a store has one of them


def open_path(path: str, reading: Reading) -> NamedMatrix:
    """Open a file or folder by its name, in its own orientation."""
    if reading.dataset is None:
        path, member = split_member(path)
        reading = reading._replace(dataset=member)
    file = Path(path)
    if not file.exists():
        beside = [other.name for other in file.parent.glob("*")]
        close = get_close_matches(file.name, beside, 1)
        hint = f": did you mean {visible(close[0])}?" if close else ""
        if "://" in path:
            hint = ": addresses are not opened; download it, then name the file"
        raise FileNotFoundError(f"there is no file {visible(path)}{hint}")
    opener = _opener(file)
    for option, value in reading._asdict().items():
        is_known = option == "budget" or option in _OPTIONS.get(opener, ())
        if value not in (None, ()) and not is_known:
            problem = f" is not an option for {visible(path)}: leave it out"
            raise OptionError(Message(Option(option, value), problem))
    stamp = Stamp([file] if file.is_file() else [])
    with named_damage(file):
        matrix = opener(file, reading)
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
    endings = ("".join(file.suffixes[-2:]).lower(), file.suffix.lower())
    found = [KINDS[ending] for ending in endings if ending in KINDS]
    if not found or not file.is_file():
        raise FileFormatError(
            f"{file}: unknown file format; known are {', '.join(sorted(KINDS))}, folders that hold "
            "a Zarr store or the matrix.mtx of 10x, and folders of images or texts; save a "
            "spreadsheet as CSV (UTF-8), samples in rows, titles of columns in the first line"
        )
    return found[0]


# --- open files -------------------------------------------------------------------------------


def is_open_dataset(matrix: object) -> bool:
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

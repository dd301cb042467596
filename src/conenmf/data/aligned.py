"""Aligned arrays in files: temporary ones that are too large for memory, and those that are saved.

A temporary file has no name: the operating system deletes it together with the array that is mapped
from it, also if the process is killed. An array in a checkpoint has a checksum, which is compared
before the array is used.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import flush
from ..errors import CheckpointError, Message, Option, OutputError, is_disk_full
from .blocks import Array
from .matrix import Checksum

_WRITTEN_BYTES = 64 << 20  # at a time
_READ_BYTES = 4 << 20  # at a time


def write_array(stream: Any, array: Any) -> None:
    """Write an array in the ``.npy`` format; one on a cluster is fetched a part at a time."""
    if isinstance(array, np.ndarray):
        np.lib.format.write_array(stream, array, allow_pickle=False)
        return
    descr = np.lib.format.dtype_to_descr(array.dtype)
    header = {"descr": descr, "fortran_order": True, "shape": array.shape}
    np.lib.format.write_array_header_2_0(stream, header)
    rows = array.T  # one per sample
    size = max(1, _WRITTEN_BYTES // (rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for first in range(0, len(rows), size):
        stream.write(np.asarray(rows[first : first + size]).tobytes())


def save_array(path: Path, array: Any) -> Checksum:
    """Write an array to a new ``.npy`` file that is on the disk when this returns."""
    with open(path, "wb") as stream:
        write_array(stream, array)
        flush(stream)
    return _checksum(path)


def check_file(path: Path, expected: Checksum | None) -> None:
    """Refuse a file that is not what was written."""
    try:
        problem = "" if _checksum(path) == expected else "is damaged: it is not what was written"
    except OSError as failure:
        problem = f"cannot be read: {failure.strerror}"
    if problem:
        raise CheckpointError(f"{path} {problem}; delete its folder to run from the beginning")


def _checksum(path: Path) -> Checksum:
    size, crc = 0, 0
    with open(path, "rb") as stream:
        while part := stream.read(_READ_BYTES):
            size += len(part)
            crc = zlib.crc32(part, crc)
    return size, crc


def new_file(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in a temporary file in the folder, or where it can be written to."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a mapped hole of a full disk would crash
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as problem:
        if not is_disk_full(problem):
            raise
        raise OutputError(
            Message(
                f"not enough disk space for {size / 1e9:.3g} GB of coefficients in {folder}: "
                "free some, or raise ",
                Option("max_memory"),
                " so that they stay in memory",
            )
        ) from problem


def release_rows(array: Array, start: int, stop: int) -> None:
    """Release the memory of rows that are mapped from a file; they stay in the file."""
    mapping = mapping_of(array)
    if mapping is None:
        return
    offset = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    first = offset + start * array.strides[0]
    last = offset + stop * array.strides[0]
    first, last = first - first % mmap.PAGESIZE, min(last - last % mmap.PAGESIZE, len(mapping))
    if last > first:
        mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def mapping_of(array: Any) -> mmap.mmap | None:
    """Return the file that an array is mapped from, if its changes are in the file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.mode == "c":  # changes are in memory only
            return None
        array = array.base
    return array if isinstance(array, mmap.mmap) else None

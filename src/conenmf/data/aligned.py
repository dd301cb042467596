"""Aligned arrays in files: written a part at a time, or kept in a file because they are large.

An array in a file of its own is mapped into memory. The file is temporary: it is deleted together
with the array, unless `keep_file` gives it a lasting name.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DiskFullError, Message, Option, is_disk_full
from .blocks import Array
from .files.atomic import temporary_name

__all__ = ["keep_file", "map_file", "new_file", "release_rows", "write_array"]

_WRITTEN_BYTES = 64 << 20  # at a time

_ours: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
"""Files made or opened here; the mappings of others may hold changes that are not written."""

_temporary: weakref.WeakKeyDictionary[mmap.mmap, tuple[Path, Any]] = weakref.WeakKeyDictionary()
"""Files that are deleted together with the arrays in them."""


def write_array(stream: Any, array: Any) -> None:
    """Write an array in the ``.npy`` format, a part at a time: it may be on disk or a cluster."""
    # H is the transpose of what keeps samples together, and is written like that.
    in_rows = isinstance(array, np.ndarray) and array.flags.c_contiguous
    columns = array.ndim == 2 and not in_rows
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": columns,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_2_0(stream, header)
    if array.ndim == 0:
        stream.write(np.asarray(array).tobytes())
        return
    rows = array.T if columns else array
    size = max(1, _WRITTEN_BYTES // (rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for first in range(0, len(rows), size):
        stream.write(np.ascontiguousarray(rows[first : first + size]).tobytes())


def new_file(folder: Path, stem: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in a new temporary file in the folder, or where it can be written to."""
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir())
    path = temporary_name(folder / f"{stem}.npy")
    size = int(np.prod(shape)) * dtype.itemsize
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        with open(path, "r+b") as file:  # writing to a mapped hole of a full disk would crash
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError as problem:
        path.unlink(missing_ok=True)
        if is_disk_full(problem):
            raise DiskFullError(
                Message(
                    f"not enough disk space for {size / 1e9:.3g} GB of coefficients in {folder}: "
                    "free some, or raise ",
                    Option("max_memory"),
                    " so that they stay in memory",
                )
            ) from problem
        raise
    mapping = _mapping_of(array)
    assert mapping is not None
    _ours.add(mapping)
    _temporary[mapping] = (path, weakref.finalize(mapping, path.unlink, missing_ok=True))
    return array


def map_file(path: Path) -> Array:
    """Return the array of a ``.npy`` file, left in the file."""
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    mapping = _mapping_of(array)
    assert mapping is not None
    _ours.add(mapping)
    return array


def keep_file(array: Array, stem: str) -> Array:
    """Give an array's temporary file a lasting name that begins with the stem, if it has one."""
    mapping = _mapping_of(array)
    if mapping is None or mapping not in _temporary:
        return array
    path, finalizer = _temporary[mapping]
    lasting = path.with_name(f"{stem}.H.npy")
    for number in range(1, 10**6):
        try:
            os.close(os.open(lasting, os.O_CREAT | os.O_EXCL))  # earlier results stay
            break
        except FileExistsError:
            lasting = path.with_name(f"{stem}.H-{number}.npy")
    finalizer.detach()
    del _temporary[mapping]
    os.replace(path, lasting)
    return map_file(lasting)


def release_rows(array: Array, start: int, stop: int) -> None:
    """Release the memory of rows that are in a file of ours; they stay in the file."""
    mapping = _mapping_of(array)
    if mapping is None or mapping not in _ours:
        return
    offset = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    first = offset + start * array.strides[0]
    last = offset + stop * array.strides[0]
    first, last = first - first % mmap.PAGESIZE, min(last - last % mmap.PAGESIZE, len(mapping))
    if last > first:
        mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping_of(array: Array) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None

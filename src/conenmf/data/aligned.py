"""Aligned arrays in files: written a part at a time, or kept in a file because they are large.

An array in a file of its own is mapped into memory. The file is temporary: it is deleted together
with the array, unless `keep_file` gives it a lasting name. An array in a checkpoint has a checksum,
which is computed while it is written, and compared before it is used.
"""

from __future__ import annotations

import functools
import mmap
import os
import tempfile
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar

import numpy as np

from ..atomic import Temporary, flush, remove_abandoned
from ..errors import CheckpointError, Message, Option, OutputError, is_disk_full
from .blocks import Array
from .matrix import Checksum

__all__ = [
    "check_file",
    "freeing_disk",
    "keep_file",
    "map_file",
    "new_file",
    "release_rows",
    "remove_kept_file",
    "save_array",
    "write_array",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_WRITTEN_BYTES = 64 << 20  # at a time
_READ_BYTES = 4 << 20  # at a time

_ours: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
"""Files made or opened here; the mappings of others may hold changes that are not written."""

_temporary: weakref.WeakKeyDictionary[mmap.mmap, tuple[Temporary, Any]] = (
    weakref.WeakKeyDictionary()
)
"""Files that are deleted together with the arrays in them."""

_kept: weakref.WeakKeyDictionary[mmap.mmap, Path] = weakref.WeakKeyDictionary()
"""Files that got a lasting name in this process."""


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


class _Checked:
    """A file that is written, with its checksum so far."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.checksum: Checksum = (0, 0)

    def write(self, data: Any) -> None:
        size, crc = self.checksum
        self._stream.write(data)
        self.checksum = (size + len(data), zlib.crc32(data, crc))


def save_array(path: Path, array: Any) -> Checksum:
    """Write an array to a new ``.npy`` file that is on the disk when this returns."""
    with open(path, "wb") as stream:
        checked = _Checked(stream)
        write_array(checked, array)
        flush(stream)
    return checked.checksum


def check_file(path: Path, expected: Checksum | None) -> None:
    """Refuse a file that is not what was written, a part at a time: it may be large."""
    found = (0, 0)
    try:
        with open(path, "rb") as stream:
            while part := stream.read(_READ_BYTES):
                found = (found[0] + len(part), zlib.crc32(part, found[1]))
    except OSError as problem:
        raise CheckpointError(
            f"{path} cannot be read: {problem.strerror}; delete its folder to run from the "
            "beginning"
        ) from problem
    if found != expected:
        raise CheckpointError(
            f"{path} is damaged: it is not what was written; delete its folder to run from the "
            "beginning"
        )


def new_file(folder: Path, stem: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in a new temporary file in the folder, or where it can be written to."""
    size = int(np.prod(shape)) * dtype.itemsize
    temporary = None
    try:
        try:
            remove_abandoned(folder / stem, "H")
            temporary = Temporary(folder / stem, "H")
        except OSError as problem:
            if is_disk_full(problem):
                raise
            folder = Path(tempfile.gettempdir())
            temporary = Temporary(folder / stem, "H")
        array = np.lib.format.open_memmap(temporary.path, mode="w+", dtype=dtype, shape=shape)
        with open(temporary.path, "r+b") as file:  # a mapped hole of a full disk would crash
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    except OSError as problem:
        if temporary is not None:
            temporary.remove()
        if is_disk_full(problem):
            raise OutputError(
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
    _temporary[mapping] = (temporary, weakref.finalize(mapping, temporary.remove))
    return array


def freeing_disk(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function: when the disk is full, its arrays and their files go at once.

    The error would keep them. It refers to the frames of all functions that it passed through, in
    circles that are found some time later; so it goes without its traceback.
    """

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        try:
            return function(*arguments, **options)
        except OutputError as problem:
            errors: list[BaseException] = [problem]  # each once: causes can go in a circle
            for error in errors:
                error.__traceback__ = None
                errors += [
                    other
                    for other in (error.__cause__, error.__context__)
                    if other is not None and not any(other is one for one in errors)
                ]
            raise

    return call


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
    temporary, finalizer = _temporary[mapping]
    lasting = temporary.path.with_name(f"{stem}.H.npy")
    for number in range(1, 10**6):
        try:
            os.link(temporary.path, lasting)  # fails if there is one: earlier results stay
            break
        except FileExistsError:
            lasting = lasting.with_name(f"{stem}.H-{number}.npy")
        except OSError:  # a file system without links
            if not lasting.exists():
                os.replace(temporary.path, lasting)
                break
            lasting = lasting.with_name(f"{stem}.H-{number}.npy")
    finalizer()
    del _temporary[mapping]
    kept = map_file(lasting)
    _kept[_mapping_of(kept)] = lasting  # type: ignore[index] # it has one
    return kept


def remove_kept_file(array: Any) -> None:
    """Remove the name that `keep_file` gave; the array can be used for as long as it lives."""
    mapping = _mapping_of(array)
    path = None if mapping is None else _kept.pop(mapping, None)
    if path is not None:
        path.unlink(missing_ok=True)


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

"""Zarr: a folder of small files, all of which are looked at before the library opens any.

A store can hold links to other files, pipes and devices in the place of files, and settings of any
size; the library would follow and read them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileFormatError
from ...text import visible
from .codecs import check_codecs, with_checked_chunks
from .limits import check_fits, named_damage, require_package
from .sources import NamedMatrix
from .stores import Store, open_member

__all__ = ["open_zarr"]

_SETTINGS = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
_MAX_SETTINGS_BYTES = 16 << 20  # they are parsed as a whole
_MAX_FILES = 10_000_000
_MAX_DEPTH = 64
_HARMLESS_FILE_BYTES = 1 << 20  # of a chunk, beyond twice the numbers that it holds


def open_zarr(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of a Zarr store in a folder, or X of AnnData."""
    zarr = require_package("zarr", path)
    for number, file in enumerate(_files(path)):
        if file.name in _SETTINGS and file.stat().st_size > _MAX_SETTINGS_BYTES:
            raise FileFormatError(
                f"{visible(file.path)} has {file.stat().st_size} bytes, which are too many for "
                f"settings (limit: {_MAX_SETTINGS_BYTES}): copy or download the store again"
            )
        if number >= _MAX_FILES:
            raise FileFormatError(f"{path} has more than {_MAX_FILES} files: use larger chunks")
    try:
        root = zarr.open(zarr.storage.LocalStore(path, read_only=True), mode="r")
    except Exception as problem:  # the library raises many kinds
        raise FileFormatError(f"{path} is not a Zarr store: {visible(problem)}") from problem
    with named_damage(path):
        return open_member(_ZarrStore(root, path, budget), dataset)


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files below a folder; anything but files and folders is refused, links among them."""
    folders = [(os.fspath(folder), 0)]
    while folders:
        place, depth = folders.pop()
        if depth > _MAX_DEPTH:
            raise FileFormatError(f"{folder} has folders more than {_MAX_DEPTH} deep")
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise FileFormatError(
                        f"{visible(entry.path)} is a link, which a store may not hold, since it "
                        "can lead out of it: copy its target there"
                    )
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    yield entry
                else:
                    raise FileFormatError(
                        f"{visible(entry.path)} is not a file: copy or download the store again"
                    )


class _ZarrStore(Store):
    def _checked(self, array: Any, name: str) -> Any:
        check_codecs(array.metadata.to_dict(), name)
        return with_checked_chunks(super()._checked(array, name))

    def _stored_bytes(self, array: Any, name: str) -> int:
        chunk = getattr(array, "shards", None) or array.chunks
        numbers = int(np.prod(chunk, dtype=object)) * array.dtype.itemsize
        total = 0
        for file in _files(self.path / array.path):
            size = file.stat().st_size
            if file.name not in _SETTINGS and size > _HARMLESS_FILE_BYTES + 2 * numbers:
                reason, advice = "it is read as a whole", "store it in smaller chunks"
                check_fits(visible(file.path), size, self.budget, reason, advice)
            total += size
        return total

    def _parts_of_texts(self, member: Any) -> Iterator[list[Any]]:
        size = max(1, int(member.chunks[0]))
        for start in range(0, member.shape[0], size):
            yield member[start : start + size].tolist()

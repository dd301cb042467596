"""The files of a kind below a folder, which may hold anything else."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ...errors import FileFormatError

__all__ = ["files_below"]


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """The files with these endings below a folder, sorted by path.

    Links to folders are not followed, hidden files and folders left out; a link that leads out of
    the folder is refused.
    """
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(place, name)
            for name in files
            if Path(name).suffix.lower() in suffixes and not name.startswith(".")
        ]
    inside = folder.resolve()
    for file in found:
        if not file.resolve().is_relative_to(inside):
            raise FileFormatError(f"{file} is a link that leads out of the folder: copy it there")
        if not file.is_file():
            raise FileFormatError(f"{file} is not a file: remove it")
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())

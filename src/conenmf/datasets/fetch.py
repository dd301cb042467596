"""Fetching official files with pooch, into the user's cache; only complete datasets get there.

A file with a known SHA-256 must have it. For the others the numbers are checked after reading:
their digest where the catalogue has one, else their size and the number of classes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConeNMFError, ReadError
from .catalogue import Description

T = TypeVar("T")


def cache_folder() -> Path | None:
    """The folder of fetched datasets; None without pooch, as nothing can have been fetched."""
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("conenmf")) / "datasets"


def fetch_into_cache(
    description: Description, read: Callable[[Path], T], *, progress: bool
) -> tuple[Path, T]:
    """Fetch the official files, check them by reading them, then move them into the cache.

    `read` raises an error if the folder does not hold the dataset; nothing is kept then.
    """
    cache = cache_folder()
    if cache is None:
        raise ReadError("fetching datasets needs pooch: pip install 'conenmf[datasets]'")
    target = cache / description.name
    if target.exists() and any(target.iterdir()):
        raise ReadError(f"{target} exists but does not hold {description.name}: remove it")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
            folder = Path(temporary, description.name)
            for url in description.downloads:
                _retrieve(folder, url, description.download_sha256, progress)
            contents = read(folder)
            os.replace(folder, target)
    except ConeNMFError as problem:
        raise ReadError(f"{description.name} was not fetched: {problem}") from problem
    except OSError as problem:
        raise ReadError(f"{description.name} cannot be stored in {cache}: {problem}") from None
    return target, contents


def _retrieve(folder: Path, url: str, sha256: str | None, progress: bool) -> None:
    """Fetch one file and unpack it if it is an archive."""
    import pooch

    name = url.rpartition("/")[2]
    pooch.get_logger().setLevel("ERROR")  # it reports every download as news
    try:
        path = pooch.retrieve(url, sha256, name, folder, progressbar=progress)
        if name.endswith((".zip", ".gz")):
            inside: Any = {} if name.endswith(".zip") else {"filter": "data"}
            shutil.unpack_archive(path, folder, **inside)  # nothing outside the folder
            os.remove(path)
    except Exception as problem:  # of requests, tarfile, zipfile: they have no common class
        raise ReadError(f"{url} could not be fetched: {problem}") from problem

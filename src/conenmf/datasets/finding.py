"""Finding a dataset: in a folder that the user names, in the cache, in installed packages.

On request a missing dataset is fetched into the cache: its official files are read and checked in
a temporary folder, which is then renamed, so the cache holds only complete datasets.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

from ..data.files.locks import Temporary, remove_leftovers
from ..errors import ConeNMFError, DatasetError
from .catalogue import Description
from .checksums import has_exact_checksum, is_expected
from .downloads import ProgressCallback, fetch, unpack
from .originals import Contents, is_original, read_anndata, read_folder

__all__ = ["fetch_dataset", "find", "is_here", "where_to_get"]


def cache_folder() -> Path | None:
    """The folder for fetched datasets; None if this user has no home."""
    if sys.platform == "win32":
        variable, default = os.environ.get("LOCALAPPDATA"), "~/AppData/Local"
    elif sys.platform == "darwin":
        variable, default = None, "~/Library/Caches"
    else:
        variable, default = os.environ.get("XDG_CACHE_HOME"), "~/.cache"
    if variable and not Path(variable).is_absolute():
        variable = None  # as the XDG specification demands
    try:
        base = Path(variable) if variable else Path(default).expanduser()
    except RuntimeError:  # as in many containers
        return None
    return base / "conenmf" / "datasets"


def _folders() -> list[Path]:
    """The folders in which datasets are looked for, in this order."""
    variable, cache = os.environ.get("CONENMF_DATA"), cache_folder()
    # Where a shell has not done so, "~" is the home of the user here.
    folders = [Path(os.path.expanduser(variable))] if variable else []
    return folders if cache is None else [*folders, cache]


def package_file(description: Description) -> Path | None:
    """The file of an installed package that holds the dataset; the package is not imported."""
    package, _, rest = description.package_file.partition("/")
    try:
        spec = importlib.util.find_spec(package) if package else None
    except (ImportError, ValueError):  # something else has this name
        return None
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next(
        (path for path in (Path(folder, rest) for folder in folders) if path.is_file()), None
    )


def is_here(description: Description) -> bool:
    """Whether there seems to be such a dataset on this machine; nothing is read."""
    places = [folder / description.name for folder in _folders()]
    if any(place.is_dir() and any(place.iterdir()) for place in places):
        return True
    return description.name == "digits" or package_file(description) is not None


def find(description: Description) -> tuple[object, Contents | None]:
    """Where the dataset is on this machine, and what is there."""
    if description.name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return "scikit-learn", Contents(digits.data, digits.target.astype(np.int16))
    for folder in _folders():
        place = folder / description.name
        contents = read_folder(place, description)
        if contents is not None:
            return place, contents
    path = package_file(description)
    return path, None if path is None else read_anndata(path)


def where_to_get(description: Description) -> str:
    """Where to get a missing dataset, on what terms, and where to put it."""
    name = description.name
    places = [folder / name for folder in _folders()]
    problem = f"{name} is not in {' or '.join(map(str, places))}"
    if not places:
        problem = f"{name} is not on this machine: CONENMF_DATA names no folder"
    files = "V.npz (samples in rows) and labels.npy"
    if description.official_files:
        files += f", or {description.official_files},"
    folder = places[0] if places else Path("$CONENMF_DATA", name)
    elsewhere = "" if os.environ.get("CONENMF_DATA") else " (CONENMF_DATA can name another folder)"
    fetching = "it has no direct address, so it cannot be fetched for you"
    if description.downloads:
        fetching = f"or load({name!r}, download=True) fetches it"
    return (
        f"{problem}. Get it from {description.source}; terms: {description.licence}. "
        f"Put {files} into {folder}{elsewhere}; {fetching}"
    )


def fetch_dataset(
    description: Description, progress: ProgressCallback | None
) -> tuple[Path, Contents]:
    """Fetch official files, and move them into the cache once they have been read and checked."""
    cache = cache_folder()
    if cache is None:
        raise DatasetError(
            "there is no folder to fetch datasets into, since this user has no home: set "
            "XDG_CACHE_HOME to a folder that can be written to"
        )
    target = cache / description.name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        occupied = target.exists() and (not target.is_dir() or any(target.iterdir()))
        remove_leftovers(cache)
        temporary = Temporary(target, "download", is_folder=True)
    except OSError as problem:
        raise DatasetError(f"{cache} cannot be written to: {problem}") from problem
    with temporary as place:
        if occupied:
            raise DatasetError(f"{target} exists but does not hold {description.name}: remove it")
        folder = place / description.name
        folder.mkdir()
        contents = _fetch_into(folder, description, progress)
        try:
            folder.replace(target)
        except OSError as problem:
            if read_folder(target, description) is None:  # else another process was faster
                raise DatasetError(f"{target} cannot be written to: {problem}") from problem
    return target, contents


def _fetch_into(
    folder: Path, description: Description, progress: ProgressCallback | None
) -> Contents:
    """Fetch, unpack, read and check the official files."""
    for file in description.downloads:
        if not (file.url.startswith("https:") or file.sha256 or has_exact_checksum(description)):
            raise DatasetError(
                f"{file.url} is not https, and no checksum of {description.name} is known: it could"
                " be replaced on its way, so it is not fetched; get the file another way"
            )
        path = fetch(file, folder, progress)
        if path.suffix in (".gz", ".zip"):
            unpack(path, folder, lambda member: is_original(member.name, description))
            path.unlink()
    try:
        contents = read_folder(folder, description)
    except ConeNMFError as problem:
        raise DatasetError(
            f"the files fetched for {description.name} cannot be read; nothing was kept: {problem}"
        ) from problem
    if contents is None or not is_expected(description, contents):
        raise DatasetError(
            f"the files fetched are not those of {description.name}: their checksum or shape "
            f"differs; nothing was kept. See {description.source}"
        )
    return contents

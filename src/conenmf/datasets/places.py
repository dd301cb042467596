"""Where on this machine datasets are: a folder that the user names, a cache, installed packages."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from .catalogue import Description

__all__ = ["cache", "folders", "shipped"]


def cache() -> Path | None:
    """The folder for what can be fetched again; None if this user has no home."""
    if sys.platform == "win32":
        named, home = os.environ.get("LOCALAPPDATA"), "~/AppData/Local"
    elif sys.platform == "darwin":
        named, home = None, "~/Library/Caches"
    else:
        named, home = os.environ.get("XDG_CACHE_HOME"), "~/.cache"
    try:
        base = Path(named) if named else Path(home).expanduser()
    except RuntimeError:  # as in many containers
        return None
    return base / "conenmf" / "datasets"


def folders() -> list[Path]:
    """Where datasets are looked for."""
    named, fetched = os.environ.get("CONENMF_DATA"), cache()
    # Where a shell has not done so, "~" is the home of the user here.
    places = [Path(os.path.expanduser(named))] if named else []
    return places if fetched is None else [*places, fetched]


def shipped(description: Description) -> Path | None:
    """The file of an installed package that holds the dataset; the package is not imported."""
    package, _, rest = description.shipped.partition("/")
    try:
        found = importlib.util.find_spec(package) if package else None
    except (ImportError, ValueError):  # something else has this name
        return None
    inside = [] if found is None else found.submodule_search_locations or []
    return next(
        (path for path in (Path(folder, rest) for folder in inside) if path.is_file()), None
    )

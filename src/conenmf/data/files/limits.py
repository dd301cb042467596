"""What a file of unknown origin may ask of this process.

A few bytes can promise a matrix that fills every disk, or lead to a place that is nobody's
business. What is harmless on any machine is always allowed; beyond that a promise has to be in
proportion to the file that makes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import ConeNMFError, FileFormatError
from ...text import visible

__all__ = [
    "check_expansion",
    "check_fits",
    "listed",
    "named_damage",
    "require_package",
    "too_many_names",
]

HARMLESS = 256 << 20  # bytes that a file of any size may expand to
EXPANSION = 1100  # beyond that, times its size: deflate cannot make more than 1032 of a byte
_LISTED = 12  # members of a file that a message names
_NAME_BYTES = 100  # memory for a name


def check_expansion(name: object, stored: int, promised: int) -> None:
    """Refuse numbers that no honest compression could have put into so few bytes."""
    if promised > HARMLESS and promised > EXPANSION * stored:
        raise FileFormatError(
            f"{name} promises {promised / 1e9:.3g} GB of numbers and holds {stored} bytes: that is "
            f"more than {EXPANSION} times as much, so nothing, or nothing but one value, was "
            "stored; if you trust it, convert it to .npy yourself"
        )


def check_fits(name: object, need: int, budget: int, why: str) -> None:
    """Refuse what has to be held as a whole and takes more than a quarter of the budget."""
    if need > budget // 4:
        raise FileFormatError(
            f"{name} takes {need} bytes, too many to unpack in memory, and {why}: "
            "save it as .npy or HDF5, or raise max_memory"
        )


def too_many_names(count: int, budget: int) -> bool:
    """Whether so many names would take more memory than they are worth: an eighth of it."""
    return count * _NAME_BYTES > budget // 8


def listed(names: Iterable[object]) -> str:
    """The first few names, for a message."""
    shown = [visible(name) for name in names]
    if len(shown) > _LISTED:
        shown[_LISTED:] = [f"and {len(shown) - _LISTED} more"]
    return ", ".join(shown) or "nothing"


@contextmanager
def named_damage(path: object) -> Iterator[None]:
    """Say which file it was, whatever a parser makes of damaged or hostile bytes."""
    try:
        yield
    except (ConeNMFError, FileNotFoundError, PermissionError):
        raise
    except Exception as problem:
        reason = visible(problem) or type(problem).__name__
        raise FileFormatError(f"{path} is damaged: {reason}; copy it anew") from problem


def require_package(library: str, path: Path) -> Any:
    """A package that only some files need."""
    try:
        return importlib.import_module(library)
    except ImportError as problem:
        package = library.partition(".")[0]
        package = {"PIL": "Pillow"}.get(package, package)
        raise FileFormatError(
            f"{path} needs the package {package}: pip install 'conenmf[files]'"
        ) from problem

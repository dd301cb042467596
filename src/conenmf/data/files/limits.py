"""What an untrusted file may ask of this process.

A small malicious file can claim a huge matrix (a decompression bomb) or link to a place outside
itself. A size that is harmless on any machine is always allowed; beyond that, what a header claims
has to be in proportion to the bytes that are stored, and what has to be held as a whole has to fit
in a quarter of the memory budget.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import ConeNMFError, FileFormatError, Message, Option
from ...forks import importing
from ...text import visible

__all__ = [
    "check_expansion",
    "check_fits",
    "fits",
    "listed",
    "name_one",
    "named_damage",
    "require_package",
    "too_many_names",
]

HARMLESS_BYTES = 256 << 20  # a file of any size may expand to so many
MAX_EXPANSION_RATIO = 1100  # beyond that: deflate cannot make more than 1032 bytes of one
_MAX_LISTED_NAMES = 12  # in a message
_NAME_BYTES = 100  # memory for a name


def check_expansion(name: object, stored_bytes: int, claimed_bytes: int) -> None:
    """Refuse numbers that cannot have been compressed into so few bytes."""
    if claimed_bytes > max(HARMLESS_BYTES, MAX_EXPANSION_RATIO * stored_bytes):
        raise FileFormatError(
            f"{name}: header claims {claimed_bytes / 1e9:.3g} GB but only {stored_bytes} bytes are "
            f"stored (limit: {MAX_EXPANSION_RATIO}x). Refusing a possible decompression bomb; if "
            "you trust the file, convert it to .npy"
        )


def fits(size: int, budget: int) -> bool:
    """Whether so many bytes may be held at once: a quarter of the budget is for them."""
    return size <= budget // 4


def check_fits(
    name: object, size: int, budget: int, why: str, advice: str = "save it as .npy or HDF5"
) -> None:
    """Refuse what has to be held as a whole, for the reason given, and does not fit."""
    if not fits(size, budget):
        raise FileFormatError(
            Message(
                f"{name} takes {size} bytes, more than a quarter of ",
                Option("max_memory"),
                f" ({budget} bytes), and {why}: {advice}, or raise ",
                Option("max_memory"),
            )
        )


def too_many_names(count: int, budget: int) -> bool:
    """Whether so many names would take more than an eighth of the budget."""
    return count * _NAME_BYTES > budget // 8


def name_one(path: object, names: Iterable[object]) -> FileFormatError:
    """Return the error for a file of which it is not clear which matrix is meant."""
    return FileFormatError(
        Message(f"{path} holds {listed(names)}: name one of them with ", Option("dataset"))
    )


def listed(names: Iterable[object]) -> str:
    """The first names, for a message."""
    texts = [visible(name) for name in names]
    if len(texts) > _MAX_LISTED_NAMES:
        texts[_MAX_LISTED_NAMES:] = [f"and {len(texts) - _MAX_LISTED_NAMES} more"]
    return ", ".join(texts) or "nothing"


@contextmanager
def named_damage(path: object) -> Iterator[None]:
    """Name the file in any error that a parser raises for damaged or malicious bytes."""
    try:
        yield
    except (ConeNMFError, FileNotFoundError, PermissionError):
        raise
    except Exception as problem:
        reason = visible(problem) or type(problem).__name__
        raise FileFormatError(
            f"{path} is damaged: {reason}; copy or download it again"
        ) from problem


def require_package(library: str, path: Path) -> Any:
    """Import a package that only some files need."""
    try:
        with importing:
            return importlib.import_module(library)
    except ImportError as problem:
        package = library.partition(".")[0]
        package = {"PIL": "Pillow"}.get(package, package)
        raise FileFormatError(
            f"{path} needs the package {package}: pip install 'conenmf[files]'"
        ) from problem

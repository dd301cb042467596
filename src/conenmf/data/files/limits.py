"""What an untrusted file may ask of this process.

A small malicious file can claim a huge matrix (a decompression bomb) or link to a place outside
itself. A size that is harmless on any machine is always allowed; beyond that, what a header claims
has to be in proportion to what is stored, and what has to be held as a whole has to fit in a
quarter of the memory budget.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConeNMFError, FileFormatError, Message, Option, name_out_of_memory
from ...text import excerpt, visible

__all__ = [
    "attribute",
    "cast_exactly",
    "check_expansion",
    "check_fits",
    "check_sides",
    "fits",
    "listed",
    "name_one",
    "named_damage",
    "require_package",
    "too_many_names",
]

HARMLESS_BYTES = 256 << 20  # a file of any size may expand to so many
MAX_EXPANSION_RATIO = 1100  # beyond that: deflate cannot make more than 1032 bytes of one
_HARMLESS_SIDE = 1 << 20  # rows or columns that a sparse matrix of any size may have
_MAX_SIDE_RATIO = 16  # beyond that: rows or columns for each entry, most of them empty
_MIN_SIDE_BYTES = 64 << 20  # allowed for a vector with any budget
_MAX_LISTED_NAMES = 12  # in a message
_NAME_BYTES = 100  # memory for a name
_MAX_ATTRIBUTE_SIZE = 16  # values of an attribute, of which shapes have most


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


def check_sides(name: object, rows: int, columns: int, entries: int, budget: int) -> None:
    """Refuse a sparse matrix whose sides are out of proportion to its entries, or to the memory.

    Its sides cost nothing in a file, but every row and every column takes memory later: a pointer,
    a norm, a label, and a coefficient for each component in several arrays.
    """
    side = max(rows, columns)
    if side > max(_HARMLESS_SIDE, _MAX_SIDE_RATIO * entries):
        raise FileFormatError(
            f"{name} claims to be a sparse matrix of {rows} x {columns} with {entries} entries "
            f"(limits: {_HARMLESS_SIDE} rows or columns, or {_MAX_SIDE_RATIO} for each entry): if "
            "that is right, remove its empty rows and columns"
        )
    if min(rows, columns) < 0 or not fits(8 * side, max(budget, 4 * _MIN_SIDE_BYTES)):
        raise FileFormatError(
            Message(
                f"{name} claims to be a sparse matrix of {rows} x {columns}, of which a single "
                "row or column does not fit in memory: if that is right, raise ",
                Option("max_memory"),
            )
        )


def cast_exactly(name: object, numbers: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return numbers in another type, for integers only if every one of them keeps its value."""
    target = np.dtype(dtype)
    try:
        array = np.asarray(numbers)
    except Exception as problem:  # lists of unequal length, among others
        raise FileFormatError(f"{name}: expected numbers, got {visible(numbers)}") from problem
    is_valid = array.dtype.kind in "fiub"
    if is_valid and target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        is_valid = bool(
            int(limits.min) <= array.min().item() <= array.max().item() <= int(limits.max)
            and (array.dtype.kind != "f" or (array == np.floor(array)).all())
        )
    if not is_valid:
        raise FileFormatError(
            f"{name}: numbers of type {array.dtype} are not all of type {target}, which the file "
            "claims or needs: save it again"
        )
    return array.astype(target, copy=False)


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
    texts = [excerpt(name) for name in names]
    if len(texts) > _MAX_LISTED_NAMES:
        texts[_MAX_LISTED_NAMES:] = [f"and {len(texts) - _MAX_LISTED_NAMES} more"]
    return ", ".join(texts) or "nothing"


def attribute(member: Any, name: str, default: Any = None) -> Any:
    """A small attribute of a dataset or group of HDF5 or Zarr.

    A long one could take any memory: texts of HDF5 may share one long text.
    """
    attributes = getattr(member, "attrs", {})
    if name not in attributes:
        return default
    if hasattr(attributes, "get_id"):  # HDF5
        shape = attributes.get_id(name).shape
        if shape is None or int(np.prod(shape, dtype=object)) > _MAX_ATTRIBUTE_SIZE:
            raise FileFormatError(
                f"{visible(member.name)}: the attribute {visible(name)} has shape {shape}, "
                f"expected at most {_MAX_ATTRIBUTE_SIZE} values"
            )
    try:
        return attributes[name]
    except (ConeNMFError, MemoryError):
        raise
    except Exception as problem:  # of types that do not exist, for one
        raise FileFormatError(
            f"{visible(member.name)}: the attribute {visible(name)} is damaged: {visible(problem)}"
        ) from problem


@contextmanager
def named_damage(path: object) -> Iterator[None]:
    """Name the file in any error that a parser raises for damaged or malicious bytes."""
    try:
        with name_out_of_memory(
            visible(path),
            "close other programs, or save it in a format that is read in blocks (.npy)",
        ):
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
        return importlib.import_module(library)
    except ImportError as problem:
        package = library.partition(".")[0]
        package = {"PIL": "Pillow"}.get(package, package)
        raise FileFormatError(
            f"{path} needs the package {package}: pip install 'conenmf[files]'"
        ) from problem

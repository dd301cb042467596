"""What a file may ask of this process, and what its errors say.

Libraries trust the headers of files. Here a size that a header claims is compared with the file
before memory is taken; what has to be held as a whole has to fit in a quarter of the memory budget.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConeNMFError, FileFormatError, Message, Option, name_out_of_memory
from ..text import excerpt, visible

HARMLESS_BYTES = 256 << 20  # a file of any size may expand to so many
MAX_EXPANSION_RATIO = 1100  # beyond that: deflate cannot make more than 1032 bytes of one
_HARMLESS_SIDE = 1 << 20  # rows or columns that a sparse matrix of any size may have
_MAX_SIDE_RATIO = 16  # beyond that: rows or columns for each entry, most of them empty
_MAX_LISTED_NAMES = 12  # in a message
NAME_BYTES = 100  # memory for a name
_DATASET = Option("dataset")


def check_expansion(name: object, stored_bytes: int, claimed_bytes: int) -> None:
    """Refuse numbers that cannot have been compressed into so few bytes."""
    if claimed_bytes > max(HARMLESS_BYTES, MAX_EXPANSION_RATIO * stored_bytes):
        raise FileFormatError(
            f"{name}: header claims {claimed_bytes / 1e9:.3g} GB but only {stored_bytes} bytes are "
            f"stored (limit: {MAX_EXPANSION_RATIO}x); if you trust the file, convert it to .npy"
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


def check_sides(name: object, rows: int, columns: int, entries: int) -> None:
    """Refuse a sparse matrix whose sides are out of proportion to its entries.

    Its sides cost nothing in a file, but every row and every column takes memory later.
    """
    most = max(_HARMLESS_SIDE, _MAX_SIDE_RATIO * entries)
    if min(rows, columns) < 0 or max(rows, columns) > most:
        raise FileFormatError(
            f"{name} claims to be a sparse matrix of {rows} x {columns} with {entries} entries "
            f"(limits: {_HARMLESS_SIDE} rows or columns, or {_MAX_SIDE_RATIO} for each entry): if "
            "that is right, remove its empty rows and columns"
        )


def cast_exactly(name: object, numbers: Any) -> npt.NDArray[Any]:
    """Return numbers as int64 if every one of them keeps its value."""
    array = np.asarray(numbers)
    if array.dtype.kind in "iufb":
        with np.errstate(invalid="ignore"):
            whole = array.astype(np.int64)
        if (whole == array).all():
            return whole
    raise FileFormatError(f"{name}: expected whole numbers, got {array.dtype}: save it again")


def too_many_names(count: int, budget: int) -> bool:
    """Whether so many names would take more than an eighth of the budget."""
    return count * NAME_BYTES > budget // 8


def choose_member(path: object, dataset: str | None, members: Iterable[str]) -> str:
    """The name of the member to open: the one that is asked for, or the only one."""
    names = sorted(members)
    if dataset is None:
        if len(names) != 1:
            message = Message(f"{path} holds {listed(names)}: name one of them with ", _DATASET)
            raise FileFormatError(message)
        return names[0]
    if dataset.strip("/") not in names:
        raise FileFormatError(f"{path} has no {dataset!r}; it holds {listed(names)}")
    return dataset.strip("/")


def only_matrix(
    path: object, numeric: Mapping[str, tuple[int, ...]], members: Iterable[str]
) -> str:
    """The name of the only matrix of numbers, by its shape, or of the only one with several."""
    large = [name for name, shape in numeric.items() if math.prod(shape) != 1]
    meant = large or list(numeric)
    return choose_member(path, None, meant if len(meant) == 1 else members)


def listed(names: Iterable[object]) -> str:
    """The first names, for a message."""
    texts = [excerpt(name) for name in names]
    if len(texts) > _MAX_LISTED_NAMES:
        texts[_MAX_LISTED_NAMES:] = [f"and {len(texts) - _MAX_LISTED_NAMES} more"]
    return ", ".join(texts) or "nothing"


def files_below(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """The files with these endings below a folder, sorted by path; hidden ones are left out."""
    endings = tuple(suffixes)
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in endings
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


@contextmanager
def named_damage(path: object) -> Iterator[None]:
    """Name the file in any error that a library raises for it."""
    advice = "close other programs, or save it in a format that is read in blocks (.npy)"
    try:
        with name_out_of_memory(visible(path), advice):
            yield
    except (ConeNMFError, FileNotFoundError, PermissionError):
        raise
    except Exception as problem:
        reason = visible(problem) or type(problem).__name__
        raise FileFormatError(
            f"{path} is damaged, or not what its name says: {reason}; copy or download it again"
        ) from problem


def require_package(library: str, path: object) -> Any:
    """Import a package that only some files need."""
    try:
        return importlib.import_module(library)
    except ImportError as problem:
        package = library.partition(".")[0]
        package = {"PIL": "Pillow"}.get(package, package)
        raise FileFormatError(
            f"{path} needs the package {package}: pip install 'conenmf[files]'"
        ) from problem

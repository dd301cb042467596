"""Limits on the memory that a file may claim, and errors that name the file.

Libraries trust the headers of files. This module compares a size that a header claims with the size
of the file before memory is allocated. A file that is read as a whole must fit in a quarter of the
memory budget.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConeNMFError, FileFormatError, Message, Option, name_out_of_memory
from ..text import excerpt, visible
from ..types import Lengths, Shape

_HARMLESS_BYTES = 256 << 20  # a file of any size may expand to this
MAX_EXPANSION_RATIO = 1100  # a larger ratio is impossible: deflate makes at most 1032 bytes of one
_MAX_LISTED_NAMES = 12  # in a message
_FAR_LARGER = 5  # a matrix with this many times the entries of any other array is the data
NAME_BYTES = 100  # memory for a name


def check_expansion(name: object, stored_bytes: int, claimed_bytes: int) -> None:
    """Raise an error if the claimed bytes cannot come from so few compressed bytes."""
    if claimed_bytes > max(_HARMLESS_BYTES, MAX_EXPANSION_RATIO * stored_bytes):
        claim = f"{claimed_bytes / 1e9:.3g} GB"
        raise FileFormatError(
            f"{name}: header claims {claim} but only {stored_bytes} bytes are stored (limit: "
            f"{MAX_EXPANSION_RATIO}x); if you trust the file, convert it to .npy"
        )


def fits(size: int, budget: int) -> bool:
    """Return whether `size` bytes fit in a quarter of the budget."""
    return size <= budget // 4


def check_fits(name: object, size: int, budget: int) -> None:
    """Raise an error for a file that is read as a whole and does not fit in memory."""
    if not fits(size, budget):
        raise FileFormatError(
            f"{name} takes {size} bytes and can only be read as a whole, which is more than "
            f"a quarter of the {budget} bytes of memory: save it as .npy or HDF5, or raise ",
            Option("max_memory"),
        )


def choose_member(path: object, dataset: str | None, members: Collection[str]) -> str:
    """Return the member to open: the requested one, or the only one."""
    asked = ""
    if dataset is not None:
        asked = f", not {dataset!r}"
        name = dataset.strip("/")
        if name in members:
            return name
    elif len(members) == 1:
        return min(members)
    names = listed(sorted(members))
    raise FileFormatError(f"{path} holds {names}: name one of them with ", Option("dataset"), asked)


def only_matrix(path: Path, shapes: Mapping[str, Lengths]) -> tuple[str, tuple[Message, ...]]:
    """Return the name of the only matrix, or of the only one with several rows and columns.

    A vector along the first or last axis of a matrix, such as wavelengths, belongs to the matrix.
    """
    large = [name for name, shape in shapes.items() if math.prod(shape) != 1]
    tables = [name for name in large if sum(side > 1 for side in shapes[name]) > 1]
    if len(tables) == 1:
        sides = shapes[tables[0]]
        ends = (sides[0], sides[-1])
        large = [name for name in large if name in tables or max(shapes[name]) not in ends]
    return largest_matrix(path, {name: shapes[name] for name in large or shapes})


def largest_matrix(path: Path, shapes: Mapping[str, Lengths]) -> tuple[str, tuple[Message, ...]]:
    """Return the name of the only array, or of a matrix that is far larger than all others.

    Scenes are often stored with their reference spectra, abundances or labels. A remark then names
    the matrix and the other arrays.
    """
    sizes = {name: math.prod(sides) for name, sides in shapes.items()}
    first = max(sizes, key=sizes.__getitem__, default="")
    sides = shapes.get(first, ())
    others = sorted(set(shapes) - {first})
    is_clear = all(sizes[first] >= _FAR_LARGER * sizes[name] for name in others)
    if not others or len(sides) < 2 or not is_clear:
        return choose_member(path, None, shapes), ()
    size = " x ".join(map(str, sides))
    remark = (
        f"{first!r} ({size}) was read, the largest array of {path.name}; to read {listed(others)}, "
        "name it as the dataset"
    )
    return first, (Message(remark),)


class Layout(NamedTuple):
    """Which array of a file is a scene, and how its pixels lie.

    Attributes
    ----------
    dataset : str
    are_columns : bool
        Whether the pixels are the columns of the array.
    pixels_shape : (rows, columns) or None
        The shape of the image, if a cube of the same pixels has it.
    remarks : tuple of Message
    """

    dataset: str
    are_columns: bool
    pixels_shape: Shape | None
    remarks: tuple[Message, ...]


def layout_of(path: Path, shapes: Mapping[str, Lengths]) -> Layout:
    """Return the scene among arrays of the same pixels, the one with the most bands.

    The others are abundances or labels, and spectra of the same bands. The scene has more pixels
    than bands, and no other array has as many bands. Without a scene, return the only matrix.
    """
    found = []
    for name, sides in shapes.items():
        bands = min(sides) if len(sides) == 2 else sides[-1]
        pixels = math.prod(sides) // max(bands, 1)
        if pixels > bands > 1:
            found.append((pixels, bands, name))
    counts = Counter(pixels for pixels, *_ in found)
    pixels = max((one for one in counts if counts[one] > 1), default=0)
    alike = sorted((one for one in found if one[0] == pixels), reverse=True)
    if not alike or alike[0][1] == alike[1][1]:
        dataset, remarks = only_matrix(path, shapes)
        return Layout(dataset, False, None, remarks)
    _, bands, dataset = alike[0]
    images = [(sides[0], sides[1]) for *_, name in alike if len(sides := shapes[name]) == 3]
    rest = listed(sorted(set(shapes) - {dataset}))
    text = (
        f"{dataset!r} was read as a scene of {pixels} pixels and {bands} bands, the most of the "
        f"arrays of these pixels in {path.name}; to read {rest}, name it as the dataset"
    )
    are_columns = shapes[dataset] == (bands, pixels)
    return Layout(dataset, are_columns, images[0] if images else None, (Message(text),))


def listed(names: Iterable[object]) -> str:
    """Return the first names, for a message."""
    texts = [excerpt(name) for name in names]
    if len(texts) > _MAX_LISTED_NAMES:
        texts[_MAX_LISTED_NAMES:] = [f"and {len(texts) - _MAX_LISTED_NAMES} more"]
    return ", ".join(texts) or "nothing"


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files with these endings below a folder, sorted by path, without hidden files."""
    files = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        is_hidden = "/." in f"/{name}"
        if path.suffix.lower() in suffixes and not is_hidden and path.is_file():
            files[name] = path
    return [files[name] for name in sorted(files)]


@contextmanager
def named_damage(path: object) -> Iterator[None]:
    """Add the name of the file to any error that a library raises."""
    advice = "close other programs, or save it in a format that is read in blocks (.npy)"
    try:
        with name_out_of_memory(visible(path), advice):
            yield
    except (ConeNMFError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        reason = visible(error) or type(error).__name__
        if "allow_pickle" in reason:  # NumPy's advice to allow pickles, which nobody should follow
            reason = "it holds Python objects, or no arrays at all"
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8; convert it, for example with iconv -f latin1 -t utf-8"
        raise FileFormatError(
            f"{path} is damaged, or not what its name says: {reason}; copy it, or save it, again"
        ) from error


def require_package(library: str, path: object) -> Any:
    """Import a package that only some files need, or explain how to install it."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        package = library.partition(".")[0].replace("PIL", "Pillow")
        raise FileFormatError(
            f"{path} needs the package {package}: pip install 'conenmf[files]'"
        ) from error

"""Saved objects: one ``.npz`` file of plain arrays and a JSON text, without pickle.

Pickled objects are never loaded, and the checksum of every array is compared.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from operator import methodcaller
from typing import IO, Any, get_args, get_type_hints

import numpy as np

from ..arguments import Arrays
from ..arguments import path as checked_path
from ..atomic import output_file, written_whole
from ..errors import FileFormatError
from ..names import Names
from ..text import Facts, PathLike

_FACTS = "facts"
_WRITTEN_BYTES = 64 << 20  # at a time


def write_array(stream: IO[bytes], array: Any) -> None:
    """Write an array in the ``.npy`` format; one on a cluster is fetched a part at a time."""
    if isinstance(array, np.ndarray):
        np.lib.format.write_array(stream, array, allow_pickle=False)
        return
    descr = np.lib.format.dtype_to_descr(array.dtype)
    header = {"descr": descr, "fortran_order": True, "shape": array.shape}
    np.lib.format.write_array_header_2_0(stream, header)
    rows = array.T  # one per sample
    size = max(1, _WRITTEN_BYTES // (rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for first in range(0, len(rows), size):
        stream.write(np.asarray(rows[first : first + size]).tobytes())


def write_arrays(path: PathLike, arrays: Facts, facts: Facts) -> None:
    """Write arrays and plain facts to a file that appears complete."""
    target = output_file(checked_path("path", path))
    members = {**arrays, _FACTS: np.array(json.dumps(facts, default=methodcaller("tolist")))}
    with written_whole(target) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array)


def arrays_of(part: Any, prefix: str) -> Arrays:
    """Return the fields of a dataclass as arrays by name; `part_of` re-creates it.

    Fields that are None, and dicts, are left out.
    """
    arrays: Arrays = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            arrays |= arrays_of(value, f"{prefix}{field.name}_")
        elif value is not None and not isinstance(value, dict):
            arrays[prefix + field.name] = np.asarray(value)
    return arrays


def part_of(kind: Any, prefix: str, arrays: Arrays) -> Any:
    """Return what `arrays_of` made arrays of; None if there are none with this prefix."""
    if not any(name.startswith(prefix) for name in arrays):
        return None
    hints = get_type_hints(kind)
    values: Facts = {name: None for name, hint in hints.items() if type(None) in get_args(hint)}
    for name, hint in hints.items():
        key = prefix + name
        for one in filter(is_dataclass, (hint, *get_args(hint))):
            values[name] = part_of(one, f"{key}_", arrays)
        if key in arrays:
            array = arrays[key] if arrays[key].ndim else arrays[key].item()
            values[name] = tuple(array.tolist()) if str(hint).startswith("tuple") else array
    return kind(**values)


def arrays_of_names(names: Names) -> tuple[Arrays, Facts]:
    """Return arrays and facts, from which `names_of_arrays` makes the names again."""
    arrays = {}
    for name in ("sample_names", "feature_names"):
        if (lines := getattr(names, name)) is not None:
            text = "\n".join(lines).encode("utf-8", "surrogateescape")
            arrays[name] = np.frombuffer(text, np.uint8)
    return arrays, {"image_shape": names.image_shape, "pixels_shape": names.pixels_shape}


def names_of_arrays(arrays: Arrays, facts: Facts) -> Names:
    """Return the names that `arrays_of_names` made arrays of."""
    lines: Facts = {}
    for name in ("sample_names", "feature_names"):
        if name in arrays:
            lines[name] = bytes(arrays[name]).decode("utf-8", "replace").split("\n")
    return Names.of(**lines, image_shape=facts["image_shape"], pixels_shape=facts["pixels_shape"])


@contextmanager
def reading(path: PathLike, format_name: str, what: str) -> Iterator[tuple[Facts, Arrays]]:
    """Read what `write_arrays` wrote with this format: facts and arrays.

    A file that is damaged, was changed or is something else is refused with `FileFormatError`,
    also if that is noticed only when an object is made of its arrays.
    """
    path = checked_path("path", path)
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                    member.read()  # to the end, where its checksum is compared
                arrays[name.removesuffix(".npy")] = array
        if _FACTS not in arrays:
            raise ValueError("no conenmf metadata found")
        facts: Facts = json.loads(str(arrays.pop(_FACTS)))
        found = str(facts["format"])
        if found.rpartition("-")[0] != format_name.rpartition("-")[0]:
            raise ValueError(f"its format is {found!r}")
        if found != format_name:
            raise FileFormatError(
                f"{path} has format {found!r}, this version reads {format_name!r}: "
                "fit the data again and save the result"
            )
        yield facts, arrays
    except (FileFormatError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as problem:  # damaged zip files and array headers raise many kinds
        raise FileFormatError(
            f"{path} is not {what} saved by conenmf, or is damaged: {problem}"
        ) from problem

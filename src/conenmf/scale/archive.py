"""Saved objects: one ``.npz`` file of plain arrays and a JSON text, without pickle.

Reading rejects what writing cannot have produced: compressed members (a small file could claim a
huge array), pickled objects, numbers of another kind, NaN.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index, methodcaller
from typing import IO, Any

import numpy as np

from ..arguments import Arrays
from ..arguments import path as checked_path
from ..atomic import output_file, written_whole
from ..data.blocks import Array
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


class SavedArrays:
    """A saved file that is being read.

    Attributes
    ----------
    facts : dict
    names : list of str
        Of the arrays.
    """

    def __init__(self, archive: Any, format_name: str) -> None:
        for info in archive.zip.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise FileFormatError(f"its member {info.filename!r} is compressed")
        if _FACTS not in archive:
            raise FileFormatError("no conenmf metadata found")
        self._archive = archive
        self.facts: Facts = json.loads(str(archive[_FACTS]))
        self.names: list[str] = [name for name in archive.files if name != _FACTS]
        found = str(self.facts["format"])
        if found != format_name:
            if found.rpartition("-")[0] != format_name.rpartition("-")[0]:
                raise FileFormatError(f"its format is {found!r}")
            raise _OtherVersionError(
                f"has format {found!r}, this version reads {format_name!r}: "
                "fit the data again and save the result"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._archive

    def numbers(self, name: str, kinds: str = "f", *, nan: bool = False) -> Array:
        """Return an array of numbers of these kinds, without NaN unless that is allowed."""
        array: Array = self._archive[name]
        if array.dtype.kind not in kinds:
            raise FileFormatError(f"{name} holds {array.dtype}, not numbers of the expected kind")
        if not nan and np.isnan(array).any():
            raise FileFormatError(f"{name} holds NaN")
        return array

    def factor(self, name: str) -> Array:
        """Return an array of nonnegative, finite numbers."""
        array = self.numbers(name)
        if array.size and not 0 <= array.min() <= array.max() < np.inf:
            raise FileFormatError(f"{name} holds negative or infinite numbers")
        return array

    def names_of_data(self) -> Names:
        """Return the names of samples and features that `arrays_of_names` made arrays of."""
        shapes = (self.facts.get(name) for name in ("image_shape", "pixels_shape"))
        return Names.of(
            self._lines("sample_names"),
            self._lines("feature_names"),
            *(None if shape is None else (index(shape[0]), index(shape[1])) for shape in shapes),
        )

    def _lines(self, name: str) -> list[str] | None:
        if name not in self:
            return None
        return bytes(self._archive[name]).decode("utf-8", "replace").split("\n")


def arrays_of_names(names: Names) -> tuple[Arrays, Facts]:
    """Return arrays and facts, from which `SavedArrays.names_of_data` makes the names again."""
    arrays = {}
    for name in ("sample_names", "feature_names"):
        if (lines := getattr(names, name)) is not None:
            text = "\n".join(lines).encode("utf-8", "surrogateescape")
            arrays[name] = np.frombuffer(text, np.uint8)
    return arrays, {"image_shape": names.image_shape, "pixels_shape": names.pixels_shape}


@contextmanager
def reading(path: PathLike, format_name: str, what: str) -> Iterator[SavedArrays]:
    """Open what `write_arrays` wrote with this format.

    A file that is damaged, was changed or is something else is refused with `FileFormatError`,
    also if that is noticed only when an object is made of its arrays.
    """
    path = checked_path("path", path)
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise FileFormatError("not a zip archive")
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            yield SavedArrays(archive, format_name)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except _OtherVersionError as problem:
        raise FileFormatError(f"{path} {problem}") from problem
    except Exception as problem:  # damaged zip files and array headers raise many kinds
        raise FileFormatError(
            f"{path} is not {what} saved by conenmf, or is damaged: {problem}"
        ) from problem


class _OtherVersionError(FileFormatError):
    """The file is of the right kind, saved by another version."""

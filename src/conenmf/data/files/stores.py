"""HDF5, and what it has in common with Zarr: datasets, sparse groups and AnnData.

The libraries read; this module adds the checks that they leave to their callers. Both formats can
lead a reader to other files and other code: links, virtual datasets, raw data elsewhere, codecs
that unpickle. So members are looked up step by step, and nothing outside the file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConeNMFError, DataTypeError, FileFormatError
from ...names import Names
from ...text import decoded, visible
from ..blocks import Array
from .cubes import Cube
from .heaps import text_lengths
from .layouts import ChunkedSource, CompressedSource, path_of
from .limits import (
    attribute,
    check_expansion,
    check_fits,
    fits,
    listed,
    name_one,
    named_damage,
    require_package,
    too_many_names,
)
from .sources import NamedMatrix

__all__ = [
    "Store",
    "hdf5_store",
    "open_hdf5",
    "open_member",
    "open_object",
    "read_annotation",
    "read_coordinates",
]

_MAX_LINKS = 16  # links followed before they count as a circle
_HARMLESS_CHUNK_BYTES = 1 << 20  # allowed for a chunk with any budget
_HARMLESS_TEXT_BYTES = 16 << 20  # all names together
_BEGINNING_CHARS = 1000  # of a name, of which less is shown
_PARTS = ("data", "indices", "indptr")
_FLETCHER_BYTES = 4  # of the checksum of that name
_HARMLESS_CHUNKS = 1 << 12  # of an array of which nothing is stored; each is looked for


# --- objects that the caller has opened -------------------------------------------------------


def open_object(member: Any, budget: int) -> NamedMatrix:
    """Open a dataset or group of HDF5 or Zarr, or a backed matrix of AnnData."""
    if type(member).__module__.partition(".")[0] == "anndata":
        if not hasattr(member, "group"):
            raise DataTypeError(
                "an AnnData object holds more than a matrix: pass its .X or a layer"
            )
        member = member.group
    if hasattr(member, "dtype"):
        return NamedMatrix(ChunkedSource(member))
    path = path_of(member)
    name = f"{path or 'the store'}:{member.name}"
    group = _sparse_group(member, member.__getitem__, name, path, budget, is_ours=False)
    return NamedMatrix(group)


def _sparse_group(
    group: Any,
    part: Callable[[str], Any],
    name: str,
    path: str | Path | None,
    budget: int,
    *,
    is_ours: bool = True,
) -> CompressedSource:
    """A matrix from its parts, which `part` looks up by name."""
    if not set(_PARTS) <= set(group.keys()):
        raise FileFormatError(
            f"{name} is a group of {listed(sorted(group.keys()))}, expected a "
            "dataset, or a sparse matrix with data, indices and indptr"
        )
    shape = attribute(group, "shape", attribute(group, "h5sparse_shape"))
    if shape is None and "shape" in group:
        stored = part("shape")
        shape = stored[:2] if stored.shape == (2,) else stored.shape
    if shape is None:
        raise FileFormatError(f"{name} has no attribute 'shape': save the sparse matrix with it")
    order = attribute(group, "encoding-type", attribute(group, "h5sparse_format", "csr"))
    data, indices, indptr = (part(key) for key in _PARTS)
    parts = (data, indices, indptr)
    return CompressedSource(name, path, parts, shape, decoded(order)[:3], budget, is_ours)


# --- files ------------------------------------------------------------------------------------


def open_hdf5(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of an HDF5 file, or X of AnnData."""
    with hdf5_store(path, budget) as store:
        return open_member(store, dataset)


@contextmanager
def hdf5_store(path: Path, budget: int) -> Iterator[Store]:
    """An HDF5 file, which stays open unless something is wrong with it."""
    h5py = require_package("h5py", path)
    try:
        # A chunk that is larger than a block is needed several times in a row: keep it in memory.
        root = h5py.File(path, "r", rdcc_nbytes=max(1 << 20, budget // 16))
    except OSError as problem:
        raise FileFormatError(
            f"{path} is not an HDF5 file, or is truncated: {problem}"
        ) from problem
    try:
        with named_damage(path):
            yield _HDF5Store(root, path, budget)
    except Exception:
        root.close()
        raise


class Store:
    """The members of a file, looked up one step at a time and checked before they are read."""

    def __init__(self, root: Any, path: Path, budget: int) -> None:
        self.root, self.path, self.budget = root, path, budget

    def find(self, name: str, start: Any = None) -> Any:
        """The dataset or group of that name; nothing that lies outside the file."""
        member = self.root if start is None else start
        steps, links = _steps(name), 0
        while steps:
            step = steps.pop()
            inside = not hasattr(member, "dtype") and step != ".."
            target = self._target(member, step) if inside else None
            if target is None:
                if not (inside and step in member):
                    members = listed(sorted(getattr(self.root, "keys", tuple)()))
                    raise FileFormatError(f"{self.path} has no {name!r}; it holds {members}")
                member = member[step]
                continue
            links += 1
            if links > _MAX_LINKS:
                raise FileFormatError(f"{self.path}: {name!r} is a link that leads in a circle")
            if target.startswith("/"):
                member = self.root
            steps += _steps(target)
        return self._checked(member, f"{self.path}:{name}") if hasattr(member, "dtype") else member

    def _target(self, group: Any, step: str) -> str | None:
        """Where a link within the file leads to; None if it is no link."""
        return None

    def _checked(self, array: Any, name: str) -> Any:
        """An array; refused if it is stored elsewhere, or claims more than it holds."""
        shape, itemsize = array.shape, array.dtype.itemsize
        chunks = getattr(array, "chunks", None) or shape
        size = int(np.prod(chunks, dtype=object)) * itemsize
        if chunks is not shape and size > _HARMLESS_CHUNK_BYTES:
            reason, advice = "has to be read as a whole", "store it in smaller chunks"
            check_fits(f"{name}: a chunk", size, self.budget, reason, advice)
        stored = self._stored_bytes(array, name)
        check_expansion(name, stored, int(np.prod(shape, dtype=object)) * itemsize)
        counts = [-(-side // max(chunk, 1)) for side, chunk in zip(shape, chunks, strict=True)]
        n_chunks = int(np.prod(counts, dtype=object))
        if n_chunks > max(_HARMLESS_CHUNKS, stored):
            raise FileFormatError(
                f"{name} claims to be cut into {n_chunks} chunks, of which {stored} bytes are "
                "stored: store it in larger chunks"
            )
        return array

    def _stored_bytes(self, array: Any, name: str) -> int:
        """How many bytes of the file belong to this array."""
        raise NotImplementedError

    def texts(self, name: str, start: Any = None) -> list[str] | None:
        """A dataset of texts; None if there are too many to be worth the memory."""
        member = self.find(name, start)
        if not hasattr(member, "dtype"):  # texts of which some may be missing
            member = self.find("values", member)
        if len(member.shape) != 1:
            raise FileFormatError(f"{self.path}: {name!r} has shape {member.shape}, expected names")
        size = member.shape[0] * member.dtype.itemsize
        if too_many_names(member.shape[0], self.budget) or not fits(size, self.budget):
            return None
        return [text for part in self._parts_of_texts(member) for text in map(_beginning, part)]

    def _parts_of_texts(self, member: Any) -> Iterator[list[Any]]:
        """Some texts after the other, so that not all are in memory before they are cut."""
        raise NotImplementedError


def _beginning(text: object) -> str:
    """A text, or so much of it that it is cut again when it is shown."""
    return decoded(text[:_BEGINNING_CHARS] if isinstance(text, bytes | str) else text)


def _steps(name: str) -> list[str]:
    return [step for step in reversed(name.split("/")) if step not in ("", ".")]


class _HDF5Store(Store):
    def _target(self, group: Any, step: str) -> str | None:
        link = group.get(step, getlink=True)
        if type(link).__name__ == "SoftLink":
            return str(link.path)
        if type(link).__name__ == "ExternalLink":
            raise FileFormatError(
                f"{self.path}: {step!r} is a link to the file {link.filename!r}: open that file"
            )
        return None

    def _checked(self, array: Any, name: str) -> Any:
        if array.is_virtual or array.external:
            raise FileFormatError(
                f"{name} is stored in other files: if you trust it, open it with h5py and pass the "
                "dataset to from_rows"
            )
        return super()._checked(array, name)

    def _stored_bytes(self, array: Any, name: str) -> int:
        size, file_size = int(array.id.get_storage_size()), self.path.stat().st_size
        if size > file_size:
            raise FileFormatError(
                f"{name} is truncated: its header claims {size} bytes in a file of {file_size}; "
                "copy or download it again"
            )
        has_checksums = array.chunks and array.fletcher32  # without its own, a chunk is a crash
        if has_checksums and array.id.chunk_iter(lambda c: c.size < _FLETCHER_BYTES or None):
            raise FileFormatError(f"{name} has a damaged chunk; copy or download it again")
        return size

    def _parts_of_texts(self, member: Any) -> Iterator[list[Any]]:
        if member.dtype.hasobject:
            size, file_size = sum(text_lengths(member)), self.path.stat().st_size
            if size > max(_HARMLESS_TEXT_BYTES, file_size):
                raise FileFormatError(
                    f"{self.path}: the texts in {visible(member.name)} claim {size} bytes in a "
                    f"file of {file_size}: copy or download it again"
                )
        yield member[:].tolist()


def open_member(store: Store, dataset: str | None) -> NamedMatrix:
    """Open a dataset, a sparse group, or X of AnnData."""
    root, path = store.root, store.path
    if not hasattr(root, "dtype"):
        names = sorted(root.keys())
        if dataset is None:
            if "X" in names:
                dataset = "X"
            elif len(names) == 1:
                (dataset,) = names
            elif not set(_PARTS) <= set(names):
                raise name_one(path, names)
    dataset = (dataset or "").strip("/")
    member = store.find(dataset)
    matrix: ChunkedSource | CompressedSource | Cube
    name = f"{path}:{dataset}"
    if hasattr(member, "dtype"):
        is_cube = len(member.shape) == 3
        matrix = Cube(name, member) if is_cube else ChunkedSource(member, is_ours=True)
    else:
        matrix = _sparse_group(
            member, lambda part: store.find(part, member), name, path, store.budget
        )
    return NamedMatrix(matrix, _annotations(store, dataset))


def _annotations(store: Store, dataset: str) -> Names:
    """The names of AnnData's observations and variables, for the members that have them."""
    kind, _, rest = dataset.partition("/")
    if kind not in ("X", "layers") and (kind, rest) != ("raw", "X"):
        return Names()
    variables = "raw/var" if kind == "raw" else "var"
    return Names.of(_index(store, "obs"), _index(store, variables))


def read_annotation(path: Path, column: str, budget: int) -> list[str]:
    """Read a column of obs of AnnData as texts; categories are spelled out."""
    with hdf5_store(path, budget) as store:
        try:
            group = store.find("obs")
            if column not in group:
                raise FileFormatError(
                    f"{path} has no column {column!r} in obs; it has {listed(sorted(group.keys()))}"
                )
            return _column_of_texts(store, column, group)
        finally:
            store.root.close()


def read_coordinates(path: Path, name: str, budget: int) -> Array | None:
    """Read the first two columns of an array of obsm of AnnData; None if it is not there."""
    with hdf5_store(path, budget) as store:
        try:
            if "obsm" not in store.root or name not in store.find("obsm"):
                return None
            member = store.find(name, store.find("obsm"))
            if not hasattr(member, "dtype") or member.dtype.kind != "f" or member.ndim != 2:
                return None
            if not fits(member.dtype.itemsize * member.size, budget):
                return None
            return np.asarray(member[:, :2], dtype=float)
        finally:
            store.root.close()


def _column_of_texts(store: Store, column: str, group: Any) -> list[str]:
    member = store.find(column, group)
    if not hasattr(member, "dtype") and "codes" in member:
        categories = store.texts("categories", member) or []
        codes = np.asarray(store.find("codes", member)[:])
        if codes.size and not -1 <= codes.min() <= codes.max() < len(categories):
            raise FileFormatError(f"{store.path}: obs/{column} has codes without a category")
        return ["missing" if code < 0 else categories[code] for code in codes.tolist()]
    if hasattr(member, "dtype") and member.dtype.kind in "biuf":
        return [str(value) for value in np.asarray(member[:]).tolist()]
    return store.texts(column, group) or []


def _index(store: Store, table: str) -> list[str] | None:
    """The index of a data frame of AnnData; None if there is none."""
    try:
        group = store.find(table)
        return store.texts(str(attribute(group, "_index")), group)
    except (ConeNMFError, KeyError):
        return None

"""HDF5 and Zarr: datasets, sparse groups and AnnData. The only code that imports h5py and Zarr.

The libraries read; this module adds the checks that they leave to their callers. Both formats can
lead a reader to other files and other code: links, virtual datasets, raw data elsewhere, codecs
that unpickle. So members are looked up step by step, and nothing outside the file is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConeNMFError, DataTypeError, FileFormatError
from ...names import Names
from ...text import decoded
from .cubes import Cube
from .layouts import ChunkedSource, CompressedSource, path_of
from .limits import (
    check_expansion,
    check_fits,
    listed,
    name_one,
    named_damage,
    require_package,
    too_many_names,
)
from .sources import NamedMatrix

__all__ = ["Store", "hdf5_store", "open_hdf5", "open_object", "open_zarr"]

_MAX_LINKS = 16  # links followed before they count as a circle
_HARMLESS_CHUNK_BYTES = 1 << 20  # allowed for a chunk with any budget
_PARTS = ("data", "indices", "indptr")
_CODECS = {  # of Zarr; none of them runs code that comes with the data
    *("bytes", "endian", "transpose", "sharding_indexed", "crc32c"),
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", "pcodec", "zfpy"),
    *("bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle", "astype"),
    *("adler32", "crc32", "fletcher32", "jenkins_lookup3", "vlen-utf8", "vlen-bytes"),
}


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
    attributes = dict(group.attrs)
    if not set(_PARTS) <= set(group.keys()):
        raise FileFormatError(
            f"{name} is a group of {listed(sorted(group.keys()))}, expected a "
            "dataset, or a sparse matrix with data, indices and indptr"
        )
    shape = attributes.get("shape", attributes.get("h5sparse_shape"))
    if shape is None and "shape" in group:
        shape = part("shape")[:]
    if shape is None:
        raise FileFormatError(f"{name} has no attribute 'shape': save the sparse matrix with it")
    order = attributes.get("encoding-type", attributes.get("h5sparse_format", "csr"))
    data, indices, indptr = (part(key) for key in _PARTS)
    parts = (data, indices, indptr)
    return CompressedSource(name, path, parts, shape, decoded(order)[:3], budget, is_ours)


# --- files ------------------------------------------------------------------------------------


def open_hdf5(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of an HDF5 file, or X of AnnData."""
    with hdf5_store(path, budget) as store:
        return _open_member(store, dataset)


def open_zarr(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of a Zarr store in a folder, or X of AnnData."""
    zarr = require_package("zarr", path)
    try:
        root = zarr.open(os.path.abspath(path), mode="r")  # chunks that are not found are zeros
    except Exception as problem:  # the library raises many kinds
        raise FileFormatError(f"{path} is not a Zarr store: {problem}") from problem
    with named_damage(path):
        return _open_member(_ZarrStore(root, path, budget), dataset)


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
        if hasattr(member, "dtype"):
            self._check(member, f"{self.path}:{name}")
        return member

    def _target(self, group: Any, step: str) -> str | None:
        """Where a link within the file leads to; None if it is no link."""
        return None

    def _check(self, array: Any, name: str) -> None:
        """Refuse an array that is stored elsewhere, or claims more than it holds."""
        shape, dtype = array.shape, array.dtype
        chunks = getattr(array, "chunks", None)
        chunk = int(np.prod(chunks, dtype=object)) * dtype.itemsize if chunks else 0
        if chunk > _HARMLESS_CHUNK_BYTES:
            reason, advice = "has to be read as a whole", "store it in smaller chunks"
            check_fits(f"{name}: a chunk", chunk, self.budget, reason, advice)
        claimed = int(np.prod(shape, dtype=object)) * dtype.itemsize
        check_expansion(name, self._stored_bytes(array, name), claimed)

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
        if too_many_names(member.shape[0], self.budget):
            return None
        return [decoded(text) for text in member[:].tolist()]


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

    def _check(self, array: Any, name: str) -> None:
        if array.is_virtual or array.external:
            raise FileFormatError(
                f"{name} is stored in other files: if you trust it, open it with h5py and pass the "
                "dataset to from_rows"
            )
        super()._check(array, name)

    def _stored_bytes(self, array: Any, name: str) -> int:
        size, file_size = int(array.id.get_storage_size()), self.path.stat().st_size
        if size > file_size:
            raise FileFormatError(
                f"{name} is truncated: its header claims {size} bytes in a file of {file_size}; "
                "copy or download it again"
            )
        return size


class _ZarrStore(Store):
    def _check(self, array: Any, name: str) -> None:
        codecs = set(_codecs(array.metadata.to_dict()))
        if codecs - _CODECS:
            raise FileFormatError(
                f"{name} is encoded with {listed(sorted(codecs - _CODECS))}, which is not among "
                "the codecs that only compress numbers: store it with one of those, such as zstd"
            )
        super()._check(array, name)

    def _stored_bytes(self, array: Any, name: str) -> int:
        total, root = 0, self.path.resolve()
        folder = root / array.path
        if not folder.resolve().is_relative_to(root):
            raise FileFormatError(
                f"{name} is a link that leads out of the store: copy its target into it"
            )
        for place, folders, files in os.walk(folder):
            for entry in (*folders, *files):
                path = Path(place, entry)
                if not path.resolve().is_relative_to(root):
                    raise FileFormatError(
                        f"{path} is a link that leads out of the store: copy its target there"
                    )
                if not (path.is_file() or path.is_dir()):
                    raise FileFormatError(f"{path} is not a file: copy or download the store again")
            total += sum(Path(place, entry).stat().st_size for entry in files)
        return total


def _codecs(settings: Any) -> Iterator[str]:
    """The names of all codecs in the settings of an array, however deep."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            if key in ("codecs", "index_codecs", "filters", "compressor", "compressors"):
                for codec in value if isinstance(value, list | tuple) else [value]:
                    if isinstance(codec, dict):
                        name = str(codec.get("name", codec.get("id", codec)))
                        yield name.removeprefix("numcodecs.")
            yield from _codecs(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _codecs(value)


def _open_member(store: Store, dataset: str | None) -> NamedMatrix:
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


def _index(store: Store, table: str) -> list[str] | None:
    """The index of a data frame of AnnData; None if there is none."""
    try:
        group = store.find(table)
        return store.texts(str(group.attrs["_index"]), group)
    except (ConeNMFError, KeyError):
        return None

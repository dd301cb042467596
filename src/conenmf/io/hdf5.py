"""HDF5, read by h5py: datasets, sparse groups, AnnData, and MATLAB's files of version 7.3.

What `io.zarr` has in common with it is here too: both libraries have groups and arrays that are
sliced. Both read zeros where nothing was ever written; such arrays are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..data.disk import Stamp
from ..data.validate import check_kind
from ..errors import DataTypeError, FileFormatError
from ..names import Names
from ..text import decoded
from .limits import (
    check_expansion,
    check_fits,
    choose_member,
    fits,
    listed,
    named_damage,
    only_matrix,
    require_package,
    too_many_names,
)
from .source import ArraySource, CompressedSource, NamedMatrix

_PARTS = ("data", "indices", "indptr")
_HARMLESS_CHUNK_BYTES = 1 << 20  # allowed for a chunk with any budget
_NUMERIC_CLASSES = {"double", "single", "logical"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class Store:
    """An open file of HDF5, or a store of Zarr.

    Attributes
    ----------
    root : group or array
    path : Path
    budget : int
        Memory in bytes.
    """

    root: Any
    path: Path
    budget: int

    def find(self, name: str, start: Any = None) -> Any:
        """The array or group of that name, below another one if that is given.

        An array of which a part was never written, or that cannot be as it claims, is refused.
        """
        group = self.root if start is None else start
        try:
            member = group[name] if name.strip("/") else group
        except (KeyError, ValueError, TypeError) as problem:
            members = listed(sorted(getattr(self.root, "keys", tuple)()))
            raise FileFormatError(f"{self.path} has no {name!r}; it holds {members}") from problem
        if not is_array(member):
            return member
        place, itemsize = f"{self.path}:{name}", member.dtype.itemsize
        chunk = math.prod(member.chunks or (0,)) * itemsize
        if chunk > _HARMLESS_CHUNK_BYTES:
            reason, advice = "has to be read as a whole", "store it in smaller chunks"
            check_fits(f"{place}: a chunk", chunk, self.budget, reason, advice)
        written, expected, stored = self._written(member, place)
        if written < expected:
            raise FileFormatError(
                f"{place}: {expected - written} of {expected} chunks were never written, and would "
                "be read as zeros: write them; if that is right, open it with the library of this "
                "format and pass it to from_rows"
            )
        check_expansion(place, stored, math.prod(member.shape) * itemsize)
        return member

    def _written(self, array: Any, place: str) -> tuple[int, int, int]:
        """How many chunks are written, how many there should be, and bytes in the file."""
        if array.is_virtual or array.external:
            raise FileFormatError(
                f"{place} is stored in other files: open it with h5py and pass it to from_rows"
            )
        stored = int(array.id.get_storage_size())
        if array.chunks is None:
            return int(stored > 0 or array.size == 0), 1, stored
        sides = zip(array.shape, array.chunks, strict=True)
        expected = math.prod(-(-side // chunk) for side, chunk in sides)
        return array.id.get_num_chunks(), expected, stored

    def stamp(self, member: Any) -> Stamp:
        """The size and the time of the file."""
        return Stamp([self.path])

    def texts(self, name: str, start: Any = None) -> list[str] | None:
        """Some texts; None if there are too many to be worth the memory."""
        member = self.find(name, start)
        if not is_array(member):  # categories, or texts of which some may be missing
            return [decoded(text) for text in self.element(member)]
        if len(member.shape) != 1:
            raise FileFormatError(f"{self.path}: {name!r} has shape {member.shape}, expected names")
        if too_many_names(member.shape[0], self.budget):
            return None
        return [decoded(text) for text in member[:].tolist()]

    def element(self, member: Any) -> Any:
        """A member of AnnData, as anndata reads it."""
        return require_package("anndata.io", self.path).read_elem(member)


def is_array(member: Any) -> bool:
    """Whether this is an array rather than a group."""
    return hasattr(member, "dtype")


@contextmanager
def hdf5_store(path: Path, budget: int) -> Iterator[Store]:
    """An HDF5 file, which stays open unless something is wrong with it."""
    h5py = require_package("h5py", path)
    with named_damage(path):
        # A chunk that is larger than a block is needed several times in a row: keep it in memory.
        root = h5py.File(path, "r", rdcc_nbytes=max(1 << 20, budget // 16))
        try:
            yield Store(root, path, budget)
        except Exception:
            root.close()
            raise


def open_member(store: Store, dataset: str | None) -> NamedMatrix:
    """Open a dataset, a sparse group, or X of AnnData."""
    names = () if is_array(store.root) else tuple(store.root.keys())
    if dataset is None and names and not set(_PARTS) <= set(names):
        dataset = "X" if "X" in names else choose_member(store.path, None, names)
    dataset = (dataset or "").strip("/")
    member, path = store.find(dataset), store.path
    parts = [store.find(part, member) for part in _parts(member)]
    matrix = _matrix(member, parts, f"{path}:{member.name}", path, store.stamp(member))
    kind, _, rest = dataset.partition("/")
    if kind not in ("X", "layers") and (kind, rest) != ("raw", "X"):
        return NamedMatrix(matrix)
    features = _index(store, "raw/var" if kind == "raw" else "var")
    return NamedMatrix(matrix, Names.of(_index(store, "obs"), features))


def _parts(member: Any) -> list[str]:
    """The names of the parts of a sparse matrix, as far as a group has them."""
    return [] if is_array(member) else [part for part in _PARTS if part in member]


def _matrix(member: Any, parts: list[Any], name: str, path: Any, stamp: Stamp | None) -> Any:
    """A dense array, or a sparse matrix as AnnData and others store it."""
    if is_array(member):
        return ArraySource(member, name, path, stamp, missing=_missing_value(member))
    shape = member.attrs.get("shape", member.attrs.get("h5sparse_shape"))
    if len(parts) < len(_PARTS) or shape is None:
        raise FileFormatError(
            f"{name} is a group of {listed(sorted(member.keys()))}, expected a dataset, or a "
            "sparse matrix with data, indices and indptr, and its shape as an attribute"
        )
    order = member.attrs.get("encoding-type", member.attrs.get("h5sparse_format", "csr"))
    return CompressedSource(name, path, stamp, parts, shape, decoded(order)[:3])


def _missing_value(array: Any) -> float | None:
    """The number that marks entries without a value, by the conventions of netCDF and xarray."""
    for name in ("_FillValue", "missing_value"):
        value = np.asarray(array.attrs.get(name))
        if value.size == 1 and value.dtype.kind in "fiu":
            return float(value.item())
    return None


def _index(store: Store, table: str) -> list[str] | None:
    """The index of a data frame of AnnData; None if there is none."""
    if table not in store.root or "_index" not in store.root[table].attrs:
        return None
    group = store.root[table]
    return store.texts(str(group.attrs["_index"]), group)


def open_object(member: Any) -> NamedMatrix:
    """Open a dataset or group of HDF5 or Zarr, or a backed matrix of AnnData, of the caller's."""
    if type(member).__module__.partition(".")[0] == "anndata":
        if not hasattr(member, "group"):
            raise DataTypeError(
                "an AnnData object holds more than a matrix: pass its .X or a layer"
            )
        member = member.group
    if is_array(member):
        check_kind(np.dtype(member.dtype), member.shape)
    is_hdf5 = hasattr(member, "file")
    path = member.file.filename if is_hdf5 else getattr(member.store, "root", None)
    parts = [member[part] for part in _parts(member)]
    return NamedMatrix(_matrix(member, parts, f"{path or 'the store'}:{member.name}", path, None))


# --- AnnData ----------------------------------------------------------------------------------


def read_annotation(path: Path, column: str, budget: int) -> list[str]:
    """Read a column of obs of AnnData as texts; categories are spelled out."""
    with hdf5_store(path, budget) as store, store.root:
        group = store.find("obs")
        if column not in group:
            raise FileFormatError(
                f"{path} has no column {column!r} in obs; it has {listed(sorted(group.keys()))}"
            )
        values = require_package("pandas", path).Series(store.element(store.find(column, group)))
        known = values.astype(object).where(values.notna(), "missing")
        return [decoded(value) for value in known]


def read_coordinates(path: Path, name: str, budget: int) -> Array | None:
    """Read the first two columns of an array of obsm of AnnData; None if it is not there."""
    with hdf5_store(path, budget) as store, store.root:
        if f"obsm/{name}" not in store.root:
            return None
        member = store.find(f"obsm/{name}")
        is_matrix = is_array(member) and member.dtype.kind == "f" and member.ndim == 2
        is_small = is_matrix and fits(member.dtype.itemsize * member.size, budget)
        return np.asarray(member[:, :2], dtype=float) if is_small else None


# --- MATLAB 7.3 -------------------------------------------------------------------------------


def open_matlab_hdf5(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a variable of MATLAB 7.3, which stores columns one after the other, as HDF5's rows."""
    with hdf5_store(path, budget) as store:
        if dataset is None:
            found = [name for name in store.root if not name.startswith("#")]
            variables = [name for name in found if _is_numeric(store.root.get(name))]
            shapes = {name: _shape(store.root[name]) for name in variables}
            dataset = only_matrix(path, shapes, found)
        member = store.find(dataset)
        if not _is_numeric(member):
            raise DataTypeError(f"{path}: {dataset!r} is a {_class(member)}, not a matrix")
        name, stamp = f"{path}:{dataset}", store.stamp(member)
        if is_array(member):
            axes = tuple(reversed(range(member.ndim)))
            return NamedMatrix(ArraySource(member, name, path, stamp, axes=axes))
        parts = [store.find(part, member) for part in ("data", "ir", "jc")]
        return NamedMatrix(CompressedSource(name, path, stamp, parts, _shape(member), "csc"))


def _class(member: Any) -> str:
    return decoded(member.attrs.get("MATLAB_class", "double"))


def _is_numeric(member: Any) -> bool:
    is_matrix = is_array(member) or "MATLAB_sparse" in getattr(member, "attrs", ())
    return is_matrix and _class(member) in _NUMERIC_CLASSES


def _shape(member: Any) -> tuple[int, ...]:
    if is_array(member):
        return tuple(member.shape)
    return int(member.attrs["MATLAB_sparse"]), member["jc"].shape[0] - 1

"""HDF5 (with h5py) and Zarr: datasets, sparse groups, AnnData, and MATLAB 7.3.

Both libraries have groups and sliceable arrays. Both return zeros for parts that were never
written; such arrays are rejected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..errors import DataTypeError, FileFormatError
from ..names import Names
from ..scale.disk import Source, Stamp
from ..text import decoded, visible
from ..types import Lengths
from .limits import (
    NAME_BYTES,
    check_expansion,
    check_fits,
    choose_member,
    layout_of,
    listed,
    named_damage,
    require_package,
)
from .source import ArraySource, CompressedSource, NamedMatrix, Reading
from .spectral import band_names

PARTS = ("data", "indices", "indptr")
Member: TypeAlias = Any  # a group or an array of h5py or Zarr
_HARMLESS_CHUNK_BYTES = 1 << 20  # a chunk of this size is allowed with any budget


def open_hdf5(path: Path, reading: Reading, read: Callable[..., NamedMatrix]) -> NamedMatrix:
    """Open an HDF5 file, which stays open as long as the matrix is in use."""
    with open(path, "rb") as file:
        if file.read(3) == b"CDF":
            problem = "is NetCDF 3, which is not read: convert it with nccopy -k nc4 in.nc out.nc"
            raise FileFormatError(f"{path} {problem}")
    # Several blocks in a row need a chunk that is larger than a block: keep it in memory.
    cache = max(1 << 20, reading.budget // 16)
    return read(require_package("h5py", path).File(path, "r", rdcc_nbytes=cache), path, reading)


def open_zarr(path: Path, reading: Reading) -> NamedMatrix:
    """Open a member of a Zarr store in a folder, or X of AnnData."""
    root = require_package("zarr", path).open(path.absolute(), mode="r")
    return open_store(root, path, reading)


def open_store(root: Member, path: Path, reading: Reading) -> NamedMatrix:
    """Open a dataset, a sparse group, or X of AnnData."""
    dataset = reading.dataset
    keys = set() if is_array(root) else set(root.keys())
    if dataset is None and keys and not keys >= set(PARTS):
        dataset = "X" if "X" in keys else choose_member(path, None, keys)
    name = (dataset or "").strip("/")
    matrix = open_matrix(find(root, name, path), path, reading.budget)
    if name == "raw/X":
        tables = ["obs", "raw/var"]
    elif name.partition("/")[0] in ("X", "layers"):
        tables = ["obs", "var"]
    else:
        return NamedMatrix(matrix)
    names: list[Any] = [None, None]
    for side, table in enumerate(tables):
        index = root[table].attrs.get("_index") if table in root else None
        if index is not None:
            names[side] = texts(find(root, f"{table}/{index}", path), path, reading.budget)
    return NamedMatrix(matrix, Names.of(*names))


def is_array(member: object) -> bool:
    """Return whether this is an array, not a group."""
    return hasattr(member, "dtype")


def find(root: Member, name: str, path: Path) -> Member:
    """Return the array or group with this name."""
    try:
        return root[name] if name.strip("/") else root
    except (KeyError, ValueError, TypeError) as problem:
        members = listed(sorted(getattr(root, "keys", tuple)()))
        raise FileFormatError(f"{path} has no {name!r}; it holds {members}") from problem


def open_matrix(
    member: Member, path: Path, budget: int, parts: tuple[str, ...] = PARTS, sides: Any = None
) -> Source:
    """Open a dataset, or a sparse group with given parts and sides (by default AnnData's)."""
    files = [path]
    if path.is_dir():
        files = [file for file in (path.absolute() / member.path).rglob("*") if file.is_file()]
    for array in [member] if is_array(member) else [member[p] for p in parts if p in member]:
        _check(array, path, budget)
    return _source(member, path, Stamp(files), parts, sides)


def _source(
    member: Member,
    path: Any,
    stamp: Stamp | None,
    parts: tuple[str, ...] = PARTS,
    sides: Any = None,
) -> Source:
    name = f"{path or 'the store'}:{member.name}"
    about = member.attrs
    if is_array(member):
        missing = None
        for attribute in ("missing_value", "_FillValue"):  # written by netCDF and xarray
            value = np.asarray(about.get(attribute))
            if value.size == 1 and value.dtype.kind in "fiu":
                missing = float(value.item())
        return ArraySource(member, name, path, stamp, missing=missing)
    order = "csc"
    if sides is None:
        sides = about.get("shape", about.get("h5sparse_shape"))
        order = decoded(about.get("encoding-type", about.get("h5sparse_format", "csr")))[:3]
    if sides is None or not set(parts) <= set(member.keys()):
        raise FileFormatError(
            f"{name} is a group of {listed(sorted(member.keys()))}, expected a dataset, or a "
            "sparse matrix with data, indices and indptr, and its shape as an attribute"
        )
    arrays = [member[part] for part in parts]
    return CompressedSource(name, path, stamp, arrays, sides, order)


def _check(array: Member, path: Path, budget: int) -> None:
    """Reject an array with a part that was never written, or with an impossible size."""
    _refuse_other_files(array, path)
    place = f"{path}:{array.name}"
    chunk = math.prod(array.chunks or (0,)) * array.dtype.itemsize
    if chunk > _HARMLESS_CHUNK_BYTES:
        check_fits(f"{place}: a chunk", chunk, budget)
    if hasattr(array, "nchunks_initialized"):  # an array of Zarr
        _refuse_pickles(array, place)
        stored = array.nbytes_stored()
        written = array.nchunks_initialized
        expected = array.nchunks
    else:
        stored = int(array.id.get_storage_size())
        written = int(not array.size or (stored > 0 and not array.external))
        expected = 1
        if array.chunks:
            sides = zip(array.shape, array.chunks, strict=True)
            expected = math.prod(-(-side // length) for side, length in sides)
            written = array.id.get_num_chunks()
    if written < expected:
        raise FileFormatError(
            f"{place}: {expected - written} of {expected} chunks were never written here, and "
            "would be read as zeros: write them; if that is right, or they are in other files, "
            "open it with the library of this format and pass it to from_rows"
        )
    check_expansion(place, stored, math.prod(array.shape) * array.dtype.itemsize)


def _refuse_other_files(member: Member, path: Path) -> None:
    """Reject a member of HDF5 to which a link in this file leads, but which is in another file."""
    other = member.file.filename if hasattr(member, "file") else path
    if not path.samefile(other):
        raise FileFormatError(
            f"{path} only links to {member.name} in {visible(other)}, whose changes during a fit "
            "would not be noticed: open that file, or copy the array into this one"
        )


def _refuse_pickles(array: Member, place: str) -> None:
    settings = {**array.metadata.to_dict(), "attributes": None}
    if "pickle" in json.dumps(settings, default=str):
        raise FileFormatError(f"{place} is stored as pickles, which are not read")


def texts(member: Member, path: Path, budget: int) -> list[str] | None:
    """Return names as texts; None if there are too many to be worth the memory."""
    if is_array(member):
        _check(member, path, budget)
        if math.prod(member.shape) * NAME_BYTES > budget // 8:
            return None
        return [decoded(text) for text in np.ravel(member[:]).tolist()]
    _refuse_other_files(member, path)
    if hasattr(member, "members"):  # a group of Zarr
        for name, part in member.members(max_depth=None):
            if is_array(part):
                _refuse_pickles(part, f"{path}:{name}")
    return [decoded(text) for text in _element(member)]


def _element(member: Member) -> Any:
    """Return a member of AnnData as anndata reads it, such as categories."""
    return require_package("anndata.io", member.name).read_elem(member)


def open_object(member: Member) -> NamedMatrix:
    """Open a dataset or group of HDF5 or Zarr, or a backed AnnData matrix, given as an object."""
    if type(member).__module__.partition(".")[0] == "anndata":
        if not hasattr(member, "group"):
            raise DataTypeError(
                "an AnnData object holds more than a matrix: pass its .X or a layer"
            )
        member = member.group
    is_hdf5 = hasattr(member, "file")
    path = member.file.filename if is_hdf5 else getattr(member.store, "root", None)
    return NamedMatrix(_source(member, path, None))


# --- other parts of AnnData -------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[Member]:
    h5py = require_package("h5py", path)
    with named_damage(path), h5py.File(path) as root:
        yield root


def read_observations(path: Path) -> Any:
    """Read obs of AnnData, without columns that have an entry of their name in uns."""
    with _opened(path) as root:
        return _element(root["obs"]).drop(columns=[*root.get("uns", ())], errors="ignore")


def read_annotation(path: Path, column: str, missing: str = "missing") -> list[str]:
    """Read a column of obs of AnnData as texts; categories become their names."""
    with _opened(path) as root:
        table = _element(root["obs"])
    if column not in table:
        raise FileFormatError(
            f"{path} has no column {column!r} in obs; it has {listed(sorted(table))}"
        )
    known = table[column].astype(object).where(table[column].notna(), missing)
    return [decoded(value) for value in known]


# --- MATLAB 7.3 -------------------------------------------------------------------------------


def open_matlab_variable(root: Member, path: Path, reading: Reading) -> NamedMatrix:
    """Open a variable of MATLAB 7.3; its columns are stored like the rows of HDF5."""
    shapes = {name: _shape(root.get(name)) for name in root}
    dataset = reading.dataset
    layout = None
    if dataset is None:
        matrices = {name: shape for name, shape in shapes.items() if shape}
        layout = layout_of(path, {name: sides[::-1] for name, sides in matrices.items()})
        dataset = layout.dataset
    member = find(root, dataset, path)
    sides = _shape(member)
    if not sides:
        raise DataTypeError(f"{path}: {dataset!r} is not a matrix of numbers")
    matrix = open_matrix(member, path, reading.budget, ("data", "ir", "jc"), sides)
    if not isinstance(matrix, ArraySource):
        return NamedMatrix(matrix).laid_out(layout)
    matrix.axes = matrix.axes[::-1]
    matrix.slice_along(matrix.axes[:-1], matrix.axes[-1:])
    vectors = [name for name, shape in shapes.items() if len(shape) == 2 and 1 in shape]
    beside = (root[name][()] for name in vectors if max(shapes[name]) in (sides[0], sides[-1]))
    names = band_names(sides[::-1], beside)
    return NamedMatrix(matrix, names).laid_out(layout)


def _shape(member: Member) -> Lengths:
    """Return the shape of a variable of MATLAB 7.3; () if it is not a matrix of numbers."""
    about = getattr(member, "attrs", {})
    kind = decoded(about.get("MATLAB_class", "double"))
    if kind not in ("double", "single", "logical") and "int" not in kind:
        return ()
    if is_array(member):
        return tuple(member.shape)
    is_sparse = "MATLAB_sparse" in about
    return (int(about["MATLAB_sparse"]), member["jc"].shape[0] - 1) if is_sparse else ()

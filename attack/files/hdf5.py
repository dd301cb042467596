"""HDF5: datasets, sparse groups, AnnData, and MATLAB's files of version 7.3.

Bytes are changed where the numbers are, or anywhere; or a member is written again with values,
types, shapes and attributes that do not fit, which leaves every checksum right.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from ..mutations import FLOATS, Rng, mutated
from .arrays import sparse_of
from .formats import Document, Format, only, pick, small_matrix


def _sparse_values(rng: Rng) -> Any:
    X = small_matrix(rng, pick(rng, ("f8", "f4", "i4")))
    X[rng.random(X.shape) < 0.5] = 0
    X[0, 0] = 1
    return X


def _storage(X: Any, rng: Rng) -> dict[str, Any]:
    """How a dataset is stored."""
    if rng.random() < 0.4:
        return {}
    chunks = tuple(max(1, side // int(rng.integers(1, 4))) for side in X.shape)
    filters = ({}, {"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True})
    filters += ({"fletcher32": True}, {"compression": "gzip", "shuffle": True})
    return {"chunks": chunks, **pick(rng, filters)}


def _make_dense(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng)
    if rng.random() < 0.15:
        X = X[:, :, None] * np.ones(2, X.dtype)
    stream = io.BytesIO()
    with h5py.File(stream, "w", libver="latest" if rng.random() < 0.2 else None) as file:
        file.create_dataset("X", data=X, **_storage(X, rng))
        if rng.random() < 0.2:
            file["X"].attrs["missing_value"] = -1.0
    return "x.h5", {"x.h5": stream.getvalue()}


def _write_sparse(group: Any, matrix: Any, rng: Rng) -> None:
    for part in ("data", "indices", "indptr"):
        values = getattr(matrix, part)
        group.create_dataset(part, data=values, **_storage(values, rng))


def _make_sparse(rng: Rng) -> tuple[str, Document]:
    matrix = pick(rng, (sp.csr_array, sp.csc_array))(_sparse_values(rng))
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        group = file.create_group("X")
        group.attrs["shape"] = matrix.shape
        group.attrs["encoding-type"] = f"{matrix.format}_matrix"
        _write_sparse(group, matrix, rng)
    return "x.h5", {"x.h5": stream.getvalue()}


def make_anndata(rng: Rng) -> Any:
    """Counts with names of cells and genes."""
    import anndata

    X = _sparse_values(rng).astype("f4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = anndata.AnnData(sp.csr_matrix(X) if rng.random() < 0.6 else X)
    content.obs_names = [f"cell {n}" for n in range(X.shape[0])]
    content.var_names = [f"gene {n}" for n in range(X.shape[1])]
    return content


def _make_h5ad(rng: Rng) -> tuple[str, Document]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "x.h5ad")
        packing = pick(rng, (None, None, "gzip", "lzf"))
        make_anndata(rng).write_h5ad(path, compression=packing)
        return "x.h5ad", {"x.h5ad": path.read_bytes()}


def _make_mat73(rng: Rng) -> tuple[str, Document]:
    stream = io.BytesIO()
    with h5py.File(stream, "w", userblock_size=512) as file:
        if rng.random() < 0.6:
            X = small_matrix(rng, pick(rng, ("f8", "f4", "u1", "i4")))
            file.create_dataset("X", data=X.T, **_storage(X.T, rng))
            names = {"f8": "double", "f4": "single", "u1": "uint8", "i4": "int32"}
            file["X"].attrs["MATLAB_class"] = np.bytes_(names[X.dtype.str[1:]])
        else:
            matrix = sp.csc_array(_sparse_values(rng).astype(float))
            group = file.create_group("X")
            group.attrs["MATLAB_class"] = np.bytes_("double")
            group.attrs["MATLAB_sparse"] = np.uint64(matrix.shape[0])
            for part, values in (
                ("data", matrix.data),
                ("ir", matrix.indices.astype("u8")),
                ("jc", matrix.indptr.astype("u8")),
            ):
                group.create_dataset(part, data=values)
    text = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    return "x.mat", {"x.mat": text.ljust(512, b"\x00") + stream.getvalue()[512:]}


# --- changes --------------------------------------------------------------------------------------


def _mutate(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    what = rng.random()
    try:
        if what < 0.35:
            return {name: _rewritten(data, rng)}
        if what < 0.75:
            start, stop = pick(rng, _places(data))
            changed = mutated(data[start:stop], rng)[: stop - start]
            return {name: data[:start] + changed + data[start + len(changed) :]}
    except Exception:  # of h5py: the file is damaged already
        return {name: mutated(data, rng)}
    return {name: mutated(data, rng, *((0, 4096) if what < 0.9 else ()))}


def _members(file: Any) -> list[Any]:
    found: list[Any] = []
    file.visititems(lambda _, member: found.append(member))
    return found


def _places(data: bytes) -> list[tuple[int, int]]:
    """Where the numbers of all datasets are."""
    places = []
    with h5py.File(io.BytesIO(data), "r") as file:
        base = file.userblock_size
        for member in _members(file):
            if not isinstance(member, h5py.Dataset) or member.dtype.kind not in "fiub":
                continue
            if member.chunks is None:
                offset = member.id.get_offset()
                if offset is not None:
                    places.append((base + offset, base + offset + member.nbytes))
                continue
            for chunk in range(member.id.get_num_chunks()):
                info = member.id.get_chunk_info(chunk)
                start = base + info.byte_offset
                places.append((start, start + info.size))
    return [place for place in places if place[1] > place[0]]


def _rewritten(data: bytes, rng: Rng) -> bytes:
    """Change a member through the library, so that the file stays whole."""
    stream = io.BytesIO(data)
    with h5py.File(stream, "r+") as file:
        members = _members(file)
        member = pick(rng, members)
        what = rng.random()
        if what < 0.3 and len(member.attrs):
            key = pick(rng, list(member.attrs))
            value = pick(rng, (-1, 0, 2**40, "zebra", [1], [2**33, 3], 0.5, float("nan"), b"\xff"))
            member.attrs[key] = value
        elif what < 0.35:
            member.attrs[pick(rng, ("shape", "_FillValue", "encoding-type"))] = 1
        elif what < 0.45:
            del file[member.name]
        elif isinstance(member, h5py.Dataset) and member.dtype.kind in "fiu" and member.size:
            _rewrite_numbers(file, member, what, rng)
        else:
            name = f"{member.name}-2" if rng.random() < 0.5 else "/Y"
            file[name] = pick(rng, (h5py.SoftLink(member.name), h5py.ExternalLink("o.h5", "/X")))
    return stream.getvalue()


def _rewrite_numbers(file: Any, member: Any, what: float, rng: Rng) -> None:
    values = member[()]
    if what < 0.85:
        place = int(rng.integers(values.size))
        choices = FLOATS if values.dtype.kind == "f" else (-1, 0, 1, 10**6, values.size, -(2**31))
        with np.errstate(all="ignore"):
            values.flat[place] = np.array(pick(rng, choices)).astype(values.dtype)
        member[()] = values
        return
    name, attributes = member.name, dict(member.attrs)
    with np.errstate(all="ignore"):
        if what < 0.93:
            kind = pick(rng, ("f8", "i8", "u1", "c16", "S3", "b1", "f2", ">f8"))
            values = values.astype(kind)
        else:
            values = values[: int(rng.integers(len(values) + 1))]
    del file[name]
    file[name] = values
    file[name].attrs.update(attributes)


# --- readers --------------------------------------------------------------------------------------


def _header(path: Path) -> Any:
    with h5py.File(path, "r") as file:
        member = file["X"]
        if isinstance(member, h5py.Dataset):
            return member.shape, member.dtype, dict(member.attrs)
        return {name: (part.shape, part.dtype) for name, part in member.items()}


def _read(path: Path, V: Any) -> Any:
    with h5py.File(path, "r") as file:
        names = list(file)
        member = file["X"] if "X" in names else file[names[0]]
        if isinstance(member, h5py.Dataset):
            values = member[()]
            return values.reshape(-1, values.shape[-1]) if values.ndim == 3 else values
        parts = [member[name][()] for name in ("data", "indices", "indptr")]
        shape = tuple(int(side) for side in member.attrs["shape"])
        order = member.attrs.get("encoding-type", "csr")
        order = order.decode() if isinstance(order, bytes) else str(order)
    return sparse_of(parts, shape, order[:3])


def _mat73_header(path: Path) -> Any:
    return _header(path)


def _read_mat73(path: Path, V: Any) -> Any:
    with h5py.File(path, "r") as file:
        member = file["X"] if "X" in file else file[next(iter(file))]
        if isinstance(member, h5py.Dataset):
            return member[()].T
        parts = [member[name][()] for name in ("data", "ir", "jc")]
        shape = (int(member.attrs["MATLAB_sparse"]), len(parts[2]) - 1)
    return sparse_of(parts, shape, "csc")


_OPTIONS: dict[str, Any] = {
    "busy_library": "_hl/",
    "seconds": 5.0,
}  # h5py; docs/files.md: it can be kept busy forever
FORMATS = (
    Format("h5", _make_dense, _mutate, _header, _read).kind(6000, **_OPTIONS),
    Format("h5-sparse", _make_sparse, _mutate, _header, _read).kind(6000, **_OPTIONS),
    Format("h5ad", _make_h5ad, _mutate, _header, _read).kind(6000, **_OPTIONS),
    Format("mat7.3", _make_mat73, _mutate, _mat73_header, _read_mat73).kind(6000, **_OPTIONS),
)

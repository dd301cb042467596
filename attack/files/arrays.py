"""NumPy's files: ``.npy``, ``.npz`` with a matrix, ``.npz`` with the parts of a sparse one."""

from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..mutations import FLOATS, INTEGERS, Rng, mutated
from .formats import Document, Format, RefusedError, only, pick, small_matrix

_TYPES = (
    *("<f8", ">f8", "<f4", "<f2", "<i8", "<i4", "|i1", "|u1", "<u8", "|b1", "<c16", "|O", "|S8"),
    *("<U4", "<M8[ns]", "<m8[s]", "<f16", "", "zebra", "<f9", "|V8"),
)
_MAX_SIDE = 10**8  # of a sparse matrix that is compared
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def npy_bytes(array: Any) -> bytes:
    """An array as ``.npy``."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _make_npy(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng)
    if rng.random() < 0.2:
        X = X[:, :, None] * np.ones(3, X.dtype)  # a cube
    if rng.random() < 0.3:
        X = np.asfortranarray(X)
    if rng.random() < 0.2:
        X = X.astype(X.dtype.newbyteorder(">"))
    return "x.npy", {"x.npy": npy_bytes(X)}


def mutated_npy(data: bytes, rng: Rng) -> bytes:
    """Change the numbers, one entry of the header, or any byte."""
    try:
        width = 2 if data[6] == 1 else 4
        start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
        header = ast.literal_eval(data[8 + width : start].decode("latin1"))
        shape, fortran, what = list(header["shape"]), header["fortran_order"], rng.random()
    except (IndexError, ValueError, SyntaxError, KeyError, TypeError, UnicodeError):
        return mutated(data, rng)
    if what < 0.45:
        return mutated(data, rng, start)
    if what < 0.55:
        return mutated(data, rng)
    if what < 0.70 and shape:
        place = int(rng.integers(len(shape)))
        shape[place] = pick(rng, (*INTEGERS, -1, shape[place] + 1, shape[place] - 1))
        header["shape"] = tuple(shape)
    elif what < 0.75:
        header["shape"] = pick(rng, ((), tuple(shape[:1]), (*shape, 1), tuple(shape[::-1])))
    elif what < 0.9:
        header["descr"] = pick(rng, _TYPES)
    elif what < 0.95:
        header["fortran_order"] = not fortran
    else:
        header["zebra"] = 1
    return npy_with_header(header, data[start:], int(pick(rng, (1, 1, 1, 2, 3))))


def npy_with_header(header: dict[str, Any], body: bytes, version: int = 1) -> bytes:
    """A file with any header, whose length is right."""
    width = 2 if version == 1 else 4
    text = repr(header).encode("latin1", "replace")
    text += b" " * (-(len(text) + 9 + width) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + body


def _mutate_npy(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    return {name: mutated_npy(data, rng)}


def _npy_header(path: Path) -> Any:
    with open(path, "rb") as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)


def _pixels(array: Any) -> Any:
    return array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array


def _read_npy(path: Path, V: Any) -> Any:
    return _pixels(np.load(path, allow_pickle=False))


# --- archives -----------------------------------------------------------------------------------


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive whose checksums are right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    """The members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _make_npz(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng)
    members = {"X.npy": npy_bytes(X)}
    if rng.random() < 0.3:
        members["sample_names.npy"] = npy_bytes(np.array([f"s{i}" for i in range(len(X))]))
        members["feature_names.npy"] = npy_bytes(np.array([f"f{i}" for i in range(X.shape[1])]))
    return "x.npz", {"x.npz": zipped(members, pick(rng, _METHODS[:2]))}


def mutated_npz(data: bytes, rng: Rng, member: Any = mutated_npy) -> bytes:
    """Change a member and zip it again, or change the archive."""
    try:
        members = unzipped(data)
    except Exception:
        return mutated(data, rng)
    what = rng.random()
    if what < 0.3 or not members:
        return mutated(data, rng)
    name = pick(rng, sorted(members))
    if what < 0.85:
        members[name] = member(members[name], rng)
    elif what < 0.9:
        del members[name]
    elif what < 0.95:
        members[pick(rng, ("../evil.npy", "Y.npy", "X", "shape.npy", "x\x00.npy"))] = members[name]
    else:
        members[name] = b""
    return zipped(members, pick(rng, _METHODS))


def _mutate_npz(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    return {name: mutated_npz(data, rng)}


def _npz_header(path: Path) -> Any:
    """The headers of all members."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0
                (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(stream)


def _read_npz(path: Path, V: Any) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        names = [name for name in archive.files if not name.endswith("_names")]
        matrices = {name: archive[name] for name in names}
    found = [matrix for matrix in matrices.values() if matrix.ndim in (2, 3)]
    (matrix,) = found
    return _pixels(matrix)


# --- sparse matrices ----------------------------------------------------------------------------


def _make_sparse(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng, pick(rng, ("f8", "f4", "i4", "i8")))
    X[rng.random(X.shape) < 0.5] = 0
    X[0, 0] = 1
    matrix = pick(rng, (sp.csr_array, sp.csc_array, sp.csr_matrix))(X)
    if rng.random() < 0.3 and hasattr(matrix, "indptr"):
        matrix.indices = matrix.indices.astype(np.int64)
        matrix.indptr = matrix.indptr.astype(np.int64)
    stream = io.BytesIO()
    sp.save_npz(stream, matrix, compressed=bool(rng.random() < 0.5))
    return "x.npz", {"x.npz": stream.getvalue()}


def _mutated_part(data: bytes, rng: Rng) -> bytes:
    """Change entries of one of the parts as numbers, so that its header stays right."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:
        return mutated(data, rng)
    what = rng.random()
    if what < 0.3 or array.dtype.kind not in "iuf":
        return mutated_npy(data, rng)
    array = np.atleast_1d(array).copy()
    with np.errstate(all="ignore"):
        if what < 0.5:
            kind = pick(rng, ("f8", "i4", "u8", "i8", "c16", "f4", "i1", "U4", "b1"))
            array = array.astype(kind)
            if kind == "f8" and array.size:
                array[int(rng.integers(array.size))] += 0.7
        elif array.size:
            place = int(rng.integers(array.size))
            values = FLOATS if array.dtype.kind == "f" else (-1, 0, 1, 2**30, array.size, -(2**31))
            array[place] = np.array(pick(rng, values)).astype(array.dtype)
            if what > 0.9:
                array = array[: max(1, place)]
    return npy_bytes(array)


def _mutate_sparse(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    return {name: mutated_npz(data, rng, _mutated_part)}


def _read_sparse(path: Path, V: Any) -> Any:
    """By NumPy, which compares the checksum of every part, and SciPy, which checks the indices."""
    with np.load(path, allow_pickle=False) as archive:
        parts = [archive[name] for name in ("data", "indices", "indptr")]
        shape, order = archive["shape"], archive["format"].item()
    sides = tuple(int(side) for side in exact_integers(shape))
    return sparse_of(parts, sides, order.decode() if isinstance(order, bytes) else str(order))


def exact_integers(values: Any) -> Any:
    """The same numbers as integers; refused if they are none."""
    if values.dtype.kind not in "iufb":
        raise RefusedError(f"indices of type {values.dtype}")
    with np.errstate(all="ignore"):
        integers = values.astype(np.int64)
    if not np.array_equal(integers, values):
        raise RefusedError("indices that are no integers")
    return integers


def sparse_of(parts: list[Any], shape: tuple[int, ...], order: str) -> Any:
    """A sparse matrix, once SciPy has checked all of it."""
    data, indices, indptr = parts
    if max(shape) > _MAX_SIDE:
        raise RefusedError("too large to compare")
    kind = {"csr": sp.csr_array, "csc": sp.csc_array}[order]
    matrix = kind((data, exact_integers(indices), exact_integers(indptr)), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


FORMATS = (
    Format("npy", _make_npy, _mutate_npy, _npy_header, _read_npy).kind(8000),
    Format("npz", _make_npz, _mutate_npz, _npz_header, _read_npz).kind(8000),
    Format("npz-sparse", _make_sparse, _mutate_sparse, _npz_header, _read_sparse).kind(8000),
)

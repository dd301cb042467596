"""MATLAB's files of version 5: elements with tags, alone or compressed with zlib."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from ..mutations import INTEGERS, Rng, mutated, packed
from .formats import Document, Format, only, pick, small_matrix

_HEADER = 128  # bytes before the first variable
_COMPRESSED = 15


def _make(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng, pick(rng, ("f8", "f4", "u1", "i2", "i4", "u2", "i8")))
    matrix: Any = X
    if rng.random() < 0.35:
        matrix = sp.csc_matrix(X.astype(float) * (rng.random(X.shape) < 0.5) + (X == X.flat[0]))
    elif rng.random() < 0.15:
        matrix = X[:, :, None] * np.ones(2, X.dtype)
    variables = {"X": matrix}
    if rng.random() < 0.3:
        variables |= {"note": "text", "n": 3.0}
    stream = io.BytesIO()
    scipy.io.savemat(stream, variables, do_compression=bool(rng.random() < 0.5))
    return "x.mat", {"x.mat": stream.getvalue()}


def _mutate(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    if rng.random() < 0.12 or len(data) < _HEADER + 16:
        return {name: mutated(data, rng)}
    kind, size = struct.unpack("<II", data[_HEADER : _HEADER + 8])
    body = data[_HEADER + 8 : _HEADER + 8 + size]
    rest = data[_HEADER + 8 + size :]
    if kind != _COMPRESSED:
        element = _mutated_element(data[_HEADER : _HEADER + 8] + body, rng)
        return {name: data[:_HEADER] + element + rest}
    try:
        element = zlib.decompress(body)
    except zlib.error:
        return {name: mutated(data, rng, _HEADER)}
    body = zlib.compress(_mutated_element(element, rng))
    return {name: data[:_HEADER] + packed("<II", _COMPRESSED, len(body)) + body + rest}


def _mutated_element(element: bytes, rng: Rng) -> bytes:
    """Change the class, the flags, a dimension, a tag, or the numbers of a variable."""
    what = rng.random()
    if what < 0.15:  # class of the numbers
        changed = element[:16] + bytes([int(rng.integers(1, 19))]) + element[17:]
    elif what < 0.2:  # flags, and the most entries of a sparse one
        changed = element[:17] + mutated(element[17:24], rng) + element[24:]
    elif what < 0.35:  # dimensions
        at = int(pick(rng, (32, 36)))
        value = pick(rng, (*INTEGERS, int.from_bytes(element[at : at + 4], "little") + 1))
        changed = element[:at] + packed("<I", value) + element[at + 4 :]
    elif what < 0.45:  # tags
        places = range(0, max(8, len(element) - 8), 8)
        at = int(rng.choice(places[: 12 if rng.random() < 0.8 else None]))
        changed = element[:at] + mutated(element[at : at + 8], rng) + element[at + 8 :]
    else:
        changed = mutated(element, rng, 56)
    if len(changed) != len(element) and rng.random() < 0.7:  # the size in the tag is repaired
        changed = changed[:4] + packed("<I", len(changed) - 8) + changed[8:]
    return changed


def _header(path: Path) -> Any:
    return scipy.io.whosmat(path)


def _read(path: Path, V: Any) -> Any:
    content = scipy.io.loadmat(path)
    matrices = [
        value
        for name, value in content.items()
        if not name.startswith("__") and getattr(value, "dtype", np.dtype("O")).kind in "fiub"
    ]
    large = [matrix for matrix in matrices if int(np.prod(matrix.shape)) != 1] or matrices
    (matrix,) = large
    if matrix.ndim == 3:
        return matrix.reshape(-1, matrix.shape[-1])
    if sp.issparse(matrix):
        matrix.check_format(full_check=True)
    return matrix


FORMATS = (Format("mat5", _make, _mutate, _header, _read).kind(8000),)

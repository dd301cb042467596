"""Scenes of ENVI: a header of text and the numbers beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from ..mutations import INTEGERS, Rng, mutated
from .formats import Document, Format, RefusedError, pick

_CODES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "u2": 12, "u4": 13, "i8": 14, "u8": 15}
_ORDERS = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}  # rows, columns, bands as stored


def _make(rng: Rng) -> tuple[str, Document]:
    scene = rng.integers(1, 100, rng.integers(2, 7, 3))
    order, code, end = pick(rng, tuple(_ORDERS)), pick(rng, tuple(_CODES)), int(rng.integers(2))
    numbers = np.ascontiguousarray(scene.transpose(_ORDERS[order])).astype("<>"[end] + code)
    offset = int(pick(rng, (0, 0, 7)))
    rows, columns, bands = scene.shape
    fields = {"samples": columns, "lines": rows, "bands": bands, "header offset": offset}
    fields |= {"data type": _CODES[code], "interleave": order, "byte order": end}
    if rng.random() < 0.7:
        fields["wavelength"] = "{" + ", ".join(str(400 + 10 * n) for n in range(bands)) + "}"
    if rng.random() < 0.2:
        fields["data ignore value"] = -9999
    header = "\n".join(["ENVI", *(f"{name} = {value}" for name, value in fields.items())])
    return "x.hdr", {"x.hdr": header.encode(), "x.img": bytes(offset) + numbers.tobytes()}


def _mutate(document: Document, rng: Rng) -> Document:
    what = rng.random()
    if what < 0.35:
        return document | {"x.img": mutated(document["x.img"], rng)}
    if what < 0.5:
        return document | {"x.hdr": mutated(document["x.hdr"], rng)}
    lines = document["x.hdr"].split(b"\n")
    place = int(rng.integers(1, max(len(lines), 2)))
    if place >= len(lines):
        return document | {"x.hdr": mutated(document["x.hdr"], rng)}
    name, _, value = lines[place].partition(b"=")
    if what < 0.8:  # another number, often near by
        digits = int(value) if value.strip().isdigit() else 0
        value = str(pick(rng, (*INTEGERS, digits + 1, digits + 1, max(digits - 1, 0)))).encode()
        lines[place] = name + b"= " + value
    elif what < 0.88:
        lines[place] = (
            name + b"= " + pick(rng, (b"bip", b"bil", b"BSQ", b"{", b"{}", b"-1", b"1e3"))
        )
    elif what < 0.94:
        lines.insert(place, lines[int(rng.integers(len(lines)))])
    else:
        del lines[place]
    return document | {"x.hdr": b"\n".join(lines)}


def _header(path: Path) -> dict[str, str]:
    text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    if not text.startswith("ENVI"):
        raise RefusedError("no header")
    pattern = r"^[ \t]*([^=\n;{}]+?)[ \t]*=[ \t]*(\{[^}]*\}|[^\n]*)"
    fields = {key.lower(): value.strip() for key, value in re.findall(pattern, text, re.MULTILINE)}
    for name in ("samples", "lines", "bands", "data type"):
        int(fields[name])
    return fields


def _read(path: Path, V: Any) -> Any:
    """The numbers as NumPy reads them from the place and in the order that the header says."""
    fields = _header(path)
    sides = [int(fields[name]) for name in ("lines", "samples", "bands")]
    axes = _ORDERS[fields.get("interleave", "bsq").lower()]
    kind = {code: name for name, code in _CODES.items()}[int(fields["data type"])]
    dtype = np.dtype("<>"[int(fields.get("byte order", 0))] + kind)
    stored = np.fromfile(
        path.with_suffix(".img"),
        dtype,
        sides[0] * sides[1] * sides[2],
        offset=int(fields.get("header offset", 0)),
    ).reshape([sides[axis] for axis in axes])
    return stored.transpose(np.argsort(axes)).reshape(-1, sides[2])


FORMATS = (Format("envi", _make, _mutate, _header, _read).kind(4000),)

"""Changes to bytes, text and JSON that suit any format."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator

INTEGERS = (
    *(0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536),
    *(10**6, 8 * 10**6, 16777216, 10**8, 370_000_000, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(10**12, 2**53, 2**63 - 1, 2**63, 2**64 - 1),
)
FLOATS = (
    *(float("nan"), float("inf"), float("-inf"), -0.0, -1.0, -1e-9, 1e308, -1e308, 5e-324),
    *(1e-160, 1e155, 1e200, 0.5, 300.0, 2.0**63, 1e-300),
)


def mutated(data: bytes, rng: Rng, start: int = 0, stop: int | None = None) -> bytes:
    """One random change between two places."""
    stop = len(data) if stop is None else min(stop, len(data))
    start = min(start, stop)
    change = BYTES[int(rng.choice(len(BYTES), p=_WEIGHTS))]
    return data[:start] + change(data[start:stop], rng) + data[stop:]


def _place(data: bytes, rng: Rng, width: int = 1) -> int:
    return int(rng.integers(max(1, len(data) - width + 1)))


def flip_bits(data: bytes, rng: Rng) -> bytes:
    """Flip one to four bits."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5)) if changed else 0):
        changed[_place(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def set_bytes(data: bytes, rng: Rng) -> bytes:
    """Overwrite a run of bytes."""
    at, length = _place(data, rng), int(rng.choice([1, 2, 4, 8, 16, 64]))
    run = bytes([int(rng.integers(256))]) * length if rng.random() < 0.5 else rng.bytes(length)
    return data[:at] + run[: len(data) - at] + data[at + length :]


def truncate(data: bytes, rng: Rng) -> bytes:
    """Cut the end off."""
    return data[: _place(data, rng)]


def insert(data: bytes, rng: Rng) -> bytes:
    """Insert random bytes."""
    at = _place(data, rng)
    return data[:at] + rng.bytes(int(rng.choice([1, 2, 8, 100]))) + data[at:]


def remove(data: bytes, rng: Rng) -> bytes:
    """Remove a few bytes."""
    at = _place(data, rng)
    return data[:at] + data[at + int(rng.choice([1, 2, 8, 32])) :]


def splice(data: bytes, rng: Rng) -> bytes:
    """Copy one part over, or into, another."""
    source, at, length = _place(data, rng), _place(data, rng), int(rng.integers(1, 65))
    part = data[source : source + length]
    return data[:at] + part + data[at + (len(part) if rng.random() < 0.7 else 0) :]


def set_integer(data: bytes, rng: Rng) -> bytes:
    """Set an integer of 1 to 8 bytes, of either order, to a value that is often misjudged."""
    width = int(rng.choice([1, 2, 4, 4, 8]))
    if len(data) < width:
        return data
    at = _place(data, rng, width)
    at -= at % width if rng.random() < 0.7 else 0
    value = INTEGERS[int(rng.integers(len(INTEGERS)))]
    if rng.random() < 0.3:
        value = int.from_bytes(data[at : at + width], "little") + int(rng.choice([-1, 1, 2, 8]))
    order = "little" if rng.random() < 0.8 else "big"
    return data[:at] + (value % 256**width).to_bytes(width, order) + data[at + width :]


def set_float(data: bytes, rng: Rng) -> bytes:
    """Set a floating-point number to a value that does not belong there."""
    width = 8 if rng.random() < 0.7 else 4
    if len(data) < width:
        return data
    at = _place(data, rng, width) // width * width
    value = FLOATS[int(rng.integers(len(FLOATS)))]
    with np.errstate(all="ignore"):
        packed = np.array(value, f"<f{width}").tobytes()
    return data[:at] + packed + data[at + width :]


BYTES: tuple[Callable[[bytes, Rng], bytes], ...] = (
    *(flip_bits, set_bytes, truncate, insert, remove, splice, set_integer, set_float),
)
_WEIGHTS = np.array([4, 2, 1, 1, 1, 1, 4, 2], dtype=float) / 16


def packed(form: str, *values: int) -> bytes:
    """Pack integers, cut to the width of their field."""
    sizes = [struct.calcsize(c) for c in form.lstrip("<>")]
    kept = [v % 256**size for v, size in zip(values, sizes, strict=True)]
    return struct.pack(form, *kept)


# --- JSON ---------------------------------------------------------------------------------------

JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "zebra", "\x00", -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1.5, 1e308),
    *("NaN", "Infinity", "AAAA", [], {}, [[]], [0], [-1], [1] * 40, {"name": "zebra"}),
    *("<f8", ">f4", "|O", "|S9", "float64", "int8", "bool", "complex128", "<M8[ns]", "/", ".."),
)


def mutated_json(data: bytes, rng: Rng) -> bytes:
    """Replace, remove, add or copy one value of a JSON document, which stays valid JSON."""
    try:
        document = json.loads(data)
    except ValueError:
        return mutated(data, rng)
    places = list(_json_places(document))
    if not places:
        return mutated(data, rng)
    holder, key = places[int(rng.integers(len(places)))]
    what = rng.random()
    if what < 0.6:
        value = JSON_VALUES[int(rng.integers(len(JSON_VALUES)))]
        if isinstance(holder[key], int) and rng.random() < 0.6:
            value = INTEGERS[int(rng.integers(len(INTEGERS)))]
        holder[key] = value
    elif what < 0.75:
        del holder[key]
    elif what < 0.9:
        other, its_key = places[int(rng.integers(len(places)))]
        holder[key] = json.loads(json.dumps(other[its_key]))
    elif isinstance(holder, dict):
        holder["zebra"] = holder[key]
    else:
        holder.append(holder[key])
    return json.dumps(document).encode()


def _json_places(value: Any) -> Any:
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield value, key
            yield from _json_places(value[key])

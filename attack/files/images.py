"""Folders of images: PNG with its checksums repaired, and JPEG, GIF, BMP, PGM, TIFF."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..mutations import INTEGERS, Rng, mutated, packed
from .formats import Document, Format, RefusedError, pick

_KINDS = {
    "png": ("L", "L", "RGB", "RGBA", "P", "1", "I;16", "LA"),
    "jpg": ("L", "RGB", "CMYK"),
    "gif": ("L", "P"),
    "bmp": ("L", "RGB", "1", "P"),
    "pgm": ("L", "I;16"),
    "tif": ("L", "RGB", "I;16", "F", "1"),
}
_KEPT = {"I;16": "u2", "I;16L": "u2", "I;16B": "u2", "I": "i4", "F": "f4"}


def _make(rng: Rng) -> tuple[str, Document]:
    ending = pick(rng, list(_KINDS))
    mode = pick(rng, _KINDS[ending])
    rows, columns = int(rng.integers(1, 12)), int(rng.integers(1, 12))
    document: Document = {}
    for number in range(int(rng.integers(2, 5))):
        grey = rng.integers(0, 256, (rows, columns))
        if mode == "I;16":
            image = Image.fromarray((grey * 257).astype("u2"))
        elif mode == "F":
            image = Image.fromarray((grey / 7).astype("f4"))
        else:
            image = Image.fromarray(grey.astype("u1")).convert(mode)
        stream = io.BytesIO()
        kind = {"jpg": "jpeg", "tif": "tiff", "pgm": "ppm"}.get(ending, ending)
        options: dict[str, Any] = {}
        if kind == "tiff":
            packings = ("raw", "tiff_lzw", "packbits", "tiff_adobe_deflate")
            options["compression"] = pick(rng, packings if mode in ("L", "RGB") else packings[:1])
        if kind == "jpeg":
            options["progressive"] = bool(rng.random() < 0.4)
        image.save(stream, kind, **options)
        document[f"x/{number}.{ending}"] = stream.getvalue()
    return "x", document


def _mutate(document: Document, rng: Rng) -> Document:
    name = pick(rng, sorted(document))
    data = document[name]
    if rng.random() < 0.03:
        other = pick(rng, sorted(document))
        document[name] = document[other][: int(rng.integers(len(document[other]) + 1))]
    elif name.endswith(".png") and rng.random() < 0.85:
        document[name] = _mutated_png(data, rng)
    elif rng.random() < 0.25:
        document[name] = mutated(data, rng, 0, 60)
    else:
        document[name] = mutated(data, rng, _first_pixels(name))
    return document


def _first_pixels(name: str) -> int:
    """About where the pixels of a small image begin."""
    return {"jpg": 160, "gif": 20, "bmp": 54, "pgm": 9, "tif": 8, "png": 33}[name.split(".")[-1]]


def _mutated_png(data: bytes, rng: Rng) -> bytes:
    """Change a chunk, its length or its place; the checksums are right again afterwards."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks:
        return mutated(data, rng)
    place, what = int(rng.integers(len(chunks))), rng.random()
    if what < 0.6:  # mostly the pixels
        place = next((n for n, chunk in enumerate(chunks) if chunk[0] == b"IDAT"), place)
    kind, content = chunks[place]
    if kind == b"IDAT" and what < 0.45:
        try:
            content = zlib.compress(mutated(zlib.decompress(content), rng))
        except zlib.error:
            content = mutated(content, rng)
    elif kind == b"IHDR" and what < 0.8:
        field = int(pick(rng, (0, 4, 8, 9, 10, 11, 12)))
        width = 4 if field < 8 else 1
        value = packed(">I", pick(rng, INTEGERS))[-width:]
        content = content[:field] + value + content[field + width :]
    elif what < 0.85:
        content = mutated(content, rng)
    elif what < 0.9:
        kind = pick(rng, (b"tRNS", b"gAMA", b"zTXt", b"iCCP", b"PLTE", b"acTL", b"zZzz"))
    elif what < 0.95:
        chunks.insert(place, chunks[int(rng.integers(len(chunks)))])
    chunks[place] = kind, content
    if what > 0.97:
        del chunks[place]
    parts = [data[:8]]
    for kind, content in chunks:
        checksum = zlib.crc32(kind + content)
        parts += [struct.pack(">I", len(content)), kind, content, struct.pack(">I", checksum)]
    return b"".join(parts)


def _files(path: Path) -> list[Path]:
    return sorted(path.iterdir())


def _header(path: Path) -> Any:
    sizes = set()
    for file in _files(path):
        with Image.open(file) as image:
            sizes.add((image.size, image.mode))
    return sizes


def _read(path: Path, V: Any) -> Any:
    """Decoded by Pillow, the only decoder there is for all of them; turned into grey here."""
    rows = []
    for file in _files(path):
        with Image.open(file) as image:
            image.load()
            rows.append(_grey(image).reshape(-1))
    return np.stack(rows)


def _grey(image: Any) -> Any:
    if image.mode in _KEPT:
        return np.asarray(image).astype(_KEPT[image.mode])
    if image.mode == "1":
        return np.asarray(image).astype("u1") * 255
    if image.mode in ("L", "LA"):
        pixels = np.asarray(image)
        return pixels if image.mode == "L" else pixels[..., 0]
    if image.mode in ("RGB", "RGBA", "P"):
        colours = np.asarray(image.convert("RGBA") if image.mode == "P" else image)
        red, green, blue = (colours[..., n].astype(np.int64) for n in range(3))
        return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16
    if image.mode == "CMYK":
        return np.asarray(image.convert("L"))
    raise RefusedError(f"mode {image.mode}")


FORMATS = (Format("images", _make, _mutate, _header, _read).kind(10000),)

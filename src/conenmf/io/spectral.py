"""ENVI files of hyperspectral scenes: a text header, and a file of numbers beside it.

The library `spectral` reads the header and maps the numbers into memory. It does not notice a
header that claims more than the file contains, and does not apply the data ignore value or the
scale factor to mapped numbers; this module and `ArraySource` do. The pixels are the samples, row by
row; the bands are the features, named by their wavelengths. In MATLAB files the wavelengths are a
vector beside the cube.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileFormatError, Message
from ..names import Names
from ..scale.disk import Stamp
from .limits import listed, require_package
from .source import ArraySource, NamedMatrix, Reading

_FIXED = "the pixels of a scene are the samples, and the header says where they are"


def band_names(sides: tuple[int, ...], vectors: Iterable[Any]) -> Names:
    """Name bands by the first vector beside a cube or a matrix that may be its wavelengths.

    Such a vector is increasing and has a number for each band: along the last axis of a cube, and
    along the columns, or otherwise the rows, of a matrix.
    """
    for vector in vectors:
        numbers = np.asarray(vector, float).ravel()
        size = numbers.size
        if size < 2 or not (np.diff(numbers) > 0).all():
            continue
        texts = [f"{number:g}" for number in numbers]
        if size == sides[-1]:
            return Names.of(None, texts)
        if size == sides[0] and len(sides) == 2:
            return Names.of(texts)
    return Names()


def open_envi(path: Path, reading: Reading) -> NamedMatrix:
    """Open a scene by its header or by its file of numbers."""
    envi = require_package("spectral.io.envi", path)
    header = path
    data = None
    if path.suffix.lower() != ".hdr":
        header = path.with_suffix(".hdr")
        data = str(path)
        for place in (Path(f"{path}.hdr"), path.with_suffix(".HDR")):
            if not header.is_file() and place.is_file():
                header = place
    if not header.is_file():
        raise FileFormatError(f"{path} needs its header, {header.name}, beside it: copy both")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about names that are not in lower case
        scene = envi.open(str(header), data)
    fields = scene.metadata
    lines, samples, bands = scene.shape
    claim = f"{lines} lines x {samples} samples x {bands} bands"
    size = math.prod(scene.shape) * scene.sample_size
    stored = os.path.getsize(scene.filename) - scene.offset
    if not 0 < size <= stored:
        raise FileFormatError(
            f"{scene.filename} is truncated or empty: {header.name} claims {claim}, which take "
            f"{size} bytes after the first {scene.offset}: copy or download it again"
        )
    cube = np.asarray(scene.open_memmap(interleave="bip"))
    missing = fields.get("data ignore value")
    if missing is not None:
        missing = float(missing)
    stamp = Stamp([header, scene.filename])
    source = ArraySource(
        cube, scene.filename, header, stamp, missing=missing, scale=scene.scale_factor
    )
    text = f"a scene of {claim} ({fields['interleave'].lower()}): each pixel is a sample"
    names = fields.get("wavelength") or fields.get("band names")
    marks = zip(names or range(bands), fields.get("bbl", ()), strict=False)
    bad = [name for name, mark in marks if float(mark) == 0]
    if bad:
        text += f"; its header marks {len(bad)} bands as bad: {listed(bad)}"
    own = Names.of(None, names, pixels_shape=(lines, samples))
    return NamedMatrix(source, own, (Message(text),), _FIXED)

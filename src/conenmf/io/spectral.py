"""ENVI's files of hyperspectral scenes, a header in text and the numbers beside it.

The library `spectral` reads the header, and NumPy maps the numbers into memory. `spectral` does not
apply the data ignore value, and believes a header that claims more than the file holds: both are
done here, and so is the scale factor, in one place for every way to read the scene. The pixels are
the samples, row by row; the bands are the features, which are called by their wavelengths.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..data.disk import Stamp
from ..data.validate import check_kind
from ..errors import DataError, FileFormatError
from ..names import Names
from .limits import check_fits, listed, named_damage, require_package
from .source import ArraySource, NamedMatrix, Remark

_DATA_ENDINGS = ("", ".img", ".dat", ".raw", ".bsq", ".bil", ".bip")  # beside a header
# The axes of rows, columns and bands among those that are stored.
_AXES = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}
_FIXED = "the pixels of a scene are the samples, and the header says where they are"


def open_envi(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a scene by its header or by its file of numbers."""
    envi = require_package("spectral.io.envi", path)
    header, data = _both(path)
    with named_damage(header), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are not in lower case
        fields = {"byte order": "0", **envi.read_envi_header(str(header))}
        scene = envi.gen_params(fields)
        order = fields.get("interleave", "bsq").lower()
        axes, dtype = _AXES[order], np.dtype(scene.dtype)
        lines, samples, bands = sides = scene.nrows, scene.ncols, scene.nbands
        check_kind(dtype, (1, 1))
        said = f"{lines} lines x {samples} samples x {bands} bands"
        if min(sides) < 1:
            raise DataError(f"{header} claims {said}: it needs some of each")
        claimed = int(np.prod(sides, dtype=object)) * dtype.itemsize
        if data.stat().st_size < scene.offset + claimed:
            raise FileFormatError(
                f"{data} is truncated: {header.name} claims {said}, which take {claimed} bytes "
                f"after the first {scene.offset}; it holds {data.stat().st_size}: copy or download "
                "it again"
            )
        ignored = fields.get("data ignore value")
        reason = "a row of pixels has to be read as a whole"
        check_fits(data, samples * bands * dtype.itemsize, budget, reason)
        shape = tuple(sides[axes.index(axis)] for axis in range(3))
        source = ArraySource(
            np.asarray(np.memmap(data, dtype, "r", scene.offset, shape)),
            str(data),
            data,
            Stamp([header, data]),
            axes=axes,
            missing=None if ignored is None else float(ignored),
            scale=float(fields.get("reflectance scale factor") or 1),
        )
        names = _list(fields, "wavelength", bands) or _list(fields, "band names", bands)
        remark = f"a scene of {said} ({order}): each pixel is a sample"
        marks, titles = _list(fields, "bbl", bands) or (), names or map(str, range(bands))
        bad = [title for title, mark in zip(titles, marks, strict=False) if float(mark) == 0]
        if bad:
            remark += f"; its header marks {len(bad)} bands as bad: {listed(bad)}"
    return NamedMatrix(
        source,
        Names.of(feature_names=names, pixels_shape=(lines, samples)),
        remarks=(Remark(remark),),
        fixed=_FIXED,
    )


def _both(path: Path) -> tuple[Path, Path]:
    """The header and the file of numbers, of which one is given."""
    if path.suffix.lower() != ".hdr":
        for header in (path.with_suffix(".hdr"), Path(f"{path}.hdr"), path.with_suffix(".HDR")):
            if header.is_file():
                return header, path
        raise FileFormatError(f"{path} needs its header, {path.stem}.hdr, beside it: copy both")
    for ending in (*_DATA_ENDINGS, *map(str.upper, _DATA_ENDINGS)):
        data = path.with_suffix(ending)
        if data.is_file():
            return path, data
    raise FileFormatError(
        f"{path} is the header of numbers that are not beside it: copy {path.stem} with one of the "
        f"endings {', '.join(_DATA_ENDINGS[1:])}, or none, there too"
    )


def _list(fields: dict[str, Any], name: str, bands: int) -> list[str] | None:
    """A list with one item for each band."""
    items: list[str] | None = fields.get(name) or None
    if items is not None and len(items) != bands:
        raise FileFormatError(
            f"'{name}' has {len(items)} items for {bands} bands: give one for each"
        )
    return items

"""Zarr: a folder of small files, read by the library of that name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..data.disk import Stamp
from ..errors import FileFormatError
from .hdf5 import Store, is_array, open_member
from .limits import named_damage, require_package
from .source import NamedMatrix


def open_zarr(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of a Zarr store in a folder, or X of AnnData."""
    zarr = require_package("zarr", path)
    with named_damage(path):
        return open_member(_ZarrStore(zarr.open(path.absolute(), mode="r"), path, budget), dataset)


class _ZarrStore(Store):
    def find(self, name: str, start: Any = None) -> Any:
        member = super().find(name, start)
        below = [] if is_array(member) else [one for _, one in member.members(max_depth=None)]
        for array in filter(is_array, [member, *below]):
            settings = {**array.metadata.to_dict(), "attributes": None}
            if "pickle" in json.dumps(settings, default=str):
                raise FileFormatError(
                    f"{self.path}:{name} is stored as pickles, which are not read"
                )
        return member

    def _written(self, array: Any, place: str) -> tuple[int, int, int]:
        return array.nchunks_initialized, array.nchunks, array.nbytes_stored()

    def stamp(self, member: Any) -> Stamp:
        return Stamp(
            os.path.join(place, file)
            for place, _, files in os.walk(self.path.absolute() / member.path)
            for file in files
        )

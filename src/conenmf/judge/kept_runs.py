"""Runs that are kept in a folder, so that a killed command continues.

Each that has ended is a file of its own, which appears complete; those that have not are saved from
time to time as a checkpoint each (`solve.checkpoint`). The folder says with what settings and on
what data they were run; others are refused. So is a run that was renamed, or comes from another
folder: each has its number, and a digest of the settings.

Since each run has the bits that it would have alone, runs that are read and runs that are computed
give the same as if all were computed. So there may be more of them later: how many there are is no
setting.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import writing, written_whole
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.saving import reading, write_arrays
from ..errors import CheckpointError, FileFormatError
from ..solve.checkpoint import (
    Checkpoint,
    CheckpointedRun,
    fingerprint,
    held_folder,
    refuse_others,
    state_of,
)

__all__ = ["KeptRuns"]

_FORMAT = "conenmf-run-2"
_SETTINGS_FILE = "settings.json"
_MAX_SETTINGS_BYTES = 1 << 16


class KeptRuns:
    """The runs in a folder, which one process uses at a time.

    Parameters
    ----------
    checkpoint : Checkpoint
    shape : (F, K)
        Of the components of a run.
    identity : str
        The digest of the settings and the data.
    """

    def __init__(self, checkpoint: Checkpoint, shape: tuple[int, int], identity: str) -> None:
        self._folder, self._every = Path(checkpoint.folder), checkpoint.every
        self._shape, self._identity = shape, identity

    @classmethod
    @contextmanager
    def open(
        cls,
        checkpoint: Checkpoint,
        V: DataMatrix,
        K: int,
        settings: dict[str, Any],
        rng: np.random.Generator,
        data: str,
    ) -> Iterator[KeptRuns]:
        """Hold a folder, which is made if it does not exist; refuse one of other runs.

        `rng` is the generator of the first run, `data` the digest of V.
        """
        place = Path(checkpoint.folder)
        with held_folder(place):
            now: dict[str, Any] = {
                "format": _FORMAT,
                "shape": list(V.shape),
                "dtype": str(V.dtype),
                "K": K,
                **settings,
                "random state": fingerprint(state_of(rng)),
                "data": data,
            }
            file = place / _SETTINGS_FILE
            if file.exists():
                refuse_others(place, _read_settings(file), now)
            elif any(place.glob("run-*")):
                raise CheckpointError(
                    f"{place} has runs but no {_SETTINGS_FILE}, which says how they were made, and "
                    "from what data: use another folder, or delete this one"
                )
            else:
                with written_whole(file) as stream:
                    stream.write(json.dumps(now, indent=2).encode())
            identity = fingerprint(json.dumps(now, sort_keys=True))
            yield cls(checkpoint, (V.shape[0], K), identity)

    def load(self, number: int) -> tuple[Array, float] | None:
        """Return W (F, K) and the relative error of a run, or None if it has not ended."""
        file = self._file(number)
        if not file.exists():
            return None
        try:
            with reading(file, _FORMAT, "a run") as saved:
                W, error = saved.factor("W"), float(saved.facts["relative_error"])
                found = saved.facts["run"], saved.facts["identity"]
        except FileFormatError as problem:
            raise CheckpointError(f"{problem}; delete it, and it is computed again") from problem
        if W.shape != self._shape or not error >= 0:
            raise CheckpointError(
                f"{file} has components of shape {W.shape}, expected {self._shape}, and an error "
                f"of {error}: delete it, and it is computed again"
            )
        if found != (number, self._identity):
            own = "other data or settings" if found[0] == number else f"run {found[0]}"
            raise CheckpointError(
                f"{file} belongs to {own}, not to this place: delete it, and it is computed again"
            )
        return W, error

    def keep(self, number: int, W: Array, relative_error: float) -> None:
        """Write a run that has ended, and remove its checkpoint."""
        facts: dict[str, Any] = {"format": _FORMAT, "run": number, "identity": self._identity}
        facts["relative_error"] = relative_error
        write_arrays(self._file(number), {"W": W}, facts)
        shutil.rmtree(self._file(number).with_suffix(""), ignore_errors=True)

    def unfinished(self, number: int, V: DataMatrix) -> CheckpointedRun:
        """Return the checkpoint of a run that has not ended, on its own data V."""
        folder = self._file(number).with_suffix("")
        with writing(folder):
            folder.mkdir(exist_ok=True)
        here = Checkpoint(folder, self._every)
        return CheckpointedRun(here, V, {"run": number}, None, data=self._identity)

    def _file(self, number: int) -> Path:
        return self._folder / f"run-{number:04d}.npz"


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            settings = dict(json.loads(stream.read(_MAX_SETTINGS_BYTES)))
    except (OSError, ValueError, TypeError) as problem:
        raise CheckpointError(
            f"{file} does not say which runs these are: {problem}; delete its folder to run from "
            "the beginning, or name another"
        ) from problem
    return settings

"""Checkpoints: a run that was killed resumes from its last save and ends with the same bits.

A checkpoint is a folder. Each save writes a new folder inside it under a temporary name and moves
it into place when it is complete; only then is the one before it removed. On a cluster the workers
write their own partitions of H, so the folder must be one that all of them see. The sums of a pass
are saved under the names that their loss gives them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import number, path
from ..data.blocks import Array
from ..data.files.atomic import folder_written_whole, written_whole
from ..data.matrix import DataMatrix
from ..errors import CheckpointError, Message, Option
from .state import Momentum, Saved, State
from .stopping import Log

__all__ = ["Checkpoint", "CheckpointedRun", "fingerprint"]

_FORMAT = "conenmf-checkpoint-3"
_SUM_PREFIX = "sum "  # before the name of a sum of the loss
_LOG_FIELDS = ("relative_error", "elapsed", "passes")
_MOMENTUM_FIELDS = ("beta", "ceiling", "rest", "leapt")
_UNFINISHED = re.compile(r"\.\d{8}\.[0-9a-f]{16}")


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is saved.

    Attributes
    ----------
    folder : path
        Made if it does not exist. A run that finds a checkpoint here resumes from it; delete
        the folder to run from the beginning.
    every : float
        Seconds between saves; 0 saves after every iteration.
    """

    folder: Path | str
    every: float = 60.0

    def __post_init__(self) -> None:
        path("folder", self.folder)
        number("every", self.every, at_least=0, or_infinite=True, what="seconds")


class CheckpointedRun:
    """One run that is saved at regular intervals.

    Parameters
    ----------
    checkpoint : Checkpoint
    V : DataMatrix
    settings : dict
        What the result depends on; a checkpoint with other settings is refused.
    rng : numpy.random.Generator, optional
        Its state is saved, and restored when the run is resumed.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        V: DataMatrix,
        settings: dict[str, Any],
        rng: np.random.Generator | None,
    ) -> None:
        self._folder = Path(checkpoint.folder)
        self._every = checkpoint.every
        self._V = V
        self._settings = {
            "shape": list(V.shape),
            "dtype": str(V.dtype),
            "norm": V.norm,
            "order of samples": float(V.map(_weigh_by_place, V.norms_squared, N=V.shape[1])[0]),
            **settings,
            "random state": None if rng is None else fingerprint(_state_of(rng)),
        }
        self._rng = rng
        self._last = time.perf_counter()
        self.facts: dict[str, Any] = {}
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as problem:
            raise CheckpointError(
                f"{self._folder} cannot be made a folder for checkpoints: {problem}"
            ) from problem

    def load(self, max_iter: int) -> Saved | None:
        """Return the newest state, or None if there is none; restores the generator.

        A state that is beyond `max_iter` iterations is refused.
        """
        for entry in self._folder.iterdir():
            if _UNFINISHED.fullmatch(entry.name):  # left by a run that was killed while it saved
                shutil.rmtree(entry, ignore_errors=True)
        folders = sorted(entry for entry in self._folder.iterdir() if entry.name.isdigit())
        if not folders:
            return None
        newest = folders[-1]
        try:
            saved = self._read(newest, max_iter)
        except CheckpointError:
            raise
        except Exception as problem:  # a damaged file may raise any of them
            raise CheckpointError(
                f"{newest} is not a checkpoint of conenmf, or is damaged: {problem}; "
                "delete it to run from the beginning"
            ) from problem
        return saved

    def _read(self, folder: Path, max_iter: int) -> Saved:
        with (
            open(folder / "state.npz", "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            header = json.loads(str(arrays["header"]))
            if header["format"] != _FORMAT:
                raise CheckpointError(
                    f"{folder} has format {header['format']!r}, this version reads {_FORMAT!r}: "
                    "resume it with the version that wrote it, or delete it"
                )
            sums = {
                name.removeprefix(_SUM_PREFIX): arrays[name]
                for name in arrays.files
                if name.startswith(_SUM_PREFIX)
            }
            log = Log(**{name: arrays[name].tolist() for name in _LOG_FIELDS})
            W, values = arrays["W"], arrays["values"].tolist()
            W_before = arrays["W before"] if header["momentum"] is not None else None
        self._compare(folder, header["settings"])
        if len(log.elapsed) > max_iter:
            raise CheckpointError(
                Message(
                    f"{folder} is at iteration {len(log.elapsed)}, beyond ",
                    Option("max_iter", max_iter),
                    ": raise it, or delete the folder to run from the beginning",
                )
            )
        state = State(W, self._V.load_aligned(folder, "H"), sums, values)
        if W_before is not None:
            state.momentum = Momentum(
                W_before, self._V.load_aligned(folder, "before"), **header["momentum"]
            )
        self.facts = header["facts"]
        if self._rng is not None and header["rng"] is not None:
            self._rng.bit_generator.state = _from_json(header["rng"])
        return Saved(state, log)

    def save_if_due(self, run: Saved, ended: bool) -> None:
        """Save if the last save is long enough ago, or the user has ended the run."""
        if ended or time.perf_counter() - self._last >= self._every:
            self.save(run)
            self._last = time.perf_counter()

    def save(self, run: Saved) -> None:
        """Save a run, unless this iteration is saved already."""
        state, momentum = run.state, run.state.momentum
        target = self._folder / f"{len(run.log.elapsed):08d}"
        if not target.exists():
            with folder_written_whole(target) as folder:
                self._write(run, folder)
        if self._V.is_remote:  # lost chunks are then read from their files, not computed again
            state.Ht = self._V.load_aligned(target, "H")
            if momentum is not None:
                momentum.Ht = self._V.load_aligned(target, "before")
        for entry in self._folder.iterdir():
            if entry.name.isdigit() and entry != target:
                shutil.rmtree(entry, ignore_errors=True)

    def _write(self, run: Saved, folder: Path) -> None:
        state, momentum = run.state, run.state.momentum
        header = {
            "format": _FORMAT,
            "momentum": momentum and {name: getattr(momentum, name) for name in _MOMENTUM_FIELDS},
            "settings": self._settings,
            "facts": self.facts,
            "rng": None if self._rng is None else _to_json(self._rng.bit_generator.state),
        }
        arrays: dict[str, Any] = {"W": state.W, "values": np.array(state.values)}
        arrays |= {name: np.array(getattr(run.log, name)) for name in _LOG_FIELDS}
        arrays |= {_SUM_PREFIX + name: np.asarray(value) for name, value in state.sums.items()}
        self._V.save_aligned(state.Ht, folder, "H")
        if momentum is not None:
            arrays["W before"] = momentum.W
            self._V.save_aligned(momentum.Ht, folder, "before")
        with written_whole(folder / "state.npz") as stream:
            np.savez(stream, header=np.array(json.dumps(header)), **arrays)

    def _compare(self, folder: Path, settings: dict[str, Any]) -> None:
        for key, value in self._settings.items():
            same = settings.get(key) == value
            if isinstance(value, float):  # the last bits depend on how V is cut into blocks
                same = bool(np.isclose(float(settings[key]), value, rtol=1e-12, atol=0))
            if not same:
                raise CheckpointError(
                    f"{folder} belongs to another run: its {key} is {settings.get(key)!r}, now it "
                    f"is {value!r}; use another folder, or delete this one"
                )


def _weigh_by_place(index: range, squared: Array, *, N: int) -> tuple[float]:
    """A number that changes if the order of the samples changes."""
    return (float(squared @ (np.arange(index.start, index.stop) / N)),)


def fingerprint(*parts: str | npt.ArrayLike) -> str:
    """Return the SHA-256 of texts and of arrays, as float64, without their shapes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(np.ascontiguousarray(part, dtype=np.float64).data)
    return digest.hexdigest()


def _state_of(rng: np.random.Generator) -> str:
    return json.dumps(_to_json(rng.bit_generator.state))


def _to_json(state: Any) -> Any:
    """The state of a bit generator in plain values."""
    if isinstance(state, dict):
        return {key: _to_json(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"array": state.tolist(), "dtype": str(state.dtype)}
    return state.item() if isinstance(state, np.generic) else state


def _from_json(state: Any) -> Any:
    if isinstance(state, dict):
        if state.keys() == {"array", "dtype"}:
            return np.array(state["array"], dtype=state["dtype"])
        return {key: _from_json(value) for key, value in state.items()}
    return state

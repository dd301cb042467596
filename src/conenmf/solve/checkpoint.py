"""Checkpoints: a run that was killed goes on where it was, and ends with the same bits.

A checkpoint is a folder. Each save writes a new folder inside it under a temporary name and moves
it into place when it is complete; only then is the one before it removed. On a cluster the workers
write their own pieces of H, so the folder must be one that all of them see.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..errors import CheckpointError, DiskFullError, OptionError, is_disk_full
from .loop import Loop, Momentum

__all__ = ["Checkpoint", "CheckpointedRun", "fingerprint"]

_FORMAT = "conenmf-checkpoint-2"
_SUMS = ("W", "VH", "HH")
_MOMENTUM = ("beta", "ceiling", "rest", "leapt")
_UNFINISHED = re.compile(r"\.\d{8}\.[0-9a-f]{16}")


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is saved.

    Attributes
    ----------
    folder : path
        Made if it does not exist. A run that finds a checkpoint here goes on from it; delete
        the folder to begin anew.
    every : float
        Seconds between saves; 0 saves after every iteration.
    """

    folder: Path | str
    every: float = 60.0

    def __post_init__(self) -> None:
        if not (isinstance(self.every, int | float) and self.every >= 0):
            raise OptionError(f"every={self.every!r}, expected seconds of at least 0")


class CheckpointedRun:
    """One run that is saved now and then.

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

    def load(self, max_iter: int) -> Loop | None:
        """Return the newest saved state, or None if there is none; restores the generator.

        A state that is beyond `max_iter` iterations is refused.
        """
        for entry in self._folder.iterdir():
            if _UNFINISHED.fullmatch(entry.name):  # left by a run that was killed while it saved
                shutil.rmtree(entry, ignore_errors=True)
        saved = sorted(entry for entry in self._folder.iterdir() if entry.name.isdigit())
        if not saved:
            return None
        newest = saved[-1]
        try:
            with (
                open(newest / "state.npz", "rb") as file,
                np.load(file, allow_pickle=False) as stored,
            ):
                header = json.loads(str(stored["header"]))
                if header["format"] != _FORMAT:
                    raise CheckpointError(
                        f"{newest} has format {header['format']!r}, this version reads {_FORMAT!r}"
                    )
                sums = {name: stored[name] for name in _SUMS}
                history = {name: stored[name].tolist() for name in ("errors", "elapsed", "passes")}
                inner = float(stored["inner"])
                W_before = stored["W_before"]
            self._compare(newest, header["settings"])
            if len(history["errors"]) > max_iter:
                raise CheckpointError(
                    f"{newest} is at iteration {len(history['errors'])}, beyond "
                    f"max_iter={max_iter}: raise it, or delete the folder to begin anew"
                )
            Ht = self._V.load_aligned(newest, "H")
            momentum = None
            if header["momentum"] is not None:
                before = self._V.load_aligned(newest, "before")
                momentum = Momentum(W_before, before, **header["momentum"])
        except CheckpointError:
            raise
        except Exception as problem:  # whatever a damaged file leads to
            raise CheckpointError(
                f"{newest} is not a checkpoint of conenmf, or is damaged: {problem}; "
                "delete it to begin anew"
            ) from problem
        self.facts = header["facts"]
        if self._rng is not None and header["rng"] is not None:
            self._rng.bit_generator.state = _from_json(header["rng"])
        return Loop(**sums, Ht=Ht, inner=inner, **history, momentum=momentum)

    def save_if_due(self, loop: Loop, ended: bool) -> None:
        """Save if the last time is long enough ago, or the user has ended the run."""
        if ended or time.perf_counter() - self._last >= self._every:
            self.save(loop)
            self._last = time.perf_counter()

    def save(self, loop: Loop) -> None:
        """Save the state of the loop."""
        name = f"{len(loop.errors):08d}"
        unfinished = self._folder / f".{name}.{secrets.token_hex(8)}"
        momentum = loop.momentum
        moving = None if momentum is None else {key: getattr(momentum, key) for key in _MOMENTUM}
        header = {
            "format": _FORMAT,
            "momentum": moving,
            "settings": self._settings,
            "facts": self.facts,
            "rng": None if self._rng is None else _to_json(self._rng.bit_generator.state),
        }
        try:
            unfinished.mkdir()
            self._V.save_aligned(loop.Ht, unfinished, "H")
            if momentum is not None:
                self._V.save_aligned(momentum.Ht, unfinished, "before")
            with open(unfinished / "state.npz", "xb") as stream:
                np.savez(
                    stream,
                    header=np.array(json.dumps(header)),
                    inner=np.float64(loop.inner),
                    W_before=loop.W if momentum is None else momentum.W,
                    errors=np.array(loop.errors),
                    elapsed=np.array(loop.elapsed),
                    passes=np.array(loop.passes),
                    **{name: getattr(loop, name) for name in _SUMS},
                )
                stream.flush()
                os.fsync(stream.fileno())
            if not (self._folder / name).exists():
                os.rename(unfinished, self._folder / name)
        except OSError as problem:
            if is_disk_full(problem):
                raise DiskFullError(
                    f"no room for a checkpoint in {self._folder}; the one before is intact: make "
                    "room and repeat the call, which resumes from it"
                ) from problem
            raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        if self._V.is_remote:  # what is lost then comes from its file, not from all iterations
            loop.Ht = self._V.load_aligned(self._folder / name, "H")
            if momentum is not None:
                momentum.Ht = self._V.load_aligned(self._folder / name, "before")
        for entry in self._folder.iterdir():
            if entry.name.isdigit() and entry.name != name:
                shutil.rmtree(entry, ignore_errors=True)

    def _compare(self, folder: Path, settings: dict[str, Any]) -> None:
        for key, value in self._settings.items():
            same = settings.get(key) == value
            if isinstance(value, float):  # the last bits depend on how V is cut into blocks
                same = bool(np.isclose(float(settings[key]), value, rtol=1e-12, atol=0))
            if not same:
                raise CheckpointError(
                    f"{folder} belongs to another run: its {key} is {settings.get(key)!r}, now it "
                    f"is {value!r}; use another folder, or delete this one to begin anew"
                )


def _weigh_by_place(samples: range, squared: Array, *, N: int) -> tuple[float]:
    """A number that changes if samples change places."""
    return (float(squared @ (np.arange(samples.start, samples.stop) / N)),)


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

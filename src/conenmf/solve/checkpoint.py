"""Checkpoints: a run that was killed resumes from its last save and ends with the same bits.

A checkpoint is a folder, which one run uses at a time. Each save writes a new folder inside it
under a temporary name and moves it into place when all of it is on the disk; only then is the one
before it removed. On a cluster the workers write their own partitions of H, so the folder must be
one that all of them see. Every file has a checksum; that of ``state.npz`` is in it, and is of its
header and its arrays. The sums of a pass are saved under the names that their loss gives them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import number, path
from ..atomic import (
    LOCK_FILE,
    folder_written_whole,
    in_use,
    remove_temporaries,
    written_whole,
)
from ..data.blocks import Array
from ..data.digest import digest, known_digest
from ..data.matrix import Checksum, DataMatrix
from ..errors import (
    CheckpointError,
    DataChangedError,
    Message,
    Option,
    OutputError,
    is_disk_full,
)
from .run import Log, Momentum, Saved, State

__all__ = [
    "Checkpoint",
    "CheckpointedRun",
    "fingerprint",
    "held_folder",
    "refuse_others",
    "state_of",
]

_FORMAT = "conenmf-checkpoint-5"
_LOCK_FILE = f".checkpoint{LOCK_FILE}"  # the folder may be that of a result, with a lock of its own
_SUM_PREFIX = "sum "  # before the name of a sum of the loss
_LOG_FIELDS = ("relative_error", "elapsed", "passes")
_DIGESTS = {
    "known": "the mask, the weights or the missing entries are",
    "fixed": "the fixed components or their names are",
    "data": "some entries of the data, or their order, are",
    "arrays": "the factors given as init are",
    "code": "the functions given as init or solver are",
    "random state": "the generator, its seed or its state are",
}
_MOMENTUM_FIELDS = ("beta", "ceiling", "rest", "leapt")


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is saved.

    Attributes
    ----------
    folder : path
        Made if it does not exist. A run that finds a checkpoint here resumes from it; delete
        the folder to run from the beginning. One run can use it at a time.
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
    data : str, optional
        The digest of the data, and of what is known of them, if the caller has it: otherwise V is
        read for it.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        V: DataMatrix,
        settings: dict[str, Any],
        rng: np.random.Generator | None,
        data: str | None = None,
    ) -> None:
        self._folder = Path(checkpoint.folder)
        self._every = checkpoint.every
        self._V = V
        self._settings = {
            **settings,
            "known": known_digest(V) if data is None else None,
            "shape": list(V.shape),
            "dtype": str(V.dtype),
            "random state": None if rng is None else fingerprint(state_of(rng)),
            "data": digest(V) if data is None else data,
        }
        self._rng = rng
        self._last = time.perf_counter()
        self.facts: dict[str, Any] = {}
        self.initial_W: Array | None = None

    @classmethod
    @contextmanager
    def open(
        cls,
        checkpoint: Checkpoint,
        V: DataMatrix,
        settings: dict[str, Any],
        rng: np.random.Generator | None,
    ) -> Iterator[CheckpointedRun]:
        """Hold the folder of a checkpoint, which is made and tried first, for one run."""
        with held_folder(Path(checkpoint.folder)):
            yield cls(checkpoint, V, settings, rng)

    def load(self, max_iter: int) -> Saved | None:
        """Return the newest state, or None if there is none; restores the generator.

        A state that is beyond `max_iter` iterations is refused.
        """
        newest = max(self._saved(), default=None)
        if newest is None:
            return None
        try:
            saved = self._read(newest, max_iter)
        except CheckpointError:
            raise
        except Exception as problem:  # a damaged file may raise any of them
            raise CheckpointError(
                f"{newest} is not a checkpoint of conenmf, or its state.npz is damaged: {problem}; "
                "delete it to run from the beginning"
            ) from problem
        return saved

    def _saved(self) -> list[Path]:
        """The folders of checkpoints, of which there is more than one if a save was interrupted."""
        return [entry for entry in self._folder.iterdir() if entry.name.isdigit()]

    def _read(self, folder: Path, max_iter: int) -> Saved:
        with (
            open(folder / "state.npz", "rb") as file,
            np.load(file, allow_pickle=False) as archive,
        ):
            header = json.loads(str(archive["header"]))
            if header["format"] != _FORMAT:
                raise CheckpointError(
                    f"{folder} has format {header['format']!r}, this version reads {_FORMAT!r}: "
                    "resume it with the version that wrote it, or delete it"
                )
            arrays = {name: archive[name] for name in archive.files}
        if str(arrays.pop("checksum")) != _checksum(arrays):
            raise ValueError("its checksum is another")
        sums = {
            name.removeprefix(_SUM_PREFIX): array
            for name, array in arrays.items()
            if name.startswith(_SUM_PREFIX)
        }
        log = Log(**{name: arrays[name].tolist() for name in _LOG_FIELDS})
        W, values = arrays["W"], arrays["values"].tolist()
        self.initial_W = arrays.get("W of the init")
        refuse_others(folder, header["settings"], self._settings)
        if len(log.elapsed) > max_iter:
            raise CheckpointError(
                Message(
                    f"{folder} is at iteration {len(log.elapsed)}, beyond ",
                    Option("max_iter", max_iter),
                    ": raise it, or delete the folder to run from the beginning",
                )
            )
        files = {name: tuple(checksum) for name, checksum in header["files"].items()}
        state = State(W, self._V.load_aligned(folder, "H", files), sums, values)
        if header["momentum"] is not None:
            before = self._V.load_aligned(folder, "before", files)
            state.momentum = Momentum(arrays["W before"], before, **header["momentum"])
        self.facts = header["facts"]
        if self._rng is not None and header["rng"] is not None:
            self._rng.bit_generator.state = _from_json(header["rng"])
        return Saved(state, log, header["tol"])

    def save_if_due(self, run: Saved, ended: bool) -> None:
        """Save if the last save is long enough ago, or the user has ended the run."""
        if ended or time.perf_counter() - self._last >= self._every:
            self.save(run)
            self._last = time.perf_counter()

    def save(self, run: Saved) -> None:
        """Save a run, unless this iteration is saved already."""
        target = self._folder / f"{len(run.log.elapsed):08d}"
        try:
            if not target.exists():
                with folder_written_whole(target) as folder:
                    files = self._write(run, folder)
                if self._V.is_remote:  # lost chunks are then read from their files again
                    self._leave_in_files(run.state, target, files)
            for earlier in self._saved():
                if earlier != target:
                    shutil.rmtree(earlier, ignore_errors=True)
        except DataChangedError:
            raise
        except OSError as problem:
            raise self._not_saved(problem) from problem

    def _leave_in_files(self, state: State, folder: Path, files: dict[str, Checksum]) -> None:
        state.Ht = self._V.load_aligned(folder, "H", files)
        if state.momentum is not None:
            state.momentum.Ht = self._V.load_aligned(folder, "before", files)

    def _not_saved(self, problem: OSError) -> CheckpointError | OutputError:
        """The error for a save that failed: why, and what is left to resume from."""
        try:
            last = max(self._saved(), default=None)
        except OSError:
            last = None
        left = "there is no earlier one"
        if last is not None:
            left = f"the one of iteration {int(last.name)} is intact; the same call resumes from it"
        if is_disk_full(problem):
            return OutputError(
                f"not enough disk space for a checkpoint in {self._folder}: free some ({left})"
            )
        reason = problem.strerror or problem
        return CheckpointError(f"no checkpoint can be saved in {self._folder}: {reason} ({left})")

    def _write(self, run: Saved, folder: Path) -> dict[str, Checksum]:
        state, momentum = run.state, run.state.momentum
        files = self._V.save_aligned(state.Ht, folder, "H")
        arrays: dict[str, Any] = {"W": state.W, "values": np.array(state.values)}
        arrays |= {name: np.array(getattr(run.log, name)) for name in _LOG_FIELDS}
        arrays |= {_SUM_PREFIX + name: np.asarray(value) for name, value in state.sums.items()}
        if self.initial_W is not None:
            arrays["W of the init"] = self.initial_W
        if momentum is not None:
            arrays["W before"] = momentum.W
            files |= self._V.save_aligned(momentum.Ht, folder, "before")
        header = {
            "format": _FORMAT,
            "momentum": momentum and {name: getattr(momentum, name) for name in _MOMENTUM_FIELDS},
            "settings": self._settings,
            "tol": run.tol,
            "facts": self.facts,
            "rng": None if self._rng is None else _to_json(self._rng.bit_generator.state),
            "files": files,
        }
        arrays["header"] = np.array(json.dumps(header))
        with written_whole(folder / "state.npz") as stream:
            np.savez(stream, checksum=np.array(_checksum(arrays)), **arrays)
        return files


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made and tried first, for one run or several at once."""
    with ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            stack.enter_context(in_use(folder, folder / _LOCK_FILE))
        except OutputError as problem:
            raise CheckpointError(f"the checkpoint {problem}") from problem
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise CheckpointError(
                f"{folder} cannot be used as a folder for checkpoints: {reason}; name another"
            ) from problem
        remove_temporaries(folder, "0*")
        yield


def refuse_others(folder: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse a folder with other settings than those of now, naming the first that differs.

    A setting that only one of them has is a difference.
    """
    for key in {**now, **saved}:
        if key in saved and key in now and saved[key] == now[key]:
            continue
        what = f"its {key} is {saved.get(key)!r}, now it is {now.get(key)!r}"
        if key in _DIGESTS:
            what = f"{_DIGESTS[key]} not those that it was made with"
        raise CheckpointError(
            f"{folder} belongs to another run: {what}; use another folder, or delete this one"
        )


def fingerprint(*parts: str | npt.ArrayLike) -> str:
    """Return the SHA-256 of texts and of arrays, as float64, without their shapes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(np.ascontiguousarray(part, dtype=np.float64).data)
    return digest.hexdigest()


def _checksum(arrays: dict[str, Any]) -> str:
    """The SHA-256 of arrays with their names, types and shapes."""
    facts = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def state_of(rng: np.random.Generator) -> str:
    """Return the state of a generator as a text."""
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

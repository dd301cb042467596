"""Checkpoints: a run that was killed resumes from its last save and ends with the same bits.

A checkpoint is a folder, which one run uses at a time. Each save writes a new folder inside it
under a temporary name and moves it into place when all of it is on the disk; only then is the one
before it removed. On a cluster the workers write their own partitions of H, so the folder must be
one that all of them see. Every file has a checksum; ``state.npz`` holds its own.

Several runs in one folder (`KeptRuns`) each have a checkpoint, and a file once they have ended.
Each run has the bits that it would have alone, so runs that are read and runs that are computed
give the same as if all were computed, and there may be more of them later.

A checkpoint belongs to its settings and data; others are refused. Functions given as init or solver
are settings too: `described` compares their code, not only their names.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import joblib
import numpy as np

from ..arguments import number, path
from ..atomic import (
    LOCK_FILE,
    folder_written_whole,
    in_use,
    remove_temporaries,
    writing,
    written_whole,
)
from ..data.blocks import Array
from ..data.digest import digest, known_digest
from ..data.matrix import Aligned, DataMatrix
from ..data.saving import reading, write_arrays
from ..errors import (
    CheckpointError,
    DataChangedError,
    FileFormatError,
    Message,
    Option,
    OutputError,
    is_disk_full,
)

__all__ = ["Checkpoint", "CheckpointedRun", "KeptRuns", "Parts", "described", "held_folder"]

_FORMAT = "conenmf-checkpoint-6"
_RUN_FORMAT = "conenmf-run-3"
_LOCK_FILE = f".checkpoint{LOCK_FILE}"  # the folder may be that of a result, with a lock of its own
_DIGESTS = {
    "known": "the mask, the weights or the missing entries are",
    "fixed": "the fixed components or their names are",
    "data": "some entries of the data, or their order, are",
    "arrays": "the factors given as init are",
    "code": "the functions given as init or solver are",
    "random state": "the generator, its seed or its state are",
}


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


class Parts(NamedTuple):
    """The state of a run, as files keep it: arrays, aligned arrays and plain values by name."""

    arrays: dict[str, Array]
    aligned: dict[str, Aligned]
    plain: dict[str, Any]


class CheckpointedRun:
    """One run that is saved at regular intervals, in a folder that the caller holds.

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

    Attributes
    ----------
    facts : dict
        Plain values that are saved with the run.
    initial_W : array (F, K) or None
        Likewise.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        V: DataMatrix,
        settings: dict[str, Any],
        rng: np.random.Generator | None = None,
        data: str | None = None,
    ) -> None:
        self._folder = Path(checkpoint.folder)
        self._every = checkpoint.every
        self._V = V
        self._rng = rng
        self._settings = {
            **settings,
            "known": known_digest(V) if data is None else None,
            "shape": list(V.shape),
            "dtype": str(V.dtype),
            "random state": None if rng is None else joblib.hash(rng.bit_generator.state),
            "data": digest(V) if data is None else data,
        }
        self._last = time.perf_counter()
        self.facts: dict[str, Any] = {}
        self.initial_W: Array | None = None

    def load(self, max_iter: int) -> Parts | None:
        """Return the newest state, or None if there is none; restores the generator.

        A state that is beyond `max_iter` iterations is refused.
        """
        newest = max(self._saved(), default=None)
        if newest is None:
            return None
        try:
            header, arrays = _read(newest)
        except CheckpointError:
            raise
        except Exception as problem:  # a damaged file may raise any of them
            raise CheckpointError(
                f"{newest} is not a checkpoint of conenmf, or its state.npz is damaged: {problem}; "
                "delete it to run from the beginning"
            ) from problem
        _refuse_others(newest, header["settings"], self._settings)
        if int(newest.name) > max_iter:
            raise CheckpointError(
                Message(
                    f"{newest} is at iteration {int(newest.name)}, beyond ",
                    Option("max_iter", max_iter),
                    ": raise it, or delete the folder to run from the beginning",
                )
            )
        aligned = {name: self._load_aligned(newest, name, header) for name in header["aligned"]}
        self.facts = header["facts"]
        self.initial_W = arrays.pop("W of the init", None)
        if self._rng is not None and header["rng"] is not None:
            self._rng.bit_generator.state = header["rng"]
        return Parts(arrays, aligned, header["plain"])

    def _saved(self) -> list[Path]:
        """The folders of checkpoints, of which there is more than one if a save was interrupted."""
        return [entry for entry in self._folder.iterdir() if entry.name.isdigit()]

    def _load_aligned(self, folder: Path, name: str, header: dict[str, Any]) -> Aligned:
        files = {file: tuple(checksum) for file, checksum in header["files"].items()}
        return self._V.load_aligned(folder, name, files)

    def save_if_due(self, run: Any, ended: bool) -> None:
        """Save a run (`solve.run.Saved`) from time to time, and when the user has ended it."""
        if not ended and time.perf_counter() - self._last < self._every:
            return
        target = self._folder / f"{len(run.log.elapsed):08d}"
        try:
            if not target.exists():
                self._write(run, target)
            for earlier in self._saved():
                if earlier != target:
                    shutil.rmtree(earlier, ignore_errors=True)
        except DataChangedError:
            raise
        except OSError as problem:
            raise self._not_saved(problem) from problem
        self._last = time.perf_counter()

    def _write(self, run: Any, target: Path) -> None:
        parts: Parts = run.parts()
        files: dict[str, Any] = {}
        header = {
            "format": _FORMAT,
            "settings": self._settings,
            "facts": self.facts,
            "rng": None if self._rng is None else self._rng.bit_generator.state,
            "plain": parts.plain,
            "aligned": list(parts.aligned),
            "files": files,
        }
        arrays: dict[str, Any] = dict(parts.arrays)
        if self.initial_W is not None:
            arrays["W of the init"] = self.initial_W
        with folder_written_whole(target) as folder:
            for name, rows in parts.aligned.items():
                files |= self._V.save_aligned(rows, folder, name)
            arrays["header"] = np.array(json.dumps(header, default=_plain))
            with written_whole(folder / "state.npz") as stream:
                np.savez(stream, checksum=np.array(_checksum(arrays)), **arrays)
        if self._V.is_remote:  # lost chunks are then read from their files again
            names = parts.aligned
            run.relocate({name: self._load_aligned(target, name, header) for name in names})

    def _not_saved(self, problem: OSError) -> Exception:
        """The error for a save that failed: why, and what is left to resume from."""
        left = "there is no earlier one"
        if self._folder.is_dir() and (saved := self._saved()):
            intact = int(max(saved).name)
            left = f"the one of iteration {intact} is intact; the same call resumes from it"
        if is_disk_full(problem):
            return OutputError(
                f"not enough disk space for a checkpoint in {self._folder}: free some ({left})"
            )
        reason = problem.strerror or problem
        return CheckpointError(f"no checkpoint can be saved in {self._folder}: {reason} ({left})")


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of a save."""
    with open(folder / "state.npz", "rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays["header"]), object_hook=_revived)
    if header["format"] != _FORMAT:
        raise CheckpointError(
            f"{folder} has format {header['format']!r}, this version reads {_FORMAT!r}: "
            "resume it with the version that wrote it, or delete it"
        )
    if int(arrays.pop("checksum")) != _checksum(arrays):
        raise ValueError("its checksum is another")
    del arrays["header"]
    return header, arrays


def _checksum(arrays: dict[str, Array]) -> int:
    """The CRC-32 of arrays with their names, types and shapes."""
    checksum = 0
    for name, array in sorted(arrays.items()):
        checksum = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(array.tobytes(), checksum)
    return checksum


def _plain(value: Any) -> Any:
    """Arrays and numbers in the state of a generator, in plain values."""
    is_array = isinstance(value, np.ndarray)
    return {"array": value.tolist(), "dtype": value.dtype.str} if is_array else value.item()


def _revived(value: dict[str, Any]) -> Any:
    return np.array(value["array"], value["dtype"]) if value.keys() == {"array", "dtype"} else value


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if it does not exist, for one run or several at once."""
    with ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            TemporaryFile(dir=folder).close()  # a lock would time out instead
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


def _refuse_others(folder: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse a folder with other settings than those of now, naming the first that differs."""
    for key in {**now, **saved}:
        if key in saved and key in now and saved[key] == now[key]:
            continue
        what = f"its {key} is {saved.get(key)!r}, now it is {now.get(key)!r}"
        if key in _DIGESTS:
            what = f"{_DIGESTS[key]} not those that it was made with"
        raise CheckpointError(
            f"{folder} belongs to another run: {what}; use another folder, or delete this one"
        )


# --- several runs in one folder -----------------------------------------------------------------


class KeptRuns:
    """The runs in a folder, which one process uses at a time.

    A run that was renamed, or comes from another folder, is refused: each has its number, and a
    digest of the settings.

    Parameters
    ----------
    checkpoint : Checkpoint
    identity : str
        The digest of the settings and the data.
    """

    def __init__(self, checkpoint: Checkpoint, identity: str) -> None:
        self._folder = Path(checkpoint.folder)
        self._every = checkpoint.every
        self._identity = identity

    @classmethod
    @contextmanager
    def open(
        cls,
        checkpoint: Checkpoint,
        V: DataMatrix,
        settings: dict[str, Any],
        rng: np.random.Generator,
        data: str,
    ) -> Iterator[KeptRuns]:
        """Hold a folder, which is made if it does not exist; refuse one of other runs.

        `rng` is the generator of the first run, `data` the digest of V.
        """
        place = Path(checkpoint.folder)
        now: dict[str, Any] = {
            "format": _RUN_FORMAT,
            "shape": list(V.shape),
            "dtype": str(V.dtype),
            **settings,
            "random state": joblib.hash(rng.bit_generator.state),
            "data": data,
        }
        with held_folder(place):
            file = place / "settings.json"
            if file.exists():
                _refuse_others(place, _read_settings(file), now)
            else:
                with written_whole(file) as stream:
                    stream.write(json.dumps(now, indent=2).encode())
            yield cls(checkpoint, joblib.hash(now))

    def load(self, number: int) -> tuple[Array, float] | None:
        """Return W (F, K) and the relative error of a run, or None if it has not ended."""
        file = self._file(number)
        if not file.exists():
            return None
        try:
            with reading(file, _RUN_FORMAT, "a run") as saved:
                W, error = saved.factor("W"), float(saved.facts["relative_error"])
                found = saved.facts["run"], saved.facts["identity"]
        except FileFormatError as problem:
            raise CheckpointError(f"{problem}; delete it, and it is computed again") from problem
        if found != (number, self._identity):
            own = "other data or settings" if found[0] == number else f"run {found[0]}"
            raise CheckpointError(
                f"{file} belongs to {own}, not to this place: delete it, and it is computed again"
            )
        return W, error

    def keep(self, number: int, W: Array, relative_error: float) -> None:
        """Write a run that has ended, and remove its checkpoint."""
        facts: dict[str, Any] = {"format": _RUN_FORMAT, "run": number, "identity": self._identity}
        facts["relative_error"] = relative_error
        write_arrays(self._file(number), {"W": W}, facts)
        shutil.rmtree(self._file(number).with_suffix(""), ignore_errors=True)

    def unfinished(self, number: int, V: DataMatrix) -> CheckpointedRun:
        """Return the checkpoint of a run that has not ended, on its own data V."""
        folder = self._file(number).with_suffix("")
        with writing(folder):
            folder.mkdir(exist_ok=True)
        here = Checkpoint(folder, self._every)
        return CheckpointedRun(here, V, {"run": number}, data=self._identity)

    def _file(self, number: int) -> Path:
        return self._folder / f"run-{number:04d}.npz"


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError) as problem:
        raise CheckpointError(
            f"{file} does not say which runs these are: {problem}; delete its folder to run from "
            "the beginning, or name another"
        ) from problem


# --- functions, by their code -------------------------------------------------------------------

_LEAVES = (str, bytes, int, float, complex, bool, type(None), type(...), range, np.ndarray)
_MUTABLE = (list, dict, set, bytearray)  # in closures: where functions count or remember


def described(thing: object) -> str:
    """Return a digest of a function by its code, or of anything else that an option may be.

    Included are the code of a function with its constants and defaults, and the plain values,
    arrays and functions of its own module that it refers to, as closures, globals, arguments of
    `partial` or attributes of its object. Functions of other modules count by their names. The code
    is that of one version of Python: under another one the same function looks different.

    >>> one, other, same = (lambda x: x + 1), (lambda x: x + 2), (lambda x: x + 1)
    >>> described(one) == described(other), described(one) == described(same)
    (False, True)
    """
    return str(joblib.hash(_parts(thing, ())))


def _parts(thing: Any, above: tuple[int, ...]) -> Any:
    """Nested lists of plain values and arrays; those that `thing` is a part of are `above` it."""
    if isinstance(thing, _LEAVES):
        return thing
    if id(thing) in above:
        return f"circle {above[::-1].index(id(thing))}"
    inner = [_parts(part, (*above, id(thing))) for part in _inside(thing)]
    if isinstance(thing, set | frozenset | dict):
        inner.sort(key=joblib.hash)
    return [type(thing).__name__, inner]


def _inside(thing: Any) -> Any:
    """What a collection, a function or an object consists of; its name, if that is not known."""
    if isinstance(thing, tuple | list | set | frozenset):
        return thing
    if isinstance(thing, dict):
        return thing.items()
    if isinstance(thing, CodeType):
        names = (thing.co_names, thing.co_varnames, thing.co_freevars, thing.co_cellvars)
        return (thing.co_code, thing.co_consts, thing.co_argcount, thing.co_flags, *names)
    if isinstance(thing, functools.partial):
        return (thing.func, thing.args, thing.keywords)
    if isinstance(thing, MethodType):
        return (thing.__func__, thing.__self__)
    if isinstance(thing, FunctionType):
        return (thing.__code__, thing.__defaults__, thing.__kwdefaults__, _referred(thing))
    if isinstance(source := getattr(thing, "py_func", None), FunctionType):  # compiled by numba
        return (source,)
    kind = thing if isinstance(thing, type) else type(thing)
    named = (getattr(thing, "__module__", ""), getattr(thing, "__qualname__", kind.__qualname__))
    call = None if thing is kind else getattr(kind, "__call__", None)  # noqa: B004 - its code
    if isinstance(call, FunctionType) or (dataclasses.is_dataclass(thing) and thing is not kind):
        return (*named, call, getattr(thing, "__dict__", None))
    return named


def _referred(function: FunctionType) -> dict[str, Any]:
    """What a function refers to by name, outside of itself, and does not change."""
    found: dict[str, Any] = {}
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            if not isinstance(cell.cell_contents, _MUTABLE):
                found[name] = cell.cell_contents
    for name in _global_names(code):
        value = function.__globals__.get(name)
        same_module = getattr(value, "__module__", None) == function.__module__
        if isinstance(value, _LEAVES) or (isinstance(value, FunctionType) and same_module):
            found[name] = value
    return found


def _global_names(code: CodeType) -> set[str]:
    """The names in a function, and in the functions defined in it."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names}.union(*map(_global_names, inner))

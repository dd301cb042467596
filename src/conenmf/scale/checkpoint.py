"""Checkpoints: a run that was killed resumes from its last save and ends with the same bits.

A checkpoint is a folder, which one run uses at a time. Each save writes a new folder inside it
under a temporary name and moves it into place when all of it is on the disk; only then is the one
before it removed. On a cluster the workers write their own partitions of H, so the folder must be
one that all of them see. Every file has a checksum; those of ``state.npz`` are the archive's own.

Several runs in one folder (`KeptRuns`) each have a checkpoint, and a file once they have ended. All
these files are written and read in the same way, and each has the settings that it belongs to.
Each run has the bits that it would have alone, so runs that are read and runs that are computed
give the same as if all were computed, and there may be more of them later.

A checkpoint belongs to its settings and data; others are refused. Functions given as init or solver
are settings too: `described` compares their code, not only their names.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import time
import zipfile
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

_FORMAT = "conenmf-checkpoint-7"
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
    identity : dict
        What the result depends on, see `identity_of`; a checkpoint of another one is refused.
    rng : numpy.random.Generator, optional
        Its state is saved, and restored when the run is resumed.

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
        identity: dict[str, Any],
        rng: np.random.Generator | None = None,
    ) -> None:
        self._folder = Path(checkpoint.folder)
        self._every = checkpoint.every
        self._V = V
        self._rng = rng
        self._identity = identity
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
        header, arrays = _read(newest / "state.npz", self._identity)
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
            _write(folder / "state.npz", self._identity, arrays, header)
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


def identity_of(
    V: DataMatrix,
    settings: dict[str, Any],
    rng: np.random.Generator | None,
    data: str | None = None,
) -> dict[str, Any]:
    """Return what a run depends on: settings, V, and its generator, in plain values and digests.

    V is read for its digest, unless the caller has it, `data`.
    """
    return {
        **settings,
        "known": known_digest(V),
        "shape": list(V.shape),
        "dtype": str(V.dtype),
        "random state": None if rng is None else joblib.hash(rng.bit_generator.state),
        "data": digest(V) if data is None else data,
    }


def _write(
    file: Path, identity: dict[str, Any], arrays: dict[str, Any], facts: dict[str, Any]
) -> None:
    write_arrays(file, arrays, {"format": _FORMAT, "identity": identity, **facts})


def _read(file: Path, identity: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The facts and the arrays of a file; refuse one that is damaged or of another identity."""
    try:
        with reading(file, _FORMAT, "a checkpoint") as saved, zipfile.ZipFile(file) as archive:
            if archive.testzip() is not None:
                raise FileFormatError("its checksum is another")
            arrays = {name: saved.numbers(name, "fiub", nan=True) for name in saved.names}
            facts = saved.facts
    except (FileFormatError, OSError) as problem:
        raise CheckpointError(
            f"{problem}; delete it, and the folder of its iteration, to compute it again"
        ) from problem
    _refuse_others(file, facts["identity"], identity)
    return facts, arrays


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
    """The runs in a folder that the caller holds.

    Parameters
    ----------
    checkpoint : Checkpoint
    identity : dict
        What all runs depend on; see `identity_of`. A run of another folder or number is refused.
    """

    def __init__(self, checkpoint: Checkpoint, identity: dict[str, Any]) -> None:
        self._checkpoint = checkpoint
        self._identity = identity

    def load(self, number: int) -> tuple[Array, float] | None:
        """Return W (F, K) and the relative error of a run, or None if it has not ended."""
        file = self._file(number)
        if not file.exists():
            return None
        facts, arrays = _read(file, self._identity_of(number))
        return arrays["W"], float(facts["relative_error"])

    def keep(self, number: int, W: Array, relative_error: float) -> None:
        """Write a run that has ended, and remove its checkpoint."""
        facts = {"relative_error": relative_error}
        _write(self._file(number), self._identity_of(number), {"W": W}, facts)
        shutil.rmtree(self._file(number).with_suffix(""), ignore_errors=True)

    def unfinished(self, number: int, V: DataMatrix) -> CheckpointedRun:
        """Return the checkpoint of a run that has not ended, on its own data V."""
        folder = self._file(number).with_suffix("")
        with writing(folder):
            folder.mkdir(exist_ok=True)
        here = Checkpoint(folder, self._checkpoint.every)
        return CheckpointedRun(here, V, self._identity_of(number))

    def _identity_of(self, number: int) -> dict[str, Any]:
        return {**self._identity, "number": number}

    def _file(self, number: int) -> Path:
        return Path(self._checkpoint.folder) / f"run-{number:04d}.npz"


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

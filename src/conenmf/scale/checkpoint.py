"""Checkpoints: a run that was killed resumes from its last save and ends with the same bits.

A checkpoint is a folder, and only one run uses it at a time. Each save writes a new folder inside
it under a temporary name, moves it into place when it is completely on the disk, and then removes
the previous save. On a cluster the workers write their own partitions of H, so all of them must see
the folder. Every file has a checksum; ``state.npz`` uses the checksums of the zip archive.

`KeptRuns` stores several runs in one folder. Each run has a checkpoint, and a file once it has
ended. Each file contains the settings that it belongs to. A run has the same bits whether it runs
alone or with others, so some runs may be read and others computed, and more runs may be added
later.

A checkpoint belongs to its settings and data; a checkpoint of others is rejected. Functions given
as init or solver are settings too: `described` compares their code, not only their names.

Results are saved in the same form: one ``.npz`` file of plain arrays and a JSON text. Pickled
objects are never loaded, and the checksum of every array is compared.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import shutil
import zipfile
from bisect import bisect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from operator import methodcaller, or_
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from types import CodeType, FunctionType, MethodType
from typing import IO, Any, NamedTuple, TypeAlias, get_args, get_type_hints

import joblib
import numpy as np

from ..arguments import number, path
from ..arguments import path as checked_path
from ..atomic import (
    LOCK_FILE,
    flush,
    folder_written_whole,
    in_use,
    output_file,
    remove_temporaries,
    writing,
    written_whole,
)
from ..data.blocks import Block, entries_of, entrywise, exact
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..errors import (
    CheckpointError,
    FileFormatError,
    Option,
    OutputError,
)
from ..types import Array, Arrays, Facts, PathLike, Rng, Texts

_FORMAT = "conenmf-checkpoint-12"
_LOCK_FILE = f".checkpoint{LOCK_FILE}"  # the folder may be that of a result, which has its own lock
_DIGESTS = {
    "known": "the mask, the weights or the missing entries are",
    "groups": "the groups of the samples are",
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
        The folder; it is created if necessary. A run that finds a checkpoint here resumes from it;
        delete the folder to start again. Only one run at a time can use it.
    every : float
        Seconds between saves; 0 saves after every iteration.

    Examples
    --------
    >>> import tempfile
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> folder = tempfile.mkdtemp()
    >>> first = factorize(V, 1, checkpoint=Checkpoint(folder, every=0))
    >>> again = factorize(V, 1, checkpoint=folder)  # resumes where the first call ended
    >>> bool((first.W == again.W).all())
    True
    """

    folder: Path | str
    every: float = 60.0

    def __post_init__(self) -> None:
        path("folder", self.folder)
        number("every", self.every, at_least=0, or_infinite=True, what="seconds")


# Where to save a run, in the forms that callers may pass.
Place: TypeAlias = PathLike | Checkpoint | None


def checkpoint_at(place: PathLike | Checkpoint) -> Checkpoint:
    """Return the checkpoint for a place that a caller passes."""
    return place if isinstance(place, Checkpoint) else Checkpoint(path("checkpoint", place))


class Parts(NamedTuple):
    """The state of a run as stored in files: arrays, aligned arrays and plain values by name."""

    arrays: Arrays
    aligned: dict[str, Aligned]
    plain: Facts


@dataclass(eq=False)
class CheckpointedRun:
    """A run that is saved at regular intervals, in a folder that the caller has locked.

    Parameters
    ----------
    checkpoint : Checkpoint
    V : DataMatrix
    identity : dict
        What the result depends on, see `identity_of`; a checkpoint with another identity is
        rejected.
    rng : numpy.random.Generator, optional
        Its state is saved, and restored when the run is resumed.
    facts : dict
        Plain values that are saved with the run.
    """

    checkpoint: Checkpoint
    V: DataMatrix
    identity: Facts
    rng: Rng = None
    facts: Facts = field(default_factory=dict)
    _last: float = field(default_factory=perf_counter, init=False)

    @property
    def _folder(self) -> Path:
        return Path(self.checkpoint.folder)

    def load(self, max_iter: int) -> Parts | None:
        """Return the newest state, or None if there is none, and restore the generator.

        A state after more than `max_iter` iterations is rejected.
        """
        newest = max(self._saved(), default=None)
        if newest is None:
            return None
        header, arrays = _read(newest / "state.npz", self.identity)
        if int(newest.name) > max_iter:
            raise CheckpointError(
                f"{newest} is at iteration {int(newest.name)}, beyond ",
                Option("max_iter", max_iter),
                ": raise it, or delete the folder to run from the beginning",
            )
        for file, checksum in header["files"].items():
            _check_file(newest / file, checksum)
        aligned = {name: self._load_aligned(newest, name) for name in header["aligned"]}
        self.facts = header["facts"]
        if self.rng is not None and header["rng"] is not None:
            self.rng.bit_generator.state = header["rng"]
        return Parts(arrays, aligned, header["plain"])

    def _saved(self) -> list[Path]:
        """Return the folders of saves; there are two if a save was interrupted."""
        return [entry for entry in self._folder.iterdir() if entry.name.isdigit()]

    def _load_aligned(self, folder: Path, name: str) -> Aligned:
        return self.V.map(_load_rows, folder=str(folder), name=name)[0]

    def _save_aligned(self, rows: Aligned, folder: Path, name: str) -> dict[str, str]:
        """Write an aligned array to one file; on a cluster, to one file for each chunk."""
        if not self.V.is_remote:
            return _save_rows(range(len(rows)), rows, folder=str(folder), name=name)[0]
        return self.V.map(_save_rows, rows, reduce=or_, folder=str(folder), name=name)[0]

    def save_if_due(self, run: Any, ended: bool) -> None:
        """Save a run (`solve.run.Run`) at intervals, and when the user has ended it."""
        if not ended and perf_counter() - self._last < self.checkpoint.every:
            return
        target = self._folder / f"{run.n_iter:08d}"
        with writing(target):
            if not target.exists():
                self._write(run, target)
            for earlier in self._saved():
                if earlier != target:
                    shutil.rmtree(earlier, ignore_errors=True)
        self._last = perf_counter()

    def _write(self, run: Any, target: Path) -> None:
        parts: Parts = run.parts()
        files: Facts = {}
        header = {
            "facts": self.facts,
            "rng": None if self.rng is None else self.rng.bit_generator.state,
            "plain": parts.plain,
            "aligned": list(parts.aligned),
            "files": files,
        }
        with folder_written_whole(target) as folder:
            for name, rows in parts.aligned.items():
                files |= self._save_aligned(rows, folder, name)
            _write(folder / "state.npz", self.identity, parts.arrays, header)
        if self.V.is_remote:  # if chunks are lost, they are read from their files again
            run.relocate({name: self._load_aligned(target, name) for name in parts.aligned})


def identity_of(V: DataMatrix, settings: Facts, rng: Rng) -> Facts:
    """Return what a run depends on: settings, V and its generator, as plain values and digests.

    Computing the digest of V takes one pass.
    """
    return {
        **settings,
        "known": known_digest(V),
        "shape": list(V.shape),
        "dtype": str(V.dtype),
        "random state": None if rng is None else joblib.hash(rng.bit_generator.state),
        "data": digest(V),
    }


# --- aligned arrays in files ----------------------------------------------------------------------


def _save_rows(index: range, rows: Array, *, folder: str, name: str) -> tuple[dict[str, str]]:
    """Step of a map: write these rows of an aligned array; return the checksum of the file."""
    path = Path(folder) / f"{name}-{index.start:015d}.npy"
    with open(path, "wb") as stream:
        np.save(stream, rows)
        flush(stream)
    return ({path.name: _checksum(path)},)


def _load_rows(index: range, *, folder: str, name: str) -> PerSample:
    """Step of a map: read these rows from the file that contains them."""
    files = sorted(Path(folder).glob(f"{name}-*.npy"))
    starts = [int(path.stem.removeprefix(f"{name}-")) for path in files]
    place = bisect(starts, index.start) - 1
    rows = np.empty(0)
    if place >= 0:
        first = index.start - starts[place]
        mapped = np.load(files[place], mmap_mode="r", allow_pickle=False)
        rows = np.array(mapped[first : first + len(index)])
    if len(rows) < len(index):
        raise CheckpointError(
            f"{folder} has no file with rows {index.start} to {index.stop - 1} of {name}: the "
            "chunks have other sizes now, or this worker does not see the folder"
        )
    return rows, None


def _checksum(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _check_file(path: Path, expected: str) -> None:
    """Reject a file that has changed since it was written."""
    if not path.exists() or _checksum(path) != expected:
        raise CheckpointError(
            f"{path} is missing or damaged; delete its folder to run from the beginning"
        )


# --- digests of data ------------------------------------------------------------------------------


def digest(V: DataMatrix) -> str:
    """Return a number that changes if an entry of V changes or moves; takes one pass.

    It is a sum over all nonzero entries, so it does not depend on blocks, threads, chunks or the
    storage. It gives no protection against deliberate collisions.

    >>> from conenmf import from_columns
    >>> one, other = from_columns([[1.0, 2.0], [0.0, 3.0]]), from_columns([[1.0, 3.0], [0.0, 2.0]])
    >>> digest(one) == digest(one), digest(one) == digest(other)
    (True, False)
    """
    return f"{V.sweep(_digest_block, V.indices())[0] % 2**64:016x}"


def known_digest(V: DataMatrix) -> str | None:
    """Return a digest of masks and weights: which entries are known, and all weights.

    It is None for complete data with equal weights. `digest` does not distinguish a missing entry
    from a zero, so data are the same only if both digests agree.

    >>> from conenmf import from_columns
    >>> X, masks = [[1.0, 2.0], [0.0, 3.0]], ([[1, 1], [0, 1]], [[1, 1], [1, 1]])
    >>> one, other = (from_columns(X, mask=mask) for mask in masks)
    >>> digest(one) == digest(other), known_digest(one) == known_digest(other)
    (True, False)
    >>> known_digest(from_columns(X)) is None
    True
    """
    observed = V.observed
    samples = None
    if observed is None and V.unweighed is None:
        return None
    total = 0
    if observed is not None:
        index = V.indices()
        if observed.weights is None:
            (total,) = V.sweep(
                lambda block, numbers: _digest_block(
                    entrywise(exact(block), np.ones_like), numbers
                ),
                index,
            )
        else:
            (total,) = V.map(
                lambda _, rows, numbers: _digest_block(exact(rows).T, numbers),
                observed.weights,
                index,
            )
    if V.unweighed is not None:
        samples = np.asarray(V.unweighed.weights, float)
    return str(joblib.hash((total % 2**64, samples)))


def _digest_block(block: Block, index: Array) -> tuple[int]:
    """Mix the bits of each entry with its position, as splitmix64 does (Steele et al., 2014).

    Every entry has its own key, so a change in a single entry always changes the sum.
    """
    features, samples, values = entries_of(block)
    z: Array = values.view(np.uint64).copy()
    for places in (features, index[samples]):
        z += (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (int(z.sum()),)


# --- files of runs --------------------------------------------------------------------------------


def _write(file: Path, identity: Facts, arrays: Facts, facts: Facts) -> None:
    write_arrays(file, arrays, {"format": _FORMAT, "identity": identity, **facts})


def _read(file: Path, identity: Facts) -> tuple[Facts, Arrays]:
    """Return facts and arrays of a file; reject a damaged file or another identity."""
    try:
        with reading(file, _FORMAT, "a checkpoint") as (facts, arrays):
            saved = facts["identity"]
    except (FileFormatError, OSError) as problem:
        raise CheckpointError(
            f"{problem}; delete it, and the folder of its iteration, to compute it again"
        ) from problem
    for key in {**identity, **saved}:
        if key in saved and key in identity and saved[key] == identity[key]:
            continue
        what = f"its {key} is {saved.get(key)!r}, now it is {identity.get(key)!r}"
        if key in _DIGESTS:
            what = f"{_DIGESTS[key]} not those that it was made with"
        raise CheckpointError(
            f"{file} belongs to another run: {what}; use another folder, or delete this one"
        )
    return facts, arrays


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Lock a folder, which is created if it does not exist, for one run or several."""
    with ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            TemporaryFile(dir=folder).close()  # in a read-only folder, a lock would time out
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


# --- several runs in one folder -----------------------------------------------------------------


@dataclass(frozen=True)
class KeptRuns:
    """The runs in a folder that the caller has locked.

    Parameters
    ----------
    checkpoint : Checkpoint
    identity : dict
        What all runs depend on; see `identity_of`. Runs of another identity are rejected.
    """

    checkpoint: Checkpoint
    identity: Facts

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
        here = Checkpoint(folder, self.checkpoint.every)
        return CheckpointedRun(here, V, self._identity_of(number))

    def _identity_of(self, number: int) -> Facts:
        return {**self.identity, "number": number}

    def _file(self, number: int) -> Path:
        return Path(self.checkpoint.folder) / f"run-{number:04d}.npz"


# --- functions, by their code -------------------------------------------------------------------

_VALUES = (str, bytes, int, float, complex, type(None), type(...), range, np.ndarray)
_PARTS: dict[type, Texts] = {
    CodeType: ("co_code", "co_consts", "co_names", "co_varnames", "co_freevars"),
    MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
}


def described(thing: object) -> str:
    """Return a digest of a function by its code, or of any other value of an option.

    The digest includes the code of a function, its constants and defaults, and the plain values and
    arrays that it refers to. Functions that it calls count by their names. Code differs between
    versions of Python, so the digest does too.

    >>> one, other, same = (lambda x: x + 1), (lambda x: x + 2), (lambda x: x + 1)
    >>> described(one) == described(other), described(one) == described(same)
    (False, True)
    """
    return str(joblib.hash(_parts(thing)))


def _parts(thing: object) -> object:
    """Return nested lists of the plain values and arrays that make up an object."""
    thing = getattr(thing, "py_func", thing)  # compiled by numba
    if isinstance(thing, _VALUES):
        return thing
    if isinstance(thing, dict):
        thing = sorted(thing.items())
    if isinstance(thing, frozenset):
        thing = sorted(thing, key=repr)
    if isinstance(thing, list | tuple):
        return [_parts(part) for part in thing]
    for kind, names in _PARTS.items():
        if isinstance(thing, kind):
            return [_parts(getattr(thing, name)) for name in names]
    if isinstance(thing, FunctionType):
        closure = inspect.getclosurevars(thing)
        found = {**closure.nonlocals, **closure.globals}
        known = {name: value for name, value in found.items() if isinstance(value, _VALUES)}
        return _parts([thing.__code__, thing.__defaults__, thing.__kwdefaults__, known])
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    inside = {} if named is thing else getattr(thing, "__dict__", {})
    return [named.__module__, named.__qualname__, getattr(thing, "__name__", ""), _parts(inside)]


# --- saved objects ----------------------------------------------------------------------------

_FACTS = "facts"
_WRITTEN_BYTES = 64 << 20  # written at a time


def write_array(stream: IO[bytes], array: Any) -> None:
    """Write an array in the ``.npy`` format; one on a cluster is fetched in parts."""
    if isinstance(array, np.ndarray):
        np.lib.format.write_array(stream, array, allow_pickle=False)
        return
    descr = np.lib.format.dtype_to_descr(array.dtype)
    header = {"descr": descr, "fortran_order": True, "shape": array.shape}
    np.lib.format.write_array_header_2_0(stream, header)
    rows = array.T  # one row per sample
    size = max(1, _WRITTEN_BYTES // (rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for first in range(0, len(rows), size):
        stream.write(np.asarray(rows[first : first + size]).tobytes())


def write_arrays(path: PathLike, arrays: Facts, facts: Facts) -> None:
    """Write arrays and plain facts to a file that appears only when it is complete."""
    target = output_file(checked_path("path", path))
    members = {**arrays, _FACTS: np.array(json.dumps(facts, default=methodcaller("tolist")))}
    with written_whole(target) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array)


def arrays_of(part: Any, prefix: str) -> Arrays:
    """Return the fields of a dataclass as arrays by name; `part_of` is the inverse.

    Fields that are None or dicts are left out.
    """
    arrays: Arrays = {}
    for name in (one.name for one in fields(part)):
        value = getattr(part, name)
        if is_dataclass(value):
            arrays |= arrays_of(value, f"{prefix}{name}_")
        elif value is not None and not isinstance(value, dict):
            arrays[prefix + name] = np.asarray(value)
    return arrays


def part_of(kind: Any, prefix: str, arrays: Arrays) -> Any:
    """Return the object from which `arrays_of` made arrays; None if none has this prefix."""
    if not any(name.startswith(prefix) for name in arrays):
        return None
    hints = get_type_hints(kind)
    values: Facts = {name: None for name, hint in hints.items() if type(None) in get_args(hint)}
    for name, hint in hints.items():
        key = prefix + name
        for one in filter(is_dataclass, (hint, *get_args(hint))):
            values[name] = part_of(one, f"{key}_", arrays)
        if key in arrays:
            array = arrays[key] if arrays[key].ndim else arrays[key].item()
            values[name] = tuple(array.tolist()) if str(hint).startswith("tuple") else array
    return kind(**values)


@contextmanager
def reading(path: PathLike, format_name: str, what: str) -> Iterator[tuple[Facts, Arrays]]:
    """Read arrays and facts that `write_arrays` wrote with this format.

    Damaged or changed files and files of other kinds raise `FileFormatError`, even if this is
    noticed only when an object is built from the arrays.
    """
    path = checked_path("path", path)
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            # `write_arrays` compresses nothing, so no member takes more memory than the file
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("its arrays are compressed, and conenmf compresses none")
            for name in archive.namelist():
                with archive.open(name) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                    member.read()  # to the end, where the checksum is compared
                arrays[name.removesuffix(".npy")] = array
        if _FACTS not in arrays:
            raise ValueError("no conenmf metadata found")
        facts: Facts = json.loads(str(arrays.pop(_FACTS)))
        found = str(facts["format"])
        if found.rpartition("-")[0] != format_name.rpartition("-")[0]:
            raise ValueError(f"its format is {found!r}")
        if found != format_name:
            raise FileFormatError(
                f"{path} has format {found!r}, this version reads {format_name!r}: "
                "fit the data again and save the result"
            )
        yield facts, arrays
    except (FileFormatError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as problem:  # damaged zip files and array headers raise many kinds of errors
        raise FileFormatError(
            f"{path} is not {what} saved by conenmf, or is damaged: {problem}"
        ) from problem

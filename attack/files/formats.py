"""How a mutated file is made, opened, judged and compared, for any format.

A file is a *document*: bytes by their path below a folder. A format makes small valid documents,
changes them, and knows an independent reader, for the header alone and for all entries. "Past the
header" is measured with the former: the file was accepted, or another library can read from it
the names, types and shapes of what it holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import conenmf

from ..cases import MB, Case, Ending, Kind, judged, nothing_left

Document = dict[str, Any]
"""Bytes by their path; or a `Link`, a `Pipe`, or None for an empty folder."""

BASES = 24  # valid documents of a format, each of which is mutated many times
UNCHANGED = 0.01  # share of the documents that are not mutated, and must be accepted
MAX_ENTRIES = 1_000_000  # of a matrix that is compared as a whole
MAX_MEMORY = ("64MB", "16MB", "200MB", None)  # None: half of the memory of the machine
ALLOWANCE = 256 * MB  # beyond max_memory: what a file of any size may expand to


@dataclass(frozen=True)
class Link:
    """A symbolic link in place of a file."""

    target: str


class Pipe:
    """A named pipe in place of a file."""


class RefusedError(Exception):
    """The independent reader does not take the file."""


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes
    ----------
    name : str
    make : callable
        From a generator to the name of the file or folder to open, and a valid document.
    mutate : callable
        From a document and a generator to a changed document.
    read_header : callable
        From the path; raises any error if the header cannot be read.
    read : callable
        From the path and the opened matrix to the samples (N, F), dense or sparse.
    """

    name: str
    make: Callable[[np.random.Generator], tuple[str, Document]]
    mutate: Callable[[Document, np.random.Generator], Document]
    read_header: Callable[[Path], Any]
    read: Callable[[Path, Any], Any]

    def kind(self, default: int, **options: Any) -> Kind:
        """The kind of its cases."""
        extra = 200 * 10**6 + ALLOWANCE
        return Kind(self.name, "files", self.attack, default=default, extra_memory=extra, **options)

    def attack(self, case: Case) -> Ending:
        """Open a mutated file; compare what is accepted."""
        name, document = _base(self, case.seed, int(case.rng.integers(BASES)))
        changed = document
        if not case.chance(UNCHANGED):
            for _ in range(1 if case.chance(0.7) else int(case.rng.integers(2, 4))):
                changed = self.mutate(dict(changed), case.rng)
        write(changed, case.folder)
        path = case.folder / name
        expected = set(os.listdir(case.folder))
        case.report(None)
        with nothing_left(case.folder, expected) as left:
            ending, V, entries = _opened(path, case)
        if left:
            return replace(ending, outcome="leftover", note=f"{left} after {ending.note}")
        if ending.failed:
            return ending
        if V is None:
            case.report(ending)
            if changed == document:
                return replace(ending, outcome="different", note=f"valid file: {ending.note}")
            return replace(ending, past_header=_reads_header(self, path))
        ending = replace(ending, past_header=True)
        case.report(ending)
        return compared(self, path, V, entries, ending)


@cache
def _base(format_: Format, seed: int, number: int) -> tuple[str, Document]:
    return format_.make(np.random.default_rng([seed, number]))


def write(document: Document, folder: Path) -> None:
    """Write a document below a folder."""
    for name, content in document.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            os.symlink(content.target, path)
        elif isinstance(content, Pipe):
            os.mkfifo(path)
        elif content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)


def read_document(folder: Path) -> Document:
    """What was written below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _opened(path: Path, case: Case) -> tuple[Ending, Any, Any]:
    """Open and fit a file; return the matrix and its samples if it was accepted."""
    max_memory, n_threads = case.pick(MAX_MEMORY), int(case.rng.integers(1, 3))
    try:
        V = conenmf.open_data(path, max_memory=max_memory, n_threads=n_threads)
        F, N = V.shape
        entries = None
        if F * N <= MAX_ENTRIES:
            entries = V.columns(np.arange(N))
            entries = entries.toarray().T if sp.issparse(entries) else np.asarray(entries).T
    except Exception as problem:
        return judged(problem), None, None
    try:
        problem_of_fit = _fit(V, case)
    except Exception as problem:
        return judged(problem), None, None
    if problem_of_fit:
        return Ending("factors", problem_of_fit), None, None
    return Ending("accepted", f"{V.shape} {V.dtype}"), V, entries


def _fit(V: Any, case: Case) -> str:
    """A few iterations; what is wrong with the factors."""
    if max(V.shape) > 100_000:
        return ""
    rng = np.random.default_rng(case.number)
    K = min(2, *V.shape)
    try:
        result = conenmf.factorize(V, K, init="random", rng=rng, max_iter=2, sketch=None)
    except (conenmf.errors.ZeroDataError, conenmf.errors.ScaleError):
        return ""
    W, H = np.asarray(result.W), np.asarray(result.H)
    if not (np.isfinite(W).all() and np.isfinite(H).all() and W.min() >= 0 and H.min() >= 0):
        return "factors of an accepted file are negative or not finite"
    return "" if 0 <= result.relative_error <= 1 + 1e-6 else f"error {result.relative_error}"


def _reads_header(format_: Format, path: Path) -> bool:
    try:
        format_.read_header(path)
    except (Exception, SystemError):
        return False
    except BaseException as problem:  # of libraries in Rust
        if type(problem).__name__ != "PanicException":
            raise
        return False
    return True


def compared(format_: Format, path: Path, V: Any, entries: Any, ending: Ending) -> Ending:
    """Compare what was accepted with the independent reader, entry by entry."""
    if entries is None:
        return replace(ending, outcome="alone", note=f"too large to compare: {V.shape}")
    try:
        samples = format_.read(path, V)
        if samples is None:
            return ending
        samples = samples.toarray() if sp.issparse(samples) else np.asarray(samples)
        same = samples.shape == entries.shape
        with np.errstate(over="ignore"):
            values = samples.astype(V.dtype) if same else None
    except (Exception, SystemError) as problem:
        note = f"{type(problem).__name__}: {problem}"[:200]
        return replace(ending, outcome="alone", note=note)
    except BaseException as problem:
        if type(problem).__name__ != "PanicException":
            raise
        return replace(ending, outcome="alone", note=f"{problem}"[:200])
    if not same:
        note = f"shape {entries.shape}, the independent reader has {samples.shape}"
        return replace(ending, outcome="different", note=note, compared=True)
    if not np.array_equal(values, entries):
        row, column = np.argwhere(~(values == entries))[0]
        note = (
            f"{np.sum(~(values == entries))} entries differ; sample {row}, feature {column}: "
            f"{entries[row, column]!r}, the independent reader has {values[row, column]!r}"
        )
        return replace(ending, outcome="different", note=note, compared=True)
    return replace(ending, compared=True)


# --- for the modules of formats -------------------------------------------------------------------


def small_matrix(rng: np.random.Generator, dtype: Any = None) -> Any:
    """Some samples (N, F), a few of their entries zero."""
    if dtype is None:
        dtype = str(rng.choice(["f8", "f4", "i4", "u1", "i8", "u2", "f2"]))
    N, F = int(rng.integers(2, 31)), int(rng.integers(1, 13))
    X = rng.random((N, F)) * 10 * (rng.random((N, F)) < 0.8)
    X[0, 0] = 1
    return X.astype(dtype)


def only(document: Document) -> tuple[str, bytes]:
    """The one file of a document."""
    ((name, data),) = document.items()
    return name, data


def pick(rng: np.random.Generator, choices: Any) -> Any:
    """Draw one of the choices."""
    return choices[int(rng.integers(len(choices)))]

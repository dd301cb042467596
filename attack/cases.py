"""What a case is, how it ends, and which endings are failures."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MB = 1 << 20

# How a case may end, and what that means. The first three are what the library guarantees.
GOOD = {
    "accepted": "read or computed, and right as far as it can be checked",
    "refused": "an error with a name",
    "recovered": "disturbed, and then the same bits as without",
}
NOTED = {
    "alone": "accepted, but the independent reader refuses the file",
    "known": "a limit that the documentation states",
}
FAILURES = {
    "crash": "the process ended by a signal",
    "hang": "no end within the time limit",
    "unnamed": "an error that is not one of conenmf.errors",
    "different": "accepted, but numbers differ from those of the file, or from the undisturbed run",
    "factors": "NaN, infinite or negative factors, or an invariant does not hold",
    "silent": "a wrong value of an argument was accepted",
    "memory": "more memory than the limit and its allowance",
    "leftover": "files, processes or threads were left behind",
    "broken": "the attack itself failed",
}


@dataclass(frozen=True)
class Ending:
    """How one case ended."""

    outcome: str
    note: str = ""
    past_header: bool | None = None  # files: whether the header could be read
    compared: bool = False  # with an independent reader or method, entry by entry
    count: int = 1  # of what the case holds several of

    @property
    def failed(self) -> bool:
        """Whether the library broke a guarantee."""
        return self.outcome in FAILURES


@dataclass
class Case:
    """One case: its random generator, an empty folder, and a way to say how far it came.

    What `report` is given stands as the ending if the process does not survive what follows: the
    independent readers crash and hang too, which says nothing about this library. The time counts
    from the last report; None says that the case is prepared.
    """

    kind: str
    seed: int
    number: int
    folder: Path
    report: Callable[[Ending | None], None] = lambda ending: None
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([zlib.crc32(self.kind.encode()), self.seed, self.number])

    def pick(self, choices: Any) -> Any:
        """Draw one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        """Draw yes or no."""
        return bool(self.rng.random() < probability)


@dataclass(frozen=True)
class Kind:
    """A kind of cases.

    Attributes
    ----------
    name, group : str
        The group is the subcommand: numbers, calls, changes, kills, interrupts, forks.
    run : callable
        From a `Case` to its `Ending`.
    seconds : float
        Processor time after which a case counts as hanging; four times that by the clock.
    batch : int
        Cases that are dealt to a worker at a time.
    extra_memory : int
        Bytes by which the peak of a case may exceed what the process had before it.
    busy_library : str
        Part of the path of a library that is documented to hang on malicious files.
    counted : str
        What a case holds several of, where it does: problems, signals.
    default : int
        Cases of a run of about half an hour on two cores.
    """

    name: str
    group: str
    run: Callable[[Case], Ending]
    seconds: float = 10.0
    batch: int = 50
    extra_memory: int | None = None
    busy_library: str = ""
    counted: str = ""
    default: int = 1000


def judged(problem: BaseException, **more: Any) -> Ending:
    """The ending for an error: refused if it is one of the library's own."""
    from conenmf import ConeNMFError

    text = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, ConeNMFError):
        return Ending("refused", _short(text), **more)
    return Ending("unnamed", _short(f"{text} {place(problem)}"), **more)


def place(problem: BaseException) -> str:
    """Where an error was raised: the innermost line, and the innermost one of the library."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "/conenmf/" in frame.filename]
    shown = {(Path(f.filename).name, f.lineno): None for f in (*own[-1:], *frames[-1:])}
    return "(" + ", ".join(f"{name}:{line}" for name, line in shown) + ")"


def _short(text: str) -> str:
    return " ".join(text.split())[:300]


@contextlib.contextmanager
def nothing_left(folder: Path, expected: set[str]) -> Iterator[list[str]]:
    """Collect, in the list that is returned, what lies in the folder afterwards and should not."""
    left: list[str] = []
    yield left
    left += _unexpected(folder, expected)
    if left:  # an open file that a cycle of references keeps
        gc.collect()
        left[:] = _unexpected(folder, expected)


def _unexpected(folder: Path, expected: set[str]) -> list[str]:
    return sorted(set(os.listdir(folder)) - expected)

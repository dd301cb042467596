"""What can go wrong with a command: an exit code and one line for each."""

from __future__ import annotations

from ..errors import (
    CheckpointError,
    ComponentsError,
    ConeNMFError,
    DiskFullError,
    OptionError,
    OutputError,
)

__all__ = ["EXIT_CODES", "exit_code", "in_words"]

EXIT_CODES = {
    0: "done",
    1: "a mistake in conenmf itself: please report it",
    2: "the command was not understood",
    3: "the data cannot be read or used",
    4: "the options do not suit the data",
    5: "a result cannot be written",
    130: "interrupted with Ctrl-C; fit saved what there was",
}
_KINDS: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((OutputError, DiskFullError), 5),
    ((ComponentsError, OptionError, CheckpointError, ImportError, MemoryError), 4),
    ((ConeNMFError, OSError), 3),
)


def exit_code(problem: BaseException) -> int:
    """The code for an error."""
    return next((code for kinds, code in _KINDS if isinstance(problem, kinds)), 1)


def in_words(problem: BaseException) -> str:
    """The line for an error."""
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    if isinstance(problem, MemoryError):
        return "there is not enough memory: try --max-memory, or a smaller number of components"
    if exit_code(problem) == 1:
        return f"unexpected {type(problem).__name__}: {problem}"
    return str(problem)

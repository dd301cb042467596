"""Errors of commands: an exit code and one line for each, in the words of the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import click

from ..errors import (
    CheckpointError,
    ComponentsError,
    ConeNMFError,
    Message,
    Option,
    OptionError,
    OutputError,
    is_disk_full,
)

__all__ = ["EXIT_CODES", "error_line", "exit_code", "flags_of", "in_words"]

EXIT_CODES = {
    0: "done",
    1: "an error in conenmf itself: please report it",
    2: "the command was not understood",
    3: "the data cannot be read or used",
    4: "the options do not suit the data",
    5: "a result cannot be written",
    130: "interrupted with Ctrl-C; fit saved the result so far",
    143: "terminated by the signal SIGTERM; nothing was written",
}
_CODES_OF_ERRORS: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((OutputError,), 5),
    ((ComponentsError, OptionError, CheckpointError, ImportError, MemoryError), 4),
    ((ConeNMFError, OSError), 3),
)


def exit_code(problem: BaseException) -> int:
    """The code for an error."""
    if isinstance(problem, OSError) and is_disk_full(problem):  # perhaps of standard output
        return 5
    return next((code for kinds, code in _CODES_OF_ERRORS if isinstance(problem, kinds)), 1)


def flags_of(command: click.Command | None) -> dict[str, str]:
    """The flags of a command by the names that their options have in Python."""
    parameters = [] if command is None else command.params
    options = [one for one in parameters if isinstance(one, click.Option)]
    return {str(option.name): max(option.opts, key=len) for option in options}


def error_line(problem: BaseException, flags: Mapping[str, str]) -> str:
    """The line for an error; options that it names are written as flags."""
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    if isinstance(problem, FileNotFoundError) and problem.errno and not problem.filename:
        return "the current folder does not exist any more: change to another one"
    if isinstance(problem, OSError) and is_disk_full(problem) and not problem.filename:
        return f"the output cannot be written: {problem.strerror}"
    if isinstance(problem, MemoryError) and not isinstance(problem, ConeNMFError):
        return "there is not enough memory: try --max-memory, or a smaller number of components"
    if exit_code(problem) == 1:
        return f"unexpected {type(problem).__name__}: {problem}"
    return in_words(problem, flags)


def in_words(problem: BaseException, flags: Mapping[str, str]) -> str:
    """The message of an error or a warning; options that it names are written as flags."""
    message = problem.args[0] if problem.args else None
    if not isinstance(message, Message):
        return str(problem)
    return "".join(_written(part, flags) for part in message.parts)


def _written(part: object, flags: Mapping[str, str]) -> str:
    if not (isinstance(part, Option) and part.name in flags):
        return str(part)
    flag = flags[part.name]
    if isinstance(part.value, bool):
        return flag if part.value else flag.replace("--", "--no-", 1)
    return flag if part.value is ... else f"{flag} {shlex.quote(str(part.value))}"

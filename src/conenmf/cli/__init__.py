"""The command ``conenmf``: from a matrix file to factors, a certificate and a report.

Only this folder imports click and rich. Answers go to standard output, progress and errors to
standard error. An error gives an exit code and one line, in which options are written as flags;
``--debug`` shows the traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from .. import __version__
from ..errors import (
    CheckpointError,
    ComponentsError,
    ConeNMFError,
    InputWarning,
    Message,
    Option,
    OptionError,
    OutputError,
    is_disk_full,
)
from ..signals import Terminated, raise_received
from ..text import visible

if TYPE_CHECKING:  # types import NumPy, and help does not
    from ..types import Facts

__all__ = ["EXIT_CODES", "app", "error_line", "main"]

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
_CODES_OF_ERRORS: dict[int, tuple[type[BaseException], ...]] = {
    5: (OutputError,),
    4: (ComponentsError, OptionError, CheckpointError, ImportError, MemoryError),
    3: (ConeNMFError, OSError),
}
# The module of each command, imported when the command runs, and its line in the help.
_COMMANDS = {
    "fit": (
        "fit",
        "Factor DATA and judge the fit; write the factors, the verdict and a report to a folder.",
    ),
    "rank": (
        "judge",
        "Choose the number of components of DATA, with an interval, a confidence and the reasons.",
    ),
    "stability": (
        "judge",
        "Fit DATA many times; report which components recur, and how precisely.",
    ),
    "signatures": (
        "judge",
        "Extract mutational signatures from the catalogue DATA, with limits and activities.",
    ),
    "cells": (
        "cells",
        "Find gene programs in the raw counts DATA; write them in cNMF's format.",
    ),
    "diagnose": (
        "judge",
        "Say whether the components of a fit of DATA may be interpreted; write no files.",
    ),
    "compare": ("judge", "Compare inits and solvers on DATA: error, time, and clustering scores."),
    "transform": (
        "saved",
        "Compute the coefficients of new samples DATA for the components of MODEL.",
    ),
    "report": (
        "saved",
        "Write the report of RESULT, a folder that fit wrote or the result.npz in it.",
    ),
    "demo": ("fit", "Factor handwritten digits: write digits.csv, the results and a report."),
}

_MAX_LINE_CHARS = 2000
_LEFT = "no result was written; the same command continues from a checkpoint, if one was saved"


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f".{_COMMANDS[cmd_name][0]}", __package__)
        return getattr(module, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing them, and options."""
        names = [name for name in _COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=_COMMANDS[name][1]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them, and the exit codes."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(
    cls=_Group,
    commands=dict.fromkeys(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", prog_name="conenmf")
def app() -> None:
    """Nonnegative matrix factorization that knows how good its answer is.

    DATA is a file: .csv, .tsv, .txt, .data, .dat, .npy, .npz, .parquet, .pq, .arrow, .feather,
    .ipc, .mtx, .mat, .h5, .hdf5 and .nc, .nc4 (file.h5:/dataset), .h5ad (file.h5ad:layers/counts),
    .zarr, SigProfiler's .all, .exome and .region, an ENVI scene (.hdr with .img, .bsq, .bil or
    .bip), a multi-page .tif or .tiff, or a folder of images, of texts (.txt) or from 10x Genomics
    (matrix.mtx). Text and .mtx files may be compressed (.gz).

    \b
    conenmf demo                          an example, on data that are included
    conenmf fit counts.csv -o result      factor, judge, and write a report
    conenmf COMMAND --help                the options of a command, with examples
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; print one line for an error."""
    words = [*(sys.argv[1:] if arguments is None else arguments)] or ["--help"]
    shared: Facts = {"debug": False, "flags": {}, "arguments": words}

    def warn(message: Any, *_: object, **__: object) -> None:
        _say(f"warning: {in_words(message, shared['flags'])}", 0)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", InputWarning)
            warnings.showwarning = warn
            code = _run(words, shared)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        where = "conenmf" if error.ctx is None else error.ctx.command_path
        advice = f"try '{where} --help'"
        if getattr(error, "option_name", "").startswith("--batch"):
            advice = "batches and donors are --groups COLUMN"
        return _say(f"{error.format_message()} ({advice})", 2)
    except (KeyboardInterrupt, click.Abort):
        return _say(f"interrupted; {_LEFT}", 130)
    except Terminated:
        return _say(f"terminated; {_LEFT}", 143)
    except SystemExit:  # raised after completion, and if click writes to a closed pipe
        return 0
    except BrokenPipeError:
        _discard(sys.stdout)
        return 0
    except Exception as error:
        if shared["debug"]:
            traceback.print_exc()
        code = exit_code(error)
        notes = [*getattr(error, "__notes__", ())]
        if code == 1 and not shared["debug"]:
            notes.append("--debug shows where")
        line = error_line(error, shared["flags"])
        return _say("; ".join([line, *notes]), code)


def _run(words: Sequence[str], shared: Facts) -> object:
    """Run a command; an error that follows a signal counts as the signal."""
    try:
        return app.main(words, "conenmf", standalone_mode=False, obj=shared)
    except Exception:
        raise_received()
        raise


def _say(message: str, code: int) -> int:
    """Print one line of limited length; return the code, also if the line cannot be written."""
    line = visible(" ".join(message.split()), None)[:_MAX_LINE_CHARS]
    try:
        print(f"conenmf: {line}", file=sys.stderr)
    except OSError:  # e.g. a log on the disk that is full
        _discard(sys.stderr)
    return code


def _discard(stream: Any) -> None:
    """Write the rest of a stream, which cannot be written, to nowhere; Python flushes it later."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# --- errors -----------------------------------------------------------------------------------


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, OSError) and is_disk_full(error):  # e.g. of standard output
        return 5
    for code, kinds in _CODES_OF_ERRORS.items():
        if isinstance(error, kinds):
            return code
    return 1


def error_line(error: BaseException, flags: dict[str, str]) -> str:
    """Return the line for an error, with options written as flags."""
    if isinstance(error, ConeNMFError):
        return in_words(error, flags)
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and is_disk_full(error):
        return f"the output cannot be written: {error.strerror}"
    if isinstance(error, MemoryError):
        return "there is not enough memory: try --max-memory, or a smaller number of components"
    if exit_code(error) == 1:
        return f"unexpected {type(error).__name__}: {error}"
    return str(error)


def in_words(error: BaseException, flags: dict[str, str]) -> str:
    """Return the message of an error or a warning, with options written as flags."""
    message = error.args[0] if error.args else None
    if not isinstance(message, Message):
        return str(error)
    return "".join(_spell(part, flags) for part in message.parts)


def _spell(part: object, flags: dict[str, str]) -> str:
    if not (isinstance(part, Option) and part.name in flags):
        return str(part)
    flag = flags[part.name]
    if isinstance(part.value, bool):
        return flag if part.value else flag.replace("--", "--no-", 1)
    return flag if part.value is ... else f"{flag} {shlex.quote(str(part.value))}"

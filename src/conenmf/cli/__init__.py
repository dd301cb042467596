"""The command ``conenmf``: from a matrix file to factors, a report, and how good the fit is.

The only code that imports click and rich. Tracebacks are shown with ``--debug`` only.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import click

from ..errors import InputWarning
from ..signals import Terminated
from ..text import visible
from .commands import app
from .failures import EXIT_CODES, error_line, exit_code, flags_of, in_words

__all__ = ["EXIT_CODES", "app", "main"]

_MAX_WORD_CHARS, _END_CHARS = 500, 100  # paths of ordinary length are shown whole
_MAX_LINE_CHARS = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, having printed one line for an error."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    state: dict[str, Any] = {"debug": False, "arguments": arguments, "command": None}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", InputWarning)
            warnings.showwarning = functools.partial(_warn, state)
            code = app.main(arguments, "conenmf", standalone_mode=False, obj=state)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message())
        return 0
    except click.UsageError as problem:
        where = "conenmf" if problem.ctx is None else problem.ctx.command_path
        return _failed(f"{_usage_in_words(problem)} (try '{where} --help')", 2)
    except (KeyboardInterrupt, click.Abort):
        return _failed(f"interrupted; {_left(arguments)}", 130)
    except Terminated:
        return _failed(f"terminated; {_left(arguments)}", 143)
    except SystemExit:  # rich raises it when the pipe it writes to is closed
        return 0
    except BrokenPipeError:  # other writers raise this
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as problem:
        code = exit_code(problem)
        if state["debug"]:
            traceback.print_exc()
        hint = "; --debug shows where" if code == 1 and not state["debug"] else ""
        line = error_line(problem, flags_of(state["command"]))
        return _failed("; ".join([line, *getattr(problem, "__notes__", ())]) + hint, code)


def _usage_in_words(problem: click.UsageError) -> str:
    """What click says; of ``--k``, that ``-k`` is meant, which click does not consider."""
    if isinstance(problem, click.NoSuchOption) and problem.ctx is not None:
        short = problem.option_name[1:]
        if any(short in parameter.opts for parameter in problem.ctx.command.params):
            problem = click.NoSuchOption(problem.option_name, possibilities=[short])
    return problem.format_message()


def _left(arguments: Sequence[str]) -> str:
    """What a command that was stopped has left, and what to do if it can be continued."""
    flags = {word.partition("=")[0] for word in arguments}
    if arguments[:1] == ["stability"] and any(f.startswith(("-o", "--output")) for f in flags):
        return "the fits that had ended are kept: run the same command to continue"
    again = "; run the same command to continue from the last checkpoint, if there is one"
    return f"nothing was written{again if '--checkpoint' in flags else ''}"


def _failed(message: str, code: int) -> int:
    _say(message)
    return code


def _warn(state: dict[str, Any], message: Any, category: Any, *_: Any, **__: Any) -> None:
    _say(f"warning: {in_words(message, flags_of(state['command']))}")


def _say(message: str) -> None:
    """Print one line. Of a long word, such as the value of a flag, both ends are shown."""
    words = (
        word if len(word) <= _MAX_WORD_CHARS else f"{word[:_END_CHARS]}…{word[-_END_CHARS:]}"
        for word in message.split()
    )
    print(f"conenmf: {visible(' '.join(words), _MAX_LINE_CHARS)}", file=sys.stderr)

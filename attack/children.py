"""Child processes that may be killed: forked from a nursery that has imported everything.

The nursery is forked when a worker begins, before any thread runs, and answers to commands on a
pipe. A child is like a fresh process, and costs milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

_commands: Connection | None = None


def open_nursery() -> None:
    """Fork the nursery."""
    global _commands
    ours, theirs = Pipe()
    if os.fork() == 0:
        ours.close()
        try:
            _tend(theirs)
        finally:
            os._exit(0)
    theirs.close()
    _commands = ours


def _tend(commands: Connection) -> None:
    """Fork children, and say how they ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended: dict[int, int] = {}
    while True:
        try:
            what, *arguments = commands.recv()
        except EOFError:
            return
        if what == "start":
            pid = os.fork()
            if pid == 0:
                commands.close()
                _run(*arguments)
            commands.send(pid)
            continue
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = os.waitstatus_to_exitcode(found[1])
        commands.send(ended.get(arguments[0]))


def _run(function: str, arguments: tuple[Any, ...], log: str) -> None:
    """In the child: call the function as a program would, and exit as the interpreter does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    module, _, name = function.partition(":")
    code = 0
    try:
        try:
            getattr(importlib.import_module(module), name)(*arguments)
        except SystemExit as request:
            code = request.code if isinstance(request.code, int) else int(bool(request.code))
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
            code = 1
        import threading

        threading._shutdown()  # as at the end of a program: wait for threads that are no daemons
        sys.stdout.flush()
    finally:
        os._exit(code)


class Child:
    """A process that runs ``module:function``."""

    def __init__(self, function: str, *arguments: Any, log: Path) -> None:
        assert _commands is not None, "open_nursery() first"
        self.log = log
        _commands.send(("start", function, arguments, str(log)))
        self.pid: int = _commands.recv()

    def signal(self, number: int) -> bool:
        """Send a signal; whether the process was still there."""
        if self.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        assert _commands is not None
        _commands.send(("poll", self.pid))
        code: int | None = _commands.recv()
        return code

    def wait(self, seconds: float) -> int | None:
        """Wait until it ends; None, and kill it, if it does not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code = self.poll()
            if code is not None:
                return code
            time.sleep(0.005)
        self.signal(signal.SIGKILL)
        return None

    def text(self) -> str:
        """What it printed."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

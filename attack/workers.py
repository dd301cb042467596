"""Worker processes: they run cases, and may crash, hang or take too much memory.

A fork server imports the libraries once, so a new worker costs milliseconds. Each worker reports
the beginning and the end of every case; the parent ends those that take too long, finds out what
they were doing, and blames the case that was running.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cases import FAILURES, MB, Case, Ending, Kind
from .children import open_nursery

ADDRESS_SPACE = 3 << 30  # bytes that a worker may map beyond what it has at its beginning
CLOCK_FACTOR = 4  # a case may take so many times its processor time by the clock
MAX_CASES = 3000  # after which a worker is replaced, so that leaks of libraries do not add up
_PRELOADED = ["attack.preload"]


@dataclass(frozen=True)
class Result:
    """The ending of a case, with what was measured."""

    kind: str
    seed: int
    number: int
    ending: Ending
    seconds: float
    extra_memory: int  # bytes, at the peak


def context() -> Any:
    """The fork server. Libraries get one thread, so that workers do not crowd each other."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("MPLBACKEND", "Agg")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    return server


class Worker:
    """A process that runs one batch of cases after another, and is replaced when it breaks.

    The files of cases that fail, or of all, are copied to the folder `keep`.
    """

    def __init__(self, server: Any, keep: Path | None = None, keep_all: bool = False) -> None:
        self._server = server
        self._keep, self._keep_all = keep, keep_all
        self.kind: Kind | None = None
        self.seed = 0
        self.waiting: list[int] = []  # cases of the batch that have not ended
        self._start()

    def _start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="conenmf-attack-"))
        self.pipe, other = self._server.Pipe()
        self.process = self._server.Process(target=_serve, args=(other, self.folder))
        self.process.start()
        other.close()
        self._done = 0
        self._number: int | None = None  # the case that is running
        self._provisional: Ending | None = None
        self._began()
        if self.waiting:
            self._send()

    def give(self, kind: Kind, seed: int, numbers: list[int]) -> None:
        """Start a batch."""
        if self._done >= MAX_CASES:
            self.close()
            self._start()
        self.kind, self.seed, self.waiting = kind, seed, list(numbers)
        self._send()
        self._began()

    def _send(self) -> None:
        assert self.kind is not None
        self.pipe.send((self.kind.name, self.seed, self.waiting))

    def _began(self) -> None:
        self._since, self._cpu_since = time.monotonic(), self._cpu()

    def results(self) -> Iterator[Result]:
        """What has been reported, and what can be concluded from silence."""
        try:
            while self.waiting and self.pipe.poll():
                message = self.pipe.recv()
                if message[0] == "begin":
                    self._number, self._provisional = message[1], None
                    self._began()
                elif message[0] == "reached":
                    self._provisional = message[1]
                    self._began()
                else:
                    yield self._ended(*message[1:])
        except (EOFError, ConnectionResetError):
            yield self._died()
        else:
            if not (self.waiting and self._overdue()):
                return
            yield self._hung()
        self.close()
        self._start()

    def _ended(self, number: int, ending: Ending, seconds: float, extra: int) -> Result:
        assert self.kind is not None
        limit = self.kind.extra_memory
        if limit is not None and extra > limit and ending.outcome not in FAILURES:
            text = f"{extra / MB:.0f} MB at the peak, limit {limit / MB:.0f}; {ending.note}"
            ending = replace(ending, outcome="memory", note=text)
        return self._finished(number, ending, seconds, extra)

    def _finished(self, number: int, ending: Ending, seconds: float, extra: int) -> Result:
        assert self.kind is not None
        place = self.folder / f"{self.kind.name}-{number}"
        if self._keep is not None and (ending.failed or self._keep_all):
            target = self._keep / f"{self.kind.name}-{self.seed}-{number}"
            shutil.rmtree(target, ignore_errors=True)
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(place, target, symlinks=True)
        shutil.rmtree(place, ignore_errors=True)
        self.waiting.remove(number)
        self._done += 1
        self._number = None
        return Result(self.kind.name, self.seed, number, ending, seconds, extra)

    def _died(self) -> Result:
        self.process.join(5)
        code = self.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code} {self._last_line()}"
        return self._blamed(Ending("crash", f"{how} {self._stack('Current')}".strip()))

    def _hung(self) -> Result:
        os.kill(self.process.pid, signal.SIGUSR1)  # faulthandler writes where it is
        time.sleep(0.3)
        seconds = time.monotonic() - self._since
        stack, library = self._stack("Current"), "" if self.kind is None else self.kind.busy_library
        known = bool(library) and stack.startswith(f"in {library}")
        ending = Ending("known" if known else "hang", f"hang after {seconds:.0f} s {stack}".strip())
        self.process.kill()
        self.process.join()
        return self._blamed(ending)

    def _blamed(self, ending: Ending) -> Result:
        number = self.waiting[0] if self._number is None else self._number
        if self._provisional is not None:
            note = f"{self._provisional.note}; then in the reader: {ending.outcome} {ending.note}"
            ending = replace(self._provisional, note=note[:300])
        self._number = number
        return self._finished(number, ending, time.monotonic() - self._since, 0)

    def _overdue(self) -> bool:
        assert self.kind is not None
        clock = time.monotonic() - self._since
        if clock < self.kind.seconds:
            return False
        return (
            self._cpu() - self._cpu_since > self.kind.seconds
            or clock > CLOCK_FACTOR * self.kind.seconds
        )

    def _cpu(self) -> float:
        """Processor time of the process so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _stack(self, first: str) -> str:
        """The innermost calls, as faulthandler wrote them, of the thread whose title begins so."""
        try:
            text = (self.folder / "stack.txt").read_text("utf-8", "replace")
        except OSError:
            return ""
        threads = re.split(r"\n(?=Thread |Current thread )", "\n" + text)
        chosen = [thread for thread in threads if thread.startswith(first)] or threads
        calls = re.findall(r'File "([^"]+)", line \d+ in (\w+)', chosen[-1])
        places = [f"{'/'.join(Path(file).parts[-2:])}:{function}" for file, function in calls]
        return "in " + " < ".join(places[:6]) if places else ""

    def _last_line(self) -> str:
        try:
            return (self.folder / "output.txt").read_text("utf-8", "replace").strip()[-300:]
        except OSError:
            return ""

    def close(self, at_once: bool = False) -> None:
        """End the process and those that it started, and remove its folder."""
        self.pipe.close()
        if at_once:
            self.process.kill()
        self.process.join(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        shutil.rmtree(self.folder, ignore_errors=True)


# --- in the worker ------------------------------------------------------------------------------


def _serve(pipe: Any, folder: Path) -> None:
    from .kinds import KINDS

    os.setpgid(0, 0)  # so that it can be ended with its children
    open_nursery()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stack = open(folder / "stack.txt", "w")  # noqa: SIM115 - as long as the process
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack, all_threads=True)
    limit = _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    warnings.simplefilter("ignore")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
    while True:
        try:
            name, seed, numbers = pipe.recv()
        except EOFError:
            os._exit(0)
        for number in numbers:
            pipe.send(("begin", number))
            pipe.send(("end", number, *measured(KINDS[name], seed, number, folder, pipe)))


def measured(
    kind: Kind, seed: int, number: int, folder: Path, pipe: Any = None
) -> tuple[Ending, float, int]:
    """Run a case: its ending, its seconds, and the memory it took at its peak."""
    place = folder / f"{kind.name}-{number}"
    place.mkdir(parents=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    report = (lambda ending: None) if pipe is None else lambda e: pipe.send(("reached", e))
    before = _reset_peak()
    began = time.monotonic()
    try:
        ending = kind.run(Case(kind.name, seed, number, place, report))
    except BaseException as problem:
        text = "".join(traceback.format_exception(problem)[-3:])
        ending = Ending("broken", " ".join(text.split())[-300:])
    seconds = time.monotonic() - began
    extra = max(0, _status("VmHWM") - before)
    if not ending.failed and (left := os.listdir(temporary)):
        ending = replace(ending, outcome="leftover", note=f"temporary files {left}")
    shutil.rmtree(temporary, ignore_errors=True)
    if pipe is None:
        shutil.rmtree(place, ignore_errors=True)  # else the parent removes it
    return ending, seconds, extra


def _reset_peak() -> int:
    """Let the system forget the peak of this process; return the memory it has now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return sys.maxsize  # then nothing can be said
    return _status("VmRSS")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0

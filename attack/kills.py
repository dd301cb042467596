"""Signals at random moments, full disks, two processes at once: nothing may be lost.

A run that is killed and started again ends with the bits of an undisturbed one. A folder of results
is the earlier one or the new one and never a mixture. After the next run nothing is left of those
that were killed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import conenmf
from conenmf.__main__ import run
from conenmf.scale.checkpoint import Checkpoint

from .cases import Case, Ending

PATIENCE = 120.0  # seconds for a run that takes a fraction of one
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_OPTIONS = (
    {"init": "random", "max_iter": 25, "tol": 0.0},
    {"init": "cr1", "max_iter": 20, "tol": 0.0},
    {"init": "cr1++", "max_iter": 20, "tol": 0.0, "solver": "nnlsb"},
    {"init": "auto", "max_iter": 20, "tol": 0.0, "solver": "mult"},
)
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["attack.preload"])


class Child:
    """A process of its own that runs one of the programs below."""

    def __init__(self, log: Path, program: Callable[..., None], *arguments: Any) -> None:
        self.log = log
        self.process = _server.Process(target=_logged, args=(log, program, arguments))
        self.process.start()

    def signal(self, number: int) -> None:
        """Send a signal, if the process is still there."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Wait until it ends; its exit code, negative for a signal."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"a process did not end: {self.text}")
        return self.process.exitcode

    @property
    def text(self) -> str:
        """The end of what it printed."""
        return self.log.read_text("utf-8", "replace")[-1500:] if self.log.exists() else ""


def _logged(log: Path, program: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    try:
        program(*arguments)
    except KeyboardInterrupt:
        sys.exit(130)


def _fit(path: Path, folder: Path, target: Path, options: dict[str, Any], max_memory: int) -> None:
    """A fit that is saved after every iteration."""
    V = conenmf.open_data(path, max_memory=max_memory, n_threads=2)
    saved = Checkpoint(folder, every=0)
    result = conenmf.factorize(V, 3, rng=np.random.default_rng(0), checkpoint=saved, **options)
    np.savez(target, W=result.W, H=np.array(result.H))


def _command(arguments: list[str], max_file_bytes: int | None = None) -> None:
    """The command `conenmf`, on a disk that is full beyond so many bytes of a file."""
    if max_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    sys.argv = ["conenmf", *arguments]
    sys.exit(run())


def _write_data(case: Case, samples: int) -> Path:
    path, rng = case.folder / "data" / "x.npy", case.rng
    path.parent.mkdir()
    X = rng.random((samples, 4)) ** 2 @ rng.random((4, 30)) + 0.2 * rng.random((samples, 30))
    np.save(path, X)
    return path


# --- checkpoints --------------------------------------------------------------------------------


def attack_checkpoint(case: Case) -> Ending:
    """Kill a fit with checkpoints up to four times; then resume it."""
    path, options = _write_data(case, 3000), case.pick(_OPTIONS)
    max_memory = case.pick((600_000, 4_000_000))  # with the smaller one, H is kept in a file
    folder, truth, target = (case.folder / name for name in ("saved", "truth.npz", "result.npz"))
    began = time.monotonic()
    _fit(path, case.folder / "undisturbed", truth, options, max_memory)
    duration, kept = time.monotonic() - began, _listing(path.parent)
    arguments = (path, folder, target, options, max_memory)
    sent = []
    for attempt in range(int(case.rng.integers(1, 5))):
        child, number = Child(case.folder / f"{attempt}.log", _fit, *arguments), case.pick(_SIGNALS)
        time.sleep(float(case.rng.uniform(0, 1.1)) * duration)
        child.signal(number)
        sent.append(number.name)
        if (code := child.wait()) not in (0, 130, -number):
            return Ending("unnamed", f"{sent}: exit code {code}: {child.text}")
    last = Child(case.folder / "last.log", _fit, *arguments)
    if last.wait() != 0:
        return Ending("different", f"no resume after {sent}: {last.text}")
    if not _same_bits(target, truth):
        return Ending("different", f"other bits after {sent}", compared=True)
    left = {n for n in _listing(path.parent) - kept if not re.fullmatch(r"x.npy.H-\d+.npy", n)}
    left |= {name for name in os.listdir(folder) if not re.fullmatch(r"\d{8}|.*lock.*", name)}
    return Ending("leftover" if left else "recovered", f"{sorted(left)} after {sent}", True)


def _listing(folder: Path) -> set[str]:
    return {re.sub(r"[0-9a-f]{16}", "*", name) for name in os.listdir(folder)}


def _same_bits(one: Path, other: Path) -> bool:
    with np.load(one) as first, np.load(other) as second:
        return all(np.array_equal(first[name], second[name]) for name in ("W", "H"))


# --- folders of results -------------------------------------------------------------------------


def attack_command(case: Case) -> Ending:
    """A signal, a full disk or a second command, with or without an earlier result."""
    path, out = _write_data(case, 800), case.folder / "out"
    more = case.pick((("--no-report",), ("--no-report",), ()))

    def start(K: int, *limit: int) -> Child:
        words = ["fit", str(path), "-k", str(K), "-o", str(out), "--max-iter", "30", "--tol", "0"]
        return Child(case.folder / f"{K}.log", _command, [*words, *more], *limit)

    has_earlier, how = case.chance(0.6), case.pick(("signal", "signal", "disk", "two"))
    if has_earlier and (start(3).wait() != 0 or state_of(out) != "3"):
        return Ending("broken", f"undisturbed: {state_of(out)}")
    before, earlier = _contents(out), "3" if has_earlier else "none"
    limit = (int(10 ** case.rng.uniform(2, 5.5)),) if how == "disk" else ()
    children, allowed = {4: start(4, *limit)}, [0, 5]
    if how == "two":
        time.sleep(float(case.rng.uniform(0, 0.2)))
        children[5] = start(5)
    elif how == "signal":
        time.sleep(float(case.rng.uniform(0, 0.6)))
        number = case.pick(_SIGNALS)
        children[4].signal(number)
        allowed += [-number, 128 + number]
    note = f"{how} {more} over {earlier}"
    codes = {K: child.wait() for K, child in children.items()}
    for K, code in codes.items():
        if code not in allowed or (code >= 0 and "Traceback" in children[K].text):
            return Ending("unnamed", f"{note}: exit code {code}: {children[K].text}")
    state = state_of(out)
    done = {str(K) for K, code in codes.items() if code == 0} or {earlier}
    if how == "signal":  # it may come when all is written
        done = {"4", earlier}
    is_begun = how == "signal" and state.startswith("left")  # parts that the next run removes
    if not (is_begun or state in done) or (state == "3" and _contents(out) != before):
        return Ending("different", f"{note}: codes {codes}, the folder holds {state}")
    again = start(6)
    if again.wait() != 0 or state_of(out) != "6":
        return Ending("different", f"{note}: next run {state_of(out)} {again.text}")
    beside = [name for name in os.listdir(case.folder) if name.startswith(".")]
    left = sorted({*beside, *os.listdir(path.parent)} - {"x.npy"})
    return Ending("leftover" if left else "recovered", f"{note} {left}", compared=True)


def _contents(out: Path) -> dict[str, bytes]:
    if not out.exists():
        return {}
    return {p.name: p.read_bytes() for p in out.iterdir() if p.is_file() and "lock" not in p.name}


def state_of(out: Path) -> str:
    """What is in a folder of results: "none", the number of components, or what is wrong."""
    names = {name for name in os.listdir(out) if "lock" not in name} if out.exists() else set()
    hidden = {name for name in names if name.startswith(".")}
    if hidden or not names:
        return f"left: {sorted(hidden)}" if hidden else "none"
    try:
        files = {"summary.json", *json.loads((out / "summary.json").read_text())["files"]}
        tables = [(out / f"{table}.csv").read_text() for table in ("components", "coefficients")]
        with np.load(out / "result.npz", allow_pickle=False) as saved:
            found = {saved["W"].shape[1], *(text.split("\n")[0].count(",") for text in tables)}
    except Exception as problem:
        return f"broken: {type(problem).__name__}: {problem}"
    others = {name for name in names if not name.startswith("unfinished-result")} ^ files
    if others or len(found) > 1:
        return f"missing or of another result: {sorted(others)}; components: {sorted(found)}"
    return str(found.pop())

"""Signals at random moments, full disks, two processes at once; then everything must be right.

A run that is killed and started again ends with the bits of an undisturbed one, a folder of results
is the earlier one or the new one and never a mixture, and after the next run nothing is left of
those that were killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import programs
from .cases import Case, Ending, Kind
from .children import Child

PATIENCE = 60.0  # seconds for a run that takes a fraction of one
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_OPTIONS = (
    {"init": "random", "max_iter": 25, "tol": 0.0},
    {"init": "cr1", "max_iter": 20, "tol": 0.0, "sketch": None},
    {"init": "cr1++", "max_iter": 20, "tol": 0.0, "solver": "nnlsb"},
    {"init": "auto", "max_iter": 20, "tol": 0.0, "solver": "mult"},
)


def write_data(case: Case, samples: int = 3000) -> Path:
    """A file of samples."""
    path = case.folder / "data" / "x.npy"
    path.parent.mkdir()
    rng = case.rng
    X = rng.random((samples, 4)) ** 2 @ rng.random((4, 30)) + 0.2 * rng.random((samples, 30))
    np.save(path, X)
    return path


def _attack_checkpoint(case: Case) -> Ending:
    """Kill a fit with checkpoints up to four times; resume it."""
    path = write_data(case)
    options = case.pick(_OPTIONS)
    # With the smaller limit H is kept in a file beside the data.
    max_memory = int(case.pick((600_000, 4_000_000)))
    folder, target = case.folder / "saved", case.folder / "result.npz"
    arguments = (str(path), str(folder), str(target), options, max_memory)
    truth = case.folder / "truth.npz"
    began = time.monotonic()
    child = Child(
        "attack.programs:checkpointed",
        *(str(path), str(case.folder / "undisturbed"), str(truth), options, max_memory),
        log=case.folder / "truth.log",
    )
    if child.wait(PATIENCE) != 0:
        return Ending("broken", f"undisturbed: {child.text()[-250:]}")
    duration, kept = time.monotonic() - began, _listing(path.parent)
    sent = []
    for attempt in range(int(case.rng.integers(1, 5))):
        log = case.folder / f"{attempt}.log"
        child = Child("attack.programs:checkpointed", *arguments, log=log)
        time.sleep(float(case.rng.uniform(0, 1.1)) * duration)
        number = case.pick(_SIGNALS)
        sent += [number.name] if child.signal(number) else []
        code = child.wait(PATIENCE)
        if code is None:
            return Ending("hang", f"after {sent}")
        if problem := _unexpected_end(code, child, number):
            return Ending("unnamed", f"{sent}: {problem}")
        if code == 0 and target.exists():
            break
    child = Child("attack.programs:checkpointed", *arguments, log=case.folder / "last.log")
    if child.wait(PATIENCE) != 0:
        return Ending("different", f"no resume after {sent}: {child.text()[-200:]}")
    if not same_bits(target, truth):
        return Ending("different", f"other bits after {sent}", compared=True)
    left = {n for n in _listing(path.parent) - kept if not re.fullmatch(r"x.npy.H-\d+.npy", n)}
    left |= {name for name in os.listdir(folder) if not re.fullmatch(r"\d{8}|.*lock.*", name)}
    if left:
        return Ending("leftover", f"{sorted(left)} after {sent}")
    return Ending("recovered", f"{sent}", compared=True, count=max(1, len(sent)))


def _listing(folder: Path) -> set[str]:
    return {re.sub(r"[0-9a-f]{16}", "*", name) for name in os.listdir(folder)}


def same_bits(one: Path, other: Path) -> bool:
    """Whether two saved results are equal."""
    with np.load(one) as first, np.load(other) as second:
        return all(np.array_equal(first[name], second[name]) for name in ("W", "H"))


def _unexpected_end(code: int, child: Child, number: int) -> str:
    """What is wrong with how a program ended that got a signal; empty if nothing."""
    if code in (0, -number, 128 + number, 130):
        return "a traceback" if code >= 0 and "Traceback" in child.text() else ""
    return f"exit code {code}: {child.text()[-200:]}"


# --- the command line ---------------------------------------------------------------------------


def _arguments(path: Path, out: Path, K: int, *more: str) -> list[str]:
    return ["fit", str(path), "-k", str(K), "-o", str(out), "--max-iter", "30", "--tol", "0", *more]


def state_of(out: Path) -> str:
    """What is in a folder of results: "none", the number of components, or what is wrong."""
    if not out.exists() or not os.listdir(out):
        return "none"
    hidden = [name for name in os.listdir(out) if name.startswith(".") and "lock" not in name]
    if hidden:
        return f"left: {hidden}"
    try:
        summary = json.loads((out / "summary.json").read_text())
        missing = [name for name in summary["files"] if not (out / name).exists()]
        visible = {name for name in os.listdir(out) if not name.startswith(".")}
        kept_aside = {name for name in visible if name.startswith("unfinished-result")}
        others = sorted(visible - {*summary["files"], "summary.json"} - kept_aside)
        with np.load(out / "result.npz", allow_pickle=False) as saved:
            found = {saved["W"].shape[1]}
        for table in ("components", "coefficients"):
            lines = (out / f"{table}.csv").read_text().splitlines()
            found |= {lines[0].count(",")}
    except Exception as problem:
        return f"broken: {type(problem).__name__}: {problem}"
    if missing or others:
        return f"missing: {missing}, of another result: {others}"
    return str(found.pop()) if len(found) == 1 else f"a mixture of {sorted(found)}"


def _attack_command(case: Case) -> Ending:
    """Signals, a full disk, or a second process, with or without an earlier result."""
    path, out = write_data(case, 800), case.folder / "out"
    options = case.pick((("--no-report",), ("--no-report",), ()))
    earlier = case.chance(0.6)
    run = "attack.programs:command_line"
    if earlier:
        child = Child(run, _arguments(path, out, 3, *options), None, log=case.folder / "0.log")
        if child.wait(PATIENCE) != 0 or state_of(out) != "3":
            return Ending("broken", f"{state_of(out)} {child.text()[-250:]}")
    before = _contents(out)
    how = case.pick(("signal", "signal", "disk", "two"))
    limit = int(10 ** case.rng.uniform(2, 5.5)) if how == "disk" else None
    first = Child(run, _arguments(path, out, 4, *options), limit, log=case.folder / "1.log")
    children, note = [first], f"{how} {options} {'over an earlier result' if earlier else ''}"
    if how == "two":
        second = Child(run, _arguments(path, out, 5, *options), None, log=case.folder / "2.log")
        children.append(second)
    elif how == "signal":
        time.sleep(float(case.rng.uniform(0, 0.6)))
        number = case.pick(_SIGNALS)
        first.signal(number)
        note += f" {number.name}"
    codes = [child.wait(PATIENCE) for child in children]
    if None in codes:
        return Ending("hang", note)
    for child, code in zip(children, codes, strict=True):
        allowed = (0, 5, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
        if code not in allowed or (code >= 0 and "Traceback" in child.text()):
            return Ending("unnamed", f"{note}: exit code {code}: {child.text()[-200:]}")
    state = state_of(out)
    successful = {"4"} | ({"5"} if how == "two" else set())
    allowed_states = successful | ({"3"} if earlier else {"none"})
    if state not in allowed_states and not (how == "signal" and state.startswith("left")):
        return Ending("different", f"{note}: codes {codes}, the folder holds {state}")
    if state == "3" and _contents(out) != before:
        return Ending("different", f"{note}: the earlier result was changed")
    if how == "disk" and codes == [5] and earlier and state != "3":
        return Ending("different", f"{note}: the earlier result is gone")
    return _next_run(case, path, out, options, note)


def _contents(out: Path) -> dict[str, bytes]:
    if not out.exists():
        return {}
    return {p.name: p.read_bytes() for p in out.iterdir() if p.is_file() and "lock" not in p.name}


def _next_run(case: Case, path: Path, out: Path, options: tuple[str, ...], note: str) -> Ending:
    """The next run works, and leaves nothing of the one that was disturbed."""
    child = Child(
        "attack.programs:command_line",
        _arguments(path, out, 4, *options),
        None,
        log=case.folder / "3.log",
    )
    code = child.wait(PATIENCE)
    state = state_of(out)
    if code == 0 and state.startswith("left"):
        return Ending("leftover", f"{note}: {state}")
    if code != 0 or state != "4":
        return Ending("different", f"{note}: next run {code}, {state} {child.text()[-200:]}")
    hidden = [n for n in os.listdir(case.folder) if n.startswith(".")]
    hidden += sorted(set(os.listdir(path.parent)) - {"x.npy"})
    if hidden:
        return Ending("leftover", f"{note}: {hidden}")
    return Ending("recovered", note, compared=True)


def _attack_command_pair(case: Case) -> Ending:
    """Three times two commands that write different files to a folder with an earlier result."""
    path, out = write_data(case, 800), case.folder / "out"
    run, held = "attack.programs:command_line", {"none"}
    for number in range(3):
        children = []
        for K, options in ((4, ()), (5, ("--no-report",))):
            log = case.folder / f"{number}-{K}.log"
            children.append(Child(run, _arguments(path, out, K, *options), None, log=log))
            time.sleep(float(case.rng.uniform(0, 0.2)))
        codes = [child.wait(PATIENCE) for child in children]
        if None in codes:
            return Ending("hang", "two commands with one folder")
        for child, code in zip(children, codes, strict=True):
            if code not in (0, 5) or "Traceback" in child.text():
                return Ending("unnamed", f"exit code {code}: {child.text()[-200:]}")
        held = {str(K) for K, code in zip((4, 5), codes, strict=True) if code == 0} or held
        state = state_of(out)
        if state not in held:
            return Ending("different", f"two commands: codes {codes}, the folder holds {state}")
        held = {state}
    return Ending("recovered", "two commands with one folder", compared=True)


# --- two fits with one checkpoint -----------------------------------------------------------------


def _attack_pair(case: Case) -> Ending:
    """Two processes with the same checkpoint: both are right, or one is refused by name."""
    path, options = write_data(case), case.pick(_OPTIONS)
    folder = case.folder / "saved"
    truth = case.folder / "truth.npz"
    programs.save(programs.fit(str(path), options, 4_000_000), str(truth))
    children, targets = [], []
    for number in range(2):
        targets.append(case.folder / f"{number}.npz")
        arguments = (str(path), str(folder), str(targets[-1]), options, 4_000_000)
        log = case.folder / f"{number}.log"
        children.append(Child("attack.programs:checkpointed", *arguments, log=log))
        time.sleep(float(case.rng.uniform(0, 0.1)))
    notes = []
    for child, target in zip(children, targets, strict=True):
        code = child.wait(PATIENCE)
        last = (child.text().strip().splitlines() or [""])[-1]
        if code is None:
            return Ending("hang", "two processes with one checkpoint")
        if code == 0 and not same_bits(target, truth):
            return Ending("different", "two processes with one checkpoint: other bits")
        if code != 0 and not last.startswith("conenmf.errors."):
            return Ending("unnamed", f"two processes with one checkpoint: {last[:250]}")
        notes.append("right" if code == 0 else last[:60])
    if "right" not in notes:
        return Ending("different", f"both were refused: {notes}")
    return Ending("recovered", f"{notes}", compared=True)


_OPTIONS_OF_KINDS: dict[str, Any] = {"seconds": 100.0, "batch": 5}
KINDS = (
    Kind(
        "checkpoint-kills",
        "kills",
        _attack_checkpoint,
        default=150,
        counted="signals",
        **_OPTIONS_OF_KINDS,
    ),
    Kind("command-faults", "kills", _attack_command, default=150, **_OPTIONS_OF_KINDS),
    Kind("command-pairs", "kills", _attack_command_pair, default=30, **_OPTIONS_OF_KINDS),
    Kind("checkpoint-pairs", "kills", _attack_pair, default=50, **_OPTIONS_OF_KINDS),
)

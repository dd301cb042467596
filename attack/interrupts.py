"""Ctrl-C at random moments of many fits in one process, and forks while others fit."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from . import programs
from .cases import Case, Ending, Kind
from .children import Child
from .kills import same_bits, write_data

PATIENCE = 30.0  # seconds in which a process that is done has to exit
_OPTIONS = (
    {"init": "random", "max_iter": 4, "tol": 0.0, "sketch": None},
    {"init": "cr1", "max_iter": 3, "tol": 0.0},
)


def _truth(case: Case, options: dict[str, Any]) -> tuple[Path, Path]:
    path, truth = write_data(case, 400), case.folder / "truth.npz"
    programs.save(programs.fit(str(path), options, 2_000_000), str(truth))
    return path, truth


def _attack_interrupts(case: Case) -> Ending:
    options = case.pick(_OPTIONS)
    path, truth = _truth(case, options)
    target = case.folder / "result.npz"
    child = Child(
        "attack.programs:interrupted_loop",
        *(str(path), str(target), options, 30),
        log=case.folder / "log",
    )
    ready, over = Path(f"{target}.ready"), Path(f"{target}.over")
    end = time.monotonic() + PATIENCE
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.005)
    sent = 0
    while sent < 40 and not over.exists() and child.poll() is None:
        time.sleep(float(case.rng.uniform(0, 0.03)))
        if not over.exists():
            sent += child.signal(signal.SIGINT)
    code = child.wait(PATIENCE)
    if code is None:
        return Ending("hang", f"the process does not exit after {sent} interrupts")
    if code == 130 and not over.exists():  # an interrupt outside of the fits
        return Ending("recovered", "ended by an interrupt", count=max(1, sent))
    if code != 0:
        return Ending("unnamed", f"exit code {code}: {child.text()[-250:]}")
    if not same_bits(target, truth):
        return Ending("different", f"other bits after {sent} interrupts", compared=True)
    return Ending("recovered", f"{sent} interrupts", compared=True, count=max(1, sent))


def _attack_forks(case: Case) -> Ending:
    options = case.pick(_OPTIONS)
    path, truth = _truth(case, options)
    target, forks = case.folder / "codes", 5
    pauses = case.rng.uniform(0, 0.02, forks).tolist()
    child = Child(
        "attack.programs:forking",
        *(str(path), str(target), options, forks, pauses),
        log=case.folder / "log",
    )
    code = child.wait(PATIENCE)
    if code is None:
        return Ending("hang", "a child that was forked during a fit does not end")
    if code != 0 or target.read_text().split() != ["0"] * forks:
        return Ending("unnamed", f"exit code {code}: {child.text()[-250:]}")
    for number in range(forks):
        if not same_bits(Path(f"{target}.{number}.npz"), truth):
            return Ending("different", "other bits in a child", compared=True)
    return Ending("recovered", f"{forks} forks", compared=True, count=forks)


_OPTIONS_OF_KINDS: dict[str, Any] = {"seconds": 60.0, "batch": 5}
KINDS = (
    Kind(
        "interrupts",
        "interrupts",
        _attack_interrupts,
        default=40,
        counted="interrupts",
        **_OPTIONS_OF_KINDS,
    ),
    Kind("forks", "forks", _attack_forks, default=100, counted="forks", **_OPTIONS_OF_KINDS),
)

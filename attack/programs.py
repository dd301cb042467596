"""What the children of `kills`, `interrupts` and `forks` run."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

import conenmf
from conenmf.solve.checkpoint import Checkpoint


def fit(path: str, options: dict[str, Any], max_memory: int) -> Any:
    """Fit a file."""
    V = conenmf.open_data(path, max_memory=max_memory, n_threads=2)
    return conenmf.factorize(V, 3, rng=np.random.default_rng(0), **options)


def save(result: Any, target: str) -> None:
    """Write factors, all or nothing."""
    np.savez(f"{target}.part.npz", W=result.W, H=np.array(result.H))
    os.replace(f"{target}.part.npz", target)


def checkpointed(
    path: str, folder: str, target: str, options: dict[str, Any], max_memory: int
) -> None:
    """A fit that is saved after every iteration."""
    checkpoint = Checkpoint(folder, every=0)
    save(fit(path, {**options, "checkpoint": checkpoint}, max_memory), target)


def command_line(arguments: list[str], max_file_bytes: int | None) -> None:
    """The command `conenmf`, on a disk that is full beyond so many bytes of a file."""
    if max_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    sys.argv = ["conenmf", *arguments]
    from conenmf.__main__ import run

    sys.exit(run())


def interrupted_loop(path: str, target: str, options: dict[str, Any], fits: int) -> None:
    """Fits that Ctrl-C may end at any moment, and a last one that has to be right."""
    Path(f"{target}.ready").touch()
    done = interrupts = 0
    while done < fits:
        try:
            while done < fits:
                fit(path, options, 2_000_000)
                done += 1
        except KeyboardInterrupt:
            interrupts += 1
            done += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path(f"{target}.over").write_text(str(interrupts))
    save(fit(path, options, 2_000_000), target)


def forking(
    path: str, target: str, options: dict[str, Any], forks: int, pauses: list[float]
) -> None:
    """Fork while threads fit; every child fits too.

    All is imported and compiled before: a child cannot finish what a thread of its parent began.
    """
    fit(path, options, 2_000_000)
    stop = threading.Event()

    def keep_fitting() -> None:
        while not stop.is_set():
            fit(path, options, 2_000_000)

    threads = [threading.Thread(target=keep_fitting) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(forks):
        stop.wait(pauses[number])
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                save(fit(path, options, 2_000_000), f"{target}.{number}.npz")
                code = 0
            finally:
                os._exit(code) if number % 2 else sys.exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    stop.set()
    for thread in threads:
        thread.join()
    Path(target).write_text(" ".join(map(str, codes)))

"""A long fit of counts in a file, killed twice and resumed; docs/large.md.

    python benchmarks/night.py [--samples 2e6] [--iterations 10] [--folder DIR] [--every 600]

It draws counts (200 features, about 5 % of them not zero) from 20 known components into a Zarr
store, and fits them with ``max_memory="2GB"`` and a checkpoint every ``every`` seconds. The process
of the fit is killed once within a pass and once while a checkpoint is written. Then a tenth of the
samples is fitted twice, with and without such kills, to compare the bits. The same command goes on
with what was interrupted. It prints a line of the table of the page: hours, passes, bytes read, the
peak of the memory of all processes without mapped files, the disk, and the largest angle.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import zarr
from measure import command, heading, row
from scipy.optimize import linear_sum_assignment

from conenmf import Factorization, factorize, open_data
from conenmf.scale.checkpoint import Checkpoint

F, K = 200, 20
CHUNK = 20_000
MEMORY = "2GB"


def components() -> np.ndarray:
    """Components (K, F), each on about 30 features."""
    rng = np.random.default_rng(0)
    drawn = rng.gamma(0.3, size=(K, F)) * (rng.random((K, F)) < 0.15)
    return drawn / drawn.sum(axis=1, keepdims=True)


def draw(start: int) -> np.ndarray:
    """The counts of a chunk of samples: 12 words each on average, from few components."""
    rng = np.random.default_rng([1, start])
    rates = rng.dirichlet(np.full(K, 0.1), CHUNK) @ components()
    return np.minimum(rng.poisson(12.0 * rates), 255).astype(np.uint8)


def write(path: Path, samples: int) -> None:
    """Draw the chunks that are not in the store yet."""
    shape, chunks = (samples, F), (CHUNK, F)
    if path.exists():
        X = zarr.open_array(path, mode="r+")
    else:
        X = zarr.create_array(path, shape=shape, chunks=chunks, dtype=np.uint8)
    for start in range(X.attrs.get("written", 0), samples, CHUNK):
        X[start : start + CHUNK] = draw(start)[: samples - start]
        X.attrs["written"] = start + CHUNK


def fit(folder: str, iterations: int, every: float) -> None:
    """Fit the store, or go on with its checkpoint; add a line to the log for each iteration."""
    place = Path(folder)
    V = open_data(place / "x.zarr", max_memory=MEMORY)

    def note(now: object) -> None:
        read = int(Path("/proc/self/io").read_text().split()[1])
        line = {"iteration": now.iteration, "error": now.relative_error, "read": read}
        with open(place / "log.jsonl", "a") as log:
            log.write(json.dumps(line | {"passes": V.passes, "time": time.time()}) + "\n")

    result = factorize(
        V,
        K,
        init="cr1",
        tol=0.0,
        max_iter=iterations,
        checkpoint=Checkpoint(place / "run", every=every),
        callback=note,
    )
    result.save(place / "result.npz")


def log_of(folder: Path) -> list[dict[str, float]]:
    """The lines that fits have logged."""
    log = folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def private_bytes(pid: int) -> int:
    """The memory of a process, without pages of files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def disk_bytes(folder: Path, pid: int) -> int:
    """What the files of a folder take, and those without a name that a process holds."""
    paths = [*folder.rglob("*"), *Path(f"/proc/{pid}/fd").glob("*")]
    total = 0
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        if path.is_file() and (folder in path.parents or status.st_nlink == 0):
            total += 512 * status.st_blocks
    return total


def is_time_to_kill(kind: str, folder: Path, log: list[dict[str, float]]) -> bool:
    """Whether a fit writes a checkpoint, or is half of a pass after a line of its log."""
    if kind == "checkpoint":
        return any((folder / "run").glob(".*.conenmf-part.*"))
    if len(log) < 3:
        return False
    return time.time() - log[-1]["time"] > (log[-1]["time"] - log[-2]["time"]) / 2


def supervise(folder: Path, iterations: int, every: float, kills: list[str]) -> tuple[int, int]:
    """Run fits until one ends, killing some; return the peaks of memory and disk."""
    kills = list(kills)
    memory = disk = 0
    options = [str(folder), str(iterations), str(every)]
    while not (folder / "result.npz").exists():
        process = subprocess.Popen([sys.executable, __file__, "--fit", *options])
        looked = 0.0
        while process.poll() is None:
            time.sleep(0.02)
            memory = max(memory, private_bytes(process.pid) + private_bytes(os.getpid()))
            if time.time() - looked > 10.0:
                looked = time.time()
                disk = max(disk, disk_bytes(folder, process.pid))
            if kills and is_time_to_kill(kills[0], folder, log_of(folder)):
                print(f"killed: {kills.pop(0)}", flush=True)
                process.send_signal(signal.SIGKILL)
        if process.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the fit ended with {process.returncode}")
    return memory, disk


def angle(W: np.ndarray) -> float:
    """The largest angle, in degrees, between a component drawn and the one found for it."""
    C = components()
    cosines = (C / np.linalg.norm(C, axis=1, keepdims=True)) @ (W / np.linalg.norm(W, axis=0))
    pairs = linear_sum_assignment(-cosines)
    return float(np.degrees(np.arccos(np.minimum(cosines[pairs], 1.0))).max())


def night(
    samples: float = 2e6, iterations: int = 10, folder: Path = Path("night"), every: float = 600.0
) -> None:
    """One long fit with two kills, and the comparison of bits on a tenth."""
    kills = ["pass", "checkpoint"]
    whole, tenth, quiet = (folder / name for name in ("whole", "tenth", "tenth-unkilled"))
    for place, share, some in ((whole, 1, kills), (tenth, 10, kills), (quiet, 10, [])):
        place.mkdir(parents=True, exist_ok=True)
        write(place / "x.zarr", int(samples) // share)
        memory, disk = supervise(place, iterations, every / share, some)
        if share == 1:
            peaks = memory, disk
    one, other = (Factorization.load(place / "result.npz") for place in (tenth, quiet))
    same = np.array_equal(one.W, other.W) and np.array_equal(one.H, other.H)
    found = Factorization.load(whole / "result.npz")
    log = log_of(whole)
    hours = (log[-1]["time"] - log[0]["time"]) / 3600
    heading(
        *("samples", "hours", "passes of the last process", "GB read by it", "peak, GB"),
        *("disk, GB", "error", "largest angle", "same bits on a tenth"),
    )
    gigabytes = (log[-1]["read"] / 1e9, *(peak / 1e9 for peak in peaks))
    row(
        int(samples),
        hours,
        log[-1]["passes"],
        *gigabytes,
        found.relative_error,
        angle(found.W),
        same,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        fit(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        command(__doc__, night)

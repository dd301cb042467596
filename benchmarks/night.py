"""Long fits of counts in a file, killed twice and resumed; docs/large.md.

    python benchmarks/night.py [--samples 1e5 1e6 2e7] [--iterations 10] [--folder DIR]
        [--every 600] [--write]

For each number of samples it draws counts (200 features, about 6 % of them not zero) from 20 known
components into a Zarr store, and fits them with ``max_memory="2GB"`` and a checkpoint every
``every`` seconds at 10^8 samples, and in proportion. The process of the fit is killed once within a
pass, and once while a checkpoint replaces another. The init is cr1-nmf with ``method="one-pass"``,
which docs/large.md advises for very many chunks. Then a tenth of the samples is fitted twice,
with and without such kills, to compare the bits.

The same command goes on with what was interrupted, and knows what was measured before. The folder
must be on a disk. A line of the table has: seconds of all processes of the fit by the clock and of
CPU, passes, bytes that system calls read (the store; mapped coefficients are not counted), the peak
of the private memory of all processes together and of their memory with mapped files, the peak of
the disk with temporary files, the longest checkpoint, and the largest angle between a component
drawn and the one found. ``--write`` puts the table into docs/large.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil
import zarr
from measure import command
from scipy.optimize import linear_sum_assignment

from conenmf import cr1_nmf, factorize, open_data
from conenmf.scale.checkpoint import Checkpoint

F, K = 200, 20
CHUNK = 20_000
MEMORY = "2GB"
FULL = 1e8  # samples, for which `every` is meant
LOOK_SECONDS = 0.005
PAGE = Path(__file__).parents[1] / "docs" / "large.md"
BEGIN, END = "<!-- benchmarks/night.py: begin -->", "<!-- benchmarks/night.py: end -->"


# --- the data ---------------------------------------------------------------------------------


def components() -> np.ndarray:
    """Components (K, F), each on about 6 features."""
    rng = np.random.default_rng(0)
    drawn = rng.gamma(1.0, size=(K, F)) * (rng.random((K, F)) < 0.03)
    return drawn / drawn.sum(axis=1, keepdims=True)


def draw(start: int) -> np.ndarray:
    """The counts of a chunk of samples: 60 events each on average, from few components."""
    rng = np.random.default_rng([1, start])
    rates = rng.dirichlet(np.full(K, 0.05), CHUNK) @ components()
    return np.minimum(rng.poisson(60.0 * rates), 255).astype(np.uint8)


def write_store(path: Path, samples: int) -> None:
    """Draw the chunks that are not in the store yet."""
    if path.exists():
        X = zarr.open_array(path, mode="r+")
    else:
        X = zarr.create_array(path, shape=(samples, F), chunks=(CHUNK, F), dtype=np.uint8)
    for start in range(X.attrs.get("written", 0), samples, CHUNK):
        X[start : start + CHUNK] = draw(start)[: samples - start]
        X.attrs["written"] = start + CHUNK


# --- the process of the fit -------------------------------------------------------------------


def one_pass(V: object, K: int, rng: object) -> tuple[np.ndarray, None]:
    """The init: cr1-nmf, which keeps no score for each sample in memory."""
    return cr1_nmf(V, K, method="one-pass", rng=rng)[0], None


def fit(store: str, run: str, iterations: int, every: float) -> None:
    """Fit the store, or go on with its checkpoint; add a line to the log for each iteration."""
    V = open_data(store, max_memory=MEMORY)

    def note(now: object) -> None:
        line = {"iteration": now.iteration, "error": now.relative_error, "passes": V.passes}
        with open(Path(run) / "log.jsonl", "a") as log:
            log.write(json.dumps(line | {"process": os.getpid(), "time": time.time()}) + "\n")

    result = factorize(
        V,
        K,
        init=one_pass,
        tol=0.0,
        max_iter=iterations,
        checkpoint=Checkpoint(Path(run) / "checkpoint", every=every),
        callback=note,
    )
    result.save(Path(run) / "result.npz")


# --- the process that watches it --------------------------------------------------------------


@dataclass
class Watch:
    """What was measured of the fits of a run; it is kept in a file, for a watch that goes on."""

    seconds: float = 0.0
    cpu: float = 0.0
    read: float = 0.0
    private: float = 0.0
    resident: float = 0.0
    disk: float = 0.0
    checkpoint: float = 0.0
    kills: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: Path) -> Watch:
        """The watch that was kept, or a new one."""
        return cls(**json.loads(file.read_text())) if file.exists() else cls()

    def keep(self, file: Path) -> None:
        """Write the watch to its file, whole."""
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(file)

    def look(self, processes: list[psutil.Process]) -> None:
        """Note the memory of all processes together."""
        private, resident = np.sum([memory_of(one) for one in processes], axis=0).tolist()
        self.private = max(self.private, private)
        self.resident = max(self.resident, resident)


def memory_of(process: psutil.Process) -> tuple[int, int]:
    """The memory of a process without and with pages of files on a disk."""
    found = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.startswith("Rss"):
                found[name] = 1024 * int(value.split()[0])
    private = found.get("RssAnon", 0) + found.get("RssShmem", 0)  # files in memory count
    return private, private + found.get("RssFile", 0)


def disk_bytes(folder: Path) -> int:
    """What the files of a folder take."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += 512 * path.stat().st_blocks
    return total


def unnamed_bytes(processes: list[psutil.Process]) -> int:
    """What the files without a name take that processes hold."""
    files = {}
    for process in processes:
        for path in Path(f"/proc/{process.pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                state = path.stat()
                if state.st_nlink == 0:
                    files[state.st_dev, state.st_ino] = 512 * state.st_blocks
    return sum(files.values())


def log_of(run: Path) -> list[dict[str, float]]:
    """The lines that fits have logged; the last one may be half written."""
    log = run / "log.jsonl"
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def parts_of(run: Path) -> set[Path]:
    """The checkpoints that are being written, or that a killed process began."""
    return set((run / "checkpoint").glob(".*.conenmf-part.*"))


def has_saved(run: Path) -> bool:
    """Whether there is a checkpoint."""
    return any((run / "checkpoint").glob("0*"))


def is_time_to_kill(kind: str, run: Path, process: int, is_saving: bool) -> bool:
    """Whether a fit that has a checkpoint is half of a pass further, or replaces the checkpoint."""
    if not has_saved(run) or is_saving != (kind == "checkpoint"):
        return False
    if is_saving:
        return True
    times = [line["time"] for line in log_of(run) if line["process"] == process]
    return len(times) > 1 and time.time() - times[-1] > (times[-1] - times[-2]) / 2


def watch(store: Path, run: Path, options: list[str], kinds: list[str]) -> Watch:
    """Run fits until one ends, kill some, and measure them."""
    run.mkdir(parents=True, exist_ok=True)
    file = run / "watch.json"
    found = Watch.of(file)
    in_store = disk_bytes(store)
    while not (run / "result.npz").exists():
        left = parts_of(run)
        process = psutil.Popen([sys.executable, __file__, "--fit", str(store), str(run), *options])
        began = looked = time.time()
        before = found.seconds, found.cpu, found.read
        saving = None
        family = [psutil.Process(), process]
        try:
            while process.poll() is None:
                time.sleep(LOOK_SECONDS)
                found.look(family)
                is_saving = not parts_of(run) <= left
                saving = (saving or time.time()) if is_saving else None
                found.checkpoint = max(found.checkpoint, time.time() - (saving or time.time()))
                due = kinds[len(found.kills) : len(found.kills) + 1]
                kill = bool(due) and is_time_to_kill(due[0], run, process.pid, is_saving)
                if kill or time.time() - looked > 20 * LOOK_SECONDS:
                    looked = time.time()
                    with contextlib.suppress(psutil.Error):
                        family = [psutil.Process(), process, *process.children(recursive=True)]
                        used, read = process.cpu_times(), process.io_counters().read_chars
                        found.cpu = before[1] + used.user + used.system
                        found.read = before[2] + read
                    found.seconds = before[0] + looked - began
                    on_disk = in_store + disk_bytes(run) + unnamed_bytes(family)
                    found.disk = max(found.disk, on_disk)
                    found.keep(file)
                if kill:
                    process.kill()
                    process.wait()
                    found.kills += due
                    found.keep(file)
                    last = log_of(run)[-1]["iteration"]
                    tell(f"{run.name}: killed in a {due[0]} after iteration {last}")
        finally:
            if process.poll() is None:
                process.kill()
        if process.returncode != 0 and (not found.kills or process.returncode != -9):
            raise RuntimeError(f"the fit ended with {process.returncode}")
    return found


def tell(text: str) -> None:
    """Print a line with the time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


# --- the table --------------------------------------------------------------------------------


def angle(W: np.ndarray) -> float:
    """The largest angle, in degrees, between a component drawn and the one found for it."""
    C = components()
    cosines = (C / np.linalg.norm(C, axis=1, keepdims=True)) @ (W / np.linalg.norm(W, axis=0))
    pairs = linear_sum_assignment(-cosines)
    return float(np.degrees(np.arccos(np.minimum(cosines[pairs], 1.0))).max())


def digests(result: Path) -> list[str]:
    """Digests of W and H in the file of a result, which may be larger than memory."""
    found = []
    with zipfile.ZipFile(result) as archive:
        for name in ("W.npy", "H.npy"):
            with archive.open(name) as member:
                found.append(hashlib.file_digest(member, "blake2b").hexdigest())
    return found


def lines_of(measured: dict[int, tuple[Watch, int, float, float, bool]]) -> Iterator[str]:
    """The lines of the table, and what follows for more samples if all grows in proportion."""
    names = (
        *("samples", "hours", "CPU hours", "passes", "GB read", "private peak, GB"),
        *("with mapped files, GB", "disk, GB", "longest checkpoint, s", "error"),
        *("largest angle", "kills", "same bits on a tenth"),
    )
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for samples, (found, passes, error, degrees, same) in measured.items():
        cells = [
            *(
                f"{samples:,}",
                f"{found.seconds / 3600:.3g}",
                f"{found.cpu / 3600:.3g}",
                f"{passes:.1f}",
            ),
            *(f"{number / 1e9:.3g}" for number in (found.read, found.private)),
            *(f"{number / 1e9:.3g}" for number in (found.resident, found.disk)),
            *(f"{found.checkpoint:.3g}", f"{error:.4f}", f"{degrees:.2f}°"),
            *(", ".join(found.kills), "yes" if same else "no"),
        ]
        yield f"| {' | '.join(map(str, cells))} |"
    found, passes = measured[samples][:2]
    for more in (10**8, 10**9):
        if more > samples:
            times = more / samples
            cells = [
                *(f"{more:,}, extrapolated", f"{times * found.seconds / 3600:.3g}"),
                *(
                    f"{times * found.cpu / 3600:.3g}",
                    f"{passes:.1f}",
                    f"{times * found.read / 1e9:.3g}",
                ),
                *("the same", "", f"{times * found.disk / 1e9:.3g}"),
                *(f"{times * found.checkpoint:.3g}", "", "", "", ""),
            ]
            yield f"| {' | '.join(map(str, cells))} |"


def check_disk(folder: Path) -> None:
    """Refuse a folder whose files are in memory."""
    kinds = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    kind = next(kinds[place] for place in (folder, *folder.parents) if place in kinds)
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{folder} is in memory ({kind}): pass --folder on a disk")


def night(
    samples: tuple[float, ...] = (1e5, 1e6, 2e7),
    iterations: int = 10,
    folder: Path = Path("night"),
    every: float = 600.0,
    write: bool = False,
) -> None:
    """Long fits with two kills each, and the comparison of bits on a tenth."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    check_disk(folder)
    kinds = ["pass", "checkpoint"]
    measured = {}
    for N in sorted(map(int, samples)):
        watches = {}
        for n, name, kills in (
            (N, f"{N}", kinds),
            (N // 10, f"{N}-tenth", kinds),
            (N // 10, f"{N}-tenth-unkilled", []),
        ):
            store = folder / f"x-{n}.zarr"
            write_store(store, n)
            tell(f"{name}: fit")
            options = [str(iterations), str(every * n / FULL)]
            watches[name] = watch(store, folder / name, options, kills)
        whole, one, other = (folder / name / "result.npz" for name in watches)
        log = log_of(folder / f"{N}")
        passes = {line["process"]: line["passes"] for line in log}
        with np.load(whole) as result:
            degrees = angle(result["W"])
        same = digests(one) == digests(other)
        measured[N] = watches[f"{N}"], sum(passes.values()), log[-1]["error"], degrees, same
        lines = list(lines_of(measured))
        print("\n".join(lines), flush=True)
    if write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        text = "\n".join([*lines, ""])
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        fit(*sys.argv[2:4], int(sys.argv[4]), float(sys.argv[5]))
    else:
        command(__doc__, night)

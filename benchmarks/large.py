"""Large data: a file larger than memory beside merely reading it, and Dask; docs/large.md.

    python benchmarks/large.py file [--gigabytes 8] [--limit 1GB] [--folder DIR]
    python benchmarks/large.py cluster [--samples 80000] [--rounds 3]

``file`` writes a float32 file of cones and prints the seconds of a pass (K = 20, cr1, 10 iterations
of hals) in a process whose private memory is limited, beside those of reading the file once.
``cluster`` prints wall seconds of a fit (cones, F = 1600, K = 40, cr1, 20 iterations of hals) with
threads, one worker and two, in turn.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from measure import command, cones, heading, in_turn, output_of, row, timed

from conenmf import factorize, from_rows, open_data
from conenmf.data.matrix import DataMatrix

F = 2000
BUFFER = 16 << 20
TEMPORARY = Path(tempfile.gettempdir())


def write(path: Path, N: int) -> None:
    """Write samples of cones to a file, some at a time, each with a random norm."""
    rows, rng = cones(F, 8000, 20).astype(np.float32), np.random.default_rng(1)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (N, F))
    for start in range(0, N, len(rows)):
        part = rows[: N - start]
        X[start : start + len(part)] = part * (rng.random((len(part), 1)) + 0.5)
    X.flush()


def read(path: Path) -> None:
    """Read the file once, from the disk, into one buffer."""
    buffer = bytearray(BUFFER)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # not from the page cache
        while file.readinto(buffer):
            pass
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fit_within(path: str, limit: str) -> None:
    """Fit with limited private memory; print seconds, passes, error and peak memory."""
    n_bytes = int(float(limit.removesuffix("GB")) * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))
    V = open_data(path, max_memory=limit)
    options = {"init": "cr1", "solver": "hals", "max_iter": 10, "tol": 0}
    seconds, result = timed(lambda: factorize(V, 20, **options), time.perf_counter)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, V.passes, result.relative_error, peak / 1024)


def file(gigabytes: float = 8.0, limit: str = "1GB", folder: Path = TEMPORARY) -> None:
    """A fit of a file with limited memory, beside reading it."""
    path = folder / "conenmf-large.npy"
    write(path, int(gigabytes * 1e9 / (4 * F)))
    program = f"import large; large.fit_within({str(path)!r}, {limit!r})"
    try:
        before = timed(lambda: read(path), time.perf_counter)[0]
        seconds, passes, error, peak = map(float, output_of(program).split())
        once = min(before, timed(lambda: read(path), time.perf_counter)[0])
    finally:
        path.unlink()
    heading(
        "GB", "limit", "read once, s", "fit, s", "passes", "error", "peak, MB", "pass / reading"
    )
    row(gigabytes, limit, once, seconds, passes, error, peak, seconds / passes / once)


def fit_on(client: Client, V: DataMatrix) -> float:
    """Fit with a client as the current one, and return the error."""
    with client.as_current():
        return factorize(V, 40, init="cr1", max_iter=20, tol=0).relative_error


def cluster(samples: int = 80_000, rounds: int = 3) -> None:
    """A fit with threads, and with workers of Dask."""
    X = cones(1600, samples, 40)
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=1, **options) as one,
        LocalCluster(n_workers=2, **options) as two,
        Client(one) as first,
        Client(two) as second,
    ):
        in_memory = from_rows(X, n_threads=2)
        runs = {"threads": lambda: fit_on(first, in_memory)}
        for name, client in (("1 worker", first), ("2 workers", second)):
            with client.as_current():
                V = from_rows(da.from_array(X, chunks=(-(-samples // 8), -1)), persist=True)
            runs[name] = lambda client=client, V=V: fit_on(client, V)
        heading("on", "seconds", "error")
        for name, (seconds, error) in in_turn(runs, rounds, time.perf_counter).items():
            row(name, seconds, f"{error:.12f}")


if __name__ == "__main__":
    command(__doc__, file, cluster)

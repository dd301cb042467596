"""A file larger than memory: time against merely reading it, under an enforced memory limit.

    python benchmarks/out_of_core.py [--gigabytes 8] [--limit 1GB] [--folder DIR]

Writes a float32 file of cones, then runs two kinds of processes in turn, each limited to the
same memory by a control group (where the system lets us make one, otherwise by the limit on
private memory of the process): one that only reads the file, and one that factors it (K = 20,
cr1 and 10 iterations of hals). Prints seconds per pass of both, their ratio, and peak memory.
The file is kept for another run if --keep is given.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from conenmf import factorize, make_cones, open_data
from conenmf.atomic import written_whole
from conenmf.data.resources import memory_budget

F, K = 2000, 20
BLOCK = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--limit", default="1GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--child", choices=["read", "fit"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    path = arguments.folder / f"conenmf-out-of-core-{arguments.gigabytes:g}.npy"
    if arguments.child:
        print(json.dumps({"read": read, "fit": fit}[arguments.child](path, arguments.limit)))
        return
    if not path.exists():
        write(path, int(arguments.gigabytes * 1e9 / (4 * F)))
    try:
        compare(path, arguments)
    finally:
        if not arguments.keep:
            path.unlink()


def write(path: Path, N: int) -> None:
    """Cones, block by block, under a temporary name until it is complete."""
    model = make_cones(F, K, 0.2, n_samples=8000, rng=np.random.default_rng(0))
    rows = model.V.T.astype(np.float32)
    with written_whole(path) as file:
        facts = {"descr": "<f4", "fortran_order": False, "shape": (N, F)}
        np.lib.format.write_array_header_2_0(file, facts)
        rng = np.random.default_rng(1)
        for start in range(0, N, len(rows)):
            noise = rng.random((len(rows), 1), dtype=np.float32) + np.float32(0.5)
            file.write((rows * noise)[: N - start].tobytes())


def forget(path: Path) -> None:
    """Drop the file from the page cache, where other processes may have left it."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path, limit: str) -> dict[str, float]:
    """Read the file once, into one buffer."""
    buffer = bytearray(BLOCK)
    began = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return {"seconds": time.perf_counter() - began, "passes": 1.0, "peak": peak()}


def fit(path: Path, limit: str) -> dict[str, float]:
    began = time.perf_counter()
    V = open_data(path, max_memory=limit)
    opened = time.perf_counter() - began
    result = factorize(V, K, init="cr1", solver="hals", max_iter=10, tol=0)
    return {
        "seconds": time.perf_counter() - began,
        "passes": V.passes,
        "peak": peak(),
        "error": result.relative_error,
        "opened": opened,
        **{f"{name}_seconds": value for name, value in result.seconds.items()},
        "iteration": float(np.median(np.diff(result.history.elapsed))),
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def compare(path: Path, arguments: argparse.Namespace) -> None:
    limit = memory_budget(arguments.limit)
    group = control_group(limit)
    how = f"control group {group}" if group else "limit on private memory (RLIMIT_DATA)"
    size = path.stat().st_size
    print(f"{size / 1e9:.2f} GB float32, F={F}, K={K}; limit {limit / 1e9:g} GB by {how}")

    def run(kind: str) -> dict[str, float]:
        forget(path)

        def limit_child() -> None:
            if group:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            else:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        command = [sys.executable, __file__, "--child", kind, "--limit", arguments.limit]
        command += ["--gigabytes", str(arguments.gigabytes), "--folder", str(arguments.folder)]
        done = subprocess.run(
            command, preexec_fn=limit_child, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{kind} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)

    reads = [run("read"), run("read")]
    fitting = run("fit")
    reads += [run("read"), run("read")]
    if group:
        group.rmdir()
    reading = min(one["seconds"] for one in reads)  # the fastest: the hardest to stand beside
    print("reading once: ", ", ".join(f"{one['seconds']:.1f}" for one in reads), "s")
    print(
        f"factoring:     {fitting['seconds']:.1f} s, {fitting['passes']:.2f} passes, "
        f"relative error {fitting['error']:.4f}"
    )
    for name in ("opened", "start_seconds", "solve_seconds", "finish_seconds", "iteration"):
        print(f"    {name:16s} {fitting[name]:8.1f} s")
    print(f"a pass / the fastest reading: {fitting['seconds'] / fitting['passes'] / reading:.2f}")
    print(f"peak resident memory: {fitting['peak'] / 1e6:.0f} MB")


def control_group(limit: int) -> Path | None:
    """A new control group with this limit, in either version of the system's interface."""
    name = f"conenmf-{os.getpid()}"
    for parent, file in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(parent) / name
        try:
            group.mkdir()
            (group / file).write_text(str(limit))
            (group / "cgroup.procs").read_text()
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        return group
    return None


if __name__ == "__main__":
    main()

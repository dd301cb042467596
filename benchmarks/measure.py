"""How the benchmarks measure: contenders in turn, peak memory, exact errors, slopes.

The short sleeps before each contender let the threads of BLAS, which spin after a call, come to
rest.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "torch", "torchnmf", "tensorly")
ROWS = 1000  # of a reconstruction at a time


def take_turns(
    contenders: dict[str, Callable[[], Any]],
    rounds: int,
    record: Callable[[str, float, Any], None],
) -> None:
    """Run each contender once per round; `record` gets its name, seconds and result, untimed."""
    for _ in range(rounds):
        for name, run in contenders.items():
            time.sleep(0.1)
            began = time.perf_counter()
            result = run()
            seconds = time.perf_counter() - began
            record(name, seconds, result)


def interleaved(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each contender, timed in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    take_turns(contenders, rounds, lambda name, seconds, _: times[name].append(seconds))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def size_in_bytes(X: Any) -> int:
    """What a dense array, or a compressed sparse one, takes in memory."""
    if sp.issparse(X):
        return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    return X.nbytes


def relative_error(X: Any, A: np.ndarray, C: np.ndarray) -> float:
    """||X - A C|| / ||X|| in float64; for sparse X by the expanded square, never as a whole."""
    A, C = A.astype(np.float64, copy=False), C.astype(np.float64, copy=False)
    if sp.issparse(X):
        X = X.astype(np.float64)
        total = float(X.data @ X.data)
        squared = total - 2.0 * float(np.vdot(X @ C.T, A)) + float(np.vdot(A.T @ A, C @ C.T))
        return float(np.sqrt(max(squared, 0.0) / total))
    squared = total = 0.0
    for start in range(0, X.shape[0], ROWS):
        rows = X[start : start + ROWS].astype(np.float64, copy=False)
        total += float(np.vdot(rows, rows))
        difference = rows - A[start : start + ROWS] @ C
        squared += float(np.vdot(difference, difference))
    return float(np.sqrt(squared / total))


def slope(sizes: list[float], values: list[float]) -> float:
    """The exponent p of the power law values ~ sizes^p, by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def output_of(program: str) -> str:
    """What a program prints in a fresh interpreter that can import the benchmarks."""
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", setup + program],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a measured program failed:\n{done.stderr[-2000:]}")
    return done.stdout


def can_measure_memory() -> bool:
    return Path("/proc/self/clear_refs").exists()


def peak_memory(setup: str, load: str, run: str) -> float:
    """Bytes at the peak of `run` beyond what the process had before `load`.

    The three are programs, run one after the other in a fresh process; `setup` should import and
    warm up all that `run` needs.
    """
    return float(
        output_of(f"""
def status(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024
{setup}
before = status("VmRSS")
{load}
open("/proc/self/clear_refs", "w").write("5")
{run}
print(status("VmHWM") - before)
""")
    )


def save_matrix(X: Any, folder: str | Path) -> str:
    """Write X into the folder; return the program that loads it as X."""
    path = str(Path(folder) / "X")
    if sp.issparse(X):
        sp.save_npz(f"{path}.npz", X, compressed=False)
        return f"import scipy.sparse\nX = scipy.sparse.load_npz({f'{path}.npz'!r})"
    np.save(f"{path}.npy", X)
    return f"import numpy\nX = numpy.load({f'{path}.npy'!r})"


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that take part, None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("conenmf", *PACKAGES):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, str | int | None]:
    """The processor and the number of cores; nothing that names the machine."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), None)
    return {"system": platform.system(), "cores": os.cpu_count(), "processor": model}

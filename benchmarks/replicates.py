"""What many fits cost together: over the sum of the same fits alone, in memory and from a file.

    python benchmarks/replicates.py
    python benchmarks/replicates.py --runs 20 --loss frobenius

The time of `stability` over that of the same runs one after the other, for each way in which runs
may differ. From a compressed file, which is unpacked in every pass, also how often it is read: by
all runs together, and by the slowest run alone. Reading dominates for least squares, of numbers
that hardly compress; where counts are drawn again, and for the Poisson loss, steps take longer.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from conenmf import factorize, from_columns, open_data, stability
from conenmf.data.matrix import DataMatrix
from conenmf.data.resample import bootstrapped, redrawn
from conenmf.data.together import is_in_memory
from conenmf.data.views import take_samples
from conenmf.solve.losses import get_loss

DRAWS: dict[str, Callable[[DataMatrix, np.random.Generator, str], DataMatrix]] = {
    "start": lambda V, rng, loss: V,
    "samples": lambda V, rng, loss: bootstrapped(V, rng, degree=get_loss(loss).degree),
    "counts": lambda V, rng, loss: redrawn(V, rng),
}
K = 5


def counts(F: int, N: int) -> np.ndarray:
    """Counts (F, N) of K components."""
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(F, 0.3), K).T @ rng.gamma(0.5, 20 * F / K, (K, N))
    return rng.poisson(rates).astype(np.float32)


def measured(V: DataMatrix, call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and passes over V."""
    passes, began = V.passes, time.perf_counter()
    call()
    return time.perf_counter() - began, V.passes - passes


def compare(V: DataMatrix, n_runs: int, loss: str, resample: str, max_iter: int) -> str:
    options = {"loss": loss, "tol": 0.0, "max_iter": max_iter}
    is_held = resample != "start" and is_in_memory(V)

    def alone(rng: np.random.Generator, **changed: Any) -> None:
        data = DRAWS[resample](V, rng, loss)
        if is_held:
            data = take_samples(data, np.arange(V.shape[1]))
        factorize(data, K, init="random", sketch=None, rng=rng, **options | changed)

    alone(np.random.default_rng(1), max_iter=1)  # compiles
    stability(V, K, 2, resample=resample, **options | {"max_iter": 1})
    together, passes = measured(V, lambda: stability(V, K, n_runs, resample=resample, **options))
    each = [
        measured(V, lambda rng=rng: alone(rng)) for rng in np.random.default_rng(0).spawn(n_runs)
    ]
    total, most = sum(seconds for seconds, _ in each), max(passes for _, passes in each)
    reading = f"; passes {passes:.0f} and {most:.0f}: {passes / most:.2f}"
    return (
        f"{loss:<9}  {resample:<7}  {together:7.2f} s together, {total:7.2f} s one by one: "
        f"{together / total:.2f}{'' if is_in_memory(V) else reading}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--loss", nargs="+", default=["frobenius", "poisson"])
    parser.add_argument("--resample", nargs="+", default=list(DRAWS), choices=list(DRAWS))
    parser.add_argument("--only", choices=["memory", "file"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for loss in options.loss:
            for place in ("memory", "file"):
                for resample in options.resample:
                    if options.only in (None, place):
                        V, max_iter = data(Path(folder), place, loss, resample)
                        line = compare(V, options.runs, loss, resample, max_iter)
                        F, N = V.shape
                        print(f"{place:<6}  {F:>4} x {N:<4}  {line}", flush=True)


def data(folder: Path, place: str, loss: str, resample: str) -> tuple[DataMatrix, int]:
    """The matrix, and how many iterations each run makes."""
    if place == "memory":
        return from_columns(counts(200, 1000)), 40
    if loss == "frobenius" and resample != "counts":
        X = np.random.default_rng(0).random((1500, 1000)) + counts(1000, 1500).T
    else:
        X = counts(200, 500).T
    path = folder / f"{len(X)}.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            file.create_dataset("X", data=X, chunks=(25, X.shape[1]), compression="gzip")
    return open_data(f"{path}:/X", max_memory="40MB"), 25


if __name__ == "__main__":
    main()

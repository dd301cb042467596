"""A million cells from a file to programs in one command: wall time, peak memory, and the truth.

    python benchmarks/cells_at_scale.py [--cells 1000000] [--folder DIR] [--runs 10] [--keep]

Writes an .h5ad file of cells x 2000 genes, drawn from 20 programs (`drawn_cells`) as it is written,
about 140 nonzeros per cell. Then runs ``conenmf cells FILE -k 20 --runs 10 --max-memory 2GB`` as a
process of its own, and prints its wall time, CPU time and peak resident memory, which counts what
the process holds and not what the system caches of files; and the cosines of the programs with the
truth. The goal for a million cells on two cores is 60 minutes and 4 GB.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from drawn_cells import draw_model, write_cells

from conenmf.judge.scores import match_components

N_GENES, K, DEPTH = 2000, 20, 160.0
GOAL_MINUTES, GOAL_GB = 60, 4
SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--max-memory", default="2GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", action="store_true", help="keep the file for another run")
    options = parser.parse_args()
    model = draw_model(N_GENES, K, DEPTH, np.random.default_rng(SEED))
    path = options.folder / f"conenmf-cells-{options.cells}.h5ad"
    if not path.exists():
        began = time.perf_counter()
        entries = write_cells(path, model, options.cells, np.random.default_rng(SEED + 1))
        seconds = time.perf_counter() - began
        print(f"drawn: {options.cells} cells x {N_GENES} genes, {entries:.3g} nonzeros, ", end="")
        print(f"{path.stat().st_size / 1e9:.2f} GB, {seconds:.0f} s", flush=True)
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            measure(path, Path(folder), model.spectra, options)
    finally:
        if not options.keep:
            path.unlink()


def measure(path: Path, folder: Path, truth: np.ndarray, options: argparse.Namespace) -> None:
    """Run the command, and print what it took and what it found."""
    command = [sys.executable, "-m", "conenmf", "cells", str(path), "-k", str(K), "--quiet"]
    command += ["--runs", str(options.runs), "--max-memory", options.max_memory]
    command += ["-o", str(folder / "programs"), "--name", "cells"]
    print(" ".join(["conenmf", *command[3:-4]]), flush=True)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the command failed with status {status}")
    minutes = (time.perf_counter() - began) / 60
    cpu, gigabytes = (usage.ru_utime + usage.ru_stime) / 60, usage.ru_maxrss * 1024 / 1e9
    print("\n".join(answer.splitlines()[-4:-1]))
    print(f"{minutes:.1f} minutes (goal at most {GOAL_MINUTES}), {cpu:.1f} minutes of CPU time")
    print(f"peak resident memory {gigabytes:.2f} GB (goal at most {GOAL_GB})")
    cosines = cosines_with_truth(folder / "programs", truth)
    print(f"cosine with the truth: mean {cosines.mean():.4f}, least {cosines.min():.4f}")


def cosines_with_truth(folder: Path, truth: np.ndarray) -> np.ndarray:
    """Of spectra of all genes in counts per million, over the mean of each gene."""
    table = next(folder.glob("*.gene_spectra_tpm.*.txt"))
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t"))[1:]
    spectra = np.array([row[1:] for row in rows], dtype=float).T
    size = np.sqrt(truth.mean(axis=1))[:, None]
    return match_components(truth / size, spectra / size)[1]


if __name__ == "__main__":
    main()

"""Programs of drawn cells, beside those of PyPI's cnmf: cosines with the truth, and time.

    python benchmarks/cells.py [--cnmf PYTHON] [--cells 5000] [--seeds 1 2 3 4 5 6]

Cells are drawn from 7 programs (`drawn_cells`): 3000 genes, about 1000 counts per cell. Both read
the same .h5ad file, choose 2000 genes, make 20 replicates from random inits, form the consensus
with a density threshold of 0.5 and write their tables; in turn, each in a process of its own with
one thread and one worker, whose imports are not counted. `--cnmf` names the Python of an
environment with the package cnmf, if this one does not have it. The cosine is the mean over
programs, matched one to one with the truth: of the consensus spectra of chosen genes in units of
their deviation, and of the spectra of all genes in TPM. Constants were chosen with the odd seeds;
the even ones are marked with a star. They are no clean hold-out: an earlier version was run on all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from drawn_cells import draw_model, write_cells

from conenmf.judge.scores import match_components

N_GENES, K, DEPTH, N_CHOSEN, RUNS = 3000, 7, 1000.0, 2000, 20
OURS = """
import json, sys, time
from conenmf import find_programs, kernels, open_data
from conenmf.cells.tables import write_programs
import sklearn.cluster, sklearn.metrics
assert kernels.AVAILABLE  # numba is imported
file, folder = sys.argv[1:]
clock = time.perf_counter(), time.process_time()
V = open_data(file, n_threads=1)
programs = find_programs(V, {K}, {RUNS}, n_genes={N_CHOSEN})
write_programs(programs, folder + "/run", "run")
print(json.dumps([time.perf_counter() - clock[0], time.process_time() - clock[1]]))
"""
THEIRS = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
from cnmf import cNMF
file, folder = sys.argv[1:]
clock = time.perf_counter(), time.process_time()
model = cNMF(output_dir=folder, name="run")
model.prepare(counts_fn=file, components=[{K}], n_iter={RUNS}, seed=14,
              num_highvar_genes={N_CHOSEN})
model.factorize(worker_i=0, total_workers=1)
model.combine()
model.consensus(k={K}, density_threshold=0.5, show_clustering=False)
print(json.dumps([time.perf_counter() - clock[0], time.process_time() - clock[1]]))
"""
TABLES = {
    "spectra": f"run/run.spectra.k_{K}.dt_0_5.consensus.txt",
    "tpm": f"run/run.gene_spectra_tpm.k_{K}.dt_0_5.txt",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cnmf", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--cells", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6])
    options = parser.parse_args()
    if subprocess.run([options.cnmf, "-c", "import cnmf"], capture_output=True).returncode:
        print("cnmf is not installed: name the Python of an environment that has it with --cnmf")
        return
    print(f"{options.cells} cells, {N_GENES} genes, {K} programs, {RUNS} replicates")
    print("        cosine, chosen genes     cosine, TPM       CPU seconds            wall  same")
    print("  seed      cnmf  conenmf     cnmf  conenmf     cnmf conenmf ratio       ratio genes")
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            compare(seed, Path(folder), options)


def compare(seed: int, folder: Path, options: argparse.Namespace) -> None:
    """One line of the table."""
    rng = np.random.default_rng(seed)
    model, file = draw_model(N_GENES, K, DEPTH, rng), folder / "cells.h5ad"
    write_cells(file, model, options.cells, rng)
    cosines, times, genes = {}, {}, {}
    for name, python, program in (
        ("conenmf", sys.executable, OURS),
        ("cnmf", options.cnmf, THEIRS),
    ):
        place = folder / name
        place.mkdir()
        times[name] = run(python, program, file, place)
        spectra, tpm = (pd.read_csv(place / TABLES[one], sep="\t", index_col=0) for one in TABLES)
        genes[name] = [int(gene[1:]) for gene in spectra.columns]
        truth = pd.DataFrame(model.spectra, index=[f"g{f}" for f in range(N_GENES)])
        deviation = deviations(file)[genes[name]]
        cosines[name] = (
            match(truth.loc[spectra.columns].to_numpy() / deviation[:, None], spectra),
            match(truth.loc[tpm.columns].to_numpy(), tpm),
        )
    wall, cpu = (times["cnmf"][n] / times["conenmf"][n] for n in range(2))
    same = len(set(genes["cnmf"]) & set(genes["conenmf"]))
    print(
        f"{seed:>5}{' *'[seed % 2 == 0]}"
        f"{cosines['cnmf'][0]:>10.4f}{cosines['conenmf'][0]:>9.4f}"
        f"{cosines['cnmf'][1]:>9.4f}{cosines['conenmf'][1]:>9.4f}"
        f"{times['cnmf'][1]:>9.1f}{times['conenmf'][1]:>8.1f}{cpu:>6.1f}{wall:>12.1f}{same:>6}",
        flush=True,
    )


def run(python: str, program: str, file: Path, folder: Path) -> list[float]:
    """Wall and CPU seconds of a program in a process of its own, with one thread."""
    source = program.format(K=K, RUNS=RUNS, N_CHOSEN=N_CHOSEN)
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [python, "-c", source, str(file), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, **threads},
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def deviations(file: Path) -> np.ndarray:
    """The standard deviations of the counts of all genes."""
    import anndata

    X = anndata.read_h5ad(file).X.astype(float)
    mean = np.asarray(X.mean(axis=0)).ravel()
    return np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2)


def match(truth: np.ndarray, table: pd.DataFrame) -> float:
    return float(match_components(truth, table.to_numpy().T)[1].mean())


if __name__ == "__main__":
    main()

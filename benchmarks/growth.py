"""How time and memory grow with N, F, K (dense) and with the nonzeros (sparse).

    python benchmarks/growth.py [--rounds 3] [--quick] [--out FOLDER]

Each is doubled four times while the others stay. It prints seconds of an iteration of hals, seconds
of cr1_nmf, the peak memory of a fit beyond the data, and the slopes of their logarithms: 1 is
proportional growth. All sizes take turns, round after round; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from measure import (
    can_measure_memory,
    interleaved,
    machine,
    peak_memory,
    save_matrix,
    size_in_bytes,
    slope,
    take_turns,
    versions,
)

from conenmf import cr1_nmf, factorize, from_rows
from conenmf.atomic import written_whole

DENSE = {"N": 4000, "F": 500, "K": 10}
SPARSE = {"N": 20_000, "F": 10_000, "nnz": 500_000, "K": 10}
QUICK_DENSE = {"N": 200, "F": 100, "K": 4}
QUICK_SPARSE = {"N": 500, "F": 2000, "nnz": 3000, "K": 4}
DOUBLINGS = 4
ITERATIONS = 6

Sizes = dict[str, int]


def doubled(base: Sizes, letter: str) -> list[Sizes]:
    return [base | {letter: base[letter] << step} for step in range(DOUBLINGS + 1)]


def seconds(matrices: dict[int, tuple[Any, int]], rounds: int) -> dict[str, list[float]]:
    """Medians for each size, of an iteration and of cr1_nmf, once the data are open."""
    opened = {size: (from_rows(X), K) for size, (X, K) in matrices.items()}
    iterations: dict[int, list[float]] = {size: [] for size in opened}

    def fit(size: int) -> Any:
        V, K = opened[size]
        return factorize(V, K, init="cr1", solver="hals", max_iter=ITERATIONS, tol=0)

    def record(size: int, _: float, result: Any) -> None:
        iterations[size].append(float(np.median(np.diff(result.history.elapsed))))

    smallest = min(opened)
    fit(smallest)  # compile, or load what was compiled
    take_turns({size: lambda size=size: fit(size) for size in opened}, rounds, record)
    inits = interleaved(
        {size: lambda V=V, K=K: cr1_nmf(V, K, tol=1e-4) for size, (V, K) in opened.items()}, rounds
    )
    return {
        "iteration, s": [statistics.median(iterations[size]) for size in opened],
        "cr1_nmf, s": list(inits.values()),
    }


def memory(X: Any, K: int) -> float:
    """Bytes at the peak of opening and fitting X, beyond X itself."""
    fit = "factorize(from_rows({}), {}, init='cr1', max_iter=3, tol=0)"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as small:
        tiny, load = save_matrix(datasets.shrunk(X), small), save_matrix(X, folder)
        setup = f"from conenmf import factorize, from_rows\n{tiny}\n{fit.format('X', 3)}\ndel X"
        return peak_memory(setup, load, fit.format("X", K)) - size_in_bytes(X)


def grow(
    letter: str, base: Sizes, draw: Callable[[Sizes], Any], rounds: int
) -> dict[str, list[float] | float]:
    """One table: the sizes, what was measured, and the slopes."""
    sizes = doubled(base, letter)
    matrices = {size[letter]: (draw(size), size["K"]) for size in sizes}
    columns = seconds(matrices, rounds)
    if can_measure_memory():
        peaks = [memory(X, K) / 1e6 for X, K in matrices.values()]
        columns["peak - V, MB"] = [max(peak, 0.1) for peak in peaks]  # its resolution
    slopes = {name: slope(list(matrices), column) for name, column in columns.items()}
    kept = ", ".join(f"{name}={value}" for name, value in base.items() if name != letter)
    lines = [[f"{letter} ({kept})", *columns], ["---"] * (len(columns) + 1)]
    for row, size in enumerate(matrices):
        lines.append([str(size), *(f"{column[row]:.4g}" for column in columns.values())])
    lines.append(["slope", *(f"{value:.2f}" for value in slopes.values())])
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print(flush=True)
    return {"sizes": sizes, "columns": columns, "slopes": slopes}


def draw_dense(size: Sizes) -> np.ndarray:
    return datasets.cones(size["F"], size["N"], size["K"])


def draw_sparse(size: Sizes) -> Any:
    return datasets.topics(size["N"], size["F"], size["nnz"], size["K"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, help="3 by default, 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="tiny data, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    dense, sparse = (QUICK_DENSE, QUICK_SPARSE) if options.quick else (DENSE, SPARSE)
    found = {letter: grow(letter, dense, draw_dense, options.rounds) for letter in dense}
    found["nnz"] = grow("nnz", sparse, draw_sparse, options.rounds)
    facts = {
        "seed": datasets.SEED,
        "rounds": options.rounds,
        "quick": options.quick,
        "machine": machine(),
        "versions": versions(),
        "growth": found,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    with written_whole(options.out / "growth.json") as stream:
        stream.write(f"{json.dumps(facts, indent=1)}\n".encode())


if __name__ == "__main__":
    main()

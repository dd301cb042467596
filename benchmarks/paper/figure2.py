"""Figure 2: the error of cr1-nmf, its bounds, and the errors of classical algorithms, against N.

Left: cr1-nmf beside the deterministic and the probabilistic bound (Theorems 4 and 6). Right: beside
mult, nnlsb and hals from random starts (100, 20 and 100 iterations of the plain rules). F = 1600,
K = 40, alpha = 0.2 and 0.3, lambda_k = 1/k. A matrix of the largest N is drawn, and its first N
samples are used for smaller N.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from protocol import Experiment, experiment

from conenmf import cr1_nmf, factorize, from_columns, make_cones, probabilistic_bound
from conenmf.inits import cr1_error

SIZES = {  # F, K, values of N, matrices, runs of cr1-nmf, values of N on the right, matrices there
    "tiny": (200, 4, (60, 120), 1, 2, (60,), 1),
    "quick": (1600, 40, (100, 316, 1000, 3162, 10000), 3, 3, (100, 1000), 1),
    "full": (1600, 40, tuple(np.unique(np.geomspace(1e2, 1e4, 100).astype(int))), 50, 20,
             (100, 316, 1000, 3162, 10000), 10),
}  # fmt: skip
ITERATIONS = {"mult": 100, "nnlsb": 20, "hals": 100}


def run(rows: Experiment) -> None:
    _, _, sizes, matrices, _, others, their_matrices = SIZES[rows.scale]
    for alpha in (0.2, 0.3):
        for matrix in range(matrices):
            for N in sizes:
                key = {"alpha": alpha, "N": N, "matrix": matrix}
                rows.row(partial(_cr1, rows, **key), algorithm="cr1-nmf", **key)
            for N in others if matrix < their_matrices else ():
                key = {"alpha": alpha, "N": N, "matrix": matrix}
                for name in ITERATIONS:
                    rows.row(partial(_classical, rows, name, **key), algorithm=name, **key)


def _cr1(rows: Experiment, alpha: float, N: int, matrix: int) -> dict[str, float]:
    _, K, _, _, runs, *_ = SIZES[rows.scale]
    V = from_columns(_drawn(rows, alpha, matrix)[:, :N])
    generators = [rows.rng(run=number, N=N) for number in range(runs)]
    errors = [cr1_error(V, cr1_nmf(V, K, rng=rng)[1]) for rng in generators]
    return _told(errors, alpha, K)


def _classical(rows: Experiment, name: str, alpha: float, N: int, matrix: int) -> dict[str, float]:
    K = SIZES[rows.scale][1]
    V = from_columns(_drawn(rows, alpha, matrix)[:, :N])
    options = {"init": "random", "solver": f"plain-{name}", "tol": 0, "sketch": None}
    errors = []
    for number in range(10 if rows.scale == "full" else 2):
        rng = rows.rng(run=number, N=N, solver=name)
        result = factorize(V, K, max_iter=ITERATIONS[name], rng=rng, **options)
        errors.append(result.history.relative_error[-1])
    return _told(errors, alpha, K)


@lru_cache(maxsize=1)
def _drawn(rows: Experiment, alpha: float, matrix: int) -> np.ndarray:
    F, K, sizes, *_ = SIZES[rows.scale]
    rng = rows.rng(alpha=alpha, matrix=matrix)
    return make_cones(F, K, alpha, n_samples=max(sizes), rng=rng).V


def _told(errors: list[float], alpha: float, K: int) -> dict[str, float]:
    return {
        "error": float(np.mean(errors)),
        "deviation": float(np.std(errors)),
        "deterministic": float(np.sin(alpha)),
        "probabilistic": probabilistic_bound([alpha] * K, 1 / np.arange(1, K + 1)),
    }


if __name__ == "__main__":
    run(experiment("figure2", __doc__ or ""))

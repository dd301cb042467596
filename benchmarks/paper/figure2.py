"""Figure 2: the error of cr1-nmf, its bounds, and the errors of classical algorithms, against N.

Left: cr1-nmf beside the deterministic and the probabilistic bound (Theorems 4 and 6). Right: beside
mult, nnlsb and hals from random inits (100, 20 and 100 iterations of the plain solvers). F = 1600,
K = 40, alpha = 0.2 and 0.3, lambda_k = 1/k. A matrix of the largest N is drawn, and its first N
samples are used for smaller N.
"""

from __future__ import annotations

import statistics
from functools import lru_cache, partial

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, Text, drawn, grouped, judged, mean_and_deviation
from protocol import Experiment, main

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones.bounds import probabilistic_bound
from conenmf.cones.rank_one import cr1_error

TITLE = "Figure 2: errors and bounds"
LOG_SPACED = tuple(int(N) for N in np.unique([*np.geomspace(1e2, 1e4, 100).astype(int), 1000]))
SIZES = {  # F, K, values of N, matrices, runs of cr1-nmf, values of N on the right, matrices there
    "tiny": (200, 4, (60, 120), 1, 2, (60,), 1),
    "quick": (1600, 40, (100, 316, 1000, 3162, 10000), 10, 2,
              (100, 316, 1000, 3162, 10000), 1),
    "full": (1600, 40, LOG_SPACED, 50, 20, (100, 1000, 10000), 10),
}  # fmt: skip
ITERATIONS = {"mult": 100, "nnlsb": 20, "hals": 100}
MEASURED = {0.2: (0.1135, 0.001), 0.3: (0.1575, 0.0015)}  # at N = 10000, with what may differ


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
    generators = [rows.rng(alpha=alpha, matrix=matrix, run=n, N=N) for n in range(runs)]
    errors = [cr1_error(V, *cr1_nmf(V, K, rng=rng)[:2]) for rng in generators]
    return _told(errors, alpha, K)


def _classical(rows: Experiment, name: str, alpha: float, N: int, matrix: int) -> dict[str, float]:
    K = SIZES[rows.scale][1]
    V = from_columns(_drawn(rows, alpha, matrix)[:, :N])
    options = {"init": "random", "solver": f"plain-{name}", "tol": 0, "sketch": None}
    errors = []
    for number in range(10 if rows.scale == "full" else 1):
        rng = rows.rng(alpha=alpha, matrix=matrix, run=number, N=N, solver=name)
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


def show(rows: list[Row]) -> Section:
    """The errors beside the bounds, and whether they stay below and come near."""
    errors = {
        (name, float(alpha), int(N)): [float(row["error"]) for row in group]
        for (name, alpha, N), group in grouped(rows, "algorithm", "alpha", "N").items()
    }
    bounds = {
        float(row["alpha"]): (float(row["deterministic"]), float(row["probabilistic"]))
        for row in rows
    }
    means = {key: statistics.mean(values) for key, values in errors.items()}
    names = list(dict.fromkeys(name for name, *_ in errors))
    cr1 = {(alpha, N): found for (name, alpha, N), found in errors.items() if name == "cr1-nmf"}
    figure, axes = plt.subplots(
        1, len(bounds), figsize=(10, 4), layout="constrained", squeeze=False
    )
    for ax, (alpha, (largest, limit)) in zip(axes[0], bounds.items(), strict=True):
        for name in names:
            points = sorted((N, e) for (n, a, N), e in means.items() if (n, a) == (name, alpha))
            ax.semilogx(*zip(*points, strict=True), marker=".", label=name)
        ax.axhline(largest, color="0.5", linestyle=":", label="deterministic bound")
        ax.axhline(limit, color="0.2", linestyle="--", label="probabilistic bound")
        ax.set(title=f"alpha = {alpha}", xlabel="N", ylabel="relative error")
        ax.legend(fontsize="small")
    lines = [
        [alpha, N, mean_and_deviation(found, 5), *(f"{means[name, alpha, N]:.5f}"
         if (name, alpha, N) in means else "" for name in names[1:]),
         f"{bounds[alpha][1]:.5f}", f"{bounds[alpha][0]:.5f}"]
        for (alpha, N), found in sorted(cr1.items())
    ]  # fmt: skip
    cases = sorted(cr1.items())
    largest = [
        (a, statistics.mean(e), f"alpha {a}: {mean_and_deviation(e, 5)}, {len(e)} matrices")
        for (a, N), e in cases
        if N == 10000
    ]
    verdicts = [
        judged(
            "The mean error of cr1-nmf is below both bounds",
            ((f"alpha {a}, N {N}", statistics.mean(e) < min(bounds[a])) for (a, N), e in cases),
        ),
        judged(
            "For every matrix it is below the deterministic bound",
            ((f"alpha {a}, N {N}", max(e) < bounds[a][0]) for (a, N), e in cases),
        ),
        judged(
            "For every matrix it is below the probabilistic bound",
            ((f"alpha {a}, N {N}: {sum(x >= bounds[a][1] for x in e)} of {len(e)} above",
              max(e) < bounds[a][1]) for (a, N), e in cases),
        ),
        judged(
            "At alpha = 0.2 it tends to the probabilistic bound as N grows", _tends(means, bounds)
        ),
        judged(
            "At N = 10000 the mean is what was measured before (0.1135 ± 0.001, 0.1575 ± 0.0015)",
            ((text, abs(mean - MEASURED[a][0]) <= MEASURED[a][1]) for a, mean, text in largest),
            note="; ".join(text for *_, text in largest),
        ),
    ]  # fmt: skip
    header = ["alpha", "N", "cr1-nmf", *names[1:], "probabilistic", "deterministic"]
    noted = Text(
        "The probabilistic bound is that of the limit: as lengths are random, a single matrix may "
        "lie above it. Deviations are those of single matrices."
    )
    picture = drawn(figure, "figure2", "Relative errors against N, with both bounds")
    return Section([picture, Table(header, lines), noted], verdicts)


def _tends(means: dict, bounds: dict) -> list[tuple[str, bool]]:
    if 0.2 not in bounds:
        return []
    errors = [e for (name, a, N), e in sorted(means.items()) if (name, a) == ("cr1-nmf", 0.2)]
    gaps = [abs(bounds[0.2][1] - error) for error in errors]
    return [(f"gaps {', '.join(f'{gap:.4f}' for gap in gaps)}", gaps[-1] < gaps[0] / 2)]


if __name__ == "__main__":
    main("figure2", __doc__, run, show, SIZES)

"""Figure 2, right: mult, nnlsb and hals beside cr1-nmf, against N.

F = 1600, K = 40, alpha = 0.2 and 0.3; 100, 20 and 100 iterations of the plain solvers from random
inits. A matrix of the largest N is drawn, and its first N samples are used for smaller N. Each
repetition is a new matrix with one run of each algorithm on a tenth of the values of N, so that ten
repetitions have them all.
"""

from __future__ import annotations

import statistics
from functools import lru_cache, partial

import matplotlib.pyplot as plt
from figure2 import LOG_SPACED
from presentation import Row, Section, Table, Text, drawn, grouped, mean_and_deviation
from protocol import Experiment, main
from starts import begin, cr1
from verdicts import Case, ahead, decided

from conenmf import from_columns, make_cones
from conenmf.cones.rank_one import cr1_error
from conenmf.data.blocks import Array
from conenmf.solve.run import Stopping, alternate
from conenmf.solve.solvers import SOLVERS

TITLE = "Figure 2, right: classical algorithms"
SIZES = {  # F, K, values of N, repetitions, of how many values of N each takes one
    "tiny": (200, 4, (60, 80, 100, 120), 2, 1),
    "quick": (1600, 40, (100, 316, 1000, 3162), 3, 1),
    "full": (1600, 40, LOG_SPACED, 100, 10),
}
ITERATIONS = {"mult": 100, "nnlsb": 20, "hals": 100}
ALIKE = 0.05  # errors within this share of each other are similar


def run(rows: Experiment) -> None:
    *_, sizes, repetitions, every = SIZES[rows.scale]
    for begun in range(0, repetitions, every):  # small N first, as they take little time
        for low, high in ((0, 1000), (1000, 3000), (3000, 10001)):
            for repetition in range(begun, min(begun + every, repetitions)):
                for N in sizes[repetition % every :: every]:
                    for alpha in (0.2, 0.3) if low <= N < high else ():
                        key = {"alpha": alpha, "repetition": repetition, "N": N}
                        rows.row(partial(_errors, rows, **key), **key)


def _errors(rows: Experiment, alpha: float, repetition: int, N: int) -> dict[str, float]:
    F, K, sizes, *_ = SIZES[rows.scale]
    V = from_columns(_drawn(rows, F, K, alpha, repetition, max(sizes))[:, :N])
    found = {
        "error of cr1-nmf": cr1_error(V, *cr1(V, K, rows.rng(alpha=alpha, run=repetition, N=N)))
    }
    for name, iterations in ITERATIONS.items():
        W, H, _ = begin(V, K, "rand", name, rows.rng(alpha=alpha, run=repetition, N=N))
        stopping = Stopping(tol=0, max_iter=iterations, exact=0)
        solution = alternate(V, W, H, SOLVERS[f"plain-{name}"], stopping=stopping)
        found[f"error of {name}"] = float(solution.history.relative_error[-1])
    return found


@lru_cache(maxsize=2)
def _drawn(rows: Experiment, F: int, K: int, alpha: float, repetition: int, N: int) -> Array:
    return make_cones(F, K, alpha, n_samples=N, rng=rows.rng(alpha=alpha, matrix=repetition)).V


def show(rows: list[Row]) -> Section:
    """The curves, how similar they are, and how much they oscillate."""
    names = ["cr1-nmf", *ITERATIONS]
    groups = {
        (float(alpha), int(N)): {name: [_error(row, name) for row in group] for name in names}
        for (alpha, N), group in grouped(rows, "alpha", "N").items()
    }
    alphas = sorted({alpha for alpha, _ in groups})
    figure, axes = plt.subplots(
        1, len(alphas), figsize=(10, 4), layout="constrained", squeeze=False
    )
    lines, similar, rough = [], [], []
    for ax, alpha in zip(axes[0], alphas, strict=True):
        sizes = sorted(N for a, N in groups if a == alpha)
        for name in names:
            means = [statistics.mean(groups[alpha, N][name]) for N in sizes]
            ax.semilogx(sizes, means, marker=".", markersize=3, label=name)
        ax.set(title=f"alpha = {alpha}", xlabel="N", ylabel="relative error")
        ax.legend(fontsize="small")
        here = [row for row in rows if float(row["alpha"]) == alpha]
        edges = [(100, 1000), (1000, 10001)] if sizes[-1] > 1000 else [(0, 1000)]
        for low, high in edges:
            some = [row for row in here if low <= int(row["N"]) < high]
            if not some:
                continue
            ratios = {
                name: [_error(row, name) / _error(row, "cr1-nmf") for row in some]
                for name in ITERATIONS
            }
            span = f"{low} <= N < {high}"
            text = [mean_and_deviation(ratios[name], 4) for name in ITERATIONS]
            lines.append([alpha, span, len(some), *text])
            similar += [
                ahead(f"{name}, alpha {alpha}, {span}", [abs(r - 1) for r in ratios[name]],
                      {"5%": [ALIKE] * len(some)})
                for name in ("nnlsb", "hals")
            ]  # fmt: skip
        rough.append(_rougher(f"alpha {alpha}", here))
    verdicts = [
        decided("mult oscillates more with N than the other algorithms", rough),
        decided("nnlsb and hals end within 5% of the error of cr1-nmf", similar),
    ]
    count = len({(row["alpha"], row["repetition"]) for row in rows})
    note = Text(
        f"{count} matrices, each with one run of every algorithm on some values of N, {len(rows)} "
        "pairs of matrix and N in all (the paper: 10 matrices of 10 runs for every N). The "
        "oscillation of a curve is measured at each third of three neighbouring N of one matrix: "
        "how far the error, relative to that of cr1-nmf, is from the mean of its neighbours."
    )
    header = ["alpha", "N", "rows", *(f"{name} / cr1-nmf" for name in ITERATIONS)]
    picture = drawn(figure, "figure2_right", "Relative errors of four algorithms against N")
    return Section([picture, Table(header, lines), note], verdicts)


def _error(row: Row, name: str) -> float:
    return float(row[f"error of {name}"])


def _rougher(text: str, rows: list[Row]) -> Case:
    """Whether mult is farther from the mean of its neighbours in N than each other algorithm."""
    bends: dict[str, list[float]] = {name: [] for name in ITERATIONS}
    for group in grouped(rows, "repetition").values():
        line = sorted(group, key=lambda row: int(row["N"]))
        for place in range(1, len(line) - 1, 3):  # triples that share no matrix size
            for name, found in bends.items():
                three = line[place - 1 : place + 2]
                e = [_error(row, name) / _error(row, "cr1-nmf") for row in three]
                found.append(abs(e[1] - (e[0] + e[2]) / 2))
    others = {name: bends[name] for name in bends if name != "mult"}
    return ahead(text, bends["mult"], others, largest=True)


if __name__ == "__main__":
    main("figure2_right", __doc__, run, show, SIZES)

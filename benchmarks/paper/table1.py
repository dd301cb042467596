"""Table I: seconds until mult, nnlsb and hals reach the error of cr1-nmf (alpha = 0.2).

The plain rules start at random and run at most 1000, 100 and 400 iterations, as in the published
experiments. What can carry over from the paper's machine is the ratio to cr1-nmf.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from presentation import Row, Section, Table, grouped, judged
from protocol import Experiment, first_time, main

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones import cr1_error

TITLE = "Table I: time to the error of cr1-nmf"
SIZES = {  # F, K, values of N, runs
    "tiny": (200, 4, (60,), 1),
    "quick": (1600, 40, (100, 1000, 10000), 3),
    "full": (1600, 40, (100, 1000, 10000), 10),
}
ITERATIONS = {"mult": 1000, "nnlsb": 100, "hals": 400}
PAPER = {  # seconds on the authors' machine
    100: {"cr1-nmf": 0.03, "mult": 1.56, "nnlsb": 5.82, "hals": 0.46},
    1000: {"cr1-nmf": 0.26, "mult": 9.54, "nnlsb": 6.44, "hals": 3.01},
    10000: {"cr1-nmf": 1.85, "mult": 85.9, "nnlsb": 27.8, "hals": 17.4},
}


def run(rows: Experiment) -> None:
    F, K, sizes, runs = SIZES[rows.scale]
    for N in sizes:
        for number in range(runs):
            rows.row(lambda N=N, number=number: _race(rows, F, K, N, number), N=N, run=number)


def _race(rows: Experiment, F: int, K: int, N: int, number: int) -> dict[str, float]:
    V = from_columns(make_cones(F, K, 0.2, n_samples=N, rng=rows.rng(N=N, matrix=number)).V)
    cr1_nmf(V, K, rng=rows.rng(N=N, run=number))  # so that nothing is compiled while the clock runs
    began = time.perf_counter()
    _, H, _ = cr1_nmf(V, K, rng=rows.rng(N=N, run=number))
    seconds = {"cr1-nmf": time.perf_counter() - began}
    target = cr1_error(V, H)
    for name, iterations in ITERATIONS.items():
        result = factorize(
            V,
            K,
            init="random",
            solver=f"plain-{name}",
            max_iter=iterations,
            tol=0,
            sketch=None,
            rng=rows.rng(N=N, run=number, solver=name),
            callback=lambda now: now.relative_error <= target,
        )
        late = result.seconds["start"]
        history = result.history
        seconds[name] = late + first_time(history.relative_error, history.elapsed, target)
    ratios = {f"{name} / cr1-nmf": seconds[name] / seconds["cr1-nmf"] for name in ITERATIONS}
    paper = PAPER.get(N, dict.fromkeys([*ITERATIONS, "cr1-nmf"], np.nan))
    theirs = {f"{name}, paper": paper[name] / paper["cr1-nmf"] for name in ITERATIONS}
    return {"error": target, **seconds, **ratios, **theirs}


def show(rows: list[Row]) -> Section:
    """Seconds to the error of cr1-nmf, as ratios, beside the paper's."""
    lines, cases = [], []
    for (N,), group in grouped(rows, "N").items():
        ours = {
            name: statistics.median(float(row[f"{name} / cr1-nmf"]) for row in group)
            for name in ITERATIONS
        }
        seconds = statistics.median(float(row["cr1-nmf"]) for row in group)
        cells = [f"{ours[name]:.1f} ({float(group[0][f'{name}, paper']):.1f})" for name in ours]
        lines.append([N, f"{seconds:.3f} s", *cells])
        if int(N) >= 1000:
            cases += [
                (f"{name} at N = {N}: {ratio:.1f}", ratio >= 10) for name, ratio in ours.items()
            ]
    table = Table(["N", "cr1-nmf", *(f"{name} / cr1-nmf (paper)" for name in ITERATIONS)], lines)
    claim = "mult, nnlsb and hals take at least ten times as long to the error of cr1-nmf"
    return Section([table], [judged(claim, cases)])


if __name__ == "__main__":
    main("table1", __doc__, run, show)

"""Figure 3: the estimated number of cones under noise, against N (alpha = 0.3, true K = 40).

V = [cones + delta E]_+ with standard normal E and delta = 0.1 or 0.5; K is searched from 11 to 200.
"""

from __future__ import annotations

import statistics

import matplotlib.pyplot as plt
from figure2 import LOG_SPACED
from presentation import Row, Section, Table, drawn, grouped, judged, mean_and_deviation
from protocol import Experiment, main

from conenmf import estimate_rank, from_columns, make_cones

TITLE = "Figure 3: the number of cones"
CLAIMS = (  # noise, and the samples from which K should be found; the paper reports one of them
    (0.1, 2000, ""),
    (0.5, 5000, ", as the paper has it"),
    (0.5, 10000, ""),
)
SIZES = {  # F, K, search range, values of N, matrices
    "tiny": (200, 5, (3, 20), (60, 200), 1),
    "quick": (1600, 40, (11, 200), (500, 1000, 2000, 5000, 10000), 3),
    "full": (1600, 40, (11, 200), LOG_SPACED, 1000),
}


def run(rows: Experiment) -> None:
    F, K, (low, high), sizes, matrices = SIZES[rows.scale]
    for delta in (0.1, 0.5):
        for N in sizes:
            for matrix in range(matrices):

                def estimate(N: int = N, delta: float = delta, matrix: int = matrix):
                    rng = rows.rng(N=N, delta=delta, matrix=matrix)
                    model = make_cones(F, K, 0.3, n_samples=N, noise=delta, rng=rng)
                    V = from_columns(model.V)
                    found = estimate_rank(V, low, min(high, min(V.shape) - 1))
                    return {"K": found.K, "true": K, "margin": found.margin}

                rows.row(estimate, delta=delta, N=N, matrix=matrix)


def show(rows: list[Row]) -> Section:
    """The number of cones that is found under noise."""
    found = {
        (float(delta), int(N)): [int(row["K"]) for row in group]
        for (delta, N), group in grouped(rows, "delta", "N").items()
    }
    truth = int(rows[0]["true"])
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for delta in sorted({delta for delta, _ in found}):
        sizes = sorted(N for d, N in found if d == delta)
        means = [statistics.mean(found[delta, N]) for N in sizes]
        spread = [statistics.pstdev(found[delta, N]) for N in sizes]
        ax.errorbar(sizes, means, spread, marker=".", capsize=3, label=f"delta = {delta}")
    ax.axhline(truth, color="0.5", linestyle=":")
    ax.set(xscale="log", xlabel="N", ylabel="estimated K")
    ax.legend()
    cases = sorted(found.items())
    lines = [
        (delta, N, mean_and_deviation(values, 1), f"{values.count(truth)} of {len(values)}")
        for (delta, N), values in cases
    ]
    verdicts = [
        judged(
            f"K is found under noise: for delta {delta} from N = {enough} on{whose}",
            (
                (f"N {N}: {mean_and_deviation(values, 1)}", values.count(truth) == len(values))
                for (d, N), values in cases
                if d == delta and N >= enough
            ),
        )
        for delta, enough, whose in CLAIMS
    ]
    picture = drawn(
        figure, "figure3", "Estimated number of cones against N, for two levels of noise"
    )
    return Section(
        [picture, Table(["delta", "N", "mean estimate", f"{truth} found"], lines)], verdicts
    )


if __name__ == "__main__":
    main("figure3", __doc__, run, show, SIZES)

"""Figure 3: the estimated number of cones under noise, against N (alpha = 0.3, true K = 40).

V = [cones + delta E]_+ with standard normal E and delta = 0.1 or 0.5; K is searched from 11 to 200.
Every estimate has a matrix of its own.
"""

from __future__ import annotations

import statistics
from functools import partial
from itertools import pairwise

import matplotlib.pyplot as plt
from figure2 import LOG_SPACED
from presentation import Row, Section, Table, Text, drawn, grouped, mean_and_deviation
from protocol import Experiment, main
from verdicts import decided, share_above

from conenmf import estimate_rank, from_columns, make_cones

TITLE = "Figure 3: the number of cones"
CLAIMS = (  # noise, and the samples from which K should be found; the last is the paper's number
    ("the method works well if the noise is small", 0.1, 2000),
    ("it works well under much noise if N is large, e.g. N >= 5000", 0.5, 5000),
)
SIZES = {  # F, K, search range, values of N, matrices
    "tiny": (200, 5, (3, 20), (60, 200), 1),
    "quick": (1600, 40, (11, 200), (500, 1000, 2000, 5000, 10000), 3),
    "full": (1600, 40, (11, 200), LOG_SPACED, 1000),
}
WELL = 0.9  # share of matrices in which a method that works well finds K


def run(rows: Experiment) -> None:
    *_, sizes, matrices = SIZES[rows.scale]
    mixed = [N for offset in range(10) for N in sizes[offset::10]]  # some of all sizes soon
    for matrix in range(matrices):
        for N in mixed if matrix == 0 else sizes[::-1]:
            for delta in (0.1, 0.5):
                key = {"delta": delta, "matrix": matrix, "N": N}
                rows.row(partial(_estimate, rows, **key), **key)


def _estimate(rows: Experiment, delta: float, matrix: int, N: int) -> dict[str, object]:
    F, K, (low, high), *_ = SIZES[rows.scale]
    rng = rows.rng(delta=delta, matrix=matrix, N=N)
    V = from_columns(make_cones(F, K, 0.3, n_samples=N, noise=delta, rng=rng).V)
    return {"K": estimate_rank(V, low, min(high, min(V.shape) - 1)).K, "true": K}


def show(rows: list[Row]) -> Section:
    """The number of cones that is found under noise."""
    found = {
        (float(delta), int(N)): [int(row["K"]) for row in group]
        for (delta, N), group in grouped(rows, "delta", "N").items()
    }
    truth = int(rows[0]["true"])
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    lines = []
    for delta in sorted({delta for delta, _ in found}):
        sizes = sorted(N for d, N in found if d == delta)
        means = [statistics.mean(found[delta, N]) for N in sizes]
        spread = [statistics.pstdev(found[delta, N]) for N in sizes]
        ax.errorbar(sizes, means, spread, marker=".", capsize=3, label=f"delta = {delta}")
        for low, high in _spans(sizes):
            values = [k for N in sizes if low <= N < high for k in found[delta, N]]
            if values:
                share = f"{values.count(truth)} of {len(values)}"
                lines.append((delta, f"{low} to {high - 1}", mean_and_deviation(values, 1), share))
    ax.axhline(truth, color="0.5", linestyle=":")
    ax.set(xscale="log", xlabel="N", ylabel="estimated K")
    ax.legend()
    verdicts = []
    for claim, delta, enough in CLAIMS:
        values = [k for (d, N), ks in found.items() if d == delta and N >= enough for k in ks]
        for off, words in ((0, "K"), (1, "K up to one")):
            right = sum(abs(k - truth) <= off for k in values)
            case = share_above(f"delta {delta}, N from {enough}", right, len(values), WELL)
            text = f"Number of cones: {claim} ({words} in at least {WELL:.0%} of all matrices)"
            note = f"estimates {mean_and_deviation(values, 2)}" if values else ""
            verdicts.append(decided(text, [case] if values else [], note))
    count = len(rows) / len(found)
    note = Text(
        f"{len(rows)} matrices: {count:.2g} for each of {len(found)} pairs of delta and N (the "
        "paper: 1000)."
    )
    picture = drawn(
        figure, "figure3", "Estimated number of cones against N, for two levels of noise"
    )
    header = ["delta", "N", "mean estimate", f"{truth} found"]
    return Section([picture, Table(header, lines), note], verdicts)


def _spans(sizes: list[int]) -> list[tuple[int, int]]:
    borders = [100, 500, 1000, 2000, 5000, 10001]
    return list(pairwise(borders)) if sizes[-1] > 1000 else [(0, 10001)]


if __name__ == "__main__":
    main("figure3", __doc__, run, show, SIZES)

"""Figure 3: the estimated number of cones under noise, against N (alpha = 0.3, true K = 40).

V = [cones + delta E]_+ with standard normal E and delta = 0.1 or 0.5; K is searched from 11 to 200.
Every estimate has a matrix of its own. Claims are judged at each N, once all are there.
"""

from __future__ import annotations

import statistics
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from presentation import (
    NOT_MEASURED,
    Row,
    Section,
    Table,
    Text,
    Verdict,
    drawn,
    grouped,
    mean_and_deviation,
)
from protocol import Experiment, main
from verdicts import decided, interval, share_above

from conenmf import from_columns, make_cones
from conenmf.cones.counting import estimate_rank

TITLE = "Figure 3: the number of cones"
CLAIMS = (  # noise, and the samples from which K should be found; the last is the paper's number
    ("the method works well if the noise is small", 0.1, 2000),
    ("it works well under much noise if N is large, e.g. N >= 5000", 0.5, 5000),
)
SIZES = {  # F, K, search range, values of N, matrices
    "tiny": (200, 5, (3, 20), (60, 200), 1),
    "quick": (1600, 40, (11, 200), (500, 1000, 2000, 5000, 10000), 6),
    "full": (1600, 40, (11, 200), tuple(np.geomspace(100, 10000, 21).astype(int).tolist()), 50),
}
WELL = 0.9  # share of matrices in which a method that works well finds K


def run(rows: Experiment) -> None:
    *_, sizes, matrices = SIZES[rows.scale]
    for matrix in range(matrices):
        for N in sizes:
            for delta in (0.1, 0.5):
                key = {"delta": delta, "matrix": matrix, "N": N}
                rows.row(partial(_estimate, rows, **key), **key)


def _estimate(rows: Experiment, delta: float, matrix: int, N: int) -> dict[str, object]:
    F, K, (low, high), _, matrices = SIZES[rows.scale]
    rng = rows.rng(delta=delta, matrix=matrix, N=N)
    V = from_columns(make_cones(F, K, 0.3, n_samples=N, noise=delta, rng=rng).V)
    return {"K": estimate_rank(V, low, min(high, min(V.shape) - 1)).K, "true": K, "of": matrices}


def show(rows: list[Row]) -> Section:
    """The number of cones that is found under noise."""
    found = {
        (float(delta), int(N)): [int(row["K"]) for row in group]
        for (delta, N), group in grouped(rows, "delta", "N").items()
    }
    truth, planned = int(rows[0]["true"]), int(rows[0]["of"])
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    levels = sorted({delta for delta, _ in found})
    for delta in levels:
        sizes = sorted(N for d, N in found if d == delta)
        means = [statistics.mean(found[delta, N]) for N in sizes]
        spread = [statistics.pstdev(found[delta, N]) for N in sizes]
        ax.errorbar(sizes, means, spread, marker=".", capsize=3, label=f"delta = {delta}")
    ax.axhline(truth, color="0.5", linestyle=":")
    ax.set(xscale="log", xlabel="N", ylabel="estimated K")
    ax.legend()
    lines = [
        [delta, N, mean_and_deviation(ks, 2), *(_share(ks, truth, off) for off in (0, 1))]
        for (delta, N), ks in sorted(found.items())
    ]
    note = Text(
        f"{planned} matrices for each of {len(found)} pairs of delta and N, {len(rows)} in all "
        "(the paper: 1000 for each of 100 values of N). In brackets is the exact interval of 90% "
        "of the probability."
    )
    picture = drawn(
        figure, "figure3", "Estimated number of cones against N, for two levels of noise"
    )
    header = ["delta", "N", "mean estimate", f"{truth} found", f"{truth} found up to one"]
    return Section([picture, Table(header, lines), note], _verdicts(found, truth, planned))


def _share(ks: list[int], truth: int, off: int) -> str:
    right = sum(abs(k - truth) <= off for k in ks)
    return f"{right} of {len(ks)} ({interval(right, len(ks))})"


def _verdicts(found: dict[tuple[float, int], list[int]], truth: int, planned: int) -> list[Verdict]:
    """One case for each N. All matrices that were planned must be there.

    How many was written down before the first was drawn, so no verdict depends on where rows end.
    """
    verdicts = []
    for claim, delta, enough in CLAIMS:
        points = {N: ks for (d, N), ks in sorted(found.items()) if d == delta and N >= enough}
        for off, words in ((0, "K"), (1, "K up to one")):
            text = f"Number of cones: {claim} ({words} in at least {WELL:.0%} of all matrices)"
            if any(len(ks) < planned for ks in found.values()):
                verdicts.append(Verdict(text, NOT_MEASURED, f"not all have {planned} matrices yet"))
                continue
            cases = [
                share_above(
                    f"delta {delta}, N {N}", sum(abs(k - truth) <= off for k in ks), planned, WELL
                )
                for N, ks in points.items()
            ]
            verdicts.append(decided(text, cases))
    return verdicts


if __name__ == "__main__":
    main("figure3", __doc__, run, show, SIZES)

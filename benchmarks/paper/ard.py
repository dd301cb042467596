"""Section V: Bayesian automatic relevance determination (ARD) on samples in cones.

The paper says that the method of Tan and Fevotte (2013) "does not work well" for data matrices
generated under the geometric assumption, and leaves it out. Here it runs on the matrices of
Figure 3 (V = [cones + delta E]_+, alpha = 0.3), smaller, without noise and with it, from twice as
many components as there are cones, with both priors, hyperparameters as its authors recommend, and
the variance of the noise estimated from the singular values. Beside it stand the paper's own
estimate and the number of singular values above the edge of the noise.
"""

from __future__ import annotations

from functools import partial

from presentation import Row, Section, Table, Text, grouped, judged, mean_and_deviation
from protocol import Experiment, main
from relevance import PRIORS, determine_relevance

from conenmf import from_columns, make_cones
from conenmf.cones.counting import count_above_edge, estimate_rank

TITLE = "Section V: automatic relevance determination"
ALPHA = 0.3
SIZES = {  # F, K, N, values of delta, matrices, iterations
    "tiny": (60, 3, 120, (0.0, 0.1), 1, 200),
    "quick": (400, 10, 1000, (0.0, 0.01, 0.1, 0.5), 10, 2000),
    "full": (1600, 40, 2000, (0.0, 0.01, 0.1, 0.5), 20, 10000),
}


def run(rows: Experiment) -> None:
    *_, levels, matrices, _ = SIZES[rows.scale]
    for matrix in range(matrices):
        for delta in levels:
            rows.row(partial(_counted, rows, delta, matrix), delta=delta, matrix=matrix)


def _counted(rows: Experiment, delta: float, matrix: int) -> dict[str, object]:
    F, K, N, *_, iterations = SIZES[rows.scale]
    rng = rows.rng(matrix=matrix)
    V = from_columns(make_cones(F, K, ALPHA, n_samples=N, noise=delta, rng=rng).V)
    found = {
        f"ARD, {prior}": determine_relevance(
            V, 2 * K, prior=prior, max_iter=iterations, rng=rows.rng(matrix=matrix, prior=prior)
        )
        for prior in PRIORS
    }
    return {
        "true": K,
        **{name: one.n_relevant for name, one in found.items()},
        **{f"iterations of {name}": one.objectives.size for name, one in found.items()},
        "ratio": estimate_rank(V, 2, 2 * K).K,
        "edge": count_above_edge(V).K,
    }


def show(rows: list[Row]) -> Section:
    """What each method counts, and whether relevance fails as the paper says."""
    methods, truth = [f"ARD, {prior}" for prior in PRIORS], int(rows[0]["true"])
    lines, cases = [], []
    runs: list[int] = []
    for (delta,), group in sorted(grouped(rows, "delta").items()):
        cells = []
        for name in [*methods, "ratio", "edge"]:
            counts = [int(row[name]) for row in group]
            right = counts.count(truth)
            cells.append(f"{mean_and_deviation(counts, 1)} ({right} of {len(counts)} right)")
            if name in methods:
                text = f"{name}, delta {delta}: {right} of {len(counts)} right"
                cases.append((text, 2 * right < len(counts)))
                runs.append(len(counts))
        lines.append([delta, *cells])
    claim = "ARD does not work well in cones: K is found for fewer than half of the matrices"
    note = Text(
        "Without noise, what samples have beside the axes of their cones is not the noise of a few "
        "components, and components remain for it."
    )
    table = Table(["delta", *methods, "ratio (the paper's)", "edge"], lines)
    return Section([table, note], [judged(claim, cases, runs=runs)])


if __name__ == "__main__":
    main("ard", __doc__, run, show, SIZES)

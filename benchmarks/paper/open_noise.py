"""An open problem of the paper: samples that lie in cones only up to noise.

V = [cones + delta E]_+ as for Figure 3. Reports the error of cr1-nmf, its distance to the samples
without noise, both with their bounds (`noise_bound`), and how well the clusters are found. cr1++,
the best of four runs, stands beside it, and the clusters of spkm and nndsvd, which are taken from
the largest contributions to each sample.
"""

from __future__ import annotations

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, drawn, grouped, judged
from protocol import Experiment, main

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.noise import noise_bound
from conenmf.cones.rank_one import cr1_error
from conenmf.cones.seeding import cr1_plus_plus
from conenmf.judge.metrics import scores

TITLE = "Open problem: noise"
SIZES = {  # F, K, N, values of delta, matrices
    "tiny": (100, 4, 200, (0.0, 0.05), 1),
    "quick": (400, 10, 2000, (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5), 5),
    "full": (1600, 40, 10000, (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5), 20),
}
ALPHA = 0.2


def run(rows: Experiment) -> None:
    *_, levels, matrices = SIZES[rows.scale]
    for delta in levels:
        for matrix in range(matrices):
            rows.row(partial(_measured, rows, delta, matrix), delta=delta, matrix=matrix)


def _measured(rows: Experiment, delta: float, matrix: int) -> dict[str, object]:
    F, K, N, *_ = SIZES[rows.scale]
    clean, noisy = (
        make_cones(F, K, ALPHA, n_samples=N, noise=noise, rng=rows.rng(matrix=matrix))
        for noise in (0.0, delta)
    )  # the noise is drawn last, so all else is the same
    V, X = from_columns(clean.V), from_columns(noisy.V)
    W, H, cones = cr1_nmf(X, K, rng=rows.rng(delta=delta, matrix=matrix))
    geometry = cone_geometry(V, clean.labels)
    E = noisy.V - clean.V
    each = np.linalg.norm(E, axis=0) / np.linalg.norm(clean.V, axis=0)
    bound = noise_bound(
        geometry.angles,
        max(geometry.pairwise.value, 0.0),
        float(np.linalg.norm(E) / V.norm),
        sample_noise=float(each.max()),
    )
    W_drawn, H_drawn, drawn_cones = cr1_plus_plus(X, K, rng=rows.rng(matrix=matrix, start="cr1++"))
    others = {
        f"nmi of {init}": scores(
            clean.labels,
            factorize(X, K, init=init, solver=None, rng=rows.rng(matrix=matrix, start=init)).labels,
        )["nmi"]
        for init in ("spkm", "nndsvd")
    }
    return {
        "noise / data": float(np.linalg.norm(E) / V.norm),
        "error": cr1_error(X, W, H),
        "bound of error": bound.error,
        "distance to clean": float(np.linalg.norm(clean.V - W @ H) / V.norm),
        "bound of distance": bound.clean,
        "clusters are certain": bound.clusters_kept,
        "error of cr1++": cr1_error(X, W_drawn, H_drawn),
        "nmi of cr1-nmf": scores(clean.labels, cones.labels)["nmi"],
        "nmi of cr1++": scores(clean.labels, drawn_cones.labels)["nmi"],
        **others,
    }


def show(rows: list[Row]) -> Section:
    """Means over the matrices, and whether the bounds hold wherever clusters are right."""
    columns = [name for name in rows[0] if name not in ("delta", "matrix", "clusters are certain")]
    groups = {float(delta): group for (delta,), group in grouped(rows, "delta").items()}
    means = {
        delta: {name: float(np.mean([float(row[name]) for row in group])) for name in columns}
        for delta, group in groups.items()
    }
    certain = {
        delta: sum(row["clusters are certain"] == "True" for row in group)
        for delta, group in groups.items()
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for name, style in (
        ("error", "C0-"), ("bound of error", "C0:"),
        ("distance to clean", "C1-"), ("bound of distance", "C1:"), ("error of cr1++", "C2-"),
    ):  # fmt: skip
        left.plot(list(means), [means[delta][name] for delta in means], style, label=name)
    for name in columns:
        if name.startswith("nmi"):
            right.plot(list(means), [means[delta][name] for delta in means], label=name[7:])
    left.set(xlabel="delta", ylabel="relative to ||V||", ylim=(0, 1.6))
    for ax in (left, right):
        ax.set_xscale("symlog", linthresh=0.001)
        ax.set_xlim(0, max(means))
    right.set(xlabel="delta", ylabel="nmi of the clusters")
    left.legend()
    right.legend()
    lines = [
        [
            delta,
            *(f"{found[name]:.4f}" for name in columns),
            f"{certain[delta]} of {len(groups[delta])}",
        ]
        for delta, found in means.items()
    ]
    right_ones = [row for row in rows if float(row["nmi of cr1-nmf"]) > 1 - 1e-9]
    verdicts = [
        judged(
            "Where the clusters are right, error and distance are below their bounds",
            (
                (f"delta {row['delta']}, matrix {row['matrix']}",
                 float(row["error"]) <= float(row["bound of error"]) + 1e-9
                 and float(row["distance to clean"]) <= float(row["bound of distance"]) + 1e-9)
                for row in right_ones
            ),
        ),
        judged(
            "Where the clusters are certain to be right, they are",
            (
                (f"delta {row['delta']}, matrix {row['matrix']}",
                 float(row["nmi of cr1-nmf"]) > 1 - 1e-9)
                for row in rows if row["clusters are certain"] == "True"
            ),
        ),
    ]  # fmt: skip
    picture = drawn(figure, "open_noise", "Errors, bounds and clusters against noise")
    return Section([picture, Table(["delta", *columns, "certain"], lines)], verdicts)


if __name__ == "__main__":
    main("open_noise", __doc__, run, show, SIZES)

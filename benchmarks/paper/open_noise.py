"""An open problem of the paper: samples that lie in cones only up to noise.

V = [cones + delta E]_+ as for Figure 3. Reports the error of cr1-nmf, its distance to the samples
without noise, both with their bounds (`noise_bound`), and how well the clusters are found. Beside
it stand `method="robust"`, with its bound (`trimmed_bound`) where its theorem applies with every
cone kept; cr1++, the best of four runs; and the clusters of spkm and nndsvd, which are taken from
the largest contributions to each sample.
"""

from __future__ import annotations

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, drawn, grouped, judged
from protocol import Experiment, main

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones.bounds import noise_bound, trimmed_bound
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.rank_one import cr1_error
from conenmf.cones.robust import centres_in_noise
from conenmf.cones.seeding import cr1_plus_plus
from conenmf.data.blocks import Array
from conenmf.judge.scores import scores

TITLE = "Open problem: noise"
ASKED = (0.01, 0.03, 0.1, 0.3)
SIZES = {  # F, K, N, values of delta, matrices
    "tiny": (100, 4, 200, (0.0, 0.05), 1),
    "quick": (400, 10, 2000, (0.0, 0.001, 0.003, 0.01, 0.03, 0.04, 0.05, 0.1, 0.2, 0.3, 0.5), 5),
    "full": (1600, 40, 10000, (*ASKED, 1e-6, 1e-5, 0.0003, 0.001, 0.02), 20),
}  # the paper's size
ALPHA = 0.2


def run(rows: Experiment) -> None:
    *_, levels, matrices = SIZES[rows.scale]
    for matrix in range(matrices):
        for delta in levels:
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
    W_robust, H_robust, robust = cr1_nmf(X, K, method="robust")
    W_drawn, H_drawn, drawn_cones = cr1_plus_plus(X, K, rng=rows.rng(matrix=matrix, start="cr1++"))
    labels = {"cr1-nmf": cones.labels, "robust": robust.labels, "cr1++": drawn_cones.labels}
    for init in ("spkm", "nndsvd"):
        rng = rows.rng(matrix=matrix, start=init)
        labels[init] = np.asarray(factorize(X, K, init=init, solver=None, rng=rng).labels)
    return {
        "noise / data": float(np.linalg.norm(E) / V.norm),
        "error": cr1_error(X, W, H),
        "bound of error": bound.error,
        "distance to clean": float(np.linalg.norm(clean.V - W @ H) / V.norm),
        "bound of distance": bound.clean,
        "clusters are certain": bound.clusters_kept,
        "error of robust": cr1_error(X, W_robust, H_robust),
        **_bound_of_robust(clean.V, noisy.V, clean.labels, K),
        "error of cr1++": cr1_error(X, W_drawn, H_drawn),
        **{f"nmi of {name}": scores(clean.labels, found)["nmi"] for name, found in labels.items()},
        **{f"cones of {name}": _cones_found(clean.labels, x) for name, x in labels.items()},
    }


def _cones_found(labels: Array, found: Array) -> int:
    """How many cones send most of the samples of some cluster."""
    return len(
        {int(np.bincount(labels[found == k]).argmax()) for k in np.unique(found[found >= 0])}
    )


def _bound_of_robust(V: Array, X: Array, labels: Array, K: int) -> dict[str, object]:
    """What the theorem on robust centres says, given the noise, before the steps of Lloyd.

    The samples of G are labelled right if every cone has one. Its bound is 1 if not.
    """
    Q = np.linalg.qr(centres_in_noise(from_columns(X), K).axes)[0]
    clean, Y = Q.T @ V, Q.T @ X
    r = float(np.linalg.norm(Y - clean, axis=0).max())
    found = centres_in_noise(from_columns(X), K, noise=r, lloyd_steps=0)
    length = np.linalg.norm(Y, axis=0)
    turns = np.where(length > r, np.arcsin(np.minimum(r / length, 1.0)), np.pi / 2)
    good = 2 * turns + 2 * found.largest_turn < _separation(clean, labels)
    bound, kept = 1.0, np.unique(labels[good]).size == K
    if kept:
        parts = [V[:, good & (labels == k)] for k in range(K)]
        left = sum((np.linalg.svd(part, compute_uv=False)[1:] ** 2).sum() for part in parts)
        norm = np.linalg.norm(V[:, good])
        share = float((X[:, good] ** 2).sum() / (X**2).sum())
        noise = float(np.linalg.norm((X - V)[:, good]) / norm)
        bound = trimmed_bound(float(np.sqrt(left) / norm), noise, share)
    return {"bound of robust": bound, "every cone is kept": kept, "good samples": good.mean()}


def _separation(P: Array, labels: Array) -> float:
    """The smallest angle between samples of different cones minus the largest within one."""
    unit = (P / np.linalg.norm(P, axis=0)).T
    highest, lowest = -1.0, 1.0  # cosines: between cones, and within one
    for first in range(0, len(unit), 1000):
        cosines = unit[first : first + 1000] @ unit.T
        same = labels[first : first + 1000, None] == labels
        highest = max(highest, float(cosines.max(where=~same, initial=-1.0)))
        lowest = min(lowest, float(cosines.min(where=same, initial=1.0)))
    return float(np.arccos(highest) - np.arccos(lowest))


def show(rows: list[Row]) -> Section:
    """Means over the matrices, and whether the bounds hold wherever clusters are right."""
    plain = ("delta", "matrix", "clusters are certain", "every cone is kept")
    columns = [name for name in rows[0] if name not in plain]
    groups = {float(delta): group for (delta,), group in grouped(rows, "delta").items()}
    groups = dict(sorted(groups.items()))
    means = {
        delta: {name: float(np.mean([float(row[name]) for row in group])) for name in columns}
        for delta, group in groups.items()
    }
    certain, kept = (
        {delta: sum(row[name] == "True" for row in group) for delta, group in groups.items()}
        for name in ("clusters are certain", "every cone is kept")
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for name, style in (
        ("error", "C0-"), ("bound of error", "C0:"),
        ("distance to clean", "C1-"), ("bound of distance", "C1:"), ("error of robust", "C2-"),
        ("bound of robust", "C2:"), ("error of cr1++", "C3-"),
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
            f"{kept[delta]} of {len(groups[delta])}",
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
        judged(
            "Where robust centres are proved to keep every cone, their error is below its bound",
            (
                (f"delta {row['delta']}, matrix {row['matrix']}",
                 float(row["error of robust"]) <= float(row["bound of robust"]) + 1e-9)
                for row in rows if row["every cone is kept"] == "True"
            ),
        ),
        judged(
            "Robust centres find the clusters better than spkm, in the mean",
            (
                (f"delta {delta}: {found['nmi of robust']:.3f} against {found['nmi of spkm']:.3f}",
                 found["nmi of robust"] >= found["nmi of spkm"])
                for delta, found in means.items()
            ),
            runs=[len(group) for group in groups.values()],
        ),
    ]  # fmt: skip
    picture = drawn(figure, "open_noise", "Errors, bounds and clusters against noise")
    return Section(
        [picture, Table(["delta", *columns, "certain", "all cones kept"], lines)], verdicts
    )


if __name__ == "__main__":
    main("open_noise", __doc__, run, show, SIZES)

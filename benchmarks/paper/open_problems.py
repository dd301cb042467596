"""The first open problem of the paper, noise: the table and the picture of docs/open_problems.md.

V = [cones + delta E]_+ as for Figure 3. A row has the error of cr1-nmf and its distance to the
samples without noise, both with their bounds (`noise_bound`), and how well the clusters are found:
by their mutual information (nmi) with the cones, and by the number of cones that send most samples
of some cluster. Beside it stand `method="robust"`, with its bound (`trimmed_bound`) where its
theorem applies with every cone kept; cr1++, the best of four runs; and the clusters of spkm, which
are taken from the largest contributions to each sample.
"""

from __future__ import annotations

import numpy as np
from experiment import Experiment, Key, Part, every
from page import Case, Row, Section, column, curves, grouped, judged, table

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.rank_one import cr1_error, cr1_plus_plus
from conenmf.cones.robust import centres_in_noise
from conenmf.judge.scores import scores
from conenmf.solve.theorems import noise_bound, trimmed_bound
from conenmf.types import Array

ASKED = (0.01, 0.03, 0.1, 0.3)
ALPHA = 0.2
WAYS = ("cr1-nmf", "robust", "cr1++", "spkm")


def cluster_noisy(rows: Experiment, delta: float, matrix: int) -> Key:
    F, K, N, *_ = rows.size
    clean, noisy = (
        make_cones(F, K, ALPHA, n_samples=N, noise=noise, rng=rows.rng(matrix=matrix))
        for noise in (0.0, delta)
    )  # the noise is drawn last, so all else is the same
    V, X = from_columns(clean.V), from_columns(noisy.V)
    rng = rows.rng(delta=delta, matrix=matrix)
    factors = {
        "cr1-nmf": cr1_nmf(X, K, rng=rng),
        "robust": cr1_nmf(X, K, method="robust"),
        "cr1++": cr1_plus_plus(X, K, rng=rows.rng(matrix=matrix, start="cr1++")),
    }
    labels = {way: cones.labels for way, (_, _, cones) in factors.items()}
    rng = rows.rng(matrix=matrix, start="spkm")
    labels["spkm"] = np.asarray(factorize(X, K, init="spkm", solver=None, rng=rng).labels)
    geometry, E = cone_geometry(V, clean.labels), noisy.V - clean.V
    noise = float(np.linalg.norm(E) / V.norm)
    each = np.linalg.norm(E, axis=0) / np.linalg.norm(clean.V, axis=0)
    apart = max(geometry.pairwise.value, 0.0)
    bound = noise_bound(geometry.angles, apart, noise, sample_noise=float(each.max()))
    W, H, _ = factors["cr1-nmf"]
    return {
        "noise / data": noise,
        **{f"error of {way}": cr1_error(X, *found[:2]) for way, found in factors.items()},
        "bound of error": bound.error,
        "distance to clean": float(np.linalg.norm(clean.V - W @ H) / V.norm),
        "bound of distance": bound.clean,
        "clusters are certain": bound.clusters_kept,
        **bound_of_robust(clean.V, noisy.V, clean.labels, K),
        **{f"nmi of {way}": scores(clean.labels, found)["nmi"] for way, found in labels.items()},
        **{f"cones of {way}": cones_found(clean.labels, found) for way, found in labels.items()},
    }


def cones_found(labels: Array, found: Array) -> int:
    """How many cones send most of the samples of some cluster."""
    clusters = np.unique(found[found >= 0])
    return len({int(np.bincount(labels[found == k]).argmax()) for k in clusters})


def bound_of_robust(V: Array, X: Array, labels: Array, K: int) -> Key:
    """What the theorem on robust centres says, given the noise, before the steps of Lloyd.

    The samples of G are labelled right if every cone has one. Its bound is 1 if not.
    """
    Q = np.linalg.qr(centres_in_noise(from_columns(X), K).axes)[0]
    clean, Y = Q.T @ V, Q.T @ X
    r = float(np.linalg.norm(Y - clean, axis=0).max())
    found = centres_in_noise(from_columns(X), K, noise=r, lloyd_steps=0)
    length = np.linalg.norm(Y, axis=0)
    turns = np.where(length > r, np.arcsin(np.minimum(r / length, 1.0)), np.pi / 2)
    good = 2 * turns + 2 * found.largest_turn < separation(clean, labels)
    bound, kept = 1.0, np.unique(labels[good]).size == K
    if kept:
        parts = [V[:, good & (labels == k)] for k in range(K)]
        left = sum((np.linalg.svd(part, compute_uv=False)[1:] ** 2).sum() for part in parts)
        norm = np.linalg.norm(V[:, good])
        share = float((X[:, good] ** 2).sum() / (X**2).sum())
        noise = float(np.linalg.norm((X - V)[:, good]) / norm)
        bound = trimmed_bound(float(np.sqrt(left) / norm), noise, share)
    return {"bound of robust": bound, "every cone is kept": kept}


def separation(P: Array, labels: Array) -> float:
    """The smallest angle between samples of different cones minus the largest within one."""
    unit = (P / np.linalg.norm(P, axis=0)).T
    highest, lowest = -1.0, 1.0  # cosines: between cones, and within one
    for first in range(0, len(unit), 1000):
        cosines = unit[first : first + 1000] @ unit.T
        same = labels[first : first + 1000, None] == labels
        highest = max(highest, float(cosines.max(where=~same, initial=-1.0)))
        lowest = min(lowest, float(cosines.min(where=same, initial=1.0)))
    return float(np.arccos(highest) - np.arccos(lowest))


def show_noise(rows: list[Row]) -> Section:
    """Means over the matrices, and whether the bounds hold wherever their theorems apply."""
    groups = dict(sorted(grouped(rows, "delta").items(), key=lambda item: float(item[0])))
    lines = []
    for delta, group in groups.items():
        means = {name: np.mean(column(group, name)) for name in rows[0] if " of " in name}
        kept = sum(row["every cone is kept"] == "True" for row in group)
        nmi = [np.array(column(group, f"nmi of {way}")) for way in WAYS]
        cells = [f"{values.mean():.3f} ± {values.std():.3f}" for values in nmi]
        cells += [f"{means[f'cones of {way}']:.1f}" for way in WAYS]
        bound = f"{means['bound of robust']:.3f} on {kept}" if kept else "none"
        lines.append([delta, len(group), *cells, f"{means['error of robust']:.3f}", bound])
    header = ["delta", "matrices", *(f"nmi: {way}" for way in WAYS)]
    header += [f"cones: {way}" for way in WAYS]
    panels = {}
    for title, start in (("relative to ||V||", ("error", "bound")), ("nmi", ("nmi",))):
        names = [name for name in rows[0] if name.startswith(start)]
        panels[title] = {
            name: ([*map(float, groups)], [np.mean(column(g, name)) for g in groups.values()])
            for name in names
        }
    text = "Errors, bounds and clusters against noise"
    picture = curves("open_noise", text, panels, 2, xscale="log", xlabel="delta")
    right = [row for row in rows if float(row["nmi of cr1-nmf"]) > 1 - 1e-9]
    proved = [row for row in rows if row["every cone is kept"] == "True"]
    verdicts = [
        judged(
            "Where the clusters are right, the error is below its bound",
            below(right, "error of cr1-nmf", "bound of error"),
        ),
        judged(
            "Where the clusters are right, the distance to clean data is below its bound",
            below(right, "distance to clean", "bound of distance"),
        ),
        judged(
            "Where robust centres are proved to keep every cone, their error is below its bound",
            below(proved, "error of robust", "bound of robust"),
        ),
    ]
    header += ["error of robust", "its bound, every cone kept"]
    return Section([table(header, lines), picture], verdicts)


def below(rows: list[Row], name: str, bound: str) -> list[Case]:
    return [
        Case(f"delta {row['delta']}, matrix {row['matrix']}", float(row[name]) <= float(row[bound]))
        for row in rows
    ]


NOISE = Part(
    "Open problem: noise",
    {  # F, K, N, values of delta, matrices
        "tiny": (100, 4, 200, (0.0, 0.05), 1),
        "quick": (400, 10, 2000, (0.0, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 0.5), 5),
        "full": (1600, 40, 10000, (*ASKED, 1e-6, 1e-5, 0.0003, 0.001, 0.02), 20),
    },  # the paper's size
    lambda rows: every(matrix=range(rows.size[4]), delta=rows.size[3]),
    cluster_noisy,
    show_noise,
)

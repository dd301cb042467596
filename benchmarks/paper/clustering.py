"""The runs behind Tables VI and VII: clusterings by inits combined with solvers.

The published protocol: the plain solvers, stopped when the unnormalised error has moved by less
than 1e-4 over ten iterations, at most 2000 (mult), 1000 (hals) and 100 (nnlsb); cr1-nmf begins at a
random sample; a sample belongs to the k with the largest ||w_k|| H(k, n). k-means and spherical
k-means run until labels stay, at most 1000 iterations.
"""

from __future__ import annotations

import statistics
from functools import lru_cache, partial

import numpy as np
from presentation import Row, Section, Table, Verdict, grouped, judged, mean_and_deviation
from protocol import INITS, NEWER, Experiment
from scipy import sparse as sp
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from conenmf import from_rows
from conenmf.datasets import DATASETS, Dataset, load
from conenmf.judge.metrics import scores
from conenmf.solve.inits import initialize as begin
from conenmf.solve.loop import alternate
from conenmf.solve.solvers import SOLVERS
from conenmf.solve.stopping import Stopping

ITERATIONS = {"mult": 2000, "nnlsb": 100, "hals": 1000}
WINDOW, STILL = 10, 1e-4
SCORES = ("nmi", "Dice", "purity")
Paper = dict[tuple[str, str], tuple[tuple[float, float], ...]]  # (mean, deviation) of each score


def run(rows: Experiment, names: list[str], runs: int) -> None:
    """Cluster each dataset in every way, some runs of each."""
    for name in names:
        for number in range(runs):
            key = {"dataset": name, "run": number}
            for init, way in (("k-means", _k_means), ("spkm", _spherical_k_means)):
                rows.row(partial(_labelled, rows, way, name, number), init=init, solver="", **key)
            for solver in ITERATIONS:
                for init in INITS | NEWER:
                    compute = partial(_clustered, rows, name, init, solver, number)
                    rows.row(compute, init=init, solver=solver, **key)


_dataset = lru_cache(maxsize=1)(load)


def _labelled(rows: Experiment, way, name: str, number: int) -> dict[str, object]:
    data = _dataset(name)
    labels = way(data, rows.rng(dataset=name, way=way.__name__, run=number))
    return {**_told(data, labels), "error": np.nan, "iterations": 0}


def _k_means(data: Dataset, rng: np.random.Generator) -> np.ndarray:
    random_state = int(rng.integers(2**31))
    model = KMeans(data.K, init="random", n_init=1, max_iter=1000, tol=0,
                   random_state=random_state)  # fmt: skip
    return model.fit_predict(data.X.astype(float))


def _spherical_k_means(data: Dataset, rng: np.random.Generator) -> np.ndarray:
    X = normalize(data.X.astype(float))
    centres = X[rng.choice(X.shape[0], data.K, replace=False)]
    labels = np.full(X.shape[0], -1)
    for _ in range(1000):
        products = X @ centres.T
        cosines = products.toarray() if sp.issparse(products) else products
        before, labels = labels, cosines.argmax(axis=1)
        empty = np.setdiff1d(np.arange(data.K), labels)  # they take the farthest samples
        labels[cosines.max(axis=1).argsort()[: empty.size]] = empty
        if np.array_equal(before, labels):
            break
        member = np.eye(data.K)[labels].T
        centres = normalize(np.asarray(member @ X))
    return labels


def _clustered(
    rows: Experiment, name: str, init: str, solver: str, number: int
) -> dict[str, object]:
    data = _dataset(name)
    V = from_rows(data.X)
    errors: list[float] = []

    def still(now) -> bool:
        errors.append(now.relative_error * V.norm)
        return len(errors) > WINDOW and abs(errors[-1 - WINDOW] - errors[-1]) < STILL

    solver_ = SOLVERS[f"plain-{solver}"]
    rng = rows.rng(dataset=name, start=init, solver=solver, run=number)
    point = begin(V, data.K, (INITS | NEWER)[init], solver_, rng)
    most = 30 if rows.scale == "tiny" else ITERATIONS[solver]
    stopping = Stopping(tol=0, max_iter=most)
    found = alternate(V, point.W, point.H, solver_, stopping=stopping, callback=still)
    labels = (np.linalg.norm(found.W, axis=0)[:, None] * found.H).argmax(axis=0)
    return {**_told(data, labels), "error": errors[-1] / V.norm, "iterations": len(errors)}


def _told(data: Dataset, labels: np.ndarray) -> dict[str, float]:
    found = scores(data.labels, labels)
    return {"nmi": found["nmi"], "Dice": found["dice"], "purity": found["purity"]}


def nmi(name: str, truth: np.ndarray, labels: np.ndarray) -> float:
    """That of the samples of a dataset whose class is known; in scenes, 0 is for the others."""
    scene = name in DATASETS and DATASETS[name].kind == "scene"
    known = truth > 0 if scene else truth >= 0
    return scores(truth[known], labels[known])["nmi"]


def show(rows: list[Row], paper: dict[str, Paper]) -> Section:
    """Scores beside the paper's, and whether cr1-nmf is ahead."""
    lines = []
    means: dict[tuple[str, str, str], dict[str, float]] = {}
    for (name, init, solver), group in grouped(rows, "dataset", "init", "solver").items():
        values = {score: [float(row[score]) for row in group] for score in SCORES}
        means[name, init, solver] = {key: statistics.mean(found) for key, found in values.items()}
        theirs = paper.get(name, {}).get((init, solver))
        text = text_of_paper(theirs) if theirs else [""] * len(SCORES)
        cells = [mean_and_deviation(values[score]) for score in SCORES]
        beside = [cell for pair in zip(cells, text, strict=True) for cell in pair]
        lines.append([name, init, solver, *beside])
    header = ["dataset", "init", "solver", *(x for s in SCORES for x in (s, f"{s}, paper"))]
    return Section([Table(header, lines)], _verdicts(means, paper))


def text_of_paper(numbers: tuple[tuple[float, float], ...]) -> list[str]:
    return [f"{mean:.3f} ± {spread:.3f}" for mean, spread in numbers]


def _verdicts(
    means: dict[tuple[str, str, str], dict[str, float]], paper: dict[str, Paper]
) -> list[Verdict]:
    above, best, plain, within = [], [], [], []
    for name, init, solver in means:
        if init != "cr1-nmf":
            continue
        ours = means[name, init, solver]
        for score in SCORES:
            others = {other: means[name, other, solver][score] for other in INITS}
            first = max(others, key=others.__getitem__)
            text = f"{name}, {solver}, {score}: {ours[score]:.3f}"
            if score == "nmi":
                above.append((f"{text}, rand {others['rand']:.3f}", ours[score] > others["rand"]))
            best.append((f"{text}, {first} {others[first]:.3f}", first == "cr1-nmf"))
            for other in ("k-means", "spkm"):
                theirs = means[name, other, ""][score]
                plain.append((f"{text}, {other} {theirs:.3f}", ours[score] > theirs))
        if name in paper:
            mean, spread = paper[name]["cr1-nmf", solver][0]
            near = abs(ours["nmi"] - mean) <= spread
            within.append((f"{name}, {solver}: {ours['nmi']:.3f}, {mean:.3f} ± {spread:.3f}", near))
    names = ", ".join(dict.fromkeys(name for name, *_ in means))
    verdicts = [
        judged(f"{names}: with each solver, cr1-nmf clusters better than rand (nmi)", above),
        judged(f"{names}: with each solver, cr1-nmf clusters best of the four inits", best),
        judged(f"{names}: with each solver, cr1-nmf clusters better than k-means and spkm", plain),
    ]
    if within:
        claim = f"{names}: nmi of cr1-nmf is within the paper's standard deviation"
        verdicts.append(judged(claim, within, note="; ".join(text for text, _ in within)))
    return verdicts

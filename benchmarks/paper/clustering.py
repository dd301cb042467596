"""The runs behind Tables VI and VII: clusterings by inits combined with solvers.

The published protocol: the plain solvers, stopped when the unnormalised error has moved by less
than 1e-4 over ten iterations, at most 2000 (mult), 1000 (hals) and 100 (nnlsb); cr1-nmf begins at a
random sample; a sample belongs to the k with the largest ||w_k|| H(k, n). k-means and spherical
k-means run until labels stay, at most 1000 iterations.
"""

from __future__ import annotations

import statistics
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np
from presentation import (
    NOT_MEASURED,
    Row,
    Section,
    Table,
    Text,
    Verdict,
    grouped,
    judged,
    mean_and_deviation,
)
from protocol import Experiment
from races import in_pairs
from scipy import sparse as sp
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from starts import DETERMINISTIC, INITS, OTHERS, begin
from verdicts import ahead, decided, spread

from conenmf import from_rows
from conenmf.datasets import DATASETS, Dataset, load
from conenmf.judge.scores import scores
from conenmf.solve.run import Stopping, alternate
from conenmf.solve.solvers import SOLVERS

ITERATIONS = {"nnlsb": 100, "hals": 1000, "mult": 2000}
WINDOW, STILL = 10, 1e-4
SCORES = ("nmi", "Dice", "purity")
BEST = "cr1-nmf clusters best of the four inits"
ONLY = {"faces94 / 10": ("nnlsb",)}  # mult and hals would take three quarters of an hour more
CLAIMED = {  # the paper's sets, and what was done to them; others have no verdict
    "ck": "",
    "tr11": "",
    "faces94": " (supplement)",
    "faces94 / 10": " (supplement, 20 x 18 pixels)",
    "georgia_tech": " (supplement)",
    "georgia_tech_crop": " (supplement, crops)",
    "wap": " (supplement)",
    "digits": " (for the tests)",
}
Paper = dict[tuple[str, str], tuple[tuple[float, float], ...]]  # (mean, deviation) of each score


def run(rows: Experiment, sizes: Mapping[str, tuple[int, int]]) -> None:
    """Cluster datasets in every way, so many runs of the paper's inits and of the others."""
    names = rows.at_hand(list(sizes))
    for number in range(max(runs for runs, _ in sizes.values())):
        for name in names:
            if number < sizes[name][0]:
                for init, way in (("k-means", _k_means), ("spkm", _spherical_k_means)):
                    compute = partial(_labelled, rows, way, name, number)
                    rows.row(compute, init=init, solver="", dataset=name, run=number)
                _solve(rows, name, INITS, number)
    for number in range(max(others for _, others in sizes.values())):
        for name in names:
            if number < sizes[name][1]:
                _solve(rows, name, OTHERS, number)


def _solve(rows: Experiment, name: str, inits: Iterable[str], number: int) -> None:
    for solver in ONLY.get(name, ITERATIONS):
        for init in inits:
            if number == 0 or init not in DETERMINISTIC:
                compute = partial(_clustered, rows, name, init, solver, number)
                rows.row(compute, init=init, solver=solver, dataset=name, run=number)


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    """A dataset, or images of it that are smaller: "faces94 / 10" has a tenth of each side."""
    whole, _, shrink = name.partition(" / ")
    return load(whole, shrink=int(shrink)) if shrink else load(whole)


def _labelled(rows: Experiment, way, name: str, number: int) -> dict[str, object]:
    data = _dataset(name)
    labels = way(data, rows.rng(dataset=name, run=number))
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
    W, H, _ = begin(V, data.K, init, solver, rows.rng(dataset=name, run=number))
    most = 30 if rows.scale == "tiny" else ITERATIONS[solver]
    stopping = Stopping(tol=0, max_iter=most)
    found = alternate(V, W, H, solver_, stopping=stopping, callback=still)
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


def show(rows: list[Row], paper: dict[str, Paper], expected: Sequence[str] = ()) -> Section:
    """Scores beside the paper's, and whether cr1-nmf is ahead.

    Datasets that are, or represent, the paper's have verdicts, those that are expected even if they
    have not run; for others there are tables only.
    """
    lines, counts = [], []
    found: dict[str, dict[tuple[str, str], list[Row]]] = {}
    for (name,), here in grouped(rows, "dataset").items():
        ways = set(grouped(here, "init", "solver"))
        if not any(_complete(ways, solver) for solver in ITERATIONS):
            continue  # no solver has run from all inits yet
        found[name] = _paired(here)
        counts.append(f"{name} {len(found[name]['k-means', ''])}")
    for name, ways in found.items():
        for (init, solver), group in ways.items():
            theirs = paper.get(name, {}).get((init, solver))
            text = text_of_paper(theirs) if theirs else [""] * len(SCORES)
            cells = [mean_and_deviation([float(row[s]) for row in group]) for s in SCORES]
            beside = [cell for pair in zip(cells, text, strict=True) for cell in pair]
            lines.append([name, init, solver, len(group), *beside])
    header = ["dataset", "init", "solver", "runs"]
    header += [x for score in SCORES for x in (score, f"{score}, paper")]
    note = Text(
        f"Runs of the paper's inits: {', '.join(counts)} (the paper: 10). Inits that draw nothing "
        "run once."
    )
    verdicts = [v for name in found for v in _verdicts(name, found[name], paper.get(name))]
    verdicts += [
        Verdict(f"{name}{CLAIMED[name]}: {BEST}", NOT_MEASURED, "its runs are not complete")
        for name in expected
        if name not in found
    ]
    return Section([note, Table(header, lines)], verdicts)


def _complete(ways: Container[tuple[str, str]], solver: str) -> bool:
    return all((init, solver) in ways for init in INITS)


def _paired(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Runs by init and solver, as far as the paper's inits have run; nndsvd has one for all."""
    groups = {
        (init, solver): group for (init, solver), group in grouped(rows, "init", "solver").items()
    }
    paired = [way for way in groups if way[0] in INITS]
    return in_pairs(groups, paired, [way for way in groups if way[0] in DETERMINISTIC])


def text_of_paper(numbers: tuple[tuple[float, float], ...]) -> list[str]:
    return [f"{mean:.3f} ± {spread:.3f}" for mean, spread in numbers]


def _verdicts(
    name: str, ways: dict[tuple[str, str], list[Row]], paper: Paper | None
) -> list[Verdict]:
    if name not in CLAIMED:
        return []
    best, plain, within = [], [], []
    for solver in ITERATIONS:
        for score in SCORES if _complete(ways, solver) else ():
            values = {way: [float(row[score]) for row in group] for way, group in ways.items()}
            ours = values["cr1-nmf", solver]
            text = f"{solver}, {score}"
            others = {init: values[init, solver] for init in INITS if init != "cr1-nmf"}
            best.append(ahead(text, ours, others, largest=True))
            others = {f"{way} alone": values[way, ""] for way in ("k-means", "spkm")}
            plain.append(ahead(text, ours, others, largest=True))
    whose = CLAIMED[name]
    verdicts = [
        decided(f"{name}{whose}: {BEST}", best),
        decided(
            f"{name}{whose}: cr1-nmf with a solver clusters better than k-means and spkm", plain
        ),
    ]
    if paper:
        for (init, solver), scores_ in paper.items():
            mean, deviation = scores_[0]
            values = [float(row["nmi"]) for row in ways[init, solver]]
            text = f"{init} {solver}".strip() + f": {spread(values)}, paper {mean} ± {deviation}"
            within.append((text, abs(statistics.mean(values) - mean) <= max(deviation, 0.005)))
        claim = f"{name}: the mean nmi of each method is within the paper's standard deviation"
        verdicts.append(judged(claim, within))
    return verdicts

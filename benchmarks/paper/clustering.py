"""Clusterings and basis images: Tables VI and VII, Figures 5 and 6.

**Tables VI and VII** cluster faces and texts by inits combined with solvers. The published
protocol: the plain solvers, stopped when the unnormalised error has moved by less than 1e-4 over
ten iterations, at most 2000 (mult), 1000 (hals) and 100 (nnlsb); cr1-nmf begins at a random sample;
a sample belongs to the k with the largest ||w_k|| H(k, n). k-means and spherical k-means run until
labels stay, at most 1000 iterations. Table VI has CK where it is at hand, and the supplement's
sets. A run of mult on faces94 at its full size takes some two hours on one core for each
init: 2000 iterations of 3.4 s. It is in ``--full``, last; 20 x 18 pixels, a tenth of each side,
come before. Table VII has tr11, documents weighted by tf-idf and scaled to unit norm: without that
neither the errors nor the scores are in the range of the paper; and wap, of the supplement.

**Figures 5 and 6** show images of three people, and the basis images that mult finds for them. A
hundred iterations of mult from each init; Figure 6 has the basis images after 20, the supplement
those after other numbers of iterations. A person's basis image is the component with the largest
mean contribution ||w_k|| H(k, n) to their images. How much it looks like the person is measured as
the correlation of its pixels with the person's mean image, both less the mean of all images; the
mean over all people is reported. Pictures of people are drawn beside the rows, and are not part of
the page.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from experiment import Experiment, Key, Part, every
from page import (
    NOT_MEASURED,
    Case,
    Row,
    Section,
    Verdict,
    ahead,
    column,
    curve,
    grouped,
    judged,
    numbers,
    spread,
    table,
)
from races import dataset as loaded
from races import draws, in_pairs
from scipy import sparse as sp
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from starts import INITS, begin, solve

from conenmf import from_rows
from conenmf.datasets import Dataset
from conenmf.judge.scores import scores
from conenmf.types import Array

ITERATIONS = {"nnlsb": 100, "hals": 1000, "mult": 2000}
SCORES = ("nmi", "Dice", "purity")
BEST = "cr1-nmf clusters best of the four inits"
ONLY = {"faces94 / 10": ("nnlsb",)}  # mult and hals would take three quarters of an hour more
WHOSE = {  # what was done to the paper's sets
    "faces94": " (supplement)",
    "faces94 / 10": " (supplement, 20 x 18 pixels)",
    "georgia_tech": " (supplement)",
    "georgia_tech_crop": " (supplement, crops)",
    "wap": " (supplement)",
}
Way = tuple[str, str]  # an init and a solver, which is empty for a clustering alone
Paper = dict[Way, tuple[tuple[float, float], ...]]  # (mean, deviation) of each score


def all_ways(rows: Experiment) -> Iterator[Key]:
    """Every way to cluster every dataset."""
    for name in rows.at_hand(rows.size):
        for run in range(rows.size[name]):
            yield from every(init=CLUSTERINGS, solver=[""], dataset=[name], run=[run])
            for solver in ONLY.get(name, ITERATIONS):
                yield from every(init=draws(run), solver=[solver], dataset=[name], run=[run])


def k_means(data: Dataset, rng: np.random.Generator) -> Array:
    options = {"init": "random", "n_init": 1, "max_iter": 1000, "tol": 0}
    model = KMeans(data.K, random_state=int(rng.integers(2**31)), **options)
    return model.fit_predict(data.X.astype(float))


def spherical_k_means(data: Dataset, rng: np.random.Generator) -> Array:
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


CLUSTERINGS = {"k-means": k_means, "spkm": spherical_k_means}


def cluster(rows: Experiment, init: str, solver: str, dataset: str, run: int) -> Key:
    data, rng = loaded(dataset), rows.rng(dataset=dataset, run=run)
    errors: list[float] = []
    if solver:
        V = from_rows(data.X)

        def still(now) -> bool:
            errors.append(now.relative_error * V.norm)
            return len(errors) > 10 and abs(errors[-11] - errors[-1]) < 1e-4

        W, H, _ = begin(V, data.K, init, solver, rng)
        most = 30 if rows.scale == "tiny" else ITERATIONS[solver]
        found = solve(V, W, H, solver, most, still)
        labels = (np.linalg.norm(found.W, axis=0)[:, None] * found.H).argmax(axis=0)
    else:
        labels = CLUSTERINGS[init](data, rng)
    told = scores(data.labels, labels)
    error = errors[-1] / V.norm if solver else np.nan
    return {score: told[score.lower()] for score in SCORES} | {
        "error": error,
        "iterations": len(errors),
    }


def show_scores(rows: list[Row], paper: dict[str, Paper], expected: Sequence[str] = ()) -> Section:
    """Scores beside the paper's, and whether cr1-nmf is ahead.

    Datasets that are expected have a verdict even if they have not run.
    """
    lines, verdicts = [], []
    for name, here in grouped(rows, "dataset").items():
        ways = grouped(here, "init", "solver")
        solvers = [one for one in ITERATIONS if all((init, one) in ways for init in INITS)]
        if not solvers:
            continue  # none has run from all inits yet
        for way, group in ways.items():
            theirs = paper.get(name, {}).get(way)
            text = text_of_paper(theirs) if theirs else [""] * len(SCORES)
            cells = [spread(column(group, score)) for score in SCORES]
            beside = [cell for pair in zip(cells, text, strict=True) for cell in pair]
            lines.append([name, *way, len(group), *beside])
        verdicts += _verdicts(name, solvers, ways, paper.get(name, {}))
        expected = [other for other in expected if other != name]
    header = ["dataset", "init", "solver", "runs"]
    header += [x for score in SCORES for x in (score, f"{score}, paper")]
    verdicts += [
        Verdict(f"{name}{WHOSE.get(name, '')}: {BEST}", NOT_MEASURED, "its runs are not complete")
        for name in expected
    ]
    note = "The paper has 10 runs; nndsvd draws nothing and runs once."
    return Section([note, table(header, lines)], verdicts)


def text_of_paper(numbers: tuple[tuple[float, float], ...]) -> list[str]:
    return [f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in numbers]


def _verdicts(
    name: str, solvers: list[str], ways: dict[Way, list[Row]], paper: Paper
) -> list[Verdict]:
    best, plain, within = [], [], []
    for score, solver in product(SCORES, solvers):
        text, way = f"{solver}, {score}", ("cr1-nmf", solver)
        rivals = {(init, solver): init for init in INITS if init != "cr1-nmf"}
        best.append(_ahead(text, score, way, rivals, ways))
        rivals = {(alone, ""): f"{alone} alone" for alone in CLUSTERINGS}
        plain.append(_ahead(text, score, way, rivals, ways))
    for way, ((mean, deviation), *_) in paper.items():
        values = column(ways[way], "nmi")
        text = f"{' '.join(way).strip()}: {spread(values)}, paper {mean} ± {deviation}"
        within.append(Case(text, abs(statistics.mean(values) - mean) <= max(deviation, 0.005)))
    whose = f"{name}{WHOSE.get(name, '')}"
    better = "cr1-nmf with a solver clusters better than k-means and spkm"
    verdicts = [judged(f"{whose}: {BEST}", best), judged(f"{whose}: {better}", plain)]
    claim = f"{name}: the mean nmi of each method is within the paper's standard deviation"
    return [*verdicts, judged(claim, within)] if within else verdicts


def _ahead(
    text: str, score: str, way: Way, rivals: dict[Way, str], ways: dict[Way, list[Row]]
) -> Case:
    """The case that a way to cluster scores higher than its rivals, in the runs of all of them."""
    pairs = in_pairs({one: ways[one] for one in (way, *rivals)})
    others = {name: column(pairs[rival], score) for rival, name in rivals.items()}
    return ahead(text, column(pairs[way], score), others, largest=True)


# nmi, Dice, purity, each with its standard deviation
CK: Paper = {
    ("k-means", ""): ((0.941, 0.008), (0.773, 0.030), (0.821, 0.023)),
    ("spkm", ""): ((0.940, 0.010), (0.765, 0.036), (0.815, 0.031)),
    ("rand", "mult"): ((0.919, 0.009), (0.722, 0.026), (0.753, 0.025)),
    ("cr1-nmf", "mult"): ((0.987, 0.002), (0.944, 0.006), (0.961, 0.006)),
    ("spkm", "mult"): ((0.969, 0.005), (0.875, 0.020), (0.911, 0.018)),
    ("nndsvd", "mult"): ((0.870, 0.000), (0.614, 0.000), (0.619, 0.000)),
    ("rand", "nnlsb"): ((0.918, 0.011), (0.727, 0.026), (0.756, 0.027)),
    ("cr1-nmf", "nnlsb"): ((0.986, 0.003), (0.940, 0.011), (0.959, 0.010)),
    ("spkm", "nnlsb"): ((0.984, 0.004), (0.929, 0.014), (0.956, 0.012)),
    ("nndsvd", "nnlsb"): ((0.899, 0.000), (0.688, 0.000), (0.724, 0.000)),
    ("rand", "hals"): ((0.956, 0.007), (0.826, 0.017), (0.859, 0.022)),
    ("cr1-nmf", "hals"): ((0.974, 0.006), (0.889, 0.015), (0.925, 0.016)),
    ("spkm", "hals"): ((0.964, 0.005), (0.854, 0.015), (0.885, 0.020)),
    ("nndsvd", "hals"): ((0.942, 0.000), (0.786, 0.000), (0.830, 0.000)),
}
TR11: Paper = {
    ("k-means", ""): ((0.520, 0.061), (0.470, 0.042), (0.673, 0.059)),
    ("spkm", ""): ((0.504, 0.103), (0.454, 0.085), (0.664, 0.091)),
    ("rand", "mult"): ((0.595, 0.040), (0.540, 0.050), (0.764, 0.025)),
    ("cr1-nmf", "mult"): ((0.649, 0.049), (0.610, 0.052), (0.791, 0.023)),
    ("spkm", "mult"): ((0.608, 0.052), (0.550, 0.061), (0.773, 0.031)),
    ("nndsvd", "mult"): ((0.580, 0.000), (0.515, 0.000), (0.761, 0.000)),
    ("rand", "nnlsb"): ((0.597, 0.030), (0.537, 0.040), (0.765, 0.018)),
    ("cr1-nmf", "nnlsb"): ((0.655, 0.046), (0.615, 0.050), (0.794, 0.023)),
    ("spkm", "nnlsb"): ((0.618, 0.052), (0.563, 0.065), (0.776, 0.027)),
    ("nndsvd", "nnlsb"): ((0.585, 0.000), (0.512, 0.000), (0.766, 0.000)),
    ("rand", "hals"): ((0.609, 0.044), (0.555, 0.056), (0.772, 0.024)),
    ("cr1-nmf", "hals"): ((0.621, 0.052), (0.580, 0.062), (0.778, 0.026)),
    ("spkm", "hals"): ((0.619, 0.052), (0.567, 0.061), (0.776, 0.027)),
    ("nndsvd", "hals"): ((0.583, 0.000), (0.511, 0.000), (0.768, 0.000)),
}


def show_faces(rows: list[Row]) -> Section:
    """Ours beside the paper's; without CK the paper's alone."""
    section = show_scores(rows, {"ck": CK}, ("faces94 / 10", "georgia_tech_crop"))
    if "ck" in grouped(rows, "dataset"):
        return section
    lines = [[*way, *text_of_paper(scores)] for way, scores in CK.items()]
    missing = Verdict("ck: cr1-nmf clusters best", NOT_MEASURED, "CK needs a signed agreement")
    theirs = table(["CK, the paper's", "solver", *SCORES], lines)
    return Section([*section.body, theirs], [*section.verdicts, missing])


TABLE_6 = Part(
    "Table VI: clustering of faces",
    {  # runs for each dataset; the paper has 10
        "tiny": {"digits": 1},
        "quick": {"ck": 3, "georgia_tech_crop": 1},
        "full": {"ck": 10, "georgia_tech_crop": 10, "faces94 / 10": 10, "faces94": 10},
    },
    all_ways,
    cluster,
    show_faces,
)
TABLE_7 = Part(
    "Table VII: clustering of text",
    {"tiny": {"digits": 1}, "quick": {"tr11": 10}, "full": {"tr11": 37, "wap": 10}},
    all_ways,
    cluster,
    lambda rows: show_scores(rows, {"tr11": TR11}, ("tr11", "wap")),
)

# --- Figures 5 and 6 --------------------------------------------------------------------------

SHOWN = 3
AFTER = (1, 5, 10, 20, 50, 100)
FIGURE = 20  # iterations


def likeness_after(rows: Experiment, dataset: str, init: str, run: int) -> Key:
    data = loaded(dataset)
    V, people = from_rows(data.X), np.unique(data.labels)
    X = np.asarray(data.X, dtype=float)
    means = np.stack([X[data.labels == person].mean(axis=0) for person in people])
    usual = _unit(X.mean(axis=0))
    W, H, _ = begin(V, data.K, init, "mult", rows.rng(dataset=dataset, run=run))
    likeness, done = [], 0
    for count in AFTER:
        solution = solve(V, W, H, "mult", count - done)
        W, H, done = solution.W, solution.H, count
        share = np.linalg.norm(W, axis=0)[:, None] * H
        chosen = [share[:, data.labels == person].mean(axis=1).argmax() for person in people]
        alike = [
            np.corrcoef(_unit(basis) - usual, _unit(mean) - usual)[0, 1]
            for basis, mean in zip(W[:, chosen].T, means, strict=True)
        ]
        likeness.append(float(np.mean(alike)))
        if count == FIGURE and run == 0:
            _draw(rows.folder / f"figure6 {init}.png", data, W[:, chosen[:SHOWN]].T)
    return {"likeness": curve(likeness)}


def _unit(x: Array) -> Array:
    return x / np.linalg.norm(x)


def _draw(path: Path, data: Dataset, found: Array) -> None:
    """Draw an image of each of the people that are shown, above the basis images."""
    people = np.unique(data.labels)[:SHOWN]
    images = [np.asarray(data.X[np.flatnonzero(data.labels == person)[0]]) for person in people]
    figure, axes = plt.subplots(2, SHOWN, figsize=(2 * SHOWN, 3), layout="constrained")
    for ax, image in zip(axes.flat, [*images, *found], strict=True):
        ax.imshow(image.reshape(data.image_shape or (1, -1)), cmap="gray")
        ax.set(xticks=[], yticks=[])
    figure.savefig(path)
    plt.close(figure)


def show_likeness(rows: list[Row]) -> Section:
    """How much the basis images look like the people, after so many iterations."""
    groups = grouped(rows, "init")
    if set(groups) != set(INITS):
        return Section(["Not all inits have run yet."])
    groups = in_pairs(groups)
    found = {
        init: np.array([numbers(row["likeness"]) for row in group])
        for init, group in groups.items()
    }
    runs = len(found["cr1-nmf"])
    lines = [
        [init, *(spread(values[:, place].tolist()) for place in range(len(AFTER)))]
        for init, values in found.items()
    ]
    cases = {}
    for place, count in enumerate(AFTER):
        others = {init: found[init][:, place].tolist() for init in ("rand", "nndsvd")}
        ours = found["cr1-nmf"][:, place].tolist()
        cases[count] = ahead(f"{count} iterations", ours, others, largest=True)
    claim = "basis images from cr1-nmf look more like the people than those from rand and nndsvd"
    verdicts = [
        judged(f"After 20 iterations {claim}", [cases.pop(FIGURE)]),
        judged(f"After other numbers of iterations {claim}", cases.values()),
    ]
    note = (
        f"Correlation of basis images with people, {runs} runs (the paper shows pictures of three "
        "people, of one run)."
    )
    header = ["init", *(f"after {count}" for count in AFTER)]
    return Section([table(header, lines), note], verdicts)


FIGURE_6 = Part(
    "Figures 5 and 6: basis images",
    {
        "tiny": ("digits", 2),
        "quick": ("georgia_tech_crop", 3),
        "full": ("georgia_tech_crop", 20),
    },
    lambda rows: (
        {"dataset": name, "init": init, "run": run}
        for name in rows.at_hand(rows.size[:1])
        for run in range(rows.size[1])
        for init in draws(run)
    ),
    likeness_after,
    show_likeness,
)

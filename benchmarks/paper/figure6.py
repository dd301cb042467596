"""Figures 5 and 6: images of three people, and the basis images that mult finds for them.

A hundred iterations of mult from each init; Figure 6 has the basis images after 20, the supplement
those after other numbers of iterations. A person's basis image is the component with the largest
mean contribution ||w_k|| H(k, n) to their images. How much it looks like the person is measured as
the correlation of its pixels with the person's mean image, both less the mean of all images; the
mean over all people is reported. Pictures of people
are drawn beside the rows, and are not part of the page.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, Text, grouped
from protocol import Experiment, main
from races import curve, numbers
from starts import DETERMINISTIC, INITS, begin
from verdicts import Case, ahead, decided, spread

from conenmf import from_rows
from conenmf.data.blocks import Array
from conenmf.datasets import Dataset, load
from conenmf.solve.run import Stopping, alternate
from conenmf.solve.solvers import SOLVERS

TITLE = "Figures 5 and 6: basis images"
SIZES = {
    "tiny": ("digits", 2),
    "quick": ("georgia_tech_crop", 3),
    "full": ("georgia_tech_crop", 20),
}
SHOWN = 3
AFTER = (1, 5, 10, 20, 50, 100)
FIGURE = 20  # iterations


def run(rows: Experiment) -> None:
    wanted, runs = SIZES[rows.scale]
    for name in rows.at_hand([wanted]):
        for number in range(runs):
            for init in INITS:
                if number == 0 or init not in DETERMINISTIC:
                    compute = partial(_alike, rows, name, init, number)
                    rows.row(compute, dataset=name, init=init, run=number)


def _alike(rows: Experiment, name: str, init: str, number: int) -> dict[str, str]:
    data = load(name)
    V = from_rows(data.X)
    W, H, _ = begin(V, data.K, init, "mult", rows.rng(dataset=name, run=number))
    likeness, done = [], 0
    for count in AFTER:
        stopping = Stopping(tol=0, max_iter=count - done, exact=0)
        solution = alternate(V, W, H, SOLVERS["plain-mult"], stopping=stopping)
        W, H, done = solution.W, solution.H, count
        found = bases(data, W, H)
        likeness.append(_likeness(data, found))
        if count == FIGURE and number == 0:
            _draw(rows.folder / f"figure6 {init}.png", data, found[:SHOWN])
    return {"likeness": curve(likeness)}


def bases(data: Dataset, W: Array, H: Array) -> Array:
    """The basis image of every person (people, pixels)."""
    share = np.linalg.norm(W, axis=0)[:, None] * H
    people = np.unique(data.labels)
    chosen = [share[:, data.labels == person].mean(axis=1).argmax() for person in people]
    return W[:, chosen].T


def _likeness(data: Dataset, found: Array) -> float:
    X = np.asarray(data.X, dtype=float)
    people = np.unique(data.labels)
    means = np.stack([X[data.labels == person].mean(axis=0) for person in people])
    usual = _unit(X.mean(axis=0))
    return float(np.mean([
        np.corrcoef(_unit(basis) - usual, _unit(mean) - usual)[0, 1]
        for basis, mean in zip(found, means, strict=True)
    ]))  # fmt: skip


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


def show(rows: list[Row]) -> Section:
    """How much the basis images look like the people, after so many iterations."""
    groups = {init: group for (init,), group in grouped(rows, "init").items()}
    if set(groups) != set(INITS):
        return Section([Text("Not all inits have run yet.")])
    runs = min(len(group) for init, group in groups.items() if init not in DETERMINISTIC)
    found = {
        init: np.array([
            numbers(row["likeness"])
            for row in (group * runs if init in DETERMINISTIC else group[:runs])
        ])
        for init, group in groups.items()
    }  # fmt: skip
    lines = [
        [init, *(spread(values[:, place].tolist()) for place in range(len(AFTER)))]
        for init, values in found.items()
    ]
    cases: dict[str, list[Case]] = {"figure": [], "supplement": []}
    for place, count in enumerate(AFTER):
        others = {init: found[init][:, place].tolist() for init in ("rand", "nndsvd")}
        ours = found["cr1-nmf"][:, place].tolist()
        case = ahead(f"{count} iterations", ours, others, largest=True)
        cases["figure" if count == FIGURE else "supplement"].append(case)
    claim = "basis images from cr1-nmf look more like the people than those from rand and nndsvd"
    verdicts = [
        decided(f"After 20 iterations {claim}", cases["figure"]),
        decided(f"After other numbers of iterations {claim}", cases["supplement"]),
    ]
    note = Text(
        f"Correlation of basis images with people, {runs} runs (the paper shows pictures of three "
        "people, of one run)."
    )
    header = ["init", *(f"after {count}" for count in AFTER)]
    return Section([Table(header, lines), note], verdicts)


if __name__ == "__main__":
    main("figure6", __doc__, run, show, SIZES)

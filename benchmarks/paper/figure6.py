"""Figures 5 and 6: images of three people, and the basis images that mult finds for them.

Twenty iterations of mult from each init. A person's basis image is the component with the largest
mean contribution ||w_k|| H(k, n) to their images. How much it looks like the person is measured as
the correlation of its pixels with the person's mean image, both less the mean of all images; the
mean over all people is reported.
"""

from __future__ import annotations

import base64
import statistics
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, drawn, grouped, judged, mean_and_deviation
from protocol import INITS, Experiment, main

from conenmf import from_rows
from conenmf.datasets import Dataset, load
from conenmf.solve.inits import initialize as begin
from conenmf.solve.loop import alternate
from conenmf.solve.solvers import SOLVERS
from conenmf.solve.stopping import Stopping

TITLE = "Figures 5 and 6: basis images"
SIZES = {
    "tiny": ("digits", 1),
    "quick": ("georgia_tech_crop", 3),
    "full": ("georgia_tech_crop", 10),
}
SHOWN = 3
ITERATIONS = 20


def run(rows: Experiment) -> None:
    wanted, runs = SIZES[rows.scale]
    for name in rows.at_hand([wanted]):
        for number in range(runs):
            for init in INITS:
                rows.row(
                    partial(_alike, rows, name, init, number),
                    dataset=name,
                    init=init,
                    run=number,
                )


def bases(data: Dataset, init: str, rng: np.random.Generator) -> np.ndarray:
    """The basis image of every person (people, pixels)."""
    V, solver_ = from_rows(data.X), SOLVERS["plain-mult"]
    point = begin(V, data.K, INITS[init], solver_, rng)
    stopping = Stopping(tol=0, max_iter=ITERATIONS)
    result = alternate(V, point.W, point.H, solver_, stopping=stopping)
    share = np.linalg.norm(result.W, axis=0)[:, None] * result.H
    people = np.unique(data.labels)
    chosen = [share[:, data.labels == person].mean(axis=1).argmax() for person in people]
    return result.W[:, chosen].T


def _alike(rows: Experiment, name: str, init: str, number: int) -> dict[str, float]:
    data = load(name)
    found = bases(data, init, rows.rng(dataset=name, start=init, run=number))
    X = np.asarray(data.X, dtype=float)
    people = np.unique(data.labels)
    means = np.stack([X[data.labels == person].mean(axis=0) for person in people])
    usual = _unit(X.mean(axis=0))
    likeness = [
        np.corrcoef(_unit(basis) - usual, _unit(mean) - usual)[0, 1]
        for basis, mean in zip(found, means, strict=True)
    ]
    shape = data.image_shape or (1, X.shape[1])
    images = np.stack([*_images(data), found[:SHOWN]]).reshape(-1, SHOWN, *shape)
    return {"likeness": float(np.mean(likeness)), "pictures": _packed(images)}


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


def _images(data: Dataset) -> np.ndarray:
    """A few images (images, people, pixels) of each of the people that are shown."""
    people = np.unique(data.labels)[:SHOWN]
    mine = [np.flatnonzero(data.labels == person)[:SHOWN] for person in people]
    return np.stack([np.asarray(data.X[index]) for index in mine], axis=1)


def _packed(images: np.ndarray) -> str:
    """Small grey images (kinds, people, rows, columns) for one cell."""
    largest = images.max(axis=(2, 3), keepdims=True)
    grey = np.round(255 * images / np.where(largest > 0, largest, 1)).astype(np.uint8)
    return "x".join(map(str, grey.shape)) + ":" + base64.b64encode(grey.tobytes()).decode()


def _unpacked(cell: str) -> np.ndarray:
    shape, text = cell.split(":")
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(
        [int(n) for n in shape.split("x")]
    )


def show(rows: list[Row]) -> Section:
    """The images of the first run, and how much they look like the people."""
    groups = {init: group for (init,), group in grouped(rows, "init").items()}
    pictures = {init: _unpacked(group[0]["pictures"]) for init, group in groups.items()}
    images = next(iter(pictures.values()))[:-1]
    kinds = {f"image {number}": images[number - 1] for number in range(1, len(images) + 1)}
    kinds |= {init: found[-1] for init, found in pictures.items()}
    size = (2 * SHOWN, 1.5 * len(kinds))
    figure, axes = plt.subplots(len(kinds), SHOWN, figsize=size, layout="constrained")
    for (kind, some), across in zip(kinds.items(), axes, strict=True):
        for ax, image in zip(across, some, strict=True):
            ax.imshow(image, cmap="gray")
            ax.set(xticks=[], yticks=[])
        across[0].set_ylabel(kind)
    likeness = {init: [float(row["likeness"]) for row in group] for init, group in groups.items()}
    lines = [[init, mean_and_deviation(values)] for init, values in likeness.items()]
    means = {init: statistics.mean(values) for init, values in likeness.items()}
    cases = [
        (
            f"{init}: {means[init]:.3f} against {means['cr1-nmf']:.3f}",
            means["cr1-nmf"] > means[init],
        )
        for init in ("rand", "nndsvd")
    ]
    claim = "Basis images from cr1-nmf look more like the people than those from rand and nndsvd"
    picture = drawn(
        figure,
        "figure6",
        "Images of three people, and basis images found for them",
        photographs=rows[0]["dataset"] != "digits",
    )
    text = "; ".join(f"{init} {mean:.3f}" for init, mean in means.items())
    return Section([picture, Table(["init", "correlation"], lines)], [judged(claim, cases, text)])


if __name__ == "__main__":
    main("figure6", __doc__, run, show, SIZES)

"""Figure 1: two circular cones that satisfy the geometric assumption, in three dimensions.

Size angles 0.2, axes 0.9 apart, which is more than 3 * 0.2 + 0.2. The rows say what is measured on
samples drawn from such cones: the angles, and the margin by which the assumption holds.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, Text, drawn, judged
from protocol import SCALES, Experiment, main

from conenmf import cluster_cones, from_columns
from conenmf.cones.geometry import cone_geometry

TITLE = "Figure 1: the geometric assumption"
ALPHA, BETA = 0.2, 0.9
SAMPLES = 60
SIZES = dict.fromkeys(SCALES, (ALPHA, BETA, SAMPLES))


def run(rows: Experiment) -> None:
    rows.row(lambda: _measured(rows), alpha=ALPHA, beta=BETA)


def axes() -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors at angle BETA, symmetric about the diagonal of the orthant."""
    middle, across = np.ones(3) / np.sqrt(3), np.array([1.0, -1.0, 0.0]) / np.sqrt(2)
    half = BETA / 2
    return (
        np.cos(half) * middle + np.sin(half) * across,
        np.cos(half) * middle - np.sin(half) * across,
    )


def around(u: np.ndarray, angle: float, turn: np.ndarray) -> np.ndarray:
    """Unit vectors (3, n) at an angle from u, turned about it."""
    first = np.cross(u, [0.0, 0.0, 1.0])
    first /= np.linalg.norm(first)
    second = np.cross(u, first)
    circle = np.outer(first, np.cos(turn)) + np.outer(second, np.sin(turn))
    return np.cos(angle) * u[:, None] + np.sin(angle) * circle


def _measured(rows: Experiment) -> dict[str, object]:
    rng = rows.rng(samples=SAMPLES)
    samples = []
    for u in axes():
        turn, angle = 2 * np.pi * rng.random(SAMPLES), ALPHA * rng.random(SAMPLES)
        samples += [around(u, a, np.array([t])) for a, t in zip(angle, turn, strict=True)]
        samples.append(around(u, ALPHA, np.arange(4) * np.pi / 2))
    V = from_columns(np.hstack(samples))
    N = V.shape[1]
    truth = np.repeat([0, 1], N // 2)
    clusterings = [cluster_cones(V, 2, first=first).labels for first in range(N)]
    wrong = [min((labels != truth).sum(), (labels == truth).sum()) for labels in clusterings]
    found = cone_geometry(V, truth)
    return {
        "largest size angle": float(np.max(found.angles)),
        "angle between axes": float(found.between[0, 1]),
        "margin": float(found.margin),
        "first samples": N,
        "wrong labels": int(sum(wrong)),
    }


def show(rows: list[Row]) -> Section:
    """The cones, and that Algorithm 1 finds them."""
    figure = plt.figure(figsize=(6, 5), layout="constrained")
    ax = figure.add_subplot(projection="3d")
    turn, length = np.linspace(0, 2 * np.pi, 60), np.linspace(0, 1.2, 2)
    for u, colour in zip(axes(), ("tab:blue", "tab:orange"), strict=True):
        rim = around(u, ALPHA, turn)
        ax.plot_surface(*(np.outer(length, part) for part in rim), color=colour, alpha=0.4)
        ax.quiver(0, 0, 0, *(1.35 * u), color=colour, arrow_length_ratio=0.06)
        ax.text(*(1.4 * u), "u1" if colour == "tab:blue" else "u2")
    ax.set(xlim=(0, 1.2), ylim=(0, 1.2), zlim=(0, 1.2), xlabel="x", ylabel="y", zlabel="z")
    ax.view_init(24, 50)
    row = rows[0]
    verdict = judged(
        "Algorithm 1 finds both cones from any first sample of theirs",
        [(f"{row['wrong labels']} labels wrong", row["wrong labels"] == "0")],
        note=f"{row['first samples']} first samples",
    )
    table = Table(list(row), [list(row.values())])
    note = Text("One set of samples, and Algorithm 1 from each of them. The paper has a drawing.")
    picture = drawn(figure, "figure1", "Two circular cones in the nonnegative orthant of space")
    return Section([picture, table, note], [verdict])


if __name__ == "__main__":
    main("figure1", __doc__, run, show, SIZES)

"""Section VI-B2: rank-one NMF against the mean direction where samples have duplicates.

Two samples (1, 0) and one (0, 1), K = 1: the error is 1 with the rank-one factor and 1.0954 with
the centroid of spherical k-means.
"""

from __future__ import annotations

import numpy as np
from presentation import Row, Section, Table, judged
from protocol import SCALES, Experiment, main
from starts import cr1

from conenmf import from_columns
from conenmf.data.blocks import Array

TITLE = "Section VI-B2: the example with duplicates"
V = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
PAPER = {"rank-one NMF": 1.0, "mean direction": 1.0954}
SIZES = dict.fromkeys(SCALES, V.tolist())


def run(rows: Experiment) -> None:
    for way in PAPER:
        rows.row(lambda way=way: {"error": _error(_direction(way, rows))}, way=way)


def _direction(way: str, rows: Experiment) -> Array:
    """W or the normalised mean of the samples."""
    if way == "mean direction":
        return V.sum(axis=1) / np.linalg.norm(V.sum(axis=1))
    return cr1(from_columns(V), 1, rows.rng(way=way))[0][:, 0]


def _error(w: Array) -> float:
    return float(np.linalg.norm(V - np.outer(w, w @ V)))


def show(rows: list[Row]) -> Section:
    """Both errors beside the paper's."""
    lines = [[row["way"], row["error"], PAPER[row["way"]]] for row in rows]
    cases = [(f"{w}: {float(e):.4f}", abs(float(e) - paper) < 1e-4) for w, e, paper in lines]
    claim = "The errors of the example with duplicates are 1 and 1.0954"
    verdict = judged(claim, cases, note="; ".join(text for text, _ in cases))
    return Section([Table(["direction", "error", "the paper's"], lines)], [verdict])


if __name__ == "__main__":
    main("example", __doc__, run, show, SIZES)

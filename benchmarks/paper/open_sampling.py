"""An open problem of the paper: a probabilistic variant, with centres drawn as k-means++ does.

cr1++ draws each centre in proportion to the squared length that the centres so far leave
unexplained, and takes the best of r runs. Beside it is cr1-nmf with the best of r first samples.
nmi is that of the cones with the classes.
"""

from __future__ import annotations

import statistics
import time
from functools import lru_cache, partial

import matplotlib.pyplot as plt
import numpy as np
from clustering import nmi
from presentation import Row, Section, Table, drawn, grouped, judged
from protocol import Experiment, main

from conenmf import cr1_nmf, factorize, from_columns, from_rows, make_cones
from conenmf.cones.rank_one import cr1_error
from conenmf.cones.seeding import cr1_plus_plus
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import load

TITLE = "Open problem: centres drawn at random (cr1++)"
SIZES = {  # datasets, cones (F, K, N), values of r, repetitions, iterations of hals
    "tiny": (["digits"], (100, 4, 200), (1, 4), 1, 5),
    "quick": (["digits", "orl_32x32", "georgia_tech_crop", "paviau_subset", "tr11", "wap"],
              (400, 10, 2000), (1, 2, 4, 8, 16), 3, 30),
    "full": (["digits", "orl_32x32", "georgia_tech_crop", "paviau_subset", "tr11", "wap"],
             (1600, 40, 10000), (1, 2, 4, 8, 16), 20, 100),
}  # fmt: skip
COLUMNS = ("error", "after hals", "nmi", "seconds")
DIRECTIONS = {"error": 1, "after hals": 1, "nmi": -1}  # a larger nmi is better
JUDGED = 4  # the r by default
EQUAL = 0.001
NOISE = {"cones": 0.0, "cones, delta 0.1": 0.1, "cones, delta 0.5": 0.5}


def run(rows: Experiment) -> None:
    names, _, runs, repetitions, _ = SIZES[rows.scale]
    for name in [*NOISE, *rows.at_hand(names)]:
        for r in runs:
            for number in range((2 if r == JUDGED else 1) * repetitions):
                for way in ("cr1-nmf", "cr1++"):
                    compute = partial(_measured, rows, name, r, number, way)
                    rows.row(compute, dataset=name, init=way, r=r, run=number)


@lru_cache(maxsize=1)
def _data(rows: Experiment, name: str) -> tuple[DataMatrix, int, np.ndarray]:
    if name not in NOISE:
        found = load(name)
        return from_rows(found.X), found.K, found.labels
    F, K, N = SIZES[rows.scale][1]
    model = make_cones(F, K, 0.2, n_samples=N, noise=NOISE[name], rng=rows.rng(data=name))
    return from_columns(model.V), K, model.labels


def _measured(rows: Experiment, name: str, r: int, number: int, way: str) -> dict[str, object]:
    V, K, truth = _data(rows, name)
    rng = rows.rng(dataset=name, start=way, r=r, run=number)
    began = time.process_time()
    if way == "cr1++":
        W, H, cones = cr1_plus_plus(V, K, rng=rng, runs=r)
    else:
        found = [cr1_nmf(V, K, rng=rng) for _ in range(r)]
        W, H, cones = min(found, key=lambda factors: cr1_error(V, *factors[:2]))
    seconds = time.process_time() - began
    then = factorize(
        V, K, init=lambda *_: (W, None), solver="hals",
        max_iter=SIZES[rows.scale][-1], tol=0,
    )  # fmt: skip
    return {
        "error": cr1_error(V, W, H),
        "after hals": then.relative_error,
        "nmi": nmi(name, truth, cones.labels),
        "seconds": seconds,
    }


def show(rows: list[Row]) -> Section:
    """Errors against r, of the rank-one factors and after the solver."""
    runs = sorted({int(row["r"]) for row in rows})
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    shape = (-(-len(names) // 3), 3)
    figure, axes = plt.subplots(
        *shape, figsize=(10, 2.6 * shape[0]), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    lines = []
    cases: dict[str, list[tuple[str, bool]]] = {column: [] for column in COLUMNS}
    for name, ax in zip(names, axes.flat, strict=False):
        here = [row for row in rows if row["dataset"] == name]
        means = {
            (init, int(r)): {
                column: statistics.mean(float(row[column]) for row in group) for column in COLUMNS
            }
            for (init, r), group in grouped(here, "init", "r").items()
        }
        for init in ("cr1-nmf", "cr1++"):
            ax.semilogx(runs, [means[init, r]["error"] for r in runs], marker=".", label=init)
            for r in runs:
                found = means[init, r]
                lines.append(
                    [name, init, r, *(f"{found[column]:.4f}" for column in COLUMNS[:2]),
                     f"{found['nmi']:.3f}", f"{found['seconds']:.3f}"]
                )  # fmt: skip
        ax.set(title=name, xlabel="best of r", ylabel="error")
        for column, better in DIRECTIONS.items():
            greedy, drawn_ = (means[init, JUDGED][column] for init in ("cr1-nmf", "cr1++"))
            text = f"{name}: {drawn_:.4f} against {greedy:.4f}"
            cases[column].append((text, better * drawn_ <= better * greedy + EQUAL * greedy))
    axes.flat[0].legend()
    best = f"Best of {JUDGED}"
    counted = [row for row in rows if int(row["r"]) == JUDGED and row["init"] == "cr1++"]
    repeated = [len(group) for group in grouped(counted, "dataset").values()]
    verdicts = [
        judged(f"{best}: {claim} (within 0.1%)", cases[column], runs=repeated)
        for column, claim in (
            ("error", "the error of cr1++ is at most that of cr1-nmf"),
            ("after hals", "so it is after hals"),
            ("nmi", "cones of cr1++ fit the classes as well or better"),
        )
    ]
    picture = drawn(figure, "open_sampling", "Error against the number of runs")
    return Section([picture, Table(["dataset", "init", "r", *COLUMNS], lines)], verdicts)


if __name__ == "__main__":
    main("open_sampling", __doc__, run, show, SIZES)

"""An open problem of the paper: a probabilistic variant, with centres drawn as k-means++ does.

cr1++ draws each centre in proportion to the squared length that the centres so far leave
unexplained, and takes the best of r runs. Beside it is cr1-nmf with the best of r first samples.
"""

from __future__ import annotations

import statistics
from functools import lru_cache, partial

import matplotlib.pyplot as plt
from presentation import Row, Section, Table, drawn, grouped, judged
from protocol import Experiment, at_hand, main
from races import data

from conenmf import DataMatrix, cr1_nmf, cr1_plus_plus, factorize, from_columns, make_cones
from conenmf.cones import cr1_error

TITLE = "Open problem: centres drawn at random (cr1++)"
SIZES = {  # datasets, cones (F, K, N), values of r, repetitions, iterations of hals
    "tiny": (["digits"], (100, 4, 200), (1, 2), 1, 5),
    "quick": (["digits", "orl_32x32", "georgia_tech_crop", "paviau_subset", "tr11", "wap"],
              (400, 10, 2000), (1, 2, 4, 8, 16), 3, 30),
    "full": (["digits", "orl_32x32", "georgia_tech_crop", "paviau_subset", "tr11", "wap"],
             (1600, 40, 10000), (1, 2, 4, 8, 16), 20, 100),
}  # fmt: skip
NOISE = {"cones": 0.0, "cones, delta 0.1": 0.1, "cones, delta 0.5": 0.5}


def run(rows: Experiment) -> None:
    names, _, runs, repetitions, _ = SIZES[rows.scale]
    for name in [*NOISE, *at_hand(names, "open_sampling")]:
        for r in runs:
            for number in range(repetitions):
                for way in ("cr1-nmf", "cr1++"):
                    compute = partial(_measured, rows, name, r, number, way)
                    rows.row(compute, dataset=name, start=way, r=r, run=number)


@lru_cache(maxsize=1)
def _cones(rows: Experiment, name: str) -> tuple[DataMatrix, int]:
    F, K, N = SIZES[rows.scale][1]
    model = make_cones(F, K, 0.2, n_samples=N, noise=NOISE[name], rng=rows.rng(data=name))
    return from_columns(model.V), K


def _measured(rows: Experiment, name: str, r: int, number: int, way: str) -> dict[str, object]:
    V, K = _cones(rows, name) if name in NOISE else data(name)
    rng = rows.rng(dataset=name, start=way, r=r, run=number)
    if way == "cr1++":
        W, H, _ = cr1_plus_plus(V, K, rng=rng, runs=r)
    else:
        found = [cr1_nmf(V, K, rng=rng) for _ in range(r)]
        W, H, _ = min(found, key=lambda factors: cr1_error(V, factors[1]))
    then = factorize(
        V, K, init=lambda *_: (W, None), solver="hals", sketch=None,
        max_iter=SIZES[rows.scale][-1], tol=0,
    )  # fmt: skip
    return {"error": cr1_error(V, H), "after hals": then.relative_error}


def show(rows: list[Row]) -> Section:
    """Errors against r, of the rank-one factors and after the solver."""
    runs = sorted({int(row["r"]) for row in rows})
    lines, alone, after = [], [], []
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    shape = (-(-len(names) // 3), 3)
    figure, axes = plt.subplots(*shape, figsize=(10, 2.6 * shape[0]), layout="constrained",
                                squeeze=False)  # fmt: skip
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for name, ax in zip(names, axes.flat, strict=False):
        here = [row for row in rows if row["dataset"] == name]
        means = {
            (start, int(r)): [statistics.mean(float(row[c]) for row in group)
                              for c in ("error", "after hals")]
            for (start, r), group in grouped(here, "start", "r").items()
        }  # fmt: skip
        for start in ("cr1-nmf", "cr1++"):
            ax.semilogx(runs, [means[start, r][0] for r in runs], marker=".", label=start)
            cells = [f"{means[start, r][0]:.5f}, {means[start, r][1]:.5f}" for r in runs]
            lines.append([name, start, *cells])
        ax.set(title=name, xlabel="best of r", ylabel="error")
        last = runs[-1]
        for place, cases in enumerate((alone, after)):
            greedy, drawn_ = means["cr1-nmf", last][place], means["cr1++", last][place]
            told = f"{name}: {drawn_:.5f} against {greedy:.5f}"
            cases.append((told, drawn_ <= 1.001 * greedy))
    axes.flat[0].legend()
    verdicts = [
        judged(f"Best of {runs[-1]}: cr1++ has an error as low as cr1-nmf's, or lower", alone),
        judged(f"Best of {runs[-1]}: so it is after hals", after),
    ]
    picture = drawn(figure, "open_sampling", "Error against the number of runs")
    header = ["dataset", "start", *(f"r = {r}: error, after hals" for r in runs)]
    return Section([picture, Table(header, lines)], verdicts)


if __name__ == "__main__":
    main("open_sampling", __doc__, run, show)

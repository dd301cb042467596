"""The runs behind Tables III, IV and V, Figure 4 and the supplementary curves.

Each of the paper's inits is followed by each plain solver: mult and hals for a given number of
iterations, nnlsb at least so long, and until it has reached the lowest error of Table V or made
its largest number of iterations. Other inits run with nnlsb alone, which is the solver of Table V.
H of cr1-nmf is raised off zero for mult and hals, and nnlsb takes W alone, as published. All inits
of a run draw from the same random numbers; inits that draw none run once.

The errors of Table V are the paper's where the dataset is (faces94). Georgia Tech is here as crops
and PaviaU as a part, so there they are 4%, 2% and 1% above the lowest mean error that an earlier
experiment had after 60 iterations. Seconds are those of the processor, on one core.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np
from presentation import Row, Text, grouped
from protocol import Experiment, TimeIsUp, experiment
from starts import DETERMINISTIC, INITS, OTHERS, begin

from conenmf import from_rows
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import load
from conenmf.solve.run import Iteration, Stopping, alternate
from conenmf.solve.solvers import SOLVERS as BY_NAME

SOLVERS = ("nnlsb", "mult", "hals")
ONLY = {"faces94 / 2": ("nnlsb",)}  # the solver of Table V; its runs take a minute each
BANDS = ("paviau", "paviau_subset")  # the paper's samples are the bands of a scene
TARGETS = {
    "digits": (0.45, 0.4, 0.35),
    "ck": (0.105, 0.100, 0.095),
    "faces94": (0.140, 0.135, 0.131),
    "faces94 / 2": (0.140, 0.135, 0.131),
    "georgia_tech": (0.185, 0.18, 0.175),
    "georgia_tech_crop": (0.1661, 0.1629, 0.1613),
    "paviau": (0.0230, 0.0225, 0.0220),
    "paviau_subset": (0.01876, 0.0184, 0.01822),
}
ORIGINAL = {  # the paper's dataset that each represents
    "ck": "ck",
    "faces94": "faces94",
    "faces94 / 2": "faces94",
    "georgia_tech": "georgia_tech",
    "georgia_tech_crop": "georgia_tech",
    "paviau": "paviau",
    "paviau_subset": "paviau",
}
Way = TypeVar("Way", str, tuple[str, str])
SOME = 20  # iterations of nnlsb whose cost is compared


class Size(NamedTuple):
    """Iterations of mult and hals, least and most of nnlsb; runs of the inits, and of others."""

    fixed: int
    least: int
    most: int
    runs: int
    others: int


SIZES = {
    "tiny": {"digits": Size(10, 5, 8, 2, 1)},
    "quick": {
        "faces94 / 2": Size(40, 20, 100, 1, 0),
        "georgia_tech_crop": Size(100, 100, 500, 2, 1),
        "paviau_subset": Size(200, 100, 500, 6, 1),
    },
    "full": {
        "ck": Size(200, 100, 500, 20, 0),
        "faces94 / 2": Size(100, 20, 200, 6, 0),
        "georgia_tech": Size(200, 100, 500, 20, 0),
        "georgia_tech_crop": Size(200, 100, 500, 20, 0),
        "paviau": Size(200, 100, 500, 20, 0),
        "paviau_subset": Size(200, 100, 500, 30, 6),
        "faces94": Size(200, 100, 500, 20, 0),
    },
}


def run(rows: Experiment) -> None:
    sizes = SIZES[rows.scale]
    for name in rows.at_hand(list(sizes)):
        size = sizes[name]
        for solver in ONLY.get(name, SOLVERS):
            for number in range(size.runs):
                _runs(rows, name, solver, INITS, number)
        for number in range(size.others):
            _runs(rows, name, "nnlsb", OTHERS, number)


def _runs(rows: Experiment, name: str, solver: str, inits: Collection[str], number: int) -> None:
    for init in inits:
        if number == 0 or init not in DETERMINISTIC:
            compute = partial(_race, rows, name, solver, init, number)
            rows.row(compute, dataset=name, solver=solver, init=init, run=number)


@lru_cache(maxsize=1)
def data(name: str) -> tuple[DataMatrix, int]:
    """A dataset as the paper takes it, and the number of components."""
    whole, _, shrink = name.partition(" / ")
    if name in BANDS:
        return from_rows(load(name, samples_are="bands").X), 9
    found = load(whole, shrink=int(shrink)) if shrink else load(whole)
    return from_rows(found.X), found.K


def _race(rows: Experiment, name: str, solver: str, init: str, number: int) -> dict[str, object]:
    V, K = data(name)
    size, targets = SIZES[rows.scale][name], TARGETS[name]
    _warm(init, solver)
    W, H, late = begin(V, K, init, solver, rows.rng(dataset=name, run=number))
    errors: list[float] = []
    times: list[float] = []
    began = time.process_time()

    def enough(now: Iteration) -> bool:
        errors.append(now.relative_error)
        times.append(time.process_time() - began)
        return solver == "nnlsb" and len(errors) >= size.least and min(errors) <= targets[-1]

    stopping = Stopping(tol=0, max_iter=size.most if solver == "nnlsb" else size.fixed, exact=0)
    alternate(V, W, H, BY_NAME[f"plain-{solver}"], stopping=stopping, callback=enough)
    first = [next((n for n, e in enumerate(errors) if e <= target), None) for target in targets]
    return {
        "F": V.shape[0],
        "N": V.shape[1],
        "K": K,
        "iterations": len(errors),
        "errors": curve([errors[n - 1] for n in kept_iterations(len(errors))]),
        "reached": curve([np.inf if n is None else n + 1 for n in first]),
        "seconds of init": late,
        "seconds to reach": curve([np.inf if n is None else late + times[n] for n in first]),
        "seconds of some": times[min(SOME, len(times)) - 1],
        "seconds": times[-1],
    }


@lru_cache
def _warm(init: str, solver: str) -> None:
    """Run it once on small data, so that nothing is compiled while the clock runs."""
    rng = np.random.default_rng(0)
    V = from_rows(rng.random((40, 30)))
    W, H, _ = begin(V, 3, init, solver, rng)
    alternate(V, W, H, BY_NAME[f"plain-{solver}"], stopping=Stopping(tol=0, max_iter=2))


def kept_iterations(count: int) -> list[int]:
    """Those whose errors are kept: all up to 20, then each fifth, and the last."""
    return sorted({*range(1, min(count, 20) + 1), *range(25, count + 1, 5), count})


def error_at(row: Row, iteration: int) -> float:
    """The error after the last kept iteration up to this one."""
    kept = kept_iterations(int(row["iterations"]))
    place = max(sum(n <= iteration for n in kept) - 1, 0)
    return float(numbers(row["errors"])[place])


def curve(values: Collection[float]) -> str:
    """Numbers for one cell; `numbers` reads them."""
    return " ".join(f"{value:.5g}" for value in values)


def numbers(cell: str) -> np.ndarray:
    return np.array(cell.split(), dtype=float)


def by_init(
    rows: list[Row], dataset: str, solver: str, inits: Collection[str] = INITS
) -> dict[str, list[Row]]:
    """The runs of one dataset and solver, by init, as far as all inits that draw have run."""
    here = [row for row in rows if (row["dataset"], row["solver"]) == (dataset, solver)]
    groups = {init: group for (init,), group in grouped(here, "init").items() if init in inits}
    return in_pairs(groups, groups, [init for init in groups if init in DETERMINISTIC])


def in_pairs(
    groups: dict[Way, list[Row]], paired: Collection[Way], once: Collection[Way]
) -> dict[Way, list[Row]]:
    """The runs that all paired ways have in common, in the same order for each way.

    The one run of a way that draws nothing is taken for all.
    """
    by_run = {way: {int(row["run"]): row for row in group} for way, group in groups.items()}
    drawn = [set(by_run[way]) for way in paired if way not in once]
    common = sorted(set.intersection(*drawn)) if drawn else [0]
    return {
        way: [runs[0]] * len(common) if way in once else [runs[n] for n in common if n in runs]
        for way, runs in by_run.items()
    }


def unfinished(rows: list[Row]) -> list[Text]:
    """A note on datasets that have begun, and on which no solver has run from all inits yet."""
    names = [
        name for name in datasets(rows)
        if not any(set(by_init(rows, name, solver)) == set(INITS) for solver in SOLVERS)
    ]  # fmt: skip
    text = "On these datasets not all inits have run yet, so they have no verdict: "
    return [Text(f"{text}{', '.join(names)}.")] if names else []


def datasets(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows))


if __name__ == "__main__":
    try:
        run(experiment("races", __doc__, SIZES))
    except TimeIsUp:
        print("The time is up; the rows so far are kept.")

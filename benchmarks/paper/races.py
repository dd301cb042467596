"""The runs behind Tables III, IV and V, Figure 4 and the supplementary curves.

Each init is followed by each plain solver for a given number of iterations, inits that came after
the paper by nnlsb alone, which is the solver of Table V. A row keeps the whole curve: relative
errors and seconds after every iteration, the init not counted, and the seconds of the init. H of
cr1-nmf is raised off zero for mult and hals, and nnlsb takes W alone, as published.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection
from functools import lru_cache, partial

import numpy as np
from presentation import Row, grouped
from protocol import INITS, NEWER, Experiment, experiment, first_time

from conenmf import factorize, from_rows
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import load

SOLVERS = ("mult", "nnlsb", "hals")
OPTIONS = {  # of the datasets; the paper's samples are the bands of a scene
    "faces94": {"shrink": 2},
    "paviau": {"samples_are": "bands"},
    "paviau_subset": {"samples_are": "bands"},
    "indian_pines": {"samples_are": "bands"},
}
COMPONENTS = {"paviau": 9, "paviau_subset": 9, "indian_pines": 16}
SIZES = {  # datasets with the number of iterations of mult, nnlsb, hals and of runs
    "tiny": {"digits": (10, 5, 10, 1)},
    "quick": {
        "faces94": (40, 20, 40, 1),
        "georgia_tech_crop": (100, 60, 100, 5),
        "paviau_subset": (100, 60, 100, 5),
        "indian_pines": (100, 60, 100, 5),
    },
    "full": {
        "ck": (200, 100, 200, 20),
        "faces94": (200, 100, 200, 20),
        "georgia_tech": (200, 100, 200, 20),
        "georgia_tech_crop": (200, 100, 200, 20),
        "paviau": (200, 100, 200, 20),
        "paviau_subset": (200, 100, 200, 20),
        "indian_pines": (200, 100, 200, 20),
    },
}


def run(rows: Experiment) -> None:
    sizes = SIZES[rows.scale]
    for name in rows.at_hand(list(sizes)):
        *iterations, runs = sizes[name]
        for solver, count in zip(SOLVERS, iterations, strict=True):
            for number in range(runs):
                for init in INITS | NEWER if solver == "nnlsb" else INITS:
                    compute = partial(_race, rows, name, solver, init, number, count)
                    rows.row(compute, dataset=name, solver=solver, init=init, run=number)


@lru_cache(maxsize=1)
def data(name: str) -> tuple[DataMatrix, int]:
    """A dataset as the paper takes it, and the number of components."""
    found = load(name, **OPTIONS.get(name, {}))
    return from_rows(found.X), COMPONENTS.get(name, found.K)


def _race(
    rows: Experiment, name: str, solver: str, init: str, number: int, iterations: int
) -> dict[str, object]:
    V, K = data(name)
    key = {"dataset": name, "start": init, "run": number}  # decides the random numbers
    options = {
        "init": (INITS | NEWER)[init],
        "solver": f"plain-{solver}",
        "tol": 0,
        "sketch": None,
    }
    factorize(V, K, max_iter=1, rng=rows.rng(**key), **options)  # compiled and warm
    result = factorize(V, K, max_iter=iterations, rng=rows.rng(**key), **options)
    history = result.history
    return {
        "F": V.shape[0],
        "N": V.shape[1],
        "K": K,
        "errors": curve(history.relative_error),
        "seconds of init": result.seconds["init"],
        "seconds": curve(history.elapsed),
    }


def curve(values: np.ndarray) -> str:
    """Numbers for one cell; `numbers` reads them."""
    return " ".join(f"{value:.5g}" for value in values)


def numbers(cell: str) -> np.ndarray:
    return np.array(cell.split(), dtype=float)


def last_error(rows: list[Row]) -> float:
    """The mean of the last errors of some runs."""
    return statistics.mean(float(numbers(row["errors"])[-1]) for row in rows)


def reached(rows: list[Row], target: float) -> float:
    """Median seconds until an error was reached, init included; infinite if it was not."""
    return statistics.median(
        float(row["seconds of init"])
        + first_time(numbers(row["errors"]), numbers(row["seconds"]), target)
        for row in rows
    )


def seconds_or_never(value: float, unit: str = "") -> str:
    return f"{value:.2f}{unit}" if np.isfinite(value) else "never"


def by_init(
    rows: list[Row], dataset: str, solver: str, inits: Collection[str] = INITS
) -> dict[str, list[Row]]:
    """The runs of one dataset and solver, by init."""
    here = [row for row in rows if (row["dataset"], row["solver"]) == (dataset, solver)]
    groups = grouped(here, "init").items()
    return {init: group for (init,), group in groups if init in inits}


def datasets(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows))


if __name__ == "__main__":
    run(experiment("races", __doc__, SIZES))

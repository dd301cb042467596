"""Tables III and V: seconds of each start, and seconds until nnlsb reaches given errors from it.

The paper's errors belong to its own pixels (CK is restricted, Georgia Tech is here as crops, PaviaU
as a part), so the errors to reach are 4%, 2% and 1% above the lowest that any start led to. Seconds
include the start. The order of the starts is what can carry over.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from protocol import Experiment, experiment, first_time

from conenmf import factorize, from_rows
from conenmf.datasets import load

SIZES = {  # datasets with the number of components and of iterations, runs
    "tiny": ((("digits", {}, 10, 10),), 1),
    "quick": (
        (("georgia_tech_crop", {}, 50, 60), ("paviau_subset", {"samples": "bands"}, 9, 60)),
        3,
    ),
    "full": (
        (
            ("faces94", {"shrink": 2}, 152, 100),
            ("georgia_tech_crop", {}, 50, 100),
            ("paviau_subset", {"samples": "bands"}, 9, 100),
            ("indian_pines", {"samples": "bands"}, 15, 100),
        ),
        20,
    ),
}
STARTS = {"rand": "random", "cr1-nmf": "cr1", "spkm": "spkm", "nndsvd": "nndsvd"}
ABOVE = (1.04, 1.02, 1.01)


def run(rows: Experiment) -> None:
    datasets, runs = SIZES[rows.scale]
    for name, options, K, iterations in datasets:
        for number in range(runs):
            compute = partial(_race, rows, name, tuple(options.items()), K, iterations, number)
            rows.row(compute, dataset=name, run=number)


@lru_cache(maxsize=1)
def _dataset(name: str, options: tuple[tuple[str, object], ...]):
    return from_rows(load(name, **dict(options)).X)


def _race(
    rows: Experiment, name: str, options: tuple, K: int, iterations: int, number: int
) -> dict[str, float]:
    V = _dataset(name, options)
    found = {}
    for start, init in STARTS.items():
        rng = rows.rng(dataset=name, start=start, run=number)
        factorize(V, K, init=init, solver=None, rng=rng)  # compiled and warm
        rng = rows.rng(dataset=name, start=start, run=number)
        rule = {"solver": "plain-nnlsb", "sketch": None, "tol": 0, "max_iter": iterations}
        found[start] = factorize(V, K, init=init, rng=rng, **rule)
    lowest = min(float(result.history.relative_error[-1]) for result in found.values())
    told: dict[str, float] = {"lowest": lowest}
    for start, result in found.items():
        history, late = result.history, result.seconds["start"]
        told[f"{start}: start"] = late
        told[f"{start}: last error"] = float(history.relative_error[-1])
        for above in ABOVE:
            seconds = first_time(history.relative_error, history.elapsed, lowest * above)
            told[f"{start}: {above}"] = late + float(np.nan_to_num(seconds, posinf=np.inf))
    return told


if __name__ == "__main__":
    run(experiment("table5", __doc__ or ""))

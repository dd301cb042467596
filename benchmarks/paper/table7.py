"""Table VII: clustering of tr11 by starts combined with solvers (nmi, Dice, purity).

The published protocol: the plain rules, stopped when the unnormalised error has moved by less than
1e-4 over ten iterations, at most 2000 (mult), 1000 (hals) and 100 (nnlsb); cr1-nmf begins at a
random sample. Documents are weighted by tf-idf and scaled to unit length, without which neither
the errors nor the scores are in the range of the paper. K-means and wap are measured too.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from protocol import Experiment, experiment
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from conenmf import dice, factorize, from_rows, purity
from conenmf.datasets import Dataset, load

SIZES = {"tiny": (("digits",), 1), "quick": (("tr11",), 5), "full": (("tr11", "wap"), 10)}
STARTS = {"rand": "random", "cr1-nmf": "cr1", "spkm": "spkm", "nndsvd": "nndsvd"}
ITERATIONS = {"mult": 2000, "nnlsb": 100, "hals": 1000}
WINDOW, STILL = 10, 1e-4


def run(rows: Experiment) -> None:
    names, runs = SIZES[rows.scale]
    for name in names:
        for number in range(runs):
            key = {"dataset": name, "run": number}
            rows.row(partial(_k_means, name, number), start="k-means", solver="", **key)
            for solver in ITERATIONS:
                for start in STARTS:
                    compute = partial(_clustered, rows, name, start, solver, number)
                    rows.row(compute, start=start, solver=solver, **key)


_dataset = lru_cache(maxsize=1)(load)


def _k_means(name: str, number: int) -> dict[str, object]:
    data = _dataset(name)
    labels = KMeans(data.K, n_init=1, max_iter=1000, random_state=number).fit_predict(data.X)
    return {**_scores(data, labels), "error": np.nan, "iterations": 0}


def _clustered(
    rows: Experiment, name: str, start: str, solver: str, number: int
) -> dict[str, object]:
    data = _dataset(name)
    V = from_rows(data.X)
    errors: list[float] = []

    def still(now) -> bool:
        errors.append(now.relative_error * V.norm)
        return len(errors) > WINDOW and abs(errors[-1 - WINDOW] - errors[-1]) < STILL

    result = factorize(
        V,
        data.K,
        init=STARTS[start],
        solver=f"plain-{solver}",
        max_iter=30 if rows.scale == "tiny" else ITERATIONS[solver],
        tol=0,
        sketch=None,
        rng=rows.rng(dataset=name, start=start, solver=solver, run=number),
        callback=still,
    )
    scores = _scores(data, result.labels)
    return {**scores, "error": result.relative_error, "iterations": result.n_iter}


def _scores(data: Dataset, labels: np.ndarray) -> dict[str, float]:
    nmi = normalized_mutual_info_score(data.labels, labels, average_method="geometric")
    return {
        "nmi": float(nmi),
        "Dice": dice(data.labels, labels),
        "purity": purity(data.labels, labels),
    }


if __name__ == "__main__":
    run(experiment("table7", __doc__ or ""))

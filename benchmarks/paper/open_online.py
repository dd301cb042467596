"""An open problem of the paper: samples that come one batch after the other.

`ConeNMF.partial_fit` sees every sample once. Reported is its error on all samples, with exact
coefficients, as a multiple of that of a fit of all samples at once; beside it scikit-learn's
MiniBatchNMF. Samples come in random order, or sorted by class, which is the hardest order.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from presentation import Row, Section, Table, grouped, judged
from protocol import Experiment, main
from sklearn.decomposition import MiniBatchNMF

from conenmf import ConeNMF, factorize, from_rows, make_cones
from conenmf.datasets import load
from conenmf.solve.coefficients import coefficients

TITLE = "Open problem: one sample after the other"
SIZES = {  # datasets, cones (F, K, N), repetitions
    "tiny": (["digits"], (60, 4, 300), 1),
    "quick": (["digits", "coil20_32x32", "tr11", "wap"], (400, 12, 3000), 6),
    "full": (["digits", "coil20_32x32", "georgia_tech_crop", "tr11", "wap", "indian_pines"],
             (1600, 40, 10000), 10),
}  # fmt: skip
NOISE = {"cones": 0.0, "cones, delta 0.1": 0.1}
BATCH = 100


def run(rows: Experiment) -> None:
    names, _, repetitions = SIZES[rows.scale]
    for name in [*NOISE, *rows.at_hand(names)]:
        for order in ("random", "sorted"):
            for number in range(repetitions):
                compute = partial(_measured, rows, name, order, number)
                rows.row(compute, dataset=name, order=order, run=number)


@lru_cache(maxsize=1)
def _data(rows: Experiment, name: str) -> tuple[object, np.ndarray, int, float]:
    if name in NOISE:
        F, K, N = SIZES[rows.scale][1]
        model = make_cones(F, K, 0.2, n_samples=N, noise=NOISE[name], rng=rows.rng(data=name))
        X, labels = np.ascontiguousarray(model.V.T), model.labels
    else:
        found = load(name)
        X, labels, K = found.X.astype(float), found.labels, found.K
    return X, labels, K, factorize(from_rows(X), K, init="cr1").relative_error


def _measured(rows: Experiment, name: str, order: str, number: int) -> dict[str, object]:
    X, labels, K, at_once = _data(rows, name)
    rng = rows.rng(dataset=name, order=order, run=number)
    index = rng.permutation(len(labels))
    if order == "sorted":
        index = index[np.argsort(rng.permutation(labels.max() + 1)[labels[index]], kind="stable")]
    seed = int(rng.integers(2**31))
    streams = {
        "stream": ConeNMF(K),
        "scikit-learn": MiniBatchNMF(K, batch_size=BATCH, random_state=seed),
    }
    V = from_rows(X)
    text: dict[str, object] = {"at once": at_once}
    for way, model in streams.items():
        for begin in range(0, len(index), BATCH):
            model.partial_fit(X[index[begin : begin + BATCH]])
        squared = coefficients(V, np.ascontiguousarray(model.components_.T))[2]
        text[way] = float(np.sqrt(squared / V.total))
    return text


def show(rows: list[Row]) -> Section:
    """Ratios to a fit of everything at once."""
    lines, near, ahead = [], [], []
    for (name, order), group in grouped(rows, "dataset", "order").items():
        mean = {
            way: float(np.mean([float(row[way]) for row in group]))
            for way in ("at once", "stream", "scikit-learn")
        }
        ours, theirs = (mean[way] / mean["at once"] for way in ("stream", "scikit-learn"))
        lines.append([name, order, f"{mean['at once']:.5f}", f"{ours:.3f}", f"{theirs:.3f}"])
        near.append((f"{name}, {order}: {ours:.3f}", ours <= 1.02))
        ahead.append((f"{name}, {order}: {ours:.3f} against {theirs:.3f}", ours <= theirs))
    header = ["dataset", "order", "all at once", "stream / at once", "MiniBatchNMF / at once"]
    runs = [len(group) for group in grouped(rows, "dataset", "order").values()]
    verdicts = [
        judged("One epoch of partial_fit ends within 2% of a fit of all samples", near, runs=runs),
        judged("It ends at or below scikit-learn's MiniBatchNMF", ahead, runs=runs),
    ]
    return Section([Table(header, lines)], verdicts)


if __name__ == "__main__":
    main("open_online", __doc__, run, show, SIZES)

"""Table III: seconds of the inits, all as accurate as the published ones.

Axes of cones by power iteration until eigenvalues move by less than 1e-4, ten iterations of
spherical k-means, exact singular vectors. Seconds of the processor, on one core. The library's own
cr1-nmf, which needs less accurate axes as an init, stands beside them.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
from presentation import Row, Section, Table, Text, grouped
from protocol import Experiment, main
from races import ORIGINAL, data
from starts import begin
from verdicts import ahead, decided, spread

from conenmf import from_rows
from conenmf.data.matrix import DataMatrix
from conenmf.solve.inits import initialize

TITLE = "Table III: seconds of the inits"
TIMED = ("cr1-nmf", "spkm", "nndsvd")
OURS = 'init="cr1"'
PAPER = {  # seconds on the authors' machine, means of 20 runs
    "ck": (3.30, 6.68, 9.45),
    "faces94": (14.50, 32.23, 32.81),
    "georgia_tech": (18.90, 24.77, 21.28),
    "paviau": (0.73, 2.47, 0.84),
}
SIZES = {  # runs
    "tiny": {"digits": 2},
    "quick": {"faces94 / 2": 1, "georgia_tech_crop": 6, "paviau_subset": 6},
    "full": {
        "ck": 20, "faces94 / 2": 6, "georgia_tech": 20, "georgia_tech_crop": 20, "paviau": 20,
        "paviau_subset": 20,
    },
}  # fmt: skip


def run(rows: Experiment) -> None:
    sizes = SIZES[rows.scale]
    for name in rows.at_hand(list(sizes)):
        for number in range(sizes[name]):
            for init in (*TIMED, OURS):
                compute = partial(_timed, rows, name, init, number)
                rows.row(compute, dataset=name, init=init, run=number)


def _timed(rows: Experiment, name: str, init: str, number: int) -> dict[str, float]:
    V, K = data(name)
    if number == 0:  # so that nothing is compiled while the clock runs
        _seconds(from_rows(np.random.default_rng(0).random((40, 30))), 3, init, rows.rng())
    return {"seconds": _seconds(V, K, init, rows.rng(dataset=name, run=number))}


def _seconds(V: DataMatrix, K: int, init: str, rng: np.random.Generator) -> float:
    if init != OURS:
        return begin(V, K, init, "nnlsb", rng)[2]
    began = time.process_time()
    initialize(V, K, "cr1", None, rng)
    return time.process_time() - began


def show(rows: list[Row]) -> Section:
    """Seconds and ratios to cr1-nmf, beside the paper's."""
    lines, cases = [], []
    for (name,), here in grouped(rows, "dataset").items():
        groups = grouped(here, "init")
        if not {(init,) for init in (*TIMED, OURS)} <= set(groups):
            continue  # not all have run yet
        found = {init: [float(row["seconds"]) for row in g] for (init,), g in groups.items()}
        runs = min(map(len, found.values()))
        found = {init: values[:runs] for init, values in found.items()}
        theirs = PAPER.get(ORIGINAL.get(name, ""))
        ratios = []
        for place, init in enumerate(TIMED[1:], 1):
            each = [a / b for a, b in zip(found[init], found["cr1-nmf"], strict=True)]
            paper = f" ({theirs[place] / theirs[0]:.1f})" if theirs else ""
            ratios.append(f"{spread(each)}{paper}")
        ours = (f"{spread(found[init])} s" for init in ("cr1-nmf", OURS))
        lines.append([name, runs, next(ours), *ratios, next(ours)])
        if theirs:
            others = {init: found[init] for init in TIMED[1:]}
            cases.append(ahead(f"{name}, seconds", found["cr1-nmf"], others))
    header = ["dataset", "runs", "cr1-nmf", *(f"{init} / cr1-nmf (paper)" for init in TIMED[1:])]
    claim = "cr1-nmf is the fastest init (rand left out, as in the paper)"
    note = Text(
        "The paper: means of 20 runs. With as many features as in Table II; the paper's time for "
        "Georgia Tech, 19 s against 0.7 s for PaviaU, is that of larger images than here."
    )
    return Section([Table([*header, OURS], lines), note], [decided(claim, cases)])


if __name__ == "__main__":
    main("table3", __doc__, run, show, SIZES)

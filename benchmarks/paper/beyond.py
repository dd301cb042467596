"""Beyond the paper: more inits, our fast solver, more datasets.

Every init is followed by the same number of iterations of "hals" as it is by default, accelerated,
on the data themselves. "rand, best of ten" shares the iterations among ten random inits, so that
it costs the same time. From cr1-nmf the paper's plain solvers run too. Nothing here is a claim of
the paper; seconds are those of the processor.
"""

from __future__ import annotations

import statistics
import time
from functools import lru_cache, partial

import numpy as np
from clustering import nmi
from presentation import Row, Section, Table, grouped, judged
from protocol import Experiment, first_time, main
from races import curve, numbers
from starts import ALL

from conenmf import Factorization, factorize, from_rows
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import Dataset, load

TITLE = "Beyond the paper: other inits, our solver, more datasets"
BEST_OF = 10
SIZES = {  # datasets, iterations, runs
    "tiny": (["digits"], 10, 1),
    "quick": (
        ["digits", "tr11", "paviau_subset", "coil20_32x32", "orl_32x32", "indian_pines", "wap",
         "georgia_tech_crop", "re0", "k1b", "tr31", "pbmc68k_reduced"], 60, 6,
    ),
    "full": (
        ["digits", "orl_32x32", "orl_112x92", "yale_32x32", "coil20_32x32", "georgia_tech_crop",
         "faces94", "paviau_subset", "indian_pines", "pbmc68k_reduced", "tr11", "tr23", "tr31",
         "tr41", "tr45", "wap", "re0", "k1b"], 200, 10,
    ),
}  # fmt: skip
PLAIN = ("plain-mult", "plain-nnlsb", "plain-hals")
CLOSE = 1.01


INITS = ALL | {"k-means": "kmeans", "rand, best of ten": "random", "auto": "auto"}


def run(rows: Experiment) -> None:
    names, _, runs = SIZES[rows.scale]
    for name in rows.at_hand(names):
        for number in range(runs):
            for init in INITS:
                for solver in ("hals", *PLAIN) if init == "cr1-nmf" else ("hals",):
                    compute = partial(_race, rows, name, init, solver, number)
                    rows.row(compute, dataset=name, init=init, solver=solver, run=number)


@lru_cache(maxsize=1)
def _data(name: str) -> tuple[Dataset, DataMatrix]:
    data = load(name)
    return data, from_rows(data.X)


def _race(rows: Experiment, name: str, init: str, solver: str, number: int) -> dict[str, object]:
    data, V = _data(name)
    rng = rows.rng(dataset=name, start=init, run=number)
    iterations = SIZES[rows.scale][1]

    def factored(count: int) -> tuple[Factorization, list[float], list[float]]:
        errors: list[float] = []
        seconds: list[float] = []
        began = time.process_time()

        def note(now) -> None:
            errors.append(now.relative_error)
            seconds.append(time.process_time() - began)

        options = {"init": INITS[init], "solver": solver, "max_iter": count, "tol": 0}
        found = factorize(V, data.K, rng=rng, callback=note, **options)
        return found, errors, seconds

    factored(1)  # compiled and warm
    if "best of" in init:
        found = [factored(max(1, iterations // BEST_OF)) for _ in range(BEST_OF)]
        best = min((result for result, *_ in found), key=lambda result: result.relative_error)
        errors = np.minimum.accumulate([errors[-1] for _, errors, _ in found])
        seconds = np.cumsum([seconds[-1] for *_, seconds in found])
    else:
        best, errors, seconds = factored(iterations)
    return {
        "K": data.K,
        "nmi": nmi(name, data.labels, best.labels),
        "errors": curve(errors),
        "seconds": curve(seconds),
    }


def last_error(rows: list[Row]) -> float:
    """The mean of the last errors of some runs."""
    return statistics.mean(float(numbers(row["errors"])[-1]) for row in rows)


def reached(rows: list[Row], target: float) -> float:
    """Median seconds until an error was reached, init included; infinite if it was not."""
    return statistics.median(
        first_time(numbers(row["errors"]), numbers(row["seconds"]), target) for row in rows
    )


def seconds_or_never(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "never"


def show(rows: list[Row]) -> Section:
    """Errors, seconds and scores of every init, and the solvers side by side."""
    errors, seconds, scores, solvers = [], [], [], []
    auto, faster, first = [], [], []
    counts: list[int] = []
    for (name,), here in grouped(rows, "dataset").items():
        if {row["init"] for row in here} != set(INITS):
            continue  # not all have run yet
        fast = {
            init: group
            for (init, solver), group in grouped(here, "init", "solver").items()
            if solver == "hals"
        }
        counts.append(min(map(len, grouped(here, "init", "solver").values())))
        last = {init: last_error(group) for init, group in fast.items()}
        lowest = min(last.values())
        soon = {init: reached(group, CLOSE * lowest) for init, group in fast.items()}
        agreement = {
            init: statistics.mean(float(row["nmi"]) for row in group)
            for init, group in fast.items()
        }
        above = {init: error / lowest - 1 for init, error in last.items()}
        errors.append(
            [name, counts[-1], f"{lowest:.5f}", *(f"{above[init]:.2%}" for init in INITS)]
        )
        seconds.append([name, *(seconds_or_never(soon[init]) for init in INITS)])
        scores.append([name, *(f"{agreement[init]:.3f}" for init in INITS)])
        best = min(last, key=last.__getitem__)
        first.append((f"{name}: {best}, {above['cr1-nmf']:.2%} lower", above["cr1-nmf"] <= 0.005))
        auto.append((f"{name}: {above['auto']:.2%} above {best}", above["auto"] <= 0.01))
        ours = {
            solver: reached(group, CLOSE * last["cr1-nmf"])
            for (init, solver), group in grouped(here, "init", "solver").items()
            if init == "cr1-nmf"
        }
        solvers.append([name, *(seconds_or_never(ours[solver]) for solver in ("hals", *PLAIN))])
        quickest = min(ours, key=ours.__getitem__)
        faster.append((f"{name}: {quickest}", quickest == "hals"))
    claims = {
        "cr1-nmf ends lowest of all these inits, or within 0.5% of it": first,
        'init="auto" ends within 1% of the lowest of all': auto,
        "Our hals is the first to within 1% of its last error, of all solvers": faster,
    }
    verdicts = [judged(claim, cases, runs=counts) for claim, cases in claims.items()]
    return Section(
        [
            Table(["last error", "runs", "lowest", *INITS], errors),
            Table(["seconds to 1% above the lowest", *INITS], seconds),
            Table(["nmi of labels", *INITS], scores),
            Table(["from cr1-nmf, seconds to 1% above hals' last", "hals", *PLAIN], solvers),
        ],
        verdicts,
    )


if __name__ == "__main__":
    main("beyond", __doc__, run, show, SIZES)

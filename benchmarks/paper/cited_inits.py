"""The inits that the paper cites, compared with cr1-nmf.

The paper compares cr1-nmf with spherical k-means and nndsvd, and cites others for which it has no
numbers: k-means, also with the Kullback-Leibler divergence (Xue and others, 2008), fuzzy clusters
(Zheng, Yang and Zhu, 2007), and means of random samples (Acol), means of long ones (random C) and
samples as in a CUR decomposition (Langville and others, 2006). Here all of them are followed by the
plain hals, as in Table IV, and on counts by multiplicative updates for the divergence. cr1-nmf and
nndsvd are as accurate as published, on counts as accurate as the library's inits. All inits of a
run draw from the same random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product

import numpy as np
from experiment import Experiment, Key, Part
from page import Row, Section, Verdict, ahead, column, grouped, judged, spread, table
from races import data, in_pairs
from starts import DETERMINISTIC, begin

from conenmf import from_rows
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import DATASETS, load
from conenmf.solve.alternate import alternate
from conenmf.solve.losses import get_loss
from conenmf.solve.run import Solution, Stopping
from conenmf.types import Array

OURS = "cr1-nmf"
CITED = ("spkm", "kmeans", "kl-kmeans", "fuzzy", "acol", "random-c", "cur", DETERMINISTIC)
SOLVERS = {"frobenius": "plain-hals", "poisson": "mult"}  # for each loss
SOON = 20  # iterations
MEASURES = {
    "soon": f"after {SOON} iterations the error from cr1-nmf is lower than from each cited init",
    "last": "the last error from cr1-nmf is lower than from each cited init",
    "seconds": "cr1-nmf takes less time than each cited init",
}


def all_inits(rows: Experiment) -> Iterator[Key]:
    sets, _, runs = rows.size
    here = rows.at_hand([name for name, _ in sets])
    for (name, loss), run in product(sets, range(runs)):
        inits = (OURS, *CITED) if run == 0 else (OURS, *CITED[:-1])
        for init in inits if name in here else ():
            yield {"dataset": name, "loss": loss, "init": init, "run": run}


def follow(rows: Experiment, dataset: str, loss: str, init: str, run: int) -> Key:
    V, K = data(dataset) if loss == "frobenius" else counts_of(dataset)
    _warm(init, loss)
    iterations = rows.size[1]
    W, H, seconds = start(V, K, init, loss, rows.rng(dataset=dataset, run=run))
    errors = iterate(V, W, H, loss, iterations).history.relative_error
    soon = errors[min(SOON, iterations) - 1]
    return {
        "iterations": iterations,
        "soon": float(soon),
        "last": float(errors[-1]),
        "seconds": seconds,
    }


@lru_cache(maxsize=1)
def counts_of(name: str) -> tuple[DataMatrix, int]:
    """A dataset as its source counted, and the number of components."""
    weights = "counts" if DATASETS[name].kind == "text" else None
    found = load(name, weights=weights)
    return get_loss("poisson").data(from_rows(found.X)), found.K


def start(
    V: DataMatrix, K: int, init: str, loss: str, rng: np.random.Generator
) -> tuple[Array, Array | None, float]:
    """The factors that iterations begin with, and the seconds of the processor they took."""
    if loss == "frobenius":
        return begin(V, K, init, "hals", rng)
    began = time.process_time()
    name = "cr1" if init == OURS else init
    W, H, _ = get_loss(loss).initialize(V, K, name, rng=rng)
    return W, H, time.process_time() - began


def iterate(V: DataMatrix, W: Array, H: Array | None, loss: str, iterations: int) -> Solution:
    stopping = Stopping(tol=0, max_iter=iterations, exact=0)
    objective = get_loss(loss).on(V)
    return alternate(V, W, H, SOLVERS[loss], stopping=stopping, objective=objective)


@lru_cache
def _warm(init: str, loss: str) -> None:
    """Run it once on small data, so that nothing is compiled while the clock runs."""
    rng = np.random.default_rng(0)
    V = get_loss(loss).data(from_rows(rng.poisson(2.0, (40, 30)).astype(float)))
    iterate(V, *start(V, 3, init, loss, rng)[:2], loss, 2)


def show_inits(rows: list[Row]) -> Section:
    """Errors and seconds from each init, and where cr1-nmf is ahead."""
    lines, verdicts = [], []
    for (name, loss), here in grouped(rows, "dataset", "loss").items():
        groups = grouped(here, "init")
        if not {OURS, *CITED} <= groups.keys():
            continue  # not all have run yet
        groups = in_pairs(groups)
        solver = f"{SOLVERS[loss]}, {loss}"
        for init, group in groups.items():
            cells = [spread(column(group, measure), 4) for measure in MEASURES]
            lines.append([name, solver, init, len(grouped(group, "run")), *cells])
        verdicts += _verdicts(f"{name}, {loss}", groups)
    header = ["dataset", "solver, loss", "init", "runs"]
    header += [f"error after {SOON} iterations", "last error", "seconds of the init"]
    note = (
        f"{rows[0]['iterations']} iterations. The paper has no numbers for these inits, except for "
        "spkm and nndsvd. nndsvd draws nothing and runs once. On counts the error is the "
        "divergence, relative to that of one component, and the seconds include the coefficients."
    )
    return Section([table(header, lines), note], verdicts)


def _verdicts(where: str, groups: Mapping[str, list[Row]]) -> Iterator[Verdict]:
    for measure, claim in MEASURES.items():
        ours = column(groups[OURS], measure)
        rivals = {init: column(groups[init], measure) for init in CITED}
        cases = [ahead(OURS, ours, {init: theirs}, digits=4) for init, theirs in rivals.items()]
        yield judged(f"{where}: {claim}", cases)


CITED_INITS = Part(
    "The inits that the paper cites",
    {  # datasets and losses, iterations, runs
        "tiny": ((("digits", "frobenius"), ("digits", "poisson")), 5, 2),
        "quick": ((("paviau_subset", "frobenius"), ("tr11", "poisson")), 200, 9),
        "full": (
            (
                ("georgia_tech_crop", "frobenius"),
                ("paviau_subset", "frobenius"),
                ("tr11", "poisson"),
                ("ck", "frobenius"),
                ("georgia_tech", "frobenius"),
                ("paviau", "frobenius"),
                ("faces94 / 2", "frobenius"),
            ),
            200,
            9,
        ),
    },
    all_inits,
    follow,
    show_inits,
)

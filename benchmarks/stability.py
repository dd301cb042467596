"""Signatures of mutations by consensus, the coverage of limits, and the cost of many runs.

The score of Liu et al. (2023) is PPV + TPR + the mean cosine of true positives: signatures are
matched one to one, and true above a cosine of 0.9. The sets are synthetic catalogues with their
truth, in the folder ``signatures`` of ``$CONENMF_DATA``. K is the recommendation of
`stability_over`, which also finds the numbers to try; runs are on the data themselves, from random
inits. The score is that of the components of the consensus, of those that are stable, and of the
best run. The published score of SigProfilerExtractor on the level Realistic is 2.589 on SBS_set1
and 2.747 on indel_set1. Constants were chosen on the level Moderate and on drawn catalogues.

    python benchmarks/stability.py --sets SBS_set1 indel_set1 --levels Moderate Realistic
    python benchmarks/stability.py --drawn

With ``--drawn`` no set is read: on counts of the generators below, in what share of the entries
above 1/F of unit-sum spectra the limits of 90 % cover the truth, for stable components; and what 20
runs from random inits take together, over the sum of each alone. How limits are computed was chosen
on seeds 0 to 9.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from conenmf import Stability, factorize, from_columns, stability, stability_over
from conenmf.judge.metrics import match_components

TRUE_COSINE = 0.9
SETS = ("SBS_set1", "indel_set1")
LEVELS = ("Moderate", "Realistic")


def numbers(path: Path) -> np.ndarray:
    """The numbers of a table, without its header and the columns that name rows."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    first = next(n for n in range(1, len(rows[0])) if all(is_number(row[n]) for row in rows))
    return np.array([[float(value) for value in row[first:]] for row in rows])


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def score(W: np.ndarray, truth: np.ndarray) -> float:
    """PPV + TPR + mean cosine of true positives, of signatures in columns."""
    if not W.size:
        return 0.0
    pair = (W, truth) if W.shape[1] <= truth.shape[1] else (truth, W)
    cosines = match_components(*pair)[1]
    true = cosines[cosines > TRUE_COSINE]
    return true.size / W.shape[1] + true.size / truth.shape[1] + (true.mean() if true.size else 0.0)


def show(found: Stability, truth: np.ndarray) -> None:
    scores = (found.W, found.W[:, found.is_stable], found.best_run)
    consensus, stable, best = (score(W, truth) for W in scores)
    print(
        f"  K {found.K:>3}  stable {int(found.is_stable.sum()):>3}  silhouette "
        f"{np.nan_to_num(found.silhouettes).mean():.3f}  error {found.best_relative_error:.5f}  "
        f"score: consensus {consensus:.3f}, stable {stable:.3f}, best run {best:.3f}",
        flush=True,
    )


def poisson(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Counts (48, 150) of five signatures, and these."""
    truth = rng.dirichlet(np.full(48, 0.3), 5).T
    return rng.poisson(truth @ rng.gamma(0.5, 800, (5, 150))).astype(float), truth


def overdispersed(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The same with rates that vary themselves, by a gamma factor of mean 1 and variance 0.1."""
    truth = rng.dirichlet(np.full(48, 0.3), 5).T
    rates = truth @ rng.gamma(0.5, 800, (5, 150))
    return rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float), truth


def cells(rng: np.random.Generator, *, shared: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Counts of 100 genes in 300 cells, and their seven programs.

    Every cell has one of six programs for what it is; three in ten also have the seventh, for what
    it does, with a share of 0.1 to 0.7. Totals are log-normal, about 1000; rates vary by a gamma
    factor of variance 0.1. Many genes have nearly no counts in a program, unless they are shared:
    then every program raises some genes of a base that all have.
    """
    if shared:
        base = rng.lognormal(0.0, 1.0, (100, 1))
        raised = base * rng.lognormal(1.5, 0.5, (100, 7))
        programs = np.where(rng.random((100, 7)) < 0.15, raised, base)
        programs /= programs.sum(axis=0)
    else:
        programs = rng.dirichlet(np.full(100, 0.2), 7).T
    usage = np.zeros((7, 300))
    usage[rng.integers(0, 6, 300), np.arange(300)] = 1
    active = rng.uniform(0.1, 0.7, 300) * (rng.random(300) < 0.3)
    usage *= 1 - active
    usage[6] = active
    rates = programs @ (usage * rng.lognormal(np.log(1000), 0.4, 300))
    return rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float), programs


GENERATORS = {
    "Poisson": poisson,
    "overdispersed": overdispersed,
    "cells": cells,
    "cells, a shared base": partial(cells, shared=True),
}
SEEDS = {"chosen on": range(10), "others": range(10, 20)}


def coverage(name: str, resample: str, seeds: Iterable[int]) -> tuple[float, int, int]:
    """The share of entries whose limits cover the truth; entries; components that are stable."""
    covered: list[bool] = []
    n_stable = 0
    for seed in seeds:
        X, truth = GENERATORS[name](np.random.default_rng(seed))
        found = stability(from_columns(X), truth.shape[1], 20, loss="poisson", resample=resample)
        if found.problem:
            continue
        order, _ = match_components(truth, found.W)
        for k, place in enumerate(order):
            if found.is_stable[place]:
                w, low, high = truth[:, k], found.lower[:, place], found.upper[:, place]
                large = w > 1 / len(w)
                covered += ((low <= w) & (w <= high))[large].tolist()
                n_stable += 1
    return float(np.mean(covered)), len(covered), n_stable


def cost(loss: str, n_runs: int = 20) -> float:
    """The time of many runs from random inits together, over the sum of each alone."""
    X, _ = poisson(np.random.default_rng(0))
    V, options = from_columns(X), {"loss": loss, "tol": 0.0, "max_iter": 100}
    began = time.perf_counter()
    stability(V, 5, n_runs, resample="start", **options)
    together = time.perf_counter() - began
    began = time.perf_counter()
    for rng in np.random.default_rng(0).spawn(n_runs):
        factorize(V, 5, init="random", sketch=None, rng=rng, **options)
    return together / (time.perf_counter() - began)


def show_coverage(names: Iterable[str]) -> None:
    for name in names:
        for resample in ("samples", "counts"):
            for part, seeds in SEEDS.items():
                share, count, n_stable = coverage(name, resample, seeds)
                print(
                    f"{name}, {resample}, seeds {seeds[0]} to {seeds[-1]} ({part}): limits cover "
                    f"{share:.1%} of {count} entries of {n_stable} stable components",
                    flush=True,
                )


def show_cost() -> None:
    for loss in ("frobenius", "poisson"):
        print(f"20 runs together over the sum of each alone, {loss}: {cost(loss):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--levels", nargs="+", default=LEVELS)
    parser.add_argument("--ks", nargs="+", type=int, help="by default found from the data")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--resample", default="start")
    parser.add_argument("--drawn", action="store_true", help="coverage and cost on drawn counts")
    parser.add_argument("--generators", nargs="+", default=GENERATORS, choices=GENERATORS)
    options = parser.parse_args()
    if options.drawn:
        show_coverage(options.generators)
        show_cost()
        return
    root = Path(os.environ.get("CONENMF_DATA", ".")) / "signatures"
    if not root.is_dir():
        print(f"{root} does not exist: set CONENMF_DATA to the folder of the datasets")
        return
    for name in options.sets:
        truth = numbers(root / name / "signatures.csv")
        for level in options.levels:
            V = from_columns(numbers(root / name / f"catalog_{level}.csv"))
            print(f"{name} {level}: {V.shape[0]} x {V.shape[1]}, {truth.shape[1]} signatures")
            began = time.perf_counter()
            chosen = stability_over(
                V,
                options.ks,
                options.runs,
                loss="poisson",
                resample=options.resample,
                max_iter=300,
                callback=lambda found, truth=truth: show(found, truth),
            )
            print(f"  K = {chosen.K}; {chosen.reason}; {time.perf_counter() - began:.0f} s")
            show(chosen.found[chosen.K], truth)


if __name__ == "__main__":
    main()

"""Signatures of mutations by consensus, and the cost of many runs.

The score of Liu et al. (2023) is PPV + TPR + the mean cosine of true positives: signatures are
matched one to one, and true above a cosine of 0.9. The sets are synthetic catalogues with their
truth, in the folder ``signatures`` of ``$CONENMF_DATA``. K is the recommendation of
`stability_over`, which also finds the numbers to try; runs are on the data themselves, from random
inits. The score is that of the components of the consensus, of those that are stable, and of the
best run. The published score of SigProfilerExtractor on the level Realistic is 2.589 on SBS_set1
and 2.747 on indel_set1. Constants were chosen on the level Moderate and on drawn catalogues.

    python benchmarks/stability.py --sets SBS_set1 indel_set1 --levels Moderate Realistic
    python benchmarks/stability.py --drawn

With ``--drawn`` no set is read: what 20 runs from random inits on drawn counts take together, over
the sum of each alone. The coverage of limits is in ``limits.py``.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np

from conenmf import Stability, factorize, from_columns, stability, stability_over
from conenmf.judge.scores import match_components

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
    parser.add_argument("--drawn", action="store_true", help="the cost on drawn counts")
    options = parser.parse_args()
    if options.drawn:
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

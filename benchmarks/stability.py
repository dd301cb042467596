"""Signatures of mutations by consensus, the coverage of limits, and the cost of many runs.

The score of Liu et al. (2023) is PPV + TPR + the mean cosine of true positives: signatures are
matched one to one, and true above a cosine of 0.9. The sets are synthetic catalogues with their
truth, in the folder ``signatures`` of ``$CONENMF_DATA``. K is the recommendation of
`stability_over`; the score is that of the components of the consensus, of those that are stable,
and of the best run. The published score of SigProfilerExtractor on the level Realistic is 2.589 on
SBS_set1 and 2.747 on indel_set1.

    python benchmarks/stability.py --sets indel_set1 --levels Moderate Realistic --ks 9 10 11 12 13
    python benchmarks/stability.py --drawn

With ``--drawn`` no set is read: on drawn counts, Poisson and overdispersed, in what share of the
entries above 1/F of unit-sum spectra the limits, quantiles 0.05 and 0.95, cover the truth, for
stable components; and what 20 runs from random inits take together, over the sum of each alone.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
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


def draw(rng: np.random.Generator, *, overdispersed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Counts (48, 150) of five signatures, and these."""
    truth = rng.dirichlet(np.full(48, 0.3), 5).T
    rates = truth @ rng.gamma(0.5, 800, (5, 150))
    if overdispersed:
        rates = rates * rng.gamma(10, 0.1, rates.shape)
    return rng.poisson(rates).astype(float), truth


def coverage(*, overdispersed: bool, resample: str, repeats: int = 10) -> tuple[float, int]:
    """The share of entries whose limits cover the truth, and how many entries there were."""
    covered: list[bool] = []
    for seed in range(repeats):
        X, truth = draw(np.random.default_rng(seed), overdispersed=overdispersed)
        found = stability(from_columns(X), 5, 20, loss="poisson", resample=resample)
        if found.problem:
            continue
        order, _ = match_components(truth, found.W)
        for k, place in enumerate(order):
            if found.is_stable[place]:
                w, low, high = truth[:, k], found.lower[:, place], found.upper[:, place]
                large = w > 1 / len(w)
                covered += ((low <= w) & (w <= high))[large].tolist()
    return float(np.mean(covered)), len(covered)


def cost(loss: str, n_runs: int = 20) -> float:
    """The time of many runs from random inits together, over the sum of each alone."""
    X, _ = draw(np.random.default_rng(0), overdispersed=False)
    V, options = from_columns(X), {"loss": loss, "tol": 0.0, "max_iter": 100}
    began = time.perf_counter()
    stability(V, 5, n_runs, resample="start", **options)
    together = time.perf_counter() - began
    began = time.perf_counter()
    for rng in np.random.default_rng(0).spawn(n_runs):
        factorize(V, 5, init="random", sketch=None, rng=rng, **options)
    return together / (time.perf_counter() - began)


def show_drawn() -> None:
    for overdispersed in (False, True):
        for resample in ("samples", "counts"):
            share, count = coverage(overdispersed=overdispersed, resample=resample)
            kind = "overdispersed" if overdispersed else "Poisson"
            print(f"{kind}, {resample}: limits cover {share:.1%} of {count} entries", flush=True)
    for loss in ("frobenius", "poisson"):
        print(f"20 runs together over the sum of each alone, {loss}: {cost(loss):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--levels", nargs="+", default=LEVELS)
    parser.add_argument("--ks", nargs="+", type=int, default=list(range(8, 29, 2)))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--resample", default="counts")
    parser.add_argument("--drawn", action="store_true", help="coverage and cost on drawn counts")
    options = parser.parse_args()
    if options.drawn:
        show_drawn()
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


if __name__ == "__main__":
    main()

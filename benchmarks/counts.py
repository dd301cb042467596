"""Counts: the Poisson loss of ours against scikit-learn's, in time, divergence and memory.

    python benchmarks/counts.py [--sets pbmc_facs wap] [--iterations 200] [--long 1000] [--rounds 3]

For each set, in one run and in turn:

- scikit-learn's `mu` with `beta_loss="kullback-leibler"` and `tol=0`, from nndsvda and from random,
  so many iterations; the lower divergence is the mark. "sooner" is its time over ours to the mark,
  from the call, the race of inits included.
- The divergence of the default call against the best of three long random runs of scikit-learn
  (`--long`; 0 leaves them out), and the time of the call against that of one such run.
- One iteration of ours, with its one step of Newton for H and for W, against one of least squares
  with as many sweeps as the default takes.
- Memory beyond V, in a process of its own: peak against what the factors and a copy of V take.

Sets are read from the folder named by CONENMF_DATA; "topics" is drawn. Those with a star were not
looked at while constants were chosen.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF
from threadpoolctl import threadpool_limits

from conenmf import factorize, from_rows
from conenmf.data.memory import by_entries
from conenmf.solve.count_margins import margins
from conenmf.solve.goals import goal_of
from conenmf.solve.loop import alternate
from conenmf.solve.stopping import Stopping

SETS = {"pbmc_facs": 6, "k1b": 20, "wap": 20, "SBS_set1": 23, "indel_set1": 11, "topics": 20}
HELD_OUT = {"pbmc_facs", "k1b", "indel_set1", "topics"}
SEEDS = (0, 1, 2)


def load(name: str) -> Any:
    """The counts of a set, samples in rows; None if it is not on this machine."""
    if name == "topics":
        return topics()
    folder = Path(os.environ.get("CONENMF_DATA", "data"))
    if name in ("SBS_set1", "indel_set1"):
        path = folder / "signatures" / name / "catalog_Realistic.csv"
        return catalogue(path) if path.exists() else None
    path = folder / name / ("counts.npz" if name == "pbmc_facs" else "V.npz")
    return sp.load_npz(path).tocsr().astype(np.float64) if path.exists() else None


def catalogue(path: Path) -> Any:
    """A table of mutation types x samples, of which the first columns name the type."""
    with path.open(newline="") as lines:
        _, *rows = csv.reader(lines)
    n_names = next(n for n in range(len(rows[0])) if all(is_number(row[n]) for row in rows))
    return np.array([row[n_names:] for row in rows], dtype=np.float64).T


def is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()


def topics(n_samples: int = 100_000, n_features: int = 30_000, K: int = 20) -> Any:
    """Documents of about 60 words, drawn from topics."""
    rng = np.random.default_rng(0)
    words = rng.dirichlet(np.full(n_features, 0.02), K)
    shares = rng.dirichlet(np.full(K, 0.1), n_samples)
    lengths = rng.poisson(60, n_samples)
    topic = [rng.choice(K, size, p=share) for size, share in zip(lengths, shares, strict=True)]
    flat, owner = np.concatenate(topic), np.repeat(np.arange(n_samples), lengths)
    cumulative = words.cumsum(axis=1)
    drawn = np.empty(flat.size, np.int64)
    for k in range(K):
        places = np.flatnonzero(flat == k)
        drawn[places] = np.searchsorted(cumulative[k], rng.random(places.size) * cumulative[k, -1])
    ones = np.ones(flat.size)
    return sp.coo_array((ones, (owner, drawn)), shape=(n_samples, n_features)).tocsr()


def theirs(X: Any, K: int, init: str, iterations: int, seed: int = 0) -> tuple[float, float]:
    """Seconds and divergence of scikit-learn."""
    model = NMF(
        K,
        init=init,
        solver="mu",
        beta_loss="kullback-leibler",
        tol=0.0,
        max_iter=iterations,
        random_state=seed,
    )
    with warnings.catch_warnings(), threadpool_limits(2):
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(X)
        return time.perf_counter() - began, model.reconstruction_err_**2 / 2


def seconds_to(X: Any, K: int, mark: float) -> float:
    """Seconds of ours from the call until the divergence is at most the mark."""
    reached = []

    def watch(now: Any) -> bool:
        if now.objective <= mark:
            reached.append(now.elapsed)
        return bool(reached)

    V = from_rows(X)
    factorize(V, K, loss="poisson", callback=watch, tol=1e-7, max_iter=2000)
    return reached[0] if reached else np.inf


def iteration(X: Any, K: int, loss: str, n: int = 12) -> float:
    """Seconds of one iteration, the median of some."""
    V, (_, _, method) = from_rows(X), goal_of(loss, "auto")
    V = V if loss == "frobenius" else by_entries(V)
    rng, totals = np.random.default_rng(0), margins(V)
    W = rng.random((V.shape[0], K)) * totals.features[:, None] / totals.total
    H = rng.random((K, V.shape[1])) * np.asarray(totals.samples)
    history = alternate(V, W, H, method, stopping=Stopping(tol=0.0, max_iter=n)).history
    return statistics.median(np.diff(history.elapsed))


def memory(name: str) -> None:
    """Print the peak beyond V of the default call in MB, and what is allowed for it."""
    X, K = load(name), SETS[name]
    V = from_rows(X)
    factorize(from_rows(sp.csr_array(np.eye(8))), 2, loss="poisson")  # compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    factorize(V, K, loss="poisson", max_iter=20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    factors = 8 * K * sum(V.shape) / 1e6
    copy = (X.data.nbytes + X.indices.nbytes) / 1e6 if sp.issparse(X) else X.nbytes / 1e6
    print(f"{name:12s} {peak:.0f} MB beyond V; allowed {6 * factors + 100 + copy:.0f} MB")


def measure(name: str, X: Any, K: int, options: argparse.Namespace) -> None:
    marks = {}
    for init in ("nndsvda", "random"):
        marks[init] = theirs(X, K, init, options.iterations)
    init = min(marks, key=lambda one: marks[one][1])
    seconds, mark = marks[init]
    seconds_to(X, K, mark)  # compiled
    times, defaults, ends = [], [], []
    for _ in range(options.rounds):
        times.append(seconds_to(X, K, mark))
        began = time.perf_counter()
        result = factorize(from_rows(X), K, loss="poisson")
        defaults.append(time.perf_counter() - began)
        ends.append(result.objective)
    ours, default = statistics.median(times), statistics.median(defaults)
    ratio = iteration(X, K, "poisson") / iteration(X, K, "frobenius")
    star = "*" if name in HELD_OUT else " "
    line = (
        f"{name:11s}{star} {seconds:8.1f} s {mark:12.0f} {ours:8.2f} s {seconds / ours:7.1f}"
        f" {default:8.2f} s {ends[0]:12.0f} {ratio:9.2f}"
    )
    if options.long:
        found = [theirs(X, K, "random", options.long, seed)[1] for seed in SEEDS]
        line += f" {min(found):12.0f} {ends[0] / min(found) - 1:9.3%}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--long", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="the peak of one set, alone")
    options = parser.parse_args()
    if options.memory:
        memory(options.sets[0])
        return
    print(
        f"{'set':12s} {'theirs':>10s} {'divergence':>12s} {'ours':>10s} {'sooner':>7s}"
        f" {'default':>10s} {'divergence':>12s} {'iteration':>9s} {'long random':>12s} excess"
    )
    for name in options.sets:
        X = load(name)
        if X is None:
            print(f"{name}: not on this machine", file=sys.stderr)
            continue
        measure(name, X, SETS[name], options)


if __name__ == "__main__":
    main()

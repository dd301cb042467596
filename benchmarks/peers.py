"""Ours against every peer that pip can install: time to the same error, and peak memory.

    python benchmarks/peers.py [--sets cones wap] [--peers "NMF cd nndsvda"] [--rounds 3] [--quick]

Each peer is run to 30 and to 150 iterations with all cores; its error is computed exactly from the
factors that it returns. One fit of ours then continues to the lowest of these errors, and its
callback notes when it passed each of them. All take turns, round after round; medians are printed.
Real datasets are read from the folder named by CONENMF_DATA. Leaves peers.md, peers.json and
peers.png in the folder of results, after every dataset.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aspects
import datasets
import numpy as np
import report
from contenders import (
    OURS,
    PEERS,
    SEED,
    Descent,
    descend,
    expected_seconds,
    fit_once,
    installed,
    warm_up,
)
from measure import (
    can_measure_memory,
    machine,
    peak_memory,
    relative_error,
    save_matrix,
    size_in_bytes,
    take_turns,
    versions,
)
from scipy import sparse as sp

from conenmf import ConeNMF

ITERATIONS = (30, 150)
PATIENCE = 3  # ours may take so many times as long as the slowest peer, and at least a second


def affordable(X: Any, K: int, peers: Iterable[str], limit: float) -> dict[str, list[int]]:
    """The numbers of iterations that each peer is expected to end within the limit of seconds."""
    found: dict[str, list[int]] = {}
    for name in peers:
        longest = expected_seconds(name, X, K, ITERATIONS[-1], limit)
        found[name] = [n for n in ITERATIONS if longest * n / ITERATIONS[-1] <= limit]
        for n in set(ITERATIONS) - set(found[name]):
            print(f"  {name}, {n}: would take about {longest * n / ITERATIONS[-1]:.0f} s, left out")
    return {name: numbers for name, numbers in found.items() if numbers}


def race(X: Any, K: int, peers: Iterable[str], rounds: int, limit: float) -> dict[str, Any]:
    """All contenders on one matrix, in turn."""
    warm_up([*peers, *OURS], datasets.shrunk(X))
    runs = {
        peer: {iterations: {"all_seconds": [], "errors": []} for iterations in numbers}
        for peer, numbers in affordable(X, K, peers, limit).items()
    }
    descents: dict[str, list[Descent]] = {name: [] for name in OURS}
    defaults: list[tuple[float, float]] = []
    plain: list[float] = []

    def runs_so_far() -> list[dict[str, list[float]]]:
        return [run for of_peer in runs.values() for run in of_peer.values() if run["errors"]]

    def go_down(name: str) -> Descent:
        target = min((run["errors"][0] for run in runs_so_far()), default=0.0)
        slowest = max((run["all_seconds"][0] for run in runs_so_far()), default=0.0)
        return descend(X, K, OURS[name], target, max(PATIENCE * slowest, 1.0))

    def record(key: tuple, seconds: float, result: Any) -> None:
        match key:
            case ("default",):
                defaults.append((seconds, result.relative_error_))
            case ("plain",):
                plain.append(result.relative_error_)
            case (name,):
                descents[name].append(result)
                print(f"  {name}: {result.seconds[-1]:.3f} s, {result.errors[-1]:.6f}", flush=True)
            case (name, iterations):
                run = runs[name][iterations]
                run["all_seconds"].append(seconds)
                run["errors"].append(relative_error(X, *result))
                print(
                    f"  {name}, {iterations}: {seconds:.3f} s, {run['errors'][-1]:.6f}", flush=True
                )

    turns: dict[tuple, Callable[[], Any]] = {
        (name, iterations): lambda name=name, n=iterations: fit_once(name, X, K, n)
        for name, of_peer in runs.items()
        for iterations in of_peer
    }
    turns |= {(name,): lambda name=name: go_down(name) for name in OURS}
    turns["default",] = lambda: ConeNMF(K).fit(X)
    turns["plain",] = lambda: ConeNMF(
        K, solver="plain-hals", tol=0, max_iter=10**6, max_time=defaults[-1][0]
    ).fit(X)
    take_turns(turns, rounds, record)
    return {
        "peers": {
            name: {str(n): _against(run, descents) for n, run in of_peer.items()}
            for name, of_peer in runs.items()
        },
        "ours": {
            name: {
                "descents": [asdict(one) for one in of_name],
                "median_round": _median_round(of_name),
            }
            for name, of_name in descents.items()
        },
        "default": {
            "seconds": statistics.median(seconds for seconds, _ in defaults),
            "all_seconds": [seconds for seconds, _ in defaults],
            "error": defaults[0][1],
            "plain_errors": plain,
        },
    }


def _against(run: dict[str, Any], descents: dict[str, list[Descent]]) -> dict[str, Any]:
    """A peer's median time, and that of each of ours to the peer's error."""
    error = run["errors"][0]
    times = {name: [one.time_to(error) for one in of_name] for name, of_name in descents.items()}
    return run | {
        "seconds": statistics.median(run["all_seconds"]),
        "error": error,
        "all_ours": times,
        "ours": {name: statistics.median(values) for name, values in times.items()},
    }


def _median_round(descents: list[Descent]) -> int:
    ends = [one.seconds[-1] for one in descents]
    return int(np.argsort(ends)[len(ends) // 2])


def memory(X: Any, K: int, names: list[str]) -> dict[str, float]:
    """Peak of a fit of three iterations, in bytes beyond the process before it loads X."""
    if not can_measure_memory():
        print("  peak memory: needs /proc, skipped")
        return {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as small:
        tiny, load = save_matrix(datasets.shrunk(X), small), save_matrix(X, folder)
        return {
            name: peak_memory(
                f"from contenders import fit_once\n{tiny}\nfit_once({name!r}, X, 3, 3)\ndel X",
                load,
                f"fit_once({name!r}, X, {K}, 3)",
            )
            for name in names
        }


def compare(name: str, X: Any, K: int, options: argparse.Namespace) -> dict[str, Any]:
    print(f"{name}: {X.shape[0]} x {X.shape[1]}, K={K}, {size_in_bytes(X) / 1e6:.1f} MB")
    peers = installed(options.peers)
    for peer in [peer for peer in peers if sp.issparse(X) and not peers[peer].sparse]:
        print(f"  {peer}: takes no sparse data, left out")
        del peers[peer]
    few = list(OURS)[:1] if name == "cones" else []  # a process for each takes its time
    factors = K * sum(X.shape) * X.dtype.itemsize
    return {
        "N": X.shape[0],
        "F": X.shape[1],
        "K": K,
        "dtype": str(X.dtype),
        "iterations": ITERATIONS,
        "bytes": size_in_bytes(X),
        "factors": factors,
        "memory_limit": 4 * factors + 100e6,
        **race(X, K, list(peers), options.rounds, options.limit),
        "memory": memory(X, K, [*peers, *OURS] if not options.quick else few),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sets", nargs="*", choices=datasets.DATASETS, default=[])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[])
    parser.add_argument("--rounds", type=int, help="3 by default, 1 with --quick")
    parser.add_argument(
        "--limit", type=float, default=900.0, help="leave out fits of peers above these seconds"
    )
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument(
        "--races-only", action="store_true", help="without start, threads, import, first call"
    )
    parser.add_argument("--quick", action="store_true", help="tiny data, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {
        "seed": SEED,
        "rounds": options.rounds,
        "quick": options.quick,
        "machine": machine(),
        "versions": versions(),
        "races": {},
        "aspects": {},
    }
    if not options.races_only:
        found["aspects"] = aspects.measure_all(options.rounds, options.quick)
        report.write(found, options.out)
    for name in options.sets or datasets.DATASETS:
        loaded = datasets.load(name, options.dtype, options.quick)
        if loaded is not None:
            found["races"][name] = compare(name, *loaded, options)
            report.write(found, options.out)
    found = report.plain(found)
    print("", *report.headline(found["races"]), "", sep="\n")
    print(*report.aspect_lines(found["aspects"]), sep="\n")


if __name__ == "__main__":
    main()

"""How good fits of counts are: lower bounds, noise floors, and the number of components.

``count_quality.py bounds`` prints, for every set of counts, the divergence of one component, the
share of it that a fit leaves, and the shares that no fit can go below: by correspondence analysis
(effort 0), by default, and with a large effort. ``floors`` draws counts at known rates and compares
the fit with the noise floor, with refits and without; real sets follow. ``thinning`` prints the
number of components that thinning chooses for drawn counts of a known number, and other
estimators'. "chosen on" marks the sets on which a constant was chosen. Real sets are read from the
folder named by CONENMF_DATA, and left out where they are not there.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from conenmf import factorize, from_rows, select_k
from conenmf.judge.certificate import noise_floor
from conenmf.judge.dual_bound import DEFAULT_EFFORT, divergence_bound

LARGE_EFFORT = 24
FILES = {  # file, K, and whether a constant was chosen on it
    "tr11": ("tr11/V.npz", 9, True),
    "wap": ("wap/V.npz", 20, True),
    "k1b": ("k1b/V.npz", 6, False),
    "pbmc_facs": ("pbmc_facs/counts.npz", 6, False),
    "re0": ("re0/V.npz", 13, False),
    "tr31": ("tr31/V.npz", 7, False),
}
DRAWN = {  # kind, K, samples, features, counts of a sample, and whether a constant was chosen on it
    "topics 6": ("topics", 6, 500, 300, 200, True),
    "topics 10": ("topics", 10, 500, 300, 100, True),
    "topics 4, short": ("topics", 4, 500, 2000, 30, True),
    "cells 5": ("cells", 5, 500, 300, 300, True),
    "mutations 5": ("mutations", 5, 500, 96, 1000, True),
    "mutations 12": ("mutations", 12, 500, 96, 12000, True),
    "topics 8": ("topics", 8, 800, 1000, 150, False),
    "topics 15": ("topics", 15, 800, 500, 300, False),
    "cells 8": ("cells", 8, 600, 500, 400, False),
    "cells 3": ("cells", 3, 300, 200, 60, False),
    "mutations 8": ("mutations", 8, 300, 96, 800, False),
    "mutations 3": ("mutations", 3, 150, 96, 100, False),
    "topics 12, few": ("topics", 12, 300, 1000, 40, True),
    "cells 10, few": ("cells", 10, 400, 1000, 60, True),
    "mutations 10, few": ("mutations", 10, 100, 96, 60, True),
    "topics 9, few": ("topics", 9, 400, 600, 35, False),
    "cells 7, few": ("cells", 7, 300, 800, 50, False),
    "mutations 6, few": ("mutations", 6, 150, 96, 50, False),
    "topics 4, ten counts": ("topics", 4, 500, 300, 10, False),
    "cells 5, ten counts": ("cells", 5, 500, 300, 10, False),
    "mutations 5, ten counts": ("mutations", 5, 500, 96, 10, False),
    "topics 6, overdispersed": ("topics", 6, 500, 300, 200, False),
    "cells 5, overdispersed": ("cells", 5, 500, 300, 300, False),
}


def drawn(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts, their rates, and the number of components."""
    kind, K, N, F, total, _ = DRAWN[name]
    rng = np.random.default_rng(list(name.encode()))
    if kind == "topics":
        patterns, use = rng.dirichlet(np.full(F, 0.05), K), rng.dirichlet(np.full(K, 0.3), N)
    elif kind == "cells":
        patterns = rng.dirichlet(np.full(F, 0.3), K)
        use = 0.8 * np.eye(K)[rng.integers(K, size=N)] + 0.2 / K
    else:
        patterns, use = rng.dirichlet(np.full(F, 0.1), K), rng.gamma(0.7, 1 / K, (N, K))
    rates = (use * rng.gamma(4, total / 4, (N, 1))) @ patterns
    if name.endswith("overdispersed"):
        rates = rates * rng.gamma(2, 0.5, rates.shape)  # negative binomial counts
    return rng.poisson(rates).astype(float), rates, K


def real(names: list[str]) -> Iterator[tuple[str, Any, int, str]]:
    folder = Path(os.environ.get("CONENMF_DATA", "."))
    for name, (file, K, is_chosen) in FILES.items():
        if (not names or name in names) and (folder / file).exists():
            X = sp.csr_array(sp.load_npz(folder / file)).astype(np.float64)
            yield name, from_rows(X), K, "chosen on" * is_chosen


def print_bounds(names: list[str]) -> None:
    efforts = (0, DEFAULT_EFFORT, LARGE_EFFORT)
    heads = "".join(f"{f'effort {effort}':>11}{'CPU s':>7}" for effort in efforts)
    print(f"{'':12}{'K':>4}{'one component':>15}{'fit leaves':>12}{heads}")
    for name, V, K, chosen in real(names):
        fit = factorize(V, K, loss="poisson")
        cells = ""
        for effort in efforts:
            began = time.process_time()
            bound = divergence_bound(V, K, effort=effort)
            cells += f"{bound.share:>11.1%}{time.process_time() - began:>7.1f}"
        left = fit.objective / bound.of_margins
        print(f"{name:12}{K:>4}{bound.of_margins:>15,.0f}{left:>12.1%}{cells} {chosen}", flush=True)


def print_floors(names: list[str]) -> None:
    columns = ("fit", "floor", "spread", "fit / floor", "no refits", "CPU s")
    print(f"{'':25}{'K':>4}" + "".join(f"{column:>12}" for column in columns))
    counts = [(name, *drawn(name)) for name in DRAWN if not names or name in names]
    sets = [(name, from_rows(X), k) for name, X, _, K in counts for k in (K - 1, K, K + 2)]
    sets += [(name, V, K) for name, V, K, _ in real(names)]
    for name, V, K in sets:
        fit = factorize(V, K, loss="poisson")
        began = time.process_time()
        floor = noise_floor(V, fit.W, fit.H)
        seconds = time.process_time() - began
        quick = noise_floor(V, fit.W, fit.H, refit=False)
        above = fit.objective / floor.value - 1
        print(
            f"{name:25}{K:>4}{fit.objective:>12,.0f}{floor.value:>12,.0f}{floor.spread:>12,.0f}"
            f"{above:>+12.1%}{quick.value:>12,.0f}{seconds:>12.1f}",
            flush=True,
        )


def print_thinning(names: list[str]) -> None:
    others = ("parallel", "crossval")
    heads = "".join(f"{name:>10}" for name in ("true", "thinning", *others))
    print(f"{'':25}{heads}{'CPU s':>10}")
    for name in DRAWN:
        if names and name not in names:
            continue
        X, _, K = drawn(name)
        V = from_rows(sp.csr_array(X))
        began = time.process_time()
        chosen = [select_k(V, range(1, 21), methods=["thinning"]).votes["thinning"].K]
        seconds = time.process_time() - began
        votes = select_k(V, range(1, 21), methods=others).votes
        chosen += [votes[other].K for other in others]
        cells = "".join(f"{k:>10}" for k in (K, *chosen))
        print(f"{name:25}{cells}{seconds:>10.1f} {'chosen on' * DRAWN[name][-1]}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"bounds": print_bounds, "floors": print_floors, "thinning": print_thinning}
    parser.add_argument("part", choices=parts)
    parser.add_argument("names", nargs="*", help="Sets; by default all.")
    arguments = parser.parse_args()
    parts[arguments.part](arguments.names)

"""Time to the answer: how much sooner ours has the error of scikit-learn's best, and what it costs.

    python benchmarks/answers.py [--sets wap k1b] [--rounds 3] [--dense | --sparse] [--kept x.json]

For each dataset, in one run and in turn:

- scikit-learn's `cd` from nndsvda, nndsvd and random, `tol=0`, 150 iterations; the one with the
  lowest error is the rival. Ours has the answer when its error is at most 1.0005 times that one's.
- The default fit of ours against scikit-learn's default: seconds and error.
- One iteration of ours, with the default sweeps, against SciPy's two products ``X @ W`` and
  ``X.T @ H`` in float64 on one thread (sparse data), and in float32 against float64.
- `certify` against the fit that it judges.

The time to the answer is that of a fit which its callback ends, the exact coefficients included;
the callback sees the race of inits too. With ``--kept`` rows are added to a file, and sets that are
in it are not measured again, so that a table can be made in parts.

Medians of the rounds; an iteration is the median of one run. Real datasets are read from the folder
named by CONENMF_DATA. Every second set of each kind was not looked at while constants were chosen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from contenders import descend, fit_once, warm_up
from measure import interleaved, relative_error
from sklearn.decomposition import NMF
from threadpoolctl import threadpool_limits

from conenmf import ConeNMF, certify, from_rows
from conenmf.solve.run import Stopping, alternate

RIVALS = ("NMF cd nndsvda", "NMF cd nndsvd", "NMF cd random")
ITERATIONS, ENOUGH = 150, 1.0005
TEXTS = ("tr11", "tr23", "wap", "tr31", "k1b", "tr41", "re0", "tr45", "topics")
IMAGES = ("digits", "orl_32x32", "yale_32x32", "coil20_32x32", "georgia_tech_crop", "orl_112x92")
SCENES = ("indian_pines", "paviau_subset", "cones")
HELD_OUT = {*TEXTS[1::2], *IMAGES[1::2], *SCENES[1::2]}
COMPONENTS = {"yale_32x32": 15, "coil20_32x32": 20, "paviau_subset": 9, "orl_32x32": 40}


def load(name: str) -> tuple[Any, int] | None:
    """The samples and the number of components."""
    if name in datasets.DATASETS:
        return datasets.load(name, "float64", quick=False)
    X = datasets.stored(name)
    return None if X is None else (X.astype(np.float64), COMPONENTS.get(name, 20))


def rival(X: Any, K: int) -> tuple[str, float, float]:
    """Which of scikit-learn's inits ends lowest, its error and its seconds."""
    found = []
    for name in RIVALS:
        began = time.perf_counter()
        factors = fit_once(name, X, K, ITERATIONS)
        seconds = time.perf_counter() - began
        found.append((relative_error(X, *factors), seconds, name))
    error, seconds, name = min(found)
    return name, error, seconds


def answer(X: Any, K: int, rounds: int) -> dict[str, float]:
    """How much sooner ours has the answer, and the default fits side by side."""
    name, error, seconds = rival(X, K)
    theirs, ours, defaults, their_defaults, certifying = [seconds], [], [], [], []
    for _ in range(rounds):
        if len(theirs) < rounds:
            began = time.perf_counter()
            fit_once(name, X, K, ITERATIONS)
            theirs.append(time.perf_counter() - began)
        ours.append(descend(X, K, {}, ENOUGH * error, 10 * seconds + 1).time_to(ENOUGH * error))
        began = time.perf_counter()
        model = ConeNMF(K).fit(X)
        defaults.append(time.perf_counter() - began)
        V, began = from_rows(X), time.perf_counter()
        certify(V, model.result_.W, model.result_.H)
        certifying.append(time.perf_counter() - began)
        began = time.perf_counter()
        other = NMF(K, init="nndsvda", random_state=0)
        coefficients = other.fit_transform(X)
        their_defaults.append(time.perf_counter() - began)
    their_error = relative_error(X, coefficients, other.components_)
    fit = statistics.median(defaults)
    return {
        "sooner": statistics.median(theirs) / statistics.median(ours),
        "rival_seconds": statistics.median(theirs),
        "rival_error": error,
        "default_sooner": statistics.median(their_defaults) / fit,
        "fit": fit,
        "excess": model.result_.relative_error / their_error - 1,
        "certify": statistics.median(certifying),
    }


def iterations(X: Any, K: int, rounds: int) -> dict[str, float]:
    """One iteration against SciPy's two products, and single against double precision."""
    rng = np.random.default_rng(0)
    W, H = rng.random((X.shape[1], K)), rng.random((K, X.shape[0]))
    Ht, times = np.ascontiguousarray(H.T), {"products": [], "float64": [], "float32": []}
    data = {"float64": from_rows(X), "float32": from_rows(X.astype(np.float32))}

    def iterate(V: Any) -> float:
        ends: list[float] = []
        alternate(
            V,
            W,
            H,
            "hals",
            stopping=Stopping(tol=0, max_iter=25),
            callback=lambda _: ends.append(time.perf_counter()),
        )
        return statistics.median(np.diff(ends[5:]))

    for _ in range(rounds):
        for name, V in data.items():
            times[name].append(iterate(V))
        with threadpool_limits(1):
            both = interleaved({"C": lambda: X @ W, "VH": lambda: X.T @ Ht}, 9)
        times["products"].append(sum(both.values()))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "iteration": medians["float64"],
        "per_products": medians["float64"] / medians["products"],
        "single": medians["float32"] / medians["float64"],
    }


def measured(X: Any, K: int, rounds: int) -> dict[str, float]:
    """All that is printed of one set."""
    warm_up([*RIVALS, "ConeNMF"], datasets.shrunk(X))
    return answer(X, K, rounds) | iterations(X, K, rounds)


HEADER = (
    f"{'set':<18}{'sooner':>8}{'s':>8}{'default':>9}{'s':>8}{'excess':>10}"
    f"{'certify':>9}{'iteration':>11}{'/products':>11}{'f32/f64':>9}"
)


def row(name: str, found: dict[str, float]) -> str:
    mark = " *" if name in HELD_OUT else ""
    return (
        f"{name + mark:<18}{found['sooner']:8.1f}{found['rival_seconds']:8.2f}"
        f"{found['default_sooner']:9.1f}{found['fit']:8.3f}{100 * found['excess']:8.3f} %"
        f"{found['certify'] / found['fit']:9.2f}{1e3 * found['iteration']:8.2f} ms"
        f"{found['per_products']:11.2f}{found['single']:9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sparse", action="store_true", help="text only")
    parser.add_argument("--dense", action="store_true", help="all but text")
    parser.add_argument("--kept", type=Path, help="JSON file of the rows measured so far")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dense, sparse = (*IMAGES, *SCENES), TEXTS
    chosen = dense if options.dense else sparse if options.sparse else (*sparse, *dense)
    kept: dict[str, dict[str, float]] = {}
    if options.kept is not None and options.kept.exists():
        kept = json.loads(options.kept.read_text())
    print(HEADER)
    rows: dict[str, dict[str, float]] = {}
    for name in options.sets or chosen:
        if name in kept:
            rows[name] = kept[name]
        elif (loaded := load(name)) is not None:
            rows[name] = measured(*loaded, options.rounds)
        else:
            continue
        print(row(name, rows[name]), flush=True)
        if options.kept is not None:
            options.kept.write_text(json.dumps(kept | rows))
    for kind, names in (("sparse", sparse), ("dense", dense)):
        values = [rows[name]["sooner"] for name in names if name in rows]
        if values:
            print(f"{kind}: median {statistics.median(values):.1f}, least {min(values):.1f}")
    print("sooner: scikit-learn's seconds for 150 iterations from its best init (nndsvda, nndsvd,")
    print("random) over ours to 1.0005 times its error; default: its default over ours; excess: of")
    print("our error over its; certify: over the fit; *: not looked at while choosing constants")


if __name__ == "__main__":
    main()

"""How fast: default fits beside scikit-learn's, sparse iterations, the first fit.

    python benchmarks/speed.py [sets | small | iteration | first | gpu] [--rounds 3] [--sets wap]

``sets``: for every dataset in the folder CONENMF_DATA, the CPU seconds and errors of the default
fits of both, on one thread each, in turn. Sets with a star were not used to choose constants.
``small``: milliseconds of a fit of 60 x 20 and of `transform` of one row, beside scikit-learn's.
``iteration``: CPU seconds of an iteration on a sparse matrix of 40,000 x 20,000 with 3.5 million
nonzeros, beside scikit-learn's `cd` and SciPy's two products, with errors after 25 iterations.
``first``: what compiling adds to the first fit of digits. ``gpu``: 20 iterations at the sizes for
which RcppML 1.0 publishes times on an H100, on drawn data; wall and CPU seconds on all threads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import in_turn, output_of, relative_error, stored_sets, use_one_thread
from sklearn.base import clone
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

from conenmf import ConeNMF

PUBLISHED = {  # samples, features, nonzeros, K, loss: seconds on an H100 for 20 iterations
    (5000, 40_000, 33_000_000, 20, "frobenius"): 2.78,
    (5000, 10_000, 8_300_000, 64, "frobenius"): 0.88,
    (8000, 500, 531_000, 16, "poisson"): 1.98,
}


def fitted(model: Any, X: Any) -> float:
    """Fit, and return the relative error."""
    return relative_error(X, model.fit_transform(X), model.components_)


def sets(names: list[str] | None, rounds: int) -> None:
    """Default fits of every set; the geometric means of the ratios by kind."""
    ratios: dict[str, list[float]] = {}
    print(f"{'':22}{'K':>4}{'scikit-learn':>14}{'error':>9}{'conenmf':>9}{'error':>9}{'ratio':>7}")
    for one in stored_sets(names):
        ConeNMF(3, max_iter=3, n_threads=1).fit(one.X[:40])  # compiles
        found = in_turn(
            {
                "scikit-learn": lambda one=one: fitted(NMF(one.K), one.X),
                "conenmf": lambda one=one: fitted(ConeNMF(one.K, n_threads=1), one.X),
            },
            rounds,
        )
        (theirs, their_error), (ours, our_error) = found["scikit-learn"], found["conenmf"]
        line = (
            f"{one.name + '*' * (not one.is_chosen_on):22}{one.K:4}{theirs:14.3f}{their_error:9.5f}"
        )
        line += f"{ours:9.3f}{our_error:9.5f}{theirs / ours:7.2f}"
        kind = "sparse" if sp.issparse(one.X) else "dense"
        ratios.setdefault(kind, []).append(theirs / ours)
        print(line, flush=True)
    for kind, found_ratios in ratios.items():
        print(f"{kind}: {statistics.geometric_mean(found_ratios):.2f} times as fast")


def small(rounds: int) -> None:
    """What a fit and a transform cost where there is hardly anything to compute."""
    rng = np.random.default_rng(0)
    tiny, X = rng.random((60, 20)), rng.random((1000, 3)) @ rng.random((3, 20))
    models = {"scikit-learn": NMF(3), "conenmf": ConeNMF(3, n_threads=1)}
    fits = {name: partial(clone(model).fit, tiny) for name, model in models.items()}
    rows = {name: partial(model.fit(X).transform, X[:1]) for name, model in models.items()}
    for what, contenders in (("a fit of 60 x 20", fits), ("transform of one row", rows)):
        found = in_turn(contenders, 100 * rounds)
        theirs, ours = (1000 * found[name][0] for name in models)
        print(f"{what}: {ours:.2f} ms, scikit-learn {theirs:.2f} ms, ratio {ours / theirs:.2f}")


def iteration(rounds: int) -> None:
    """An iteration on large sparse data, in double and in single precision."""
    rng = np.random.default_rng(0)
    X = sp.random_array((40_000, 20_000), density=3.5e6 / 8e8, rng=rng, format="csr")
    for K in (20, 64):
        W, H = rng.random((40_000, K)), rng.random((K, 20_000))
        starts = {dtype: (W.astype(dtype), H.astype(dtype)) for dtype in ("f8", "f4")}

        def ours(dtype: str, n: int, K: int = K, starts: Any = starts) -> Any:
            model = ConeNMF(K, init=starts[dtype], max_iter=n, tol=0.0, n_threads=1)
            return fitted(model, X.astype(dtype))

        def theirs(n: int, K: int = K, W: Any = W, H: Any = H) -> Any:
            model = NMF(K, init="custom", max_iter=n, tol=0.0)
            A = model.fit_transform(X, W=W.copy(), H=H.copy())
            return relative_error(X, A, model.components_)

        names = {"scikit-learn cd": theirs}
        names |= {f"conenmf float{8 * int(d[1])}": lambda n, d=d: ours(d, n) for d in starts}
        runs = {
            f"{name} {n}": lambda run=run, n=n: run(n)
            for name, run in names.items()
            for n in (5, 25)
        }
        runs["two products"] = lambda W=W, H=H: (X @ H.T, X.T @ W)
        found = in_turn(runs, rounds)
        for name in names:
            seconds = (found[f"{name} 25"][0] - found[f"{name} 5"][0]) / 20
            print(f"K = {K}: {name:24}{seconds:8.4f} s, error {found[f'{name} 25'][1]:.6f}")
        print(f"K = {K}: {'SciPy, two products':24}{found['two products'][0]:8.4f} s")


def first(rounds: int) -> None:
    """CPU seconds that compiling adds to the first fit, by loss."""
    program = """
import time
from sklearn.datasets import load_digits
from conenmf import ConeNMF
X = load_digits().data
began = time.process_time()
ConeNMF(16, loss={loss!r}, n_threads=1).fit(X)
print(time.process_time() - began)
"""
    for loss in ("frobenius", "poisson"):
        added = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                times = [
                    float(output_of(program.format(loss=loss), NUMBA_CACHE_DIR=cache))
                    for _ in range(2)
                ]
            added.append(times[0] - times[1])
        print(f"{loss}: compiling takes {statistics.median(added):.2f} s")


def gpu(rounds: int) -> None:
    """Wall seconds of 20 iterations at published sizes."""
    for (N, F, nnz, K, loss), published in PUBLISHED.items():
        rng = np.random.default_rng(0)
        X = sp.random_array((N, F), density=nnz / (N * F), rng=rng, format="csr")
        X.data = np.ceil(5 * X.data)
        options = {"init": "random", "random_state": 0, "max_iter": 20, "tol": 0.0}
        model = ConeNMF(K, loss=loss, n_threads=os.cpu_count(), **options)
        model.fit(X[:100])
        began = time.process_time()
        found = in_turn({"ours": lambda m=model, X=X: m.fit(X)}, rounds, time.perf_counter)
        cpu = (time.process_time() - began) / rounds
        seconds, last = found["ours"]
        print(
            f"{N} x {F}, {nnz:,} nonzeros, K = {K}, {loss}: {seconds:.2f} s ({cpu:.2f} CPU s), "
            f"H100 {published} s, relative error {last.relative_error_:.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = {"small": small, "iteration": iteration, "first": first, "gpu": gpu}
    parser.add_argument("part", nargs="?", choices=["sets", *parts], default="sets")
    parser.add_argument("--sets", nargs="+", help="names of datasets")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.part != "gpu":
        use_one_thread()
    if options.part == "sets":
        sets(options.sets, options.rounds)
    else:
        parts[options.part](options.rounds)


if __name__ == "__main__":
    main()

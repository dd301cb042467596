"""How fast: default fits beside scikit-learn's, sparse iterations, the first fit; docs/speed.md.

    python benchmarks/speed.py [sets | small | iteration | first | gpu] [--rounds 3]
    python benchmarks/speed.py checkouts --other ../other-checkout

``sets``: for every real dataset of the zoo, the CPU seconds and errors of the default fits of both,
on one thread each, in turn. Sets with a star were not used to choose constants.
``small``: milliseconds of a fit of 60 x 20 and of `transform` of one row, beside scikit-learn's.
``iteration``: CPU seconds of an iteration on a sparse matrix of 40,000 x 20,000 with 3.5 million
nonzeros, beside scikit-learn's `cd` and SciPy's two products, with errors after 25 iterations.
``first``: what compiling adds to the first fit of digits. ``gpu``: 20 iterations at the sizes for
which RcppML 1.0 publishes times on an H100, on drawn data; wall and CPU seconds on all threads.
``checkouts``: parts of a fit in this checkout and another one, each in a process of its own, in
turn; and whether both return the same bits. Only names that both have are used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import (
    fitted,
    heading,
    in_turn,
    output_of,
    relative_error,
    row,
    use_one_thread,
)
from sklearn.base import clone
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from zoo_matrices import zoo

from conenmf import ConeNMF, certify, cr1_nmf, factorize, from_rows, make_cones, open_data

PUBLISHED = {  # samples, features, nonzeros, K, loss: seconds on an H100 for 20 iterations
    (5000, 40_000, 33_000_000, 20, "frobenius"): 2.78,
    (5000, 10_000, 8_300_000, 64, "frobenius"): 0.88,
    (8000, 500, 531_000, 16, "poisson"): 1.98,
}


def sets(rounds: int) -> None:
    """Default fits of every set; the geometric mean of the ratios."""
    ratios = []
    heading("set", "K", "scikit-learn, s", "error", "conenmf, s", "error", "ratio")
    ConeNMF(3, max_iter=3, n_threads=1).fit(np.eye(40))  # compiles
    for member in zoo():
        if member.kind == "real":
            X, K = member.load()
            found = in_turn(
                {
                    "theirs": partial(fitted, NMF(K), X),
                    "ours": partial(fitted, ConeNMF(K, n_threads=1), X),
                },
                rounds,
            )
            ratios.append(found["theirs"][0] / found["ours"][0])
            name = member.name + "*" * (not member.is_chosen_on)
            row(name, K, *found["theirs"], *found["ours"], ratios[-1])
    print(f"{statistics.geometric_mean(ratios):.2f} times as fast")


def small(rounds: int) -> None:
    """What a fit and a transform cost where there is hardly anything to compute."""
    rng = np.random.default_rng(0)
    tiny, X = rng.random((60, 20)), rng.random((1000, 3)) @ rng.random((3, 20))
    models = {"scikit-learn": NMF(3), "conenmf": ConeNMF(3, n_threads=1)}
    fits = {name: partial(clone(model).fit, tiny) for name, model in models.items()}
    rows = {name: partial(model.fit(X).transform, X[:1]) for name, model in models.items()}
    heading("what", "scikit-learn, ms", "conenmf, ms", "ratio")
    for what, contenders in (("a fit of 60 x 20", fits), ("transform of one row", rows)):
        found = in_turn(contenders, 100 * rounds)
        theirs, ours = (1000 * found[name][0] for name in models)
        row(what, theirs, ours, ours / theirs)


def iteration(rounds: int) -> None:
    """An iteration on large sparse data, in double and in single precision."""
    rng = np.random.default_rng(0)
    X = sp.random_array((40_000, 20_000), density=3.5e6 / 8e8, rng=rng, format="csr")
    heading("K", "program", "seconds of an iteration", "error after 25")
    for K in (20, 64):
        W, H = rng.random((40_000, K)), rng.random((K, 20_000))

        def ours(n: int, dtype: str, K: int = K, W: Any = W, H: Any = H) -> float:
            start = W.astype(dtype), H.astype(dtype)
            model = ConeNMF(K, init=start, max_iter=n, tol=0.0, n_threads=1)
            return fitted(model, X.astype(dtype))

        def theirs(n: int, K: int = K, W: Any = W, H: Any = H) -> float:
            model = NMF(K, init="custom", max_iter=n, tol=0.0)
            A = model.fit_transform(X, W=W.copy(), H=H.copy())
            return relative_error(X, A, model.components_)

        programs = {"scikit-learn cd": theirs}
        programs |= {f"conenmf {d}": partial(ours, dtype=d) for d in ("float64", "float32")}
        runs = {(name, n): partial(run, n) for name, run in programs.items() for n in (5, 25)}
        found = in_turn(runs | {"products": lambda W=W, H=H: (X @ H.T, X.T @ W)}, rounds)
        for name in programs:
            seconds, error = found[name, 25]
            row(K, name, (seconds - found[name, 5][0]) / 20, f"{error:.6f}")
        row(K, "SciPy, two products", found["products"][0], "")


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
    heading("loss", "seconds that compiling takes")
    for loss in ("frobenius", "poisson"):
        added = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                program_of_loss = program.format(loss=loss)
                times = [float(output_of(program_of_loss, NUMBA_CACHE_DIR=cache)) for _ in "12"]
            added.append(times[0] - times[1])
        row(loss, statistics.median(added))


def gpu(rounds: int) -> None:
    """Wall seconds of 20 iterations at published sizes."""
    heading("samples x features", "nonzeros", "K", "loss", "s", "CPU s", "H100, s", "error")
    for (N, F, nnz, K, loss), published in PUBLISHED.items():
        rng = np.random.default_rng(0)
        X = sp.random_array((N, F), density=nnz / (N * F), rng=rng, format="csr")
        X.data = np.ceil(5 * X.data)
        options = {"init": "random", "random_state": 0, "max_iter": 20, "tol": 0.0}
        model = ConeNMF(K, loss=loss, n_threads=os.cpu_count(), **options)
        model.fit(X[:100])
        began = time.process_time()
        seconds, last = in_turn({"": lambda m=model, X=X: m.fit(X)}, rounds, time.perf_counter)[""]
        cpu = (time.process_time() - began) / rounds
        row(f"{N} x {F}", nnz, K, loss, seconds, cpu, published, last.relative_error_)


def parts_of_a_fit(folder: Path) -> dict[str, Callable[[], Any]]:
    """What `checkouts` times: each returns arrays or numbers."""
    rng = np.random.default_rng(0)
    X = rng.gamma(0.4, size=(6000, 20)) @ rng.gamma(0.5, size=(20, 800))
    X += 0.05 * rng.random(X.shape)
    sparse = sp.random_array((4000, 12000), density=0.008, rng=rng, format="csr")
    cones = from_rows(make_cones(400, 20, 0.2, n_samples=10_000, rng=rng).V.T.copy())
    small, V, VS = rng.random((300, 40)), from_rows(X), from_rows(sparse)
    np.save(folder / "X.npy", X)
    stored = open_data(folder / "X.npy", max_memory="200MB")
    W, H, _ = cr1_nmf(V, 20)

    def fit(V: Any, solver: str = "hals") -> tuple[np.ndarray, np.ndarray]:
        found = factorize(V, 20, init="cr1", solver=solver, max_iter=15, tol=0.0)
        return found.W, found.H

    def transform(times: int = 500) -> list[np.ndarray]:
        model = ConeNMF(5).fit(small)
        return [model.transform(small[:1]) for _ in range(times)]

    runs = {f"15 x {s}": partial(fit, V, s) for s in ("hals", "mult", "nnlsb", "plain-hals")}
    runs |= {"15 x hals, sparse": partial(fit, VS), "15 x hals, file": partial(fit, stored)}
    runs |= {"cr1_nmf": lambda: cr1_nmf(cones, 20)[:2]}
    runs |= {"default fit, 300 x 40": lambda: ConeNMF(5).fit_transform(small)}
    runs |= {"500 x transform": transform, "certify": lambda: certify(V, W, H).lower_bound}
    return runs


def measure_here() -> str:
    """Seconds and digests of the checkout that is imported, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        runs = parts_of_a_fit(Path(folder))
        in_turn(runs, 1)  # compiled and warm
        found = in_turn(runs, 3)
    return json.dumps(
        {name: (seconds, digest(result)) for name, (seconds, result) in found.items()}
    )


def digest(result: Any) -> str:
    arrays = result if isinstance(result, tuple | list) else (result,)
    return hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in arrays)).hexdigest()


def checkouts(other: Path, rounds: int) -> None:
    """Medians of both, their ratio, and whether the bits are the same."""
    places = {"other": other.resolve(), "this": Path(__file__).parents[1]}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in places}
    for _ in range(rounds):
        for name, place in places.items():
            said = output_of("import speed; print(speed.measure_here())", PYTHONPATH=f"{place}/src")
            found[name].append(json.loads(said))
    heading("part", "other, s", "this, s", "ratio", "bits")
    for part, (_, digest) in found["this"][0].items():
        theirs, ours = (
            statistics.median(run[part][0] for run in found[name]) for name in ("other", "this")
        )
        is_same = found["other"][0][part][1] == digest
        row(part, theirs, ours, ours / theirs, "same" if is_same else "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = {"sets": sets, "small": small, "iteration": iteration, "first": first, "gpu": gpu}
    parser.add_argument("part", nargs="?", choices=[*parts, "checkouts"], default="sets")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", type=Path, default=".", help="another checkout")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.part != "gpu":
        use_one_thread()
    if options.part == "checkouts":
        checkouts(options.other, options.rounds)
    else:
        parts[options.part](options.rounds)


if __name__ == "__main__":
    main()

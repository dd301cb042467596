"""How the benchmarks measure: contenders in turn, CPU seconds, medians; and the data they share.

CPU seconds on one thread depend least on what else the machine does. `use_one_thread` limits BLAS
and OpenMP; ours takes ``n_threads=1``. Results are lines of a table in Markdown. Real datasets are
in the folder named by CONENMF_DATA.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from conenmf import make_cones
from conenmf.datasets import tf_idf

SEED = 0
DATA = Path(os.environ.get("CONENMF_DATA", "data"))


def command(description: str, *parts: Callable[..., None]) -> None:
    """Run the part that the command line names; its options are the parameters of the function.

    A program of one part needs no name. Fits that stop before they converge are no surprise here.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    named = parser.add_subparsers(metavar="part", required=True) if len(parts) > 1 else None
    for part in parts:
        own = named.add_parser(part.__name__, help=part.__doc__) if named else parser
        own.set_defaults(run=part)
        for name, parameter in inspect.signature(part).parameters.items():
            default = parameter.default
            if parameter.kind is parameter.VAR_POSITIONAL:
                own.add_argument("names", nargs="*", metavar=name, help="by default all")
            elif default is False:
                own.add_argument(f"--{name}", action="store_true")
            elif isinstance(default, tuple):
                own.add_argument(f"--{name}", type=type(default[0]), nargs="+", default=default)
            else:
                own.add_argument(f"--{name}", type=type(default), default=default)
    options = vars(parser.parse_args())
    run, names = options.pop("run"), options.pop("names", [])
    warnings.simplefilter("ignore", ConvergenceWarning)
    run(*names, **options)


def use_one_thread() -> None:
    """Limit the threads of BLAS and OpenMP to one from here on."""
    threadpool_limits(1)


def in_turn(
    contenders: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, tuple[float, Any]]:
    """Run each contender once per round; return its median seconds and its last result."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            began = clock()
            results[name] = run()
            seconds[name].append(clock() - began)
    return {name: (statistics.median(seconds[name]), results[name]) for name in contenders}


def timed(
    run: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> tuple[float, Any]:
    """The seconds of one run, and its result."""
    return in_turn({"": run}, 1, clock)[""]


def heading(*names: str) -> None:
    """Print the first two lines of a table."""
    row(*names)
    row(*["---"] * len(names))


def row(*cells: object) -> None:
    """Print a line of a table; numbers have four digits."""
    texts = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |", flush=True)


def relative_error(X: Any, A: np.ndarray, C: np.ndarray) -> float:
    """||X - A C|| / ||X|| in float64; for sparse X by the expanded square."""
    A, C = A.astype(np.float64, copy=False), C.astype(np.float64, copy=False)
    X = X.astype(np.float64)
    if not sp.issparse(X):
        return float(np.linalg.norm(X - A @ C) / np.linalg.norm(X))
    total = float(X.data @ X.data)
    squared = total - 2.0 * float(np.vdot(X @ C.T, A)) + float(np.vdot(A.T @ A, C @ C.T))
    return float(np.sqrt(max(squared, 0.0) / total))


def fitted(model: Any, X: Any) -> float:
    """Fit, and return the relative error."""
    return relative_error(X, model.fit_transform(X), model.components_)


def output_of(program: str, **environment: str) -> str:
    """What a program prints in a fresh interpreter that can import the benchmarks."""
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", setup + program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a measured program failed:\n{done.stderr[-2000:]}")
    return done.stdout


def versions() -> dict[str, str]:
    """The versions of what is measured."""
    names = ("conenmf", "numpy", "scipy", "scikit-learn", "numba")
    found = {name: importlib.metadata.version(name) for name in names}
    return {"python": platform.python_version()} | found


def machine() -> dict[str, str | int | None]:
    """The processor and the number of cores; nothing that names the machine."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return {"cores": os.cpu_count(), "processor": models[0] if models else platform.machine()}


def numbers(path: Path) -> np.ndarray:
    """The numbers of a table, without the columns that name rows."""
    return pd.read_csv(path).select_dtypes("number").to_numpy(float)


def cones(F: int, N: int, K: int) -> np.ndarray:
    """Samples (N, F) of the paper's model, alpha = 0.2."""
    V = make_cones(F, K, 0.2, n_samples=N, rng=np.random.default_rng(SEED)).V
    return np.ascontiguousarray(V.T)


def topic_counts(N: int, F: int, nnz: int, topics: int, rng: np.random.Generator) -> sp.csr_array:
    """Counts (N, F) of terms in documents with exactly `nnz` nonzeros, from a topic model.

    Term frequencies follow Zipf's law; a topic is a Dirichlet draw around them, mixed with a fifth
    of the law itself; documents are Dirichlet mixtures of topics with log-normal lengths. Words
    are drawn until there are enough nonzeros, and a random surplus is dropped.
    """
    if nnz > N * F // 10:
        raise ValueError(f"{nnz} nonzeros in {N} x {F} are too many to be drawn word by word")
    frequency = 1.0 / (np.arange(F) + 2.7)
    frequency /= frequency.sum()
    terms = rng.gamma(0.01 * F * frequency, size=(topics, F))
    terms = 0.8 * terms / terms.sum(axis=1, keepdims=True) + 0.2 * frequency
    upto = np.cumsum(terms, axis=1)
    mixtures = rng.dirichlet(np.full(topics, 0.1), size=N)
    lengths = rng.lognormal(sigma=0.5, size=N)
    lengths *= nnz / lengths.sum()
    words = np.empty(0, np.int64)  # document * F + term
    while True:
        counts = rng.multinomial(np.ceil(lengths).astype(np.int64), mixtures)
        drawn = [words]
        for topic in range(topics):
            count = counts[:, topic]
            term = np.searchsorted(upto[topic], rng.random(count.sum()))
            drawn.append(np.repeat(np.arange(N) * F, count) + np.minimum(term, F - 1))
        words = np.concatenate(drawn)
        places, times = np.unique(words, return_counts=True)
        if places.size >= nnz:
            break
    kept = np.sort(rng.choice(places.size, nnz, replace=False, shuffle=False))
    document, term = np.divmod(places[kept], F)
    starts = np.searchsorted(document, np.arange(N + 1))
    parts = (times[kept].astype(np.float64), term.astype(np.int32), starts.astype(np.int32))
    return sp.csr_array(parts, shape=(N, F))


def topics(N: int, F: int, nnz: int, K: int) -> sp.csr_array:
    """Generated texts, weighted by tf-idf."""
    return tf_idf(topic_counts(N, F, nnz, K, np.random.default_rng(SEED)))

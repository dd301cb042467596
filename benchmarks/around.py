"""What surrounds the solver, as ratios: singular vectors, certificate, choice of K, first minute.

``around.py`` prints, for tf-idf text (one generated of 3204 x 29,714 with 484,000 nonzeros, and the
collections that are in the folder named by CONENMF_DATA), K = 20: the seconds of `truncated_svd`
and those of SciPy's ``svds`` with PROPACK and with ARPACK, of `estimate_rank`, of ``init="nndsvd"``
and of scikit-learn's, of a default fit and of its certificate, with their ratios. Then the first
minute, each in a new process: ``conenmf --help``, the completion of a command, and the first fit of
digits without and with what numba has compiled before. ``around.py text`` and ``around.py minute``
print one of the two.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from datasets import stored, topics
from measure import interleaved
from scipy.sparse.linalg import svds
from sklearn.decomposition._nmf import _initialize_nmf

from conenmf import certify, estimate_rank, factorize, from_rows
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import initialize
from conenmf.solve.solvers import SOLVERS

K, ROUNDS = 20, 3
COLLECTIONS = ("wap", "k1b", "re0", "tr11", "tr23", "tr31", "tr41", "tr45")
FIRST_FIT = """
import time
began = time.perf_counter()
from conenmf import factorize, from_rows
import numpy as np
X = np.load({path!r})
result = factorize(from_rows(X), 16)
print(time.perf_counter() - began, result.total_seconds)
"""


def times_of(X: Any) -> dict[str, float]:
    """Median seconds of each, in turn."""
    V, exact = from_rows(X), X.astype(np.float64)
    start = np.random.default_rng(0).standard_normal(min(X.shape))
    fit = factorize(V, K)
    contenders = {
        "truncated_svd": lambda: Spectrum(V).truncated_svd(K),
        "PROPACK": lambda: svds(exact, K, solver="propack", v0=start),
        "ARPACK": lambda: svds(exact, K, solver="arpack", v0=start),
        "estimate_rank": lambda: estimate_rank(V),
        "nndsvd": lambda: initialize(V, K, "nndsvd", SOLVERS["hals"]),
        "scikit-learn's": lambda: _initialize_nmf(X, K, init="nndsvd", random_state=0),
        "fit": lambda: factorize(V, K),
        "certify alone": lambda: certify(V, fit.W, fit.H),
    }
    times = interleaved(contenders, ROUNDS)
    own = []
    for _ in range(ROUNDS):
        fit = factorize(V, K)
        began = time.perf_counter()
        fit.certify()
        own.append(time.perf_counter() - began)
    return times | {"certify": float(np.median(own))}


def print_text() -> None:
    sets = {"generated": topics(3204, 29_714, 484_000, K)}
    sets |= {name: X for name in COLLECTIONS if (X := stored(name)) is not None}
    header = ("svd", "PROPACK", "ARPACK", "ratio", "rank", "nndsvd", "sklearn", "ratio")
    print(f"{'seconds':12}" + "".join(f"{name:>9}" for name in header), end="")
    print("".join(f"{name:>9}" for name in ("fit", "certify", "of fit", "alone")))
    for name, X in sets.items():
        t = times_of(X)
        numbers = (
            t["truncated_svd"],
            t["PROPACK"],
            t["ARPACK"],
            t["truncated_svd"] / t["PROPACK"],
            t["estimate_rank"],
            t["nndsvd"],
            t["scikit-learn's"],
            t["nndsvd"] / t["scikit-learn's"],
            t["fit"],
            t["certify"],
            t["certify"] / t["fit"],
            t["certify alone"],
        )
        print(f"{name:12}" + "".join(f"{number:>9.3f}" for number in numbers), flush=True)


def seconds_of(*arguments: str, **settings: str) -> float:
    """The fastest of a few processes."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **settings},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        taken.append(time.perf_counter() - began)
    return min(taken)


def print_minute() -> None:
    from sklearn.datasets import load_digits

    command = ("-m", "conenmf")
    completing = {"_CONENMF_COMPLETE": "bash_complete"}
    print(f"python -c pass {seconds_of('-c', 'pass'):>23.3f} s")
    print(f"conenmf --help {seconds_of(*command, '--help'):>23.3f} s")
    for words in ("conenmf f", "conenmf fit --in"):
        count = str(words.count(" "))
        seconds = seconds_of(*command, **completing, COMP_WORDS=words, COMP_CWORD=count)
        print(f"completion of {words!r:20} {seconds:>7.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "digits.npy")
        np.save(path, load_digits().data)
        environment = {**os.environ, "NUMBA_CACHE_DIR": os.path.join(folder, "cache")}
        for what in ("first fit of digits", "the same again"):
            done = subprocess.run(
                [sys.executable, "-c", FIRST_FIT.format(path=path)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            whole, counted = map(float, done.stdout.split())
            print(f"{what:20} {whole:>15.3f} s, of which the result counts {counted:.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["text", "minute"])
    part = parser.parse_args().part
    if part in (None, "text"):
        print_text()
    if part in (None, "minute"):
        print_minute()

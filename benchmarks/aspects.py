"""What a race over iterations does not show: the init, threads, the import, the first call."""

from __future__ import annotations

import statistics
from typing import Any

import datasets
import numpy as np
from measure import interleaved, output_of, take_turns
from sklearn.decomposition._nmf import _initialize_nmf

from conenmf import ConeNMF, from_rows
from conenmf.solve.inits import initialize
from conenmf.solve.solvers import SOLVERS

ITERATIONS = 20
FRESH = 7  # interpreters for each import


def init(rounds: int, quick: bool) -> dict[str, Any]:
    """The cr1 init, opening of the data included, and scikit-learn's nndsvd on the same array."""
    found: dict[str, Any] = {}
    parts = []
    for name in ("cones", "faces94"):
        loaded = _matrix(name, quick)
        if loaded is None:
            continue
        X, K = loaded
        initialize(from_rows(datasets.shrunk(X)), 3, "cr1", SOLVERS["hals"])  # compile
        median = interleaved(
            {
                "cr1": lambda X=X, K=K: initialize(from_rows(X), K, "cr1", SOLVERS["hals"]),
                "nndsvd": lambda X=X, K=K: _initialize_nmf(X, K, init="nndsvd", random_state=0),
            },
            rounds,
        )
        ratio = median["nndsvd"] / median["cr1"]
        found[name] = {"shape": X.shape, "K": K, "seconds": median, "ratio": ratio}
        parts.append(
            f"init on {name} {X.shape}, K={K}: cr1 {median['cr1']:.4f} s, scikit-learn's nndsvd "
            f"{median['nndsvd']:.4f} s, ratio {ratio:.1f}"
        )
    return found | {"summary": "; ".join(parts)}


def _matrix(name: str, quick: bool) -> tuple[np.ndarray, int] | None:
    if name != "faces94":
        return datasets.load(name, "float64", quick)
    X = datasets.stored(name)
    if X is None:
        return None
    return (datasets.shrunk(X).astype(np.float64), 6) if quick else (X.astype(np.float64), 40)


def threads(rounds: int, quick: bool) -> dict[str, Any]:
    """Seconds of an iteration on cones with one and with two threads, and whether bits differ."""
    X, K = datasets.load("cones", "float64", quick)
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    bits = set()

    def fit(n_threads: int) -> ConeNMF:
        model = ConeNMF(K, init="cr1", n_threads=n_threads, max_iter=ITERATIONS, tol=0)
        return model.fit(X)

    def record(name: str, _: float, model: ConeNMF) -> None:
        seconds[name].append(float(np.median(np.diff(model.history_.elapsed))))
        bits.add((model.components_.tobytes(), model.result_.H.tobytes()))

    fit(2)
    take_turns({"1": lambda: fit(1), "2": lambda: fit(2)}, rounds, record)
    one, two = (statistics.median(seconds[n]) for n in ("1", "2"))
    return {
        "seconds": seconds,
        "ratio": one / two,
        "identical_bits": len(bits) == 1,
        "summary": f"an iteration on cones {X.shape}, K={K}: 1 thread {one:.4f} s, 2 threads "
        f"{two:.4f} s, ratio {one / two:.2f}, bits {'identical' if len(bits) == 1 else 'DIFFER'}",
    }


def imports(quick: bool) -> dict[str, Any]:
    """Seconds to import conenmf and sklearn.decomposition, each in fresh interpreters."""
    seconds: dict[str, list[float]] = {"conenmf": [], "sklearn.decomposition": []}

    def imported(module: str) -> float:
        clock = "from time import perf_counter; began = perf_counter()"
        return float(output_of(f"{clock}\nimport {module}\nprint(perf_counter() - began)"))

    contenders = {module: lambda module=module: imported(module) for module in seconds}
    for run in contenders.values():
        run()  # files come into the system's cache
    take_turns(
        contenders, 1 if quick else FRESH, lambda name, _, inside: seconds[name].append(inside)
    )
    ours, theirs = (statistics.median(values) for values in seconds.values())
    return {
        "seconds": seconds,
        "ratio": ours / theirs,
        "summary": f"import in a fresh interpreter: conenmf {ours:.3f} s, sklearn.decomposition "
        f"{theirs:.3f} s, ratio {ours / theirs:.2f}",
    }


def first_call() -> dict[str, Any]:
    """The first and the second fit in a fresh process, what numba compiled being on disk."""
    program = """
import time
import numpy as np
from conenmf import ConeNMF
X = np.random.default_rng(0).random((500, 200))
for _ in range(2):
    began = time.perf_counter()
    ConeNMF(5, max_iter=20, tol=0).fit(X)
    print(time.perf_counter() - began)
"""
    output_of(program)  # compile
    first, second = map(float, output_of(program).split())
    return {
        "first": first,
        "second": second,
        "summary": f"first fit in a fresh process {first:.3f} s, second {second:.3f} s "
        "(500 x 200, K=5, 20 iterations)",
    }


def measure_all(rounds: int, quick: bool) -> dict[str, Any]:
    return {
        "init": init(rounds, quick),
        "threads": threads(rounds, quick),
        "import": imports(quick),
        "first_call": first_call(),
    }

"""How fast: default fits beside scikit-learn's, sparse iterations, the first fit; docs/speed.md.

    python benchmarks/speed.py sets | small | iteration | first | gpu [--rounds 3]
    python benchmarks/speed.py checkouts --other DIR --data DIR [--components 10] [--rounds 3]

``sets``: for every real dataset of the zoo, the CPU seconds and errors of the default fits of both,
on one thread each, in turn. Sets with a star were not used to choose constants.
``small``: milliseconds of a fit of 60 x 20 and of `transform` of one row, beside scikit-learn's.
``iteration``: CPU seconds of an iteration on a sparse matrix of 40,000 x 20,000 with 3.5 million
nonzeros, beside scikit-learn's `cd` and SciPy's two products, with errors after 25 iterations.
``first``: what compiling adds to the first fit of digits. ``gpu``: 20 iterations at the sizes for
which RcppML 1.0 publishes times on an H100, on drawn data; wall and CPU seconds on all threads.
``checkouts``: default fits, the time until they are 1 % and 0.1 % above the better end of both,
`transform` of one row and, for whole numbers, Poisson fits of this checkout, of another one twice
(``itself / other`` shows what ratios vary by) and of scikit-learn.
Each has a process of its own; they take turns, and a ratio is the median of those of the rounds.
Matrices: small drawn ones and digits (not with --files), every file of a folder that `open_data`
opens, and every ``V.npz`` in its subfolders. K is the number of classes in ``labels.npy`` beside
``V.npz``, else --components.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from measure import (
    command,
    fitted,
    heading,
    in_turn,
    output_of,
    relative_error,
    row,
    timed,
    use_one_thread,
)
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF
from zoo_matrices import zoo

from conenmf import ConeNMF, ConeNMFError, open_data

PUBLISHED = {  # samples, features, nonzeros, K, loss: seconds on an H100 for 20 iterations
    (5000, 40_000, 33_000_000, 20, "frobenius"): 2.78,
    (5000, 10_000, 8_300_000, 64, "frobenius"): 0.88,
    (8000, 500, 531_000, 16, "poisson"): 1.98,
}

NEAR = {"to 1 %": 1.01, "to 0.1 %": 1.001}  # of the best error
TOGETHER = 0.2  # CPU seconds of the runs of which one round of `checkouts` takes the median


def sets(rounds: int = 3) -> None:
    """Default fits of every set; the geometric mean of the ratios where both end alike."""
    use_one_thread()
    ratios = []
    heading("set", "K", "scikit-learn, s", "error", "conenmf, s", "error", "ratio")
    ConeNMF(3, max_iter=3, n_threads=1).fit(np.eye(40))  # compiles
    for member in zoo():
        if member.kind == "real":
            X, K = member.load()
            models = [NMF(K), ConeNMF(K, n_threads=1)]
            found = in_turn({model: partial(model.fit_transform, X) for model in models}, rounds)
            (theirs, _), (ours, _) = found.values()
            errors = [relative_error(X, A, model.components_) for model, (_, A) in found.items()]
            name = member.name + "*" * (not member.is_chosen_on)
            row(name, K, theirs, errors[0], ours, errors[1], theirs / ours)
            if errors[0] < 1.01 * errors[1]:
                ratios.append(theirs / ours)
    mean = statistics.geometric_mean(ratios)
    print(
        f"{mean:.2f} times as fast on the {len(ratios)} sets where scikit-learn's error is at most"
    )
    print("1 % higher; on the others it stops early")


def small(rounds: int = 3) -> None:
    """What a fit and a transform cost where there is hardly anything to compute."""
    use_one_thread()
    X = np.random.default_rng(0).random((1000, 20))
    models = {"scikit-learn": NMF(3), "conenmf": ConeNMF(3, n_threads=1)}
    parts = {
        "a fit of 60 x 20": {name: partial(clone(one).fit, X[:60]) for name, one in models.items()},
        "transform of one row": {
            name: partial(one.fit(X).transform, X[:1]) for name, one in models.items()
        },
    }
    heading("what", "scikit-learn, ms", "conenmf, ms", "ratio")
    for what, contenders in parts.items():
        found = in_turn(contenders, 100 * rounds)
        theirs, ours = (1000 * found[name][0] for name in models)
        row(what, theirs, ours, ours / theirs)


def iteration(rounds: int = 3) -> None:
    """An iteration on large sparse data, in double and in single precision."""
    use_one_thread()
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


def first(rounds: int = 3) -> None:
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


def gpu(rounds: int = 3) -> None:
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


def begin(checkout: Path, program: str, cache: Path) -> subprocess.Popen[str]:
    """A process that does tasks with a checkout, compiled there alone, or with scikit-learn."""
    modules = f"{checkout}/src{os.pathsep}{Path(__file__).parent}"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", f"import speed; speed.answer({program!r})"],
        env=os.environ | {"PYTHONPATH": modules, "NUMBA_CACHE_DIR": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(
    process: subprocess.Popen[str], path: Path, K: int, task: str, best: float
) -> tuple[float, float]:
    """The CPU seconds of a task in that process, and the relative error of its factors."""
    print(json.dumps([str(path), K, task, best]), file=process.stdin, flush=True)
    seconds, error = json.loads(process.stdout.readline())
    return seconds, error


def model_of(program: str, K: int, task: str) -> Any:
    """What the task asks for, by default settings."""
    if program == "scikit-learn":
        return NMF(K)
    return ConeNMF(K, loss="poisson" if task == "fit of counts" else "frobenius", n_threads=1)


stored = lru_cache(maxsize=1)(joblib.load)


@lru_cache(maxsize=1)
def fitted_to(path: str, program: str, K: int) -> Any:
    """The model of the last file whose rows were transformed."""
    return model_of(program, K, "fit").fit(stored(path))


def reached(X: Any, K: int, mark: float) -> tuple[float, float]:
    """CPU seconds of a fit until its error is at most this, or to its end; and its error then."""
    began = time.process_time()
    seen: list[tuple[float, float]] = []

    def is_near(now: Any) -> bool:
        seen.append((time.process_time() - began, now.relative_error))
        return bool(now.relative_error <= mark)

    ConeNMF(K, callback=is_near, n_threads=1).fit(X)
    return seen[-1]


def answer(program: str) -> None:
    """Do the tasks that lines of the standard input name; short ones often, for a median."""
    use_one_thread()
    for line in sys.stdin:
        path, K, task, best = json.loads(line)
        X = stored(path)
        if task in NEAR:
            times = [reached(X, K, best * NEAR[task])]
            while sum(spent for spent, _ in times) < TOGETHER:
                times.append(reached(X, K, best * NEAR[task]))
            print(json.dumps(sorted(times)[len(times) // 2]), flush=True)
            continue
        if task == "transform of one row":
            X, model = X[:1], fitted_to(path, program, K)
            run = partial(model.transform, X)
        else:
            model = model_of(program, K, task)
            run = partial(model.fit_transform, X)
        seconds = []
        while sum(seconds) < TOGETHER:
            spent, A = timed(run)
            seconds.append(spent)
        error = max(relative_error(X, A, model.components_), 1e-6)  # below that it is exact
        print(json.dumps([statistics.median(seconds), error]), flush=True)


def small_matrices() -> Iterator[tuple[str, Any, int]]:
    """Those where a fit takes milliseconds, and digits: name, samples, components."""
    rng = np.random.default_rng(0)
    yield "50 x 30", rng.random((50, 30)), 3
    yield "200 x 100", rng.random((200, 100)), 5
    rates = rng.gamma(0.5, 2.0, (60, 3)) @ rng.gamma(0.5, 2.0, (3, 40))
    yield "60 x 40", rng.poisson(rates).astype(np.float64), 3
    yield "digits", load_digits().data, 10


def matrices_of(data: Path, K: int) -> Iterator[tuple[str, Any, int]]:
    """Matrices of files in a folder as both libraries take them: name, samples, components."""
    for path in sorted([*data.glob("*.*"), *data.glob("*/V.*")]):
        name = path.parent.name if path.stem == "V" else path.name
        try:
            V = open_data(path)
            X = V.columns(range(V.shape[1])).T.astype(np.float64)
        except (ConeNMFError, OSError, ValueError) as error:
            print(f"{name} is left out: {error}")
            continue
        labels = path.with_name("labels.npy")
        classes = np.unique(np.load(labels)).size if path.stem == "V" and labels.exists() else K
        yield name, sp.csr_array(X) if sp.issparse(X) else X, classes


def tasks_of(X: Any) -> list[str]:
    """What is measured with these samples; a fit of counts if they are whole numbers."""
    values = X.data if sp.issparse(X) else X
    counts = ["fit of counts"] if np.array_equal(values, np.round(values)) else []
    return ["fit", *NEAR, "transform of one row", *counts]


def compared(
    processes: dict[str, subprocess.Popen[str]],
    path: Path,
    K: int,
    task: str,
    rounds: int,
    best: float,
) -> tuple[dict[str, float], float]:
    """Print a line of the table; return the ratios, medians of rounds, and the best error of ours.

    Tasks that end near an error take `best` for it.
    """
    found: dict[str, list[tuple[float, float]]] = {one: [] for one in processes}
    for number in range(1 + rounds):  # the first one compiles
        order = list(processes) if number % 2 else list(processes)[::-1]
        for one in order:
            found[one].append(ask(processes[one], path, K, task, best))
    seconds = {one: np.array([spent for spent, _ in found[one][1:]]) for one in found}
    errors = {one: found[one][-1][1] for one in found}
    pairs = [("itself", "other"), ("this", "other"), ("scikit-learn", "this")]
    ratios = {
        f"{a} / {b}": float(np.median(seconds[a] / seconds[b])) for a, b in pairs if a in seconds
    }
    cells: list[object] = []
    for one in ("scikit-learn", "other", "this"):
        spent = float(np.median(seconds[one])) if one in seconds else ""
        cells += [spent, f"{errors[one]:.6f}" if one in errors else ""]
    change = f"{errors['this'] / errors['other'] - 1:+.3%}"
    row(path.stem, K, task, *cells, change, *ratios.values())
    return ratios, min(errors["this"], errors["other"])


def checkouts(
    other: Path = Path(),
    data: Path = Path(),
    components: int = 10,
    rounds: int = 3,
    files: bool = False,
) -> None:
    """Both and scikit-learn on small matrices and every file; medians of the ratios in rounds."""
    members = matrices_of(data, components)
    if not files:
        members = chain(small_matrices(), members)
    here = Path(__file__).parents[1]
    places = {"scikit-learn": here, "other": other.resolve(), "itself": other.resolve()}
    places["this"] = here
    heading("set", "K", "task", "scikit-learn, s", "error", "other, s", "error", "this, s", "error",
            "error", "itself / other", "this / other", "scikit-learn / this")  # fmt: skip
    ratios: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        processes = {name: begin(place, name, folder / name) for name, place in places.items()}
        for name, X, K in members:
            path = folder / f"{name}.joblib"
            joblib.dump(X, path)
            best = 0.0
            for task in tasks_of(X):
                asked = dict(processes)
                if task == "fit of counts" or task in NEAR:
                    del asked["scikit-learn"]  # NMF(K) minimises squares, and has no callback
                kind = "sparse" if sp.issparse(X) else "dense"
                found, error = compared(asked, path, K, task, rounds, best)
                best = error if task == "fit" else best
                for ratio, value in found.items():
                    ratios[f"{kind} sets, {task}, {ratio}"].append(value)
            path.unlink()
        for process in processes.values():
            process.communicate()  # ends it
    for title, each in sorted(ratios.items()):
        mean, middle = statistics.geometric_mean(each), statistics.median(each)
        print(
            f"{len(each)} {title}: geometric mean {mean:.3f}, "
            f"median {middle:.3f}, from {min(each):.3f} to {max(each):.3f}"
        )


if __name__ == "__main__":
    command(__doc__, sets, small, iteration, first, gpu, checkouts)

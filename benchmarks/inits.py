"""Which init wins where: error at equal time, and what ``init="auto"`` chooses.

For every dataset the time is set by the slower of cr1 and nndsvd, init included, when it
converges by the default tol; every init then gets exactly that time with hals. Printed is the
relative error of each, and how far "auto" is from the better of cr1 and nndsvd.

Real datasets are read from the folder named by CONENMF_DATA (a folder for each, with V.npz, rows
are samples); without it only data that are generated or ship with scikit-learn are used.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from datasets import stored
from sklearn.datasets import load_digits

from conenmf import from_rows, make_cones
from conenmf.cones.certificate import lower_bound
from conenmf.data.matrix import DataMatrix
from conenmf.solve.inits import initialize, mixing
from conenmf.solve.run import Stopping, alternate
from conenmf.solve.solvers import SOLVERS

STARTS = ("cr1", "nndsvd", "auto", "nnsvdlrc", "spa", "snpa", "random")
REAL = {  # components
    "orl_32x32": 40,
    "yale_32x32": 15,
    "coil20_32x32": 20,
    "georgia_tech_crop": 50,
    "faces94": 40,
    "paviau_subset": 8,
    "indian_pines": 16,
    "tr11": 9,
    "tr23": 6,
    "re0": 13,
    "wap": 20,
    "k1b": 6,
}


def datasets(names: list[str]) -> dict[str, tuple[DataMatrix, int]]:
    found = {
        "cones": (
            from_rows(make_cones(400, 12, 0.2, n_samples=3000, rng=np.random.default_rng(0)).V.T),
            12,
        ),
        "digits": (from_rows(load_digits().data), 10),
    }
    for name, K in REAL.items():
        X = stored(name) if not names or name in names else None
        if X is None:
            continue
        if name == "faces94":  # at half size
            X = X.reshape(-1, 100, 2, 90, 2).mean((2, 4)).reshape(len(X), -1)
        found[name] = (from_rows(X.astype(np.float32 if name == "faces94" else np.float64)), K)
    return {name: found[name] for name in found if not names or name in names}


def run(V: DataMatrix, K: int, init: str, stopping: Stopping, limit: float | None) -> tuple:
    """Errors and times, start included; stops after `limit` seconds in all."""
    began = time.perf_counter()
    W, H, used, *_ = initialize(V, K, init, SOLVERS["hals"], np.random.default_rng(0))
    spent = time.perf_counter() - began
    if limit is not None:
        stopping = Stopping(tol=0, max_iter=10**6, max_time=max(limit - spent, 0), exact=0)
    solution = alternate(V, W, H, SOLVERS["hals"], stopping=stopping)
    times = solution.history.elapsed + spent
    errors = solution.history.relative_error
    inside = np.flatnonzero(times <= limit) if limit is not None else np.arange(times.size)
    total = times[-1] if times.size else spent
    return (errors[inside[-1]] if inside.size else np.nan), total, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these datasets")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'':18}{'K':>3}{'seconds':>8}{'mixing':>8}{'bound':>8}", end="")
    print("".join(f"{name:>10}" for name in STARTS), " auto is", " auto / better")
    worst = 0.0
    for name, (V, K) in datasets(options.names).items():
        limit = max(run(V, K, init, Stopping(), None)[1] for init in ("cr1", "nndsvd"))
        errors: dict[str, list[float]] = {init: [] for init in STARTS}
        chosen = ""
        for _ in range(options.rounds):
            for init in STARTS:
                error, _, used = run(V, K, init, Stopping(), limit)
                errors[init].append(error)
                chosen = used if init == "auto" else chosen
        median = {init: float(np.median(values)) for init, values in errors.items()}
        ratio = median["auto"] / np.nanmin([median["cr1"], median["nndsvd"]])
        worst = max(worst, ratio)
        print(f"{name:18}{K:>3}{limit:8.2f}{mixing(V, K):8.3f}{lower_bound(V, K):8.4f}", end="")
        print(
            "".join(f"{median[init]:10.4f}" for init in STARTS),
            f"{chosen:>8}{ratio:14.3f}",
            flush=True,
        )
    print(f"\nauto is at worst {worst:.3f} times the better of cr1 and nndsvd")


if __name__ == "__main__":
    main()

"""Two checkouts side by side: CPU seconds and peak memory of the parts of a fit, as ratios.

    python benchmarks/side_by_side.py ../other-checkout

Both run in processes of their own, in turn, round after round. The table has the medians, and the
median ratio of the pairs. Only names that both have are used, so that a change of names does not
matter. Ratios above 1 are slower, or larger, in this checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).parents[1]
PLAIN = {"tol": 0.0}


def measure() -> dict[str, float]:
    """The best of three CPU seconds of each part, and the peak memory of the process in MB."""
    from sklearn.decomposition import NMF

    import conenmf
    from conenmf import certify, cr1_nmf, factorize, from_rows, open_data

    rng = np.random.default_rng(0)
    X = rng.gamma(0.4, size=(6000, 20)) @ rng.gamma(0.5, size=(20, 800))
    X += 0.05 * rng.random(X.shape)
    sparse = sp.random_array((4000, 12000), density=0.008, rng=rng, format="csr")
    cones = conenmf.make_cones(400, 20, 0.2, n_samples=10_000, rng=rng).V.T.copy()
    small, tiny = rng.random((300, 40)), from_rows(rng.random((2000, 50)))
    V, VS, VC = from_rows(X), from_rows(sparse), from_rows(cones)
    W, H, _ = cr1_nmf(V, 20)
    seconds: dict[str, float] = {}

    def best(name: str, run: Callable[[], object]) -> None:
        run()  # compiled and warm
        times = []
        for _ in range(3):
            began = time.process_time()
            run()
            times.append(time.process_time() - began)
        seconds[name] = min(times)

    best("from_rows, dense", lambda: from_rows(X))
    best("from_rows, sparse", lambda: from_rows(sparse))
    for solver in ("hals", "mult", "nnlsb", "plain-hals"):
        run = partial(factorize, V, 20, init=W, solver=solver, max_iter=15, **PLAIN)
        best(f"15 iterations of {solver}, dense", run)
    options = {"init": "cr1", "solver": "hals", "max_iter": 15}
    best("15 iterations of hals, sparse", lambda: factorize(VS, 20, **options, **PLAIN))
    best("300 iterations, tiny", lambda: factorize(tiny, 5, **options | PLAIN | {"max_iter": 300}))
    best("cr1_nmf, cones", lambda: cr1_nmf(VC, 20))
    best("cr1_nmf, sparse", lambda: cr1_nmf(VS, 20))
    best("init auto, dense", lambda: factorize(V, 20, init="auto", solver=None))
    best("default fit, 300 x 40", lambda: conenmf.ConeNMF(5).fit(small))
    for name, model in (
        ("ConeNMF", conenmf.ConeNMF(5)),
        ("scikit-learn", NMF(5, tol=1e-3, max_iter=500)),
    ):
        one = partial(model.fit(small).transform, small[:1])
        best(f"500 x transform of a row, {name}", lambda one=one: [one() for _ in range(500)])
    best("certify", lambda: certify(V, W, H))
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        stored = open_data(Path(folder) / "X.npy", max_memory="200MB")
        best("15 iterations of hals, file", lambda: factorize(stored, 20, **options, **PLAIN))
    seconds["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds


def run_in(checkout: Path) -> dict[str, float]:
    """What `measure` says of a checkout."""
    done = subprocess.run(
        [sys.executable, __file__, "--child"],
        env=os.environ | {"PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure()))
        return
    if options.other is None or not (options.other / "src" / "conenmf").is_dir():
        parser.error("name a folder that holds another checkout, with src/conenmf in it")
    checkouts = {"other": options.other.resolve(), "this": HERE}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for number in range(options.rounds):
        order = list(checkouts) if number % 2 == 0 else list(checkouts)[::-1]
        for name in order:
            results[name].append(run_in(checkouts[name]))
    print(f"{f'median of {options.rounds} pairs':36}{'other':>10}{'this':>10}{'ratio':>8}")
    for part in results["this"][0]:
        others, these = ([run[part] for run in results[name]] for name in ("other", "this"))
        ratio = median(this / other for this, other in zip(these, others, strict=True))
        print(f"{part:36}{median(others):10.4f}{median(these):10.4f}{ratio:8.2f}")


if __name__ == "__main__":
    main()

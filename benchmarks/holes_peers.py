"""PyPI's `esat` and `nmf-rs` on data with uncertainties, in an environment that has them.

    python benchmarks/holes_peers.py FILE

FILE is an .npz with X and sigma (N, F) and K. Prints a line of JSON for each: its name, the sum of
((X - WH) / sigma)^2, and seconds. `benchmarks/holes.py` calls it. Both packages have multiplicative
updates of weighted least squares (ls-nmf); esat stops by its own rule, at its defaults, and nmf-rs
after 2000 iterations, which is its default. The compiled updates of esat 2025.0.1 minimise another
objective, in which large residuals count less: its updates in NumPy are used.
"""

import json
import sys
import time

import numpy as np


def with_esat(X, sigma, K, seed):
    from esat.model.sa import SA

    model = SA(V=X, U=sigma, factors=K, method="ls-nmf", seed=seed, verbose=False)
    model.optimized = False
    model.initialize()
    model.train()
    return model.W, model.H


def with_nmf_rs(X, sigma, K, seed):
    import nmf_rs

    result = nmf_rs.nmf(X, K, "ls-nmf", seed=seed, weight=1 / sigma**2)
    return result.W, result.H


if __name__ == "__main__":
    given = np.load(sys.argv[1])
    X, sigma, K = given["X"], given["sigma"], int(given["K"])
    for name, run in {"esat": with_esat, "nmf-rs": with_nmf_rs}.items():
        try:
            run(X[:30], sigma[:30], 2, 0)  # imported, compiled
        except ImportError:
            print(json.dumps({"name": name, "problem": "is not installed"}))
            continue
        for seed in range(3):
            began = time.perf_counter()
            W, H = run(X, sigma, K, seed)
            seconds = time.perf_counter() - began
            value = float((((X - W @ H) / sigma) ** 2).sum())
            print(json.dumps({"name": name, "value": value, "seconds": seconds}), flush=True)

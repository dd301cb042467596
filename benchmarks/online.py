"""How close a stream comes to a fit of all samples at once, after one epoch.

Printed is the relative error of all samples (exact nonnegative least squares on the final
components) as a multiple of that of ``factorize`` with its defaults on everything: for
`ConeNMF.partial_fit` and for ``partial_fit`` of scikit-learn's MiniBatchNMF. Samples come shuffled
or as stored; stored cones come one after the other.

Real datasets are read from the folder named by CONENMF_DATA (a folder for each, with V.npz, rows
are samples); without it only cones are used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from datasets import stored
from sklearn.decomposition import MiniBatchNMF

from conenmf import ConeNMF, factorize, from_rows, make_cones
from conenmf.solve.coefficients import coefficients

REAL = {"indian_pines": 500, "wap": 100, "georgia_tech_crop": 100}  # samples in a batch


def datasets(names: list[str]) -> Iterator[tuple[str, Any, list[int], list[int]]]:
    """Name, samples in rows, numbers of components, sizes of batches."""
    for F, K, N in ((60, 4, 200), (200, 8, 3000), (400, 12, 3000)):
        model = make_cones(F, K, 0.2, n_samples=N, rng=np.random.default_rng(0))
        name = f"cones {F} x {N}"
        if not names or "cones" in names:
            yield name, model.V.T[np.argsort(model.labels, kind="stable")], [K], [1, 20, 100]
    for name, size in REAL.items():
        X = stored(name) if not names or name in names else None
        if X is not None:
            yield name, X.astype(np.float64), [10, 20], [size]


def stream(model: Any, X: Any, size: int) -> tuple[np.ndarray, float]:
    began = time.perf_counter()
    for start in range(0, X.shape[0], size):
        model.partial_fit(X[start : start + size])
    return model.components_.T, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help='only these datasets; "cones" for the cones')
    names = parser.parse_args().names
    print("| data | K | batch | order | all at once | stream | scikit-learn | seconds of each |")
    print("|---|---|---|---|---|---|---|---|")
    for name, X, numbers, sizes in datasets(names):
        V = from_rows(X)
        shuffled = X[np.random.default_rng(0).permutation(X.shape[0])]
        for K in numbers:
            began = time.perf_counter()
            error = factorize(V, K, init="cr1").relative_error
            seconds = time.perf_counter() - began
            for size in sizes:
                for order, Y in (("shuffled", shuffled), ("as stored", X)):
                    print(f"| {name} | {K} | {size} | {order} | {error:.4f}", end="")
                    times = [seconds]
                    for model in (ConeNMF(K), MiniBatchNMF(K, random_state=0)):
                        W, spent = stream(model, Y, size)
                        ratio = np.sqrt(coefficients(V, W)[2] / V.total) / error
                        print(f" | {ratio:.4f}", end="")
                        times.append(spent)
                    print(f" | {', '.join(f'{t:.1f}' for t in times)} |", flush=True)


if __name__ == "__main__":
    main()

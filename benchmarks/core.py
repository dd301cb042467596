"""Speed and memory of Algorithm 2 and of the nnlsb solver at the paper's size, as ratios.

Every contender is timed in turn, round after round, in one process; medians are printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile

import numpy as np
from measure import can_measure_memory, interleaved, peak_memory, save_matrix

from conenmf import cr1_nmf, factorize, from_columns, from_rows, kernels, make_cones

K = 40


def plain_cr1(V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 2 as written: K products V'z, then one SVD per cluster."""
    norms = np.linalg.norm(V, axis=0)
    z = V[:, np.argmax(norms)]
    cosines = np.empty((K, V.shape[1]))
    for k in range(K):
        cosines[k] = (V.T @ (z / np.linalg.norm(z))) / norms
        z = V[:, np.argmin(cosines[: k + 1].max(axis=0))]
    labels = cosines.argmax(axis=0)
    W, H = np.zeros((V.shape[0], K)), np.zeros((K, V.shape[1]))
    for k in range(K):
        U, s, R = np.linalg.svd(V[:, labels == k], full_matrices=False)
        W[:, k], H[k, labels == k] = np.abs(U[:, 0]), s[0] * np.abs(R[0])
    return W, H


def speed_of_cr1(V: np.ndarray, rounds: int) -> None:
    rows, columns = np.ascontiguousarray(V.T), np.ascontiguousarray(V)
    w = np.random.default_rng(0).random(V.shape[0])
    opened, turned = from_rows(rows), from_columns(columns)
    cr1_nmf(opened, K), cr1_nmf(turned, K)  # compile, or load what was compiled
    median = interleaved(
        {
            "product V.T @ w": lambda: rows @ w,
            "cr1_nmf": lambda: cr1_nmf(opened, K),
            "opening and cr1_nmf": lambda: cr1_nmf(from_rows(rows), K),
            "cr1_nmf, features contiguous": lambda: cr1_nmf(turned, K),
            "plain: K products, K SVDs": lambda: plain_cr1(rows.T),
        },
        rounds,
    )
    product, plain = median["product V.T @ w"], median["plain: K products, K SVDs"]
    print(f"{'':32}{'seconds':>9}{'/ product':>11}{'/ plain':>9}")
    for name, seconds in median.items():
        print(f"{name:32}{seconds:9.4f}{seconds / product:11.1f}{seconds / plain:9.3f}")
    before = opened.passes
    cr1_nmf(opened, K)
    print(f"passes over V in cr1_nmf: {opened.passes - before:.2f}\n")


def speed_of_nnlsb(V: np.ndarray, rounds: int) -> None:
    data = from_rows(np.ascontiguousarray(V.T))
    W, _, _ = cr1_nmf(data, K, tol=1e-4)

    def iterate(compiled: bool) -> float:
        kernels.AVAILABLE = compiled
        run = factorize(data, K, init=W, solver="nnlsb", max_iter=4, tol=0)
        kernels.AVAILABLE = True
        return float(np.median(np.diff(run.history.elapsed)))

    iterate(True)
    per_iteration: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for compiled, seconds in per_iteration.items():
            seconds.append(iterate(compiled))
    compiled, plain = (statistics.median(per_iteration[c]) for c in (True, False))
    print(f"nnlsb, seconds an iteration: numba {compiled:.4f}, numpy {plain:.4f}")
    print(f"nnlsb, numba / numpy: {compiled / plain:.3f}\n")


def memory_of_cr1(V: np.ndarray) -> None:
    """Peak memory of a process that opens and factors V, beyond what it had before V."""
    if not can_measure_memory():
        print("peak memory: needs /proc, skipped")
        return
    setup = f"""
import numpy
from conenmf import cr1_nmf, from_rows
cr1_nmf(from_rows(numpy.random.default_rng(0).random((2000, 1600))), {K})
"""
    with tempfile.TemporaryDirectory() as folder:
        load = save_matrix(np.ascontiguousarray(V.T), folder)
        peak = peak_memory(setup, load, f"cr1_nmf(from_rows(X), {K})")
    print(f"peak memory of cr1_nmf / size of V: {peak / V.nbytes:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    model = make_cones(1600, K, 0.2, n_samples=options.samples, rng=np.random.default_rng(0))
    print(
        f"cones: F=1600, N={options.samples}, K={K}, alpha=0.2, float64; "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}\n"
    )
    speed_of_cr1(model.V, options.rounds)
    speed_of_nnlsb(model.V, 3)
    memory_of_cr1(model.V)


if __name__ == "__main__":
    main()

"""What the lower bound that uses nonnegativity closes of the gap that Eckart and Young's leaves.

``lower_bounds.py`` prints, for every real dataset (text as counts and weighted by tf-idf), the
bound of singular values alone, the bounds of the default and of a large effort, and which share of
the gap each closes: (bound - singular values) / (error - singular values), where the error is the
smallest that any of a few fits reached. "entries" are those of P, which the bound adds to the data,
relative to the nonzero entries of the data; "held out" marks matrices on which no constant was
chosen. ``lower_bounds.py tiny`` looks for a factorisation that beats a bound: ten random inits on
each of 1000 tiny matrices. Real datasets are read from the folder named by CONENMF_DATA.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from zoo_matrices import SPARSE, Member, zoo

from conenmf import factorize, from_columns, from_rows
from conenmf.cones.dual_bound import DEFAULT_EFFORT, best_lower_bound, support_width
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import tf_idf
from conenmf.linalg.svd import Spectrum

LARGE_EFFORT = 40
RANDOM_INITS = 3
MAX_ENTRIES = 2e6  # of data on which other inits are tried too
GOALS = {"digits": 25, "coil20_32x32": 25, "tr23": 25, "wap": 25, "re0": 15, "tr11": 15}  # percent


def matrices(names: list[str]) -> Iterator[tuple[str, Member, Any, int]]:
    for member in zoo():
        if member.kind != "real" or (names and member.name not in names):
            continue
        X, K = member.load()
        yield member.name, member, X, K
        if member.name in SPARSE and member.name != "movielens":
            weighted = tf_idf(X)
            kept = np.flatnonzero(np.asarray(weighted.sum(axis=1)).ravel())
            yield f"{member.name} tf-idf", member, weighted[kept], K


def smallest_error(V: DataMatrix, K: int) -> tuple[float, float]:
    """The smallest error of a few fits, one if V is large; and the CPU seconds of the default."""
    began = time.process_time()
    errors = [factorize(V, K).relative_error]
    seconds = time.process_time() - began
    inits = [*["random"] * RANDOM_INITS, "nndsvda"] if V.n_entries <= MAX_ENTRIES else []
    for seed, init in enumerate(inits):
        rng = np.random.default_rng(seed)
        fit = factorize(V, K, init=init, tol=1e-6, max_iter=1000, rng=rng)
        errors.append(fit.relative_error)
    return min(errors), seconds


def print_table(names: list[str]) -> None:
    print(
        f"{'':45}{'K':>4}{'entries':>8}{'error':>9}{'singular':>9}"
        f"{'default':>9}{'closed':>7}{'large':>9}{'closed':>7}{'goal':>5}"
        f"{'fit':>8}{'values':>8}{'default':>8}{'large':>8} CPU s"
    )
    for name, member, X, K in matrices(names):
        V = from_rows(X)
        error, fit_seconds = smallest_error(V, K)
        began = time.process_time()
        spectrum = Spectrum(V)
        below = best_lower_bound(V, K, effort=0, spectrum=spectrum).value
        times, bounds = [time.process_time() - began], []
        for effort in (DEFAULT_EFFORT, LARGE_EFFORT):
            began = time.process_time()
            bounds.append(best_lower_bound(V, K, effort=effort, spectrum=spectrum).value)
            times.append(time.process_time() - began)
        entries = support_width(V) * V.shape[1] / V.n_entries
        closed = [100 * (bound - below) / max(error - below, 1e-12) for bound in bounds]
        print(
            f"{name:45}{K:>4}{entries:>8.2f}{error:>9.5f}{below:>9.5f}"
            f"{bounds[0]:>9.5f}{closed[0]:>6.1f}%{bounds[1]:>9.5f}{closed[1]:>6.1f}%"
            f"{GOALS.get(member.name, ''):>5}{fit_seconds:>8.2f}"
            + "".join(f"{seconds:>8.2f}" for seconds in times)
            + ("" if member.is_chosen_on else "  held out"),
            flush=True,
        )


def random_fits(V: np.ndarray, K: int, rng: np.random.Generator, count: int) -> np.ndarray:
    """Relative errors of plain alternating coordinate descent, independent of the library."""
    W, H = rng.random((count, V.shape[0], K)), rng.random((count, K, V.shape[1]))
    for _ in range(300):
        for A, B, X in ((W, H, V), (H.swapaxes(1, 2), W.swapaxes(1, 2), V.T)):
            gram, products = B @ B.swapaxes(1, 2), X @ B.swapaxes(1, 2)
            for k in range(K):
                slope = products[..., k] - np.einsum("rik,rk->ri", A, gram[:, k])
                step = slope / np.maximum(gram[:, k, k], 1e-300)[:, None]
                A[..., k] = np.maximum(A[..., k] + step, 0.0)
    return np.linalg.norm(V - W @ H, axis=(1, 2)) / np.linalg.norm(V)


def check_tiny(count: int) -> None:
    beaten, attained, closed = 0, 0, []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        F, N = rng.integers(3, 9, 2)
        V = rng.random((F, N)) ** rng.integers(1, 5) * (rng.random((F, N)) < rng.uniform(0.4, 1))
        V += 1e-3 * rng.random((F, N))
        K = int(rng.integers(1, min(F, N)))
        bound = best_lower_bound(from_columns(V), K, effort=LARGE_EFFORT)
        error = random_fits(V, K, rng, 10).min()
        beaten += error < bound.value - 1e-12
        attained += error < bound.value * (1 + 1e-3)
        if error - bound.eckart_young > 1e-4:
            closed.append((bound.value - bound.eckart_young) / (error - bound.eckart_young))
    print(
        f"{count} tiny matrices, ten random inits each: {beaten} beat a bound; {attained} bounds "
        f"are attained to 0.1%; median share closed {100 * np.median(closed):.0f}%"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help='datasets, or "tiny"; by default all')
    arguments = parser.parse_args()
    if "tiny" in arguments.names or not arguments.names:
        check_tiny(1000)
    if arguments.names != ["tiny"]:
        print_table(arguments.names)

"""Exact nonnegative least squares against SciPy's, on as many problems as asked for, of all kinds.

    python benchmarks/nnls.py --problems 1000000

A problem is a W (F, K) with one right-hand side v; every W is given to `nnls` and to the exact
finish, which `transform` uses too, with 40 right-hand sides, each of which counts as a problem.
`scipy.optimize.nnls` solves them one by one. Printed, for every kind of W, are the condition number
of W with columns of unit norm (infinite if it is rank deficient to rounding, as it is for K > F),
and the worst of

    excess   (||v - W h||^2 - that of SciPy) / ||v||^2
    KKT      max_k r_k / max_k |<w_k, v>|, for columns of unit norm, where r_k is |<w_k, W h - v>|
             if h_k > 0, and how far below zero <w_k, W h - v> is otherwise
    finish   the larger of the two for the exact finish

Problems beyond the limits, 1e-10 and 1e-8, are counted and named by their seed: `--first SEED
--problems 40` repeats them. CONENMF_NUMBA=0 tests the NumPy twin.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.optimize

from conenmf import from_columns
from conenmf.linalg.nnls import nnls
from conenmf.solve.coefficients import coefficients

SIDES = 40
MAX_EXCESS, MAX_KKT = 1e-10, 1e-8
ILL_CONDITIONED = 1e6

Make = Callable[[np.random.Generator, int, int], np.ndarray]


def _sparse(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    return rng.random((F, K)) * (rng.random((F, K)) < 0.3)


def _with_copies(rng: np.random.Generator, F: int, K: int, noise: float = 0.0) -> np.ndarray:
    W = rng.random((F, K))
    for k in rng.choice(K, size=rng.integers(1, K + 1), replace=False):
        W[:, k] = W[:, rng.integers(K)] * 10.0 ** rng.integers(-3, 4) + noise * rng.random(F)
    return W


def _nearly_equal(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    return _with_copies(rng, F, K, 10.0 ** rng.uniform(-16, -2))


def _low_rank(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    rank = int(rng.integers(1, min(F, K) + 1))
    return _sparse(rng, F, rank) @ _sparse(rng, rank, K)


def _nearly_low_rank(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    W = _low_rank(rng, F, K)
    return W + 10.0 ** rng.uniform(-15, -3) * W.max() * rng.random((F, K))


def _with_zeros(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    return rng.random((F, K)) * (rng.random(K) < 0.6) * (rng.random((F, 1)) < 0.8)


def _scaled(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    columns = _nearly_equal(rng, F, K) if rng.random() < 0.5 else _sparse(rng, F, K)
    return columns * 10.0 ** rng.uniform(-60, 60, K)


def _bumps(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    width = 10.0 ** rng.uniform(-2, 0)
    bumps = np.exp(-(((np.linspace(0, 1, F)[:, None] - rng.random(K)) / width) ** 2))
    return np.where(bumps > 1e-140, bumps, 0.0)  # a smaller W'W leaves the range of float64


def _powers(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    return np.linspace(0, 1, F)[:, None] ** np.arange(K)


def _hilbert(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    return 1.0 / (1.0 + np.arange(F)[:, None] + np.arange(K))


def _graded(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    """Entries of very different sizes, in no order."""
    return 10.0 ** rng.uniform(-12, 0, (F, K))


KINDS: dict[str, Make] = {
    "uniform": lambda rng, F, K: rng.random((F, K)),
    "sparse": _sparse,
    "whole numbers": lambda rng, F, K: rng.integers(0, 3, (F, K)).astype(float),
    "zero columns and rows": _with_zeros,
    "equal columns": _with_copies,
    "nearly equal columns": _nearly_equal,
    "low rank": _low_rank,
    "nearly low rank": _nearly_low_rank,
    "columns of all scales": _scaled,
    "smooth bumps": _bumps,
    "powers": _powers,
    "Hilbert's": _hilbert,
    "entries of all sizes": _graded,
}


def problem(seed: int) -> tuple[str, np.ndarray, np.ndarray]:
    """The kind of a seed, W (F, K) and the right-hand sides V (F, n)."""
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    F = int(rng.integers(1, 31)) if rng.random() < 0.9 else int(rng.integers(31, 200))
    K = int(rng.integers(1, 16)) if rng.random() < 0.9 else int(rng.integers(16, 60))
    if rng.random() < 0.3:  # more columns than rows, by a few
        K = F + int(rng.integers(1, 4))
    W = KINDS[kind](rng, F, K)
    V = rng.random((F, SIDES)) * (rng.random((F, SIDES)) < rng.choice([0.2, 0.6, 1.0]))
    mixed = np.flatnonzero(rng.random(SIDES) < 0.3)  # some are reached exactly
    size = W.max(axis=0, initial=0.0)
    shares = rng.random((K, mixed.size)) * (rng.random((K, mixed.size)) < 0.4)
    V[:, mixed] = (W / np.where(size > 0, size, 1.0)) @ shares
    return kind, W, V * 10.0 ** rng.integers(-20, 20, SIDES)


@dataclass
class Row:
    """A line of the table."""

    problems: int = 0
    ill_conditioned: int = 0
    deficient: int = 0
    excess: float = -np.inf
    kkt: float = 0.0
    finish: float = 0.0
    beyond: int = 0
    seeds: set[int] = field(default_factory=set)

    def add(self, other: Row) -> None:
        """Count the problems of another line here too."""
        for name in ("problems", "ill_conditioned", "deficient", "beyond"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("excess", "kkt", "finish"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.seeds |= other.seeds


def condition(unit: np.ndarray) -> float:
    """The condition number, infinite if the matrix is rank deficient to rounding."""
    if unit.shape[1] > unit.shape[0]:
        return np.inf
    sigma = np.linalg.svd(unit, compute_uv=False)
    rounding = max(unit.shape) * np.finfo(float).eps
    return float(sigma[0] / sigma[-1]) if sigma[-1] > rounding * sigma[0] else np.inf


def judge(
    unit: np.ndarray, V: np.ndarray, Y: np.ndarray, best: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Excess and KKT residual of each row y of Y, for columns of unit norm and samples too."""
    residual = unit @ Y.T - V
    gradient = unit.T @ residual
    wrong = np.where(Y.T > 0, np.abs(gradient), np.maximum(-gradient, 0.0))
    size = np.abs(unit.T @ V).max(axis=0)
    size[size < 1e-250] = 0.0  # W'v itself may leave the range of float64
    kkt = np.divide(wrong.max(axis=0), size, out=np.zeros(len(Y)), where=size > 0)
    kkt[(size == 0) & (Y > 1e-250).any(axis=1)] = np.inf
    excess = (residual**2).sum(axis=0) - best
    bad = ~np.isfinite(Y).all(axis=1) | (Y < 0).any(axis=1)
    return np.where(bad, np.inf, excess), np.where(bad, np.inf, kkt)


def run(seed: int) -> tuple[str, Row]:
    """Solve the problems of a seed in every way, and compare."""
    kind, W, V = problem(seed)
    largest = W.max(axis=0)
    norms = np.where(largest > 0, largest, 1.0)
    norms = norms * np.where(largest > 0, np.linalg.norm(W / norms, axis=0), 1.0)
    sizes = np.linalg.norm(V, axis=0)
    sizes[sizes == 0] = 1.0
    unit, samples = W / norms, V / sizes
    best = np.array([_scipy_squared(unit, v) for v in samples.T])
    row = Row(problems=V.shape[1])
    alive = unit[:, largest > 0]
    if alive.shape[1]:
        number = condition(alive)
        row.ill_conditioned = row.problems * (number > ILL_CONDITIONED)
        row.deficient = row.problems * (number == np.inf)
    by_nnls = nnls(W.T @ W, V.T @ W) * norms / sizes[:, None]
    by_finish = coefficients(from_columns(V, n_threads=1), W)[0].T * norms / sizes[:, None]
    excess, kkt = judge(unit, samples, by_nnls, best)
    of_finish = judge(unit, samples, by_finish, best)
    row.excess, row.kkt = float(excess.max()), float(kkt.max())
    row.finish = float(max(of_finish[0].max(), of_finish[1].max()))
    beyond = (np.maximum(excess, of_finish[0]) > MAX_EXCESS) | (
        np.maximum(kkt, of_finish[1]) > MAX_KKT
    )
    row.beyond = int(beyond.sum())
    if row.beyond:
        row.seeds = {seed}
    return kind, row


def _scipy_squared(W: np.ndarray, v: np.ndarray) -> float:
    """The squared error of SciPy's solution; infinite if it gives up.

    It is computed from the solution: rarely the norm that SciPy returns with it is not its own.
    """
    try:
        return float(np.sum((W @ scipy.optimize.nnls(W, v)[0] - v) ** 2))
    except RuntimeError:
        return np.inf


def main() -> None:
    """Print a line for each kind, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--max-seconds", type=float, default=np.inf)
    options = parser.parse_args()
    rows = {kind: Row() for kind in KINDS}
    began = time.perf_counter()
    seed = options.first
    last = options.first + -(-options.problems // SIDES)
    while seed < last and time.perf_counter() - began < options.max_seconds:
        kind, row = run(seed)
        rows[kind].add(row)
        seed += 1
    rows["all"] = Row()
    for row in list(rows.values())[:-1]:
        rows["all"].add(row)
    head = f"{'kind':24}{'problems':>10}{'> 1e6':>9}{'infinite':>9}"
    print(head + f"{'excess':>10}{'KKT':>10}{'finish':>10}{'beyond':>8}")
    for kind, row in rows.items():
        counts = f"{row.problems:10}{row.ill_conditioned:9}{row.deficient:9}"
        worst = f"{row.excess:10.1e}{row.kkt:10.1e}{row.finish:10.1e}"
        print(f"{kind:24}{counts}{worst}{row.beyond:8}")
    seconds = time.perf_counter() - began
    print(f"seeds {options.first} to {seed - 1}, {seconds:.0f} s")
    if rows["all"].seeds:
        print("beyond the limits:", *sorted(rows["all"].seeds)[:20])


if __name__ == "__main__":
    main()

"""How often the number of components is found, and how long that takes.

First the paper's model where its Theorem 9 does not apply: 500 matrices whose cones have unequal
probabilities, rates and size angles; in half of them, axes are at unequal angles too. Cones satisfy
the geometric assumption. A fifth of them follow with noise, and then the kinds of the zoo that are
made of a known number of components. "auto" is compared with what it would be if cones were not
counted, with the paper's ratio, and with the number of singular values above the edge of noise.
Last, the time of the choice beside that of the fit that follows it.

The constants of `conenmf.cones.counting` and `conenmf.judge.choose_k` were chosen on matrices with
even numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import zoo_matrices

from conenmf import estimate_rank, factorize, from_columns, from_rows, make_cones, select_k
from conenmf.cones.counting import count_above_edge, default_range
from conenmf.cones.simulate import ConeModel
from conenmf.data.matrix import DataMatrix
from conenmf.judge.choose_k import choose_k

KINDS = (
    zoo_matrices.cones,
    zoo_matrices.noisy_cones,
    zoo_matrices.scenes,
    zoo_matrices.uneven_scenes,
    zoo_matrices.near_separable,
    zoo_matrices.blocks,
    zoo_matrices.low_rank_noise,
    zoo_matrices.texts,
    zoo_matrices.cells,
    zoo_matrices.images,
    zoo_matrices.heavy_tails,
)
NAMES = ("auto", "auto without counting", "ratio", "edge")
NOISE = (0.01, 0.05, 0.1)  # the paper's delta


def unequal_cones(number: int, noise: float = 0.0) -> ConeModel:
    """Cones of unequal probabilities and rates; those of an odd half number have unequal angles."""
    rng = np.random.default_rng([7, number])
    K = int(rng.integers(2, 31))
    F = int(np.exp(rng.uniform(np.log(K + 10), np.log(400))))
    N = int(np.exp(rng.uniform(np.log(10 * K), np.log(3000))))
    options = {
        "n_samples": N,
        "rates": 1 / rng.uniform(0.1, 10, K),
        "weights": rng.dirichlet(np.ones(K)),
        "noise": noise,
        "rng": rng,
    }
    if number // 2 % 2 == 0:
        return make_cones(F, K, rng.uniform(0.02, 0.2), **options)
    axes = unequal_axes(rng, F, K)
    apart = np.arccos(np.clip(axes.T @ axes, -1, 1))[~np.eye(K, dtype=bool)].min()
    sizes = rng.uniform(0.2, 1, K)
    largest, second = np.sort(sizes)[::-1][:2]
    sizes *= rng.uniform(0.3, 0.999) * apart / (3 * largest + second)  # equation (2) holds
    return make_cones(F, K, sizes, axes=axes, **options)


def unequal_axes(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    """Nonnegative unit vectors, some pairs much closer than others."""
    axes = rng.gamma(rng.uniform(0.2, 2), 1, (F, K))
    for k in range(1, K):
        if rng.random() < 0.3:  # close to an earlier one
            axes[:, k] = axes[:, int(rng.integers(k))] * (1 + rng.uniform(0.1, 1) * rng.random(F))
    return axes / np.linalg.norm(axes, axis=0)


def estimates(V: DataMatrix) -> Iterator[int]:
    yield choose_k(V).K
    yield select_k(V, methods=["ratio", "parallel"]).K
    yield estimate_rank(V).K
    yield above_edge(V)


def above_edge(V: DataMatrix) -> int:
    """The search is widened as long as the estimate is its limit."""
    k_max = default_range(V)[1]
    while (K := count_above_edge(V, k_max).K) == k_max < min(V.shape):
        k_max = min(2 * k_max, min(V.shape))
    return K


def count_right(title: str, matrices: Iterator[tuple[DataMatrix, int]]) -> None:
    right, total = np.zeros(len(NAMES), dtype=int), 0
    for V, K in matrices:
        right += [found == K for found in estimates(V)]
        total += 1
    shown = ", ".join(f"{name} {count}" for name, count in zip(NAMES, right, strict=True))
    print(f"{title}: right of {total}: {shown}", flush=True)


def drawn(count: int, noise: float = 0.0) -> Iterator[tuple[DataMatrix, int]]:
    """The matrices, and how many cones have sent a sample."""
    for number in range(count):
        model = unequal_cones(number, noise)
        yield from_columns(model.V), np.unique(model.labels).size


def of_kind(kind: zoo_matrices.Callable) -> Iterator[tuple[DataMatrix, int]]:
    for number in range(zoo_matrices.PER_KIND):
        X, K = zoo_matrices.draw(kind, number)
        yield from_rows(X), K


def compare_times() -> None:
    for n_samples in (2000, 10_000):
        rng = np.random.default_rng(0)
        V = from_columns(make_cones(1600, 40, 0.2, n_samples=n_samples, rng=rng).V)
        factorize(V, 40, max_iter=1)  # compiles
        began = time.perf_counter()
        K = choose_k(V).K
        chosen = time.perf_counter()
        factorize(V, K)
        fitted = time.perf_counter()
        print(
            f"1600 features, {n_samples} samples: K = {K} in {chosen - began:.2f} s, "
            f"the fit in {fitted - chosen:.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, default=500)
    count = parser.parse_args().matrices
    count_right("cones that are not alike", drawn(count))
    for noise in NOISE:
        count_right(f"the same, noise {noise:g}", drawn(count // 5, noise))
    for kind in KINDS:
        count_right(kind.__name__, of_kind(kind))
    compare_times()


if __name__ == "__main__":
    main()

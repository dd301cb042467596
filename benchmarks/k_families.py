"""Data drawn with a known number of components, in families that try the choice of K.

A family draws a matrix from a seed, with samples in columns, and says how many nonnegative
components it has and which loss fits it. `CHOSE` names the families on whose draws constants of
`conenmf.judge.choose_k` and `conenmf.cones.counting` were chosen; the others are for judging. The
program prints one row for each answer as it comes, and then a table::

    python benchmarks/k_families.py --rows now.jsonl
    PYTHONPATH=OTHER/src python benchmarks/k_families.py --rows before.jsonl    (another checkout)
    python benchmarks/k_families.py --compare before.jsonl now.jsonl            (tables alone)
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

from conenmf import factorize, from_columns, select_k

Array = np.ndarray
Rng = np.random.Generator


class Drawn(NamedTuple):
    """A matrix (F, N), its number of components, and the loss that fits it."""

    V: Array
    K: int
    loss: str = "frobenius"


# --- signals ----------------------------------------------------------------------------------


def sizes(rng: Rng, least: int = 3, most: int = 8) -> tuple[int, int, int]:
    """Features, samples and components."""
    F, N = np.exp(rng.uniform(np.log([40, 80]), np.log([120, 300]))).astype(int)
    return int(F), int(N), int(rng.integers(least, most + 1))


def mixtures(rng: Rng, F: int, N: int, K: int, purity: float = 0.4) -> Array:
    """Sparse profiles; samples use few of them."""
    W = rng.gamma(0.5, 1.0, (F, K))
    return W @ (rng.dirichlet(np.full(K, purity), N).T * rng.lognormal(0, 0.3, N))


def with_noise(rng: Rng, X: Array, share: float, shape: Array | float = 1.0) -> Array:
    """X plus white noise times a shape; its norm is a share of the norm of X, before clipping."""
    E = shape * rng.standard_normal(X.shape)
    return np.maximum(X + share * np.linalg.norm(X) / np.linalg.norm(E) * E, 0)


def heavy(rng: Rng, X: Array, share: float, freedom: float) -> Array:
    E = rng.standard_t(freedom, X.shape)
    return np.maximum(X + share * np.linalg.norm(X) / np.linalg.norm(E) * E, 0)


# --- the families of an earlier review, drawn anew ----------------------------------------------


def sparse_mixtures(rng: Rng) -> Drawn:
    F, N, K = sizes(rng)
    return Drawn(with_noise(rng, mixtures(rng, F, N, K), rng.uniform(0.02, 0.25)), K)


def smooth_noise(rng: Rng) -> Drawn:
    """Noise is correlated along the features."""
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K)
    E = lfilter([1.0], [1.0, -rng.uniform(0.5, 0.95)], rng.standard_normal(X.shape), axis=0)
    return Drawn(np.maximum(X + 0.08 * np.linalg.norm(X) / np.linalg.norm(E) * E, 0), K)


def shared_factor(rng: Rng) -> Drawn:
    """One signed factor is added to all samples."""
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K)
    E = np.outer(rng.standard_normal(F), rng.standard_normal(N))
    X = np.maximum(X + 0.05 * np.linalg.norm(X) / np.linalg.norm(E) * E, 0)
    return Drawn(with_noise(rng, X, 0.05), K)


def heavy_tails(rng: Rng) -> Drawn:
    F, N, K = sizes(rng)
    return Drawn(heavy(rng, mixtures(rng, F, N, K), rng.uniform(0.05, 0.2), 2.2), K)


def uneven_features(rng: Rng) -> Drawn:
    """The noise of a feature has a size of its own."""
    F, N, K = sizes(rng)
    shape = rng.lognormal(0, 1, (F, 1))
    return Drawn(with_noise(rng, mixtures(rng, F, N, K), 0.1, shape), K)


def proportional(rng: Rng) -> Drawn:
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K)
    return Drawn(np.maximum(X * (1 + rng.choice([0.05, 0.2]) * rng.standard_normal(X.shape)), 0), K)


def outlier_samples(rng: Rng) -> Drawn:
    """Two samples in a hundred have nothing to do with the others."""
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K)
    X = X + 0.02 * X.mean() * rng.random(X.shape)
    odd = rng.choice(N, max(2, round(0.02 * N)), replace=False)
    X[:, odd] = 3 * rng.gamma(0.3, 1.0, (F, odd.size))
    return Drawn(X, K)


def few_samples(rng: Rng) -> Drawn:
    F, _, _ = sizes(rng)
    N = int(rng.integers(6, 16))
    K = int(rng.integers(2, max(3, N // 3) + 1))
    return Drawn(with_noise(rng, mixtures(rng, F, N, K, 0.2), rng.uniform(0.01, 0.1)), K)


def blocks(rng: Rng) -> Drawn:
    """Components share no features; samples have one component each."""
    F, N, K = sizes(rng)
    W = np.zeros((F, K))
    W[np.arange(F), np.sort(rng.integers(K, size=F))] = rng.uniform(0.5, 1.5, F)
    labels = rng.integers(K, size=N)
    H = np.eye(K)[:, labels] * rng.uniform(0.5, 2, N)
    share = rng.choice([0.0, 0.03, 0.1])
    return Drawn(with_noise(rng, W[:, np.unique(labels)] @ H[np.unique(labels)], share),
                 np.unique(labels).size)  # fmt: skip


def tight_groups(rng: Rng, share: float = 0.0) -> Drawn:
    """K components in K - 1 tight groups of samples, exact or nearly so."""
    K = int(rng.integers(3, 8))
    W = rng.random((int(rng.integers(30, 80)), K)) ** 3
    pure = np.vstack([np.eye(K - 1) * 0.9 + 0.02, 0.3 * rng.random((1, K - 1))])
    H = np.repeat(pure, 20, axis=1) * (1 + 0.15 * rng.random((K, 20 * (K - 1))))
    return Drawn(with_noise(rng, W @ H, share) if share else W @ H, K)


def nearly_tight_groups(rng: Rng) -> Drawn:
    return tight_groups(rng, 0.002)


def unequal_units(rng: Rng) -> Drawn:
    F, N, K = sizes(rng)
    V = with_noise(rng, mixtures(rng, F, N, K), 0.05)
    return Drawn(V * 10 ** rng.uniform(0, 9, (F, 1)), K)


def one_component(rng: Rng, kind: str) -> Drawn:
    F, N, _ = sizes(rng)
    X = np.outer(0.2 + rng.random(F), 1 + rng.random(N))
    if kind == "white":
        V = np.maximum(X + 0.1 * rng.standard_normal(X.shape), 0)
    elif kind == "heavy":
        V = heavy(rng, X, 0.15, 2.5)
    else:
        V = np.maximum(X * (1 + 0.2 * rng.standard_normal(X.shape)), 0)
    return Drawn(V, 1)


def topics(rng: Rng) -> Drawn:
    F, N, K = 300, 200, int(rng.integers(4, 9))
    law = 1 / (np.arange(F) + 2.7)
    W = rng.gamma(0.02 * F * law / law.sum(), size=(K, F)).T
    W = 0.8 * W / W.sum(axis=0) + 0.2 * (law / law.sum())[:, None]
    rates = W @ rng.dirichlet(np.full(K, 0.1), N).T * rng.lognormal(np.log(80), 0.4, N)
    V = rng.poisson(rates).astype(float)
    return Drawn(V[V.any(axis=1)], K, str(rng.choice(["frobenius", "poisson"])))


def overdispersed(rng: Rng, by_feature: bool) -> Drawn:
    """Negative binomial counts, of one size or of a size for each feature."""
    F, N, K = int(rng.integers(40, 97)), int(rng.integers(80, 200)), int(rng.integers(2, 7))
    rates = rng.dirichlet(np.full(F, 0.3), K).T @ rng.gamma(0.8, 1500, (K, N))
    size = np.exp(rng.uniform(np.log(3), np.log(50)))
    if by_feature:
        size = np.exp(rng.uniform(np.log(2), np.log(100), (F, 1)))
    V = rng.poisson(rates * rng.gamma(size, 1 / size, rates.shape)).astype(float)
    return Drawn(V[V.any(axis=1)][:, V.any(axis=0)], K, "poisson")


def time_stamp(rng: Rng) -> Drawn:
    """One feature is a time stamp, beside features of size one."""
    F, N, K = int(rng.integers(6, 30)), int(rng.integers(60, 200)), int(rng.integers(2, 6))
    V = rng.random((F, K)) @ rng.random((K, N))
    V[0] = 1.7e9 + 1e6 * rng.random(N)
    return Drawn(V, int(np.linalg.matrix_rank(V / V.max(axis=1, keepdims=True))))


def beyond_the_rank(rng: Rng) -> Drawn:
    """Samples on the rays of a cone over a square: rank 3, but four components are needed."""
    square = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]], float)
    more, N = int(rng.integers(0, 3)), int(rng.integers(60, 120))
    W = np.zeros((int(rng.integers(20, 40)) + 4, 4 + more))
    W[:4, :4] = square
    W[4:, :4] = rng.random((len(W) - 4, 4)) @ square
    W[4:, 4:] = rng.gamma(0.5, 1, (len(W) - 4, more))
    labels = np.resize(np.arange(4 + more), N)
    H = np.eye(4 + more)[:, labels] * rng.uniform(0.5, 2, N)
    return Drawn(W @ H, 4 + more)


def planted_blocks(rng: Rng) -> Drawn:
    """Six components, two in each of three blocks of features and samples, with little noise."""
    W, H = np.zeros((60, 6)), np.zeros((6, 150))
    for block in range(3):
        W[20 * block : 20 * block + 20, 2 * block : 2 * block + 2] = rng.random((20, 2))
        H[2 * block : 2 * block + 2, 50 * block : 50 * block + 50] = rng.random((2, 50))
    return Drawn(with_noise(rng, W @ H, 0.005), 6)


# --- further families ---------------------------------------------------------------------------


def uneven_samples(rng: Rng) -> Drawn:
    """The noise of a sample has a size of its own."""
    F, N, K = sizes(rng)
    return Drawn(with_noise(rng, mixtures(rng, F, N, K), 0.1, rng.lognormal(0, 1, N)), K)


def spikes(rng: Rng) -> Drawn:
    """A few entries are far too large."""
    F, N, K = sizes(rng)
    V = with_noise(rng, mixtures(rng, F, N, K), 0.05)
    V[rng.integers(F, size=5), rng.integers(N, size=5)] = 5 * V.max()
    return Drawn(V, K)


def copied_samples(rng: Rng) -> Drawn:
    """A third of the samples are there twice, with their noise."""
    F, N, K = sizes(rng)
    V = with_noise(rng, mixtures(rng, F, N, K), 0.1)
    return Drawn(np.hstack([V, V[:, : N // 3]]), K)


def drifting_noise(rng: Rng) -> Drawn:
    """Noise is correlated from sample to sample."""
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K)
    E = lfilter([1.0], [1.0, -rng.uniform(0.5, 0.9)], rng.standard_normal(X.shape), axis=1)
    return Drawn(np.maximum(X + 0.08 * np.linalg.norm(X) / np.linalg.norm(E) * E, 0), K)


def counted_light(rng: Rng) -> Drawn:
    """Counts, fitted by least squares."""
    F, N, K = sizes(rng)
    return Drawn(rng.poisson(30 * mixtures(rng, F, N, K)).astype(float), K)


def few_features(rng: Rng) -> Drawn:
    K = int(rng.integers(2, 5))
    F, N = int(rng.integers(2 * K + 2, 16)), int(rng.integers(200, 500))
    return Drawn(with_noise(rng, mixtures(rng, F, N, K), 0.05), K)


def peaks(rng: Rng) -> Drawn:
    """Chromatograms: narrow peaks, each component with a few, and noise."""
    F, N, K = sizes(rng)
    x = np.linspace(0, 1, F)[:, None]
    W = np.zeros((F, K))
    for _ in range(3):
        W += rng.uniform(0.3, 1, K) * np.exp(-(((x - rng.random(K)) / 0.03) ** 2) / 2)
    X = W @ rng.dirichlet(np.full(K, 0.5), N).T
    return Drawn(with_noise(rng, X, 0.1), K)


def outlier_counts(rng: Rng) -> Drawn:
    """Poisson counts; two samples have a hundred times as many, of a profile of their own."""
    F, N, K = 96, int(rng.integers(60, 150)), int(rng.integers(2, 7))
    rates = rng.dirichlet(np.full(F, 0.3), K).T @ rng.gamma(0.8, 1500, (K, N))
    rates[:, :2] = 1e5 * rng.dirichlet(np.full(F, 0.3), 2).T
    return Drawn(rng.poisson(rates).astype(float), K, "poisson")


def rare_component(rng: Rng) -> Drawn:
    """One component is in a few samples only, which share it."""
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K - 1)
    some = rng.choice(N, max(5, N // 20), replace=False)
    X[:, some] += np.outer(rng.gamma(0.5, 2.0, F), rng.uniform(0.5, 1.5, some.size))
    return Drawn(with_noise(rng, X, 0.05), K)


def rounded(rng: Rng) -> Drawn:
    """Exact products, rounded to two digits."""
    F, N, K = sizes(rng)
    X = mixtures(rng, F, N, K)
    return Drawn(np.round(100 * X / X.max(), 0 if rng.random() < 0.5 else 1), K)


def exact_mixtures(rng: Rng) -> Drawn:
    """Exact products of random sparse factors, some in single precision."""
    F, N, K = sizes(rng)
    V = mixtures(rng, F, N, K)
    return Drawn(V.astype(np.float32) if rng.random() < 0.3 else V, K)


FAMILIES: dict[str, Callable[[Rng], Drawn]] = {
    one.__name__.replace("_", " "): one
    for one in (
        sparse_mixtures,
        smooth_noise,
        shared_factor,
        heavy_tails,
        uneven_features,
        proportional,
        outlier_samples,
        few_samples,
        blocks,
        tight_groups,
        nearly_tight_groups,
        unequal_units,
        topics,
        time_stamp,
        beyond_the_rank,
        planted_blocks,
        uneven_samples,
        spikes,
        copied_samples,
        drifting_noise,
        counted_light,
        few_features,
        peaks,
        outlier_counts,
        rare_component,
        rounded,
        exact_mixtures,
    )
} | {
    "one, white noise": lambda rng: one_component(rng, "white"),
    "one, heavy tails": lambda rng: one_component(rng, "heavy"),
    "one, proportional": lambda rng: one_component(rng, "proportional"),
    "overdispersed": lambda rng: overdispersed(rng, by_feature=False),
    "overdispersed by feature": lambda rng: overdispersed(rng, by_feature=True),
}

# The families on whose draws constants were chosen.
CHOSE = (
    "sparse mixtures",
    "heavy tails",
    "proportional",
    "outlier samples",
    "few samples",
    "unequal units",
    "nearly tight groups",
    "time stamp",
    "one, white noise",
    "overdispersed by feature",
    "topics",
    "spikes",
    "drifting noise",
    "few features",
    "outlier counts",
    "uneven samples",
)


# --- rows and tables ----------------------------------------------------------------------------


def drawn(name: str, number: int) -> Drawn:
    """The draw of a family with this number."""
    return FAMILIES[name](np.random.default_rng([46, crc32(name.encode()), number]))


def ask(name: str, number: int) -> dict[str, Any]:
    """What `select_k` says about one draw, and how long it takes in units of one fit."""
    V, K, loss = drawn(name, number)
    data = from_columns(V)
    began = time.process_time()
    chosen = select_k(data, loss=loss)
    seconds = time.process_time() - began
    began = time.process_time()
    factorize(data, chosen.K, loss=loss)
    fit = time.process_time() - began
    low, high = chosen.interval
    return {
        "family": name,
        "number": number,
        "true": K,
        "K": int(chosen.K),
        "low": int(low),
        "high": int(high),
        "grade": chosen.grade,
        "by": chosen.decided_by,
        "sentence": chosen.sentence,
        "seconds": round(seconds, 3),
        "cost": round(seconds / fit, 2),
    }


def cells(rows: list[dict[str, Any]]) -> list[str]:
    """Count what a table shows of some answers."""
    right = sum(one["K"] == one["true"] for one in rows)
    near = sum(abs(one["K"] - one["true"]) <= 1 for one in rows)
    found = [f"{right} ({near}) of {len(rows)}"]
    for grade in ("proved", "supported", "guess"):
        some = [one for one in rows if one["grade"] == grade]
        held = sum(one["low"] <= one["true"] <= one["high"] for one in some)
        width = np.median([one["high"] - one["low"] for one in some]) if some else 0
        found.append(f"{held} of {len(some)}, {width:g}" if some else "")
    costs = [one["cost"] for one in rows]
    return [*found, f"{np.median(costs):.2g}, {max(costs):.2g}"]


def table(paths: list[Path]) -> None:
    """Print the families of several files of rows side by side."""
    files = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    print(
        "| family | rows | right (within one) | proved: inside, width | supported | guess | cost |"
    )
    print("|---|---|---|---|---|---|---|")
    names = [*FAMILIES, "all", "all that chose constants", "all others"]
    for name in names:
        for path, rows in zip(paths, files, strict=True):
            some = [one for one in rows if is_in(one["family"], name)]
            if some:
                star = "" if name in CHOSE or name.startswith("all") else " *"
                print("|", " | ".join([name + star, path.stem, *cells(some)]), "|")
    print("\n* no constant was chosen on these draws")


def is_in(family: str, name: str) -> bool:
    """Whether a row of a table counts a family."""
    if name == "all that chose constants":
        return family in CHOSE
    if name == "all others":
        return family not in CHOSE
    return name in (family, "all")


def measure(names: Iterable[str], numbers: range, path: Path) -> None:
    """Ask about some draws of families; save each row as it comes, and print a table."""
    warnings.simplefilter("ignore")
    path.write_text("")
    with threadpool_limits(1):
        for name in names:
            for number in numbers:
                row = ask(name, number)
                with path.open("a") as file:
                    print(json.dumps(row), file=file)
    table([path])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", help="by default all")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--rows", type=Path, default=Path("k_families.jsonl"))
    parser.add_argument("--compare", type=Path, nargs="+", help="print tables of these rows")
    options = parser.parse_args()
    if options.compare:
        table(options.compare)
        return
    numbers = range(options.first, options.first + options.draws)
    measure(options.families or FAMILIES, numbers, options.rows)


if __name__ == "__main__":
    main()

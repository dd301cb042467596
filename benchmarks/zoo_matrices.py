"""The matrices of the zoo: kinds of data that people factor, drawn from seeds, and real datasets.

A kind is a function of a generator and of a size that returns samples in rows and the number of
components to ask for. Twenty are drawn of every kind; those that can be large have 10^6 entries or
more in eight of them. Constants of the library are chosen on the matrices with an even number
(`is_chosen_on`) and reported on all.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from measure import DATA
from sklearn.datasets import load_digits

from conenmf import make_cones
from conenmf.datasets import tf_idf

PER_KIND, LARGE_PER_KIND = 20, 8
LARGE_ENTRIES = 1_000_000

Rng: TypeAlias = np.random.Generator
Drawn: TypeAlias = tuple[Any, int]


# One matrix of the zoo; constants may be chosen on those with an even number, the others are only
# reported. `load` returns the matrix and the number of components
Member = namedtuple("Member", "kind name is_chosen_on load")


def shape(rng: Rng, large: bool, ratio: tuple[float, float] = (0.1, 10.0)) -> tuple[int, int]:
    """Numbers of samples and features, their quotient log-uniform in a range."""
    low, high = (LARGE_ENTRIES, 2 * LARGE_ENTRIES) if large else (5_000, 200_000)
    entries = np.exp(rng.uniform(np.log(low), np.log(high)))
    quotient = np.exp(rng.uniform(*np.log(ratio)))
    return int(np.ceil(np.sqrt(entries * quotient))), int(np.ceil(np.sqrt(entries / quotient)))


def few(rng: Rng, low: int = 2, high: int = 12) -> int:
    return int(rng.integers(low, high + 1))


def sized(
    *, ratio: tuple[float, float] = (0.1, 10.0), K: tuple[int, int] = (2, 12)
) -> Callable[[Callable[..., Drawn]], Callable[[Rng, bool], Drawn]]:
    """A kind whose sides, and then the number of components, are drawn before all else."""

    def decorate(kind: Callable[..., Drawn]) -> Callable[[Rng, bool], Drawn]:
        @wraps(kind)
        def drawn(rng: Rng, large: bool) -> Drawn:
            return kind(rng, *shape(rng, large, ratio), few(rng, *K))

        return drawn

    return decorate


def noisy(X: np.ndarray, rng: Rng, share: float) -> np.ndarray:
    """X with normal noise of this share of its root mean square, negative entries set to 0."""
    noise = rng.standard_normal(X.shape) * (share * np.sqrt(np.mean(X**2)))
    return np.maximum(X + noise, 0.0)


def smooth_spectra(rng: Rng, K: int, F: int) -> np.ndarray:
    """K spectra of F bands: a slope and a few broad peaks each."""
    band = np.linspace(0.0, 1.0, F)
    spectra = rng.uniform(0.05, 0.5, (K, 1)) + rng.uniform(-0.04, 0.4, (K, 1)) * band
    for _ in range(3):
        centre, width = rng.uniform(0, 1, (K, 1)), rng.uniform(0.05, 0.3, (K, 1))
        spectra += rng.uniform(0.1, 1, (K, 1)) * np.exp(-(((band - centre) / width) ** 2) / 2)
    return np.maximum(spectra, 0.0)


@sized(K=(3, 12))
def cones(rng: Rng, N: int, F: int, K: int) -> Drawn:
    angle = float(rng.uniform(0.02, 0.2))
    return make_cones(max(F, K + 1), K, angle, n_samples=N, rng=rng).V.T, K


def noisy_cones(rng: Rng, large: bool) -> Drawn:
    X, K = cones(rng, large)
    return noisy(X, rng, float(np.exp(rng.uniform(np.log(0.01), np.log(1.0))))), K


@sized(ratio=(5.0, 100.0), K=(3, 8))
def scenes(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Linear mixtures of smooth spectra; abundances are sparse and sum to one; little noise."""
    abundances = rng.dirichlet(np.full(K, rng.uniform(0.1, 1.0)), N)
    return noisy(abundances @ smooth_spectra(rng, K, F), rng, float(rng.choice([1e-3, 1e-2]))), K


@sized(ratio=(5.0, 100.0), K=(3, 6))
def uneven_scenes(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Nearly exact mixtures of smooth spectra by samples of very different norms."""
    norms = rng.lognormal(0.0, rng.uniform(1.0, 2.0), (N, 1))
    X = norms * (rng.dirichlet(np.full(K, 0.3), N) @ smooth_spectra(rng, K, F))
    return X * (1 + 1e-3 * rng.standard_normal(X.shape)), K


@sized(K=(3, 12))
def near_separable(rng: Rng, N: int, F: int, K: int) -> Drawn:
    H = np.vstack([np.eye(K), rng.dirichlet(np.ones(K), max(N - K, 1))])
    X = H @ (rng.random((K, F)) * (rng.random((K, F)) < 0.5))
    return noisy(X, rng, float(rng.choice([1e-4, 1e-2, 0.1]))), K


@sized(K=(3, 10))
def blocks(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Blocks of samples and features that belong together, some overlapping, on a background."""
    H = np.eye(K)[rng.integers(K, size=N)] * rng.uniform(0.5, 1.5, (N, 1))
    H += (rng.random((N, K)) < 0.05) * rng.random((N, K))
    W = np.eye(K)[rng.integers(K, size=F)].T * rng.uniform(0.5, 1.5, F)
    return noisy(H @ W, rng, float(rng.uniform(0.01, 0.5))), K


@sized()
def low_rank_noise(rng: Rng, N: int, F: int, K: int) -> Drawn:
    X = rng.gamma(rng.uniform(0.2, 2.0), 1.0, (N, K)) @ rng.gamma(1.0, 1.0, (K, F))
    return noisy(X, rng, float(np.exp(rng.uniform(np.log(1e-3), np.log(1.0))))), K


def topic_rates(rng: Rng, N: int, F: int, K: int) -> np.ndarray:
    """The expected counts of F terms in N documents of K topics; terms follow Zipf's law."""
    frequency = 1.0 / (np.arange(F) + 2.7)
    topics = rng.gamma(0.1 + 20.0 * frequency, 1.0, (K, F)) + 0.2 * frequency
    topics /= topics.sum(axis=1, keepdims=True)
    words = rng.lognormal(np.log(80.0), 0.6, (N, 1))
    return words * (rng.dirichlet(np.full(K, 0.1), N) @ topics)


@sized(ratio=(0.1, 2.0), K=(3, 15))
def sparse_counts(rng: Rng, N: int, F: int, K: int) -> Drawn:
    return sp.csr_array(rng.poisson(topic_rates(rng, N, F, K)).astype(np.float64)), K


def texts(rng: Rng, large: bool) -> Drawn:
    X, K = sparse_counts(rng, large)
    X = tf_idf(X)
    return X[np.flatnonzero(np.asarray(X.sum(axis=1)).ravel())], K


@sized(ratio=(0.3, 3.0), K=(3, 12))
def cells(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Poisson counts of genes in cells of a few types, with depths that differ."""
    genes = rng.lognormal(-1.5, 1.5, F)
    types = genes * np.exp((rng.random((K, F)) < 0.1) * rng.normal(0, 1.5, (K, F)))
    membership = rng.dirichlet(np.full(K, 0.15), N)
    rates = rng.lognormal(0.0, 0.5, (N, 1)) * (membership @ types)
    counts = rng.poisson(rates).astype(np.float64)
    return (np.log1p(counts) if rng.random() < 0.5 else counts), K


@sized(ratio=(0.3, 3.0), K=(4, 20))
def images(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Images of parts: soft spots, of which each image shows some, at intensities of its own."""
    side = int(np.ceil(np.sqrt(F)))
    y, x = np.mgrid[:side, :side] / side
    centre, width = rng.uniform(0.1, 0.9, (K, 2, 1, 1)), rng.uniform(0.05, 0.2, (K, 1, 1))
    distance = (y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2
    parts = np.exp(-distance / (2 * width**2)).reshape(K, -1)
    shown = (rng.random((N, K)) < rng.uniform(0.2, 0.6)) * rng.uniform(0.3, 1.0, (N, K))
    X = shown @ np.where(parts > 0.05, parts, 0.0) + 0.02
    return noisy(X, rng, float(rng.choice([0.01, 0.1]))), K


@sized(K=(2, 10))
def near_duplicates(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Features that nearly repeat a few originals, up to a factor and a small deviation."""
    originals = few(rng, 10, 30)
    X = rng.gamma(0.7, 1.0, (N, originals))[:, rng.integers(originals, size=F)]
    return X * rng.uniform(0.5, 2.0, F) * (1 + rng.choice([1e-6, 1e-3]) * rng.random((N, F))), K


@sized()
def heavy_tails(rng: Rng, N: int, F: int, K: int) -> Drawn:
    """Mixtures whose samples, and some entries, differ in size by orders of magnitude."""
    X = rng.dirichlet(np.full(K, 0.3), N) @ rng.gamma(0.5, 1.0, (K, F))
    X *= rng.pareto(1.5, (N, 1)) + 0.01
    return noisy(X, rng, 0.01) + X * (rng.random(X.shape) < 1e-3) * 5, K


def rank_deficient(rng: Rng, large: bool) -> Drawn:
    """Exactly of lower rank than the number of components, or of that rank."""
    N, F = shape(rng, large)
    rank = few(rng, 2, 8)
    H = rng.random((N, rank)) * (rng.random((N, rank)) < 0.6)
    X = H @ (rng.random((rank, F)) * (rng.random((rank, F)) < 0.6))
    return X, rank + int(rng.integers(0, 3))


def tall(rng: Rng, large: bool) -> Drawn:
    F = int(rng.integers(6, 25))
    N = (LARGE_ENTRIES if large else 50_000) // F + 1
    K = few(rng, 2, F // 2)
    X = rng.gamma(0.5, 1.0, (N, K)) @ rng.gamma(0.5, 1.0, (K, F))
    return noisy(X, rng, float(rng.uniform(0.01, 0.3))), K


def wide(rng: Rng, large: bool) -> Drawn:
    X, K = tall(rng, large)
    return np.ascontiguousarray(X.T), K


def tiny(rng: Rng, large: bool) -> Drawn:
    N, F = int(rng.integers(3, 13)), int(rng.integers(3, 13))
    return rng.random((N, F)) * (rng.random((N, F)) < 0.8) + 0.01, few(rng, 2, min(N, F))


def one_component(rng: Rng, large: bool) -> Drawn:
    return (low_rank_noise if rng.random() < 0.5 else heavy_tails)(rng, large)[0], 1


def full_rank(rng: Rng, large: bool) -> Drawn:
    """As many components as the smaller side has."""
    side = int(rng.integers(4, 13))
    other = (LARGE_ENTRIES if large else int(rng.integers(500, 20_000))) // side + 1
    X = rng.random((other, side)) ** 3
    return (X if rng.random() < 0.5 else np.ascontiguousarray(X.T)), side


SMALL_ONLY = (tiny,)
KINDS = (
    cones,
    noisy_cones,
    scenes,
    uneven_scenes,
    near_separable,
    blocks,
    low_rank_noise,
    sparse_counts,
    texts,
    cells,
    images,
    near_duplicates,
    heavy_tails,
    rank_deficient,
    tall,
    wide,
    tiny,
    one_component,
    full_rank,
)


def draw(kind: Callable[[Rng, bool], Drawn], number: int) -> Drawn:
    """The matrix of a kind with this number; the first ones are large."""
    rng = np.random.default_rng([KINDS.index(kind), number])
    X, K = kind(rng, number < LARGE_PER_KIND and kind not in SMALL_ONLY)
    return (X if sp.issparse(X) else np.ascontiguousarray(X)), K


DENSE = {  # components: the number of classes, or 10
    "orl_32x32": 40,
    "orl_112x92": 40,
    "yale_32x32": 15,
    "coil20_32x32": 20,
    "georgia_tech_crop": 50,
    "paviau_subset": 8,
    "indian_pines": 16,
}
SPARSE = {
    "tr11": 9,
    "tr23": 6,
    "tr31": 7,
    "tr41": 10,
    "tr45": 10,
    "re0": 13,
    "wap": 20,
    "k1b": 6,
    "movielens": 10,
}
TABLES = {  # columns of names or dates before the numbers, delimiter, components
    "esat/Baltimore_con.txt": (1, "\t", 10),
    "esat/BatonRouge-con.csv": (1, ",", 10),
    "signatures/SBS_set1/catalog_Noiseless.csv": (2, ",", 23),
    "signatures/SBS_set1/catalog_Moderate.csv": (2, ",", 23),
    "signatures/SBS_set1/catalog_Realistic.csv": (2, ",", 23),
    "signatures/indel_set1/catalog_Noiseless.csv": (4, ",", 11),
    "signatures/indel_set1/catalog_Moderate.csv": (4, ",", 11),
    "signatures/indel_set1/catalog_Realistic.csv": (4, ",", 11),
}


def load_real(name: str, data: Path = DATA) -> Drawn:
    """A dataset as it is, counts as counts."""
    if name == "digits":
        return load_digits().data, 10
    if name in TABLES:
        skipped, delimiter, K = TABLES[name]
        rows = pd.read_csv(data / name, sep=delimiter, float_precision="round_trip")
        X = rows.iloc[:, skipped:].dropna().to_numpy(float)
        return np.ascontiguousarray(X.T if "catalog" in name else X), K
    if name in SPARSE:
        return sp.csr_array(sp.load_npz(data / name / "V.npz"), dtype=np.float64), SPARSE[name]
    if name == "pbmc_facs":
        return sp.csr_array(sp.load_npz(data / name / "counts.npz"), dtype=np.float64), 5
    return np.load(data / name / "V.npz")["V"].astype(np.float64), DENSE[name]


def zoo() -> Iterator[Member]:
    """All matrices: the kinds, digits, and the datasets in the folder named by CONENMF_DATA."""
    for kind in KINDS:
        for number in range(PER_KIND):
            name = f"{kind.__name__}-{number:02}"
            yield Member(kind.__name__, name, number % 2 == 0, partial(draw, kind, number))
    names = ["digits", *DENSE, "", *SPARSE, "pbmc_facs", *TABLES]  # "": halves stay as they were
    for number, name in enumerate(names):
        if name == "digits" or (name and (DATA / name).exists()):
            yield Member("real", name, number % 2 == 0, partial(load_real, name))

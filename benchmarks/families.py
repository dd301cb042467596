"""Data drawn with a known truth, in families: planted components in several ways, and noise.

A family draws a set from a generator: samples in rows, the true components in rows (none for
noise), the number of components to ask for, the loss, and labels of samples that belong together.
Sizes are log-uniform, noise has a strength of its own in each set. Constants of the verdict may be
chosen on sets with an even seed (`may_choose`), except in the families that are held out.
`recovered` compares fitted components with the true ones, one to one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.signal import lfilter
from zoo_matrices import few, noisy, smooth_spectra

from conenmf.datasets import tf_idf

Array = np.ndarray
Rng = np.random.Generator

COSINE = 0.95  # from which on a fitted component counts as a true one
HELD_OUT = "overdispersed counts", "peaks"


class Drawn(NamedTuple):
    """A set: samples in rows, and what is known of it."""

    X: Any
    truth: Array | None  # components in rows
    K: int
    loss: str = "frobenius"
    labels: Array | None = None


class Family(NamedTuple):
    """A way to draw sets; families of one kind have goals in common.

    Kinds are planted, two too many, one too few, beside (something that is no component), groups,
    one component, noise, repeated noise, and correlated.
    """

    name: str
    kind: str
    draw: Callable[[Rng], Drawn]

    def drawn(self, seed: int) -> Drawn:
        """The set of a seed."""
        return self.draw(np.random.default_rng([crc32(self.name.encode()), seed]))

    def may_choose(self, seed: int) -> bool:
        """Whether constants of the verdict may be chosen on the set of this seed."""
        is_held_out = any(self.name.startswith(name) for name in HELD_OUT)
        return seed % 2 == 0 and not is_held_out


def between(rng: Rng, low: float, high: float) -> float:
    """A number that is log-uniform in a range."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def sizes(rng: Rng, least: int = 2) -> tuple[int, int, int]:
    """Numbers of samples, features and components: at least ten samples and five features each."""
    N, F = int(between(rng, 60, 1500)), int(between(rng, 30, 800))
    return N, F, few(rng, least, min(12, F // 5, N // 10))


def weights(rng: Rng, N: int, K: int) -> Array:
    """Shares of components in samples, from nearly pure to well mixed."""
    return rng.dirichlet(np.full(K, between(rng, 0.1, 1.0)), N)


def unit(rows: Array) -> Array:
    """Rows that sum to one."""
    return rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-300)


def varying(rng: Rng, rates: Array, low: float, high: float) -> Array:
    """Gamma factors of mean one, one for each rate, whose variance is drawn from a range."""
    variance = between(rng, low, high)
    return rng.gamma(1 / variance, variance, rates.shape)


def profiles(rng: Rng, K: int, F: int) -> Array:
    """Sparse components, every feature in one of them at least."""
    found = rng.gamma(rng.uniform(0.2, 0.8), 1.0, (K, F)) + 1e-6
    found[rng.integers(K, size=F), np.arange(F)] += 0.1
    return unit(found)


# --- planted components -------------------------------------------------------------------------


def rates_of(rng: Rng, least: int = 2, n_true: int | None = None) -> tuple[Array, Array, int]:
    """Noiseless samples of different sizes, the sparse components, and how many to ask for."""
    N, F, K = sizes(rng, least)
    truth = profiles(rng, n_true or K, F)
    sums = rng.lognormal(0.0, rng.uniform(0.1, 0.7), (N, 1))
    return sums * (weights(rng, N, len(truth)) @ truth), truth, K


def measured(rng: Rng, rates: Array, truth: Array, K: int) -> Drawn:
    """Normal noise on the rates, for least squares."""
    return Drawn(noisy(rates, rng, between(rng, 0.02, 0.7)), truth, K)


def counted(rng: Rng, rates: Array, truth: Array, K: int) -> Drawn:
    """Poisson counts, 50 to 5000 for a sample of size one."""
    X = rng.poisson(between(rng, 50, 5000) * rates).astype(float)
    return Drawn(X, truth, K, "poisson")


def mixtures(rng: Rng, least: int = 2) -> Drawn:
    return measured(rng, *rates_of(rng, least))


def counts(rng: Rng, least: int = 2) -> Drawn:
    return counted(rng, *rates_of(rng, least))


def overdispersed(rng: Rng, least: int = 2) -> Drawn:
    """Negative binomial counts: rates vary by a gamma factor of variance 0.05 to 1."""
    rates, truth, K = rates_of(rng, least)
    return counted(rng, rates * varying(rng, rates, 0.05, 1.0), truth, K)


def texts(rng: Rng, least: int = 2) -> Drawn:
    """Counts of terms by topics on a background by Zipf's law; half of them weighted by tf-idf.

    The truth of weighted counts are the weighted topics: tf-idf multiplies features by factors and
    samples by others, and the latter do not change a component.
    """
    N, F, K = sizes(rng, least)
    frequency = unit(1.0 / (np.arange(F) + 2.7)[None])
    own = rng.gamma(0.05 * F * frequency + 0.02, 1.0, (K, F))
    truth = unit(0.9 * unit(own) + 0.1 * frequency)
    words = rng.lognormal(np.log(between(rng, 50, 800)), 0.5, (N, 1))
    rates = words * (rng.dirichlet(np.full(K, between(rng, 0.05, 0.5)), N) @ truth)
    X = sp.csr_array(rng.poisson(rates).astype(float))
    X = X[np.flatnonzero(X.sum(axis=1))]
    X = X[:, (used := np.flatnonzero(X.sum(axis=0)))]
    truth = truth[:, used]
    if rng.random() < 0.5:
        return Drawn(X, truth, K, "poisson")
    idf = np.log(X.shape[0] / (X > 0).sum(axis=0))
    X = tf_idf(X)
    return Drawn(X[np.flatnonzero(X.sum(axis=1))], truth * idf, K)


def smooth(rng: Rng, least: int = 2) -> Drawn:
    """Spectra with a slope and broad peaks, in nearly pure to mixed samples."""
    N, F, K = sizes(rng, least)
    truth = smooth_spectra(rng, K := max(K // 2, least), F)
    X = noisy(weights(rng, N, K) @ truth, rng, between(rng, 0.002, 0.1))
    return Drawn(X, truth, K)


def peaks(rng: Rng, least: int = 2) -> Drawn:
    """Narrow peaks on a low background, noise that grows with the signal."""
    N, F, K = sizes(rng, least)
    x = np.linspace(0.0, 1.0, F)
    truth = np.full((K, F), rng.uniform(0.0, 0.03))
    for _ in range(few(rng, 2, 5)):
        places, widths = rng.random((K, 1)), rng.uniform(0.01, 0.08, (K, 1))
        truth += rng.uniform(0.2, 1.0, (K, 1)) * np.exp(-0.5 * ((x - places) / widths) ** 2)
    X = weights(rng, N, K) @ truth
    return Drawn(noisy(X * varying(rng, X, 1e-4, 0.1), rng, 0.01), truth, K)


def blocks(rng: Rng, least: int = 2) -> Drawn:
    """Features in blocks that overlap, samples in one or a few of them."""
    N, F, K = sizes(rng, least)
    places = np.linspace(0.0, 1.0, F) * K - np.arange(K)[:, None]
    truth = ((places >= 0) & (places <= rng.uniform(1.0, 1.6))) * rng.uniform(0.5, 1.5, (K, F))
    H = np.eye(K)[rng.integers(K, size=N)] * rng.uniform(0.5, 1.5, (N, 1))
    H += (rng.random((N, K)) < rng.uniform(0.0, 0.5)) * rng.random((N, K))
    return Drawn(noisy(H @ truth, rng, between(rng, 0.02, 1.0)), truth, K)


PLANTED: dict[str, Callable[..., Drawn]] = {
    "mixtures": mixtures,
    "counts": counts,
    "overdispersed counts": overdispersed,
    "texts": texts,
    "smooth spectra": smooth,
    "peaks": peaks,
    "blocks": blocks,
}


def asked_for(draw: Callable[..., Drawn], more: int, rng: Rng) -> Drawn:
    """A planted set with more components asked for than are there, or fewer (of 3 and more)."""
    drawn = draw(rng, least=2 if more > 0 else 3)
    return drawn._replace(K=drawn.K + more)


# --- planted components with something beside them ----------------------------------------------


def outlier(rng: Rng) -> Drawn:
    """One sample of another profile that holds much of the norm, and a component more for it.

    One sample is no evidence of a component, so the truth has none for it.
    """
    drawn = (mixtures, counts)[rng.integers(2)](rng)
    X, share = drawn.X, rng.uniform(0.1, 0.6)
    sample = rng.gamma(0.3, 1.0, X.shape[1])
    sample *= np.sqrt(share / (1 - share)) * np.linalg.norm(X) / np.linalg.norm(sample)
    X[rng.integers(len(X))] = np.round(sample) if drawn.loss == "poisson" else sample
    return drawn._replace(X=X, K=drawn.K + 1)


def repeated(rng: Rng, X: Any) -> Any:
    """Samples of which some are there several times."""
    times = rng.geometric(rng.uniform(0.2, 0.7), X.shape[0])
    return X[rng.permutation(np.repeat(np.arange(X.shape[0]), times))[: max(1500, X.shape[0])]]


def duplicates(rng: Rng) -> Drawn:
    drawn = (mixtures, counts, texts)[rng.integers(3)](rng)
    return drawn._replace(X=repeated(rng, drawn.X))


def groups(rng: Rng, *, are_known: bool) -> Drawn:
    """Each group scales each feature by a log-normal factor; the truth is the mean over groups."""
    rates, truth, K = rates_of(rng)
    N, F = rates.shape
    n_groups = few(rng, 3, 10)
    labels = np.sort(rng.integers(n_groups, size=N))
    factors = rng.lognormal(0.0, rng.uniform(0.1, 0.8), (n_groups, F))
    observed = (measured, counted)[rng.integers(2)]
    drawn = observed(rng, rates * factors[labels], truth * factors.mean(axis=0), K)
    return drawn._replace(labels=labels if are_known else None)


def one_component(rng: Rng) -> Drawn:
    """One component in samples of different sizes, and noise; more components are asked for."""
    observed = (measured, counted)[rng.integers(2)]
    return observed(rng, *rates_of(rng, n_true=1))


# --- noise --------------------------------------------------------------------------------------


def sparse(rng: Rng, N: int, F: int) -> Any:
    X = sp.random_array((N, F), density=between(rng, max(0.01, 3 / F), 0.2), rng=rng, format="csr")
    return X[np.flatnonzero(X.sum(axis=1))]


def margins(rng: Rng, N: int, F: int) -> Array:
    """Expected counts that depend on the sizes of samples and features alone."""
    rows = rng.lognormal(0.0, rng.uniform(0.1, 1.0), (N, 1))
    columns = rng.lognormal(0.0, rng.uniform(0.1, 1.5), F)
    return between(rng, 0.1, 20) * rows * columns


def overdispersed_margins(rng: Rng, N: int, F: int) -> Array:
    rates = margins(rng, N, F)
    return rng.poisson(rates * varying(rng, rates, 0.1, 2.0))


NOISE: dict[str, Callable[[Rng, int, int], Any]] = {
    "sparse": sparse,
    "gamma": lambda rng, N, F: rng.gamma(between(rng, 0.1, 5.0), 1.0, (N, F)),
    "log-normal": lambda rng, N, F: rng.lognormal(0.0, rng.uniform(0.3, 1.5), (N, F)),
    "Poisson with margins": lambda rng, N, F: rng.poisson(margins(rng, N, F)),
    "overdispersed with margins": overdispersed_margins,
}


def noise(rng: Rng, *, name: str) -> Drawn:
    """Independent entries; counts depend on the sizes of samples and features alone."""
    N, F, K = sizes(rng)
    X = NOISE[name](rng, N, F)
    return Drawn(X.astype(float), None, K, "poisson" if "margins" in name else "frobenius")


def repeated_noise(rng: Rng) -> Drawn:
    """Noise of which samples are there several times, half of the sets in different sizes."""
    drawn = noise(rng, name=list(NOISE)[rng.integers(3)])
    X = repeated(rng, drawn.X)
    if rng.random() < 0.5:
        sums = rng.lognormal(0.0, 1.0, (X.shape[0], 1))
        X = X.multiply(sums).tocsr() if sp.issparse(X) else X * sums
    return drawn._replace(X=X)


def correlated_noise(rng: Rng, axis: int) -> Drawn:
    """Autoregressive noise along an axis, made positive by an exponential or by a level."""
    N, F, K = sizes(rng)
    rho = rng.uniform(0.5, 0.97)
    Z = lfilter([np.sqrt(1 - rho**2)], [1, -rho], rng.standard_normal((N, F)), axis=axis)
    X = np.exp(rng.uniform(0.3, 1.0) * Z) if rng.random() < 0.5 else np.maximum(2 + Z, 0)
    return Drawn(X, None, K)


def families() -> list[Family]:
    """All families, each kind together."""
    found = [Family(name, "planted", draw) for name, draw in PLANTED.items()]
    for kind, more in (("two too many", 2), ("one too few", -1)):
        for name, draw in PLANTED.items():
            found.append(Family(f"{name}, {kind}", kind, partial(asked_for, draw, more)))
    found += [
        Family("one outlier", "beside", outlier),
        Family("duplicated samples", "beside", duplicates),
        Family("groups, labels known", "groups", partial(groups, are_known=True)),
        Family("groups, labels unknown", "groups", partial(groups, are_known=False)),
        Family("one component", "one component", one_component),
    ]
    found += [Family(f"noise: {name}", "noise", partial(noise, name=name)) for name in NOISE]
    found += [Family("noise: repeated", "repeated noise", repeated_noise)]
    for name, axis in (("features", 1), ("samples", 0)):
        draw = partial(correlated_noise, axis=axis)
        found.append(Family(f"noise: correlated along {name}", "correlated", draw))
    return found


def recovered(components: Array, truth: Array | None) -> tuple[Array, Array]:
    """Which fitted components are true ones, and which have no partner: the surplus."""
    K = len(components)
    is_surplus = np.ones(K, bool)
    is_recovered = np.zeros(K, bool)
    if truth is None:
        return is_recovered, is_surplus
    lengths = [np.linalg.norm(rows, axis=1, keepdims=True) for rows in (components, truth)]
    scale = np.maximum(lengths[0] @ lengths[1].T, 1e-300)
    cosines = components @ truth.T / scale
    own, partner = linear_sum_assignment(-cosines)
    is_surplus[own] = False
    is_recovered[own] = cosines[own, partner] >= COSINE
    return is_recovered, is_surplus

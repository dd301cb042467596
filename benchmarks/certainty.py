"""How sure we can be: the verdict, lower bounds, limits of entries, uniqueness of components.

The pages are docs/certificate.md (bounds, unique) and docs/stability.md (limits).

    python benchmarks/certainty.py bounds [SET ...]
    python benchmarks/certainty.py limits [--lines dense] [--seeds 6]
    python benchmarks/certainty.py unique [SET ...]
    python benchmarks/certainty.py verdict [--draws 10] [--other DIR]
    python benchmarks/certainty.py named --data DIR

``bounds``: for real datasets, the lower bound of singular values alone, that of the default and of
a large effort, and which share of the gap to the smallest error of a few fits each closes.
"held out" marks matrices on which no constant was chosen. The bounds are tested on tiny matrices by
tests/judge/test_dual_bound.py.
``limits``: in what share of the entries above 1/F of stable components the limits of `stability`
cover the truth, on drawn data with 20 runs; beside it the bootstrap alone, and how much wider the
limits are. The limits were chosen on seeds 0 to 11; seeds 12 to 17 were drawn afterwards.
``unique``: how many components can be moved at an error of at most 1.001 times, by the short search
and by the thorough one; how many the thorough search did not find to move, and how many are
undecided; how many have a proved radius of at most 1 degree; CPU seconds of the fit and of both
searches. "*" marks sets on which constants of the short search were chosen.
``verdict``: what `diagnose` says of components whose truth is known, by family of drawn data, and
the goals beside what was found. Sets that were held out from the choice of constants are reported
apart from the others. --other judges the same draws with another checkout.
``named``: what it says of the data of real sets; those in a folder need --data.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np
import zoo_matrices
from measure import command, heading, row, timed
from verdicts import named, verdict
from zoo_matrices import SPARSE, Member, zoo

from conenmf import datasets, factorize, from_columns, from_rows, stability, uniqueness
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import tf_idf
from conenmf.judge.limits import entry_limits
from conenmf.judge.matching import match_components
from conenmf.judge.uniqueness import UNIQUE_RADIUS
from conenmf.linalg.svd import Spectrum
from conenmf.solve.dual_bound import DEFAULT_EFFORT, best_lower_bound, support_width

LARGE_EFFORT = 40
MAX_ENTRIES = 2e6  # of data on which other inits are tried too


def matrices(names: tuple[str, ...]) -> Iterator[tuple[str, Member, Any, int]]:
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
    """The CPU seconds of the default; the smallest error of a few fits, of one if V is large."""
    seconds, result = timed(lambda: factorize(V, K))
    inits = ["random", "random", "random", "nndsvda"] if V.n_entries <= MAX_ENTRIES else []
    options = {"tol": 1e-6, "max_iter": 1000}
    fits = [
        factorize(V, K, init=init, rng=np.random.default_rng(seed), **options)
        for seed, init in enumerate(inits)
    ]
    return seconds, min(fit.relative_error for fit in [result, *fits])


def bounds(*sets: str) -> None:
    """Lower bounds of real datasets."""
    heading("set", "K", "entries", "error", "singular values", "default", "closed", "large",
            "closed", "CPU s of the fit", "of values", "of default", "of large")  # fmt: skip
    for name, member, X, K in matrices(sets):
        V = from_rows(X)
        spectrum = Spectrum(V)
        found = [smallest_error(V, K)]
        for effort in (0, DEFAULT_EFFORT, LARGE_EFFORT):
            run = partial(best_lower_bound, V, K, effort=effort, spectrum=spectrum)
            seconds, bound = timed(run)
            found.append((seconds, bound.value))
        times, (error, below, *raised) = zip(*found, strict=True)
        entries = support_width(V) * V.shape[1] / V.n_entries
        closed = [f"{100 * (one - below) / max(error - below, 1e-12):.1f}%" for one in raised]
        beside = [cell for pair in zip(raised, closed, strict=True) for cell in pair]
        mark = "" if member.is_chosen_on else " (held out)"
        row(f"{name}{mark}", K, entries, error, below, *beside, *times)


Array = np.ndarray
Drawn = tuple[Array, Array]  # data (F, N), and the true components (F, K)
FIRST_SEEDS = 0, 12


def noisy(W: Array, H: Array, noise: float, rng: np.random.Generator) -> Drawn:
    """W H with normal noise of this relative size, clipped at zero."""
    return zoo_matrices.noisy(W @ H, rng, noise), W / W.sum(axis=0)


def mixtures(
    kind: str, alpha: float, noise: float, rng: np.random.Generator, N: int = 200
) -> Drawn:
    """Sixty features, four components, weights of samples from Dirichlet(alpha)."""
    W = rng.gamma(0.5, 1, (60, 4)) if kind == "sparse" else rng.random((60, 4))
    if kind == "spectra":
        W = 0.5 + peaks(60, 4, rng)
    return noisy(W, rng.dirichlet(np.full(4, alpha), N).T, noise, rng)


def peaks(F: int, K: int, rng: np.random.Generator) -> Array:
    """Components with four Gaussian peaks each."""
    x = np.linspace(0, 1, F)[:, None]
    places, widths = rng.random((4, K)), rng.uniform(0.03, 0.12, (4, K))
    heights = rng.random((4, K))
    return (heights * np.exp(-0.5 * ((x[:, None] - places) / widths) ** 2)).sum(axis=1)


def counts(total: float, rng: np.random.Generator, N: int = 200, density: float = 0.3) -> Drawn:
    """Poisson counts of 96 features, five components, samples from Dirichlet(0.5)."""
    W = rng.dirichlet(np.full(96, density), 5).T
    return rng.poisson(total * W @ rng.dirichlet(np.full(5, 0.5), N).T).astype(float), W


def overdispersed(rng: np.random.Generator, N: int) -> Drawn:
    """Counts of five signatures whose rates vary by a gamma factor of variance 0.1."""
    truth = rng.dirichlet(np.full(48, 0.3), 5).T
    rates = truth @ rng.gamma(0.5, 800, (5, N))
    return rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float), truth


def cells(rng: np.random.Generator, N: int, *, shared: bool = False) -> Drawn:
    """Counts of 100 genes in cells, and their seven programs.

    Every cell has one of six programs for what it is; three in ten also have the seventh, for what
    it does, with a share of 0.1 to 0.7. Totals are log-normal, about 1000; rates vary by a gamma
    factor of variance 0.1. Many genes have nearly no counts in a program, unless they are shared:
    then every program raises some genes of a base that all have.
    """
    if shared:
        base = rng.lognormal(0.0, 1.0, (100, 1))
        raised = base * rng.lognormal(1.5, 0.5, (100, 7))
        programs = np.where(rng.random((100, 7)) < 0.15, raised, base)
        programs /= programs.sum(axis=0)
    else:
        programs = rng.dirichlet(np.full(100, 0.2), 7).T
    usage = np.zeros((7, N))
    usage[rng.integers(0, 6, N), np.arange(N)] = 1
    active = rng.uniform(0.1, 0.7, N) * (rng.random(N) < 0.3)
    usage *= 1 - active
    usage[6] = active
    rates = programs @ (usage * rng.lognormal(np.log(1000), 0.4, N))
    return rng.poisson(rates * rng.gamma(10, 0.1, rates.shape)).astype(float), programs


def bands(rng: np.random.Generator, N: int) -> Drawn:
    """Spectra with peaks on a low background, Dirichlet(0.7), noise that grows with the signal."""
    W = 0.02 + peaks(120, 3, rng)
    X = W @ rng.dirichlet(np.full(3, 0.7), N).T
    return X * rng.gamma(400, 1 / 400, X.shape), W / W.sum(axis=0)


def lognormal(rng: np.random.Generator, N: int) -> Drawn:
    """Six components without zeros, samples of very different size, 10 % noise."""
    return noisy(rng.lognormal(0, 1, (80, 6)), rng.exponential(1, (6, N)), 0.1, rng)


def blocks(rng: np.random.Generator, N: int) -> Drawn:
    """Five blocks that overlap, each in four of ten samples; 15 % noise, clipped at zero."""
    places = np.arange(100)[:, None] - 18 * np.arange(5)
    W = ((places >= 0) & (places < 28)) * rng.uniform(0.5, 1.5, (100, 5))
    H = rng.gamma(2, 1, (5, N)) * (rng.random((5, N)) < 0.4)
    return noisy(W, H, 0.15, rng)


def measured(share: float, doubtful: float, rng: np.random.Generator) -> tuple[DataMatrix, Array]:
    """20 species of 4 sources, sigma 0.02 + 0.1 x; a share is missing, another has sigma 3."""
    truth = rng.dirichlet(np.full(20, 0.4), 4).T
    X = truth @ rng.gamma(1.0, 1.0, (4, 200))
    sigma = np.where(rng.random(X.shape) < doubtful, 3.0, 0.02 + 0.1 * X)
    X = X + sigma * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < share] = np.nan
    return from_columns(X, sigma=sigma, missing="nan", negative="keep"), truth


# A line of the table; `draw` takes a generator and returns data and the true components
Line = namedtuple("Line", "group name draw loss resample", defaults=("frobenius", "samples"))


def all_lines() -> list[Line]:
    squares, poisson = "least squares", "Poisson"
    found = [
        Line(squares, "sparse W, Dirichlet(0.5), 5 %", partial(mixtures, "sparse", 0.5, 0.05)),
        Line(squares, "sparse W, Dirichlet(0.5), 30 %", partial(mixtures, "sparse", 0.5, 0.3)),
        Line(squares, "dense W, Dirichlet(0.5), 5 %", partial(mixtures, "dense", 0.5, 0.05)),
        Line(squares, "dense W, Dirichlet(0.5), 30 %", partial(mixtures, "dense", 0.5, 0.3)),
        Line(squares, "dense W, Dirichlet(0.5), no noise", partial(mixtures, "dense", 0.5, 0.0)),
        Line(squares, "dense W, Dirichlet(0.2)", partial(mixtures, "dense", 0.2, 0.05)),
        Line(
            squares,
            "dense W, Dirichlet(0.5), N = 1000",
            partial(mixtures, "dense", 0.5, 0.05, N=1000),
        ),
        Line(
            squares,
            "dense W, Dirichlet(0.5), N = 5000",
            partial(mixtures, "dense", 0.5, 0.05, N=5000),
        ),
        Line(squares, "dense W, Dirichlet(2)", partial(mixtures, "dense", 2, 0.05)),
        Line(squares, "spectra, W > 0.5", partial(mixtures, "spectra", 0.5, 0.05)),
        Line("uncertainties", "a tenth missing", partial(measured, 0.1, 0.0)),
        Line("uncertainties", "half missing", partial(measured, 0.5, 0.0)),
        Line("uncertainties", "a tenth missing, 15 % doubtful", partial(measured, 0.1, 0.15)),
        Line(poisson, "200 counts, samples", partial(counts, 200), "poisson"),
        Line(poisson, "200 counts, counts", partial(counts, 200), "poisson", "counts"),
        Line(poisson, "30 counts", partial(counts, 30), "poisson"),
        Line(poisson, "1e5 counts", partial(counts, 1e5), "poisson"),
        Line(poisson, "2000 counts, dense patterns", partial(counts, 2000, density=2), "poisson"),
        Line(poisson, "2000 counts, N = 20", partial(counts, 2000, N=20), "poisson"),
    ]
    others = {
        "overdispersed counts": (overdispersed, "poisson"),
        "cells": (cells, "poisson"),
        "cells, a shared base": (partial(cells, shared=True), "poisson"),
        "bands, growing noise": (bands, "frobenius"),
        "log-normal W, K = 6": (lognormal, "frobenius"),
        "overlapping blocks": (blocks, "frobenius"),
    }
    return found + [
        Line("other generators", f"{name}, N = {N}", partial(draw, N=N), loss)
        for name, (draw, loss) in others.items()
        for N in (200, 1000)
    ]


# A stable component: which of its entries are covered, and how wide its limits are
Component = namedtuple("Component", "covered covered_by_bootstrap width_ratio is_withheld")


def components(line: Line, seed: int) -> tuple[list[Component], int]:
    """The stable components of a draw, and how many there are in all."""
    X, truth = line.draw(np.random.default_rng(seed))
    V, K = X if isinstance(X, DataMatrix) else from_columns(X), truth.shape[1]
    found = stability(V, K, 20, loss=line.loss, resample=line.resample)
    if found.no_consensus:
        return [], K
    W = found.W / found.W.sum(axis=0)
    runs = [run[:, match_components(W, run)[0]] for run in found.spectra]
    runs = np.array([run / run.sum(axis=0) for run in runs if run.any(axis=0).all()])
    each = []
    for w, place in zip(truth.T, match_components(truth, W)[0], strict=True):
        if not found.is_stable[place]:
            continue
        large = w > 1 / len(w)
        lower, upper = found.lower[large, place], found.upper[large, place]
        low, high = entry_limits(W[large, place], runs[:, large, place])
        ratio = float(np.median((upper - lower) / np.maximum(high - low, 1e-12)))
        inside = (lower <= w[large]) & (w[large] <= upper)
        inside_bootstrap = (low <= w[large]) & (w[large] <= high)
        each.append(Component(inside, inside_bootstrap, ratio, bool(found.withheld[place])))
    return each, K


def share(each: list[Array]) -> str:
    return f"{np.mean(np.concatenate(each)):.3f}" if each else "-"


def limits(lines: str = "", seeds: int = 6) -> None:
    """Coverage of each line whose name or group has this text, on so many seeds of each half."""
    heading("line", "coverage", "bootstrap", "wider", "stable", "of", "withheld")
    for line, first in product(all_lines(), FIRST_SEEDS):
        if lines not in f"{line.group}: {line.name}":
            continue
        drawn = [components(line, seed) for seed in range(first, first + seeds)]
        each = [one for own, _ in drawn for one in own]
        shown = [one for one in each if not one.is_withheld]
        ratio = f"{np.median([one.width_ratio for one in shown]):.1f}" if shown else "-"
        coverage = share([one.covered for one in shown])
        before = share([one.covered_by_bootstrap for one in each])
        counts = (len(each), sum(K for _, K in drawn), len(each) - len(shown))
        row(f"{line.name}, seeds {first} to {first + seeds - 1}", coverage, before, ratio, *counts)


SETS = {  # K, the loss, and whether a constant was chosen on it
    "digits": (10, "frobenius", True),
    "paviau_subset": (5, "frobenius", True),
    "tr11": (9, "frobenius", True),
    "orl_32x32": (25, "frobenius", True),
    "indian_pines": (8, "frobenius", False),
    "coil20_32x32": (20, "frobenius", False),
    "yale_32x32": (15, "frobenius", False),
    "k1b": (6, "frobenius", False),
    "re0": (13, "frobenius", False),
    "tr23": (6, "poisson", False),
    "wap": (20, "poisson", False),
}


def planted() -> Iterator[tuple[str, DataMatrix, int, str, bool]]:
    """Draw factors of either kind, and noise."""
    for kind in ("separable", "mixtures"):
        for noise in (0.0, 0.01, 0.1):
            rng = np.random.default_rng(0)
            W, H = rng.random((60, 5)) + 0.05, rng.dirichlet(np.full(5, 3.0), 400).T
            if kind == "separable":
                W[:5], H[:, :5] = np.eye(5), np.eye(5)
            V = W @ H
            V = np.maximum(V + noise * V.std() * rng.standard_normal(V.shape), 0)
            yield f"{kind}, noise {noise:.0%}", from_columns(V), 5, "frobenius", False


def known_sets() -> Iterator[tuple[str, DataMatrix, int, str, bool]]:
    """Load the sets that are there."""
    there = datasets.available()
    for name, (K, loss, chosen_on) in SETS.items():
        if name in there:
            yield name, from_rows(datasets.load(name).X), K, loss, chosen_on


def unique(*sets: str) -> None:
    """Verdicts and what they cost."""
    heading("set", "K", "error", "moved by the short search", "by the thorough one",
            "no move found", "undecided", "radius at most 1 degree", "moved exactly",
            "CPU s of the fit", "of the short search", "of the thorough one")  # fmt: skip
    for name, V, K, loss, chosen_on in chain(planted(), known_sets()):
        if sets and not name.startswith(sets):
            continue
        seconds, result = timed(partial(factorize, V, K, loss=loss))
        judge = partial(uniqueness, V, result.W, result.H, loss=loss)
        (short_time, short), (long_time, found) = (
            timed(partial(judge, thorough=thorough)) for thorough in (False, True)
        )
        moved = [one.verdicts.count("can be moved") for one in (short, found)]
        others = [found.verdicts.count(one) for one in ("no move found", "undecided")]
        near = int((found.radii <= UNIQUE_RADIUS).sum())
        exactly = judge(max_iter=0).verdicts.count("can be moved")
        counts = (*moved, *others, near, exactly)
        times = (seconds, short_time, long_time)
        row(name + " *" * chosen_on, K, result.relative_error, *counts, *times)


if __name__ == "__main__":
    command(__doc__, bounds, limits, unique, verdict, named)

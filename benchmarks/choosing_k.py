"""How often the number of components is right, how sure it is said to be, and what that costs.

Every part draws matrices of a known number of components and asks `choose_k`:

cones
    The paper's model: K from 3 to 20, at most 300 features and 2000 samples, probabilities from
    Dirichlet(3); axes at equal angles, or at unequal ones with unequal size angles and rates.
spectra
    Mixtures of smooth spectra with pure samples, and noise.
catalogues
    Mutation catalogues drawn from real signatures, Poisson or negative binomial.
published
    The catalogues of Liu et al. (2023) with 23 and 11 signatures.
texts
    Those of the zoo: what the choice costs for sparse data.
scenes
    Drawn scenes of 3 to 8 materials whose spectra vary from sample to sample, and samson, which has
    3 materials.
families
    Those of `k_families`, which were drawn to try the choice: outliers, one component, noise of
    many kinds. That program also compares two checkouts.

Constants of `conenmf.cones.counting`, `conenmf.judge.dispersion` and `conenmf.judge.choose_k` were
chosen on draws with even numbers; by default those with odd numbers are reported, with ``--even``
those that constants rest on. Datasets that are not there are left out.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import chain, product
from pathlib import Path

import k_families
import numpy as np
import zoo_matrices
from measure import DATA, command, timed
from measure import numbers as table

from conenmf import Problem, factorize, from_columns, from_rows, make_cones
from conenmf.cones.counting import count_above_edge, estimate_rank
from conenmf.cones.simulate import ConeModel
from conenmf.data.matrix import DataMatrix
from conenmf.judge.choose_k import choose_k

NOISE = (0.01, 0.05, 0.1)  # the paper's delta
Cell = Iterator[tuple]  # V, K, and for an oracle the signal without noise


# --- matrices ---------------------------------------------------------------------------------


def unequal_axes(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    """Nonnegative unit vectors, some pairs much closer than others."""
    axes = rng.gamma(rng.uniform(0.2, 2), 1, (F, K))
    for k in range(1, K):
        if rng.random() < 0.3:  # close to an earlier one
            axes[:, k] = axes[:, int(rng.integers(k))] * (1 + rng.uniform(0.1, 1) * rng.random(F))
    return axes / np.linalg.norm(axes, axis=0)


def drawn_cones(number: int, unequal: bool, noise: float) -> ConeModel:
    """The paper's model; cones satisfy the geometric assumption."""
    rng = np.random.default_rng([33, number, unequal])
    K = int(rng.integers(3, 21))
    F = int(np.exp(rng.uniform(np.log(max(K + 10, 40)), np.log(300))))
    N = int(np.exp(rng.uniform(np.log(max(20 * K, 100)), np.log(2000))))
    rates = 1 / (rng.uniform(0.1, 4, K) if unequal else rng.uniform(0.5, 2, K))
    more = {"n_samples": N, "rates": rates, "noise": noise, "rng": rng}
    more["weights"] = rng.dirichlet(np.full(K, 3.0))
    if not unequal:
        return make_cones(F, K, rng.uniform(0.08, 0.25), **more)
    return make_cones(F, K, *unequal_sizes(rng, axes := unequal_axes(rng, F, K)), axes=axes, **more)


def unequal_sizes(rng: np.random.Generator, axes: np.ndarray) -> tuple[np.ndarray]:
    """Size angles for which equation (2) of the paper holds."""
    apart = np.arccos(np.clip(axes.T @ axes, -1, 1))[~np.eye(axes.shape[1], dtype=bool)].min()
    sizes = rng.uniform(0.2, 1, axes.shape[1])
    largest, second = np.sort(sizes)[::-1][:2]
    return (sizes * rng.uniform(0.3, 0.999) * apart / (3 * largest + second),)


def cones(numbers: range, unequal: bool, noise: float) -> Cell:
    for number in numbers:
        model = drawn_cones(number, unequal, noise)
        along = model.axes[:, model.labels]  # a sample's signal lies along the axis of its cone
        signal = along * (along * drawn_cones(number, unequal, 0.0).V).sum(axis=0)
        yield from_columns(model.V), np.unique(model.labels).size, signal


def spectra(numbers: range, noise: float) -> Cell:
    for number in numbers:
        rng = np.random.default_rng([34, number])
        K, F, N = (int(rng.integers(*ends)) for ends in ((3, 11), (60, 220), (200, 1500)))
        x, W = np.linspace(0, 1, F)[:, None], np.full((F, K), 0.1)
        for _ in range(4):
            height, place, width = (
                rng.uniform(*ends, K) for ends in ((0.2, 1), (0, 1), (0.03, 0.2))
            )
            W += height * np.exp(-((x - place) ** 2) / (2 * width**2))
        V = W @ np.hstack([np.eye(K), rng.dirichlet(np.ones(K), N - K).T])
        size = noise * np.linalg.norm(V) / np.sqrt(V.size)
        yield from_columns(np.maximum(V + size * rng.standard_normal(V.shape), 0)), K, V


def texts(numbers: range) -> Cell:
    for number in numbers:
        X, K = zoo_matrices.draw(zoo_matrices.texts, number)
        yield from_rows(X), K


def scenes(numbers: range) -> Cell:
    """Scenes of the zoo, with a factor for each entry that is smooth along the spectrum."""
    for number in numbers:
        X, K = zoo_matrices.draw(zoo_matrices.scenes, number)
        rng, (N, F) = np.random.default_rng([36, number]), X.shape
        waves = np.cos(np.pi * np.outer(np.arange(6), np.linspace(0, 1, F)))
        yield from_rows(X * np.exp(0.05 * rng.standard_normal((N, 6)) @ waves)), K


def catalogues(numbers: range, K: int, N: int, size: float) -> Cell:
    """Each sample has some of K signatures, and about 3000 mutations; `size` 0 means Poisson."""
    signatures = table(DATA / "signatures" / "SBS_set1" / "signatures.csv")
    for number in numbers:
        rng = np.random.default_rng([35, K, N, number])
        W = signatures[:, rng.choice(signatures.shape[1], K, replace=False)]
        is_active = rng.random((K, N)) < 0.6
        is_active[rng.integers(K, size=N), np.arange(N)] = True
        H = is_active * rng.gamma(1.0, 1.0, (K, N))
        rates = W @ (H / H.sum(axis=0) * rng.lognormal(np.log(3000), 0.8, N))
        if size:
            rates = rates * rng.gamma(size, 1 / size, rates.shape)
        yield from_columns(rng.poisson(rates).astype(float)), K


def published() -> Iterator[tuple[str, Cell]]:
    for name, K in (("SBS_set1", 23), ("indel_set1", 11)):
        V = from_columns(table(DATA / "signatures" / name / "catalog_Realistic.csv"))
        yield name, iter([(V, K)])


# --- what is counted --------------------------------------------------------------------------


# What was said about a matrix; costs are in fits with the true number of components
Answer = namedtuple("Answer", "true K low high grade cost seconds others")


def ask(V: DataMatrix, K: int, signal: np.ndarray | None, loss: str) -> Answer:
    seconds, chosen = timed(lambda: choose_k(V, Problem(loss)))
    fit, _ = timed(lambda: factorize(V, K, loss=loss))
    others = {}
    if loss == "frobenius":
        others = {"edge": count_above_edge(V).K, "ratio": estimate_rank(V).K}
    if signal is not None:
        others["oracle"] = oracle(V, signal)
    return Answer(K, chosen.K, *chosen.interval, chosen.grade, seconds / fit, seconds, others)


def oracle(V: DataMatrix, signal: np.ndarray) -> int:
    """Singular values of the signal above those that can be told from noise of this size."""
    F, N = signal.shape
    noise = np.linalg.norm(V.columns(np.arange(N)) - signal) / np.sqrt(F * N)
    return int(np.sum(np.linalg.svd(signal, compute_uv=False) > noise * (F * N) ** 0.25))


# --- lines ------------------------------------------------------------------------------------


def report(title: str, cell: Cell, loss: str = "frobenius") -> list[Answer]:
    """Ask about all matrices of a cell, and print one line."""
    answers = [ask(*(*drawn, None)[:3], loss) for drawn in cell]
    print(f"{title:36}{described(answers)}", flush=True)
    return answers


def described(answers: list[Answer]) -> str:
    errors = np.array([one.K - one.true for one in answers])
    others = []
    for name in dict.fromkeys(name for one in answers for name in one.others):
        apart = np.array([abs(one.others.get(name, 0) - one.true) for one in answers])
        others.append(f"{name} {np.sum(apart == 0)} ({np.sum(apart <= 1)})")
    grades = []
    for grade in ("proved", "supported", "guess"):
        some = [one for one in answers if one.grade == grade]
        if some:
            width = np.median([one.high - one.low for one in some])
            held = sum(one.low <= one.true <= one.high for one in some)
            grades.append(f"{grade} {len(some)} (holds {held}, width {width:g})")
    costs = np.array([one.cost for one in answers])
    return (
        f"of {len(answers):3}: right {np.sum(errors == 0):3}, within one "
        f"{np.sum(np.abs(errors) <= 1):3}, from {errors.min():+d} to {errors.max():+d}; "
        f"{', '.join(others)}; {'; '.join(grades)}; "
        f"cost {np.median(costs):.2g} t, at most {costs.max():.2g} t "
        f"({max(one.seconds for one in answers):.2g} s)"
    )


# --- the program ------------------------------------------------------------------------------

PARTS = ("cones", "spectra", "texts", "scenes", "catalogues", "published", "families")
Group = dict[str, Cell]  # cells by title


def groups(part: str, numbers: Callable[[int], range]) -> Iterator[Group]:
    """The cells of a part; those of a group are also counted together."""
    if part == "cones":
        angles = {False: "equal angles", True: "unequal angles"}
        for levels in ((0.0,), NOISE):
            yield {
                f"cones, {name}, noise {noise:g}": cones(numbers(25), unequal, noise)
                for (unequal, name), noise in product(angles.items(), levels)
            }
    elif part == "spectra":
        yield {f"spectra, noise {noise:.0%}": spectra(numbers(20), noise) for noise in NOISE}
    elif part == "texts":
        yield {"texts of the zoo": texts(numbers(10))}
    elif part == "scenes":
        yield {"scenes of the zoo": scenes(numbers(10))}
        if (DATA / "samson").exists():
            samson = np.load(DATA / "samson" / "V.npz")["V"].astype(float)
            yield {"samson": iter([(from_rows(samson), 3)])}
    elif part == "catalogues" and (DATA / "signatures").exists():
        for size in (0, 20, 5):
            yield {
                f"catalogues, size {size or 'infinite'}, K = {K}, {N}": catalogues(
                    numbers(10), K, N, size
                )
                for K, N in product((3, 6, 10), (60, 200))
            }
    elif part == "published" and (DATA / "signatures").exists():
        yield dict(published())


def main(*parts: str, draws: int = 25, even: bool = False) -> None:
    print(f"{'even' if even else 'odd'} draws; t is the time of a fit with the true K")

    def numbers(most: int) -> range:
        return range(0 if even else 1, 2 * min(draws, most), 2)

    for part in parts or PARTS:
        if part == "families":
            k_families.measure(k_families.FAMILIES, range(min(draws, 10)), Path("k_families.jsonl"))
        loss = "poisson" if part in ("catalogues", "published") else "frobenius"
        for group in groups(part, numbers):
            found = [report(title, cell, loss) for title, cell in group.items()]
            if len(found) > 1:
                print(f"{'all of these':36}{described([*chain(*found)])}", flush=True)


if __name__ == "__main__":
    command(__doc__, main)

"""The Poisson loss beside scikit-learn's, and its lower bounds; docs/counts.md.

Both run on one thread, in turn. Of two runs of scikit-learn's NMF (solver "mu"; nndsvda and random)
with a fixed number of iterations the lower divergence is the mark. Each line of the table has

- the CPU seconds of that run, and those of a ConeNMF that ends as soon as it is at the mark;
- the CPU seconds of the default calls of both, and by how much our divergence is lower;
- the lower bound of the divergence, as a share of what our default reaches, and of the
  divergence of one component.

Datasets are those of the zoo that are there, or those of them that are named. Constants of the
solver and of the sprint of inits were chosen on every second set by name; the others have a star.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from measure import command, heading, in_turn, machine, row, use_one_thread, versions
from sklearn.decomposition import NMF
from zoo_matrices import zoo

from conenmf import ConeNMF, from_rows
from conenmf.solve.dual_bound import divergence_bound

SETS = {  # components
    **{"wap": 20, "k1b": 20, "pbmc_facs": 6, "re0": 13, "tr11": 9, "tr23": 6, "tr31": 7},
    **{"tr41": 10, "tr45": 10, "signatures/SBS_set1/catalog_Realistic.csv": 23},
    **{"signatures/indel_set1/catalog_Realistic.csv": 11},
}
TAKES_MINUTES = {"pbmc_facs"}  # so it is measured only if it is asked for
HELD_OUT = {"signatures/indel_set1/catalog_Realistic.csv", "re0", "tr23", "tr41", "wap"}


def theirs(K: int, **options: Any) -> NMF:
    return NMF(K, solver="mu", beta_loss="kullback-leibler", random_state=0, **options)


def until(mark: float, K: int) -> ConeNMF:
    """A fit that ends as soon as its divergence is at most the mark."""
    options = {"tol": 1e-7, "max_iter": 2000, "callback": lambda now: now.objective <= mark}
    return ConeNMF(K, loss="poisson", n_threads=1, **options)


def divergence(model: Any, X: Any) -> float:
    """That of a fit with its coefficients."""
    model.fit_transform(X)
    ours = isinstance(model, ConeNMF)
    return model.result_.objective if ours else model.reconstruction_err_**2 / 2


def measure(name: str, X: Any, iterations: int, rounds: int) -> None:
    """Print the line of a set."""
    K = SETS[name]
    fixed = {
        init: theirs(K, init=init, tol=0.0, max_iter=iterations) for init in ("nndsvda", "random")
    }
    marks = {init: divergence(model, X) for init, model in fixed.items()}
    init = min(marks, key=marks.__getitem__)
    divergence(until(marks[init], K), X)  # compiles
    contenders = {
        "theirs": fixed[init],
        "mark": until(marks[init], K),
        "their default": theirs(K),
        "default": ConeNMF(K, loss="poisson", n_threads=1),
    }
    runs = {one: partial(divergence, model, X) for one, model in contenders.items()}
    found = in_turn(runs, rounds)
    reached = found["mark"][1] <= marks[init]
    bound = divergence_bound(from_rows(X), K)
    row(
        f"{name}{'*' * (name in HELD_OUT)}",
        f"{X.shape[0]} x {X.shape[1]}, {K}",
        found["theirs"][0],
        found["mark"][0] if reached else "not reached",
        f"{found['theirs'][0] / found['mark'][0]:.1f} times" if reached else "-",
        found["their default"][0],
        found["default"][0],
        f"{1 - found['default'][1] / found['their default'][1]:.1%}",
        f"{bound.value / found['default'][1]:.0%}",
        f"{bound.value / bound.of_margins:.0%}",
    )


def main(*sets: str, iterations: int = 200, rounds: int = 3) -> None:
    asked = set(sets or SETS.keys() - TAKES_MINUTES)
    use_one_thread()
    heading("counts", "samples x features, K", f"scikit-learn, {iterations} iterations, s",
            "ConeNMF to that divergence, s", "sooner", "default scikit-learn, s",
            "default ConeNMF, s", "its divergence is lower by", "lower bound / divergence",
            "bound / one component")  # fmt: skip
    for member in zoo():
        if member.name in asked:
            X = member.load()[0].astype(np.float64)
            measure(member.name, X, iterations, rounds)
    print(f"\n{machine() | versions()}; CPU seconds, medians of {rounds} runs in turn.")


if __name__ == "__main__":
    command(__doc__, main)

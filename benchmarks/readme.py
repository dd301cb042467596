"""The table and the picture of README.md and docs/index.md: conenmf and scikit-learn by default.

The data ship with scikit-learn or are generated, so anyone can repeat this. After one fit
that compiles the kernels, the two libraries take turns on one thread. Times are medians of CPU
seconds, which depend less on other programs than wall time does. `--write` puts the table into
README.md and docs/index.md and draws docs/readme.png.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from measure import command, cones, fitted, in_turn, machine, topics, use_one_thread, versions
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

from conenmf import ConeNMF

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
PICTURE = ROOT / "docs" / "readme.png"
BORDERS = "<!-- benchmarks/readme.py: begin -->\n", "<!-- benchmarks/readme.py: end -->"
DATA: dict[str, tuple[Callable[[], Any], int]] = {
    "digits, 1797 x 64": (lambda: load_digits().data, 16),
    "samples in cones, 5000 x 500": (lambda: cones(500, 5000, 20), 20),
    "generated text (tf-idf), 5000 x 8000, sparse": (lambda: topics(5000, 8000, 400_000, 20), 20),
}
COUNTS = (2, 4, 8, 12, 16, 24, 32)
GRADES = {"interpret": "#0b846b", "with care": "#e0b93b", "do not": "#cc5a0b", "open": "#868f99"}
COLOURS = {"scikit-learn": "#e07b39", "conenmf": "#2563a8"}


def contenders(K: int) -> dict[str, Callable[[], Any]]:
    theirs = NMF(K, random_state=0)  # its initial singular vectors are random
    return {"scikit-learn": lambda: clone(theirs), "conenmf": lambda: ConeNMF(K, n_threads=1)}


def in_words(ratio: float) -> str:
    """The ratio of their time to ours, in words."""
    if 0.9 < ratio < 1.1:
        return "as fast"
    return f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times **slower**"


def table(rounds: int) -> str:
    lines = [
        "| data, K | scikit-learn | conenmf | time | proven lower bound for the error |",
        "|---|---|---|---|---|",
    ]
    for name, (load, K) in DATA.items():
        X = load()
        runs = {name: lambda m=m, X=X: fitted(m(), X) for name, m in contenders(K).items()}
        found = in_turn(runs, rounds)
        (their_time, their_error), (our_time, our_error) = found["scikit-learn"], found["conenmf"]
        bound = ConeNMF(K).fit(X).certify().lower_bound
        lines.append(
            f"| {name}, K = {K} | {their_time:.2f} s, error {their_error:.4f} "
            f"| {our_time:.2f} s, error {our_error:.4f} "
            f"| {in_words(their_time / our_time)} | {bound:.4f} |"
        )
    used = {**machine(), **versions()}
    lines += [
        "",
        f"Both libraries ran with their defaults (conenmf {used['conenmf']}, scikit-learn "
        f"{used['scikit-learn']}) on one thread of an {used['processor']}.",
        f"Times are CPU seconds: medians of {rounds} alternating fits, "
        "not counting a first fit that compiles.",
        "`python benchmarks/readme.py` prints this table for your machine.",
    ]
    return "\n".join(lines) + "\n"


def draw() -> None:
    """Components of digits, and the error with its proven lower bound."""
    mpl.use("Agg")
    X = load_digits().data
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(10, 3.9), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(0.8, 1))
    model = ConeNMF(16).fit(X)
    verdict = model.diagnose()
    left.suptitle(verdict.headline)
    axes = left.subplots(4, 4).flat
    for ax, component, grade in zip(axes, model.components_, verdict.components, strict=True):
        ax.imshow(component.reshape(8, 8), cmap="Blues")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GRADES[grade], linewidth=2.5)
    right.suptitle("Error, and its proven lower bound")
    ax = right.subplots()
    for name, colour in COLOURS.items():
        models = [contenders(K)[name]().fit(X) for K in COUNTS]
        errors = [model.reconstruction_err_ / np.linalg.norm(X) for model in models]
        ax.plot(COUNTS, errors, "o-", color=colour, label=name)
    every = range(COUNTS[0], COUNTS[-1] + 1)
    bounds = [ConeNMF(K).fit(X).certify(effort=20).lower_bound for K in every]
    ax.fill_between(every, 0, bounds, color="#6b7280", alpha=0.25, linewidth=0)
    ax.text(5, 0.08, "no factorization has\nan error in this area", color="#374151")
    ax.set(xlabel="number of components", ylabel="relative error", ylim=(0, None))
    ax.legend(frameon=False, loc="upper right")
    figure.savefig(PICTURE, dpi=110)


def main(write: bool = False, rounds: int = 5) -> None:
    for load, K in DATA.values():  # compiles
        ConeNMF(K, max_iter=2).fit(load())
    use_one_thread()
    text = table(rounds)
    print(text)
    if write:
        for page in PAGES:
            before, _, rest = page.read_text("utf-8").partition(BORDERS[0])
            after = rest.partition(BORDERS[1])[2]
            page.write_text(f"{before}{BORDERS[0]}{text}{BORDERS[1]}{after}", "utf-8")
        draw()


if __name__ == "__main__":
    command(__doc__, main)

"""Whether components are unique: verdicts, and what they cost beside the fit.

Prints for each set the relative error, and how many components can be moved at an error of at most
1.001 times, by the short search and by the thorough one; how many of the others the thorough search
did not find to move, and how many are undecided; how many have a proved radius of at most 1 degree
(some of these can be moved at a larger error), and how many move without any change of WH. Then the
CPU seconds of the fit and of both searches, and their passes. "*" marks the sets on which constants
of the short search were chosen. Planted sets have factors with pure samples and anchor features
("separable"), and strictly positive ones ("mixtures"), with noise of 0, 1 and 10 %; the others are
those of `conenmf.datasets`, left out where they are not there. Pairs of factors with one product,
which test the radii, are in `tests/pairs.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import chain

import numpy as np

from conenmf import datasets, factorize, from_columns, from_rows, uniqueness
from conenmf.data.matrix import DataMatrix
from conenmf.judge.identifiability import UNIQUE_RADIUS

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


def known() -> Iterator[tuple[str, DataMatrix, int, str, bool]]:
    """Load the sets that are there."""
    there = datasets.available()
    for name, (K, loss, chosen_on) in SETS.items():
        if name in there:
            yield name, from_rows(datasets.load(name).X), K, loss, chosen_on


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", help="some of them; by default all")
    asked = parser.parse_args().sets
    print("set, K, error; components moved by the short search, and by the thorough one, not found")
    print(
        "to move, undecided; with a radius of at most 1 degree, moved exactly; then CPU seconds of"
    )
    print("the fit and of both searches, and passes of the same")
    for name, V, K, loss, chosen_on in chain(planted(), known()):
        if asked and not any(name.startswith(one) for one in asked):
            continue
        seconds, answers = [time.process_time()], []
        result = factorize(V, K, loss=loss)
        seconds.append(time.process_time())
        for thorough in (False, True):
            found = uniqueness(V, result.W, result.H, loss=loss, thorough=thorough)
            answers.append(found)
            seconds.append(time.process_time())
        counts = [one.verdicts.count("can be moved") for one in answers]
        counts += [found.verdicts.count(one) for one in ("not found to move", "undecided")]
        counts += [int((found.freedom.radii <= UNIQUE_RADIUS).sum()), len(found.freedom.visible)]
        passes = [result.passes, *(one.passes for one in answers)]
        print(
            f"{name + ' *' * chosen_on:23} {K:>2}  {result.relative_error:<8.3g} ",
            *(f"{count:>4}" for count in counts),
            *(f"{one:>7.2f}" for one in np.diff(seconds)),
            *(f"{one:>6.0f}" for one in passes),
            flush=True,
        )


if __name__ == "__main__":
    main()
